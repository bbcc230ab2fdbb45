// Svg: a drawing as text, for inline use in a page or as a file of its own. Colours are CSS classes
// of style.cc, so that a drawing follows the page from light to dark.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace perdure::report {

/// Text as it may stand in HTML and SVG.
std::string escape_markup(std::string_view text);

enum class Anchor { Start, Middle, End };

class Svg {
 public:
  /// `title` is read aloud by those who can not see the drawing.
  Svg(double width, double height, std::string_view title);

  void line(double x1, double y1, double x2, double y2, std::string_view css);
  void rectangle(double x, double y, double width, double height, std::string_view css,
                 std::string_view hover = {});
  void text(double x, double y, std::string_view words, std::string_view css,
            Anchor anchor = Anchor::Start);
  /// Upright: read from below, ending at (x, y).
  void upright_text(double x, double y, std::string_view words, std::string_view css);
  /// A line through points, x and y in turn.
  void path(const std::vector<std::pair<double, double>>& points, std::string_view css);
  /// The same closed and filled.
  void area(const std::vector<std::pair<double, double>>& points, std::string_view css);
  void circle(double x, double y, double radius, std::string_view css, std::string_view hover = {});

  /// For a page that has the style.
  std::string str() const;
  /// A file that needs nothing else: on white, in the colours of a light page.
  std::string file() const;

 private:
  std::string opening() const;

  double width_;
  double height_;
  std::string title_;
  std::string body_;
};

/// One axis: values onto places of a drawing.
class Axis {
 public:
  /// From zero to a round number above `high`.
  static Axis linear(double high, double from, double to);
  /// From and to 1, 2 or 5 times a power of ten, with `low` and `high` between: no decade of it is
  /// idle because a value went a little beyond the one before.
  static Axis logarithmic(double low, double high, double from, double to);
  /// Bytes from 1 to `high`, logarithmic, a tick every four doublings.
  static Axis byte_sizes(double high, double from, double to);

  double at(double value) const;
  double low() const { return low_; }
  double high() const { return high_; }

  struct Tick {
    double value = 0;
    bool major = true;  // worth a label
  };
  const std::vector<Tick>& ticks() const { return ticks_; }

 private:
  bool log_ = false;
  double low_ = 0;
  double high_ = 1;
  double from_ = 0;
  double to_ = 1;
  std::vector<Tick> ticks_;
};

/// "0", "0.5", "20", "1.5k", "2M".
std::string tick_text(double value);

}  // namespace perdure::report
