// Who may be named when a log is opened: the outcome does not depend on the order of the peers, and
// whoever names the wrong ones fences nobody. docs/log-protocol.md, open 1.
#include "log_cluster.h"

#include <algorithm>
#include <array>
#include <functional>
#include <optional>

#include "testing/relayed_peer.h"
#include "testing/volatile_peer.h"

namespace perdure {
namespace {

constexpr std::size_t kServers = 4;
const Order kOld = {0, 1, 2};     // the replicas before a change
const Order kAll = {0, 1, 2, 3};  // and who is added, or put in the place of 2

using Make = std::function<void(Cluster&)>;

std::vector<Order> orders_of(Order named) {
  std::sort(named.begin(), named.end());
  std::vector<Order> orders;
  do orders.push_back(named);
  while (std::next_permutation(named.begin(), named.end()));
  return orders;
}

/// The highest epoch that each pool has granted.
std::vector<std::uint32_t> fences(Cluster& cluster) {
  std::vector<std::uint32_t> epochs;
  for (std::size_t index = 0; index < kServers; ++index) {
    const Deadline soon(cluster.world().clock(), std::chrono::milliseconds(100));
    const auto pool = cluster.peer(index)->describe(kPool, soon);
    EXPECT_TRUE(pool.ok()) << pool.error().message;
    epochs.push_back(pool.ok() ? pool->epoch.value : 0);
  }
  return epochs;
}

/// What becomes of opening, in words that do not depend on the order of the peers.
std::string outcome(const Result<Writer>& opened) {
  if (!opened.ok()) return std::string(to_string(opened.code()));
  const log::Configuration& has = (*opened)->configuration();
  std::vector<std::string> pools;
  for (const log::Member& member : has.members) pools.push_back(to_string(member.pool));
  std::sort(pools.begin(), pools.end());
  return fmt::format("generation {}, quorum {} of {}, {} records", has.generation, has.quorum,
                     fmt::join(pools, " "), (*opened)->status().next_index);
}

/// What becomes of it whatever the order of the peers. Who is refused before a session was asked
/// for has fenced nobody.
std::string outcome_in_any_order(const Make& make, const Order& named, bool partial = false) {
  std::optional<std::string> first;
  for (const Order& order : orders_of(named)) {
    Cluster cluster(kServers);
    make(cluster);
    if (testing::Test::HasFatalFailure()) return "";
    WriterOptions options = cluster.options();
    options.partial = partial;
    const auto before = fences(cluster);
    const auto opened = cluster.open(order, options);
    const std::string became = outcome(opened);
    if (!first) first = became;
    EXPECT_EQ(became, *first) << fmt::format("peers {}: ", fmt::join(order, ","))
                              << (opened.ok() ? "" : opened.error().message);
    if (!opened.ok()) {
      EXPECT_EQ(fences(cluster), before) << opened.error().message;
      continue;
    }
    Cluster::append(**opened, 1);
  }
  return first.value_or("");
}

void cut_off_all(Cluster& cluster, bool cut) {
  for (std::size_t index = 0; index < kServers; ++index) cluster.cut_off(index, cut);
}

/// The record of a change is on replica 0, and on 3 if that is made one. Nobody knows whether it is
/// committed.
enum class Change { Add, Remove, Replace, Quorum };
Make undecided(Change change) {
  return [change](Cluster& cluster) {
    Writer log = cluster.opened(kOld);
    ASSERT_NE(log, nullptr);
    Cluster::append(*log, 3);
    Cluster::settle(*log);
    const std::string third = log->status().replicas[2].pool_uuid;
    cluster.cut_off(1, true);
    cluster.cut_off(2, true);
    const auto changed = change == Change::Add      ? log->add_replica(cluster.peer(3), 0)
                         : change == Change::Remove ? log->remove_replica(third, 0)
                         : change == Change::Quorum ? log->change_quorum(1)
                                                    : log->replace_replica(third, cluster.peer(3));
    ASSERT_FALSE(changed.ok());
    ASSERT_EQ(changed.code(), ErrorCode::OutcomeUnknown) << changed.error().message;
    log.reset();
    cluster.cut_off(1, false);
    cluster.cut_off(2, false);
  };
}

// Whoever of the replicas before it and after it is named: what is in play is the same.
TEST(LogNaming, AnUndecidedChangeIsFoundInWhateverOrderThePeersAreNamed) {
  struct Case {
    Change change;
    Order named;
    std::string becomes;
  };
  const std::string refused(to_string(ErrorCode::InvalidArgument));
  const std::array cases = {
      Case{Change::Add, kOld, "generation 2, quorum 3 of"},
      Case{Change::Add, kAll, "generation 2, quorum 3 of"},
      Case{Change::Add, {0, 1, 3}, refused},
      Case{Change::Remove, kOld, "generation 2, quorum 2 of"},
      Case{Change::Remove, {0, 1}, "generation 2, quorum 2 of"},
      Case{Change::Remove, {1, 2}, refused},
      Case{Change::Replace, kOld, "generation 2, quorum 2 of"},
      Case{Change::Replace, {0, 1, 3}, "generation 2, quorum 2 of"},
      Case{Change::Replace, {1, 2, 3}, refused},
      Case{Change::Quorum, kOld, "generation 2, quorum 1 of"},
  };
  for (const Case& each : cases) {
    const std::string became = outcome_in_any_order(undecided(each.change), each.named);
    EXPECT_EQ(became.substr(0, each.becomes.size()), each.becomes)
        << static_cast<int>(each.change) << fmt::format(": {}", fmt::join(each.named, ","));
    if (HasFatalFailure()) return;
  }
}

// A writer of a higher epoch has begun without it: the change is in no history that counts, and
// nobody opens the log by it.
TEST(LogNaming, WhoNamesAChangeThatWasBuriedFencesNobody) {
  for (const Order& order : orders_of(kAll)) {
    Cluster cluster(kServers);
    undecided(Change::Add)(cluster);
    cluster.cut_off(0, true);
    Writer live = cluster.opened(kOld);
    ASSERT_NE(live, nullptr);
    Cluster::append(*live, 2);
    cluster.cut_off(0, false);
    const auto before = fences(cluster);
    const auto wrong = cluster.open(order);
    EXPECT_EQ(wrong.code(), ErrorCode::InvalidArgument);
    EXPECT_EQ(fences(cluster), before) << fmt::format("peers {}", fmt::join(order, ","));
    Cluster::append(*live, 2);
  }
}

// A writer is in the midst of adding a replica, and all will be needed. By the states, those that
// are named are enough to open the log; they could not decide the change.
TEST(LogNaming, WhoCanNotDecideAChangeDoesNotFenceItsWriter) {
  for (const Order& order : orders_of(kOld)) {
    Cluster cluster(kServers);
    Writer log = cluster.opened(kOld);
    ASSERT_NE(log, nullptr);
    Cluster::append(*log, 3);
    Cluster::settle(*log);
    cluster.cut_off(1, true);
    cluster.cut_off(2, true);
    ASSERT_EQ(log->add_replica(cluster.peer(3), 4).code(), ErrorCode::OutcomeUnknown);
    cluster.cut_off(1, false);
    cluster.cut_off(2, false);
    const auto before = fences(cluster);
    const auto refused = cluster.open(order);
    EXPECT_EQ(refused.code(), ErrorCode::QuorumLost);
    EXPECT_EQ(fences(cluster), before) << fmt::format("peers {}", fmt::join(order, ","));
    // Expect: with all of them it is decided.
    const auto opened = cluster.open(kAll);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    EXPECT_EQ((*opened)->configuration().generation, 2u);
  }
}

// The history that buried it is damaged now, and its third replica is gone: the only whole one is
// that of the change. Naming the replicas of the change would not help.
TEST(LogNaming, AChangeThatADamagedHistoryHasBuriedDoesNotHideHowToGoOn) {
  for (const Change change : {Change::Add, Change::Remove, Change::Quorum}) {
    for (const Order& order : orders_of(kOld)) {
      Cluster cluster(kServers);
      undecided(change)(cluster);
      cluster.cut_off(0, true);
      Writer live = cluster.opened(kOld);
      ASSERT_NE(live, nullptr);
      const auto tickets = Cluster::append(*live, 5);
      Cluster::settle(*live);
      live.reset();
      cluster.cut_off(0, false);
      cluster.flip_record(2, tickets[1].lsn);
      const auto before = fences(cluster);
      cluster.cut_off(1, true);
      const auto refused = cluster.open(order);
      const std::string named =
          fmt::format("{}, peers {}", static_cast<int>(change), fmt::join(order, ","));
      EXPECT_EQ(refused.code(), ErrorCode::Corrupt) << named;
      const std::string& words = refused.error().message;
      EXPECT_NE(words.find("accept_loss"), std::string::npos) << named << ": " << words;
      EXPECT_NE(words.find("server2 can return"), std::string::npos) << named << ": " << words;
      cluster.cut_off(1, false);
      EXPECT_EQ(fences(cluster), before) << named;
      cluster.cut_off(1, true);
      // Expect: with it, the log goes on by the history that was written last.
      WriterOptions options = cluster.options();
      options.accept_loss = true;
      const auto opened = cluster.open(order, options);
      ASSERT_TRUE(opened.ok()) << named << ": " << opened.error().message;
      EXPECT_EQ((*opened)->configuration().generation, 1u);
      EXPECT_EQ((*opened)->status().next_index, 4u) << named;
    }
  }
}

/// A replacement of 2 by 3 that an opening has committed, and the network fails before any state
/// says so: the ring of 0 knows it. False: it came out otherwise.
bool known_by_rings(Cluster& cluster, std::uint64_t events) {
  undecided(Change::Replace)(cluster);
  cluster.world().after(events, [&cluster] { cut_off_all(cluster, true); });
  (void)cluster.open(kAll);
  cluster.world().cancel_after();
  cut_off_all(cluster, false);
  for (std::size_t index = 0; index < kServers; ++index) {
    if (cluster.scan(index).start.state().configuration.generation != 1) return false;
  }
  const log::ScanReport report = cluster.scan(0);
  return log::configurations_in_play(report.start.state().configuration, report.configurations,
                                     report.claimed)
             .front()
             .generation == 2;
}

TEST(LogNaming, WhatOnlyARingKnowsCountsInWhateverOrderThePeersAreNamed) {
  Cluster uncut(kServers);
  undecided(Change::Replace)(uncut);
  std::uint64_t events = uncut.events_to_open(kAll);
  for (bool known = false; !known;) {
    ASSERT_GT(events, 4u) << "no state of the log is as it should be";
    events -= 4;
    Cluster cluster(kServers);
    known = known_by_rings(cluster, events);
  }
  const Make make = [&](Cluster& cluster) { ASSERT_TRUE(known_by_rings(cluster, events)); };
  // Expect: those of the change, those that the states say, and all of both open it.
  const std::string opened = outcome_in_any_order(make, {0, 1, 3});
  EXPECT_EQ(opened.substr(0, 24), "generation 2, quorum 2 o");
  EXPECT_EQ(outcome_in_any_order(make, kOld), opened);
  // Of the change, two are needed. By the states 0 and 2 were enough, and would have been fenced.
  EXPECT_EQ(outcome_in_any_order(make, {0, 2}, true), to_string(ErrorCode::QuorumLost));
  EXPECT_EQ(outcome_in_any_order(make, {0, 3}, true), opened);
}

// The record of an addition is on one replica, and who opens the log names all that the states say,
// of whom one does not answer: by the states the others are enough.
TEST(LogNaming, WhoDoesNotReachEnoughForAChangeThatOnlyRingsKnowFencesNobody) {
  for (const std::size_t gone : kOld) {
    for (const Order& order : orders_of(kOld)) {
      Cluster cluster(kServers);
      undecided(Change::Add)(cluster);
      const auto before = fences(cluster);
      cluster.cut_off(gone, true);
      const auto opened = cluster.open(order);
      cluster.cut_off(gone, false);
      const std::string named = fmt::format("peers {}, {} is gone", fmt::join(order, ","), gone);
      if (gone == 0) {
        // Nobody who answers knows of the change: it is buried.
        ASSERT_TRUE(opened.ok()) << named << ": " << opened.error().message;
        Cluster::append(**opened, 1);
        continue;
      }
      ASSERT_FALSE(opened.ok()) << named;
      EXPECT_EQ(opened.code(), ErrorCode::QuorumLost) << opened.error().message;
      EXPECT_NE(opened.error().message.find("name the replicas of both"), std::string::npos)
          << opened.error().message;
      EXPECT_EQ(fences(cluster), before) << named;
      // Expect: with all who are in play it opens.
      const auto again = cluster.open(kAll);
      ASSERT_TRUE(again.ok()) << named << ": " << again.error().message;
      Cluster::append(**again, 1);
    }
  }
}

// Both of two are needed, and one of them is being replaced: by the states those two are enough.
TEST(LogNaming, WhoTakesOverInTheMiddleOfAReplacementFencesNobody) {
  for (const Order& order : {Order{0, 1}, Order{1, 0}}) {
    Cluster cluster(kServers);
    Writer live = cluster.opened({0, 1});
    ASSERT_NE(live, nullptr);
    Cluster::append(*live, 3);
    const std::string second = live->status().replicas[1].pool_uuid;
    cluster.cut_off(1, true);
    EXPECT_EQ(live->replace_replica(second, cluster.peer(2)).code(), ErrorCode::OutcomeUnknown);
    cluster.cut_off(1, false);
    const auto before = fences(cluster);
    EXPECT_EQ(cluster.open(order).code(), ErrorCode::QuorumLost);
    EXPECT_EQ(fences(cluster), before);
  }
}

// One of two was removed, and an opening that commits this is cut short by the power of the one
// that stays: perhaps only the one that was removed knows.
TEST(LogNaming, ARemovalThatOnlyTheRemovedOneKnowsClosesNoLog) {
  Cluster uncut;
  uncut.remove_second();
  const std::uint64_t whole = uncut.events_to_open({0, 1});
  constexpr std::uint64_t kEventsAtTheEnd = 90;
  ASSERT_GT(whole, kEventsAtTheEnd);
  std::size_t both_ways = 0;
  std::size_t removed_alone = 0;
  for (std::uint64_t events = whole - kEventsAtTheEnd; events < whole; events += 2) {
    const auto opens = [&](const Order& order) {
      Cluster cluster;
      cluster.remove_second();
      cluster.open_and_cut({0, 1}, 0, events);
      const auto opened = cluster.open(order);
      if (opened.ok()) Cluster::append(**opened, 1);
      return opened.ok();
    };
    const bool as_before = opens({0, 1});
    EXPECT_EQ(opens({1, 0}), as_before) << "cut after " << events;
    const bool as_after = opens({0});
    EXPECT_TRUE(as_before || as_after) << "cut after " << events;
    both_ways += as_before && as_after ? 1 : 0;
    removed_alone += as_before && !as_after ? 1 : 0;
  }
  EXPECT_GT(both_ways, 0u) << "the ring of 0 knows it, and no state does";
  EXPECT_GT(removed_alone, 0u) << "the ring of 0 does not know it";
}

/// A peer that answers everything with an error, or is the real one.
class FailingPeer final : public test::RelayedPeer {
 public:
  FailingPeer(std::unique_ptr<client::Peer> real, std::optional<ErrorCode> code)
      : RelayedPeer(std::move(real)), code_(code) {}
  Result<control::PoolDescription> describe(const std::string& pool, Deadline d) override {
    if (code_) return Error{*code_, std::string(to_string(*code_))};
    return RelayedPeer::describe(pool, d);
  }

