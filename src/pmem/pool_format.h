// The first 48 KiB of a pool, as bytes: the header page and the copies of the state. Pure
// functions; what keeps the bytes and in which order they are written is pool.h's.
//
//   offset   size     what
//   0        4096     header, written once when the pool is made
//   4096     4096     state slot 0
//   8192     4096     state slot 1
//   12288    4096     reserved, zero
//   16384    4096     copy of the header
//   20480    12288    reserved, zero
//   32768    4096     spare copy of the state
//   36864    4096     of a file or device: which process has it (owner_process.h)
//   40960    4096     of a device: who has it (owner_lease.h)
//   45056    4096     reserved, zero
//   49152    16384    scratch, zero: what the medium costs is timed by storing zeros here
//   65536    ...      exported data
//
// A drive that loses its power while it writes may lose more than the page it was given: the unit
// in which it maps its flash, 4 to 16 KiB. So nothing that is rewritten shares such a unit with
// both copies of anything. Pools made before the copies existed have zeros there, and get them when
// they are next opened; an older Perdure reads neither, and leaves the spare state behind, where
// its generation tells that it is not the newest.
//
// docs/format.md has the fields of each. All numbers are little-endian.
#pragma once

#include <perdure/profile.h>
#include <perdure/result.h>
#include <perdure/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace perdure::pmem {

inline constexpr std::uint32_t kPoolFormatVersion = 1;
inline constexpr std::size_t kPoolPageBytes = 4096;
inline constexpr std::size_t kStateSlots = 2;
inline constexpr std::size_t kPoolFrontBytes = kPoolPageBytes * (1 + kStateSlots);
inline constexpr std::uint64_t kDriveUnitBytes = 16384;  // none known is larger
inline constexpr std::uint64_t kHeaderCopyOffset = kDriveUnitBytes;
inline constexpr std::uint64_t kSpareStateOffset = 2 * kDriveUnitBytes;
inline constexpr std::size_t kPoolHeadBytes = 3 * kDriveUnitBytes;  // all that is ever read
inline constexpr std::uint64_t kPoolDataOffset = 65536;
inline constexpr std::uint64_t kPoolDataBytesMax = std::uint64_t{1} << 46;  // 64 TiB
inline constexpr std::uint64_t kOwnerProcessOffset = kSpareStateOffset + kPoolPageBytes;
inline constexpr std::uint64_t kOwnerLeaseOffset = kSpareStateOffset + 2 * kPoolPageBytes;
inline constexpr std::uint64_t kPoolScratchBytes = 16384;
inline constexpr std::uint64_t kPoolScratchOffset = kPoolDataOffset - kPoolScratchBytes;
static_assert(kPoolFrontBytes <= kHeaderCopyOffset && kPoolHeadBytes <= kPoolScratchOffset);

inline constexpr std::size_t kPoolKindBytesMax = 16;
inline constexpr std::size_t kPoolNameBytesMax = 128;
inline constexpr std::size_t kHolderBytesMax = 256;
inline constexpr std::size_t kOpaqueBytesMax = 1024;

using PoolPage = std::array<std::byte, kPoolPageBytes>;

/// Tells pools apart for ever. Random (RFC 4122 version 4).
struct Uuid {
  std::array<std::byte, 16> bytes{};
  bool operator==(const Uuid&) const = default;
  static Uuid random();
};

/// "2f1c9e0a-....": lower case, 36 characters.
std::string to_string(const Uuid& uuid);

/// What is fixed when a pool is made.
struct PoolHeader {
  Uuid uuid;
  std::uint64_t region_bytes = 0;  // of the whole file or device
  std::uint64_t data_bytes = 0;    // exported, from kPoolDataOffset
  std::optional<PersistenceDomain> declared;
  std::string kind;  // what the data is, for example "log"; printable ASCII
  std::string name;  // for people; UTF-8 without control characters
  bool operator==(const PoolHeader&) const = default;
};

/// What changes, rarely: at open, close and when the writer changes.
struct PoolState {
  Epoch epoch;                  // of the newest writer
  std::string holder;           // who that is, for people: "host:pid" or a session
  bool clean_shutdown = false;  // the pool was closed; false while it is open
  /// All that was visible of the data when the pool was closed was durable, as by this domain, in
  /// this place (Pool::place). Whoever opens the pool takes the mark away with clean_shutdown, an
  /// older Perdure too, which knows no such mark and writes zeros there.
  std::optional<PersistenceDomain> settled;
  std::uint64_t settled_place = 0;
  /// By which domain a file or device was last opened, and in which place (Pool::place). By another
  /// one, or elsewhere, all that is visible of it is flushed first. Not set: not known (an older
  /// Perdure, or a region that was given).
  std::optional<PersistenceDomain> opened_by;
  std::uint64_t opened_place = 0;
  /// The same, but for openings by none, by which nothing lasts and nothing is flushed: what was
  /// acknowledged may rely on it. Not set: that of the header.
  std::optional<PersistenceDomain> relied_on;
  std::vector<std::byte> opaque;  // the upper layers' own, at most kOpaqueBytesMax
  bool operator==(const PoolState&) const = default;
};

/// A state and how new it is.
struct StateSlot {
  std::uint64_t generation = 0;  // 1 is the first
  PoolState state;
  bool operator==(const StateSlot&) const = default;
};

/// What was acknowledged in a pool may rely on this domain: PoolState::relied_on, or what was
/// declared when it was made.
std::optional<PersistenceDomain> relied_on(const PoolHeader& header, const PoolState& state);

/// Whether the fields fit the format. Errors: InvalidArgument, naming the field and its limit.
Result<void> validate(const PoolHeader& header);
Result<void> validate(const PoolState& state);

/// Requires a valid header or state.
PoolPage encode_header(const PoolHeader& header);
PoolPage encode_state(const StateSlot& slot, const Uuid& uuid);

/// Reads the header from the first bytes of a pool. Nothing in `bytes` is trusted.
///
/// Errors  InvalidArgument: not a pool (other magic). VersionMismatch: made by another version.
///         Corrupt: too short, a failed checksum, or fields that contradict each other.
Result<PoolHeader> decode_header(std::span<const std::byte> bytes);

/// The header of a pool that has lost its first page: its copy. Requires the first bytes of a pool,
/// as many as there are. Only for a page that is damaged or zero: what begins with another magic
/// number was made into something else.
/// Errors  those of decode_header for the first page, if that is not so or the copy is no header.
Result<PoolHeader> decode_header_or_copy(std::span<const std::byte> head);

/// Reads one state slot. Errors  Corrupt: torn, damaged, never written, or of another pool.
Result<StateSlot> decode_state(std::span<const std::byte> bytes, const Uuid& uuid);

/// Both slots of a pool, and the one that counts.
struct StateSlots {
  StateSlot newest;
  std::size_t newest_index = 0;
  bool both_equal = false;   // false: a crash or damage left one copy behind; it is to be rewritten
  bool spare_equal = false;  // the same of the spare copy
};

/// Reads the slots from the first kPoolFrontBytes of a pool, and the spare copy if there are
/// kPoolHeadBytes.
/// Errors  Corrupt: no copy is valid, which no crash can cause.
Result<StateSlots> decode_states(std::span<const std::byte> head, const Uuid& uuid);

}  // namespace perdure::pmem
