// Messages, actors, listeners and time in the emulated world.
#include "fabric/emu/world_test_pair.h"

#include <gtest/gtest.h>

namespace perdure::fabric::emu {
namespace {

TEST(EmuWorldProgram, SameSeedSameHistory) {
  const auto history = [](std::uint64_t seed) {
    Pair pair(seed, profile_of(PersistenceDomain::Dmp, Ddio::On));
    for (std::uint64_t i = 0; i < 5; ++i) pair.post(pair.request(Opcode::Write, 100 * i, 99, 7));
    for (int i = 0; i < 20; ++i) (void)pair.world.step();
    pair.server.power_cut();
    return std::pair(pair.region.durable(), pair.world.clock().now());
  };
  EXPECT_EQ(history(7), history(7));
  EXPECT_NE(history(7), history(8));
}

TEST(EmuWorldProgram, AReceiveCompletesAfterAllThatWasPostedBefore) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    Pair pair(seed, profile_of(PersistenceDomain::Mhp, Ddio::On));
    post_receives(pair, 2);
    pair.post(pair.request(Opcode::Write, 0, 500, 7));
    pair.post(pair.request(Opcode::Send, 0, 200, 8));
    auto immediate = pair.request(Opcode::WriteImm, 1000, 100, 9);
    immediate.immediate = 77;
    pair.post(immediate);

    const auto message = pair.next(*pair.server_end);
    ASSERT_TRUE(message.has_value());
    EXPECT_EQ(message->context, 100u);
    EXPECT_EQ(message->length, 200u);
    EXPECT_FALSE(message->has_immediate);
    EXPECT_TRUE(all(pair.bytes(0, 500), 7));
    EXPECT_TRUE(all(pair.bytes(32 * 1024, 200), 8));

    const auto written = pair.next(*pair.server_end);
    ASSERT_TRUE(written.has_value());
    EXPECT_TRUE(written->has_immediate);
    EXPECT_EQ(written->immediate, 77u);
    EXPECT_EQ(written->length, 100u);
    EXPECT_TRUE(all(pair.bytes(1000, 100), 9));
  }
}

TEST(EmuWorldProgram, AnEmptyReceiveQueueHoldsMessagesBackAndLosesNone) {
  for (Transport transport : {Transport::InfiniBand, Transport::Tcp}) {
    Pair pair(5, profile_of(PersistenceDomain::Mhp, Ddio::On, transport));
    for (int i = 0; i < 5; ++i) pair.post(pair.request(Opcode::Send, 0, 10, i + 1));
    EXPECT_TRUE(pair.world.settle());
    Completion completion;
    EXPECT_EQ(pair.server_end->poll({&completion, 1}), 0u);
    if (transport == Transport::InfiniBand) {
      EXPECT_EQ(pair.end->poll({&completion, 1}), 0u);
    }
    for (int i = 0; i < 5; ++i) {
      post_receives(pair, 1, 32 * 1024 + 256 * static_cast<std::uint64_t>(i));
      ASSERT_TRUE(pair.next(*pair.server_end).has_value());
      EXPECT_TRUE(all(pair.bytes(32 * 1024 + 256 * static_cast<std::uint64_t>(i), 10), i + 1));
    }
  }
}

TEST(EmuWorldProgram, ReceiveBuffersInPersistentMemorySurvive) {
  // With DDIO off and a domain that begins at the memory controller, SEND + FLUSH of the buffer
  // is not offered; on Mhp a message that was received is in its buffer after the cut.
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    Pair pair(seed, profile_of(PersistenceDomain::Mhp, Ddio::On));
    post_receives(pair, 1);
    pair.post(pair.request(Opcode::Send, 0, 200, 7));
    ASSERT_TRUE(pair.next(*pair.server_end).has_value());
    pair.server.power_cut();
    pair.server.power_on();
    EXPECT_TRUE(all(pair.bytes(32 * 1024, 200), 7));
  }
}

TEST(EmuWorldProgram, AMessageCanBeTornInItsPersistentBuffer) {
  EXPECT_GT(count([](std::uint64_t seed) {
              Pair pair(seed, profile_of(PersistenceDomain::Dmp, Ddio::On));
              post_receives(pair, 1);
              pair.post(pair.request(Opcode::Send, 0, 256, 7));
              EXPECT_TRUE(pair.next(*pair.end).has_value());
              pair.server.power_cut();
              const auto buffer = pair.bytes(32 * 1024, 256);
              return !all(buffer, 0) && !all(buffer, 7);
            }),
            0u);
}

TEST(EmuWorldProgram, ActorsAnswerWhileTheCallerPolls) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Pair pair(seed, profile_of(PersistenceDomain::Dmp, Ddio::On));
    post_receives(pair, 1);
    const Segment answer{pair.source.data() + 8192, 64, pair.local.get()};
    ASSERT_TRUE(pair.end->post_receive(answer, 1).ok());
    pair.server.add_actor([&] {
      Completion completion;
      if (pair.server_end->poll({&completion, 1}) == 0) return false;
      if (completion.opcode != Opcode::Receive) return true;
      EXPECT_TRUE(pair.region.flush(32 * 1024, completion.length).ok());
      WorkRequest work;
      work.segments[0] = {pair.region.bytes().data() + 32 * 1024, 64, pair.memory.get()};
      work.segment_count = 1;
      EXPECT_TRUE(pair.server_end->post({&work, 1}).ok());
      return true;
    });
    auto message = pair.request(Opcode::Send, 0, 64, 7);
    message.signalled = false;
    pair.post(message);
    const auto completion = pair.next(*pair.end);
    ASSERT_TRUE(completion.has_value());
    EXPECT_EQ(completion->opcode, Opcode::Receive);
    EXPECT_TRUE(all({answer.data, 64}, 7));
    EXPECT_TRUE(pair.region.is_durable({32 * 1024, 64}));
  }
}

