// A fault that comes at an instant: see strike.h.
#include "testing/torture/strike.h"

#include <memory>
#include <utility>

namespace perdure::test {
namespace {

/// It comes within so many events of an operation, as a power of two at most.
constexpr std::uint64_t kStrikeWithinLog = 12;

struct State {
  Random choices{0};
  bool waits = false;
  bool struck = false;
  bool strikes_late = false;
};

}  // namespace

Fault strike_fault(fabric::emu::World& world, bool& armed, Strike strike) {
  const auto state = std::make_shared<State>();
  const auto what = std::make_shared<const Strike>(std::move(strike));
  Fault fault;
  fault.name = what->name;
  fault.weight = what->weight;
  fault.lasts_max = what->lasts_max;
  fault.begin = [&world, &armed, state, what](Random& choices) {
    if (armed) return false;
    *state = State{choices, true, false, choices.chance(1, 2)};
    armed = true;
    const std::uint64_t within = std::uint64_t{1} << choices.below(kStrikeWithinLog + 1);
    world.after(1 + choices.below(within), [&armed, state, what] {
      armed = false;
      state->waits = false;
      state->struck = true;
      what->strike(state->choices);
    });
    return true;
  };
  fault.met = [&world, &armed, state, what] {
    if (!state->waits) return state->struck;
    world.cancel_after();
    armed = false;
    state->waits = false;
    if (!state->strikes_late) return false;
    state->struck = true;
    what->strike(state->choices);
    if (what->afterwards) what->afterwards();
    return false;
  };
  fault.end = [&world, &armed, state, what] {
    if (state->waits) {
      world.cancel_after();
      armed = false;
    }
    if (state->struck && what->end) what->end();
    *state = State{};
  };
  return fault;
}

}  // namespace perdure::test
