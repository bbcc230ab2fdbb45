#include "log/recovery.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <tuple>

#include "core/assert.h"
#include "core/counted.h"
#include "core/try.h"

namespace perdure::log {
namespace {

constexpr std::uint64_t kCopyBytes = 256 * 1024;

/// Writes verified records to a replica, many at a time.
class RecordCopy {
 public:
  RecordCopy(Replica& target, std::uint64_t ring_bytes)
      : target_(target), ring_bytes_(ring_bytes) {}

  Result<void> add(const RecordView& record) {
    const bool pad = record.header.type == RecordType::Pad;
    const std::uint64_t bytes = pad ? kRecordHeaderBytes : record_bytes(record.payload.size());
    // Where a record ends with the ring, the next one follows it in LSNs, but not in the pool.
    const bool adjacent = record.header.lsn.value == begin_.value + bytes_.size() &&
                          record.header.lsn.value % ring_bytes_ != 0;
    if (!adjacent || bytes_.size() + bytes > kCopyBytes) PERDURE_TRY_VOID(flush());
    if (bytes_.empty()) begin_ = record.header.lsn;
    const std::size_t at = bytes_.size();
    bytes_.resize(at + bytes);
    (void)encode_record(record.header, record.payload, bytes_.data() + at);
    return {};
  }

  Result<void> flush() {
    if (bytes_.empty()) return {};
    PERDURE_TRY_VOID(target_.write_now(kRingAt + begin_.value % ring_bytes_, bytes_));
    copied_ += bytes_.size();
    bytes_.clear();
    return {};
  }

  std::uint64_t copied() const { return copied_; }

