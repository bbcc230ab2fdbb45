// Where the library says what it noticed. The function that first knows reports it, once.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace perdure {

enum class Severity { Debug, Info, Warning, Error };

std::string_view to_string(Severity severity);

using LogCallback = std::function<void(Severity, const std::string&)>;

/// Replaces the receiver of messages; an empty one discards them (the default).
/// Threads: any; the callback may be called from any thread, one call at a time.
void set_log_callback(LogCallback callback);

void log_message(Severity severity, const std::string& message);

}  // namespace perdure
