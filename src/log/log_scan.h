// Reading a log from the bytes of one replica: record by record, trusting nothing. The same code
// serves recovery, readers, verification and repair, and reads local bytes or a remote pool.
#pragma once

#include <perdure/result.h>
#include <perdure/types.h>

#include "core/byte_source.h"
#include "core/clock.h"
#include "log/log_format.h"
#include "log/log_state.h"

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace perdure::log {

/// What the first pages of a pool say of its log.
struct LogStart {
  std::optional<Anchor> anchor;       // nothing: no log was created here
  std::optional<StoredState> stored;  // set whenever the anchor is
  Lsn head;
  std::optional<Lsn> tail_word;       // compound logs, once anything was appended
  std::optional<Lsn> committed_word;  // once anything was
  bool anchor_damaged = false;        // it was read from the state
  bool tail_word_damaged = false;     // what it promised is not known
  bool committed_word_damaged = false;

  const LogState& state() const { return stored->state; }
};

/// Errors: Corrupt, VersionMismatch, and those of reading.
Result<LogStart> read_start(ByteSource& bytes);

/// One record as it was read. The payload is valid until the next call of the cursor.
struct RecordView {
  RecordHeader header;
  std::span<const std::byte> payload;
};

/// What is read at a time: first little, since who only looks whether something is still there
/// needs no more, then twice as much each time.
inline constexpr std::uint64_t kFirstWindowBytes = 64 * 1024;
inline constexpr std::uint64_t kWindowBytes = 1024 * 1024;

/// Walks records in order from a known boundary.
/// Threads: one caller at a time.
class LogCursor {
 public:
  /// Begins at `from`; the first record must follow it. `state` bounds the walk to one lap after
  /// its head, and says which epochs may be where.
  LogCursor(ByteSource& bytes, const LogState& state, const Boundary& from);
  /// Begins at `from`, which must be the LSN of a record: what precedes it is not checked.
  LogCursor(ByteSource& bytes, const LogState& state, Lsn from);

  /// The next record (data, configuration or pad), or nothing at the end: end() says why. At the
  /// end, calling again looks again, for readers that follow a writer.
  /// Errors: those of reading.
  Result<std::optional<RecordView>> next();

  /// The replica's state has changed: it was trimmed, or an epoch has begun.
  void set_state(const LogState& state);

  LogEnd end() const { return end_; }
  /// Behind the last record that was returned.
  Lsn position() const { return at_.lsn; }
  const Boundary& boundary() const { return at_; }

 private:
  Result<std::span<const std::byte>> fetch(std::uint64_t ring_offset, std::uint64_t length);
  std::optional<LogEnd> reject(const RecordHeader& header, std::uint64_t room) const;
  bool follows(const RecordHeader& header) const;

  ByteSource* bytes_;
  std::uint64_t ring_bytes_;
  std::uint32_t seed_ = 0;  // of the records' checksums
  Lsn limit_;
  Epoch epoch_;
  Lsn begin_;
  Boundary at_;
  LogEnd end_ = LogEnd::Clean;
  bool unchecked_ = false;
  std::span<const std::byte> window_;               // bytes of the ring around the position
  std::uint64_t view_ = 0;                          // that brought them
  std::uint64_t window_at_ = 0;                     // their offset in the ring
  std::uint64_t window_bytes_ = kFirstWindowBytes;  // of the next one
};

/// The next record of a replica that is known to have one. What is durable may take a moment until
/// a READ of another connection returns it. Errors and nothing: as next(), when `within` is over.
Result<std::optional<RecordView>> await_record(LogCursor& cursor, const Deadline& within);

/// Walks to `lsn`. Returns what precedes the record there. Errors: InvalidArgument when no record
/// begins there; Corrupt when the records end before it, after `within` too.
Result<Boundary> walk_to(LogCursor& cursor, Lsn lsn, const Deadline& within);

/// Whether a record of this epoch may stand at this LSN of a replica in this state: only the writer
/// of the replica's epoch has written from its begin on, and only older ones before.
constexpr bool epoch_fits(const LogState& state, Lsn lsn, Epoch epoch) {
  return lsn >= state.begin ? epoch == state.epoch : epoch < state.epoch;
}

/// Some of the boundaries between records, in order: one for every 64 KiB or so, so that a walk to
/// any record is short.
class BoundaryIndex {
 public:
  void note(const Boundary& boundary) {
    if (!known_.empty() && boundary.lsn.value < known_.back().lsn.value + kApart) return;
    known_.push_back(boundary);
  }
  /// Up to here note() keeps nothing.
  Lsn keeps_nothing_up_to() const {
    return known_.empty() ? Lsn{} : Lsn{known_.back().lsn.value + kApart - 1};
  }
  /// The last one that is known at or before `lsn`, which is not before `head`.
  Boundary before(Lsn lsn, const Boundary& head) const;
  void forget_below(Lsn lsn);
  void forget_behind(Lsn lsn);
  /// So that note() does not allocate while no more than that is kept.
  void reserve(std::uint64_t ring_bytes) { known_.reserve(ring_bytes / kApart + 2); }

 private:
  static constexpr std::uint64_t kApart = 64 * 1024;
  std::vector<Boundary> known_;
};

/// What one replica holds.
struct ScanReport {
  LogStart start;
  Lsn tail;                   // end of the longest valid prefix
  std::uint64_t records = 0;  // data records in it
  std::uint64_t payload_bytes = 0;
  std::uint64_t next_index = 0;
  std::uint32_t last_crc = 0;
  Epoch last_epoch;
  LogEnd end = LogEnd::Clean;
  std::vector<ConfigurationAt> configurations;  // in the order of the records
  BoundaryIndex boundaries;
  std::uint64_t records_after_hole = 0;  // whole records found beyond the end, not counted
  std::uint64_t index_after_hole = 0;    // that comes after the last of them; 0: there are none
  bool tail_word_beyond = false;  // the tail word promises more than is valid: data was damaged
  Lsn claimed;                    // everything before was committed, by what was read here
  Lsn extent;                     // up to which there is evidence that something was durable here

  /// Whether records that were durable here are missing.
  bool damaged() const { return extent > tail || start.tail_word_damaged; }
  Boundary boundary() const { return {tail, next_index, last_epoch, last_crc}; }
};

/// What is found behind the end of what is readable.
struct Behind {
  Lsn of;                        // the end
  Lsn looked;                    // up to where it was looked for
  std::uint64_t records = 0;     // whole, of this lap, and of an epoch that may stand there
  Lsn end;                       // of the last of them
  Lsn claimed;                   // by any of them
  std::uint64_t next_index = 0;  // after the last of them
};

/// What scans of one replica have read, of which the last may have been given up.
struct ScanSoFar {
  ScanReport report;
  Boundary again_from;  // a little before the end of what was read
  Behind behind;
};

/// scan_log() in as many calls as it takes, for a replica to which nobody but the caller writes,
/// and the caller only behind what it has: each call, also one that fails, leaves in `so_far` what
/// was read, and the next one goes on from there. All is read anew where the replica's state has
/// changed, or the last record that was read is not there any more: a copy of older days may have
/// been put in its place. What lies behind `until` is not looked at: where the caller's log ends,
/// nothing behind there was ever committed. Of a replica that is marked incomplete the start alone
/// is read: its records are being replaced.
/// Errors: those of scan_log.
Result<ScanReport> scan_log_on(ByteSource& bytes, std::optional<ScanSoFar>& so_far, Lsn until);

/// The caller has written `state` to the replica: what was read is kept, from its head to `end`.
/// Requires that both are places of what was read.
void keep_scan(ScanSoFar& so_far, const LogState& state, const Boundary& end);

/// Walks the whole log. `visit`, if given, sees every record.
/// Errors: those of read_start; NotFound when no log was created there.
Result<ScanReport> scan_log(ByteSource& bytes,
                            const std::function<void(const RecordView&)>& visit = {});

}  // namespace perdure::log
