// Reading TOML into a flat list: see parameter_file.h. The only file of the simulators that sees
// toml++, which takes the compiler long; as headers alone, so that users of the library link
// nothing more.
#include "sim/parameter_file.h"

#include <fmt/format.h>

#define TOML_HEADER_ONLY 1
// Its assertions would end us on input that it refuses a line later ("[#").
#define TOML_ASSERT(expr) static_assert(true)
#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

namespace perdure::sim {

/// Walks the tables of a document.
struct ParameterCollector {
  static constexpr int kDepthMax = 4;
  ParameterFile& file;

  void collect(const toml::table& table, const std::string& name, int depth) {
    for (const auto& [key, node] : table) {
      const std::string word(key.str());
      const auto line = static_cast<std::uint32_t>(key.source().begin.line);
      if (const toml::table* inner = node.as_table()) {
        const std::string inner_name = name.empty() ? word : name + "." + word;
        file.tables_.push_back({inner_name, line});
        if (depth == kDepthMax) return file.note(line, "tables are nested too deep");
        collect(*inner, inner_name, depth + 1);
      } else {
        add_value(name, word, node, line);
      }
    }
  }

  void add_value(const std::string& table, const std::string& key, const toml::node& node,
                 std::uint32_t line) {
    if (const auto whole = node.value_exact<std::int64_t>()) {
      file.entries_.push_back({table, key, *whole, line, false});
    } else if (const auto real = node.value_exact<double>()) {
      file.entries_.push_back({table, key, *real, line, false});
    } else if (const auto flag = node.value_exact<bool>()) {
      file.entries_.push_back({table, key, *flag, line, false});
    } else if (const auto text = node.value_exact<std::string>()) {
      file.entries_.push_back({table, key, *text, line, false});
    } else {
      file.note(line, fmt::format("{}: is neither a number, a text, true nor false", key));
    }
  }
};

Result<ParameterFile> ParameterFile::read(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                             std::fclose);
  if (!file) {
    const auto code = errno == ENOENT ? ErrorCode::NotFound : ErrorCode::SystemError;
    return Error{code, fmt::format("{} can not be read: {}", path, std::strerror(errno))};
  }
  std::string text(kFileBytesMax + 1, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  if (std::ferror(file.get()) != 0) {
    return Error{ErrorCode::SystemError, fmt::format("{} can not be read", path)};
  }
  return parse(text, path);
}

Result<ParameterFile> ParameterFile::parse(std::string_view text, std::string name) {
  ParameterFile file(std::move(name));
  if (text.size() > kFileBytesMax) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("{}: is longer than {} bytes", file.name_, kFileBytesMax)};
  }
  const toml::parse_result document = toml::parse(text);
  if (!document) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("{}:{}: {}", file.name_, document.error().source().begin.line,
                             document.error().description())};
  }
  ParameterCollector{file}.collect(document.table(), "", 0);
  const auto in_file = [](const auto& a, const auto& b) { return a.line < b.line; };
  std::stable_sort(file.entries_.begin(), file.entries_.end(), in_file);
  std::stable_sort(file.tables_.begin(), file.tables_.end(), in_file);
  return file;
}

bool ParameterFile::has_table(std::string_view table) const {
  return std::any_of(tables_.begin(), tables_.end(),
                     [&](const Table& each) { return each.name == table; });
}

bool ParameterFile::has(std::string_view table, std::string_view key) const {
  return std::any_of(entries_.begin(), entries_.end(),
                     [&](const Entry& each) { return each.table == table && each.key == key; });
}

std::vector<std::string> ParameterFile::tables_in(std::string_view table) const {
  std::vector<std::string> names;
  const std::string prefix = std::string(table) + ".";
  for (const Table& each : tables_) {
    if (each.name.starts_with(prefix) && each.name.find('.', prefix.size()) == std::string::npos) {
      names.push_back(each.name.substr(prefix.size()));
    }
  }
  return names;
}

ParameterFile::Entry* ParameterFile::find(std::string_view table, std::string_view key, Need need) {
  asked_.emplace_back(table, key);
  for (Entry& each : entries_) {
    if (each.table != table || each.key != key) continue;
    each.asked = true;
    return &each;
  }
  if (need == Need::Required) problem(table, key, "is missing");
  return nullptr;
}

