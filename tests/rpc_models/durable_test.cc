// What a durable design's client knows to be durable survives the server's losing its power.
#include "fabric/emu/world.h"
#include "suite.h"
#include "testing/soak.h"

#include <gtest/gtest.h>

namespace perdure::rpc::models {

namespace {

constexpr std::size_t kWindow = 4;
constexpr std::size_t kPayloadBytes = 200;

/// Counts what it executes, now and then too busy to; flushes what is received.
class Counting final : public Handler {
 public:
  Counting(pmem::CrashableRegion& region, Random& random) : region_(region), random_(random) {}

  std::size_t handle(std::span<const std::byte>, std::span<std::byte>) override {
    ++executed_;
    return 0;
  }
  bool is_ready(std::uint64_t, std::span<const std::byte>) override {
    return random_.chance(1, 16);
  }
  bool persist(std::uint64_t, std::span<const std::byte> received) override {
    if (!random_.chance(1, 4)) return false;
    const auto at = static_cast<std::uint64_t>(received.data() - region_.bytes().data());
    (void)region_.flush(at, received.size());  // refused when the power is off
    return true;
  }
  std::uint64_t executed() const { return executed_; }

 private:
  pmem::CrashableRegion& region_;
  Random& random_;
  std::uint64_t executed_ = 0;
};

struct Crash {
  std::uint64_t durable = 0;   // calls that the client knew to be
  std::uint64_t executed = 0;  // before the power failed
  std::uint64_t kept = 0;      // durable ones, not executed, that are whole afterwards
  std::uint64_t missing() const { return durable > executed ? durable - executed - kept : 0; }
};

/// Calls until the power of the server fails at a random event.
Crash crash(const Design& design, std::uint64_t seed, Ddio ddio, const Confounders& confounders) {
  Random random(seed);
  fabric::emu::World world(random);
  ServerProfile profile;
  profile.domain = PersistenceDomain::Dmp;
  profile.transport = Transport::InfiniBand;
  profile.write_order = WriteOrder::Ordered;
  profile.ddio = ddio;
  profile.receive_buffers = ReceiveBuffers::Pm;
  profile.capabilities.send_flush = true;
  fabric::emu::Machine& near = world.add_machine("client", profile);
  fabric::emu::Machine& far = world.add_machine("server", profile);
  pmem::CrashableRegion& region = far.add_region(64 * 1024);
  auto ends = world.connect(near, far, kEndpointOptions);
  Counting handler(region, random);
  EndOptions options{&near, ends.first.get(), kWindow, kPayloadBytes, confounders};
  auto client = open_client(design, options);
  options.device = &far;
  options.endpoint = ends.second.get();
  options.memory = region.bytes();
  auto server = open_server(design, options, handler);
  EXPECT_TRUE(client.ok() && server.ok());
  EXPECT_TRUE((*server)->start((*client)->memory()).ok());
  EXPECT_TRUE((*client)->start((*server)->memory()).ok());
  world.cut_after(far, 50 + random.below(600));

  Crash found;
  std::vector<std::byte> reply;
  const std::vector<std::byte> request(kPayloadBytes, static_cast<std::byte>(seed));
  while (far.powered()) {
    (void)(*client)->begin(request);
    if (!(*client)->pump().ok()) break;
    (void)(*client)->take(reply);
    if (far.powered()) (void)(*server)->pump();
  }
  while ((*client)->is_durable(found.durable + 1) && found.durable < (*client)->begun()) {
    ++found.durable;
  }
  found.executed = handler.executed();
  server->reset();
  far.power_on();
  for (std::uint64_t call = found.executed + 1; call <= found.durable; ++call) {
    // Of all four, a window of places from the start of the memory on.
    const Slots places = frame_slots(0, kWindow, options);
    const auto bytes = region.bytes().subspan(places.offset(call), places.stride);
    if (find_frame(bytes, call)) ++found.kept;
  }
  return found;
}

/// Over many seeds: calls that were durable and are nowhere; and whether any survived unexecuted.
Crash crashes(const Design& design, Ddio ddio, const Confounders& confounders = {}) {
  Crash all;
  for (std::uint64_t seed = 1; seed <= test::rounds(150, 10'000); ++seed) {
    const Crash one = crash(design, seed, ddio, confounders);
    all.durable += one.missing() + one.kept;
    all.kept += one.kept;
  }
  return all;
}

class DurableRpcDesign : public ::testing::TestWithParam<const Design*> {
 protected:
  static const Design& design() { return *GetParam(); }
};

TEST_P(DurableRpcDesign, WhatIsDurableSurvivesPowerLoss) {
  const Crash all = crashes(design(), Ddio::Off);
  EXPECT_EQ(all.missing(), 0u);
  EXPECT_GT(all.kept, 20u);  // the power failed where only the log had them
}

TEST_P(DurableRpcDesign, DdioBreaksThoseWhoseReceiverDoesNotFlush) {
  // SFLUSH is the RNIC's own and brings bytes into the domain whatever DDIO is.
  EXPECT_EQ(crashes(design(), Ddio::On).missing() > 0, &design() == &kWflush);
}

TEST_P(DurableRpcDesign, AnAnswerBeforeTheFlushLosesCalls) {
  const bool is_receivers = &design() == &kWRflush || &design() == &kSRflush;
  EXPECT_EQ(crashes(design(), Ddio::Off, {.answers_before_flush = true}).missing() > 0,
            is_receivers);
}

INSTANTIATE_TEST_SUITE_P(Designs, DurableRpcDesign,
                         ::testing::Values(&kSflush, &kSRflush, &kWflush, &kWRflush), name_of);

/// Calls over a log whose places are used again at once, at a server that is slow.
TEST(WflushWithReusedPlaces, ASlowServerLosesDurableCalls) {
  Random random(1);
  fabric::emu::World world(random);
  ServerProfile profile;
  profile.domain = PersistenceDomain::Dmp;
  profile.transport = Transport::InfiniBand;
  profile.write_order = WriteOrder::Ordered;
  fabric::emu::Machine& near = world.add_machine("client", profile);
  fabric::emu::Machine& far = world.add_machine("server", profile);
  pmem::CrashableRegion& region = far.add_region(64 * 1024);
  auto ends = world.connect(near, far, kEndpointOptions);
  Counting handler(region, random);
  EndOptions options{&near, ends.first.get(), kWindow, kPayloadBytes, {.reuses_places = true}};
  auto client = open_client(kWflush, options);
  options.device = &far;
  options.endpoint = ends.second.get();
  auto server = open_server(kWflush, options, handler);
  ASSERT_TRUE(client.ok() && server.ok());
  ASSERT_TRUE((*server)->start((*client)->memory()).ok());
  ASSERT_TRUE((*client)->start((*server)->memory()).ok());
  std::vector<std::byte> reply;
  const std::vector<std::byte> request(kPayloadBytes, std::byte{1});
  std::uint64_t over = 0;
  for (int i = 0; i < 100'000 && over < 500; ++i) {
    (void)(*client)->begin(request);
    ASSERT_TRUE((*client)->pump().ok());
    const auto taken = (*client)->take(reply);
    ASSERT_TRUE(taken.ok());
    over += *taken ? 1 : 0;
    ASSERT_TRUE((*server)->pump().ok());
  }
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE((*server)->pump().ok());
  EXPECT_EQ(over, 500u);
  EXPECT_GT((*server)->lost(), 0u);
  EXPECT_EQ(handler.executed() + (*server)->lost(), (*client)->begun());
}

}  // namespace
}  // namespace perdure::rpc::models
