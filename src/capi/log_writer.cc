// The C interface of a log that many threads append to.
#include <perdure/log_writer.h>
#include <perdure/perdure.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "capi/failure.h"
#include "capi/handles.h"

using perdure::Level;
using perdure::capi::code_of;
using perdure::capi::fail;
using perdure::capi::give_ticket;
using perdure::capi::guarded;
using perdure::capi::known;
using perdure::capi::pieces_of;
using perdure::capi::ticket_of;

struct perdure_log_writer {
  explicit perdure_log_writer(perdure::LogWriter opened) : writer(std::move(opened)) {}
  perdure::LogWriter writer;
  std::atomic<std::thread::id> user{};  // whose perdure_log_use is being called
  perdure::capi::Origin origin = {};
};

namespace {

PERDURE_CAPI_ENDS_WITH(perdure_log_writer_options, reserved);

perdure_code open_writer(perdure::Result<perdure::LogOptions> options,
                         const perdure_log_writer_options* how, perdure_log_writer** writer) {
  if (!options.ok()) return fail(options.error());
  perdure::LogWriterOptions opened;
  if (how != nullptr) {
    perdure_log_writer_options given{};
    if (!perdure::capi::take_sized(how, given)) {
      return perdure::capi::fail_of_size();
    }
    opened.own_thread = given.own_thread;
    if (given.records_max != 0) opened.records_max = given.records_max;
  }
  auto result = perdure::LogWriter::open(std::move(options).value(), opened);
  if (!result.ok()) return fail(result.error());
  *writer = new perdure_log_writer(std::move(result).value());
  return PERDURE_OK;
}

/// Of a thread's last perdure_log_writer_take, and none any more when it ends: handlers of exit()
/// that take what is left then get no words.
class FinishedMessages {
 public:
  ~FinishedMessages() { gone_ = true; }
  /// Makes room; nothing of it is kept if there is none.
  void begin(std::size_t count) {
    if (gone_) return;
    words_.clear();
    words_.resize(count);
  }
  void keep(std::size_t index, const std::string& words) {
    if (gone_) return;
    try {
      words_[index] = words;
    } catch (const std::bad_alloc&) {
      words_[index].clear();
    }
  }
  const char* at(std::size_t index) const {
    return !gone_ && index < words_.size() ? words_[index].c_str() : "";
  }

 private:
  static thread_local bool gone_;
  std::vector<std::string> words_;
};
thread_local bool FinishedMessages::gone_ = false;
thread_local FinishedMessages finished_messages;

perdure_finished finished_of(std::uint64_t tag, const perdure::Result<perdure::Ticket>& outcome) {
  perdure_finished told{};
  told.tag = tag;
  if (outcome.ok()) {
    told.ticket = ticket_of(*outcome);
  } else {
    told.code = perdure::capi::number_of(outcome.code());
  }
  return told;
}

}  // namespace

perdure_code perdure_log_writer_open_with(const perdure_log_options* options,
                                          const perdure_log_writer_options* how,
                                          perdure_log_writer** writer) {
  if (options == nullptr || writer == nullptr) return fail("options and writer must not be NULL");
  return guarded([&] {
    perdure::LogOptions opened;
    const perdure_code code = perdure::capi::options_of(options, opened);
    return code == PERDURE_OK ? open_writer(std::move(opened), how, writer) : code;
  });
}

perdure_code perdure_log_writer_open(const perdure_log_options* options, bool own_thread,
                                     perdure_log_writer** writer) {
  perdure_log_writer_options how{};
  how.size = sizeof how;
  how.own_thread = own_thread;
  return perdure_log_writer_open_with(options, &how, writer);
}

perdure_code perdure_log_writer_open_string(const char* connection,
                                            const perdure_log_writer_options* how,
                                            perdure_log_writer** writer) {
  if (connection == nullptr || writer == nullptr) {
    return fail("connection and writer must not be NULL");
  }
  return guarded([&] { return open_writer(perdure::parse_log_options(connection), how, writer); });
}

perdure_code perdure_log_writer_open_file(const char* path, const perdure_log_writer_options* how,
                                          perdure_log_writer** writer) {
  if (path == nullptr || writer == nullptr) return fail("path and writer must not be NULL");
  return guarded([&] { return open_writer(perdure::read_log_options(path), how, writer); });
}

perdure_code perdure_log_writer_close(perdure_log_writer* writer, uint32_t timeout_ms) {
  if (writer == nullptr) return PERDURE_OK;
  return guarded([&] {
    if (writer->user == std::this_thread::get_id()) {
      return fail("this thread uses the writer's log: close the writer after that");
    }
    const std::unique_ptr<perdure_log_writer> freed(writer);
    return code_of(writer->writer.close(std::chrono::milliseconds(timeout_ms)));
  });
}

perdure_code perdure_log_writer_commit(perdure_log_writer* writer, const void* record, size_t bytes,
                                       perdure_level level, uint32_t timeout_ms,
                                       perdure_ticket* ticket) {
  const perdure_bytes piece{record, bytes};
  return perdure_log_writer_commit_pieces(writer, &piece, 1, level, timeout_ms, ticket);
}

perdure_code perdure_log_writer_commit_pieces(perdure_log_writer* writer,
                                              const perdure_bytes* pieces, size_t count,
                                              perdure_level level, uint32_t timeout_ms,
                                              perdure_ticket* ticket) {
  if (writer == nullptr || ticket == nullptr) return fail("writer and ticket must not be NULL");
  if (!known(level)) return fail("unknown level");
  return guarded(writer, [&] {
    const auto taken = pieces_of(pieces, count);
    if (!taken) return fail("a record must not be NULL");
    return give_ticket(writer->writer.commit(*taken, static_cast<Level>(level),
                                             std::chrono::milliseconds(timeout_ms)),
                       ticket);
  });
}

