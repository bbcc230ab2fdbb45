#include "log/log_scan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/assert.h"
#include "core/try.h"

namespace perdure::log {
namespace {

constexpr std::uint64_t kWindowBytes = 1024 * 1024;
// How far beyond the end to look for the first record that a hole cut off.
constexpr std::uint64_t kLookAheadBytes = 256 * 1024;

using StatePage = std::array<std::byte, kStateBytes>;

/// The anchor, or what the state says of it when it is damaged or was never reached.
Result<void> read_anchor(std::span<const std::byte> bytes, std::uint64_t pool_bytes,
                         LogStart& start) {
  auto anchor = decode_anchor(bytes, pool_bytes);
  if (!anchor.ok() && anchor.code() == ErrorCode::VersionMismatch) return anchor.error();
  if (anchor.ok() && *anchor) {
    start.anchor = **anchor;
    if (!start.stored) {
      return Error{ErrorCode::Corrupt, "the log's state is gone; repair this replica"};
    }
    if (*start.anchor == start.state().anchor) return {};
  } else if (!anchor.ok() && !start.stored) {
    return anchor.error();
  }
  if (!start.stored) return {};
  start.anchor_damaged = !start.state().marks.creating;
  start.anchor = start.state().anchor;
  if (start.anchor->ring_bytes <= ring_bytes_for(pool_bytes) &&
      start.anchor->ring_bytes >= kRingBytesMin) {
    return {};
  }
  return Error{ErrorCode::Corrupt, "the log's state does not fit its pool"};
}

std::optional<Lsn> read_word(const std::byte* at, bool& damaged) {
  const auto word = decode_word(load<std::uint64_t>(at));
  damaged = !word.ok();
  return word.ok() ? *word : std::nullopt;
}

}  // namespace

std::string_view to_string(ScanEnd end) {
  switch (end) {
    case ScanEnd::Clean: return "clean";
    case ScanEnd::Torn: return "torn";
    case ScanEnd::ChainBroken: return "chain-broken";
    case ScanEnd::RingFull: return "ring-full";
  }
  return "unknown";
}

Result<LogStart> read_start(ByteSource& bytes) {
  LogStart start;
  if (ring_bytes_for(bytes.size()) == 0) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("a pool of {} bytes is too small for a log; it takes {} at least",
                             bytes.size(), kRingAt + kRingBytesMin)};
  }
  std::array<std::byte, 192> first;
  StatePage one;
  StatePage two;
  PERDURE_TRY_VOID(bytes.read(0, first));
  PERDURE_TRY_VOID(bytes.read(kStateAt, one));
  PERDURE_TRY_VOID(bytes.read(kStateAt + kStateEvery, two));
  const auto anchor = decode_anchor(first, bytes.size());
  if (!anchor.ok() && anchor.code() == ErrorCode::VersionMismatch) return anchor.error();
  PERDURE_TRY(stored, decode_states(one, two));
  start.stored = stored;
  PERDURE_TRY_VOID(read_anchor(first, bytes.size(), start));
  if (!start.anchor) return start;
  start.head = start.state().head.lsn;
  start.committed_word = read_word(first.data() + kCommittedWordAt, start.committed_word_damaged);
  if (start.anchor->shape == LogShape::Compound) {
    start.tail_word = read_word(first.data() + kTailWordAt, start.tail_word_damaged);
  }
  return start;
}

LogCursor::LogCursor(ByteSource& bytes, const LogState& state, const Boundary& from)
    : bytes_(&bytes), ring_bytes_(state.anchor.ring_bytes), at_(from) {
  set_state(state);
}

LogCursor::LogCursor(ByteSource& bytes, const LogState& state, Lsn from)
    : LogCursor(bytes, state, Boundary{from, 0, Epoch{}, 0}) {
  unchecked_ = from != state.head.lsn;
  if (!unchecked_) at_ = state.head;
}

void LogCursor::set_state(const LogState& state) {
  limit_ = Lsn{state.head.lsn.value + state.anchor.ring_bytes};
  epoch_ = state.epoch;
  begin_ = state.begin;
  window_.clear();
}

