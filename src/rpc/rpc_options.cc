// The options of those that call, and of servers on k peers, as words. Those of kv.h and of
// replicated_rpc.h, too: what implements these stands on the public headers alone.
#include <perdure/kv.h>
#include <perdure/replicated_rpc.h>
#include <perdure/rpc.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "client/named_options.h"
#include "core/byte_text.h"

namespace perdure {
namespace client {

using std::chrono::microseconds;
using std::chrono::milliseconds;

static RpcClientOptions& rpc_of(RpcClientOptions& options) { return options; }
static RpcClientOptions& rpc_of(KvClientOptions& options) { return options.rpc; }

template <typename Options>
struct ServerAddress {
  static constexpr AddressWords kWords{"HOST:PORT/NAME", "name"};
  static std::string& server(Options& options) { return rpc_of(options).server; }
  static std::string& name(Options& options) { return rpc_of(options).name; }
};
template <typename Options>
struct GroupAddress {
  static constexpr AddressWords kWords{"HOST:PORT[,HOST:PORT...]/SERVICE", "service"};
  static std::vector<std::string>& peers(Options& options) { return options.group.peers; }
  static std::string& name(Options& options) { return options.group.service; }
};

template <>
struct Address<RpcClientOptions> : ServerAddress<RpcClientOptions> {};
template <>
struct Address<KvClientOptions> : ServerAddress<KvClientOptions> {};
template <>
struct Address<ReplicatedRpcServerOptions> : GroupAddress<ReplicatedRpcServerOptions> {};
template <>
struct Address<ReplicatedRpcClientOptions> : GroupAddress<ReplicatedRpcClientOptions> {};

namespace {

template <auto member, auto parse, typename Options>
Result<void> set_of_rpc(Options& options, std::string_view word) {
  return set_member<member, parse>(rpc_of(options), word);
}
template <auto set, typename Options>
Result<void> set_rnic_of_rpc(Options& options, std::string_view word) {
  return set(rpc_of(options).rnic, word);
}
template <auto member, auto parse, typename Options>
Result<void> set_of_group(Options& options, std::string_view word) {
  return set_member<member, parse>(options.group, word);
}
template <auto set, typename Options>
Result<void> set_rnic_of_group(Options& options, std::string_view word) {
  return set(options.group.rnic, word);
}

Result<std::uint32_t> option_small_bytes(std::string_view word) {
  PERDURE_TRY(bytes, parse_bytes(word));
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(bytes, UINT32_MAX));
}

/// Another program's number must not become the largest one.
Result<std::uint32_t> option_application(std::string_view word) {
  PERDURE_TRY(number, option_number(word));
  if (number <= UINT32_MAX) return static_cast<std::uint32_t>(number);
  return Error{ErrorCode::InvalidArgument,
               fmt::format("'{}' is not one of 0 to {}", word, UINT32_MAX)};
}

/// Of a client of one server.
template <typename Options>
constexpr auto kCallerOptions = std::to_array<NamedOption<Options>>({
    {"transport", set_of_rpc<&RpcClientOptions::transport, control::parse_transport_choice>},
    {"rnic", set_rnic_of_rpc<set_rnic_name>},
    {"rnic_ack_timeout", set_rnic_of_rpc<set_rnic_ack_timeout>},
    {"rnic_traffic_class", set_rnic_of_rpc<set_rnic_traffic_class>},
    {"primary", set_of_rpc<&RpcClientOptions::primary, parse_primary_choice>},
    {"measure_costs", set_of_rpc<&RpcClientOptions::measure_costs, option_flag>},
    {"server_timeout_ms", set_of_rpc<&RpcClientOptions::server_timeout, option_time<milliseconds>>},
    {"reconnect_ms", set_of_rpc<&RpcClientOptions::reconnect, option_time<milliseconds>>},
    {"spin_us", set_of_rpc<&RpcClientOptions::spin, option_time<microseconds>>},
});

/// Of a server and a client on k peers.
template <typename Options>
constexpr auto kGroupOptions = std::to_array<NamedOption<Options>>({
    {"quorum", set_of_group<&ReplicatedRpcGroup::quorum, option_number>},
    {"transport", set_of_group<&ReplicatedRpcGroup::transport, control::parse_transport_choice>},
    {"rnic", set_rnic_of_group<set_rnic_name>},
    {"rnic_ack_timeout", set_rnic_of_group<set_rnic_ack_timeout>},
    {"rnic_traffic_class", set_rnic_of_group<set_rnic_traffic_class>},
    {"peer_timeout_ms", set_of_group<&ReplicatedRpcGroup::peer_timeout, option_time<milliseconds>>},
    {"reconnect_ms", set_of_group<&ReplicatedRpcGroup::reconnect, option_time<milliseconds>>},
});

constexpr auto kOwnStoreOptions = std::to_array<NamedOption<KvClientOptions>>({
    {"timeout_ms", set_member<&KvClientOptions::timeout, option_time<milliseconds>>},
});

using ServerOptions = ReplicatedRpcServerOptions;
constexpr auto kOwnServerOptions = std::to_array<NamedOption<ServerOptions>>({
    {"data_bytes", set_member<&ServerOptions::data_bytes, parse_bytes>},
    {"clients_max", set_member<&ServerOptions::clients_max, option_small_number>},
    {"replies", set_member<&ServerOptions::replies, option_small_number>},
    {"reply_bytes_max", set_member<&ServerOptions::reply_bytes_max, option_small_bytes>},
    {"transaction_bytes", set_member<&ServerOptions::transaction_bytes, parse_bytes>},
    {"application", set_member<&ServerOptions::application, option_application>},
    {"take_over", set_member<&ServerOptions::take_over, option_flag>},
    {"attempts_max", set_member<&ServerOptions::attempts_max, option_small_number>},
    {"hold_failed", set_member<&ServerOptions::hold_failed, option_flag>},
});

using ClientOptions = ReplicatedRpcClientOptions;
constexpr auto kOwnClientOptions = std::to_array<NamedOption<ClientOptions>>({
    {"name", set_member<&ClientOptions::name, option_text>},
    {"calls_bytes", set_member<&ClientOptions::calls_bytes, parse_bytes>},
    {"reads", set_member<&ClientOptions::reads, option_flag>},
});

constexpr NamedOptions<RpcClientOptions> kRpcOptions("a client", {},
                                                     kCallerOptions<RpcClientOptions>);
constexpr NamedOptions<KvClientOptions> kStoreOptions("a client of a store", kOwnStoreOptions,
                                                      kCallerOptions<KvClientOptions>);
constexpr NamedOptions<ServerOptions> kServerOptions("a server on several peers", kOwnServerOptions,
                                                     kGroupOptions<ServerOptions>);
constexpr NamedOptions<ClientOptions> kClientOptions("a client on several peers", kOwnClientOptions,
                                                     kGroupOptions<ClientOptions>);

}  // namespace
}  // namespace client

