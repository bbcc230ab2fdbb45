// Processes that a test, a demonstration or a measurement starts, and that never outlive it.
#pragma once

#include <perdure/result.h>

#include "core/clock.h"

#include <sys/types.h>

#include <functional>
#include <map>
#include <optional>
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

/// Descriptors of this process that become a child's standard streams; below zero: nothing to read,
/// and what is written is lost.
struct ChildStreams {
  int input = -1;
  int output = -1;
  int error = -1;
};

/// To whom goes what is typed at the terminal.
enum class ChildGroup {
  Own,     // not to the child, which can not read there: it is for the program that ends it
  Shared,  // to the child as to this process
};

/// How a process ended.
struct ChildEnd {
  int status = -1;  // of exit; -1: a signal ended it
  int signal = 0;
};

/// A program that was started, or a piece of work in a forked process. It is killed when this goes
/// out of scope, and when the thread that started it ends.
/// Threads: one caller at a time.
class ChildProcess {
 public:
  ChildProcess() = default;
  /// Standard input is empty; both outputs go to the end of the file `output`.
  /// Errors: NotFound (no such program), SystemError.
  static Result<ChildProcess> start(const std::vector<std::string>& command,
                                    const std::string& output);
  /// Runs a program. Errors: NotFound (no such program), SystemError.
  static Result<ChildProcess> start(const std::vector<std::string>& command,
                                    const ChildStreams& streams,
                                    ChildGroup group = ChildGroup::Own);
  /// Forks; `work` runs in the child, and what it returns is its status of exit. The child never
  /// returns from here. Requires no other thread that holds what `work` needs. Errors: SystemError.
  static Result<ChildProcess> fork(const std::function<int()>& work);
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ~ChildProcess();

  /// 0: none, or it has ended and that was noticed.
  pid_t pid() const { return pid_; }
  /// Notices its end.
  bool running();
  /// Waits for its end. False: it runs on.
  bool wait(Deadline deadline);
  /// The same, however long it takes.
  void wait();
  /// How it ended, once that was noticed.
  const std::optional<ChildEnd>& end() const { return end_; }
  /// SIGKILL; returns when it is gone. Harmless when repeated.
  void kill();
  /// SIGTERM. Errors: TimedOut (it was then killed), SystemError (it ended with another status
  /// than 0).
  Result<void> stop(Nanoseconds within);
  /// Nothing happens when it has ended. SIGSTOP: returns when all its threads stand still, at most
  /// 30 s later; until a thread has seen the signal it goes on.
  void signal(int number) const;

 private:
  explicit ChildProcess(pid_t pid) : pid_(pid) {}
  void note_end(int status);

  pid_t pid_ = 0;
  std::optional<ChildEnd> end_;
};

/// The directory of the running program.
std::string program_directory();

/// Processor time that a process has used so far. Errors: NotFound.
Result<Nanoseconds> processor_time(pid_t process);
/// Resident memory. Errors: NotFound.
Result<std::uint64_t> resident_bytes(pid_t process);
/// How often threads slept, and lost their processor to another.
struct ContextSwitches {
  std::uint64_t slept = 0;
  std::uint64_t preempted = 0;
};
/// Of each thread of a process that is there now, by its number. Errors: NotFound.
Result<std::map<pid_t, ContextSwitches>> context_switches(pid_t process);
/// Between two looks, of the threads that are there at the second one.
ContextSwitches switched(const std::map<pid_t, ContextSwitches>& before,
                         const std::map<pid_t, ContextSwitches>& after);

/// Sleeps; ends early when interrupted.
void pause_for(Nanoseconds time);

}  // namespace perdure::test
