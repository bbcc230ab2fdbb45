// MappedRegion: bytes last as far as the medium lets them, and a sick medium is not believed.
#include "pmem/mapped_region.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>

#include "pmem/test_support.h"
#include "testing/told_medium.h"

namespace perdure::pmem {
namespace {

using enum PersistenceDomain;

MapOptions declared(PersistenceDomain domain) { return MapOptions{domain, nullptr}; }

/// The page cache of a disk, whatever file system the tests run on. Not every one is known to
/// last, so `page` is declared, which none of them contradicts.
class DiskTest : public testing::Test {
 protected:
  void SetUp() override {
    auto medium = examine_file_system(directory_.path());
    ASSERT_TRUE(medium.ok());
    if (medium->kind == MediumKind::Dram)
      GTEST_SKIP() << directory_.path() << " is memory; a disk is needed (set TMPDIR)";
  }
  TestDirectory directory_;
};

class MemoryTest : public testing::Test {
 protected:
  TestDirectory directory_{kMemoryFileSystem};
};

TEST_F(DiskTest, KeepsBytesOverReopen) {
  const std::string path = directory_.file("x");
  {
    auto region = MappedRegion::create(path, 10'000, declared(Page));
    ASSERT_TRUE(region.ok()) << region.error().message;
    EXPECT_EQ((*region)->bytes().size(), 12'288U);
    EXPECT_EQ((*region)->domain(), Page);
    std::memcpy((*region)->bytes().data() + 5000, "hello", 5);
    ASSERT_TRUE((*region)->flush(5000, 5).ok());
  }
  auto region = MappedRegion::open(path, declared(Page));
  ASSERT_TRUE(region.ok()) << region.error().message;
  EXPECT_EQ(std::memcmp((*region)->bytes().data() + 5000, "hello", 5), 0);
}

TEST_F(DiskTest, DeclaringMoreThanAPageCacheIsRefusedAndLeavesNothing) {
  for (const PersistenceDomain domain : {Dmp, Mhp, Wsp}) {
    auto region = MappedRegion::create(directory_.file("x"), 4096, declared(domain));
    ASSERT_FALSE(region.ok());
    EXPECT_EQ(region.code(), ErrorCode::Unsupported);
    EXPECT_NE(region.error().message.find("page cache"), std::string::npos)
        << region.error().message;
    EXPECT_NE(region.error().message.find(directory_.file("x")), std::string::npos);
  }
  EXPECT_TRUE(directory_.names().empty());
}

TEST_F(DiskTest, FindsByItselfWhatTheFileSystemPromises) {
  auto region = MappedRegion::create(directory_.file("x"), 4096, {});
  ASSERT_TRUE(region.ok()) << region.error().message;
  EXPECT_EQ((*region)->domain(), (*region)->medium().found);
  EXPECT_EQ((*region)->evidence(), join_evidence((*region)->medium()));
  EXPECT_NE((*region)->evidence().find("file system"), std::string::npos);
}

TEST_F(DiskTest, NoneCanBeDeclaredOfAnything) {
  auto region = MappedRegion::create(directory_.file("x"), 4096, declared(None));
  ASSERT_TRUE(region.ok()) << region.error().message;
  EXPECT_EQ((*region)->domain(), None);
  EXPECT_TRUE((*region)->flush(0, 4096).ok());
}

// Every call fails from the moment it is switched on.
class SickMedium final : public SyncCalls {
 public:
  int sync_range(std::byte* at, std::size_t length) override {
    return error != 0 ? error : SyncCalls::sync_range(at, length);
  }
  int sync_file(int descriptor) override {
    return error != 0 ? error : SyncCalls::sync_file(descriptor);
  }
  int error = 0;
};

TEST_F(DiskTest, AFailedFlushIsNeverForgotten) {
  SickMedium medium;
  auto region = MappedRegion::create(directory_.file("x"), 65536, MapOptions{Page, &medium});
  ASSERT_TRUE(region.ok()) << region.error().message;
  ASSERT_TRUE((*region)->flush(0, 10).ok());
  medium.error = EIO;
  EXPECT_EQ((*region)->flush(0, 10).code(), ErrorCode::SystemError);
  medium.error = 0;
  EXPECT_EQ((*region)->flush(0, 10).code(), ErrorCode::SystemError);
  const std::vector<Range> apart{{0, 1}, {40000, 1}};
  EXPECT_EQ((*region)->flush(apart).code(), ErrorCode::SystemError);
}

TEST_F(DiskTest, AMediumThatFailsAtOpenIsNotMapped) {
  ASSERT_TRUE(MappedRegion::create(directory_.file("x"), 4096, {}).ok());
  SickMedium medium;
  medium.error = EIO;
  auto region = MappedRegion::open(directory_.file("x"), MapOptions{Page, &medium});
  ASSERT_FALSE(region.ok());
  EXPECT_EQ(region.code(), ErrorCode::SystemError);
}

// A killed process leaves bytes that can be read and would not survive a power failure.
// Expect: they are written back before anyone reads them as recovered.
TEST_F(DiskTest, OpeningWritesBackBeforeItReads) {
  const std::string path = directory_.file("x");
  HeldChild writer([&] {
    auto region = MappedRegion::create(path, 4096, declared(Page));
    if (!region.ok()) return false;
    std::memcpy((*region)->bytes().data(), "visible, not flushed", 20);
    static_cast<void>(region->release());  // dies with the lock and without any flush
    return true;
  });
  ASSERT_TRUE(writer.ready());
  writer.kill();
  class Counting final : public SyncCalls {
   public:
    int sync_file(int descriptor) override {
      ++files;
      return SyncCalls::sync_file(descriptor);
    }
    int files = 0;
  } calls;
  auto region = MappedRegion::open(path, MapOptions{Page, &calls});
  ASSERT_TRUE(region.ok()) << region.error().message;
  EXPECT_GE(calls.files, 1);  // again, if the kernel kept some of it
  EXPECT_EQ(std::memcmp((*region)->bytes().data(), "visible, not flushed", 20), 0);
}

// What the kernel can not be made to forget may be clean and differ from the medium, after a
// write-back that failed. Expect: it is written again before anyone reads it as recovered.
TEST_F(DiskTest, OpeningWritesWhatStaysInTheCacheAgain) {
  const std::string path = directory_.file("x");
  { ASSERT_TRUE(MappedRegion::create(path, 16 * 4096, declared(Page)).ok()); }
  const int other = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  void* at = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, other, 0);
  ASSERT_NE(at, MAP_FAILED);
  ASSERT_NE(*static_cast<volatile char*>(at), 1);  // mapped by another one: it stays
  class Counting final : public SyncCalls {
   public:
    int sync_file(int descriptor) override {
      return ++files == fails_at ? EIO : SyncCalls::sync_file(descriptor);
    }
    int files = 0;
    int fails_at = 0;
  } calls;
  EXPECT_TRUE(MappedRegion::open(path, MapOptions{Page, &calls}).ok());
  EXPECT_EQ(calls.files, 2);
  // The medium refuses just that. Expect: it is not opened.
  calls.files = 0;
  calls.fails_at = 2;
  EXPECT_EQ(MappedRegion::open(path, MapOptions{Page, &calls}).code(), ErrorCode::SystemError);
  ::munmap(at, 4096);
  ::close(other);
}

/// The flags that the kernel has for the mapping at `at`: "rd wr sh mr mw me ms rr ...".
std::string mapping_flags(const std::byte* at) {
  std::ifstream in("/proc/self/smaps");
  const std::string start = fmt::format("{:x}-", reinterpret_cast<std::uintptr_t>(at));
  bool here = false;
  for (std::string line; std::getline(in, line);) {
    if (line.find('-') < line.find(' ') && line.find(':') > line.find(' ')) {
      here = line.starts_with(start);
    }
    if (here && line.starts_with("VmFlags:")) return line + " ";
  }
  return {};
}

TEST_F(DiskTest, NothingIsReadAheadOfAFaultIntoLargeFolios) {
  auto region = MappedRegion::create(directory_.file("x"), 1 << 20, declared(Page));
  ASSERT_TRUE(region.ok()) << region.error().message;
  const std::string flags = mapping_flags((*region)->bytes().data());
  if (flags.empty()) GTEST_SKIP() << "this kernel shows no flags of mappings";
  EXPECT_NE(flags.find(" rr "), std::string::npos) << flags;
}

TEST_F(DiskTest, AFileSystemThatWasMadeReadOnlyIsNoticedWithoutAFlush) {
  class ReadOnly final : public SyncCalls {
   public:
    int check_writable(int) override { return now ? EROFS : 0; }
    bool now = false;
  } calls;
  auto region = MappedRegion::create(directory_.file("x"), 4096, MapOptions{Page, &calls});
  ASSERT_TRUE(region.ok());
  EXPECT_TRUE((*region)->check().ok());
  calls.now = true;
  EXPECT_EQ((*region)->check().code(), ErrorCode::SystemError);
  EXPECT_EQ(MappedRegion::create(directory_.file("y"), 4096, MapOptions{Page, &calls}).code(),
            ErrorCode::PermissionDenied);
}

TEST_F(MemoryTest, AFileThatNobodyCanOpenAgainIsNoMedium) {
  const auto made = [&](const std::string& name) {
    auto region = MappedRegion::create(directory_.file(name), 4096, declared(Mhp));
    EXPECT_TRUE(region.ok()) << region.error().message;
    EXPECT_TRUE((*region)->check().ok());
    return std::move(*region);
  };
  const auto deleted = made("deleted");
  ASSERT_EQ(::unlink(directory_.file("deleted").c_str()), 0);
  EXPECT_EQ(deleted->check().code(), ErrorCode::SystemError);
  EXPECT_NE(deleted->check().error().message.find("deleted"), std::string::npos);

  const auto replaced = made("replaced");
  const auto kept = made("kept");
  ASSERT_EQ(::rename(directory_.file("replaced").c_str(), directory_.file("old").c_str()), 0);
  EXPECT_TRUE(replaced->check().ok()) << "it was only moved";
  write_all(directory_.file("replaced"), {'x'});
  EXPECT_EQ(replaced->check().code(), ErrorCode::SystemError);
  EXPECT_NE(replaced->check().error().message.find("replaced"), std::string::npos);

  // By the way in which an editor, or a copy, replaces it.
  ASSERT_EQ(::rename(directory_.file("replaced").c_str(), directory_.file("kept").c_str()), 0);
  EXPECT_EQ(kept->check().code(), ErrorCode::SystemError);
}

TEST_F(MemoryTest, IsVolatileUnlessABatteryIsDeclared) {
  const auto domain_of = [&](const std::string& name, const MapOptions& options) {
    auto region = MappedRegion::create(directory_.file(name), 4096, options);
    EXPECT_TRUE(region.ok()) << region.error().message;
    if (!region.ok()) return Page;
    EXPECT_NE((*region)->evidence().find("tmpfs"), std::string::npos);
    return (*region)->domain();
  };
  EXPECT_EQ(domain_of("a", {}), None);
  EXPECT_EQ(domain_of("b", declared(Dmp)), Dmp);
  EXPECT_EQ(domain_of("c", declared(Mhp)), Mhp);
  EXPECT_EQ(domain_of("d", declared(Wsp)), Wsp);
  EXPECT_EQ(MappedRegion::create(directory_.file("e"), 4096, declared(Page)).code(),
            ErrorCode::Unsupported);
}

TEST_F(MemoryTest, FlushOfEveryDomainKeepsTheBytes) {
  for (const PersistenceDomain domain : {None, Dmp, Mhp, Wsp}) {
    const std::string path = directory_.file(std::string(to_string(domain)));
    {
      auto region = MappedRegion::create(path, 65536, declared(domain));
      ASSERT_TRUE(region.ok()) << region.error().message;
      std::memset((*region)->bytes().data(), 0x5A, 65536);
      const std::vector<Range> ranges{{0, 1}, {63, 2}, {100, 0}, {4095, 8192}, {65535, 1}};
      EXPECT_TRUE((*region)->flush(ranges).ok());
      EXPECT_TRUE((*region)->flush(0, 65536).ok());
      EXPECT_TRUE((*region)->flush(65536, 0).ok());
    }
    EXPECT_EQ(read_all(path), std::vector<char>(65536, 0x5A));
  }
}

TEST_F(MemoryTest, FlushesFromSeveralThreads) {
  auto region = MappedRegion::create(directory_.file("x"), 1 << 20, declared(Dmp));
  ASSERT_TRUE(region.ok());
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (std::size_t i = 0; i < 500; ++i) {
        const std::size_t at = t * 4096 + i * 8 % 4096;
        std::memset((*region)->bytes().data() + at, static_cast<int>(i), 8);
        EXPECT_TRUE((*region)->flush(at, 8).ok());
      }
    });
  for (std::thread& thread : threads) thread.join();
}

MapOptions watched(const test::ToldMedium& told) {
  MapOptions options;
  options.watch = told.watched();
  return options;
}

// mount -o remount,nobarrier; an operator's hand in queue/write_cache; another drive in the array.
TEST_F(DiskTest, AMediumThatPromisesLessThanAtTheOpeningHasFailed) {
  test::ToldMedium told;
  auto region = MappedRegion::create(directory_.file("x"), 4096, watched(told));
  ASSERT_TRUE(region.ok()) << region.error().message;
  EXPECT_EQ((*region)->domain(), Page);
  EXPECT_TRUE((*region)->check().ok());
  told.options = "rw,nobarrier";
  const auto failed = (*region)->check();
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.code(), ErrorCode::SystemError);
  for (const char* part : {"x: it was opened as page", "mounted with nobarrier",
                           "mount it without nobarrier", "open the pool again"}) {
    EXPECT_NE(failed.error().message.find(part), std::string::npos) << failed.error().message;
  }
}

