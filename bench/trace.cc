// ptrace: stops at the entry and the exit of every call, or after every instruction. Slow, so
// nothing is timed meanwhile.
#include "bench/trace.h"

#include "core/text_file.h"
#include "core/try.h"
#include "testing/process.h"

#include <fmt/format.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <sstream>
#include <system_error>
#include <vector>

namespace perdure::bench {
namespace {

constexpr int kStackWords = 128;

std::string call_name(std::uint64_t number) {
  switch (number) {
    case SYS_read: return "read";
    case SYS_write: return "write";
    case SYS_readv: return "readv";
    case SYS_writev: return "writev";
    case SYS_recvfrom: return "recvfrom";
    case SYS_sendto: return "sendto";
    case SYS_recvmsg: return "recvmsg";
    case SYS_sendmsg: return "sendmsg";
    case SYS_poll: return "poll";
    case SYS_ppoll: return "ppoll";
    case SYS_epoll_wait: return "epoll_wait";
    case SYS_epoll_pwait: return "epoll_pwait";
    case SYS_epoll_ctl: return "epoll_ctl";
    case SYS_futex: return "futex";
    case SYS_mmap: return "mmap";
    case SYS_munmap: return "munmap";
    case SYS_madvise: return "madvise";
    case SYS_brk: return "brk";
    case SYS_sched_yield: return "sched_yield";
    case SYS_clock_gettime: return "clock_gettime";
    case SYS_process_vm_readv: return "process_vm_readv";
    case SYS_process_vm_writev: return "process_vm_writev";
    default: return fmt::format("call {}", number);
  }
}

/// Where code of the traced process comes from.
struct Mapping {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::string name;
};

std::vector<Mapping> code_of(pid_t process) {
  std::vector<Mapping> mappings;
  std::istringstream lines(read_text(fmt::format("/proc/{}/maps", process)));
  std::string line;
  while (std::getline(lines, line)) {
    char* end = nullptr;
    Mapping mapping;
    mapping.begin = std::strtoull(line.c_str(), &end, 16);
    mapping.end = std::strtoull(end + 1, &end, 16);
    const bool executable = std::strlen(end) > 4 && end[3] == 'x';
    const std::size_t slash = line.rfind('/');
    if (!executable || slash == std::string::npos) continue;
    mapping.name = line.substr(slash + 1);
    mappings.push_back(std::move(mapping));
  }
  return mappings;
}

const Mapping* find(const std::vector<Mapping>& mappings, std::uint64_t address) {
  for (const Mapping& mapping : mappings) {
    if (address >= mapping.begin && address < mapping.end) return &mapping;
  }
  return nullptr;
}

/// The first return address outside of the C library: who called its wrapper.
std::string caller(pid_t process, const std::vector<Mapping>& mappings, std::uint64_t stack) {
  std::array<std::uint64_t, kStackWords> words{};
  iovec here{words.data(), sizeof words};
  iovec there{reinterpret_cast<void*>(stack), sizeof words};  // NOLINT: an address elsewhere
  const ssize_t got = ::process_vm_readv(process, &here, 1, &there, 1, 0);
  for (std::size_t i = 0; got > 0 && i < static_cast<std::size_t>(got) / sizeof words[0]; ++i) {
    const Mapping* mapping = find(mappings, words[i]);
    if (mapping == nullptr || mapping->name.starts_with("libc.") ||
        mapping->name.starts_with("libpthread") || mapping->name.starts_with("ld-")) {
      continue;
    }
    return mapping->name.substr(0, mapping->name.find(".so"));
  }
  return "unknown";
}

bool await_stop(pid_t child, int& status) {
  pid_t got = 0;
  do {
    got = ::waitpid(child, &status, __WALL);
  } while (got < 0 && errno == EINTR && !test::InterruptGuard::interrupted());
  return got == child && WIFSTOPPED(status);
}

}  // namespace

std::uint64_t SyscallCount::total() const {
  std::uint64_t sum = 0;
  for (const auto& [name, count] : calls) sum += count;
  return sum;
}

std::uint64_t SyscallCount::ours() const {
  std::uint64_t sum = 0;
  for (const auto& [name, count] : calls) sum += is_of_transport(name) ? 0 : count;
  return sum;
}

bool is_of_transport(const std::string& name) {
  return name.starts_with("libfabric") || name.starts_with("libibverbs") ||
         name.starts_with("librdmacm") || name.find("-rdmav") != std::string::npos;
}

SharedProcessor::SharedProcessor(pid_t child) {
  known_ = ::sched_getaffinity(0, sizeof before_, &before_) == 0;
  std::size_t cpu = 0;
  while (cpu < CPU_SETSIZE && !CPU_ISSET(cpu, &before_)) ++cpu;
  if (!known_ || cpu == CPU_SETSIZE) return;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  (void)::sched_setaffinity(child, sizeof one, &one);
  (void)::sched_setaffinity(0, sizeof one, &one);
}

SharedProcessor::~SharedProcessor() {
  if (known_) (void)::sched_setaffinity(0, sizeof before_, &before_);
}

Result<ChildTrace> ChildTrace::attach(pid_t child) {
  int status = 0;
  if (::ptrace(PTRACE_SEIZE, child, nullptr, PTRACE_O_TRACESYSGOOD) != 0 ||
      ::ptrace(PTRACE_INTERRUPT, child, nullptr, nullptr) != 0 || !await_stop(child, status)) {
    return Error{ErrorCode::Unsupported, fmt::format("a child can not be traced here: {}",
                                                     std::generic_category().message(errno))};
  }
  if (::ptrace(PTRACE_SYSCALL, child, nullptr, nullptr) != 0) {
    return Error{ErrorCode::Disconnected, "the traced process has ended"};
  }
  return ChildTrace(child);
}

namespace {

/// Which call the child has come to, if it stands at the entry of one.
std::optional<__ptrace_syscall_info> entered_call(pid_t child) {
  __ptrace_syscall_info call{};
  const auto size = reinterpret_cast<void*>(sizeof call);  // NOLINT: what ptrace asks for
  ::ptrace(PTRACE_GET_SYSCALL_INFO, child, size, &call);
  if (call.op != PTRACE_SYSCALL_INFO_ENTRY) return std::nullopt;
  return call;
}

bool is_mark(const __ptrace_syscall_info& call, std::uint64_t mark) {
  return call.entry.nr == SYS_getpriority && call.entry.args[1] == mark;
}

/// Whether the next instruction is the call of mark_step_end().
bool at_step_end(pid_t child, const user_regs_struct& registers) {
  constexpr long kSyscallInstruction = 0x050f;
  return registers.rax == SYS_getpriority && registers.rsi == kStepEndMark &&
         (::ptrace(PTRACE_PEEKTEXT, child, registers.rip, nullptr) & 0xffff) == kSyscallInstruction;
}

Error ended() { return {ErrorCode::Disconnected, "the traced process has ended"}; }

}  // namespace

Result<SyscallCount> ChildTrace::count_calls() {
  SyscallCount count;
  const std::vector<Mapping> mappings = code_of(child_);
  int status = 0;
  while (await_stop(child_, status)) {
    long signal = 0;
    const int stopped_by = WSTOPSIG(status);
    if (stopped_by == (SIGTRAP | 0x80)) {
      if (const auto call = entered_call(child_)) {
        if (is_mark(*call, kEndMark)) {
          ::ptrace(PTRACE_DETACH, child_, nullptr, nullptr);
          return count;
        }
        if (is_mark(*call, kBeginMark)) {
          count.calls.clear();
        } else {
          const std::string by = caller(child_, mappings, call->stack_pointer);
          ++count.calls[by + " " + call_name(call->entry.nr)];
        }
      }
    } else if (stopped_by != SIGTRAP) {
      signal = stopped_by;
    }
    ::ptrace(PTRACE_SYSCALL, child_, nullptr, signal);
  }
  return ended();
}

Result<std::vector<std::uint64_t>> ChildTrace::count_instructions(
    const std::vector<std::string>& transport) {
  std::vector<std::uint64_t> counts;
  int status = 0;
  while (await_stop(child_, status)) {
    long signal = 0;
    const int stopped_by = WSTOPSIG(status);
    if (stopped_by == (SIGTRAP | 0x80)) {
      const auto call = entered_call(child_);
      if (call && is_mark(*call, kEndMark)) {
        ::ptrace(PTRACE_DETACH, child_, nullptr, nullptr);
        return counts;
      }
      if (call && is_mark(*call, kBeginMark)) {
        PERDURE_TRY(count, step_into(transport));
        counts.push_back(count);
      }
    } else if (stopped_by != SIGTRAP) {
      signal = stopped_by;
    }
    ::ptrace(PTRACE_SYSCALL, child_, nullptr, signal);
  }
  return ended();
}

/// From the entry of a call, one instruction after the other.
Result<std::uint64_t> ChildTrace::step_into(const std::vector<std::string>& transport) {
  std::vector<Mapping> reached = code_of(child_);
  std::erase_if(reached, [&](const Mapping& mapping) {
    return std::none_of(transport.begin(), transport.end(), [&](const std::string& name) {
      return mapping.name.find(name) != std::string::npos;
    });
  });
  std::uint64_t count = 0;
  std::uint64_t at = 0;
  while (count < kInstructionsMax) {
    int status = 0;
    if (::ptrace(PTRACE_SINGLESTEP, child_, nullptr, nullptr) != 0 || !await_stop(child_, status)) {
      return ended();
    }
    user_regs_struct registers{};
    ::ptrace(PTRACE_GETREGS, child_, nullptr, &registers);
    if (find(reached, registers.rip) != nullptr || at_step_end(child_, registers)) return count;
    // The first stop is behind the call. A repeated instruction (rep movsb) stops each time.
    if (at != 0 && at != registers.rip) ++count;
    at = registers.rip;
  }
  return kInstructionsMax;
}

}  // namespace perdure::bench
