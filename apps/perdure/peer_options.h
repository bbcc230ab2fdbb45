// Options that name peers and a pool, shared by `log` and `pool`, and what is done with each peer.
#pragma once

#include <perdure/result.h>

#include "client/dial.h"
#include "commands.h"

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

namespace perdure::app {

struct PeerOptions {
  std::vector<std::string> peers;  // "host:port"
  std::string pool;
  control::TransportChoice transport;
  std::string rnic;
  std::uint64_t timeout_ms = 5000;

  std::chrono::milliseconds timeout() const { return std::chrono::milliseconds(timeout_ms); }
};

/// Whether a command is of no use without it. PERDURE_PEERS and the like, and below them the
/// client's profile (client_profile.h), stand in for what the command line does not say, except for
/// Never: that asks no peer unless told to.
enum class Needed { Yes, No, Never };
/// --peers; returns it.
Option add_peers_option(Command command, PeerOptions& options, Needed needed = Needed::Yes);
/// --pool; returns it.
Option add_pool_option(Command command, PeerOptions& options, Needed needed = Needed::Yes);
/// --transport, --rnic, and what RNICs are asked: --rnic-ack-timeout and --rnic-traffic-class,
/// which go to all connections of this process (client::set_default_endpoints).
void add_transport_option(Command command, PeerOptions& options, Needed needed = Needed::No);
void add_timeout_option(Command command, PeerOptions& options, Needed needed = Needed::No);

}  // namespace perdure::app
