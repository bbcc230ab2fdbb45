// Whether this is still the process that something was made in.
#pragma once

#include <cstdint>

namespace perdure {

/// How many fork()s lie between this process and the one that loaded the library: a child's number
/// differs from its parent's. Cost: one load.
std::uint32_t forks_so_far();

}  // namespace perdure
