// The command while peers die, writers compete, and input makes no sense.
#include <gtest/gtest.h>

#include <csignal>
#include <cstring>
#include <regex>
#include <span>

#include "core/crc32c.h"
#include "core/json.h"
#include "tests/cli/cluster.h"

namespace perdure::cli {
namespace {

using nlohmann::json;

TEST(Failures, ARecordThatIsTooLargeStopsThereAndSaysWhere) {
  const Cluster cluster;
  const std::string text = "one\ntwo\n" + std::string(5000, 'x') + "\nfour\n";
  const Outcome outcome =
      run(cluster.log("append", {"--record-bytes-max", "4096", "--format", "json"}), text);
  EXPECT_EQ(outcome.status, 3);
  EXPECT_TRUE(contains(outcome.err, "line 3 of standard input")) << outcome.err;
  const json summary = json::parse(outcome.out);
  EXPECT_EQ(summary["committed"], 2);
  EXPECT_EQ(summary["not_appended_from"]["number"], 3);
  EXPECT_FALSE(summary.contains("not_committed"));
  EXPECT_EQ(run(cluster.log("read")).out, "one\ntwo\n");
}

TEST(Failures, ARecordBeyondWhatTheRingTakesIsRefused) {
  const Cluster cluster("256KiB");  // a record takes at most a quarter of the ring
  const Outcome outcome = run(cluster.log("append"), "small\n" + std::string(100'000, 'x') + "\n");
  EXPECT_EQ(outcome.status, 3);
  EXPECT_TRUE(contains(outcome.out, "NOT appended: line 2")) << outcome.out;
  EXPECT_EQ(run(cluster.log("read")).out, "small\n");
}

TEST(Failures, AFrameThatIsCutOffIsNotARecord) {
  const Cluster cluster;
  using namespace std::string_literals;
  //                                  input                     what is wrong with record 2
  const std::pair<std::string, std::string> cases[] = {
      {"\1\0\0\0a\5\0\0\0bcd"s, "cut off"},
      {"\1\0\0\0a\5\0"s, "cut off"},
      {"\1\0\0\0a\0\0\0\0"s, "says that it has 0 bytes"},
      {"\1\0\0\0a\xff\xff\xff\xff"s, "says that it has 4294967295 bytes"},
  };
  std::string expected;
  for (const auto& [input, wrong] : cases) {
    const Outcome outcome = run(cluster.log("append", {"--framed"}), input);
    EXPECT_EQ(outcome.status, 3);
    EXPECT_TRUE(contains(outcome.err, "record 2 of standard input")) << outcome.err;
    EXPECT_TRUE(contains(outcome.err, wrong)) << outcome.err;
    expected += "a\n";
    EXPECT_EQ(run(cluster.log("read")).out, expected);
  }
}

TEST(Failures, APeerThatIsNamedTwiceIsNoSecondReplica) {
  const Outcome outcome =
      run({"log", "append", "--peers", "127.0.0.1:1,127.0.0.1:1", "--pool", "p"}, "a\n");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_TRUE(contains(outcome.err, "named twice")) << outcome.err;
}

TEST(Failures, WithoutItsQuorumTheWriterSaysWhichRecordsAreNotCommitted) {
  Cluster cluster;
  CommandProcess writer(
      cluster.log("append", {"--replica-timeout-ms", "20000", "--format", "json"}));
  std::string first;
  for (int index = 0; index < 10; ++index) first += "line " + std::to_string(index) + "\n";
  writer.write(first);
  cluster.await_content(0, "line 0line 1line 2line 3line 4line 5line 6line 7line 8line 9");
  cluster.kill(1);
  cluster.kill(2);
  for (int index = 10; index < 20; ++index) writer.write("line " + std::to_string(index) + "\n");
  writer.close_input();
  const Outcome outcome = writer.wait();
  EXPECT_EQ(outcome.status, 3);
  EXPECT_TRUE(contains(outcome.err, "[quorum-lost]")) << outcome.err;
  const json summary = json::parse(outcome.out);
  EXPECT_EQ(summary["committed"], 10);
  // Every line is accounted for: committed, in flight with an unknown outcome, or not appended.
  std::size_t accounted = summary["committed"];
  if (summary.contains("not_committed")) {
    const json& open = summary["not_committed"];
    EXPECT_EQ(open["first_index"], 10);
    EXPECT_EQ(open["first_input"]["number"], 11);
    EXPECT_EQ(open["outcome"], "unknown");
    accounted += open["count"].get<std::size_t>();
  }
  if (summary.contains("not_appended_from")) {
    EXPECT_EQ(summary["not_appended_from"]["number"], accounted + 1);
  } else if (summary.contains("not_read_after")) {
    EXPECT_EQ(summary["not_read_after"]["number"], accounted);
  } else {
    EXPECT_EQ(accounted, 20u);
  }
}

TEST(Failures, OnePeerMayDieAndIsRepairedLater) {
  Cluster cluster;
  CommandProcess writer(cluster.log("append", {"--replica-timeout-ms", "20000", "--keep-newline"}));
  std::string text;
  for (int index = 0; index < 100; ++index) text += "before " + std::to_string(index) + "\n";
  writer.write(text);
  cluster.await_content(1, text);
  cluster.kill(1);
  for (int index = 0; index < 100; ++index) {
    const std::string line = "after " + std::to_string(index) + "\n";
    writer.write(line);
    text += line;
  }
  writer.close_input();
  const Outcome appended = writer.wait();
  EXPECT_EQ(appended.status, 0) << appended.err;
  EXPECT_TRUE(contains(appended.out, "committed 200 of them")) << appended.out;
  EXPECT_TRUE(contains(appended.out, cluster.address(1) + ": down")) << appended.out;

  EXPECT_EQ(run(cluster.log("verify")).status, 1) << "a replica can not be read";
  cluster.start(1);
  const Outcome behind = run(cluster.log("verify"));
  EXPECT_EQ(behind.status, 4);
  EXPECT_TRUE(contains(behind.out, "100 records behind")) << behind.out;
  const Outcome best = run(cluster.log("read", {"--raw"}));
  EXPECT_EQ(best.out, text) << "of several replicas, the one that holds most is read";

  const Outcome repaired = run(cluster.log("repair"));
  EXPECT_EQ(repaired.status, 0) << repaired.err;
  EXPECT_TRUE(contains(repaired.out, "repaired " + cluster.address(1))) << repaired.out;
  EXPECT_EQ(run(cluster.log("verify")).status, 0);
  for (std::size_t index = 0; index < kPeers; ++index) cluster.await_content(index, text);
}

TEST(Failures, AutoRepairBringsAPeerBackWhileRecordsGoOn) {
  Cluster cluster;
  CommandProcess writer(cluster.log(
      "append", {"--replica-timeout-ms", "20000", "--keep-newline", "--auto-repair", "0.1"}));
  writer.write("one\n");
  cluster.await_content(2, "one\n");
  cluster.kill(2);
  writer.write("two\n");
  cluster.await_content(0, "one\ntwo\n");
  cluster.start(2);
  cluster.await_content(2, "one\ntwo\n");
  writer.write("three\n");
  writer.close_input();
  const Outcome outcome = writer.wait();
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_TRUE(contains(outcome.err, cluster.address(2) + " is back")) << outcome.err;
  for (std::size_t index = 0; index < kPeers; ++index) {
    cluster.await_content(index, "one\ntwo\nthree\n");
  }
}

TEST(Failures, AutoRepairWaitsForALostQuorum) {
  Cluster cluster;
  CommandProcess writer(cluster.log(
      "append", {"--replica-timeout-ms", "20000", "--keep-newline", "--auto-repair", "0.1"}));
  writer.write("one\n");
  for (std::size_t index = 0; index < kPeers; ++index) cluster.await_content(index, "one\n");
  cluster.kill(1);
  cluster.kill(2);
  writer.write("two\n");
  cluster.start(1);
  cluster.await_content(1, "one\ntwo\n");
  writer.close_input();
  const Outcome outcome = writer.wait();
  EXPECT_EQ(outcome.status, 0) << outcome.err;
}

TEST(Failures, AWriterThatIsKilledLosesNothingThatWasCommitted) {
  Cluster cluster;
  CommandProcess writer(cluster.log("append", {"--keep-newline"}));
  writer.write("one\ntwo\n");
  for (std::size_t index = 0; index < kPeers; ++index) cluster.await_content(index, "one\ntwo\n");
  writer.send(SIGKILL);
  // Expect: the next writer need not take over, since the session died with the connection.
  const Deadline deadline = Deadline::after(std::chrono::seconds{60});
  Outcome next;
  do {
    next = run(cluster.log("append", {"--keep-newline"}), "three\n");
  } while (next.status == 1 && contains(next.err, "[busy]") && !deadline.passed());
  EXPECT_EQ(next.status, 0) << next.err;
  EXPECT_EQ(run(cluster.log("read", {"--raw"})).out, "one\ntwo\nthree\n");
  EXPECT_EQ(run(cluster.log("verify")).status, 0);
}

TEST(Failures, ASecondWriterIsRefusedUnlessItTakesOver) {
  Cluster cluster;
  CommandProcess first(
      cluster.log("append", {"--keep-newline", "--format", "json", "--writer-name", "the-first"}));
  first.write("one\n");
  cluster.await_content(0, "one\n");
  const Outcome refused = run(cluster.log("append"), "two\n");
  EXPECT_EQ(refused.status, 1);
  EXPECT_TRUE(contains(refused.err, "[busy]")) << refused.err;
  EXPECT_TRUE(contains(refused.err, "the-first")) << refused.err;
  const Outcome taken = run(cluster.log("append", {"--take-over", "--keep-newline"}), "two\n");
  EXPECT_EQ(taken.status, 0) << taken.err;
  first.write("never\n");
  first.close_input();
  const Outcome fenced = first.wait();
  EXPECT_EQ(fenced.status, 3) << fenced.out;
  EXPECT_TRUE(contains(fenced.err, "[fenced]")) << fenced.err;
  EXPECT_EQ(json::parse(fenced.out)["committed"], 1);
  EXPECT_EQ(run(cluster.log("read", {"--raw"})).out, "one\ntwo\n");
}

TEST(Failures, ASignalEndsTheReadingAndWhatWasReadIsCommitted) {
  const Cluster cluster;
  CommandProcess writer(cluster.log("append", {"--keep-newline"}));
  writer.write("one\ntwo\n");
  cluster.await_content(0, "one\ntwo\n");
  writer.send(SIGTERM);
  const Outcome outcome = writer.wait();
  EXPECT_EQ(outcome.status, 1);
  EXPECT_TRUE(contains(outcome.err, "interrupted after line 2")) << outcome.err;
  EXPECT_TRUE(contains(outcome.out, "committed 2 of them")) << outcome.out;
}

TEST(Failures, WhatIsNotThereIsNamed) {
  Cluster cluster;
  const Outcome no_log = run(cluster.log("read"));
  EXPECT_EQ(no_log.status, 1);
  EXPECT_TRUE(contains(no_log.err, "[not-found]")) << no_log.err;
  const Outcome no_pool =
      run({"log", "append", "--peers", cluster.all(), "--pool", "nothing"}, "x\n");
  EXPECT_EQ(no_pool.status, 1);
  EXPECT_TRUE(contains(no_pool.err, "[not-found]")) << no_pool.err;
  EXPECT_TRUE(contains(no_pool.err, "nothing")) << no_pool.err;
  const Outcome no_file = run(cluster.log("append", {"/does/not/exist"}));
  EXPECT_EQ(no_file.status, 1);
  EXPECT_TRUE(contains(no_file.err, "/does/not/exist")) << no_file.err;
  cluster.kill(0);
  const Outcome no_peer = run(cluster.log_of(0, "read"));
  EXPECT_EQ(no_peer.status, 1);
  EXPECT_TRUE(contains(no_peer.err, "[disconnected]")) << no_peer.err;
  EXPECT_TRUE(contains(no_peer.err, cluster.address(0))) << no_peer.err;
}

// What an older version wrote. Expect: named as that, by whoever reads or writes, and where.
TEST(Failures, ALogOfAnotherFormatVersionIsNeitherAwayNorDamaged) {
  Cluster cluster;
  ASSERT_EQ(run(cluster.log("append"), "one\n").status, 0);
  for (std::size_t index = 0; index < kPeers; ++index) {
    cluster.stop(index);
    std::string bytes = read_file(cluster.pool_file(index));
    const std::size_t at = bytes.find("PERDLOG\x01");
    ASSERT_NE(at, std::string::npos);
    bytes[at + 8] = 2;
    const auto anchor = std::as_bytes(std::span(bytes)).subspan(at, 60);
    const std::uint32_t crc = crc32c(anchor);
    std::memcpy(bytes.data() + at + 60, &crc, sizeof crc);
    write_file(cluster.pool_file(index), bytes);
    cluster.start(index);
  }
  for (const std::string what : {"read", "append"}) {
    const Outcome refused = run(cluster.log(what), "two\n");
    EXPECT_EQ(refused.status, 1) << refused.out;
    EXPECT_TRUE(contains(refused.err, "[version-mismatch]")) << refused.err;
    EXPECT_TRUE(contains(refused.err, "has format 2")) << refused.err;
    EXPECT_TRUE(contains(refused.err, cluster.address(0))) << refused.err;
  }
  const Outcome verified = run(cluster.log("verify"));
  EXPECT_EQ(verified.status, 4) << verified.out;
  EXPECT_TRUE(contains(verified.out, ": unclear: the log has format 2")) << verified.out;
}

TEST(DaemonLog, NamesPoolSessionAndWriterOfWhoIsGone) {
  Cluster cluster;
  CommandProcess writer(cluster.log("append", {"--keep-newline", "--writer-name", "the-writer"}));
  writer.write("one\n");
  cluster.await_content(0, "one\n");  // whose readers come and go
  writer.send(SIGKILL);
  (void)writer.wait();
  const std::string said = cluster.stop(0);
  const std::regex gone(
      "pool 'orders': session [0-9a-f]{16} of writer 'the-writer' of epoch 1 ended: "
      "the requester's connection ended \\(.+\\)");
  EXPECT_TRUE(std::regex_search(said, gone)) << said;
  const std::regex reader(
      "pool 'orders': session [0-9a-f]{16} of a reader '[^ ']+:[0-9]+' ended: ");
  EXPECT_TRUE(std::regex_search(said, reader)) << said;
  // And no line of the fabric, which knows neither pool nor session.
  EXPECT_FALSE(contains(said, "connection over ")) << said;
  EXPECT_FALSE(contains(said, "connection with ")) << said;
}

}  // namespace
}  // namespace perdure::cli
