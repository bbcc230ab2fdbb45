// What librpmem says when the target can not do what it is to do, or is none: which errno, in which
// words, and that nothing is left half done.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <librpmem.h>
#include <signal.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "rpmem/command_peer.h"
#include "rpmem/control.h"
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

class RpmemFaults : public testing::Test {
 protected:
  RpmemFaults() : ssh_(test::read_whole(target_.at_home("ssh"))) {
    target_.serve_set("r.set", {"4M"});
  }

  /// A target that says these bytes whoever asks what, and hears no more.
  void answer_with(const std::string& bytes) const {
    test::write_text(target_.here("answer"), bytes);
    test::write_text(
        target_.at_home("ssh"),
        fmt::format("#!/bin/sh\ncat '{}'\nexec cat > /dev/null\n", target_.here("answer")));
  }
  /// Every rpmemd from now on is run by this command.
  void run_by(const std::string& command) const {
    std::string text = ssh_;
    const std::size_t at = text.find("exec '");
    ASSERT_NE(at, std::string::npos);
    test::write_text(target_.at_home("ssh"), text.insert(at + 5, command + " "));
  }
  bool can_run(const std::string& command) const {
    auto child = test::ChildProcess::start({"/bin/sh", "-c", command}, target_.here("tried"));
    if (!child.ok()) return false;
    child->wait();
    return child->end() && child->end()->status == 0;
  }
  static bool says(const std::string& words) {
    return std::string(rpmem_errormsg()).find(words) != std::string::npos;
  }
  void make() const {
    RPMEMpool* const pool = create(Memory());
    ASSERT_NE(pool, nullptr) << rpmem_errormsg();
    ASSERT_EQ(rpmem_close(pool), 0) << rpmem_errormsg();
  }

  const test::Target target_{"shm"};
  const std::string ssh_;
};

std::string hello(const std::string& body) {
  return rpmem::encode_frame({rpmem::FrameKind::Hello, body});
}

TEST_F(RpmemFaults, ATargetOfAnotherVersionIsSaidToBe) {
  answer_with(hello(R"({"format":2,"version":"9.0","host":"there"})"));
  EXPECT_EQ(refused(open(Memory()) == nullptr), EPROTONOSUPPORT) << rpmem_errormsg();
  EXPECT_TRUE(says("format")) << rpmem_errormsg();
  EXPECT_EQ(refused(create(Memory()) == nullptr), EPROTONOSUPPORT);
}

// One of the same format that has no handler for small ranges. Expect: it is refused, and said why,
// when the pool is opened and not when it has long been written to.
TEST_F(RpmemFaults, ATargetThatTakesNoOrderedUpdatesIsRefusedAtOnce) {
  make();
  const std::string early =
      fmt::format("#!/bin/sh\nexec '{}' '{}'\n", EARLY_RPMEMD, target_.home());
  test::write_text(target_.at_home("ssh"), early);
  EXPECT_EQ(refused(open(Memory()) == nullptr), EPROTONOSUPPORT) << rpmem_errormsg();
  EXPECT_TRUE(says("localhost") && says("earlier version")) << rpmem_errormsg();
  target_.serve_set("new.set", {"4M"});
  EXPECT_EQ(refused(create(Memory(), "new.set") == nullptr), EPROTONOSUPPORT) << rpmem_errormsg();
  EXPECT_FALSE(std::filesystem::exists(target_.at_home("new.set.0")));
  // An open pool whose target is replaced by such a one is lost, and not brought back for ever.
  test::write_text(target_.at_home("ssh"), ssh_);
  const Memory memory;
  RPMEMpool* const pool = open(memory);
  ASSERT_NE(pool, nullptr) << rpmem_errormsg();
  test::write_text(target_.at_home("ssh"), early);
  ::kill(target_.daemons().back(), SIGKILL);
  EXPECT_EQ(refused(rpmem_persist(pool, kPage, 64, 0, 0) != 0), EPROTONOSUPPORT)
      << rpmem_errormsg();
  (void)rpmem_close(pool);
}

