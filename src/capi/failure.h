// How a call of the C interface fails (the code is returned, the words are kept for its thread),
// and what its calls share.
#pragma once

#include <perdure/log.h>
#include <perdure/perdure.h>
#include <perdure/result.h>

#include "core/forks.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace perdure::capi {

constexpr perdure_code number_of(ErrorCode code) {
  return static_cast<perdure_code>(static_cast<int>(code) + 1);
}
perdure_code fail(const Error& error);
/// With InvalidArgument.
perdure_code fail(const char* what);
/// What take_sized refuses.
inline perdure_code fail_of_size() {
  return fail("options: size is not set, or fields are that this library does not know");
}

inline perdure_code code_of(const Result<void>& result) {
  return result.ok() ? PERDURE_OK : fail(result.error());
}

inline bool known(perdure_level level) {
  return level >= PERDURE_RECEIVED && level <= PERDURE_COMMITTED;
}

/// Of these `reserved` was padding once, and older callers left there what there was.
template <typename T>
inline constexpr bool kReservedWasPadding = false;
template <>
inline constexpr bool kReservedWasPadding<perdure_log_options> = true;
template <>
inline constexpr bool kReservedWasPadding<perdure_region_options> = true;

template <typename Field>
bool is_zero(const Field& field) {
  const auto bytes = std::as_bytes(std::span(&field, 1));
  return std::all_of(bytes.begin(), bytes.end(),
                     [](std::byte each) { return each == std::byte{}; });
}

/// Later fields are made of reserved bytes, too: what is set there asks for something that this
/// library does not have.
template <typename T>
bool is_nothing_reserved_set(const T& taken) {
  bool unset = true;
  if constexpr (requires { taken.reserved; } && !kReservedWasPadding<T>) {
    unset = unset && is_zero(taken.reserved);
  }
  if constexpr (requires { taken.reserved_too; }) unset = unset && is_zero(taken.reserved_too);
  if constexpr (requires { taken.reserved_last; }) unset = unset && is_zero(taken.reserved_last);
  return unset;
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
  return is_nothing_reserved_set(taken);
}

/// Asked before a call does anything: what is given has a size. NULL: nothing is.
template <typename T>
bool has_size(const T* status) {
  return status == nullptr || status->size >= sizeof status->size;
}
inline perdure_code fail_of_no_size() { return fail("status: size is not set"); }

