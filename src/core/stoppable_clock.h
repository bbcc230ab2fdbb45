// StoppableClock: whoever waits by a Deadline of it stops waiting when somebody says so.
#pragma once

#include "core/clock.h"

#include <atomic>
#include <optional>

namespace perdure {

/// Another clock, until it is stopped or a deadline has passed: then all deadlines have that
/// after() gave.
/// Threads: any.
class StoppableClock final : public Clock {
 public:
  /// `clock`, and that of `until`, must outlive it.
  explicit StoppableClock(const Clock& clock, const std::optional<Deadline>& until = std::nullopt)
      : clock_(clock), until_(until) {}

  void stop() { stopped_ = true; }
  Nanoseconds now() const override { return clock_.now() + (stopped() ? kFar : Nanoseconds{0}); }
  Deadline after(Nanoseconds wait) const {
    const Deadline deadline(*this, wait);
    // Stopped before, it counts from far away.
    return stopped() ? Deadline(*this, Nanoseconds{0}) : deadline;
  }

 private:
  static constexpr Nanoseconds kFar = std::chrono::hours(24 * 365 * 100);

  bool stopped() const { return stopped_ || (until_ && until_->passed()); }

  const Clock& clock_;
  const std::optional<Deadline> until_;
  std::atomic<bool> stopped_{false};
};

/// Who waits for something else looks at his deadline that often at least: it may be stopped.
inline constexpr Nanoseconds kDeadlineLookEvery = std::chrono::milliseconds(20);

}  // namespace perdure
