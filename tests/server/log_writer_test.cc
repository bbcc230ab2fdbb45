// Many threads append to one log.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <perdure/log_writer.h>
#include <perdure/perdure.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <barrier>
#include <filesystem>
#include <future>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "control/host_port.h"
#include "core/bytes.h"
#include "core/text_file.h"
#include "opened_peer.h"
#include "testing/child_of_fork.h"
#include "writer_setup.h"

namespace perdure::server {
namespace {

constexpr auto kLong = std::chrono::minutes(1);
/// A replica may be silent for longer than any test takes.
constexpr auto kSilentLong = std::chrono::minutes(5);
constexpr std::uint32_t kThreads = 8;

/// Who wrote it and its number of that one's.
struct Payload {
  std::uint32_t thread = 0;
  std::uint32_t number = 0;
  auto operator<=>(const Payload&) const = default;
};

std::vector<std::byte> record_of(const Payload& payload) {
  // Of several lengths, so that some gather and some do not.
  std::vector<std::byte> record(16 + payload.number * 97 % 3000);
  store(record.data(), payload);
  return record;
}

class LogWriterTest : public testing::TestWithParam<WriterSetup> {
 protected:
  LogWriter open(LogOptions options) {
    LogWriterOptions how;
    how.own_thread = GetParam().own_thread;
    auto writer = LogWriter::open(std::move(options), how);
    EXPECT_TRUE(writer.ok()) << writer.error().message;
    return std::move(*writer);
  }
  LogWriter open() { return open(peers_.options()); }

  /// Every other record is written in the room that it is sent from.
  static Result<Ticket> commit(LogWriter& writer, const Payload& payload) {
    const std::vector<std::byte> record = record_of(payload);
    if (payload.number % 2 == 0) return writer.commit(record, Level::Committed, kLong);
    const auto write = [&](std::span<std::byte> room) {
      std::copy(record.begin(), record.end(), room.begin());
      return record.size();
    };
    return writer.commit_in_place(record.size(), write, Level::Committed, kLong);
  }
  void lose_nothing_to_a_take_over(std::uint32_t callers);

  /// What a replica holds, in the order of the log.
  std::map<std::uint64_t, Payload> read(std::size_t index) {
    std::map<std::uint64_t, Payload> found;
    LogReaderOptions options;
    options.peers = {peers_[index].address()};
    options.pool = "log";
    options.transport = GetParam().transport;
    auto reader = LogReader::open(options);
    EXPECT_TRUE(reader.ok()) << reader.error().message;
    while (reader.ok()) {
      const auto record = reader->next();
      EXPECT_TRUE(record.ok()) << record.error().message;
      if (!record.ok() || !*record) break;
      found[(*record)->index] = load<Payload>((*record)->bytes.data());
    }
    return found;
  }

