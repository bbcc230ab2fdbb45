// `perdure rpc` on the pool of a server that ended in the middle of a call.
#include <gtest/gtest.h>

#include <perdure/rpc.h>

#include <atomic>
#include <filesystem>
#include <string>
#include <thread>

#include "core/json.h"
#include "testing/temporary_directory.h"
#include "tests/cli/command_process.h"

namespace perdure::cli {
namespace {

constexpr std::uint32_t kEcho = 7;
constexpr std::uint32_t kRefuse = 8;
constexpr std::uint32_t kHang = 9;

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

  struct Release {
    std::atomic<bool>& flag;
    ~Release() {
      flag.store(true);
      flag.notify_all();
    }
  };

  test::TestDirectory directory_;
  const std::string left_ = directory_.file("left.pool");
  std::atomic<bool> hangs_{false};
  std::atomic<bool> goes_on_{false};
};

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
  options.listen = "127.0.0.1:0";
  options.data_listen = "127.0.0.1:0";
  options.handlers[kEcho] = echo;
  const auto server = RpcServer::open(options);
  ASSERT_TRUE(server.ok()) << server.error().message;
  const Outcome busy = run({"rpc", "list", left_});
  EXPECT_EQ(busy.status, 1);
  EXPECT_TRUE(contains(busy.err, "[busy]")) << busy.err;
}

}  // namespace
}  // namespace perdure::cli
