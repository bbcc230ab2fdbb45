// Grouped bars in panels.
#include "report/charts.h"
#include "report/svg.h"

#include <fmt/format.h>

#include <algorithm>

namespace perdure::report {
namespace {

constexpr double kBarsWidth = 820;
constexpr double kBarsLeft = 44;
constexpr double kPanelGap = 18;
constexpr double kPanelHeight = 190;
constexpr double kTitleHeight = 26;
constexpr double kLabelHeight = 46;
constexpr double kRowHeight = kTitleHeight + kPanelHeight + kLabelHeight;
constexpr double kLegendHeight = 26;
constexpr double kLevelWidth = 34;     // of a bar, from which on its value stands above it
constexpr double kUprightWidth = 11;   // from which on it stands in it
constexpr double kUprightHeight = 34;  // what an upright value takes

double largest_value(const BarChart& chart) {
  double largest = 0;
  for (const auto& panel : chart.panels) {
    for (const auto& group : panel.groups) {
      for (const auto& bar : group.bars) largest = std::max({largest, bar.value, bar.high});
    }
  }
  return largest;
}

/// Above the bar where it is wide enough, else upright inside of it, else above and upright.
void draw_value(Svg& svg, double value, double middle, double width, double top, double bottom) {
  const std::string words = fmt::format("{:.3g}", value);
  if (value <= 0 || width < kUprightWidth) return;
  if (width >= kLevelWidth) {
    svg.text(middle, top - 4, words, "value", Anchor::Middle);
  } else if (bottom - top >= kUprightHeight) {
    svg.upright_text(middle + 4, top + 5, words, "inside");
  } else {
    svg.upright_text(middle + 4, top - kUprightHeight, words, "value");
  }
}

void draw_group(Svg& svg, const BarChart::Group& group, double x, double width, const Axis& axis) {
  const double bottom = axis.at(0);
  const double bar_width = width * 0.82 / static_cast<double>(group.bars.size());
  for (std::size_t i = 0; i < group.bars.size(); ++i) {
    const auto& bar = group.bars[i];
    const double left = x + width * 0.09 + bar_width * static_cast<double>(i);
    const double top = axis.at(bar.value);
    svg.rectangle(left + 1, top, bar_width - 2, bottom - top, fmt::format("fill{}", i + 1),
                  bar.hover);
    if (bar.high > bar.low) {
      const double middle = left + bar_width / 2;
      svg.line(middle, axis.at(bar.low), middle, axis.at(bar.high), "whisker");
    }
    draw_value(svg, bar.value, left + bar_width / 2, bar_width, top, bottom);
  }
  const std::size_t second = group.label.find('\n');
  svg.text(x + width / 2, bottom + 16, group.label.substr(0, second), "label", Anchor::Middle);
  if (second == std::string::npos) return;
  svg.text(x + width / 2, bottom + 30, group.label.substr(second + 1), "label", Anchor::Middle);
}

void draw_panel(Svg& svg, const BarChart::Panel& panel, double x, double width, double top,
                double scale_max, bool first) {
  const double bottom = top + kTitleHeight + kPanelHeight;
  const Axis axis = Axis::linear(scale_max, bottom, top + kTitleHeight + 12);
  svg.text(x, top + 14, panel.title, "panel");
  for (const Axis::Tick& tick : axis.ticks()) {
    const double y = axis.at(tick.value);
    svg.line(x, y, x + width, y, "grid");
    if (first) svg.text(x - 7, y + 4, tick_text(tick.value), "label", Anchor::End);
  }
  const double each = width / static_cast<double>(std::max<std::size_t>(panel.groups.size(), 1));
  for (std::size_t i = 0; i < panel.groups.size(); ++i) {
    draw_group(svg, panel.groups[i], x + each * static_cast<double>(i), each, axis);
  }
}

}  // namespace

std::string to_svg(const BarChart& chart) {
  const std::size_t per_row = std::max<std::size_t>(1, chart.panels_per_row);
  const std::size_t rows = (chart.panels.size() + per_row - 1) / per_row;
  const double height = kLegendHeight + kRowHeight * static_cast<double>(rows);
  const double scale_max = largest_value(chart) * 1.04;
  const double panel_width =
      (kBarsWidth - kBarsLeft - kPanelGap * static_cast<double>(per_row - 1)) /
      static_cast<double>(per_row);

  Svg svg(kBarsWidth, height, chart.title);
  double x = kBarsLeft;
  for (std::size_t i = 0; i < chart.bar_names.size(); ++i) {
    svg.rectangle(x, 6, 12, 12, fmt::format("fill{}", i + 1));
    svg.text(x + 18, 16, chart.bar_names[i], "label");
    x += 18 + 7.2 * static_cast<double>(chart.bar_names[i].size()) + 24;
  }
  svg.text(kBarsWidth, 16, chart.unit, "label unit", Anchor::End);
  for (std::size_t i = 0; i < chart.panels.size(); ++i) {
    const double left = kBarsLeft + (panel_width + kPanelGap) * static_cast<double>(i % per_row);
    const std::size_t row = i / per_row;
    const double top = kLegendHeight + kRowHeight * static_cast<double>(row);
    draw_panel(svg, chart.panels[i], left, panel_width, top, scale_max, i % per_row == 0);
  }
  return svg.str();
}

}  // namespace perdure::report
