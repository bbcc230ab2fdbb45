// Medium: what follows from which facts, and which declarations the facts forbid.
#include "pmem/medium.h"

#include <gtest/gtest.h>
#include <sys/sysmacros.h>

#include <fstream>

#include "pmem/mount_options.h"
#include "pmem/test_support.h"

namespace perdure::pmem {
namespace {

using enum PersistenceDomain;

Medium disk_file() {
  Medium medium;
  medium.kind = MediumKind::PageCache;
  medium.file_system = "ext4";
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

class PlatformDomainTest : public testing::Test {
 protected:
  void add_region(const std::string& name, const std::string& says) {
    std::filesystem::create_directories(directory_.file(name));
    if (!says.empty()) std::ofstream(directory_.file(name) + "/persistence_domain") << says << "\n";
  }
  PlatformDomain answer() const { return platform_domain(directory_.path()); }
  TestDirectory directory_;
};

TEST_F(PlatformDomainTest, NoRegionIsSilence) {
  EXPECT_EQ(answer(), PlatformDomain::Silent);
  add_region("namespace0.0", "cpu_cache");  // not a region
  EXPECT_EQ(answer(), PlatformDomain::Silent);
  EXPECT_EQ(platform_domain("/no/such/place"), PlatformDomain::Silent);
}

TEST_F(PlatformDomainTest, TheWeakestRegionSpeaksForAll) {
  add_region("region0", "cpu_cache");
  EXPECT_EQ(answer(), PlatformDomain::CpuCache);
  add_region("region1", "memory_controller");
  EXPECT_EQ(answer(), PlatformDomain::MemoryController);
  add_region("region2", "cpu_cache");
  EXPECT_EQ(answer(), PlatformDomain::MemoryController);
  add_region("region3", "");  // it does not say
  EXPECT_EQ(answer(), PlatformDomain::Silent);
}

TEST_F(PlatformDomainTest, AnUnknownWordIsSilence) {
  add_region("region0", "unknown");
  EXPECT_EQ(answer(), PlatformDomain::Silent);
}

TEST(MountOptions, AreFoundByDeviceNumber) {
  const std::string text =
      "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro\n"
      "garbage\n"
      "30 22 8:17 / /data rw,noatime - ext4 /dev/sdb1 rw,nobarrier,discard\n";
  EXPECT_EQ(mount_options_in(text, makedev(8, 1)), "rw,relatime,rw,errors=remount-ro");
  const std::string data = mount_options_in(text, makedev(8, 17));
  EXPECT_TRUE(has_option(data, "nobarrier"));
  EXPECT_TRUE(has_option(data, "discard"));
  EXPECT_FALSE(has_option(data, "barrier"));
  EXPECT_FALSE(has_option(data, "noba"));
  EXPECT_EQ(mount_options_in(text, makedev(9, 9)), "");
  EXPECT_FALSE(has_option("", "rw"));
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
