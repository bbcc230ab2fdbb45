// `perdure plan` with a peer: what it is and what the connection to it costs, asked of a real
// perdured, without disturbing whoever writes there.
#include <gtest/gtest.h>

#include "core/json.h"
#include "tests/cli/cluster.h"

namespace perdure::cli {
namespace {

using nlohmann::json;

std::vector<std::string> plan_of(const Cluster& cluster, std::vector<std::string> more) {
  more.insert(more.begin(), {"plan", "--peers", cluster.address(0), "--pool", "orders"});
  return more;
}

TEST(MeasuredPlan, SaysThatItIsMeasuredAndByWhat) {
  const Cluster cluster;
  for (const std::string transport : {"tcp", "shm"}) {
    const Outcome text = run(plan_of(cluster, {"--explain", "--transport", transport}));
    ASSERT_EQ(text.status, 0) << text.err;
    for (const char* part : {"candidate", "by size:", "costs: measured on this connection",
                             "message and its answer", "-- from 1 bytes: ", " 64 MiB "}) {
      EXPECT_TRUE(contains(text.out, part)) << part << "\n" << text.out;
    }
    EXPECT_TRUE(contains(text.out, ", " + transport)) << text.out;
    const Outcome plot = run(plan_of(cluster, {"--transport", transport, "--format", "plot"}));
    ASSERT_EQ(plot.status, 0) << plot.err;
    EXPECT_TRUE(contains(plot.out, "costs: measured")) << plot.out;
  }
}

TEST(MeasuredPlan, HasThePeersNumbersInJson) {
  const Cluster cluster;
  const Outcome outcome = run(plan_of(cluster, {"--format", "json"}));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const json choice = json::parse(outcome.out);
  EXPECT_EQ(choice["label"], "measured");
  for (const char* cost : {"message_round_trip_ns", "read_round_trip_ns", "write_round_trip_ns",
                           "extra_post_ns", "copy_byte_ns", "wire_byte_ns"}) {
    EXPECT_GT(choice["costs"][cost], 0) << cost;
  }
  EXPECT_FALSE(choice["candidates"].empty());
  const Outcome usual = run({"plan", "--domain", "wsp", "--transport", "tcp", "--format", "json"});
  EXPECT_EQ(json::parse(usual.out)["label"], "simulated");
}

TEST(MeasuredPlan, LeavesTheWriterAlone) {
  const Cluster cluster;
  CommandProcess writer(cluster.log("append"));
  writer.write("one\n");
  cluster.await_content(0, "one");
  const Outcome planned = run(plan_of(cluster, {"--explain"}));
  EXPECT_EQ(planned.status, 0) << planned.err;
  writer.write("two\n");
  writer.close_input();
  const Outcome appended = writer.wait();
  EXPECT_EQ(appended.status, 0) << appended.err;
  cluster.await_content(0, "onetwo");
}

TEST(MeasuredPlan, SaysWhatIsWrongWhereNothingAnswers) {
  const Outcome nobody = run({"plan", "--peers", "127.0.0.1:1", "--pool", "orders"});
  EXPECT_EQ(nobody.status, 1) << nobody.out;
  EXPECT_TRUE(contains(nobody.err, "127.0.0.1:1")) << nobody.err;
  const Cluster cluster;
  const Outcome missing = run({"plan", "--peers", cluster.address(0), "--pool", "nothing"});
  EXPECT_EQ(missing.status, 1) << missing.out;
  EXPECT_TRUE(contains(missing.err, "[not-found]")) << missing.err;
}

}  // namespace
}  // namespace perdure::cli
