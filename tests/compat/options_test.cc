// rpmemd's options and configuration files, those of PMDK's daemon: what each does, in which order
// they count, and what is said of a wrong one: its name, what is wrong, and what would be right.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <librpmem.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "testing/process.h"
#include "tests/compat/client.h"
#include "tests/compat/target.h"

namespace perdure {
namespace {

using test::create;
using test::Memory;
using test::refused;

constexpr int kExitUsage = 2;

class RpmemdOptions : public testing::Test {
 protected:
  RpmemdOptions() : ssh_(test::read_whole(target_.at_home("ssh"))) {
    target_.serve_set("r.set", {"4M"});
    directory("home");
  }
  std::string at(const std::string& name) const { return target_.here(name); }
  /// rpmemd by hand, in a home that has no configuration unless the test writes one.
  test::Outcome run(const std::vector<std::string>& arguments,
                    const std::vector<std::string>& before = {}) const {
    std::vector<std::string> command = before;
    command.insert(command.end(), {"/usr/bin/env", "HOME=" + at("home"), RPMEMD});
    command.insert(command.end(), arguments.begin(), arguments.end());
    test::write_text(at("output"), "");
    auto child = test::ChildProcess::start(command, at("output"));
    EXPECT_TRUE(child.ok());
    if (!child.ok()) return {};
    child->wait();
    return {child->end()->status, test::read_whole(at("output"))};
  }
  /// It ends with this status, and says all of these words.
  void expect_refused(const std::vector<std::string>& arguments, int status,
                      const std::vector<std::string>& words) const {
    const auto outcome = run(arguments);
    EXPECT_EQ(outcome.status, status) << outcome.output;
    for (const std::string& each : words) {
      EXPECT_NE(outcome.output.find(each), std::string::npos)
          << "'" << each << "' in: " << outcome.output;
    }
  }
  /// A directory with a set file x.set, whose part is not there.
  std::string directory(const std::string& name) const {
    std::filesystem::create_directory(at(name));
    test::write_text(at(name + "/x.set"), fmt::format("PMEMPOOLSET\n4M {}/part\n", at(name)));
    return at(name);
  }
  bool has_set(const std::string& directory) const {
    return std::filesystem::exists(at(directory + "/x.set"));
  }
  /// What the daemon wrote to its log while a pool was made, asked for again, closed and removed.
  std::string log_of(const std::string& arguments) const {
    std::filesystem::remove(at("log"));
    target_.daemon_arguments(arguments);
    const Memory memory;
    RPMEMpool* const pool = create(memory);
    EXPECT_NE(pool, nullptr) << rpmem_errormsg();
    if (pool == nullptr) return "";
    EXPECT_EQ(refused(create(memory) == nullptr), EEXIST);
    EXPECT_EQ(rpmem_close(pool), 0) << rpmem_errormsg();
    EXPECT_EQ(rpmem_remove("localhost", "r.set", 0), 0) << rpmem_errormsg();
    return test::read_whole(at("log"));
  }
  static bool has(const std::string& text, const std::string& words) {
    return text.find(words) != std::string::npos;
  }

  const test::Target target_{"shm", test::Target::Medium::Memory};
  const std::string ssh_;
};

TEST_F(RpmemdOptions, VersionIsSaidAndNothingElseDone) {
  for (const std::string name : {"--version", "-V"}) {
    const auto outcome = run({name});
    EXPECT_EQ(outcome.status, 0) << name;
    EXPECT_TRUE(outcome.output.starts_with("rpmemd ")) << outcome.output;
  }
  expect_refused({"--no-such-option"}, kExitUsage, {"--no-such-option"});
}

TEST_F(RpmemdOptions, RemoveTakesThePartsAndWhatItIsTold) {
  const std::string sets = directory("sets");
  const std::vector<std::string> remove = {"--poolset-dir", sets, "--remove", "x.set"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), remove.begin(), remove.end());
    return more;
  };
  expect_refused(remove, ENOENT, {sets + "/part", "No such file"});
  EXPECT_EQ(run(with({"--force"})).status, 0);
  EXPECT_TRUE(has_set("sets"));
  test::write_text(sets + "/part", "");
  EXPECT_EQ(run(remove).status, 0);
  EXPECT_FALSE(std::filesystem::exists(sets + "/part"));
  EXPECT_TRUE(has_set("sets"));
  EXPECT_EQ(run(with({"--force", "--pool-set"})).status, 0);
  EXPECT_FALSE(has_set("sets"));
  expect_refused(remove, ENOENT, {sets + "/x.set"});
  EXPECT_EQ(run(with({"--force"})).status, 0);
  EXPECT_EQ(run({"-r", "x.set", "-f", "-s", "--poolset-dir", directory("sets")}).status, 0);
  EXPECT_FALSE(has_set("sets"));
  // A part whose directory is gone keeps none of the others.
  const std::string halves = directory("halves");
  test::write_text(halves + "/x.set",
                   fmt::format("PMEMPOOLSET\n4M {0}/part\n4M {0}/away/part\n", halves));
  test::write_text(halves + "/part", "");
  const std::vector<std::string> half = {"--poolset-dir", halves, "--remove", "x.set"};
  expect_refused(half, ENOENT, {halves + "/away"});
  EXPECT_TRUE(std::filesystem::exists(halves + "/part"));
  EXPECT_EQ(run({"--poolset-dir", halves, "--remove", "x.set", "--force", "--pool-set"}).status, 0);
  EXPECT_FALSE(std::filesystem::exists(halves + "/part"));
  EXPECT_FALSE(has_set("halves"));
  expect_refused({"--poolset-dir", sets, "--remove", "../x.set"}, EINVAL, {"../x.set"});
  expect_refused({"--force"}, kExitUsage, {"--force", "--remove"});
  expect_refused({"--pool-set"}, kExitUsage, {"--pool-set", "--remove"});
  expect_refused({"--remove"}, kExitUsage, {"--remove"});
}

