// Reading what is committed: see committed_reader.h.
#include "log/committed_reader.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/try.h"

namespace perdure::log {
namespace {

// More than any writer has in flight.
constexpr std::uint64_t kHeldBytesMax = 128 * 1024 * 1024;
// What is durable may take a moment until it is read.
constexpr Nanoseconds kVisibleWithin = std::chrono::milliseconds(100);

/// Why a replica can not be read that says so itself.
Error marked(const std::string& name, const Marks& marks) {
  if (marks.removed) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("{} was removed from the log; read one of its replicas", name)};
  }
  return Error{ErrorCode::Busy, fmt::format("{} is being created or brought to equal; read another "
                                            "one, or later",
                                            name)};
}

/// What a replica says of itself, as long as it may be read.
Result<LogStart> readable_start(ByteSource& bytes, const std::string& name) {
  PERDURE_TRY(start, read_start(bytes));
  const Marks creating{.creating = true};
  if (!start.anchor) return marked(name, creating);
  if (start.state().marks.any()) return marked(name, start.state().marks);
  return start;
}

/// Up to where it says what is committed, as long as nobody knows whether its state was the same
/// when its word was read, which is first: of an epoch that began meanwhile with an accepted loss
/// that may say too much.
Lsn committed_at_least(const LogStart& start) {
  return std::min(start.committed_word.value_or(Lsn{}), start.state().begin);
}

/// Up to where records were durable on the replica, by what it says itself.
Lsn promised_by(const LogStart& start) {
  return std::max(
      {start.committed_word.value_or(Lsn{}), start.state().begin, start.tail_word.value_or(Lsn{})});
}

bool same_epoch(const LogState& one, const LogState& other) {
  return one.epoch == other.epoch && one.begin == other.begin;
}

}  // namespace

Result<CommittedReader> CommittedReader::open(ByteSource& bytes, const Options& options) {
  PERDURE_TRY(start, read_start(bytes));
  if (!start.anchor) {
    return Error{ErrorCode::NotFound,
                 fmt::format("{} holds no log yet; the first append creates it", options.name)};
  }
  if (start.state().marks.any()) return marked(options.name, start.state().marks);
  if (start.state().head.index > options.from_index && options.from_index != 0) {
    return Error{ErrorCode::NotFound,
                 fmt::format("record {} was trimmed; the log now begins with record {}",
                             options.from_index, start.state().head.index)};
  }
  const Lsn from = options.from.value == 0 ? start.head : options.from;
  if (from < start.head) {
    return Error{
        ErrorCode::NotFound,
        fmt::format("no record at {}: the log begins at {}{}", from.value, start.head.value,
                    start.head == kFirstLsn ? "" : " (older ones were trimmed)")};
  }
  LogCursor cursor(bytes, start.state(), start.state().head);
  const auto there = walk_to(cursor, from, Deadline::after(kVisibleWithin));
  if (!there.ok() && cursor.position() < from && cursor.end() != LogEnd::Torn) {
    PERDURE_TRY(now, readable_start(bytes, options.name));
    // What was promised before it was walked to, and was not cut off since, is damaged.
    const bool damaged = promised_by(start) > cursor.position() && now.state() == start.state();
    if (damaged) return there.error();
    return Error{
        ErrorCode::Busy,
        fmt::format("{} has nothing at {} yet, its records end at {}; read another one, or "
                    "later",
                    options.name, from.value, cursor.position().value)};
  }
  if (!there.ok() && there.code() == ErrorCode::InvalidArgument) {
    return Error{ErrorCode::NotFound, there.error().message};
  }
  if (!there.ok()) return there.error();
  CommittedReader reader(bytes, options, start.state(), cursor);
  reader.committed_ = committed_at_least(start);
  return reader;
}

Result<CommittedReader> CommittedReader::resume(ByteSource& bytes, const Options& options,
                                                const Place& place) {
  PERDURE_TRY(start, readable_start(bytes, options.name));
  const LogState& state = start.state();
  CommittedReader reader(bytes, options, state, LogCursor(bytes, state, place.after));
  // What was read is of the epoch of the record that was returned last, or of an earlier one.
  reader.state_.anchor.log_id = place.log_id;
  reader.state_.epoch = place.after.epoch;
  reader.loss_ = place.loss;
  const auto followed = reader.follow_state(state);
  if (!followed.ok() && !reader.replaced() && !reader.undecided()) return followed.error();
  reader.committed_ = committed_at_least(start);
  return reader;
}

