// An emulated machine behind a PeerService: see emulated_machine.h.
#include "server/emulated_machine.h"

#include <fmt/format.h>

#include "core/bytes.h"
#include "core/try.h"
#include "pmem/lent_region.h"

namespace perdure::server {
namespace {

// Emulated pools live in memory twice: as the CPU sees them, and as they would survive.
constexpr std::uint64_t kEmulatedBytesMax = std::uint64_t{8} << 30;

}  // namespace

Result<std::unique_ptr<EmulatedMachine>> EmulatedMachine::open(const Options& options) {
  std::unique_ptr<EmulatedMachine> machine(new EmulatedMachine());
  fabric::emu::LiveOptions live;
  live.profile = options.profile;
  live.seed = options.seed;
  PERDURE_TRY(device, fabric::emu::LiveDevice::open(live));
  machine->profile_ = options.profile;
  machine->device_ = std::move(device);
  return machine;
}

Result<std::vector<std::string>> EmulatedMachine::names() {
  std::vector<std::string> names;
  const MutexLock lock(mutex_);
  for (const auto& [name, region] : regions_) names.push_back(name);
  return names;
}

Result<std::unique_ptr<pmem::Pool>> EmulatedMachine::create(const control::PoolRequest& request,
                                                            const PoolSettings& settings,
                                                            const persist::ReceiveQueue& queue) {
  const pmem::PoolOptions pool = pool_options_of(request, settings, queue);
  pmem::CrashableRegion::Options options;
  options.bytes = pmem::kPoolDataOffset + round_up(pool.data_bytes, pmem::kPoolPageBytes);
  options.domain = profile_.domain;
  if (options.bytes > kEmulatedBytesMax) {
    return Error{ErrorCode::NoSpace, fmt::format("an emulated pool has at most {} bytes",
                                                 kEmulatedBytesMax - pmem::kPoolDataOffset)};
  }
  const MutexLock lock(mutex_);
  if (regions_.count(request.name) != 0) {
    return Error{ErrorCode::AlreadyExists,
                 fmt::format("there is a pool '{}' already", request.name)};
  }
  PERDURE_TRY(region, pmem::CrashableRegion::open(options));
  PERDURE_TRY(made, pmem::Pool::format(std::make_unique<pmem::LentRegion>(*region), pool));
  device_->attach(*region);
  regions_.emplace(request.name, std::move(region));
  return made;
}

Result<std::unique_ptr<pmem::Pool>> EmulatedMachine::open(const std::string& name,
                                                          const PoolSettings&) {
  const MutexLock lock(mutex_);
  const auto found = regions_.find(name);
  if (found == regions_.end()) {
    return Error{ErrorCode::NotFound, fmt::format("there is no emulated pool '{}'", name)};
  }
  return pmem::Pool::attach(std::make_unique<pmem::LentRegion>(*found->second));
}

Result<void> EmulatedMachine::remove(const std::string& name, const std::string&) {
  const MutexLock lock(mutex_);
  if (auto found = regions_.extract(name); !found.empty()) {
    deleted_.push_back(std::move(found.mapped()));
    return {};
  }
  return Error{ErrorCode::NotFound, fmt::format("there is no emulated pool '{}'", name)};
}

}  // namespace perdure::server
