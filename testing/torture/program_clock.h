// ProgramClock: the time of an emulated world, as its programs see it.
#pragma once

#include <cstdint>

#include "core/clock.h"
#include "fabric/emu/world.h"

namespace perdure::test {

/// The world's clock as a program sees it: to look at it takes time, the more the longer a program
/// does nothing else. While it is told to, it jumps ahead by an hour now and then.
class ProgramClock final : public Clock {
 public:
  explicit ProgramClock(fabric::emu::World& world) : world_(world) {}
  Nanoseconds now() const override;
  bool jumps = false;

 private:
  fabric::emu::World& world_;
  mutable std::uint64_t looks_ = 0;
  mutable std::uint64_t events_ = 0;  // of the world, at the last look
  mutable Nanoseconds look_takes_{0};
  mutable Nanoseconds ahead_{0};
};

}  // namespace perdure::test
