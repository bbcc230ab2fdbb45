// Properties: what must be true of a state, each under a name that reads as a sentence.
//
//   told-implies-recoverable  always: what the requester was told is recovered after power loss now
//   later-implies-earlier     always: nothing of a later epoch is recovered without the earlier one
//   nothing-torn              always: what a recovered later epoch vouches for is not torn
//   replay-is-idempotent      always: recovery's replay, also over what the responder has begun to
//                             apply, never breaks what was right without it
//   always-completes          a state without a next one is one where the requester has been told
//   sometimes-told            some state is: a method that promises nothing proves nothing
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

/// The cells that a power failure in `state` leaves, before recovery.
template <std::size_t words>
Mask kept_cells(const Program& program, const State<words>& state) {
  Mask kept{};
  const Mask& delivered = program.delivered[delivered_of(state[0])];
  constexpr std::uint64_t low = 0x5555555555555555;
  for (std::size_t word = 0; word < words; ++word) {
    const std::uint64_t cells = word == 0 ? low << 32 : low;
    switch (program.keeps) {
      case Keeps::Nothing: break;
      case Keeps::Domain:
        // A cell that nothing distinguishes (not in drains) counts as soon as it is visible.
        kept[word] = ((state[word] >> 1) | (state[word] & ~program.drains[word])) & cells;
        break;
      case Keeps::Visible: kept[word] = state[word] & cells; break;
      case Keeps::Delivered: kept[word] = (state[word] | delivered[word]) & cells; break;
    }
  }
  return kept;
}

/// The same after recovery has applied every whole message that is still in its buffer.
template <std::size_t words>
Mask recovered_cells(const Program& program, const State<words>& state, const Mask& kept) {
  Mask recovered = kept;
  for (const Message& message : program.messages) {
    if (!message.replayed) continue;
    if (message.released_at && responder_of(state[0]) >= *message.released_at) continue;
    bool whole = true;
    for (std::size_t word = 0; word < words; ++word) {
      whole = whole && (kept[word] & message.cells[word]) == message.cells[word];
    }
    if (!whole) continue;
    for (std::size_t word = 0; word < words; ++word) recovered[word] |= message.items[word];
  }
  return recovered;
}

/// The first order property that `recovered` breaks.
template <std::size_t words>
std::optional<Property> broken_order(const Program& program, const Mask& recovered) {
  for (std::size_t epoch = 0; epoch < program.epoch_cells.size(); ++epoch) {
    bool whole = true;
    bool begun = false;
    for (std::size_t word = 0; word < words; ++word) {
      const std::uint64_t here = recovered[word] & program.epoch_cells[epoch][word];
      whole = whole && here == program.epoch_cells[epoch][word];
      begun = begun || here != 0;
    }
    if (whole) continue;
    for (std::size_t word = 0; word < words; ++word) {
      if ((recovered[word] & program.later_cells[epoch][word]) == 0) continue;
      return begun ? Property::NothingTorn : Property::LaterImpliesEarlier;
    }
  }
  return std::nullopt;
}

/// The first property that the state breaks, if any.
template <std::size_t words>
std::optional<Property> broken_property(const Program& program, const State<words>& state) {
  const Mask kept = kept_cells(program, state);
  const Mask recovered = recovered_cells(program, state, kept);
  const std::size_t pc = pc_of(state[0]);
  for (const Promise& promise : program.script.promises) {
    if (pc < promise.step) break;  // promises stand in the order of their steps
    for (const Item item : promise.items) {
      const Mask& cells = program.item_cells[item];
      for (std::size_t word = 0; word < words; ++word) {
        if ((recovered[word] & cells[word]) != cells[word]) {
          return Property::ToldImpliesRecoverable;
        }
      }
    }
  }
  if (auto broken = broken_order<words>(program, recovered)) {
    const bool by_replay = recovered != kept && !broken_order<words>(program, kept);
    return by_replay ? Property::ReplayIsIdempotent : *broken;
  }
  return std::nullopt;
}

}  // namespace perdure::check
