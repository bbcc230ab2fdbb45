// What the tests of the emulated world share: a client connected to a server that exports a region.
#pragma once

#include "core/bytes.h"
#include "fabric/emu/world.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

namespace perdure::fabric::emu {

inline constexpr std::uint64_t kSeeds = 200;
inline constexpr Capabilities kNative{.native_flush = true, .atomic_write = true};

inline ServerProfile profile_of(PersistenceDomain domain, Ddio ddio,
                                Transport transport = Transport::InfiniBand) {
  return {domain, ddio, ReceiveBuffers::Pm, transport, kNative, WriteOrder::Ordered};
}

inline bool all(std::span<const std::byte> bytes, int value) {
  return std::ranges::all_of(bytes,
                             [&](std::byte b) { return b == static_cast<std::byte>(value); });
}

/// A client connected to a server that exports a region.
struct Pair {
  explicit Pair(std::uint64_t seed, const ServerProfile& profile,
                const World::Options& world_options = {}, const RnicSwitches& switches = {})
      : random(seed),
        world(random, world_options),
        client(world.add_machine("client", profile)),
        server(world.add_machine("server", profile, switches)),
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
    const bool names = opcode == Opcode::Flush || opcode == Opcode::SendFlush;
    if (!names && opcode != Opcode::AtomicWrite) {
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

/// Buffers of the server for incoming messages, in its region.
inline void post_receives(Pair& pair, std::size_t buffers, std::uint64_t at = 32 * 1024) {
  for (std::size_t i = 0; i < buffers; ++i) {
    const Segment buffer{pair.region.bytes().data() + at + i * 256, 256, pair.memory.get()};
    ASSERT_TRUE(pair.server_end->post_receive(buffer, 100 + i).ok());
  }
}

/// In how many of the seeded worlds it holds.
inline std::uint64_t count(const std::function<bool(std::uint64_t seed)>& holds) {
  std::uint64_t times = 0;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) times += holds(seed) ? 1 : 0;
  return times;
}

}  // namespace perdure::fabric::emu
