// The configuration of perdured: a TOML file, read whole and strictly. docs/man/perdured.8 and
// configs/perdured.toml describe every key.
#pragma once

#include <perdure/result.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/clock.h"
#include "core/log_message.h"
#include "fabric/fabric.h"
#include "server/service.h"

namespace perdure::server {

/// What carries sessions, and what pools are made of.
enum class Fabric {
  Native,    // the transports, and the files of a directory
  Emulated,  // an emulated RNIC and emulated memory, with a power switch
};

/// In ssh's place for librpmem: the program puts it together (apps/perdured/rpmem_listener.h).
struct RpmemConfig {
  std::string poolset_dir;  // of the set files, absolute; empty: nobody is served
  std::string listen = "127.0.0.1:7472";
  std::string rpmemd = "rpmemd";  // looked for in PATH, unless there is a slash in it
  std::string config;             // rpmemd's --config; empty: its usual files
  std::string credential_file;    // what clients have to show; empty: nothing
  std::size_t clients_max = 64;
};

struct Config {
  Config() {
    service.directory = "/var/lib/perdure";
    service.pools_max = 1024;
  }

  // [control]
  std::string control_listen = "127.0.0.1:7470";
  bool allow_remote = false;  // of both planes: listen where other machines can reach it
  std::size_t connections_max = 256;
  std::size_t connections_per_address_max = 192;
  // [data]
  Fabric fabric = Fabric::Native;
  std::string data_listen = "127.0.0.1:7471";
  std::vector<Transport> transports{Transport::Tcp, Transport::Shm};
  std::string rnic;  // name or address; empty: the first that fits the transport and is up
  // [data], [pools], [profile] and [profile.pool.NAME]: what the service is told.
  ServiceOptions service;
  // [emulated]: the machine, beside its [profile]
  Transport emulated_transport = Transport::InfiniBand;
  Capabilities emulated_capabilities{.native_flush = true, .atomic_write = true};
  std::size_t seed = 0;
  // [rpmem]
  RpmemConfig rpmem;
  // [log]
  Severity log_level = Severity::Info;
};

/// Reads a configuration from text; `file` is named in errors.
/// Errors: InvalidArgument as "file:line: problem": not TOML, an unknown key, a value of the wrong
/// type or out of its range.
Result<Config> parse_config(std::string_view text, const std::string& file);

/// The same from a file. Errors: also NotFound, PermissionDenied, SystemError.
Result<Config> load_config(const std::string& file);

/// What must hold however the configuration was put together (file, command line).
/// Errors: those of check_planes; PermissionDenied: an address for librpmem that other machines can
/// reach, without allow_remote; InvalidArgument (no directory, what contradicts itself).
Result<void> validate(const Config& config);

Result<Severity> parse_severity(std::string_view word);
/// What an operator says survives a power failure; "auto": nothing is said, and counts what can be
/// seen. Errors: InvalidArgument.
Result<std::optional<PersistenceDomain>> parse_declared(std::string_view word);

}  // namespace perdure::server
