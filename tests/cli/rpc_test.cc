// `perdure rpc` on the pool of a server that ended in the middle of a call.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <perdure/replicated_rpc.h>
#include <perdure/rpc.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "core/clock.h"
#include "core/json.h"
#include "core/random.h"
#include "replicated_rpc/effects.h"
#include "replicated_rpc/group.h"
#include "rpc/executor.h"
#include "testing/process.h"
#include "testing/temporary_directory.h"
#include "tests/cli/cluster.h"
#include "tests/cli/command_process.h"

namespace perdure::cli {
namespace {

constexpr std::uint32_t kEcho = 7;
constexpr std::uint32_t kRefuse = 8;
constexpr std::uint32_t kHang = 9;
constexpr std::uint32_t kCount = 10;
constexpr std::uint32_t kApplication = 7;

Result<std::size_t> echo(const RpcCall& call, RpcTransaction&, std::span<std::byte> reply) {
  std::copy(call.payload.begin(), call.payload.end(), reply.begin());
  return call.payload.size();
}

class RpcPoolFile : public testing::Test {
 protected:
  /// Two calls are applied, one of them refused; the third hangs, and a fourth waits behind it.
  /// What the file holds at that moment is what a server leaves that is killed then.
  void SetUp() override {
    RpcServerOptions options;
    options.pool = directory_.file("rpc.pool");
    options.listen = "127.0.0.1:0";
    options.data_listen = "127.0.0.1:0";
    options.transports = {Transport::Tcp};
    options.data_bytes = 4096;
    options.clients_max = 4;
    options.application = kApplication;
    options.handlers[kEcho] = echo;
    options.handlers[kRefuse] = [](const RpcCall&, RpcTransaction&, std::span<std::byte>) {
      return Result<std::size_t>(Error{ErrorCode::OutOfRange, "not today"});
    };
    options.handlers[kHang] = [this](const RpcCall&, RpcTransaction&, std::span<std::byte>) {
      hangs_.store(true);
      hangs_.notify_all();
      goes_on_.wait(false);
      return Result<std::size_t>(std::size_t{0});
    };
    auto server = RpcServer::open(options);
    ASSERT_TRUE(server.ok()) << server.error().message;
    RpcClientOptions asking;
    asking.server = server->address();
    asking.name = "teller-1";
    auto client = RpcClient::open(asking);
    const Release release{goes_on_};  // before the server ends, however this does
    ASSERT_TRUE(client.ok()) << client.error().message;
    const std::string hello = "hello";
    const auto payload = std::as_bytes(std::span(hello));
    ASSERT_TRUE(client->call(kEcho, payload).ok());
    const auto refused = client->call(kRefuse, payload);
    ASSERT_TRUE(refused.ok());
    ASSERT_TRUE(client->wait(*refused, RpcLevel::Applied).ok());
    ASSERT_TRUE(client->call(kHang, {}).ok());
    const auto last = client->call(kEcho, payload, 42);
    ASSERT_TRUE(last.ok());
    const auto durable = client->wait(*last, RpcLevel::Durable);
    EXPECT_TRUE(durable.ok()) << durable.error().message;
    hangs_.wait(false);
    std::filesystem::copy_file(options.pool, left_);
  }

 public:
  struct Release {
    std::atomic<bool>& flag;
    ~Release() {
      flag.store(true);
      flag.notify_all();
    }
  };

