// Pool under power failure: whatever part of the unflushed words reached the medium, the state
// that is read afterwards is the old one or the new one, and a new one once it was acknowledged.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "core/random.h"
#include "pmem/pool.h"

namespace perdure::pmem {
namespace {

constexpr std::size_t kRegionBytes = kPoolDataOffset + 4096;
constexpr std::size_t kWordBytes = 8;  // what persistent memory writes whole

using Image = std::vector<std::byte>;

/// What a power failure can leave: the durable bytes, with any part of the words stored since.
/// Damage it can do: every single word alone, all but one, every beginning and every end of the
/// stores, and random halves. It does not tear a word.
struct CrashPoint {
  Image durable;
  Image stored;

  void for_each_outcome(Random& random, const std::function<void(const Image&)>& check) const {
    std::vector<std::size_t> dirty;
    for (std::size_t at = 0; at < durable.size(); at += kWordBytes)
      if (std::memcmp(&durable[at], &stored[at], kWordBytes) != 0) dirty.push_back(at);
    const auto outcome = [&](const std::function<bool(std::size_t)>& reached) {
      Image image = durable;
      for (std::size_t i = 0; i < dirty.size(); ++i)
        if (reached(i)) std::memcpy(&image[dirty[i]], &stored[dirty[i]], kWordBytes);
      check(image);
    };
    for (std::size_t n = 0; n <= dirty.size(); ++n) {
      outcome([n](std::size_t i) { return i < n; });
      outcome([n](std::size_t i) { return i >= n; });
      outcome([n](std::size_t i) { return i == n; });
      outcome([n](std::size_t i) { return i != n; });
    }
    for (int round = 0; round < 50; ++round)
      outcome([&](std::size_t) { return random.chance(1, 2); });
  }
};

/// Keeps a crash point for the instant before each flush, and can fail a flush.
class RecordingRegion final : public Region {
 public:
  explicit RecordingRegion(Image image) : memory_(image), durable_(std::move(image)) {}

  std::span<std::byte> bytes() override { return memory_; }
  PersistenceDomain domain() const override { return PersistenceDomain::Dmp; }
  using Region::flush;
  Result<void> flush(std::span<const Range> ranges) override {
    points.push_back({durable_, memory_});
    if (fail_after-- <= 0) return Error{ErrorCode::SystemError, "the medium is gone"};
    for (const Range& range : ranges)
      std::memcpy(&durable_[range.at], &memory_[range.at], range.length);
    return {};
  }
  std::string evidence() const override { return "a test"; }

  /// The instant now: everything flushed, the rest perhaps.
  CrashPoint now() const { return {durable_, memory_}; }

  std::vector<CrashPoint> points;
  int fail_after = 1 << 30;

