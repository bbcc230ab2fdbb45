// An operator accepts a loss, and power fails in the midst of it: what was not accepted by enough
// replicas is given up by none, what was is, and the log opens either way.
#include <perdure/messages.h>

#include <string>

#include "tests/crash/log_cluster.h"

namespace perdure {
namespace {

/// Opens it, and goes on without what can not be read; the power of a server fails meanwhile, after
/// so many events.
Result<Writer> accept_loss(Cluster& cluster, std::size_t victim, std::uint64_t events) {
  WriterOptions options = cluster.options();
  options.accept_loss = true;
  cluster.world().cut_after(cluster.server(victim).machine(), events);
  auto opened = cluster.open({0, 1, 2}, options);
  cluster.world().cancel_cut();
  return opened;
}

void stop_and_start(Cluster& cluster, std::size_t index) {
  cluster.stop(index);
  cluster.start(index);
}

/// Three records: 0 has them all and is away, 1 has missed the last two, 2 can read the first only.
void lose_two_records(Cluster& cluster) {
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
}

/// 0 has ten records of the first epoch, and 1 and 2 have gone on from there without it; then 1 was
/// lost, as far as `wiped` says, and 2 is away.
struct Turn {
  bool trimmed = false;   // 0 alone was reached by a trim of eight of its records
  bool accepted = false;  // 1 and 2 went on from the third record, the loss of the rest accepted
  bool wiped = false;     // else it is incomplete, and known what it promised
  std::uint64_t next_index() const { return accepted ? 6 : 13; }
};

void leave_behind(Cluster& cluster, const Turn& turn) {
  Writer log = cluster.opened();
  const auto first = Cluster::append(*log, 10);
  Cluster::settle(*log);
  cluster.cut_off(1, true);
  cluster.cut_off(2, true);
  if (turn.trimmed) {
    EXPECT_EQ(log->trim(first[8].lsn).code(), ErrorCode::OutcomeUnknown);
  }
  log.reset();
  cluster.cut_off(0, true);
  cluster.cut_off(1, false);
  cluster.cut_off(2, false);
  WriterOptions options = cluster.options();
  options.accept_loss = turn.accepted;
  for (std::size_t index = 1; turn.accepted && index < 3; ++index) {
    cluster.flip_record(index, first[3].lsn);
  }
  auto opened = cluster.open({0, 1, 2}, options);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  log = std::move(opened).value();
  Cluster::append(*log, 3);
  Cluster::settle(*log);
  ASSERT_EQ(log->status().next_index, turn.next_index());
  log.reset();
  if (turn.wiped) {
    cluster.wipe(1);
  } else {
    const Lsn tail = cluster.scan(1).tail;
    put_state(cluster, 1, [&](log::LogState& state) {
      state.marks.incomplete = true;
      state.promised = {state.epoch, tail};
    });
  }
  cluster.cut_off(2, true);
  cluster.cut_off(0, false);
}

/// What a failed acceptance of 0 leaves is opened by these of its replicas.
void expect_nothing_happened(const Turn& turn, const Order& by) {
  bool begun = false;
  std::size_t tried = 0;
  for (std::uint64_t events = 300; events < 2500 && !begun; events += 19) {
    Cluster cluster;
    leave_behind(cluster, turn);
    const auto accepted = accept_loss(cluster, 0, events);
    begun = accepted.ok();
    if (begun) break;
    stop_and_start(cluster, 0);
    const log::LogStart chosen = cluster.scan(0).start;
    const bool undecided = chosen.state().epoch == Epoch{1} && chosen.stored->copies_agree;
    EXPECT_TRUE(undecided || accepted.code() == ErrorCode::OutcomeUnknown) << events;
    for (std::size_t index = 0; index < 3; ++index) cluster.cut_off(index, true);
    for (const std::size_t index : by) cluster.cut_off(index, false);
    const auto plain = cluster.open();
    ASSERT_TRUE(plain.ok()) << "cut after " << events << " (" << accepted.error().message
                            << "): " << plain.error().message;
    if (!undecided) continue;
    ++tried;
    EXPECT_EQ((*plain)->status().next_index, turn.next_index()) << "cut after " << events;
    EXPECT_EQ((*plain)->status().head, log::kFirstLsn) << "cut after " << events;
  }
  EXPECT_TRUE(begun);
  EXPECT_GT(tried, 0u);
}

/// Ten records, of which nobody can read the sixth any more.
std::vector<Ticket> lose_the_sixth(Cluster& cluster) {
  Writer log = cluster.opened();
  const auto tickets = Cluster::append(*log, 10);
  Cluster::settle(*log);
  log.reset();
  for (std::size_t index = 0; index < 3; ++index) cluster.flip_record(index, tickets[5].lsn);
  return tickets;
}

// 1 is chosen, as the first of two that can return the same, and loses its power before anything of
// the loss is written there. What 2 is then is no epoch.
TEST(LogAcceptedLoss, WhatTheChosenReplicaNeverHeardOfIsNotGivenUp) {
  bool begun = false;
  std::size_t whole = 0;
  for (std::uint64_t events = 200; events < 2000 && !begun; events += 7) {
    Cluster cluster;
    lose_two_records(cluster);
    const auto accepted = accept_loss(cluster, 1, events);
    begun = accepted.ok();
    if (begun) break;
    stop_and_start(cluster, 1);
    const log::LogStart chosen = cluster.scan(1).start;
    if (chosen.state().epoch > Epoch{1} || !chosen.stored->copies_agree) continue;
    cluster.cut_off(0, false);
    const Writer log = cluster.opened();
    ASSERT_NE(log, nullptr) << "cut after " << events;
    EXPECT_EQ(log->status().next_index, 3u) << "cut after " << events;
    ++whole;
  }
  EXPECT_TRUE(begun);
  EXPECT_GT(whole, 0u);
}

// The epoch begins without the replica that was chosen, which loses its power before all of it has
// changed. What it claimed before must not close the log.
TEST(LogAcceptedLoss, WhatTheChosenReplicaClaimedBeforeRefusesNobody) {
  std::size_t without = 0;
  bool with = false;
  for (std::uint64_t events = 500; events < 3000 && !with; events += 7) {
    Cluster cluster;
    lose_the_sixth(cluster);
    auto accepted = accept_loss(cluster, 0, events);
    if (!accepted.ok()) continue;
    Writer log = std::move(accepted).value();
    with = log->status().replicas[0].up;
    if (with) break;
    ++without;
    Cluster::append(*log, 1);
    (void)log->close(std::chrono::milliseconds(200));
    log.reset();
    stop_and_start(cluster, 0);
    const auto next = cluster.open();
    ASSERT_TRUE(next.ok()) << "cut after " << events << ": " << next.error().message;
    EXPECT_EQ((*next)->status().next_index, 6u);
  }
  EXPECT_TRUE(with);
  EXPECT_GT(without, 0u);
}

// 1 is incomplete, and nobody knows what it promised; for what came in the second epoch it has a
// vote. An accepted loss that fails must not take that.
TEST(LogAcceptedLoss, WhereItFailsItCostsNobodysVote) {
  std::size_t tried = 0;
  bool begun = false;
  for (std::uint64_t events = 300; events < 1500 && !begun; events += 9) {
    Cluster cluster;
    Writer log = cluster.opened();
    Cluster::append(*log, 1);
    Cluster::settle(*log);
    log.reset();
    put_state(cluster, 1, [&](log::LogState& state) {
      state.marks.incomplete = true;
      state.promised = {};
    });
    cluster.cut_off(1, true);
    log = cluster.opened();
    ASSERT_NE(log, nullptr);
    const auto tickets = Cluster::append(*log, 2);
    Cluster::settle(*log);
    log.reset();
    cluster.cut_off(1, false);
    cluster.flip_record(2, tickets[0].lsn);
    cluster.cut_off(0, true);
    const auto accepted = accept_loss(cluster, 2, events);
    begun = accepted.ok();
    if (begun) break;
    cluster.cut_off(0, false);
    stop_and_start(cluster, 2);
    const log::LogStart chosen = cluster.scan(2).start;
    cluster.stop(2);
    if (chosen.state().epoch > Epoch{2} || !chosen.stored->copies_agree) continue;
    ++tried;
    const auto opened = cluster.open();
    ASSERT_TRUE(opened.ok()) << "cut after " << events << ": " << opened.error().message;
    EXPECT_EQ((*opened)->status().next_index, 3u);
  }
  EXPECT_TRUE(begun);
  EXPECT_GT(tried, 0u);
}

// What is left is the end of an older epoch, which was replaced; of the newer one only the head is
// known, from a replica that was being brought to equal. Expect: the log goes on empty from there.
TEST(LogAcceptedLoss, TheLogGoesOnEmptyWhereItsHeadIsOfAnotherHistory) {
  Cluster cluster;
  Writer log = cluster.opened();
  Cluster::append(*log, 3);
  Cluster::settle(*log);
  cluster.cut_off(1, true);
  cluster.cut_off(2, true);
  for (std::uint64_t at = 3; at < 6; ++at) {
    const std::string record = Cluster::text(at);
    ASSERT_TRUE(log->append(std::as_bytes(std::span(record))).ok());
  }
  cluster.world().settle();
  log.reset();
  cluster.cut_off(0, true);
  cluster.cut_off(1, false);
  cluster.cut_off(2, false);
  log = cluster.opened();
  ASSERT_NE(log, nullptr);
  const auto tickets = Cluster::append(*log, 3);
  ASSERT_TRUE(log->trim(tickets[1].lsn).ok());
  Cluster::settle(*log);
  log.reset();
  cluster.stop(2);
  put_state(cluster, 1, [&](log::LogState& state) {
    state.marks.incomplete = true;
    state.promised = {state.epoch, tickets[2].end};
  });
  cluster.cut_off(0, false);
  ASSERT_GE(cluster.scan(0).tail, tickets[1].lsn);
  EXPECT_EQ(cluster.open().code(), ErrorCode::Corrupt);
  WriterOptions options = cluster.options();
  options.accept_loss = true;
  auto accepted = cluster.open({0, 1, 2}, options);
  ASSERT_TRUE(accepted.ok()) << accepted.error().message;
  log = std::move(accepted).value();
  EXPECT_EQ(log->status().head, tickets[1].lsn);
  const std::uint64_t first = log->status().next_index;
  Cluster::append(*log, 3);
  Cluster::settle(*log);
  log.reset();
  log = cluster.opened();
  ASSERT_NE(log, nullptr);
  cluster.expect_all(first, first + 3, {0, 1});
}

// A head of an older epoch, a claim of a history that was accepted away, and who went on from
// there: an acceptance that fails makes nothing of them newer than it is.
TEST(LogAcceptedLoss, WhatFailsRaisesNoTrimOfAnOlderEpoch) {
  for (const bool wiped : {true, false}) expect_nothing_happened({true, false, wiped}, {0, 1, 2});
  expect_nothing_happened({true, false, false}, {1, 2});
}

TEST(LogAcceptedLoss, WhatFailsRaisesNoClaimOfAnOlderEpoch) {
  for (const bool wiped : {true, false}) expect_nothing_happened({false, true, wiped}, {0, 1, 2});
  expect_nothing_happened({false, true, false}, {1, 2});
}

TEST(LogAcceptedLoss, WhatFailsRaisesNeitherWhereBothMet) {
  for (const bool wiped : {true, false}) expect_nothing_happened({true, true, wiped}, {0, 1, 2});
  expect_nothing_happened({true, true, false}, {1, 2});
}

// An acceptance that failed had copied to others what its replica of choice could still return.
// That loses more. Expect: the next acceptance has what the others can.
TEST(LogAcceptedLoss, WhatFailsTakesNoRecordsFromTheNextOne) {
  std::size_t tried = 0;
  bool begun = false;
  for (std::uint64_t events = 300; events < 3000 && !begun; events += 13) {
    Cluster cluster;
    const auto tickets = lose_the_sixth(cluster);
    const auto accepted = accept_loss(cluster, 0, events);
    begun = accepted.ok();
    if (begun || accepted.code() == ErrorCode::OutcomeUnknown) continue;
    ++tried;
    stop_and_start(cluster, 0);
    cluster.flip_record(0, tickets[1].lsn);
    WriterOptions options = cluster.options();
    options.accept_loss = true;
    const auto again = cluster.open({0, 1, 2}, options);
    ASSERT_TRUE(again.ok()) << again.error().message;
    EXPECT_EQ((*again)->status().next_index, 5u) << "cut after " << events;
  }
  EXPECT_TRUE(begun);
  EXPECT_GT(tried, 0u);
}

// 0 is away. 1 has four records more than 2, of a newer epoch too, and both are incomplete.
TEST(LogAcceptedLoss, OfIncompleteReplicasTheLongestIsTakenInAnyOrder) {
  for (const Order& order : {Order{1, 2, 0}, Order{2, 1, 0}}) {
    Cluster cluster;
    Writer log = cluster.opened();
    Cluster::append(*log, 3);
    Cluster::settle(*log);
    cluster.cut_off(2, true);
    Cluster::append(*log, 3);
    Cluster::settle(*log);
    log.reset();
    log = cluster.opened();
    Cluster::append(*log, 1);
    Cluster::settle(*log);
    log.reset();
    for (std::size_t index = 1; index < 3; ++index) {
      put_state(cluster, index, [](log::LogState& state) { state.marks.incomplete = true; });
    }
    cluster.cut_off(2, false);
    cluster.stop(0);
    WriterOptions options = cluster.options();
    options.accept_loss = true;
    const auto opened = cluster.open(order, options);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    EXPECT_EQ((*opened)->status().next_index, 7u) << "first named " << order[0];
  }
}

// All three have the history, and one of them says that it was trimmed to where no record begins.
TEST(LogAcceptedLoss, AHeadThatIsNoPlaceIsSaidAndCanBeGoneOnFrom) {
  Cluster cluster;
  Writer log = cluster.opened();
  const auto tickets = Cluster::append(*log, 6);
  Cluster::settle(*log);
  log.reset();
  put_state(cluster, 2, [&](log::LogState& state) {
    state.head.lsn = Lsn{tickets[3].lsn.value + 8};
    state.head.index = 3;
  });
  const auto plain = cluster.open();
  EXPECT_EQ(plain.code(), ErrorCode::Corrupt);
  EXPECT_NE(plain.error().message.find("accept_loss"), std::string::npos) << plain.error().message;
  WriterOptions options = cluster.options();
  options.accept_loss = true;
  auto accepted = cluster.open({0, 1, 2}, options);
  ASSERT_TRUE(accepted.ok()) << accepted.error().message;
  log = std::move(accepted).value();
  EXPECT_FALSE(log->status().accepted_loss.empty());
  const std::uint64_t first = log->status().next_index;
  Cluster::append(*log, 3);
  Cluster::settle(*log);
  log.reset();
  log = cluster.opened();
  ASSERT_NE(log, nullptr);
  cluster.expect_all(first, first + 3, {0, 1, 2});
}

// What an incomplete replica can return may be another history's: it is named by what it promised.
TEST(LogAcceptedLoss, OfAnIncompleteReplicaItsPromiseIsNamed) {
  Cluster cluster;
  const auto tickets = lose_the_sixth(cluster);
  put_state(cluster, 1, [&](log::LogState& state) {
    state.marks.incomplete = true;
    state.promised = {state.epoch, tickets[9].end};
  });
  const auto plain = cluster.open();
  ASSERT_FALSE(plain.ok());
  const std::string& said = plain.error().message;
  const std::string promised =
      fmt::format("server1 is incomplete, and records up to {} were durable there before",
                  tickets[9].end.value);
  EXPECT_NE(said.find(promised), std::string::npos) << said;
  EXPECT_EQ(said.find("server1 can return"), std::string::npos) << said;
}

// Readers of the messages are told of a loss when it was accepted, and not before.
TEST(LogAcceptedLoss, WhatWasNotAcceptedIsNotSaidToBeGivenUp) {
  bool begun = false;
  std::size_t refused = 0;
  for (std::uint64_t events = 1; events < 2000 && !begun; events += 11) {
    Cluster cluster;
    lose_two_records(cluster);
    std::string given_up;
    set_message_callback([&](Severity, const std::string& message) {
      if (message.find("given up") != std::string::npos) given_up = message;
    });
    const auto accepted = accept_loss(cluster, 1, events);
    set_message_callback({});
    begun = accepted.ok();
    EXPECT_EQ(given_up.empty(), !begun) << "cut after " << events << ": " << given_up;
    refused += begun ? 0 : 1;
  }
  EXPECT_TRUE(begun);
  EXPECT_GT(refused, 0u);
}

TEST(LogAcceptedLoss, WhoIsSaidToBeRepairedIsUp) {
  std::size_t down = 0;
  bool up = false;
  for (std::uint64_t events = 200; events < 3000 && !up; events += 17) {
    Cluster cluster;
    lose_the_sixth(cluster);
    const auto accepted = accept_loss(cluster, 1, events);
    if (!accepted.ok()) continue;
    const LogStatus status = (*accepted)->status();
    for (const RepairReport& report : (*accepted)->take_repairs()) {
      for (const ReplicaStatus& replica : status.replicas) {
        if (replica.peer != report.peer) continue;
        EXPECT_EQ(report.repaired, replica.up) << report.peer << ", cut after " << events;
      }
    }
    up = status.replicas[1].up;
    down += up ? 0 : 1;
  }
  EXPECT_TRUE(up);
  EXPECT_GT(down, 0u);
}

// The same at an opening where nothing is lost.
TEST(LogAcceptedLoss, WhoIsSaidToBeRepairedIsUpWithoutALossToo) {
  std::size_t down = 0;
  bool up = false;
  for (std::uint64_t events = 300; events < 3000 && !up; events += 13) {
    Cluster cluster;
    Writer log = cluster.opened();
    Cluster::append(*log, 1);
    Cluster::settle(*log);
    cluster.cut_off(1, true);
    Cluster::append(*log, 2);
    Cluster::settle(*log);
    log.reset();
    cluster.cut_off(1, false);
    cluster.world().cut_after(cluster.server(1).machine(), events);
    const auto opened = cluster.open();
    cluster.world().cancel_cut();
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    const ReplicaStatus second = (*opened)->status().replicas[1];
    for (const RepairReport& report : (*opened)->take_repairs()) {
      if (report.peer != second.peer) continue;
      EXPECT_EQ(report.repaired, second.up) << "cut after " << events << ": " << report.error;
    }
    up = second.up;
    down += up ? 0 : 1;
  }
  EXPECT_TRUE(up);
  EXPECT_GT(down, 0u);
}

}  // namespace
}  // namespace perdure
