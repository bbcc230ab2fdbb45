// Opening a region: whose pools they are, who may write, and what is known of how they differ.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "client/remote_bytes.h"
#include "client/writer_name.h"
#include "core/assert.h"
#include "core/bytes.h"
#include "core/epoch.h"
#include "core/random.h"
#include "core/try.h"
#include "persist/ordered.h"
#include "region/replicated_region.h"

namespace perdure::region {
namespace {

Result<void> validate(const RegionOptions& options, std::size_t peers) {
  if (peers == 0 || peers > kReplicasMax || options.quorum > peers) {
    return Error{
        ErrorCode::InvalidArgument,
        fmt::format("a quorum of {} with {} peers; there must be 1 to {} peers and no more "
                    "needed than there are",
                    options.quorum, peers, kReplicasMax)};
  }
  if (options.level == Level::Visible && options.reconnect > std::chrono::milliseconds(0)) {
    return Error{ErrorCode::InvalidArgument,
                 "a peer of a region for visible may have lost what was resolved there, so none is "
                 "brought back: leave reconnect at 0, or open it for durable"};
  }
  if (options.level != Level::Visible && options.level != Level::Durable) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("level '{}'; a region is opened for visible or durable",
                             to_string(options.level))};
  }
  constexpr std::uint64_t kStagingMax = std::uint64_t{1} << 40;
  if (options.staging_bytes < kCacheLineBytes || options.staging_bytes > kStagingMax) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("staging_bytes is {}; it takes {} to {}", options.staging_bytes,
                             kCacheLineBytes, kStagingMax)};
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<ReplicatedRegion>> ReplicatedRegion::open(
    std::vector<std::unique_ptr<client::Peer>> peers, const RegionOptions& options,
    const Clock& clock, bool threads) {
  PERDURE_TRY_VOID(validate(options, peers.size()));
  std::unique_ptr<ReplicatedRegion> region(new ReplicatedRegion(options, clock, threads));
  region->replicas_.reserve(peers.size());  // a replica does not move once it is connected
  for (auto& peer : peers) {
    region->replicas_.emplace_back(std::move(peer), region->session_options());
  }
  PERDURE_TRY_VOID(region->ask_pools());
  PERDURE_TRY_VOID(region->look());
  PERDURE_TRY(exists, region->find_region());
  if (exists) PERDURE_TRY_VOID(region->check_members());
  PERDURE_TRY_VOID(region->open_sessions(exists ? region->quorum_ : region->replicas_.size()));
  if (!exists) {
    region->header_ =
        RegionHeader{static_cast<std::uint32_t>(region->replicas_.size()),
                     static_cast<std::uint32_t>(region->quorum_), random_secret(), region->bytes_};
    for (Replica& replica : region->replicas_) {
      replica.start.header = region->header_;
      PERDURE_TRY_VOID(region->claim(replica));
    }
  }
  PERDURE_TRY_VOID(region->begin_session());
  return region;
}

client::DurableSessionOptions ReplicatedRegion::session_options() const {
  client::DurableSessionOptions session;
  session.primary = options_.primary;
  session.level = options_.level;
  session.measure_costs = options_.measure_costs;
  session.requests_in_flight = client::kUpdatesMax;
  session.probe_line = kProbeLineAt;
  session.ranges_again = true;
  session.request_bytes_max = persist::kOrderedBytesMax;
  session.timeout = options_.peer_timeout;
  session.reconnect = options_.reconnect;
  session.clock = &clock_;
  return session;
}

/// Too few replicas came along: the first reason that is not only silence, and all of them in
/// words.
Error ReplicatedRegion::too_few(const std::string& doing) const {
  ErrorCode code = ErrorCode::QuorumLost;
  std::string reasons;
  for (const Replica& replica : replicas_) {
    const auto& reason = replica.session.down_reason();
    if (!reason) continue;
    reasons += fmt::format("; {}: {}", replica.session.peer().name(), reason->message);
    const bool silence = reason->code == ErrorCode::Disconnected ||
                         reason->code == ErrorCode::TimedOut ||
                         reason->code == ErrorCode::OutcomeUnknown;
    if (code == ErrorCode::QuorumLost && !silence) code = reason->code;
  }
  return Error{code, fmt::format("{}: fewer than {} of {} replicas can be used{}", doing, quorum_,
                                 replicas_.size(), reasons)};
}

