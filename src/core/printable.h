// Text of others (names in files, arguments, what a peer says) as it can go to a terminal.
#pragma once

#include <string>
#include <string_view>

namespace perdure {

/// `text` with the bytes that a terminal would obey shown: "\x1b". What is no UTF-8 stays as it is.
/// A name: new lines and tabs are shown too, so that it stays where it is put.
std::string printable_name(std::string_view text);
/// The same of several lines: new lines and tabs stay.
std::string printable_lines(std::string_view text);

}  // namespace perdure
