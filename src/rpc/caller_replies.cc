// What a client asks for: replies, queries, and what of either is larger than a message.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/assert.h"
#include "core/bytes.h"
#include "core/try.h"
#include "rpc/caller.h"

namespace perdure::rpc {
namespace {

constexpr std::size_t kRestCapacity = 64 * 1024;  // of memory that is kept for the next large reply

}  // namespace

/// Replies are asked for when somebody waits for one, and when what is in flight needs room.
bool Caller::replies_due() const {
  if (asking_ != 0 || rest_head_.sequence != 0 || posted_ <= received_) return false;
  const bool room_is_scarce =
      2 * (begun_ - received_) >= replies_kept_ || 2 * (end_ - freed_) >= ring_bytes_;
  return (wanted_ > received_ || room_is_scarce) && clock_.now() >= ask_at_;
}

void Caller::ask_for_replies() {
  if (!session_.up() || !replies_due()) return;
  std::array<std::byte, kCollectRequestBytes> question;
  store(question.data(), client_);
  store(question.data() + 8, received_ + 1);
  const auto number = session_.request(kCollectKind, question, replies_, false);
  if (number.ok()) asking_ = *number;
}

void Caller::take_collected() {
  if (asking_ == 0 || !session_.has_resolved(asking_)) return;
  const std::uint64_t number = std::exchange(asking_, 0);
  const std::uint64_t asked_with = std::exchange(asked_with_, 0);
  const auto bytes = session_.reply_bytes(number);
  if (!bytes.ok() && bytes.code() == ErrorCode::NotFound) {
    over_ =
        Error{ErrorCode::NotFound,
              fmt::format("client '{}' has expired: calls that were not durable may be executed "
                          "or not, and none is twice",
                          options_.name)};
    return session_.mark_down(*over_);
  }
  if (!bytes.ok()) return session_.mark_down(bytes.error());
  durable_ = std::max(durable_, asked_with);
  const auto collected = decode_collected(std::span(replies_).first(*bytes), collected_);
  if (!collected.ok()) return session_.mark_down(collected.error());
  take_replies(collected_);
  const bool is_held = collected_.applied.held && number != asked_before_;
  held_ = is_held ? collected_.applied.sequence + 1 : 0;
}

void Caller::take_replies(const Collected& collected) {
  const std::uint64_t before = received_;
  if (collected.applied.sequence > begun_ || collected.applied.position > end_) {
    return session_.mark_down({ErrorCode::ProtocolError, "the server applied what nobody called"});
  }
  applied_ = std::max(applied_, collected.applied.sequence);
  freed_ = std::max(freed_, collected.applied.position);
  for (const CollectedReply& each : collected.replies) {
    if (each.head.sequence <= received_ || each.head.sequence > applied_) continue;
    const bool cut = collected.cut && &each == &collected.replies.back();
    if (!cut) {
      take_reply(each.head, each.bytes);
      continue;
    }
    if (each.head.bytes > reply_bytes_max_) {
      return session_.mark_down({ErrorCode::ProtocolError, "a reply that is too large"});
    }
    rest_head_ = each.head;
    rest_bytes_.resize(each.head.bytes);
    std::copy(each.bytes.begin(), each.bytes.end(), rest_bytes_.begin());
    rest_.begin({client_, each.head.sequence, each.bytes.size(), PieceQuestion::Of::Reply},
                rest_bytes_);
  }
  ask_pause_ =
      received_ != before ? Nanoseconds{0} : std::clamp(2 * ask_pause_, kAskPauseMin, kAskPauseMax);
  ask_at_ = clock_.now() + ask_pause_;
}

/// Of an earlier process's calls the server may keep the last replies only.
void Caller::take_reply(const ReplyHead& head, std::span<const std::byte> bytes) {
  received_ = head.sequence;
  if (flights_.holds(received_)) flights_.answer(received_, head.status, bytes);
  durable_ = std::max(durable_, received_);  // it needs its entry no more
  flights_.trim(received_);
}

void Caller::fetch_rest() {
  if (rest_head_.sequence == 0) return;
  const auto pumped = rest_.pump(session_);
  if (!pumped.ok()) return session_.mark_down(pumped.error());
  if (!rest_.whole()) return;
  take_reply(rest_head_, rest_.bytes());
  rest_head_ = {};
  ask_at_ = {};
  if (rest_bytes_.capacity() > kRestCapacity) std::vector<std::byte>().swap(rest_bytes_);
}

Result<std::vector<std::byte>> Caller::query(std::uint32_t operation,
                                             std::span<const std::byte> payload, bool own_calls,
                                             Nanoseconds timeout) {
  if (payload.size() > kRequestBytesMax - kQueryHeadBytes) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("a query of {} bytes; it takes {}", payload.size(),
                             kRequestBytesMax - kQueryHeadBytes)};
  }
  const Deadline deadline(clock_, timeout);
  const std::uint64_t after = own_calls ? begun_ : received_;
  std::vector<std::byte> question(kQueryHeadBytes + payload.size());
  store(question.data(), client_);
  store(question.data() + 8, after);
  store(question.data() + 16, operation);
  std::copy(payload.begin(), payload.end(), question.begin() + kQueryHeadBytes);
  std::vector<std::byte> answer;
  const Nanoseconds since = clock_.now();
  for (;;) {
    progress(deadline);
    if (over_) return *over_;
    // Calls that are not sent yet it would wait for in vain.
    if (session_.up() && posted_ >= after) {
      PERDURE_TRY(asked, ask_query(question, deadline, answer));
      if (asked == Asked::Answered) return answer;
    }
    if (deadline.passed()) return Error{ErrorCode::TimedOut, "the query was not answered in time"};
    rest(since, deadline.left());
  }
}

