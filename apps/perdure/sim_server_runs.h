// Runs of programs on a simulated processor, as the commands `perdure sim server`, `figure` and
// `all` share them.
#pragma once

#include "memsys/server/server_run.h"
#include "workload/transactions.h"

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace perdure::app {

inline constexpr std::array kServerWorkloads{
    workload::StructureKind::Hash, workload::StructureKind::Rbtree, workload::StructureKind::Sps,
    workload::StructureKind::Btree, workload::StructureKind::Ssca2};
inline constexpr std::array kServerOrders{memsys::Ordering::Sync,   memsys::Ordering::Epoch,
                                          memsys::Ordering::Thread, memsys::Ordering::Broi,
                                          memsys::Ordering::Hops,   memsys::Ordering::Strand,
                                          memsys::Ordering::Asap,   memsys::Ordering::Eadr};

struct ServerRunOptions {
  std::string device;  // empty: the built-in files of sim_files.h
  std::string processor;
  std::vector<workload::StructureKind> workloads{kServerWorkloads.begin(), kServerWorkloads.end()};
  std::vector<memsys::Ordering> orders{kServerOrders.begin(), kServerOrders.end()};
  workload::Logging logging = workload::Logging::Undo;
  memsys::PersistPoint persist_point = memsys::PersistPoint::Array;
  std::uint64_t transactions = 20'000;
  std::uint64_t warm_up = 20'000;
  std::uint64_t footprint_mib = 0;  // 0: the published one
  std::uint64_t partitions = 256;
  std::uint64_t cores = 0;  // 0: the file's
  std::uint64_t seed = 1;
  bool durable_commits = false;
  std::uint64_t log_gap = 0;  // bytes between the logs of two threads
  std::uint64_t remote_channels = 0;
  std::uint64_t remote_epoch_bytes = 512;
  std::uint64_t remote_interval_ns = 1000;
  bool remote_trace = false;  // of the same workload, on data of their own
};

struct ServerSetup {
  memsys::Device device;
  memsys::Processor processor;
};

/// What may be larger beside more cores.
struct ServerScale {
  std::uint32_t banks = 1;    // of the memory, of the same size
  std::uint32_t window = 1;   // queues of the memory controller
  std::uint32_t entries = 1;  // of persist buffers and of the ordering controller's queues
};
/// `setup` times `scale`. Requires  powers of two, and `banks` divides the rows of a bank.
ServerSetup scaled(ServerSetup setup, const ServerScale& scale);

struct ServerRow {
  workload::StructureKind workload = workload::StructureKind::Hash;
  memsys::Ordering order = memsys::Ordering::Broi;
  memsys::ServerResult result;
};

/// Errors  InvalidArgument, NotFound, SystemError: of a file.
Result<ServerSetup> read_server_setup(const ServerRunOptions& options);

/// Errors  InvalidArgument: the bytes of the option are no whole number of lines.
Result<void> check_whole_lines(std::string_view option, std::uint64_t bytes);
/// Errors  InvalidArgument: --log-gap is no whole number of lines.
Result<void> check_log_gap(const ServerRunOptions& options);

/// What can be said before a structure is built.
/// Errors  InvalidArgument: it has too many partitions, or the device is too small for it.
Result<void> check_servers(const ServerSetup& setup, const ServerRunOptions& options);

/// Structures as they are before the first transaction, each built when it is first asked for:
/// every run has a copy of its own.
class BuiltStructures {
 public:
  const workload::Structure& of(workload::StructureKind kind, const ServerRunOptions& options);

 private:
  using Key = std::tuple<workload::StructureKind, std::uint64_t, std::uint64_t, std::uint64_t>;
  std::map<Key, std::unique_ptr<workload::Structure>> built_;
};

/// All workloads under all orders; says on the terminal how far it is.
/// Errors  InvalidArgument: what does not fit, or a deadlock; ProtocolError: the law. Both name the
///         workload and the order, and what was simulated before is in `rows`.
Result<void> simulate_servers(const ServerSetup& setup, const ServerRunOptions& options,
                              BuiltStructures& structures, std::vector<ServerRow>& rows);
/// The same, if nothing of it is of use without the rest.
Result<std::vector<ServerRow>> simulate_servers(const ServerSetup& setup,
                                                const ServerRunOptions& options,
                                                BuiltStructures& structures);

/// Null: it was not run.
const memsys::ServerResult* find_row(const std::vector<ServerRow>& rows,
                                     workload::StructureKind kind, memsys::Ordering order);

/// One order over another, as the BROI paper reports it: over all workloads, geometric means.
struct ServerGain {
  std::size_t workloads = 0;  // that were run under both
  double operations = 1;
  double bus = 1;
};
ServerGain gain_of(const std::vector<ServerRow>& rows,
                   memsys::Ordering better = memsys::Ordering::Broi,
                   memsys::Ordering than = memsys::Ordering::Epoch);

/// The BROI paper, section VII.A: memory throughput (figure 9), operations (figure 10).
struct PublishedGain {
  double bus;
  double operations;
};
inline PublishedGain published_gain(bool hybrid) {
  return hybrid ? PublishedGain{1.18, 1.30} : PublishedGain{1.16, 1.28};
}

}  // namespace perdure::app