// The home, unless a file says otherwise; the file of the user after the machine's; and before both
// what the command line says. A file that it names is in place of both.
TEST_F(RpmemdOptions, WhatIsSaidLastCounts) {
  for (const char* name : {"home/user", "named", "line"}) directory(name);
  const std::vector<std::string> remove = {"--remove", "x.set", "--force", "--pool-set"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), remove.begin(), remove.end());
    return more;
  };
  EXPECT_EQ(run(remove).status, 0);
  EXPECT_FALSE(has_set("home"));
  directory("home");
  test::write_text(at("home/.rpmemd.conf"), "poolset-dir = $HOME/user\n");
  test::write_text(at("named.conf"), "# no other\npoolset-dir = " + at("named") + "\n");
  EXPECT_EQ(run(remove).status, 0);
  EXPECT_FALSE(has_set("home/user"));
  EXPECT_EQ(run(with({"--config", at("named.conf")})).status, 0);
  EXPECT_FALSE(has_set("named"));
  EXPECT_EQ(run(with({"-c", at("named.conf"), "--poolset-dir", at("line")})).status, 0);
  EXPECT_FALSE(has_set("line"));
  EXPECT_TRUE(has_set("home"));
  // What is wrong in a file that does not count does not matter.
  test::write_text(at("home/.rpmemd.conf"), "nonsense\n");
  directory("named");
  EXPECT_EQ(run(with({"--config", at("named.conf")})).status, 0);
  EXPECT_FALSE(has_set("named"));
  expect_refused(remove, EINVAL, {at("home/.rpmemd.conf") + ":1", "key = value"});
}

TEST_F(RpmemdOptions, TheMachinesFileCountsBeforeTheUsers) {
  // In a view of the machine with an /etc of our own.
  std::filesystem::create_directories(at("etc/rpmemd"));
  const std::string script = at("with-etc");
  test::write_text(script,
                   fmt::format("#!/bin/sh\nmount --bind '{}' /etc && exec \"$@\"\n", at("etc")));
  ASSERT_EQ(::chmod(script.c_str(), 0755), 0);
  const std::vector<std::string> apart = {"/usr/bin/unshare", "--map-root-user", "--mount", script};
  if (run({"--version"}, apart).status != 0) GTEST_SKIP() << "no mount namespaces here";
  directory("machine");
  directory("user");
  test::write_text(at("etc/rpmemd/rpmemd.conf"), "poolset-dir = " + at("machine") + "\n");
  const std::vector<std::string> remove = {"--remove", "x.set", "--force", "--pool-set"};
  EXPECT_EQ(run(remove, apart).status, 0);
  EXPECT_FALSE(has_set("machine"));
  directory("machine");
  test::write_text(at("home/.rpmemd.conf"), "poolset-dir = " + at("user") + "\n");
  EXPECT_EQ(run(remove, apart).status, 0);
  EXPECT_FALSE(has_set("user"));
  EXPECT_TRUE(has_set("machine"));
  test::write_text(at("etc/rpmemd/rpmemd.conf"), "\nlog-level = loud\n");
  const auto wrong = run(remove, apart);
  EXPECT_EQ(wrong.status, EINVAL);
  EXPECT_TRUE(has(wrong.output, "/etc/rpmemd/rpmemd.conf:2: log-level: 'loud'")) << wrong.output;
}

