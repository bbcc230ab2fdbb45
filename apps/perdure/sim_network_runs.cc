#include "sim_network_runs.h"

#include "core/assert.h"
#include "core/counted.h"
#include "core/try.h"
#include "sim_files.h"

#include <fmt/format.h>

#include <algorithm>

namespace perdure::app {
namespace {

constexpr std::uint64_t kLogBytes = std::uint64_t{16} << 20;  // of each client

/// Errors  InvalidArgument: the device is too small for so many clients.
Result<void> check_network(const NetworkSetup& setup, const sim::NetworkOptions& options) {
  if (setup.device && kLogBytes * options.clients > setup.device->geometry.bytes()) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("{} holds {} MiB, and {} clients need {}: use fewer with --clients",
                             setup.device->name, setup.device->geometry.bytes() >> 20,
                             options.clients, kLogBytes * options.clients >> 20)};
  }
  return {};
}

}  // namespace

Result<NetworkSetup> read_network_without_banks(const NetworkFiles& files) {
  PERDURE_ASSERT(files.device.empty() && files.processor.empty());
  NetworkSetup setup;
  PERDURE_TRY(hardware, network_of(files.hardware));
  setup.hardware = std::move(hardware);
  return setup;
}

Result<NetworkSetup> read_network_setup(const NetworkFiles& files) {
  NetworkSetup setup;
  PERDURE_TRY(hardware, network_of(files.hardware));
  PERDURE_TRY(device, device_of(files.device));
  PERDURE_TRY(processor, processor_of(files.processor));
  if (device.geometry.line_bytes != memsys::kCacheLineBytes) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("{}: lines of {} bytes; a persist buffer's have {}", device.name,
                             device.geometry.line_bytes, memsys::kCacheLineBytes)};
  }
  setup.hardware = std::move(hardware);
  setup.device = std::move(device);
  setup.processor = std::move(processor);
  return setup;
}

std::string describe_memory(const NetworkSetup& setup) {
  if (!setup.device) {
    return fmt::format("{:.0f} ns an epoch", setup.hardware.network.medium_write);
  }
  return fmt::format("{}, {}, persisted at {}", setup.device->name, to_string(setup.order),
                     to_string(setup.persist_point));
}

Result<sim::NetworkResult> simulate_network(const NetworkSetup& setup,
                                            const sim::NetworkOptions& options) {
  if (!setup.device) {
    // A READ does not wait for what is behind the memory controller.
    const bool reads = options.strategy == sim::Strategy::Read;
    sim::FixedMemory memory(options.clients,
                            reads ? 0 : sim::picoseconds(setup.hardware.network.medium_write));
    return sim::run_network(setup.hardware, options, memory);
  }
  memsys::BankedMemoryOptions banked;
  banked.ordering = setup.order;
  banked.persist_point = setup.persist_point;
  banked.connections = options.clients;
  banked.log_bytes = kLogBytes;
  PERDURE_TRY_VOID(check_network(setup, options));
  memsys::BankedMemory memory(*setup.device, *setup.processor, banked);
  return sim::run_network(setup.hardware, options, memory);
}

Result<void> check_pair(const NetworkSetup& setup, const sim::NetworkOptions& options) {
  if (!sim::writes_anything(options)) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("none of {} writes anything ({:.1f} % of them do): nothing to "
                             "compare; ask for more with --network-transactions",
                             counted(options.transactions, "transaction"),
                             static_cast<double>(options.shape.writes_per_mille) / 10)};
  }
  return check_network(setup, options);
}

Result<NetworkPair> simulate_pair(const NetworkSetup& setup, sim::NetworkOptions options) {
  PERDURE_TRY_VOID(check_pair(setup, options));
  options.strategy = sim::Strategy::Sync;
  PERDURE_TRY(sync, simulate_network(setup, options));
  PERDURE_ASSERT(sync.writing > 0);
  options.strategy = sim::Strategy::Bsp;
  if (options.progress) {
    options.progress = [hears = options.progress, before = options.transactions](
                           std::uint64_t begun) { hears(before + begun); };
  }
  PERDURE_TRY(bsp, simulate_network(setup, options));
  return NetworkPair{std::move(sync), std::move(bsp)};
}

}  // namespace perdure::app
