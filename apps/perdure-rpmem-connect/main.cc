// perdure-rpmem-connect: takes ssh's place for librpmem (RPMEM_SSH) where a daemon listens all the
// time, perdured or an rpmemd (--listen). It understands what librpmem and libpmempool give to ssh,
// connects, says the command, and passes on what both sides write. What a perdured asks for to be
// shown is in the file that PERDURE_RPMEM_CREDENTIAL_FILE names.
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

#include "rpmem/asked_command.h"

namespace perdure {
namespace {

constexpr int kExitFailed = 255;  // as of ssh
constexpr const char* kDefaultPort = "7472";
constexpr std::string_view kTrailer = "exit ";
constexpr const char* kCredentialFile = "PERDURE_RPMEM_CREDENTIAL_FILE";

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

/// What is said before all else: the credential, if there is one, and the command.
Result<std::string> first_lines(const Wanted& wanted) {
  const char* const file = std::getenv(kCredentialFile);  // NOLINT(concurrency-mt-unsafe)
  if (file == nullptr || *file == '\0') return wanted.command + "\n";
  const auto credential = rpmem::load_credential(file);
  if (credential.ok()) return fmt::format("credential {}\n{}\n", *credential, wanted.command);
  return Error{credential.code(),
               fmt::format("{}: {}; correct that, or unset the variable where nobody asks for a "
                           "credential",
                           kCredentialFile, credential.error().message)};
}

/// How the other side answers.
enum class Said {
  Nothing,
  Something,
  Http,
};

Said kind_of(std::string_view beginning) {
  if (beginning.empty()) return Said::Nothing;
  return beginning.starts_with("HTTP/") ? Said::Http : Said::Something;
}

/// Both ways, until the other side closes. When this side's input ends, so does what it sends.
/// Returns what the other side began with, as far as anybody waits for it.
Said relay(int connection) {
  Said heard = Said::Nothing;
  std::array<char, 16 * 1024> bytes{};
  bool input = true;
  for (;;) {
    pollfd ends[] = {{connection, POLLIN, 0}, {input ? STDIN_FILENO : -1, POLLIN, 0}};
    if (::poll(ends, 2, -1) < 0) {
      if (errno == EINTR) continue;
      return heard;
    }
    if (ends[0].revents != 0) {
      const ssize_t got = ::read(connection, bytes.data(), bytes.size());
      if (got <= 0) return heard;
      const std::string_view said(bytes.data(), static_cast<std::size_t>(got));
      if (heard == Said::Nothing) heard = kind_of(said);
      if (heard == Said::Http || !write_all(STDOUT_FILENO, said)) return heard;
    }
    if (ends[1].revents != 0) {
      const ssize_t got = ::read(STDIN_FILENO, bytes.data(), bytes.size());
      if (got <= 0) {
        input = false;
        heard = Said::Something;
        (void)::shutdown(connection, SHUT_WR);
      } else if (!write_all(connection, {bytes.data(), static_cast<std::size_t>(got)})) {
        return heard;
      }
    }
  }
}

constexpr const char* kIsHttp =
    "is a server of HTTP. If it is a perdured, that serves librpmem at its --rpmem-listen, by "
    "default port 7472";
constexpr const char* kSaysNothing =
    "ended the connection without a word: it is neither the --rpmem-listen of a perdured nor an "
    "rpmemd --listen, or too many come";

/// What is wrong where no rpmemd answers.
int fail_at(const Wanted& wanted, Said heard) {
  return fail(fmt::format("what listens at {} port {} {}", wanted.host, wanted.port,
                          heard == Said::Http ? kIsHttp : kSaysNothing));
}

/// What the other side says to the end; its last line is how the command ended.
int hear_out(const Wanted& wanted, int connection) {
  std::string said;
  std::array<char, 4096> bytes{};
  for (ssize_t got = 0; (got = ::read(connection, bytes.data(), bytes.size())) > 0;) {
    said.append(bytes.data(), static_cast<std::size_t>(got));
  }
  if (kind_of(said) != Said::Something) return fail_at(wanted, kind_of(said));
  const std::size_t last = said.rfind(kTrailer);
  const bool whole = last != std::string::npos && (last == 0 || said[last - 1] == '\n');
  const int status = whole ? std::atoi(said.c_str() + last + kTrailer.size()) : kExitFailed;
  (void)write_all(status == 0 ? STDOUT_FILENO : STDERR_FILENO, whole ? said.substr(0, last) : said);
  return whole ? status : fail("the connection ended before the command did");
}

int run(int argc, char** argv) {
  ::signal(SIGPIPE, SIG_IGN);
  Wanted wanted;
  if (!read_arguments(argc, argv, wanted)) {
    return fail("usage: [-p PORT] [OPTIONS OF SSH] [USER@]HOST COMMAND");
  }
  const auto lines = first_lines(wanted);
  if (!lines.ok()) return fail(lines.error().message);
  const int connection = connect_to(wanted);
  if (connection < 0) {
    return fail(
        fmt::format("nobody listens at {} port {}: start perdured with --rpmem-poolset-dir there, "
                    "or rpmemd --listen, or name the port where one of them listens",
                    wanted.host, wanted.port));
  }
  if (!write_all(connection, *lines)) return fail("the connection ended");
  if (wanted.command.find("--remove") != std::string::npos) return hear_out(wanted, connection);
  const Said heard = relay(connection);
  return heard == Said::Something ? 0 : fail_at(wanted, heard);
}

}  // namespace
}  // namespace perdure

int main(int argc, char** argv) { return perdure::run(argc, argv); }