Result<void> set_option(RpcClientOptions& options, std::string_view name, std::string_view value) {
  return client::kRpcOptions.set(options, name, value);
}

Result<RpcClientOptions> parse_rpc_client_options(std::string_view connection) {
  return client::kRpcOptions.parse(connection);
}

Result<RpcClientOptions> read_rpc_client_options(const std::string& path) {
  return client::kRpcOptions.read(path);
}

Result<void> set_option(KvClientOptions& options, std::string_view name, std::string_view value) {
  return client::kStoreOptions.set(options, name, value);
}

Result<KvClientOptions> parse_kv_client_options(std::string_view connection) {
  return client::kStoreOptions.parse(connection);
}

Result<KvClientOptions> read_kv_client_options(const std::string& path) {
  return client::kStoreOptions.read(path);
}

Result<void> set_option(ReplicatedRpcServerOptions& options, std::string_view name,
                        std::string_view value) {
  return client::kServerOptions.set(options, name, value);
}

Result<ReplicatedRpcServerOptions> parse_replicated_rpc_server_options(
    std::string_view connection) {
  return client::kServerOptions.parse(connection);
}

Result<ReplicatedRpcServerOptions> read_replicated_rpc_server_options(const std::string& path) {
  return client::kServerOptions.read(path);
}

Result<void> set_option(ReplicatedRpcClientOptions& options, std::string_view name,
                        std::string_view value) {
  return client::kClientOptions.set(options, name, value);
}

Result<ReplicatedRpcClientOptions> parse_replicated_rpc_client_options(
    std::string_view connection) {
  return client::kClientOptions.parse(connection);
}

Result<ReplicatedRpcClientOptions> read_replicated_rpc_client_options(const std::string& path) {
  return client::kClientOptions.read(path);
}

}  // namespace perdure
