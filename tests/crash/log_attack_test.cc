// What an enemy of the log tried: each test states what must hold under one attack on the laws of
// docs/log-protocol.md.
#include <functional>

#include "testing/relayed_peer.h"
#include "testing/soak.h"
#include "tests/crash/log_cluster.h"

namespace perdure {
namespace {

/// A peer that lets somebody act at a moment.
class HookedPeer final : public test::RelayedPeer {
 public:
  using RelayedPeer::RelayedPeer;
  std::uint32_t described_epochs = 0;  // more than the pool has
  std::string called;                  // empty: as the real one
  std::function<Result<void>(const control::SessionRequest&)> before_session;
  std::function<void(client::Session&, const control::SessionRequest&)> after_session;
  std::string name() const override { return called.empty() ? RelayedPeer::name() : called; }
  Result<control::PoolDescription> describe(const std::string& pool, Deadline d) override {
    auto description = RelayedPeer::describe(pool, d);
    if (description.ok()) description->epoch.value += described_epochs;
    return description;
  }
  Result<client::Session> open_session(const control::SessionRequest& r, Deadline d) override {
    if (before_session) {
      if (auto may = before_session(r); !may.ok()) return may.error();
    }
    auto session = RelayedPeer::open_session(r, d);
    if (session.ok() && after_session) after_session(*session, r);
    return session;
  }
};

/// A connection over which some bytes of the pool can not be read: whoever tries loses it.
class UnreadableEndpoint final : public fabric::Endpoint {
 public:
  struct Bytes {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    int spared = 0;  // READs of them that still succeed
    int failed = 0;  // READs
  };
  UnreadableEndpoint(std::unique_ptr<fabric::Endpoint> real, std::shared_ptr<Bytes> bytes)
      : real_(std::move(real)), bytes_(std::move(bytes)) {}
  Result<std::size_t> post(std::span<const fabric::WorkRequest> requests) override {
    for (const fabric::WorkRequest& each : requests) {
      const std::uint64_t end = each.remote_offset + fabric::total_length(each);
      if (each.opcode != fabric::Opcode::Read || each.remote_offset >= bytes_->end ||
          end <= bytes_->begin) {
        continue;
      }
      if (bytes_->spared > 0) {
        --bytes_->spared;
        continue;
      }
      ++bytes_->failed;
      real_->disconnect();
    }
    return real_->post(requests);
  }
  Result<void> post_receive(const fabric::Segment& buffer, std::uint64_t context) override {
    return real_->post_receive(buffer, context);
  }
  std::size_t poll(std::span<fabric::Completion> completions) override {
    return real_->poll(completions);
  }
  bool arm() override { return real_->arm(); }
  int wait_fd() const override { return real_->wait_fd(); }
  bool connected() const override { return real_->connected(); }
  void disconnect() override { real_->disconnect(); }
  const fabric::Limits& limits() const override { return real_->limits(); }
  Transport transport() const override { return real_->transport(); }
  Capabilities capabilities() const override { return real_->capabilities(); }

