// PERDURE_TRY: the early return of an error, so that the common case runs straight down.
#pragma once

#include <perdure/result.h>

#define PERDURE_CONCAT_INNER(a, b) a##b
#define PERDURE_CONCAT(a, b) PERDURE_CONCAT_INNER(a, b)

/// Declares `name` with the value of `expression`, or returns its error from this function.
#define PERDURE_TRY(name, expression) \
  PERDURE_TRY_IMPL(PERDURE_CONCAT(perdure_try_, __LINE__), name, expression)
#define PERDURE_TRY_IMPL(result, name, expression)    \
  auto result = (expression);                         \
  if (!result.ok()) return std::move(result).error(); \
  auto name = std::move(result).value()

/// The same for a Result<void>, or where the value is not wanted.
#define PERDURE_TRY_VOID(expression)                                 \
  do {                                                               \
    auto perdure_try_result = (expression);                          \
    if (!perdure_try_result.ok()) return perdure_try_result.error(); \
  } while (false)
