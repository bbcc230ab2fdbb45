// What the environment says to librpmem: PMDK's variables, and Perdure's own.
#include <gtest/gtest.h>
#include <librpmem.h>

#include <bit>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <string>

#include "librpmem/environment.h"
#include "rpmem/remote_pool.h"
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

class RpmemEnvironment : public testing::Test {
 protected:
  RpmemEnvironment() { target_.serve_set("r.set", {"4M"}); }
  ~RpmemEnvironment() override {
    for (const char* name :
         {"RPMEM_CMD", "RPMEM_ENABLE_SOCKETS", "RPMEM_ENABLE_VERBS", "RPMEM_WORK_QUEUE_SIZE",
          "RPMEM_MAX_NLANES", "PERDURE_RPMEM_CONNECT_MS"}) {
      ::unsetenv(name);
    }
  }
  bool works() {
    const Memory memory;
    RPMEMpool* const pool =
        std::filesystem::exists(target_.at_home("r.set.0")) ? open(memory) : create(memory);
    EXPECT_NE(pool, nullptr) << rpmem_errormsg();
    if (pool == nullptr) return false;
    EXPECT_EQ(rpmem_persist(pool, kPage, 64, 0, 0), 0) << rpmem_errormsg();
    return rpmem_close(pool) == 0;
  }
  test::Target target_{"shm"};
};

// Several commands are taken in turn, one for each connection.
TEST_F(RpmemEnvironment, CommandsAreTakenInTurn) {
  const std::string one = "echo one >> " + target_.here("turns") + "; rpmemd";
  const std::string two = "echo two >> " + target_.here("turns") + "; rpmemd";
  ::setenv("RPMEM_CMD", (one + "|" + two).c_str(), 1);
  for (int connection = 0; connection < 4; ++connection) EXPECT_TRUE(works());
  const std::string turns = test::read_whole(target_.here("turns"));
  EXPECT_TRUE(turns == "one\ntwo\none\ntwo\n" || turns == "two\none\ntwo\none\n") << turns;
}

// PMDK's ways to choose and tune a provider: there is no such choice here.
TEST_F(RpmemEnvironment, WhatTunedAProviderIsTakenAndOfNoEffect) {
  for (const char* value : {"0", "1", "50", "-1", "nonsense", ""}) {
    ::setenv("RPMEM_ENABLE_SOCKETS", value, 1);
    ::setenv("RPMEM_ENABLE_VERBS", value, 1);
    ::setenv("RPMEM_WORK_QUEUE_SIZE", value, 1);
    EXPECT_TRUE(works()) << value;
  }
}

// Without verbs no RNIC is looked for; every other word leaves that as it is. Of the rest nothing
// changes what is chosen.
TEST_F(RpmemEnvironment, VerbsCanBeRuledOut) {
  const auto choice = [] {
    rpmem::RemotePoolOptions options;
    librpmem::apply_environment(options);
    return options.choice;
  };
  EXPECT_TRUE(choice().rdma);
  ::setenv("RPMEM_ENABLE_VERBS", "0", 1);
  EXPECT_FALSE(choice().rdma);
  ::setenv("RPMEM_ENABLE_SOCKETS", "0", 1);
  EXPECT_FALSE(choice().rdma);
  EXPECT_EQ(choice().transport, Transport::Shm) << "as the test's target has it";
  for (const char* value : {"1", "", "no", "-1"}) {
    ::setenv("RPMEM_ENABLE_VERBS", value, 1);
    EXPECT_TRUE(choice().rdma) << value;
  }
}

TEST_F(RpmemEnvironment, LanesThatAreNoNumberAreNotLimited) {
  const Memory memory;
  const rpmem_pool_attr attributes = test::some_attributes();
  for (const char* value : {"0", "-1", "many", ""}) {
    ::setenv("RPMEM_MAX_NLANES", value, 1);
    unsigned lanes = 100000;
    RPMEMpool* const pool =
        rpmem_create("localhost", "r.set", memory.at(), kBytes, &lanes, &attributes);
    ASSERT_NE(pool, nullptr) << rpmem_errormsg();
    EXPECT_EQ(lanes, 1024U) << value;
    EXPECT_EQ(rpmem_close(pool), 0);
    EXPECT_EQ(rpmem_remove("localhost", "r.set", 0), 0) << rpmem_errormsg();
  }
}

// A transport that the target can not have is not replaced by another one.
TEST_F(RpmemEnvironment, TheTransportIsThatAndNoOther) {
  ::setenv("PERDURE_RPMEM_TRANSPORT", "roce", 1);
  const Memory memory;
  EXPECT_EQ(refused(create(memory) == nullptr), ENOTSUP) << rpmem_errormsg();
  EXPECT_FALSE(std::filesystem::exists(target_.at_home("r.set.0")));
  ::setenv("PERDURE_RPMEM_TRANSPORT", "tcp", 1);
  EXPECT_TRUE(works());
}

// Unless its operator says what keeps it: see declare-domain.
TEST_F(RpmemEnvironment, MemoryThatLosesAllIsRefused) {
  const test::Target target("shm", test::Target::Medium::Memory);
  target.serve_set("r.set", {"4M"});
  const Memory memory;
  test::write_text(target.at_home("conf"), "poolset-dir = " + target.home() + "\n");
  EXPECT_EQ(refused(create(memory) == nullptr), ENOTSUP);
  EXPECT_NE(std::string(rpmem_errormsg()).find("declare-domain"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(target.at_home("r.set.0")));
}

TEST_F(RpmemEnvironment, ATargetThatSaysNothingIsNotWaitedForForEver) {
  ::setenv("PERDURE_RPMEM_CONNECT_MS", "200", 1);
  test::write_text(target_.at_home("ssh"), "#!/bin/sh\nexec sleep 60\n");
  EXPECT_EQ(refused(open(Memory()) == nullptr), ETIMEDOUT) << rpmem_errormsg();
}

// A target that opens its device, or a machine with other things to do, is not silent.
TEST_F(RpmemEnvironment, AnOpeningHasItsOwnTimeAndNotThatOfAnAnswer) {
  for (const Transport transport : {Transport::Tcp, Transport::Shm}) {
    rpmem::RemotePoolOptions options;
    options.shell.ssh = target_.at_home("ssh");
    options.target.host = "localhost";
    options.choice.transport = transport;
    options.set = "r.set";
    options.timeout = Nanoseconds{1};
    const Memory memory;
    const std::span bytes(reinterpret_cast<std::byte*>(memory.at()), memory.bytes());
    const auto pool =
        std::filesystem::exists(target_.at_home("r.set.0"))
            ? rpmem::RemotePool::open(options, bytes)
            : rpmem::RemotePool::create(
                  options, bytes, std::bit_cast<rpmem::PoolAttributes>(test::some_attributes()));
    ASSERT_TRUE(pool.ok()) << pool.error().message;
    EXPECT_TRUE((*pool)->close().ok());
  }
}

}  // namespace
}  // namespace perdure
