#include "log/log_scan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>

#include "core/assert.h"
#include "core/try.h"

namespace perdure::log {
namespace {

// How far beyond the end to look for a record that a hole cut off: beyond the longest record and
// the pad behind it, both of which one lost page can hide, and beyond what a writer commits between
// two committed words.
constexpr std::uint64_t kLookAheadBytes = 2 * kPayloadBytesMax + 4 * 1024 * 1024;

using StatePage = std::array<std::byte, kStateBytes>;

// How often a state is read that is damaged or just being written. A writer writes one copy after
// the other, and who reads them so may meet both half written; the next look comes behind that.
constexpr int kLooksAtState = 3;

Result<std::optional<StoredState>> read_state(ByteSource& bytes) {
  for (int looks = 1;; ++looks) {
    StatePage one;
    StatePage two;
    PERDURE_TRY_VOID(bytes.read(kStateAt, one));
    PERDURE_TRY_VOID(bytes.read(kStateAt + kStateEvery, two));
    auto stored = decode_states(one, two);
    if (stored.ok() || looks == kLooksAtState) return stored;
  }
}

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

Result<LogStart> read_start(ByteSource& bytes) {
  LogStart start;
  if (ring_bytes_for(bytes.size()) == 0) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("a pool of {} bytes is too small for a log; it takes {} at least",
                             bytes.size(), kLogBytesMin)};
  }
  std::array<std::byte, 192> first;
  PERDURE_TRY_VOID(bytes.read(0, first));
  const auto anchor = decode_anchor(first, bytes.size());
  const bool other = !anchor.ok() && anchor.code() != ErrorCode::Corrupt;
  if (other) return anchor.error();
  PERDURE_TRY(stored, read_state(bytes));
  start.stored = stored;
  PERDURE_TRY_VOID(read_anchor(first, bytes.size(), start));
  if (!start.anchor) return start;
  start.head = start.state().head.lsn;
  start.committed_word = read_word(first.data() + kCommittedWordAt, start.committed_word_damaged);
  if (start.anchor->shape == LogShape::Compound) {
    start.tail_word = read_word(first.data() + kTailWordAt, start.tail_word_damaged);
    // Creating a log writes it: a word that was never written was lost.
    if (!start.tail_word && !start.state().marks.creating) start.tail_word_damaged = true;
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
  seed_ = state.anchor.seed;
  limit_ = Lsn{state.head.lsn.value + state.anchor.ring_bytes};
  epoch_ = state.epoch;
  begin_ = state.begin;
  window_ = {};
}

/// The bytes at an offset of the ring, from the window or after moving it there.
Result<std::span<const std::byte>> LogCursor::fetch(std::uint64_t ring_offset,
                                                    std::uint64_t length) {
  const bool inside = ring_offset >= window_at_ &&
                      ring_offset + length <= window_at_ + window_.size() &&
                      view_ == bytes_->views();
  if (!inside) {
    const std::uint64_t left = ring_bytes_ - ring_offset;
    const std::uint64_t most = std::min(std::max(length, window_bytes_), left);
    window_ = {};
    PERDURE_TRY(window, bytes_->view(kRingAt + ring_offset, length, most));
    window_ = window;
    view_ = bytes_->views();
    window_at_ = ring_offset;
    window_bytes_ = std::min(2 * window_bytes_, kWindowBytes);
  }
  return window_.subspan(ring_offset - window_at_, length);
}

/// Why a header can not be the next record; nothing when only its checksum is left to check.
std::optional<LogEnd> LogCursor::reject(const RecordHeader& header, std::uint64_t room) const {
  if (header.lsn != at_.lsn) return LogEnd::Clean;
  const bool known = header.type == RecordType::Data || header.type == RecordType::Configuration ||
                     header.type == RecordType::Pad;
  if (!known || record_bytes(header.payload_bytes) > room) return LogEnd::Torn;
  // No writer makes such a record, and nothing can say where it ends: neither a word nor a state.
  const Lsn end{at_.lsn.value + record_bytes(header.payload_bytes)};
  if (next_place(end, ring_bytes_).value > kLsnMax) return LogEnd::Torn;
  return std::nullopt;
}

bool LogCursor::follows(const RecordHeader& header) const {
  const bool epoch = header.lsn >= begin_ ? header.epoch == epoch_ : header.epoch < epoch_;
  return epoch && (unchecked_ || (header.previous_crc == at_.crc && header.epoch >= at_.epoch &&
                                  header.index == at_.index));
}

Result<std::optional<RecordView>> LogCursor::next() {
  const std::uint64_t offset = at_.lsn.value % ring_bytes_;
  const auto stop = [&](LogEnd why) {
    end_ = why;
    window_ = {};  // what is there may change: look at the medium again next time
    window_bytes_ = kFirstWindowBytes;
    return Result<std::optional<RecordView>>(std::optional<RecordView>{});
  };
  if (at_.lsn.value + kRecordHeaderBytes > limit_.value) return stop(LogEnd::RingFull);
  if (ring_bytes_ - offset < kRecordHeaderBytes) return stop(LogEnd::Torn);  // no place for one
  PERDURE_TRY(head_bytes, fetch(offset, kRecordHeaderBytes));
  const RecordHeader header = decode_record_header(head_bytes.first<kRecordHeaderBytes>());
  if (const auto why = reject(header, ring_bytes_ - offset)) return stop(*why);
  const std::uint64_t stored =
      kRecordHeaderBytes + (header.type == RecordType::Pad ? 0 : header.payload_bytes);
  PERDURE_TRY(record, fetch(offset, stored));
  if (!checksum_matches(record, header, seed_)) return stop(LogEnd::Torn);
  if (!follows(header)) return stop(LogEnd::ChainBroken);
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
    const bool last = within.passed();  // the last look is one that began when the time was over
    PERDURE_TRY(record, cursor.next());
    if (record || last) return record;
  }
}

