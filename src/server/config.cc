// The configuration of perdured: see config.h.
#include "config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <variant>

#include "control/host_port.h"
#include "core/byte_text.h"
#include "core/named.h"
#include "core/text_file.h"
#include "core/toml_file.h"
#include "core/try.h"
#include "fabric/open_device.h"
#include "server/plane_addresses.h"

namespace perdure::server {
namespace {

using enum TomlFile::Need;

Result<std::string> parse_address(std::string_view text) {
  PERDURE_TRY_VOID(control::parse_host_port(text));
  return std::string(text);
}

Result<Fabric> parse_fabric(std::string_view word) {
  return find_named<Fabric>("fabric", word, std::to_array<std::string_view>({"native", "emu"}));
}

void read_control(TomlFile& file, Config& config) {
  file.parsed("control", "listen", Optional, config.control_listen, parse_address);
  file.flag("control", "allow_remote", Optional, config.allow_remote);
  file.number("control", "connections_max", Optional, 8, 65536, config.connections_max);
  file.number("control", "connections_per_address_max", Optional, 4, 65536,
              config.connections_per_address_max);
}

void read_transports(TomlFile& file, Config& config) {
  const TomlFile::Value* value = file.value("data", "transports", Optional);
  if (value == nullptr) return;
  const auto* words = std::get_if<TomlFile::List>(value);
  if (words == nullptr || words->empty()) {
    return file.problem("data", "transports", "is not a list, for example [\"tcp\", \"shm\"]");
  }
  config.transports.clear();
  for (const TomlFile::ListItem& each : *words) {
    const auto transport = parse_transport(each.text.value_or(std::string()));
    if (transport.ok()) {
      config.transports.push_back(*transport);
    } else {
      file.problem_at(each.line,
                      "[data] transports: has something other than \"tcp\", \"shm\", "
                      "\"infiniband\", \"roce\" and \"iwarp\"");
    }
  }
}

void read_spin(TomlFile& file, Config& config) {
  const TomlFile::Value* value = file.value("data", "spin_us", Optional);
  if (value == nullptr) return;
  const auto* word = std::get_if<std::string>(value);
  if (word != nullptr && *word == "auto") return;
  const auto* us = std::get_if<std::int64_t>(value);
  if (us != nullptr && *us >= 0 && *us <= 1'000'000)
    config.service.spin_budget = std::chrono::microseconds{*us};
  else
    file.problem("data", "spin_us", "is neither \"auto\" nor between 0 and 1000000");
}

void read_data(TomlFile& file, Config& config) {
  file.parsed("data", "listen", Optional, config.data_listen, parse_address);
  file.parsed("data", "fabric", Optional, config.fabric, parse_fabric);
  read_transports(file, config);
  file.text("data", "rnic", Optional, config.rnic);
  read_spin(file, config);
  std::size_t ack_timeout = config.service.endpoints.ack_timeout;
  file.number("data", "rnic_ack_timeout", Optional, fabric::kAckTimeoutMin, fabric::kAckTimeoutMax,
              ack_timeout);
  config.service.endpoints.ack_timeout = static_cast<std::uint8_t>(ack_timeout);
  constexpr std::size_t kNone = 256;
  std::size_t traffic_class = kNone;
  file.number("data", "rnic_traffic_class", Optional, 0, 255, traffic_class);
  if (traffic_class != kNone)
    config.service.endpoints.traffic_class = static_cast<std::uint8_t>(traffic_class);
  file.number("data", "sessions_max", Optional, 1, 4096, config.service.sessions_max);
  file.number("data", "sessions_for_writers", Optional, 0, 4096,
              config.service.sessions_for_writers);
  file.number("data", "receive_depth", Optional, 2 * persist::kResponderBurst, 4096,
              config.service.queue.depth);
  file.number("data", "message_bytes_max", Optional, 256, 16 * 1024 * 1024,
              config.service.queue.message_bytes_max);
}

void read_settings(TomlFile& file, std::string_view table, PoolSettings& settings) {
  file.parsed(table, "domain", Optional, settings.declared, parse_declared);
  file.parsed(table, "ddio", Optional, settings.ddio, parse_ddio);
  file.parsed(table, "write_order", Optional, settings.write_order, parse_write_order);
  file.parsed(table, "dma_dirties", Optional, settings.dma_dirties, parse_dma_dirties);
  file.parsed(table, "receive_buffers", Optional, settings.receive_buffers, parse_receive_buffers);
  file.flag(table, "take_device", Optional, settings.take_device);
}

void read_profile(TomlFile& file, Config& config) {
  read_settings(file, "profile", config.service.settings);
  for (const std::string& key : file.keys_in("profile.pool")) {
    file.problem("profile.pool", key, "a pool's profile is a table");
  }
  for (const std::string& name : file.tables_in("profile.pool")) {
    const std::string table = "profile.pool." + name;
    if (const auto valid = control::validate_pool_name(name); !valid) {
      file.problem(table, "", valid.error().message);
    }
    PoolSettings settings = config.service.settings;
    read_settings(file, table, settings);
    config.service.settings_by_pool.emplace(name, settings);
  }
}

void read_emulated(TomlFile& file, Config& config) {
  file.parsed("emulated", "transport", Optional, config.emulated_transport, parse_transport);
  Capabilities& capabilities = config.emulated_capabilities;
  file.flag("emulated", "native_flush", Optional, capabilities.native_flush);
  file.flag("emulated", "atomic_write", Optional, capabilities.atomic_write);
  file.flag("emulated", "persistent_flush", Optional, capabilities.persistent_flush);
  file.flag("emulated", "ordered_persist", Optional, capabilities.ordered_persist);
  file.flag("emulated", "send_flush", Optional, capabilities.send_flush);
  file.number("emulated", "seed", Optional, 0, INT64_MAX, config.seed);
}

void read_rpmem(TomlFile& file, Config& config) {
  RpmemConfig& rpmem = config.rpmem;
  file.text("rpmem", "poolset_dir", Optional, rpmem.poolset_dir);
  file.parsed("rpmem", "listen", Optional, rpmem.listen, parse_address);
  file.text("rpmem", "rpmemd", Optional, rpmem.rpmemd);
  file.text("rpmem", "config", Optional, rpmem.config);
  file.text("rpmem", "credential_file", Optional, rpmem.credential_file);
  file.number("rpmem", "clients_max", Optional, 1, 4096, rpmem.clients_max);
}

Result<void> validate_rpmem(const Config& config) {
  const RpmemConfig& rpmem = config.rpmem;
  PERDURE_TRY_VOID(control::parse_host_port(rpmem.listen));
  if (rpmem.poolset_dir.empty()) return {};
  if (rpmem.poolset_dir.front() != '/') {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("[rpmem] poolset_dir = \"{}\" does not begin with a slash; write the "
                             "whole path",
                             rpmem.poolset_dir)};
  }
  if (rpmem.rpmemd.empty()) {
    return Error{ErrorCode::InvalidArgument, "[rpmem] rpmemd is empty; name the program"};
  }
  if (config.fabric == Fabric::Emulated) {
    return Error{
        ErrorCode::InvalidArgument,
        "[rpmem] poolset_dir is for files of this machine, and [data] fabric = \"emu\" has "
        "none; leave one of both out"};
  }
  PERDURE_TRY(at, control::parse_host_port(rpmem.listen));
  if (config.allow_remote || control::is_loopback(at.host)) return {};
  return Error{ErrorCode::PermissionDenied,
               fmt::format("[rpmem] listen = \"{}\" can be reached from other machines, and "
                           "nothing is encrypted there, a credential neither; listen on 127.0.0.1, "
                           "or set [control] allow_remote = true if everyone on that network may "
                           "read and write the sets and the pools",
                           rpmem.listen)};
}

}  // namespace

