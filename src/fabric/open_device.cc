// See open_device.h.
#include "fabric/open_device.h"

#include "fabric/ofi/ofi.h"
#include "fabric/shm/shm.h"
#include "fabric/verbs/verbs.h"

namespace perdure::fabric {

Result<std::unique_ptr<Device>> open_device(Transport transport, const std::string& rnic) {
  if (is_rdma(transport)) return verbs::open_device(rnic, transport);
  return transport == Transport::Shm ? shm::open_device() : ofi::open_device();
}

}  // namespace perdure::fabric
