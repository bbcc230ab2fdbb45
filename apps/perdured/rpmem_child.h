// RpmemChild: an rpmemd that perdured started for one client of librpmem, as sshd would: the
// client's connection is its standard input and output. Nothing else that perdured has open is
// inherited, be it a lock or a session's socket.
#pragma once

#include <perdure/result.h>

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "core/descriptor.h"

namespace perdure::daemon {

/// Threads: one caller at a time. Outlived by the process where that has not ended: see hang_up().
class RpmemChild {
 public:
  /// `command` is the program's path and its arguments; `asked` are those of the client
  /// (rpmem/asked_command.h). Takes the connection only on success.
  /// Errors: QueueFull: descriptors, memory or processes are lacking; NotFound, PermissionDenied,
  /// SystemError: the program can not be run.
  static Result<RpmemChild> start(std::vector<std::string> command,
                                  const std::vector<std::string>& asked, Descriptor& connection);

  pid_t pid() const { return pid_; }
  /// It removes a set, and ends by itself.
  bool removes() const { return removes_; }
  /// The set that the client has; empty: none so far.
  const std::string& set() const { return set_; }
  /// Readable when hear() has something to hear; below zero: there will be nothing more, for the
  /// process has ended or is about to.
  int report() const { return report_.number(); }
  /// Takes what it reports, without waiting. True: the set is another one now.
  bool hear();
  /// Without waiting: its exit status, or 128 and the number of the signal that ended it. Where it
  /// removed a set the client is told. Nothing: it has not ended.
  std::optional<int> reap();

  /// The client is cut off, upon which rpmemd ends; what was acknowledged is durable.
  void hang_up();
  void kill();

 private:
  RpmemChild() = default;

  pid_t pid_ = -1;
  bool removes_ = false;
  Descriptor connection_;
  Descriptor report_;
  std::string line_;  // so far
  std::string set_;
};

}  // namespace perdure::daemon
