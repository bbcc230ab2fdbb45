// The laws of the abstract machine (design section 4), tried in many seeded worlds.
#include "fabric/emu/world.h"

#include "core/bytes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>

namespace perdure::fabric::emu {
namespace {

constexpr std::uint64_t kSeeds = 200;
constexpr Capabilities kNative{.native_flush = true, .atomic_write = true};

ServerProfile profile_of(PersistenceDomain domain, Ddio ddio,
                         Transport transport = Transport::InfiniBand) {
  return {domain, ddio, ReceiveBuffers::Pm, transport, kNative};
}

bool all(std::span<const std::byte> bytes, int value) {
  return std::ranges::all_of(bytes,
                             [&](std::byte b) { return b == static_cast<std::byte>(value); });
}

/// A client connected to a server that exports a region.
struct Pair {
  explicit Pair(std::uint64_t seed, const ServerProfile& profile,
                const World::Options& world_options = {})
      : random(seed),
        world(random, world_options),
        client(world.add_machine("client", profile)),
        server(world.add_machine("server", profile)),
        region(server.add_region(64 * 1024)),
        source(16 * 1024) {
    std::tie(end, server_end) =
        world.connect(client, server, {.send_depth = 8, .receive_depth = 4});
    memory = std::move(*server.register_memory(region.bytes(), Access::RemoteReadWrite));
    remote = {memory->key(), memory->base(), region.bytes().size()};
    local = std::move(*client.register_memory(source, Access::Local));
  }

  WorkRequest request(Opcode opcode, std::uint64_t at, std::size_t length, int value = 1) {
    WorkRequest work;
    work.opcode = opcode;
    work.remote = remote;
    work.remote_offset = at;
    work.flush_length = length;
    if (opcode != Opcode::Flush && opcode != Opcode::AtomicWrite) {
      std::byte* data = source.data() + used;
      used += round_up(length, 64);
      std::memset(data, value, length);
      work.segments[0] = {data, length, local.get()};
      work.segment_count = 1;
    }
    work.context = next_context++;
    return work;
  }

  void post(const WorkRequest& work) {
    const auto taken = end->post({&work, 1});
    ASSERT_TRUE(taken.ok());
    ASSERT_EQ(*taken, 1u);
  }

  /// The next completion at this end, if one comes.
  std::optional<Completion> next(Endpoint& at) {
    Completion completion;
    for (int polls = 0; polls < 1000; ++polls) {
      if (at.poll({&completion, 1}) == 1) return completion;
    }
    return std::nullopt;
  }

  std::span<std::byte> bytes(std::uint64_t at, std::size_t length) {
    return region.bytes().subspan(at, length);
  }

