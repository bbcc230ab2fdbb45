#include "log/replica.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "client/connection_costs.h"
#include "core/log_message.h"
#include "core/message_bytes.h"
#include "core/try.h"

namespace perdure::log {
namespace {

constexpr std::uint64_t kAnySize = std::numeric_limits<std::uint64_t>::max();
constexpr std::size_t kBounceBytes = 256 * 1024;
constexpr Nanoseconds kReplySlice = std::chrono::milliseconds(10);
// For the answer to a probe while records wait to be sent.
constexpr Nanoseconds kAnswerWithin = std::chrono::milliseconds(20);
// A batch that was asked for this often before it was answered took the time that was read.
constexpr std::uint32_t kPollsWatched = 4;

}  // namespace

Replica::Replica(std::unique_ptr<client::Peer> peer, ReplicaOptions options)
    : peer_(std::move(peer)),
      options_(std::move(options)),
      backoff_(options_.reconnect, random_secret()) {
  PERDURE_ASSERT(options_.clock != nullptr);
  PERDURE_ASSERT(options_.batches_in_flight >= 1 && options_.batches_in_flight <= kBatchesMax);
}

Result<void> Replica::open_session(const control::SessionRequest& request) {
  requester_.reset();
  session_.reset();
  sending_ = false;
  PERDURE_TRY(session, peer_->open_session(request, deadline()));
  if (pool_ && parse_uuid(session.pool.uuid) != pool_) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("{} has another pool '{}' now ({}) than a moment ago", peer_->name(),
                             request.pool, session.pool.uuid)};
  }
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
  if (!bounce_) bounce_ = std::make_unique_for_overwrite<std::byte[]>(kBounceBytes);
  fabric::Device& device = peer_->device();
  PERDURE_TRY(staged, device.register_memory(staging.memory(), fabric::Access::Local));
  PERDURE_TRY(bounce, device.register_memory({bounce_.get(), kBounceBytes}, fabric::Access::Local));
  PERDURE_TRY(words, device.register_memory(std::as_writable_bytes(std::span(words_)),
                                            fabric::Access::Local));
  staging_memory_ = std::move(staged);
  bounce_memory_ = std::move(bounce);
  words_memory_ = std::move(words);
  PERDURE_TRY_VOID(open_requester());
  plan::CostModel costs = plan::default_costs(session_->pool.profile.transport);
  if (options_.measure_costs) {
    PERDURE_TRY(measured, measure(deadline().left()));
    costs = measured;
  }
  PERDURE_TRY_VOID(plan_for(costs));
  answered_ = requester_->resolved();
  down_reason_.reset();
  note_progress();
  drift_.restart(options_.clock->now(), true);
  return {};
}

/// Without methods: which ones is chosen by what the connection costs.
Result<void> Replica::open_requester() {
  persist::Requester::Options options;
  options.remote = session_->remote;
  options.queue.depth = session_->receive_depth;
  options.queue.message_bytes_max = session_->message_bytes_max;
  options.session = static_cast<std::uint32_t>(session_->id);
  options.updates_max = kUpdatesMax;
  options.probes = true;
  options.probe_line = kProbeLineAt;
  methods_.clear();
  raw_number_ = 0;
  PERDURE_TRY(requester, persist::Requester::open(*session_->endpoint, peer_->device(),
                                                  session_->pool.profile, {}, options));
  requester_ = std::move(requester);
  return {};
}

Result<plan::CostModel> Replica::measure(Nanoseconds answer_within) {
  client::MeasureOptions options;
  options.clock = options_.clock;
  options.writes = true;
  options.answer_within = answer_within;
  options.until = deadline_;
  return client::measure_costs(*requester_, *session_, options);
}

