// REMOTELOG over a real transport: the servers are processes of this machine.
#pragma once

#include "bench/remotelog.h"
#include "bench/server_process.h"
#include "testing/temporary_directory.h"

#include <memory>
#include <string>
#include <vector>

namespace perdure::bench {

/// Runs configurations over one transport. What these transports can honestly be asked: DDIO is
/// on, since the CPU places what arrives; the domain is declared of memory at /dev/shm, and what
/// it costs is paid (cache lines are written back), though no power fails here.
class MeasuredRuns {
 public:
  /// Starts the servers. Call it before this process opens a device.
  /// Errors: Unsupported (no /dev/shm), SystemError.
  static Result<std::unique_ptr<MeasuredRuns>> start(RemotelogFabric fabric, std::size_t replicas);

  /// Whether the configuration makes sense on this transport.
  static bool honest(const plan::Scenario& scenario) { return scenario.profile.ddio == Ddio::On; }

  /// Never fails otherwise than in the row.
  RemotelogRow run(const plan::Scenario& scenario, plan::Source source,
                   const RemotelogOptions& options, const RemotelogProgress& progress);

 private:
  MeasuredRuns(RemotelogFabric fabric, test::TemporaryDirectory directory)
      : fabric_(fabric), directory_(std::move(directory)) {}
  Result<void> run_into(RemotelogRow& row, const RemotelogProgress& progress);

  const RemotelogFabric fabric_;
  test::TemporaryDirectory directory_;
  std::vector<ServerProcess> servers_;
  std::unique_ptr<fabric::Device> device_;  // opened at the first run
  std::uint64_t runs_ = 0;
};

}  // namespace perdure::bench
