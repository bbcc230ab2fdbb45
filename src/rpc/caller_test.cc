// A client and a server in one emulated world: fencing, expiry, room, large calls, batches.
#include "rpc/caller.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <stdexcept>
#include <utility>

#include "core/bytes.h"
#include "fabric/emu/world.h"
#include "pmem/lent_region.h"
#include "pmem/pool_format.h"
#include "rpc/rpc_host.h"
#include "testing/faulty_device.h"
#include "testing/local_peer.h"
#include "testing/passing_clock.h"

namespace perdure::rpc {
namespace {

constexpr std::uint32_t kSum = 1;            // of the payload's bytes; counts calls
constexpr std::uint32_t kFail = 2;           // throws
constexpr std::uint32_t kEcho = 3;           // replies much
constexpr std::uint32_t kMost = 4;           // answers more than that
constexpr std::uint32_t kTwentySeconds = 5;  // takes them
constexpr std::uint64_t kCallerRing = 32 * 1024;

Result<std::size_t> sum_up(const RpcCall& call, RpcTransaction& data, std::span<std::byte> reply) {
  PERDURE_TRY(calls, data.load<std::uint64_t>(0));
  PERDURE_TRY_VOID(data.store(0, calls + 1));
  std::uint64_t sum = 0;
  for (const std::byte each : call.payload) sum += std::to_integer<std::uint64_t>(each);
  store(reply.data(), sum);
  return sizeof sum;
}

/// The service of whatever host there is now: a server that was started again has its address.
class AddressOfHost final : public client::Peer {
 public:
  AddressOfHost(const std::unique_ptr<RpcHost>& host, fabric::Device& device)
      : host_(host), device_(device) {}
  std::string name() const override { return "server"; }
  fabric::Device& device() override { return device_; }
  Result<std::vector<control::PoolDescription>> list(Deadline deadline) override {
    return now().list(deadline);
  }
  Result<control::PoolDescription> describe(const std::string& pool, Deadline deadline) override {
    auto described = now().describe(pool, deadline);
    if (described.ok() && after_describe) std::exchange(after_describe, {})();
    return described;
  }
  std::function<void()> after_describe;  // once
  Result<control::PoolDescription> create(const control::PoolRequest& request,
                                          Deadline deadline) override {
    return now().create(request, deadline);
  }
  Result<client::Session> open_session(const control::SessionRequest& request,
                                       Deadline deadline) override {
    return now().open_session(request, deadline);
  }
  Result<void> close_session(std::uint64_t id, control::Left left, Deadline deadline) override {
    return now().close_session(id, left, deadline);
  }
  Result<void> fence(const std::string& pool, Epoch epoch, Deadline deadline) override {
    return now().fence(pool, epoch, deadline);
  }

 private:
  test::LocalPeer now() { return {name(), host_->service(), device_}; }

  const std::unique_ptr<RpcHost>& host_;
  fabric::Device& device_;
};

class CallerTest : public testing::Test {
 protected:
  CallerTest() {
    profile_.domain = PersistenceDomain::Dmp;
    profile_.ddio = Ddio::On;
    profile_.transport = Transport::Tcp;
    machine_ = &world_.add_machine("server", profile_);
    client_ = &world_.add_machine("client", profile_);
    shape_.clients = 2;
    shape_.ring_bytes = kCallerRing;
    shape_.window_bytes = pmem::kPoolDataOffset + kRingAt + kCallerRing;
    shape_.replies = 16;
    shape_.reply_bytes_max = 64;
    shape_.transaction_bytes = 65536;
    shape_.data_bytes = 65536;
    region_ = &machine_->add_region(pmem::kPoolDataOffset + shape_.bytes());
    EXPECT_TRUE(pmem::Pool::format(std::make_unique<pmem::LentRegion>(*region_), {}).ok());
    start();
  }
  ~CallerTest() override { host_.reset(); }

  void start() {
    RpcHostOptions options;
    options.executor.handlers[kSum] = sum_up;
    options.executor.handlers[kFail] = [](const RpcCall&, RpcTransaction&,
                                          std::span<std::byte>) -> Result<std::size_t> {
      throw std::runtime_error("broken");
    };
    const auto much = [](std::span<std::byte> reply) -> Result<std::size_t> {
      for (std::size_t at = 0; at < 50001; ++at) reply[at] = static_cast<std::byte>(at / 3);
      return 50001;
    };
    options.executor.handlers[kEcho] = [much](const RpcCall&, RpcTransaction&,
                                              std::span<std::byte> reply) { return much(reply); };
    options.executor.queries[kEcho] = [much](std::span<const std::byte>, const RpcData&,
                                             std::span<std::byte> reply) { return much(reply); };
    options.executor.queries[kMost] = [](std::span<const std::byte>, const RpcData&,
                                         std::span<std::byte> reply) -> Result<std::size_t> {
      std::fill(reply.begin(), reply.end(), std::byte{9});
      return reply.size();
    };
    options.executor.answer_bytes_max = 300000;
    options.executor.handlers[kTwentySeconds] = [this](const RpcCall& call, RpcTransaction& data,
                                                       std::span<std::byte> reply) {
      world_.tick(std::chrono::seconds(20));
      return sum_up(call, data, reply);
    };
    if (repaired_) options.executor.handlers[kFail] = sum_up;
    options.executor.refuse_failed = refuse_failed_;
    options.executor.queries[kSum] = [](std::span<const std::byte>, const RpcData& data,
                                        std::span<std::byte> reply) -> Result<std::size_t> {
      PERDURE_TRY(calls, data.load<std::uint64_t>(0));
      store(reply.data(), calls);
      return sizeof calls;
    };
    options.executor.clock = &world_.clock();
    options.service.threads = false;
    options.service.clock = &world_.clock();
    options.service.queue = {32, 2048};
    options.lease = std::chrono::seconds(10);
    options.slow_from_percent = slow_from_percent_;
    options.quick_handlers = quick_handlers_;
    auto pool = pmem::Pool::attach(std::make_unique<pmem::LentRegion>(*region_));
    ASSERT_TRUE(pool.ok());
    server::DataPlane plane;
    plane.device = machine_;
    auto host = RpcHost::open(std::move(*pool), shape_, std::move(options), {plane});
    ASSERT_TRUE(host.ok()) << host.error().message;
    host_ = std::move(*host);
    machine_->add_actor([this, host = host_.get()] {
      if (host != host_.get()) return false;
      return held_up_ ? host->service().pump() : host->pump();
    });
  }

