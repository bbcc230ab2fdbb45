// The requester's side of the data plane: see requester.h.
//
// An update is posted strictly after all posts of the update before it: a later update may never
// pass an earlier one, which is what keeps a pipeline of compound updates in order.
#include "persist/requester.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "core/assert.h"
#include "core/bytes.h"
#include "core/try.h"
#include "persist/probe_methods.h"
#include "persist/wire.h"

namespace perdure::persist {
Requester::Requester(fabric::Endpoint& endpoint, fabric::Device& device,
                     const ServerProfile& profile, const Options& options)
    : endpoint_(endpoint),
      device_(device),
      profile_(profile),
      options_(options),
      // An entry of a message has 32 bits for it.
      item_bytes_max_(std::min<std::uint64_t>(endpoint.limits().transfer_bytes_max,
                                              std::numeric_limits<std::uint32_t>::max())),
      session_field_(session_field(options.session)),
      answer_bytes_(options.request_bytes_max == 0 ? kAckBytes
                                                   : kReplyHeaderBytes + options.reply_bytes_max),
      updates_(std::bit_ceil(options.updates_max)),
      slot_mask_(updates_.size() - 1),
      requested_(options.request_bytes_max == 0 ? 0 : updates_.size()),
      replies_(requested_.size()) {}

/// Whether nothing is wrong with the items of an update: see refusal.
inline bool Requester::acceptable(const CompiledMethod& method,
                                  std::span<const UpdateItem> items) const {
  if (items.size() != method.items.size()) return false;
  std::uint64_t sent = 0;
  for (std::size_t index = 0; index < items.size(); ++index) {
    const UpdateItem& item = items[index];
    const ItemUse use = method.items[index];
    if (!inside_pool(item)) return false;
    if (use.word && !is_word(item)) return false;
    if (use.immediate && item.at + item.data.length > kImmediateReach) return false;
    if (use.sent) sent += item.data.length;
  }
  return sent <= options_.queue.message_bytes_max - method.message_header_bytes_max;
}

/// What is wrong with items that are not acceptable.
Error Requester::refusal(const CompiledMethod& method, std::span<const UpdateItem> items) const {
  if (items.size() != method.items.size()) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("method '{}' takes {} items, not {}", method.source.name,
                             method.items.size(), items.size())};
  }
  for (std::size_t index = 0; index < items.size(); ++index) {
    const UpdateItem& item = items[index];
    if (!inside_pool(item)) {
      return Error{ErrorCode::OutOfRange,
                   fmt::format("bytes {}+{}: a connection takes 1 to {} at a time, of a pool of {}",
                               item.at, item.data.length, item_bytes_max_, options_.remote.length)};
    }
    if (method.items[index].word && !is_word(item)) {
      return Error{ErrorCode::InvalidArgument,
                   fmt::format("method '{}' takes only an aligned 8-byte word as item {}",
                               method.source.name, item_name(static_cast<Item>(index)))};
    }
    if (method.items[index].immediate && item.at + item.data.length > kImmediateReach) {
      return Error{ErrorCode::OutOfRange, "an immediate does not reach beyond 128 GiB"};
    }
  }
  return Error{ErrorCode::InvalidArgument,
               fmt::format("the items do not fit into one message of {} bytes",
                           options_.queue.message_bytes_max)};
}

namespace {

/// Makes one piece of a message that is too short to be in its receive buffer for certain, and
/// longer by zeros.
void gather_short_message(std::byte* buffer, fabric::WorkRequest& request) {
  std::size_t bytes = request.segments[0].length;
  for (std::size_t piece = 1; piece < request.segment_count; ++piece) {
    const fabric::Segment& gathered = request.segments[piece];
    std::memcpy(buffer + bytes, gathered.data, gathered.length);
    bytes += gathered.length;
  }
  std::memset(buffer + bytes, 0, kReplayableBytesMin - bytes);
  request.segments[0].length = kReplayableBytesMin;
  request.segment_count = 1;
}

/// Where the responder READs an item.
void put_source(const fabric::Segment& data, std::byte* to) {
  const auto into = static_cast<std::uint64_t>(data.data - data.memory->bytes().data());
  store(to, data.memory->key());
  store(to + sizeof(std::uint64_t), data.memory->base() + into);
}

}  // namespace

