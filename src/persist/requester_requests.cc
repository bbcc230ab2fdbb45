// The requester's side of the data plane: methods and memory made ready, and work requests.
#include <algorithm>

#include "core/assert.h"
#include "core/bytes.h"
#include "core/try.h"
#include "persist/connection_requester.h"
#include "persist/probe_methods.h"
#include "persist/wire.h"

namespace perdure::persist {
namespace {

constexpr std::size_t kStepsMax = 64;

}  // namespace

Result<void> ConnectionRequester::prepare(std::vector<Method> methods) {
  if (options_.probes) padding_.resize(probe_padding_bytes(options_.queue));
  PERDURE_TRY_VOID(use_methods(std::move(methods)));
  ack_bytes_.resize(options_.queue.depth * kAckBytes);
  PERDURE_TRY(ack_memory, device_.register_memory(ack_bytes_, fabric::Access::Local));
  ack_memory_ = std::move(ack_memory);
  PERDURE_TRY(scratch_memory, device_.register_memory(scratch_, fabric::Access::Local));
  scratch_memory_ = std::move(scratch_memory);
  if (!padding_.empty()) {
    PERDURE_TRY(padding_memory, device_.register_memory(padding_, fabric::Access::Local));
    padding_memory_ = std::move(padding_memory);
  }
  for (std::size_t index = 0; index < options_.queue.depth; ++index) {
    PERDURE_TRY_VOID(post_ack_buffer(index));
  }
  return {};
}

Result<void> ConnectionRequester::use_methods(std::vector<Method> methods) {
  PERDURE_ASSERT(begun_ == resolved_);
  PERDURE_TRY(compiled, compile(methods, profile_, endpoint_.capabilities(), options_.queue));
  const std::size_t given = compiled.size();
  if (options_.probes) {
    for (CompiledMethod& probe :
         compile_probes(profile_, endpoint_.capabilities(), padding_.size())) {
      compiled.push_back(std::move(probe));
    }
  }
  std::size_t steps_max = 0;
  std::size_t items_max = 1;
  std::size_t buffer_bytes = 0;
  for (const CompiledMethod& method : compiled) {
    steps_max = std::max(steps_max, method.steps.size());
    items_max = std::max(items_max, method.source.shape.items());
    buffer_bytes = std::max(buffer_bytes, method.message_buffer_bytes);
  }
  PERDURE_ASSERT(steps_max <= kStepsMax);
  std::vector<std::byte> bytes(
      std::max<std::size_t>(updates_.size() * steps_max * buffer_bytes, 1));
  PERDURE_TRY(memory, device_.register_memory(bytes, fabric::Access::Local));
  message_memory_ = std::move(memory);
  message_bytes_ = std::move(bytes);
  message_buffer_bytes_ = buffer_bytes;
  steps_max_ = steps_max;
  for (Update& each : updates_) each.items.resize(items_max);
  methods_ = std::move(compiled);
  first_probe_ = given;
  return {};
}

Result<void> ConnectionRequester::post_ack_buffer(std::size_t index) {
  return endpoint_.post_receive(
      {ack_bytes_.data() + index * kAckBytes, kAckBytes, ack_memory_.get()},
      kReceiveContext | index);
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
  if (step.padding_bytes != 0) {
    request.segments[request.segment_count++] = {padding_.data(), step.padding_bytes,
                                                 padding_memory_.get()};
  }
}

}  // namespace perdure::persist
