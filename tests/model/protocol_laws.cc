// The laws of docs/log-protocol.md: some of a step, some of a state. And the words of a story.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "model/protocol_model.h"

namespace perdure::model {
namespace {

constexpr int kAllWrites = 1000;

std::size_t at(int number) { return static_cast<std::size_t>(number); }
std::uint8_t small(int value) { return static_cast<std::uint8_t>(value); }

std::string names(Mask mask) {
  std::string words;
  for (int pool = 0; pool < kReplicas; ++pool) {
    if (has(mask, pool)) words += static_cast<char>('A' + pool);
  }
  return words.empty() ? "none" : words;
}

}  // namespace

const char* to_string(Law law) {
  switch (law) {
    case Law::None: return "none";
    case Law::CommittedIsNeverLost: return "1 committed is never lost";
    case Law::TrimmedNeverReturns: return "2 trimmed never returns";
    case Law::OneRecordForEver: return "3 an LSN and an index name one record for ever";
    case Law::OnlyCommittedIsRead: return "4 only committed records are read";
    case Law::NoSecondWriterCommits: return "5 no second writer commits";
    case Law::DamageIsNeverReturned: return "6 damage is never returned";
    case Law::SomethingCanBeDone: return "7 something can always be done";
    case Law::WholeIsWhole: return "log matching";
  }
  return "unknown";
}

const char* to_string(Mutant mutant) {
  static constexpr std::array kNames = {"right",
                                        "old-head-comes-back",
                                        "head-of-any-epoch",
                                        "head-of-the-chosen",
                                        "empty-forgets",
                                        "source-is-trusted",
                                        "blank-votes",
                                        "damage-is-ignored",
                                        "fenced-takes-the-tail",
                                        "quorum-is-not-stored",
                                        "any-peers-will-do",
                                        "readers-get-all",
                                        "creation-has-no-mark",
                                        "create-on-some",
                                        "create-unseen",
                                        "holes-are-not-looked-behind",
                                        "ends-behind-do-not-count",
                                        "claim-of-any-history",
                                        "claim-under-the-mark",
                                        "longest-wins",
                                        "no-mark-before-copying",
                                        "one-copy-commits",
                                        "old-writers-go-on",
                                        "fence-leaves-loose",
                                        "begin-is-ignored",
                                        "new-configuration-alone",
                                        "newest-configuration-only",
                                        "word-is-committed",
                                        "trim-by-one",
                                        "prefix-by-length",
                                        "records-before-head",
                                        "tail-word-is-left",
                                        "removed-is-told-first",
                                        "newcomer-counts",
                                        "mark-before-source",
                                        "mark-takes-the-vote",
                                        "resume-without-survey",
                                        "state-before-records",
                                        "append-before-begun",
                                        "loss-has-no-number",
                                        "loss-of-one-counts",
                                        "loss-of-one-is-left",
                                        "votes-are-not-kept",
                                        "others-stay-whole",
                                        "chosen-first",
                                        "chosen-keeps-its-words",
                                        "cut-off-keeps-its-word",
                                        "cut-off-keeps-configuration",
                                        "head-keeps-configuration",
                                        "chosen-is-not-marked"};
  return kNames[static_cast<std::size_t>(mutant)];
}

/// What becomes committed by this writer's count, and whether it may.
Law Protocol::note_committed(State& state, Writer& writer, int committed) {
  Judge& judge = state.judge;
  if (committed <= writer.committed) return Law::None;
  Law broken = Law::None;
  for (int lsn = std::max(writer.committed, writer.head); lsn < committed; ++lsn) {
    const Id id = records_.at(writer.last, lsn);
    Id& known = judge.committed[at(lsn)];
    // What the new writer has adopted may be acknowledged by both.
    if (judge.begun > writer.epoch && known != id) broken = Law::NoSecondWriterCommits;
    if (known != kNothing && known != id && broken == Law::None) broken = Law::OneRecordForEver;
    known = id;
    for (int other = 0; other < lsn; ++other) {
      const Id earlier = judge.committed[at(other)];
      const bool twice = earlier != kNothing && records_[earlier].configuration == 0 &&
                         records_[id].configuration == 0 &&
                         records_[earlier].index == records_[id].index;
      if (twice && broken == Law::None) broken = Law::OneRecordForEver;
    }
  }
  writer.committed = small(committed);
  if (writer.next == 0 || writer.committed < writer.tail) return broken;
  writer.configuration = std::exchange(writer.next, std::uint8_t{0});
  writer.unsettled = 1;
  judge.configuration = writer.configuration;
  return broken;
}

/// What readers of one replica get, and whether it has what it acknowledged.
Law Protocol::check_replica(const State& state, int pool, const Found& found) const {
  const Replica& replica = state.replicas[at(pool)];
  if (!found.log || (replica.marks & (kCreating | kIncomplete)) != 0) return Law::None;
  const int end = is(Mutant::ReadersGetAll) ? found.tail : std::min(found.tail, found.read_claim);
  for (int lsn = replica.head; lsn < end; ++lsn) {
    const Id id = records_.at(found.last, lsn);
    const Id given_up = state.judge.given_up[at(lsn)];
    if (id != state.judge.committed[at(lsn)] && id != given_up && given_up != kUnreadable) {
      return Law::OnlyCommittedIsRead;
    }
  }
  if (replica.medium != kSound || replica.marks != 0) return Law::None;
  // Only the medium that was damaged may have damage.
  for (const Id id : replica.ring) {
    if (id == kUnreadable && replica.acked > found.tail) return Law::DamageIsNeverReturned;
  }
  // What is in flight arrives in order when there is one at a time: then nothing looks like damage.
  const bool doubted = bounds_.in_flight == 1 && found.damaged();
  const bool lies = replica.acked > found.tail || doubted;
  return lies && bounds_.lemma ? Law::WholeIsWhole : Law::None;
}

/// Log matching: whole replicas of one epoch hold prefixes of one history.
Law Protocol::check_pairs(const State& state, const std::array<Found, kReplicas>& found) const {
  for (int one = 0; one < bounds_.pools && bounds_.lemma; ++one) {
    const Replica& replica = state.replicas[at(one)];
    if (!found[at(one)].log || replica.marks != 0 || found[at(one)].damaged()) continue;
    for (int other = one + 1; other < bounds_.pools; ++other) {
      const Replica& second = state.replicas[at(other)];
      if (!found[at(other)].log || second.marks != 0 || found[at(other)].damaged()) continue;
      if (second.epoch != replica.epoch || second.log != replica.log) continue;
      if (replica.begin != second.begin) return Law::WholeIsWhole;
      const int end = std::min(found[at(one)].tail, found[at(other)].tail);
      if (end < std::max(replica.head, second.head)) continue;
      if (records_.before(found[at(one)].last, end) !=
          records_.before(found[at(other)].last, end)) {
        return Law::WholeIsWhole;
      }
    }
  }
  return Law::None;
}

Law Protocol::check(const State& state) {
  std::array<Found, kReplicas> found;
  for (int pool = 0; pool < bounds_.pools; ++pool) {
    found[at(pool)] = read(state.replicas[at(pool)]);
    const Law law = check_replica(state, pool, found[at(pool)]);
    if (law != Law::None) return law;
  }
  if (const Law law = check_pairs(state, found); law != Law::None) return law;
  return can_open(state) ? Law::None : Law::SomethingCanBeDone;
}

/// Whether a new writer that names these members (0: all of them), and reaches `reachable`, begins
/// its epoch when nothing disturbs it.
bool Protocol::opens(State state, Mask reachable, std::uint8_t named, bool accepting) {
  Writer& writer = state.writers[0];
  writer = Writer{};
  writer.self = 200;
  writer.epoch = 100;
  writer.named = named;
  writer.accepting = accepting ? 1 : 0;
  writer.sessions = named == 0 ? reachable : reachable & members(named);
  const Looked looked = look_at(state, writer.sessions, named);
  if (looked.configuration == 0) return false;
  writer.configuration = looked.configuration;
  writer.loss = looked.loss;
  writer.log = looked.log;
  if (writer.log == 0) return bounds_.create && writer.sessions == members(1);
  for (int pool = 0; pool < bounds_.pools; ++pool) {
    if (!has(writer.sessions, pool)) continue;
    state.replicas[at(pool)].fence = writer.epoch;
    state.replicas[at(pool)].fence_writer = writer.self;
    state.replicas[at(pool)].loose = 0;
  }
  Chosen chosen;
  auto target = choose_target(state, writer, chosen);
  if (!target) return false;
  target->undecided = target->accepted;
  for (int turn = -1; turn < bounds_.pools; ++turn) {
    const int pool = turn < 0 ? chosen.history : turn;
    if (!has(writer.sessions, pool) || turn == chosen.history) continue;
    if (target->accepted && turn < 0) continue;
    if (bring(state, *target, chosen.history, pool, kAllWrites).complete) {
      writer.sending |= bit(pool);
    }
  }
  if (target->accepted) {
    target->undecided = false;
    target->chosen = true;
    const bool begun = bring(state, *target, -1, chosen.history, kAllWrites).complete;
    if (begun) writer.sending |= bit(chosen.history);
  }
  return enough(chosen.oldest, chosen.newest, writer.sending) &&
         (target->accepted || votes_kept(state.judge, writer, chosen));
}

/// Law 7: with no more lost than may be, a new writer that reaches the rest can open. With more, or
/// where it is not known whether a loss was accepted, one that accepts it, as long as anything is
/// left of the log and enough are there.
bool Protocol::can_open(const State& state) {
  State media{};
  media.replicas = state.replicas;
  for (Replica& replica : media.replicas) {
    replica.acked = 0;
    replica.fence = replica.fence_writer = 0;
  }
  media.judge.configuration = state.judge.configuration;
  media.judge.configurations = state.judge.configurations;
  media.judge.pending = state.judge.pending;
  const std::uint64_t key = this->key(media);
  if (const auto known = can_open_.find(key); known != can_open_.end()) return known->second;
  Mask reachable = 0;
  Mask bad = 0;
  bool left = false;
  for (int pool = 0; pool < bounds_.pools; ++pool) {
    const Replica& replica = state.replicas[at(pool)];
    if (replica.medium != kDead) reachable |= bit(pool);
    left = left || (replica.log != 0 && (replica.marks & kCreating) == 0 && replica.epoch != 0);
    const bool damaged =
        bounds_.in_flight > 1 && replica.log != 0 && replica.marks == 0 && read(replica).damaged();
    // What came along to accept a loss has no more than that.
    const bool came_along = bounds_.acceptances > 0 && (replica.marks & kIncomplete) != 0;
    if (replica.medium != kSound || damaged || came_along) bad |= bit(pool);
  }
  bool within = true;
  for (std::uint8_t each = 1; each <= bounds_.configurations.size(); ++each) {
    if (!has(state.judge.configurations, each)) continue;
    const log::Configuration& one = configuration(each);
    if (one.generation < configuration(state.judge.configuration).generation) continue;
    const int lost = std::popcount(static_cast<Mask>(bad & members(each)));
    within = within && lost <= static_cast<int>(one.members.size() - one.sessions_needed());
    const int there = std::popcount(static_cast<Mask>(reachable & members(each)));
    left = left && there >= static_cast<int>(one.sessions_needed());
  }
  const bool undecided = state.judge.pending != 0 || !within;
  bool can = undecided && (bounds_.acceptances == 0 || !left);
  for (std::uint8_t named = 0; named <= bounds_.configurations.size() && !can; ++named) {
    can = opens(state, reachable, named, false) ||
          (undecided && opens(state, reachable, named, true));
  }
  return can_open_[key] = can;
}

std::string Protocol::describe(const Action& action) const {
  const std::string writer = fmt::format("writer {}", action.writer + 1);
  const char pool = static_cast<char>('A' + action.replica);
  switch (action.kind) {
    case Kind::Look:
      return fmt::format("{} asks {}: the next epoch is {}{}", writer, names(action.a), action.b,
                         action.cut[0] != 0 ? "; it accepts a loss" : "");
    case Kind::Fence: return fmt::format("{} fences {}", writer, names(action.a));
    case Kind::Open:
    case Kind::Accept: {
      std::string words =
          fmt::format("{} takes {} of {}", writer,
                      action.kind == Kind::Open ? "the history" : "what is left", pool);
      for (int each = 0; each < bounds_.pools; ++each) {
        const int cut = action.cut[at(each)];
        if (cut != 0) {
          words +=
              fmt::format("; {} is lost after {} writes", static_cast<char>('A' + each), cut - 1);
        }
      }
      if (action.b != 0) {
        words += fmt::format("; lost when it had begun: {} (after {} writes)", names(action.b),
                             action.a);
      }
      return words;
    }
    case Kind::Append: return fmt::format("{} appends a record at {}", writer, action.a);
    case Kind::Acknowledge:
      return fmt::format("{} acknowledges the record at {} to {}", pool, action.a, writer);
    case Kind::Lose:
      return fmt::format("{} loses {}; of what was in flight from {} on arrived: {:#b}", writer,
                         pool, action.b, action.a);
    case Kind::Die: return fmt::format("{} ends", writer);
    case Kind::Trim:
      return action.b == 0 ? fmt::format("{} trims to {}", writer, action.a)
                           : fmt::format("{} trims to {}, and ends when {} have it", writer,
                                         action.a, names(action.b));
    case Kind::CatchUp:
      return fmt::format(
          "{} brings {} to equal from {}{}", writer, pool,
          action.a == kReplicas ? "what is staged"
                                : std::string(1, static_cast<char>('A' + action.a)),
          action.b == 0 ? "" : fmt::format(", and loses it after {} writes", action.b));
    case Kind::NoteCommitted:
      return fmt::format("{} sets the committed word of {} to {}", writer, pool, action.a);
    case Kind::Change:
      return fmt::format("{} appends configuration {} at {}", writer, action.b, action.a);
    case Kind::Settle:
      return fmt::format("{} writes the new configuration to the states of {}", writer,
                         names(action.a));
    case Kind::Damage: return fmt::format("place {} of {} is damaged", action.a, pool);
    case Kind::Wipe: return fmt::format("{} is wiped", pool);
    case Kind::Kill: return fmt::format("{} dies for good", pool);
    case Kind::PowerCut: return fmt::format("{} loses power", pool);
    case Kind::Create:
      return fmt::format("{} creates the log; {} writes are made{}", writer, action.a,
                         action.b == 0 || action.a <= kReplicas - 1
                             ? ""
                             : fmt::format(", without the last of {}", names(action.b)));
  }
  return "?";
}

std::string Protocol::describe(const State& state) const {
  std::string words;
  for (int pool = 0; pool < bounds_.pools; ++pool) {
    const Replica& replica = state.replicas[at(pool)];
    const Found found = read(replica);
    words += fmt::format("    {}: ", static_cast<char>('A' + pool));
    if (replica.medium == kDead) {
      words += "dead\n";
      continue;
    }
    if (!found.log) {
      words += "blank\n";
      continue;
    }
    words += fmt::format(
        "epoch {} from {}, head {}, tail {}, extent {}, word {}, configuration {},"
        " fence {}{}{}{}{}, ring",
        replica.epoch, replica.begin, replica.head, found.tail, found.extent,
        replica.committed_word, replica.configuration, replica.fence,
        (replica.marks & kCreating) != 0 ? ", creating" : "",
        (replica.marks & kIncomplete) != 0 ? ", incomplete" : "",
        (replica.marks & kRemoved) != 0 ? ", removed" : "",
        replica.loss != 0 ? fmt::format(", loss of epoch {}", replica.loss) : "");
    for (int place = 0; place < bounds_.ring; ++place) {
      const Id id = replica.ring[at(place)];
      if (id == kNothing) words += " -";
      if (id == kUnreadable) words += " ?";
      if (id == kNothing || id == kUnreadable) continue;
      words +=
          fmt::format(" {}:e{}c{}", records_[id].lsn, records_[id].epoch, records_[id].committed);
    }
    words += '\n';
  }
  return words;
}

}  // namespace perdure::model
