// `perdure plan --hardware FILE`: right methods, priced by running their steps on hardware that is
// described in a file.
#pragma once

#include <perdure/profile.h>
#include <perdure/result.h>

#include "plan/plan.h"
#include "sim/hardware.h"
#include "sim/method_price.h"

#include <string>
#include <vector>

namespace perdure::app {

struct PricedCandidate {
  plan::Candidate candidate;
  sim::Price price;
};

/// Every method that is right, the one of the least simulated latency first (ties: in the order
/// that plan::candidates has). Errors: as for plan::candidates.
Result<std::vector<PricedCandidate>> priced_candidates(const ServerProfile& server,
                                                       const plan::Update& update,
                                                       const sim::Hardware& hardware);

/// A table of all, and what happens under the first.
std::string to_text(const std::vector<PricedCandidate>& priced, const ServerProfile& server,
                    const plan::Update& update, const sim::Hardware& hardware);

}  // namespace perdure::app
