// What to say when a pool is on none of the peers: once, and what they have instead.
#pragma once

#include <perdure/result.h>

#include "peer_options.h"

namespace perdure::app {

/// NotFound because no peer that answers has the pool: an error that says so once, names the pools
/// that there are, and which of them may have been meant. Any other error unchanged, and then
/// nobody is asked.
Error explain_missing_pool(Error error, const PeerOptions& options);

}  // namespace perdure::app