TEST(EmuWorldProgram, ThePowerCanFailInTheMiddleOfAnActor) {
  bool in_flush = false;
  for (std::uint64_t events = 1; events < 20; ++events) {
    Pair pair(events, profile_of(PersistenceDomain::Dmp, Ddio::On));
    int calls = 0;
    pair.server.add_actor([&] {
      ++calls;
      pair.region.bytes()[0] = std::byte{7};
      const bool flushed = pair.region.flush(0, 1).ok();
      in_flush = in_flush || !flushed;
      pair.region.bytes()[64] = std::byte{8};
      (void)pair.region.flush(64, 1);
      return calls < 10;
    });
    pair.world.cut_after(pair.server, events);
    EXPECT_TRUE(pair.world.settle());
    ASSERT_FALSE(pair.server.powered());
    pair.server.power_on();
    // What came later never survives without what was flushed before it.
    EXPECT_TRUE(pair.region.bytes()[64] == std::byte{0} || pair.region.bytes()[0] == std::byte{7});
    EXPECT_TRUE(pair.world.settle());
  }
  EXPECT_TRUE(in_flush);
}

TEST(EmuWorldProgram, ConnectsThroughAListener) {
  Pair pair(1, profile_of(PersistenceDomain::Dmp, Ddio::On));
  auto listener = pair.server.listen("", {});
  ASSERT_TRUE(listener.ok());
  const Deadline never(pair.world.clock(), Nanoseconds{0});
  std::unique_ptr<Endpoint> accepted;
  pair.server.add_actor([&] {
    auto incoming = (*listener)->next(Deadline(pair.world.clock(), Nanoseconds{0}));
    if (!incoming.ok()) return false;
    EXPECT_EQ((*incoming)->private_data()[0], std::byte{42});
    auto end = (*incoming)->accept(never);
    EXPECT_TRUE(end.ok());
    accepted = std::move(*end);
    return true;
  });
  const std::byte data[] = {std::byte{42}};
  const Deadline deadline(pair.world.clock(), std::chrono::seconds(1));
  auto end = pair.client.connect((*listener)->address(), data, {}, deadline);
  ASSERT_TRUE(end.ok());
  EXPECT_TRUE((*end)->connected());
  ASSERT_NE(accepted, nullptr);

  EXPECT_EQ(pair.client.connect("nowhere:1", {}, {}, deadline).code(), ErrorCode::Disconnected);
  auto deaf = pair.server.listen("deaf:1", {});
  EXPECT_EQ(pair.server.listen("deaf:1", {}).code(), ErrorCode::Busy);
  EXPECT_EQ(pair.client.connect("deaf:1", {}, {}, deadline).code(), ErrorCode::TimedOut);
  pair.server.power_cut();
  EXPECT_EQ(pair.client.connect("deaf:1", {}, {}, deadline).code(), ErrorCode::Disconnected);
  EXPECT_EQ((*deaf)->next(deadline).code(), ErrorCode::Disconnected);
}

TEST(EmuWorldProgram, EmulatedTimeOfAWriteAndFlushIsItsTwoWaysAndAGapForEachMoreInFlight) {
  const World::Options in_time{.order = World::Options::Order::InTime, .drain_one_in = 0};
  const auto takes = [&](int writes) {
    Pair pair(1, profile_of(PersistenceDomain::Dmp, Ddio::Off), in_time);
    for (int i = 0; i < writes; ++i) pair.post(pair.request(Opcode::Write, 0, 64));
    pair.post(pair.request(Opcode::Flush, 0, 64));
    Nanoseconds at{0};
    while (pair.next(*pair.end)) {
      at = pair.world.clock().now();
    }
    return at;
  };
  const Times times(default_hardware(Transport::InfiniBand));
  const ServerProfile profile = profile_of(PersistenceDomain::Dmp, Ddio::Off);
  const Nanoseconds one = times.post() + times.occupancy(64) + times.way(0) +
                          times.effect(Opcode::Flush, false, profile) + times.way(0) +
                          times.completion();
  EXPECT_EQ(takes(1), one);
  EXPECT_EQ(takes(6), one + 5 * times.occupancy(64)) << "a gap each, and no way";
}

TEST(EmuWorldProgram, TimePassesEvenWhenNothingHappens) {
  Pair pair(1, profile_of(PersistenceDomain::Dmp, Ddio::On));
  const Deadline deadline(pair.world.clock(), std::chrono::seconds(10));
  Completion completion;
  int polls = 0;
  for (; polls < 100'000 && !deadline.passed(); ++polls) (void)pair.end->poll({&completion, 1});
  EXPECT_TRUE(deadline.passed());
}

}  // namespace
}  // namespace perdure::fabric::emu