/// Which pools the peers have. Changes nothing there.
Result<void> ReplicatedRegion::ask_pools() {
  for (Replica& replica : replicas_) {
    client::Peer& peer = replica.session.peer();
    const auto pool = peer.describe(options_.pool, Deadline(clock_, options_.peer_timeout));
    if (!pool.ok()) {
      replica.session.mark_down(pool.error());
      continue;
    }
    for (const Replica& other : replicas_) {
      if (pool->uuid.empty() || other.uuid != pool->uuid) continue;
      return Error{ErrorCode::InvalidArgument,
                   fmt::format("{} and {} are one pool ({}); a replica counts once",
                               other.session.peer().name(), peer.name(), pool->uuid)};
    }
    replica.uuid = pool->uuid;
    epoch_ = std::max(epoch_, pool->epoch);
    if (!pool->writer_present || options_.take_over) continue;
    return Error{ErrorCode::Busy,
                 fmt::format("pool '{}' on {} is being written by '{}' of epoch {}; wait for it to "
                             "end, or ask to take over",
                             options_.pool, peer.name(), pool->writer_name, pool->epoch.value)};
  }
  return {};
}

/// Reads what every pool says of its region, before any writer is disturbed.
Result<void> ReplicatedRegion::look() {
  for (Replica& replica : replicas_) {
    if (replica.session.down_reason()) continue;
    client::Peer& peer = replica.session.peer();
    auto reader =
        client::RemoteBytes::open_for_writer(peer, options_.pool, options_.peer_timeout, clock_);
    if (!reader.ok()) {
      replica.session.mark_down(reader.error());
      continue;
    }
    const std::uint64_t size = (*reader)->size();
    if (size <= kDataAt) {
      replica.session.mark_down(
          {ErrorCode::InvalidArgument,
           fmt::format("its pool has {} bytes; a region takes more than {}", size, kDataAt)});
      continue;
    }
    replica.bytes = size - kDataAt;
    replica.start_bytes.resize(kDataAt);
    if (auto read = (*reader)->read(0, replica.start_bytes); !read) {
      replica.session.mark_down(read.error());
      continue;
    }
    auto start = decode_start(replica.start_bytes);
    if (!start.ok()) {
      return Error{start.code(), fmt::format("pool '{}' on {}: {}", options_.pool, peer.name(),
                                             start.error().message)};
    }
    replica.start = std::move(start).value();
    const auto can = replica.session.check_methods((*reader)->session(), true);
    if (!can.ok()) replica.unfit = can.error();
  }
  return {};
}

/// Whether there is a region. One that was never opened is made again.
Result<bool> ReplicatedRegion::find_region() {
  const Replica* one = nullptr;
  bool all_answer = true;
  for (const Replica& replica : replicas_) {
    all_answer = all_answer && !replica.session.down_reason();
    if (!replica.session.down_reason() && replica.start.state != ReplicaState{}) one = &replica;
  }
  if (one != nullptr) {
    quorum_ = one->start.header->quorum;
    return true;
  }
  quorum_ = replicas_.size();
  if (!all_answer) {
    return too_few(
        fmt::format("{} was not found, and to create one all its peers are needed", name()));
  }
  if (!options_.create) {
    return Error{
        ErrorCode::NotFound,
        fmt::format("no region was ever created in pool '{}' on any of the peers", options_.pool)};
  }
  quorum_ = options_.quorum == 0 ? replicas_.size() : options_.quorum;
  const auto has_less = [](const Replica& left, const Replica& right) {
    return left.bytes < right.bytes;
  };
  bytes_ = std::min_element(replicas_.begin(), replicas_.end(), has_less)->bytes;
  return false;
}

