// What writers and faults can do next. Each function adds the states that may follow.
#include <algorithm>
#include <bit>

#include "model/protocol_model.h"

namespace perdure::model {
namespace {

/// Whoever accepts a loss goes on so far above: more than the openings of any scope.
constexpr int kAcceptedStep = 16;

constexpr int kAllWrites = 1000;

std::size_t at(int number) { return static_cast<std::size_t>(number); }
std::uint8_t small(int value) { return static_cast<std::uint8_t>(value); }

Action action_of(Kind kind, int writer, int replica = 0, int a = 0, int b = 0) {
  return {kind, small(writer), small(replica), small(a), small(b), {}};
}

void end(Writer& writer) { writer = Writer{}; }

/// What a writer asks for that has been taken over from must have no effect.
void note_trim(Judge& judge, const Writer& writer, int head) {
  if (judge.begun <= writer.epoch) judge.trim_asked = std::max(judge.trim_asked, small(head));
}

}  // namespace

void Protocol::steps(const State& state, std::vector<Step>& out) {
  bool absent = false;
  for (int writer = 0; writer < bounds_.writers; ++writer) {
    switch (state.writers[at(writer)].phase) {
      case kAbsent:
        if (!absent && state.judge.openings < bounds_.openings) look(state, writer, out);
        absent = true;  // one place is like another
        continue;
      case kLooked: fence(state, writer, out); break;
      case kFenced: open(state, writer, out); break;
      default: run(state, writer, out); break;
    }
    out.push_back({state, action_of(Kind::Die, writer), Law::None});
    end(out.back().state.writers[at(writer)]);
  }
  faults(state, out);
  for (const Step& each : out) ++taken_[static_cast<std::size_t>(each.action.kind)];
}

/// Whether `named` is what the log has, as far as those who answer know: first by their states,
/// then by what their records leave in play. `named` 0: all pools, which is right as long as it is
/// not known which of two configurations counts: choose_target sees to that.
Protocol::Looked Protocol::look_at(const State& state, Mask answer, std::uint8_t named) const {
  Looked looked;
  log::Statements statements;
  bool held = false;
  for (int pool = 0; pool < bounds_.pools; ++pool) {
    const Replica& replica = state.replicas[at(pool)];
    if (!has(answer, pool) || replica.log == 0) continue;
    if ((replica.marks & kCreating) == 0) looked.log = replica.log;
    const std::uint8_t own = std::max<std::uint8_t>(1, replica.configuration);
    statements.all.push_back({Epoch{replica.epoch}, configuration(own, replica.loss), {}, {}});
    const Found found = read(replica);
    for (const log::Configuration& each :
         log::configurations_in_play(configuration(own), found.configurations,
                                     Lsn{static_cast<std::uint64_t>(found.claimed)})) {
      held = held || number_of(each) == named;
    }
  }
  const log::Configuration newest = log::newest_stated(statements);
  const std::uint8_t stated = newest.generation == 0 ? 1 : number_of(newest);
  const bool newer =
      named != 0 &&
      (configuration(named).generation > configuration(stated).generation || newest.loss > Epoch{});
  if (stated != named && named != 0 && !(held && newer)) return looked;
  looked.configuration = stated;
  looked.loss = small(static_cast<int>(newest.loss.value));
  return looked;
}

/// Steps 1 and 2: who is named, who answers, what the log has, which epoch is next.
void Protocol::look(const State& state, int number, Steps& out) {
  for (std::uint8_t named = 1; named <= bounds_.configurations.size(); ++named) {
    for (int mask = 1; mask < 1 << bounds_.pools; ++mask) {
      const auto answer = static_cast<Mask>(mask);
      if ((answer & ~members(named)) != 0) continue;
      int epoch = 0;
      bool dead = false;
      for (int pool = 0; pool < bounds_.pools; ++pool) {
        if (!has(answer, pool)) continue;
        const Replica& replica = state.replicas[at(pool)];
        dead = dead || replica.medium == kDead;
        epoch = std::max<int>({epoch, replica.fence, replica.epoch});
      }
      const Looked looked = look_at(state, answer, named);
      const std::uint8_t stated = looked.configuration;
      if (dead || stated == 0) continue;
      const int reachable = std::popcount(static_cast<Mask>(answer & members(stated)));
      const bool hopeless = reachable < static_cast<int>(configuration(stated).sessions_needed());
      if (hopeless && !is(Mutant::AnyPeersWillDo) && !is(Mutant::QuorumIsNotStored)) continue;
      if (looked.log == 0 && !(bounds_.create && answer == members(1))) continue;
      Step step{state, action_of(Kind::Look, number, 0, answer, epoch + 1)};
      Writer& writer = step.state.writers[at(number)];
      writer.phase = kLooked;
      writer.self = small(++step.state.judge.openings + 1);
      writer.epoch = small(epoch + 1);
      writer.log = looked.log;
      writer.configuration = stated;
      writer.loss = looked.loss;
      writer.named = named;
      writer.sessions = answer;
      out.push_back(step);
      if (looked.log == 0 || state.judge.acceptances >= bounds_.acceptances) continue;
      writer.accepting = 1;
      writer.epoch = small(epoch + kAcceptedStep);
      step.action.b = writer.epoch;
      ++step.state.judge.acceptances;
      step.action.cut[0] = 1;
      out.push_back(step);
    }
  }
}

/// Step 3.
void Protocol::fence(const State& state, int number, Steps& out) {
  const Writer& looked = state.writers[at(number)];
  for (int mask = 1; mask < 1 << bounds_.pools; ++mask) {
    const auto asked = static_cast<Mask>(mask);
    if ((asked & ~looked.sessions) != 0) continue;
    Step step{state, action_of(Kind::Fence, number, 0, asked)};
    Writer& writer = step.state.writers[at(number)];
    bool refused = false;
    int opened = 0;
    for (int pool = 0; pool < bounds_.pools && !refused; ++pool) {
      if (!has(asked, pool)) continue;
      Replica& replica = step.state.replicas[at(pool)];
      refused = replica.fence >= writer.epoch || replica.medium == kDead;
      if (refused) break;
      replica.fence = writer.epoch;
      replica.fence_writer = writer.self;
      if (!is(Mutant::FenceLeavesLoose)) replica.loose = 0;
      opened += has(members(writer.configuration), pool) ? 1 : 0;
    }
    const int needed =
        is(Mutant::AnyPeersWillDo) || is(Mutant::QuorumIsNotStored)
            ? 1
            : static_cast<int>(configuration(writer.configuration).sessions_needed());
    if (refused || opened < needed) {
      end(writer);
    } else {
      writer.phase = kFenced;
      writer.sessions = asked;
    }
    out.push_back(step);
  }
}

/// Steps 4 to 8.
void Protocol::open(const State& state, int number, Steps& out) {
  const Writer& writer = state.writers[at(number)];
  if (writer.log == 0) return create(state, number, out);
  for (int pool = 0; pool < bounds_.pools; ++pool) {
    if (has(writer.sessions, pool) && state.replicas[at(pool)].medium == kDead) return;
  }
  Chosen chosen;
  const auto target = choose_target(state, writer, chosen);
  if (!target) return;  // refused: it can only end
  if (target->accepted) {
    const Action action = action_of(Kind::Accept, number, chosen.history);
    return open_with_loss(state, number, *target, chosen, 0, action, out);
  }
  open_rest(state, number, *target, chosen, -1, action_of(Kind::Open, number, chosen.history), out);
}

/// Brings the history's replica to equal, then each other, then begins. `done`: the last that had
/// its turn; -1: none.
void Protocol::open_rest(const State& state, int number, const Target& target, const Chosen& chosen,
                         int done, Action action, Steps& out) {
  const Writer& writer = state.writers[at(number)];
  int next = chosen.history;
  if (done >= 0) {
    next = done == chosen.history ? 0 : done + 1;
    while (next < bounds_.pools && (!has(writer.sessions, next) || next == chosen.history)) ++next;
  }
  if (next >= bounds_.pools) {
    Step step{state, action};
    if (!begin(step.state, number, target, chosen, step.broken)) {
      end(step.state.writers[at(number)]);
    }
    out.push_back(step);
    return;
  }
  const auto go_on = [&](const State& after, std::uint8_t cut) {
    Action longer = action;
    longer.cut[at(next)] = cut;
    if (next == chosen.history && !has(after.writers[at(number)].sending, next)) {
      out.push_back({after, longer});
      end(out.back().state.writers[at(number)]);
    } else {
      open_rest(after, number, target, chosen, next, longer, out);
    }
  };
  if (!session(state, writer, next)) return go_on(state, 1);
  State full = state;
  const Brought brought = bring(full, target, chosen.history, next, kAllWrites);
  if (brought.complete) {
    full.writers[at(number)].sending |= bit(next);
    full.writers[at(number)].durable[at(next)] = target.tail;
  }
  go_on(full, brought.complete ? 0 : small(brought.writes + 1));
  if (state.judge.interruptions >= bounds_.interruptions) return;
  for (int writes = 0; writes <= brought.writes; ++writes) {
    State part = state;
    ++part.judge.interruptions;
    (void)bring(part, target, chosen.history, next, writes);
    go_on(part, small(writes + 1));
  }
}

/// Accepts a loss: the others are brought to equal under the mark, then the chosen one begins, and
/// with its first write the loss may be taken; then those begin. `turn`: whose it is in that order.
void Protocol::open_with_loss(const State& state, int number, const Target& target,
                              const Chosen& chosen, int turn, Action action, Steps& out) {
  const Writer& writer = state.writers[at(number)];
  const auto skipped = [&](int pool) {
    return pool < bounds_.pools && (!has(writer.sessions, pool) || pool == chosen.history);
  };
  const int first_to_follow = bounds_.pools + 1;
  while (turn < bounds_.pools && skipped(turn)) ++turn;
  if (turn < bounds_.pools && !is(Mutant::ChosenFirst)) {
    return come_along(state, number, target, chosen, turn, action, out);
  }
  if (turn < bounds_.pools) turn = bounds_.pools;
  if (turn == bounds_.pools) return decide(state, number, target, chosen, action, out);
  while (turn < first_to_follow + bounds_.pools && skipped(turn - first_to_follow)) ++turn;
  // As long as they are enough.
  const bool enough_left = enough(chosen.oldest, chosen.newest, writer.sending);
  if (turn < first_to_follow + bounds_.pools && (enough_left || is(Mutant::ChosenFirst))) {
    return follow(state, number, target, chosen, turn, action, out);
  }
  Step step{state, action};
  if (!begin(step.state, number, target, chosen, step.broken)) end(step.state.writers[at(number)]);
  out.push_back(step);
}

/// Everything but the last state.
void Protocol::come_along(const State& state, int number, const Target& target,
                          const Chosen& chosen, int turn, Action action, Steps& out) {
  Target equal = target;
  equal.undecided = !is(Mutant::OthersStayWhole);
  if (!session(state, state.writers[at(number)], turn)) {
    action.cut[at(turn)] = 1;
    return open_with_loss(state, number, target, chosen, turn + 1, action, out);
  }
  State full = state;
  const Brought brought = bring(full, equal, chosen.history, turn, kAllWrites);
  if (brought.source_failed) {
    out.push_back({full, action});
    end(out.back().state.writers[at(number)]);
    return;
  }
  if (brought.complete) full.writers[at(number)].sending |= bit(turn);
  action.cut[at(turn)] = brought.complete ? 0 : small(brought.writes + 1);
  open_with_loss(full, number, target, chosen, turn + 1, action, out);
  if (state.judge.interruptions >= bounds_.interruptions) return;
  for (int writes = 0; writes <= brought.writes; ++writes) {
    State part = state;
    ++part.judge.interruptions;
    (void)bring(part, equal, chosen.history, turn, writes);
    action.cut[at(turn)] = small(writes + 1);
    open_with_loss(part, number, target, chosen, turn + 1, action, out);
    end(part.writers[at(number)]);
    out.push_back({part, action});
  }
}

/// The chosen one begins, if enough came along.
void Protocol::decide(const State& state, int number, const Target& target, const Chosen& chosen,
                      Action action, Steps& out) {
  const Writer& writer = state.writers[at(number)];
  const int first_to_follow = bounds_.pools + 1;
  const Mask parts = writer.sending | bit(chosen.history);
  const bool may = enough(chosen.oldest, chosen.newest, parts) || is(Mutant::ChosenFirst);
  if (!session(state, writer, chosen.history) || !may) {
    action.cut[at(chosen.history)] = 1;
    out.push_back({state, action});
    end(out.back().state.writers[at(number)]);
    return;
  }
  Target last = target;
  last.chosen = true;
  last.loss = is(Mutant::LossHasNoNumber) ? target.loss : writer.epoch;
  const auto note_pending = [&](Judge& judge) {
    const bool other = judge.pending != 0 && judge.pending_last != target.last;
    judge.pending = 1;
    judge.pending_head = target.head;
    judge.pending_last = other ? kUnreadable : target.last;
  };
  State full = state;
  const Brought brought = bring(full, last, -1, chosen.history, kAllWrites);
  note_pending(full.judge);
  if (brought.complete) full.writers[at(number)].sending |= bit(chosen.history);
  action.cut[at(chosen.history)] = brought.complete ? 0 : small(brought.writes + 1);
  open_with_loss(full, number, target, chosen, first_to_follow, action, out);
  if (state.judge.interruptions >= bounds_.interruptions) return;
  for (int writes = 0; writes <= brought.writes; ++writes) {
    State part = state;
    ++part.judge.interruptions;
    (void)bring(part, last, -1, chosen.history, writes);
    note_pending(part.judge);
    action.cut[at(chosen.history)] = small(writes + 1);
    open_with_loss(part, number, target, chosen, first_to_follow, action, out);
    const Replica& replica = part.replicas[at(chosen.history)];
    if (replica.epoch != last.epoch) {  // nothing was given up
      part.judge = state.judge;
      ++part.judge.interruptions;
    }
    end(part.writers[at(number)]);
    out.push_back({part, action});
  }
}

/// One that came along begins: its words, and its state.
void Protocol::follow(const State& state, int number, const Target& target, const Chosen& chosen,
                      int turn, Action action, Steps& out) {
  const int pool = turn - bounds_.pools - 1;
  const Writer& writer = state.writers[at(number)];
  if (!has(writer.sending, pool) && !is(Mutant::ChosenFirst)) {
    return open_with_loss(state, number, target, chosen, turn + 1, action, out);
  }
  const auto lost = [&](State& part, int writes) {
    part.writers[at(number)].sending &= static_cast<Mask>(~bit(pool));
    action.b |= bit(pool);
    action.a = small(writes);
  };
  Target last = target;
  last.loss = is(Mutant::LossHasNoNumber) ? target.loss : writer.epoch;
  State full = state;
  if (is(Mutant::ChosenFirst)) {
    const Brought brought = bring(full, last, chosen.history, pool, kAllWrites);
    if (brought.complete) full.writers[at(number)].sending |= bit(pool);
    return open_with_loss(full, number, target, chosen, turn + 1, action, out);
  }
  if (!session(state, writer, pool)) {
    lost(full, 0);
    return open_with_loss(full, number, target, chosen, turn + 1, action, out);
  }
  Replica& replica = full.replicas[at(pool)];
  write_words(replica, last);
  begin_on(replica, last, read(replica));
  replica.medium = kSound;
  replica.acked = target.tail;
  full.writers[at(number)].durable[at(pool)] = target.tail;
  open_with_loss(full, number, target, chosen, turn + 1, action, out);
  if (state.judge.interruptions >= bounds_.interruptions) return;
  for (int writes = 0; writes <= 2; ++writes) {
    State part = writes == 2 ? full : state;
    ++part.judge.interruptions;
    if (writes == 1) write_words(part.replicas[at(pool)], last);
    lost(part, writes);
    open_with_loss(part, number, target, chosen, turn + 1, action, out);
    end(part.writers[at(number)]);
    out.push_back({part, action});
  }
}

/// The first state on all, marked; then without the mark.
void Protocol::create(const State& state, int number, Steps& out) {
  const Writer& writer = state.writers[at(number)];
  const Mask all = members(1);
  for (int pool = 0; pool < bounds_.pools; ++pool) {
    // It is looked again after fencing: somebody else may have created it.
    const Replica& replica = state.replicas[at(pool)];
    const bool fresh = replica.log == 0 || (replica.marks & kCreating) != 0;
    if (has(writer.sessions, pool) && !fresh && !is(Mutant::CreateUnseen)) return;
    const bool all_there = !has(all, pool) || has(writer.sessions, pool);
    if (!all_there && !is(Mutant::CreateOnSome)) return;
  }
  for (int made = 1; made <= std::popcount(all); ++made) create_on(state, number, made, all, out);
  for (int mask = 1; mask < 1 << bounds_.pools; ++mask) {
    const auto lost = static_cast<Mask>(mask);
    const int count = state.judge.interruptions + std::popcount(lost);
    if ((lost & ~all) == 0 && count <= bounds_.interruptions) {
      create_on(state, number, 2 * std::popcount(all), lost, out);
    }
  }
  create_on(state, number, 2 * std::popcount(all), 0, out);
}

/// The first `made` writes of creation. `lost`: connections that end before the mark goes.
void Protocol::create_on(const State& state, int number, int made, Mask lost, Steps& out) {
  Step step{state, action_of(Kind::Create, number, 0, made, lost)};
  Writer& writer = step.state.writers[at(number)];
  int left = made;
  Mask begun = 0;
  bool ends = left < 2 * std::popcount(members(1));
  for (int write = 0; write < 2 * bounds_.pools && left > 0; ++write) {
    const int pool = write % bounds_.pools;
    const bool last = write >= bounds_.pools;
    if (!has(members(1), pool)) continue;
    --left;
    const bool there = session(state, writer, pool) && !(last && has(lost, pool));
    ends = ends || (!there && !last);
    if (!there && !last) break;
    if (!there) continue;
    Replica& replica = step.state.replicas[at(pool)];
    const Replica before = replica;
    replica = Replica{};
    replica.log = writer.self;
    replica.configuration = 1;
    replica.fence = before.fence;
    replica.fence_writer = before.fence_writer;
    replica.marks = last || is(Mutant::CreationHasNoMark) ? 0 : kCreating;
    replica.epoch = last ? writer.epoch : 0;
    if (last) begun |= bit(pool);
  }
  if (made == 2 * std::popcount(members(1))) {
    step.state.judge.interruptions = small(step.state.judge.interruptions + std::popcount(lost));
  }
  Target target;
  target.log = writer.self;
  target.configuration = 1;
  target.epoch = writer.epoch;
  writer.sending = begun;
  if (ends || !begin(step.state, number, target, {0, 1, 1, 0}, step.broken)) end(writer);
  out.push_back(step);
}

void Protocol::run(const State& state, int number, Steps& out) {
  const Writer& writer = state.writers[at(number)];
  if (writer.unsettled != 0) settle(state, number, out);
  const bool busy = writer.unsettled != 0 || writer.next != 0;
  if (!busy && state.judge.appends < bounds_.appends) append(state, number, 0, out);
  if (!busy && state.judge.trims < bounds_.trims) trim(state, number, out);
  if (!busy && state.judge.changes < bounds_.changes) change(state, number, out);
  for (int pool = 0; pool < bounds_.pools; ++pool) {
    if (has(writer.sending, pool)) {
      acknowledge(state, number, pool, out);
      lose(state, number, pool, out);
    } else if (bounds_.catch_up && !busy) {
      catch_up(state, number, pool, out);
    }
  }
}

void Protocol::append(const State& state, int number, std::uint8_t configuration, Steps& out) {
  const Writer& writer = state.writers[at(number)];
  const int kept = configuration == 0 && bounds_.changes > 0 ? 1 : 0;
  if (writer.tail + 1 + kept > writer.head + bounds_.ring || writer.tail + 1 >= kLsns) return;
  if (!enough(writer.configuration, 0, writer.sending)) return;
  for (int pool = 0; pool < bounds_.pools; ++pool) {
    if (has(writer.sending, pool) && writer.tail - writer.durable[at(pool)] >= bounds_.in_flight) {
      return;
    }
  }
  Step step{state, action_of(configuration == 0 ? Kind::Append : Kind::Change, number, 0,
                             writer.tail, configuration)};
  Writer& after = step.state.writers[at(number)];
  Record record;
  record.previous = writer.last;
  record.lsn = writer.tail;
  record.epoch = writer.epoch;
  record.writer = writer.self;
  record.committed = writer.committed;
  record.configuration = configuration;
  record.loss = configuration == 0 ? 0 : writer.loss;
  record.index = records_.next_index(writer.last);
  after.last = records_.intern(record);
  ++after.tail;
  if (configuration == 0) {
    ++step.state.judge.appends;
  } else {
    ++step.state.judge.changes;
    after.next = configuration;
    step.state.judge.configurations |= bit(configuration);
  }
  out.push_back(step);
}

/// The next record becomes durable at a replica, and the writer learns it.
void Protocol::acknowledge(const State& state, int number, int pool, Steps& out) {
  const Writer& writer = state.writers[at(number)];
  const int lsn = writer.durable[at(pool)];
  if (lsn >= writer.tail || !session(state, writer, pool)) return;
  Step step{state, action_of(Kind::Acknowledge, number, pool, lsn)};
  Replica& replica = step.state.replicas[at(pool)];
  replica.ring[at(lsn % bounds_.ring)] = records_.at(writer.last, lsn);
  replica.loose &= static_cast<Mask>(~bit(lsn % bounds_.ring));
  replica.acked = std::max(replica.acked, small(lsn + 1));
  if (bounds_.compound) replica.tail_word = small(lsn + 1);
  Writer& after = step.state.writers[at(number)];
  after.durable[at(pool)] = small(lsn + 1);
  step.broken = note_committed(step.state, after, committed_by(after));
  out.push_back(step);
}

/// A connection ends; some of what was in flight has arrived, in whatever order.
void Protocol::lose(const State& state, int number, int pool, Steps& out) {
  const Writer& writer = state.writers[at(number)];
  if (!session(state, writer, pool) || state.judge.interruptions >= bounds_.interruptions) return;
  const int from = writer.durable[at(pool)];
  const int count = writer.tail - from;
  for (int arrived = 0; arrived < 1 << count; ++arrived) {
    Step step{state, action_of(Kind::Lose, number, pool, arrived, from)};
    ++step.state.judge.interruptions;
    Replica& replica = step.state.replicas[at(pool)];
    bool gap = false;
    for (int each = 0; each < count; ++each) {
      gap = gap || !has(static_cast<Mask>(arrived), each);
      if (!has(static_cast<Mask>(arrived), each)) continue;
      const int place = (from + each) % bounds_.ring;
      replica.ring[at(place)] = records_.at(writer.last, from + each);
      replica.loose |= bounds_.power_cuts ? bit(place) : Mask{0};
      if (bounds_.compound && !gap) replica.tail_word = small(from + each + 1);
    }
    step.state.writers[at(number)].sending &= static_cast<Mask>(~bit(pool));
    out.push_back(step);
  }
}

/// The head to every replica that counts, which must have everything.
Law Protocol::trim_to(State& state, Writer& writer, int head, Id head_id) {
  Law broken = Law::None;
  note_trim(state.judge, writer, head);
  for (int pool = 0; pool < bounds_.pools; ++pool) {
    if (!has(writer.sending, pool)) continue;
    if (!session(state, writer, pool)) {
      writer.sending &= static_cast<Mask>(~bit(pool));
      continue;
    }
    state.replicas[at(pool)].head = small(head);
    state.replicas[at(pool)].head_id = head_id;
  }
  const int quorum = static_cast<int>(configuration(writer.configuration).quorum);
  bool acknowledged = enough(writer.configuration, 0, writer.sending);
  if (is(Mutant::TrimByOne)) acknowledged = writer.sending != 0;
  if (is(Mutant::NewcomerCounts)) acknowledged = std::popcount(writer.sending) >= quorum;
  if (!acknowledged) return broken;
  if (state.judge.begun > writer.epoch) broken = Law::NoSecondWriterCommits;
  writer.head = small(head);
  writer.head_id = head_id;
  state.judge.trimmed = std::max(state.judge.trimmed, small(head));
  return broken;
}

void Protocol::trim(const State& state, int number, Steps& out) {
  const Writer& writer = state.writers[at(number)];
  for (int pool = 0; pool < bounds_.pools; ++pool) {
    const bool counts = has(writer.sending, pool) && session(state, writer, pool);
    if (counts && writer.durable[at(pool)] != writer.tail) return;  // it waits
  }
  for (int head = writer.head + 1; head <= writer.committed; ++head) {
    const Id id = is(Mutant::EmptyForgets) && head == writer.tail
                      ? kNothing
                      : records_.before(writer.last, head);
    Step step{state, action_of(Kind::Trim, number, 0, head)};
    ++step.state.judge.trims;
    Writer& after = step.state.writers[at(number)];
    step.broken = trim_to(step.state, after, head, id);
    if (is(Mutant::EmptyForgets) && head == writer.tail) after.last = kNothing;
    out.push_back(step);
    // The writer ends when some of them have it.
    for (int mask = 1; mask < 1 << bounds_.pools; ++mask) {
      const auto some = static_cast<Mask>(mask);
      if ((some & ~writer.sending) != 0 || some == writer.sending) continue;
      Step part{state, action_of(Kind::Trim, number, 0, head, some)};
      ++part.state.judge.trims;
      note_trim(part.state.judge, writer, head);
      for (int pool = 0; pool < bounds_.pools; ++pool) {
        if (!has(some, pool) || !session(state, writer, pool)) continue;
        part.state.replicas[at(pool)].head = small(head);
        part.state.replicas[at(pool)].head_id = id;
      }
      end(part.state.writers[at(number)]);
      out.push_back(part);
    }
  }
}

/// A replica comes back, or a newcomer is brought to equal.
void Protocol::catch_up(const State& state, int number, int pool, Steps& out) {
  const Writer& writer = state.writers[at(number)];
  const Replica& replica = state.replicas[at(pool)];
  const bool member = has(members(writer.configuration), pool);
  const bool wanted = bounds_.newcomers || state.judge.changes < bounds_.changes;
  if (replica.medium == kDead || (!member && !wanted)) return;
  const bool newer = replica.fence > writer.epoch ||
                     (replica.fence == writer.epoch && replica.fence_writer != writer.self) ||
                     (replica.log == writer.log && replica.epoch > writer.epoch);
  if (is(Mutant::FencedTakesTheTail) && newer && member) {
    Step step{state, action_of(Kind::CatchUp, number, pool, 1)};
    Writer& after = step.state.writers[at(number)];
    after.durable[at(pool)] = small(read(replica).tail);
    step.broken = note_committed(step.state, after, std::min<int>(after.tail, committed_by(after)));
    out.push_back(step);
  }
  if (newer) return;
  if (is(Mutant::ResumeWithoutSurvey)) {
    Step step{state, action_of(Kind::CatchUp, number, pool)};
    step.state.replicas[at(pool)].fence = writer.epoch;
    step.state.replicas[at(pool)].fence_writer = writer.self;
    step.state.writers[at(number)].sessions |= bit(pool);
    step.state.writers[at(number)].sending |= bit(pool);
    out.push_back(step);
    return;
  }
  bool source = false;
  for (int other = 0; other < bounds_.pools; ++other) {
    if (!has(writer.sending, other) || !has(members(writer.configuration), other)) continue;
    source = true;
    if (state.replicas[at(other)].medium == kDead) continue;
    if (writer.durable[at(other)] == writer.tail) catch_up_from(state, number, pool, other, out);
  }
  if (!source) go_on_from_staging(state, number, pool, out);
}

void Protocol::catch_up_from(const State& state, int number, int pool, int source, Steps& out) {
  State begun = state;
  Writer& writer = begun.writers[at(number)];
  Replica& replica = begun.replicas[at(pool)];
  Law broken = Law::None;
  if (replica.log == writer.log && replica.epoch == writer.epoch && replica.head > writer.head) {
    // A trim of its own that was never acknowledged reached it.
    if (replica.head > writer.committed ||
        records_.before(writer.last, replica.head) != replica.head_id) {
      return;
    }
    for (int other = 0; other < bounds_.pools; ++other) {
      if (has(writer.sending, other) && writer.durable[at(other)] != writer.tail) return;
    }
    const int trimmed = begun.judge.trimmed;
    broken = trim_to(begun, writer, replica.head, replica.head_id);
    if (!enough(writer.configuration, 0, writer.sending)) {
      // No quorum is needed, from which this very replica may be missing; nor was it acknowledged.
      writer.head = replica.head;
      writer.head_id = replica.head_id;
      begun.judge.trimmed = small(trimmed);
    }
  }
  replica.fence = writer.epoch;
  replica.fence_writer = writer.self;
  replica.loose = 0;
  writer.sessions |= bit(pool);
  Target target = target_of(writer);
  if (is(Mutant::OldHeadComesBack)) {  // the source's own head is given
    target.head = begun.replicas[at(source)].head;
    target.head_id = begun.replicas[at(source)].head_id;
  }
  Step full{begun, action_of(Kind::CatchUp, number, pool, source), broken};
  const Brought brought = bring(full.state, target, source, pool, kAllWrites);
  Writer& after = full.state.writers[at(number)];
  if (brought.complete) {
    after.sending |= bit(pool);
    after.durable[at(pool)] = writer.tail;
    full.broken = full.broken != Law::None ? full.broken
                                           : note_committed(full.state, after, committed_by(after));
  } else {
    after.sessions &= static_cast<Mask>(~bit(pool));
  }
  if (brought.source_failed) after.sending &= static_cast<Mask>(~bit(source));
  out.push_back(full);
  if (begun.judge.interruptions >= bounds_.interruptions) return;
  for (int writes = 1; writes <= brought.writes; ++writes) {
    Step part{begun, action_of(Kind::CatchUp, number, pool, source, writes)};
    ++part.state.judge.interruptions;
    (void)bring(part.state, target, source, pool, writes);
    part.state.writers[at(number)].sessions &= static_cast<Mask>(~bit(pool));
    out.push_back(part);
  }
}

/// With no other replica, all that is missing must still be staged.
void Protocol::go_on_from_staging(const State& state, int number, int pool, Steps& out) {
  const Writer& writer = state.writers[at(number)];
  const Replica& replica = state.replicas[at(pool)];
  const Found found = read(replica);
  const bool own = replica.log == writer.log && replica.marks == 0 &&
                   replica.epoch == writer.epoch && !found.damaged() &&
                   replica.head <= writer.head && has(members(writer.configuration), pool);
  if (!own || found.tail < writer.durable[at(pool)] || found.tail < writer.head) return;
  const bool staged = found.tail == writer.tail || found.tail >= writer.committed;
  if (!staged || records_.before(writer.last, found.tail) != found.last) return;
  Step step{state, action_of(Kind::CatchUp, number, pool, kReplicas)};
  Writer& after = step.state.writers[at(number)];
  Replica& back = step.state.replicas[at(pool)];
  back.fence = writer.epoch;
  back.fence_writer = writer.self;
  back.loose = 0;
  back.head = writer.head;
  back.head_id = writer.head_id;
  back.configuration = writer.configuration;
  back.loss = writer.loss;
  back.acked = std::max(back.acked, small(found.tail));
  after.sessions |= bit(pool);
  after.sending |= bit(pool);
  after.durable[at(pool)] = small(found.tail);
  step.broken = note_committed(step.state, after, committed_by(after));
  out.push_back(step);
}

/// Another configuration, all of whose members are sent to.
void Protocol::change(const State& state, int number, Steps& out) {
  const Writer& writer = state.writers[at(number)];
  for (std::uint8_t next = 1; next <= bounds_.configurations.size(); ++next) {
    if (configuration(next).generation != configuration(writer.configuration).generation + 1) {
      continue;
    }
    const Mask fresh = members(next) & static_cast<Mask>(~members(writer.configuration));
    if ((fresh & ~writer.sending) == 0) append(state, number, next, out);
  }
}

/// The states follow the configuration that was committed: first those of its members. When enough
/// of them say it, one that was removed is told.
void Protocol::settle(const State& state, int number, Steps& out) {
  const Writer& writer = state.writers[at(number)];
  for (int mask = 0; mask < 1 << bounds_.pools; ++mask) {
    const auto some = static_cast<Mask>(mask);
    if ((some & ~writer.sending) != 0) continue;
    Step step{state, action_of(Kind::Settle, number, 0, some)};
    Writer& after = step.state.writers[at(number)];
    Mask told = 0;
    for (int pool = 0; pool < bounds_.pools; ++pool) {
      if (has(some, pool) && session(state, writer, pool)) told |= bit(pool);
    }
    const Mask knowing = told & members(writer.configuration);
    const bool known = enough(writer.configuration, 0, knowing) || is(Mutant::RemovedIsToldFirst);
    for (int pool = 0; pool < bounds_.pools; ++pool) {
      const bool member = has(members(writer.configuration), pool);
      if (has(told, pool) && !member) after.sending &= static_cast<Mask>(~bit(pool));
      if (!has(told, pool) || (!member && !known)) continue;
      Replica& replica = step.state.replicas[at(pool)];
      replica.configuration = writer.configuration;
      replica.loss = writer.loss;
      if (!member) replica.marks |= kRemoved;
    }
    after.unsettled = 0;
    if (some != writer.sending) end(after);
    out.push_back(step);
  }
}

bool Protocol::may_be_lost(const State& state, int pool) const {
  if (bounds_.beyond) return state.replicas[at(pool)].medium == kSound;
  bool member = false;
  for (std::uint8_t each = 1; each <= bounds_.configurations.size(); ++each) {
    const bool now = each == state.judge.configuration;
    const bool next =
        has(state.judge.configurations, each) &&
        configuration(each).generation > configuration(state.judge.configuration).generation;
    if (!now && !next) continue;
    int lost = has(members(each), pool) ? 1 : 0;
    member = member || lost != 0;
    for (int other = 0; other < bounds_.pools; ++other) {
      lost +=
          other != pool && has(members(each), other) && state.replicas[at(other)].medium != kSound
              ? 1
              : 0;
    }
    const auto n = configuration(each).members.size();
    if (lost > static_cast<int>(n - configuration(each).quorum)) return false;
  }
  return member && state.replicas[at(pool)].medium == kSound;
}

void Protocol::lose_medium(const State& state, int pool, Medium medium, int place, Steps& out) {
  const Kind kind = medium == kDamaged ? Kind::Damage : medium == kWiped ? Kind::Wipe : Kind::Kill;
  Step step{state, action_of(kind, 0, pool, place)};
  Replica& replica = step.state.replicas[at(pool)];
  ++step.state.judge.losses;
  if (medium == kDamaged) {
    replica.ring[at(place)] = kUnreadable;
    replica.medium = kDamaged;
    if (!bounds_.unvouched && !read(replica).damaged() && !is(Mutant::DamageIsIgnored) &&
        !is(Mutant::HolesAreNotLookedBehind)) {
      return;
    }
  } else {
    const Replica before = replica;
    replica = Replica{};
    replica.medium = medium;
    replica.fence = before.fence;
    replica.fence_writer = before.fence_writer;
    for (Writer& writer : step.state.writers) writer.sending &= static_cast<Mask>(~bit(pool));
  }
  out.push_back(step);
}

void Protocol::faults(const State& state, Steps& out) {
  for (int pool = 0; pool < bounds_.pools; ++pool) {
    const Replica& replica = state.replicas[at(pool)];
    if (bounds_.power_cuts && replica.loose != 0 &&
        state.judge.interruptions < bounds_.interruptions) {
      Step step{state, action_of(Kind::PowerCut, 0, pool)};
      ++step.state.judge.interruptions;
      Replica& after = step.state.replicas[at(pool)];
      for (int place = 0; place < bounds_.ring; ++place) {
        if (has(replica.loose, place)) after.ring[at(place)] = kNothing;
      }
      after.loose = 0;
      for (Writer& writer : step.state.writers) writer.sending &= static_cast<Mask>(~bit(pool));
      out.push_back(step);
    }
    if (bounds_.words) {
      for (int number = 0; number < bounds_.writers; ++number) {
        const Writer& writer = state.writers[at(number)];
        const int word = is(Mutant::WordIsCommitted)
                             ? writer.committed
                             : std::min(writer.committed, writer.durable[at(pool)]);
        const bool may = writer.phase == kRunning && has(writer.sending, pool) &&
                         session(state, writer, pool) && word > replica.committed_word;
        if (!may) continue;
        out.push_back({state, action_of(Kind::NoteCommitted, number, pool, word)});
        out.back().state.replicas[at(pool)].committed_word = small(word);
      }
    }
    if (state.judge.losses >= bounds_.losses || !may_be_lost(state, pool)) continue;
    if (bounds_.wipe) lose_medium(state, pool, kWiped, 0, out);
    if (bounds_.die) lose_medium(state, pool, kDead, 0, out);
    const Found found = bounds_.damage ? read(replica) : Found{};
    const int end = std::min<int>(found.tail, replica.acked);
    for (int lsn = replica.head; bounds_.damage && replica.marks == 0 && lsn < end; ++lsn) {
      lose_medium(state, pool, kDamaged, lsn % bounds_.ring, out);
    }
  }
}

}  // namespace perdure::model
