// Times in classes: see times.h.
#include "server/times.h"

#include <algorithm>

namespace perdure::server {
namespace {

/// Of a value that only the caller changes.
void raise(std::atomic<std::uint64_t>& value, std::uint64_t by) {
  value.store(value.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
}

}  // namespace

void SharedTimes::add(Nanoseconds time) {
  const auto ns = static_cast<std::uint64_t>(std::max<std::int64_t>(time.count(), 0));
  raise(classes_[control::TimeCounts::class_of(ns)], 1);
  raise(sum_ns_, ns);
}

control::TimeCounts SharedTimes::counts() const {
  control::TimeCounts counts;
  for (std::size_t i = 0; i < classes_.size(); ++i) {
    counts.classes[i] = classes_[i].load(std::memory_order_relaxed);
  }
  counts.sum_ns = sum_ns_.load(std::memory_order_relaxed);
  return counts;
}

}  // namespace perdure::server
