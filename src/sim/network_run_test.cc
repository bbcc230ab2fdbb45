// The stations against the formula where nothing waits, against their capacity where all does, and
// the law against strategies and memories that break it.
#include "sim/network_run.h"

#include <gtest/gtest.h>

#include <deque>
#include <functional>

#include "sim/method_price.h"
#include "sim/network_form.h"

namespace perdure::sim {
namespace {

/// A machine of round numbers; of 512 bytes the queue pair is what limits how fast epochs follow.
Hardware machine() {
  Hardware h;
  NetworkHardware& n = h.network;
  n.name = "test";
  n.post = 70;
  n.rnic = 200;
  n.wire = 30;
  n.wire_per_byte = 0.08;
  n.header_bytes = 60;
  n.packet_bytes = 4096;
  n.message_gap = 150;
  n.inline_bytes = 220;
  n.fetch = 500;
  n.fetch_per_byte = 0.2;
  n.fetch_bytes = 2048;
  n.pcie_per_byte = 0.07;
  n.pcie_packet_bytes = 256;
  n.pcie_header_bytes = 24;
  n.dma_write = 190;
  n.cache_drain = 80;
  n.completion = 210;
  n.dma_read_cache = 440;
  n.dma_read_memory = 520;
  n.poll = 40;
  n.persist_ack = 50;
  n.medium_write = 94;
  h.server.flush_line = 20;
  h.server.handle = 400;
  h.server.copy_per_byte = 0.1;
  h.server.line_bytes = 64;
  return h;
}

Result<NetworkResult> run(const Hardware& hardware, const NetworkOptions& options) {
  const bool reads = options.strategy == Strategy::Read;  // as the header requires
  FixedMemory memory(options.clients, reads ? 0 : picoseconds(hardware.network.medium_write));
  return run_network(hardware, options, memory);
}

NetworkOptions transactions(Strategy strategy, std::uint64_t epochs, std::uint64_t bytes) {
  NetworkOptions options;
  options.strategy = strategy;
  options.shape.epochs = epochs;
  options.shape.epoch_bytes = bytes;
  options.transactions = 5;
  return options;
}

TEST(Network, OnAnIdleConnectionTakesWhatTheFormulaSaysWhateverIsSlowest) {
  struct Case {
    std::string_view slowest;
    std::function<void(NetworkHardware&)> change;
  };
  const Case cases[] = {
      {"queue pair", [](NetworkHardware&) {}},
      {"client CPU", [](NetworkHardware& n) { n.post = 900; }},
      {"client PCIe", [](NetworkHardware& n) { n.fetch_per_byte = 1.3; }},
      {"link", [](NetworkHardware& n) { n.wire_per_byte = 0.8; }},
      {"server PCIe", [](NetworkHardware& n) { n.pcie_per_byte = 1.1; }},
      {"memory", [](NetworkHardware& n) { n.medium_write = 1300; }},
  };
  for (const Case& each : cases) {
    Hardware hardware = machine();
    each.change(hardware.network);
    for (const bool ddio : {false, true}) {
      const EpochParts parts = epoch_parts(hardware.network, 512, ddio);
      EXPECT_EQ(parts.slowest(), each.slowest);
      for (const std::uint64_t epochs : {1, 2, 6, 40}) {
        NetworkOptions options = transactions(Strategy::Sync, epochs, 512);
        options.ddio = ddio;
        const auto sync = run(hardware, options);
        ASSERT_TRUE(sync.ok()) << sync.error().message;
        EXPECT_EQ(sync->elapsed, 5 * sync_form(parts, epochs)) << each.slowest;
        EXPECT_EQ(sync->round_trips, 5 * epochs);
        EXPECT_NEAR(
            sync->network_share(),
            1 - static_cast<double>(parts.in_memory()) / static_cast<double>(parts.round_trip()),
            1e-9);
        options.strategy = Strategy::Bsp;
        const auto bsp = run(hardware, options);
        ASSERT_TRUE(bsp.ok()) << bsp.error().message;
        EXPECT_EQ(bsp->elapsed, 5 * bsp_form(parts, epochs)) << each.slowest << " " << epochs;
        EXPECT_EQ(bsp->round_trips, 5U);
      }
    }
  }
}

TEST(Network, AtTheSpacingThatAGainImpliesThatGainComesOut) {
  for (const double gain : {1.0, 1.5, 3.0, 4.6, 5.5}) {
    Hardware hardware = machine();
    hardware.network = with_spacing(hardware.network, 512, implied_spacing(gain, 6));
    const auto sync = run(hardware, transactions(Strategy::Sync, 6, 512));
    const auto bsp = run(hardware, transactions(Strategy::Bsp, 6, 512));
    ASSERT_TRUE(sync.ok() && bsp.ok());
    EXPECT_NEAR(bsp->transactions_per_us() / sync->transactions_per_us(), gain, 1e-3);
  }
}

TEST(Network, AnEpochTakesWhatTheMethodWithAPersistAckIsPricedAt) {
  Method method;
  method.name = "test";
  RequesterStep post;
  post.verb = Verb::WritePersist;
  post.items = {0};
  RequesterStep wait;
  wait.kind = RequesterStep::Kind::WaitCompletion;
  method.requester = {post, wait};
  ServerProfile profile;
  profile.transport = Transport::InfiniBand;
  for (const double bytes : {64.0, 512.0, 4096.0}) {
    for (const Ddio ddio : {Ddio::On, Ddio::Off}) {
      profile.ddio = ddio;
      PriceOptions options;
      options.item_bytes = bytes;
      const double priced = price(method, profile, machine(), options).latency_ns;
      const EpochParts parts =
          epoch_parts(machine().network, static_cast<std::uint64_t>(bytes), ddio == Ddio::On);
      EXPECT_NEAR(static_cast<double>(parts.round_trip()) / 1e3, priced, 0.1) << bytes;
    }
  }
}

/// WRITE and what follows it, or a message that is copied, flushed and answered.
Method method_of(Strategy strategy) {
  Method method;
  method.name = "test";
  RequesterStep post;
  post.verb = strategy == Strategy::Message ? Verb::Send : Verb::Write;
  post.items = {0};
  RequesterStep behind;
  behind.verb = strategy == Strategy::Read ? Verb::Read : Verb::Flush;
  RequesterStep wait;
  wait.kind = RequesterStep::Kind::WaitCompletion;
  wait.of = 1;
  method.requester = {post, behind, wait};
  if (strategy != Strategy::Message) return method;
  wait.kind = RequesterStep::Kind::WaitAck;
  method.requester = {post, wait};
  using enum ResponderAction::Kind;
  method.responder = {{{Copy, 0}, {Flush, 0}, {Ack, {}}}};
  return method;
}

TEST(Network, WithoutPersistAcksAnEpochTakesWhatItsMethodIsPricedAt) {
  ServerProfile profile;
  profile.transport = Transport::InfiniBand;
  profile.capabilities.native_flush = true;
  struct Case {
    Strategy strategy;
    Ddio ddio;
    double medium_write;
  };
  const Case cases[] = {
      {Strategy::Read, Ddio::Off, 94},   {Strategy::Read, Ddio::Off, 2000},
      {Strategy::Flush, Ddio::Off, 94},  {Strategy::Flush, Ddio::On, 94},
      {Strategy::Flush, Ddio::On, 2000}, {Strategy::Message, Ddio::Off, 94},
      {Strategy::Message, Ddio::On, 94},
  };
  for (const Case& each : cases) {
    Hardware hardware = machine();
    hardware.network.medium_write = each.medium_write;
    profile.ddio = each.ddio;
    profile.capabilities.native_flush = each.strategy != Strategy::Read;
    for (const std::uint64_t bytes : {64U, 512U, 1024U}) {
      PriceOptions price_options;
      price_options.item_bytes = static_cast<double>(bytes);
      const double priced =
          price(method_of(each.strategy), profile, hardware, price_options).latency_ns;
      for (const std::uint64_t epochs : {1U, 5U}) {
        NetworkOptions options = transactions(each.strategy, epochs, bytes);
        options.ddio = each.ddio == Ddio::On;
        const auto result = run(hardware, options);
        ASSERT_TRUE(result.ok()) << result.error().message;
        EXPECT_EQ(result->round_trips, 5 * epochs);
        EXPECT_NEAR(
            static_cast<double>(result->elapsed) / 1e3 / (5.0 * static_cast<double>(epochs)),
            priced, 0.2)
            << to_string(each.strategy) << ", " << bytes << " bytes, medium " << each.medium_write
            << (options.ddio ? ", DDIO" : "");
      }
    }
  }
}

// Many small epochs: an epoch is persistent before the READ behind it has got through the link.
TEST(Network, AReadThatComesLateIsAnsweredAtOnce) {
  NetworkOptions options = transactions(Strategy::Read, 6, 64);
  options.ddio = false;
  options.clients = 64;
  options.transactions = 1000;
  const auto result = run(machine(), options);
  ASSERT_TRUE(result.ok()) << result.error().message;
  options.strategy = Strategy::Sync;
  const auto sync = run(machine(), options);
  ASSERT_TRUE(sync.ok()) << sync.error().message;
  EXPECT_GT(result->elapsed, sync->elapsed);
  EXPECT_LT(result->elapsed, 3 * sync->elapsed);
}

// What is asked behind a WRITE does not pass it on a PCIe that is slow.
TEST(Network, NoStrategyGetsMoreThroughTheServersPcieThanItCarries) {
  Hardware hardware = machine();
  hardware.network.pcie_per_byte = 2;
  using enum Strategy;
  for (const Strategy strategy : {Sync, Bsp, Read, Flush, Message}) {
    for (const std::uint32_t clients : {1U, 16U}) {
      NetworkOptions options = transactions(strategy, 3, 4096);
      options.clients = clients;
      options.server_cpus = clients;
      options.transactions = 160;
      options.ddio = strategy != Read;
      const auto result = run(hardware, options);
      ASSERT_TRUE(result.ok()) << result.error().message;
      const EpochParts parts = epoch_parts(hardware.network, 4096, options.ddio);
      EXPECT_EQ(result->busy.server_pcie, 480 * parts.pcie_busy) << to_string(strategy);
      EXPECT_GE(result->elapsed, result->busy.server_pcie) << to_string(strategy);
      EXPECT_LE(result->in_memory, 480 * result->elapsed);  // no time is below zero
    }
  }
}

TEST(Network, AReadThatTheCacheAnswersIsNoPersistence) {
  for (const double gap : {150, 5000}) {  // however late it comes
    Hardware hardware = machine();
    hardware.network.message_gap = gap;
    const auto result = run(hardware, transactions(Strategy::Read, 2, 512));
    ASSERT_FALSE(result.ok()) << gap;
    EXPECT_EQ(result.error().code, ErrorCode::ProtocolError);
  }
}

// Sixteen clients post an epoch each; a CPU does one after the other, from the first on.
TEST(Network, TheServersCpusAreWhatManyMessagesWaitFor) {
  const Time each = picoseconds(400 + 512 * 0.1 + 8 * 20 + 94 + 70);
  for (const std::uint32_t cpus : {1U, 4U}) {
    NetworkOptions options = transactions(Strategy::Message, 1, 512);
    options.clients = 16;
    options.server_cpus = cpus;
    options.transactions = 1600;
    const auto result = run(machine(), options);
    ASSERT_TRUE(result.ok()) << result.error().message;
    EXPECT_EQ(result->busy.server_cpu, 1600 * each);
    EXPECT_GE(result->elapsed, 1600 * each / cpus);
    if (cpus == 1) {
      EXPECT_LE(result->elapsed, 1600 * each + 10'000'000);
    }
    options.strategy = Strategy::Flush;
    const auto flush = run(machine(), options);
    ASSERT_TRUE(flush.ok()) << flush.error().message;
    EXPECT_EQ(flush->busy.server_cpu, 0U);
    EXPECT_LT(flush->elapsed, result->elapsed);
  }
}

TEST(Network, ManyClientsGetWhatTheSharedLinkCarriesAndNoMore) {
  Hardware hardware = machine();
  hardware.network.wire_per_byte = 0.8;  // 10 Gb/s
  NetworkOptions options = transactions(Strategy::Sync, 2, 4096);
  options.transactions = 400;
  const EpochParts parts = epoch_parts(hardware.network, 4096, true);
  const Time on_link = 800 * parts.link_busy;
  for (const std::uint32_t clients : {1U, 16U}) {
    options.clients = clients;
    const auto result = run(hardware, options);
    ASSERT_TRUE(result.ok()) << result.error().message;
    EXPECT_EQ(result->busy.link, on_link);
    EXPECT_EQ(result->bytes, 800U * 4096);
    // One client leaves the link idle most of the time; sixteen do not.
    const Time expected = clients == 1 ? 400 * sync_form(parts, 2) : on_link;
    EXPECT_GE(result->elapsed, expected);
    EXPECT_LT(result->elapsed, expected + (clients == 1 ? 1 : 20 * parts.round_trip()));
    EXPECT_GT(result->elapsed, on_link);
  }
}

TEST(Network, TransactionsThatOnlyReadAskNothingOfTheNetwork) {
  NetworkOptions options = transactions(Strategy::Sync, 4, 64);
  options.transactions = 4000;
  options.shape.writes_per_mille = 50;
  options.shape.compute = 1'000'000;
  const auto result = run(machine(), options);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->transactions, 4000U);
  EXPECT_NEAR(static_cast<double>(result->writing), 200, 60);
  const Time waits = result->writing * sync_form(epoch_parts(machine().network, 64, true), 4);
  EXPECT_EQ(result->elapsed, 4000U * 1'000'000 + waits);
}

TEST(Network, AClientWithItsOwnMemoryWritesThereBesideTheNetwork) {
  Hardware hardware = machine();
  NetworkOptions options = transactions(Strategy::Sync, 6, 512);
  options.client_persists = true;
  const EpochParts parts = epoch_parts(hardware.network, 512, true);
  EXPECT_EQ(run(hardware, options)->elapsed, 5 * sync_form(parts, 6)) << "the network is slower";
  // 8 lines at 20 and 94 of the medium: now that is what limits how fast epochs follow.
  options.strategy = Strategy::Bsp;
  const Time local = picoseconds(8 * 20 + 94) + parts.post;
  EXPECT_EQ(run(hardware, options)->elapsed, 5 * (parts.round_trip() + 5 * local));
}

TEST(Network, ALostPersistAckAbortsTheTransactionAndDoesItAgain) {
  NetworkOptions options = transactions(Strategy::Bsp, 6, 512);
  options.transactions = 300;
  const auto whole = run(machine(), options);
  options.lost_ack_one_in = 4;
  const auto lossy = run(machine(), options);
  ASSERT_TRUE(whole.ok() && lossy.ok());
  EXPECT_EQ(whole->aborted, 0U);
  EXPECT_EQ(whole->epochs, 1800U);
  EXPECT_EQ(lossy->transactions, 300U);
  EXPECT_NEAR(static_cast<double>(lossy->aborted), 100, 40);  // one in four, and of those again
  EXPECT_EQ(lossy->epochs, 6 * (300 + lossy->aborted));
  EXPECT_GT(lossy->elapsed, whole->elapsed + lossy->aborted * options.ack_timeout);
}

TEST(Network, ATransactionThatNeverGetsItsAckEndsTheRun) {
  NetworkOptions options = transactions(Strategy::Bsp, 6, 512);
  options.lost_ack_one_in = 1;
  const auto lost = run(machine(), options);
  ASSERT_FALSE(lost.ok());
  EXPECT_EQ(lost.code(), ErrorCode::InvalidArgument);
  EXPECT_NE(lost.error().message.find("aborted 1001 times in a row"), std::string::npos);
  // Receive: a timeout below a round trip.
  options.lost_ack_one_in = 1'000'000'000;
  options.ack_timeout = picoseconds(100);
  const auto late = run(machine(), options);
  ASSERT_FALSE(late.ok());
  EXPECT_NE(late.error().message.find("after the 0.100 us"), std::string::npos)
      << late.error().message;
}

TEST(Network, RepeatsItselfBySeed) {
  NetworkOptions options = transactions(Strategy::Bsp, 6, 512);
  options.clients = 3;
  options.transactions = 200;
  options.shape.writes_per_mille = 500;
  const auto once = run(machine(), options);
  const auto again = run(machine(), options);
  options.seed = 99;
  const auto other = run(machine(), options);
  EXPECT_EQ(once->elapsed, again->elapsed);
  EXPECT_EQ(once->events, again->events);
  EXPECT_NE(once->writing, other->writing);
}

// --- negative controls -------------------------------------------------------------------------

TEST(NetworkLaw, RefusesAnAckOfWhatIsNotPersisted) {
  const auto result = run(machine(), transactions(Strategy::TransportAck, 6, 512));
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.code(), ErrorCode::ProtocolError);
  EXPECT_NE(result.error().message.find("acknowledged"), std::string::npos);
}

