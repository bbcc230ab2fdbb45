// How a call of the C interface fails (the code is returned, the words are kept for its thread),
// and what its calls share.
#pragma once

#include <perdure/log.h>
#include <perdure/perdure.h>
#include <perdure/result.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

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

/// What the options of a log and of a region have in common. `given` is what the caller has set.
/// Errors: what is wrong with them, as fail says it.
template <typename Given, typename Options>
perdure_code take_options(const Given* options, Given& given, Options& opened) {
  if (!take_sized(options, given)) {
    return fail("options: size is not set, or fields are that this library does not know");
  }
  if (given.pool == nullptr || (given.peers == nullptr && given.peer_count != 0)) {
    return fail("the options need peers and the name of a pool");
  }
  for (std::size_t index = 0; index < given.peer_count; ++index) {
    if (given.peers[index] == nullptr) return fail("a peer is NULL");
    opened.peers.emplace_back(given.peers[index]);
  }
  opened.pool = given.pool;
  opened.quorum = given.quorum;
  LogOptions words;
  const std::pair<const char*, const char*> named[] = {{"transport", given.transport},
                                                       {"primary", given.primary}};
  for (const auto& [name, word] : named) {
    if (word == nullptr) continue;
    if (auto set = set_option(words, name, word); !set) return fail(set.error());
  }
  opened.transport = words.transport;
  opened.primary = words.primary;
  if (given.rnic != nullptr) opened.rnic = given.rnic;
  if (given.writer_name != nullptr) opened.writer_name = given.writer_name;
  if (given.visible_only) opened.level = Level::Visible;
  opened.create = !given.existing_only;
  opened.measure_costs = !given.usual_costs;
  opened.take_over = given.take_over;
  return PERDURE_OK;
}

perdure_log_status status_of(const LogStatus& now);
perdure_log_times times_of(const LogTimes& times);
/// Errors: what is wrong with them, as fail says it.
perdure_code options_of(const perdure_log_options* options, LogOptions& opened);

}  // namespace perdure::capi
