// What the kernel grants a process: each verdict of each check.
#include <fmt/format.h>

#include "tests/host/machine.h"

namespace perdure::host {
namespace {

using enum Verdict;
using pmem::MediumKind;

constexpr std::uint64_t kMiB = 1024 * 1024;
// The receive buffers of the default configuration: 64 sessions, 64 messages, 16 KiB.
constexpr std::uint64_t kBuffers = 64 * kMiB;

std::string limits(const std::string& locked, const std::string& files) {
  return fmt::format(
      "Limit                     Soft Limit           Hard Limit           Units     \n"
      "Max open files            {:<20} {:<20} files     \n"
      "Max locked memory         {:<20} {:<20} bytes     \n",
      files, files, locked, locked);
}

Machine granted(const std::string& locked, const std::string& files = "1024") {
  return Machine().file("/proc/self/limits", limits(locked, files));
}

TEST(LockedMemory, HoldsPoolsAndReceiveBuffers) {
  const auto check = check_locked_memory;
  const auto with = [](std::uint64_t bytes) {
    return granted(std::to_string(bytes)).rdma().pool_bytes(kMiB);
  };
  expect(check, granted("65536"), NotApplicable, "no RDMA device");
  expect(check, granted("unlimited").rdma().pool_bytes(kMiB), Ok, "any amount");
  expect(check, with(kBuffers + kMiB), Advice, "65 MiB now");
  expect(check, with(kBuffers + kMiB - 1), Problem, "registering them fails");
  expect(check, with(65536), Problem, "0 MiB may be locked");
  expect(check, granted("a lot").rdma(), NotKnown, "can not be read");
  expect(check, Machine().rdma(), NotKnown, "can not be read");
  expect(check, Machine().rdma().file("/proc/self/limits", "Max locked memory"), NotKnown,
         "can not be read");
  expect(check, Machine().rdma().unreadable("/proc/self/limits"), NotKnown, "can not be read");
}

TEST(LockedMemory, OfTheDaemonThatRunsCounts) {
  Machine machine = granted("unlimited").rdma();
  machine.file("/proc/41/comm", "perdured\n").file("/proc/41/limits", limits("65536", "1024"));
  machine.file("/proc/42/comm", "bash\n").file("/proc/42/limits", limits("1", "1"));
  expect(check_locked_memory, machine, Problem, "registering them fails");
}

TEST(LockedMemory, FewerSessionsNeedLess) {
  Machine machine = granted(std::to_string(2 * kMiB)).rdma();
  machine.config("[data]\nsessions_max = 1\n");  // 1 MiB of receive buffers
  expect(check_locked_memory, machine, Advice, "have 1 MiB");
}

Machine in_group(std::string_view limit, std::string_view groups = "0::/perdure\n") {
  return Machine()
      .pool_on(MediumKind::Dram, PersistenceDomain::None, "tmpfs")
      .pool_bytes(kMiB)
      .file("/proc/self/cgroup", groups)
      .file("/sys/fs/cgroup/perdure/memory.max", limit)
      .file("/sys/fs/cgroup/memory/perdure/memory.limit_in_bytes", limit);
}

TEST(MemoryCgroup, HoldsPoolsThatStayInMemory) {
  const auto check = check_memory_cgroup;
  const std::string file = "/sys/fs/cgroup/perdure/memory.max";
  const std::string version_1 = "4:memory:/perdure\n0::/\n";
  const std::string enough = std::to_string(kBuffers + kMiB);
  const std::string less = std::to_string(kBuffers + kMiB - 1);
  expect(check, Machine(), NotApplicable, "do not stay in memory");
  expect(check, in_group("max\n"), Ok, "no memory limit");
  expect(check, in_group(enough), Ok, "enough for the 65 MiB");
  expect(check, in_group(less), Problem, "is killed");
  expect(check, in_group(less, version_1), Problem, "is killed");
  expect(check, in_group("9223372036854771712\n", version_1), Ok, "no memory limit");
  expect(check, in_group("max", "0::/\n"), Ok, "no memory limit");  // the root has no file
  expect(check, in_group("max", ""), Ok, "no memory limit");        // a kernel without groups
  expect(check, in_group("max").remove("/proc/self/cgroup"), Ok, "no memory limit");
  expect(check, in_group("max", "cheese\n"), NotKnown, "can not be found");
  expect(check, in_group("max", "0::/elsewhere\n"), NotKnown, "can not be found");
  expect(check, in_group("max").unreadable("/proc/self/cgroup"), NotKnown, "can not be found");
  expect(check, in_group("plenty\n"), NotKnown, "can not be read");
  expect(check, in_group("max\n").unreadable(file), NotKnown, "can not be read");
}

// In a cgroup namespace, as containers have, the process is in "/", which there is no root and has
// a limit.
TEST(MemoryCgroup, TheRootOfANamespaceHasALimit) {
  const auto check = check_memory_cgroup;
  const auto in_namespace = [](std::string_view limit) {
    return in_group("max", "0::/\n").file("/sys/fs/cgroup/memory.max", limit);
  };
  const auto version_1 = [](std::string_view limit) {
    return in_group("max", "9:memory:/\n")
        .file("/sys/fs/cgroup/memory/memory.limit_in_bytes", limit);
  };
  expect(check, in_namespace(std::to_string(kBuffers + kMiB)), Ok, "enough for the 65 MiB");
  expect(check, in_namespace(std::to_string(kBuffers)), Problem, "has 64 MiB");
  expect(check, in_namespace("max\n"), NotKnown, "around this container's");
  expect(check, version_1(std::to_string(kBuffers)), Problem, "has 64 MiB");
  expect(check, version_1("9223372036854771712\n"), Ok, "no memory limit");
  expect(check, in_group("max\n").file("/sys/fs/cgroup/memory.max", "4096\n"), Problem,
         "has 0 MiB");
  // A group outside of the namespace.
  Machine outside = in_group("max", "0::/../../x\n").file("/sys/fs/cgroup/memory.max", "max\n");
  expect(check, outside, NotKnown, "can not be found");
}

TEST(MemoryCgroup, TheGroupsAroundItHoldToo) {
  Machine machine = in_group("max\n", "0::/outer/perdure\n");
  machine.file("/sys/fs/cgroup/outer/perdure/memory.max", "max\n");
  expect(check_memory_cgroup, machine, Ok, "no memory limit");
  machine.file("/sys/fs/cgroup/outer/memory.max", "4096\n");
  expect(check_memory_cgroup, machine, Problem, "has 0 MiB");
  machine.remove("/sys/fs/cgroup/outer/perdure/memory.max");  // a group without the controller
  expect(check_memory_cgroup, machine, Problem, "has 0 MiB");
}

TEST(OpenFiles, SufficeForAllSessions) {
  const auto check = check_open_files;
  expect(check, granted("0", "1024"), Ok, "64 sessions");
  expect(check, granted("0", "unlimited"), Ok, "64 sessions");
  expect(check, granted("0", "768"), Ok, "64 sessions");  // 10 a session and 128
  expect(check, granted("0", "767"), Advice, "can need 768");
  expect(check, granted("0", "1024").config("[data]\nsessions_max = 4096\n"), Advice, "4096");
  expect(check, granted("0", "some"), NotKnown, "can not be read");
  expect(check, Machine(), NotKnown, "can not be read");
  expect(check, Machine().unreadable("/proc/self/limits"), NotKnown, "can not be read");
}

Machine in_memory() {
  return Machine().rdma().pool_on(MediumKind::Dram, PersistenceDomain::None, "tmpfs");
}

TEST(HugePages, ServeACardThatWritesToMemory) {
  const auto check = check_huge_pages;
  expect(check, Machine().rdma(), NotApplicable, "only for pools in memory");
  expect(check, in_memory().remove("/sys/class/infiniband"), NotApplicable, "only for pools");
  expect(check, in_memory().file("/proc/meminfo", "HugePages_Total:    512\n"), Ok, "512");
  expect(check, in_memory().file("/proc/meminfo", "HugePages_Total:      0\n"), Advice, "no huge");
  expect(check, in_memory().file("/proc/meminfo", "HugePages_Total: some\n"), NotKnown, "can not");
  expect(check, in_memory().file("/proc/meminfo", "MemTotal: 1 kB\n"), NotKnown, "can not");
  expect(check, in_memory().unreadable("/proc/meminfo"), NotKnown, "can not be read");
}

TEST(TransparentHugePages, AreForProgramsThatAsk) {
  const auto check = check_transparent_huge_pages;
  const std::string file = "/sys/kernel/mm/transparent_hugepage/enabled";
  expect(check, Machine(), NotApplicable, "has none");
  expect(check, Machine().file(file, "always [madvise] never\n"), Ok, "programs that ask");
  expect(check, Machine().file(file, "always madvise [never]\n"), Ok, "programs that ask");
  expect(check, Machine().file(file, "[always] madvise never\n"), Advice, "may stop a process");
  expect(check, Machine().file(file, "cheese\n"), NotKnown, "can not be read");
  expect(check, Machine().unreadable(file), NotKnown, "can not be read");
}

// How many sessions there will be is in the configuration.
TEST(Limits, RestOnAConfigurationThatCanBeRead) {
  constexpr char kConfig[] = "/etc/perdure/perdured.toml";
  const std::string enough = std::to_string(kBuffers + kMiB);
  expect(check_open_files, granted("0", "1024").unreadable(kConfig), NotKnown, "configuration");
  expect(check_locked_memory, granted(enough).rdma().unreadable(kConfig), NotKnown,
         "configuration");
  expect(check_locked_memory, granted("unlimited").rdma().unreadable(kConfig), Ok, "any amount");
  expect(check_memory_cgroup, in_group(enough).unreadable(kConfig), NotKnown, "configuration");
  expect(check_memory_cgroup, in_group("max\n").unreadable(kConfig), Ok, "no memory limit");
}

}  // namespace
}  // namespace perdure::host
