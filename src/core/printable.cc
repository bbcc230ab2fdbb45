// What a terminal would obey, shown: see printable.h.
#include "core/printable.h"

#include <fmt/format.h>

namespace perdure {
namespace {

std::string printable(std::string_view from, bool lines) {
  constexpr unsigned char kC1Lead = 0xc2;  // of U+0080 to U+009f in UTF-8
  std::string text;
  for (std::size_t i = 0; i < from.size(); ++i) {
    const auto byte = static_cast<unsigned char>(from[i]);
    const auto next = i + 1 < from.size() ? static_cast<unsigned char>(from[i + 1]) : 0;
    const bool c1 = byte == kC1Lead && next >= 0x80 && next < 0xa0;
    const bool kept = lines && (byte == '\n' || byte == '\t');
    const bool control = (byte < 0x20 && !kept) || byte == 0x7f;
    if (control || c1) {
      text += fmt::format("\\x{:02x}", byte);
      if (c1) text += fmt::format("\\x{:02x}", next), ++i;
    } else {
      text += from[i];
    }
  }
  return text;
}

}  // namespace

std::string printable_name(std::string_view text) { return printable(text, false); }
std::string printable_lines(std::string_view text) { return printable(text, true); }

}  // namespace perdure
