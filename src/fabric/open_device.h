// The device for a transport, whichever provider it comes from.
#pragma once

#include <perdure/rnic.h>

#include "fabric/fabric.h"

namespace perdure::fabric {

/// Whether an RNIC carries it: verbs/.
constexpr bool is_rdma(Transport transport) {
  return transport == Transport::InfiniBand || transport == Transport::Roce ||
         transport == Transport::Iwarp;
}

/// Opens a device with keys of its own. `rnic`, for RDMA transports: the RNIC's name or an address
/// of its interface; empty: the first one for that transport. Errors: Unsupported, saying what
/// this machine or build lacks.
Result<std::unique_ptr<Device>> open_device(Transport transport, const std::string& rnic = {});

/// Does what opening the first device for this transport does once in a process, and opens none:
/// for a process that forks, so that its children need not do it each. Nothing is done where it
/// does not take long, nor where there is an RNIC: libfabric would open that, and what is open of
/// an RNIC does not survive fork(). Requires no other thread.
void prepare_to_open(Transport transport);

/// `endpoints` with what is asked of an RNIC's connections instead of their own.
/// Errors: InvalidArgument, saying what there is.
Result<EndpointOptions> endpoints_for(const RnicOptions& rnic, EndpointOptions endpoints);

}  // namespace perdure::fabric
