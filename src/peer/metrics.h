// What a PeerService counts, as text for Prometheus (exposition format 0.0.4).
#pragma once

#include <string>

#include "peer/service_types.h"

namespace perdure::peer {

std::string metrics_text(const ServiceReport& report);

}  // namespace perdure::peer
