// Sets of banks, a bit each.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace perdure::memsys {

/// Words of a set.
constexpr std::size_t bank_words(std::size_t banks) { return (banks + 63) / 64; }

inline void set_bit(std::span<std::uint64_t> bits, std::uint32_t at) {
  bits[at / 64] |= std::uint64_t{1} << at % 64;
}

/// The banks of one word, lowest first.
template <typename Visit>
void for_each_bit(std::uint64_t bits, std::size_t word, Visit visit) {
  for (; bits != 0; bits &= bits - 1) {
    visit(static_cast<std::uint32_t>(word * 64) +
          static_cast<std::uint32_t>(std::countr_zero(bits)));
  }
}

}  // namespace perdure::memsys
