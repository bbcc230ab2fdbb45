// Drawing primitives and axes.
#include "report/svg.h"

#include "report/style.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace perdure::report {
namespace {

std::string points_text(const std::vector<std::pair<double, double>>& points) {
  std::string out;
  for (const auto& [x, y] : points)
    out += fmt::format("{}{:.1f},{:.1f}", out.empty() ? "M" : "L", x, y);
  return out;
}

std::string hover_text(std::string_view words) {
  return words.empty() ? "" : "<title>" + escape_markup(words) + "</title>";
}

/// 1, 2 or 5 times a power of ten, at least `value`.
double round_step(double value) {
  const double power = std::pow(10, std::floor(std::log10(value)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= value * (1 - 1e-9)) return factor * power;
  }
  return 10 * power;
}

/// 1, 2 or 5 times a power of ten, at most `value`.
double round_down(double value) {
  const double power = std::pow(10, std::floor(std::log10(value) + 1e-9));
  for (const double factor : {5.0, 2.0}) {
    if (factor * power <= value * (1 + 1e-9)) return factor * power;
  }
  return power;
}

}  // namespace

std::string escape_markup(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  }
  return out;
}

Svg::Svg(double width, double height, std::string_view title)
    : width_(width), height_(height), title_(escape_markup(title)) {}

std::string Svg::opening() const {
  return fmt::format(
      "<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" xmlns=\"http://www.w3.org/2000/svg\"",
      width_, height_);
}

std::string Svg::str() const {
  return fmt::format("{}><title>{}</title>{}</svg>", opening(), title_, body_);
}

std::string Svg::file() const {
  return fmt::format(
      "{} width=\"{:.0f}\" height=\"{:.0f}\">\n<title>{}</title>\n<style>{}</style>\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n{}\n</svg>\n",
      opening(), width_, height_, title_, light_drawing_style(), body_);
}

void Svg::line(double x1, double y1, double x2, double y2, std::string_view css) {
  body_ +=
      fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" class=\"{}\"/>",
                  x1, y1, x2, y2, css);
}

void Svg::rectangle(double x, double y, double width, double height, std::string_view css,
                    std::string_view hover) {
  body_ += fmt::format(
      "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" class=\"{}\">{}</rect>",
      x, y, width, height, css, hover_text(hover));
}

void Svg::text(double x, double y, std::string_view words, std::string_view css, Anchor anchor) {
  const char* place = anchor == Anchor::Start ? "start" : anchor == Anchor::End ? "end" : "middle";
  body_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"{}\" text-anchor=\"{}\">{}</text>",
                       x, y, css, place, escape_markup(words));
}

void Svg::upright_text(double x, double y, std::string_view words, std::string_view css) {
  body_ += fmt::format(
      "<text transform=\"translate({:.1f} {:.1f}) rotate(-90)\" class=\"{}\" text-anchor=\"end\">"
      "{}</text>",
      x, y, css, escape_markup(words));
}

void Svg::path(const std::vector<std::pair<double, double>>& points, std::string_view css) {
  if (points.empty()) return;
  body_ += fmt::format("<path d=\"{}\" class=\"{}\" fill=\"none\"/>", points_text(points), css);
}

void Svg::area(const std::vector<std::pair<double, double>>& points, std::string_view css) {
  if (points.empty()) return;
  body_ += fmt::format("<path d=\"{}Z\" class=\"{}\"/>", points_text(points), css);
}

void Svg::circle(double x, double y, double radius, std::string_view css, std::string_view hover) {
  body_ += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{:.1f}\" class=\"{}\">{}</circle>",
                       x, y, radius, css, hover_text(hover));
}

Axis Axis::linear(double high, double from, double to) {
  Axis axis;
  const double step = round_step(std::max(high, 1e-9) / 5);
  const double steps = std::ceil(std::max(high, 1e-9) / step * (1 - 1e-9));
  axis.high_ = step * steps;
  axis.from_ = from;
  axis.to_ = to;
  for (int i = 0; i <= static_cast<int>(steps); ++i) axis.ticks_.push_back({step * i, true});
  return axis;
}

Axis Axis::logarithmic(double low, double high, double from, double to) {
  Axis axis;
  axis.log_ = true;
  axis.from_ = from;
  axis.to_ = to;
  axis.low_ = round_down(std::max(low, 1e-9));
  axis.high_ = std::max(round_step(std::max(high, 1e-9)), round_step(axis.low_ * 1.5));
  // Powers of ten are worth a label; where there are few of them, what stands between as well.
  const bool few = axis.high_ < axis.low_ * 200;
  const double first = std::floor(std::log10(axis.low_) + 1e-9);
  for (double power = first; std::pow(10, power) <= axis.high_ * (1 + 1e-9); ++power) {
    for (int digit = 1; digit <= 9; ++digit) {
      const double value = digit * std::pow(10, power);
      if (value < axis.low_ * (1 - 1e-9) || value > axis.high_ * (1 + 1e-9)) continue;
      const bool end = value < axis.low_ * (1 + 1e-9) || value > axis.high_ * (1 - 1e-9);
      axis.ticks_.push_back({value, digit == 1 || end || (few && (digit == 2 || digit == 5))});
    }
  }
  return axis;
}

Axis Axis::byte_sizes(double high, double from, double to) {
  Axis axis;
  axis.log_ = true;
  axis.from_ = from;
  axis.to_ = to;
  axis.low_ = 1;
  axis.high_ = std::max(high, 2.0);
  for (double value = axis.low_; value <= axis.high_; value *= 16) axis.ticks_.push_back({value});
  return axis;
}

double Axis::at(double value) const {
  const double clamped = std::clamp(value, low_, high_);
  const double part = log_ ? std::log10(clamped / low_) / std::log10(high_ / low_)
                           : (clamped - low_) / (high_ - low_);
  return from_ + part * (to_ - from_);
}

std::string tick_text(double value) {
  if (value >= 1e6) return fmt::format("{:.4g}M", value / 1e6);
  if (value >= 1e4) return fmt::format("{:.4g}k", value / 1e3);
  return fmt::format("{:.4g}", value);
}

}  // namespace perdure::report