  OpenedPeers peers_{GetParam().transport};
};

TEST_P(LogWriterTest, EveryThreadsRecordsAreThereOnceAndInItsOrder) {
  constexpr std::uint32_t kEach = 100;
  LogWriter writer = open();
  std::vector<std::vector<Ticket>> tickets(kThreads);
  std::vector<std::thread> threads;
  for (std::uint32_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (std::uint32_t number = 0; number < kEach; ++number) {
        const auto level = number % 3 == 0 ? Level::Durable : Level::Committed;
        const auto ticket = writer.commit(record_of({thread, number}), level, kLong);
        ASSERT_TRUE(ticket.ok()) << ticket.error().message;
        tickets[thread].push_back(*ticket);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(writer.close(kLong).ok());
  const std::map<std::uint64_t, Payload> found = read(0);
  ASSERT_EQ(found.size(), std::size_t{kThreads} * kEach);
  for (std::uint32_t thread = 0; thread < kThreads; ++thread) {
    ASSERT_EQ(tickets[thread].size(), kEach);
    for (std::uint32_t number = 0; number < kEach; ++number) {
      const Ticket& ticket = tickets[thread][number];
      EXPECT_EQ(found.at(ticket.index), (Payload{thread, number}));
      if (number == 0) continue;
      EXPECT_LT(tickets[thread][number - 1].index, ticket.index);
    }
  }
}

TEST_P(LogWriterTest, WhatIsSubmittedIsFinishedOnce) {
  constexpr std::uint32_t kEach = 100;
  LogWriter writer = open();
  std::atomic<std::uint32_t> called{0};
  std::vector<std::future<Result<Ticket>>> futures;
  for (std::uint32_t number = 0; number < kEach; ++number) {
    const auto record = record_of({0, number});
    const auto count = [&](const Result<Ticket>& outcome) { called += outcome.ok() ? 1 : 0; };
    ASSERT_TRUE(writer.submit(record, count).ok());
    futures.push_back(writer.submit(record));
    ASSERT_TRUE(writer.submit_tagged(record, number).ok());
  }
  std::vector<std::uint64_t> tags;
  const Deadline patience = Deadline::after(kLong);
  while (tags.size() < kEach && !patience.passed()) {
    pollfd event{writer.completion_fd(), POLLIN, 0};
    if (::poll(&event, 1, 100) != 1) continue;
    for (const FinishedRecord& finished : writer.take_completed()) {
      EXPECT_TRUE(finished.outcome.ok());
      tags.push_back(finished.tag);
    }
  }
  ASSERT_EQ(tags.size(), kEach);
  for (std::uint32_t number = 0; number < kEach; ++number) EXPECT_EQ(tags[number], number);
  for (auto& future : futures) EXPECT_TRUE(future.get().ok());
  EXPECT_EQ(called, kEach);
  pollfd event{writer.completion_fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&event, 1, 0), 0);
  ASSERT_TRUE(writer.close(kLong).ok());
  EXPECT_EQ(read(1).size(), 3u * kEach);
}

// Expect: a future, a callback and an event each come without any further call.
TEST_P(LogWriterTest, WhatIsSubmittedNeedsNoFurtherCall) {
  const auto called = std::make_shared<std::promise<bool>>();
  LogWriter writer = open();
  auto future = writer.submit(record_of({0, 0}));
  ASSERT_EQ(future.wait_for(kLong), std::future_status::ready);
  EXPECT_TRUE(future.get().ok());
  auto is_ok = called->get_future();
  const auto call = [called](const Result<Ticket>& outcome) { called->set_value(outcome.ok()); };
  ASSERT_TRUE(writer.submit(record_of({0, 1}), call).ok());
  ASSERT_EQ(is_ok.wait_for(kLong), std::future_status::ready);
  EXPECT_TRUE(is_ok.get());
  for (std::uint64_t tag = 7; tag < 9; ++tag) {
    ASSERT_TRUE(writer.submit_tagged(record_of({0, 2}), tag).ok());
    pollfd event{writer.completion_fd(), POLLIN, 0};
    ASSERT_EQ(::poll(&event, 1, 60'000), 1);
    const auto finished = writer.take_completed();
    ASSERT_EQ(finished.size(), 1u);
    EXPECT_EQ(finished[0].tag, tag);
    EXPECT_TRUE(finished[0].outcome.ok());
  }
}

// The same of its time: of what was appended, and of what waits its turn.
TEST_P(LogWriterTest, TimeIsOverForWhatNobodyWaitsFor) {
  LogOptions options = peers_.options();
  options.replica_timeout = kSilentLong;
  LogWriter writer = open(options);
  ASSERT_TRUE(writer.commit(record_of({0, 0}), Level::Committed, kLong).ok());
  for (std::size_t index = 0; index < 3; ++index) peers_[index].medium().hang(true);
  constexpr auto kShort = std::chrono::milliseconds(50);
  auto appended = writer.submit(record_of({0, 1}), Level::Committed, kShort);
  EXPECT_EQ(appended.wait_for(kLong), std::future_status::ready);
  auto late = writer.submit(record_of({0, 2}), Level::Committed, std::chrono::milliseconds(0));
  EXPECT_EQ(late.wait_for(kLong), std::future_status::ready);
  for (std::size_t index = 0; index < 3; ++index) peers_[index].medium().hang(false);
  ASSERT_TRUE(writer.close(kLong).ok());
  const ErrorCode code = appended.get().code();
  EXPECT_TRUE(code == ErrorCode::OutcomeUnknown || code == ErrorCode::TimedOut) << to_string(code);
  EXPECT_EQ(late.get().code(), ErrorCode::TimedOut);
}

// Who commits and what nobody waits for take turns at bringing all of it on.
TEST_P(LogWriterTest, SomeCommitAndSomeSubmit) {
  constexpr std::uint32_t kEach = 100;
  LogWriter writer = open();
  std::vector<std::thread> threads;
  for (std::uint32_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (std::uint32_t number = 0; number < kEach; ++number) {
        const auto record = record_of({thread, number});
        if (thread % 2 == 0) {
          const auto ticket = writer.commit(record, Level::Committed, kLong);
          ASSERT_TRUE(ticket.ok()) << ticket.error().message;
          continue;
        }
        auto future = writer.submit(record, Level::Committed, kLong);
        ASSERT_EQ(future.wait_for(2 * kLong), std::future_status::ready);
        const auto ticket = future.get();
        ASSERT_TRUE(ticket.ok()) << ticket.error().message;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(writer.close(kLong).ok());
  std::map<std::uint32_t, std::uint32_t> next;
  for (const auto& [index, payload] : read(0)) EXPECT_EQ(payload.number, next[payload.thread]++);
  for (std::uint32_t thread = 0; thread < kThreads; ++thread) EXPECT_EQ(next[thread], kEach);
}

/// Of this process, by the name that a writer gives them.
std::size_t count_writer_threads() {
  std::size_t count = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    count += read_text(task.path().string() + "/comm") == "perdure-writer\n" ? 1 : 0;
  }
  return count;
}

TEST_P(LogWriterTest, WhoOnlyCommitsGetsNoThread) {
  LogWriter writer = open();
  for (std::uint32_t number = 0; number < 300; ++number) {
    ASSERT_TRUE(commit(writer, {0, number}).ok());
  }
  EXPECT_EQ(count_writer_threads(), GetParam().own_thread ? 1U : 0U);
  const auto ticket = writer.submit(record_of({1, 0}), Level::Committed, kLong).get();
  ASSERT_TRUE(ticket.ok()) << ticket.error().message;
  EXPECT_EQ(count_writer_threads(), 1U);
}

TEST_P(LogWriterTest, TheLogIsTrimmedWhileOthersAppend) {
  LogWriter writer = open();
  std::atomic<bool> ends{false};
  std::atomic<std::uint32_t> next{0};
  std::vector<std::thread> threads;
  for (std::uint32_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      while (!ends) {
        const auto ticket = writer.commit(record_of({thread, next++}), Level::Committed, kLong);
        ASSERT_TRUE(ticket.ok()) << ticket.error().message;
      }
    });
  }
  // More than the ring holds, in all.
  for (std::uint32_t trims = 0; trims < 200 && next < 6000; ++trims) {
    const auto used = writer.with_log([&](Log& log) {
      const auto trimmed = log.trim(log.status().committed);
      EXPECT_TRUE(trimmed.ok()) << trimmed.error().message;
    });
    EXPECT_TRUE(used.ok());
    (void)::poll(nullptr, 0, 1);
  }
  ends = true;
  for (std::thread& thread : threads) thread.join();
  std::uint64_t records = 0;
  ASSERT_TRUE(writer.with_log([&](Log& log) { records = log.status().next_index; }).ok());
  EXPECT_EQ(records, next);
  EXPECT_TRUE(writer.close(kLong).ok());
}

// Expect: no caller hangs, and what was said to be committed is what the next writer finds.
void LogWriterTest::lose_nothing_to_a_take_over(std::uint32_t callers) {
  LogWriter first = open();
  const Deadline patience = Deadline::after(kLong);
  std::mutex mutex;
  std::set<Payload> committed;
  std::set<Payload> unknown;
  std::vector<std::thread> threads;
  for (std::uint32_t thread = 0; thread < callers; ++thread) {
    threads.emplace_back([&, thread] {
      for (std::uint32_t number = 0; !patience.passed(); ++number) {
        const Payload payload{thread, number};
        const auto ticket = commit(first, payload);
        const std::lock_guard lock(mutex);
        if (ticket.ok()) {
          committed.insert(payload);
          continue;
        }
        if (ticket.code() == ErrorCode::LogFull) continue;  // until the other one comes
        if (ticket.code() == ErrorCode::OutcomeUnknown) unknown.insert(payload);
        EXPECT_TRUE(ticket.code() == ErrorCode::OutcomeUnknown ||
                    ticket.code() == ErrorCode::Fenced || ticket.code() == ErrorCode::QuorumLost)
            << ticket.error().message;
        return;
      }
      ADD_FAILURE() << "it was never fenced";
    });
  }
  while (!patience.passed()) {
    const std::lock_guard lock(mutex);
    if (committed.size() > 200) break;
  }
  LogOptions options = peers_.options();
  options.take_over = true;
  auto second = Log::open(options);
  EXPECT_TRUE(second.ok()) << second.error().message;
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(second.ok());
  ASSERT_TRUE(second->close(kLong).ok());
  std::set<Payload> found;
  for (const auto& [index, payload] : read(2)) {
    EXPECT_TRUE(found.insert(payload).second) << "twice";
  }
  for (const Payload& payload : committed) EXPECT_EQ(found.count(payload), 1u);
  for (const Payload& payload : found) {
    EXPECT_EQ(committed.count(payload) + unknown.count(payload), 1u) << "it was never appended";
  }
}

TEST_P(LogWriterTest, AnotherWriterTakesOverAndNothingCommittedIsLost) {
  lose_nothing_to_a_take_over(kThreads);
}

TEST_P(LogWriterTest, WhoIsAloneLosesNothingToATakeOver) { lose_nothing_to_a_take_over(1); }

// Replicas that are tried again and again do not keep it from who waits for nothing.
TEST_P(LogWriterTest, WhoSubmitsIsToldOfATakeOverLongBeforeItsTimeIsOver) {
  LogOptions options = peers_.options();
  options.reconnect = std::chrono::milliseconds(5);
  LogWriter first = open(options);
  ASSERT_TRUE(first.commit(record_of({0, 0}), Level::Committed, kLong).ok());
  options = peers_.options();
  options.take_over = true;
  auto second = Log::open(options);
  ASSERT_TRUE(second.ok()) << second.error().message;
  ASSERT_TRUE(
      first.submit_tagged(record_of({0, 1}), 7, Level::Committed, std::chrono::hours(24)).ok());
  std::vector<FinishedRecord> finished;
  for (const Deadline patience = Deadline::after(kLong); finished.empty() && !patience.passed();) {
    (void)::poll(nullptr, 0, 1);
    finished = first.take_completed();
  }
  ASSERT_EQ(finished.size(), 1u);
  const ErrorCode code = finished[0].outcome.code();
  EXPECT_TRUE(code == ErrorCode::OutcomeUnknown || code == ErrorCode::Fenced)
      << finished[0].outcome.error().message;
}

TEST_P(LogWriterTest, TimeIsOverWhileTheMediaHang) {
  LogOptions options = peers_.options();
  options.replica_timeout = kSilentLong;
  LogWriter writer = open(options);
  ASSERT_TRUE(writer.commit(record_of({0, 0}), Level::Committed, kLong).ok());
  for (std::size_t index = 0; index < 3; ++index) peers_[index].medium().hang(true);
  std::vector<std::thread> threads;
  for (std::uint32_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      const auto ticket =
          writer.commit(record_of({thread, 1}), Level::Committed, std::chrono::seconds(1));
      EXPECT_EQ(ticket.code(), ErrorCode::OutcomeUnknown);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t index = 0; index < 3; ++index) peers_[index].medium().hang(false);
  EXPECT_TRUE(writer.commit(record_of({0, 2}), Level::Committed, kLong).ok());
  ASSERT_TRUE(writer.close(kLong).ok());
  EXPECT_EQ(read(0).size(), 6u);
}

/// A record of the least length that has a payload: staging has no place for more of them long
/// before the ring is full.
std::vector<std::byte> short_record(const Payload& payload) {
  std::vector<std::byte> record(sizeof payload);
  store(record.data(), payload);
  return record;
}

/// Records until the next one would have to wait for the replica that takes nothing. How many.
std::uint32_t fill_staging(LogWriter& writer) {
  std::uint32_t taken = 0;
  bool full = false;
  const Deadline patience = Deadline::after(kLong);
  while (!full && !patience.passed()) {
    for (int count = 0; count < 64; ++count) {
      const auto submitted = writer.submit(
          short_record({99, taken}), [](const Result<Ticket>&) {}, Level::Committed, kSilentLong);
      if (submitted.ok()) ++taken;
      EXPECT_TRUE(submitted.ok() || submitted.code() == ErrorCode::QueueFull);
    }
    writer.poll();
    const auto looked =
        writer.with_log([&](Log& log) { full = log.append_would_block(short_record({}).size()); });
    EXPECT_TRUE(looked.ok());
  }
  EXPECT_TRUE(full) << taken << " records, and there is still room";
  return taken;
}

// One replica takes nothing, and is not silent long enough to be down; the others commit.
// Expect: who waits for room has no less of his time for that, whoever else waits; and nothing of
//         what was refused is in the log.
TEST_P(LogWriterTest, WhoWaitsForRoomKeepsHisTime) {
  LogOptions options = peers_.options();
  options.replica_timeout = kSilentLong;
  LogWriter writer = open(options);
  peers_[1].medium().hang(true);
  std::uint32_t taken = fill_staging(writer);
  std::vector<std::thread> threads;
  for (std::uint32_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      const auto ticket =
          writer.commit(short_record({thread, 1}), Level::Committed, std::chrono::milliseconds(50));
      EXPECT_EQ(ticket.code(), ErrorCode::TimedOut);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto short_time = std::chrono::milliseconds(50);
  ASSERT_TRUE(writer.submit_tagged(short_record({5, 1}), 5, Level::Committed, short_time).ok());
  std::vector<FinishedRecord> finished;
  for (const Deadline patience = Deadline::after(kLong); finished.empty() && !patience.passed();) {
    writer.poll();
    finished = writer.take_completed();
  }
  ASSERT_EQ(finished.size(), 1u);
  EXPECT_EQ(finished[0].outcome.code(), ErrorCode::TimedOut);
  peers_[1].medium().hang(false);
  EXPECT_TRUE(writer.commit(short_record({0, 2}), Level::Committed, kLong).ok());
  ++taken;
  ASSERT_TRUE(writer.close(kLong).ok());
  for (std::size_t index = 0; index < 3; ++index) {
    std::uint32_t next = 0;
    for (const auto& [at, payload] : read(index)) {
      EXPECT_EQ(payload, at + 1 == taken ? (Payload{0, 2}) : (Payload{99, next}));
      ++next;
    }
    EXPECT_EQ(next, taken) << "replica " << index;
  }
}

// The same of one who commits record by record, and is alone.
TEST_P(LogWriterTest, WhoIsAloneAndWaitsForRoomKeepsHisTime) {
  if (GetParam().own_thread) return;  // then nobody is
  LogOptions options = peers_.options();
  options.replica_timeout = kSilentLong;
  LogWriter writer = open(options);
  peers_[1].medium().hang(true);
  std::optional<ErrorCode> refused;
  const Deadline patience = Deadline::after(kLong);
  for (std::uint32_t number = 0; !refused && !patience.passed(); ++number) {
    const auto ticket =
        writer.commit(short_record({1, number}), Level::Committed, std::chrono::seconds(1));
    if (!ticket.ok() && ticket.code() != ErrorCode::OutcomeUnknown) refused = ticket.code();
  }
  peers_[1].medium().hang(false);
  EXPECT_EQ(refused, ErrorCode::TimedOut);
  EXPECT_FALSE(patience.passed());
  EXPECT_TRUE(writer.commit(short_record({1, 0}), Level::Committed, kLong).ok());
  EXPECT_TRUE(writer.close(kLong).ok());
}

// Expect: who waits for room hears of the take-over, long before his time or the replica's is over.
TEST_P(LogWriterTest, WhoWaitsForRoomIsToldOfATakeOver) {
  LogOptions options = peers_.options();
  options.replica_timeout = kSilentLong;
  LogWriter first = open(options);
  peers_[1].medium().hang(true);
  const std::uint32_t taken = fill_staging(first);
  std::vector<std::thread> threads;
  for (std::uint32_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      const auto ticket =
          first.commit(short_record({thread, 1}), Level::Committed, std::chrono::hours(24));
      EXPECT_TRUE(ticket.code() == ErrorCode::Fenced || ticket.code() == ErrorCode::QueueFull)
          << to_string(ticket.code());
    });
  }
  options = peers_.options();
  options.take_over = true;
  options.replica_timeout = std::chrono::seconds(2);
  auto second = Log::open(options);
  EXPECT_TRUE(second.ok()) << second.error().message;
  peers_[1].medium().hang(false);
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(second.ok());
  EXPECT_LE(second->status().next_index, taken);
  EXPECT_TRUE(second->close(kLong).ok() || !second->status().replicas[1].up);
}

// What would wait for the one who waits for it.
TEST_P(LogWriterTest, InsideOfItsLogAWriterRefusesWhatWouldWait) {
  LogWriter writer = open();
  std::vector<ErrorCode> codes;
  const auto used = writer.with_log([&](Log&) {
    codes.push_back(writer.with_log([](Log&) {}).code());
    codes.push_back(commit(writer, {0, 0}).code());
    codes.push_back(writer.close(kLong).code());
  });
  ASSERT_TRUE(used.ok()) << used.error().message;
  EXPECT_EQ(codes, std::vector<ErrorCode>(3, ErrorCode::InvalidArgument));
  EXPECT_TRUE(commit(writer, {0, 0}).ok());
  EXPECT_TRUE(writer.with_log([](Log&) {}).ok());
  EXPECT_TRUE(writer.close(kLong).ok());
}

// Nobody but callers of commit brings records on, and there is room for none of theirs: the one
// before has left, while somebody used the log, and its record is still open.
TEST_P(LogWriterTest, WhoCommitsGetsOnWhatOthersHaveLeft) {
  LogWriterOptions how;
  how.own_thread = GetParam().own_thread;
  how.records_max = 1;
  LogOptions options = peers_.options();
  options.replica_timeout = kSilentLong;
  auto writer = LogWriter::open(options, how);
  ASSERT_TRUE(writer.ok()) << writer.error().message;
  for (std::size_t index = 0; index < 3; ++index) peers_[index].medium().hang(true);
  std::thread first([&] {
    const auto ticket =
        writer->commit(record_of({0, 0}), Level::Committed, std::chrono::milliseconds(300));
    EXPECT_FALSE(ticket.ok());
  });
  (void)::poll(nullptr, 0, 100);  // until its record is open
  EXPECT_TRUE(writer->with_log([&](Log&) { first.join(); }).ok());
  for (std::size_t index = 0; index < 3; ++index) peers_[index].medium().hang(false);
  auto ticket = commit(*writer, {1, 0});
  for (const Deadline patience = Deadline::after(kLong);
       !ticket.ok() && ticket.code() == ErrorCode::QueueFull && !patience.passed();) {
    ticket = commit(*writer, {1, 0});
  }
  EXPECT_TRUE(ticket.ok()) << ticket.error().message;
}

// A replica gets on only now and then, and everybody appends.
TEST_P(LogWriterTest, AReplicaThatIsSlowCostsNobodyARecordOrItsOrder) {
  constexpr std::uint32_t kEach = 100;
  LogOptions options = peers_.options();
  options.replica_timeout = kSilentLong;
  LogWriter writer = open(options);
  peers_[1].medium().hang(true);
  const std::uint32_t taken = fill_staging(writer);
  std::atomic<std::uint32_t> ended{0};
  std::vector<std::thread> threads;
  for (std::uint32_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (std::uint32_t number = 0; number < kEach; ++number) {
        auto ticket = writer.commit(short_record({thread, number}), Level::Committed, kLong);
        while (!ticket.ok() && ticket.code() == ErrorCode::QueueFull) {
          ticket = writer.commit(short_record({thread, number}), Level::Committed, kLong);
        }
        EXPECT_TRUE(ticket.ok()) << ticket.error().message;
      }
      ++ended;
    });
  }
  for (const Deadline patience = Deadline::after(kLong); ended < kThreads && !patience.passed();) {
    peers_[1].medium().hang(false);
    (void)::poll(nullptr, 0, 1);
    peers_[1].medium().hang(true);
    (void)::poll(nullptr, 0, 1);
  }
  peers_[1].medium().hang(false);
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(writer.close(kLong).ok());
  for (std::size_t index = 0; index < 3; ++index) {
    std::map<std::uint32_t, std::uint32_t> next;
    for (const auto& [at, payload] : read(index)) EXPECT_EQ(payload.number, next[payload.thread]++);
    EXPECT_EQ(next[99], taken) << "replica " << index;
    for (std::uint32_t thread = 0; thread < kThreads; ++thread) EXPECT_EQ(next[thread], kEach);
  }
}

TEST_P(LogWriterTest, WhatIsTooMuchOrTooLateIsRefused) {
  LogWriterOptions how;
  how.own_thread = GetParam().own_thread;
  how.records_max = 2;
  const auto record = record_of({0, 0});
  {
    auto writer = LogWriter::open(peers_.options(), how);
    ASSERT_TRUE(writer.ok()) << writer.error().message;
    for (std::size_t index = 0; index < 3; ++index) peers_[index].medium().hang(true);
    auto one = writer->submit(record);
    auto two = writer->submit(record);
    EXPECT_EQ(writer->commit(record).code(), ErrorCode::QueueFull);
    EXPECT_EQ(writer->submit(record).get().code(), ErrorCode::QueueFull);
    for (std::size_t index = 0; index < 3; ++index) peers_[index].medium().hang(false);
    ASSERT_TRUE(writer->close(kLong).ok());
    EXPECT_TRUE(one.get().ok() && two.get().ok());
    EXPECT_EQ(writer->commit(record).code(), ErrorCode::InvalidArgument);
    EXPECT_EQ(writer->close().code(), ErrorCode::InvalidArgument);
  }
  LogWriter other = open();
  EXPECT_EQ(other.commit(record, Level::Visible).code(), ErrorCode::Unsupported);
  EXPECT_EQ(other.commit(std::span<const std::byte>{}).code(), ErrorCode::InvalidArgument);
  EXPECT_EQ(other.commit(std::vector<std::byte>(64 * 1024 + 1)).code(), ErrorCode::InvalidArgument);
  const LogWriter moved = std::move(other);
  EXPECT_EQ(other.commit(record).code(), ErrorCode::InvalidArgument);  // NOLINT: moved from
}

// Who uses the log for something else hands over to those who wait, as they do to one another.
TEST_P(LogWriterTest, NobodyIsLeftWaiting) {
  LogWriter writer = open();
  std::atomic<int> committing{2};
  std::vector<std::thread> threads;
  for (std::uint32_t thread = 0; thread < 2; ++thread) {
    threads.emplace_back([&, thread] {
      for (std::uint32_t number = 0; number < 400; ++number) {
        const auto ticket = writer.commit(record_of({thread, number}), Level::Durable, kLong);
        EXPECT_TRUE(ticket.ok()) << ticket.error().message;
      }
      --committing;
    });
  }
  threads.emplace_back([&] {
    while (committing != 0) writer.poll();
  });
  threads.emplace_back([&] {
    while (committing != 0) EXPECT_TRUE(writer.with_log([](Log&) {}).ok());
  });
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(writer.close(kLong).ok());
}

// Whoever is woken to look after the log for all may be one that has just left.
TEST_P(LogWriterTest, WhoseTimeIsOverTakesNobodyElsesTurn) {
  constexpr std::uint32_t kRounds = 300;
  LogWriter writer = open();
  std::barrier round(3);
  const auto commit = [&](std::uint32_t thread, std::chrono::milliseconds timeout) {
    for (std::uint32_t number = 0; number < kRounds; ++number) {
      round.arrive_and_wait();
      const auto ticket = writer.commit(record_of({thread, number}), Level::Committed, timeout);
      EXPECT_TRUE(ticket.ok() || timeout != kLong) << number << ": " << ticket.error().message;
    }
  };
  std::thread hurried(commit, 0, std::chrono::milliseconds(0));
  std::thread short_of_time(commit, 1, std::chrono::milliseconds(1));
  commit(2, kLong);
  hurried.join();
  short_of_time.join();
}

TEST_P(LogWriterTest, WhatAUserThrowsLeavesItUsable) {
  LogWriter writer = open();
  EXPECT_THROW((void)writer.with_log([](Log&) { throw std::runtime_error("mine"); }),
               std::runtime_error);
  EXPECT_THROW((void)writer.with_log({}), std::bad_function_call);
  ASSERT_TRUE(writer.submit(record_of({1, 1}), [](const Result<Ticket>&) { throw 1; }).ok());
  EXPECT_TRUE(writer.commit(record_of({0, 1}), Level::Committed, kLong).ok());
  EXPECT_TRUE(writer.close(kLong).ok());
}

TEST_P(LogWriterTest, AReplicaComesBackWhileRecordsAreCommitted) {
  LogOptions options = peers_.options();
  options.reconnect = std::chrono::milliseconds(5);
  LogWriter writer = open(options);
  ASSERT_TRUE(writer.commit(record_of({0, 0}), Level::Committed, kLong).ok());
  ASSERT_TRUE(writer.with_log([](Log& log) { (void)log.take_repairs(); }).ok());  // of the opening
  peers_[1].end_sessions();
  std::uint32_t number = 0;
  bool lost = false;
  bool back = false;
  const Deadline patience = Deadline::after(kLong);
  while (!back && !patience.passed()) {
    const auto ticket = commit(writer, {0, ++number});
    ASSERT_TRUE(ticket.ok()) << ticket.error().message;
    const auto looked = writer.with_log([&](Log& log) {
      lost = lost || !log.take_repairs().empty();  // it may be both between two looks
      back = lost && log.status().replicas[1].up;
    });
    ASSERT_TRUE(looked.ok());
  }
  EXPECT_TRUE(back);
  EXPECT_TRUE(writer.close(kLong).ok());
  EXPECT_EQ(read(1).size(), number + 1);
}

// Others that are refused all the time do not keep the news from who waits.
TEST_P(LogWriterTest, ALostQuorumIsSaidAtOnce) {
  LogOptions options = peers_.options();
  options.replica_timeout = std::chrono::seconds(2);
  LogWriter writer = open(options);
  peers_[0].medium().hang(true);
  peers_[1].medium().hang(true);
  std::atomic<bool> ends{false};
  std::thread other([&] {
    while (!ends) (void)writer.commit(record_of({1, 0}), Level::Committed, kLong);
  });
  const auto ticket =
      writer.commit(record_of({0, 0}), Level::Committed, std::chrono::milliseconds::max());
  EXPECT_TRUE(ticket.code() == ErrorCode::OutcomeUnknown || ticket.code() == ErrorCode::QuorumLost)
      << ticket.error().message;
  ends = true;
  other.join();
  peers_[0].medium().hang(false);
  peers_[1].medium().hang(false);
}

/// In the place of a control plane: connections to it are made, and nothing is answered.
class SilentPort {
 public:
  explicit SilentPort(const std::string& address) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    const int yes = 1;
    (void)::setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(control::parse_host_port(address)->port);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::bind(socket_, reinterpret_cast<sockaddr*>(&at), sizeof at), 0);
    EXPECT_EQ(::listen(socket_, 64), 0);
  }
  ~SilentPort() { ::close(socket_); }
  SilentPort(const SilentPort&) = delete;
  SilentPort& operator=(const SilentPort&) = delete;

 private:
  int socket_;
};

