// A replica uses the methods that its connection's costs make cheapest, notices when those have
// changed, and loses nothing by exchanging methods.
#include "log/replica.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "core/random.h"
#include "pmem/pool_format.h"
#include "testing/world_server.h"

namespace perdure::log {
namespace {

constexpr std::uint64_t kPoolBytes = 256 * 1024;
constexpr std::uint64_t kRing = kPoolBytes - kRingAt;
constexpr std::uint64_t kRecord = 256;
constexpr Lsn kStart{kRecord};  // so that no record crosses the end of the ring
static_assert(kRing % kRecord == 0);
const std::string kPool = "log";

/// The world's time, a thousand times as slow: seconds pass without millions of events.
class SlowedClock final : public Clock {
 public:
  explicit SlowedClock(const Clock& clock) : clock_(clock) {}
  Nanoseconds now() const override { return 1000 * clock_.now(); }

 private:
  const Clock& clock_;
};

/// One responder that keeps time, and a replica that is written to record by record.
class ReplicaTest : public testing::Test {
 protected:
  void start(ServerProfile profile, bool measure, std::optional<Primary> primary = {}) {
    server_ = *test::WorldServer::start(world_, "server", profile,
                                        {kPool, kPoolBytes + (1u << 20), {32, 2048}});
    client_ = &world_.add_machine("client", profile);
    ReplicaOptions options;
    options.session.measure_costs = measure;
    options.session.primary = primary;
    options.session.probe_line = kProbeLineAt;
    options.session.timeout = std::chrono::hours(1);
    options.session.clock = &clock_;
    replica_.emplace(server_->peer(*client_), options);
    ASSERT_TRUE(replica_->open_session({kPool, true, Epoch{1}, 1, "test", false}).ok());
    const auto prepared = replica_->prepare(LogShape::Singleton, staging_);
    ASSERT_TRUE(prepared.ok()) << prepared.error().message;
    replica_->resume_at(kStart);
  }

  /// Appends one record and waits until it is durable.
  void append() {
    std::byte* to = staging_.reserve(kRecord);
    ASSERT_NE(to, nullptr);
    std::memset(to, static_cast<int>(tail_.value / kRecord % 251 + 1), kRecord);
    staging_.commit(tail_, kRecord, Lsn{tail_.value + kRecord});
    tail_.value += kRecord;
    for (int round = 0; round < 100'000 && replica_->durable_below() < tail_; ++round) {
      std::optional<Deadline> until;
      if (patience_) until.emplace(clock_, *patience_);
      replica_->pump(staging_, tail_, kRing, until);
      ASSERT_TRUE(replica_->up()) << replica_->down_reason()->message;
    }
    ASSERT_EQ(replica_->durable_below(), tail_);
    staging_.release(tail_);
  }

  void append(int count) {
    for (int done = 0; done < count && !HasFatalFailure(); ++done) append();
  }

  /// Whether every record that fits into the ring is there.
  bool all_there() const {
    const std::byte* ring = server_->region().bytes().data() + pmem::kPoolDataOffset + kRingAt;
    for (std::uint64_t lsn = kStart.value; lsn < tail_.value; ++lsn) {
      const std::uint64_t record = (lsn - kStart.value) / kRecord * kRecord + kStart.value;
      if (tail_.value - lsn > kRing) continue;
      if (ring[lsn % kRing] != static_cast<std::byte>(record / kRecord % 251 + 1)) return false;
    }
    return true;
  }

  static ServerProfile profile_of(ReceiveBuffers buffers = ReceiveBuffers::Dram) {
    ServerProfile profile;
    profile.domain = PersistenceDomain::Mhp;
    profile.ddio = Ddio::Off;
    profile.receive_buffers = buffers;
    profile.transport = Transport::InfiniBand;
    profile.capabilities.native_flush = true;
    return profile;
  }

