#include "persist/probe_methods.h"

#include <algorithm>

#include "persist/wire.h"

namespace perdure::persist {
namespace {

/// At a quarter of a nanosecond a byte, as over loopback, this is 4 us.
constexpr std::size_t kPaddingBytesMax = 16 * 1024;

CompiledRequest message(std::uint8_t flags, std::size_t padding_bytes = 0) {
  CompiledRequest request;
  request.message_flags = flags;
  request.wants_ack = (flags & kAckWanted) != 0;
  request.padding_bytes = padding_bytes;
  return request;
}

CompiledRequest one_sided(fabric::Opcode opcode) {
  CompiledRequest request;
  request.opcode = opcode;
  return request;
}

/// The requests, then a wait: for the answer if the last of them asks for one, else its completion.
CompiledMethod timed(const char* name, const std::vector<CompiledRequest>& requests) {
  CompiledMethod method;
  method.source.name = name;
  const bool has_item = !requests.front().carries_message();
  method.source.shape.items_per_epoch = {static_cast<std::uint8_t>(has_item ? 1 : 0)};
  method.items.resize(method.source.shape.items());
  for (const CompiledRequest& request : requests) method.add(request);
  if (requests.back().wants_ack) {
    method.await_ack();
  } else {
    method.await_completion(requests.size() - 1);
  }
  method.message_header_bytes_max = kMessageHeaderBytes;
  method.message_buffer_bytes = std::max(kMessageHeaderBytes, kReplayableBytesMin);
  return method;
}

}  // namespace

std::size_t probe_padding_bytes(const ReceiveQueue& queue) {
  const std::size_t fits =
      queue.message_bytes_max - std::min(queue.message_bytes_max, kMessageHeaderBytes);
  return std::max(std::min(fits, kPaddingBytesMax), kProbeLineBytes);
}

std::vector<CompiledMethod> compile_probes(const ServerProfile& profile, const Capabilities& device,
                                           std::size_t padding_bytes) {
  const std::uint8_t plain = empty_message_flags(profile);
  const std::uint8_t answered = plain | kAckWanted;
  const CompiledRequest write = one_sided(fabric::Opcode::Write);
  const bool flushes = device.native_flush && profile.capabilities.native_flush;
  const CompiledRequest read = one_sided(flushes ? fabric::Opcode::Flush : fabric::Opcode::Read);
  return {timed("probe-message", {message(answered)}),
          timed("probe-long-message", {message(answered, padding_bytes)}),
          timed("probe-two-messages", {message(plain), message(answered)}),
          timed("probe-read", {read}),
          timed("probe-write", {write}),
          timed("probe-write-message", {write, message(answered)})};
}

}  // namespace perdure::persist
