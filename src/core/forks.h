// Whether this is still the process that something was made in.
#pragma once

#include <atomic>
#include <cstdint>

namespace perdure {

extern std::atomic<std::uint32_t> fork_count;  // for forks_so_far

/// How many fork()s lie between this process and the one that loaded the library: a child's number
/// differs from its parent's. Cost: one load.
inline std::uint32_t forks_so_far() { return fork_count.load(std::memory_order_relaxed); }

}  // namespace perdure