 private:
  std::unique_ptr<fabric::Endpoint> real_;
  std::shared_ptr<Bytes> bytes_;
};

/// The three peers, each with what `hook` puts into it.
std::vector<std::unique_ptr<client::Peer>> hooked(
    Cluster& cluster, const std::function<void(std::size_t index, HookedPeer&)>& hook) {
  std::vector<std::unique_ptr<client::Peer>> peers;
  for (std::size_t index = 0; index < 3; ++index) {
    auto peer = std::make_unique<HookedPeer>(cluster.peer(index));
    hook(index, *peer);
    peers.push_back(std::move(peer));
  }
  return peers;
}

/// Appends that find no quorum any more, for 2 alone has them; then all are up, and nobody writes.
void append_to_2_alone(Cluster& cluster, Writer& log) {
  const std::string record(3000, 'y');
  for (int i = 0; i < 5; ++i) (void)log->append(std::as_bytes(std::span(record)));
  for (int i = 0; i < 200; ++i) (void)log->poll();
  log.reset();
  cluster.start(0);
  cluster.start(1);
}

/// A writer that loses both others right after it has fenced them: it dies when it has begun its
/// epoch on 2 alone.
void begin_an_epoch_on_2_alone(Cluster& cluster) {
  auto peers = hooked(cluster, [](std::size_t index, HookedPeer& peer) {
    if (index == 2) return;
    peer.after_session = [](client::Session& session, const control::SessionRequest& request) {
      if (request.write) session.endpoint->disconnect();
    };
  });
  EXPECT_FALSE(cluster.open(std::move(peers), cluster.options()).ok());
}

TEST(LogAttack, AWrapWhileStagingIsFullDoesNotAbort) {
  Cluster cluster(3, log::kRingAt + 8 * 1024 * 1024);
  WriterOptions options = cluster.options();
  options.record_bytes_max = 256 * 1024;
  options.replica_timeout = std::chrono::seconds(100);
  auto opened = cluster.open({0, 1, 2}, options);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  Writer log = std::move(opened).value();
  const std::string record(250 * 1024, 'x');
  const auto put = [&] { return log->append(std::as_bytes(std::span(record))); };
  for (int i = 0; i < 12; ++i) {
    const auto ticket = put();
    ASSERT_TRUE(ticket.ok());
    ASSERT_TRUE(log->wait(*ticket, Level::Committed, std::chrono::seconds(10)).ok());
  }
  ASSERT_TRUE(log->trim(log->status().tail).ok());
  // Which replica is ahead of the others is a matter of chance here.
  for (int lap = 0; lap < 40; ++lap) {
    Ticket last;
    for (int i = 0; i < 24; ++i) {
      const auto ticket = put();
      ASSERT_TRUE(ticket.ok()) << i << ": " << ticket.error().message;
      last = *ticket;
    }
    ASSERT_TRUE(log->wait(last, Level::Committed, std::chrono::seconds(10)).ok());
    ASSERT_TRUE(log->trim(log->status().tail).ok());
  }
}

TEST(LogAttack, ATakeOverDuringCreationDoesNotWipeWhatWasCommittedMeanwhile) {
  Cluster cluster;
  Writer first;
  auto peers = hooked(cluster, [&](std::size_t, HookedPeer& peer) {
    peer.described_epochs = 1;  // as if the first writer had its sessions by then
    peer.before_session = [&](const control::SessionRequest& request) -> Result<void> {
      if (!request.write || first) return {};
      // The second writer, which found nothing, is stopped for a while before its first fence.
      first = cluster.opened();
      EXPECT_EQ(Cluster::append(*first, 5).size(), 5u);
      return {};
    };
  });
  auto second = cluster.open(std::move(peers), cluster.options());
  ASSERT_NE(first, nullptr);
  EXPECT_FALSE(second.ok()) << "there is a log by now";
  first.reset();
  auto again = cluster.open();
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ((*again)->status().next_index, 5u) << "five records were committed";
}

// The one that is not reached may be all that was ended of a creation by somebody else: then what
// the others say of it must stand, or they and it are of two logs, and neither ever opens.
TEST(LogAttack, CreationWritesNothingBeforeEverybodyIsFenced) {
  Cluster cluster;
  auto peers = hooked(cluster, [](std::size_t index, HookedPeer& peer) {
    peer.before_session = [index](const control::SessionRequest& request) -> Result<void> {
      if (index != 2 || !request.write) return {};
      return Error{ErrorCode::Disconnected, "just now"};
    };
  });
  EXPECT_EQ(cluster.open(std::move(peers), cluster.options()).code(), ErrorCode::QuorumLost);
  for (std::size_t index = 0; index < 3; ++index) {
    cluster.on_medium(index, [](std::span<std::byte> bytes) {
      LocalBytes local(bytes);
      const auto start = log::read_start(local);
      ASSERT_TRUE(start.ok());
      EXPECT_FALSE(start->anchor || start->stored);
    });
  }
  EXPECT_TRUE(cluster.open().ok());
}

// Its state can not be read back: it was looked at before, and when everybody was fenced.
TEST(LogAttack, CreationCountsNobodyThatCanNotBeReadAgain) {
  Cluster cluster;
  const auto bytes = std::make_shared<UnreadableEndpoint::Bytes>();
  *bytes = {log::kStateAt, log::kStateAt + log::kStateBytes, 2, 0};
  auto peers = hooked(cluster, [&](std::size_t index, HookedPeer& peer) {
    if (index != 0) return;
    peer.after_session = [&](client::Session& session, const control::SessionRequest& request) {
      if (request.write) return;
      session.endpoint = std::make_unique<UnreadableEndpoint>(std::move(session.endpoint), bytes);
    };
  });
  auto created = cluster.open(std::move(peers), cluster.options());
  ASSERT_TRUE(created.ok()) << created.error().message;
  EXPECT_EQ(bytes->failed, 1);
  EXPECT_FALSE((*created)->status().replicas[0].up);
  Cluster::append(**created, 3);
  bytes->end = 0;
  Cluster::expect_repaired((*created)->repair(), 1);
  Cluster::settle(**created);
  cluster.expect_all(0, 3);
}

// A place of the first source can not be read, whatever it is read for: where what the replica has
// ends, or further on. Another one is taken, and the replica is not blamed for it.
TEST(LogAttack, ASourceThatCanNotBeReadKeepsNoReplicaAway) {
  constexpr int kHad = 40;
  for (const bool blank : {false, true}) {
    int failed = 0;
    for (int unreadable = 0; unreadable < 2 * kHad; unreadable += kHad / 8) {
      Cluster cluster;
      const auto bytes = std::make_shared<UnreadableEndpoint::Bytes>();
      auto peers = hooked(cluster, [&](std::size_t index, HookedPeer& peer) {
        if (index != 0) return;
        peer.after_session = [&](client::Session& session, const control::SessionRequest& request) {
          if (request.write) return;
          session.endpoint =
              std::make_unique<UnreadableEndpoint>(std::move(session.endpoint), bytes);
        };
      });
      auto opened = cluster.open(std::move(peers), cluster.options());
      ASSERT_TRUE(opened.ok()) << opened.error().message;
      Writer log = std::move(opened).value();
      auto tickets = Cluster::append(*log, kHad);
      Cluster::settle(*log);
      cluster.stop(2);
      const auto more = Cluster::append(*log, kHad);
      tickets.insert(tickets.end(), more.begin(), more.end());
      cluster.start(2);
      if (blank) cluster.wipe(2);
      const Ticket& lost = tickets[static_cast<std::size_t>(unreadable)];
      bytes->begin = log::kRingAt + lost.lsn.value;
      bytes->end = log::kRingAt + lost.end.value;
      const auto reports = log->repair();
      ASSERT_FALSE(reports.empty());
      EXPECT_EQ(reports[0].peer, "server2");
      EXPECT_TRUE(reports[0].repaired) << unreadable << ": " << reports[0].error;
      EXPECT_EQ(log->status().replicas[0].up, bytes->failed == 0);
      failed += bytes->failed;
      Cluster::append(*log, 3);
      // Expect: it comes back when it can be read, or read around.
      bytes->end = 0;
      (void)log->repair();
      Cluster::append(*log, 1);
      Cluster::settle(*log);
      cluster.expect_all(0, 2 * kHad + 4);
      if (testing::Test::HasFailure()) FAIL() << blank << ", " << unreadable;
    }
    EXPECT_GT(failed, 0);
  }
}

/// A log of which 2 lacks the second half, if it is not blank; opened by peers of which the first
/// can not be read once it has been surveyed. The records begin at `unreadable`.
struct UnreadableAtOpening {
  UnreadableAtOpening(int had, int unreadable, bool blank) {
    Writer log = cluster.opened();
    auto tickets = Cluster::append(*log, had);
    Cluster::settle(*log);
    cluster.stop(2);
    const auto more = Cluster::append(*log, had);
    tickets.insert(tickets.end(), more.begin(), more.end());
    Cluster::settle(*log);
    log.reset();
    cluster.start(2);
    if (blank) cluster.wipe(2);
    const Ticket& lost = tickets[static_cast<std::size_t>(unreadable)];
    bytes->begin = log::kRingAt + lost.lsn.value;
    bytes->end = log::kRingAt + lost.end.value;
    bytes->spared = 1;
  }
  Result<Writer> open() {
    auto peers = hooked(cluster, [&](std::size_t index, HookedPeer& peer) {
      if (index != 0) return;
      peer.after_session = [&](client::Session& session, const control::SessionRequest& request) {
        if (request.write) return;
        session.endpoint = std::make_unique<UnreadableEndpoint>(std::move(session.endpoint), bytes);
      };
    });
    return cluster.open(std::move(peers), cluster.options());
  }