TEST_F(DiskTest, WhatCanNotBeSeenForAMomentIsNoFailure) {
  test::ToldMedium told;
  auto region = MappedRegion::create(directory_.file("x"), 4096, watched(told));
  ASSERT_TRUE(region.ok()) << region.error().message;
  for (int i = 0; i < 2; ++i) {
    told.kind = DriveKind::Unknown;
    EXPECT_TRUE((*region)->check().ok());
    told.kind = DriveKind::Disk;
    EXPECT_TRUE((*region)->check().ok());
  }
  told.kind = DriveKind::Unknown;
  EXPECT_TRUE((*region)->check().ok());
  EXPECT_FALSE((*region)->check().ok());
}

/// From now on this process can open three files more.
bool leave_few_descriptors() {
  const int next = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (next < 0) return false;
  ::close(next);
  const rlimit few{static_cast<rlim_t>(next) + 3, static_cast<rlim_t>(next) + 3};
  return ::setrlimit(RLIMIT_NOFILE, &few) == 0;
}

TEST_F(DiskTest, WithFewDescriptorsOnlyWhatWasSeenIsAFailure) {
  const std::string wrong = in_child([this]() -> std::string {
    test::ToldMedium told;
    auto region = MappedRegion::create(directory_.file("x"), 4096, watched(told));
    if (!region.ok()) return region.error().message;
    if (!leave_few_descriptors()) return "no limit";
    const auto stays = [&] {
      const bool once = (*region)->check().ok();
      return once && (*region)->check().ok() && (*region)->check().ok();
    };
    told.kind = DriveKind::Unknown;
    if (!stays()) return "what can not be seen counts";
    // The drive may be one that needs no flush: its write_cache could not be read.
    told = {"rw,nobarrier", DriveKind::Disk, ""};
    if (!stays()) return "a write cache that could not be read counts";
    told = {"rw,nobarrier", DriveKind::Disk, "write through"};
    if (!stays()) return "a drive without a cache counts";
    told = {"rw,nobarrier", DriveKind::Disk, "write back"};
    return (*region)->check().ok() ? "what was seen does not count" : "";
  });
  EXPECT_EQ(wrong, "");
}

