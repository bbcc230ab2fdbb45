// A mirror at work: what its replicas have answered, and how far its updates are. How updates are
// sent is in replicated_mirror_send.cc, how replicas come back in replicated_mirror_resync.cc.
#include "mirror/replicated_mirror.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/random.h"
#include "core/rpmem_family.h"
#include "core/try.h"

namespace perdure::mirror {

ReplicatedMirror::ReplicatedMirror(pmem::Region& local, const MirrorOptions& options,
                                   const Clock& clock, const LocalStateFile& local_state)
    : local_(local),
      local_state_(local_state),
      options_(options),
      clock_(clock),
      bytes_(local.bytes().size()),
      staging_(options.staging_bytes),
      copies_(client::kUpdatesMax * kCopyPages * kPageBytes),
      landing_(kLandingBytes),
      buffers_{local_, staging_.memory(), copies_, landing_, local_.bytes()},
      writer_(random_secret()) {}

ReplicatedMirror::~ReplicatedMirror() = default;

std::size_t ReplicatedMirror::in_sync() const {
  return static_cast<std::size_t>(std::count_if(
      replicas_.begin(), replicas_.end(),
      [](const Replica& replica) { return replica.state == MirrorReplicaState::InSync; }));
}

std::optional<Error> ReplicatedMirror::trouble() const {
  if (in_sync() >= quorum_) return std::nullopt;
  for (const Replica& replica : replicas_) {
    const auto& reason = replica.down_reason;
    if (!replica.connection && reason && reason->code == ErrorCode::Fenced) return *reason;
  }
  Error error = too_few(name());
  error.code = ErrorCode::QuorumLost;
  return error;
}

bool ReplicatedMirror::busy() const {
  return std::any_of(replicas_.begin(), replicas_.end(), [](const Replica& replica) {
    return replica.connection &&
           (replica.state != MirrorReplicaState::InSync || !replica.flights.empty());
  });
}

bool ReplicatedMirror::progress() {
  (void)check_local();  // whoever waits hears of it, and not that replicas were cut off for it
  bool came = false;
  for (Replica& replica : replicas_) {
    if (replica.connection) came = harvest(replica) || came;
  }
  for (Replica& replica : replicas_) {
    if (replica.connection) came = advance(replica) || came;
  }
  next_generation();
  note_committed();
  return came;
}

/// Takes answers. Says whether something has resolved.
bool ReplicatedMirror::harvest(Replica& replica) {
  client::DurableSession& session = replica.connection->session();
  session.poll();
  bool came = false;
  while (!replica.flights.empty() && session.has_resolved(replica.flights.front().number)) {
    Flight flight = std::move(replica.flights.front());
    replica.flights.pop_front();
    came = true;
    if (const auto done = resolve(replica, flight); !done.ok()) {
      replica.flights.push_front(std::move(flight));  // it may be there or not
      lose(replica, done.error());
      return came;
    }
  }
  if (!session.up()) lose(replica, *session.down_reason());
  return came;
}

/// Errors: the replica refused what it can not do without.
Result<void> ReplicatedMirror::resolve(Replica& replica, const Flight& flight) {
  switch (flight.kind) {
    case Flight::Kind::Update: replica.resolved = flight.update; return {};
    case Flight::Kind::Word: {
      PERDURE_TRY_VOID(replica.connection->session().value_before(flight.number));
      replica.resolved = flight.update;
      return {};
    }
    case Flight::Kind::Deep: {
      replica.resolved = flight.update;
      const auto answered = replica.connection->session().reply_bytes(flight.number);
      if (answered.ok()) {
        replica.deep = flight.update;
      } else {
        replica.not_deep = answered.error();
      }
      return {};
    }
    case Flight::Kind::Copy: replica.copied_bytes += flight.range.length; return {};
    case Flight::Kind::Digests: return note_digests(replica, flight);
  }
  return {};
}

/// What is durable on all that are in sync, if those are enough and nothing else is to come first.
void ReplicatedMirror::note_committed() {
  std::uint64_t everywhere = begun_;
  std::uint64_t in_sync = begun_;
  for (const Replica& replica : replicas_) {
    if (replica.live) everywhere = std::min(everywhere, replica.resolved);
    if (replica.state == MirrorReplicaState::InSync) in_sync = std::min(in_sync, replica.resolved);
  }
  staging_.release(everywhere);
  if (generation_over_ || this->in_sync() < quorum_) return;
  established_ = true;
  committed_ = std::max(committed_, in_sync);
}

void ReplicatedMirror::rest(Nanoseconds since, Nanoseconds slice) {
  if (clock_.now() - since < options_.spin) return;
  std::vector<fabric::Endpoint*> endpoints;
  for (Replica& replica : replicas_) {
    // One that has just gone down has none, until it is lost.
    if (!replica.connection || !replica.connection->session().up()) continue;
    endpoints.push_back(replica.connection->session().endpoint());
  }
  fabric::wait_any(endpoints, std::min(slice, kRestSlice));
  for (Replica& replica : replicas_) {
    if (replica.connection) replica.connection->session().check_timeout();
  }
}

Result<bool> ReplicatedMirror::is_deep(const MirrorTicket& ticket) const {
  // Of an earlier one it is not known any more: it is said of that, too.
  if (local_not_deep_ && ticket.number <= local_not_deep_->last) return local_not_deep_->why;
  bool deep = in_sync() >= quorum_;  // else those that have it deep are too few, or none
  for (const Replica& replica : replicas_) {
    if (replica.state != MirrorReplicaState::InSync) continue;
    if (replica.not_deep) return *replica.not_deep;
    deep = deep && ticket.number >= replica.deep_from && ticket.number <= replica.deep;
  }
  return deep;
}

Result<void> ReplicatedMirror::wait(const MirrorTicket& ticket, Nanoseconds timeout) {
  if (ticket.number > begun()) {
    return Error{ErrorCode::InvalidArgument, "the ticket is of another mirror"};
  }
  const Deadline deadline(clock_, timeout);
  if (const auto sent = begin_gathered(); !sent.ok()) {
    const bool full = sent.code() == ErrorCode::QueueFull;
    return full ? Error{ErrorCode::TimedOut, sent.error().message} : sent.error();
  }
  const Nanoseconds since = clock_.now();
  for (;;) {
    const bool came = progress();
    if (reached(ticket)) return {};
    bring_back(deadline);
    if (auto why = trouble()) {
      const bool none = std::none_of(replicas_.begin(), replicas_.end(), [](const Replica& each) {
        return each.connection != nullptr;
      });
      if (none || why->code == ErrorCode::Fenced) return *why;
    }
    if (deadline.passed()) {
      if (auto why = trouble()) return *why;
      return Error{ErrorCode::TimedOut,
                   fmt::format("update {} is not durable on the quorum yet", ticket.number)};
    }
    if (!came) rest(since, deadline.left());
  }
}

Result<void> ReplicatedMirror::read(std::uint64_t at, std::span<std::byte> into,
                                    std::size_t which) {
  if (into.size() > bytes_ || at > bytes_ - into.size()) {
    return Error{
        ErrorCode::OutOfRange,
        fmt::format("bytes {}+{} lie outside the {} that are mirrored", at, into.size(), bytes_)};
  }
  if (which == Mirror::kAny) {
    const auto found = std::find_if(replicas_.begin(), replicas_.end(), [](const Replica& each) {
      return each.state == MirrorReplicaState::InSync;
    });
    which = static_cast<std::size_t>(found - replicas_.begin());
    if (found == replicas_.end()) {
      return Error{ErrorCode::Disconnected, fmt::format("{} has no replica in sync", name())};
    }
  }
  if (which >= replicas_.size()) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("replica {} of {}", which, replicas_.size())};
  }
  Replica& replica = replicas_[which];
  const Nanoseconds since = clock_.now();
  while (!into.empty()) {
    while (replica.live && replica.connection->session().in_flight() == client::kUpdatesMax) {
      if (deadline_ && deadline_->passed()) return Error{ErrorCode::Disconnected, "it is closed"};
      harvest(replica);
      rest(since, kRestSlice);
    }
    if (replica.state != MirrorReplicaState::InSync) {
      return Error{ErrorCode::Disconnected, fmt::format("{} is not in sync", replica.peer->name())};
    }
    const std::size_t bytes = std::min(into.size(), kLandingBytes);
    auto number = replica.connection->session().read(
        kDataAt + at, {landing_.data(), bytes, replica.connection->landing()});
    if (!number.ok()) return Error{ErrorCode::Disconnected, number.error().message};
    if (auto came = replica.connection->await(*number, deadline_); !came) {
      lose(replica, came.error());
      return Error{ErrorCode::Disconnected, replica.down_reason->message};
    }
    harvest(replica);
    std::memcpy(into.data(), landing_.data(), bytes);
    at += bytes;
    into = into.subspan(bytes);
  }
  return {};
}

