// libpmemobj, libpmempool and pmempool as Debian ships them, with sets that have remote replicas.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "tests/compat/obeying_program.h"
#include "tests/compat/target.h"

namespace perdure {
namespace {

using test::run_client;

class PmdkClients : public testing::Test {
 protected:
  explicit PmdkClients(const char* transport = "shm")
      : target_(transport, test::Target::Medium::Memory) {}
  /// Makes the pool and runs transactions on it.
  void fill(const std::string& set, const char* transactions = "20") const {
    const auto made = run_client({OBJTX, "create", set});
    ASSERT_EQ(made.status, 0) << made.output;
    const auto ran = run_client({OBJTX, "run", set, transactions});
    ASSERT_EQ(ran.status, 0) << ran.output;
  }
  static void expect_whole(const std::string& set, const std::string& transactions = "20\n") {
    const auto checked = run_client({OBJTX, "check", set});
    EXPECT_EQ(checked.status, 0) << checked.output;
    EXPECT_EQ(checked.output, transactions);
  }
  static void expect_success(const std::vector<std::string>& command) {
    const auto outcome = run_client(command);
    EXPECT_EQ(outcome.status, 0) << command[0] << " " << command[1] << ": " << outcome.output;
  }
  test::Target target_;
};

class PmdkClientsOverTcp : public PmdkClients {
 protected:
  PmdkClientsOverTcp() : PmdkClients("tcp") {}
};

TEST_F(PmdkClientsOverTcp, ALostLocalPartComesBackFromTheReplica) {
  target_.serve_set("r.set", {"10M"});
  const std::string set = target_.client_set("l.set", "10M", {"r.set"});
  fill(set);
  EXPECT_EQ(run_client({"pmempool", "info", target_.at_home("r.set.0")}).status, 0);
  std::filesystem::remove(target_.here("l.set.0"));
  EXPECT_NE(run_client({OBJTX, "check", set}).status, 0);
  expect_success({"pmempool", "sync", set});
  expect_whole(set);
  expect_success({"pmempool", "rm", set});
  EXPECT_FALSE(std::filesystem::exists(target_.at_home("r.set.0")));
  EXPECT_TRUE(std::filesystem::exists(target_.at_home("r.set")));
}

TEST_F(PmdkClients, ALostReplicaComesBackFromTheLocalPart) {
  target_.serve_set("r.set", {"10M"});
  const std::string set = target_.client_set("l.set", "10M", {"r.set"});
  fill(set);
  std::filesystem::remove(target_.at_home("r.set.0"));
  expect_success({"pmempool", "sync", set});
  expect_whole(set);
  std::filesystem::remove(target_.here("l.set.0"));
  expect_success({"pmempool", "sync", set});
  expect_whole(set);
}

TEST_F(PmdkClients, TwoReplicasEachHaveAll) {
  target_.serve_set("one.set", {"10M"});
  target_.serve_set("two.set", {"10M"});
  const std::string set = target_.client_set("l.set", "10M", {"one.set", "two.set"});
  fill(set);
  std::filesystem::remove(target_.here("l.set.0"));
  std::filesystem::remove(target_.at_home("one.set.0"));
  expect_success({"pmempool", "sync", set});
  expect_whole(set);
}

TEST_F(PmdkClients, ReplicasOfSeveralPartsAndASingleHeader) {
  target_.serve_set("r.set", {"4M", "4M", "4M"}, "SINGLEHDR");
  const std::string set = target_.client_set("l.set", "10M", {"r.set"}, "SINGLEHDR");
  fill(set);
  std::filesystem::remove(target_.here("l.set.0"));
  expect_success({"pmempool", "sync", set});
  expect_whole(set);
  // Parts with headers of their own.
  target_.serve_set("h.set", {"4M", "4M", "4M"});
  const std::string other = target_.client_set("o.set", "10M", {"h.set"});
  fill(other);
  EXPECT_EQ(run_client({"pmempool", "info", target_.at_home("h.set.2")}).status, 0);
  std::filesystem::remove(target_.here("o.set.0"));
  expect_success({"pmempool", "sync", other});
  expect_whole(other);
}

TEST_F(PmdkClients, TransformTakesAReplicaAwayAndAddsOne) {
  target_.serve_set("r.set", {"10M"});
  const std::string with = target_.client_set("l.set", "10M", {"r.set"});
  fill(with);
  test::write_text(target_.here("alone.set"),
                   fmt::format("PMEMPOOLSET\n10M {}.0\n", target_.here("l.set")));
  expect_success({"pmempool", "transform", with, target_.here("alone.set")});
  EXPECT_FALSE(std::filesystem::exists(target_.at_home("r.set.0")));
  expect_whole(target_.here("alone.set"));
  expect_success({"pmempool", "transform", target_.here("alone.set"), with});
  EXPECT_TRUE(std::filesystem::exists(target_.at_home("r.set.0")));
  expect_whole(with);
}

// What libpmemobj's own message does not say.
TEST_F(PmdkClients, TheLibrarySaysInItsLogWhatWentWrong) {
  const std::string set = target_.client_set("l.set", "10M", {"r.set"});
  const std::string log = target_.here("log");
  const auto run = [&](const std::string& level) {
    return run_client({"/usr/bin/env", "RPMEM_LOG_LEVEL=" + level, "RPMEM_LOG_FILE=" + log, OBJTX,
                       "create", set});
  };
  EXPECT_NE(run("0").status, 0);
  EXPECT_FALSE(std::filesystem::exists(log));
  EXPECT_NE(run("1").status, 0);
  const std::string said = test::read_whole(log);
  EXPECT_NE(said.find("<librpmem> rpmem_create: "), std::string::npos) << said;
  EXPECT_NE(said.find("r.set"), std::string::npos) << said;
}

// The daemon is killed under a program: a warning, for the program goes on.
TEST_F(PmdkClients, ItsLogHasWhatItsLevelSays) {
  target_.serve_set("r.set", {"10M"});
  const std::string set = target_.client_set("l.set", "10M", {"r.set"});
  fill(set);
  const std::string log = target_.here("log");
  ::setenv("RPMEM_LOG_FILE", log.c_str(), 1);
  for (const char* level : {"1", "2", "3", "4", "all", "-1", ""}) {
    ::setenv("RPMEM_LOG_LEVEL", level, 1);
    std::filesystem::remove(log);
    test::ObeyingProgram program(OBJTX, set, target_.here("output"));
    ASSERT_NO_FATAL_FAILURE(program.start());
    test::kill_rpmemd(target_.daemons().back());
    program.tell();
    ASSERT_TRUE(program.says_more(30)) << program.said();
    program.tell();
    ASSERT_TRUE(program.waits()) << program.said();
    program.process().kill();
    const std::string said = test::read_whole(log);
    const std::string levels = "234";
    const bool warns = *level != '\0' && levels.find(level) != std::string::npos;
    EXPECT_EQ(said.find("the connection is back") != std::string::npos, warns) << level << said;
  }
  ::unsetenv("RPMEM_LOG_FILE");
  ::setenv("RPMEM_LOG_LEVEL", "1", 1);
  std::filesystem::remove(target_.at_home("r.set.0"));
  const std::string nowhere = target_.here("none/log");
  const auto opened =
      run_client({"/usr/bin/env", "RPMEM_LOG_FILE=" + nowhere, OBJTX, "check", set});
  EXPECT_NE(opened.status, 0);
  for (const std::string& words :
       {"RPMEM_LOG_FILE '" + nowhere, std::string("No such file"), std::string("rpmem_open: ")}) {
    EXPECT_NE(opened.output.find(words), std::string::npos) << words << ": " << opened.output;
  }
}

TEST_F(PmdkClients, WithoutTheTargetAPoolIsNotMade) {
  const std::string set = target_.client_set("l.set", "10M", {"r.set"});
  const auto made = run_client({OBJTX, "create", set});
  EXPECT_NE(made.status, 0);
  EXPECT_FALSE(std::filesystem::exists(target_.here("l.set.0")));
}

}  // namespace
}  // namespace perdure
