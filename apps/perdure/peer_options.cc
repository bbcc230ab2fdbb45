// The words by which peers and pools are named.
#include "peer_options.h"

#include "client/peer.h"
#include "client_profile.h"
#include "control/host_port.h"
#include "core/try.h"

#include <fmt/format.h>

namespace perdure::app {

namespace {

Option need(Option option, Needed needed, const char* variable) {
  if (needed == Needed::Never) return option;
  return option.required(needed == Needed::Yes).from_environment(variable);
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
                       "Which RNIC of this machine, by name or address (the first that fits)")
           .option_text("NAME"),
       needed, kRnicVariable);
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
