// What this process takes of the machine, under the names that Prometheus' own libraries use.
#pragma once

#include <string>

namespace perdure::server {

/// What can not be found out is left out. Cost: reads /proc; counts the descriptors.
std::string process_metrics_text();

}  // namespace perdure::server
