// The next-state function of the model; included by model.h only.
#pragma once

#include "check/model.h"
#include "check/model_recovery.h"
#include "check/model_state.h"

namespace perdure::check {

/// Lets the requester run as far as it can.
template <std::size_t words>
void settle(const Program& program, State<words>& state) {
  for (std::size_t pc = pc_of(state[0]); pc < program.waits.size(); ++pc) {
    if (!may_pass(program, state, program.waits[pc])) return;
    state[0] += kOnePc;
  }
}

template <std::size_t words>
State<words> initial_state(const Program& program) {
  State<words> state{};
  for (const SharedPlace& place : program.places) {
    const std::uint64_t both = program.keeps == Keeps::Domain ? 3 : 1;
    state[word_of(place.first_cell)] |= bit_of(place.first_cell) * both;
  }
  settle(program, state);
  return state;
}

template <std::size_t words, typename Visit>
void next_deliver(const Program& program, const State<words>& state, std::size_t at, Visit& visit) {
  if (program.loses) return;
  const Connection& connection = program.connections[at];
  const std::size_t slot = delivered_of(state[0], at);
  if (slot >= connection.posts_before[pc_of(state[0])]) return;
  const Operation& operation = program.operations[connection.operation_of_slot[slot]];
  const bool held = operation.fenced && slot == operation.slot_first &&
                    executed_of(state[0], at) < operation.rank;
  if (held) return;
  State<words> next = state;
  next[0] += one_delivered(at);
  visit(next, Action{Action::Kind::Deliver, at, slot});
}

/// What has drained before a PWRITE is visible: those before it, if they keep their order.
template <std::size_t words>
void persist_before(const Program& program, const Operation& operation, State<words>& state) {
  const auto& persists = program.connections[operation.connection].persists;
  for (std::size_t index = 1; index < persists.size(); ++index) {
    if (&program.operations[persists[index]] != &operation) continue;
    persist(program, state, program.operations[persists[index - 1]].drains_before);
  }
}

/// A posted operation shows the next unit of one of its items, as far as the wire has brought it.
template <std::size_t words, typename Visit>
void next_show_of(const Program& program, const State<words>& state, const Operation& operation,
                  std::size_t slots_here, Visit& visit) {
  std::size_t unit = 0;
  for (const std::size_t end : operation.group_ends) {
    for (; unit < end; ++unit) {
      const std::size_t cell = operation.cells[unit];
      if ((state[word_of(cell)] & bit_of(cell)) != 0) continue;
      if (operation.slot_first + unit >= slots_here) return;
      State<words> next = state;
      persist_before(program, operation, next);
      put(program, next, cell);
      visit(next, Action{Action::Kind::Show, operation.connection, cell});
      break;
    }
    unit = end;
  }
}

/// In order: the oldest posted operation that is not all visible. Else any that has left the
/// requester, but for PWRITEs, which wait for each other, and for what is known to be lost.
template <std::size_t words, typename Visit>
void next_show(const Program& program, const State<words>& state, std::size_t at, Visit& visit) {
  const Connection& connection = program.connections[at];
  const bool in_order = program.write_order && !program.loses;
  const std::size_t slots_here =
      in_order ? delivered_of(state[0], at) : connection.posts_before[pc_of(state[0])];
  bool persisting = false;
  for (const std::size_t index : connection.posted) {
    const Operation& operation = program.operations[index];
    if (contains(state, operation.cell_mask)) continue;
    if (in_order) return next_show_of(program, state, operation, slots_here, visit);
    if (contains_any(state, operation.lost_when)) continue;
    if (executed_of(state[0], at) < operation.answers_before) return;  // nor has what is behind it
    const bool in_turn = operation.verb != Verb::WritePersist || !persisting;
    persisting = persisting || operation.verb == Verb::WritePersist;
    if (in_turn) next_show_of(program, state, operation, slots_here, visit);
  }
}

template <std::size_t words, typename Visit>
void next_execute(const Program& program, const State<words>& state, std::size_t at, Visit& visit) {
  const Connection& connection = program.connections[at];
  const std::size_t rank = executed_of(state[0], at);
  if (rank >= connection.non_posted.size()) return;
  const std::size_t index = connection.non_posted[rank];
  const Operation& operation = program.operations[index];
  if (delivered_of(state[0], at) < operation.slot_end) return;
  if (!contains(state, operation.visible_before)) return;
  State<words> next = state;
  next[0] += one_executed(at);
  for (const std::size_t cell : operation.cells) put(program, next, cell);
  drain(program, next, operation.drains_before);
  visit(next, Action{Action::Kind::Execute, at, index});
}

/// The persist ACK of the oldest PWRITE that has none.
template <std::size_t words, typename Visit>
void next_persist(const Program& program, const State<words>& state, std::size_t at, Visit& visit) {
  for (const std::size_t index : program.connections[at].persists) {
    const Operation& operation = program.operations[index];
    if (!contains(state, operation.cell_mask)) return;
    State<words> next = state;
    persist(program, next, operation.drains_before);
    if (next == state) continue;
    visit(next, Action{Action::Kind::Persist, at, index});
    return;
  }
}

/// The effect of one micro-step of the responder.
template <std::size_t words>
void react(const Program& program, const Reaction& reaction, State<words>& state) {
  if (!contains(state, reaction.reads)) return;
  if (reaction.kind == Reaction::Kind::Store) put(program, state, reaction.cell);
  if (reaction.kind == Reaction::Kind::Flush) drain(program, state, reaction.flushes);
}

/// Where messages may be lost: the one with which the responder begins next. Between two of them
/// its position is 0.
template <std::size_t words>
const Message* next_taken(const Program& program, const State<words>& state, std::size_t at) {
  bool gap = false;
  for (const Message& message : program.messages) {
    if (program.operations[message.operation].connection != at) continue;
    if (contains(state, message.taken)) continue;
    const bool here = contains(state, message.complete_when);
    gap = gap || !here;
    if (!here || message.reactions_first == message.reactions_end) continue;
    if (!gap || !message.numbered) return &message;
  }
  return nullptr;
}

template <std::size_t words, typename Visit>
void next_respond_to_any(const Program& program, const State<words>& state, std::size_t at,
                         Visit& visit) {
  const std::size_t before = responder_of(state[0], at);
  const Message* message = message_in_work(program, at, before);
  const bool begins = message == nullptr;
  if (begins) message = next_taken(program, state, at);
  if (message == nullptr) return;
  const std::size_t position = begins ? message->reactions_first : before;
  const std::size_t after = position + 1 == message->reactions_end ? 0 : position + 1;
  State<words> next = state;
  next[0] += (after - before) * one_responder(at);
  for (std::size_t word = 0; word < words; ++word) next[word] |= message->taken[word];
  react(program, program.connections[at].reactions[position], next);
  visit(next, Action{Action::Kind::Respond, at, position});
}

template <std::size_t words, typename Visit>
void next_respond(const Program& program, const State<words>& state, std::size_t at, Visit& visit) {
  if (program.loses) return next_respond_to_any(program, state, at, visit);
  const Connection& connection = program.connections[at];
  const std::size_t position = responder_of(state[0], at);
  if (position >= connection.reactions.size()) return;
  const Reaction& reaction = connection.reactions[position];
  if (!contains(state, program.messages[reaction.message].complete_when)) return;
  if (reaction.kind == Reaction::Kind::Await && !contains(state, reaction.fetched)) return;
  State<words> next = state;
  next[0] += one_responder(at);
  react(program, reaction, next);
  visit(next, Action{Action::Kind::Respond, at, position});
}

/// What the responder has asked the requester's memory for becomes visible, unit by unit.
template <std::size_t words, typename Visit>
void next_fetch(const Program& program, const State<words>& state, std::size_t at, Visit& visit) {
  const Connection& connection = program.connections[at];
  const std::size_t position = responder_of(state[0], at);
  for (std::size_t index = 0; index < position; ++index) {
    const Reaction& reaction = connection.reactions[index];
    if (reaction.kind != Reaction::Kind::Read || contains(state, reaction.fetched)) continue;
    std::size_t cell = reaction.cell;
    while ((state[word_of(cell)] & bit_of(cell)) != 0) ++cell;
    State<words> next = state;
    put(program, next, cell);
    visit(next, Action{Action::Kind::Fetch, at, cell});
  }
}

template <std::size_t words, typename Visit>
void for_each_next(const Program& program, const State<words>& state, Visit&& visit) {
  auto settled = [&](State<words>& next, const Action& action) {
    settle(program, next);
    visit(next, action);
  };
  if (!program.recovery.empty()) {
    next_crash(program, state, visit);
    if (recovering(state[0])) return next_recover(program, state, visit);
  }
  for (std::size_t at = 0; at < program.connections.size(); ++at) {
    next_deliver(program, state, at, settled);
    next_show(program, state, at, settled);
    next_execute(program, state, at, settled);
    next_persist(program, state, at, settled);
    next_respond(program, state, at, settled);
    next_fetch(program, state, at, settled);
  }
}

}  // namespace perdure::check
