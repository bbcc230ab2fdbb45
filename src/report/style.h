// Colours, type and rules of pages and drawings. A drawing names classes, never colours.
#pragma once

#include <cstddef>
#include <string>

namespace perdure::report {

/// Of a page and of the drawings in it; light or dark, as the reader has it.
std::string page_style();

/// Of a drawing alone, on white. Colours are written out: what turns an SVG into something else
/// (librsvg, Inkscape) knows no CSS variables.
std::string light_drawing_style();

/// Colours that tell series apart: classes stroke1 and fill1 up to this number.
inline constexpr std::size_t kSeriesColors = 8;

}  // namespace perdure::report
