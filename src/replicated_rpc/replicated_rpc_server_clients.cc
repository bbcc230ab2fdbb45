// Which clients there are, and what those have left that are away.
#include "replicated_rpc/replicated_rpc_server.h"

#include <algorithm>
#include <iterator>

#include "core/backoff.h"
#include "core/try.h"

namespace perdure {

namespace {
/// A peer is asked which clients there are, one peer after the other.
constexpr Nanoseconds kLookForClientsEvery = std::chrono::milliseconds(100);
}  // namespace

/// Whoever has called once keeps its place, whatever becomes of its pools.
bool ReplicatedRpcServer::State::has_place_for(const std::string& name) const {
  const auto& places = effects_.places();
  if (calls_.count(name) != 0 || places.count(name) != 0) return true;
  std::size_t taken = places.size();
  for (const auto& [other, calls] : calls_) taken += places.count(other) == 0 ? 1 : 0;
  return taken < effects_.sizes()->clients_max;
}

/// All peers in turn: a pool of a client is on each of them, but for one that was replaced.
void ReplicatedRpcServer::State::look_for_clients() {
  const Nanoseconds now = Clock::monotonic().now();
  if (now < look_again_) return;
  look_again_ = now + kLookForClientsEvery;
  const auto& peers = options_.group.peers;
  const auto within = std::min(options_.group.peer_timeout, std::chrono::milliseconds(1000));
  const std::string& peer = peers[next_peer_++ % peers.size()];
  const auto pools = list_pools(peer, within);
  if (!pools.ok()) {
    // One that has stopped does not hold up each turn.
    const Nanoseconds later = Clock::monotonic().now();
    look_again_ = later + Backoff::kTimesWhatATryTook * (later - now);
    return;
  }
  answered_.insert(peer);
  forget_who_has_gone(peer, *pools);
  for (const PoolDescription& pool : *pools) {
    const auto name = replicated_rpc::client_of(options_.group.service, pool.name);
    if (!name || pool.epoch.value == 0) continue;
    if (!has_place_for(*name)) continue;
    const auto [place, found_now] = calls_.try_emplace(*name);
    Calls& calls = place->second;
    if (found_now) calls.careful = careful_;
    std::string& uuid = calls.pools[peer];
    if (!uuid.empty() && uuid != pool.uuid) {
      const bool careful = calls.careful;
      calls = Calls{};  // nothing of the old pool is about it
      calls.careful = careful;
    }
    calls.pools[peer] = pool.uuid;
    calls.listed_by.insert(peer);
    const bool known = pool.epoch <= calls.resolved;
    if (!pool.writer_present && !known && now >= calls.resolve_again) {
      (void)resolve(*name, calls);  // else it is tried again
    }
  }
}

/// Names whose pools are on no peer any more, and that have never called, take no place.
void ReplicatedRpcServer::State::forget_who_has_gone(const std::string& peer,
                                                     const std::vector<PoolDescription>& pools) {
  for (auto each = calls_.begin(); each != calls_.end();) {
    auto& [name, calls] = *each;
    const std::string pool = replicated_rpc::calls_pool(options_.group.service, name);
    const bool there =
        std::any_of(pools.begin(), pools.end(), [&](const auto& one) { return one.name == pool; });
    const bool was_last = !there && calls.listed_by.erase(peer) != 0 && calls.listed_by.empty();
    const bool has_place = effects_.places().count(name) != 0;
    each = was_last && !has_place ? calls_.erase(each) : std::next(each);
  }
}

/// Its client is away. What it has left at the end of its log may be committed, and no reader know
/// it: whoever opens the log decides that, for readers too. A client that is there is left alone.
Result<void> ReplicatedRpcServer::State::resolve(const std::string& name, Calls& calls) {
  calls.resolve_again = Clock::monotonic().now() + replicated_rpc::kCallsAgainAfter;
  const std::string pool = replicated_rpc::calls_pool(options_.group.service, name);
  LogOptions options = replicated_rpc::log_options(options_.group, pool);
  options.writer_name = "the server of calls, for a client that is away";
  auto opened = Log::open(options);
  for (const auto& [which, peer] : replaced_) {
    // A peer that has a pool already, and is no replica yet, can not be named.
    if (opened.ok() || opened.code() != ErrorCode::InvalidArgument) break;
    options.peers = options_.group.peers;
    std::replace(options.peers.begin(), options.peers.end(), peer, which);
    opened = Log::open(options);
  }
  PERDURE_TRY(log, std::move(opened));
  const Epoch epoch = log.status().epoch;
  // Not what close() says: with a peer that is lost it never has told everybody.
  PERDURE_TRY_VOID(replicated_rpc::read_all(options_.group, log, pool,
                                            [](const Record&) { return Result<void>{}; }));
  for (const auto& [which, peer] : replaced_) {
    const auto replaced = replicated_rpc::replace_in(options_.group, log, pool, which, peer);
    // This log has another one of those that `peer` is in the place of.
    if (!replaced.ok() && replaced.code() != ErrorCode::NotFound) return replaced.error();
  }
  calls.resolved = epoch;
  (void)log.close();
  return {};
}

}  // namespace perdure
