// The judge of the log is shown every violation that it must notice, planted one at a time; and a
// history without any, which it must let pass.
#include "testing/torture/log_judge.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

namespace perdure::test {
namespace {

constexpr std::uint64_t kBytes = 100;

Content content(std::uint64_t salt) { return {salt, kBytes}; }
Lsn place(std::uint64_t index) { return Lsn{64 + index * 200}; }

LogStatus status(std::uint32_t epoch, std::uint64_t first, std::uint64_t next) {
  LogStatus found;
  found.epoch = Epoch{epoch};
  found.head = place(first);
  found.tail = place(next);
  found.committed = found.tail;
  found.next_index = next;
  return found;
}

Ticket ticket(std::uint64_t index) { return {place(index), place(index + 1), index}; }

ReadRecord record(std::uint64_t index, std::uint64_t salt) {
  return {place(index), index, Epoch{1}, content(salt)};
}

/// A log with ten records, of which the first eight were committed and the first three trimmed.
struct History {
  History() {
    first = judge.opened(status(1, 0, 0));
    for (std::uint64_t index = 0; index < 10; ++index) {
      judge.appended(first, ticket(index), content(index));
    }
    judge.committed(first, ticket(7));
    judge.trim_begins(first, place(3));
    judge.trimmed(first, place(3));
  }
  LogJudge judge;
  LogJudge::Writer first = 0;
};

std::vector<ReadRecord> records(std::uint64_t from, std::uint64_t to) {
  std::vector<ReadRecord> made;
  for (std::uint64_t index = from; index < to; ++index) made.push_back(record(index, index));
  return made;
}

void expect_breach(const std::string& law, const std::function<void(History&)>& plant) {
  History history;
  ASSERT_FALSE(history.judge.breach()) << history.judge.breach()->story;
  plant(history);
  ASSERT_TRUE(history.judge.breach()) << "nothing was noticed; expected " << law;
  EXPECT_EQ(history.judge.breach()->law, law) << history.judge.breach()->story;
}

TEST(LogJudge, LetsARightHistoryPass) {
  History history;
  LogJudge& judge = history.judge;
  const auto second = judge.opened(status(2, 3, 9));  // one unacknowledged record was kept
  judge.read_whole("replica0", records(3, 9));
  judge.appended(second, ticket(9), content(109));
  judge.committed(second, ticket(9));
  judge.committed(history.first, ticket(8));  // told late, and it is true
  judge.read(record(9, 109), 3, true);
  judge.read(record(1, 1), 0, true);  // by a reader that had begun before the trim
  judge.trim_begins(second, place(10));
  judge.trimmed(second, place(10));
  (void)judge.opened(status(3, 10, 10));
  judge.read_whole("replica1", {});
  EXPECT_FALSE(judge.breach()) << judge.breach()->story;
}

// One opening decides whether a loss was accepted. What comes behind it is judged as ever.
TEST(LogJudge, BearsALossThatMayHaveBeenAcceptedOnce) {
  History history;
  history.judge.loss_may_be_accepted();
  (void)history.judge.opened(status(2, 3, 7));
  EXPECT_FALSE(history.judge.breach()) << history.judge.breach()->story;
  expect_breach("committed-is-never-lost", [](History& other) {
    other.judge.loss_may_be_accepted();
    (void)other.judge.opened(status(2, 3, 10));
    (void)other.judge.opened(status(3, 3, 7));
  });
}

// What is committed since the log was opened counts, too; what is not may be there.
TEST(LogJudge, ReadsWhatWasJustBroughtToEqual) {
  for (const std::uint64_t end : {8u, 10u}) {
    History history;
    history.judge.read_brought("replica0", records(3, end));
    EXPECT_FALSE(history.judge.breach()) << history.judge.breach()->story;
  }
  expect_breach("committed-is-never-lost",
                [](History& history) { history.judge.read_brought("replica0", records(3, 7)); });
  expect_breach("trimmed-never-returns",
                [](History& history) { history.judge.read_brought("replica0", records(2, 8)); });
}

TEST(LogJudge, KnowsWhichRecordsALaterOneVouchesFor) {
  History history;
  LogJudge& judge = history.judge;
  EXPECT_EQ(judge.committed_below(), 8u);
  EXPECT_EQ(judge.vouched_below(), 0u);  // all ten were appended before any was acknowledged
  judge.appended(history.first, ticket(10), content(10));
  EXPECT_EQ(judge.vouched_below(), 0u);  // it may not be durable anywhere
  judge.committed(history.first, ticket(10));
  EXPECT_EQ(judge.vouched_below(), 8u);
  (void)judge.opened(status(2, 3, 11));
  EXPECT_EQ(judge.vouched_below(), 11u);
}

// The third opening finds record 8 committed, but nobody has read it: of the two that were appended
// as the eighth, each may be it.
TEST(LogJudge, DoesNotGuessWhereAnUnreadRecordBegins) {
  History history;
  LogJudge& judge = history.judge;
  const auto second = judge.opened(status(2, 3, 8));
  judge.appended(second, {place(9), place(10), 8}, content(208));
  const auto third = judge.opened(status(3, 3, 9));
  judge.trim_begins(third, place(5));
  judge.trimmed(third, place(5));
  EXPECT_EQ(judge.trimmed_below(), 5u);
  (void)judge.opened(status(4, 5, 9));
  judge.read_whole("replica0", records(5, 9));
  EXPECT_FALSE(judge.breach()) << judge.breach()->story;
}

TEST(LogJudge, StillNoticesATrimmedRecordBeforeOneThatNobodyHasRead) {
  expect_breach("trimmed-never-returns", [](History& history) {
    LogJudge& judge = history.judge;
    const auto second = judge.opened(status(2, 3, 9));
    judge.trim_begins(second, place(5));
    judge.trimmed(second, place(5));
    (void)judge.opened(status(3, 5, 9));
    judge.read_whole("replica0", records(4, 9));
  });
}

TEST(LogJudge, NoticesALostRecord) {
  expect_breach("committed-is-never-lost",
                [](History& history) { (void)history.judge.opened(status(2, 3, 7)); });
  expect_breach("committed-is-never-lost", [](History& history) {
    (void)history.judge.opened(status(2, 3, 8));
    history.judge.read_whole("replica0", records(3, 7));  // a replica that is called up lacks one
  });
  expect_breach("committed-is-never-lost", [](History& history) {
    (void)history.judge.opened(status(2, 3, 8));
    history.judge.read_refused("replica0", {ErrorCode::Corrupt, "damaged"});
  });
  expect_breach("committed-is-never-lost", [](History& history) {
    (void)history.judge.opened(status(2, 5, 8));  // nobody asked to trim so much
  });
}

TEST(LogJudge, NoticesATrimmedRecord) {
  expect_breach("trimmed-never-returns",
                [](History& history) { (void)history.judge.opened(status(2, 2, 8)); });
  expect_breach("trimmed-never-returns", [](History& history) {
    (void)history.judge.opened(status(2, 3, 8));
    history.judge.read_whole("replica0", records(2, 8));
  });
  expect_breach("trimmed-never-returns",
                [](History& history) { history.judge.read(record(2, 2), 3, true); });
}

TEST(LogJudge, NoticesAPlaceThatIsUsedTwice) {
  expect_breach("one-record-per-place", [](History& history) {
    history.judge.trim_begins(history.first, place(8));
    history.judge.trimmed(history.first, place(8));
    LogStatus anew = status(2, 8, 8);
    anew.next_index = 0;  // the identity of the log is gone with its last record
    (void)history.judge.opened(anew);
  });
  expect_breach("one-record-per-place", [](History& history) {
    const auto second = history.judge.opened(status(2, 3, 8));
    history.judge.appended(second, ticket(7), content(107));
  });
  expect_breach("one-record-per-place", [](History& history) {
    (void)history.judge.opened(status(2, 3, 8));
    auto swapped = records(3, 8);
    history.judge.appended(history.first, {place(5), place(6), 5}, content(205));
    swapped[2].content = content(205);  // appended by somebody, but not what was committed there
    history.judge.read_whole("replica0", swapped);
  });
  expect_breach("one-record-per-place",
                [](History& history) { (void)history.judge.opened(status(2, 3, 11)); });
}

TEST(LogJudge, NoticesASecondWriterThatCommits) {
  expect_breach("no-second-writer-commits", [](History& history) {
    (void)history.judge.opened(status(2, 3, 8));
    history.judge.committed(history.first, ticket(8));
  });
  expect_breach("epochs-grow",
                [](History& history) { (void)history.judge.opened(status(1, 3, 8)); });
}

TEST(LogJudge, NoticesDamage) {
  expect_breach("damage-is-never-returned",
                [](History& history) { history.judge.read(record(5, 99), 0, false); });
  expect_breach("damage-is-never-returned", [](History& history) {
    (void)history.judge.opened(status(2, 3, 8));
    auto damaged = records(3, 8);
    damaged[1].content.hash ^= 1;
    history.judge.read_whole("replica0", damaged);
  });
}

TEST(LogJudge, NoticesAReadRecordThatIsReplaced) {
  expect_breach("only-committed-is-read", [](History& history) {
    history.judge.read(record(9, 9), 0, false);
    const auto second = history.judge.opened(status(2, 3, 9));
    history.judge.appended(second, ticket(9), content(109));
    history.judge.committed(second, ticket(9));
  });
}

TEST(LogJudge, LeavesOutWhatItIsToldTo) {
  History history;
  history.judge.leave_out({"committed-is-never-lost", "one-record-per-place"});
  (void)history.judge.opened(status(2, 3, 7));
  EXPECT_FALSE(history.judge.breach());
}

TEST(LogJudge, BearsLossOnlyWhenToldTo) {
  History history;
  history.judge.bear_loss();
  (void)history.judge.opened(status(2, 3, 5));
  EXPECT_FALSE(history.judge.breach()) << history.judge.breach()->story;
  history.judge.read(record(4, 99), 0, false);
  ASSERT_TRUE(history.judge.breach());
  EXPECT_EQ(history.judge.breach()->law, "damage-is-never-returned");
}

}  // namespace
}  // namespace perdure::test
