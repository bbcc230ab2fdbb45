// Real daemons and a real writer, killed with SIGKILL at random instants under live traffic: no
// committed record is lost, and what is read back is a prefix of what was appended.
// The pools are on tmpfs, declared to survive: a killed process loses no memory of the machine,
// so what is tested is the protocol and the recovery, not a medium.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <perdure/log.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "client/dial.h"
#include "core/clock.h"
#include "core/random.h"
#include "core/text_file.h"
#include "testing/peer_process.h"
#include "testing/process.h"
#include "testing/soak.h"
#include "testing/temporary_directory.h"

namespace perdure {
namespace {

constexpr std::uint64_t kPoolBytes = 4 * 1024 * 1024;
const std::string kPool = "killed";

std::uint64_t kills_wanted() { return test::rounds(25, 2000); }

/// What record `index` holds, whoever wrote it.
std::string record_for(std::uint64_t index) {
  const std::uint64_t length = 10 + index * 7919 % (index % 50 == 0 ? 20'000 : 300);
  return fmt::format("{}:", index) + std::string(length, static_cast<char>('a' + index % 26));
}

LogOptions options_for(const std::vector<std::string>& peers) {
  LogOptions options;
  options.peers = peers;
  options.pool = kPool;
  options.quorum = 2;
  options.take_over = true;
  options.record_bytes_max = 64 * 1024;
  options.transport = Transport::Tcp;
  options.spin = std::chrono::microseconds(0);
  return options;
}

/// Appends from where the log is until it fails or `until` says so; trims when the ring is full.
/// `committed` is called with the number of records that are committed.
Result<void> write_records(Log& log, const std::function<bool()>& until,
                           const std::function<void(std::uint64_t)>& committed) {
  while (!until()) {
    const std::uint64_t first = log.status().next_index;
    std::optional<Ticket> last;
    for (std::uint64_t index = first; index < first + 20; ++index) {
      const std::string record = record_for(index);
      auto ticket = log.append(std::as_bytes(std::span(record)));
      if (!ticket.ok() && ticket.code() == ErrorCode::LogFull) {
        if (auto trimmed = log.trim(log.status().committed); !trimmed) return trimmed;
        ticket = log.append(std::as_bytes(std::span(record)));
      }
      if (!ticket.ok()) return ticket.error();
      last = *ticket;
    }
    if (auto done = log.wait(*last, Level::Committed); !done) return done;
    committed(last->index + 1);
  }
  return {};
}

class KillTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto directory = test::TemporaryDirectory::make("/dev/shm");
    ASSERT_TRUE(directory.ok()) << directory.error().message;
    directory_.emplace(std::move(directory).value());
    for (int index = 0; index < 3; ++index) {
      test::PeerProcessOptions options;
      options.directory = fmt::format("{}/peer{}", directory_->path(), index);
      options.declared = PersistenceDomain::Dmp;
      auto peer = test::PeerProcess::start(options);
      ASSERT_TRUE(peer.ok()) << peer.error().message;
      peers_.push_back(std::move(peer).value());
      addresses_.push_back(peers_.back().address());
      client::Dialer dialer;
      auto dialled = dialer.dial(addresses_.back(), Transport::Tcp);
      ASSERT_TRUE(dialled.ok()) << dialled.error().message;
      const auto made =
          (*dialled)->create({kPool, kPoolBytes}, Deadline::after(std::chrono::seconds(10)));
      ASSERT_TRUE(made.ok()) << made.error().message;
    }
  }

  /// Every replica holds the same records, each what its index says, up to `at_least` or further.
  void check_replicas(std::uint64_t at_least) {
    for (const std::string& address : addresses_) {
      LogReaderOptions options;
      options.peers = {address};
      options.pool = kPool;
      options.transport = Transport::Tcp;
      auto reader = LogReader::open(options);
      ASSERT_TRUE(reader.ok()) << reader.error().message;
      std::uint64_t next = 0;
      while (true) {
        auto record = reader->next();
        ASSERT_TRUE(record.ok()) << record.error().message;
        if (!*record) break;
        const std::string text(reinterpret_cast<const char*>((*record)->bytes.data()),
                               (*record)->bytes.size());
        ASSERT_EQ(text, record_for((*record)->index)) << "on " << address;
        next = (*record)->index + 1;
      }
      ASSERT_GE(next, at_least) << "a committed record is lost on " << address;
    }
  }

