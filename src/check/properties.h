// Properties: what must be true of a state, each under a name that reads as a sentence.
//
//   acknowledged-implies-durable  always: what was acknowledged is recovered after power loss
//   now later-implies-earlier     always: nothing of a later epoch is recovered without the earlier
//   one nothing-torn              always: what a recovered later epoch vouches for is not torn
//   replay-is-idempotent      always: recovery's replay, also over what the responder has begun to
//                             apply, never breaks what was right without it; nor does replaying
//                             again after recovery itself was interrupted
//   always-completes          a state without a next one is one where the update was acknowledged
//   sometimes-acknowledged            some state is: a method that promises nothing proves nothing
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
  AcknowledgedImpliesDurable,
  LaterImpliesEarlier,
  NothingTorn,
  ReplayIsIdempotent,
  AlwaysCompletes,
  SometimesAcknowledged,
};

std::string_view to_string(Property property);

/// A broken property, and what a power failure leaves, before recovery, when it breaks it.
struct Broken {
  Property property = Property::AcknowledgedImpliesDurable;
  Mask kept{};
};

/// The cells that every power failure in `state` leaves, or that some does.
struct Kept {
  Mask surely{};
  Mask perhaps{};
};

template <std::size_t words>
Mask joined(const Mask& cells, const Mask& others) {
  Mask both{};
  for (std::size_t word = 0; word < words; ++word) both[word] = cells[word] | others[word];
  return both;
}

/// Of a place that several updates write, that an item is kept means that it or a newer one is.
template <std::size_t words>
void keep_places(const Program& program, const State<words>& state, Kept& kept) {
  for (std::size_t word = 0; word < words; ++word) {
    kept.surely[word] &= ~program.shared[word];
    kept.perhaps[word] &= ~program.shared[word];
  }
  const std::uint64_t shift = program.keeps == Keeps::Domain ? 1 : 0;
  for (const SharedPlace& place : program.places) {
    std::size_t oldest = place.cells.size();
    std::size_t newest = 0;
    for (std::size_t version = 0; version <= place.cells.size(); ++version) {
      const std::size_t cell = place.first_cell + version;
      if ((state[word_of(cell)] >> shift & bit_of(cell)) == 0) continue;
      oldest = std::min(oldest, version);
      newest = version;
    }
    for (std::size_t version = 1; version <= newest; ++version) {
      const std::size_t cell = place.cells[version - 1];
      kept.perhaps[word_of(cell)] |= bit_of(cell);
      if (version <= oldest) kept.surely[word_of(cell)] |= bit_of(cell);
    }
  }
}

template <std::size_t words>
Kept kept_cells(const Program& program, const State<words>& state) {
  Kept kept;
  if (program.keeps == Keeps::Nothing) return kept;
  kept.perhaps = kept.surely = arrived_cells(program, state);
  if (program.keeps == Keeps::Domain) {
    for (std::size_t word = 0; word < words; ++word) {
      kept.surely[word] = (state[word] >> 1) & program.all_cells[word];
    }
  }
  if (!program.places.empty()) keep_places(program, state, kept);
  return kept;
}

/// What is there after recovery has applied every message that is still whole in its buffer.
template <std::size_t words>
Mask recovered_cells(const Program& program, const State<words>& state, const Mask& kept) {
  Mask recovered = kept;
  if (program.recovery.empty() || program.script.mixed) return recovered;  // mixed: asked_later
  for (const Message& message : program.messages) {
    if (!still_buffered(program, state, message)) continue;
    if (!covers<words>(kept, message.cells)) continue;
    recovered = joined<words>(recovered, message.items);
  }
  return recovered;
}

/// The first order property that is broken if `surely` is recovered, and of `perhaps` any one unit.
template <std::size_t words>
std::optional<Property> broken_order(const Program& program, const Mask& surely,
                                     const Mask& perhaps) {
  for (const Order& order : program.orders) {
    if (!overlaps<words>(perhaps, order.later)) continue;
    if (covers<words>(surely, order.epoch)) continue;
    const bool begun = overlaps<words>(surely, order.epoch);
    return begun ? Property::NothingTorn : Property::LaterImpliesEarlier;
  }
  return std::nullopt;
}

/// A choice of what is kept that breaks the order; `broken` is the property that it breaks.
template <std::size_t words>
Broken broken_by(const Program& program, const Mask& kept, const Mask& recovered, Property broken) {
  const bool by_replay = recovered != kept && !broken_order<words>(program, kept, kept);
  return {by_replay ? Property::ReplayIsIdempotent : broken, kept};
}

