// Replicas that come back: what they have missed is sent again from staging, in its order, or,
// where that is gone, copied from a replica that has it.
#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "core/assert.h"
#include "core/bytes.h"
#include "core/log_message.h"
#include "core/try.h"
#include "region/replicated_region.h"

namespace perdure::region {
/// The first update whose bytes are still needed.
std::uint64_t ReplicatedRegion::needed_from() const {
  std::uint64_t from = begun_ + 1;
  for (const Replica& replica : replicas_) {
    // One that has just gone may not have noted yet what was in flight to it.
    if (replica.session.up() || comes_back(replica)) from = std::min(from, replica.landed + 1);
  }
  if (copy_ && copy_->staged != 0) from = std::min(from, copy_->staged);
  if (options_.reconnect == std::chrono::milliseconds(0)) return from;
  for (const KeptUpdate& update : kept_) {
    if (update.number >= from) break;
    if (!is_held(update)) return update.number;
  }
  return from;
}

/// Whether a replica has all of it, or what was written over it. Of what none has, because each
/// went while it was in flight there, staging has the only copy.
bool ReplicatedRegion::is_held(const KeptUpdate& update) const {
  for (std::size_t index = 0; index < replicas_.size(); ++index) {
    const Replica& replica = replicas_[index];
    if (!replica.joined || replica.landed < update.number) continue;
    if (!replica.missed) return true;
    const bool lacks =
        std::any_of(update.ranges.begin(), update.ranges.end(), [&](const Extent& range) {
          const bool comes = copy_ && copy_->target == index && copy_->piece.overlaps(range);
          return comes || replica.missed->touches(range);
        });
    if (!lacks) return true;
  }
  return false;
}

/// Staging is full of what waits for a replica that is down: from now on it is remembered for that
/// one which bytes it lacks, and no longer what they are. False: it is not full of that.
bool ReplicatedRegion::forget_for_one() {
  Replica* furthest = nullptr;
  for (Replica& replica : replicas_) {
    const bool waits = replica.session.up() || (comes_back(replica) && !replica.missed);
    if (!waits || replica.landed == begun_) continue;
    const bool behind = furthest == nullptr || replica.landed < furthest->landed ||
                        (replica.landed == furthest->landed && replica.session.up());
    if (behind) furthest = &replica;
  }
  if (furthest == nullptr || furthest->session.up()) return false;
  furthest->missed.emplace(pieces_max_for(*furthest));
  while (furthest->landed < begun_) note_missed(*furthest, kept(furthest->landed + 1));
  return true;
}

/// What lies between pieces it gets only from one that is whole: where none is, they are not joined
/// as long as there is memory for them.
std::size_t ReplicatedRegion::pieces_max_for(const Replica& target) const {
  const bool from_whole = std::any_of(replicas_.begin(), replicas_.end(), [&](const Replica& each) {
    return &each != &target && each.whole;
  });
  return from_whole ? MissedRanges::kPiecesMax : kApartMax;
}

void ReplicatedRegion::note_missed(Replica& replica, const KeptUpdate& update) {
  for (const Extent& range : update.ranges) replica.missed->add(range);
  replica.missed_until = begun_;
  replica.landed = update.number;
}

/// A replica that is being copied to is about to be sent an update: what that brings is not copied,
/// nor what was READ of it before.
void ReplicatedRegion::note_sent(std::size_t index, const KeptUpdate& update) {
  Replica& replica = replicas_[index];
  if (copy_ && copy_->target == index && !copy_->writing && !copy_->overtaken) {
    copy_->overtaken =
        std::any_of(update.ranges.begin(), update.ranges.end(),
                    [&](const Extent& range) { return range.overlaps(copy_->piece); });
    if (copy_->overtaken) {
      replica.missed->add(copy_->piece);
      replica.missed_until = begun_;
    }
  }
  for (const Extent& range : update.ranges) {
    if (!replica.missed->touches(range)) continue;
    replica.behind = begun_;
    if (!replica.missed->remove(range)) replica.missed_until = begun_;
  }
}

/// Its connection is gone: what was in flight on it is missed.
void ReplicatedRegion::note_lost(Replica& replica) {
  replica.flights.clear();
  replica.catching_up = false;
  if (copy_ && &replicas_[copy_->target] == &replica) give_up_copy();
  if (!replica.missed) return;
  while (replica.landed < begun_) note_missed(replica, kept(replica.landed + 1));
}

/// Whether sending the updates behind `after` again, in their order, can take back a part of an
/// epoch and leave a later one of that update: what was in flight may be there already.
bool ReplicatedRegion::overlaps_itself(std::uint64_t after, std::uint64_t until) const {
  MissedRanges earlier;
  for (std::uint64_t number = after + 1; number <= until; ++number) {
    const KeptUpdate& update = kept(number);
    std::size_t first = 0;
    for (const std::size_t end : update.epoch_ends) {
      const auto ranges = std::span(update.ranges).subspan(first, end - first);
      const bool last = end == update.ranges.size();
      const auto touched = [&](const Extent& range) { return earlier.touches(range); };
      if (!last && std::any_of(ranges.begin(), ranges.end(), touched)) return true;
      for (const Extent& range : ranges) earlier.add(range);
      first = end;
    }
  }
  return false;
}

/// Ends the return of those that have everything, and tries what is down, once its time has come;
/// who was fenced only the first.
void ReplicatedRegion::bring_back(const Deadline& deadline) {
  if (options_.reconnect == std::chrono::milliseconds(0)) return;
  for (Replica& replica : replicas_) {
    client::DurableSession& session = replica.session;
    if (session.up()) {
      if (replica.catching_up) end_return(replica, deadline);
      continue;
    }
    if (fenced_ || !may_go_on(replica, up() < quorum_)) continue;
    if (deadline.passed()) return;
    const Nanoseconds now = clock_.now();
    replica.taken_up = true;
    const auto back = come_back(replica, deadline);
    replica.taken_up = false;
    session.set_deadline(std::nullopt);
    if (back.ok()) continue;
    if (back.code() == ErrorCode::Fenced && up() < quorum_) fenced_ = back.error();
    session.mark_down(back.error());
    session.put_off(now, clock_.now());
  }
}

/// Whether there is something to be done that waits for no connection. By threads it is connected
/// to first, from the time at which it is to be tried again on.
bool ReplicatedRegion::may_go_on(Replica& replica, bool urgent) {
  if (replica.connection) return replica.connection->ended();
  if (!replica.session.retry_due(clock_.now(), urgent)) return false;
  note_lost(replica);
  replica.session.close();
  if (!threads_) return true;
  begin_connecting(replica);
  return replica.connection->ended();
}

void ReplicatedRegion::begin_connecting(Replica& replica) {
  const auto successor = std::make_shared<client::DurableSession>(replica.session.successor());
  const auto work = [this, successor, known = known_beside(replica, was_seen(replica))](
                        const StoppableClock& steps) {
    return connect(std::move(*successor), known,
                   [&] { return steps.after(options_.peer_timeout); });
  };
  replica.connection = std::make_unique<Background<Connected>>(clock_, work);
}

/// Whether a connection is being made.
bool ReplicatedRegion::connects() const {
  return std::ranges::any_of(replicas_,
                             [](const Replica& each) { return each.connection != nullptr; });
}

/// The connection that was begun, or one that is made now.
Result<ReplicatedRegion::Connected> ReplicatedRegion::connection_to(Replica& replica,
                                                                    const Deadline& deadline) {
  if (!replica.connection) {
    return connect(replica.session.successor(), known_beside(replica, was_seen(replica)),
                   [&] { return deadline.within(options_.peer_timeout); });
  }
  auto connected = replica.connection->take();
  replica.connection.reset();
  return connected;
}

Result<void> ReplicatedRegion::come_back(Replica& replica, const Deadline& deadline) {
  PERDURE_TRY(connected, connection_to(replica, deadline));
  // Another one may have come back meanwhile.
  PERDURE_TRY_VOID(check_apart(connected.uuid, known_beside(replica, was_seen(replica))));
  if (const std::string had = std::exchange(replica.uuid, connected.uuid); had != replica.uuid) {
    replica.start_bytes.clear();  // they were another one's
    forget(replica);
  }
  go_on_over(replica, std::move(connected));
  const Deadline soon = deadline.within(options_.peer_timeout);
  replica.session.set_deadline(soon);
  PERDURE_TRY_VOID(take_up(replica, soon));
  if (completion_fd_) PERDURE_TRY_VOID(watch(*completion_fd_, replica));
  replica.catching_up = true;
  log_message(
      Severity::Info,
      fmt::format("replica {} is back, and gets {}", replica.session.peer().name(),
                  replica.missed ? fmt::format("{} bytes from another one", replica.missed->bytes())
                                 : fmt::format("{} updates again", begun_ - replica.landed)));
  return {};
}

/// It holds something else than it did: it is another replica, until it is made this one's.
void ReplicatedRegion::forget(Replica& replica) {
  replica.joined = replica.whole = false;
  replica.missed.reset();
  replica.resolved = replica.landed = 0;
}

/// Goes on where it was, if it is as it was left, else from the start.
Result<void> ReplicatedRegion::take_up(Replica& replica, const Deadline& deadline) {
  client::DurableSession& session = replica.session;
  PERDURE_TRY(read, session.read(0, {landing_.get(), kDataAt, replica.landing.get()}));
  PERDURE_TRY_VOID(await(replica, read, deadline));
  PERDURE_TRY(start, decode_start({landing_.get(), kDataAt}));
  const bool as_left =
      replica.joined && start.header == header_ && start.state && start.state->epoch == epoch_;
  if (!as_left) return adopt(replica, start);
  const bool mixes = replica.missed ? !replica.missed->empty()
                                    : overlaps_itself(replica.resolved, replica.sent_most);
  if (mixes) PERDURE_TRY_VOID(mark_mixed(replica, true));
  if (replica.missed) {
    PERDURE_ASSERT(replica.landed == begun_);
    replica.sent = begun_;
  } else {
    replica.sent = replica.landed = replica.resolved;
  }
  replica.behind = begun_;
  return {};
}

/// It has missed what earlier writers wrote, or its memory was replaced by a blank pool or an older
/// copy: it gets everything, from a replica that is known to have it. Until what it says of itself
/// is written, all of it, the next try begins anew.
Result<void> ReplicatedRegion::adopt(Replica& replica, const RegionStart& start) {
  const bool older = replica.joined;  // it has had more
  forget(replica);
  if (start.header && *start.header != header_) {
    return Error{ErrorCode::InvalidArgument, "its pool holds another region"};
  }
  const std::uint64_t size = replica.session.connection().remote.length;
  if (size < kDataAt || size - kDataAt < bytes_) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("its pool is smaller than the {} bytes that the region takes",
                             bytes_ + kDataAt)};
  }
  replica.all_copied = true;
  const bool source = std::any_of(replicas_.begin(), replicas_.end(), [&](const Replica& each) {
    return has_all_for(each, replica) && !each.missed;
  });
  if (!source) {
    replica.all_copied = false;
    return Error{ErrorCode::NotFound,
                 "it does not have what was written before, and no other replica is known to have "
                 "everything: write again what matters, and call note_equal()"};
  }
  if ((!start.header || older) && may_know() && !excludes_newer_writer(replica)) {
    replica.all_copied = false;
    return Error{ErrorCode::QuorumLost,
                 "its pool is blank, or an older copy, and so few others are up that a newer "
                 "writer may have the rest: it is taken in once more of them are there"};
  }
  replica.mixed_before = false;
  PERDURE_TRY_VOID(mark_mixed(replica, true));
  replica.start.header = header_;
  if (!start.header) PERDURE_TRY_VOID(claim(replica));
  PERDURE_TRY_VOID(write_state(replica, false));
  replica.bytes = size - kDataAt;
  replica.joined = true;
  replica.missed.emplace(kApartMax);
  replica.missed->add({0, bytes_});
  replica.missed_until = begun_;
  replica.sent = replica.landed = replica.behind = begun_;
  return {};
}

