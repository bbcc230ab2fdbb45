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

constexpr std::uint64_t kCopyBytesMax = 256 * 1024;

/// Writes verified records to a replica, many at a time, and notes what it has answered for.
class RecordCopy {
 public:
  /// So many at a time as go in one piece: more would not be faster, and would be lost to a call
  /// whose time is over between two pieces.
  RecordCopy(Replica& target, const Anchor& anchor, BroughtSoFar::Copied& copied)
      : target_(target),
        ring_bytes_(anchor.ring_bytes),
        seed_(anchor.seed),
        copy_bytes_(std::min(kCopyBytesMax, target.session().range_bytes_max())),
        copied_(copied) {}

  /// `before` and `behind`: the boundaries of the record.
  Result<void> add(const RecordView& record, const Boundary& before, const Boundary& behind) {
    const bool pad = record.header.type == RecordType::Pad;
    const std::uint64_t bytes = pad ? kRecordHeaderBytes : record_bytes(record.payload.size());
    // Where a record ends with the ring, the next one follows it in LSNs, but not in the pool.
    const bool adjacent = record.header.lsn.value == begin_.value + bytes_.size() &&
                          record.header.lsn.value % ring_bytes_ != 0;
    if (!adjacent || bytes_.size() + bytes > copy_bytes_) PERDURE_TRY_VOID(flush());
    if (bytes_.empty()) begin_ = record.header.lsn;
    const std::size_t at = bytes_.size();
    bytes_.resize(at + bytes);
    (void)encode_record(record.header, seed_, record.payload, bytes_.data() + at);
    before_last_ = before;
    end_ = behind;
    return {};
  }

  Result<void> flush() {
    if (bytes_.empty()) return {};
    const bool goes_on = begin_ == copied_.to.lsn && copied_.behind < bytes_.size();
    if (!goes_on) copied_.behind = 0;
    const std::uint64_t at = kRingAt + begin_.value % ring_bytes_ + copied_.behind;
    const std::uint64_t before = copied_.behind;
    auto written = target_.write_now(at, std::span(bytes_).subspan(before), &copied_.behind);
    copied_.bytes += copied_.behind - before;
    if (!written.ok()) return written;
    copied_.before_last = before_last_;
    copied_.to = end_;
    copied_.behind = 0;
    bytes_.clear();
    return {};
  }

 private:
  Replica& target_;
  const std::uint64_t ring_bytes_;
  const std::uint32_t seed_;
  const std::uint64_t copy_bytes_;
  BroughtSoFar::Copied& copied_;
  Lsn begin_;
  Boundary before_last_;
  Boundary end_;
  std::vector<std::byte> bytes_;
};

/// Whether the history of the source goes on behind `end`, which the target holds: the source's
/// record there has the target's last one as its predecessor. Errors: those of reading the source.
Result<bool> goes_on(Source* source, const Boundary& end, const Target& to, bool& source_failed) {
  if (end.lsn < to.state.head.lsn || end.lsn > to.to.lsn) return false;
  if (end.lsn == to.to.lsn) return end.index == to.to.index && end.crc == to.to.crc;
  if (source == nullptr) return false;
  LogCursor cursor(source->bytes, source->state, end);
  const auto record = cursor.next();
  source_failed = !record.ok();
  if (source_failed) return record.error();
  return record->has_value();
}

/// Up to where what the target can read is a beginning of the history; nothing when no part of it
/// is that can be kept. What an older writer left behind the begin of the source's epoch can be cut
/// off by a state alone.
Result<std::optional<Boundary>> common_part(Source* source, ByteSource& target_bytes,
                                            const ScanReport& target, const Target& to,
                                            bool& source_failed) {
  const LogState& state = target.start.state();
  std::optional<Boundary> none;
  if (target.damaged() || state.head.lsn > to.state.head.lsn) return none;
  const Boundary end = target.boundary();
  PERDURE_TRY(whole, goes_on(source, end, to, source_failed));
  if (whole) return std::optional<Boundary>{end};
  if (source == nullptr || state.epoch >= source->state.epoch) return none;
  const Lsn begin = source->state.begin;
  if (begin < to.state.head.lsn || begin < state.head.lsn || begin >= end.lsn) return none;
  LogCursor cursor(target_bytes, state, target.boundaries.before(begin, state.head));
  const auto there = walk_to(cursor, begin, Deadline::after(Nanoseconds{0}));
  if (!there.ok()) {
    const bool not_there =
        there.code() == ErrorCode::Corrupt || there.code() == ErrorCode::InvalidArgument;
    if (not_there) return none;
    return there.error();
  }
  PERDURE_TRY(part, goes_on(source, *there, to, source_failed));
  return part ? std::optional<Boundary>{*there} : none;
}

