// Peer: one responder as a requester sees it through the control plane. What it says of its pools,
// and how a session (a connection, keys, rights) is opened and ended.
// HttpPeer talks to a perdured; LocalPeer to a PeerService in this process.
#pragma once

#include <perdure/profile.h>
#include <perdure/result.h>
#include <perdure/types.h>

#include "core/clock.h"
#include "fabric/fabric.h"
#include "pmem/medium_costs.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace perdure::peer {

enum class PoolState {
  Open,         // ready for sessions
  Closed,       // closed on request; opening it again brings it back
  Unavailable,  // could not be opened, or failed since: see the reason
};

std::string_view to_string(PoolState state);

/// What a peer says of one of its pools. Of a pool that is not open, only name, state, reason and
/// what could still be read are set.
struct PoolDescription {
  std::string name;
  PoolState state = PoolState::Open;
  std::string reason;  // Unavailable: the thing, the cause and the way out
  std::string uuid;
  std::uint64_t bytes = 0;      // of the exported part
  ServerProfile profile;        // of this pool on this peer: the domain depends on the medium
  Epoch epoch;                  // of the last writer; 0: there was none
  std::uint64_t writer = 0;     // the last writer's id; 0: there was none
  std::string writer_name;      // as that writer called itself
  bool writer_present = false;  // it holds a session now
  std::string evidence;         // for people: what the persistence domain was concluded from
  bool operator==(const PoolDescription&) const = default;
};

struct PoolRequest {
  std::string name;         // [A-Za-z0-9._-], at most kPoolNameMax characters, no leading '.'
  std::uint64_t bytes = 0;  // of the exported part; rounded up to 4 KiB
};

inline constexpr std::size_t kPoolNameMax = 64;
inline constexpr std::uint64_t kPoolBytesMin = 4096;
inline constexpr std::uint64_t kPoolBytesMax = std::uint64_t{1} << 45;  // 32 TiB
inline constexpr std::size_t kWriterNameMax = 64;  // bytes of UTF-8, without control characters

struct SessionRequest {
  std::string pool;
  bool write = false;        // false: the session may only read
  Epoch epoch;               // write: the writer's epoch
  std::uint64_t writer = 0;  // write: a random id of the writer; the same writer may come again
  std::string writer_name;   // for people: program, host, process
  bool take_over = false;    // write: end the session of an earlier writer that is still there
};

/// Whether a request makes sense by itself. Errors: InvalidArgument, naming the field.
Result<void> validate(const PoolRequest& request);
Result<void> validate(const SessionRequest& request);
Result<void> validate_pool_name(std::string_view name);

/// The requester's side of an open session. Destroying it closes the connection; the responder
/// then revokes the keys.
struct Session {
  std::uint64_t id = 0;
  std::unique_ptr<fabric::Endpoint> endpoint;
  fabric::RemoteMemory remote;    // the exported part of the pool
  PoolDescription pool;           // as it was when the session was opened
  std::size_t receive_depth = 0;  // messages that may be unacknowledged at a time
  std::size_t message_bytes_max = 0;
  std::optional<pmem::MediumCosts> medium;  // nothing: the responder does not say
};

/// Threads: any; calls to one Peer may be made concurrently.
class Peer {
 public:
  virtual ~Peer() = default;

  /// Where it is, as the user wrote it: "127.0.0.1:7470".
  virtual std::string name() const = 0;
  /// The device on this side over which its sessions run: register local memory with it. A peer
  /// may choose it when the first session is opened, so it can be asked for only then.
  virtual fabric::Device& device() = 0;

  /// Errors: Disconnected (no answer), TimedOut, PermissionDenied, ProtocolError (the answer makes
  /// no sense) for all calls; and those listed.
  virtual Result<std::vector<PoolDescription>> list(Deadline deadline) = 0;
  /// Errors: NotFound, Corrupt.
  virtual Result<PoolDescription> describe(const std::string& pool, Deadline deadline) = 0;
  /// Errors: AlreadyExists, InvalidArgument (name, size), NoSpace.
  virtual Result<PoolDescription> create(const PoolRequest& request, Deadline deadline) = 0;
  /// Errors: NotFound; Busy (another writer has a session; take_over ends it); Fenced (the pool
  /// has seen an epoch as high, from another writer: the message names both).
  virtual Result<Session> open_session(const SessionRequest& request, Deadline deadline) = 0;
  /// Ends a session at once: its keys are revoked before this returns. Errors: NotFound.
  virtual Result<void> close_session(std::uint64_t id, Deadline deadline) = 0;
  /// Promises that no writer below `epoch` writes to the pool any more; ends such sessions.
  /// Errors: NotFound, Fenced (the pool has seen a higher one).
  virtual Result<void> fence(const std::string& pool, Epoch epoch, Deadline deadline) = 0;
};

}  // namespace perdure::peer
