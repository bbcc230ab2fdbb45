// The drives below a file system, in trees of sysfs that are made up as the kernel makes them.
#include "pmem/block_devices.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <filesystem>
#include <fstream>

#include "pmem/test_support.h"

namespace perdure::pmem {
namespace {

namespace fs = std::filesystem;
using enum DriveKind;

class BlockDevices : public testing::Test {
 protected:
  std::string at(const std::string& path) const { return root_.path() + "/sys/" + path; }
  void file(const std::string& path, const std::string& text) {
    fs::create_directories(fs::path(at(path)).parent_path());
    std::ofstream(at(path)) << text << "\n";
  }
  /// A link that leads where the kernel's do: relative, so that it holds below any root.
  void link(const std::string& path, const std::string& to) {
    fs::create_directories(fs::path(at(path)).parent_path());
    fs::create_directory_symlink(fs::relative(at(to), fs::path(at(path)).parent_path()), at(path));
  }
  /// A block device; returns its directory.
  std::string device(const std::string& place, const std::string& number) {
    fs::create_directories(at(place));
    link("dev/block/" + number, place);
    return place;
  }
  std::string disk(const std::string& name, const std::string& number, const std::string& cache) {
    const std::string host = "devices/pci0000:00/0000:00:02.0/ata1/host0/target0:0:0/0:0:0:0";
    const std::string place = device(host + "/block/" + name, number);
    link(place + "/device", host);
    file(place + "/queue/write_cache", cache);
    return place;
  }
  std::string made_up(const std::string& name, const std::string& number) {
    return device("devices/virtual/block/" + name, number);
  }
  std::vector<Drive> below(unsigned major, unsigned minor) {
    return drives_below(makedev(major, minor), root_.path());
  }
  DriveKind kind_below(unsigned major, unsigned minor) {
    const auto drives = below(major, minor);
    EXPECT_EQ(drives.size(), 1u);
    EXPECT_FALSE(drives[0].reason.empty());
    return drives[0].kind;
  }

