#include "client/dial.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "core/mutex.h"
#include "core/per_process.h"
#include "core/try.h"
#include "fabric/emu/live_device.h"
#include "fabric/open_device.h"

namespace perdure::client {
namespace {

struct Defaults {
  Mutex mutex;
  fabric::EndpointOptions endpoints PERDURE_GUARDED_BY(mutex);
};

Defaults& defaults() {
  static Defaults of_process;
  return of_process;
}

using DeviceKey = std::pair<Transport, std::string>;

/// The devices of one process that somebody has.
struct OpenDevices {
  Mutex mutex;
  std::map<DeviceKey, std::weak_ptr<fabric::Device>> devices PERDURE_GUARDED_BY(mutex);
};

PerProcess<OpenDevices> open_devices;

/// Threads share it, except over tcp: docs/decisions/0026-devices-of-a-process.md.
Result<std::shared_ptr<fabric::Device>> device_of_process(const DeviceKey& key) {
  if (key.first == Transport::Tcp) {
    PERDURE_TRY(own, fabric::open_device(key.first, key.second));
    return std::shared_ptr<fabric::Device>(std::move(own));
  }
  OpenDevices& open = open_devices.here();
  const MutexLock lock(open.mutex);
  std::weak_ptr<fabric::Device>& known = open.devices[key];
  if (auto device = known.lock()) return device;
  PERDURE_TRY(opened, fabric::open_device(key.first, key.second));
  std::shared_ptr<fabric::Device> device = std::move(opened);
  known = device;
  return device;
}

/// The RNIC at our end of a connection to an emulated machine.
Result<std::shared_ptr<fabric::Device>> open_emulated(Transport transport) {
  fabric::emu::LiveOptions options;
  options.profile.transport = transport;
  PERDURE_TRY(device, fabric::emu::LiveDevice::open(options));
  return std::shared_ptr<fabric::Device>(std::move(device));
}

}  // namespace

/// Threads: any, for peers are used by several.
class Dialer::Devices {
 public:
  /// The device of this machine for a transport.
  Result<std::shared_ptr<fabric::Device>> of(Transport transport, const std::string& rnic) {
    const MutexLock lock(mutex_);
    auto& device = opened_[{transport, rnic}];
    if (device == nullptr) {
      PERDURE_TRY(opened, device_of_process({transport, rnic}));
      device = std::move(opened);
    }
    return device;
  }

  /// The device for a peer that left the choice to us.
  Result<std::shared_ptr<fabric::Device>> suitable(const control::ServiceDescription& service,
                                                   const std::vector<Transport>& refused,
                                                   const std::string& rnic) {
    const auto& offered = service.transports;
    if (service.emulated && !offered.empty()) return open_emulated(offered.front());
    const bool shm = std::find(offered.begin(), offered.end(), Transport::Shm) != offered.end();
    const bool reached = std::find(refused.begin(), refused.end(), Transport::Shm) == refused.end();
    if (shm && reached && service.host == control::host_identity()) return of(Transport::Shm, rnic);
    for (const Transport transport : offered) {
      if (!fabric::is_rdma(transport)) continue;
      if (auto device = of(transport, rnic); device.ok()) return device;
    }
    return of(Transport::Tcp, rnic);
  }

 private:
  Mutex mutex_;
  std::map<DeviceKey, std::shared_ptr<fabric::Device>> opened_ PERDURE_GUARDED_BY(mutex_);
};

void set_default_endpoints(const fabric::EndpointOptions& endpoints) {
  const MutexLock lock(defaults().mutex);
  defaults().endpoints = endpoints;
}

fabric::EndpointOptions default_endpoints() {
  const MutexLock lock(defaults().mutex);
  return defaults().endpoints;
}

Dialer::Dialer() : endpoints_(default_endpoints()), devices_(std::make_shared<Devices>()) {}

Result<void> Dialer::use_rnic(const RnicOptions& rnic) {
  PERDURE_TRY(endpoints, fabric::endpoints_for(rnic, endpoints_));
  endpoints_ = endpoints;
  rnic_ = rnic.name;
  return {};
}

Result<std::unique_ptr<HttpPeer>> Dialer::dial(const std::string& address,
                                               control::TransportChoice choice) {
  const auto devices = apart_ ? std::make_shared<Devices>() : devices_;
  const auto open = [&]() -> Result<std::unique_ptr<HttpPeer>> {
    if (choice) {
      PERDURE_TRY(device, devices->of(*choice, rnic_));
      return HttpPeer::open(address, std::move(device));
    }
    return HttpPeer::open_choosing(
        address, [devices, rnic = rnic_](const auto& service, const auto& refused) {
          return devices->suitable(service, refused, rnic);
        });
  };
  PERDURE_TRY(peer, open());
  peer->use_endpoints(endpoints_);
  return peer;
}

Result<std::vector<std::unique_ptr<Peer>>> Dialer::dial_replicas(
    const std::vector<std::string>& addresses, control::TransportChoice choice) {
  std::vector<std::unique_ptr<Peer>> peers;
  for (const std::string& address : addresses) {
    if (std::count(addresses.begin(), addresses.end(), address) > 1) {
      return Error{ErrorCode::InvalidArgument,
                   fmt::format("peer {} is named twice; a replica counts once", address)};
    }
    PERDURE_TRY(peer, dial(address, choice));
    peers.push_back(std::move(peer));
  }
  return peers;
}

}  // namespace perdure::client
