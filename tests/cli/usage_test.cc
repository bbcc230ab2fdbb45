// The command line itself: help for everything, and an answer to every mistake.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <utility>

#include "tests/cli/command_process.h"

namespace perdure::cli {
namespace {

using Words = std::vector<std::string>;

TEST(Usage, EverySubcommandHasHelpWithExamples) {
  const Words commands[] = {{"log", "append"},
                            {"log", "read"},
                            {"log", "follow"},
                            {"log", "verify"},
                            {"log", "repair"},
                            {"log", "trim"},
                            {"pool", "create"},
                            {"pool", "list"},
                            {"pool", "describe"},
                            {"pool", "fence"},
                            {"pool", "delete"},
                            {"probe"},
                            {"plan"},
                            {"check"},
                            {"torture"},
                            {"rpc", "status"},
                            {"rpc", "service"},
                            {"rpc", "service-retry"},
                            {"rpc", "service-drop"},
                            {"rpc", "list"},
                            {"rpc", "inspect"},
                            {"rpc", "drain"},
                            {"rpc", "replay"},
                            {"rpc", "retry"},
                            {"rpc", "drop"},
                            {"mirror", "status"},
                            {"mirror", "verify"},
                            {"mirror", "resync"},
                            {"mirror", "restore"}};
  for (Words command : commands) {
    const std::string example =
        "  perdure " + (command.size() == 2 ? command[0] + " " + command[1] : command[0]);
    command.emplace_back("--help");
    const Outcome outcome = run(command);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_TRUE(contains(outcome.out, "Usage: ")) << outcome.out;
    EXPECT_TRUE(contains(outcome.out, "Examples:\n")) << outcome.out;
    EXPECT_TRUE(contains(outcome.out, example)) << outcome.out;
    EXPECT_EQ(outcome.err, "");
  }
  EXPECT_EQ(run({"--help"}).status, 0);
  EXPECT_TRUE(contains(run({"--version"}).out, "perdure "));
}

TEST(Usage, HelpAllIsTheHelpOfEveryCommand) {
  const Outcome all = run({"--help-all"});
  EXPECT_EQ(all.status, 0) << all.err;
  for (const std::string option : {"--keep-records", "--doctor", "--epoch-bytes", "--take-over"}) {
    EXPECT_TRUE(contains(all.out, option)) << option;
  }
  for (const std::string command : {"\nlog replica add\n", "\nsim method\n", "\nstatus\n"}) {
    EXPECT_TRUE(contains(all.out, command)) << command;
  }
  EXPECT_FALSE(contains(run({"--help"}).out, "--keep-records"));
  const std::string log = run({"log", "--help-all"}).out;
  EXPECT_TRUE(contains(log, "--keep-records")) << log;
  EXPECT_FALSE(contains(log, "--doctor"));
}

TEST(Usage, TheHelpKeepsToTheWidthOfTheTerminal) {
  ::setenv("COLUMNS", "80", 1);
  const std::string narrow = run({"log", "append", "--help"}).out;
  std::istringstream commands(run({"--help"}).out);
  ::unsetenv("COLUMNS");
  for (std::string line; std::getline(commands, line);) EXPECT_LE(line.size(), 80u) << line;
  const std::string wide = run({"log", "append", "--help"}).out;
  EXPECT_GT(std::count(narrow.begin(), narrow.end(), '\n'),
            std::count(wide.begin(), wide.end(), '\n'));
  std::istringstream lines(narrow.substr(narrow.find("Options:")));
  for (std::string line; std::getline(lines, line) && !contains(line, "Examples");) {
    // The names of an option may be longer; what follows stands in a line of its own then.
    if (line.find_first_not_of(' ') > 20) {
      EXPECT_LE(line.size(), 80u) << line;
    }
  }
}

TEST(Usage, ANarrowTerminalIsKeptToAsWell) {
  for (const std::string columns : {"40", "60"}) {
    ::setenv("COLUMNS", columns.c_str(), 1);
    std::istringstream lines(run({"log", "append", "--help"}).out);
    ::unsetenv("COLUMNS");
    const std::size_t width = std::stoul(columns);
    std::size_t descriptions = 0;
    for (std::string line; std::getline(lines, line) && !contains(line, "Examples");) {
      if (line.find_first_not_of(' ') != width * 2 / 5) continue;  // see above
      ++descriptions;
      EXPECT_LE(line.size(), width) << line;
    }
    EXPECT_GT(descriptions, 20u) << columns;
  }
}

TEST(Usage, NothingButExamplesIsWiderThanANarrowTerminal) {
  const Words commands[] = {{},         {"log"},        {"log", "append"},   {"log", "read"},
                            {"status"}, {"plan"},       {"bench", "limits"}, {"mirror", "resync"},
                            {"check"},  {"sim", "all"}, {"probe"},           {"rpc", "status"}};
  ::setenv("COLUMNS", "40", 1);
  std::string append;
  for (Words command : commands) {
    command.emplace_back("--help");
    const std::string help = run(command).out;
    if (contains(help, "perdure log append ")) append = help;
    std::istringstream lines(help);
    for (std::string line; std::getline(lines, line) && !contains(line, "Examples");) {
      // The name of a file, for example, is not broken.
      const std::size_t begin = std::min(line.find_first_not_of(' '), line.size());
      if (line.find_first_of(" |", begin) == std::string::npos) continue;
      EXPECT_LE(line.size(), 40u) << testing::PrintToString(command) << ": " << line;
    }
  }
  ::unsetenv("COLUMNS");
  EXPECT_TRUE(contains(append, "Usage: perdure log append\n      [OPTIONS] [files...]\n"))
      << append;
  EXPECT_TRUE(contains(append, "  --shape planned|singleton|compound\n")) << append;
  EXPECT_TRUE(contains(append, "  --primary planned|write|write_imm|\n      send\n")) << append;
}

TEST(Usage, SpeaksInWordsNotInThoseOfTheParser) {
  std::string help = run({"--help-all"}).out;
  CommandProcess daemon({"--help"}, "", "", PERDURED);
  help += daemon.wait().out;
  for (const std::string raw : {"UINT", "INT:", "FLOAT", "TEXT=", "TEXT:", " in [",
                                "Excludes:", "Needs:", "REQUIRED", "Exactly 1", "Option Group"}) {
    EXPECT_FALSE(contains(help, raw)) << raw << " in\n" << help;
  }
  EXPECT_TRUE(contains(help, "How many (3; 1 to 16)")) << help;
  EXPECT_TRUE(contains(help, "Begin each line with the LSN; not with --framed, --raw")) << help;
  EXPECT_TRUE(contains(help, "What to check, exactly one of:")) << help;
  const std::pair<Words, std::string> cases[] = {
      {{"log", "append", "--quorum", "x"}, "--quorum: 'x' is no number that can stand there;"},
      {{"log", "append", "--quorum"}, "--quorum: its value is missing;"},
      {{"up", "--peers", "17"}, "--peers: '17' is no number between 1 and 16;"},
      {{"up", "--peers", "-3"}, "--peers: '-3' is no number between 1 and 16;"},
      {{"up", "--peers", "many"}, "--peers: 'many' is no number between 1 and 16;"},
      {{"check"}, "exactly one of --method, --file, --set, --all, --known-unsafe, --list is"},
      {{"check", "--all", "--list"}, "--list is needed, not several;"},
  };
  for (const auto& [words, said] : cases) {
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.status, 2) << outcome.err;
    EXPECT_TRUE(contains(outcome.err, said)) << outcome.err;
  }
}

TEST(Usage, PeersAndPoolMayStandInTheEnvironment) {
  const Outcome without = run({"log", "status"});
  EXPECT_EQ(without.status, 2);
  // Nobody listens on port 1. What is asked for is what the environment says, or the command line.
  ::setenv("PERDURE_PEERS", "127.0.0.1:1,127.0.0.2:1", 1);
  ::setenv("PERDURE_POOL", "orders", 1);
  const Outcome all = run({"log", "status"});
  const Outcome one = run({"log", "status", "--peers", "127.0.0.3:1"});
  const Outcome planned = run({"plan"});
  ::setenv("PERDURE_PEERS", "nonsense", 1);
  const Outcome wrong = run({"log", "status"});
  ::setenv("PERDURE_PEERS", "", 1);
  const Outcome empty = run({"log", "status"});
  ::unsetenv("PERDURE_PEERS");
  ::unsetenv("PERDURE_POOL");
  EXPECT_EQ(all.status, 1) << all.out << all.err;
  EXPECT_TRUE(contains(all.out + all.err, "127.0.0.1:1")) << all.out << all.err;
  EXPECT_TRUE(contains(all.out + all.err, "127.0.0.2:1")) << all.out << all.err;
  EXPECT_TRUE(contains(one.out + one.err, "127.0.0.3:1")) << one.out << one.err;
  EXPECT_FALSE(contains(one.out + one.err, "127.0.0.2:1")) << one.out << one.err;
  EXPECT_EQ(planned.out, run({"plan"}).out) << "it asks no peer unless told to";
  EXPECT_EQ(wrong.status, 2) << wrong.err;
  EXPECT_TRUE(contains(wrong.err, "nonsense")) << wrong.err;
  EXPECT_EQ(empty.status, 2) << empty.err;
  EXPECT_EQ(empty.err, without.err);
}

/// The options of a command that offer words, and these.
using Offers = std::vector<std::pair<std::string, Words>>;

/// By command; what several commands share stands at the first.
std::map<std::string, Offers> words_offered() {
  std::map<std::string, Offers> offered;
  std::istringstream all(run({"--help-all"}).out);
  const std::regex heading("[a-z]+(?: [a-z]+)*");
  const std::regex option_line(" +(?:-., *)?(--[a-z-]+)[^ ]* +([^ |]+(?:\\|[^ |]+)+)(?: .*)?");
  std::string command;
  std::string before;
  std::set<std::string> seen;
  for (std::string line; std::getline(all, line); before = line) {
    if (before.empty() && std::regex_match(line, heading)) command = line;
    std::smatch match;
    if (!std::regex_match(line, match, option_line) || contains(match[2], "NAME")) continue;
    if (!seen.insert(match[1].str() + " " + match[2].str()).second) continue;
    std::istringstream choices(match[2]);
    Words words;
    for (std::string word; std::getline(choices, word, '|');) words.push_back(word);
    offered[command].emplace_back(match[1], words);
  }
  return offered;
}

// What is typed after --help is read, but nothing is done.
TEST(Usage, EveryWordThatAHelpOffersIsTaken) {
  const auto taken = [](const std::string& command, const Offers& given) {
    Words words;
    std::istringstream parts(command);
    for (std::string part; parts >> part;) words.push_back(part);
    for (const auto& [option, choice] : given) {
      words.insert(words.end(), {option, choice.front()});
    }
    words.push_back("--help");
    return run(words);
  };
  EXPECT_EQ(taken("plan", {{"--shape", Words{"1+0+1"}}}).status, 2)
      << "a wrong word is refused beside --help";
  std::size_t words = 0;
  for (const auto& [command, options] : words_offered()) {
    // The first words of all options in one command, then the second ones, and so on.
    for (std::size_t at = 0;; ++at) {
      Offers together;
      for (const auto& [option, choices] : options) {
        if (at < choices.size()) together.emplace_back(option, Words{choices[at]});
      }
      if (together.empty()) break;
      words += together.size();
      if (together.size() > 1 && taken(command, together).status == 0) continue;
      // Some exclude one another.
      for (const auto& each : together) {
        const Outcome outcome = taken(command, {each});
        EXPECT_EQ(outcome.status, 0)
            << command << " " << each.first << " " << each.second.front() << outcome.err;
      }
    }
  }
  EXPECT_GT(words, 50u) << "the help has changed its form";
}

TEST(Usage, AWordIsNeverOfferedInPlaceOfItself) {
  const Outcome wrong = run({"plan", "--shape", "1+0+1"});
  EXPECT_TRUE(contains(wrong.err, "did you mean '1+2+1'?")) << wrong.err;
  EXPECT_TRUE(contains(wrong.err, "1 to 64 items")) << wrong.err;
  // There is one, for other updates.
  const Outcome other = run({"check", "--method", "write-flush", "--shape", "1+1+1+1+1+1"});
  EXPECT_EQ(other.status, 1) << other.out;
  EXPECT_FALSE(contains(other.err, "'write-flush'?")) << other.err;
}

TEST(Usage, SizesHaveUnitsEverywhere) {
  const std::string plain = run({"plan", "--domain", "page", "--bytes", "4096"}).out;
  EXPECT_TRUE(contains(plain, "round trip")) << plain;
  for (const std::string size : {"4KiB", "4K", "4k", "4kib"}) {
    EXPECT_EQ(run({"plan", "--domain", "page", "--bytes", size}).out, plain) << size;
  }
  const auto priced = [](const std::string& size) {
    return run({"sim", "method", "--hardware",
                std::string(PERDURE_TREE) + "/configs/hardware/edr-back-to-back.toml", "--method",
                "write-flush", "--domain", "dmp", "--ddio", "off", "--transport", "infiniband",
                "--bytes", size})
        .out;
  };
  EXPECT_EQ(priced("4k"), priced("4096"));
  EXPECT_NE(priced("4k"), priced("64"));
  const Outcome outside = run({"bench", "remotelog", "--bytes", "4M"});
  EXPECT_EQ(outside.status, 2);
  EXPECT_TRUE(contains(outside.err, "between 16 B and 1 MiB")) << outside.err;
}

TEST(Usage, ASeedIsANumber) {
  for (const std::string seed :
       {"-1", "18446744073709551616", "", "0x", "1x", "99999999999999999999"}) {
    for (const std::string command : {"network", "server"}) {
      const Outcome outcome = run({"sim", command, "--seed", seed});
      EXPECT_EQ(outcome.status, 2) << command << " '" << seed << "'";
      EXPECT_TRUE(contains(outcome.err, "'" + seed + "' is no number")) << outcome.err;
    }
  }
  const Words short_run{"sim", "network", "--transactions", "2", "--seed"};
  for (const std::string seed : {"0", "0x5eed", "18446744073709551615"}) {
    Words words = short_run;
    words.push_back(seed);
    EXPECT_EQ(run(words).status, 0) << seed;
  }
}

TEST(Usage, WhatWouldNeverEndOrIsOfNoEffectIsNoCommandOfTheNetwork) {
  const Outcome lost = run({"sim", "network", "--lost-ack-one-in", "1", "--transactions", "2"});
  EXPECT_EQ(lost.status, 2) << lost.out;
  EXPECT_TRUE(contains(lost.err, "no transaction would ever")) << lost.err;
  const Words with_value[] = {{"--order", "thread"}, {"--persist-point", "bus"}};
  for (const Words& option : with_value) {
    const Outcome outcome = run({"sim", "network", option[0], option[1]});
    EXPECT_EQ(outcome.status, 2) << outcome.out;
    EXPECT_TRUE(contains(outcome.err, option[0] + " is of the server's banks")) << outcome.err;
  }
  const std::pair<Words, const char*> together[] = {
      {{"--strategy", "read"}, "the cache answers"},
      {{"--strategy", "sync", "--server-cpus", "2"}, "--server-cpus is of the CPUs"},
      {{"--strategy", "flush", "--lost-ack-one-in", "9"}, "no persist ACKs that could be lost"},
      {{"--strategy", "message", "--device", "nvm.toml"}, "written by the server's CPU"},
      {{"--strategy", "transport-ack", "--writes-percent", "0"}, "all transactions have to write"},
      {{"--writes-percent", "0.04"}, "tenths of a percent"},
      {{"--compute-us", "1000000", "--transactions", "20000000"}, "more time than"},
  };
  for (const auto& [options, because] : together) {
    Words words{"sim", "network"};
    words.insert(words.end(), options.begin(), options.end());
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.status, 2) << outcome.out;
    EXPECT_TRUE(contains(outcome.err, because)) << outcome.err;
  }
  EXPECT_EQ(run({"sim", "network", "--strategy", "flush", "--lost-ack-one-in", "0"}).status, 0);
  const Outcome some = run({"sim", "network", "--strategy", "all", "--lost-ack-one-in", "1000"});
  EXPECT_EQ(some.status, 0);
  for (const char* const name : {"read", "flush", "message"}) {
    EXPECT_TRUE(contains(some.err, name + std::string(" is left out: "))) << some.err;
  }
  // Nothing is written: neither strategy is faster.
  const Outcome reads = run({"sim", "network", "--writes-percent", "0", "--format", "json"});
  EXPECT_EQ(reads.status, 0) << reads.err;
  EXPECT_FALSE(contains(reads.out, "bsp_over_sync")) << reads.out;
  EXPECT_FALSE(contains(reads.out, "null")) << reads.out;
}

