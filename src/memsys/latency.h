// Latencies in bounded memory, however many there are: a bucket is at most 1/64 of its value wide.
#pragma once

#include "memsys/device.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

namespace perdure::memsys {

class Latencies {
 public:
  void add(Cycle value) {
    ++buckets_[bucket_of(value)];
    ++count_;
    sum_ += static_cast<double>(value);
    max_ = std::max(max_, value);
  }

  std::uint64_t count() const { return count_; }
  Cycle max() const { return max_; }
  double mean() const { return count_ == 0 ? 0 : sum_ / static_cast<double>(count_); }
  /// The smallest bucket end that at least `fraction` of the values do not exceed; 0 without any.
  Cycle quantile(double fraction) const {
    const double wanted = fraction * static_cast<double>(count_);
    std::uint64_t seen = 0;
    for (std::size_t i = 0; i < buckets_.size(); ++i) {
      seen += buckets_[i];
      if (seen > 0 && static_cast<double>(seen) >= wanted) return std::min(last_of(i), max_);
    }
    return max_;
  }

 private:
  static constexpr std::uint32_t kFineBits = 6;
  static constexpr std::uint64_t kFine = std::uint64_t{1} << kFineBits;

  static std::size_t bucket_of(Cycle value) {
    if (value < kFine) return value;
    const auto width = static_cast<std::uint32_t>(std::bit_width(value)) - kFineBits - 1;
    return (width + 1) * kFine + ((value >> width) - kFine);
  }
  static Cycle last_of(std::size_t bucket) {
    if (bucket < 2 * kFine) return bucket;
    const auto width = static_cast<std::uint32_t>(bucket / kFine) - 1;
    return ((bucket % kFine + kFine + 1) << width) - 1;
  }

  std::array<std::uint64_t, (64 - kFineBits + 1) * kFine> buckets_{};
  std::uint64_t count_ = 0;
  Cycle max_ = 0;
  double sum_ = 0;
};

}  // namespace perdure::memsys
