// The laws of docs/log-protocol.md, where trim, catching up, repair, replacement and reopening
// meet.
#include <perdure/messages.h>

#include <optional>

#include "tests/crash/log_cluster.h"

namespace perdure {
namespace {

TEST(LogProtocol, TheHeadDoesNotGoBackWhenAReplicaThatMissedATrimCatchesUp) {
  Cluster cluster;
  Writer log = cluster.opened();
  const auto tickets = Cluster::append(*log, 100);
  cluster.stop(0);
  ASSERT_TRUE(log->trim(tickets[90].lsn).ok());
  cluster.stop(1);
  cluster.stop(2);
  for (std::size_t index = 0; index < 3; ++index) cluster.start(index);
  (void)log->poll();
  // The first that comes back has no other to copy from; the second run finds one.
  (void)log->repair();
  Cluster::expect_repaired(log->repair(), log->status().replicas[0].up ? 0 : 1);
  for (int lap = 0; lap < 5; ++lap) {
    const auto more = Cluster::append(*log, 80);
    ASSERT_EQ(more.size(), 80u);
    ASSERT_TRUE(log->trim(more[70].lsn).ok());
  }
  Cluster::settle(*log);
  const LogStatus status = log->status();
  log.reset();
  log = cluster.opened();
  EXPECT_EQ(log->status().head, status.head);
  EXPECT_EQ(log->status().next_index, 500u);
  cluster.expect_all(490, 500);
}

TEST(LogProtocol, AReplicaThatMissedATrimDoesNotLeadAtOpening) {
  Cluster cluster;
  Writer log = cluster.opened();
  const auto tickets = Cluster::append(*log, 50);
  Cluster::settle(*log);
  cluster.stop(0);
  ASSERT_TRUE(log->trim(tickets[40].lsn).ok());
  log.reset();
  cluster.start(0);
  log = cluster.opened();
  EXPECT_EQ(log->status().head, tickets[40].lsn);
  cluster.expect_all(40, 50);
}

TEST(LogProtocol, ALogThatWasTrimmedToItsTailKeepsWhoItIs) {
  for (const bool stale_first : {true, false}) {
    Cluster cluster;
    Writer log = cluster.opened();
    Cluster::append(*log, 20);
    cluster.stop(0);
    Cluster::append(*log, 20);
    ASSERT_TRUE(log->trim(log->status().tail).ok());
    const LogStatus before = log->status();
    log.reset();
    cluster.start(0);
    if (stale_first) cluster.stop(2);
    log = cluster.opened();
    ASSERT_NE(log, nullptr);
    EXPECT_EQ(log->status().next_index, 40u) << "an index names one record for ever";
    EXPECT_EQ(log->status().tail, before.tail);
    Cluster::append(*log, 3);
    Cluster::settle(*log);
    cluster.expect_all(40, 43, {0, 1});
  }
}

TEST(LogProtocol, ADamagedSourceIsNotCopiedFromAndIsRepairedItself) {
  Cluster cluster;
  Writer log = cluster.opened();
  const auto tickets = Cluster::append(*log, 30);
  Cluster::settle(*log);
  cluster.flip_record(0, tickets[5].lsn);
  cluster.stop(2);
  cluster.start(2);
  cluster.wipe(2);
  (void)log->poll();
  Cluster::append(*log, 1);
  Cluster::expect_repaired(log->repair(), 2);
  Cluster::append(*log, 1);
  Cluster::settle(*log);
  cluster.expect_all(0, 32);
}

TEST(LogProtocol, ABlankPoolDoesNotVote) {
  Cluster cluster;
  Writer log = cluster.opened();
  Cluster::append(*log, 5);
  cluster.stop(2);
  Cluster::append(*log, 5);
  log.reset();
  cluster.wipe(0);
  cluster.stop(1);
  cluster.start(2);
  // 2 is stale, 0 has lost everything, and what is committed is on 1 alone.
  EXPECT_FALSE(cluster.open().ok());
  cluster.start(1);
  log = cluster.opened();
  EXPECT_EQ(log->status().next_index, 10u);
  cluster.expect_all(0, 10);
}

TEST(LogProtocol, DamageCountsInWhateverOrderThePeersAreNamed) {
  for (const LogShape shape : {LogShape::Singleton, LogShape::Compound}) {
    for (const Order& order : {Order{0, 1, 2}, Order{2, 1, 0}, Order{1, 2, 0}, Order{0, 2, 1}}) {
      Cluster cluster;
      WriterOptions options = cluster.options();
      options.shape = shape;
      auto created = cluster.open({0, 1, 2}, options);
      ASSERT_TRUE(created.ok());
      Writer log = std::move(created).value();
      Cluster::append(*log, 10);
      cluster.stop(1);
      const auto tickets = Cluster::append(*log, 60);
      log.reset();
      cluster.flip_record(0, tickets[6].lsn);
      cluster.start(1);
      cluster.stop(2);
      // 0 is damaged at record 16, 1 is behind, 2 is down: most of what was committed is not here.
      EXPECT_EQ(cluster.open(order).code(), ErrorCode::Corrupt);
      cluster.start(2);
      log = cluster.opened(order);
      ASSERT_NE(log, nullptr);
      EXPECT_EQ(log->status().next_index, 70u);
      cluster.expect_all(0, 70);
    }
  }
}

// Two of three do not hear of it, and the writer does not know that yet. What it sent last may
// still have got there when it gave their connections up: then they have heard of it.
TEST(LogProtocol, ATrimThatReachesAMinorityIsNotAcknowledged) {
  int unheard = 0;
  for (int count = 20; count < 28; ++count) {
    Cluster cluster;
    Writer log = cluster.opened();
    const auto tickets = Cluster::append(*log, count);
    const Lsn before = log->status().head;
    cluster.cut_off(1, true);
    cluster.cut_off(2, true);
    EXPECT_EQ(log->trim(tickets[10].lsn).code(), ErrorCode::OutcomeUnknown);
    EXPECT_EQ(log->status().head, before);
    log.reset();
    for (const std::size_t deaf : {1u, 2u}) {
      cluster.stop(deaf);  // what was on its way does not arrive later either
      cluster.cut_off(deaf, false);
      cluster.start(deaf);
    }
    if (cluster.scan(1).start.head != before || cluster.scan(2).start.head != before) continue;
    ++unheard;
    // Expect: without the one that heard of it everything is there.
    cluster.stop(0);
    log = cluster.opened();
    ASSERT_NE(log, nullptr);
    EXPECT_EQ(log->status().head, before);
    Cluster::settle(*log);
    cluster.expect_all(0, static_cast<std::uint64_t>(count), {1, 2});
  }
  EXPECT_GT(unheard, 0);
}

TEST(LogProtocol, AcceptedLossGoesOnAndSaysWhatWasLost) {
  Cluster cluster;
  Writer log = cluster.opened();
  const auto tickets = Cluster::append(*log, 30);
  Cluster::settle(*log);
  log.reset();
  for (std::size_t index = 0; index < 3; ++index) cluster.flip_record(index, tickets[20].lsn);
  EXPECT_EQ(cluster.open().code(), ErrorCode::Corrupt);
  WriterOptions options = cluster.options();
  options.accept_loss = true;
  auto accepted = cluster.open({0, 1, 2}, options);
  ASSERT_TRUE(accepted.ok()) << accepted.error().message;
  log = std::move(accepted).value();
  EXPECT_NE(log->status().accepted_loss.find("index 20"), std::string::npos)
      << log->status().accepted_loss;
  EXPECT_EQ(log->status().next_index, 20u);
  Cluster::append(*log, 2);
  Cluster::settle(*log);
  log.reset();
  log = cluster.opened();  // and it is over
  cluster.expect_all(0, 22);
}

TEST(LogProtocol, AFencedWriterThatRepairsAPeerTakesNothingForItsOwn) {
  Cluster cluster;
  Writer first = cluster.opened();
  Cluster::append(*first, 5);
  Writer second = cluster.opened();
  const std::string record = "of the first, never sent";
  const auto ticket = first->append(std::as_bytes(std::span(record)));
  Cluster::append(*second, 10);
  for (const RepairReport& each : first->repair()) EXPECT_FALSE(each.repaired);
  ASSERT_TRUE(ticket.ok()) << ticket.error().message;
  EXPECT_EQ(first->wait(*ticket, Level::Durable, std::chrono::milliseconds(50)).code(),
            ErrorCode::Fenced);
  Cluster::append(*second, 1);
  Cluster::settle(*second);
  cluster.expect_all(0, 16);
}

// The peer has forgotten who fenced it, and its pool has not: a part of a later epoch is there.
TEST(LogProtocol, AWriterTakesNothingForItsOwnThatOnlyTheStateSaysIsOfALaterOne) {
  for (const int others : {0, 2}) {
    Cluster cluster;
    Writer first = cluster.opened();
    Cluster::append(*first, 5);
    Cluster::settle(*first);
    const log::Boundary end = cluster.scan(0).boundary();
    for (std::size_t index = 0; index < 3; ++index) cluster.stop(index);
    for (int index = others; index >= 0; index -= 1) cluster.start(static_cast<std::size_t>(index));
    // Receive: a state of the next epoch, and a record of it behind what the first has written.
    const std::string taken = Cluster::text(5);
    put_state(cluster, 0, [&](log::LogState& state) {
      ++state.epoch.value;
      state.begin = end.lsn;
      log::RecordHeader header;
      header.payload_bytes = static_cast<std::uint32_t>(taken.size());
      header.lsn = end.lsn;
      header.index = end.index;
      header.epoch = state.epoch;
      header.previous_crc = end.crc;
      cluster.on_medium(0, [&](std::span<std::byte> bytes) {
        (void)log::encode_record(header, state.anchor.seed, std::as_bytes(std::span(taken)),
                                 bytes.data() + log::kRingAt + header.lsn.value);
      });
    });
    ASSERT_EQ(cluster.scan(0).next_index, 6u);
    // Expect: neither as the only one that is up nor beside others is it gone on with or replaced.
    const std::string record = "of the first, not that one";
    for (int look = 0; look < 20; ++look) (void)first->poll();
    const auto reports = first->repair();
    ASSERT_FALSE(reports.empty());
    EXPECT_FALSE(reports[0].repaired);
    EXPECT_NE(reports[0].error.find("it is part of epoch 2; ours was 1"), std::string::npos)
        << reports[0].error;
    const auto ticket = first->append(std::as_bytes(std::span(record)));
    EXPECT_FALSE(ticket.ok() &&
                 first->wait(*ticket, Level::Durable, std::chrono::milliseconds(50)).ok());
    const log::ScanReport report = cluster.scan(0);
    EXPECT_EQ(report.start.state().epoch, Epoch{2});
    EXPECT_FALSE(report.start.state().marks.any());
    EXPECT_EQ(report.next_index, 6u);
  }
}

TEST(LogProtocol, OneMachineNamedTwiceIsOneReplica) {
  Cluster cluster;
  EXPECT_EQ(cluster.open({0, 1, 1}).code(), ErrorCode::InvalidArgument);
}

TEST(LogProtocol, QuorumAndReplicasBelongToTheLog) {
  Cluster cluster(4);
  WriterOptions options = cluster.options();
  options.quorum = 1;
  auto created = cluster.open({0, 1, 2}, options);
  ASSERT_TRUE(created.ok()) << created.error().message;
  Cluster::append(**created, 3);
  created->reset();
  const auto refused = [&](const Order& order, std::size_t quorum, const std::string& words) {
    WriterOptions asked = cluster.options();
    asked.quorum = quorum;
    const auto log = cluster.open(order, asked);
    ASSERT_EQ(log.ok() ? ErrorCode::SystemError : log.code(), ErrorCode::InvalidArgument);
    EXPECT_NE(log.error().message.find(words), std::string::npos) << log.error().message;
  };
  const auto before = cluster.peer(0)->describe(kPool, Deadline::after(std::chrono::seconds(1)));
  refused({0, 1, 2}, 2, "quorum 1 of 3");
  refused({2}, 0, "quorum 1 of 3");
  refused({0, 1, 3}, 0, "is no replica");
  refused({0, 1, 2, 3}, 0, "is no replica");
  const auto after = cluster.peer(0)->describe(kPool, Deadline::after(std::chrono::seconds(1)));
  EXPECT_EQ(after->epoch, before->epoch) << "whoever is refused fences nobody";
  Writer log = cluster.opened();
  EXPECT_EQ(log->status().quorum, 1u);
}

TEST(LogProtocol, AFullLogIsOpenedAsOftenAsOneLikes) {
  Cluster cluster;
  Writer log = cluster.opened();
  const std::string record(1000, 'x');
  while (true) {
    const auto ticket = log->append(std::as_bytes(std::span(record)));
    if (!ticket.ok()) break;
    ASSERT_TRUE(log->wait(*ticket, Level::Committed, std::chrono::seconds(1)).ok());
  }
  const Lsn tail = log->status().tail;
  for (int writer = 0; writer < 200; ++writer) {
    log.reset();
    log = cluster.opened();
    ASSERT_NE(log, nullptr) << writer;
  }
  EXPECT_EQ(log->status().tail, tail) << "opening takes no room";
  ASSERT_TRUE(log->trim(log->status().committed).ok());
  EXPECT_TRUE(log->append(std::as_bytes(std::span(record))).ok());
}

TEST(LogProtocol, ACreationThatIsCutShortAnywhereIsBegunAgain) {
  for (std::uint64_t steps = 1; steps < 400; steps += 7) {
    Cluster cluster;
    auto& server = cluster.server(steps % 3);
    cluster.world().cut_after(server.machine(), steps);
    auto created = cluster.open();
    if (created.ok()) created->reset();
    cluster.world().cancel_cut();
    cluster.start(steps % 3);
    auto log = cluster.open();
    ASSERT_TRUE(log.ok()) << steps << ": " << log.error().message;
    Cluster::append(**log, 2);
    Cluster::settle(**log);
    cluster.expect_all(0, 2);
    if (testing::Test::HasFailure()) return;
  }
}

/// Which copy is left of the first state that a replica was told, if the other one tore.
std::optional<std::size_t> copy_left(Cluster& cluster, std::size_t index) {
  std::optional<std::size_t> left;
  cluster.on_medium(index, [&](std::span<std::byte> bytes) {
    LocalBytes local(bytes);
    const auto start = log::read_start(local);
    ASSERT_TRUE(start.ok()) << start.error().message;
    if (!start->stored || !start->state().marks.creating || start->stored->copies_agree) return;
    const std::byte* other =
        bytes.data() + log::kStateAt + (1 - start->stored->copy) * log::kStateEvery;
    const bool begun = std::any_of(other, other + log::kStateBytes,
                                   [](std::byte each) { return each != std::byte{0}; });
    if (begun) left = start->stored->copy;
  });
  return left;
}

// A state goes in two messages here, so it tears wherever the power fails between them. The next
// creation fails as well: whichever copy it begins with, the other one is whole.
TEST(LogProtocol, CreationsThatAreCutShortOneAfterAnotherLeaveOneCopyWhole) {
  constexpr std::size_t kVictim = 0;
  struct World : Cluster {
    World() : Cluster(3, kPoolBytes, PersistenceDomain::Page, Transport::InfiniBand) {}
    void create_and_cut(std::uint64_t events) {
      world().cut_after(server(kVictim).machine(), events);
      (void)open();
      world().cancel_cut();
      stop(kVictim);
      start(kVictim);
    }
  };
  std::uint64_t torn_after = 1;
  for (std::optional<std::size_t> left; !left; torn_after += left ? 0 : 4) {
    ASSERT_LT(torn_after, 1000u) << "no state has torn: nothing is shown";
    World cluster;
    cluster.create_and_cut(torn_after);
    left = copy_left(cluster, kVictim);
  }
  int other_left = 0;
  for (std::uint64_t events = torn_after / 2; events < torn_after + 40; events += 2) {
    World cluster;
    cluster.create_and_cut(torn_after);
    cluster.create_and_cut(events);
    other_left += copy_left(cluster, kVictim) == 1 ? 1 : 0;
    const auto log = cluster.open();
    ASSERT_TRUE(log.ok()) << torn_after << ", " << events << ": " << log.error().message;
    Cluster::append(**log, 2);
    Cluster::settle(**log);
    cluster.expect_all(0, 2);
    if (testing::Test::HasFailure()) FAIL() << torn_after << ", " << events;
  }
  EXPECT_GT(other_left, 1) << "the second creation was not cut in the midst of a state";
}

// The power failed while the first state of all was written: torn, and nothing in its other copy.
TEST(LogProtocol, AFirstStateThatToreIsNoLog) {
  for (const bool second_too : {false, true}) {
    Cluster cluster;
    cluster.on_medium(0, [&](std::span<std::byte> bytes) {
      const auto torn = [&](std::uint64_t at) {
        std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), 512, std::byte{0x5a});
      };
      torn(log::kStateAt);
      if (second_too) torn(log::kStateAt + log::kStateEvery);
    });
    auto log = cluster.open();
    // With both copies gone it may have been a replica; that the others are blank does not tell.
    ASSERT_EQ(log.ok(), !second_too);
    if (second_too) {
      EXPECT_EQ(log.code(), ErrorCode::Corrupt) << log.error().message;
      continue;
    }
    Cluster::append(**log, 2);
    Cluster::settle(**log);
    cluster.expect_all(0, 2);
  }
}

