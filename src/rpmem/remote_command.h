// RemoteCommand: a command on a target, run by ssh or what stands in for it, with its standard
// input and output in the hands of this process.
#pragma once

#include <perdure/result.h>

#include "core/clock.h"

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace perdure::rpmem {

/// [user@]host[:port] or [user@][v6]:port.
struct Target {
  std::string user;  // empty: ssh's choice
  std::string host;  // without brackets
  std::string port;  // empty: ssh's choice
};
/// Errors: InvalidArgument. A host or user that ssh would take for an option is refused.
Result<Target> parse_target(std::string_view text);

/// ssh and what it runs there.
struct RemoteShell {
  std::string ssh = "ssh";         // RPMEM_SSH
  std::string command = "rpmemd";  // RPMEM_CMD, one of those in it
};

/// The word as a POSIX shell reads it back, whatever is in it.
std::string shell_word(std::string_view text);

/// ssh's arguments, itself first. `command` is read by the target's shell.
std::vector<std::string> ssh_arguments(const RemoteShell& shell, const Target& target,
                                       const std::string& command);

/// A child process. Threads: one caller at a time. A process that was forked from this one has no
/// part in it: its copy of the descriptor is closed when it begins.
class RemoteCommand {
 public:
  /// Errors: NotFound (no such program), SystemError.
  static Result<std::unique_ptr<RemoteCommand>> start(const std::vector<std::string>& arguments);
  /// Closes its input and output; one that has not ended a moment later is killed.
  ~RemoteCommand();
  RemoteCommand(const RemoteCommand&) = delete;
  RemoteCommand& operator=(const RemoteCommand&) = delete;

  int descriptor() const { return descriptor_; }
  /// What it wrote to its standard error, at most some lines: the last of the first 64 KiB. What is
  /// beyond these it is told that there is no room for.
  std::string complaint() const;
  /// The end of what it wrote to its standard output while wait() went on reading that.
  const std::string& said() const { return said_; }
  /// Closes its input and output and waits until it has ended. Returns its exit status, 128 and the
  /// number of the signal that ended it; nothing: this process ignores the end of its children
  /// (SIGCHLD), or takes it before us. Errors: TimedOut; it is killed then.
  Result<std::optional<int>> finish(const Deadline& deadline);
  /// The same, but goes on reading what it writes.
  Result<std::optional<int>> wait(const Deadline& deadline);

 private:
  RemoteCommand() = default;
  void close_descriptor();
  bool reap(std::optional<int>& status, bool block);

  int descriptor_ = -1;
  int errors_ = -1;  // a file without a name
  pid_t child_ = -1;
  std::string said_;
  unsigned made_in_ = 0;  // see core/forks.h
};

}  // namespace perdure::rpmem
