// A region at work: updates to every replica that is up, and how far they are.
#include "region/replicated_region.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "core/assert.h"
#include "core/errno_error.h"
#include "core/random.h"
#include "core/try.h"

namespace perdure::region {
namespace {

// For the question who has taken over: to each peer that is down, and how soon again.
constexpr Nanoseconds kAskWithin = std::chrono::milliseconds(200);
constexpr Nanoseconds kAskAgain = std::chrono::seconds(1);

}  // namespace

ReplicatedRegion::ReplicatedRegion(const RegionOptions& options, const Clock& clock, bool threads)
    : options_(options),
      clock_(clock),
      threads_(threads),
      staging_(options.staging_bytes),
      landing_(std::make_unique_for_overwrite<std::byte[]>(kLandingBytes)),
      copying_(std::make_unique_for_overwrite<std::byte[]>(kLandingBytes)),
      writer_(random_secret()) {}

ReplicatedRegion::~ReplicatedRegion() {
  for (Replica& replica : replicas_) {
    if (replica.connection) replica.connection->stop();
  }
  for (Replica& replica : replicas_) {
    replica.connection.reset();
    replica.session.close();
    replica.landing.reset();
    replica.copying.reset();
    replica.staging.reset();
  }
  if (completion_fd_) ::close(*completion_fd_);
}

std::size_t ReplicatedRegion::up() const {
  return static_cast<std::size_t>(
      std::count_if(replicas_.begin(), replicas_.end(),
                    [](const Replica& replica) { return replica.session.up(); }));
}

/// The last update that has resolved on so many replicas.
std::uint64_t ReplicatedRegion::reached_by(std::size_t replicas) const {
  std::array<std::uint64_t, kReplicasMax> resolved{};
  for (std::size_t index = 0; index < replicas_.size(); ++index) {
    resolved[index] = replicas_[index].resolved;
  }
  std::sort(resolved.begin(), resolved.end(), std::greater<>());
  return resolved[replicas - 1];
}

bool ReplicatedRegion::reached(const RegionTicket& ticket, Level level) const {
  if (refuses_level(level) || ticket.writer != writer_ || ticket.number > begun_) return false;
  return ticket.number <= reached_by(level == Level::Committed ? quorum_ : 1);
}

std::optional<Error> ReplicatedRegion::refuses_level(Level level) const {
  if (level == Level::Received) {
    return Error{ErrorCode::Unsupported,
                 "a region knows the levels visible, durable and committed"};
  }
  if (level <= options_.level || options_.level == Level::Durable) return std::nullopt;
  return Error{ErrorCode::Unsupported,
               fmt::format("{} was opened for {}: nothing in it is ever durable", name(),
                           to_string(options_.level))};
}

/// Whether the replicas that are up, and those that have it, suffice.
bool ReplicatedRegion::can_reach(const RegionTicket& ticket, Level level) const {
  const auto count = std::count_if(replicas_.begin(), replicas_.end(), [&](const Replica& replica) {
    return replica.session.up() || replica.resolved >= ticket.number;
  });
  return static_cast<std::size_t>(count) >= (level == Level::Committed ? quorum_ : 1);
}

/// Why there are too few replicas: a newer writer, or the reasons why they are down.
Error ReplicatedRegion::lost(const std::optional<Deadline>& until) {
  if (find_newer_writer(until)) return *fenced_;
  Error error = too_few(name());
  error.code = ErrorCode::QuorumLost;
  return error;
}

/// What a pool says that a newer writer has been at.
Error ReplicatedRegion::taken_over(const control::PoolDescription& pool) const {
  return {ErrorCode::Fenced, fmt::format("writer '{}' took over with epoch {}; ours was {}",
                                         pool.writer_name, pool.epoch.value, epoch_.value)};
}

/// Whether there is somebody to be asked, and a reason to.
bool ReplicatedRegion::asks_for_writer() const {
  return !fenced_ && up() < quorum_ &&
         std::ranges::any_of(replicas_, [](const Replica& each) { return each.to_be_asked(); });
}

/// Whether one of the peers that are down says so. Each has its own time to answer, so that one
/// that is silent does not speak for the others; and is asked again, for it may be fenced later.
/// Those for whom there is no time by `until` are asked by the next call.
bool ReplicatedRegion::find_newer_writer(const std::optional<Deadline>& until) {
  // Behind the one that was asked last: a silent one may use up all the time that there is.
  const std::size_t first = ask_next_;
  for (std::size_t i = 0; i < replicas_.size(); ++i) {
    if (fenced_) return true;
    const std::size_t index = (first + i) % replicas_.size();
    Replica& replica = replicas_[index];
    if (!replica.to_be_asked()) continue;
    if (until && until->passed()) return false;
    ask_next_ = index + 1;
    const Deadline within(clock_, until ? std::min(until->left(), kAskWithin) : kAskWithin);
    const auto pool = replica.session.peer().describe(options_.pool, within);
    replica.ask_again = Deadline(clock_, kAskAgain);
    // Another pool that has come to its place says nothing of this region.
    const bool other = pool.ok() && !replica.uuid.empty() && pool->uuid != replica.uuid;
    // Nor does one that nobody has looked at: who connects to it does.
    const bool unseen = !was_seen(replica) && options_.reconnect > std::chrono::milliseconds(0);
    if (!pool.ok() || other || unseen || pool->epoch <= epoch_) continue;
    fenced_ = taken_over(*pool);
  }
  return fenced_.has_value();
}

/// Takes answers and posts what waits, everywhere. `until`: how long it may wait, if at all, to
/// follow a drift of a connection.
void ReplicatedRegion::progress(const std::optional<Deadline>& until) {
  for (Replica& replica : replicas_) {
    client::DurableSession& session = replica.session;
    if (session.up()) session.poll();
    take_answers(replica);
    if (!session.up()) {
      note_lost(replica);
      continue;
    }
    send_what_waits(replica);
    if (until && session.up()) session.follow_drift(*until);
  }
  copy_on();
  const std::uint64_t needed = needed_from();
  while (!kept_.empty() && kept_.front().number < needed) kept_.pop_front();
  staging_.release(needed - 1);
}

void ReplicatedRegion::take_answers(Replica& replica) {
  while (!replica.flights.empty() && replica.session.has_resolved(replica.flights.front().number)) {
    replica.landed = replica.flights.front().update;
    replica.flights.pop_front();
  }
  if (!replica.missed) replica.resolved = replica.landed;
}

/// After nothing has come: polls for a while, then sleeps until something may have.
void ReplicatedRegion::rest(Nanoseconds since, Nanoseconds slice) {
  if (clock_.now() - since < options_.spin) return;
  std::vector<fabric::Endpoint*> endpoints;
  for (Replica& replica : replicas_) {
    if (answer_due(replica)) endpoints.push_back(replica.session.endpoint());
  }
  fabric::wait_any(endpoints, std::min(slice, kRestSlice));
  check_timeouts();
}

void ReplicatedRegion::check_timeouts() {
  for (Replica& replica : replicas_) replica.session.check_timeout();
}

Result<std::size_t> ReplicatedRegion::check(std::span<const RangeEpoch> epochs) const {
  if (epochs.empty()) return Error{ErrorCode::InvalidArgument, "an update without an epoch"};
  std::size_t ranges = 0;
  std::size_t bytes = 0;
  for (const RangeEpoch epoch : epochs) {
    if (epoch.empty()) return Error{ErrorCode::InvalidArgument, "an epoch without a range"};
    ranges += epoch.size();
    for (const RangeWrite& range : epoch) {
      const std::size_t length = range.bytes.size();
      if (length == 0 || length > client::kRangeBytesMax) {
        return Error{ErrorCode::InvalidArgument,
                     fmt::format("a range of {} bytes; an update takes 1 to {}", length,
                                 client::kRangeBytesMax)};
      }
      if (length > bytes_ || range.at > bytes_ - length) {
        return Error{ErrorCode::OutOfRange, fmt::format("bytes {}+{} lie outside the region's {}",
                                                        range.at, length, bytes_)};
      }
      bytes += length;
      if (bytes > options_.staging_bytes) {
        return Error{
            ErrorCode::InvalidArgument,
            fmt::format("an update of more than staging_bytes, {}", options_.staging_bytes)};
      }
    }
  }
  if (ranges > kRangesMax) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("an update of {} ranges; it takes {}", ranges, kRangesMax)};
  }
  return bytes;
}

