// Times that callers give, as they can be added to a clock's and multiplied by small numbers.
#pragma once

#include <algorithm>
#include <chrono>

namespace perdure {

/// From 0 to a year, in the caller's own unit: max() of any unit but nanoseconds overflows when it
/// is made nanoseconds, so this comes first.
template <typename Rep, typename Period>
std::chrono::duration<Rep, Period> bounded(std::chrono::duration<Rep, Period> time) {
  using Time = std::chrono::duration<Rep, Period>;
  constexpr Time kLongest = std::chrono::hours(24 * 365);
  return std::clamp(time, Time(0), kLongest);
}

}  // namespace perdure