Result<Boundary> walk_to(LogCursor& cursor, Lsn lsn, const Deadline& within) {
  Lsn before = cursor.position();
  while (cursor.position() < lsn) {
    before = cursor.position();
    PERDURE_TRY(record, await_record(cursor, within));
    if (record) continue;
    return Error{ErrorCode::Corrupt,
                 fmt::format("the record at {}, on the way to {}, can not be read ({})",
                             cursor.position().value, lsn.value, to_string(cursor.end()))};
  }
  if (cursor.position() == lsn) return cursor.boundary();
  return Error{ErrorCode::InvalidArgument,
               fmt::format("no record begins at {}: the one at {} goes up to {}", lsn.value,
                           before.value, cursor.position().value)};
}

Boundary BoundaryIndex::before(Lsn lsn, const Boundary& head) const {
  const auto behind = std::upper_bound(known_.begin(), known_.end(), lsn,
                                       [](Lsn at, const Boundary& each) { return at < each.lsn; });
  if (behind == known_.begin()) return head;
  const Boundary& found = *std::prev(behind);
  return found.lsn > head.lsn ? found : head;
}

void BoundaryIndex::forget_below(Lsn lsn) {
  const auto first = std::find_if(known_.begin(), known_.end(),
                                  [&](const Boundary& each) { return each.lsn >= lsn; });
  known_.erase(known_.begin(), first);
}

void BoundaryIndex::forget_behind(Lsn lsn) {
  std::erase_if(known_, [&](const Boundary& each) { return each.lsn > lsn; });
}