TEST(Usage, AnErrorShowsWhatATerminalWouldObey) {
  const Outcome outcome =
      run({"sim", "memory", "--device", std::string(PERDURE_TREE) + "/configs/hardware/nvm-a.toml",
           "--trace", "-"},
          "W 0x40 1 \x1b[2J\xc2\x9b\r\n");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_TRUE(contains(outcome.err, R"('\x1b[2J\xc2\x9b' is too much)")) << outcome.err;
  EXPECT_FALSE(contains(outcome.err, "\x1b")) << outcome.err;
  const Outcome gap = run({"sim", "figure", "11", "--log-gap", "10"});
  EXPECT_EQ(gap.status, 2) << gap.err;
  EXPECT_TRUE(contains(gap.err, "--log-gap: 10 bytes are no whole lines")) << gap.err;
  const Outcome epoch =
      run({"sim", "server", "--remote-channels", "1", "--remote-epoch-bytes", "100"});
  EXPECT_EQ(epoch.status, 2) << epoch.err;
  EXPECT_TRUE(contains(epoch.err, "--remote-epoch-bytes: 100 bytes are no whole lines"))
      << epoch.err;
}

TEST(Usage, OptionsOfNoEffectOnASimulationAreRefusedByName) {
  const std::pair<Words, std::string> cases[] = {
      {{"server", "--remote-trace"}, "--remote-trace is of remote channels"},
      {{"server", "--remote-epoch-bytes", "64"}, "--remote-epoch-bytes is of remote channels"},
      {{"server", "--remote-interval-ns", "9"}, "--remote-interval-ns is of remote channels"},
      {{"server", "--remote-channels", "1", "--remote-trace", "--remote-epoch-bytes", "64"},
       "--remote-epoch-bytes is of epochs at random places"},
      {{"figure", "2", "--device", "x"}, "--device is of no effect on figure 2"},
      {{"figure", "4", "--applications", "x"}, "--applications is of no effect on figure 4"},
      {{"figure", "4", "--logging", "redo"}, "--logging is of no effect on figure 4"},
      {{"figure", "13", "--seed", "2"}, "--seed is of no effect on figure 13"},
      {{"figure", "9", "--hardware", "x"}, "--hardware is of no effect on figure 9"},
      {{"network", "--ack-timeout-us", "9"}, "--ack-timeout-us is of lost persist ACKs"},
      {{"network", "--format", "plot", "--epoch-bytes", "64"}, "--epoch-bytes is what"},
      {{"figure", "4", "--report", ""}, "--report: the name of the file is empty"},
      {{"memory", "--device", "x", "--trace", "x", "--commands", ""},
       "--commands: the name of the file is empty"},
      {{"server", "--device", ""}, "--device: the name of the file is empty"}};
  for (auto [words, said] : cases) {
    words.insert(words.begin(), "sim");
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.status, 2) << testing::PrintToString(words) << outcome.err;
    EXPECT_TRUE(contains(outcome.err, said)) << said << ": " << outcome.err;
    EXPECT_EQ(outcome.out, "");
  }
}

