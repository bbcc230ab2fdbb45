// Ranges of a mirror that are flushed go together. And deep persists: they survive a power failure
// that flushes nothing, on every replica that is in sync, also on one that comes in sync meanwhile;
// a replica that can do no such thing says so and stays what it is.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "core/bytes.h"
#include "core/random.h"
#include "mirror/replicated_mirror.h"
#include "pmem/crashable_region.h"
#include "pmem/pool_format.h"
#include "testing/world_server.h"

namespace perdure::mirror {
namespace {

constexpr std::uint64_t kBytes = 64 * 1024;
constexpr std::chrono::seconds kPatience{10};

class MirrorUpdates : public testing::Test {
 protected:
  explicit MirrorUpdates(Transport transport = Transport::Tcp) {
    ServerProfile profile;
    profile.domain = PersistenceDomain::Dmp;
    profile.transport = transport;
    profile.ddio = Ddio::Off;
    profile.write_order = WriteOrder::Ordered;
    for (const char* name : {"one", "two"}) {
      servers_.push_back(*test::WorldServer::start(world_, name, profile, {"deep", 256 * 1024}));
    }
    client_ = &world_.add_machine("client", profile);
    MirrorOptions options;
    options.pool = "deep";
    options.quorum = 1;
    options.measure_costs = false;
    options.spin = std::chrono::microseconds(0);
    options.reconnect = std::chrono::milliseconds(1);
    std::vector<std::shared_ptr<client::Peer>> peers;
    for (const auto& server : servers_) peers.push_back(server->peer(*client_));
    auto opened = ReplicatedMirror::open(*local_, std::move(peers), options, world_.clock());
    EXPECT_TRUE(opened.ok()) << opened.error().message;
    mirror_ = std::move(*opened);
    come_in_sync();
  }

  void come_in_sync() {
    for (int rounds = 0; rounds < 100'000 && !mirror_->all_in_sync(); ++rounds) {
      mirror_->bring_back();
      if (!mirror_->progress()) world_.pass(std::chrono::milliseconds(1));
    }
    ASSERT_TRUE(mirror_->all_in_sync());
  }
  MirrorTicket begin() {
    local_->bytes()[100] = std::byte{7};
    const auto ticket = mirror_->begin_deep({100, 8});
    EXPECT_TRUE(ticket.ok()) << ticket.error().message;
    return *ticket;
  }
  /// What its medium has of the mirror after a power failure.
  static std::span<const std::byte> kept_by(test::WorldServer& server) {
    server.lose_power();
    return server.region().bytes().subspan(pmem::kPoolDataOffset + kDataAt, kBytes);
  }

