// The time of an emulated world: see program_clock.h.
#include "testing/torture/program_clock.h"

#include <algorithm>
#include <utility>

namespace perdure::test {

Nanoseconds ProgramClock::now() const {
  constexpr std::uint64_t kLooksPerJump = 500;
  constexpr Nanoseconds kLookTakes{25};
  constexpr Nanoseconds kLookTakesMax = std::chrono::microseconds(50);
  if (jumps && ++looks_ % kLooksPerJump == 0) ahead_ += std::chrono::hours(1);
  const bool idle = std::exchange(events_, world_.events()) == world_.events();
  look_takes_ = idle ? std::min(2 * look_takes_, kLookTakesMax) : kLookTakes;
  world_.tick(look_takes_);
  return world_.clock().now() + ahead_;
}

}  // namespace perdure::test