  Cluster cluster;
  const std::shared_ptr<UnreadableEndpoint::Bytes> bytes =
      std::make_shared<UnreadableEndpoint::Bytes>();
};

// The same when the log is opened: its history is that of the first, which is read again for 2.
TEST(LogAttack, ASourceThatCanNotBeReadAnyMoreAtOpeningKeepsNoReplicaAway) {
  constexpr int kHad = 40;
  for (const bool blank : {false, true}) {
    int failed = 0;
    for (int unreadable = 0; unreadable < 2 * kHad; unreadable += kHad / 8) {
      UnreadableAtOpening world(kHad, unreadable, blank);
      auto opened = world.open();
      ASSERT_TRUE(opened.ok()) << opened.error().message;
      Writer log = std::move(opened).value();
      failed += world.bytes->failed;
      EXPECT_EQ(log->status().replicas[0].up, world.bytes->failed == 0);
      EXPECT_TRUE(log->status().replicas[1].up) << log->status().replicas[1].down_reason;
      EXPECT_TRUE(log->status().replicas[2].up) << log->status().replicas[2].down_reason;
      const auto repairs = log->take_repairs();
      ASSERT_EQ(repairs.size(), 1u);
      EXPECT_EQ(repairs[0].peer, "server2");
      const std::string all = fmt::format(
          "holds nothing, although it is a replica, and lacks 80 records (LSN 64 to {})",
          log->status().tail.value);
      EXPECT_EQ(repairs[0].found, blank ? all : "40 records behind");
      EXPECT_TRUE(repairs[0].repaired) << repairs[0].error;
      Cluster::append(*log, 3);
      world.bytes->end = 0;
      (void)log->repair();
      Cluster::append(*log, 1);
      Cluster::settle(*log);
      world.cluster.expect_all(0, 2 * kHad + 4);
      if (testing::Test::HasFailure()) FAIL() << blank << ", " << unreadable;
    }
    EXPECT_GT(failed, 0);
  }
}

// With nobody else to copy from, it is said who could not be read.
TEST(LogAttack, AnOpeningThatFailsBecauseOfItsSourceSaysSo) {
  UnreadableAtOpening world(40, 60, false);
  world.cluster.cut_off(1, true);
  world.bytes->spared = 2;  // where not all answer, rings are read before anybody is fenced
  const auto refused = world.open();
  ASSERT_FALSE(refused.ok());
  ASSERT_GT(world.bytes->failed, 0);
  const std::string& words = refused.error().message;
  EXPECT_NE(words.find("server0: the connection is down"), std::string::npos) << words;
  EXPECT_NE(words.find("server2: nobody is left to copy it from"), std::string::npos) << words;
  world.cluster.cut_off(1, false);
  world.bytes->end = 0;
  Writer log = world.cluster.opened();
  ASSERT_NE(log, nullptr);
  Cluster::append(*log, 1);
  Cluster::settle(*log);
  world.cluster.expect_all(0, 81);
}

TEST(LogAttack, ATrimIsNotAcknowledgedByAMinorityAndAFailedNewcomer) {
  Cluster cluster(4);
  Writer log = cluster.opened();
  const auto tickets = Cluster::append(*log, 30);
  EXPECT_FALSE(log->add_replica(cluster.peer(3), 99).ok());
  cluster.stop(1);
  cluster.stop(2);
  for (int i = 0; i < 50; ++i) (void)log->poll();
  const auto trimmed = log->trim(tickets[20].lsn);
  log.reset();
  cluster.stop(0);
  cluster.start(1);
  cluster.start(2);
  log = cluster.opened();
  ASSERT_NE(log, nullptr);
  if (trimmed.ok()) {
    EXPECT_EQ(log->status().head, tickets[20].lsn) << "a trim was acknowledged";
  }
}

TEST(LogAttack, AfterAcceptedLossAReplicaThatWasAwayDoesNotCloseTheLog) {
  Cluster cluster;
  Writer log = cluster.opened();
  const auto tickets = Cluster::append(*log, 30);
  Cluster::settle(*log);
  log.reset();
  cluster.stop(2);
  cluster.flip_record(0, tickets[20].lsn);
  cluster.flip_record(1, tickets[20].lsn);
  WriterOptions options = cluster.options();
  options.accept_loss = true;
  auto accepted = cluster.open({0, 1, 2}, options);
  ASSERT_TRUE(accepted.ok()) << accepted.error().message;
  log = std::move(accepted).value();
  Cluster::append(*log, 2);
  Cluster::settle(*log);
  log.reset();
  cluster.start(2);
  auto again = cluster.open();
  EXPECT_TRUE(again.ok()) << again.error().message;
}

TEST(LogAttack, AcceptedLossWorksWhereTheHeadIsBeyondWhatIsLeft) {
  Cluster cluster;
  Writer log = cluster.opened();
  Cluster::append(*log, 10);
  Cluster::settle(*log);
  cluster.stop(2);
  const auto tickets = Cluster::append(*log, 20);
  ASSERT_TRUE(log->trim(tickets[15].lsn).ok());
  Cluster::settle(*log);
  log.reset();
  put_state(cluster, 0, [](log::LogState& state) { state.marks.incomplete = true; });
  cluster.wipe(1);
  cluster.start(2);
  EXPECT_FALSE(cluster.open().ok());
  WriterOptions options = cluster.options();
  options.accept_loss = true;
  auto accepted = cluster.open({0, 1, 2}, options);
  EXPECT_TRUE(accepted.ok()) << accepted.error().message;
}

TEST(LogAttack, CrashesWhileBringingToEqualNeverCloseALogThatHasLostNothing) {
  for (std::uint64_t k = 1; k < 3000; k += test::soak() ? 25 : 75) {
    Cluster cluster;
    Writer log = cluster.opened();
    Cluster::append(*log, 5);
    cluster.stop(0);
    cluster.stop(1);
    for (int i = 0; i < 50; ++i) (void)log->poll();
    (void)log.reset();
    cluster.start(0);
    cluster.start(1);
    log = cluster.opened();
    Cluster::append(*log, 5);
    cluster.stop(0);
    cluster.stop(1);
    append_to_2_alone(cluster, log);
    begin_an_epoch_on_2_alone(cluster);
    // The power of 0 fails while it is brought to equal.
    cluster.world().cut_after(cluster.server(0).machine(), k);
    (void)cluster.open({0, 2}, [&] {
      auto o = cluster.options();
      o.partial = true;
      return o;
    }());
    cluster.world().cancel_cut();
    cluster.stop(0);
    cluster.start(0);
    cluster.stop(0);
    // And while it is away, that of 1.
    cluster.world().cut_after(cluster.server(1).machine(), k);
    (void)cluster.open();
    cluster.world().cancel_cut();
    cluster.stop(1);
    cluster.start(1);
    cluster.start(0);
    auto last = cluster.open();
    ASSERT_TRUE(last.ok()) << "k " << k << ": " << last.error().message;
    EXPECT_GE((*last)->status().next_index, 10u) << "k " << k;
  }
}

TEST(LogAttack, AnOpeningThatFailsForWantOfPeersFencesNobody) {
  Cluster cluster;
  Writer first = cluster.opened();
  Cluster::append(*first, 3);
  cluster.stop(2);
  Cluster::append(*first, 3);
  cluster.start(2);
  WriterOptions polite = cluster.options();
  polite.take_over = false;
  polite.partial = true;
  EXPECT_EQ(cluster.open(Order{2}, polite).code(), ErrorCode::QuorumLost);
  (void)first->poll();
  Cluster::expect_repaired(first->repair(), 1);
  cluster.stop(1);
  const std::string record = "one more";
  ErrorCode code = ErrorCode::TimedOut;
  for (int round = 0; round < 5; ++round) {
    (void)first->repair();
    const auto ticket = first->append(std::as_bytes(std::span(record)));
    const auto waited = ticket.ok()
                            ? first->wait(*ticket, Level::Committed, std::chrono::milliseconds(20))
                            : Result<void>(ticket.error());
    if (waited.ok()) return;
    code = waited.code();
    std::printf("  %s\n", waited.error().message.c_str());
  }
  EXPECT_NE(code, ErrorCode::Fenced) << "nobody has taken over";
}

TEST(LogAttack, ReadingFromAnyPlaceIsNoReasonToCrash) {
  Cluster cluster;
  Writer log = cluster.opened();
  Cluster::append(*log, 3);
  Cluster::settle(*log);
  auto bytes = cluster.server(0).region().bytes().subspan(pmem::kPoolDataOffset, kPoolBytes);
  LocalBytes local(bytes);
  auto reader = log::CommittedReader::open(local, {Lsn{65536 - 8}, false, "it"});
  if (reader.ok()) (void)reader->next();
}
TEST(LogAttack, TrimmingToAnyPlaceIsNoReasonToCrash) {
  Cluster cluster;
  Writer log = cluster.opened();
  const auto tickets = Cluster::append(*log, 150);
  ASSERT_TRUE(log->trim(tickets[100].lsn).ok());
  Cluster::append(*log, 80);
  EXPECT_FALSE(log->trim(Lsn{65536 - 8}).ok());
}
TEST(LogAttack, AHeadInAStateIsNoReasonToCrash) {
  Cluster cluster;
  Writer log = cluster.opened();
  Cluster::append(*log, 3);
  log.reset();
  put_state(cluster, 1, [](log::LogState& state) { state.head.lsn = Lsn{65536 - 8}; });
  (void)cluster.open();
}

TEST(LogAttack, DamageOfALargeRecordsHeaderIsSeen) {
  Cluster cluster(3, log::kRingAt + 8 * 1024 * 1024);
  WriterOptions options = cluster.options();
  options.record_bytes_max = 512 * 1024;
  auto opened = cluster.open({0, 1, 2}, options);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  Writer log = std::move(opened).value();
  const std::string record(300 * 1024, 'x');
  std::vector<Ticket> tickets;
  const auto put = [&](int count) {
    for (int i = 0; i < count; ++i) {
      const auto ticket = log->append(std::as_bytes(std::span(record)));
      ASSERT_TRUE(ticket.ok());
      ASSERT_TRUE(log->wait(*ticket, Level::Committed, std::chrono::seconds(10)).ok());
      tickets.push_back(*ticket);
    }
  };
  put(3);
  cluster.stop(1);
  put(9);
  log.reset();
  // A page of replica 0 is lost, with the header of record 5.
  cluster.on_medium(0, [&](std::span<std::byte> bytes) {
    const std::uint64_t at = (log::kRingAt + tickets[5].lsn.value) / 4096 * 4096;
    std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), 4096, std::byte{0});
  });
  cluster.start(1);
  cluster.stop(2);
  auto again = cluster.open({0, 1, 2}, options);
  if (again.ok()) {
    EXPECT_EQ((*again)->status().next_index, 12u) << "committed records are gone, silently";
  } else {
    EXPECT_EQ(again.code(), ErrorCode::Corrupt);
  }
}

