// ServedPool: what is durable when it is closed, and what the next opening has to flush.
#include "server/served_pool.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include "server/pool_store.h"
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

/// Address space of any size behind a page cache, of which only what is touched is there.
class VastRegion final : public pmem::Region {
 public:
  VastRegion(std::uint64_t bytes, std::uint64_t& flushes) : bytes_(bytes), flushes_(flushes) {
    void* const mapped = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    EXPECT_NE(mapped, MAP_FAILED);
    at_ = static_cast<std::byte*>(mapped);
  }
  ~VastRegion() override { ::munmap(at_, bytes_); }
  VastRegion(const VastRegion&) = delete;
  VastRegion& operator=(const VastRegion&) = delete;

  std::span<std::byte> bytes() override { return {at_, bytes_}; }
  PersistenceDomain domain() const override { return PersistenceDomain::Page; }
  Result<void> flush(std::span<const pmem::Range> ranges) override {
    ++flushes_;
    for (const pmem::Range& each : ranges) flushed_ += each.length;
    return {};
  }
  std::string evidence() const override { return "made up"; }
  std::uint64_t flushed() const { return flushed_; }

 private:
  const std::uint64_t bytes_;
  std::uint64_t& flushes_;
  std::uint64_t flushed_ = 0;
  std::byte* at_ = nullptr;
};

Result<void> adopted(const std::string& path, std::optional<PersistenceDomain> declared) {
  PoolSettings settings;
  settings.declared = declared;
  settings.receive_buffers = ReceiveBuffers::Pm;
  auto pool = pmem::Pool::open(path, {declared, nullptr});
  EXPECT_TRUE(pool.ok()) << pool.error().message;
  const auto served = ServedPool::adopt(std::move(*pool), settings, {32, 2048});
  return served.ok() ? Result<void>() : Result<void>(served.error());
}

// Else messages that were durable are replayed by flushes that do nothing, and counted as done.
TEST(ServedPoolWithItsBuffers, HasToBeDeclaredAgain) {
  const test::TestDirectory directory{"/dev/shm"};
  const std::string path = directory.file("a.pool");
  pmem::PoolOptions made;
  made.data_bytes = 1 << 20;
  made.declared = PersistenceDomain::Dmp;
  ASSERT_TRUE(pmem::Pool::create(path, made).ok());
  EXPECT_TRUE(adopted(path, PersistenceDomain::Dmp).ok());
  const auto refused = adopted(path, std::nullopt);
  ASSERT_EQ(refused.code(), ErrorCode::Unsupported);
  EXPECT_NE(refused.error().message.find("Declare dmp if that still holds, else none"),
            std::string::npos)
      << refused.error().message;
  EXPECT_TRUE(adopted(path, PersistenceDomain::None).ok());
}

// What it was made with says nothing of what it was served as since.
TEST(ServedPoolWithItsBuffers, HasToBeServedAsItWas) {
  const test::TestDirectory directory{"/dev/shm"};
  const std::string path = directory.file("a.pool");
  pmem::PoolOptions made;
  made.data_bytes = 1 << 20;
  ASSERT_TRUE(pmem::Pool::create(path, made).ok());
  EXPECT_TRUE(adopted(path, std::nullopt).ok());
  EXPECT_TRUE(adopted(path, PersistenceDomain::Wsp).ok());
  EXPECT_EQ(adopted(path, std::nullopt).code(), ErrorCode::Unsupported);
}

// Who is refused leaves it as it was closed.
TEST(ServedPoolWithItsBuffers, IsRefusedBeforeItIsOpened) {
  const test::TestDirectory directory{"/dev/shm"};
  PoolDirectory store(directory.path());
  PoolSettings settings;
  settings.declared = PersistenceDomain::Wsp;
  settings.receive_buffers = ReceiveBuffers::Pm;
  const persist::ReceiveQueue queue{32, 2048};
  {
    auto made = store.create({"a", 1 << 20}, settings, queue);
    ASSERT_TRUE(made.ok()) << made.error().message;
    const auto served = ServedPool::adopt(std::move(*made), settings, queue);
    ASSERT_TRUE(served.ok()) << served.error().message;
    ASSERT_TRUE((*served)->close([] { return false; }).ok());
  }
  EXPECT_EQ(store.open("a", {}).code(), ErrorCode::Unsupported);
  EXPECT_TRUE(store.open("a", settings).value()->was_shut_down());
}

// Its maker chose, and the daemon was killed before it served the pool.
TEST(ServedPoolWithItsBuffers, HasThoseThatItWasMadeWithWhateverIsConfiguredLater) {
  const test::TestDirectory directory{"/dev/shm"};
  PoolDirectory store(directory.path());
  PoolSettings with;
  with.receive_buffers = ReceiveBuffers::Pm;
  const persist::ReceiveQueue queue{32, 2048};
  const std::uint64_t bytes = 8192;  // less than the buffers take
  ASSERT_TRUE(store.create({"dram", bytes}, {}, queue).ok());
  ASSERT_TRUE(store.create({"pm", bytes}, with, queue).ok());
  for (const std::string name : {"dram", "pm"}) {
    const PoolSettings& other = name == "pm" ? PoolSettings{} : with;
    auto opened = store.open(name, other);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    const auto served = ServedPool::adopt(std::move(*opened), other, queue);
    ASSERT_TRUE(served.ok()) << served.error().message;
    EXPECT_EQ(to_string((*served)->describe().profile.receive_buffers), name);
    EXPECT_EQ((*served)->exported().length, bytes);
  }
}

// A quarter of a terabyte behind a page cache is granted after as many syncs as two gibibytes.
TEST(ServedPoolOfAnySize, TakesNoMoreSyncsThanASmallOne) {
  for (const std::uint64_t gib : {1ull, 2ull, 64ull, 256ull}) {
    std::uint64_t flushes = 0;
    auto region = std::make_unique<VastRegion>(pmem::kPoolDataOffset + (gib << 30), flushes);
    const VastRegion& vast = *region;
    auto made = pmem::Pool::format(std::move(region), {});
    ASSERT_TRUE(made.ok()) << made.error().message;
    auto served = ServedPool::adopt(std::move(*made), {}, {});
    ASSERT_TRUE(served.ok()) << served.error().message;
    const std::uint64_t before = vast.flushed();
    flushes = 0;
    std::atomic<std::uint64_t> done{0};
    ASSERT_TRUE((*served)->settle([] { return false; }, done).ok());
    EXPECT_GE(flushes, 1u);
    EXPECT_LE(flushes, 8u) << gib << " GiB";
    EXPECT_EQ(vast.flushed() - before, (*served)->exported().length) << "all of it";
  }
}

}  // namespace
}  // namespace perdure::server