inline void Requester::write_message(const InFlight& started, const CompiledRequest& compiled,
                                     std::span<const UpdateItem> items,
                                     fabric::WorkRequest& request) {
  std::byte* const buffer = request.segments[0].data;
  MessageHeader header;
  header.entries = static_cast<std::uint8_t>(compiled.entries.size());
  header.flags = compiled.message_flags;
  header.sequence = started.messages_before + compiled.messages;
  header.session = options_.session;
  std::size_t bytes = header.bytes();  // of the buffer
  std::size_t segment = 1;
  for (std::size_t index = 0; index < compiled.entries.size(); ++index) {
    const CompiledEntry entry = compiled.entries[index];
    const UpdateItem& item = items[entry.item];
    const std::size_t length = item.data.length;
    put_entry(buffer, index, {item.at, static_cast<std::uint32_t>(length), entry.actions});
    if ((entry.actions & kRead) != 0) {
      put_source(item.data, buffer + bytes);
      bytes += kReadSourceBytes;
      header.payload_bytes += kReadSourceBytes;
    }
    if ((entry.actions & kCopy) == 0) continue;
    header.payload_bytes += static_cast<std::uint32_t>(length);
    if (compiled.gathered != 0) {
      request.segments[segment++] = item.data;
    } else {
      std::memcpy(buffer + bytes, item.data.data, length);
      bytes += length;
    }
  }
  request.segments[0].length = bytes;
  if ((header.flags & kReplayable) != 0 && compiled.padding_bytes == 0) {
    request.segment_count = static_cast<std::uint8_t>(segment);
    const std::size_t whole = header.bytes() + header.payload_bytes;
    if (whole < kReplayableBytesMin) {
      gather_short_message(buffer, request);
      bytes = whole;
      segment = 1;
    }
  }
  if ((header.flags & kPayloadCrc) == 0) {
    encode_message(header, {}, buffer);
    return;
  }
  std::array<std::span<const std::byte>, fabric::kSegmentsMax> payload;
  payload[0] = {buffer + header.bytes(), bytes - header.bytes()};
  for (std::size_t piece = 1; piece < segment; ++piece) {
    payload[piece] = {request.segments[piece].data, request.segments[piece].length};
  }
  encode_message(header, std::span(payload).first(segment), buffer);
}

/// What the update brings to a request that is ready.
inline void Requester::fill_in(const InFlight& started, const CompiledRequest& compiled,
                               std::span<const UpdateItem> items, fabric::WorkRequest& request) {
  if (compiled.opcode == fabric::Opcode::Send || compiled.polled) {
    write_message(started, compiled, items, request);
    if (compiled.polled) {
      const std::uint64_t sequence = started.messages_before + compiled.messages;
      request.remote_offset = mailbox_slot(options_.queue, sequence);
    }
    return;
  }
  const UpdateItem& item = items[compiled.item];
  request.remote_offset = item.at;
  switch (compiled.opcode) {
    case fabric::Opcode::Read:
      if (compiled.brings) {
        request.segments[0] = item.data;
        break;
      }
      // One byte inside the written range: its answer pushes every earlier write before it.
      request.remote_offset = item.at + item.data.length - 1;
      break;
    case fabric::Opcode::Flush: request.flush_length = item.data.length; break;
    case fabric::Opcode::SendFlush:
      request.flush_length = compiled.names_item ? item.data.length : 0;
      break;
    case fabric::Opcode::AtomicWrite: request.operand = load<std::uint64_t>(item.data.data); break;
    default:
      request.segments[0] = item.data;
      request.immediate = encode_immediate(item.at, compiled.wants_ack);
      break;
  }
}

Result<std::uint64_t> Requester::begin(std::size_t method, std::span<const UpdateItem> items) {
  PERDURE_ASSERT(method < methods_.size());
  if (items.size() == 1 || items.size() == 2) {
    const UpdateItem* const word = items.size() == 2 ? &items[1] : nullptr;
    if (const std::uint64_t sent = begin_common(method, items[0], word); sent != 0) return sent;
  }
  if (failure_) return Error{ErrorCode::Disconnected, failure_->message};
  if (begun_ - resolved_ == options_.updates_max) {
    return Error{ErrorCode::QueueFull, "too many updates in flight"};
  }
  const std::uint64_t number = begun_ + 1;
  const CompiledMethod& compiled = methods_[method];
  InFlight& started = update(number);
  started.method = &compiled;
  started.ready = started.requests[method];
  started.burst = 0;
  started.posted = 0;
  started.messages_before = messages_begun_;
  started.completed = 0;
  if (!acceptable(compiled, items)) return refusal(compiled, items);
  common_room_ = 0;
  fabric::WorkRequest* request = started.ready.data();
  for (const CompiledRequest& each : compiled.requests) {
    fill_in(started, each, items, *request++);
    if (each.opcode == fabric::Opcode::WriteImm) {
      immediates_sent_ = true;
      written_begun_ += static_cast<std::uint32_t>(items[each.item].data.length);
    }
    if (each.carries_message()) note_length(started.messages_before + each.messages);
  }
  messages_begun_ += compiled.messages();
  begun_ = number;
  // An error while posting surfaces at the next poll: from here on the outcome is unknown.
  if (posting_ == number) {
    if (auto advanced = advance(); !advanced) fail(advanced.error());
  }
  return number;
}

