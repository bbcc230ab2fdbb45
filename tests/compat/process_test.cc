// What librpmem is in the process of its caller, and rpmemd on its machine: nothing runs there
// while nothing is asked for, and each thread has its own words of what went wrong.
#include <gtest/gtest.h>
#include <librpmem.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <cerrno>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "testing/process.h"
#include "tests/compat/client.h"
#include "tests/compat/target.h"

namespace perdure {
namespace {

using test::kPage;
using test::Memory;
using test::refused;

class RpmemProcess : public testing::TestWithParam<const char*> {
 protected:
  RpmemProcess() : target_(GetParam()) { target_.serve_set("r.set", {"4M"}); }
  test::Target target_;
};

INSTANTIATE_TEST_SUITE_P(Transports, RpmemProcess, testing::Values("tcp", "shm"),
                         [](const auto& each) { return std::string(each.param); });

// A shell that does nothing but spin is the clock: a thread of ours that spins beside it gets as
// much of the processors as it does, on a busy machine too.
TEST_P(RpmemProcess, NothingRunsWhileNothingIsAskedFor) {
  const Memory memory;
  RPMEMpool* const pool = test::create(memory);
  ASSERT_NE(pool, nullptr) << rpmem_errormsg();
  ASSERT_EQ(rpmem_persist(pool, kPage, 64, 0, 0), 0) << rpmem_errormsg();
  ASSERT_EQ(target_.daemons().size(), 1U);
  const int daemon = target_.daemons().back();
  auto spins =
      test::ChildProcess::start({"/bin/sh", "-c", "while :; do :; done"}, target_.here("spins"));
  ASSERT_TRUE(spins.ok()) << spins.error().message;
  const auto used = [](int process) {
    const auto time = test::processor_time(process);
    EXPECT_TRUE(time.ok()) << "process " << process;
    return time.ok() ? *time : Nanoseconds{0};
  };
  const Nanoseconds client_before = used(::getpid());
  const Nanoseconds daemon_before = used(daemon);
  constexpr Nanoseconds kWindow = std::chrono::milliseconds(800);
  const Deadline within = Deadline::after(std::chrono::seconds(120));
  while (used(spins->pid()) < kWindow && !within.passed()) {
    test::pause_for(std::chrono::milliseconds(50));
  }
  EXPECT_LT(used(::getpid()) - client_before, kWindow / 4);
  EXPECT_LT(used(daemon) - daemon_before, kWindow / 4);
  spins->kill();
  EXPECT_EQ(rpmem_persist(pool, kPage, 64, 0, 0), 0) << rpmem_errormsg();
  EXPECT_EQ(rpmem_close(pool), 0) << rpmem_errormsg();
}

// Two threads fail in different ways, each before either asks what it was.
TEST(RpmemThreads, HaveTheirOwnWordsOfWhatWentWrong) {
  const test::Target target("shm");
  const Memory memory;
  EXPECT_EQ(refused(rpmem_open("localhost:port", "r.set", memory.at(), memory.bytes(), nullptr,
                               nullptr) == nullptr),
            EINVAL);
  const std::string ours = rpmem_errormsg();
  ASSERT_FALSE(ours.empty());
  std::barrier both(2);
  struct Seen {
    std::string at_first;
    std::string then;
    int number = 0;
  };
  std::vector<Seen> seen(2);
  std::vector<std::thread> threads;
  for (std::size_t number = 0; number < 2; ++number) {
    threads.emplace_back([&, number] {
      const std::string set = "none-" + std::to_string(number) + ".set";
      seen[number].at_first = rpmem_errormsg();
      both.arrive_and_wait();
      seen[number].number = refused(test::open(memory, set.c_str()) == nullptr);
      both.arrive_and_wait();
      seen[number].then = rpmem_errormsg();
    });
  }
  for (std::thread& each : threads) each.join();
  for (std::size_t number = 0; number < 2; ++number) {
    EXPECT_EQ(seen[number].at_first, "");
    EXPECT_EQ(seen[number].number, ENOENT);
    const std::string own = "none-" + std::to_string(number) + ".set";
    const std::string other = "none-" + std::to_string(1 - number) + ".set";
    EXPECT_NE(seen[number].then.find(own), std::string::npos) << seen[number].then;
    EXPECT_EQ(seen[number].then.find(other), std::string::npos) << seen[number].then;
  }
  EXPECT_EQ(rpmem_errormsg(), ours);
}

}  // namespace
}  // namespace perdure
