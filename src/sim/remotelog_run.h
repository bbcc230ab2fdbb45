// RemotelogRun: REMOTELOG of the taxonomy paper, 4.1, simulated: one client appends records to a
// log in a server's memory, each made durable by one method before the next is begun, while the
// server applies records, gives their room back and posts receive buffers again.
#pragma once

#include "core/distribution.h"
#include "sim/method_machine.h"

#include <cstdint>
#include <functional>

namespace perdure::sim {

struct RemotelogOptions {
  std::uint64_t records = 10'000;
  double record_bytes = 64;  // section 4.4; the tail pointer of a compound update has 8
  /// Section 4.2's stand-ins for what no RNIC had: a READ for FLUSH, WRITE and READ for ATOMIC
  /// WRITE. Right or not, they take the time.
  bool read_for_flush = true;
  bool write_for_atomic = true;
  bool flushes_always = false;  // see PriceOptions
  /// The paper states none of these; assumptions.
  ResponderOptions responder{.receive_buffers = 1024,
                             .recycle = 50,
                             .rnr_timer = 10'000,  // the shortest but 0 that InfiniBand encodes
                             .apply = 200,
                             .collect_records = 64,  // or the whole log, if that is less
                             .collect = 1000,
                             .log_records = 65'536};
  std::function<void(std::uint64_t)> progress;  // hears now and then how many are appended
};

struct RemotelogResult {
  Distribution<6> append;  // ps, from an append's begin to durable
  double elapsed_ns = 0;
  MachineCounts counts;
};

/// The most receive buffers that one update of the method takes.
std::uint64_t receive_buffers_of(const Method& method);

/// Requires  validate(method) succeeded; as many receive buffers as an update takes, or 0.
RemotelogResult run_remotelog(const Method& method, const ServerProfile& profile,
                              const Hardware& hardware, const RemotelogOptions& options);

}  // namespace perdure::sim
