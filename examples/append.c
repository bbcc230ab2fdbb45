/* Appends one record to a replicated log and waits until it is durable on a quorum of peers.
 *   append POOL HOST:PORT [HOST:PORT ...]
 */
#include <perdure/perdure.h>
#include <stdio.h>

int main(int argc, char** argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: append POOL HOST:PORT [HOST:PORT ...]\n");
    return 2;
  }
  perdure_log_options options = {.size = sizeof options};
  options.pool = argv[1];
  options.peers = (const char* const*)(argv + 2);
  options.peer_count = (size_t)(argc - 2);
  perdure_log* log = NULL;
  perdure_ticket ticket;
  perdure_code code = perdure_log_open(&options, &log);
  if (code == PERDURE_OK) code = perdure_log_append(log, "a record that survives", 22, &ticket);
  if (code == PERDURE_OK) code = perdure_log_wait(log, &ticket, PERDURE_COMMITTED, 30000);
  if (code == PERDURE_OK) {
    printf("record %llu is committed\n", (unsigned long long)ticket.index);
  } else {
    fprintf(stderr, "append: %s: %s\n", perdure_code_name(code), perdure_last_error());
  }
  perdure_log_close(log);
  return code == PERDURE_OK ? 0 : 1;
}
