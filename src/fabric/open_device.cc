// See open_device.h.
#include "fabric/open_device.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "fabric/ofi/ofi.h"
#include "fabric/shm/shm.h"
#include "fabric/verbs/verbs.h"

namespace perdure::fabric {

Result<std::unique_ptr<Device>> open_device(Transport transport, const std::string& rnic) {
  if (is_rdma(transport)) return verbs::open_device(rnic, transport);
  return transport == Transport::Shm ? shm::open_device() : ofi::open_device();
}

void prepare_to_open(Transport transport) {
  if (transport != Transport::Tcp) return;
  constexpr const char* kRnics = "/sys/class/infiniband";
  std::error_code none;
  if (std::filesystem::exists(kRnics, none) && !std::filesystem::is_empty(kRnics, none)) return;
  ofi::prepare_to_open();
}

Result<EndpointOptions> endpoints_for(const RnicOptions& rnic, EndpointOptions endpoints) {
  if (rnic.ack_timeout) {
    if (*rnic.ack_timeout < kAckTimeoutMin || *rnic.ack_timeout > kAckTimeoutMax) {
      return Error{ErrorCode::InvalidArgument,
                   fmt::format("an ACK time-out of {}; an RNIC takes {} to {}", *rnic.ack_timeout,
                               kAckTimeoutMin, kAckTimeoutMax)};
    }
    endpoints.ack_timeout = static_cast<std::uint8_t>(*rnic.ack_timeout);
  }
  if (rnic.traffic_class) {
    if (*rnic.traffic_class > UINT8_MAX) {
      return Error{
          ErrorCode::InvalidArgument,
          fmt::format("a traffic class of {}; there are 0 to {}", *rnic.traffic_class, UINT8_MAX)};
    }
    endpoints.traffic_class = static_cast<std::uint8_t>(*rnic.traffic_class);
  }
  return endpoints;
}

}  // namespace perdure::fabric