TEST_F(RpmemFaults, NonsenseIsAnErrorOfTheProtocol) {
  const std::string good = hello(rpmem::encode(rpmem::Hello{"1.0", "there"}));
  const auto done = [](const std::string& body) {
    return rpmem::encode_frame({rpmem::FrameKind::Done, body});
  };
  for (const std::string& nonsense :
       {hello("{}"), hello("no JSON"), done("{}"), good + std::string(4096, 'x'), good + good,
        good + done(""), good + done("{}"), good + done(R"({"format":1,"bytes":-1})"),
        good + std::string("PDRM\x09\0\0\0\xff\xff\xff\xff", 12)}) {
    answer_with(nonsense);
    EXPECT_EQ(refused(open(Memory()) == nullptr), EPROTO)
        << rpmem_errormsg() << ", after " << nonsense.substr(0, 200);
    EXPECT_TRUE(says("localhost")) << rpmem_errormsg();
  }
  // It has heard nothing of which it could have made a pool.
  test::write_text(target_.at_home("ssh"), ssh_);
  make();
}

// Whole parts, of sets as large: only what is in their headers says whose they are.
TEST_F(RpmemFaults, PartsOfOtherSetsAreRefusedAndStayAsTheyAre) {
  for (const char* set : {"one.set", "two.set"}) {
    target_.serve_set(set, {"2M", "2M"});
    const rpmem_pool_attr attributes = test::some_attributes(*set == 'o' ? 1 : 50);
    const Memory memory(2 * kBytes / 2 - kPage);
    unsigned lanes = 1;
    RPMEMpool* const pool =
        rpmem_create("localhost", set, memory.at(), memory.bytes(), &lanes, &attributes);
    ASSERT_NE(pool, nullptr) << rpmem_errormsg();
    ASSERT_EQ(rpmem_close(pool), 0);
  }
  const Memory memory(kBytes - kPage);
  const auto put = [&](const std::string& name, std::size_t at, const std::string& bytes) {
    std::fstream file(target_.at_home(name), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(at));
    file << bytes;
  };
  const std::string part = test::read_whole(target_.at_home("one.set.1"));
  const std::string other = test::read_whole(target_.at_home("two.set.1"));
  struct Case {
    const char* what;
    std::size_t at;  // where this part becomes the other one
    std::size_t bytes;
    const char* words;
  };
  for (const Case& each :
       {Case{"another set's", 0, kPage, "another pool"},
        Case{"the UUID of another set", 24, 16, "checksum"},
        Case{"its own UUID another's", 40, 16, "checksum"}, Case{"no header", 0, 8, "checksum"}}) {
    const std::string bytes =
        each.bytes == 8 ? std::string(8, '\0') : other.substr(each.at, each.bytes);
    put("one.set.1", each.at, bytes);
    EXPECT_EQ(refused(open(memory, "one.set") == nullptr), EINVAL) << each.what;
    EXPECT_TRUE(says("part 1") && says(each.words)) << each.what << ": " << rpmem_errormsg();
    EXPECT_EQ(test::read_whole(target_.at_home("one.set.1")).substr(each.at, each.bytes), bytes);
    put("one.set.1", 0, part.substr(0, kPage));
  }
  RPMEMpool* const pool = open(memory, "one.set");
  ASSERT_NE(pool, nullptr) << rpmem_errormsg();
  EXPECT_EQ(rpmem_close(pool), 0);
}

// Memory that is larger than the target's set, of a pool that is there.
TEST_F(RpmemFaults, APoolThatIsTooSmallIsRefused) {
  make();
  EXPECT_EQ(refused(open(Memory(kBytes + kPage)) == nullptr), EFBIG) << rpmem_errormsg();
  EXPECT_TRUE(says("larger")) << rpmem_errormsg();
}