CommittedReader::CommittedReader(ByteSource& bytes, const Options& options, const LogState& state,
                                 const LogCursor& cursor)
    : bytes_(&bytes),
      options_(options),
      state_(state),
      cursor_(cursor),
      position_(cursor_.position()),
      returned_(cursor_.boundary()),
      loss_(state.configuration.loss) {}

Result<std::optional<Record>> CommittedReader::next() {
  if (replaced_) return *replaced_;
  if (undecided_) PERDURE_TRY_VOID(look_whether_decided());
  bool looked = false;
  while (true) {
    if (!held_.empty() && may_return(held_.front().after.lsn)) {
      Held held = std::move(held_.front());
      held_.pop_front();
      held_bytes_ -= held.bytes.size();
      pass(held.header, held.after);
      if (!is_wanted(held.header)) continue;
      current_ = std::move(held.bytes);
      return std::optional<Record>{
          Record{held.header.lsn, held.header.index, held.header.epoch, current_}};
    }
    if (held_bytes_ > kHeldBytesMax) return std::optional<Record>{};
    PERDURE_TRY(view, cursor_.next());
    if (!view) {
      if (looked) return std::optional<Record>{};
      looked = true;
      PERDURE_TRY(again, look_again());
      if (!again) return std::optional<Record>{};
      continue;
    }
    const RecordHeader& header = view->header;
    committed_ = std::max(committed_, header.committed);
    const Boundary& after = cursor_.boundary();
    if (!held_.empty() || !may_return(after.lsn)) {
      held_.push_back({header, {view->payload.begin(), view->payload.end()}, after});
      held_bytes_ += view->payload.size();
      continue;
    }
    pass(header, after);
    if (!is_wanted(header)) continue;
    return std::optional<Record>{Record{header.lsn, header.index, header.epoch, view->payload}};
  }
}

/// Nothing more was found: because there is no more, or because the replica is not what it was.
/// True when it is worth another look.
Result<bool> CommittedReader::look_again() {
  PERDURE_TRY(now, readable_start(*bytes_, options_.name));
  if (!same_epoch(now.state(), state_)) {
    PERDURE_TRY_VOID(follow_state(now.state()));
    PERDURE_TRY(again, readable_start(*bytes_, options_.name));
    now = again;  // with words that were read behind the state
    if (!same_epoch(now.state(), state_)) return false;
  }
  PERDURE_TRY_VOID(follow_state(now.state()));
  committed_ = std::max(committed_, now.committed_word.value_or(Lsn{}));
  if (!held_.empty() && may_return(held_.front().after.lsn)) return true;
  const Lsn promised = promised_by(now);
  if (promised <= cursor_.position()) return false;
  // It may have become readable between the two looks; only a second failure is damage.
  const Lsn before = cursor_.position();
  PERDURE_TRY(view, cursor_.next());
  if (!view) {
    PERDURE_TRY_VOID(require_returned());
    return Error{ErrorCode::Corrupt,
                 fmt::format("records up to {} were durable on this replica, but the one at {} "
                             "can not be read ({}); read another replica and repair this one",
                             promised.value, before.value, to_string(cursor_.end()))};
  }
  committed_ = std::max(committed_, view->header.committed);
  held_.push_back({view->header, {view->payload.begin(), view->payload.end()}, cursor_.boundary()});
  held_bytes_ += view->payload.size();
  return true;
}

/// Of the replica itself: it is of a later epoch by now, which has what was returned.
Result<void> CommittedReader::look_whether_decided() {
  PERDURE_TRY(now, readable_start(*bytes_, options_.name));
  PERDURE_TRY_VOID(follow_state(now.state()));
  undecided_ = false;
  return {};
}

