// Percentiles, time and sizes. Bars are in report_bars.cc.
#include "report/charts.h"

#include "core/byte_text.h"
#include "report/style.h"
#include "report/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

namespace perdure::report {
namespace {

constexpr double kWidth = 820;
constexpr double kLeft = 72;  // "≤ 0.0001" stands before it
constexpr double kRight = 20;
constexpr double kTop = 22;
constexpr double kLetter = 6.5;  // width of a letter of a label, about
constexpr double kMarkRow = 15;
constexpr std::size_t kMarkRows = 6;

/// Names of the series with their colours, in a row that begins at `x`.
void draw_legend(Svg& svg, double x, double y, const std::vector<std::string>& names) {
  for (std::size_t i = 0; i < names.size(); ++i) {
    svg.rectangle(x, y - 9, 18, 4, fmt::format("fill{}", i + 1));
    svg.text(x + 24, y - 3, names[i], "label");
    x += 24 + kLetter * static_cast<double>(names[i].size()) + 16;
  }
}

/// `lowest`: before the label of the lowest row.
void draw_rows(Svg& svg, const Axis& axis, std::string_view unit, std::string_view lowest = "") {
  for (const Axis::Tick& tick : axis.ticks()) {
    const double y = axis.at(tick.value);
    svg.line(kLeft, y, kWidth - kRight, y, tick.major ? "grid" : "grid minor");
    if (!tick.major) continue;
    const std::string_view before = &tick == &axis.ticks().front() ? lowest : "";
    svg.text(kLeft - 8, y + 4, fmt::format("{}{}", before, tick_text(tick.value)), "label",
             Anchor::End);
  }
  svg.text(kLeft, axis.at(axis.high()) - 9, unit, "label unit");
}

using Points = std::vector<std::pair<double, double>>;

/// How high a curve is at `x`; nothing: it does not reach there.
std::optional<double> height_at(const Points& curve, double x) {
  const auto right = std::lower_bound(
      curve.begin(), curve.end(), x, [](const auto& point, double at) { return point.first < at; });
  if (right == curve.end() || (right == curve.begin() && right->first > x)) return std::nullopt;
  if (right == curve.begin()) return right->second;
  const auto left = right - 1;
  const double part = (x - left->first) / (right->first - left->first);
  return left->second + part * (right->second - left->second);
}

/// Whether a good part of the curve below would not be seen.
bool covers(const Points& above, const Points& below) {
  constexpr int kLooks = 64;
  constexpr double kApart = 1.5;  // less than the width of a line
  if (above.empty() || below.empty()) return false;
  int hidden = 0;
  for (int look = 0; look <= kLooks; ++look) {
    const double x =
        below.front().first + (below.back().first - below.front().first) * look / kLooks;
    const auto here = height_at(below, x);
    const auto there = height_at(above, x);
    if (here && there && std::abs(*here - *there) < kApart) ++hidden;
  }
  return hidden * 4 > kLooks;
}

/// Curves in their colours, the first one lowest. One that lies on others has gaps, through which
/// they are seen.
void draw_curves(Svg& svg, const std::vector<Points>& curves) {
  for (std::size_t i = 0; i < curves.size(); ++i) {
    std::size_t below = 0;
    for (std::size_t j = 0; j < i; ++j) below += covers(curves[i], curves[j]) ? 1 : 0;
    const std::string gaps =
        below == 0 ? "" : fmt::format(" over{}", std::min<std::size_t>(below, 3));
    svg.path(curves[i], fmt::format("curve stroke{}{}", i % kSeriesColors + 1, gaps));
  }
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

Points percentile_line(const Histogram& latencies, const PercentileScale& scale, const Axis& axis) {
  constexpr int kSteps = 240;
  Points points;
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

/// Seconds onto places. A long time in which nothing happens is cut out, and takes little room.
class TimeScale {
 public:
  struct Cut {
    double from = 0;
    double to = 0;
  };

  TimeScale(const TimeChart& chart, double last) {
    const double least = kCutAbove * last;
    double before = 0;
    for (const Cut& busy : busy_times(chart)) {
      const double margin = kMargin * last;  // of what happens, some is seen
      if (busy.from - before > least) cuts_.push_back({before + margin, busy.from - margin});
      before = std::max(before, busy.to);
    }
    if (last - before > least) cuts_.push_back({before + kMargin * last, last});
    shown_ = last;
    for (const Cut& cut : cuts_) shown_ -= cut.to - cut.from;
  }

  double at(double seconds) const {
    const double room = kWidth - kRight - kLeft - kCutWidth * static_cast<double>(cuts_.size());
    double x = kLeft;
    double time = seconds;
    for (const Cut& cut : cuts_) {
      if (seconds <= cut.from) break;
      const double inside = std::min(seconds, cut.to) - cut.from;
      time -= inside;
      x += kCutWidth * inside / (cut.to - cut.from);
    }
    return x + room * time / shown_;
  }
  bool cuts_out(double seconds) const {
    return std::any_of(cuts_.begin(), cuts_.end(),
                       [&](const Cut& cut) { return seconds > cut.from && seconds < cut.to; });
  }
  const std::vector<Cut>& cuts() const { return cuts_; }
  /// What is not cut out.
  double shown() const { return shown_; }

 private:
  static constexpr double kCutAbove = 0.25;  // of all
  static constexpr double kMargin = 0.02;
  static constexpr double kCutWidth = 44;

  /// When a curve rises or falls, or a mark begins or ends; by their beginnings.
  static std::vector<Cut> busy_times(const TimeChart& chart) {
    std::vector<Cut> times;
    for (const auto& mark : chart.marks) {
      times.push_back({mark.from, mark.from});
      if (mark.to > mark.from) times.push_back({mark.to, mark.to});
    }
    for (const auto& series : chart.series) {
      double largest = 0;
      for (const auto& point : series.points) largest = std::max(largest, point.second);
      for (std::size_t i = 1; i < series.points.size(); ++i) {
        const auto& [seconds, value] = series.points[i];
        const auto& [earlier, old] = series.points[i - 1];
        if (std::abs(value - old) > 0.002 * largest) times.push_back({earlier, seconds});
      }
    }
    std::sort(times.begin(), times.end(),
              [](const Cut& one, const Cut& other) { return one.from < other.from; });
    return times;
  }

  double shown_ = 0;
  std::vector<Cut> cuts_;
};

/// Logarithmic where a few values are so much larger than the others that those would lie at the
/// bottom; what is zero then lies there.
Axis value_axis(const TimeChart& chart, double bottom, double top) {
  constexpr double kMuch = 20;
  constexpr double kLeast = 1e-4;  // of the largest
  std::vector<double> values;
  for (const auto& series : chart.series) {
    for (const auto& point : series.points) {
      if (point.second > 0) values.push_back(point.second);
    }
  }
  if (values.empty()) return Axis::linear(0, bottom, top);
  std::sort(values.begin(), values.end());
  const double largest = values.back();
  // A curve that rises from zero to its end has a median of half of that.
  if (largest < kMuch * values[values.size() / 2]) return Axis::linear(largest, bottom, top);
  return Axis::logarithmic(std::max(values.front(), kLeast * largest), largest, bottom, top);
}

/// Where the label of a mark stands: above the plot, where no label and no line of a mark crosses
/// it.
struct MarkPlace {
  double x = 0;
  double width = 0;
  std::size_t row = 0;
  bool left = false;  // of the mark's line, since there is no room at its right
  double begin() const { return left ? x - width : x; }
  double end() const { return left ? x : x + width; }
};

std::vector<MarkPlace> place_marks(const TimeChart& chart, const TimeScale& scale) {
  std::vector<MarkPlace> places;
  for (const auto& mark : chart.marks) {
    const double width = kLetter * static_cast<double>(mark.label.size()) + 12;
    MarkPlace place{scale.at(mark.from), width, 0, false};
    place.left = place.x + width > kWidth;
    places.push_back(place);
  }
  // Of two that lie over each other's lines neither could be the higher one.
  for (std::size_t i = places.size(); i-- > 0;) {
    for (std::size_t j = i + 1; j < places.size(); ++j) {
      if (places[j].left && places[i].x + places[i].width > places[j].x) places[i].left = true;
    }
  }
  // A mark's line rises to its label, through all rows below. So whoever's label lies over another
  // mark's line or label is placed after it, and above: from the right to the left, and what has
  // its label at the left at last.
  std::vector<std::size_t> order;
  for (std::size_t i = places.size(); i-- > 0;) {
    if (!places[i].left) order.push_back(i);
  }
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (places[i].left) order.push_back(i);
  }
  for (std::size_t n = 0; n < order.size(); ++n) {
    MarkPlace& place = places[order[n]];
    for (std::size_t m = 0; m < n; ++m) {
      const MarkPlace& other = places[order[m]];
      if (other.begin() >= place.end() || other.end() <= place.begin()) continue;
      place.row = std::max(place.row, std::min(other.row + 1, kMarkRows - 1));
    }
  }
  return places;
}

void draw_marks(Svg& svg, const TimeChart& chart, const std::vector<MarkPlace>& places,
                const TimeScale& scale, double top, double bottom) {
  for (std::size_t i = 0; i < places.size(); ++i) {
    const auto& mark = chart.marks[i];
    const MarkPlace& place = places[i];
    const double y = top - 8 - kMarkRow * static_cast<double>(place.row);
    if (mark.to > mark.from) {
      svg.rectangle(place.x, top, std::max(1.0, scale.at(mark.to) - place.x), bottom - top,
                    mark.bad ? "span bad" : "span good");
    }
    svg.line(place.x, y - 9, place.x, bottom, mark.bad ? "mark bad" : "mark good");
    svg.text(place.left ? place.x - 4 : place.x + 4, y, mark.label,
             mark.bad ? "label bad" : "label good", place.left ? Anchor::End : Anchor::Start);
  }
}

/// Seconds below the plot, and how long it is that was cut out.
void draw_seconds(Svg& svg, const TimeScale& scale, double last, double bottom) {
  // The steps suit what is shown of the time, wherever that is.
  const double step = Axis::linear(scale.shown(), 0, 1).ticks().at(1).value;
  for (int i = 0; step * i <= last * (1 + 1e-9); ++i) {
    if (scale.cuts_out(step * i)) continue;
    const double x = scale.at(step * i);
    svg.text(x, bottom + 18, tick_text(step * i) + " s", "label",
             x > kWidth - kRight - 24 ? Anchor::End : Anchor::Middle);
  }
  for (const TimeScale::Cut& cut : scale.cuts()) {
    const double x = (scale.at(cut.from) + scale.at(cut.to)) / 2;
    for (const double aside : {-3.0, 3.0}) {
      svg.line(x + aside - 4, bottom + 6, x + aside + 4, bottom - 6, "cut");
    }
    svg.text(x, bottom - 10, fmt::format("{:.2g} s idle", cut.to - cut.from), "label",
             Anchor::Middle);
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
  std::vector<Points> curves;
  for (const auto& series : chart.series) {
    curves.push_back(percentile_line(*series.latencies, scale, axis));
  }
  draw_curves(svg, curves);
  std::vector<std::string> names;
  for (std::size_t i = 0; i < chart.series.size(); ++i) {
    const auto& series = chart.series[i];
    names.push_back(series.name);
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
  const double last = last_second(chart);
  const TimeScale scale(chart, last);
  const std::vector<MarkPlace> places = place_marks(chart, scale);
  std::size_t rows = places.empty() ? 0 : 1;
  for (const MarkPlace& place : places) rows = std::max(rows, place.row + 1);
  const double top = kTop + kMarkRow * static_cast<double>(rows);
  const double height = 290 + top;
  const double bottom = height - 62;
  const Axis y_axis = value_axis(chart, bottom, top);

  Svg svg(kWidth, height, chart.title);
  // On a logarithmic axis what is less lies on the lowest row too.
  draw_rows(svg, y_axis, "", y_axis.low() > 0 ? "\u2264 " : "");
  svg.text(2, top - 9, chart.unit, "label unit");
  draw_seconds(svg, scale, last, bottom);
  draw_marks(svg, chart, places, scale, top, bottom);
  std::vector<std::string> names;
  std::vector<Points> curves;
  for (std::size_t i = 0; i < chart.series.size(); ++i) {
    const auto& series = chart.series[i];
    names.push_back(series.name);
    Points points;
    for (const auto& [seconds, value] : series.points) {
      points.emplace_back(scale.at(seconds), y_axis.at(value));
    }
    if (series.filled && !points.empty() && y_axis.low() == 0) {
      auto closed = points;
      closed.emplace_back(points.back().first, bottom);
      closed.emplace_back(points.front().first, bottom);
      svg.area(closed, fmt::format("fill{} faint", i + 1));
    }
    curves.push_back(std::move(points));
  }
  draw_curves(svg, curves);
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
  const std::size_t second = chart.title.find('\n');
  svg.text(10, 20, chart.title.substr(0, second), "");
  if (second != std::string::npos) svg.text(10, 38, chart.title.substr(second + 1), "label");
  draw_rows(svg, y_axis, chart.unit);
  for (const Axis::Tick& tick : x_axis.ticks()) {
    const double x = x_axis.at(tick.value);
    svg.line(x, kChartTop, x, kBottom, "grid");
    svg.text(x, kBottom + 18, format_bytes(static_cast<std::uint64_t>(tick.value)), "label",
             Anchor::Middle);
  }
  draw_borders(svg, chart, x_axis, kChartTop, kBottom);
  double name_y = kChartTop + 14;
  std::vector<Points> curves;
  for (std::size_t i = 0; i < chart.series.size(); ++i, name_y += 18) {
    const auto& series = chart.series[i];
    Points points;
    for (const auto& [bytes, value] : series.points) {
      points.emplace_back(x_axis.at(bytes), y_axis.at(value));
    }
    curves.push_back(std::move(points));
    svg.rectangle(kWidth, name_y - 6, 18, 4, fmt::format("fill{}", i % kSeriesColors + 1));
    svg.text(kWidth + 24, name_y, series.name, "label");
  }
  draw_curves(svg, curves);
  return svg.file();
}

}  // namespace perdure::report