// The owner of all files obeys their permissions where it lacks a capability of root.
TEST_F(RpmemFaults, WhatMayNotBeWrittenIsNotAndStaysAsItIs) {
  const std::string obeys = "setpriv --bounding-set=-dac_override,-dac_read_search --inh-caps=-all";
  if (::geteuid() == 0) {
    if (!can_run(obeys + " true")) GTEST_SKIP() << "setpriv is not permitted here";
    run_by(obeys);
  }
  ASSERT_EQ(::chmod(target_.home().c_str(), 0555), 0);
  EXPECT_EQ(refused(create(Memory()) == nullptr), EACCES) << rpmem_errormsg();
  EXPECT_TRUE(says("r.set.0")) << rpmem_errormsg();
  ASSERT_EQ(::chmod(target_.home().c_str(), 0755), 0);
  EXPECT_FALSE(std::filesystem::exists(target_.at_home("r.set.0")));
  make();
  ASSERT_EQ(::chmod(target_.at_home("r.set.0").c_str(), 0444), 0);
  EXPECT_EQ(refused(open(Memory()) == nullptr), EACCES) << rpmem_errormsg();
  EXPECT_EQ(refused(rpmem_remove("localhost", "r.set", 0) != 0), EACCES) << rpmem_errormsg();
  ASSERT_EQ(::chmod(target_.at_home("r.set").c_str(), 0), 0);
  EXPECT_EQ(refused(open(Memory()) == nullptr), EACCES) << rpmem_errormsg();
  EXPECT_TRUE(std::filesystem::exists(target_.at_home("r.set.0")));
}

TEST_F(RpmemFaults, AFileSystemThatIsReadOnlyIsNotWritten) {
  make();
  target_.serve_set("new.set", {"4M"});
  const std::string script = target_.here("read-only");
  test::write_text(script, fmt::format("#!/bin/sh\nmount --bind '{0}' '{0}' && "
                                       "mount -o remount,ro,bind '{0}' && exec \"$@\"\n",
                                       target_.home()));
  ASSERT_EQ(::chmod(script.c_str(), 0755), 0);
  const std::string apart = "unshare --map-root-user --mount '" + script + "'";
  if (!can_run(apart + " true")) GTEST_SKIP() << "mount namespaces are not permitted here";
  run_by(apart);
  EXPECT_EQ(refused(open(Memory()) == nullptr), EACCES) << rpmem_errormsg();
  EXPECT_TRUE(says("Read-only")) << rpmem_errormsg();
  EXPECT_EQ(refused(create(Memory(), "new.set") == nullptr), EACCES) << rpmem_errormsg();
  EXPECT_EQ(refused(rpmem_remove("localhost", "r.set", 0) != 0), EACCES) << rpmem_errormsg();
  EXPECT_TRUE(std::filesystem::exists(target_.at_home("r.set.0")));
}

// PMDK's rpmemd dropped the results of both.
TEST_F(RpmemFaults, AMediumThatRefusesIsAnErrorOfEveryCallFromThenOn) {
  const std::string refuses = target_.here("refuses");
  run_by(fmt::format("env LD_PRELOAD='{} {}' FAILING_SYNC='{}'", SANITIZER_LIBRARY, FAILING_SYNC,
                     refuses));
  for (const bool deep : {false, true}) {
    const Memory memory;
    RPMEMpool* pool = deep ? open(memory) : create(memory);
    ASSERT_NE(pool, nullptr) << rpmem_errormsg();
    const auto persist = [&] {
      return deep ? rpmem_deep_persist(pool, kPage, 64, 0) : rpmem_persist(pool, kPage, 64, 0, 0);
    };
    EXPECT_EQ(persist(), 0) << rpmem_errormsg();
    test::write_text(refuses, "");
    EXPECT_EQ(refused(persist() != 0), EIO) << rpmem_errormsg();
    std::filesystem::remove(refuses);
    // What such a medium accepts later may rest on what it lost.
    EXPECT_EQ(refused(persist() != 0), EIO) << rpmem_errormsg();
    (void)rpmem_close(pool);
    pool = open(memory);
    ASSERT_NE(pool, nullptr) << rpmem_errormsg();
    EXPECT_EQ(rpmem_persist(pool, kPage, 64, 0, 0), 0) << rpmem_errormsg();
    EXPECT_EQ(rpmem_close(pool), 0);
  }
}

