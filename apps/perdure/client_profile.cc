// Finding and reading the client's profile.
#include "client_profile.h"

#include "control/documents.h"
#include "control/host_port.h"
#include "control/service_types.h"
#include "core/text_file.h"
#include "core/toml_file.h"
#include "core/try.h"
#include "fabric/fabric.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace perdure::app {
namespace {

constexpr auto kMayBeMissing = TomlFile::Need::Optional;

/// Empty: not set, which is the same as set to nothing.
std::string variable(const char* name) {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): there is one thread
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// What --profile says, wherever it stands; nothing: it is not there.
std::optional<std::string> named_on(int argc, const char* const* argv) {
  constexpr std::string_view kOption = "--profile";
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--") break;
    if (word == kOption && i + 1 < argc) return argv[i + 1];
    if (word.starts_with(kOption) && word.substr(kOption.size()).starts_with('=')) {
      return std::string(word.substr(kOption.size() + 1));
    }
  }
  return std::nullopt;
}

/// Of the user, by the XDG base directory specification; empty: there is no such directory.
std::string file_of_user() {
  const std::string configuration = variable("XDG_CONFIG_HOME");
  if (!configuration.empty()) return configuration + "/perdure/client.toml";
  const std::string home = variable("HOME");
  return home.empty() ? "" : home + "/.config/perdure/client.toml";
}

void stand_in(const char* name, const std::string& value) {
  if (value.empty() || !variable(name).empty()) return;
  ::setenv(name, value.c_str(), 1);  // NOLINT(concurrency-mt-unsafe): there is one thread
}

void read_peers(TomlFile& file, ClientProfile& profile) {
  const TomlFile::Value* value = file.value("", "peers", kMayBeMissing);
  if (value == nullptr) return;
  const auto* list = std::get_if<TomlFile::List>(value);
  if (list == nullptr || list->empty()) {
    return file.problem("", "peers", "is no list of texts like \"host:7470\"");
  }
  for (const TomlFile::ListItem& each : *list) {
    const auto parsed =
        each.text
            ? control::parse_host_port(*each.text)
            : Result<control::HostPort>(Error{ErrorCode::InvalidArgument, "a peer is a text"});
    if (!parsed.ok()) return file.problem_at(each.line, "peers: " + parsed.error().message);
    profile.peers.push_back(*each.text);
  }
}

void read_number(TomlFile& file, const char* key, std::uint64_t low, std::uint64_t high,
                 std::optional<std::uint64_t>& number) {
  constexpr std::uint64_t kNotSaid = ~std::uint64_t{0};
  std::uint64_t value = kNotSaid;
  file.number("", key, kMayBeMissing, low, high, value);
  if (value != kNotSaid) number = value;
}

}  // namespace

Result<ClientProfile> parse_client_profile(std::string_view text, const std::string& name) {
  PERDURE_TRY(file, TomlFile::parse(text, name));
  ClientProfile profile;
  read_peers(file, profile);
  file.parsed("", "pool", kMayBeMissing, profile.pool,
              [](const std::string& word) -> Result<std::string> {
                PERDURE_TRY_VOID(control::validate_pool_name(word));
                return word;
              });
  file.parsed("", "transport", kMayBeMissing, profile.transport,
              [](const std::string& word) -> Result<std::string> {
                PERDURE_TRY_VOID(control::parse_transport_choice(word));
                return word;
              });
  file.text("", "rnic", kMayBeMissing, profile.rnic);
  read_number(file, "rnic_ack_timeout", fabric::kAckTimeoutMin, fabric::kAckTimeoutMax,
              profile.rnic_ack_timeout);
  read_number(file, "rnic_traffic_class", 0, 255, profile.rnic_traffic_class);
  file.number("", "timeout_ms", kMayBeMissing, 1, 3'600'000, profile.timeout_ms);
  PERDURE_TRY_VOID(file.outcome());
  return profile;
}

Result<void> use_client_profile(int argc, const char* const* argv) {
  std::string path = named_on(argc, argv).value_or(variable(kProfileVariable));
  if (path.empty()) {
    path = file_of_user();
    std::error_code unknown;
    if (path.empty() || !std::filesystem::exists(path, unknown)) return {};
  }
  PERDURE_TRY(text, load_text(path, TomlFile::kFileBytesMax));
  PERDURE_TRY(profile, parse_client_profile(text, path));
  stand_in(kPeersVariable, fmt::format("{}", fmt::join(profile.peers, ",")));
  stand_in(kPoolVariable, profile.pool);
  stand_in(kTransportVariable, profile.transport);
  stand_in(kRnicVariable, profile.rnic);
  if (profile.rnic_ack_timeout)
    stand_in(kRnicAckTimeoutVariable, std::to_string(*profile.rnic_ack_timeout));
  if (profile.rnic_traffic_class)
    stand_in(kRnicTrafficClassVariable, std::to_string(*profile.rnic_traffic_class));
  if (profile.timeout_ms != 0) stand_in(kTimeoutVariable, std::to_string(profile.timeout_ms));
  return {};
}

}  // namespace perdure::app
