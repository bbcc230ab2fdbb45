// libpmemobj's program and rpmemd, either of them killed at random while transactions run. After
// each time: what was committed is there, the program's invariants hold, and both sides are equal.
// From time to time PMDK's tools look at the replica, and make the local pool anew from it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>

#include "core/random.h"
#include "testing/process.h"
#include "testing/soak.h"
#include "tests/compat/obeying_program.h"
#include "tests/compat/target.h"

namespace perdure {
namespace {

using test::last_of;
using test::run_client;

class KilledUnderLoad : public testing::TestWithParam<const char*> {
 protected:
  KilledUnderLoad() : program_(OBJTX, target_.here("l.set"), target_.here("output")) {
    target_.serve_set("r.set", {"10M"});
    set_ = target_.client_set("l.set", "10M", {"r.set"});
  }

  /// The program opens the pool, finds all that was committed, and waits.
  void start() {
    program_.start();
    judge();
  }

  /// Who is killed is drawn, and when.
  void round(Random& random) {
    program_.forget();
    program_.tell();
    ASSERT_TRUE(program_.says_more(4 + random.below(60))) << program_.said();
    test::pause_for(std::chrono::microseconds(random.below(1000)));
    if (random.below(2) == 0) {
      program_.process().kill();
      committed_ = std::max(committed_, last_of(program_.said()));
      start();
      return;
    }
    test::kill_rpmemd(target_.daemons().back());
    // One transaction may have had its last answer; the next one needs another daemon.
    constexpr std::size_t kTwoLines = 2 * std::string_view("1234567\n").size();
    ASSERT_TRUE(program_.says_more(kTwoLines)) << program_.said();
    program_.tell();
    judge();
  }

  /// While the program waits.
  void judge() {
    ASSERT_TRUE(program_.waits()) << program_.said();
    const std::string said = program_.said();
    committed_ = std::max(committed_, last_of(said));
    EXPECT_GE(last_of(said, "checked "), committed_);
    committed_ = last_of(said, "checked ");
    // libpmemobj keeps some words of its allocator in the pool that it never persists: they are
    // each side's own.
    constexpr std::size_t kNeverPersistedMax = 64;
    EXPECT_LE(test::different_bytes(target_.here("l.set.0"), target_.at_home("r.set.0")),
              kNeverPersistedMax);
  }

  /// PMDK reads the replica's part, and what only the replica has becomes the local one.
  void restore() {
    program_.end_input();
    program_.process().wait();
    ASSERT_EQ(program_.process().end()->status, 0) << program_.said();
    EXPECT_EQ(run_client({"pmempool", "info", target_.at_home("r.set.0")}).status, 0);
    std::filesystem::rename(target_.here("l.set.0"), target_.here("kept"));
    const auto synced = run_client({"pmempool", "sync", set_});
    ASSERT_EQ(synced.status, 0) << synced.output;
    EXPECT_EQ(test::different_bytes(target_.here("l.set.0"), target_.at_home("r.set.0")), 0U);
    const std::uint64_t committed = committed_;
    start();
    EXPECT_EQ(committed_, committed);
  }

  test::Target target_{GetParam(), test::Target::Medium::Memory};
  std::string set_;
  test::ObeyingProgram program_;
  std::uint64_t committed_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Transports, KilledUnderLoad, testing::Values("tcp", "shm"),
                         [](const auto& each) { return std::string(each.param); });

TEST_P(KilledUnderLoad, NothingCommittedIsLost) {
  const auto made = run_client({OBJTX, "create", set_});
  ASSERT_EQ(made.status, 0) << made.output;
  const std::uint64_t seed = random_secret();
  SCOPED_TRACE(fmt::format("seed {:#x}", seed));
  Random random(seed);
  start();
  // A process that speaks TCP begins with half a second of libfabric's own.
  const std::uint64_t rounds =
      GetParam() == std::string("tcp") ? test::rounds(50, 500) : test::rounds(150, 500);
  constexpr std::uint64_t kRestoreEvery = 25;
  for (std::uint64_t number = 1; number <= rounds && !HasFailure(); ++number) {
    SCOPED_TRACE(fmt::format("round {}", number));
    round(random);
    const bool whole = number % kRestoreEvery == 0 || number == rounds;
    if (whole && !HasFailure()) restore();
  }
}

}  // namespace
}  // namespace perdure