TEST(Usage, AnInputOfTheSimulatorIsNotWrittenOver) {
  const test::TestDirectory place;
  const std::string device = place.file("device.toml");
  const std::string trace = place.file("trace.txt");
  write_file(device, read_file(std::string(PERDURE_TREE) + "/configs/hardware/nvm-a.toml"));
  write_file(trace, "W 0x40\n");
  std::filesystem::create_symlink("trace.txt", place.file("link"));
  for (const std::string& commands : {trace, device, place.file("link")}) {
    const Outcome outcome =
        run({"sim", "memory", "--device", device, "--trace", trace, "--commands", commands});
    EXPECT_EQ(outcome.status, 2) << outcome.out;
    EXPECT_TRUE(contains(outcome.err, "'" + commands + "' is an input")) << outcome.err;
  }
  EXPECT_EQ(read_file(trace), "W 0x40\n");
  const Outcome recorded =
      run({"sim", "record", "--device", device, "--output", device, "--", "/bin/true"});
  EXPECT_EQ(recorded.status, 2) << recorded.out;
  EXPECT_TRUE(contains(recorded.err, "is an input")) << recorded.err;
  // Nor what the recorded program is given.
  const Outcome of_program =
      run({"sim", "record", "--output", place.file("link"), "--", "/bin/true", trace});
  EXPECT_EQ(of_program.status, 2) << of_program.out;
  EXPECT_TRUE(contains(of_program.err, "is an input")) << of_program.err;
  EXPECT_EQ(read_file(trace), "W 0x40\n");
  // A trace of nothing is simulated, and that is said.
  write_file(trace, "");
  const Outcome empty = run({"sim", "memory", "--device", device, "--trace", trace});
  EXPECT_EQ(empty.status, 0);
  EXPECT_TRUE(contains(empty.err, "there is no request in it")) << empty.err;
}

