// The replicated log on the emulated fabric, with machines losing power at random instants, the
// writer among them. What is read back is always a prefix of what was appended, and holds every
// record that was committed.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "core/random.h"
#include "log/replicated_log.h"
#include "testing/soak.h"
#include "testing/world_server.h"

namespace perdure {
namespace {

constexpr std::uint64_t kPoolBytes = 256 * 1024;
const std::string kPool = "log";

/// The world's clock, with an hour added at one look in a thousand.
class JumpingClock final : public Clock {
 public:
  explicit JumpingClock(const Clock& clock) : clock_(clock) {}
  Nanoseconds now() const override {
    if (jumps && ++looks_ % 1000 == 0) ahead_ += std::chrono::hours(1);
    return clock_.now() + ahead_;
  }
  bool jumps = false;

 private:
  const Clock& clock_;
  mutable std::uint64_t looks_ = 0;
  mutable Nanoseconds ahead_{0};
};

struct LogSetup {
  ServerProfile profile;
  LogShape shape = LogShape::Singleton;
  std::size_t replicas = 3;
  std::size_t quorum = 2;
};

class Cluster {
 public:
  Cluster(const LogSetup& setup, std::uint64_t seed)
      : setup_(setup), random_(seed), prng_(seed + 1), world_(random_) {
    client_ = &world_.add_machine("client", setup.profile);
    for (std::size_t index = 0; index < setup.replicas; ++index) {
      auto server = test::WorldServer::start(world_, fmt::format("server{}", index), setup.profile,
                                             {kPool, kPoolBytes, {32, 2048}});
      EXPECT_TRUE(server.ok()) << server.error().message;
      servers_.push_back(std::move(server).value());
    }
  }

  Result<void> open_log() {
    log_.reset();
    std::vector<std::unique_ptr<client::Peer>> peers;
    for (auto& server : servers_) peers.push_back(server->peer(*client_));
    log::WriterOptions options;
    options.pool = kPool;
    options.quorum = setup_.quorum;
    options.shape = setup_.shape;
    options.record_bytes_max = 8000;
    options.writer = prng_.next() | 1;
    options.take_over = true;
    options.batches_in_flight = 1 + prng_.below(4);
    options.measure_costs = prng_.chance(1, 2);
    options.replica_timeout = std::chrono::milliseconds(50);
    auto log = log::ReplicatedLog::open(std::move(peers), options, clock_);
    if (!log.ok()) return log.error();
    log_ = std::move(log).value();
    return {};
  }

  /// The power of one server fails after so many events, in the middle of whatever is done then.
  void arm_cut(std::size_t victim, std::uint64_t events) {
    world_.after(events, [this, victim] {
      if (!servers_[victim]->machine().powered()) return;
      ++cuts_;
      cuts_in_flight_ += in_call_ || committed_ < appended_.size() ? 1 : 0;
      servers_[victim]->machine().power_cut();
    });
  }
  std::uint64_t cuts() const { return cuts_; }
  /// Those that came while something was not acknowledged.
  std::uint64_t cuts_in_flight() const { return cuts_in_flight_; }
  /// From now on records count as committed that nobody has waited for: what is checked is wrong.
  void acknowledge_too_early() { too_early_ = true; }

  /// Appends until `count` are in or the log gives up; remembers what was committed.
  void append_some(std::uint64_t count) {
    in_call_ = true;
    for (std::uint64_t done = 0; done < count; ++done) {
      if (!append_one()) break;
    }
    in_call_ = false;
  }

  /// The same, each of them waited for.
  void append_until_committed(std::uint64_t count) {
    for (const std::uint64_t end = committed_ + count; committed_ < end;) {
      append_some(1);
      ASSERT_TRUE(log_->wait(last_, Level::Committed, std::chrono::seconds(1)).ok());
      committed_ = appended_.size();
    }
  }

  void crash_writer() { log_.reset(); }
  std::unique_ptr<log::ReplicatedLog> release_log() { return std::move(log_); }
  void restart_all() {
    world_.cancel_after();
    for (auto& server : servers_) {
      const auto started = server->start_again();
      ASSERT_TRUE(started.ok()) << started.error().message;
    }
  }

  /// What recovery found must be a prefix that holds all that was committed; the model then goes
  /// on from there.
  void check_recovered() { ASSERT_EQ(what_recovery_broke(), ""); }

