// perdure-rpmem-connect: takes ssh's place for librpmem (RPMEM_SSH) where an rpmemd listens all the
// time (rpmemd --listen). It understands what librpmem and libpmempool give to ssh, connects, says
// the command, and passes on what both sides write.
//
//   perdure-rpmem-connect [-p PORT] [-T] [-4] [-oOPTION] [USER@]HOST COMMAND
#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

namespace {

constexpr int kExitFailed = 255;  // as of ssh
constexpr const char* kDefaultPort = "7472";
constexpr std::string_view kTrailer = "exit ";

struct Wanted {
  std::string host;
  std::string port = kDefaultPort;
  std::string command;
};

int fail(const std::string& what) {
  fmt::print(stderr, "perdure-rpmem-connect: {}\n", what);
  return kExitFailed;
}

bool read_arguments(int argc, char** argv, Wanted& wanted) {
  int at = 1;
  for (; at < argc && argv[at][0] == '-'; ++at) {
    if (std::strcmp(argv[at], "-p") == 0 && at + 1 < argc) wanted.port = argv[++at];
  }
  if (at + 2 != argc) return false;
  wanted.host = argv[at];
  const std::size_t user = wanted.host.find('@');
  if (user != std::string::npos) wanted.host.erase(0, user + 1);
  wanted.command = argv[at + 1];
  return wanted.command.find('\n') == std::string::npos;
}

int connect_to(const Wanted& wanted) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(wanted.host.c_str(), wanted.port.c_str(), &hints, &found) != 0) return -1;
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> all(found, &::freeaddrinfo);
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    const int connection = ::socket(each->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connection < 0) continue;
    if (::connect(connection, each->ai_addr, each->ai_addrlen) == 0) return connection;
    ::close(connection);
  }
  return -1;
}

bool write_all(int to, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(to, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

/// Both ways, until the other side closes. When this side's input ends, so does what it sends.
void relay(int connection) {
  std::array<char, 16 * 1024> bytes{};
  bool input = true;
  for (;;) {
    pollfd ends[] = {{connection, POLLIN, 0}, {input ? STDIN_FILENO : -1, POLLIN, 0}};
    if (::poll(ends, 2, -1) < 0) {
      if (errno == EINTR) continue;
      return;
    }
    if (ends[0].revents != 0) {
      const ssize_t got = ::read(connection, bytes.data(), bytes.size());
      if (got <= 0) return;
      if (!write_all(STDOUT_FILENO, {bytes.data(), static_cast<std::size_t>(got)})) return;
    }
    if (ends[1].revents != 0) {
      const ssize_t got = ::read(STDIN_FILENO, bytes.data(), bytes.size());
      if (got <= 0) {
        input = false;
        (void)::shutdown(connection, SHUT_WR);
      } else if (!write_all(connection, {bytes.data(), static_cast<std::size_t>(got)})) {
        return;
      }
    }
  }
}

/// What the other side says to the end; its last line is how the command ended.
int hear_out(int connection) {
  std::string said;
  std::array<char, 4096> bytes{};
  for (ssize_t got = 0; (got = ::read(connection, bytes.data(), bytes.size())) > 0;) {
    said.append(bytes.data(), static_cast<std::size_t>(got));
  }
  const std::size_t last = said.rfind(kTrailer);
  const bool whole = last != std::string::npos && (last == 0 || said[last - 1] == '\n');
  const int status = whole ? std::atoi(said.c_str() + last + kTrailer.size()) : kExitFailed;
  (void)write_all(status == 0 ? STDOUT_FILENO : STDERR_FILENO, whole ? said.substr(0, last) : said);
  return whole ? status : fail("the connection ended before the command did");
}

}  // namespace

int main(int argc, char** argv) {
  ::signal(SIGPIPE, SIG_IGN);
  Wanted wanted;
  if (!read_arguments(argc, argv, wanted)) {
    return fail("usage: [-p PORT] [OPTIONS OF SSH] [USER@]HOST COMMAND");
  }
  const int connection = connect_to(wanted);
  if (connection < 0) {
    return fail(fmt::format("no rpmemd listens at {} port {}", wanted.host, wanted.port));
  }
  if (!write_all(connection, wanted.command + "\n")) return fail("the connection ended");
  if (wanted.command.find("--remove") != std::string::npos) return hear_out(connection);
  relay(connection);
  return 0;
}
