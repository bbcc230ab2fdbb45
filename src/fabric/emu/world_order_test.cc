// The laws of order, visibility and durability of design section 4, in many seeded worlds.
#include "fabric/emu/world_test_pair.h"

#include <gtest/gtest.h>

namespace perdure::fabric::emu {
namespace {

TEST(EmuWorldOrder, WriteArrivesAndCompletes) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    Pair pair(seed, profile_of(PersistenceDomain::Dmp, Ddio::On));
    pair.post(pair.request(Opcode::Write, 100, 1000, 7));
    const auto completion = pair.next(*pair.end);
    ASSERT_TRUE(completion.has_value());
    EXPECT_EQ(completion->context, 1u);
    EXPECT_FALSE(completion->error.has_value());
    EXPECT_TRUE(pair.world.settle());
    EXPECT_TRUE(all(pair.bytes(100, 1000), 7));
    EXPECT_TRUE(all(pair.bytes(0, 100), 0));
    EXPECT_TRUE(all(pair.bytes(1100, 100), 0));
  }
}

TEST(EmuWorldOrder, ACompletedWriteNeedNotBeVisible) {
  const auto unseen = count([](std::uint64_t seed) {
    Pair pair(seed, profile_of(PersistenceDomain::Mhp, Ddio::On));
    pair.post(pair.request(Opcode::Write, 0, 64, 7));
    EXPECT_TRUE(pair.next(*pair.end).has_value());
    return all(pair.bytes(0, 64), 0);
  });
  EXPECT_GT(unseen, 0u);
  EXPECT_LT(unseen, kSeeds);
}

TEST(EmuWorldOrder, AFlushedWriteIsVisible) {
  for (Opcode proof : {Opcode::Flush, Opcode::Read}) {
    EXPECT_EQ(count([&](std::uint64_t seed) {
                Pair pair(seed, profile_of(PersistenceDomain::Mhp, Ddio::On));
                pair.post(pair.request(Opcode::Write, 0, 300, 7));
                auto flush = pair.request(proof, 10, 1);
                pair.post(flush);
                while (pair.next(*pair.end)->context != flush.context) {
                }
                return all(pair.bytes(0, 300), 7);
              }),
              kSeeds);
  }
}

/// Whether a flushed write survives a power cut right after the flush completed.
bool flushed_write_survives(std::uint64_t seed, Opcode proof, PersistenceDomain domain, Ddio ddio,
                            std::uint64_t proof_at = 32) {
  Pair pair(seed, profile_of(domain, ddio));
  pair.post(pair.request(Opcode::Write, 0, 200, 7));
  auto flush = pair.request(proof, proof_at, 1);
  pair.post(flush);
  while (pair.next(*pair.end)->context != flush.context) {
  }
  pair.server.power_cut();
  pair.server.power_on();
  return all(pair.bytes(0, 200), 7);
}

TEST(EmuWorldOrder, WithDdioOffAFlushedWriteIsNeverLost) {
  for (Opcode proof : {Opcode::Flush, Opcode::Read}) {
    EXPECT_EQ(count([&](std::uint64_t seed) {
                return flushed_write_survives(seed, proof, PersistenceDomain::Dmp, Ddio::Off);
              }),
              kSeeds);
  }
}

TEST(EmuWorldOrder, WithDdioOnAFlushedWriteCanBeLost) {
  for (Opcode proof : {Opcode::Flush, Opcode::Read}) {
    EXPECT_LT(count([&](std::uint64_t seed) {
                return flushed_write_survives(seed, proof, PersistenceDomain::Dmp, Ddio::On);
              }),
              kSeeds);
  }
}

TEST(EmuWorldOrder, AReadBesideTheWrittenRangeProvesVisibilityOnly) {
  EXPECT_LT(count([&](std::uint64_t seed) {
              return flushed_write_survives(seed, Opcode::Read, PersistenceDomain::Dmp, Ddio::Off,
                                            4096);
            }),
            kSeeds);
}

TEST(EmuWorldOrder, NoFlushReachesBehindThePageCache) {
  EXPECT_LT(count([&](std::uint64_t seed) {
              return flushed_write_survives(seed, Opcode::Flush, PersistenceDomain::Page,
                                            Ddio::Off);
            }),
            kSeeds);
}

