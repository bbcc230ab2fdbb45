// Where the library says what it noticed. The function that first knows reports it, once.
#pragma once

#include <perdure/messages.h>

#include <string>

namespace perdure {

void log_message(Severity severity, const std::string& message);

}  // namespace perdure
