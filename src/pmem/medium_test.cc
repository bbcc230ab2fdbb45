// Medium: what follows from which facts, and which declarations the facts forbid.
#include "pmem/medium.h"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "pmem/mount_options.h"
#include "pmem/test_support.h"

namespace perdure::pmem {
namespace {

using enum PersistenceDomain;

Medium disk_file() {
  Medium medium;
  medium.kind = MediumKind::PageCache;
  medium.file_system = "ext4";
  medium.writes_pages = true;
  medium.found = Page;
  medium.evidence = {"the file system is ext4"};
  return medium;
}

Medium unknown_file_system() {
  Medium medium = disk_file();
  medium.found = None;
  return medium;
}

Medium memory_file() {
  Medium medium;
  medium.kind = MediumKind::Dram;
  medium.evidence = {"the file system is tmpfs"};
  return medium;
}

Medium dax_file(PlatformDomain platform, PersistenceDomain found) {
  Medium medium;
  medium.kind = MediumKind::Dax;
  medium.platform = platform;
  medium.found = found;
  medium.evidence = {"granted MAP_SYNC"};
  return medium;
}

Medium dax_device(PlatformDomain platform, PersistenceDomain found) {
  Medium medium = dax_file(platform, found);
  medium.is_device = true;
  return medium;
}

constexpr auto kNothing = std::optional<PersistenceDomain>();
constexpr auto kRefused = std::optional<PersistenceDomain>();

void check(const Medium& medium, std::optional<PersistenceDomain> declared,
           std::optional<PersistenceDomain> expected) {
  auto domain = decide_domain(medium, declared);
  const std::string what =
      medium.evidence[0] + ", declared " + std::string(declared ? to_string(*declared) : "nothing");
  if (expected) {
    ASSERT_TRUE(domain.ok()) << what << ": " << domain.error().message;
    EXPECT_EQ(*domain, *expected) << what;
  } else {
    ASSERT_FALSE(domain.ok()) << what;
    EXPECT_EQ(domain.code(), ErrorCode::Unsupported) << what;
    // Expect: the evidence is shown to who declared.
    EXPECT_NE(domain.error().message.find(medium.evidence[0]), std::string::npos)
        << domain.error().message;
  }
}

TEST(DecideDomain, ADeclarationMayNotContradictTheEvidence) {
  const auto silent = PlatformDomain::Silent;
  const auto memory_controller = PlatformDomain::MemoryController;
  const auto cpu_cache = PlatformDomain::CpuCache;

  //    medium                             declared  expected
  check(disk_file(), /*              */ kNothing, Page);
  check(disk_file(), /*              */ None, None);
  check(disk_file(), /*              */ Page, Page);
  check(disk_file(), /*              */ Dmp, kRefused);
  check(disk_file(), /*              */ Mhp, kRefused);
  check(disk_file(), /*              */ Wsp, kRefused);
  check(unknown_file_system(), /*    */ kNothing, None);
  check(unknown_file_system(), /*    */ Page, Page);
  check(unknown_file_system(), /*    */ Dmp, kRefused);
  check(memory_file(), /*            */ kNothing, None);
  check(memory_file(), /*            */ None, None);
  check(memory_file(), /*            */ Page, kRefused);
  check(memory_file(), /*            */ Dmp, Dmp);
  check(memory_file(), /*            */ Mhp, Mhp);
  check(memory_file(), /*            */ Wsp, Wsp);
  check(dax_file(memory_controller, Dmp), kNothing, Dmp);
  check(dax_file(memory_controller, Dmp), Page, Page);
  check(dax_file(memory_controller, Dmp), Dmp, Dmp);
  check(dax_file(memory_controller, Dmp), Mhp, kRefused);
  check(dax_file(memory_controller, Dmp), Wsp, Wsp);
  check(dax_file(cpu_cache, Mhp), /* */ kNothing, Mhp);
  check(dax_file(cpu_cache, Mhp), /* */ Dmp, Dmp);
  check(dax_file(cpu_cache, Mhp), /* */ Wsp, Wsp);
  check(dax_file(silent, Page), /*   */ kNothing, Page);
  check(dax_file(silent, Page), /*   */ Dmp, Dmp);
  check(dax_file(silent, Page), /*   */ Mhp, Mhp);
  check(dax_device(silent, None), /* */ kNothing, None);
  check(dax_device(silent, None), /* */ Page, kRefused);
  check(dax_device(silent, None), /* */ Dmp, Dmp);
}

Drive drive(DriveKind kind, const std::string& write_cache = "write back",
            PlatformDomain platform = PlatformDomain::Silent) {
  return {"d", kind, write_cache, platform, "drive d is below", {}, false, ""};
}

TEST(ConcludePageCache, AFileSystemKeepsWhatItsDrivesKeep) {
  const auto check = [](const std::string& options, const std::vector<Drive>& drives,
                        PersistenceDomain found, bool page_may_be_declared) {
    Medium medium = disk_file();
    medium.mount_options = options;
    medium.drives = drives;
    conclude_page_cache(medium);
    EXPECT_EQ(medium.found, found) << options << ": " << join_evidence(medium);
    EXPECT_EQ(decide_domain(medium, Page).ok(), page_may_be_declared) << options;
  };
  using enum DriveKind;
  const Drive disk = drive(Disk);
  const Drive kept = drive(Disk, "write through");
  check("rw,relatime", {disk}, Page, true);
  check("rw,relatime", {disk, disk}, Page, true);
  check("rw", {drive(Nvdimm)}, Page, true);
  // One drive that is memory is enough, declared or not.
  check("rw", {drive(Memory)}, None, false);
  check("rw", {disk, drive(Memory)}, None, false);
  // Of what can not be seen an operator may know more.
  check("rw", {drive(Unknown)}, None, true);
  check("rw", {disk, drive(Unknown)}, None, true);
  for (const char* option : {"nobarrier", "barrier=0", "fsync_mode=nobarrier"}) {
    check("rw," + std::string(option), {disk}, None, false);
    check("rw," + std::string(option), {kept, disk}, None, false);
    check("rw," + std::string(option), {kept}, Page, true);
  }
  // By these nothing is written: what the drive is does not matter.
  for (const char* option :
       {"journal_flush_disabled", "journal_flush_disabled=1", "nointegrity", "checkpoint=disable",
        "checkpoint=disable:10%", "volatile", "fsync=volatile"}) {
    check("rw," + std::string(option), {kept}, None, false);
    check("rw," + std::string(option) + ",x", {disk}, None, false);
    check(std::string(option) + ",rw", {drive(Unknown)}, None, false);
  }
  check("rw,checkpoint=enable,fsync=auto,fsync_mode=posix", {kept}, Page, true);
  // Other devices below the mount have volatile state of their own.
  Drive stacked = kept;
  stacked.stacked = true;
  check("rw,nobarrier", {stacked}, None, false);
  check("", {stacked}, None, true);
  check("rw", {stacked}, Page, true);
  // One of them keeps the flush to itself.
  Drive swallowed = disk;
  swallowed.swallowed_by = "dm-0";
  check("rw", {swallowed}, None, false);
  check("rw,nobarriers,barrier=1", {disk}, Page, true);
  // Options that nobody can see (a chroot, a kernel without mount ids) may be any.
  check("", {disk}, None, true);
  check("", {kept, disk}, None, true);
  check("", {drive(Nvdimm)}, None, true);
  check("", {kept}, Page, true);
  // Below a loop device the mount of its file counts as well, and of each file below that.
  const auto on_images = [](Drive below, const std::vector<std::string>& options) {
    for (const std::string& each : options) below.images.push_back({"/image", each});
    return below;
  };
  check("rw", {on_images(disk, {"rw"})}, Page, true);
  check("rw", {on_images(disk, {"rw,nobarrier"})}, None, false);
  check("rw", {on_images(disk, {"rw", "rw,barrier=0"})}, None, false);
  check("rw", {on_images(disk, {"rw", ""})}, None, true);
  check("rw,nobarrier", {on_images(disk, {"rw"})}, None, false);
  check("rw", {on_images(kept, {"rw,nobarrier"})}, Page, true);
  check("rw", {on_images(stacked, {"rw,nobarrier"})}, None, false);
  check("rw", {on_images(kept, {"rw,volatile"})}, None, false);
  // Above it is the page cache of the file, however good the drive is.
  check("rw,nobarrier", {on_images(kept, {"rw"})}, None, false);
  check("rw", {on_images(kept, {"rw,nobarrier", "rw"})}, None, false);
}

TEST(ConcludePageCache, WhoIsRefusedIsToldWhatToDo) {
  const auto refusal = [](const std::string& options, const Drive& below) {
    Medium medium = disk_file();
    medium.mount_options = options;
    medium.drives = {below};
    conclude_page_cache(medium);
    const auto decided = decide_domain(medium, Page);
    return decided.ok() ? std::string() : decided.error().message;
  };
  const auto has = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  Drive below = drive(DriveKind::Disk);
  has(refusal("rw,nobarrier", below), "mount it without nobarrier; where the cache of drive d");
  has(refusal("rw,nobarrier", below), "to /sys/block/d/queue/write_cache");
  has(refusal("rw,volatile", below), "mount it without volatile");
  below.stacked = true;
  EXPECT_EQ(refusal("rw,nobarrier", below).find("/sys/block"), std::string::npos);
  below.swallowed_by = "dm-0";
  has(refusal("rw", below), "write \"write back\" to /sys/block/dm-0/queue/write_cache");
}

TEST(ConcludeDax, ItsOwnRegionSpeaks) {
  const auto found = [](PlatformDomain platform, const std::vector<Drive>& drives) {
    Medium medium;
    medium.platform = platform;
    medium.drives = drives;
    conclude_dax(medium);
    EXPECT_EQ(medium.kind, MediumKind::Dax);
    return medium.found;
  };
  using enum DriveKind;
  EXPECT_EQ(found(PlatformDomain::CpuCache, {}), Mhp);
  EXPECT_EQ(found(PlatformDomain::MemoryController, {}), Dmp);
  EXPECT_EQ(found(PlatformDomain::Silent, {}), None);  // dax_hmem, CXL
  EXPECT_EQ(found(PlatformDomain::Silent, {drive(Nvdimm)}), Page);
  EXPECT_EQ(found(PlatformDomain::Silent, {drive(Nvdimm), drive(Unknown)}), None);
  EXPECT_EQ(found(PlatformDomain::Volatile, {}), None);
}

TEST(ConcludeDax, VolatileMemoryIsRefusedWhateverIsDeclaredButABattery) {
  Medium device = dax_device(PlatformDomain::Volatile, None);
  Medium file = dax_file(PlatformDomain::Silent, None);
  file.drives = {drive(DriveKind::Memory)};
  for (Medium* medium : {&device, &file}) {
    conclude_dax(*medium);
    check(*medium, kNothing, None);
    check(*medium, Page, kRefused);
    check(*medium, Wsp, Wsp);
  }
}

// An operator wrote 0 to dax/write_cache, or "write through" to queue/write_cache.
TEST(ConcludeDax, WhereMsyncIsToldToLeaveTheCachesItMakesNothingLast) {
  using enum PlatformDomain;
  Drive told = drive(DriveKind::Nvdimm);
  const auto check = [&](PlatformDomain platform, PersistenceDomain found, bool page, bool mapped) {
    told.platform = platform;
    Medium medium = dax_file(platform, Page);
    medium.mount_options = "rw,dax=always";
    medium.writes_pages = true;
    medium.drives = {told};
    conclude_dax(medium);
    EXPECT_EQ(medium.found, found) << join_evidence(medium);
    EXPECT_EQ(decide_domain(medium, Page).ok(), page) << join_evidence(medium);
    EXPECT_TRUE(decide_domain(medium, Wsp).ok());
    conclude_mapped_by_pages(medium);
    EXPECT_EQ(medium.found, mapped ? Page : None) << join_evidence(medium);
  };
  //    platform         found  `page` may be declared  `page` of a mapping without MAP_SYNC
  check(Silent, /*    */ Page, true, /*              */ true);
  told.leaves_caches = true;
  check(Silent, /*    */ None, false, /*             */ false);
  check(MemoryController, Dmp, false, /*             */ false);
  check(CpuCache, /*  */ Mhp, true, /*               */ true);  // there the kernel itself says 0
  told.leaves_caches = false;
  told.swallowed_by = "pmem0";
  check(Silent, /*    */ None, false, /*             */ false);
  told.swallowed_by.clear();
  told.kind = DriveKind::Unknown;  // memmap=nn!ss
  told.leaves_caches = true;
  check(Silent, /*    */ None, false, /*             */ false);
}

TEST(ConcludeMappedByPages, WhatDaxIsMadeOnCountsAllTheSame) {
  const auto check = [](const std::vector<Drive>& drives, bool is_virtual, bool writes_pages,
                        PersistenceDomain found, bool page_may_be_declared) {
    Medium medium = dax_file(weakest_platform(drives), None);
    medium.mount_options = "rw,dax=always";
    medium.drives = drives;
    medium.is_virtual = is_virtual;
    medium.writes_pages = writes_pages;
    conclude_dax(medium);
    conclude_mapped_by_pages(medium);
    EXPECT_EQ(medium.kind, MediumKind::PageCache);
    EXPECT_EQ(medium.found, found) << join_evidence(medium);
    EXPECT_EQ(decide_domain(medium, Page).ok(), page_may_be_declared) << join_evidence(medium);
    EXPECT_FALSE(decide_domain(medium, Dmp).ok());
  };
  using enum DriveKind;
  const Drive real = drive(Nvdimm, "", PlatformDomain::MemoryController);
  const Drive told = drive(Unknown);  // memmap=nn!ss: memory that is called persistent
  //     drives          virtual  writes its pages  found  `page` may be declared
  check({real}, /*    */ false, true, /*         */ Page, true);
  check({real}, /*    */ true, true, /*          */ None, true);
  check({told}, /*    */ false, true, /*         */ None, true);
  check({real, told}, false, true, /*            */ None, true);
  check({drive(Memory)}, false, true, /*         */ None, false);
  check({real}, /*    */ false, false, /*        */ None, true);
}

TEST(ConcludeDax, InAVirtualMachineItHasToBeDeclared) {
  Medium medium = dax_device(PlatformDomain::CpuCache, None);
  medium.is_virtual = true;
  conclude_dax(medium);
  check(medium, kNothing, None);
  check(medium, Dmp, Dmp);
  check(medium, Mhp, Mhp);
  Medium behind_pages = disk_file();
  behind_pages.is_virtual = true;
  behind_pages.mount_options = "rw";
  behind_pages.drives = {drive(DriveKind::Nvdimm)};
  conclude_page_cache(behind_pages);
  EXPECT_EQ(behind_pages.found, None);
  behind_pages.found = Page;
  behind_pages.drives = {drive(DriveKind::Disk)};
  conclude_page_cache(behind_pages);
  EXPECT_EQ(behind_pages.found, Page);
}

TEST(DrivesElsewhere, WhatXfsAndF2fsHaveOnOtherDevicesCounts) {
  TestDirectory root;
  const auto kinds = [&](const std::string& file_system, const std::string& options,
                         std::uint64_t bytes) {
    Medium medium = disk_file();
    medium.file_system = file_system;
    medium.mount_options = options;
    std::string words;
    for (const Drive& each : drives_elsewhere(medium, makedev(8, 0), bytes, root.path()))
      words += each.kind == DriveKind::Unknown ? "unknown " : "other ";
    return words;
  };
  std::filesystem::create_directories(root.file("sys/dev/block/8:0"));
  std::ofstream(root.file("sys/dev/block/8:0/size")) << "2048\n";
  EXPECT_EQ(kinds("xfs", "rw,relatime,logbufs=8", 1 << 20), "");
  EXPECT_EQ(kinds("xfs", "rw,logdev=/dev/none,rtdev=/dev/no", 1 << 20), "unknown unknown ");
  EXPECT_EQ(kinds("f2fs", "rw", 1 << 20), "");
  EXPECT_EQ(kinds("f2fs", "rw", 3 << 20), "unknown ");
  EXPECT_EQ(kinds("ext4", "rw", 3 << 20), "unknown ");  // where its journal is
  std::filesystem::create_directories(root.file("proc/fs"));
  EXPECT_EQ(kinds("ext4", "rw", 3 << 20), "");
}

TEST(Hypervisor, IsSeenInTheNamesOfTheMachine) {
  //                            vendor                   product is a virtual
  //                            one
  EXPECT_TRUE(names_hypervisor({"QEMU", /*            */ "Standard PC (Q35 + ICH9, 2009)"}));
  EXPECT_TRUE(names_hypervisor({"Red Hat", /*         */ "KVM"}));
  EXPECT_TRUE(names_hypervisor({"VMware, Inc.", /*    */ "VMware20,1"}));
  EXPECT_TRUE(names_hypervisor({"Microsoft Corporation", "Virtual Machine"}));
  EXPECT_TRUE(names_hypervisor({"innotek GmbH", /*    */ "VirtualBox"}));
  EXPECT_FALSE(names_hypervisor({"Microsoft Corporation", "Surface Pro 7"}));
  EXPECT_FALSE(names_hypervisor({"Dell Inc.", /*      */ "PowerEdge R750"}));
  EXPECT_FALSE(names_hypervisor({"", /*               */ ""}));
}

TEST(Hypervisor, TheNamesAreTheFirmwares) {
  TestDirectory root;
  EXPECT_EQ(machine_names(root.path()).vendor, "");
  std::filesystem::create_directories(root.file("sys/class/dmi/id"));
  std::ofstream(root.file("sys/class/dmi/id/sys_vendor")) << "QEMU\n";
  std::ofstream(root.file("sys/class/dmi/id/product_name")) << "pc\n";
  EXPECT_EQ(machine_names(root.path()).vendor, "QEMU");
  EXPECT_EQ(machine_names(root.path()).product, "pc");
}

TEST(MountOptions, AreFoundByMountId) {
  const std::string text =
      "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro\n"
      "garbage\n"
      "30 22 0:44 / /data rw,noatime - btrfs /dev/sdb1 rw,nobarrier,discard\n"
      "31 22 0:44 / /cut rw -\n";
  EXPECT_EQ(mount_in(text, 22).options, "rw,relatime,rw,errors=remount-ro");
  EXPECT_EQ(mount_in(text, 22).source, "/dev/sda1");
  const std::string data = mount_in(text, 30).options;
  EXPECT_TRUE(has_option(data, "nobarrier"));
  EXPECT_TRUE(has_option(data, "discard"));
  EXPECT_FALSE(has_option(data, "barrier"));
  EXPECT_FALSE(has_option(data, "noba"));
  EXPECT_EQ(mount_in(text, 2).options, "");
  EXPECT_EQ(mount_in(text, 31).options, "");
  EXPECT_FALSE(has_option("", "rw"));
}

TEST(MountOptions, SayWhichLocksKeepNoOtherMachineOut) {
  const auto why = [](const std::string& type, const std::string& options) {
    return why_locks_are_local(
        mount_in("42 27 0:50 / /mnt rw - " + type + " what " + options + "\n", 42));
  };
  for (const char* type : {"ext4", "tmpfs", "btrfs", "overlay", "nfs", "nfs4", "cifs", "ceph",
                           "gfs2", "fuse.glusterfs", "fuse.fuse-overlayfs"})
    EXPECT_EQ(why(type, "rw,vers=4.2,local_lock=none"), "") << type;
  for (const char* type : {"virtiofs", "9p", "fuse.sshfs", "beegfs"})
    EXPECT_NE(why(type, "rw").find("locks on " + std::string(type) + " do not reach"),
              std::string::npos);
  EXPECT_NE(why("nfs", "rw,vers=3,nolock,local_lock=all").find("nfs is mounted with nolock"),
            std::string::npos);
  EXPECT_NE(why("nfs4", "rw,local_lock=posix"), "");
  EXPECT_EQ(why("nfs", "rw,local_lock=flock"), "") << "these are not flock(2)'s";
  EXPECT_NE(why("cifs", "rw,nobrl"), "");
  EXPECT_NE(why("gfs2", "rw,localflocks"), "");
  EXPECT_EQ(why_locks_are_local({}), "");
}

// The kernel escapes space, tab, newline and backslash, and nothing else.
TEST(MountOptions, AreFoundWhateverDirectoriesAreCalled) {
  const auto check = [](const std::string& names, const std::string& source) {
    const Mount mount = mount_in(
        "42 27 7:0 " + names + " rw,relatime shared:1 - ext4 " + source + " rw,nobarrier\n", 42);
    EXPECT_EQ(mount.options, "rw,relatime,rw,nobarrier") << names;
    return mount.source;
  };
  check("/ /mnt/a\vb", "/dev/loop0");
  check("/ /mnt/a\v-\vb", "/dev/loop0");
  check("/ /mnt/a\r-\rb", "/dev/loop0");
  check("/a\f-\fb /mnt", "/dev/loop0");
  check("/ -", "/dev/loop0");
  EXPECT_EQ(check("/a\\040b /mnt", ""), "");
  EXPECT_EQ(check("/ /mnt", "/dev/my\\040disk\\134"), "/dev/my disk\\");
  EXPECT_EQ(check("/ /mnt", "a\\09"), "a\\09");
}

TEST(MountOptions, OfADirectoryAndOfADescriptorAgree) {
  TestDirectory directory;
  auto made = NewFile::begin(directory.file("x"), 4096);
  ASSERT_TRUE(made.ok()) << made.error().message;
  const Mount mount = mount_of(directory.path());
  EXPECT_EQ(mount_of(made->file().descriptor()).options, mount.options);
  if (mount.options.empty()) GTEST_SKIP() << "the mount is outside of this process's root";
  EXPECT_TRUE(has_option(mount.options, "rw")) << mount.options;
}

// As before Linux 5.8.
TEST(MountOptions, AreFoundWhereStatxDoesNotTellTheMount) {
  EXPECT_EQ(mount_id_in("pos:\t0\nflags:\t012000000\nmnt_id:\t1234\nino:\t7\n"), 1234);
  EXPECT_FALSE(mount_id_in("pos:\t0\nmnt_id:\tnone\n"));
  EXPECT_FALSE(mount_id_in(""));
  TestDirectory directory;
  const auto made = NewFile::begin(directory.file("x"), 4096);
  ASSERT_TRUE(made.ok()) << made.error().message;
  const int descriptor = made->file().descriptor();
  struct statx status {};
  ASSERT_EQ(::statx(descriptor, "", AT_EMPTY_PATH, STATX_MNT_ID, &status), 0);
  if ((status.stx_mask & STATX_MNT_ID) == 0) GTEST_SKIP() << "statx does not tell it here";
  std::ifstream said("/proc/self/fdinfo/" + std::to_string(descriptor));
  const std::string fdinfo{std::istreambuf_iterator<char>(said), {}};
  EXPECT_EQ(mount_id_in(fdinfo), status.stx_mnt_id) << fdinfo;
}

TEST(ExamineMedium, TmpfsIsVolatileMemory) {
  TestDirectory directory(kMemoryFileSystem);
  auto made = NewFile::begin(directory.file("x"), 4096);
  ASSERT_TRUE(made.ok()) << made.error().message;
  auto medium = examine_medium(made->file());
  ASSERT_TRUE(medium.ok());
  EXPECT_EQ(medium->kind, MediumKind::Dram);
  EXPECT_EQ(medium->found, None);
  EXPECT_EQ(medium->file_system, "tmpfs");
}

TEST(ExamineMedium, AFileAndItsDirectoryAgree) {
  TestDirectory directory;
  auto made = NewFile::begin(directory.file("x"), 4096);
  ASSERT_TRUE(made.ok()) << made.error().message;
  auto of_file = examine_medium(made->file());
  auto of_directory = examine_file_system(directory.path());
  ASSERT_TRUE(of_file.ok() && of_directory.ok());
  EXPECT_EQ(of_file->file_system, of_directory->file_system);
  EXPECT_TRUE(of_file->kind == MediumKind::Dax || of_file->found == of_directory->found);
}

TEST(ExamineFileSystem, AMissingPlaceIsNotFound) {
  EXPECT_EQ(examine_file_system("/no/such/place").code(), ErrorCode::NotFound);
}

}  // namespace
}  // namespace perdure::pmem
