// Percentiles, time and sizes. Bars are in report_bars.cc.
#include "report/charts.h"

#include "core/byte_text.h"
#include "report/style.h"
#include "report/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace perdure::report {
namespace {

constexpr double kWidth = 820;
constexpr double kLeft = 62;
constexpr double kRight = 20;
constexpr double kTop = 22;
constexpr double kLetter = 6.5;  // width of a letter of a label, about
constexpr double kMarkRow = 15;
constexpr std::size_t kMarkRows = 3;

/// Names of the series with their colours, in a row that begins at `x`.
void draw_legend(Svg& svg, double x, double y, const std::vector<std::string>& names) {
  for (std::size_t i = 0; i < names.size(); ++i) {
    svg.rectangle(x, y - 9, 18, 4, fmt::format("fill{}", i + 1));
    svg.text(x + 24, y - 3, names[i], "label");
    x += 24 + kLetter * static_cast<double>(names[i].size()) + 16;
  }
}

void draw_rows(Svg& svg, const Axis& axis, std::string_view unit) {
  for (const Axis::Tick& tick : axis.ticks()) {
    const double y = axis.at(tick.value);
    svg.line(kLeft, y, kWidth - kRight, y, tick.major ? "grid" : "grid minor");
    if (tick.major) svg.text(kLeft - 8, y + 4, tick_text(tick.value), "label", Anchor::End);
  }
  svg.text(kLeft, axis.at(axis.high()) - 9, unit, "label unit");
}

/// Percentiles as the number of nines: 0.9 is 1, 0.999 is 3.
double nines(double fraction) { return -std::log10(1 - fraction); }

struct PercentileScale {
  double nines_max = 3;
  double at(double fraction) const {
    const double part = nines(std::min(fraction, 1 - std::pow(10, -nines_max))) / nines_max;
    return kLeft + part * (kWidth - kRight - kLeft);
  }
};

double in_microseconds(Nanoseconds value) { return static_cast<double>(value.count()) / 1e3; }

std::vector<std::pair<double, double>> percentile_line(const Histogram& latencies,
                                                       const PercentileScale& scale,
                                                       const Axis& axis) {
  constexpr int kSteps = 240;
  std::vector<std::pair<double, double>> points;
  for (int step = 0; step <= kSteps; ++step) {
    const double fraction = 1 - std::pow(10, -scale.nines_max * step / kSteps);
    const Nanoseconds value = latencies.quantile(std::max(fraction, 1e-9));
    points.emplace_back(scale.at(fraction), axis.at(in_microseconds(value)));
  }
  return points;
}

void draw_percentile_columns(Svg& svg, const PercentileScale& scale, double bottom) {
  constexpr std::array<double, 8> kFractions{0, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999, 0.999999};
  constexpr std::array<const char*, 8> kNames{"min",   "p50",    "p90",     "p99",
                                              "p99.9", "p99.99", "p99.999", "p99.9999"};
  for (std::size_t i = 0; i < kFractions.size(); ++i) {
    if (i > 0 && nines(kFractions[i]) > scale.nines_max + 1e-9) break;
    const double x = scale.at(kFractions[i]);
    svg.line(x, kTop, x, bottom, "grid");
    const bool last = x > kWidth - kRight - 1;
    svg.text(x, bottom + 18, kNames[i], "label",
             i == 0 ? Anchor::Start : (last ? Anchor::End : Anchor::Middle));
  }
}

double last_second(const TimeChart& chart) {
  double last = 0.001;
  for (const auto& series : chart.series) {
    if (!series.points.empty()) last = std::max(last, series.points.back().first);
  }
  for (const auto& mark : chart.marks) last = std::max({last, mark.from, mark.to});
  return last;
}

double largest_value(const TimeChart& chart) {
  double largest = 0;
  for (const auto& series : chart.series) {
    for (const auto& [seconds, value] : series.points) largest = std::max(largest, value);
  }
  return largest;
}

/// Where the label of a mark stands: above the plot, on the first row where it has room.
struct MarkPlace {
  double x = 0;
  std::size_t row = 0;
  bool left = false;  // of the mark's line, since there is no room at its right
};

std::vector<MarkPlace> place_marks(const TimeChart& chart, const Axis& x_axis) {
  std::array<double, kMarkRows> row_ends{};
  std::vector<MarkPlace> places;
  for (const auto& mark : chart.marks) {
    const double width = kLetter * static_cast<double>(mark.label.size()) + 12;
    MarkPlace place{x_axis.at(mark.from), 0, false};
    place.left = place.x + width > kWidth;
    const double begin = place.left ? place.x - width : place.x;
    while (place.row + 1 < kMarkRows && row_ends[place.row] > begin) ++place.row;
    row_ends[place.row] = begin + width;
    places.push_back(place);
  }
  return places;
}

void draw_marks(Svg& svg, const TimeChart& chart, const std::vector<MarkPlace>& places,
                const Axis& x_axis, double top, double bottom) {
  for (std::size_t i = 0; i < places.size(); ++i) {
    const auto& mark = chart.marks[i];
    const auto& [x, row, left] = places[i];
    const double y = top - 8 - kMarkRow * static_cast<double>(row);
    if (mark.to > mark.from) {
      svg.rectangle(x, top, std::max(1.0, x_axis.at(mark.to) - x), bottom - top,
                    mark.bad ? "span bad" : "span good");
    }
    svg.line(x, y - 9, x, bottom, mark.bad ? "mark bad" : "mark good");
    svg.text(left ? x - 4 : x + 4, y, mark.label, mark.bad ? "label bad" : "label good",
             left ? Anchor::End : Anchor::Start);
  }
}

/// A dashed line at each mark, and beside it, on a row of its own, what begins there.
void draw_borders(Svg& svg, const SizeChart& chart, const Axis& x_axis, double top, double bottom) {
  double y = top + 14;  // where rising curves leave room
  for (const SizeChart::Mark& mark : chart.marks) {
    const double x = x_axis.at(mark.bytes);
    const bool left = x > kWidth / 2;
    svg.line(x, top, x, bottom, "mark plain");
    svg.text(left ? x - 5 : x + 5, y, mark.label, "label", left ? Anchor::End : Anchor::Start);
    y += kMarkRow + 1;
  }
}

}  // namespace

