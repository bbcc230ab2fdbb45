// `perdure sim record` on programs of Debian's PMDK, of which it is known what they make durable.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "testing/temporary_directory.h"
#include "tests/cli/command_process.h"

namespace perdure {
namespace {

using cli::Outcome;
using nlohmann::json;

constexpr const char* kSchema = "record-simulation.schema.json";

/// What a trace holds, counted from its text.
struct Events {
  std::uint64_t writes = 0;
  std::uint64_t barriers = 0;
  std::uint64_t fences = 0;
  std::uint64_t epochs = 0;  // barriers and fences behind a write
};

std::map<std::string, Events> events_of(const std::string& trace) {
  std::map<std::string, Events> threads;
  std::map<std::string, bool> wrote;
  std::istringstream lines(cli::read_file(trace));
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("#")) continue;
    const std::string thread = line.substr(0, line.find(' '));
    const char kind = line[thread.size() + 1];
    Events& events = threads[thread];
    if (kind == 'W') {
      ++events.writes;
      wrote[thread] = true;
      continue;
    }
    ++(kind == 'B' ? events.barriers : events.fences);
    events.epochs += wrote[thread] ? 1 : 0;
    wrote[thread] = false;
  }
  return threads;
}

class Record : public testing::Test {
 protected:
  Record() : place_("/dev/shm") {}

  std::vector<std::string> command(std::vector<std::string> program) const {
    std::vector<std::string> all{"sim", "record", "--scratch", place_.path(), "--output", trace()};
    all.emplace_back("--");
    all.insert(all.end(), program.begin(), program.end());
    return all;
  }
  /// The document, of a program that ends with `status` of the command.
  json record(std::vector<std::string> program, int status = 0) const {
    auto arguments = command(std::move(program));
    // expect_document adds its option at the end, where it would be the program's.
    arguments.insert(arguments.begin() + 2, {"--format", "json"});
    const Outcome outcome = cli::run(arguments);
    EXPECT_EQ(outcome.status, status) << outcome.err;
    const json document = json::parse(outcome.out, nullptr, false);
    EXPECT_FALSE(document.is_discarded()) << outcome.out << outcome.err;
    return document;
  }
  json of_client(const std::string& how, int count, int threads = 1) {
    std::filesystem::remove(file());
    return record({CLIENT, how, file(), std::to_string(count), std::to_string(threads)});
  }
  std::string file() const { return place_.file("pool"); }
  std::string trace() const { return place_.file("trace"); }

  const test::TestDirectory place_;
};

std::uint64_t sum(const json& document, const char* field) { return document["all"][field]; }

// libpmem as the library sees it on persistent memory, and on a file.
class RecordPersists : public Record, public testing::WithParamInterface<const char*> {
 protected:
  RecordPersists() { ::setenv("PMEM_IS_PMEM_FORCE", GetParam(), 1); }
  ~RecordPersists() override { ::unsetenv("PMEM_IS_PMEM_FORCE"); }
};

INSTANTIATE_TEST_SUITE_P(OnMemoryAndOnFiles, RecordPersists, testing::Values("0", "1"));

TEST_P(RecordPersists, EachPersistOfLibpmemobjIsAnEpochOfItsThread) {
  const json few = of_client("obj", 10);
  const json many = of_client("obj", 110);
  EXPECT_EQ(sum(many, "epochs") - sum(few, "epochs"), 100u);
  EXPECT_EQ(sum(many, "changed_lines") - sum(few, "changed_lines"), 100u);
  EXPECT_EQ(sum(many, "flushes") - sum(few, "flushes"), 100u);
  // Receive: four threads. Expect: four times the same, none mixed with another's.
  const json four = of_client("obj", 50, 4);
  int workers = 0;
  const auto events = events_of(trace());
  for (const json& thread : four["threads"]) {
    if (thread["epochs"] != 50) continue;
    ++workers;
    EXPECT_EQ(thread["changed_lines"], 50);
    const auto number = thread["thread"].get<int>();
    EXPECT_EQ(events.at("T" + std::to_string(number)).epochs, 50u);
  }
  EXPECT_EQ(workers, 4);
}

