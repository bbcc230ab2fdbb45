// A perdured on an emulated machine: what was durable is there after a power cut, under the same
// address and in the same epoch.
#include <gtest/gtest.h>
#include <perdure/log.h>

#include <csignal>
#include <fstream>

#include "client/http_peer.h"
#include "daemon_process.h"
#include "data_plane.h"
#include "fabric/emu/live_device.h"

namespace perdure::server {
namespace {

constexpr const char* kConfig = R"(
[control]
listen = "127.0.0.1:0"
[data]
fabric = "emu"
[emulated]
seed = 3
)";

class EmulatedDaemon : public testing::Test {
 protected:
  EmulatedDaemon() {
    const std::string file = directory_.path() + "/emu.toml";
    std::ofstream(file) << kConfig;
    daemon_ = std::make_unique<DaemonProcess>(std::vector<std::string>{"--config", file});
    EXPECT_TRUE(daemon_->await()) << daemon_->wait().said;
    fabric::emu::LiveOptions options;
    options.profile.transport = Transport::InfiniBand;
    auto device = fabric::emu::LiveDevice::open(options);
    EXPECT_TRUE(device.ok());
    device_ = std::move(*device);
    peer_ = std::move(*client::HttpPeer::open(daemon_->address("control"), device_));
  }

  /// What the pool is once the daemon is there again.
  control::PoolDescription await_pool() {
    const Deadline deadline = soon();
    while (!deadline.passed()) {
      const auto pool = peer_->describe("a", soon());
      if (pool.ok()) return *pool;
    }
    ADD_FAILURE() << "the daemon did not come back";
    return {};
  }

  TestDirectory directory_;
  std::unique_ptr<DaemonProcess> daemon_;
  std::shared_ptr<fabric::Device> device_;
  std::unique_ptr<client::HttpPeer> peer_;
};

// Each peer has its own emulated device: connection, memory and device end in that order.
TEST_F(EmulatedDaemon, ALogOverItEndsWhileNothingIsLeft) {
  ASSERT_TRUE(peer_->create({"a", 1 << 20}, soon()).ok());
  LogOptions options;
  options.peers = {daemon_->address("control")};
  options.pool = "a";
  for (int round = 0; round < 2; ++round) {
    auto log = Log::open(options);
    ASSERT_TRUE(log.ok()) << log.error().message;
    const auto ticket = log->append(std::as_bytes(std::span("record", 6)));
    ASSERT_TRUE(ticket.ok());
    EXPECT_TRUE(log->wait(*ticket, Level::Committed, std::chrono::seconds(10)).ok());
  }
}

TEST_F(EmulatedDaemon, WhatWasDurableIsThereAfterAPowerCut) {
  EXPECT_TRUE(client::HttpPeer::probe(daemon_->address("control"), soon())->emulated);
  const auto created = peer_->create({"a", 64 * 1024}, soon());
  ASSERT_TRUE(created.ok()) << created.error().message;
  EXPECT_EQ(created->profile.domain, PersistenceDomain::Dmp);
  // One that is deleted stays away, and is no matter to the power.
  const auto other = peer_->create({"other", 64 * 1024}, soon());
  ASSERT_TRUE(other.ok()) << other.error().message;
  EXPECT_TRUE(peer_->delete_pool("other", other->uuid, soon()).ok());
  for (std::uint32_t epoch = 1; epoch <= 3; ++epoch) {
    auto session =
        peer_->open_session({"a", true, Epoch{epoch}, 10 + epoch, "tester", false}, soon());
    ASSERT_TRUE(session.ok()) << session.error().message;
    EXPECT_EQ(update(*session, *device_, 1, 64 * epoch), 0);

    EXPECT_EQ(daemon_->ask("POST", "/v1/power-cut").status, 202);
    fabric::Completion completion;
    const Deadline deadline = soon();
    while (session->endpoint->connected() && !deadline.passed()) {
      (void)session->endpoint->poll({&completion, 1});
    }
    EXPECT_FALSE(session->endpoint->connected());
    const control::PoolDescription pool = await_pool();
    EXPECT_EQ(pool.uuid, created->uuid);
    EXPECT_EQ(pool.epoch, Epoch{epoch});
    EXPECT_FALSE(pool.writer_present);
    EXPECT_EQ(peer_->describe("other", soon()).code(), ErrorCode::NotFound);

    auto reader = peer_->open_session({"a", false, {}, 0, "", false}, soon());
    ASSERT_TRUE(reader.ok()) << reader.error().message;
    std::vector<std::byte> bytes(64 * (epoch + 1));
    EXPECT_EQ(run(*reader, *device_, fabric::Opcode::Read, bytes), std::nullopt);
    for (std::uint32_t written = 1; written <= epoch; ++written) {
      EXPECT_EQ(bytes[64 * written], std::byte{5}) << written;
    }
  }
  daemon_->send(SIGTERM);
  const Ended ended = daemon_->wait();
  EXPECT_EQ(ended.status, 0) << ended.said;
}

}  // namespace
}  // namespace perdure::server