std::string to_svg(const PercentileChart& chart) {
  constexpr double kHeight = 330;
  constexpr double kBottom = kHeight - 58;
  double low = 1e300;
  double high = 0;
  std::uint64_t count = 0;
  for (const auto& series : chart.series) {
    low = std::min(low, in_microseconds(series.latencies->quantile(1e-9)));
    high = std::max(high, in_microseconds(series.latencies->max()));
    count = std::max(count, series.latencies->count());
  }
  const Axis axis = Axis::logarithmic(low, high, kBottom, kTop);
  // Beyond n values there is no percentile with more nines than n has digits.
  PercentileScale scale;
  scale.nines_max = std::clamp(std::floor(std::log10(static_cast<double>(count) + 1)), 2.0, 6.0);

  Svg svg(kWidth, kHeight, chart.title);
  draw_rows(svg, axis, "us");
  draw_percentile_columns(svg, scale, kBottom);
  std::vector<std::string> names;
  for (std::size_t i = 0; i < chart.series.size(); ++i) {
    const auto& series = chart.series[i];
    names.push_back(series.name);
    svg.path(percentile_line(*series.latencies, scale, axis), fmt::format("curve stroke{}", i + 1));
    for (const double fraction : {0.5, 0.99, 0.999}) {
      if (nines(fraction) > scale.nines_max + 1e-9) continue;
      const Nanoseconds value = series.latencies->quantile(fraction);
      svg.circle(scale.at(fraction), axis.at(in_microseconds(value)), 3.5,
                 fmt::format("fill{}", i + 1),
                 fmt::format("{}: p{:.4g} is {:.4g} us", series.name, fraction * 100,
                             in_microseconds(value)));
    }
  }
  draw_legend(svg, kLeft, kHeight - 8, names);
  return svg.str();
}