TEST(Usage, TheCommandsOfARunThatEndsInADeadlockReplaceNone) {
  const test::TestDirectory place;
  const std::string trace = place.file("trace.txt");
  const std::string commands = place.file("commands.txt");
  // T0's write is behind T1's of the same line, which is of a later epoch than it.
  write_file(trace, "T1 W 0x80\nT1 B\nT1 W 0x40\nT0 W 0x40\n");
  write_file(commands, "old\n");
  const Words words{"sim",        "memory",
                    "--device",   std::string(PERDURE_TREE) + "/configs/hardware/nvm-a.toml",
                    "--order",    "global",
                    "--trace",    trace,
                    "--commands", commands};
  const Outcome stuck = run(words);
  EXPECT_EQ(stuck.status, 1) << stuck.out;
  EXPECT_TRUE(contains(stuck.err, "deadlock in cycle")) << stuck.err;
  EXPECT_EQ(read_file(commands), "old\n");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(place.path()), {}), 2);
  write_file(trace, "T0 W 0x40\n");
  EXPECT_EQ(run(words).status, 0);
  EXPECT_TRUE(contains(read_file(commands), " WR ")) << read_file(commands);
}

TEST(Usage, ATraceThatMayHaveBeenCutIsWarnedOfAndStandardInputIsOne) {
  const test::TestDirectory place;
  const std::string commands = place.file("commands.txt");
  const Words words{
      "sim",     "memory", "--device",   std::string(PERDURE_TREE) + "/configs/hardware/nvm-a.toml",
      "--trace", "-",      "--commands", commands};
  for (const std::string line : {"W", "R 0x", "T1 W "}) {
    const Outcome cut = run(words, "W 0x40\n" + line);
    EXPECT_EQ(cut.status, 1);
    EXPECT_EQ(cut.out, "");
    EXPECT_TRUE(contains(cut.err, "-:2: ")) << cut.err;
    EXPECT_FALSE(std::filesystem::exists(commands)) << "nothing is simulated";
  }
  const Outcome whole = run(words, "W 0x40\nW 0x8\n");
  EXPECT_EQ(whole.status, 0) << whole.err;
  EXPECT_EQ(whole.err, "");
  EXPECT_TRUE(contains(whole.out, "2 requests")) << whole.out;
  // Tools that put newlines between lines leave the last one away.
  const Outcome open = run(words, "W 0x40\nW 0x8");
  EXPECT_EQ(open.status, 0);
  EXPECT_EQ(open.out, whole.out);
  EXPECT_TRUE(contains(open.err, "-:2: the last line ends without a newline; if the trace was cut"))
      << open.err;
}

