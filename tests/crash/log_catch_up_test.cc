// What it costs when a replica comes back: no more is copied than it lacks, and nothing is left of
// the connections that it had before.
#include "log_cluster.h"

#include "testing/watched_device.h"

namespace perdure {
namespace {

constexpr std::uint64_t kLongRing = 2 << 20;
constexpr std::size_t kBack = 2;  // the replica that comes back

/// Beside the records: states, words and what names the places of records in messages.
constexpr std::uint64_t kBesideBytes = 40 * 1024;

/// A cluster whose writers are connected to the replica that comes back over a watched device.
class LogCatchUp : public testing::Test {
 protected:
  LogCatchUp() : device(cluster.peer(kBack)->device()) {}

  Writer open() {
    std::vector<std::unique_ptr<client::Peer>> peers;
    for (const std::size_t index : {0u, 1u}) peers.push_back(cluster.peer(index));
    peers.push_back(cluster.server(kBack).peer(device));
    auto log = cluster.open(std::move(peers), cluster.options());
    EXPECT_TRUE(log.ok()) << log.error().message;
    return log.ok() ? std::move(log).value() : nullptr;
  }

  /// Appended while it is away: what it lacks.
  std::vector<Ticket> append_without_it(ReplicatedLog& log, int count) {
    Cluster::settle(log);
    cluster.stop(kBack);
    return Cluster::append_many(log, count);
  }

  /// It is brought back, and what it took is what it lacked.
  void expect_back(ReplicatedLog& log, std::uint64_t missing, const char* what) {
    const std::uint64_t before = device.watch().carried_bytes;
    const auto reports = log.repair();
    ASSERT_EQ(reports.size(), 1u) << what;
    EXPECT_TRUE(reports[0].repaired) << what << ": " << reports[0].error;
    EXPECT_EQ(reports[0].copied_bytes, missing) << what;
    const std::uint64_t carried = device.watch().carried_bytes - before;
    EXPECT_GE(carried, missing) << what;
    EXPECT_LE(carried, missing + missing / 16 + kBesideBytes) << what;
  }

  Cluster cluster{3, log::kRingAt + kLongRing};
  test::WatchedDevice device;
};

std::uint64_t bytes_of(const std::vector<Ticket>& tickets) {
  return tickets.back().end.value - tickets.front().lsn.value;
}

TEST_F(LogCatchUp, OnlyWhatIsMissingIsCopied) {
  Writer log = open();
  ASSERT_NE(log, nullptr);
  Cluster::append_many(*log, 2000);
  for (const int missed : {1, 40, 400}) {
    const auto tickets = append_without_it(*log, missed);
    cluster.start(kBack);
    expect_back(*log, bytes_of(tickets), "what this writer wrote");
  }
  // Trimmed meanwhile: a new head is no reason to copy what is behind it.
  const auto tickets = append_without_it(*log, 40);
  ASSERT_TRUE(log->trim(tickets.front().lsn).ok());
  cluster.start(kBack);
  expect_back(*log, bytes_of(tickets), "behind a trim");
  Cluster::append(*log, 3);
  Cluster::settle(*log);
  cluster.expect_all(2441, 2484);
}

TEST_F(LogCatchUp, OnlyWhatIsMissingIsCopiedFromALaterEpoch) {
  Writer log = open();
  ASSERT_NE(log, nullptr);
  Cluster::append_many(*log, 2000);
  Cluster::settle(*log);
  // One record is durable nowhere else, and of no history later.
  for (const std::size_t other : {0u, 1u}) cluster.stop(other);
  const std::string never = "never committed";
  const auto ticket = log->append(std::as_bytes(std::span(never)));
  ASSERT_TRUE(ticket.ok());
  ASSERT_TRUE(log->wait(*ticket, Level::Durable, std::chrono::seconds(1)).ok());
  log.reset();
  cluster.stop(kBack);
  for (const std::size_t other : {0u, 1u}) cluster.start(other);
  log = open();
  ASSERT_NE(log, nullptr);
  const auto tickets = Cluster::append_many(*log, 40);
  cluster.start(kBack);
  expect_back(*log, bytes_of(tickets), "what another writer wrote");
  Cluster::settle(*log);
  cluster.expect_all(0, 2040);
}

// The replica that has most is read, and the other ones are brought to it, before the log is open.
TEST_F(LogCatchUp, OnlyWhatIsMissingIsCopiedAtOpening) {
  Writer log = open();
  ASSERT_NE(log, nullptr);
  Cluster::append_many(*log, 2000);
  const auto tickets = append_without_it(*log, 40);
  Cluster::settle(*log);
  log.reset();
  cluster.start(kBack);
  const std::uint64_t before = device.watch().carried_bytes;
  log = open();
  ASSERT_NE(log, nullptr);
  const auto reports = log->take_repairs();
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].copied_bytes, bytes_of(tickets));
  const std::uint64_t carried = device.watch().carried_bytes - before;
  EXPECT_LE(carried, 2 * bytes_of(tickets) + kBesideBytes);
  cluster.expect_all(0, 2040);
}

/// The ways in which a connection to it ends.
enum class Ends { PowerFails, ConnectionLost, Silent, BroughtBackInPart };
constexpr std::array kEnds = {Ends::PowerFails, Ends::ConnectionLost, Ends::Silent,
                              Ends::BroughtBackInPart};

TEST(LogComesAndGoes, NothingStaysRegistered) {
  constexpr int kRounds = 4;  // of each way
  Cluster cluster;
  auto& client = dynamic_cast<fabric::emu::Machine&>(cluster.peer(0)->device());
  ASSERT_EQ(client.pinned_bytes(), 0u);
  Writer log = cluster.opened();
  ASSERT_NE(log, nullptr);
  Cluster::append(*log, 1);
  Cluster::settle(*log);
  const std::uint64_t at_client = client.pinned_bytes();
  const std::uint64_t at_server = cluster.server(kBack).machine().pinned_bytes();
  ASSERT_GT(at_client, 0u);
  for (int round = 0; round < kRounds * static_cast<int>(kEnds.size()); ++round) {
    const Ends ends = kEnds[static_cast<std::size_t>(round) % kEnds.size()];
    if (ends == Ends::ConnectionLost) {
      cluster.world().drop_connections(cluster.client(), cluster.server(kBack).machine());
    } else if (ends == Ends::Silent) {
      cluster.cut_off(kBack, true);
    } else {
      cluster.stop(kBack);
    }
    Cluster::append(*log, 20);
    ASSERT_TRUE(log->trim(log->status().committed).ok());
    cluster.cut_off(kBack, false);
    if (ends == Ends::PowerFails || ends == Ends::BroughtBackInPart) cluster.start(kBack);
    if (ends == Ends::BroughtBackInPart) {
      for (std::uint64_t events = 1; events < 400; events += 40) {
        cluster.world().after(events, [&] {
          cluster.world().drop_connections(cluster.client(), cluster.server(kBack).machine());
        });
        (void)log->repair();
        cluster.world().cancel_after();
      }
    }
    (void)log->repair();
    Cluster::settle(*log);
    ASSERT_TRUE(log->status().replicas[kBack].up) << "round " << round;
    ASSERT_EQ(client.pinned_bytes(), at_client) << "round " << round;
    ASSERT_EQ(cluster.server(kBack).machine().pinned_bytes(), at_server) << "round " << round;
  }
  log.reset();
  EXPECT_EQ(client.pinned_bytes(), 0u);
}

}  // namespace
}  // namespace perdure
