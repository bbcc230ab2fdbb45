// Long records, changes of the replicas, trims, epochs and back-off of one log, where two of them
// meet and something fails meanwhile. docs/log-protocol.md.
#include "log_cluster.h"
#include "testing/relayed_peer.h"

namespace perdure {
namespace {

using std::chrono::milliseconds;

constexpr std::uint64_t kLongPool = log::kRingAt + (2 << 20);

/// Its replicas take messages only, so a long record goes in pieces.
struct LongRecords {
  explicit LongRecords(std::size_t servers)
      : cluster(servers, kLongPool, PersistenceDomain::Page, Transport::InfiniBand) {}
  Writer open(const Order& order = {0, 1, 2}) {
    WriterOptions options = cluster.options();
    options.record_bytes_max = 64 * 1024;
    auto opened = cluster.open(order, options);
    EXPECT_TRUE(opened.ok()) << opened.error().message;
    return opened.ok() ? std::move(opened).value() : nullptr;
  }
  /// Some thirty messages.
  static std::string text(std::uint64_t index) { return fmt::format("{:0>60000}", index); }
  static std::optional<Ticket> begin(ReplicatedLog& log) {
    const std::string record = text(log.status().next_index);
    const auto ticket = log.append(std::as_bytes(std::span(record)));
    EXPECT_TRUE(ticket.ok()) << ticket.error().message;
    return ticket.ok() ? std::optional(*ticket) : std::nullopt;
  }
  /// How many records a replica has that are whole and in order.
  std::uint64_t records_on(std::size_t index) {
    std::vector<std::string> records;
    const log::ScanReport report = cluster.scan(index, &records);
    EXPECT_FALSE(report.damaged()) << "replica " << index;
    EXPECT_FALSE(report.start.state().marks.any()) << "replica " << index;
    return report.next_index;
  }
  void expect_up(const ReplicatedLog& log) {
    for (const ReplicaStatus& each : log.status().replicas) {
      EXPECT_TRUE(each.up) << each.peer << ": " << each.down_reason;
    }
  }

  Cluster cluster;
};

// What is in flight takes several times as long as a silent peer gets; each of them answers.
TEST(LogMeetings, LongRecordsOverASlowLinkCostNoReplicaItsPlace) {
  enum class What { Trim, Add, Repair };
  for (const What what : {What::Trim, What::Add, What::Repair}) {
    LongRecords world(4);
    Writer log = world.open();
    ASSERT_NE(log, nullptr);
    const auto first = Cluster::append(*log, 5);
    Cluster::settle(*log);
    if (what == What::Repair) world.cluster.stop(2);
    for (const std::size_t slow : {0u, 1u, 2u}) {
      if (what != What::Repair || slow != 2) world.cluster.slow_down(slow, true);
    }
    const Clock& clock = world.cluster.world().clock();
    const Nanoseconds before = clock.now();
    for (int count = 0; count < 10; ++count) ASSERT_TRUE(LongRecords::begin(*log));
    const Lsn tail = log->status().tail;
    if (what == What::Repair) {
      world.cluster.start(2);
      (void)log->repair();
    } else if (what == What::Trim) {
      const auto trimmed = log->trim(first[3].lsn);
      EXPECT_TRUE(trimmed.ok()) << trimmed.error().message;
    } else {
      const auto added = log->add_replica(world.cluster.peer(3), 0);
      EXPECT_TRUE(added.ok()) << added.error().message;
    }
    EXPECT_GT(clock.now() - before, 2 * world.cluster.options().replica_timeout)
        << "what is in flight is through before anybody could run out of patience";
    EXPECT_GE(log->status().committed, tail);
    world.expect_up(*log);
    if (testing::Test::HasFailure()) FAIL() << static_cast<int>(what);
  }
}

// Another writer comes when so much of a long record is out. It is there whole or not at all, and
// what the older writer still sends changes nothing.
TEST(LogMeetings, ATakeOverInTheMiddleOfALongRecordFindsAllOfItOrNothing) {
  int found = 0;
  int lost = 0;
  for (int looks = 0; looks < 120; looks += 17) {
    for (const bool cut : {false, true}) {
      LongRecords world(3);
      Writer older = world.open();
      ASSERT_NE(older, nullptr);
      Cluster::append(*older, 3);
      Cluster::settle(*older);
      const auto ticket = LongRecords::begin(*older);
      ASSERT_TRUE(ticket);
      for (int look = 0; look < looks; ++look) (void)older->poll();
      const bool told = older->reached(*ticket, Level::Committed);
      if (cut) {
        world.cluster.stop(1);
        world.cluster.start(1);
      }
      Writer newer = world.open();
      ASSERT_NE(newer, nullptr);
      const std::uint64_t next = newer->status().next_index;
      EXPECT_TRUE(next == 3 || next == 4) << next;
      EXPECT_TRUE(!told || next == 4) << "it was acknowledged";
      ++(next == 4 ? found : lost);
      for (int look = 0; look < 200; ++look) (void)older->poll();
      EXPECT_TRUE(next == 4 || !older->reached(*ticket, Level::Committed));
      ASSERT_TRUE(LongRecords::begin(*newer));
      Cluster::append(*newer, 2);
      for (int look = 0; look < 50; ++look) (void)older->poll();
      (void)newer->repair();
      Cluster::append(*newer, 1);
      Cluster::settle(*newer);
      for (const std::size_t index : {0u, 1u, 2u}) {
        EXPECT_EQ(world.records_on(index), next + 4) << "replica " << index;
      }
      if (testing::Test::HasFailure()) FAIL() << looks << ", " << cut;
    }
  }
  EXPECT_GT(found, 0);
  EXPECT_GT(lost, 0);
}

/// A peer that grants nobody to read.
class RefusingPeer final : public test::RelayedPeer {
 public:
  RefusingPeer(std::unique_ptr<client::Peer> real, const bool& refuses)
      : RelayedPeer(std::move(real)), refuses_(refuses) {}
  Result<client::Session> open_session(const control::SessionRequest& r, Deadline d) override {
    if (refuses_ && !r.write) return Error{ErrorCode::QueueFull, "it has too many sessions"};
    return RelayedPeer::open_session(r, d);
  }

