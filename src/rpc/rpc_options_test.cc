// Options of those that call, as words: what a connection string and a file say, and what is said
// of those that are wrong.
#include <gtest/gtest.h>
#include <perdure/kv.h>
#include <perdure/replicated_rpc.h>
#include <perdure/rpc.h>

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/text_file.h"
#include "testing/temporary_directory.h"

namespace perdure::rpc {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

class RpcOptionsInWords : public testing::Test {
 protected:
  /// What `read` makes of a file with this text.
  template <typename Options>
  Result<Options> from_file(Result<Options> (*read)(const std::string&), std::string_view text) {
    EXPECT_TRUE(write_file(path_, text).ok());
    return read(path_);
  }
  template <typename Options>
  static std::string why(const Result<Options>& refused) {
    EXPECT_EQ(refused.ok() ? ErrorCode::SystemError : refused.code(), ErrorCode::InvalidArgument);
    return refused.ok() ? "taken" : refused.error().message;
  }
  static bool says(const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
  }

  const test::TestDirectory directory_;
  const std::string path_ = directory_.file("calls.toml");
};

TEST_F(RpcOptionsInWords, AClientHasOneServerAndItsName) {
  const auto options = parse_rpc_client_options(
      "perdure://[::1]:7470/teller-1?transport=tcp&rnic=mlx5_0&rnic_ack_timeout=14&"
      "rnic_traffic_class=106&primary=send&measure_costs=0&server_timeout_ms=70&reconnect_ms=30&"
      "spin_us=5");
  ASSERT_TRUE(options.ok()) << options.error().message;
  EXPECT_EQ(options->server, "[::1]:7470");
  EXPECT_EQ(options->name, "teller-1");
  EXPECT_EQ(options->transport, Transport::Tcp);
  EXPECT_EQ(options->rnic, (RnicOptions{"mlx5_0", 14, 106}));
  EXPECT_EQ(options->primary, Primary::Send);
  EXPECT_FALSE(options->measure_costs);
  EXPECT_EQ(options->server_timeout, milliseconds(70));
  EXPECT_EQ(options->reconnect, milliseconds(30));
  EXPECT_EQ(options->spin, microseconds(5));

  const auto file = from_file(read_rpc_client_options,
                              "server = \"a:1\"\nname = \"teller-1\"\nreconnect_ms = 30\n");
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->server, "a:1");
  EXPECT_EQ(file->name, "teller-1");
  EXPECT_EQ(file->reconnect, milliseconds(30));
  EXPECT_EQ(file->spin, RpcClientOptions{}.spin);
  EXPECT_EQ(read_rpc_client_options(directory_.file("none")).code(), ErrorCode::NotFound);
}

TEST_F(RpcOptionsInWords, AClientOfAStoreHasATimeBesides) {
  const auto options =
      parse_kv_client_options("perdure://a:1/app-1?transport=shm&timeout_ms=70&spin_us=5");
  ASSERT_TRUE(options.ok()) << options.error().message;
  EXPECT_EQ(options->rpc.server, "a:1");
  EXPECT_EQ(options->rpc.name, "app-1");
  EXPECT_EQ(options->rpc.transport, Transport::Shm);
  EXPECT_EQ(options->rpc.spin, microseconds(5));
  EXPECT_EQ(options->timeout, milliseconds(70));
  const auto file =
      from_file(read_kv_client_options, "server = \"a:1\"\nname = \"app-1\"\ntimeout_ms = 70\n");
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->rpc.server, "a:1");
  EXPECT_EQ(file->rpc.name, "app-1");
  EXPECT_EQ(file->timeout, milliseconds(70));
  EXPECT_TRUE(says(why(parse_rpc_client_options("perdure://a:1/app-1?timeout_ms=70")),
                   "a client has no option 'timeout_ms'; there are: transport, rnic,"));
}

