// Properties: what must be true of a state, each under a name that reads as a sentence.
//
//   told-implies-recoverable  always: what the requester was told is recovered after power loss now
//   later-implies-earlier     always: nothing of a later epoch is recovered without the earlier one
//   nothing-torn              always: what a recovered later epoch vouches for is not torn
//   replay-is-idempotent      always: recovery's replay, also over what the responder has begun to
//                             apply, never breaks what was right without it
//   always-completes          a state without a next one is one where the requester has been told
//   sometimes-told            some state is: a method that promises nothing proves nothing
//
// Which of the visible units have drained by themselves is open in a state (model.h), so each
// question is asked of the worst case: that a property holds means that it does whatever a power
// failure leaves of them.
#pragma once

#include "check/model.h"

#include <optional>
#include <string_view>

namespace perdure::check {

enum class Property {
  ToldImpliesRecoverable,
  LaterImpliesEarlier,
  NothingTorn,
  ReplayIsIdempotent,
  AlwaysCompletes,
  SometimesTold,
};

std::string_view to_string(Property property);

/// A broken property, and what a power failure leaves, before recovery, when it breaks it.
struct Broken {
  Property property = Property::ToldImpliesRecoverable;
  Mask kept{};
};

/// The cells that every power failure in `state` leaves, or that some does.
struct Kept {
  Mask surely{};
  Mask perhaps{};
};

template <std::size_t words>
Kept kept_cells(const Program& program, const State<words>& state) {
  Kept kept;
  for (std::size_t word = 0; word < words; ++word) {
    const std::uint64_t cells = program.all_cells[word];
    std::uint64_t delivered = 0;
    switch (program.keeps) {
      case Keeps::Nothing: break;
      case Keeps::Domain:
        kept.surely[word] = (state[word] >> 1) & cells;
        kept.perhaps[word] = state[word] & cells;
        break;
      case Keeps::Delivered:
        for (std::size_t at = 0; at < program.connections.size(); ++at) {
          delivered |= program.connections[at].delivered[delivered_of(state[0], at)][word];
        }
        [[fallthrough]];
      case Keeps::Visible:
        kept.surely[word] = kept.perhaps[word] = (state[word] | delivered) & cells;
        break;
    }
  }
  return kept;
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

/// Whether recovery would replay the message if it found it whole.
template <std::size_t words>
bool still_buffered(const Program& program, const State<words>& state, const Message& message) {
  if (!message.replayed) return false;
  const std::size_t at = program.operations[message.operation].connection;
  return !message.released_at || responder_of(state[0], at) < *message.released_at;
}

/// What is there after recovery has applied every message that is still whole in its buffer.
template <std::size_t words>
Mask recovered_cells(const Program& program, const State<words>& state, const Mask& kept) {
  Mask recovered = kept;
  if (!program.replays) return recovered;
  for (const Message& message : program.messages) {
    if (!still_buffered(program, state, message)) continue;
    if (!covers<words>(kept, message.cells)) continue;
    for (std::size_t word = 0; word < words; ++word) recovered[word] |= message.items[word];
  }
  return recovered;
}

/// The first order property that is broken if `surely` is recovered, and of `perhaps` any one unit.
template <std::size_t words>
std::optional<Property> broken_order(const Program& program, const Mask& surely,
                                     const Mask& perhaps) {
  for (std::size_t epoch = 0; epoch < program.epoch_cells.size(); ++epoch) {
    if (covers<words>(surely, program.epoch_cells[epoch])) continue;
    if (!overlaps<words>(perhaps, program.later_cells[epoch])) continue;
    const bool begun = overlaps<words>(surely, program.epoch_cells[epoch]);
    return begun ? Property::NothingTorn : Property::LaterImpliesEarlier;
  }
  return std::nullopt;
}

/// The order properties, for one choice of what is kept.
template <std::size_t words>
std::optional<Property> broken_by(const Program& program, const State<words>& state,
                                  const Mask& kept) {
  const Mask recovered = recovered_cells(program, state, kept);
  const auto broken = broken_order<words>(program, recovered, recovered);
  if (!broken) return std::nullopt;
  const bool by_replay = recovered != kept && !broken_order<words>(program, kept, kept);
  return by_replay ? Property::ReplayIsIdempotent : *broken;
}

/// The same for all choices. What is recovered only grows with what is kept, so if some choice
/// breaks the order, so does one with the least that recovers something later: a unit, or a
/// message.
template <std::size_t words>
std::optional<Broken> broken_choice(const Program& program, const State<words>& state,
                                    const Kept& kept) {
  if (const auto broken = broken_by(program, state, kept.surely)) {
    return Broken{*broken, kept.surely};
  }
  for (std::size_t cell = program.first_cell; cell < program.cells; ++cell) {
    const std::size_t word = word_of(cell);
    if ((kept.perhaps[word] & ~kept.surely[word] & bit_of(cell)) == 0) continue;
    Mask choice = kept.surely;
    choice[word] |= bit_of(cell);
    if (const auto broken = broken_by(program, state, choice)) return Broken{*broken, choice};
  }
  for (const Message& message : program.messages) {
    if (!still_buffered(program, state, message)) continue;
    if (!covers<words>(kept.perhaps, message.cells)) continue;
    Mask choice = kept.surely;
    for (std::size_t word = 0; word < words; ++word) choice[word] |= message.cells[word];
    if (const auto broken = broken_by(program, state, choice)) return Broken{*broken, choice};
  }
  return std::nullopt;
}

/// The first property that the state breaks, if any.
template <std::size_t words>
std::optional<Broken> find_broken(const Program& program, const State<words>& state) {
  const Kept kept = kept_cells(program, state);
  const Mask recovered = recovered_cells(program, state, kept.surely);
  if (!covers<words>(recovered, program.told[pc_of(state[0])])) {
    return Broken{Property::ToldImpliesRecoverable, kept.surely};
  }
  const bool looks_right = !broken_order<words>(program, kept.surely, kept.perhaps);
  if (looks_right && !program.replays) return std::nullopt;  // nearly always; the rest is slow
  return broken_choice(program, state, kept);
}

}  // namespace perdure::check
