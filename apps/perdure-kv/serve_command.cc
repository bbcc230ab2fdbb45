// perdure-kv serve: a server of one store, and, if it is asked to, a port for Redis's clients.
#include <fmt/format.h>
#include <perdure/kv.h>

#include <memory>

#include "command_line/service.h"
#include "commands.h"
#include "core/byte_text.h"
#include "core/log_message.h"
#include "core/try.h"
#include "port_options.h"
#include "server/config.h"
#include "stop_signals.h"

namespace perdure::kv_app {
namespace {

constexpr const char* kServeFooter = R"(
examples:
  perdure-kv serve --pool kv.pool --resp 127.0.0.1:6379
      a store in a file, made if it is not there, for redis-cli and other clients of Redis
  perdure-kv serve --pool /dev/shm/kv.pool --declare-domain wsp --size 1GiB
      memory with a battery behind it; programs use include/perdure/kv.h)";

// Of the port's client of the store: not what `perdure-kv resp` is called if nobody says so.
constexpr const char* kPortName = "serve-resp";

struct ServeArguments {
  KvServerOptions server;
  std::string declared;
  std::string resp;
  std::string port_file;
  std::string log_level = "info";
  std::uint64_t value_bytes_max = kKvValueBytesMax;
  std::uint64_t keys_max = 0;
  PortArguments port;
};

void describe_serve(const app::Command& command, ServeArguments& to) {
  command.footer(kServeFooter);
  command.add_option("--pool", to.server.pool, "file of the store; made if there is none")
      .required()
      .type_name("FILE");
  add_size_option(command, "--size", to.server.bytes,
                  "of a new store: bytes of keys, values and their index", 1 << 20, 1ULL << 40);
  command.add_option("--keys-max", to.keys_max, "of a new store: so many keys; 0: one for each KiB")
      .capture_default();
  command
      .add_option("--block-bytes", to.server.block_bytes,
                  "of a new store: values take whole blocks")
      .range(128, 65'536)
      .capture_default();
  command
      .add_option("--clients-max", to.server.clients_max,
                  "of a new store: its clients; the port for Redis's is one, however many it has")
      .range(1, 1024)
      .capture_default();
  add_size_option(command, "--value-max", to.value_bytes_max, "of a new store: its largest value",
                  1024, kKvValueBytesMax);
  command
      .add_option("--declare-domain", to.declared,
                  "what survives a power failure: page, dmp, mhp, wsp, or auto")
      .type_name("DOMAIN");
  command.add_option("--listen", to.server.listen, "host:port of the control plane; 0: any port")
      .capture_default();
  command.add_option("--data-listen", to.server.data_listen, "host:port of the data plane")
      .capture_default();
  command.add_flag("--allow-remote", to.server.allow_remote,
                   "listen elsewhere than on loopback, too: nobody is authenticated");
  command.add_flag("--refuse-failed", to.server.refuse_failed,
                   "a change in which the server ended, or failed, each time is refused, and those "
                   "behind it go on; with --acknowledge applied nothing is lost so");
  command.add_option("--port-file", to.port_file,
                     "write the addresses there once everything runs, \"name address\" a line");
  command.add_option("--log-level", to.log_level, "debug, info, warning or error")
      .capture_default();
  command.add_option("--resp", to.resp, "host:port for Redis's clients; port 0: any free one")
      .type_name("HOST:PORT")
      .group("Redis's clients");
  add_port_options(command, to.port);
}

/// Serves Redis's clients until `stop`, or until their port fails: that is no reason to serve no
/// others.
void serve_redis_clients(std::unique_ptr<RespPort> port, int stop) {
  const auto ran = port->run(stop);
  if (ran.ok()) return;
  log_message(Severity::Error,
              fmt::format("the port for clients of Redis, {}, is closed until the next start, and "
                          "the store is served on: {}",
                          port->address(), ran.error().message));
}

Result<void> serve_store(ServeArguments& arguments) {
  PERDURE_TRY(stop, stop_descriptor());
  PERDURE_TRY(least, server::parse_severity(arguments.log_level));
  app::log_to_stderr("perdure-kv", least);
  app::remove_port_file(arguments.port_file);
  app::lift_descriptor_limit();
  KvServerOptions& options = arguments.server;
  options.value_bytes_max = arguments.value_bytes_max;
  options.keys_max = arguments.keys_max;
  if (!arguments.declared.empty() && arguments.declared != "auto") {
    PERDURE_TRY(domain, parse_persistence_domain(arguments.declared));
    options.declared = domain;
  }
  PERDURE_TRY(server, KvServer::open(options));
  log_message(Severity::Info, fmt::format("the store in '{}' is served at http://{}/", options.pool,
                                          server.address()));
  std::vector<std::pair<std::string, std::string>> addresses = {{"control", server.address()}};
  std::unique_ptr<RespPort> port;
  if (!arguments.resp.empty()) {
    PERDURE_TRY(store, open_store(server.address(), kPortName, arguments.port));
    PERDURE_TRY(opened,
                RespPort::open(port_options(arguments.port, arguments.resp, options.allow_remote),
                               std::move(store)));
    port = std::move(opened);
    addresses.emplace_back("resp", port->address());
    log_message(Severity::Info, fmt::format("clients of Redis connect to {}", port->address()));
  }
  PERDURE_TRY_VOID(app::write_port_file(arguments.port_file, addresses));
  if (port != nullptr) serve_redis_clients(std::move(port), stop);
  // Readable already, if a signal has ended the port.
  wait_for_stop(stop);
  let_signals_end();
  log_message(Severity::Info, "ending: what is durable and not applied is executed by the next");
  return {};
}

}  // namespace

void add_serve_command(const app::Program& program, int& status) {
  static ServeArguments arguments;
  const app::Command command = program.add_subcommand(
      "serve", "Serves the store in a pool, and Redis's clients if asked to.");
  describe_serve(command, arguments);
  command.callback([&status] {
    const auto served = serve_store(arguments);
    status = served.ok() ? 0 : report(served.error());
  });
}

}  // namespace perdure::kv_app
