// AdaptiveSpin: whether a thread that waits for messages should poll on or go to sleep.
// Waking a sleeping core costs about 50 us, so polling pays while messages follow each other
// closely; otherwise it only takes the core away from the sessions that have work.
#pragma once

#include "core/clock.h"

#include <atomic>

namespace perdure::server {

/// How many threads of a process may poll at a time. Shared by all sessions of a service.
class SpinSlots {
 public:
  explicit SpinSlots(int count) : free_(count) {}
  bool take();
  void give_back() { free_.fetch_add(1, std::memory_order_relaxed); }

 private:
  std::atomic<int> free_;
};

/// How often this thread lost its core to another one while it wanted to run.
long thread_preemptions();

/// The state of one thread. After a message it polls for at most `budget`, as long as polling has
/// paid lately; a thread that was descheduled while it polled stops doing so for a while.
/// Threads: one, its own.
class AdaptiveSpin {
 public:
  /// A budget of zero never polls.
  AdaptiveSpin(const Clock& clock, SpinSlots& slots, Nanoseconds budget,
               long (*preemptions)() = thread_preemptions)
      : clock_(clock), slots_(slots), budget_(budget), preemptions_(preemptions) {}
  ~AdaptiveSpin() { stop(); }
  AdaptiveSpin(const AdaptiveSpin&) = delete;
  AdaptiveSpin& operator=(const AdaptiveSpin&) = delete;

  /// There was a message to handle.
  void found_work();
  /// The thread slept, since keep_polling said so, and is awake because something arrived. That may
  /// be no message but one-sided requests, which polling executes without a word; as long as they
  /// keep coming, the thread polls for longer and longer between two looks.
  void woken();
  /// There was nothing to do: true means poll again at once, false means sleep.
  bool keep_polling();

 private:
  void begin(Nanoseconds now);
  bool core_is_wanted(Nanoseconds now);
  void stop();

  const Clock& clock_;
  SpinSlots& slots_;
  const Nanoseconds budget_;
  long (*const preemptions_)();
  long preempted_ = 0;         // preemptions_ when the spin began
  int credit_ = kCreditMax;    // spins that may fail before polling ends
  int stretch_ = 1;            // budgets that a spin may take: more for one-sided requests
  bool idle_ = false;          // between the last message and the next one
  bool polling_ = false;       // holds a slot
  Nanoseconds idle_since_{0};  // when the last message was seen
  Nanoseconds slept_at_{0};    // when keep_polling last said false
  Nanoseconds last_poll_{0};
  Nanoseconds barred_until_{-1};  // no polling before, since the core was wanted by others

  static constexpr int kCreditMax = 8;
};

}  // namespace perdure::server
