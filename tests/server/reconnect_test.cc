// A replica that is away is connected to again, and its peer takes connections and says nothing:
// nobody who writes waits for it, and nothing else does. Time is not looked at: one step of
// connecting may take minutes, and how far it is is seen at the other end.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <perdure/log_writer.h>
#include <perdure/mirror.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <thread>

#include "control/host_port.h"
#include "opened_peer.h"
#include "testing/child_of_fork.h"
#include "testing/process.h"
#include "writer_setup.h"

namespace perdure::server {
namespace {

using std::chrono::milliseconds;

constexpr auto kReconnectPatience = std::chrono::minutes(1);
/// Of one step of connecting.
constexpr auto kSilencePatience = std::chrono::minutes(5);
constexpr int kReconnectRecords = 50;

std::vector<std::byte> reconnect_record(int number) {
  return std::vector<std::byte>(static_cast<std::size_t>(100 + number % 50), std::byte(number));
}

/// A port of this machine that takes connections. Nobody reads what they ask.
class SilentPeer {
 public:
  explicit SilentPeer(const std::string& address) {
    const auto at = control::parse_host_port(address);
    EXPECT_TRUE(at.ok());
    socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int yes = 1;
    ::setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    sockaddr_in here{};
    here.sin_family = AF_INET;
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    here.sin_port = htons(at->port);
    EXPECT_EQ(::bind(socket_, reinterpret_cast<sockaddr*>(&here), sizeof here), 0);
    EXPECT_EQ(::listen(socket_, 16), 0);
  }
  ~SilentPeer() {
    if (asker_ >= 0) ::close(asker_);
    ::close(socket_);
  }
  SilentPeer(const SilentPeer&) = delete;
  SilentPeer& operator=(const SilentPeer&) = delete;

  /// Whether somebody has come whom asked() has not returned yet.
  bool has_more() const {
    pollfd waited{socket_, POLLIN, 0};
    return ::poll(&waited, 1, 0) > 0;
  }
  /// Whether somebody asks: the first one who does.
  bool asked() {
    if (asker_ < 0 && has_more()) asker_ = ::accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC);
    return asker_ >= 0;
  }
  /// Whether he has gone away again.
  bool given_up() const {
    std::array<char, 1024> question;
    while (true) {
      const ssize_t got = ::recv(asker_, question.data(), question.size(), MSG_DONTWAIT);
      if (got <= 0) return got == 0 || (errno != EAGAIN && errno != EINTR);
    }
  }

 private:
  int socket_ = -1;
  int asker_ = -1;
};

class ReconnectTest : public testing::TestWithParam<WriterSetup> {
 protected:
  LogOptions options() const {
    LogOptions options = peers_.options();
    options.reconnect = milliseconds(1);
    options.replica_timeout = kSilencePatience;
    return options;
  }
  LogWriter open_writer() {
    LogWriterOptions how;
    how.own_thread = GetParam().own_thread;
    auto writer = LogWriter::open(options(), how);
    EXPECT_TRUE(writer.ok()) << writer.error().message;
    return std::move(*writer);
  }
  /// The second peer loses its sessions, and falls silent.
  void silence() {
    peers_[1].stop();
    silent_.emplace(peers_[1].address());
    peers_[1].end_sessions();
  }
  void end_silence() {
    silent_.reset();
    peers_[1].start();
  }

  template <typename Append>
  void append_until(const Append& append, const std::function<bool()>& ends) {
    const Deadline patience = Deadline::after(kReconnectPatience);
    do {
      ASSERT_TRUE(append());
    } while (!ends() && !patience.passed());
    EXPECT_TRUE(ends());
  }
  bool commit(LogWriter& writer) {
    const auto ticket =
        writer.commit(reconnect_record(written_), Level::Committed, kReconnectPatience);
    EXPECT_TRUE(ticket.ok()) << ticket.error().message;
    written_ += ticket.ok() ? 1 : 0;
    return ticket.ok();
  }
  void commit_until_asked(LogWriter& writer) {
    append_until([&] { return commit(writer); }, [&] { return silent_->asked(); });
  }
  void commit_while_silent(LogWriter& writer) {
    for (int count = 0; count < kReconnectRecords; ++count) ASSERT_TRUE(commit(writer));
    EXPECT_FALSE(silent_->given_up());
    EXPECT_FALSE(silent_->has_more());
  }
  bool second_is_up(LogWriter& writer) {
    bool up = false;
    const auto look = [&](Log& log) { up = log.status().replicas[1].up; };
    return writer.with_log(look).ok() && up;
  }