/// Whether those beside a blank pool that this writer still has are so many that nobody can have a
/// quorum without one of them. A blank pool knows of no writer.
bool ReplicatedRegion::excludes_newer_writer(const Replica& blank) const {
  const auto ours = std::ranges::count_if(replicas_, [&](const Replica& each) {
    return &each != &blank && each.joined && each.session.up();
  });
  return replicas_.size() - static_cast<std::size_t>(ours) < quorum_;
}

Result<void> ReplicatedRegion::mark_mixed(Replica& replica, bool mixed) {
  const std::uint64_t word = mixed ? encode_state({epoch_, false, false}) : 0;
  replica.mixed = true;
  PERDURE_TRY_VOID(write_own(replica, kReturnWordAt, bytes_of(word)));
  replica.mixed = mixed;
  if (!mixed) replica.mixed_before = false;
  return {};
}

/// Once everything is there that it had missed. What it then says of itself may take longer than
/// there is time: the next call says it again.
void ReplicatedRegion::end_return(Replica& replica, const Deadline& deadline) {
  take_answers(replica);
  if (replica.landed < replica.behind || deadline.passed()) return;
  const auto index = static_cast<std::size_t>(&replica - replicas_.data());
  if (replica.missed && (!replica.missed->empty() || (copy_ && copy_->target == index))) return;
  client::DurableSession& session = replica.session;
  session.set_deadline(deadline);
  const auto said = say_returned(replica);
  session.set_deadline(std::nullopt);
  if (!said.ok()) {
    const bool no_time = said.code() == ErrorCode::TimedOut && deadline.passed();
    if (session.up() && !no_time) session.mark_down(said.error());
    return;
  }
  replica.all_copied = false;
  replica.missed.reset();
  replica.catching_up = false;
  replica.resolved = replica.landed;
  session.got_on();
  log_message(Severity::Info,
              fmt::format("replica {} has everything again", session.peer().name()));
}

