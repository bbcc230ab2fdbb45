// The requester's side of the data plane: see requester.h.
//
// An update is posted strictly after all posts of the update before it: a later update may never
// pass an earlier one, which is what keeps a pipeline of compound updates in order.
#include "persist/requester.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/assert.h"
#include "core/bytes.h"
#include "core/try.h"
#include "persist/compiled_method.h"
#include "persist/wire.h"

namespace perdure::persist {
namespace {

// Context of a work request: bit 63 marks receives; else update slot << 8 | step.
constexpr std::uint64_t kReceiveContext = std::uint64_t{1} << 63;
// Context of a request that is signalled only so that the provider can reclaim its queue.
constexpr std::uint64_t kReclaimContext = std::uint64_t{1} << 62;
constexpr std::size_t kStepsMax = 64;
// At least every so many requests one is signalled, so that providers can reclaim their queue.
constexpr std::size_t kSignalEvery = 16;
constexpr std::size_t kScratchBytes = 64;

/// One update in flight.
struct Update {
  std::size_t method = 0;
  std::size_t step = 0;               // the next one to take
  std::size_t posted_in_step = 0;     // work requests of that step that are posted already
  std::uint64_t message = 0;          // sequence of its last message, 0 before the first
  std::uint64_t awaited_message = 0;  // sequence of its last message that wants an acknowledgement
  std::uint64_t completed_steps = 0;  // bit k: step k completed
  std::vector<UpdateItem> items;
};

class ConnectionRequester final : public Requester {
 public:
  ConnectionRequester(fabric::Endpoint& endpoint, const Options& options)
      : endpoint_(endpoint), options_(options), updates_(options.updates_max) {}

  Result<void> prepare(fabric::Device& device, const ServerProfile& profile,
                       std::vector<Method> methods);

  Result<std::uint64_t> begin(std::size_t method, std::span<const UpdateItem> items) override;
  Result<void> poll() override;
  std::uint64_t resolved() const override { return resolved_; }
  std::uint64_t begun() const override { return begun_; }
  const RequesterCounters& counters() const override { return counters_; }
  std::uint64_t message_payload_max(std::size_t method) const override {
    return options_.queue.message_bytes_max - methods_[method].message_header_bytes_max;
  }

 private:
  enum class Progress { Advanced, Blocked };

  Update& update(std::uint64_t number) { return updates_[number % updates_.size()]; }
  Result<void> check_items(const CompiledMethod& method, std::span<const UpdateItem> items) const;
  Result<void> advance();
  Result<Progress> take_step(std::uint64_t number, Update& current);
  Result<Progress> post_step(std::uint64_t number, Update& current, const CompiledStep& step);
  bool wait_is_over(const Update& current, const RequesterStep& step) const;
  fabric::WorkRequest build(std::uint64_t number, Update& current, const CompiledStep& step,
                            std::size_t index);
  void build_message(std::uint64_t number, Update& current, const CompiledStep& step,
                     fabric::WorkRequest& request);
  Result<void> take(const fabric::Completion& completion);
  Result<void> take_ack(const fabric::Completion& completion);
  Result<void> post_ack_buffer(std::size_t index);
  Result<void> repost_ack();
  std::byte* message_buffer(std::uint64_t number, std::size_t step) {
    return message_bytes_.data() +
           ((number % updates_.size()) * steps_max_ + step) * message_buffer_bytes_;
  }

  fabric::Endpoint& endpoint_;
  const Options options_;
  std::vector<CompiledMethod> methods_;
  std::vector<Update> updates_;
  std::size_t steps_max_ = 0;

  std::vector<std::byte> message_bytes_;  // headers (or whole messages) of updates in flight
  std::size_t message_buffer_bytes_ = 0;
  std::unique_ptr<fabric::Memory> message_memory_;
  std::vector<std::byte> ack_bytes_;
  std::unique_ptr<fabric::Memory> ack_memory_;
  std::array<std::byte, kScratchBytes> scratch_{};  // what READs bring, never looked at
  std::unique_ptr<fabric::Memory> scratch_memory_;