  Random random_{23};
  fabric::emu::World world_{random_, {fabric::emu::World::Options::Order::InTime, 8}};
  SlowedClock clock_{world_.clock()};
  std::unique_ptr<test::WorldServer> server_;
  fabric::emu::Machine* client_ = nullptr;
  Staging staging_{64 * 1024};
  std::optional<Replica> replica_;
  std::optional<Nanoseconds> patience_;  // of who pumps
  Lsn tail_ = kStart;
};

TEST_F(ReplicaTest, MeasuresUnlessItIsToldNotTo) {
  start(profile_of(), true);
  EXPECT_TRUE(replica_->session().costs().measured);
  EXPECT_NE(replica_->session().costs(), plan::default_costs(Transport::InfiniBand));
  append(10);
  EXPECT_TRUE(all_there());
}

// Every probe is answered in time, and all of them together take longer than the call has.
TEST_F(ReplicaTest, TimingWhoComesBackEndsWithTheTimeOfTheCall) {
  start(profile_of(), true);
  const auto come_back = [this](std::optional<Nanoseconds> time, Nanoseconds& took) {
    const auto session = replica_->open_session({kPool, true, Epoch{1}, 1, "test", false});
    EXPECT_TRUE(session.ok()) << session.error().message;
    const Nanoseconds begun = clock_.now();
    if (time) replica_->session().set_deadline(Deadline(clock_, *time));
    const auto prepared = replica_->prepare(LogShape::Singleton, staging_);
    replica_->session().set_deadline(std::nullopt);
    took = clock_.now() - begun;
    return prepared;
  };
  Nanoseconds whole{0};
  ASSERT_TRUE(come_back(std::nullopt, whole).ok());
  Nanoseconds took{0};
  const auto hurried = come_back(whole / 4, took);
  ASSERT_FALSE(hurried.ok());
  EXPECT_EQ(hurried.code(), ErrorCode::TimedOut);
  EXPECT_LT(took, whole / 2);
  // Expect: with time it is what it was.
  ASSERT_TRUE(come_back(std::nullopt, took).ok());
  replica_->resume_at(kStart);
  append(10);
  EXPECT_TRUE(all_there());
}

TEST_F(ReplicaTest, UsesTheUsualCostsIfItDoesNotMeasure) {
  start(profile_of(), false);
  EXPECT_EQ(replica_->session().costs(), plan::default_costs(Transport::InfiniBand));
}

TEST_F(ReplicaTest, OtherCostsLeadToOtherMethodsWithoutLosingARecord) {
  start(profile_of(), false);
  plan::CostModel costs = plan::default_costs(Transport::InfiniBand);
  append(10);
  costs.read_round_trip_ns = 1e6;
  ASSERT_TRUE(replica_->session().plan_for(costs).ok());
  EXPECT_EQ(replica_->session().small_method().name, "send-copy-ack");
  append(10);
  costs.read_round_trip_ns = 100;
  ASSERT_TRUE(replica_->session().plan_for(costs).ok());
  EXPECT_EQ(replica_->session().small_method().name, "write-flush");
  append(10);
  EXPECT_TRUE(all_there());
}

// A message that is to be replayed may be copied late, over what a WRITE put there meanwhile: where
// SEND is forced, messages carry everything, large records in pieces; else none is replayed.
TEST_F(ReplicaTest, MessagesAreNotReplayedBesideWrites) {
  start(profile_of(ReceiveBuffers::Pm), false, Primary::Send);
  ASSERT_TRUE(replays(replica_->session().small_method()))
      << replica_->session().small_method().name;
  EXPECT_EQ(replica_->session().large_method(), replica_->session().small_method());
  const std::string before = replica_->session().small_method().name;
  plan::CostModel costs = plan::default_costs(Transport::InfiniBand);
  costs.read_round_trip_ns = 1e6;
  ASSERT_TRUE(replica_->session().plan_for(costs).ok());
  EXPECT_EQ(replica_->session().small_method().name, before) << "it is kept";
  append(10);
  EXPECT_TRUE(all_there());
}

TEST_F(ReplicaTest, WhereWritesAreUsedNothingIsReplayed) {
  start(profile_of(ReceiveBuffers::Pm), false);
  EXPECT_FALSE(replays(replica_->session().small_method()));
  append(10);
  EXPECT_TRUE(all_there());
}

// Receive: answers in much less time than the model expects, for long.
// Expect: once somebody has time for it the connection is measured again, other methods are used,
// and nothing is lost.
TEST_F(ReplicaTest, DriftLeadsToAnotherMeasurement) {
  start(profile_of(), true);
  const std::string measured = replica_->session().small_method().name;
  plan::CostModel wrong = replica_->session().costs();
  const bool sends = replica_->session().small_method().primary == Primary::Send;
  wrong.message_round_trip_ns = sends ? 1e15 : 1e12;
  wrong.write_round_trip_ns = wrong.read_round_trip_ns = sends ? 1e12 : 1e15;
  ASSERT_TRUE(replica_->session().plan_for(wrong).ok());
  ASSERT_NE(replica_->session().small_method().name, measured);
  const Nanoseconds start = clock_.now();
  while (!replica_->session().drifted() && clock_.now() - start < std::chrono::minutes(5))
    append(1);
  EXPECT_TRUE(replica_->session().drifted());
  EXPECT_GE(clock_.now() - start, client::kMeasureEveryMin / 2);
  append(10);
  patience_ = client::kMeasureTakes / 2;
  append(10);
  EXPECT_TRUE(replica_->session().drifted()) << "nobody had the time";
  patience_ = std::chrono::seconds(1);
  append(1);
  EXPECT_FALSE(replica_->session().drifted());
  EXPECT_EQ(replica_->session().replans(), 1u);
  EXPECT_EQ(replica_->session().small_method().name, measured);
  append(100);
  EXPECT_TRUE(all_there());
  EXPECT_EQ(replica_->session().replans(), 1u);
}

// Expect: as long as nothing is written, the probe line is zeros, and so is the rest.
TEST_F(ReplicaTest, MeasuringWritesNothing) {
  start(profile_of(), true);
  const auto exported = server_->region().bytes().subspan(pmem::kPoolDataOffset, kPoolBytes);
  EXPECT_TRUE(std::all_of(exported.begin(), exported.end(),
                          [](std::byte each) { return each == std::byte{0}; }));
}

}  // namespace
}  // namespace perdure::log