/// How long a record took to be refused whose time was short, with the quorum lost and nobody there
/// to say who took over.
Nanoseconds refused_after(OpenedPeers& peers, LogWriter& writer, bool submits) {
  constexpr auto kShort = std::chrono::milliseconds(50);
  std::vector<std::unique_ptr<SilentPort>> silent;
  for (std::size_t index = 0; index < 3; ++index) {
    peers[index].stop();
    silent.push_back(std::make_unique<SilentPort>(peers[index].address()));
    peers[index].end_sessions();
  }
  const auto looked = writer.with_log([](Log& log) {
    const Deadline patience = Deadline::after(kLong);
    while (log.poll().ok() && !patience.passed()) continue;
  });
  EXPECT_TRUE(looked.ok());
  const Nanoseconds since = Clock::monotonic().now();
  ErrorCode code = ErrorCode::Corrupt;
  if (submits) {
    EXPECT_TRUE(writer.submit_tagged(record_of({1, 1}), 1, Level::Committed, kShort).ok());
    std::vector<FinishedRecord> finished;
    const Deadline patience = Deadline::after(kLong);
    while (finished.empty() && !patience.passed()) {
      writer.poll();
      finished = writer.take_completed();
    }
    EXPECT_EQ(finished.size(), 1u);
    if (!finished.empty()) code = finished[0].outcome.code();
  } else {
    code = writer.commit(record_of({1, 1}), Level::Committed, kShort).code();
  }
  const Nanoseconds took = Clock::monotonic().now() - since;
  EXPECT_TRUE(code == ErrorCode::TimedOut || code == ErrorCode::QuorumLost) << to_string(code);
  return took;
}

