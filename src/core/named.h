// A word that names one of a few things.
#pragma once

#include <perdure/result.h>

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace perdure {

/// The one of `all` whose to_string() is `word`; `what` is said in the error. Errors:
/// InvalidArgument, naming the words.
template <typename Named, std::size_t n>
Result<Named> find_named(std::string_view what, std::string_view word,
                         const std::array<Named, n>& all) {
  std::string words;
  for (const Named each : all) {
    if (to_string(each) == word) return each;
    words.append(words.empty() ? "" : ", ").append(to_string(each));
  }
  return Error{ErrorCode::InvalidArgument,
               fmt::format("{} '{}' is not known; use one of: {}", what, word, words)};
}

/// The same of an enumeration that has `names` in the order of its enumerators.
template <typename Enum, std::size_t n>
Result<Enum> find_named(std::string_view what, std::string_view word,
                        const std::array<std::string_view, n>& names) {
  std::string words;
  for (std::size_t at = 0; at < n; ++at) {
    if (names[at] == word) return static_cast<Enum>(at);
    words.append(words.empty() ? "" : ", ").append(names[at]);
  }
  return Error{ErrorCode::InvalidArgument,
               fmt::format("{} '{}' is not known; use one of: {}", what, word, words)};
}

}  // namespace perdure
