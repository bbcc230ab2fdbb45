// ServedPool: what is durable when it is closed, and what the next opening has to flush.
#include "server/served_pool.h"

#include <gtest/gtest.h>

#include "testing/temporary_directory.h"

namespace perdure::server {
namespace {

constexpr std::uint64_t kLargeBytes = std::uint64_t{80} << 20;  // more than is flushed at a time

class ServedPoolFile : public testing::Test {
 protected:
  void SetUp() override {
    pmem::PoolOptions options;
    options.data_bytes = kLargeBytes;
    options.declared = PersistenceDomain::Dmp;
    served_ = adopt(pmem::Pool::create(path_, options));
  }
  static std::unique_ptr<ServedPool> adopt(Result<std::unique_ptr<pmem::Pool>> pool) {
    EXPECT_TRUE(pool.ok()) << pool.error().message;
    auto served = ServedPool::adopt(std::move(*pool), {}, {});
    EXPECT_TRUE(served.ok()) << served.error().message;
    return std::move(*served);
  }
  /// A daemon starts again.
  bool is_settled_when_opened(PersistenceDomain declared = PersistenceDomain::Dmp) {
    served_.reset();
    served_ = adopt(pmem::Pool::open(path_, {declared, nullptr}));
    return served_->settled();
  }
  void settle() {
    std::atomic<std::uint64_t> done{0};
    ASSERT_TRUE(served_->settle(never_, done).ok());
    ASSERT_TRUE(served_->settled());
  }
  bool closes(const std::function<bool()>& stop) { return served_->close(stop).ok(); }

  const std::function<bool()> never_ = [] { return false; };
  const std::function<bool()> at_once_ = [] { return true; };
  test::TestDirectory directory_{"/dev/shm"};
  const std::string path_ = directory_.file("a.pool");
  std::unique_ptr<ServedPool> served_;
};

TEST_F(ServedPoolFile, ACleanEndLeavesNothingToFlush) {
  EXPECT_FALSE(served_->settled());
  ASSERT_TRUE(closes(never_));
  EXPECT_TRUE(is_settled_when_opened());
  // Also when nobody wrote in between.
  ASSERT_TRUE(closes(at_once_));
  EXPECT_TRUE(is_settled_when_opened());
  served_->unsettle(false);
  ASSERT_TRUE(closes(never_));
  EXPECT_TRUE(is_settled_when_opened());
}

TEST_F(ServedPoolFile, AKilledDaemonLeavesEverything) {
  settle();
  EXPECT_FALSE(is_settled_when_opened());
}

TEST_F(ServedPoolFile, ACloseThatIsNotGivenTheTimeDoesNotSayThatAllIsDurable) {
  ASSERT_TRUE(closes(at_once_));
  EXPECT_FALSE(is_settled_when_opened());
}

TEST_F(ServedPoolFile, WhatOneDomainKeepsAnotherMayLose) {
  ASSERT_TRUE(closes(never_));
  EXPECT_FALSE(is_settled_when_opened(PersistenceDomain::Mhp));
  ASSERT_TRUE(closes(never_));
  EXPECT_FALSE(is_settled_when_opened(PersistenceDomain::Dmp));
}

}  // namespace
}  // namespace perdure::server
