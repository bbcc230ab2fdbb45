#include "log/replica.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/log_message.h"
#include "core/try.h"
#include "plan/plan.h"

namespace perdure::log {
namespace {

constexpr std::size_t kBounceBytes = 256 * 1024;
constexpr Nanoseconds kSleepSlice = std::chrono::milliseconds(10);
constexpr std::uint64_t kSmallSampleBytes = 128;
// Header and entries of a message with two items, rounded up.
constexpr std::uint64_t kMessageOverheadBytes = 64;

/// Whether the responder's CPU stores the last item. Methods that differ in this must not follow
/// one another on one word: an older copy could be stored over a newer write.
bool cpu_stores_last_item(const Method& method) {
  const Item last = static_cast<Item>(method.shape.items() - 1);
  for (const auto& reaction : method.responder) {
    for (const ResponderAction& action : reaction) {
      if (action.kind == ResponderAction::Kind::Copy && action.item == last) return true;
    }
  }
  return replays(method);
}

}  // namespace

Replica::Replica(std::unique_ptr<peer::Peer> peer, ReplicaOptions options)
    : peer_(std::move(peer)), options_(std::move(options)) {
  PERDURE_ASSERT(options_.clock != nullptr);
  PERDURE_ASSERT(options_.batches_in_flight >= 1 && options_.batches_in_flight <= kBatchesMax);
}

Result<void> Replica::open_session(const peer::SessionRequest& request) {
  requester_.reset();
  session_.reset();
  sending_ = false;
  PERDURE_TRY(session, peer_->open_session(request, Deadline(*options_.clock, options_.stall)));
  session_ = std::move(session);
  if (session_->message_bytes_max <= 2 * kMessageOverheadBytes) {
    return Error{ErrorCode::ProtocolError, fmt::format("{} offers messages of {} bytes",
                                                       peer_->name(), session_->message_bytes_max)};
  }
  return {};
}

Result<void> Replica::prepare(LogShape shape, Staging& staging) {
  PERDURE_ASSERT(session_.has_value());
  options_.shape = shape;
  PERDURE_TRY_VOID(plan_methods());
  bounce_.resize(kBounceBytes);
  fabric::Device& device = peer_->device();
  PERDURE_TRY(staged, device.register_memory(staging.memory(), fabric::Access::Local));
  PERDURE_TRY(bounce, device.register_memory(bounce_, fabric::Access::Local));
  PERDURE_TRY(words, device.register_memory(std::as_writable_bytes(std::span(words_)),
                                            fabric::Access::Local));
  staging_memory_ = std::move(staged);
  bounce_memory_ = std::move(bounce);
  words_memory_ = std::move(words);
  persist::Requester::Options options;
  options.remote = session_->remote;
  options.queue.depth = session_->receive_depth;
  options.queue.message_bytes_max = session_->message_bytes_max;
  options.session = static_cast<std::uint32_t>(session_->id);
  options.updates_max = kBatchesMax;
  PERDURE_TRY(requester, persist::Requester::open(*session_->endpoint, device,
                                                  session_->pool.profile, methods_, options));
  requester_ = std::move(requester);
  const std::uint64_t fits = requester_->message_payload_max(kLogSmall) - sizeof(std::uint64_t);
  small_bytes_max_ = std::min(small_bytes_max_, fits);
  raw_small_bytes_max_ = std::min(raw_small_bytes_max_, requester_->message_payload_max(kRawSmall));
  answered_ = 0;
  down_reason_.reset();
  note_progress();
  return {};
}

/// Asks the planner for small and for large updates, and where the one becomes the other.
Result<void> Replica::plan_methods() {
  const UpdateShape shape =
      options_.shape == LogShape::Compound ? perdure::compound() : perdure::singleton();
  PERDURE_TRY(log, plan_sizes(shape));
  PERDURE_TRY(raw, plan_sizes(perdure::singleton()));
  if (options_.shape == LogShape::Compound &&
      cpu_stores_last_item(log.small) != cpu_stores_last_item(log.large)) {
    log.small = log.large;
  }
  small_bytes_max_ = log.small_bytes_max;
  raw_small_bytes_max_ = raw.small_bytes_max;
  methods_ = {log.small, log.large, raw.small, raw.large};
  return {};
}

Result<Replica::Sizes> Replica::plan_sizes(const UpdateShape& shape) const {
  const ServerProfile& profile = session_->pool.profile;
  plan::Update update;
  update.shape = shape;
  update.primary = options_.primary;
  update.level = options_.level;
  update.message_bytes_max = session_->message_bytes_max - kMessageOverheadBytes;
  update.bytes = kSmallSampleBytes;
  PERDURE_TRY(small, plan::plan(profile, update));
  // A record that does not fit into a message needs another way, whatever was forced.
  plan::Update large_update = update;
  large_update.bytes = kBatchBytesMax;
  auto large = plan::plan(profile, large_update);
  if (!large.ok() && update.primary) {
    large_update.primary.reset();
    large = plan::plan(profile, large_update);
  }
  if (!large.ok()) return large.error();
  Sizes sizes{small, *large, update.message_bytes_max};
  if (small.name == large->name) return sizes;
  std::uint64_t above = kBatchBytesMax;  // the smallest size known to need another method
  std::uint64_t below = kSmallSampleBytes;
  while (above - below > kSmallSampleBytes) {
    update.bytes = below + (above - below) / 2;
    const auto method = plan::plan(profile, update);
    const bool still_small = method.ok() && method->name == small.name;
    (still_small ? below : above) = update.bytes;
  }
  sizes.small_bytes_max = below;
  return sizes;
}

void Replica::resume_at(Lsn lsn) {
  PERDURE_ASSERT(up());
  next_ = lsn;
  durable_ = lsn;
  first_batch_ = requester_->begun();
  answered_ = first_batch_;
  sending_ = true;
  note_progress();
}

void Replica::pump(const Staging& staging, Lsn end, std::uint64_t ring_bytes) {
  if (!up() || !sending_) return;
  take_answers();
  send(staging, end, ring_bytes);
}

void Replica::offer(const Staging& staging, Lsn end, std::uint64_t ring_bytes, bool look) {
  if (!up() || !sending_) return;
  if (look) take_answers();
  if (!up()) return;
  if (answer_due() && end.value - next_.value < kGatherBytes) return;
  send(staging, end, ring_bytes);
}

void Replica::send(const Staging& staging, Lsn end, std::uint64_t ring_bytes) {
  while (up() && next_ < end &&
         requester_->begun() - requester_->resolved() < options_.batches_in_flight) {
    const Staging::Run run = staging.run_at(next_, kBatchBytesMax, ring_bytes);
    const auto begun = begin_batch(run, ring_bytes);
    if (!begun.ok()) {
      if (begun.code() != ErrorCode::QueueFull) mark_down(begun.error());
      return;
    }
    if (*begun == answered_ + 1) note_progress();
    next_ = next_place(Lsn{run.lsn.value + run.length}, ring_bytes);
    batch_ends_[*begun % kBatchesMax] = next_;
  }
}

Result<std::uint64_t> Replica::begin_batch(const Staging::Run& run, std::uint64_t ring_bytes) {
  std::array<persist::UpdateItem, 2> items;
  items[0].at = kRingAt + run.lsn.value % ring_bytes;
  items[0].data = {run.data, run.length, staging_memory_.get()};
  const std::size_t method = run.length <= small_bytes_max_ ? kLogSmall : kLogLarge;
  if (options_.shape == LogShape::Singleton) {
    return requester_->begin(method, std::span(items).first(1));
  }
  std::uint64_t& word = words_[(requester_->begun() + 1) % kBatchesMax];
  word = encode_word(Lsn{run.lsn.value + run.length});
  items[1].at = kTailWordAt;
  items[1].data = {reinterpret_cast<std::byte*>(&word), sizeof word, words_memory_.get()};
  return requester_->begin(method, items);
}

void Replica::take_answers() {
  if (auto polled = requester_->poll(); !polled) {
    mark_down(polled.error());
    return;
  }
  const std::uint64_t resolved = requester_->resolved();
  if (resolved != answered_) {
    durable_ = batch_ends_[resolved % kBatchesMax];
    answered_ = resolved;
    note_progress();
    return;
  }
  if (requester_->begun() == resolved) return;
  // Reading the clock costs as much as an empty poll: look at it seldom.
  constexpr std::uint32_t kPollsPerLook = 256;
  if (++idle_polls_ % kPollsPerLook == 0) look_for_stall();
}

/// Counts how long the replica has been silent. A clock that jumps, or a process that was stopped
/// for a while, counts as one short step: the replica gets its time to answer all the same.
void Replica::look_for_stall() {
  if (!answer_due()) return;
  const Nanoseconds now = options_.clock->now();
  if (last_look_) silent_ += std::min(now - *last_look_, options_.stall / 8);
  last_look_ = now;
  if (silent_ <= options_.stall) return;
  mark_down({ErrorCode::TimedOut,
             fmt::format("no answer for {} ms", options_.stall / std::chrono::milliseconds(1))});
}

void Replica::note_progress() {
  silent_ = Nanoseconds{0};
  last_look_.reset();
}

Result<std::uint64_t> Replica::begin_raw(std::uint64_t at, std::size_t bytes) {
  persist::UpdateItem item;
  item.at = at;
  item.data = {bounce_.data(), bytes, bounce_memory_.get()};
  const std::size_t method = bytes <= raw_small_bytes_max_ ? kRawSmall : kRawLarge;
  return requester_->begin(method, std::span<const persist::UpdateItem>(&item, 1));
}

Result<void> Replica::write_now(std::uint64_t at, std::span<const std::byte> bytes) {
  if (!up()) return Error{ErrorCode::Disconnected, "the replica is down"};
  while (!bytes.empty()) {
    const auto piece = bytes.first(std::min(bytes.size(), bounce_.size()));
    std::copy(piece.begin(), piece.end(), bounce_.begin());
    const Deadline deadline(*options_.clock, options_.stall);
    PERDURE_TRY(number, begin_raw(at, piece.size()));
    for (std::uint64_t round = 0; requester_->resolved() < number; ++round) {
      PERDURE_TRY_VOID(requester_->poll());
      if (requester_->resolved() >= number) break;
      if (deadline.passed()) {
        return Error{ErrorCode::TimedOut, fmt::format("{} stopped answering", peer_->name())};
      }
      constexpr std::uint64_t kSpinRounds = 1000;
      fabric::Endpoint* endpoint = session_->endpoint.get();
      if (round > kSpinRounds) fabric::wait_any(std::span(&endpoint, 1), kSleepSlice);
    }
    answered_ = requester_->resolved();
    at += piece.size();
    bytes = bytes.subspan(piece.size());
  }
  return {};
}

void Replica::mark_down(Error why) {
  log_message(Severity::Warning, fmt::format("replica {} is down: {}", peer_->name(), why.message));
  requester_.reset();
  session_.reset();  // closes the connection; the peer revokes the keys
  sending_ = false;
  down_reason_ = std::move(why);
}

persist::RequesterCounters Replica::counters() const {
  return requester_ ? requester_->counters() : persist::RequesterCounters{};
}

}  // namespace perdure::log