TEST(LogAttack, TheLastLsnIsNoReasonToAbort) {
  Cluster cluster;
  Writer log = cluster.opened();
  log.reset();
  const std::uint64_t end = std::uint64_t{1} << 48;
  for (std::size_t index = 0; index < 3; ++index) {
    put_state(cluster, index, [&](log::LogState& state) {
      state.head.lsn = Lsn{end - 8192};
      state.begin = state.head.lsn;
    });
  }
  log = cluster.opened();
  ASSERT_NE(log, nullptr);
  ASSERT_EQ(log->status().tail.value, end - 8192);
  for (const std::size_t bytes : {4096, 8184 - 4128 - 32}) {
    const std::string record(bytes, 'z');
    const auto ticket = log->append(std::as_bytes(std::span(record)));
    if (!ticket.ok() && ticket.code() == ErrorCode::Unsupported) break;  // it says that LSNs end
    ASSERT_TRUE(ticket.ok()) << ticket.error().message;
    ASSERT_TRUE(log->wait(*ticket, Level::Committed, std::chrono::seconds(1)).ok());
  }
  // A change of the replicas needs more than is left. Expect: it is refused, and nothing changed.
  const std::string last(end - log->status().tail.value - 128, 'z');
  ASSERT_TRUE(log->append(std::as_bytes(std::span(last))).ok());
  const std::string before = log->status().configuration;
  const std::string third = log->status().replicas[2].pool_uuid;
  EXPECT_EQ(log->change_quorum(3).code(), ErrorCode::Unsupported);
  EXPECT_EQ(log->remove_replica(third, 2).code(), ErrorCode::Unsupported);
  EXPECT_EQ(log->status().configuration, before);
  Cluster::settle(*log);
  log.reset();
  EXPECT_NE(cluster.opened(), nullptr);
}

