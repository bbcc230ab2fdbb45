// How replicas are lost and come back: compared, copied to, marked; and how generations follow one
// another.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/assert.h"
#include "core/log_message.h"
#include "core/random.h"
#include "core/try.h"
#include "core/unordered_reads.h"
#include "mirror/replicated_mirror.h"

namespace perdure::mirror {
namespace {

// Of a session's requests, those that bring a replica on: the others are left to updates.
constexpr std::size_t kBackgroundMax = 8;
constexpr Nanoseconds kMarkSlice = std::chrono::milliseconds(1);
constexpr std::uint64_t kDigestBytesEach = persist::kDigestPagesMax * persist::kDigestPageBytes;
static_assert(persist::kDigestPageBytes == kPageBytes);

}  // namespace

std::uint64_t ReplicatedMirror::page_bytes(std::uint64_t page, std::uint64_t pages) const {
  return std::min(pages * kPageBytes, bytes_ - page * kPageBytes);
}

/// What was in flight may be there or not: its pages are dirty. A replica that counted takes its
/// generation with it.
void ReplicatedMirror::lose(Replica& replica, Error why) {
  for (const Flight& flight : replica.flights) {
    using Kind = Flight::Kind;
    if (flight.kind == Kind::Deep || flight.kind == Kind::Digests) continue;
    replica.dirty.mark(flight.range.at, flight.range.length);
    for (const MirrorRange& range : flight.more) replica.dirty.mark(range.at, range.length);
  }
  replica.flights.clear();
  replica.connection.reset();
  replica.live = false;
  generation_over_ = generation_over_ || replica.current;
  replica.current = false;
  replica.state = MirrorReplicaState::Lost;
  replica.down_reason = std::move(why);
  replica.backoff.failed(clock_.now());
}

std::optional<std::size_t> ReplicatedMirror::due() const {
  if (local_failure_) return std::nullopt;  // there is nothing that it could be brought to
  const Nanoseconds now = clock_.now();
  const auto found = std::find_if(replicas_.begin(), replicas_.end(), [&](const Replica& each) {
    return !each.connection && each.backoff.due(now);
  });
  if (found == replicas_.end()) return std::nullopt;
  return static_cast<std::size_t>(found - replicas_.begin());
}

void ReplicatedMirror::bring_back(const std::optional<Deadline>& until) {
  const StoppableClock steps(clock_, until);
  for (std::size_t tried = 0; tried < replicas_.size(); ++tried) {
    const auto replica = due();
    if (!replica) return;
    adopt(*replica, connect(*replica, steps));
  }
}

control::SessionRequest ReplicatedMirror::session_request() const {
  control::SessionRequest request;
  request.pool = options_.pool;
  request.write = true;
  request.epoch = epoch_;
  request.writer = writer_;
  request.writer_name = options_.writer_name;
  request.take_over = options_.take_over;
  return request;
}

Result<std::unique_ptr<Connection>> ReplicatedMirror::connect(std::size_t replica,
                                                              const StoppableClock& steps) const {
  return Connection::connect(replicas_[replica].peer, session_request(), options_, buffers_, clock_,
                             steps);
}

/// A replica is there again. Which pages it may not have is known if nobody else wrote to its pool;
/// else all are compared.
void ReplicatedMirror::adopt(std::size_t index, Result<std::unique_ptr<Connection>> connection) {
  Replica& replica = replicas_[index];
  PERDURE_ASSERT(!replica.connection);
  if (!connection.ok()) {
    replica.down_reason = connection.error();
    replica.backoff.failed(clock_.now());
    return;
  }
  replica.connection = std::move(*connection);
  replica.connection->session().set_deadline(deadline_);
  const ReplicaStart& start = replica.connection->start();
  if (replica.connection->room() < bytes_) {
    return refuse(replica,
                  {ErrorCode::InvalidArgument,
                   fmt::format("its pool has room for {} bytes of a mirror of {}; use one of at "
                               "least {} bytes",
                               replica.connection->room(), bytes_, bytes_ + kDataAt)});
  }
  if (start.header && *start.header != *header_) {
    return refuse(replica, {ErrorCode::InvalidArgument, "its pool holds another mirror now"});
  }
  const bool blank = !start.header;
  if (blank && !claim(replica)) return;
  const bool as_left = !blank && start.state && replica.on_medium &&
                       *start.state == *replica.on_medium &&
                       replica.uuid == replica.connection->pool_uuid();
  replica.uuid = replica.connection->pool_uuid();
  replica.knows_dirty = replica.knows_dirty && as_left;
  replica.compared = replica.knows_dirty ? bytes_ : 0;
  replica.key = {random_secret(), random_secret()};
  replica.state = replica.knows_dirty ? MirrorReplicaState::Waiting : MirrorReplicaState::Comparing;
  if (!blank) replica.on_medium = start.state;
  replica.not_deep.reset();
  replica.backoff.reset();
  ++replica.returned;
}

/// Says in a blank pool whose it is, and before that what is known: else it would be heard as a
/// replica by whom nothing newer was ever known. False: it is lost.
bool ReplicatedMirror::claim(Replica& replica) {
  if (!write_state(replica, false)) return false;
  const auto claimed = replica.connection->claim(*header_);
  if (!claimed.ok()) lose(replica, claimed.error());
  return claimed.ok();
}

/// A pool that can not be used. It is looked at again: somebody may put that right.
void ReplicatedMirror::refuse(Replica& replica, Error why) {
  log_message(Severity::Warning,
              fmt::format("replica {} is not used: {}", replica.peer->name(), why.message));
  replica.knows_dirty = false;
  lose(replica, std::move(why));
}

/// Brings a replica on, as far as its session takes work. Says whether anything was done.
bool ReplicatedMirror::advance(Replica& replica) {
  switch (replica.state) {
    case MirrorReplicaState::Lost:
    case MirrorReplicaState::InSync: return false;
    case MirrorReplicaState::Comparing: return compare(replica);
    case MirrorReplicaState::Waiting: return begin_copying(replica);
    case MirrorReplicaState::Copying: return copy(replica);
  }
  return false;
}

bool ReplicatedMirror::compare(Replica& replica) {
  client::DurableSession& session = replica.connection->session();
  bool came = false;
  while (replica.compared < bytes_ && replica.flights.size() < kBackgroundMax) {
    const std::uint64_t length = std::min(kDigestBytesEach, bytes_ - replica.compared);
    const persist::DigestRequest wanted{kDataAt + replica.compared,
                                        static_cast<std::uint32_t>(length), replica.key};
    const auto number =
        session.request(persist::MessageKind::Digests, persist::encode_digest_request(wanted),
                        replica.connection->reply_of_next());
    if (!number.ok()) {
      lose(replica, number.error());
      return true;
    }
    replica.flights.push_back({Flight::Kind::Digests, *number, 0, {replica.compared, length}});
    replica.compared += length;
    came = true;
  }
  if (replica.compared < bytes_ || !replica.flights.empty()) return came;
  replica.knows_dirty = true;
  replica.state = MirrorReplicaState::Waiting;
  return true;
}

/// Of pages that the replica has durably: those that differ from the local ones are dirty. Errors:
/// SystemError: a local one was lost.
Result<void> ReplicatedMirror::note_digests(Replica& replica, const Flight& flight) {
  const auto answered = replica.connection->session().reply_bytes(flight.number);
  const auto local = local_.bytes().subspan(flight.range.at, flight.range.length);
  std::array<std::byte, persist::kDigestPagesMax * persist::kDigestBytes> own{};
  std::size_t bytes = 0;
  {
    const UnorderedReads of_what_is_not_flushed;  // as in copy()
    bytes = persist::put_digests(local, replica.key, own);
  }
  PERDURE_TRY_VOID(check_local());
  const auto theirs = replica.connection->reply_of(flight.number);
  const bool whole = answered.ok() && *answered == bytes;
  const std::uint64_t first = flight.range.at / kPageBytes;
  for (std::size_t at = 0; at < bytes; at += persist::kDigestBytes) {
    if (whole && std::memcmp(own.data() + at, theirs.data() + at, persist::kDigestBytes) == 0) {
      continue;
    }
    replica.dirty.mark_page(first + at / persist::kDigestBytes);
  }
  return {};
}

/// One at a time: while it is copied to, a replica is of no use to anybody, and until this writer
/// has a generation of its own the others may be all that there is.
bool ReplicatedMirror::begin_copying(Replica& replica) {
  if (!may_copy_) return false;
  if (replica.dirty.empty()) {
    finish(replica);
    return true;
  }
  const bool other = std::any_of(replicas_.begin(), replicas_.end(), [](const Replica& each) {
    return each.state == MirrorReplicaState::Copying;
  });
  if (other) return false;
  if (!write_state(replica, false)) return true;
  replica.state = MirrorReplicaState::Copying;
  replica.live = true;
  replica.resolved = begun_;
  return true;
}

/// Pages as they are now. What is flushed meanwhile goes to it, too, in its turn.
bool ReplicatedMirror::copy(Replica& replica) {
  client::DurableSession& session = replica.connection->session();
  bool came = false;
  while (!replica.dirty.empty() && session.in_flight() < kBackgroundMax) {
    const auto run = replica.dirty.take(kCopyPages);
    const MirrorRange range{run->page * kPageBytes, page_bytes(run->page, run->pages)};
    std::byte* const staged =
        copies_.data() + (session.begun() + 1) % client::kUpdatesMax * kCopyPages * kPageBytes;
    {
      // Each replica has its own numbers, and one at a time is copied to. The program may be
      // storing into these pages: what it then flushes follows, in a message of its own.
      const UnorderedReads of_what_is_not_flushed;
      std::memcpy(staged, local_.bytes().data() + range.at, range.length);
    }
    if (const auto whole = check_local(); !whole.ok()) {
      replica.dirty.mark(range.at, range.length);
      lose(replica, whole.error());
      return true;
    }
    const persist::UpdateItem item{kDataAt + range.at,
                                   {staged, range.length, replica.connection->copies()}};
    const client::Ranges epoch(&item, 1);
    const auto number = session.update({&epoch, 1});
    replica.flights.push_back({Flight::Kind::Copy, number.ok() ? *number : 0, 0, range});
    if (!number.ok()) {
      lose(replica, number.error());
      return true;
    }
    came = true;
  }
  const bool copies =
      std::any_of(replica.flights.begin(), replica.flights.end(),
                  [](const Flight& each) { return each.kind == Flight::Kind::Copy; });
  if (!replica.dirty.empty() || copies) return came;
  finish(replica);
  return true;
}

/// It has everything that was begun, or it is on its way. Updates that are begun from now on go to
/// it and are waited for.
void ReplicatedMirror::finish(Replica& replica) {
  if (!replica.live) replica.resolved = begun_;
  replica.live = true;
  replica.current = true;  // from here on it may say so
  if (!write_state(replica, true)) return;
  replica.state = MirrorReplicaState::InSync;
  replica.deep_from = begun_ + 1;
  harvest(replica);
}

/// Waits until nothing is in flight there: the session keeps an answer until so many more updates
/// were begun, and marks are some. False: the replica is lost.
bool ReplicatedMirror::take_all_answers(Replica& replica) {
  const Nanoseconds since = clock_.now();
  while (replica.connection && !replica.flights.empty()) {
    if (harvest(replica) || !replica.connection) continue;
    if (deadline_ && deadline_->passed()) {
      lose(replica, {ErrorCode::TimedOut, "there was no time left to mark it"});
    } else {
      rest(since, kMarkSlice);
    }
  }
  return replica.connection != nullptr;
}

/// Behind everything that was begun there. False: the replica is lost, and its state may be the old
/// one or this.
bool ReplicatedMirror::write_state(Replica& replica, bool complete, bool closed) {
  ReplicaState state;
  state.generation = generation();
  state.known = established_ ? generation() : found_;
  state.complete = complete;
  state.closed = closed;
  const bool ours = (complete || established_) && !options_.only_copies;
  state.written_in = ours ? epoch_.value : written_in_;
  if (complete) state.file_bytes = options_.only_copies ? file_bytes_ : local_state_.file_bytes();
  if (!complete) state.generation = {};
  if (!take_all_answers(replica)) return false;
  if (auto written = replica.connection->write_state(state); !written) {
    replica.on_medium.reset();
    lose(replica, written.error());
    return false;
  }
  replica.on_medium = state;
  return true;
}

/// A replica was lost that counted: nothing is told to anybody before those that are left say, each
/// durably, that they are of a newer generation than it.
void ReplicatedMirror::next_generation() {
  if (!generation_over_ || in_sync() < quorum_) return;
  ++generation_count_;
  generation_over_ = false;
  for (Replica& replica : replicas_) {
    if (replica.state != MirrorReplicaState::InSync) continue;
    if (!write_state(replica, true)) return;  // that one was lost, and so is this generation
  }
}

}  // namespace perdure::mirror
