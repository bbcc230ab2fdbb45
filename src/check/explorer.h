// Explorer: visits every reachable state of a Program once, nearest first, and stops at the first
// state that breaks a property; so what it finds is as short as it can be.
#pragma once

#include "check/model.h"
#include "check/properties.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace perdure::check {

/// What an exploration saw. The actions lead from the initial state to the broken one.
struct Exploration {
  std::uint64_t states = 0;
  std::uint64_t transitions = 0;
  bool limit_reached = false;
  std::optional<Property> broken;
  std::vector<Action> actions;
};

/// Breadth first, with all states kept in memory (about 20 bytes for one of a usual method).
/// Cost  time and memory grow with the number of states; states_max bounds both.
Exploration explore(const Program& program, std::uint64_t states_max);

}  // namespace perdure::check
