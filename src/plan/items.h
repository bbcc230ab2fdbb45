// The two items of the papers' updates: `a`, and `b`, which must not be durable before it.
#pragma once

#include "core/method.h"

namespace perdure::plan::items {

inline constexpr Item a = 0;
inline constexpr Item b = 1;

}  // namespace perdure::plan::items
