// Peers of a region that are killed and started again while it is written: real daemons, over tcp.
#include <gtest/gtest.h>
#include <perdure/perdure.h>
#include <perdure/pool.h>
#include <perdure/region.h>

#include <filesystem>
#include <string>
#include <vector>

#include "core/bytes.h"
#include "core/clock.h"
#include "killed_peer.h"

namespace perdure::server {
namespace {

constexpr std::chrono::minutes kReturnWithin{1};
constexpr std::chrono::milliseconds kReturnStep{50};
/// A peer may be silent for longer than any test takes.
constexpr std::chrono::minutes kSilentLong{2};
constexpr std::uint64_t kReturnPoolBytes = 4 * 1024 * 1024;

class RegionReturn : public testing::Test {
 protected:
  void start(std::size_t peers) {
    for (std::size_t index = 0; index < peers; ++index) {
      peers_.push_back(std::make_unique<KilledPeer>());
      make_pool(index);
    }
  }
  void make_pool(std::size_t index) {
    const auto made =
        create_pool(peers_[index]->address(), {.name = "bytes", .bytes = kReturnPoolBytes});
    ASSERT_TRUE(made.ok()) << made.error().message;
  }

  Result<Region> open(std::size_t quorum, std::uint64_t staging_bytes,
                      std::chrono::milliseconds peer_timeout = RegionOptions{}.peer_timeout) {
    RegionOptions options;
    options.peer_timeout = peer_timeout;
    for (const auto& each : peers_) options.peers.push_back(each->address());
    options.pool = "bytes";
    options.quorum = quorum;
    options.transport = Transport::Tcp;
    options.measure_costs = false;
    options.staging_bytes = staging_bytes;
    options.reconnect = std::chrono::milliseconds(20);
    return Region::open(std::move(options));
  }

  Epoch pool_epoch(std::size_t index) {
    const auto pool = describe_pool(peers_[index]->address(), "bytes");
    EXPECT_TRUE(pool.ok()) << pool.error().message;
    return pool.ok() ? pool->epoch : Epoch{};
  }

  static void write(Region& region, std::uint64_t at, const std::string& text) {
    const auto ticket = region.write(at, std::as_bytes(std::span(text)));
    ASSERT_TRUE(ticket.ok()) << ticket.error().message;
    const auto done = region.wait(*ticket, Level::Committed, kReturnWithin);
    ASSERT_TRUE(done.ok()) << done.error().message;
  }
  static std::string read(Region& region, std::uint64_t at, std::size_t length,
                          std::size_t replica) {
    std::string text(length, '?');
    const auto done = region.read(at, std::as_writable_bytes(std::span(text)), replica);
    return done.ok() ? text : done.error().message;
  }

  static void await_everything(Region& region, std::size_t replica) {
    const Deadline patience = Deadline::after(kReturnWithin);
    for (;;) {
      (void)region.poll(kReturnStep);
      const auto status = region.status();
      const auto& each = status.replicas[replica];
      if (each.up && !each.catching_up && each.resolved == status.begun) return;
      ASSERT_FALSE(patience.passed()) << each.down_reason;
    }
  }

