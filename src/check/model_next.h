// The next-state function of the model; included by model.h only.
#pragma once

#include "check/model.h"

namespace perdure::check {

template <std::size_t words>
bool contains(const State<words>& state, const Mask& mask) {
  for (std::size_t word = 0; word < words; ++word) {
    if ((state[word] & mask[word]) != mask[word]) return false;
  }
  return true;
}

/// Whether some cell of `mask` (low bits) is visible and has not drained.
template <std::size_t words>
bool any_undrained(const State<words>& state, const Mask& mask) {
  for (std::size_t word = 0; word < words; ++word) {
    if ((state[word] & ~(state[word] >> 1) & mask[word]) != 0) return true;
  }
  return false;
}

template <std::size_t words>
bool completed(const Program& program, const State<words>& state, std::size_t step) {
  const Operation& operation = program.operations[program.operation_of_step[step]];
  if (!operation.posted) return executed_of(state[0]) > operation.rank;
  return program.early_completion || delivered_of(state[0]) >= operation.slot_end;
}

/// Lets the requester run as far as it can.
template <std::size_t words>
void settle(const Program& program, State<words>& state) {
  const auto& steps = program.script.steps;
  for (std::size_t pc = pc_of(state[0]); pc < steps.size(); ++pc) {
    if (steps[pc].kind == RequesterStep::Kind::WaitCompletion) {
      if (!completed(program, state, steps[pc].of)) return;
    } else if (steps[pc].kind == RequesterStep::Kind::WaitAck) {
      if (program.acks_sent[responder_of(state[0])] < program.acks_awaited[pc]) return;
    }
    state[0] += kOnePc;
  }
}

template <std::size_t words>
State<words> initial_state(const Program& program) {
  State<words> state{};
  settle(program, state);
  return state;
}

template <std::size_t words, typename Visit>
void next_deliver(const Program& program, const State<words>& state, Visit& visit) {
  const std::size_t slot = delivered_of(state[0]);
  if (slot >= program.posts_before[pc_of(state[0])]) return;
  const Operation& operation = program.operations[program.operation_of_slot[slot]];
  const bool held =
      operation.fenced && slot == operation.slot_first && executed_of(state[0]) < operation.rank;
  if (held) return;
  State<words> next = state;
  next[0] += kOneDelivered;
  visit(next, Action{Action::Kind::Deliver, slot});
}

template <std::size_t words, typename Visit>
void next_show(const Program& program, const State<words>& state, Visit& visit) {
  for (const std::size_t index : program.posted) {
    const Operation& operation = program.operations[index];
    if (contains(state, operation.cell_mask)) continue;
    const std::size_t delivered = delivered_of(state[0]);
    for (std::size_t unit = 0; unit < operation.cells.size(); ++unit) {
      if (operation.slot_first + unit >= delivered) break;
      const std::size_t cell = operation.cells[unit];
      if ((state[word_of(cell)] & bit_of(cell)) != 0) continue;
      State<words> next = state;
      next[word_of(cell)] |= bit_of(cell);
      visit(next, Action{Action::Kind::Show, cell});
    }
    return;  // what was posted later has to wait
  }
}

template <std::size_t words, typename Visit>
void next_execute(const Program& program, const State<words>& state, Visit& visit) {
  const std::size_t rank = executed_of(state[0]);
  if (rank >= program.non_posted.size()) return;
  const std::size_t index = program.non_posted[rank];
  const Operation& operation = program.operations[index];
  if (delivered_of(state[0]) < operation.slot_end) return;
  if (!contains(state, operation.visible_before)) return;
  if (!contains(state, operation.drained_before)) return;
  State<words> next = state;
  next[0] += kOneExecuted;
  for (const std::size_t cell : operation.cells) next[word_of(cell)] |= bit_of(cell);
  visit(next, Action{Action::Kind::Execute, index});
}

template <std::size_t words, typename Visit>
void next_drain(const Program& program, const State<words>& state, Visit& visit) {
  for (std::size_t word = 0; word < words; ++word) {
    std::uint64_t can = state[word] & ~(state[word] >> 1) & program.drains[word];
    while (can != 0) {
      const std::uint64_t bit = can & (~can + 1);
      can ^= bit;
      State<words> next = state;
      next[word] |= bit << 1;
      const auto shift = static_cast<std::size_t>(__builtin_ctzll(bit));
      visit(next, Action{Action::Kind::Drain, word * 32 + shift / 2 - 16});
    }
  }
}

template <std::size_t words, typename Visit>
void next_respond(const Program& program, const State<words>& state, Visit& visit) {
  const std::size_t at = responder_of(state[0]);
  if (at >= program.reactions.size()) return;
  const Reaction& reaction = program.reactions[at];
  if (!contains(state, program.messages[reaction.message].complete_when)) return;
  if (reaction.kind == Reaction::Kind::Flush && any_undrained(state, reaction.waits_for)) return;
  State<words> next = state;
  next[0] += kOneResponder;
  if (reaction.kind == Reaction::Kind::Store) next[word_of(reaction.cell)] |= bit_of(reaction.cell);
  visit(next, Action{Action::Kind::Respond, at});
}

template <std::size_t words, typename Visit>
void for_each_next(const Program& program, const State<words>& state, Visit&& visit) {
  auto settled = [&](State<words>& next, const Action& action) {
    settle(program, next);
    visit(next, action);
  };
  next_deliver(program, state, settled);
  next_show(program, state, settled);
  next_execute(program, state, settled);
  next_drain(program, state, settled);
  next_respond(program, state, settled);
}

}  // namespace perdure::check
