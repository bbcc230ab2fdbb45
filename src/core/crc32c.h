// CRC32C (Castagnoli, RFC 3720 appendix B.4), the checksum of every format of Perdure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace perdure {

/// Checksum of `data`, continuing from `crc` (0 to start). Computed by ISA-L with the CPU's
/// carry-less multiply, about 0.1 ns per byte on large buffers; of some cache lines by the CPU's
/// crc32 instruction (SSE4.2), where it has it.
std::uint32_t crc32c(std::span<const std::byte> data, std::uint32_t crc = 0);

/// What crc32c_copy takes before the data: the header of a record behind its checksum.
inline constexpr std::size_t kCrcHeadBytes = 28;
/// Checksum of `head` and then `data`, which is copied to `to`. That must not overlap.
std::uint32_t crc32c_copy(std::span<const std::byte, kCrcHeadBytes> head, std::byte* to,
                          std::span<const std::byte> data);

}  // namespace perdure
