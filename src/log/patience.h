// Patience: how long to wait for somebody who may be slow, but gets on.
#pragma once

#include "core/clock.h"

#include <cstdint>

namespace perdure::log {

/// Threads: one caller at a time.
class Patience {
 public:
  /// It is over once nothing has got on for `silence`.
  Patience(const Clock& clock, Nanoseconds silence)
      : clock_(clock), silence_(silence), end_(clock, silence) {}

  /// Asked again and again, with a count of what has been answered by then.
  bool over(std::uint64_t answered) {
    if (answered != answered_) end_ = Deadline(clock_, silence_);
    answered_ = answered;
    return end_.passed();
  }

 private:
  const Clock& clock_;
  Nanoseconds silence_;
  Deadline end_;
  std::uint64_t answered_ = 0;
};

}  // namespace perdure::log