TEST_P(RecordPersists, CopiesFlushesAndUnchangedLinesOfLibpmem) {
  const json document = of_client("pmem", 25);
  EXPECT_EQ(sum(document, "flushes"), 75u);
  EXPECT_EQ(sum(document, "flushed_lines"), 100u);
  EXPECT_EQ(sum(document, "changed_lines"), 75u) << "the persist of nothing new has none";
  EXPECT_EQ(sum(document, "drains"), 75u);
  EXPECT_EQ(sum(document, "epochs"), 50u);
  const auto events = events_of(trace());
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events.at("T0").writes, 75u);
  EXPECT_EQ(events.at("T0").barriers, 75u);
  EXPECT_EQ(events.at("T0").epochs, 50u);
}

TEST_P(RecordPersists, FunctionPointersOfLibpmem2AreSeen) {
  const json document = of_client("pmem2", 25);
  EXPECT_EQ(sum(document, "flushes"), 50u);
  EXPECT_EQ(sum(document, "changed_lines"), 50u);
  EXPECT_EQ(sum(document, "epochs"), 50u);
}

// Each has a page of its own: ranges flushed, drains, and those of them that are for the medium.
TEST_P(RecordPersists, EachFunctionCountsOnce) {
  const auto expect_counts = [this](const std::string& how, int flushes, int drains, int fences) {
    const json document = of_client(how, 25);
    EXPECT_EQ(document["all"]["flushes"], flushes) << how;
    EXPECT_EQ(document["all"]["changed_lines"], flushes) << how;
    EXPECT_EQ(document["all"]["drains"], drains) << how;
    EXPECT_EQ(document["all"]["epochs"], drains) << how;
    EXPECT_EQ(document["fences"], fences) << how;
  };
  expect_counts("each", 16, 14, 2);
  expect_counts("each2", 8, 8, 1);
}

TEST_P(RecordPersists, WhatAProgramLoadsWhileItRunsIsSeen) {
  const json document = record({LOADER, file()});
  EXPECT_EQ(sum(document, "flushes"), 7u);
  EXPECT_EQ(sum(document, "changed_lines"), 7u);
  EXPECT_EQ(sum(document, "epochs"), 7u);
  EXPECT_EQ(document["fences"], 1) << "msync";
}

/// A program and a library of its own have functions of names that the interposer has too. Expect:
/// each gets by handle what it asks for.
TEST_F(Record, FunctionsOfTheProgramsOwnStayItsOwn) {
  // Of one that failed something else would be said.
  const Outcome ran = cli::run(command({NAMESAKE, PLUGIN}));
  EXPECT_TRUE(cli::contains(ran.err, "mapped no file")) << ran.err;
}

TEST_F(Record, MsyncOfAPlainMappingIsADurabilityFence) {
  const json document = of_client("msync", 25);
  EXPECT_EQ(sum(document, "epochs"), 25u);
  EXPECT_EQ(sum(document, "flushed_lines"), 25u * 64);
  EXPECT_EQ(sum(document, "changed_lines"), 25u);
  EXPECT_EQ(document["fences"], 25);
  EXPECT_EQ(document["barriers"], 0);
}

TEST_F(Record, AFileThatGrowsIsFollowed) {
  const json document = of_client("grow", 25);
  EXPECT_EQ(sum(document, "epochs"), 50u);
  EXPECT_EQ(document["files"].size(), 1u);
  EXPECT_EQ(document["files"][0]["mapped_bytes"], 2 << 20);
}

TEST_F(Record, FilesOfAProgramThatClosesWhatItDoesNotKnowAreItsOwn) {
  // The client looks for damage itself. Its 17 persists of 4096 lines are more than one piece of
  // the journal, and its file grows: both took a descriptor that it may have closed.
  const json document = of_client("closes", 17);
  EXPECT_EQ(document["exit_status"], 0);
  EXPECT_EQ(document["lost_events"], 0);
  EXPECT_EQ(sum(document, "changed_lines"), 17u * 4096 + 1);
  EXPECT_EQ(sum(document, "epochs"), 18u);
  EXPECT_EQ(document["files"].size(), 1u);
  EXPECT_EQ(document["files"][0]["mapped_bytes"], 2 << 20);
}

