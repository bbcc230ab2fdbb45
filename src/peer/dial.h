// Dialer: peers by address, over the transport that was asked for or that suits the two hosts.
#pragma once

#include <perdure/result.h>

#include <map>
#include <memory>
#include <string>

#include "core/clock.h"
#include "peer/http_peer.h"
#include "peer/service_types.h"

namespace perdure::peer {

/// Keeps one device per transport for all the peers it dials.
/// Threads: one caller at a time.
class Dialer {
 public:
  /// Which RNIC of this machine, by its name or an address of its interface; empty: the first that
  /// fits. For the peers that are dialled afterwards.
  void use_rnic(std::string rnic) { rnic_ = std::move(rnic); }

  /// `choice` nothing: shared memory when the peer runs on this host and offers it, else RDMA when
  /// both have an RNIC for it, else tcp; a peer that does not answer now gets tcp. An emulated
  /// peer gets an emulated RNIC.
  /// Errors: InvalidArgument (the address), Unsupported (no such device here).
  Result<std::unique_ptr<HttpPeer>> dial(const std::string& address, TransportChoice choice,
                                         Deadline deadline);

 private:
  Result<std::shared_ptr<fabric::Device>> device(Transport transport);

  std::string rnic_;
  std::map<Transport, std::shared_ptr<fabric::Device>> devices_;
};

}  // namespace perdure::peer
