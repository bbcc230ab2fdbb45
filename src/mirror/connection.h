// Connection of a mirror to one of its replicas: a durable session, the memory that it sends from,
// and what the pool said of itself when it was made.
#pragma once

#include <perdure/mirror.h>
#include <perdure/result.h>

#include "client/durable_session.h"
#include "client/peer.h"
#include "client/remote_bytes.h"
#include "core/clock.h"
#include "core/stoppable_clock.h"
#include "mirror/mirror_format.h"
#include "pmem/region.h"

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace perdure::mirror {

/// Neighbouring pages that are copied in one piece.
inline constexpr std::uint64_t kCopyPages = 16;
inline constexpr std::size_t kLandingBytes = 64 * 1024;  // of one READ
static_assert(kLandingBytes >= kDataAt);

/// What of the requester is registered for every connection, and outlives them; `of` is the local
/// memory's region.
struct Buffers {
  pmem::Region& of;
  std::span<std::byte> staging;
  std::span<std::byte> copies;  // client::kUpdatesMax pieces of kCopyPages pages
  std::span<std::byte> landing;
  std::span<std::byte> local;
};

/// Threads: connect touches nothing but its arguments; else one caller at a time.
class Connection {
 public:
  /// Opens a session of a writer, and reads how the pool begins. May block as long as
  /// `options.peer_timeout` allows each step, or until `steps` is stopped. Errors: those of
  /// DurableSession::open and prepare; InvalidArgument, Corrupt, VersionMismatch: of what the pool
  /// holds.
  static Result<std::unique_ptr<Connection>> connect(std::shared_ptr<client::Peer> peer,
                                                     const control::SessionRequest& request,
                                                     const MirrorOptions& options,
                                                     const Buffers& buffers, const Clock& clock,
                                                     const StoppableClock& steps);
  /// What the pool says of its mirror, if anything, and what it holds.
  struct Look {
    ReplicaStart start;
    std::unique_ptr<client::RemoteBytes> pool;
  };
  /// By a session that fences nobody. Errors: Unsupported: no connection to it has a method for
  /// what is asked for; those of reading and of what the pool holds.
  static Result<Look> look(std::shared_ptr<client::Peer> peer, const MirrorOptions& options,
                           const Clock& clock);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  client::DurableSession& session() { return session_; }
  const client::DurableSession& session() const { return session_; }
  const std::string& pool_uuid() const { return session_.connection().pool.uuid; }
  /// Room for mirrored bytes.
  std::uint64_t room() const;
  const ReplicaStart& start() const { return start_; }

  fabric::Memory* staging() { return staging_.get(); }
  fabric::Memory* copies() { return copies_.get(); }
  fabric::Memory* landing() { return landing_.get(); }
  /// Nothing: the RNIC could not register it (its pages can not be pinned, or a limit is reached).
  fabric::Memory* local() { return local_.get(); }

  /// Says in a blank pool whose it is: the magic last, the copy first. Waits. Errors: those of
  /// write_now.
  Result<void> claim(const MirrorHeader& header);
  /// Makes the state durable, behind everything that was begun; waits. Errors: the same.
  Result<void> write_state(const ReplicaState& state);

  /// Until an update of the session has resolved. Errors: why it never will; TimedOut: not by
  /// `until`.
  Result<void> await(std::uint64_t number, const std::optional<Deadline>& until = std::nullopt);

  /// Where the reply to a request lands whose number it will have.
  std::span<std::byte> reply_of_next() {
    return replies_[(session_.begun() + 1) % client::kUpdatesMax];
  }
  std::span<const std::byte> reply_of(std::uint64_t number) const {
    return replies_[number % client::kUpdatesMax];
  }

 private:
  Connection(std::shared_ptr<client::Peer> peer, const client::DurableSessionOptions& options)
      : session_(std::move(peer), options) {}
  Result<void> open(const control::SessionRequest& request, const Buffers& buffers,
                    const std::function<Deadline()>& until);

  std::unique_ptr<fabric::Memory> staging_;
  std::unique_ptr<fabric::Memory> copies_;
  std::unique_ptr<fabric::Memory> landing_;
  std::unique_ptr<fabric::Memory> local_;
  std::array<std::array<std::byte, 64>, client::kUpdatesMax> replies_{};
  client::DurableSession session_;  // goes before the memory that it names
  ReplicaStart start_;
};

}  // namespace perdure::mirror