TEST_F(RpmemdOptions, TheLogHasWhatItsLevelSays) {
  const std::string refusal = "r.set.0";  // of the second client, which is told so as well
  const std::string opened = "pool 'replica' is open";
  for (const char* level : {"err", "warn", "notice", "info", "debug"}) {
    const std::string log = log_of("--log-file '" + at("log") + "' --log-level " + level);
    EXPECT_TRUE(has(log, "rpmemd[") && has(log, refusal)) << level << ": " << log;
    const bool all = std::string(level) == "info" || std::string(level) == "debug";
    EXPECT_EQ(has(log, opened), all) << level << ": " << log;
  }
  // As in a file, where nothing is said of a level: errors.
  const std::string usual = log_of("--log-file '" + at("log") + "'");
  EXPECT_TRUE(has(usual, refusal) && !has(usual, opened)) << usual;
  expect_refused({"--remove", "x.set", "--log-level", "loud"}, EINVAL,
                 {"log-level", "'loud'", "err, warn, notice, info and debug"});
  expect_refused({"--remove", "x.set", "--log-file", "log"}, EINVAL,
                 {"log-file", "'log'", "not absolute", "$HOME"});
  expect_refused({"--remove", "x.set", "--log-file", at("none/log")}, EINVAL,
                 {"log-file", at("none/log"), "No such file", "name another"});
}

TEST_F(RpmemdOptions, SyslogHasItUnlessAFileHas) {
  std::string text = ssh_;
  text.insert(text.find("exec '") + 5, fmt::format("env LD_PRELOAD='{} {}' SYSLOG_FILE='{}' ",
                                                   SANITIZER_LIBRARY, SYSLOG_TO_FILE, at("log")));
  const auto with = [&](const std::string& arguments) {
    std::string script = text;
    const std::string place = "/conf'";
    script.insert(script.find(place) + place.size(), " " + arguments);
    std::filesystem::remove(at("log"));
    test::write_text(target_.at_home("ssh"), script);
    EXPECT_EQ(refused(create(Memory(), "none.set") == nullptr), ENOENT) << rpmem_errormsg();
    return test::read_whole(at("log"));
  };
  EXPECT_EQ(with(""), "");  // the target's file says no
  const std::string said = with("--use-syslog");
  EXPECT_TRUE(said.starts_with("3 ") && has(said, "none.set")) << said;  // LOG_ERR
  // Where nothing is said of it.
  test::write_text(target_.at_home("conf"), "poolset-dir = " + target_.home() + "\n");
  EXPECT_TRUE(has(with(""), "none.set"));
  test::write_text(target_.at_home("conf"),
                   "poolset-dir = " + target_.home() + "\nlog-file = " + at("own-log") + "\n");
  EXPECT_EQ(with(""), "");
  EXPECT_TRUE(has(test::read_whole(at("own-log")), "none.set"));
  test::write_text(at("bad.conf"), "use-syslog = maybe\n");
  expect_refused({"--remove", "x.set", "--config", at("bad.conf")}, EINVAL,
                 {"bad.conf:1", "use-syslog", "'maybe'", "yes or no"});
}

TEST_F(RpmemdOptions, PersistApmSaysThatWritesBypassTheCaches) {
  const std::string log = "--log-level info --log-file '" + at("log") + "'";
  EXPECT_TRUE(has(log_of(log), "ddio on")) << test::read_whole(at("log"));
  EXPECT_TRUE(has(log_of(log + " --persist-apm"), "ddio off")) << test::read_whole(at("log"));
  // The other one, and how many threads, change nothing.
  EXPECT_TRUE(has(log_of(log + " --persist-general --nthreads 3"), "ddio on"));
  test::write_text(at("bad.conf"), "persist-general = yes\npersist-apm = 1\n");
  expect_refused({"--remove", "x.set", "--config", at("bad.conf")}, EINVAL,
                 {"bad.conf:2", "persist-apm", "'1'", "yes or no"});
  test::write_text(at("bad.conf"), "persist-general = on\n");
  expect_refused({"--remove", "x.set", "--config", at("bad.conf")}, EINVAL,
                 {"bad.conf:1", "persist-general", "'on'", "yes or no"});
  for (const char* wrong : {"many", "-1", "3x", ""}) {
    expect_refused({"--nthreads", wrong}, kExitUsage, {"--nthreads"});
  }
}

TEST_F(RpmemdOptions, AWrongFileIsSaidToWhoRunsItAndToTheClient) {
  expect_refused({"--remove", "x.set", "--config", at("none.conf")}, EINVAL,
                 {at("none.conf"), "No such file", "--config"});
  expect_refused({"--remove", "x.set", "--poolset-dir", "sets"}, EINVAL,
                 {"poolset-dir", "'sets'", "not absolute", "$HOME"});
  expect_refused({"--remove", "x.set", "--declare-domain", "all"}, EINVAL,
                 {"declare-domain", "'all'", "wsp"});
  expect_refused({"--listen", "127.0.0.1:0", "--log-level", "loud"}, kExitUsage,
                 {"log-level", "'loud'"});
  test::write_text(target_.at_home("conf"), "\nmax-lanes = 4\n");
  EXPECT_EQ(refused(create(Memory()) == nullptr), EINVAL);
  const std::string said = rpmem_errormsg();
  EXPECT_TRUE(has(said, "localhost") && has(said, target_.at_home("conf") + ":2: max-lanes"))
      << said;
  EXPECT_TRUE(has(said, "there are poolset-dir")) << said;
}

}  // namespace
}  // namespace perdure
