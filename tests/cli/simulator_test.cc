// How `perdure sim` speaks: it says how far it is, shows names that others chose as text, and takes
// no word for another.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <filesystem>

#include "core/json.h"
#include "testing/temporary_directory.h"
#include "tests/cli/command_process.h"

namespace perdure::cli {
namespace {

using Words = std::vector<std::string>;

const std::string kHardware = std::string(PERDURE_TREE) + "/configs/hardware/";

/// Runs the command with a terminal as its output and error, which are together in `out`.
Outcome run_on_terminal(Words words) {
  words.insert(words.begin(), PERDURE);
  words.insert(words.begin(), {"-c",
                               "import os, pty, sys; "
                               "sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"});
  CommandProcess process(std::move(words), "/dev/null", "", "/usr/bin/python3");
  return process.wait();
}

/// The first application of whisper.toml alone, by the name `as`: the others run for long.
std::string one_application(const test::TestDirectory& place, const std::string& as) {
  const std::string all = read_file(std::string(PERDURE_TREE) + "/configs/workloads/whisper.toml");
  const std::size_t begin = all.find("[ycsb]") + 6;
  const std::string path = place.file("applications.toml");
  write_file(path, "[" + as + "]" + all.substr(begin, all.find("[tpcc]") - begin));
  return path;
}

TEST(Simulator, ALongRunSaysHowFarItIs) {
  const test::TestDirectory place;
  const std::tuple<Words, std::string, std::string> cases[] = {
      {{"remotelog", "--records", "20"}, "REMOTELOG, ", " %"},
      {{"method", "--all", "--hardware", kHardware + "edr-back-to-back.toml"},
       "write-send-flush-ack",
       " %"},
      {{"server", "--workload", "sps", "--order", "epoch", "--footprint-mib", "4", "--transactions",
        "200", "--warm-up", "2000"},
       "sps: epoch (1 of 1), warm-up ",
       "warm-up 49 %"},
      {{"figure", "2"}, "REMOTELOG, ", " %"},
      {{"figure", "4"}, "figure 4: 94 ns an epoch", ": 50 %"},
      {{"figure", "12", "--network-transactions", "40", "--applications",
        one_application(place, "ycsb")},
       "figure 12: ycsb",
       ": 50 %"}};
  for (auto [words, what, far] : cases) {
    words.insert(words.begin(), "sim");
    const Outcome outcome = run_on_terminal(words);
    EXPECT_EQ(outcome.status, 0) << testing::PrintToString(words);
    // What is drawn is in front of the result.
    const std::string drawn = outcome.out.substr(0, outcome.out.find("simulated"));
    EXPECT_TRUE(drawn.starts_with("\r\x1b[K")) << testing::PrintToString(words);
    EXPECT_TRUE(contains(drawn, what)) << testing::PrintToString(words);
    EXPECT_TRUE(contains(drawn, far)) << testing::PrintToString(words);
  }
}

/// `text` with the value of `name` replaced by bytes that a terminal would obey.
std::string with_evil_name(const std::string& path) {
  std::string text = read_file(path);
  const std::size_t at = text.find("name = \"");
  EXPECT_NE(at, std::string::npos) << path;
  const std::size_t end = text.find('"', at + 8);
  return text.replace(at, end - at, "name = \"x\\u001b[2J\\u009by\\nz");
}

void expect_name_is_shown(const Words& words) {
  const Outcome outcome = run(words);
  EXPECT_EQ(outcome.status, 0) << testing::PrintToString(words) << outcome.err;
  EXPECT_TRUE(contains(outcome.out, R"(x\x1b[2J\xc2\x9by\x0az)")) << outcome.out;
  EXPECT_FALSE(contains(outcome.out + outcome.err, "\x1b")) << testing::PrintToString(words);
  EXPECT_FALSE(contains(outcome.out + outcome.err, "\xc2\x9b")) << testing::PrintToString(words);
}

TEST(Simulator, ANameInAFileIsShownAndNotObeyed) {
  const test::TestDirectory place;
  const auto evil = [&](const std::string& file) {
    const std::string path = place.file(std::filesystem::path(file).filename());
    write_file(path, with_evil_name(file));
    return path;
  };
  const std::string device = evil(kHardware + "nvm-a.toml");
  const std::string processor = evil(kHardware + "four-cores.toml");
  const std::string network = evil(kHardware + "edr-back-to-back.toml");
  const std::string trace = place.file("trace.txt");
  write_file(trace, "W 0x40\n");
  expect_name_is_shown({"sim", "memory", "--device", device, "--trace", trace});
  const Words server{"sim",          "server", "--workload",      "sps",
                     "--order",      "epoch",  "--transactions",  "20",
                     "--warm-up",    "0",      "--footprint-mib", "1",
                     "--partitions", "16"};
  for (const auto& [option, file] : {std::pair("--device", device), {"--processor", processor}}) {
    Words words = server;
    words.insert(words.end(), {option, file});
    expect_name_is_shown(words);
  }
  expect_name_is_shown({"sim", "network", "--transactions", "2", "--hardware", network});
  expect_name_is_shown({"sim", "network", "--transactions", "2", "--device", device});
  expect_name_is_shown({"sim", "remotelog", "--records", "2", "--hardware", network});
  expect_name_is_shown({"sim", "figure", "2", "--hardware", network});
  expect_name_is_shown({"sim", "figure", "4", "--device", device});
  expect_name_is_shown(
      {"sim", "method", "--method", "write-flush", "--transport", "roce", "--hardware", network});

  // Of an application, and of a method.
  expect_name_is_shown({"sim", "figure", "12", "--network-transactions", "20", "--applications",
                        one_application(place, R"("x\u001b[2J\u009by\nz")")});
  nlohmann::json methods =
      nlohmann::json::parse(run({"plan", "--all", "--transport", "roce", "--format", "json"}).out);
  methods["methods"][0]["name"] = "x\x1b[2J\xc2\x9by\nz";
  write_file(place.file("methods.json"), methods.dump());
  expect_name_is_shown({"sim", "method", "--file", place.file("methods.json")});
  // A file without a name has the name of the file.
  const std::string path = place.file("x\x1b[2J\xc2\x9by\nz");
  std::string nameless = read_file(kHardware + "nvm-a.toml");
  const std::size_t at = nameless.find("name = ");
  nameless.erase(at, nameless.find('\n', at) - at);
  write_file(path, nameless);
  expect_name_is_shown({"sim", "memory", "--device", path, "--trace", trace});
}

TEST(Simulator, AHyphenIsStandardInputOnlyWhereTheHelpSaysSo) {
  const test::TestDirectory place;
  const std::string trace = place.file("trace.txt");
  write_file(trace, "W 0x40\n");
  const std::string device = kHardware + "nvm-a.toml";
  const std::pair<Words, std::string> cases[] = {
      {{"memory", "--device", "-", "--trace", trace}, "--device"},
      {{"memory", "--device", device, "--trace", trace, "--commands", "-"}, "--commands"},
      {{"server", "--device", "-"}, "--device"},
      {{"server", "--processor", "-"}, "--processor"},
      {{"network", "--hardware", "-"}, "--hardware"},
      {{"remotelog", "--hardware", "-"}, "--hardware"},
      {{"method", "--all", "--hardware", "-"}, "--hardware"},
      {{"figure", "12", "--applications", "-"}, "--applications"},
      {{"figure", "4", "--report", "-"}, "--report"},
      {{"record", "--output", "-", "--", "/bin/true"}, "--output"},
      {{"record", "--output", trace, "--device", "-", "--", "/bin/true"}, "--device"}};
  for (auto [words, option] : cases) {
    words.insert(words.begin(), "sim");
    const Outcome outcome = run(words, read_file(device));
    EXPECT_EQ(outcome.status, 2) << testing::PrintToString(words) << outcome.err;
    EXPECT_TRUE(contains(outcome.err, option + ": '-' is no file")) << outcome.err;
    EXPECT_EQ(outcome.out, "");
    EXPECT_FALSE(std::filesystem::exists("-"));
  }
  EXPECT_EQ(run({"sim", "memory", "--device", device, "--trace", "-"}, "W 0x40\n").status, 0);
  const Outcome from_input =
      run({"sim", "memory", "--device", "/dev/stdin", "--trace", trace}, read_file(device));
  EXPECT_EQ(from_input.status, 0) << from_input.err;
}

TEST(Simulator, ANameThatNoMethodHasIsAWrongCommandLine) {
  const Words cases[] = {
      {"sim", "method", "--method", "write-flus", "--shape", "singleton"},
      {"sim", "method", "--method", "write-flush-atomic-flush", "--shape", "singleton"}};
  for (const Words& words : cases) {
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.status, 2) << testing::PrintToString(words) << outcome.err;
    EXPECT_TRUE(contains(outcome.err, "no method is called")) << outcome.err;
    EXPECT_EQ(outcome.out, "");
  }
  // Of a file there is more to say than of the command line.
  const Outcome file = run({"sim", "method", "--file", "-"}, "{}");
  EXPECT_EQ(file.status, 1) << file.err;
  EXPECT_EQ(run({"sim", "method", "--method", "write-flush", "--hardware", "/nonexistent"}).status,
            1);
}

}  // namespace
}  // namespace perdure::cli
