// What a PeerService and its control plane count, as text for Prometheus (exposition format 0.0.4).
#pragma once

#include <cstdint>
#include <string>

#include "control/service_types.h"
#include "server/http_listener.h"

namespace perdure::server {

/// Of clients of librpmem, for each of which an rpmemd is started in ssh's place.
struct RpmemCounters {
  std::uint64_t clients = 0;       // now
  std::uint64_t clients_max = 0;   // at a time
  std::uint64_t started = 0;       // clients for which an rpmemd was started
  std::uint64_t failed = 0;        // rpmemd that ended otherwise than with status 0
  std::uint64_t full = 0;          // refused: as many as there may be
  std::uint64_t unauthorized = 0;  // refused: no credential, or a wrong one
  std::uint64_t wrong = 0;         // refused: what they asked for is no command of librpmem's
  std::uint64_t silent = 0;        // closed: they did not ask in time, or others came
  std::uint64_t not_started = 0;   // refused: rpmemd could not be run
};

std::string metrics_text(const control::ServiceReport& report);
std::string metrics_text(const HttpCounters& counters);
std::string metrics_text(const RpmemCounters& counters);

}  // namespace perdure::server