/// All that answer must be of one region, and this. What it is does not depend on who answers.
Result<void> ReplicatedRegion::check_members() {
  std::optional<RegionHeader> header;
  for (Replica& replica : replicas_) {
    if (replica.session.down_reason()) continue;
    if (!replica.start.header) {
      replica.session.mark_down(
          {ErrorCode::InvalidArgument,
           "its pool holds nothing, and the others hold a region: it was replaced; opening brings "
           "no replicas to equal, RegionOptions::reconnect does"});
      continue;
    }
    if (!header) header = replica.start.header;
    if (*header == *replica.start.header) continue;
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("pool '{}' on {} holds another region than on the other peers; name "
                             "the peers of one region",
                             options_.pool, replica.session.peer().name())};
  }
  if (header->replicas != replicas_.size() ||
      (options_.quorum != 0 && options_.quorum != quorum_)) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("{} has {} replicas and a quorum of {}, not {} and {}", name(),
                             header->replicas, quorum_, replicas_.size(),
                             options_.quorum == 0 ? quorum_ : options_.quorum)};
  }
  bytes_ = header->bytes;
  header_ = *header;
  for (Replica& replica : replicas_) {
    if (replica.session.down_reason() || replica.bytes >= bytes_) continue;
    replica.session.mark_down(
        {ErrorCode::InvalidArgument,
         fmt::format("its pool has room for {} bytes of a region of {}: it was replaced by a "
                     "smaller one; use one of at least {} bytes",
                     replica.bytes, bytes_, bytes_ + kDataAt)});
  }
  return {};
}

/// Replicas that nothing speaks against so far.
std::size_t ReplicatedRegion::reachable() const {
  return static_cast<std::size_t>(
      std::count_if(replicas_.begin(), replicas_.end(),
                    [](const Replica& replica) { return !replica.session.down_reason(); }));
}

/// In the order of UUIDs, so that two who open at once meet at the first. Whoever can not succeed
/// fences nobody: fewer than `needed` can be used.
Result<void> ReplicatedRegion::open_sessions(std::size_t needed) {
  for (Replica& replica : replicas_) {
    if (replica.unfit && !replica.session.down_reason()) replica.session.mark_down(*replica.unfit);
  }
  if (reachable() < needed) return too_few(fmt::format("opening {}", name()));
  if (epoch_ >= kEpochMax) {
    return Error{ErrorCode::Unsupported,
                 fmt::format("{} has come to epoch {}, and they end there", name(), epoch_.value)};
  }
  ++epoch_.value;
  std::vector<std::size_t> order(replicas_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t one, std::size_t other) {
    return replicas_[one].uuid < replicas_[other].uuid;
  });
  for (const std::size_t index : order) {
    Replica& replica = replicas_[index];
    if (replica.session.down_reason()) continue;
    auto opened = open_session(replica);
    if (opened.ok()) continue;
    // Another writer is there: do not go on to disturb it elsewhere.
    if (opened.code() == ErrorCode::Busy || opened.code() == ErrorCode::Fenced) return opened;
    replica.session.mark_down(opened.error());
  }
  return check_opened();
}

/// Whether its pool, of this UUID, was found to hold this region.
bool ReplicatedRegion::was_seen(const Replica& replica) const {
  return replica.joined || (!replica.start_bytes.empty() && replica.start.header == header_);
}

/// `seen`: or it was looked at a moment ago, as the region is being opened.
ReplicatedRegion::Known ReplicatedRegion::known_beside(const Replica& replica, bool seen) const {
  Known known{replica.uuid, seen, {}};
  for (const Replica& other : replicas_) {
    if (&other != &replica) known.others.emplace_back(other.session.peer().name(), other.uuid);
  }
  return known;
}

