// The responder's side of the data plane: see responder.h and wire.h.
#include "persist/responder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <utility>

#include "core/assert.h"
#include "core/bytes.h"
#include "core/log_message.h"
#include "core/try.h"
#include "core/whole_words.h"
#include "persist/wire.h"

namespace perdure::persist {
namespace {

/// The replayable message in a buffer, if it is whole, of the given session and inside the pool.
std::optional<MessageHeader> whole_message(std::span<const std::byte> bytes, std::uint32_t session,
                                           std::uint64_t exported_length) {
  const auto decoded = decode_message(bytes);
  if (!decoded.ok()) return std::nullopt;
  const MessageHeader& header = *decoded;
  // No message that can be replayed asks for READs: see decode_message.
  const bool replayable = (header.flags & kReplayable) != 0 && (header.flags & kPayloadCrc) != 0;
  if (!replayable || (header.session & 0xffffffu) != session) return std::nullopt;
  for (std::size_t index = 0; index < header.entries; ++index) {
    const Entry entry = entry_at(bytes, index);
    const bool inside =
        entry.length <= exported_length && entry.offset <= exported_length - entry.length;
    if (!inside) return std::nullopt;
  }
  return header;
}

}  // namespace

Responder::Responder(fabric::Endpoint& endpoint, fabric::Device& device, pmem::Region& region,
                     const Options& options)
    : endpoint_(endpoint),
      device_(device),
      region_(region),
      options_(options),
      queue_(options.queue) {
  pending_.reserve(2 * kResponderBurst);
}

Error Responder::no_memory(std::size_t bytes) const {
  return {
      ErrorCode::SystemError,
      fmt::format("a session needs {} bytes for {} messages of up to {} bytes, and this process "
                  "gets no such memory: lower [data] receive_depth or message_bytes_max of the "
                  "daemon's configuration, or raise its limit (ulimit -v)",
                  bytes, queue_.depth, queue_.message_bytes_max)};
}

Result<void> Responder::prepare() {
  const std::size_t bytes = queue_.depth * queue_.message_bytes_max;
  if (persistent_buffers()) {
    const auto& area = options_.persistent_buffers;
    PERDURE_ASSERT(area.length >= queue_.persistent_bytes());
    PERDURE_ASSERT(area.at >= options_.exported.at + options_.exported.length ||
                   area.at + area.length <= options_.exported.at);
    buffers_ = region_.bytes().subspan(area.at + kWatermarkBytes, bytes);
    // A new session begins: what older sessions left in the buffers is applied and void. The
    // watermark has only some bits of a session's number, so theirs goes before it.
    std::vector<pmem::Range> headers;
    for (std::size_t slot = 0; slot < queue_.depth; ++slot) {
      const std::size_t into = slot * queue_.message_bytes_max;
      std::memset(buffers_.data() + into, 0, kMessageHeaderBytes);
      headers.push_back({area.at + kWatermarkBytes + into, kMessageHeaderBytes});
    }
    PERDURE_TRY_VOID(region_.flush(std::span<const pmem::Range>(headers)));
    store(region_.bytes().data() + area.at, encode(Watermark{options_.session, 0}));
    PERDURE_TRY_VOID(region_.flush(area.at, kWatermarkBytes));
  } else {
    dram_buffers_.reset(new (std::nothrow) std::byte[bytes]);  // untouched, no memory yet
    if (dram_buffers_ == nullptr) return no_memory(bytes);
    buffers_ = {dram_buffers_.get(), bytes};
  }
  // A message that finds no buffer waits in the fabric.
  all_buffers_ = std::min(queue_.depth, endpoint_.limits().receive_depth);
  idle_buffers_ = persistent_buffers() ? all_buffers_ : std::min(all_buffers_, kIdleReceiveBuffers);
  PERDURE_TRY(idle_memory,
              device_.register_memory(buffers_.first(idle_buffers_ * queue_.message_bytes_max),
                                      fabric::Access::Local));
  idle_memory_ = std::move(idle_memory);
  PERDURE_TRY_VOID(prepare_mailbox());
  PERDURE_TRY_VOID(prepare_reading());
  PERDURE_TRY(ack_memory, device_.register_memory(ack_bytes_, fabric::Access::Local));
  ack_memory_ = std::move(ack_memory);
  consumed_.reserve(queue_.depth);
  return offer_buffers(idle_buffers_);
}

Result<void> Responder::offer_buffers(std::size_t end) {
  for (; offered_ < end; ++offered_) PERDURE_TRY_VOID(repost(offered_));
  return {};
}

/// The requester does send messages: from now on it has the whole queue. Where there is no memory
/// for that, the session goes on with few buffers, for the fabric holds back what finds none.
Result<void> Responder::offer_the_rest() {
  auto memory = device_.register_memory(buffers_.subspan(idle_buffers_ * queue_.message_bytes_max),
                                        fabric::Access::Local);
  if (!memory.ok()) {
    log_message(Severity::Warning,
                fmt::format("session {} stays with {} receive buffers: {}", options_.session,
                            idle_buffers_, memory.error().message));
    few_buffers_ = true;
    return {};
  }
  rest_memory_ = std::move(memory).value();
  return offer_buffers(all_buffers_);
}

Result<void> Responder::prepare_mailbox() {
  if (!options_.polls) return {};
  const std::size_t bytes = queue_.depth * queue_.message_bytes_max;
  mailbox_.reset(new (std::nothrow) std::byte[bytes]());  // zeros: no message has number 0
  if (mailbox_ == nullptr) return no_memory(bytes);
  polled_.resize(queue_.message_bytes_max);
  PERDURE_TRY(memory,
              device_.register_memory({mailbox_.get(), bytes}, fabric::Access::RemoteReadWrite));
  mailbox_memory_ = std::move(memory);
  return {};
}

fabric::RemoteMemory Responder::mailbox() const {
  if (mailbox_memory_ == nullptr) return {};
  return {mailbox_memory_->key(), mailbox_memory_->base(), mailbox_memory_->bytes().size()};
}

/// Handles the messages that are whole in the mailbox and whose turn it is.
Result<std::size_t> Responder::handle_polled() {
  std::size_t handled = 0;
  for (; mailbox_ != nullptr && !reading_ && handled < kResponderBurst; ++handled) {
    PERDURE_TRY(found, handle_next_polled());
    if (!found) break;
  }
  return handled;
}

/// Whether the next message was in the mailbox. One that is not whole yet is none: its packets come
/// in any order, and its checksum covers all of it.
Result<bool> Responder::handle_next_polled() {
  const std::uint64_t next = handled_ + 1;
  const std::byte* const slot = mailbox_.get() + mailbox_slot(queue_, next);
  if (load<std::uint64_t>(slot + kMessageSequenceAt) != next) return false;
  std::copy_n(slot, polled_.size(), polled_.begin());
  const auto decoded = decode_message(polled_);
  const bool whole = decoded.ok() && (decoded->flags & kPayloadCrc) != 0;
  if (!whole || decoded->sequence != next) return false;
  if ((decoded->flags & kReads) != 0) {
    return Error{ErrorCode::ProtocolError, "a message of the mailbox asks for a READ"};
  }
  PERDURE_TRY_VOID(begin_message());
  PERDURE_TRY_VOID(handle_message(polled_));
  ++handled_;
  return true;
}

Result<std::size_t> Responder::pump() {
  const std::size_t count = endpoint_.poll(completions_);
  std::size_t messages = 0;
  for (std::size_t index = 0; index < count; ++index) {
    const fabric::Completion& completion = completions_[index];
    if (completion.error) {
      return Error{ErrorCode::Disconnected, "the requester's connection ended"};
    }
    if (completion.opcode != fabric::Opcode::Receive) {
      if ((completion.context & kReplyContext) != 0) {
        ++replies_->sent;
      } else if ((completion.context & kReadContext) != 0) {
        --reading_->in_flight;
      } else {
        ack_busy_[completion.context & ~kAckContext] = false;
      }
      continue;
    }
    ++messages;
    const bool at_once = replies_ == nullptr && !reading_ && waiting_.empty();
    auto handled = at_once ? handle(completion) : take(completion);
    if (!handled.ok()) return fail(handled.error());
  }
  if (reading_) {
    auto ended = end_reading();
    if (!ended.ok()) return fail(ended.error());
    messages += *ended;
  }
  if (mailbox_ != nullptr) {
    auto handled = handle_polled();
    if (!handled.ok()) return fail(handled.error());
    messages += *handled;
  }
  if (!waiting_.empty()) {
    auto handled = handle_waiting();
    if (!handled.ok()) return fail(handled.error());
    messages += *handled;
  }
  if (messages != 0 || ack_due_) {
    if (auto finished = finish_burst(); !finished) return fail(finished.error());
  }
  if (count == 0 && !endpoint_.connected()) {
    return Error{ErrorCode::Disconnected, "the requester's connection ended"};
  }
  return messages;
}

Result<void> Responder::begin_message() {
  ++counters_.messages;
  if (persistent_buffers() && handled_ + 1 >= kAppliedMax) {
    return Error{ErrorCode::Unsupported,
                 "the numbers of its messages are used up: open another session"};
  }
  return {};
}

Result<void> Responder::handle(const fabric::Completion& completion) {
  // What was written into the mailbox before this was sent is visible by now, and comes first.
  for (std::size_t taken = 0; mailbox_ != nullptr && taken < queue_.depth; ++taken) {
    PERDURE_TRY(found, handle_next_polled());
    if (!found) break;
  }
  PERDURE_TRY_VOID(begin_message());
  consumed_.push_back(completion.context);
  if (completion.has_immediate) {
    PERDURE_TRY_VOID(handle_immediate(completion));
  } else {
    const auto bytes = buffer(completion.context);
    if (completion.length > bytes.size()) {
      return Error{ErrorCode::ProtocolError, "a message is larger than its receive buffer"};
    }
    const auto message = bytes.first(completion.length);
    PERDURE_TRY_VOID(kind_of(message) == kKindRequest ? handle_request(message)
                                                      : handle_message(message));
  }
  if (reading_) {
    consumed_.pop_back();
    reading_->buffer = completion.context;
    return {};  // handled when its READs are over: see end_reading
  }
  ++handled_;
  return {};
}

/// Whether a message is the next one on its connection.
Result<void> Responder::check_turn(std::uint32_t session, std::uint64_t sequence) const {
  if (session == options_.session && sequence == handled_ + 1) return {};
  return Error{ErrorCode::ProtocolError,
               fmt::format("message {} of session {} where message {} of session {} was due",
                           sequence, session, handled_ + 1, options_.session)};
}

Result<void> Responder::handle_message(std::span<const std::byte> message) {
  PERDURE_TRY(header, decode_message(message));
  PERDURE_TRY_VOID(check_turn(header.session, header.sequence));
  if ((header.flags & kReplayable) != 0 && !persistent_buffers()) {
    return Error{ErrorCode::ProtocolError,
                 "a replayable message, but the receive buffers of this pool are in DRAM"};
  }
  PERDURE_TRY_VOID(check_entries(message, header));
  if ((header.flags & kReads) != 0) return begin_reading(message, header);
  if ((header.flags & kAckWanted) != 0) ack_due_ = true;
  return execute(message, header);
}

namespace {

/// Whether this entry, or one before it in the message, copies all the bytes that it names.
bool is_copied(std::span<const std::byte> message, std::size_t named) {
  const Entry wanted = entry_at(message, named);
  for (std::size_t index = 0; index <= named; ++index) {
    const Entry entry = entry_at(message, index);
    if ((entry.actions & kCopy) == 0 || wanted.offset < entry.offset) continue;
    const std::uint64_t into = wanted.offset - entry.offset;
    if (into <= entry.length && wanted.length <= entry.length - into) return true;
  }
  return false;
}

Error read_only() {
  return Error{ErrorCode::PermissionDenied, "the session may only read; nothing was executed"};
}

Error clean_pages() {
  return Error{ErrorCode::Unsupported,
               "a flush of what a WRITE brought, into pages of a file that the RNIC's writes leave "
               "clean: it would write nothing, so nothing was executed; send the bytes in messages "
               "(`perdure plan --domain page --dma-dirties no`)"};
}

}  // namespace

Result<void> Responder::check_entries(std::span<const std::byte> message,
                                      const MessageHeader& header) const {
  if (header.entries != 0 && !options_.may_write) return read_only();
  for (std::size_t index = 0; index < header.entries; ++index) {
    const Entry entry = entry_at(message, index);
    if (!inside_pool(entry.offset, entry.length)) {
      return Error{ErrorCode::OutOfRange,
                   fmt::format("bytes {}+{} lie outside the pool's {} bytes; nothing was executed",
                               entry.offset, entry.length, options_.exported.length)};
    }
    const bool flushes = (entry.actions & kFlush) != 0;
    if (flushes && !options_.flushes_writes && !is_copied(message, index)) return clean_pages();
  }
  return {};
}

Result<void> Responder::execute(std::span<const std::byte> message, const MessageHeader& header) {
  const std::byte* payload = message.data() + header.bytes();
  std::byte* pool = region_.bytes().data() + options_.exported.at;
  bool flush_named = false;
  for (std::size_t index = 0; index < header.entries; ++index) {
    const Entry entry = entry_at(message, index);
    if ((entry.actions & kCopy) != 0) {
      // What this message asked to flush must be durable before what it orders after it exists.
      if (flush_named) PERDURE_TRY_VOID(flush_pending());
      flush_named = false;
      copy_whole_words(pool + entry.offset, {payload, entry.length});
      payload += entry.length;
      counters_.copied_bytes += entry.length;
      stored_ = true;
    }
    if ((entry.actions & kFlush) != 0) {
      pending_.push_back({options_.exported.at + entry.offset, entry.length});
      flush_named = true;
    }
  }
  return {};
}

Result<void> Responder::handle_immediate(const fabric::Completion& completion) {
  // The length is what is flushed. A provider that reports none (byte_len of the completion) would
  // have us acknowledge bytes that nobody flushed. One that reports too little is found out by the
  // requester, which is told what was reported.
  if (completion.length == 0) {
    return Error{ErrorCode::ProtocolError,
                 "a write with immediate data was completed with a length of 0 bytes"};
  }
  // Where an immediate travels in a message it needs no key of the pool.
  if (!options_.may_write) return read_only();
  written_ += static_cast<std::uint32_t>(completion.length);
  if (!immediate_reacts(completion.immediate)) return {};
  if (!options_.flushes_writes) return clean_pages();
  ack_due_ = true;
  const std::uint64_t offset = immediate_offset(completion.immediate);
  // The immediate says where the write begins only to 64 bytes: flush that much more.
  const std::uint64_t end =
      std::min(offset + completion.length + kImmediateUnitBytes, options_.exported.length);
  if (offset >= end) {
    return Error{ErrorCode::OutOfRange,
                 fmt::format("an immediate names byte {} of a pool of {} bytes", offset,
                             options_.exported.length)};
  }
  pending_.push_back({options_.exported.at + offset, end - offset});
  return {};
}

Result<void> Responder::flush_pending() {
  // Where nothing is to be flushed, what was stored still waits in the processor's store buffer,
  // and the region may be somebody else's by now, or have lost a page: a flush of nothing asks.
  if (!std::exchange(stored_, false) && pending_.empty()) return {};
  if (!pending_.empty()) ++counters_.flush_calls;
  auto flushed = region_.flush(std::span<const pmem::Range>(pending_));
  pending_.clear();
  return flushed;
}

Result<void> Responder::finish_burst() {
  PERDURE_TRY_VOID(flush_pending());
  flushed_ = handled_;
  written_flushed_ = written_;
  // What comes after a request may count on its reply, and recovery stops at a request.
  const bool mark_first = persistent_buffers() && reply_due();
  if (mark_first) PERDURE_TRY_VOID(move_watermark());
  // Credits: without an answer the requester would have to stop when its window of messages is used
  // up.
  if (handled_ - acknowledged_ >= queue_.depth / 4) ack_due_ = true;
  if (reply_due()) post_replies();
  if (ack_due_ && !reply_due()) acknowledge(0);
  if (consumed_.empty()) return {};
  // A buffer may be filled again only when its message is durable at its final place.
  if (persistent_buffers() && !mark_first) PERDURE_TRY_VOID(move_watermark());
  for (const std::uint64_t slot : consumed_) PERDURE_TRY_VOID(repost(slot));
  consumed_.clear();
  if (offered_ < all_buffers_ && !few_buffers_) return offer_the_rest();
  return {};
}

/// Everything that was handled is durable at its final place. Requires that it was flushed.
Result<void> Responder::move_watermark() {
  const auto& area = options_.persistent_buffers;
  store(region_.bytes().data() + area.at, encode(Watermark{options_.session, handled_}));
  PERDURE_TRY_VOID(region_.flush(area.at, kWatermarkBytes));
  marked_ = handled_;
  return {};
}

Result<void> Responder::repost(std::uint64_t slot) {
  const auto bytes = buffer(slot);
  const auto& memory = slot < idle_buffers_ ? idle_memory_ : rest_memory_;
  return endpoint_.post_receive({bytes.data(), bytes.size(), memory.get()}, slot);
}

/// Posts the acknowledgement, or leaves it due when no buffer or no queue entry is free; the next
/// pump, at the latest after the completion of an earlier one, posts it.
void Responder::acknowledge(std::uint8_t status) {
  const auto free = std::find(ack_busy_.begin(), ack_busy_.end(), false);
  if (free == ack_busy_.end()) return;
  const auto index = static_cast<std::size_t>(free - ack_busy_.begin());
  std::byte* bytes = ack_bytes_.data() + index * kAckBytes;
  // Not what was handled: when a burst fails, its first messages are still to be flushed.
  encode_ack({status, flushed_, options_.session, written_flushed_}, bytes);
  fabric::WorkRequest request;
  request.opcode = fabric::Opcode::Send;
  if (options_.acks.length != 0) {
    request.opcode = fabric::Opcode::Write;
    request.remote = options_.acks;
  }
  request.context = kAckContext | index;
  request.segments[0] = {bytes, kAckBytes, ack_memory_.get()};
  request.segment_count = 1;
  const auto posted = endpoint_.post(std::span<const fabric::WorkRequest>(&request, 1));
  if (!posted.ok() || *posted == 0) return;
  *free = true;
  ack_due_ = false;
  acknowledged_ = flushed_;
  ++counters_.acks;
}

/// Tells the requester why, once; what it has in flight is then OutcomeUnknown or refused there.
Error Responder::fail(Error error) {
  if (error.code != ErrorCode::Disconnected) {
    if (error.code != ErrorCode::SystemError) ++counters_.refused;
    acknowledge(static_cast<std::uint8_t>(1 + static_cast<int>(error.code)));
  }
  return error;
}

std::uint64_t ReceiveQueue::persistent_bytes() const {
  return kWatermarkBytes + depth * message_bytes_max;
}

Result<std::unique_ptr<Responder>> Responder::open(fabric::Endpoint& endpoint,
                                                   fabric::Device& device, pmem::Region& region,
                                                   const Options& options) {
  PERDURE_ASSERT(options.reply_bytes_max <= kReplyPayloadMax);
  if (options.queue.depth < 2 * kResponderBurst || options.queue.message_bytes_max < kAckBytes) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("a receive queue needs at least {} buffers", 2 * kResponderBurst)};
  }
  if (options.acks.length != 0 && options.acks.length < kAckBytes) {
    return Error{
        ErrorCode::InvalidArgument,
        fmt::format("acknowledgements of {} bytes do not fit where they are to be written: "
                    "{} bytes",
                    kAckBytes, options.acks.length)};
  }
  std::unique_ptr<Responder> responder(new Responder(endpoint, device, region, options));
  PERDURE_TRY_VOID(responder->prepare());
  return responder;
}

