// ProgressBar: one line on a terminal's standard error that says how far a run is. Silent
// elsewhere.
#pragma once

#include "core/clock.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace perdure::report {

class ProgressBar {
 public:
  explicit ProgressBar(std::uint64_t total);
  ~ProgressBar() { clear(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// Cheap when called often: it draws at most ten times a second.
  void show(std::uint64_t done, std::string_view what);
  /// Takes the line away, before something else is printed.
  void clear();

 private:
  const std::uint64_t total_;
  const bool terminal_;
  bool drawn_ = false;
  Nanoseconds started_;
  Nanoseconds last_{0};
};

}  // namespace perdure::report
