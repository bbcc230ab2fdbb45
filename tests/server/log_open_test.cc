// A log is opened on replicas that are all read at once, over transports of this machine; also
// while the medium of one of them hangs. Runs under the thread sanitizer too: nothing but the end
// of its own survey is what a thread hands over.
#include <gtest/gtest.h>
#include <perdure/log.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <functional>

#include "core/bytes.h"
#include "opened_peer.h"
#include "whole_log.h"

namespace perdure::server {
namespace {

constexpr std::size_t kReplicas = 3;
constexpr std::uint64_t kRecords = 300;
constexpr std::size_t kRecordBytes = 1'000;

class LogOpen : public testing::TestWithParam<Transport> {
 protected:
  Result<Log> open(bool take_over = false) {
    LogOptions options = peers_.options();
    options.take_over = take_over;
    options.replica_timeout = replica_timeout_;
    return Log::open(std::move(options));
  }

  /// The next record holds its own index.
  static Result<Ticket> append(Log& log) {
    std::vector<std::byte> record(kRecordBytes);
    store(record.data(), log.status().next_index);
    auto ticket = log.append(record);
    EXPECT_TRUE(ticket.ok()) << ticket.error().message;
    return ticket;
  }
  static void append_and_wait(Log& log, int count) {
    for (int done = 0; done < count; ++done) {
      const auto ticket = append(log);
      ASSERT_TRUE(ticket.ok());
      const auto waited = log.wait(*ticket, Level::Committed, std::chrono::minutes(1));
      ASSERT_TRUE(waited.ok()) << waited.error().message;
    }
  }
  static bool comes_true(const std::function<bool()>& what) {
    const Deadline patience = Deadline::after(std::chrono::minutes(1));
    while (!what() && !patience.passed()) (void)::poll(nullptr, 0, 5);
    return what();
  }

  /// Where its records begin.
  std::vector<Lsn> fill() {
    std::vector<Lsn> places;
    auto log = open();
    EXPECT_TRUE(log.ok()) << log.error().message;
    if (!log.ok()) return places;
    for (std::uint64_t index = 0; index < kRecords; ++index) {
      const auto ticket = append(*log);
      if (!ticket.ok()) return places;
      places.push_back(ticket->lsn);
    }
    const auto closed = log->close(std::chrono::minutes(1));
    EXPECT_TRUE(closed.ok()) << closed.error().message;
    return places;
  }

  void expect_whole(std::size_t index, std::uint64_t records = kRecords) {
    expect_whole_log(peers_[index].address(), GetParam(), records, kRecordBytes);
  }

