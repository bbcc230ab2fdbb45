// Updates of a mirror: checked, staged, and sent to every replica that takes them.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "core/try.h"
#include "core/whole_words.h"
#include "mirror/replicated_mirror.h"
#include "persist/atomics.h"
#include "persist/deep_flush.h"
#include "persist/ordered.h"

namespace perdure::mirror {
namespace {

constexpr std::uint64_t kWordBytes = 8;

Error no_room() { return {ErrorCode::QueueFull, "replicas take nothing more for now"}; }

bool overlaps_any(const MirrorRange& range, std::span<const MirrorEpoch> epochs) {
  for (const MirrorEpoch epoch : epochs) {
    for (const MirrorRange& each : epoch) {
      if (range.at < each.at + each.length && each.at < range.at + range.length) return true;
    }
  }
  return false;
}

/// What is sent from where it is must not be stored to by another epoch: it would arrive early.
Result<void> check_apart(std::span<const MirrorEpoch> epochs) {
  for (std::size_t index = 0; index < epochs.size(); ++index) {
    for (const MirrorRange& range : epochs[index]) {
      if (range.length < kDirectBytes) continue;
      if (!overlaps_any(range, epochs.first(index)) &&
          !overlaps_any(range, epochs.subspan(index + 1)))
        continue;
      return Error{
          ErrorCode::InvalidArgument,
          fmt::format("bytes {}+{} overlap with those of another epoch: ranges of {} bytes "
                      "or more must not, write them in an update of their own",
                      range.at, range.length, kDirectBytes)};
    }
  }
  return {};
}

}  // namespace

Result<std::size_t> ReplicatedMirror::check(std::span<const MirrorEpoch> epochs) const {
  if (options_.only_copies) {
    return Error{ErrorCode::InvalidArgument, "this mirror was opened only to copy (only_copies)"};
  }
  if (epochs.empty()) return Error{ErrorCode::InvalidArgument, "an update without an epoch"};
  std::size_t ranges = 0;
  std::size_t staged = 0;
  for (const MirrorEpoch epoch : epochs) {
    if (epoch.empty()) return Error{ErrorCode::InvalidArgument, "an epoch without a range"};
    ranges += epoch.size();
    for (const MirrorRange& range : epoch) {
      if (range.length == 0) return Error{ErrorCode::InvalidArgument, "a range of 0 bytes"};
      if (range.length > bytes_ || range.at > bytes_ - range.length) {
        return Error{ErrorCode::OutOfRange,
                     fmt::format("bytes {}+{} lie outside the {} that are mirrored", range.at,
                                 range.length, bytes_)};
      }
      if (range.length < kDirectBytes) staged += range.length;
    }
  }
  if (ranges > kRangesMax || staged > options_.staging_bytes) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("an update of {} ranges, {} bytes of them in small ones; it takes {}, "
                             "and staging_bytes, {}",
                             ranges, staged, kRangesMax, options_.staging_bytes)};
  }
  return staged;
}

/// Whether every replica that takes updates takes so many more.
bool ReplicatedMirror::has_turn(std::size_t updates) const {
  return std::all_of(replicas_.begin(), replicas_.end(), [&](const Replica& replica) {
    if (!replica.live) return true;
    return replica.connection->session().in_flight() + updates <= client::kUpdatesMax;
  });
}

Result<MirrorTicket> ReplicatedMirror::begin(std::span<const MirrorEpoch> epochs) {
  PERDURE_TRY(staged, check(epochs));
  PERDURE_TRY_VOID(begin_gathered());
  PERDURE_TRY(room, make_room(staged));
  return post(epochs, room);
}

Result<MirrorTicket> ReplicatedMirror::flush(const MirrorRange& range) {
  const MirrorEpoch epoch(&range, 1);
  PERDURE_TRY(staged, check({&epoch, 1}));
  if (staged == 0) return begin({&epoch, 1});
  PERDURE_TRY_VOID(check_goes_on());
  const persist::OrderedSize with_it = gathered_size_.with(range.length);
  const bool staged_too_much = with_it.data_bytes > options_.staging_bytes;
  if (staged_too_much || !with_it.fits(persist::kOrderedBytesMax)) {
    PERDURE_TRY_VOID(begin_gathered());
  }
  gathered_.push_back(range);
  gathered_size_ = gathered_size_.with(range.length);
  return MirrorTicket{begun_ + 1};
}

