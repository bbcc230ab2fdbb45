// Long records, changes of the replicas, trims, epochs and back-off of one log, where two of them
// meet and something fails meanwhile. docs/log-protocol.md.
#include "log/failover_reader.h"
#include "log_cluster.h"
#include "testing/relayed_peer.h"

namespace perdure {
namespace {

using std::chrono::milliseconds;

constexpr std::uint64_t kLongPool = log::kRingAt + (2 << 20);

/// Its replicas take messages only, so a long record goes in pieces.
struct LongRecords {
  explicit LongRecords(std::size_t servers, std::uint64_t pool_bytes = kLongPool)
      : cluster(servers, pool_bytes, PersistenceDomain::Page, Transport::InfiniBand) {}
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

// Staging is full, and the slowest replica needs several times as long as a silent one gets to take
// what the next record has to wait for. It answers one piece after another.
TEST(LogMeetings, AppendWaitsForRoomAsLongAsReplicasGetOn) {
  constexpr std::size_t kRecordBytes = 2 << 20;
  LongRecords world(3, log::kRingAt + (16 << 20));
  WriterOptions options = world.cluster.options();
  options.record_bytes_max = kRecordBytes;
  auto opened = world.cluster.open({0, 1, 2}, options);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  const Writer log = std::move(opened).value();
  world.cluster.slow_down(1, true);
  const Clock& clock = world.cluster.world().clock();
  Nanoseconds longest{0};
  const std::string record(kRecordBytes, 'x');
  for (int count = 0; count < 6; ++count) {
    const Nanoseconds before = clock.now();
    const auto ticket = log->append(std::as_bytes(std::span(record)));
    ASSERT_TRUE(ticket.ok()) << count << ": " << ticket.error().message;
    longest = std::max(longest, clock.now() - before);
  }
  EXPECT_GT(longest, 2 * options.replica_timeout) << "nobody had to wait: nothing is shown";
  world.expect_up(*log);
  // Expect: one that does not answer at all is not waited for any longer.
  world.cluster.cut_off(1, true);
  const auto ticket = log->append(std::as_bytes(std::span(record)));
  EXPECT_TRUE(ticket.ok()) << ticket.error().message;
  EXPECT_FALSE(log->status().replicas[1].up);
}

// What one of its records takes is longer than each call has time for.
TEST(LogMeetings, ALongRecordIsBroughtInShortCallsThatKeepTheirTime) {
  LongRecords world(3);
  Writer log = world.open();
  ASSERT_NE(log, nullptr);
  Cluster::append(*log, 2);
  Cluster::settle(*log);
  world.cluster.stop(2);
  for (int count = 0; count < 4; ++count) {
    ASSERT_TRUE(LongRecords::begin(*log));
    Cluster::settle(*log);
  }
  world.cluster.start(2);
  world.cluster.slow_down(2, true);
  const Clock& clock = world.cluster.world().clock();
  const auto up = [&] { return log->status().replicas[2].up; };
  constexpr Nanoseconds kCall = milliseconds(20);
  int calls = 0;
  for (; calls < 200 && !up(); ++calls) {
    const Nanoseconds before = clock.now();
    (void)log->repair(kCall);
    EXPECT_LT(clock.now() - before, 2 * kCall) << "call " << calls;
  }
  EXPECT_TRUE(up()) << log->status().replicas[2].down_reason;
  EXPECT_GT(calls, 4) << "a record fits into a call: nothing was shown";
  log.reset();
  EXPECT_EQ(world.records_on(2), 6u);
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

// A replica is replaced while a long record is in flight, and the power of another one, or
// of the newcomer, fails anywhere in it.
TEST(LogMeetings, AReplacementAroundALongRecordLosesNothingWhereverThePowerFails) {
  int replaced_whole = 0;
  int cut_short = 0;
  for (std::uint64_t round = 0; round < 18; ++round) {
    const std::size_t victim = round % 2 == 0 ? 3 : 0;
    const std::uint64_t events = std::uint64_t{20} << round / 2;
    LongRecords world(4);
    Cluster& cluster = world.cluster;
    Writer log = world.open();
    ASSERT_NE(log, nullptr);
    Cluster::append(*log, 3);
    const std::string second = log->status().replicas[1].pool_uuid;
    const auto ticket = LongRecords::begin(*log);
    ASSERT_TRUE(ticket);
    cluster.world().cut_after(cluster.server(victim).machine(), events);
    const auto replaced = log->replace_replica(second, cluster.peer(3));
    cluster.world().cancel_cut();
    ++(replaced.ok() ? replaced_whole : cut_short);
    const bool told = log->wait(*ticket, Level::Committed, std::chrono::seconds(1)).ok();
    const bool undecided = !replaced.ok() && replaced.code() == ErrorCode::OutcomeUnknown;
    const bool changed = log->configuration().generation == 2;
    EXPECT_TRUE(changed || !replaced.ok());
    log.reset();
    cluster.stop(victim);
    cluster.start(victim);
    WriterOptions options = cluster.options();
    options.record_bytes_max = 64 * 1024;
    auto opened = cluster.open(changed ? Order{0, 2, 3} : Order{0, 1, 2}, options);
    if (!opened.ok() && undecided) opened = cluster.open({0, 2, 3}, options);
    if (!opened.ok() && undecided) opened = cluster.open({0, 1, 2, 3}, options);
    ASSERT_TRUE(opened.ok()) << events << ": " << opened.error().message;
    log = std::move(opened).value();
    EXPECT_GE(log->status().next_index, told ? 4u : 3u) << "it was acknowledged";
    (void)log->repair();
    Cluster::append(*log, 1);
    Cluster::settle(*log);
    const std::uint64_t records = log->status().next_index;
    const bool with_new = log->configuration().generation == 2;
    for (const std::size_t index : with_new ? Order{0, 2, 3} : Order{0, 1, 2}) {
      EXPECT_EQ(world.records_on(index), records) << "replica " << index;
    }
    if (testing::Test::HasFailure()) FAIL() << victim << ", " << events;
  }
  EXPECT_GT(replaced_whole, 0);
  EXPECT_GT(cut_short, 0);
}

/// What the next calls of a reader return, until one returns nothing.
std::vector<std::string> read_on(log::CommittedReader& reader) {
  std::vector<std::string> records;
  while (true) {
    const auto record = reader.next();
    if (!record.ok() || !*record) return records;
    records.emplace_back(reinterpret_cast<const char*>((*record)->bytes.data()),
                         (*record)->bytes.size());
  }
}

// A reader holds back the last record of its replica. The next writer does not reach that one, and
// puts another in its place, or reaches it and says so; then it is a replica again. What was held
// back was never committed, and the reader goes on with what is there now.
TEST(LogMeetings, WhatIsHeldBackOnAReplicaThatIsReplacedIsNeverReturned) {
  for (const bool told : {false, true}) {
    Cluster cluster(4);
    Writer log = cluster.opened();
    ASSERT_NE(log, nullptr);
    Cluster::append(*log, 3);
    Cluster::settle(*log);
    const std::string third = log->status().replicas[2].pool_uuid;
    cluster.cut_off(0, true);
    cluster.cut_off(1, true);
    const std::string never = "never committed";
    const auto ticket = log->append(std::as_bytes(std::span(never)));
    ASSERT_TRUE(ticket.ok()) << ticket.error().message;
    ASSERT_TRUE(log->wait(*ticket, Level::Durable, std::chrono::seconds(1)).ok());
    log.reset();
    auto bytes = cluster.server(2).region().bytes().subspan(pmem::kPoolDataOffset, kPoolBytes);
    LocalBytes local(bytes);
    auto reader = log::CommittedReader::open(local, {Lsn{}, false, "it"});
    ASSERT_TRUE(reader.ok()) << reader.error().message;
    EXPECT_EQ(read_on(*reader).size(), 3u);
    ASSERT_TRUE(reader->holds_back()) << "nothing is shown";
    for (const std::size_t index : {0u, 1u}) cluster.cut_off(index, false);
    cluster.cut_off(2, true);
    log = cluster.opened();
    ASSERT_NE(log, nullptr);
    Cluster::append(*log, 1);
    if (told) {
      cluster.cut_off(2, false);
      Cluster::expect_repaired(log->repair(), 1);
    }
    const auto replaced = log->replace_replica(third, cluster.peer(3));
    ASSERT_TRUE(replaced.ok()) << replaced.error().message;
    cluster.cut_off(2, false);
    Cluster::append(*log, 2);
    Cluster::settle(*log);
    // Expect: it is left behind, or removed, and what it has of the log is committed by others.
    for (const std::string& record : read_on(*reader)) EXPECT_NE(record, never);
    log.reset();
    log = cluster.opened({0, 1, 3});
    ASSERT_NE(log, nullptr);
    const std::string one = log->status().replicas[1].pool_uuid;
    const auto again = log->replace_replica(one, cluster.peer(2));
    ASSERT_TRUE(again.ok()) << again.error().message;
    Cluster::append(*log, 2);
    Cluster::settle(*log);
    cluster.expect_all(0, 8, {0, 2, 3});
    const std::uint64_t before = reader->position().value;
    const std::vector<std::string> records = read_on(*reader);
    for (const std::string& record : records) EXPECT_NE(record, never);
    EXPECT_GE(reader->position().value, before);
    ASSERT_FALSE(records.empty()) << "the reader did not go on";
    EXPECT_EQ(records.back(), Cluster::text(7));
    if (testing::Test::HasFailure()) FAIL() << told;
  }
}

/// The control plane of one server, at which its power can fail behind a request.
class CutPeer final : public test::RelayedPeer {
 public:
  using RelayedPeer::RelayedPeer;
  Result<void> fence(const std::string& pool, Epoch epoch, Deadline d) override {
    auto fenced = RelayedPeer::fence(pool, epoch, d);
    ++fences;
    if (fences != cut_behind) return fenced;
    cut();
    return Error{ErrorCode::Disconnected, "no power"};
  }
  std::function<void()> cut;
  int cut_behind = 0;
  int fences = 0;
};

// The log has gone on by three steps of epochs while one of its replicas was away, and
// its power fails behind each step; then another pool takes its place, as many steps behind.
TEST(LogMeetings, AReplicaThatIsStepsBehindComesBackAndIsReplaced) {
  for (const int cut_behind : {1, 2, 0}) {
    for (const bool taken_over : {false, true}) {
      Cluster cluster(4);
      Writer log = cluster.opened();
      Cluster::append(*log, 3);
      Cluster::settle(*log);
      log.reset();
      cluster.stop(2);
      Deadline soon(cluster.world().clock(), std::chrono::seconds(1));
      for (const std::size_t index : {0u, 1u}) {
        for (std::uint32_t step = 1; step <= 3; ++step) {
          const Epoch to{step * kEpochStepMax};
          ASSERT_TRUE(cluster.peer(index)->fence(kPool, to, soon).ok());
        }
      }
      ASSERT_TRUE(cluster.peer(3)->fence(kPool, Epoch{5}, soon).ok());
      CutPeer* hooked = nullptr;
      const auto open = [&] {
        std::vector<std::unique_ptr<client::Peer>> peers;
        for (const std::size_t index : {0u, 1u, 2u}) {
          auto peer = std::make_unique<CutPeer>(cluster.peer(index));
          if (index == 2) hooked = peer.get();
          peers.push_back(std::move(peer));
        }
        return cluster.open(std::move(peers), cluster.options());
      };
      auto opened = open();
      ASSERT_TRUE(opened.ok()) << opened.error().message;
      log = std::move(opened).value();
      ASSERT_GT(log->status().epoch, Epoch{3 * kEpochStepMax});
      Cluster::append(*log, 3);
      cluster.start(2);
      hooked->cut = [&] { cluster.stop(2); };
      hooked->cut_behind = cut_behind;
      const auto first = log->repair();
      ASSERT_EQ(first.size(), 1u);
      EXPECT_EQ(first[0].repaired, cut_behind == 0) << first[0].error;
      EXPECT_EQ(hooked->fences, cut_behind == 0 ? 2 : cut_behind);
      if (cut_behind != 0) {
        cluster.start(2);
        const auto pool = cluster.peer(2)->describe(kPool, soon);
        ASSERT_TRUE(pool.ok());
        EXPECT_LT(pool->epoch, log->status().epoch);
        EXPECT_EQ(cluster.scan(2).next_index, 3u) << "nothing was written yet";
      }
      if (taken_over) {
        opened = open();  // the older one is still there
        ASSERT_TRUE(opened.ok()) << opened.error().message;
        const std::string record = "of the older one";
        const auto never = log->append(std::as_bytes(std::span(record)));
        EXPECT_FALSE(never.ok() &&
                     log->wait(*never, Level::Committed, std::chrono::seconds(1)).ok());
        log = std::move(opened).value();
      }
      (void)log->repair();
      Cluster::append(*log, 1);
      EXPECT_TRUE(log->status().replicas[2].up) << log->status().replicas[2].down_reason;
      const auto replaced =
          log->replace_replica(log->status().replicas[2].pool_uuid, cluster.peer(3));
      ASSERT_TRUE(replaced.ok()) << replaced.error().message;
      Cluster::append(*log, 1);
      Cluster::settle(*log);
      cluster.expect_all(0, 8, {0, 1, 3});
      if (testing::Test::HasFailure()) FAIL() << cut_behind << ", " << taken_over;
    }
  }
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

/// Two machines come back with each other's pools.
void swap_pools(Cluster& cluster, std::size_t one, std::size_t other) {
  cluster.stop(one);
  cluster.stop(other);
  const auto of_one = cluster.server(one).region().durable();
  const auto of_other = cluster.server(other).region().durable();
  ASSERT_TRUE(cluster.server(one).start_with(of_other).ok());
  ASSERT_TRUE(cluster.server(other).start_with(of_one).ok());
}

// What that pool acknowledges would count as kept by the pool that was at the address before, which
// is elsewhere and lacks it: whoever is then replaced by that label takes the record with him.
TEST(LogMeetings, AnAddressThatComesBackWithAnotherReplicasPoolDoesNotCount) {
  Cluster cluster;
  {
    Writer log = cluster.opened();
    ASSERT_NE(log, nullptr);
    Cluster::append(*log, 2);
    Cluster::settle(*log);
  }
  // This writer has never heard which pool 2 has.
  cluster.cut_off(2, true);
  Writer log = cluster.opened();
  ASSERT_NE(log, nullptr);
  Cluster::append(*log, 3);
  swap_pools(cluster, 1, 2);
  for (int round = 0; round < 20 && log->status().replicas[1].up; ++round) {
    (void)log->poll(milliseconds(50));
  }
  for (int round = 0; round < 3; ++round) {
    const auto reports = log->repair();
    ASSERT_EQ(reports.size(), 2u);
    EXPECT_FALSE(reports[0].repaired);
    EXPECT_NE(reports[0].error.find("that of another replica now"), std::string::npos)
        << reports[0].error;
    EXPECT_FALSE(reports[1].repaired);
  }
  const std::string text = Cluster::text(log->status().next_index);
  const auto ticket = log->append(std::as_bytes(std::span(text)));
  if (ticket.ok()) {
    EXPECT_FALSE(log->wait(*ticket, Level::Committed, milliseconds(100)).ok());
  }
  // With its own pool it counts, and so does the other.
  swap_pools(cluster, 1, 2);
  cluster.cut_off(2, false);
  Cluster::expect_repaired(log->repair(), 2);
  if (ticket.ok()) {
    EXPECT_TRUE(log->wait(*ticket, Level::Committed, std::chrono::seconds(1)).ok());
  }
  const std::uint64_t records = log->status().next_index;
  Cluster::settle(*log);
  cluster.expect_all(0, records);
}

// What a READ does not return yet passes; what the replica says that it had does not.
TEST(LogMeetings, WhoBeginsBehindDamageIsToldOfIt) {
  Cluster cluster;
  Writer log = cluster.opened();
  ASSERT_NE(log, nullptr);
  const auto tickets = Cluster::append(*log, 10);
  Cluster::settle(*log);
  log.reset();
  constexpr std::uint64_t kPlaceInHeader = 8;
  cluster.flip(0, log::kRingAt + tickets[3].lsn.value + kPlaceInHeader);
  const auto begin_at = [&](std::size_t index, Lsn from) {
    std::optional<ErrorCode> code;
    cluster.on_medium(index, [&](std::span<std::byte> bytes) {
      LocalBytes local(bytes);
      const auto reader = log::CommittedReader::open(local, {from, false, "it"});
      if (!reader.ok()) code = reader.code();
    });
    return code;
  };
  EXPECT_EQ(begin_at(0, tickets[7].lsn), ErrorCode::Corrupt);
  EXPECT_EQ(begin_at(0, tickets[3].lsn), std::nullopt) << "what is damaged is behind it";
  EXPECT_EQ(begin_at(1, tickets[7].lsn), std::nullopt);
  EXPECT_EQ(begin_at(1, Lsn{tickets[9].end.value + 4096}), ErrorCode::Busy);
}

TEST(LogMeetings, AReplicaThatLacksOnlyAChangeIsNotSaidToHaveAnotherHistory) {
  Cluster cluster(4);
  Writer log = cluster.opened();
  ASSERT_NE(log, nullptr);
  Cluster::append(*log, 3);
  Cluster::settle(*log);
  const std::string first = log->status().replicas[0].pool_uuid;
  cluster.stop(2);
  ASSERT_TRUE(log->replace_replica(first, cluster.peer(3)).ok());
  cluster.start(2);
  const auto reports = log->repair();
  Cluster::expect_repaired(reports, 1);
  EXPECT_EQ(reports.at(0).found,
            "a change of the replicas behind, or with other records at its end");
}

// The writer has left a long record on 0 alone, and the next one went on with 1 and 2.
TEST(LogMeetings, AReplicaThatWasLeftBehindIsNotSaidToHaveReplacedWhatWasRead) {
  Cluster cluster;
  WriterOptions options = cluster.options();
  options.shape = LogShape::Compound;
  auto first = cluster.open({0, 1, 2}, options);
  ASSERT_TRUE(first.ok()) << first.error().message;
  Writer log = std::move(first).value();
  Cluster::append(*log, 3);
  Cluster::settle(*log);
  cluster.stop(1);
  cluster.stop(2);
  const std::string never(2000, 'n');  // goes beyond what is committed then
  const auto ticket = log->append(std::as_bytes(std::span(never)));
  ASSERT_TRUE(ticket.ok() && log->wait(*ticket, Level::Durable, std::chrono::seconds(1)).ok());
  log.reset();
  cluster.stop(0);
  cluster.start(1);
  cluster.start(2);
  log = cluster.opened();
  ASSERT_NE(log, nullptr);
  Cluster::append(*log, 3);
  Cluster::settle(*log);
  log.reset();
  std::vector<std::unique_ptr<client::Peer>> peers;
  for (const std::size_t index : {1u, 0u}) peers.push_back(cluster.peer(index));
  auto reader = log::FailoverReader::open(std::move(peers), {kPool, {}, milliseconds(20)},
                                          cluster.world().clock());
  ASSERT_TRUE(reader.ok()) << reader.error().message;
  for (int read = 0; read < 6; ++read) {
    const auto record = reader->next();
    ASSERT_TRUE(record.ok() && *record) << read;
  }
  cluster.stop(1);
  cluster.start(0);
  std::string words;
  for (int looks = 0; looks < 20; ++looks) {
    cluster.world().pass(milliseconds(150));
    const auto record = reader->next();
    ASSERT_FALSE(record.ok() && *record);
    if (record.ok()) continue;
    EXPECT_NE(record.code(), ErrorCode::Fenced) << record.error().message;
    words += record.error().message + "\n";
  }
  EXPECT_EQ(words.find("replaced"), std::string::npos) << words;
  EXPECT_NE(words.find("was left behind in epoch"), std::string::npos) << "said: " << words;
  // With the one back that has everything, it is read on there.
  cluster.stop(0);
  cluster.start(1);
  cluster.start(2);
  log = cluster.opened({1, 2, 0});
  ASSERT_NE(log, nullptr);
  Cluster::append(*log, 1);
  Cluster::settle(*log);
  bool read = false;
  for (int looks = 0; looks < 20 && !read; ++looks) {
    cluster.world().pass(milliseconds(150));
    const auto record = reader->next();
    ASSERT_TRUE(record.ok()) << record.error().message;
    read = record->has_value();
  }
  EXPECT_TRUE(read);
}

}  // namespace
}  // namespace perdure
