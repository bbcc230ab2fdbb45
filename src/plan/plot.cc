// Cost over size: as SVG, both axes logarithmic, one polyline per candidate; and as bars of text.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "core/try.h"
#include "plan/render.h"

namespace perdure::plan {
namespace {

constexpr double kLeft = 70;
constexpr double kTop = 50;
constexpr double kWidth = 620;
constexpr double kHeight = 340;
constexpr double kLegend = 300;

/// One curve: (bytes, microseconds).
using Curve = std::vector<std::pair<double, double>>;

struct Axis {
  double low = 1;
  double high = 10;
  /// 0 at `low`, 1 at `high`.
  double at(double value) const {
    return (std::log10(value) - std::log10(low)) / (std::log10(high) - std::log10(low));
  }
};

std::string bytes_words(double bytes) {
  if (bytes >= 1 << 20) return fmt::format("{:.0f} MiB", bytes / (1 << 20));
  if (bytes >= 1 << 10) return fmt::format("{:.0f} KiB", bytes / (1 << 10));
  return fmt::format("{:.0f} B", bytes);
}

std::string grid(const Axis& x, const Axis& y) {
  std::string svg;
  for (double value = x.low; value <= x.high; value *= 16) {
    const double at = kLeft + kWidth * x.at(value);
    svg += fmt::format(
        "<line x1=\"{0:.1f}\" y1=\"{1}\" x2=\"{0:.1f}\" y2=\"{2}\" stroke=\"#e0e0e0\"/>"
        "<text x=\"{0:.1f}\" y=\"{3}\" text-anchor=\"middle\">{4}</text>\n",
        at, kTop, kTop + kHeight, kTop + kHeight + 18, bytes_words(value));
  }
  for (double value = y.low; value <= y.high * 1.001; value *= 10) {
    const double at = kTop + kHeight * (1 - y.at(value));
    svg += fmt::format(
        "<line x1=\"{0}\" y1=\"{1:.1f}\" x2=\"{2}\" y2=\"{1:.1f}\" stroke=\"#e0e0e0\"/>"
        "<text x=\"{3}\" y=\"{1:.1f}\" dy=\"4\" text-anchor=\"end\">{4:g} us</text>\n",
        kLeft, at, kLeft + kWidth, kLeft - 6, value);
  }
  return svg;
}

/// Where the choice changes: a dashed line, and from how many bytes on it is which method.
std::string borders(const std::vector<Crossover>& changes, const Axis& x) {
  std::string svg;
  for (std::size_t index = 1; index < changes.size(); ++index) {
    const double at = kLeft + kWidth * x.at(static_cast<double>(changes[index].bytes));
    const double row = kTop + kHeight - 8 - 16 * static_cast<double>(index - 1);
    svg += fmt::format(
        "<line x1=\"{0:.1f}\" y1=\"{1}\" x2=\"{0:.1f}\" y2=\"{2}\" stroke=\"#555555\" "
        "stroke-dasharray=\"5 4\"/>"
        "<text x=\"{3:.1f}\" y=\"{4}\" text-anchor=\"{5}\" fill=\"#333333\">from {6} bytes: "
        "{7}</text>\n",
        at, kTop, kTop + kHeight, at < kLeft + kWidth / 2 ? at + 5 : at - 5, row,
        at < kLeft + kWidth / 2 ? "start" : "end", changes[index].bytes,
        changes[index].method.name);
  }
  return svg;
}

std::string curves(const std::map<std::string, Curve>& by_name, const Axis& x, const Axis& y) {
  static constexpr std::array kColors = {"#1f4e79", "#b3261e", "#2e7d32", "#8e5a00",
                                         "#6a1b9a", "#00838f", "#5d4037", "#616161"};
  std::string svg;
  std::size_t index = 0;
  for (const auto& [name, curve] : by_name) {
    const char* color = kColors[index % kColors.size()];
    std::string points;
    for (const auto& [bytes, microseconds] : curve) {
      points += fmt::format("{:.1f},{:.1f} ", kLeft + kWidth * x.at(bytes),
                            kTop + kHeight * (1 - y.at(microseconds)));
    }
    const double row = kTop + 14 + 18 * static_cast<double>(index);
    svg += fmt::format(
        "<polyline points=\"{0}\" fill=\"none\" stroke=\"{1}\" stroke-width=\"1.8\"/>"
        "<text x=\"{2}\" y=\"{3}\" fill=\"{1}\">{4}</text>\n",
        points, color, kLeft + kWidth + 14, row, name);
    ++index;
  }
  return svg;
}

}  // namespace

Result<std::string> cost_plot_svg(const ServerProfile& server, const Update& update,
                                  const CostModel& costs, std::uint64_t bytes_max) {
  std::map<std::string, Curve> by_name;
  Axis y{1e9, 0};
  for (std::uint64_t bytes = 1; bytes <= bytes_max; bytes *= 2) {
    Update sized = update;
    sized.bytes = bytes;
    PERDURE_TRY(found, candidates(server, sized, costs));
    for (const Candidate& candidate : found) {
      const double microseconds = std::max(candidate.cost_ns / 1000, 0.001);
      by_name[candidate.method.name].emplace_back(static_cast<double>(bytes), microseconds);
      y.low = std::min(y.low, microseconds);
      y.high = std::max(y.high, microseconds);
    }
    if (bytes > bytes_max / 2) break;
  }
  y.low = std::pow(10, std::floor(std::log10(y.low)));
  y.high = std::pow(10, std::floor(std::log10(y.high)) + 1);
  const Axis x{1, static_cast<double>(std::max<std::uint64_t>(bytes_max, 2))};
  PERDURE_TRY(changes, crossovers(server, update, costs, bytes_max));
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
             "height=\"{1}\" font-family=\"sans-serif\" font-size=\"12\">\n"
             "<rect width=\"{0}\" height=\"{1}\" fill=\"#ffffff\"/>\n"
             "<text x=\"10\" y=\"24\" font-size=\"15\">expected cost by record size: {2}, {3}; "
             "costs: {4}</text>\n",
             kLeft + kWidth + kLegend, kTop + kHeight + 40, perdure::describe(server),
             to_string(update.shape), source_of(costs)) +
         grid(x, y) + borders(changes, x) + curves(by_name, x, y) + "</svg>\n";
}

Result<std::string> cost_plot_text(const ServerProfile& server, const Update& update,
                                   const CostModel& costs, std::uint64_t bytes_max) {
  constexpr double kBarPerDecade = 10;
  PERDURE_TRY(changes, crossovers(server, update, costs, bytes_max));
  std::string text;
  std::size_t shown = 0;
  for (std::uint64_t bytes = 1;; bytes *= 4) {
    for (; shown < changes.size() && changes[shown].bytes <= bytes; ++shown) {
      text +=
          fmt::format("-- from {} bytes: {}\n", changes[shown].bytes, changes[shown].method.name);
    }
    Update sized = update;
    sized.bytes = bytes;
    PERDURE_TRY(found, candidates(server, sized, costs));
    const double microseconds = found.front().cost_ns / 1000;
    const double decades = std::log10(std::max(microseconds, 0.01)) + 2;  // from 10 ns on
    text += fmt::format("{:>10} {:>12.2f} us  {}\n", bytes_words(static_cast<double>(bytes)),
                        microseconds,
                        std::string(static_cast<std::size_t>(decades * kBarPerDecade) + 1, '#'));
    if (bytes > bytes_max / 4) return text;
  }
}

}  // namespace perdure::plan
