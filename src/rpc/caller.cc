// A client at work: calls, replies, queries. How it connects is in caller_connect.cc.
#include "rpc/caller.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/assert.h"
#include "core/bytes.h"
#include "core/try.h"

namespace perdure::rpc {
namespace {

constexpr std::uint32_t kPollsPerLook = 8;  // at the clock, which takes as long as a poll
constexpr Nanoseconds kCallerRest = std::chrono::milliseconds(10);
// Calls that wait go together in one update, with one flush, up to so many bytes.
constexpr std::uint64_t kUpdateBytesMax = 64 * 1024;

}  // namespace

Result<RpcHandle> Caller::call(std::uint32_t operation, std::span<const std::byte> payload,
                               std::uint64_t order_key) {
  if (over_) return *over_;
  if (operation == kRpcCancelled) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("operator {} is that of calls that were cancelled", operation)};
  }
  if (payload.size() > payload_bytes_max()) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("a call of {} bytes; the server's rings take {}", payload.size(),
                             payload_bytes_max())};
  }
  const std::uint64_t bytes = entry_bytes(payload.size());
  PERDURE_TRY_VOID(await_room(bytes, Deadline(clock_, options_.server_timeout)));
  if (slow_from_percent_ < 100) slow_down();
  if (over_) return *over_;
  Flight& flight = flights_.add();
  flight.position = place_entry(end_, bytes, ring_bytes_);
  flight.bytes = bytes;
  Entry entry;
  entry.client = client_;
  entry.sequence = begun_ + 1;
  entry.position = flight.position;
  entry.order_key = order_key;
  entry.operation = operation;
  entry.generation = epoch_.value;
  entry.payload_bytes = static_cast<std::uint32_t>(payload.size());
  encode_entry(entry, payload, ring_.get() + flight.position % ring_bytes_);
  end_ = flight.position + bytes;
  ++begun_;
  post_calls();
  return RpcHandle{begun_, client_};
}

/// Room in the ring, and for its reply at the server.
bool Caller::has_room(std::uint64_t bytes) const {
  const std::uint64_t at = place_entry(end_, bytes, ring_bytes_);
  return at + bytes - freed_ <= ring_bytes_ && begun_ - received_ < replies_kept_;
}

Result<void> Caller::await_room(std::uint64_t bytes, Deadline deadline) {
  const Nanoseconds since = clock_.now();
  forget_held();
  while (!has_room(bytes)) {
    wanted_ = std::max(wanted_, received_ + 1);
    progress(deadline);
    if (over_) return *over_;
    if (has_room(bytes)) break;
    // What is applied before it makes room yet, when its replies have come.
    if (held_ != 0 && received_ == applied_) {
      return Error{ErrorCode::QueueFull, set_aside().message};
    }
    if (deadline.passed()) {
      return Error{ErrorCode::QueueFull,
                   fmt::format("{} of {} calls are not applied; wait for one, then call again",
                               begun_ - applied_, begun_)};
    }
    rest(since, deadline.left());
  }
  return {};
}

/// Of the ring, or of the calls that may be in flight, whichever there is more of.
std::uint64_t Caller::percent_full() const {
  return std::max(100 * (begun_ - received_) / replies_kept_, 100 * (end_ - freed_) / ring_bytes_);
}

/// From the threshold on, until the backlog is smaller, and the longer the nearer it is to full. So
/// the server is never without work, and who calls too fast learns it before it has to stop.
void Caller::slow_down() {
  const std::uint64_t full = std::min<std::uint64_t>(percent_full(), 100);
  if (full < slow_from_percent_ || !session_.up()) return;  // who is away applies nothing
  const Nanoseconds since = clock_.now();
  const auto share = static_cast<std::int64_t>(full - slow_from_percent_ + 1);
  const auto of = static_cast<std::int64_t>(100 - slow_from_percent_ + 1);
  const Deadline deadline(clock_, kSlowedMax * share / of);
  ++slowed_;
  const std::uint64_t received = received_;
  while (received_ == received && session_.up() && held_ == 0 && !deadline.passed()) {
    wanted_ = std::max(wanted_, received_ + 1);
    progress(deadline);
    if (received_ == received) rest(since, deadline.left());
  }
  slowed_for_ += clock_.now() - since;
}

/// What nobody else has is made another entry of the same size: so its place and its sequence stay,
/// and what is behind it is not touched.
Result<void> Caller::cancel(const RpcHandle& handle) {
  PERDURE_TRY_VOID(check(handle));
  if (is_cancelled(handle)) return {};
  if (handle.sequence <= sent_) {
    return Error{ErrorCode::Busy,
                 fmt::format("call {} was sent, and is executed if it gets there: wait for it",
                             handle.sequence)};
  }
  cancel_entry(ring_.get() + flight(handle.sequence).position % ring_bytes_);
  flight(handle.sequence).cancelled = true;
  ++cancelled_;
  return {};
}

