// The options of a log as words: one by one, and all in a connection string.
#pragma once

#include <perdure/log.h>

#include <optional>
#include <string_view>

namespace perdure::log {

/// "planned" is nothing: it is chosen. Errors: InvalidArgument, naming the words.
Result<std::optional<LogShape>> parse_shape_choice(std::string_view word);

}  // namespace perdure::log