  Random random;
  World world;
  Machine& client;
  Machine& server;
  pmem::CrashableRegion& region;
  std::vector<std::byte> source;
  std::unique_ptr<Memory> memory;
  std::unique_ptr<Memory> spare;
  std::unique_ptr<Memory> local;
  std::unique_ptr<Endpoint> end;
  std::unique_ptr<Endpoint> server_end;
  RemoteMemory remote;
  std::size_t used = 0;
  std::uint64_t next_context = 1;
};

/// In how many of the seeded worlds it holds.
std::uint64_t count(const std::function<bool(std::uint64_t seed)>& holds) {
  std::uint64_t times = 0;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) times += holds(seed) ? 1 : 0;
  return times;
}

TEST(EmuWorld, WriteArrivesAndCompletes) {
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

TEST(EmuWorld, ACompletedWriteNeedNotBeVisible) {
  const auto unseen = count([](std::uint64_t seed) {
    Pair pair(seed, profile_of(PersistenceDomain::Mhp, Ddio::On));
    pair.post(pair.request(Opcode::Write, 0, 64, 7));
    EXPECT_TRUE(pair.next(*pair.end).has_value());
    return all(pair.bytes(0, 64), 0);
  });
  EXPECT_GT(unseen, 0u);
  EXPECT_LT(unseen, kSeeds);
}

TEST(EmuWorld, AFlushedWriteIsVisible) {
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

TEST(EmuWorld, WithDdioOffAFlushedWriteIsNeverLost) {
  for (Opcode proof : {Opcode::Flush, Opcode::Read}) {
    EXPECT_EQ(count([&](std::uint64_t seed) {
                return flushed_write_survives(seed, proof, PersistenceDomain::Dmp, Ddio::Off);
              }),
              kSeeds);
  }
}

TEST(EmuWorld, WithDdioOnAFlushedWriteCanBeLost) {
  for (Opcode proof : {Opcode::Flush, Opcode::Read}) {
    EXPECT_LT(count([&](std::uint64_t seed) {
                return flushed_write_survives(seed, proof, PersistenceDomain::Dmp, Ddio::On);
              }),
              kSeeds);
  }
}

TEST(EmuWorld, AReadBesideTheWrittenRangeProvesVisibilityOnly) {
  EXPECT_LT(count([&](std::uint64_t seed) {
              return flushed_write_survives(seed, Opcode::Read, PersistenceDomain::Dmp, Ddio::Off,
                                            4096);
            }),
            kSeeds);
}

TEST(EmuWorld, NoFlushReachesBehindThePageCache) {
  EXPECT_LT(count([&](std::uint64_t seed) {
              return flushed_write_survives(seed, Opcode::Flush, PersistenceDomain::Page,
                                            Ddio::Off);
            }),
            kSeeds);
}

TEST(EmuWorld, WspKeepsACompletedWriteExceptOverIwarp) {
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

TEST(EmuWorld, WspKeepsOrder) {
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

TEST(EmuWorld, OverIwarpAWriteMayCompleteBeforeItLeft) {
  EXPECT_GT(count([](std::uint64_t seed) {
              Pair pair(seed, profile_of(PersistenceDomain::Dmp, Ddio::On, Transport::Iwarp));
              pair.post(pair.request(Opcode::Write, 0, 64, 7));
              EXPECT_TRUE(pair.next(*pair.end).has_value());
              return pair.server.counters().operations == 0;
            }),
            0u);
}

TEST(EmuWorld, PostedOperationsBecomeVisibleInOrder) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    Pair pair(seed, profile_of(PersistenceDomain::Mhp, Ddio::On));
    pair.post(pair.request(Opcode::Write, 0, 500, 7));
    pair.post(pair.request(Opcode::Write, 1000, 8, 8));
    EXPECT_TRUE(pair.world.run_until([&] { return all(pair.bytes(1000, 8), 8); }));
    EXPECT_TRUE(all(pair.bytes(0, 500), 7));
  }
}

TEST(EmuWorld, LinesOfOneWriteBecomeVisibleInAnyOrder) {
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

TEST(EmuWorld, ALaterWriteMayOvertakeAFlushButNotAFencedOne) {
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

TEST(EmuWorld, AnAtomicWriteWaitsForTheFlushBeforeIt) {
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

TEST(EmuWorld, AtomicsAnswerTheOldValue) {
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

TEST(EmuWorld, SameSeedSameHistory) {
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

TEST(EmuWorld, APowerCutAtEveryEventBreaksBothEnds) {
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

TEST(EmuWorld, AnInterruptedWriteMayArriveInPart) {
  EXPECT_GT(count([](std::uint64_t seed) {
              Pair pair(seed, profile_of(PersistenceDomain::Wsp, Ddio::On));
              pair.post(pair.request(Opcode::Write, 0, 1024, 7));
              pair.client.power_cut();
              EXPECT_TRUE(pair.world.settle());
              return !all(pair.bytes(0, 1024), 7) && !all(pair.bytes(0, 1024), 0);
            }),
            0u);
}

TEST(EmuWorld, TheResponderLearnsThatTheRequesterLostPower) {
  Pair pair(1, profile_of(PersistenceDomain::Wsp, Ddio::On));
  pair.client.power_cut();
  EXPECT_TRUE(pair.world.settle());
  EXPECT_FALSE(pair.server_end->connected());
}

TEST(EmuWorld, RefusesWhatItDoesNotExport) {
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

TEST(EmuWorld, RefusesBadRequestsBeforePosting) {
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

TEST(EmuWorld, AFullQueueTakesNoMore) {
  Pair pair(1, profile_of(PersistenceDomain::Dmp, Ddio::On));
  std::vector<WorkRequest> many(10, pair.request(Opcode::Write, 0, 8));
  EXPECT_EQ(*pair.end->post(many), 8u);
  EXPECT_EQ(*pair.end->post(many), 0u);
  ASSERT_TRUE(pair.next(*pair.end).has_value());
  EXPECT_EQ(*pair.end->post(many), 1u);
}

/// Buffers of the server for incoming messages, in its region.
void post_receives(Pair& pair, std::size_t buffers, std::uint64_t at = 32 * 1024) {
  for (std::size_t i = 0; i < buffers; ++i) {
    const Segment buffer{pair.region.bytes().data() + at + i * 256, 256, pair.memory.get()};
    ASSERT_TRUE(pair.server_end->post_receive(buffer, 100 + i).ok());
  }
}

TEST(EmuWorld, AReceiveCompletesAfterAllThatWasPostedBefore) {
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

TEST(EmuWorld, AnEmptyReceiveQueueHoldsMessagesBackAndLosesNone) {
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

TEST(EmuWorld, AMessageLargerThanItsBufferIsRefused) {
  Pair pair(5, profile_of(PersistenceDomain::Mhp, Ddio::On));
  post_receives(pair, 1);
  pair.post(pair.request(Opcode::Send, 0, 257));
  EXPECT_EQ(pair.next(*pair.end)->error, ErrorCode::OutOfRange);
  EXPECT_TRUE(all(pair.region.bytes(), 0));
}

TEST(EmuWorld, ReceiveBuffersInPersistentMemorySurvive) {
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

TEST(EmuWorld, AMessageCanBeTornInItsPersistentBuffer) {
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

TEST(EmuWorld, DisconnectCompletesWhatIsInFlightAsUnknown) {
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

TEST(EmuWorld, NothingTouchesMemoryAfterItsRegistrationEnds) {
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

TEST(EmuWorld, ActorsAnswerWhileTheCallerPolls) {
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

TEST(EmuWorld, ThePowerCanFailInTheMiddleOfAnActor) {
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

TEST(EmuWorld, ConnectsThroughAListener) {
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

TEST(EmuWorld, EmulatedTimeOfAWriteAndFlushIsItsTwoWaysAndNoMoreWithManyInFlight) {
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
  EXPECT_GE(takes(1), Nanoseconds{2000});
  EXPECT_LT(takes(1), Nanoseconds{2200});
  EXPECT_LT(takes(6), Nanoseconds{2300});
}

TEST(EmuWorld, TimePassesEvenWhenNothingHappens) {
  Pair pair(1, profile_of(PersistenceDomain::Dmp, Ddio::On));
  const Deadline deadline(pair.world.clock(), std::chrono::seconds(10));
  Completion completion;
  int polls = 0;
  for (; polls < 100'000 && !deadline.passed(); ++polls) (void)pair.end->poll({&completion, 1});
  EXPECT_TRUE(deadline.passed());
}

}  // namespace
}  // namespace perdure::fabric::emu