TEST(Usage, AnInputOfAFigureIsNotWrittenOver) {
  const test::TestDirectory place;
  const std::string tree = std::string(PERDURE_TREE) + "/";
  const std::pair<std::string, std::string> inputs[] = {
      {"--hardware", "configs/hardware/edr-back-to-back.toml"},
      {"--device", "configs/hardware/nvm-a.toml"},
      {"--processor", "configs/hardware/four-cores.toml"},
      {"--applications", "configs/workloads/whisper.toml"}};
  for (const auto& [option, path] : inputs) {
    const std::string input = place.file("input" + option);
    const std::string text = read_file(tree + path);
    write_file(input, text);
    std::filesystem::create_hard_link(input, input + ".hard");
    std::filesystem::create_symlink(input, input + ".link");
    for (const std::string& report : {input, input + ".hard", input + ".link"}) {
      Words words{"sim", "figure", "12", option, input, "--report", report};
      if (report != input) words = {"sim", "all", option, input, "--report", report};
      const Outcome outcome = run(words);
      EXPECT_EQ(outcome.status, 2) << testing::PrintToString(words) << outcome.err;
      EXPECT_TRUE(contains(outcome.err, "'" + report + "' is an input")) << outcome.err;
      EXPECT_EQ(outcome.out, "");
    }
    EXPECT_EQ(read_file(input), text);
    EXPECT_TRUE(std::filesystem::is_symlink(input + ".link"));
  }
}

