// `perdure bench limits` as a command: what it says while it runs, and of names that it has not;
// how `bench remotelog` ends when it is interrupted, and `bench rpc` when nothing ran.
#include <gtest/gtest.h>

#include <csignal>
#include <regex>
#include <string>
#include <vector>

#include "core/clock.h"
#include "testing/process.h"
#include "testing/temporary_directory.h"
#include "tests/cli/command_process.h"

namespace perdure::cli {
namespace {

const std::string kQuestion = "64 B durable, one in flight";

/// What it says to `--only PART`, which nothing is.
std::string said_to(const std::string& part) {
  const Outcome outcome = run({"bench", "limits", "--only", part});
  EXPECT_EQ(outcome.status, 2) << part << outcome.out;
  EXPECT_LT(outcome.err.size(), 300u) << outcome.err;
  return outcome.err;
}

// Its standard error is no terminal, as in a job.
TEST(Limits, OneQuestionOfManyRoundsSaysNowAndThenHowFarItIs) {
  const test::TestDirectory place;
  CommandProcess limits({"bench", "limits", "--fabric", "shm", "--only", kQuestion, "--rounds",
                         "1000", "--samples", "50", "--output", place.file("result")});
  const Deadline soon = Deadline::after(std::chrono::seconds(100));
  while (limits.running() && limits.err().empty() && !soon.passed()) {
    test::pause_for(std::chrono::milliseconds(50));
  }
  limits.send(SIGINT);
  const Outcome outcome = limits.wait();
  std::smatch match;
  const std::regex line("([0-9]+) %: shm: " + kQuestion + ", round ([0-9]+) of 1000[^\n]*");
  const std::string first = outcome.err.substr(0, outcome.err.find('\n'));
  ASSERT_TRUE(std::regex_match(first, match, line)) << outcome.err;
  EXPECT_GT(std::stoi(match[2]), 1) << "a round has to have been made";
  EXPECT_NEAR(std::stod(match[1]), (std::stod(match[2]) - 1) / 10, 0.51) << first;
}

TEST(Limits, ANameThatNoQuestionHasIsAnsweredWithTheNearest) {
  const std::string slip = said_to("insructions");
  EXPECT_TRUE(contains(slip,
                       "no question has 'insructions' in its name; did you mean 'instructions "
                       "before the post' or 'instructions before the post, one-sided' or 'instr"))
      << slip;
  EXPECT_TRUE(contains(slip, "? `--list` prints all [invalid-argument]")) << slip;
  const std::string of_many = said_to("in flght");
  EXPECT_TRUE(contains(of_many, "'" + kQuestion + "'")) << of_many;
  EXPECT_TRUE(contains(of_many, ", or others? `--list` prints all [invalid-argument]")) << of_many;
  const std::string nothing = said_to("nosuch");
  EXPECT_TRUE(contains(nothing, "in its name; `--list` prints them all")) << nothing;
}

TEST(Limits, AllQuestionsAreListed) {
  const Outcome all = run({"bench", "limits", "--list"});
  EXPECT_EQ(all.status, 0) << all.err;
  for (const std::string& name : {kQuestion, std::string("memory of a client")}) {
    EXPECT_EQ(occurrences("\n" + all.out, "\n" + name + "\n"), 1u) << all.out;
  }
  EXPECT_FALSE(contains(all.out, "64 B durable, one-sided")) << "it is of verbs: " << all.out;
  const Outcome of_verbs = run({"bench", "limits", "--list", "--fabric", "verbs"});
  EXPECT_TRUE(contains(of_verbs.out, "64 B durable, one-sided\n")) << of_verbs.out;
}

TEST(Limits, AllocationsAreCountedWithOneAndWithManyInFlight) {
  const Outcome outcome = run({"bench", "limits", "--fabric", "shm", "--only",
                               "allocations per append", "--samples", "200"});
  if (contains(outcome.out, "a sanitizer's operator new")) GTEST_SKIP() << outcome.out;
  EXPECT_EQ(outcome.status, 0) << outcome.out << outcome.err;
  EXPECT_TRUE(contains(outcome.out, "one or two in flight 0.000, 64 in flight 0.000"))
      << outcome.out;
}

TEST(BenchMirror, AsksTheQuestionsOfMirrorsAlone) {
  CommandProcess bench(
      {"bench", "mirror", "--fabric", "shm", "--rounds", "1000", "--samples", "50"});
  const Deadline soon = Deadline::after(std::chrono::seconds(100));
  while (bench.running() && bench.err().empty() && !soon.passed()) {
    test::pause_for(std::chrono::milliseconds(50));
  }
  bench.send(SIGINT);
  const Outcome outcome = bench.wait();
  EXPECT_TRUE(contains(outcome.err, " %: shm: mirror: 64 B durable, round ")) << outcome.err;
  EXPECT_FALSE(contains(outcome.err, kQuestion)) << outcome.err;
  EXPECT_EQ(run({"bench", "mirror", "--fabric", "verbs"}).status, 2);
}

TEST(BenchRpc, AFigureOfWhichNothingRanIsNoSuccess) {
  const Outcome outcome = run({"bench", "rpc", "14", "--fabric", "emu", "--designs", "fasst"});
  EXPECT_EQ(outcome.status, 1) << outcome.out;
  EXPECT_TRUE(contains(outcome.err, "FaSST carries")) << outcome.err;
  EXPECT_FALSE(contains(outcome.out, "measured")) << outcome.out;
}

TEST(BenchRpc, GraphsAreReadFromFilesAndAFileThatIsNoneIsNamed) {
  const test::TestDirectory place;
  const std::string ring = place.file("ring.txt");
  write_file(ring, "# a ring\n1 2\n2 3\n3 1\n");
  const std::vector<std::string> command{"bench", "rpc",      "10", "--fabric", "emu",  "--designs",
                                         "farm",  "--rounds", "1",  "--format", "json", "--graphs"};
  const auto with = [&](const std::string& graphs) {
    std::vector<std::string> words = command;
    words.push_back(graphs);
    return run(words);
  };
  const Outcome outcome = with(ring + "," + ring + "2");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_TRUE(contains(outcome.err, ring + "2: ")) << outcome.err;
  const Outcome good = with(ring);
  EXPECT_EQ(good.status, 0) << good.err;
  EXPECT_TRUE(contains(good.out, ring)) << good.out;
  write_file(ring, "1 2\n2 three\n");
  EXPECT_TRUE(contains(with(ring).err, ring + ", line 2: ")) << with(ring).err;
  EXPECT_TRUE(contains(with(",").err, "names no file"));
  const Outcome other = run({"bench", "rpc", "8", "--graphs", ring});
  EXPECT_EQ(other.status, 1);
  EXPECT_TRUE(contains(other.err, "figure 10")) << other.err;
}

TEST(BenchFiles, LeavesNoFileWhenItIsInterrupted) {
  const test::TestDirectory place;
  CommandProcess bench({"bench", "files", place.path(), "--rounds", "1000", "--samples", "1000000",
                        "--file-mib", "8"});
  const Deadline soon = Deadline::after(std::chrono::seconds(100));
  while (bench.running() && place.names().empty() && !soon.passed()) {
    test::pause_for(std::chrono::milliseconds(5));
  }
  bench.send(SIGINT);
  EXPECT_EQ(bench.wait().status, 1);
  EXPECT_TRUE(place.names().empty()) << place.names().front();
}

// Its standard error says something once it runs.
TEST(Remotelog, ARunThatIsInterruptedIsNoDamagedLog) {
  const test::TestDirectory place;
  CommandProcess bench({"bench", "remotelog", "--fabric", "emu", "--methods", "paper", "--config",
                        "wsp,write,singleton", "--records", "1000000000", "--output",
                        place.file("result")});
  const Deadline soon = Deadline::after(std::chrono::seconds(100));
  while (bench.running() && bench.err().empty() && !soon.passed()) {
    test::pause_for(std::chrono::milliseconds(50));
  }
  bench.send(SIGINT);
  const Outcome outcome = bench.wait();
  EXPECT_EQ(outcome.status, 1) << outcome.err;
  EXPECT_FALSE(contains(outcome.out + outcome.err, "FAILED")) << outcome.out << outcome.err;
}

}  // namespace
}  // namespace perdure::cli