Result<std::optional<PersistenceDomain>> parse_declared(std::string_view word) {
  if (word == "auto") return std::optional<PersistenceDomain>{};
  PERDURE_TRY(domain, parse_persistence_domain(word));
  return std::optional<PersistenceDomain>{domain};
}

Result<Severity> parse_severity(std::string_view word) {
  using enum Severity;
  return find_named("level", word, std::array{Debug, Info, Warning, Error});
}

Result<Config> parse_config(std::string_view text, const std::string& file) {
  PERDURE_TRY(read, TomlFile::parse(text, file));
  Config config;
  read_control(read, config);
  read_data(read, config);
  read.text("pools", "directory", Optional, config.service.directory);
  read.number("pools", "pools_max", Optional, 1, 65536, config.service.pools_max);
  read.parsed("pools", "pool_bytes_max", Optional, config.service.pool_bytes_max, parse_bytes);
  read_profile(read, config);
  read_emulated(read, config);
  read_rpmem(read, config);
  read.parsed("log", "level", Optional, config.log_level, parse_severity);
  PERDURE_TRY_VOID(read.outcome());
  return config;
}

Result<Config> load_config(const std::string& file) {
  PERDURE_TRY(text, load_text(file, TomlFile::kFileBytesMax));
  return parse_config(text, file);
}

Result<void> validate(const Config& config) {
  PERDURE_TRY_VOID(control::parse_host_port(config.control_listen));
  PERDURE_TRY_VOID(control::parse_host_port(config.data_listen));
  PERDURE_TRY_VOID(validate_rpmem(config));
  if (config.service.directory.empty()) {
    return Error{ErrorCode::InvalidArgument, "[pools] directory is empty; name one"};
  }
  // An emulated machine has no tcp, and no RNIC that anybody else reaches.
  const bool native = config.fabric == Fabric::Native;
  PlaneAddresses planes{config.control_listen, config.data_listen, {}, config.allow_remote};
  if (native) planes.transports = config.transports;
  return check_planes(planes);
}

}  // namespace perdure::server
