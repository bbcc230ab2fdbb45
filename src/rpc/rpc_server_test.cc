// The public face: a server with its threads and its control plane, and clients over real devices.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <perdure/rpc.h>

#include <array>
#include <atomic>
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
#include "testing/temporary_directory.h"

namespace perdure {
namespace {

constexpr std::uint32_t kAdd = 1;
constexpr std::uint32_t kTotal = 2;
constexpr std::uint32_t kBreak = 3;
constexpr std::uint32_t kSwap = 4;

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
    std::atomic<bool> entered{false};
    std::atomic<bool> let_go{false};
    change_ = [&, quick](RpcServerOptions& options) {
      options.pool = directory_.file(quick ? "quick.pool" : "slow.pool");
      options.quick_handlers = quick;
      options.handlers[kSwap] = [&](const RpcCall&, RpcTransaction&,
                                    std::span<std::byte>) -> Result<std::size_t> {
        entered.store(true);
        // tidy-allow(sleep): a handler that is stuck.
        while (!let_go.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return std::size_t{0};
      };
    };
    start();
    ASSERT_FALSE(HasFatalFailure());
    RpcClient one = open("one", Transport::Tcp);
    RpcClient two = open("two", Transport::Tcp);
    EXPECT_TRUE(one.call(kSwap, {}).ok());
    const Deadline end = Deadline::after(std::chrono::seconds(30));
    while (!entered.load() && !end.passed()) (void)one.poll();
    EXPECT_TRUE(entered.load());
    const std::uint64_t amount = 7;
    RpcHandle last;
    for (int i = 0; i < 5; ++i) {
      const auto call = two.call(kAdd, std::as_bytes(std::span(&amount, 1)));
      EXPECT_TRUE(call.ok()) << call.error().message;
      if (!call.ok()) break;
      last = *call;
      const auto durable = two.wait(last, RpcLevel::Durable, std::chrono::seconds(5));
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
    let_go.store(true);
    EXPECT_TRUE(two.wait(last, RpcLevel::Applied).ok());
    EXPECT_EQ(total(two), 5 * amount);
    server_.reset();
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
        "perdure_rpc_set_aside_total 1", "perdure_rpc_dropped_total 1",
        "perdure_rpc_queries_total 2", "perdure_rpc_client_held{client=\"counted\"} 0",
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
