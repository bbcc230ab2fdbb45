// A log is closed at its quorum while one replica lags: who reads back afterwards, as the
// demonstration does, asks of each what was promised of it, and of no one more or less.
#include "demo/replica_check.h"
#include "tests/crash/log_cluster.h"

namespace perdure::demo {
namespace {

constexpr std::uint64_t kRecords = 40;
constexpr std::size_t kLaggard = 2;

class Laggard : public testing::Test {
 protected:
  /// Appends the text, of which the laggard gets half, and closes the log.
  void append_and_close(bool lags) {
    WriterOptions options = cluster_.options();
    options.replica_timeout = std::chrono::minutes(1);  // it is slow, not gone
    auto opened = cluster_.open({0, 1, 2}, options);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    Writer log = std::move(opened).value();
    for (std::uint64_t index = 0; index < kRecords; ++index) {
      if (lags && index == kRecords / 2) cluster_.cut_off(kLaggard, true);
      const auto ticket = log->append(text_.record(index));
      ASSERT_TRUE(ticket.ok()) << ticket.error().message;
      ASSERT_TRUE(log->wait(*ticket, Level::Committed, std::chrono::seconds(1)).ok());
    }
    const auto closed = log->close(std::chrono::milliseconds(200));
    lagging_ = closed.ok() ? "" : closed.error().message;
    closed_ = log->status();
    log.reset();
    cluster_.cut_off(kLaggard, false);
  }

  std::vector<ReplicaCheck> read_back(std::uint64_t records = kRecords) {
    std::vector<ReplicaCheck> checks;
    for (std::size_t index = 0; index < 3; ++index) {
      const auto peer = cluster_.peer(index);
      checks.push_back(check_replica(*peer, kPool, text_, records, cluster_.world().clock()));
    }
    return checks;
  }

  const RecordText text_ = RecordText::orders();
  Cluster cluster_;
  LogStatus closed_;
  std::string lagging_;
};

TEST_F(Laggard, IsNamedWhenTheLogIsClosedAndOwesOnlyTheBeginning) {
  append_and_close(true);
  EXPECT_NE(lagging_.find("server2 has it up to"), std::string::npos) << lagging_;
  const auto checks = read_back();
  ASSERT_FALSE(checks[kLaggard].equal) << "it did not lag";
  EXPECT_TRUE(checks[kLaggard].beginning) << checks[kLaggard].difference;
  EXPECT_FALSE(all_equal(checks));
  EXPECT_TRUE(as_promised(checks, closed_));
}

TEST_F(Laggard, OwesABeginningWithoutDamage) {
  append_and_close(true);
  cluster_.flip_record(kLaggard, closed_.head);
  EXPECT_FALSE(as_promised(read_back(), closed_));
}

TEST_F(Laggard, ExcusesNoOther) {
  append_and_close(true);
  cluster_.flip_record(0, closed_.head);
  EXPECT_FALSE(as_promised(read_back(), closed_)) << "one of the quorum is damaged";
}

TEST_F(Laggard, WhoHadEverythingOwesEverything) {
  append_and_close(false);
  EXPECT_EQ(lagging_, "");
  EXPECT_TRUE(as_promised(read_back(), closed_));
  EXPECT_FALSE(as_promised(read_back(kRecords + 1), closed_)) << "one more was appended";
}

}  // namespace
}  // namespace perdure::demo
