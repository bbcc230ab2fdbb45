// The options of a region as words.
#include <perdure/region.h>

#include <array>
#include <chrono>

#include "client/named_options.h"
#include "core/byte_text.h"

namespace perdure {
namespace client {
namespace {

constexpr auto kOwnRegionOptions = std::to_array<NamedOption<RegionOptions>>({
    {"create", set_member<&RegionOptions::create, option_flag>},
    {"level", set_member<&RegionOptions::level, option_one_of<Level::Visible, Level::Durable>>},
    {"staging_bytes", set_member<&RegionOptions::staging_bytes, parse_bytes>},
    {"peer_timeout_ms",
     set_member<&RegionOptions::peer_timeout, option_time<std::chrono::milliseconds>>},
});
constexpr NamedOptions<RegionOptions> kRegionOptions("a region", kOwnRegionOptions);

}  // namespace
}  // namespace client

Result<void> set_option(RegionOptions& options, std::string_view name, std::string_view value) {
  return client::kRegionOptions.set(options, name, value);
}

Result<RegionOptions> parse_region_options(std::string_view connection) {
  return client::kRegionOptions.parse(connection);
}

Result<RegionOptions> read_region_options(const std::string& path) {
  return client::kRegionOptions.read(path);
}

}  // namespace perdure