/// The bytes at an offset of the ring, from the window or after moving it there.
Result<std::span<const std::byte>> LogCursor::fetch(std::uint64_t ring_offset,
                                                    std::uint64_t length) {
  const bool inside =
      ring_offset >= window_at_ && ring_offset + length <= window_at_ + window_.size();
  if (!inside) {
    const std::uint64_t left = ring_bytes_ - ring_offset;
    window_.resize(std::min(std::max(length, kWindowBytes), left));
    window_at_ = ring_offset;
    if (auto filled = bytes_->read(kRingAt + ring_offset, window_); !filled) {
      window_.clear();
      return filled.error();
    }
  }
  return std::span<const std::byte>(window_).subspan(ring_offset - window_at_, length);
}

/// Why a header can not be the next record; nothing when only its checksum is left to check.
std::optional<ScanEnd> LogCursor::reject(const RecordHeader& header, std::uint64_t room) const {
  if (header.lsn != at_.lsn) return ScanEnd::Clean;
  const bool known = header.type == RecordType::Data || header.type == RecordType::Configuration ||
                     header.type == RecordType::Pad;
  if (!known || record_bytes(header.payload_bytes) > room) return ScanEnd::Torn;
  return std::nullopt;
}

bool LogCursor::follows(const RecordHeader& header) const {
  const bool epoch = header.lsn >= begin_ ? header.epoch == epoch_ : header.epoch < epoch_;
  return epoch && (unchecked_ || (header.previous_crc == at_.crc && header.epoch >= at_.epoch &&
                                  header.index == at_.index));
}

Result<std::optional<RecordView>> LogCursor::next() {
  const std::uint64_t offset = at_.lsn.value % ring_bytes_;
  const auto stop = [&](ScanEnd why) {
    end_ = why;
    window_.clear();  // what is there may change: look at the medium again next time
    return Result<std::optional<RecordView>>(std::optional<RecordView>{});
  };
  if (at_.lsn.value + kRecordHeaderBytes > limit_.value) return stop(ScanEnd::RingFull);
  PERDURE_TRY(head_bytes, fetch(offset, kRecordHeaderBytes));
  const RecordHeader header = decode_record_header(head_bytes.first<kRecordHeaderBytes>());
  if (const auto why = reject(header, ring_bytes_ - offset)) return stop(*why);
  const std::uint64_t stored =
      kRecordHeaderBytes + (header.type == RecordType::Pad ? 0 : header.payload_bytes);
  PERDURE_TRY(record, fetch(offset, stored));
  if (!checksum_matches(record, header)) return stop(ScanEnd::Torn);
  if (!follows(header)) return stop(ScanEnd::ChainBroken);
  unchecked_ = false;
  const Lsn end{at_.lsn.value + record_bytes(header.payload_bytes)};
  at_ = {next_place(end, ring_bytes_), header.index + (header.type == RecordType::Data ? 1 : 0),
         header.epoch, header.crc};
  const auto payload = header.type == RecordType::Pad ? std::span<const std::byte>{}
                                                      : record.subspan(kRecordHeaderBytes);
  return std::optional<RecordView>{RecordView{header, payload}};
}

Result<std::optional<RecordView>> await_record(LogCursor& cursor, const Deadline& within) {
  while (true) {
    PERDURE_TRY(record, cursor.next());
    if (record || within.passed()) return record;
  }
}