Result<void> ReplicatedRegion::say_returned(Replica& replica) {
  if (replica.all_copied) {
    replica.whole = may_know();
    PERDURE_TRY_VOID(write_state(replica, false));
  }
  if (!replica.mixed || replica.mixed_before) return {};
  return mark_mixed(replica, false);
}

/// Whether it had everything that `target` is to get, but for what it misses itself: what this
/// writer has not written only one that is whole.
bool ReplicatedRegion::has_all_for(const Replica& source, const Replica& target) const {
  const bool of_before = target.all_copied || (target.missed && target.missed->has_more());
  return &source != &target && source.session.up() && !source.taken_up &&
         (!of_before || source.whole);
}

/// What can be copied to a replica that misses something, and from which other one: the furthest of
/// those that miss nothing, else one that does not miss just that.
std::optional<ReplicatedRegion::Copy> ReplicatedRegion::next_copy(std::size_t target) const {
  const Replica& to = replicas_[target];
  const MissedRanges nothing;
  std::optional<Copy> found;
  std::tuple<bool, std::uint64_t> best;
  for (std::size_t index = 0; index < replicas_.size(); ++index) {
    const Replica& each = replicas_[index];
    if (!has_all_for(each, to)) continue;
    const auto rank = std::tuple(!each.missed, each.landed);
    if (found && rank <= best) continue;
    const auto piece =
        to.missed->first_outside(each.missed ? *each.missed : nothing, kLandingBytes);
    if (!piece) continue;
    found = Copy{index, target, *piece};
    best = rank;
  }
  return found;
}

