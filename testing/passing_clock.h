// PassingClock: the time of an emulated world, and a little more for each look. Whoever waits for a
// machine without power makes no event there, and its time passes all the same.
#pragma once

#include "core/clock.h"

namespace perdure::test {

/// Requires that `clock` outlives it. Threads: one.
class PassingClock final : public Clock {
 public:
  explicit PassingClock(const Clock& clock) : clock_(clock) {}
  Nanoseconds now() const override {
    looks_ += std::chrono::microseconds(10);
    return clock_.now() + looks_;
  }

 private:
  const Clock& clock_;
  mutable Nanoseconds looks_{0};
};

}  // namespace perdure::test
