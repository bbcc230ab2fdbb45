#include "log/log_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "control/service_types.h"
#include "core/byte_text.h"
#include "core/text_file.h"
#include "core/toml_file.h"
#include "core/try.h"
#include "fabric/open_device.h"

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

Result<std::optional<Primary>> parse_primary_choice(std::string_view word) {
  if (word == "planned") return std::optional<Primary>{};
  for (const Primary primary : {Primary::Write, Primary::WriteImm, Primary::Send}) {
    if (word == to_string(primary)) return std::optional<Primary>{primary};
  }
  return Error{ErrorCode::InvalidArgument,
               fmt::format("primary '{}'; use one of: planned, write, write_imm, send", word)};
}

}  // namespace log

namespace {

constexpr std::string_view kScheme = "perdure://";

using SetOption = Result<void> (*)(LogOptions&, std::string_view);

struct NamedOption {
  std::string_view name;
  SetOption set;
};

Result<std::uint64_t> option_number(std::string_view word) {
  std::uint64_t number = 0;
  const auto parsed = std::from_chars(word.data(), word.data() + word.size(), number);
  if (parsed.ec != std::errc() || parsed.ptr != word.data() + word.size()) {
    return Error{ErrorCode::InvalidArgument, fmt::format("'{}' is not a whole number", word)};
  }
  return number;
}

/// Up to a year, in whatever unit.
template <typename Duration>
Result<Duration> option_time(std::string_view word) {
  PERDURE_TRY(number, option_number(word));
  const auto longest = std::chrono::duration_cast<Duration>(std::chrono::hours(24 * 365));
  return Duration(std::min<std::uint64_t>(number, static_cast<std::uint64_t>(longest.count())));
}

Result<bool> option_flag(std::string_view word) {
  if (word == "true" || word == "1") return true;
  if (word == "false" || word == "0") return false;
  return Error{ErrorCode::InvalidArgument, fmt::format("'{}' is neither true nor false", word)};
}

Result<Level> option_level(std::string_view word) {
  for (const Level level : {Level::Received, Level::Visible, Level::Durable}) {
    if (word == to_string(level)) return level;
  }
  return Error{ErrorCode::InvalidArgument,
               fmt::format("level '{}'; use one of: received, visible, durable", word)};
}

/// What is too large for it is too large for any such option.
Result<std::uint32_t> option_small_number(std::string_view word) {
  PERDURE_TRY(number, option_number(word));
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(number, UINT32_MAX));
}

Result<std::string> option_text(std::string_view word) { return std::string(word); }

/// Sets the member to what `parse` makes of the word.
template <auto member, auto parse>
Result<void> set_member(LogOptions& options, std::string_view word) {
  PERDURE_TRY(value, parse(word));
  options.*member = std::move(value);
  return {};
}

/// The same of a member of LogOptions::rnic, which must make sense then.
template <auto member, auto parse>
Result<void> set_rnic(LogOptions& options, std::string_view word) {
  PERDURE_TRY(value, parse(word));
  RnicOptions rnic = options.rnic;
  rnic.*member = std::move(value);
  PERDURE_TRY_VOID(fabric::endpoints_for(rnic, {}));
  options.rnic = std::move(rnic);
  return {};
}

constexpr std::array kNamedOptions{
    NamedOption{"quorum", set_member<&LogOptions::quorum, option_number>},
    NamedOption{"create", set_member<&LogOptions::create, option_flag>},
    NamedOption{"partial", set_member<&LogOptions::partial, option_flag>},
    NamedOption{"transport", set_member<&LogOptions::transport, control::parse_transport_choice>},
    NamedOption{"rnic", set_rnic<&RnicOptions::name, option_text>},
    NamedOption{"rnic_ack_timeout", set_rnic<&RnicOptions::ack_timeout, option_small_number>},
    NamedOption{"rnic_traffic_class", set_rnic<&RnicOptions::traffic_class, option_small_number>},
    NamedOption{"shape", set_member<&LogOptions::shape, log::parse_shape_choice>},
    NamedOption{"primary", set_member<&LogOptions::primary, log::parse_primary_choice>},
    NamedOption{"level", set_member<&LogOptions::level, option_level>},
    NamedOption{"record_bytes_max", set_member<&LogOptions::record_bytes_max, parse_bytes>},
    NamedOption{"batches_in_flight", set_member<&LogOptions::batches_in_flight, option_number>},
    NamedOption{"measure_costs", set_member<&LogOptions::measure_costs, option_flag>},
    NamedOption{"take_over", set_member<&LogOptions::take_over, option_flag>},
    NamedOption{"accept_loss", set_member<&LogOptions::accept_loss, option_flag>},
    NamedOption{"writer_name", set_member<&LogOptions::writer_name, option_text>},
    NamedOption{"replica_timeout_ms",
                set_member<&LogOptions::replica_timeout, option_time<std::chrono::milliseconds>>},
    NamedOption{"reconnect_ms",
                set_member<&LogOptions::reconnect, option_time<std::chrono::milliseconds>>},
    NamedOption{"spin_us", set_member<&LogOptions::spin, option_time<std::chrono::microseconds>>},
};