/// Puts a record that begins at the tail of an empty log and ends behind the last LSN there is.
void put_record_beyond_the_last_lsn(std::span<std::byte> bytes, const log::LogState& state) {
  const std::vector<std::byte> payload(8000, std::byte{7});
  log::RecordHeader header;
  header.payload_bytes = static_cast<std::uint32_t>(payload.size());
  header.lsn = state.head.lsn;
  header.index = state.head.index;
  header.epoch = state.epoch;
  header.previous_crc = state.head.crc;
  const std::uint64_t offset = header.lsn.value % state.anchor.ring_bytes;
  ASSERT_LE(offset + log::record_bytes(payload.size()), state.anchor.ring_bytes);
  (void)log::encode_record(header, state.anchor.seed, payload,
                           bytes.data() + log::kRingAt + offset);
}

TEST(LogAttack, ARecordThatEndsBehindTheLastLsnIsNone) {
  for (const LogShape shape : {LogShape::Singleton, LogShape::Compound}) {
    Cluster cluster(3, log::kRingAt + 72 * 1024);  // so that the ring does not end there
    WriterOptions options = cluster.options();
    options.shape = shape;
    auto created = cluster.open({0, 1, 2}, options);
    ASSERT_TRUE(created.ok()) << created.error().message;
    created->reset();
    const Lsn near_the_end{log::kLsnMax + 1 - 4096};
    for (std::size_t index = 0; index < 3; ++index) {
      log::LogState said;
      put_state(cluster, index, [&](log::LogState& state) {
        state.head.lsn = state.begin = near_the_end;
        said = state;
      });
      cluster.on_medium(index, [&](std::span<std::byte> bytes) {
        store(bytes.data() + log::kTailWordAt, log::encode_word(near_the_end));
        put_record_beyond_the_last_lsn(bytes, said);
      });
      EXPECT_EQ(cluster.scan(index).tail, near_the_end);
    }
    // Expect: the log goes on before it, and what is written then can be read.
    for (int opening = 0; opening < 2; ++opening) {
      Writer log = cluster.opened();
      ASSERT_NE(log, nullptr);
      Cluster::append(*log, 1);
      Cluster::settle(*log);
    }
    for (std::size_t index = 0; index < 3; ++index) {
      const log::ScanReport report = cluster.scan(index);
      EXPECT_EQ(report.next_index, 2u);
      EXPECT_LE(report.start.state().begin.value, log::kLsnMax);
    }
  }
}

/// What a record would be that lies in the payload of the one at `at`, a lap later.
std::vector<std::byte> image_within(Lsn at, const log::LogState& state, std::uint32_t seed) {
  log::RecordHeader header;
  header.payload_bytes = 64;
  header.lsn = Lsn{at.value + log::kRecordHeaderBytes + state.anchor.ring_bytes};
  header.index = 100;
  header.epoch = state.epoch;
  header.committed = header.lsn;
  std::vector<std::byte> bytes(log::record_bytes(header.payload_bytes));
  const std::vector<std::byte> payload(header.payload_bytes, std::byte{7});
  (void)log::encode_record(header, seed, payload, bytes.data());
  return bytes;
}

