// Runs on the simulated network, as the commands `perdure sim network` and `perdure sim figure`
// share them: what is read from files, and one run.
#pragma once

#include "memsys/server/banked_memory.h"
#include "sim/network_form.h"
#include "sim/network_run.h"

#include <optional>
#include <string>

namespace perdure::app {

/// Empty: the built-in one of sim_files.h.
struct NetworkFiles {
  std::string hardware;
  std::string device;
  std::string processor;
};

/// Network and server; with a device and a processor, the server's memory has banks, a persist
/// buffer and an ordering controller, and without them each epoch takes the file's medium_write.
struct NetworkSetup {
  Hardware hardware;
  std::optional<memsys::Device> device;
  std::optional<memsys::Processor> processor;
  memsys::Ordering order = memsys::Ordering::Broi;
  memsys::PersistPoint persist_point = memsys::PersistPoint::Array;
};

/// Errors  InvalidArgument, NotFound, SystemError: of a file.
Result<NetworkSetup> read_network_setup(const NetworkFiles& files);
/// The same, with no device and no processor. Requires  none are named.
Result<NetworkSetup> read_network_without_banks(const NetworkFiles& files);

/// "nvm-a, broi, persisted at array"
std::string describe_memory(const NetworkSetup& setup);

/// Errors  as run_network; InvalidArgument: the device is too small for so many clients.
Result<sim::NetworkResult> simulate_network(const NetworkSetup& setup,
                                            const sim::NetworkOptions& options);

/// The same transactions under both strategies.
struct NetworkPair {
  sim::NetworkResult sync;
  sim::NetworkResult bsp;
  /// BSP's throughput over Sync's.
  double gain() const { return bsp.transactions_per_us() / sync.transactions_per_us(); }
};

/// What can be said of a pair before it is simulated.
/// Errors  InvalidArgument: none of the transactions writes anything, so that there is nothing to
///         compare; the device is too small for so many clients.
Result<void> check_pair(const NetworkSetup& setup, const sim::NetworkOptions& options);

/// `options.progress` hears of the transactions of both: in the end that twice as many have begun.
/// Errors  as simulate_network and check_pair.
Result<NetworkPair> simulate_pair(const NetworkSetup& setup, sim::NetworkOptions options);

}  // namespace perdure::app