TEST_F(Record, AChildProcessIsRecordedBesideItsParent) {
  const json document = of_client("fork", 40);
  EXPECT_EQ(document["processes"], 2);
  ASSERT_EQ(document["threads"].size(), 2u);
  EXPECT_EQ(document["threads"][1]["epochs"], 40);
  EXPECT_NE(document["threads"][0]["process"], document["threads"][1]["process"]);
}

TEST_F(Record, TransactionsAndPoolToolsOfDebian) {
  const json made = record({"pmempool", "create", "obj", file()});
  EXPECT_GT(sum(made, "epochs"), 0u);
  EXPECT_EQ(made["files"].size(), 1u);
#ifdef OBJTX
  const std::string set = place_.file("set");
  cli::write_file(set, "PMEMPOOLSET\n10M " + place_.file("part") + "\n");
  record({OBJTX, "create", set});
  const json few = record({OBJTX, "run", set, "16"});
  const json many = record({OBJTX, "run", set, "32"});
  // Every eighth transaction has a node more than the others, and the same each time.
  EXPECT_GE(sum(few, "epochs"), 3u * 16);
  EXPECT_GE(sum(many, "epochs"), sum(few, "epochs") + 3u * 16);
#endif
}

TEST_F(Record, WhatAProgramMappedIsNotWrittenOverByItsTrace) {
  // The file is no word of the command line: only the recording knows of it.
  const std::string line = std::string(CLIENT) + " msync " + file() + " 5 1";
  std::filesystem::create_symlink(file(), trace());
  const Outcome outcome = cli::run(command({"/bin/sh", "-c", line}));
  EXPECT_EQ(outcome.status, 1) << outcome.out;
  EXPECT_TRUE(cli::contains(outcome.err, "is an input")) << outcome.err;
  EXPECT_TRUE(std::filesystem::is_symlink(trace()));
  EXPECT_FALSE(cli::read_file(file()).starts_with("#")) << "a trace";
}

TEST_F(Record, WordsOfACommandAndNamesOfFilesAreNoLinesOfATrace) {
  // Longer than a line of a trace may be.
  const std::string words = "\nT9 W 0x40\x1b[2J #" + std::string(70'000, 'x');
  const std::string mapped = place_.file("pool\nT9 W 0x80\x1b[2J");
  const Outcome outcome =
      cli::run(command({"/bin/sh", "-c", R"("$@")", words, CLIENT, "pmem", mapped, "25"}));
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_FALSE(cli::contains(outcome.out, "\x1b")) << outcome.out;
  EXPECT_TRUE(cli::contains(outcome.out, R"(\x0aT9 W 0x80\x1b[2J)")) << outcome.out;
  const auto events = events_of(trace());
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events.at("T0").writes, 75u);
  EXPECT_FALSE(cli::contains(cli::read_file(trace()), "\x1b"));
}

TEST_F(Record, WhatAProgramDidBeforeItFailedIsKept) {
  const json stopped = record({CLIENT, "exit", file(), "30"}, 1);
  EXPECT_EQ(stopped["exit_status"], 3);
  EXPECT_EQ(stopped["signal"], 0);
  EXPECT_GE(sum(stopped, "epochs"), 30u);
  std::filesystem::remove(file());
  const json killed = record({CLIENT, "fail", file(), "30"}, 1);
  EXPECT_EQ(killed["signal"], SIGABRT);
  EXPECT_EQ(sum(killed, "epochs"), sum(stopped, "epochs"));
}