// A run of minutes must not end with that.
TEST(Usage, WhereAResultCanNotBeWrittenIsSaidBeforeTheRun) {
  const test::TestDirectory place;
  const std::string file = place.file("result.json");
  const Words commands[] = {{"bench", "limits"},
                            {"bench", "remotelog"},
                            {"demo"},
                            {"sim", "figure", "9", "--hardware", "x"}};
  for (const Words& command : commands) {
    const bool bench = command[0] == "bench";
    for (const std::string option : {"--output", "--report"}) {
      if (option == "--output" && !bench) continue;
      for (const std::string& where : {place.file("none/result.json"), place.path()}) {
        Words words = command;
        words.insert(words.end(), {option, where});
        const Outcome outcome = run(words);
        EXPECT_EQ(outcome.status, 2) << testing::PrintToString(words) << outcome.err;
        EXPECT_TRUE(contains(outcome.err, "'" + where + "' can not be written")) << outcome.err;
      }
    }
  }
  EXPECT_FALSE(contains(run({"log", "read"}).err, "can not be written"));
  // Nothing is made of it, and nothing lost, before there is a result.
  write_file(file, "of before");
  EXPECT_EQ(run({"bench", "files", place.file("nowhere"), "--output", file}).status, 1);
  EXPECT_EQ(read_file(file), "of before");
  EXPECT_NE(run({"bench", "files", place.file("nowhere"), "--output", place.file("new")}).status,
            0);
  EXPECT_NE(::access(place.file("new").c_str(), F_OK), 0);
}

