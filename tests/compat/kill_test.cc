// libpmemobj's program and rpmemd, either of them killed at random while transactions run. After
// each time: what was committed is there, the program's invariants hold, and both sides are equal.
// From time to time PMDK's tools look at the replica, and make the local pool anew from it.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <sstream>
#include <string>
#include <string_view>

#include "core/random.h"
#include "testing/process.h"
#include "testing/soak.h"
#include "tests/compat/target.h"

namespace perdure {
namespace {

using test::run_client;

/// The number of the last line that is whole and begins with `what`; 0: there is none.
std::uint64_t last_of(const std::string& text, const std::string& what = "") {
  std::uint64_t last = 0;
  std::istringstream lines(text.substr(0, text.rfind('\n') + 1));
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(what)) continue;
    const std::string number = line.substr(what.size());
    const bool digits = number.find_first_not_of("0123456789") == std::string::npos;
    if (digits && !number.empty()) last = std::stoull(number);
  }
  return last;
}

class KilledUnderLoad : public testing::TestWithParam<const char*> {
 protected:
  KilledUnderLoad() : output_(target_.here("output")) {
    target_.serve_set("r.set", {"10M"});
    set_ = target_.client_set("l.set", "10M", {"r.set"});
  }
  ~KilledUnderLoad() override { end_input(); }

  /// The program opens the pool, finds all that was committed, and waits.
  void start() {
    end_input();
    test::write_text(output_, "");
    int input[2] = {-1, -1};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, input), 0);
    input_ = input[1];
    const int output = ::open(output_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
    auto started = test::ChildProcess::start(test::client_command({OBJTX, "obey", set_}),
                                             test::ChildStreams{input[0], output, output});
    ::close(input[0]);
    ::close(output);
    ASSERT_TRUE(started.ok()) << started.error().message;
    program_ = std::move(*started);
    judge();
  }
  /// It begins transactions, or ends them, looks at what it has, and waits.
  void tell() const { ASSERT_EQ(::send(input_, "\n", 1, MSG_NOSIGNAL), 1); }
  void end_input() {
    if (input_ >= 0) ::close(input_);
    input_ = -1;
  }
  std::string said() const { return test::read_whole(output_); }
  bool says(const std::function<bool(const std::string&)>& enough) {
    const Deadline deadline = Deadline::after(std::chrono::seconds(60));
    while (!deadline.passed() && program_.running()) {
      if (enough(said())) return true;
      test::pause_for(std::chrono::milliseconds(1));
    }
    return enough(said());
  }

  /// Who is killed is drawn, and when.
  void round(Random& random) {
    test::write_text(output_, "");
    const std::size_t bytes = 4 + random.below(60);
    tell();
    ASSERT_TRUE(says([&](const std::string& text) { return text.size() >= bytes; })) << said();
    test::pause_for(std::chrono::microseconds(random.below(1000)));
    if (random.below(2) == 0) {
      program_.kill();
      committed_ = std::max(committed_, last_of(said()));
      start();
      return;
    }
    kill_daemon(target_.daemons().back());
    // One transaction may have had its last answer; the next one needs another daemon.
    constexpr std::size_t kTwoLines = 2 * std::string_view("1234567\n").size();
    const std::size_t by_then = said().size();
    ASSERT_TRUE(says([&](const std::string& text) { return text.size() >= by_then + kTwoLines; }))
        << said();
    tell();
    judge();
  }

  /// Its number may be another process's by now.
  static void kill_daemon(int process) {
    const std::string image = fmt::format("/proc/{}/exe", process);
    std::error_code none;
    if (std::filesystem::read_symlink(image, none).filename() == "rpmemd" && !none) {
      ::kill(process, SIGKILL);
    }
  }

  /// While the program waits.
  void judge() {
    ASSERT_TRUE(says([](const std::string& text) {
      return text.find("checked ") != std::string::npos && text.ends_with('\n');
    })) << said();
    committed_ = std::max(committed_, last_of(said()));
    EXPECT_GE(last_of(said(), "checked "), committed_);
    committed_ = last_of(said(), "checked ");
    // libpmemobj keeps some words of its allocator in the pool that it never persists: they are
    // each side's own.
    constexpr std::size_t kNeverPersistedMax = 64;
    EXPECT_LE(test::different_bytes(target_.here("l.set.0"), target_.at_home("r.set.0")),
              kNeverPersistedMax);
  }

  /// PMDK reads the replica's part, and what only the replica has becomes the local one.
  void restore() {
    end_input();
    program_.wait();
    ASSERT_EQ(program_.end()->status, 0) << said();
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
  const std::string output_;
  std::string set_;
  test::ChildProcess program_;
  int input_ = -1;
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
