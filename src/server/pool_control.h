// PoolControl: who changes a pool, one at a time; and that nobody waits long for another.
//
// Whoever holds it may be waiting for the pool's medium, and a medium may never answer (a dead
// disk, a file server that is away). The threads that answer requests are few, and serve all pools:
// one of them is lost to such a medium, not all.
#pragma once

#include <condition_variable>
#include <utility>

#include "core/clock.h"
#include "core/mutex.h"

namespace perdure::server {

/// A request waits so long for the one before it; a legal change of a pool is quicker, except for
/// making a large one and for ending sessions that are stuck.
inline constexpr Nanoseconds kControlWithin = std::chrono::seconds{1};

/// Threads: any.
class PoolControl {
 public:
  /// Waits until nobody has it, at most until somebody has had it for `within`; false: that long.
  /// One who comes when it has been held for longer does not wait at all.
  bool take(Nanoseconds within) {
    MutexLock lock(mutex_);
    while (taken_) {
      const Nanoseconds held = Clock::monotonic().now() - since_;
      if (held >= within) return false;
      lock.wait_for(given_, within - held);
    }
    taken_ = true;
    since_ = Clock::monotonic().now();
    return true;
  }
  void give() {
    {
      const MutexLock lock(mutex_);
      taken_ = false;
    }
    given_.notify_one();
  }
  /// For how long it has been held by whoever has it now; zero: nobody has it.
  Nanoseconds held() const {
    const MutexLock lock(mutex_);
    return taken_ ? Clock::monotonic().now() - since_ : Nanoseconds{0};
  }

 private:
  mutable Mutex mutex_;
  std::condition_variable given_;
  bool taken_ PERDURE_GUARDED_BY(mutex_) = false;
  // The machine's clock: this waits for threads, not for anything that a test could simulate.
  Nanoseconds since_ PERDURE_GUARDED_BY(mutex_){0};
};

/// Gives a taken PoolControl back at the end of a scope.
class PoolHold {
 public:
  explicit PoolHold(PoolControl& taken) : control_(&taken) {}
  PoolHold(PoolHold&& other) noexcept : control_(std::exchange(other.control_, nullptr)) {}
  PoolHold& operator=(PoolHold&&) = delete;
  ~PoolHold() { give(); }

  /// Before the end of the scope. Harmless when repeated.
  void give() {
    if (control_ != nullptr) std::exchange(control_, nullptr)->give();
  }

 private:
  PoolControl* control_;
};

}  // namespace perdure::server
