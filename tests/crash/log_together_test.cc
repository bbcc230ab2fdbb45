// Parts of the log's protocol that each have tests of their own, where they meet: accepted loss and
// a change of the replicas, the committed word and many batches in flight, deadlines and what they
// end. docs/log-protocol.md.
#include "log/failover_reader.h"
#include "log_cluster.h"

namespace perdure {
namespace {

using std::chrono::milliseconds;

TEST(LogTogether, WithoutAQuorumAppendWaitsOnce) {
  Cluster cluster;
  Writer log = cluster.opened();
  Cluster::append(*log, 3);
  cluster.cut_off(1, true);
  cluster.cut_off(2, true);
  const std::string record = "nobody takes it";
  const auto last = log->append(std::as_bytes(std::span(record)));
  ASSERT_TRUE(last.ok());
  ASSERT_FALSE(log->wait(*last, Level::Committed, std::chrono::seconds(1)).ok());
  const Clock& clock = cluster.world().clock();
  const auto lost = [&] {
    const Nanoseconds before = clock.now();
    EXPECT_EQ(log->append(std::as_bytes(std::span(record))).code(), ErrorCode::QuorumLost);
    return clock.now() - before;
  };
  (void)lost();
  for (int i = 0; i < 100; ++i) EXPECT_LT(lost(), milliseconds(1)) << i;
  EXPECT_EQ(log->trim(log->status().committed).code(), ErrorCode::QuorumLost);
  // Expect: a newer writer is not overlooked for ever, nor is a quorum that is back.
  cluster.cut_off(1, false);
  cluster.cut_off(2, false);
  Cluster::expect_repaired(log->repair(), 2);
  EXPECT_TRUE(log->append(std::as_bytes(std::span(record))).ok());
}

// Where a replica was there is another pool of that name, which has had more writers: of another
// log, say. Expect: nobody has taken over, and the log goes on when its quorum is back.
TEST(LogTogether, AnotherPoolWhereAReplicaWasHasTakenNothingOver) {
  Cluster cluster;
  Writer log = cluster.opened();
  Cluster::append(*log, 3);
  ASSERT_TRUE(cluster.server(2).start_with({}).ok());
  const Deadline soon(cluster.world().clock(), milliseconds(100));
  ASSERT_TRUE(cluster.peer(2)->fence(kPool, Epoch{100}, soon).ok());
  Cluster::append(*log, 1);
  cluster.cut_off(1, true);
  const std::string record = Cluster::text(4);
  const auto last = log->append(std::as_bytes(std::span(record)));
  ASSERT_TRUE(last.ok()) << last.error().message;
  const auto waited = log->wait(*last, Level::Committed, std::chrono::seconds(1));
  EXPECT_EQ(waited.code(), ErrorCode::QuorumLost) << waited.error().message;
  cluster.cut_off(1, false);
  for (const RepairReport& each : log->repair()) {
    EXPECT_EQ(each.repaired, each.peer == "server1") << each.peer << ": " << each.error;
  }
  Cluster::append(*log, 1);
  EXPECT_EQ(log->status().next_index, 6u);
}

// A replica is gone for good, and is removed by a writer that has never reached it. Expect: it is
// one no more, neither in the status nor for repair and close.
TEST(LogTogether, WhoWasNeverReachedAndIsRemovedIsNoReplica) {
  Cluster cluster;
  Writer log = cluster.opened();
  Cluster::append(*log, 3);
  Cluster::settle(*log);
  const std::string third = log->status().replicas[2].pool_uuid;
  log.reset();
  cluster.cut_off(2, true);
  log = cluster.opened();
  ASSERT_NE(log, nullptr);
  EXPECT_EQ(log->status().replicas.size(), 3u);
  ASSERT_TRUE(log->remove_replica(third, 0).ok());
  Cluster::append(*log, 1);
  EXPECT_EQ(log->status().replicas.size(), 2u);
  EXPECT_TRUE(log->repair().empty());
  const auto closed = log->close(milliseconds(200));
  EXPECT_TRUE(closed.ok()) << closed.error().message;
}

// One of its replicas is silent, whichever was named first: the others say who has taken over.
TEST(LogTogether, ASilentReplicaDoesNotHideWhoTookOver) {
  for (const std::size_t silent : {0u, 1u, 2u}) {
    Cluster cluster;
    Writer older = cluster.opened();
    Cluster::append(*older, 3);
    cluster.cut_off(silent, true);
    Cluster::append(*older, 1);
    for (int look = 0; look < 100 && older->status().replicas[silent].up; ++look) {
      cluster.world().pass(milliseconds(5));
      (void)older->poll();
    }
    ASSERT_FALSE(older->status().replicas[silent].up);
    Writer newer = cluster.opened();
    ASSERT_NE(newer, nullptr);
    const std::string record = "of the older one";
    std::optional<ErrorCode> code;
    const Clock& clock = cluster.world().clock();
    for (int round = 0; round < 3 && code != ErrorCode::Fenced; ++round) {
      const Nanoseconds before = clock.now();
      const auto ticket = older->append(std::as_bytes(std::span(record)));
      EXPECT_LT(clock.now() - before, milliseconds(1100));
      if (!ticket.ok()) code = ticket.code();
      cluster.world().pass(milliseconds(1100));
      (void)older->poll();
    }
    EXPECT_EQ(code, ErrorCode::Fenced) << silent;
  }
}

// A head that the writer's trim left on one replica alone comes back with that replica, and the
// writer trims the others to there; one of them does not answer while there is time for it.
TEST(LogTogether, ARepairThatTrimsKeepsItsDeadlineAndTheReplicas) {
  Cluster cluster;
  Writer log = cluster.opened();
  const auto tickets = Cluster::append(*log, 6);
  Cluster::settle(*log);
  cluster.cut_off(1, true);
  cluster.cut_off(2, true);
  EXPECT_FALSE(log->trim(tickets[3].lsn).ok());
  cluster.cut_off(1, false);
  cluster.cut_off(2, false);
  Cluster::expect_repaired(log->repair(), 2);
  cluster.stop(0);
  (void)log->poll();
  cluster.start(0);
  EXPECT_EQ(cluster.scan(0).start.head, tickets[3].lsn);
  EXPECT_EQ(log->status().head, tickets[0].lsn);
  ASSERT_FALSE(log->status().replicas[0].up);
  cluster.cut_off(1, true);
  const Clock& clock = cluster.world().clock();
  // Wherever in it the time runs out.
  for (int time = 2; time <= 40; time += 2) {
    const Nanoseconds before = clock.now();
    const auto hurried = log->repair(milliseconds(time));
    EXPECT_LT(clock.now() - before, milliseconds(time + 6));
    ASSERT_EQ(hurried.size(), 1u);
    EXPECT_FALSE(hurried[0].repaired);
    EXPECT_TRUE(log->status().replicas[1].up) << log->status().replicas[1].down_reason;
    EXPECT_EQ(log->status().head, tickets[0].lsn);
  }
  // Expect: with time it is what it should be, whatever was in flight.
  cluster.cut_off(1, false);
  Cluster::append(*log, 3);
  Cluster::expect_repaired(log->repair(), 1);
  EXPECT_EQ(log->status().head, tickets[3].lsn);
  Cluster::append(*log, 1);
  Cluster::settle(*log);
  cluster.expect_all(3, 10);
  log.reset();
  log = cluster.opened();
  cluster.expect_all(3, 10);
}

// A repair that finds a newer head has no time to bring it to all, and then the log is trimmed
// to a place before that.
TEST(LogTogether, AHeadThatOnlySomeHaveIsNotTakenBack) {
  Cluster cluster;
  Writer log = cluster.opened();
  const auto tickets = Cluster::append(*log, 6);
  Cluster::settle(*log);
  cluster.cut_off(1, true);
  cluster.cut_off(2, true);
  EXPECT_FALSE(log->trim(tickets[4].lsn).ok());
  cluster.cut_off(1, false);
  cluster.cut_off(2, false);
  Cluster::expect_repaired(log->repair(), 2);
  cluster.stop(0);
  (void)log->poll();
  cluster.start(0);
  cluster.cut_off(2, true);
  const auto hurried = log->repair(milliseconds(15));
  ASSERT_EQ(hurried.size(), 1u);
  EXPECT_FALSE(hurried[0].repaired);
  EXPECT_EQ(cluster.scan(1).start.head, tickets[4].lsn) << "nobody has it: nothing is shown";
  EXPECT_EQ(log->status().head, tickets[0].lsn);
  cluster.cut_off(2, false);
  const auto trimmed = log->trim(tickets[2].lsn);
  EXPECT_TRUE(trimmed.ok()) << trimmed.error().message;
  EXPECT_EQ(cluster.scan(1).start.head, tickets[4].lsn) << "it moved back";
  EXPECT_EQ(cluster.scan(2).start.head, tickets[2].lsn);
  Cluster::append(*log, 2);
  Cluster::expect_repaired(log->repair(), 1);
  EXPECT_EQ(log->status().head, tickets[4].lsn);
  Cluster::append(*log, 1);
  Cluster::settle(*log);
  cluster.expect_all(4, 9);
  log.reset();
  log = cluster.opened();
  cluster.expect_all(4, 9);
}

// The power of a replica fails somewhere in a trim. It may have the new head, of which its writer
// knows nothing, and without it there is no quorum.
TEST(LogTogether, ATrimWithoutAnswerLocksNobodyOut) {
  for (const std::size_t servers : {1u, 2u}) {
    bool through = false;
    int trimmed_alone = 0;
    for (std::uint64_t events = 1; !through && events < 1000; ++events) {
      Cluster cluster(servers);
      WriterOptions options = cluster.options();
      options.quorum = servers;
      const Order order = servers == 1 ? Order{0} : Order{0, 1};
      auto opened = cluster.open(order, options);
      ASSERT_TRUE(opened.ok()) << opened.error().message;
      ReplicatedLog& log = **opened;
      const auto tickets = Cluster::append(log, 6);
      Cluster::settle(log);
      cluster.world().cut_after(cluster.server(0).machine(), events);
      const bool trimmed = log.trim(tickets[3].lsn).ok();
      cluster.world().cancel_cut();
      through = cluster.server(0).machine().powered();
      ASSERT_TRUE(trimmed || !through) << events;
      if (through) continue;
      cluster.start(0);
      if (cluster.scan(0).start.head == tickets[3].lsn) ++trimmed_alone;
      for (int look = 0; look < 100 && log.status().replicas[0].up; ++look) {
        cluster.world().pass(milliseconds(5));
        (void)log.poll();
      }
      Cluster::expect_repaired(log.repair(), 1);
      Cluster::append(log, 3);
      ASSERT_TRUE(log.trim(tickets[4].lsn).ok()) << events;
      ASSERT_EQ(log.status().head, tickets[4].lsn);
      if (testing::Test::HasFailure()) return;
    }
    EXPECT_TRUE(through);
    EXPECT_GT(trimmed_alone, 0);
  }
}

// Every answer comes, each of them late: timing the connection takes longer than there is.
TEST(LogTogether, ARepairOverASlowLinkKeepsItsDeadline) {
  Cluster cluster;
  WriterOptions options = cluster.options();
  options.measure_costs = true;
  auto opened = cluster.open({0, 1, 2}, options);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  Writer log = std::move(opened).value();
  Cluster::append(*log, 3);
  Cluster::settle(*log);
  cluster.stop(2);
  (void)log->poll();
  cluster.start(2);
  cluster.slow_down(2, true);
  const Clock& clock = cluster.world().clock();
  for (int time = 4; time <= 100; time += 8) {
    const Nanoseconds before = clock.now();
    (void)log->repair(milliseconds(time));
    EXPECT_LT(clock.now() - before, milliseconds(time + 12))
        << "a look at the clock takes up to 8 ms there";
  }
  cluster.slow_down(2, false);
  Cluster::append(*log, 3);
  (void)log->repair();
  Cluster::settle(*log);
  cluster.expect_all(0, 6);
}

// What a repair has found whole is not read again behind it: but what it adds is.
TEST(LogTogether, ARepairReadsAgainWhatItHasAdded) {
  Cluster cluster;
  Writer log = cluster.opened();
  Cluster::append(*log, 50);
  Cluster::settle(*log);
  cluster.stop(2);
  Cluster::append(*log, 50);
  cluster.start(2);
  Cluster::expect_repaired(log->repair(), 1);
  Cluster::append(*log, 10);
  Cluster::settle(*log);
  cluster.expect_all(0, 110);
  // Expect: damage of what was there before is found all the same, and repaired.
  cluster.stop(2);
  Cluster::append(*log, 10);
  cluster.start(2);
  cluster.flip_record(2, log->status().head);
  const auto repairs = log->repair();
  Cluster::expect_repaired(repairs, 1);
  ASSERT_EQ(repairs.size(), 1u);
  EXPECT_NE(repairs[0].found.find("damaged"), std::string::npos) << repairs[0].found;
  Cluster::settle(*log);
  cluster.expect_all(0, 120);
}

// The record of a change is on one replica, nobody knows whether it counts, and then all that is
// behind the third record is lost everywhere.
TEST(LogTogether, LossIsAcceptedWhileAChangeIsUndecided) {
  Cluster cluster(4);
  Writer log = cluster.opened();
  const auto tickets = Cluster::append(*log, 6);
  Cluster::settle(*log);
  const std::string first = log->status().replicas[0].pool_uuid;
  cluster.cut_off(1, true);
  cluster.cut_off(2, true);
  EXPECT_EQ(log->remove_replica(first, 0).code(), ErrorCode::OutcomeUnknown);
  log.reset();
  cluster.cut_off(1, false);
  cluster.cut_off(2, false);
  for (std::size_t index = 0; index < 3; ++index) cluster.flip_record(index, tickets[3].lsn);
  EXPECT_EQ(cluster.open().code(), ErrorCode::Corrupt);
  WriterOptions options = cluster.options();
  options.accept_loss = true;
  auto accepted = cluster.open({0, 1, 2}, options);
  ASSERT_TRUE(accepted.ok()) << accepted.error().message;
  log = std::move(accepted).value();
  EXPECT_EQ(log->status().next_index, 3u);
  EXPECT_EQ(log->configuration().members.size(), 3u) << "the change was among what is lost";
  Cluster::append(*log, 3);
  ASSERT_TRUE(log->add_replica(cluster.peer(3), 0).ok());
  Cluster::append(*log, 3);
  Cluster::settle(*log);
  log.reset();
  log = cluster.opened({0, 1, 2, 3});
  ASSERT_NE(log, nullptr);
  cluster.expect_all(0, 9, {0, 1, 2, 3});
}

/// Reads on until an error, which is returned, or for so many looks at the end.
std::optional<ErrorCode> read_on(Cluster& cluster, log::FailoverReader& reader, int& read) {
  for (int look = 0; look < 20;) {
    const auto record = reader.next();
    if (!record.ok()) return record.code();
    if (*record) {
      ++read;
      continue;
    }
    ++look;
    cluster.world().pass(milliseconds(150));  // longer than it leaves the others alone
  }
  return std::nullopt;
}

// Records 20 to 29 were read, and were given up. Whoever has read them is told so, whichever of the
// replicas it reads, and is not given what came instead.
TEST(LogTogether, AReaderOfSeveralReplicasIsToldThatWhatItReadWasGivenUp) {
  for (const int more : {4, 20}) {
    for (const std::size_t away : {0u, 3u}) {
      Cluster cluster;
      Writer log = cluster.opened();
      const auto tickets = Cluster::append(*log, 30);
      Cluster::settle(*log);
      log.reset();
      std::vector<std::unique_ptr<client::Peer>> peers;
      for (std::size_t index = 0; index < 3; ++index) peers.push_back(cluster.peer(index));
      log::FailoverReader::Options reading{kPool, {}, milliseconds(20)};
      auto reader =
          log::FailoverReader::open(std::move(peers), std::move(reading), cluster.world().clock());
      ASSERT_TRUE(reader.ok()) << reader.error().message;
      int read = 0;
      ASSERT_EQ(read_on(cluster, *reader, read), std::nullopt);
      ASSERT_EQ(read, 30);
      for (std::size_t index = 0; index < 3; ++index) cluster.flip_record(index, tickets[20].lsn);
      WriterOptions options = cluster.options();
      options.accept_loss = true;
      auto accepted = cluster.open({0, 1, 2}, options);
      ASSERT_TRUE(accepted.ok()) << accepted.error().message;
      Cluster::append(**accepted, more);
      Cluster::settle(**accepted);
      accepted->reset();
      if (more > 10) cluster.opened().reset();  // another epoch begins behind what was read
      if (away < 3) cluster.stop(away);
      // Expect: said at once, and for ever.
      EXPECT_EQ(read_on(cluster, *reader, read), ErrorCode::Fenced) << more;
      log = cluster.opened();
      Cluster::append(*log, 20);
      for (int again = 0; again < 5; ++again) {
        EXPECT_EQ(read_on(cluster, *reader, read), ErrorCode::Fenced) << more;
      }
      EXPECT_EQ(read, 30);
      EXPECT_EQ(reader->position(), tickets.back().end);
    }
  }
}

// A replica that was left behind, and holds other records where the reader is, is no reason to
// stop: the others have what was read.
TEST(LogTogether, AReplicaThatWasLeftBehindIsNotTakenForALaterWriter) {
  // Of a compound log its tail word promises those records.
  for (const LogShape shape : {LogShape::Singleton, LogShape::Compound}) {
    Cluster cluster;
    WriterOptions options = cluster.options();
    options.shape = shape;
    auto first = cluster.open({0, 1, 2}, options);
    ASSERT_TRUE(first.ok()) << first.error().message;
    Writer log = std::move(first).value();
    Cluster::append(*log, 10);
    Cluster::settle(*log);
    cluster.cut_off(1, true);
    cluster.cut_off(2, true);
    const std::string never(3000, 'n');
    for (int count = 0; count < 3; ++count) {
      ASSERT_TRUE(log->append(std::as_bytes(std::span(never))).ok());
    }
    for (int look = 0; look < 100; ++look) (void)log->poll();
    log.reset();
    cluster.stop(0);
    for (const std::size_t deaf : {1u, 2u}) {
      cluster.stop(deaf);
      cluster.cut_off(deaf, false);
      cluster.start(deaf);
    }
    log = cluster.opened();
    ASSERT_NE(log, nullptr);
    Cluster::append(*log, 10);
    Cluster::settle(*log);
    std::vector<std::unique_ptr<client::Peer>> peers;
    for (const std::size_t index : {1u, 2u, 0u}) peers.push_back(cluster.peer(index));
    log::FailoverReader::Options reading{kPool, {}, milliseconds(20)};
    auto reader =
        log::FailoverReader::open(std::move(peers), std::move(reading), cluster.world().clock());
    ASSERT_TRUE(reader.ok()) << reader.error().message;
    int read = 0;
    ASSERT_EQ(read_on(cluster, *reader, read), std::nullopt);
    ASSERT_EQ(read, 20);
    cluster.start(0);
    EXPECT_EQ(read_on(cluster, *reader, read), std::nullopt);
    Cluster::append(*log, 5);
    Cluster::settle(*log);
    EXPECT_EQ(read_on(cluster, *reader, read), std::nullopt);
    EXPECT_EQ(read, 25);
  }
}

// The word goes after batches that are still in flight: it must not promise what these bring.
TEST(LogTogether, TheCommittedWordPromisesNothingThatIsInFlight) {
  for (std::uint64_t steps = 40; steps < 1500; steps += 73) {
    Cluster cluster;
    WriterOptions options = cluster.options();
    options.batches_in_flight = 8;
    auto opened = cluster.open({0, 1, 2}, options);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    Writer log = std::move(opened).value();
    cluster.world().cut_after(cluster.server(1).machine(), steps);
    for (int i = 0; i < 60; ++i) {
      const std::string record = Cluster::text(log->status().next_index);
      ASSERT_TRUE(log->append(std::as_bytes(std::span(record))).ok());
      if (i % 3 == 0) (void)log->poll();
      if (i % 8 == 7) cluster.world().settle();
    }
    Cluster::settle(*log);
    cluster.world().cancel_cut();
    const std::uint64_t records = log->status().next_index;
    log.reset();
    cluster.stop(1);
    cluster.start(1);
    const log::ScanReport report = cluster.scan(1);
    EXPECT_LE(report.start.committed_word.value_or(Lsn{}), report.tail) << steps;
    EXPECT_FALSE(report.damaged()) << steps;
    log = cluster.opened();
    ASSERT_NE(log, nullptr);
    cluster.expect_all(0, records);
  }
}

// The others are further than what was sent to it.
TEST(LogTogether, TheCommittedWordPromisesNothingThatWasNotSent) {
  Cluster cluster;
  WriterOptions options = cluster.options();
  options.batches_in_flight = 1;
  options.replica_timeout = std::chrono::minutes(1);  // it is silent, not gone
  auto opened = cluster.open({0, 1, 2}, options);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  Writer log = std::move(opened).value();
  cluster.cut_off(1, true);
  Cluster::append(*log, 20);
  ASSERT_EQ(log->status().committed, log->status().tail);
  for (int look = 0; look < 3; ++look) {
    cluster.world().pass(milliseconds(10));
    (void)log->poll();
  }
  cluster.cut_off(1, false);
  cluster.world().settle();
  cluster.stop(1);
  cluster.start(1);
  const log::ScanReport report = cluster.scan(1);
  EXPECT_LE(report.start.committed_word.value_or(Lsn{}), report.tail);
  EXPECT_LT(report.tail, log->status().tail) << "nothing was shown";
}

// Appended without a look at anything between, by the short way as far as there is one: a record
// ends before the head and with its lap, wherever they are.
TEST(LogTogether, AppendingWithoutALookStopsAtTheHeadAndAtTheLap) {
  constexpr std::uint64_t kSmallPool = 80 * 1024;
  for (const std::size_t bytes : {1u, 24u, 40u, 100u, 200u}) {
    Cluster cluster(3, kSmallPool);
    auto opened = cluster.open({0, 1, 2}, cluster.options());
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    Writer log = std::move(opened).value();
    std::uint64_t appended = 0;
    std::uint64_t kept = 0;
    std::vector<Ticket> tickets;
    for (int lap = 0; lap < 4; ++lap) {
      ErrorCode stopped = ErrorCode::QueueFull;
      for (std::uint64_t count = 0; count < kSmallPool; ++count) {
        const std::string record(bytes, static_cast<char>('a' + appended % 26));
        const auto ticket = log->append(std::as_bytes(std::span(record)));
        if (!ticket.ok()) {
          stopped = ticket.code();
          break;
        }
        tickets.push_back(*ticket);
        ++appended;
      }
      ASSERT_EQ(stopped, ErrorCode::LogFull) << bytes;
      Cluster::settle(*log);
      std::vector<std::string> records;
      const log::ScanReport report = cluster.scan(1, &records);
      EXPECT_FALSE(report.damaged()) << bytes;
      ASSERT_EQ(records.size(), appended - kept) << bytes << ", lap " << lap;
      for (std::uint64_t at = kept; at < appended; ++at) {
        ASSERT_EQ(records[at - kept], std::string(bytes, static_cast<char>('a' + at % 26)));
      }
      kept += (appended - kept) * 2 / 3;
      ASSERT_TRUE(log->trim(tickets[kept].lsn).ok());
    }
  }
}

}  // namespace
}  // namespace perdure