/// That it is a pool of its own.
Result<void> ReplicatedRegion::check_apart(const std::string& uuid, const Known& known) {
  for (const auto& [peer, other] : known.others) {
    if (other != uuid) continue;
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("it is the same pool as {} ({}); a replica counts once", peer, uuid)};
  }
  return {};
}

/// Whether a pool that this writer has not joined with holds this region, or nothing. Disturbs
/// nobody. Looks at nothing that changes while the region is open. Errors: also InvalidArgument: it
/// holds something else.
Result<bool> ReplicatedRegion::check_content(client::Peer& peer, const Deadline& within) const {
  PERDURE_TRY(reader, client::RemoteBytes::open_for_writer(peer, options_.pool,
                                                           options_.peer_timeout, clock_, within));
  if (reader->size() <= kDataAt) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("the pool in its place has {} bytes; a region takes more than {}",
                             reader->size(), kDataAt)};
  }
  std::vector<std::byte> bytes(kDataAt);
  PERDURE_TRY_VOID(reader->read(0, bytes));
  PERDURE_TRY(start, decode_start(bytes));
  if (!start.header) return false;
  if (*start.header == header_) return true;
  return Error{ErrorCode::InvalidArgument, "the pool in its place holds another region"};
}

/// Asks for the pool, that may be a replica and where nobody has fenced us; opens a session,
/// registers what its updates lie in, and measures and plans it. `until` is asked before each step.
/// Looks at nothing that changes while the region is open.
Result<ReplicatedRegion::Connected> ReplicatedRegion::connect(
    client::DurableSession successor, const Known& known, const std::function<Deadline()>& until) {
  Connected connected{{}, {}, {}, {}, std::move(successor)};
  client::DurableSession& session = connected.session;
  session.set_deadline(until());
  PERDURE_TRY(pool, session.peer().describe(options_.pool, session.deadline()));
  PERDURE_TRY_VOID(check_apart(pool.uuid, known));
  bool ours = known.seen && pool.uuid == known.own;
  if (!ours) {
    PERDURE_TRY(holds_it, check_content(session.peer(), until()));
    ours = holds_it;
  }
  if (pool.epoch > epoch_) {
    if (ours && (known.own.empty() || pool.uuid == known.own)) return taken_over(pool);
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("another pool is in its place ({}), of writer '{}' with epoch {}",
                             pool.uuid, pool.writer_name, pool.epoch.value)};
  }
  connected.uuid = pool.uuid;
  control::SessionRequest request;
  request.pool = options_.pool;
  request.write = true;
  request.epoch = epoch_;
  request.writer = writer_;
  request.writer_name = options_.writer_name.empty() ? client::this_writer() : options_.writer_name;
  request.take_over = options_.take_over && ours;
  session.set_deadline(until());
  PERDURE_TRY_VOID(session.open(request));
  if (session.connection().pool.uuid != connected.uuid) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("{} has another pool '{}' now than a moment ago",
                             session.peer().name(), options_.pool)};
  }
  PERDURE_TRY(staging, session.register_memory(staging_.memory()));
  connected.staging = std::move(staging);
  PERDURE_TRY(landing, session.register_memory({landing_.get(), kLandingBytes}));
  connected.landing = std::move(landing);
  PERDURE_TRY(copying, session.register_memory({copying_.get(), kLandingBytes}));
  connected.copying = std::move(copying);
  session.set_deadline(until());
  PERDURE_TRY_VOID(session.prepare(true));
  return connected;
}

void ReplicatedRegion::go_on_over(Replica& replica, Connected connected) {
  replica.session.go_on_as(std::move(connected.session));
  replica.session.set_deadline(std::nullopt);
  replica.staging = std::move(connected.staging);
  replica.landing = std::move(connected.landing);
  replica.copying = std::move(connected.copying);
}

