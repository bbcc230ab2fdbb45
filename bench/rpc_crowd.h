// Many clients of one server of durable calls, all in one process and driven by one thread: what
// they cost the server, whether it serves them alike, and what happens when all of them lose it.
#pragma once

#include <perdure/result.h>

#include "core/clock.h"

#include <cstddef>
#include <cstdint>
#include <string>

namespace perdure::bench {

struct CrowdOptions {
  std::string directory;  // of the server's files; it is made
  std::string transport;  // "tcp" or "shm"
  std::size_t clients = 1'000;
  std::uint64_t calls = 100'000;  // of all clients together, each with one in flight
  bool lose_server = false;       // afterwards it is killed and started again, in traffic
};

/// Of the calls that were counted: the first of each client are not.
struct CrowdFindings {
  double processor_us = 0;  // of the server, a call
  double calls_per_second = 0;
  std::uint64_t server_bytes = 0;  // resident, beyond the pool's file
  std::uint64_t calls_fewest = 0;  // of a client
  std::uint64_t calls_most = 0;
  double opened_s = 0;  // all clients, one after the other
  // When the server was lost.
  double away_s = 0;                // from its end until a new one serves
  double back_s = 0;                // from then until each client had a new call applied
  std::uint64_t connects_most = 0;  // TCP connections begun a second, by the whole host, averaged
                                    // over the second or little more in which they were most
  std::uint64_t resent = 0;         // calls
};

/// So many within that time, by the second; of less than a second as if it were one.
std::uint64_t by_the_second(std::uint64_t count, Nanoseconds within);

/// Runs them; in the end each client's calls are compared with what the handlers have counted in
/// the pool. Requires no threads in this process.
/// Errors: Corrupt (a call was executed twice, or never), TimedOut, those of RpcClient and of the
/// server.
Result<CrowdFindings> run_crowd(const CrowdOptions& options);

}  // namespace perdure::bench
