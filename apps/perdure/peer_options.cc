// The words by which peers and pools are named.
#include "peer_options.h"

#include "client/peer.h"
#include "client_profile.h"
#include "control/host_port.h"
#include "core/try.h"

#include <fmt/format.h>

#include <charconv>
#include <system_error>

namespace perdure::app {

namespace {

Option need(Option option, Needed needed, const char* variable) {
  if (needed == Needed::Never) return option;
  return option.required(needed == Needed::Yes).from_environment(variable);
}

/// `put` the number of the word into what connections are asked from now on.
Option add_endpoint_option(Command command, const std::string& name, unsigned low, unsigned high,
                           void (*put)(fabric::EndpointOptions&, std::uint8_t),
                           const std::string& description) {
  const auto take = [name, low, high, put](const std::string& word) -> Result<void> {
    unsigned value = 0;
    const char* const end = word.data() + word.size();
    const auto read = std::from_chars(word.data(), end, value);
    if (read.ec != std::errc() || read.ptr != end || value < low || value > high) {
      return Error{ErrorCode::InvalidArgument,
                   fmt::format("{}: '{}' is not between {} and {}", name, word, low, high)};
    }
    fabric::EndpointOptions asked = client::default_endpoints();
    put(asked, static_cast<std::uint8_t>(value));
    client::set_default_endpoints(asked);
    return {};
  };
  return command.add_option_function(name, take, description).option_text("N");
}

}  // namespace

Option add_peers_option(Command command, PeerOptions& options, Needed needed) {
  const Option peers =
      command
          .add_option("--peers", options.peers, "Control planes of the peers, separated by commas")
          .delimiter(',')
          .option_text("HOST:PORT,...")
          .each([](const std::string& word) -> Result<void> {
            PERDURE_TRY_VOID(control::parse_host_port(word));
            return {};
          });
  return need(peers, needed, kPeersVariable);
}

Option add_pool_option(Command command, PeerOptions& options, Needed needed) {
  const Option pool =
      command.add_option("--pool", options.pool, "Name of the pool, the same on every peer")
          .option_text("NAME")
          .each([](const std::string& word) -> Result<void> {
            const auto valid = control::validate_pool_name(word);
            if (!valid.ok()) return Error{valid.code(), word + ": " + valid.error().message};
            return {};
          });
  return need(pool, needed, kPoolVariable);
}

void add_transport_option(Command command, PeerOptions& options, Needed needed) {
  need(add_word_option(
           command, "--transport", options.transport, control::parse_transport_choice,
           "How the bytes travel; shm on one host only, the last three with an RNIC (auto)",
           "auto|tcp|shm|infiniband|roce|iwarp"),
       needed, kTransportVariable);
  need(command
           .add_option("--rnic", options.rnic,
                       "Which RNIC of this machine, by name or address (the first that fits "
                       "and is up)")
           .option_text("NAME"),
       needed, kRnicVariable);
  need(add_endpoint_option(
           command, "--rnic-ack-timeout", fabric::kAckTimeoutMin, fabric::kAckTimeoutMax,
           [](fabric::EndpointOptions& asked, std::uint8_t value) { asked.ack_timeout = value; },
           "When an RNIC sends again: 4.096 us times 2 to this power, at most 7 times (17)"),
       needed, kRnicAckTimeoutVariable);
  need(add_endpoint_option(
           command, "--rnic-traffic-class", 0, 255,
           [](fabric::EndpointOptions& asked, std::uint8_t value) { asked.traffic_class = value; },
           "RoCE: DSCP times 4 and two bits for ECN (the system's own)"),
       needed, kRnicTrafficClassVariable);
}

void add_timeout_option(Command command, PeerOptions& options, Needed needed) {
  need(command
           .add_option("--timeout-ms", options.timeout_ms,
                       "How long a peer may take to answer (5000)")
           .range(1, 3'600'000)
           .option_text("MS"),
       needed, kTimeoutVariable);
}

}  // namespace perdure::app
