// The options of a mirror as words.
#include <perdure/mirror.h>

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

Result<MirrorStart> option_start(std::string_view word) {
  for (const MirrorStart start : {MirrorStart::New, MirrorStart::Local, MirrorStart::Replicas}) {
    if (word == to_string(start)) return start;
  }
  return Error{ErrorCode::InvalidArgument,
               fmt::format("start '{}'; use one of: new, local, replicas", word)};
}

constexpr std::array<client::NamedOption<MirrorOptions>, 16> kOptions{{
    {"quorum", set_member<&MirrorOptions::quorum, option_number>},
    {"start", set_member<&MirrorOptions::start, option_start>},
    {"without_missing", set_member<&MirrorOptions::without_missing, option_flag>},
    {"only_copies", set_member<&MirrorOptions::only_copies, option_flag>},
    {"transport", set_member<&MirrorOptions::transport, control::parse_transport_choice>},
    {"rnic", set_rnic<client::set_rnic_name>},
    {"rnic_ack_timeout", set_rnic<client::set_rnic_ack_timeout>},
    {"rnic_traffic_class", set_rnic<client::set_rnic_traffic_class>},
    {"primary", set_member<&MirrorOptions::primary, client::parse_primary_choice>},
    {"staging_bytes", set_member<&MirrorOptions::staging_bytes, parse_bytes>},
    {"measure_costs", set_member<&MirrorOptions::measure_costs, option_flag>},
    {"take_over", set_member<&MirrorOptions::take_over, option_flag>},
    {"writer_name", set_member<&MirrorOptions::writer_name, option_text>},
    {"peer_timeout_ms",
     set_member<&MirrorOptions::peer_timeout, client::option_time<milliseconds>>},
    {"reconnect_ms", set_member<&MirrorOptions::reconnect, client::option_time<milliseconds>>},
    {"spin_us", set_member<&MirrorOptions::spin, client::option_time<microseconds>>},
}};

constexpr client::NamedOptions<MirrorOptions> kNamed("a mirror", kOptions);

}  // namespace

Result<void> set_option(MirrorOptions& options, std::string_view name, std::string_view value) {
  return kNamed.set(options, name, value);
}

Result<MirrorOptions> parse_mirror_options(std::string_view connection) {
  return kNamed.parse(connection);
}

Result<MirrorOptions> read_mirror_options(const std::string& path) { return kNamed.read(path); }

}  // namespace perdure
