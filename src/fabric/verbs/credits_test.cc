// Credits between two ends, played through at random.
#include "fabric/verbs/credits.h"

#include <gtest/gtest.h>

#include <random>

namespace perdure::fabric::verbs {
namespace {

TEST(Credits, NoMessageMeetsAnEmptyQueueAndNoneWaitsForEver) {
  for (const std::size_t depth : {1u, 2u, 5u, 64u}) {
    for (unsigned seed = 0; seed < 50; ++seed) {
      std::mt19937 random(seed);
      SendCredits sender;
      ReceiveCredits receiver(depth);
      std::uint64_t word = 0;       // what the sender knows
      std::uint64_t in_flight = 0;  // messages sent and not received
      std::uint64_t sent = 0;
      constexpr std::uint64_t kMessages = 2000;
      int idle = 0;
      while (receiver.received() < kMessages) {
        ASSERT_LT(++idle, 10'000) << "stuck: depth " << depth << ", seed " << seed;
        switch (random() % 4) {
          case 0:
            if (receiver.full()) break;
            receiver.post();
            idle = 0;
            break;
          case 1:
            if (sent == kMessages || !(sender.known(0) || sender.available(word))) break;
            sender.use();
            ++sent;
            ++in_flight;
            ASSERT_LE(sent, receiver.posted()) << "a message without a buffer";
            break;
          case 2:
            if (in_flight == 0) break;
            --in_flight;
            receiver.receive();
            break;
          default:
            if (!receiver.due()) break;
            word = receiver.posted();
            receiver.told(word);
        }
      }
    }
  }
}

TEST(Credits, WhatIsKnownIsCountedDownUntilThePeersCountIsLookedAtAgain) {
  SendCredits sender;
  EXPECT_FALSE(sender.known(0)) << "nobody has looked";
  EXPECT_FALSE(sender.available(0));
  ASSERT_TRUE(sender.available(3));
  EXPECT_TRUE(sender.known(2)) << "three that go together";
  EXPECT_FALSE(sender.known(3));
  sender.use();
  sender.use();
  EXPECT_TRUE(sender.known(0));
  EXPECT_FALSE(sender.known(1));
  sender.use();
  EXPECT_FALSE(sender.known(0));
  EXPECT_FALSE(sender.available(3));
  EXPECT_FALSE(sender.available(1)) << "a count that has gone back allows nothing";
  EXPECT_TRUE(sender.available(4));
  EXPECT_TRUE(sender.known(0));
  EXPECT_EQ(sender.sent(), 3u);
}

TEST(Credits, SteadyTrafficTellsOnceInHalfADepth) {
  ReceiveCredits receiver(64);
  std::uint64_t told = 0;
  for (int i = 0; i < 64; ++i) receiver.post();
  receiver.told(64);
  for (int i = 0; i < 6400; ++i) {
    receiver.receive();
    receiver.post();
    if (receiver.due()) {
      receiver.told(receiver.posted());
      ++told;
    }
  }
  EXPECT_EQ(told, 6400u / 32);
}

}  // namespace
}  // namespace perdure::fabric::verbs
