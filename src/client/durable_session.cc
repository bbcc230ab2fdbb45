// Connecting, planning, measuring and time-outs of a DurableSession. How updates of any shape are
// taken apart is in durable_session_updates.cc.
#include "client/durable_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "client/connection_costs.h"
#include "core/assert.h"
#include "core/epoch.h"
#include "core/log_message.h"
#include "core/message_bytes.h"
#include "core/try.h"
#include "persist/wire.h"

namespace perdure::client {
namespace {

constexpr std::uint32_t kEpochStepsMax = 16;  // a million openings

constexpr std::uint64_t kAnySize = std::numeric_limits<std::uint64_t>::max();
constexpr std::size_t kBounceBytes = 256 * 1024;
constexpr Nanoseconds kReplySlice = std::chrono::milliseconds(10);
// For the answer to a probe while updates wait to be sent.
constexpr Nanoseconds kAnswerWithin = std::chrono::milliseconds(20);
// An update that was asked for this often before it was answered took the time that was read.
constexpr std::uint32_t kPollsWatched = 4;
constexpr Nanoseconds kVisibleWithinMax = std::chrono::milliseconds(100);

/// Whether no word of the item is ever torn: the responder's processor stores it, or it is a word
/// that the RNIC stores by ATOMIC WRITE.
bool keeps_words_of(const Method& method, Item item) {
  return std::ranges::any_of(method.requester, [&](const RequesterStep& step) {
    return std::ranges::count(step.items, item) != 0 && step.kind == RequesterStep::Kind::Post &&
           (sends_items(step.verb) || step.verb == Verb::WriteAtomic);
  });
}

}  // namespace

DurableSession::DurableSession(std::shared_ptr<Peer> peer, DurableSessionOptions options)
    : peer_(std::move(peer)), options_(options), backoff_(options_.reconnect, random_secret()) {
  PERDURE_ASSERT(options_.clock != nullptr);
  PERDURE_ASSERT(options_.requests_in_flight >= 1 && options_.requests_in_flight <= kUpdatesMax);
}

DurableSession DurableSession::successor() const {
  PERDURE_ASSERT(!is_open());
  DurableSession next(peer_, options_);
  next.before_ = next.begun_ = next.resolved_ = begun_;
  next.replans_ = replans_;
  next.coalesced_ = coalesced_;
  return next;
}

void DurableSession::go_on_as(DurableSession&& successor) {
  PERDURE_ASSERT(!is_open());
  PERDURE_ASSERT(successor.peer_ == peer_);
  successor.backoff_ = backoff_;
  // Not member by member: what was registered goes before its memory.
  std::destroy_at(this);
  std::construct_at(this, std::move(successor));
}

void DurableSession::close() {
  waiting_.clear();
  tie_.reset();
  connection_.reset();  // closes it; the peer revokes the keys
  requester_.reset();   // now nothing is posted any more that names its memory
}

void DurableSession::give_back(Deadline deadline) {
  if (!connection_) return;
  // It ends in any case: a peer that does not answer sees its connection go.
  const bool all_durable = up() && idle() && options_.level >= Level::Durable;
  (void)peer_->close_session(
      connection_->id, all_durable ? control::Left::AllDurable : control::Left::NotKnown, deadline);
  close();
}

/// A pool whose last writer lies some steps behind is fenced up to this one's epoch. A replica that
/// was away for more openings than that is none; an epoch so far above comes from a pool that
/// somebody has spoilt, and is not spread.
Result<void> DurableSession::come_within_a_step(const control::SessionRequest& request) {
  PERDURE_TRY(pool, peer_->describe(request.pool, opening_deadline()));
  Epoch at = pool.epoch;
  if (at < request.epoch && (request.epoch.value - at.value) / kEpochStepMax > kEpochStepsMax) {
    return Error{
        ErrorCode::InvalidArgument,
        fmt::format("{}: pool '{}' is at epoch {}, and epoch {}, which another peer has come "
                    "to, is too far above: replace or remove {} if it was left behind while the "
                    "others were opened very often, else the replica that has that epoch",
                    peer_->name(), request.pool, at.value, request.epoch.value, peer_->name())};
  }
  while (at.value != 0 && at < request.epoch && request.epoch.value - at.value > kEpochStepMax) {
    at.value += kEpochStepMax;
    PERDURE_TRY_VOID(peer_->fence(request.pool, at, opening_deadline()));
  }
  return {};
}

Result<void> DurableSession::open(const control::SessionRequest& request) {
  close();
  auto opened = peer_->open_session(request, opening_deadline());
  if (!opened.ok() && opened.code() == ErrorCode::InvalidArgument && request.write) {
    PERDURE_TRY_VOID(come_within_a_step(request));
    opened = peer_->open_session(request, opening_deadline());
  }
  if (!opened.ok()) return opened.error();
  connection_ = std::move(*opened);
  if (options_.tie) tie_ = options_.tie(connection_->endpoint->cut_switch());
  if (connection_->message_bytes_max <= 2 * kMessageOverheadBytes) {
    return Error{ErrorCode::ProtocolError,
                 fmt::format("{} offers messages of {} bytes", peer_->name(),
                             connection_->message_bytes_max)};
  }
  return {};
}

Result<std::unique_ptr<fabric::Memory>> DurableSession::register_memory(
    std::span<std::byte> memory) {
  PERDURE_ASSERT(is_open());
  return peer_->device().register_memory(memory, fabric::Access::Local);
}

plan::SetOptions DurableSession::set_options(const Session& session, bool tail_word) const {
  plan::SetOptions options;
  options.tail_word = tail_word;
  options.primary = options_.primary;
  options.level = options_.level;
  options.message_bytes_max = session.message_bytes_max;
  options.immediates = session.remote.length <= persist::kImmediateReach;
  return options;
}

Result<void> DurableSession::check_methods(const Session& reading, bool tail_word) const {
  ServerProfile profile = reading.pool.profile;
  profile.receive_buffers = ReceiveBuffers::Pm;
  profile.capabilities.native_flush = true;
  profile.capabilities.persistent_flush = true;
  const auto choice = plan::choose_methods(profile, set_options(reading, tail_word),
                                           plan::default_costs(profile.transport));
  return choice.ok() ? Result<void>() : choice.error();
}

Result<void> DurableSession::prepare(bool tail_word) {
  auto connected = connect(tail_word);
  if (!connected.ok()) close();  // a requester without methods is none
  return connected;
}

Result<void> DurableSession::connect(bool tail_word) {
  tail_word_ = tail_word;
  if (!bounce_) bounce_ = std::make_unique_for_overwrite<std::byte[]>(kBounceBytes);
  PERDURE_TRY(bounce, register_memory({bounce_.get(), kBounceBytes}));
  bounce_memory_ = std::move(bounce);
  PERDURE_TRY_VOID(open_requester());
  plan::CostModel costs = plan::default_costs(connection_->pool.profile.transport);
  if (options_.measure_costs) {
    PERDURE_TRY(measured, measure(opening_deadline().left(), deadline_));
    costs = measured;
  }
  PERDURE_TRY_VOID(plan_for(costs));
  down_reason_.reset();
  note_progress();
  drift_.restart(options_.clock->now(), true);
  return {};
}

/// Without methods: which ones is chosen by what the connection costs.
Result<void> DurableSession::open_requester() {
  persist::Requester::Options options;
  options.remote = connection_->remote;
  options.queue.depth = connection_->receive_depth;
  options.queue.message_bytes_max = connection_->message_bytes_max;
  options.session = static_cast<std::uint32_t>(connection_->id);
  options.updates_max = kUpdatesMax;
  options.probes = true;
  options.probe_line = options_.probe_line;
  if (options_.ranges_again) {
    options.request_bytes_max = request_bytes_max();
    options.reply_bytes_max = std::max(options_.reply_bytes_max, persist::kAtomicBytes);
  }
  // The responder makes durable what comes so: who asked for less would wait for that.
  const bool by_message =
      options_.level >= Level::Durable && options_.primary.value_or(Primary::Send) == Primary::Send;
  const bool room = options.request_bytes_max > persist::kAtomicPayloadBytes;
  gather_bytes_max_ = by_message && room ? options.request_bytes_max : 0;
  methods_.clear();
  waiting_.clear();
  asked_in_flight_ = 0;
  before_ = resolved_ = begun_;
  requests_resolved_ = bounce_number_ = 0;
  single_ = {};
  PERDURE_TRY(requester, persist::Requester::open(*connection_->endpoint, peer_->device(),
                                                  connection_->pool.profile, {}, options));
  requester_ = std::move(requester);
  return {};
}

Result<plan::CostModel> DurableSession::measure(Nanoseconds answer_within,
                                                const std::optional<Deadline>& until) {
  MeasureOptions options;
  options.clock = options_.clock;
  options.writes = options_.probe_line.has_value();
  options.answer_within = answer_within;
  options.until = until;
  return measure_costs(*requester_, *connection_, options);
}

Result<void> DurableSession::plan_for(const plan::CostModel& costs) {
  PERDURE_ASSERT(up());
  if (std::any_of(methods_.begin(), methods_.end(), replays)) {
    expect(costs);
    return {};
  }
  plan::SetOptions options = set_options(*connection_, tail_word_);
  options.replay = methods_.empty();
  PERDURE_TRY(choice, plan::choose_methods(connection_->pool.profile, options, costs));
  std::vector<Method> methods = {choice.batches.small, choice.batches.large, choice.places.small,
                                 choice.places.large};
  PERDURE_TRY_VOID(requester_->use_methods(methods));
  methods_ = std::move(methods);
  for (const std::size_t pair : {kSmall, kLarge}) {
    keeps_words_[pair] = keeps_words_of(methods_[pair], 1);
    keeps_first_words_[pair] = keeps_words_of(methods_[pair], 0);
  }
  for (const std::size_t place : {kPlaceSmall, kPlaceLarge}) {
    keeps_words_[place] = keeps_words_of(methods_[place], 0);
  }
  const std::uint64_t word_bytes = tail_word_ ? sizeof(std::uint64_t) : 0;
  small_bytes_max_ = std::min(choice.batches.small_bytes_max,
                              requester_->message_payload_max(kSmall) - word_bytes);
  place_small_bytes_max_ =
      std::min(choice.places.small_bytes_max, requester_->message_payload_max(kPlaceSmall));
  const bool any_size = choice.batches.bytes_max == kAnySize && choice.places.bytes_max == kAnySize;
  range_bytes_max_ =
      any_size ? requester_->item_bytes_max() : std::min(small_bytes_max_, place_small_bytes_max_);
  range_bytes_max_ = round_down(range_bytes_max_, kCacheLineBytes);
  expect(costs);
  return {};
}

/// From now on updates should take what they take by these costs.
void DurableSession::expect(const plan::CostModel& costs) {
  costs_ = costs;
  for (std::size_t index = 0; index < kMethods; ++index) {
    expected_[index] = expectation(methods_[index]);
  }
}

DurableSession::Expectation DurableSession::expectation(const Method& method) const {
  constexpr std::uint64_t kApart = 64 * kCacheLineBytes;
  plan::CostModel awake = costs_;
  awake.responder_wake_ns = 0;
  awake.one_sided_wake_ns = 0;
  const auto line = [&](const plan::CostModel& costs, double& fixed, double& per_byte) {
    const auto at = [&](std::uint64_t bytes) {
      return plan::cost_ns(method, connection_->pool.profile.domain, bytes, sizeof(std::uint64_t),
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
void DurableSession::follow_drift(const Deadline& deadline) {
  if (!drifted() || !up() || requester_->begun() != requester_->resolved()) return;
  if (deadline.left() < kMeasureTakes) return;
  const auto measured = measure(kAnswerWithin, deadline);
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
  if (changed) {
    log_message(Severity::Info,
                fmt::format("replica {}: its connection is not what it was; other methods are used "
                            "now",
                            peer_->name()));
  }
  drift_.restart(options_.clock->now(), changed);
}

void DurableSession::poll() {
  if (!up()) return;
  if (auto polled = requester_->poll(); !polled) return mark_down(polled.error());
  const std::uint64_t before = resolved_;
  take_resolved();
  if (!waiting_.empty()) post_waiting();
  if (resolved_ != before || begun_ == resolved_) return;
  ++idle_polls_;
  // Reading the clock costs as much as an empty poll: look at it seldom.
  constexpr std::uint32_t kPollsPerLook = 256;
  if (idle_polls_ % kPollsPerLook == 0) check_timeout();
}

void DurableSession::take_resolved() {
  const std::uint64_t requests = requester_->resolved();
  if (requests == requests_resolved_) return;
  requests_resolved_ = requests;
  note_progress();  // an update may take many, for longer than the time-out
  const std::uint64_t before = resolved_;
  while (resolved_ != begun_ && last_request_[(resolved_ + 1) % kUpdatesMax] <= requests) {
    ++resolved_;
  }
  if (resolved_ == before) return;
  if (asked_in_flight_ != 0) {
    if (auto noted = note_answers(before); !noted) return mark_down(noted.error());
  }
  if (single_.number == resolved_ && begun_ == resolved_) note_time_of_single();
}

void DurableSession::note_time_of_single() {
  if (!costs_.measured) return;
  const Expectation& line = expected_[single_.method];
  const auto bytes = static_cast<double>(single_.bytes);
  const ExpectedTime expected{line.fixed.shortest + line.per_byte.shortest * bytes,
                              line.fixed.longest + line.per_byte.longest * bytes};
  const bool watched = idle_polls_ - single_.polls >= kPollsWatched;
  const Nanoseconds now = options_.clock->now();
  drift_.note(expected, now - single_.since, watched, now);
}

Result<std::uint64_t> DurableSession::begin_by(std::size_t method,
                                               std::span<const persist::UpdateItem> items) {
  if (!waiting_.empty()) return Error{ErrorCode::QueueFull, "an update waits to be posted"};
  PERDURE_TRY(request, requester_->begin(method, items));
  if (options_.ranges_again) note_extents(request, items);
  return note_begun(method, request, items.front().data.length);
}

void DurableSession::time_single(std::size_t method, std::uint64_t bytes) {
  single_ = {begun_, method, bytes, options_.clock->now(), idle_polls_};
}

/// Counts how long the responder has been silent. A clock that jumps, or a process that was stopped
/// or had other things to do, counts as one short step: the responder gets its time to answer all
/// the same. But who looks seldom must not wait for many steps.
void DurableSession::check_timeout() {
  if (!up() || idle()) return;
  const Nanoseconds now = options_.clock->now();
  // The first answer belongs to the opening.
  const Nanoseconds timeout =
      resolved_ > before_ ? options_.timeout : std::max(options_.timeout, options_.open_within);
  if (!silence_) silence_ = Silence{now, now, {}, {}};
  Silence& silence = *silence_;
  silence.watched += std::min(now - silence.last_look, timeout / 8);
  silence.last_look = now;
  if (!silence.overdue && now - silence.since >= timeout) silence.overdue = now;
  const bool seldom_watched = silence.overdue && now - *silence.overdue >= timeout / 2;
  if (silence.watched <= timeout && !seldom_watched) return;
  mark_down({ErrorCode::TimedOut,
             fmt::format("no answer for {} ms", timeout / std::chrono::milliseconds(1))});
}

/// Waits until an update has resolved.
Result<void> DurableSession::await(std::uint64_t number) {
  Deadline deadline = this->deadline();
  for (std::uint64_t round = 0; resolved_ < number; ++round) {
    // Asked first: what came while this process had no processor is an answer, too.
    const bool over = deadline.passed();
    PERDURE_TRY_VOID(requester_->poll());
    const std::uint64_t answered = requests_resolved_;
    take_resolved();
    if (requests_resolved_ != answered) deadline = this->deadline();
    if (!waiting_.empty()) post_waiting();
    if (!up()) return *down_reason_;
    if (resolved_ >= number) break;
    if (over && deadline.passed()) {
      return Error{ErrorCode::TimedOut, "no answer from " + peer_->name()};
    }
    constexpr std::uint64_t kSpinRounds = 1000;
    if (round <= kSpinRounds) continue;
    fabric::Endpoint* endpoint = connection_->endpoint.get();
    fabric::wait_any(std::span(&endpoint, 1), std::min(kReplySlice, deadline.left()));
  }
  return {};
}

Result<void> DurableSession::write_now(std::uint64_t at, std::span<const std::byte> bytes,
                                       std::uint64_t* written) {
  if (!up()) return Error{ErrorCode::Disconnected, "the replica is down"};
  while (!bytes.empty()) {
    // The piece before may be in flight still: its caller had no more time for it.
    PERDURE_TRY_VOID(await(options_.ranges_again ? begun_ : bounce_number_));
    const auto piece =
        bytes.first(std::min<std::uint64_t>({bytes.size(), kBounceBytes, range_bytes_max_}));
    std::copy(piece.begin(), piece.end(), bounce_.get());
    PERDURE_TRY(number, begin_place({at, {bounce_.get(), piece.size(), bounce_memory_.get()}}));
    bounce_number_ = number;
    PERDURE_TRY_VOID(await(number));
    if (written != nullptr) *written += piece.size();
    at += piece.size();
    bytes = bytes.subspan(piece.size());
    // Each piece may be answered at once, and many of them take long all the same.
    if (!bytes.empty() && deadline_ && deadline_->passed()) {
      return Error{ErrorCode::TimedOut, "there was no time left for all of it"};
    }
  }
  return {};
}

Result<void> DurableSession::store_now(std::uint64_t at, std::uint64_t word) {
  if (!up()) return Error{ErrorCode::Disconnected, "the replica is down"};
  PERDURE_TRY_VOID(await(begun_));
  PERDURE_TRY(number, atomic({persist::AtomicOperation::Store, at, word, 0}));
  PERDURE_TRY_VOID(await(number));
  const auto stored = value_before(number);
  return stored.ok() ? Result<void>{} : Result<void>(stored.error());
}

Deadline DurableSession::deadline_after(Nanoseconds silence) const {
  return deadline_ ? deadline_->within(silence) : Deadline(*options_.clock, silence);
}

Deadline DurableSession::opening_deadline() const {
  const Nanoseconds within = options_.open_within;
  return deadline_after(within == Nanoseconds{0} ? options_.timeout : within);
}

Deadline DurableSession::visible_within(Nanoseconds since) const {
  const Nanoseconds within = kVisibleWithinMax;
  const Nanoseconds left = within - std::min(within, options_.clock->now() - since);
  return deadline().within(left);
}

bool DurableSession::visible_by_now(Nanoseconds since) const {
  return options_.clock->now() - since >= kVisibleWithinMax;
}

void DurableSession::mark_down(Error why) {
  log_message(Severity::Warning, fmt::format("replica {} is down: {}", peer_->name(), why.message));
  close();
  down_reason_ = std::move(why);
  backoff_.failed(options_.clock->now());
}

persist::RequesterCounters DurableSession::counters() const {
  return requester_ ? requester_->counters() : persist::RequesterCounters{};
}

}  // namespace perdure::client
