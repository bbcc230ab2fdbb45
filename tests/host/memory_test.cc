// NVDIMMs and CXL memory: each verdict of each check.
#include "tests/host/machine.h"

namespace perdure::host {
namespace {

using enum Verdict;

constexpr char kBus[] = "/sys/bus/nd/devices";

Machine with(const std::string& device_file, std::string_view text) {
  return Machine().file(std::string(kBus) + "/" + device_file, text);
}

Machine without(const std::string& device_file) {
  return Machine().unreadable(std::string(kBus) + "/" + device_file);
}

TEST(PersistenceDomainCheck, ReadsEachRegion) {
  const auto check = check_persistence_domain;
  const std::string file = "region0/persistence_domain";
  expect(check, Machine(), NotApplicable, "no NVDIMM region");
  expect(check, with(file, "cpu_cache\n"), Ok, "mhp");
  expect(check, with(file, "memory_controller\n"), Ok, "dmp");
  expect(check, with(file, "\n"), NotKnown, "does not say");
  expect(check, with(file, "cheese\n"), NotKnown, "does not say");
  expect(check, without(file), NotKnown, "does not say");
  expect(check, Machine().directory(std::string(kBus) + "/region0"), NotKnown, "does not say");
}

TEST(PersistenceDomainCheck, TheWeakestRegionSpeaksForAll) {
  Machine machine = with("region0/persistence_domain", "cpu_cache\n");
  machine.file(std::string(kBus) + "/region1/persistence_domain", "memory_controller\n");
  expect(check_persistence_domain, machine, Advice,
         "the regions differ: what a pool survives is decided by the region that it lies on");
}

TEST(PersistenceDomainCheck, AVolatileRegionIsBelievedNothing) {
  Machine machine = with("region0/persistence_domain", "cpu_cache\n");
  machine.file(std::string(kBus) + "/region0/devtype", "nd_pmem\n");
  expect(check_persistence_domain, machine, Ok, "mhp");
  machine.file(std::string(kBus) + "/region0/devtype", "nd_volatile\n");
  expect(check_persistence_domain, machine, Advice, "region0 is volatile memory");
}

TEST(PersistenceDomainCheck, OfAVirtualMachineIsWhatItsHypervisorWasTold) {
  const auto check = check_persistence_domain;
  const auto guest = [](const char* word) {
    return with("region0/persistence_domain", word).in_a_virtual_machine();
  };
  expect(check, guest("cpu_cache\n"), Advice, "takes them for none");
  expect(check, guest("memory_controller\n"), Advice, "takes them for none");
  expect(check, Machine().in_a_virtual_machine(), NotApplicable, "no NVDIMM region");
}

TEST(DeepFlush, CanBeThereOrNot) {
  const auto check = check_deep_flush;
  expect(check, Machine(), NotApplicable, "no NVDIMM region");
  expect(check, with("region0/deep_flush", "1\n"), Ok, "on demand");
  expect(check, with("region0/deep_flush", "0\n"), Advice, "can not be flushed");
  expect(check, with("region0/deep_flush", "yes\n"), NotKnown, "does not say");
  expect(check, without("region0/deep_flush"), NotKnown, "does not say");
  expect(check, with("region_seed/deep_flush", "1\n"), NotApplicable, "no NVDIMM region");
}

TEST(Namespaces, AreOfAModeThatCanBeMapped) {
  const auto check = check_namespaces;
  expect(check, Machine(), NotApplicable, "no namespace");
  expect(check, with("namespace0.0/mode", "dax\n"), Ok, "device DAX");
  expect(check, with("namespace0.0/mode", "memory\n"), Ok, "fsdax");
  expect(check, with("namespace0.0/mode", "memory\n").rdma(), Advice, "pages on demand");
  expect(check, with("namespace0.0/mode", "dax\n").rdma(), Ok, "device DAX");
  expect(check, with("namespace0.0/mode", "raw\n"), Advice, "raw");
  expect(check, with("namespace0.0/mode", "safe\n"), Advice, "sector");
  expect(check, with("namespace0.0/mode", "moon\n"), NotKnown, "its mode");
  expect(check, without("namespace0.0/mode"), NotKnown, "its mode");
}

TEST(Namespaces, AnEmptySeedIsNone) {
  Machine machine = with("namespace0.1/mode", "raw\n");
  machine.file(std::string(kBus) + "/namespace0.1/size", "0\n");
  expect(check_namespaces, machine, NotApplicable, "no namespace");
}

TEST(BadBlocks, AreBytesThatAreLost) {
  const auto check = check_bad_blocks;
  expect(check, Machine(), NotApplicable, "no NVDIMM region");
  expect(check, with("region0/badblocks", "\n"), Ok, "no region has lost");
  expect(check, with("region0/badblocks", "16 8\n20480 1\n"), Problem, "region0 has lost 4608");
  expect(check, without("region0/badblocks"), NotKnown, "does not say");
  Machine machine = with("region0/badblocks", "\n");
  machine.file(std::string(kBus) + "/region1/badblocks", "16 8\n");
  expect(check, machine, Problem, "region1");
}

TEST(NvdimmHealth, TellsAModuleThatLosesData) {
  const auto check = check_nvdimm_health;
  expect(check, Machine(), NotApplicable, "no NVDIMM");
  expect(check, with("nmem0/nfit/flags", "\n"), Ok, "no module");
  expect(check, with("nmem0/nfit/flags", "smart_notify \n"), Ok, "no module");
  expect(check, with("nmem0/nfit/flags", "smart_event smart_notify\n"), Advice, "health event");
  expect(check, with("nmem0/nfit/flags", "not_armed smart_event\n"), Problem, "not_armed");
  expect(check, with("nmem0/nfit/flags", "save_fail \n"), Problem, "save_fail");
  expect(check, with("nmem0/papr/flags", "restore_fail \n"), Problem, "restore_fail");
  expect(check, without("nmem0/nfit/flags"), NotKnown, "flags can not be read");
  expect(check, Machine().directory(std::string(kBus) + "/nmem0"), NotKnown, "says nothing");
}

TEST(NvdimmHealth, CountsDirtyShutdowns) {
  const auto check = check_nvdimm_health;
  expect(check, with("nmem0/nfit/dirty_shutdown", "0\n"), Ok, "no module");
  expect(check, with("nmem0/nfit/dirty_shutdown", "3\n"), Advice, "counts 3");
  expect(check, with("nmem0/cxl/dirty_shutdown", "1\n"), Advice, "counts 1");
  expect(check, with("nmem0/nfit/dirty_shutdown", "many\n"), NotKnown, "makes no sense");
  expect(check, without("nmem0/nfit/dirty_shutdown"), NotKnown, "makes no sense");
}

TEST(NvdimmHealth, TheWorstModuleIsTold) {
  Machine machine = with("nmem0/nfit/flags", "\n");
  machine.file(std::string(kBus) + "/nmem1/nfit/flags", "flush_fail\n");
  machine.file(std::string(kBus) + "/nmem2/nfit/flags", "\n");
  expect(check_nvdimm_health, machine, Problem, "nmem1 reports flush_fail");
}

Machine with_cxl(std::string_view persistent_bytes, std::string_view kernel) {
  return Machine()
      .file("/sys/bus/cxl/devices/mem0/pmem/size", persistent_bytes)
      .file("/sys/bus/cxl/devices/mem0/ram/size", "0x1000\n")
      .file("/sys/bus/cxl/devices/mem0/serial", "0x1f\n")
      .file("/proc/sys/kernel/osrelease", kernel);
}

Machine counting(Machine machine) {
  return machine.file(std::string(kBus) + "/nmem0/cxl/id", "31\n")
      .file(std::string(kBus) + "/nmem0/cxl/dirty_shutdown", "0\n");
}

TEST(CxlMemory, IsVolatileOrPartOfAGlobalFlushOrDoubtful) {
  const auto check = check_cxl_memory;
  expect(check, Machine(), NotApplicable, "no CXL memory");
  expect(check, with_cxl("0x0\n", "6.15.0\n"), Ok, "volatile");
  expect(check, with_cxl("0x10000000\n", "6.15.0\n"), Advice, "no file says");
  expect(check, counting(with_cxl("0x10000000\n", "6.15.0-rc1\n")), Ok, "global persistent flush");
  expect(check, counting(with_cxl("0x10000000\n", "7.0\n")), Ok, "global persistent flush");
  expect(check, counting(with_cxl("0x10000000\n", "6.14.9\n")), Advice, "no file says");
  expect(check, counting(with_cxl("0x10000000\n", "new\n")), Advice, "no file says");
  expect(check, with_cxl("lots\n", "6.15.0\n"), NotKnown, "how much of it is persistent");
  expect(check, with_cxl("0x0", "6.15").unreadable("/sys/bus/cxl/devices/mem0/pmem/size"), NotKnown,
         "how much of it is persistent");
}

// One that takes part says nothing of another, and what can not be told apart says nothing at all.
TEST(CxlMemory, EachDeviceIsAskedForItself) {
  const auto check = check_cxl_memory;
  const std::string bus = kBus;
  const auto with_two = [](std::string_view serial) {
    return counting(with_cxl("0x10000000\n", "6.15.0\n"))
        .file("/sys/bus/cxl/devices/mem1/pmem/size", "0x10000000\n")
        .file("/sys/bus/cxl/devices/mem1/ram/size", "0x0\n")
        .file("/sys/bus/cxl/devices/mem1/serial", serial);
  };
  expect(check, with_two("0x20\n"), Advice, "mem1 is persistent, but no file says");
  expect(check, with_two("0x20\n").file(bus + "/nmem1/cxl/id", "32\n"), Advice, "mem1");
  expect(check,
         with_two("0x20\n")
             .file(bus + "/nmem1/cxl/id", "32\n")
             .file(bus + "/nmem1/cxl/dirty_shutdown", "0\n"),
         Ok, "global persistent flush");
  // As some kernels print it: with a sign.
  expect(check,
         with_two("0xfffffffffffffffe\n")
             .file(bus + "/nmem1/cxl/id", "-2\n")
             .file(bus + "/nmem1/cxl/dirty_shutdown", "0\n"),
         Ok, "global persistent flush");
  expect(check, with_two("0x1f\n"), Advice, "no file says");
  const auto one = [] { return counting(with_cxl("0x10000000\n", "6.15.0\n")); };
  expect(check, one().remove("/sys/bus/cxl/devices/mem0/serial"), Advice, "no file says");
  expect(check, one().file("/sys/bus/cxl/devices/mem0/serial", "0x0\n"), Advice, "no file says");
  expect(check, one().remove(bus + "/nmem0/cxl/id"), Advice, "no file says");
}

}  // namespace
}  // namespace perdure::host