Result<void> ReplicatedMirror::begin_gathered() {
  if (local_failure_) return *local_failure_;
  if (gathered_.empty()) return {};
  PERDURE_TRY(room, make_room(gathered_size_.data_bytes));
  const MirrorEpoch epoch(gathered_);
  const auto posted = post({&epoch, 1}, room);
  gathered_.clear();
  gathered_size_ = {};
  return posted.ok() ? Result<void>() : posted.error();
}

/// Before what was read of the local memory is sent: zeros that stand for a page that was lost are
/// no update. Errors: SystemError, from then on.
Result<void> ReplicatedMirror::check_local() {
  if (!local_.is_lost()) return {};
  if (local_failure_) return *local_failure_;
  const auto why = local_.check();
  return refused_here(
      why.ok() ? Error{ErrorCode::SystemError, "a page of the local memory was lost"} : why.error(),
      begun_);
}

/// Errors: SystemError, Fenced: no update is begun any more.
Result<void> ReplicatedMirror::check_goes_on() const {
  if (local_failure_) return *local_failure_;
  if (in_sync() >= quorum_) return {};
  if (auto why = trouble(); why && why->code == ErrorCode::Fenced) return *why;
  return {};
}

/// Waits until every replica that takes updates takes so many more, and there is room for the bytes
/// that are sent from copies. A session that is silent goes down, and then no longer counts.
/// Nothing may be called between this and post() that makes progress: a replica could come to take
/// updates. Errors: Fenced; QueueFull: see never_wait_for_room.
Result<ReplicatedMirror::Room> ReplicatedMirror::make_room(std::size_t staged,
                                                           std::size_t updates) {
  std::optional<Nanoseconds> since;
  for (;;) {
    if (auto why = trouble(); why && why->code == ErrorCode::Fenced) return *why;
    const bool any_live = std::any_of(replicas_.begin(), replicas_.end(),
                                      [](const Replica& replica) { return replica.live; });
    if (!any_live) return Room{};
    if (has_turn(updates)) {
      if (staged == 0) return Room{nullptr, true};
      const auto room = staging_.take(begun_ + 1, staged);
      if (!room.empty()) return Room{room.data(), true};
    }
    if (!waits_for_room_ || (deadline_ && deadline_->passed())) return no_room();
    if (!since) since = clock_.now();
    if (!progress()) rest(*since, kRestSlice);
  }
}

Result<MirrorTicket> ReplicatedMirror::post(std::span<const MirrorEpoch> epochs, Room room) {
  begin_staging();
  for (const MirrorEpoch epoch : epochs) stage(epoch, room);
  return post_staged(epochs);
}

Result<MirrorTicket> ReplicatedMirror::post_staged(std::span<const MirrorEpoch> epochs) {
  ++begun_;
  PERDURE_TRY_VOID(check_local());
  for (Replica& replica : replicas_) send(replica, epochs);
  PERDURE_TRY_VOID(flush_local(epochs, begun_));
  return MirrorTicket{begun_};
}

Result<MirrorTicket> ReplicatedMirror::begin_deep(const MirrorRange& range) {
  const MirrorEpoch epoch(&range, 1);
  PERDURE_TRY(staged, check({&epoch, 1}));
  PERDURE_TRY_VOID(begin_gathered());
  PERDURE_TRY(room, make_room(staged, 2));
  PERDURE_TRY_VOID(post({&epoch, 1}, room));
  const auto flushed = local_.deep_flush({range.at, range.length});
  if (!flushed.ok() && flushed.code() != ErrorCode::Unsupported) {
    return refused_here(flushed.error(), begun_ + 1);
  }
  ++begun_;
  if (!flushed.ok()) local_not_deep_ = NotDeep{begun_, flushed.error()};
  for (Replica& replica : replicas_) send_deep(replica, range);
  return MirrorTicket{begun_};
}

/// One that takes no updates has nothing to take deeper.
void ReplicatedMirror::send_deep(Replica& replica, const MirrorRange& range) {
  if (!replica.live) return;
  Flight flight;
  flight.kind = Flight::Kind::Deep;
  flight.update = begun_;
  const auto payload = persist::encode_deep_flush(kDataAt + range.at, range.length);
  note_sent(
      replica, std::move(flight),
      replica.connection->session().request(persist::MessageKind::DeepFlush, payload, {}, false));
}

