// Times that callers give, as they can be added to a clock's and multiplied by small numbers.
#pragma once

#include <algorithm>
#include <chrono>

namespace perdure {

/// From 0 to a year.
inline std::chrono::milliseconds bounded(std::chrono::milliseconds time) {
  constexpr std::chrono::milliseconds kLongest = std::chrono::hours(24 * 365);
  return std::clamp(time, std::chrono::milliseconds(0), kLongest);
}

}  // namespace perdure