TEST_F(Record, ATraceIsSimulatedAndItsDocumentIsWhatTheSchemaSays) {
  of_client("obj", 20, 2);
  const Outcome simulated = cli::run({"sim", "memory", "--device",
                                      std::string(PERDURE_TREE) + "/configs/hardware/nvm-a.toml",
                                      "--trace", trace(), "--order", "broi"});
  EXPECT_EQ(simulated.status, 0) << simulated.err;
  std::filesystem::remove(file());
  auto arguments = command({CLIENT, "obj", file(), "20"});
  arguments.insert(arguments.begin() + 2, {"--format", "json"});
  const Outcome outcome = cli::run(arguments);
  cli::expect_valid(outcome, kSchema);
  const json gains = json::parse(outcome.out)["gains"];
  ASSERT_EQ(gains["devices"].size(), 2u);
  // One thread: a flattened epoch is that of the thread, so with buffers of the same size nothing
  // is left between waiting at each barrier and not waiting.
  const json& orders = gains["devices"][0]["orders"];
  EXPECT_EQ(orders[1]["order"], "epoch");
  EXPECT_NEAR(orders[1]["over_sync"].get<double>(), 1, 0.1) << "sync has other buffers than epoch";
  EXPECT_EQ(gains["buffer_entries"], 8);
  for (const json& device : gains["devices"]) {
    EXPECT_EQ(device["orders"][0]["order"], "sync");
    EXPECT_GE(device["orders"][3]["over_sync"], 1.0) << "eadr waits for nothing";
  }
  EXPECT_GT(gains["network"]["bsp_over_sync"], 1.0) << "six round trips in one";
}

TEST_F(Record, LinesThatAProgramFlushesInlineAreCountedAndWarnedOf) {
  const json document = of_client("inline", 1000);
  EXPECT_EQ(sum(document, "changed_lines"), 1u);
  EXPECT_EQ(document["unflushed_lines"], 1000);
  EXPECT_EQ(document["files"][0]["unflushed_lines"], 1000);
  std::filesystem::remove(file());
  const Outcome inline_flushes = cli::run(command({CLIENT, "inline", file(), "1000"}));
  EXPECT_EQ(inline_flushes.status, 0) << inline_flushes.err;
  EXPECT_TRUE(cli::contains(inline_flushes.err, "1000 lines of mapped files changed without"))
      << inline_flushes.err;
  EXPECT_TRUE(cli::contains(inline_flushes.out, "1000 lines of it not as flushed"))
      << inline_flushes.out;
}

TEST_F(Record, WhatIsFlushedByALibraryOrMsyncIsNotWarnedOf) {
  for (const std::string how : {"pmem", "pmem2", "msync", "grow"}) {
    std::filesystem::remove(file());
    const Outcome seen = cli::run(command({CLIENT, how, file(), "25"}));
    EXPECT_EQ(seen.status, 0) << seen.err;
    EXPECT_EQ(seen.err, "") << how;
  }
}

TEST_F(Record, AFileThatIsGoneInTheEndIsNotCompared) {
  const json document = of_client("gone", 10);
  EXPECT_TRUE(document["files"][0]["unflushed_lines"].is_null()) << document;
  EXPECT_EQ(document["unflushed_lines"], 0);
  const Outcome gone = cli::run(command({CLIENT, "gone", file(), "10"}));
  EXPECT_TRUE(cli::contains(gone.out, "not compared with what was flushed")) << gone.out;
}

TEST_F(Record, ProgramsOfWhichNothingIsSeenAreRefused) {
  // Nothing is mapped.
  const Outcome nothing = cli::run(command({"/bin/true"}));
  EXPECT_EQ(nothing.status, 1);
  EXPECT_TRUE(cli::contains(nothing.err, "mapped no file")) << nothing.err;
  // Something is mapped, and nothing made durable.
  const Outcome silent = cli::run(command({CLIENT, "silent", file(), "5"}));
  EXPECT_EQ(silent.status, 1);
  EXPECT_TRUE(cli::contains(silent.err, "inline (CLWB")) << silent.err;
  EXPECT_TRUE(cli::contains(silent.err, "; 5 lines changed otherwise")) << silent.err;
  const Outcome missing = cli::run(command({place_.file("none")}));
  EXPECT_EQ(missing.status, 1);
  EXPECT_TRUE(cli::contains(missing.err, "No such file")) << missing.err;
  // Neither a program nor a script.
  const std::string text = place_.file("text");
  cli::write_file(text, "hello\n");
  std::filesystem::permissions(text, std::filesystem::perms::owner_all);
  EXPECT_TRUE(cli::contains(cli::run(command({text})).err, "neither a program nor a script"));
  EXPECT_FALSE(std::filesystem::exists(trace())) << "no trace of nothing";
  EXPECT_EQ(cli::run({"sim", "record", "--output", trace()}).status, 2);
}

}  // namespace
}  // namespace perdure
