// The drawings of our reports: latency by percentile, something over time, grouped bars, and
// something over sizes. Each is a complete SVG, inline or, where it says so, a file of its own.
#pragma once

#include "report/histogram.h"

#include <string>
#include <vector>

namespace perdure::report {

/// Latency at every percentile, from the fastest to the slowest: the tail as wide as the rest.
struct PercentileChart {
  struct Series {
    std::string name;
    const Histogram* latencies = nullptr;  // not empty
  };
  std::string title;
  std::vector<Series> series;
};

struct TimeChart {
  struct Series {
    std::string name;
    std::vector<std::pair<double, double>> points;  // seconds, value; in order of time
    bool filled = false;
  };
  /// Something that happened at a moment, or that went on for some time.
  struct Mark {
    double from = 0;
    double to = 0;  // not after `from`: a moment
    std::string label;
    bool bad = false;
  };
  std::string title;  // in one line or two
  std::string unit;   // of the values
  std::vector<Series> series;
  std::vector<Mark> marks;  // in order of time
};

/// Panels side by side on one scale; in each some groups of bars.
struct BarChart {
  struct Bar {
    double value = 0;
    std::string hover;
    double low = 0;  // with high above it: a whisker
    double high = 0;
  };
  struct Group {
    std::string label;      // "\n" begins its second line
    std::vector<Bar> bars;  // as many as there are bar_names, in their order
  };
  struct Panel {
    std::string title;
    std::vector<Group> groups;
  };
  std::string title;
  std::string unit;
  std::vector<std::string> bar_names;
  std::vector<Panel> panels;
  std::size_t panels_per_row = 3;
};

/// Curves over a size in bytes, both axes logarithmic.
struct SizeChart {
  struct Series {
    std::string name;
    std::vector<std::pair<double, double>> points;  // bytes, value above zero; by bytes
  };
  /// From this size on something is different.
  struct Mark {
    double bytes = 1;
    std::string label;
  };
  std::string title;  // in one line or two
  std::string unit;   // of the values
  std::vector<Series> series;
  std::vector<Mark> marks;
};

std::string to_svg(const PercentileChart& chart);
std::string to_svg(const TimeChart& chart);
std::string to_svg(const BarChart& chart);
std::string to_svg_file(const SizeChart& chart);

}  // namespace perdure::report
