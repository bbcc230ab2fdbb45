// A machine that is made up file by file, for the doctor to look at.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "host/doctor_checks.h"
#include "pmem/test_support.h"

namespace perdure::host {

/// An RDMA device; the defaults are a RoCE RNIC below a Cascade Lake root port.
struct MadeUpRdma {
  std::string name = "mlx5_0";
  std::string description = "host mlx5_0";
  std::string node_type = "1: CA";
  std::string link_layer = "Ethernet";
  std::string state = "4: ACTIVE";
  std::string net_device = "eth2";
  std::string driver = "mlx5_core";
};

class Machine {
 public:
  /// A page-cache file system, and nothing else.
  Machine();

  Machine& file(const std::string& path, std::string_view text);
  /// A file that is there and can not be read, whoever asks: it is a directory.
  Machine& unreadable(const std::string& path);
  Machine& directory(const std::string& path);
  Machine& link(const std::string& path, const std::string& to);
  Machine& remove(const std::string& path);

  Machine& rdma(const MadeUpRdma& device = {});
  /// The configuration space of that RNIC's root port.
  Machine& root_port(const std::string& device, unsigned low, unsigned high,
                     std::size_t bytes = 4096);
  Machine& pool_on(pmem::MediumKind kind, PersistenceDomain found, const std::string& file_system);
  Machine& pool_on_device_dax();
  /// The one drive below the pool's file system; of page caches an sda that says "write back".
  Machine& drive(pmem::DriveKind kind, const std::string& name,
                 const std::string& write_cache = "");
  /// The drive is reached through a loop device over this file.
  Machine& image(const std::string& file, const std::string& mount_options);
  /// It is reached through other devices, one of which, if it has a name here, swallows flushes.
  Machine& stacked_on(const std::string& swallows = "");
  /// Its dax/write_cache says 0; what follows is concluded.
  Machine& leaves_caches();
  /// Call after drive() and image(): what follows from all is concluded.
  Machine& mount_options(const std::string& options);
  Machine& in_a_virtual_machine();
  Machine& pool(const PoolThere& pool);
  Machine& pool_bytes(std::uint64_t bytes);
  /// The block device of the pool's file system: number 8:1 is a partition of `disk`.
  Machine& disk(const std::string& disk);
  Machine& config(std::string_view toml);

  InspectedHost inspected() const;

  static constexpr char kRnicPath[] = "/sys/devices/pci0000:17/0000:17:00.0/0000:18:00.0";
  static constexpr char kRootPort[] = "/sys/devices/pci0000:17/0000:17:00.0";

 private:
  std::string at(const std::string& path) const;

  // Shared, so that a machine can be copied on the remedy of a chain of calls.
  std::shared_ptr<pmem::TestDirectory> root_;
  Place place_;
};

/// Runs one check. Expects the verdict, a part of the finding, and what every check owes: evidence,
/// and unless all is well what to do, with a command.
void expect(Check (*check)(const InspectedHost&), const Machine& machine, Verdict verdict,
            const std::string& finding);

/// What every check owes.
void expect_whole(const Check& check);

}  // namespace perdure::host
