// A log of many bytes on several replicas, whose opening is compared with reading one of them once.
#pragma once

#include <perdure/result.h>

#include <cstdint>
#include <string>
#include <vector>

namespace perdure::bench {

struct LogToOpen {
  std::vector<std::string> peers;  // control planes of perdured
  std::string transport;           // "tcp" or "shm"
  std::string pool;                // created
  std::uint64_t bytes = 0;         // of the records
};

/// Creates the log on all of its replicas and appends until it has its bytes.
/// Errors: those of the control plane and of Log.
Result<void> fill(const LogToOpen& log);

/// Seconds until the log is open; the provider's library is loaded before. Errors: those of
/// Log::open; Corrupt when a replica is missing or the log does not end where it must.
Result<double> seconds_to_open(const LogToOpen& log);

/// Seconds in which Perdure's own reader (client::RemoteBytes) reads as many bytes of the first
/// replica's pool, and looks at none; the provider's library is loaded before.
/// Errors: those of the connection.
Result<double> seconds_to_read(const LogToOpen& log);

}  // namespace perdure::bench
