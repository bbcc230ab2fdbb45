// Reading a log from the bytes of one replica: record by record, trusting nothing. The same code
// serves recovery, readers, verification and repair, and reads local bytes or a remote pool.
#pragma once

#include <perdure/result.h>
#include <perdure/types.h>

#include "core/byte_source.h"
#include "log/log_format.h"

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace perdure::log {

/// What the first lines of a pool say of its log.
struct LogStart {
  std::optional<Anchor> anchor;  // nothing: no log was created here
  Lsn head;
  std::optional<Lsn> tail_word;  // compound logs, once anything was appended
};

/// Errors: Corrupt, VersionMismatch, and those of reading.
Result<LogStart> read_start(ByteSource& bytes);

/// One record as it was read. The payload is valid until the next call of the cursor.
struct RecordView {
  RecordHeader header;
  std::span<const std::byte> payload;
};

/// Why a walk over records ended where it did.
enum class ScanEnd {
  Clean,        // nothing was ever written there, or only what an earlier lap of the ring left
  Torn,         // a record begins there and its checksum fails
  ChainBroken,  // a whole record that does not follow the one before it: of another history
  RingFull,     // the records fill the ring
};

std::string_view to_string(ScanEnd end);

/// Walks records in order from a known boundary.
/// Threads: one caller at a time.
class LogCursor {
 public:
  /// Begins at `from`, which must be the LSN of a record. `head` bounds the walk to one lap.
  LogCursor(ByteSource& bytes, const Anchor& anchor, Lsn head, Lsn from);

  /// The next record (data, epoch or pad), or nothing at the end: end() says why. At the end,
  /// calling again looks again, for readers that follow a writer.
  /// Errors: those of reading.
  Result<std::optional<RecordView>> next();

  /// The log was trimmed meanwhile: its ring may hold records up to one lap after `head`.
  void set_head(Lsn head) { limit_ = Lsn{head.value + anchor_.ring_bytes}; }

  ScanEnd end() const { return end_; }
  /// Where the next record begins or will begin.
  Lsn position() const { return position_; }
  /// Checksum and epoch of the last record that was returned; 0 before the first.
  std::uint32_t last_crc() const { return last_crc_; }
  Epoch last_epoch() const { return last_epoch_; }
  /// Index that the next data record has.
  std::uint64_t next_index() const { return next_index_; }

 private:
  Result<std::span<const std::byte>> fetch(std::uint64_t ring_offset, std::uint64_t length);
  std::optional<ScanEnd> reject(const RecordHeader& header, std::uint64_t room) const;

  ByteSource& bytes_;
  const Anchor anchor_;
  Lsn limit_;
  Lsn position_;
  ScanEnd end_ = ScanEnd::Clean;
  bool first_ = true;
  std::uint32_t last_crc_ = 0;
  Epoch last_epoch_;
  std::uint64_t next_index_ = 0;
  std::vector<std::byte> window_;  // bytes of the ring around the position
  std::uint64_t window_at_ = 0;    // their offset in the ring
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
  ScanEnd end = ScanEnd::Clean;
  std::uint64_t records_after_hole = 0;  // whole records found beyond the end, not counted
  bool tail_word_beyond = false;  // the tail word promises more than is valid: data was damaged

  /// Whether records that may have been committed are missing here.
  bool damaged() const { return tail_word_beyond; }
};

/// Walks the whole log. `visit`, if given, sees every record.
/// Errors: those of read_start; NotFound when no log was created there.
Result<ScanReport> scan_log(ByteSource& bytes,
                            const std::function<void(const RecordView&)>& visit = {});

}  // namespace perdure::log
