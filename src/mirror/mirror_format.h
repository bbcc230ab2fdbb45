// What a mirror keeps in the exported part of each of its pools, before the mirrored bytes.
//
//   offset  size  field
//   0       64    header: whose pool this is (below)
//   192     64    probe line: zeros, written over with zeros to time the connection
//   4096    64    copy of the header
//   6144    64    copy of the state
//   8192    64    state; all zero: never written
//   12288   ..    the mirrored bytes
//
// Header, written once:
//
//   0       8     magic     "PERDMIR\x01"
//   8       4     version   kMirrorVersion
//   12      4     replicas  how many the mirror has
//   16      8     id        random; the same on every replica
//   24      4     quorum
//   28      4     zero
//   32      8     bytes     that are mirrored
//   40      20    zero
//   60      4     crc32c    of bytes 0..60
//
// State:
//
//   0       8     generation  epoch u32, count u32: complete: what it has everything of
//   8       8     known       incomplete: the newest generation that was known then
//   16      4     flags       1 complete, 2 closed, 4 written (always)
//   20      4     written_in  of the writers up to that generation, the epoch of the last one that
//                             could begin an update; 0: the generation's own
//   24      8     file_bytes  complete: how long the local file is; 0: as the mirror, or not known,
//                             as of replicas of earlier builds
//   32      28    zero
//   60      4     crc32c      of bytes 0..60
//
// What a crash can leave behind. Of the header first all but the magic is made durable, then the
// magic, first in the copy: it is whole, or has no magic, and then the pool is blank. Before the
// header the state is written, incomplete: a pool that was blank tells at once of the generation
// that its writer knows, and is never heard as one that knows of none. The state is
// always written whole and made durable, then its copy. So of two that are right and differ the
// state is the newer one; where one is damaged, the other is what holds: either the damaged one was
// just being written, and then nothing has followed from it, or both had said the same.
#pragma once

#include <perdure/result.h>
#include <perdure/types.h>

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace perdure::mirror {

inline constexpr std::uint32_t kMirrorVersion = 1;
inline constexpr std::uint64_t kHeaderBytes = 64;
inline constexpr std::uint64_t kStateBytes = 64;
inline constexpr std::array<std::uint64_t, 2> kHeadersAt = {0, 4096};
inline constexpr std::uint64_t kMagicBytes = 8;
inline constexpr std::uint64_t kProbeLineAt = 192;
inline constexpr std::array<std::uint64_t, 2> kStatesAt = {8192, 6144};  // on two pages
inline constexpr std::uint64_t kDataAt = 12288;

/// A time in which the same replicas were in sync: of a writer's epoch, how many it lost before.
struct Generation {
  std::uint32_t epoch = 0;
  std::uint32_t count = 0;
  auto operator<=>(const Generation&) const = default;
};

struct MirrorHeader {
  std::uint32_t replicas = 0;
  std::uint32_t quorum = 0;
  std::uint64_t id = 0;
  std::uint64_t bytes = 0;
  bool operator==(const MirrorHeader&) const = default;
};

struct ReplicaState {
  Generation generation;
  Generation known;
  bool complete = false;
  bool closed = false;
  std::uint32_t written_in = 0;
  std::uint64_t file_bytes = 0;
  bool operator==(const ReplicaState&) const = default;
  /// The newest generation that it tells of.
  Generation newest() const { return complete ? generation : known; }
  /// The last epoch that it tells of in which an update could begin.
  std::uint32_t last_written() const { return written_in == 0 ? newest().epoch : written_in; }
};

using HeaderBytes = std::array<std::byte, kHeaderBytes>;
HeaderBytes encode_header(const MirrorHeader& header);
using StateBytes = std::array<std::byte, kStateBytes>;
StateBytes encode_state(const ReplicaState& state);

/// What a pool says of its mirror.
struct ReplicaStart {
  std::optional<MirrorHeader> header;                  // nothing: the pool is blank
  std::optional<ReplicaState> state = ReplicaState{};  // nothing: damaged
};

/// Reads the first kDataAt bytes of a pool. Trusts nothing of them.
/// Errors: InvalidArgument (it holds something else), Corrupt, VersionMismatch.
Result<ReplicaStart> decode_start(std::span<const std::byte> bytes);

/// How many replicas must be heard so that the newest generation is among them, and so that no two
/// writers hear of none in common.
constexpr std::size_t needed(std::size_t replicas, std::size_t quorum) {
  return quorum > replicas - quorum + 1 ? quorum : replicas - quorum + 1;
}

/// The replicas that may be copied from: complete, and of the newest generation that any of them
/// tells of. Nothing of replicas that were not heard, are blank or damaged. A mirror that was never
/// in sync (generation 0) has none.
struct Sources {
  Generation newest;
  std::vector<std::size_t> replicas;
};
Sources find_sources(std::span<const std::optional<ReplicaState>> heard);

}  // namespace perdure::mirror