/// Whether every session that is up takes another update.
bool ReplicatedRegion::has_turn() const {
  return std::all_of(replicas_.begin(), replicas_.end(), [this](const Replica& replica) {
    return !replica.session.up() || replica.sent < begun_ ||
           replica.session.in_flight() < client::kUpdatesMax;
  });
}

/// Waits until there is room for another update.
Result<std::span<std::byte>> ReplicatedRegion::make_room(std::size_t bytes) {
  const Nanoseconds since = clock_.now();
  for (;;) {  // a session that is silent goes down, and then no longer counts
    progress();
    if (up() < quorum_) return lost();
    if (has_turn()) {
      const bool few = kept_.size() < kKeptUpdatesMax;
      const auto room = few ? staging_.take(begun_ + 1, bytes) : std::span<std::byte>{};
      if (!room.empty()) return room;
      if (forget_for_one()) continue;
    }
    rest(since, kRestSlice);
  }
}

Result<RegionTicket> ReplicatedRegion::write(std::span<const RangeEpoch> epochs) {
  PERDURE_TRY(bytes, check(epochs));
  PERDURE_TRY(room, make_room(bytes));
  std::byte* to = room.data();
  for (const RangeEpoch epoch : epochs) {
    for (const RangeWrite& range : epoch) {
      std::memcpy(to, range.bytes.data(), range.bytes.size());
      to += range.bytes.size();
    }
  }
  ++begun_;
  keep(epochs, room.data());
  begin_everywhere();
  return RegionTicket{begun_, writer_};
}