  std::optional<test::TemporaryDirectory> directory_;
  std::vector<test::PeerProcess> peers_;
  std::vector<std::string> addresses_;
  Random random_{20240131};
};

// One peer after the other is killed while records flow, and started again; the log never stops.
TEST_F(KillTest, PeersKilledUnderTrafficLoseNothingCommitted) {
  auto log = Log::open(options_for(addresses_));
  ASSERT_TRUE(log.ok()) << log.error().message;
  std::uint64_t committed = 0;
  for (std::uint64_t kill = 0; kill < kills_wanted(); ++kill) {
    test::PeerProcess& victim = peers_[random_.below(peers_.size())];
    const auto instant = std::chrono::microseconds(random_.below(8000));
    std::atomic<bool> killed{false};
    std::thread killer([&] {
      test::pause_for(instant);
      victim.kill();
      killed = true;
    });
    std::uint64_t after = 0;  // go on for a while with two replicas
    const auto written = write_records(
        *log, [&] { return killed && after > 2; },
        [&](std::uint64_t count) {
          committed = count;
          after += killed ? 1 : 0;
        });
    killer.join();
    ASSERT_TRUE(written.ok()) << "kill " << kill << ": " << written.error().message;
    ASSERT_TRUE(victim.start_again().ok());
    for (int attempt = 0; attempt < 50; ++attempt) {
      const auto repairing = log->repair();
      ASSERT_TRUE(repairing.ok()) << repairing.error().message;
      const std::vector<RepairReport>& reports = *repairing;
      const bool repaired = std::all_of(reports.begin(), reports.end(),
                                        [](const RepairReport& each) { return each.repaired; });
      const LogStatus status = log->status();
      const bool all_up = std::all_of(status.replicas.begin(), status.replicas.end(),
                                      [](const ReplicaStatus& each) { return each.up; });
      if (repaired && all_up) break;
      ASSERT_LT(attempt, 49) << "kill " << kill << ": "
                             << (reports.empty() ? "not noticed" : reports.front().error);
      (void)log->poll();
      test::pause_for(std::chrono::milliseconds(20));
    }
  }
  log = Log::open(options_for(addresses_));  // the writer goes, and another comes
  ASSERT_TRUE(log.ok()) << log.error().message;
  ASSERT_GE(log->status().next_index, committed);
  check_replicas(committed);
}

// The writer, a process of its own, is killed; sometimes a peer with it. The next one takes over.
TEST_F(KillTest, WritersKilledUnderTrafficLoseNothingCommitted) {
  std::uint64_t committed = 0;
  for (std::uint64_t kill = 0; kill < kills_wanted(); ++kill) {
    const std::string progress = fmt::format("{}/progress{}", directory_->path(), kill);
    std::vector<std::string> command{"/proc/self/exe", "--write"};
    command.insert(command.end(), addresses_.begin(), addresses_.end());
    auto writer = test::ChildProcess::start(command, progress);
    ASSERT_TRUE(writer.ok()) << writer.error().message;
    // At a random instant once it has begun, or before that.
    const bool early = random_.chance(1, 10);
    for (int waited = 0; !early && read_text(progress).empty() && waited < 3000; ++waited) {
      ASSERT_TRUE(writer->running());
      test::pause_for(std::chrono::milliseconds(5));
    }
    test::pause_for(std::chrono::microseconds(random_.below(30'000)));
    test::PeerProcess* victim =
        random_.chance(1, 5) ? &peers_[random_.below(peers_.size())] : nullptr;
    if (victim != nullptr) victim->kill();
    writer->kill();
    const std::string text = read_text(progress);
    const auto last_line = text.substr(0, text.rfind('\n') + 1);
    if (last_line.size() > 1) {
      const auto begin = last_line.rfind('\n', last_line.size() - 2);
      const auto line = last_line.substr(begin == std::string::npos ? 0 : begin + 1);
      ASSERT_EQ(line.find("error"), std::string::npos) << line;
      committed = std::max<std::uint64_t>(committed, std::stoull(line));
    }
    if (victim != nullptr) {
      ASSERT_TRUE(victim->start_again().ok());
    }
    if (kill % 10 != 9) continue;
    auto log = Log::open(options_for(addresses_));
    ASSERT_TRUE(log.ok()) << log.error().message;
    ASSERT_GE(log->status().next_index, committed) << "a committed record is lost";
    check_replicas(committed);
    ASSERT_FALSE(HasFatalFailure());
  }
  EXPECT_GT(committed, 0u);
}

// A peer that stops answering, though its process and its connections are there.
TEST_F(KillTest, APeerThatStopsAnsweringIsLeftBehindAndComesBack) {
  LogOptions options = options_for(addresses_);
  options.replica_timeout = std::chrono::seconds(2);
  auto log = Log::open(options);
  ASSERT_TRUE(log.ok()) << log.error().message;
  peers_[1].signal(SIGSTOP);
  std::uint64_t committed = 0;
  const auto stopped_is_down = [&] {
    const LogStatus status = log->status();
    return !status.replicas[1].up;
  };
  const Deadline end = Deadline::after(std::chrono::seconds(60));
  const auto written = write_records(
      *log, [&] { return stopped_is_down() || end.passed(); },
      [&](std::uint64_t count) { committed = count; });
  EXPECT_TRUE(written.ok()) << written.error().message;
  EXPECT_TRUE(stopped_is_down());
  const std::string reason = log->status().replicas[1].down_reason;
  EXPECT_NE(reason.find("no answer"), std::string::npos) << reason;
  peers_[1].signal(SIGCONT);
  for (int attempt = 0; attempt < 100 && stopped_is_down(); ++attempt) {
    (void)log->repair();
    test::pause_for(std::chrono::milliseconds(50));
  }
  EXPECT_FALSE(stopped_is_down());
  const auto closed = log->close();  // readers know of what is committed
  EXPECT_TRUE(closed.ok()) << closed.error().message;
  check_replicas(committed);
}

// As above, when it is a trim that waits for the peer. Expect: it is down for its silence.
TEST_F(KillTest, APeerThatATrimFindsSilentIsDownForThat) {
  LogOptions options = options_for(addresses_);
  options.replica_timeout = std::chrono::seconds(2);
  auto log = Log::open(options);
  ASSERT_TRUE(log.ok()) << log.error().message;
  peers_[1].signal(SIGSTOP);
  const auto text = record_for(0);
  const auto ticket = log->append(std::as_bytes(std::span(text)));
  ASSERT_TRUE(ticket.ok()) << ticket.error().message;
  const auto done = log->wait(*ticket, Level::Committed);  // by the other two
  ASSERT_TRUE(done.ok()) << done.error().message;
  const auto trimmed = log->trim(log->status().committed);
  EXPECT_TRUE(trimmed.ok()) << trimmed.error().message;
  const ReplicaStatus silent = log->status().replicas[1];
  EXPECT_FALSE(silent.up);
  EXPECT_NE(silent.down_reason.find("no answer"), std::string::npos) << silent.down_reason;
  peers_[1].signal(SIGCONT);
}

// Two of three peers are killed under a record. Expect: append says that the quorum is lost; wait
// outlasts it, once they are started again, and all three replicas are brought to equal.
TEST_F(KillTest, ALostQuorumComesBackByItself) {
  LogOptions options = options_for(addresses_);
  options.reconnect = std::chrono::milliseconds(20);
  auto log = Log::open(options);
  ASSERT_TRUE(log.ok()) << log.error().message;
  std::uint64_t committed = 0;
  const auto write_some = [&] {
    const std::uint64_t before = committed;
    const auto written = write_records(
        *log, [&] { return committed >= before + 100; },
        [&](std::uint64_t count) { committed = count; });
    ASSERT_TRUE(written.ok()) << written.error().message;
  };
  write_some();
  peers_[0].kill();
  peers_[2].kill();
  const auto text = record_for(log->status().next_index);
  const auto ticket = log->append(std::as_bytes(std::span(text)));
  ASSERT_TRUE(ticket.ok()) << ticket.error().message;
  const auto lost = log->wait(*ticket, Level::Committed, std::chrono::seconds(2));
  ASSERT_EQ(lost.code(), ErrorCode::TimedOut) << lost.error().message;
  EXPECT_EQ(log->append(std::as_bytes(std::span(text))).code(), ErrorCode::QuorumLost);
  ASSERT_TRUE(peers_[0].start_again().ok());
  ASSERT_TRUE(peers_[2].start_again().ok());
  const auto back = log->wait(*ticket, Level::Committed, std::chrono::seconds(60));
  ASSERT_TRUE(back.ok()) << back.error().message;
  committed = ticket->index + 1;
  write_some();
  std::size_t repairs = log->take_repairs().size();
  for (int attempt = 0; attempt < 3000 && repairs < 2; ++attempt) {
    (void)log->poll(std::chrono::milliseconds(100));  // without a time-out it brings nobody back
    repairs += log->take_repairs().size();
    test::pause_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(repairs, 2u);
  write_some();
  log = Log::open(options_for(addresses_));
  ASSERT_TRUE(log.ok()) << log.error().message;
  check_replicas(committed);
}

// Expect: the second writer hears who holds the log; the first goes on undisturbed. With
// take_over the second gets it, and the first learns that it is fenced.
TEST_F(KillTest, TwoWritersOnOneLog) {
  LogOptions options = options_for(addresses_);
  options.writer_name = "the first";
  options.take_over = false;
  auto first = Log::open(options);
  ASSERT_TRUE(first.ok()) << first.error().message;
  options.writer_name = "the second";
  auto second = Log::open(options);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.code(), ErrorCode::Busy);
  EXPECT_NE(second.error().message.find("the first"), std::string::npos) << second.error().message;

  const std::string record = "one record";
  const auto append = [&](Log& log) -> Result<void> {
    auto ticket = log.append(std::as_bytes(std::span(record)));
    if (!ticket.ok()) return ticket.error();
    return log.wait(*ticket, Level::Committed);
  };
  EXPECT_TRUE(append(*first).ok());
  options.take_over = true;
  second = Log::open(options);
  ASSERT_TRUE(second.ok()) << second.error().message;
  EXPECT_TRUE(append(*second).ok());
  const auto refused = append(*first);
  ASSERT_FALSE(refused.ok());
  EXPECT_TRUE(refused.code() == ErrorCode::Fenced || refused.code() == ErrorCode::OutcomeUnknown)
      << refused.error().message;
  EXPECT_NE(refused.error().message.find("the second"), std::string::npos);
  EXPECT_TRUE(append(*second).ok());
}

/// The writer process: says on standard output how many records are committed.
int write_until_killed(const std::vector<std::string>& peers) {
  auto log = Log::open(options_for(peers));
  if (!log.ok()) {
    std::printf("error: %s\n", log.error().message.c_str());
    return 1;
  }
  const Deadline end = Deadline::after(std::chrono::seconds(60));
  const auto written = write_records(
      *log, [&] { return end.passed(); },
      [](std::uint64_t count) {
        std::printf("%llu\n", static_cast<unsigned long long>(count));
        std::fflush(stdout);
      });
  // A peer that was killed with us may be noticed before we are gone: nothing to report.
  return written.ok() ? 0 : 1;
}

}  // namespace
}  // namespace perdure

int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "--write") {
    return perdure::write_until_killed(std::vector<std::string>(argv + 2, argv + argc));
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
