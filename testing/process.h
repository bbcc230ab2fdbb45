// Processes that a demonstration or a measurement starts, and that never outlive it.
#pragma once

#include <perdure/result.h>

#include "core/clock.h"

#include <sys/types.h>

#include <string>
#include <vector>

namespace perdure::test {

/// While it lives, SIGINT, SIGTERM and SIGHUP only set a flag, so that what was started is ended
/// and what was made is removed. A second signal ends the program at once. At most one at a time.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  static bool interrupted();
  /// Errors: SystemError once it was interrupted.
  static Result<void> check();
};

/// A program that was started. It is killed when this goes out of scope, and when the thread that
/// started it ends.
/// Threads: one caller at a time.
class ChildProcess {
 public:
  ChildProcess() = default;
  /// Standard input is empty; both outputs go to the end of the file `output`.
  /// Errors: NotFound (no such program), SystemError.
  static Result<ChildProcess> start(const std::vector<std::string>& command,
                                    const std::string& output);
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ~ChildProcess();

  /// 0: none, or it has ended and that was noticed.
  pid_t pid() const { return pid_; }
  /// Notices its end.
  bool running();
  /// SIGKILL; returns when it is gone. Harmless when repeated.
  void kill();
  /// SIGTERM. Errors: TimedOut (it was then killed), SystemError (it ended with another status
  /// than 0).
  Result<void> stop(Nanoseconds within);
  void signal(int number) const;

 private:
  pid_t pid_ = 0;
  int status_ = 0;
};

/// The directory of the running program.
std::string program_directory();

/// Processor time that a process has used so far. Errors: NotFound.
Result<Nanoseconds> processor_time(pid_t process);
/// Resident memory. Errors: NotFound.
Result<std::uint64_t> resident_bytes(pid_t process);

/// Sleeps; ends early when interrupted.
void pause_for(Nanoseconds time);

}  // namespace perdure::test