  std::vector<std::unique_ptr<KilledPeer>> peers_;
};

// The only peer dies with an update in flight. Expect: a wait runs out of time and says that it may
// still get there, and so it does when the peer is there again.
TEST_F(RegionReturn, AWaitOutlastsTheOnlyPeersDeath) {
  start(1);
  auto region = open(1, 1024 * 1024);
  ASSERT_TRUE(region.ok()) << region.error().message;
  write(*region, 0, "before");
  peers_[0]->stop();
  const std::string text = "behind";
  const auto ticket = region->write(100, std::as_bytes(std::span(text)));
  ASSERT_TRUE(ticket.ok()) << ticket.error().message;
  peers_[0]->kill();
  EXPECT_EQ(region->wait(*ticket, Level::Durable, kReturnStep).code(), ErrorCode::TimedOut);
  peers_[0]->start();
  const auto waited = region->wait(*ticket, Level::Durable, kReturnWithin);
  ASSERT_TRUE(waited.ok()) << waited.error().message;
  EXPECT_EQ(read(*region, 100, 6, 0), "behind");
  EXPECT_EQ(read(*region, 0, 6, 0), "before");
}

// One of three dies, and much more is written than can be staged. Expect: the others are not held
// up, and it has all of it when it is there again; then the same with a blank pool in its place.
TEST_F(RegionReturn, WhatIsNotStagedAnyMoreIsCopied) {
  start(3);
  auto region = open(2, 64 * 1024);
  ASSERT_TRUE(region.ok()) << region.error().message;
  for (const bool blank : {false, true}) {
    SCOPED_TRACE(blank ? "a blank pool" : "its own pool");
    peers_[2]->kill();
    const std::string text(16 * 1024, blank ? 'b' : 'a');
    for (std::uint64_t at = 0; at < 64; ++at) write(*region, at * text.size(), text);
    EXPECT_FALSE(region->status().replicas[2].up);
    if (blank) {
      for (const auto& file : std::filesystem::directory_iterator(peers_[2]->pools().path())) {
        std::filesystem::remove(file);
      }
    }
    peers_[2]->start();
    if (blank) make_pool(2);
    await_everything(*region, 2);
    for (std::uint64_t at = 0; at < 64; ++at) {
      ASSERT_EQ(read(*region, at * text.size(), text.size(), 2), text) << at;
    }
    EXPECT_TRUE(region->status().replicas[2].whole);
    EXPECT_FALSE(region->status().may_differ);
  }
}

// A peer is killed, and stands there again without doing anything. Expect: who writes and polls
// gets on with the others, however long it might wait; it comes back when it works again, and a
// region that is closed meanwhile does not wait for it.
TEST_F(RegionReturn, NobodyWaitsForAPeerThatIsSilent) {
  start(3);
  auto region = open(2, 1024 * 1024, kSilentLong);
  ASSERT_TRUE(region.ok()) << region.error().message;
  for (const bool goes_on : {true, false}) {
    peers_[2]->kill();
    const Deadline patience = Deadline::after(kReturnWithin);
    while (region->status().replicas[2].up && !patience.passed()) write(*region, 0, "gone");
    peers_[2]->start();
    peers_[2]->stop();
    for (std::uint64_t at = 0; at < 50; ++at) {
      write(*region, at, "here");
      ASSERT_TRUE(region->poll(kSilentLong).ok());
    }
    EXPECT_FALSE(patience.passed());
    EXPECT_FALSE(region->status().replicas[2].up);
    if (!goes_on) break;
    peers_[2]->go_on();
    await_everything(*region, 2);
    EXPECT_EQ(read(*region, 49, 4, 2), "here");
  }
  const Deadline patience = Deadline::after(kReturnWithin);
  const auto closed = region->close(std::chrono::seconds(15));
  EXPECT_TRUE(closed.ok()) << closed.error().message;
  region = Error{ErrorCode::NotFound, "closed"};
  EXPECT_FALSE(patience.passed());
  peers_[2]->go_on();
}

// In place of the pool of a peer that was killed is another one that was written in a later epoch.
// Expect: that says nothing of this region, which goes on when the pool is there again.
TEST_F(RegionReturn, AnotherPoolInItsPlaceFencesNobody) {
  start(2);
  auto region = open(2, 1024 * 1024);
  ASSERT_TRUE(region.ok()) << region.error().message;
  write(*region, 0, "here");
  peers_[1]->kill();
  const TestDirectory aside;
  const auto move_all = [](const std::string& from, const std::string& to) {
    for (const auto& file : std::filesystem::directory_iterator(from)) {
      std::filesystem::copy(file, to, std::filesystem::copy_options::recursive);
      std::filesystem::remove_all(file);
    }
  };
  move_all(peers_[1]->pools().path(), aside.path());
  peers_[1]->start();
  make_pool(1);
  RegionOptions other;
  other.peers = {peers_[1]->address()};
  other.pool = "bytes";
  other.transport = Transport::Tcp;
  other.measure_costs = false;
  for (int times = 0; times < 3; ++times) {
    auto opened = Region::open(other);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    ASSERT_GT(opened->status().epoch, Epoch{0});
    ASSERT_TRUE(opened->close().ok());
  }
  ASSERT_GT(pool_epoch(1), region->status().epoch);
  for (int times = 0; times < 3; ++times) {
    EXPECT_EQ(region->poll(std::chrono::milliseconds(500)).code(), ErrorCode::QuorumLost);
  }
  EXPECT_FALSE(region->status().replicas[1].up);
  peers_[1]->kill();
  for (const auto& file : std::filesystem::directory_iterator(peers_[1]->pools().path())) {
    std::filesystem::remove_all(file);
  }
  move_all(aside.path(), peers_[1]->pools().path());
  peers_[1]->start();
  await_everything(*region, 1);
  write(*region, 0, "back");
  EXPECT_EQ(read(*region, 0, 4, 1), "back");
}

TEST_F(RegionReturn, FromCItIsTheSame) {
  start(1);
  const std::string address = peers_[0]->address();
  const char* const peers[] = {address.c_str()};
  perdure_region_options options{};
  options.size = sizeof options;
  options.peers = peers;
  options.peer_count = 1;
  options.pool = "bytes";
  options.transport = "tcp";
  options.usual_costs = true;
  options.reconnect_ms = 20;
  perdure_region* region = nullptr;
  ASSERT_EQ(perdure_region_open(&options, &region), PERDURE_OK) << perdure_last_error();
  peers_[0]->kill();
  peers_[0]->start();
  const Deadline patience = Deadline::after(kReturnWithin);
  perdure_region_replica_status replica{};
  replica.size = sizeof replica;
  std::size_t count = 0;
  bool noticed = false;
  for (;;) {
    const auto polled = perdure_region_poll_within(region, 50);
    noticed = noticed || polled == PERDURE_QUORUM_LOST;
    ASSERT_EQ(perdure_region_get_replicas(region, &replica, 1, &count), PERDURE_OK);
    if (noticed && replica.up && !replica.catching_up) break;
    noticed = noticed || !replica.up || replica.catching_up;
    ASSERT_FALSE(patience.passed()) << replica.down_reason;
  }
  EXPECT_FALSE(replica.mixed);
  EXPECT_EQ(replica.missed_bytes, 0u);
  EXPECT_EQ(perdure_region_close(region, 60'000), PERDURE_OK) << perdure_last_error();
}

}  // namespace
}  // namespace perdure::server
