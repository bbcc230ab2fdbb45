// TomlFile: a TOML file read strictly. What is wrong and what nobody asked for is refused, with the
// file and a line. What the keys mean is left to who asks for them.
#pragma once

#include <perdure/result.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace perdure {

class TomlFile {
 public:
  static constexpr std::size_t kFileBytesMax = std::size_t{1} << 20;

  /// `name` stands in errors. Errors: InvalidArgument, with the line.
  static Result<TomlFile> parse(std::string_view text, std::string name);

  // A table is named by its path, "a.b"; the keys outside of all tables have the table "".
  bool has_table(std::string_view table) const;
  bool has(std::string_view table, std::string_view key) const;
  /// Names of the tables inside `table`, and of its other keys, in the order of the file. `table`
  /// may then be there and have none.
  std::vector<std::string> tables_in(std::string_view table);
  std::vector<std::string> keys_in(std::string_view table);

  // Each notes the first problem; the target changes only when the value is right. `required`
  // values that are missing are a problem.
  enum class Need { Required, Optional };
  void number(std::string_view table, std::string_view key, Need need, std::uint64_t min,
              std::uint64_t max, std::uint64_t& target);
  void real(std::string_view table, std::string_view key, Need need, double min, double max,
            double& target);
  void flag(std::string_view table, std::string_view key, Need need, bool& target);
  void text(std::string_view table, std::string_view key, Need need, std::string& target);
  /// A text with a parser of its own that returns Result<T>.
  template <typename Target, typename Parser>
  void parsed(std::string_view table, std::string_view key, Need need, Target& target,
              Parser parser) {
    const Value* found = value(table, key, need);
    if (found == nullptr) return;
    const auto* word = std::get_if<std::string>(found);
    if (word == nullptr) return problem(table, key, "is not a string");
    auto read = parser(*word);
    if (read.ok())
      target = std::move(read).value();
    else
      problem(table, key, read.error().message);
  }

  /// One value of a list; of a list in a list, or of a table, nothing but the line.
  struct ListItem {
    std::optional<std::string> text;
    std::uint32_t line = 0;
  };
  using List = std::vector<ListItem>;
  using Value = std::variant<std::int64_t, double, bool, std::string, List>;
  /// Of any kind; null: it is missing. Valid as long as this is.
  const Value* value(std::string_view table, std::string_view key, Need need);

  /// Notes a problem of a key, or of the whole file if there is no such key.
  void problem(std::string_view table, std::string_view key, std::string_view what);
  void problem_at(std::uint32_t line, std::string_view what);

  /// The first problem; a key that nobody asked for is one.
  Result<void> outcome();
  const std::string& name() const { return name_; }

 protected:
  void note_asked(std::string_view table, std::string_view key) { asked_.emplace_back(table, key); }

 private:
  struct Entry {
    std::string table;
    std::string key;
    Value value;
    std::uint32_t line = 0;
    bool asked = false;
  };
  struct Table {
    std::string inside;  // the path of the table around it
    std::string word;
    std::string path;
    std::uint32_t line = 0;
  };
  friend struct TomlCollector;

  explicit TomlFile(std::string name) : name_(std::move(name)) {}
  bool asked_about(std::string_view path) const;
  void refuse_unknown(std::uint32_t line, std::string_view table, std::string_view word);

  std::string name_;
  std::vector<Entry> entries_;
  std::vector<Table> tables_;
  std::vector<std::pair<std::string, std::string>> asked_;  // (table, key)
  std::optional<Error> first_;
};

}  // namespace perdure