/// Until every replica has it that is up, or may come back.
void ReplicatedRegion::keep(std::span<const RangeEpoch> epochs, std::byte* staged) {
  KeptUpdate& update = kept_.emplace_back();
  update.number = begun_;
  update.staged = staged;
  for (const RangeEpoch epoch : epochs) {
    for (const RangeWrite& range : epoch) {
      update.ranges.push_back({range.at, range.at + range.bytes.size()});
    }
    update.epoch_ends.push_back(update.ranges.size());
  }
}

void ReplicatedRegion::begin_everywhere() {
  const KeptUpdate& update = kept_.back();
  for (std::size_t index = 0; index < replicas_.size(); ++index) {
    Replica& replica = replicas_[index];
    if (!replica.session.up()) {
      note_lost(replica);  // also of what was in flight to one that has gone just now
      continue;
    }
    if (replica.sent + 1 != begun_) continue;  // it has its turn when it has caught up
    if (replica.missed) note_sent(index, update);
    send(replica, update);
  }
}

/// A replica that does not take it is down.
void ReplicatedRegion::send(Replica& replica, const KeptUpdate& update) {
  items_.clear();
  std::byte* staged = update.staged;
  for (const Extent& range : update.ranges) {
    const std::uint64_t length = range.end - range.begin;
    items_.push_back({kDataAt + range.begin, {staged, length, replica.staging.get()}});
    staged += length;
  }
  ranges_.clear();
  std::size_t first = 0;
  for (const std::size_t end : update.epoch_ends) {
    ranges_.push_back(client::Ranges(items_).subspan(first, end - first));
    first = end;
  }
  replica.sent = update.number;
  replica.sent_most = std::max(replica.sent_most, update.number);
  const auto number = replica.session.update(ranges_);
  if (number.ok()) {
    replica.flights.push_back({update.number, *number});
  } else if (replica.session.up()) {
    replica.session.mark_down(number.error());
  }
}

/// What came while it was away, in its order.
void ReplicatedRegion::send_what_waits(Replica& replica) {
  if (replica.taken_up) return;
  while (replica.session.up() && replica.sent < begun_ &&
         replica.session.in_flight() < client::kUpdatesMax) {
    send(replica, kept(replica.sent + 1));
  }
}

Result<void> ReplicatedRegion::wait(const RegionTicket& ticket, Level level, Nanoseconds timeout) {
  if (auto refused = refuses_level(level)) return *refused;
  if (ticket.writer != writer_ || ticket.number > begun_) {
    return Error{ErrorCode::InvalidArgument,
                 "the ticket is of another region, or of an earlier opening of this one"};
  }
  const Deadline deadline(clock_, timeout);
  const Nanoseconds since = clock_.now();
  for (;;) {
    progress(deadline);
    if (reached(ticket, level)) return {};
    bring_back(deadline);
    const bool waits_for_it = options_.reconnect > std::chrono::milliseconds(0);
    if (!can_reach(ticket, level) && (!waits_for_it || find_newer_writer(deadline))) {
      return Error{ErrorCode::OutcomeUnknown,
                   fmt::format("update {} is not {}, and may be there or not; {}", ticket.number,
                               to_string(level), lost(deadline).message)};
    }
    if (deadline.passed()) {
      progress();  // bringing one back may have taken all the time
      if (reached(ticket, level)) return {};
      return Error{ErrorCode::TimedOut,
                   fmt::format("update {} is not {} yet", ticket.number, to_string(level))};
    }
    rest(since, deadline.left());
  }
}

