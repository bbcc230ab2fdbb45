// `perdure plan --search`: all right methods for an update found by search, and, where one round
// trip is not to be had, why each sequence that would take one is wrong.
#pragma once

#include <perdure/profile.h>
#include <perdure/result.h>

#include "plan/search.h"

#include <string>

namespace perdure::app {

/// The search, with the checker as judge, as text. Errors: InvalidArgument (more items than the
/// search can take), Unsupported (the limit of sequences was reached).
/// Cost: milliseconds for two items, seconds for three.
Result<std::string> search_text(const ServerProfile& server, const plan::SearchOptions& options);

}  // namespace perdure::app