// Who chooses payloads knows where they come to lie, and of which epoch; not the seed.
TEST(LogAttack, APayloadThatLooksLikeALaterRecordIsNone) {
  for (const bool knows_the_seed : {false, true}) {
    SCOPED_TRACE(knows_the_seed);
    Cluster cluster;
    Writer log = cluster.opened();
    ASSERT_NE(log, nullptr);
    const log::LogState state = cluster.scan(0).start.state();
    ASSERT_NE(state.anchor.seed, 0u);
    const auto image =
        image_within(log->status().tail, state, knows_the_seed ? state.anchor.seed : 0);
    const auto put = log->append(image);
    ASSERT_TRUE(put.ok()) << put.error().message;
    Cluster::append(*log, 3);
    ASSERT_TRUE(log->trim(put->end).ok());
    Cluster::settle(*log);
    log.reset();
    const log::ScanReport report = cluster.scan(0);
    EXPECT_EQ(report.damaged(), knows_the_seed);
    const auto again = cluster.open();
    // The negative control: with the seed it is taken for a record that a hole cut off.
    EXPECT_EQ(again.ok(), !knows_the_seed);
    if (again.ok()) cluster.expect_all(1, 4);
  }
}

TEST(LogAttack, AStateThatNobodyCouldReadIsNotWritten) {
  Cluster cluster;
  Writer log = cluster.opened();
  Cluster::append(*log, 3);
  log.reset();
  const log::LogState state = cluster.scan(0).start.state();
  log::Staging staging(1024 * 1024);  // goes after what is registered of it
  log::Replica replica(cluster.peer(0), [&] {
    log::ReplicaOptions each;
    each.session.measure_costs = false;
    each.session.clock = &cluster.world().clock();
    return each;
  }());
  control::SessionRequest request;
  request.pool = kPool;
  request.write = true;
  request.epoch = Epoch{state.epoch.value + 1};
  request.writer = 99;
  request.take_over = true;
  ASSERT_TRUE(replica.open_session(request).ok());
  ASSERT_TRUE(replica.prepare(LogShape::Singleton, staging).ok());
  replica.note_state(cluster.scan(0).start.stored);
  log::LogState impossible = state;
  impossible.begin = Lsn{log::kLsnMax + 1};
  EXPECT_EQ(replica.write_state(impossible).code(), ErrorCode::Corrupt);
  impossible = state;
  impossible.head.lsn.value += 1;
  EXPECT_EQ(replica.write_state(impossible).code(), ErrorCode::Corrupt);
  EXPECT_EQ(cluster.scan(0).start.state(), state);
  EXPECT_TRUE(replica.write_state(state).ok());
}

TEST(LogAttack, AFollowerThatHasReadEverythingIsNotToldThatItMissedSomething) {
  Cluster cluster;
  Writer log = cluster.opened();
  auto tickets = Cluster::append(*log, 100);
  ASSERT_TRUE(log->trim(tickets[90].lsn).ok());
  while (65536 - log->status().tail.value % 65536 >= 332 + 32) Cluster::append(*log, 1);
  Cluster::settle(*log);
  auto bytes = cluster.server(0).region().bytes().subspan(pmem::kPoolDataOffset, kPoolBytes);
  LocalBytes local(bytes);
  auto reader = log::CommittedReader::open(local, {Lsn{}, false, "it"});
  ASSERT_TRUE(reader.ok());
  std::uint64_t next = 0;
  while (true) {
    const auto record = reader->next();
    ASSERT_TRUE(record.ok());
    if (!*record) break;
    next = (*record)->index + 1;
  }
  ASSERT_EQ(next, log->status().next_index);
  // The consumer has everything; the next record wraps, and what was consumed is trimmed.
  const auto more = Cluster::append(*log, 1);
  ASSERT_TRUE(log->trim(more[0].lsn).ok());
  const auto record = reader->next();
  ASSERT_TRUE(record.ok()) << record.error().message;
}

TEST(LogAttack, TrimDoesNotTakeWhatAPadHidesForARecord) {
  Cluster cluster;
  Writer log = cluster.opened();
  auto tickets = Cluster::append(*log, 100);
  ASSERT_TRUE(log->trim(tickets[90].lsn).ok());
  while (65536 - log->status().tail.value % 65536 >= 1400) Cluster::append(*log, 1);
  Cluster::settle(*log);
  cluster.stop(1);
  cluster.stop(2);
  const std::string never(300, 'n');
  std::vector<Ticket> lost;
  for (int i = 0; i < 2; ++i) {
    const auto ticket = log->append(std::as_bytes(std::span(never)));
    if (!ticket.ok()) break;
    lost.push_back(*ticket);
  }
  if (lost.size() == 2) (void)log->wait(lost[1], Level::Durable, std::chrono::seconds(1));
  ASSERT_EQ(lost.size(), 2u);
  log.reset();
  cluster.stop(0);
  cluster.start(1);
  cluster.start(2);
  log = cluster.opened();
  const std::string large(3000, 'l');
  const auto ticket = log->append(std::as_bytes(std::span(large)));
  ASSERT_TRUE(ticket.ok());
  ASSERT_TRUE(log->wait(*ticket, Level::Committed, std::chrono::seconds(1)).ok());
  cluster.start(0);
  Cluster::expect_repaired(log->repair(), 1);
  Cluster::settle(*log);
  log.reset();
  log = cluster.opened();
  auto bytes = cluster.server(0).region().bytes().subspan(pmem::kPoolDataOffset, kPoolBytes);
  LocalBytes local(bytes);
  auto reader = log::CommittedReader::open(local, {lost[1].lsn, false, "it"});
  if (reader.ok()) {
    const auto record = reader->next();
    EXPECT_FALSE(record.ok() && *record) << "a record that was never committed is read";
  }
  EXPECT_FALSE(log->trim(lost[1].lsn).ok()) << "no record begins there";
  log.reset();
  auto again = cluster.open();
  EXPECT_TRUE(again.ok()) << again.error().message;
}

