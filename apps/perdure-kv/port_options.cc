// The options of the port for Redis's clients: see port_options.h.
#include "port_options.h"

#include <algorithm>

namespace perdure::kv_app {
namespace {

// Less might never be enough to connect.
constexpr std::chrono::milliseconds kServerTimeoutMin{1000};

}  // namespace

void add_port_options(const app::Command& command, PortArguments& to) {
  command
      .add_option("--acknowledge", to.acknowledged,
                  "when a SET is answered: durable (it will be executed, whatever crashes), or "
                  "applied (its effects are durable too)")
      .is_member({"durable", "applied"})
      .capture_default()
      .group("Redis's clients");
  command.add_option("--connections-max", to.connections_max, "of Redis's clients")
      .range(1, 10'000)
      .capture_default()
      .group("Redis's clients");
  command
      .add_option("--idle-timeout", to.idle_s,
                  "seconds after which a client that asks nothing is cut off; 0: never")
      .range(0, 86'400)
      .capture_default()
      .group("Redis's clients");
  command
      .add_option("--stall-timeout", to.stall_s,
                  "seconds after which one is cut off that sent half a request, or does not read")
      .range(1, 3600)
      .capture_default()
      .group("Redis's clients");
  command
      .add_option("--request-timeout", to.timeout_ms,
                  "milliseconds for which a request waits for the store")
      .range(10, 600'000)
      .capture_default()
      .group("Redis's clients");
  add_size_option(command, "--unread-max", to.unread_bytes_max,
                  "replies that nobody has read, of all clients: above it nothing is executed, and "
                  "who reads nothing for a second is cut off",
                  1 << 20, 1ULL << 40)
      .group("Redis's clients");
}

RespPortOptions port_options(const PortArguments& from, const std::string& listen,
                             bool allow_remote) {
  RespPortOptions options;
  options.listen = listen;
  options.allow_remote = allow_remote;
  options.acknowledged = from.acknowledged == "applied" ? RpcLevel::Applied : RpcLevel::Durable;
  options.connections_max = from.connections_max;
  options.idle = std::chrono::seconds(from.idle_s);
  options.stall = std::chrono::seconds(from.stall_s);
  options.timeout = std::chrono::milliseconds(from.timeout_ms);
  options.unread_bytes_max = from.unread_bytes_max;
  return options;
}

Result<KvClient> open_store(const std::string& server, const std::string& name,
                            const PortArguments& from) {
  KvClientOptions options;
  options.rpc.server = server;
  options.rpc.name = name;
  options.timeout = std::chrono::milliseconds(from.timeout_ms);
  // A turn of the port may wait so long for a server that is away, whatever a request may.
  options.rpc.server_timeout =
      std::clamp(options.timeout, kServerTimeoutMin, options.rpc.server_timeout);
  return KvClient::open(options);
}

}  // namespace perdure::kv_app
