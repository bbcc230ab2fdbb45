// Processor: cores, caches and persist buffers as numbers, read from a file and refused when they
// can not be.
#pragma once

#include <perdure/result.h>

#include "memsys/order_sizes.h"
#include "sim/station.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace perdure::memsys {

/// Picoseconds: cores and memory have different clocks.
using sim::kTimeNever;
using sim::Time;

struct CacheGeometry {
  std::uint64_t bytes = 0;
  std::uint64_t ways = 0;
};

inline constexpr std::uint64_t kCacheLineBytes = 64;
inline constexpr std::uint32_t kCoresMax = 32;
inline constexpr std::uint32_t kThreadsPerCoreMax = 8;

struct Processor {
  std::string name;
  std::uint32_t cores = 0;
  std::uint32_t threads_per_core = 0;
  Time instruction_ps = 0;         // one that needs no memory
  std::uint64_t loads = 1;         // of a thread in flight; with more, it waits for one
  std::uint64_t store_buffer = 0;  // stores of a thread that wait for their lines
  CacheGeometry l1;                // of a core, data
  CacheGeometry l2;                // of all, inclusive
  Time l1_ps = 0;
  Time l2_ps = 0;                       // with the directory
  Time crossbar_ps = 0;                 // core to L2 or core to core, one way
  std::uint64_t buffer_entries = 0;     // persist buffer of a core
  std::uint64_t remote_entries = 0;     // persist buffer of the RNIC
  std::uint64_t queue_entries = 0;      // writes of a thread in the ordering controller
  std::uint64_t barrier_registers = 0;  // barriers of a thread there
  std::uint64_t recovery_entries = kAsapRecoveryEntries;  // ASAP: of each memory controller
  std::uint64_t epoch_entries = kAsapEpochEntries;        // ASAP: epochs of a thread
  std::uint64_t old_value_reads = 1;                      // ASAP: for each undo record; 0 or 1
  std::uint64_t bank_writes =
      1;                    // BROI: of a bank in the memory controller, before a local one goes
  Time schedule_ps = 0;     // what the ordering controller takes for a choice
  double sigma = 0;         // of equation 2
  double remote_share = 0;  // remote writes go when less of the memory controller's queue is used
  Time remote_wait_ps = 0;  // or when one has waited so long

  std::uint32_t threads() const { return cores * threads_per_core; }
};

/// Errors: InvalidArgument with file and line or key; NotFound, SystemError when it can not be
/// read.
Result<Processor> read_processor(const std::string& path);
Result<Processor> parse_processor(std::string_view text, std::string name);

}  // namespace perdure::memsys
