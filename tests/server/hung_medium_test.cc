// A medium that never answers costs its own pool, and no other: of the threads that answer requests
// one waits for it, and everybody else is told, or served. Nothing here asserts a time: what has to
// happen is waited for, with a patience that only a hang reaches.
#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <thread>

#include "client/http_peer.h"
#include "control/host_port.h"
#include "control/http_client.h"
#include "data_plane.h"
#include "fabric/shm/shm.h"
#include "hanging_region.h"
#include "pmem/crashable_region.h"
#include "pmem/pool.h"
#include "server/http_server.h"

namespace perdure::server {
namespace {

std::string epoch_of(int epoch) { return R"({"epoch":)" + std::to_string(epoch) + "}"; }

/// A control plane with the pools "well", and "hung-0" to "hung-7" whose media can hang.
class HungMedium : public testing::Test {
 protected:
  static constexpr int kHung = 8;

  HungMedium() {
    auto device = fabric::shm::open_device();
    EXPECT_TRUE(device.ok());
    device_ = std::move(*device);
    ServiceOptions options;
    options.queue = {32, 1024};
    auto service = PeerService::open(std::move(options), {{device_.get(), "", {}}});
    EXPECT_TRUE(service.ok()) << service.error().message;
    service_ = std::move(*service);
    add("well", 0);
    for (int i = 0; i < kHung; ++i) hanging_.push_back(add("hung-" + std::to_string(i), i + 1));
    HttpServerOptions http;
    http.listen = "127.0.0.1:0";
    auto server = HttpServer::open(*service_, http);
    EXPECT_TRUE(server.ok()) << server.error().message;
    server_ = std::move(*server);
  }
  ~HungMedium() override {
    for (const auto& each : hanging_) each->hang(false);
    for (std::thread& each : asking_) each.join();
    server_.reset();
    service_.reset();
  }

  std::shared_ptr<Hang> add(const std::string& name, int seed) {
    pmem::CrashableRegion::Options options;
    options.bytes = 1 << 17;
    options.domain = PersistenceDomain::Page;
    auto memory = pmem::CrashableRegion::open(options);
    EXPECT_TRUE(memory.ok());
    memory_.push_back(std::move(*memory));
    auto hanging = std::make_shared<Hang>();
    auto region = std::make_unique<HangingRegion>(*memory_.back(), hanging);
    pmem::PoolOptions pool;
    pool.uuid = pmem::Uuid{std::byte(seed + 1)};
    auto formatted = pmem::Pool::format(std::move(region), pool);
    EXPECT_TRUE(formatted.ok());
    const auto added = service_->add_pool(name, std::move(*formatted));
    EXPECT_TRUE(added.ok()) << added.error().message;
    return hanging;
  }

  Result<control::HttpAnswer> ask(const std::string& method, const std::string& path,
                                  const std::string& body = "") {
    return control::http_call(*control::parse_host_port(server_->address()), {method, path, body},
                              1 << 20, soon());
  }
  int status(const std::string& method, const std::string& path, const std::string& body = "") {
    const auto answer = ask(method, path, body);
    EXPECT_TRUE(answer.ok()) << method << " " << path << ": " << answer.error().message;
    return answer.ok() ? answer->status : -1;
  }
  /// Asks beside the test; its answer is counted.
  void ask_beside(const std::string& path, const std::string& body) {
    asking_.emplace_back([this, path, body] {
      const auto answer = ask("POST", path, body);
      if (answer.ok() && answer->status == 504) {
        EXPECT_NE(answer->body.find("pool 'hung-"), std::string::npos) << answer->body;
        ++given_up_;
      }
      if (answer.ok() && answer->status / 100 == 2) ++granted_;
      EXPECT_TRUE(answer.ok() && (answer->status == 504 || answer->status / 100 == 2))
          << (answer.ok() ? answer->body : answer.error().message);
    });
  }
  bool comes_true(const std::function<bool()>& what) {
    const Deadline patience = soon();
    while (!what() && !patience.passed()) (void)::poll(nullptr, 0, 5);
    return what();
  }
  /// For how long the oldest piece of work on a pool has not ended, as /metrics says.
  bool is_stuck(const std::string& pool) {
    const auto report = service_->report();
    EXPECT_TRUE(report.ok());
    for (const control::PoolReport& each : report->pools) {
      if (each.pool.name == pool) return each.oldest_work > Nanoseconds{0};
    }
    ADD_FAILURE() << "no pool " << pool;
    return false;
  }
  void everything_else_goes_on() {
    ++epoch_;
    EXPECT_EQ(status("GET", "/healthz"), 200);
    EXPECT_EQ(status("GET", "/metrics"), 200);
    EXPECT_EQ(status("GET", "/v1/pools"), 200);
    EXPECT_EQ(status("GET", "/v1/pools/hung-0"), 200);
    EXPECT_EQ(status("POST", "/v1/pools/well/fence", epoch_of(epoch_)), 200);
    const std::string writer =
        R"({"write":true,"take_over":true,"writer":"ab","epoch":)" + std::to_string(epoch_) + "}";
    EXPECT_EQ(status("POST", "/v1/pools/well/sessions", writer), 201);
    EXPECT_EQ(status("POST", "/v1/pools/well/sessions", R"({"write":false})"), 201);
  }

