// Equation 2 of the BROI paper, for the controllers here and for hardware/broi.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace perdure::memsys {

/// What the Ready-SET's parallelism over banks would be if entry i went on to its next set, less
/// sigma times the size of the set it must finish for that.
/// `next` is entry i's Next-SET, `ready` the SubReady-SETs of all entries, one after the other: a
/// bit for each bank, in as many words each as `next` has.
inline double broi_priority(std::span<const std::uint64_t> ready, std::size_t i,
                            std::span<const std::uint64_t> next, std::uint64_t size, double sigma) {
  const std::size_t words = next.size();
  int busy = 0;
  for (std::size_t word = 0; word < words; ++word) {
    std::uint64_t banks = next[word];
    for (std::size_t j = 0; j * words < ready.size(); ++j) {
      banks |= j == i ? 0 : ready[j * words + word];
    }
    busy += std::popcount(banks);
  }
  return static_cast<double>(busy) - sigma * static_cast<double>(size);
}

}  // namespace perdure::memsys
