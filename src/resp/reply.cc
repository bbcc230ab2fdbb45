// Replies of Redis's protocol, and its patterns: see reply.h.
#include "resp/reply.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace perdure::resp {

void append_status(std::string& to, std::string_view text) {
  to += '+';
  to += text;
  to += "\r\n";
}

void append_error(std::string& to, std::string_view text) {
  to += '-';
  const std::size_t from = to.size();
  to += text;
  std::replace_if(
      to.begin() + static_cast<std::ptrdiff_t>(from), to.end(),
      [](char letter) { return letter == '\r' || letter == '\n'; }, ' ');
  to += "\r\n";
}

void append_number(std::string& to, std::int64_t number) {
  fmt::format_to(std::back_inserter(to), ":{}\r\n", number);
}

void append_bulk(std::string& to, std::string_view bytes) {
  fmt::format_to(std::back_inserter(to), "${}\r\n", bytes.size());
  to += bytes;
  to += "\r\n";
}

void append_null(std::string& to) { to += "$-1\r\n"; }

void append_array(std::string& to, std::size_t count) {
  fmt::format_to(std::back_inserter(to), "*{}\r\n", count);
}

namespace {

/// Whether the set of letters that begins behind `at` has `letter`; `at` is then behind its end.
/// One that is never closed ends with the pattern.
bool set_has(std::string_view pattern, std::size_t& at, char letter) {
  const bool inverted = at < pattern.size() && pattern[at] == '^';
  if (inverted) ++at;
  bool found = false;
  while (at < pattern.size() && pattern[at] != ']') {
    if (pattern[at] == '\\' && at + 1 < pattern.size()) ++at;
    auto low = static_cast<unsigned char>(pattern[at]);
    auto high = low;
    if (at + 2 < pattern.size() && pattern[at + 1] == '-') {
      high = static_cast<unsigned char>(pattern[at + 2]);
      at += 2;
    }
    if (low > high) std::swap(low, high);
    const auto wanted = static_cast<unsigned char>(letter);
    found = found || (low <= wanted && wanted <= high);
    ++at;
  }
  if (at < pattern.size()) ++at;
  return found != inverted;
}

/// Whether one letter is what stands at `at`, which is then behind it.
bool letter_matches(std::string_view pattern, std::size_t& at, char letter) {
  const char wanted = pattern[at++];
  if (wanted == '?') return true;
  if (wanted == '[') return set_has(pattern, at, letter);
  if (wanted == '\\' && at < pattern.size()) return pattern[at++] == letter;
  return wanted == letter;
}

}  // namespace

// Only the last star is ever taken back: what was matched by an earlier one stays right.
bool matches(std::string_view pattern, std::string_view text) {
  std::size_t at = 0;
  std::size_t letter = 0;
  std::size_t star = std::string_view::npos;  // behind the last one
  std::size_t star_letter = 0;
  while (letter < text.size()) {
    if (at < pattern.size() && pattern[at] == '*') {
      star = ++at;
      star_letter = letter;
      continue;
    }
    if (at < pattern.size() && letter_matches(pattern, at, text[letter])) {
      ++letter;
      continue;
    }
    if (star == std::string_view::npos) return false;
    at = star;
    letter = ++star_letter;
  }
  while (at < pattern.size() && pattern[at] == '*') ++at;
  return at == pattern.size();
}

}  // namespace perdure::resp
