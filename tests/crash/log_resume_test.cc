// Bringing a replica back in calls of which each is too short for all of it: the next one goes on
// where the last one ended, whatever came between. docs/log-protocol.md, bring to equal.
#include "log_cluster.h"

#include <functional>

#include "log/log_state.h"

namespace perdure {
namespace {

using std::chrono::milliseconds;

constexpr std::uint64_t kLongRing = 2 << 20;
constexpr int kMany = 5000;       // records: most of that
constexpr std::size_t kBack = 2;  // the replica that is brought back
constexpr std::uint64_t kEvents = 500;
constexpr int kCallsMax = 60;

/// How the replica comes to be in need of it.
enum class Why {
  Blank,       // its medium was lost: all is copied, under the mark
  Away,        // it missed records of this writer
  OlderEpoch,  // it missed those of another one: what is copied it can not read before the end
  Superseded,  // it holds records that are in no history, and missed others
};
constexpr std::array kReasons = {Why::Blank, Why::Away, Why::OlderEpoch, Why::Superseded};

class LogResume : public testing::Test {
 protected:
  void make(Why why, PersistenceDomain domain = PersistenceDomain::Wsp) {
    log.reset();
    cluster.emplace(3, log::kRingAt + kLongRing, domain);
    log = cluster->opened();
    ASSERT_NE(log, nullptr);
    first = Cluster::append_many(*log, 100);
    Cluster::settle(*log);
    if (why == Why::Superseded) {
      for (const std::size_t other : {0u, 1u}) cluster->stop(other);
      const std::string never = "never committed";
      const auto ticket = log->append(std::as_bytes(std::span(never)));
      ASSERT_TRUE(ticket.ok());
      ASSERT_TRUE(log->wait(*ticket, Level::Durable, std::chrono::seconds(1)).ok());
      log.reset();
    }
    cluster->stop(kBack);
    if (why == Why::Superseded) {
      for (const std::size_t other : {0u, 1u}) cluster->start(other);
    }
    if (why == Why::OlderEpoch) log.reset();
    if (log == nullptr) log = cluster->opened();
    ASSERT_NE(log, nullptr);
    tickets = Cluster::append_many(*log, kMany);
    cluster->start(kBack);
    if (why == Why::Blank) cluster->wipe(kBack);
    ASSERT_FALSE(up());
  }

  bool up() const { return log->status().replicas[kBack].up; }

  /// One call, of which the connections to the replica break after so many events.
  RepairReport call(std::uint64_t event_count) {
    fabric::emu::World& world = cluster->world();
    const fabric::emu::Machine& machine = cluster->server(kBack).machine();
    if (cuts_power) {
      world.cut_after(cluster->server(kBack).machine(), event_count);
    } else {
      world.after(event_count, [&] { world.drop_connections(cluster->client(), machine); });
    }
    const auto reports = log->repair();
    world.cancel_after();
    world.cancel_cut();
    for (const RepairReport& each : reports) {
      if (each.peer == cluster->server(kBack).machine().name()) return each;
    }
    return {};
  }

  /// Calls until it is back, with something between two calls. Returns how many it took.
  template <typename Between>
  int calls(Between between) {
    for (int count = 1; count <= kCallsMax; ++count) {
      const RepairReport report = call(events + 10 * static_cast<std::uint64_t>(count % 7));
      if (report.repaired) return count;
      last_error = report.error;
      between(count);
      if (testing::Test::HasFatalFailure()) return count;
    }
    ADD_FAILURE() << "it never came back: " << last_error;
    return kCallsMax;
  }

  void expect_equal(std::uint64_t first_index = 0) {
    Cluster::append(*log, 3);
    Cluster::settle(*log);
    cluster->expect_all(first_index, log->status().next_index);
  }

