// What happens to the file of a pool while what an earlier writer left in it is being made durable,
// which is done without the pool's control: nobody is granted what is not there any more.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <functional>
#include <thread>
#include <vector>

#include "client/connect_session.h"
#include "fabric/emu/live_device.h"
#include "pmem/mapped_region.h"
#include "server/service.h"
#include "testing/temporary_directory.h"

namespace perdure::server {
namespace {

/// A mapped file whose long flushes are watched.
class WatchedRegion final : public pmem::Region {
 public:
  using Watch = std::function<Result<void>()>;
  WatchedRegion(std::unique_ptr<pmem::Region> region, const Watch& watch)
      : region_(std::move(region)), watch_(watch) {}
  std::span<std::byte> bytes() override { return region_->bytes(); }
  PersistenceDomain domain() const override { return region_->domain(); }
  using Region::flush;
  Result<void> flush(std::span<const pmem::Range> ranges) override {
    constexpr std::uint64_t kLongBytes = 64 << 10;
    const bool settles = ranges.size() == 1 && ranges[0].length >= kLongBytes;
    if (settles && watch_) {
      if (auto outcome = watch_(); !outcome.ok()) return outcome;
    }
    return region_->flush(ranges);
  }
  Result<void> check() override { return region_->check(); }
  std::unique_ptr<pmem::FailureTie> cut_on_failure(const CutSwitch& connection) override {
    return region_->cut_on_failure(connection);
  }
  void give_up() override { region_->give_up(); }
  std::string evidence() const override { return region_->evidence(); }

 private:
  std::unique_ptr<pmem::Region> region_;
  const Watch& watch_;
};

/// The lease of the device for which a file stands, as another machine has it.
class OthersLease {
 public:
  explicit OthersLease(const std::string& file) {
    auto opened = pmem::open_file(file, pmem::OpenMode::ReadWrite);
    if (opened.ok()) region_ = pmem::MappedRegion::map(std::move(*opened), {});
  }
  Result<void> take() {
    if (!region_.ok()) return region_.error();
    pmem::OwnerLease::Options by_force;
    by_force.take_over = true;
    auto taken = pmem::OwnerLease::take(**region_, pmem::kOwnerLeaseOffset, by_force);
    if (!taken.ok()) return taken.error();
    lease_ = std::move(*taken);
    const auto bytes = (*region_)->bytes();
    found_.assign(bytes.begin(), bytes.begin() + pmem::kOwnerLeaseOffset);
    return {};
  }
  /// Nobody has taken it since, nor written a header or a state.
  void expect_untouched() {
    ASSERT_NE(lease_, nullptr);
    EXPECT_TRUE(lease_->check().ok());
    const auto bytes = (*region_)->bytes();
    EXPECT_TRUE(std::equal(found_.begin(), found_.end(), bytes.begin()));
  }
  void give_back() { lease_.reset(); }

 private:
  Result<std::unique_ptr<pmem::MappedRegion>> region_ =
      Error{ErrorCode::NotFound, "it was not opened"};
  std::unique_ptr<pmem::OwnerLease> lease_;
  std::vector<std::byte> found_;
};

/// Pools as files, in memory that counts as lasting.
class WatchedStore final : public PoolStore {
 public:
  explicit WatchedStore(std::string file) : file_(std::move(file)) {}
  Result<std::vector<std::string>> names() override { return std::vector<std::string>{"a"}; }
  Result<std::unique_ptr<pmem::Pool>> create(const control::PoolRequest&, const PoolSettings&,
                                             const persist::ReceiveQueue&) override {
    return Error{ErrorCode::Unsupported, "none is made"};
  }
  Result<std::unique_ptr<pmem::Pool>> open(const std::string&, const PoolSettings&) override {
    auto region = pmem::MappedRegion::open(file_, pmem::MapOptions{domain, nullptr});
    if (!region.ok()) return region.error();
    auto watched = std::make_unique<WatchedRegion>(std::move(*region), watch);
    if (is_device) return pmem::Pool::attach_device(std::move(watched), file_, 1);
    return pmem::Pool::attach(std::move(watched));
  }

