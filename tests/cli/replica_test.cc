// `perdure log replica` and `status`; and that a log is what it says, whatever is asked for.
#include <gtest/gtest.h>

#include "core/json.h"

#include "tests/cli/cluster.h"

namespace perdure::cli {
namespace {

using nlohmann::json;

std::uint64_t epoch_of(const Cluster& cluster) {
  const Outcome described = run(
      {"pool", "describe", "--peers", cluster.address(0), "--pool", "orders", "--format", "json"});
  return json::parse(described.out)["peers"][0]["pools"][0]["epoch"];
}

TEST(Replica, OtherPeersOrAnotherQuorumThanTheLogHasAreRefusedAndNothingIsFenced) {
  Cluster cluster;
  ASSERT_EQ(run(cluster.log("append"), "one\n").status, 0);
  const std::uint64_t epoch = epoch_of(cluster);
  const Outcome quorum = run(cluster.log("append", {"--quorum", "3"}), "two\n");
  EXPECT_EQ(quorum.status, 1);
  EXPECT_TRUE(contains(quorum.err, "quorum 2 of 3")) << quorum.err;
  const Outcome fewer = run(cluster.log_of(0, "append"), "two\n");
  EXPECT_EQ(fewer.status, 1);
  EXPECT_TRUE(contains(fewer.err, "quorum 2 of 3")) << fewer.err;
  EXPECT_EQ(epoch_of(cluster), epoch);
}

TEST(Replica, NothingIsTakenOverForAnInputThatCanNotBeRead) {
  Cluster cluster;
  CommandProcess writer(cluster.log("append", {"--keep-newline"}));
  writer.write("one\n");
  cluster.await_content(0, "one\n");
  const std::uint64_t epoch = epoch_of(cluster);
  const test::TestDirectory directory;
  const std::pair<std::string, std::string> inputs[] = {
      {"/does/not/exist", "No such file"},
      {directory.path(), "Is a directory"},
  };
  for (const auto& [input, reason] : inputs) {
    const Outcome refused = run(cluster.log("append", {"--take-over", input}));
    EXPECT_EQ(refused.status, 1) << refused.out;
    EXPECT_TRUE(contains(refused.err, input)) << refused.err;
    EXPECT_TRUE(contains(refused.err, reason)) << refused.err;
    EXPECT_EQ(epoch_of(cluster), epoch) << input;
  }
  // The writer that was there has noticed nothing.
  writer.write("two\n");
  writer.close_input();
  const Outcome outcome = writer.wait();
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(run(cluster.log("read", {"--raw"})).out, "one\ntwo\n");
}

TEST(Replica, OneMachineByTwoNamesIsOneReplica) {
  Cluster cluster;
  const std::string& address = cluster.address(0);
  const std::string alias = "localhost" + address.substr(address.find(':'));
  const Outcome outcome =
      run({"log", "append", "--peers", address + "," + alias, "--pool", "orders"}, "x\n");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_TRUE(contains(outcome.err, "are one pool")) << outcome.err;
}

TEST(Replica, RepairAndTrimOfNothingSaySo) {
  Cluster cluster;
  for (const std::string what : {"repair", "trim"}) {
    std::vector<std::string> more;
    if (what == "trim") more = {"--keep-records", "1"};
    const Outcome outcome = run(cluster.log(what, more));
    EXPECT_EQ(outcome.status, 1) << outcome.out;
    EXPECT_TRUE(contains(outcome.err, "[not-found]")) << outcome.err;
  }
}

TEST(Replica, IsTakenAwayAndComesBackAsAnother) {
  Cluster cluster;
  ASSERT_EQ(run(cluster.log("append"), "one\ntwo\n").status, 0);
  const Outcome removed = run({"log", "replica", "remove", "--peers", cluster.all(), "--pool",
                               "orders", cluster.address(2)});
  ASSERT_EQ(removed.status, 0) << removed.err;
  const std::string two = cluster.address(0) + "," + cluster.address(1);
  const auto of_two = [&](std::vector<std::string> words) {
    words.insert(words.end(), {"--peers", two, "--pool", "orders"});
    return words;
  };
  EXPECT_EQ(run(cluster.log("append"), "three\n").status, 1) << "it has two replicas now";
  EXPECT_EQ(run(of_two({"log", "append"}), "three\n").status, 0);
  auto add = of_two({"log", "replica", "add"});
  add.push_back(cluster.address(2));
  const Outcome added = run(add);
  ASSERT_EQ(added.status, 0) << added.err;
  EXPECT_EQ(run(cluster.log("append"), "four\n").status, 0);
  EXPECT_EQ(run(cluster.log("verify")).status, 0);
  EXPECT_EQ(run(cluster.log_of(2, "read")).out, "one\ntwo\nthree\nfour\n");
  const Outcome status = run(cluster.log("status", {"--format", "json"}));
  ASSERT_EQ(status.status, 0) << status.err;
  const json report = json::parse(status.out);
  for (const json& replica : report["replicas"]) {
    EXPECT_EQ(replica["generation"], 3);
    EXPECT_EQ(replica["members"].size(), 3u);
  }
}

// One peer of a log is away while it is deleted and made anew on the other, and comes back with the
// old pool, which has seen more epochs. Expect: no record of the log that was deleted.
TEST(Replica, ALogThatWasDeletedIsNotReadInPlaceOfOneMadeAnew) {
  Cluster cluster;
  const std::string& first = cluster.address(0);
  const std::string both = first + "," + cluster.address(1);
  const auto of = [](const std::string& peers, std::vector<std::string> words) {
    words.insert(words.end(), {"--peers", peers, "--pool", "orders"});
    return words;
  };
  for (int times = 0; times < 3; ++times) {
    ASSERT_EQ(run(of(both, {"log", "append"}), "old\n").status, 0);
  }
  cluster.stop(1);
  ASSERT_EQ(run(of(first, {"pool", "delete"})).status, 0);
  ASSERT_EQ(run(of(first, {"pool", "create", "--bytes", "4MiB"})).status, 0);
  ASSERT_EQ(run(of(first, {"log", "append"}), "new\n").status, 0);
  cluster.start(1);
  const std::vector<std::vector<std::string>> reads = {{"log", "read"},
                                                       {"log", "follow", "--idle-exit-ms", "100"}};
  for (const std::vector<std::string>& read : reads) {
    const Outcome refused = run(of(both, read));
    EXPECT_EQ(refused.status, 1) << read[1];
    EXPECT_EQ(refused.out, "") << read[1];
    EXPECT_TRUE(contains(refused.err, "[invalid-argument]")) << refused.err;
    EXPECT_TRUE(contains(refused.err, "holds another log than on " + first)) << refused.err;
    EXPECT_TRUE(contains(refused.err, "perdure pool delete")) << refused.err;
    const Outcome alone = run(of(first, read));
    EXPECT_EQ(alone.status, 0) << alone.err;
    EXPECT_EQ(alone.out, "new\n") << read[1];
  }
}

// An addition that is refused leaves the pool as it was. One that was a replica has a copy that is
// whole. Expect: neither is counted.
TEST(Replica, APoolThatIsNoReplicaIsNotCountedByVerify) {
  Cluster cluster;
  ASSERT_EQ(run(cluster.log("append"), "one\ntwo\n").status, 0);
  const test::TestDirectory pools;
  const auto newcomer = cluster.another(pools.path());
  const std::string address = newcomer->address("control");
  ASSERT_EQ(
      run({"pool", "create", "--peers", address, "--pool", "orders", "--bytes", "4MiB"}).status, 0);
  cluster.stop(2);
  const Outcome added = run({"log", "replica", "add", "--peers", cluster.all(), "--pool", "orders",
                             "--new-quorum", "4", address});
  EXPECT_EQ(added.status, 1) << added.out;
  EXPECT_TRUE(contains(added.err, "nothing was changed")) << added.err;
  cluster.start(2);
  EXPECT_EQ(run(cluster.log("repair")).status, 0);
  EXPECT_EQ(run(cluster.log("verify")).status, 0);
  const Outcome verified =
      run({"log", "verify", "--peers", cluster.all() + "," + address, "--pool", "orders"});
  EXPECT_EQ(verified.status, 4) << verified.out;
  EXPECT_TRUE(contains(verified.out, address + ": different: it holds nothing, and is no replica"))
      << verified.out;
  EXPECT_TRUE(contains(verified.out, "3 of 4 replicas are whole")) << verified.out;
  ASSERT_EQ(run({"log", "replica", "remove", "--peers", cluster.all(), "--pool", "orders",
                 cluster.address(2)})
                .status,
            0);
  const Outcome removed = run(cluster.log("verify"));
  EXPECT_EQ(removed.status, 4) << removed.out;
  EXPECT_TRUE(
      contains(removed.out, cluster.address(2) + ": different: it is no replica of this log"))
      << removed.out;
}

}  // namespace
}  // namespace perdure::cli