  std::optional<Cluster> cluster;
  bool cuts_power = false;
  std::uint64_t events = kEvents;  // of a call
  Writer log;
  std::vector<Ticket> first;
  std::vector<Ticket> tickets;
  std::string last_error;
};

TEST_F(LogResume, ItComesBackHoweverShortTheCallsAre) {
  for (const Why why : kReasons) {
    make(why);
    const int count = calls([](int) {});
    EXPECT_GT(count, 3) << "one of these calls has time for all of it";
    EXPECT_LT(count, 12) << "they do not go on where the last one ended";
    expect_equal();
    if (HasFailure()) FAIL() << static_cast<int>(why);
  }
}

// Between two calls the log goes on, is trimmed beyond what was copied, and comes to the next lap.
TEST_F(LogResume, TheLogIsTrimmedAndWrapsMeanwhile) {
  for (const Why why : kReasons) {
    for (const std::size_t trimmed_each : {300u, 1500u}) {
      make(why);
      std::size_t head = 0;
      const int count = calls([&](int) {
        head = std::min(head + trimmed_each, tickets.size() - 1);
        ASSERT_TRUE(log->trim(tickets[head].lsn).ok());
        const auto more = Cluster::append_many(*log, 200);
        tickets.insert(tickets.end(), more.begin(), more.end());
      });
      EXPECT_GT(count, 2);
      expect_equal(tickets[head].index);
      if (HasFailure()) FAIL() << static_cast<int>(why) << ", " << trimmed_each;
    }
  }
}

// Its machine loses what is not durable, in the middle of a call.
TEST_F(LogResume, ThePowerOfTheReplicaFailsInEveryCall) {
  for (const Why why : kReasons) {
    for (const PersistenceDomain domain : {PersistenceDomain::Page, PersistenceDomain::Mhp}) {
      make(why, domain);
      cuts_power = true;
      const int count = calls([&](int) {
        cluster->stop(kBack);
        cluster->start(kBack);
      });
      cuts_power = false;
      EXPECT_GT(count, 3);
      expect_equal();
      if (HasFailure()) FAIL() << static_cast<int>(why) << ", " << static_cast<int>(domain);
    }
  }
}

// A copy of the pool that was made some calls ago is put in its place.
TEST_F(LogResume, AnOlderCopyOfItsPoolIsNotGoneOnWith) {
  for (const Why why : kReasons) {
    for (const int copied_after : {1, 2, 3}) {
      make(why);
      std::vector<std::byte> older;
      bool put_back = false;
      calls([&](int count) {
        const auto now = cluster->server(kBack).region().durable();
        if (count == copied_after) older = now;
        if (count != copied_after + 2) return;
        ASSERT_TRUE(cluster->server(kBack).start_with(older).ok());
        put_back = true;
      });
      EXPECT_TRUE(put_back || copied_after == 3);
      expect_equal();
      if (HasFailure()) FAIL() << static_cast<int>(why) << ", " << copied_after;
    }
  }
}

TEST_F(LogResume, AnotherPoolInItsPlaceIsRefused) {
  make(Why::Blank);
  (void)call(kEvents);
  (void)call(kEvents);
  ASSERT_TRUE(cluster->server(kBack).start_with({}).ok());
  for (int count = 0; count < 3; ++count) {
    const RepairReport report = call(100'000);
    EXPECT_FALSE(report.repaired);
    EXPECT_NE(report.error.find("is no replica of this log"), std::string::npos) << report.error;
  }
}

// What was copied by one call is lost before the next: it is found while the mark is there, and
// copied again.
TEST_F(LogResume, WhatWasCopiedIsReadBackBeforeItCounts) {
  for (const Why why : kReasons) {
    make(why);
    int flipped = 0;
    calls([&](int) {
      const log::BroughtSoFar& so_far = log->brought_so_far(kBack);
      if (!so_far.copied || flipped > 2) return;
      const std::uint64_t begin = std::max(so_far.copied->from, tickets[0].lsn).value;
      const std::uint64_t end = so_far.copied->to.lsn.value;
      const std::uint64_t record = tickets[1].lsn.value - tickets[0].lsn.value;
      if (end < begin + 20 * record) return;
      const auto index = (end - tickets[0].lsn.value) / record - 5;
      const Lsn at = tickets[index].lsn;
      if (so_far.verified && so_far.verified->lsn > at) return;
      if (so_far.scan && so_far.scan->report.tail > at) return;
      cluster->flip_record(kBack, at);
      ++flipped;
    });
    EXPECT_GT(flipped, 0);
    expect_equal();
    if (HasFailure()) FAIL() << static_cast<int>(why);
  }
}

// A copy of the pool from when a record of it did not read back. That record was copied again
// since, and read: the copy holds all but that one, and in the same state.
TEST_F(LogResume, AnOlderCopyIsNotTakenForWhatWasReadBack) {
  make(Why::Blank);
  enum { kCopying, kDamaged, kFound, kReplaced } stage = kCopying;
  std::vector<std::byte> older;
  calls([&](int) {
    const log::BroughtSoFar& so_far = log->brought_so_far(kBack);
    const Lsn copied = so_far.copied ? so_far.copied->to.lsn : Lsn{};
    const Lsn verified = so_far.verified ? so_far.verified->lsn : Lsn{};
    if (stage == kCopying && copied > tickets[100].lsn) {
      cluster->flip_record(kBack, tickets[10].lsn);
      stage = kDamaged;
    } else if (stage == kDamaged && copied == tickets[10].lsn) {
      older = cluster->server(kBack).region().durable();
      stage = kFound;
      events = 400;
    } else if (stage == kFound && verified > tickets[20].lsn) {
      ASSERT_TRUE(cluster->server(kBack).start_with(older).ok());
      stage = kReplaced;
      events = kEvents;
    }
  });
  EXPECT_EQ(stage, kReplaced);
  expect_equal();
}

// What an opening has copied to a replica and read back, before the connection broke. Nobody knows
// how long ago that was when it is brought back.
TEST_F(LogResume, WhatOpeningHasReadIsReadAgain) {
  make(Why::Blank);
  fabric::emu::World& world = cluster->world();
  const fabric::emu::Machine& machine = cluster->server(kBack).machine();
  bool lost = false;
  for (std::uint64_t event_count = 400; event_count < 6000 && !lost; event_count += 100) {
    log.reset();
    world.after(event_count, [&] { world.drop_connections(cluster->client(), machine); });
    log = cluster->opened();
    world.cancel_after();
    ASSERT_NE(log, nullptr);
    ASSERT_FALSE(up()) << "it was never cut short while it read back";
    const auto& verified = log->brought_so_far(kBack).verified;
    lost = verified && verified->lsn > tickets[20].lsn;
  }
  ASSERT_TRUE(lost);
  cluster->flip_record(kBack, tickets[10].lsn);
  (void)log->repair();
  Cluster::append(*log, 1);
  (void)log->repair();
  ASSERT_TRUE(up());
  expect_equal();
}

// One source is damaged behind what was copied from it: another one is gone on with.
TEST_F(LogResume, ASourceIsDamagedMeanwhile) {
  for (const Why why : kReasons) {
    make(why);
    calls([&](int count) {
      if (count == 2) cluster->flip_record(0, tickets[kMany - 200].lsn);
    });
    Cluster::expect_repaired(log->repair(), log->status().replicas[0].up ? 0 : 1);
    if (log->status().replicas[0].up) continue;  // it was not read any more
    expect_equal();
    if (HasFailure()) FAIL() << static_cast<int>(why);
  }
}

// A source that can not return a record of which it has said that it is durable, and calls that are
// each too short to be sure of that: what one call has waited counts for the next one.
TEST_F(LogResume, ADamagedSourceIsFoundHoweverShortTheCallsAre) {
  constexpr int kShortCallsMax = 100;
  for (const Why why : kReasons) {
    make(why);
    cluster->flip_record(0, tickets[kMany - 200].lsn);
    const Nanoseconds within = cluster->options().replica_timeout / 4;
    int count = 0;
    bool found = false;
    while (!up() && ++count <= kShortCallsMax) {
      for (const RepairReport& each : log->repair(within)) {
        found = found || each.found.find("damaged record") != std::string::npos;
      }
    }
    EXPECT_TRUE(up()) << "after " << count
                      << " calls: " << log->status().replicas[kBack].down_reason;
    EXPECT_GT(count, 2) << "one of these calls has time to see that it is damaged";
    for (const RepairReport& each : log->repair()) {
      found = found || each.found.find("damaged record") != std::string::npos;
    }
    EXPECT_TRUE(found);
    expect_equal();
    if (HasFailure()) FAIL() << static_cast<int>(why);
  }
}

TEST_F(LogResume, AnotherWriterTakesOverMeanwhile) {
  for (const Why why : kReasons) {
    for (const int after : {1, 3}) {
      make(why);
      for (int count = 0; count < after; ++count) EXPECT_FALSE(call(kEvents).repaired);
      Writer second = cluster->opened({0, 1, 2});
      ASSERT_NE(second, nullptr);
      for (const RepairReport& each : log->repair()) EXPECT_FALSE(each.repaired);
      log = std::move(second);
      (void)log->repair();
      expect_equal();
      if (HasFailure()) FAIL() << static_cast<int>(why) << ", " << after;
    }
  }
}

// A replica that has nearly everything: to read that takes several calls.
class LogReread : public LogResume {
 protected:
  void make_long() {
    make(Why::Blank);
    Cluster::expect_repaired(log->repair(), 1);
    Cluster::append(*log, 1);
    Cluster::settle(*log);
    cluster->stop(kBack);
    const auto more = Cluster::append_many(*log, 600);
    tickets.insert(tickets.end(), more.begin(), more.end());
    cluster->start(kBack);
    events = 430;
  }

  /// `lose` takes something of what two calls have read: it is found before the replica counts.
  void expect_found(const std::function<void()>& lose) {
    make_long();
    bool found = false;
    bool lost = false;
    for (int count = 0; count < kCallsMax && !up(); ++count) {
      const RepairReport report = call(events);
      found = found || report.found.find("damaged") != std::string::npos;
      if (count != 1) continue;
      ASSERT_FALSE(report.repaired);
      lose();
      lost = true;
    }
    EXPECT_TRUE(lost);
    EXPECT_TRUE(found);
    expect_equal();
  }
};

TEST_F(LogReread, WhatWasReadIsKeptWhenTheHeadIsWritten) {
  make_long();
  std::size_t head = 0;
  const int count = calls([&](int) {
    head += 10;
    ASSERT_TRUE(log->trim(tickets[head].lsn).ok());
  });
  EXPECT_GT(count, 2);
  EXPECT_LT(count, 6);
  expect_equal(tickets[head].index);
}

// The medium loses what was read, and the next call comes much later.
TEST_F(LogReread, WhatWasReadLongAgoIsReadAgain) {
  expect_found([this] {
    cluster->flip_record(kBack, tickets[20].lsn);
    cluster->world().pass(13 * cluster->options().replica_timeout);
  });
}

// As above, but the writer has asked for it again and again while its machine was off.
TEST_F(LogReread, CallsThatDoNotReachItKeepNothingAlive) {
  expect_found([this] {
    cluster->stop(kBack);
    for (int ask = 0; ask < 13; ++ask) {
      cluster->world().pass(cluster->options().replica_timeout);
      EXPECT_FALSE(call(events).repaired);
    }
    cluster->start(kBack);
    cluster->flip_record(kBack, tickets[20].lsn);
  });
}

/// A log whose replica 2 has missed two trims and a lap: it holds the records [0, 100), the others
/// [150, 250).
Writer left_behind(Cluster& cluster) {
  Writer log = cluster.opened();
  if (log == nullptr) return log;
  Cluster::append_many(*log, 100);
  Cluster::settle(*log);
  cluster.stop(2);
  EXPECT_TRUE(log->trim(log->status().tail).ok());
  Cluster::append_many(*log, 50);
  EXPECT_TRUE(log->trim(log->status().tail).ok());
  Cluster::append_many(*log, 100);
  cluster.start(2);
  return log;
}

/// That what it says it holds is there, when the power has failed after so many events of bringing
/// it back.
void expect_behind_or_equal(const log::ScanReport& report, std::uint64_t events) {
  EXPECT_FALSE(report.damaged()) << "cut after " << events;
  const std::uint64_t head = report.start.state().head.index;
  const bool behind = head == 0 && report.next_index == 100;
  const bool equal = head == 150 && report.next_index == 250;
  EXPECT_TRUE(behind || equal) << "cut after " << events << ": " << head << " to "
                               << report.next_index;
}

// Wherever the power fails while it is brought back: what it says it holds is there.
TEST(LogMark, ContentIsReplacedUnderTheMarkOnly) {
  int marked = 0;
  int whole = 0;
  for (std::uint64_t events = 200; events < 1200; events += 9) {
    Cluster cluster;
    Writer log = left_behind(cluster);
    ASSERT_NE(log, nullptr);
    cluster.world().cut_after(cluster.server(2).machine(), events);
    (void)log->repair();
    cluster.world().cancel_cut();
    cluster.stop(2);
    cluster.start(2);
    const log::ScanReport report = cluster.scan(2);
    if (report.start.state().marks.incomplete) {
      ++marked;
      continue;
    }
    expect_behind_or_equal(report, events);
    ++whole;
  }
  EXPECT_GT(marked, 0);
  EXPECT_GT(whole, 0);
}

// The mark is in one of the two copies of its state, since the power failed between them. Content
// is replaced when it is in both: then one of them may be lost.
TEST(LogMark, TheMarkIsInBothCopiesBeforeContentIsReplaced) {
  const auto state_at = [](std::size_t copy) { return log::kStateAt + copy * log::kStateEvery; };
  int marked = 0;
  for (std::uint64_t events = 150; events < 900; events += 30) {
    for (const std::size_t unmarked : {0u, 1u}) {
      Cluster cluster;
      Writer log = left_behind(cluster);
      ASSERT_NE(log, nullptr);
      // As far as it takes for the mark, and nothing that is copied.
      log::LogState said = cluster.scan(2).start.state();
      const std::uint64_t generation = cluster.scan(2).start.stored->generation + 1;
      said.promised = {said.epoch, cluster.scan(2).tail};
      said.marks.incomplete = true;
      const log::StateBytes state = log::encode_state(said, generation);
      cluster.on_medium(2, [&](std::span<std::byte> bytes) {
        std::copy(state.begin(), state.end(),
                  bytes.begin() + static_cast<std::ptrdiff_t>(state_at(1 - unmarked)));
      });
      ASSERT_TRUE(cluster.scan(2).start.state().marks.incomplete);
      cluster.world().cut_after(cluster.server(2).machine(), events);
      (void)log->repair();
      cluster.world().cancel_cut();
      cluster.stop(2);
      cluster.start(2);
      // One copy is lost.
      cluster.flip(2, state_at(1 - unmarked) + 100);
      const log::ScanReport report = cluster.scan(2);
      if (report.start.state().marks.incomplete) {
        ++marked;
        continue;
      }
      expect_behind_or_equal(report, events);
    }
  }
  EXPECT_GT(marked, 0);
}

// One that is down does not answer, and each call has no more time than it takes to find that out.
TEST(LogReconnect, OneThatDoesNotAnswerKeepsNoOtherAway) {
  Cluster cluster(4);
  WriterOptions options = cluster.options();
  options.quorum = 2;
  options.reconnect = milliseconds(1);
  auto opened = cluster.open({0, 1, 2, 3}, options);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  Writer log = std::move(opened).value();
  Cluster::append(*log, 3);
  cluster.stop(2);
  cluster.stop(3);
  Cluster::append(*log, 3);
  const auto is_up = [&](std::size_t index) { return log->status().replicas[index].up; };
  for (int round = 0; round < 100 && (is_up(2) || is_up(3)); ++round) (void)log->poll();
  ASSERT_FALSE(is_up(2) || is_up(3));
  cluster.start(2);
  cluster.start(3);
  cluster.cut_off(2, true);
  // Both are due each time, also one that is left alone for many times what trying it took.
  for (int round = 0; round < 8 && !is_up(3); ++round) {
    cluster.world().pass(milliseconds(1000));
    (void)log->poll(milliseconds(10));
  }
  EXPECT_FALSE(is_up(2));
  EXPECT_TRUE(is_up(3));
  cluster.cut_off(2, false);
  (void)log->repair();
  Cluster::append(*log, 1);
  Cluster::settle(*log);
  cluster.expect_all(0, 7, {0, 1, 2, 3});
}

}  // namespace
}  // namespace perdure
