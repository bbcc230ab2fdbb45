// What a region keeps in the exported part of each of its pools, before the bytes of its user.
//
//   offset  size  field
//   0       64    header: whose pool this is (below)
//   192     64    probe line: zeros, written over with zeros to time the connection
//   4096    64    copy of the header
//   6144    8     copy of the state word
//   8192    8     state word; 0: never written
//   8256    8     return word: a state word while the replica is brought back; else 0
//   12288   ..    the user's bytes
//
// Header, written once:
//
//   0       8     magic     "PERDREG\x01"
//   8       4     version   kRegionVersion
//   12      4     replicas  how many the region has
//   16      8     id        random; the same on every replica
//   24      4     quorum    replicas that are written, or none is
//   28      4     zero
//   32      8     bytes     of the user, as many as the smallest pool had when it was created
//   40      20    zero
//   60      4     crc32c    of bytes 0..60
//
// State word, one aligned store of 8 bytes:
//
//   bits 0..29   check   the lower bits of the CRC32C of the other bits
//   bit 30       closed  all updates of the session had resolved here when it ended
//   bit 31       whole   it has had everything that was ever reported, and keeps it
//   bits 32..63  epoch   of the session that wrote last: the pool's own, so no other has the same
//
// What a crash can leave behind: of the header first all but the magic is made durable, then the
// magic, first in the copy. So it is whole, or has no magic, and then the pool is blank. A word is
// old or new; where the two differ, one was being written, and the session of the higher epoch did
// not end well. Where either is damaged nobody knows which session was the last here: it is not
// taken from the other, which may be the older one. A region whose state words are all 0 was never
// opened, so nothing was ever written.
//
// The return word is durable before anything is written to bring a replica back that would mix what
// it held with what came later, and 0 again when all is there. Anything else found in it: each
// place has what was reported of it or what came later, and epochs may be there without earlier
// ones. Where it names a later session than the state words do, that one took the pool and did not
// come to say so there: it was the last here, and did not end well.
#pragma once

#include <perdure/result.h>
#include <perdure/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace perdure::region {

inline constexpr std::uint32_t kRegionVersion = 2;
inline constexpr std::uint64_t kHeaderBytes = 64;
inline constexpr std::array<std::uint64_t, 2> kHeadersAt = {0, 4096};
inline constexpr std::uint64_t kMagicBytes = 8;
inline constexpr std::uint64_t kProbeLineAt = 192;
inline constexpr std::array<std::uint64_t, 2> kStateWordsAt = {8192, 6144};  // on two pages
inline constexpr std::uint64_t kReturnWordAt = 8256;
inline constexpr std::uint64_t kDataAt = 12288;

struct RegionHeader {
  std::uint32_t replicas = 0;
  std::uint32_t quorum = 0;
  std::uint64_t id = 0;
  std::uint64_t bytes = 0;
  bool operator==(const RegionHeader&) const = default;
};

struct ReplicaState {
  Epoch epoch;  // 0: never opened
  bool closed = false;
  bool whole = false;
  bool operator==(const ReplicaState&) const = default;
};

using HeaderBytes = std::array<std::byte, kHeaderBytes>;
HeaderBytes encode_header(const RegionHeader& header);

std::uint64_t encode_state(const ReplicaState& state);
/// Of one word. Nothing: damaged.
std::optional<ReplicaState> decode_state(std::uint64_t word);
/// Of both. Nothing: one of them is damaged.
std::optional<ReplicaState> decode_states(std::uint64_t word, std::uint64_t copy);

/// What a pool says of its region.
struct RegionStart {
  std::optional<RegionHeader> header;                  // nothing: the pool is blank
  std::optional<ReplicaState> state = ReplicaState{};  // nothing: damaged
  bool mixed = false;                                  // it was being brought back
};

/// Reads the first kDataAt bytes of a pool. Trusts nothing of them.
/// Errors: InvalidArgument (it holds something else), Corrupt, VersionMismatch.
Result<RegionStart> decode_start(std::span<const std::byte> bytes);

}  // namespace perdure::region
