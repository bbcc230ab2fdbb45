// A range that is written again and again, each time after the time before has resolved, where an
// update may resolve before its bytes are in their place and WRITEs keep no order.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <vector>

#include "client/durable_session.h"
#include "core/random.h"
#include "pmem/pool_format.h"
#include "testing/world_server.h"

namespace perdure::client {
namespace {

const std::string kAgainPool = "again";
constexpr std::size_t kLargeBytes = 32 * 1024;  // in many lines, which are placed one by one
constexpr std::size_t kShortBytes = 64;
constexpr std::uint8_t kRounds = 4;

using BeginRange =
    std::function<Result<std::uint64_t>(DurableSession&, const persist::UpdateItem&)>;

/// A large range, and then a short one in its midst, several times over.
/// Returns how many of the short ones were not there in the end.
int lost(std::uint64_t seed, std::optional<Primary> primary, const BeginRange& begin) {
  Random random(seed);
  fabric::emu::World world(random);
  ServerProfile profile;
  profile.domain = PersistenceDomain::Wsp;
  profile.transport = Transport::InfiniBand;
  profile.write_order = WriteOrder::Unknown;
  const auto server =
      *test::WorldServer::start(world, "server", profile, {kAgainPool, 256 * 1024, {32, 2048}});
  DurableSessionOptions options;
  options.clock = &world.clock();
  options.measure_costs = false;
  options.primary = primary;
  options.ranges_again = true;
  DurableSession session(server->peer(world.add_machine("client", profile)), options);
  EXPECT_TRUE(session.open({kAgainPool, true, Epoch{1}, 1, "test", true}).ok());
  std::vector<std::byte> bytes(kRounds * (kLargeBytes + kShortBytes));
  const auto memory = *session.register_memory(bytes);
  EXPECT_TRUE(session.prepare(false).ok());
  const auto update = [&](std::uint64_t at, std::byte* from, std::size_t length, std::byte value) {
    std::fill_n(from, length, value);
    const auto number = begin(session, {at, {from, length, memory.get()}});
    EXPECT_TRUE(number.ok() && *number != 0);
    for (int round = 0; round < 20'000 && session.up() && !session.idle(); ++round) session.poll();
    EXPECT_TRUE(session.up() && session.idle());
  };
  for (std::uint8_t round = 0; round < kRounds; ++round) {
    std::byte* const from = bytes.data() + round * (kLargeBytes + kShortBytes);
    update(0, from, kLargeBytes, std::byte{1});
    update(random.below(kLargeBytes / kShortBytes) * kShortBytes, from + kLargeBytes, kShortBytes,
           std::byte{2});
  }
  world.settle();
  const auto pool = server->region().bytes().subspan(pmem::kPoolDataOffset, kLargeBytes);
  const bool there = std::ranges::count(pool, std::byte{2}) == kShortBytes;
  session.close();
  return there ? 0 : 1;
}

int lost_in_all(std::optional<Primary> primary, const BeginRange& begin) {
  int all = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) all += lost(seed, primary, begin);
  return all;
}

TEST(WrittenAgain, TheLastOneStaysWhateverIsPlacedLate) {
  const BeginRange update = [](DurableSession& session, const persist::UpdateItem& item) {
    const Ranges epoch(&item, 1);
    return session.update({&epoch, 1});
  };
  const BeginRange place = [](DurableSession& session, const persist::UpdateItem& item) {
    return session.begin_place(item);
  };
  const BeginRange common_place = [](DurableSession& session, const persist::UpdateItem& item) {
    const std::uint64_t number = session.begin_common_place(item);
    return number != 0 ? Result<std::uint64_t>(number) : session.begin_place(item);
  };
  for (const std::optional<Primary> primary : {std::optional<Primary>(), {Primary::Write}}) {
    EXPECT_EQ(lost_in_all(primary, update), 0);
    EXPECT_EQ(lost_in_all(primary, place), 0);
    EXPECT_EQ(lost_in_all(primary, common_place), 0);
  }
}

// Its methods are right for what is written once.
TEST(WrittenAgain, ThatIsNotPromisedOfARecord) {
  const BeginRange record = [](DurableSession& session, const persist::UpdateItem& item) {
    return session.begin({&item, 1});
  };
  EXPECT_GT(lost_in_all(Primary::Write, record), 0);
}

}  // namespace
}  // namespace perdure::client