 protected:
  test::TestDirectory directory_;
  const std::string left_ = directory_.file("left.pool");
  std::atomic<bool> hangs_{false};
  std::atomic<bool> goes_on_{false};
};

TEST_F(RpcPoolFile, IsListedWhateverBytesItsNameHas) {
  const std::string named = directory_.file("caf\xe9.pool");
  std::filesystem::copy_file(left_, named);
  const Outcome list = expect_document({"rpc", "list", named}, "rpc.schema.json");
  ASSERT_EQ(list.status, 0) << list.err;
  EXPECT_TRUE(contains(list.out, "caf\xef\xbf\xbd.pool")) << list.out;
}

TEST_F(RpcPoolFile, IsListedAndInspected) {
  const Outcome list = expect_document({"rpc", "list", left_}, "rpc.schema.json");
  ASSERT_EQ(list.status, 0) << list.err;
  const auto listed = nlohmann::json::parse(list.out);
  ASSERT_EQ(listed.at("clients").size(), 1u);
  const auto& client = listed.at("clients")[0];
  EXPECT_EQ(client.at("name"), "teller-1");
  EXPECT_EQ(client.at("applied"), 2);
  EXPECT_EQ(client.at("waiting"), 2);
  EXPECT_TRUE(contains(run({"rpc", "list", left_}).out, "2 durable calls not applied"));

  const std::vector<std::string> inspect{"rpc", "inspect", left_, "--client", "teller-1"};
  const Outcome inspected = expect_document(inspect, "rpc.schema.json");
  ASSERT_EQ(inspected.status, 0) << inspected.err;
  const auto document = nlohmann::json::parse(inspected.out);
  const auto& replies = document.at("replies_kept");
  ASSERT_EQ(replies.size(), 2u);
  EXPECT_EQ(replies[0].at("outcome"), "applied");
  EXPECT_EQ(replies[0].at("bytes"), 5);
  EXPECT_EQ(replies[1].at("outcome"), "out-of-range");
  const auto& calls = document.at("calls");
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[0].at("operator"), kHang);
  EXPECT_EQ(calls[0].at("state"), "begun");
  EXPECT_EQ(calls[1].at("sequence"), 4);
  EXPECT_EQ(calls[1].at("state"), "waiting");
  EXPECT_EQ(calls[1].at("order_key"), "000000000000002a");
  EXPECT_TRUE(contains(run(inspect).out, "begun"));
}

// A call hangs in its handler, and a query in its own. Expect: a server that runs says so.
TEST_F(RpcPoolFile, OfAServerThatRunsItIsShownWhatItIsAt) {
  std::atomic<bool> asked{false};
  std::atomic<bool> over{false};
  RpcServerOptions options;
  options.pool = directory_.file("running.pool");
  options.listen = "127.0.0.1:0";
  options.data_listen = "127.0.0.1:0";
  options.transports = {Transport::Tcp};
  options.handlers[kHang] = [&](const RpcCall&, RpcTransaction&, std::span<std::byte>) {
    over.wait(false);
    return Result<std::size_t>(std::size_t{0});
  };
  options.queries[kEcho] = [&](std::span<const std::byte>, const RpcData&, std::span<std::byte>) {
    asked.store(true);
    asked.notify_all();
    over.wait(false);
    return Result<std::size_t>(std::size_t{0});
  };
  auto server = RpcServer::open(options);
  ASSERT_TRUE(server.ok()) << server.error().message;
  RpcClientOptions asking;
  asking.server = server->address();
  asking.name = "teller-1";
  asking.measure_costs = false;
  auto client = RpcClient::open(asking);
  asking.name = "teller-2";
  auto other = RpcClient::open(asking);
  const std::vector<std::string> status{"rpc", "status", server->address()};
  EXPECT_TRUE(contains(run(status).out, "nothing is in its handler now"));
  std::thread query;
  {
    const Release release{over};
    ASSERT_TRUE(client.ok() && other.ok());
    query = std::thread([&other] { EXPECT_TRUE(other->query(kEcho, {}).ok()); });
    const auto call = client->call(kHang, {});
    EXPECT_TRUE(call.ok() && client->wait(*call, RpcLevel::Durable).ok());
    asked.wait(false);
    const Deadline end = Deadline::after(std::chrono::seconds(30));
    while (server->status().executing.size() < 2 && !end.passed()) std::this_thread::yield();
    const Outcome shown = expect_document(status, "rpc-status.schema.json");
    EXPECT_EQ(shown.status, 0) << shown.err;
    const auto executing = nlohmann::json::parse(shown.out).at("executing");
    EXPECT_EQ(executing.size(), 2u);
    for (const auto& each : executing) {
      const bool is_query = !each.contains("sequence");
      EXPECT_EQ(each.at("client"), is_query ? "teller-2" : "teller-1");
      EXPECT_EQ(each.at("operator"), is_query ? kEcho : kHang);
      EXPECT_GT(each.at("lasted_ns"), 0);
    }
    const std::string text = run(status).out;
    EXPECT_TRUE(contains(text, "call 1 of client 'teller-1', operator 9: for ")) << text;
    EXPECT_TRUE(contains(text, "a query of client 'teller-2', operator 7: for ")) << text;
  }
  query.join();
  const std::string address = server->address();
  *server = *RpcServer::open([&] {
    options.pool = directory_.file("another.pool");
    return options;
  }());
  EXPECT_EQ(run({"rpc", "status", address}).status, 1) << "nobody is there any more";
}

// What the pool holds is for a server's program to execute: the command shows it, and says whether
// that is through.
TEST_F(RpcPoolFile, IsDrainedByItsServersProgram) {
  const Outcome replay = expect_document({"rpc", "replay", left_}, "rpc.schema.json");
  ASSERT_EQ(replay.status, 0) << replay.err;
  const auto order = nlohmann::json::parse(replay.out).at("order");
  ASSERT_EQ(order.size(), 2u);
  EXPECT_EQ(order[0].at("client"), "teller-1");
  EXPECT_EQ(order[0].at("sequence"), 3);
  EXPECT_EQ(order[0].at("operator"), kHang);
  EXPECT_EQ(order[0].at("state"), "begun");
  EXPECT_EQ(order[1].at("sequence"), 4);
  EXPECT_TRUE(contains(run({"rpc", "replay", left_}).out, "RpcServer::replay"));
  const Outcome left = expect_document({"rpc", "drain", left_}, "rpc.schema.json");
  EXPECT_EQ(left.status, 1);
  EXPECT_EQ(nlohmann::json::parse(left.out).at("drained"), false);
  EXPECT_TRUE(contains(run({"rpc", "drain", left_}).out, "2 durable calls"));
  // A call that was begun is not set aside: it is the next server's to try.
  const Outcome early = run({"rpc", "drop", left_, "--client", "teller-1", "--sequence", "3"});
  EXPECT_EQ(early.status, 1);
  EXPECT_TRUE(contains(early.err, "[invalid-argument]")) << early.err;

  RpcServerOptions options;
  options.pool = left_;
  options.application = kApplication;
  options.handlers[kEcho] = echo;
  options.handlers[kHang] = echo;
  const auto replayed = RpcServer::replay(options);
  ASSERT_TRUE(replayed.ok()) << replayed.error().message;
  EXPECT_EQ(replayed->applied, 2u);
  const Outcome drained = expect_document({"rpc", "drain", left_}, "rpc.schema.json");
  EXPECT_EQ(drained.status, 0) << drained.err;
  EXPECT_EQ(nlohmann::json::parse(drained.out).at("drained"), true);
  EXPECT_TRUE(contains(run({"rpc", "drain", left_}).out, "drained: every durable call is applied"));
}

// Its calls are another application's. Expect: that one's server does not get the pool, so nothing
// is drained; the command asks of no application, and says when its own server's program has
// drained it.
TEST_F(RpcPoolFile, IsNotDrainedByAnotherApplication) {
  RpcServerOptions options;
  options.pool = left_;
  options.application = 8;
  options.handlers[kEcho] = echo;
  options.handlers[kHang] = echo;
  EXPECT_EQ(RpcServer::replay(options).code(), ErrorCode::InvalidArgument);
  EXPECT_EQ(RpcServer::open(options).code(), ErrorCode::InvalidArgument);
  const Outcome left = expect_document({"rpc", "drain", left_}, "rpc.schema.json");
  EXPECT_EQ(left.status, 1);
  EXPECT_EQ(nlohmann::json::parse(left.out).at("order").size(), 2u);
  options.application = kApplication;
  ASSERT_TRUE(RpcServer::replay(options).ok());
  EXPECT_EQ(run({"rpc", "drain", left_}).status, 0);
}

// Else it would be recovered, and decided about, without a flush.
TEST_F(RpcPoolFile, ThatWasDeclaredIsDeclaredAgain) {
  const test::TestDirectory memory{"/dev/shm"};
  RpcServerOptions options;
  options.pool = memory.file("rpc.pool");
  options.listen = "127.0.0.1:0";
  options.data_listen = "127.0.0.1:0";
  options.handlers[kEcho] = echo;
  ASSERT_TRUE(RpcServer::open(options).ok());
  EXPECT_EQ(run({"rpc", "list", options.pool}).status, 0) << "nothing was declared so far";
  options.declared = PersistenceDomain::Wsp;
  ASSERT_TRUE(RpcServer::open(options).ok());
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"rpc", "list", options.pool},
        {"rpc", "drop", options.pool, "--client", "teller-1", "--sequence", "1"}}) {
    const Outcome refused = run(command);
    EXPECT_EQ(refused.status, 1);
    EXPECT_TRUE(contains(refused.err, "Declare wsp if that still holds")) << refused.err;
  }
  const auto list = [&](const std::string& domain) {
    return run({"rpc", "list", options.pool, "--declare-domain", domain});
  };
  EXPECT_EQ(list("wsp").status, 0);
  EXPECT_EQ(list("wsp").err, "");
  EXPECT_TRUE(contains(list("none").err, "nothing is flushed"));
  EXPECT_EQ(list("wspp").status, 2);
  options.declared.reset();
  EXPECT_EQ(RpcServer::open(options).code(), ErrorCode::Unsupported);
  EXPECT_EQ(RpcServer::replay(options).code(), ErrorCode::Unsupported);
}

