// Histogram: a Distribution of latencies. A bucket is at most 1/128 of its value wide, so a
// quantile is less than 0.8 % off.
#pragma once

#include "core/clock.h"
#include "core/distribution.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace perdure::report {

class Histogram {
 public:
  /// Longer latencies count as this long; max() still tells the truth.
  static constexpr std::uint64_t kValueMax = (std::uint64_t{1} << 42) - 1;  // 73 minutes

  /// Negative values count as zero. No allocation.
  void add(Nanoseconds value) {
    values_.add(static_cast<std::uint64_t>(std::max<std::int64_t>(value.count(), 0)));
  }
  void add(const Histogram& other) { values_.add(other.values_); }

  std::uint64_t count() const { return values_.count(); }
  /// Zero when nothing was added, like all below.
  Nanoseconds max() const { return nanoseconds(values_.max()); }
  Nanoseconds min() const { return nanoseconds(values_.min()); }
  Nanoseconds mean() const { return Nanoseconds(std::llround(values_.mean())); }
  /// See Distribution::quantile.
  Nanoseconds quantile(double fraction) const { return nanoseconds(values_.quantile(fraction)); }

 private:
  static Nanoseconds nanoseconds(std::uint64_t value) {
    return Nanoseconds(static_cast<std::int64_t>(value));
  }

  Distribution<7> values_{kValueMax};
};

}  // namespace perdure::report