  /// The promise that what recovery found has broken; empty if it has kept all.
  std::string what_recovery_broke() {
    std::vector<std::string> kept;
    std::uint64_t first = 0;
    for (std::size_t index = 0; index < servers_.size(); ++index) {
      const auto peer = servers_[index]->peer(*client_);
      auto bytes = client::RemoteBytes::open(*peer, kPool, std::chrono::seconds(1), world_.clock());
      if (!bytes.ok()) return bytes.error().message;
      std::vector<std::string> read;
      const auto report = log::scan_log(**bytes, [&](const log::RecordView& record) {
        if (record.header.type != log::RecordType::Data) return;
        if (read.empty()) first = record.header.index;
        read.emplace_back(reinterpret_cast<const char*>(record.payload.data()),
                          record.payload.size());
      });
      if (!report.ok()) return report.error().message;
      if (index == 0) kept = read;
      if (read.empty()) first = report->next_index;
      if (read != kept) return fmt::format("replica {} differs from the first", index);
    }
    if (first < trimmed_) return "trimmed records are back";
    const std::uint64_t found = first + kept.size();
    if (found < committed_) return "a committed record is lost";
    if (found > appended_.size()) return "there is more than was appended";
    for (std::uint64_t index = first; index < found; ++index) {
      if (kept[index - first] != appended_[index]) return fmt::format("record {} differs", index);
    }
    appended_.resize(found);
    committed_ = found;
    return "";
  }

  void let_clock_jump() { clock_.jumps = true; }
  fabric::emu::World& world() { return world_; }
  Random& prng() { return prng_; }
  test::WorldServer& server(std::size_t index) { return *servers_[index]; }
  log::ReplicatedLog& log() { return *log_; }
  std::uint64_t appended() const { return appended_.size(); }
  std::uint64_t committed() const { return committed_; }

 private:
  /// Whether the log takes more.
  bool append_one() {
    const std::string record = fmt::format(
        "{}:{}", appended_.size(), std::string(prng_.below(prng_.chance(1, 8) ? 6000 : 200), 'x'));
    const auto ticket = log_->append(std::as_bytes(std::span(record)));
    if (!ticket.ok()) {
      if (ticket.code() != ErrorCode::LogFull) return false;
      const LogStatus before = log_->status();
      if (!log_->trim(before.committed).ok()) return false;
      // What is committed up to the tail is gone; its index is what goes on.
      if (before.committed == before.tail) trimmed_ = before.next_index;
      return true;
    }
    EXPECT_EQ(ticket->index, appended_.size());
    appended_.push_back(record);
    last_ = *ticket;
    if (too_early_) committed_ = appended_.size();
    const bool wait = prng_.chance(1, 4);
    if (wait && !log_->wait(*ticket, Level::Committed, std::chrono::milliseconds(100)).ok()) {
      return false;
    }
    if (wait) committed_ = appended_.size();
    return true;
  }