Result<void> ReplicatedRegion::open_session(Replica& replica) {
  client::DurableSession& session = replica.session;
  PERDURE_TRY(connected, connect(session.successor(), known_beside(replica, true),
                                 [&] { return Deadline(clock_, options_.peer_timeout); }));
  if (connected.uuid != replica.uuid) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("{} has another pool '{}' now than a moment ago",
                             session.peer().name(), options_.pool)};
  }
  go_on_over(replica, std::move(connected));
  // Nobody else writes from here on; but somebody may have, since it was looked at.
  PERDURE_TRY(read, session.read(0, {landing_.get(), kDataAt, replica.landing.get()}));
  PERDURE_TRY_VOID(await(replica, read));
  if (std::equal(replica.start_bytes.begin(), replica.start_bytes.end(), landing_.get())) return {};
  return Error{ErrorCode::Busy,
               fmt::format("pool '{}' on {} was changed by another writer just now; open it again",
                           options_.pool, session.peer().name())};
}

/// Says in a blank pool whose it is: the magic last, the copy first. Nothing of the user's is
/// there.
Result<void> ReplicatedRegion::claim(Replica& replica) {
  const HeaderBytes header = encode_header(*replica.start.header);
  const std::span<const std::byte> bytes(header);
  for (auto at = kHeadersAt.rbegin(); at != kHeadersAt.rend(); ++at) {
    PERDURE_TRY_VOID(write_own(replica, *at, std::array<std::byte, kMagicBytes>{}));
    PERDURE_TRY_VOID(write_own(replica, *at + kMagicBytes, bytes.subspan(kMagicBytes)));
    PERDURE_TRY_VOID(write_own(replica, *at, bytes.first(kMagicBytes)));
  }
  return {};
}

/// Every session writes its epoch to a quorum before anything else, so where a quorum is more than
/// half, whoever opens next finds the newest, unless it is among the words that are damaged.
Result<void> ReplicatedRegion::begin_session() {
  Epoch newest;
  std::size_t legible = 0;
  for (const Replica& replica : replicas_) {
    if (!replica.session.up() || !replica.start.state) continue;
    ++legible;
    newest = std::max(newest, replica.start.state->epoch);
  }
  const bool known = legible + quorum_ > replicas_.size() && may_know();
  for (Replica& replica : replicas_) {
    if (!replica.session.up()) continue;
    const auto& state = replica.start.state;
    const bool ended_well = newest == Epoch{} || (state && state->closed && state->whole);
    const bool was_whole = state && state->epoch == newest && ended_well;
    const bool all_there_is = replicas_.size() == 1 && state && (state->whole || was_whole);
    replica.whole = all_there_is || (known && was_whole);
    replica.mixed = replica.mixed_before = replica.start.mixed;
    if (auto written = write_state(replica, false); !written) {
      if (replica.session.up()) replica.session.mark_down(written.error());
    }
    replica.joined = replica.session.up();
  }
  return check_opened();
}

Result<void> ReplicatedRegion::check_opened() {
  if (up() >= quorum_) return {};
  if (find_newer_writer()) return *fenced_;
  return too_few(fmt::format("opening {}", name()));
}

/// What a region says of itself is durable, whatever level its updates are for.
Result<void> ReplicatedRegion::write_own(Replica& replica, std::uint64_t at,
                                         std::span<const std::byte> bytes) {
  if (options_.level == Level::Durable) return replica.session.write_now(at, bytes);
  for (; !bytes.empty(); bytes = bytes.subspan(persist::kAtomicBytes)) {
    PERDURE_TRY_VOID(replica.session.store_now(at, load<std::uint64_t>(bytes.data())));
    at += persist::kAtomicBytes;
  }
  return {};
}

/// A session for visible may lose what it reports as soon as it writes.
Result<void> ReplicatedRegion::write_state(Replica& replica, bool closed) {
  const bool kept = closed || options_.level == Level::Durable;
  const std::uint64_t word = encode_state({epoch_, closed, replica.whole && kept});
  for (const std::uint64_t at : kStateWordsAt) {
    PERDURE_TRY_VOID(write_own(replica, at, bytes_of(word)));
  }
  return {};
}

}  // namespace perdure::region
