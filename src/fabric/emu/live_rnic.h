// The RNIC thread of a live device, and its accepting of new streams.
#pragma once

#include "fabric/emu/live_state.h"

#include <memory>

namespace perdure::fabric::emu {

/// Runs until `state->stopping`.
void run_rnic(const std::shared_ptr<LiveState>& state);

}  // namespace perdure::fabric::emu
