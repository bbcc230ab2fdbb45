// ReadAhead: what a mapped file holds on its drive comes into memory without a fault.
#include "pmem/read_ahead.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "core/clock.h"
#include "pmem/medium.h"
#include "pmem/page_sync.h"
#include "pmem/test_support.h"

namespace perdure::pmem {
namespace {

constexpr std::size_t kFileBytes = std::size_t{8} << 20;

/// A file of a disk, mapped, none of whose pages is in memory.
class ReadAheadTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto medium = examine_file_system(directory_.path());
    ASSERT_TRUE(medium.ok());
    if (medium->kind == MediumKind::Dram) {
      GTEST_SKIP() << directory_.path() << " is memory; a disk is needed (set TMPDIR)";
    }
    file_ = ::open(directory_.file("x").c_str(), O_RDWR | O_CREAT, 0600);
    ASSERT_GE(file_, 0);
    const std::vector<char> bytes(kFileBytes, 'x');
    ASSERT_EQ(::write(file_, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    ASSERT_EQ(::fsync(file_), 0);
    ASSERT_EQ(::posix_fadvise(file_, 0, 0, POSIX_FADV_DONTNEED), 0);
    void* at = ::mmap(nullptr, kFileBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
    ASSERT_NE(at, MAP_FAILED);
    mapping_ = {static_cast<std::byte*>(at), kFileBytes};
    ASSERT_EQ(::madvise(at, kFileBytes, MADV_RANDOM), 0);
    if (resident() != 0) GTEST_SKIP() << "this file system keeps its pages";
  }
  void TearDown() override {
    if (!mapping_.empty()) ::munmap(mapping_.data(), mapping_.size());
    if (file_ >= 0) ::close(file_);
  }
  std::size_t resident() const {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    std::vector<unsigned char> pages(mapping_.size() / page);
    EXPECT_EQ(::mincore(mapping_.data(), mapping_.size(), pages.data()), 0);
    return static_cast<std::size_t>(
        std::ranges::count_if(pages, [](unsigned char each) { return (each & 1) != 0; }) *
        static_cast<std::ptrdiff_t>(page));
  }
  bool becomes_resident(std::size_t bytes) const {
    const Deadline patience = Deadline::after(std::chrono::seconds{60});
    while (resident() < bytes && !patience.passed()) ::usleep(1000);
    return resident() >= bytes;
  }

  TestDirectory directory_;
  int file_ = -1;
  std::span<std::byte> mapping_;
};

TEST_F(ReadAheadTest, AllOfItComesInTheBackground) {
  const ReadAhead ahead(mapping_);
  EXPECT_TRUE(becomes_resident(kFileBytes)) << resident();
}

TEST_F(ReadAheadTest, WhatIsNotAskedForDoesNotCome) {
  EXPECT_TRUE(ask_for_pages(mapping_.first(kFileBytes / 4)));
  EXPECT_TRUE(becomes_resident(kFileBytes / 4));
  EXPECT_LT(resident(), kFileBytes / 2);
}

std::uint64_t quarter_of_the_file() { return kFileBytes / 4; }

TEST_F(ReadAheadTest, NoMoreComesThanTheBudgetHasLeft) {
  ReadAheadBudget budget(quarter_of_the_file);
  {
    const ReadAhead ahead(mapping_, budget);
    EXPECT_EQ(budget.taken(), kFileBytes / 4);
    EXPECT_TRUE(becomes_resident(kFileBytes / 4));
    EXPECT_LT(resident(), kFileBytes / 2);
  }
  EXPECT_EQ(budget.taken(), 0u);
}

std::uint64_t most_of_a_test = 100;

TEST(ReadAheadBudget, IsSharedByAllPoolsAndGivenBackWhenOneGoes) {
  ReadAheadBudget budget([] { return most_of_a_test; });
  auto first = std::make_optional(budget.take(60));
  EXPECT_EQ(first->bytes(), 60u);
  const auto second = budget.take(60);  // Expect: what is left, not half of memory again
  EXPECT_EQ(second.bytes(), 40u);
  EXPECT_EQ(budget.take(1).bytes(), 0u);
  first.reset();
  EXPECT_EQ(budget.taken(), 40u);
  const auto third = budget.take(100);
  EXPECT_EQ(third.bytes(), 60u);
}

TEST(ReadAheadBudget, WithLessMemoryThanIsTakenNothingIsLeft) {
  ReadAheadBudget budget([] { return most_of_a_test; });
  const auto early = budget.take(80);
  most_of_a_test = 50;
  EXPECT_EQ(budget.take(10).bytes(), 0u);
  most_of_a_test = 100;
  EXPECT_EQ(budget.take(30).bytes(), 20u);
}

TEST(ReadAheadBudget, AShareThatWasMovedIsGivenBackOnce) {
  ReadAheadBudget budget([] { return most_of_a_test; });
  {
    auto share = budget.take(10);
    const auto other = std::move(share);
    EXPECT_EQ(other.bytes(), 10u);
  }
  EXPECT_EQ(budget.taken(), 0u);
}

TEST(ReadAhead, LeavesMemoryForOthers) {
  const std::uint64_t most = read_ahead_bytes_max();
  EXPECT_GT(most, 0u);
  const auto pages = static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES));
  EXPECT_LE(most, pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)) / 2);
}

}  // namespace
}  // namespace perdure::pmem
