// Table: rows of words under named columns, which can be printed, sent to a spreadsheet, or put
// into a report. And how numbers are written in all of them.
#pragma once

#include "core/clock.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace perdure::report {

/// Where a number comes from. It travels with the number into every table and chart.
enum class Origin {
  Measured,    // on this machine's clock
  Emulated,    // by the clock of the emulated fabric, whose times are assumptions
  Simulated,   // by a timing model
  Calculated,  // by arithmetic from numbers of the others
};

std::string_view to_string(Origin origin);

struct Column {
  std::string name;    // with its unit: "p50, us"
  bool number = true;  // aligned to the right
};

struct Table {
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> rows;  // each as long as `columns`

  /// Aligned columns, two spaces between, a line under the header.
  std::string text() const;
  /// As RFC 4180 has it: a header line, quotes only where they are needed, lines end in "\n".
  std::string csv() const;
};

/// Microseconds with three significant digits, and no unit: "0.512", "8.90", "1230".
std::string microseconds(Nanoseconds value);
/// With a unit that suits: "870 ns", "8.90 us", "12.3 ms", "2.10 s".
std::string duration_text(Nanoseconds value);
/// "1,234,567".
std::string grouped(std::uint64_t value);
/// Three significant digits: "1.03", "0.0120", "87,400".
std::string figure(double value);

}  // namespace perdure::report