// A name whose directory was never synced is back after a power failure.
TEST_F(RpmemFaults, WhatIsRemovedIsSoDurably) {
  make();
  const std::string refuses = target_.here("refuses");
  run_by(fmt::format("env LD_PRELOAD='{} {}' FAILING_SYNC='{}'", SANITIZER_LIBRARY, FAILING_SYNC,
                     refuses));
  test::write_text(refuses, "");
  EXPECT_EQ(refused(rpmem_remove("localhost", "r.set", RPMEM_REMOVE_POOL_SET) != 0), EIO)
      << rpmem_errormsg();
  EXPECT_TRUE(std::filesystem::exists(target_.at_home("r.set"))) << "the set goes last";
  // Receive: the same again. Expect: that the part is gone is not believed before it is so durably.
  EXPECT_EQ(refused(rpmem_remove("localhost", "r.set", RPMEM_REMOVE_FORCE) != 0), EIO);
  std::filesystem::remove(refuses);
  EXPECT_EQ(rpmem_remove("localhost", "r.set", RPMEM_REMOVE_FORCE), 0) << rpmem_errormsg();
  make();
}

// The target stands still until the caller has given up, and then answers.
TEST_F(RpmemFaults, ALateAnswerIsNotTakenForThatToTheNextRequest) {
  const std::string go = target_.here("go");
  const std::string heard = target_.here("heard");
  test::write_text(target_.here("hello"), hello(rpmem::encode(rpmem::Hello{"1.0", "there"})));
  test::write_text(target_.here("done"), rpmem::encode_frame({rpmem::FrameKind::Done, "{}"}));
  test::write_text(target_.at_home("ssh"),
                   fmt::format("#!/bin/sh\ncat '{}'\nexec 3<&0\ncat <&3 > '{}' &\n"
                               "while [ ! -e '{}' ]; do sleep 0.01; done\ncat '{}'\nwait\n",
                               target_.here("hello"), heard, go, target_.here("done")));
  const auto patience = [] { return Deadline::after(std::chrono::seconds(60)); };
  auto peer = rpmem::CommandPeer::start({target_.at_home("ssh"), "rpmemd"}, {"", "there", ""}, {},
                                        patience());
  ASSERT_TRUE(peer.ok()) << peer.error().message;
  const Deadline soon = Deadline::after(std::chrono::milliseconds(1));
  EXPECT_EQ((*peer)->ask(rpmem::FrameKind::SetAttributes, "{}", soon).code(), ErrorCode::TimedOut);
  test::write_text(go, "");
  EXPECT_EQ((*peer)->ask(rpmem::FrameKind::SetAttributes, "{}", patience()).code(),
            ErrorCode::Disconnected);
  // What was made is to go all the same.
  EXPECT_EQ((*peer)->end(true, patience()).code(), ErrorCode::Disconnected);
  const std::string close =
      rpmem::encode_frame({rpmem::FrameKind::Close, rpmem::encode_close(true)});
  EXPECT_TRUE(test::read_whole(heard).ends_with(close)) << test::read_whole(heard);
}

// The daemon stands still. Expect: what was asked for then is done, or is not said to be; and what
// is asked for next gets an answer of its own.
TEST_F(RpmemFaults, AttributesThatWereSetMeanwhileAreSetOrNotSaidToBe) {
  make();
  const Memory memory;
  RPMEMpool* pool = nullptr;
  // As short as this machine can open a pool at all: the daemon stands still for that long.
  for (int ms = 500; ms < 60'000 && pool == nullptr; ms *= 2) {
    ::setenv("PERDURE_RPMEM_CONNECT_MS", std::to_string(ms).c_str(), 1);
    pool = open(memory);
  }
  ::unsetenv("PERDURE_RPMEM_CONNECT_MS");
  ASSERT_NE(pool, nullptr) << rpmem_errormsg();
  const int daemon = target_.daemons().back();
  ASSERT_EQ(::kill(daemon, SIGSTOP), 0);
  const rpmem_pool_attr changed = test::some_attributes(9);
  const bool done = rpmem_set_attr(pool, &changed) == 0;
  if (!done) ::kill(daemon, SIGCONT);
  rpmem_pool_attr wrong = changed;
  wrong.major = 0;
  EXPECT_NE(rpmem_set_attr(pool, &wrong), 0);
  (void)rpmem_close(pool);
  rpmem_pool_attr found{};
  pool = open(memory, "r.set", &found);
  ASSERT_NE(pool, nullptr) << rpmem_errormsg();
  EXPECT_TRUE(!done || std::memcmp(&found, &changed, sizeof found) == 0);
  EXPECT_EQ(rpmem_close(pool), 0);
}

}  // namespace
}  // namespace perdure