  /// In a new pool.
  void serve_large_replies() {
    host_.reset();
    shape_.reply_bytes_max = 60000;
    shape_.transaction_bytes = 256 * 1024;
    shape_.replies = 4;
    region_ = &machine_->add_region(pmem::kPoolDataOffset + shape_.bytes());
    ASSERT_TRUE(pmem::Pool::format(std::make_unique<pmem::LentRegion>(*region_), {}).ok());
    start();
  }

  Result<std::unique_ptr<Caller>> open(const std::string& name) { return open(name, *client_); }
  Result<std::unique_ptr<Caller>> open(const std::string& name, fabric::Device& device) {
    return Caller::open(std::make_unique<AddressOfHost>(host_, device), options_of(name), clock_);
  }
  static RpcClientOptions options_of(const std::string& name) {
    RpcClientOptions options;
    options.name = name;
    options.spin = std::chrono::microseconds(0);
    options.reconnect = std::chrono::milliseconds(1);
    options.server_timeout = std::chrono::milliseconds(200);
    return options;
  }
  std::unique_ptr<Caller> opened(const std::string& name) {
    auto caller = open(name);
    EXPECT_TRUE(caller.ok()) << caller.error().message;
    return std::move(*caller);
  }
  std::vector<std::byte> copy_of_the_pool() const {
    return {region_->bytes().begin(), region_->bytes().end()};
  }
  /// The server ends; the next one finds the pool as it was then.
  void restore(const std::vector<std::byte>& copy) {
    host_.reset();
    std::copy(copy.begin(), copy.end(), region_->bytes().begin());
    ASSERT_TRUE(region_->flush(0, copy.size()).ok());
    start();
  }
  /// What a client says in the end that comes back.
  Result<void> come_back(Caller& caller) {
    world_.drop_connections(*machine_, *client_);
    world_.settle();
    const std::uint64_t before = caller.status().connections;
    Result<void> polled;
    for (int look = 0; look < 10000; ++look) {
      polled = caller.poll();
      if (!polled.ok() || caller.status().connections > before) break;
      world_.settle();
    }
    return polled;
  }
  static std::vector<std::byte> bytes(std::size_t count) {
    return std::vector<std::byte>(count, std::byte{1});
  }