/// How long it takes to poll so often, with the quorum lost, replicas to be tried again, and nobody
/// there to say who took over.
Nanoseconds polls_take(OpenedPeers& peers, LogWriter& writer) {
  std::vector<std::unique_ptr<SilentPort>> silent;
  for (std::size_t index = 0; index < 3; ++index) {
    peers[index].stop();
    silent.push_back(std::make_unique<SilentPort>(peers[index].address()));
    peers[index].end_sessions();
  }
  const auto looked = writer.with_log([](Log& log) {
    const Deadline patience = Deadline::after(kLong);
    while (log.poll().ok() && !patience.passed()) continue;
  });
  EXPECT_TRUE(looked.ok());
  const Nanoseconds since = Clock::monotonic().now();
  for (int count = 0; count < 300; ++count) writer.poll();
  return Clock::monotonic().now() - since;
}

TEST_P(LogWriterTest, PollDoesNotWaitUnlessItIsGivenTime) {
  Nanoseconds least = kLong;
  for (int tries = 0; tries < 10 && least >= std::chrono::milliseconds(300); ++tries) {
    OpenedPeers peers{GetParam().transport};
    LogOptions options = peers.options();
    options.reconnect = std::chrono::milliseconds(5);
    LogWriter writer = open(options);
    ASSERT_TRUE(writer.commit(record_of({0, 0}), Level::Committed, kLong).ok());
    least = std::min(least, polls_take(peers, writer));
  }
  EXPECT_LT(least, std::chrono::milliseconds(300));
}