perdure_code perdure_log_writer_commit_in_place(perdure_log_writer* writer, uint64_t bytes,
                                                perdure_record_writer write, void* context,
                                                perdure_level level, uint32_t timeout_ms,
                                                perdure_ticket* ticket) {
  if (writer == nullptr || write == nullptr || ticket == nullptr) {
    return fail("writer, write and ticket must not be NULL");
  }
  if (!known(level)) return fail("unknown level");
  return guarded(writer, [&] {
    const auto write_it = [write, context](std::span<std::byte> room) {
      return write(room.data(), room.size(), context);
    };
    return give_ticket(writer->writer.commit_in_place(bytes, write_it, static_cast<Level>(level),
                                                      std::chrono::milliseconds(timeout_ms)),
                       ticket);
  });
}

perdure_code perdure_log_writer_with_log(perdure_log_writer* writer, perdure_log_use use,
                                         void* context) {
  if (writer == nullptr || use == nullptr) return fail("writer and use must not be NULL");
  return guarded(writer, [&] {
    return code_of(writer->writer.with_log([&](perdure::Log& log) {
      perdure_log lent(&log);
      writer->user = std::this_thread::get_id();
      use(&lent, context);
      writer->user = std::thread::id();
    }));
  });
}

perdure_code perdure_log_writer_submit(perdure_log_writer* writer, const void* record, size_t bytes,
                                       uint64_t tag, perdure_level level, uint32_t timeout_ms) {
  const perdure_bytes piece{record, bytes};
  return perdure_log_writer_submit_pieces(writer, &piece, 1, tag, level, timeout_ms);
}

perdure_code perdure_log_writer_submit_pieces(perdure_log_writer* writer,
                                              const perdure_bytes* pieces, size_t count,
                                              uint64_t tag, perdure_level level,
                                              uint32_t timeout_ms) {
  if (writer == nullptr) return fail("writer must not be NULL");
  if (!known(level)) return fail("unknown level");
  return guarded(writer, [&] {
    const auto taken = pieces_of(pieces, count);
    if (!taken) return fail("a record must not be NULL");
    return code_of(writer->writer.submit_tagged(*taken, tag, static_cast<Level>(level),
                                                std::chrono::milliseconds(timeout_ms)));
  });
}

perdure_code perdure_log_writer_submit_calling(perdure_log_writer* writer,
                                               const perdure_bytes* pieces, size_t count,
                                               uint64_t tag, perdure_level level,
                                               uint32_t timeout_ms,
                                               perdure_finished_callback callback, void* context) {
  if (writer == nullptr || callback == nullptr) return fail("writer and callback must not be NULL");
  if (!known(level)) return fail("unknown level");
  return guarded(writer, [&] {
    const auto taken = pieces_of(pieces, count);
    if (!taken) return fail("a record must not be NULL");
    const auto done = [tag, callback, context](const perdure::Result<perdure::Ticket>& outcome) {
      const perdure_finished finished = finished_of(tag, outcome);
      callback(&finished, outcome.ok() ? "" : outcome.error().message.c_str(), context);
    };
    return code_of(writer->writer.submit(*taken, done, static_cast<Level>(level),
                                         std::chrono::milliseconds(timeout_ms)));
  });
}

perdure_code perdure_log_writer_poll(perdure_log_writer* writer) {
  return perdure_log_writer_poll_within(writer, 0);
}

perdure_code perdure_log_writer_poll_within(perdure_log_writer* writer, uint32_t timeout_ms) {
  if (writer == nullptr) return fail("writer must not be NULL");
  return guarded(writer, [&] {
    writer->writer.poll(std::chrono::milliseconds(timeout_ms));
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
  return guarded(writer, [&] {
    *taken = 0;
    finished_messages.begin(count);  // what is taken is told, whatever memory there is
    if (count == 0) return PERDURE_OK;
    for (const perdure::FinishedRecord& each : writer->writer.take_completed(count)) {
      finished[*taken] = finished_of(each.tag, each.outcome);
      if (!each.outcome.ok()) finished_messages.keep(*taken, each.outcome.error().message);
      ++*taken;
    }
    return PERDURE_OK;
  });
}

const char* perdure_finished_message(size_t index) { return finished_messages.at(index); }

perdure_code perdure_log_writer_trim(perdure_log_writer* writer, uint64_t lsn) {
  if (writer == nullptr) return fail("writer must not be NULL");
  return guarded(writer, [&] {
    perdure::Result<void> trimmed;
    const auto used =
        writer->writer.with_log([&](perdure::Log& log) { trimmed = log.trim(perdure::Lsn{lsn}); });
    return code_of(used.ok() ? trimmed : used);
  });
}

perdure_code perdure_log_writer_get_status(perdure_log_writer* writer, perdure_log_status* status) {
  if (writer == nullptr || status == nullptr) return fail("writer and status must not be NULL");
  return guarded(writer, [&] {
    perdure_log_status told{};
    const auto used = writer->writer.with_log(
        [&](perdure::Log& log) { told = perdure::capi::status_of(log.status()); });
    if (!used.ok()) return fail(used.error());
    return perdure::capi::give_sized(told, status);
  });
}

perdure_code perdure_log_writer_get_times(perdure_log_writer* writer, perdure_log_times* times) {
  if (writer == nullptr || times == nullptr) return fail("writer and times must not be NULL");
  return guarded(writer, [&] {
    perdure_log_times told{};
    const auto used = writer->writer.with_log(
        [&](perdure::Log& log) { told = perdure::capi::times_of(log.times()); });
    if (!used.ok()) return fail(used.error());
    return perdure::capi::give_sized(told, times);
  });
}
