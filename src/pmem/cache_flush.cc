// CacheFlush: which instruction writes cache lines back on this processor, and how to run it.
#include "pmem/cache_flush.h"

#include <atomic>
#include <cstdint>

#include "core/bytes.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

// One text for the assembler and for whoever asks, so that a test on any processor holds all.
#define PERDURE_X86_STORE_FENCE "sfence"
#define PERDURE_ARM64_STORE_FENCE "dsb sy"

namespace perdure::pmem {

std::string_view store_fence_instruction(Processor processor) {
  switch (processor) {
    case Processor::X86: return PERDURE_X86_STORE_FENCE;
    case Processor::Arm64: return PERDURE_ARM64_STORE_FENCE;
    case Processor::Other: return {};
  }
  return {};
}

void store_fence() {
#if defined(__x86_64__)
  asm volatile(PERDURE_X86_STORE_FENCE ::: "memory");
#elif defined(__aarch64__)
  asm volatile(PERDURE_ARM64_STORE_FENCE ::: "memory");
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

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

#else

FlushInstruction best_flush_instruction() { return FlushInstruction::None; }

#endif

Result<CacheFlush> CacheFlush::best() {
#if defined(__x86_64__)
  const FlushInstruction instruction = best_flush_instruction();
  switch (instruction) {
    case FlushInstruction::Clwb: return CacheFlush(instruction, flush_clwb);
    case FlushInstruction::Clflushopt: return CacheFlush(instruction, flush_clflushopt);
    case FlushInstruction::Clflush: return CacheFlush(instruction, flush_clflush);
    case FlushInstruction::None: break;
  }
#endif
  return Error{ErrorCode::Unsupported,
               "this processor has no cache line flush that Perdure knows, so dmp is not possible; "
               "page, mhp, wsp and none are"};
}

}  // namespace perdure::pmem
