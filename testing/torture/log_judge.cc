// The contract of the log as a model: see log_judge.h.
#include "testing/torture/log_judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/bytes.h"

namespace perdure::test {
namespace {

std::string words_of(const ReadRecord& record) {
  return fmt::format("record {} at {} of epoch {}, {} bytes", record.index, record.lsn.value,
                     record.epoch.value, record.content.bytes);
}

}  // namespace

Content content_of(std::span<const std::byte> bytes) {
  Content content{bytes.size() * 0x9e3779b97f4a7c15ULL, bytes.size()};
  const auto mix = [&](std::uint64_t word) {
    content.hash = (content.hash ^ word) * 0xff51afd7ed558ccdULL;
    content.hash ^= content.hash >> 32;
  };
  std::size_t at = 0;
  for (; at + 8 <= bytes.size(); at += 8) mix(load<std::uint64_t>(bytes.data() + at));
  for (; at < bytes.size(); ++at) mix(std::to_integer<std::uint64_t>(bytes[at]));
  return content;
}

const LogJudge::Attempt* LogJudge::attempt_of(Writer writer, std::uint64_t index) const {
  if (index >= attempts_.size()) return nullptr;
  for (const Attempt& attempt : attempts_[index]) {
    if (attempt.writer == writer) return &attempt;
  }
  return nullptr;
}

const LogJudge::Attempt* LogJudge::matching(const ReadRecord& record) const {
  if (record.index >= attempts_.size()) return nullptr;
  for (const Attempt& attempt : attempts_[record.index]) {
    if (attempt.lsn == record.lsn && attempt.content == record.content) return &attempt;
  }
  return nullptr;
}

std::optional<Lsn> LogJudge::place_of(std::uint64_t index) const {
  if (index >= decided_.size() || !decided_[index]) return std::nullopt;
  return decided_[index]->lsn;
}

/// Whether a committed record begins before `lsn`; nothing when that is not known: an opening has
/// found it, nobody has read it yet, and it was appended more than once, on both sides of `lsn`.
std::optional<bool> LogJudge::begins_before(std::uint64_t index, Lsn lsn) const {
  if (decided_[index]) return decided_[index]->lsn < lsn;
  const auto before = [&](const Attempt& attempt) { return attempt.lsn < lsn; };
  const std::vector<Attempt>& attempts = attempts_[index];
  if (std::ranges::all_of(attempts, before)) return true;
  if (std::ranges::none_of(attempts, before)) return false;
  return std::nullopt;
}

/// Which record a trim to `lsn` of this writer leaves as the first, as far as it is known.
LogJudge::FirstKept LogJudge::first_kept(Writer writer, Lsn lsn) const {
  FirstKept kept{committed_below_, committed_below_};
  while (kept.at_least > 0) {
    const std::optional<bool> before = begins_before(kept.at_least - 1, lsn);
    if (before == true) break;
    --kept.at_least;
    if (before == false) kept.at_most = kept.at_least;
  }
  if (kept.at_most < committed_below_) return kept;
  // Not one that is known to be committed: the writer knows more, up to its own last one.
  const bool exact = kept.at_least == kept.at_most;
  while (const Attempt* attempt = attempt_of(writer, kept.at_most)) {
    if (attempt->lsn >= lsn) break;
    ++kept.at_most;
  }
  if (exact) kept.at_least = kept.at_most;
  return kept;
}

void LogJudge::decide(std::uint64_t index, const Attempt& attempt, std::string_view law,
                      std::string_view by) {
  if (index >= decided_.size()) decided_.resize(index + 1);
  std::optional<Attempt>& decided = decided_[index];
  if (decided) {
    const bool same = decided->lsn == attempt.lsn && decided->content == attempt.content;
    if (!same) {
      lost(law, fmt::format("{}: record {} is at {} with {} bytes, but the committed one of that "
                            "index was at {} with {} bytes",
                            by, index, attempt.lsn.value, attempt.content.bytes, decided->lsn.value,
                            decided->content.bytes));
    }
    return;
  }
  decided = attempt;
  vouched_below_ = std::max(vouched_below_, attempt.vouches_below);
  committed_end_ = std::max(committed_end_, attempt.end);
  const auto returned = returned_.find(index);
  if (returned == returned_.end()) return;
  require(returned->second.lsn == attempt.lsn && returned->second.content == attempt.content,
          "only-committed-is-read",
          fmt::format("a reader returned record {} at {}, and another one was committed in its "
                      "place, at {}",
                      index, returned->second.lsn.value, attempt.lsn.value));
}

/// Laws about what is there, when an operator has accepted that some of it is lost, do not hold.
void LogJudge::check_opening(const LogStatus& status) {
  const std::uint64_t next = status.next_index;
  if (next < committed_below_) {
    const bool nothing_kept = trim_index_max_ >= committed_below_;
    lost(nothing_kept ? "one-record-per-place" : "committed-is-never-lost",
         fmt::format("the log opens with {} records (tail {}), but {} were committed{}", next,
                     status.tail.value, committed_below_,
                     nothing_kept ? "; all were trimmed, and their indices come again" : ""));
  }
  if (status.tail < committed_end_) {
    lost("one-record-per-place",
         fmt::format("the log opens with its tail at {}, but the last committed record ends at {}",
                     status.tail.value, committed_end_.value));
  }
  require(next <= std::max<std::uint64_t>(attempts_.size(), recovered_below_),
          "one-record-per-place",
          fmt::format("the log opens with {} records, and only {} were ever appended", next,
                      attempts_.size()));
  if (status.head < trimmed_lsn_) {
    lost("trimmed-never-returns",
         fmt::format("the log opens with its head at {}, but was trimmed to {}", status.head.value,
                     trimmed_lsn_.value));
  }
  if (status.head > trim_lsn_max_) {
    lost("committed-is-never-lost",
         fmt::format("the log opens with its head at {}, and nobody asked for more than {}",
                     status.head.value, trim_lsn_max_.value));
  }
  const Epoch last = lives_.empty() ? Epoch{} : lives_.back().epoch;
  require(status.epoch > last, "epochs-grow",
          fmt::format("a writer opens with epoch {}, after one with {}", status.epoch.value,
                      last.value));
}

/// What was lost is lost, and that was borne or is not judged: from here on what is there is true.
void LogJudge::begin_anew(const LogStatus& status) {
  decided_.resize(std::min<std::size_t>(decided_.size(), status.next_index));
  returned_.clear();
  loss_epoch_ = status.epoch;
  loss_from_ = status.next_index;
  committed_end_ = std::min(committed_end_, status.tail);
  trimmed_index_ = std::min(trimmed_index_, status.next_index);
  trimmed_lsn_ = std::min(trimmed_lsn_, status.head);
  trim_index_max_ = status.next_index;
  trim_lsn_max_ = std::max(trim_lsn_max_, status.head);
  for (Life& life : lives_) life.told_below = UINT64_MAX;
}

LogJudge::Writer LogJudge::opened(const LogStatus& status) {
  if (lives_.empty()) trim_lsn_max_ = status.head;
  const bool accepted =
      std::exchange(loss_may_be_accepted_, false) || !status.accepted_loss.empty();
  const bool borne_before = std::exchange(loss_borne_, loss_borne_ || accepted);
  check_opening(status);
  loss_borne_ = borne_before;
  const bool less = status.next_index < committed_below_ || status.tail < committed_end_ ||
                    status.head < trimmed_lsn_;
  if (less || !status.accepted_loss.empty()) begin_anew(status);
  Life life;
  life.epoch = status.epoch;
  life.first_index = status.next_index;
  life.told_below = status.next_index;
  life.tail = status.tail;
  lives_.push_back(life);
  if (attempts_.size() < status.next_index) attempts_.resize(status.next_index);
  if (decided_.size() < status.next_index) decided_.resize(status.next_index);
  recovered_below_ = status.next_index;
  committed_below_ = status.next_index;
  vouched_below_ = status.next_index;
  return static_cast<Writer>(lives_.size());
}

void LogJudge::appended(Writer writer, const Ticket& ticket, const Content& content) {
  if (ticket.index >= attempts_.size()) attempts_.resize(ticket.index + 1);
  const bool newest = writer == lives_.size();
  attempts_[ticket.index].push_back(
      {writer, ticket.lsn, ticket.end, content, newest ? committed_below_ : 0});
  if (!newest) return;
  Life& life = lives_[writer - 1];
  require(ticket.index >= committed_below_ && ticket.lsn >= committed_end_, "one-record-per-place",
          fmt::format("a record gets index {} and LSN {}, but {} records are committed, up to {}",
                      ticket.index, ticket.lsn.value, committed_below_, committed_end_.value));
  require(ticket.lsn >= life.tail && ticket.end > ticket.lsn, "one-record-per-place",
          fmt::format("a record begins at {}, and what was before it ends at {}", ticket.lsn.value,
                      life.tail.value));
  life.tail = ticket.end;
}

/// Records from this index on are not in the history that newer writers took over.
std::uint64_t LogJudge::superseded_from(Writer writer) const {
  std::uint64_t from = UINT64_MAX;
  for (std::size_t later = writer; later < lives_.size(); ++later) {
    from = std::min(from, lives_[later].first_index);
  }
  return from;
}

void LogJudge::committed(Writer writer, const Ticket& ticket) {
  Life& life = lives_[writer - 1];
  const std::uint64_t superseded = superseded_from(writer);
  for (; life.told_below <= ticket.index; ++life.told_below) {
    const std::uint64_t index = life.told_below;
    const Attempt* attempt = attempt_of(writer, index);
    if (attempt == nullptr) {
      return broken("one-record-per-place",
                    fmt::format("record {} is committed, and its writer never appended record {}",
                                ticket.index, index));
    }
    if (index >= superseded && !loss_borne_) {
      return broken("no-second-writer-commits",
                    fmt::format("the writer of epoch {} has the acknowledgement of record {}, but "
                                "the writer of epoch {} has opened the log with {} records",
                                life.epoch.value, index, lives_.back().epoch.value, superseded));
    }
    const bool newest = writer == lives_.size();
    decide(index, *attempt, newest ? "one-record-per-place" : "no-second-writer-commits",
           fmt::format("the writer of epoch {} has the acknowledgement", life.epoch.value));
  }
  if (life.told_below != UINT64_MAX) {
    committed_below_ = std::max(committed_below_, life.told_below);
  }
}

void LogJudge::trim_begins(Writer writer, Lsn lsn) {
  if (superseded_from(writer) != UINT64_MAX) return;  // it must not have an effect any more
  trim_lsn_max_ = std::max(trim_lsn_max_, lsn);
  trim_index_max_ = std::max(trim_index_max_, first_kept(writer, lsn).at_most);
}

void LogJudge::trimmed(Writer writer, Lsn lsn) {
  // What an older writer is told of its trim is true of a history that may not be the log's.
  if (superseded_from(writer) != UINT64_MAX) return;
  trimmed_lsn_ = std::max(trimmed_lsn_, lsn);
  trimmed_index_ = std::max(trimmed_index_, first_kept(writer, lsn).at_least);
}

/// Whether a reader of a replica that nobody has brought to equal since may still return it.
bool LogJudge::given_up(const ReadRecord& record) const {
  return record.epoch < loss_epoch_ && record.index >= loss_from_;
}

void LogJudge::read(const ReadRecord& record, std::uint64_t trimmed_before, bool current) {
  const Attempt* attempt = matching(record);
  require(attempt != nullptr, "damage-is-never-returned",
          fmt::format("a reader returned {}: nobody appended that there", words_of(record)));
  if (attempt == nullptr || given_up(record)) return;
  require(!current || record.index >= trimmed_before, "trimmed-never-returns",
          fmt::format("a reader returned {}, which was trimmed before it began", words_of(record)));
  if (record.index < decided_.size() && decided_[record.index]) {
    const Attempt& decided = *decided_[record.index];
    require(decided.lsn == record.lsn && decided.content == record.content,
            "only-committed-is-read",
            fmt::format("a reader returned {}, but another one is committed in its place, at {}",
                        words_of(record), decided.lsn.value));
    return;
  }
  returned_.emplace(record.index, *attempt);
}

void LogJudge::read_below(const std::string& replica, const std::vector<ReadRecord>& records,
                          std::uint64_t below) {
  const std::uint64_t first = records.empty() ? below : records.front().index;
  std::uint64_t next = first;
  require(first >= trimmed_index_, "trimmed-never-returns",
          fmt::format("{} begins with record {}, and all before {} were trimmed", replica, first,
                      trimmed_index_));
  if (first > trim_index_max_ && first > 0) {
    lost("committed-is-never-lost",
         fmt::format("{} begins with record {}; nobody asked to trim more than those before {}",
                     replica, first, trim_index_max_));
  }
  for (const ReadRecord& record : records) {
    require(record.index == next, "one-record-per-place",
            fmt::format("{}: after record {} comes record {}", replica, next, record.index));
    next = record.index + 1;
    const Attempt* attempt = matching(record);
    require(attempt != nullptr, "damage-is-never-returned",
            fmt::format("{} returns {}: nobody appended that there", replica, words_of(record)));
    if (breach() || attempt == nullptr) return;
    if (record.index < below) {
      decide(record.index, *attempt, "one-record-per-place", replica);
    }
  }
  if (next < below) {
    lost("committed-is-never-lost",
         fmt::format("{} is up and returns records {} to {}, but the log has {}", replica, first,
                     next, below));
  }
}

void LogJudge::read_refused(const std::string& replica, const Error& error) {
  lost("committed-is-never-lost",
       fmt::format("{} is up, and reading it fails: {}", replica, error.message));
}

}  // namespace perdure::test
