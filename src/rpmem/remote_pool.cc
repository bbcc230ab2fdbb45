// A program's memory and its replica on a target: see remote_pool.h. How it comes back after the
// connection was lost is in remote_pool_connect.cc.
#include "rpmem/remote_pool.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>

#include "core/assert.h"
#include "core/bytes.h"
#include "core/forks.h"
#include "core/random.h"
#include "core/try.h"
#include "core/whole_words.h"
#include "persist/deep_flush.h"

namespace perdure::rpmem {
namespace {

constexpr std::size_t kPendingMax = 1024;  // ranges of a lane that may wait for its drain
/// From here on a range is begun when it is flushed; shorter ones are gathered.
constexpr std::uint64_t kGatheredEachMax = 8 * 1024;
constexpr Nanoseconds kFollowSlice = std::chrono::milliseconds(100);
constexpr int kSleepSliceMs = 100;
constexpr std::uint32_t kPollsPerLook = 64;  // at the clock

}  // namespace

RemotePool::RemotePool(RemotePoolOptions options, std::span<std::byte> memory)
    : options_(std::move(options)),
      memory_(memory),
      landing_(std::make_unique_for_overwrite<std::byte[]>(kLandingBytes)),
      made_in_(forks_so_far()),
      writer_(random_secret()),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      lanes_(options_.lanes) {
  PERDURE_ASSERT(options_.lanes > 0 && options_.lanes <= kLanesMax);
}

RemotePool::~RemotePool() {
  if (wake_ >= 0) ::close(wake_);
}

Result<void> RemotePool::require_own_process() const {
  if (made_in_ == forks_so_far()) return {};
  return Error{ErrorCode::InvalidArgument,
               "this process was forked from the one that opened the pool, and has no part in it: "
               "open it here, once the other one has closed it"};
}

Result<void> RemotePool::check(std::uint64_t at, std::uint64_t length, std::size_t lane) const {
  PERDURE_TRY_VOID(require_own_process());
  if (lane >= lanes_.size()) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("lane {}; the pool was opened with {}", lane, lanes_.size())};
  }
  if (at <= memory_.size() && length <= memory_.size() - at) return {};
  return Error{ErrorCode::OutOfRange,
               fmt::format("bytes {}+{} lie outside the pool's {}", at, length, memory_.size())};
}

std::string RemotePool::method() const {
  const LeaderLock turn(mutex_);
  return link_ ? link_->session->small_place_method().name : "";
}

Result<void> RemotePool::persist(std::uint64_t at, std::uint64_t length, std::size_t lane,
                                 Words words) {
  PERDURE_TRY_VOID(check(at, length, lane));
  const LeaderLock turn(mutex_);
  return make_durable({at, length, words});
}

/// As much of a range as one update takes. Whole words go in messages, which end between two lines.
RemotePool::Range RemotePool::first_piece(const Range& range) const {
  if (!goes_whole(range)) {
    return {range.at, std::min(range.length, client::kRangeBytesMax), range.words};
  }
  if (range.length <= whole_bytes_max_) return range;
  return {range.at, round_down(range.at + whole_bytes_max_, kCacheLineBytes) - range.at,
          range.words};
}

/// Several pieces are in flight together where they are messages, and short.
Result<void> RemotePool::make_durable(const Range& range) {
  const std::size_t pieces_max = goes_whole(range) ? client::kUpdatesMax : 1;
  Range left = range;
  while (left.length != 0) {
    Range rest = left;
    std::optional<Begun> first;
    Begun last;
    for (std::size_t piece = 0; piece < pieces_max && rest.length != 0; ++piece) {
      const Range next = first_piece(rest);
      PERDURE_TRY(begun, begin({&next, 1}));
      if (!first) first = begun;
      last = begun;
      rest.at += next.length;
      rest.length -= next.length;
    }
    PERDURE_TRY(resolved, await(last));
    if (resolved && first->link == last.link) left = rest;
  }
  return {};
}