  std::uint64_t begun_ = 0;
  std::uint64_t posting_ = 1;  // the update that may post: all before it have posted everything
  std::uint64_t resolved_ = 0;
  std::uint64_t messages_posted_ = 0;
  std::uint64_t messages_acknowledged_ = 0;
  std::uint64_t acks_taken_ = 0;
  std::uint64_t acks_reposted_ = 0;
  std::size_t unsignalled_ = 0;
  std::array<fabric::Completion, 32> completions_;  // scratch of poll
  std::optional<Error> failure_;
  RequesterCounters counters_;
};

Result<void> ConnectionRequester::prepare(fabric::Device& device, const ServerProfile& profile,
                                          std::vector<Method> methods) {
  PERDURE_TRY(compiled, compile(methods, profile, endpoint_.capabilities(), options_.queue));
  methods_ = std::move(compiled);
  std::size_t items_max = 0;
  for (const CompiledMethod& method : methods_) {
    steps_max_ = std::max(steps_max_, method.steps.size());
    items_max = std::max(items_max, method.source.shape.items());
    message_buffer_bytes_ = std::max(message_buffer_bytes_, method.message_buffer_bytes);
  }
  PERDURE_ASSERT(steps_max_ <= kStepsMax);
  for (Update& each : updates_) each.items.reserve(items_max);
  message_bytes_.resize(
      std::max<std::size_t>(updates_.size() * steps_max_ * message_buffer_bytes_, 1));
  ack_bytes_.resize(options_.queue.depth * kAckBytes);
  PERDURE_TRY(message_memory, device.register_memory(message_bytes_, fabric::Access::Local));
  message_memory_ = std::move(message_memory);
  PERDURE_TRY(ack_memory, device.register_memory(ack_bytes_, fabric::Access::Local));
  ack_memory_ = std::move(ack_memory);
  PERDURE_TRY(scratch_memory, device.register_memory(scratch_, fabric::Access::Local));
  scratch_memory_ = std::move(scratch_memory);
  for (std::size_t index = 0; index < options_.queue.depth; ++index) {
    PERDURE_TRY_VOID(post_ack_buffer(index));
  }
  return {};
}

Result<void> ConnectionRequester::post_ack_buffer(std::size_t index) {
  return endpoint_.post_receive(
      {ack_bytes_.data() + index * kAckBytes, kAckBytes, ack_memory_.get()},
      kReceiveContext | index);
}

Result<void> ConnectionRequester::check_items(const CompiledMethod& method,
                                              std::span<const UpdateItem> items) const {
  if (items.size() != method.source.shape.items()) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("method '{}' takes {} items, not {}", method.source.name,
                             method.source.shape.items(), items.size())};
  }
  std::uint64_t copied = 0;
  for (std::size_t index = 0; index < items.size(); ++index) {
    const UpdateItem& item = items[index];
    const std::uint64_t length = item.data.length;
    if (length == 0 || length > options_.remote.length ||
        item.at > options_.remote.length - length) {
      return Error{ErrorCode::OutOfRange, fmt::format("bytes {}+{} lie outside the pool's {} bytes",
                                                      item.at, length, options_.remote.length)};
    }
    const bool word_only =
        method.source.shape.epoch_of(static_cast<Item>(index)) > 0 && !method.source.later_any_size;
    if (word_only && (length != 8 || item.at % 8 != 0)) {
      return Error{ErrorCode::InvalidArgument,
                   fmt::format("method '{}' takes only an aligned 8-byte word as item {}",
                               method.source.name, item_name(static_cast<Item>(index)))};
    }
    if (method.sends_item[index]) copied += length;
    if (method.uses_immediates && item.at + length > kImmediateReach) {
      return Error{ErrorCode::OutOfRange, "an immediate does not reach beyond 128 GiB"};
    }
  }
  if (copied > options_.queue.message_bytes_max - method.message_header_bytes_max) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("{} bytes do not fit into one message of {}", copied,
                             options_.queue.message_bytes_max)};
  }
  return {};
}

Result<std::uint64_t> ConnectionRequester::begin(std::size_t method,
                                                 std::span<const UpdateItem> items) {
  PERDURE_ASSERT(method < methods_.size());
  if (failure_) return Error{ErrorCode::Disconnected, failure_->message};
  if (begun_ - resolved_ == updates_.size()) {
    return Error{ErrorCode::QueueFull, "too many updates in flight"};
  }
  if (auto valid = check_items(methods_[method], items); !valid) return valid.error();
  const std::uint64_t number = ++begun_;
  Update& started = update(number);
  started.method = method;
  started.step = 0;
  started.posted_in_step = 0;
  started.message = 0;
  started.awaited_message = 0;
  started.completed_steps = 0;
  started.items.assign(items.begin(), items.end());
  if (posting_ == number) {
    // An error while posting surfaces at the next poll: from here on the outcome is unknown.
    if (auto advanced = advance(); !advanced) failure_ = advanced.error();
  }
  return number;
}

/// Takes every step that can be taken now, update by update, in order.
Result<void> ConnectionRequester::advance() {
  while (posting_ <= begun_) {
    Update& current = update(posting_);
    const CompiledMethod& method = methods_[current.method];
    while (current.step < method.posts_end) {
      PERDURE_TRY(progress, take_step(posting_, current));
      if (progress == Progress::Blocked) return {};
    }
    ++posting_;
  }
  return {};
}

