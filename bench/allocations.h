// Counts heap allocations: operator new of the whole program is replaced by one that counts. Our
// code allocates in no other way; what C libraries take with malloc is not ours.
#pragma once

#include <cstdint>

namespace perdure::bench {

/// Allocations by this thread since it began. Always 0 where allocations_counted is false.
std::uint64_t allocations();

/// False in builds with sanitizers, which bring an operator new of their own.
bool allocations_counted();

}  // namespace perdure::bench
