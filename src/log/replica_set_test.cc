// The rules of a replica set: who votes, what is chosen, when something is committed.
#include "log/replica_set.h"

#include <gtest/gtest.h>

namespace perdure::log {
namespace {

pmem::Uuid pool(int number) {
  pmem::Uuid uuid;
  uuid.bytes[0] = static_cast<std::byte>(number);
  return uuid;
}

Configuration configuration(std::vector<int> members, std::uint32_t quorum,
                            std::uint32_t generation = 1) {
  Configuration made{generation, quorum, {}};
  for (const int each : members) made.members.push_back({pool(each), ""});
  return made;
}

Candidate whole(int number, std::uint32_t epoch, std::uint64_t end) {
  const Rank rank{Epoch{epoch}, Lsn{end}};
  return {pool(number), Standing::Whole, rank, rank, Lsn{}};
}

Candidate damaged(int number, std::uint32_t epoch, std::uint64_t readable, std::uint64_t extent) {
  return {pool(number),
          Standing::Damaged,
          {Epoch{epoch}, Lsn{readable}},
          {Epoch{epoch}, Lsn{extent}},
          Lsn{}};
}

Candidate incomplete(int number, std::uint32_t epoch = 9) {
  return {pool(number), Standing::Incomplete, {}, {Epoch{epoch}, Lsn{UINT64_MAX}}, Lsn{}};
}

Candidate blank(int number) { return {pool(number), Standing::Unknown, {}, {}, Lsn{}}; }

std::optional<std::size_t> chosen(std::vector<Candidate> candidates, Configurations in_play) {
  return choose(candidates, in_play).history;
}

constexpr std::optional<std::size_t> kNone;

TEST(ReplicaSet, TheHighestEpochThenTheLongestIsTaken) {
  const Configurations three = {configuration({0, 1, 2}, 2)};
  //                 what the replicas hold                                       taken
  EXPECT_EQ(chosen({whole(0, 1, 100), whole(1, 1, 200), whole(2, 1, 150)}, three), 1u);
  EXPECT_EQ(chosen({whole(0, 1, 900), whole(1, 2, 200), whole(2, 1, 800)}, three), 1u);
  EXPECT_EQ(chosen({whole(0, 2, 100), whole(1, 2, 100), whole(2, 1, 800)}, three), 0u);
}

TEST(ReplicaSet, BlankForeignAndIncompleteOnesDoNotVoteNorAreTaken) {
  const Configurations three = {configuration({0, 1, 2}, 2)};
  EXPECT_EQ(chosen({whole(0, 1, 100), incomplete(1), blank(2)}, three), kNone);
  EXPECT_EQ(chosen({whole(0, 1, 100), incomplete(1), whole(2, 1, 100)}, three), 0u);
  EXPECT_EQ(chosen({whole(0, 1, 100), whole(7, 1, 100)}, three), kNone) << "7 is no member";
}

TEST(ReplicaSet, AnIncompleteOneVotesForAHistoryOfALaterEpochThanItsOwn) {
  const Configurations three = {configuration({0, 1, 2}, 2)};
  EXPECT_EQ(chosen({incomplete(0, 4), incomplete(1, 4), whole(2, 5, 100)}, three), 2u);
  EXPECT_EQ(chosen({incomplete(0, 5), incomplete(1, 5), whole(2, 5, 100)}, three), kNone);
  Candidate known = incomplete(1, 5);
  known.extent.end = Lsn{100};
  EXPECT_EQ(chosen({known, whole(2, 5, 100)}, three), 1u) << "or for one that has all it had";
  EXPECT_EQ(chosen({known, whole(2, 5, 99)}, three), kNone);
}

TEST(ReplicaSet, AChangeIsAloneInPlayOnceItIsKnownToBeCommitted) {
  const Configuration one = configuration({0, 1, 2}, 2);
  const Configuration two = configuration({0, 1, 3}, 2, 2);
  const std::vector<ConfigurationAt> found = {{Lsn{100}, two}};
  //                               stated                 claimed
  EXPECT_EQ(configurations_in_play(one, {}, Lsn{500}), Configurations{one});
  EXPECT_EQ(configurations_in_play(one, found, Lsn{99}), (Configurations{one, two}));
  EXPECT_EQ(configurations_in_play(one, found, Lsn{100}), Configurations{two});
  EXPECT_EQ(configurations_in_play(two, found, Lsn{0}), Configurations{two});
}

TEST(ReplicaSet, WhatALowerEpochClaimsWasDecidedWhenTheHigherBegan) {
  Candidate stale = whole(0, 1, 300);
  stale.claimed = Lsn{300};
  const Configurations three = {configuration({0, 1, 2}, 2)};
  EXPECT_EQ(chosen({stale, whole(1, 2, 200), whole(2, 2, 200)}, three), 1u);
}

TEST(ReplicaSet, ADamagedOneVotesOnlyForAHistoryThatHasAllItEverShowed) {
  const Configurations three = {configuration({0, 1, 2}, 2)};
  EXPECT_EQ(chosen({damaged(0, 1, 100, 500), whole(1, 1, 500)}, three), 1u);
  EXPECT_EQ(chosen({damaged(0, 1, 100, 500), whole(1, 1, 499)}, three), kNone);
  EXPECT_EQ(chosen({whole(1, 1, 499), damaged(0, 1, 100, 500)}, three), kNone) << "in any order";
  EXPECT_EQ(chosen({damaged(0, 1, 100, 500), whole(1, 2, 300)}, three), 1u)
      << "a later epoch has it";
  EXPECT_EQ(chosen({damaged(0, 3, 400, 500), whole(1, 2, 600)}, three), kNone);
  EXPECT_EQ(chosen({damaged(0, 1, 100, 500), whole(1, 1, 300), whole(2, 1, 200)}, three), 1u)
      << "two whole ones hold everything";
}

TEST(ReplicaSet, AHistoryShorterThanWhatWasCommittedIsNotTaken) {
  Candidate knows = whole(0, 1, 100);
  knows.claimed = Lsn{200};
  const Choice choice =
      choose(std::vector{knows, whole(1, 1, 150)}, Configurations{configuration({0, 1, 2}, 2)});
  EXPECT_FALSE(choice.history);
  EXPECT_TRUE(choice.damage);
}

TEST(ReplicaSet, VotesAndSessionsNeeded) {
  //  n  quorum  votes  sessions
  const std::size_t cases[][4] = {{1, 1, 1, 1}, {2, 1, 2, 2}, {2, 2, 1, 2}, {3, 1, 3, 3},
                                  {3, 2, 2, 2}, {3, 3, 1, 3}, {4, 2, 3, 3}, {5, 3, 3, 3}};
  for (const auto& [n, quorum, votes, sessions] : cases) {
    Configuration each;
    each.quorum = static_cast<std::uint32_t>(quorum);
    each.members.resize(n);
    EXPECT_EQ(each.votes_needed(), votes) << n << " of quorum " << quorum;
    EXPECT_EQ(each.sessions_needed(), sessions) << n << " of quorum " << quorum;
    EXPECT_GT(2 * sessions, n) << "no two writers have them both";
    EXPECT_GT(votes + quorum, n) << "every committed record is on a voter";
  }
}

TEST(ReplicaSet, WhileAChangeIsNotCommittedBothConfigurationsMustAgree) {
  const Configurations both = {configuration({0, 1, 2}, 2), configuration({0, 1, 3}, 2, 2)};
  EXPECT_EQ(chosen({whole(0, 1, 100), whole(3, 1, 100)}, both), kNone) << "one vote of the old";
  EXPECT_EQ(chosen({whole(1, 1, 100), whole(2, 1, 100)}, both), kNone) << "one vote of the new";
  EXPECT_EQ(chosen({whole(0, 1, 100), whole(1, 1, 100)}, both), 0u);
}

/// What a state of this epoch says.
Statement said(std::uint32_t epoch, Configuration stated, std::uint32_t loss = 0) {
  stated.loss = Epoch{loss};
  return {Epoch{epoch}, stated, {}, {}, false};
}

// Epoch 2 began with a loss and with the first configuration on 2 alone. An opening without it had
// written epoch 3 to 0 when that was lost; then 1 and 2 went on, in epoch 4. Expect: what 0 alone
// says does not undo that, whoever else is there.
TEST(ReplicaSet, AnEpochThatNeverBeganUndoesNoLossThatALaterOneKnows) {
  const Configuration first = configuration({0, 1, 2, 3}, 3);
  const Configuration changed = configuration({0, 1, 2, 3}, 2, 2);
  Statements statements;
  statements.all = {said(3, changed), said(4, first, 2), said(4, first, 2)};
  EXPECT_EQ(newest_stated(statements).generation, 1u);
  EXPECT_EQ(newest_known(statements, changed).generation, 1u);
  // Where nobody went on with it, it did.
  statements.all = {said(3, changed), said(2, first, 2)};
  EXPECT_EQ(newest_stated(statements).generation, 2u);
}

// A loss was accepted by one whose records are no more, and a history is taken that is from before
// and has a change. Its record stays there, and counts for whoever opens the log next. Expect: it
// counts here too, beside what was known.
TEST(ReplicaSet, AHistoryFromBeforeALossBringsItsChangesAndDecidesNothing) {
  Configuration known = configuration({0, 1, 2}, 2);
  known.loss = Epoch{2};
  const std::vector<ConfigurationAt> found = {{Lsn{100}, configuration({0, 1, 2, 3}, 2, 2)}};
  Statement history = said(1, configuration({0, 1, 2}, 2));
  history.found = found;
  for (const Lsn claimed : {Lsn{0}, Lsn{100}}) {
    history.claimed = claimed;
    const Configurations in_play = in_play_by(known, history);
    ASSERT_EQ(in_play.size(), 2u);
    EXPECT_EQ(in_play.front(), known);
    EXPECT_EQ(in_play.back().generation, 2u);
    EXPECT_EQ(in_play.back().loss, known.loss);
  }
  history.epoch = Epoch{2};
  EXPECT_EQ(in_play_by(known, history).size(), 1u) << "of the epoch that began with it";
}

TEST(CommitRule, CountsReplicasOfTheConfigurationOnly) {
  const std::vector<pmem::Uuid> pools = {pool(0), pool(1), pool(2), pool(9)};
  CommitRule rule({configuration({0, 1, 2}, 2)}, pools);
  const std::vector<Lsn> durable = {Lsn{100}, Lsn{300}, Lsn{200}, Lsn{900}};
  EXPECT_EQ(rule.committed(durable), Lsn{200});
  CommitRule joint({configuration({0, 1, 2}, 2), configuration({0, 1, 9}, 3, 2)}, pools);
  EXPECT_EQ(joint.committed(durable), Lsn{100}) << "the new one lacks it";
  CommitRule grown({configuration({0, 1, 2}, 3), configuration({0, 1, 9}, 1, 2)}, pools);
  EXPECT_EQ(grown.committed(durable), Lsn{100}) << "the old one lacks it";
  EXPECT_TRUE(rule.enough([](std::size_t index) { return index == 0 || index == 2; }));
  EXPECT_FALSE(rule.enough([](std::size_t index) { return index == 0 || index == 3; }));
}

TEST(Configuration, OnePoolTwiceAndAQuorumBeyondTheMembersAreRefused) {
  EXPECT_TRUE(validate(configuration({0, 1, 2}, 2)).ok());
  EXPECT_FALSE(validate(configuration({0, 1, 0}, 2)).ok());
  EXPECT_FALSE(validate(configuration({0, 1}, 3)).ok());
  EXPECT_FALSE(validate(configuration({0, 1}, 0)).ok());
  EXPECT_FALSE(validate(configuration({}, 0)).ok());
}

TEST(Configuration, AUuidReadsBack) {
  const pmem::Uuid uuid = pmem::Uuid::random();
  EXPECT_EQ(parse_uuid(to_string(uuid)), uuid);
  EXPECT_FALSE(parse_uuid("127.0.0.1:7470"));
  EXPECT_FALSE(parse_uuid(""));
}

}  // namespace
}  // namespace perdure::log
