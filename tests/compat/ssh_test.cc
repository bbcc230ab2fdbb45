// A real ssh and a real sshd between librpmem and rpmemd: what the stand-ins of the other tests
// leave out is a shell with an environment of its own, a login, and channels that end as sshd ends
// them.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <librpmem.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "testing/process.h"
#include "tests/compat/client.h"
#include "tests/compat/listening_rpmemd.h"
#include "tests/compat/target.h"

namespace perdure {
namespace {

using test::ChildProcess;
using test::kBytes;
using test::kPage;
using test::Memory;

constexpr const char* kSshd = "/usr/sbin/sshd";
constexpr int kPortsTried = 20;

class RealSsh : public testing::Test {
 protected:
  void SetUp() override {
    if (::access(kSshd, X_OK) != 0) GTEST_SKIP() << "no sshd: tools/setup.sh test installs one";
    target_.serve_set("r.set", {"4M"});
    make_keys();
    start_sshd();
    test::write_text(target_.at_home("ssh"),
                     fmt::format("#!/bin/sh\nexec ssh -F '{}' \"$@\"\n", at("ssh_config")));
    ::chmod(target_.at_home("ssh").c_str(), 0755);
    const std::string command = fmt::format(
        "echo $$ >> '{0}/daemons'; exec '{1}' --config '{0}/conf'", target_.home(), RPMEMD);
    ::setenv("RPMEM_CMD", command.c_str(), 1);
  }
  void TearDown() override { ::unsetenv("RPMEM_CMD"); }

  std::string at(const std::string& name) const { return target_.here(name); }
  int run(const std::vector<std::string>& command) const {
    auto child = ChildProcess::start(command, at("output"));
    EXPECT_TRUE(child.ok());
    if (!child.ok()) return -1;
    child->wait();
    return child->end()->status;
  }
  void make_keys() const {
    for (const char* key : {"host", "client"}) {
      ASSERT_EQ(run({"/usr/bin/ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", at(key)}), 0)
          << test::read_whole(at("output"));
    }
  }
  /// At a port that nobody has: others may be tried at the same time.
  void start_sshd() {
    if (::geteuid() == 0) std::filesystem::create_directories("/run/sshd");
    for (int tries = 0; tries < kPortsTried; ++tries) {
      const int port = 20'000 + (::getpid() * 7 + tries * 101) % 20'000;
      test::write_text(at("sshd_config"),
                       fmt::format("ListenAddress {}\nPort {}\nHostKey {}\n"
                                   "AuthorizedKeysFile {}\nPidFile none\nStrictModes no\n"
                                   "UsePAM no\nPasswordAuthentication no\nPermitRootLogin yes\n",
                                   address_, port, at("host"), at("client.pub")));
      test::write_text(at("ssh_config"),
                       fmt::format("Host *\n Port {}\n HostName {}\n IdentityFile {}\n"
                                   " IdentitiesOnly yes\n StrictHostKeyChecking no\n"
                                   " UserKnownHostsFile {}\n LogLevel ERROR\n",
                                   port, address_, at("client"), at("known")));
      auto started = ChildProcess::start({kSshd, "-D", "-e", "-f", at("sshd_config")}, at("sshd"));
      ASSERT_TRUE(started.ok());
      sshd_ = std::move(*started);
      const Deadline within = Deadline::after(std::chrono::seconds(20));
      while (sshd_.running() && !within.passed()) {
        if (run({"/usr/bin/ssh", "-F", at("ssh_config"), "-oBatchMode=yes", "localhost", "true"}) ==
            0) {
          return;
        }
        test::pause_for(std::chrono::milliseconds(50));
      }
    }
    FAIL() << test::read_whole(at("sshd")) << test::read_whole(at("output"));
  }

