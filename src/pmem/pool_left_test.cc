// What whoever had a pool has left in it for the next opener: that all of it is durable, and that
// he has not ended yet.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <vector>

#include "core/bytes.h"
#include "core/crc32c.h"
#include "pmem/pool_fixture.h"

namespace perdure::pmem {
namespace {

/// What a closer said of the data holds for the next opener only, by the same domain and in the
/// same place.
class SettledPool : public PoolFile {
 protected:
  void SetUp() override {
    PoolOptions options = small_pool();
    options.declared = PersistenceDomain::Dmp;
    auto pool = Pool::create(path_, options);
    ASSERT_TRUE(pool.ok()) << pool.error().message;
    EXPECT_FALSE((*pool)->was_settled());
    ASSERT_TRUE((*pool)->close(Pool::Contents::Settled).ok());
  }
  static std::unique_ptr<Pool> open(const std::string& path,
                                    PersistenceDomain declared = PersistenceDomain::Dmp) {
    auto pool = Pool::open(path, {declared, nullptr});
    EXPECT_TRUE(pool.ok()) << pool.error().message;
    return pool.ok() ? std::move(*pool) : nullptr;
  }
};

TEST_F(SettledPool, IsKnownToTheNextOpenerAndToNoLaterOne) {
  EXPECT_TRUE(open(path_)->was_settled());
  EXPECT_FALSE(open(path_)->was_settled());
}

TEST_F(SettledPool, SomebodyElsesUseInBetweenEndsIt) {
  ASSERT_TRUE(open(path_)->close().ok());  // who says nothing of the data
  const auto pool = open(path_);
  EXPECT_TRUE(pool->was_shut_down());
  EXPECT_FALSE(pool->was_settled());
}

TEST_F(SettledPool, AChangeOfStateAfterTheCloseEndsIt) {
  const auto pool = open(path_);
  ASSERT_TRUE(pool->close(Pool::Contents::Settled).ok());
  ASSERT_TRUE(pool->set_state(pool->state()).ok());
  EXPECT_FALSE(pool->state().settled.has_value());
}

TEST_F(SettledPool, WhatABatteryKeptIsNotInTheMemoryController) {
  ASSERT_TRUE(open(path_, PersistenceDomain::Wsp)->close(Pool::Contents::Settled).ok());
  EXPECT_FALSE(open(path_, PersistenceDomain::Dmp)->was_settled());
}

TEST_F(SettledPool, ACopyIsAnotherPlace) {
  const std::string copy = directory_.file("copy.pool");
  std::filesystem::copy_file(path_, copy);
  EXPECT_FALSE(open(copy)->was_settled());
  EXPECT_TRUE(open(path_)->was_settled());
}

TEST_F(SettledPool, AnOlderPerdureTakesTheMarkAway) {
  // It opens the pool and closes it, and writes zeros where it knows nothing.
  std::vector<char> bytes = read_all(path_);
  for (const std::size_t at :
       {kPoolPageBytes, 2 * kPoolPageBytes, std::size_t{kSpareStateOffset}}) {
    auto* page = reinterpret_cast<std::byte*>(bytes.data()) + at;
    EXPECT_NE(load<std::uint32_t>(page + 52), 0U);
    std::fill_n(page + 52, 12, std::byte{0});
    store(page + 4092, crc32c({page, 4092}));
  }
  std::ofstream(path_, std::ios::binary | std::ios::in).write(bytes.data(), kSpareStateOffset * 2);
  const auto pool = open(path_);
  EXPECT_TRUE(pool->was_shut_down());
  EXPECT_FALSE(pool->was_settled());
}

/// A process that had the pool, was killed, and is still ending: the kernel has given back its
/// lock, and not yet all that can write to the pool.
class EndingOwner : public PoolFile {
 protected:
  void SetUp() override { create(); }
  HeldChild ending(bool gives_up = false) {
    return HeldChild([this, gives_up] {
      auto pool = Pool::open(path_, {});
      if (!pool.ok()) return false;
      if (gives_up) {
        pool->reset();
        return lock_descriptor() < 0;
      }
      // As the end of a process has it: first its memory, then its files.
      const auto mapped = pool->release()->region().bytes();
      return ::munmap(mapped.data(), mapped.size()) == 0 && ::close(lock_descriptor()) == 0;
    });
  }
  /// The one that is open on the pool; below zero: none.
  int lock_descriptor() const {
    constexpr int kLooks = 1024;
    for (int descriptor = 3; descriptor < kLooks; ++descriptor) {
      std::error_code failed;
      const auto file =
          std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(descriptor), failed);
      if (!failed && file == path_) return descriptor;
    }
    return -1;
  }
};

TEST_F(EndingOwner, IsWaitedForAlthoughItsLockIsFree) {
  HeldChild owner = ending();
  ASSERT_TRUE(owner.ready());
  ASSERT_TRUE(lock_exclusively(*open_file(path_, OpenMode::ReadWrite)).ok());
  EXPECT_TRUE(Pool::is_locked(path_));
  const auto holder = Pool::holder(path_);
  ASSERT_TRUE(holder.ok()) << holder.error().message;
  EXPECT_EQ(holder->state, PoolHolder::State::Ending);
  EXPECT_EQ(holder->who, "process " + std::to_string(owner.pid()));
  const auto refused = Pool::open(path_, {});
  ASSERT_EQ(refused.code(), ErrorCode::Busy);
  EXPECT_NE(refused.error().message.find("process " + std::to_string(owner.pid())),
            std::string::npos)
      << refused.error().message;
  owner.kill();
  EXPECT_FALSE(Pool::is_locked(path_));
  EXPECT_EQ(Pool::holder(path_)->state, PoolHolder::State::Nobody);
  const auto opened = Pool::open(path_, {});
  EXPECT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_EQ(Pool::holder(path_)->state, PoolHolder::State::Held);
  EXPECT_EQ(Pool::holder(directory_.file("other.pool")).code(), ErrorCode::NotFound);
}

TEST_F(EndingOwner, WhoGaveThePoolUpIsNot) {
  HeldChild former = ending(true);
  ASSERT_TRUE(former.ready());
  EXPECT_FALSE(Pool::is_locked(path_));
  EXPECT_TRUE(Pool::open(path_, {}).ok());
}

TEST_F(EndingOwner, HasNoCopies) {
  HeldChild owner = ending();
  ASSERT_TRUE(owner.ready());
  const std::string copy = directory_.file("copy.pool");
  std::filesystem::copy_file(path_, copy);
  EXPECT_TRUE(Pool::open(copy, {}).ok());
}

TEST_F(EndingOwner, IsNobodyWhoHasItsNumberOnly) {
  HeldChild owner = ending();
  ASSERT_TRUE(owner.ready());
  const std::vector<char> bytes = read_all(path_);
  // Started at another time; in another namespace; of another boot.
  for (const std::size_t field : {16, 24, 40}) {
    std::vector<char> other = bytes;
    auto* note = reinterpret_cast<std::byte*>(other.data()) + kOwnerProcessOffset;
    note[field] ^= std::byte{1};
    std::ofstream(path_, std::ios::binary | std::ios::in).write(other.data(), kPoolHeadBytes);
    EXPECT_FALSE(Pool::is_locked(path_)) << "torn at " << field;
    store(note + 252, crc32c({note, 252}));
    std::ofstream(path_, std::ios::binary | std::ios::in).write(other.data(), kPoolHeadBytes);
    EXPECT_FALSE(Pool::is_locked(path_)) << field;
  }
  std::ofstream(path_, std::ios::binary | std::ios::in).write(bytes.data(), kPoolHeadBytes);
  EXPECT_TRUE(Pool::is_locked(path_));
}

}  // namespace
}  // namespace perdure::pmem
