// Timeline: how far a log had come at many moments, and what happened meanwhile; as charts.
#pragma once

#include "core/clock.h"
#include "log/replicated_log.h"
#include "report/charts.h"

#include <cstdint>
#include <string>
#include <vector>

namespace perdure::demo {

class Timeline {
 public:
  Timeline() : start_(Clock::monotonic().now()) {}

  /// Takes note of where the log is, at most once per kSampleEvery unless `now`.
  void sample(const log::ReplicatedLog& log, std::uint64_t committed, bool now = false);
  /// A moment, or with end() a time.
  void mark(std::string label, bool bad);
  void end_mark();

  double seconds() const;

  report::TimeChart throughput_chart() const;
  report::TimeChart replica_chart() const;

 private:
  struct Sample {
    double seconds = 0;
    std::uint64_t committed = 0;
    std::vector<std::uint64_t> durable_below;  // by replica
  };
  static constexpr Nanoseconds kSampleEvery = std::chrono::milliseconds(5);

  Nanoseconds start_;
  Nanoseconds last_{0};
  std::vector<Sample> samples_;
  std::vector<report::TimeChart::Mark> marks_;
  std::vector<std::string> replica_names_;
};

}  // namespace perdure::demo