/// One update. Waits while too much is in flight.
Result<RemotePool::Begun> RemotePool::begin(std::span<const Range> ranges) {
  for (;;) {
    if (lost_) return *lost_;
    if (!link_ || !link_->session->up()) {
      PERDURE_TRY_VOID(come_back());
      continue;
    }
    client::DurableSession& session = *link_->session;
    if (session.in_flight() == client::kUpdatesMax) {
      PERDURE_TRY_VOID(await({links_, session.begun() - client::kUpdatesMax + 1}));
      continue;
    }
    const bool whole = std::any_of(ranges.begin(), ranges.end(),
                                   [this](const Range& range)
                                       PERDURE_REQUIRES(mutex_) { return goes_whole(range); });
    items_.clear();
    for (const Range& range : ranges) {
      const bool stays = whole && ranges.size() == 1;  // several are copied into one message
      items_.push_back({range.at, stays ? stage(range)
                                        : fabric::Segment{memory_.data() + range.at, range.length,
                                                          link_->memory.get()}});
    }
    // What has resolved may still be placed late: hence the method for places.
    const bool common = ranges.size() == 1 && session.idle() &&
                        ranges[0].length <= session.range_bytes_max() &&
                        (!whole || session.keeps_words(ranges[0].length));
    if (common) {
      const std::uint64_t number = session.begin_common_place(items_[0]);
      if (number != 0) return Begun{links_, number};
    }
    const client::Ranges epoch(items_);
    const auto number = session.update({&epoch, 1}, whole);
    if (number.ok()) return Begun{links_, *number};
    if (session.up()) return number.error();  // the request is wrong, not the connection
  }
}

/// Copies what the next update is to carry. Requires room for one more in flight.
fabric::Segment RemotePool::stage(const Range& range) {
  const std::uint64_t slot = (link_->session->begun() + 1) % client::kUpdatesMax;
  std::byte* const to = staging_.data() + slot * whole_bytes_max_;
  load_whole_words(to, {memory_.data() + range.at, range.length});
  return {to, range.length, link_->staging.get()};
}

bool RemotePool::is_settled(const Begun& begun) const {
  if (!link_ || links_ != begun.link) return true;
  return link_->session->has_resolved(begun.number) || link_->session->is_forgotten(begun.number);
}

Result<bool> RemotePool::await(const Begun& begun) {
  while (!is_settled(begun)) {
    if (mutex_.is_led()) {
      follow(begun.number);
    } else {
      lead(begun);
    }
  }
  if (lost_) return *lost_;
  if (link_ && links_ == begun.link && link_->session->has_resolved(begun.number)) return true;
  if (!link_ || !link_->session->up()) PERDURE_TRY_VOID(come_back());
  return false;
}

/// Another thread polls for all: until `number` may have resolved, or it is this one's turn to.
void RemotePool::follow(std::uint64_t number) {
  mutex_.follow(number, options_.clock->now() + options_.spin, kFollowSlice);
}

void RemotePool::lead(const Begun& begun) {
  mutex_.begin_leading();
  const Nanoseconds since = options_.clock->now();
  std::uint32_t polls = 0;
  while (!is_settled(begun)) {
    link_->session->poll();
    note_poll();
    if (is_settled(begun)) break;
    // Who had it meanwhile may have lost the connection.
    if (mutex_.give_way() && is_settled(begun)) break;
    if (++polls % kPollsPerLook != 0) continue;
    if (options_.clock->now() - since >= options_.spin) sleep_for_answer();
  }
  mutex_.end_leading();
}

/// Whoever polls takes completions that others wait for.
void RemotePool::note_poll() {
  const client::DurableSession& session = *link_->session;
  mutex_.note_reached(session.begun() - session.in_flight());
  if (!sleeps_) return;
  sleeps_ = false;
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto wrote = ::write(wake_, &one, sizeof one);
}

/// Requires a connection. Until there may be an answer, or somebody else has polled; and whether it
/// comes in time.
void RemotePool::sleep_for_answer() {
  fabric::Endpoint* const endpoint = link_->session->endpoint();
  if (endpoint != nullptr && endpoint->wait_fd() >= 0 && endpoint->arm()) {
    pollfd wanted[] = {{endpoint->wait_fd(), POLLIN, 0}, {wake_, POLLIN, 0}};
    sleeps_ = true;
    mutex_.unlock();
    (void)::poll(wanted, 2, kSleepSliceMs);
    mutex_.lock();
    sleeps_ = false;
    std::uint64_t count = 0;
    [[maybe_unused]] const auto got = ::read(wake_, &count, sizeof count);
  }
  if (link_) link_->session->check_timeout();
}

Result<void> RemotePool::deep_persist(std::uint64_t at, std::uint64_t length, std::size_t lane) {
  PERDURE_TRY_VOID(check(at, length, lane));
  if (length == 0) return {};
  const LeaderLock turn(mutex_);
  return deep_flush({at, length});
}

Result<void> RemotePool::deep_flush(const Range& range) {
  const auto payload = persist::encode_deep_flush(range.at, range.length);
  for (;;) {
    PERDURE_TRY_VOID(make_durable(range));
    if (!link_ || !link_->session->up()) continue;
    client::DurableSession& session = *link_->session;
    const auto number = session.request(persist::MessageKind::DeepFlush, payload, {});
    if (number.ok()) {
      if (settle(*number)) return reply_of(*number);
    } else if (number.code() == ErrorCode::QueueFull) {
      settle(session.begun() - client::kUpdatesMax + 1);
    } else if (session.up()) {
      return number.error();
    }
  }
}