/// The same where no replica that is up has it: bytes of the newest update that wrote there.
std::optional<ReplicatedRegion::Copy> ReplicatedRegion::next_staged(std::size_t target) const {
  const MissedRanges& missed = *replicas_[target].missed;
  for (auto update = kept_.rbegin(); update != kept_.rend(); ++update) {
    std::uint64_t offset = 0;
    for (const Extent& range : update->ranges) offset += range.end - range.begin;
    for (auto range = update->ranges.rbegin(); range != update->ranges.rend(); ++range) {
      offset -= range->end - range->begin;
      const auto piece = missed.first_inside(*range, kLandingBytes);
      if (!piece) continue;
      std::byte* const bytes = update->staged + offset + (piece->begin - range->begin);
      return Copy{.source = target,
                  .target = target,
                  .piece = *piece,
                  .staged = update->number,
                  .bytes = bytes};
    }
  }
  return std::nullopt;
}

/// Whether it is on its way to have everything again.
bool ReplicatedRegion::returns(const Replica& replica) const {
  if (!replica.session.up() || !replica.catching_up) return false;
  if (!replica.missed || replica.missed->empty()) return true;
  const auto index = static_cast<std::size_t>(&replica - replicas_.data());
  return next_copy(index) || next_staged(index);
}

/// One piece at a time: READ from one replica, written to the other. Never waits.
void ReplicatedRegion::copy_on() {
  if (!copy_ && !ending_) begin_copy();
  if (!copy_) return;
  Replica& source = replicas_[copy_->source];
  Replica& target = replicas_[copy_->target];
  const client::DurableSession& has_it = copy_->writing ? target.session : source.session;
  if (has_it.is_forgotten(copy_->number)) return put_back_copy();
  if (!has_it.has_resolved(copy_->number)) return;
  if (copy_->writing || copy_->overtaken) {
    copy_.reset();
    return;
  }
  write_copy();
}

