// When to poll and when to sleep: see spin.h.
#include "server/spin.h"

#include <sys/resource.h>

#include <algorithm>
#include <utility>

namespace perdure::server {
namespace {

// A gap this many budgets long would have been worth polling through: it contains the time that
// waking up took (45 to 55 us measured on two virtual cores), which polling would have saved.
constexpr int kWorthwhileBudgets = 3;
// One-sided requests are seen only by sleeping: this many budgets pass between two such looks.
constexpr int kStretchMax = 16;
// Between two polls without work lie a few hundred nanoseconds.
constexpr Nanoseconds kDescheduledAfter = std::chrono::microseconds{25};
constexpr Nanoseconds kBarredFor = std::chrono::milliseconds{5};

}  // namespace

long thread_preemptions() {
  rusage usage{};
  (void)::getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nivcsw;
}

bool SpinSlots::take() {
  int free = free_.load(std::memory_order_relaxed);
  while (free > 0) {
    if (free_.compare_exchange_weak(free, free - 1, std::memory_order_relaxed)) return true;
  }
  return false;
}

void AdaptiveSpin::found_work() {
  stretch_ = 1;
  if (!idle_) return;
  idle_ = false;
  if (clock_.now() - idle_since_ < kWorthwhileBudgets * budget_) {
    credit_ = std::min(credit_ + 1, kCreditMax);
  }
}

void AdaptiveSpin::woken() {
  const bool soon = clock_.now() - slept_at_ < kWorthwhileBudgets * budget_;
  stretch_ = soon ? std::min(2 * stretch_, kStretchMax) : 1;
  if (soon) credit_ = std::min(credit_ + 1, kCreditMax);
  idle_ = false;  // the next look begins a new spin
}

bool AdaptiveSpin::keep_polling() {
  const Nanoseconds now = clock_.now();
  if (!idle_) {
    begin(now);
  } else if (polling_) {
    if (core_is_wanted(now)) barred_until_ = now + kBarredFor;
    if (now - idle_since_ >= stretch_ * budget_ || now < barred_until_) {
      credit_ = std::max(credit_ - 1, 0);
      stop();
    }
  }
  last_poll_ = now;
  if (!polling_) slept_at_ = now;
  return polling_;
}

void AdaptiveSpin::begin(Nanoseconds now) {
  idle_ = true;
  idle_since_ = now;
  const bool worth_it = credit_ > 0 && budget_.count() > 0 && now >= barred_until_;
  if (polling_ || !worth_it) return;
  polling_ = slots_.take();
  if (polling_) preempted_ = preemptions_();
}

/// A long pause between two polls is another thread's time slice, or a long transfer that the poll
/// has executed. The system is asked which, in that case only.
bool AdaptiveSpin::core_is_wanted(Nanoseconds now) {
  if (now - last_poll_ <= kDescheduledAfter) return false;
  const long preempted = preemptions_();
  return std::exchange(preempted_, preempted) != preempted;
}

void AdaptiveSpin::stop() {
  if (polling_) slots_.give_back();
  polling_ = false;
}

}  // namespace perdure::server
