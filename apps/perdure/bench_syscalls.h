// Counts the system calls of a child while it works, and says who makes them: the library in which
// the call was written, found from the return addresses on the stack at the moment of the call.
#pragma once

#include <perdure/result.h>

#include <sched.h>
#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>

namespace perdure::app {

struct SyscallCount {
  /// By "caller name": "libfabric recvfrom", "perdure read".
  std::map<std::string, std::uint64_t> calls;

  std::uint64_t total() const;
  /// Those that no provider makes: all but libfabric's.
  std::uint64_t ours() const;
};

/// Follows the main thread of `child`, a child of this process, from now on, and counts from where
/// it calls mark_begin() to where it calls mark_end(). It then runs on by itself.
///
/// Errors   Unsupported: this system does not let a process trace its child.
///          Disconnected: the child ended.
class SyscallTrace {
 public:
  static Result<SyscallTrace> attach(pid_t child);
  Result<SyscallCount> run();

 private:
  explicit SyscallTrace(pid_t child) : child_(child) {}
  pid_t child_;
};

/// One processor for the traced process and for the caller, who only runs while it is stopped. The
/// peer keeps one for itself: were it interrupted, it would sleep instead of polling, and be woken.
class SharedProcessor {
 public:
  explicit SharedProcessor(pid_t child);
  ~SharedProcessor();
  SharedProcessor(const SharedProcessor&) = delete;
  SharedProcessor& operator=(const SharedProcessor&) = delete;

 private:
  cpu_set_t before_{};
  bool known_ = false;
};

/// In the child.
void mark_begin();
void mark_end();

}  // namespace perdure::app
