// The C interface over the C++ one: handles, codes and the last message of a thread.
#include <perdure/log.h>
#include <perdure/perdure.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "capi/failure.h"
#include "capi/handles.h"
#include "core/thread_text.h"

using perdure::ErrorCode;
using perdure::Level;
using perdure::capi::code_of;
using perdure::capi::fail;
using perdure::capi::give_ticket;
using perdure::capi::guarded;
using perdure::capi::is_record;
using perdure::capi::known;
using perdure::capi::ticket_of;
using std::chrono::milliseconds;

namespace {

// The C codes are the C++ ones shifted by one, since 0 is success.
static_assert(PERDURE_INVALID_ARGUMENT == static_cast<int>(ErrorCode::InvalidArgument) + 1);
static_assert(PERDURE_OUTCOME_UNKNOWN == static_cast<int>(ErrorCode::OutcomeUnknown) + 1);
static_assert(PERDURE_SYSTEM_ERROR == static_cast<int>(ErrorCode::SystemError) + 1);
static_assert(PERDURE_COMMITTED == static_cast<int>(Level::Committed));

thread_local perdure::ThreadText last_error;

}  // namespace

perdure_code perdure::capi::fail(const Error& error) {
  last_error.set(error.message);
  return number_of(error.code);
}

perdure_code perdure::capi::fail(const char* what) {
  return fail(Error{ErrorCode::InvalidArgument, what});
}

const char* perdure_code_name(perdure_code code) {
  if (code == PERDURE_OK) return "ok";
  return perdure::to_string(static_cast<ErrorCode>(static_cast<int>(code) - 1)).data();
}

const char* perdure_last_error(void) { return last_error.c_str(); }

perdure_code perdure::capi::options_of(const perdure_log_options* options, LogOptions& opened) {
  perdure_log_options given{};
  const perdure_code code = take_options(options, given, opened);
  if (code != PERDURE_OK) return code;
  if (given.shape != nullptr) {
    if (auto set = set_option(opened, "shape", given.shape); !set) return fail(set.error());
  }
  opened.accept_loss = given.accept_loss;
  opened.partial = given.partial;
  if (given.record_bytes_max != 0) opened.record_bytes_max = given.record_bytes_max;
  if (given.batches_in_flight != 0) opened.batches_in_flight = given.batches_in_flight;
  if (given.replica_timeout_ms != 0) {
    opened.replica_timeout = std::chrono::milliseconds(given.replica_timeout_ms);
  }
  opened.reconnect = std::chrono::milliseconds(given.reconnect_ms);
  if (given.spin_us != 0) opened.spin = std::chrono::microseconds(given.spin_us);
  if (given.never_spin) opened.spin = std::chrono::microseconds(0);
  return PERDURE_OK;
}

static_assert(PERDURE_TIME_CLASSES == perdure::TimeCounts::kClasses);

perdure_time_counts perdure::capi::counts_of(const TimeCounts& counts) {
  perdure_time_counts told{};
  std::copy(counts.classes.begin(), counts.classes.end(), told.classes);
  told.sum_ns = counts.sum_ns;
  return told;
}

perdure_log_times perdure::capi::times_of(const LogTimes& times) {
  perdure_log_times told{};
  told.durable = counts_of(times.durable);
  told.committed = counts_of(times.committed);
  return told;
}

perdure_log_status perdure::capi::status_of(const LogStatus& now) {
  perdure_log_status told{};
  told.epoch = now.epoch.value;
  told.head = now.head.value;
  told.tail = now.tail.value;
  told.committed = now.committed.value;
  told.next_index = now.next_index;
  told.quorum = now.quorum;
  told.replicas = now.replicas.size();
  for (const ReplicaStatus& replica : now.replicas) told.replicas_up += replica.up ? 1 : 0;
  told.ring_bytes = now.ring_bytes;
  give_text(to_string(now.shape), told.shape);
  give_text(now.accepted_loss, told.accepted_loss);
  give_text(now.configuration, told.configuration);
  return told;
}

namespace {

PERDURE_CAPI_ENDS_WITH(perdure_log_options, reserved_too);
PERDURE_CAPI_ENDS_WITH(perdure_log_status, configuration);
PERDURE_CAPI_ENDS_WITH(perdure_log_times, committed);

perdure_code open_log(perdure::LogOptions options, perdure_log** log) {
  auto result = perdure::Log::open(std::move(options));
  if (!result.ok()) return fail(result.error());
  *log = new perdure_log(std::move(result).value());
  return PERDURE_OK;
}

}  // namespace

perdure_code perdure_log_open(const perdure_log_options* options, perdure_log** log) {
  if (options == nullptr || log == nullptr) return fail("options and log must not be NULL");
  return guarded([&] {
    perdure::LogOptions opened;
    const perdure_code code = perdure::capi::options_of(options, opened);
    return code == PERDURE_OK ? open_log(std::move(opened), log) : code;
  });
}

perdure_code perdure_log_open_string(const char* connection, perdure_log** log) {
  if (connection == nullptr || log == nullptr) return fail("connection and log must not be NULL");
  return guarded([&] {
    auto options = perdure::parse_log_options(connection);
    return options.ok() ? open_log(std::move(*options), log) : fail(options.error());
  });
}

perdure_code perdure_log_open_file(const char* path, perdure_log** log) {
  if (path == nullptr || log == nullptr) return fail("path and log must not be NULL");
  return guarded([&] {
    auto options = perdure::read_log_options(path);
    return options.ok() ? open_log(std::move(*options), log) : fail(options.error());
  });
}

void perdure_log_close(perdure_log* log) {
  if (log != nullptr && log->opened) delete log;
}