/// Whether this very version of a shared place may be the one in the domain.
template <std::size_t words>
bool may_have_drained(const Program& program, const State<words>& state, std::size_t cell) {
  const Version at = program.version_of_cell[cell];
  const std::size_t version = program.places[at.place].first_cell + at.version;
  return (state[word_of(version)] >> 1 & bit_of(version)) != 0;
}

/// Where a newer version is, the older ones count as kept.
inline void add_older(const Program& program, std::size_t cell, Mask& cells) {
  const Version newest = program.version_of_cell[cell];
  for (std::size_t version = 1; version < newest.version; ++version) {
    const std::size_t older = program.places[newest.place].cells[version - 1];
    cells[word_of(older)] |= bit_of(older);
  }
}

/// What is surely kept and one more unit, if that breaks the order.
template <std::size_t words>
std::optional<Broken> broken_by_one_more(const Program& program, const State<words>& state,
                                         const Kept& kept) {
  for (std::size_t cell = program.first_cell; cell < program.cells; ++cell) {
    const std::size_t word = word_of(cell);
    if ((kept.perhaps[word] & ~kept.surely[word] & bit_of(cell)) == 0) continue;
    if (in_mask(program.shared, cell) && !may_have_drained(program, state, cell)) continue;
    Mask choice = kept.surely;
    choice[word] |= bit_of(cell);
    if (in_mask(program.shared, cell)) add_older(program, cell, choice);
    const Mask recovered = recovered_cells(program, state, choice);
    const auto broken = broken_order<words>(program, recovered, recovered);
    if (broken) return broken_by<words>(program, choice, recovered, *broken);
  }
  return std::nullopt;
}

/// The order properties, for all choices. What is recovered only grows with what is kept, so if
/// some choice breaks the order, so does one with the least that recovers something later: a unit,
/// or a message.
template <std::size_t words>
std::optional<Broken> broken_choice(const Program& program, const State<words>& state,
                                    const Kept& kept, const Mask& recovered) {
  const Mask& surely = kept.surely;
  const Mask possible = joined<words>(recovered, kept.perhaps);
  if (const auto broken = broken_order<words>(program, recovered, possible)) {
    const bool without_one_more = broken_order<words>(program, recovered, recovered).has_value();
    if (without_one_more) return broken_by<words>(program, surely, recovered, *broken);
    if (auto found = broken_by_one_more(program, state, kept)) return found;
  }
  if (program.recovery.empty() || program.script.mixed) return std::nullopt;  // see asked_later
  for (const Message& message : program.messages) {
    if (!message.vouches || !still_buffered(program, state, message)) continue;
    if (covers<words>(surely, message.cells)) continue;
    if (!covers<words>(kept.perhaps, message.cells)) continue;
    const Mask choice = joined<words>(surely, message.cells);
    const Mask with_message = joined<words>(joined<words>(recovered, message.cells), message.items);
    if (const auto broken = broken_order<words>(program, with_message, message.items)) {
      return broken_by<words>(program, choice, with_message, *broken);
    }
  }
  return std::nullopt;
}

/// Whether what a power failure here leaves is a question for states that follow. That is so where
/// updates are mixed and something is to be replayed: a replay may put an older version over a
/// newer one, so more that is kept is not always better, and recovery is followed to its end
/// instead.
template <std::size_t words>
bool asked_later(const Program& program, const State<words>& state) {
  if (!places_settled(program, state)) return true;
  if (!program.script.mixed || program.recovery.empty()) return false;
  return crashed(program, state, kPowerLost).has_value();
}

/// The first property that the state breaks, if any, by what a replay from here on would make of
/// it.
template <std::size_t words>
std::optional<Broken> broken_now(const Program& program, const State<words>& state) {
  if (asked_later(program, state)) return std::nullopt;
  const Kept kept = kept_cells(program, state);
  const Mask recovered = recovered_cells(program, state, kept.surely);
  if (!covers<words>(recovered, program.acknowledged[progress(program, state)])) {
    return Broken{Property::AcknowledgedImpliesDurable, kept.surely};
  }
  return broken_choice(program, state, kept, recovered);
}

/// The same under its name: what breaks while recovery is at work, recovery has broken.
template <std::size_t words>
std::optional<Broken> find_broken(const Program& program, const State<words>& state) {
  auto broken = broken_now(program, state);
  if (broken && recovering(state[0])) broken->property = Property::ReplayIsIdempotent;
  return broken;
}

}  // namespace perdure::check
