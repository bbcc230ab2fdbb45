// What is common to all providers: names, and sleeping on several connections at once.
#include "fabric/fabric.h"

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
    case Opcode::Receive: return "RECEIVE";
  }
  return "unknown";
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
