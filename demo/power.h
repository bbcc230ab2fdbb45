// The same job over the emulated fabric, with power cuts. Three machines of different kinds; the
// power of one or of all fails at a random instant in the middle of appending; what survives is
// what their kind of memory keeps, torn as real media tear.
#pragma once

#include <perdure/result.h>

#include "demo/appender.h"
#include "demo/replica_check.h"
#include "demo/text.h"

#include <cstdint>
#include <string>
#include <vector>

namespace perdure::demo {

struct PowerOptions {
  std::uint64_t seed = 1;
  std::uint64_t cuts_max = 24;
  std::uint64_t records = 1500;  // per cut
  std::size_t window = 32;
  Nanoseconds at_most = std::chrono::seconds(15);  // no cut begins later
};

/// One power cut.
struct PowerCut {
  std::uint64_t seed = 0;            // of its world
  std::uint64_t event = 0;           // the power failed after so many events of the appending
  std::uint64_t events = 0;          // events of the appending when no power fails
  std::string lost;                  // "all", or the machine's name
  std::uint64_t appended = 0;        // when it happened
  std::uint64_t committed = 0;       // acknowledged to the writer by then
  std::uint64_t recovered = 0;       // records of the log afterwards
  std::string found;                 // what was wrong with replicas
  std::vector<ReplicaCheck> checks;  // at the end, with all records appended
  std::string failure;               // empty: everything held
};

/// Latencies are of the emulated fabric's clock.
struct PowerResult {
  PowerOptions options;
  std::vector<ReplicaMethod> methods;
  Latencies latencies;  // of a run without a cut on three machines of one kind, one in flight
  std::vector<PowerCut> cuts;
  std::uint64_t cuts_in_flight = 0;  // cuts that found records appended and not committed
  bool good() const;
};

/// Errors: only what has nothing to do with a cut; what a cut brought to light is its `failure`.
Result<PowerResult> run_power_cuts(const PowerOptions& options, const RecordText& text);

report::Table power_table(const PowerResult& result);

}  // namespace perdure::demo
