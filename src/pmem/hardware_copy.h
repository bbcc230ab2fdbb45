// Copies as hardware makes them: beside the CPU's loads and stores, unordered with them, and never
// splitting an aligned 8-byte word. The thread sanitizer does not see them, as it does not see DMA.
#pragma once

#include <cstddef>
#include <cstdint>

namespace perdure::pmem {

/// Words of this size, aligned, are old or new, never a mixture (Intel SDM volume 3, 9.1.1).
inline constexpr std::size_t kAtomicBytes = 8;

/// Copies `length` bytes; aligned words of the target change at once.
void hardware_copy(std::byte* to, const std::byte* from, std::size_t length);

/// Whether the ranges hold the same bytes.
bool hardware_equal(const std::byte* a, const std::byte* b, std::size_t length);

}  // namespace perdure::pmem
