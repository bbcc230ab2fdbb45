// What the emulated fabric refuses, and what a lost connection or lost power leaves behind.
#include "fabric/emu/world_test_pair.h"

#include <gtest/gtest.h>

namespace perdure::fabric::emu {
namespace {

TEST(EmuWorldFailure, WspKeepsACompletedWriteExceptOverIwarp) {
  const auto survivals = [](Transport transport) {
    return count([&](std::uint64_t seed) {
      Pair pair(seed, profile_of(PersistenceDomain::Wsp, Ddio::On, transport));
      pair.post(pair.request(Opcode::Write, 0, 200, 7));
      EXPECT_TRUE(pair.next(*pair.end).has_value());
      pair.server.power_cut();
      pair.server.power_on();
      return all(pair.bytes(0, 200), 7);
    });
  };
  EXPECT_EQ(survivals(Transport::InfiniBand), kSeeds);
  EXPECT_EQ(survivals(Transport::Roce), kSeeds);
  EXPECT_LT(survivals(Transport::Iwarp), kSeeds);
  EXPECT_LT(survivals(Transport::Tcp), kSeeds);
}

TEST(EmuWorldFailure, WspKeepsOrder) {
  // Two writes to the same place: after the cut never the first over the second.
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    Pair pair(seed, profile_of(PersistenceDomain::Wsp, Ddio::On));
    pair.post(pair.request(Opcode::Write, 0, 128, 1));
    pair.post(pair.request(Opcode::Write, 0, 128, 2));
    EXPECT_TRUE(pair.next(*pair.end).has_value());
    EXPECT_TRUE(pair.next(*pair.end).has_value());
    pair.server.power_cut();
    EXPECT_TRUE(all(pair.bytes(0, 128), 2));
  }
}

TEST(EmuWorldFailure, APowerCutAtEveryEventBreaksBothEnds) {
  bool ended_early = false;
  for (std::uint64_t events = 1; events < 40; ++events) {
    Pair pair(events, profile_of(PersistenceDomain::Dmp, Ddio::On));
    pair.world.cut_after(pair.server, events);
    for (int i = 0; i < 3; ++i) pair.post(pair.request(Opcode::Write, 0, 200, 7));
    std::size_t good = 0;
    std::size_t unknown = 0;
    while (const auto completion = pair.next(*pair.end)) {
      ++(completion->error ? unknown : good);
      if (completion->error) {
        EXPECT_EQ(*completion->error, ErrorCode::OutcomeUnknown);
      }
    }
    EXPECT_EQ(good + unknown, 3u);
    if (pair.server.powered()) {
      ended_early = true;
      EXPECT_EQ(unknown, 0u);
      continue;
    }
    EXPECT_FALSE(pair.end->connected());
    const auto refused = pair.request(Opcode::Write, 0, 8);
    EXPECT_EQ(pair.end->post({&refused, 1}).code(), ErrorCode::Disconnected);
    EXPECT_EQ(pair.server_end->post({&refused, 1}).code(), ErrorCode::Disconnected);
    EXPECT_FALSE(pair.server_end->connected());
    // A machine that is on again serves new connections.
    pair.server.power_on();
    auto again = pair.world.connect(pair.client, pair.server);
    EXPECT_TRUE(again.first->connected());
  }
  EXPECT_TRUE(ended_early);
}

TEST(EmuWorldFailure, AnInterruptedWriteMayArriveInPart) {
  EXPECT_GT(count([](std::uint64_t seed) {
              Pair pair(seed, profile_of(PersistenceDomain::Wsp, Ddio::On));
              pair.post(pair.request(Opcode::Write, 0, 1024, 7));
              pair.client.power_cut();
              EXPECT_TRUE(pair.world.settle());
              return !all(pair.bytes(0, 1024), 7) && !all(pair.bytes(0, 1024), 0);
            }),
            0u);
}

// Nor is it acknowledged, in whatever order WRITEs are placed: a completion says that all arrived.
TEST(EmuWorldFailure, AWriteThatArrivedInPartIsNotAcknowledged) {
  for (const WriteOrder order : {WriteOrder::Ordered, WriteOrder::Unknown}) {
    std::uint64_t in_part = 0;
    for (std::uint64_t seed = 0; seed < 4 * kSeeds; ++seed) {
      ServerProfile profile = profile_of(PersistenceDomain::Wsp, Ddio::On);
      profile.write_order = order;
      Pair pair(seed, profile);
      pair.post(pair.request(Opcode::Write, 0, 256, 7));
      pair.post(pair.request(Opcode::Write, 1024, 1024, 7));
      pair.world.drop_connections(pair.client, pair.server);
      const auto whole = [&](std::uint64_t at, std::size_t length) {
        return all(pair.bytes(at, length), 7);
      };
      bool first = false;
      bool second = false;
      while (const auto completion = pair.next(*pair.end)) {
        if (!completion->error) (completion->context == 1 ? first : second) = true;
      }
      pair.world.pass(std::chrono::milliseconds(1));
      EXPECT_TRUE(!first || whole(0, 256)) << seed;
      EXPECT_TRUE(!second || whole(1024, 1024)) << seed;
      in_part += !whole(1024, 1024) && !all(pair.bytes(1024, 1024), 0) ? 1 : 0;
    }
    EXPECT_GT(in_part, 0u) << "nothing was cut off";
  }
}

TEST(EmuWorldFailure, TheResponderLearnsThatTheRequesterLostPower) {
  Pair pair(1, profile_of(PersistenceDomain::Wsp, Ddio::On));
  pair.client.power_cut();
  EXPECT_TRUE(pair.world.settle());
  EXPECT_FALSE(pair.server_end->connected());
}

TEST(EmuWorldFailure, RefusesWhatItDoesNotExport) {
  struct Case {
    const char* name;
    std::function<void(Pair&, WorkRequest&)> change;
  };
  const Case cases[] = {
      {"unknown key", [](Pair&, WorkRequest& work) { ++work.remote.key; }},
      {"behind the end", [](Pair&, WorkRequest& work) { work.remote_offset = 64 * 1024 - 63; }},
      {"before the start", [](Pair&, WorkRequest& work) { work.remote.base -= 8; }},
      {"wraps around", [](Pair&, WorkRequest& work) { work.remote_offset = ~0ULL - 10; }},
      {"read only",
       [](Pair& pair, WorkRequest& work) {
         pair.spare =
             std::move(*pair.server.register_memory(pair.region.bytes(), Access::RemoteRead));
         work.remote.key = pair.spare->key();
         work.remote.base = pair.spare->base();
       }},
      {"revoked", [](Pair& pair, WorkRequest&) { pair.memory.reset(); }},
  };
  for (Transport transport : {Transport::InfiniBand, Transport::Iwarp}) {
    for (const Case& each : cases) {
      Pair pair(3, profile_of(PersistenceDomain::Mhp, Ddio::On, transport));
      auto work = pair.request(Opcode::Write, 0, 64, 7);
      each.change(pair, work);
      pair.post(work);
      const auto completion = pair.next(*pair.end);
      ASSERT_TRUE(completion.has_value()) << each.name;
      if (transport == Transport::InfiniBand) {
        EXPECT_EQ(completion->error, ErrorCode::OutOfRange) << each.name;
      }
      EXPECT_TRUE(pair.world.settle());
      EXPECT_FALSE(pair.end->connected()) << each.name;
      EXPECT_FALSE(pair.server_end->connected()) << each.name;
      EXPECT_EQ(pair.server.counters().refused, 1u) << each.name;
      EXPECT_TRUE(all(pair.region.bytes(), 0)) << each.name;
    }
  }
}

TEST(EmuWorldFailure, RefusesBadRequestsBeforePosting) {
  Pair pair(1, profile_of(PersistenceDomain::Dmp, Ddio::On));
  std::byte unregistered[8];
  auto outside = pair.request(Opcode::Write, 0, 8);
  outside.segments[0].data = unregistered;
  auto unaligned = pair.request(Opcode::FetchAdd, 4, 8);
  auto huge = pair.request(Opcode::Write, 0, 8);
  huge.segments[0].length = kTransferBytesMax + 1;
  for (const WorkRequest& work : {outside, unaligned, huge}) {
    EXPECT_EQ(pair.end->post({&work, 1}).code(), ErrorCode::InvalidArgument);
  }
  EXPECT_TRUE(pair.end->connected());

  ServerProfile plain = profile_of(PersistenceDomain::Dmp, Ddio::On);
  plain.capabilities = {};
  Pair poor(1, plain);
  const auto flush = poor.request(Opcode::Flush, 0, 8);
  EXPECT_EQ(poor.end->post({&flush, 1}).code(), ErrorCode::InvalidArgument);
}

TEST(EmuWorldFailure, AFullQueueTakesNoMore) {
  Pair pair(1, profile_of(PersistenceDomain::Dmp, Ddio::On));
  std::vector<WorkRequest> many(10, pair.request(Opcode::Write, 0, 8));
  EXPECT_EQ(*pair.end->post(many), 8u);
  EXPECT_EQ(*pair.end->post(many), 0u);
  ASSERT_TRUE(pair.next(*pair.end).has_value());
  EXPECT_EQ(*pair.end->post(many), 1u);
}

TEST(EmuWorldFailure, AMessageLargerThanItsBufferIsRefused) {
  Pair pair(5, profile_of(PersistenceDomain::Mhp, Ddio::On));
  post_receives(pair, 1);
  pair.post(pair.request(Opcode::Send, 0, 257));
  EXPECT_EQ(pair.next(*pair.end)->error, ErrorCode::OutOfRange);
  EXPECT_TRUE(all(pair.region.bytes(), 0));
}

TEST(EmuWorldFailure, DisconnectCompletesWhatIsInFlightAsUnknown) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Pair pair(seed, profile_of(PersistenceDomain::Mhp, Ddio::On));
    for (int i = 0; i < 4; ++i) pair.post(pair.request(Opcode::Write, 0, 300, 7));
    pair.end->disconnect();
    pair.end->disconnect();
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(pair.next(*pair.end)->error, ErrorCode::OutcomeUnknown);
    }
    EXPECT_FALSE(pair.end->connected());
    EXPECT_TRUE(pair.world.settle());
    EXPECT_FALSE(pair.server_end->connected());
  }
}

TEST(EmuWorldFailure, NothingTouchesMemoryAfterItsRegistrationEnds) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    Pair pair(seed, profile_of(PersistenceDomain::Mhp, Ddio::On));
    for (int i = 0; i < 4; ++i) pair.post(pair.request(Opcode::Write, 0, 900, i + 1));
    for (std::uint64_t steps = seed % 20; steps > 0; --steps) (void)pair.world.step();
    pair.memory.reset();
    const std::vector<std::byte> before(pair.bytes(0, 900).begin(), pair.bytes(0, 900).end());
    EXPECT_TRUE(pair.world.settle());
    EXPECT_TRUE(std::ranges::equal(before, pair.bytes(0, 900)));
  }
}

}  // namespace
}  // namespace perdure::fabric::emu
