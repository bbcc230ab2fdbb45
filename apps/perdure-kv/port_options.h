// The options of the port for Redis's clients, the same for both commands that have one.
#pragma once

#include "command_line/command_line.h"
#include "resp_port.h"

namespace perdure::kv_app {

struct PortArguments {
  std::string acknowledged = "durable";
  std::uint32_t connections_max = 256;
  std::uint32_t idle_s = 0;
  std::uint32_t stall_s = 20;
  std::uint32_t timeout_ms = 5000;
  std::uint64_t unread_bytes_max = 256 * 1024 * 1024;
};

void add_port_options(const app::Command& command, PortArguments& to);
RespPortOptions port_options(const PortArguments& from, const std::string& listen,
                             bool allow_remote);

/// A client of the store in this server for a port. Errors: those of KvClient::open.
Result<KvClient> open_store(const std::string& server, const std::string& name,
                            const PortArguments& from);

}  // namespace perdure::kv_app
