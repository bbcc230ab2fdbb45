// Grouped bars in panels.
#include "report/charts.h"
#include "report/svg.h"
#include "report/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

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

/// The largest value that the scale has to hold. Where a few bars are many times as high as all
/// others they are cut off, so that the others can be told apart; and so is a whisker that is
/// higher than twice the bars: one round in which the machine did something else.
double largest_shown(const BarChart& chart) {
  constexpr double kMuch = 4;
  std::vector<double> values;
  for (const auto& panel : chart.panels) {
    for (const auto& group : panel.groups) {
      for (const auto& bar : group.bars) values.push_back(bar.value);
    }
  }
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  double largest = values.back();
  for (std::size_t i = values.size() - 1; i > 0 && (values.size() - i) * 4 <= values.size(); --i) {
    if (values[i - 1] > 0 && values[i] > kMuch * values[i - 1]) largest = values[i - 1];
  }
  double shown = largest;
  for (const auto& panel : chart.panels) {
    for (const auto& group : panel.groups) {
      for (const auto& bar : group.bars) {
        if (bar.value <= largest && bar.high <= 2 * largest) shown = std::max(shown, bar.high);
      }
    }
  }
  return shown;
}

/// Two slanted lines through what goes on beyond the scale.
void draw_cut(Svg& svg, double left, double right, double y) {
  svg.line(left - 2, y + 9, right + 2, y + 3, "break");
  svg.line(left - 2, y + 6, right + 2, y, "cut");
  svg.line(left - 2, y + 12, right + 2, y + 6, "cut");
}

/// Above the bar where it is wide enough, beside a whisker; else upright inside of it, else above
/// and upright. `top`: of the bar, below what cuts it off.
void draw_value(Svg& svg, const BarChart::Bar& bar, double middle, double width, double top,
                double bottom) {
  const std::string words = figure(bar.value);
  if (bar.value <= 0 || width < kUprightWidth) return;
  if (width >= kLevelWidth) {
    const bool whisker = bar.high > bar.low;
    svg.text(whisker ? middle + 5 : middle, top - 4, words, "value",
             whisker ? Anchor::Start : Anchor::Middle);
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
    const double middle = left + bar_width / 2;
    if (bar.high > bar.low) {
      svg.line(middle, axis.at(bar.low), middle, axis.at(bar.high), "whisker");
    }
    const bool cut = bar.value > axis.high();
    if (cut) {
      draw_cut(svg, left + 1, left + bar_width - 1, top + 10);
    } else if (bar.high > axis.high()) {
      draw_cut(svg, middle - 5, middle + 5, axis.at(axis.high()));
      svg.text(middle + 9, axis.at(axis.high()) + 8, "to " + figure(bar.high), "value");
    }
    const double written = cut && bar_width < kLevelWidth ? top + 22 : top;
    draw_value(svg, bar, middle, bar_width, written, bottom);
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
  // Few panels take the width all the same.
  const std::size_t per_row = std::clamp<std::size_t>(
      chart.panels.size(), 1, std::max<std::size_t>(1, chart.panels_per_row));
  const std::size_t rows = (chart.panels.size() + per_row - 1) / per_row;
  const double height = kLegendHeight + kRowHeight * static_cast<double>(rows);
  const double scale_max = largest_shown(chart) * 1.04;
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