/// What was READ, or is staged, to the replica that lacks it.
void ReplicatedRegion::write_copy() {
  Replica& target = replicas_[copy_->target];
  const Extent& piece = copy_->piece;
  const bool staged = copy_->staged != 0;
  const persist::UpdateItem item{kDataAt + piece.begin,
                                 {staged ? copy_->bytes : copying_.get(), piece.end - piece.begin,
                                  (staged ? target.staging : target.copying).get()}};
  const client::Ranges ranges(&item, 1);
  const auto number = target.session.update({&ranges, 1});
  if (number.ok()) {
    copy_->writing = true;
    copy_->number = *number;
  } else if (number.code() != ErrorCode::QueueFull || staged) {
    const bool again = number.code() == ErrorCode::QueueFull;
    if (target.session.up() && !again) target.session.mark_down(number.error());
    put_back_copy();
  }
}

void ReplicatedRegion::begin_copy() {
  for (std::size_t index = 0; index < replicas_.size(); ++index) {
    Replica& target = replicas_[index];
    if (!target.session.up() || target.taken_up || !target.missed || target.missed->empty()) {
      continue;
    }
    auto copy = next_copy(index);
    if (!copy) copy = next_staged(index);
    if (!copy) continue;
    if (copy->staged != 0) {
      target.missed->take(copy->piece);
      copy_ = copy;
      return write_copy();
    }
    if (replicas_[copy->source].landed < target.missed_until) continue;
    Replica& source = replicas_[copy->source];
    const Extent& piece = copy->piece;
    const auto number = source.session.read(
        kDataAt + piece.begin, {copying_.get(), piece.end - piece.begin, source.copying.get()});
    if (!number.ok()) continue;
    target.missed->take(piece);
    copy->number = *number;
    copy_ = copy;
    return;
  }
}

/// Its target has gone. A READ that is in flight brings its bytes all the same: until it has, there
/// is no room for those of another.
void ReplicatedRegion::give_up_copy() {
  if (copy_->writing) return put_back_copy();
  Replica& target = replicas_[copy_->target];
  if (!copy_->overtaken && target.missed) {
    target.missed->add(copy_->piece);
    target.missed_until = begun_;
  }
  copy_->overtaken = true;
}

void ReplicatedRegion::put_back_copy() {
  Replica& target = replicas_[copy_->target];
  if (!copy_->overtaken && target.missed) {
    target.missed->add(copy_->piece);
    target.missed_until = begun_;
  }
  copy_.reset();
}

}  // namespace perdure::region