/// By the responder's processor, in one store: a WRITE promises no atomicity.
void ReplicatedMirror::send_word(Replica& replica, std::uint64_t at, std::uint64_t value) {
  if (!replica.live) return replica.dirty.mark(at, kWordBytes);
  Flight flight;
  flight.kind = Flight::Kind::Word;
  flight.update = begun_;
  flight.range = {at, kWordBytes};
  note_sent(replica, std::move(flight),
            replica.connection->session().atomic(
                {persist::AtomicOperation::Store, kDataAt + at, value, 0}));
}

/// In flight, by the number that the session gave it; or some of it may be, before it was lost.
void ReplicatedMirror::note_sent(Replica& replica, Flight flight,
                                 const Result<std::uint64_t>& number) {
  if (number.ok()) flight.number = *number;
  replica.flights.push_back(std::move(flight));
  if (!number.ok()) lose(replica, number.error());
}

void ReplicatedMirror::begin_staging() {
  items_.clear();
  epoch_items_.clear();
}

/// Where the bytes of each range of the next epoch are sent from: copies as they are now, or where
/// they are.
void ReplicatedMirror::stage(MirrorEpoch epoch, Room& room) {
  if (!room.anybody) return;
  const std::size_t before = items_.size();
  for (const MirrorRange& range : epoch) {
    std::byte* const from = local_.bytes().data() + range.at;
    if (range.length < kDirectBytes) {
      load_whole_words(room.to, {from, range.length});
      items_.push_back({kDataAt + range.at, {room.to, range.length, nullptr}});
      room.to += range.length;
      continue;
    }
    for (std::uint64_t sent = 0; sent < range.length;) {
      const std::uint64_t left = range.length - sent;
      std::uint64_t piece = std::min(left, client::kRangeBytesMax);
      // No piece is so small that a provider reads it when it is too late to hear of a lost page.
      if (left > piece && left - piece < kDirectBytes) piece -= kDirectBytes;
      items_.push_back({kDataAt + range.at + sent, {from + sent, piece, nullptr}});
      sent += piece;
    }
  }
  epoch_items_.push_back(items_.size() - before);
}

void ReplicatedMirror::note_ranges(std::span<const MirrorEpoch> epochs, Flight& flight) {
  std::size_t ranges = 0;
  for (const MirrorEpoch epoch : epochs) ranges += epoch.size();
  flight.more.reserve(ranges - 1);
  bool first = true;
  for (const MirrorEpoch epoch : epochs) {
    for (const MirrorRange& range : epoch) {
      if (first) {
        flight.range = range;
      } else {
        flight.more.push_back(range);
      }
      first = false;
    }
  }
}

/// To one that takes updates; else its pages are marked.
void ReplicatedMirror::send(Replica& replica, std::span<const MirrorEpoch> epochs) {
  Flight flight;
  flight.update = begun_;
  note_ranges(epochs, flight);
  if (!replica.live) {
    replica.dirty.mark(flight.range.at, flight.range.length);
    for (const MirrorRange& range : flight.more) replica.dirty.mark(range.at, range.length);
    return;
  }
  Connection& connection = *replica.connection;
  const std::byte* const local = local_.bytes().data();
  bool direct = false;
  for (persist::UpdateItem& item : items_) {
    const bool from_local = item.data.data >= local && item.data.data < local + bytes_;
    direct = direct || from_local;
    item.data.memory = from_local ? connection.local() : connection.staging();
  }
  ranges_.clear();
  std::size_t first = 0;
  for (const std::size_t count : epoch_items_) {
    ranges_.push_back(client::Ranges(items_).subspan(first, count));
    first += count;
  }
  flight.direct = direct;
  if (!direct || connection.local() != nullptr) {
    return note_sent(replica, std::move(flight), connection.session().update(ranges_));
  }
  // In many updates, and the session keeps an answer until so many were begun.
  if (take_all_answers(replica)) {
    note_sent(replica, std::move(flight), send_copied(connection));
  } else {
    for (const MirrorEpoch epoch : epochs) {
      for (const MirrorRange& range : epoch) replica.dirty.mark(range.at, range.length);
    }
  }
}

/// Where the local memory can not be registered: in the session's own buffer, piece by piece.
Result<std::uint64_t> ReplicatedMirror::send_copied(Connection& connection) {
  client::DurableSession& session = connection.session();
  for (const persist::UpdateItem& item : items_) {
    PERDURE_TRY_VOID(session.write_now(item.at, {item.data.data, item.data.length}));
  }
  return session.begun();
}

