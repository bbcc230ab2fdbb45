#include "client/drift.h"

#include <algorithm>

namespace perdure::client {

void DriftWatch::restart(Nanoseconds now, bool changed) {
  interval_ =
      changed ? kMeasureEveryMin : std::clamp(2 * interval_, kMeasureEveryMin, kMeasureEveryMax);
  not_before_ = now + interval_;
  drifted_ = false;
  begin_window(now);
}

void DriftWatch::begin_window(Nanoseconds now) {
  window_begin_ = now;
  batches_ = 0;
  slow_ = 0;
  fast_ = 0;
}

void DriftWatch::note(const ExpectedTime& expected, Nanoseconds took, bool watched,
                      Nanoseconds now) {
  const auto time = static_cast<double>(took.count());
  const bool long_time = time > expected.longest * kDriftFactor;
  if (long_time && !watched) return;
  ++batches_;
  slow_ += long_time ? 1 : 0;
  fast_ += time * kDriftFactor < expected.shortest ? 1 : 0;
  if (batches_ < kDriftBatches || now - window_begin_ < kDriftWindow) return;
  const bool most = 2 * std::max(slow_, fast_) > batches_;
  if (most && now >= not_before_) drifted_ = true;
  begin_window(now);
}

}  // namespace perdure::client