Result<std::uint64_t> replay_messages(pmem::Region& region, pmem::Range exported,
                                      pmem::Range persistent_buffers, const ReceiveQueue& queue) {
  PERDURE_ASSERT(persistent_buffers.length >= queue.persistent_bytes());
  std::byte* const area = region.bytes().data() + persistent_buffers.at;
  const Watermark mark = decode_watermark(load<std::uint64_t>(area));
  struct Found {
    std::uint64_t sequence;
    std::span<const std::byte> message;
  };
  std::vector<Found> found;
  for (std::size_t slot = 0; slot < queue.depth; ++slot) {
    const std::span<const std::byte> bytes(area + kWatermarkBytes + slot * queue.message_bytes_max,
                                           queue.message_bytes_max);
    const auto header = whole_message(bytes, mark.session, exported.length);
    if (header && header->sequence > mark.applied) found.push_back({header->sequence, bytes});
  }
  std::sort(found.begin(), found.end(),
            [](const Found& one, const Found& two) { return one.sequence < two.sequence; });
  std::uint64_t applied = mark.applied;
  for (const Found& next : found) {
    if (next.sequence != applied + 1) break;  // nothing after a hole counts
    PERDURE_TRY(header, decode_message(next.message));
    const std::byte* payload = next.message.data() + header.bytes();
    for (std::size_t index = 0; index < header.entries; ++index) {
      const Entry entry = entry_at(next.message, index);
      if ((entry.actions & kCopy) == 0) continue;
      copy_whole_words(region.bytes().data() + exported.at + entry.offset, {payload, entry.length});
      payload += entry.length;
      PERDURE_TRY_VOID(region.flush(exported.at + entry.offset, entry.length));
    }
    applied = next.sequence;
  }
  store(area, encode(Watermark{mark.session, applied}));
  PERDURE_TRY_VOID(region.flush(persistent_buffers.at, kWatermarkBytes));
  return applied - mark.applied;
}

}  // namespace perdure::persist
