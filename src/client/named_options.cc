#include "client/named_options.h"

#include <fmt/format.h>

#include <charconv>

#include "core/text_file.h"
#include "fabric/open_device.h"

namespace perdure::client {
namespace {

constexpr std::string_view kScheme = "perdure://";

/// Takes what stands before the first `separator`, or everything; and the separator.
std::string_view take_until(std::string_view& text, char separator) {
  const std::size_t at = text.find(separator);
  const std::string_view taken = text.substr(0, at);
  text = at == std::string_view::npos ? std::string_view{} : text.substr(at + 1);
  return taken;
}

template <auto member, auto parse>
Result<void> set_checked(RnicOptions& rnic, std::string_view word) {
  PERDURE_TRY(value, parse(word));
  RnicOptions changed = rnic;
  changed.*member = std::move(value);
  PERDURE_TRY_VOID(fabric::endpoints_for(changed, {}));
  rnic = std::move(changed);
  return {};
}

}  // namespace

Result<std::optional<Primary>> parse_primary_choice(std::string_view word) {
  if (word == "planned") return std::optional<Primary>{};
  using enum Primary;
  auto primary = find_named("primary", word, std::array{Write, WriteImm, Send});
  if (primary.ok()) return std::optional<Primary>{*primary};
  return Error{ErrorCode::InvalidArgument, primary.error().message + ", or planned"};
}

Result<std::uint64_t> option_number(std::string_view word) {
  std::uint64_t number = 0;
  const auto parsed = std::from_chars(word.data(), word.data() + word.size(), number);
  if (parsed.ec != std::errc() || parsed.ptr != word.data() + word.size()) {
    return Error{ErrorCode::InvalidArgument, fmt::format("'{}' is not a whole number", word)};
  }
  return number;
}

Result<std::uint32_t> option_small_number(std::string_view word) {
  PERDURE_TRY(number, option_number(word));
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(number, UINT32_MAX));
}

Result<bool> option_flag(std::string_view word) {
  if (word == "true" || word == "1") return true;
  if (word == "false" || word == "0") return false;
  return Error{ErrorCode::InvalidArgument, fmt::format("'{}' is neither true nor false", word)};
}

Result<std::string> option_text(std::string_view word) { return std::string(word); }

Result<void> set_rnic_name(RnicOptions& rnic, std::string_view word) {
  return set_checked<&RnicOptions::name, option_text>(rnic, word);
}
Result<void> set_rnic_ack_timeout(RnicOptions& rnic, std::string_view word) {
  return set_checked<&RnicOptions::ack_timeout, option_small_number>(rnic, word);
}
Result<void> set_rnic_traffic_class(RnicOptions& rnic, std::string_view word) {
  return set_checked<&RnicOptions::traffic_class, option_small_number>(rnic, word);
}

Error bad_connection(std::string_view connection, std::string_view why,
                     const AddressWords& address) {
  return Error{ErrorCode::InvalidArgument,
               fmt::format("'{}': {}; it is perdure://{}[?NAME=VALUE[&NAME=VALUE...]]", connection,
                           why, address.form)};
}

Result<ConnectionWords> take_apart(std::string_view connection, const AddressWords& address) {
  if (connection.substr(0, kScheme.size()) != kScheme) {
    return bad_connection(connection, "it does not begin with perdure://", address);
  }
  ConnectionWords words;
  std::string_view settings = connection.substr(kScheme.size());
  std::string_view place = take_until(settings, '?');
  std::string_view peers = take_until(place, '/');
  words.name = std::string(place);
  if (peers.empty()) return bad_connection(connection, "no peer is named", address);
  if (place.empty()) {
    return bad_connection(connection, fmt::format("it has no {}", address.name), address);
  }
  const bool cut_short = peers.back() == ',';
  while (!peers.empty()) words.peers.emplace_back(take_until(peers, ','));
  if (cut_short || std::ranges::count(words.peers, std::string()) != 0) {
    return bad_connection(connection, "a peer is empty", address);
  }
  while (!settings.empty()) {
    std::string_view value = take_until(settings, '&');
    const std::string_view name = take_until(value, '=');
    words.options.emplace_back(name, value);
  }
  return words;
}

std::vector<std::string> peers_in(TomlFile& file) {
  std::vector<std::string> peers;
  const TomlFile::Value* value = file.value("", "peers", TomlFile::Need::Required);
  if (value == nullptr) return peers;
  const auto* list = std::get_if<TomlFile::List>(value);
  if (list == nullptr || list->empty()) {
    file.problem("", "peers", "is no list of texts like \"host:7470\"");
    return peers;
  }
  for (const TomlFile::ListItem& each : *list) {
    if (each.text) {
      peers.push_back(*each.text);
    } else {
      file.problem_at(each.line, "peers: a peer is a text");
    }
  }
  return peers;
}

std::optional<std::string> word_of(const TomlFile::Value& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  if (const auto* number = std::get_if<std::int64_t>(&value)) return std::to_string(*number);
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  return std::nullopt;
}

Result<TomlFile> load_options(const std::string& path) {
  PERDURE_TRY(text, load_text(path, TomlFile::kFileBytesMax));
  return TomlFile::parse(text, path);
}

}  // namespace perdure::client