std::string to_svg(const TimeChart& chart) {
  const Axis x_axis = Axis::linear(last_second(chart), kLeft, kWidth - kRight);
  const std::vector<MarkPlace> places = place_marks(chart, x_axis);
  std::size_t rows = places.empty() ? 0 : 1;
  for (const MarkPlace& place : places) rows = std::max(rows, place.row + 1);
  const double top = kTop + kMarkRow * static_cast<double>(rows);
  const double height = 290 + top;
  const double bottom = height - 62;
  const Axis y_axis = Axis::linear(largest_value(chart), bottom, top);

  Svg svg(kWidth, height, chart.title);
  draw_rows(svg, y_axis, "");
  svg.text(2, top - 9, chart.unit, "label unit");
  for (const Axis::Tick& tick : x_axis.ticks()) {
    svg.text(x_axis.at(tick.value), bottom + 18, tick_text(tick.value) + " s", "label",
             Anchor::Middle);
  }
  draw_marks(svg, chart, places, x_axis, top, bottom);
  std::vector<std::string> names;
  for (std::size_t i = 0; i < chart.series.size(); ++i) {
    const auto& series = chart.series[i];
    names.push_back(series.name);
    std::vector<std::pair<double, double>> points;
    for (const auto& [seconds, value] : series.points) {
      points.emplace_back(x_axis.at(seconds), y_axis.at(value));
    }
    if (series.filled && !points.empty()) {
      auto closed = points;
      closed.emplace_back(points.back().first, bottom);
      closed.emplace_back(points.front().first, bottom);
      svg.area(closed, fmt::format("fill{} faint", i + 1));
    }
    svg.path(points, fmt::format("curve stroke{}", i + 1));
  }
  draw_legend(svg, kLeft, height - 10, names);
  return svg.str();
}

std::string to_svg_file(const SizeChart& chart) {
  constexpr double kNames = 280;  // beside the curves
  constexpr double kHeight = 430;
  constexpr double kChartTop = 68;
  constexpr double kBottom = kHeight - 34;
  double largest = 1;
  double low = 1e300;
  double high = 0;
  for (const auto& series : chart.series) {
    for (const auto& [bytes, value] : series.points) {
      largest = std::max(largest, bytes);
      low = std::min(low, value);
      high = std::max(high, value);
    }
  }
  const Axis x_axis = Axis::byte_sizes(largest, kLeft, kWidth - kRight);
  const Axis y_axis = Axis::logarithmic(low, high, kBottom, kChartTop);

  Svg svg(kWidth + kNames, kHeight, chart.title);
  svg.text(10, 24, chart.title, "");
  draw_rows(svg, y_axis, chart.unit);
  for (const Axis::Tick& tick : x_axis.ticks()) {
    const double x = x_axis.at(tick.value);
    svg.line(x, kChartTop, x, kBottom, "grid");
    svg.text(x, kBottom + 18, format_bytes(static_cast<std::uint64_t>(tick.value)), "label",
             Anchor::Middle);
  }
  draw_borders(svg, chart, x_axis, kChartTop, kBottom);
  double name_y = kChartTop + 14;
  for (std::size_t i = 0; i < chart.series.size(); ++i, name_y += 18) {
    const auto& series = chart.series[i];
    const std::size_t color = i % kSeriesColors + 1;
    std::vector<std::pair<double, double>> points;
    for (const auto& [bytes, value] : series.points) {
      points.emplace_back(x_axis.at(bytes), y_axis.at(value));
    }
    svg.path(points, fmt::format("curve stroke{}", color));
    svg.rectangle(kWidth, name_y - 6, 18, 4, fmt::format("fill{}", color));
    svg.text(kWidth + 24, name_y, series.name, "label");
  }
  return svg.file();
}

}  // namespace perdure::report