Result<ConnectionRequester::Progress> ConnectionRequester::take_step(std::uint64_t number,
                                                                     Update& current) {
  const CompiledStep& step = methods_[current.method].steps[current.step];
  if (step.source.kind != RequesterStep::Kind::Post) {
    if (!wait_is_over(current, step.source)) return Progress::Blocked;
    ++current.step;
    return Progress::Advanced;
  }
  return post_step(number, current, step);
}

bool ConnectionRequester::wait_is_over(const Update& current, const RequesterStep& step) const {
  if (step.kind == RequesterStep::Kind::WaitAck) {
    return messages_acknowledged_ >= current.awaited_message;
  }
  return (current.completed_steps >> step.of & 1) != 0;
}

Result<ConnectionRequester::Progress> ConnectionRequester::post_step(std::uint64_t number,
                                                                     Update& current,
                                                                     const CompiledStep& step) {
  const std::size_t requests = step.requests;
  while (current.posted_in_step < requests) {
    const bool message = step.carries_message;
    const std::uint64_t unacknowledged = messages_posted_ - messages_acknowledged_;
    if (message && unacknowledged >= options_.queue.depth - kResponderBurst) {
      return Progress::Blocked;
    }
    fabric::WorkRequest request = build(number, current, step, current.posted_in_step);
    const bool last = current.posted_in_step + 1 == requests;
    const bool awaited = step.awaited && last;
    request.signalled = awaited || unsignalled_ + 1 >= kSignalEvery;
    if (!awaited) request.context = kReclaimContext;
    PERDURE_TRY(taken, endpoint_.post(std::span<const fabric::WorkRequest>(&request, 1)));
    if (taken == 0) return Progress::Blocked;
    unsignalled_ = request.signalled ? 0 : unsignalled_ + 1;
    ++counters_.requests;
    if (message) {
      ++messages_posted_;
      ++counters_.messages;
      current.message = messages_posted_;
      if (step.wants_ack) current.awaited_message = messages_posted_;
    }
    ++current.posted_in_step;
  }
  current.posted_in_step = 0;
  ++current.step;
  return Progress::Advanced;
}

fabric::WorkRequest ConnectionRequester::build(std::uint64_t number, Update& current,
                                               const CompiledStep& step, std::size_t index) {
  fabric::WorkRequest request;
  request.opcode = step.opcode;
  request.fenced = step.source.fenced;
  request.context = (number % updates_.size()) << 8 | current.step;
  request.remote = options_.remote;
  if (step.opcode == fabric::Opcode::Send) {
    build_message(number, current, step, request);
    return request;
  }
  const UpdateItem& item = current.items[step.targets[index]];
  request.remote_offset = item.at;
  request.segment_count = 1;
  switch (step.opcode) {
    case fabric::Opcode::Read: {
      // One byte inside the written range: its answer pushes every earlier write before it.
      request.remote_offset = item.at + item.data.length - 1;
      request.segments[0] = {scratch_.data(), 1, scratch_memory_.get()};
      break;
    }
    case fabric::Opcode::Flush:
      request.flush_length = item.data.length;
      request.segment_count = 0;
      break;
    case fabric::Opcode::AtomicWrite:
      request.operand = load<std::uint64_t>(item.data.data);
      request.segment_count = 0;
      break;
    default:
      request.segments[0] = item.data;
      request.immediate = encode_immediate(item.at, step.wants_ack);
      break;
  }
  return request;
}

void ConnectionRequester::build_message(std::uint64_t number, Update& current,
                                        const CompiledStep& step, fabric::WorkRequest& request) {
  std::array<Entry, kEntriesMax> entries;
  std::array<std::span<const std::byte>, kItemsMax> payload;
  std::size_t pieces = 0;
  MessageHeader header;
  header.entries = static_cast<std::uint8_t>(step.entries.size());
  header.flags = step.message_flags;
  header.sequence = messages_posted_ + 1;
  header.session = options_.session;
  for (std::size_t index = 0; index < step.entries.size(); ++index) {
    const UpdateItem& item = current.items[step.entries[index].item];
    entries[index] = {item.at, static_cast<std::uint32_t>(item.data.length),
                      step.entries[index].actions};
    if ((step.entries[index].actions & kCopy) == 0) continue;
    payload[pieces++] = {item.data.data, item.data.length};
    header.payload_bytes += static_cast<std::uint32_t>(item.data.length);
  }
  std::byte* buffer = message_buffer(number, current.step);
  std::size_t bytes = encode_message(header, std::span(entries).first(header.entries),
                                     std::span(payload).first(pieces), buffer);
  if (pieces < fabric::kSegmentsMax) {
    std::size_t segment = 1;
    for (const CompiledEntry& entry : step.entries) {
      if ((entry.actions & kCopy) != 0)
        request.segments[segment++] = current.items[entry.item].data;
    }
    request.segment_count = static_cast<std::uint8_t>(segment);
  } else {
    for (const auto piece : std::span(payload).first(pieces)) {
      std::memcpy(buffer + bytes, piece.data(), piece.size());
      bytes += piece.size();
    }
    request.segment_count = 1;
  }
  request.segments[0] = {buffer, bytes, message_memory_.get()};
}

