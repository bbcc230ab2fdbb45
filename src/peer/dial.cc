#include "peer/dial.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/try.h"
#include "fabric/emu/live_device.h"
#include "fabric/open_device.h"

namespace perdure::peer {
namespace {

/// The transport for a peer that left the choice to us: shared memory on one host, else an RNIC at
/// both ends, else tcp.
Transport suitable(const ServiceDescription& service, const std::string& rnic) {
  const auto& offered = service.transports;
  const bool shm = std::find(offered.begin(), offered.end(), Transport::Shm) != offered.end();
  if (shm && service.host == host_identity()) return Transport::Shm;
  for (const Transport transport : offered) {
    if (fabric::is_rdma(transport) && fabric::open_device(transport, rnic).ok()) return transport;
  }
  return Transport::Tcp;
}

/// The RNIC at our end of a connection to an emulated machine.
Result<std::shared_ptr<fabric::Device>> open_emulated(const ServiceDescription& service) {
  fabric::emu::LiveOptions options;
  options.profile.transport = service.transports.front();
  PERDURE_TRY(device, fabric::emu::LiveDevice::open(options));
  return std::shared_ptr<fabric::Device>(std::move(device));
}

}  // namespace

Result<std::unique_ptr<HttpPeer>> Dialer::dial(const std::string& address, TransportChoice choice,
                                               Deadline deadline) {
  if (!choice) {
    const auto service = HttpPeer::probe(address, deadline);
    if (service.ok() && service->emulated && !service->transports.empty()) {
      PERDURE_TRY(emulated, open_emulated(*service));
      return HttpPeer::open(address, emulated);
    }
    choice = service.ok() ? suitable(*service, rnic_) : Transport::Tcp;
  }
  PERDURE_TRY(over, device(*choice));
  return HttpPeer::open(address, over);
}

Result<std::shared_ptr<fabric::Device>> Dialer::device(Transport transport) {
  if (const auto known = devices_.find(transport); known != devices_.end()) return known->second;
  PERDURE_TRY(opened, fabric::open_device(transport, rnic_));
  devices_[transport] = std::move(opened);
  return devices_[transport];
}

}  // namespace perdure::peer