namespace {

constexpr Lsn kAnywhere{kLsnMax};

/// Reads on from a whole record at `at`, as long as whole ones follow one another.
Result<void> follow_behind(ByteSource& bytes, const LogState& state, Lsn at, Behind& behind) {
  LogCursor cursor(bytes, state, at);
  while (true) {
    PERDURE_TRY(record, cursor.next());
    if (!record) return {};
    ++behind.records;
    behind.looked = behind.end = cursor.position();
    behind.next_index = cursor.boundary().index;
    behind.claimed = std::max(behind.claimed, record->header.committed);
  }
}

/// Looks on for whole records behind an end and before `until` that belong to this lap: what a hole
/// cut off. `behind` keeps what was found, also when this fails.
Result<void> look_behind(ByteSource& bytes, const LogState& state, Lsn until, Behind& behind) {
  const std::uint64_t ring = state.anchor.ring_bytes;
  const std::uint64_t end =
      std::min({state.head.lsn.value + ring, behind.of.value + kLookAheadBytes, until.value});
  if (behind.looked.value + kRecordHeaderBytes > end) return {};
  const auto memory = std::make_unique_for_overwrite<std::byte[]>(kWindowBytes);
  std::uint64_t window_bytes = kFirstWindowBytes;
  for (std::uint64_t at = behind.looked.value; at + kRecordHeaderBytes <= end;
       at = behind.looked.value) {
    // Windows end where the ring does, and overlap by what may be the beginning of a header.
    const std::uint64_t offset = at % ring;
    const std::span window(memory.get(), std::min({window_bytes, ring - offset, end - at}));
    window_bytes = std::min(2 * window_bytes, kWindowBytes);
    Lsn next{at + window.size() - kRecordHeaderBytes + kRecordAlignment};
    if (window.size() == ring - offset) next.value = at + window.size();
    if (window.size() < kRecordHeaderBytes) {
      behind.looked = next;
      continue;
    }
    PERDURE_TRY_VOID(bytes.read(kRingAt + offset, window));
    for (std::uint64_t i = 0; i + kRecordHeaderBytes <= window.size(); i += kRecordAlignment) {
      const std::span<const std::byte> rest = window.subspan(i);
      if (!may_begin_at(rest.first<kRecordHeaderBytes>(), Lsn{at + i})) continue;
      const RecordHeader header = decode_record_header(rest.first<kRecordHeaderBytes>());
      if (header.lsn.value != at + i || !epoch_fits(state, header.lsn, header.epoch)) continue;
      const std::uint64_t records = behind.records;
      PERDURE_TRY_VOID(follow_behind(bytes, state, header.lsn, behind));
      if (behind.records == records) continue;
      next = behind.end;
      break;
    }
    behind.looked = next;
  }
  return {};
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

Error no_log() {
  return {ErrorCode::NotFound, "no log was created in this pool yet; append creates it"};
}

void note_boundary(ScanReport& report, const Boundary& end) {
  report.tail = end.lsn;
  report.last_crc = end.crc;
  report.last_epoch = end.epoch;
  report.next_index = end.index;
}

/// Walks on to the end, and looks on behind it, not beyond `until`. `visit` sees every record, and
/// what precedes it.
Result<void> scan_on(ByteSource& bytes, LogCursor& cursor, ScanReport& report, Behind& behind,
                     Lsn until,
                     const std::function<void(const RecordView&, const Boundary&)>& visit) {
  const LogStart& start = report.start;
  const LogState& state = start.state();
  while (true) {
    const Boundary before = cursor.boundary();
    PERDURE_TRY(record, cursor.next());
    if (!record) break;
    note_record(report, *record, cursor.position());
    note_boundary(report, cursor.boundary());
    report.boundaries.note(cursor.boundary());
    if (visit) visit(*record, before);
  }
  note_boundary(report, cursor.boundary());
  report.end = cursor.end();
  report.tail_word_beyond = start.tail_word && *start.tail_word > report.tail;
  const Lsn promised = start.committed_word.value_or(Lsn{});
  report.claimed = std::max({report.claimed, promised, state.head.lsn});
  report.extent = std::max({report.tail, promised, state.begin, start.tail_word.value_or(Lsn{})});
  if (report.end == LogEnd::RingFull) return {};
  if (behind.of != report.tail) {
    behind = {report.tail, Lsn{report.tail.value + kRecordAlignment}, 0, {}, {}, 0};
  }
  PERDURE_TRY_VOID(look_behind(bytes, state, until, behind));
  report.records_after_hole = behind.records;
  report.index_after_hole = behind.next_index;
  report.claimed = std::max(report.claimed, behind.claimed);
  // Writes in flight arrive in any order: only what was known to be committed, or durable here,
  // proves a loss; then whatever is whole behind it may have been acknowledged.
  const bool lost = std::max(behind.claimed, report.extent) > report.tail;
  if (lost) report.extent = std::max(report.extent, behind.end);
  return {};
}

}  // namespace

Result<ScanReport> scan_log(ByteSource& bytes,
                            const std::function<void(const RecordView&)>& visit) {
  ScanReport report;
  PERDURE_TRY(start, read_start(bytes));
  if (!start.anchor) return no_log();
  report.start = start;
  LogCursor cursor(bytes, start.state(), start.state().head);
  Behind behind;
  PERDURE_TRY_VOID(scan_on(bytes, cursor, report, behind, kAnywhere,
                           [&](const RecordView& record, const Boundary&) {
                             if (visit) visit(record);
                           }));
  return report;
}

namespace {

/// Reads again a little of what was read before: whether it is still there.
Result<bool> still_there(LogCursor& cursor, const Boundary& end) {
  while (cursor.position() < end.lsn) {
    PERDURE_TRY(record, cursor.next());
    if (!record) return false;
  }
  return cursor.boundary() == end;
}

}  // namespace

Result<ScanReport> scan_log_on(ByteSource& bytes, std::optional<ScanSoFar>& so_far, Lsn until) {
  PERDURE_TRY(start, read_start(bytes));
  if (!start.anchor) return no_log();
  const LogState& state = start.state();
  if (state.marks.incomplete) {
    so_far.reset();
    ScanReport report;
    report.start = start;
    note_boundary(report, state.head);
    report.extent = state.head.lsn;
    return report;
  }
  bool goes_on = so_far && so_far->report.start.state() == state;
  LogCursor cursor(bytes, state, goes_on ? so_far->again_from : state.head);
  if (goes_on) {
    PERDURE_TRY(there, still_there(cursor, so_far->report.boundary()));
    goes_on = there;
    if (!goes_on) cursor = LogCursor(bytes, state, state.head);
  }
  if (!goes_on) {
    so_far.emplace();
    note_boundary(so_far->report, state.head);
    so_far->again_from = state.head;
  }
  ScanReport& report = so_far->report;
  report.start = start;
  report.records_after_hole = report.index_after_hole = 0;
  PERDURE_TRY_VOID(
      scan_on(bytes, cursor, report, so_far->behind, until,
              [&](const RecordView&, const Boundary& before) { so_far->again_from = before; }));
  return report;
}

void keep_scan(ScanSoFar& so_far, const LogState& state, const Boundary& end) {
  ScanReport& report = so_far.report;
  const Boundary& head = state.head;
  PERDURE_ASSERT(head.lsn <= end.lsn && end.lsn <= report.tail);
  report.start.stored->state = state;
  report.boundaries.forget_below(head.lsn);
  report.boundaries.forget_behind(end.lsn);
  std::erase_if(report.configurations, [&](const ConfigurationAt& each) {
    return each.end <= head.lsn || each.end > end.lsn;
  });
  report.records = end.index - head.index;
  if (end.lsn < report.tail) {
    so_far.again_from = report.boundaries.before(Lsn{end.lsn.value - 1}, head);
  }
  if (so_far.again_from.lsn < head.lsn) so_far.again_from = head;
  note_boundary(report, end);
  so_far.behind = {};
}

}  // namespace perdure::log