perdure_code perdure_log_close_within(perdure_log* log, uint32_t timeout_ms) {
  if (log == nullptr) return PERDURE_OK;
  if (!log->opened) return fail("this log is its writer's, which closes it");
  return guarded([&] {
    const std::unique_ptr<perdure_log> freed(log);
    return code_of(log->log.close(milliseconds(timeout_ms)));
  });
}

perdure_code perdure_log_append(perdure_log* log, const void* record, size_t bytes,
                                perdure_ticket* ticket) {
  if (log == nullptr || ticket == nullptr || !is_record(record, bytes)) {
    return fail("log, record and ticket must not be NULL");
  }
  return guarded(log, [&] {
    return give_ticket(log->log.append({static_cast<const std::byte*>(record), bytes}), ticket);
  });
}

perdure_code perdure_log_wait(perdure_log* log, const perdure_ticket* ticket, perdure_level level,
                              uint32_t timeout_ms) {
  if (log == nullptr || ticket == nullptr) return fail("log and ticket must not be NULL");
  if (!known(level)) return fail("unknown level");
  return guarded(log, [&] {
    return code_of(
        log->log.wait(ticket_of(*ticket), static_cast<Level>(level), milliseconds(timeout_ms)));
  });
}

perdure_code perdure_log_append_would_block(perdure_log* log, uint64_t bytes, bool* yes) {
  if (log == nullptr || yes == nullptr) return fail("log and yes must not be NULL");
  return guarded(log, [&] {
    *yes = log->log.append_would_block(bytes);
    return PERDURE_OK;
  });
}

perdure_code perdure_log_append_pieces(perdure_log* log, const perdure_bytes* pieces, size_t count,
                                       perdure_ticket* ticket) {
  if (log == nullptr || ticket == nullptr) return fail("log and ticket must not be NULL");
  return guarded(log, [&] {
    const auto taken = perdure::capi::pieces_of(pieces, count);
    if (!taken) return fail("pieces must not be NULL");
    return give_ticket(log->log.append_pieces(*taken), ticket);
  });
}

perdure_code perdure_log_claim(perdure_log* log, uint64_t bytes, void** room) {
  if (log == nullptr || room == nullptr) return fail("log and room must not be NULL");
  return guarded(log, [&] {
    const auto claimed = log->log.claim(bytes);
    if (!claimed.ok()) return fail(claimed.error());
    *room = claimed->data();
    return PERDURE_OK;
  });
}

perdure_code perdure_log_append_claimed(perdure_log* log, uint64_t bytes, perdure_ticket* ticket) {
  if (log == nullptr || ticket == nullptr) return fail("log and ticket must not be NULL");
  return guarded(log, [&] { return give_ticket(log->log.append_claimed(bytes), ticket); });
}

perdure_code perdure_log_reached(const perdure_log* log, const perdure_ticket* ticket,
                                 perdure_level level, bool* yes) {
  if (log == nullptr || ticket == nullptr || yes == nullptr) {
    return fail("log, ticket and yes must not be NULL");
  }
  if (!known(level)) return fail("unknown level");
  return guarded(log, [&] {
    *yes = log->log.reached(ticket_of(*ticket), static_cast<Level>(level));
    return PERDURE_OK;
  });
}

perdure_code perdure_log_poll(perdure_log* log) { return perdure_log_poll_within(log, 0); }

perdure_code perdure_log_poll_within(perdure_log* log, uint32_t timeout_ms) {
  if (log == nullptr) return fail("log must not be NULL");
  return guarded(log, [&] { return code_of(log->log.poll(milliseconds(timeout_ms))); });
}

perdure_code perdure_log_trim(perdure_log* log, uint64_t lsn) {
  if (log == nullptr) return fail("log must not be NULL");
  return guarded(log, [&] { return code_of(log->log.trim(perdure::Lsn{lsn})); });
}

perdure_code perdure_log_repair(perdure_log* log, size_t* repaired) {
  if (log == nullptr) return fail("log must not be NULL");
  return guarded(log, [&] {
    const auto reports = log->log.repair();
    if (!reports.ok()) return fail(reports.error());
    const auto back = std::count_if(reports->begin(), reports->end(),
                                    [](const auto& report) { return report.repaired; });
    if (repaired != nullptr) *repaired = static_cast<size_t>(back);
    return code_of(log->log.poll());
  });
}

perdure_code perdure_log_get_status(const perdure_log* log, perdure_log_status* status) {
  if (log == nullptr || status == nullptr) return fail("log and status must not be NULL");
  return guarded(log, [&] {
    return perdure::capi::give_sized(perdure::capi::status_of(log->log.status()), status);
  });
}

perdure_code perdure_log_get_times(const perdure_log* log, perdure_log_times* times) {
  if (log == nullptr || times == nullptr) return fail("log and times must not be NULL");
  return guarded(log, [&] {
    return perdure::capi::give_sized(perdure::capi::times_of(log->log.times()), times);
  });
}

uint64_t perdure_time_class_end_ns(size_t index) {
  const auto& bounds = perdure::TimeCounts::kBoundsNs;
  return index < bounds.size() ? bounds[index] : UINT64_MAX;
}

uint64_t perdure_time_quantile_ns(const perdure_time_counts* counts, double fraction) {
  if (counts == nullptr) return 0;
  perdure::TimeCounts given;
  std::copy(std::begin(counts->classes), std::end(counts->classes), given.classes.begin());
  const auto time = given.quantile(fraction);
  return time == std::chrono::nanoseconds::max() ? UINT64_MAX : static_cast<uint64_t>(time.count());
}
