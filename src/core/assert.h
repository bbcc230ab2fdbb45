// PERDURE_ASSERT: what only a bug can violate. Switched on in every build.
#pragma once

namespace perdure {

/// Prints the condition and the place, then aborts.
[[noreturn]] void assertion_failed(const char* condition, const char* file, int line);

}  // namespace perdure

#define PERDURE_ASSERT(condition)                                  \
  do {                                                             \
    if (!(condition)) [[unlikely]]                                 \
      ::perdure::assertion_failed(#condition, __FILE__, __LINE__); \
  } while (false)