Result<void> ReplicatedRegion::poll(Nanoseconds timeout) {
  progress();
  check_timeouts();
  std::optional<Deadline> until;
  if (timeout > Nanoseconds{0}) {
    until.emplace(clock_, timeout);
    // A silent peer may use up what it is given: who asks for a newer writer has the other half.
    const Deadline soon = asks_for_writer() ? Deadline(clock_, timeout / 2) : *until;
    const Nanoseconds since = clock_.now();
    bring_back(soon);
    progress();
    while (up() < quorum_ && connects() && !soon.passed()) {  // there is nothing else to do
      rest(since, std::min(soon.left(), kRestSlice));
      bring_back(soon);
      progress();
    }
  }
  if (up() >= quorum_) return {};
  return lost(until ? *until : Deadline(clock_, timeout));
}

/// Until update `number` of a session has resolved. Errors: Disconnected: it never will; TimedOut:
/// not by `until`.
Result<void> ReplicatedRegion::await(Replica& replica, std::uint64_t number,
                                     const std::optional<Deadline>& until) {
  const client::DurableSession& session = replica.session;
  const Nanoseconds since = clock_.now();
  while (!session.has_resolved(number)) {  // or the session goes down
    if (!session.up()) return Error{ErrorCode::Disconnected, session.down_reason()->message};
    progress();
    if (session.has_resolved(number)) break;
    if (until && until->passed()) {
      return Error{ErrorCode::TimedOut,
                   fmt::format("{} has not answered yet", session.peer().name())};
    }
    rest(since, until ? std::min(until->left(), kRestSlice) : kRestSlice);
  }
  return {};
}

Result<int> ReplicatedRegion::completion_fd() {
  if (completion_fd_) return *completion_fd_;
  const int all = ::epoll_create1(EPOLL_CLOEXEC);
  if (all < 0) return errno_error("epoll_create1", errno);
  completion_fd_ = all;
  for (Replica& replica : replicas_) {
    if (!replica.session.up()) continue;
    if (const auto watched = watch(all, replica); !watched) {
      ::close(all);
      completion_fd_.reset();
      return watched.error();
    }
  }
  return all;
}

/// When its connection ends, the kernel takes the descriptor out.
Result<void> ReplicatedRegion::watch(int all, Replica& replica) {
  const int one = replica.session.endpoint()->wait_fd();
  if (one < 0) {
    return Error{ErrorCode::Unsupported,
                 fmt::format("the device of {} has no descriptor to wait on",
                             replica.session.peer().name())};
  }
  epoll_event event{};
  event.events = EPOLLIN;
  if (::epoll_ctl(all, EPOLL_CTL_ADD, one, &event) != 0) return errno_error("epoll_ctl", errno);
  return {};
}

bool ReplicatedRegion::arm() {
  bool armed = true;
  for (Replica& replica : replicas_) {
    if (replica.session.up()) armed = replica.session.endpoint()->arm() && armed;
  }
  return armed;
}

/// Until everything has resolved on every replica that is up; in an end that has no more time for
/// those that return, on the others.
Result<void> ReplicatedRegion::drain(const Deadline& deadline) {
  const Nanoseconds since = clock_.now();
  for (;;) {
    progress(deadline);
    if (!ending_) bring_back(deadline);
    const auto behind = std::find_if(replicas_.begin(), replicas_.end(), [&](const auto& each) {
      if (!each.session.up() || (ending_ && is_returning(each))) return false;
      return !each.session.idle() || each.sent != begun_ || returns(each);
    });
    if (behind == replicas_.end()) return {};
    if (deadline.passed()) {
      return Error{ErrorCode::TimedOut,
                   fmt::format("{} has {} of {} updates; the replicas may differ",
                               behind->session.peer().name(), behind->resolved, begun_)};
    }
    rest(since, deadline.left());
  }
}

