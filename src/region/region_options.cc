// The options of a region as words.
#include <perdure/region.h>

#include <fmt/format.h>

#include <array>

#include "client/named_options.h"
#include "control/service_types.h"
#include "core/byte_text.h"

namespace perdure {
namespace {

using client::option_flag;
using client::option_number;
using client::option_text;
using client::set_member;
using client::set_rnic;
using std::chrono::microseconds;
using std::chrono::milliseconds;

Result<Level> option_level(std::string_view word) {
  for (const Level level : {Level::Visible, Level::Durable}) {
    if (word == to_string(level)) return level;
  }
  return Error{ErrorCode::InvalidArgument,
               fmt::format("level '{}'; use one of: visible, durable", word)};
}

constexpr std::array<client::NamedOption<RegionOptions>, 15> kOptions{{
    {"quorum", set_member<&RegionOptions::quorum, option_number>},
    {"create", set_member<&RegionOptions::create, option_flag>},
    {"level", set_member<&RegionOptions::level, option_level>},
    {"transport", set_member<&RegionOptions::transport, control::parse_transport_choice>},
    {"rnic", set_rnic<client::set_rnic_name>},
    {"rnic_ack_timeout", set_rnic<client::set_rnic_ack_timeout>},
    {"rnic_traffic_class", set_rnic<client::set_rnic_traffic_class>},
    {"primary", set_member<&RegionOptions::primary, client::parse_primary_choice>},
    {"staging_bytes", set_member<&RegionOptions::staging_bytes, parse_bytes>},
    {"measure_costs", set_member<&RegionOptions::measure_costs, option_flag>},
    {"take_over", set_member<&RegionOptions::take_over, option_flag>},
    {"writer_name", set_member<&RegionOptions::writer_name, option_text>},
    {"peer_timeout_ms",
     set_member<&RegionOptions::peer_timeout, client::option_time<milliseconds>>},
    {"reconnect_ms", set_member<&RegionOptions::reconnect, client::option_time<milliseconds>>},
    {"spin_us", set_member<&RegionOptions::spin, client::option_time<microseconds>>},
}};

constexpr client::NamedOptions<RegionOptions> kNamed("a region", kOptions);

}  // namespace

Result<void> set_option(RegionOptions& options, std::string_view name, std::string_view value) {
  return kNamed.set(options, name, value);
}

Result<RegionOptions> parse_region_options(std::string_view connection) {
  return kNamed.parse(connection);
}

Result<RegionOptions> read_region_options(const std::string& path) { return kNamed.read(path); }

}  // namespace perdure