  test::Target target_{"tcp"};
  std::string address_ = "127.0.0.1";
  ChildProcess sshd_;
};

TEST_F(RealSsh, CarriesAPoolThroughItsLife) {
  const Memory memory;
  RPMEMpool* pool = test::create(memory);
  ASSERT_NE(pool, nullptr) << rpmem_errormsg();
  std::memset(memory.at() + kPage, 's', 100);
  ASSERT_EQ(rpmem_persist(pool, kPage, 100, 0, 0), 0) << rpmem_errormsg();
  EXPECT_EQ(test::read_whole(target_.at_home("r.set.0")).substr(kPage, 100), std::string(100, 's'));
  // Its daemon dies: ssh ends, and another one is started by it.
  ASSERT_EQ(target_.daemons().size(), 1U);
  ::kill(target_.daemons()[0], SIGKILL);
  std::memset(memory.at() + kPage, 't', 100);
  ASSERT_EQ(rpmem_persist(pool, kPage, 100, 0, 0), 0) << rpmem_errormsg();
  EXPECT_EQ(target_.daemons().size(), 2U);
  EXPECT_EQ(rpmem_close(pool), 0) << rpmem_errormsg();
  // A client that opens it at once finds it free.
  pool = test::open(memory);
  ASSERT_NE(pool, nullptr) << rpmem_errormsg();
  EXPECT_EQ(rpmem_close(pool), 0);
  EXPECT_EQ(rpmem_remove("localhost", "r.set", 0), 0) << rpmem_errormsg();
  EXPECT_FALSE(std::filesystem::exists(target_.at_home("r.set.0")));
}

TEST_F(RealSsh, SaysWhyItLetsNobodyIn) {
  std::filesystem::remove(at("client.pub"));
  const Memory memory;
  EXPECT_EQ(test::refused(test::create(memory) == nullptr), ECONNRESET);
  EXPECT_NE(std::string(rpmem_errormsg()).find("Permission denied"), std::string::npos)
      << rpmem_errormsg();
}

// Receive: a client is killed while it has the pool.
// Expect: sshd and the rpmemd behind it see that, and another client has the pool at once.
TEST_F(RealSsh, FreesThePoolOfAClientThatWasKilled) {
  ::setenv("PERDURE_RPMEM_TRANSPORT", "shm", 1);
  const Memory memory;
  RPMEMpool* const made = test::create(memory);
  ASSERT_NE(made, nullptr) << rpmem_errormsg();
  ASSERT_EQ(rpmem_close(made), 0) << rpmem_errormsg();
  auto client = ChildProcess::start({HOLDER, "localhost", "r.set", std::to_string(memory.bytes())},
                                    at("holder"));
  ASSERT_TRUE(client.ok()) << client.error().message;
  const Deadline within = Deadline::after(std::chrono::seconds(60));
  while (test::read_whole(at("holder")).empty() && client->running() && !within.passed()) {
    test::pause_for(std::chrono::milliseconds(5));
  }
  ASSERT_EQ(test::read_whole(at("holder")), "open\n");
  client->kill();
  RPMEMpool* const pool = test::open(memory);
  ASSERT_NE(pool, nullptr) << rpmem_errormsg();
  EXPECT_EQ(rpmem_close(pool), 0) << rpmem_errormsg();
}

/// The same, at an address of IPv6.
class RealSshOverIpv6 : public RealSsh {
 protected:
  void SetUp() override {
    if (!test::has_ipv6()) GTEST_SKIP() << "no IPv6 on loopback";
    address_ = "::1";
    RealSsh::SetUp();
  }
};

TEST_F(RealSshOverIpv6, CarriesAPool) {
  const Memory memory;
  const rpmem_pool_attr attributes = test::some_attributes();
  unsigned lanes = 1;
  RPMEMpool* const pool =
      rpmem_create("[::1]", "r.set", memory.at(), memory.bytes(), &lanes, &attributes);
  ASSERT_NE(pool, nullptr) << rpmem_errormsg();
  std::memset(memory.at() + kPage, '6', 100);
  ASSERT_EQ(rpmem_persist(pool, kPage, 100, 0, 0), 0) << rpmem_errormsg();
  EXPECT_EQ(test::read_whole(target_.at_home("r.set.0")).substr(kPage, 100), std::string(100, '6'));
  EXPECT_EQ(rpmem_close(pool), 0) << rpmem_errormsg();
  EXPECT_EQ(rpmem_remove("[::1]", "r.set", 0), 0) << rpmem_errormsg();
}

/// An rpmemd that listens, in ssh's place.
class ListeningRpmemd : public testing::Test {
 protected:
  void SetUp() override {
    target_.serve_set("r.set", {"4M"});
    daemon_.start(target_, "127.0.0.1");
  }
  std::string at(const std::string& name) const { return target_.here(name); }
  RPMEMpool* create(const Memory& memory) const {
    const rpmem_pool_attr attributes = test::some_attributes();
    unsigned lanes = 1;
    return rpmem_create(daemon_.host().c_str(), "r.set", memory.at(), memory.bytes(), &lanes,
                        &attributes);
  }
  int remove(const std::string& set, int flags = 0) const {
    return rpmem_remove(daemon_.host().c_str(), set.c_str(), flags);
  }

