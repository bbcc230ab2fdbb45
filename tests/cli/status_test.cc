// What an operator sees of logs: `perdure status`, the numbers of /metrics, and the daemon's log;
// and the client's profile, so that it need not be said each time of which.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "core/json.h"
#include "testing/temporary_directory.h"
#include "tests/cli/cluster.h"
#include "tests/server/daemon_process.h"

namespace perdure::cli {
namespace {

using nlohmann::json;

Outcome status_of(const Cluster& cluster, std::vector<std::string> more = {}) {
  more.insert(more.begin(), {"status", "--peers", cluster.all()});
  return run(std::move(more));
}

/// The replicas of the first pool.
json replicas_of(const Cluster& cluster) {
  const json document = json::parse(status_of(cluster, {"--format", "json"}).out);
  return document["pools"][0]["replicas"];
}

TEST(Status, IsOneTableWithALineForEachReplica) {
  const Cluster cluster;
  ASSERT_EQ(run({"pool", "create", "--peers", cluster.address(0), "--pool", "scratch", "--bytes",
                 "8KiB", "--small"})
                .status,
            0);
  const Outcome empty = status_of(cluster);
  EXPECT_EQ(empty.status, 0) << "pools without a log are for something else: " << empty.err;
  EXPECT_EQ(occurrences(empty.out, "no log"), 4u) << empty.out;

  ASSERT_EQ(run(cluster.log("append"), std::string(3000, 'x') + "\n").status, 0);
  const Outcome full = status_of(cluster);
  EXPECT_EQ(full.status, 0) << full.out << full.err;
  EXPECT_EQ(occurrences(full.out, " whole "), 3u + 1) << full.out;
  EXPECT_TRUE(contains(full.out, "orders: quorum 2 of 3 replicas, 3 of them whole here"));
  const json lines = replicas_of(cluster);
  ASSERT_EQ(lines.size(), 3u);
  for (const json& each : lines) {
    EXPECT_EQ(each["state"], "whole");
    EXPECT_EQ(each["epoch"], 1);
    EXPECT_EQ(each["head"], 64);
    EXPECT_EQ(each["used_bytes"], 3032);
    EXPECT_EQ(each["behind_bytes"], 0);
    EXPECT_EQ(each["ring_bytes"], (4 << 20) - 12288);
    EXPECT_EQ(each["writer"], "");
    EXPECT_TRUE(contains(each["method"].get<std::string>(), "send")) << each;
  }
  EXPECT_EQ(occurrences(status_of(cluster, {"--pool", "orders"}).out, "scratch"), 0u);
}

// What is planned is not what a writer uses, and is not called so.
TEST(Status, WhatIsPlannedForDurableIsNotWhatALogThatIsOnlyVisibleUses) {
  const test::TestDirectory place;
  const std::unique_ptr<server::DaemonProcess> peer(
      server::DaemonProcess::serving(place.path(), {"--declare-domain", "none"}));
  const std::string address = peer->address("control");
  ASSERT_EQ(run({"pool", "create", "--peers", address, "--pool", "p", "--bytes", "1MiB"}).status,
            0);
  const Outcome appended =
      run({"log", "append", "--peers", address, "--pool", "p", "--level", "visible"}, "one\n");
  ASSERT_EQ(appended.status, 0) << appended.err;
  const Outcome shown = run({"status", "--peers", address});
  EXPECT_EQ(shown.status, 0) << shown.err;
  EXPECT_TRUE(contains(shown.out, "planned for durable\n")) << shown.out;
  EXPECT_TRUE(contains(shown.out, "  none is right\n")) << shown.out;
  EXPECT_FALSE(contains(shown.out, "method")) << shown.out;
  const Outcome document = expect_document({"status", "--peers", address}, "status.schema.json");
  EXPECT_EQ(json::parse(document.out)["pools"][0]["replicas"][0]["method"], "none is right");
}

TEST(Status, ShowsWhoWritesAndWhoLagsAndWhoIsMissing) {
  Cluster cluster;
  ASSERT_EQ(run(cluster.log("append", {"--keep-newline"}), "one\n").status, 0);
  cluster.kill(1);
  {
    CommandProcess writer(cluster.log("append", {"--keep-newline", "--writer-name", "the-writer"}));
    writer.write(std::string(5000, 'x') + "\n");
    cluster.await_content(0, "one\n" + std::string(5000, 'x') + "\n");
    const Outcome during = status_of(cluster);
    EXPECT_EQ(during.status, 1) << "a peer does not answer: " << during.out;
    EXPECT_EQ(occurrences(during.out, "the-writer"), 2u) << during.out;
    EXPECT_TRUE(contains(during.out, cluster.address(1) + "  unreachable")) << during.out;
    writer.close_input();
    EXPECT_EQ(writer.wait().status, 0);
  }
  cluster.start(1);
  const json replicas = replicas_of(cluster);
  ASSERT_EQ(replicas.size(), 3u);
  EXPECT_EQ(replicas[0]["behind_bytes"], 0);
  EXPECT_GE(replicas[1]["behind_bytes"], 5000);
  EXPECT_LT(replicas[1]["epoch"], replicas[0]["epoch"]);
  EXPECT_EQ(replicas[2]["behind_bytes"], 0);
  // Not all of its peers were named: the others are members all the same.
  const Outcome two = run({"status", "--peers", cluster.address(0) + "," + cluster.address(2)});
  EXPECT_EQ(two.status, 0) << two.err;
  EXPECT_TRUE(contains(two.out, cluster.address(1) + "  not asked")) << two.out;
  EXPECT_TRUE(contains(two.out, "2 of them whole here")) << two.out;

  // A peer that does not answer may be the member that nobody is: no replica more than there are.
  const std::string moved = cluster.address(0) + "," + cluster.address(2) + ",127.0.0.1:1";
  for (const bool named : {false, true}) {
    std::vector<std::string> words{"status", "--peers", moved};
    if (named) words.insert(words.end(), {"--pool", "orders"});
    const Outcome three = run(words);
    EXPECT_EQ(three.status, 1) << three.err;
    EXPECT_TRUE(contains(three.out, "127.0.0.1:1  ")) << three.out;
    EXPECT_FALSE(contains(three.out, "not asked")) << three.out;
    EXPECT_TRUE(contains(three.out, cluster.address(1) + ", as the log has it, may be"))
        << three.out;
    words.insert(words.end(), {"--format", "json"});
    const json document = json::parse(run(words).out);
    EXPECT_EQ(document["pools"][0]["replicas"].size(), 3u) << document;
    EXPECT_EQ(document["pools"][0]["unclaimed"], json::array({cluster.address(1)}));
  }
  // With two of them, one is a stranger, which counts only where the pool was named.
  const Outcome strangers = run({"status", "--peers", moved + ",127.0.0.2:1"});
  EXPECT_FALSE(contains(strangers.out, "127.0.0.2:1")) << strangers.out;

  ASSERT_EQ(run(cluster.log("repair")).status, 0);
  const json equal = replicas_of(cluster);
  for (const json& each : equal) EXPECT_EQ(each["behind_bytes"], 0);
}

}  // namespace
}  // namespace perdure::cli
