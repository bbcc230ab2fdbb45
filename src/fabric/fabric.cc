// What is common to all providers: names, and sleeping on several connections at once.
#include "fabric/fabric.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>

namespace perdure::fabric {

std::string_view to_string(Opcode opcode) {
  switch (opcode) {
    case Opcode::Send: return "SEND";
    case Opcode::Write: return "WRITE";
    case Opcode::WriteImm: return "WRITE_WITH_IMM";
    case Opcode::Read: return "READ";
    case Opcode::Flush: return "FLUSH";
    case Opcode::AtomicWrite: return "ATOMIC WRITE";
    case Opcode::CompareSwap: return "COMPARE AND SWAP";
    case Opcode::FetchAdd: return "FETCH AND ADD";
    case Opcode::WritePersist: return "PWRITE";
    case Opcode::SendFlush: return "SFLUSH";
    case Opcode::Receive: return "RECEIVE";
  }
  return "unknown";
}

std::string_view to_string(WindowKind kind) {
  switch (kind) {
    case WindowKind::Registration: return "registration";
    case WindowKind::Key: return "key";
    case WindowKind::Bound: return "bound";
  }
  return "?";
}

Result<void> check_request(const WorkRequest& request, const Limits& limits,
                           const Capabilities& able, bool atomics) {
  const auto wrong = [&](std::string_view why) {
    return Error{ErrorCode::InvalidArgument, fmt::format("{}: {}", to_string(request.opcode), why)};
  };
  const auto lacking = [&] {
    return Error{ErrorCode::Unsupported,
                 fmt::format("{}: this connection can not", to_string(request.opcode))};
  };
  if (request.segment_count > kSegmentsMax) return wrong("too many segments");
  const std::uint64_t length = total_length(request);
  if (length > limits.transfer_bytes_max) return wrong("longer than transfer_bytes_max");
  std::uint64_t reach = length;
  switch (request.opcode) {
    case Opcode::Send: return {};
    case Opcode::Receive: return wrong("is offered with post_receive");
    case Opcode::Write:
    case Opcode::WriteImm:
    case Opcode::Read: break;
    case Opcode::Flush:
      if (!able.native_flush) return lacking();
      if (request.placement == FlushPlacement::Persistence && !able.persistent_flush) {
        return lacking();
      }
      if (request.whole_region) return {};
      reach = request.flush_length;
      break;
    case Opcode::AtomicWrite:
      if (!able.atomic_write) return lacking();
      reach = 8;
      break;
    case Opcode::CompareSwap:
    case Opcode::FetchAdd:
      if (!atomics) return lacking();
      if (length != 0 && length != 8) return wrong("an old value has 8 bytes");
      reach = 8;
      break;
    case Opcode::WritePersist:
      if (!able.ordered_persist) return lacking();
      break;
    case Opcode::SendFlush:
      if (!able.send_flush) return lacking();
      reach = request.flush_length;
  }
  if (is_atomic(request.opcode) && (request.remote.base + request.remote_offset) % 8 != 0) {
    return wrong("its address is not a multiple of 8");
  }
  if (request.remote_offset > request.remote.length ||
      reach > request.remote.length - request.remote_offset) {
    return wrong("outside of the remote range");
  }
  return {};
}

void wait_any(std::span<Endpoint* const> endpoints, Nanoseconds slice) {
  constexpr std::size_t kWaitedMax = 64;
  std::array<pollfd, kWaitedMax> waited;
  std::size_t count = 0;
  for (Endpoint* endpoint : endpoints) {
    if (count == kWaitedMax) break;
    if (!endpoint->arm()) return;
    if (endpoint->wait_fd() >= 0) waited[count++] = {endpoint->wait_fd(), POLLIN, 0};
  }
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(slice);
  const timespec timeout{static_cast<time_t>(seconds.count()),
                         static_cast<long>((slice - seconds).count())};
  // Interrupted or timed out alike: the caller polls and looks at its own deadline.
  (void)::ppoll(waited.data(), count, &timeout, nullptr);
}

}  // namespace perdure::fabric