Result<void> Replica::plan_for(const plan::CostModel& costs) {
  PERDURE_ASSERT(up());
  if (std::any_of(methods_.begin(), methods_.end(), replays)) return {};
  client::ChoiceOptions options;
  options.tail_word = options_.shape == LogShape::Compound;
  options.primary = options_.primary;
  options.level = options_.level;
  options.message_bytes_max = session_->message_bytes_max;
  options.replay = methods_.empty();
  PERDURE_TRY(choice, client::choose_methods(session_->pool.profile, options, costs));
  std::vector<Method> methods = {choice.batches.small, choice.batches.large, choice.places.small,
                                 choice.places.large};
  PERDURE_TRY_VOID(requester_->use_methods(methods));
  methods_ = std::move(methods);
  costs_ = costs;
  const std::uint64_t fits = requester_->message_payload_max(kLogSmall) - sizeof(std::uint64_t);
  small_bytes_max_ = std::min(choice.batches.small_bytes_max, fits);
  raw_small_bytes_max_ =
      std::min(choice.places.small_bytes_max, requester_->message_payload_max(kRawSmall));
  const bool any_size = choice.batches.bytes_max > client::kBatchBytesMax &&
                        choice.places.bytes_max > client::kBatchBytesMax;
  piece_bytes_max_ = any_size ? kAnySize : std::min(small_bytes_max_, raw_small_bytes_max_);
  piece_bytes_max_ = round_down(piece_bytes_max_, kCacheLineBytes);
  for (const MethodIndex index : {kLogSmall, kLogLarge}) {
    expected_[index] = expectation(methods_[index]);
  }
  return {};
}

Replica::Expectation Replica::expectation(const Method& method) const {
  constexpr std::uint64_t kApart = 64 * kCacheLineBytes;
  plan::CostModel awake = costs_;
  awake.responder_wake_ns = 0;
  awake.one_sided_wake_ns = 0;
  const auto line = [&](const plan::CostModel& costs, double& fixed, double& per_byte) {
    const auto at = [&](std::uint64_t bytes) {
      return plan::cost_ns(method, session_->pool.profile.domain, bytes, sizeof(std::uint64_t),
                           costs);
    };
    per_byte = (at(2 * kApart) - at(kApart)) / static_cast<double>(kApart);
    fixed = at(kApart) - per_byte * static_cast<double>(kApart);
  };
  Expectation expected;
  line(awake, expected.fixed.shortest, expected.per_byte.shortest);
  line(costs_, expected.fixed.longest, expected.per_byte.longest);
  return expected;
}

/// Something of the connection, or of the machine at its end, is not what it was.
void Replica::measure_again() {
  if (requester_->begun() != requester_->resolved()) return;
  batch_ends_.fill(next_);  // a probe that is left in flight is a batch with nothing in it
  const auto measured = measure(kAnswerWithin);
  answered_ = requester_->resolved();
  note_progress();
  if (!measured.ok() && measured.code() != ErrorCode::TimedOut) return mark_down(measured.error());
  const std::vector<Method> before = methods_;
  if (measured.ok()) {
    if (auto planned = plan_for(*measured); !planned) {
      log_message(Severity::Warning, fmt::format("replica {} keeps its methods: {}", peer_->name(),
                                                 planned.error().message));
    }
  }
  const bool changed = methods_ != before;
  replans_ += changed ? 1 : 0;
  drift_.restart(options_.clock->now(), changed);
}

void Replica::resume_at(Lsn lsn) {
  PERDURE_ASSERT(up());
  next_ = lsn;
  durable_ = lsn;
  committed_word_ = Lsn{};
  word_number_ = 0;
  first_batch_ = requester_->begun();
  answered_ = first_batch_;
  sending_ = true;
  piece_sent_ = 0;
  brought_so_far_ = {};
  backoff_.reset();
  note_progress();
}

inline Result<std::uint64_t> Replica::begin_batch(const Staging::Run& run,
                                                  std::uint64_t ring_bytes) {
  std::array<persist::UpdateItem, 2> items;
  items[0].at = kRingAt + run.lsn.value % ring_bytes;
  items[0].data = {run.data, run.length, staging_memory_.get()};
  const std::size_t method = run.length <= small_bytes_max_ ? kLogSmall : kLogLarge;
  if (options_.shape == LogShape::Singleton) {
    return requester_->begin(method, std::span(items).first(1));
  }
  std::uint64_t& word = words_[(requester_->begun() + 1) % kUpdatesMax];
  word = encode_word(run.end);
  items[1].at = kTailWordAt;
  items[1].data = {reinterpret_cast<std::byte*>(&word), sizeof word, words_memory_.get()};
  return requester_->begin(method, items);
}

/// A part of a record that no update can take whole. Only the last part, which comes behind all
/// others on the connection, makes the record one that is answered for.
Result<std::uint64_t> Replica::begin_piece(const Staging::Run& run, std::uint64_t ring_bytes) {
  const std::uint64_t left = run.length - piece_sent_;
  Staging::Run piece = run;
  piece.lsn.value += piece_sent_;
  piece.data += piece_sent_;
  piece.length = std::min(left, piece_bytes_max_);
  if (piece.length == left) {
    PERDURE_TRY(begun, begin_batch(piece, ring_bytes));
    piece_sent_ = 0;
    return begun;
  }
  persist::UpdateItem item;
  item.at = kRingAt + piece.lsn.value % ring_bytes;
  item.data = {piece.data, piece.length, staging_memory_.get()};
  PERDURE_TRY(begun, requester_->begin(kRawSmall, std::span<const persist::UpdateItem>(&item, 1)));
  piece_sent_ += piece.length;
  return begun;
}

