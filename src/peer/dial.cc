#include "peer/dial.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/try.h"
#include "fabric/ofi/ofi.h"
#include "fabric/shm/shm.h"

namespace perdure::peer {
namespace {

/// The transport for a peer that left the choice to us.
Transport suitable(const std::string& address, Deadline deadline) {
  const auto service = HttpPeer::probe(address, deadline);
  if (!service.ok()) return Transport::Tcp;
  const auto& offered = service->transports;
  const bool shm = std::find(offered.begin(), offered.end(), Transport::Shm) != offered.end();
  return shm && service->host == host_identity() ? Transport::Shm : Transport::Tcp;
}

}  // namespace

Result<std::unique_ptr<HttpPeer>> Dialer::dial(const std::string& address, TransportChoice choice,
                                               Deadline deadline) {
  const Transport transport = choice ? *choice : suitable(address, deadline);
  PERDURE_TRY(over, device(transport));
  return HttpPeer::open(address, over);
}

Result<std::shared_ptr<fabric::Device>> Dialer::device(Transport transport) {
  if (const auto known = devices_.find(transport); known != devices_.end()) return known->second;
  if (transport != Transport::Tcp && transport != Transport::Shm) {
    return Error{ErrorCode::Unsupported,
                 fmt::format("no {} device on this machine", to_string(transport))};
  }
  PERDURE_TRY(opened, transport == Transport::Shm ? fabric::shm::open_device()
                                                  : fabric::ofi::open_device());
  std::shared_ptr<fabric::Device> shared = std::move(opened);
  devices_[transport] = shared;
  return shared;
}

}  // namespace perdure::peer
