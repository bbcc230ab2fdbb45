// What real RNICs do beside the verbs: the emulated one does it when it is told to, and not before.
#include "fabric/emu/world_test_pair.h"

#include <sys/mman.h>

namespace perdure::fabric::emu {
namespace {

ServerProfile unordered(PersistenceDomain domain) {
  ServerProfile profile = profile_of(domain, Ddio::Off);
  profile.write_order = WriteOrder::Unknown;
  return profile;
}

/// Whether the second of two WRITEs is seen before the first is whole.
bool seen_in_the_wrong_order(std::uint64_t seed, const ServerProfile& profile) {
  Pair pair(seed, profile);
  pair.post(pair.request(Opcode::Write, 0, 200));
  pair.post(pair.request(Opcode::Write, 4096, 8));
  bool wrong = false;
  pair.world.run_until([&] {
    const bool second = all(pair.bytes(4096, 8), 1);
    wrong = wrong || (second && !all(pair.bytes(0, 200), 1));
    return second;
  });
  return wrong;
}

TEST(WorldRnic, WritesAreSeenInAnyOrderWhereNoneIsKnownAndInOrderElsewhere) {
  const auto mhp = profile_of(PersistenceDomain::Mhp, Ddio::Off);
  EXPECT_EQ(count([&](std::uint64_t seed) { return seen_in_the_wrong_order(seed, mhp); }), 0u);
  const auto none = unordered(PersistenceDomain::Mhp);
  EXPECT_GT(count([&](std::uint64_t seed) { return seen_in_the_wrong_order(seed, none); }), 0u);
}

TEST(WorldRnic, AReceiveCompletionComesAfterEverythingBeforeItIsVisibleInAnyOrder) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    Pair pair(seed, unordered(PersistenceDomain::Mhp));
    post_receives(pair, 2);
    pair.post(pair.request(Opcode::Write, 0, 200));
    pair.post(pair.request(Opcode::Send, 0, 100));
    pair.post(pair.request(Opcode::Write, 4096, 200));
    pair.post(pair.request(Opcode::WriteImm, 8192, 200));
    for (const std::uint64_t context : {100u, 101u}) {
      const auto received = pair.next(*pair.server_end);
      ASSERT_TRUE(received.has_value());
      EXPECT_EQ(received->context, context);
      EXPECT_TRUE(all(pair.bytes(0, 200), 1));
      const bool last = context == 101;
      EXPECT_TRUE(!last || (all(pair.bytes(4096, 200), 1) && all(pair.bytes(8192, 200), 1)));
    }
  }
}

TEST(WorldRnic, AnAnswerComesAfterEveryWriteBeforeItIsVisibleInAnyOrder) {
  for (const Opcode opcode : {Opcode::Read, Opcode::Flush, Opcode::AtomicWrite}) {
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
      Pair pair(seed, unordered(PersistenceDomain::Mhp));
      pair.post(pair.request(Opcode::Write, 0, 200));
      pair.post(pair.request(Opcode::Write, 4096, 200));
      const WorkRequest last = pair.request(opcode, opcode == Opcode::AtomicWrite ? 8192 : 4096, 8);
      pair.post(last);
      for (int completions = 0; completions < 3; ++completions) {
        const auto completion = pair.next(*pair.end);
        ASSERT_TRUE(completion.has_value());
        if (completion->context != last.context) continue;
        EXPECT_TRUE(all(pair.bytes(0, 200), 1) && all(pair.bytes(4096, 200), 1));
      }
    }
  }
}

/// On a machine that keeps all that its RNIC has: what was completed is there, later or not.
TEST(WorldRnic, WhatIsCompletedHasArrivedWhateverTookAnotherWay) {
  std::uint64_t passed = 0;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    Pair pair(seed, unordered(PersistenceDomain::Wsp));
    pair.post(pair.request(Opcode::Write, 0, 200));
    pair.post(pair.request(Opcode::Write, 4096, 200));
    const bool waits = seed % 2 == 0;
    if (waits) {
      ASSERT_TRUE(pair.next(*pair.end).has_value());
    }
    pair.world.run_until([&] { return pair.world.events() > 2 + seed % 8; });
    pair.server.power_cut();
    pair.server.power_on();
    if (waits) {
      EXPECT_TRUE(all(pair.bytes(0, 200), 1)) << seed;
    }
    passed += all(pair.bytes(4096, 200), 1) && !all(pair.bytes(0, 200), 1) ? 1 : 0;
  }
  EXPECT_GT(passed, 0u);
}

/// A SEND, a FLUSH behind it and its answer, and then the power fails: what is in the buffer?
bool message_survives(std::uint64_t seed, std::size_t bytes, std::uint64_t cqe_payload_bytes,
                      bool polled) {
  Pair pair(seed, profile_of(PersistenceDomain::Mhp, Ddio::Off), {},
            {.cqe_payload_bytes = cqe_payload_bytes});
  post_receives(pair, 1);
  pair.post(pair.request(Opcode::Send, 0, bytes, 7));
  const WorkRequest flush = pair.request(Opcode::Flush, 0, 8);
  pair.post(flush);
  while (true) {
    const auto completion = pair.next(*pair.end);
    if (!completion.has_value()) return false;
    if (completion->context == flush.context) break;
  }
  if (polled) {
    EXPECT_TRUE(pair.next(*pair.server_end).has_value());
  }
  pair.server.power_cut();
  pair.server.power_on();
  return all(pair.bytes(32 * 1024, bytes), 7);
}

