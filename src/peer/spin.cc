// When to poll and when to sleep: see spin.h.
#include "peer/spin.h"

#include <algorithm>

namespace perdure::peer {
namespace {

// A gap this many budgets long would have been worth polling through: it contains the time that
// waking up took (45 to 55 us measured on two virtual cores), which polling would have saved.
constexpr int kWorthwhileBudgets = 3;
// Between two polls lie a few hundred nanoseconds; a longer pause means another thread ran.
constexpr Nanoseconds kDescheduledAfter = std::chrono::microseconds{25};
constexpr Nanoseconds kBarredFor = std::chrono::milliseconds{5};

}  // namespace

bool SpinSlots::take() {
  int free = free_.load(std::memory_order_relaxed);
  while (free > 0) {
    if (free_.compare_exchange_weak(free, free - 1, std::memory_order_relaxed)) return true;
  }
  return false;
}

void AdaptiveSpin::found_work() {
  if (!idle_) return;
  idle_ = false;
  if (clock_.now() - idle_since_ < kWorthwhileBudgets * budget_) {
    credit_ = std::min(credit_ + 1, kCreditMax);
  }
}

bool AdaptiveSpin::keep_polling() {
  const Nanoseconds now = clock_.now();
  if (!idle_) {
    idle_ = true;
    idle_since_ = now;
    last_poll_ = now;
    if (!polling_ && credit_ > 0 && budget_.count() > 0 && now >= barred_until_) {
      polling_ = slots_.take();
    }
    return polling_;
  }
  if (!polling_) return false;
  if (now - last_poll_ > kDescheduledAfter) barred_until_ = now + kBarredFor;
  last_poll_ = now;
  if (now - idle_since_ < budget_ && now >= barred_until_) return true;
  credit_ = std::max(credit_ - 1, 0);
  stop();
  return false;
}

void AdaptiveSpin::stop() {
  if (polling_) slots_.give_back();
  polling_ = false;
}

}  // namespace perdure::peer
