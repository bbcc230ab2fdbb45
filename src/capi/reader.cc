// The C interface of readers.
#include <perdure/log.h>
#include <perdure/perdure.h>

#include <string>
#include <utility>

#include "capi/failure.h"
#include "capi/handles.h"

using perdure::capi::fail;
using perdure::capi::guarded;
using perdure::capi::take_sized;

static_assert(PERDURE_END_TORN == static_cast<int>(perdure::LogEnd::Torn));
static_assert(PERDURE_END_RING_FULL == static_cast<int>(perdure::LogEnd::RingFull));
PERDURE_CAPI_ENDS_WITH(perdure_reader_options, rnic_traffic_class);

struct perdure_reader {
  perdure::LogReader reader;
  std::string peer;  // as it was told last
  perdure::capi::Origin origin = {};
};

namespace {

perdure_code reader_options_of(const perdure_reader_options* options,
                               perdure::LogReaderOptions& opened) {
  perdure_reader_options given{};
  if (!take_sized(options, given)) {
    return perdure::capi::fail_of_size();
  }
  if (given.peers == nullptr && given.peer_count != 0) return fail("peers is NULL");
  for (std::size_t index = 0; index < given.peer_count; ++index) {
    if (given.peers[index] == nullptr) return fail("a peer is NULL");
    opened.peers.emplace_back(given.peers[index]);
  }
  if (given.pool != nullptr) opened.pool = given.pool;
  if (given.transport != nullptr) {
    if (auto set = perdure::set_option(opened, "transport", given.transport); !set) {
      return fail(set.error());
    }
  }
  perdure::capi::take_rnic(given, opened.rnic);
  opened.from = perdure::Lsn{given.from_lsn};
  opened.from_index = given.from_index;
  opened.uncommitted = given.uncommitted;
  if (given.timeout_ms != 0) opened.timeout = std::chrono::milliseconds(given.timeout_ms);
  return PERDURE_OK;
}

perdure_code give_reader(perdure::Result<perdure::LogReader> opened, perdure_reader** reader) {
  if (!opened.ok()) return fail(opened.error());
  *reader = new perdure_reader{std::move(opened).value(), {}};
  return PERDURE_OK;
}

perdure_code open_reader(perdure::Result<perdure::LogReaderOptions> options,
                         perdure_reader** reader) {
  if (!options.ok()) return fail(options.error());
  return give_reader(perdure::LogReader::open(std::move(options).value()), reader);
}

}  // namespace

perdure_code perdure_reader_open(const perdure_reader_options* options, perdure_reader** reader) {
  if (options == nullptr || reader == nullptr) return fail("options and reader must not be NULL");
  return guarded([&] {
    perdure::LogReaderOptions opened;
    const perdure_code code = reader_options_of(options, opened);
    if (code != PERDURE_OK) return code;
    if (opened.peers.empty() || opened.pool.empty()) {
      return fail("a reader needs peers and the name of a pool");
    }
    return open_reader(std::move(opened), reader);
  });
}

perdure_code perdure_reader_open_string(const char* connection, perdure_reader** reader) {
  if (connection == nullptr || reader == nullptr) {
    return fail("connection and reader must not be NULL");
  }
  return guarded([&] { return open_reader(perdure::parse_reader_options(connection), reader); });
}

perdure_code perdure_reader_open_file(const char* path, perdure_reader** reader) {
  if (path == nullptr || reader == nullptr) return fail("path and reader must not be NULL");
  return guarded([&] { return open_reader(perdure::read_reader_options(path), reader); });
}

perdure_code perdure_log_reader(const perdure_log* log, const perdure_reader_options* options,
                                perdure_reader** reader) {
  if (log == nullptr || reader == nullptr) return fail("log and reader must not be NULL");
  return guarded(log, [&] {
    perdure::LogReaderOptions opened;
    const perdure_code code = options == nullptr ? PERDURE_OK : reader_options_of(options, opened);
    if (code != PERDURE_OK) return code;
    return give_reader(log->log.reader(std::move(opened)), reader);
  });
}

void perdure_reader_close(perdure_reader* reader) { delete reader; }

perdure_code perdure_reader_next(perdure_reader* reader, perdure_record* record, bool* found) {
  if (reader == nullptr || record == nullptr || found == nullptr) {
    return fail("reader, record and found must not be NULL");
  }
  return guarded(reader, [&] {
    auto result = reader->reader.next();
    if (!result.ok()) return fail(result.error());
    *found = result->has_value();
    if (!*found) return PERDURE_OK;
    const perdure::Record& read = **result;
    *record = {read.lsn.value, read.index, read.epoch.value, read.bytes.data(), read.bytes.size()};
    return PERDURE_OK;
  });
}

perdure_code perdure_reader_get_position(const perdure_reader* reader, uint64_t* position,
                                         uint64_t* committed) {
  if (reader == nullptr) return fail("reader must not be NULL");
  return guarded(reader, [&] {
    if (position != nullptr) *position = reader->reader.position().value;
    if (committed != nullptr) *committed = reader->reader.committed().value;
    return PERDURE_OK;
  });
}

perdure_code perdure_reader_get_end(const perdure_reader* reader, perdure_log_end* end) {
  if (reader == nullptr || end == nullptr) return fail("reader and end must not be NULL");
  return guarded(reader, [&] {
    *end = static_cast<perdure_log_end>(reader->reader.end());
    return PERDURE_OK;
  });
}

const char* perdure_reader_peer(perdure_reader* reader) {
  if (reader == nullptr) return "";
  const perdure_code told = guarded([&] {
    reader->peer = reader->reader.peer();
    return PERDURE_OK;
  });
  return told == PERDURE_OK ? reader->peer.c_str() : "";
}
