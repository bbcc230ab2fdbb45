// Figure 12 of *durable RPC*: what the failures of a server cost, to clients that send again what
// was not answered and to clients that rely on the log. The server is Perdure's own durable RPC in
// a process that gets SIGKILL and is back after 300 ms; the calls are logged ones, over when they
// are durable, or queries, which nothing keeps and which are over when they are answered.
#pragma once

#include <perdure/result.h>

#include "bench/rpc_point.h"
#include "report/page.h"
#include "report/table.h"

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace perdure::bench {

struct RpcFailureOptions {
  RpcFabric fabric = RpcFabric::Shm;  // not Emu
  std::uint64_t failures = 6;         // of each run
  std::uint64_t payload_bytes = 512;
  Nanoseconds work{20'000};               // of a call at the server, spun
  Nanoseconds quiet{1'000'000'000};       // before the failures, to see what a call takes
  Nanoseconds up{400'000'000};            // between coming back and the next failure, on average
  Nanoseconds down{300'000'000};          // section 5.4: unikernels start in about 300 ms
  std::chrono::milliseconds resend{100};  // section 5.4: the interval of sending again
  std::uint64_t seed = 1;
};

/// One client's run, with failures and, for as many calls, without.
struct RpcFailureRow {
  bool relies_on_log = false;
  unsigned write_percent = 0;
  std::uint64_t calls = 0;
  std::uint64_t failures = 0;
  std::uint64_t resent = 0;    // calls that were sent again
  std::uint64_t repeated = 0;  // writes that were executed more than once
  double seconds = 0;
  double call_us = 0;     // a call's share of the time when nothing fails
  double failure_ms = 0;  // what a failure adds to the time; below 0: calls took longer before them
  std::string failure;    // why there are no numbers

  std::uint64_t resent_bytes(const RpcFailureOptions& options) const {
    return resent * options.payload_bytes;
  }
  /// There are numbers, and the machine was quiet enough for what a failure costs to be one.
  bool priced() const { return failure.empty() && failure_ms > 0; }
  /// Seconds that so many calls take when the server is up that share of the time.
  double seconds_at(double availability, double calls, const RpcFailureOptions& options) const;
};

using RpcFailureProgress = std::function<void(const std::string& what)>;

/// How many rows that makes.
inline constexpr std::size_t kRpcFailureRows = 6;
/// Writes of a run, at most: how often each was executed is counted.
inline constexpr std::uint64_t kRpcFailureWritesMax = 4'000'000;
/// So many failures a run may have, for its writes to be fewer.
std::uint64_t rpc_failures_max(const RpcFailureOptions& options);
/// Errors: InvalidArgument: there are more.
Result<void> check_rpc_failures(const RpcFailureOptions& options);
/// Both kinds of clients, with 5, 50 and 95 percent of writes. Requires no threads.
/// Errors: those of check_rpc_failures; SystemError when interrupted.
Result<std::vector<RpcFailureRow>> run_rpc_failures(const RpcFailureOptions& options,
                                                    const RpcFailureProgress& progress);

std::string rpc_failures_text(const std::vector<RpcFailureRow>& rows,
                              const RpcFailureOptions& options);
void add_rpc_failures(report::ReportPage& page, const std::vector<RpcFailureRow>& rows,
                      const RpcFailureOptions& options);
nlohmann::json rpc_failures_json(const std::vector<RpcFailureRow>& rows,
                                 const RpcFailureOptions& options);

}  // namespace perdure::bench