/// Another head, or another epoch: what was held back may have been replaced.
Result<void> CommittedReader::follow_state(const LogState& now) {
  if (now.anchor.log_id != state_.anchor.log_id) {
    return Error{ErrorCode::Fenced,
                 fmt::format("{} holds another log now; nothing more of the old one is there",
                             options_.name)};
  }
  // In another epoch no more than what was there before is known to be in this history.
  const bool other_epoch = !same_epoch(now, state_);
  const bool kept = is_kept(now);
  if (other_epoch) committed_ = std::min(committed_, now.begin);
  if (returned_.lsn > now.begin && returned_.epoch < now.epoch) {
    state_ = now;
    return note_replaced();
  }
  if (returned_.lsn < now.head.lsn && returned_.index > now.head.index) {
    state_ = now;  // fewer records came to a place behind: others than those that were returned
    return note_replaced();
  }
  if (returned_.lsn < now.head.lsn) {
    // What was trimmed may have held no record that is wanted: a pad, a configuration.
    const std::uint64_t next_wanted = std::max(returned_.index, options_.from_index);
    if (now.head.index > next_wanted) {
      return Error{ErrorCode::NotFound,
                   fmt::format("record {}, at {} or later, was trimmed; the log now begins at {}",
                               next_wanted, returned_.lsn.value, now.head.lsn.value)};
    }
    if (!kept) {
      return Error{
          ErrorCode::NotFound,
          fmt::format("whether the records up to {} are in the log, or others came in their place, "
                      "can not be told any more: the log now begins at {}",
                      returned_.lsn.value, now.head.lsn.value)};
    }
    returned_ = now.head;
    loss_ = now.configuration.loss;
    state_ = now;
    restart();
    return {};
  }
  state_ = now;
  if (!other_epoch) {
    cursor_.set_state(now);
    return {};
  }
  restart();
  return {};
}

/// Whether what was returned is in the history of `now`, if that does not begin below. The next
/// epoch says so by where it begins; one between, whose records are trimmed, may have replaced it:
/// what was committed, only if a loss was accepted that was not known yet when it was read.
bool CommittedReader::is_kept(const LogState& now) const {
  if (now.epoch.value <= returned_.epoch.value + 1) return true;
  if (now.configuration.loss > std::max(returned_.epoch, loss_)) return false;
  return !options_.uncommitted || returned_.lsn <= committed_ ||
         now.epoch.value <= state_.epoch.value + 1;
}

/// Only a later writer has replaced it for good: a replica of an earlier one was left behind, and
/// an accepted loss may be on too few, with all the epochs that rest on it. From where, the state
/// says of its own epoch only.
Error CommittedReader::note_replaced() {
  if (state_.epoch <= returned_.epoch) {
    return Error{ErrorCode::Busy,
                 fmt::format("{} was left behind in epoch {}: up to LSN {} it has not what was "
                             "read; read another replica, or later",
                             options_.name, state_.epoch.value, returned_.lsn.value)};
  }
  const bool by_this_epoch =
      state_.epoch.value == returned_.epoch.value + 1 && state_.begin < returned_.lsn;
  const Epoch loss = state_.configuration.loss;
  undecided_ = loss > returned_.epoch;
  std::string words =
      by_this_epoch
          ? fmt::format(
                "the tail was replaced: the writer of epoch {} went on from LSN {}, and the "
                "records from there up to {} are not in the log any more; read again "
                "from there",
                state_.epoch.value, state_.begin.value, returned_.lsn.value)
          : fmt::format(
                "the tail was replaced by a writer of an epoch after {}, up to {}; of the "
                "records up to LSN {} some are not in the log any more; read again from "
                "its head, LSN {}",
                returned_.epoch.value, state_.epoch.value, returned_.lsn.value,
                state_.head.lsn.value);
  if (undecided_) {
    words += fmt::format(
        " (unless the loss that epoch {} has accepted, as {} says, came to nothing: then a later "
        "epoch has them, and who opens the log finds out)",
        loss.value, options_.name);
  }
  Error error{ErrorCode::Fenced, std::move(words)};
  if (!undecided_) replaced_ = error;
  return error;
}

/// Whether what was returned last is still in the log.
Result<void> CommittedReader::require_returned() {
  LogCursor cursor(*bytes_, state_, state_.head);
  const auto there = walk_to(cursor, returned_.lsn, Deadline::after(kVisibleWithin));
  if (!there.ok() && there.code() != ErrorCode::InvalidArgument) return {};  // damage, at most
  if (there.ok() && there->crc == returned_.crc && there->index == returned_.index) return {};
  return note_replaced();
}

/// A record was returned, or is none that is wanted. A pad or a configuration that is given up
/// later was nobody's: what is gone on from is before it.
void CommittedReader::pass(const RecordHeader& header, const Boundary& after) {
  position_ = after.lsn;
  if (header.type != RecordType::Data) return;
  returned_ = after;
  loss_ = state_.configuration.loss;
}

/// Reads on from what was returned last.
void CommittedReader::restart() {
  position_ = returned_.lsn;
  held_.clear();
  held_bytes_ = 0;
  cursor_ = LogCursor(*bytes_, state_, returned_);
}

}  // namespace perdure::log
