// Options that describe a responder and an update, shared by `plan` and `check`.
#pragma once

#include <perdure/profile.h>
#include <perdure/result.h>
#include <perdure/types.h>

#include "commands.h"
#include "core/method.h"

#include <string>
#include <string_view>
#include <utility>

namespace perdure::app {

/// Adds an option whose words are read by `parse`, so that a wrong one is answered with its error.
/// `value` must outlive the parse.
template <typename T>
CLI::Option* add_word_option(CLI::App& command, const std::string& names, T& value,
                             Result<std::type_identity_t<T>> (*parse)(std::string_view),
                             const std::string& description, const std::string& words) {
  const auto take = [&value, parse](const std::string& word) {
    auto parsed = parse(word);
    if (!parsed.ok()) throw CLI::ValidationError(parsed.error().message);
    value = std::move(parsed).value();
  };
  return command.add_option_function<std::string>(names, take, description)->option_text(words);
}

/// The inverse of to_string. Errors: InvalidArgument, naming the accepted words.
Result<Level> parse_level(std::string_view word);
Result<Primary> parse_primary(std::string_view word);
/// "singleton", "compound", or epochs with their numbers of items: "1+2+1".
Result<UpdateShape> parse_shape(std::string_view word);

/// --domain, --ddio, --receive-buffers, --transport and one flag for each capability.
void add_profile_options(CLI::App& command, ServerProfile& profile);

}  // namespace perdure::app
