// Which bytes of a pool are known to be lost, on made-up machines.
#include "pmem/bad_blocks.h"

#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <filesystem>

#include "pmem/test_support.h"

namespace perdure::pmem {
namespace {

std::string words(const std::vector<Range>& ranges) {
  std::string text;
  for (const Range& range : ranges)
    text += std::to_string(range.at) + "+" + std::to_string(range.length) + " ";
  return text;
}

TEST(BadBlocks, AreReadLineByLine) {
  EXPECT_EQ(words(parse_bad_blocks("")), "");
  EXPECT_EQ(words(parse_bad_blocks("8 2\n100 1\n")), "4096+1024 51200+512 ");
  EXPECT_EQ(words(parse_bad_blocks("cheese\n8\n9 0\n-1 1\n8 1 acknowledged\n")), "4096+512 ");
  EXPECT_EQ(words(parse_bad_blocks("99999999999999999999 1\n18446744073709551615 1\n")), "");
}

TEST(BadBlocks, AreTheFilesWhereItsExtentsLie) {
  const std::vector<Extent> extents{{0, 10000, 1000}, {1000, 50000, 4000}};
  const auto check = [&](std::uint64_t at, std::uint64_t length, const std::string& expected) {
    const Range bad{at, length};
    EXPECT_EQ(words(bad_in_file(extents, {&bad, 1})), expected) << at << "+" << length;
  };
  //    on the disk    in the file
  check(0, 10000, "");
  check(10000, 1, "0+1 ");
  check(9000, 1001, "0+1 ");
  check(10999, 2, "999+1 ");
  check(11000, 39000, "");
  check(50500, 500, "1500+500 ");
  check(0, 100000, "0+1000 1000+4000 ");
}

class MadeUpMachine : public testing::Test {
 protected:
  void file(const std::string& path, const std::string& text) {
    const std::string at = root() + path;
    std::filesystem::create_directories(std::filesystem::path(at).parent_path());
    write_all(at, {text.begin(), text.end()});
  }
  void link(const std::string& path, const std::string& to) {
    std::filesystem::create_directories(std::filesystem::path(root() + path).parent_path());
    std::filesystem::create_directory_symlink(root() + to, root() + path);
  }
  std::string root() const { return directory_.path(); }

