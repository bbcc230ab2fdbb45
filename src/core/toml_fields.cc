// Strict reading of TOML tables: see toml_fields.h.
#include "toml_fields.h"

#include <fmt/format.h>

namespace perdure {

void TomlProblems::add(const toml::source_region& where, const std::string& problem) {
  if (first_) return;
  first_ =
      Error{ErrorCode::InvalidArgument, fmt::format("{}:{}: {}", file_, where.begin.line, problem)};
}

Result<void> TomlProblems::outcome() const {
  if (first_) return *first_;
  return {};
}

TomlFields::~TomlFields() {
  if (table_ == nullptr) return;
  for (const auto& [key, value] : *table_) {
    if (asked_.count(key.str()) != 0) continue;
    problems_.add(key.source(), fmt::format("'{}' is not a key of [{}]; known are: {}", key.str(),
                                            name_, fmt::join(asked_, ", ")));
  }
}

const toml::node* TomlFields::find(std::string_view key) {
  asked_.emplace(key);
  return table_ == nullptr ? nullptr : table_->get(key);
}

void TomlFields::problem(const toml::node& node, std::string_view key, std::string_view what) {
  problems_.add(node.source(), fmt::format("[{}] {}: {}", name_, key, what));
}

void TomlFields::text(std::string_view key, std::string& target) {
  const toml::node* node = find(key);
  if (node == nullptr) return;
  if (const auto value = node->value_exact<std::string>())
    target = *value;
  else
    problem(*node, key, "is not a string");
}

void TomlFields::flag(std::string_view key, bool& target) {
  const toml::node* node = find(key);
  if (node == nullptr) return;
  if (const auto value = node->value_exact<bool>())
    target = *value;
  else
    problem(*node, key, "is neither true nor false");
}

void TomlFields::number(std::string_view key, std::uint64_t min, std::uint64_t max,
                        std::size_t& target) {
  const toml::node* node = find(key);
  if (node == nullptr) return;
  const auto value = node->value_exact<std::int64_t>();
  if (!value || *value < 0) return problem(*node, key, "is not a whole number from 0");
  const auto number = static_cast<std::uint64_t>(*value);
  if (number >= min && number <= max)
    target = number;
  else
    problem(*node, key, fmt::format("{} is not between {} and {}", number, min, max));
}

const toml::table* TomlFields::table(std::string_view key) {
  const toml::node* node = find(key);
  if (node == nullptr) return nullptr;
  if (const toml::table* inner = node->as_table()) return inner;
  problem(*node, key, "is not a table");
  return nullptr;
}

}  // namespace perdure