 private:
  const bool& refuses_;
};

// A trim reached the first replica alone and was not answered. It comes back, and those that it is
// to be copied from let nobody read.
TEST(LogMeetings, ATrimWithoutAnswerIsNotMadeTrueBySourcesThatRefuse) {
  for (const std::size_t refusing : {1u, 2u}) {
    Cluster cluster;
    std::array<bool, 3> refuses{};
    std::vector<std::unique_ptr<client::Peer>> peers;
    for (std::size_t index = 0; index < 3; ++index) {
      peers.push_back(std::make_unique<RefusingPeer>(cluster.peer(index), refuses[index]));
    }
    auto opened = cluster.open(std::move(peers), cluster.options());
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    Writer log = std::move(opened).value();
    const auto tickets = Cluster::append(*log, 6);
    Cluster::settle(*log);
    cluster.cut_off(1, true);
    cluster.cut_off(2, true);
    EXPECT_EQ(log->trim(tickets[3].lsn).code(), ErrorCode::OutcomeUnknown);
    cluster.cut_off(1, false);
    cluster.cut_off(2, false);
    Cluster::expect_repaired(log->repair(), 2);
    ASSERT_EQ(log->status().head, tickets[0].lsn);
    cluster.stop(0);
    Cluster::append(*log, 3);
    cluster.start(0);
    ASSERT_EQ(cluster.scan(0).start.head, tickets[3].lsn);
    for (std::size_t index = 1; index <= refusing; ++index) refuses[index] = true;
    const auto reports = log->repair();
    ASSERT_EQ(reports.size(), 1u);
    EXPECT_EQ(reports[0].repaired, refusing == 1) << reports[0].error;
    if (refusing == 2) {
      EXPECT_NE(reports[0].error.find("too many sessions"), std::string::npos) << reports[0].error;
    }
    for (const std::size_t index : {1u, 2u}) {
      EXPECT_TRUE(log->status().replicas[index].up) << log->status().replicas[index].down_reason;
    }
    // Expect: where the writer says that the log begins, a quorum says it, too.
    const Lsn head = log->status().head;
    Cluster::append(*log, 1);
    Cluster::settle(*log);
    for (const std::size_t index : {1u, 2u}) EXPECT_EQ(cluster.scan(index).start.head, head);
    // Expect: what was trimmed stays so, whoever opens it next without the first one.
    cluster.stop(0);
    log.reset();
    log = cluster.opened();
    ASSERT_NE(log, nullptr);
    EXPECT_EQ(log->status().head, head);
    refuses = {};
    cluster.start(0);
    (void)log->repair();
    Cluster::append(*log, 1);
    Cluster::settle(*log);
    cluster.expect_all(3, 11);
    if (testing::Test::HasFailure()) FAIL() << refusing;
  }
}

// One replica is silent, and was put off for that; then another writer takes over. The older one
// hears of it although that one is still silent, and the newer one brings it back at once.
TEST(LogMeetings, WhoPutASilentReplicaOffHearsOfATakeOverAllTheSame) {
  for (const std::size_t silent : {0u, 1u, 2u}) {
    Cluster cluster;
    WriterOptions options = cluster.options();
    options.reconnect = milliseconds(1);
    auto opened = cluster.open({0, 1, 2}, options);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    Writer older = std::move(opened).value();
    Cluster::append(*older, 3);
    cluster.cut_off(silent, true);
    for (int count = 0; count < 20; ++count) {
      cluster.world().pass(milliseconds(5));
      (void)older->poll(milliseconds(50));
      Cluster::append(*older, 1);
    }
    ASSERT_FALSE(older->status().replicas[silent].up);
    const std::uint64_t records = older->status().next_index;
    opened = cluster.open({0, 1, 2}, options);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    Writer newer = std::move(opened).value();
    const std::string record = "of the older one";
    const auto ticket = older->append(std::as_bytes(std::span(record)));
    const auto waited = ticket.ok()
                            ? older->wait(*ticket, Level::Committed, std::chrono::seconds(2))
                            : Result<void>(ticket.error());
    EXPECT_EQ(waited.code(), ErrorCode::Fenced) << waited.error().message;
    Cluster::append(*newer, 2);
    cluster.cut_off(silent, false);
    for (int round = 0; round < 20 && !newer->status().replicas[silent].up; ++round) {
      cluster.world().pass(milliseconds(20));
      (void)newer->poll(milliseconds(50));
    }
    EXPECT_TRUE(newer->status().replicas[silent].up);
    for (int look = 0; look < 50; ++look) (void)older->poll(milliseconds(1));
    Cluster::append(*newer, 1);
    Cluster::settle(*newer);
    cluster.expect_all(0, records + 3);
    if (testing::Test::HasFailure()) FAIL() << silent;
  }
}

}  // namespace
}  // namespace perdure
