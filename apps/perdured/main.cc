// perdured: serves pools of this machine to those who write durably to it from elsewhere.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "command_line/command_line.h"
#include "command_line/service.h"
#include "control/host_port.h"
#include "control/version.h"
#include "core/try.h"
#include "daemon.h"

namespace perdure::daemon {
namespace {

constexpr int kExitUsage = 2;   // command line or configuration
constexpr int kExitFailed = 1;  // everything else
constexpr int kExitForced = 3;  // a second signal while closing

constexpr const char* kFooter = R"(
Examples:
  perdured --pools /srv/perdure
      serve the pools in a directory, on loopback only
  perdured --pools /dev/shm/p --declare-domain wsp --listen 127.0.0.1:0 --port-file /run/p.port
      memory with a battery behind it, on any free ports, which are written to a file
  perdured --config /etc/perdure/perdured.toml --check-config
      say what is wrong with a configuration, if anything
  perdured --pools /srv/perdure --rpmem-poolset-dir /srv/sets
      also start an rpmemd for each program on librpmem that perdure-rpmem-connect brings

  curl http://127.0.0.1:7470/v1/pools          what is served
  http://127.0.0.1:7470/ in a browser          the same, live
)";

struct Arguments {
  std::string config_file;
  std::string listen;
  std::string data_listen;
  std::string pools;
  std::string declared;
  std::string port_file;
  std::string log_level;
  std::string taken_over;
  std::string rpmem_poolset_dir;
  std::string rpmem_listen;
  std::string rpmemd;
  bool check = false;
};

void describe(const app::Program& program, Arguments& arguments) {
  program.footer(kFooter);
  program.set_version("perdured " + std::string(control::version()));
  program.add_option("--config", arguments.config_file, "read the configuration from a TOML file");
  program.add_option("--pools", arguments.pools, "directory of the pools' files").type_name("DIR");
  program.add_option("--listen", arguments.listen,
                     "host:port of the control plane; port 0: any free ports for all that listens");
  program.add_option("--data-listen", arguments.data_listen, "host:port of the data plane");
  program
      .add_option("--declare-domain", arguments.declared,
                  "what survives a power failure: none, page, dmp, mhp, wsp, or auto")
      .type_name("DOMAIN");
  program
      .add_option("--take-over-device", arguments.taken_over,
                  "serve this pool on a DAX device although somebody who may be alive has it; only "
                  "if whoever it is can not write any more. Counts for its first opening")
      .type_name("POOL");
  program
      .add_option("--rpmem-poolset-dir", arguments.rpmem_poolset_dir,
                  "in ssh's place for librpmem: start an rpmemd, for sets in this directory, for "
                  "each client that perdure-rpmem-connect brings")
      .type_name("DIR");
  program.add_option("--rpmem-listen", arguments.rpmem_listen,
                     "host:port where these clients come; by default 127.0.0.1:7472");
  program
      .add_option("--rpmemd", arguments.rpmemd,
                  "the rpmemd that is started, if not the one in PATH")
      .type_name("PATH");
  program.add_option(
      "--port-file", arguments.port_file,
      "write the addresses there once everything runs, one \"name address\" per line");
  program.add_option("--log-level", arguments.log_level, "debug, info, warning or error");
  program.add_flag("--check-config", arguments.check, "check the configuration and end");
}

/// In ssh's place for librpmem.
Result<void> add_rpmem(const Arguments& arguments, server::Config& config) {
  server::RpmemConfig& rpmem = config.rpmem;
  if (!arguments.rpmem_poolset_dir.empty()) rpmem.poolset_dir = arguments.rpmem_poolset_dir;
  if (!arguments.rpmemd.empty()) rpmem.rpmemd = arguments.rpmemd;
  const bool named = !arguments.rpmem_listen.empty() || !arguments.rpmemd.empty();
  if (named && rpmem.poolset_dir.empty()) {
    return Error{ErrorCode::InvalidArgument,
                 "--rpmem-listen and --rpmemd: no client of librpmem is served without a directory "
                 "of sets; name one with --rpmem-poolset-dir, or leave these out"};
  }
  if (!arguments.rpmem_listen.empty()) {
    rpmem.listen = arguments.rpmem_listen;
  } else if (!arguments.listen.empty()) {
    PERDURE_TRY(control, control::parse_host_port(arguments.listen));
    if (control.port == 0) rpmem.listen = control::to_string(control);
  }
  return {};
}

/// The configuration file with the command line on top.
Result<server::Config> assemble(const Arguments& arguments) {
  server::Config config;
  if (!arguments.config_file.empty()) {
    PERDURE_TRY(loaded, server::load_config(arguments.config_file));
    config = std::move(loaded);
  }
  if (!arguments.pools.empty()) config.service.directory = arguments.pools;
  if (!arguments.listen.empty()) {
    PERDURE_TRY(at, control::parse_host_port(arguments.listen));
    config.control_listen = arguments.listen;
    if (at.port == 0) config.data_listen = control::to_string(at);
  }
  if (!arguments.data_listen.empty()) config.data_listen = arguments.data_listen;
  if (!arguments.declared.empty()) {
    PERDURE_TRY(declared, server::parse_declared(arguments.declared));
    config.service.settings.declared = declared;
    for (auto& [name, settings] : config.service.settings_by_pool) settings.declared = declared;
  }
  if (!arguments.taken_over.empty()) {
    auto& pools = config.service.settings_by_pool;
    pools.emplace(arguments.taken_over, config.service.settings).first->second.take_over_lease =
        true;
  }
  if (!arguments.log_level.empty()) {
    PERDURE_TRY(level, server::parse_severity(arguments.log_level));
    config.log_level = level;
  }
  PERDURE_TRY_VOID(add_rpmem(arguments, config));
  PERDURE_TRY_VOID(validate(config));
  return config;
}

std::vector<std::pair<std::string, std::string>> addresses_of(const Daemon& daemon) {
  std::vector<std::pair<std::string, std::string>> addresses{{"control", daemon.control_address()}};
  for (const Transport transport : daemon.transports()) {
    addresses.emplace_back(to_string(transport), daemon.data_address(transport));
  }
  if (!daemon.rpmem_address().empty()) addresses.emplace_back("rpmem", daemon.rpmem_address());
  return addresses;
}

/// Blocks the signals that main waits for, in this and all later threads: those that end the
/// daemon, and SIGUSR1, the power switch of an emulated machine.
sigset_t awaited_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return signals;
}

