// What a PeerService and its control plane count, as text for Prometheus (exposition format 0.0.4).
#pragma once

#include <string>

#include "control/service_types.h"
#include "server/http_listener.h"

namespace perdure::server {

std::string metrics_text(const control::ServiceReport& report);
std::string metrics_text(const HttpCounters& counters);

}  // namespace perdure::server
