// Dialer: peers by address, over the transport that was asked for or that suits the two hosts.
#pragma once

#include <perdure/result.h>
#include <perdure/rnic.h>

#include <memory>
#include <string>
#include <vector>

#include "client/http_peer.h"
#include "control/service_types.h"
#include "fabric/fabric.h"

namespace perdure::client {

/// What every Dialer that is made from now on asks of its connections, until use_endpoints() says
/// something else. Not called: what EndpointOptions has. For a program that reads its settings
/// once, when it starts. Threads: any.
void set_default_endpoints(const fabric::EndpointOptions& endpoints);
fabric::EndpointOptions default_endpoints();

/// Has one device per transport and RNIC for all the peers it dials; they may outlive it. All
/// dialers of a process share it, except over tcp, and it is closed when nobody has it any more. A
/// child made by fork() opens its own.
/// Threads: one caller at a time; different ones are independent.
class Dialer {
 public:
  Dialer();

  /// Which RNIC of this machine, and what is asked of its connections, in place of what the process
  /// asks of all. For the peers that are dialled afterwards. Errors: InvalidArgument.
  Result<void> use_rnic(const RnicOptions& rnic);

  /// What is asked of connections: the time-out and the traffic class of RNICs among it. For the
  /// peers that are dialled afterwards.
  void use_endpoints(const fabric::EndpointOptions& endpoints) { endpoints_ = endpoints; }

  /// Peers that are dialled afterwards share no device over tcp: each may be connected to by a
  /// thread of its own while others use their connections.
  /// docs/decisions/0026-devices-of-a-process.md says why not otherwise.
  void keep_apart() { apart_ = true; }

  /// Sends nothing yet. `choice` nothing: when the first session is opened the peer is asked, and
  /// then it is shared memory when the peer runs on this host, offers it and is reached over it,
  /// else RDMA when both have an RNIC for it, else tcp. An emulated peer gets an emulated RNIC.
  /// Errors: InvalidArgument (the address), Unsupported (no such device here).
  Result<std::unique_ptr<HttpPeer>> dial(const std::string& address,
                                         control::TransportChoice choice);
  /// One for each address, each of which has a replica. Errors: those of dial; InvalidArgument (an
  /// address is there twice).
  Result<std::vector<std::unique_ptr<Peer>>> dial_replicas(
      const std::vector<std::string>& addresses, control::TransportChoice choice);

 private:
  class Devices;

  std::string rnic_;
  fabric::EndpointOptions endpoints_;
  std::shared_ptr<Devices> devices_;
  bool apart_ = false;
};

}  // namespace perdure::client
