// EmulatedMachine: an emulated RNIC and memory that loses power on demand, behind a PeerService in
// real time. For trying applications against power failures; everything it measures is *emulated*,
// and it keeps nothing beyond this process.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/mutex.h"
#include "core/random.h"
#include "fabric/emu/live_device.h"
#include "pmem/crashable_region.h"
#include "server/pool_store.h"

namespace perdure::server {

class EmulatedMachine final : public PoolStore {
 public:
  struct Options {
    /// What the machine is: its domain is that of all its pools.
    ServerProfile profile;
    std::uint64_t seed = 0;  // of keys, delays and what a power cut tears; 0: from the system
  };

  /// Errors: SystemError.
  static Result<std::unique_ptr<EmulatedMachine>> open(const Options& options);
  EmulatedMachine(const EmulatedMachine&) = delete;
  EmulatedMachine& operator=(const EmulatedMachine&) = delete;

  fabric::Device& device() { return *device_; }

  /// The power fails: connections break and what is not durable is lost or torn. The service on
  /// this machine is then to be abandoned and destroyed.
  void power_cut() { device_->power_cut(); }
  /// What survived is there. A new service may be opened. Requires that the old one is destroyed.
  void power_on() { device_->power_on(); }

  Result<std::vector<std::string>> names() override;
  /// Errors: AlreadyExists, NoSpace.
  Result<std::unique_ptr<pmem::Pool>> create(const control::PoolRequest& request,
                                             const PoolSettings& settings,
                                             const persist::ReceiveQueue& queue) override;
  /// Errors: NotFound, and those of pmem::Pool::attach.
  Result<std::unique_ptr<pmem::Pool>> open(const std::string& name,
                                           const PoolSettings& settings) override;
  /// Its memory goes with the machine.
  Result<void> remove(const std::string& name, const std::string& uuid) override;

 private:
  EmulatedMachine() = default;

  Mutex mutex_;
  // Declared before the device, which must not outlive them.
  std::map<std::string, std::unique_ptr<pmem::CrashableRegion>> regions_ PERDURE_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<pmem::CrashableRegion>> deleted_ PERDURE_GUARDED_BY(mutex_);
  ServerProfile profile_;
  std::unique_ptr<fabric::emu::LiveDevice> device_;
};

}  // namespace perdure::server