/// The next record of a replica, the target or its source, that is known to have one: what was
/// written may take a moment until it is read. Since when it is waited for is remembered across
/// calls: nothing is only said of a record that is damaged, and TimedOut when the time of this call
/// is over before that is known.
Result<std::optional<RecordView>> next_visible(LogCursor& cursor, const pmem::Uuid& pool,
                                               Replica& target) {
  PERDURE_TRY(record, cursor.next());
  if (record) return record;
  const client::DurableSession& session = target.session();
  std::optional<BroughtSoFar::Awaited>& awaited = target.brought_so_far().awaited;
  if (!awaited || awaited->pool != pool || awaited->at != cursor.position()) {
    awaited = {pool, cursor.position(), session.options().clock->now()};
  }
  PERDURE_TRY(later, await_record(cursor, session.visible_within(awaited->since)));
  if (later || session.visible_by_now(awaited->since)) {
    awaited.reset();
    return later;
  }
  return Error{ErrorCode::TimedOut, fmt::format("there was no time left to see the record at {}",
                                                cursor.position().value)};
}

/// That the source has everything from the head on. Asked before another replica is marked: a
/// source that turns out to be damaged must not have cost it what it was.
Result<void> require_source(Source& source, const Target& to, Replica& target,
                            bool& source_failed) {
  std::optional<BroughtSoFar::Checked>& checked = target.brought_so_far().checked;
  const Boundary& head = to.state.head;
  const bool goes_on = checked && checked->source == source.pool && checked->to.lsn >= head.lsn &&
                       checked->to.lsn <= to.to.lsn;
  if (!goes_on) checked = {source.pool, head};
  LogCursor cursor(source.bytes, source.state, checked->to);
  while (cursor.position() < to.to.lsn) {
    const auto record = next_visible(cursor, source.pool, target);
    if (record.ok() && *record) {
      checked->to = cursor.boundary();
      continue;
    }
    source_failed = true;
    if (!record.ok()) return record.error();
    return Error{ErrorCode::Corrupt,
                 fmt::format("the record at {}, on the way to {}, can not be read ({})",
                             cursor.position().value, to.to.lsn.value, to_string(cursor.end()))};
  }
  if (cursor.boundary().lsn == to.to.lsn && cursor.boundary().crc == to.to.crc) return {};
  checked.reset();
  source_failed = true;
  return Error{ErrorCode::Corrupt, "its records do not end as the log does; repair it"};
}

/// Whether what earlier calls have copied is there, and is what follows `base`, up to which the
/// replica has what the writer has. If not, copying begins there.
Result<bool> goes_on_copying(ByteSource& bytes, const Replica& target, const Boundary& base,
                             const Target& to) {
  const auto& copied = target.brought_so_far().copied;
  if (!copied || !target.state() || *target.state() != copied->state) return false;
  if (target.state_generation() != copied->generation) return false;
  if (copied->from > base.lsn || copied->to.lsn < base.lsn || copied->to.lsn > to.to.lsn) {
    return false;
  }
  if (copied->to.lsn == base.lsn || copied->before_last == copied->to) return true;
  LogCursor cursor(bytes, to.state, copied->before_last);
  PERDURE_TRY(last, cursor.next());
  return last && cursor.boundary() == copied->to;
}

