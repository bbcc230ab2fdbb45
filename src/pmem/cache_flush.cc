// CacheFlush: which instruction writes cache lines back on this processor, and how to run it.
#include "pmem/cache_flush.h"

#include <atomic>
#include <cstdint>

#include "core/bytes.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace perdure::pmem {

std::string_view to_string(FlushInstruction instruction) {
  switch (instruction) {
    case FlushInstruction::None: return "none";
    case FlushInstruction::Clflush: return "clflush";
    case FlushInstruction::Clflushopt: return "clflushopt";
    case FlushInstruction::Clwb: return "clwb";
  }
  return "none";
}

#if defined(__x86_64__)
namespace {

// The intrinsics want a pointer to non-const although they change no byte.
std::byte* first_line(const std::byte* at) {
  const auto address = reinterpret_cast<std::uintptr_t>(at);
  return const_cast<std::byte*>(at - address % kCacheLineBytes);
}

__attribute__((target("clwb"))) void flush_clwb(const std::byte* at, std::size_t length) {
  for (std::byte* line = first_line(at); line < at + length; line += kCacheLineBytes)
    _mm_clwb(line);
}

__attribute__((target("clflushopt"))) void flush_clflushopt(const std::byte* at,
                                                            std::size_t length) {
  for (std::byte* line = first_line(at); line < at + length; line += kCacheLineBytes)
    _mm_clflushopt(line);
}

void flush_clflush(const std::byte* at, std::size_t length) {
  for (std::byte* line = first_line(at); line < at + length; line += kCacheLineBytes)
    _mm_clflush(line);
}

}  // namespace

FlushInstruction best_flush_instruction() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) != 0) {
    if ((b & (1U << 24)) != 0) return FlushInstruction::Clwb;
    if ((b & (1U << 23)) != 0) return FlushInstruction::Clflushopt;
  }
  if (__get_cpuid(1, &a, &b, &c, &d) != 0 && (d & (1U << 19)) != 0)
    return FlushInstruction::Clflush;
  return FlushInstruction::None;
}

void store_fence() { _mm_sfence(); }

#else

FlushInstruction best_flush_instruction() { return FlushInstruction::None; }

#if defined(__aarch64__)
// DSB, not the DMB of a C++ fence: it completes only when all accesses before it have, and in the
// full system, where an RNIC is an observer; DMB ISH orders within the inner shareable domain only
// (Arm ARM DDI 0487, B2.3.12 "Memory barriers").
void store_fence() { asm volatile("dsb sy" ::: "memory"); }
#else
void store_fence() { std::atomic_thread_fence(std::memory_order_seq_cst); }
#endif

#endif

Result<CacheFlush> CacheFlush::best() {
  const FlushInstruction instruction = best_flush_instruction();
#if defined(__x86_64__)
  switch (instruction) {
    case FlushInstruction::Clwb: return CacheFlush(instruction, flush_clwb);
    case FlushInstruction::Clflushopt: return CacheFlush(instruction, flush_clflushopt);
    case FlushInstruction::Clflush: return CacheFlush(instruction, flush_clflush);
    case FlushInstruction::None: break;
  }
#endif
  return Error{ErrorCode::Unsupported,
               "this processor has no cache line flush that Perdure knows; declare page or none"};
}

}  // namespace perdure::pmem
