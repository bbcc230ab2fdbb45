// PWRITE and SFLUSH, which no RNIC has: the emulated one does what the papers say of them, where
// its machine has them.
#include "fabric/emu/world_test_pair.h"

namespace perdure::fabric::emu {
namespace {

ServerProfile able(PersistenceDomain domain, Transport transport = Transport::InfiniBand) {
  ServerProfile profile = profile_of(domain, Ddio::On, transport);
  profile.capabilities.ordered_persist = true;
  profile.capabilities.send_flush = true;
  return profile;
}

/// Whether 200 bytes are durable when the last request has completed.
bool durable_at_completion(std::uint64_t seed, Opcode opcode, Transport transport) {
  Pair pair(seed, able(PersistenceDomain::Dmp, transport));
  pair.post(pair.request(opcode, 0, 200));
  const auto completion = pair.next(*pair.end);
  EXPECT_TRUE(completion.has_value() && !completion->error);
  return pair.region.is_durable({0, 200}) && all(pair.bytes(0, 200), 1);
}

TEST(WorldPersist, APwriteCompletesWhenItIsDurableAndAWriteBefore) {
  for (const Transport transport : {Transport::InfiniBand, Transport::Iwarp}) {
    const auto durable = [&](Opcode opcode) {
      return count([&](auto seed) { return durable_at_completion(seed, opcode, transport); });
    };
    EXPECT_EQ(durable(Opcode::WritePersist), kSeeds);
    EXPECT_LT(durable(Opcode::Write), kSeeds);
  }
}

/// Whether a power failure leaves something of the second of two without all of the first.
bool left_in_the_wrong_order(std::uint64_t seed, Opcode opcode, WriteOrder order, bool ends) {
  ServerProfile profile = able(PersistenceDomain::Dmp);
  profile.write_order = order;
  Pair pair(seed, profile);
  pair.post(pair.request(opcode, 0, 200));
  pair.post(pair.request(opcode, 4096, 200));
  pair.world.run_until([&] { return pair.world.events() > 2 + seed % 24; });
  // Its queue pair goes into the error state: what was acknowledged is placed all the same.
  if (ends) pair.end->disconnect();
  if (ends) pair.world.settle();
  pair.server.power_cut();
  pair.server.power_on();
  const bool second = !all(pair.bytes(4096, 200), 0);
  return second && !all(pair.bytes(0, 200), 1);
}

TEST(WorldPersist, PwritesDrainInTheOrderOfPostingWhateverHappensToTheirConnection) {
  for (const WriteOrder order : {WriteOrder::Ordered, WriteOrder::Unknown}) {
    for (const bool ends : {false, true}) {
      const auto wrong = [&](Opcode opcode) {
        return count([&](auto seed) { return left_in_the_wrong_order(seed, opcode, order, ends); });
      };
      EXPECT_EQ(wrong(Opcode::WritePersist), 0u);
      EXPECT_GT(wrong(Opcode::Write), 0u);
    }
  }
}

/// A message and what was written before it, when the last request has completed.
struct Flushed {
  bool message = false;
  bool written = false;
};

Flushed flushed(std::uint64_t seed, Opcode opcode, std::size_t names) {
  Pair pair(seed, able(PersistenceDomain::Dmp));
  post_receives(pair, 1);
  pair.post(pair.request(Opcode::Write, 0, 200));
  pair.post(pair.request(Opcode::Send, 0, 200));
  const WorkRequest last = pair.request(opcode, 0, names);
  pair.post(last);
  std::optional<Completion> completion;
  do completion = pair.next(*pair.end);
  while (completion && completion->context != last.context);
  EXPECT_TRUE(completion.has_value());
  return {pair.region.is_durable({32 * 1024, 200}), pair.region.is_durable({0, 200})};
}

TEST(WorldPersist, AnSflushFlushesTheMessageBeforeItAndWhatItNames) {
  std::uint64_t unnamed = 0;
  std::uint64_t by_flush = 0;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const Flushed both = flushed(seed, Opcode::SendFlush, 200);
    EXPECT_TRUE(both.message && both.written) << seed;
    const Flushed message = flushed(seed, Opcode::SendFlush, 0);
    EXPECT_TRUE(message.message) << seed;
    unnamed += message.written ? 0 : 1;
    by_flush += flushed(seed, Opcode::Flush, 200).message ? 0 : 1;
  }
  // Neither what it does not name, nor the message by a FLUSH: DDIO is on.
  EXPECT_GT(unnamed, 0u);
  EXPECT_GT(by_flush, 0u);
}

Nanoseconds time_of_sflush(double lookup) {
  Hardware hardware = default_hardware(Transport::InfiniBand);
  hardware.network.send_flush_lookup = lookup;
  Pair pair(1, able(PersistenceDomain::Dmp),
            {.order = World::Options::Order::InTime, .hardware = &hardware});
  post_receives(pair, 1);
  pair.post(pair.request(Opcode::Send, 0, 200));
  pair.post(pair.request(Opcode::SendFlush, 0, 0));
  EXPECT_TRUE(pair.next(*pair.end).has_value());
  EXPECT_TRUE(pair.next(*pair.end).has_value());
  return pair.world.clock().now();
}

TEST(WorldPersist, AnSflushTakesAsMuchLongerAsTheRnicLooksForItsMessage) {
  const Nanoseconds at_once = time_of_sflush(0);
  EXPECT_EQ(time_of_sflush(1) - at_once, Nanoseconds{1});
  EXPECT_EQ(time_of_sflush(7000) - at_once, Nanoseconds{7000});
}

TEST(WorldPersist, APersistAckComesLaterThanACompletionByTheWayToTheMemoryController) {
  const auto time_of = [](Opcode opcode) {
    Pair pair(1, able(PersistenceDomain::Dmp), {.order = World::Options::Order::InTime});
    pair.post(pair.request(opcode, 0, 200));
    EXPECT_TRUE(pair.next(*pair.end).has_value());
    return pair.world.clock().now();
  };
  const Times times(default_hardware(Transport::InfiniBand));
  EXPECT_EQ(time_of(Opcode::WritePersist) - time_of(Opcode::Write),
            times.visible() + times.persist_ack(Ddio::On));
}

TEST(WorldPersist, WhatTheMachineHasNotIsRefusedByName) {
  for (const Opcode opcode : {Opcode::WritePersist, Opcode::SendFlush}) {
    Pair pair(1, profile_of(PersistenceDomain::Dmp, Ddio::On));
    const WorkRequest work = pair.request(opcode, 0, 64);
    const auto refused = pair.end->post({&work, 1});
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find(to_string(opcode)), std::string::npos);
    EXPECT_TRUE(pair.end->connected());
  }
}

TEST(WorldPersist, AnSflushReachesNothingOutsideOfWhatItsKeyOpens) {
  Pair pair(1, able(PersistenceDomain::Dmp));
  post_receives(pair, 1);
  pair.post(pair.request(Opcode::Send, 0, 100));
  WorkRequest outside = pair.request(Opcode::SendFlush, 0, 64);
  outside.remote_offset = pair.remote.length;
  pair.post(outside);
  EXPECT_TRUE(pair.next(*pair.end).has_value());
  const auto refused = pair.next(*pair.end);
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->error, ErrorCode::OutOfRange);
}

}  // namespace
}  // namespace perdure::fabric::emu
