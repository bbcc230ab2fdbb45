// The medium's costs are timed without leaving a trace, and a medium that refuses is reported.
#include "pmem/medium_costs.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "pmem/pool_format.h"

namespace perdure::pmem {
namespace {

/// A region whose flush takes a time that the test sets.
class TimedRegion final : public Region {
 public:
  TimedRegion(PersistenceDomain domain, ManualClock& clock) : domain_(domain), clock_(clock) {
    std::fill(memory_.begin(), memory_.end(), std::byte{0xa5});
    std::fill_n(memory_.begin() + kPoolScratchOffset, kPoolScratchBytes, std::byte{0});
    before_ = memory_;
  }

  std::span<std::byte> bytes() override { return memory_; }
  PersistenceDomain domain() const override { return domain_; }
  using Region::flush;
  Result<void> flush(std::span<const Range> ranges) override {
    ++flushes;
    clock_.advance(flush_takes);
    if (broken) return Error{ErrorCode::SystemError, "the medium is broken"};
    flushed_bytes += ranges.front().length;
    return {};
  }
  std::string evidence() const override { return "a test"; }

  bool unchanged() const { return memory_ == before_; }

  Nanoseconds flush_takes{0};
  bool broken = false;
  int flushes = 0;
  std::uint64_t flushed_bytes = 0;

 private:
  const PersistenceDomain domain_;
  ManualClock& clock_;
  std::vector<std::byte> memory_ = std::vector<std::byte>(kPoolDataOffset + 4096);
  std::vector<std::byte> before_;
};

constexpr Range kScratch{kPoolScratchOffset, kPoolScratchBytes};

TEST(MediumCosts, AFlushOfLinesIsSharedAmongThem) {
  ManualClock clock;
  TimedRegion region(PersistenceDomain::Dmp, clock);
  region.flush_takes = Nanoseconds{256 * 7};  // 16 KiB are 256 lines
  const auto costs = measure_medium(region, kScratch, clock);
  ASSERT_TRUE(costs.ok());
  EXPECT_EQ(*costs, (MediumCosts{0, 7000, 0}));  // copying takes no time on this clock
  EXPECT_EQ(region.flushes, 5);
  EXPECT_TRUE(region.unchanged());
}

TEST(MediumCosts, ASyncIsOneCostWhateverItsSize) {
  ManualClock clock;
  TimedRegion region(PersistenceDomain::Page, clock);
  region.flush_takes = std::chrono::microseconds(80);
  const auto costs = measure_medium(region, kScratch, clock);
  ASSERT_TRUE(costs.ok());
  EXPECT_EQ(*costs, (MediumCosts{0, 0, 80'000}));
  EXPECT_EQ(region.flushes, 3);
  EXPECT_EQ(region.flushed_bytes, 3 * 64u);
  EXPECT_TRUE(region.unchanged());
}

TEST(MediumCosts, ASlowMediumIsTimedOnce) {
  ManualClock clock;
  TimedRegion region(PersistenceDomain::Page, clock);
  region.flush_takes = std::chrono::milliseconds(11);
  EXPECT_EQ(measure_medium(region, kScratch, clock)->sync_ns, 11'000'000u);
  EXPECT_EQ(region.flushes, 1);
}

TEST(MediumCosts, AMediumThatRefusesIsReported) {
  ManualClock clock;
  TimedRegion region(PersistenceDomain::Page, clock);
  region.broken = true;
  EXPECT_EQ(measure_medium(region, kScratch, clock).code(), ErrorCode::SystemError);
}

}  // namespace
}  // namespace perdure::pmem