 private:
  TestDirectory directory_{kMemoryFileSystem};
};

TEST_F(MadeUpMachine, ADiskHasAList) {
  const std::string disk = "/sys/devices/ndbus0/region0/pfn0.0/block/pmem0";
  file(disk + "/badblocks", "16 8\n");
  link("/sys/dev/block/259:0", disk);
  EXPECT_EQ(words(bad_of_block_device(makedev(259, 0), root())), "8192+4096 ");
  EXPECT_EQ(words(bad_of_block_device(makedev(259, 9), root())), "");
}

TEST_F(MadeUpMachine, APartitionHasItsPartOfIt) {
  const std::string disk = "/sys/devices/ndbus0/region0/pfn0.0/block/pmem0";
  file(disk + "/badblocks", "16 8\n2048 1\n5000 1\n");
  file(disk + "/pmem0p1/partition", "1\n");
  file(disk + "/pmem0p1/start", "2048\n");
  file(disk + "/pmem0p1/size", "1024\n");
  link("/sys/dev/block/259:1", disk + "/pmem0p1");
  EXPECT_EQ(words(bad_of_block_device(makedev(259, 1), root())), "0+512 ");
}

TEST_F(MadeUpMachine, ADaxDeviceHasThatOfItsRegion) {
  const std::string region = "/sys/devices/ndbus0/region0";
  const std::string dax = region + "/dax0.0/dax/dax0.0";
  file(region + "/badblocks", "16 8\n4096 1\n");
  file(dax + "/size", "1048576\n");
  link("/sys/dev/char/252:3", dax);
  // Which part of the region it is, root alone is shown. Expect: all of them.
  EXPECT_EQ(words(bad_of_dax_device(makedev(252, 3), root())), "8192+4096 2097152+512 ");
  file(region + "/resource", "0x100000000\n");
  file(dax + "/resource", "0x100200000\n");
  EXPECT_EQ(words(bad_of_dax_device(makedev(252, 3), root())), "0+512 ");
  file(region + "/badblocks", "\n");
  EXPECT_EQ(words(bad_of_dax_device(makedev(252, 3), root())), "");
}

// A logical volume has no list, and only its own driver knows where its bytes are.
TEST_F(MadeUpMachine, WhatIsBelowDeviceMapperIsSeen) {
  const std::string drive = "/sys/devices/ndbus0/region0/pfn0.0/block/pmem0";
  const std::string whole = "/sys/devices/ndbus0/region1/pfn1.0/block/pmem1";
  const std::string lower = "/sys/devices/virtual/block/dm-0";
  const std::string upper = "/sys/devices/virtual/block/dm-1";
  file(drive + "/badblocks", "16 8\n");
  file(drive + "/pmem0p1/partition", "1\n");
  file(whole + "/badblocks", "");
  link(lower + "/slaves/pmem1", whole);
  link(upper + "/slaves/dm-0", lower);
  link("/sys/dev/block/254:1", upper);
  EXPECT_TRUE(bad_drives_below(makedev(254, 1), root()).empty());
  link(lower + "/slaves/pmem0p1", drive + "/pmem0p1");
  EXPECT_EQ(bad_drives_below(makedev(254, 1), root()), std::vector<std::string>{"pmem0"});
  // The drive itself has its list, and nothing below it.
  link("/sys/dev/block/259:0", drive);
  EXPECT_TRUE(bad_drives_below(makedev(259, 0), root()).empty());
  // Receive: devices that lie below each other. Expect: an answer.
  link(lower + "/slaves/dm-1", upper);
  EXPECT_EQ(bad_drives_below(makedev(254, 1), root()).size(), 1u);
}

TEST_F(MadeUpMachine, AFileOverLostMemoryBelowDeviceMapperIsRefused) {
  file("/pool", std::string(4096, 'x'));
  struct stat status {};
  ASSERT_EQ(::stat((root() + "/pool").c_str(), &status), 0);
  const auto opened = open_file(root() + "/pool", OpenMode::ReadOnly);
  ASSERT_TRUE(opened.ok());
  EXPECT_TRUE(bad_blocks_of(*opened, root()).ok());
  const std::string mapped = "/sys/devices/virtual/block/dm-0";
  const std::string drive = "/sys/devices/ndbus0/region0/block/pmem0";
  file(drive + "/badblocks", "16 8\n");
  link(mapped + "/slaves/pmem0", drive);
  link("/sys/dev/block/" + std::to_string(major(status.st_dev)) + ":" +
           std::to_string(minor(status.st_dev)),
       mapped);
  const auto refused = bad_blocks_of(*opened, root());
  ASSERT_EQ(refused.code(), ErrorCode::Unsupported);
  EXPECT_NE(refused.error().message.find("pmem0"), std::string::npos) << refused.error().message;
}

TEST(BadBlocks, TheFlagsOfAFileSayWhetherItIsARealtimeOne) {
  EXPECT_EQ(data_section(0), DataSection::Main);
  EXPECT_EQ(data_section(FS_XFLAG_REALTIME), DataSection::Realtime);
  EXPECT_EQ(data_section(FS_XFLAG_DAX | FS_XFLAG_REALTIME), DataSection::Realtime);
  // That of a directory, whose new files get it; and all others.
  EXPECT_EQ(data_section(FS_XFLAG_RTINHERIT), DataSection::Main);
  EXPECT_EQ(data_section(~std::uint32_t{FS_XFLAG_REALTIME}), DataSection::Main);
  EXPECT_EQ(data_section(std::nullopt), DataSection::NotKnown);
}

// No file of an xfs with a realtime section is at hand: another flag is read in its place.
TEST(BadBlocks, TheFlagsOfAFileAreTheKernels) {
  TestDirectory directory;
  write_all(directory.file("a"), std::vector<char>(4096));
  const auto opened = open_file(directory.file("a"), OpenMode::ReadWrite);
  ASSERT_TRUE(opened.ok());
  int flags = 0;
  if (::ioctl(opened->descriptor(), FS_IOC_GETFLAGS, &flags) != 0)
    GTEST_SKIP() << "a file system without flags";
  ASSERT_TRUE(extended_flags(*opened).has_value());
  EXPECT_EQ(*extended_flags(*opened) & FS_XFLAG_NODUMP, 0u);
  flags |= FS_NODUMP_FL;
  if (::ioctl(opened->descriptor(), FS_IOC_SETFLAGS, &flags) != 0)
    GTEST_SKIP() << "a file system that takes no flags";
  EXPECT_EQ(*extended_flags(*opened) & FS_XFLAG_NODUMP, std::uint32_t{FS_XFLAG_NODUMP});
}

// Those of an xfs with a section of data on a device of its own.
TEST_F(MadeUpMachine, OfARealtimeFileTheOtherDeviceCounts) {
  using enum DataSection;
  const dev_t own = makedev(259, 0);
  const auto device = [&](DataSection section, const std::string& options) {
    return device_of_bytes(own, section, options, root());
  };
  EXPECT_EQ(device(Main, "rw,dax=always,rtdev=/dev/pmem1"), own);
  EXPECT_EQ(device(Realtime, "rw,dax=always,rtdev=/dev/pmem1"), std::nullopt);
  EXPECT_EQ(device(Realtime, ""), std::nullopt);
  EXPECT_EQ(device(NotKnown, "rw,dax=always"), own) << "there is only one";
  EXPECT_EQ(device(NotKnown, ""), own);
  std::filesystem::create_directories(root() + "/dev");
  const std::string node = root() + "/dev/pmem1";
  if (::mknod(node.c_str(), S_IFBLK | 0600, makedev(259, 1)) != 0)
    GTEST_SKIP() << "no rights to make a node of a device";
  EXPECT_EQ(device(Realtime, "rw,dax=always,rtdev=/dev/pmem1,logbufs=8"), makedev(259, 1));
  EXPECT_EQ(device(Main, "rw,dax=always,rtdev=/dev/pmem1"), own);
  EXPECT_EQ(device(NotKnown, "rw,dax=always,rtdev=/dev/pmem1"), std::nullopt);
}

TEST(BadBlocks, ThisMachinesFilesHaveNone) {
  TestDirectory directory(kMemoryFileSystem);
  write_all(directory.file("a"), std::vector<char>(4096));
  const auto opened = open_file(directory.file("a"), OpenMode::ReadOnly);
  ASSERT_TRUE(opened.ok());
  const auto bad = bad_blocks_of(*opened);
  ASSERT_TRUE(bad.ok()) << bad.error().message;
  EXPECT_TRUE(bad->empty());
}

}  // namespace
}  // namespace perdure::pmem
