// The responder's side of requests: each is handled in its turn, and answered behind the flush.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/assert.h"
#include "core/try.h"
#include "persist/responder.h"

namespace perdure::persist {

/// Whether what was received can not be handled yet: a message before it waits for READs, or it is
/// a request for whose reply there is no room.
bool Responder::must_wait(const fabric::Completion& received) const {
  if (reading_) return true;
  if (replies_ == nullptr) return false;
  if (replies_->made - replies_->sent < kReplies) return false;
  if (received.has_immediate || received.length > queue_.message_bytes_max) return false;
  return kind_of(buffer(received.context).first(received.length)) == kKindRequest;
}

/// Handles what was received, or keeps it until there is room.
Result<void> Responder::take(const fabric::Completion& received) {
  if (waiting_.empty() && !must_wait(received)) return handle(received);
  PERDURE_ASSERT(waiting_.size() < queue_.depth);  // each has a receive buffer of its own
  waiting_.push_back(received);
  return {};
}

Result<std::size_t> Responder::handle_waiting() {
  std::size_t handled = 0;
  // No more at a time than the requester keeps buffers in reserve for.
  while (handled < waiting_.size() && handled < kResponderBurst && !must_wait(waiting_[handled])) {
    PERDURE_TRY_VOID(handle(waiting_[handled]));
    ++handled;
  }
  waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(handled));
  return handled;
}

Result<void> Responder::prepare_replies() {
  auto replies = std::make_unique<Replies>();
  replies->stride = kReplyHeaderBytes + options_.reply_bytes_max;
  const std::size_t bytes = kReplies * replies->stride;
  replies->bytes = std::make_unique<std::byte[]>(bytes);
  PERDURE_TRY(memory,
              device_.register_memory({replies->bytes.get(), bytes}, fabric::Access::Local));
  replies->memory = std::move(memory);
  replies_ = std::move(replies);
  waiting_.reserve(queue_.depth);
  return {};
}

Result<void> Responder::handle_request(std::span<const std::byte> message) {
  PERDURE_TRY(header, decode_request(message));
  PERDURE_TRY_VOID(check_turn(header.session, header.sequence));
  if (replies_ == nullptr) PERDURE_TRY_VOID(prepare_replies());
  PERDURE_ASSERT(replies_->made - replies_->sent < kReplies);
  ReplyHeader& reply = replies_->headers[replies_->made % kReplies];
  const std::size_t room = std::min<std::size_t>(header.reply_bytes, options_.reply_bytes_max);
  reply = {};
  reply.message = header.message;
  reply.ack = {0, header.sequence, options_.session, written_};
  const auto answered =
      answer(header, message, {replies_->at(replies_->made) + kReplyHeaderBytes, room});
  if (medium_failed_) return *medium_failed_;
  if (answered.ok()) {
    PERDURE_ASSERT(*answered <= room);
    reply.payload_bytes = static_cast<std::uint32_t>(*answered);
  } else {
    ++counters_.refused;
    reply.ack.status = static_cast<std::uint8_t>(1 + static_cast<int>(answered.code()));
  }
  ++replies_->made;
  ack_due_ = true;
  return {};
}

/// What its handler does and answers.
Result<std::size_t> Responder::answer(const RequestHeader& header,
                                      std::span<const std::byte> message,
                                      std::span<std::byte> reply) {
  RequestHandler* const handler =
      header.message < kMessageKinds ? options_.handlers[header.message] : nullptr;
  if (handler == nullptr) {
    return Error{ErrorCode::Unsupported,
                 fmt::format("nothing here handles requests of kind {}", header.message)};
  }
  if (handler->writes() && !options_.may_write) {
    return Error{ErrorCode::PermissionDenied, "the session may only read"};
  }
  // What it stores lies over what was handled before it: recovery must not replay that then.
  if (handler->writes() && persistent_buffers() && handled_ > marked_) {
    auto marked = flush_pending();
    if (marked.ok()) marked = move_watermark();
    if (!marked.ok()) {
      medium_failed_ = marked.error();
      return *medium_failed_;
    }
  }
  Request request(message.subspan(kRequestHeaderBytes, header.payload_bytes), reply, region_,
                  options_.exported, pending_, !options_.flushes_writes);
  auto handled = handler->handle(request);
  request.dirty_named();
  medium_failed_ = request.medium_failed();
  return handled;
}

/// Posts replies in the order of their requests, as far as the send queue takes them. Requires that
/// what they speak of was flushed.
void Responder::post_replies() {
  while (reply_due()) {
    const ReplyHeader& header = replies_->headers[replies_->posted % kReplies];
    std::byte* const bytes = replies_->at(replies_->posted);
    fabric::WorkRequest request;
    request.opcode = fabric::Opcode::Send;
    request.context = kReplyContext;
    request.segments[0] = {bytes, encode_reply(header, bytes), replies_->memory.get()};
    request.segment_count = 1;
    const auto posted = endpoint_.post(std::span<const fabric::WorkRequest>(&request, 1));
    if (!posted.ok() || *posted == 0) return;
    ++replies_->posted;
    acknowledged_ = header.ack.sequence;
    if (acknowledged_ == flushed_) ack_due_ = false;
    ++counters_.acks;
  }
}

}  // namespace perdure::persist
