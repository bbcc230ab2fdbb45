// Crash, restart and replay as transitions of the model; included by model.h only.
//
// Power may fail in every state. What that leaves is undecided where it is open (01: perhaps inside
// the domain), and recovery decides it by looking: it takes the kept messages in the order of
// posting, and for each
//   - judges it: whole by its checksum, or torn and ignored;
//   - stores its first item at its place, unit by unit, and flushes it; then the next item;
//   - gives the buffer back, so that it is not replayed again (one durable word: it happens or
//   not).
// Between any two of these power may fail again, and recovery starts over. A process that dies
// while its machine stays up (a restart) is the same with one difference under dmp and page: the
// new process sees whole messages that are visible and not yet durable. On the other domains what
// is visible is durable, and the RNIC ends what it has acknowledged, so a restart is a power
// failure there. After either, connections are gone, and what was on the wire with them: the
// requester's answer is "outcome unknown", and writing again is a new update.
//
// Only methods with a kept message have these states. Without one, recovery does nothing, and what
// a power failure leaves is what properties.h asks about directly.
#pragma once

#include "check/model.h"
#include "check/model_state.h"

namespace perdure::check {

/// Whether recovery would replay the message if it found it whole. A buffer that recovery has given
/// back, or found torn, holds nothing.
template <std::size_t words>
bool still_buffered(const Program& program, const State<words>& state, const Message& message) {
  if (!message.replayed) return false;
  if (recovering(state[0]) || !message.released_at) return true;
  const std::size_t at = program.operations[message.operation].connection;
  return responder_of(state[0], at) < *message.released_at;
}

/// Whether the responder is through with a message of mixed updates, and has said so durably; in
/// recovery, which takes them in turn, that is no question.
template <std::size_t words>
bool released(const Program& program, const State<words>& state, const Message& message) {
  if (recovering(state[0])) return true;
  const std::size_t at = program.operations[message.operation].connection;
  return message.released_at && responder_of(state[0], at) >= *message.released_at;
}

/// The cells in the RNIC or beyond.
template <std::size_t words>
Mask arrived_cells(const Program& program, const State<words>& state) {
  Mask arrived{};
  const bool by_wire = program.keeps == Keeps::Delivered && !recovering(state[0]);
  for (std::size_t word = 0; word < words; ++word) {
    arrived[word] = state[word] & program.all_cells[word];
    for (std::size_t at = 0; by_wire && at < program.connections.size(); ++at) {
      arrived[word] |= program.connections[at].delivered[delivered_of(state[0], at)][word];
    }
  }
  return arrived;
}

template <std::size_t words>
void erase(State<words>& state, const Mask& cells) {
  for (std::size_t word = 0; word < words; ++word) state[word] &= ~(cells[word] * 3);
}

/// What a crash makes of the places that several updates write: their cells last, those of their
/// items, which only say what was visible once, do not.
template <std::size_t words>
void crash_places(const Program& program, std::size_t phase, State<words>& state) {
  for (const SharedPlace& place : program.places) {
    erase(state, place.items);
    if (program.keeps == Keeps::Domain && phase == kPowerLost) forget_visible(state, place);
  }
}

/// The state from which recovery starts; nothing if there is nothing to replay. Of mixed updates
/// it goes on no further than to the first message that it can not replay and that the responder
/// is not through with (replay_messages in src/persist).
template <std::size_t words>
std::optional<State<words>> crashed(const Program& program, const State<words>& state,
                                    std::size_t phase) {
  const Mask arrived = arrived_cells(program, state);
  State<words> next{};
  for (std::size_t word = 0; word < words; ++word) {
    const std::uint64_t both = program.lasting[word] * 3;
    next[word] = (state[word] & both) | (arrived[word] & program.lasting[word]);
  }
  bool replayable = false;
  bool hole = false;
  for (const Message& message : program.messages) {
    const bool there =
        still_buffered(program, state, message) && covers<words>(arrived, message.cells) && !hole;
    if (!there && message.replayed) erase(next, message.cells);
    replayable = replayable || there;
    hole = hole || (!there && program.script.mixed && !released(program, state, message));
  }
  if (!replayable) return std::nullopt;
  crash_places(program, phase, next);
  next[0] |= program.promised[progress(program, state)] * kOnePc + phase * one_delivered(0);
  return next;
}

template <std::size_t words, typename Visit>
void next_crash(const Program& program, const State<words>& state, Visit& visit) {
  if (!places_settled(program, state)) return;
  const auto power_lost = crashed(program, state, kPowerLost);
  if (!power_lost) return;
  if (*power_lost != state) visit(*power_lost, Action{Action::Kind::PowerFails, 0, 0});
  // After a power failure nothing is visible and not durable, so a restart then adds nothing.
  if (program.keeps != Keeps::Domain || delivered_of(state[0], 0) == kPowerLost) return;
  const State<words> restarted = *crashed(program, state, kRestarted);
  if (restarted != state) visit(restarted, Action{Action::Kind::Restarts, 0, 0});
}

/// Whether the message is whole, torn, or (after a power failure) perhaps either.
template <std::size_t words, typename Visit>
void next_judge(const Program& program, const State<words>& state, const RecoveryStep& step,
                Visit& visit) {
  const std::size_t position = recovery_of(state[0]);
  const Message& message = program.messages[step.message];
  State<words> next = state;
  if (contains(state, message.cells)) {
    next[0] += kOneRecovery;
    const bool decides = program.keeps == Keeps::Domain && delivered_of(state[0], 0) == kPowerLost;
    if (decides) drain(program, next, message.cells);
    visit(next, Action{Action::Kind::Recover, 0, position});
    Mask drained = message.cells;
    for (std::uint64_t& word : drained) word <<= 1;
    if (!decides || contains(state, drained)) return;
    next = state;
  }
  erase(next, message.cells);
  const bool found = contains(state, message.cells);
  for (std::size_t later = step.message + 1; found && program.script.mixed; ++later) {
    if (later == program.messages.size()) break;
    if (program.messages[later].replayed) erase(next, program.messages[later].cells);
  }
  next[0] += (step.end - position) * kOneRecovery;
  visit(next, Action{Action::Kind::Ignore, 0, position});
}

template <std::size_t words, typename Visit>
void next_recover(const Program& program, const State<words>& state, Visit& visit) {
  const std::size_t position = recovery_of(state[0]);
  if (position >= program.recovery.size()) return;
  const RecoveryStep& step = program.recovery[position];
  if (step.kind == RecoveryStep::Kind::Judge) return next_judge(program, state, step, visit);
  State<words> next = state;
  next[0] += kOneRecovery;
  if (step.kind == RecoveryStep::Kind::Store) put(program, next, step.cell);
  if (step.kind == RecoveryStep::Kind::Flush && program.keeps == Keeps::Domain) {
    drain(program, next, program.item_cells[step.item]);
  }
  if (step.kind == RecoveryStep::Kind::Release) erase(next, program.messages[step.message].cells);
  visit(next, Action{Action::Kind::Recover, 0, position});
}

}  // namespace perdure::check
