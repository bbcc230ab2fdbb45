// The options of a mirror as words.
#include <perdure/mirror.h>

#include <array>
#include <chrono>

#include "client/named_options.h"
#include "core/byte_text.h"

namespace perdure {
namespace client {
namespace {

constexpr auto kOwnMirrorOptions = std::to_array<NamedOption<MirrorOptions>>({
    {"start",
     set_member<&MirrorOptions::start,
                option_one_of<MirrorStart::New, MirrorStart::Local, MirrorStart::Replicas>>},
    {"without_missing", set_member<&MirrorOptions::without_missing, option_flag>},
    {"only_copies", set_member<&MirrorOptions::only_copies, option_flag>},
    {"staging_bytes", set_member<&MirrorOptions::staging_bytes, parse_bytes>},
    {"peer_timeout_ms",
     set_member<&MirrorOptions::peer_timeout, option_time<std::chrono::milliseconds>>},
});
constexpr NamedOptions<MirrorOptions> kMirrorOptions("a mirror", kOwnMirrorOptions);

}  // namespace
}  // namespace client

Result<void> set_option(MirrorOptions& options, std::string_view name, std::string_view value) {
  return client::kMirrorOptions.set(options, name, value);
}

Result<MirrorOptions> parse_mirror_options(std::string_view connection) {
  return client::kMirrorOptions.parse(connection);
}

Result<MirrorOptions> read_mirror_options(const std::string& path) {
  return client::kMirrorOptions.read(path);
}

}  // namespace perdure