/// Errors: what its handler, or the server, refuses it with.
Result<Caller::Asked> Caller::ask_query(std::span<const std::byte> question, Deadline deadline,
                                        std::vector<std::byte>& answer) {
  const auto number = session_.request(kQueryKind, question, answer_, false);
  if (!number.ok() || !await(*number, deadline).ok()) return Asked::Lost;
  PERDURE_TRY(bytes, session_.reply_bytes(*number));
  PERDURE_TRY(head, decode_query_reply(std::span(answer_).first(bytes)));
  if (head.status == kNotYet) return Asked::Again;
  if (head.status != 0) {
    const auto code = static_cast<ErrorCode>(head.status - 1);
    return Error{code, fmt::format("the server refused a query of operator {}: {}",
                                   load<std::uint32_t>(question.data() + 16), to_string(code))};
  }
  const std::size_t here = bytes - kQueryReplyHeadBytes;
  answer.resize(head.bytes);
  std::copy_n(answer_.begin() + kQueryReplyHeadBytes, here, answer.begin());
  return here == head.bytes ? Asked::Answered : fetch_answer(head, here, deadline, answer);
}

/// What did not fit into the first message. Where it is lost, the query is asked again. It begins
/// so many requests that the session forgets those before them: what they have brought is taken
/// first.
Result<Caller::Asked> Caller::fetch_answer(const QueryReplyHead& head, std::size_t here,
                                           Deadline deadline, std::vector<std::byte>& answer) {
  Pieces pieces;
  pieces.begin({client_, head.number, here, PieceQuestion::Of::Answer}, answer);
  const Nanoseconds since = clock_.now();
  for (;;) {
    const bool others_taken = asking_ == 0 && rest_head_.sequence == 0;
    const auto pumped = others_taken ? pieces.pump(session_) : Result<void>();
    if (!session_.up()) {
      note_lost();
      return Asked::Lost;
    }
    if (pumped.ok() && pieces.whole()) return Asked::Answered;
    if (!pumped.ok() || deadline.passed()) {
      // Pieces that are in flight have places in an answer that may go.
      const Error late{ErrorCode::TimedOut, "an answer was not brought in time"};
      session_.mark_down(pumped.ok() ? late : pumped.error());
      note_lost();
      return Asked::Lost;
    }
    rest(since, deadline.left());
    session_.poll();
    take_durable();
    take_collected();
    if (session_.up()) fetch_rest();
  }
}

}  // namespace perdure::rpc