namespace {

/// What is found behind the end of what is readable.
struct Behind {
  std::uint64_t records = 0;  // whole, of this lap, and of an epoch that may stand there
  Lsn end;                    // of the last of them
  Lsn claimed;                // by any of them
};

/// Reads on from a whole record at `at`, as long as whole ones follow one another.
Result<void> follow_behind(ByteSource& bytes, const LogState& state, Lsn at, Behind& behind) {
  LogCursor cursor(bytes, state, at);
  while (true) {
    PERDURE_TRY(record, cursor.next());
    if (!record) return {};
    ++behind.records;
    behind.end = std::max(behind.end, cursor.position());
    behind.claimed = std::max(behind.claimed, record->header.committed);
  }
}

/// Looks for whole records shortly after `from` that belong to this lap: what a hole cut off.
Result<Behind> look_behind(ByteSource& bytes, const LogState& state, Lsn from) {
  Behind behind;
  const std::uint64_t ring = state.anchor.ring_bytes;
  const std::uint64_t limit = state.head.lsn.value + ring;
  const std::uint64_t offset = from.value % ring;
  std::vector<std::byte> ahead(
      std::min({kLookAheadBytes, ring - offset, limit - std::min(limit, from.value)}));
  PERDURE_TRY_VOID(bytes.read(kRingAt + offset, ahead));
  // A record that is torn may still say where the next one begins.
  std::uint64_t jump = 0;
  if (ahead.size() >= kRecordHeaderBytes) {
    const RecordHeader torn =
        decode_record_header(std::span<const std::byte>(ahead).first<kRecordHeaderBytes>());
    jump = torn.lsn == from ? from.value + record_bytes(torn.payload_bytes) : 0;
  }
  for (std::uint64_t at = kRecordAlignment; at + kRecordHeaderBytes <= ahead.size();) {
    const std::span<const std::byte> rest = std::span<const std::byte>(ahead).subspan(at);
    const RecordHeader header = decode_record_header(rest.first<kRecordHeaderBytes>());
    const bool whole = header.lsn.value == from.value + at &&
                       epoch_fits(state, header.lsn, header.epoch) &&
                       checksum_matches(rest, header);
    if (whole) {
      PERDURE_TRY_VOID(follow_behind(bytes, state, header.lsn, behind));
      at = std::max(at + kRecordAlignment, behind.end.value - from.value);
      continue;
    }
    at += kRecordAlignment;
  }
  if (behind.records == 0 && jump != 0 && jump < limit) {
    PERDURE_TRY_VOID(follow_behind(bytes, state, next_place(Lsn{jump}, ring), behind));
  }
  const std::uint64_t lap = from.value + ring - offset;  // a record may have been cut off with it
  if (behind.records == 0 && lap < limit) {
    PERDURE_TRY_VOID(follow_behind(bytes, state, Lsn{lap}, behind));
  }
  return behind;
}

void note_record(ScanReport& report, const RecordView& record, Lsn end) {
  report.claimed = std::max(report.claimed, record.header.committed);
  if (record.header.type == RecordType::Data) {
    ++report.records;
    report.payload_bytes += record.header.payload_bytes;
  } else if (record.header.type == RecordType::Configuration) {
    auto configuration = decode_configuration(record.payload);
    if (configuration.ok()) report.configurations.push_back({end, std::move(*configuration)});
  }
}

}  // namespace

Result<ScanReport> scan_log(ByteSource& bytes,
                            const std::function<void(const RecordView&)>& visit) {
  ScanReport report;
  PERDURE_TRY(start, read_start(bytes));
  report.start = start;
  if (!start.anchor) {
    return Error{ErrorCode::NotFound, "no log was created in this pool yet; append creates it"};
  }
  const LogState& state = start.state();
  LogCursor cursor(bytes, state, state.head);
  while (true) {
    PERDURE_TRY(record, cursor.next());
    if (!record) break;
    note_record(report, *record, cursor.position());
    if (visit) visit(*record);
  }
  const Boundary& end = cursor.boundary();
  report.tail = end.lsn;
  report.end = cursor.end();
  report.last_crc = end.crc;
  report.last_epoch = end.epoch;
  report.next_index = end.index;
  report.tail_word_beyond = start.tail_word && *start.tail_word > report.tail;
  const Lsn promised = start.committed_word.value_or(Lsn{});
  report.claimed = std::max({report.claimed, promised, state.head.lsn});
  report.extent = std::max({report.tail, promised, state.begin, start.tail_word.value_or(Lsn{})});
  if (report.end == ScanEnd::RingFull) return report;
  PERDURE_TRY(behind, look_behind(bytes, state, report.tail));
  report.records_after_hole = behind.records;
  report.claimed = std::max(report.claimed, behind.claimed);
  // Writes in flight arrive in any order: only what was known to be committed proves a loss.
  if (behind.claimed > report.tail) report.extent = std::max(report.extent, behind.end);
  return report;
}

}  // namespace perdure::log
