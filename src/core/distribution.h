// Distribution: how often values of each size came, in bounded memory, however many there are.
// Values below 2^kFineBits have a bucket each; above, every power of two has 2^kFineBits buckets of
// equal width. So a bucket is at most 1 / 2^kFineBits of its value wide, and a quantile is off by
// no more than that.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/assert.h"

namespace perdure {

template <unsigned kFineBits>
class Distribution {
 public:
  /// Larger values are counted as `largest`; max() and mean() still tell the truth.
  explicit Distribution(std::uint64_t largest = std::numeric_limits<std::uint64_t>::max())
      : largest_(largest), buckets_(bucket_of(largest) + 1) {}

  /// No allocation.
  void add(std::uint64_t value) {
    ++buckets_[bucket_of(std::min(value, largest_))];
    min_ = std::min(min_, value);
    max_ = std::max(max_, value);
    sum_ += static_cast<double>(value);
    ++count_;
  }
  /// Requires the same largest value.
  void add(const Distribution& other) {
    PERDURE_ASSERT(buckets_.size() == other.buckets_.size());
    if (other.count_ == 0) return;
    for (std::size_t i = 0; i < buckets_.size(); ++i) buckets_[i] += other.buckets_[i];
    min_ = std::min(min_, other.min_);
    max_ = std::max(max_, other.max_);
    sum_ += other.sum_;
    count_ += other.count_;
  }

  std::uint64_t count() const { return count_; }
  /// Zero when nothing was added, like all below.
  std::uint64_t max() const { return max_; }
  std::uint64_t min() const { return count_ == 0 ? 0 : min_; }
  double mean() const { return count_ == 0 ? 0 : sum_ / static_cast<double>(count_); }

  /// The smallest bucket end that at least `fraction` of the values do not exceed; 0.5 is the
  /// median. Requires 0 < fraction <= 1.
  std::uint64_t quantile(double fraction) const {
    PERDURE_ASSERT(fraction > 0);
    PERDURE_ASSERT(fraction <= 1);
    if (count_ == 0) return 0;
    // The nearest rank; a hair less, so that 0.99 of 100 values is the 99th and not the 100th.
    const double rank = std::ceil(fraction * static_cast<double>(count_) - 1e-6);
    const auto wanted = std::clamp<std::uint64_t>(static_cast<std::uint64_t>(rank), 1, count_);
    std::uint64_t seen = 0;
    for (std::size_t i = 0; i < buckets_.size(); ++i) {
      seen += buckets_[i];
      if (seen < wanted) continue;
      return seen == count_ ? max_ : bucket_end(i);  // the last value is known exactly
    }
    return max_;
  }

 private:
  static constexpr std::uint64_t kFine = std::uint64_t{1} << kFineBits;

  static std::size_t bucket_of(std::uint64_t value) {
    if (value < kFine) return value;
    const unsigned shift = static_cast<unsigned>(std::bit_width(value)) - kFineBits - 1;
    return (shift + 1) * kFine + (value >> shift) - kFine;
  }
  /// The largest value of a bucket.
  static std::uint64_t bucket_end(std::size_t bucket) {
    if (bucket < kFine) return bucket;
    const std::size_t shift = bucket / kFine - 1;
    return ((kFine + bucket % kFine + 1) << shift) - 1;
  }

  std::uint64_t largest_;
  std::vector<std::uint64_t> buckets_;
  std::uint64_t count_ = 0;
  std::uint64_t min_ = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t max_ = 0;
  double sum_ = 0;
};

}  // namespace perdure