void ParameterFile::number(std::string_view table, std::string_view key, Need need,
                           std::uint64_t min, std::uint64_t max, std::uint64_t& target) {
  const Entry* entry = find(table, key, need);
  if (entry == nullptr) return;
  const auto* value = std::get_if<std::int64_t>(&entry->value);
  if (value == nullptr) return problem(table, key, "is not a whole number");
  const bool fits = *value >= 0 && static_cast<std::uint64_t>(*value) >= min &&
                    static_cast<std::uint64_t>(*value) <= max;
  if (!fits) {
    return problem(table, key, fmt::format("{} is not between {} and {}", *value, min, max));
  }
  target = static_cast<std::uint64_t>(*value);
}

void ParameterFile::real(std::string_view table, std::string_view key, Need need, double min,
                         double max, double& target) {
  const Entry* entry = find(table, key, need);
  if (entry == nullptr) return;
  double value = 0;
  if (const auto* real = std::get_if<double>(&entry->value)) {
    value = *real;
  } else if (const auto* whole = std::get_if<std::int64_t>(&entry->value)) {
    value = static_cast<double>(*whole);
  } else {
    return problem(table, key, "is not a number");
  }
  if (!(value >= min && value <= max)) {
    return problem(table, key, fmt::format("{} is not between {} and {}", value, min, max));
  }
  target = value;
}

void ParameterFile::flag(std::string_view table, std::string_view key, Need need, bool& target) {
  const Entry* entry = find(table, key, need);
  if (entry == nullptr) return;
  const auto* value = std::get_if<bool>(&entry->value);
  if (value == nullptr) return problem(table, key, "is neither true nor false");
  target = *value;
}

void ParameterFile::text(std::string_view table, std::string_view key, Need need,
                         std::string& target) {
  const Entry* entry = find(table, key, need);
  if (entry == nullptr) return;
  const auto* value = std::get_if<std::string>(&entry->value);
  if (value == nullptr) return problem(table, key, "is not a text");
  target = *value;
}

void ParameterFile::quantity(std::string_view table, std::string_view key, Need need,
                             std::string_view unit, double min, double max, double& target) {
  asked_.emplace_back(table, key);
  const std::string name = fmt::format("{}.{}", table, key);
  if (!has_table(name)) {
    if (has(table, key)) {
      problem(table, key, R"(has no unit: write {value = ..., unit = "...", source = "..."})");
    } else if (need == Need::Required) {
      problem(table, key, "is missing");
    }
    return;
  }
  std::string its_unit;
  std::string source;
  real(name, "value", Need::Required, min, max, target);
  text(name, "unit", Need::Required, its_unit);
  text(name, "source", Need::Required, source);
  if (!its_unit.empty() && its_unit != unit) {
    problem(name, "unit",
            fmt::format("'{}' is not the unit of this one, which is {}", its_unit, unit));
  }
}

void ParameterFile::problem(std::string_view table, std::string_view key, std::string_view what) {
  for (const Entry& each : entries_) {
    if (each.table == table && each.key == key) {
      return note(each.line, fmt::format("[{}] {}: {}", table, key, what));
    }
  }
  for (const Table& each : tables_) {
    if (each.name == table) return note(each.line, fmt::format("[{}] {}: {}", table, key, what));
  }
  note(0, fmt::format("[{}] {}: {}", table, key, what));
}

void ParameterFile::note(std::uint32_t line, std::string_view what) {
  if (first_) return;
  first_ =
      Error{ErrorCode::InvalidArgument, line == 0 ? fmt::format("{}: {}", name_, what)
                                                  : fmt::format("{}:{}: {}", name_, line, what)};
}

std::string ParameterFile::known_keys(std::string_view table) const {
  std::vector<std::string> keys;
  for (const auto& [of, key] : asked_) {
    if (of == table && std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
  }
  return fmt::format("{}", fmt::join(keys, ", "));
}

Result<void> ParameterFile::outcome() {
  for (const Entry& each : entries_) {
    if (each.asked) continue;
    const std::string keys = known_keys(each.table);
    const std::string known = keys.empty() ? "" : "; known are: " + keys;
    note(each.line, fmt::format("'{}' is not a key of [{}]{}", each.key, each.table, known));
    break;
  }
  for (const Table& each : tables_) {
    const auto inside = [&](const std::string& asked) {
      return asked == each.name || asked.starts_with(each.name + ".");
    };
    const bool known = std::any_of(asked_.begin(), asked_.end(), [&](const auto& one) {
      return inside(one.first) || one.first + "." + one.second == each.name;
    });
    if (!known) note(each.line, fmt::format("[{}] is not a table of this file", each.name));
  }
  if (first_) return *first_;
  return {};
}

}  // namespace perdure::sim
