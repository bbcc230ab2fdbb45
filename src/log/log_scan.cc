#include "log/log_scan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/assert.h"
#include "core/try.h"

namespace perdure::log {
namespace {

constexpr std::uint64_t kWindowBytes = 1024 * 1024;
// How far beyond the end to look for records that a hole cut off; only for the report.
constexpr std::uint64_t kLookAheadBytes = 256 * 1024;

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
  PERDURE_TRY_VOID(bytes.read(0, first));
  PERDURE_TRY(anchor, decode_anchor(first, bytes.size()));
  start.anchor = anchor;
  if (!anchor) return start;
  PERDURE_TRY(head, decode_word(load<std::uint64_t>(first.data() + kHeadWordAt)));
  PERDURE_TRY(tail, decode_word(load<std::uint64_t>(first.data() + kTailWordAt)));
  start.head = head.value_or(kFirstLsn);
  start.tail_word = tail;
  if (start.head < kFirstLsn || start.head.value % kRecordAlignment != 0) {
    return Error{ErrorCode::Corrupt, "the head word is not the place of a record"};
  }
  return start;
}

LogCursor::LogCursor(ByteSource& bytes, const Anchor& anchor, Lsn head, Lsn from)
    : bytes_(bytes), anchor_(anchor), limit_{head.value + anchor.ring_bytes}, position_(from) {}

/// The bytes at an offset of the ring, from the window or after moving it there.
Result<std::span<const std::byte>> LogCursor::fetch(std::uint64_t ring_offset,
                                                    std::uint64_t length) {
  const bool inside =
      ring_offset >= window_at_ && ring_offset + length <= window_at_ + window_.size();
  if (!inside) {
    const std::uint64_t left = anchor_.ring_bytes - ring_offset;
    window_.resize(std::min(std::max(length, kWindowBytes), left));
    window_at_ = ring_offset;
    if (auto filled = bytes_.read(kRingAt + ring_offset, window_); !filled) {
      window_.clear();
      return filled.error();
    }
  }
  return std::span<const std::byte>(window_).subspan(ring_offset - window_at_, length);
}

/// Why a header can not be the next record; nothing when only its checksum is left to check.
std::optional<ScanEnd> LogCursor::reject(const RecordHeader& header, std::uint64_t room) const {
  if (header.lsn != position_) return ScanEnd::Clean;
  const bool known = header.type == RecordType::Data || header.type == RecordType::Epoch ||
                     header.type == RecordType::Pad;
  if (!known || record_bytes(header.payload_bytes) > room) return ScanEnd::Torn;
  return std::nullopt;
}

Result<std::optional<RecordView>> LogCursor::next() {
  const std::uint64_t ring = anchor_.ring_bytes;
  const std::uint64_t offset = position_.value % ring;
  const auto stop = [&](ScanEnd why) {
    end_ = why;
    window_.clear();  // what is there may change: look at the medium again next time
    return Result<std::optional<RecordView>>(std::optional<RecordView>{});
  };
  if (position_.value + kRecordHeaderBytes > limit_.value) return stop(ScanEnd::RingFull);
  PERDURE_TRY(head_bytes, fetch(offset, kRecordHeaderBytes));
  const RecordHeader header = decode_record_header(head_bytes.first<kRecordHeaderBytes>());
  if (const auto why = reject(header, ring - offset)) return stop(*why);
  const std::uint64_t stored =
      kRecordHeaderBytes + (header.type == RecordType::Pad ? 0 : header.payload_bytes);
  PERDURE_TRY(record, fetch(offset, stored));
  if (!checksum_matches(record, header)) return stop(ScanEnd::Torn);
  const bool follows = first_ || (header.previous_crc == last_crc_ && header.epoch >= last_epoch_ &&
                                  header.index == next_index_);
  if (!follows) return stop(ScanEnd::ChainBroken);
  first_ = false;
  last_crc_ = header.crc;
  last_epoch_ = header.epoch;
  next_index_ = header.index + (header.type == RecordType::Data ? 1 : 0);
  position_ = next_place(Lsn{position_.value + record_bytes(header.payload_bytes)}, ring);
  const auto payload = header.type == RecordType::Pad ? std::span<const std::byte>{}
                                                      : record.subspan(kRecordHeaderBytes);
  return std::optional<RecordView>{RecordView{header, payload}};
}

namespace {

/// Counts whole records shortly after `from` that belong to this lap: what a hole cut off.
Result<std::uint64_t> count_after_hole(ByteSource& bytes, const Anchor& anchor, Lsn from,
                                       Epoch epoch) {
  const std::uint64_t offset = from.value % anchor.ring_bytes;
  std::vector<std::byte> ahead(std::min(kLookAheadBytes, anchor.ring_bytes - offset));
  PERDURE_TRY_VOID(bytes.read(kRingAt + offset, ahead));
  std::uint64_t found = 0;
  std::uint64_t at = kRecordAlignment;
  while (at + kRecordHeaderBytes <= ahead.size()) {
    const std::span<const std::byte> rest = std::span<const std::byte>(ahead).subspan(at);
    const RecordHeader header = decode_record_header(rest.first<kRecordHeaderBytes>());
    const bool whole = header.lsn.value == from.value + at && header.epoch >= epoch &&
                       checksum_matches(rest, header);
    found += whole ? 1 : 0;
    at += whole ? record_bytes(header.payload_bytes) : kRecordAlignment;
  }
  return found;
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
  LogCursor cursor(bytes, *start.anchor, start.head, start.head);
  while (true) {
    PERDURE_TRY(record, cursor.next());
    if (!record) break;
    if (record->header.type == RecordType::Data) {
      ++report.records;
      report.payload_bytes += record->header.payload_bytes;
    }
    if (visit) visit(*record);
  }
  report.tail = cursor.position();
  report.end = cursor.end();
  report.last_crc = cursor.last_crc();
  report.last_epoch = cursor.last_epoch();
  report.next_index = cursor.next_index();
  report.tail_word_beyond = start.tail_word && *start.tail_word > report.tail;
  if (report.end != ScanEnd::RingFull) {
    PERDURE_TRY(after, count_after_hole(bytes, *start.anchor, report.tail, report.last_epoch));
    report.records_after_hole = after;
  }
  return report;
}

}  // namespace perdure::log
