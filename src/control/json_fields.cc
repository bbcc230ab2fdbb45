// Strict reading of JSON objects: see json_fields.h.
#include "control/json_fields.h"

#include <fmt/format.h>

#include <charconv>

namespace perdure::control {
namespace {

using nlohmann::json;

/// Watches a document while it is parsed: depth, and keys that come twice.
class ParseWatch {
 public:
  bool operator()(int depth, json::parse_event_t event, json& value) {
    if (depth >= kJsonDepthMax) problem_ = "it is nested too deeply";
    if (event == json::parse_event_t::object_start) keys_.emplace_back();
    if (event == json::parse_event_t::object_end) keys_.pop_back();
    if (event == json::parse_event_t::key) {
      const auto& key = value.get_ref<const std::string&>();
      if (!keys_.back().insert(key).second) problem_ = fmt::format("'{}' is there twice", key);
    }
    return true;
  }
  const std::string& problem() const { return problem_; }

 private:
  std::vector<std::set<std::string>> keys_;
  std::string problem_;
};

Error not_json(std::string_view problem) {
  return {ErrorCode::InvalidArgument, fmt::format("not a JSON object as expected: {}", problem)};
}

const json& empty_object() {
  static const json empty = json::object();
  return empty;
}

const json& empty_array() {
  static const json empty = json::array();
  return empty;
}

}  // namespace

Result<json> parse_json_object(std::string_view text, std::size_t bytes_max) {
  if (text.size() > bytes_max) {
    return not_json(fmt::format("{} bytes are more than the limit of {}", text.size(), bytes_max));
  }
  ParseWatch watch;
  try {
    json document = json::parse(text.begin(), text.end(), std::ref(watch));
    if (!watch.problem().empty()) return not_json(watch.problem());
    if (!document.is_object()) return not_json(fmt::format("it is a {}", document.type_name()));
    return document;
  } catch (const json::exception& error) {
    // Its messages begin with a number of the library's: "[json.exception.parse_error.101] ".
    const std::string_view message = error.what();
    const std::size_t prefix = message.find("] ");
    return not_json(prefix == message.npos ? message : message.substr(prefix + 2));
  }
}

std::string hexadecimal(std::uint64_t value) { return fmt::format("{:016x}", value); }

JsonFields::JsonFields(const json& object, std::string what)
    : object_(object.is_object() ? object : empty_object()), what_(std::move(what)) {
  if (!object.is_object()) fail("", "is not an object");
}

const json* JsonFields::find(const char* key) {
  asked_.insert(key);
  const auto found = object_.find(key);
  if (found != object_.end()) return &*found;
  fail(key, "is missing");
  return nullptr;
}

std::string JsonFields::text(const char* key, std::size_t bytes_max) {
  const json* value = find(key);
  if (value == nullptr) return {};
  const auto* text = value->get_ptr<const json::string_t*>();
  if (text == nullptr) {
    fail(key, "is not a string");
  } else if (text->size() > bytes_max) {
    fail(key, fmt::format("is longer than {} bytes", bytes_max));
  } else {
    return *text;
  }
  return {};
}

std::uint64_t JsonFields::number(const char* key, std::uint64_t max) {
  const json* value = find(key);
  if (value == nullptr) return 0;
  if (!value->is_number_unsigned()) {
    fail(key, "is not a whole number from 0");
    return 0;
  }
  const auto number = value->get<std::uint64_t>();
  if (number <= max) return number;
  fail(key, fmt::format("is above {}", max));
  return 0;
}

std::uint64_t JsonFields::hex(const char* key) {
  const std::string digits = text(key, 16);
  if (error_) return 0;
  std::uint64_t value = 0;
  const char* const end = digits.data() + digits.size();
  const auto [stopped, error] = std::from_chars(digits.data(), end, value, 16);
  if (error == std::errc{} && stopped == end) return value;
  fail(key, "is not 1 to 16 hexadecimal digits");
  return 0;
}

bool JsonFields::flag(const char* key) {
  const json* value = find(key);
  if (value == nullptr) return false;
  if (value->is_boolean()) return value->get<bool>();
  fail(key, "is neither true nor false");
  return false;
}

const json& JsonFields::object(const char* key) {
  const json* value = find(key);
  if (value == nullptr) return empty_object();
  if (value->is_object()) return *value;
  fail(key, "is not an object");
  return empty_object();
}

const json& JsonFields::array(const char* key, std::size_t count_max) {
  const json* value = find(key);
  if (value == nullptr) return empty_array();
  if (value->is_array() && value->size() <= count_max) return *value;
  fail(key, fmt::format("is not an array of at most {}", count_max));
  return empty_array();
}

void JsonFields::format(bool required) {
  asked_.insert("format");
  if (!required && !has("format")) return;
  const std::uint64_t format = number("format", UINT32_MAX);
  if (error_ || format == 1) return;
  error_ = Error{ErrorCode::VersionMismatch,
                 fmt::format("{}: format {} is not known here, only 1; both sides must run "
                             "versions of Perdure that know the same format",
                             what_, format)};
}

void JsonFields::fail(std::string_view key, std::string_view problem) {
  if (error_) return;
  error_ = Error{ErrorCode::InvalidArgument, key.empty()
                                                 ? fmt::format("{} {}", what_, problem)
                                                 : fmt::format("{}: '{}' {}", what_, key, problem)};
}

void JsonFields::absorb(const Result<void>& nested) {
  if (!nested && !error_) error_ = nested.error();
}

Result<void> JsonFields::finish() const {
  if (error_) return *error_;
  for (const auto& [key, value] : object_.items()) {
    if (asked_.count(key) != 0) continue;
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("{}: '{}' is not known; known are: {}", what_, key.substr(0, 64),
                             fmt::join(asked_, ", "))};
  }
  return {};
}

}  // namespace perdure::control
