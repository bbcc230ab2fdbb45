#include "core/byte_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>

namespace perdure {
namespace {

constexpr std::array<std::string_view, 5> kUnits{"", "K", "M", "G", "T"};

std::string in_capitals(std::string_view word) {
  std::string capitals(word);
  std::transform(capitals.begin(), capitals.end(), capitals.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::toupper(letter)); });
  return capitals;
}

}  // namespace

Result<std::uint64_t> parse_bytes(std::string_view word) {
  const Error wrong{
      ErrorCode::InvalidArgument,
      fmt::format("'{}' is not a size; write bytes, or for example 64KiB, 1.5GiB", word)};
  double number = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (error != std::errc() || !(number >= 0)) return wrong;
  std::string unit = in_capitals(word.substr(static_cast<std::size_t>(end - word.data())));
  for (const std::string_view ending : {"IB", "B"}) {
    const bool ends = std::string_view(unit).ends_with(ending);
    if (ends && (ending == "B" || unit.size() == 3)) {
      unit.resize(unit.size() - ending.size());
      break;
    }
  }
  for (std::size_t power = 0; power < kUnits.size(); ++power) {
    if (unit != kUnits[power]) continue;
    const double bytes = std::round(number * std::pow(1024.0, static_cast<double>(power)));
    if (bytes > 9.0e18) return wrong;
    return static_cast<std::uint64_t>(bytes);
  }
  return wrong;
}

std::string format_bytes(std::uint64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double size = static_cast<double>(bytes);
  std::size_t power = 0;
  for (; size >= 1024 && power + 1 < kUnits.size(); ++power) size /= 1024;
  const int digits = size == std::floor(size) ? 0 : size < 10 ? 2 : 1;
  return fmt::format("{:.{}f} {}iB", size, digits, kUnits[power]);
}

}  // namespace perdure
