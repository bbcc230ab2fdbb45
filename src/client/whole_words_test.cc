// Words of 8 bytes, where the RNIC may place a part of one and the power fails.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <vector>

#include "client/durable_session.h"
#include "core/random.h"
#include "pmem/pool_format.h"
#include "testing/world_server.h"

namespace perdure::client {
namespace {

const std::string kWordsPool = "words";
constexpr std::size_t kWordBytes = 8;

using BeginWords =
    std::function<Result<std::uint64_t>(DurableSession&, const persist::UpdateItem&)>;

/// Writes a range, waits for it, writes it again, and then the power fails.
/// Returns how many of its words were torn.
std::size_t torn(std::uint64_t seed, std::size_t bytes, const BeginWords& begin,
                 bool atomic_write = false) {
  Random random(seed);
  fabric::emu::World world(random);
  ServerProfile profile;
  profile.domain = PersistenceDomain::Mhp;
  profile.transport = Transport::InfiniBand;
  profile.write_order = WriteOrder::Unknown;
  profile.capabilities.atomic_write = atomic_write;
  test::WorldServer::Options machine{kWordsPool, 256 * 1024, {32, 2048}};
  machine.switches.tears_words = true;
  const auto server = *test::WorldServer::start(world, "server", profile, machine);
  DurableSessionOptions options;
  options.clock = &world.clock();
  options.measure_costs = false;
  options.ranges_again = true;
  options.request_bytes_max = 2048 - persist::kRequestHeaderBytes;
  DurableSession session(server->peer(world.add_machine("client", profile)), options);
  EXPECT_TRUE(session.open({kWordsPool, true, Epoch{1}, 1, "test", true}).ok());
  std::vector<std::byte> from(2 * bytes, std::byte{1});
  std::fill(from.begin() + static_cast<std::ptrdiff_t>(bytes), from.end(), std::byte{2});
  const auto memory = *session.register_memory(from);
  EXPECT_TRUE(session.prepare(atomic_write).ok());
  plan::CostModel slow = session.costs();
  slow.responder_wake_ns = 1e6;  // a processor that is long asleep: WRITEs are cheaper
  EXPECT_TRUE(session.plan_for(slow).ok());
  EXPECT_FALSE(session.keeps_words(bytes)) << session.small_place_method().name;
  EXPECT_GE(session.whole_words_bytes_max(), bytes);
  EXPECT_TRUE(begin(session, {64, {from.data(), bytes, memory.get()}}).ok());
  for (int round = 0; round < 20'000 && session.up() && !session.idle(); ++round) session.poll();
  EXPECT_TRUE(session.up() && session.idle());
  EXPECT_TRUE(begin(session, {64, {from.data() + bytes, bytes, memory.get()}}).ok());
  const std::uint64_t steps = random.below(40);
  for (std::uint64_t step = 0; step < steps; ++step) world.step();
  server->lose_power();
  const std::vector<std::byte> kept = server->region().durable();
  const auto words = std::span(kept).subspan(pmem::kPoolDataOffset + 64, bytes);
  std::size_t found = 0;
  for (std::size_t at = 0; at < bytes; at += kWordBytes) {
    const auto word = words.subspan(at, kWordBytes);
    const auto first = std::ranges::count(word, std::byte{1});
    EXPECT_EQ(first + std::ranges::count(word, std::byte{2}), kWordBytes) << "neither";
    found += first != 0 && first != kWordBytes ? 1 : 0;
  }
  session.close();
  return found;
}

std::size_t torn_in_all(std::size_t bytes, const BeginWords& begin, bool atomic_write = false) {
  std::size_t all = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) all += torn(seed, bytes, begin, atomic_write);
  return all;
}

Result<std::uint64_t> update(DurableSession& session, const persist::UpdateItem& item, bool whole) {
  const Ranges epoch(&item, 1);
  return session.update({&epoch, 1}, whole);
}

TEST(WholeWords, NoneIsTornWhereThatIsAskedFor) {
  const BeginWords whole = [](auto& session, const auto& item) {
    return update(session, item, true);
  };
  EXPECT_EQ(torn_in_all(64, whole), 0u);
  EXPECT_EQ(torn_in_all(1024, whole), 0u);
}

TEST(WholeWords, ARangeOfOneWordNeedsNotAsk) {
  const BeginWords any = [](auto& session, const auto& item) {
    return update(session, item, false);
  };
  EXPECT_EQ(torn_in_all(kWordBytes, any), 0u);
}

// The RNIC stores a word behind it by ATOMIC WRITE, and would store the word itself by WRITE.
TEST(WholeWords, ARangeOfOneWordNeedsNotAskBeforeAnother) {
  const auto another = [](const persist::UpdateItem& item) {
    return persist::UpdateItem{item.at + 4096, item.data};
  };
  const BeginWords two = [&](auto& session, const auto& item) {
    const persist::UpdateItem behind = another(item);
    const std::array<Ranges, 2> epochs = {Ranges(&item, 1), Ranges(&behind, 1)};
    return session.update(epochs);
  };
  const BeginWords pair = [&](auto& session, const auto& item) {
    return session.begin(std::array{item, another(item)});
  };
  EXPECT_EQ(torn_in_all(kWordBytes, two, true), 0u);
  EXPECT_GT(torn_in_all(kWordBytes, pair, true), 0u) << "it would be all the same";
}

// What the first two would be without.
TEST(WholeWords, AWriteTearsThem) {
  const BeginWords any = [](auto& session, const auto& item) {
    return update(session, item, false);
  };
  const BeginWords place = [](auto& session, const auto& item) {
    return session.begin_place(item);
  };
  EXPECT_GT(torn_in_all(1024, any), 0u);
  EXPECT_GT(torn_in_all(kWordBytes, place), 0u);
}

}  // namespace
}  // namespace perdure::client
