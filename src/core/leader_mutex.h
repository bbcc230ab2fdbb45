// LeaderMutex: of the threads that wait for what polling brings, one polls for all (leader and
// followers). What is waited for are numbers that are reached in order.
#pragma once

#include "core/clock.h"
#include "core/mutex.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <optional>
#include <thread>

namespace perdure {

/// With it the polled is used, by whoever has it; one who has it may lead.
class PERDURE_CAPABILITY("mutex") LeaderMutex : public Mutex {
 public:
  /// `clock` must outlive it.
  explicit LeaderMutex(const Clock& clock) : clock_(clock) {}

  /// Whoever leads gives way to those who wait in this. (A MutexLock is not given way to.)
  void lock() PERDURE_ACQUIRE();
  /// The same; calls `look` again and again meanwhile.
  template <typename Look>
  void lock_looking(const Look& look) PERDURE_ACQUIRE() {
    wanting_.fetch_add(1, std::memory_order_relaxed);
    while (!try_lock()) {
      look();
      // tidy-allow(sleep): a mutex that is waited for while something else is looked at.
      std::this_thread::sleep_for(kLook);
    }
    wanting_.fetch_sub(1, std::memory_order_relaxed);
  }
  /// Whether somebody waits for it. A hint.
  bool wanted() const { return wanting_.load(std::memory_order_relaxed) != 0; }

  bool is_led() const PERDURE_REQUIRES(this) { return led_; }
  void begin_leading() PERDURE_REQUIRES(this);
  /// One of those who follow leads next, if any does.
  void end_leading() PERDURE_REQUIRES(this);
  /// By who looks again and again, after each look. Lets those have the mutex who want it, and now
  /// and then the processor those who follow; says whether it did: then others had the mutex
  /// meanwhile.
  bool give_way() PERDURE_REQUIRES(this);
  /// The same at once, by anybody.
  void give_turns() PERDURE_REQUIRES(this);
  /// By whoever has polled: what is reached. Less than before: numbers are counted anew.
  void note_reached(std::uint64_t number) PERDURE_REQUIRES(this);
  /// Those who follow and sleep look again.
  void wake_followers() PERDURE_REQUIRES(this);

  /// While another one leads. Gives up the processor again and again until then, which costs less
  /// than to sleep and be woken where it is not for long; then sleeps, `sleep_max` at most. Returns
  /// when the number may be reached, when nobody leads, or for nothing.
  void follow(std::uint64_t number, Nanoseconds yields_until, Nanoseconds sleep_max)
      PERDURE_REQUIRES(this);

 private:
  static constexpr std::chrono::microseconds kLook{200};

  const Clock& clock_;
  std::atomic<std::uint32_t> wanting_{0};
  /// Both are written under the mutex, and read by those who follow without it, as hints: they look
  /// again under it before they sleep.
  std::atomic<bool> led_{false};
  std::atomic<std::uint64_t> reached_{0};
  std::uint32_t followers_ PERDURE_GUARDED_BY(this) = 0;
  std::uint32_t sleepers_ PERDURE_GUARDED_BY(this) = 0;  // those of them that sleep
  /// The leader, on its processor beside those who follow.
  std::optional<Nanoseconds> alone_since_ PERDURE_GUARDED_BY(this);
  std::condition_variable changed_;
};

/// Holds a LeaderMutex for a scope.
class PERDURE_SCOPED_CAPABILITY LeaderLock {
 public:
  explicit LeaderLock(LeaderMutex& mutex) PERDURE_ACQUIRE(mutex) : mutex_(mutex) { mutex.lock(); }
  ~LeaderLock() PERDURE_RELEASE() { mutex_.unlock(); }
  LeaderLock(const LeaderLock&) = delete;
  LeaderLock& operator=(const LeaderLock&) = delete;

 private:
  LeaderMutex& mutex_;
};

}  // namespace perdure
