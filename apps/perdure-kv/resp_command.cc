// perdure-kv resp: a port for Redis's clients in front of a server elsewhere.
#include <fmt/format.h>

#include "command_line/service.h"
#include "commands.h"
#include "core/log_message.h"
#include "core/try.h"
#include "port_options.h"
#include "server/config.h"
#include "stop_signals.h"

namespace perdure::kv_app {
namespace {

constexpr const char* kRespFooter = R"(
examples:
  perdure-kv resp --server 127.0.0.1:7470 --listen 127.0.0.1:6379
      clients of Redis on this machine use the store that a server has there
  perdure-kv resp --server 10.0.0.2:7470 --name front-2
      a second port on the same store: each needs a name of its own)";

struct RespArguments {
  std::string server;
  std::string listen = "127.0.0.1:6379";
  std::string name = "resp";
  std::string port_file;
  std::string log_level = "info";
  bool allow_remote = false;
  PortArguments port;
};

void describe_resp(const app::Command& command, RespArguments& to) {
  command.footer(kRespFooter);
  command.add_option("--server", to.server, "host:port of the server's control plane")
      .required()
      .type_name("HOST:PORT");
  command.add_option("--listen", to.listen, "host:port for Redis's clients; port 0: any free one")
      .type_name("HOST:PORT")
      .capture_default();
  command
      .add_option("--name", to.name,
                  "who it is to the server: a second process of the same name ends the first")
      .capture_default();
  command.add_flag("--allow-remote", to.allow_remote,
                   "listen elsewhere than on loopback, too: nobody is authenticated");
  command.add_option("--port-file", to.port_file,
                     "write the address there once everything runs, as \"resp address\"");
  command.add_option("--log-level", to.log_level, "debug, info, warning or error")
      .capture_default();
  add_port_options(command, to.port);
}

Result<void> serve_port(const RespArguments& arguments) {
  PERDURE_TRY(stop, stop_descriptor());
  PERDURE_TRY(least, server::parse_severity(arguments.log_level));
  app::log_to_stderr("perdure-kv", least);
  app::remove_port_file(arguments.port_file);
  app::lift_descriptor_limit();
  PERDURE_TRY(store, open_store(arguments.server, arguments.name, arguments.port));
  PERDURE_TRY(port,
              RespPort::open(port_options(arguments.port, arguments.listen, arguments.allow_remote),
                             std::move(store)));
  log_message(Severity::Info, fmt::format("clients of Redis connect to {}, the store is at {}",
                                          port->address(), arguments.server));
  PERDURE_TRY_VOID(app::write_port_file(arguments.port_file, {{"resp", port->address()}}));
  PERDURE_TRY_VOID(port->run(stop));
  let_signals_end();
  return {};
}

}  // namespace

void add_resp_command(const app::Program& program, int& status) {
  static RespArguments arguments;
  const app::Command command =
      program.add_subcommand("resp", "A port for Redis's clients, in front of a server.");
  describe_resp(command, arguments);
  command.callback([&status] {
    const auto served = serve_port(arguments);
    status = served.ok() ? 0 : report(served.error());
  });
}

}  // namespace perdure::kv_app