  WatchedRegion::Watch watch;  // called in the midst of settling
  PersistenceDomain domain = PersistenceDomain::Mhp;
  bool is_device = false;  // the file stands for one, which has a lease

 private:
  const std::string file_;
};

class Meanwhile : public testing::Test {
 protected:
  Meanwhile() {
    pmem::PoolOptions made;
    made.data_bytes = 256 << 10;
    made.declared = PersistenceDomain::Mhp;
    EXPECT_TRUE(pmem::Pool::create(file_, made).ok());
    std::filesystem::copy_file(file_, directory_.file("copy"));
    ServiceOptions options;
    options.threads = false;
    options.store = &store_;
    options.queue = {32, 1024};
    ServerProfile profile;
    profile.domain = PersistenceDomain::Mhp;
    auto device = fabric::emu::LiveDevice::open({profile});
    EXPECT_TRUE(device.ok()) << device.error().message;
    device_ = std::move(*device);
    auto requester = fabric::emu::LiveDevice::open({profile});
    EXPECT_TRUE(requester.ok()) << requester.error().message;
    writers_device_ = std::move(*requester);
    auto service = PeerService::open(std::move(options), {{device_.get(), "", {}}});
    EXPECT_TRUE(service.ok()) << service.error().message;
    service_ = std::move(*service);
    EXPECT_EQ(described().state, control::PoolStatus::Open) << described().reason;
  }

  ~Meanwhile() override { store_.watch = nullptr; }

  control::PoolDescription described() { return *service_->describe("a"); }
  /// A writer that takes over from whoever is there.
  std::optional<ErrorCode> refusal() {
    const auto granted = grant();
    message_ = granted.ok() ? "" : granted.error().message;
    if (!granted.ok()) return granted.code();
    connect(*granted);
    return std::nullopt;
  }
  Result<control::SessionGrant> grant() {
    const control::SessionRequest request{"a", true, Epoch{++epoch_}, 10, "writer", true};
    return service_->open_session(request, std::nullopt);
  }
  void connect(const control::SessionGrant& granted) {
    std::atomic<bool> done{false};
    std::thread requester([&] {
      auto session = client::connect_session(granted, granted.address, *writers_device_, {},
                                             Deadline::after(std::chrono::seconds{30}));
      EXPECT_TRUE(session.ok()) << session.error().message;
      if (session.ok()) endpoints_.push_back(std::move(session->endpoint));
      done = true;
    });
    while (!done) service_->pump();
    requester.join();
  }
  /// A writer has connected, and then the next one is asked for while this happens.
  std::optional<ErrorCode> refusal_when(const std::function<Result<void>()>& happens) {
    EXPECT_EQ(refusal(), std::nullopt) << message_;
    int times = 0;
    store_.watch = [&]() -> Result<void> {
      ++times;
      return happens();
    };
    const auto refused = refusal();
    store_.watch = nullptr;
    EXPECT_EQ(times, 1) << "nothing was made durable for the next writer";
    return refused;
  }
  void expect_condemned(const char* why) {
    EXPECT_EQ(described().state, control::PoolStatus::Unavailable);
    EXPECT_NE(described().reason.find(why), std::string::npos) << described().reason;
    EXPECT_EQ(refusal(), ErrorCode::SystemError);
    control::SessionRequest reader;
    reader.pool = "a";
    EXPECT_FALSE(service_->open_session(reader, std::nullopt).ok());
  }
  /// From now on the file stands for a device.
  void open_as_device(PersistenceDomain domain) {
    ASSERT_TRUE(service_->close_pool("a").ok());
    store_.is_device = true;
    store_.domain = domain;
    ASSERT_TRUE(service_->open_pool("a").ok());
  }
  void expect_served_again() {
    ASSERT_TRUE(service_->open_pool("a").ok());
    EXPECT_EQ(refusal(), std::nullopt) << message_;
  }

