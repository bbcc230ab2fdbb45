// How a call of the C interface fails (the code is returned, the words are kept for its thread),
// and what its calls share.
#pragma once

#include <perdure/log.h>
#include <perdure/perdure.h>
#include <perdure/result.h>

#include <algorithm>
#include <cstring>
#include <exception>

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

/// What the caller has of a sized struct; the rest is zero. False: it has no size, or fields that
/// are set and that this library does not know.
template <typename T>
bool take_sized(const T* given, T& taken) {
  const auto* bytes = reinterpret_cast<const char*>(given);
  if (given->size < sizeof given->size) return false;
  std::memcpy(&taken, bytes, std::min(given->size, sizeof taken));
  for (std::size_t at = sizeof taken; at < given->size; ++at) {
    if (bytes[at] != 0) return false;
  }
  return true;
}

/// Gives the caller what there is room for; its size stays.
template <typename T>
perdure_code give_sized(T told, T* status) {
  const std::size_t size = status->size;
  if (size < sizeof status->size) return fail("status: size is not set");
  told.size = size;
  std::memcpy(status, &told, std::min(size, sizeof told));
  return PERDURE_OK;
}

/// Nothing is thrown into C: what the standard library throws (no memory) is a code too.
template <typename Call>
perdure_code guarded(Call call) noexcept {
  try {
    return call();
  } catch (const std::exception& thrown) {
    return fail(Error{ErrorCode::SystemError, thrown.what()});
  }
}

perdure_log_status status_of(const LogStatus& now);
perdure_log_times times_of(const LogTimes& times);
/// Errors: what is wrong with them, as fail says it.
perdure_code options_of(const perdure_log_options* options, LogOptions& opened);

}  // namespace perdure::capi