Result<void> ReplicatedRegion::note_equal() {
  PERDURE_TRY_VOID(drain(Deadline(clock_, std::chrono::hours(1))));
  const auto holds_it = [](const Replica& each) { return each.session.up() && !each.missed; };
  const auto enough = [&] {
    return std::ranges::count_if(replicas_, holds_it) >= static_cast<std::ptrdiff_t>(quorum_);
  };
  if (!enough()) return lost();
  for (Replica& replica : replicas_) {
    if (!holds_it(replica)) continue;
    replica.whole = may_know();
    if (auto written = write_state(replica, false); !written && replica.session.up()) {
      replica.session.mark_down(written.error());
    }
    if (!replica.mixed || !replica.session.up()) continue;
    if (auto said = mark_mixed(replica, false); !said && replica.session.up()) {
      replica.session.mark_down(said.error());
    }
  }
  if (!enough()) return lost();
  // The others do not hold the same: each gets everything when it comes back.
  for (Replica& replica : replicas_) {
    if (!may_know() || holds_it(replica)) continue;
    if (replica.session.up()) {
      replica.session.mark_down(
          {ErrorCode::Disconnected, "the others were noted as equal while it was coming back"});
    }
    forget(replica);
  }
  return {};
}

Result<void> ReplicatedRegion::close(Nanoseconds timeout) {
  const Deadline deadline(clock_, timeout);
  // A return may take longer than there is time: those that have everything are to say so.
  const auto drained = drain(Deadline(clock_, timeout - timeout / 4));
  ending_ = true;
  if (!drained.ok()) (void)drain(Deadline(clock_, deadline.left() / 2));
  // What is only visible may be lost here and not there: such a session leaves no end behind.
  const bool lasts = options_.level == Level::Durable || begun_ == 0;
  bool one_is_behind = false;
  for (Replica& replica : replicas_) {
    if (!replica.session.up()) continue;
    const bool behind = is_returning(replica) || !replica.session.idle() || replica.sent != begun_;
    one_is_behind = one_is_behind || behind;
    if (behind || !lasts) continue;
    replica.session.set_deadline(deadline);
    if (auto written = write_state(replica, true); !written && replica.session.up()) {
      replica.session.mark_down(written.error());
    }
  }
  const bool enough = up() >= quorum_ && reached_by(quorum_) == begun_;
  Result<void> closed = enough ? Result<void>{} : Result<void>(lost(deadline));
  if (!drained.ok() && one_is_behind) closed = drained;
  // Whoever opens it next finds no writer. A peer that is silent takes none of the others' time.
  auto to_ask = static_cast<Nanoseconds::rep>(replicas_.size());
  for (Replica& replica : replicas_) {
    if (replica.connection) replica.connection->stop();
  }
  for (Replica& replica : replicas_) {
    const Deadline share(clock_, deadline.left() / to_ask--);
    if (replica.connection && replica.connection->wait(share)) {
      if (auto unused = replica.connection->take(); unused.ok()) unused->session.give_back(share);
    }
    replica.connection.reset();
    replica.session.give_back(share);
  }
  return closed;
}

RegionStatus ReplicatedRegion::status() const {
  RegionStatus status;
  status.epoch = epoch_;
  status.bytes = bytes_;
  status.quorum = quorum_;
  status.begun = begun_;
  status.committed = reached_by(quorum_);
  for (const Replica& replica : replicas_) {
    const client::DurableSession& session = replica.session;
    RegionReplicaStatus each;
    each.peer = session.peer().name();
    each.pool_uuid = replica.uuid;
    each.up = session.up();
    if (!each.up && session.down_reason()) each.down_reason = session.down_reason()->message;
    each.whole = replica.whole;
    each.resolved = replica.resolved;
    each.mixed = replica.mixed;
    each.coalesced = session.coalesced();
    each.catching_up = replica.catching_up;
    each.missed_bytes = replica.missed ? replica.missed->bytes() : 0;
    if (session.up()) {
      each.profile = session.connection().pool.profile;
      each.small_method = session.small_place_method().name;
      each.large_method = session.large_place_method().name;
      each.small_bytes_max = session.small_place_bytes_max();
    }
    status.may_differ =
        status.may_differ || !each.up || each.catching_up || (!each.whole && replicas_.size() > 1);
    status.replicas.push_back(std::move(each));
  }
  return status;
}

}  // namespace perdure::region
