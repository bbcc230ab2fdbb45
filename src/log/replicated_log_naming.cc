// Who may be named: whether the peers and the quorum that whoever opens a log brings are those that
// the log has. docs/log-protocol.md, open 1 and configurations in play.
#include <fmt/format.h>

#include <algorithm>

#include "core/counted.h"
#include "core/try.h"
#include "log/replicated_log.h"

namespace perdure::log {
namespace {

/// Whether a configuration is among the records that are not known to be committed. True also where
/// they can not be read: then all is read.
bool ends_with_a_change(ByteSource& bytes, const LogStart& start) {
  const Lsn known = start.committed_word.value_or(Lsn{});
  LogCursor cursor(bytes, start.state(), std::max(known, start.state().head.lsn));
  while (true) {
    const auto record = cursor.next();
    if (!record.ok()) return true;
    if (!*record) return false;
    if ((*record)->header.type == RecordType::Configuration) return true;
  }
}

}  // namespace

/// A replica whose creation was begun with others may be all that is left unfinished of a log which
/// those others have: if they can have been enough to commit anything.
Result<void> ReplicatedLog::check_begun(const Opening& opening) const {
  for (std::size_t index = 0; index < replicas_.size(); ++index) {
    const auto& start = opening.starts[index];
    if (!start || !start->anchor || options_.accept_loss) continue;
    const auto named = [&](const Member& member) {
      return std::any_of(replicas_.begin(), replicas_.end(),
                         [&](const Replica& replica) { return replica.pool() == member.pool; });
    };
    const Configuration& begun = start->state().configuration;
    const auto unseen =
        begun.members.size() -
        static_cast<std::size_t>(std::count_if(begun.members.begin(), begun.members.end(), named));
    if (unseen < begun.quorum) continue;
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("creating log '{}' was begun on {} with {}, and may have been ended "
                             "there: name all of these, or open with accept_loss",
                             options_.pool, replicas_[index].peer().name(), describe(begun))};
  }
  return {};
}

/// What is wrong with the peers and the quorum that were named; empty when nothing is. Where
/// several configurations may be meant, nobody can know which of them to name, and it may take them
/// all.
std::string ReplicatedLog::named_wrongly(const Configurations& any_of) const {
  std::string wrong;
  Configuration all;
  for (const Configuration& each : any_of) {
    wrong = named_wrongly(each);
    if (wrong.empty()) return wrong;
    if (all.quorum == 0 || each.quorum == options_.quorum) all.quorum = each.quorum;
    for (const Member& member : each.members) {
      if (!all.has(member.pool)) all.members.push_back(member);
    }
  }
  return named_wrongly(all).empty() ? "" : wrong;
}

std::string ReplicatedLog::named_wrongly(const Configuration& configuration) const {
  for (const Replica& replica : replicas_) {
    if (!replica.pool() || configuration.has(*replica.pool())) continue;
    return fmt::format(
        "{} (pool {}) is no replica of it; `perdure log replica add` or `replace` "
        "makes it one",
        replica.peer().name(), to_string(*replica.pool()));
  }
  const std::size_t members = configuration.members.size();
  if (replicas_.size() > members || (replicas_.size() < members && !options_.partial)) {
    return fmt::format(
        "{} named; name all of them, or change what the log has with `perdure log replica`",
        counted(replicas_.size(), "peer"));
  }
  if (options_.quorum != 0 && options_.quorum != configuration.quorum) {
    return fmt::format("a quorum of {} was asked for", options_.quorum);
  }
  return "";
}

/// How many of its members answered, by the pools they have.
std::size_t ReplicatedLog::reachable_of(const Configuration& configuration) const {
  return static_cast<std::size_t>(
      std::count_if(replicas_.begin(), replicas_.end(), [&](const Replica& replica) {
        return !replica.down_reason() && configuration.has(*replica.pool());
      }));
}

/// How many of those can be written as was asked for.
std::size_t ReplicatedLog::fit_of(const Configuration& configuration) const {
  return static_cast<std::size_t>(
      std::count_if(replicas_.begin(), replicas_.end(), [&](const Replica& replica) {
        return !replica.down_reason() && !replica.unfit() && configuration.has(*replica.pool());
      }));
}

/// Whether what the states say is enough to go on. It may be older than the last record of a
/// configuration, and the next one may need more than all the members of this one: who would fence
/// a writer in the midst of that change looks for it first.
bool ReplicatedLog::states_are_enough(const Configuration& stated, const Opening& opening) const {
  if (reachable_of(stated) < stated.members.size() || !named_wrongly(stated).empty()) return false;
  if (!writer_seen_) return true;
  for (std::size_t index = 0; index < replicas_.size(); ++index) {
    const auto& start = opening.starts[index];
    if (start && start->anchor && ends_with_a_change(*opening.bytes[index], *start)) return false;
  }
  return true;
}

