// Caches against hand-computed latencies and states, and against MESI's own laws.
#include "memsys/server/caches.h"

#include <gtest/gtest.h>

#include <map>

#include "core/random.h"

namespace perdure::memsys {
namespace {

using State = Caches::State;

/// Two cores of two threads; L1 of 2 sets of 2 ways, L2 of 4 sets of 2 ways. Times that tell
/// apart who was asked: L1 1, crossbar 10, L2 100.
Processor tiny() {
  Processor p;
  p.cores = 2;
  p.threads_per_core = 2;
  p.l1 = {std::uint64_t{4} * 64, 2};
  p.l2 = {std::uint64_t{8} * 64, 2};
  p.l1_ps = 1;
  p.crossbar_ps = 10;
  p.l2_ps = 100;
  return p;
}

/// Asks, fetching from memory first where that is needed.
Reply ask(Caches& caches, std::uint32_t thread, std::uint64_t line, CacheAccess access) {
  Reply reply = caches.access(thread, line, access);
  if (reply.source != Source::Memory) return reply;
  EXPECT_EQ(reply.latency, 1 + 10 + 100U);
  caches.fill(line);
  reply = caches.access(thread, line, access);
  EXPECT_EQ(reply.source, Source::L2);
  return reply;
}

TEST(Caches, LatenciesAreTheSumsOfWhatIsAsked) {
  Caches caches(tiny());
  const std::uint32_t a = 0;
  const std::uint32_t b = 2;  // of the other core
  EXPECT_EQ(ask(caches, a, 5, CacheAccess::Load).latency, 1 + 10 + 100 + 10U);
  EXPECT_EQ(caches.state_of(0, 5), State::Exclusive);
  EXPECT_EQ(ask(caches, a, 5, CacheAccess::Load).latency, 1U);
  EXPECT_EQ(ask(caches, a, 5, CacheAccess::Store).latency, 1U) << "exclusive: no question";
  EXPECT_EQ(caches.state_of(0, 5), State::Modified);

  const Reply from_peer = ask(caches, b, 5, CacheAccess::Load);
  EXPECT_EQ(from_peer.source, Source::Peer);
  EXPECT_EQ(from_peer.latency, 1 + 10 + 100 + 10 + 1 + 10U);
  EXPECT_EQ(caches.state_of(0, 5), State::Shared);
  EXPECT_EQ(caches.state_of(1, 5), State::Shared);

  const Reply upgrade = ask(caches, b, 5, CacheAccess::Store);
  EXPECT_EQ(upgrade.latency, 1 + 10 + 100 + (10 + 1) + 10U) << "one copy is invalidated";
  EXPECT_EQ(caches.state_of(0, 5), State::Invalid);
  EXPECT_EQ(caches.state_of(1, 5), State::Modified);

  EXPECT_EQ(ask(caches, a, 5, CacheAccess::Persist).source, Source::Peer);
  EXPECT_EQ(caches.state_of(1, 5), State::Invalid);
}

TEST(Caches, TheWriterIsToldOnceToEveryOtherThread) {
  Caches caches(tiny());
  EXPECT_FALSE(ask(caches, 0, 8, CacheAccess::Store).writer);
  EXPECT_FALSE(ask(caches, 0, 8, CacheAccess::Load).writer) << "its own";
  EXPECT_EQ(ask(caches, 1, 8, CacheAccess::Load).writer, 0U) << "the other thread of the core";
  EXPECT_FALSE(ask(caches, 1, 8, CacheAccess::Load).writer) << "it knows";
  EXPECT_EQ(ask(caches, 2, 8, CacheAccess::Load).writer, 0U);
  EXPECT_EQ(ask(caches, 3, 8, CacheAccess::Store).writer, 0U);
  EXPECT_EQ(ask(caches, 2, 8, CacheAccess::Load).writer, 3U) << "written anew";
  EXPECT_EQ(ask(caches, 0, 8, CacheAccess::Load).writer, 3U);
}

TEST(Caches, TheWriterIsKnownAfterItsLineLeftTheL1) {
  Caches caches(tiny());
  ask(caches, 0, 0, CacheAccess::Persist);
  ask(caches, 0, 2, CacheAccess::Load);  // the same set of the L1, another of the L2
  ask(caches, 0, 6, CacheAccess::Load);
  EXPECT_EQ(caches.state_of(0, 0), State::Invalid);
  const Reply reply = ask(caches, 2, 0, CacheAccess::Load);
  EXPECT_EQ(reply.source, Source::L2);
  EXPECT_EQ(reply.writer, 0U);
}

TEST(Caches, WhatLeavesTheL2IsDirtyIfMemoryDoesNotHaveIt) {
  Caches caches(tiny());
  ask(caches, 0, 0, CacheAccess::Store);
  ask(caches, 1, 4, CacheAccess::Persist);  // the same set of the L2
  const Caches::Evicted stored = caches.fill(8);
  EXPECT_EQ(stored.line, 0U);
  EXPECT_TRUE(stored.dirty);
  EXPECT_EQ(stored.writer, 0U);
  EXPECT_EQ(caches.state_of(0, 0), State::Invalid) << "inclusive";
  const Caches::Evicted persisted = caches.fill(12);
  EXPECT_EQ(persisted.line, 4U);
  EXPECT_FALSE(persisted.dirty);
  EXPECT_EQ(persisted.writer, 1U);
}

/// Random accesses: MESI's laws hold, the writer is the true one, and a line is dirty in the end if
/// its last write was a store.
TEST(Caches, KeepTheirLawsUnderRandomAccesses) {
  Random random(11);
  for (int round = 0; round < 20; ++round) {
    Caches caches(tiny());
    std::map<std::uint64_t, std::pair<std::uint32_t, CacheAccess>> last;
    for (int i = 0; i < 500; ++i) {
      const auto thread = static_cast<std::uint32_t>(random.below(4));
      const std::uint64_t line = random.below(24);
      const auto access = static_cast<CacheAccess>(random.below(3));
      Reply reply = caches.access(thread, line, access);
      if (reply.source == Source::Memory) {
        const Caches::Evicted evicted = caches.fill(line);
        if (evicted.line != kNoLine && last.contains(evicted.line)) {
          ASSERT_EQ(evicted.dirty, last[evicted.line].second == CacheAccess::Store);
          ASSERT_EQ(evicted.writer, last[evicted.line].first);
          last.erase(evicted.line);
        }
        reply = caches.access(thread, line, access);
      }
      const auto known = last.find(line);
      const std::uint32_t truth = known == last.end() ? ~0U : known->second.first;
      ASSERT_EQ(reply.writer.value_or(truth), truth);
      if (access != CacheAccess::Load) last[line] = {thread, access};
      ASSERT_EQ(caches.check(), "");
    }
  }
}

}  // namespace
}  // namespace perdure::memsys