inline void Replica::send(const Staging& staging, Lsn end, std::uint64_t ring_bytes) {
  while (up() && next_ < end &&
         requester_->begun() - requester_->resolved() < options_.batches_in_flight) {
    const std::uint64_t run_bytes_max = std::min(client::kBatchBytesMax, piece_bytes_max_);
    const Staging::Run run = staging.run_at(next_, run_bytes_max, ring_bytes);
    const bool whole = piece_sent_ == 0 && run.length <= piece_bytes_max_;
    const auto begun = whole ? begin_batch(run, ring_bytes) : begin_piece(run, ring_bytes);
    if (!begun.ok()) {
      if (begun.code() != ErrorCode::QueueFull) mark_down(begun.error());
      return;
    }
    if (*begun == answered_ + 1) {
      note_progress();
      // Timing one costs two looks at the clock.
      constexpr std::uint32_t kSinglesPerTimed = 16;
      if (whole && ++singles_ % kSinglesPerTimed == 0) {
        single_ = {*begun, run.length, options_.clock->now(), idle_polls_};
      }
    }
    if (piece_sent_ == 0) next_ = run.end;
    batch_ends_[*begun % kUpdatesMax] = next_;
  }
}

void Replica::pump(const Staging& staging, Lsn end, std::uint64_t ring_bytes) {
  if (!up() || !sending_) return;
  take_answers();
  if (drift_.drifted() && up()) measure_again();
  send(staging, end, ring_bytes);
}

void Replica::offer(const Staging& staging, Lsn end, std::uint64_t ring_bytes, bool look) {
  if (!up() || !sending_) return;
  if (look) take_answers();
  if (!up()) return;
  if (answer_due() && end.value - next_.value < kGatherBytes) return;
  send(staging, end, ring_bytes);
}

void Replica::take_answers() {
  if (auto polled = requester_->poll(); !polled) {
    mark_down(polled.error());
    return;
  }
  const std::uint64_t resolved = requester_->resolved();
  if (resolved != answered_) {
    durable_ = batch_ends_[resolved % kUpdatesMax];
    answered_ = resolved;
    note_progress();
    if (single_.number == resolved && requester_->begun() == resolved) note_time_of_single();
    return;
  }
  if (requester_->begun() == resolved) return;
  // Reading the clock costs as much as an empty poll: look at it seldom.
  constexpr std::uint32_t kPollsPerLook = 256;
  if (++idle_polls_ % kPollsPerLook == 0) look_for_stall();
}

void Replica::note_time_of_single() {
  if (!costs_.measured) return;
  const Expectation& line = expected_[single_.bytes <= small_bytes_max_ ? kLogSmall : kLogLarge];
  const auto bytes = static_cast<double>(single_.bytes);
  const client::ExpectedTime expected{line.fixed.shortest + line.per_byte.shortest * bytes,
                                      line.fixed.longest + line.per_byte.longest * bytes};
  const bool watched = idle_polls_ - single_.polls >= kPollsWatched;
  const Nanoseconds now = options_.clock->now();
  drift_.note(expected, now - single_.since, watched, now);
}

/// Counts how long the replica has been silent. A clock that jumps, or a process that was stopped
/// for a while, counts as one short step: the replica gets its time to answer all the same.
void Replica::look_for_stall() {
  if (!answer_due()) return;
  const Nanoseconds now = options_.clock->now();
  if (last_look_) silent_ += std::min(now - *last_look_, options_.replica_timeout / 8);
  last_look_ = now;
  if (silent_ <= options_.replica_timeout) return;
  mark_down(
      {ErrorCode::TimedOut, fmt::format("no answer for {} ms",
                                        options_.replica_timeout / std::chrono::milliseconds(1))});
}

void Replica::note_progress() {
  silent_ = Nanoseconds{0};
  last_look_.reset();
}