TEST_F(DiskTest, ADeclarationHoldsAgainstWhatCanNotBeSeenButNotAgainstWhatIsKnown) {
  test::ToldMedium told;
  told.kind = DriveKind::Unknown;
  MapOptions options = watched(told);
  options.declared = Page;
  auto region = MappedRegion::create(directory_.file("x"), 4096, options);
  ASSERT_TRUE(region.ok()) << region.error().message;
  for (int i = 0; i < 3; ++i) EXPECT_TRUE((*region)->check().ok());
  told.options = "rw,volatile";
  EXPECT_FALSE((*region)->check().ok());
}

TEST_F(MemoryTest, NeverReplacesAndNeverShares) {
  auto region = MappedRegion::create(directory_.file("x"), 4096, {});
  ASSERT_TRUE(region.ok());
  EXPECT_EQ(MappedRegion::create(directory_.file("x"), 4096, {}).code(), ErrorCode::AlreadyExists);
  EXPECT_EQ(MappedRegion::open(directory_.file("x"), {}).code(), ErrorCode::Busy);
}

TEST_F(MemoryTest, RefusesSizesThatCannotBeMapped) {
  write_all(directory_.file("empty"), {});
  write_all(directory_.file("odd"), std::vector<char>(5000));
  EXPECT_EQ(MappedRegion::open(directory_.file("empty"), {}).code(), ErrorCode::InvalidArgument);
  EXPECT_EQ(MappedRegion::open(directory_.file("odd"), {}).code(), ErrorCode::InvalidArgument);
  EXPECT_EQ(MappedRegion::create(directory_.file("zero"), 0, {}).code(),
            ErrorCode::InvalidArgument);
}

