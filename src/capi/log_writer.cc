// The C interface of a log that many threads append to.
#include <perdure/log_writer.h>
#include <perdure/perdure.h>

#include <utility>

#include "capi/failure.h"

using perdure::Level;
using perdure::capi::code_of;
using perdure::capi::fail;
using perdure::capi::guarded;
using perdure::capi::known;

struct perdure_log_writer {
  explicit perdure_log_writer(perdure::LogWriter opened) : writer(std::move(opened)) {}
  perdure::LogWriter writer;
};

namespace {

perdure_ticket ticket_of(const perdure::Ticket& ticket) {
  return {ticket.lsn.value, ticket.end.value, ticket.index, ticket.writer};
}

bool is_record(const void* record, size_t bytes) { return record != nullptr || bytes == 0; }

}  // namespace

perdure_code perdure_log_writer_open(const perdure_log_options* options, bool own_thread,
                                     perdure_log_writer** writer) {
  if (options == nullptr || writer == nullptr) return fail("options and writer must not be NULL");
  return guarded([&] {
    perdure::LogOptions opened;
    const perdure_code code = perdure::capi::options_of(options, opened);
    if (code != PERDURE_OK) return code;
    perdure::LogWriterOptions how;
    how.own_thread = own_thread;
    auto result = perdure::LogWriter::open(std::move(opened), how);
    if (!result.ok()) return fail(result.error());
    *writer = new perdure_log_writer(std::move(result).value());
    return PERDURE_OK;
  });
}

perdure_code perdure_log_writer_close(perdure_log_writer* writer, uint32_t timeout_ms) {
  if (writer == nullptr) return PERDURE_OK;
  return guarded([&] {
    const auto closed = writer->writer.close(std::chrono::milliseconds(timeout_ms));
    delete writer;
    return code_of(closed);
  });
}

perdure_code perdure_log_writer_commit(perdure_log_writer* writer, const void* record, size_t bytes,
                                       perdure_level level, uint32_t timeout_ms,
                                       perdure_ticket* ticket) {
  if (writer == nullptr || ticket == nullptr || !is_record(record, bytes)) {
    return fail("writer, record and ticket must not be NULL");
  }
  if (!known(level)) return fail("unknown level");
  return guarded([&] {
    const auto result =
        writer->writer.commit({static_cast<const std::byte*>(record), bytes},
                              static_cast<Level>(level), std::chrono::milliseconds(timeout_ms));
    if (!result.ok()) return fail(result.error());
    *ticket = ticket_of(*result);
    return PERDURE_OK;
  });
}

perdure_code perdure_log_writer_submit(perdure_log_writer* writer, const void* record, size_t bytes,
                                       uint64_t tag, perdure_level level, uint32_t timeout_ms) {
  if (writer == nullptr || !is_record(record, bytes)) {
    return fail("writer and record must not be NULL");
  }
  if (!known(level)) return fail("unknown level");
  return guarded([&] {
    return code_of(writer->writer.submit_tagged({static_cast<const std::byte*>(record), bytes}, tag,
                                                static_cast<Level>(level),
                                                std::chrono::milliseconds(timeout_ms)));
  });
}

perdure_code perdure_log_writer_poll(perdure_log_writer* writer) {
  if (writer == nullptr) return fail("writer must not be NULL");
  return guarded([&] {
    writer->writer.poll();
    return PERDURE_OK;
  });
}

int perdure_log_writer_completion_fd(const perdure_log_writer* writer) {
  return writer == nullptr ? -1 : writer->writer.completion_fd();
}

perdure_code perdure_log_writer_take(perdure_log_writer* writer, perdure_finished* finished,
                                     size_t count, size_t* taken) {
  if (writer == nullptr || taken == nullptr || (finished == nullptr && count != 0)) {
    return fail("writer, finished and taken must not be NULL");
  }
  return guarded([&] {
    *taken = 0;
    if (count == 0) return PERDURE_OK;
    for (const perdure::FinishedRecord& each : writer->writer.take_completed(count)) {
      perdure_finished& told = finished[(*taken)++];
      told = {};
      told.tag = each.tag;
      if (each.outcome.ok()) {
        told.ticket = ticket_of(*each.outcome);
      } else {
        told.code = fail(each.outcome.error());
      }
    }
    return PERDURE_OK;
  });
}

perdure_code perdure_log_writer_trim(perdure_log_writer* writer, uint64_t lsn) {
  if (writer == nullptr) return fail("writer must not be NULL");
  return guarded([&] {
    perdure::Result<void> trimmed;
    const auto used =
        writer->writer.with_log([&](perdure::Log& log) { trimmed = log.trim(perdure::Lsn{lsn}); });
    return code_of(used.ok() ? trimmed : used);
  });
}

perdure_code perdure_log_writer_get_status(perdure_log_writer* writer, perdure_log_status* status) {
  if (writer == nullptr || status == nullptr) return fail("writer and status must not be NULL");
  return guarded([&] {
    perdure_log_status told{};
    const auto used = writer->writer.with_log(
        [&](perdure::Log& log) { told = perdure::capi::status_of(log.status()); });
    if (!used.ok()) return fail(used.error());
    return perdure::capi::give_sized(told, status);
  });
}

perdure_code perdure_log_writer_get_times(perdure_log_writer* writer, perdure_log_times* times) {
  if (writer == nullptr || times == nullptr) return fail("writer and times must not be NULL");
  return guarded([&] {
    perdure_log_times told{};
    const auto used = writer->writer.with_log(
        [&](perdure::Log& log) { told = perdure::capi::times_of(log.times()); });
    if (!used.ok()) return fail(used.error());
    return perdure::capi::give_sized(told, times);
  });
}