 private:
  Image memory_;
  Image durable_;
};

std::unique_ptr<RecordingRegion> region_of(const Image& image) {
  return std::make_unique<RecordingRegion>(image);
}

PoolOptions some_options() {
  PoolOptions options;
  options.kind = "log";
  options.name = "crash";
  return options;
}

PoolState state_of(std::uint32_t epoch) {
  PoolState state;
  state.epoch = Epoch{epoch};
  state.holder = std::string(1 + epoch % 200, static_cast<char>('a' + epoch % 26));
  state.opaque.assign(epoch * 37 % (kOpaqueBytesMax + 1), static_cast<std::byte>(epoch));
  return state;
}

/// A pool and the recording region it stands on.
struct Stand {
  std::unique_ptr<Pool> pool;
  RecordingRegion* region = nullptr;
};

Stand formatted(const Image& image) {
  auto region = region_of(image);
  RecordingRegion* raw = region.get();
  auto pool = Pool::format(std::move(region), some_options());
  EXPECT_TRUE(pool.ok());
  return {pool.ok() ? std::move(*pool) : nullptr, raw};
}

/// The state that a crash left, read by attaching.
PoolState state_after(const Image& image) {
  auto pool = Pool::attach(region_of(image));
  EXPECT_TRUE(pool.ok()) << pool.error().message;
  return pool.ok() ? (*pool)->state() : PoolState{};
}

TEST(PoolCrash, StateIsOldOrNewAtEveryInstantAndNewOnceAcknowledged) {
  Random random(0x5eed);
  Stand stand = formatted(Image(kRegionBytes));
  PoolState old;
  for (std::uint32_t epoch = 1; epoch <= 6; ++epoch) {
    const PoolState next = state_of(epoch);
    stand.region->points.clear();
    ASSERT_TRUE(stand.pool->set_state(next).ok());
    ASSERT_EQ(stand.region->points.size(), 3U);  // as the header promises: three flushes
    bool seen_old = false;
    bool seen_new = false;
    for (const CrashPoint& point : stand.region->points)
      point.for_each_outcome(random, [&](const Image& image) {
        const PoolState found = state_after(image);
        EXPECT_TRUE(found == old || found == next);
        seen_old |= found == old;
        seen_new |= found == next;
      });
    EXPECT_TRUE(seen_old && seen_new);
    stand.region->now().for_each_outcome(
        random, [&](const Image& image) { EXPECT_EQ(state_after(image), next); });
    old = next;
  }
}

// The power fails again while the first crash is being repaired.
TEST(PoolCrash, MendingACrashMayCrashToo) {
  Random random(0x5eed);
  Stand stand = formatted(Image(kRegionBytes));
  const PoolState old = state_of(3);
  const PoolState next = state_of(4);
  ASSERT_TRUE(stand.pool->set_state(old).ok());
  stand.region->points.clear();
  ASSERT_TRUE(stand.pool->set_state(next).ok());
  std::size_t images = 0;
  for (const CrashPoint& point : stand.region->points)
    point.for_each_outcome(random, [&](const Image& image) {
      if (++images % 16 != 0) return;  // every sixteenth: each gives thousands of second crashes
      auto region = region_of(image);
      RecordingRegion* raw = region.get();
      auto pool = Pool::attach(std::move(region));
      ASSERT_TRUE(pool.ok());
      const PoolState first = (*pool)->state();
      for (const CrashPoint& second : raw->points)
        second.for_each_outcome(random,
                                [&](const Image& again) { EXPECT_EQ(state_after(again), first); });
    });
  EXPECT_GT(images, 100U);
}

// The drive lost the unit of the header, and the power fails while it is made whole again.
TEST(PoolCrash, RepairingALostHeaderMayCrashToo) {
  Random random(0x5eed);
  Stand stand = formatted(Image(kRegionBytes));
  ASSERT_TRUE(stand.pool->set_state(state_of(3)).ok());
  Image lost = stand.region->now().durable;
  std::fill_n(lost.begin(), kDriveUnitBytes, std::byte{0});
  auto region = region_of(lost);
  RecordingRegion* raw = region.get();
  auto pool = Pool::attach(std::move(region));
  ASSERT_TRUE(pool.ok()) << pool.error().message;
  EXPECT_GE(raw->points.size(), 4U);  // the header, and the copies of the state
  for (const CrashPoint& point : raw->points)
    point.for_each_outcome(random,
                           [&](const Image& image) { EXPECT_EQ(state_after(image), state_of(3)); });
}

TEST(PoolCrash, OneDamagedCopyNeverBringsBackAnOlderEpoch) {
  Stand stand = formatted(Image(kRegionBytes));
  for (std::uint32_t epoch = 1; epoch <= 3; ++epoch)
    ASSERT_TRUE(stand.pool->set_state(state_of(epoch)).ok());
  const Image whole = stand.region->now().durable;
  for (std::size_t at = kPoolPageBytes; at < kPoolHeadBytes; ++at) {
    Image damaged = whole;
    damaged[at] ^= std::byte{0x10};
    EXPECT_EQ(state_after(damaged), state_of(3)) << "byte " << at;
  }
}

TEST(PoolCrash, FormatLeavesNothingOrAWholePool) {
  Random random(0x5eed);
  // On blank memory, and over an older pool whose epoch must not shine through.
  Stand older = formatted(Image(kRegionBytes));
  ASSERT_TRUE(older.pool->set_state(state_of(9)).ok());
  for (const Image& before : {Image(kRegionBytes), older.region->now().durable}) {
    Stand stand = formatted(before);
    const Uuid uuid = stand.pool->uuid();
    std::size_t refused = 0;
    for (const CrashPoint& point : stand.region->points)
      point.for_each_outcome(random, [&](const Image& image) {
        auto pool = Pool::attach(region_of(image));
        if (!pool.ok()) {
          ++refused;
          return;
        }
        // Expect: the pool that was there, as long as not a word of it was touched, but for the
        // copy of its header; or the new.
        if ((*pool)->uuid() == uuid) {
          EXPECT_EQ((*pool)->state(), PoolState{});
        } else {
          Image old = image;
          std::copy_n(before.begin() + kHeaderCopyOffset, kPoolPageBytes,
                      old.begin() + kHeaderCopyOffset);
          EXPECT_EQ(old, before);
          EXPECT_EQ((*pool)->state(), state_of(9));
        }
      });
    EXPECT_GT(refused, 0U);
    auto pool = Pool::attach(region_of(stand.region->now().durable));
    ASSERT_TRUE(pool.ok());
    EXPECT_EQ((*pool)->uuid(), uuid);
  }
}

TEST(PoolCrash, CloseIsAStateLikeAnyOther) {
  Random random(0x5eed);
  Stand stand = formatted(Image(kRegionBytes));
  ASSERT_TRUE(stand.pool->set_state(state_of(5)).ok());
  EXPECT_FALSE(Pool::attach(region_of(stand.region->now().durable)).value()->was_shut_down());
  stand.region->points.clear();
  ASSERT_TRUE(stand.pool->close().ok());
  for (const CrashPoint& point : stand.region->points)
    point.for_each_outcome(
        random, [&](const Image& image) { EXPECT_EQ(state_after(image).epoch, Epoch{5}); });

  auto region = region_of(stand.region->now().durable);
  RecordingRegion* raw = region.get();
  auto pool = Pool::attach(std::move(region));
  ASSERT_TRUE(pool.ok());
  EXPECT_TRUE((*pool)->was_shut_down());
  // The mark is gone from the medium before anyone can write: a crash now is a crash.
  EXPECT_FALSE(Pool::attach(region_of(raw->now().durable)).value()->was_shut_down());
}

TEST(PoolCrash, AFailedFlushIsReportedAndLosesNothing) {
  for (int working_flushes = 0; working_flushes < 3; ++working_flushes) {
    Random random(0x5eed);
    Stand stand = formatted(Image(kRegionBytes));
    ASSERT_TRUE(stand.pool->set_state(state_of(1)).ok());
    stand.region->fail_after = working_flushes;
    EXPECT_EQ(stand.pool->set_state(state_of(2)).code(), ErrorCode::SystemError);
    stand.region->now().for_each_outcome(random, [&](const Image& image) {
      const PoolState found = state_after(image);
      EXPECT_TRUE(found == state_of(1) || found == state_of(2));
    });
  }
}

}  // namespace
}  // namespace perdure::pmem
