// libpmemobj's program and rpmemd, either of them killed at random while transactions run. After
// each time: what was committed is there, the program's invariants hold, PMDK reads the replica's
// part, and both sides are equal.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <sstream>
#include <string>

#include "core/random.h"
#include "testing/process.h"
#include "testing/soak.h"
#include "tests/compat/target.h"

namespace perdure {
namespace {

using test::run_client;

/// The number of the last transaction that a program reported before it ended; 0: none.
std::uint64_t last_line(const std::string& text) {
  std::uint64_t last = 0;
  std::istringstream lines(text.substr(0, text.rfind('\n') + 1));
  for (std::uint64_t number = 0; lines >> number;) last = number;
  return last;
}

/// Waits until the program has reported so many transactions.
bool wait_for_lines(const std::string& file, std::uintmax_t bytes) {
  const Deadline deadline = Deadline::after(std::chrono::seconds(60));
  while (!deadline.passed()) {
    std::error_code none;
    if (std::filesystem::file_size(file, none) >= bytes && !none) return true;
    test::pause_for(std::chrono::milliseconds(2));
  }
  return false;
}

class KilledUnderLoad : public testing::TestWithParam<const char*> {
 protected:
  KilledUnderLoad() {
    target_.serve_set("r.set", {"10M"});
    set_ = target_.client_set("l.set", "10M", {"r.set"});
  }

  /// One round: who is killed is drawn.
  void round(Random& random) {
    const bool client_dies = random.below(2) == 0;
    const std::string output = target_.here("output");
    test::write_text(output, "");
    auto program = test::ChildProcess::start(
        test::client_command({OBJTX, "run", set_, client_dies ? "1000000" : "600", "loud"}),
        output);
    ASSERT_TRUE(program.ok()) << program.error().message;
    ASSERT_TRUE(wait_for_lines(output, 4 + random.below(60))) << test::read_whole(output);
    if (client_dies) {
      program->kill();
    } else {
      kill_daemon(target_.daemons().back());
      ASSERT_TRUE(program->wait(Deadline::after(std::chrono::seconds(60))));
      EXPECT_EQ(program->end()->status, 0) << test::read_whole(output);
    }
    committed_ = std::max(committed_, last_line(test::read_whole(output)));
    judge();
  }

  /// Unless it has ended: where the machine is busy, the program may have come to its end, and its
  /// daemon's number may be another process's.
  static void kill_daemon(int process) {
    const std::string image = fmt::format("/proc/{}/exe", process);
    std::error_code none;
    if (std::filesystem::read_symlink(image, none).filename() == "rpmemd" && !none) {
      ::kill(process, SIGKILL);
    }
  }

  void judge() {
    const auto checked = run_client({OBJTX, "check", set_});
    ASSERT_EQ(checked.status, 0) << checked.output;
    EXPECT_GE(last_line(checked.output), committed_);
    committed_ = last_line(checked.output);
    EXPECT_EQ(run_client({"pmempool", "info", target_.at_home("r.set.0")}).status, 0);
    // libpmemobj keeps some words of its allocator in the pool that it never persists: they are
    // each side's own.
    constexpr std::size_t kNeverPersistedMax = 64;
    EXPECT_LE(test::different_bytes(target_.here("l.set.0"), target_.at_home("r.set.0")),
              kNeverPersistedMax);
    // What only the replica has: the program finds the same there.
    std::filesystem::rename(target_.here("l.set.0"), target_.here("kept"));
    const auto synced = run_client({"pmempool", "sync", set_});
    ASSERT_EQ(synced.status, 0) << synced.output;
    EXPECT_EQ(test::different_bytes(target_.here("l.set.0"), target_.at_home("r.set.0")), 0U);
    const auto again = run_client({OBJTX, "check", set_});
    ASSERT_EQ(again.status, 0) << again.output;
    EXPECT_EQ(last_line(again.output), committed_);
  }

  test::Target target_{GetParam(), test::Target::Medium::Memory};
  std::string set_;
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
  const std::uint64_t rounds = test::rounds(2, 100);
  for (std::uint64_t number = 0; number < rounds && !HasFailure(); ++number) {
    SCOPED_TRACE(fmt::format("round {}", number));
    round(random);
  }
}

}  // namespace
}  // namespace perdure
