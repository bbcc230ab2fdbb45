// Peer: one responder as a requester sees it through the control plane. What it says of its pools,
// and how a session (a connection, keys, rights) is opened and ended.
// HttpPeer talks to a perdured; LocalPeer to a PeerService in this process.
#pragma once

#include <perdure/result.h>

#include "control/documents.h"
#include "control/service_types.h"
#include "core/clock.h"
#include "fabric/fabric.h"
#include "pmem/medium_costs.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace perdure::client {

/// The requester's side of an open session. Destroying it closes the connection; the responder
/// then revokes the keys.
struct Session {
  std::uint64_t id = 0;
  std::unique_ptr<fabric::Endpoint> endpoint;
  fabric::RemoteMemory remote;    // the exported part of the pool
  control::PoolDescription pool;  // as it was when the session was opened
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
  virtual Result<std::vector<control::PoolDescription>> list(Deadline deadline) = 0;
  /// Errors: NotFound, Corrupt.
  virtual Result<control::PoolDescription> describe(const std::string& pool, Deadline deadline) = 0;
  /// Errors: AlreadyExists, InvalidArgument (name, size), NoSpace, Unsupported (what is required);
  /// OutcomeUnknown: also a pool that was made otherwise than was asked for.
  virtual Result<control::PoolDescription> create(const control::PoolRequest& request,
                                                  Deadline deadline) = 0;
  /// Errors: NotFound; Busy (another writer has a session; take_over ends it); Fenced (the pool
  /// has seen an epoch as high, from another writer: the message names both).
  virtual Result<Session> open_session(const control::SessionRequest& request,
                                       Deadline deadline) = 0;
  /// Ends a session at once: its keys are revoked before this returns. Only its own writer can know
  /// that it left all durable: then nobody makes it so again for the next one. Errors: NotFound.
  virtual Result<void> close_session(std::uint64_t id, control::Left left, Deadline deadline) = 0;
  /// Promises that no writer below `epoch` writes to the pool any more; ends such sessions.
  /// Errors: NotFound, Fenced (the pool has seen a higher one).
  virtual Result<void> fence(const std::string& pool, Epoch epoch, Deadline deadline) = 0;
};

}  // namespace perdure::client
