// The configuration of perdured: see config.h.
#include "config.h"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>

#include "control/host_port.h"
#include "core/toml_fields.h"
#include "core/try.h"
#include "fabric/open_device.h"

namespace perdure::server {
namespace {

constexpr std::size_t kConfigBytesMax = 1024 * 1024;

Result<std::string> parse_address(std::string_view text) {
  PERDURE_TRY_VOID(control::parse_host_port(text));
  return std::string(text);
}

Result<std::optional<PersistenceDomain>> parse_declared(std::string_view word) {
  if (word == "auto") return std::optional<PersistenceDomain>{};
  PERDURE_TRY(domain, parse_persistence_domain(word));
  return std::optional<PersistenceDomain>{domain};
}

Result<Fabric> parse_fabric(std::string_view word) {
  if (word == "native") return Fabric::Native;
  if (word == "emu") return Fabric::Emulated;
  return Error{ErrorCode::InvalidArgument,
               fmt::format("fabric '{}' is not known; use one of: native, emu", word)};
}

void read_control(TomlFields& fields, Config& config) {
  fields.parsed("listen", config.control_listen, parse_address);
  fields.flag("allow_remote", config.allow_remote);
  fields.number("connections_max", 8, 65536, config.connections_max);
  fields.number("connections_per_address_max", 4, 65536, config.connections_per_address_max);
}

void read_transports(TomlFields& fields, Config& config) {
  const toml::node* node = fields.find("transports");
  if (node == nullptr) return;
  const toml::array* words = node->as_array();
  if (words == nullptr || words->empty()) {
    return fields.problem(*node, "transports", "is not a list, for example [\"tcp\", \"shm\"]");
  }
  config.transports.clear();
  for (const toml::node& each : *words) {
    const auto transport = parse_transport(each.value_or(std::string()));
    if (transport.ok()) {
      config.transports.push_back(*transport);
    } else {
      fields.problem(each, "transports",
                     "has something other than \"tcp\", \"shm\", \"infiniband\", \"roce\" and "
                     "\"iwarp\"");
    }
  }
}

void read_spin(TomlFields& fields, Config& config) {
  const toml::node* node = fields.find("spin_us");
  if (node == nullptr || node->value_exact<std::string>() == "auto") return;
  const auto value = node->value_exact<std::int64_t>();
  if (value && *value >= 0 && *value <= 1'000'000)
    config.spin = std::chrono::microseconds{*value};
  else
    fields.problem(*node, "spin_us", "is neither \"auto\" nor between 0 and 1000000");
}

void read_data(TomlFields& fields, Config& config) {
  fields.parsed("listen", config.data_listen, parse_address);
  fields.parsed("fabric", config.fabric, parse_fabric);
  read_transports(fields, config);
  fields.text("rnic", config.rnic);
  read_spin(fields, config);
  fields.number("sessions_max", 1, 4096, config.sessions_max);
  fields.number("sessions_for_writers", 0, 4096, config.sessions_for_writers);
  fields.number("receive_depth", 2 * persist::kResponderBurst, 4096, config.queue.depth);
  fields.number("message_bytes_max", 256, 16 * 1024 * 1024, config.queue.message_bytes_max);
}

void read_settings(TomlFields& fields, PoolSettings& settings) {
  fields.parsed("domain", settings.declared, parse_declared);
  fields.parsed("ddio", settings.ddio, parse_ddio);
  fields.parsed("receive_buffers", settings.receive_buffers, parse_receive_buffers);
}

void read_profile(TomlFields& fields, TomlProblems& problems, Config& config) {
  read_settings(fields, config.settings);
  const toml::table* pools = fields.table("pool");
  if (pools == nullptr) return;
  for (const auto& [key, value] : *pools) {
    const std::string name(key.str());
    if (const auto valid = control::validate_pool_name(name); !valid) {
      problems.add(key.source(), fmt::format("[profile.pool] {}", valid.error().message));
    }
    if (!value.is_table()) problems.add(key.source(), "a pool's profile is a table");
    TomlFields own(value.as_table(), "profile.pool." + name, problems);
    PoolSettings settings = config.settings;
    read_settings(own, settings);
    config.settings_by_pool.emplace(name, settings);
  }
}

void read_emulated(TomlFields& fields, Config& config) {
  fields.parsed("transport", config.emulated_transport, parse_transport);
  fields.flag("native_flush", config.emulated_capabilities.native_flush);
  fields.flag("atomic_write", config.emulated_capabilities.atomic_write);
  fields.flag("persistent_flush", config.emulated_capabilities.persistent_flush);
  fields.number("seed", 0, INT64_MAX, config.seed);
}

void read_root(TomlFields& root, TomlProblems& problems, Config& config) {
  TomlFields control(root.table("control"), "control", problems);
  read_control(control, config);
  TomlFields data(root.table("data"), "data", problems);
  read_data(data, config);
  TomlFields pools(root.table("pools"), "pools", problems);
  pools.text("directory", config.directory);
  TomlFields profile(root.table("profile"), "profile", problems);
  read_profile(profile, problems, config);
  TomlFields emulated(root.table("emulated"), "emulated", problems);
  read_emulated(emulated, config);
  TomlFields log(root.table("log"), "log", problems);
  log.parsed("level", config.log_level, parse_severity);
}

Result<void> refuse_remote(std::string_view key, const std::string& listen) {
  PERDURE_TRY(at, control::parse_host_port(listen));
  if (control::is_loopback(at.host)) return {};
  return Error{ErrorCode::PermissionDenied,
               fmt::format("[{}] listen = \"{}\" can be reached from other machines, and this "
                           "version authenticates nobody; listen on 127.0.0.1, or set [control] "
                           "allow_remote = true if everyone on that network may read and write "
                           "the pools",
                           key, listen)};
}

}  // namespace

Result<Severity> parse_severity(std::string_view word) {
  for (const auto severity :
       {Severity::Debug, Severity::Info, Severity::Warning, Severity::Error}) {
    if (to_string(severity) == word) return severity;
  }
  return Error{
      ErrorCode::InvalidArgument,
      fmt::format("level '{}' is not known; use one of: debug, info, warning, error", word)};
}

Result<Config> parse_config(std::string_view text, const std::string& file) {
  if (text.size() > kConfigBytesMax) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("{}: larger than the limit of {} bytes", file, kConfigBytesMax)};
  }
  try {
    const toml::table table = toml::parse(text, file);
    Config config;
    TomlProblems problems(file);
    {
      TomlFields root(&table, "the file", problems);
      read_root(root, problems, config);
    }
    PERDURE_TRY_VOID(problems.outcome());
    return config;
  } catch (const toml::parse_error& error) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("{}:{}: {}", file, error.source().begin.line, error.description())};
  }
}

