// Backoff: when to try again what has failed.
#pragma once

#include "core/clock.h"
#include "core/random.h"

#include <algorithm>
#include <cstdint>

namespace perdure {

/// After the first failure it waits `first`, after each further one twice as long, up to 16 times
/// `first`; each time up to a quarter less, so that many who lost the same machine do not all come
/// back at one instant.
/// Threads: one caller at a time.
class Backoff {
 public:
  /// `first` 0: never again.
  Backoff(Nanoseconds first, std::uint64_t seed) : first_(first), random_(seed) {}

  /// It failed, again or for the first time since reset.
  void failed(Nanoseconds now) {
    wait_ = wait_ == Nanoseconds{0} ? first_ : std::min(2 * wait_, kFactorMax * first_);
    const auto quarter = static_cast<std::uint64_t>(wait_.count() / 4);
    not_before_ = Nanoseconds{0};
    at_ = now + wait_ - Nanoseconds{static_cast<std::int64_t>(random_.below(quarter + 1))};
  }
  /// A try in vain for which others had to wait, since `begun`: unless it is urgent, it is left
  /// alone for so many times what that took. Until the next failure.
  static constexpr int kTimesWhatATryTook = 8;
  void put_off(Nanoseconds begun, Nanoseconds now) {
    not_before_ = now + kTimesWhatATryTook * (now - begun);
  }
  /// Whether the time has come. Requires a failure before.
  bool due(Nanoseconds now, bool urgent = false) const {
    return first_ > Nanoseconds{0} && now >= at_ && (urgent || now >= not_before_);
  }
  /// It succeeded, or got on: the next failure is the first one.
  void reset() { wait_ = Nanoseconds{0}; }

 private:
  static constexpr int kFactorMax = 16;

  Nanoseconds first_;
  Nanoseconds wait_{0};
  Nanoseconds at_{0};
  Nanoseconds not_before_{0};
  Random random_;
};

}  // namespace perdure