  TestDirectory root_;
};

TEST_F(BlockDevices, APartitionIsItsDisk) {
  const std::string sda = disk("sda", "8:0", "write back");
  device(sda + "/sda1", "8:1");
  file(sda + "/sda1/partition", "1");
  const auto drives = below(8, 1);
  ASSERT_EQ(drives.size(), 1u);
  EXPECT_EQ(drives[0].name, "sda");
  EXPECT_EQ(drives[0].kind, Disk);
  EXPECT_EQ(drives[0].write_cache, "write back");
  EXPECT_TRUE(cache_is_volatile(drives[0]));
}

TEST_F(BlockDevices, DeviceMapperAndRaidAreWhatIsBelowThem) {
  const std::string sda = disk("sda", "8:0", "write through");
  const std::string sdb = disk("sdb", "8:16", "write back");
  const std::string raid = made_up("md0", "9:0");
  link(raid + "/slaves/sda", sda);
  link(raid + "/slaves/sdb", sdb);
  const std::string mapped = made_up("dm-0", "254:0");
  link(mapped + "/slaves/md0", raid);
  const auto drives = below(254, 0);
  ASSERT_EQ(drives.size(), 2u);
  EXPECT_EQ(drives[0].kind, Disk);
  EXPECT_EQ(drives[1].kind, Disk);
  EXPECT_NE(cache_is_volatile(drives[0]), cache_is_volatile(drives[1]));
}

// The kernel sends a flush no further than a device that says "write through".
TEST_F(BlockDevices, ADeviceBetweenThatSwallowsFlushesIsSeen) {
  const std::string sda = disk("sda", "8:0", "write back");
  const std::string sdb = disk("sdb", "8:16", "write through");
  const std::string raid = made_up("md0", "9:0");
  link(raid + "/slaves/sda", sda);
  link(raid + "/slaves/sdb", sdb);
  const std::string mapped = made_up("dm-0", "254:0");
  link(mapped + "/slaves/md0", raid);
  const auto swallowed = [&] {
    std::string by_sda = "?";
    for (const Drive& each : below(254, 0)) {
      EXPECT_TRUE(each.stacked);
      if (each.name == "sda") by_sda = each.swallowed_by;
      if (each.name == "sdb") {
        EXPECT_EQ(each.swallowed_by, "");
      }
    }
    return by_sda;
  };
  EXPECT_EQ(swallowed(), "");
  file(mapped + "/queue/write_cache", "write back");
  file(raid + "/queue/write_cache", "write back");
  EXPECT_EQ(swallowed(), "");
  file(raid + "/queue/write_cache", "write through");
  EXPECT_EQ(swallowed(), "md0");
  file(mapped + "/queue/write_cache", "write through");
  EXPECT_EQ(swallowed(), "dm-0");
  // The drive itself, and past them: an operator's word, or the drive's.
  EXPECT_EQ(below(8, 0)[0].swallowed_by, "");
  EXPECT_FALSE(below(8, 0)[0].stacked);
}

TEST_F(BlockDevices, OneLegOfMemoryIsSeen) {
  const std::string mapped = made_up("dm-0", "254:0");
  link(mapped + "/slaves/sda", disk("sda", "8:0", "write back"));
  link(mapped + "/slaves/zram0", made_up("zram0", "253:0"));
  std::size_t memory = 0;
  for (const Drive& each : below(254, 0)) memory += each.kind == Memory ? 1 : 0;
  EXPECT_EQ(memory, 1u);
}

TEST_F(BlockDevices, MemoryIsNoDrive) {
  made_up("zram0", "253:0");
  made_up("ram3", "1:3");
  made_up("nullb0", "252:0");
  EXPECT_EQ(kind_below(253, 0), Memory);
  EXPECT_EQ(kind_below(1, 3), Memory);
  EXPECT_EQ(kind_below(252, 0), Memory);
  device("devices/pseudo_0/adapter0/host1/target1:0:0/1:0:0:0/block/sdz", "65:144");
  EXPECT_EQ(kind_below(65, 144), Memory);
}

TEST_F(BlockDevices, WhatTheKernelDoesNotShowIsUnknown) {
  made_up("nbd0", "43:0");  // network: no device link
  EXPECT_EQ(kind_below(43, 0), Unknown);
  EXPECT_EQ(kind_below(99, 9), Unknown);  // not there at all
  EXPECT_EQ(kind_below(0, 44), Unknown);  // an anonymous number
  fs::create_directories(at("devices/virtual/block/dm-1/slaves"));
  link("dev/block/254:1", "devices/virtual/block/dm-1");
  fs::create_directory_symlink("../../nowhere", at("devices/virtual/block/dm-1/slaves/x"));
  EXPECT_EQ(kind_below(254, 1), Unknown);
}

// The kernel shows them as drives with a device; what flushes them is elsewhere.
TEST_F(BlockDevices, WhatOnlyLooksLikeADriveIsUnknown) {
  const auto kind_at = [&](const std::string& place) {
    static unsigned minor = 0;
    const std::string made = device(place, "259:" + std::to_string(++minor));
    fs::create_directories(at(made + "/device"));
    file(made + "/queue/write_cache", "write through");
    return kind_below(259, minor);
  };
  const std::string scsi = "/host3/target3:0:0/3:0:0:0/block/sdx";
  const auto driver = [&](const std::string& parent, const std::string& name) {
    file(parent + "/host3/scsi_host/host3/proc_name", name);
    return kind_at(parent + scsi);
  };
  EXPECT_EQ(driver("devices/pci0000:00/0000:06:00.0", "megaraid_sas"), Disk);
  EXPECT_EQ(driver("devices/pci0000:00/0000:07:00.0", "ib_srp"), Unknown);
  EXPECT_EQ(kind_at("devices/pci0000:00/0000:08:00.0" + scsi), Unknown);  // says nothing
  EXPECT_EQ(kind_at("devices/pci0000:00/0000:09:00.0/host3/port-3:0/end_device-3:0/block/sdx"),
            Disk);  // SAS
  EXPECT_EQ(kind_at("devices/platform/soc/fe3.mmc/mmc_host/mmc0/mmc0:0001/block/mmcblk0"), Disk);
  EXPECT_EQ(kind_at("devices/rbd/0/block/rbd0"), Unknown);
  EXPECT_EQ(kind_at("devices/pci0000:00/0000:0b:00.0/block/new0"), Unknown);  // who knows
  EXPECT_EQ(kind_at("devices/pci0000:00/0000:00:1f.2/ata1" + scsi), Disk);
  EXPECT_EQ(kind_at("devices/tcm_loop_0/tcm_loop_adapter_0" + scsi), Unknown);
  EXPECT_EQ(kind_at("devices/platform/host3/session1/target3:0:0/3:0:0:0/block/sdx"), Unknown);
  EXPECT_EQ(kind_at("devices/pci0000:00/0000:05:00.0/host3/rport-3:0-1/target3:0:0/block/sdx"),
            Unknown);
  EXPECT_EQ(kind_at("devices/virtual/nvme-fabrics/ctl/nvme1/nvme1n1"), Unknown);
  EXPECT_EQ(kind_at("devices/pci0000:00/0000:01:00.0/nvme/nvme0/nvme0n1"), Disk);
  EXPECT_EQ(kind_at("devices/virtual/mtd/mtd0/mtdblock0"), Unknown);
  file("devices/virtual/mtd/mtd1/type", "ram");
  EXPECT_EQ(kind_at("devices/virtual/mtd/mtd1/mtdblock1"), Memory);
  file("devices/platform/flash/mtd/mtd2/type", "nor");
  EXPECT_EQ(kind_at("devices/platform/flash/mtd/mtd2/mtdblock2"), Disk);
}

TEST_F(BlockDevices, AVirtioDriveIsTheHypervisorsIfItsBusIs) {
  const auto kind_on = [&](const std::string& bus, const std::string& parent) {
    static unsigned minor = 0;
    const std::string made =
        device("devices/" + parent + "/virtio1/block/vda", "252:" + std::to_string(++minor));
    fs::create_directories(at(made + "/device"));
    if (!bus.empty()) {
      fs::create_directories(at("bus/" + bus));
      link("devices/" + parent + "/subsystem", "bus/" + bus);
    }
    return kind_below(252, minor);
  };
  EXPECT_EQ(kind_on("pci", "pci0000:00/0000:0a:00.0"), Disk);
  EXPECT_EQ(kind_on("platform", "platform/a003e00.virtio_mmio"), Disk);
  EXPECT_EQ(kind_on("platform", "virtio-mmio-cmdline/virtio-mmio.0"), Disk);
  EXPECT_EQ(kind_on("ccw", "css0/0.0.0001/0.0.1234"), Disk);
  EXPECT_EQ(kind_on("vdpa", "pci0000:00/0000:01:00.0/mlx5_core.sf.2/vdpa0"), Unknown);
  EXPECT_EQ(kind_on("vdpa", "virtual/vduse/vduse0/vdpa1"), Unknown);
  EXPECT_EQ(kind_on("rpmsg", "platform/soc/remoteproc0"), Unknown);
  EXPECT_EQ(kind_on("", "blk0"), Unknown);
}

// Many bridges do not tell of the drive's cache; the kernel then sends no flush.
TEST_F(BlockDevices, BehindUsbOnlyADriveThatSaysItHasACacheIsFlushed) {
  const std::string port = "devices/pci0000:00/0000:00:14.0/usb2/2-1/2-1:1.0";
  file(port + "/host6/scsi_host/host6/proc_name", "uas");
  const std::string stick = device(port + "/host6/target6:0:0/6:0:0:0/block/sdc", "8:32");
  fs::create_directories(at(stick + "/device"));
  EXPECT_EQ(kind_below(8, 32), Unknown);
  file(stick + "/queue/write_cache", "write through");
  EXPECT_EQ(kind_below(8, 32), Unknown);
  file(stick + "/queue/write_cache", "write back");
  EXPECT_EQ(kind_below(8, 32), Disk);
}

TEST_F(BlockDevices, AnNvmeDriveOfSeveralPathsIsWhatEachOfThemIs) {
  const std::string system = "devices/virtual/nvme-subsystem/nvme-subsys0";
  const std::string head = device(system + "/nvme0n1", "259:0");
  fs::create_directories(at(head + "/device"));
  EXPECT_EQ(kind_below(259, 0), Unknown);  // no controller is shown
  const std::string one = "devices/pci0000:00/0000:01:00.0/nvme/nvme0";
  file(one + "/transport", "pcie");
  link(system + "/nvme0", one);
  EXPECT_EQ(kind_below(259, 0), Disk);
  const std::string other = "devices/virtual/nvme-fabrics/ctl/nvme1";
  file(other + "/transport", "loop");
  link(system + "/nvme1", other);
  EXPECT_EQ(kind_below(259, 0), Unknown);
}

TEST_F(BlockDevices, AJournalElsewhereIsLookedAt) {
  const std::string sda = disk("sda", "8:0", "write through");
  const std::string zram = made_up("zram0", "253:0");
  link("class/block/sda", sda);
  link("class/block/zram0", zram);
  const auto elsewhere = [&] { return drives_of_external_journals(makedev(8, 0), root_.path()); };
  // /proc/fs is hidden, or can not be read for another reason.
  ASSERT_EQ(elsewhere().size(), 1u);
  EXPECT_EQ(elsewhere()[0].kind, Unknown);
  const std::string kernels = root_.path() + "/proc/fs";
  fs::create_directories(root_.path() + "/proc");
  std::ofstream(kernels) << "no directory";
  ASSERT_EQ(elsewhere().size(), 1u);
  EXPECT_EQ(elsewhere()[0].kind, Unknown);
  fs::remove(kernels);
  fs::create_directories(kernels);
  EXPECT_TRUE(elsewhere().empty());  // no journal at all
  const std::string journals = root_.path() + "/proc/fs/jbd2/";
  fs::create_directories(journals + "zram0");
  ASSERT_EQ(elsewhere().size(), 1u);
  EXPECT_EQ(elsewhere()[0].kind, Memory);
  // Expect: it is another file system's where this one has its own.
  fs::create_directories(journals + "sda-8");
  EXPECT_TRUE(elsewhere().empty());
}

TEST_F(BlockDevices, DevicesThatLieBelowThemselvesEnd) {
  const std::string one = made_up("dm-0", "254:0");
  const std::string other = made_up("dm-1", "254:1");
  link(one + "/slaves/dm-1", other);
  link(other + "/slaves/dm-0", one);
  EXPECT_EQ(kind_below(254, 0), Unknown);
}

TEST_F(BlockDevices, ALoopDeviceIsWhatItsFileLiesOn) {
  const std::string loop = made_up("loop0", "7:0");
  file(loop + "/loop/backing_file", "/no/such/file (deleted)");
  EXPECT_EQ(kind_below(7, 0), Unknown);
  TestDirectory memory(kMemoryFileSystem);
  std::ofstream(memory.file("image")) << "x";
  file(loop + "/loop/backing_file", memory.file("image"));
  EXPECT_EQ(kind_below(7, 0), Memory);
  // A file on a drive: that drive, as this machine numbers it.
  std::ofstream(root_.file("image")) << "x";
  file(loop + "/loop/backing_file", root_.file("image"));
  struct stat status {};
  ASSERT_EQ(::stat(root_.file("image").c_str(), &status), 0);
  if (major(status.st_dev) == 0) GTEST_SKIP() << "the test's directory lies on no block device";
  disk("sda", std::to_string(major(status.st_dev)) + ":" + std::to_string(minor(status.st_dev)),
       "write through");
  EXPECT_EQ(kind_below(7, 0), Disk);
  // The page cache of its file is volatile, whatever the drive is.
  EXPECT_EQ(below(7, 0)[0].swallowed_by, "");
  file(loop + "/queue/write_cache", "write back");
  EXPECT_EQ(below(7, 0)[0].swallowed_by, "");
  file(loop + "/queue/write_cache", "write through");
  EXPECT_EQ(below(7, 0)[0].swallowed_by, "loop0");
  // So it is for what is above the loop device. Below the image begins a new way.
  const std::string mapped = made_up("dm-0", "9:7");
  link(mapped + "/slaves/loop0", loop);
  file(mapped + "/queue/write_cache", "write through");
  file(loop + "/queue/write_cache", "write back");
  EXPECT_EQ(below(9, 7)[0].swallowed_by, "dm-0");
  EXPECT_FALSE(below(9, 7)[0].stacked);
}

TEST_F(BlockDevices, TheFileOfALoopDeviceHasAMountOfItsOwn) {
  const std::string image = root_.file("image");
  std::ofstream(image) << "x";
  struct statx status {};
  ASSERT_EQ(::statx(AT_FDCWD, image.c_str(), 0, STATX_BASIC_STATS | STATX_MNT_ID, &status), 0);
  if (status.stx_dev_major == 0) GTEST_SKIP() << "the test's directory lies on no block device";
  ASSERT_NE(status.stx_mask & STATX_MNT_ID, 0u);
  const std::string number =
      std::to_string(status.stx_dev_major) + ":" + std::to_string(status.stx_dev_minor);
  const std::string sda = disk("sda", number, "write back");
  file(made_up("loop0", "7:0") + "/loop/backing_file", image);
  const auto images = [&](unsigned major, unsigned minor) {
    const auto drives = below(major, minor);
    EXPECT_EQ(drives.size(), 1u);
    EXPECT_EQ(drives[0].name, "sda");
    return drives[0].images;
  };
  // Without mountinfo, as a chroot has it for what is mounted outside.
  EXPECT_EQ(images(7, 0), (std::vector<Image>{{image, ""}}));
  fs::create_directories(root_.path() + "/proc/self");
  std::ofstream(root_.path() + "/proc/self/mountinfo")
      << status.stx_mnt_id << " 1 " << number << " / / rw,relatime - ext4 /dev/sda rw,nobarrier\n";
  EXPECT_EQ(images(7, 0), (std::vector<Image>{{image, "rw,relatime,rw,nobarrier"}}));
  // The drive itself is below no file, also where it is met twice.
  EXPECT_TRUE(images(status.stx_dev_major, status.stx_dev_minor).empty());
  const std::string raid = made_up("md0", "9:0");
  link(raid + "/slaves/loop0", "devices/virtual/block/loop0");
  link(raid + "/slaves/sda", sda);
  const auto both = below(9, 0);
  ASSERT_EQ(both.size(), 2u);
  EXPECT_NE(both[0].images.empty(), both[1].images.empty());
  EXPECT_TRUE(both[0].kind == Disk && both[1].kind == Disk);
}

TEST_F(BlockDevices, AnNvdimmSaysWhatItsRegionSays) {
  const std::string bus = "devices/LNXSYSTM:00/ACPI0012:00/ndbus0";
  file(bus + "/provider", "ACPI.NFIT");
  file(bus + "/region0/persistence_domain", "cpu_cache");
  file(bus + "/region1/persistence_domain", "memory_controller");
  device(bus + "/region0/namespace0.0/block/pmem0", "259:0");
  device(bus + "/region1/namespace1.0/block/pmem1", "259:1");
  device(bus + "/region2/namespace2.0/block/pmem2", "259:2");
  EXPECT_EQ(weakest_platform(below(259, 0)), PlatformDomain::CpuCache);
  EXPECT_EQ(weakest_platform(below(259, 1)), PlatformDomain::MemoryController);
  EXPECT_EQ(weakest_platform(below(259, 2)), PlatformDomain::Silent);
  const std::string mapped = made_up("dm-0", "254:0");
  link(mapped + "/slaves/pmem0", bus + "/region0/namespace0.0/block/pmem0");
  link(mapped + "/slaves/pmem1", bus + "/region1/namespace1.0/block/pmem1");
  EXPECT_EQ(weakest_platform(below(254, 0)), PlatformDomain::MemoryController);
  link(mapped + "/slaves/sda", disk("sda", "8:0", "write back"));
  EXPECT_EQ(weakest_platform(below(254, 0)), PlatformDomain::Silent);
}

TEST_F(BlockDevices, AnNvdimmThatWasToldToLeaveFlushesOutSaysSo) {
  const std::string bus = "devices/LNXSYSTM:00/ACPI0012:00/ndbus0";
  const std::string pmem = bus + "/region0/namespace0.0/block/pmem0";
  file(bus + "/provider", "ACPI.NFIT");
  device(pmem, "259:0");
  device(pmem + "/pmem0p1", "259:1");
  file(pmem + "/pmem0p1/partition", "1");
  file(pmem + "/queue/write_cache", "write back");
  file(pmem + "/dax/write_cache", "1");
  EXPECT_FALSE(below(259, 0)[0].leaves_caches);
  EXPECT_EQ(below(259, 0)[0].swallowed_by, "");
  file(pmem + "/dax/write_cache", "0");
  EXPECT_TRUE(below(259, 0)[0].leaves_caches);
  EXPECT_TRUE(below(259, 1)[0].leaves_caches);
  file(pmem + "/queue/write_cache", "write through");
  EXPECT_EQ(below(259, 0)[0].swallowed_by, "pmem0");
  // What waits in the memory controllers is kept by the platform.
  file(bus + "/region0/persistence_domain", "memory_controller");
  EXPECT_EQ(below(259, 0)[0].swallowed_by, "");
  EXPECT_TRUE(below(259, 0)[0].leaves_caches);
}

TEST_F(BlockDevices, AVolatileRegionIsMemoryWhateverItSays) {
  const std::string region = "devices/LNXSYSTM:00/ACPI0012:00/ndbus0/region0";
  file(region + "/../provider", "ACPI.NFIT");
  file(region + "/persistence_domain", "cpu_cache");
  device(region + "/namespace0.0/block/pmem0", "259:0");
  fs::create_directories(at(region + "/dax0.0"));
  link("dev/char/252:0", region + "/dax0.0");
  file(region + "/devtype", "nd_pmem");
  EXPECT_EQ(kind_below(259, 0), Nvdimm);
  EXPECT_EQ(platform_of_dax_device(makedev(252, 0), root_.path()), PlatformDomain::CpuCache);
  file(region + "/devtype", "nd_volatile");
  EXPECT_EQ(kind_below(259, 0), Memory);
  EXPECT_EQ(platform_of_dax_device(makedev(252, 0), root_.path()), PlatformDomain::Volatile);
}

TEST_F(BlockDevices, MemoryThatTheKernelWasToldToCallPersistentIsUnknown) {
  const std::string bus = "devices/platform/e820_pmem/ndbus0";
  file(bus + "/provider", "e820");
  device(bus + "/region0/namespace0.0/block/pmem0", "259:0");
  EXPECT_EQ(kind_below(259, 0), Unknown);
  file(bus + "/provider", "virtio-pmem");
  EXPECT_EQ(kind_below(259, 0), Disk);
  EXPECT_TRUE(cache_is_volatile(below(259, 0)[0]));
  EXPECT_EQ(below(259, 0)[0].swallowed_by, "");
  file(bus + "/region0/namespace0.0/block/pmem0/queue/write_cache", "write through");
  EXPECT_EQ(below(259, 0)[0].swallowed_by, "pmem0");
}

TEST_F(BlockDevices, OnlyNvdimmRegionsSpeakForDaxDevices) {
  const auto character = [&](const std::string& place, const std::string& number) {
    fs::create_directories(at(place));
    link("dev/char/" + number, place);
  };
  const auto says = [&](unsigned minor) {
    return platform_of_dax_device(makedev(252, minor), root_.path());
  };
  const std::string bus = "devices/LNXSYSTM:00/ACPI0012:00/ndbus0";
  file(bus + "/region0/persistence_domain", "memory_controller");
  file(bus + "/region1/persistence_domain", "cpu_cache");
  file(bus + "/region2/persistence_domain", "moon");
  for (unsigned i = 0; i < 3; ++i) {
    const std::string name = "dax" + std::to_string(i) + ".0";
    character(bus + "/region" + std::to_string(i) + "/" + name, "252:" + std::to_string(i));
  }
  EXPECT_EQ(says(0), PlatformDomain::MemoryController);
  EXPECT_EQ(says(1), PlatformDomain::CpuCache);
  EXPECT_EQ(says(2), PlatformDomain::Silent);
  // Soft-reserved memory, and CXL memory, whose regions have the same name.
  character("devices/platform/hmem.0/dax3.0", "252:3");
  EXPECT_EQ(says(3), PlatformDomain::Silent);
  file("devices/platform/ACPI0017:00/root0/decoder0.0/region0/persistence_domain", "cpu_cache");
  character("devices/platform/ACPI0017:00/root0/decoder0.0/region0/dax_region0/dax4.0", "252:4");
  EXPECT_EQ(says(4), PlatformDomain::Silent);
  EXPECT_EQ(says(9), PlatformDomain::Silent);
}

TEST_F(BlockDevices, BtrfsLiesOnAllItsDevices) {
  const std::string sda = disk("sda", "8:0", "write back");
  const std::string zram = made_up("zram0", "253:0");
  link("fs/btrfs/0c8c2a4a/devices/sda", sda);
  link("fs/btrfs/0c8c2a4a/devices/zram0", zram);
  disk("sdb", "8:16", "write back");
  EXPECT_EQ(drives_of_btrfs(makedev(8, 0), root_.path()).size(), 2u);
  EXPECT_EQ(drives_of_btrfs(makedev(8, 16), root_.path()).size(), 1u);
  EXPECT_EQ(drives_of_btrfs(makedev(8, 99), root_.path())[0].kind, Unknown);
}

}  // namespace
}  // namespace perdure::pmem
