// Clock: the only way to learn the time. Passed in, so that tests and the simulator own time.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace perdure {

/// A length of time or a point of a Clock, in nanoseconds.
using Nanoseconds = std::chrono::nanoseconds;

/// The same length of time in seconds.
constexpr double to_seconds(std::chrono::duration<double> time) { return time.count(); }

class Clock {
 public:
  virtual ~Clock() = default;
  /// Nanoseconds since some fixed point; never goes back, unaffected by changes of the wall clock.
  virtual Nanoseconds now() const = 0;

  /// The machine's monotonic clock. Threads: any.
  static const Clock& monotonic();
};

/// A clock that stands still until told otherwise.
class ManualClock final : public Clock {
 public:
  Nanoseconds now() const override { return now_; }
  void advance(Nanoseconds by) { now_ += by; }

 private:
  Nanoseconds now_{0};
};

/// A point in time after which waiting ends.
class Deadline {
 public:
  Deadline(const Clock& clock, Nanoseconds after) : clock_(&clock), at_(clock.now() + after) {}
  static Deadline after(Nanoseconds wait) { return Deadline(Clock::monotonic(), wait); }

  bool passed() const { return clock_->now() >= at_; }
  /// What is left; zero once it has passed.
  Nanoseconds left() const {
    const Nanoseconds now = clock_->now();
    return now >= at_ ? Nanoseconds{0} : at_ - now;
  }
  /// This one, or `wait` from now if that is earlier. By the same clock: who stops it ends both.
  Deadline within(Nanoseconds wait) const {
    Deadline sooner = *this;
    sooner.at_ = std::min(at_, clock_->now() + wait);
    return sooner;
  }

 private:
  const Clock* clock_;
  Nanoseconds at_;
};

}  // namespace perdure
