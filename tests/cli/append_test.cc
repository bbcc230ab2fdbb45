// `perdure log append`, `read` and `follow` while everything is well.
#include <gtest/gtest.h>

#include <csignal>
#include <cstdint>
#include <memory>

#include "core/json.h"
#include "testing/temporary_directory.h"
#include "tests/cli/cluster.h"
#include "tests/server/daemon_process.h"

namespace perdure::cli {
namespace {

using nlohmann::json;

std::string numbered_lines(std::size_t first, std::size_t count) {
  std::string text;
  for (std::size_t index = first; index < first + count; ++index) {
    text += "record " + std::to_string(index) + " " + std::string(index % 97, 'x') + "\n";
  }
  return text;
}

std::string frame(std::string_view payload) {
  const auto length = static_cast<std::uint32_t>(payload.size());
  std::string framed;
  for (int shift = 0; shift < 32; shift += 8) framed += static_cast<char>(length >> shift & 0xff);
  return framed.append(payload);
}

TEST(Append, AnyTextComesBackByteForByteFromEveryReplica) {
  const Cluster cluster;
  // Empty lines, a carriage return, bytes that are no UTF-8, and no newline at the end.
  const std::string text = "first\n\n\n" + numbered_lines(0, 500) + "\r\n\xff\xfe\n" + "last";
  const Outcome appended = run(cluster.log("append", {"--quorum", "2", "--keep-newline"}), text);
  EXPECT_EQ(appended.status, 0) << appended.err;
  EXPECT_NE(appended.out.find("committed 506 of them, on 2 of 3 replicas"), std::string::npos)
      << appended.out;
  for (std::size_t index = 0; index < kPeers; ++index) cluster.await_content(index, text);
}

TEST(Append, LinesLoseTheirNewlineAndEmptyOnesAreCounted) {
  const Cluster cluster;
  const Outcome appended = run(cluster.log("append", {"--format", "json"}), "a\n\nbc\n\n\nd");
  ASSERT_EQ(appended.status, 0) << appended.err;
  const json summary = json::parse(appended.out);
  EXPECT_EQ(summary["appended"], 3);
  EXPECT_EQ(summary["committed"], 3);
  EXPECT_EQ(summary["empty_lines"], 3);
  EXPECT_EQ(summary["payload_bytes"], 4);
  EXPECT_EQ(summary["label"], "measured");
  ASSERT_EQ(summary["replicas"].size(), 3u);
  for (const json& replica : summary["replicas"]) {
    EXPECT_TRUE(replica["up"]);
    EXPECT_NE(replica["small_method"], "");
    EXPECT_NE(replica["small_reason"], "") << "a method without the planner's reason";
  }
  EXPECT_EQ(summary["latency_committed"]["count"], 3);
  EXPECT_GE(summary["latency_committed"]["p50_ns"], summary["latency_durable"]["p50_ns"]);
  const Outcome read = run(cluster.log("read", {"--index"}));
  EXPECT_EQ(read.out, "0\ta\n1\tbc\n2\td\n") << read.err;
}

// Log::wait refuses durable and committed there.
TEST(Append, NothingIsCalledDurableOrCommittedThatIsOnlyVisible) {
  const test::TestDirectory place;
  const std::unique_ptr<server::DaemonProcess> peer(
      server::DaemonProcess::serving(place.path(), {"--declare-domain", "none"}));
  const std::string address = peer->address("control");
  ASSERT_EQ(run({"pool", "create", "--peers", address, "--pool", "p", "--bytes", "1MiB"}).status,
            0);
  std::vector<std::string> words{"log",    "append", "--peers", address,
                                 "--pool", "p",      "--level", "visible"};
  const Outcome text = run(words, "one\ntwo\n");
  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_TRUE(contains(text.out, "\nvisible 2 of them, on 1 of 1 replicas\n")) << text.out;
  EXPECT_TRUE(contains(text.out, "\n  visible   ")) << text.out;
  EXPECT_TRUE(contains(text.out, "\n  visible on quorum  ")) << text.out;
  for (const std::string wrong : {"durable", "committed"}) {
    EXPECT_FALSE(contains(text.out, wrong)) << text.out;
  }
  words.insert(words.end(), {"--format", "json"});
  const Outcome outcome = run(words, "three\n");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const json summary = json::parse(outcome.out);
  EXPECT_EQ(summary["level"], "visible");
  EXPECT_EQ(summary["visible"], 1);
  EXPECT_EQ(summary["latency_visible"]["count"], 1);
  EXPECT_EQ(summary["latency_visible_on_quorum"]["count"], 1);
  EXPECT_EQ(summary["log"]["visible"], summary["log"]["tail"]);
  EXPECT_EQ(summary["replicas"][0]["visible_below"], summary["log"]["tail"]);
  for (const std::string wrong : {"durable", "committed"}) {
    EXPECT_FALSE(contains(outcome.out, wrong)) << outcome.out;
  }
}

TEST(Append, FramedRecordsMayHoldAnything) {
  const Cluster cluster("16MiB");
  std::string all_bytes;
  for (int value = 0; value < 256; ++value) all_bytes += static_cast<char>(value);
  const std::string input = frame(all_bytes) + frame("\n") + frame(std::string(1, '\0')) +
                            frame(std::string(1'000'000, '\n')) + frame(all_bytes);
  const Outcome appended = run(cluster.log("append", {"--framed"}), input);
  ASSERT_EQ(appended.status, 0) << appended.err;
  for (std::size_t index = 0; index < kPeers; ++index) {
    EXPECT_EQ(run(cluster.log_of(index, "read", {"--framed"})).out, input);
  }
  const Outcome lines = run(cluster.log("read", {"--format", "json", "--max", "2"}));
  const std::size_t newline = lines.out.find('\n');
  const json first = json::parse(lines.out.substr(0, newline));
  EXPECT_EQ(first["bytes"], 256);
  EXPECT_EQ(first["payload_base64"].get<std::string>().substr(0, 8), "AAECAwQF");
  EXPECT_EQ(json::parse(lines.out.substr(newline + 1))["payload"], "\n");
}

TEST(Append, FilesAreReadInOrderAndALaterRunGoesOn) {
  const Cluster cluster;
  const test::TestDirectory directory;
  write_file(directory.path() + "/one", "1\n2\n");
  write_file(directory.path() + "/two", "3");
  const auto files = {directory.path() + "/one", std::string("-"), directory.path() + "/two"};
  const Outcome first = run(cluster.log("append", files), "from standard input\n");
  ASSERT_EQ(first.status, 0) << first.err;
  const Outcome second = run(cluster.log("append", {"--shape", "planned"}), "4\n");
  ASSERT_EQ(second.status, 0) << second.err;
  EXPECT_NE(second.out.find("epoch 2"), std::string::npos) << second.out;
  EXPECT_EQ(run(cluster.log("read")).out, "1\n2\nfrom standard input\n3\n4\n");
}

TEST(Append, BothShapesAndAllPrimariesAndOneInFlightDoTheSame) {
  const std::string text = numbered_lines(0, 50);
  for (const std::string shape : {"singleton", "compound"}) {
    for (const std::string primary : {"write", "send"}) {
      const Cluster cluster;
      const Outcome appended = run(
          cluster.log("append", {"--shape", shape, "--primary", primary, "--window", "1"}), text);
      ASSERT_EQ(appended.status, 0) << shape << ' ' << primary << ": " << appended.err;
      EXPECT_NE(appended.out.find(shape), std::string::npos);
      EXPECT_EQ(run(cluster.log("read")).out, text) << shape << ' ' << primary;
    }
  }
}

TEST(Append, MoreThanARingGoesInWhenTheLogIsTrimmed) {
  const Cluster cluster("1MiB");
  const std::string text = numbered_lines(0, 20'000);  // about 1.9 MiB with headers
  const Outcome full = run(cluster.log("append", {"--format", "json"}), text);
  EXPECT_EQ(full.status, 3);
  EXPECT_NE(full.err.find("log-full"), std::string::npos) << full.err;
  const json summary = json::parse(full.out);
  const std::size_t committed = summary["committed"];
  EXPECT_EQ(summary["appended"], committed) << "what was appended before must be committed";
  EXPECT_EQ(summary["not_appended_from"]["number"], committed + 1);
  const Outcome trimmed = run(cluster.log("trim", {"--keep-records", "0"}));
  ASSERT_EQ(trimmed.status, 0) << trimmed.err;
  const Outcome again = run(cluster.log("append"), numbered_lines(committed, 3000));
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_EQ(run(cluster.log("read")).out, numbered_lines(committed, 3000));
}

TEST(Follow, PrintsWhatIsAppendedMeanwhile) {
  const Cluster cluster;
  ASSERT_EQ(run(cluster.log("append"), numbered_lines(0, 5)).status, 0);
  CommandProcess follower(cluster.log("follow", {"--max", "300"}));
  ASSERT_EQ(run(cluster.log("append"), numbered_lines(5, 295)).status, 0);
  const Outcome followed = follower.wait();
  EXPECT_EQ(followed.status, 0) << followed.err;
  EXPECT_EQ(followed.out, numbered_lines(0, 300));
}

TEST(Follow, EndsOnASignalAndWhenNothingComes) {
  const Cluster cluster;
  ASSERT_EQ(run(cluster.log("append"), "a\nb\n").status, 0);
  EXPECT_EQ(run(cluster.log("follow", {"--idle-exit-ms", "300"})).out, "a\nb\n");
  CommandProcess follower(cluster.log("follow", {}));
  const Deadline deadline = Deadline::after(std::chrono::seconds{60});
  while (follower.out() != "a\nb\n" && !deadline.passed()) {
  }
  follower.send(SIGINT);
  const Outcome followed = follower.wait();
  EXPECT_EQ(followed.status, 0) << followed.err;
  EXPECT_EQ(followed.out, "a\nb\n");
}

TEST(Read, BeginsAndEndsWhereItIsAsked) {
  const Cluster cluster;
  ASSERT_EQ(run(cluster.log("append"), "a\nb\nc\nd\n").status, 0);
  const Outcome with_lsn = run(cluster.log("read", {"--lsn", "--from-index", "2", "--max", "1"}));
  const std::string lsn = with_lsn.out.substr(0, with_lsn.out.find('\t'));
  EXPECT_EQ(with_lsn.out, lsn + "\tc\n");
  EXPECT_EQ(run(cluster.log("read", {"--from", lsn})).out, "c\nd\n");
  const Outcome full = CommandProcess(cluster.log("read"), "/dev/null", "/dev/full").wait();
  EXPECT_EQ(full.status, 1) << "output that could not be written must not look like success";
}

TEST(Examples, AppendARecordEach) {
  const Cluster cluster;
  for (const std::string program : {EXAMPLE_CC, EXAMPLE_C}) {
    const Outcome outcome =
        CommandProcess({"orders", cluster.address(0), cluster.address(1), cluster.address(2)},
                       "/dev/null", "", program)
            .wait();
    EXPECT_EQ(outcome.status, 0) << outcome.err;
  }
  EXPECT_EQ(run(cluster.log("read")).out, "a record that survives\na record that survives\n");
}

}  // namespace
}  // namespace perdure::cli