Result<void> ConnectionRequester::poll() {
  if (failure_) return *failure_;
  const std::size_t count = endpoint_.poll(completions_);
  for (std::size_t index = 0; index < count; ++index) {
    if (auto taken = take(completions_[index]); !taken) {
      failure_ = taken.error();
      return *failure_;
    }
  }
  if (count != 0 || posting_ <= begun_) {
    if (auto advanced = advance(); !advanced) {
      failure_ = advanced.error();
      return *failure_;
    }
  }
  while (resolved_ + 1 < posting_) {
    Update& oldest = update(resolved_ + 1);
    const CompiledMethod& method = methods_[oldest.method];
    while (oldest.step < method.steps.size() &&
           wait_is_over(oldest, method.steps[oldest.step].source)) {
      ++oldest.step;
    }
    if (oldest.step < method.steps.size()) break;
    ++resolved_;
    ++counters_.updates;
  }
  if (count == 0 && acks_reposted_ < acks_taken_) (void)repost_ack();  // fails if lost: see below
  if (count == 0 && !endpoint_.connected()) {
    failure_ = Error{ErrorCode::OutcomeUnknown, "the connection to the peer was lost"};
    return *failure_;
  }
  return {};
}

Result<void> ConnectionRequester::take(const fabric::Completion& completion) {
  if (completion.error) {
    // A refusal that the responder sent may explain what the transport only sees as a lost peer.
    const bool refused = *completion.error == ErrorCode::OutOfRange;
    return Error{*completion.error, refused ? "the peer refused access to its memory"
                                            : "the connection to the peer was lost"};
  }
  if ((completion.context & kReceiveContext) != 0) return take_ack(completion);
  if ((completion.context & kReclaimContext) != 0) return {};
  Update& completed = updates_[completion.context >> 8];
  completed.completed_steps |= std::uint64_t{1} << (completion.context & 0xff);
  return {};
}

Result<void> ConnectionRequester::take_ack(const fabric::Completion& completion) {
  const std::size_t index = completion.context & ~kReceiveContext;
  const std::span<const std::byte> bytes(ack_bytes_.data() + index * kAckBytes,
                                         std::min<std::uint64_t>(completion.length, kAckBytes));
  PERDURE_TRY(ack, decode_ack(bytes));
  if (ack.session != options_.session || ack.sequence > messages_posted_ ||
      ack.sequence < messages_acknowledged_) {
    return Error{ErrorCode::ProtocolError, "the peer acknowledged what was never sent"};
  }
  messages_acknowledged_ = ack.sequence;
  if (ack.status != 0) {
    const auto code = static_cast<ErrorCode>(ack.status - 1);
    if (ack.status - 1 > static_cast<int>(ErrorCode::SystemError)) {
      return Error{ErrorCode::ProtocolError, "the peer answered with an unknown status"};
    }
    return Error{code,
                 fmt::format("the peer refused message {}: {}", ack.sequence + 1, to_string(code))};
  }
  // Buffers come back in the order in which they were posted.
  ++acks_taken_;
  return acks_taken_ - acks_reposted_ < options_.queue.depth / 2 ? Result<void>{} : repost_ack();
}

/// Posts the buffer of the oldest acknowledgement again: when there is nothing better to do.
Result<void> ConnectionRequester::repost_ack() {
  return post_ack_buffer(acks_reposted_++ % options_.queue.depth);
}

}  // namespace

Result<std::unique_ptr<Requester>> Requester::open(fabric::Endpoint& endpoint,
                                                   fabric::Device& device,
                                                   const ServerProfile& profile,
                                                   std::vector<Method> methods,
                                                   const Options& options) {
  if (methods.empty() || options.updates_max == 0 || options.queue.depth < 2 * kResponderBurst) {
    return Error{ErrorCode::InvalidArgument, "a requester needs a method, a window and a queue"};
  }
  auto requester = std::make_unique<ConnectionRequester>(endpoint, options);
  PERDURE_TRY_VOID(requester->prepare(device, profile, std::move(methods)));
  return std::unique_ptr<Requester>(std::move(requester));
}

}  // namespace perdure::persist