/// Copies on to the end of the log, and writes nothing that is not of it.
Result<void> copy_records(Source* source, const Boundary& to, Replica& target,
                          BroughtSoFar::Copied& copied, bool& source_failed) {
  if (copied.to.lsn == to.lsn) return {};
  PERDURE_ASSERT(source != nullptr);
  RecordCopy copy(target, source->state.anchor, copied);
  LogCursor cursor(source->bytes, source->state, copied.to);
  while (cursor.position() < to.lsn) {
    const Boundary before = cursor.boundary();
    const auto record = next_visible(cursor, source->pool, target);
    if (record.ok() && *record) {
      PERDURE_TRY_VOID(copy.add(**record, before, cursor.boundary()));
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
  return copy.flush();
}

Error not_what_was_written(const std::string& what) {
  return {ErrorCode::Corrupt, "after it was brought to equal, its " + what +
                                  " is not what was written; its medium can not be trusted"};
}

/// Reads what was copied behind `base`, as whoever reads the replica will. What earlier calls have
/// copied, before `settled`, is there or it is not. What can not be read back the next call copies
/// again.
Result<void> read_back(ByteSource& bytes, const Boundary& base, const Target& to, Replica& target,
                       Lsn settled) {
  BroughtSoFar& so_far = target.brought_so_far();
  std::optional<Boundary>& verified = so_far.verified;
  if (!verified || verified->lsn < base.lsn || verified->lsn > to.to.lsn) verified = base;
  LogCursor cursor(bytes, to.state, *verified);
  while (cursor.position() < to.to.lsn) {
    const bool at_once = cursor.position() < settled;
    const auto record = at_once
                            ? cursor.next()
                            : next_visible(cursor, target.pool().value_or(pmem::Uuid{}), target);
    if (!record.ok()) return record.error();
    if (*record) {
      verified = cursor.boundary();
      continue;
    }
    // From there on it is copied again, and all is read back again: what was read back may have
    // been another medium's.
    so_far.copied->to = *verified;
    so_far.copied->before_last = *verified;
    so_far.copied->behind = 0;
    verified.reset();
    return not_what_was_written(fmt::format("record at {}", so_far.copied->to.lsn.value));
  }
  const Boundary& end = cursor.boundary();
  if (end.lsn == to.to.lsn && end.index == to.to.index && end.crc == to.to.crc) return {};
  so_far.copied.reset();
  verified.reset();
  return not_what_was_written("last record");
}

/// The survey again, of a replica whose records up to `end` were read since the last of them was
/// written: nobody but this writer can have written there.
Result<ScanReport> survey_start(ByteSource& bytes, const Boundary& end) {
  PERDURE_TRY(start, read_start(bytes));
  if (!start.anchor) return not_what_was_written("anchor");
  ScanReport report;
  report.start = start;
  report.tail = end.lsn;
  report.next_index = end.index;
  report.last_crc = end.crc;
  report.last_epoch = end.epoch;
  report.extent = std::max({report.tail, start.state().begin, start.tail_word.value_or(Lsn{}),
                            start.committed_word.value_or(Lsn{})});
  return report;
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

Result<void> write_words(Replica& target, const Target& to) {
  if (to.state.anchor.shape == LogShape::Compound) {
    PERDURE_TRY_VOID(write_word(target, kTailWordAt, to.to.lsn));
  }
  return write_word(target, kCommittedWordAt, std::min(to.committed, to.to.lsn));
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
  candidate.readable = {state.epoch, report.tail};
  candidate.extent = {state.epoch, report.extent};
  candidate.standing = report.damaged() ? Standing::Damaged : Standing::Whole;
  // Without it nobody knows how much was promised.
  if (report.start.tail_word_damaged) candidate.extent.end = Lsn{UINT64_MAX};
  if (state.marks.incomplete || state.marks.removed) {
    candidate.standing = Standing::Incomplete;
    const bool known = !state.marks.removed && state.promised.epoch > Epoch{};
    candidate.extent = known ? state.promised : Rank{state.epoch, Lsn{UINT64_MAX}};
    return candidate;  // what its content claims may be another history's, which replaces it
  }
  candidate.claimed = report.claimed;
  return candidate;
}

Statement statement_of(const Survey& survey) {
  const ScanReport& report = *survey.report;
  return {survey.state().epoch, survey.state().configuration, report.configurations, report.claimed,
          survey.state().marks.incomplete};
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
  if (!replica.report) {
    return fmt::format("holds nothing, although it is a replica, and lacks {} (LSN {} to {})",
                       counted(history.records, "record"), history.start.head.value,
                       history.tail.value);
  }
  const ScanReport& report = *replica.report;
  const LogState& state = replica.state();
  if (state.marks.incomplete) return "incomplete: bringing it to equal was cut short";
  std::string words;
  const auto say = [&](const std::string& more) { words += (words.empty() ? "" : ", ") + more; };
  const bool same = report.tail == history.tail && report.last_crc == history.last_crc;
  if (report.next_index < history.next_index) {
    say(counted(history.next_index - report.next_index, "record") + " behind");
  } else if (report.next_index > history.next_index) {
    say(fmt::format("records {} to {} (up to LSN {}) that are in no committed history",
                    history.next_index, report.next_index - 1, report.tail.value));
  } else if (!same && report.tail < history.tail) {
    say("a change of the replicas behind, or with other records at its end");
  } else if (!same) {
    say("other records, or a change of the replicas, that are in no committed history");
  }
  if (report.extent > report.tail) {
    say(fmt::format("damaged record at {}", report.tail.value));
  } else if (!same && report.end == LogEnd::Torn) {
    say(fmt::format("torn record at {}", report.tail.value));
  }
  if (report.start.tail_word_damaged || report.start.committed_word_damaged) say("damaged word");
  if (report.start.anchor_damaged) say("damaged anchor");
  if (!report.start.stored->copies_agree) say("one copy of its state torn or damaged");
  if (state.marks.creating) say("it was being created");
  if (state.marks.removed) say("it was removed from the log");
  if (words.empty() && report.start.head != history.start.head) say("not trimmed yet");
  return words;
}

Result<void> require_equal(const ScanReport& report, const Target& to) {
  if (report.start.anchor != to.state.anchor) return not_what_was_written("anchor");
  if (report.start.state() != to.state || !report.start.stored->copies_agree)
    return not_what_was_written("state");
  const Boundary end = report.boundary();
  if (end.lsn != to.to.lsn) return not_what_was_written(fmt::format("tail ({})", end.lsn.value));
  if (end.index != to.to.index || end.crc != to.to.crc) return not_what_was_written("last record");
  if (report.damaged()) return not_what_was_written("extent");
  return {};
}

namespace {

/// What is to be done with a replica.
struct Work {
  bool own = false;              // it holds this log
  bool usable = false;           // and what it holds is what it says
  std::optional<Boundary> kept;  // up to here it is a beginning of the history
  bool equal_already = false;
  bool marked = false;  // what it has is replaced
  Boundary base;        // everything behind this is copied
};

Result<Work> plan_work(Source* source, const Target& to, ByteSource& target_bytes,
                       const Survey& found, bool& source_failed) {
  Work work;
  const auto& report = found.report;
  work.own = report && *report->start.anchor == to.state.anchor;
  work.usable = work.own && !found.state().marks.incomplete && !found.state().marks.removed;
  if (work.usable && !to.chosen) {
    PERDURE_TRY(common, common_part(source, target_bytes, *report, to, source_failed));
    work.kept = common;
  }
  if (!work.kept && !to.chosen && source == nullptr) {
    return Error{ErrorCode::QuorumLost,
                 "it does not hold what can be sent on from; bring another replica back first"};
  }
  // Of the chosen one nothing is missing but what is given up.
  const bool whole = work.kept && work.kept->lsn == to.to.lsn && report->tail == work.kept->lsn;
  work.equal_already = to.chosen ? report->tail == to.to.lsn : whole;
  // What only its words vouch for it must not give up before its state says that a loss was
  // accepted: once they say less it would be whole, as if there had been nothing.
  const bool gives_up = to.chosen && report->damaged();
  work.marked = (!work.equal_already && !work.kept) || to.undecided || gives_up;
  work.base = to.chosen ? to.to : work.kept.value_or(to.state.head);
  return work;
}

/// What the replica says while records are copied to it.
LogState state_meanwhile(const Work& work, const Source* source, const Target& to,
                         const Survey& found) {
  LogState first = work.own ? found.state() : to.state;
  if (work.marked) {
    if (work.own && !first.marks.incomplete) {
      first.promised = candidate_of({}, found, to.state.anchor.log_id).extent;
    }
    first.marks = {};
    first.marks.incomplete = true;
    if (!work.own && to.undecided) {
      // It held nothing: no part of the log is known to be its, and no epoch.
      first.promised = {first.epoch, Lsn{UINT64_MAX}};
      first.epoch = Epoch{};
    }
  } else if (!work.equal_already) {
    // It stays the voter that it was: what is added it can not read before its last state, or
    // continues its own epoch. But what is added may lie over what was trimmed meanwhile.
    const bool cut_off = work.kept->lsn < found.report->tail;
    if (cut_off) {
      first.epoch = source->state.epoch;
      first.begin = source->state.begin;
    }
    // What the log has in that epoch; an older one would say that it began without a loss. And what
    // it has at that head: the record of a change may be before it, and would be known no more.
    if (cut_off || first.head != to.state.head) first.configuration = to.state.configuration;
    first.head = to.state.head;
  }
  return first;
}

/// Makes the replica say what it is to say meanwhile; what is known of it is kept.
Result<void> write_meanwhile(const Work& work, const LogState& first, Replica& target,
                             const Survey& found) {
  // One of the two copies may say less, or be damaged, and the other one may be lost next.
  const bool half = work.own && !work.equal_already && !found.report->start.stored->copies_agree;
  if (!work.own || half || first != found.state()) {
    // Its tail word would say that what is cut off was lost, and take its vote and its content.
    const bool cut_off = !work.marked && !work.equal_already && first.epoch != found.state().epoch;
    if (cut_off && first.anchor.shape == LogShape::Compound) {
      PERDURE_TRY_VOID(write_word(target, kTailWordAt, work.kept->lsn));
    }
    // And its committed word, where a loss was accepted without it, that it is committed here too.
    const Lsn claimed = work.own ? found.report->start.committed_word.value_or(Lsn{}) : Lsn{};
    if (cut_off && claimed > work.kept->lsn) {
      PERDURE_TRY_VOID(write_word(target, kCommittedWordAt, work.kept->lsn));
    }
    PERDURE_TRY_VOID(target.write_state(first));
    BroughtSoFar& so_far = target.brought_so_far();
    if (work.marked) {
      so_far.scan.reset();
    } else if (so_far.scan && work.kept) {
      keep_scan(*so_far.scan, first, *work.kept);
    }
    if (so_far.copied) so_far.copied->state = first;
    if (so_far.copied) so_far.copied->generation = target.state_generation();
  }
  if (work.usable && !found.report->start.anchor_damaged) return {};
  return write_anchor(target, first.anchor);
}

/// What was written is durable, and may take a moment until it is read.
Result<ScanReport> survey_until_equal(ByteSource& bytes, const Target& to, const Replica& target,
                                      bool whole) {
  const Deadline visible = target.session().visible_within();
  while (true) {
    auto again = whole ? scan_log(bytes) : survey_start(bytes, to.to);
    if (!again.ok()) return again;
    const auto equal = require_equal(*again, to);
    if (equal.ok()) return again;
    if (visible.passed()) return equal.error();
  }
}

}  // namespace

Result<Brought> bring_equal(Source* source, const Target& to, Replica& target,
                            ByteSource& target_bytes, const Survey& found, bool& source_failed) {
  BroughtSoFar& so_far = target.brought_so_far();
  target.note_state(found.report ? found.report->start.stored : std::nullopt);
  PERDURE_TRY(work, plan_work(source, to, target_bytes, found, source_failed));
  PERDURE_TRY(goes_on, goes_on_copying(target_bytes, target, work.base, to));
  if (!goes_on) {
    so_far.copied.reset();
    so_far.verified.reset();
  }
  // What this writer has marked has nothing to lose any more.
  const bool begun = goes_on && target.state()->marks.incomplete;
  if (work.marked && !to.chosen && !begun) {
    PERDURE_TRY_VOID(require_source(*source, to, target, source_failed));
  }
  PERDURE_TRY_VOID(write_meanwhile(work, state_meanwhile(work, source, to, found), target, found));
  if (!so_far.copied) {
    so_far.copied = BroughtSoFar::Copied{
        *target.state(), target.state_generation(), work.base.lsn, work.base, work.base, 0, 0};
  }
  const Lsn settled = so_far.copied->to.lsn;
  PERDURE_TRY_VOID(copy_records(source, to.to, target, *so_far.copied, source_failed));
  if (work.marked && !so_far.verified) {
    // A copy of the pool from before this moment does not pass for what is read back from here on.
    PERDURE_TRY_VOID(target.write_state(*target.state()));
    so_far.copied->generation = target.state_generation();
  }
  PERDURE_TRY_VOID(read_back(target_bytes, work.base, to, target, settled));
  if (to.undecided) return Brought{so_far.copied->bytes, {}};
  // A word says no more than the state does: it is raised after it, and lowered under the mark.
  // What the chosen one gives up its words must not claim in the new epoch, so they go first.
  const bool words_first = work.marked || to.chosen;
  if (words_first) PERDURE_TRY_VOID(write_words(target, to));
  PERDURE_TRY_VOID(target.write_state(to.state));
  if (!words_first) PERDURE_TRY_VOID(write_words(target, to));
  const bool whole = to.chosen && !work.equal_already;
  PERDURE_TRY(report, survey_until_equal(target_bytes, to, target, whole));
  return Brought{so_far.copied->bytes, std::move(report)};
}

Result<ScanReport> survey_again(ByteSource& bytes, const Target& to, const Replica& target) {
  return survey_until_equal(bytes, to, target, false);
}

}  // namespace perdure::log
