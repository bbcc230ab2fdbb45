// How long the responder's work takes, counted in classes by the thread that does it and read by
// others: for /metrics. Reading the clock twice takes longer than flushing a line of memory, so
// where a flush is that cheap one in kTimedOneIn is timed, and one in so many looks for messages.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <utility>

#include "control/service_types.h"
#include "core/clock.h"
#include "pmem/lent_region.h"

namespace perdure::server {

/// Odd: where two kinds of flushes take turns, both are met.
inline constexpr std::uint32_t kTimedOneIn = 17;
static_assert(kTimedOneIn % 2 == 1);

/// Threads: one adds, any read; what they read may lack what is being added.
class SharedTimes {
 public:
  void add(Nanoseconds time);
  control::TimeCounts counts() const;

 private:
  std::array<std::atomic<std::uint64_t>, control::TimeCounts::kClasses> classes_{};
  std::atomic<std::uint64_t> sum_ns_{0};
};

/// Says which of many alike is timed.
class TimedSample {
 public:
  /// All of them where the medium is slow.
  explicit TimedSample(PersistenceDomain domain)
      : one_in_(domain == PersistenceDomain::Page ? 1 : kTimedOneIn), left_(one_in_) {}
  bool next() {
    if (--left_ != 0) return false;
    left_ = one_in_;
    return true;
  }

 private:
  const std::uint32_t one_in_;
  std::uint32_t left_;  // until the next one
};

/// A region whose flushes are timed. Threads: one at a time flushes.
class TimedRegion final : public pmem::LentRegion {
 public:
  TimedRegion(pmem::Region& region, const Clock& clock)
      : LentRegion(region), clock_(clock), sample_(region.domain()) {}

  using Region::flush;
  Result<void> flush(std::span<const pmem::Range> ranges) override {
    if (ranges.empty() || !sample_.next()) return LentRegion::flush(ranges);
    const Nanoseconds begin = clock_.now();
    auto flushed = LentRegion::flush(ranges);
    times_.add(clock_.now() - begin);
    return flushed;
  }
  control::TimeCounts times() const { return times_.counts(); }

 private:
  const Clock& clock_;
  TimedSample sample_;
  SharedTimes times_;
};

}  // namespace perdure::server