TEST(WorldRnic, ASmallMessageIsInItsCompletionUntilItIsPolled) {
  const auto surviving = [](std::size_t bytes, std::uint64_t in_completion, bool polled) {
    return count(
        [&](std::uint64_t seed) { return message_survives(seed, bytes, in_completion, polled); });
  };
  EXPECT_EQ(surviving(32, 0, false), kSeeds);  // the switch is off
  EXPECT_EQ(surviving(32, 32, false), 0u);
  EXPECT_EQ(surviving(64, 64, false), 0u);
  EXPECT_EQ(surviving(64, 64, true), kSeeds);
  EXPECT_EQ(surviving(33, 32, false), kSeeds);  // too long for it
  EXPECT_EQ(surviving(65, 64, false), kSeeds);
}

TEST(WorldRnic, AnImmediateWithoutALengthSaysZeroBytes) {
  for (const bool without : {false, true}) {
    Pair pair(1, profile_of(PersistenceDomain::Mhp, Ddio::Off), {},
              {.immediate_without_length = without});
    post_receives(pair, 1);
    pair.post(pair.request(Opcode::WriteImm, 0, 200));
    const auto received = pair.next(*pair.server_end);
    ASSERT_TRUE(received.has_value());
    EXPECT_EQ(received->length, without ? 0u : 200u);
  }
}

/// How a file's page fares that an RNIC has written: synced, then the power fails.
bool synced_write_survives(std::uint64_t seed, DmaDirties dirties, bool stored_too) {
  ServerProfile profile = profile_of(PersistenceDomain::Page, Ddio::On);
  profile.dma_dirties = dirties;
  Pair pair(seed, profile);
  pair.post(pair.request(Opcode::Write, 0, 200));
  EXPECT_TRUE(pair.world.run_until([&] { return all(pair.bytes(0, 200), 1); }));
  if (stored_too) pair.bytes(1000, 1)[0] = std::byte{9};
  EXPECT_TRUE(pair.region.flush(0, 200).ok());
  pair.server.power_cut();
  pair.server.power_on();
  return all(pair.bytes(0, 200), 1);
}

TEST(WorldRnic, SyncingAPageThatOnlyAnRnicHasWrittenWritesNothing) {
  const auto surviving = [](DmaDirties dirties, bool stored_too) {
    return count(
        [&](std::uint64_t seed) { return synced_write_survives(seed, dirties, stored_too); });
  };
  EXPECT_EQ(surviving(DmaDirties::No, false), 0u);
  EXPECT_EQ(surviving(DmaDirties::Yes, false), kSeeds);
  EXPECT_EQ(surviving(DmaDirties::No, true), kSeeds);  // the store has made it dirty
}

TEST(WorldRnic, AResetTakesConnectionsKeysAndWhatWasNotPlacedAndThePowerStays) {
  std::uint64_t lost = 0;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    Pair pair(seed, profile_of(PersistenceDomain::Wsp, Ddio::Off));
    pair.bytes(8192, 8)[0] = std::byte{5};
    pair.post(pair.request(Opcode::Write, 0, 200));
    ASSERT_TRUE(pair.next(*pair.end).has_value());  // acknowledged by the RNIC
    pair.server.reset_rnic();
    EXPECT_FALSE(pair.server_end->connected());
    EXPECT_TRUE(pair.world.run_until([&] { return !pair.end->connected(); }));
    EXPECT_EQ(pair.bytes(8192, 8)[0], std::byte{5});
    lost += all(pair.bytes(0, 200), 1) ? 0 : 1;
    // Another connection, and the old key: refused.
    auto [end, server_end] = pair.world.connect(pair.client, pair.server);
    const WorkRequest again = pair.request(Opcode::Write, 0, 8);
    ASSERT_TRUE(end->post({&again, 1}).ok());
    EXPECT_TRUE(pair.world.run_until([&, &both = end] { return !both->connected(); }));
    EXPECT_EQ(pair.server.counters().refused, 1u);
  }
  // Arrival in the RNIC is enough for a battery, and not for this.
  EXPECT_GT(lost, 0u);
}

// The RNIC may read it until then: a real one would read what another mapping has there by now.
TEST(WorldRnicDeathTest, MemoryIsThereUntilItsRegistrationIsGone) {
  const auto unmapped_early = [] {
    Pair pair(1, profile_of(PersistenceDomain::Wsp, Ddio::On));
    constexpr std::size_t kBytes = 64 * 1024;
    void* mapped =
        ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    auto registered = pair.client.register_memory(
        std::span(static_cast<std::byte*>(mapped), kBytes), Access::Local);
    ::munmap(mapped, kBytes);
    registered = Error{ErrorCode::NotFound, ""};
  };
  EXPECT_DEATH(unmapped_early(), "assertion failed");
}

}  // namespace
}  // namespace perdure::fabric::emu
