// The bookkeeping of a queue pair, without one.
#include "fabric/verbs/verbs_request_ring.h"

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

TEST(VerbsRequestRing, CompletionOfOneSaysThatAllBeforeItSucceeded) {
  VerbsRequestRing ring(8, 16, true);
  for (std::uint64_t i = 0; i < 3; ++i) {
    ring.push(request(i, i == 2));
    EXPECT_EQ(ring.issue(1), i >= 1) << "every second silent one asks: a quarter of the depth";
  }
  Completion completion;
  ring.complete(1);
  EXPECT_FALSE(ring.report(completion)) << "nobody asked for number 1";
  ring.complete(2);
  ASSERT_TRUE(ring.report(completion));
  EXPECT_EQ(completion.context, 2u);
  EXPECT_TRUE(ring.empty());
  ring.complete(1);  // once more: ignored
  EXPECT_FALSE(ring.report(completion));
}

TEST(VerbsRequestRing, AReadThatIsAnsweredLateHoldsBackTheCompletionsBehindIt) {
  VerbsRequestRing ring(8, 16, false);
  ring.push(request(0, true));
  WorkRequest silent_read = request(1, false);
  silent_read.opcode = Opcode::Read;
  ring.push(silent_read);
  ring.push(request(2, true));
  EXPECT_TRUE(ring.issue(1));
  EXPECT_TRUE(ring.issue(1)) << "a READ is always asked for";
  EXPECT_TRUE(ring.issue(1));
  Completion completion;
  ring.complete(2);
  ASSERT_TRUE(ring.report(completion));
  EXPECT_EQ(completion.context, 0u) << "what was posted before has left";
  EXPECT_FALSE(ring.report(completion)) << "number 2 is complete, and the READ before it is not";
  ring.complete(1);
  ASSERT_TRUE(ring.report(completion));
  EXPECT_EQ(completion.context, 2u);
  EXPECT_TRUE(ring.empty());
}

TEST(VerbsRequestRing, WhatGoesAtOnceIsAskedForNowAndThenAllTheSame) {
  VerbsRequestRing ring(16, 64, true);
  std::uint64_t posted = 0;
  std::uint64_t asked_last = 0;
  Completion completion;
  for (int round = 0; round < 1000; ++round) {
    const bool wanted = round % 7 == 0;
    if (ring.known_at_once() != 0 || ring.find_at_once(64)) {
      ring.push_issued(request(posted, wanted));
      if (wanted) asked_last = posted;
    } else {
      // The other way: one is asked for, or there is no room and one that was asked for is on its
      // way.
      if (ring.full() || !ring.fits(1)) {
        ASSERT_GT(asked_last + 16, posted);
        ring.complete(asked_last);
        while (ring.report(completion)) continue;
        ASSERT_FALSE(ring.full());
      }
      ring.push(request(posted, wanted));
      if (ring.issue(1)) asked_last = posted;
    }
    ++posted;
    ASSERT_LT(posted - asked_last, 6u) << "a quarter of the depth in a row at most";
  }
  EXPECT_EQ(ring.push_index(), posted);
}

TEST(VerbsRequestRing, NoMoreGoAtOnceThanWereAskedForAndNoneWhileSomeAreHeldOrAfterTheLoss) {
  VerbsRequestRing ring(64, 80, true);
  EXPECT_EQ(ring.known_at_once(), 0u) << "nobody has looked";
  ASSERT_TRUE(ring.find_at_once(3));
  EXPECT_EQ(ring.known_at_once(), 3u);
  ring.push_issued(request(0, true));
  EXPECT_EQ(ring.known_at_once(), 2u);
  ASSERT_TRUE(ring.find_at_once(64));
  EXPECT_EQ(ring.known_at_once(), 15u) << "one in a quarter of the depth is asked for";

  ring.push(request(1, true));
  ring.hold(request(1, true));
  EXPECT_EQ(ring.known_at_once(), 0u);
  EXPECT_FALSE(ring.find_at_once(64));
  (void)ring.issue(1);
  ASSERT_TRUE(ring.find_at_once(64));

  Completion completion;
  while (ring.report_lost(completion)) continue;
  EXPECT_EQ(ring.known_at_once(), 0u);
}

TEST(VerbsRequestRing, FullWithSilentRequestsIsImpossible) {
  // Post: silent requests only, each in a random number of entries; the RNIC completes the oldest
  // that asked. Expect: whenever nothing more goes, something was asked for.
  std::mt19937 random(7);
  for (const std::size_t depth : {1u, 2u, 3u, 16u, 250u}) {
    VerbsRequestRing ring(depth, depth + 19, true);
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
      ring.complete(asked.front());
      EXPECT_FALSE(ring.report(ignored));
      asked.pop_front();
    }
    EXPECT_GT(posted, 1000u);
  }
}

TEST(VerbsRequestRing, LossReportsEveryRequestOnceInOrderHeldOnesToo) {
  VerbsRequestRing ring(8, 16, true);
  for (std::uint64_t i = 0; i < 5; ++i) ring.push(request(i, i == 0));
  for (int i = 0; i < 3; ++i) (void)ring.issue(1);
  EXPECT_TRUE(ring.anything_held());
  ring.fail_at(1);  // number 0 succeeded, and somebody asked for it
  Completion completion;
  for (std::uint64_t i = 0; i < 5; ++i) {
    ASSERT_TRUE(ring.report_lost(completion, 1, ErrorCode::OutOfRange)) << i;
    EXPECT_EQ(completion.context, i);
    EXPECT_EQ(completion.error.has_value(), i > 0);
    if (i > 0) {
      EXPECT_EQ(*completion.error, i == 1 ? ErrorCode::OutOfRange : ErrorCode::OutcomeUnknown);
    }
  }
  EXPECT_FALSE(ring.report_lost(completion, 1, ErrorCode::OutOfRange));
  EXPECT_TRUE(ring.empty());
  EXPECT_FALSE(ring.anything_held());
}

}  // namespace
}  // namespace perdure::fabric::verbs
