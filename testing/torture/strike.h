// A fault that comes at an instant, in the middle of an operation.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "fabric/emu/world.h"
#include "testing/torture/torture.h"

namespace perdure::test {

struct Strike {
  std::string name;
  std::uint32_t weight = 1;
  std::uint32_t lasts_max = 1;
  std::function<void(Random&)> strike;
  std::function<void()> end;         // of what it has left; may be empty
  std::function<void()> afterwards;  // when it has come behind an operation; may be empty
};

/// If the operation is over before it comes, it comes right after it, or not at all. While it
/// lasts, every operation meets what it has left. `armed`: one of the world's strikes waits for its
/// instant; there is one at a time. Requires that both outlive it.
Fault strike_fault(fabric::emu::World& world, bool& armed, Strike strike);

}  // namespace perdure::test
