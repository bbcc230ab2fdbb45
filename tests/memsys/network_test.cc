// The network before a memory of banks: closed forms of both together, and a controller that
// forgets barriers is caught.
#include <gtest/gtest.h>

#include "memsys/server/banked_memory.h"
#include "sim/network_form.h"
#include "sim/network_run.h"

namespace perdure::memsys {
namespace {

using sim::Strategy;

struct Server {
  Device device = *read_device(CONFIGS "/nvm-a.toml");
  Processor processor = *read_processor(CONFIGS "/four-cores.toml");
  Hardware hardware = *read_hardware(CONFIGS "/edr-back-to-back.toml");

  Result<sim::NetworkResult> run(const sim::NetworkOptions& options,
                                 BankedMemoryOptions banked = {}) const {
    banked.connections = options.clients;
    BankedMemory memory(device, processor, banked);
    return sim::run_network(hardware, options, memory);
  }
};

sim::NetworkOptions transactions(Strategy strategy, std::uint64_t epochs, std::uint64_t bytes,
                                 std::uint64_t number = 1) {
  sim::NetworkOptions options;
  options.strategy = strategy;
  options.shape.epochs = epochs;
  options.shape.epoch_bytes = bytes;
  options.transactions = number;
  return options;
}

// A line: crossbar 1 and schedule 0.4, up to the next bus cycle; the row opens in 32, and the write
// is in the array 236 after its column command.
TEST(NetworkAndBanks, OneLineTakesTheNetworkAndTheBankAndNoMore) {
  const Server server;
  sim::EpochParts parts = sim::epoch_parts(server.hardware.network, 64, true);
  parts.medium = 0;
  const struct {
    PersistPoint point;
    Time ns;
  } cases[] = {{PersistPoint::Accept, 1}, {PersistPoint::Bus, 68}, {PersistPoint::Array, 268}};
  for (const auto& each : cases) {
    BankedMemoryOptions banked;
    banked.persist_point = each.point;
    const auto one = server.run(transactions(Strategy::Sync, 1, 64), banked);
    ASSERT_TRUE(one.ok()) << one.error().message;
    const Time least = parts.round_trip() + 1'400 + each.ns * 1000;
    EXPECT_GE(one->elapsed, least) << to_string(each.point);
    EXPECT_LT(one->elapsed, least + 2'000) << to_string(each.point);
  }
}

TEST(NetworkAndBanks, BufferedEpochsFollowEachOtherAtThePaceOfTheMemory) {
  const Server server;
  // 64 bytes: hits of one row, each 36 to the end of its burst and 200 in the array.
  const auto pace = [&](PersistPoint point) {
    BankedMemoryOptions banked;
    banked.persist_point = point;
    const auto few = server.run(transactions(Strategy::Bsp, 4, 64), banked);
    const auto many = server.run(transactions(Strategy::Bsp, 24, 64), banked);
    EXPECT_TRUE(few.ok() && many.ok());
    return static_cast<double>(many->elapsed - few->elapsed) / 20 / 1e3;
  };
  EXPECT_NEAR(pace(PersistPoint::Array), 236, 6);
  EXPECT_NEAR(pace(PersistPoint::Bus), 150, 2) << "the queue pair is slower";
  EXPECT_NEAR(pace(PersistPoint::Accept), 150, 2);
}

TEST(NetworkAndBanks, BspIsNeverSlowerAndTheLawHoldsUnderEveryOrder) {
  const Server server;
  for (const Ordering ordering : {Ordering::Epoch, Ordering::Thread, Ordering::Broi}) {
    for (const PersistPoint point :
         {PersistPoint::Accept, PersistPoint::Bus, PersistPoint::Array}) {
      BankedMemoryOptions banked;
      banked.ordering = ordering;
      banked.persist_point = point;
      for (const std::uint64_t bytes : {64, 700}) {
        sim::NetworkOptions options = transactions(Strategy::Sync, 5, bytes, 9);
        options.clients = 3;
        const auto sync = server.run(options, banked);
        options.strategy = Strategy::Bsp;
        const auto bsp = server.run(options, banked);
        ASSERT_TRUE(sync.ok()) << sync.error().message;
        ASSERT_TRUE(bsp.ok()) << bsp.error().message;
        EXPECT_EQ(bsp->transactions, 9U);
        EXPECT_LE(bsp->elapsed, sync->elapsed) << to_string(ordering) << " " << bytes;
      }
    }
  }
}

TEST(NetworkAndBanks, ALogShorterThanItsEpochsWrapsAround) {
  const Server server;
  BankedMemoryOptions banked;
  banked.log_bytes = 256;
  const auto run = server.run(transactions(Strategy::Bsp, 6, 512, 10), banked);
  ASSERT_TRUE(run.ok()) << run.error().message;
  EXPECT_EQ(run->transactions, 10U);
}

TEST(NetworkAndBanks, AControllerThatForgetsBarriersIsCaught) {
  // A log of nine rows in eight banks, an epoch a row: the ninth and the first after it share a
  // bank. That one waits for the bank, and the next epoch, whose row is still open, would go before
  // it.
  Server server;
  server.processor.remote_entries = 256;
  server.hardware.network.fetch_per_byte = 0;  // so that they come close behind each other
  sim::NetworkOptions options = transactions(Strategy::Bsp, 12, 2048, 2);
  BankedMemoryOptions banked;
  banked.log_bytes = std::uint64_t{9} * 2048;
  EXPECT_TRUE(server.run(options, banked).ok());
  banked.mutant.ignores_barriers = true;
  const auto run = server.run(options, banked);
  ASSERT_FALSE(run.ok());
  EXPECT_EQ(run.code(), ErrorCode::ProtocolError);
  // One at a time there is nothing to forget.
  options.strategy = Strategy::Sync;
  EXPECT_TRUE(server.run(options, banked).ok());
}

// The connection's entries are the first behind those of the processor's threads. Refreshes go on
// for ever beside them: they are no progress.
TEST(NetworkAndBanks, ADeadlockIsToldThoughRefreshesGoOn) {
  Server server;
  BankedMemoryOptions banked;
  const std::uint32_t first = server.processor.threads();
  for (const std::uint64_t refreshes : {0, 4000}) {
    server.device.timing.tREFI = refreshes;
    server.device.timing.tRFC = 100;
    for (const Ordering ordering : kRemoteOrderings) {
      banked.ordering = ordering;
      for (const std::uint32_t clients : {1U, 3U}) {
        sim::NetworkOptions options = transactions(Strategy::Bsp, 3, 512, 9);
        options.clients = clients;
        banked.mutant.holds_thread.reset();
        EXPECT_TRUE(server.run(options, banked).ok());
        banked.mutant.holds_thread = first;
        const auto broken = server.run(options, banked);
        ASSERT_FALSE(broken.ok());
        EXPECT_EQ(broken.code(), ErrorCode::InvalidArgument);
        EXPECT_NE(broken.error().message.find(
                      "transactions: nobody has anything to do; client 0 waits for the persist "
                      "ACK of epoch 2, and its memory for write 0, which the ordering controller "
                      "holds"),
                  std::string::npos)
            << broken.error().message;
      }
    }
  }
}

// The bound follows the device: cells that are written in a million cycles are no deadlock, nor is
// a client that computes for a second.
TEST(NetworkAndBanks, WaitingForSlowCellsOrASlowClientIsNoDeadlock) {
  Server server;
  server.device.timing.tWR = 1'000'000;
  server.device.timing.tREFI = 1'100'000;
  server.device.timing.tRFC = 100;
  sim::NetworkOptions options = transactions(Strategy::Bsp, 20, 512, 2);
  options.shape.compute = 1'000'000'000'000;
  const auto run = server.run(options);
  ASSERT_TRUE(run.ok()) << run.error().message;
  EXPECT_EQ(run->transactions, 2U);
}

}  // namespace
}  // namespace perdure::memsys