void force_exit(int) { ::_exit(kExitForced); }

/// From now on a signal ends the process at once; the pools then count as not shut down.
void force_on_second(const sigset_t& signals) {
  struct sigaction action {};
  action.sa_handler = force_exit;
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  signal(SIGUSR1, SIG_IGN);  // the power of a machine that ends is not cut any more
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
}

Result<void> serve(const server::Config& config, const std::string& port_file,
                   const sigset_t& signals) {
  app::remove_port_file(port_file);
  PERDURE_TRY(daemon, Daemon::start(config));
  log_message(Severity::Info, fmt::format("control plane at http://{}/, pools of '{}'",
                                          daemon->control_address(), config.service.directory));
  for (const Transport transport : daemon->transports()) {
    log_message(Severity::Info, fmt::format("data plane over {} at {}", to_string(transport),
                                            daemon->data_address(transport)));
  }
  if (!daemon->rpmem_address().empty()) {
    log_message(Severity::Info, fmt::format("rpmem: clients of librpmem at {}, sets of '{}'",
                                            daemon->rpmem_address(), config.rpmem.poolset_dir));
  }
  PERDURE_TRY_VOID(app::write_port_file(port_file, addresses_of(*daemon)));
  int received = 0;
  while (sigwait(&signals, &received) != 0 || received == SIGUSR1) {
    if (config.fabric != server::Fabric::Emulated) continue;
    log_message(Severity::Warning, "power cut of the emulated machine");
    PERDURE_TRY_VOID(daemon->power_cycle());
  }
  log_message(Severity::Info, fmt::format("{}: ending sessions and closing pools",
                                          received == SIGINT ? "SIGINT" : "SIGTERM"));
  force_on_second(signals);
  daemon.reset();
  log_message(Severity::Info, "closed cleanly");
  return {};
}

int fail(int status, const Error& error) {
  fmt::print(stderr, "perdured: {}\n", error.message);
  return status;
}

int run(int argc, char** argv) {
  const sigset_t signals = awaited_signals();
  signal(SIGCHLD, SIG_DFL);  // who ignores it never hears how an rpmemd ended
  signal(SIGPIPE, SIG_IGN);  // whoever read the log may go, and the pools are served on
  app::Program program("Serves pools of durable memory to writers on other machines.", "perdured");
  Arguments arguments;
  describe(program, arguments);
  switch (program.parse(argc, argv)) {
    case app::Program::Parsed::Right: break;
    case app::Program::Parsed::Answered: return 0;
    case app::Program::Parsed::Wrong: return kExitUsage;
  }
  const auto config = assemble(arguments);
  if (!config) return fail(kExitUsage, config.error());
  if (arguments.check) {
    fmt::print("the configuration is right\n");
    return 0;
  }
  app::log_to_stderr("perdured", config->log_level);
  app::lift_descriptor_limit();
  const auto served = serve(*config, arguments.port_file, signals);
  return served.ok() ? 0 : fail(kExitFailed, served.error());
}

}  // namespace
}  // namespace perdure::daemon

int main(int argc, char** argv) { return perdure::daemon::run(argc, argv); }