  /// How many records a replica holds.
  int read(std::size_t index) {
    LogReaderOptions options;
    options.peers = {peers_[index].address()};
    options.pool = "log";
    options.transport = GetParam().transport;
    auto reader = LogReader::open(options);
    EXPECT_TRUE(reader.ok()) << reader.error().message;
    int count = 0;
    while (reader.ok()) {
      const auto record = reader->next();
      EXPECT_TRUE(record.ok()) << record.error().message;
      if (!record.ok() || !*record) break;
      EXPECT_EQ((*record)->bytes.size(), reconnect_record(count).size());
      ++count;
    }
    return count;
  }

  OpenedPeers peers_{GetParam().transport};
  std::optional<SilentPeer> silent_;
  int written_ = 0;
};

TEST_P(ReconnectTest, AWriterIsNotHeldUpAndTheReplicaComesBack) {
  LogWriter writer = open_writer();
  silence();
  commit_until_asked(writer);
  commit_while_silent(writer);
  // Trimmed meanwhile, and asked for at once: the one connection is waited for.
  const auto trimmed = writer.with_log([&](Log& log) {
    EXPECT_TRUE(log.trim(log.status().committed).ok());
    const auto reports = log.repair(milliseconds(20));
    ASSERT_TRUE(reports.ok());
    ASSERT_EQ(reports->size(), 1u);
    EXPECT_FALSE(reports->front().repaired);
  });
  ASSERT_TRUE(trimmed.ok());
  const int before = std::exchange(written_, 0);
  commit_while_silent(writer);
  end_silence();
  append_until([&] { return commit(writer); }, [&] { return second_is_up(writer); });
  EXPECT_GT(before, kReconnectRecords);
  EXPECT_TRUE(writer.close(kReconnectPatience).ok());
  for (std::size_t index = 0; index < 3; ++index) EXPECT_EQ(read(index), written_);
}

TEST_P(ReconnectTest, ALogIsNotHeldUp) {
  auto log = Log::open(options());
  ASSERT_TRUE(log.ok()) << log.error().message;
  const auto append = [&] {
    const auto ticket = log->append(reconnect_record(written_));
    EXPECT_TRUE(ticket.ok()) << ticket.error().message;
    ++written_;
    return ticket.ok() && log->wait(*ticket, Level::Committed, kReconnectPatience).ok() &&
           log->poll(kReconnectPatience).ok();
  };
  silence();
  append_until(append, [&] { return silent_->asked(); });
  for (int count = 0; count < kReconnectRecords; ++count) ASSERT_TRUE(append());
  EXPECT_FALSE(silent_->given_up());
  EXPECT_FALSE(silent_->has_more());
  end_silence();
  // Who asks for it waits for it; what had been begun may have failed with the silence.
  const auto reports = log->repair(kReconnectPatience);
  ASSERT_TRUE(reports.ok());
  EXPECT_TRUE(log->status().replicas[1].up);
  EXPECT_TRUE(log->close(kReconnectPatience).ok());
  EXPECT_EQ(read(1), written_);
}

// A wait would not end for minutes.
TEST_P(ReconnectTest, TheEndStopsIt) {
  {
    LogWriter writer = open_writer();
    silence();
    commit_until_asked(writer);
    EXPECT_FALSE(silent_->given_up());
  }
  EXPECT_TRUE(silent_->given_up());
  // Nothing of it is left that would refuse another writer.
  end_silence();
  auto next = Log::open(options());
  ASSERT_TRUE(next.ok()) << next.error().message;
  EXPECT_EQ(next->status().next_index, static_cast<std::uint64_t>(written_));
}

TEST_P(ReconnectTest, AReplicaThatIsRemovedMeanwhileDoesNotComeBack) {
  LogWriter writer = open_writer();
  silence();
  commit_until_asked(writer);
  const auto removed = writer.with_log([&](Log& log) {
    const auto done = log.remove_replica(peers_[1].address(), 2);
    EXPECT_TRUE(done.ok()) << done.error().message;
  });
  ASSERT_TRUE(removed.ok());
  commit_while_silent(writer);
  end_silence();
  for (int count = 0; count < kReconnectRecords; ++count) ASSERT_TRUE(commit(writer));
  const auto looked = writer.with_log([&](Log& log) {
    EXPECT_EQ(log.status().replicas.size(), 2u);
    EXPECT_TRUE(log.take_repairs().empty());
  });
  EXPECT_TRUE(looked.ok());
  EXPECT_TRUE(writer.close(kReconnectPatience).ok());
  EXPECT_EQ(read(0), written_);
}

TEST_P(ReconnectTest, AChildOfForkEndsNothingOfIt) {
  LogWriter writer = open_writer();
  silence();
  commit_until_asked(writer);
  EXPECT_TRUE(test::yes_in_a_child([&] {
    { const LogWriter gone = std::move(writer); }
    return true;
  }));
  commit_while_silent(writer);
  end_silence();
  append_until([&] { return commit(writer); }, [&] { return second_is_up(writer); });
}

TEST_P(ReconnectTest, ATakeOverIsNoticedMeanwhile) {
  LogWriter writer = open_writer();
  silence();
  commit_until_asked(writer);
  LogOptions of_next = options();
  of_next.take_over = true;
  of_next.replica_timeout = milliseconds(3000);  // for the silent one
  auto next = Log::open(of_next);
  ASSERT_TRUE(next.ok()) << next.error().message;
  const auto refused = writer.commit(reconnect_record(0), Level::Committed, kReconnectPatience);
  EXPECT_TRUE(refused.code() == ErrorCode::OutcomeUnknown || refused.code() == ErrorCode::Fenced ||
              refused.code() == ErrorCode::QuorumLost)
      << refused.error().message;
}

// Of a mirror the same is true; it always has a thread.
class MirrorReconnectTest : public ReconnectTest {
 protected:
  Result<Mirror> open_mirror(std::size_t quorum) {
    const LogOptions of_log = options();
    MirrorOptions options;
    options.peers = of_log.peers;
    options.pool = of_log.pool;
    options.transport = of_log.transport;
    options.measure_costs = false;
    options.reconnect = milliseconds(1);
    options.peer_timeout = kSilencePatience;
    options.quorum = quorum;
    auto mirror = Mirror::open(MirrorMemory::bytes(memory_), options);
    EXPECT_TRUE(mirror.ok()) << mirror.error().message;
    if (!mirror.ok()) return mirror;
    const auto in_sync = mirror->wait_in_sync(kReconnectPatience);
    EXPECT_TRUE(in_sync.ok()) << in_sync.error().message;
    return mirror;
  }
  void persist_until_asked(Mirror& mirror) {
    append_until([&] { return mirror.persist(64, 64, kReconnectPatience).ok(); },
                 [&] { return silent_->asked(); });
  }

