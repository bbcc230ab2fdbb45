// Pools: named memory on peers, in which logs and regions live. A pool is made once, on each peer
// that is to hold a replica; whoever opens a log or a region names it.
//
//   for (const std::string& peer : peers) {
//     auto made = perdure::create_pool(peer, {.name = "orders", .bytes = 64 << 20});
//   }
#pragma once

#include <perdure/profile.h>
#include <perdure/result.h>
#include <perdure/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace perdure {

enum class PoolStatus {
  Open,         // ready for sessions
  Closed,       // closed on request; opening it again brings it back
  Unavailable,  // could not be opened, or failed since: see the reason
};

std::string_view to_string(PoolStatus state);

/// What a peer says of one of its pools. Of a pool that is not open, only name, state, reason and
/// what could still be read are set.
struct PoolDescription {
  std::string name;
  PoolStatus state = PoolStatus::Open;
  /// Unavailable, or open and no writer is granted it, for a session's keys could not be taken
  /// away: the thing, the cause and the remedy.
  std::string reason;
  std::string uuid;
  std::uint64_t bytes = 0;      // of the exported part
  ServerProfile profile;        // of this pool on this peer: the domain depends on the medium
  Epoch epoch;                  // of the last writer; 0: there was none
  std::uint64_t writer = 0;     // the last writer's id; 0: there was none
  std::string writer_name;      // as that writer called itself
  bool writer_present = false;  // it holds a session now
  std::string evidence;         // for people: what the persistence domain was concluded from
  bool was_closed = false;      // in order, by whoever had it before the daemon opened it
  bool operator==(const PoolDescription&) const = default;
};

struct PoolOptions {
  std::string name;         // [A-Za-z0-9._-], at most 64 characters, no leading '.'
  std::uint64_t bytes = 0;  // of the exported part, 4 KiB to 32 TiB; rounded up to 4 KiB
  /// Also where no log fits in: for a region. Else that is InvalidArgument.
  bool small = false;
  /// The weakest persistence domain that will do, in the order of PersistenceDomain; a pool that
  /// would be less is not made. None: any will do. It is looked at when the pool is made, and not
  /// kept with it: a peer that starts again serves the pool as what is found or declared then,
  /// which PoolDescription::profile says.
  PersistenceDomain required_domain = PersistenceDomain::None;
  /// Where a writer's messages arrive, for as long as the pool exists. Nothing: as the peer is
  /// configured. Every peer makes pools with Dram, and with Pm those whose configuration says so.
  std::optional<ReceiveBuffers> receive_buffers{};
};

// `peer` is the address of a control plane, "host:port". Each call is one request, or two, and
// needs no open log. Errors of all, besides those listed: InvalidArgument (the address),
// Disconnected (nobody answers there), TimedOut, PermissionDenied, ProtocolError: nothing was
// changed, but that closing may have ended sessions before it timed out. OutcomeUnknown, of what
// changes something: it was sent, and the answer did not come or was none; describe_pool says what
// has become of it, and to repeat it is safe. Threads: any.

/// Makes a pool; its blocks are reserved. Where the peer keeps it and what survives a power failure
/// there is its operator's choice (docs/hardware.md): see PoolDescription::profile.
/// Errors: AlreadyExists, InvalidArgument (name, size; a field that an older peer does not know),
/// NoSpace (the medium, or the peer's quota), Unsupported (required_domain, receive_buffers: no
/// pool was made), OutcomeUnknown (also a peer that made it otherwise than was asked; it names the
/// pool).
Result<PoolDescription> create_pool(const std::string& peer, const PoolOptions& options,
                                    std::chrono::milliseconds timeout = std::chrono::seconds(30));
/// Errors: NotFound.
Result<PoolDescription> describe_pool(const std::string& peer, const std::string& name,
                                      std::chrono::milliseconds timeout = std::chrono::seconds(5));
Result<std::vector<PoolDescription>> list_pools(
    const std::string& peer, std::chrono::milliseconds timeout = std::chrono::seconds(5));
/// Ends the pool's sessions, its writer's too, and closes it: nobody can use it until it is opened
/// again, or its peer starts anew. Harmless when repeated.
/// Errors: NotFound, SystemError (it is closed, and was not marked as cleanly closed).
Result<void> close_pool(const std::string& peer, const std::string& name,
                        std::chrono::milliseconds timeout = std::chrono::seconds(5));
/// Opens one that is Closed or Unavailable again. Harmless when it is open.
/// Errors: NotFound, Busy (another process has it), and why it is unavailable.
Result<PoolDescription> open_pool(const std::string& peer, const std::string& name,
                                  std::chrono::milliseconds timeout = std::chrono::seconds(30));
/// Destroys a pool and all that is in it, on this peer. `uuid` is that of its description, so that
/// another one of this name, made meanwhile, stays.
/// Errors: NotFound (no pool of this name and UUID), Busy (somebody has a session, or another
/// process the pool), Unsupported (a device, which its operator clears).
Result<void> delete_pool(const std::string& peer, const std::string& name, const std::string& uuid,
                         std::chrono::milliseconds timeout = std::chrono::seconds(5));

}  // namespace perdure
