#include "peer/dial.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/try.h"
#include "fabric/emu/live_device.h"
#include "fabric/ofi/ofi.h"
#include "fabric/shm/shm.h"

namespace perdure::peer {
namespace {

/// The transport for a peer that left the choice to us.
Transport suitable(const ServiceDescription& service) {
  const auto& offered = service.transports;
  const bool shm = std::find(offered.begin(), offered.end(), Transport::Shm) != offered.end();
  return shm && service.host == host_identity() ? Transport::Shm : Transport::Tcp;
}

Result<std::shared_ptr<fabric::Device>> open_device(Transport transport) {
  if (transport != Transport::Tcp && transport != Transport::Shm) {
    return Error{ErrorCode::Unsupported,
                 fmt::format("no {} device on this machine", to_string(transport))};
  }
  PERDURE_TRY(device, transport == Transport::Shm ? fabric::shm::open_device()
                                                  : fabric::ofi::open_device());
  return std::shared_ptr<fabric::Device>(std::move(device));
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
    choice = service.ok() ? suitable(*service) : Transport::Tcp;
  }
  PERDURE_TRY(over, device(*choice));
  return HttpPeer::open(address, over);
}

Result<std::shared_ptr<fabric::Device>> Dialer::device(Transport transport) {
  if (const auto known = devices_.find(transport); known != devices_.end()) return known->second;
  PERDURE_TRY(opened, open_device(transport));
  devices_[transport] = opened;
  return opened;
}

}  // namespace perdure::peer