  Random random_{1};
  fabric::emu::World world_{random_};
  std::vector<std::unique_ptr<test::WorldServer>> servers_;
  fabric::emu::Machine* client_ = nullptr;
  std::unique_ptr<pmem::CrashableRegion> local_ =
      *pmem::CrashableRegion::open({kBytes, PersistenceDomain::Dmp});
  std::unique_ptr<ReplicatedMirror> mirror_;
};

class MirrorOfWrites : public MirrorUpdates {
 protected:
  MirrorOfWrites() : MirrorUpdates(Transport::Roce) {}
  std::vector<std::uint64_t> messages() const {
    std::vector<std::uint64_t> each;
    for (const auto& server : servers_) {
      const auto report = server->service().report();
      EXPECT_TRUE(report.ok());
      each.push_back(report->pools.at(0).counters.messages);
    }
    return each;
  }
  static std::uint64_t durable_word(test::WorldServer& server) {
    const auto bytes = server.region().durable();
    return load<std::uint64_t>(bytes.data() + pmem::kPoolDataOffset + kDataAt + 128);
  }
};

// Where ranges are sent by RDMA WRITE, which promises no atomicity. Expect: a word does not, also
// on a replica that is lost with it in flight, and it is where it was stored.
TEST_F(MirrorOfWrites, AWordIsStoredByTheRespondersProcessor) {
  const auto before = messages();
  for (const auto& replica : mirror_->status().replicas) {
    EXPECT_EQ(replica.small_family, "ARRM") << replica.small_method;
  }
  local_->bytes()[64] = std::byte{5};
  ASSERT_TRUE(mirror_->wait(*mirror_->flush({64, 8}), kPatience).ok());
  EXPECT_EQ(messages(), before);
  const auto ticket = mirror_->store_word(128, 0x1122334455667788);
  ASSERT_TRUE(ticket.ok()) << ticket.error().message;
  ASSERT_TRUE(mirror_->wait(*ticket, kPatience).ok());
  for (std::size_t each = 0; each < servers_.size(); ++each) {
    EXPECT_EQ(messages()[each], before[each] + 1);
    EXPECT_EQ(durable_word(*servers_[each]), 0x1122334455667788U);
  }
  world_.cut_after(servers_[1]->machine(), 2);
  const auto waited = mirror_->wait(*mirror_->store_word(128, 42), kPatience);
  ASSERT_TRUE(waited.ok()) << waited.error().message;
  world_.cancel_cut();
  servers_[1]->lose_power();
  for (int rounds = 0; rounds < 100'000 && mirror_->all_in_sync(); ++rounds) {
    if (!mirror_->progress()) world_.pass(std::chrono::milliseconds(1));
  }
  ASSERT_FALSE(mirror_->all_in_sync());
  ASSERT_TRUE(servers_[1]->start_again().ok());
  come_in_sync();
  for (const auto& server : servers_) EXPECT_EQ(durable_word(*server), 42U);
}

TEST_F(MirrorUpdates, ShortRangesThatAreFlushedGoTogether) {
  std::vector<MirrorTicket> tickets;
  const auto flush = [&](std::uint64_t at, std::uint64_t length) {
    local_->bytes()[at] = std::byte{9};
    const auto ticket = mirror_->flush({at, length});
    EXPECT_TRUE(ticket.ok()) << ticket.error().message;
    tickets.push_back(*ticket);
    return ticket->number;
  };
  for (std::uint64_t range = 0; range < 8; ++range) EXPECT_EQ(flush(range * 256, 64), 1U);
  local_->bytes()[0] = std::byte{10};  // what they hold is taken when they go
  EXPECT_EQ(flush(16 * 1024, 9 * 1024), 2U) << "a large one goes alone, behind them";
  EXPECT_EQ(flush(32 * 1024, 7 * 1024), 3U);
  EXPECT_EQ(flush(40 * 1024, 7 * 1024), 3U);
  EXPECT_EQ(flush(48 * 1024, 7 * 1024), 4U) << "more than a message takes";
  EXPECT_EQ(mirror_->begun(), 4U);
  ASSERT_TRUE(mirror_->wait(tickets[0], kPatience).ok());
  ASSERT_TRUE(mirror_->wait(tickets.back(), kPatience).ok());
  EXPECT_EQ(mirror_->committed(), 4U);
  for (const auto& server : servers_) {
    const auto there = server->region().bytes().subspan(pmem::kPoolDataOffset + kDataAt, kBytes);
    EXPECT_EQ(there[256], std::byte{9});
    EXPECT_EQ(there[48 * 1024], std::byte{9});
    EXPECT_TRUE(std::ranges::equal(there, local_->bytes()));
  }
}

// The power fails where ADR does not do what it is to do. Expect: what was persisted is lost, what
// was persisted deep is there, here and on every replica.
TEST_F(MirrorUpdates, DeepSurvivesAPowerFailureThatFlushesNothing) {
  local_->break_flush_on_failure();
  for (const auto& server : servers_) server->region().break_flush_on_failure();
  const MirrorTicket ticket = begin();
  ASSERT_TRUE(mirror_->wait(ticket, kPatience).ok());
  EXPECT_TRUE(*mirror_->is_deep(ticket));
  local_->bytes()[200] = std::byte{8};
  const auto plain = mirror_->flush({200, 8});
  ASSERT_TRUE(mirror_->wait(*plain, kPatience).ok());
  EXPECT_FALSE(*mirror_->is_deep(*plain));
  local_->power_cut(random_);
  for (const auto kept : {std::span<const std::byte>(local_->bytes()), kept_by(*servers_[0]),
                          kept_by(*servers_[1])}) {
    EXPECT_EQ(kept[100], std::byte{7});
    EXPECT_EQ(kept[200], std::byte{0});
  }
}

// A replica was away when it was begun. Expect: it is not deep there once the replica is back,
// which has got the page in a copy; begun again it is.
TEST_F(MirrorUpdates, DeepIsNotClaimedOfAReplicaThatCameBackMeanwhile) {
  servers_[1]->lose_power();
  const MirrorTicket ticket = begin();
  ASSERT_TRUE(mirror_->wait(ticket, kPatience).ok());
  EXPECT_TRUE(*mirror_->is_deep(ticket));
  ASSERT_TRUE(servers_[1]->start_again().ok());
  come_in_sync();
  EXPECT_FALSE(*mirror_->is_deep(ticket));
  const MirrorTicket again = begin();
  ASSERT_TRUE(mirror_->wait(again, kPatience).ok());
  EXPECT_TRUE(*mirror_->is_deep(again));
  EXPECT_FALSE(*mirror_->is_deep(ticket)) << "nor because a later one is deep";
}

// Receive: power failures, until nobody is in sync. Expect: nothing is deep, also what was.
TEST_F(MirrorUpdates, DeepIsNotClaimedOfFewerThanTheQuorum) {
  const MirrorTicket ticket = begin();
  ASSERT_TRUE(mirror_->wait(ticket, kPatience).ok());
  EXPECT_TRUE(*mirror_->is_deep(ticket));
  for (const auto& server : servers_) server->lose_power();
  for (int rounds = 0; rounds < 100'000 && mirror_->status().in_sync > 0; ++rounds) {
    if (!mirror_->progress()) world_.pass(std::chrono::milliseconds(1));
  }
  ASSERT_EQ(mirror_->status().in_sync, 0U);
  EXPECT_FALSE(*mirror_->is_deep(ticket));
}

TEST_F(MirrorUpdates, DeepSaysWhichMediumHasNoSuchThingAndGoesOn) {
  servers_[0]->region().refuse_deep_flushes(true);
  const MirrorTicket ticket = begin();
  ASSERT_TRUE(mirror_->wait(ticket, kPatience).ok());
  EXPECT_EQ(mirror_->is_deep(ticket).code(), ErrorCode::Unsupported);
  EXPECT_TRUE(mirror_->all_in_sync());
}

// It is the local medium. Expect: what is said of it is said once the range is on the quorum.
TEST_F(MirrorUpdates, DeepThatTheLocalMediumRefusesIsPersistedAllTheSame) {
  const MirrorTicket deep = begin();
  ASSERT_TRUE(mirror_->wait(deep, kPatience).ok());
  for (const auto& server : servers_) server->lose_power();
  local_->refuse_deep_flushes(true);
  const MirrorTicket ticket = begin();
  EXPECT_EQ(mirror_->wait(ticket, std::chrono::milliseconds(10)).code(), ErrorCode::QuorumLost);
  for (const auto& server : servers_) ASSERT_TRUE(server->start_again().ok());
  come_in_sync();
  ASSERT_TRUE(mirror_->wait(ticket, kPatience).ok());
  EXPECT_EQ(mirror_->is_deep(ticket).code(), ErrorCode::Unsupported);
  // Receive: the next one, which the medium can do.
  local_->refuse_deep_flushes(false);
  const MirrorTicket again = begin();
  ASSERT_TRUE(mirror_->wait(again, kPatience).ok());
  EXPECT_TRUE(*mirror_->is_deep(again));
  for (const auto& server : servers_) EXPECT_EQ(kept_by(*server)[100], std::byte{7});
}

}  // namespace
}  // namespace perdure::mirror
