// A medium that does not answer, as a dead disk or a file server that is away: it holds up its own
// pool, at each step of the pool's life, and no other.
#include <gtest/gtest.h>

#include <poll.h>

#include <algorithm>
#include <future>
#include <map>

#include "fabric/emu/live_device.h"
#include "hanging_region.h"
#include "pmem/crashable_region.h"
#include "server/service.h"

namespace perdure::server {
namespace {

constexpr Nanoseconds kPatience = std::chrono::seconds{60};

/// The memory of a pool, and what its medium may not answer.
struct Medium {
  std::unique_ptr<pmem::CrashableRegion> memory =
      *pmem::CrashableRegion::open({1 << 20, PersistenceDomain::Mhp});
  std::shared_ptr<Hang> opening = std::make_shared<Hang>();
  std::shared_ptr<Hang> looks = std::make_shared<Hang>();
  std::shared_ptr<Hang> flushes = std::make_shared<Hang>();
  std::shared_ptr<Hang> names = std::make_shared<Hang>();  // who asks what is stored there
};

class HangingStore final : public PoolStore {
 public:
  HangingStore() {
    for (const char* name : {"a", "b", "c"}) {
      auto made = pmem::Pool::format(std::make_unique<pmem::LentRegion>(*media[name].memory), {});
      EXPECT_TRUE(made.ok()) << made.error().message;
    }
  }
  Result<std::vector<std::string>> names() override {
    return std::vector<std::string>{"a", "b", "c"};
  }
  Result<std::unique_ptr<pmem::Pool>> create(const control::PoolRequest&, const PoolSettings&,
                                             const persist::ReceiveQueue&) override {
    return Error{ErrorCode::Unsupported, "none is made"};
  }
  bool has_pool(const std::string& name) override {
    media.at(name).names->wait();
    return true;
  }
  Stored look(const std::string& name) override {
    media.at(name).names->wait();
    return {1 << 20, ""};
  }
  Result<std::unique_ptr<pmem::Pool>> open(const std::string& name, const PoolSettings&) override {
    Medium& medium = media.at(name);
    medium.opening->wait();
    return pmem::Pool::attach(
        std::make_unique<HangingRegion>(*medium.memory, medium.flushes, medium.looks));
  }

  std::map<std::string, Medium> media;
};

class HungPools : public testing::Test {
 protected:
  ~HungPools() override { answer_again(); }

  void start() {
    ServiceOptions options;
    options.store = &store_;
    options.queue = {32, 1024};
    options.busy_within = Nanoseconds{0};
    options.opened_within = Nanoseconds{0};
    options.pool_bytes_max = std::uint64_t{1} << 40;
    auto device = fabric::emu::LiveDevice::open({ServerProfile{}});
    ASSERT_TRUE(device.ok()) << device.error().message;
    device_ = std::move(*device);
    auto service = PeerService::open(std::move(options), {{device_.get(), "", {}}});
    ASSERT_TRUE(service.ok()) << service.error().message;
    service_ = std::move(*service);
  }
  void answer_again() {
    for (auto& [name, medium] : store_.media) {
      for (const auto& each : {medium.opening, medium.looks, medium.flushes, medium.names})
        each->hang(false);
    }
  }
  control::PoolStatus status(const char* pool) { return service_->describe(pool)->state; }
  static bool comes_true(const std::function<bool()>& what) {
    const Deadline patience = Deadline::after(kPatience);
    while (!what() && !patience.passed()) (void)::poll(nullptr, 0, 5);
    return what();
  }
  bool comes_to(const char* pool, control::PoolStatus wanted) {
    return comes_true([&] { return status(pool) == wanted; });
  }
  ErrorCode opened_by_request(const char* pool) { return service_->open_pool(pool).code(); }

