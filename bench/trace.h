// What a child does while it works, seen through ptrace: the system calls that it makes, and who
// makes them (the library in which the call was written, found from the return addresses on the
// stack), or how many instructions it takes before it reaches a library.
#pragma once

#include <perdure/result.h>

#include <sched.h>
#include <sys/syscall.h>
#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace perdure::bench {

struct SyscallCount {
  /// By "caller name": "libfabric recvfrom", "perdure read".
  std::map<std::string, std::uint64_t> calls;

  std::uint64_t total() const;
  /// Those that no transport makes.
  std::uint64_t ours() const;
};

/// Whether the library with that name, or the caller whose name begins with it, is a transport's:
/// libfabric, libibverbs, librdmacm, or the RNIC's own (librxe-rdmav34).
bool is_of_transport(const std::string& name);

/// Follows the main thread of `child`, a child of this process, from now on, to where it calls
/// mark_end(). It then runs on by itself.
///
/// Errors   Unsupported: this system does not let a process trace its child.
///          Disconnected: the child ended.
class ChildTrace {
 public:
  static Result<ChildTrace> attach(pid_t child);

  /// System calls, from where it calls mark_begin().
  Result<SyscallCount> count_calls();

  /// Instructions of the program and of all libraries but `transport`, each time from where it
  /// calls mark_begin() to the first instruction in a library that has one of `transport` in its
  /// name: what the transport is handed lies behind them; or to where it calls mark_step_end().
  /// Where it comes to neither within kInstructionsMax, that number.
  static constexpr std::uint64_t kInstructionsMax = 100'000;
  Result<std::vector<std::uint64_t>> count_instructions(const std::vector<std::string>& transport);

 private:
  explicit ChildTrace(pid_t child) : child_(child) {}
  Result<std::uint64_t> step_into(const std::vector<std::string>& transport);
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

/// In the child. No code but the call itself, so that counting instructions begins behind it.
inline constexpr std::uint64_t kBeginMark = 0x7e570001;
inline constexpr std::uint64_t kEndMark = 0x7e570002;
inline constexpr std::uint64_t kStepEndMark = 0x7e570003;
inline void mark(std::uint64_t which) {
  // A process that asks for the priority of one of these.
  long call = SYS_getpriority;
  asm volatile("syscall" : "+a"(call) : "D"(0), "S"(which) : "rcx", "r11", "memory");
}
inline void mark_begin() { mark(kBeginMark); }
inline void mark_end() { mark(kEndMark); }
inline void mark_step_end() { mark(kStepEndMark); }

}  // namespace perdure::bench
