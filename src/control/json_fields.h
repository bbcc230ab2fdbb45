// JsonFields: reads the fields of one JSON object strictly. Every field has a type and limits; one
// that is missing, of another type or unknown is an error that names it. Nothing throws.
#pragma once

#include <perdure/result.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "core/json.h"

namespace perdure::control {

inline constexpr std::size_t kJsonBytesMax = 64 * 1024;  // of a request
inline constexpr std::size_t kJsonAnswerBytesMax = 8 * 1024 * 1024;
inline constexpr int kJsonDepthMax = 8;

/// Parses a whole document: one object, UTF-8, no repeated keys, at most kJsonDepthMax deep.
/// Errors: InvalidArgument, with the place in the text.
Result<nlohmann::json> parse_json_object(std::string_view text, std::size_t bytes_max);

/// The 16 hexadecimal digits by which 64-bit ids travel: JSON numbers lose bits above 2^53 in
/// many readers.
std::string hexadecimal(std::uint64_t value);

/// Read every field, then ask finish(). After the first error the values read are defaults.
class JsonFields {
 public:
  /// `what` is named in errors, for example "pool request". Requires that `object` outlives this.
  JsonFields(const nlohmann::json& object, std::string what);

  /// Required fields.
  std::string text(const char* key, std::size_t bytes_max);
  std::uint64_t number(const char* key, std::uint64_t max);
  std::uint64_t hex(const char* key);
  bool flag(const char* key);
  /// An empty object or array if it is not there.
  const nlohmann::json& object(const char* key);
  const nlohmann::json& array(const char* key, std::size_t count_max);

  /// Whether an optional field is there.
  bool has(const char* key) const { return object_.contains(key); }

  /// Required text with a parser of its own.
  template <typename Parser>
  auto parsed(const char* key, Parser parser) {
    auto value = parser(text(key, 64));
    using Value = typename std::remove_reference_t<decltype(*value)>;
    if (value.ok()) return Value{*value};
    fail(key, value.error().message);
    return Value{};
  }

  /// "format" is 1, or left out where that is allowed.
  void format(bool required);

  /// Records a failure that a caller found in a field.
  void fail(std::string_view key, std::string_view problem);
  /// Passes on the failure of a nested object.
  void absorb(const Result<void>& nested);

  /// Errors: the first failure, or a field that was never asked for; VersionMismatch for a
  /// `format` this version does not know.
  Result<void> finish() const;

 private:
  const nlohmann::json* find(const char* key);

  const nlohmann::json& object_;
  const std::string what_;
  std::set<std::string, std::less<>> asked_;
  std::optional<Error> error_;
};

}  // namespace perdure::control