TEST(LogAttack, APeerThatSaysCorruptIsNoReasonToCrash) {
  Cluster cluster;
  { Writer log = cluster.opened(); }
  auto peers = hooked(cluster, [](std::size_t index, HookedPeer& peer) {
    if (index != 1) return;
    peer.before_session = [](const control::SessionRequest&) -> Result<void> {
      return Error{ErrorCode::Corrupt, "pool 'log' is unavailable: damaged pool"};
    };
  });
  EXPECT_TRUE(cluster.open(std::move(peers), cluster.options()).ok());
}

TEST(LogAttack, ACutWhileAReplicaCatchesUpAfterATrimLeavesItWhole) {
  int damaged = 0, shorter = 0, tried = 0;
  for (std::uint64_t k = 1; k < 600; k += 12) {
    Cluster cluster;
    Writer log = cluster.opened();
    const auto tickets = Cluster::append(*log, 150);
    cluster.stop(2);
    ASSERT_TRUE(log->trim(tickets[140].lsn).ok());
    Cluster::append(*log, 150);
    cluster.start(2);
    for (int i = 0; i < 5; ++i) (void)log->poll();
    cluster.world().cut_after(cluster.server(2).machine(), k);
    (void)log->repair();
    cluster.world().cancel_cut();
    cluster.stop(2);
    cluster.start(2);
    const auto report = cluster.scan(2);
    ++tried;
    if (report.start.state().marks.incomplete) continue;
    if (report.damaged())
      ++damaged;
    else if (report.next_index < 150)
      ++shorter;
  }
  std::printf("  of %d cuts: %d left it damaged, %d whole and shorter than it was\n", tried,
              damaged, shorter);
  EXPECT_EQ(damaged + shorter, 0);
}

TEST(LogAttack, ARepairThatRunsOutOfTimeLeavesHealthyReplicasUp) {
  int downs = 0, both = 0, tried = 0, repaired = 0;
  Cluster cluster(3, log::kRingAt + 8 * 1024 * 1024);
  WriterOptions options = cluster.options();
  options.record_bytes_max = 256 * 1024;
  options.replica_timeout = std::chrono::seconds(10);
  auto opened = cluster.open({0, 1, 2}, options);
  ASSERT_TRUE(opened.ok());
  Writer log = std::move(opened).value();
  const std::string record(200 * 1024, 'x');
  for (int i = 0; i < 25; ++i) {
    const auto ticket = log->append(std::as_bytes(std::span(record)));
    ASSERT_TRUE(ticket.ok());
    ASSERT_TRUE(log->wait(*ticket, Level::Committed, std::chrono::seconds(10)).ok());
  }
  for (int us = 50; us < 20000 && tried < 120; us += us / 16 + 10) {
    cluster.stop(2);
    cluster.start(2);
    cluster.wipe(2);
    for (int i = 0; i < 5; ++i) (void)log->poll();
    const std::string small(4096, 's');
    for (int i = 0; i < 4; ++i) (void)log->append(std::as_bytes(std::span(small)));  // in flight
    const auto reports = log->repair(std::chrono::microseconds(us));
    const LogStatus status = log->status();
    ++tried;
    repaired += status.replicas[2].up ? 1 : 0;
    const int down = (status.replicas[0].up ? 0 : 1) + (status.replicas[1].up ? 0 : 1);
    downs += down > 0 ? 1 : 0;
    both += down == 2 ? 1 : 0;
    if (down > 0 && downs < 6) {
      std::printf("  after repair(%d us) of 2: 0: %s | 1: %s\n", us,
                  status.replicas[0].down_reason.c_str(), status.replicas[1].down_reason.c_str());
    }
    if (down > 0) {
      (void)log->repair();
      (void)log->repair();
    }
  }
  std::printf("  of %d repairs %d succeeded, %d took a healthy replica down, %d both\n", tried,
              repaired, downs, both);
  EXPECT_EQ(downs, 0);
}

TEST(LogAttack, APoolThatWasUsedBeforeIsRefusedWithAdvice) {
  Cluster cluster(4);
  EXPECT_TRUE(
      cluster.peer(3)->fence(kPool, Epoch{1000}, Deadline::after(std::chrono::seconds(1))).ok());
  Writer log = cluster.opened();
  Cluster::append(*log, 3);
  const auto added = log->add_replica(cluster.peer(3), 0);
  ASSERT_FALSE(added.ok());
  EXPECT_NE(added.error().message.find("never used"), std::string::npos) << added.error().message;
}

TEST(LogAttack, AReaderOfUncommittedRecordsIsToldThatTheyWereReplaced) {
  Cluster cluster;
  Writer log = cluster.opened();
  Cluster::append(*log, 3);
  Cluster::settle(*log);
  cluster.stop(1);
  cluster.stop(2);
  const std::string never = "never committed";
  const auto ticket = log->append(std::as_bytes(std::span(never)));
  ASSERT_TRUE(ticket.ok());
  (void)log->wait(*ticket, Level::Durable, std::chrono::seconds(1));
  auto bytes = cluster.server(0).region().bytes().subspan(pmem::kPoolDataOffset, kPoolBytes);
  LocalBytes local(bytes);
  auto eager = log::CommittedReader::open(local, {Lsn{}, true, "it"});
  ASSERT_TRUE(eager.ok());
  int read = 0;
  while (true) {
    const auto record = eager->next();
    if (!record.ok() || !*record) break;
    ++read;
  }
  ASSERT_EQ(read, 4);
  log.reset();
  cluster.stop(0);
  cluster.start(1);
  cluster.start(2);
  log = cluster.opened();
  Cluster::append(*log, 10);
  log.reset();
  cluster.start(0);
  log = cluster.opened();
  Cluster::append(*log, 3);
  Cluster::settle(*log);
  auto next = eager->next();
  EXPECT_FALSE(next.ok() && *next);
  if (!next.ok()) {
    EXPECT_EQ(next.code(), ErrorCode::Fenced) << next.error().message;
  }
}