  const LogSetup setup_;
  Random random_;
  Random prng_;
  fabric::emu::World world_;
  JumpingClock clock_{world_.clock()};
  fabric::emu::Machine* client_ = nullptr;
  std::vector<std::unique_ptr<test::WorldServer>> servers_;
  std::unique_ptr<log::ReplicatedLog> log_;
  std::vector<std::string> appended_;
  std::uint64_t committed_ = 0;
  std::uint64_t trimmed_ = 0;
  Ticket last_;
  bool in_call_ = false;
  bool too_early_ = false;
  std::uint64_t cuts_ = 0;
  std::uint64_t cuts_in_flight_ = 0;
};

std::vector<LogSetup> setups() {
  std::vector<LogSetup> all;
  for (const auto shape : {LogShape::Singleton, LogShape::Compound}) {
    for (const auto domain : {PersistenceDomain::Page, PersistenceDomain::Dmp,
                              PersistenceDomain::Mhp, PersistenceDomain::Wsp}) {
      for (const auto ddio : {Ddio::On, Ddio::Off}) {
        for (const auto buffers : {ReceiveBuffers::Dram, ReceiveBuffers::Pm}) {
          for (const auto transport : {Transport::InfiniBand, Transport::Tcp}) {
            LogSetup setup;
            setup.profile.domain = domain;
            setup.profile.ddio = ddio;
            setup.profile.receive_buffers = buffers;
            setup.profile.transport = transport;
            setup.profile.capabilities.native_flush = ddio == Ddio::Off;
            setup.profile.capabilities.atomic_write = true;
            setup.shape = shape;
            all.push_back(setup);
            const bool cached = domain == PersistenceDomain::Dmp && ddio == Ddio::On;
            if (!cached || transport != Transport::InfiniBand) continue;
            setup.profile.capabilities.native_flush = true;
            setup.profile.capabilities.persistent_flush = true;
            all.push_back(setup);
          }
        }
      }
    }
  }
  return all;
}

std::string name_of(const LogSetup& setup) {
  return fmt::format("{}, {}", describe(setup.profile),
                     setup.shape == LogShape::Compound ? "compound" : "singleton");
}

/// Goes on beyond the usual number as long as no cut has met an unacknowledged record.
bool another(std::uint64_t round, std::uint64_t cuts_in_flight) {
  return round < test::rounds(1, 200) || (cuts_in_flight == 0 && round < 10);
}

TEST(LogCrash, WithoutACrashEveryReplicaHoldsEverything) {
  for (const LogSetup& setup : setups()) {
    Cluster cluster(setup, 1);
    const auto opened = cluster.open_log();
    ASSERT_TRUE(opened.ok()) << name_of(setup) << ": " << opened.error().message;
    cluster.append_some(100);
    EXPECT_EQ(cluster.appended(), 100u) << name_of(setup);
    cluster.crash_writer();
    ASSERT_TRUE(cluster.open_log().ok());
    cluster.check_recovered();
    ASSERT_FALSE(HasFatalFailure()) << name_of(setup);
  }
}

/// Appends until one machine loses its power at a random instant, if it does; then all others do,
/// and the writer dies. Errors: those of opening the log anew.
Result<void> lose_all(Cluster& cluster, const LogSetup& setup) {
  const std::size_t victim = cluster.prng().below(setup.replicas);
  cluster.arm_cut(victim, 1 + cluster.prng().below(800));
  cluster.append_some(20 + cluster.prng().below(40));
  cluster.crash_writer();
  cluster.restart_all();
  return cluster.open_log();
}

// Everything loses power at once, at a random instant; the writer dies with it.
TEST(LogCrash, PowerLossOfAllMachinesLosesNothingCommitted) {
  std::uint64_t seed = 1;
  std::uint64_t cuts = 0;
  for (const LogSetup& setup : setups()) {
    std::uint64_t cuts_in_flight = 0;
    for (std::uint64_t round = 0; another(round, cuts_in_flight); ++round, ++seed) {
      Cluster cluster(setup, seed);
      ASSERT_TRUE(cluster.open_log().ok()) << name_of(setup);
      for (int life = 0; life < 3; ++life) {
        const auto opened = lose_all(cluster, setup);
        ASSERT_TRUE(opened.ok()) << name_of(setup) << ", seed " << seed << ": "
                                 << opened.error().message;
        cluster.check_recovered();
        ASSERT_FALSE(HasFatalFailure()) << name_of(setup) << ", seed " << seed;
      }
      cuts += cluster.cuts();
      cuts_in_flight += cluster.cuts_in_flight();
    }
    EXPECT_GT(cuts_in_flight, 0u) << name_of(setup) << ": no cut met an unacknowledged record";
  }
  RecordProperty("cuts", static_cast<int>(cuts));
}

// The test above can fail: where records count as committed that nobody has waited for, some of
// those that it then takes for committed are lost.
TEST(LogCrash, AWriterThatAcknowledgesTooEarlyIsCaught) {
  std::uint64_t lost = 0;
  std::uint64_t seed = 1;
  for (const LogSetup& setup : setups()) {
    Cluster cluster(setup, seed++);
    cluster.acknowledge_too_early();
    ASSERT_TRUE(cluster.open_log().ok()) << name_of(setup);
    ASSERT_TRUE(lose_all(cluster, setup).ok()) << name_of(setup);
    lost += cluster.what_recovery_broke() == "a committed record is lost" ? 1 : 0;
  }
  EXPECT_GT(lost, setups().size() / 4);
}

// So is a medium that forgets, on all machines at once, what it had promised to keep.
TEST(LogCrash, MediaThatGoBackAreNoticed) {
  for (const LogSetup& setup : setups()) {
    Cluster cluster(setup, 3);
    ASSERT_TRUE(cluster.open_log().ok()) << name_of(setup);
    cluster.append_until_committed(5);
    std::vector<std::vector<std::byte>> before;
    for (std::size_t index = 0; index < setup.replicas; ++index) {
      before.push_back(cluster.server(index).region().durable());
    }
    cluster.append_until_committed(5);
    cluster.crash_writer();
    for (std::size_t index = 0; index < setup.replicas; ++index) {
      ASSERT_TRUE(cluster.server(index).start_with(before[index]).ok()) << name_of(setup);
    }
    ASSERT_TRUE(cluster.open_log().ok()) << name_of(setup);
    EXPECT_EQ(cluster.what_recovery_broke(), "a committed record is lost") << name_of(setup);
  }
}

// One machine fails and comes back while the writer goes on; repair makes it equal again.
TEST(LogCrash, OneReplicaFailsTheLogGoesOnAndRepairBringsItBack) {
  std::uint64_t seed = 1000;
  for (const LogSetup& setup : setups()) {
    std::uint64_t cuts_in_flight = 0;
    for (std::uint64_t round = 0; another(round, cuts_in_flight); ++round, ++seed) {
      Cluster cluster(setup, seed);
      ASSERT_TRUE(cluster.open_log().ok());
      const std::size_t victim = cluster.prng().below(setup.replicas);
      cluster.arm_cut(victim, 1 + cluster.prng().below(700));
      cluster.append_some(60);
      EXPECT_EQ(cluster.appended(), 60u) << name_of(setup) << ", seed " << seed;
      cluster.world().cancel_after();
      cuts_in_flight += cluster.cuts_in_flight();
      ASSERT_TRUE(cluster.server(victim).start_again().ok());
      (void)cluster.log().poll();
      for (const RepairReport& report : cluster.log().repair()) {
        ASSERT_TRUE(report.repaired) << name_of(setup) << ", seed " << seed << ": " << report.error;
      }
      cluster.append_some(20);
      cluster.crash_writer();
      ASSERT_TRUE(cluster.open_log().ok());
      cluster.check_recovered();
      ASSERT_FALSE(HasFatalFailure()) << name_of(setup) << ", seed " << seed;
    }
    EXPECT_GT(cuts_in_flight, 0u) << name_of(setup) << ": no cut met an unacknowledged record";
  }
}

// The quorum is lost, and comes back; what was committed before is there, and the log goes on.
TEST(LogCrash, AQuorumLostAndRegained) {
  std::uint64_t seed = 5000;
  for (const LogSetup& setup : setups()) {
    Cluster cluster(setup, ++seed);
    ASSERT_TRUE(cluster.open_log().ok());
    cluster.append_some(20);
    cluster.server(0).machine().power_cut();
    cluster.server(1).machine().power_cut();
    // Expect: an error that says so, not a hang.
    const std::uint64_t before = cluster.appended();
    cluster.append_some(50);
    EXPECT_EQ(cluster.log().poll().code(), ErrorCode::QuorumLost) << name_of(setup);
    EXPECT_LT(cluster.appended(), before + 50);
    ASSERT_TRUE(cluster.server(0).start_again().ok());
    ASSERT_TRUE(cluster.server(1).start_again().ok());
    for (const RepairReport& report : cluster.log().repair()) {
      ASSERT_TRUE(report.repaired) << name_of(setup) << ", seed " << seed << ": " << report.error;
    }
    const std::uint64_t regained = cluster.appended();
    cluster.append_some(20);
    EXPECT_EQ(cluster.appended(), regained + 20) << name_of(setup);
    cluster.crash_writer();
    ASSERT_TRUE(cluster.open_log().ok());
    cluster.check_recovered();
    ASSERT_FALSE(HasFatalFailure()) << name_of(setup);
  }
}

// A writer that is killed when the ring is full leaves room for the next one, which can trim.
TEST(LogCrash, AFullLogCanBeTakenOverAndTrimmed) {
  Cluster cluster({setups().front().profile}, 1);
  ASSERT_TRUE(cluster.open_log().ok());
  const std::vector<std::byte> record(1000, std::byte{7});
  auto ticket = cluster.log().append(record);
  for (std::uint64_t appended = 0; ticket.ok() && appended < kPoolBytes; ++appended) {
    const auto committed =
        cluster.log().wait(*ticket, Level::Committed, std::chrono::milliseconds(100));
    ASSERT_TRUE(committed.ok()) << committed.error().message;
    ticket = cluster.log().append(record);
  }
  ASSERT_EQ(ticket.code(), ErrorCode::LogFull);
  for (int writer = 0; writer < 5; ++writer) {
    cluster.crash_writer();
    const auto opened = cluster.open_log();
    ASSERT_TRUE(opened.ok()) << opened.error().message;
  }
  EXPECT_EQ(cluster.log().append(record).code(), ErrorCode::LogFull);
  ASSERT_TRUE(cluster.log().trim(cluster.log().status().committed).ok());
  EXPECT_TRUE(cluster.log().append(record).ok());
}

// The writer dies with batches on their way, and the machines do not. What its successor finds may
// only be visible; from then on it is the log, and must survive the next power failure.
TEST(LogCrash, WhatASuccessorFindsSurvivesTheNextPowerLoss) {
  std::uint64_t seed = 9000;
  for (LogSetup setup : setups()) {
    setup.replicas = 1;  // alone: no other replica can make up for a loss
    setup.quorum = 1;
    for (std::uint64_t round = 0; round < test::rounds(3, 200); ++round) {
      Cluster cluster(setup, ++seed);
      ASSERT_TRUE(cluster.open_log().ok()) << name_of(setup);
      cluster.append_some(1 + cluster.prng().below(30));
      cluster.crash_writer();
      ASSERT_TRUE(cluster.open_log().ok()) << name_of(setup) << ", seed " << seed;
      cluster.check_recovered();
      ASSERT_FALSE(HasFatalFailure()) << name_of(setup) << ", seed " << seed;
      cluster.crash_writer();
      cluster.restart_all();
      ASSERT_TRUE(cluster.open_log().ok()) << name_of(setup) << ", seed " << seed;
      cluster.check_recovered();
      ASSERT_FALSE(HasFatalFailure()) << name_of(setup) << ", seed " << seed;
    }
  }
}

// The clock jumps by an hour now and then, forward, as after a suspended machine; no replica is
// given up for that, and nothing is lost.
TEST(LogCrash, AClockThatJumpsMarksNoReplicaDown) {
  for (const LogSetup& setup : setups()) {
    Cluster cluster(setup, 31);
    cluster.let_clock_jump();
    ASSERT_TRUE(cluster.open_log().ok()) << name_of(setup);
    cluster.append_some(60);
    EXPECT_EQ(cluster.appended(), 60u) << name_of(setup);
    for (const ReplicaStatus& replica : cluster.log().status().replicas) {
      EXPECT_TRUE(replica.up) << name_of(setup) << ": " << replica.down_reason;
    }
    cluster.crash_writer();
    ASSERT_TRUE(cluster.open_log().ok());
    cluster.check_recovered();
    ASSERT_FALSE(HasFatalFailure()) << name_of(setup);
  }
}

// A second writer takes over; the first learns that it is fenced and commits nothing more.
TEST(LogCrash, AFencedWriterCommitsNothing) {
  for (const LogSetup& setup : setups()) {
    Cluster cluster(setup, 77);
    ASSERT_TRUE(cluster.open_log().ok());
    cluster.append_some(10);
    const std::unique_ptr<log::ReplicatedLog> stale = cluster.release_log();
    ASSERT_TRUE(cluster.open_log().ok());
    cluster.check_recovered();  // what the stale one had not sent yet is not there
    ASSERT_FALSE(HasFatalFailure()) << name_of(setup);
    const std::string record = "of the stale writer";
    const auto ticket = stale->append(std::as_bytes(std::span(record)));
    const auto waited = ticket.ok()
                            ? stale->wait(*ticket, Level::Committed, std::chrono::milliseconds(100))
                            : Result<void>(ticket.error());
    ASSERT_FALSE(waited.ok()) << name_of(setup);
    EXPECT_EQ(waited.code(), ErrorCode::Fenced) << name_of(setup) << waited.error().message;
    cluster.append_some(10);
    cluster.crash_writer();
    ASSERT_TRUE(cluster.open_log().ok());
    cluster.check_recovered();
    ASSERT_FALSE(HasFatalFailure()) << name_of(setup);
  }
}

}  // namespace
}  // namespace perdure