  std::vector<std::unique_ptr<pmem::CrashableRegion>> memory_;
  std::vector<std::shared_ptr<Hang>> hanging_;
  std::unique_ptr<fabric::Device> device_;
  std::unique_ptr<PeerService> service_;
  std::unique_ptr<HttpServer> server_;
  std::vector<std::thread> asking_;
  std::atomic<int> given_up_{0};
  std::atomic<int> granted_{0};
  int epoch_ = 1;
};

TEST_F(HungMedium, OnePoolHoldsUpItsOwnRequestsOnly) {
  hanging_[0]->hang(true);
  ask_beside("/v1/pools/hung-0/fence", epoch_of(2));
  ASSERT_TRUE(comes_true([&] { return hanging_[0]->waits(); }));
  for (int i = 0; i < 8; ++i) ask_beside("/v1/pools/hung-0/fence", epoch_of(3 + i));
  for (int i = 0; i < 8; ++i) ask_beside("/v1/pools/hung-0/sessions", R"({"write":false})");
  EXPECT_TRUE(comes_true([&] { return given_up_ == 16; })) << given_up_;
  EXPECT_TRUE(is_stuck("hung-0"));
  EXPECT_FALSE(is_stuck("well"));
  everything_else_goes_on();
  // Expect: the one that waited ends with its medium, and the pool is served again.
  hanging_[0]->hang(false);
  EXPECT_TRUE(comes_true([&] { return granted_ == 1; }));
  EXPECT_EQ(status("POST", "/v1/pools/hung-0/fence", epoch_of(20)), 200);
}

TEST_F(HungMedium, MorePoolsThanThreadsHoldUpNobodyElse) {
  for (int i = 0; i < kHung; ++i) {
    hanging_[static_cast<std::size_t>(i)]->hang(true);
    ask_beside("/v1/pools/hung-" + std::to_string(i) + "/fence", epoch_of(2));
    ASSERT_TRUE(comes_true([&] { return hanging_[static_cast<std::size_t>(i)]->waits(); })) << i;
  }
  everything_else_goes_on();
  for (const auto& each : hanging_) each->hang(false);
  EXPECT_TRUE(comes_true([&] { return granted_ == kHung; })) << granted_;
}

TEST_F(HungMedium, AStuckSessionKeepsNoOtherOneGoing) {
  auto peer = client::HttpPeer::open(
      server_->address(), std::shared_ptr<fabric::Device>(std::move(*fabric::shm::open_device())));
  ASSERT_TRUE(peer.ok()) << peer.error().message;
  control::SessionRequest reader;
  reader.pool = "hung-0";
  auto writing = (*peer)->open_session({"hung-0", true, Epoch{1}, 10, "stuck", false}, soon());
  auto reading = (*peer)->open_session(reader, soon());
  ASSERT_TRUE(writing.ok() && reading.ok());
  hanging_[0]->hang(true);
  auto device = fabric::shm::open_device();
  auto device_of_reader = fabric::shm::open_device();
  std::thread writer([&] { (void)update(*writing, **device, 1, 0); });
  EXPECT_TRUE(comes_true([&] { return hanging_[0]->waits(); }));
  // Nothing else is at work on the pool. Expect: it is seen all the same.
  EXPECT_TRUE(comes_true([&] { return is_stuck("hung-0"); }));
  ask_beside("/v1/pools/hung-0/close", "");
  std::vector<std::byte> bytes(64);
  EXPECT_TRUE(comes_true(
      [&] { return run(*reading, **device_of_reader, fabric::Opcode::Read, bytes).has_value(); }));
  hanging_[0]->hang(false);
  writer.join();
  EXPECT_TRUE(comes_true([&] { return !is_stuck("hung-0"); }));
}

TEST_F(HungMedium, ASessionWithNothingToDoIsNotStuck) {
  auto peer = client::HttpPeer::open(
      server_->address(), std::shared_ptr<fabric::Device>(std::move(*fabric::shm::open_device())));
  ASSERT_TRUE(peer.ok()) << peer.error().message;
  auto writing = (*peer)->open_session({"hung-0", true, Epoch{1}, 10, "idle", false}, soon());
  ASSERT_TRUE(writing.ok()) << writing.error().message;
  auto device = fabric::shm::open_device();
  EXPECT_EQ(update(*writing, **device, 1, 0), 0);
  // Receive: looks of the watching thread, which sees another pool's session stuck.
  auto other = (*peer)->open_session({"hung-1", true, Epoch{1}, 10, "stuck", false}, soon());
  ASSERT_TRUE(other.ok()) << other.error().message;
  hanging_[1]->hang(true);
  auto device_of_other = fabric::shm::open_device();
  std::thread writer([&] { (void)update(*other, **device_of_other, 1, 0); });
  EXPECT_TRUE(comes_true([&] { return is_stuck("hung-1"); }));
  EXPECT_FALSE(is_stuck("hung-0"));
  hanging_[1]->hang(false);
  writer.join();
}

TEST_F(HungMedium, AWriterWhoWaitsForALongFlushHoldsUpNobodyWhoFences) {
  const auto writer = [](int epoch) {
    return R"({"write":true,"take_over":true,"writer":"ab","epoch":)" + std::to_string(epoch) + "}";
  };
  auto peer = client::HttpPeer::open(
      server_->address(), std::shared_ptr<fabric::Device>(std::move(*fabric::shm::open_device())));
  ASSERT_TRUE(peer.ok()) << peer.error().message;
  // Only one that has connected leaves anything to be flushed.
  const auto connect = [&](std::uint32_t epoch) {
    return (*peer)->open_session({"hung-0", true, Epoch{epoch}, 10, "writer", true}, soon());
  };
  auto first = connect(2);
  ASSERT_TRUE(first.ok()) << first.error().message;
  // Receive: a writer's request; what the one before may have left takes for ever to flush.
  hanging_[0]->hang_long(Hang::kPage);
  std::atomic<int> answer{0};
  asking_.emplace_back([&] { answer = status("POST", "/v1/pools/hung-0/sessions", writer(3)); });
  ASSERT_TRUE(comes_true([&] { return hanging_[0]->waits(); }));
  // Expect: readers and fencing go on, and the older writer is cut off by then.
  EXPECT_EQ(status("POST", "/v1/pools/hung-0/sessions", R"({"write":false})"), 201);
  EXPECT_EQ(status("POST", "/v1/pools/hung-0/fence", epoch_of(4)), 200);
  const auto shown = ask("GET", "/v1/pools/hung-0");
  ASSERT_TRUE(shown.ok());
  EXPECT_NE(shown->body.find(R"("writer_present":false)"), std::string::npos) << shown->body;
  // Expect: of two writers one waits in vain and is told what for; the pool is not closed under it.
  const auto second = ask("POST", "/v1/pools/hung-0/sessions", writer(5));
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(second->status, 504);
  EXPECT_NE(second->body.find("made durable, 0 of"), std::string::npos) << second->body;
  EXPECT_EQ(status("POST", "/v1/pools/hung-0/close"), 504);
  EXPECT_TRUE(comes_true([&] { return is_stuck("hung-0"); }));
  EXPECT_EQ(answer, 0);
  // Expect: the first one, fenced while it waited, is not granted the pool.
  hanging_[0]->hang(false);
  EXPECT_TRUE(comes_true([&] { return answer != 0; }));
  EXPECT_EQ(answer, 409);
  // Expect: what it flushed needs no flush again; what the next writer leaves does.
  const int before = hanging_[0]->long_flushes();
  auto next = connect(6);
  EXPECT_TRUE(next.ok());
  EXPECT_EQ(hanging_[0]->long_flushes(), before);
  EXPECT_EQ(status("POST", "/v1/pools/hung-0/fence", epoch_of(7)), 200);
  EXPECT_EQ(status("POST", "/v1/pools/hung-0/sessions", writer(8)), 201);
  EXPECT_EQ(hanging_[0]->long_flushes(), before + 1);
}

}  // namespace
}  // namespace perdure::server