TEST_F(RpcOptionsInWords, AServerOnSeveralPeersHasItsGroupAndItsSizes) {
  const auto options = parse_replicated_rpc_server_options(
      "perdure://a:1,b:2,c:3/bank?quorum=2&transport=tcp&rnic=mlx5_0&peer_timeout_ms=70&"
      "reconnect_ms=30&data_bytes=2MiB&clients_max=8&replies=16&reply_bytes_max=1KiB&"
      "transaction_bytes=65536&application=4294967295&take_over=true&attempts_max=5&hold_failed=1");
  ASSERT_TRUE(options.ok()) << options.error().message;
  EXPECT_EQ(options->group.peers, (std::vector<std::string>{"a:1", "b:2", "c:3"}));
  EXPECT_EQ(options->group.service, "bank");
  EXPECT_EQ(options->group.quorum, 2u);
  EXPECT_EQ(options->group.transport, Transport::Tcp);
  EXPECT_EQ(options->group.rnic.name, "mlx5_0");
  EXPECT_EQ(options->group.peer_timeout, milliseconds(70));
  EXPECT_EQ(options->group.reconnect, milliseconds(30));
  EXPECT_EQ(options->data_bytes, 2u << 20);
  EXPECT_EQ(options->clients_max, 8u);
  EXPECT_EQ(options->replies, 16u);
  EXPECT_EQ(options->reply_bytes_max, 1024u);
  EXPECT_EQ(options->transaction_bytes, 65536u);
  EXPECT_EQ(options->application, UINT32_MAX);
  EXPECT_TRUE(options->take_over && options->hold_failed);
  EXPECT_EQ(options->attempts_max, 5u);

  const auto file = from_file(read_replicated_rpc_server_options,
                              "peers = [\"a:1\", \"b:2\"]\nservice = \"bank\"\nquorum = 2\n"
                              "data_bytes = 65536\n");
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->group.peers, (std::vector<std::string>{"a:1", "b:2"}));
  EXPECT_EQ(file->group.service, "bank");
  EXPECT_EQ(file->group.quorum, 2u);
  EXPECT_EQ(file->data_bytes, 65536u);
  EXPECT_EQ(file->clients_max, ReplicatedRpcServerOptions{}.clients_max);
}

TEST_F(RpcOptionsInWords, AClientOnSeveralPeersHasItsGroupAndItsName) {
  const auto options = parse_replicated_rpc_client_options(
      "perdure://a:1,b:2/bank?name=teller-1&calls_bytes=256KiB&reads=true&reconnect_ms=30");
  ASSERT_TRUE(options.ok()) << options.error().message;
  EXPECT_EQ(options->group.peers, (std::vector<std::string>{"a:1", "b:2"}));
  EXPECT_EQ(options->group.service, "bank");
  EXPECT_EQ(options->group.reconnect, milliseconds(30));
  EXPECT_EQ(options->name, "teller-1");
  EXPECT_EQ(options->calls_bytes, 256u * 1024);
  EXPECT_TRUE(options->reads);
  const auto file =
      from_file(read_replicated_rpc_client_options,
                "peers = [\"a:1\"]\nservice = \"bank\"\nname = \"teller-1\"\nreads = true\n");
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->name, "teller-1");
  EXPECT_TRUE(file->reads);
  EXPECT_TRUE(says(why(parse_replicated_rpc_client_options("perdure://a:1/bank?take_over=1")),
                   "a client on several peers has no option 'take_over'"));
}

TEST_F(RpcOptionsInWords, WhatIsWrongIsNamed) {
  const auto client = [](std::string_view text) { return why(parse_rpc_client_options(text)); };
  EXPECT_TRUE(says(client("http://a:1/me"), "perdure://HOST:PORT/NAME[?"));
  EXPECT_TRUE(says(client("perdure:///me"), "no peer is named"));
  EXPECT_TRUE(says(client("perdure://a:1"), "it has no name"));
  EXPECT_TRUE(says(client("perdure://a:1,b:2/me"), "it is one server"));
  EXPECT_TRUE(says(client("perdure://a:1/me?spin_us=-1"), "spin_us: '-1' is not a whole number"));
  EXPECT_TRUE(says(client("perdure://a:1/me?rnic_ack_timeout=5"), "6 to 22"));
  const auto server = [](std::string_view text) {
    return why(parse_replicated_rpc_server_options(text));
  };
  EXPECT_TRUE(says(server("perdure://a:1"), "it has no service"));
  EXPECT_TRUE(says(server("perdure://a:1"), "perdure://HOST:PORT[,HOST:PORT...]/SERVICE[?"));
  EXPECT_TRUE(says(server("perdure://a:1/bank?application=4294967296"),
                   "application: '4294967296' is not one of 0 to 4294967295"));

  const auto file = [&](std::string_view text) {
    return why(from_file(read_rpc_client_options, text));
  };
  EXPECT_TRUE(says(file("name = \"me\"\n"), "server"));
  EXPECT_TRUE(says(file("server = \"a:1\"\n"), "name"));
  const std::string right = "server = \"a:1\"\nname = \"me\"\n";
  const std::string slip = file(right + "reconect_ms = 30\n");
  EXPECT_TRUE(says(slip, "calls.toml:3") && says(slip, "reconect_ms")) << slip;
  const std::string bad = file(right + "spin_us = \"long\"\n");
  EXPECT_TRUE(says(bad, "calls.toml:3") && says(bad, "spin_us")) << bad;
  EXPECT_TRUE(says(file("peers = [\"a:1\"]\n" + right), "calls.toml:1"));
  EXPECT_TRUE(says(why(from_file(read_replicated_rpc_client_options,
                                 "peers = [1]\nservice = \"bank\"\nname = \"me\"\n")),
                   "calls.toml:1"));
}

}  // namespace
}  // namespace perdure::rpc
