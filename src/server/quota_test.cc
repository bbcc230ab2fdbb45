// What a responder grants of its room: pools, their bytes, and devices.
#include "server/service.h"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <thread>

#include "pmem/file.h"
#include "pmem/pool.h"
#include "testing/temporary_directory.h"

namespace perdure::server {
namespace {

class Quota : public testing::Test {
 protected:
  void serve(std::size_t pools_max, std::uint64_t bytes_max, bool take_device = false) {
    service_.reset();
    ServiceOptions options;
    options.threads = false;
    options.directory = directory_.path();
    options.pools_max = pools_max;
    options.pool_bytes_max = bytes_max;
    options.settings_by_pool["device"].take_device = take_device;
    auto service = PeerService::open(std::move(options), {});
    ASSERT_TRUE(service.ok()) << service.error().message;
    service_ = std::move(*service);
  }
  std::optional<ErrorCode> refusal(const std::string& name, std::uint64_t bytes) {
    const auto made = service_->create({name, bytes});
    message_ = made.ok() ? "" : made.error().message;
    return made.ok() ? std::nullopt : std::optional(made.code());
  }

  test::TestDirectory directory_{"/dev/shm"};
  std::unique_ptr<PeerService> service_;
  std::string message_;
};

TEST_F(Quota, NoMorePoolsAreMadeAndThoseThatAreThereAreServed) {
  serve(2, 0);
  EXPECT_TRUE(service_->create({"a", 4096}).ok());
  EXPECT_TRUE(service_->create({"b", 4096}).ok());
  EXPECT_EQ(refusal("c", 4096), ErrorCode::NoSpace);
  EXPECT_NE(message_.find("pools_max"), std::string::npos) << message_;
  EXPECT_EQ(service_->describe("c").code(), ErrorCode::NotFound);
  serve(1, 0);
  EXPECT_EQ(service_->describe("b")->state, control::PoolStatus::Open);
  EXPECT_EQ(refusal("c", 4096), ErrorCode::NoSpace);
}

TEST_F(Quota, BytesCountWhoeverMadeThem) {
  serve(0, 400 << 10);
  EXPECT_TRUE(service_->create({"a", 100 << 10}).ok());
  EXPECT_EQ(refusal("b", 300 << 10), ErrorCode::NoSpace);
  EXPECT_NE(message_.find("pool_bytes_max"), std::string::npos) << message_;
  EXPECT_TRUE(service_->create({"b", 100 << 10}).ok());
  // One that can not be opened, or is closed, takes its room all the same.
  ASSERT_TRUE(service_->close_pool("a").ok());
  service_.reset();
  std::filesystem::resize_file(directory_.file("b.pool"), 200 << 10);
  serve(0, 400 << 10);
  EXPECT_EQ(service_->describe("b")->state, control::PoolStatus::Unavailable);
  EXPECT_EQ(refusal("c", 100 << 10), ErrorCode::NoSpace);
}

// What a creation left that was cut off takes room, and no request could name it.
TEST_F(Quota, WhatAKilledCreationLeftIsRemovedAtTheStart) {
  const auto make = [&](const char* name) {
    const int file = ::open(directory_.file(name).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    EXPECT_EQ(::ftruncate(file, 1 << 20), 0);
    ::close(file);
  };
  serve(0, 0);
  ASSERT_TRUE(service_->create({"whole", 4096}).ok());
  service_.reset();
  make("cut.pool.creating");
  make("whole.pool.creating");
  make("other.creating");
  auto being_made = pmem::NewFile::begin(directory_.file("made.pool"), 1 << 20);
  ASSERT_TRUE(being_made.ok()) << being_made.error().message;
  serve(0, 0);
  EXPECT_FALSE(std::filesystem::exists(directory_.file("cut.pool.creating")));
  EXPECT_FALSE(std::filesystem::exists(directory_.file("whole.pool.creating")));
  EXPECT_TRUE(std::filesystem::exists(directory_.file("other.creating")));
  EXPECT_TRUE(std::filesystem::exists(directory_.file("made.pool.creating")));
  EXPECT_EQ(service_->list()->size(), 1u);
  EXPECT_TRUE(service_->create({"cut", 4096}).ok());
}

TEST_F(Quota, AnotherPoolUnderTheNameIsNotDeletedInItsStead) {
  serve(0, 0);
  ASSERT_TRUE(service_->create({"a", 4096}).ok());
  const std::string seen = service_->describe("a")->uuid;
  pmem::PoolOptions other;
  other.data_bytes = 4096;
  ASSERT_TRUE(pmem::Pool::create(directory_.file("other"), other).ok());
  std::filesystem::rename(directory_.file("other"), directory_.file("a.pool"));
  EXPECT_EQ(service_->delete_pool("a", seen).code(), ErrorCode::NotFound);
  EXPECT_TRUE(std::filesystem::exists(directory_.file("a.pool")));
  // Nor one that could not be opened at the start, whatever is in it: it is shown which it is.
  service_.reset();
  const std::string found =
      pmem::to_string(pmem::Pool::inspect(directory_.file("a.pool"))->header.uuid);
  std::filesystem::resize_file(directory_.file("a.pool"), 64 << 10);
  serve(0, 0);
  ASSERT_EQ(service_->describe("a")->state, control::PoolStatus::Unavailable);
  EXPECT_EQ(service_->describe("a")->uuid, found);
  for (const std::string& wrong : {std::string(), seen}) {
    EXPECT_EQ(service_->delete_pool("a", wrong).code(), ErrorCode::NotFound);
  }
  EXPECT_TRUE(service_->delete_pool("a", found).ok());
  EXPECT_FALSE(std::filesystem::exists(directory_.file("a.pool")));
}

TEST_F(Quota, WhatHoldsNoPoolIsDeletedWithoutAUuid) {
  std::filesystem::copy_file("/proc/self/status", directory_.file("junk.pool"));
  serve(0, 0);
  ASSERT_EQ(service_->describe("junk")->state, control::PoolStatus::Unavailable);
  EXPECT_EQ(service_->describe("junk")->uuid, "");
  EXPECT_TRUE(service_->delete_pool("junk", "").ok());
}

TEST_F(Quota, ADeviceIsTakenOnlyWithItsOperatorsConsent) {
  serve(0, 0);
  std::filesystem::create_symlink("/dev/zero", directory_.file("device.pool"));
  EXPECT_EQ(refusal("device", 4096), ErrorCode::PermissionDenied);
  EXPECT_NE(message_.find("take_device = true"), std::string::npos) << message_;
  std::filesystem::remove(directory_.file("device.pool"));
  serve(0, 0, true);
  std::filesystem::create_symlink("/dev/zero", directory_.file("device.pool"));
  EXPECT_EQ(refusal("device", 4096), ErrorCode::InvalidArgument);  // it is no DAX device
}

TEST_F(Quota, OneThatWouldBeLessThanIsRequiredLeavesNothing) {
  serve(1, 0);
  control::PoolRequest request{"a", 4096, PersistenceDomain::Page};
  const auto refused = service_->create(request);
  EXPECT_EQ(refused.code(), ErrorCode::Unsupported);
  EXPECT_TRUE(service_->list()->empty());
  EXPECT_TRUE(directory_.names().empty());
  request.required_domain = PersistenceDomain::None;
  EXPECT_TRUE(service_->create(request).ok());
}

TEST(ReceiveBuffersOfAPool, AreDeclinedByItsMakerAndOfferedByItsOperator) {
  using enum ReceiveBuffers;
  const test::TestDirectory directory{"/dev/shm"};
  ServiceOptions options;
  options.threads = false;
  options.directory = directory.path();
  options.settings.receive_buffers = Pm;
  options.settings_by_pool["plain"];  // Dram
  const auto open = [&] { return PeerService::open(options, {}).value(); };
  auto service = open();
  const auto made = [&](const std::string& name, std::optional<ReceiveBuffers> asked) {
    return service->create({name, 1 << 20, PersistenceDomain::None, asked});
  };
  EXPECT_EQ(made("usual", std::nullopt)->profile.receive_buffers, Pm);
  EXPECT_EQ(made("asked", Pm)->profile.receive_buffers, Pm);
  const auto declined = made("declined", Dram);
  ASSERT_TRUE(declined.ok()) << declined.error().message;
  EXPECT_EQ(declined->profile.receive_buffers, Dram);
  EXPECT_EQ(declined->bytes, 1u << 20);
  const auto refused = made("plain", Pm);
  EXPECT_EQ(refused.code(), ErrorCode::Unsupported);
  EXPECT_NE(refused.error().message.find("receive_buffers = \"pm\""), std::string::npos);
  EXPECT_EQ(service->list()->size(), 3u);
  EXPECT_EQ(directory.names().size(), 3u);
  EXPECT_EQ(made("plain", Dram)->profile.receive_buffers, Dram);
  // It starts again. Expect: each pool as it was made.
  service.reset();
  options.settings.receive_buffers = Dram;
  service = open();
  EXPECT_EQ(service->describe("asked")->profile.receive_buffers, Pm);
  EXPECT_EQ(service->describe("declined")->profile.receive_buffers, Dram);
}

/// A pool that somebody has when a service starts: maybe a daemon that was killed a moment ago, and
/// is still ending.
class BusyPools : public testing::Test {
 protected:
  void SetUp() override {
    options_.directory = directory_.path();
    options_.threads = false;
    ASSERT_TRUE((*PeerService::open(options_, {}))->create({"a", 65536}).ok());
    auto held = pmem::Pool::open(directory_.path() + "/a.pool", {});
    ASSERT_TRUE(held.ok()) << held.error().message;
    holder_ = std::move(*held);
    EXPECT_EQ((*PeerService::open(options_, {}))->describe("a")->state,
              control::PoolStatus::Unavailable);
    options_.threads = true;
  }

  static void expect_open(PeerService& service) {
    EXPECT_EQ(service.describe("a")->state, control::PoolStatus::Open);
    EXPECT_EQ(service.describe("a")->reason, "");
  }

  const test::TestDirectory directory_{"/dev/shm"};
  ServiceOptions options_;
  std::unique_ptr<pmem::Pool> holder_;
};

TEST_F(BusyPools, OneThatIsInUseAtTheStartGetsAMoment) {
  std::thread ending([this] {
    ::usleep(200'000);
    holder_.reset();
  });
  auto service = PeerService::open(options_, {});
  ending.join();
  ASSERT_TRUE(service.ok()) << service.error().message;
  expect_open(**service);
}

TEST_F(BusyPools, OneThatIsLetGoOfLaterIsOpenedThen) {
  options_.busy_within = Nanoseconds{0};
  auto service = PeerService::open(options_, {});
  ASSERT_TRUE(service.ok()) << service.error().message;
  EXPECT_EQ((*service)->describe("a")->state, control::PoolStatus::Unavailable);
  holder_.reset();
  const Deadline soon = Deadline::after(std::chrono::seconds(20));
  while ((*service)->describe("a")->state != control::PoolStatus::Open && !soon.passed()) {
    ::usleep(10'000);
  }
  expect_open(**service);
}

// Expect: it stays so, whoever lets go of it.
TEST_F(BusyPools, OneThatIsClosedOnRequestIsNotOpenedLater) {
  options_.busy_within = Nanoseconds{0};
  auto service = PeerService::open(options_, {});
  ASSERT_TRUE(service.ok()) << service.error().message;
  const auto state = [&] { return (*service)->describe("a")->state; };
  EXPECT_EQ(state(), control::PoolStatus::Unavailable);
  ASSERT_TRUE((*service)->close_pool("a").ok());
  EXPECT_EQ(state(), control::PoolStatus::Closed);
  // Nor by a deletion that fails.
  EXPECT_EQ((*service)->delete_pool("a", (*service)->describe("a")->uuid).code(), ErrorCode::Busy);
  EXPECT_EQ(state(), control::PoolStatus::Closed);
  holder_.reset();
  ::usleep(500'000);
  EXPECT_EQ(state(), control::PoolStatus::Closed);
  ASSERT_TRUE((*service)->open_pool("a").ok());
  expect_open(**service);
}

/// A directory in which somebody may have a pool without a lock, as another machine has a device.
class LeasedPools final : public PoolStore {
 public:
  explicit LeasedPools(const std::string& path) : directory_(path) {}
  Result<std::vector<std::string>> names() override { return directory_.names(); }
  Result<std::unique_ptr<pmem::Pool>> create(const control::PoolRequest&, const PoolSettings&,
                                             const persist::ReceiveQueue&) override {
    return Error{ErrorCode::Unsupported, "none is made"};
  }
  Result<std::unique_ptr<pmem::Pool>> open(const std::string& name,
                                           const PoolSettings& settings) override {
    ++opened;
    if (settings.take_over_lease) ++taken_over;
    if (leased) return Error{ErrorCode::Busy, "another machine has it"};
    if (broken) return Error{ErrorCode::SystemError, "the medium is damaged"};
    return directory_.open(name, settings);
  }
  bool is_locked(const std::string& name) override {
    ++asked;
    return directory_.is_locked(name);
  }

  std::atomic<bool> leased{false};
  std::atomic<bool> broken{false};
  std::atomic<int> opened{0};
  std::atomic<int> taken_over{0};
  std::atomic<int> asked{0};

 private:
  PoolDirectory directory_;
};

/// `count` more rounds of looking for pools that were in use have begun.
void await_rounds(const LeasedPools& store, int count) {
  const int until = store.asked + count;
  const Deadline soon = Deadline::after(std::chrono::seconds(60));
  while (store.asked < until && !soon.passed()) ::usleep(10'000);
  ASSERT_GE(store.asked, until);
}

// Opening one of these takes seconds, in which nobody gets at it, and this thread sees no fault.
TEST_F(BusyPools, OneThatIsLockedIsNotOpenedToFindThatOut) {
  options_.busy_within = Nanoseconds{0};
  LeasedPools store(directory_.path());
  options_.store = &store;
  options_.directory.clear();
  auto service = PeerService::open(options_, {});
  ASSERT_TRUE(service.ok()) << service.error().message;
  await_rounds(store, 4);
  EXPECT_EQ(store.opened, 1) << "at the start";
  // Whoever has it without a lock is not asked for again and again.
  store.leased = true;
  holder_.reset();
  await_rounds(store, 6);
  EXPECT_EQ(store.opened, 2);
  EXPECT_EQ((*service)->describe("a")->state, control::PoolStatus::Unavailable);
}

// Receive: an order to take it over; it is closed, and somebody else may have opened it.
// Expect: that one is not taken for dead as well.
TEST_F(BusyPools, ADeviceIsTakenOverOnce) {
  holder_.reset();
  LeasedPools store(directory_.path());
  options_.store = &store;
  options_.directory.clear();
  options_.settings_by_pool["a"].take_over_lease = true;
  auto service = PeerService::open(options_, {});
  ASSERT_TRUE(service.ok()) << service.error().message;
  EXPECT_EQ(store.taken_over, 1);
  ASSERT_TRUE((*service)->close_pool("a").ok());
  ASSERT_TRUE((*service)->open_pool("a").ok());
  EXPECT_EQ(store.opened, 2);
  EXPECT_EQ(store.taken_over, 1);
}

// Whether its owner lost it by then is not known, nor who has it later.
TEST_F(BusyPools, ADeviceWhoseMediumFailsAsItIsTakenOverIsNotTakenOverAgain) {
  holder_.reset();
  options_.busy_within = Nanoseconds{0};
  LeasedPools store(directory_.path());
  store.broken = true;
  options_.store = &store;
  options_.directory.clear();
  options_.settings_by_pool["a"].take_over_lease = true;
  auto service = PeerService::open(options_, {});
  ASSERT_TRUE(service.ok()) << service.error().message;
  EXPECT_EQ((*service)->describe("a")->state, control::PoolStatus::Unavailable);
  EXPECT_NE((*service)->describe("a")->reason.find("damaged"), std::string::npos);
  EXPECT_EQ(store.taken_over, 1);
  store.broken = false;
  store.leased = true;
  EXPECT_EQ((*service)->open_pool("a").code(), ErrorCode::Busy);
  EXPECT_EQ(store.taken_over, 1);
  store.leased = false;
  ASSERT_TRUE((*service)->open_pool("a").ok());
  EXPECT_EQ((*service)->describe("a")->state, control::PoolStatus::Open);
  EXPECT_EQ(store.taken_over, 1);
}

}  // namespace
}  // namespace perdure::server
