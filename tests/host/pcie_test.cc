// DDIO, IOMMU and NUMA: each verdict of each check.
#include "tests/host/machine.h"

#include <algorithm>

namespace perdure::host {
namespace {

using enum Verdict;
using pmem::MediumKind;

// perfctrlsts_0: bit 7 is on by default. TPHDIS is bit 1 of the byte at 0x185.
constexpr unsigned kOn = 0x91;
constexpr unsigned kOff = 0x11;
constexpr unsigned kNoSnoop = 0x19;
constexpr unsigned kTphDis = 0x02;

Machine xeon(unsigned low, unsigned high, PersistenceDomain domain = PersistenceDomain::Dmp) {
  return Machine()
      .rdma()
      .root_port("0x2030", low, high)
      .pool_on(MediumKind::Dax, domain, "device dax");
}

TEST(DdioCheck, ReadsTheRegisterOfTheRootPort) {
  const auto check = check_ddio;
  expect(check, Machine(), NotApplicable, "no RNIC");
  expect(check, Machine().rdma({.description = "rxe"}), NotApplicable, "no RNIC");
  expect(check, xeon(kOn, 0), Advice, "every record goes through this processor");
  expect(check, xeon(kOn, 0, PersistenceDomain::Mhp), Ok, "does not matter to the domain mhp");
  expect(check, xeon(kOff, kTphDis), Ok, "you may declare");
  expect(check, xeon(kOff, 0), NotKnown, "counts as on");            // TPH can still steer
  expect(check, xeon(kNoSnoop, kTphDis), NotKnown, "counts as on");  // so can no-snoop writes
}

TEST(DdioCheck, WhatCanNotBeReadCountsAsOn) {
  const auto check = check_ddio;
  const auto of_port = [](const std::string& device, std::size_t bytes) {
    return Machine().rdma().root_port(device, kOff, kTphDis, bytes);
  };
  expect(check, of_port("0x2030", 64), NotKnown, "counts as on");    // what a user may read
  expect(check, of_port("0x347a", 4096), NotKnown, "counts as on");  // Ice Lake
  expect(check, of_port("cheese", 4096), NotKnown, "counts as on");
  expect(check, Machine().rdma(), NotKnown, "counts as on");
  expect(check, of_port("0x2030", 4096).file(std::string(Machine::kRootPort) + "/vendor", "0x1022"),
         NotKnown, "counts as on");  // AMD
  expect(check, of_port("0x2030", 0).unreadable(std::string(Machine::kRootPort) + "/config"),
         NotKnown, "counts as on");
  expect(check, Machine().rdma().remove("/sys/class/infiniband/mlx5_0/device"), NotKnown,
         "counts as on");
  EXPECT_NE(check(of_port("0x2030", 64).inspected()).root_tells, "");
}

TEST(DdioCheck, AWrongDeclarationLosesData) {
  constexpr char kDeclared[] = "[profile]\nddio = \"off\"\n";
  expect(check_ddio, xeon(kOn, 0).config(kDeclared), Problem, "can be lost");
  expect(check_ddio, xeon(kOff, kTphDis).config(kDeclared), Ok, "as declared");
  expect(check_ddio, xeon(kOn, 0).config("[profile.pool.orders]\nddio = \"off\"\n"), Problem,
         "can be lost");
  expect(check_ddio, Machine().rdma().config(kDeclared), NotKnown, "is believed");
}

// Whether the root complex holds a READ back until the writes before it are out, no file tells.
TEST(DdioCheck, NamesReadFencingWhereDdioIsDeclaredOff) {
  const auto names_it = [](Machine machine) {
    const auto evidence = check_ddio(machine.inspected()).evidence;
    return std::any_of(evidence.begin(), evidence.end(),
                       [](const std::string& each) { return each.starts_with("read fencing:"); });
  };
  constexpr char kDeclared[] = "[profile]\nddio = \"off\"\n";
  EXPECT_TRUE(names_it(xeon(kOff, kTphDis).config(kDeclared)));
  EXPECT_TRUE(names_it(Machine().rdma().config(kDeclared)));
  EXPECT_FALSE(names_it(xeon(kOff, kTphDis)));
  EXPECT_FALSE(names_it(Machine().config(kDeclared))) << "no RNIC reads there";
}

/// The first 256 bytes of a function: a capability of power management, then PCI Express.
std::string function_config(unsigned device_control, std::size_t bytes = 256) {
  std::string config(256, '\0');
  config[0x34] = 0x40;
  config[0x40] = 0x01;
  config[0x41] = 0x60;
  config[0x60] = 0x10;
  config[0x68] = static_cast<char>(device_control);
  return config.substr(0, bytes);
}

TEST(WriteOrder, CountsOnNothingThatIsNotDeclared) {
  const std::string file = std::string(Machine::kRnicPath) + "/config";
  const auto with = [&file](const std::string& config) {
    return Machine().rdma().file(file, config);
  };
  constexpr unsigned kRelaxed = 0x10;
  const auto check = check_write_order;
  expect(check, Machine(), NotApplicable, "no RNIC");
  expect(check, with(function_config(kRelaxed)), Ok, "the PCIe bus may relax it");
  expect(check, with(function_config(0)), Ok, "the PCIe bus keeps it");
  expect(check, with(function_config(0, 64)), Ok, "can not be read");  // what a user may read
  expect(check, with(""), Ok, "can not be read");
  expect(check, Machine().rdma(), Ok, "can not be read");
  std::string loop = function_config(0);
  loop[0x60] = 0x05;
  loop[0x61] = 0x40;
  expect(check, with(loop), Ok, "can not be read");
  EXPECT_NE(check(with(function_config(0, 64)).inspected()).root_tells, "");
}

TEST(WriteOrder, OfAVirtualFunctionThePhysicalOneTells) {
  const std::string rnic = Machine::kRnicPath;
  const std::string physical = "/sys/devices/pci0000:17/0000:17:00.0/0000:18:00.1";
  const auto with = [&](unsigned of_virtual, unsigned of_physical) {
    return Machine()
        .rdma()
        .file(rnic + "/config", function_config(of_virtual))
        .file(physical + "/config", function_config(of_physical))
        .link(rnic + "/physfn", physical);
  };
  // The bit of the virtual function is 0 whatever holds; so is that of a guest's.
  expect(check_write_order, with(0, 0x10), Ok, "the PCIe bus may relax it");
  expect(check_write_order, with(0x10, 0), Ok, "the PCIe bus keeps it");
  expect(check_write_order, with(0, 0).file("/proc/cpuinfo", "flags : fpu hypervisor\n"), Ok,
         "can not be read");
}

TEST(WriteOrder, ADeclarationIsBelievedAndSaidToBe) {
  const std::string file = std::string(Machine::kRnicPath) + "/config";
  const auto declared = [&file](std::string_view toml, unsigned device_control) {
    return Machine().rdma().file(file, function_config(device_control)).config(toml);
  };
  constexpr std::string_view kForAll = "[profile]\nwrite_order = \"ordered\"\n";
  constexpr std::string_view kForOne = "[profile.pool.orders]\nwrite_order = \"ordered\"\n";
  expect(check_write_order, declared(kForAll, 0x10), NotKnown, "is believed");
  expect(check_write_order, declared(kForOne, 0), NotKnown, "the PCIe bus keeps it");
}

TEST(PagesUnderRnic, FollowTheKernelsRelease) {
  const auto with = [](const std::string& release) {
    return Machine().rdma().file("/proc/sys/kernel/osrelease", release);
  };
  const auto check = check_pages_under_rnic;
  expect(check, Machine(), NotApplicable, "no RDMA device");
  expect(check, with("6.1.0-18-amd64").pool_on_device_dax(), NotApplicable,
         "neither kept by the page cache");
  expect(check, with("6.1.0-18-amd64"), Ok, "only methods by SEND");
  expect(check, with("6.4.16"), Ok, "only methods by SEND");
  expect(check, with("6.5.0"), Advice, "pages on demand");
  expect(check, with("7.0.1"), Advice, "pages on demand");
  expect(check, with("cheese"), NotKnown, "is not known");
  expect(check, Machine().rdma(), NotKnown, "is not known");
}

// No kernel pins pages of a file on DAX, whatever the domain.
TEST(PagesUnderRnic, AFileOnDaxIsPinnedByNone) {
  const auto check = check_pages_under_rnic;
  const auto with = [](const MadeUpRdma& device, const std::string& release) {
    return Machine()
        .rdma(device)
        .file("/proc/sys/kernel/osrelease", release)
        .pool_on(MediumKind::Dax, PersistenceDomain::Dmp, "ext4");
  };
  expect(check, with({}, "6.1.0"), Advice, "no kernel pins pages of a file on DAX");
  expect(check, with({}, "6.5.0"), Advice, "only if it pages on demand");
  expect(check, Machine().pool_on(MediumKind::Dax, PersistenceDomain::Dmp, "ext4"), NotApplicable,
         "no RDMA device");
}

// What the operator wants to be served that way and can not be is a problem.
TEST(PagesUnderRnic, APoolThatTheConfiguredTransportCanNotServeIsAProblem) {
  const auto check = check_pages_under_rnic;
  const auto offers = [](const std::string& driver, const std::string& transports,
                         const std::string& release) {
    return Machine()
        .rdma({.driver = driver})
        .file("/proc/sys/kernel/osrelease", release)
        .config("[data]\ntransports = [" + transports + "]\n");
  };
  expect(check, offers("irdma", "\"tcp\", \"roce\"", "6.5.0"), Problem,
         "over the configured RDMA transport");
  expect(check, offers("irdma", "\"roce\"", "6.4.0"), Ok, "only methods by SEND");
  expect(check, offers("irdma", "\"tcp\"", "6.5.0"), Advice, "only if it pages on demand");
  expect(check, offers("irdma", "\"infiniband\"", "6.5.0"), Advice, "only if it pages on demand");
  expect(check, offers("mlx5_core", "\"roce\"", "6.5.0"), NotKnown, "and is to serve it");
  expect(
      check,
      offers("irdma", "\"roce\"", "6.1.0").pool_on(MediumKind::Dax, PersistenceDomain::Dmp, "ext4"),
      Problem, "no kernel pins pages of a file on DAX");
  expect(check, offers("irdma", "\"roce\"", "6.5.0").pool_on_device_dax(), NotApplicable,
         "neither kept by the page cache");
}

TEST(PagesUnderRnic, WhatIsNotKnownToBePinnedIsNot) {
  pmem::Medium medium;
  EXPECT_EQ(why_not_pinned(medium, "6.4.16-generic"), "");
  EXPECT_NE(why_not_pinned(medium, "6.5.0"), "");
  EXPECT_NE(why_not_pinned(medium, "cheese"), "");
  medium.kind = MediumKind::Dax;
  EXPECT_NE(why_not_pinned(medium, "6.4.16-generic"), "");
  medium.is_device = true;
  EXPECT_EQ(why_not_pinned(medium, "6.5.0"), "");
  medium = {};
  medium.kind = MediumKind::Dram;
  EXPECT_EQ(why_not_pinned(medium, "6.5.0"), "");
}

TEST(PagesUnderRnic, ThatTheKernelNoticesWhatIsWrittenIsBelievedAndSaidToBe) {
  const auto declared = [](std::string_view toml, const std::string& release) {
    return Machine().rdma().file("/proc/sys/kernel/osrelease", release).config(toml);
  };
  constexpr std::string_view kForAll = "[profile]\ndma_dirties = \"yes\"\n";
  constexpr std::string_view kForOne = "[profile.pool.orders]\ndma_dirties = \"yes\"\n";
  const auto check = check_pages_under_rnic;
  expect(check, declared(kForAll, "6.5.0"), NotKnown, "dma_dirties = \"yes\" is declared");
  expect(check, declared(kForOne, "6.12.1"), NotKnown, "is believed");
  expect(check, declared(kForAll, "cheese"), NotKnown, "is believed");
  EXPECT_NE(check(declared(kForAll, "6.5.0").inspected()).commands[0].find("--power-cut arm"),
            std::string::npos);
  // Pinned pages: it changes nothing there.
  expect(check, declared(kForAll, "6.1.0"), Ok, "only methods by SEND");
  expect(check, declared("[profile]\ndma_dirties = \"no\"\n", "6.5.0"), Advice, "pages on demand");
  expect(check, declared("[profile]\nfoo = 1\n", "6.5.0"), NotKnown, "configuration of perdured");
}

// rxe and siw pin pages and store into them as an RNIC does: the kernel does not notice that
// either.
TEST(PagesUnderRnic, SoftwareRnicsPinThemToo) {
  for (const char* description : {"rxe", "Software iWARP stack"}) {
    const auto with = [&](const std::string& release) {
      return Machine()
          .rdma({.name = "soft0", .description = description})
          .file("/proc/sys/kernel/osrelease", release);
    };
    expect(check_pages_under_rnic, with("6.1.0"), Ok, "only methods by SEND");
    expect(check_pages_under_rnic, with("6.5.0"), Advice, "pages on demand");
    expect(check_forks, with("5.10.0"), Advice, "is refused the RNIC");
    expect(check_forks, with("6.1.0"), Ok, "to the parent");
  }
}

TEST(Forks, AreSafeSinceTheKernelCopiesPinnedPages) {
  const auto with = [](const std::string& release) {
    return Machine().rdma().file("/proc/sys/kernel/osrelease", release);
  };
  const auto check = check_forks;
  expect(check, Machine(), NotApplicable, "no RDMA device");
  expect(check, with("5.10.0-28-amd64"), Advice, "is refused the RNIC");
  expect(check, with("4.18.0"), Advice, "is refused the RNIC");
  expect(check, with("5.11.22"), Advice, "is refused the RNIC");
  expect(check, with("5.12.0"), Ok, "to the parent");
  expect(check, with("6.1.0-18-amd64"), Ok, "to the parent");
  expect(check, Machine().rdma(), NotKnown, "not known");
}

TEST(Iommu, TranslatesOrNot) {
  const std::string group = std::string(Machine::kRnicPath) + "/iommu_group";
  const auto with = [&group](std::string_view type) {
    return Machine().rdma().file(group + "/type", type);
  };
  const auto check = check_iommu;
  expect(check, Machine(), NotApplicable, "no RNIC");
  expect(check, Machine().rdma(), Ok, "no IOMMU");
  expect(check, with("identity\n"), Ok, "passed through");
  expect(check, with("DMA\n"), Advice, "translates every address (DMA)");
  expect(check, with("DMA-FQ\n"), Advice, "translates every address (DMA-FQ)");
  expect(check, with("moon\n"), NotKnown, "can not be read");
  expect(check, Machine().rdma().directory(group), NotKnown, "can not be read");
  expect(check, Machine().rdma().remove("/sys/class/infiniband/mlx5_0/device"), NotKnown,
         "can not be found");
  expect(check, Machine().rdma().unreadable(group + "/type"), NotKnown, "can not be read");
}

Machine two_nodes(std::string_view of_rnic, std::string_view of_pool) {
  return Machine()
      .rdma()
      .disk("sda")
      .file("/sys/devices/system/node/online", "0-1\n")
      .file(std::string(Machine::kRnicPath) + "/numa_node", of_rnic)
      .file("/sys/devices/virtual/block/sda/numa_node", of_pool);
}

TEST(Numa, RnicAndPoolAreOnOneNode) {
  const auto check = check_numa;
  const std::string online = "/sys/devices/system/node/online";
  expect(check, Machine(), NotApplicable, "one NUMA node");
  expect(check, Machine().file(online, "0\n"), NotApplicable, "one NUMA node");
  expect(check, Machine().file(online, "0-1\n"), NotApplicable, "no RNIC");
  expect(check, two_nodes("1\n", "1\n"), Ok, "node 1");
  expect(check, two_nodes("0\n", "1\n"), Advice, "on node 0, the pool on node 1");
  expect(check, two_nodes("0\n", "-1\n"), NotKnown, "for the pool");
  expect(check, two_nodes("cheese\n", "1\n"), NotKnown, "for mlx5_0");
  expect(check, two_nodes("0", "0").unreadable(std::string(Machine::kRnicPath) + "/numa_node"),
         NotKnown, "for mlx5_0");
}

}  // namespace
}  // namespace perdure::host
