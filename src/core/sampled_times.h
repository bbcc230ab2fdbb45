// SampledTimes: how long updates take until a writer learns how far they are, of one in 64.
#pragma once

#include <perdure/result.h>
#include <perdure/types.h>

#include "core/clock.h"

#include <cstdint>
#include <optional>

namespace perdure {

/// One update is timed at a time. `Owner` knows what its tickets have reached; `Times` has counts
/// `durable` and `committed`.
/// Threads: one caller at a time. Cost: for an update that is not timed, a decrement.
template <typename Owner, typename Ticket, typename Times>
class SampledTimes {
 public:
  /// `least`: what is counted as durable.
  explicit SampledTimes(Level least = Level::Durable, const Clock& clock = Clock::monotonic())
      : clock_(&clock), least_(least) {}

  /// Whether an update is to call begin and end: it is timed, or one that is has not got there.
  bool due() { return --left_ == 0; }

  /// Before an update: when it began, if it is timed.
  std::optional<Nanoseconds> begin(const Owner& owner) {
    left_ = 1;
    if (!ticket_) return clock_->now();
    note(owner);
    return std::nullopt;
  }
  /// After it.
  void end(const Result<Ticket>& appended, const std::optional<Nanoseconds>& began) {
    if (!began || !appended.ok()) return;
    ticket_ = *appended;
    since_ = *began;
    durable_ = false;
  }

  /// What is timed; nothing: no update is.
  const std::optional<Ticket>& timed() const { return ticket_; }
  /// What is timed will never get there.
  void drop() {
    ticket_.reset();
    left_ = 1;
  }

  /// After whatever may have learned how far the update is.
  void note(const Owner& owner) {
    if (!ticket_) return;
    const bool durable = !durable_ && owner.reached(*ticket_, least_);
    const bool committed = owner.reached(*ticket_, Level::Committed);
    if (!durable && !committed) return;
    const Nanoseconds took = clock_->now() - since_;
    if (durable) times_.durable.add(took);
    durable_ = durable_ || durable;
    if (!committed) return;
    times_.committed.add(took);
    ticket_.reset();
    left_ = kTimedOneIn;
  }

  const Times& times() const { return times_; }

 private:
  static constexpr std::uint32_t kTimedOneIn = 64;

  const Clock* clock_;
  Level least_;
  std::uint32_t left_ = 1;        // updates until the next that is due
  std::optional<Ticket> ticket_;  // of the update that is timed
  Nanoseconds since_{0};
  bool durable_ = false;  // noted
  Times times_;
};

}  // namespace perdure
