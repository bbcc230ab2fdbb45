#include "persist/probe_methods.h"

#include <algorithm>

#include "persist/wire.h"

namespace perdure::persist {
namespace {

/// At a quarter of a nanosecond a byte, as over loopback, this is 4 us.
constexpr std::size_t kPaddingBytesMax = 16 * 1024;

CompiledStep message(std::uint8_t flags, std::size_t padding_bytes = 0) {
  CompiledStep step;
  step.source.verb = Verb::Send;
  step.opcode = fabric::Opcode::Send;
  step.requests = 1;
  step.message_flags = flags;
  step.carries_message = true;
  step.wants_ack = (flags & kAckWanted) != 0;
  step.padding_bytes = padding_bytes;
  return step;
}

CompiledStep one_sided(Verb verb, fabric::Opcode opcode) {
  CompiledStep step;
  step.source.verb = verb;
  step.source.items = {0};
  step.opcode = opcode;
  step.requests = 1;
  step.targets = {0};
  return step;
}

/// The steps, then a wait: for the answer if the last of them asks for one, else its completion.
CompiledMethod timed(const char* name, std::vector<CompiledStep> steps) {
  CompiledMethod method;
  method.source.name = name;
  const bool has_item = !steps.front().targets.empty();
  method.source.shape.items_per_epoch = {static_cast<std::uint8_t>(has_item ? 1 : 0)};
  method.items.resize(method.source.shape.items());
  CompiledStep& last = steps.back();
  CompiledStep wait;
  if (last.wants_ack) {
    wait.source.kind = RequesterStep::Kind::WaitAck;
  } else {
    last.awaited = true;
    wait.source.kind = RequesterStep::Kind::WaitCompletion;
    wait.source.of = steps.size() - 1;
  }
  method.posts_end = steps.size();
  method.steps = std::move(steps);
  method.steps.push_back(wait);
  method.message_header_bytes_max = kMessageHeaderBytes;
  method.message_buffer_bytes = kMessageHeaderBytes;
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
  const bool replayed = profile.receive_buffers == ReceiveBuffers::Pm;
  const std::uint8_t plain = replayed ? kReplayable | kPayloadCrc : 0;
  const std::uint8_t answered = plain | kAckWanted;
  const CompiledStep write = one_sided(Verb::Write, fabric::Opcode::Write);
  const bool flushes = device.native_flush && profile.capabilities.native_flush;
  const CompiledStep read = flushes ? one_sided(Verb::Flush, fabric::Opcode::Flush)
                                    : one_sided(Verb::Read, fabric::Opcode::Read);
  return {timed("probe-message", {message(answered)}),
          timed("probe-long-message", {message(answered, padding_bytes)}),
          timed("probe-two-messages", {message(plain), message(answered)}),
          timed("probe-read", {read}),
          timed("probe-write", {write}),
          timed("probe-write-message", {write, message(answered)})};
}

}  // namespace perdure::persist
