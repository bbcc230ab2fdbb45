// The decisions of a replica set: see replica_set.h.
#include "log/replica_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "core/assert.h"

namespace perdure::log {

bool Configuration::has(const pmem::Uuid& pool) const {
  return std::any_of(members.begin(), members.end(),
                     [&](const Member& member) { return member.pool == pool; });
}

Result<void> validate(const Configuration& configuration) {
  const auto& members = configuration.members;
  for (std::size_t index = 0; index < members.size(); ++index) {
    for (std::size_t other = 0; other < index; ++other) {
      if (members[index].pool != members[other].pool) continue;
      return Error{
          ErrorCode::InvalidArgument,
          fmt::format("{} and {} are one pool ({}); a replica counts once", members[other].name,
                      members[index].name, to_string(members[index].pool))};
    }
  }
  const bool sizes = !members.empty() && members.size() <= kMembersMax &&
                     configuration.quorum >= 1 && configuration.quorum <= members.size();
  if (sizes) return {};
  return Error{ErrorCode::InvalidArgument,
               fmt::format("a quorum of {} with {} replicas; there must be 1 to {} replicas and no "
                           "more needed than there are",
                           configuration.quorum, members.size(), kMembersMax)};
}

std::string describe(const Configuration& configuration) {
  std::string text =
      fmt::format("quorum {} of {} replicas:", configuration.quorum, configuration.members.size());
  for (const Member& member : configuration.members) {
    text += fmt::format("{} {} (pool {})", &member == &configuration.members.front() ? "" : ",",
                        member.name.empty() ? "?" : member.name, to_string(member.pool));
  }
  return text;
}

std::optional<pmem::Uuid> parse_uuid(std::string_view text) {
  pmem::Uuid uuid;
  std::size_t digits = 0;
  for (const char c : text) {
    if (c == '-') continue;
    const int value = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (value < 0 || digits == 2 * uuid.bytes.size()) return std::nullopt;
    std::byte& at = uuid.bytes[digits / 2];
    at = static_cast<std::byte>(static_cast<unsigned>(at) << 4 | static_cast<unsigned>(value));
    ++digits;
  }
  if (digits != 2 * uuid.bytes.size()) return std::nullopt;
  return uuid;
}

Configurations configurations_in_play(const Configuration& stated,
                                      std::span<const ConfigurationAt> found, Lsn claimed) {
  Configurations in_play = {stated};
  for (const ConfigurationAt& each : found) {
    if (each.configuration.generation <= in_play.back().generation) continue;
    if (each.end <= claimed) in_play.clear();
    in_play.push_back(each.configuration);
    in_play.back().loss = std::max(each.configuration.loss, stated.loss);  // of the same history
  }
  if (in_play.size() > 2) in_play.erase(in_play.begin(), in_play.end() - 2);
  return in_play;
}

namespace {

/// A configuration beside what all say. Where the latest epoch is without the loss that it names,
/// or so many of its own replicas vote without that loss that the others are no quorum, it
/// can not have been accepted on enough of them.
Configuration beside(Configuration stated, const Statements& statements) {
  const Epoch loss = stated.loss;
  const auto& all = statements.all;
  const auto latest = std::max_element(
      all.begin(), all.end(),
      [](const Statement& one, const Statement& other) { return one.epoch < other.epoch; });
  const bool went_on_without =
      latest != all.end() && latest->epoch > loss && latest->stated.loss < loss;
  const bool voted_without = statements.history && all[*statements.history].stated.loss < loss &&
                             count_members(stated, statements.voters) >= stated.votes_needed();
  if (voted_without || went_on_without) stated.loss = {};
  return stated;
}

}  // namespace

Configuration newest_stated(const Statements& statements) {
  Configuration newest;
  for (const Statement& each : statements.all) {
    const Configuration stated = beside(each.stated, statements);
    if (stated.newer_than(newest)) newest = stated;
  }
  return newest;
}

Configuration newest_known(const Statements& statements, const Configuration& before) {
  Configuration newest = newest_stated(statements);
  const auto note = [&](const Configuration& known) {
    if (known.newer_than(newest)) newest = known;
  };
  note(beside(before, statements));
  for (const Statement& each : statements.all) {
    if (each.incomplete) continue;  // what is known is what its state says
    const Configuration stated = beside(each.stated, statements);
    note(configurations_in_play(stated, each.found, each.claimed).front());
  }
  return newest;
}

Configurations in_play_by(const Configuration& known, const std::optional<Statement>& history) {
  // One of an epoch before a loss that was accepted since has no change that is newer than that.
  if (!history) return {known};
  Configurations in_play = configurations_in_play(known, history->found, history->claimed);
  // One of an epoch before a loss that was accepted since decides nothing beside that. But whoever
  // accepts another loss and takes it has its records, and so its changes.
  const bool before = history->epoch < known.loss && in_play.front() != known;
  return before ? Configurations{known, in_play.back()} : in_play;
}

std::optional<std::size_t> best_of(std::span<const Candidate> candidates, bool any) {
  std::optional<std::size_t> best;
  for (std::size_t index = 0; index < candidates.size(); ++index) {
    const Candidate& each = candidates[index];
    const bool may =
        each.standing == Standing::Whole || (any && each.standing == Standing::Damaged);
    if (may && (!best || each.readable > candidates[*best].readable)) best = index;
  }
  if (!any) return best;
  for (std::size_t index = 0; index < candidates.size(); ++index) {
    const Candidate& each = candidates[index];
    if (each.standing != Standing::Incomplete || each.readable == Rank{}) continue;
    // What is left of it is part of its epoch's history, of which another may have less.
    const bool longer = best && each.readable.epoch == candidates[*best].readable.epoch &&
                        each.readable.end > candidates[*best].readable.end;
    const bool better = best && candidates[*best].standing == Standing::Incomplete &&
                        each.readable > candidates[*best].readable;
    if (!best || longer || better) best = index;
  }
  return best;
}

bool votes(const Candidate& candidate, const Rank& history) {
  switch (candidate.standing) {
    case Standing::Whole:
    case Standing::Damaged:
    case Standing::Incomplete: return candidate.extent <= history;
    case Standing::Unknown: return false;
  }
  return false;
}

Lsn claimed_beside(std::span<const Candidate> candidates, const Rank& history) {
  Lsn claimed;
  for (const Candidate& each : candidates) {
    if (each.extent.epoch >= history.epoch) claimed = std::max(claimed, each.claimed);
  }
  return claimed;
}

Choice choose(std::span<const Candidate> candidates, const Configurations& in_play) {
  Choice choice;
  choice.damage = std::any_of(candidates.begin(), candidates.end(), [](const Candidate& each) {
    return each.standing == Standing::Damaged;
  });
  const auto best = best_of(candidates);
  const Rank history = best ? candidates[*best].readable : Rank{};
  choice.claimed = claimed_beside(candidates, history);
  bool enough = best.has_value();
  for (const Configuration& configuration : in_play) {
    std::size_t voters = 0;
    for (const Candidate& each : candidates) {
      voters += best && configuration.has(each.pool) && votes(each, history) ? 1 : 0;
    }
    const bool first = &configuration == &in_play.front();
    if (first || voters < choice.voters) choice.voters = voters;
    choice.needed = std::max(choice.needed, configuration.votes_needed());
    enough = enough && voters >= configuration.votes_needed();
  }
  if (enough && history.end < choice.claimed) {
    choice.damage = true;  // something committed is nowhere to be read
    enough = false;
  }
  if (enough) choice.history = best;
  return choice;
}

std::size_t count_members(const Configuration& configuration, std::span<const pmem::Uuid> pools) {
  return static_cast<std::size_t>(std::count_if(
      pools.begin(), pools.end(), [&](const pmem::Uuid& pool) { return configuration.has(pool); }));
}

CommitRule::CommitRule(const Configurations& in_play, std::span<const pmem::Uuid> pools)
    : scratch_(pools.size()) {
  for (const Configuration& configuration : in_play) {
    Part& part = parts_.emplace_back();
    part.quorum = configuration.quorum;
    for (std::size_t index = 0; index < pools.size(); ++index) {
      if (configuration.has(pools[index])) part.replicas.push_back(index);
    }
  }
}

Lsn CommitRule::committed(std::span<const Lsn> durable) {
  PERDURE_ASSERT(durable.size() == scratch_.size());
  Lsn least{UINT64_MAX};
  for (const Part& part : parts_) {
    if (part.replicas.size() < part.quorum) return Lsn{};
    for (std::size_t i = 0; i < part.replicas.size(); ++i) scratch_[i] = durable[part.replicas[i]];
    const auto end = scratch_.begin() + static_cast<std::ptrdiff_t>(part.replicas.size());
    std::sort(scratch_.begin(), end, std::greater<>());
    least = std::min(least, scratch_[part.quorum - 1]);
  }
  return parts_.empty() ? Lsn{} : least;
}

}  // namespace perdure::log
