/* In the place of sshd between two machines that trust each other: remote_shell ADDRESS PORT.
 *
 * Each connection brings a command in its first line, as perdure-rpmem-connect sends it; what
 * follows is the command's input, and what it says goes back. SSH_CONNECTION is set as sshd does.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void append_end(char* text, size_t size, const struct sockaddr_in* end) {
  char address[INET_ADDRSTRLEN] = "";
  inet_ntop(AF_INET, &end->sin_addr, address, sizeof address);
  const size_t length = strlen(text);
  snprintf(text + length, size - length, "%s%s %d", length == 0 ? "" : " ", address,
           ntohs(end->sin_port));
}

static void serve(int connection) {
  char line[4096];
  size_t length = 0;
  while (length + 1 < sizeof line && read(connection, line + length, 1) == 1 &&
         line[length] != '\n') {
    ++length;
  }
  line[length] = '\0';
  struct sockaddr_in theirs = {0}, ours = {0};
  socklen_t size = sizeof theirs;
  getpeername(connection, (struct sockaddr*)&theirs, &size);
  size = sizeof ours;
  getsockname(connection, (struct sockaddr*)&ours, &size);
  char ends[128] = "";
  append_end(ends, sizeof ends, &theirs);
  append_end(ends, sizeof ends, &ours);
  setenv("SSH_CONNECTION", ends, 1);
  dup2(connection, 0);
  dup2(connection, 1);
  close(connection);
  execl("/bin/dash", "dash", "-c", line, (char*)NULL);
  perror("dash");
  _exit(127);
}

int main(int argc, char** argv) {
  struct sockaddr_in at = {.sin_family = AF_INET};
  if (argc != 3 || inet_pton(AF_INET, argv[1], &at.sin_addr) != 1) {
    fprintf(stderr, "usage: remote_shell ADDRESS PORT\n");
    return 2;
  }
  at.sin_port = htons((unsigned short)atoi(argv[2]));
  signal(SIGCHLD, SIG_IGN);
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (bind(listener, (const struct sockaddr*)&at, sizeof at) != 0 || listen(listener, 16) != 0) {
    perror("remote_shell");
    return 1;
  }
  printf("listening\n");
  fflush(stdout);
  for (;;) {
    const int connection = accept(listener, NULL, NULL);
    if (connection < 0) continue;
    if (fork() == 0) {
      signal(SIGCHLD, SIG_DFL);
      close(listener);
      serve(connection);
    }
    close(connection);
  }
}
