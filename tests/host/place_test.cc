// The pool's place: each verdict of pool-file-system, write-cache and declared-domain.
#include "tests/host/machine.h"

namespace perdure::host {
namespace {

using pmem::DriveKind;
using pmem::MediumKind;
using enum PersistenceDomain;
using enum Verdict;

Machine on(MediumKind kind, PersistenceDomain found, const std::string& name) {
  return Machine().pool_on(kind, found, name);
}

TEST(PoolFileSystem, SaysWhatKeepsABytePutThere) {
  const auto check = check_pool_file_system;
  expect(check, on(MediumKind::PageCache, Page, "ext4"), Ok, "through this processor");
  expect(check, on(MediumKind::PageCache, None, "nfs"), Problem, "does not keep what is synced");
  expect(check, on(MediumKind::Dram, None, "tmpfs"), Problem, "a power failure empties");
  expect(check, on(MediumKind::Dax, Dmp, "device dax"), Ok, "no page cache between");
  expect(check, on(MediumKind::Dax, None, "device dax"), Problem, "nobody says");
}

TEST(PoolFileSystem, OnDaxWithoutFlushesOfTheProcessorsCachesKeepsNothing) {
  Machine machine = on(MediumKind::Dax, Page, "xfs").drive(DriveKind::Nvdimm, "pmem0");
  expect(check_pool_file_system, machine, Ok, "no page cache between");
  expect(check_pool_file_system, machine.leaves_caches(), Problem, "pmem0/dax/write_cache says 0");
}

TEST(PoolFileSystem, AReadOnlyOneKeepsNothing) {
  const auto check = check_pool_file_system;
  const auto mounted = [](const std::string& options) {
    return on(MediumKind::PageCache, Page, "ext4").mount_options(options);
  };
  expect(check, mounted("rw,relatime,rw,errors=remount-ro"), Ok, "through this processor");
  expect(check, mounted("rw,relatime,ro,errors=remount-ro"), Problem, "read-only");
  expect(check, mounted("ro,relatime,rw"), Problem, "read-only");
  expect(check, mounted("rw,relatime,rw,errors=remount-ro,emergency_ro"), Problem, "read-only");
  expect(check, mounted("rw,relatime,rw,shutdown"), Problem, "read-only");
}

TEST(PoolFileSystem, ADeclaredBatteryKeepsMemory) {
  Machine machine = on(MediumKind::Dram, None, "tmpfs").config("[profile]\ndomain = \"wsp\"\n");
  expect(check_pool_file_system, machine, Ok, "kept by a battery");
}

TEST(PoolFileSystem, PersistentMemoryMountedWithoutDaxIsWasted) {
  expect(check_pool_file_system,
         on(MediumKind::PageCache, Page, "ext4").drive(DriveKind::Nvdimm, "pmem0"), Advice,
         "behind the page cache");
}

// Mounted with DAX no RNIC could register it any more.
TEST(PoolFileSystem, UnderAnRnicPersistentMemoryIsBetterDeviceDaxThanMountedWithDax) {
  const auto advice = [](Machine machine) {
    const Machine on =
        machine.pool_on(MediumKind::PageCache, Page, "ext4").drive(DriveKind::Nvdimm, "pmem0");
    expect(check_pool_file_system, on, Advice, "behind the page cache");
    const Check check = check_pool_file_system(on.inspected());
    std::string all = check.advice;
    for (const std::string& command : check.commands) all += "\n" + command;
    return all;
  };
  EXPECT_NE(advice(Machine()).find("mount -o dax=always"), std::string::npos);
  const std::string under = advice(Machine().rdma());
  EXPECT_EQ(under.find("mount -o dax"), std::string::npos) << under;
  EXPECT_NE(under.find("-m devdax"), std::string::npos) << under;
}

Machine disk(const std::string& write_cache) {
  return Machine().drive(DriveKind::Disk, "sda", write_cache);
}

TEST(WriteCache, OfTheDriveBelowThePools) {
  const auto check = check_write_cache;
  //            machine                                      verdict, finding
  expect(check, disk("write through"), Ok, "no volatile write");
  expect(check, disk("write back"), Ok, "fdatasync and msync");
  expect(check, disk("sideways"), NotKnown, "does not say");
  expect(check, disk(""), NotKnown, "does not say");
  expect(check, Machine().drive(DriveKind::Unknown, "nbd0"), NotKnown, "behind nbd0");
  expect(check, Machine().drive(DriveKind::Memory, "zram0"), Problem, "disk made of memory");
  expect(check, Machine().drive(DriveKind::Nvdimm, "pmem0"), Ok, "no write cache");
  expect(check, on(MediumKind::Dram, None, "tmpfs"), NotApplicable, "no disk");
}

TEST(WriteCache, OfADriveWithLargeUnitsMayTakeBothCopies) {
  const auto units = [](const char* write_cache, const char* bytes) {
    return disk(write_cache).file("/sys/block/sda/queue/minimum_io_size", bytes);
  };
  expect(check_write_cache, units("write back", "4096\n"), Ok, "volatile write cache");
  expect(check_write_cache, units("write back", "16384\n"), Ok, "volatile write cache");
  expect(check_write_cache, units("write back", "65536\n"), Advice, "units of 65536 bytes");
  expect(check_write_cache, units("write through", "65536\n"), Ok, "no volatile write");
}

TEST(WriteCache, OfAVirtualMachineIsTheHostsToKeep) {
  const auto check = check_write_cache;
  const auto guest = [](Machine machine) { return machine.in_a_virtual_machine(); };
  expect(check, guest(disk("write back")), Advice, "its host decides");
  expect(check, guest(disk("write through")), Advice, "its host decides");
  expect(check, guest(Machine().drive(DriveKind::Memory, "zram0")), Problem, "disk made of memory");
  expect(check, guest(on(MediumKind::Dram, None, "tmpfs")), NotApplicable, "no disk");
}

TEST(WriteCache, MattersWhereBarriersAreOff) {
  const auto check = check_write_cache;
  expect(check, disk("write back").mount_options("rw,nobarrier"), Problem, "nobarrier");
  expect(check, disk("write back").mount_options("rw,barrier=0"), Problem, "barrier=0");
  expect(check, disk("write back").mount_options("rw,relatime"), Ok, "volatile write cache");
  expect(check, disk("write back").mount_options(""), NotKnown, "can not be seen");
  expect(check, disk("write through").mount_options(""), Ok, "no volatile write");
  const auto on_image = [](const std::string& options) {
    return disk("write back").image("/srv/image", options).mount_options("rw,relatime");
  };
  expect(check, on_image("rw,nobarrier"), Problem, "holds /srv/image is mounted with nobarrier");
  expect(check, on_image("rw"), Ok, "volatile write cache");
  expect(check, on_image(""), NotKnown, "can not be seen");
  expect(check, disk("write back").stacked_on().mount_options("rw"), Ok, "volatile write cache");
  expect(check, disk("write through").stacked_on().mount_options("rw,nobarrier"), Problem,
         "devices below it");
  expect(check, disk("write back").stacked_on("dm-0").mount_options("rw"), Problem,
         "dm-0 says \"write through\"");
  expect(check, disk("write through").mount_options("rw,volatile"), Problem, "data in memory");
  // The drive keeps its cache, or the operator says so.
  expect(check, disk("write through").mount_options("rw,nobarrier"), Ok, "no volatile write");
}

// ZFS says in no file whether its fsync does anything: what is declared is believed, and not
// silently.
TEST(PoolFileSystem, ADeclaredPageOnZfsIsAdvisedAbout) {
  const auto zfs = [] { return on(MediumKind::PageCache, None, "zfs"); };
  expect(check_pool_file_system, zfs(), Problem, "does not keep what is synced");
  const Machine declared = zfs().config("[profile]\ndomain = \"page\"\n");
  expect(check_pool_file_system, declared, Advice, "sync=disabled");
  EXPECT_NE(check_pool_file_system(declared.inspected()).commands.at(0).find("zfs get sync"),
            std::string::npos);
  expect(check_declared_domain, declared, Advice, "no file of this machine confirms it");
}

TEST(DeclaredDomain, APoolOutlivesNoDeclaration) {
  const auto check = check_declared_domain;
  PoolThere battery{"orders", std::nullopt, "", false};
  battery.relied_on = Wsp;
  const auto memory = [&] { return on(MediumKind::Dram, None, "tmpfs").pool(battery); };
  expect(check, memory(), Problem, "pool orders was relied on as wsp");
  expect(check, memory().config(""), Problem, "which the configuration does not say");
  expect(check, memory().config("[profile.pool.other]\ndomain = \"wsp\"\n"), Problem, "orders");
  // Repeated, for all or for this one; or no more than the evidence.
  expect(check, memory().config("[profile]\ndomain = \"wsp\"\n"), Advice,
         "no file of this machine");
  expect(check, memory().config("[profile.pool.orders]\ndomain = \"wsp\"\n"), Advice, "no file");
  battery.holder = pmem::PoolHolder{pmem::PoolHolder::State::Held, "process 7"};
  expect(check, memory(), NotKnown, "though process 7, which has it, may have been told");
  PoolThere on_disk{"orders", std::nullopt, "", false};
  on_disk.relied_on = Page;
  expect(check, Machine().pool(on_disk), NotApplicable, "never detected");
  expect(check, Machine().pool({"orders", std::nullopt, "", false}), NotApplicable,
         "never detected");
  const Machine closed = Machine().pool({"orders", std::nullopt, "orders.pool: denied", true});
  expect(check, closed, NotKnown, "as what domain pool orders was served");
  EXPECT_NE(check(closed.inspected()).root_tells, "");
}

// A place on ext4, and in it the pool tp, which is a link to something else.
Machine with_link(MediumKind kind, PersistenceDomain found, const std::string& file_system,
                  std::optional<PersistenceDomain> declared = std::nullopt) {
  PoolThere pool{"tp", declared, "", false};
  pool.relied_on = declared;
  pool.medium = on(kind, found, file_system).inspected().place.medium;
  return Machine().pool(pool);
}

TEST(PoolFileSystem, IsThatOfEachPool) {
  const auto check = check_pool_file_system;
  expect(check, with_link(MediumKind::Dram, None, "tmpfs"), Problem, "pool tp: tmpfs is memory");
  expect(check, with_link(MediumKind::Dram, None, "tmpfs").pool({"here", std::nullopt, "", false}),
         Problem, "pool tp: tmpfs is memory");
  expect(check, with_link(MediumKind::Dax, Dmp, "device dax"), Ok, "pool tp: ");
  expect(check_write_cache, with_link(MediumKind::Dram, None, "tmpfs"), NotApplicable, "no disk");
  // The place itself counts where it has no pool, or one that lies in it.
  const Machine both =
      on(MediumKind::Dram, None, "tmpfs")
          .pool(with_link(MediumKind::PageCache, Page, "ext4").inspected().place.pools.front());
  expect(check, both, Ok, "pool tp: ext4");
  PoolThere unseen{"tp", std::nullopt, "tp.pool: denied", true};
  unseen.is_unseen = true;
  expect(check, Machine().pool(unseen), NotKnown, "pool tp lies elsewhere");
  expect(check_write_cache, Machine().pool(unseen), NotKnown, "pool tp lies elsewhere");
  EXPECT_NE(check(Machine().pool(unseen).inspected()).root_tells, "");
}

TEST(DeclaredDomain, OfAPoolIsComparedWithWhatItLiesOn) {
  const auto check = check_declared_domain;
  constexpr char kOfPool[] = "[profile.pool.tp]\ndomain = \"wsp\"\n";
  constexpr char kOfAll[] = "[profile]\ndomain = \"wsp\"\n";
  expect(check, with_link(MediumKind::Dax, None, "device dax").config(kOfPool), Advice, "no file");
  expect(check, with_link(MediumKind::Dax, None, "device dax").config(kOfAll), Advice, "pool tp");
  Machine two = with_link(MediumKind::Dax, None, "device dax");
  expect(check, two.pool({"here", std::nullopt, "", false}).config(kOfAll), Problem, "page cache");
  expect(check, with_link(MediumKind::Dram, None, "tmpfs").config("[profile]\ndomain = \"page\"\n"),
         Problem, "pool tp");
  expect(check, with_link(MediumKind::Dram, None, "tmpfs", Wsp), Problem, "it lies on none");
}

// The domains of the pools count in all checks.
TEST(Domains, AreThoseOfThePools) {
  const Machine dmp = with_link(MediumKind::Dax, Dmp, "device dax");
  EXPECT_EQ(Machine().inspected().domains(), std::set{Page});
  EXPECT_EQ(dmp.inspected().domains(), std::set{Dmp});
  EXPECT_EQ(Machine(dmp).pool({"here", std::nullopt, "", false}).inspected().domains(),
            (std::set{Page, Dmp}));
  EXPECT_EQ(Machine().pool({"here", None, "", false}).inspected().domains(), std::set{None});
}

TEST(PoolFileSystem, NothingIsPromisedWhereNoneIsDeclared) {
  constexpr char kNone[] = "[profile]\ndomain = \"none\"\n";
  const auto check = check_pool_file_system;
  expect(check, Machine().config(kNone), Ok, "domain none is declared");
  expect(check, on(MediumKind::Dram, None, "tmpfs").config(kNone), Ok, "domain none is declared");
  expect(check, disk("write back").mount_options("ro").config(kNone), Problem, "read-only");
  expect(check_write_cache, disk("write back").mount_options("rw,nobarrier").config(kNone),
         NotApplicable, "nothing is promised");
  // Of one pool, others beside it.
  Machine scratch = disk("write back").config("[profile.pool.scratch]\ndomain = \"none\"\n");
  scratch.pool({"scratch", std::nullopt, "", false}).mount_options("rw,nobarrier");
  expect(check_write_cache, scratch, NotApplicable, "nothing is promised");
  scratch.pool({"orders", std::nullopt, "", false});
  expect(check_write_cache, scratch, Problem, "nobarrier");
}

TEST(DeclaredDomain, IsComparedWithTheEvidence) {
  const auto check = check_declared_domain;
  const std::string file = "/etc/perdure/perdured.toml";
  const std::string wsp = "[profile]\ndomain = \"wsp\"\n";
  expect(check, Machine(), NotApplicable, "never detected, only declared");
  expect(check, Machine().config(""), Ok, "nothing beyond the evidence");
  expect(check, Machine().config("[profile]\ndomain = \"page\"\n"), Ok, "declares page");
  expect(check, Machine().config(wsp), Problem, "page cache");
  expect(check, on(MediumKind::Dram, None, "tmpfs").config(wsp), Advice, "no file of this machine");
  expect(check, Machine().config("[profile]\ndomain = \"moon\"\n"), Problem, "refuses");
  expect(check, Machine().config("not toml at all"), Problem, "refuses");
  expect(check, Machine().unreadable(file), NotKnown, "can not be read");
}

TEST(DeclaredDomain, OfOnePoolCountsToo) {
  Machine machine = on(MediumKind::Dax, Dmp, "device dax");
  machine.config("[profile.pool.orders]\ndomain = \"mhp\"\n");
  expect(check_declared_domain, machine, Problem, "[profile.pool.orders]");
}

TEST(DeclaredDomain, NamesTheBatteriesThatCanBeSeen) {
  Machine machine = on(MediumKind::Dram, None, "tmpfs").config("[profile]\ndomain = \"wsp\"\n");
  machine.file("/sys/class/power_supply/ups0/type", "UPS\n")
      .file("/sys/class/power_supply/ups0/status", "Full\n")
      .file("/sys/class/power_supply/mains/type", "Mains\n");
  const Check check = check_declared_domain(machine.inspected());
  ASSERT_GE(check.evidence.size(), 2u);
  EXPECT_EQ(check.evidence[0], "/sys/class/power_supply/ups0/type: UPS");
  EXPECT_EQ(check.evidence[1], "/sys/class/power_supply/ups0/status: Full");
}

}  // namespace
}  // namespace perdure::host