constexpr auto kMayBeMissing = TomlFile::Need::Optional;

/// A value as set_option takes it; nothing: it is none of those.
std::optional<std::string> word_of(const TomlFile::Value& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  if (const auto* number = std::get_if<std::int64_t>(&value)) return std::to_string(*number);
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  return std::nullopt;
}

void read_peers(TomlFile& file, LogOptions& options) {
  const TomlFile::Value* value = file.value("", "peers", TomlFile::Need::Required);
  if (value == nullptr) return;
  const auto* list = std::get_if<TomlFile::List>(value);
  if (list == nullptr || list->empty()) {
    return file.problem("", "peers", "is no list of texts like \"host:7470\"");
  }
  for (const TomlFile::ListItem& each : *list) {
    if (!each.text) return file.problem_at(each.line, "peers: a peer is a text");
    options.peers.push_back(*each.text);
  }
}

Error bad_connection(std::string_view connection, std::string_view why) {
  return Error{ErrorCode::InvalidArgument,
               fmt::format("'{}': {}; it is perdure://HOST:PORT[,HOST:PORT...]/POOL[?NAME=VALUE"
                           "[&NAME=VALUE...]]",
                           connection, why)};
}

/// Takes what stands before the first `separator`, or everything; and the separator.
std::string_view take_until(std::string_view& text, char separator) {
  const std::size_t at = text.find(separator);
  const std::string_view taken = text.substr(0, at);
  text = at == std::string_view::npos ? std::string_view{} : text.substr(at + 1);
  return taken;
}

}  // namespace

Result<void> set_option(LogOptions& options, std::string_view name, std::string_view value) {
  std::string names;
  for (const NamedOption& option : kNamedOptions) {
    if (option.name == name) {
      auto set = option.set(options, value);
      if (set.ok()) return set;
      return Error{set.code(), fmt::format("{}: {}", name, set.error().message)};
    }
    names += fmt::format("{}{}", names.empty() ? "" : ", ", option.name);
  }
  return Error{ErrorCode::InvalidArgument,
               fmt::format("a log has no option '{}'; there are: {}", name, names)};
}

Result<LogOptions> parse_log_options(std::string_view connection) {
  if (connection.substr(0, kScheme.size()) != kScheme) {
    return bad_connection(connection, "it does not begin with perdure://");
  }
  LogOptions options;
  std::string_view settings = connection.substr(kScheme.size());
  std::string_view place = take_until(settings, '?');
  std::string_view peers = take_until(place, '/');
  options.pool = std::string(place);
  if (peers.empty()) return bad_connection(connection, "no peer is named");
  if (place.empty()) return bad_connection(connection, "no pool is named");
  const bool cut_short = peers.back() == ',';
  while (!peers.empty()) options.peers.emplace_back(take_until(peers, ','));
  if (cut_short || std::count(options.peers.begin(), options.peers.end(), std::string()) != 0) {
    return bad_connection(connection, "a peer is empty");
  }
  while (!settings.empty()) {
    std::string_view value = take_until(settings, '&');
    const std::string_view name = take_until(value, '=');
    if (auto set = set_option(options, name, value); !set) {
      return bad_connection(connection, set.error().message);
    }
  }
  return options;
}

Result<LogOptions> read_log_options(const std::string& path) {
  PERDURE_TRY(text, load_text(path, TomlFile::kFileBytesMax));
  PERDURE_TRY(file, TomlFile::parse(text, path));
  LogOptions options;
  read_peers(file, options);
  file.text("", "pool", TomlFile::Need::Required, options.pool);
  for (const NamedOption& option : kNamedOptions) {
    const TomlFile::Value* value = file.value("", option.name, kMayBeMissing);
    if (value == nullptr) continue;
    const auto word = word_of(*value);
    if (!word) {
      file.problem("", option.name, "is neither a text nor a whole number, true or false");
      continue;
    }
    if (auto set = option.set(options, *word); !set) {
      file.problem("", option.name, set.error().message);
    }
  }
  PERDURE_TRY_VOID(file.outcome());
  return options;
}

}  // namespace perdure
