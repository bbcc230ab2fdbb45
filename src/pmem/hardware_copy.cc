#include "pmem/hardware_copy.h"

namespace perdure::pmem {

#define PERDURE_UNSEEN __attribute__((no_sanitize("thread")))

// Volatile, so that the compiler neither splits a word nor makes a library call of the loop.
PERDURE_UNSEEN void hardware_copy(std::byte* to, const std::byte* from, std::size_t length) {
  using Word = std::uint64_t __attribute__((may_alias));
  std::size_t at = 0;
  const std::size_t misaligned = reinterpret_cast<std::uintptr_t>(to) % kAtomicBytes;
  const std::size_t head = misaligned == 0 ? 0 : kAtomicBytes - misaligned;
  for (; at < length && at < head; ++at) {
    *static_cast<volatile std::byte*>(to + at) = from[at];
  }
  for (; at + kAtomicBytes <= length; at += kAtomicBytes) {
    Word word;
    __builtin_memcpy(&word, from + at, sizeof word);
    *reinterpret_cast<volatile Word*>(to + at) = word;
  }
  for (; at < length; ++at) *static_cast<volatile std::byte*>(to + at) = from[at];
}

// By blocks, without an exit inside, so that the compiler can compare many words at once. The
// address sanitizer does not look at each of them: a power cut compares whole regions.
PERDURE_UNSEEN __attribute__((no_sanitize("address"))) bool hardware_equal(const std::byte* a,
                                                                           const std::byte* b,
                                                                           std::size_t length) {
  constexpr std::size_t kBlockWords = 32;
  std::size_t at = 0;
  while (at + sizeof(std::uint64_t) <= length) {
    const std::size_t left = (length - at) / sizeof(std::uint64_t);
    const std::size_t words = left < kBlockWords ? left : kBlockWords;
    std::uint64_t different = 0;
    for (std::size_t i = 0; i < words; ++i) {
      std::uint64_t x;
      std::uint64_t y;
      __builtin_memcpy(&x, a + at + i * sizeof x, sizeof x);
      __builtin_memcpy(&y, b + at + i * sizeof y, sizeof y);
      different |= x ^ y;
    }
    if (different != 0) return false;
    at += words * sizeof(std::uint64_t);
  }
  for (; at < length; ++at) {
    if (a[at] != b[at]) return false;
  }
  return true;
}

}  // namespace perdure::pmem