Result<void> Caller::check(const RpcHandle& handle) const {
  if (handle.client_id == client_ && handle.sequence >= 1 && handle.sequence <= begun_) return {};
  return Error{ErrorCode::InvalidArgument, "the handle is not of a call of this client"};
}

/// What the server says from now on counts: an operator may have decided meanwhile.
void Caller::forget_held() {
  held_ = 0;
  asked_before_ = asking_;
}

Error Caller::set_aside() const {
  return {ErrorCode::Busy,
          fmt::format("call {} of client '{}' is set aside, for its handler failed each time: it "
                      "and what was called behind it wait until an operator retries or drops it",
                      held_, options_.name)};
}

bool Caller::reached(const RpcHandle& handle, RpcLevel level) const {
  if (!check(handle).ok()) return false;
  return handle.sequence <= (level == RpcLevel::Durable ? durable_ : received_);
}

void Caller::want(const RpcHandle& handle) {
  if (check(handle).ok()) wanted_ = std::max(wanted_, handle.sequence);
}

Result<void> Caller::wait(const RpcHandle& handle, RpcLevel level, Nanoseconds timeout) {
  PERDURE_TRY_VOID(check(handle));
  if (is_cancelled(handle)) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("call {} was cancelled: nothing executes it", handle.sequence)};
  }
  if (level == RpcLevel::Applied) want(handle);
  replies_lately_ = level == RpcLevel::Applied;
  forget_held();
  const Deadline deadline(clock_, timeout);
  const Nanoseconds since = clock_.now();
  for (std::uint32_t polls = 1;; ++polls) {
    if (reached(handle, level)) return {};
    progress(deadline);
    if (reached(handle, level)) return {};
    if (over_ && handle.sequence <= durable_) return *over_;
    if (over_) {
      return Error{ErrorCode::OutcomeUnknown, fmt::format("call {} may be executed or not: {}",
                                                          handle.sequence, over_->message)};
    }
    if (level == RpcLevel::Applied && held_ != 0 && handle.sequence >= held_) return set_aside();
    if (polls % kPollsPerLook != 0 && session_.up()) continue;
    if (deadline.passed()) {
      return Error{ErrorCode::TimedOut, fmt::format("call {} is not {} yet{}{}", handle.sequence,
                                                    to_string(level), session_.up() ? "" : ": ",
                                                    session_.up() || !session_.down_reason()
                                                        ? ""
                                                        : session_.down_reason()->message)};
    }
    rest(since, deadline.left());
  }
}

Result<RpcReply> Caller::reply(const RpcHandle& handle, Nanoseconds timeout) {
  if (check(handle).ok() && is_cancelled(handle)) {
    RpcReply cancelled;
    cancelled.refused = ErrorCode::TimedOut;
    cancelled.cancelled = true;
    return cancelled;
  }
  PERDURE_TRY_VOID(wait(handle, RpcLevel::Applied, timeout));
  if (flights_.holds(handle.sequence) && flight(handle.sequence).answered) {
    const Flight& call = flight(handle.sequence);
    RpcReply reply;
    reply.refused = refusal_of(call.status);
    reply.dropped = (call.status & kStatusDropped) != 0;
    reply.cancelled = (call.status & kStatusCancelled) != 0;
    reply.bytes = call.reply;
    return reply;
  }
  return Error{ErrorCode::NotFound,
               fmt::format("the reply of call {} is not kept any more", handle.sequence)};
}

Result<void> Caller::poll() {
  progress();
  session_.check_timeout();
  if (over_) return *over_;
  return {};
}

/// `until`: how long it may wait, if at all, to follow a drift of the connection.
void Caller::progress(const std::optional<Deadline>& until) {
  if (over_) return;
  if (!session_.up()) come_back();
  if (!session_.up()) return;
  session_.poll();
  take_durable();
  take_collected();
  if (session_.up()) fetch_rest();
  if (!session_.up()) return note_lost();
  post_calls();
  ask_for_replies();
  if (until && session_.up()) session_.follow_drift(*until);
  if (!session_.up()) note_lost();
}

void Caller::take_durable() {
  for (; updates_taken_ != updates_begun_; ++updates_taken_) {
    const Update& oldest = updates_[updates_taken_ % updates_.size()];
    if (!session_.has_resolved(oldest.number)) return;
    durable_ = std::max(durable_, oldest.last);
  }
}

/// Until `sequence` of the last call that goes with the next one: those that stand behind it in one
/// piece of the ring.
std::uint64_t Caller::next_batch() const {
  std::uint64_t last = posted_ + 1;
  std::uint64_t bytes = flight(last).bytes;
  const std::uint64_t most = std::min(kUpdateBytesMax, session_.range_bytes_max());
  while (last < begun_) {
    const Flight& next = flight(last + 1);
    const bool goes_on = next.position == flight(last).position + flight(last).bytes &&
                         next.position % ring_bytes_ != 0;
    if (!goes_on || bytes + next.bytes > most) break;
    bytes += next.bytes;
    ++last;
  }
  return last;
}

