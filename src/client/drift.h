// DriftWatch: notices that batches have come to take much longer, or much shorter, than the costs
// say by which their method was chosen. It is told times that were read anyway.
#pragma once

#include "core/clock.h"

#include <cstdint>

namespace perdure::client {

/// What a batch should take, in nanoseconds.
struct ExpectedTime {
  double shortest = 0;  // the responder polls
  double longest = 0;   // it has to be woken
};

/// Threads: one caller at a time.
class DriftWatch {
 public:
  /// The costs were measured at `now`; `changed`: and other methods are used since.
  void restart(Nanoseconds now, bool changed);

  /// A batch that was alone on the connection took this long. `watched`: it was asked for often
  /// enough that this is its own time, not the caller's.
  void note(const ExpectedTime& expected, Nanoseconds took, bool watched, Nanoseconds now);

  /// Most batches of a second and more were off by kDriftFactor, all in one direction; and the last
  /// measurement is long enough ago. Until restart.
  bool drifted() const { return drifted_; }

 private:
  void begin_window(Nanoseconds now);

  bool drifted_ = false;
  Nanoseconds not_before_{0};
  Nanoseconds interval_{0};
  Nanoseconds window_begin_{0};
  std::uint64_t batches_ = 0;
  std::uint64_t slow_ = 0;
  std::uint64_t fast_ = 0;
};

inline constexpr double kDriftFactor = 4;
inline constexpr std::uint64_t kDriftBatches = 64;
inline constexpr Nanoseconds kDriftWindow = std::chrono::seconds(1);
/// Between two measurements: at least this long, twice as long after each that changed nothing.
inline constexpr Nanoseconds kMeasureEveryMin = std::chrono::seconds(5);
inline constexpr Nanoseconds kMeasureEveryMax = std::chrono::minutes(10);
/// One measurement, on a usual connection: a caller with less time than that is not kept up by it.
inline constexpr Nanoseconds kMeasureTakes = std::chrono::milliseconds(5);

}  // namespace perdure::client
