// Equation 2 of seed paper 001, for the controllers here and for hardware/broi.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace perdure::memsys {

/// What the Ready-SET's parallelism over banks would be if entry i went on to its next set, less
/// sigma times the size of the set it must finish for that.
/// `ready` and `next` are the banks of each entry's SubReady-SET and Next-SET, a bit each.
inline double broi_priority(const std::vector<std::uint64_t>& ready, std::size_t i,
                            std::uint64_t next, std::uint64_t size, double sigma) {
  std::uint64_t banks = next;
  for (std::size_t j = 0; j < ready.size(); ++j) banks |= j == i ? 0 : ready[j];
  return static_cast<double>(std::popcount(banks)) - sigma * static_cast<double>(size);
}

}  // namespace perdure::memsys
