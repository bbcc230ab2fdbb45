// A loss was accepted, and what it gave up comes back: a replica that was away, a reader that had
// read it. Nobody gets any of it, and the log opens.
#include <string>

#include "log/failover_reader.h"
#include "tests/crash/log_cluster.h"

namespace perdure {
namespace {

using std::chrono::milliseconds;

/// Of whom accepts a loss first.
constexpr Epoch kAccepted{1 + kAcceptedLossStep};

Result<Writer> accepting(Cluster& cluster, const Order& order = {0, 1, 2}) {
  WriterOptions options = cluster.options();
  options.accept_loss = true;
  return cluster.open(order, options);
}

/// 0 has ten records and is away; of the others the fourth is damaged, and the loss of it and what
/// follows is accepted (epoch 2), where `more` records are appended.
Writer gone_on_without_zero(Cluster& cluster, int more, std::optional<LogShape> shape = {}) {
  WriterOptions first = cluster.options();
  first.shape = shape;
  auto opened = cluster.open({0, 1, 2}, first);
  EXPECT_TRUE(opened.ok()) << opened.error().message;
  Writer log = std::move(opened).value();
  const auto tickets = Cluster::append(*log, 10);
  Cluster::settle(*log);
  log.reset();
  cluster.cut_off(0, true);
  cluster.flip_record(1, tickets[3].lsn);
  cluster.flip_record(2, tickets[3].lsn);
  auto accepted = accepting(cluster);
  EXPECT_TRUE(accepted.ok()) << accepted.error().message;
  if (!accepted.ok()) return nullptr;
  EXPECT_EQ((*accepted)->status().next_index, 3u);
  if (more > 0) Cluster::append(*accepted.value(), more);
  return std::move(accepted).value();
}

/// 0 is back and is repaired by the living writer, and loses its power in the midst. All three are
/// there and nothing is lost: the log opens.
void repair_and_cut(std::optional<LogShape> shape) {
  bool repaired = false;
  std::size_t cuts = 0;
  for (std::uint64_t events = 1; events < 3000 && !repaired; events += 7) {
    Cluster cluster;
    Writer log = gone_on_without_zero(cluster, 2, shape);
    ASSERT_NE(log, nullptr);
    cluster.cut_off(0, false);
    cluster.world().cut_after(cluster.server(0).machine(), events);
    const auto reports = log->repair(std::chrono::milliseconds(500));
    cluster.world().cancel_cut();
    repaired = !reports.empty() && reports[0].repaired;
    log.reset();
    cluster.stop(0);
    cluster.start(0);
    ++cuts;
    const auto plain = cluster.open();
    ASSERT_TRUE(plain.ok()) << "cut after " << events << ": " << plain.error().message;
    EXPECT_EQ((*plain)->status().next_index, 5u) << "cut after " << events;
  }
  EXPECT_TRUE(repaired);
  EXPECT_GT(cuts, 1u);
}

TEST(LogAfterALoss, WhoComesBackAndLosesItsPowerClosesNoLog) { repair_and_cut({}); }
TEST(LogAfterALoss, WhoComesBackAndLosesItsPowerClosesNoCompoundLog) {
  repair_and_cut(LogShape::Compound);
}

// The same, brought back by the next opening; then another one goes away.
TEST(LogAfterALoss, WhoComesBackAtAnOpeningClosesNoLog) {
  for (std::uint64_t events = 300; events < 1500; events += 19) {
    Cluster cluster;
    Writer log = gone_on_without_zero(cluster, 2);
    ASSERT_NE(log, nullptr);
    Cluster::settle(*log);
    log.reset();
    cluster.cut_off(0, false);
    cluster.world().cut_after(cluster.server(0).machine(), events);
    const bool whole = cluster.open().ok();
    cluster.world().cancel_cut();
    cluster.stop(0);
    cluster.start(0);
    cluster.cut_off(1, true);
    const auto plain = cluster.open();
    ASSERT_TRUE(plain.ok()) << "cut after " << events << ", " << whole << ": "
                            << plain.error().message;
    EXPECT_EQ((*plain)->status().next_index, 5u) << "cut after " << events;
  }
}

// Of five with a quorum of three, a record is durable on 1 alone; 0, which comes back, is given it
// and loses its power before it is equal: it is on two. Expect: no reader is given it.
TEST(LogAfterALoss, AReaderIsNotGivenWhatIsOnTwoOfFive) {
  std::size_t read = 0;
  bool repaired = false;
  std::string example;
  for (std::uint64_t events = 1; events < 1500 && !repaired; events += 7) {
    Cluster cluster(5);
    Writer log = cluster.opened({0, 1, 2, 3, 4});
    ASSERT_NE(log, nullptr);
    const auto tickets = Cluster::append(*log, 10);
    Cluster::settle(*log);
    log.reset();
    cluster.cut_off(0, true);
    for (std::size_t index = 1; index < 5; ++index) cluster.flip_record(index, tickets[3].lsn);
    auto accepted = accepting(cluster, {0, 1, 2, 3, 4});
    ASSERT_TRUE(accepted.ok()) << accepted.error().message;
    log = std::move(accepted).value();
    for (const std::size_t away : {2u, 3u, 4u}) cluster.cut_off(away, true);
    const std::string text = "uncommitted";
    ASSERT_TRUE(log->append(std::as_bytes(std::span(text))).ok());
    cluster.world().settle();
    (void)log->poll();
    cluster.cut_off(0, false);
    cluster.world().cut_after(cluster.server(0).machine(), events);
    const auto reports = log->repair(std::chrono::milliseconds(500));
    cluster.world().cancel_cut();
    for (const auto& report : reports) {
      repaired = repaired || (report.peer == "server0" && report.repaired);
    }
    log.reset();
    cluster.stop(0);
    cluster.start(0);
    cluster.on_medium(0, [&](std::span<std::byte> bytes) {
      LocalBytes local(bytes);
      auto reader = log::CommittedReader::open(local, {Lsn{}, false, "it"});
      if (!reader.ok()) return;
      while (true) {
        const auto record = reader->next();
        if (!record.ok() || !*record) return;
        if ((*record)->epoch == kAccepted) {
          ++read;
          if (example.empty()) example = fmt::format("cut after {}", events);
        }
      }
    });
  }
  EXPECT_TRUE(repaired);
  EXPECT_EQ(read, 0u) << example;
}

void put(ReplicatedLog& log, std::size_t bytes, char fill) {
  const std::string record(bytes, fill);
  const auto ticket = log.append(std::as_bytes(std::span(record)));
  ASSERT_TRUE(ticket.ok()) << ticket.error().message;
  ASSERT_TRUE(log.wait(*ticket, Level::Committed, std::chrono::seconds(1)).ok());
}

// A reader of committed records was given ten. The loss of the last seven is accepted, and other
// records come in their place; the next writer trims to one of those, behind what was read.
// Expect: the reader is told (Fenced), and is not given another record of the same index.
void read_over_loss(bool trimmed, bool epochs) {
  Cluster cluster;
  Writer log = cluster.opened();
  const auto tickets = Cluster::append(*log, 10);
  Cluster::settle(*log);
  log.reset();
  cluster.on_medium(1, [&](std::span<std::byte> bytes) {
    LocalBytes local(bytes);
    auto reader = log::CommittedReader::open(local, {Lsn{}, false, "it"});
    ASSERT_TRUE(reader.ok());
    std::uint64_t last = 0;
    for (int count = 0; count < 10; ++count) {
      const auto record = reader->next();
      ASSERT_TRUE(record.ok() && *record);
      last = (*record)->index;
    }
    EXPECT_EQ(last, 9u);
    for (std::size_t index = 0; index < 3; ++index) {
      if (index != 1) cluster.flip_record(index, tickets[3].lsn);
    }
    bytes[log::kRingAt + tickets[3].lsn.value + log::kRecordHeaderBytes + 2] ^= std::byte{1};
    ASSERT_TRUE(cluster.server(1).region().flush(pmem::kPoolDataOffset, kPoolBytes).ok());
    auto accepted = accepting(cluster);
    ASSERT_TRUE(accepted.ok()) << accepted.error().message;
    log = std::move(accepted).value();
    EXPECT_EQ(log->status().next_index, 3u);
    std::vector<Lsn> places;
    for (int count = 0; count < 5; ++count) {  // indices 3 to 7
      places.push_back(log->status().tail);
      put(*log, 1500, 'n');
    }
    Cluster::settle(*log);
    log.reset();
    if (epochs) {
      log = cluster.opened();
      ASSERT_NE(log, nullptr);
      if (trimmed) {
        ASSERT_TRUE(log->trim(places[3]).ok());  // index 6
      }
      put(*log, 300, 'm');
      Cluster::settle(*log);
      log.reset();
    }
    ASSERT_GT(places[3], tickets[9].end);
    const auto next = reader->next();
    if (next.ok() && *next) {
      ADD_FAILURE() << "after index " << last << " it returned index " << (*next)->index
                    << " of epoch " << (*next)->epoch.value;
    } else {
      EXPECT_EQ(next.code(), ErrorCode::Fenced) << (next.ok() ? "nothing" : next.error().message);
    }
  });
}
TEST(LogAfterALoss, AReaderIsToldWhereATrimHasCoveredIt) { read_over_loss(true, true); }
TEST(LogAfterALoss, AReaderIsToldAfterTwoEpochs) { read_over_loss(false, true); }
TEST(LogAfterALoss, AReaderIsToldAfterOne) { read_over_loss(false, false); }

// What a reader is told of a loss two epochs ago: from where to where can not be backwards.
TEST(LogAfterALoss, AReaderIsToldTheRightPlaces) {
  Cluster cluster;
  Writer log = gone_on_without_zero(cluster, 0);
  ASSERT_NE(log, nullptr);
  Cluster::settle(*log);
  log.reset();
  cluster.cut_off(0, false);
  cluster.on_medium(0, [&](std::span<std::byte> bytes) {
    LocalBytes local(bytes);
    auto reader = log::CommittedReader::open(local, {Lsn{}, false, "it"});
    ASSERT_TRUE(reader.ok());
    for (int count = 0; count < 10; ++count) ASSERT_TRUE(reader->next().ok());
    const Lsn read = reader->position();
    log = cluster.opened();  // epoch 3: 0 is cut off at 1072
    ASSERT_NE(log, nullptr);
    for (int count = 0; count < 5; ++count) put(*log, 1500, 'n');
    Cluster::settle(*log);
    log.reset();
    log = cluster.opened();  // epoch 4
    ASSERT_NE(log, nullptr);
    const Lsn begin = log->status().tail;
    Cluster::settle(*log);
    log.reset();
    ASSERT_GT(begin, read);
    const auto next = reader->next();
    ASSERT_EQ(next.code(), ErrorCode::Fenced);
    const std::string wrong = fmt::format(
        "went on from LSN {}, and the records from there up to {}", begin.value, read.value);
    EXPECT_EQ(next.error().message.find(wrong), std::string::npos) << next.error().message;
  });
}

/// {0,1,2}; 2 is replaced by 3 while it is away; 1 never heard that this is committed, and the
/// record before the change is damaged there. 0 and 3 are away, and the loss is accepted by 1
/// and 2. `more` records follow the change, and `openings` by those that know it.
Writer change_given_up(Cluster& cluster, int more = 0, int openings = 0) {
  Writer log = cluster.opened();
  const auto tickets = Cluster::append(*log, 3);
  Cluster::settle(*log);
  const log::Configuration before = log->configuration();
  const std::string second = log->status().replicas[2].pool_uuid;
  cluster.cut_off(2, true);
  const auto replaced = log->replace_replica(second, cluster.peer(3));
  EXPECT_TRUE(replaced.ok()) << replaced.error().message;
  if (more > 0) {
    cluster.cut_off(1, true);
    Cluster::append(*log, more);
  }
  log.reset();
  cluster.cut_off(1, openings > 0);
  for (int count = 0; count < openings; ++count) {
    log = cluster.opened({0, 1, 3});
    if (log == nullptr) return nullptr;
    Cluster::append(*log, 5);
    Cluster::settle(*log);
    log.reset();
  }
  cluster.cut_off(1, false);
  put_state(cluster, 1, [&](log::LogState& state) { state.configuration = before; });
  cluster.on_medium(1, [](std::span<std::byte> bytes) {
    std::fill_n(bytes.begin() + log::kCommittedWordAt, 8, std::byte{0});
  });
  cluster.flip_record(1, tickets[2].lsn);
  cluster.cut_off(0, true);
  cluster.cut_off(3, true);
  cluster.cut_off(2, false);
  auto accepted = accepting(cluster);
  EXPECT_TRUE(accepted.ok()) << accepted.error().message;
  if (!accepted.ok()) return nullptr;
  return std::move(accepted).value();
}

// The change was given up with the loss, and 1 and 2 go on in the new epoch; then 0 is back and 1
// is away. Expect: the log opens, by two whole ones of three, with what was committed since.
TEST(LogAfterALoss, AChangeThatWasGivenUpDoesNotComeBack) {
  Cluster cluster(4);
  Writer log = change_given_up(cluster);
  ASSERT_NE(log, nullptr);
  Cluster::append(*log, 3);
  Cluster::settle(*log);
  EXPECT_EQ(log->status().next_index, 6u);
  log.reset();
  cluster.cut_off(0, false);
  cluster.cut_off(3, false);
  cluster.cut_off(1, true);
  const auto opened = cluster.open();
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_EQ((*opened)->status().next_index, 6u);
}

// Another change has been made since, which has the generation of the one that was given up.
TEST(LogAfterALoss, AChangeThatWasGivenUpIsOlderThanLaterOnesInAnyOrder) {
  for (const Order& order : {Order{0, 1, 2}, Order{1, 0, 2}, Order{1, 2, 0}}) {
    Cluster cluster(5);
    Writer log = change_given_up(cluster);
    ASSERT_NE(log, nullptr);
    Cluster::append(*log, 3);
    ASSERT_TRUE(log->change_quorum(2).ok());
    Cluster::settle(*log);
    const std::string configuration = log->status().configuration;
    log.reset();
    cluster.cut_off(0, false);
    cluster.cut_off(3, false);
    const auto opened = cluster.open(order);
    ASSERT_TRUE(opened.ok()) << "first named " << order[0] << ": " << opened.error().message;
    EXPECT_EQ((*opened)->status().configuration, configuration) << "first named " << order[0];
    EXPECT_EQ((*opened)->status().next_index, 6u);
  }
}

// One of those that went on is damaged, the other one is away, and those of the change that was
// given up are back, with more than was committed since. Expect: these take nothing of it away, and
// with the other one it opens.
TEST(LogAfterALoss, AChangeThatWasGivenUpDoesNotComeBackWhereOneIsDamaged) {
  for (const Order& order : {Order{0, 1, 3}, Order{1, 3, 0}, Order{0, 1, 2}, Order{0, 1, 2, 3}}) {
    Cluster cluster(4);
    Writer log = change_given_up(cluster, 8);
    ASSERT_NE(log, nullptr);
    const auto tickets = Cluster::append(*log, 3);
    Cluster::settle(*log);
    const std::uint64_t next = log->status().next_index;
    const std::string configuration = log->status().configuration;
    log.reset();
    cluster.flip_record(1, tickets[1].lsn);
    cluster.cut_off(2, true);
    cluster.cut_off(0, false);
    cluster.cut_off(3, false);
    const auto opened = cluster.open(order);
    EXPECT_FALSE(opened.ok()) << "it opens with " << (*opened)->status().next_index << " of "
                              << next << ", and " << (*opened)->status().configuration;
    cluster.cut_off(2, false);
    log = cluster.opened();
    ASSERT_NE(log, nullptr);
    EXPECT_EQ(log->status().next_index, next);
    EXPECT_EQ(log->status().configuration, configuration);
  }
}

/// The change was given up with the loss; 0, which knows it, is back, is brought to equal by the
/// writer of the epoch that began with that, or of the next one (`later`), which has appended three
/// records, and loses its power in the midst. Expect: the log is the one that went on.
void bring_back_and_cut(bool later, const Order& order) {
  bool repaired = false;
  std::size_t cuts = 0;
  for (std::uint64_t events = 1; events < 3000 && !repaired; events += 13) {
    Cluster cluster(4);
    Writer log = change_given_up(cluster);
    ASSERT_NE(log, nullptr);
    if (later) {
      Cluster::settle(*log);
      log.reset();
      log = cluster.opened();
      ASSERT_NE(log, nullptr);
      Cluster::append(*log, 3);
    }
    const std::uint64_t next = log->status().next_index;
    cluster.cut_off(0, false);
    cluster.world().cut_after(cluster.server(0).machine(), events);
    const auto reports = log->repair(std::chrono::milliseconds(500));
    cluster.world().cancel_cut();
    for (const RepairReport& report : reports) {
      repaired = repaired || (report.peer == "server0" && report.repaired);
    }
    log.reset();
    cluster.stop(0);
    cluster.start(0);
    ++cuts;
    const auto opened = cluster.open(order);
    ASSERT_TRUE(opened.ok()) << "cut after " << events << ", first named " << order[0] << ": "
                             << opened.error().message;
    EXPECT_EQ((*opened)->status().next_index, next) << "cut after " << events;
  }
  EXPECT_TRUE(repaired);
  EXPECT_GT(cuts, 1u);
}
TEST(LogAfterALoss, WhoKnowsTheChangeAndLosesItsPowerComingBackBringsItNotBack) {
  for (const Order& order : {Order{0, 1, 2}, Order{1, 2, 0}}) bring_back_and_cut(false, order);
}
TEST(LogAfterALoss, WhoKnowsTheChangeBringsItNotBackToTheNextWriter) {
  for (const Order& order : {Order{0, 1, 2}, Order{1, 2, 0}}) bring_back_and_cut(true, order);
}

// As before, and 1 loses its power in the midst of the acceptance. Expect: where it is not accepted
// the change stands, and where it is nobody goes back.
TEST(LogAfterALoss, AnAcceptanceThatFailsGivesNoChangeUp) {
  std::size_t refused = 0;
  bool begun = false;
  for (std::uint64_t events = 300; events < 2500 && !begun; events += 19) {
    Cluster cluster(4);
    Writer log = cluster.opened();
    const auto tickets = Cluster::append(*log, 3);
    Cluster::settle(*log);
    const log::Configuration before = log->configuration();
    const std::string second = log->status().replicas[2].pool_uuid;
    cluster.cut_off(2, true);
    ASSERT_TRUE(log->replace_replica(second, cluster.peer(3)).ok());
    log.reset();
    put_state(cluster, 1, [&](log::LogState& state) { state.configuration = before; });
    cluster.on_medium(1, [](std::span<std::byte> bytes) {
      std::fill_n(bytes.begin() + log::kCommittedWordAt, 8, std::byte{0});
    });
    cluster.flip_record(1, tickets[2].lsn);
    cluster.wipe(2);
    cluster.cut_off(0, true);
    cluster.cut_off(3, true);
    cluster.cut_off(2, false);
    WriterOptions options = cluster.options();
    options.accept_loss = true;
    cluster.world().cut_after(cluster.server(1).machine(), events);
    const auto accepted = cluster.open({0, 1, 2}, options);
    cluster.world().cancel_cut();
    begun = accepted.ok();
    if (begun) break;
    ++refused;
    cluster.stop(1);
    cluster.start(1);
    const log::LogStart chosen = cluster.scan(1).start;
    if (chosen.state().epoch > Epoch{1} || !chosen.stored->copies_agree) continue;
    cluster.cut_off(0, false);
    cluster.cut_off(3, false);
    const auto opened = cluster.open({0, 1, 3});
    ASSERT_TRUE(opened.ok()) << "cut after " << events << ": " << opened.error().message;
    EXPECT_EQ((*opened)->status().next_index, 3u);
  }
  EXPECT_TRUE(begun);
  EXPECT_GT(refused, 0u);
}

const Order kFive = {0, 1, 2, 3, 4};

void cut_off(Cluster& cluster, const Order& those, bool cut) {
  for (const std::size_t index : those) cluster.cut_off(index, cut);
}

/// Five with five records and a quorum of 3, which is changed to 2; 2 never heard that this is
/// committed, and the last record before it is damaged there. 0 and 1 are trimmed to their end. The
/// loss is accepted by 2, 3 and 4, and 2 loses its power in the midst. Returns what became of that;
/// `by`: who says that it is accepted.
Result<Writer> quorum_given_up(Cluster& cluster, std::uint64_t events, Order& by) {
  Writer log = cluster.opened(kFive);
  const auto tickets = Cluster::append(*log, 5);
  Cluster::settle(*log);
  const log::Configuration before = log->configuration();
  cut_off(cluster, {3, 4}, true);
  EXPECT_TRUE(log->change_quorum(2).ok());
  cluster.cut_off(2, true);
  EXPECT_TRUE(log->trim(log->status().tail).ok());
  log.reset();
  put_state(cluster, 2, [&](log::LogState& state) { state.configuration = before; });
  cluster.flip_record(2, tickets[4].lsn);
  cut_off(cluster, {0, 1}, true);
  cut_off(cluster, {2, 3, 4}, false);
  cluster.world().cut_after(cluster.server(2).machine(), events);
  auto accepted = accepting(cluster, kFive);
  cluster.world().cancel_cut();
  cluster.stop(2);
  cluster.start(2);
  for (const std::size_t index : {2u, 3u, 4u}) {
    if (cluster.scan(index).start.state().epoch == kAccepted) by.push_back(index);
  }
  return accepted;
}

/// Expect: four votes are needed, and three are there.
void expect_too_few(Cluster& cluster, bool accept_loss) {
  WriterOptions options = cluster.options();
  options.accept_loss = accept_loss;
  const auto opened = cluster.open(kFive, options);
  EXPECT_EQ(opened.code(), ErrorCode::QuorumLost)
      << (opened.ok() ? fmt::format("it has {} of 8", (*opened)->status().next_index)
                      : opened.error().message);
}

// One alone says that the loss is accepted, and is away; the others go on without any, and commit
// two records by the quorum that was changed. Then it is back, and those who have them are away.
// Expect: it opens with them only; no loss is accepted without them either, whatever the others
// have lost since.
TEST(LogAfterALoss, AnAcceptanceThatCameToNothingTakesNoVotes) {
  std::size_t tried = 0;
  bool begun = false;
  for (std::uint64_t events = 600; events < 2500 && !begun; events += 50) {
    SCOPED_TRACE(fmt::format("cut after {}", events));
    Cluster cluster(5);
    Order by;
    begun = quorum_given_up(cluster, events, by).ok();
    if (begun || by.size() != 1) continue;
    ++tried;
    cut_off(cluster, by, true);
    cut_off(cluster, {0, 1}, false);
    Writer log = cluster.opened(kFive);
    ASSERT_NE(log, nullptr);
    EXPECT_EQ(log->status().quorum, 2u);
    const Lsn last = Cluster::append(*log, 1)[0].lsn;
    Cluster::settle(*log);
    cut_off(cluster, {2, 3, 4}, true);
    Cluster::append(*log, 2);
    EXPECT_EQ(log->status().next_index, 8u);
    log.reset();
    cut_off(cluster, {0, 1}, true);
    cut_off(cluster, {2, 3, 4}, false);
    expect_too_few(cluster, false);
    expect_too_few(cluster, true);
    for (const std::size_t index : {2u, 3u, 4u}) {
      if (index != by.front()) cluster.flip_record(index, last);
    }
    expect_too_few(cluster, true);
    cut_off(cluster, {0, 1}, false);
    log = cluster.opened(kFive);
    ASSERT_NE(log, nullptr);
    EXPECT_EQ(log->status().next_index, 8u);
    EXPECT_EQ(log->status().quorum, 2u);
  }
  EXPECT_TRUE(begun);
  EXPECT_GT(tried, 0u);
}

// The same one has lost more, and all the others are there: they have the votes without it. Expect:
// the change stands that was committed.
TEST(LogAfterALoss, AnAcceptanceThatCameToNothingUndoesNoChange) {
  std::size_t tried = 0;
  bool begun = false;
  for (std::uint64_t events = 600; events < 2500 && !begun; events += 50) {
    Cluster cluster(5);
    Order by;
    begun = quorum_given_up(cluster, events, by).ok();
    if (begun || by.size() != 1) continue;
    ++tried;
    cluster.flip_record(by.front(), log::kFirstLsn);
    cut_off(cluster, {0, 1}, false);
    const Writer log = cluster.opened(kFive);
    ASSERT_NE(log, nullptr) << "cut after " << events;
    EXPECT_EQ(log->status().quorum, 2u);
    EXPECT_EQ(log->status().next_index, 5u);
  }
  EXPECT_TRUE(begun);
  EXPECT_GT(tried, 0u);
}

/// {0, 1, 2}; 3 is added and the quorum of 2 is kept while 2 is away, and 1 never heard that this
/// is committed; the record before it is damaged there. The loss is accepted by 1 and 2, and 2
/// loses its power in the midst.
Result<Writer> addition_given_up(Cluster& cluster, std::uint64_t events) {
  Writer log = cluster.opened();
  const auto tickets = Cluster::append(*log, 3);
  Cluster::settle(*log);
  const log::Configuration before = log->configuration();
  cluster.cut_off(2, true);
  EXPECT_TRUE(log->add_replica(cluster.peer(3), 2).ok());
  log.reset();
  put_state(cluster, 1, [&](log::LogState& state) { state.configuration = before; });
  cluster.on_medium(1, [](std::span<std::byte> bytes) {
    std::fill_n(bytes.begin() + log::kCommittedWordAt, 8, std::byte{0});
  });
  cluster.flip_record(1, tickets[2].lsn);
  cut_off(cluster, {0, 3}, true);
  cluster.cut_off(2, false);
  cluster.world().cut_after(cluster.server(2).machine(), events);
  auto accepted = accepting(cluster);
  cluster.world().cancel_cut();
  cluster.stop(2);
  cluster.start(2);
  return accepted;
}

/// When 2 loses its power so that it alone says that the loss is accepted. 0: never.
std::uint64_t accepted_by_one() {
  for (std::uint64_t events = 300; events < 2500; events += 19) {
    Cluster cluster(4);
    if (addition_given_up(cluster, events).ok()) break;
    if (cluster.scan(2).start.state().epoch != kAccepted) continue;
    if (cluster.scan(1).start.state().marks.incomplete) return events;
  }
  return 0;
}

// One alone says that the loss is accepted, and is away; the other one that was to come along has
// its vote where the log goes on without, and fails before it is a part of that. Then these two are
// all that is there. Expect: what was committed without them is not taken away.
TEST(LogAfterALoss, WhoWasToComeAlongVotesForNothingElseLater) {
  const std::uint64_t accepted = accepted_by_one();
  ASSERT_GT(accepted, 0u);
  bool equal = false;
  std::size_t failed = 0;
  for (std::uint64_t events = 200; events < 3000 && !equal; events += 19) {
    SCOPED_TRACE(fmt::format("cut after {}", events));
    Cluster cluster(4);
    ASSERT_FALSE(addition_given_up(cluster, accepted).ok());
    cluster.cut_off(2, true);
    cut_off(cluster, {0, 3}, false);
    cluster.world().cut_after(cluster.server(1).machine(), events);
    auto opened = cluster.open({0, 1, 2, 3});
    cluster.world().cancel_cut();
    equal = opened.ok() && (*opened)->status().replicas[1].up;
    failed += equal ? 0 : 1;
    std::uint64_t next = 3;
    if (opened.ok()) {
      cut_off(cluster, {1}, true);
      Cluster::append(**opened, 2);
      next = (*opened)->status().next_index;
      opened->reset();
    }
    cluster.stop(1);
    cluster.start(1);
    cut_off(cluster, {0, 3}, true);
    cut_off(cluster, {1, 2}, false);
    for (const Order& order : {Order{0, 1, 2}, Order{0, 1, 2, 3}}) {
      const auto again = cluster.open(order);
      if (again.ok()) {
        EXPECT_EQ((*again)->status().next_index, next);
        EXPECT_EQ(next, 3u) << "opened by those who have not got it";
      }
    }
  }
  EXPECT_TRUE(equal);
  EXPECT_GT(failed, 0u);
}

/// 2 alone says that the loss is accepted, and is away. The others are opened, 1 loses its power
/// after `events`, and so it is refused. Whether 1 is as it was then, and the others have the
/// epoch.
bool refused_without_one(Cluster& cluster, std::uint64_t accepted, std::uint64_t events) {
  EXPECT_FALSE(addition_given_up(cluster, accepted).ok());
  cluster.cut_off(2, true);
  cut_off(cluster, {0, 3}, false);
  cluster.world().cut_after(cluster.server(1).machine(), events);
  const bool refused = !cluster.open({0, 1, 2, 3}).ok();
  cluster.world().cancel_cut();
  cluster.stop(1);
  cluster.start(1);
  return refused && cluster.scan(3).start.state().epoch == Epoch{kAccepted.value + 1} &&
         cluster.scan(1).start.state().marks.incomplete;
}

// That one is back then and is read, the others' history is taken, and it is lost before it is a
// part of that; then these two are all that is there. Expect: the same.
TEST(LogAfterALoss, WhoAloneHasALossDoesNotVoteForOthersAndGoBack) {
  const std::uint64_t accepted = accepted_by_one();
  ASSERT_GT(accepted, 0u);
  std::uint64_t lost = 200;
  for (bool found = false; !found; lost += 19) {
    ASSERT_LT(lost, 3000u);
    Cluster cluster(4);
    found = refused_without_one(cluster, accepted, lost + 19);
  }
  bool equal = false;
  std::size_t refused = 0;
  for (std::uint64_t events = 200; events < 3000 && !equal; events += 19) {
    SCOPED_TRACE(fmt::format("cut after {}", events));
    Cluster cluster(4);
    ASSERT_TRUE(refused_without_one(cluster, accepted, lost));
    cluster.cut_off(1, true);
    cluster.cut_off(2, false);
    cluster.world().cut_after(cluster.server(2).machine(), events);
    auto opened = cluster.open({0, 1, 2, 3});
    cluster.world().cancel_cut();
    equal = opened.ok() && (*opened)->status().replicas[2].up;
    if (opened.ok()) Cluster::append(**opened, 2);
    const std::uint64_t next = opened.ok() ? (*opened)->status().next_index : 3;
    refused += opened.ok() ? 0 : 1;
    if (opened.ok()) opened->reset();
    cluster.stop(2);
    cluster.start(2);
    cut_off(cluster, {0, 3}, true);
    cluster.cut_off(1, false);
    const auto again = cluster.open({0, 1, 2});
    if (!again.ok()) continue;
    EXPECT_EQ((*again)->status().next_index, next);
    EXPECT_FALSE(opened.ok() && !equal) << "opened by those who have not got it";
  }
  EXPECT_TRUE(equal);
  EXPECT_GT(refused, 0u);
}

// The same, and the one that was to come along can not be brought to equal. Expect: the log is
// refused without it, and opens for an operator who knows that nothing was accepted elsewhere.
TEST(LogAfterALoss, WhoCanNotBeBroughtToEqualClosesNoLogForItsOperator) {
  const std::uint64_t accepted = accepted_by_one();
  ASSERT_GT(accepted, 0u);
  std::size_t went_on = 0;
  for (std::uint64_t events = 200; events < 1500 && went_on == 0; events += 19) {
    Cluster cluster(4);
    ASSERT_FALSE(addition_given_up(cluster, accepted).ok());
    cluster.cut_off(2, true);
    cut_off(cluster, {0, 3}, false);
    WriterOptions options = cluster.options();
    bool refused = false;
    for (const bool accept : {false, true}) {
      options.accept_loss = accept;
      cluster.world().cut_after(cluster.server(1).machine(), events);
      const auto opened = cluster.open({0, 1, 2, 3}, options);
      cluster.world().cancel_cut();
      cluster.stop(1);
      cluster.start(1);
      if (!accept) {
        refused = !opened.ok() &&
                  opened.error().message.find("open with accept_loss") != std::string::npos;
      } else if (refused && opened.ok() && cluster.scan(1).start.state().marks.incomplete) {
        EXPECT_EQ((*opened)->status().next_index, 3u);
        ++went_on;
      }
    }
  }
  EXPECT_GT(went_on, 0u);
}

/// Of ten records 1 and 2 can read three, and 0 is away. The loss is accepted, and 2 loses its
/// power in the midst. Whether 1 alone says that it is accepted.
bool accept_on_one(Cluster& cluster, const std::vector<Ticket>& tickets, std::uint64_t events) {
  cluster.cut_off(0, true);
  for (const std::size_t index : {1u, 2u}) cluster.flip_record(index, tickets[3].lsn);
  cluster.world().cut_after(cluster.server(2).machine(), events);
  const bool accepted = accepting(cluster).ok();
  cluster.world().cancel_cut();
  cluster.stop(2);
  cluster.start(2);
  return !accepted && cluster.scan(1).start.state().epoch == kAccepted &&
         cluster.scan(2).start.state().marks.incomplete;
}

// A reader has ten records, and the replica that it reads is the only one which says that seven of
// them were given up. Expect: it is told so as long as nobody knows better, and reads on where the
// log went on without that, also while the others are away that do not say it.
TEST(LogAfterALoss, WhatOneReplicaAloneGaveUpIsNotGoneForItsReader) {
  std::size_t tried = 0;
  for (std::uint64_t events = 300; events < 2500 && tried < 3; events += 19) {
    SCOPED_TRACE(fmt::format("cut after {}", events));
    Cluster cluster;
    Writer log = cluster.opened();
    const auto tickets = Cluster::append(*log, 10);
    Cluster::settle(*log);
    log.reset();
    std::vector<std::unique_ptr<client::Peer>> peers;
    for (const std::size_t index : {1u, 0u, 2u}) peers.push_back(cluster.peer(index));
    auto reader = log::FailoverReader::open(std::move(peers), {kPool, {}, milliseconds(20)},
                                            cluster.world().clock());
    ASSERT_TRUE(reader.ok()) << reader.error().message;
    for (int count = 0; count < 10; ++count) ASSERT_TRUE(reader->next().ok());
    if (!accept_on_one(cluster, tickets, events)) continue;
    ++tried;
    for (int again = 0; again < 4; ++again) {
      if (again == 2) cluster.cut_off(0, false);  // it has what may have been given up
      const auto record = reader->next();
      ASSERT_FALSE(record.ok());
      EXPECT_EQ(record.code(), ErrorCode::Fenced);
      cluster.world().pass(milliseconds(150));
    }
    cluster.cut_off(1, true);
    log = cluster.opened();
    ASSERT_NE(log, nullptr);
    EXPECT_EQ(log->status().next_index, 10u);
    Cluster::append(*log, 2);
    Cluster::settle(*log);
    log.reset();
    cluster.cut_off(1, false);
    std::vector<std::uint64_t> read;
    for (int looks = 0; looks < 20; ++looks) {
      const auto record = reader->next();
      ASSERT_TRUE(record.ok()) << record.error().message;
      if (*record) read.push_back((*record)->index);
      cluster.world().pass(milliseconds(150));
    }
    EXPECT_EQ(read, (std::vector<std::uint64_t>{10, 11}));
  }
  EXPECT_GT(tried, 0u);
}

// The same, and the log goes on without any new record. Expect: a reader that is at its end on a
// replica of that is not told that what it has is gone, because the other one is back.
TEST(LogAfterALoss, WhoReadsWhereTheLogWentOnIsNotToldOfWhatCameToNothing) {
  std::size_t tried = 0;
  for (std::uint64_t events = 300; events < 2500 && tried < 1; events += 19) {
    Cluster cluster;
    Writer log = cluster.opened();
    const auto tickets = Cluster::append(*log, 10);
    Cluster::settle(*log);
    log.reset();
    std::vector<std::unique_ptr<client::Peer>> peers;
    for (const std::size_t index : {0u, 1u, 2u}) peers.push_back(cluster.peer(index));
    auto reader = log::FailoverReader::open(std::move(peers), {kPool, {}, milliseconds(20)},
                                            cluster.world().clock());
    ASSERT_TRUE(reader.ok()) << reader.error().message;
    for (int count = 0; count < 10; ++count) ASSERT_TRUE(reader->next().ok());
    if (!accept_on_one(cluster, tickets, events)) continue;
    ++tried;
    cluster.cut_off(0, false);
    cluster.cut_off(1, true);
    log = cluster.opened();
    ASSERT_NE(log, nullptr);
    EXPECT_EQ(log->status().next_index, 10u);
    Cluster::settle(*log);
    log.reset();
    cluster.cut_off(1, false);
    for (int looks = 0; looks < 10; ++looks) {
      const auto record = reader->next();
      ASSERT_TRUE(record.ok()) << record.error().message;
      EXPECT_FALSE(*record);
      cluster.world().pass(milliseconds(150));
    }
  }
  EXPECT_GT(tried, 0u);
}

// A reader has ten records, and the one replica that it reads says alone that seven of them were
// given up; the session with it ends. Expect: what the log has appended without that is read when
// that replica has come along.
TEST(LogAfterALoss, WhoIsToldOfWhatCameToNothingReadsOnOverAnotherSession) {
  std::size_t tried = 0;
  for (std::uint64_t events = 300; events < 2500 && tried < 1; events += 19) {
    Cluster cluster;
    Writer log = cluster.opened();
    const auto tickets = Cluster::append(*log, 10);
    Cluster::settle(*log);
    log.reset();
    std::vector<std::unique_ptr<client::Peer>> peers;
    peers.push_back(cluster.peer(1));
    auto reader = log::FailoverReader::open(std::move(peers), {kPool, {}, milliseconds(20)},
                                            cluster.world().clock());
    ASSERT_TRUE(reader.ok()) << reader.error().message;
    for (int count = 0; count < 10; ++count) ASSERT_TRUE(reader->next().ok());
    if (!accept_on_one(cluster, tickets, events)) continue;
    ++tried;
    EXPECT_EQ(reader->next().code(), ErrorCode::Fenced);
    cluster.stop(1);
    cluster.start(1);
    cluster.cut_off(0, false);
    cluster.cut_off(1, true);
    log = cluster.opened();
    ASSERT_NE(log, nullptr);
    EXPECT_EQ(log->status().next_index, 10u);
    Cluster::append(*log, 2);
    cluster.cut_off(1, false);
    Cluster::expect_repaired(log->repair(), 1);
    Cluster::settle(*log);
    log.reset();
    std::vector<std::uint64_t> read;
    for (int looks = 0; looks < 10; ++looks) {
      const auto record = reader->next();
      if (record.ok() && *record) read.push_back((*record)->index);
      cluster.world().pass(milliseconds(150));
    }
    EXPECT_EQ(read, (std::vector<std::uint64_t>{10, 11}));
  }
  EXPECT_GT(tried, 0u);
}

// A reader has ten records, and the replica that it reads is the only one which says that seven of
// them were given up; the next writer goes on from there, and gets no further than to that one.
// Expect: the reader is told so as before, and reads on where the log went on without that.
TEST(LogAfterALoss, WhatOneReplicaAloneGaveUpIsNotGoneInItsNextEpochEither) {
  std::size_t tried = 0;
  for (std::uint64_t events = 300; events < 2500 && tried < 1; events += 19) {
    for (std::uint64_t more = 100; more < 1500 && tried < 1; more += 50) {
      Cluster cluster;
      Writer log = cluster.opened();
      const auto tickets = Cluster::append(*log, 10);
      Cluster::settle(*log);
      log.reset();
      std::vector<std::unique_ptr<client::Peer>> peers;
      for (const std::size_t index : {1u, 0u, 2u}) peers.push_back(cluster.peer(index));
      auto reader = log::FailoverReader::open(std::move(peers), {kPool, {}, milliseconds(20)},
                                              cluster.world().clock());
      ASSERT_TRUE(reader.ok()) << reader.error().message;
      for (int count = 0; count < 10; ++count) ASSERT_TRUE(reader->next().ok());
      if (!accept_on_one(cluster, tickets, events)) break;
      cluster.open_and_cut({0, 1, 2}, 2, more);
      const bool alone = cluster.scan(1).start.state().epoch == Epoch{kAccepted.value + 1} &&
                         cluster.scan(2).start.state().marks.incomplete;
      if (!alone) continue;
      SCOPED_TRACE(fmt::format("cut after {} and {}", events, more));
      ++tried;
      EXPECT_EQ(reader->next().code(), ErrorCode::Fenced);
      cluster.cut_off(0, false);
      cluster.cut_off(1, true);
      log = cluster.opened();
      ASSERT_NE(log, nullptr);
      EXPECT_EQ(log->status().next_index, 10u);
      Cluster::append(*log, 2);
      Cluster::settle(*log);
      log.reset();
      cluster.cut_off(1, false);
      cluster.world().pass(milliseconds(150));
      std::vector<std::uint64_t> read;
      for (int looks = 0; looks < 20; ++looks) {
        const auto record = reader->next();
        ASSERT_TRUE(record.ok()) << record.error().message;
        if (*record) read.push_back((*record)->index);
        cluster.world().pass(milliseconds(150));
      }
      EXPECT_EQ(read, (std::vector<std::uint64_t>{10, 11}));
    }
  }
  EXPECT_GT(tried, 0u);
}

// A reader was given ten records. The loss of the last seven is accepted, as many come in their
// place, and the next writer trims to their end. Expect: the reader is not given what follows, as
// if it had been given what is before.
TEST(LogAfterALoss, AReaderDoesNotGoOnWhereAsManyOthersWereTrimmed) {
  Cluster cluster;
  Writer log = cluster.opened();
  const auto tickets = Cluster::append(*log, 10);
  Cluster::settle(*log);
  log.reset();
  std::vector<std::unique_ptr<client::Peer>> peers;
  for (const std::size_t index : {1u, 0u, 2u}) peers.push_back(cluster.peer(index));
  auto reader = log::FailoverReader::open(std::move(peers), {kPool, {}, milliseconds(20)},
                                          cluster.world().clock());
  ASSERT_TRUE(reader.ok()) << reader.error().message;
  for (int count = 0; count < 10; ++count) ASSERT_TRUE(reader->next().ok());
  for (const std::size_t index : {0u, 1u, 2u}) cluster.flip_record(index, tickets[3].lsn);
  auto accepted = accepting(cluster);
  ASSERT_TRUE(accepted.ok()) << accepted.error().message;
  log = std::move(accepted).value();
  EXPECT_EQ(log->status().next_index, 3u);
  for (int count = 0; count < 7; ++count) put(*log, 1500, 'n');
  Cluster::settle(*log);
  log.reset();
  log = cluster.opened();
  ASSERT_NE(log, nullptr);
  EXPECT_EQ(log->status().next_index, 10u);
  ASSERT_TRUE(log->trim(log->status().tail).ok());
  put(*log, 300, 'm');
  Cluster::settle(*log);
  log.reset();
  for (int looks = 0; looks < 5; ++looks) {
    const auto record = reader->next();
    EXPECT_FALSE(record.ok() && *record) << "index " << (*record)->index;
    cluster.world().pass(milliseconds(150));
  }
}

// A reader has all records, and has come behind a change of the quorum, which alone is given up.
// Expect: it has lost nothing, and reads on.
TEST(LogAfterALoss, AReaderReadsOnWhereOnlyAChangeWasGivenUp) {
  for (const bool trimmed : {false, true}) {
    Cluster cluster;
    Writer log = cluster.opened();
    Cluster::append(*log, 3);
    const Lsn end = log->status().tail;
    ASSERT_TRUE(log->change_quorum(3).ok());
    const Lsn behind = log->status().tail;
    Cluster::settle(*log);
    log.reset();
    std::vector<std::unique_ptr<client::Peer>> peers;
    for (const std::size_t index : {1u, 0u, 2u}) peers.push_back(cluster.peer(index));
    auto reader = log::FailoverReader::open(std::move(peers), {kPool, {}, milliseconds(20)},
                                            cluster.world().clock());
    ASSERT_TRUE(reader.ok()) << reader.error().message;
    for (int count = 0; count < 4; ++count) ASSERT_TRUE(reader->next().ok());
    EXPECT_EQ(reader->position(), behind);
    for (const std::size_t index : {0u, 1u, 2u}) cluster.flip_record(index, end);
    auto accepted = accepting(cluster);
    ASSERT_TRUE(accepted.ok()) << accepted.error().message;
    log = std::move(accepted).value();
    EXPECT_EQ(log->status().tail, end);
    if (trimmed) {
      ASSERT_TRUE(log->trim(end).ok());
    }
    Cluster::append(*log, 2);
    Cluster::settle(*log);
    log.reset();
    std::vector<std::uint64_t> read;
    for (int looks = 0; looks < 10; ++looks) {
      const auto record = reader->next();
      ASSERT_TRUE(record.ok()) << record.error().message;
      if (*record) read.push_back((*record)->index);
      cluster.world().pass(milliseconds(150));
    }
    EXPECT_EQ(read, (std::vector<std::uint64_t>{3, 4}));
  }
}

/// Lets something happen between what is read of the first pages: once, before the states are.
class Interrupted final : public ByteSource {
 public:
  Interrupted(std::span<const std::byte> bytes, std::function<void()> meanwhile)
      : bytes_(bytes), meanwhile_(std::move(meanwhile)) {}
  std::uint64_t size() const override { return bytes_.size(); }
  Result<void> read(std::uint64_t at, std::span<std::byte> to) override {
    if (at == log::kStateAt && ++states_ == before_) meanwhile_();
    return bytes_.read(at, to);
  }
  void happens_before(int states) { before_ = states; }