  HangingStore store_;
  std::unique_ptr<fabric::Device> device_;
  std::unique_ptr<PeerService> service_;
};

TEST_F(HungPools, HoldsUpNoOtherPoolAtTheStart) {
  store_.media.at("a").opening->hang(true);
  ASSERT_NO_FATAL_FAILURE(start());
  EXPECT_TRUE(comes_to("b", control::PoolStatus::Open));
  EXPECT_TRUE(comes_to("c", control::PoolStatus::Open));
  EXPECT_EQ(status("a"), control::PoolStatus::Unavailable);
  EXPECT_NE(service_->describe("a")->reason.find("still being opened"), std::string::npos);
  EXPECT_EQ(opened_by_request("a"), ErrorCode::TimedOut);
  // It answers after all.
  store_.media.at("a").opening->hang(false);
  EXPECT_TRUE(comes_to("a", control::PoolStatus::Open)) << service_->describe("a")->reason;
}

TEST_F(HungPools, IsNotAskedWhatItHoldsByAnyButItself) {
  store_.media.at("a").names->hang(true);
  ASSERT_NO_FATAL_FAILURE(start());
  EXPECT_TRUE(comes_to("b", control::PoolStatus::Open));
  EXPECT_TRUE(comes_to("c", control::PoolStatus::Open));
  store_.media.at("b").names->hang(true);
  // Within a quota, that counts the bytes of all.
  auto made = std::async(std::launch::async, [this] {
    return service_->create({"new", 4096}).code();
  });
  ASSERT_EQ(made.wait_for(kPatience), std::future_status::ready);
  EXPECT_EQ(made.get(), ErrorCode::Unsupported);
}

TEST_F(HungPools, IsSeenFromOutsideAndHidesNoOtherFailure) {
  ASSERT_NO_FATAL_FAILURE(start());
  for (const char* name : {"a", "b", "c"}) ASSERT_TRUE(comes_to(name, control::PoolStatus::Open));
  // Looked at first: two of three hang, and the third fails.
  for (const char* name : {"a", "b"}) {
    store_.media.at(name).looks->hang(true);
    ASSERT_TRUE(comes_true([&] { return store_.media.at(name).looks->waits(); }));
  }
  store_.media.at("c").looks->lose();
  EXPECT_TRUE(comes_to("c", control::PoolStatus::Unavailable));
  const auto is_stuck = [&] {
    const auto report = *service_->report();
    return std::any_of(report.pools.begin(), report.pools.end(), [](const auto& each) {
      return each.pool.name == "a" && each.oldest_work >= std::chrono::milliseconds{500};
    });
  };
  EXPECT_TRUE(comes_true(is_stuck)) << "nobody is told that 'a' hangs";
  EXPECT_EQ(status("a"), control::PoolStatus::Open);
}

TEST_F(HungPools, HoldsUpNoOtherPoolAtTheEnd) {
  ASSERT_NO_FATAL_FAILURE(start());
  for (const char* name : {"a", "b", "c"}) ASSERT_TRUE(comes_to(name, control::PoolStatus::Open));
  store_.media.at("a").flushes->hang(true);
  auto ended = std::async(std::launch::async, [this] { service_.reset(); });
  ASSERT_TRUE(comes_true([&] { return store_.media.at("a").flushes->waits(); }));
  // The later ones are marked as cleanly closed while 'a' still waits for its medium.
  const auto closed = [&](const char* name) {
    const auto bytes = store_.media.at(name).memory->durable();
    auto copy = pmem::CrashableRegion::open({bytes.size(), PersistenceDomain::Mhp, bytes});
    const auto pool = pmem::Pool::attach(std::move(*copy));
    return pool.ok() && (*pool)->was_shut_down();
  };
  EXPECT_TRUE(comes_true([&] { return closed("b") && closed("c"); }));
  EXPECT_EQ(ended.wait_for(std::chrono::seconds{0}), std::future_status::timeout);
  store_.media.at("a").flushes->hang(false);
  ended.get();
}

}  // namespace
}  // namespace perdure::server