// An append of the log itself would ask for a second. Of several tries, a machine that is busy
// does not delay all.
TEST_P(LogWriterTest, WhoComesToALostQuorumKeepsHisTime) {
  for (const bool submits : {false, true}) {
    Nanoseconds least = kLong;
    for (int tries = 0; tries < 10 && least >= std::chrono::seconds(1); ++tries) {
      OpenedPeers peers{GetParam().transport};
      LogWriter writer = open(peers.options());
      ASSERT_TRUE(writer.commit(record_of({0, 0}), Level::Committed, kLong).ok());
      least = std::min(least, refused_after(peers, writer, submits));
    }
    EXPECT_LT(least, std::chrono::seconds(1));
  }
}

TEST_P(LogWriterTest, AChildOfForkIsRefusedAndEndsNothing) {
  LogWriter writer = open();
  ASSERT_TRUE(writer.commit(record_of({0, 0}), Level::Committed, kLong).ok());
  ASSERT_TRUE(writer.submit_tagged(record_of({0, 1}), 1).ok());
  EXPECT_TRUE(test::yes_in_a_child([&] {
    bool refused = writer.commit(record_of({1, 0})).code() == ErrorCode::InvalidArgument;
    refused = refused && writer.with_log([](Log&) {}).code() == ErrorCode::InvalidArgument;
    refused = refused && writer.close().code() == ErrorCode::InvalidArgument;
    writer.poll();
    refused = refused && writer.take_completed().empty() && writer.completion_fd() == -1;
    { const LogWriter gone = std::move(writer); }
    return refused;
  }));
  EXPECT_TRUE(writer.commit(record_of({0, 2}), Level::Committed, kLong).ok());
  EXPECT_EQ(writer.take_completed().size(), 1u);
  EXPECT_TRUE(writer.close(kLong).ok());
}

