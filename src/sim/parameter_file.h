// ParameterFile: the parameters of simulated hardware, read from TOML and refused when wrong.
// Every error names the file and a line or a key. What the keys mean is left to who asks for them.
#pragma once

#include <perdure/result.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace perdure::sim {

class ParameterFile {
 public:
  static constexpr std::size_t kFileBytesMax = std::size_t{1} << 20;

  /// Errors: InvalidArgument with the line; NotFound or SystemError when it can not be read.
  static Result<ParameterFile> read(const std::string& path);
  static Result<ParameterFile> parse(std::string_view text, std::string name);

  bool has_table(std::string_view table) const;
  bool has(std::string_view table, std::string_view key) const;
  /// Names of the tables inside `table`, in the order of the file.
  std::vector<std::string> tables_in(std::string_view table) const;

  // Each notes the first problem; the target changes only when the value is right. `required`
  // values that are missing are a problem.
  enum class Need { Required, Optional };
  void number(std::string_view table, std::string_view key, Need need, std::uint64_t min,
              std::uint64_t max, std::uint64_t& target);
  void real(std::string_view table, std::string_view key, Need need, double min, double max,
            double& target);
  void flag(std::string_view table, std::string_view key, Need need, bool& target);
  void text(std::string_view table, std::string_view key, Need need, std::string& target);

  /// A quantity written as `key = {value = 1.5, unit = "ns", source = "..."}`; unit and source must
  /// be there, and the unit must be this one.
  void quantity(std::string_view table, std::string_view key, Need need, std::string_view unit,
                double min, double max, double& target);

  /// Notes a problem of a key, or of the whole file if there is no such key.
  void problem(std::string_view table, std::string_view key, std::string_view what);

  /// The first problem; a key that nobody asked for is one.
  Result<void> outcome();
  const std::string& name() const { return name_; }

 private:
  using Value = std::variant<std::int64_t, double, bool, std::string>;
  struct Entry {
    std::string table;
    std::string key;
    Value value;
    std::uint32_t line = 0;
    bool asked = false;
  };
  struct Table {
    std::string name;
    std::uint32_t line = 0;
  };
  friend struct ParameterCollector;

  explicit ParameterFile(std::string name) : name_(std::move(name)) {}
  Entry* find(std::string_view table, std::string_view key, Need need);
  void note(std::uint32_t line, std::string_view what);
  std::string known_keys(std::string_view table) const;

  std::string name_;
  std::vector<Entry> entries_;
  std::vector<Table> tables_;
  std::vector<std::pair<std::string, std::string>> asked_;  // (table, key), for messages
  std::optional<Error> first_;
};

}  // namespace perdure::sim