TEST_F(RpcPoolFile, WhatCanNotBeLookedAtIsRefused) {
  const Outcome unknown = run({"rpc", "inspect", left_, "--client", "nobody"});
  EXPECT_EQ(unknown.status, 1);
  EXPECT_TRUE(contains(unknown.err, "nobody"));
  EXPECT_EQ(run({"rpc", "list", directory_.file("none.pool")}).status, 1);
  write_file(directory_.file("other.pool"), std::string(100'000, 'x'));
  EXPECT_EQ(run({"rpc", "list", directory_.file("other.pool")}).status, 1);
  // One that is served is its server's.
  RpcServerOptions options;
  options.pool = left_;
  options.application = kApplication;
  options.listen = "127.0.0.1:0";
  options.data_listen = "127.0.0.1:0";
  options.handlers[kEcho] = echo;
  const auto server = RpcServer::open(options);
  ASSERT_TRUE(server.ok()) << server.error().message;
  const Outcome busy = run({"rpc", "list", left_});
  EXPECT_EQ(busy.status, 1);
  EXPECT_TRUE(contains(busy.err, "[busy]")) << busy.err;
}

/// Calls of four clients wait, some with the same order keys, some with none, more than one
/// transaction takes; the first of them was begun.
class RpcReplay : public testing::Test {
 protected:
  void SetUp() override {
    options_.pool = directory_.file("waiting.pool");
    options_.listen = "127.0.0.1:0";
    options_.data_listen = "127.0.0.1:0";
    options_.transports = {Transport::Tcp};
    options_.clients_max = 4;
    options_.handlers[kHang] = [this](const RpcCall&, RpcTransaction&, std::span<std::byte>) {
      over_.wait(false);
      return Result<std::size_t>(std::size_t{0});
    };
    options_.handlers[kEcho] = echo;
    auto server = RpcServer::open(options_);
    ASSERT_TRUE(server.ok()) << server.error().message;
    const RpcPoolFile::Release release{over_};
    std::vector<RpcClient> clients;
    for (int client = 0; client < 4; ++client) {
      RpcClientOptions asking;
      asking.server = server->address();
      asking.name = fmt::format("teller-{}", client);
      asking.measure_costs = false;
      auto opened = RpcClient::open(asking);
      ASSERT_TRUE(opened.ok()) << opened.error().message;
      clients.push_back(std::move(*opened));
    }
    ASSERT_TRUE(clients[0].call(kHang, {}).ok());
    Random random(14);
    for (RpcClient& client : clients) {
      RpcHandle last;
      for (int call = 0; call < 30; ++call) {
        const auto begun = client.call(kEcho, {}, random.below(4));
        ASSERT_TRUE(begun.ok()) << begun.error().message;
        last = *begun;
      }
      ASSERT_TRUE(client.wait(last, RpcLevel::Durable).ok());
    }
    std::filesystem::copy_file(options_.pool, left_);
  }

  /// The calls in the order in which a server with so many threads executes what waits.
  std::vector<std::string> executed_from(const std::string& pool, std::uint32_t threads) {
    std::mutex mutex;
    std::vector<std::string> executed;
    const auto note = [&](const RpcCall& call, RpcTransaction&, std::span<std::byte>) {
      const std::lock_guard lock(mutex);
      executed.push_back(fmt::format("{} {}", call.client, call.sequence));
      // Some end the transaction that they are in.
      const bool takes_long = executed.size() % 10 == 7;
      const Deadline over =
          Deadline::after(2 * (takes_long ? rpc::kHandlersWithin : Nanoseconds{0}));
      while (!over.passed()) std::this_thread::yield();
      return Result<std::size_t>(std::size_t{0});
    };
    options_.pool = pool;
    options_.handler_threads = threads;
    options_.handlers[kHang] = note;
    options_.handlers[kEcho] = note;
    const auto replayed = RpcServer::replay(options_);
    EXPECT_TRUE(replayed.ok()) << replayed.error().message;
    return executed;
  }

  const test::TestDirectory directory_;
  const std::string left_ = directory_.file("left.pool");
  RpcServerOptions options_;
  std::atomic<bool> over_{false};
};

// Expect: they are executed in the turns that the command shows, with one thread or several.
TEST_F(RpcReplay, ShowsTheTurnsOfEveryNumberOfThreads) {
  for (const std::uint32_t threads : {1u, 2u, 3u, 8u}) {
    SCOPED_TRACE(threads);
    const std::string pool = directory_.file(fmt::format("{}.pool", threads));
    std::filesystem::copy_file(left_, pool);
    const Outcome shown = expect_document(
        {"rpc", "replay", pool, "--handler-threads", std::to_string(threads)}, "rpc.schema.json");
    ASSERT_EQ(shown.status, 0) << shown.err;
    const auto order = nlohmann::json::parse(shown.out).at("order");
    ASSERT_EQ(order.size(), 121u);
    const std::vector<std::string> executed = executed_from(pool, threads);
    ASSERT_EQ(executed.size(), order.size());
    // Within a turn any order; the turns one after the other.
    std::size_t largest = 0;
    for (std::size_t from = 0, to = 0; from < order.size(); from = to) {
      std::set<std::string> turn;
      while (to < order.size() && order[to].at("turn") == order[from].at("turn")) {
        turn.insert(fmt::format("{} {}", order[to].at("client").get<std::string>(),
                                order[to].at("sequence").get<int>()));
        ++to;
      }
      const std::set<std::string> then(executed.begin() + static_cast<std::ptrdiff_t>(from),
                                       executed.begin() + static_cast<std::ptrdiff_t>(to));
      EXPECT_EQ(then, turn) << "turn " << order[from].at("turn");
      largest = std::max(largest, turn.size());
    }
    EXPECT_EQ(largest, std::min<std::size_t>(threads, 3));  // there are three keys
  }
}

/// Two clients with a call each that was set aside and one behind it, and a server that ended well.
class RpcHeldPool : public testing::Test {
 protected:
  void SetUp() override {
    auto server = RpcServer::open(options(true));
    ASSERT_TRUE(server.ok()) << server.error().message;
    for (const std::string name : {"teller-1", "teller-2"}) {
      auto client = open(server->address(), name);
      ASSERT_TRUE(client.ok()) << client.error().message;
      ASSERT_TRUE(client->call(kCount, {}).ok());
      const auto behind = client->call(kEcho, {});
      ASSERT_EQ(client->wait(*behind, RpcLevel::Applied).code(), ErrorCode::Busy);
    }
  }

  /// `fails`: kCount throws. Else it counts in the pool how often it was executed, by client.
  RpcServerOptions options(bool fails) const {
    RpcServerOptions options;
    options.pool = pool_;
    options.listen = "127.0.0.1:0";
    options.data_listen = "127.0.0.1:0";
    options.transports = {Transport::Tcp};
    options.data_bytes = 4096;
    options.clients_max = 4;
    options.ring_bytes = 4096;
    options.transaction_bytes = 16384;
    options.handlers[kEcho] = echo;
    options.handlers[kCount] = [fails](const RpcCall& call, RpcTransaction& data,
                                       std::span<std::byte>) -> Result<std::size_t> {
      if (fails) throw std::runtime_error("broken");
      const std::uint64_t at = 8 * static_cast<std::uint64_t>(call.client.back() - '0');
      auto count = data.load<std::uint64_t>(at);
      if (!count.ok()) return count.error();
      if (auto stored = data.store(at, *count + 1); !stored.ok()) return stored.error();
      return std::size_t{0};
    };
    options.queries[kCount] = [](std::span<const std::byte>, const RpcData& data,
                                 std::span<std::byte> reply) -> Result<std::size_t> {
      if (auto read = data.read(0, reply.first(24)); !read.ok()) return read.error();
      return std::size_t{24};
    };
    return options;
  }

  static Result<RpcClient> open(const std::string& address, const std::string& name) {
    RpcClientOptions asking;
    asking.server = address;
    asking.name = name;
    asking.measure_costs = false;
    return RpcClient::open(asking);
  }

  /// How often kCount was executed, by client.
  static std::array<std::uint64_t, 3> counts(RpcClient& client) {
    std::array<std::uint64_t, 3> counted{};
    const auto answer = client.query(kCount, {});
    EXPECT_TRUE(answer.ok()) << answer.error().message;
    if (answer.ok()) std::memcpy(counted.data(), answer->data(), sizeof counted);
    return counted;
  }

  static Outcome decide(const std::string& what, const std::string& pool, const std::string& client,
                        const std::string& sequence = "1") {
    return run({"rpc", what, pool, "--client", client, "--sequence", sequence});
  }

  test::TestDirectory directory_;
  const std::string pool_ = directory_.file("held.pool");
};

TEST_F(RpcHeldPool, CallsAreRetriedAndDropped) {
  const std::string listed = run({"rpc", "list", pool_}).out;
  EXPECT_TRUE(contains(listed, "perdure rpc drop " + pool_ + " --client teller-2 --sequence 1"))
      << listed;
  const auto inspected = nlohmann::json::parse(
      expect_document({"rpc", "inspect", pool_, "--client", "teller-1"}, "rpc.schema.json").out);
  EXPECT_EQ(inspected.at("clients")[0].at("held"), true);
  EXPECT_EQ(inspected.at("calls")[0].at("state"), "set-aside");
  EXPECT_EQ(inspected.at("calls")[1].at("state"), "held");
  EXPECT_EQ(run({"rpc", "drain", pool_}).status, 1);

  const Outcome retried = expect_document(
      {"rpc", "retry", pool_, "--client", "teller-1", "--sequence", "1"}, "rpc.schema.json");
  ASSERT_EQ(retried.status, 0) << retried.err;
  const auto decided = nlohmann::json::parse(retried.out).at("decided");
  EXPECT_EQ(decided.at("operator"), kCount);
  EXPECT_EQ(decided.at("state"), "waiting");
  const Outcome dropped = decide("drop", pool_, "teller-2");
  ASSERT_EQ(dropped.status, 0) << dropped.err;
  EXPECT_TRUE(contains(dropped.out, "never executed")) << dropped.out;
  const auto after = nlohmann::json::parse(
      expect_document({"rpc", "inspect", pool_, "--client", "teller-2"}, "rpc.schema.json").out);
  EXPECT_EQ(after.at("clients")[0].at("dropped"), 1);
  EXPECT_EQ(after.at("replies_kept")[0].at("outcome"), "dropped");

  const auto server = RpcServer::open(options(false));
  ASSERT_TRUE(server.ok()) << server.error().message;
  auto first = open(server->address(), "teller-1");
  auto second = open(server->address(), "teller-2");
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_FALSE(first->reply(first->handle_of(1))->refused);
  EXPECT_EQ(second->reply(second->handle_of(1))->refused, ErrorCode::SystemError);
  EXPECT_FALSE(second->reply(second->handle_of(2))->refused);
  EXPECT_EQ(counts(*second), (std::array<std::uint64_t, 3>{0, 1, 0}));
}

TEST_F(RpcHeldPool, WhatIsNotToBeDecidedIsRefused) {
  for (const std::string what : {"retry", "drop"}) {
    SCOPED_TRACE(what);
    const Outcome behind = decide(what, pool_, "teller-1", "2");
    EXPECT_EQ(behind.status, 1);
    EXPECT_TRUE(contains(behind.err, "but call 1 is [invalid-argument]")) << behind.err;
    const Outcome unknown = decide(what, pool_, "nobody");
    EXPECT_EQ(unknown.status, 1);
    EXPECT_TRUE(contains(unknown.err, "[not-found]")) << unknown.err;
    EXPECT_EQ(run({"rpc", what, pool_, "--client", "teller-1"}).status, 2);
    EXPECT_EQ(decide(what, pool_, "teller-1", "one").status, 2);
    EXPECT_EQ(decide(what, directory_.file("none.pool"), "teller-1").status, 1);
  }
  {
    const auto server = RpcServer::open(options(true));
    ASSERT_TRUE(server.ok()) << server.error().message;
    const Outcome busy = decide("drop", pool_, "teller-1");
    EXPECT_EQ(busy.status, 1);
    EXPECT_TRUE(contains(busy.err, "[busy]")) << busy.err;
  }
  EXPECT_EQ(decide("drop", pool_, "teller-1").status, 0);
  EXPECT_EQ(decide("drop", pool_, "teller-1").status, 1);  // once
  EXPECT_EQ(decide("retry", pool_, "teller-1").status, 1);
}

// The command is killed at any instant. Expect: what it said holds, and the server goes on with the
// pool: the call is executed never (drop) or once (retry), what is behind it once.
TEST_F(RpcHeldPool, ADecisionHoldsWheneverTheCommandIsKilled) {
  Random random(20261123);
  int made = 0;
  Nanoseconds longest{0};  // that it took when it was left alone, the first few times
  for (int round = 0; round < 24; ++round) {
    const std::string pool = directory_.file(fmt::format("round{}.pool", round));
    std::filesystem::copy_file(pool_, pool);
    const bool drops = round % 2 == 0;
    CommandProcess command(
        {"rpc", drops ? "drop" : "retry", pool, "--client", "teller-1", "--sequence", "1"});
    const Nanoseconds since = Clock::monotonic().now();
    if (round >= 4) {
      const auto most = static_cast<std::uint64_t>(longest.count());
      test::pause_for(Nanoseconds(random.below(most + most / 4 + 1)));
      command.send(SIGKILL);
    }
    const Outcome killed = command.wait();
    if (round < 4) {
      ASSERT_EQ(killed.status, 0) << killed.err;
      longest = std::max(longest, Clock::monotonic().now() - since);
    }
    RpcServerOptions serving = options(false);
    serving.pool = pool;
    auto server = RpcServer::open(serving);
    ASSERT_TRUE(server.ok()) << server.error().message;
    auto client = open(server->address(), "teller-1");
    ASSERT_TRUE(client.ok()) << client.error().message;
    const auto waited = client->wait(client->handle_of(2), RpcLevel::Applied);
    EXPECT_TRUE(waited.ok() || killed.out.empty()) << "what was said is gone: " << killed.out;
    made += waited.ok() ? 1 : 0;
    if (!waited.ok()) {
      EXPECT_EQ(waited.code(), ErrorCode::Busy);
      ASSERT_TRUE((drops ? server->drop("teller-1", 1) : server->retry("teller-1", 1)).ok());
    }
    const auto reply = client->reply(client->handle_of(1));
    ASSERT_TRUE(reply.ok()) << reply.error().message;
    EXPECT_EQ(reply->refused.has_value(), drops);
    EXPECT_FALSE(client->reply(client->handle_of(2))->refused);
    EXPECT_EQ(counts(*client), (std::array<std::uint64_t, 3>{0, drops ? 0u : 1u, 0}));
  }
  std::printf("%d of 24 decisions were made, the first 4 without a kill\n", made);
}

/// A service on the peers of a cluster. One call is applied, one only durable.
TEST(RpcService, SaysWhoExecutesAndHowFarEachClientIs) {
  const Cluster cluster;
  ReplicatedRpcServerOptions serving;
  for (std::size_t index = 0; index < kPeers; ++index) {
    serving.group.peers.push_back(cluster.address(index));
  }
  serving.group.service = "bank";
  serving.group.transport = Transport::Tcp;
  serving.data_bytes = 4096;
  serving.clients_max = 4;
  serving.application = kApplication;
  serving.handlers[kEcho] = echo;
  ReplicatedRpcClientOptions calling;
  calling.group = serving.group;
  calling.name = "teller-1";
  const std::vector<std::string> words = {"rpc",       "service", "--peers",     cluster.all(),
                                          "--service", "bank",    "--transport", "tcp"};
  EXPECT_EQ(run(words).status, 1) << "there is none";
  const auto shown = [&] {
    const Outcome outcome = expect_document(words, "rpc-service.schema.json");
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return nlohmann::json::parse(outcome.out);
  };
  auto server = ReplicatedRpcServer::open(serving);
  ASSERT_TRUE(server.ok()) << server.error().message;
  auto client = ReplicatedRpcClient::open(calling);
  ASSERT_TRUE(client.ok()) << client.error().message;
  auto call = client->call(kEcho, {});
  ASSERT_TRUE(call.ok() && client->wait(*call, RpcLevel::Applied).ok());
  auto document = shown();
  EXPECT_EQ(document.at("state"), "executing");
  EXPECT_EQ(document.at("application"), kApplication);
  ASSERT_EQ(document.at("clients").size(), 1u);
  EXPECT_EQ(document.at("clients")[0].at("name"), "teller-1");
  EXPECT_EQ(document.at("clients")[0].at("applied"), 1);
  EXPECT_EQ(document.at("clients")[0].at("waiting"), 0);
  EXPECT_EQ(document.at("clients")[0].at("present"), true);
  // The server ends in order; what is called then waits.
  { const ReplicatedRpcServer ended = std::move(*server); }
  call = client->call(kEcho, {});
  ASSERT_TRUE(call.ok() && client->wait(*call, RpcLevel::Durable).ok());
  // Readers hear a little later that it is committed, and peers that a session has ended.
  const auto settled = [&] {
    document = shown();
    return document.at("state") == "ended" && document.at("clients")[0].at("waiting") == 1;
  };
  for (const Deadline end = Deadline::after(std::chrono::seconds(30)); !settled();) {
    ASSERT_FALSE(end.passed()) << document.dump(2);
  }
  const std::string text = run(words).out;
  EXPECT_TRUE(contains(text, "service 'bank': nobody executes it; the last one was ")) << text;
  EXPECT_TRUE(contains(text, "has ended in order")) << text;
  EXPECT_TRUE(contains(text, "teller-1")) << text;
}

/// What a server writes that holds a call of its client.
void hold(const ReplicatedRpcGroup& group, const RpcCall& call) {
  const std::string pool = replicated_rpc::effects_pool(group.service);
  auto log = Log::open(replicated_rpc::log_options(group, pool));
  ASSERT_TRUE(log.ok()) << log.error().message;
  replicated_rpc::Effects effects;
  const auto read = replicated_rpc::read_all(group, *log, pool, [&](const Record& record) {
    return effects.apply(record.bytes, record.lsn);
  });
  ASSERT_TRUE(read.ok()) << read.error().message;
  const auto held = log->append(effects.note_held(call));
  ASSERT_TRUE(held.ok()) << held.error().message;
  ASSERT_TRUE(log->wait(*held, Level::Committed).ok());
  ASSERT_TRUE(log->close().ok());
}

/// A durable call is set aside, and no server executes. Expect: it is shown; it is retried, set
/// aside again, and dropped, once each; while a server executes nothing is decided by a command.
TEST(RpcService, OfACallThatIsSetAsideAnOperatorDecides) {
  const Cluster cluster;
  ReplicatedRpcServerOptions serving;
  for (std::size_t index = 0; index < kPeers; ++index) {
    serving.group.peers.push_back(cluster.address(index));
  }
  serving.group.service = "bank";
  serving.group.transport = Transport::Tcp;
  serving.data_bytes = 4096;
  serving.hold_failed = true;
  serving.handlers[kEcho] = echo;
  ReplicatedRpcClientOptions calling;
  calling.group = serving.group;
  calling.name = "teller-1";
  const auto words = [&](const std::string& what, const std::string& sequence) {
    std::vector<std::string> all = {"rpc",       what,   "--peers",     cluster.all(),
                                    "--service", "bank", "--transport", "tcp"};
    if (what != "service") all.insert(all.end(), {"--client", "teller-1", "--sequence", sequence});
    return all;
  };
  const auto expect_refused = [&](const std::string& what, const std::string& sequence,
                                  const std::string& why) {
    const Outcome outcome = run(words(what, sequence));
    EXPECT_EQ(outcome.status, 1) << outcome.out;
    EXPECT_TRUE(contains(outcome.err, why)) << outcome.err;
  };
  expect_refused("service-drop", "1", "no service 'bank'");
  {
    const auto server = ReplicatedRpcServer::open(serving);
    ASSERT_TRUE(server.ok()) << server.error().message;
    expect_refused("service-drop", "1", "a server executes service 'bank'");
  }
  auto client = ReplicatedRpcClient::open(calling);
  ASSERT_TRUE(client.ok()) << client.error().message;
  const auto handle = client->call(kEcho, {});
  ASSERT_TRUE(handle.ok() && client->wait(*handle, RpcLevel::Durable).ok());
  expect_refused("service-retry", "1", "there is no client 'teller-1'");
  RpcCall call;
  call.client = "teller-1";
  call.client_id = handle->client_id;
  call.sequence = 1;
  call.generation = client->status().epoch.value;
  hold(serving.group, call);
  ASSERT_FALSE(testing::Test::HasFatalFailure());
  EXPECT_EQ(client->wait(*handle, RpcLevel::Applied).code(), ErrorCode::Busy);

  const std::string text = run(words("service", "")).out;
  EXPECT_TRUE(contains(text, "call 1 of client 'teller-1' is set aside")) << text;
  EXPECT_TRUE(contains(text, "perdure rpc service-drop --peers ")) << text;
  Outcome outcome = expect_document(words("service", ""), "rpc-service.schema.json");
  EXPECT_EQ(nlohmann::json::parse(outcome.out).at("clients")[0].at("held"), true);
  expect_refused("service-drop", "2", "client 'teller-1' is not set aside, but call 1 is");
  outcome = expect_document(words("service-retry", "1"), "rpc-service.schema.json");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(nlohmann::json::parse(outcome.out).at("decided").at("state"), "waiting");
  expect_refused("service-retry", "1", "is not set aside");
  hold(serving.group, call);
  ASSERT_FALSE(testing::Test::HasFatalFailure());
  outcome = run(words("service-drop", "1"));
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_TRUE(contains(outcome.out, "call 1 of client 'teller-1' is dropped")) << outcome.out;
  // Its client hears it before anybody executes.
  const auto reply = client->reply(*handle);
  ASSERT_TRUE(reply.ok()) << reply.error().message;
  EXPECT_EQ(reply->refused, ErrorCode::SystemError);
  EXPECT_TRUE(reply->dropped);
}

}  // namespace
}  // namespace perdure::cli
