// The public face: a server with its threads and its control plane, and clients over real devices.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <perdure/pool.h>
#include <perdure/rpc.h>

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "control/http_client.h"
#include "core/bytes.h"
#include "core/clock.h"
#include "core/try.h"
#include "pmem/pool.h"
#include "rpc/executor.h"
#include "rpc/rpc_pool.h"
#include "testing/child_of_fork.h"
#include "testing/temporary_directory.h"

namespace perdure {
namespace {

constexpr std::uint32_t kAdd = 1;
constexpr std::uint32_t kTotal = 2;
constexpr std::uint32_t kBreak = 3;
constexpr std::uint32_t kSwap = 4;

/// What is in its handler until it is let go, at the latest when the test ends.
class Stuck {
 public:
  ~Stuck() { let_go(); }

  RpcHandler handler() const {
    return [state = state_](const RpcCall&, RpcTransaction&, std::span<std::byte>) {
      return state->stay();
    };
  }
  RpcQueryHandler query() const {
    return [state = state_](std::span<const std::byte>, const RpcData&, std::span<std::byte>) {
      return state->stay();
    };
  }
  /// Until somebody is in it; `client` has called it.
  void await(RpcClient& client) const {
    const Deadline end = Deadline::after(std::chrono::seconds(30));
    while (!state_->entered.load() && !end.passed()) (void)client.poll();
    EXPECT_TRUE(state_->entered.load());
  }
  /// The same where a thread of its own asks.
  void await() const {
    const Deadline end = Deadline::after(std::chrono::seconds(30));
    while (!state_->entered.load() && !end.passed()) std::this_thread::yield();
    EXPECT_TRUE(state_->entered.load());
  }
  void let_go() const {
    state_->over.store(true);
    state_->over.notify_all();
  }

 private:
  struct State {
    Result<std::size_t> stay() {
      entered.store(true);
      over.wait(false);
      return std::size_t{0};
    }
    std::atomic<bool> entered{false};
    std::atomic<bool> over{false};
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

class RpcServerTest : public testing::Test {
 protected:
  RpcServerOptions options_now() const {
    RpcServerOptions options;
    options.pool = directory_.file("calls.pool");
    options.data_bytes = 4096;
    options.clients_max = 3;
    options.ring_bytes = 64 * 1024;
    options.listen = address_;
    options.data_listen = "127.0.0.1:0";
    options.handlers[kAdd] = [](const RpcCall& call, RpcTransaction& data,
                                std::span<std::byte> reply) -> Result<std::size_t> {
      PERDURE_TRY(total, data.load<std::uint64_t>(0));
      PERDURE_TRY_VOID(data.store(0, total + perdure::load<std::uint64_t>(call.payload.data())));
      store(reply.data(), call.sequence);
      return sizeof call.sequence;
    };
    options.handlers[kBreak] = [](const RpcCall&, RpcTransaction&,
                                  std::span<std::byte>) -> Result<std::size_t> { throw 7; };
    options.queries[kBreak] = [](std::span<const std::byte>, const RpcData&,
                                 std::span<std::byte>) -> Result<std::size_t> { throw 7; };
    options.queries[kTotal] = [](std::span<const std::byte>, const RpcData& data,
                                 std::span<std::byte> reply) -> Result<std::size_t> {
      PERDURE_TRY(total, data.load<std::uint64_t>(0));
      store(reply.data(), total);
      return sizeof total;
    };
    if (change_) change_(options);
    return options;
  }

  void start() {
    auto server = RpcServer::open(options_now());
    ASSERT_TRUE(server.ok()) << server.error().message;
    server_.emplace(std::move(*server));
    address_ = server_->address();
  }

  RpcClient open(const std::string& name, std::optional<Transport> transport) {
    RpcClientOptions options;
    options.server = address_;
    options.name = name;
    options.transport = transport;
    options.measure_costs = false;
    options.server_timeout = std::chrono::seconds(60);  // a busy machine's disk may take its time
    options.reconnect = std::chrono::milliseconds(2);
    auto client = RpcClient::open(options);
    if (!client.ok()) throw std::runtime_error(client.error().message);
    return std::move(*client);
  }

  static std::uint64_t total(RpcClient& client) {
    const auto answer = client.query(kTotal, {});
    EXPECT_TRUE(answer.ok()) << answer.error().message;
    return answer.ok() ? perdure::load<std::uint64_t>(answer->data()) : 0;
  }