/// Once it was refused nothing of the local medium is believed: whoever waits for what others began
/// hears of it, too.
Result<void> ReplicatedMirror::flush_local(std::span<const MirrorEpoch> epochs,
                                           std::uint64_t update) {
  if (local_.domain() == PersistenceDomain::None) return {};
  for (const MirrorEpoch epoch : epochs) {
    std::vector<pmem::Range> ranges;
    ranges.reserve(epoch.size());
    for (const MirrorRange& range : epoch) ranges.push_back({range.at, range.length});
    if (auto flushed = local_.flush(std::span<const pmem::Range>(ranges)); !flushed.ok()) {
      return refused_here(flushed.error(), update);
    }
  }
  return {};
}

Error ReplicatedMirror::refused_here(Error why, std::uint64_t update) {
  not_here_from_ = std::min(not_here_from_, update);
  return local_failure_.emplace(std::move(why));
}

/// Whether bytes of these ranges are being sent from where they are: what is stored there now would
/// arrive out of its order, or in part.
bool ReplicatedMirror::is_being_sent(std::span<const MirrorEpoch> epochs) const {
  const auto overlaps = [&](const MirrorRange& sent) { return overlaps_any(sent, epochs); };
  for (const Replica& replica : replicas_) {
    for (const Flight& flight : replica.flights) {
      if (!flight.direct) continue;
      if (overlaps(flight.range)) return true;
      if (std::any_of(flight.more.begin(), flight.more.end(), overlaps)) return true;
    }
  }
  return false;
}

/// Waits until nothing of these ranges is. Errors: QueueFull: see make_room.
Result<void> ReplicatedMirror::await_sent(std::span<const MirrorEpoch> epochs) {
  const Nanoseconds since = clock_.now();
  while (is_being_sent(epochs)) {
    if (!waits_for_room_ || (deadline_ && deadline_->passed())) return no_room();
    if (!progress()) rest(since, kRestSlice);
  }
  return {};
}

Result<MirrorTicket> ReplicatedMirror::write(std::span<const MirrorWriteEpoch> epochs) {
  std::vector<std::vector<MirrorRange>> ranges;
  for (const MirrorWriteEpoch epoch : epochs) {
    ranges.emplace_back();
    for (const MirrorWrite& each : epoch) ranges.back().push_back({each.at, each.bytes.size()});
  }
  const std::vector<MirrorEpoch> views(ranges.begin(), ranges.end());
  PERDURE_TRY(staged, check(views));
  PERDURE_TRY_VOID(check_apart(views));
  PERDURE_TRY_VOID(begin_gathered());
  PERDURE_TRY_VOID(await_sent(views));
  // From here to the end no page is copied to a replica: one that shows a later epoch and not an
  // earlier one, in no order with what is sent.
  PERDURE_TRY(room, make_room(staged));
  begin_staging();
  for (std::size_t index = 0; index < epochs.size(); ++index) {
    for (const MirrorWrite& each : epochs[index]) {
      std::memcpy(local_.bytes().data() + each.at, each.bytes.data(), each.bytes.size());
    }
    PERDURE_TRY_VOID(flush_local({&views[index], 1}, begun_ + 1));
    stage(views[index], room);  // before a later epoch stores to the same bytes
  }
  return post_staged(views);
}

Result<MirrorTicket> ReplicatedMirror::store_word(std::uint64_t at, std::uint64_t value) {
  const MirrorRange range{at, kWordBytes};
  const MirrorEpoch epoch(&range, 1);
  PERDURE_TRY_VOID(check({&epoch, 1}));
  if (at % kWordBytes != 0) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("a word at byte {}; it takes a multiple of 8", at)};
  }
  PERDURE_TRY_VOID(begin_gathered());
  PERDURE_TRY_VOID(await_sent({&epoch, 1}));
  PERDURE_TRY_VOID(make_room(0));
  std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(local_.bytes().data() + at))
      .store(value, std::memory_order_release);
  ++begun_;
  for (Replica& replica : replicas_) send_word(replica, at, value);
  PERDURE_TRY_VOID(flush_local({&epoch, 1}, begun_));
  return MirrorTicket{begun_};
}

}  // namespace perdure::mirror
