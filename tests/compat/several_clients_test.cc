// Several programs on libpmemobj against one target at the same time, and programs that are killed
// while they have a pool open: what the others have is whole, and what was theirs is free at once.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "testing/process.h"
#include "tests/compat/listening_rpmemd.h"
#include "tests/compat/obeying_program.h"
#include "tests/compat/target.h"

namespace perdure {
namespace {

using test::last_of;
using test::run_client;

// libpmemobj keeps some words of its allocator in the pool that it never persists.
constexpr std::size_t kNeverPersistedMax = 64;
constexpr std::size_t kSomeLines = 60;  // bytes of what a program says of its transactions

/// How the daemon is reached: as ssh does, or one that listens in ssh's place.
class SeveralClients : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (std::string(GetParam()) != "listening") return;
    daemon_.start(target_, "127.0.0.1");
    host_ = daemon_.host();
  }
  /// A set of the client's with one replica, and the pool in it.
  std::string make(const std::string& name) {
    target_.serve_set(name + "-there.set", {"10M"});
    const std::string set = local_set(name, name + "-there.set");
    const auto made = run_client({OBJTX, "create", set});
    EXPECT_EQ(made.status, 0) << made.output;
    return set;
  }
  std::string local_set(const std::string& name, const std::string& there) const {
    const std::string set = target_.here(name + ".set");
    test::write_text(set, "PMEMPOOLSET\n10M " + set + ".0\nREPLICA " + host_ + " " + there + "\n");
    return set;
  }
  std::unique_ptr<test::ObeyingProgram> program(const std::string& set) const {
    return std::make_unique<test::ObeyingProgram>(OBJTX, set, set + ".output");
  }
  void expect_equal(const std::string& name) const {
    EXPECT_LE(test::different_bytes(target_.here(name + ".set.0"),
                                    target_.at_home(name + "-there.set.0")),
              kNeverPersistedMax);
  }

  test::Target target_{"shm", test::Target::Medium::Memory};
  test::ListeningDaemon daemon_;
  std::string host_ = "localhost";
};

INSTANTIATE_TEST_SUITE_P(ReachedBy, SeveralClients, testing::Values("ssh", "listening"),
                         [](const auto& each) { return std::string(each.param); });

// Two programs, each with a set of its own at one target, run transactions at the same time. One is
// killed and started again, five times. Expect: it has its pool at once each time, with all that it
// committed; the other one never stops, and has all of its own.
TEST_P(SeveralClients, WhoIsKilledTakesNothingFromTheOther) {
  const auto steady = program(make("steady"));
  const auto killed = program(make("killed"));
  ASSERT_NO_FATAL_FAILURE(steady->start());
  ASSERT_NO_FATAL_FAILURE(killed->start());
  steady->tell();
  for (int times = 0; times < 5; ++times) {
    killed->tell();
    ASSERT_TRUE(killed->says_more(kSomeLines)) << killed->said();
    killed->process().kill();
    const std::uint64_t committed = last_of(killed->said());
    ASSERT_NO_FATAL_FAILURE(killed->start());
    EXPECT_GE(last_of(killed->said(), "checked "), committed);
    ASSERT_TRUE(steady->says_more(kSomeLines)) << steady->said();
  }
  expect_equal("killed");
  steady->forget();
  ASSERT_TRUE(steady->says_more(kSomeLines)) << steady->said();
  steady->tell();
  ASSERT_TRUE(steady->waits()) << steady->said();
  const std::string said = steady->said();
  EXPECT_EQ(last_of(said, "checked "), last_of(said.substr(0, said.find("checked "))));
  expect_equal("steady");
}

// A second program comes to the same replica with a local part of its own: a copy, for libpmemobj
// itself guards the one that is in use. Expect: it is refused while the first one has the pool,
// with the reason in the log, and takes it once the first one was killed.
TEST_P(SeveralClients, ThePoolIsOneProgramsUntilThatIsGone) {
  const std::string set = make("first");
  const std::string second = local_set("second", "first-there.set");
  std::filesystem::copy_file(set + ".0", second + ".0");
  const auto first = program(set);
  ASSERT_NO_FATAL_FAILURE(first->start());
  const std::string log = target_.here("log");
  const auto refused = run_client(
      {"/usr/bin/env", "RPMEM_LOG_LEVEL=1", "RPMEM_LOG_FILE=" + log, OBJTX, "check", second});
  EXPECT_NE(refused.status, 0);
  const std::string why = test::read_whole(log);
  EXPECT_NE(why.find("first-there.set.0"), std::string::npos) << why;
  EXPECT_NE(why.find("in use"), std::string::npos) << why;
  // The first one has lost nothing by that.
  first->tell();
  ASSERT_TRUE(first->says_more(kSomeLines)) << first->said();
  first->tell();
  ASSERT_TRUE(first->waits()) << first->said();
  expect_equal("first");
  first->process().kill();
  const auto taken = run_client({OBJTX, "check", set});
  EXPECT_EQ(taken.status, 0) << taken.output;
}

// PMDK's libraries read the set file, and run what is in ssh's place themselves.
TEST(PmdkClientsOverIpv6, NameTheTargetByItsAddress) {
  if (!test::has_ipv6()) GTEST_SKIP() << "no IPv6 on loopback";
  const test::Target target("shm", test::Target::Medium::Memory);
  test::ListeningDaemon daemon;
  ASSERT_NO_FATAL_FAILURE(daemon.start(target, "[::1]"));
  target.serve_set("r.set", {"10M"});
  const std::string set = target.here("l.set");
  test::write_text(set, "PMEMPOOLSET\n10M " + set + ".0\nREPLICA " + daemon.host() + " r.set\n");
  const auto works = [](const std::vector<std::string>& command) {
    const auto outcome = run_client(command);
    EXPECT_EQ(outcome.status, 0) << command[0] << " " << command[1] << ": " << outcome.output;
    return outcome.output;
  };
  works({OBJTX, "create", set});
  works({OBJTX, "run", set, "20"});
  std::filesystem::remove(set + ".0");
  works({"pmempool", "sync", set});
  EXPECT_EQ(works({OBJTX, "check", set}), "20\n");
  works({"pmempool", "rm", set});
  EXPECT_FALSE(std::filesystem::exists(target.at_home("r.set.0")));
}

}  // namespace
}  // namespace perdure
