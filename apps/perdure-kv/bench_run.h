// One run of a YCSB workload on a store, by one client with one operation in flight.
#pragma once

#include <perdure/kv.h>
#include <perdure/result.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/distribution.h"
#include "workload/ycsb/ycsb.h"

namespace perdure::kv_app {

struct BenchSizes {
  std::uint64_t records = 5'000;
  std::uint64_t operations = 10'000;  // of each workload
  std::size_t value_bytes = 4096;
  std::uint64_t seed = 1;
  RpcLevel acknowledged = RpcLevel::Durable;
  int stop = -1;  // see stop_signals.h: once it is readable, runs end
};

using Times = Distribution<7>;  // nanoseconds

struct BenchResult {
  char workload = 'A';
  double seconds = 0;
  std::array<Times, workload::kYcsbKinds> times;  // by kind
  std::uint64_t missing = 0;                      // reads of a record that was not there

  std::uint64_t operations() const;
};

/// Stores records 0 to `records` - 1. Errors: those of KvClient; SystemError, once it is stopped.
Result<void> load_records(KvClient& client, const BenchSizes& sizes);
/// Requires that they are there; erases what it inserts, after the time was taken.
/// Errors: those of KvClient; OutcomeUnknown and others end the run; SystemError, once it is
/// stopped, when what it has inserted is erased.
Result<BenchResult> run_workload(KvClient& client, const workload::YcsbMix& mix,
                                 const BenchSizes& sizes);

}  // namespace perdure::kv_app
