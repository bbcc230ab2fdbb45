// The requester's side of the data plane: methods and memory made ready, and work requests.
#include <algorithm>
#include <bit>

#include "core/assert.h"
#include "core/bytes.h"
#include "core/method_set.h"
#include "core/try.h"
#include "persist/probe_methods.h"
#include "persist/requester.h"
#include "persist/wire.h"

namespace perdure::persist {

Result<void> Requester::prepare(std::vector<Method> methods) {
  if (options_.probes) padding_.resize(probe_padding_bytes(options_.queue));
  // An answer that finds no buffer waits in the fabric.
  ack_buffers_ = std::min(options_.queue.depth, endpoint_.limits().receive_depth);
  ack_bytes_.resize(ack_buffers_ * answer_bytes_);
  PERDURE_TRY(ack_memory, device_.register_memory(ack_bytes_, fabric::Access::Local));
  ack_memory_ = std::move(ack_memory);
  PERDURE_TRY(scratch_memory, device_.register_memory(scratch_, fabric::Access::Local));
  scratch_memory_ = std::move(scratch_memory);
  if (!padding_.empty()) {
    PERDURE_TRY(padding_memory, device_.register_memory(padding_, fabric::Access::Local));
    padding_memory_ = std::move(padding_memory);
  }
  PERDURE_TRY_VOID(use_methods(std::move(methods)));
  for (std::size_t index = 0; index < ack_buffers_; ++index) {
    PERDURE_TRY_VOID(post_ack_buffer(index));
  }
  return {};
}

Result<void> Requester::use_methods(std::vector<Method> methods) {
  PERDURE_ASSERT(begun_ == resolved_);
  std::vector<Method> before;
  for (std::size_t index = 0; index < read_; ++index) {
    before.push_back(methods_[index].source);
  }
  PERDURE_TRY_VOID(may_replace(before, methods, profile_));
  PERDURE_TRY(compiled, compile(methods, profile_, endpoint_.capabilities(), options_.queue,
                                {options_.mailbox.length != 0, options_.reads,
                                 options_.acks.data != nullptr}));
  const bool copied_late = std::any_of(methods.begin(), methods.end(), replays);
  const std::size_t read = compiled.size();
  compiled.push_back(compile_read(profile_, copied_late));
  if (options_.request_bytes_max != 0) {
    auto request = compile_request(profile_, options_.request_bytes_max, compiled);
    compiled.push_back(std::move(request));
  }
  const std::size_t first_probe = compiled.size();
  if (options_.probes) {
    for (CompiledMethod& probe :
         compile_probes(profile_, endpoint_.capabilities(), padding_.size())) {
      compiled.push_back(std::move(probe));
    }
  }
  for (CompiledMethod& method : compiled) {
    std::uint64_t& bytes_max = method.common_bytes_max;
    bytes_max = std::min({bytes_max, item_bytes_max_, options_.remote.length});
  }
  std::size_t bytes_per_update = 0;
  for (const CompiledMethod& method : compiled) {
    bytes_per_update = std::max(bytes_per_update, method.messages() * method.message_buffer_bytes);
  }
  PERDURE_TRY_VOID(
      make_room_for_messages(std::max<std::size_t>(updates_.size() * bytes_per_update, 1)));
  methods_ = std::move(compiled);
  read_ = read;
  request_ = read + 1;
  first_probe_ = first_probe;
  make_ready();
  make_room_for_lengths();
  return {};
}

/// What was registered stays so. An update has resolved once the responder has answered, and the
/// RNIC may not have heard of its message's arrival: where an ACK was lost it sends the message
/// again, and if it finds no registered memory that is the end of the connection.
Result<void> Requester::make_room_for_messages(std::size_t needed) {
  if (needed <= message_bytes_.size()) return {};
  std::vector<std::byte> bytes(needed);
  PERDURE_TRY(memory, device_.register_memory(bytes, fabric::Access::Local));
  if (message_memory_ != nullptr) {
    outgrown_.push_back({std::move(message_bytes_), std::move(message_memory_)});
  }
  message_memory_ = std::move(memory);
  message_bytes_ = std::move(bytes);
  return {};
}

/// Messages that were begun and not acknowledged: what updates in flight can have, and those of
/// resolved ones, which were posted within the credit of the queue.
void Requester::make_room_for_lengths() {
  std::size_t messages_max = 0;
  for (const CompiledMethod& method : methods_) {
    messages_max = std::max(messages_max, method.messages());
  }
  const std::size_t needed = options_.queue.depth + updates_.size() * messages_max + 1;
  if (needed <= written_.size()) return;
  std::vector<std::uint32_t> room(std::bit_ceil(needed));
  if (!written_.empty()) {
    for (std::uint64_t sequence = messages_acknowledged_; sequence <= messages_begun_; ++sequence) {
      room[sequence & (room.size() - 1)] = written_[sequence & (written_.size() - 1)];
    }
  }
  written_ = std::move(room);
}

/// The work requests of every update that can be in flight.
void Requester::make_ready() {
  const std::size_t bytes_per_update = message_bytes_.size() / updates_.size();
  for (std::size_t slot = 0; slot < updates_.size(); ++slot) {
    updates_[slot].method = nullptr;
    auto& requests = updates_[slot].requests;
    requests.assign(methods_.size(), {});
    for (std::size_t index = 0; index < methods_.size(); ++index) {
      const CompiledMethod& method = methods_[index];
      std::byte* const buffers = message_bytes_.data() + slot * bytes_per_update;
      for (const CompiledRequest& each : method.requests) {
        std::byte* const buffer = each.carries_message()
                                      ? buffers + (each.messages - 1) * method.message_buffer_bytes
                                      : nullptr;
        requests[index].push_back(ready_request(each, slot, buffer));
      }
    }
  }
}

fabric::WorkRequest Requester::ready_request(const CompiledRequest& compiled, std::size_t slot,
                                             std::byte* buffer) const {
  fabric::WorkRequest request;
  request.opcode = compiled.opcode;
  request.signalled = compiled.awaited.has_value();
  request.fenced = compiled.fenced;
  request.context = slot << 8 | compiled.awaited.value_or(0);
  request.remote = options_.remote;
  request.placement = compiled.placement;
  if (compiled.polled) request.remote = options_.mailbox;
  switch (compiled.polled ? fabric::Opcode::Send : compiled.opcode) {
    case fabric::Opcode::Send:
      request.segment_count = static_cast<std::uint8_t>(1 + compiled.gathered);
      request.segments[0] = {buffer, 0, message_memory_.get()};
      if (compiled.padding_bytes != 0) {
        request.segments[request.segment_count++] = {const_cast<std::byte*>(padding_.data()),
                                                     compiled.padding_bytes, padding_memory_.get()};
      }
      break;
    case fabric::Opcode::Read:
      request.segment_count = 1;
      if (compiled.brings) break;
      request.segments[0] = {const_cast<std::byte*>(scratch_.data()), 1, scratch_memory_.get()};
      break;
    case fabric::Opcode::Flush:
    case fabric::Opcode::SendFlush:
    case fabric::Opcode::AtomicWrite: break;
    default: request.segment_count = 1; break;
  }
  return request;
}

Result<void> Requester::post_ack_buffer(std::size_t index) {
  return endpoint_.post_receive(
      {ack_bytes_.data() + index * answer_bytes_, answer_bytes_, ack_memory_.get()},
      kReceiveContext | index);
}

}  // namespace perdure::persist
