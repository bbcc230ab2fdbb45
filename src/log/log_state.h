// What a replica says of itself: the page that is written when something else than a record
// changes. Two copies, each torn at worst alone. docs/log-protocol.md says what each field means
// and who may change it.
//
//   offset  size  field
//   0       8     magic "PERDLGST"
//   8       4     version 3
//   12      4     marks: 1 creating, 2 incomplete, 4 removed
//   16      8     generation: the higher valid copy counts
//   24      8     log id
//   32      8     ring bytes
//   40      4     shape
//   44      4     epoch of which the replica was last a full part
//   48      8     LSN where that epoch began
//   56      8     head: LSN
//   64      8     head: index
//   72      4     head: epoch
//   76      4     head: checksum of the record before
//   80      1948  configuration, as in a configuration record; then zeros
//   2028    4     seed of the records' checksums
//   2032    8     incomplete: LSN up to which it may have acknowledged something when it was marked
//   2040    4     incomplete: of which epoch; 0: not known
//   2044    4     checksum of the 2044 bytes before
//
// A configuration: generation (4), quorum (4), members (4), the epoch that began with the loss
// that was accepted last (4; 0: none), then for each member the UUID of its pool (16) and a name
// (64, ends at the first zero byte).
#pragma once

#include <perdure/result.h>

#include "log/log_format.h"
#include "log/replica_set.h"

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace perdure::log {

inline constexpr std::size_t kStateBytes = 2048;
inline constexpr std::size_t kStateCopies = 2;
using StateBytes = std::array<std::byte, kStateBytes>;

/// What was begun with a replica and not ended.
struct Marks {
  bool creating = false;    // the log may never have begun
  bool incomplete = false;  // its records are being replaced
  bool removed = false;     // it is no member any more
  bool operator==(const Marks&) const = default;
  bool any() const { return creating || incomplete || removed; }
};

struct LogState {
  Anchor anchor;
  Marks marks;
  Epoch epoch;
  Lsn begin = kFirstLsn;
  Boundary head;
  Configuration configuration;
  /// Of an incomplete one: it never acknowledged anything beyond this, so it votes for whoever has
  /// that much. Epoch 0: not known, but nothing of an epoch above its own.
  Rank promised;
  bool operator==(const LogState&) const = default;
};

/// A state, and which of the copies holds it.
struct StoredState {
  LogState state;
  std::uint64_t generation = 0;
  std::size_t copy = 0;       // the newest; the other is written first
  bool copies_agree = false;  // false: a crash came between, or one is damaged
};

std::vector<std::byte> encode_configuration(const Configuration& configuration);
/// Errors: Corrupt.
Result<Configuration> decode_configuration(std::span<const std::byte> bytes);

/// Whether its places can be those of a log: no peer's bytes make a writer say what no reader
/// takes. Errors: Corrupt.
Result<void> validate(const LogState& state);

StateBytes encode_state(const LogState& state, std::uint64_t generation);
/// The newest of the copies; nothing when both are zero, or the first is torn and the second zero:
/// the first state of all is written there first, and nobody counts on it before both are durable.
/// Errors: VersionMismatch, Corrupt (none is valid).
Result<std::optional<StoredState>> decode_states(std::span<const std::byte, kStateBytes> first,
                                                 std::span<const std::byte, kStateBytes> second);

}  // namespace perdure::log
