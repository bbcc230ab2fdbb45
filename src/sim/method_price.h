// The price of a method: its steps, one after the other, on modelled hardware. One update on an
// idle connection; what is priced is the same description that the checker proves.
#pragma once

#include "sim/method_machine.h"

namespace perdure::sim {

/// Requires  validate(method) succeeded.
Price price(const Method& method, const ServerProfile& profile, const Hardware& hardware,
            const PriceOptions& options);

}  // namespace perdure::sim
