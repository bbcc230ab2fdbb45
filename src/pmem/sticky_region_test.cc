// The laws of a region that keeps its first failure.
#include "pmem/sticky_region.h"

#include <gtest/gtest.h>

#include <future>

#include "core/random.h"
#include "pmem/crashable_region.h"
#include "pmem/lent_region.h"
#include "pmem/pool.h"

namespace perdure::pmem {
namespace {

std::unique_ptr<CrashableRegion> region_of_pages() {
  auto region = CrashableRegion::open({1 << 20, PersistenceDomain::Page});
  EXPECT_TRUE(region.ok());
  return std::move(region).value();
}

TEST(StickyRegion, ARefusedFlushIsRememberedByTheNextOneAndByCheck) {
  Random random(3);
  auto medium = region_of_pages();
  StickyRegion region(std::make_unique<LentRegion>(*medium));
  EXPECT_TRUE(region.check().ok());
  medium->refuse_flushes(ErrorCode::NoSpace, 1, random);
  EXPECT_EQ(region.flush(0, 1).code(), ErrorCode::NoSpace);
  // The medium itself would take the next one.
  EXPECT_EQ(region.check().code(), ErrorCode::NoSpace);
  EXPECT_EQ(region.flush(0, 1).code(), ErrorCode::NoSpace);
  EXPECT_TRUE(medium->flush(0, 1).ok());
}

/// Its flush waits until it is told to go on.
class SlowRegion final : public LentRegion {
 public:
  SlowRegion(Region& region, std::shared_future<void> go) : LentRegion(region), go_(go) {}
  using Region::flush;
  Result<void> flush(std::span<const Range> ranges) override {
    go_.wait();
    return LentRegion::flush(ranges);
  }

 private:
  std::shared_future<void> go_;
};

TEST(StickyRegion, CheckDoesNotWaitForAFlush) {
  auto medium = region_of_pages();
  std::promise<void> go;
  StickyRegion region(std::make_unique<SlowRegion>(*medium, go.get_future().share()));
  auto flushed = std::async(std::launch::async, [&] { return region.flush(0, 1).ok(); });
  EXPECT_TRUE(region.check().ok());  // hangs if it waits
  go.set_value();
  EXPECT_TRUE(flushed.get());
}

TEST(StickyRegion, APoolThatIsOpenedAgainBeginsAnew) {
  Random random(4);
  auto medium = region_of_pages();
  {
    auto pool = Pool::format(std::make_unique<LentRegion>(*medium), {});
    ASSERT_TRUE(pool.ok());
    PoolState state = (*pool)->state();
    state.epoch = Epoch{3};
    medium->refuse_flushes(ErrorCode::SystemError, 1, random);
    EXPECT_FALSE((*pool)->set_state(state).ok());
    EXPECT_FALSE((*pool)->region().check().ok());
    EXPECT_FALSE((*pool)->set_state(state).ok());
    EXPECT_FALSE((*pool)->close().ok());
  }
  auto again = Pool::attach(std::make_unique<LentRegion>(*medium));
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_TRUE((*again)->region().check().ok());
  EXPECT_FALSE((*again)->was_shut_down());
}

}  // namespace
}  // namespace perdure::pmem
