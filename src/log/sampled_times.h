// SampledTimes: how long records take until a writer learns how far they are, of one in 64.
#pragma once

#include <perdure/log.h>

#include "core/clock.h"
#include "log/replicated_log.h"

#include <cstdint>
#include <optional>

namespace perdure::log {

/// One record is timed at a time.
/// Threads: one caller at a time. Cost: for an append that is not timed, a decrement.
class SampledTimes {
 public:
  explicit SampledTimes(const Clock& clock = Clock::monotonic()) : clock_(&clock) {}

  /// Whether an append is to call begin and end: it is timed, or one that is has not got there.
  bool due() { return --left_ == 0; }

  /// Before an append: when it began, if it is timed.
  std::optional<Nanoseconds> begin(const ReplicatedLog& log) {
    left_ = 1;
    if (!ticket_) return clock_->now();
    note(log);
    return std::nullopt;
  }
  /// After it.
  void end(const Result<Ticket>& appended, const std::optional<Nanoseconds>& began) {
    if (!began || !appended.ok()) return;
    ticket_ = *appended;
    since_ = *began;
    durable_ = false;
  }

  /// After whatever may have learned how far the record is.
  void note(const ReplicatedLog& log) {
    if (!ticket_) return;
    const bool durable = !durable_ && log.reached(*ticket_, Level::Durable);
    const bool committed = log.reached(*ticket_, Level::Committed);
    if (!durable && !committed) return;
    const Nanoseconds took = clock_->now() - since_;
    if (durable) times_.durable.add(took);
    durable_ = durable_ || durable;
    if (!committed) return;
    times_.committed.add(took);
    ticket_.reset();
    left_ = kTimedOneIn;
  }

  const LogTimes& times() const { return times_; }

 private:
  static constexpr std::uint32_t kTimedOneIn = 64;

  const Clock* clock_;
  std::uint32_t left_ = 1;        // appends until the next that is due
  std::optional<Ticket> ticket_;  // of the record that is timed
  Nanoseconds since_{0};
  bool durable_ = false;  // noted
  LogTimes times_;
};

}  // namespace perdure::log
