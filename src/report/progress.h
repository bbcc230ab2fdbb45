// ProgressBar: says on standard error how far a run is. On a terminal it is one line that is drawn
// over and over; elsewhere a line now and then, so that a run whose result goes to a file is not
// silent for minutes.
#pragma once

#include "core/clock.h"

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace perdure::report {

/// Where nobody looks at a terminal: when the next line about a long run is due. A short run says
/// nothing.
class ProgressPace {
 public:
  static constexpr Nanoseconds kEvery = std::chrono::seconds(10);

  explicit ProgressPace(const Clock& clock = Clock::monotonic())
      : clock_(clock), last_(clock.now()) {}
  /// True at most once in kEvery, and not before that.
  bool due() {
    const Nanoseconds now = clock_.now();
    if (now - last_ < kEvery) return false;
    last_ = now;
    return true;
  }

 private:
  const Clock& clock_;
  Nanoseconds last_;
};

class ProgressBar {
 public:
  explicit ProgressBar(std::uint64_t total, std::FILE* to = stderr,
                       const Clock& clock = Clock::monotonic());
  ~ProgressBar() { clear(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// Cheap when called often: on a terminal it draws at most ten times a second.
  void show(std::uint64_t done, std::string_view what);
  /// Takes the line away, before something else is printed.
  void clear();

 private:
  const std::uint64_t total_;
  std::FILE* const to_;
  const Clock& clock_;
  const bool terminal_;
  ProgressPace pace_;
  bool drawn_ = false;
  Nanoseconds started_;
  Nanoseconds last_{0};
};

}  // namespace perdure::report