  std::chrono::milliseconds replica_timeout_ = std::chrono::seconds(5);
  OpenedPeers peers_{GetParam()};
};

TEST_P(LogOpen, AllReplicasAreReadAndNoneIsTakenForAnother) {
  const std::vector<Lsn> places = fill();
  ASSERT_EQ(places.size(), kRecords);
  // Each in turn is damaged at a place of its own: the first is read by the caller's thread.
  for (std::size_t damaged = 0; damaged < kReplicas; ++damaged) {
    const std::size_t number = 10 + 100 * damaged;
    peers_[damaged].flip_behind(places[number]);
    auto log = open();
    ASSERT_TRUE(log.ok()) << log.error().message;
    EXPECT_EQ(log->status().next_index, kRecords);
    const std::vector<RepairReport> repairs = log->take_repairs();
    ASSERT_EQ(repairs.size(), 1u);
    EXPECT_EQ(repairs[0].peer, peers_[damaged].address());
    EXPECT_TRUE(repairs[0].repaired) << repairs[0].error;
    const std::string found = "damaged record at " + std::to_string(places[number].value);
    EXPECT_NE(repairs[0].found.find(found), std::string::npos) << repairs[0].found;
    for (const ReplicaStatus& each : log->status().replicas) {
      EXPECT_TRUE(each.up) << each.peer << ": " << each.down_reason;
    }
    EXPECT_TRUE(log->close(std::chrono::minutes(1)).ok());
  }
  for (std::size_t index = 0; index < kReplicas; ++index) expect_whole(index);
}

TEST_P(LogOpen, WhoDoesNotAnswerIsDownAndTheOthersAreRead) {
  ASSERT_EQ(fill().size(), kRecords);
  // The first has no session: another one is then the one that is read by the caller's thread.
  peers_[0].stop();
  {
    auto log = open();
    ASSERT_TRUE(log.ok()) << log.error().message;
    EXPECT_EQ(log->status().next_index, kRecords);
    EXPECT_FALSE(log->status().replicas[0].up);
    EXPECT_TRUE(log->status().replicas[1].up && log->status().replicas[2].up);
  }
  peers_[1].stop();
  EXPECT_EQ(open().code(), ErrorCode::QuorumLost);
}

// A flush of one replica never ends: its writer goes on without it, and another one takes over,
// whose session there is never granted. Then the medium answers, and what it was asked by the older
// writer counts for nothing.
TEST_P(LogOpen, AWriterTakesOverWhileAMediumHangs) {
  constexpr int kMore = 5;
  replica_timeout_ = std::chrono::seconds(2);
  for (std::size_t hung = 0; hung < kReplicas; ++hung) {
    auto first = open();
    ASSERT_TRUE(first.ok()) << first.error().message;
    append_and_wait(*first, kMore);
    Hang& medium = peers_[hung].medium();
    medium.hang(true);
    append_and_wait(*first, kMore);
    EXPECT_TRUE(comes_true([&] { return medium.waits(); }));
    auto second = open(true);
    ASSERT_TRUE(second.ok()) << second.error().message;
    const std::uint64_t committed = (3 * hung + 2) * std::uint64_t{kMore};
    EXPECT_EQ(second->status().next_index, committed);
    EXPECT_FALSE(second->status().replicas[hung].up);
    // Expect: the older one commits nothing, whatever the medium does.
    const auto never = first->append(std::vector<std::byte>(kRecordBytes));
    medium.hang(false);
    if (never.ok()) {
      EXPECT_EQ(first->wait(*never, Level::Committed, std::chrono::minutes(1)).code(),
                ErrorCode::OutcomeUnknown);
      EXPECT_EQ(first->poll().code(), ErrorCode::Fenced);
    }
    append_and_wait(*second, kMore);
    EXPECT_TRUE(comes_true([&] {
      (void)second->repair();
      return second->status().replicas[hung].up;
    })) << second->status().replicas[hung].down_reason;
    const auto closed = second->close(std::chrono::minutes(1));
    EXPECT_TRUE(closed.ok()) << closed.error().message;
    for (std::size_t index = 0; index < kReplicas; ++index) expect_whole(index, committed + kMore);
    if (HasFailure()) FAIL() << hung;
  }
}

// What hangs is the grant itself: a writer goes on without that replica, another one takes over on
// the other two, and then the medium answers for both.
TEST_P(LogOpen, AGrantThatComesWhenItsWriterIsFencedChangesNothing) {
  constexpr int kMore = 5;
  replica_timeout_ = std::chrono::seconds(2);
  for (std::size_t hung = 0; hung < kReplicas; ++hung) {
    std::uint64_t before = 0;
    {
      auto first = open();
      ASSERT_TRUE(first.ok()) << first.error().message;
      append_and_wait(*first, kMore);
      before = first->status().next_index;
      ASSERT_TRUE(first->close(std::chrono::minutes(1)).ok());
    }
    Hang& medium = peers_[hung].medium();
    medium.hang(true);
    auto second = open();
    ASSERT_TRUE(second.ok()) << second.error().message;
    EXPECT_TRUE(medium.waits());
    EXPECT_FALSE(second->status().replicas[hung].up);
    append_and_wait(*second, kMore);
    auto third = open(true);
    ASSERT_TRUE(third.ok()) << third.error().message;
    EXPECT_FALSE(third->status().replicas[hung].up);
    EXPECT_EQ(third->status().next_index, before + kMore);
    append_and_wait(*third, kMore);
    medium.hang(false);
    // Expect: the second one may be granted that replica now, commits nothing, and is told why.
    const auto never = second->append(std::vector<std::byte>(kRecordBytes));
    EXPECT_TRUE(comes_true([&] {
      (void)second->repair();
      return second->poll().code() == ErrorCode::Fenced;
    }));
    EXPECT_FALSE(never.ok() && second->wait(*never, Level::Committed, {}).ok());
    EXPECT_TRUE(comes_true([&] {
      (void)third->repair();
      return third->status().replicas[hung].up;
    })) << third->status().replicas[hung].down_reason;
    append_and_wait(*third, kMore);
    const auto closed = third->close(std::chrono::minutes(1));
    EXPECT_TRUE(closed.ok()) << closed.error().message;
    for (std::size_t index = 0; index < kReplicas; ++index) {
      expect_whole(index, before + 3 * kMore);
    }
    if (HasFailure()) FAIL() << hung;
  }
}

INSTANTIATE_TEST_SUITE_P(Here, LogOpen, testing::Values(Transport::Tcp, Transport::Shm),
                         [](const auto& each) { return std::string(to_string(each.param)); });

}  // namespace
}  // namespace perdure::server