TEST(EmuWorldOrder, OverIwarpAWriteMayCompleteBeforeItLeft) {
  EXPECT_GT(count([](std::uint64_t seed) {
              Pair pair(seed, profile_of(PersistenceDomain::Dmp, Ddio::On, Transport::Iwarp));
              pair.post(pair.request(Opcode::Write, 0, 64, 7));
              EXPECT_TRUE(pair.next(*pair.end).has_value());
              return pair.server.counters().operations == 0;
            }),
            0u);
}

TEST(EmuWorldOrder, PostedOperationsBecomeVisibleInOrder) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    Pair pair(seed, profile_of(PersistenceDomain::Mhp, Ddio::On));
    pair.post(pair.request(Opcode::Write, 0, 500, 7));
    pair.post(pair.request(Opcode::Write, 1000, 8, 8));
    EXPECT_TRUE(pair.world.run_until([&] { return all(pair.bytes(1000, 8), 8); }));
    EXPECT_TRUE(all(pair.bytes(0, 500), 7));
  }
}

TEST(EmuWorldOrder, LinesOfOneWriteBecomeVisibleInAnyOrder) {
  bool last_first = false;
  bool first_first = false;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    Pair pair(seed, profile_of(PersistenceDomain::Mhp, Ddio::On));
    pair.post(pair.request(Opcode::Write, 0, 256, 7));
    EXPECT_TRUE(pair.world.run_until(
        [&] { return all(pair.bytes(0, 64), 7) || all(pair.bytes(192, 64), 7); }));
    (all(pair.bytes(0, 64), 7) ? first_first : last_first) = true;
  }
  EXPECT_TRUE(first_first && last_first);
}

TEST(EmuWorldOrder, ALaterWriteMayOvertakeAFlushButNotAFencedOne) {
  const auto overtakes = [](bool fenced) {
    return count([&](std::uint64_t seed) {
      Pair pair(seed, profile_of(PersistenceDomain::Dmp, Ddio::Off));
      // The tail pointer becomes durable although the flush of the record did not take effect.
      pair.post(pair.request(Opcode::Write, 0, 64, 7));
      pair.post(pair.request(Opcode::Flush, 0, 64));
      auto tail = pair.request(Opcode::Write, 1024, 8, 8);
      tail.fenced = fenced;
      pair.post(tail);
      EXPECT_TRUE(pair.world.run_until([&] { return all(pair.bytes(1024, 8), 8); }));
      pair.server.power_cut();
      return all(pair.bytes(1024, 8), 8) && !all(pair.bytes(0, 64), 7);
    });
  };
  EXPECT_GT(overtakes(false), 0u);
  EXPECT_EQ(overtakes(true), 0u);
}

TEST(EmuWorldOrder, AnAtomicWriteWaitsForTheFlushBeforeIt) {
  EXPECT_EQ(count([&](std::uint64_t seed) {
              Pair pair(seed, profile_of(PersistenceDomain::Dmp, Ddio::Off));
              pair.post(pair.request(Opcode::Write, 0, 64, 7));
              pair.post(pair.request(Opcode::Flush, 0, 64));
              auto tail = pair.request(Opcode::AtomicWrite, 1024, 8);
              tail.operand = 0x0808080808080808;
              pair.post(tail);
              EXPECT_TRUE(pair.world.run_until([&] { return all(pair.bytes(1024, 8), 8); }));
              pair.server.power_cut();
              return all(pair.bytes(1024, 8), 8) && !all(pair.bytes(0, 64), 7);
            }),
            0u);
}

TEST(EmuWorldOrder, AtomicsAnswerTheOldValue) {
  Pair pair(1, profile_of(PersistenceDomain::Mhp, Ddio::On));
  store(pair.region.bytes().data() + 64, std::uint64_t{5});
  auto swap = pair.request(Opcode::CompareSwap, 64, 8);
  swap.operand = 5;
  swap.swap = 11;
  auto add = pair.request(Opcode::FetchAdd, 64, 8);
  add.operand = 3;
  pair.post(swap);
  pair.post(add);
  ASSERT_TRUE(pair.next(*pair.end).has_value());
  ASSERT_TRUE(pair.next(*pair.end).has_value());
  EXPECT_EQ(load<std::uint64_t>(swap.segments[0].data), 5u);
  EXPECT_EQ(load<std::uint64_t>(add.segments[0].data), 11u);
  EXPECT_EQ(load<std::uint64_t>(pair.region.bytes().data() + 64), 14u);
}

}  // namespace
}  // namespace perdure::fabric::emu