 private:
  Replica& target_;
  const std::uint64_t ring_bytes_;
  Lsn begin_;
  std::vector<std::byte> bytes_;
  std::uint64_t copied_ = 0;
};

/// Whether the history of the source goes on behind `end`, which the target holds: the source's
/// record there has the target's last one as its predecessor.
Result<bool> goes_on(Source* source, const Boundary& end, const Target& to) {
  if (end.lsn < to.state.head.lsn || end.lsn > to.to.lsn) return false;
  if (end.lsn == to.to.lsn) return end.index == to.to.index && end.crc == to.to.crc;
  if (source == nullptr) return false;
  LogCursor cursor(source->bytes, source->state, end);
  PERDURE_TRY(record, cursor.next());
  return record.has_value();
}

/// Up to where what the target can read is a beginning of the history; nothing when no part of it
/// is that can be kept. What an older writer left behind the begin of the source's epoch can be cut
/// off by a state alone.
Result<std::optional<Boundary>> common_part(Source* source, ByteSource& target_bytes,
                                            const ScanReport& target, const Target& to) {
  const LogState& state = target.start.state();
  std::optional<Boundary> none;
  if (target.damaged() || state.head.lsn > to.state.head.lsn) return none;
  const Boundary end = target.boundary();
  PERDURE_TRY(whole, goes_on(source, end, to));
  if (whole) return std::optional<Boundary>{end};
  if (source == nullptr || state.epoch >= source->state.epoch) return none;
  const Lsn begin = source->state.begin;
  if (begin < to.state.head.lsn || begin < state.head.lsn || begin >= end.lsn) return none;
  LogCursor cursor(target_bytes, state, target.boundaries.before(begin, state.head));
  const auto there = walk_to(cursor, begin, Deadline::after(Nanoseconds{0}));
  if (!there.ok()) return none;
  PERDURE_TRY(part, goes_on(source, *there, to));
  return part ? std::optional<Boundary>{*there} : none;
}

/// That the source has everything from the head on. Asked before another replica is marked: a
/// source that turns out to be damaged must not have cost it what it was.
Result<void> require_source(Source& source, const Target& to, const Deadline& within,
                            bool& source_failed) {
  LogCursor cursor(source.bytes, source.state, to.state.head);
  const auto end = walk_to(cursor, to.to.lsn, within);
  if (end.ok() && end->crc == to.to.crc) return {};
  source_failed = true;
  if (!end.ok()) return end.error();
  return Error{ErrorCode::Corrupt, "its records do not end as the log does; repair it"};
}

/// Copies [from, to), and fails before it writes what does not end in `to`.
Result<std::uint64_t> copy_records(Source* source, const Boundary& from, const Boundary& to,
                                   Replica& target, bool& source_failed) {
  if (from.lsn == to.lsn) return std::uint64_t{0};
  PERDURE_ASSERT(source != nullptr);
  RecordCopy copy(target, source->state.anchor.ring_bytes);
  LogCursor cursor(source->bytes, source->state, from);
  while (cursor.position() < to.lsn) {
    auto record = await_record(cursor, target.visible_within());
    if (record.ok() && *record) {
      PERDURE_TRY_VOID(copy.add(**record));
      continue;
    }
    source_failed = true;
    if (!record.ok()) return record.error();
    return Error{ErrorCode::Corrupt,
                 fmt::format("the record at LSN {} (index {}) can not be read there any more ({}), "
                             "although everything up to {} was durable there; repair it",
                             cursor.position().value, cursor.boundary().index,
                             to_string(cursor.end()), to.lsn.value)};
  }
  if (cursor.boundary().lsn != to.lsn || cursor.boundary().crc != to.crc) {
    source_failed = true;
    return Error{ErrorCode::Corrupt, "its records do not end as the log does; repair it"};
  }
  PERDURE_TRY_VOID(copy.flush());
  return copy.copied();
}

/// The survey again, of a replica of which only the start was written.
Result<Survey> survey_start(ByteSource& bytes, const Survey& before) {
  PERDURE_TRY(start, read_start(bytes));
  Survey now = before;
  if (!start.anchor) return Survey{};
  ScanReport& again = *now.report;
  again.start = start;
  again.extent = std::max({again.tail, start.state().begin, start.tail_word.value_or(Lsn{}),
                           start.committed_word.value_or(Lsn{})});
  return now;
}

/// What bringing a replica to equal has changed of it.
enum class Changed { Start, Added, All };

/// The survey again, of what was changed: what it had besides was read a moment ago, and nobody but
/// this writer can have written to it since.
Result<Survey> survey_after(Changed what, ByteSource& bytes, const Survey& before) {
  if (what == Changed::Start) return survey_start(bytes, before);
  if (what == Changed::All) return survey(bytes);
  auto report = scan_added(bytes, *before.report);
  if (!report.ok()) return report.error();
  Survey now;
  now.report = std::move(report).value();
  return now;
}

Result<void> write_words(Replica& target, const Target& to) {
  if (to.state.anchor.shape == LogShape::Compound) {
    PERDURE_TRY_VOID(write_word(target, kTailWordAt, to.to.lsn));
  }
  return write_word(target, kCommittedWordAt, std::min(to.committed, to.to.lsn));
}

}  // namespace

Result<void> write_word(Replica& target, std::uint64_t at, Lsn lsn) {
  const std::uint64_t word = encode_word(lsn);
  return target.write_now(at, std::as_bytes(std::span(&word, 1)));
}

Result<void> write_anchor(Replica& target, const Anchor& anchor) {
  std::array<std::byte, kAnchorBytes> bytes;
  encode_anchor(anchor, bytes);
  return target.write_now(0, bytes);
}

namespace {

Result<Survey> survey_of(Result<ScanReport> report) {
  Survey found;
  if (report.ok()) {
    found.report = std::move(report).value();
  } else if (report.code() == ErrorCode::Corrupt) {
    found.damage = report.error();
  } else if (report.code() != ErrorCode::NotFound) {
    return report.error();
  }
  return found;
}

}  // namespace

Result<Survey> survey(ByteSource& bytes) { return survey_of(scan_log(bytes)); }

Result<Survey> survey_on(ByteSource& bytes, std::optional<ScanSoFar>& so_far, Lsn until) {
  return survey_of(scan_log_on(bytes, so_far, until));
}

Candidate candidate_of(const pmem::Uuid& pool, const Survey& survey, std::uint64_t log_id) {
  Candidate candidate;
  candidate.pool = pool;
  if (survey.damage) {
    candidate.standing = Standing::Incomplete;
    return candidate;
  }
  if (!survey.report || survey.report->start.anchor->log_id != log_id) return candidate;
  const ScanReport& report = *survey.report;
  const LogState& state = survey.state();
  candidate.claimed = report.claimed;
  candidate.readable = {state.epoch, report.tail};
  candidate.extent = {state.epoch, report.extent};
  candidate.standing = report.damaged() ? Standing::Damaged : Standing::Whole;
  // Without it nobody knows how much was promised.
  if (report.start.tail_word_damaged) candidate.extent.end = Lsn{UINT64_MAX};
  if (state.marks.incomplete || state.marks.removed) {
    candidate.standing = Standing::Incomplete;
    const bool known = !state.marks.removed && state.promised.epoch > Epoch{};
    candidate.extent = known ? state.promised : Rank{state.epoch, Lsn{UINT64_MAX}};
  }
  return candidate;
}

std::optional<std::size_t> choose_history(const std::vector<std::optional<Survey>>& surveys) {
  std::optional<std::size_t> best;
  const auto rank = [&](std::size_t index) {
    const Survey& each = *surveys[index];
    const bool usable = !each.state().marks.any() && !each.report->damaged();
    return std::tuple(usable, Rank{each.state().epoch, each.report->tail});
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
  const LogState& state = replica.state();
  std::string words;
  const auto say = [&](const std::string& more) { words += (words.empty() ? "" : ", ") + more; };
  const bool same = report.tail == history.tail && report.last_crc == history.last_crc;
  if (report.next_index < history.next_index) {
    say(counted(history.next_index - report.next_index, "record") + " behind");
  } else if (report.next_index > history.next_index) {
    say(fmt::format("records {} to {} (up to LSN {}) that are in no committed history",
                    history.next_index, report.next_index - 1, report.tail.value));
  } else if (!same) {
    say("another history");
  }
  if (report.extent > report.tail) {
    say(fmt::format("damaged record at {}", report.tail.value));
  } else if (!same && report.end == ScanEnd::Torn) {
    say(fmt::format("torn record at {}", report.tail.value));
  }
  if (report.start.tail_word_damaged || report.start.committed_word_damaged) say("damaged word");
  if (report.start.anchor_damaged) say("damaged anchor");
  if (!report.start.stored->copies_agree) say("one copy of its state torn or damaged");
  if (state.marks.incomplete) say("incomplete: bringing it to equal was cut short");
  if (state.marks.creating) say("it was being created");
  if (state.marks.removed) say("it was removed from the log");
  if (words.empty() && report.start.head != history.start.head) say("not trimmed yet");
  return words;
}

Result<void> require_equal(const ScanReport& report, const Target& to) {
  const auto differs = [](const std::string& what) {
    return Error{ErrorCode::Corrupt, "after it was brought to equal, its " + what +
                                         " is not what was written; its medium can not be trusted"};
  };
  if (report.start.anchor != to.state.anchor) return differs("anchor");
  if (report.start.state() != to.state || !report.start.stored->copies_agree)
    return differs("state");
  const Boundary end = report.boundary();
  if (end.lsn != to.to.lsn) return differs(fmt::format("tail ({})", end.lsn.value));
  if (end.index != to.to.index || end.crc != to.to.crc) return differs("last record");
  if (report.damaged()) return differs("extent");
  return {};
}

Result<Brought> bring_equal(Source* source, const Target& to, Replica& target,
                            ByteSource& target_bytes, const Survey& found, bool& source_failed) {
  Brought brought;
  const auto& report = found.report;
  target.note_state(report ? report->start.stored : std::nullopt);
  const bool own = report && *report->start.anchor == to.state.anchor;
  const bool usable = own && !found.state().marks.incomplete && !found.state().marks.removed;
  std::optional<Boundary> kept;
  if (usable && !to.chosen) {
    PERDURE_TRY(common, common_part(source, target_bytes, *report, to));
    kept = common;
  }
  if (!kept && !to.chosen && source == nullptr) {
    return Error{ErrorCode::QuorumLost,
                 "it does not hold what can be sent on from; bring another replica back first"};
  }
  // Of the chosen one nothing is missing but what is given up.
  const bool equal_already = to.chosen
                                 ? report->tail == to.to.lsn
                                 : kept && kept->lsn == to.to.lsn && report->tail == kept->lsn;
  const bool marked = !equal_already && !kept;
  const bool added = kept && kept->lsn == report->tail;
  const Changed changed = equal_already ? Changed::Start : added ? Changed::Added : Changed::All;
  if (marked && !to.chosen) {
    PERDURE_TRY_VOID(require_source(*source, to, target.visible_within(), source_failed));
  }
  LogState first = own ? found.state() : to.state;
  if (marked) {
    if (own && !first.marks.incomplete) {
      first.promised = candidate_of({}, found, to.state.anchor.log_id).extent;
    }
    first.marks = {};
    first.marks.incomplete = true;
  } else if (!equal_already) {
    // It stays the voter that it was: what is added it can not read before its last state, or
    // continues its own epoch. But what is added may lie over what was trimmed meanwhile.
    first.head = to.state.head;
    if (kept->lsn < report->tail) {
      first.epoch = source->state.epoch;
      first.begin = source->state.begin;
      // Its tail word would say that what is cut off was lost, and take its vote and its content.
      if (to.state.anchor.shape == LogShape::Compound) {
        PERDURE_TRY_VOID(write_word(target, kTailWordAt, kept->lsn));
      }
    }
  }
  if (!own || first != found.state()) PERDURE_TRY_VOID(target.write_state(first));
  if (!usable || report->start.anchor_damaged) {
    PERDURE_TRY_VOID(write_anchor(target, to.state.anchor));
  }
  const Boundary from = to.chosen ? to.to : kept.value_or(to.state.head);
  PERDURE_TRY(copied, copy_records(source, from, to.to, target, source_failed));
  brought.copied_bytes = copied;
  // A word says no more than the state does: it is raised after it, and lowered under the mark.
  if (marked) PERDURE_TRY_VOID(write_words(target, to));
  PERDURE_TRY_VOID(target.write_state(to.state));
  if (!marked) PERDURE_TRY_VOID(write_words(target, to));
  // What was written is durable, and may take a moment until it is read.
  const Deadline visible = target.visible_within();
  while (true) {
    PERDURE_TRY(again, survey_after(changed, target_bytes, found));
    brought.survey = std::move(again);
    const auto equal =
        brought.survey.report
            ? require_equal(*brought.survey.report, to)
            : Result<void>(Error{ErrorCode::Corrupt, "its log can not be read back"});
    if (equal.ok()) return brought;
    if (visible.passed()) return equal.error();
  }
}

}  // namespace perdure::log