/// What limits common updates, looked at anew. False: none can be begun now.
bool Requester::find_room() {
  if (failure_ || posting_ != begun_ + 1) return false;
  const std::uint64_t allowed = messages_allowed();
  common_room_ = std::min(options_.updates_max - (begun_ - resolved_),
                          allowed - std::min(allowed, messages_begun_));
  return common_room_ != 0;
}

void Requester::fail(Error error) {
  failure_ = std::move(error);
  common_room_ = 0;
}

Result<std::uint64_t> Requester::begin_probe(Probe probe) {
  PERDURE_ASSERT(options_.probes);
  const bool writes = probe == Probe::Write || probe == Probe::WriteMessage;
  if (writes) PERDURE_ASSERT(options_.probe_line.has_value());
  UpdateItem item;
  if (writes) item.at = *options_.probe_line;
  item.data = {padding_.data(), writes ? kProbeLineBytes : 1, padding_memory_.get()};
  const std::size_t method = first_probe_ + static_cast<std::size_t>(probe);
  return begin(method, std::span(&item, methods_[method].source.shape.items()));
}

/// How far the requests up to `end` may go: no further than the responder is known to have receive
/// buffers for their messages.
inline std::size_t Requester::within_credit(const InFlight& current, std::size_t end) const {
  const std::uint64_t allowed = messages_allowed();
  const std::vector<CompiledRequest>& requests = current.method->requests;
  while (end > current.posted && current.messages_before + requests[end - 1].messages > allowed) {
    --end;
  }
  return end;
}

/// Posts what can be posted now, update by update, in order.
Result<void> Requester::advance() {
  for (; posting_ <= begun_; ++posting_) {
    InFlight& current = update(posting_);
    const CompiledMethod& method = *current.method;
    for (; current.burst < method.bursts.size(); ++current.burst) {
      const CompiledBurst& burst = method.bursts[current.burst];
      if (!over(current, burst.waits)) return {};
      const std::size_t end = within_credit(current, burst.requests_end);
      if (end == current.posted) return {};
      PERDURE_TRY(taken, endpoint_.post(current.ready.first(end).subspan(current.posted)));
      if (taken == 0) return {};
      current.posted += taken;
      ++counters_.posts;
      counters_.requests += taken;
      counters_.messages = current.messages_before + method.requests[current.posted - 1].messages;
      if (current.posted < burst.requests_end) return {};
    }
  }
  return {};
}

Result<void> Requester::poll() {
  if (failure_) return *failure_;
  const std::size_t count = endpoint_.poll(completions_);
  for (std::size_t index = 0; index < count; ++index) {
    if (auto taken = take(completions_[index]); !taken) {
      fail(taken.error());
      return *failure_;
    }
  }
  if (options_.acks.data != nullptr) {
    if (auto taken = take_written_ack(); !taken) {
      fail(taken.error());
      return *failure_;
    }
  }
  if (posting_ <= begun_) {
    if (auto advanced = advance(); !advanced) {
      fail(advanced.error());
      return *failure_;
    }
  }
  while (resolved_ + 1 < posting_) {
    const InFlight& oldest = update(resolved_ + 1);
    if (!over(oldest, oldest.method->waits)) break;
    ++resolved_;
    ++counters_.updates;
  }
  if (count == 0 && acks_reposted_ < acks_taken_) (void)repost_ack();  // fails if lost: see below
  if (count == 0 && !endpoint_.connected()) {
    fail({ErrorCode::OutcomeUnknown, "the connection to the peer was lost"});
    return *failure_;
  }
  return {};
}

Result<void> Requester::take(const fabric::Completion& completion) {
  if (completion.error) {
    // A refusal that the responder sent may explain what the transport only sees as a lost peer.
    const bool refused = *completion.error == ErrorCode::OutOfRange;
    return Error{*completion.error, refused ? "the peer refused access to its memory"
                                            : "the connection to the peer was lost"};
  }
  if ((completion.context & kReceiveContext) != 0) return take_ack(completion);
  updates_[completion.context >> 8].completed |= std::uint64_t{1} << (completion.context & 0xff);
  return {};
}