TEST(LogAttack, AfterAcceptedLossAReplicaWithANewerHeadDoesNotCloseTheLogForEver) {
  Cluster cluster;
  Writer log = cluster.opened();
  const auto tickets = Cluster::append(*log, 30);
  Cluster::settle(*log);
  log.reset();
  // A trim that reached replica 2 alone.
  std::uint32_t crc_before = 0;
  cluster.on_medium(2, [&](std::span<std::byte> bytes) {
    crc_before =
        log::decode_record_header(std::span<const std::byte, log::kRecordHeaderBytes>(
                                      bytes.data() + log::kRingAt + tickets[25].lsn.value % 65536,
                                      log::kRecordHeaderBytes))
            .previous_crc;
  });
  put_state(cluster, 2, [&](log::LogState& state) {
    state.head = {tickets[25].lsn, 25, state.epoch, crc_before};
  });
  cluster.stop(2);
  cluster.flip_record(0, tickets[20].lsn);
  cluster.flip_record(1, tickets[20].lsn);
  WriterOptions options = cluster.options();
  options.accept_loss = true;
  auto accepted = cluster.open({0, 1, 2}, options);
  ASSERT_TRUE(accepted.ok()) << accepted.error().message;
  log = std::move(accepted).value();
  const std::string record(1000, 'r');
  for (int i = 0; i < 10; ++i) {
    const auto ticket = log->append(std::as_bytes(std::span(record)));
    ASSERT_TRUE(ticket.ok());
    ASSERT_TRUE(log->wait(*ticket, Level::Committed, std::chrono::seconds(1)).ok());
  }
  Cluster::settle(*log);
  cluster.start(2);
  for (const RepairReport& each : log->repair()) {
    std::printf("  live repair of 2: %d %s\n", each.repaired ? 1 : 0, each.error.c_str());
  }
  log.reset();
  auto again = cluster.open({0, 1, 2}, options);
  EXPECT_TRUE(again.ok()) << again.error().message;
}

TEST(LogAttack, CloseTellsReadersWhatIsCommitted) {
  int silent = 0, tried = 0;
  for (int polls = 0; polls < 300; polls += 5) {
    Cluster cluster;
    Writer log = cluster.opened();
    const std::string record(300, 'r');
    for (int i = 0; i < 3; ++i) (void)log->append(std::as_bytes(std::span(record)));
    for (int i = 0; i < polls; ++i) {
      (void)log->poll();
      cluster.world().step();
    }
    const auto closed = log->close(std::chrono::milliseconds(500));
    if (!closed.ok()) continue;
    ++tried;
    bool bad = false;
    for (std::size_t index = 0; index < 3; ++index) {
      bad = bad || cluster.scan(index).start.committed_word.value_or(Lsn{}) < log->status().tail;
    }
    silent += bad ? 1 : 0;
  }
  std::printf("  of %d clean closes %d left a replica without the word\n", tried, silent);
  EXPECT_EQ(silent, 0);
}

TEST(LogAttack, ACompoundLogWhoseFirstPageIsLostKnowsThatItPromisedSomething) {
  Cluster cluster;
  WriterOptions options = cluster.options();
  options.shape = LogShape::Compound;
  auto created = cluster.open({0, 1, 2}, options);
  ASSERT_TRUE(created.ok());
  Writer log = std::move(created).value();
  Cluster::append(*log, 10);
  cluster.stop(1);
  const auto tickets = Cluster::append(*log, 10);
  log.reset();
  cluster.on_medium(
      0, [](std::span<std::byte> bytes) { std::fill_n(bytes.begin(), 4096, std::byte{0}); });
  cluster.flip_record(0, tickets[9].lsn);
  cluster.start(1);
  cluster.stop(2);
  auto again = cluster.open();
  if (again.ok()) {
    EXPECT_EQ((*again)->status().next_index, 20u) << "a committed record is gone, silently";
  }
}

TEST(LogAttack, AnAddressNamesTheReplicaThatIsThereNow) {
  Cluster cluster;
  { Writer log = cluster.opened(); }
  auto peers = hooked(cluster, [](std::size_t index, HookedPeer& peer) {
    if (index < 2) peer.called = fmt::format("server{}", 1 - index);  // they have swapped places
  });
  auto opened = cluster.open(std::move(peers), cluster.options());
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  const std::string at_server0 = (*opened)->status().replicas[1].pool_uuid;
  ASSERT_EQ((*opened)->status().replicas[1].peer, "server0");
  ASSERT_TRUE((*opened)->remove_replica("server0", 0).ok());
  EXPECT_EQ((*opened)->status().configuration.find(at_server0), std::string::npos)
      << "another replica was removed than the one at that address: "
      << (*opened)->status().configuration;
}

TEST(LogAttack, TheDeathOfTheSourceAloneLosesNothing) {
  for (std::uint64_t k = 1; k < 3000; k += 25) {
    Cluster cluster;
    Writer log = cluster.opened();
    Cluster::append(*log, 5);
    cluster.stop(1);
    Cluster::append(*log, 5);  // committed on 0 and 2
    cluster.stop(0);
    append_to_2_alone(cluster, log);
    begin_an_epoch_on_2_alone(cluster);
    // The next one: 2 dies for good while it is the source for 0. Nothing else ever fails.
    cluster.world().cut_after(cluster.server(2).machine(), k);
    const bool ok = cluster.open().ok();
    cluster.world().cancel_cut();
    cluster.stop(2);
    if (ok) continue;
    const auto last = cluster.open();
    ASSERT_TRUE(last.ok()) << "k " << k << ": " << last.error().message;
    EXPECT_GE((*last)->status().next_index, 10u) << "k " << k << ": ten were committed";
  }
}

}  // namespace
}  // namespace perdure
