// The parts of a set as a region: what is below them is watched while they are served.
#include "rpmem/part_region.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <memory>

#include "core/try.h"
#include "rpmem/pool_host.h"
#include "testing/temporary_directory.h"
#include "testing/told_medium.h"

namespace perdure::rpmem {
namespace {

/// A set of two parts, p0 and p1.
Result<PartSet> two_parts(const test::TestDirectory& directory) {
  std::ofstream(directory.file("pool.set"))
      << "PMEMPOOLSET\nOPTION NOHDRS\n8M " << directory.file("p0") << "\n8M "
      << directory.file("p1") << "\n";
  PERDURE_TRY(set, read_set({directory.path(), {}}, "pool.set"));
  return PartSet::create(set, {}, 0, [] { return Uuid16{}; });
}

TEST(PartRegion, AMediumThatPromisesLessThanAtTheOpeningHasFailed) {
  test::TestDirectory directory;
  auto parts = two_parts(directory);
  ASSERT_TRUE(parts.ok()) << parts.error().message;
  test::ToldMedium told;
  PartRegionOptions options;
  options.watch = told.watched();
  auto region = PartRegion::map(*parts, options);
  ASSERT_TRUE(region.ok()) << region.error().message;
  EXPECT_EQ((*region)->domain(), PersistenceDomain::Page);
  EXPECT_TRUE((*region)->check().ok());
  told.options = "rw,nobarrier";
  const auto failed = (*region)->check();
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.code(), ErrorCode::SystemError);
  EXPECT_NE(failed.error().message.find("p0: it was opened as page"), std::string::npos)
      << failed.error().message;
}

/// A medium that refuses as long as it is said to.
struct Refuses final : pmem::SyncCalls {
  int sync_range(std::byte* at, std::size_t length) override {
    return refuses ? EIO : pmem::SyncCalls::sync_range(at, length);
  }
  bool refuses = false;
};

// The kernel tells of a failed msync once, and the next one finds nothing to write.
TEST(PartRegion, WhereADeepFlushFailedNothingIsBelievedAnyMore) {
  test::TestDirectory directory("/dev/shm");
  auto parts = two_parts(directory);
  ASSERT_TRUE(parts.ok()) << parts.error().message;
  for (const PersistenceDomain domain :
       {PersistenceDomain::Dmp, PersistenceDomain::Mhp, PersistenceDomain::Wsp}) {
    SCOPED_TRACE(to_string(domain));
    Refuses medium;
    PartRegionOptions options;
    options.declared = domain;
    options.sync_calls = &medium;
    auto region = PartRegion::map(*parts, options);
    ASSERT_TRUE(region.ok()) << region.error().message;
    const pmem::Range range{PartRegion::kFrontBytes, 64};
    EXPECT_TRUE((*region)->deep_flush(range).ok());
    EXPECT_TRUE((*region)->check().ok());
    medium.refuses = true;
    EXPECT_EQ((*region)->deep_flush(range).code(), ErrorCode::SystemError);
    medium.refuses = false;
    EXPECT_EQ((*region)->deep_flush(range).code(), ErrorCode::SystemError);
    EXPECT_EQ((*region)->flush(range.at, range.length).code(), ErrorCode::SystemError);
    EXPECT_EQ((*region)->check().code(), ErrorCode::SystemError);
  }
}

/// p0 lies on an NVDIMM of which the platform flushes the memory controllers, p1 on a disk.
struct NvdimmBesideDisk {
  bool leaves_caches = false;  // an operator wrote 0 to dax/write_cache
  test::ToldMedium disk;

  pmem::MediumWatchOptions watched() const {
    return {[this](const pmem::File& file) -> Result<pmem::Medium> {
              return file.path().ends_with("p0") ? nvdimm() : disk.now();
            },
            Nanoseconds{0}};
  }
  pmem::Medium nvdimm() const {
    pmem::Drive drive;
    drive.name = "pmem0";
    drive.kind = pmem::DriveKind::Nvdimm;
    drive.platform = pmem::PlatformDomain::MemoryController;
    drive.leaves_caches = leaves_caches;
    pmem::Medium medium;
    medium.writes_pages = true;
    medium.mount_options = "rw,dax=always";
    medium.drives = {drive};
    medium.platform = drive.platform;
    pmem::conclude_dax(medium);
    // The file is none that the kernel maps with MAP_SYNC; of this kind it is mapped without.
    medium.kind = pmem::MediumKind::PageCache;
    return medium;
  }
};

TEST(PartRegion, APartForWhichTheFlushOfTheWeakestDoesNothingIsRefused) {
  test::TestDirectory directory;
  auto parts = two_parts(directory);
  ASSERT_TRUE(parts.ok()) << parts.error().message;
  NvdimmBesideDisk told;
  ASSERT_EQ(told.nvdimm().found, PersistenceDomain::Dmp);
  PartRegionOptions options;
  options.watch = told.watched();
  {
    auto region = PartRegion::map(*parts, options);
    ASSERT_TRUE(region.ok()) << region.error().message;
    EXPECT_EQ((*region)->domain(), PersistenceDomain::Page);
    EXPECT_TRUE((*region)->check().ok());
    told.leaves_caches = true;
    ASSERT_EQ(told.nvdimm().found, PersistenceDomain::Dmp) << "by itself it loses nothing";
    const auto failed = (*region)->check();
    ASSERT_FALSE(failed.ok());
    EXPECT_EQ(failed.code(), ErrorCode::SystemError);
    EXPECT_NE(failed.error().message.find("pmem0/dax/write_cache says 0"), std::string::npos)
        << failed.error().message;
  }
  const auto refused = PartRegion::map(*parts, options);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.code(), ErrorCode::Unsupported);
  for (const char* part :
       {"p0 is not made durable by that", "pmem0/dax/write_cache says 0", "write 1 to it"}) {
    EXPECT_NE(refused.error().message.find(part), std::string::npos) << refused.error().message;
  }
}

// Else whoever's link broke while it made a pool could never make it again.
TEST(PoolHost, OfAClientThatIsGoneOnlyWhatItMadeAndNeverHadIsRemoved) {
  test::TestDirectory directory;
  std::ofstream(directory.file("pool.set"))
      << "PMEMPOOLSET\nOPTION NOHDRS\n8M " << directory.file("p0") << "\n";
  PoolHostOptions options;
  options.directories = {directory.path(), {}};
  PoolAsk ask;
  ask.set = "pool.set";
  for (const bool closes : {false, true, false}) {
    auto host = std::make_unique<PoolHost>(options);
    const auto made = host->create(ask);
    ASSERT_TRUE(made.ok()) << made.error().message;
    ASSERT_TRUE(std::filesystem::exists(directory.file("p0")));
    EXPECT_TRUE(!closes || host->close(false).ok());
    host->remove_unused();
    EXPECT_EQ(std::filesystem::exists(directory.file("p0")), closes);
    host.reset();
    if (!closes) continue;
    // What was there before is nothing that its client made.
    PoolHost next(options);
    ASSERT_TRUE(next.open(ask).ok());
    next.remove_unused();
    EXPECT_TRUE(std::filesystem::exists(directory.file("p0")));
    std::filesystem::remove(directory.file("p0"));
  }
}

}  // namespace
}  // namespace perdure::rpmem