/// Whether the peers and the quorum that were named are those that the log has, and enough of them
/// answer to open it. Nothing has been changed anywhere when they are not.
Result<void> ReplicatedLog::check_named(Opening& opening) {
  const Configuration stated = newest_stated(statements_of(opening, {}, {}));
  opening.configuration = stated;
  if (states_are_enough(stated, opening)) return {};
  // Nobody is fenced yet, and rings may grow: what is taken from them here stays true, or is asked
  // again.
  Surveys rings(replicas_.size());
  auto found =
      survey_those(opening, [&](std::size_t index) { return opening.bytes[index] != nullptr; });
  for (std::size_t index = 0; index < replicas_.size(); ++index) {
    if (found[index] && found[index]->ok()) rings[index] = std::move(*found[index]).value();
  }
  const std::vector<Candidate> candidates = candidates_of(opening, rings);
  const auto best = best_of(candidates);
  const auto check_history = [&](std::optional<std::size_t> history) -> Result<void> {
    const auto whole = history == best ? best : std::nullopt;
    opening.configuration =
        newest_known(statements_of(opening, rings, whole), opening.configuration);
    const Configurations in_play = in_play_of(opening.configuration, rings, history);
    PERDURE_TRY_VOID(check_named_of(stated, in_play));
    return check_reachable_of(in_play);
  };
  Result<void> may = check_history(best);
  if (may.ok()) return may;
  const auto any = best_of(candidates, true);
  if (!best || options_.accept_loss) return check_history(any);
  // What stands in the way may be a change that a damaged history has buried. Naming the replicas
  // of that change would not help: only who accepts the loss opens the log, by that history.
  const Choice choice = choose(candidates, in_play_of(opening.configuration, rings, best));
  if (choice.damage && check_history(any).ok()) return may_be_lost(choice, losses_of(rings));
  return may;
}

/// Whether the log can be opened with those that answer: by each of those in play. Whoever can not
/// succeed fences nobody.
Result<void> ReplicatedLog::check_reachable_of(const Configurations& in_play) {
  for (const Configuration& each : in_play) {
    if (reachable_of(each) < each.sessions_needed() || fit_of(each) < each.quorum) {
      return too_few_of(in_play, each);
    }
  }
  return {};
}

/// Whether those named are right for those in play. Where only rings know that a change is
/// committed, the replicas of the configuration that states say may be named as well: the ring that
/// knows it may be that of a replica which was removed, and the others need it to learn it. And so
/// where that comes of an accepted loss and the votes say that it came to nothing: they may take
/// the replicas of both.
Result<void> ReplicatedLog::check_named_of(const Configuration& stated,
                                           const Configurations& in_play) const {
  Configurations may_be_named = in_play;
  if (in_play.front().newer_than(stated) || in_play.front().loss < stated.loss) {
    may_be_named.insert(may_be_named.begin(), stated);
  }
  const std::string wrong = named_wrongly(may_be_named);
  if (wrong.empty()) return {};
  return Error{ErrorCode::InvalidArgument, fmt::format("log '{}' has {}. But {}", options_.pool,
                                                       describe(in_play.back()), wrong)};
}

/// What the replicas mean for a decision, by their surveys.
std::vector<Candidate> ReplicatedLog::candidates_of(const Opening& opening,
                                                    const Surveys& surveys) const {
  std::vector<Candidate> candidates(replicas_.size());
  for (std::size_t index = 0; index < replicas_.size(); ++index) {
    if (!surveys[index]) continue;
    candidates[index] = candidate_of(*replicas_[index].pool(), *surveys[index], *opening.log_id);
  }
  return candidates;
}

/// What the replicas of this log say of its configuration, as they were looked at or surveyed.
/// `history`: the one that is taken if it has the votes.
Statements ReplicatedLog::statements_of(const Opening& opening, const Surveys& surveys,
                                        std::optional<std::size_t> history) const {
  Statements statements;
  const auto is_of_this_log = [&](const LogStart& start) {
    return start.anchor && start.anchor->log_id == *opening.log_id;
  };
  for (const auto& start : opening.starts) {
    if (!start || !is_of_this_log(*start)) continue;
    statements.all.push_back({start->state().epoch, start->state().configuration, {}, {}});
  }
  for (std::size_t index = 0; index < surveys.size(); ++index) {
    const auto& found = surveys[index];
    if (!found || !found->report || !is_of_this_log(found->report->start)) continue;
    if (index == history) statements.history = statements.all.size();
    statements.all.push_back(statement_of(*found));
  }
  if (!history) return statements;
  const std::vector<Candidate> candidates = candidates_of(opening, surveys);
  for (const Candidate& each : candidates) {
    if (votes(each, candidates[*history].readable)) statements.voters.push_back(each.pool);
  }
  return statements;
}

/// Those in play when the history of this replica is taken.
Configurations ReplicatedLog::in_play_of(const Configuration& known, const Surveys& surveys,
                                         std::optional<std::size_t> history) {
  return in_play_by(known,
                    history ? std::optional(statement_of(*surveys[*history])) : std::nullopt);
}

}  // namespace perdure::log
