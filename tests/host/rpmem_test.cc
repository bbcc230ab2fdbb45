// A target of librpmem's programs: each verdict of each check.
#include "rpmem_doctor.h"

#include <sys/stat.h>

#include "tests/host/machine.h"

namespace perdure::host {
namespace {

using enum Verdict;
using app::RpmemUser;

const RpmemUser kUser{"db", "storage", "/home/db"};

void expect(Check (*check)(const InspectedHost&, const RpmemUser&), const Machine& machine,
            Verdict verdict, const std::string& finding) {
  const Check found = check(machine.inspected(), kUser);
  EXPECT_EQ(found.verdict, verdict) << found.finding;
  EXPECT_NE(found.finding.find(finding), std::string::npos) << found.finding;
  expect_whole(found);
}

Machine with_set(const std::string& text) {
  return Machine().directory("/home/db").file("/home/db/db.set", text);
}

TEST(RpmemSets, AreThoseThatCanBeServed) {
  const auto check = app::check_rpmem_sets;
  const std::string good = "PMEMPOOLSET\n16M /home/db/part0\n";
  expect(check, with_set(good), Ok, "1 set to be served from /home/db");
  expect(check, with_set(good).file("/home/db/m/two.set", good), Ok, "2 sets");
  expect(check, Machine().directory("/home/db"), Advice, "no set in /home/db");
  expect(check, Machine(), Problem, "is not there");
  expect(check, with_set("PMEMPOOLSET\n16M\n"), Problem, "db.set:2");
  expect(check, with_set("PMEMPOOLSET\n16M /mnt/part0\n"), Problem, "none of rpmemd's directories");
  expect(check,
         with_set("PMEMPOOLSET\n16M /mnt/part0\n").file("/home/db/.rpmemd.conf", "part-dir = /mnt"),
         Ok, "1 set");
  expect(check, with_set(good).file("/etc/rpmemd/rpmemd.conf", "poolset-dir = /away"), Problem,
         "/away is not there");
  expect(check, with_set(good).file("/etc/rpmemd/rpmemd.conf", "nonsense = 1"), Problem,
         "rpmemd.conf:1");
}

Machine with_user(const std::string& shell = "/bin/sh") {
  return Machine()
      .file("/etc/passwd", "root:x:0:0::/root:/bin/bash\ndb:x:7:7::/home/db:" + shell + "\n")
      .file("/home/db/.ssh/authorized_keys", "ssh-ed25519 AAAA client\n")
      .file("/usr/bin/rpmemd", "");
}

TEST(RpmemUser, CanBeReachedByClients) {
  const auto check = app::check_rpmem_user;
  expect(check, with_user(), Ok, "db can be reached");
  expect(check, with_user("/usr/sbin/nologin"), Problem, "no shell");
  expect(check, with_user().remove("/home/db/.ssh/authorized_keys"), Advice, "authorized_keys");
  expect(check, with_user().remove("/usr/bin/rpmemd"), Advice, "rpmemd is not where");
  Machine open = with_user();
  const std::string keys = open.inspected().tree.below_root("/home/db/.ssh/authorized_keys");
  ASSERT_EQ(::chmod(keys.c_str(), 0666), 0);
  expect(check, open, Problem, "can be written to by others");
}

Machine with_limits(const std::string& lines) {
  return with_set("PMEMPOOLSET\n1G /home/db/part0\n")
      .rdma()
      .file("/etc/security/limits.conf", "# memlock\n" + lines);
}

TEST(RpmemMemlock, IsWhatASessionTakes) {
  const auto check = app::check_rpmem_memlock;
  expect(check, Machine(), NotApplicable, "no RNIC");
  expect(check, with_limits(""), Problem, "nothing lets db lock");
  expect(check, with_limits("db - memlock unlimited\n"), Ok, "may lock");
  expect(check, with_limits("db soft memlock 2097152\n"), Ok, "may lock");
  expect(check, with_limits("db soft memlock 65536\n"), Problem, "may lock 64 MiB");
  expect(check, with_limits("db hard memlock unlimited\n"), Problem, "nothing lets");
  expect(check, with_limits("* - memlock unlimited\n"), Ok, "may lock");
  // What names the user weighs more than its group, and that more than everybody.
  expect(check, with_limits("db - memlock 64\n* - memlock unlimited\n"), Problem, "64 KiB");
  expect(check, with_limits("* - memlock 64\n@storage - memlock unlimited\n"), Ok, "may lock");
  expect(check, with_limits("").file("/etc/security/limits.d/db.conf", "db - memlock -1\n"), Ok,
         "may lock");
  const Machine good = with_limits("db - memlock unlimited\n");
  expect(check, Machine(good).file("/etc/ssh/sshd_config", "UsePAM yes\n"), Ok, "may lock");
  expect(check, Machine(good).file("/etc/ssh/sshd_config", "#UsePAM yes\n"), Problem, "PAM");
}

TEST(RpmemPersistApm, RestsOnNonAllocatingWrites) {
  const auto check = app::check_rpmem_persist_apm;
  const auto apm = [] {
    return Machine().file("/home/db/.rpmemd.conf", "persist-apm = yes\n").rdma();
  };
  expect(check, Machine().rdma(), Ok, "persist-apm is not set");
  // perfctrlsts: bit 7 of the low word allocates, bit 9 of the high one forbids steering.
  expect(check, apm().root_port("0x2030", 0x91, 0), Problem, "allocates writes");
  expect(check, apm().root_port("0x2030", 0x11, 0x02), Ok, "bypass the caches");
  expect(check, apm(), NotKnown, "can not be read");
}

}  // namespace
}  // namespace perdure::host
