// A command on a target: see remote_command.h.
#include "rpmem/remote_command.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "core/errno_error.h"
#include "core/forks.h"
#include "core/spawn_settings.h"
#include "core/try.h"

extern char** environ;

namespace perdure::rpmem {
namespace {

constexpr std::size_t kErrorBytesMax = std::size_t{64} * 1024;  // that ssh may write
constexpr std::size_t kComplaintBytesMax = 1024;                // of them, the last, in an error
constexpr Nanoseconds kEndWithin = std::chrono::seconds(2);
constexpr int kReapEveryMs = 2;

// What a forked child has to close: while it has a copy, the daemon does not see that we ended.
constexpr std::size_t kOpenMax = 256;
std::array<std::atomic<int>, kOpenMax> open_descriptors;  // the descriptor and 1; 0: free

void close_in_child() {
  for (auto& each : open_descriptors) {
    const int descriptor = each.exchange(0) - 1;
    if (descriptor >= 0) ::close(descriptor);
  }
}

void note_open(int descriptor) {
  static const int registered = ::pthread_atfork(nullptr, nullptr, close_in_child);
  (void)registered;
  for (auto& each : open_descriptors) {
    int free = 0;
    if (each.compare_exchange_strong(free, descriptor + 1)) return;
  }
}

void note_closed(int descriptor) {
  for (auto& each : open_descriptors) {
    int ours = descriptor + 1;
    if (each.compare_exchange_strong(ours, 0)) return;
  }
}

bool is_plain(std::string_view text) {
  return !text.empty() && text.front() != '-' && std::none_of(text.begin(), text.end(), [](char c) {
    return static_cast<unsigned char>(c) <= 0x20 || c == 0x7f;
  });
}

}  // namespace

Result<Target> parse_target(std::string_view text) {
  const auto wrong = [&](const char* what) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("target '{}': {}; write it like host, user@host:port or [::1]:port",
                             text, what)};
  };
  Target target;
  std::string_view rest = text;
  const std::size_t at = rest.find('@');
  if (at != std::string_view::npos) {
    target.user = std::string(rest.substr(0, at));
    rest.remove_prefix(at + 1);
    if (!is_plain(target.user)) return wrong("the user's name");
  }
  std::string_view port;
  if (!rest.empty() && rest.front() == '[') {
    const std::size_t end = rest.find(']');
    if (end == std::string_view::npos) return wrong("a bracket without its other one");
    target.host = std::string(rest.substr(1, end - 1));
    port = rest.substr(end + 1);
  } else {
    const std::size_t colon = rest.find(':');
    const bool is_v6 = colon != rest.rfind(':');
    target.host = std::string(is_v6 ? rest : rest.substr(0, colon));
    if (!is_v6 && colon != std::string_view::npos) port = rest.substr(colon);
  }
  if (!is_plain(target.host)) return wrong("the host's name");
  if (port.empty()) return target;
  port.remove_prefix(port.front() == ':' ? 1 : 0);
  const bool digits =
      !port.empty() && port.size() <= 5 &&
      std::all_of(port.begin(), port.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (!digits) return wrong("the port");
  target.port = std::string(port);
  return target;
}

std::string shell_word(std::string_view text) {
  std::string word = "'";
  for (const char c : text) {
    if (c == '\'') {
      word += "'\\''";
    } else {
      word += c;
    }
  }
  return word + "'";
}

std::vector<std::string> ssh_arguments(const RemoteShell& shell, const Target& target,
                                       const std::string& command) {
  std::vector<std::string> arguments = {shell.ssh};
  if (!target.port.empty()) {
    arguments.emplace_back("-p");
    arguments.push_back(target.port);
  }
  arguments.emplace_back("-T");
  arguments.emplace_back("-oBatchMode=yes");
  arguments.push_back(target.user.empty() ? target.host : target.user + "@" + target.host);
  arguments.push_back(command);
  return arguments;
}

