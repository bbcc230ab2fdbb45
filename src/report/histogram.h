// Histogram: latencies in bounded memory, however many there are. A bucket is at most 1/128 of its
// value wide, so a quantile is less than 0.8 % off. Small, and free of allocation once made.
#pragma once

#include "core/clock.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace perdure::report {

class Histogram {
 public:
  /// Longer latencies count as this long; max() still tells the truth.
  static constexpr std::uint64_t kValueMax = (std::uint64_t{1} << 42) - 1;  // 73 minutes

  Histogram();

  /// Negative values count as zero. No allocation.
  void add(Nanoseconds value);
  void add(const Histogram& other);

  std::uint64_t count() const { return count_; }
  /// Zero when nothing was added, like all below.
  Nanoseconds max() const { return Nanoseconds(static_cast<std::int64_t>(max_)); }
  Nanoseconds min() const;
  Nanoseconds mean() const;
  /// The smallest bucket end that at least `fraction` of the values do not exceed; 0.5 is the
  /// median. Requires 0 < fraction <= 1.
  Nanoseconds quantile(double fraction) const;

 private:
  std::vector<std::uint64_t> buckets_;
  std::uint64_t count_ = 0;
  std::uint64_t max_ = 0;
  std::uint64_t min_ = 0;
  double sum_ = 0;
};

}  // namespace perdure::report
