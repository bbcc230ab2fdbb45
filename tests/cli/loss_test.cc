// Damage on more replicas than the log bears: whoever would write is refused and told which records
// are lost, until the loss is accepted; and then told what was given up.
#include <gtest/gtest.h>

#include "core/json.h"
#include "tests/cli/cluster.h"

namespace perdure::cli {
namespace {

using nlohmann::json;

/// A log of four records, of which the second is damaged on every replica.
class Loss : public testing::TestWithParam<const char*> {
 protected:
  Loss() {
    first_lsn_ = append("first\n");
    end_lsn_ = append("is damaged\nthird\nfourth\n");
    for (std::size_t index = 0; index < kPeers; ++index) {
      cluster_.stop(index);
      cluster_.damage(index, "is damaged");
      cluster_.start(index);
    }
  }

  /// The tail afterwards.
  std::uint64_t append(const std::string& text) {
    const Outcome appended =
        run(cluster_.log("append", {"--shape", GetParam(), "--format", "json"}), text);
    EXPECT_EQ(appended.status, 0) << appended.err;
    return json::parse(appended.out)["log"]["tail"];
  }

  void expect_lost(const json& document) const {
    ASSERT_TRUE(document.contains("lost")) << document;
    const json& lost = document["lost"];
    EXPECT_EQ(lost["first_lsn"], first_lsn_);
    EXPECT_EQ(lost["end_lsn"], end_lsn_);
    EXPECT_EQ(lost["first_index"], 1);
    EXPECT_EQ(lost["last_index"], 3);
  }

  void expect_refused(const Outcome& outcome) const {
    EXPECT_EQ(outcome.status, 4) << outcome.err;
    EXPECT_TRUE(contains(outcome.err, "[corrupt]")) << outcome.err;
    const std::string lost = "index 1 to 3 at least (LSN " + std::to_string(first_lsn_) + " to " +
                             std::to_string(end_lsn_) + ")";
    EXPECT_TRUE(contains(outcome.err, lost)) << outcome.err;
    const json document = json::parse(outcome.out);
    EXPECT_EQ(document["refused"]["code"], "corrupt");
    expect_lost(document);
    EXPECT_EQ(run(cluster_.log("verify")).status, 4);
    EXPECT_EQ(run(cluster_.log("read")).out, "first\n") << "nothing was changed";
  }

  Cluster cluster_;
  std::uint64_t first_lsn_ = 0;
  std::uint64_t end_lsn_ = 0;
};

TEST_P(Loss, IsRefusedToWhoeverRepairsOrTrimsUntilItIsAccepted) {
  const std::string schema = "log-repair.schema.json";
  expect_refused(expect_document(cluster_.log("repair"), schema));
  expect_refused(expect_document(cluster_.log("trim", {"--keep-records", "9"}), schema));
  const Outcome accepted = expect_document(cluster_.log("repair", {"--accept-loss"}), schema);
  EXPECT_EQ(accepted.status, 5) << accepted.err;
  EXPECT_TRUE(contains(accepted.err, "loss accepted")) << accepted.err;
  const json document = json::parse(accepted.out);
  EXPECT_EQ(document["next_index"], 1);
  EXPECT_NE(document["accepted_loss"], "");
  expect_lost(document);
  // And it is over: what was given up is not given up again.
  const Outcome again = expect_document(cluster_.log("repair", {"--accept-loss"}), schema);
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_FALSE(json::parse(again.out).contains("lost")) << again.out;
  EXPECT_EQ(run(cluster_.log("verify")).status, 0);
}

TEST_P(Loss, IsRefusedToWhoeverAppendsUntilItIsAccepted) {
  expect_refused(expect_document(cluster_.log("append"), "log-repair.schema.json"));
  const Outcome accepted =
      run(cluster_.log("append", {"--accept-loss", "--format", "json"}), "fifth\n");
  EXPECT_EQ(accepted.status, 5) << accepted.err;
  EXPECT_TRUE(contains(accepted.err, "loss accepted")) << accepted.err;
  const json summary = json::parse(accepted.out);
  EXPECT_EQ(summary["committed"], 1);
  expect_lost(summary);
  EXPECT_EQ(run(cluster_.log("append"), "sixth\n").status, 0);
  EXPECT_EQ(run(cluster_.log("read")).out, "first\nfifth\nsixth\n");
}

// Opening the log has given the records up, whatever comes of what was asked for then.
TEST_P(Loss, IsSaidAlsoWhereWhatCameThenCouldNotBeDone) {
  const Outcome refused = expect_document(cluster_.log("trim", {"--accept-loss", "--to", "12345"}),
                                          "log-repair.schema.json");
  EXPECT_EQ(refused.status, 5) << refused.err;
  EXPECT_TRUE(contains(refused.err, "12345")) << refused.err;
  const json document = json::parse(refused.out);
  EXPECT_EQ(document["refused"]["code"], "invalid-argument");
  EXPECT_NE(document["accepted_loss"], "");
  expect_lost(document);
  EXPECT_EQ(run(cluster_.log("trim", {"--to", "12345"})).status, 1) << "nothing is given up again";
}

TEST_P(Loss, IsSaidByWhoChangesTheReplicas) {
  const Outcome changed = run({"log", "replica", "quorum", "--peers", cluster_.all(), "--pool",
                               "orders", "--new-quorum", "3", "--accept-loss", "--format", "json"});
  EXPECT_EQ(changed.status, 5) << changed.err;
  const json document = json::parse(changed.out);
  EXPECT_EQ(document["quorum"], 3);
  EXPECT_NE(document["accepted_loss"], "");
  expect_lost(document);
}

INSTANTIATE_TEST_SUITE_P(Shapes, Loss, testing::Values("singleton", "compound"),
                         [](const auto& shape) { return std::string(shape.param); });

}  // namespace
}  // namespace perdure::cli
