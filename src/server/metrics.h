// What a PeerService counts, as text for Prometheus (exposition format 0.0.4).
#pragma once

#include <string>

#include "control/service_types.h"

namespace perdure::server {

std::string metrics_text(const control::ServiceReport& report);

}  // namespace perdure::server
