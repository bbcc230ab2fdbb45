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
    found.configurations.push_back(
        {Lsn{static_cast<std::uint64_t>(found.tail)}, configuration(record.configuration)});
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
  const auto at = std::find(all.begin(), all.end(), configuration);
  return at == all.end() ? 1 : small(static_cast<std::uint64_t>(at - all.begin()) + 1);
}

/// Opening, step 5.
Protocol::Chosen Protocol::choose(const State& state, Mask surveyed, std::uint8_t log,
                                  std::uint8_t named) {
  std::vector<log::Candidate> candidates;
  std::vector<int> pools;
  std::vector<Found> found;
  std::uint64_t key = mix(log, named);
  for (int pool = 0; pool < bounds_.pools; ++pool) {
    if (!has(surveyed, pool)) continue;
    const Replica& replica = state.replicas[static_cast<std::size_t>(pool)];
    found.push_back(read(replica));
    pools.push_back(pool);
    const log::Candidate& each =
        candidates.emplace_back(candidate(pool, replica, found.back(), log));
    for (const std::uint64_t word :
         {static_cast<std::uint64_t>(pool) << 8 | static_cast<std::uint64_t>(each.standing),
          std::uint64_t{each.readable.epoch.value}, each.readable.end.value,
          std::uint64_t{each.extent.epoch.value}, each.extent.end.value, each.claimed.value,
          std::uint64_t{replica.configuration}}) {
      key = mix(key, word);
    }
    for (const log::ConfigurationAt& at : found.back().configurations) {
      key = mix(key, at.end.value << 8 | number_of(at.configuration));
    }
  }
  if (const auto known = chosen_.find(key); known != chosen_.end()) return known->second;
  Chosen chosen;
  log::Configurations in_play = {configuration(named)};
  const auto best = log::best_of(candidates);
  const Lsn claimed =
      log::claimed_beside(candidates, best ? candidates[*best].readable : log::Rank{});
  if (best) {
    const Replica& history = state.replicas[static_cast<std::size_t>(pools[*best])];
    std::uint8_t stated = std::max<std::uint8_t>(1, history.configuration);
    for (std::size_t at = 0; at < pools.size(); ++at) {
      const Replica& replica = state.replicas[static_cast<std::size_t>(pools[at])];
      if (replica.log != log || is(Mutant::ClaimOfAnyHistory)) continue;
      // Its state says it, or its ring, of its own records and by its own claim; under the mark the
      // claim may be that of what is being copied.
      const std::uint8_t own = std::max<std::uint8_t>(1, replica.configuration);
      const bool marked = (replica.marks & kIncomplete) != 0 && !is(Mutant::ClaimUnderTheMark);
      const std::uint8_t known =
          marked
              ? own
              : number_of(log::configurations_in_play(configuration(own), found[at].configurations,
                                                      candidates[at].claimed)
                              .front());
      if (configuration(known).generation > configuration(stated).generation) stated = known;
    }
    const Lsn known = is(Mutant::ClaimOfAnyHistory) ? claimed : candidates[*best].claimed;
    in_play =
        log::configurations_in_play(configuration(stated), found[*best].configurations, known);
  }
  if (is(Mutant::NewestConfigurationOnly)) in_play = {in_play.back()};
  chosen.oldest = number_of(in_play.front());
  chosen.newest = number_of(in_play.back());
  if (is(Mutant::QuorumIsNotStored)) in_play.back().quorum = 2;
  if (is(Mutant::AnyPeersWillDo)) {
    in_play = {configuration_of(1, 1, pools)};
    in_play.back().quorum = static_cast<std::uint32_t>(pools.size() / 2 + 1);
  }
  const log::Choice choice = log::choose(candidates, in_play);
  chosen.claimed = small(claimed.value);
  if (choice.history) chosen.history = pools[*choice.history];
  return chosen_[key] = chosen;
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
    replica.head = target.head;
    replica.head_id = target.head_id;
  }
  if (kept < 0) {
    if (is(Mutant::NoMarkBeforeCopying)) return;
    if (own && (replica.marks & kIncomplete) == 0) {
      const log::Candidate before = candidate(0, replica, found, target.log);
      replica.vouched_epoch = small(before.extent.epoch.value);
      replica.vouched_end = small(std::min<std::uint64_t>(before.extent.end.value, 255));
    }
    replica.marks = kIncomplete;
    return;
  }
  if (!is(Mutant::RecordsBeforeHead)) {
    replica.head = target.head;
    replica.head_id = target.head_id;
  }
  if (kept < found.tail) {  // what is behind is cut off
    replica.epoch = target.source_epoch;
    replica.begin = target.source_begin;
    replica.acked = std::min(replica.acked, small(static_cast<std::uint64_t>(kept)));
  }
}

