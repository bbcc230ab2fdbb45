// Pools on direct-access memory. These tests overwrite what is on the device, so they run only on
// one that is named: PERDURE_TEST_DAX_DEVICE=/dev/dax0.0, and PERDURE_TEST_DAX_DIRECTORY, a
// directory of a file system mounted with -o dax. An emulated NVDIMM will do.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cstdlib>
#include <cstring>

#include "pmem/mapping_guard.h"
#include "pmem/pool.h"
#include "pmem/pool_fixture.h"
#include "pmem/probe.h"
#include "pmem/test_support.h"

namespace perdure::pmem {
namespace {

using enum PersistenceDomain;

PersistenceDomain expected(PlatformDomain platform, PersistenceDomain if_silent) {
  // In a virtual machine, as those of the lab are, an NVDIMM has to be declared.
  if (probe("/")->medium.is_virtual) return None;
  switch (platform) {
    case PlatformDomain::CpuCache: return Mhp;
    case PlatformDomain::MemoryController: return Dmp;
    case PlatformDomain::Volatile: return None;
    case PlatformDomain::Silent: break;
  }
  return if_silent;
}

struct stat status_of(const char* path) {
  struct stat status {};
  EXPECT_EQ(::stat(path, &status), 0) << path;
  return status;
}

PersistenceDomain expected_of_device(const char* path) {
  return expected(platform_of_dax_device(status_of(path).st_rdev), None);
}

PoolState dax_state(std::uint32_t epoch) {
  PoolState state;
  state.epoch = Epoch{epoch};
  state.holder = "dax";
  return state;
}

TEST(DaxDevice, HoldsAPool) {
  const char* path = std::getenv("PERDURE_TEST_DAX_DEVICE");
  if (path == nullptr) GTEST_SKIP() << "PERDURE_TEST_DAX_DEVICE names no device DAX device";
  {
    auto region = MappedRegion::open(path, {});
    ASSERT_TRUE(region.ok()) << region.error().message;
    EXPECT_EQ((*region)->domain(), expected_of_device(path)) << (*region)->evidence();
    std::memset((*region)->bytes().data(), 0, kPoolHeadBytes);
    ASSERT_TRUE((*region)->flush(0, kPoolHeadBytes).ok());
  }
  EXPECT_EQ(Pool::open(path, {}).code(), ErrorCode::InvalidArgument);
  EXPECT_TRUE(Pool::is_blank_device(path));
  PoolOptions options;
  options.name = "on a device";
  {
    auto pool = Pool::create(path, options);
    ASSERT_TRUE(pool.ok()) << pool.error().message;
    EXPECT_EQ((*pool)->data_bytes(), (*pool)->region().bytes().size() - kPoolDataOffset);
    std::memcpy((*pool)->data().data(), "hello", 5);
    ASSERT_TRUE((*pool)->region().flush((*pool)->data_offset(), 5).ok());
    const auto deep = (*pool)->region().deep_flush({(*pool)->data_offset(), 5});
    EXPECT_TRUE(deep.ok()) << deep.error().message;
    ASSERT_TRUE((*pool)->set_state(dax_state(3)).ok());
    EXPECT_EQ(Pool::open(path, {}).code(), ErrorCode::Busy);
  }
  EXPECT_EQ(Pool::create(path, options).code(), ErrorCode::AlreadyExists);
  EXPECT_FALSE(Pool::is_blank_device(path));
  auto info = Pool::inspect(path);
  ASSERT_TRUE(info.ok()) << info.error().message;
  EXPECT_EQ(as_given(info->state), dax_state(3));
  EXPECT_EQ(info->domain, expected_of_device(path)) << info->evidence;
  auto pool = Pool::open(path, {});
  ASSERT_TRUE(pool.ok()) << pool.error().message;
  EXPECT_EQ((*pool)->header().name, "on a device");
  EXPECT_EQ(std::memcmp((*pool)->data().data(), "hello", 5), 0);
  EXPECT_EQ(probe(path)->domain, expected_of_device(path));
}

// Behind the end of the device its mapping faults as it does where memory was lost.
TEST(DaxDevice, AFaultInItDoesNotEndTheProcess) {
  const char* path = std::getenv("PERDURE_TEST_DAX_DEVICE");
  if (path == nullptr) GTEST_SKIP() << "PERDURE_TEST_DAX_DEVICE names no device DAX device";
  auto file = open_file(path, OpenMode::ReadWrite);
  ASSERT_TRUE(file.ok()) << file.error().message;
  auto size = size_of(*file);
  ASSERT_TRUE(size.ok()) << size.error().message;
  constexpr std::size_t kBytes = std::size_t{1} << 30;  // a multiple of each alignment there is
  void* const at = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file->descriptor(),
                          static_cast<off_t>(*size));
  ASSERT_NE(at, MAP_FAILED);
  auto* const bytes = static_cast<std::byte*>(at);
  {
    const MappingGuard guard({bytes, kBytes});
    bytes[4096 + 7] = std::byte{7};
    EXPECT_TRUE(guard.failed());
    EXPECT_EQ(bytes[4096 + 7], std::byte{7});
  }
  ::munmap(at, kBytes);
}

TEST(DaxDirectory, HoldsAPool) {
  const char* place = std::getenv("PERDURE_TEST_DAX_DIRECTORY");
  if (place == nullptr) GTEST_SKIP() << "PERDURE_TEST_DAX_DIRECTORY names no directory on DAX";
  const PersistenceDomain domain =
      expected(weakest_platform(drives_below(status_of(place).st_dev)), Page);
  TestDirectory directory(place);
  EXPECT_EQ(probe(directory.path())->domain, domain);
  const std::string path = directory.file("a.pool");
  PoolOptions options;
  options.data_bytes = 1 << 20;
  {
    auto pool = Pool::create(path, options);
    ASSERT_TRUE(pool.ok()) << pool.error().message;
    EXPECT_EQ((*pool)->region().domain(), domain) << (*pool)->region().evidence();
    ASSERT_TRUE((*pool)->set_state(dax_state(3)).ok());
  }
  {
    auto pool = Pool::open(path, {});
    ASSERT_TRUE(pool.ok()) << pool.error().message;
    EXPECT_EQ(as_given((*pool)->state()), dax_state(3));
  }
  // Less than it is: through msync, which DAX file systems honour.
  OpenOptions weaker;
  weaker.declared = Page;
  auto pool = Pool::open(path, weaker);
  ASSERT_TRUE(pool.ok()) << pool.error().message;
  EXPECT_EQ((*pool)->region().domain(), Page);
  EXPECT_TRUE((*pool)->set_state(dax_state(4)).ok());
}

}  // namespace
}  // namespace perdure::pmem