  test::Target target_{"shm"};
  test::ListeningDaemon daemon_;
};

TEST_F(ListeningRpmemd, TakesTheirPlaceForPoolsAndTheirRemoval) {
  const Memory memory;
  RPMEMpool* const pool = create(memory);
  ASSERT_NE(pool, nullptr) << rpmem_errormsg();
  std::memset(memory.at() + kPage, 'l', 100);
  ASSERT_EQ(rpmem_persist(pool, kPage, 100, 0, 0), 0) << rpmem_errormsg();
  EXPECT_EQ(test::read_whole(target_.at_home("r.set.0")).substr(kPage, 100), std::string(100, 'l'));
  EXPECT_EQ(test::refused(remove("r.set") != 0), EBUSY) << rpmem_errormsg();
  EXPECT_EQ(rpmem_close(pool), 0) << rpmem_errormsg();
  EXPECT_EQ(test::refused(create(memory) == nullptr), EEXIST);
  EXPECT_EQ(remove("r.set"), 0) << rpmem_errormsg();
  EXPECT_EQ(test::refused(remove("r.set") != 0), ENOENT);
  EXPECT_EQ(remove("r.set", RPMEM_REMOVE_FORCE | RPMEM_REMOVE_POOL_SET), 0) << rpmem_errormsg();
  EXPECT_FALSE(std::filesystem::exists(target_.at_home("r.set")));
}

// Receive: clients when the daemon may have no descriptor more.
// Expect: it says so and goes on, and serves them once there are descriptors again.
TEST_F(ListeningRpmemd, GoesOnWithoutDescriptors) {
  rlimit before{};
  const pid_t process = daemon_.process().pid();
  ASSERT_EQ(::prlimit(process, RLIMIT_NOFILE, nullptr, &before), 0);
  const rlimit none{3, before.rlim_max};
  ASSERT_EQ(::prlimit(process, RLIMIT_NOFILE, &none, nullptr), 0);
  // The kernel took a descriptor for the first one before it came; its rpmemd gets none.
  const Memory memory;
  EXPECT_EQ(create(memory), nullptr);
  const Deadline within = Deadline::after(std::chrono::seconds(60));
  while (daemon_.said().find("Too many open files): end") == std::string::npos &&
         daemon_.process().running() && !within.passed()) {
    test::pause_for(std::chrono::milliseconds(5));
  }
  EXPECT_TRUE(daemon_.process().running()) << daemon_.said();
  EXPECT_FALSE(within.passed()) << daemon_.said();
  ASSERT_EQ(::prlimit(process, RLIMIT_NOFILE, &before, nullptr), 0);
  RPMEMpool* const pool = create(memory);
  ASSERT_NE(pool, nullptr) << rpmem_errormsg();
  EXPECT_EQ(rpmem_close(pool), 0) << rpmem_errormsg();
}

// Receive: the address in brackets, as a set file has it, also behind a user's name.
// Expect: the data plane is at that address too; without the port it goes to the usual one.
TEST(ListeningRpmemdOverIpv6, IsReachedByItsAddress) {
  if (!test::has_ipv6()) GTEST_SKIP() << "no IPv6 on loopback";
  for (const char* transport : {"tcp", "shm"}) {
    const test::Target target(transport);
    target.serve_set("r.set", {"4M"});
    test::ListeningDaemon daemon;
    ASSERT_NO_FATAL_FAILURE(daemon.start(target, "[::1]"));
    const Memory memory;
    const rpmem_pool_attr attributes = test::some_attributes();
    unsigned lanes = 1;
    RPMEMpool* pool = rpmem_create(daemon.host().c_str(), "r.set", memory.at(), memory.bytes(),
                                   &lanes, &attributes);
    ASSERT_NE(pool, nullptr) << transport << ": " << rpmem_errormsg();
    std::memset(memory.at() + kPage, '6', 100);
    ASSERT_EQ(rpmem_persist(pool, kPage, 100, 0, 0), 0) << rpmem_errormsg();
    EXPECT_EQ(test::read_whole(target.at_home("r.set.0")).substr(kPage, 100),
              std::string(100, '6'));
    EXPECT_EQ(rpmem_close(pool), 0) << rpmem_errormsg();
    pool = rpmem_open(("somebody@" + daemon.host()).c_str(), "r.set", memory.at(), memory.bytes(),
                      &lanes, nullptr);
    ASSERT_NE(pool, nullptr) << transport << ": " << rpmem_errormsg();
    EXPECT_EQ(rpmem_close(pool), 0) << rpmem_errormsg();
    EXPECT_EQ(rpmem_remove(daemon.host().c_str(), "r.set", 0), 0) << rpmem_errormsg();
  }
}

/// 0: it has none.
int child_of(int parent) {
  const std::string line = fmt::format("\nPPid:\t{}\n", parent);
  for (const auto& each : std::filesystem::directory_iterator("/proc")) {
    if (test::read_whole(each.path() / "status").find(line) == std::string::npos) continue;
    return std::atoi(each.path().filename().c_str());
  }
  return 0;
}

// Receive: a client. Expect: who serves it was forked by who listens, and loads no program, nor
// libfabric, of which either takes longer than all else that an opening takes.
TEST_F(ListeningRpmemd, HasWhatTakesLongBeforeAClientComes) {
  const auto of = [](int process, const char* what) {
    return test::read_whole(fmt::format("/proc/{}/{}", process, what));
  };
  const int listener = daemon_.process().pid();
  RPMEMpool* const pool = create(Memory());
  ASSERT_NE(pool, nullptr) << rpmem_errormsg();
  const int server = child_of(listener);
  ASSERT_NE(server, 0);
  EXPECT_EQ(of(server, "cmdline"), of(listener, "cmdline"));
  const bool has_rnic = std::filesystem::exists("/sys/class/infiniband");
  EXPECT_TRUE(has_rnic || of(server, "maps").find("libfabric") != std::string::npos);
  EXPECT_NE(of(listener, "status").find("\nThreads:\t1\n"), std::string::npos) << "it forks";
  EXPECT_EQ(rpmem_close(pool), 0) << rpmem_errormsg();
}

TEST_F(ListeningRpmemd, RunsNothingElse) {
  const std::string made = at("made");
  for (const std::string& command :
       {"touch " + made + "; rpmemd", "rpmemd; touch " + made, "rpmemd --log-file " + made,
        "rpmemd --config " + made, "$(touch " + made + ")rpmemd", std::string("sh rpmemd")}) {
    ::setenv("RPMEM_CMD", command.c_str(), 1);
    EXPECT_EQ(test::refused(create(Memory()) == nullptr), EINVAL) << command;
    const std::string said = rpmem_errormsg();
    EXPECT_NE(said.find("'" + command + "': not a command of librpmem's"), std::string::npos)
        << said;
    EXPECT_NE(remove("r.set"), 0) << command;
  }
  ::unsetenv("RPMEM_CMD");
  EXPECT_FALSE(std::filesystem::exists(made));
  EXPECT_NE(remove("r.set;touch " + made), 0);
  EXPECT_FALSE(std::filesystem::exists(made));
  // Not where others can come.
  auto open = ChildProcess::start({RPMEMD, "--listen", "0.0.0.0:0"}, at("output"));
  ASSERT_TRUE(open.ok());
  open->wait();
  EXPECT_EQ(open->end()->status, 2);
}

}  // namespace
}  // namespace perdure
