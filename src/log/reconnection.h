// Reconnection: connecting anew to a replica that is down, as far as what it holds can be surveyed.
// A peer may be silent for long meanwhile: a thread of its own waits for it, and nobody who writes.
#pragma once

#include <perdure/result.h>
#include <perdure/types.h>

#include "client/durable_session.h"
#include "client/remote_bytes.h"
#include "core/background.h"
#include "core/clock.h"
#include "log/log_format.h"
#include "log/log_state.h"
#include "pmem/pool_format.h"

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace perdure::log {

/// A pool that is not open tells nothing of itself but why. Errors: NotFound.
Result<void> require_open(const control::PoolDescription& pool);

/// By which a writer knows whether a peer's pool is the replica that it is to be.
struct KnownReplicas {
  Configuration configuration;
  Epoch epoch;                                             // the writer's
  std::vector<std::pair<std::string, pmem::Uuid>> others;  // their peers, and the pools they have
};

/// The pool's UUID, if it is that of a replica of this log, in use, and nobody has fenced the
/// writer there. Errors: NotFound, InvalidArgument, Fenced.
Result<pmem::Uuid> check_pool(const control::PoolDescription& pool, const KnownReplicas& known);

/// What connecting takes. Nothing of it changes meanwhile.
struct ConnectOptions {
  control::SessionRequest request;
  KnownReplicas known;
  LogShape shape = LogShape::Singleton;
  std::span<std::byte> staging;  // to be registered, for records
  std::span<std::byte> words;    // and for words
  Nanoseconds timeout{0};        // of one step
  const Clock* clock = nullptr;
};

/// A connection over which records can be sent once the replica is brought to equal. Its deadlines
/// are those of making it: who goes on gives it others.
struct Connected {
  control::PoolDescription pool;  // before it
  // Registered: these go after the session.
  std::unique_ptr<fabric::Memory> staging;
  std::unique_ptr<fabric::Memory> words;
  client::DurableSession session;
  std::unique_ptr<client::RemoteBytes> bytes;  // over a session of their own
};

/// Asks the pool, opens a session to write and makes it ready, and one to read. `until` is asked
/// before each of these steps.
/// Errors: those of check_pool, DurableSession::open and prepare, RemoteBytes::open; NotFound or
/// InvalidArgument: the peer has no such pool, or has another one than a moment ago.
Result<Connected> connect(const ConnectOptions& options, client::DurableSession successor,
                          const std::function<Deadline()>& until);

using Reconnection = Background<Connected>;
/// Begins connect(). What `options` points to must outlive it, and what comes of it.
std::unique_ptr<Reconnection> begin_connecting(ConnectOptions options,
                                               client::DurableSession successor);

}  // namespace perdure::log