// Nothing is left of it but what the pools themselves remember.
TEST(LogProtocol, ALogThatIsCreatedWhereOneMayHaveBeenSaysSo) {
  for (const bool had : {false, true}) {
    Cluster cluster;
    if (had) {
      Writer log = cluster.opened();
      Cluster::append(*log, 3);
      log.reset();
      for (std::size_t index = 0; index < 3; ++index) cluster.wipe(index);
    }
    std::string said;
    set_message_callback([&](Severity severity, const std::string& message) {
      if (severity == Severity::Warning) said += message;
    });
    Writer log = cluster.opened();
    set_message_callback({});
    ASSERT_NE(log, nullptr);
    EXPECT_EQ(log->status().next_index, 0u);
    EXPECT_EQ(said.find("is new, and begins at index 0") != std::string::npos, had) << said;
    EXPECT_EQ(said.find("server1: epoch 1") != std::string::npos, had) << said;
  }
}

// Creating was cut short, and one of the machines got another disk before it was tried again.
TEST(LogProtocol, ACreationThatIsCutShortIsBegunAgainWithoutOneThatIsGone) {
  for (std::uint64_t steps = 5; steps < 400; steps += 35) {
    Cluster cluster;
    cluster.world().cut_after(cluster.server(1).machine(), steps);
    auto created = cluster.open();
    if (created.ok()) created->reset();
    cluster.world().cancel_cut();
    cluster.start(1);
    ASSERT_TRUE(cluster.server(2).start_with({}).ok());
    WriterOptions without = cluster.options();
    without.partial = true;
    without.create = false;
    auto log = cluster.open({0, 1}, without);
    if (!log.ok()) log = cluster.open();
    ASSERT_TRUE(log.ok()) << steps << ": " << log.error().message;
    Cluster::append(**log, 2);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(LogProtocol, AWriterThatIsRefusedAsBusyHasRaisedNoEpoch) {
  Cluster cluster;
  Writer first = cluster.opened();
  Cluster::append(*first, 3);
  cluster.stop(2);
  Cluster::append(*first, 3);
  cluster.start(2);
  WriterOptions polite = cluster.options();
  polite.take_over = false;
  EXPECT_EQ(cluster.open({2, 0, 1}, polite).code(), ErrorCode::Busy);
  (void)first->poll();
  Cluster::expect_repaired(first->repair(), 1);
  Cluster::append(*first, 1);
  Cluster::settle(*first);
  cluster.expect_all(0, 7);
}

/// Whether a writer that takes over from nobody is let in.
ErrorCode polite(Cluster& cluster, bool accept_loss = false) {
  WriterOptions options = cluster.options();
  options.take_over = false;
  options.accept_loss = accept_loss;
  const auto log = cluster.open({0, 1, 2}, options);
  return log.ok() ? ErrorCode{} : log.code();
}

// The peers come to notice the end of a connection when they come to it; who closes a log waits
// until they have said so.
TEST(LogProtocol, WhoOpensALogThatWasClosedIsNotRefused) {
  Cluster cluster;
  Writer log = cluster.opened();
  Cluster::append(*log, 3);
  log.reset();  // as after a crash
  EXPECT_EQ(polite(cluster), ErrorCode::Busy);
  log = cluster.opened();
  log->end_sessions(std::chrono::milliseconds(20));
  log.reset();
  EXPECT_EQ(polite(cluster), ErrorCode{});
}

TEST(LogProtocol, EndingASessionThatIsNotAnsweredTakesNoneOfTheOthersTime) {
  Cluster cluster;
  Writer log = cluster.opened();
  cluster.cut_off(0, true);
  const Nanoseconds begun = cluster.world().clock().now();
  log->end_sessions(std::chrono::milliseconds(30));
  EXPECT_LE(cluster.world().clock().now() - begun, std::chrono::milliseconds(31));
  cluster.cut_off(0, false);
  for (std::size_t index = 0; index < 3; ++index) {
    const Deadline soon(cluster.world().clock(), std::chrono::milliseconds(20));
    EXPECT_EQ(cluster.peer(index)->describe(kPool, soon)->writer_present, index == 0) << index;
  }
}

TEST(LogProtocol, WhoseOpeningFailedMayOpenAgainAtOnce) {
  Cluster cluster;
  Writer log = cluster.opened();
  Cluster::append(*log, 3);
  log->end_sessions(std::chrono::milliseconds(20));
  log.reset();
  cluster.wipe(0);
  cluster.wipe(1);
  EXPECT_EQ(polite(cluster), ErrorCode::Corrupt);
  EXPECT_EQ(polite(cluster, true), ErrorCode{});
}

TEST(LogProtocol, EpochsHaveAnEndAndNobodyGetsThereByOneFence) {
  Cluster cluster;
  const Deadline deadline = Deadline::after(std::chrono::seconds(10));
  EXPECT_EQ(cluster.peer(0)->fence(kPool, Epoch{UINT32_MAX}, deadline).code(),
            ErrorCode::InvalidArgument);
  EXPECT_TRUE(cluster.peer(0)->fence(kPool, Epoch{1000}, deadline).ok());
  Writer log = cluster.opened();
  EXPECT_EQ(log->status().epoch, Epoch{1001});
}

TEST(LogProtocol, NobodyGetsToTheEndOfEpochsByOneSession) {
  Cluster cluster;
  cluster.opened().reset();
  const Deadline deadline = Deadline::after(std::chrono::seconds(10));
  control::SessionRequest far{kPool, true, kEpochMax, 7, "far", true};
  EXPECT_EQ(cluster.peer(0)->open_session(far, deadline).code(), ErrorCode::InvalidArgument);
  EXPECT_EQ(cluster.peer(0)->describe(kPool, deadline)->epoch, Epoch{1});

  // The others go on without one of them for more epochs than that.
  cluster.stop(2);
  Epoch at{1};
  for (int step = 0; step < 3; ++step) {
    at.value += kEpochStepMax;
    for (const std::size_t peer : {0, 1}) {
      ASSERT_TRUE(cluster.peer(peer)->fence(kPool, at, deadline).ok());
    }
  }
  Writer log = cluster.opened();
  Cluster::append(*log, 3);
  cluster.start(2);
  (void)log->repair();
  for (const ReplicaStatus& replica : log->status().replicas)
    EXPECT_TRUE(replica.up) << replica.down_reason;
}

// A replica that somebody has brought far above the others costs the log that replica, not the
// rest.
TEST(LogProtocol, AnEpochFarAboveIsNotSpread) {
  Cluster cluster;
  cluster.opened().reset();
  const Deadline deadline = Deadline::after(std::chrono::seconds(10));
  Epoch at{1};
  for (int step = 0; step < 20; ++step) {
    at.value += kEpochStepMax;
    ASSERT_TRUE(cluster.peer(2)->fence(kPool, at, deadline).ok());
  }
  const auto refused = cluster.open({0, 1, 2});
  ASSERT_FALSE(refused.ok());
  for (const std::size_t sound : {0u, 1u}) {
    EXPECT_EQ(cluster.peer(sound)->describe(kPool, deadline)->epoch, Epoch{1});
  }
  cluster.stop(2);
  Writer log = cluster.opened();
  ASSERT_NE(log, nullptr);
  Cluster::append(*log, 3);
}

TEST(LogProtocol, ADamagedWordIsRepairedByOpening) {
  Cluster cluster;
  Writer log = cluster.opened();
  Cluster::append(*log, 3);
  Cluster::settle(*log);
  log.reset();
  cluster.flip(1, log::kTailWordAt);
  cluster.flip(1, log::kCommittedWordAt);
  EXPECT_TRUE(cluster.scan(1).start.committed_word_damaged);
  log = cluster.opened();
  EXPECT_EQ(log->status().next_index, 3u);
  EXPECT_FALSE(cluster.scan(1).start.committed_word_damaged);
}

TEST(LogProtocol, AStoppedPeerThatGoesOnIsNoReasonToAbort) {
  Cluster cluster;
  Writer first = cluster.opened();
  Cluster::append(*first, 10);
  cluster.stop(0);
  ASSERT_TRUE(first->trim(first->status().tail).ok());
  Writer second = cluster.opened();
  Cluster::append(*second, 5);
  cluster.start(0);
  const std::string record = "of the first";
  ErrorCode code = ErrorCode::TimedOut;
  for (int round = 0; round < 20 && code != ErrorCode::Fenced; ++round) {
    (void)first->repair();  // what is down, and what was taken over, must not be gone on with
    const auto ticket = first->append(std::as_bytes(std::span(record)));
    code = ticket.ok()
               ? first->wait(*ticket, Level::Committed, std::chrono::milliseconds(20)).code()
               : ticket.code();
  }
  EXPECT_EQ(code, ErrorCode::Fenced);
}

// Nobody answers who took over: append asks for a second, unless a poll that has less time did.
TEST(LogProtocol, WhoPollsAsksNoLongerThanHeHasTimeAndThenAppendAsksNobody) {
  constexpr Nanoseconds kTime = std::chrono::milliseconds(5);
  Cluster cluster;
  Writer log = cluster.opened();
  Cluster::append(*log, 1);
  EXPECT_FALSE(log->append_would_block(100));
  for (std::size_t index = 0; index < 3; ++index) cluster.cut_off(index, true);
  const std::vector<std::byte> record(100);
  const auto ticket = log->append(record);
  ASSERT_TRUE(ticket.ok());
  for (int look = 0; look < 100 && log->poll().ok(); ++look) {
    cluster.world().pass(std::chrono::milliseconds(5));
  }
  const Clock& clock = cluster.world().clock();
  for (int second = 0; second < 2; ++second) {
    EXPECT_TRUE(log->append_would_block(100));
    EXPECT_FALSE(log->append_would_block(0)) << "what is refused anyway";
    Nanoseconds since = clock.now();
    const auto polled = log->poll();
    ASSERT_FALSE(polled.ok());
    EXPECT_EQ(polled.code(), ErrorCode::QuorumLost);
    EXPECT_EQ(clock.now(), since);
    EXPECT_EQ(log->poll(kTime).code(), ErrorCode::QuorumLost);
    EXPECT_GT(clock.now(), since);
    EXPECT_LE(clock.now(), since + kTime);
    EXPECT_FALSE(log->append_would_block(100));
    since = clock.now();
    EXPECT_EQ(log->append(record).code(), ErrorCode::QuorumLost);
    EXPECT_EQ(clock.now(), since);
    cluster.world().pass(std::chrono::seconds(1));
  }
  // Somebody took over, and the control planes say so.
  for (std::size_t index = 0; index < 3; ++index) cluster.cut_off(index, false);
  Writer next = cluster.opened();
  EXPECT_EQ(log->poll(kTime).code(), ErrorCode::Fenced);
  EXPECT_FALSE(log->append_would_block(100));
  EXPECT_EQ(log->append(record).code(), ErrorCode::Fenced);
}

/// A record that is durable there and not committed; the others are stopped.
void append_to_replica_0_alone(Cluster& cluster, log::ReplicatedLog& log) {
  cluster.stop(1);
  cluster.stop(2);
  const std::string never = "never committed";
  const auto ticket = log.append(std::as_bytes(std::span(never)));
  ASSERT_TRUE(ticket.ok());
  ASSERT_TRUE(log.wait(*ticket, Level::Durable, std::chrono::seconds(1)).ok());
}

std::span<std::byte> log_of_replica_0(Cluster& cluster) {
  return cluster.server(0).region().bytes().subspan(pmem::kPoolDataOffset, kPoolBytes);
}

TEST(LogProtocol, ReadersGetWhatIsCommittedAndNoticeAReplacedTail) {
  Cluster cluster;
  Writer log = cluster.opened();
  Cluster::append(*log, 3);
  Cluster::settle(*log);
  append_to_replica_0_alone(cluster, *log);
  LocalBytes local(log_of_replica_0(cluster));
  auto careful = log::CommittedReader::open(local, {Lsn{}, false, "it"});
  auto eager = log::CommittedReader::open(local, {Lsn{}, true, "it"});
  ASSERT_TRUE(careful.ok() && eager.ok());
  const auto count = [](log::CommittedReader& reader) {
    int read = 0;
    while (true) {
      const auto record = reader.next();
      if (!record.ok() || !*record) return read;
      ++read;
    }
  };
  EXPECT_EQ(count(*careful), 3);
  EXPECT_EQ(count(*eager), 4);
  // The next writer does not see replica 0, and goes on without that record.
  log.reset();
  cluster.stop(0);
  cluster.start(1);
  cluster.start(2);
  log = cluster.opened();
  Cluster::append(*log, 1);
  cluster.start(0);
  Cluster::expect_repaired(log->repair(), 1);
  Cluster::append(*log, 1);
  Cluster::settle(*log);
  EXPECT_EQ(eager->next().code(), ErrorCode::Fenced) << "what it returned is not in the log";
  EXPECT_EQ(count(*careful), 2);
}

/// Replica 0 has a record that is not committed and was returned. The next writer replaces it by
/// longer ones, or keeps it (0), and what it wrote is trimmed before the reader looks again.
std::optional<ErrorCode> read_on_after_a_trim(int replaced_by, int writers_after) {
  Cluster cluster;
  Writer log = cluster.opened();
  Cluster::append(*log, 3);
  Cluster::settle(*log);
  append_to_replica_0_alone(cluster, *log);
  LocalBytes local(log_of_replica_0(cluster));
  auto reader = log::CommittedReader::open(local, {Lsn{}, true, "it"});
  EXPECT_TRUE(reader.ok());
  for (int read = 0; read < 4; ++read) EXPECT_TRUE(reader->next().ok());
  log.reset();
  cluster.start(1);
  cluster.start(2);
  if (replaced_by > 0) cluster.stop(0);
  log = cluster.opened();
  if (replaced_by > 0) {
    Cluster::append(*log, replaced_by);
    cluster.start(0);
    Cluster::expect_repaired(log->repair(), 1);
  } else {
    // What is behind it is no record for readers.
    EXPECT_TRUE(log->change_quorum(3).ok());
  }
  for (int writer = 0; writer < writers_after; ++writer) {
    log.reset();
    log = cluster.opened();
  }
  EXPECT_TRUE(log->trim(log->status().tail).ok());
  Cluster::append(*log, 1);
  Cluster::settle(*log);
  const auto next = reader->next();
  if (!next.ok()) return next.code();
  EXPECT_TRUE(next->has_value());
  EXPECT_EQ(*next ? (*next)->index : 0, 4u);
  return std::nullopt;
}

TEST(LogProtocol, WhoReadAheadLearnsThatItWasReplacedThoughThatIsTrimmed) {
  EXPECT_EQ(read_on_after_a_trim(1, 0), ErrorCode::Fenced);
  EXPECT_EQ(read_on_after_a_trim(3, 0), ErrorCode::Fenced);
  // Another epoch has begun behind it: nothing that is left says which one wrote it.
  EXPECT_EQ(read_on_after_a_trim(1, 1), ErrorCode::NotFound);
  EXPECT_EQ(read_on_after_a_trim(3, 1), ErrorCode::NotFound);
  EXPECT_EQ(read_on_after_a_trim(0, 0), std::nullopt);
}

// A record ended with the ring, so that the next one follows it in LSNs and not in the pool.
TEST(LogProtocol, AReplicaIsBroughtToEqualAcrossTheEndOfTheRing) {
  Cluster cluster;
  Writer log = cluster.opened();
  const std::uint64_t ring = log->status().ring_bytes;
  const auto first = Cluster::append(*log, 60);
  ASSERT_TRUE(log->trim(first[50].lsn).ok());
  cluster.stop(2);
  // Fills the ring up to its last byte.
  while (log->status().tail.value < ring) {
    const std::uint64_t room = ring - log->status().tail.value;
    const std::uint64_t bytes = room < 8192 ? room : 4096;
    const std::vector<std::byte> record(std::min<std::uint64_t>(bytes, 4096) -
                                        log::kRecordHeaderBytes);
    if (room > 4096 && room < 8192) {
      const std::vector<std::byte> half(room / 2 / 8 * 8 - log::kRecordHeaderBytes);
      ASSERT_TRUE(log->append(half).ok());
      continue;
    }
    ASSERT_TRUE(log->append(record).ok());
  }
  ASSERT_EQ(log->status().tail.value, ring);
  Cluster::append(*log, 2);
  cluster.start(2);
  Cluster::expect_repaired(log->repair(), 1);
  Cluster::settle(*log);
  EXPECT_EQ(cluster.scan(2).tail, log->status().tail);
}

TEST(LogProtocol, ASourceThatIsDamagedCostsNoOtherReplicaItsContent) {
  Cluster cluster;
  Writer log = cluster.opened();
  Cluster::append(*log, 3);
  Cluster::settle(*log);
  cluster.stop(1);
  const auto tickets = Cluster::append(*log, 2);
  cluster.stop(2);
  cluster.flip_record(0, tickets[0].lsn);
  cluster.start(1);
  for (const RepairReport& each : log->repair()) EXPECT_FALSE(each.repaired) << each.peer;
  EXPECT_FALSE(cluster.scan(1).start.state().marks.any());
  // What 0 has lost, 2 still has.
  log.reset();
  cluster.start(2);
  cluster.stop(0);
  log = cluster.opened();
  ASSERT_NE(log, nullptr);
  EXPECT_EQ(log->status().next_index, 5u);
}

// What only one replica had is cut off when it comes back; its tail word had promised it.
TEST(LogProtocol, ACutWhileACompoundReplicaIsShortenedLeavesItWhole) {
  int shortened = 0;
  for (std::uint64_t steps = 100; steps < 500; steps += 7) {
    Cluster cluster;
    WriterOptions compound = cluster.options();
    compound.shape = LogShape::Compound;
    auto created = cluster.open({0, 1, 2}, compound);
    ASSERT_TRUE(created.ok());
    Writer log = std::move(created).value();
    Cluster::append(*log, 3);
    cluster.stop(1);
    cluster.stop(2);
    const std::string never = "never committed";
    const auto ticket = log->append(std::as_bytes(std::span(never)));
    ASSERT_TRUE(ticket.ok());
    ASSERT_TRUE(log->wait(*ticket, Level::Durable, std::chrono::seconds(1)).ok());
    log.reset();
    cluster.stop(0);
    cluster.start(1);
    cluster.start(2);
    log = cluster.opened();
    Cluster::append(*log, 2);
    cluster.start(0);
    cluster.world().cut_after(cluster.server(0).machine(), steps);
    (void)log->repair();
    cluster.world().cancel_cut();
    cluster.start(0);
    const log::ScanReport report = cluster.scan(0);
    EXPECT_FALSE(report.start.state().marks.any()) << steps;
    ASSERT_FALSE(report.damaged()) << steps << ": nothing was lost";
    shortened += report.start.state().epoch == log->status().epoch && report.next_index < 5 ? 1 : 0;
  }
  EXPECT_GT(shortened, 0) << "it was never cut at the moment that is asked about";
}

// A writer that was taken over from still has a connection to the replica that its successor does
// not reach.
TEST(LogProtocol, AFencedWriterTrimsNothing) {
  Cluster cluster;
  Writer older = cluster.opened();
  const auto tickets = Cluster::append(*older, 10);
  Cluster::settle(*older);
  WriterOptions some = cluster.options();
  some.partial = true;
  auto newer = cluster.open({1, 2}, some);
  ASSERT_TRUE(newer.ok()) << newer.error().message;
  const auto trimmed = older->trim(tickets[8].lsn);
  ASSERT_FALSE(trimmed.ok());
  EXPECT_EQ(trimmed.code(), ErrorCode::Fenced);
  newer->reset();
  older.reset();
  Writer last = cluster.opened();
  EXPECT_EQ(last->status().head, log::kFirstLsn);
  cluster.expect_all(0, 10);
}

// The record of a change is on one replica, and whether it is committed nobody knows.
TEST(LogProtocol, WhileAChangeIsUndecidedTheReplicasBeforeItMayBeNamed) {
  Cluster cluster;
  Writer log = cluster.opened();
  Cluster::append(*log, 3);
  const std::string first = log->status().replicas[0].pool_uuid;
  cluster.cut_off(1, true);
  cluster.cut_off(2, true);
  const auto changed = log->remove_replica(first, 0);
  ASSERT_FALSE(changed.ok());
  EXPECT_EQ(changed.code(), ErrorCode::OutcomeUnknown);
  log.reset();
  cluster.cut_off(1, false);
  cluster.cut_off(2, false);
  log = cluster.opened();
  ASSERT_NE(log, nullptr);
  Cluster::append(*log, 2);
  // Whichever it is, all of its replicas are up, and another one is let go.
  for (const ReplicaStatus& each : log->status().replicas) {
    EXPECT_TRUE(each.up) << each.peer << ": " << each.down_reason;
  }
}

// Both of two replicas are needed. The one that is replaced fails in the middle of that: the record
// of the change is on the other and on the newcomer, and nobody knows whether it is committed.
TEST(LogProtocol, WhileAReplacementIsUndecidedAllOfItsReplicasMayBeNamed) {
  Cluster cluster;
  Writer log = cluster.opened({0, 1});
  ASSERT_NE(log, nullptr);
  Cluster::append(*log, 3);
  const std::string second = log->status().replicas[1].pool_uuid;
  cluster.cut_off(1, true);
  const auto changed = log->replace_replica(second, cluster.peer(2));
  ASSERT_FALSE(changed.ok());
  EXPECT_EQ(changed.code(), ErrorCode::OutcomeUnknown);
  log.reset();
  cluster.cut_off(1, false);
  const auto refused = cluster.open({0, 1});
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("name the replicas of both"), std::string::npos)
      << refused.error().message;
  log = cluster.opened({0, 1, 2});
  ASSERT_NE(log, nullptr);
  Cluster::append(*log, 2);
  EXPECT_EQ(log->status().next_index, 5u);
  log.reset();
  // Expect: it is decided now.
  log = cluster.opened({0, 2});
  ASSERT_NE(log, nullptr);
  Cluster::append(*log, 1);
}

// A loss is accepted, since another replica fails while it is read, and then too few come along:
// nothing has been accepted, so nothing is written to the one that is left. Where the other fails
// later, readers of the one that was chosen are given no more than before.
TEST(LogProtocol, WhatAnAcceptedLossHasNotCommittedIsNotRead) {
  std::size_t refused = 0;
  constexpr std::uint64_t kEventsMax = 300;
  for (std::uint64_t events = 1; events < kEventsMax; events += 3) {
    Cluster cluster;
    Writer log = cluster.opened();
    Cluster::append(*log, 3);
    Cluster::settle(*log);
    const Lsn committed = log->status().committed;
    cluster.cut_off(0, true);
    cluster.cut_off(1, true);
    const std::string record = "on the third replica alone";
    ASSERT_TRUE(log->append(std::as_bytes(std::span(record))).ok());
    cluster.world().settle();
    log.reset();
    ASSERT_GT(cluster.scan(2).tail, committed);
    const Epoch epoch = cluster.scan(2).start.state().epoch;
    cluster.cut_off(1, false);
    cluster.world().cut_after(cluster.server(1).machine(), events);
    WriterOptions options = cluster.options();
    options.accept_loss = true;
    const auto again = cluster.open({0, 1, 2}, options);
    cluster.world().cancel_cut();
    if (again.ok()) continue;
    const log::ScanReport report = cluster.scan(2);
    if (again.error().message.find("accepting a loss") != std::string::npos) {
      ++refused;
      EXPECT_EQ(report.start.state().epoch, epoch) << again.error().message;
    }
    cluster.stop(1);
    cluster.start(1);
    // If both have its state, its epoch has begun, and what they hold is committed.
    if (cluster.scan(1).start.state().epoch == report.start.state().epoch) continue;
    EXPECT_LE(report.start.committed_word.value_or(Lsn{}), committed) << "cut after " << events;
  }
  EXPECT_GT(refused, 0u);
}

// 0 is whole and away, 1 missed the last records, and 2 can not read them any more: who goes on all
// the same gives them up. Where too few come along for that, nobody has: 0 comes back, and has
// them.
TEST(LogProtocol, ALossThatWasNotAcceptedByAQuorumIsNone) {
  std::size_t begun = 0;
  std::size_t cut_short = 0;
  std::size_t unknown = 0;
  constexpr std::uint64_t kEventsMax = 2000;
  for (std::uint64_t events = 1; events < kEventsMax && begun == 0; events += 5) {
    Cluster cluster;
    Writer log = cluster.opened();
    Cluster::append(*log, 1);
    Cluster::settle(*log);
    cluster.cut_off(1, true);
    const auto tickets = Cluster::append(*log, 2);
    Cluster::settle(*log);
    log.reset();
    cluster.flip_record(2, tickets[0].lsn);
    cluster.cut_off(0, true);
    cluster.cut_off(1, false);
    WriterOptions options = cluster.options();
    options.accept_loss = true;
    cluster.world().cut_after(cluster.server(1).machine(), events);
    auto again = cluster.open({0, 1, 2}, options);
    cluster.world().cancel_cut();
    if (again.ok()) {
      begun = events;
      EXPECT_EQ((*again)->status().next_index, 1u);
      EXPECT_FALSE((*again)->status().accepted_loss.empty());
      continue;
    }
    cluster.stop(1);
    cluster.start(1);
    cluster.cut_off(0, false);
    log = cluster.opened();
    ASSERT_NE(log, nullptr) << "cut after " << events;
    if (again.code() == ErrorCode::OutcomeUnknown) {
      ++unknown;
      continue;
    }
    ++cut_short;
    EXPECT_EQ(log->status().next_index, 3u) << "cut after " << events;
  }
  EXPECT_GT(begun, 0u);
  EXPECT_GT(cut_short, 0u);
  EXPECT_GT(unknown, 0u);
  EXPECT_LT(unknown, cut_short);
}

// An opening commits a removal that was undecided, and the power fails before the state of the
// replica that stays says so: its ring knows it.
TEST(LogProtocol, AChangeThatIsCommittedAndInNoStateYetLeavesAWayToOpen) {
  Cluster uncut;
  uncut.remove_second();
  const std::uint64_t whole = uncut.events_to_open({0, 1});
  constexpr std::uint64_t kEventsAtTheEnd = 120;
  ASSERT_GT(whole, kEventsAtTheEnd);
  std::size_t refused_as_before = 0;
  for (std::uint64_t events = whole - kEventsAtTheEnd; events < whole; ++events) {
    Cluster cluster;
    cluster.remove_second();
    cluster.open_and_cut({0, 1}, 0, events);
    // Expect: it opens with the replicas before the change, or with those after it.
    auto again = cluster.open({0, 1});
    if (!again.ok()) {
      ++refused_as_before;
      again = cluster.open({0});
    }
    ASSERT_TRUE(again.ok()) << "cut after " << events << ": " << again.error().message;
    EXPECT_EQ((*again)->status().next_index, 3u);
    Cluster::append(**again, 1);
  }
  EXPECT_GT(refused_as_before, 0u);
}

TEST(LogProtocol, AChangeThatCouldNotBeCommittedIsRefusedBeforeItsRecordIsOut) {
  Cluster cluster;
  Writer log = cluster.opened();
  Cluster::append(*log, 3);
  cluster.stop(2);
  Cluster::append(*log, 1);
  const auto changed = log->change_quorum(3);
  ASSERT_FALSE(changed.ok());
  EXPECT_EQ(changed.code(), ErrorCode::QuorumLost);
  // Expect: the log goes on as it was, and opens without the replica that is down.
  Cluster::append(*log, 2);
  log.reset();
  log = cluster.opened();
  ASSERT_NE(log, nullptr);
  EXPECT_EQ(log->status().quorum, 2u);
  EXPECT_EQ(log->status().next_index, 6u);
}

// The replica that stays dies anywhere in the removal of the other one.
TEST(LogProtocol, ARemovalThatIsAcknowledgedIsKnownToWhoStays) {
  for (std::uint64_t steps = 1; steps < 200; steps += 7) {
    Cluster cluster;
    Writer log = cluster.opened({0, 1});
    Cluster::append(*log, 2);
    Cluster::settle(*log);
    const std::string first = log->status().replicas[0].pool_uuid;
    cluster.world().cut_after(cluster.server(1).machine(), steps);
    const auto removed = log->remove_replica(first, 0);
    cluster.world().cancel_cut();
    log.reset();
    cluster.start(1);
    // Expect: those that are left open the log alone, or all from before do, as it was said.
    auto last = cluster.open(removed.ok() ? Order{1} : Order{0, 1});
    if (!last.ok() && !removed.ok()) last = cluster.open(Order{1});
    ASSERT_TRUE(last.ok()) << steps << ": " << last.error().message;
    EXPECT_EQ((*last)->status().next_index, 2u) << steps;
  }
}

TEST(LogProtocol, ReplicasAreAddedRemovedAndReplacedOneAtATime) {
  Cluster cluster(5);
  Writer log = cluster.opened();
  Cluster::append(*log, 10);
  ASSERT_TRUE(log->add_replica(cluster.peer(3), 0).ok());
  EXPECT_EQ(log->status().quorum, 3u) << "a majority stays one";
  Cluster::append(*log, 5);
  cluster.stop(0);
  Cluster::append(*log, 5);
  const auto replaced = log->replace_replica("server0", cluster.peer(4));
  ASSERT_TRUE(replaced.ok()) << replaced.error().message;
  ASSERT_TRUE(log->remove_replica("server1", 0).ok());
  EXPECT_EQ(log->status().quorum, 2u);
  Cluster::append(*log, 5);
  Cluster::settle(*log);
  log.reset();
  cluster.start(0);
  EXPECT_EQ(cluster.open({0, 1, 2}).code(), ErrorCode::InvalidArgument)
      << "those it had once are not those that it has";
  EXPECT_FALSE(cluster.open({0, 1}).ok()) << "no vote without somebody who knows better";
  log = cluster.opened({2, 3, 4});
  ASSERT_NE(log, nullptr);
  EXPECT_EQ(log->status().next_index, 25u);
  cluster.expect_all(0, 25, {2, 3, 4});
}

// 2 is replaced by 3. 1 has the record of that and has not heard that it is committed; the others
// trim it, go on and bring 1 back, which loses its power in the middle of it.
TEST(LogProtocol, AReplacementIsNotForgottenWhereAReplicaGetsATrimAndNoMore) {
  std::size_t trimmed = 0;  // and not yet of the new epoch
  bool brought = false;
  for (std::uint64_t events = 1; events < 3000 && !brought; events += 5) {
    Cluster cluster(4);
    Writer log = cluster.opened();
    Cluster::append(*log, 3);
    Cluster::settle(*log);
    const log::Configuration before = log->configuration();
    const std::string second = log->status().replicas[2].pool_uuid;
    cluster.cut_off(2, true);
    ASSERT_TRUE(log->replace_replica(second, cluster.peer(3)).ok());
    log.reset();
    put_state(cluster, 1, [&](log::LogState& state) { state.configuration = before; });
    cluster.cut_off(1, true);
    log = cluster.opened({0, 1, 3});
    ASSERT_NE(log, nullptr);
    ASSERT_TRUE(log->trim(log->status().tail).ok());
    Cluster::append(*log, 2);
    Cluster::settle(*log);
    const std::uint64_t next = log->status().next_index;
    cluster.cut_off(1, false);
    cluster.world().cut_after(cluster.server(1).machine(), events);
    const auto reports = log->repair(std::chrono::milliseconds(500));
    cluster.world().cancel_cut();
    brought = !reports.empty() && reports[0].repaired;
    Cluster::settle(*log);
    log.reset();
    cluster.stop(1);
    cluster.start(1);
    const log::LogState one = cluster.scan(1).start.state();
    if (one.head.index != 0 && one.epoch == Epoch{1} && !one.marks.any()) ++trimmed;
    cluster.cut_off(0, true);
    cluster.cut_off(3, true);
    cluster.cut_off(2, false);
    EXPECT_FALSE(cluster.open({0, 1, 2}).ok()) << "cut after " << events << " events";
    EXPECT_FALSE(cluster.open({1, 2}).ok()) << "cut after " << events << " events";
    cluster.cut_off(0, false);
    cluster.cut_off(3, false);
    const auto opened = cluster.open({0, 1, 3});
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    EXPECT_EQ((*opened)->status().next_index, next) << "cut after " << events << " events";
    if (HasFailure()) return;
  }
  EXPECT_GT(trimmed, 0u);
  EXPECT_TRUE(brought);
}

}  // namespace
}  // namespace perdure