/// What is written of several calls: first all but the commit word of the first of them, then that.
/// The server looks at a call only when the one before it is whole.
Result<std::uint64_t> Caller::post(std::uint64_t first, std::uint64_t last) {
  const std::uint64_t at = flight(first).position % ring_bytes_;
  const std::uint64_t end = flight(last).position % ring_bytes_ + flight(last).bytes;
  std::byte* const from = ring_.get() + at;
  const std::array<persist::UpdateItem, 2> items = {{
      {kRingAt + at + kCommitWordBytes,
       {from + kCommitWordBytes, end - at - kCommitWordBytes, ring_memory_.get()}},
      {kRingAt + at, {from, kCommitWordBytes, ring_memory_.get()}},
  }};
  if (items[0].data.length <= session_.range_bytes_max()) return session_.begin(items);
  const std::span<const persist::UpdateItem> all(items);
  const std::array<client::Ranges, 2> epochs = {all.first(1), all.subspan(1)};
  return session_.update(epochs);
}

/// A call that is sent alone, where who waits waits for replies. Where durability takes a system
/// call the planned method is used, for its flush does not hold up the session's thread; and so it
/// is where the user forced WRITE.
bool Caller::goes_with_question() const {
  const bool alone = begun_ == posted_ + 1 && received_ == posted_ && session_.idle();
  return replies_lately_ && alone && asking_ == 0 && rest_head_.sequence == 0 &&
         kCallHeadBytes + flight(begun_).bytes <= kRequestBytesMax &&
         options_.primary.value_or(Primary::Send) == Primary::Send &&
         session_.connection().pool.profile.domain != PersistenceDomain::Page;
}

/// False: it is to be sent as others are.
bool Caller::post_with_question() {
  const Flight& call = flight(begun_);
  const std::uint64_t at = call.position % ring_bytes_;
  std::array<std::byte, kRequestBytesMax> question;
  store(question.data(), client_);
  store(question.data() + 8, received_ + 1);
  store(question.data() + 16, at);
  std::copy_n(ring_.get() + at, call.bytes, question.data() + kCallHeadBytes);
  sent_ = std::max(sent_, begun_);  // some of it may go before it fails
  const auto number = session_.request(
      kCallKind, std::span(question).first(kCallHeadBytes + call.bytes), replies_, true);
  if (!number.ok()) return false;
  asking_ = *number;
  asked_with_ = posted_ = begun_;
  return true;
}

void Caller::post_calls() {
  if (session_.up() && goes_with_question() && post_with_question()) return;
  while (session_.up() && posted_ < begun_) {
    const std::uint64_t last = next_batch();
    const auto number = post(posted_ + 1, last);
    if (!number.ok()) {
      if (number.code() == ErrorCode::QueueFull) return;
      sent_ = std::max(sent_, last);  // some of it may have gone before it failed
      if (session_.up()) session_.mark_down(number.error());
      return;
    }
    posted_ = last;
    sent_ = std::max(sent_, posted_);
    PERDURE_ASSERT(updates_begun_ - updates_taken_ < updates_.size());
    updates_[updates_begun_++ % updates_.size()] = {*number, last};
  }
}

/// After nothing has come: polls for a while, then sleeps until something may have.
void Caller::rest(Nanoseconds since, Nanoseconds slice) {
  if (clock_.now() - since < options_.spin) return;
  fabric::Endpoint* const endpoint = session_.endpoint();
  const bool owed = session_.up() && !session_.idle();
  if (owed) session_.check_timeout();
  // With nothing in flight, it is time that it waits for: to ask again, or to come back.
  const Nanoseconds most = owed ? kCallerRest : session_.up() ? kAskPauseMax : kCallerRest;
  if (session_.endpoint() == nullptr) return fabric::wait_any({}, std::min(slice, most));
  fabric::wait_any(std::span(&endpoint, 1), std::min(slice, most));
}

RpcClientStatus Caller::status() const {
  RpcClientStatus status;
  status.up = session_.up();
  if (!session_.up() && session_.down_reason())
    status.down_reason = session_.down_reason()->message;
  status.client_id = client_;
  status.earlier_durable = earlier_;
  status.begun = begun_;
  status.durable = durable_;
  status.applied = applied_;
  status.resent = resent_;
  status.cancelled = cancelled_;
  status.slowed = slowed_;
  status.slowed_for = slowed_for_;
  status.connections = connections_;
  if (session_.up()) {
    status.small_method = session_.small_method().name;
    status.large_method = session_.large_method().name;
  }
  return status;
}

}  // namespace perdure::rpc
