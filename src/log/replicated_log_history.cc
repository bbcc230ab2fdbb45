// Opening a log whose pools are known and whose earlier writers are fenced: read what the replicas
// hold, choose the history that has everything committed, and bring the replicas to it.
// docs/log-protocol.md numbers the steps.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <future>
#include <system_error>

#include "core/log_message.h"
#include "core/try.h"
#include "log/replicated_log.h"

namespace perdure::log {
namespace {

/// The survey of one replica: by a thread of its own from now on, or by whoever asks for it.
std::future<Result<Survey>> begin_survey(ByteSource& bytes, bool thread) {
  const auto read = [&bytes] { return survey(bytes); };
  if (thread) {
    try {
      return std::async(std::launch::async, read);
    } catch (const std::system_error&) {  // there is none to be had
    }
  }
  return std::async(std::launch::deferred, read);
}

}  // namespace

/// Reads replicas whole. With threads all at once, the first by this one. They share nothing: each
/// reads by a session of its own, and what is decided and marked is left to this thread.
std::vector<std::optional<Result<Survey>>> ReplicatedLog::survey_those(
    const Opening& opening, const std::function<bool(std::size_t)>& which) const {
  std::vector<std::future<Result<Survey>>> surveys(replicas_.size());
  bool thread = false;
  for (std::size_t index = 0; index < replicas_.size(); ++index) {
    if (!which(index)) continue;
    surveys[index] = begin_survey(*opening.bytes[index], thread);
    thread = options_.threads;
  }
  std::vector<std::optional<Result<Survey>>> found(replicas_.size());
  for (std::size_t index = 0; index < replicas_.size(); ++index) {
    if (surveys[index].valid()) found[index] = surveys[index].get();
  }
  return found;
}

/// Step 4: reads every replica that has a session; what can not be read is marked down.
void ReplicatedLog::survey_all(Opening& opening) {
  auto surveys =
      survey_those(opening, [&](std::size_t index) { return replicas_[index].has_session(); });
  for (std::size_t index = 0; index < replicas_.size(); ++index) {
    if (!surveys[index]) continue;
    if (surveys[index]->ok()) {
      opening.surveys[index] = std::move(*surveys[index]).value();
    } else {
      replicas_[index].mark_down(surveys[index]->error());
    }
  }
}

/// Step 5.
Result<ReplicatedLog::History> ReplicatedLog::choose_history(const Opening& opening) {
  const std::vector<Candidate> candidates = candidates_of(opening, opening.surveys);
  const auto best = best_of(candidates);
  const Lsn claimed = claimed_beside(candidates, best ? candidates[*best].readable : Rank{});
  const Statements statements = statements_of(opening, opening.surveys, best);
  Configurations in_play =
      in_play_of(newest_known(statements, opening.configuration), opening.surveys, best);
  const Choice choice = choose(candidates, in_play);
  if (!choice.history) return accept_history(opening, candidates, choice);
  const Statements unchosen = statements_of(opening, opening.surveys, {});
  PERDURE_TRY_VOID(check_named_of(newest_stated(unchosen), in_play));
  History history;
  history.at = *choice.history;
  history.report = *opening.surveys[history.at]->report;
  history.in_play = std::move(in_play);
  history.claimed = claimed;
  return history;
}

/// What an accepted loss writes cuts off what others may have. So it begins only when enough of the
/// log's replicas were read to begin an epoch on; else nothing is written, and they may still
/// decide otherwise.
Result<void> ReplicatedLog::require_all_read(const Opening& opening,
                                             const Configurations& in_play) {
  for (const Configuration& each : in_play) {
    std::size_t read = 0;
    for (std::size_t index = 0; index < replicas_.size(); ++index) {
      const auto& pool = replicas_[index].pool();
      read += opening.surveys[index] && pool && each.has(*pool) ? 1 : 0;
    }
    if (read < each.sessions_needed()) {
      return too_few(fmt::format("accepting a loss of log '{}'", options_.pool), each);
    }
  }
  return {};
}

/// What these replicas have lost, or hold only in part: empty when nothing.
std::string ReplicatedLog::losses_of(const Surveys& surveys) const {
  std::string words;
  for (std::size_t index = 0; index < replicas_.size(); ++index) {
    if (!surveys[index]) continue;
    const Survey& found = *surveys[index];
    const std::string& name = replicas_[index].peer().name();
    if (found.blank()) words += fmt::format("; {} holds nothing, although it is a replica", name);
    if (found.damage) words += fmt::format("; {}: {}", name, found.damage->message);
    if (!found.report) continue;
    if (found.state().marks.incomplete) {
      // What it can return may be another history's, of which the copy was not finished.
      const LogState& state = found.state();
      const bool known = state.promised.epoch > Epoch{} && state.promised.end.value < UINT64_MAX;
      words += fmt::format("; {} is incomplete{}", name,
                           known ? fmt::format(", and records up to {} were durable there before",
                                               state.promised.end.value)
                                 : "");
    } else if (found.report->damaged()) {
      words += fmt::format(
          "; {} can return LSN {} to {} (index {} to {}), but records up to {} were durable there",
          name, found.state().head.lsn.value, found.report->tail.value, found.state().head.index,
          found.report->next_index, found.report->extent.value);
    }
  }
  return words;
}

Error ReplicatedLog::may_be_lost(const Choice& choice, std::string_view losses) const {
  return {ErrorCode::Corrupt,
          fmt::format("committed records of log '{}' may be lost: {} of {} votes that are "
                      "needed, and something up to LSN {} was committed{}; bring another "
                      "replica back, or open with accept_loss to go on without them",
                      options_.pool, choice.voters, choice.needed, choice.claimed.value, losses)};
}

/// No history is known to hold everything: refused, unless the loss is accepted.
Result<ReplicatedLog::History> ReplicatedLog::accept_history(
    const Opening& opening, const std::vector<Candidate>& candidates, const Choice& choice) {
  const auto best = best_of(candidates, true);
  const std::string words = losses_of(opening.surveys);
  if (best && options_.accept_loss) {
    History history;
    history.at = *best;
    history.report = *opening.surveys[*best]->report;
    history.claimed = history.report.claimed;  // the rest is committed when the epoch has begun
    const Statements statements = statements_of(opening, opening.surveys, {});
    history.in_play =
        in_play_of(newest_known(statements, opening.configuration), opening.surveys, best);
    history.accepted_loss = words;
    PERDURE_TRY_VOID(require_all_read(opening, history.in_play));
    return history;
  }
  if (choice.damage || !words.empty()) return may_be_lost(choice, words);
  return too_few(fmt::format("recovering log '{}'", options_.pool), opening.configuration);
}

/// The head is no place of the history, although that has the votes: refused, unless the loss of
/// the history is accepted.
Result<void> ReplicatedLog::accept_head(const Opening& opening, History& history, Lsn head) {
  if (!options_.accept_loss) {
    return Error{ErrorCode::Corrupt,
                 fmt::format("log '{}' was trimmed to LSN {}, which is not the place of a record "
                             "of {}; bring another replica back, or open with accept_loss to go "
                             "on empty from there",
                             options_.pool, head.value, replicas_[history.at].peer().name())};
  }
  PERDURE_TRY_VOID(require_all_read(opening, history.in_play));
  history.accepted_loss = losses_of(opening.surveys);
  return {};
}

/// Step 6: the newest head, which must be a place of the history.
Result<void> ReplicatedLog::choose_head(Opening& opening, History& history) {
  head_ = history.report.start.state().head;
  Boundary newest = head_;
  for (const auto& found : opening.surveys) {
    if (!found || !found->report || found->report->start.anchor->log_id != *opening.log_id)
      continue;
    // A trim that was acknowledged is known in the epoch of the history: every later writer saw it.
    // What a lower one says, a writer has asked for that had been taken over from.
    const Boundary& head = found->state().head;
    const bool counts = found->state().epoch >= history.report.start.state().epoch;
    if (counts && head.lsn > newest.lsn) newest = head;
  }
  Boundary tail = history.report.boundary();
  if (newest.lsn > tail.lsn && history.accepted_loss) {
    tail = newest;  // nothing that is left may be kept: the log goes on empty
  } else if (newest.lsn != head_.lsn) {
    LogCursor cursor(*opening.bytes[history.at], history.report.start.state(), head_);
    while (cursor.position() < newest.lsn) {
      PERDURE_TRY(record, cursor.next());
      if (!record) break;
    }
    const Boundary& at = cursor.boundary();
    const bool there = at.lsn == newest.lsn && at.index == newest.index && at.crc == newest.crc;
    if (!there) {
      if (!history.accepted_loss) PERDURE_TRY_VOID(accept_head(opening, history, newest.lsn));
      tail = newest;  // the same: what is left is another history's
    }
  }
  head_ = newest;
  tail_ = tail.lsn;
  next_index_ = tail.index;
  last_crc_ = tail.crc;
  last_epoch_ = tail.epoch;
  begin_ = tail.lsn;
  if (history.accepted_loss) {
    accepted_loss_ =
        fmt::format("the log goes on from LSN {} (index {}); what was behind is given up{}",
                    tail_.value, next_index_, *history.accepted_loss);
  }
  return {};
}

Target ReplicatedLog::target_here(const Boundary& to) const {
  Target target;
  target.state.anchor = anchor_;
  target.state.epoch = epoch_;
  target.state.begin = begin_;
  target.state.head = head_;
  target.state.configuration = configuration_;
  target.to = to;
  target.committed = std::min(committed_, to.lsn);
  return target;
}

/// Which of the configurations in play has fewer replicas that can be written than it needs; null:
/// none.
template <typename Needs>
const Configuration* ReplicatedLog::lacking_of(const Configurations& in_play, Needs needs) const {
  std::vector<pmem::Uuid> up;
  for (const Replica& each : replicas_) {
    if (each.up()) up.push_back(*each.pool());
  }
  const auto lacks = [&](const Configuration& each) {
    return count_members(each, up) < std::invoke(needs, each);
  };
  const auto found = std::find_if(in_play.begin(), in_play.end(), lacks);
  return found == in_play.end() ? nullptr : &*found;
}

/// Steps 7 and 8.
Result<void> ReplicatedLog::adopt(Opening& opening, const History& history) {
  anchor_ = *history.report.start.anchor;
  configuration_ = history.in_play.front();  // known to be committed
  boundaries_ = history.report.boundaries;
  boundaries_.forget_below(head_.lsn);
  boundaries_.forget_behind(tail_);
  committed_ = std::min(history.claimed, tail_);
  const Target target = target_here(tail_boundary());
  note_differences(opening, history);
  if (history.accepted_loss) return adopt_what_is_left(opening, history, target);
  (void)adopt_on(history.at, history.at, opening, history, target);
  // One that is unfit is copied from as it is.
  if (!replicas_[history.at].sending() && !replicas_[history.at].unfit()) {
    return too_few(fmt::format("recovering log '{}'", options_.pool), history.in_play.back());
  }
  adopt_on_others(opening, history, target);
  PERDURE_TRY_VOID(require_votes_kept(opening, history.in_play));
  PERDURE_TRY_VOID(begin_epoch(history.in_play));
  correct_repairs();
  return {};
}

/// Who is incomplete may have come along to accept a loss that one replica alone has begun with,
/// and would come along again: it promises nothing of that epoch. So where such a one was read, or
/// the one that has begun with that loss, as many have to be parts of this epoch as its votes took,
/// before anything rests on them.
Result<void> ReplicatedLog::require_votes_kept(const Opening& opening,
                                               const Configurations& in_play) {
  const auto goes_back = [&](const std::optional<Survey>& found) {
    if (!found || !found->report) return false;
    const LogState& state = found->state();
    return state.marks.incomplete || state.configuration.loss > in_play.back().loss;
  };
  const bool any = std::any_of(opening.surveys.begin(), opening.surveys.end(), goes_back);
  if (!any || options_.accept_loss) return {};
  const Configuration* const lacking = lacking_of(in_play, &Configuration::votes_needed);
  if (lacking == nullptr) return {};
  return too_few(fmt::format("recovering log '{}', of which a replica is incomplete, or has a "
                             "loss that came to nothing (open with accept_loss if it can not be "
                             "brought to equal, and none of those that are away was there when "
                             "a loss was accepted)",
                             options_.pool),
                 *lacking);
}

/// Accepts a loss. What the chosen replica gives up, or one that begins without it, is given up
/// whatever becomes of this opening; so that comes last, when all others are equal that come along,
/// and while they are enough. Until then they are incomplete, and promise what they did: nothing is
/// decided, and of the new epoch nothing is to be seen.
Result<void> ReplicatedLog::adopt_what_is_left(Opening& opening, const History& history,
                                               const Target& target) {
  Replica& chosen = replicas_[history.at];
  if (!chosen.unfit()) {
    const auto ready = chosen.prepare(anchor_.shape, staging_);
    if (!ready.ok()) chosen.mark_down(ready.error());
  }
  if (chosen.up() || chosen.unfit()) adopt_on_others(opening, history, target);
  const Configuration* const lacking = lacking_of(history.in_play, &Configuration::quorum);
  if (!chosen.up() && !chosen.unfit()) {
    return Error{
        ErrorCode::QuorumLost,
        fmt::format("accepting a loss of log '{}': {}, whose records were to be kept, went "
                    "down: {}; open it again",
                    options_.pool, chosen.peer().name(),
                    chosen.down_reason() ? chosen.down_reason()->message : "")};
  }
  if (lacking != nullptr) {
    return too_few(fmt::format("accepting a loss of log '{}'", options_.pool), *lacking);
  }
  Target accepted = target;
  accepted.state.configuration.loss = epoch_;
  if (chosen.up()) (void)adopt_on(history.at, history.at, opening, history, accepted);
  for (std::size_t index = 0; index < replicas_.size(); ++index) {
    if (index == history.at || !replicas_[index].sending()) continue;
    if (lacking_of(history.in_play, &Configuration::quorum) != nullptr) break;
    const auto words = write_words(replicas_[index], accepted);
    if (words.ok()) {
      begin_on(index, opening, accepted);
    } else {
      replicas_[index].mark_down(words.error());
    }
  }
  Configurations in_play = history.in_play;
  for (Configuration& each : in_play) each.loss = epoch_;
  const auto begun = begin_epoch(in_play);
  if (!begun.ok()) {
    return Error{
        ErrorCode::OutcomeUnknown,
        fmt::format("whether the loss is accepted is not known, and who opens the log next "
                    "finds out: {}",
                    begun.error().message)};
  }
  correct_repairs();
  log_message(Severity::Warning, fmt::format("log '{}': {}", options_.pool, accepted_loss_));
  return {};
}

/// Who went down after it was brought to equal is not repaired.
void ReplicatedLog::correct_repairs() {
  for (RepairReport& each : repairs_) {
    const auto replica = std::find_if(replicas_.begin(), replicas_.end(), [&](const Replica& one) {
      return one.peer().name() == each.peer;
    });
    if (!each.repaired || replica == replicas_.end() || replica->sending()) continue;
    each.repaired = false;
    each.error = replica->down_reason() ? replica->down_reason()->message : "it is down";
  }
}

/// What is to be repaired, replica by replica, before anything is written.
void ReplicatedLog::note_differences(Opening& opening, const History& history) const {
  ScanReport shown = history.report;
  shown.start.head = head_.lsn;
  shown.records = next_index_ - head_.index;
  for (const auto& found : opening.surveys) {
    opening.differences.push_back(found ? describe_difference(*found, shown) : "");
  }
}

/// From the replica whose history it is. Where that can not be read any more it is down, and one
/// that is equal by then takes its place.
void ReplicatedLog::adopt_on_others(Opening& opening, const History& history,
                                    const Target& target) {
  std::vector<std::size_t> left;
  for (std::size_t index = 0; index < replicas_.size(); ++index) {
    if (index != history.at && opening.surveys[index]) left.push_back(index);
  }
  std::size_t source = history.at;
  while (true) {
    std::optional<Error> unreadable;
    std::vector<std::size_t> again;
    for (const std::size_t index : left) {
      auto why = adopt_on(index, source, opening, history, target);
      if (!why) continue;
      unreadable = std::move(why);
      auto found = survey(*opening.bytes[index]);  // some of it may have been copied
      if (!found.ok()) {
        replicas_[index].mark_down(found.error());
        continue;
      }
      opening.surveys[index] = std::move(found).value();
      again.push_back(index);
    }
    if (!unreadable) return;
    replicas_[source].mark_down(*unreadable);
    left = std::move(again);
    const auto equal = std::find_if(replicas_.begin(), replicas_.end(),
                                    [](const Replica& each) { return each.sending(); });
    if (equal == replicas_.end()) break;
    source = static_cast<std::size_t>(equal - replicas_.begin());
  }
  for (const std::size_t index : left) {
    replicas_[index].mark_down({ErrorCode::QuorumLost, "nobody is left to copy it from"});
  }
}

/// Makes one replica a full part of the epoch, or marks it down. Returns why the one that it is
/// copied from can not be read: then it is up, and not a part of the epoch yet.
std::optional<Error> ReplicatedLog::adopt_on(std::size_t index, std::size_t from, Opening& opening,
                                             const History& history, const Target& target) {
  Replica& replica = replicas_[index];
  const Survey& found = *opening.surveys[index];
  const auto& start = opening.starts[index];
  const bool other = start && start->anchor && start->anchor->log_id != anchor_.log_id &&
                     !start->state().marks.creating;
  if (other) {
    replica.mark_down({ErrorCode::InvalidArgument, "its pool holds another log"});
    return std::nullopt;
  }
  // Whichever it is copied from has that history, and can be read by its rules.
  Source source{*replicas_[from].pool(), *opening.bytes[from], history.report.start.state()};
  Target mine = target;
  mine.chosen = index == history.at && history.accepted_loss.has_value();
  mine.undecided = history.accepted_loss && !mine.chosen;
  bool source_failed = false;
  const auto ready = replica.up() ? Result<void>() : replica.prepare(anchor_.shape, staging_);
  const auto brought =
      ready.ok() ? bring_equal(&source, mine, replica, *opening.bytes[index], found, source_failed)
                 : Result<Brought>(ready.error());
  if (!brought.ok() && source_failed && index != from) return brought.error();
  RepairReport report;
  report.peer = replica.peer().name();
  report.found = opening.differences[index];
  if (brought.ok()) {
    report.repaired = true;
    report.copied_bytes = brought->copied_bytes;
    replica.resume_at(tail_);
  } else {
    report.error = brought.error().message;
    replica.mark_down(brought.error());
  }
  if (!report.found.empty()) repairs_.push_back(std::move(report));
  return std::nullopt;
}

}  // namespace perdure::log