Result<std::uint64_t> Replica::begin_raw(std::uint64_t at, std::size_t bytes) {
  persist::UpdateItem item;
  item.at = at;
  item.data = {bounce_.get(), bytes, bounce_memory_.get()};
  const std::size_t method = bytes <= raw_small_bytes_max_ ? kRawSmall : kRawLarge;
  return requester_->begin(method, std::span<const persist::UpdateItem>(&item, 1));
}

/// Waits for the answer to a piece of write_now.
Result<void> Replica::await_raw(std::uint64_t number) {
  const Deadline deadline = this->deadline();
  for (std::uint64_t round = 0; requester_->resolved() < number; ++round) {
    PERDURE_TRY_VOID(requester_->poll());
    if (requester_->resolved() >= number) break;
    if (deadline.passed()) {
      return Error{ErrorCode::TimedOut, fmt::format("{} stopped answering", peer_->name())};
    }
    constexpr std::uint64_t kSpinRounds = 1000;
    if (round <= kSpinRounds) continue;
    fabric::Endpoint* endpoint = session_->endpoint.get();
    fabric::wait_any(std::span(&endpoint, 1), std::min(kReplySlice, deadline.left()));
  }
  answered_ = requester_->resolved();
  return {};
}

Result<void> Replica::write_now(std::uint64_t at, std::span<const std::byte> bytes) {
  if (!up()) return Error{ErrorCode::Disconnected, "the replica is down"};
  while (!bytes.empty()) {
    // The piece before may be in flight still: its caller had no more time for it.
    PERDURE_TRY_VOID(await_raw(raw_number_));
    const auto piece =
        bytes.first(std::min<std::uint64_t>({bytes.size(), kBounceBytes, piece_bytes_max_}));
    std::copy(piece.begin(), piece.end(), bounce_.get());
    PERDURE_TRY(number, begin_raw(at, piece.size()));
    raw_number_ = number;
    batch_ends_[number % kUpdatesMax] = next_;  // answers come in order
    PERDURE_TRY_VOID(await_raw(number));
    at += piece.size();
    bytes = bytes.subspan(piece.size());
  }
  return {};
}

void Replica::note_state(const std::optional<StoredState>& stored) {
  state_.reset();
  if (stored) state_ = stored->state;
  state_generation_ = stored ? stored->generation : 0;
  state_copy_ = stored ? stored->copy : 1;
}

Result<void> Replica::write_state(const LogState& state) {
  if (state.marks.incomplete) durable_ = Lsn{};  // what it had does not count any more
  const StateBytes bytes = encode_state(state, ++state_generation_);
  const std::size_t older = 1 - state_copy_;
  for (const std::size_t copy : {older, 1 - older}) {
    PERDURE_TRY_VOID(write_now(kStateAt + copy * kStateEvery, bytes));
  }
  state_copy_ = 1 - older;
  state_ = state;
  return {};
}

void Replica::note_committed(Lsn committed) {
  const Lsn word = std::min(committed, durable_);
  if (!sending_ || word <= committed_word_) return;
  // One word at a time is in flight, since they share a place in memory.
  if (requester_->resolved() < word_number_) return;
  words_[kUpdatesMax] = encode_word(word);
  persist::UpdateItem item;
  item.at = kCommittedWordAt;
  item.data = {reinterpret_cast<std::byte*>(&words_[kUpdatesMax]), sizeof(std::uint64_t),
               words_memory_.get()};
  const auto number = requester_->begin(kRawSmall, std::span<const persist::UpdateItem>(&item, 1));
  if (!number.ok()) return;  // it is only late; what is wrong the next batch will say
  batch_ends_[*number % kUpdatesMax] = next_;  // answers come in order
  word_number_ = *number;
  committed_word_ = word;
}

Deadline Replica::deadline() const {
  const Deadline silence(*options_.clock, options_.replica_timeout);
  if (!deadline_ || silence.left() < deadline_->left()) return silence;
  return *deadline_;
}

Deadline Replica::visible_within() const {
  constexpr Nanoseconds kVisibleWithinMax = std::chrono::milliseconds(100);
  return Deadline(*options_.clock, std::min(kVisibleWithinMax, deadline().left()));
}

void Replica::mark_down(Error why) {
  log_message(Severity::Warning, fmt::format("replica {} is down: {}", peer_->name(), why.message));
  requester_.reset();
  session_.reset();  // closes the connection; the peer revokes the keys
  sending_ = false;
  down_reason_ = std::move(why);
  backoff_.failed(options_.clock->now());
}

persist::RequesterCounters Replica::counters() const {
  return requester_ ? requester_->counters() : persist::RequesterCounters{};
}

}  // namespace perdure::log
