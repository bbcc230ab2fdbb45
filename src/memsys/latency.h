// Latencies in cycles: see Distribution. A bucket is at most 1/64 of its value wide.
#pragma once

#include "core/distribution.h"
#include "memsys/device.h"

#include <type_traits>

namespace perdure::memsys {

static_assert(std::is_same_v<Cycle, std::uint64_t>);
using Latencies = Distribution<6>;

}  // namespace perdure::memsys
