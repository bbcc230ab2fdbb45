// An rpmemd that perdured started: see rpmem_child.h.
#include "rpmem_child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string_view>

#include "core/errno_error.h"
#include "core/spawn_settings.h"
#include "rpmem/asked_command.h"

extern char** environ;

namespace perdure::daemon {
namespace {

constexpr int kReportDescriptor = 3;  // in the child
constexpr int kFirstDescriptor = 10;  // here: none of those that the child begins with
constexpr int kSignalStatus = 128;    // as of a shell
constexpr int kUnknownStatus = 255;   // somebody else has waited for it
constexpr std::string_view kEnds = "SSH_CONNECTION=";

/// The same open file at a number that no standard stream has. Below zero: errno says why not.
Descriptor above_standard(int descriptor) {
  return Descriptor(::fcntl(descriptor, F_DUPFD_CLOEXEC, kFirstDescriptor));
}

Error lacking(std::string_view call, int why) {
  Error error = errno_error(call, why);
  const bool may_pass = why == EAGAIN || why == ENOMEM || why == EMFILE || why == ENFILE;
  if (may_pass) error.code = ErrorCode::QueueFull;
  return error;
}

/// This process's own, and how the client reached it.
std::vector<std::string> environment_for(int connection) {
  std::vector<std::string> all;
  for (char** each = environ; each != nullptr && *each != nullptr; ++each) {
    if (!std::string_view(*each).starts_with(kEnds)) all.emplace_back(*each);
  }
  all.push_back(std::string(kEnds) + rpmem::ends_of(connection));
  return all;
}

std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> all;
  for (std::string& each : words) all.push_back(each.data());
  all.push_back(nullptr);
  return all;
}

/// The name of a set is one word with its option, and the last one: it can not be taken for another
/// option, whatever it is.
bool add_asked(std::vector<std::string>& command, const std::vector<std::string>& asked) {
  std::string removal;
  for (std::size_t index = 0; index < asked.size(); ++index) {
    if (asked[index] == "--remove" && index + 1 < asked.size()) {
      removal = "--remove=" + asked[++index];
    } else {
      command.push_back(asked[index]);
    }
  }
  if (removal.empty()) return false;
  command.push_back(removal);
  return true;
}

}  // namespace

Result<RpmemChild> RpmemChild::start(std::vector<std::string> command,
                                     const std::vector<std::string>& asked,
                                     Descriptor& connection) {
  std::array<int, 2> pipe{};
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0) return lacking("pipe", errno);
  RpmemChild child;
  child.report_ = Descriptor(pipe[0]);
  const Descriptor given(pipe[1]);
  const Descriptor said_by_child = above_standard(given.number());
  const Descriptor streams = above_standard(connection.number());
  if (said_by_child.number() < 0 || streams.number() < 0) return lacking("dup", errno);
  (void)::fcntl(child.report_.number(), F_SETFL, O_NONBLOCK);

  command.insert(command.end(), {"--report-to", std::to_string(kReportDescriptor)});
  child.removes_ = add_asked(command, asked);
  std::vector<std::string> environment = environment_for(streams.number());
  SpawnSettings settings({SIGPIPE, SIGCHLD, SIGINT, SIGTERM, SIGUSR1});
  posix_spawn_file_actions_adddup2(&settings.actions, streams.number(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&settings.actions, streams.number(), STDOUT_FILENO);
  if (child.removes_) {
    posix_spawn_file_actions_adddup2(&settings.actions, streams.number(), STDERR_FILENO);
  }
  posix_spawn_file_actions_adddup2(&settings.actions, said_by_child.number(), kReportDescriptor);
  posix_spawn_file_actions_addclosefrom_np(&settings.actions, kReportDescriptor + 1);
  const int failed =
      ::posix_spawn(&child.pid_, command[0].c_str(), &settings.actions, &settings.attributes,
                    pointers_to(command).data(), pointers_to(environment).data());
  if (failed != 0) return lacking(fmt::format("'{}' can not be run", command[0]), failed);
  child.connection_ = std::move(connection);
  return child;
}

bool RpmemChild::hear() {
  bool heard = false;
  std::array<char, rpmem::kReportBytesMax> bytes{};
  while (report_.number() >= 0) {
    const ssize_t got = ::read(report_.number(), bytes.data(), bytes.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) break;
    if (got <= 0) {
      report_ = Descriptor();
      break;
    }
    line_.append(bytes.data(), static_cast<std::size_t>(got));
    for (std::size_t end = 0; (end = line_.find('\n')) != std::string::npos;
         line_.erase(0, end + 1)) {
      const auto set = rpmem::set_in_report(std::string_view(line_).substr(0, end));
      if (!set) continue;
      heard = heard || set_ != *set;
      set_ = *set;
    }
    if (line_.size() > rpmem::kReportBytesMax) line_.clear();
  }
  return heard;
}

std::optional<int> RpmemChild::reap() {
  int ended = 0;
  pid_t found = -1;
  do {
    found = ::waitpid(pid_, &ended, WNOHANG);
  } while (found < 0 && errno == EINTR);
  if (found == 0) return std::nullopt;
  const bool exited = found > 0 && WIFEXITED(ended);
  const bool signaled = found > 0 && WIFSIGNALED(ended);
  if (removes_) {
    const auto last = fmt::format("exit {}\n", exited ? WEXITSTATUS(ended) : EIO);
    (void)::send(connection_.number(), last.data(), last.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  connection_ = Descriptor();
  pid_ = -1;
  if (exited) return WEXITSTATUS(ended);
  return signaled ? kSignalStatus + WTERMSIG(ended) : kUnknownStatus;
}

void RpmemChild::hang_up() { (void)::shutdown(connection_.number(), SHUT_RDWR); }

void RpmemChild::kill() {
  if (pid_ > 0) (void)::kill(pid_, SIGKILL);
}

}  // namespace perdure::daemon