 private:
  std::optional<ErrorCode> code_;
};

// A writer has replaced 2 by 3 while 1 was away, and 2 was never told. Who then reaches 1 and 2
// alone has a quorum of the replicas before the change, and would take 1 from the writer for
// nothing.
TEST(LogNaming, WhoReachesAQuorumOfThePastLeavesTheLiveWriterAlone) {
  for (const Order& order : orders_of(kOld)) {
    Cluster cluster(kServers);
    Writer live = cluster.opened(kOld);
    ASSERT_NE(live, nullptr);
    Cluster::append(*live, 3);
    Cluster::settle(*live);
    const auto states = [](std::span<std::byte> bytes) {
      return bytes.subspan(log::kStateAt, 2 * log::kStateEvery);
    };
    std::vector<std::byte> before_the_change;
    cluster.on_medium(2, [&](std::span<std::byte> bytes) {
      before_the_change.assign(states(bytes).begin(), states(bytes).end());
    });
    cluster.cut_off(1, true);
    const auto replaced =
        live->replace_replica(live->status().replicas[2].pool_uuid, cluster.peer(3));
    ASSERT_TRUE(replaced.ok()) << replaced.error().message;
    cluster.on_medium(2, [&](std::span<std::byte> bytes) {
      std::copy(before_the_change.begin(), before_the_change.end(), states(bytes).begin());
    });
    cluster.cut_off(1, false);
    const auto before = fences(cluster);
    std::vector<std::unique_ptr<client::Peer>> peers;
    for (const std::size_t index : order) {
      const auto code = index == 0 ? std::optional(ErrorCode::Disconnected) : std::nullopt;
      peers.push_back(std::make_unique<FailingPeer>(cluster.peer(index), code));
    }
    EXPECT_EQ(cluster.open(std::move(peers), cluster.options()).code(), ErrorCode::QuorumLost);
    EXPECT_EQ(fences(cluster), before);
    // Expect: the writer gets 1 back, and goes on without any other.
    Cluster::append(*live, 1);
    Cluster::expect_repaired(live->repair(), 1);
    cluster.cut_off(3, true);
    Cluster::append(*live, 1);
    cluster.cut_off(3, false);
    Cluster::settle(*live);
    cluster.expect_all(0, 5, {0, 1});
  }
}

TEST(LogNaming, OfSeveralCausesTheOneThatWaitingHelpsLeastIsSaid) {
  //                    one peer               another                a third, and what is said
  constexpr std::array<std::array<ErrorCode, 4>, 4> kCases = {{
      {ErrorCode::NotFound, ErrorCode::PermissionDenied, ErrorCode::Disconnected,
       ErrorCode::PermissionDenied},
      {ErrorCode::NotFound, ErrorCode::Corrupt, ErrorCode::SystemError, ErrorCode::Corrupt},
      {ErrorCode::TimedOut, ErrorCode::Disconnected, ErrorCode::TimedOut, ErrorCode::QuorumLost},
      {ErrorCode::TimedOut, ErrorCode::ProtocolError, ErrorCode::SystemError,
       ErrorCode::ProtocolError},
  }};
  for (const auto& codes : kCases) {
    for (const Order& order : orders_of(kOld)) {
      Cluster cluster;
      std::vector<std::unique_ptr<client::Peer>> peers;
      for (const std::size_t index : order) {
        peers.push_back(std::make_unique<FailingPeer>(cluster.peer(index), codes[index]));
      }
      const auto opened = cluster.open(std::move(peers), cluster.options());
      EXPECT_EQ(opened.code(), codes[3]) << fmt::format("{}", fmt::join(order, ","));
    }
  }
}

/// Its daemon has taken the name, and is still writing the zeros of the pool.
class MakingPeer final : public test::RelayedPeer {
 public:
  using RelayedPeer::RelayedPeer;
  Result<control::PoolDescription> describe(const std::string& pool, Deadline) override {
    control::PoolDescription description;
    description.name = pool;
    description.state = control::PoolStatus::Closed;
    return description;
  }
};

TEST(LogNaming, APoolThatIsStillBeingMadeIsWaitedFor) {
  Cluster cluster(kServers);
  std::vector<std::unique_ptr<client::Peer>> peers;
  for (std::size_t index = 0; index < 3; ++index)
    peers.push_back(std::make_unique<MakingPeer>(cluster.peer(index)));
  const auto opened = cluster.open(std::move(peers), cluster.options());
  ASSERT_EQ(opened.code(), ErrorCode::Busy);
  EXPECT_NE(opened.error().message.find("is still being made there"), std::string::npos)
      << opened.error().message;
}

TEST(LogNaming, WhoAsksForAnotherShapeFencesNobody) {
  Cluster cluster(kServers);
  Writer live = cluster.opened(kOld);
  Cluster::append(*live, 1);
  const auto before = fences(cluster);
  WriterOptions options = cluster.options();
  options.shape = LogShape::Compound;
  EXPECT_EQ(cluster.open(kOld, options).code(), ErrorCode::InvalidArgument);
  EXPECT_EQ(fences(cluster), before);
  Cluster::append(*live, 1);
}

std::vector<std::unique_ptr<client::Peer>> volatile_among(Cluster& cluster, const Order& order,
                                                          const Order& are_volatile) {
  std::vector<std::unique_ptr<client::Peer>> peers;
  for (const std::size_t index : order) {
    peers.push_back(cluster.peer(index));
    if (std::count(are_volatile.begin(), are_volatile.end(), index) == 0) continue;
    peers.back() = std::make_unique<test::VolatilePeer>(std::move(peers.back()));
  }
  return peers;
}

void append_visible(ReplicatedLog& log) {
  const std::vector<std::byte> record(100);
  const auto ticket = log.append(record);
  ASSERT_TRUE(ticket.ok()) << ticket.error().message;
  const auto waited = log.wait(*ticket, Level::Visible, std::chrono::seconds(1));
  EXPECT_TRUE(waited.ok()) << waited.error().message;
}

TEST(LogNaming, WhoAsksForALevelThatTooFewCanGiveFencesNobody) {
  for (const Order& are_volatile : {Order{0, 1}, Order{0, 2}, Order{1, 2}, Order{0, 1, 2}}) {
    Cluster cluster(kServers);
    WriterOptions less = cluster.options();
    less.level = Level::Visible;
    auto live = cluster.open(volatile_among(cluster, kOld, are_volatile), less);
    ASSERT_TRUE(live.ok()) << live.error().message;
    append_visible(**live);
    const auto before = fences(cluster);
    const auto opened =
        cluster.open(volatile_among(cluster, kOld, are_volatile), cluster.options());
    EXPECT_EQ(opened.code(), ErrorCode::Unsupported);
    EXPECT_EQ(fences(cluster), before);
    append_visible(**live);
  }
}

TEST(LogNaming, ANewLogThatOneOfItsReplicasCanNotHoldFencesNobody) {
  Cluster cluster(kServers);
  const auto before = fences(cluster);
  EXPECT_EQ(cluster.open(volatile_among(cluster, kOld, {1}), cluster.options()).code(),
            ErrorCode::Unsupported);
  EXPECT_EQ(fences(cluster), before);
}

// Also where its history is the longest, so that the others have to be brought to it.
TEST(LogNaming, OneThatCanNotGiveTheLevelVotesAndIsReadAndIsDown) {
  for (const bool longest : {false, true}) {
    for (const std::size_t unfit : kOld) {
      Cluster cluster;
      Writer before = cluster.opened();
      Cluster::append(*before, 2);
      Cluster::settle(*before);
      const std::size_t behind = (unfit + 1) % 3;
      if (longest) cluster.cut_off(behind, true);
      Cluster::append(*before, 1);
      before.reset();
      if (longest) {
        cluster.cut_off(behind, false);
        cluster.wipe((unfit + 2) % 3);
      }
      auto log = cluster.open(volatile_among(cluster, kOld, {unfit}), cluster.options());
      ASSERT_TRUE(log.ok()) << log.error().message;
      EXPECT_EQ((*log)->status().next_index, 3u);
      EXPECT_FALSE((*log)->status().replicas[unfit].up);
      Cluster::append(**log, 2);
      Cluster::settle(**log);
      Order others = kOld;
      std::erase(others, unfit);
      cluster.expect_all(0, 5, others);
    }
  }
}

TEST(LogNaming, OnePoolNamedTwiceIsRefusedWhoeverWritesThere) {
  Cluster cluster;
  Writer live = cluster.opened();
  Cluster::append(*live, 1);
  WriterOptions polite = cluster.options();
  polite.take_over = false;
  EXPECT_EQ(cluster.open(kOld, polite).code(), ErrorCode::Busy);
  for (const Order& order : orders_of({0, 1, 1})) {
    EXPECT_EQ(cluster.open(order, polite).code(), ErrorCode::InvalidArgument)
        << fmt::format("{}", fmt::join(order, ","));
  }
  Cluster::append(*live, 1);
}

// The peer that is named to be added has a pool of that name, of another log with a writer. Expect:
// it is refused, and that writer is not fenced, nor is what it has touched.
TEST(LogNaming, AReplicaOfAnotherLogIsRefusedBeforeItsWriterIsFenced) {
  for (const bool accept_loss : {false, true}) {
    SCOPED_TRACE(accept_loss);
    Cluster cluster(kServers);
    Writer other = cluster.opened({3});
    ASSERT_NE(other, nullptr);
    Cluster::append(*other, 2);
    ASSERT_NE(cluster.opened(kOld), nullptr);  // so that the next one is of a later epoch
    WriterOptions options = cluster.options();
    options.accept_loss = accept_loss;
    auto log = cluster.open(kOld, options);
    ASSERT_TRUE(log.ok()) << log.error().message;
    const auto before = fences(cluster);
    const auto added = (*log)->add_replica(cluster.peer(3), 0);
    EXPECT_EQ(added.code(), accept_loss ? ErrorCode::Busy : ErrorCode::AlreadyExists)
        << added.error().message;
    const std::string third = (*log)->status().replicas[2].pool_uuid;
    EXPECT_FALSE((*log)->replace_replica(third, cluster.peer(3)).ok());
    EXPECT_EQ(fences(cluster), before);
    Cluster::append(*other, 2);
    Cluster::append(**log, 2);
  }
}

// Too few replicas are up for the quorum that is asked for. Expect: nothing is given up of what the
// new one's pool holds.
TEST(LogNaming, AnAdditionThatCanNotBeMadeTouchesNothing) {
  Cluster cluster(kServers);
  {
    Writer other = cluster.opened({3});
    ASSERT_NE(other, nullptr);
    Cluster::append(*other, 2);
    Cluster::settle(*other);
  }
  WriterOptions options = cluster.options();
  options.accept_loss = true;
  auto log = cluster.open(kOld, options);
  ASSERT_TRUE(log.ok()) << log.error().message;
  Cluster::append(**log, 3);
  cluster.stop(2);
  Cluster::append(**log, 1);
  EXPECT_EQ((*log)->add_replica(cluster.peer(3), 4).code(), ErrorCode::QuorumLost);
  cluster.expect_all(0, 2, {3});
  EXPECT_TRUE((*log)->add_replica(cluster.peer(3), 3).ok());
}

}  // namespace
}  // namespace perdure