/// Bring to equal, steps 2 to 6, cut short after `limit` writes.
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
  const int kept = common_part(state, target, found, source, replica);
  const bool equal_already = kept == target.tail && found.tail == kept;
  const auto say = [&] {
    replica.log = target.log;
    replica.marks = 0;
    replica.epoch = target.epoch;
    replica.begin = target.begin;
    replica.configuration = target.configuration;
    replica.vouched_epoch = replica.vouched_end = 0;
    if (is(Mutant::OldHeadComesBack) && found.log && replica.head <= found.tail) return;
    replica.head = target.head;
    replica.head_id = target.head_id;
  };
  const auto words = [&] {
    replica.committed_word = std::min(target.committed, target.tail);
    if (bounds_.compound) replica.tail_word = target.tail;
  };
  const bool cuts = bounds_.compound && kept >= 0 && kept < found.tail;
  const auto lower = [&] { replica.tail_word = small(static_cast<std::uint64_t>(kept)); };
  if (cuts && !is(Mutant::TailWordIsLeft) && !write(lower)) return brought;
  if (!equal_already && kept < 0 && !holds(state, target, source) &&
      !is(Mutant::MarkBeforeSource)) {
    brought.source_failed = true;
    return brought;
  }
  if (!equal_already) {
    Replica first = replica;
    prepare(first, target, found, kept);
    if (first != replica && !write([&] { replica = first; })) return brought;
  }
  if (is(Mutant::StateBeforeRecords) && !write(say)) return brought;
  for (int lsn = kept >= 0 ? kept : target.head; lsn < target.tail; ++lsn) {
    const auto place = static_cast<std::size_t>(lsn % bounds_.ring);
    const Id id =
        source < 0 ? kNothing : state.replicas[static_cast<std::size_t>(source)].ring[place];
    if (id != records_.at(target.last, lsn) && !is(Mutant::SourceIsTrusted)) {
      brought.source_failed = true;
      return brought;
    }
    if (!write([&] { replica.ring[place] = id; })) return brought;
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
  chosen = choose(state, writer.sessions, writer.log, writer.configuration);
  if (chosen.history < 0) return std::nullopt;
  // Who names all of two in play, or what the states say while only rings know better, is right
  // too.
  const auto generation = [&](std::uint8_t number) { return configuration(number).generation; };
  const bool rings_know = writer.named == writer.configuration &&
                          generation(chosen.oldest) > generation(writer.configuration);
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
  for (int pool = 0; pool < bounds_.pools; ++pool) {  // step 6
    const Replica& replica = state.replicas[static_cast<std::size_t>(pool)];
    if (!has(writer.sessions, pool) || replica.log != target.log) continue;
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
  if (!place) return std::nullopt;
  return target;
}

/// Whether the epoch has begun.
bool Protocol::begin(State& state, int number, const Target& target, const Chosen& chosen,
                     Law& broken) {
  Writer& writer = state.writers[static_cast<std::size_t>(number)];
  if (!enough(chosen.oldest, chosen.newest, writer.sending)) return false;
  Judge& judge = state.judge;
  if (judge.begun >= writer.epoch) broken = Law::NoSecondWriterCommits;
  judge.begun = std::max(judge.begun, writer.epoch);
  judge.configuration = chosen.newest;
  writer.phase = kRunning;
  writer.log = target.log;
  writer.begin = writer.tail = target.tail;
  writer.head = target.head;
  writer.head_id = target.head_id;
  writer.last = target.last;
  writer.configuration = chosen.newest;
  writer.unsettled = chosen.newest != target.configuration ? 1 : 0;
  writer.sessions = writer.sending;
  for (int lsn = 0; lsn < kLsns; ++lsn) {
    const Id id = judge.committed[static_cast<std::size_t>(lsn)];
    if (id == kNothing || broken != Law::None) continue;
    if (lsn < writer.head ? lsn >= judge.trim_asked : records_.at(writer.last, lsn) != id) {
      broken = Law::CommittedIsNeverLost;
    }
  }
  if (broken == Law::None && writer.head < judge.trimmed) broken = Law::TrimmedNeverReturns;
  const Law law = note_committed(state, writer, writer.tail);
  if (broken == Law::None) broken = law;
  return true;
}

}  // namespace perdure::model
