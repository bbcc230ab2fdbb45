// Drift is noticed when it lasts, in both directions, and not more often than is good.
#include "client/drift.h"

#include <gtest/gtest.h>

namespace perdure::client {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr ExpectedTime kExpected{10'000, 60'000};

/// A watch and the time at which it is told of batches.
struct Watched {
  Watched() { watch.restart(now, true); }

  /// A batch every 10 ms for this long.
  void batches(seconds length, std::int64_t took_ns, bool watched = true) {
    for (const Nanoseconds end = now + length; now < end;) {
      now += milliseconds(10);
      watch.note(kExpected, Nanoseconds(took_ns), watched, now);
    }
  }

  DriftWatch watch;
  Nanoseconds now = seconds(100);
};

TEST(Drift, IsMostBatchesBeyondAFactorOfFour) {
  //             took_ns   drifted after 7 s
  const std::pair<std::int64_t, bool> cases[] = {
      {2'400, true},     // 10 us were expected at least
      {2'600, false},    //
      {10'000, false},   //
      {60'000, false},   //
      {239'000, false},  // 60 us were expected at most
      {241'000, true},   //
  };
  for (const auto& [took, drifted] : cases) {
    Watched watched;
    watched.batches(seconds(7), took);
    EXPECT_EQ(watched.watch.drifted(), drifted) << took;
  }
}

TEST(Drift, HalfTheBatchesAreNotMost) {
  Watched watched;
  for (int pair = 0; pair < 500; ++pair) {
    for (const std::int64_t took : {20'000, 500'000}) {
      watched.now += milliseconds(10);
      watched.watch.note(kExpected, Nanoseconds(took), true, watched.now);
    }
  }
  EXPECT_FALSE(watched.watch.drifted());
}

// A caller that asks once in a while makes every batch look slow.
TEST(Drift, IsNotSeenInBatchesThatNobodyWatched) {
  Watched watched;
  watched.batches(seconds(20), 5'000'000, false);
  EXPECT_FALSE(watched.watch.drifted());
  watched.batches(seconds(2), 1'000, false);  // but less is less, however seldom one looks
  EXPECT_TRUE(watched.watch.drifted());
}

TEST(Drift, NeedsASecondAndEnoughBatches) {
  Watched watched;
  watched.now += seconds(50);
  watched.watch.note(kExpected, seconds(1), true, watched.now);
  for (std::uint64_t batch = 2; batch < kDriftBatches; ++batch) {
    watched.watch.note(kExpected, seconds(1), true, watched.now);
  }
  EXPECT_FALSE(watched.watch.drifted());
  watched.watch.note(kExpected, seconds(1), true, watched.now);
  EXPECT_TRUE(watched.watch.drifted());
}

// Expect: after measurements that change nothing 10 s, 20 s, ... pass; after one that does, 5 s.
TEST(Drift, IsReportedLessAndLessWhileMeasuringChangesNothing) {
  Watched watched;
  const auto until_drifted = [&] {
    const Nanoseconds start = watched.now;
    while (!watched.watch.drifted()) watched.batches(seconds(1), 1'000'000);
    return std::chrono::duration_cast<seconds>(watched.now - start).count();
  };
  for (const std::int64_t expected : {5, 10, 20, 40}) {
    const std::int64_t took = until_drifted();
    EXPECT_GE(took, expected);
    EXPECT_LE(took, expected + 2);
    watched.watch.restart(watched.now, false);
  }
  watched.watch.restart(watched.now, true);
  EXPECT_LE(until_drifted(), 7);
}

}  // namespace
}  // namespace perdure::client