TEST(Usage, AWordThatEndsTooEarlyOrGoesOnIsKnown) {
  //                 command      option        what is said
  const std::pair<std::pair<std::string, std::string>, std::string> cases[] = {
      {{"trim", "--keep"}, "'--keep'; did you mean '--keep-records'?"},  // two letters from --help
      {{"append", "--keep"}, "'--keep'; did you mean '--keep-newline'?"},
      {{"read", "--from-lsn"}, "'--from-lsn'; did you mean '--from'?"},
      {{"read", "--form"}, "'--form'; did you mean '--from'?"},  // a slip, before --format
      {{"read", "--p"}, "'--p'; `--help` lists them"}};
  for (const auto& [typed, said] : cases) {
    const Outcome outcome = run({"log", typed.first, typed.second});
    EXPECT_EQ(outcome.status, 2) << outcome.out;
    EXPECT_TRUE(contains(outcome.err, "there is no option " + said)) << outcome.err;
  }
  EXPECT_TRUE(contains(run({"stat"}).err, "no command 'stat'; did you mean 'status'?"));
  EXPECT_TRUE(contains(run({"upgrade"}).err, "no command 'upgrade'; `--help`"));
  EXPECT_TRUE(contains(run({"plan", "--transport", "infini"}).err, "did you mean 'infiniband'?"));
}

void expect_mistake(const Words& words, const std::string& said) {
  const Outcome outcome = run(words);
  const std::string line = testing::PrintToString(words);
  EXPECT_EQ(outcome.status, 2) << line << outcome.out << outcome.err;
  EXPECT_TRUE(contains(outcome.err, said)) << line << "\n" << outcome.err;
  EXPECT_EQ(outcome.out, "") << line;
}

