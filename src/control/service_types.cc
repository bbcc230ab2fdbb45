// Names and sums of what a PeerService reports.
#include "control/service_types.h"

#include <fmt/format.h>
#include <time.h>

#include <fstream>

namespace perdure::control {

std::string_view transport_word(TransportChoice choice) {
  return choice ? to_string(*choice) : "auto";
}

Result<TransportChoice> parse_transport_choice(std::string_view word) {
  if (word == "auto") return TransportChoice{};
  auto transport = parse_transport(word);
  if (transport.ok()) return TransportChoice{*transport};
  return Error{ErrorCode::InvalidArgument, transport.error().message + ", or auto"};
}

std::string_view to_string(SessionPhase phase) {
  switch (phase) {
    case SessionPhase::Granted: return "granted";
    case SessionPhase::Connected: return "connected";
    case SessionPhase::Ending: return "ending";
  }
  return "unknown";
}

bool SessionGrant::operator==(const SessionGrant& other) const {
  return session == other.session && token == other.token && transport == other.transport &&
         address == other.address && remote.key == other.remote.key &&
         remote.base == other.remote.base && remote.length == other.remote.length &&
         pool == other.pool && receive_depth == other.receive_depth &&
         message_bytes_max == other.message_bytes_max && medium == other.medium;
}

ServiceCounters& operator+=(ServiceCounters& sum, const ServiceCounters& more) {
  sum.messages += more.messages;
  sum.refused_messages += more.refused_messages;
  sum.copied_bytes += more.copied_bytes;
  sum.flush_calls += more.flush_calls;
  sum.acks += more.acks;
  sum.sessions += more.sessions;
  sum.writers_fenced += more.writers_fenced;
  sum.replayed_messages += more.replayed_messages;
  sum.medium_failures += more.medium_failures;
  sum.revocation_failures += more.revocation_failures;
  return sum;
}

ServiceTimes& operator+=(ServiceTimes& sum, const ServiceTimes& more) {
  sum.flush += more.flush;
  sum.answer += more.answer;
  return sum;
}

std::string host_identity() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string identity;
  std::getline(file, identity);
  return identity.empty() ? "unknown" : identity;
}

namespace {

/// What is added to the boot time for this process (time_namespaces(7)): lines "boottime S NS".
std::int64_t time_namespace_s() {
  std::ifstream file("/proc/self/timens_offsets");
  std::string clock;
  std::int64_t seconds = 0;
  std::int64_t nanoseconds = 0;
  while (file >> clock >> seconds >> nanoseconds) {
    if (clock == "boottime") return seconds;
  }
  return 0;
}

}  // namespace

std::optional<std::uint64_t> kernel_up_s() {
  // Not /proc/uptime: lxcfs shows the age of a container there.
  timespec up{};
  // tidy-allow(steady_clock): the kernel's own time, which is compared with that of another start
  if (::clock_gettime(CLOCK_BOOTTIME, &up) != 0) return std::nullopt;
  const std::int64_t seconds = up.tv_sec - time_namespace_s();
  return seconds < 0 ? 0 : static_cast<std::uint64_t>(seconds);
}

}  // namespace perdure::control
