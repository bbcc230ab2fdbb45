#include "log/recovery.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <tuple>

#include "core/try.h"

namespace perdure::log {
namespace {

constexpr std::uint64_t kCopyBytes = 256 * 1024;

/// Whether the target's last record is followed in the source by the record that stands there, so
/// that everything before is the same history (records are chained by checksum).
Result<bool> same_history(ByteSource& source, const ScanReport& history, const ScanReport& target) {
  if (target.records == 0 && target.last_crc == 0) return target.tail == history.start.head;
  if (target.tail == history.tail) return target.last_crc == history.last_crc;
  if (target.tail > history.tail || target.tail < history.start.head) return false;
  std::array<std::byte, kRecordHeaderBytes> bytes;
  const std::uint64_t offset = target.tail.value % history.start.anchor->ring_bytes;
  PERDURE_TRY_VOID(source.read(kRingAt + offset, bytes));
  const RecordHeader next = decode_record_header(bytes);
  return next.lsn == target.tail && next.previous_crc == target.last_crc;
}

Result<void> copy_range(ByteSource& source, Replica& target, std::uint64_t ring, Lsn from, Lsn to) {
  std::vector<std::byte> bytes(kCopyBytes);
  for (std::uint64_t at = from.value; at < to.value;) {
    const std::uint64_t offset = at % ring;
    const std::uint64_t length = std::min({kCopyBytes, to.value - at, ring - offset});
    const auto piece = std::span(bytes).first(length);
    PERDURE_TRY_VOID(source.read(kRingAt + offset, piece));
    PERDURE_TRY_VOID(target.write_now(kRingAt + offset, piece));
    at += length;
  }
  return {};
}

Result<void> write_word(Replica& target, std::uint64_t at, Lsn lsn) {
  const std::uint64_t word = encode_word(lsn);
  return target.write_now(at, std::as_bytes(std::span(&word, 1)));
}

Result<void> write_anchor(Replica& target, const Anchor& anchor) {
  std::array<std::byte, kAnchorBytes> bytes;
  encode_anchor(anchor, bytes);
  return target.write_now(0, bytes);
}

}  // namespace

Result<Survey> survey(ByteSource& bytes) {
  Survey found;
  auto report = scan_log(bytes);
  if (report.ok()) {
    found.report = std::move(report).value();
  } else if (report.code() == ErrorCode::Corrupt) {
    found.damage = report.error();
  } else if (report.code() != ErrorCode::NotFound) {
    return report.error();
  }
  return found;
}

std::optional<std::size_t> choose_history(const std::vector<std::optional<Survey>>& surveys) {
  std::optional<std::size_t> best;
  const auto rank = [&](std::size_t index) {
    const ScanReport& report = *surveys[index]->report;
    return std::tuple(report.last_epoch, report.tail);
  };
  for (std::size_t index = 0; index < surveys.size(); ++index) {
    if (!surveys[index] || !surveys[index]->report) continue;
    if (!best || rank(index) > rank(*best)) best = index;
  }
  return best;
}

std::string describe_difference(const Survey& replica, const ScanReport& history) {
  if (replica.damage) return replica.damage->message;
  if (!replica.report) return "no log there yet";
  const ScanReport& report = *replica.report;
  if (report.tail == history.tail && report.last_crc == history.last_crc) {
    return report.start.head == history.start.head ? "" : "not trimmed yet";
  }
  std::string words;
  if (report.next_index < history.next_index) {
    words = fmt::format("{} records behind", history.next_index - report.next_index);
  } else {
    words = "another history";
  }
  if (report.records_after_hole != 0 || report.tail_word_beyond) {
    words += fmt::format(", damaged record at {}", report.tail.value);
  } else if (report.end == ScanEnd::Torn) {
    words += fmt::format(", torn record at {}", report.tail.value);
  }
  return words;
}

Result<std::uint64_t> bring_equal(ByteSource& source, const ScanReport& history, Replica& target,
                                  const Survey& found) {
  const Anchor& anchor = *history.start.anchor;
  Lsn from = history.start.head;
  const bool has_log = found.report.has_value();
  if (has_log) {
    PERDURE_TRY(same, same_history(source, history, *found.report));
    if (same) from = std::max(from, found.report->tail);
  }
  const std::uint64_t ring = anchor.ring_bytes;
  PERDURE_TRY_VOID(copy_range(source, target, ring, from, history.tail));
  if (anchor.shape == LogShape::Compound) {
    // Never less than was promised before: what is missing of that must stay visible.
    const Lsn promised = history.start.tail_word.value_or(history.tail);
    PERDURE_TRY_VOID(write_word(target, kTailWordAt, std::max(promised, history.tail)));
  }
  if (!has_log || found.report->start.head != history.start.head) {
    PERDURE_TRY_VOID(write_word(target, kHeadWordAt, history.start.head));
  }
  if (!has_log) PERDURE_TRY_VOID(write_anchor(target, anchor));
  return history.tail.value - from.value;
}

Result<void> create_log(Replica& target, const Anchor& anchor) {
  PERDURE_TRY_VOID(write_word(target, kHeadWordAt, kFirstLsn));
  if (anchor.shape == LogShape::Compound) {
    PERDURE_TRY_VOID(write_word(target, kTailWordAt, kFirstLsn));
  }
  return write_anchor(target, anchor);
}

}  // namespace perdure::log