Result<std::unique_ptr<RemoteCommand>> RemoteCommand::start(
    const std::vector<std::string>& arguments) {
  std::unique_ptr<RemoteCommand> command(new RemoteCommand);
  std::array<int, 2> pair{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()) != 0) {
    return errno_error("socketpair", errno);
  }
  command->descriptor_ = pair[0];
  command->made_in_ = forks_so_far();
  note_open(pair[0]);
  rlimit files{};
  (void)::getrlimit(RLIMIT_FSIZE, &files);
  if (files.rlim_cur >= kErrorBytesMax) {  // else the kernel would end this program
    command->errors_ = ::memfd_create("errors of ssh", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  }
  if (command->errors_ >= 0 && (::ftruncate(command->errors_, kErrorBytesMax) != 0 ||
                                ::fcntl(command->errors_, F_ADD_SEALS, F_SEAL_GROW) != 0)) {
    ::close(std::exchange(command->errors_, -1));
  }
  SpawnSettings settings({SIGPIPE, SIGCHLD, SIGINT, SIGTERM, SIGHUP});
  posix_spawn_file_actions_adddup2(&settings.actions, pair[1], 0);
  posix_spawn_file_actions_adddup2(&settings.actions, pair[1], 1);
  if (command->errors_ >= 0) {
    posix_spawn_file_actions_adddup2(&settings.actions, command->errors_, 2);
  }
  // What the program has open is not ssh's: a lock that came along would outlive the program.
  posix_spawn_file_actions_addclosefrom_np(&settings.actions, STDERR_FILENO + 1);
  std::vector<char*> words;
  for (const std::string& each : arguments) words.push_back(const_cast<char*>(each.c_str()));
  words.push_back(nullptr);
  pid_t child = -1;
  const int failed = ::posix_spawnp(&child, words[0], &settings.actions, &settings.attributes,
                                    words.data(), environ);
  ::close(pair[1]);
  if (failed != 0) return errno_error(fmt::format("'{}' can not be run", arguments[0]), failed);
  command->child_ = child;
  return command;
}

RemoteCommand::~RemoteCommand() {
  if (made_in_ == forks_so_far()) {
    (void)finish(Deadline::after(kEndWithin));
  }
  if (errors_ >= 0) ::close(errors_);
}

void RemoteCommand::close_descriptor() {
  if (descriptor_ < 0) return;
  note_closed(descriptor_);
  ::close(descriptor_);
  descriptor_ = -1;
}

bool RemoteCommand::reap(std::optional<int>& status, bool block) {
  int ended = 0;
  pid_t found = -1;
  do {
    found = ::waitpid(child_, &ended, block ? 0 : WNOHANG);
  } while (found < 0 && errno == EINTR);
  if (found == 0) return false;
  child_ = -1;
  // A program that ignores SIGCHLD has no status for us.
  if (found > 0) status = WIFEXITED(ended) ? WEXITSTATUS(ended) : 128 + WTERMSIG(ended);
  return true;
}

Result<std::optional<int>> RemoteCommand::finish(const Deadline& deadline) {
  close_descriptor();
  std::optional<int> status;
  if (child_ <= 0) return status;
  while (!reap(status, false)) {
    if (deadline.passed()) {
      ::kill(child_, SIGKILL);
      reap(status, true);
      return Error{ErrorCode::TimedOut, "the command on the target does not end"};
    }
    ::poll(nullptr, 0, kReapEveryMs);
  }
  return status;
}

Result<std::optional<int>> RemoteCommand::wait(const Deadline& deadline) {
  ::shutdown(descriptor_, SHUT_WR);
  std::array<char, 512> more;
  while (!deadline.passed()) {
    pollfd ended{descriptor_, POLLIN, 0};
    constexpr int kSliceMs = 100;
    if (::poll(&ended, 1, kSliceMs) <= 0) continue;
    const ssize_t got = ::read(descriptor_, more.data(), more.size());
    if (got <= 0) break;
    said_.append(more.data(), static_cast<std::size_t>(got));
    if (said_.size() > more.size()) said_.erase(0, said_.size() - more.size());
  }
  return finish(deadline);
}

std::string RemoteCommand::complaint() const {
  if (errors_ < 0) return {};
  std::string text(kErrorBytesMax, '\0');
  const ssize_t got = ::pread(errors_, text.data(), text.size(), 0);
  text.resize(got > 0 ? ::strnlen(text.data(), static_cast<std::size_t>(got)) : 0);
  if (text.size() > kComplaintBytesMax) text.erase(0, text.size() - kComplaintBytesMax);
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

}  // namespace perdure::rpmem
