// The main job on one kind of medium: three perdured processes, a text appended record by record,
// one peer killed in the middle, started again, repaired, and every replica read back.
#pragma once

#include <perdure/log.h>
#include <perdure/result.h>

#include "demo/appender.h"
#include "demo/replica_check.h"
#include "demo/text.h"
#include "demo/timeline.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace perdure::demo {

struct JobOptions {
  std::string name;       // of the medium, for people: "files on ext4"
  std::string directory;  // where the pools are to be
  std::optional<PersistenceDomain> declared;
  std::optional<Transport> transport;  // nothing: shared memory, since the peers are on this host
  std::uint64_t records = 0;           // at least 4
  std::size_t window = 256;            // records in flight, but for the first phase
  std::uint64_t one_at_a_time_max = 2000;  // records of the first phase, with one in flight
  Nanoseconds one_at_a_time_for = std::chrono::milliseconds(1500);
  std::size_t victim = 1;  // which peer is killed
};

/// What happened. Everything is measured.
struct JobResult {
  JobOptions options;
  std::vector<ReplicaMethod> methods;
  Latencies one;   // one record in flight
  Latencies many;  // `window` records in flight
  std::uint64_t one_records = 0;
  std::uint64_t many_records = 0;
  double many_seconds = 0;
  std::uint64_t text_bytes = 0;
  pid_t killed = 0;
  std::uint64_t killed_after = 0;  // records committed when it was killed
  std::string noticed;             // what the log said of it
  RepairReport repair;
  double repair_seconds = 0;
  LogStatus closed;     // when the log had been closed, or was given up waiting for
  std::string lagging;  // what it said then of replicas that do not have everything; empty: all do
  std::vector<ReplicaCheck> checks;
  Timeline timeline;

  double records_per_second() const;
  double bytes_per_second() const;
  bool good() const { return as_promised(checks, closed) && repair.repaired; }
};

/// Errors: whatever kept it from going through; a replica that differs is not an error here.
Result<JobResult> run_job(const JobOptions& options, const RecordText& text);

/// Rows: one in flight, many in flight; p50, p99, p99.9 and maximum of both levels.
report::Table latency_table(const JobResult& result);

}  // namespace perdure::demo
