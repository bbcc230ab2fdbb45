// See bare_flush.h.
#include "bench/bare_flush.h"

#include "core/bytes.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace perdure::bench {

#if defined(__x86_64__)
namespace {

// Intel Software Developer's Manual, volume 2, CPUID leaf 7, EBX.
constexpr unsigned kClflushoptBit = 1u << 23;
constexpr unsigned kClwbBit = 1u << 24;

unsigned features() {
  static const unsigned kept = [] {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 ? b : 0;
  }();
  return kept;
}

__attribute__((target("clwb"))) void write_back(const std::byte* from, const std::byte* to) {
  for (; from < to; from += kCacheLineBytes) _mm_clwb(const_cast<std::byte*>(from));
}

__attribute__((target("clflushopt"))) void flush(const std::byte* from, const std::byte* to) {
  for (; from < to; from += kCacheLineBytes) _mm_clflushopt(const_cast<std::byte*>(from));
}

}  // namespace

bool can_flush_lines() { return (features() & (kClwbBit | kClflushoptBit)) != 0; }

void flush_lines(const std::byte* data, std::size_t length) {
  const auto start = reinterpret_cast<std::uintptr_t>(data) % kCacheLineBytes;
  const std::byte* first = data - start;
  if ((features() & kClwbBit) != 0)
    write_back(first, data + length);
  else
    flush(first, data + length);
  _mm_sfence();
}
#else
bool can_flush_lines() { return false; }
void flush_lines(const std::byte*, std::size_t) {}
#endif

}  // namespace perdure::bench
