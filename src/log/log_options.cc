#include "log/log_options.h"

#include <fmt/format.h>

#include <array>

#include "client/named_options.h"
#include "control/service_types.h"
#include "core/byte_text.h"

namespace perdure {
namespace log {

Result<std::optional<LogShape>> parse_shape_choice(std::string_view word) {
  if (word == "planned") return std::optional<LogShape>{};
  for (const LogShape shape : {LogShape::Singleton, LogShape::Compound}) {
    if (word == to_string(shape)) return std::optional<LogShape>{shape};
  }
  return Error{ErrorCode::InvalidArgument,
               fmt::format("log shape '{}'; use one of: planned, singleton, compound", word)};
}

}  // namespace log

namespace {

using client::option_flag;
using client::option_number;
using client::option_text;
using client::set_member;
using client::set_rnic;

Result<Level> option_level(std::string_view word) {
  for (const Level level : {Level::Received, Level::Visible, Level::Durable}) {
    if (word == to_string(level)) return level;
  }
  return Error{ErrorCode::InvalidArgument,
               fmt::format("level '{}'; use one of: received, visible, durable", word)};
}

constexpr std::array<client::NamedOption<LogOptions>, 19> kOptions{{
    {"quorum", set_member<&LogOptions::quorum, option_number>},
    {"create", set_member<&LogOptions::create, option_flag>},
    {"partial", set_member<&LogOptions::partial, option_flag>},
    {"transport", set_member<&LogOptions::transport, control::parse_transport_choice>},
    {"rnic", set_rnic<client::set_rnic_name>},
    {"rnic_ack_timeout", set_rnic<client::set_rnic_ack_timeout>},
    {"rnic_traffic_class", set_rnic<client::set_rnic_traffic_class>},
    {"shape", set_member<&LogOptions::shape, log::parse_shape_choice>},
    {"primary", set_member<&LogOptions::primary, client::parse_primary_choice>},
    {"level", set_member<&LogOptions::level, option_level>},
    {"record_bytes_max", set_member<&LogOptions::record_bytes_max, parse_bytes>},
    {"batches_in_flight", set_member<&LogOptions::batches_in_flight, option_number>},
    {"measure_costs", set_member<&LogOptions::measure_costs, option_flag>},
    {"take_over", set_member<&LogOptions::take_over, option_flag>},
    {"accept_loss", set_member<&LogOptions::accept_loss, option_flag>},
    {"writer_name", set_member<&LogOptions::writer_name, option_text>},
    {"replica_timeout_ms",
     set_member<&LogOptions::replica_timeout, client::option_time<std::chrono::milliseconds>>},
    {"reconnect_ms",
     set_member<&LogOptions::reconnect, client::option_time<std::chrono::milliseconds>>},
    {"spin_us", set_member<&LogOptions::spin, client::option_time<std::chrono::microseconds>>},
}};

constexpr client::NamedOptions<LogOptions> kLogOptions("a log", kOptions);

}  // namespace

Result<void> set_option(LogOptions& options, std::string_view name, std::string_view value) {
  return kLogOptions.set(options, name, value);
}

Result<LogOptions> parse_log_options(std::string_view connection) {
  return kLogOptions.parse(connection);
}

Result<LogOptions> read_log_options(const std::string& path) { return kLogOptions.read(path); }

}  // namespace perdure