Result<Config> load_config(const std::string& file) {
  errno = 0;
  std::ifstream stream(file, std::ios::binary);
  std::string text;
  // Not by iterators of the buffer: those throw when `file` is a directory; read() does not.
  std::array<char, 4096> part{};
  while (stream.read(part.data(), part.size()) || stream.gcount() > 0) {
    text.append(part.data(), static_cast<std::size_t>(stream.gcount()));
    if (text.size() > kConfigBytesMax) break;
  }
  if (!stream.is_open() || stream.bad()) {
    const int reason = errno;
    const ErrorCode code = reason == ENOENT   ? ErrorCode::NotFound
                           : reason == EACCES ? ErrorCode::PermissionDenied
                                              : ErrorCode::SystemError;
    return Error{code, fmt::format("the configuration '{}' can not be read: {}", file,
                                   std::generic_category().message(reason))};
  }
  return parse_config(text, file);
}

Result<void> validate(const Config& config) {
  PERDURE_TRY_VOID(control::parse_host_port(config.control_listen));
  PERDURE_TRY_VOID(control::parse_host_port(config.data_listen));
  if (config.directory.empty()) {
    return Error{ErrorCode::InvalidArgument, "[pools] directory is empty; name one"};
  }
  if (config.allow_remote) return {};
  for (const Transport transport : config.transports) {
    if (!fabric::is_rdma(transport) || config.fabric == Fabric::Emulated) continue;
    return Error{ErrorCode::PermissionDenied,
                 fmt::format("[data] transports has \"{}\": an RNIC can be reached from other "
                             "machines, and this version authenticates nobody; set [control] "
                             "allow_remote = true if everyone on that network may read and write "
                             "the pools",
                             to_string(transport))};
  }
  PERDURE_TRY_VOID(refuse_remote("control", config.control_listen));
  return refuse_remote("data", config.data_listen);
}

}  // namespace perdure::server