TEST_P(LogWriterTest, InCToo) {
  const LogOptions how = peers_.options();
  std::vector<const char*> peers;
  for (const std::string& peer : how.peers) peers.push_back(peer.c_str());
  const std::string transport(to_string(GetParam().transport));
  perdure_log_options options{};
  options.size = sizeof options;
  options.peers = peers.data();
  options.peer_count = peers.size();
  options.pool = "log";
  options.transport = transport.c_str();
  options.usual_costs = true;
  perdure_log_writer* writer = nullptr;
  ASSERT_EQ(perdure_log_writer_open(&options, GetParam().own_thread, &writer), PERDURE_OK)
      << perdure_last_error();
  std::vector<std::thread> threads;
  for (std::uint32_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (std::uint32_t number = 0; number < 25; ++number) {
        const auto record = record_of({thread, number});
        perdure_ticket ticket{};
        ASSERT_EQ(perdure_log_writer_commit(writer, record.data(), record.size(), PERDURE_COMMITTED,
                                            60'000, &ticket),
                  PERDURE_OK)
            << perdure_last_error();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::uint64_t tag = 0; tag < 10; ++tag) {
    ASSERT_EQ(perdure_log_writer_submit(writer, "text", 4, tag, PERDURE_DURABLE, 60'000),
              PERDURE_OK);
  }
  ASSERT_EQ(perdure_log_writer_poll(writer), PERDURE_OK);
  ASSERT_EQ(perdure_log_writer_poll_within(writer, 1), PERDURE_OK);
  std::uint64_t next = 0;
  const Deadline patience = Deadline::after(kLong);
  while (next < 10 && !patience.passed()) {
    pollfd event{perdure_log_writer_completion_fd(writer), POLLIN, 0};
    (void)::poll(&event, 1, 1000);
    std::array<perdure_finished, 3> finished{};
    std::size_t taken = 0;
    ASSERT_EQ(perdure_log_writer_take(writer, finished.data(), finished.size(), &taken),
              PERDURE_OK);
    for (std::size_t each = 0; each < taken; ++each) {
      EXPECT_EQ(finished[each].code, PERDURE_OK);
      EXPECT_EQ(finished[each].tag, next++);
    }
  }
  EXPECT_EQ(next, 10u);
  perdure_log_status status{};
  EXPECT_EQ(perdure_log_writer_get_status(writer, &status), PERDURE_INVALID_ARGUMENT);
  status.size = sizeof status;
  EXPECT_EQ(perdure_log_writer_get_status(writer, &status), PERDURE_OK);
  EXPECT_EQ(status.next_index, 110u);
  EXPECT_EQ(status.replicas_up, 3u);
  EXPECT_EQ(perdure_log_writer_trim(writer, status.committed), PERDURE_OK);
  EXPECT_EQ(perdure_log_writer_close(writer, 60'000), PERDURE_OK) << perdure_last_error();
}

// max() of microseconds is more than nanoseconds can say.
TEST_P(LogWriterTest, WhoWantsToSpinForEverMay) {
  LogOptions options = peers_.options();
  options.spin = std::chrono::microseconds::max();
  LogWriter writer = open(options);
  const auto ticket = writer.commit(record_of({0, 0}), Level::Committed, kLong);
  EXPECT_TRUE(ticket.ok()) << ticket.error().message;
}

// Receive: a time that is longer than any of the machine's. Without time nobody brings one back.
TEST_P(LogWriterTest, WhoHasAllTheTimeForReplicasGetsThemBack) {
  LogOptions options = peers_.options();
  options.replica_timeout = std::chrono::milliseconds::max();
  options.reconnect = std::chrono::milliseconds(5);
  LogWriter writer = open(options);
  ASSERT_TRUE(writer.commit(record_of({0, 0}), Level::Committed, kLong).ok());
  bool back = false;
  const auto look = [&] {
    const auto looked =
        writer.with_log([&](Log& log) { back = back || !log.take_repairs().empty(); });
    EXPECT_TRUE(looked.ok());
  };
  look();  // of the opening
  back = false;
  peers_[1].end_sessions();
  const auto is_up = [&] {
    bool up = false;
    EXPECT_TRUE(writer.with_log([&](Log& log) { up = log.status().replicas[1].up; }).ok());
    return up;
  };
  const Deadline patience = Deadline::after(kLong);
  if (!GetParam().own_thread) {  // which brings it back when it likes
    while (is_up() && !patience.passed()) writer.poll();
    EXPECT_FALSE(is_up());
    const Deadline a_while = Deadline::after(std::chrono::milliseconds(200));
    while (!a_while.passed()) writer.poll();
    EXPECT_FALSE(is_up());
  }
  for (look(); !back && !patience.passed(); look()) writer.poll(std::chrono::milliseconds::max());
  EXPECT_TRUE(back);
  EXPECT_TRUE(is_up());
}

// However it was given, in pieces or whole, the same is read back.
TEST_P(LogWriterTest, RecordsOfPiecesAreReadBack) {
  LogWriter writer = open();
  const auto in_three = [](std::span<const std::byte> record) {
    return std::array{record.first(5), record.first(0), record.subspan(5)};
  };
  std::vector<std::future<Result<Ticket>>> futures;
  std::atomic<int> called = 0;
  for (std::uint32_t number = 0; number < 40; number += 4) {
    const auto committed = record_of({7, number});
    auto ticket = writer.commit(in_three(committed), Level::Committed, kLong);
    ASSERT_TRUE(ticket.ok()) << ticket.error().message;
    auto record = record_of({7, number + 1});
    auto pieces = in_three(record);
    futures.push_back(writer.submit(pieces, Level::Committed, kLong));
    record = record_of({7, number + 2});
    pieces = in_three(record);
    const auto count = [&called](const Result<Ticket>& outcome) { called += outcome.ok() ? 1 : 0; };
    ASSERT_TRUE(writer.submit(pieces, count, Level::Committed, kLong).ok());
    record = record_of({7, number + 3});
    pieces = in_three(record);
    ASSERT_TRUE(writer.submit_tagged(pieces, number, Level::Committed, kLong).ok());
  }
  EXPECT_EQ(writer.commit(std::span<const std::span<const std::byte>>{}).code(),
            ErrorCode::InvalidArgument);
  EXPECT_TRUE(writer.close(kLong).ok());
  for (auto& each : futures) EXPECT_TRUE(each.get().ok());
  EXPECT_EQ(called, 10);
  const auto found = read(1);
  ASSERT_EQ(found.size(), 40u);
  for (const auto& [index, payload] : found) EXPECT_EQ(payload, (Payload{7, std::uint32_t(index)}));
}

// Alone and in company, each record is written once, in the room that it is sent from.
TEST_P(LogWriterTest, RecordsAreWrittenInPlace) {
  constexpr std::uint32_t kEach = 40;
  LogWriter writer = open();
  std::atomic<std::uint32_t> written = 0;
  const auto commit = [&](std::uint32_t thread, std::uint32_t count) {
    for (std::uint32_t number = 0; number < count; ++number) {
      const auto record = record_of({thread, number});
      const auto ticket = writer.commit_in_place(
          record.size() + 100,
          [&](std::span<std::byte> room) {
            EXPECT_EQ(room.size(), record.size() + 100);
            std::copy(record.begin(), record.end(), room.begin());
            ++written;
            return record.size();
          },
          Level::Committed, kLong);
      EXPECT_TRUE(ticket.ok()) << ticket.error().message;
    }
  };
  commit(kThreads, kEach);
  std::vector<std::thread> threads;
  for (std::uint32_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back(commit, thread, kEach);
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(written, (kThreads + 1) * kEach);
  const auto too_much = [](std::span<std::byte> room) { return room.size() + 1; };
  EXPECT_EQ(writer.commit_in_place(8, too_much).code(), ErrorCode::InvalidArgument);
  const auto throws = [](std::span<std::byte>) -> std::size_t { throw std::runtime_error("no"); };
  EXPECT_EQ(writer.commit_in_place(8, throws).code(), ErrorCode::InvalidArgument);
  EXPECT_EQ(writer.commit_in_place(8, {}).code(), ErrorCode::InvalidArgument);
  EXPECT_EQ(writer.commit_in_place(0, [](auto) { return std::size_t{0}; }).code(),
            ErrorCode::InvalidArgument);
  EXPECT_TRUE(writer.close(kLong).ok());
  std::map<std::uint32_t, std::uint32_t> next;
  for (const auto& [index, payload] : read(1)) EXPECT_EQ(payload.number, next[payload.thread]++);
  EXPECT_EQ(next.size(), kThreads + 1);
  for (const auto& [thread, count] : next) EXPECT_EQ(count, kEach) << thread;
}

INSTANTIATE_TEST_SUITE_P(Here, LogWriterTest, writer_setups(), name_of_setup);

}  // namespace
}  // namespace perdure::server