void ReplicatedMirror::set_deadline(const Deadline& deadline) {
  deadline_ = deadline;
  for (Replica& replica : replicas_) {
    if (replica.connection) replica.connection->session().set_deadline(deadline_);
  }
}

Result<void> ReplicatedMirror::close(Nanoseconds timeout) {
  const Deadline deadline(clock_, timeout);
  set_deadline(deadline);
  waits_for_room_ = true;
  auto drained = wait({begun()}, timeout);
  for (Replica& replica : replicas_) {
    if (replica.state != MirrorReplicaState::InSync || !drained.ok()) continue;
    (void)write_state(replica, true, true);
  }
  if (drained.ok() && in_sync() < quorum_) drained = *trouble();
  auto to_ask = static_cast<Nanoseconds::rep>(replicas_.size());
  for (Replica& replica : replicas_) {
    const Nanoseconds within = deadline.left() / to_ask--;
    if (replica.connection) replica.connection->session().give_back(Deadline(clock_, within));
    replica.connection.reset();
    replica.live = false;
    replica.state = MirrorReplicaState::Lost;
  }
  return drained;
}

MirrorStatus ReplicatedMirror::status() const {
  MirrorStatus status;
  status.epoch = epoch_;
  status.generation = generation_count_;
  status.bytes = bytes_;
  status.quorum = quorum_;
  status.in_sync = in_sync();
  status.begun = begun();
  status.committed = committed_;
  for (const Replica& replica : replicas_) {
    MirrorReplicaStatus each;
    each.peer = replica.peer->name();
    each.pool_uuid = replica.uuid;
    each.state = replica.state;
    if (replica.down_reason) each.down_reason = replica.down_reason->message;
    each.compared = std::min(replica.compared, bytes_);
    each.dirty_bytes = std::min(replica.dirty.count() * kPageBytes, bytes_);
    each.copied_bytes = replica.copied_bytes;
    each.returned = replica.returned;
    if (replica.connection && replica.connection->session().up()) {
      const client::DurableSession& session = replica.connection->session();
      each.profile = session.connection().pool.profile;
      each.small_method = session.small_place_method().name;
      each.large_method = session.large_place_method().name;
      each.small_family = rpmem_family(session.small_place_method());
      each.large_family = rpmem_family(session.large_place_method());
    }
    status.replicas.push_back(std::move(each));
  }
  return status;
}

}  // namespace perdure::mirror
