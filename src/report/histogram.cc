// Buckets: 128 of width 1, then for every power of two 128 of equal width.
#include "report/histogram.h"

#include "core/assert.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace perdure::report {
namespace {

constexpr std::uint64_t kPerOctave = 128;
constexpr unsigned kPerOctaveBits = 7;
static_assert(std::uint64_t{1} << kPerOctaveBits == kPerOctave);

std::size_t bucket_of(std::uint64_t value) {
  if (value < kPerOctave) return value;
  const unsigned shift = static_cast<unsigned>(std::bit_width(value)) - kPerOctaveBits - 1;
  return (shift + 1) * kPerOctave + (value >> shift) - kPerOctave;
}

/// The largest value of a bucket.
std::uint64_t bucket_end(std::size_t bucket) {
  if (bucket < kPerOctave) return bucket;
  const std::size_t shift = bucket / kPerOctave - 1;
  return ((kPerOctave + bucket % kPerOctave + 1) << shift) - 1;
}

}  // namespace

Histogram::Histogram() : buckets_(bucket_of(kValueMax) + 1) {}

void Histogram::add(Nanoseconds value) {
  const auto ns = static_cast<std::uint64_t>(std::max<std::int64_t>(value.count(), 0));
  ++buckets_[bucket_of(std::min(ns, kValueMax))];
  min_ = count_ == 0 ? ns : std::min(min_, ns);
  max_ = std::max(max_, ns);
  sum_ += static_cast<double>(ns);
  ++count_;
}

void Histogram::add(const Histogram& other) {
  if (other.count_ == 0) return;
  for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    buckets_[bucket] += other.buckets_[bucket];
  }
  min_ = count_ == 0 ? other.min_ : std::min(min_, other.min_);
  max_ = std::max(max_, other.max_);
  sum_ += other.sum_;
  count_ += other.count_;
}

Nanoseconds Histogram::min() const { return Nanoseconds(static_cast<std::int64_t>(min_)); }

Nanoseconds Histogram::mean() const {
  if (count_ == 0) return Nanoseconds{0};
  return Nanoseconds(std::llround(sum_ / static_cast<double>(count_)));
}

Nanoseconds Histogram::quantile(double fraction) const {
  PERDURE_ASSERT(fraction > 0);
  PERDURE_ASSERT(fraction <= 1);
  if (count_ == 0) return Nanoseconds{0};
  // The nearest rank; a hair less, so that 0.99 of 100 values is the 99th and not the 100th.
  const double rank = std::ceil(fraction * static_cast<double>(count_) - 1e-6);
  const auto wanted = std::clamp<std::uint64_t>(static_cast<std::uint64_t>(rank), 1, count_);
  std::uint64_t seen = 0;
  for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    seen += buckets_[bucket];
    if (seen < wanted) continue;
    if (seen == count_) return max();  // the last value is known exactly
    return Nanoseconds(static_cast<std::int64_t>(bucket_end(bucket)));
  }
  return max();
}

}  // namespace perdure::report