TEST(Usage, AMistakeIsNamedAndNothingIsDone) {
  //                 command line                                          what is said
  const std::pair<Words, std::string> cases[] = {
      {{"lag"}, "no command 'lag'; did you mean 'log'?"},
      {{"log", "apend"}, "no command 'apend'; did you mean 'append'?"},
      {{"log", "apend", "--peers", "127.0.0.1:1", "--pool", "p"},
       "no command 'apend'; did you mean 'append'?"},
      {{"lgo", "append", "--peers", "127.0.0.1:1"}, "no command 'lgo'; did you mean 'log'?"},
      {{"elephant"}, "no command 'elephant'; `--help`"},
      {{"log", "read", "--peers", "127.0.0.1:1", "--pool", "p", "--mx", "3"},
       "no option '--mx'; did you mean '--max'?"},
      {{"log", "read", "--peers", "127.0.0.1:1", "--pool", "p", "3"}, "'3' is one word too many"},
      {{"log", "trim", "--peers", "127.0.0.1:1", "--pool", "a", "--lsn", "1"}, "no option '--lsn'"},
      {{"log", "append", "--pool", "p"}, "--peers"},
      {{"log", "append", "--peers", "127.0.0.1:1"}, "--pool"},
      {{"log", "append", "--peers", "nowhere", "--pool", "p"}, "nowhere"},
      {{"log", "append", "--peers", "127.0.0.1:1", "--pool", "../p"}, "../p"},
      {{"log", "append", "--peers", "127.0.0.1:1", "--pool", "p", "--window", "0"}, "--window"},
      {{"log", "append", "--peers", "127.0.0.1:1", "--pool", "p", "--shape", "round"}, "round"},
      {{"log", "append", "--peers", "127.0.0.1:1", "--pool", "p", "--shape", "compond"},
       "did you mean 'compound'?"},
      {{"log", "append", "--peers", "127.0.0.1:1", "--pool", "p", "--level", "safe"}, "safe"},
      {{"log", "append", "--peers", "127.0.0.1:1", "--pool", "p", "--level", "received"},
       "visible, durable"},
      {{"log", "append", "--peers", "127.0.0.1:1", "--pool", "p", "--transport", "pigeon"},
       "pigeon"},
      {{"log", "read", "--peers", "127.0.0.1:1", "--pool", "p", "--transport", "infinband"},
       "did you mean 'infiniband'?"},
      {{"log", "read", "--peers", "127.0.0.1:1", "--pool", "p", "--framed", "--raw"}, "--raw"},
      {{"log", "trim", "--peers", "127.0.0.1:1", "--pool", "p"}, "--keep-records"},
      {{"log", "verify"}, "nothing to verify"},
      {{"log", "verify", "--pool", "p"}, "--peers"},
      {{"log", "verify", "--peers", "127.0.0.1:1"}, "--pool"},
      {{"log", "verify", "--pool", "p", "--file", "x"}, "--peers"},
      {{"pool", "create", "--peers", "127.0.0.1:1", "--pool", "p", "--bytes", "much"}, "much"},
      {{"pool", "list"}, "--peers"},
      {{"plan", "--domain", "moon"}, "none, page, dmp, mhp, wsp"},
      {{"plan", "--shape", "0+1"}, "0+1"},
      {{"plan", "--shape", "60+60"}, "60+60"},
      {{"plan", "--bytes", "many"}, "many"},
      {{"plan", "--domain", "dpm"}, "did you mean 'dmp'?"},
      {{"plan", "--format", "poem"}, "poem"},
      {{"plan", "--format", "jsn"}, "did you mean 'json'?"},
      {{"bench", "limits", "--fabric", "tpc"},
       "there is no 'tpc'; use one of: tcp, shm, verbs, all; did you mean 'tcp'?"},
      {{"bench", "rpc"}, "--explain"},
      {{"bench", "rpc", "--explain", "nosuch"},
       "there is no design 'nosuch'; there are: darpc, fasst, sflush"},
      {{"up", "--bytes", "8KiB"}, "between 76 KiB and"},
      {{"plan", "--peers", "127.0.0.1:1"}, "--pool"},
      {{"plan", "--pool", "p"}, "--peers"},
      {{"plan", "--peers", "127.0.0.1:1,127.0.0.1:2", "--pool", "p"}, "one peer"},
      {{"plan", "--peers", "127.0.0.1:1", "--pool", "p", "--ddio", "off"}, "--ddio"},
      {{"plan", "--peers", "127.0.0.1:1", "--pool", "p", "--all"}, "--all"},
      {{"probe", "--config", "x.toml"}, "--doctor"},
      {{"check"}, "--method"},
      {{"check", "--all", "--known-unsafe"}, "--all"},
      {{"check", "--all", "--format", "svg"}, "one picture"},
      {{"check", "--method", "a", "--updates", "1000"}, "--updates"},
  };
  for (const auto& [words, said] : cases) expect_mistake(words, said);
}

TEST(Usage, WhatIsMissingIsNamedAndWhatWouldDo) {
  //                 command line                                          what is said
  const std::pair<Words, std::string> cases[] = {
      {{}, "a subcommand is required: status, log, pool, "},
      {{"help"}, "no command 'help'; did you mean '--help'?"},
      {{"bench", "help"}, "no command 'help'; did you mean '--help'?"},
      {{"log"}, "a subcommand is required: append, "},
      {{"bench"}, "remotelog"},
      {{"check", "--list", "extra"}, "'extra' is one word too many"},
      {{"status"},
       "--peers is required: PERDURE_PEERS or `peers` in ~/.config/perdure/client.toml"},
      {{"status"}, "`perdure up` starts peers"},
      {{"log", "status", "--peers", "127.0.0.1:1"},
       "--pool is required: PERDURE_POOL or `pool` in"},
      {{"pool", "delete", "--pool", "p"},
       "--peers is required: PERDURE_PEERS and client.toml do not count here"},
      {{"pool", "delete", "--peers", "127.0.0.1:1"},
       "--pool is required: PERDURE_POOL and client.toml do not count here"},
  };
  for (const auto& [words, said] : cases) expect_mistake(words, said);
}

TEST(Usage, WhatMirrorRunMirrorsHasToBeNamed) {
  const std::pair<Words, std::string> cases[] = {
      {{}, "--map is required"},
      {{"--map", "tree"}, "'tree' is not FILE=POOL"},
      {{"--map", "/tmp/a=a", "--map", "/tmp/a=b"}, "is that of another --map"},
  };
  for (const auto& [maps, said] : cases) {
    Words words{"mirror", "run", "--peers", "127.0.0.1:1"};
    words.insert(words.end(), maps.begin(), maps.end());
    words.insert(words.end(), {"--", "true"});
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.status, 2) << outcome.out << outcome.err;
    EXPECT_TRUE(contains(outcome.err, said)) << outcome.err;
  }
}

}  // namespace
}  // namespace perdure::cli
