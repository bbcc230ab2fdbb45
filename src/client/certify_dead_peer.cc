// What the time-outs of a connection come to, and whether a death that was seen kept to them.
#include <fmt/format.h>

#include "client/certify.h"

namespace perdure::client {
namespace {

/// 4.096 us times two to the power of it; an RNIC may take four times as long (InfiniBand volume 1,
/// 9.7.6.1.3).
double ack_timeout_ns(std::uint8_t ack_timeout) {
  return 4096.0 * static_cast<double>(std::uint64_t{1} << ack_timeout);
}
constexpr double kTimesAtMost = 4;
/// The kernel's connection manager leaves min_rnr_timer at 0, which means 655.36 ms (InfiniBand
/// volume 1, table 45).
constexpr double kRnrTimerNs = 655.36e6;
/// For what the requester and its processor take besides.
constexpr double kSlackNs = 1e9;

}  // namespace

CertifyCheck dead_peer_time(Transport transport, const fabric::EndpointOptions& asked,
                            std::optional<std::uint64_t> noticed_ns, bool restarted) {
  CertifyCheck check{"dead-peer-time", Proof::NotHere, "", {}};
  const bool rnic = !placed_by_cpu(transport) && !completes_early(transport);
  const double expected = fabric::kAckTries * ack_timeout_ns(asked.ack_timeout);
  if (rnic) {
    check.numbers = {{"ack_timeout", static_cast<double>(asked.ack_timeout)},
                     {"ack_tries", static_cast<double>(fabric::kAckTries)},
                     {"expected_ns", expected},
                     {"expected_ns_max", kTimesAtMost * expected},
                     {"no_receive_buffer_ns", fabric::kAckTries * kRnrTimerNs}};
  }
  const std::string configured =
      rnic ? fmt::format("{} tries at ACK time-out {} are {:.1f} s, and {:.1f} s at most",
                         fabric::kAckTries, asked.ack_timeout, expected / 1e9,
                         kTimesAtMost * expected / 1e9)
           : fmt::format("over {} the kernel or the time-out of whoever waits decides",
                         to_string(transport));
  if (!noticed_ns) {
    check.finding = configured +
                    "; how long it takes, `perdure probe --certify PEER --power-cut arm` measures "
                    "when you cut the peer's power";
    return check;
  }
  const auto noticed = static_cast<double>(*noticed_ns);
  check.numbers.emplace_back("noticed_ns", noticed);
  const char* verdict = "";
  check.proof = Proof::NotProved;
  if (!restarted) {
    verdict = "; but its machine has not been started anew since, so none was found dead";
  } else if (rnic && noticed < ack_timeout_ns(asked.ack_timeout)) {
    verdict = "; but it ended the connection itself, and no time-out was used";
  } else if (rnic && noticed > kTimesAtMost * expected + kSlackNs) {
    check.proof = Proof::Broken;
    verdict = ": the RNIC or the subnet manager uses another time-out";
  } else if (rnic) {
    check.proof = Proof::Held;
  }
  check.finding = fmt::format("the peer's loss showed {:.3f} s after its last answer; {}{}",
                              noticed / 1e9, configured, verdict);
  return check;
}

}  // namespace perdure::client
