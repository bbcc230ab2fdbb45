// The bookkeeping of a queue pair, without one.
#include "fabric/verbs/send_ring.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>

namespace perdure::fabric::verbs {
namespace {

WorkRequest request(std::uint64_t context, bool signalled) {
  WorkRequest work;
  work.opcode = Opcode::Write;
  work.context = context;
  work.signalled = signalled;
  return work;
}

TEST(SendRing, CompletionOfOneSaysThatAllBeforeItSucceeded) {
  SendRing ring(8, 16);
  for (std::uint64_t i = 0; i < 3; ++i) {
    ring.push(request(i, i == 2));
    EXPECT_EQ(ring.issue(1), i >= 1) << "every second silent one asks: a quarter of the depth";
  }
  Completion completion;
  EXPECT_FALSE(ring.complete(1, completion)) << "nobody asked for number 1";
  EXPECT_EQ(ring.done_index(), 2u);
  ASSERT_TRUE(ring.complete(2, completion));
  EXPECT_EQ(completion.context, 2u);
  EXPECT_TRUE(ring.empty());
}

TEST(SendRing, FullWithSilentRequestsIsImpossible) {
  // Post: silent requests only, each in a random number of entries; the RNIC completes the oldest
  // that asked. Expect: whenever nothing more goes, something was asked for.
  std::mt19937 random(7);
  for (const std::size_t depth : {1u, 2u, 3u, 16u, 250u}) {
    SendRing ring(depth, depth + 19);
    std::deque<std::uint64_t> asked;
    std::uint64_t posted = 0;
    for (int step = 0; step < 20'000; ++step) {
      const std::size_t entries = 1 + random() % 19;
      if (!ring.full() && ring.fits(entries)) {
        ring.push(request(posted, false));
        const std::uint64_t number = ring.issue_index();
        if (ring.issue(entries)) asked.push_back(number);
        ++posted;
        continue;
      }
      ASSERT_FALSE(asked.empty()) << "depth " << depth << " after " << posted;
      Completion ignored;
      EXPECT_FALSE(ring.complete(asked.front(), ignored));
      asked.pop_front();
    }
    EXPECT_GT(posted, 1000u);
  }
}

TEST(SendRing, LossReportsEveryRequestOnceInOrderHeldOnesToo) {
  SendRing ring(8, 16);
  for (std::uint64_t i = 0; i < 5; ++i) ring.push(request(i, false));
  (void)ring.issue(1);
  (void)ring.issue(1);
  EXPECT_TRUE(ring.anything_held());
  for (std::uint64_t i = 0; i < 5; ++i) {
    ASSERT_FALSE(ring.empty());
    const Completion completion = ring.fail(ErrorCode::OutcomeUnknown);
    EXPECT_EQ(completion.context, i);
    EXPECT_EQ(completion.error, ErrorCode::OutcomeUnknown);
  }
  EXPECT_TRUE(ring.empty());
  EXPECT_FALSE(ring.anything_held());
}

}  // namespace
}  // namespace perdure::fabric::verbs