TEST_F(MemoryTest, HolesAreFilledAtOpen) {
  const std::string path = directory_.file("sparse");
  write_all(path, {});
  ASSERT_EQ(::truncate(path.c_str(), 1 << 20), 0);
  struct stat status {};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  ASSERT_EQ(status.st_blocks, 0);
  auto region = MappedRegion::open(path, {});
  ASSERT_TRUE(region.ok()) << region.error().message;
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_GE(status.st_blocks * 512, 1 << 20);
}

#if defined(GTEST_HAS_DEATH_TEST) && !defined(__SANITIZE_THREAD__)
TEST_F(MemoryTest, FlushOutsideTheRegionIsABugAndEndsTheProgram) {
  auto region = MappedRegion::create(directory_.file("x"), 4096, declared(Dmp));
  ASSERT_TRUE(region.ok());
  EXPECT_DEATH(static_cast<void>((*region)->flush(4096, 1)), "inside");
  EXPECT_DEATH(static_cast<void>((*region)->flush(1, ~std::uint64_t{0})), "inside");
}
#endif

// Where hugetlbfs is mounted and has pages, a region on it is a whole number of huge pages.
TEST(HugePages, RegionIsRoundedToHugePages) {
  constexpr char kPlace[] = "/dev/hugepages";
  struct statfs status {};
  std::uint64_t free_pages = 0;
  if (::statfs(kPlace, &status) == 0 && status.f_type == HUGETLBFS_MAGIC)
    std::ifstream("/sys/kernel/mm/hugepages/hugepages-" + std::to_string(status.f_bsize >> 10) +
                  "kB/free_hugepages") >>
        free_pages;
  if (free_pages == 0 || ::access(kPlace, W_OK) != 0)
    GTEST_SKIP() << kPlace << " has no free huge pages for this user (vm.nr_hugepages)";
  TestDirectory directory(kPlace);
  auto region = MappedRegion::create(directory.file("x"), 100'000, declared(Dmp));
  ASSERT_TRUE(region.ok()) << region.error().message;
  EXPECT_EQ((*region)->bytes().size(), static_cast<std::size_t>(status.f_bsize));
  EXPECT_EQ((*region)->medium().file_system, "hugetlbfs");
  std::memset((*region)->bytes().data(), 1, 100'000);
  EXPECT_TRUE((*region)->flush(0, 100'000).ok());
}

}  // namespace
}  // namespace perdure::pmem
