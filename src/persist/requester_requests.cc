// The requester's side of the data plane: methods and memory made ready, and work requests.
#include <algorithm>

#include "core/assert.h"
#include "core/bytes.h"
#include "core/try.h"
#include "persist/connection_requester.h"
#include "persist/wire.h"

namespace perdure::persist {
namespace {

constexpr std::size_t kStepsMax = 64;

}  // namespace

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

}  // namespace perdure::persist
