// Staging keeps every record until it is released, in one piece, and never two at one place.
#include "log/staging.h"

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <vector>

#include "core/random.h"

namespace perdure::log {
namespace {

constexpr std::uint64_t kStagedRing = 1 << 20;

TEST(Staging, AdjacentRecordsAreOneRun) {
  Staging staging(4096);
  for (const std::uint64_t lsn : {64u, 128u, 192u}) {
    ASSERT_NE(staging.reserve(64), nullptr);
    staging.commit(Lsn{lsn}, 64, Lsn{lsn + 64});
  }
  EXPECT_EQ(staging.run_at(Lsn{64}, 1000, kStagedRing).length, 192u);
  EXPECT_EQ(staging.run_at(Lsn{128}, 1000, kStagedRing).length, 128u);
  EXPECT_EQ(staging.run_at(Lsn{64}, 100, kStagedRing).length, 64u);  // whole records only
  EXPECT_EQ(staging.run_at(Lsn{64}, 10, kStagedRing).length, 64u);   // but at least one
}

TEST(Staging, ARunEndsAtTheEndOfALap) {
  Staging staging(4096);
  ASSERT_NE(staging.reserve(128), nullptr);
  staging.commit(Lsn{kStagedRing - 128}, 128, Lsn{kStagedRing});
  ASSERT_NE(staging.reserve(64), nullptr);
  staging.commit(Lsn{kStagedRing}, 64, Lsn{kStagedRing + 64});
  EXPECT_EQ(staging.run_at(Lsn{kStagedRing - 128}, 1000, kStagedRing).length, 128u);
}

TEST(Staging, ARunSkipsWhatWasSkippedAtTheEndOfALap) {
  Staging staging(4096);
  ASSERT_NE(staging.reserve(64), nullptr);
  staging.commit(Lsn{kStagedRing}, 64, Lsn{kStagedRing + 64});
  const auto run = staging.run_at(Lsn{kStagedRing - 24}, 1000, kStagedRing);
  EXPECT_EQ(run.lsn, Lsn{kStagedRing});
  EXPECT_EQ(run.length, 64u);
}

// Whoever asked once may commit so much without asking again, whatever else happened meanwhile.
TEST(Staging, RoomGrowsLessByCommitsOnly) {
  Random random(9);
  Staging staging(4096);
  std::uint64_t committed = 0;
  std::uint64_t allowed = 0;           // bytes committed, up to which there was room at some moment
  std::vector<std::uint64_t> ends{0};  // of the records
  int times = 0;
  for (int step = 0; step < 20'000; ++step) {
    const std::size_t bytes = 8 + 8 * random.below(40);
    ASSERT_GE(committed + staging.room(), allowed);
    switch (random.below(5)) {
      case 0:
        staging.release(
            Lsn{64 + ends[ends.size() - 1 - random.below(std::min<std::size_t>(ends.size(), 4))]});
        break;
      case 1: (void)staging.has_room(8 * bytes, 3); break;
      case 2:
        if (staging.reserve(bytes) == nullptr) break;
        staging.commit(Lsn{64 + committed}, bytes, Lsn{64 + committed + bytes});
        ends.push_back(committed += bytes);
        break;
      case 3: allowed = std::max(allowed, committed + staging.room()); break;
      default:
        if (committed + bytes > allowed) break;
        staging.commit_in_room(Lsn{64 + committed}, bytes);
        ends.push_back(committed += bytes);
        ++times;
    }
  }
  EXPECT_GT(times, 100);
}

TEST(Staging, FullUntilReleased) {
  Staging staging(1024);
  ASSERT_NE(staging.reserve(512), nullptr);
  staging.commit(Lsn{64}, 512, Lsn{576});
  ASSERT_NE(staging.reserve(512), nullptr);
  staging.commit(Lsn{576}, 512, Lsn{1088});
  EXPECT_EQ(staging.reserve(64), nullptr);
  staging.release(Lsn{576});
  EXPECT_NE(staging.reserve(64), nullptr);
}

TEST(Staging, WhatFindsRoomFindsASlot) {
  Staging staging(1 << 20);
  std::uint64_t records = 0;
  for (; staging.reserve(8) != nullptr; ++records) {
    ASSERT_LT(records, 100'000u);
    staging.commit(Lsn{64 + 8 * records}, 8, Lsn{72 + 8 * records});
  }
  EXPECT_EQ(staging.first(), Lsn{64});  // none has taken the slot of another
  EXPECT_EQ(staging.run_at(Lsn{64}, 1 << 20, kStagedRing).length, 8 * records);
  staging.release(Lsn{64 + 8});
  EXPECT_NE(staging.reserve(8), nullptr);
}

// Records of random sizes come and go; each must still hold its bytes when it is released.
TEST(Staging, RecordsNeverOverlap) {
  Random random(3);
  Staging staging(8192);
  struct Kept {
    Lsn lsn;
    std::uint64_t length;
    unsigned char fill;
  };
  std::deque<Kept> kept;
  Lsn next{64};
  for (int round = 0; round < 20'000; ++round) {
    const std::uint64_t length = 8 * (1 + random.below(100));
    std::byte* to = staging.reserve(length);
    if (to != nullptr) {
      const auto fill = static_cast<unsigned char>(random.next());
      std::memset(to, fill, length);
      staging.commit(next, length, Lsn{next.value + length});
      kept.push_back({next, length, fill});
      next.value += length;
      continue;
    }
    ASSERT_FALSE(kept.empty());
    const Kept oldest = kept.front();
    kept.pop_front();
    const auto run = staging.run_at(oldest.lsn, oldest.length, kStagedRing * 1024);
    ASSERT_EQ(run.lsn, oldest.lsn);
    for (std::uint64_t at = 0; at < oldest.length; ++at) {
      ASSERT_EQ(run.data[at], std::byte{oldest.fill});
    }
    staging.release(Lsn{oldest.lsn.value + oldest.length});
  }
}

}  // namespace
}  // namespace perdure::log
