// What a replica is, who is chosen, and bringing a replica to equal: docs/log-protocol.md, in the
// words of the model.
#include "model/protocol_model.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>

#include "core/assert.h"

namespace perdure::model {
namespace {

std::uint64_t mix(std::uint64_t hash, std::uint64_t word) {
  hash = (hash ^ word) * 0x9e3779b97f4a7c15;
  return hash ^ hash >> 29;
}

std::uint64_t hash_of(const State& state) {
  std::array<std::uint64_t, (sizeof(State) + 7) / 8> words{};
  std::memcpy(words.data(), &state, sizeof state);
  std::uint64_t hash = 0;
  for (const std::uint64_t word : words) hash = mix(hash, word);
  return mix(hash, hash >> 32);
}

pmem::Uuid uuid_of(int pool) {
  pmem::Uuid uuid;
  uuid.bytes[15] = static_cast<std::byte>(pool + 1);
  return uuid;
}

Mask renamed(Mask mask, const std::array<int, kReplicas>& names) {
  Mask result = 0;
  for (int pool = 0; pool < kReplicas; ++pool) {
    if (has(mask, pool)) result |= bit(names[static_cast<std::size_t>(pool)]);
  }
  return result;
}

State renamed(const State& state, const std::array<int, kReplicas>& names) {
  State result = state;
  for (std::size_t pool = 0; pool < kReplicas; ++pool) {
    const auto to = static_cast<std::size_t>(names[pool]);
    result.replicas[to] = state.replicas[pool];
    for (std::size_t each = 0; each < kWriters; ++each) {
      result.writers[each].durable[to] = state.writers[each].durable[pool];
    }
  }
  for (std::size_t each = 0; each < kWriters; ++each) {
    result.writers[each].sessions = renamed(state.writers[each].sessions, names);
    result.writers[each].sending = renamed(state.writers[each].sending, names);
  }
  return result;
}

std::uint8_t small(std::uint64_t value) { return static_cast<std::uint8_t>(value); }

}  // namespace

log::Configuration configuration_of(std::uint32_t generation, std::uint32_t quorum,
                                    const std::vector<int>& pools) {
  log::Configuration configuration;
  configuration.generation = generation;
  configuration.quorum = quorum;
  for (const int pool : pools) {
    configuration.members.push_back({uuid_of(pool), std::string(1, static_cast<char>('A' + pool))});
  }
  return configuration;
}

log::Configuration Protocol::configuration(std::uint8_t number, std::uint8_t loss) const {
  log::Configuration configuration = this->configuration(number);
  configuration.loss = Epoch{loss};
  return configuration;
}

Protocol::Protocol(Bounds bounds, Mutant mutant) : bounds_(std::move(bounds)), mutant_(mutant) {
  members_.push_back(0);
  for (const log::Configuration& each : bounds_.configurations) {
    Mask mask = 0;
    for (int pool = 0; pool < bounds_.pools; ++pool) {
      if (each.has(uuid_of(pool))) mask |= bit(pool);
    }
    members_.push_back(mask);
  }
  std::array<int, kReplicas> names{};
  std::iota(names.begin(), names.end(), 0);
  do {
    bool same = true;
    for (const Mask each : members_) same = same && renamed(each, names) == each;
    for (int pool = bounds_.pools; pool < kReplicas; ++pool) {
      same = same && names[static_cast<std::size_t>(pool)] == pool;
    }
    if (same) same_.push_back(names);
  } while (std::next_permutation(names.begin(), names.end()));
}

/// The first writer has just begun; or nobody has ever been there.
State Protocol::first() {
  State state{};
  if (bounds_.create) return state;
  if (bounds_.unheard) return first_unheard();
  Writer& writer = state.writers[0];
  writer.phase = kRunning;
  writer.self = 1;
  writer.epoch = 1;
  writer.log = 1;
  writer.configuration = 1;
  writer.sessions = writer.sending = members(1);
  for (int pool = 0; pool < bounds_.pools; ++pool) {
    if (!has(members(1), pool)) continue;
    Replica& replica = state.replicas[static_cast<std::size_t>(pool)];
    replica.log = replica.epoch = replica.configuration = 1;
    replica.fence = replica.fence_writer = 1;
  }
  state.judge.begun = state.judge.configuration = 1;
  state.judge.configurations = bit(1);
  return state;
}

/// A record, and the second configuration behind it, both committed, and the writer gone. A knows
/// it, and who was added; C had only the record when it was away, and the others have never heard
/// that the change is committed, and the record before it is damaged there (the change itself with
/// `by_word`). With `of_one` a loss
/// was accepted by these and C, and C alone has begun with that.
State Protocol::first_unheard() {
  State state{};
  Record record;
  record.epoch = record.writer = 1;
  const Id data = records_.intern(record);
  record.previous = data;
  record.lsn = record.committed = record.index = 1;
  record.configuration = 2;
  const Id change = records_.intern(record);
  const Mask added = members(2) & static_cast<Mask>(~members(1));
  for (int pool = 0; pool < bounds_.pools; ++pool) {
    Replica& replica = state.replicas[static_cast<std::size_t>(pool)];
    const bool knows = pool == 0 || has(added, pool);
    const bool behind = pool == 2;
    replica.log = replica.epoch = replica.fence = replica.fence_writer = 1;
    replica.configuration = knows ? 2 : 1;
    replica.medium = knows || behind ? kSound : kDamaged;
    replica.acked = behind ? 1 : 2;
    replica.ring[0] = knows || behind || bounds_.by_word ? data : kUnreadable;
    replica.ring[1] = behind ? kNothing : knows || !bounds_.by_word ? change : kUnreadable;
    if (bounds_.by_word) replica.tail_word = replica.acked;
    if (!knows && bounds_.of_one) {
      replica.fence = replica.fence_writer = 2;
      if (behind) replica.epoch = replica.loss = 2;
      if (behind) replica.begin = 1;
      if (!behind) replica.marks = kIncomplete;
      if (!behind) replica.vouched_epoch = 1;
      if (!behind) replica.vouched_end = 2;
    }
    if (!knows || bounds_.trims == 0) continue;
    replica.head = 2;
    replica.head_id = change;
  }
  Judge& judge = state.judge;
  judge.committed[0] = data;
  judge.committed[1] = change;
  judge.begun = judge.appends = judge.changes = 1;
  judge.trims = judge.trim_asked = bounds_.trims == 0 ? 0 : 1;
  judge.trim_asked = small(2 * judge.trims);
  judge.configuration = 2;
  judge.configurations = bit(1) | bit(2);
  if (!bounds_.of_one) return state;
  judge.openings = judge.acceptances = judge.pending = 1;
  judge.pending_last = data;
  return state;
}

std::uint64_t Protocol::key(const State& state) const {
  std::uint64_t least = hash_of(state);
  for (std::size_t other = 1; other < same_.size(); ++other) {
    least = std::min(least, hash_of(renamed(state, same_[other])));
  }
  return least;
}

Found Protocol::read(const Replica& replica) const {
  Found found;
  found.log = replica.log != 0;
  if (!found.log) return found;
  const int limit = replica.head + bounds_.ring;
  const auto fits = [&](const Record& record) {
    if (is(Mutant::BeginIsIgnored)) return record.epoch <= replica.epoch;
    return record.lsn >= replica.begin ? record.epoch == replica.epoch
                                       : record.epoch < replica.epoch;
  };
  const auto whole_at = [&](int lsn) -> Id {
    const Id id = replica.ring[static_cast<std::size_t>(lsn % bounds_.ring)];
    if (id == kNothing || id == kUnreadable) return kNothing;
    return records_[id].lsn == lsn && fits(records_[id]) ? id : kNothing;
  };
  found.tail = replica.head;
  found.last = replica.head_id;
  found.read_claim = replica.committed_word;
  while (found.tail < limit) {
    const Id id = whole_at(found.tail);
    if (id == kNothing || records_[id].previous != found.last) break;
    const Record& record = records_[id];
    found.last = id;
    ++found.tail;
    found.read_claim = std::max<int>(found.read_claim, record.committed);
    if (record.configuration == 0) continue;
    found.configurations.push_back({Lsn{static_cast<std::uint64_t>(found.tail)},
                                    configuration(record.configuration, record.loss)});
  }
  found.claimed = std::max<int>(found.read_claim, replica.head);
  found.extent = std::max<int>({found.tail, replica.begin, replica.committed_word});
  if (bounds_.compound) found.extent = std::max<int>(found.extent, replica.tail_word);
  int end = 0;
  int claimed = 0;
  for (int lsn = found.tail + 1; lsn < limit; ++lsn) {
    const Id id = whole_at(lsn);
    if (id == kNothing) continue;
    end = lsn + 1;
    claimed = std::max<int>(claimed, records_[id].committed);
  }
  if (!is(Mutant::HolesAreNotLookedBehind)) {
    found.claimed = std::max(found.claimed, claimed);
    const int evidence =
        is(Mutant::EndsBehindDoNotCount) ? claimed : std::max(claimed, found.extent);
    if (evidence > found.tail) found.extent = std::max(found.extent, end);
  }
  if (is(Mutant::DamageIsIgnored)) {
    found.extent = found.tail;
    found.claimed = 0;
  }
  return found;
}

log::Candidate Protocol::candidate(int pool, const Replica& replica, const Found& found,
                                   std::uint8_t log) const {
  using log::Standing;
  log::Candidate candidate;
  candidate.pool = uuid_of(pool);
  if (!found.log && is(Mutant::BlankVotes)) {
    candidate.standing = Standing::Whole;
    candidate.extent = {};
  }
  if (!found.log || replica.log != log) return candidate;
  const Epoch epoch{is(Mutant::LongestWins) ? 1U : replica.epoch};
  candidate.claimed = Lsn{static_cast<std::uint64_t>(found.claimed)};
  candidate.readable = {epoch, Lsn{static_cast<std::uint64_t>(found.tail)}};
  candidate.extent = {epoch, Lsn{static_cast<std::uint64_t>(found.extent)}};
  candidate.standing = found.damaged() ? Standing::Damaged : Standing::Whole;
  if ((replica.marks & (kIncomplete | kRemoved)) == 0) return candidate;
  candidate.standing = Standing::Incomplete;
  const bool known = (replica.marks & kRemoved) == 0 && replica.vouched_epoch != 0;
  candidate.extent = known ? log::Rank{Epoch{replica.vouched_epoch}, Lsn{replica.vouched_end}}
                           : log::Rank{epoch, log::kUnknownRank.end};
  if (is(Mutant::MarkTakesTheVote)) candidate.extent = log::kUnknownRank;
  return candidate;
}

std::uint8_t Protocol::number_of(const log::Configuration& configuration) const {
  const auto& all = bounds_.configurations;
  const auto at = std::find_if(all.begin(), all.end(), [&](const log::Configuration& each) {
    return each.generation == configuration.generation && each.quorum == configuration.quorum &&
           each.members == configuration.members;
  });
  return at == all.end() ? 1 : small(static_cast<std::uint64_t>(at - all.begin()) + 1);
}

/// What is known of the configuration when this history is taken; nothing: none is yet.
log::Configuration Protocol::newest_known(const State& state, const Writer& writer,
                                          const std::vector<Surveyed>& surveyed,
                                          std::optional<std::size_t> history) const {
  const bool only_history = is(Mutant::ClaimOfAnyHistory) && history.has_value();
  if (only_history) {
    const Replica& taken = state.replicas[static_cast<std::size_t>(surveyed[*history].pool)];
    return configuration(std::max<std::uint8_t>(1, taken.configuration), taken.loss);
  }
  log::Statements statements;
  for (std::size_t at = 0; at < surveyed.size(); ++at) {
    const Surveyed& each = surveyed[at];
    const Replica& replica = state.replicas[static_cast<std::size_t>(each.pool)];
    if (replica.log != writer.log) continue;
    if (at == history) statements.history = statements.all.size();
    const std::uint8_t own = std::max<std::uint8_t>(1, replica.configuration);
    const bool incomplete = (replica.marks & kIncomplete) != 0 && !is(Mutant::ClaimUnderTheMark);
    statements.all.push_back({Epoch{replica.epoch}, configuration(own, replica.loss),
                              each.found.configurations, each.candidate.claimed, incomplete});
  }
  for (const Surveyed& each : surveyed) {
    const bool voter = history && log::votes(each.candidate, surveyed[*history].candidate.readable);
    if (voter && !is(Mutant::LossOfOneCounts)) statements.voters.push_back(each.candidate.pool);
  }
  return log::newest_known(statements, configuration(writer.configuration, writer.loss));
}

/// Those in play when it is taken.
log::Configurations Protocol::in_play_by(const State& state, const log::Configuration& known,
                                         const std::vector<Surveyed>& surveyed,
                                         std::optional<std::size_t> history, Lsn claimed) const {
  if (!history) return log::in_play_by(known, std::nullopt);
  const Surveyed& taken = surveyed[*history];
  const Replica& replica = state.replicas[static_cast<std::size_t>(taken.pool)];
  const std::uint8_t own = std::max<std::uint8_t>(1, replica.configuration);
  const log::Statement statement{Epoch{replica.epoch}, configuration(own, replica.loss),
                                 taken.found.configurations, claimed};
  return log::in_play_by(known, statement);
}

/// Opening, step 5.
Protocol::Chosen Protocol::choose(const State& state, const Writer& writer) {
  std::vector<Surveyed> surveyed;
  std::uint64_t key = mix(writer.log, writer.configuration);
  key = mix(key, static_cast<std::uint64_t>(writer.loss) << 8 | writer.accepting);
  for (int pool = 0; pool < bounds_.pools; ++pool) {
    if (!has(writer.sessions, pool)) continue;
    const Replica& replica = state.replicas[static_cast<std::size_t>(pool)];
    Surveyed& each = surveyed.emplace_back();
    each.pool = pool;
    each.found = read(replica);
    each.candidate = candidate(pool, replica, each.found, writer.log);
    for (const std::uint64_t word :
         {static_cast<std::uint64_t>(pool) << 8 |
              static_cast<std::uint64_t>(each.candidate.standing),
          std::uint64_t{each.candidate.readable.epoch.value}, each.candidate.readable.end.value,
          std::uint64_t{each.candidate.extent.epoch.value}, each.candidate.extent.end.value,
          each.candidate.claimed.value, static_cast<std::uint64_t>(each.found.claimed),
          std::uint64_t{replica.configuration} << 24 | replica.loss << 16 | replica.epoch << 8 |
              static_cast<unsigned>(replica.log == writer.log)}) {
      key = mix(key, word);
    }
    for (const log::ConfigurationAt& at : each.found.configurations) {
      key = mix(key, at.end.value << 16 | std::uint64_t{at.configuration.loss.value} << 8 |
                         number_of(at.configuration));
    }
  }
  if (const auto known = chosen_.find(key); known != chosen_.end()) return known->second;
  std::vector<log::Candidate> candidates;
  for (const Surveyed& each : surveyed) candidates.push_back(each.candidate);
  Chosen chosen;
  auto best = log::best_of(candidates);
  const Lsn claimed =
      log::claimed_beside(candidates, best ? candidates[*best].readable : log::Rank{});
  const auto claim_of = [&](std::optional<std::size_t> history) {
    if (!history || is(Mutant::ClaimOfAnyHistory)) return claimed;
    return Lsn{static_cast<std::uint64_t>(surveyed[*history].found.claimed)};
  };
  log::Configurations in_play = in_play_by(state, newest_known(state, writer, surveyed, best),
                                           surveyed, best, claim_of(best));
  if (is(Mutant::NewestConfigurationOnly)) in_play = {in_play.back()};
  const log::Configurations named = in_play;
  if (is(Mutant::QuorumIsNotStored)) in_play.back().quorum = 2;
  if (is(Mutant::AnyPeersWillDo)) {
    std::vector<int> pools;
    for (const Surveyed& each : surveyed) pools.push_back(each.pool);
    in_play = {configuration_of(1, 1, pools)};
    in_play.back().quorum = static_cast<std::uint32_t>(pools.size() / 2 + 1);
  }
  const log::Choice choice = log::choose(candidates, in_play);
  chosen.claimed = small(claimed.value);
  in_play = named;
  if (choice.history) {
    chosen.history = surveyed[*choice.history].pool;
  } else if (writer.accepting != 0) {
    best = log::best_of(candidates, true);
    in_play = in_play_by(state, newest_known(state, writer, surveyed, {}), surveyed, best,
                         claim_of(best));
    if (best) chosen.history = surveyed[*best].pool;
    if (best) chosen.claimed = small(static_cast<std::uint64_t>(surveyed[*best].found.claimed));
    chosen.accepted = true;
  }
  chosen.oldest = number_of(in_play.front());
  chosen.newest = number_of(in_play.back());
  chosen.loss = small(in_play.front().loss.value);
  chosen.loss_last = small(in_play.back().loss.value);
  if (chosen.accepted && !all_read(writer, chosen)) chosen.history = -1;
  return chosen_[key] = chosen;
}

/// Whether enough were read to accept a loss.
bool Protocol::all_read(const Writer& writer, const Chosen& chosen) const {
  for (const std::uint8_t each : {chosen.oldest, chosen.newest}) {
    const int read = std::popcount(static_cast<Mask>(writer.sessions & members(each)));
    if (read < static_cast<int>(configuration(each).sessions_needed())) return false;
  }
  return true;
}

/// Where an incomplete replica was read, or one with a loss that came to nothing, as many have to
/// be parts of the epoch as its votes took; or the operator says, and it is true, that no loss was
/// accepted by one that is away.
bool Protocol::votes_kept(const Judge& judge, const Writer& writer, const Chosen& chosen) const {
  const bool told = writer.accepting != 0 && judge.pending == 0;
  if (!chosen.goes_back || told || is(Mutant::VotesAreNotKept)) return true;
  for (const std::uint8_t each : {chosen.oldest, chosen.newest}) {
    const int parts = std::popcount(static_cast<Mask>(writer.sending & members(each)));
    if (parts < static_cast<int>(configuration(each).votes_needed())) return false;
  }
  return true;
}

/// Whether what this writer sends there is still taken.
bool Protocol::session(const State& state, const Writer& writer, int replica) const {
  const Replica& there = state.replicas[static_cast<std::size_t>(replica)];
  if (!has(writer.sessions, replica) || there.medium == kDead) return false;
  if (is(Mutant::OldWritersGoOn)) return true;
  return there.fence == writer.epoch && there.fence_writer == writer.self;
}

bool Protocol::enough(std::uint8_t one, std::uint8_t other, Mask counts) {
  if (is(Mutant::AnyPeersWillDo) || is(Mutant::AppendBeforeBegun)) return counts != 0;
  const auto key = static_cast<std::uint32_t>(one << 16 | other << 8 | counts);
  const auto known = enough_.find(key);
  if (known != enough_.end()) return known->second;
  log::Configurations in_play = {configuration(one)};
  if (other != 0 && other != one) in_play.push_back(configuration(other));
  std::vector<pmem::Uuid> pools;
  for (int pool = 0; pool < bounds_.pools; ++pool) {
    pools.push_back(uuid_of(pool));
  }
  return enough_[key] = log::CommitRule(in_play, pools).enough([&](std::size_t pool) {
    return has(counts, static_cast<int>(pool));
  });
}

/// By the product's rule, of what the writer was told.
int Protocol::committed_by(const Writer& writer) {
  const auto key = static_cast<std::uint32_t>(writer.configuration << 8 | writer.next);
  auto known = rules_.find(key);
  if (known == rules_.end()) {
    log::Configurations in_play = {configuration(writer.configuration)};
    if (writer.next != 0) in_play.push_back(configuration(writer.next));
    if (writer.next != 0 && is(Mutant::NewConfigurationAlone)) in_play.erase(in_play.begin());
    if (is(Mutant::OneCopyCommits)) --in_play.front().quorum;
    std::vector<pmem::Uuid> pools;
    for (int pool = 0; pool < bounds_.pools; ++pool) pools.push_back(uuid_of(pool));
    known = rules_.emplace(key, log::CommitRule(in_play, pools)).first;
  }
  std::array<Lsn, kReplicas> durable;
  for (std::size_t pool = 0; pool < kReplicas; ++pool) durable[pool] = Lsn{writer.durable[pool]};
  const auto pools = static_cast<std::size_t>(bounds_.pools);
  return static_cast<int>(known->second.committed(std::span(durable).first(pools)).value);
}

Target Protocol::target_of(const Writer& writer) const {
  Target target;
  target.log = writer.log;
  target.epoch = target.source_epoch = writer.epoch;
  target.begin = target.source_begin = writer.begin;
  target.head = writer.head;
  target.head_id = writer.head_id;
  target.tail = writer.tail;
  target.last = writer.last;
  target.committed = std::min(writer.committed, writer.tail);
  target.configuration = writer.configuration;
  target.loss = writer.loss;
  return target;
}

/// Whether the history of the source goes on behind this record of the target.
bool Protocol::goes_on(const State& state, const Target& target, int source, int lsn, Id id) const {
  if (lsn < target.head || lsn > target.tail || records_.before(target.last, lsn) != id) {
    return false;
  }
  if (lsn == target.tail) return true;
  if (source < 0) return false;
  const Replica& from = state.replicas[static_cast<std::size_t>(source)];
  return from.ring[static_cast<std::size_t>(lsn % bounds_.ring)] == records_.at(target.last, lsn);
}

/// Up to where what the replica can read is a beginning of the history and can be kept; -1: no
/// part of it.
int Protocol::common_part(const State& state, const Target& target, const Found& found, int source,
                          const Replica& replica) const {
  const bool usable = replica.log == target.log && (replica.marks & (kIncomplete | kRemoved)) == 0;
  if (!usable || found.damaged() || replica.head > target.head) return -1;
  if (is(Mutant::PrefixByLength) && found.tail >= target.head && found.tail <= target.tail) {
    return found.tail;
  }
  if (goes_on(state, target, source, found.tail, found.last)) return found.tail;
  if (source < 0 || replica.epoch >= target.source_epoch) return -1;
  const int begin = target.source_begin;
  if (begin < target.head || begin < replica.head || begin >= found.tail) return -1;
  return goes_on(state, target, source, begin, records_.before(found.last, begin)) ? begin : -1;
}

/// Whether the source has all that is to be copied: asked before anything is marked.
bool Protocol::holds(const State& state, const Target& target, int source) const {
  bool all = source >= 0 || target.head == target.tail;
  for (int lsn = target.head; lsn < target.tail && all; ++lsn) {
    const Replica& from = state.replicas[static_cast<std::size_t>(source)];
    all = from.ring[static_cast<std::size_t>(lsn % bounds_.ring)] == records_.at(target.last, lsn);
  }
  return all || is(Mutant::SourceIsTrusted);
}

/// The state before anything is copied: marked, or still the voter that it was.
void Protocol::prepare(Replica& replica, const Target& target, const Found& found, int kept) const {
  const bool own = replica.log == target.log;
  if (!own) {
    replica.log = target.log;
    replica.marks = 0;
    replica.epoch = target.epoch;
    replica.begin = target.begin;
    replica.configuration = target.configuration;
    replica.loss = target.loss;
    replica.head = target.head;
    replica.head_id = target.head_id;
  }
  if (kept < 0 || target.undecided) {
    if (is(Mutant::NoMarkBeforeCopying)) return;
    if (own && (replica.marks & kIncomplete) == 0) {
      const log::Candidate before = candidate(0, replica, found, target.log);
      replica.vouched_epoch = small(before.extent.epoch.value);
      replica.vouched_end = small(std::min<std::uint64_t>(before.extent.end.value, 255));
    }
    if (!own && target.undecided) {  // no part of the log is known to be its, and no epoch
      replica.vouched_epoch = target.epoch;
      replica.vouched_end = 255;
      replica.epoch = 0;
    }
    replica.marks = kIncomplete;
    return;
  }
  if (!is(Mutant::RecordsBeforeHead)) {
    const bool moved = replica.head != target.head;
    replica.head = target.head;
    replica.head_id = target.head_id;
    if (moved && !is(Mutant::HeadKeepsConfiguration)) {
      replica.configuration = target.configuration;
      replica.loss = target.loss;
    }
  }
  if (kept < found.tail) {  // what is behind is cut off
    replica.epoch = target.source_epoch;
    replica.begin = target.source_begin;
    replica.acked = std::min(replica.acked, small(static_cast<std::uint64_t>(kept)));
    if (is(Mutant::CutOffKeepsConfiguration)) return;
    replica.configuration = target.configuration;
    replica.loss = target.loss;
  }
}

/// The state of a full part of the epoch.
void Protocol::begin_on(Replica& replica, const Target& target, const Found& found) const {
  replica.log = target.log;
  replica.marks = 0;
  replica.epoch = target.epoch;
  replica.begin = target.begin;
  replica.configuration = target.configuration;
  replica.loss = target.loss;
  replica.vouched_epoch = replica.vouched_end = 0;
  if (is(Mutant::OldHeadComesBack) && found.log && replica.head <= found.tail) return;
  replica.head = target.head;
  replica.head_id = target.head_id;
}

void Protocol::write_words(Replica& replica, const Target& target) const {
  if (target.chosen && is(Mutant::ChosenKeepsItsWords)) return;
  replica.committed_word = std::min(target.committed, target.tail);
  if (bounds_.compound) replica.tail_word = target.tail;
}

/// Bring to equal, steps 2 to 6, cut short after `limit` writes. Where a loss is accepted: the
/// others up to the mark, and the replica that was chosen.
Protocol::Brought Protocol::bring(State& state, const Target& target, int source, int number,
                                  int limit) const {
  Replica& replica = state.replicas[static_cast<std::size_t>(number)];
  const Found found = read(replica);
  Brought brought;
  const auto write = [&](auto change) {
    if (brought.writes >= limit) return false;
    ++brought.writes;
    change();
    return true;
  };
  const int kept = target.chosen ? -1 : common_part(state, target, found, source, replica);
  const bool equal_already =
      target.chosen ? found.tail == target.tail : kept == target.tail && found.tail == kept;
  const bool gives_up = target.chosen && found.damaged() && !is(Mutant::ChosenIsNotMarked);
  const bool marked = (!equal_already && kept < 0) || target.undecided || gives_up;
  const auto say = [&] { begin_on(replica, target, found); };
  const auto words = [&] { write_words(replica, target); };
  const bool cut_off = !marked && kept >= 0 && kept < found.tail;
  const auto lower = [&] { replica.tail_word = small(static_cast<std::uint64_t>(kept)); };
  const bool cuts = cut_off && bounds_.compound && !is(Mutant::TailWordIsLeft);
  if (cuts && !write(lower)) return brought;
  const auto claim_less = [&] { replica.committed_word = small(static_cast<std::uint64_t>(kept)); };
  const bool claims = cut_off && replica.committed_word > kept && !is(Mutant::CutOffKeepsItsWord);
  if (claims && !write(claim_less)) return brought;
  if (marked && !target.chosen && !holds(state, target, source) && !is(Mutant::MarkBeforeSource)) {
    brought.source_failed = true;
    return brought;
  }
  if (!equal_already || marked) {
    Replica first = replica;
    prepare(first, target, found, kept);
    if (first != replica && !write([&] { replica = first; })) return brought;
  }
  if (is(Mutant::StateBeforeRecords) && !write(say)) return brought;
  const int base = target.chosen ? target.tail : kept >= 0 ? kept : target.head;
  for (int lsn = base; lsn < target.tail; ++lsn) {
    const auto place = static_cast<std::size_t>(lsn % bounds_.ring);
    const Id id =
        source < 0 ? kNothing : state.replicas[static_cast<std::size_t>(source)].ring[place];
    if (id != records_.at(target.last, lsn) && !is(Mutant::SourceIsTrusted)) {
      brought.source_failed = true;
      return brought;
    }
    if (!write([&] { replica.ring[place] = id; })) return brought;
  }
  if (target.undecided) {
    brought.complete = true;
    return brought;
  }
  // A word says no more than the state does, and is lowered under the mark.
  if (kept >= 0 && !write(say)) return brought;
  if (!write(words)) return brought;
  if (kept < 0 && !write(say)) return brought;
  const Found again = read(replica);
  const bool equal = again.tail == target.tail && again.last == target.last && !again.damaged();
  brought.complete = equal || is(Mutant::SourceIsTrusted) || is(Mutant::NoMarkBeforeCopying) ||
                     is(Mutant::PrefixByLength) || is(Mutant::OldHeadComesBack);
  if (!brought.complete) return brought;
  replica.medium = kSound;
  replica.acked = target.tail;
  return brought;
}

std::optional<Target> Protocol::choose_target(const State& state, const Writer& writer,
                                              Chosen& chosen) {
  chosen = choose(state, writer);
  if (chosen.history < 0) return std::nullopt;
  // Who names all of two in play, or what the states say while only rings know better, is right
  // too; and so where a loss came to nothing.
  const auto generation = [&](std::uint8_t number) { return configuration(number).generation; };
  const bool rings_know =
      writer.named == writer.configuration &&
      (generation(chosen.oldest) > generation(writer.configuration) || chosen.loss != writer.loss);
  const bool either = writer.named == chosen.oldest || writer.named == chosen.newest;
  const bool named = writer.named == 0 ? chosen.oldest != chosen.newest : either || rings_know;
  if (!named && !is(Mutant::AnyPeersWillDo)) return std::nullopt;
  const Replica& history = state.replicas[static_cast<std::size_t>(chosen.history)];
  const Found found = read(history);
  Target target;
  target.log = history.log == 0 ? writer.log : history.log;
  target.epoch = writer.epoch;
  target.source_epoch = history.epoch;
  target.source_begin = history.begin;
  target.begin = target.tail = small(static_cast<std::uint64_t>(found.tail));
  target.last = found.last;
  target.head = history.head;
  target.head_id = history.head_id;
  target.configuration = chosen.oldest;
  target.loss = chosen.loss;
  target.accepted = chosen.accepted;
  for (int pool = 0; pool < bounds_.pools; ++pool) {  // step 6
    const Replica& replica = state.replicas[static_cast<std::size_t>(pool)];
    if (!has(writer.sessions, pool) || replica.log != target.log) continue;
    chosen.goes_back = chosen.goes_back || (replica.marks & kIncomplete) != 0 ||
                       (replica.loss > chosen.loss_last && !is(Mutant::LossOfOneIsLeft));
    if (replica.head <= target.head || is(Mutant::HeadOfTheChosen)) continue;
    if (replica.epoch < history.epoch && !is(Mutant::HeadOfAnyEpoch))
      continue;  // asked for by one who had been taken over from
    target.head = replica.head;
    target.head_id = replica.head_id;
  }
  target.committed = std::min(chosen.claimed, target.tail);
  const bool place =
      target.head <= target.tail &&
      (target.head == history.head || records_.before(target.last, target.head) == target.head_id);
  if (place) return target;
  if (writer.accepting == 0 || !all_read(writer, chosen)) return std::nullopt;
  target.accepted = true;  // it goes on empty from there
  target.begin = target.tail = target.head;
  target.last = target.head_id;
  target.committed = std::min(target.committed, target.tail);
  return target;
}

/// What this writer's epoch has not, and was committed, is given up.
void Protocol::take_loss(State& state, const Writer& writer) const {
  Judge& judge = state.judge;
  for (int lsn = 0; lsn < kLsns; ++lsn) {
    Id& known = judge.committed[static_cast<std::size_t>(lsn)];
    Id& lost = judge.given_up[static_cast<std::size_t>(lsn)];
    if (known == kNothing || (lsn < writer.head && lsn < judge.trim_asked)) continue;
    if (lsn >= writer.head && records_.at(writer.last, lsn) == known) continue;
    lost = lost == kNothing || lost == known ? known : kUnreadable;
    known = kNothing;
  }
  judge.trimmed = std::min(judge.trimmed, writer.head);
  judge.configurations = bit(writer.configuration);
}

/// Whether the record that was committed there is missing from what a loss was accepted with.
bool Protocol::may_be_given_up(const Judge& judge, int lsn) const {
  if (judge.pending_last == kUnreadable || lsn < judge.pending_head) return true;
  return records_.at(judge.pending_last, lsn) != judge.committed[static_cast<std::size_t>(lsn)];
}

/// Whether the epoch has begun.
bool Protocol::begin(State& state, int number, const Target& target, const Chosen& chosen,
                     Law& broken) {
  Writer& writer = state.writers[static_cast<std::size_t>(number)];
  if (!enough(chosen.oldest, chosen.newest, writer.sending)) return false;
  if (!target.accepted && !votes_kept(state.judge, writer, chosen)) return false;
  Judge& judge = state.judge;
  if (judge.begun >= writer.epoch) broken = Law::NoSecondWriterCommits;
  judge.begun = std::max(judge.begun, writer.epoch);
  writer.phase = kRunning;
  writer.log = target.log;
  writer.begin = writer.tail = target.tail;
  writer.head = target.head;
  writer.head_id = target.head_id;
  writer.last = target.last;
  writer.configuration = chosen.newest;
  writer.loss = target.accepted && !is(Mutant::LossHasNoNumber) ? writer.epoch : chosen.loss_last;
  writer.unsettled = chosen.newest != target.configuration ? 1 : 0;
  writer.sessions = writer.sending;
  bool given_up = target.accepted;
  for (int lsn = 0; lsn < kLsns; ++lsn) {
    const Id id = judge.committed[static_cast<std::size_t>(lsn)];
    if (id == kNothing) continue;
    const bool missing =
        lsn < writer.head ? lsn >= judge.trim_asked : records_.at(writer.last, lsn) != id;
    if (!missing || target.accepted) continue;
    if (judge.pending != 0 && may_be_given_up(judge, lsn)) {
      given_up = true;
    } else if (broken == Law::None) {
      broken = Law::CommittedIsNeverLost;
    }
  }
  // The configuration that was decided goes on, or one that was appended behind it.
  const auto generation = [&](std::uint8_t each) { return configuration(each).generation; };
  const bool buried =
      judge.configuration != 0 && (generation(chosen.newest) < generation(judge.configuration) ||
                                   !has(judge.configurations, chosen.newest));
  const bool with_loss = judge.pending_last == kUnreadable || writer.last == judge.pending_last;
  if (buried && judge.pending != 0 && with_loss) given_up = true;
  if (buried && !given_up && broken == Law::None) broken = Law::CommittedIsNeverLost;
  judge.configuration = chosen.newest;
  judge.configurations |= bit(chosen.newest);
  if (given_up) take_loss(state, writer);
  judge.pending = judge.pending_head = 0;
  judge.pending_last = kNothing;
  if (broken == Law::None && writer.head < judge.trimmed) broken = Law::TrimmedNeverReturns;
  const Law law = note_committed(state, writer, writer.tail);
  if (broken == Law::None) broken = law;
  return true;
}

}  // namespace perdure::model