/// What the target answered a request with that has resolved a moment ago.
Result<void> RemotePool::reply_of(std::uint64_t number) {
  PERDURE_TRY_VOID(link_->session->reply_bytes(number));
  return {};
}

/// Polls until an update has resolved, or its connection is lost: then false. Nobody else begins
/// anything meanwhile.
bool RemotePool::settle(std::uint64_t number) {
  client::DurableSession& session = *link_->session;
  for (std::uint32_t polls = 1; session.up() && !session.has_resolved(number); ++polls) {
    session.poll();
    note_poll();
    if (polls % kPollsPerLook == 0) session.check_timeout();
  }
  return session.has_resolved(number);
}

Result<void> RemotePool::flush(std::uint64_t at, std::uint64_t length, std::size_t lane,
                               Words words) {
  PERDURE_TRY_VOID(check(at, length, lane));
  if (length == 0) return {};
  const LeaderLock turn(mutex_);
  return flush_in(lanes_[lane], {at, length, words});
}

Result<void> RemotePool::flush_in(Lane& lane, const Range& range) {
  if (range.length > client::kRangeBytesMax) return make_durable(range);
  for (Range left = range; left.length != 0;) {
    const Range piece = first_piece(left);
    PERDURE_TRY_VOID(flush_piece(lane, piece));
    left.at += piece.length;
    left.length -= piece.length;
  }
  return {};
}

Result<void> RemotePool::flush_piece(Lane& lane, const Range& piece) {
  if (lost_) return *lost_;
  if (lane.pending.size() == kPendingMax) PERDURE_TRY_VOID(drain_lane(lane));
  const bool alone = piece.length >= kGatheredEachMax;
  const std::uint64_t message_bytes_max = persist::OrderedSize{}.with(whole_bytes_max_).bytes();
  const bool full = !lane.gathered.with(piece.length).fits(message_bytes_max);
  if (alone || full) PERDURE_TRY_VOID(begin_gathered(lane));
  lane.pending.push_back(piece);
  lane.gathered = lane.gathered.with(piece.length);
  if (alone) return begin_gathered(lane);
  return {};
}

Result<void> RemotePool::begin_gathered(Lane& lane) {
  const auto gathered = std::span<const Range>(lane.pending).subspan(lane.begun);
  if (gathered.empty()) return {};
  PERDURE_TRY(begun, begin(gathered));
  // What went by an earlier connection is begun again when the lane is drained.
  if (lane.begun == 0 || lane.last.link == begun.link) lane.last = begun;
  lane.begun = lane.pending.size();
  lane.gathered = {};
  return {};
}

Result<void> RemotePool::drain(std::size_t lane) {
  PERDURE_TRY_VOID(check(0, 0, lane));
  const LeaderLock turn(mutex_);
  return drain_lane(lanes_[lane]);
}

/// Updates resolve in order: the last one of the lane says it for all.
Result<void> RemotePool::drain_lane(Lane& lane) {
  if (lost_) return *lost_;
  if (lane.pending.empty()) return {};
  PERDURE_TRY_VOID(begin_gathered(lane));
  PERDURE_TRY(resolved, await(lane.last));
  if (!resolved) {
    for (const Range& each : lane.pending) PERDURE_TRY_VOID(make_durable(each));
  }
  lane.pending.clear();
  lane.begun = 0;
  return {};
}

Result<void> RemotePool::read(std::uint64_t at, std::span<std::byte> into, std::size_t lane) {
  PERDURE_TRY_VOID(check(at, into.size(), lane));
  while (!into.empty()) {
    const auto piece = into.first(std::min(into.size(), kLandingBytes));
    {
      const LeaderLock turn(mutex_);
      PERDURE_TRY_VOID(read_piece(at, piece));
    }
    at += piece.size();
    into = into.subspan(piece.size());
  }
  return {};
}

/// Nobody else polls meanwhile: the landing is one for all.
Result<void> RemotePool::read_piece(std::uint64_t at, std::span<std::byte> into) {
  for (;;) {
    if (lost_) return *lost_;
    if (!link_ || !link_->session->up()) {
      PERDURE_TRY_VOID(come_back());
      continue;
    }
    client::DurableSession& session = *link_->session;
    const auto number = session.read(at, {landing_.get(), into.size(), link_->landing.get()});
    if (number.ok()) {
      if (!settle(*number)) continue;
      std::copy_n(landing_.get(), into.size(), into.data());
      return {};
    }
    if (number.code() == ErrorCode::QueueFull) {
      settle(session.begun() - client::kUpdatesMax + 1);
    } else if (session.up()) {
      return number.error();
    }
  }
}

}  // namespace perdure::rpmem
