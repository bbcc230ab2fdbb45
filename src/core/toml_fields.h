// TomlFields: reads the keys of one TOML table strictly. Every error has file and line.
#pragma once

#include <perdure/result.h>

#include <toml++/toml.h>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>

namespace perdure {

/// Where a problem is, and the first one found. Shared by all tables of a file.
class TomlProblems {
 public:
  explicit TomlProblems(std::string file) : file_(std::move(file)) {}

  void add(const toml::source_region& where, const std::string& problem);
  Result<void> outcome() const;

 private:
  const std::string file_;
  std::optional<Error> first_;
};

/// Reads keys that may be missing: the target then keeps its default. The destructor reports keys
/// that nobody asked for.
class TomlFields {
 public:
  /// Of a table that is not there: every key is missing.
  TomlFields(const toml::table* table, std::string name, TomlProblems& problems)
      : table_(table), name_(std::move(name)), problems_(problems) {}
  ~TomlFields();
  TomlFields(const TomlFields&) = delete;
  TomlFields& operator=(const TomlFields&) = delete;

  void text(std::string_view key, std::string& target);
  void flag(std::string_view key, bool& target);
  void number(std::string_view key, std::uint64_t min, std::uint64_t max, std::size_t& target);
  /// Text with a parser of its own that returns Result<T>.
  template <typename Target, typename Parser>
  void parsed(std::string_view key, Target& target, Parser parser) {
    std::string word;
    text(key, word);
    const toml::node* node = find(key);
    if (node == nullptr || !node->is_string()) return;
    auto value = parser(word);
    if (value.ok())
      target = *value;
    else
      problem(*node, key, value.error().message);
  }

  const toml::table* table(std::string_view key);
  /// Any kind of value; nothing if it is missing.
  const toml::node* find(std::string_view key);
  void problem(const toml::node& node, std::string_view key, std::string_view what);

 private:
  const toml::table* table_;
  const std::string name_;
  TomlProblems& problems_;
  std::set<std::string, std::less<>> asked_;
};

}  // namespace perdure