 private:
  LocalBytes bytes_;
  std::function<void()> meanwhile_;
  int states_ = 0;
  int before_ = 1;
};

// A reader of 1 is held up when it has read the words and not the states. Meanwhile the loss of the
// fourth of ten records is accepted, and what comes in its place is on 1 alone. Expect: the reader
// is not given that, whether it had begun before or not.
void accept_while_reading(bool begun) {
  Cluster cluster;
  Writer log = cluster.opened();
  ASSERT_NE(log, nullptr);
  const auto tickets = Cluster::append(*log, 10);
  Cluster::settle(*log);
  log.reset();
  cluster.on_medium(1, [&](std::span<std::byte> bytes) {
    Interrupted source(bytes, [&] {
      auto accepted = accepting(cluster);
      ASSERT_TRUE(accepted.ok()) << accepted.error().message;
      log = std::move(accepted).value();
      ASSERT_EQ(log->status().next_index, 3u);
      cluster.cut_off(0, true);
      cluster.cut_off(2, true);
      const std::string record = "uncommitted";
      ASSERT_TRUE(log->append(std::as_bytes(std::span(record))).ok());
      cluster.world().settle();
    });
    source.happens_before(begun ? 2 : 1);
    for (const std::size_t index : {0u, 2u}) cluster.flip_record(index, tickets[3].lsn);
    bytes[log::kRingAt + tickets[3].lsn.value + log::kRecordHeaderBytes + 2] ^= std::byte{1};
    ASSERT_TRUE(cluster.server(1).region().flush(pmem::kPoolDataOffset, kPoolBytes).ok());
    auto reader = log::CommittedReader::open(source, {Lsn{}, false, "it"});
    ASSERT_TRUE(reader.ok()) << reader.error().message;
    for (int calls = 0; calls < 20; ++calls) {
      const auto record = reader->next();
      if (!record.ok() || !*record) continue;
      EXPECT_LT((*record)->index, 3u) << "of epoch " << (*record)->epoch.value;
    }
    ASSERT_NE(log, nullptr) << "nothing happened meanwhile";
    EXPECT_GT(cluster.scan(1).next_index, 3u);
  });
}
TEST(LogAfterALoss, AReaderThatIsHeldUpIsNotGivenWhatIsNotCommitted) {
  accept_while_reading(false);
}
TEST(LogAfterALoss, AReaderThatIsHeldUpLaterIsNotGivenWhatIsNotCommitted) {
  accept_while_reading(true);
}

/// By so many openings those that know the change have gone on before the loss of it is accepted,
/// and more is appended; then all are back. Expect: what they are opened with is what came after.
void go_on_before(int openings, const Order& named, bool one_away) {
  Cluster cluster(4);
  Writer log = change_given_up(cluster, 0, openings);
  ASSERT_NE(log, nullptr);
  Cluster::append(*log, 3);
  const LogStatus status = log->status();
  const std::vector<log::Member> members = log->configuration().members;
  Cluster::settle(*log);
  log.reset();
  cluster.cut_off(0, false);
  cluster.cut_off(3, false);
  cluster.cut_off(1, one_away);
  const auto opened = cluster.open(named);
  // Only with the replicas that it has since.
  ASSERT_EQ(opened.ok(), named == Order({0, 1, 2})) << (opened.ok() ? "" : opened.error().message);
  if (!opened.ok()) return;
  EXPECT_GT((*opened)->status().epoch, status.epoch);
  EXPECT_EQ((*opened)->status().next_index, status.next_index);
  EXPECT_EQ((*opened)->configuration().members, members);
}

TEST(LogAfterALoss, WhoWentOnBeforeItBringsNothingBack) {
  for (const int epochs : {1, 2, 3}) {
    for (const Order& named : {Order{0, 1, 2}, Order{0, 1, 3}, Order{0, 1, 2, 3}}) {
      go_on_before(epochs, named, false);
      if (HasFailure()) FAIL() << epochs << " openings, " << named.size() << " named";
    }
    go_on_before(epochs, {0, 1, 2}, true);
    if (HasFailure()) FAIL() << epochs << " openings, 1 away";
  }
}

/// 2 was replaced by 3, and of the record of that only a tail word tells at 1, which loses its
/// power while the loss of it is accepted.
TEST(LogAfterALoss, WhatOnlyAWordVouchesForIsNotGivenUpInSilence) {
  std::size_t refused = 0;
  std::size_t opened = 0;
  bool done = false;
  for (std::uint64_t events = 250; events < 2500 && !done; events += 7) {
    Cluster cluster(4);
    WriterOptions compound = cluster.options();
    compound.shape = LogShape::Compound;
    auto created = cluster.open({0, 1, 2}, compound);
    ASSERT_TRUE(created.ok()) << created.error().message;
    Writer log = std::move(created).value();
    Cluster::append(*log, 3);
    Cluster::settle(*log);
    const Lsn change = log->status().tail;
    const log::Configuration before = log->configuration();
    const std::string second = log->status().replicas[2].pool_uuid;
    cluster.cut_off(2, true);
    ASSERT_TRUE(log->replace_replica(second, cluster.peer(3)).ok());
    log.reset();
    put_state(cluster, 1, [&](log::LogState& state) { state.configuration = before; });
    cluster.on_medium(1, [](std::span<std::byte> bytes) {
      std::fill_n(bytes.begin() + log::kCommittedWordAt, 8, std::byte{0});
    });
    cluster.flip_record(1, change);
    cluster.cut_off(0, true);
    cluster.cut_off(3, true);
    cluster.cut_off(2, false);
    cluster.world().cut_after(cluster.server(1).machine(), events);
    const auto accepted = accepting(cluster);
    cluster.world().cancel_cut();
    done = accepted.ok();
    cluster.stop(1);
    cluster.start(1);
    auto plain = cluster.open();
    if (plain.ok()) {
      ++opened;
      EXPECT_GT((*plain)->configuration().loss, Epoch{}) << "cut after " << events << " events";
    } else {
      ++refused;
      plain = accepting(cluster);
      ASSERT_TRUE(plain.ok()) << events << ": " << plain.error().message;
      EXPECT_EQ((*plain)->status().next_index, 3u);
    }
    if (HasFailure()) return;
  }
  EXPECT_TRUE(done);
  EXPECT_GT(refused, 0u);
  EXPECT_GT(opened, 0u);
}

// A loss was accepted in epoch 2; a reader begins in epoch 3, and reads all that is left, of epoch
// 1. What is trimmed then held a change of the quorum alone. Expect: it has the next record.
TEST(LogAfterALoss, AReaderThatBeganAfterTheLossReadsOnBehindATrim) {
  Cluster cluster;
  Writer log = gone_on_without_zero(cluster, 0);
  ASSERT_NE(log, nullptr);
  Cluster::settle(*log);
  log.reset();
  cluster.cut_off(0, false);
  log = cluster.opened();
  ASSERT_NE(log, nullptr);
  std::vector<std::unique_ptr<client::Peer>> peers;
  for (const std::size_t index : {0u, 1u, 2u}) peers.push_back(cluster.peer(index));
  auto reader = log::FailoverReader::open(std::move(peers), {kPool, {}, milliseconds(20)},
                                          cluster.world().clock());
  ASSERT_TRUE(reader.ok()) << reader.error().message;
  for (int count = 0; count < 3; ++count) {
    const auto record = reader->next();
    ASSERT_TRUE(record.ok() && *record);
  }
  ASSERT_TRUE(log->change_quorum(3).ok());
  ASSERT_TRUE(log->trim(log->status().tail).ok());
  Cluster::append(*log, 1);
  Cluster::settle(*log);
  bool found = false;
  for (int looks = 0; looks < 4 && !found; ++looks) {
    const auto record = reader->next();
    ASSERT_TRUE(record.ok()) << record.error().message;
    found = record->has_value();
    if (found) {
      EXPECT_EQ((*record)->index, 3u);
    }
    cluster.world().pass(milliseconds(150));
  }
  EXPECT_TRUE(found);
}

// A reader is at the end of what went on without a loss; then the one that alone has the loss is
// all that answers. Expect: nobody can be reached that has more, and not that a tail was replaced.
TEST(LogAfterALoss, WhoReadALaterEpochIsNotToldOfWhatCameToNothingByTheOnlyOneThere) {
  std::size_t tried = 0;
  for (std::uint64_t events = 300; events < 2500 && tried == 0; events += 19) {
    Cluster cluster;
    Writer log = cluster.opened();
    const auto tickets = Cluster::append(*log, 10);
    Cluster::settle(*log);
    log.reset();
    std::vector<std::unique_ptr<client::Peer>> peers;
    for (const std::size_t index : {0u, 1u, 2u}) peers.push_back(cluster.peer(index));
    auto reader = log::FailoverReader::open(std::move(peers), {kPool, {}, milliseconds(20)},
                                            cluster.world().clock());
    ASSERT_TRUE(reader.ok()) << reader.error().message;
    for (int count = 0; count < 10; ++count) ASSERT_TRUE(reader->next().ok());
    cluster.cut_off(0, true);
    for (const std::size_t index : {1u, 2u}) cluster.flip_record(index, tickets[3].lsn);
    cluster.world().cut_after(cluster.server(2).machine(), events);
    const bool accepted = accepting(cluster).ok();
    cluster.world().cancel_cut();
    cluster.stop(2);
    cluster.start(2);
    if (accepted || cluster.scan(1).start.state().epoch != kAccepted ||
        !cluster.scan(2).start.state().marks.incomplete) {
      continue;
    }
    ++tried;
    cluster.cut_off(0, false);
    cluster.cut_off(1, true);
    log = cluster.opened();
    ASSERT_NE(log, nullptr);
    Cluster::settle(*log);
    log.reset();
    for (int looks = 0; looks < 5; ++looks) {
      ASSERT_TRUE(reader->next().ok());
      cluster.world().pass(milliseconds(150));
    }
    cluster.cut_off(1, false);
    cluster.cut_off(0, true);
    cluster.cut_off(2, true);
    for (int looks = 0; looks < 5; ++looks) {
      const auto record = reader->next();
      if (!record.ok()) {
        EXPECT_NE(record.code(), ErrorCode::Fenced) << record.error().message;
      }
      cluster.world().pass(milliseconds(150));
    }
    for (const std::size_t index : {0u, 2u}) cluster.cut_off(index, false);
    for (int looks = 0; looks < 3; ++looks) {
      cluster.world().pass(milliseconds(150));
      const auto record = reader->next();
      EXPECT_TRUE(record.ok()) << record.error().message;
    }
  }
  EXPECT_EQ(tried, 1u);
}

}  // namespace
}  // namespace perdure
