// CRC32C (Castagnoli, RFC 3720 appendix B.4), the checksum of every format of Perdure.
#pragma once

#include "core/bytes.h"

#include <cstddef>
#include <cstdint>
#include <span>

namespace perdure {

/// Checksum of `data`, continuing from `crc` (0 to start). Computed by ISA-L with the CPU's
/// carry-less multiply, about 0.1 ns per byte on large buffers; of some cache lines by the CPU's
/// crc32 instruction (SSE4.2), where it has it.
std::uint32_t crc32c(std::span<const std::byte> data, std::uint32_t crc = 0);

/// Checksum of what `crc` is the checksum of and then `data`, which is copied to `to`. That must
/// not overlap.
std::uint32_t crc32c_copy(std::uint32_t crc, std::byte* to, std::span<const std::byte> data);

#ifdef __x86_64__
/// Whether this CPU has the crc32 instruction; false before it was looked for.
extern const bool has_crc_instruction;
#endif

/// Checksum of 4 bytes and some words behind them: of the header of a record or message, whose own
/// checksum comes before. Each is taken as it was just stored, so that the CPU need not put
/// together what it loads from several stores. Cost  two instructions for each word. They are
/// written out since the library is built for any
///       x86-64, and a function that may use them can not be inlined into one that may not.
template <std::size_t bytes>
std::uint32_t crc32c_of(const std::byte* data) {
  static_assert(bytes % 8 == 4 && bytes < 64);
#ifdef __x86_64__
  if (has_crc_instruction) {
    std::uint32_t first = 0xffffffff;
    asm("crc32l %1, %0" : "+r"(first) : "rm"(load<std::uint32_t>(data)));
    std::uint64_t sum = first;
    for (std::size_t at = 4; at < bytes; at += 8) {
      asm("crc32q %1, %0" : "+r"(sum) : "rm"(load<std::uint64_t>(data + at)));
    }
    return ~static_cast<std::uint32_t>(sum);
  }
#endif
  return crc32c({data, bytes});
}

}  // namespace perdure