Result<void> Requester::take_ack(const fabric::Completion& completion) {
  const std::size_t index = completion.context & ~kReceiveContext;
  const std::span<const std::byte> bytes(ack_bytes_.data() + index * answer_bytes_,
                                         std::min<std::uint64_t>(completion.length, answer_bytes_));
  PERDURE_TRY(ack, replies_taken_ == requests_begun_ ? decode_ack(bytes) : decode_answer(bytes));
  PERDURE_TRY_VOID(note_ack(ack));
  // Buffers come back in the order in which they were posted.
  ++acks_taken_;
  return acks_taken_ - acks_reposted_ < ack_buffers_ / 2 ? Result<void>{} : repost_ack();
}

/// What stands where acknowledgements are written, if it is whole and new.
Result<void> Requester::take_written_ack() {
  std::array<std::byte, kAckBytes> bytes;
  std::copy_n(options_.acks.data, bytes.size(), bytes.begin());
  const bool refusal = load<std::uint8_t>(bytes.data() + 6) != 0;
  const auto sequence = load<std::uint64_t>(bytes.data() + kMessageSequenceAt);
  if (sequence <= messages_acknowledged_ && !refusal) return {};
  const auto ack = decode_ack(bytes);
  return ack.ok() ? note_ack(*ack) : Result<void>{};  // else not all of it is there yet
}

Result<void> Requester::note_ack(const Ack& ack) {
  const bool late = ack.sequence < messages_acknowledged_ && ack.status == 0;
  if (late && ack.session == options_.session && profile_.qp_type == QpType::Ud) return {};
  if (ack.session != options_.session || ack.sequence > counters_.messages ||
      ack.sequence < messages_acknowledged_) {
    return Error{ErrorCode::ProtocolError, "the peer acknowledged what was never sent"};
  }
  if (ack.written != 0 && ack.written != written_[ack.sequence & (written_.size() - 1)]) {
    return Error{
        ErrorCode::ProtocolError,
        "the peer's RNIC says other lengths of WRITEs with immediate data than were "
        "written, so the peer has not flushed all of them: use `--primary write` or `send`"};
  }
  messages_acknowledged_ = ack.sequence;
  if (ack.status != 0) {
    const auto code = static_cast<ErrorCode>(ack.status - 1);
    if (ack.status - 1 > static_cast<int>(ErrorCode::SystemError)) {
      return Error{ErrorCode::ProtocolError, "the peer answered with an unknown status"};
    }
    return Error{code, fmt::format("the peer refused message {} or a later one: {}",
                                   ack.sequence + 1, to_string(code))};
  }
  return {};
}

/// Posts the buffer of the oldest acknowledgement again: when there is nothing better to do.
Result<void> Requester::repost_ack() { return post_ack_buffer(acks_reposted_++ % ack_buffers_); }

Result<std::unique_ptr<Requester>> Requester::open(fabric::Endpoint& endpoint,
                                                   fabric::Device& device,
                                                   const ServerProfile& profile,
                                                   std::vector<Method> methods,
                                                   const Options& options) {
  if ((methods.empty() && !options.probes) || options.updates_max == 0 ||
      options.queue.depth < 2 * kResponderBurst) {
    return Error{ErrorCode::InvalidArgument, "a requester needs a method, a window and a queue"};
  }
  const bool polls = options.mailbox.length != 0;
  if (polls && options.mailbox.length < options.queue.depth * options.queue.message_bytes_max) {
    return Error{ErrorCode::InvalidArgument, "the mailbox is smaller than the receive queue"};
  }
  if (options.acks.data != nullptr &&
      (options.acks.length < kAckBytes || options.request_bytes_max != 0 || options.probes)) {
    return Error{ErrorCode::InvalidArgument,
                 "acknowledgements that are written need 24 bytes, and leave no room for replies, "
                 "which are sent, nor for probes of what is sent"};
  }
  if (options.request_bytes_max + kRequestHeaderBytes > options.queue.message_bytes_max ||
      options.reply_bytes_max > kReplyPayloadMax) {
    return Error{
        ErrorCode::InvalidArgument,
        fmt::format("requests of {} bytes with replies of {}; messages have {}, replies {}",
                    options.request_bytes_max, options.reply_bytes_max,
                    options.queue.message_bytes_max, kReplyPayloadMax)};
  }
  std::unique_ptr<Requester> requester(new Requester(endpoint, device, profile, options));
  PERDURE_TRY_VOID(requester->prepare(std::move(methods)));
  return requester;
}

}  // namespace perdure::persist