  const test::TestDirectory directory_;
  std::string address_ = "127.0.0.1:0";
  std::optional<RpcServer> server_;
  std::function<void(RpcServerOptions&)> change_;
};

// max() of microseconds is more than nanoseconds can say.
// Each client is a pool of the server's control plane, and what is required of it is asked there
// too.
TEST_F(RpcServerTest, AClientThatRequiresMoreThanItsPoolKeepsIsNotMade) {
  start();
  PoolOptions asked{.name = "teller", .bytes = 4096, .small = true};
  asked.required_domain = PersistenceDomain::Wsp;  // no file system here says so
  EXPECT_EQ(create_pool(address_, asked).code(), ErrorCode::Unsupported);
  EXPECT_TRUE(list_pools(address_)->empty());
  asked.required_domain = PersistenceDomain::None;
  asked.receive_buffers = ReceiveBuffers::Dram;
  const auto made = create_pool(address_, asked);
  EXPECT_TRUE(made.ok()) << made.error().message;
}

TEST_F(RpcServerTest, WhoWantsToSpinForEverMay) {
  change_ = [](RpcServerOptions& options) {
    options.spin = std::chrono::microseconds::max();
    options.lease = std::chrono::milliseconds::max();
  };
  start();
  ASSERT_FALSE(HasFatalFailure());
  RpcClientOptions options;
  options.server = address_;
  options.name = "one";
  options.transport = Transport::Tcp;
  options.measure_costs = false;
  options.reconnect = std::chrono::milliseconds::max();
  options.spin = std::chrono::microseconds::max();
  auto client = RpcClient::open(options);
  ASSERT_TRUE(client.ok()) << client.error().message;
  const std::uint64_t one = 1;
  const auto call = client->call(kAdd, std::as_bytes(std::span(&one, 1)));
  ASSERT_TRUE(call.ok()) << call.error().message;
  EXPECT_TRUE(client->wait(*call, RpcLevel::Applied).ok());
  options.rnic.ack_timeout = 5;
  EXPECT_EQ(RpcClient::open(options).code(), ErrorCode::InvalidArgument);
  RpcServerOptions wrong;
  wrong.rnic.traffic_class = 256;
  EXPECT_EQ(RpcServer::open(wrong).code(), ErrorCode::InvalidArgument);
}

// Neither plane is reached by other machines unasked, and asked for it is both: clients of the one
// would be sent to their own loopback by the other.
TEST_F(RpcServerTest, OtherMachinesReachBothPlanesOrNone) {
  struct Case {
    const char* listen;
    const char* data_listen;
    bool allow_remote;
    std::optional<ErrorCode> refused;
    const char* words;
  };
  const char* const all = "0.0.0.0:0";
  const char* const here = "127.0.0.1:0";
  const Case cases[] = {
      {all, here, true, ErrorCode::InvalidArgument, "data_listen"},
      {all, "127.1:0", true, ErrorCode::InvalidArgument, "data_listen"},
      {here, all, false, ErrorCode::PermissionDenied, "data_listen"},
      {all, all, false, ErrorCode::PermissionDenied, "--allow-remote"},
      {all, all, true, std::nullopt, ""},
      {here, here, true, std::nullopt, ""},
  };
  for (const Case& each : cases) {
    change_ = [&](RpcServerOptions& options) {
      options.listen = each.listen;
      options.data_listen = each.data_listen;
      options.allow_remote = each.allow_remote;
    };
    const auto server = RpcServer::open(options_now());
    SCOPED_TRACE(std::string(each.listen) + " " + each.data_listen);
    ASSERT_EQ(server.ok(), !each.refused) << (server.ok() ? "" : server.error().message);
    if (server.ok()) continue;
    EXPECT_EQ(server.code(), each.refused) << server.error().message;
    EXPECT_NE(server.error().message.find(each.words), std::string::npos) << server.error().message;
  }
}

// Two clients keep the server busy with handlers that take their time. Expect: a third is let in,
// and an operator is heard, before the others fall silent.
TEST_F(RpcServerTest, WhoComesIsLetInBesideSlowHandlers) {
  std::atomic<bool> over{false};
  change_ = [](RpcServerOptions& options) {
    options.handlers[kSwap] = [](const RpcCall&, RpcTransaction&,
                                 std::span<std::byte>) -> Result<std::size_t> {
      // tidy-allow(sleep): a handler that takes its time.
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      return std::size_t{0};
    };
  };
  start();
  ASSERT_FALSE(HasFatalFailure());
  std::array<RpcClient, 2> busy = {open("one", Transport::Tcp), open("two", Transport::Shm)};
  std::vector<std::thread> threads;
  for (RpcClient& client : busy) {
    threads.emplace_back([&client, &over] {
      while (!over.load()) (void)client.call(kSwap, {});
    });
  }
  while (server_->status().applied < 4) std::this_thread::yield();
  RpcClientOptions options;
  options.server = address_;
  options.name = "three";
  options.transport = Transport::Tcp;
  options.measure_costs = false;
  const auto third = RpcClient::open(options);
  EXPECT_TRUE(third.ok()) << third.error().message;
  EXPECT_EQ(server_->retry("one", 1).code(), ErrorCode::InvalidArgument);
  over = true;
  for (std::thread& each : threads) each.join();
}

// A client's handler does not return, in the server's thread or in its session's. Expect: another
// client's calls become durable, the status answers and shows what waits; they are executed when
// the handler comes back after all.
TEST_F(RpcServerTest, AHandlerThatDoesNotReturnHoldsNobodysDurableCallsUp) {
  for (const bool quick : {false, true}) {
    const Stuck stuck;
    change_ = [&, quick](RpcServerOptions& options) {
      options.pool = directory_.file(quick ? "quick.pool" : "slow.pool");
      options.quick_handlers = quick;
      options.handlers[kSwap] = stuck.handler();
    };
    start();
    ASSERT_FALSE(HasFatalFailure());
    RpcClient one = open("one", Transport::Tcp);
    RpcClient two = open("two", Transport::Tcp);
    EXPECT_TRUE(one.call(kSwap, {}).ok());
    stuck.await(one);
    const std::uint64_t amount = 7;
    RpcHandle last;
    for (int i = 0; i < 5; ++i) {
      const auto call = two.call(kAdd, std::as_bytes(std::span(&amount, 1)));
      EXPECT_TRUE(call.ok()) << call.error().message;
      if (!call.ok()) break;
      last = *call;
      const auto durable = two.wait(last, RpcLevel::Durable, std::chrono::seconds(60));
      EXPECT_TRUE(durable.ok()) << durable.error().message;
    }
    EXPECT_EQ(two.wait(last, RpcLevel::Applied, std::chrono::milliseconds(20)).code(),
              ErrorCode::TimedOut);
    const RpcServerStatus status = server_->status();
    EXPECT_EQ(status.clients.size(), 2u);
    for (const RpcClientPlace& each : status.clients) {
      EXPECT_EQ(each.applied, 0u) << each.name;
      EXPECT_EQ(each.waiting, each.name == "one" ? 1u : 5u) << each.name;
    }
    stuck.let_go();
    EXPECT_TRUE(two.wait(last, RpcLevel::Applied).ok());
    EXPECT_EQ(total(two), 5 * amount);
    server_.reset();
  }
}

// A handler does not return, and more clients come than the control plane has threads. Expect: each
// is told to come again, and who is there already is served: the metrics answer, and a client that
// lost its connection comes back.
TEST_F(RpcServerTest, WhoComesWhileAHandlerIsStuckKeepsNobodyOut) {
  constexpr std::uint32_t kComing = 44;  // more than threads and their replacements
  const Stuck stuck;
  change_ = [&](RpcServerOptions& options) {
    options.clients_max = kComing + 2;
    options.handlers[kSwap] = stuck.handler();
  };
  start();
  ASSERT_FALSE(HasFatalFailure());
  RpcClient one = open("one", Transport::Tcp);
  EXPECT_TRUE(one.call(kSwap, {}).ok());
  stuck.await(one);
  std::vector<std::thread> threads;
  std::atomic<std::uint32_t> told{0};
  std::string why;
  for (std::uint32_t comer = 0; comer < kComing; ++comer) {
    threads.emplace_back([this, comer, &told, &why] {
      RpcClientOptions options;
      options.server = address_;
      options.name = fmt::format("comer-{}", comer);
      options.transport = Transport::Tcp;
      options.measure_costs = false;
      options.server_timeout = std::chrono::seconds(60);
      const auto opened = RpcClient::open(options);
      if (opened.ok() || opened.code() != ErrorCode::Busy) return;
      if (comer == 0) why = opened.error().message;
      ++told;
    });
  }
  for (int wait = 0; wait < 400 && told != kComing; ++wait) {
    // tidy-allow(sleep): others wait meanwhile.
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  const auto at = control::parse_host_port(address_);
  EXPECT_TRUE(at.ok());
  const auto metrics = control::http_call(*at, {"GET", "/metrics", ""}, 1 << 20,
                                          Deadline::after(std::chrono::seconds(20)));
  EXPECT_TRUE(metrics.ok()) << metrics.error().message;
  EXPECT_EQ(told, kComing);
  // What it is at is said, to an operator and to who comes.
  const RpcServerStatus status = server_->status();
  EXPECT_EQ(status.executing.size(), 1u);
  for (const RpcExecuting& each : status.executing) {
    EXPECT_EQ(each.client, "one");
    EXPECT_EQ(each.sequence, 1u);
    EXPECT_EQ(each.operation, kSwap);
    EXPECT_GE(each.lasted, std::chrono::seconds(1));  // somebody has waited that long
  }
  const std::string body = metrics.ok() ? metrics->body : "";
  EXPECT_NE(body.find("perdure_rpc_executing_seconds{client=\"one\",operator=\"4\"} "),
            std::string::npos);
  EXPECT_NE(body.find("perdure_rpc_executing_call{client=\"one\",operator=\"4\"} 1\n"),
            std::string::npos);
  EXPECT_NE(why.find("call 1 of client 'one', operator 4"), std::string::npos) << why;
  stuck.let_go();
  for (std::thread& each : threads) each.join();
}

// A client's call is set aside, and another client's handler does not return. Expect: an operator
// who decides is told to come again, and of which call; when it has returned the decision is made.
TEST_F(RpcServerTest, WhoDecidesWhileAHandlerIsStuckIsToldSo) {
  const Stuck stuck;
  change_ = [&](RpcServerOptions& options) { options.handlers[kSwap] = stuck.handler(); };
  start();
  ASSERT_FALSE(HasFatalFailure());
  RpcClient one = open("one", Transport::Tcp);
  RpcClient two = open("two", Transport::Tcp);
  const auto broken = one.call(kBreak, {});
  EXPECT_EQ(one.wait(*broken, RpcLevel::Applied).code(), ErrorCode::Busy);
  const auto last = two.call(kSwap, {});
  stuck.await(two);
  std::vector<Result<void>> decided;
  std::atomic<bool> told{false};
  std::thread deciding([&] {
    decided.push_back(server_->retry("one", 1));
    decided.push_back(server_->drop("one", 1));
    told.store(true);
  });
  const Deadline end = Deadline::after(std::chrono::seconds(30));
  while (!told.load() && !end.passed()) std::this_thread::yield();
  EXPECT_TRUE(told.load());
  EXPECT_TRUE(server_->status().clients.at(0).held);
  stuck.let_go();
  deciding.join();
  for (const Result<void>& each : decided) {
    EXPECT_EQ(each.code(), ErrorCode::Busy);
    const std::string why = each.ok() ? "" : each.error().message;
    EXPECT_NE(why.find("call 1 of client 'two', operator 4, has been executed for"),
              std::string::npos)
        << why;
  }
  EXPECT_TRUE(two.wait(*last, RpcLevel::Applied).ok());
  EXPECT_TRUE(server_->drop("one", 1).ok());
  EXPECT_TRUE(one.reply(*broken)->dropped);
}

// A query does not return. Expect: who comes for the first time is let in, and an operator decides;
// when a call waits for it, they are told of the query.
TEST_F(RpcServerTest, WhoComesWhileAQueryIsStuckIsLetInUntilACallWaitsForIt) {
  const Stuck stuck;
  change_ = [&](RpcServerOptions& options) { options.queries[kSwap] = stuck.query(); };
  start();
  ASSERT_FALSE(HasFatalFailure());
  RpcClient one = open("one", Transport::Tcp);
  RpcClient two = open("two", Transport::Tcp);
  const auto broken = one.call(kBreak, {});
  EXPECT_EQ(one.wait(*broken, RpcLevel::Applied).code(), ErrorCode::Busy);
  std::thread asking([&two] { EXPECT_TRUE(two.query(kSwap, {}).ok()); });
  stuck.await();
  {
    const RpcClient three = open("three", Transport::Tcp);
    EXPECT_TRUE(server_->drop("one", 1).ok());
  }
  EXPECT_TRUE(one.reply(*broken)->dropped);
  const std::uint64_t amount = 7;
  const auto added = one.call(kAdd, bytes_of(amount));
  EXPECT_TRUE(one.wait(*added, RpcLevel::Durable).ok());
  // Until the server is at that call.
  const Deadline end = Deadline::after(std::chrono::seconds(30));
  auto decided = server_->retry("one", 1);
  while (decided.code() == ErrorCode::InvalidArgument && !end.passed()) {
    decided = server_->retry("one", 1);
  }
  EXPECT_EQ(decided.code(), ErrorCode::Busy);
  const std::string why = decided.ok() ? "" : decided.error().message;
  EXPECT_NE(why.find("a query of client 'two', operator 4, has been answered for"),
            std::string::npos)
      << why;
  const RpcServerStatus status = server_->status();
  EXPECT_EQ(status.executing.size(), 1u);
  for (const RpcExecuting& each : status.executing) {
    EXPECT_EQ(each.client, "two");
    EXPECT_EQ(each.sequence, 0u);
  }
  stuck.let_go();
  asking.join();
  EXPECT_EQ(total(one), amount);
}

// A query does not return. Expect: other clients' calls become durable, and the status answers;
// they are applied when the query comes back after all.
TEST_F(RpcServerTest, AQueryThatDoesNotReturnHoldsNobodysDurableCallsUp) {
  const Stuck stuck;
  change_ = [&](RpcServerOptions& options) { options.queries[kSwap] = stuck.query(); };
  start();
  ASSERT_FALSE(HasFatalFailure());
  RpcClient one = open("one", Transport::Tcp);
  RpcClient two = open("two", Transport::Tcp);
  std::thread asking([&one] { EXPECT_TRUE(one.query(kSwap, {}).ok()); });
  stuck.await();
  const std::uint64_t amount = 7;
  RpcHandle last;
  for (int i = 0; i < 5; ++i) {
    const auto call = two.call(kAdd, std::as_bytes(std::span(&amount, 1)));
    EXPECT_TRUE(call.ok()) << call.error().message;
    if (!call.ok()) break;
    last = *call;
    const auto durable = two.wait(last, RpcLevel::Durable, std::chrono::seconds(60));
    EXPECT_TRUE(durable.ok()) << durable.error().message;
    // Its session is asked for replies, too.
    EXPECT_EQ(two.wait(last, RpcLevel::Applied, std::chrono::milliseconds(20)).code(),
              ErrorCode::TimedOut);
  }
  if (!HasFailure()) {
    EXPECT_EQ(server_->status().clients.size(), 2u);
  }
  stuck.let_go();
  EXPECT_TRUE(two.wait(last, RpcLevel::Applied).ok());
  EXPECT_EQ(total(two), 5 * amount);
  asking.join();
}

// A query does not return, and another client asks, too. Expect: that one's time-out is its own
// affair: its session answers, its calls become durable, and it may come back.
TEST_F(RpcServerTest, WhoAsksBesideAStuckQueryIsNotStuckWithIt) {
  for (const bool quick : {false, true}) {
    const Stuck stuck;
    server_.reset();
    change_ = [&](RpcServerOptions& options) {
      options.queries[kSwap] = stuck.query();
      options.quick_handlers = quick;
    };
    start();
    ASSERT_FALSE(HasFatalFailure());
    RpcClient one = open("one", Transport::Tcp);
    std::optional<RpcClient> two = open("two", Transport::Tcp);
    std::thread asking([&one] { (void)one.query(kSwap, {}, false, std::chrono::seconds(60)); });
    stuck.await();
    const auto soon = std::chrono::milliseconds(100);
    EXPECT_EQ(two->query(kTotal, {}, false, soon).code(), ErrorCode::TimedOut);
    const std::uint64_t amount = 7;
    for (int each = 0; each < 3; ++each) {
      const auto call = two->call(kAdd, std::as_bytes(std::span(&amount, 1)));
      ASSERT_TRUE(call.ok()) << call.error().message;
      const auto durable = two->wait(*call, RpcLevel::Durable, std::chrono::seconds(60));
      EXPECT_TRUE(durable.ok()) << durable.error().message;
    }
    const Deadline patience = Deadline::after(std::chrono::seconds(9));
    two.reset();
    EXPECT_NO_THROW(two = open("two", Transport::Tcp));
    EXPECT_FALSE(patience.passed());  // a session's end waits 10 s for its thread
    stuck.let_go();
    asking.join();
  }
}

TEST_F(RpcServerTest, CallsGoOnOverARestartOfTheServer) {
  start();
  ASSERT_FALSE(HasFatalFailure());
  RpcClient tcp = open("by-tcp", Transport::Tcp);
  RpcClient shm = open("by-shm", Transport::Shm);
  const std::uint64_t one = 1;
  for (int life = 0; life < 3; ++life) {
    RpcHandle last;
    for (RpcClient* client : {&tcp, &shm}) {
      for (int call = 0; call < 20; ++call) last = *client->call(kAdd, bytes_of(one));
      const auto durable = client->wait(last, RpcLevel::Durable);
      ASSERT_TRUE(durable.ok()) << durable.error().message;
    }
    server_.reset();  // with calls that are not applied, perhaps
    start();
    ASSERT_FALSE(HasFatalFailure());
    const auto reply = shm.reply(last);
    ASSERT_TRUE(reply.ok()) << reply.error().message;
    EXPECT_EQ(perdure::load<std::uint64_t>(reply->bytes.data()), last.sequence);
    EXPECT_EQ(total(shm), 40u * static_cast<std::uint64_t>(life + 1));
  }
  EXPECT_EQ(total(tcp), 120u);
  EXPECT_EQ(shm.status().applied, 60u);
  EXPECT_EQ(server_->status().clients.size(), 2u);
}

TEST_F(RpcServerTest, AChildOfForkIsRefusedAndEndsNothing) {
  start();
  RpcClient client = open("one", Transport::Tcp);
  EXPECT_TRUE(test::yes_in_a_child([&] {
    const bool refused = server_->retry("one", 1).code() == ErrorCode::InvalidArgument &&
                         server_->drop("one", 1).code() == ErrorCode::InvalidArgument &&
                         server_->address().empty() && server_->status().clients.empty() &&
                         client.call(kAdd, {}).code() == ErrorCode::InvalidArgument;
    { const RpcServer gone = std::move(*server_); }
    return refused;
  }));
  EXPECT_EQ(total(client), 0u);
  EXPECT_EQ(server_->status().clients.size(), 1u);
}

TEST_F(RpcServerTest, CountsWhatItDoes) {
  change_ = [](RpcServerOptions& options) { options.refuse_failed = true; };
  start();
  ASSERT_FALSE(HasFatalFailure());
  RpcClient client = open("counted", Transport::Tcp);
  const std::uint64_t one = 1;
  const auto added = client.call(kAdd, bytes_of(one));
  const auto unknown = client.call(99, bytes_of(one));
  const auto broken = client.call(kBreak, bytes_of(one));
  EXPECT_FALSE(client.reply(*added)->refused);
  EXPECT_EQ(client.reply(*unknown)->refused, ErrorCode::Unsupported);
  EXPECT_EQ(client.reply(*broken)->refused, ErrorCode::SystemError);
  EXPECT_EQ(client.query(kBreak, {}).code(), ErrorCode::SystemError);
  EXPECT_EQ(total(client), 1u);
  const auto at = control::parse_host_port(address_);
  ASSERT_TRUE(at.ok());
  const auto answer = control::http_call(*at, {"GET", "/metrics", ""}, 1 << 20,
                                         Deadline::after(std::chrono::seconds(30)));
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  for (const char* line :
       {"perdure_rpc_executing 1", "perdure_rpc_applied_total 3", "perdure_rpc_unknown_total 1",
        "perdure_rpc_set_aside_total 1", "perdure_rpc_dropped_total 0",
        "perdure_rpc_refused_failed_total 1", "perdure_rpc_queries_total 2",
        "perdure_rpc_client_held{client=\"counted\"} 0",
        "perdure_rpc_client_applied{client=\"counted\"} 3"}) {
    EXPECT_NE(answer->body.find(line), std::string::npos) << line;
  }
}

TEST_F(RpcServerTest, WhatIsSetAsideIsDecidedWhileItServes) {
  start();
  ASSERT_FALSE(HasFatalFailure());
  RpcClient client = open("one", Transport::Tcp);
  const std::uint64_t one = 1;
  const auto broken = client.call(kBreak, bytes_of(one));
  const auto added = client.call(kAdd, bytes_of(one));
  EXPECT_EQ(client.wait(*added, RpcLevel::Applied).code(), ErrorCode::Busy);
  ASSERT_TRUE(server_->status().clients[0].held);
  EXPECT_EQ(server_->drop("one", added->sequence).code(), ErrorCode::InvalidArgument);
  EXPECT_EQ(server_->retry("two", 1).code(), ErrorCode::NotFound);
  ASSERT_TRUE(server_->retry("one", broken->sequence).ok());
  EXPECT_EQ(client.wait(*added, RpcLevel::Applied).code(), ErrorCode::Busy);  // it throws again
  EXPECT_EQ(server_->status().clients[0].set_aside, 2u);
  ASSERT_TRUE(server_->drop("one", broken->sequence).ok());
  EXPECT_EQ(client.reply(*broken)->refused, ErrorCode::SystemError);
  EXPECT_TRUE(client.wait(*added, RpcLevel::Applied).ok());
  RpcServer moved = std::move(*server_);
  EXPECT_EQ(server_->drop("one", 1).code(), ErrorCode::InvalidArgument);
  EXPECT_EQ(server_->retry("one", 1).code(), ErrorCode::InvalidArgument);
}

// Two clients wait while the server is away, one of them for a call that was set aside. Expect: the
// next server refuses it, both hear of what they wait for, and nothing waits for an operator.
TEST_F(RpcServerTest, WhoWaitsHearsOfTheNextServersRefusalAndGoesOn) {
  start();
  ASSERT_FALSE(HasFatalFailure());
  RpcClient one = open("one", Transport::Tcp);
  RpcClient two = open("two", Transport::Shm);
  const std::uint64_t amount = 1;
  const auto broken = one.call(kBreak, bytes_of(amount));
  const auto behind = one.call(kAdd, bytes_of(amount));
  EXPECT_EQ(one.wait(*behind, RpcLevel::Applied).code(), ErrorCode::Busy);
  server_.reset();
  const auto waits = std::chrono::seconds(60);
  std::thread first([&] {
    const auto reply = one.reply(*broken, waits);
    EXPECT_TRUE(reply.ok() && reply->dropped && reply->refused == ErrorCode::SystemError);
    EXPECT_TRUE(one.wait(*behind, RpcLevel::Applied, waits).ok());
  });
  std::thread second([&] {
    const auto added = two.call(kAdd, bytes_of(amount));
    EXPECT_TRUE(added.ok() && two.wait(*added, RpcLevel::Applied, waits).ok());
  });
  change_ = [](RpcServerOptions& options) { options.refuse_failed = true; };
  start();
  first.join();
  second.join();
  ASSERT_FALSE(HasFatalFailure());
  EXPECT_EQ(total(two), 2 * amount);
  const RpcServerStatus status = server_->status();
  EXPECT_EQ(status.refused_failed, 1u);
  EXPECT_EQ(status.dropped, 0u);
  for (const RpcClientPlace& each : status.clients) EXPECT_FALSE(each.held) << each.name;
}

// A client's call is in its handler when a newer process takes its name over. Expect: it is shown
// as before, under the name and the id that both have, and the newer process gets its reply.
TEST_F(RpcServerTest, ACallThatIsExecutedIsShownAlsoAfterATakeOver) {
  const Stuck stuck;
  change_ = [&](RpcServerOptions& options) { options.handlers[kSwap] = stuck.handler(); };
  start();
  ASSERT_FALSE(HasFatalFailure());
  RpcClient older = open("one", Transport::Tcp);
  const auto call = older.call(kSwap, {});
  EXPECT_TRUE(older.wait(*call, RpcLevel::Durable).ok());
  stuck.await(older);
  RpcClient newer = open("one", Transport::Tcp);
  EXPECT_EQ(newer.status().earlier_durable, 1u);
  EXPECT_EQ(older.wait(*call, RpcLevel::Applied).code(), ErrorCode::Fenced);
  const std::uint64_t amount = 3;
  const auto behind = newer.call(kAdd, bytes_of(amount));
  EXPECT_TRUE(newer.wait(*behind, RpcLevel::Durable).ok());
  const RpcServerStatus status = server_->status();
  EXPECT_EQ(status.executing.size(), 1u);
  for (const RpcExecuting& each : status.executing) {
    EXPECT_EQ(each.client, "one");
    EXPECT_EQ(each.client_id, newer.status().client_id);
    EXPECT_EQ(each.sequence, call->sequence);
  }
  stuck.let_go();
  EXPECT_TRUE(newer.reply(newer.handle_of(1)).ok());
  EXPECT_TRUE(newer.wait(*behind, RpcLevel::Applied).ok());
  EXPECT_TRUE(server_->status().executing.empty());
  EXPECT_EQ(total(newer), amount);
}

// What an upgrade does: the old program leaves calls, the new one executes them and serves nobody.
TEST_F(RpcServerTest, APoolIsReplayedWithoutServing) {
  EXPECT_EQ(RpcServer::replay(options_now()).code(), ErrorCode::NotFound);  // and makes none
  EXPECT_EQ(RpcServer::replay(options_now()).code(), ErrorCode::NotFound);
  start();
  ASSERT_FALSE(HasFatalFailure());
  EXPECT_EQ(RpcServer::replay(options_now()).code(), ErrorCode::Busy);
  RpcClient client = open("one", Transport::Tcp);
  const std::uint64_t one = 1;
  const auto broken = client.call(kBreak, bytes_of(one));
  const auto added = client.call(kAdd, bytes_of(one));
  ASSERT_EQ(client.wait(*added, RpcLevel::Applied).code(), ErrorCode::Busy);
  ASSERT_TRUE(server_->retry("one", broken->sequence).ok());
  server_.reset();
  const auto failed = RpcServer::replay(options_now());
  ASSERT_TRUE(failed.ok()) << failed.error().message;
  EXPECT_TRUE(failed->clients.at(0).held);
  EXPECT_EQ(failed->clients.at(0).waiting, 2u);
  {  // as `perdure rpc retry` does it: a server would execute the call at once
    auto pool = pmem::Pool::open(options_now().pool, {});
    ASSERT_TRUE(pool.ok()) << pool.error().message;
    auto calls = rpc::RpcPool::open(std::move(*pool), {});
    ASSERT_TRUE(calls.ok()) << calls.error().message;
    const auto executor = rpc::Executor::open(std::move(*calls), {});
    ASSERT_TRUE(executor.ok()) << executor.error().message;
    ASSERT_TRUE((*executor)->retry("one", broken->sequence).ok());
  }
  change_ = [](RpcServerOptions& options) { options.handlers[kBreak] = options.handlers[kAdd]; };
  const auto replayed = RpcServer::replay(options_now());
  ASSERT_TRUE(replayed.ok()) << replayed.error().message;
  EXPECT_EQ(replayed->clients.at(0).waiting, 0u);
  EXPECT_EQ(replayed->clients.at(0).applied, 2u);
  start();
  ASSERT_FALSE(HasFatalFailure());
  EXPECT_FALSE(client.reply(*broken)->refused);
  EXPECT_EQ(total(client), 2u);
}

// Their clients are gone, and a server starts. Expect: it serves, and all of them are executed;
// what a call does that is not one of them, nobody knows.
TEST_F(RpcServerTest, AHundredThousandUnappliedCallsAreExecutedAtOpening) {
  constexpr std::uint64_t kUnapplied = 100'000;
  change_ = [](RpcServerOptions& options) { options.ring_bytes = 64 * (kUnapplied + 1); };
  start();
  ASSERT_FALSE(HasFatalFailure());
  std::uint64_t id = 0;
  {
    RpcClient client = open("one", Transport::Tcp);
    id = client.status().client_id;
  }
  server_.reset();
  {  // as its transport would have put them there
    auto pool = pmem::Pool::open(options_now().pool, {});
    ASSERT_TRUE(pool.ok()) << pool.error().message;
    const std::uint64_t at = (*pool)->data_offset();
    auto calls = rpc::RpcPool::open(std::move(*pool), {});
    ASSERT_TRUE(calls.ok()) << calls.error().message;
    std::byte* const ring = (*calls)->region().bytes().data() + at + (*calls)->shape().ring_at(0);
    const std::uint64_t one = 1;
    for (std::uint64_t call = 0; call < kUnapplied; ++call) {
      rpc::Entry entry;
      entry.client = id;
      entry.sequence = call + 1;
      entry.position = 64 * call;
      entry.operation = kAdd;
      entry.payload_bytes = sizeof one;
      entry.generation = 1;
      rpc::encode_entry(entry, bytes_of(one), ring + entry.position);
    }
    EXPECT_TRUE((*calls)->region().flush(0, (*calls)->region().bytes().size()).ok());
  }
  start();
  ASSERT_FALSE(HasFatalFailure());
  const RpcServerStatus status = server_->status();
  EXPECT_EQ(status.applied, kUnapplied);
  EXPECT_LT(status.transactions, kUnapplied / 4);  // they share
  RpcClient client = open("one", Transport::Tcp);
  EXPECT_EQ(client.status().earlier_durable, kUnapplied);
  EXPECT_EQ(total(client), kUnapplied);
}

// What a store of values needs: each larger than any message, in both directions.
TEST_F(RpcServerTest, PayloadsRepliesAndAnswersOfAMebibyteAndMore) {
  constexpr std::size_t kValue = (1 << 20) + 4097;
  change_ = [](RpcServerOptions& options) {
    options.data_bytes = std::uint64_t{16} << 30;  // a sparse file
    options.ring_bytes = 4 << 20;
    options.replies = 4;
    options.reply_bytes_max = kValue;
    options.answer_bytes_max = kValue;
    options.transaction_bytes = 8 << 20;
    const std::uint64_t at = options.data_bytes - kValue;
    options.handlers[kSwap] = [at](const RpcCall& call, RpcTransaction& data,
                                   std::span<std::byte> reply) -> Result<std::size_t> {
      PERDURE_TRY_VOID(data.read(at, reply.first(call.payload.size())));
      PERDURE_TRY_VOID(data.write(at, call.payload));
      return call.payload.size();
    };
    options.queries[kSwap] = [at](std::span<const std::byte>, const RpcData& data,
                                  std::span<std::byte> reply) -> Result<std::size_t> {
      PERDURE_TRY_VOID(data.read(at, reply.first(kValue)));
      return kValue;
    };
  };
  start();
  ASSERT_FALSE(HasFatalFailure());
  std::vector<std::byte> before(kValue);
  for (const Transport transport : {Transport::Tcp, Transport::Shm}) {
    RpcClient client = open(std::string(to_string(transport)), transport);
    for (int round = 1; round <= 6; ++round) {
      std::vector<std::byte> value(kValue);
      for (std::size_t at = 0; at < kValue; ++at) {
        value[at] = static_cast<std::byte>(at * 7 + at / 251 + static_cast<std::size_t>(round));
      }
      const auto call = client.call(kSwap, value);
      ASSERT_TRUE(call.ok()) << call.error().message;
      const auto reply = client.reply(*call);
      ASSERT_TRUE(reply.ok()) << reply.error().message;
      EXPECT_EQ(reply->bytes, before);
      const auto answer = client.query(kSwap, {});
      ASSERT_TRUE(answer.ok()) << answer.error().message;
      EXPECT_EQ(*answer, value);
      before = value;
    }
  }
  // A server that is opened again has them, and so has a client that comes back.
  RpcClient client = open(std::string(to_string(Transport::Tcp)), Transport::Tcp);
  server_.reset();
  start();
  ASSERT_FALSE(HasFatalFailure());
  const auto kept = client.reply(client.handle_of(6));
  ASSERT_TRUE(kept.ok()) << kept.error().message;
  EXPECT_EQ(kept->bytes.size(), kValue);
  EXPECT_EQ(*client.query(kSwap, {}), before);
  change_ = [](RpcServerOptions& options) {
    options.pool = options.pool + ".small";
    options.reply_bytes_max = kValue;  // and transactions of 1 MiB
  };
  EXPECT_EQ(RpcServer::open(options_now()).code(), ErrorCode::InvalidArgument);
}

// A durable call waits. Expect: a server of another application gets neither the pool nor the call.
TEST_F(RpcServerTest, RefusesThePoolOfAnotherApplication) {
  std::uint32_t application = 7;
  change_ = [&](RpcServerOptions& options) { options.application = application; };
  start();
  ASSERT_FALSE(HasFatalFailure());
  const std::uint64_t one = 1;
  {
    RpcClient client = open("one", Transport::Tcp);
    ASSERT_TRUE(client.wait(*client.call(kAdd, bytes_of(one)), RpcLevel::Durable).ok());
  }
  server_.reset();
  for (const std::uint32_t other : {0u, 8u}) {
    application = other;
    EXPECT_EQ(RpcServer::open(options_now()).code(), ErrorCode::InvalidArgument);
    EXPECT_EQ(RpcServer::replay(options_now()).code(), ErrorCode::InvalidArgument);
  }
  application = 7;
  start();
  ASSERT_FALSE(HasFatalFailure());
  RpcClient client = open("one", Transport::Tcp);
  EXPECT_EQ(total(client), 1u);
}

TEST_F(RpcServerTest, RefusesAPoolThatIsSomethingElse) {
  start();
  ASSERT_FALSE(HasFatalFailure());
  RpcServerOptions options;
  options.pool = directory_.file("calls.pool");
  options.listen = "127.0.0.1:0";
  options.data_listen = "127.0.0.1:0";
  options.transports = {Transport::Tcp};
  options.clients_max = 0;
  EXPECT_EQ(RpcServer::open(options).code(), ErrorCode::InvalidArgument);
  options.pool = directory_.file("nowhere/calls.pool");
  options.clients_max = 1;
  EXPECT_EQ(RpcServer::open(options).code(), ErrorCode::NotFound);
}

}  // namespace
}  // namespace perdure
