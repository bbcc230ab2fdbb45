// CRC32C (Castagnoli, RFC 3720 appendix B.4), the checksum of every format of Perdure.
#pragma once

#include "core/bytes.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace perdure {

/// Checksum of `data`, continuing from `crc` (0 to start). Computed by ISA-L with the CPU's
/// carry-less multiply, about 0.1 ns per byte on large buffers; of some cache lines by the CPU's
/// crc32 instruction (SSE4.2), where it has it.
std::uint32_t crc32c(std::span<const std::byte> data, std::uint32_t crc = 0);

/// Up to here ISA-L's preparations take longer than the crc32 instruction.
inline constexpr std::size_t kShortCrcBytes = 256;

#ifdef __x86_64__
/// Whether this CPU has the crc32 instruction; false before it was looked for.
extern const bool has_crc_instruction;
#endif

/// Checksum of what `crc` is the checksum of, and then 4 bytes and some words: of the header of a
/// record or message, whose own checksum comes before. Each is taken as it was just stored, so that
/// the CPU need not put together what it loads from several stores. Where has_short_crc(). Cost two
/// instructions for each word. They are written out since the library is built for any
///       x86-64, and a function that may use them can not be inlined into one that may not.
template <std::size_t bytes>
std::uint32_t short_crc32c_of(const std::byte* data, std::uint32_t crc = 0) {
  static_assert(bytes % 8 == 4 && bytes < 64);
#ifdef __x86_64__
  std::uint64_t sum = ~crc;
  asm("crc32l %1, %k0" : "+r"(sum) : "rm"(load<std::uint32_t>(data)));
#pragma GCC unroll 8
  for (std::size_t at = 4; at < bytes; at += 8) {
    asm("crc32q %1, %0" : "+r"(sum) : "rm"(load<std::uint64_t>(data + at)));
  }
  return ~static_cast<std::uint32_t>(sum);
#else
  return crc32c({data, bytes}, crc);
#endif
}

/// Whether short_crc32c_of can be called here.
inline bool has_short_crc() {
#ifdef __x86_64__
  return has_crc_instruction;
#else
  return true;
#endif
}

/// The same on any CPU.
template <std::size_t bytes>
std::uint32_t crc32c_of(const std::byte* data, std::uint32_t crc = 0) {
#ifdef __x86_64__
  if (has_crc_instruction) return short_crc32c_of<bytes>(data, crc);
#endif
  return crc32c({data, bytes}, crc);
}

/// Checksum of what `crc` is the checksum of and then `data`, which is copied to `to`. That must
/// not overlap.
std::uint32_t crc32c_copy(std::uint32_t crc, std::byte* to, std::span<const std::byte> data);

/// Up to how many bytes short_crc32c_copy takes here; 0: none.
inline std::size_t short_crc_bytes_max() {
#ifdef __x86_64__
  return has_crc_instruction ? kShortCrcBytes : 0;
#else
  return 0;
#endif
}

/// crc32c_copy for what is no longer than that. Cost: two instructions for each word, in the
/// caller.
inline std::uint32_t short_crc32c_copy(std::uint32_t crc, std::byte* to,
                                       std::span<const std::byte> data) {
#ifdef __x86_64__
  const std::byte* const from = data.data();
  std::uint64_t sum = ~crc;
  std::size_t at = 0;
  for (const std::size_t blocks = data.size() & ~std::size_t{31}; at != blocks; at += 32) {
    std::memcpy(to + at, from + at, 16);  // a load and a store each
    std::memcpy(to + at + 16, from + at + 16, 16);
    asm("crc32q %1, %0" : "+r"(sum) : "rm"(load<std::uint64_t>(from + at)));
    asm("crc32q %1, %0" : "+r"(sum) : "rm"(load<std::uint64_t>(from + at + 8)));
    asm("crc32q %1, %0" : "+r"(sum) : "rm"(load<std::uint64_t>(from + at + 16)));
    asm("crc32q %1, %0" : "+r"(sum) : "rm"(load<std::uint64_t>(from + at + 24)));
  }
  if (at == data.size()) return ~static_cast<std::uint32_t>(sum);
  for (; data.size() - at >= 8; at += 8) {
    const auto word = load<std::uint64_t>(from + at);
    store(to + at, word);
    asm("crc32q %1, %0" : "+r"(sum) : "r"(word));
  }
  for (; at != data.size(); ++at) {
    to[at] = from[at];
    asm("crc32b %1, %k0" : "+r"(sum) : "r"(static_cast<std::uint8_t>(from[at])));
  }
  return ~static_cast<std::uint32_t>(sum);
#else
  return crc32c_copy(crc, to, data);
#endif
}

}  // namespace perdure