/// Gives the caller what there is room for; its size stays.
template <typename T>
perdure_code give_sized(T told, T* status) {
  if (!has_size(status)) return fail_of_no_size();
  const std::size_t size = status->size;
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

/// A member of each handle.
struct Origin {
  std::uint32_t process = forks_so_far();
};

/// The same of a handle, unless it is NULL. In a child of fork() it is the parent's, and what has
/// no error of its own (how far is it?) would have an answer there.
template <typename Handle, typename Call>
perdure_code guarded(const Handle* handle, Call call) noexcept {
  if (handle == nullptr || handle->origin.process == forks_so_far()) {
    return guarded(std::move(call));
  }
  return fail("it was opened before fork(): a child opens its own");
}

/// A sized struct ends where its last field does. In padding behind it an older caller's size would
/// cover whatever lay there, and a field that is added later would be read from that.
#define PERDURE_CAPI_ENDS_WITH(type, last)                                 \
  static_assert(offsetof(type, last) + sizeof(type::last) == sizeof(type), \
                "name the padding at the end of " #type)

/// As much of a text as there is room for.
template <std::size_t room>
void give_text(std::string_view text, char (&to)[room]) {
  to[text.copy(to, room - 1)] = '\0';
}

/// Of each of an array's structs, which lie as far apart as the caller's header says.
template <typename T>
bool have_sizes(const T* to, std::size_t count) {
  if (count == 0) return true;
  const std::size_t apart = to->size;
  if (apart < sizeof to->size) return false;
  const auto* at = reinterpret_cast<const char*>(to);
  for (std::size_t index = 0; index < count; ++index) {
    if (reinterpret_cast<const T*>(at + index * apart)->size != apart) return false;
  }
  return true;
}
inline perdure_code fail_of_sizes() {
  return fail("the sizes of an array's structs are not set, or differ");
}

/// Gives each of `items`, as far as there are that many, what `tell` makes of one.
template <typename T, typename Items, typename Tell>
perdure_code give_all(const Items& items, T* to, std::size_t count, std::size_t* there,
                      const Tell& tell) {
  *there = items.size();
  if (count == 0) return PERDURE_OK;
  if (!have_sizes(to, count)) return fail_of_sizes();
  auto* at = reinterpret_cast<char*>(to);
  const std::size_t apart = to->size;
  for (std::size_t index = 0; index < std::min(count, items.size()); ++index) {
    auto* one = reinterpret_cast<T*>(at + index * apart);
    if (const auto code = give_sized(tell(items[index]), one); code != PERDURE_OK) return code;
  }
  return PERDURE_OK;
}

template <typename Given>
void take_rnic(const Given& given, RnicOptions& rnic) {
  if (given.rnic != nullptr) rnic.name = given.rnic;
  if (given.rnic_ack_timeout != 0) rnic.ack_timeout = given.rnic_ack_timeout;
  if (given.rnic_traffic_class != 0) rnic.traffic_class = given.rnic_traffic_class;
}

inline perdure_ticket ticket_of(const Ticket& ticket) {
  return {ticket.lsn.value, ticket.end.value, ticket.index, ticket.writer};
}
inline Ticket ticket_of(const perdure_ticket& ticket) {
  return {{ticket.lsn}, {ticket.end}, ticket.index, ticket.writer};
}

inline perdure_code give_ticket(const Result<Ticket>& appended, perdure_ticket* ticket) {
  if (!appended.ok()) return fail(appended.error());
  *ticket = ticket_of(*appended);
  return PERDURE_OK;
}

inline bool is_record(const void* record, std::size_t bytes) {
  return record != nullptr || bytes == 0;
}
/// Nothing: one of them is NULL and not empty.
inline std::optional<std::vector<std::span<const std::byte>>> pieces_of(const perdure_bytes* pieces,
                                                                        std::size_t count) {
  if (pieces == nullptr && count != 0) return std::nullopt;
  std::vector<std::span<const std::byte>> taken;
  taken.reserve(count);
  for (std::size_t index = 0; index < count; ++index) {
    const perdure_bytes& piece = pieces[index];
    if (!is_record(piece.bytes, piece.length)) return std::nullopt;
    taken.emplace_back(static_cast<const std::byte*>(piece.bytes), piece.length);
  }
  return taken;
}

/// What the options of a log, a region and a mirror have in common. `given` is what the caller has
/// set.
/// Errors: what is wrong with them, as fail says it.
template <typename Given, typename Options>
perdure_code take_peers(const Given* options, Given& given, Options& opened) {
  if (!take_sized(options, given)) {
    return fail_of_size();
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
  take_rnic(given, opened.rnic);
  if (given.writer_name != nullptr) opened.writer_name = given.writer_name;
  opened.measure_costs = !given.usual_costs;
  opened.take_over = given.take_over;
  return PERDURE_OK;
}

/// The same, and what a log and a region have besides.
template <typename Given, typename Options>
perdure_code take_options(const Given* options, Given& given, Options& opened) {
  if (const auto code = take_peers(options, given, opened); code != PERDURE_OK) return code;
  if (given.visible_only) opened.level = Level::Visible;
  opened.create = !given.existing_only;
  return PERDURE_OK;
}

perdure_log_status status_of(const LogStatus& now);
perdure_time_counts counts_of(const TimeCounts& counts);
perdure_log_times times_of(const LogTimes& times);
/// Errors: what is wrong with them, as fail says it.
perdure_code options_of(const perdure_log_options* options, LogOptions& opened);

}  // namespace perdure::capi
