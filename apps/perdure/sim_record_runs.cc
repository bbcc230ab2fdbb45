// A recorded trace on the simulator: see sim_record_runs.h.
#include "sim_record_runs.h"

#include "core/try.h"
#include "output.h"
#include "sim_files.h"
#include "sim_network_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace perdure::app {
namespace {

using memsys::Order;

// The first is what programs on persistent memory do today: CLWB and SFENCE. All have persist
// buffers of the same size.
constexpr std::array kOrders = {Order::Sync, Order::Epoch, Order::Broi, Order::Eadr};
constexpr std::uint64_t kUsualEpochs = 6;            // of the BROI paper, figure 4
constexpr std::uint64_t kNetworkTransactions = 200;  // each takes the same time but for the first
// A transaction of more takes that much longer for each, in either strategy.
constexpr std::uint64_t kEpochsMax = 10'000;
constexpr std::uint64_t kNetworkEpochs = 100'000;  // of a run

/// The same device, whose cells are written in half the time.
memsys::Device with_faster_cells(memsys::Device device) {
  device.name += ", cells written in half the time";
  device.timing.tWR /= 2;
  return device;
}

Result<std::vector<memsys::Device>> devices_of(const std::vector<std::string>& files) {
  std::vector<memsys::Device> devices;
  for (const std::string& file : files) {
    PERDURE_TRY(device, memsys::read_device(file));
    devices.push_back(std::move(device));
  }
  if (!devices.empty()) return devices;
  PERDURE_TRY(device, device_of(""));
  devices.push_back(device);
  devices.push_back(with_faster_cells(std::move(device)));
  return devices;
}

Result<double> time_on(const memsys::Device& device, const std::string& trace,
                       memsys::MemoryOptions options, StatusLine& status) {
  const std::string what = fmt::format("{} on {}", to_string(options.order), device.name);
  status.show(what);
  PERDURE_TRY(bytes, memsys::open_trace(trace));
  const memsys::AddressMap map(device);
  memsys::TraceReader reader(*bytes, trace, {map.lines(), map.line_bytes()});
  PERDURE_TRY(summary, reader.survey(memsys::TraceFormat::Perdure));
  const std::uint64_t requests = std::max<std::uint64_t>(summary.reads + summary.writes, 1);
  options.progress = [&](std::uint64_t left) {
    status.show(fmt::format("{}: {} %", what, 100 * (requests - left) / requests));
  };
  PERDURE_TRY(result, memsys::run_memory(device, reader, std::move(summary), options));
  const memsys::Cycle end = std::max(result.finish_cycle, result.persisted_cycle);
  return static_cast<double>(end) * device.clock_ns;
}

double over(double one, double other) { return other > 0 ? one / other : 0; }

Result<DeviceGain> gain_on(const memsys::Device& device, const std::string& trace,
                           memsys::PersistPoint persist_point, StatusLine& status) {
  DeviceGain gain;
  gain.device = device.name;
  for (const Order order : kOrders) {
    memsys::MemoryOptions options;
    options.order = order;
    options.sync_has_buffers = true;  // or what is compared would not be the order alone
    options.persist_point = persist_point;
    PERDURE_TRY(ns, time_on(device, trace, options, status));
    const double sync = gain.orders.empty() ? ns : gain.orders.front().ns;
    gain.orders.push_back({order, ns, over(sync, ns)});
  }
  return gain;
}

double microseconds_of(const sim::NetworkResult& result) {
  return over(static_cast<double>(result.waited) / 1e6, static_cast<double>(result.writing));
}

Result<NetworkGain> gain_over_network(const Recording& recording, const GainOptions& options) {
  NetworkGain gain;
  PERDURE_TRY(setup, read_network_without_banks({options.hardware, "", ""}));
  gain.hardware = setup.hardware.network.name;
  const std::uint64_t epochs = std::max<std::uint64_t>(recording.epochs, 1);
  const std::uint64_t bytes = recording.lines * memsys::kCacheLineBytes;
  gain.epoch_bytes = std::max<std::uint64_t>((bytes + epochs / 2) / epochs, 1);
  gain.epochs = options.epochs_per_transaction;
  if (gain.epochs == 0) {
    gain.epochs = recording.durable == 0 ? kUsualEpochs
                                         : std::max<std::uint64_t>(epochs / recording.durable, 1);
  }
  gain.epochs = std::min(gain.epochs, kEpochsMax);
  sim::NetworkOptions run;
  run.transactions = std::min(kNetworkTransactions, kNetworkEpochs / gain.epochs);
  run.shape.epochs = gain.epochs;
  run.shape.epoch_bytes = gain.epoch_bytes;
  PERDURE_TRY(pair, simulate_pair(setup, run));
  gain.sync_us = microseconds_of(pair.sync);
  gain.bsp_us = microseconds_of(pair.bsp);
  gain.gain = over(gain.sync_us, gain.bsp_us);
  return gain;
}

}  // namespace

Result<Gains> simulate_gains(const std::string& trace, const Recording& recording,
                             const GainOptions& options) {
  Gains gains;
  PERDURE_TRY(devices, devices_of(options.devices));
  StatusLine status;
  for (const memsys::Device& device : devices) {
    PERDURE_TRY(gain, gain_on(device, trace, options.persist_point, status));
    const double first =
        gains.devices.empty() ? gain.orders.front().ns : gains.devices.front().orders.front().ns;
    gain.gain = over(first, gain.orders.front().ns);
    gains.devices.push_back(std::move(gain));
  }
  PERDURE_TRY(network, gain_over_network(recording, options));
  gains.network = std::move(network);
  return gains;
}

}  // namespace perdure::app
