// librpmem's functions, against an rpmemd that a stand-in for ssh runs: what each promises, which
// errno says what, and what is left behind.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <librpmem.h>
#include <signal.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "testing/child_of_fork.h"
#include "testing/process.h"
#include "tests/compat/client.h"
#include "tests/compat/target.h"

namespace perdure {
namespace {

using test::create;
using test::kBytes;
using test::kPage;
using test::Memory;
using test::open;
using test::refused;
using test::some_attributes;

void end_last_daemon(const test::Target& target, int signal) {
  ASSERT_FALSE(target.daemons().empty());
  ::kill(target.daemons().back(), signal);
}

class RpmemApi : public testing::TestWithParam<const char*> {
 protected:
  RpmemApi() : target_(GetParam()) { target_.serve_set("r.set", {"4M"}); }
  std::string part() const { return test::read_whole(target_.at_home("r.set.0")); }
  test::Target target_;
};

INSTANTIATE_TEST_SUITE_P(Transports, RpmemApi, testing::Values("tcp", "shm"),
                         [](const auto& each) { return std::string(each.param); });

TEST_P(RpmemApi, WhatWasPersistedIsInThePartFile) {
  const Memory memory;
  RPMEMpool* const pool = create(memory);
  ASSERT_NE(pool, nullptr) << rpmem_errormsg();
  std::memset(memory.at() + kPage, 'a', 100);
  std::memset(memory.at() + 2 * kPage, 'b', 3 * kPage);
  errno = 0;
  EXPECT_EQ(rpmem_persist(pool, kPage, 100, 0, 0), 0) << rpmem_errormsg();
  EXPECT_EQ(rpmem_persist(pool, 2 * kPage, 3 * kPage, 1, RPMEM_PERSIST_RELAXED), 0);
  EXPECT_EQ(rpmem_persist(pool, kPage, 0, 0, 0), 0);
  EXPECT_EQ(errno, 0);
  // While the pool is open: the bytes are there, and nothing beside them.
  const std::string there = part();
  EXPECT_EQ(there.substr(kPage, 100), std::string(100, 'a'));
  EXPECT_EQ(there.substr(kPage + 100, 100), std::string(100, '\0'));
  EXPECT_EQ(there.substr(2 * kPage, 3 * kPage), std::string(3 * kPage, 'b'));
  EXPECT_EQ(there.substr(0, 8), std::string("PMEMOBJ\0", 8));
  EXPECT_EQ(rpmem_close(pool), 0) << rpmem_errormsg();
}

TEST_P(RpmemApi, FlushedRangesAreThereAfterTheDrain) {
  const Memory memory;
  RPMEMpool* const pool = create(memory);
  ASSERT_NE(pool, nullptr) << rpmem_errormsg();
  for (std::size_t range = 0; range < 40; ++range) {
    std::memset(memory.at() + kPage + range * 512, static_cast<int>('A' + range), 64);
    ASSERT_EQ(rpmem_flush(pool, kPage + range * 512, 64, 2, RPMEM_FLUSH_RELAXED), 0);
  }
  ASSERT_EQ(rpmem_drain(pool, 2, 0), 0) << rpmem_errormsg();
  const std::string there = part();
  for (std::size_t range = 0; range < 40; ++range) {
    EXPECT_EQ(there.substr(kPage + range * 512, 64),
              std::string(64, static_cast<char>('A' + range)));
  }
  EXPECT_EQ(rpmem_close(pool), 0);
}

TEST_P(RpmemApi, ReadBringsWhatTheTargetHas) {
  const Memory memory;
  RPMEMpool* const pool = create(memory);
  ASSERT_NE(pool, nullptr) << rpmem_errormsg();
  for (std::size_t at = kPage; at < kBytes; ++at) memory.at()[at] = static_cast<char>(at * 7 / 5);
  ASSERT_EQ(rpmem_persist(pool, kPage, kBytes - kPage, 0, 0), 0) << rpmem_errormsg();
  ASSERT_EQ(rpmem_deep_persist(pool, kPage, 8, 0), 0) << rpmem_errormsg();
  std::vector<char> read(kBytes);
  ASSERT_EQ(rpmem_read(pool, read.data(), 0, kBytes, 3), 0) << rpmem_errormsg();
  EXPECT_EQ(std::memcmp(read.data(), "PMEMOBJ", 8), 0);
  EXPECT_EQ(std::memcmp(read.data() + kPage, memory.at() + kPage, kBytes - kPage), 0);
  EXPECT_EQ(rpmem_close(pool), 0);
}

TEST_P(RpmemApi, AttributesComeBack) {
  const Memory memory;
  RPMEMpool* pool = create(memory);
  ASSERT_NE(pool, nullptr) << rpmem_errormsg();
  const rpmem_pool_attr changed = some_attributes(9);
  EXPECT_EQ(refused(rpmem_set_attr(pool, nullptr) != 0), EINVAL);
  ASSERT_EQ(rpmem_set_attr(pool, &changed), 0) << rpmem_errormsg();
  ASSERT_EQ(rpmem_close(pool), 0);
  rpmem_pool_attr found{};
  pool = open(memory, "r.set", &found);
  ASSERT_NE(pool, nullptr) << rpmem_errormsg();
  EXPECT_EQ(std::memcmp(&found, &changed, sizeof found), 0);
  EXPECT_EQ(rpmem_close(pool), 0);
}

TEST_P(RpmemApi, SeveralPartsAreOnePool) {
  target_.serve_set("m.set", {"3M", "2M", "2M"});
  const Memory memory(7 * 1024 * 1024 - 2 * kPage);
  RPMEMpool* pool = create(memory, "m.set");
  ASSERT_NE(pool, nullptr) << rpmem_errormsg();
  for (std::size_t at = kPage; at < memory.bytes(); ++at) {
    memory.at()[at] = static_cast<char>(at * 11 / 7);
  }
  ASSERT_EQ(rpmem_persist(pool, kPage, memory.bytes() - kPage, 0, 0), 0) << rpmem_errormsg();
  ASSERT_EQ(rpmem_close(pool), 0);
  const std::string second = test::read_whole(target_.at_home("m.set.1"));
  EXPECT_EQ(second.substr(0, 8), std::string("PMEMOBJ\0", 8));
  EXPECT_EQ(second.substr(kPage),
            std::string(memory.at() + 3 * 1024 * 1024, 2 * 1024 * 1024 - kPage));
  // A part of another set in its place.
  std::filesystem::rename(target_.at_home("m.set.1"), target_.at_home("kept"));
  std::filesystem::rename(target_.at_home("m.set.2"), target_.at_home("m.set.1"));
  std::filesystem::rename(target_.at_home("kept"), target_.at_home("m.set.2"));
  pool = open(memory, "m.set");
  EXPECT_EQ(refused(pool == nullptr), EINVAL);
  EXPECT_NE(std::string(rpmem_errormsg()).find("part 1"), std::string::npos) << rpmem_errormsg();
}

TEST_P(RpmemApi, SetsWithoutHeadersBeginWithTheFirstByte) {
  target_.serve_set("n.set", {"2M", "2M"}, "NOHDRS");
  const Memory memory;
  EXPECT_EQ(refused(create(memory, "n.set") == nullptr), EINVAL);
  unsigned lanes = 1;
  RPMEMpool* const pool = rpmem_create("localhost", "n.set", memory.at(), kBytes, &lanes, nullptr);
  ASSERT_NE(pool, nullptr) << rpmem_errormsg();
  std::memset(memory.at(), 'n', kBytes);
  ASSERT_EQ(rpmem_persist(pool, 0, kBytes, 0, 0), 0) << rpmem_errormsg();
  ASSERT_EQ(rpmem_close(pool), 0);
  EXPECT_EQ(test::read_whole(target_.at_home("n.set.1")), std::string(kBytes / 2, 'n'));
}

TEST_P(RpmemApi, ALostDaemonIsRiddenOut) {
  const Memory memory;
  RPMEMpool* const pool = create(memory);
  ASSERT_NE(pool, nullptr) << rpmem_errormsg();
  for (std::size_t round = 0; round < 3; ++round) {
    std::memset(memory.at() + kPage, static_cast<int>('0' + round), 64);
    ASSERT_EQ(rpmem_flush(pool, kPage, 64, 0, RPMEM_FLUSH_RELAXED), 0);
    end_last_daemon(target_, SIGKILL);
    std::memset(memory.at() + 2 * kPage, static_cast<int>('a' + round), 64);
    ASSERT_EQ(rpmem_persist(pool, 2 * kPage, 64, 1, 0), 0) << rpmem_errormsg();
    ASSERT_EQ(rpmem_drain(pool, 0, 0), 0) << rpmem_errormsg();
    const std::string there = part();
    EXPECT_EQ(there[kPage], static_cast<char>('0' + round));
    EXPECT_EQ(there[2 * kPage], static_cast<char>('a' + round));
  }
  EXPECT_EQ(target_.daemons().size(), 4U);
  EXPECT_EQ(rpmem_close(pool), 0) << rpmem_errormsg();
}

TEST_P(RpmemApi, WithoutPatienceALostDaemonIsAnError) {
  ::setenv("PERDURE_RPMEM_RECONNECT_MS", "0", 1);
  const Memory memory;
  RPMEMpool* pool = create(memory);
  ASSERT_NE(pool, nullptr) << rpmem_errormsg();
  end_last_daemon(target_, SIGKILL);
  int failed = 0;
  for (int tries = 0; tries < 1000 && failed == 0; ++tries) {
    failed = refused(rpmem_persist(pool, kPage, 64, 0, 0) != 0);
  }
  EXPECT_EQ(failed, ECONNRESET) << rpmem_errormsg();
  EXPECT_EQ(refused(rpmem_persist(pool, kPage, 64, 0, 0) != 0), ECONNRESET);
  EXPECT_EQ(refused(rpmem_close(pool) != 0), ECONNRESET);
  pool = open(memory);
  ASSERT_NE(pool, nullptr) << rpmem_errormsg();
  EXPECT_EQ(rpmem_close(pool), 0);
}

TEST_P(RpmemApi, ThreadsShareThePool) {
  const Memory memory;
  RPMEMpool* const pool = create(memory);
  ASSERT_NE(pool, nullptr) << rpmem_errormsg();
  std::vector<std::thread> threads;
  std::vector<int> failures(4);
  for (unsigned lane = 0; lane < 4; ++lane) {
    threads.emplace_back([&, lane] {
      const std::size_t at = kPage * (1 + lane);
      for (int round = 0; round < 50; ++round) {
        std::memset(memory.at() + at, round, 256);
        const bool batch = round % 2 == 1;
        int failed = batch ? rpmem_flush(pool, at, 256, lane, RPMEM_FLUSH_RELAXED)
                           : rpmem_persist(pool, at, 256, lane, 0);
        if (batch) failed += rpmem_drain(pool, lane, 0);
        failures[lane] += failed;
      }
    });
  }
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(failures, std::vector<int>(4));
  EXPECT_EQ(part().substr(kPage, 4 * kPage), std::string(memory.at() + kPage, 4 * kPage));
  EXPECT_EQ(rpmem_close(pool), 0);
}

class RpmemErrors : public testing::Test {
 protected:
  RpmemErrors() { target_.serve_set("r.set", {"4M"}); }
  test::Target target_{"shm"};
};

TEST_F(RpmemErrors, WrongArgumentsAreInvalidAndHurtNothing) {
  const Memory memory;
  unsigned lanes = 0;
  EXPECT_EQ(
      refused(rpmem_open("localhost", "r.set", memory.at(), kBytes, &lanes, nullptr) == nullptr),
      EINVAL);
  lanes = 1;
  EXPECT_EQ(refused(rpmem_open("localhost", "r.set", memory.at() + 1, kBytes, &lanes, nullptr) ==
                    nullptr),
            EINVAL);
  EXPECT_EQ(
      refused(rpmem_open("localhost", "r.set", memory.at(), 4096, &lanes, nullptr) == nullptr),
      EINVAL);
  EXPECT_EQ(refused(rpmem_open("-oProxyCommand=x", "r.set", memory.at(), kBytes, &lanes, nullptr) ==
                    nullptr),
            EINVAL);
  EXPECT_EQ(
      refused(rpmem_create("localhost", "r.set", memory.at(), kBytes, &lanes, nullptr) == nullptr),
      EINVAL)
      << rpmem_errormsg();
  RPMEMpool* const pool = create(memory);
  ASSERT_NE(pool, nullptr) << rpmem_errormsg();
  //                                       offset     bytes  lane  flags
  EXPECT_EQ(refused(rpmem_persist(pool, 0, 64, 0, 0) != 0), EINVAL);
  EXPECT_EQ(refused(rpmem_persist(pool, kBytes - 8, 16, 0, 0) != 0), EINVAL);
  EXPECT_EQ(refused(rpmem_persist(pool, SIZE_MAX - 8, 16, 0, 0) != 0), EINVAL);
  EXPECT_EQ(refused(rpmem_persist(pool, kPage, 16, 4, 0) != 0), EINVAL);
  EXPECT_EQ(refused(rpmem_persist(pool, kPage, 16, 0, 2) != 0), EINVAL);
  EXPECT_EQ(refused(rpmem_flush(pool, kPage, 16, 0, 4) != 0), EINVAL);
  EXPECT_EQ(refused(rpmem_drain(pool, 0, 1) != 0), EINVAL);
  EXPECT_EQ(refused(rpmem_deep_persist(pool, 64, 16, 0) != 0), EINVAL);
  // None of that sticks.
  EXPECT_EQ(rpmem_persist(pool, kPage, 16, 0, 0), 0) << rpmem_errormsg();
  EXPECT_EQ(rpmem_close(pool), 0);
}

TEST_F(RpmemErrors, ANameThatIsNoneIsRefusedHere) {
  const Memory memory;
  // 0xff is no UTF-8.
  for (const std::string& name :
       {std::string(), std::string(70000, 'a'), std::string("r\xff.set")}) {
    EXPECT_EQ(refused(create(memory, name.c_str()) == nullptr), EINVAL) << name.substr(0, 9);
    EXPECT_EQ(refused(open(memory, name.c_str()) == nullptr), EINVAL) << name.substr(0, 9);
    EXPECT_EQ(refused(rpmem_remove("localhost", name.c_str(), RPMEM_REMOVE_FORCE) != 0), EINVAL);
  }
}

TEST_F(RpmemErrors, WhatTheTargetHasSaysWhichErrno) {
  const Memory memory;
  EXPECT_EQ(refused(open(memory, "no.set") == nullptr), ENOENT);
  EXPECT_EQ(refused(open(memory) == nullptr), ENOENT);  // its part
  EXPECT_EQ(refused(open(memory, "../r.set") == nullptr), EINVAL);
  const Memory larger(2 * kBytes);
  EXPECT_EQ(refused(create(larger) == nullptr), EFBIG);
  target_.serve_set("out.set", {"4M"});
  test::write_text(target_.at_home("out.set"), "PMEMPOOLSET\n4M " + target_.here("p") + "\n");
  EXPECT_EQ(refused(create(memory, "out.set") == nullptr), EACCES);
  EXPECT_NE(std::string(rpmem_errormsg()).find("out.set:2"), std::string::npos);

  RPMEMpool* const pool = create(memory);
  ASSERT_NE(pool, nullptr) << rpmem_errormsg();
  EXPECT_EQ(refused(open(memory) == nullptr), EBUSY);
  EXPECT_EQ(refused(create(memory) == nullptr), EEXIST);
  EXPECT_EQ(refused(rpmem_remove("localhost", "r.set", 0) != 0), EBUSY) << rpmem_errormsg();
  EXPECT_EQ(rpmem_close(pool), 0);
  EXPECT_EQ(refused(create(memory) == nullptr), EEXIST);

  std::filesystem::resize_file(target_.at_home("r.set.0"), kBytes / 2);
  EXPECT_EQ(refused(open(memory) == nullptr), EINVAL);
  EXPECT_NE(std::string(rpmem_errormsg()).find("truncated"), std::string::npos);
  EXPECT_EQ(rpmem_remove("localhost", "r.set", 0), 0) << rpmem_errormsg();
  EXPECT_EQ(refused(rpmem_remove("localhost", "r.set", 0) != 0), ENOENT);
  EXPECT_EQ(rpmem_remove("localhost", "r.set", RPMEM_REMOVE_FORCE | RPMEM_REMOVE_POOL_SET), 0);
  EXPECT_EQ(refused(open(memory) == nullptr), ENOENT);
}

TEST_F(RpmemErrors, NoPartIsLeftOfACreationThatFails) {
  target_.serve_set("m.set", {"2M", "2M"});
  // The second one can not be made.
  test::write_text(target_.at_home("m.set"), "PMEMPOOLSET\n2M " + target_.at_home("m.set.0") +
                                                 "\n2M " + target_.at_home("away/p") + "\n");
  const Memory memory(2 * 1024 * 1024);
  EXPECT_EQ(refused(create(memory, "m.set") == nullptr), ENOENT) << rpmem_errormsg();
  EXPECT_FALSE(std::filesystem::exists(target_.at_home("m.set.0")));
  // Nor any, on a disk that is full.
  const std::string ssh = test::read_whole(target_.at_home("ssh"));
  test::write_text(target_.at_home("ssh"), "#!/bin/sh\nulimit -f 2048\n" + ssh);  // 512 bytes each
  EXPECT_EQ(refused(create(Memory()) == nullptr), ENOSPC) << rpmem_errormsg();
  EXPECT_FALSE(std::filesystem::exists(target_.at_home("r.set.0")));
  EXPECT_FALSE(std::filesystem::exists(target_.at_home("r.set.0.creating")));
}

TEST_F(RpmemErrors, NamesAreNoCommands) {
  const std::string made = target_.here("made");
  EXPECT_NE(rpmem_remove("localhost", ("r.set;touch " + made).c_str(), 0), 0);
  EXPECT_NE(rpmem_remove("localhost", ("r.set';touch " + made + ";'").c_str(), 0), 0);
  EXPECT_NE(rpmem_remove("localhost", ("$(touch " + made + ")").c_str(), 0), 0);
  EXPECT_FALSE(std::filesystem::exists(made));
}

TEST_F(RpmemErrors, OutputThatIsNoRpmemdsIsSaidWithItsWords) {
  const Memory memory;
  test::write_text(target_.at_home("ssh"), "#!/bin/sh\necho Welcome to this machine\nsleep 1\n");
  EXPECT_EQ(refused(open(memory) == nullptr), EPROTO);
  EXPECT_NE(std::string(rpmem_errormsg()).find("Welcome to"), std::string::npos);
  test::write_text(target_.at_home("ssh"), "#!/bin/sh\necho no such host >&2\nexit 255\n");
  EXPECT_EQ(refused(open(memory) == nullptr), ECONNRESET);
  EXPECT_NE(std::string(rpmem_errormsg()).find("no such host"), std::string::npos);
  EXPECT_EQ(refused(rpmem_remove("localhost", "r.set", 0) != 0), ECONNRESET);
  ::setenv("RPMEM_SSH", "/no/such/ssh", 1);
  EXPECT_EQ(refused(open(memory) == nullptr), ENOENT);
}

TEST_F(RpmemErrors, ATruncatedPartEndsThePool) {
  const Memory memory;
  RPMEMpool* const pool = create(memory);
  ASSERT_NE(pool, nullptr) << rpmem_errormsg();
  ASSERT_EQ(rpmem_persist(pool, kPage, 64, 0, 0), 0);
  std::filesystem::resize_file(target_.at_home("r.set.0"), kPage);
  int failed = 0;
  for (int tries = 0; tries < 1000 && failed == 0; ++tries) {
    failed = refused(rpmem_persist(pool, kBytes / 2, 64, 0, 0) != 0);
  }
  EXPECT_EQ(failed, EIO) << rpmem_errormsg();
  EXPECT_EQ(refused(rpmem_persist(pool, kPage, 64, 0, 0) != 0), EIO);
  EXPECT_NE(rpmem_close(pool), 0);
}

TEST_F(RpmemErrors, AChildOfForkHasNoPartInThePool) {
  const Memory memory;
  RPMEMpool* const pool = create(memory);
  ASSERT_NE(pool, nullptr) << rpmem_errormsg();
  EXPECT_TRUE(test::yes_in_a_child([&] {
    const bool right = rpmem_persist(pool, kPage, 64, 0, 0) != 0 && errno == EINVAL &&
                       rpmem_close(pool) != 0 && errno == EINVAL;
    return right;
  }));
  std::memset(memory.at() + kPage, 'f', 64);
  EXPECT_EQ(rpmem_persist(pool, kPage, 64, 0, 0), 0) << rpmem_errormsg();
  EXPECT_EQ(target_.daemons().size(), 1U);
  EXPECT_EQ(rpmem_close(pool), 0);
}

constexpr const char* kNoted = "user.perdure.client";  // docs/rpmem.md

// While one has lost its connection another one opens the pool, writes and closes it. Expect: the
// first one does not go on as if nothing had been; nor where an older copy is in the part's place,
// with the part's attributes or without.
TEST_F(RpmemErrors, WhoComesBackToWhatIsAnothersNowWritesNothing) {
  enum class Then { Another, Copy, CopyWithAttributes };
  for (const Then then : {Then::Another, Then::Copy, Then::CopyWithAttributes}) {
    SCOPED_TRACE(static_cast<int>(then));
    const bool copy = then != Then::Another;
    const Memory memory;
    RPMEMpool* const first = copy ? open(memory) : create(memory);
    ASSERT_NE(first, nullptr) << rpmem_errormsg();
    std::memset(memory.at() + kPage, 'f', 64);
    ASSERT_EQ(rpmem_persist(first, kPage, 64, 0, 0), 0) << rpmem_errormsg();
    const std::string part = target_.at_home("r.set.0");
    end_last_daemon(target_, SIGKILL);
    if (copy) {
      const std::string text = test::read_whole(part);
      std::array<char, 64> noted{};
      const ssize_t got = ::getxattr(part.c_str(), kNoted, noted.data(), noted.size());
      // The inode of what was removed may become the copy's.
      std::filesystem::remove(part);
      test::write_text(target_.here("copy"), text);
      if (then == Then::CopyWithAttributes && got > 0) {
        ASSERT_EQ(::setxattr(target_.here("copy").c_str(), kNoted, noted.data(),
                             static_cast<std::size_t>(got), 0),
                  0);
      }
      std::filesystem::rename(target_.here("copy"), part);
    } else {
      const Memory theirs;
      RPMEMpool* const second = open(theirs);
      ASSERT_NE(second, nullptr) << rpmem_errormsg();
      std::memset(theirs.at() + kPage, 's', 64);
      ASSERT_EQ(rpmem_persist(second, kPage, 64, 0, 0), 0) << rpmem_errormsg();
      ASSERT_EQ(rpmem_close(second), 0) << rpmem_errormsg();
    }
    const std::string held = test::read_whole(part).substr(kPage, 64);
    std::memset(memory.at() + kPage, 'F', 64);
    EXPECT_EQ(refused(rpmem_persist(first, kPage, 64, 0, 0) != 0), EINVAL) << rpmem_errormsg();
    EXPECT_EQ(test::read_whole(part).substr(kPage, 64), held);
    EXPECT_NE(rpmem_close(first), 0);
  }
}

// Another thread tries to come back when the process is forked, and has what guards the pool.
TEST_F(RpmemErrors, AChildClosesThePoolWhateverItsParentIsAt) {
  const Memory memory;
  RPMEMpool* const pool = create(memory);
  ASSERT_NE(pool, nullptr) << rpmem_errormsg();
  const std::string ssh = test::read_whole(target_.at_home("ssh"));
  test::write_text(target_.at_home("ssh"), "#!/bin/sh\nexit 255\n");
  end_last_daemon(target_, SIGKILL);
  std::atomic<bool> there{false};
  int persisted = -1;
  std::thread comes_back([&] {
    do {
      persisted = rpmem_persist(pool, kPage, 64, 0, 0);
    } while (persisted == 0 && !there.load());
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  const pid_t child = ::fork();
  if (child == 0) ::_exit(rpmem_close(pool) != 0 && errno == EINVAL ? 0 : 1);
  int status = -1;
  const auto ended = [&] { return ::waitpid(child, &status, WNOHANG) == child; };
  const Deadline within = Deadline::after(std::chrono::seconds(10));
  bool done = ended();
  for (; !done && !within.passed(); done = ended()) {
    test::pause_for(std::chrono::milliseconds(5));
  }
  EXPECT_TRUE(done);
  EXPECT_EQ(status, 0);
  if (!done) ::kill(child, SIGKILL);
  there.store(true);
  test::write_text(target_.at_home("ssh"), ssh);
  comes_back.join();
  EXPECT_EQ(persisted, 0) << rpmem_errormsg();
  EXPECT_EQ(rpmem_close(pool), 0);
}

// The system tells such a program nothing of how ssh ended.
TEST_F(RpmemErrors, WhoIgnoresTheEndOfChildrenIsToldWhetherAPoolWasRemoved) {
  const Memory memory;
  RPMEMpool* const pool = create(memory);
  ASSERT_NE(pool, nullptr) << rpmem_errormsg();
  const auto before = ::signal(SIGCHLD, SIG_IGN);
  EXPECT_NE(rpmem_remove("localhost", "r.set", 0), 0);
  EXPECT_NE(std::string(rpmem_errormsg()).find("in use"), std::string::npos) << rpmem_errormsg();
  EXPECT_TRUE(std::filesystem::exists(target_.at_home("r.set.0")));
  EXPECT_EQ(rpmem_close(pool), 0) << rpmem_errormsg();
  EXPECT_EQ(rpmem_remove("localhost", "r.set", 0), 0) << rpmem_errormsg();
  EXPECT_FALSE(std::filesystem::exists(target_.at_home("r.set.0")));
  ::signal(SIGCHLD, before);
}

TEST_F(RpmemErrors, LanesAreThoseThatWereGranted) {
  const Memory memory;
  const rpmem_pool_attr attributes = some_attributes();
  ::setenv("RPMEM_MAX_NLANES", "2", 1);
  unsigned lanes = 100000;
  RPMEMpool* const pool =
      rpmem_create("localhost", "r.set", memory.at(), kBytes, &lanes, &attributes);
  ASSERT_NE(pool, nullptr) << rpmem_errormsg();
  EXPECT_EQ(lanes, 2U);
  EXPECT_EQ(refused(rpmem_persist(pool, kPage, 8, 2, 0) != 0), EINVAL);
  EXPECT_EQ(rpmem_close(pool), 0);
}

TEST_F(RpmemErrors, VersionsAreThoseOfApi13) {
  EXPECT_EQ(rpmem_check_version(1, 0), nullptr);
  EXPECT_EQ(rpmem_check_version(1, 3), nullptr);
  EXPECT_NE(rpmem_check_version(1, 4), nullptr);
  EXPECT_NE(rpmem_check_version(2, 0), nullptr);
}

}  // namespace
}  // namespace perdure
