// How a call of the C interface fails: the code is returned, the words are kept for its thread.
#pragma once

#include <perdure/perdure.h>
#include <perdure/result.h>

namespace perdure::capi {

perdure_code fail(const Error& error);
/// With InvalidArgument.
perdure_code fail(const char* what);

inline perdure_code code_of(const Result<void>& result) {
  return result.ok() ? PERDURE_OK : fail(result.error());
}

inline bool known(perdure_level level) {
  return level >= PERDURE_RECEIVED && level <= PERDURE_COMMITTED;
}

}  // namespace perdure::capi