/// Persists two epochs of a connection the wrong way round, or never anything.
class BrokenMemory final : public RemoteMemory {
 public:
  explicit BrokenMemory(bool forgets) : forgets_(forgets) {}
  void arrive(const RemoteEpoch& epoch, Time now) override {
    epochs_.push_front(epoch);
    if (epochs_.size() == 2 && !forgets_) due_ = now + 1000;
  }
  Time next() const override { return due_; }
  void step(Time, std::vector<RemoteEpoch>& persisted) override {
    persisted.insert(persisted.end(), epochs_.begin(), epochs_.end());
    epochs_.clear();
    due_ = kTimeNever;
  }

 private:
  const bool forgets_;
  std::deque<RemoteEpoch> epochs_;
  Time due_ = kTimeNever;
};

TEST(NetworkLaw, RefusesAMemoryThatPersistsALaterEpochFirst) {
  BrokenMemory memory(false);
  const auto result = run_network(machine(), transactions(Strategy::Bsp, 2, 512), memory);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.code(), ErrorCode::ProtocolError);
  EXPECT_NE(result.error().message.find("epoch 1 of connection 0 persisted"), std::string::npos);
}

TEST(NetworkRun, WhetherAnythingIsWrittenIsKnownBefore) {
  for (std::uint64_t count = 1; count < 100; ++count) {
    for (const std::uint32_t clients : {1U, 3U, 4U}) {
      NetworkOptions options = transactions(Strategy::Sync, 2, 64);
      options.shape.writes_per_mille = 30;
      options.clients = clients;
      options.transactions = count;
      FixedMemory memory(clients, 1000);
      const auto result = run_network(machine(), options, memory);
      ASSERT_TRUE(result.ok()) << result.error().message;
      EXPECT_EQ(writes_anything(options), result->writing > 0) << count << " of " << clients;
    }
  }
}

TEST(NetworkLaw, ADeadlockIsTold) {
  BrokenMemory memory(true);
  const auto result = run_network(machine(), transactions(Strategy::Bsp, 2, 512), memory);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.code(), ErrorCode::InvalidArgument);
  EXPECT_NE(result.error().message.find("deadlock"), std::string::npos);
}

}  // namespace
}  // namespace perdure::sim
