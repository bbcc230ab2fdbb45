// A reader goes on with another replica when the one that it reads is lost, left behind or damaged:
// every committed record once, in order, and nothing else. Its peers are processes that are killed.
#include <gtest/gtest.h>
#include <perdure/log.h>
#include <perdure/perdure.h>
#include <perdure/pool.h>

#include <array>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/bytes.h"
#include "core/clock.h"
#include "killed_peer.h"

namespace perdure::server {
namespace {

constexpr auto kReaderPatience = std::chrono::minutes(1);
constexpr std::size_t kPeers = 3;

/// What record `index` holds: its index, of this writer, and bytes up to a length of its own.
std::vector<std::byte> content(std::uint64_t index, std::uint64_t writer = 0) {
  std::vector<std::byte> bytes(16 + index * 131 % 1'500, static_cast<std::byte>(index));
  store(bytes.data(), index);
  store(bytes.data() + 8, writer);
  return bytes;
}

class LogReaderFailover : public testing::Test {
 protected:
  LogReaderFailover() {
    for (const KilledPeer& peer : peers_) {
      PoolOptions pool;
      pool.name = "log";
      pool.bytes = 256 * 1024;
      const auto made = create_pool(peer.address(), pool);
      EXPECT_TRUE(made.ok()) << made.error().message;
    }
  }

  LogOptions options() const {
    LogOptions options;
    for (const KilledPeer& peer : peers_) options.peers.push_back(peer.address());
    options.pool = "log";
    options.transport = Transport::Tcp;
    options.record_bytes_max = 64 * 1024;
    options.measure_costs = false;
    return options;
  }
  Log open() {
    auto log = Log::open(options());
    EXPECT_TRUE(log.ok()) << log.error().message;
    return std::move(*log);
  }
  LogReader reader_of(std::vector<std::size_t> order, LogReaderOptions reading = {}) {
    reading.peers.clear();
    for (const std::size_t index : order) reading.peers.push_back(peers_[index].address());
    reading.pool = "log";
    reading.transport = Transport::Tcp;
    auto reader = LogReader::open(reading);
    EXPECT_TRUE(reader.ok()) << reader.error().message;
    return std::move(*reader);
  }

  /// Returns the place of the last one, which is committed.
  Lsn append(Log& log, int count, std::uint64_t writer = 0) {
    Ticket last;
    for (int done = 0; done < count; ++done) {
      const auto ticket = log.append(content(log.status().next_index, writer));
      EXPECT_TRUE(ticket.ok()) << ticket.error().message;
      if (ticket.ok()) last = *ticket;
    }
    const auto waited = log.wait(last, Level::Committed, kReaderPatience);
    EXPECT_TRUE(waited.ok()) << waited.error().message;
    return last.lsn;
  }

  /// Reads on until `read` records were: each the next one, and what was appended. `log`, if there
  /// is one, pauses meanwhile, and so says what is committed.
  void read_to(LogReader& reader, std::uint64_t& read, std::uint64_t until, Log* log,
               std::uint64_t writer = 0) {
    const Deadline patience = Deadline::after(kReaderPatience);
    while (read < until) {
      ASSERT_FALSE(patience.passed()) << "after record " << read << ", from " << reader.peer();
      if (log != nullptr) (void)log->poll();
      const auto record = reader.next();
      ASSERT_TRUE(record.ok()) << record.error().message;
      if (!*record) continue;
      ASSERT_EQ((*record)->index, read);
      const auto expected = content(read, writer);
      ASSERT_TRUE(std::equal(expected.begin(), expected.end(), (*record)->bytes.begin(),
                             (*record)->bytes.end()))
          << "record " << read << " from " << reader.peer();
      ++read;
    }
  }

  /// Reads on until an error that ends reading, which is returned, or the deadline.
  static std::optional<ErrorCode> read_on(LogReader& reader, std::uint64_t& read,
                                          Deadline patience) {
    while (!patience.passed()) {
      const auto record = reader.next();
      const bool ends = !record.ok() && record.code() == ErrorCode::NotFound;
      if (ends) return record.code();
      if (!record.ok() || !*record) continue;
      EXPECT_EQ((*record)->index, read);
      ++read;
    }
    return std::nullopt;
  }

  /// In a new pool on the first peer, which was killed.
  void begin_another_log_on_the_first() {
    peers_[0].start();
    const auto old = describe_pool(peers_[0].address(), "log");
    ASSERT_TRUE(old.ok()) << old.error().message;
    ASSERT_TRUE(delete_pool(peers_[0].address(), "log", old->uuid).ok());
    ASSERT_TRUE(create_pool(peers_[0].address(), {"log", 256 * 1024, false}).ok());
    LogOptions there = options();
    there.peers.resize(1);
    auto other = Log::open(there);
    ASSERT_TRUE(other.ok()) << other.error().message;
    append(*other, 7, 9);
  }

  std::size_t number_of(const std::string& address) const {
    std::size_t number = 0;
    while (number < kPeers && peers_[number].address() != address) ++number;
    return number;
  }

  std::array<KilledPeer, kPeers> peers_;
};

TEST_F(LogReaderFailover, EveryCommittedRecordComesOnceWhilePeersAreKilledAndTheLogIsTrimmed) {
  Log log = open();
  auto opened = log.reader();
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  LogReader reader = std::move(*opened);
  std::set<std::string> read_from;
  std::uint64_t read = 0;
  std::uint64_t appended = 0;
  // Some laps of the ring.
  for (int round = 0; round < 12 && !HasFatalFailure(); ++round) {
    append(log, 40);
    appended += 40;
    read_to(reader, read, appended - 20, &log);
    read_from.insert(reader.peer());
    const std::size_t victim = number_of(reader.peer());
    ASSERT_LT(victim, kPeers);
    peers_[victim].kill();
    const Lsn last = append(log, 40);
    appended += 40;
    read_to(reader, read, appended, &log);
    EXPECT_NE(reader.peer(), peers_[victim].address());
    ASSERT_TRUE(log.trim(last).ok());
    peers_[victim].start();
    const auto repaired = log.repair(kReaderPatience);
    ASSERT_TRUE(repaired.ok()) << repaired.error().message;
    for (const RepairReport& report : *repaired) {
      EXPECT_TRUE(report.repaired) << report.peer << ": " << report.error;
    }
  }
  EXPECT_EQ(read, 12u * 80);
  EXPECT_GE(read_from.size(), 2u);
  EXPECT_GT(log.status().head.value, log.status().ring_bytes);
}

// What a replica says is committed is true of what it holds. Peer 0 holds records of a writer that
// nobody else has, which follow what was read; another writer has written others in their place.
TEST_F(LogReaderFailover, WhatAReplicaThatWasLeftBehindHoldsIsNotTakenForCommitted) {
  std::uint64_t read = 0;
  LogReader reader = [&] {
    Log log = open();
    append(log, 10);
    LogReader followed = reader_of({1, 0});
    read_to(followed, read, 10, &log);
    peers_[1].stop();
    peers_[2].stop();
    Ticket lost;
    for (std::uint64_t index = 10; index < 15; ++index) {
      const auto ticket = log.append(content(index, 7));
      EXPECT_TRUE(ticket.ok()) << ticket.error().message;
      if (ticket.ok()) lost = *ticket;
    }
    EXPECT_TRUE(log.wait(lost, Level::Durable, kReaderPatience).ok());
    peers_[1].kill();
    peers_[2].kill();
    EXPECT_EQ(log.wait(lost, Level::Committed, kReaderPatience).code(), ErrorCode::OutcomeUnknown);
    return followed;
  }();
  peers_[0].kill();
  peers_[1].start();
  peers_[2].start();
  Log log = open();
  append(log, 5, 8);
  (void)log.close(kReaderPatience);  // peer 0 is not there
  peers_[1].kill();
  peers_[0].start();
  // Peer 0 is read now, and has nothing that may be returned.
  const Deadline patience = Deadline::after(kReaderPatience);
  while (reader.peer() != peers_[0].address() && !patience.passed()) (void)reader.next();
  ASSERT_EQ(reader.peer(), peers_[0].address());
  for (int look = 0; look < 200; ++look) {
    const auto record = reader.next();
    ASSERT_TRUE(!record.ok() || !*record) << (*record)->index;
  }
  peers_[1].start();
  read_to(reader, read, 15, nullptr, 8);
}

TEST_F(LogReaderFailover, AReplicaThatHasNoMoreIsLeftForOneThatHas) {
  Log log = open();
  append(log, 20);
  (void)log.poll();
  peers_[0].kill();
  append(log, 20);
  peers_[0].start();  // and nobody repairs it
  ASSERT_TRUE(log.poll().ok());
  LogReader reader = reader_of({0, 1});
  EXPECT_EQ(reader.peer(), peers_[0].address());
  std::uint64_t read = 0;
  read_to(reader, read, 40, &log);
  EXPECT_EQ(reader.peer(), peers_[1].address());
}

TEST_F(LogReaderFailover, WhatWasTrimmedIsReadFromAReplicaThatStillHasItOrSaidToBeGone) {
  Log log = open();
  append(log, 10);
  LogReader reader = reader_of({1, 0});
  std::uint64_t read = 0;
  read_to(reader, read, 5, &log);
  LogReader other = reader_of({1});
  std::uint64_t read_by_other = 0;
  read_to(other, read_by_other, 5, &log);
  append(log, 10);
  LogReader behind = reader_of({0, 1});
  std::uint64_t read_behind = 0;
  read_to(behind, read_behind, 20, &log);
  peers_[0].kill();
  const Lsn last = append(log, 150);  // more than a reader has taken in beforehand
  ASSERT_TRUE(log.trim(last).ok());
  peers_[0].start();
  // What peer 0 has is returned; what only the trimmed ones had is not skipped in silence, whether
  // peer 0 was read before or is read now.
  const Deadline patience = Deadline::after(kReaderPatience);
  EXPECT_EQ(read_on(reader, read, patience), ErrorCode::NotFound);
  EXPECT_GE(read, 20u);  // or what it still found at peer 1
  EXPECT_EQ(read_on(behind, read_behind, patience), ErrorCode::NotFound);
  EXPECT_GE(read_behind, 20u);  // it may have looked around, and have been at peer 1 already
  while (!patience.passed() && other.next().ok()) (void)log.poll();
  EXPECT_EQ(other.next().code(), ErrorCode::NotFound);
  LogReaderOptions reading;
  reading.peers = {peers_[1].address()};
  reading.pool = "log";
  reading.from_index = 3;
  EXPECT_EQ(LogReader::open(reading).code(), ErrorCode::NotFound);
}

TEST_F(LogReaderFailover, ARemovedReplicaIsNotWaitedForWhereTheOthersHaveTrimmed) {
  Log log = open();
  append(log, 10);
  LogReader reader = reader_of({2, 0, 1});
  std::uint64_t read = 0;
  read_to(reader, read, 5, &log);
  ASSERT_TRUE(log.remove_replica(peers_[2].address()).ok());
  const Lsn last = append(log, 150);  // more than a reader has taken in beforehand
  ASSERT_TRUE(log.trim(last).ok());
  EXPECT_EQ(read_on(reader, read, Deadline::after(kReaderPatience)), ErrorCode::NotFound);
  LogReaderOptions reading;
  reading.peers = {peers_[2].address()};
  reading.pool = "log";
  EXPECT_EQ(LogReader::open(reading).code(), ErrorCode::InvalidArgument);
}

TEST_F(LogReaderFailover, WhatIsHeldBackOnOneReplicaIsWaitedForThoughAnotherHasTrimmedIt) {
  Log log = open();
  append(log, 10);
  append(log, 10);
  peers_[0].kill();  // perhaps without knowing that the last ones are committed
  const Lsn last = append(log, 150);
  ASSERT_TRUE(log.trim(last).ok());
  peers_[0].start();
  LogReader reader = reader_of({0, 1});
  std::uint64_t read = 0;
  const auto ended = read_on(reader, read, Deadline::after(std::chrono::milliseconds(500)));
  EXPECT_TRUE(!ended || read == 20u) << read;
  const auto repaired = log.repair(kReaderPatience);
  ASSERT_TRUE(repaired.ok()) << repaired.error().message;
  for (const RepairReport& report : *repaired) {
    EXPECT_TRUE(report.repaired) << report.peer << ": " << report.error;
  }
  EXPECT_EQ(read_on(reader, read, Deadline::after(kReaderPatience)), ErrorCode::NotFound);
}

TEST_F(LogReaderFailover, ReadingBeginsAtAnIndexThatMayBeToCome) {
  Log log = open();
  append(log, 10);
  LogReaderOptions reading;
  reading.from_index = 13;
  auto reader = log.reader(reading);
  ASSERT_TRUE(reader.ok()) << reader.error().message;
  auto none = reader->next();
  ASSERT_TRUE(none.ok() && !*none);
  append(log, 10);
  peers_[number_of(reader->peer())].kill();
  std::uint64_t read = 13;
  read_to(*reader, read, 20, &log);
}

TEST_F(LogReaderFailover, WhereNoReplicaCanBeReadItGoesOnLater) {
  Log log = open();
  append(log, 10);
  LogReader reader = reader_of({0, 1});
  std::uint64_t read = 0;
  read_to(reader, read, 10, &log);
  append(log, 5);
  ASSERT_TRUE(log.close(kReaderPatience).ok());
  peers_[0].kill();
  peers_[1].kill();
  const Deadline patience = Deadline::after(kReaderPatience);
  auto record = reader.next();
  while (record.ok() && !patience.passed()) {
    if (*record) {
      ASSERT_EQ((*record)->index, read++);
    }
    record = reader.next();
  }
  ASSERT_EQ(record.code(), ErrorCode::Disconnected) << record.error().message;
  for (const std::size_t index : {0, 1}) {
    EXPECT_NE(record.error().message.find(peers_[index].address()), std::string::npos)
        << record.error().message;
  }
  EXPECT_EQ(reader.peer(), "");
  peers_[1].start();
  while (reader.peer().empty() && !patience.passed()) {
    record = reader.next();
    if (record.ok() && *record) {
      ASSERT_EQ((*record)->index, read++);
    }
  }
  read_to(reader, read, 15, nullptr);
}

// Its only peer closes the pool and opens it again. Expect: nothing that says that records are
// gone.
TEST_F(LogReaderFailover, APoolThatIsClosedIsNoRecordThatWasTrimmed) {
  std::optional<Log> log = open();
  append(*log, 5);
  LogReader reader = reader_of({0});
  std::uint64_t read = 0;
  read_to(reader, read, 5, &*log);
  ASSERT_TRUE(log->close(kReaderPatience).ok());
  log.reset();
  ASSERT_TRUE(close_pool(peers_[0].address(), "log").ok());
  bool lost = false;
  for (const Deadline a_while = Deadline::after(std::chrono::milliseconds(300));
       !a_while.passed();) {
    const auto record = reader.next();
    if (record.ok()) continue;
    lost = true;
    ASSERT_NE(record.code(), ErrorCode::NotFound) << record.error().message;
  }
  EXPECT_TRUE(lost);
  ASSERT_TRUE(open_pool(peers_[0].address(), "log").ok());
  Log next = open();
  append(next, 3);
  const Deadline patience = Deadline::after(kReaderPatience);
  while (reader.peer().empty() && !patience.passed()) {
    const auto record = reader.next();
    if (record.ok() && *record) {
      ASSERT_EQ((*record)->index, read++);
    }
  }
  read_to(reader, read, 8, &next);
}

// A peer of a log comes back with a new pool, in which somebody has begun another log.
TEST_F(LogReaderFailover, TheReaderOfALogReadsNoOther) {
  Log log = open();
  append(log, 5);
  peers_[0].kill();
  begin_another_log_on_the_first();
  auto reader = log.reader();
  ASSERT_TRUE(reader.ok()) << reader.error().message;
  EXPECT_NE(reader->peer(), peers_[0].address());
  std::uint64_t read = 0;
  read_to(*reader, read, 5, &log);
}

// The same, by peers alone. Expect: nobody is given the records of either as those of the log, and
// who reads one already hears of the other.
TEST_F(LogReaderFailover, PeersOfDifferentLogsAreRefused) {
  Log log = open();
  append(log, 5);
  peers_[0].kill();
  LogReader reader = reader_of({1, 0});
  std::uint64_t read = 0;
  read_to(reader, read, 5, &log);
  begin_another_log_on_the_first();
  LogReaderOptions reading;
  reading.pool = "log";
  reading.transport = Transport::Tcp;
  for (const std::size_t index : {0u, 1u}) {
    reading.peers = {peers_[index].address(), peers_[1 - index].address()};
    const auto refused = LogReader::open(reading);
    ASSERT_FALSE(refused.ok()) << refused->peer();
    EXPECT_EQ(refused.code(), ErrorCode::InvalidArgument) << refused.error().message;
    EXPECT_NE(refused.error().message.find("holds another log than on"), std::string::npos)
        << refused.error().message;
  }
  std::optional<Error> said;
  for (const Deadline patience = Deadline::after(kReaderPatience); !said && !patience.passed();) {
    const auto record = reader.next();
    if (!record.ok()) said = record.error();
  }
  ASSERT_TRUE(said);
  EXPECT_EQ(said->code, ErrorCode::InvalidArgument) << said->message;
  EXPECT_NE(said->message.find(peers_[0].address()), std::string::npos) << said->message;
  // It goes on with the log that it reads.
  append(log, 3);
  for (const Deadline patience = Deadline::after(kReaderPatience);
       read < 8 && !patience.passed();) {
    (void)log.poll();
    const auto record = reader.next();
    if (!record.ok() || !*record) continue;
    ASSERT_EQ((*record)->index, read++);
  }
  EXPECT_EQ(read, 8u);
}

TEST_F(LogReaderFailover, InC) {
  std::vector<const char*> addresses;
  for (const KilledPeer& peer : peers_) addresses.push_back(peer.address().c_str());
  perdure_log_options opening{};
  opening.size = sizeof opening;
  opening.peers = addresses.data();
  opening.peer_count = addresses.size();
  opening.pool = "log";
  opening.usual_costs = true;
  perdure_log* log = nullptr;
  ASSERT_EQ(perdure_log_open(&opening, &log), PERDURE_OK) << perdure_last_error();
  perdure_ticket ticket{};
  for (int index = 0; index < 10; ++index) {
    ASSERT_EQ(perdure_log_append(log, "0123456789" + index, 1, &ticket), PERDURE_OK);
  }
  ASSERT_EQ(perdure_log_wait(log, &ticket, PERDURE_COMMITTED, 60'000), PERDURE_OK);
  perdure_log_times times{};
  times.size = sizeof times;
  ASSERT_EQ(perdure_log_get_times(log, &times), PERDURE_OK);
  EXPECT_GT(perdure_time_quantile_ns(&times.committed, 0.5), 0u);
  perdure_reader_options reading{};
  reading.size = sizeof reading;
  reading.from_index = 5;
  perdure_reader* reader = nullptr;
  ASSERT_EQ(perdure_log_reader(log, &reading, &reader), PERDURE_OK) << perdure_last_error();
  perdure_log_close(log);
  std::string read;
  for (const Deadline patience = Deadline::after(kReaderPatience);
       read.size() < 5 && !patience.passed();) {
    perdure_record record{};
    bool found = false;
    ASSERT_EQ(perdure_reader_next(reader, &record, &found), PERDURE_OK) << perdure_last_error();
    if (found) read += *static_cast<const char*>(record.bytes);
  }
  EXPECT_EQ(read, "56789");
  uint64_t position = 0;
  uint64_t committed = 0;
  ASSERT_EQ(perdure_reader_get_position(reader, &position, &committed), PERDURE_OK);
  EXPECT_EQ(position, ticket.end);
  EXPECT_GE(committed, position);
  perdure_reader_close(reader);
}

}  // namespace
}  // namespace perdure::server
