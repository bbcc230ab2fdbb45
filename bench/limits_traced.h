// Appends and calls under a tracer: which system calls they make, and how many instructions.
#pragma once

#include <perdure/result.h>

#include "bench/limits_log.h"
#include "bench/limits_rpc.h"
#include "bench/trace.h"

#include <cstdint>
#include <string>
#include <vector>

namespace perdure::bench {

/// Both sides poll, however slow the tracer makes them; so must the peer's perdured.
inline constexpr std::chrono::microseconds kTracedSpin = std::chrono::seconds(1);

/// The system calls of `appends` appends, each waited for until it is durable.
/// Errors: those of the log; Unsupported where a child can not be traced.
Result<SyscallCount> count_calls(LogUnderTestOptions options, std::uint64_t appends);

/// Of a client of durable calls, half of them to durable and half to applied. Errors: as above.
Result<SyscallCount> count_calls(RpcUnderTestOptions options, std::uint64_t calls);

struct StepCount {
  std::string method;             // of the log, while it was counted
  std::vector<double> posting;    // from append to the first instruction of the transport's library
  std::vector<double> gathering;  // of an append behind one in flight, from call to return
};

/// The instructions of so many appends of each kind. Errors: as above.
Result<StepCount> count_steps(LogUnderTestOptions options, std::uint64_t appends);

}  // namespace perdure::bench