  Random random_{5};
  SeededSecrets secrets_{random_};
  fabric::emu::World world_{random_};
  const test::PassingClock clock_{world_.clock()};
  ServerProfile profile_;
  PoolShape shape_;
  fabric::emu::Machine* machine_ = nullptr;
  fabric::emu::Machine* client_ = nullptr;
  pmem::CrashableRegion* region_ = nullptr;
  std::unique_ptr<RpcHost> host_;
  bool held_up_ = false;   // nothing is executed
  bool repaired_ = false;  // from the next start on kFail does what kSum does
  bool refuse_failed_ = false;
  std::uint32_t slow_from_percent_ = 0;
  bool quick_handlers_ = false;
};

TEST_F(CallerTest, ACallOfAnySizeIsExecutedAndAnswered) {
  const auto caller = opened("one");
  std::uint64_t calls = 0;
  for (std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{16}, std::size_t{3000},
                           std::size_t{caller->payload_bytes_max()}, std::size_t{9000}}) {
    const auto handle = caller->call(kSum, bytes(size), 0);
    ASSERT_TRUE(handle.ok()) << handle.error().message;
    ASSERT_TRUE(caller->wait(*handle, RpcLevel::Durable, std::chrono::seconds(5)).ok());
    const auto reply = caller->reply(*handle, std::chrono::seconds(5));
    ASSERT_TRUE(reply.ok()) << reply.error().message;
    ASSERT_FALSE(reply->refused);
    EXPECT_EQ(load<std::uint64_t>(reply->bytes.data()), size);
    ++calls;
  }
  EXPECT_EQ(caller->call(kSum, bytes(caller->payload_bytes_max() + 1), 0).code(),
            ErrorCode::InvalidArgument);
  const auto counted = caller->query(kSum, {}, true, std::chrono::seconds(5));
  ASSERT_TRUE(counted.ok()) << counted.error().message;
  EXPECT_EQ(load<std::uint64_t>(counted->data()), calls);
  EXPECT_EQ(caller->query(9, {}, true, std::chrono::seconds(5)).code(), ErrorCode::Unsupported);
}

// The server gets no processor. Expect: the client stops at its credits, nothing is overrun, and
// all of it is executed afterwards.
TEST_F(CallerTest, TheRingIsNeverOverrun) {
  const auto caller = opened("one");
  for (const std::size_t size : {std::size_t{8}, std::size_t{5000}}) {
    SCOPED_TRACE(size);
    const std::uint64_t before = caller->status().begun;
    held_up_ = true;
    RpcHandle last;
    Result<RpcHandle> refused = RpcHandle{};
    for (int call = 0; call < 100; ++call) {
      refused = caller->call(kSum, bytes(size), 0);
      if (!refused.ok()) break;
      last = *refused;
    }
    ASSERT_FALSE(refused.ok());
    // The ring is full, or as many replies are due as the server keeps.
    EXPECT_EQ(refused.code(), ErrorCode::QueueFull) << refused.error().message;
    const std::uint64_t most = std::min<std::uint64_t>(16, kCallerRing / entry_bytes(size));
    EXPECT_LE(last.sequence - before, most);
    EXPECT_GE(last.sequence - before, most - 1);
    held_up_ = false;
    ASSERT_TRUE(caller->wait(last, RpcLevel::Applied, std::chrono::seconds(60)).ok());
    for (std::uint64_t sequence = before + 1; sequence <= last.sequence; ++sequence) {
      const auto reply = caller->reply(caller->handle_of(sequence), std::chrono::seconds(5));
      ASSERT_TRUE(reply.ok() && !reply->refused);
      EXPECT_EQ(load<std::uint64_t>(reply->bytes.data()), size);
    }
  }
}

// The connection was lost before two of three calls were sent, and one of them is taken back.
TEST_F(CallerTest, ACallThatWasNeverSentMayBeCancelledAndKeepsItsPlace) {
  const auto caller = opened("one");
  held_up_ = true;
  const auto sent = caller->call(kSum, bytes(5), 0);
  ASSERT_TRUE(caller->wait(*sent, RpcLevel::Durable, std::chrono::seconds(5)).ok());
  EXPECT_EQ(caller->cancel(*sent).code(), ErrorCode::Busy);
  EXPECT_EQ(caller->cancel(RpcHandle{7, sent->client_id}).code(), ErrorCode::InvalidArgument);
  EXPECT_EQ(caller->call(kRpcCancelled, bytes(5), 0).code(), ErrorCode::InvalidArgument);
  world_.drop_connections(*machine_, *client_);
  world_.settle();
  for (int look = 0; look < 100 && caller->status().up; ++look) (void)caller->poll();
  ASSERT_FALSE(caller->status().up);
  const auto taken_back = caller->call(kSum, bytes(3000), 0);
  const auto behind = caller->call(kSum, bytes(7), 0);
  ASSERT_TRUE(taken_back.ok() && behind.ok());
  ASSERT_TRUE(caller->cancel(*taken_back).ok());
  EXPECT_TRUE(caller->cancel(*taken_back).ok());  // it is, already
  held_up_ = false;
  // Receive: the last one. Expect: two calls are executed, and the one between them is not.
  const auto reply = caller->reply(*behind, std::chrono::seconds(60));
  ASSERT_TRUE(reply.ok()) << reply.error().message;
  EXPECT_EQ(load<std::uint64_t>(reply->bytes.data()), 7u);
  EXPECT_FALSE(reply->cancelled);
  EXPECT_EQ(behind->sequence, 3u);
  EXPECT_EQ(caller->wait(*taken_back, RpcLevel::Durable, std::chrono::seconds(5)).code(),
            ErrorCode::InvalidArgument);
  const auto none = caller->reply(*taken_back, std::chrono::seconds(5));
  ASSERT_TRUE(none.ok());
  EXPECT_TRUE(none->cancelled && none->refused == ErrorCode::TimedOut && none->bytes.empty());
  const auto counted = caller->query(kSum, {}, true, std::chrono::seconds(5));
  EXPECT_EQ(load<std::uint64_t>(counted->data()), 2u);
  EXPECT_EQ(host_->executor().status().cancelled, 1u);
  EXPECT_EQ(caller->status().cancelled, 1u);
  // A later process of the name is told the same by the server.
  const auto later = opened("one");
  const auto told = later->reply(later->handle_of(2), std::chrono::seconds(5));
  ASSERT_TRUE(told.ok()) << told.error().message;
  EXPECT_TRUE(told->cancelled && told->refused == ErrorCode::TimedOut);
}

// Two calls go when the connection is back, in two pieces of the ring, and the transport says of
// the first piece that it could not. Expect: of neither call anybody says that it was never sent;
// each is executed, once.
TEST_F(CallerTest, CallsWhosePostFailedInTheMidstCanNotBeCancelled) {
  test::FaultyDevice device(*client_);
  const auto opened = open("one", device);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  Caller& caller = **opened;
  const auto before = caller.call(kSum, bytes(kCallerRing / 2 - 1024), 0);
  ASSERT_TRUE(caller.wait(*before, RpcLevel::Applied, std::chrono::seconds(5)).ok());
  device.fault().away = true;
  world_.drop_connections(*machine_, *client_);
  world_.settle();
  for (int look = 0; look < 100 && caller.status().up; ++look) (void)caller.poll();
  ASSERT_FALSE(caller.status().up);
  const auto first = caller.call(kSum, bytes(10'000), 0);
  const auto second = caller.call(kSum, bytes(10'000), 0);  // at the beginning of the ring
  ASSERT_TRUE(first.ok() && second.ok());
  device.fault().from_bytes = 8000;
  device.fault().away = false;
  for (int look = 0; look < 1000 && device.fault().times == 0; ++look) {
    (void)caller.poll();
    world_.tick(std::chrono::milliseconds(1));
  }
  ASSERT_EQ(device.fault().times, 1);
  EXPECT_FALSE(caller.status().up);
  EXPECT_EQ(caller.cancel(*first).code(), ErrorCode::Busy);
  EXPECT_EQ(caller.cancel(*second).code(), ErrorCode::Busy);
  device.fault().away = false;
  for (const RpcHandle& call : {*first, *second}) {
    const auto reply = caller.reply(call, std::chrono::seconds(60));
    ASSERT_TRUE(reply.ok()) << reply.error().message;
    EXPECT_FALSE(reply->cancelled || reply->refused);
  }
  const auto counted = caller.query(kSum, {}, true, std::chrono::seconds(5));
  ASSERT_TRUE(counted.ok()) << counted.error().message;
  EXPECT_EQ(load<std::uint64_t>(counted->data()), 3u);
  EXPECT_EQ(host_->executor().status().cancelled, 0u);
}

// The server executes nothing. Expect: from the threshold on each call waits, longer and longer,
// and none of those before; without a threshold only what has no room.
TEST_F(CallerTest, AClientIsSlowedFromTheThresholdOn) {
  for (const std::uint32_t percent : {50u, 100u}) {
    SCOPED_TRACE(percent);
    slow_from_percent_ = percent;
    held_up_ = false;
    host_.reset();
    start();
    ASSERT_FALSE(HasFatalFailure());
    const auto caller = opened("one");
    held_up_ = true;
    std::chrono::nanoseconds before{0};
    RpcHandle last;
    for (std::uint64_t call = 1; call <= 16; ++call) {
      const auto handle = caller->call(kSum, bytes(8), 0);
      ASSERT_TRUE(handle.ok()) << handle.error().message;
      last = *handle;
      const RpcClientStatus status = caller->status();
      EXPECT_EQ(status.slowed, percent == 50 && call > 8 ? call - 8 : 0);
      // A share of a millisecond, and what the last look at the clock takes it beyond that.
      EXPECT_LE(status.slowed_for - before, std::chrono::microseconds(1200));
      before = status.slowed_for;
    }
    EXPECT_EQ(before > std::chrono::milliseconds(3), percent == 50);
    EXPECT_EQ(caller->call(kSum, bytes(8), 0).code(), ErrorCode::QueueFull);
    held_up_ = false;
    EXPECT_TRUE(caller->wait(last, RpcLevel::Applied, std::chrono::seconds(60)).ok());
    // The server keeps up: who waits for each is never slowed.
    const std::uint64_t slowed = caller->status().slowed;
    for (int call = 0; call < 20; ++call) {
      const auto handle = caller->call(kSum, bytes(8), 0);
      EXPECT_TRUE(caller->wait(*handle, RpcLevel::Applied, std::chrono::seconds(60)).ok());
    }
    EXPECT_EQ(caller->status().slowed, slowed);
  }
}

// Nobody but the session looks for calls.
TEST_F(CallerTest, QuickHandlersAreExecutedWhereTheCallArrives) {
  for (const bool quick : {true, false}) {
    quick_handlers_ = quick;
    held_up_ = false;
    host_.reset();
    start();
    ASSERT_FALSE(HasFatalFailure());
    const auto caller = opened("one");
    held_up_ = true;
    const auto handle = caller->call(kSum, bytes(8), 0);
    ASSERT_TRUE(caller->wait(*handle, RpcLevel::Durable, std::chrono::seconds(5)).ok());
    world_.settle();
    EXPECT_EQ(host_->executor().status().applied, quick ? 1u : 0u);
    const auto applied = caller->wait(*handle, RpcLevel::Applied, std::chrono::seconds(1));
    EXPECT_EQ(applied.ok(), quick);
  }
}

// Who waits for replies sends each call with the question for its reply: it is durable all the same
// when that is said, and executed once, whatever is lost.
TEST_F(CallerTest, ACallThatGoesWithTheQuestionSurvivesAPowerCut) {
  const auto caller = opened("one");
  std::uint64_t sum = 0;
  const auto call_and_wait = [&](std::size_t size, RpcLevel level) {
    const auto handle = caller->call(kSum, bytes(size), 0);
    EXPECT_TRUE(handle.ok()) << handle.error().message;
    const auto waited = caller->wait(*handle, level, std::chrono::seconds(60));
    EXPECT_TRUE(waited.ok()) << waited.error().message;
    sum += size;
    return *handle;
  };
  for (std::size_t round = 1; round <= 20; ++round) {
    call_and_wait(round, RpcLevel::Applied);
    held_up_ = true;  // nothing is executed, and the answer says so
    const RpcHandle kept = call_and_wait(300, RpcLevel::Durable);
    EXPECT_EQ(caller->status().applied + 1, kept.sequence);
    region_->power_cut(random_);
    host_.reset();
    region_->power_on();
    held_up_ = false;
    start();
    ASSERT_FALSE(HasFatalFailure());
    const auto reply = caller->reply(kept, std::chrono::seconds(60));
    ASSERT_TRUE(reply.ok()) << reply.error().message;
    const auto after = caller->query(kSum, {}, true, std::chrono::seconds(60));
    ASSERT_TRUE(after.ok()) << after.error().message;
    EXPECT_EQ(load<std::uint64_t>(after->data()), 2 * round);  // calls, each of them once
    EXPECT_EQ(host_->executor().status().applied, 1u);  // by this server: the first was before
  }
  EXPECT_EQ(caller->status().begun, 40u);
}

// Over connections that are lost in the midst of them, too.
TEST_F(CallerTest, ACallWhoseAnswerIsLostIsExecutedOnce) {
  const auto caller = opened("one");
  for (std::uint64_t round = 1; round <= 60; ++round) {
    const auto handle = caller->call(kSum, bytes(1 + random_.below(900)), 0);
    ASSERT_TRUE(handle.ok()) << handle.error().message;
    for (std::uint64_t polls = random_.below(6); polls != 0; --polls) (void)caller->poll();
    if (random_.below(2) == 0) world_.drop_connections(*machine_, *client_);
    const auto waited = caller->wait(*handle, RpcLevel::Applied, std::chrono::seconds(60));
    ASSERT_TRUE(waited.ok()) << waited.error().message;
    const auto counted = caller->query(kSum, {}, true, std::chrono::seconds(60));
    ASSERT_TRUE(counted.ok()) << counted.error().message;
    ASSERT_EQ(load<std::uint64_t>(counted->data()), round);
  }
  EXPECT_GT(caller->status().connections, 10u);
}

TEST_F(CallerTest, CallsThatWaitGoTogether) {
  const auto caller = opened("one");
  const std::uint64_t before = host_->executor().status().transactions;
  RpcHandle last;
  for (int call = 0; call < 16; ++call) last = *caller->call(kSum, bytes(8), 0);
  ASSERT_TRUE(caller->wait(last, RpcLevel::Applied, std::chrono::seconds(5)).ok());
  EXPECT_LT(host_->executor().status().transactions - before, 16u);
}

TEST_F(CallerTest, ANewProcessOfTheNameFencesTheOldOne) {
  const auto old = opened("one");
  const auto first = old->call(kSum, bytes(3), 0);
  ASSERT_TRUE(old->wait(*first, RpcLevel::Durable, std::chrono::seconds(5)).ok());
  const auto now = opened("one");
  EXPECT_EQ(now->status().client_id, first->client_id);
  EXPECT_EQ(now->status().earlier_durable, 1u);
  // The reply of its predecessor's call is there.
  const auto reply = now->reply(now->handle_of(1), std::chrono::seconds(5));
  ASSERT_TRUE(reply.ok()) << reply.error().message;
  EXPECT_EQ(load<std::uint64_t>(reply->bytes.data()), 3u);
  const auto late = old->call(kSum, bytes(5), 0);
  const auto waited = late.ok() ? old->wait(*late, RpcLevel::Durable, std::chrono::seconds(5))
                                : Result<void>(late.error());
  EXPECT_EQ(waited.code(), late.ok() ? ErrorCode::OutcomeUnknown : ErrorCode::Fenced)
      << waited.error().message;
  EXPECT_EQ(old->call(kSum, bytes(5), 0).code(), ErrorCode::Fenced);
  const auto second = now->call(kSum, bytes(4), 0);
  ASSERT_TRUE(now->wait(*second, RpcLevel::Applied, std::chrono::seconds(5)).ok());
  EXPECT_EQ(second->sequence, 2u);  // the late call of the old one is nowhere
  const auto counted = now->query(kSum, {}, true, std::chrono::seconds(5));
  EXPECT_EQ(load<std::uint64_t>(counted->data()), 2u);
}

TEST_F(CallerTest, AClientExpiresOnlyWhenItIsGoneAndNothingIsUnapplied) {
  auto caller = opened("one");
  const auto handle = caller->call(kSum, bytes(1), 0);
  ASSERT_TRUE(caller->wait(*handle, RpcLevel::Applied, std::chrono::seconds(5)).ok());
  world_.tick(std::chrono::seconds(20));
  host_->expire_clients();
  EXPECT_EQ(host_->executor().names().size(), 1u);  // it is connected
  const std::uint64_t id = caller->status().client_id;
  caller.reset();
  world_.settle();
  host_->expire_clients();
  EXPECT_EQ(host_->executor().names().size(), 1u);  // a moment ago it was
  world_.tick(std::chrono::seconds(20));
  host_->expire_clients();
  EXPECT_TRUE(host_->executor().names().empty());
  EXPECT_EQ(host_->executor().status().expired, 1u);
  caller = opened("one");  // the name is free, and another client has it
  EXPECT_NE(caller->status().client_id, id);
  EXPECT_EQ(caller->status().earlier_durable, 0u);
}

// A client that is connected and calls nothing for nearly as long as its lease loses its connection
// for a moment. Expect: it keeps its place; its lease begins when it has gone.
TEST_F(CallerTest, ALeaseBeginsWhenTheConnectionEnds) {
  const auto caller = opened("one");
  const auto handle = caller->call(kSum, bytes(1), 0);
  ASSERT_TRUE(caller->wait(*handle, RpcLevel::Applied, std::chrono::seconds(5)).ok());
  world_.tick(std::chrono::seconds(9));
  host_->expire_clients();
  world_.drop_connections(*machine_, *client_);
  world_.settle();
  world_.tick(std::chrono::seconds(2));
  host_->expire_clients();
  EXPECT_EQ(host_->executor().names().size(), 1u);
  world_.tick(std::chrono::seconds(7));
  host_->expire_clients();
  EXPECT_EQ(host_->executor().names().size(), 1u);
  world_.tick(std::chrono::seconds(2));
  host_->expire_clients();
  EXPECT_TRUE(host_->executor().names().empty());
  // What it has left in its ring is no call of whoever has its place then.
  (void)opened("two");
  world_.settle();
  world_.tick(std::chrono::seconds(11));
  host_->expire_clients();
  EXPECT_TRUE(host_->executor().names().empty());
}

// A server is at what its last one left for longer than the lease. Expect: nobody expires for that,
// who could not reach it meanwhile.
TEST_F(CallerTest, RecoveryIsNoPartOfALease) {
  const auto one = opened("one");
  const auto two = opened("two");
  held_up_ = true;
  const auto handle = one->call(kTwentySeconds, bytes(1), 0);
  ASSERT_TRUE(one->wait(*handle, RpcLevel::Durable, std::chrono::seconds(5)).ok());
  host_.reset();
  held_up_ = false;
  start();
  host_->expire_clients();
  EXPECT_EQ(host_->executor().names().size(), 2u);
  EXPECT_TRUE(one->wait(*handle, RpcLevel::Applied, std::chrono::seconds(5)).ok());
}

TEST_F(CallerTest, APlaceThatIsClosedIsWaitedFor) {
  const auto caller = opened("one");
  world_.drop_connections(*machine_, *client_);
  world_.settle();
  ASSERT_TRUE(host_->service().close_pool("one").ok());
  const auto handle = caller->call(kSum, bytes(1), 0);
  ASSERT_TRUE(handle.ok()) << handle.error().message;
  EXPECT_EQ(caller->wait(*handle, RpcLevel::Durable, std::chrono::milliseconds(20)).code(),
            ErrorCode::TimedOut);
  EXPECT_EQ(open("one").code(), ErrorCode::Busy);
  // Nor does its lease end while it is kept out.
  world_.tick(std::chrono::seconds(20));
  host_->expire_clients();
  ASSERT_TRUE(host_->service().open_pool("one").ok());
  host_->expire_clients();
  const auto waited = caller->wait(*handle, RpcLevel::Applied, std::chrono::seconds(5));
  EXPECT_TRUE(waited.ok()) << waited.error().message;
}

// The place of a client is given up while the next process of its name opens it.
TEST_F(CallerTest, APlaceThatGoesWhileItIsOpenedIsBusy) {
  opened("one").reset();
  world_.settle();
  auto peer = std::make_unique<AddressOfHost>(host_, *client_);
  peer->after_describe = [this] {
    const auto report = host_->service().report();
    for (const auto& session : report->sessions) {
      (void)host_->service().close_session(session.id);  // or it has ended by itself
    }
    const auto pool = host_->service().describe("one");
    const auto deleted = host_->service().delete_pool("one", pool->uuid, {}, Nanoseconds{0});
    ASSERT_TRUE(deleted.ok()) << deleted.error().message;
  };
  EXPECT_EQ(Caller::open(std::move(peer), options_of("one"), clock_).code(), ErrorCode::Busy);
  EXPECT_TRUE(open("one").ok());
}

// A client that was away for longer than its lease. Expect: it is told, also when another process
// has its name; nothing of it is executed for the other one.
TEST_F(CallerTest, AClientThatComesBackAfterItsLeaseIsTold) {
  const auto caller = opened("one");
  const auto handle = caller->call(kSum, bytes(1), 0);
  ASSERT_TRUE(caller->wait(*handle, RpcLevel::Applied, std::chrono::seconds(5)).ok());
  world_.drop_connections(*machine_, *client_);
  world_.settle();
  world_.tick(std::chrono::seconds(20));
  host_->expire_clients();
  ASSERT_TRUE(host_->executor().names().empty());
  const auto other = opened("one");
  const auto late = caller->call(kSum, bytes(1), 0);
  const auto waited = late.ok() ? caller->wait(*late, RpcLevel::Durable, std::chrono::seconds(5))
                                : Result<void>(late.error());
  EXPECT_EQ(waited.code(), late.ok() ? ErrorCode::OutcomeUnknown : ErrorCode::NotFound)
      << waited.error().message;
  // Of the one that is applied everything is known but its reply.
  EXPECT_EQ(caller->wait(*handle, RpcLevel::Durable, std::chrono::seconds(5)).ok(), true);
  EXPECT_EQ(caller->call(kSum, bytes(1), 0).code(), ErrorCode::NotFound);
  EXPECT_TRUE(other->status().up);
  const auto counted = other->query(kSum, {}, true, std::chrono::seconds(5));
  ASSERT_TRUE(counted.ok()) << counted.error().message;
  EXPECT_EQ(load<std::uint64_t>(counted->data()), 1u);
}

TEST_F(CallerTest, AServerHasSoManyClientsAndNoMore) {
  const auto one = opened("one");
  const auto two = opened("two");
  EXPECT_EQ(open("three").code(), ErrorCode::NoSpace);
  EXPECT_EQ(open("no/name").code(), ErrorCode::InvalidArgument);
}

TEST_F(CallerTest, RefusedCallsAreAnswered) {
  refuse_failed_ = true;
  host_.reset();
  start();
  const auto caller = opened("one");
  const auto unknown = caller->call(77, bytes(1), 0);
  const auto broken = caller->call(kFail, bytes(1), 0);
  const auto right = caller->call(kSum, bytes(1), 0);
  EXPECT_EQ(caller->reply(*unknown, std::chrono::seconds(5))->refused, ErrorCode::Unsupported);
  EXPECT_EQ(caller->reply(*broken, std::chrono::seconds(5))->refused, ErrorCode::SystemError);
  EXPECT_FALSE(caller->reply(*right, std::chrono::seconds(5))->refused);
  EXPECT_EQ(caller->wait({9, right->client_id}, RpcLevel::Durable, std::chrono::seconds(1)).code(),
            ErrorCode::InvalidArgument);
  EXPECT_EQ(caller->wait({1, 1}, RpcLevel::Durable, std::chrono::seconds(1)).code(),
            ErrorCode::InvalidArgument);
}

// Expect: who waits for a call that is set aside is told at once, what does not need it goes on,
// and nothing is forgotten by a restart, a lost connection, a new process or the lease.
TEST_F(CallerTest, ACallThatIsSetAsideIsToldAndWaitsForAnOperator) {
  auto caller = opened("one");
  const auto before = caller->call(kSum, bytes(2), 0);
  const auto broken = caller->call(kFail, bytes(3), 0);
  const auto behind = caller->call(kSum, bytes(4), 0);
  const auto soon = std::chrono::hours(1);  // on a clock that passes by itself
  const Nanoseconds begun = clock_.now();
  EXPECT_EQ(caller->wait(*broken, RpcLevel::Applied, soon).code(), ErrorCode::Busy);
  EXPECT_EQ(caller->reply(*behind, soon).code(), ErrorCode::Busy);
  EXPECT_EQ(caller->query(kSum, {}, true, soon).code(), ErrorCode::Busy);
  EXPECT_LT(clock_.now() - begun, std::chrono::seconds(10));
  EXPECT_TRUE(caller->wait(*behind, RpcLevel::Durable, soon).ok());
  EXPECT_TRUE(caller->reply(*before, soon).ok());
  EXPECT_TRUE(caller->query(kSum, {}, false, soon).ok());
  const auto other = opened("two");
  const auto others = other->call(kSum, bytes(1), 0);
  EXPECT_TRUE(other->wait(*others, RpcLevel::Applied, soon).ok());

  world_.drop_connections(*machine_, *client_);
  world_.settle();
  EXPECT_EQ(caller->wait(*broken, RpcLevel::Applied, soon).code(), ErrorCode::Busy);
  const std::uint64_t id = broken->client_id;
  caller.reset();
  world_.settle();
  world_.tick(std::chrono::seconds(20));
  host_->expire_clients();
  caller = opened("one");  // a new process of the name
  EXPECT_EQ(caller->status().client_id, id);
  EXPECT_EQ(caller->status().earlier_durable, 3u);
  EXPECT_EQ(caller->reply(caller->handle_of(2), soon).code(), ErrorCode::Busy);
  // The ring, or the replies, are full at some time: told without waiting.
  Result<RpcHandle> refused = RpcHandle{};
  for (int call = 0; call < 100 && refused.ok(); ++call) refused = caller->call(kSum, bytes(8), 0);
  EXPECT_EQ(refused.code(), ErrorCode::QueueFull);
  EXPECT_NE(refused.error().message.find("set aside"), std::string::npos);
  const std::uint64_t last = caller->status().begun;

  ASSERT_TRUE(host_->drop("one", 2).ok());
  const auto dropped = caller->reply(caller->handle_of(2), soon);
  ASSERT_TRUE(dropped.ok()) << dropped.error().message;
  EXPECT_EQ(dropped->refused, ErrorCode::SystemError);
  EXPECT_TRUE(dropped->dropped);
  const auto after = caller->reply(caller->handle_of(last), soon);
  ASSERT_TRUE(after.ok()) << after.error().message;
  EXPECT_FALSE(after->refused);
  const auto counted = caller->query(kSum, {}, true, soon);
  ASSERT_TRUE(counted.ok()) << counted.error().message;
  EXPECT_EQ(load<std::uint64_t>(counted->data()), last);  // all but one, and the other client's
}

// A client is opened anew while a call is set aside, and has as many replies to collect as are
// kept. Expect: there is room for a call when they have come.
TEST_F(CallerTest, BehindACallThatIsSetAsideEarlierRepliesMakeRoom) {
  serve_large_replies();
  ASSERT_FALSE(HasFatalFailure());
  const auto soon = std::chrono::hours(1);
  auto caller = opened("one");
  for (int each = 0; each < 6; ++each) {
    const auto handle = caller->call(kEcho, bytes(1), 0);
    ASSERT_TRUE(caller->wait(*handle, RpcLevel::Applied, soon).ok());
  }
  const auto broken = caller->call(kFail, bytes(3), 0);
  EXPECT_EQ(caller->wait(*broken, RpcLevel::Applied, soon).code(), ErrorCode::Busy);
  caller.reset();
  world_.settle();
  caller = opened("one");
  const auto behind = caller->call(kSum, bytes(1), 0);
  ASSERT_TRUE(behind.ok()) << behind.error().message;
  EXPECT_TRUE(caller->wait(*behind, RpcLevel::Durable, soon).ok());
}

// A server is replaced by one whose handler works, and the call is retried.
TEST_F(CallerTest, ACallThatIsRetriedIsAnsweredAsIfNothingHadBeen) {
  auto caller = opened("one");
  const auto broken = caller->call(kFail, bytes(3), 0);
  const auto behind = caller->call(kSum, bytes(4), 0);
  const auto soon = std::chrono::hours(1);
  ASSERT_EQ(caller->wait(*behind, RpcLevel::Applied, soon).code(), ErrorCode::Busy);
  repaired_ = true;
  caller.reset();
  host_->abandon();
  host_.reset();
  start();
  ASSERT_FALSE(HasFatalFailure());
  caller = opened("one");
  EXPECT_EQ(caller->wait(*behind, RpcLevel::Applied, soon).code(), ErrorCode::Busy);
  ASSERT_TRUE(host_->retry("one", broken->sequence).ok());
  const auto reply = caller->reply(*broken, soon);
  ASSERT_TRUE(reply.ok()) << reply.error().message;
  EXPECT_FALSE(reply->refused);
  EXPECT_EQ(load<std::uint64_t>(reply->bytes.data()), 3u);
  EXPECT_TRUE(caller->wait(*behind, RpcLevel::Applied, soon).ok());
  EXPECT_EQ(host_->executor().status().clients[0].applied, 2u);
}

// The connection is lost in the middle of a large reply, and of a large answer, again and again.
// Expect: both come whole in the end.
TEST_F(CallerTest, AReplyThatIsLargerThanAMessageIsWholeOverLostConnections) {
  serve_large_replies();
  const auto caller = opened("one");
  int lost = 0;
  machine_->add_actor([&, turns = 0]() mutable {
    if (++turns % 41 != 0 || lost >= 3) return false;
    const auto sessions = host_->service().report();
    if (!sessions.ok()) return false;
    for (const auto& session : sessions->sessions) {
      if (host_->service().close_session(session.id).ok()) ++lost;
    }
    return true;
  });
  std::vector<std::byte> value(50001);
  for (std::size_t at = 0; at < value.size(); ++at) value[at] = static_cast<std::byte>(at / 3);
  for (int round = 0; round < 2 || (lost < 3 && round < 20); ++round) {
    auto handle = caller->call(kEcho, bytes(16), 0);
    ASSERT_TRUE(handle.ok()) << handle.error().message;
    const auto reply = caller->reply(*handle, std::chrono::seconds(60));
    ASSERT_TRUE(reply.ok()) << reply.error().message;
    EXPECT_EQ(reply->bytes, value);
    const auto answer = caller->query(kEcho, {}, true, std::chrono::seconds(60));
    ASSERT_TRUE(answer.ok()) << answer.error().message;
    EXPECT_EQ(*answer, value);
  }
  EXPECT_EQ(lost, 3);
}

// A question for replies is on its way, and one piece of a large reply or another, while a large
// answer is brought. Expect: the answer, and then the reply.
TEST_F(CallerTest, ALargeAnswerComesWhileRepliesAreAskedFor) {
  serve_large_replies();
  const auto caller = opened("one");
  for (const bool applied : {false, true}) {
    SCOPED_TRACE(applied);
    held_up_ = !applied;
    const auto handle = caller->call(kEcho, bytes(16), 0);
    ASSERT_TRUE(caller->wait(*handle, RpcLevel::Durable, std::chrono::seconds(5)).ok());
    EXPECT_EQ(caller->wait(*handle, RpcLevel::Applied, Nanoseconds{0}).code(), ErrorCode::TimedOut);
    for (int round = 0; round < 20; ++round) {
      const auto answer = caller->query(kMost, {}, applied, std::chrono::seconds(60));
      ASSERT_TRUE(answer.ok()) << answer.error().message;
      EXPECT_EQ(*answer, std::vector<std::byte>(300000, std::byte{9}));
    }
    held_up_ = false;
    const auto reply = caller->reply(*handle, std::chrono::seconds(60));
    ASSERT_TRUE(reply.ok()) << reply.error().message;
    EXPECT_EQ(reply->bytes.size(), 50001u);
  }
}

// A call was set aside when the pool was copied; then it was dropped, and its client told. The
// server goes on with the copy, where the call waits still. Expect: the client says so: for what it
// takes as free is not.
TEST_F(CallerTest, AnOlderPoolThatHasACallUnappliedAgainIsRefused) {
  const auto caller = opened("one");
  const auto failing = caller->call(kFail, bytes(16), 0);
  EXPECT_EQ(caller->wait(*failing, RpcLevel::Applied, std::chrono::seconds(5)).code(),
            ErrorCode::Busy);
  const auto copy = copy_of_the_pool();
  ASSERT_TRUE(host_->drop("one", 1).ok());
  const auto reply = caller->reply(*failing, std::chrono::seconds(5));
  ASSERT_TRUE(reply.ok() && reply->dropped);
  restore(copy);
  const auto back = come_back(*caller);
  ASSERT_FALSE(back.ok());
  EXPECT_EQ(back.code(), ErrorCode::Corrupt);
  EXPECT_EQ(caller->call(kSum, bytes(16), 0).code(), ErrorCode::Corrupt);
}

// The pool was copied before this process opened its name. On the copy another one has the name, in
// an epoch before this one's. Expect: this one does not take its calls for its own.
TEST_F(CallerTest, AnOlderPoolThatDoesNotKnowTheProcessIsRefused) {
  for (int process = 0; process < 2; ++process) (void)opened("one");
  const auto copy = copy_of_the_pool();
  (void)opened("one");
  const auto caller = opened("one");
  const auto first = caller->call(kSum, bytes(16), 0);
  ASSERT_TRUE(caller->wait(*first, RpcLevel::Durable, std::chrono::seconds(5)).ok());
  restore(copy);
  world_.drop_connections(*machine_, *client_);
  world_.settle();
  for (int look = 0; look < 100 && caller->status().up; ++look) (void)caller->poll();
  const auto other = opened("one");
  for (int call = 0; call < 2; ++call) {
    const auto made = other->call(kSum, bytes(16), 0);
    ASSERT_TRUE(other->wait(*made, RpcLevel::Applied, std::chrono::seconds(5)).ok());
  }
  const auto second = caller->call(kSum, bytes(16), 0);
  ASSERT_TRUE(second.ok());
  const auto waited = caller->wait(*second, RpcLevel::Durable, std::chrono::seconds(5));
  ASSERT_FALSE(waited.ok()) << "it was never sent";
  EXPECT_EQ(waited.code(), ErrorCode::OutcomeUnknown);
  EXPECT_EQ(caller->poll().code(), ErrorCode::Corrupt);
  EXPECT_TRUE(other->call(kSum, bytes(16), 0).ok());
}

TEST(RpcRequests, NonsenseIsRefused) {
  WelcomeReply reply;
  reply.welcome = {7, 3, 256, 5, 512};
  reply.ring_bytes = 4096;
  reply.replies = 4;
  auto bytes = encode_welcome(reply);
  ASSERT_TRUE(decode_welcome(bytes).ok());
  EXPECT_EQ(decode_welcome(bytes)->welcome.end, 512u);
  store(bytes.data() + 24, std::uint64_t{2});  // less durable than applied
  EXPECT_EQ(decode_welcome(bytes).code(), ErrorCode::ProtocolError);
  std::vector<std::byte> collected(kCollectHeadBytes + kReplyHeadBytes);
  store(collected.data() + 16, std::uint32_t{1});
  Collected decoded;
  EXPECT_TRUE(decode_collected(collected, decoded).ok());
  store(collected.data() + kCollectHeadBytes + 12, std::uint32_t{1});  // a byte that is not there
  EXPECT_EQ(decode_collected(collected, decoded).code(), ErrorCode::ProtocolError);
  store(collected.data() + 20, kCollectCut);
  ASSERT_TRUE(decode_collected(collected, decoded).ok());
  EXPECT_TRUE(decoded.cut && decoded.replies.at(0).bytes.empty());
  store(collected.data() + kCollectHeadBytes + 12, std::uint32_t{0});  // it says it is cut
  EXPECT_EQ(decode_collected(collected, decoded).code(), ErrorCode::ProtocolError);
  collected.resize(collected.size() + 6);
  store(collected.data() + kCollectHeadBytes + 12, std::uint32_t{6});  // and lacks padding only
  EXPECT_EQ(decode_collected(collected, decoded).code(), ErrorCode::ProtocolError);
  store(collected.data() + 20, std::uint32_t{0});
  ASSERT_TRUE(decode_collected(collected, decoded).ok());
  EXPECT_EQ(decoded.replies.at(0).bytes.size(), 6u);
  store(collected.data() + 16, std::uint32_t{2});
  EXPECT_EQ(decode_collected(collected, decoded).code(), ErrorCode::ProtocolError);
}

}  // namespace
}  // namespace perdure::rpc