  std::vector<std::byte> memory_ = std::vector<std::byte>(std::size_t{64} * 1024);
};

TEST_P(MirrorReconnectTest, NobodyIsHeldUpNorTheEnd) {
  {
    auto mirror = open_mirror(2);
    ASSERT_TRUE(mirror.ok());
    silence();
    persist_until_asked(*mirror);
    for (int count = 0; count < kReconnectRecords; ++count) {
      ASSERT_TRUE(mirror->persist(128, 64, kReconnectPatience).ok());
    }
    EXPECT_FALSE(silent_->given_up());
    EXPECT_FALSE(silent_->has_more());
  }
  EXPECT_TRUE(silent_->given_up());
  // Nothing of it is left that would refuse another writer.
  end_silence();
  EXPECT_TRUE(open_mirror(2).ok());
}

// What is left to be made durable waits for the silent one, and for no longer than it was given.
TEST_P(MirrorReconnectTest, AnEndWithoutTheQuorumTakesItsTimeAndNoMore) {
  auto mirror = open_mirror(3);
  ASSERT_TRUE(mirror.ok());
  silence();
  append_until(
      [&] {
        const auto flushed = mirror->flush(64, 64);
        return flushed.ok() && !mirror->wait(*flushed, milliseconds(1)).ok();
      },
      [&] { return silent_->asked(); });
  const auto closed = mirror->close(milliseconds(100));
  EXPECT_TRUE(closed.code() == ErrorCode::QuorumLost || closed.code() == ErrorCode::TimedOut)
      << closed.error().message;
  EXPECT_TRUE(silent_->given_up());
}

// A replica that answers nothing, and has as much in flight as it takes, holds up nobody beyond his
// time, nor the end.
TEST_P(MirrorReconnectTest, AReplicaThatTakesNothingMoreHoldsNobodyBeyondHisTime) {
  auto mirror = open_mirror(3);
  ASSERT_TRUE(mirror.ok());
  peers_[1].medium().hang(true);
  for (std::uint64_t at = 0; at < 20; ++at) {
    EXPECT_EQ(mirror->persist(at * 64, 64, milliseconds(1)).code(), ErrorCode::OutcomeUnknown);
  }
  const std::uint64_t begun = mirror->status().begun;
  EXPECT_EQ(mirror->persist(0, 32 * 1024, milliseconds(1)).code(), ErrorCode::TimedOut);
  EXPECT_EQ(mirror->write_atomic(0, 1, milliseconds(1)).code(), ErrorCode::TimedOut);
  EXPECT_EQ(mirror->deep_persist(0, 64, milliseconds(1)).code(), ErrorCode::TimedOut);
  EXPECT_EQ(mirror->status().begun, begun) << "who is told of the time has begun nothing";
  EXPECT_EQ(memory_[0], std::byte{}) << "nor stored anything";
  EXPECT_TRUE(mirror->flush(64, 64).ok());
  // One who has no time of his own waits, and the end lets him go.
  std::thread waits([&] { EXPECT_FALSE(mirror->flush(0, 32 * 1024).ok()); });
  EXPECT_EQ(mirror->drain(milliseconds(1)).code(), ErrorCode::TimedOut);
  EXPECT_EQ(mirror->close(milliseconds(100)).code(), ErrorCode::TimedOut);
  waits.join();
  peers_[1].medium().hang(false);
}

// A replica answers nothing for a while. Expect: of what was begun the outcome is unknown, waiting
// may be repeated until it is durable, and so may the call.
TEST_P(MirrorReconnectTest, WhatWasBegunInTimeIsUnknownUntilItIsWaitedFor) {
  using Update = std::function<Result<void>(Mirror&, milliseconds)>;
  const MirrorRange range{64, 64};
  const MirrorEpoch epoch(&range, 1);
  const std::array<Update, 4> updates = {
      [](Mirror& mirror, milliseconds time) { return mirror.persist(0, 8, time); },
      [](Mirror& mirror, milliseconds time) { return mirror.deep_persist(0, 8, time); },
      [&](Mirror& mirror, milliseconds time) {
        return mirror.persist_ordered({&epoch, 1}, time);
      },
      [](Mirror& mirror, milliseconds time) { return mirror.write_atomic(128, 5, time); }};
  auto mirror = open_mirror(3);
  ASSERT_TRUE(mirror.ok());
  for (const Update& update : updates) {
    peers_[1].medium().hang(true);
    const auto begun = update(*mirror, milliseconds(1));
    EXPECT_EQ(begun.code(), ErrorCode::OutcomeUnknown) << begun.error().message;
    const MirrorTicket last{mirror->status().begun};
    EXPECT_EQ(mirror->drain(milliseconds(1)).code(), ErrorCode::TimedOut);
    EXPECT_EQ(mirror->wait(last, milliseconds(1)).code(), ErrorCode::TimedOut);
    EXPECT_FALSE(mirror->reached(last));
    peers_[1].medium().hang(false);
    const auto waited = mirror->drain(kReconnectPatience);
    EXPECT_TRUE(waited.ok()) << waited.error().message;
    EXPECT_TRUE(mirror->reached(last));
    const auto again = update(*mirror, kReconnectPatience);
    EXPECT_TRUE(again.ok()) << again.error().message;
  }
}

TEST_P(MirrorReconnectTest, WhoWaitsBesideALeaderKeepsHisTime) {
  auto mirror = open_mirror(3);
  ASSERT_TRUE(mirror.ok());
  peers_[1].medium().hang(true);
  std::atomic<bool> led_on{true};
  std::thread leads([&] {
    EXPECT_FALSE(mirror->persist(64, 64, kReconnectPatience).ok());
    led_on = false;
  });
  const Deadline patience = Deadline::after(kReconnectPatience);
  while (mirror->status().begun == 0 && !patience.passed()) std::this_thread::yield();
  EXPECT_EQ(mirror->persist(128, 64, milliseconds(20)).code(), ErrorCode::OutcomeUnknown);
  EXPECT_TRUE(led_on);
  EXPECT_EQ(mirror->close(milliseconds(20)).code(), ErrorCode::TimedOut);
  leads.join();  // it is told, long before its time
  EXPECT_FALSE(patience.passed());
  peers_[1].medium().hang(false);
}

// A replica is to be marked, because another was lost, and answers nothing.
TEST_P(MirrorReconnectTest, TheEndDoesNotWaitForAMark) {
  auto mirror = open_mirror(1);
  ASSERT_TRUE(mirror.ok());
  peers_[2].medium().hang(true);
  peers_[1].end_sessions();
  std::thread waits([&] { (void)mirror->persist(64, 64, kReconnectPatience); });
  const Deadline patience = Deadline::after(kReconnectPatience);
  test::pause_for(milliseconds(100));
  (void)mirror->close(milliseconds(100));
  EXPECT_FALSE(patience.passed());
  waits.join();
  peers_[2].medium().hang(false);
}

INSTANTIATE_TEST_SUITE_P(Here, MirrorReconnectTest,
                         testing::Values(WriterSetup{Transport::Tcp, true},
                                         WriterSetup{Transport::Shm, true}),
                         name_of_setup);
INSTANTIATE_TEST_SUITE_P(Here, ReconnectTest, writer_setups(), name_of_setup);

}  // namespace
}  // namespace perdure::server
