// Reading who a pool is from memory that may have lost it.
#include "pmem/pool_head.h"

#include <fcntl.h>

#include <algorithm>
#include <filesystem>

#include "pmem/pool_format.h"
#include "pmem/test_support.h"

namespace perdure::pmem {
namespace {

class PoolHeadTest : public testing::Test {
 protected:
  /// Stands for a device DAX: a character device that can be mapped.
  static File device() {
    return File(::open("/dev/zero", O_RDONLY | O_CLOEXEC), "/dev/zero", true);
  }
  void has_bad_blocks(const std::string& text) const {
    const std::string region = directory_.path() + "/sys/devices/ndbus0/region0";
    std::filesystem::create_directories(region + "/dax0.0");
    std::filesystem::create_directories(directory_.path() + "/sys/dev/char");
    write_all(region + "/badblocks", {text.begin(), text.end()});
    std::filesystem::create_directory_symlink(region + "/dax0.0",
                                              directory_.path() + "/sys/dev/char/1:5");
  }

  TestDirectory directory_{kMemoryFileSystem};
};

// Expect: an error. A load from there without a guard ends the process, and every pool with it.
TEST_F(PoolHeadTest, WhatCanNotBeLoadedIsAnError) {
  write_all(directory_.file("device"), {});
  const auto file = open_file(directory_.file("device"), OpenMode::ReadOnly);
  ASSERT_TRUE(file.ok());
  const auto head = read_mapped_head(*file);
  EXPECT_EQ(head.code(), ErrorCode::Corrupt);
}

TEST_F(PoolHeadTest, OfADeviceIsReadThroughAMapping) {
  const auto head = read_head(device(), directory_.path());
  ASSERT_TRUE(head.ok()) << head.error().message;
  EXPECT_EQ(head->size(), kPoolHeadBytes);
  EXPECT_TRUE(std::all_of(head->begin(), head->end(), [](auto b) { return b == std::byte{0}; }));
}

TEST_F(PoolHeadTest, WhatIsKnownToBeLostIsNotTouched) {
  has_bad_blocks("8 1\n");
  EXPECT_EQ(read_head(device(), directory_.path()).code(), ErrorCode::Corrupt);
}

// Expect: whose pool it is can be read, and opening it says what is lost.
TEST_F(PoolHeadTest, WhatIsLostBehindItDoesNotMatter) {
  has_bad_blocks("1000000 1\n");
  EXPECT_TRUE(read_head(device(), directory_.path()).ok());
}

}  // namespace
}  // namespace perdure::pmem
