// The header of a PMDK part file, so that PMDK's own tools read what rpmemd serves.
//
// 4096 bytes at the start of a part, little-endian (pmdk-tools 1.12.1 writes the same):
//
//   offset  size  field
//   0       8     signature        "PMEMOBJ" and so on; the client's
//   8       4     major            version of the format of the pool
//   12      4     compat           feature flags
//   16      4     incompat         of them 1: only the first part has a header, 2: the checksum is
//                                  over the first 2 KiB, 4: there is a shutdown state
//   20      4     ro_compat
//   24      16    poolset uuid     the same in all replicas and parts
//   40      16    uuid             of this part
//   56      16    previous part    in a ring over the parts of the replica
//   72      16    next part
//   88      16    previous replica uuid of its first part, in a ring over the replicas
//   104     16    next replica
//   120     8     creation time    seconds
//   128     16    architecture     user_flags of the attributes
//   144     3880  zero
//   4024    64    shutdown state   zero: nothing is known of the DIMMs below
//   4088    8     checksum         64-bit Fletcher over 32-bit words; itself, and with flag 2 all
//                                  behind the first 2 KiB, counts as zero
//
// A crash while it is written leaves a header whose checksum is wrong: the part is refused.
#pragma once

#include <perdure/result.h>

#include "rpmem/attributes.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace perdure::rpmem {

inline constexpr std::uint64_t kHeaderBytes = 4096;
inline constexpr std::uint32_t kSingleHeader = 1;
inline constexpr std::uint32_t kChecksumOver2K = 2;

struct PartHeader {
  PoolAttributes pool;  // `uuid` is this part's; next and previous are the replicas'
  Uuid16 previous_part{};
  Uuid16 next_part{};
  std::uint64_t created = 0;
  bool operator==(const PartHeader&) const = default;
};

/// Requires kHeaderBytes. What the header does not say of itself is left as it is in `bytes`.
void encode_header(const PartHeader& header, std::span<std::byte> bytes);

/// Requires kHeaderBytes. Errors: Corrupt, saying what is wrong.
Result<PartHeader> decode_header(std::span<const std::byte> bytes);

/// The checksum that `bytes` should have in their last 8.
std::uint64_t header_checksum(std::span<const std::byte> bytes);

/// What PMDK writes for this machine where a client gives no user_flags.
Uuid16 architecture_of_this_machine();

}  // namespace perdure::rpmem
