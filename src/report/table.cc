// Tables and numbers as text.
#include "report/table.h"

#include "core/assert.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace perdure::report {
namespace {

/// Characters of UTF-8 text: what it takes on a terminal, as far as we write such.
std::size_t width_of(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

std::string padded(const std::string& text, std::size_t width, bool right) {
  const std::string space(width - std::min(width, width_of(text)), ' ');
  return right ? space + text : text + space;
}

std::string without_trailing_space(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + '"';
}

}  // namespace

std::string_view to_string(Origin origin) {
  switch (origin) {
    case Origin::Measured: return "measured";
    case Origin::Emulated: return "emulated";
    case Origin::Simulated: return "simulated";
    case Origin::Calculated: return "calculated";
  }
  return "unknown";
}

std::string Table::text() const {
  std::vector<std::size_t> widths;
  for (const Column& column : columns) widths.push_back(width_of(column.name));
  for (const auto& row : rows) {
    PERDURE_ASSERT(row.size() == columns.size());
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  }
  std::string header;
  std::string rule;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    if (i > 0) header += "  ", rule += "  ";
    header += padded(columns[i].name, widths[i], columns[i].number);
    rule += std::string(widths[i], '-');
  }
  std::string out = without_trailing_space(header) + "\n" + rule + "\n";
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (i > 0) line += "  ";
      line += padded(row[i], widths[i], columns[i].number);
    }
    out += without_trailing_space(line) + "\n";
  }
  return out;
}

std::string Table::csv() const {
  std::string out;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    out += (i > 0 ? "," : "") + csv_field(columns[i].name);
  }
  out += "\n";
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) out += (i > 0 ? "," : "") + csv_field(row[i]);
    out += "\n";
  }
  return out;
}

std::string figure(double value) {
  const double size = std::abs(value);
  if (size >= 9'999.5) {
    const auto whole = grouped(static_cast<std::uint64_t>(std::llround(size)));
    return value < 0 ? "-" + whole : whole;
  }
  if (size == 0) return "0";
  const int digits = static_cast<int>(std::floor(std::log10(size)));
  return fmt::format("{:.{}f}", value, std::clamp(2 - digits, 0, 6));
}

std::string microseconds(Nanoseconds value) {
  return figure(static_cast<double>(value.count()) / 1e3);
}

std::string duration_text(Nanoseconds value) {
  const auto ns = static_cast<double>(value.count());
  if (ns < 1e3) return fmt::format("{} ns", value.count());
  if (ns < 1e6) return figure(ns / 1e3) + " us";
  if (ns < 1e9) return figure(ns / 1e6) + " ms";
  return figure(ns / 1e9) + " s";
}

std::string grouped(std::uint64_t value) {
  std::string digits = std::to_string(value);
  for (std::size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, 1, ',');
  return digits;
}

}  // namespace perdure::report
