// Making bytes durable the way an application on an ADR machine does it by hand: write back every
// cache line, then one fence.
#pragma once

#include <cstddef>

namespace perdure::bench {

/// Whether this CPU has CLWB or CLFLUSHOPT.
bool can_flush_lines();

/// Writes back the lines of a range and waits. Requires can_flush_lines().
void flush_lines(const std::byte* data, std::size_t length);

}  // namespace perdure::bench
