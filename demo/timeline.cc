// Samples and the two charts made of them.
#include "demo/timeline.h"

#include "core/assert.h"

#include <fmt/format.h>

#include <algorithm>

namespace perdure::demo {
namespace {

constexpr double kMebibyte = 1024.0 * 1024.0;
constexpr int kIntervals = 80;  // of the throughput chart

}  // namespace

double Timeline::seconds() const { return to_seconds(Clock::monotonic().now() - start_); }

void Timeline::sample(const log::ReplicatedLog& log, std::uint64_t committed, bool now) {
  const Nanoseconds time = Clock::monotonic().now();
  if (!now && time - last_ < kSampleEvery) return;
  last_ = time;
  const LogStatus status = log.status();
  Sample sample{seconds(), committed, {}};
  for (const ReplicaStatus& replica : status.replicas) {
    // A replica that is down keeps what it has; what the writer knows of it may be reset.
    const std::size_t index = sample.durable_below.size();
    const std::uint64_t before = samples_.empty() ? 0 : samples_.back().durable_below[index];
    sample.durable_below.push_back(std::max(before, replica.durable_below.value));
  }
  if (replica_names_.empty()) {
    for (std::size_t i = 1; i <= status.replicas.size(); ++i) {
      replica_names_.push_back(fmt::format("peer {}", i));
    }
  }
  samples_.push_back(std::move(sample));
}

void Timeline::mark(std::string label, bool bad) {
  marks_.push_back({seconds(), 0, std::move(label), bad});
}

void Timeline::end_mark() {
  PERDURE_ASSERT(!marks_.empty());
  marks_.back().to = seconds();
}

report::TimeChart Timeline::throughput_chart() const {
  report::TimeChart chart{
      "Records committed per second", "records/s", {{"committed", {}, true}}, marks_};
  if (samples_.size() < 2) return chart;
  const double interval = std::max(samples_.back().seconds / kIntervals, 1e-3);
  auto& points = chart.series[0].points;
  std::size_t at = 0;
  std::uint64_t before = samples_.front().committed;
  for (double begin = 0; begin < samples_.back().seconds; begin += interval) {
    while (at + 1 < samples_.size() && samples_[at + 1].seconds <= begin + interval) ++at;
    const std::uint64_t after = samples_[at].committed;
    points.emplace_back(begin + interval / 2, static_cast<double>(after - before) / interval);
    before = after;
  }
  return chart;
}

report::TimeChart Timeline::replica_chart() const {
  report::TimeChart chart{"Log durable on each replica", "MiB", {}, marks_};
  if (samples_.empty()) return chart;
  for (std::size_t i = 0; i < replica_names_.size(); ++i) {
    report::TimeChart::Series series{replica_names_[i], {}, false};
    const std::uint64_t first = samples_.front().durable_below[i];
    double last_seconds = -1;
    for (const Sample& sample : samples_) {
      const bool last = &sample == &samples_.back();
      if (!last && sample.seconds - last_seconds < samples_.back().seconds / 400) continue;
      last_seconds = sample.seconds;
      const auto bytes = static_cast<double>(sample.durable_below[i] - first);
      series.points.emplace_back(sample.seconds, bytes / kMebibyte);
    }
    chart.series.push_back(std::move(series));
  }
  return chart;
}

}  // namespace perdure::demo
