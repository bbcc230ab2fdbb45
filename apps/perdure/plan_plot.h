// Cost over the size of a record, as `perdure plan --format plot` draws it.
#pragma once

#include <perdure/profile.h>
#include <perdure/result.h>

#include "plan/plan.h"

#include <cstdint>
#include <string>

namespace perdure::app {

/// One line per candidate, logarithmic axes, with the sizes at which the choice changes, as an SVG
/// file. Errors: as for plan::candidates.
Result<std::string> cost_plot(const ServerProfile& server, const plan::Update& update,
                              const plan::CostModel& costs, std::uint64_t bytes_max);

}  // namespace perdure::app
