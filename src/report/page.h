// ReportPage: one HTML file that needs nothing else: no script, no font, no address. Readable in
// light and dark, on paper, and without pictures.
#pragma once

#include <perdure/result.h>

#include "report/setup.h"
#include "report/table.h"

#include <string>
#include <string_view>
#include <vector>

namespace perdure::report {

/// A number worth a place at the top.
struct Tile {
  std::string value;  // "8.90 us"
  std::string name;   // "p50 to durable"
  Origin origin = Origin::Measured;
};

class ReportPage {
 public:
  ReportPage(std::string_view title, std::string_view lead);

  /// The answer to what the run was for.
  void verdict(bool good, std::string_view sentence);
  void tiles(const std::vector<Tile>& tiles);
  void heading(std::string_view words);
  /// Words between `backticks` stand in the type of code.
  void paragraph(std::string_view words);
  void list(const std::vector<std::string>& items);
  /// A drawing of charts.h or of another module's; it must be well-formed SVG.
  void drawing(std::string_view svg, Origin origin, std::string_view caption);
  void table(const Table& table, Origin origin, std::string_view caption);
  /// Text as it stands in a terminal.
  void preformatted(std::string_view text);
  /// Closed until it is clicked.
  void begin_details(std::string_view summary);
  void end_details();
  void setup(const Setup& setup);

  std::string html() const;
  /// Replaces the file at `path`, whole or not at all. Errors: NotFound, PermissionDenied, ....
  Result<void> write(const std::string& path) const;

 private:
  std::string title_;
  std::string body_;
};

}  // namespace perdure::report
