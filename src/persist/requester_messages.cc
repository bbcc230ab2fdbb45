// The requester's side of requests: messages that the responder answers with more than an
// acknowledgement.
#include <fmt/format.h>

#include <algorithm>

#include "core/assert.h"
#include "core/try.h"
#include "persist/requester.h"
#include "persist/wire.h"

namespace perdure::persist {

Result<std::uint64_t> Requester::begin_request(MessageKind kind, std::span<const std::byte> payload,
                                               std::span<std::byte> reply) {
  PERDURE_ASSERT(options_.request_bytes_max != 0);
  if (failure_) return Error{ErrorCode::Disconnected, failure_->message};
  if (begun_ - resolved_ == options_.updates_max) {
    return Error{ErrorCode::QueueFull, "too many updates in flight"};
  }
  if (payload.size() > options_.request_bytes_max || reply.size() > options_.reply_bytes_max) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("a request of {} bytes with {} for its reply; this connection takes "
                             "{} and {}",
                             payload.size(), reply.size(), options_.request_bytes_max,
                             options_.reply_bytes_max)};
  }
  const std::uint64_t number = begun_ + 1;
  const CompiledMethod& compiled = methods_[request_];
  InFlight& started = update(number);
  started.method = &compiled;
  started.ready = started.requests[request_];
  started.burst = 0;
  started.posted = 0;
  started.messages_before = messages_begun_;
  started.completed = 0;
  RequestHeader header;
  header.message = static_cast<std::uint8_t>(kind);
  header.sequence = messages_begun_ + 1;
  header.payload_bytes = static_cast<std::uint32_t>(payload.size());
  header.session = options_.session;
  header.reply_bytes = static_cast<std::uint32_t>(reply.size());
  fabric::Segment& message = started.ready[0].segments[0];
  std::copy(payload.begin(), payload.end(), message.data + kRequestHeaderBytes);
  message.length = encode_request(header, message.data);
  if (compiled.messages() == 2) write_barrier(started);
  for (std::size_t each = 1; each <= compiled.messages(); ++each) {
    written_[(messages_begun_ + each) & (written_.size() - 1)] = written_begun_;
  }
  requested_[requests_begun_++ & slot_mask_] = {number, header.sequence, header.message, reply};
  messages_begun_ += compiled.messages();
  begun_ = number;
  common_room_ = 0;
  if (posting_ == number) {
    // As in begin: an error surfaces at the next poll.
    if (auto advanced = advance(); !advanced) fail(advanced.error());
  }
  return number;
}

/// The empty message that is posted when the request has been answered: see compile_request.
void Requester::write_barrier(const InFlight& started) {
  fabric::Segment& message = started.ready[1].segments[0];
  std::fill_n(message.data, kReplayableBytesMin, std::byte{0});
  message.length = kReplayableBytesMin;
  MessageHeader header;
  header.flags = started.method->requests[1].message_flags;
  header.sequence = started.messages_before + 2;
  header.session = options_.session;
  encode_message(header, {}, message.data);
}

/// An acknowledgement or a reply, while a request is in flight.
Result<Ack> Requester::decode_answer(std::span<const std::byte> bytes) {
  if (kind_of(bytes.first(std::min(bytes.size(), kMessageHeaderBytes))) == kKindReply) {
    return take_reply(bytes);
  }
  PERDURE_TRY(ack, decode_ack(bytes));
  if (ack.status == 0 && ack.sequence >= requested_[replies_taken_ & slot_mask_].sequence) {
    return Error{ErrorCode::ProtocolError, "the peer acknowledged a request without a reply"};
  }
  if (ack.status == 1 + static_cast<int>(ErrorCode::ProtocolError)) {
    return Error{
        ErrorCode::ProtocolError,
        fmt::format("the peer refused message {} or a later one; one of them is a request, "
                    "which older versions do not know",
                    ack.sequence + 1)};
  }
  return ack;
}

/// The reply to the oldest request, which is the acknowledgement of everything up to it.
Result<Ack> Requester::take_reply(std::span<const std::byte> bytes) {
  PERDURE_TRY(header, decode_reply(bytes));
  const Requested& oldest = requested_[replies_taken_ & slot_mask_];
  if (header.ack.session != options_.session || header.ack.sequence != oldest.sequence ||
      header.message != oldest.message || header.payload_bytes > oldest.reply.size()) {
    return Error{ErrorCode::ProtocolError, "the peer replied to what was never asked"};
  }
  Reply& reply = replies_[slot_of(oldest.number)];
  reply = {};
  if (header.ack.status != 0) {
    if (header.ack.status - 1 > static_cast<int>(ErrorCode::SystemError)) {
      return Error{ErrorCode::ProtocolError, "the peer replied with an unknown status"};
    }
    reply.refused = static_cast<ErrorCode>(header.ack.status - 1);
  }
  reply.bytes = header.payload_bytes;
  std::copy_n(bytes.begin() + kReplyHeaderBytes, reply.bytes, oldest.reply.begin());
  ++replies_taken_;
  Ack ack = header.ack;
  ack.status = 0;  // the session goes on
  return ack;
}

}  // namespace perdure::persist
