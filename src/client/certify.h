// What can be found out about a peer's RNIC from this side, by using it: the list that ends
// docs/hardware.md. What it finds holds for these two machines, this pool and this network.
#pragma once

#include <perdure/result.h>

#include "client/peer.h"
#include "core/clock.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace perdure::client {

enum class Proof {
  Held,       // what Perdure counts on was so, as often as it was tried
  Broken,     // it was not: data can be lost, or waits are long
  NotProved,  // nothing was seen, which proves nothing
  NotHere,  // can not be found out over this provider, or not from this side; the finding says how
};

std::string_view to_string(Proof proof);

struct CertifyCheck {
  std::string name;
  Proof proof = Proof::NotHere;
  std::string finding;                                  // one sentence
  std::vector<std::pair<std::string, double>> numbers;  // with their units in the names
};

/// Calls `step` again and again, in a thread of its own, while `call` runs; returns when both have
/// ended.
void call_beside(const std::function<void()>& step, const std::function<void()>& call);

struct CertifyOptions {
  std::string pool;                               // what it holds is overwritten
  Nanoseconds timeout = std::chrono::seconds(5);  // of one answer
  /// How long it asks again where a peer that is there says that it takes longer than that.
  Nanoseconds patience = std::chrono::minutes(10);
  const Clock* clock = &Clock::monotonic();
  std::uint64_t writer = 1;  // id of the writer that it is
  std::uint64_t rounds = 2000;
  /// How a writer goes on while it is fenced: another one in a world without threads.
  std::function<void(const std::function<void()>& step, const std::function<void()>& call)> beside =
      call_beside;
};

struct Certificate {
  control::PoolDescription pool;  // as sessions find it
  std::string device;             // on this side
  std::vector<CertifyCheck> checks;
};

/// How long it takes until a dead peer is noticed: what the connection was asked for and, once a
/// peer has died under this requester's writes, how long it took after its last answer. Nothing is
/// proved where its machine was not started anew since, or no time-out can have been used.
CertifyCheck dead_peer_time(Transport transport, const fabric::EndpointOptions& asked,
                            std::optional<std::uint64_t> noticed_ns, bool restarted);

/// Goes through the list. Takes the pool over from no writer that is there. What it has begun ends
/// with a certificate, whatever becomes of the peer: a step that fails is NotProved, with the
/// reason.
///
/// Requires  the pool holds nothing that anybody wants.
/// Errors    those of Peer::open_session for the first session; InvalidArgument (the pool is too
///           small).
/// Cost      a few seconds; more where a take-over of the pool takes that long.
Result<Certificate> certify(Peer& peer, const CertifyOptions& options);

}  // namespace perdure::client
