// What a state of the model says: which bits are set, how far the requester has come, and what is
// at the places that several updates write; included by model.h only.
//
// A unit of an item is visible from the moment it became so (its cell). Where a place is written
// more than once that is not what a load returns, so such a place has a cell for each version of
// it: low bit, it is what is visible now; high bit, it is what is in the domain, or may be, since
// it was visible at some time since the place last drained for certain. Version 0 is what was there
// before. An item whose place is shared has one unit.
#pragma once

#include "check/model.h"

namespace perdure::check {

template <std::size_t words>
bool contains(const State<words>& state, const Mask& mask) {
  std::uint64_t missing = 0;
  for (std::size_t word = 0; word < words; ++word) missing |= mask[word] & ~state[word];
  return missing == 0;
}

template <std::size_t words>
bool contains_any(const State<words>& state, const Mask& mask) {
  std::uint64_t found = 0;
  for (std::size_t word = 0; word < words; ++word) found |= mask[word] & state[word];
  return found != 0;
}

template <std::size_t words>
bool covers(const Mask& cells, const Mask& wanted) {
  std::uint64_t missing = 0;
  for (std::size_t word = 0; word < words; ++word) missing |= wanted[word] & ~cells[word];
  return missing == 0;
}

template <std::size_t words>
bool overlaps(const Mask& cells, const Mask& others) {
  std::uint64_t both = 0;
  for (std::size_t word = 0; word < words; ++word) both |= cells[word] & others[word];
  return both != 0;
}

inline bool in_mask(const Mask& mask, std::size_t cell) {
  return (mask[word_of(cell)] & bit_of(cell)) != 0;
}

/// How many acknowledgements the responder has sent over a connection.
template <std::size_t words>
std::size_t acks_sent(const Program& program, const State<words>& state, std::size_t at) {
  const std::vector<std::size_t>& before = program.connections[at].acks_sent;
  const std::size_t position = responder_of(state[0], at);
  if (!program.loses) return before[position];
  std::size_t sent = 0;
  for (const Message& message : program.messages) {
    if (program.operations[message.operation].connection != at) continue;
    if (!contains(state, message.taken)) continue;
    sent += before[message.reactions_end] - before[message.reactions_first];
  }
  const Message* const current = message_in_work(program, at, position);
  return current == nullptr ? sent : sent - (before[current->reactions_end] - before[position]);
}

template <std::size_t words>
bool may_pass(const Program& program, const State<words>& state, const Wait& wait) {
  const std::uint64_t word = state[0];
  switch (wait.kind) {
    case Wait::Kind::Nothing: return true;
    case Wait::Kind::Delivered: return delivered_of(word, wait.connection) >= wait.count;
    case Wait::Kind::Executed: return executed_of(word, wait.connection) >= wait.count;
    case Wait::Kind::Acks: {
      return acks_sent(program, state, wait.connection) >= wait.count;
    }
    case Wait::Kind::Cells: return contains(state, wait.cells);
    case Wait::Kind::Never: break;
  }
  return false;
}

/// How far the requester has come, as an index into Program::acknowledged: its step, or where
/// updates are mixed, how many of them have resolved.
template <std::size_t words>
std::size_t progress(const Program& program, const State<words>& state) {
  if (!program.script.mixed || recovering(state[0])) return pc_of(state[0]);
  std::size_t resolved = 0;
  for (const End& end : program.ends) {
    if (pc_of(state[0]) < end.step) break;
    bool over = true;
    for (const Wait& wait : end.waits) over = over && may_pass(program, state, wait);
    if (!over) break;
    ++resolved;
  }
  return resolved;
}

/// Whether something that was posted is not here: perhaps it is lost.
template <std::size_t words>
bool misses_something(const Program& program, const State<words>& state) {
  for (const Operation& operation : program.operations) {
    const Connection& connection = program.connections[operation.connection];
    if (operation.slot_end > connection.posts_before[pc_of(state[0])]) continue;
    if (!contains(state, operation.cell_mask)) return true;
  }
  return false;
}

/// Whether everything was acknowledged.
template <std::size_t words>
bool completed(const Program& program, const State<words>& state) {
  return progress(program, state) + 1 == program.acknowledged.size();
}

/// The version that a load returns; nothing after a power failure, which leaves one of those that
/// may be in the domain.
template <std::size_t words>
std::optional<std::size_t> visible_version(const State<words>& state, const SharedPlace& place) {
  for (std::size_t version = 0; version <= place.cells.size(); ++version) {
    const std::size_t cell = place.first_cell + version;
    if ((state[word_of(cell)] & bit_of(cell)) != 0) return version;
  }
  return std::nullopt;
}

template <std::size_t words>
void forget_visible(State<words>& state, const SharedPlace& place) {
  for (std::size_t version = 0; version <= place.cells.size(); ++version) {
    const std::size_t cell = place.first_cell + version;
    state[word_of(cell)] &= ~bit_of(cell);
  }
}

/// A cell becomes visible; at a shared place, over what is there.
template <std::size_t words>
void put(const Program& program, State<words>& state, std::size_t cell) {
  state[word_of(cell)] |= bit_of(cell);
  if (program.places.empty() || !in_mask(program.shared, cell)) return;
  const Version at = program.version_of_cell[cell];
  const SharedPlace& place = program.places[at.place];
  forget_visible(state, place);
  const std::size_t version = place.first_cell + at.version;
  const std::uint64_t both = program.keeps == Keeps::Domain ? 3 : 1;
  state[word_of(version)] |= bit_of(version) * both;
}

/// The cells of `mask` that are visible are inside the domain from now on.
template <std::size_t words>
void drain(const Program& program, State<words>& state, const Mask& mask) {
  for (std::size_t word = 0; word < words; ++word) {
    state[word] |= (state[word] & mask[word] & ~program.shared[word]) << 1;
  }
  for (const SharedPlace& place : program.places) {
    if (!overlaps<words>(mask, place.items)) continue;
    const auto visible = visible_version(state, place);
    if (!visible) continue;
    for (std::size_t version = 0; version <= place.cells.size(); ++version) {
      const std::size_t cell = place.first_cell + version;
      if (version != *visible) state[word_of(cell)] &= ~(bit_of(cell) << 1);
    }
  }
}

/// PWRITEs that have been visible have drained. At a shared place, that version or a newer one has,
/// and the item's own cell says so from now on.
template <std::size_t words>
void persist(const Program& program, State<words>& state, const Mask& mask) {
  for (std::size_t word = 0; word < words; ++word) state[word] |= (state[word] & mask[word]) << 1;
  for (const SharedPlace& place : program.places) {
    std::size_t newest = 0;
    for (std::size_t version = 1; version <= place.cells.size(); ++version) {
      const std::size_t cell = place.cells[version - 1];
      if (in_mask(mask, cell) && (state[word_of(cell)] & bit_of(cell)) != 0) newest = version;
    }
    for (std::size_t version = 0; version < newest; ++version) {
      const std::size_t cell = place.first_cell + version;
      // An older one that has come over it may be what is there.
      if ((state[word_of(cell)] & bit_of(cell)) == 0) state[word_of(cell)] &= ~(bit_of(cell) << 1);
    }
  }
}

/// Whether nothing that the RNIC keeps through a power failure is still to be written to a shared
/// place. If something is, what that leaves is asked of a state after this one.
template <std::size_t words>
bool places_settled(const Program& program, const State<words>& state) {
  if (program.places.empty() || program.keeps != Keeps::Delivered) return true;
  if (recovering(state[0])) return true;
  for (const Connection& connection : program.connections) {
    const Mask& delivered = connection.delivered[delivered_of(state[0], 0)];
    for (std::size_t word = 0; word < words; ++word) {
      if ((delivered[word] & program.shared[word] & ~state[word]) != 0) return false;
    }
  }
  return true;
}

}  // namespace perdure::check
