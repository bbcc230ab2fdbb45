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

PERDURE_UNSEEN bool hardware_equal(const std::byte* a, const std::byte* b, std::size_t length) {
  std::size_t at = 0;
  for (; at + sizeof(std::uint64_t) <= length; at += sizeof(std::uint64_t)) {
    std::uint64_t left;
    std::uint64_t right;
    __builtin_memcpy(&left, a + at, sizeof left);
    __builtin_memcpy(&right, b + at, sizeof right);
    if (left != right) return false;
  }
  for (; at < length; ++at) {
    if (a[at] != b[at]) return false;
  }
  return true;
}

}  // namespace perdure::pmem
