// Reading what is committed: see committed_reader.h.
#include "log/committed_reader.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/try.h"

namespace perdure::log {
namespace {

// More than any writer has in flight.
constexpr std::uint64_t kHeldBytesMax = 128 * 1024 * 1024;

Error busy(const std::string& name) {
  return Error{ErrorCode::Busy, fmt::format("{} is being created or brought to equal, or is no "
                                            "replica any more; read another one, or later",
                                            name)};
}

}  // namespace

Result<CommittedReader> CommittedReader::open(ByteSource& bytes, const Options& options) {
  PERDURE_TRY(start, read_start(bytes));
  if (!start.anchor) {
    return Error{ErrorCode::NotFound,
                 fmt::format("{} holds no log yet; the first append creates it", options.name)};
  }
  if (start.state().marks.any()) return busy(options.name);
  const Lsn from = options.from.value == 0 ? start.head : options.from;
  if (from < start.head || from.value % kRecordAlignment != 0) {
    return Error{ErrorCode::NotFound,
                 fmt::format("no record at {}: the log begins at {} (older ones were trimmed)",
                             from.value, start.head.value)};
  }
  CommittedReader reader(bytes, options, start.state(), from);
  reader.committed_ = start.committed_word.value_or(Lsn{});
  return reader;
}

CommittedReader::CommittedReader(ByteSource& bytes, const Options& options, const LogState& state,
                                 Lsn from)
    : bytes_(&bytes),
      options_(options),
      state_(state),
      cursor_(bytes, state, from),
      returned_(cursor_.boundary()),
      checked_(from == state.head.lsn) {}

Result<std::optional<Record>> CommittedReader::next() {
  bool looked = false;
  while (true) {
    if (!held_.empty() && may_return(held_.front().after.lsn)) {
      Held held = std::move(held_.front());
      held_.pop_front();
      held_bytes_ -= held.bytes.size();
      returned_ = held.after;
      checked_ = true;
      if (held.header.type != RecordType::Data) continue;
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
    returned_ = after;
    checked_ = true;
    if (header.type != RecordType::Data) continue;
    return std::optional<Record>{Record{header.lsn, header.index, header.epoch, view->payload}};
  }
}

/// Nothing more was found: because there is no more, or because the replica is not what it was.
/// True when it is worth another look.
Result<bool> CommittedReader::look_again() {
  PERDURE_TRY(now, read_start(*bytes_));
  if (!now.anchor || now.state().marks.any()) return busy(options_.name);
  PERDURE_TRY_VOID(follow_state(now.state()));
  committed_ = std::max(committed_, now.committed_word.value_or(Lsn{}));
  const Lsn promised = std::max(
      {now.committed_word.value_or(Lsn{}), now.state().begin, now.tail_word.value_or(Lsn{})});
  if (promised <= cursor_.position()) return !held_.empty() && may_return(held_.front().after.lsn);
  // It may have become readable between the two looks; only a second failure is damage.
  const Lsn before = cursor_.position();
  PERDURE_TRY(view, cursor_.next());
  if (!view) {
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

/// Another head, or another epoch: what was held back may have been replaced.
Result<void> CommittedReader::follow_state(const LogState& now) {
  if (now.anchor.log_id != state_.anchor.log_id) {
    return Error{ErrorCode::Fenced,
                 fmt::format("{} holds another log now; nothing more of the old one is there",
                             options_.name)};
  }
  if (returned_.lsn < now.head.lsn) {
    return Error{ErrorCode::NotFound,
                 fmt::format("the record at {} was trimmed; the log now begins at {}",
                             returned_.lsn.value, now.head.lsn.value)};
  }
  const bool other_epoch = now.epoch != state_.epoch || now.begin != state_.begin;
  state_ = now;
  if (!other_epoch) {
    cursor_.set_state(now);
    return {};
  }
  if (checked_ && returned_.lsn > now.begin && returned_.epoch < now.epoch) {
    return Error{
        ErrorCode::Fenced,
        fmt::format("the tail was replaced: the writer of epoch {} went on from LSN {}, and "
                    "records up to {} that were returned are not in the log; read again "
                    "from there",
                    now.epoch.value, now.begin.value, returned_.lsn.value)};
  }
  held_.clear();
  held_bytes_ = 0;
  cursor_ = checked_ ? LogCursor(*bytes_, now, returned_) : LogCursor(*bytes_, now, returned_.lsn);
  return {};
}

}  // namespace perdure::log