  test::TestDirectory directory_{"/dev/shm"};
  const std::string file_ = directory_.file("a.pool");
  WatchedStore store_{file_};
  std::unique_ptr<fabric::emu::LiveDevice> device_;
  std::unique_ptr<fabric::emu::LiveDevice> writers_device_;
  std::vector<std::unique_ptr<fabric::Endpoint>> endpoints_;  // of writers, dead ones among them
  std::unique_ptr<PeerService> service_;
  std::uint32_t epoch_ = 0;
  std::string message_;
};

TEST_F(Meanwhile, AMediumThatRefusesIsNotTrustedAgainUntilThePoolIsOpenedAgain) {
  EXPECT_EQ(refusal_when([]() -> Result<void> {
              return Error{ErrorCode::SystemError, "the medium is damaged"};
            }),
            ErrorCode::SystemError);
  expect_condemned("the medium is damaged");
  // Expect: what that flush did not reach is flushed before anybody is granted the pool.
  int times = 0;
  store_.watch = [&]() -> Result<void> {
    ++times;
    return {};
  };
  expect_served_again();
  EXPECT_EQ(times, 1);
}

TEST_F(Meanwhile, AFileThatIsDeletedIsGrantedToNobody) {
  EXPECT_EQ(refusal_when([&]() -> Result<void> {
              std::filesystem::remove(file_);
              return {};
            }),
            ErrorCode::SystemError);
  expect_condemned("deleted");
  EXPECT_EQ(service_->open_pool("a").code(), ErrorCode::NotFound);
  // The operator puts a copy back.
  std::filesystem::rename(directory_.file("copy"), file_);
  expect_served_again();
}

TEST_F(Meanwhile, AFileThatIsReplacedIsGrantedToNobody) {
  EXPECT_EQ(refusal_when([&]() -> Result<void> {
              std::filesystem::rename(directory_.file("copy"), file_);
              return {};
            }),
            ErrorCode::SystemError);
  expect_condemned("replaced");
  expect_served_again();
}

TEST_F(Meanwhile, AFileThatIsCutShortIsGrantedToNobody) {
  EXPECT_EQ(refusal_when([&]() -> Result<void> {
              std::filesystem::resize_file(file_, 4096);
              return {};
            }),
            ErrorCode::SystemError);
  expect_condemned("truncated");
}

TEST_F(Meanwhile, AFileThatIsDeletedAfterAGrantIsGrantedToNobodyElse) {
  EXPECT_EQ(refusal(), std::nullopt) << message_;
  std::filesystem::remove(file_);
  EXPECT_EQ(refusal(), ErrorCode::SystemError);
  expect_condemned("deleted");
}

// A machine that stood still, and shares the device.
TEST_F(Meanwhile, ADeviceThatIsAnothersByNowIsGrantedToNobody) {
  open_as_device(PersistenceDomain::Mhp);
  OthersLease other(file_);
  EXPECT_EQ(refusal_when([&] { return other.take(); }), ErrorCode::SystemError);
  expect_condemned("another owner");
  // Expect: closing it stores nothing there, neither the mark of a clean end nor a lease.
  (void)service_->close_pool("a");
  other.expect_untouched();
  EXPECT_EQ(service_->open_pool("a").code(), ErrorCode::Busy);
  other.expect_untouched();
  other.give_back();
  expect_served_again();
}

TEST_F(Meanwhile, ADeviceThatIsAnothersByNowIsNotMarkedAsDurableByItsClose) {
  open_as_device(PersistenceDomain::Dmp);
  EXPECT_EQ(refusal(), std::nullopt) << message_;  // a writer, who leaves it for the close to flush
  OthersLease other(file_);
  int times = 0;
  store_.watch = [&] {
    ++times;
    return times == 1 ? other.take() : Result<void>{};
  };
  EXPECT_FALSE(service_->close_pool("a").ok());
  store_.watch = nullptr;
  EXPECT_EQ(times, 1);
  other.expect_untouched();
}

TEST_F(Meanwhile, APoolThatIsBeingMadeDurableIsNotTakenAway) {
  const auto close = [&]() -> Result<void> {
    const auto closed = service_->close_pool("a");
    EXPECT_EQ(closed.code(), ErrorCode::TimedOut);
    EXPECT_NE(closed.error().message.find("bytes so far"), std::string::npos);
    return {};
  };
  EXPECT_EQ(refusal_when(close), std::nullopt) << message_;
  EXPECT_EQ(described().state, control::PoolStatus::Open);
  EXPECT_TRUE(service_->close_pool("a").ok());
}

// What the last writer says of himself counts when he ends, and for nobody else.
TEST_F(Meanwhile, BehindAWriterWhoLeftAllDurableNothingIsFlushed) {
  int flushes = 0;
  store_.watch = [&]() -> Result<void> {
    ++flushes;
    return {};
  };
  const auto writer = [&] {
    const auto granted = grant();
    EXPECT_TRUE(granted.ok()) << granted.error().message;
    connect(*granted);
    return granted->session;
  };
  control::SessionRequest reading;
  reading.pool = "a";
  const auto left = [&](std::uint64_t session, control::Left what) {
    EXPECT_TRUE(service_->close_session(session, what).ok());
  };
  left(writer(), control::Left::AllDurable);
  flushes = 0;
  left(writer(), control::Left::AllDurable);
  EXPECT_EQ(flushes, 0);
  left(writer(), control::Left::NotKnown);
  EXPECT_EQ(flushes, 0);
  const auto dies = writer();
  EXPECT_EQ(flushes, 1);
  // A reader, or a writer who was cut off, speaks for nobody.
  const auto reader = service_->open_session(reading, std::nullopt);
  ASSERT_TRUE(reader.ok()) << reader.error().message;
  left(reader->session, control::Left::AllDurable);
  (void)writer();
  EXPECT_EQ(flushes, 2);
  EXPECT_EQ(service_->close_session(dies, control::Left::AllDurable).code(), ErrorCode::NotFound);
  left(writer(), control::Left::AllDurable);
  EXPECT_EQ(flushes, 3);
  // Nor does what he left count for those who came after him.
  (void)writer();
  EXPECT_EQ(flushes, 3);
  (void)writer();
  EXPECT_EQ(flushes, 4);
}

// Its requester may have given up waiting: the next one would find all to be done once more, for
// ever where that takes longer than requesters wait.
TEST_F(Meanwhile, BehindAWriterWhoNeverConnectedNothingIsFlushedAgain) {
  EXPECT_EQ(refusal(), std::nullopt) << message_;
  int flushes = 0;
  store_.watch = [&]() -> Result<void> {
    ++flushes;
    return {};
  };
  ASSERT_TRUE(grant().ok());
  EXPECT_EQ(flushes, 1);
  for (int round = 0; round < 3; ++round) ASSERT_TRUE(grant().ok());
  --epoch_;  // the same writer once more
  const auto again = grant();
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(flushes, 1);
  connect(*again);
  ASSERT_TRUE(grant().ok());
  EXPECT_EQ(flushes, 2);
}

TEST_F(Meanwhile, AWriterWhoIsFencedMeanwhileIsGrantedNothing) {
  // The fence comes to a higher epoch than the writer who waits. Expect: that one is refused.
  EXPECT_EQ(refusal_when([&]() -> Result<void> {
              EXPECT_TRUE(service_->fence("a", Epoch{epoch_ + 1}).ok());
              return {};
            }),
            ErrorCode::Fenced);
  ++epoch_;
  EXPECT_EQ(refusal(), std::nullopt) << message_;
}

}  // namespace
}  // namespace perdure::server
