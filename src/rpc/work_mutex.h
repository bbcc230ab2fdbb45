// WorkMutex: who has it executes calls, which takes as long as their handlers do. Who needs it for
// something short waits no longer than a given time, and has its turn between two transactions.
#pragma once

#include "core/clock.h"
#include "core/mutex.h"
#include "fabric/fabric.h"

#include <atomic>
#include <condition_variable>
#include <mutex>

namespace perdure::rpc {

class PERDURE_CAPABILITY("mutex") WorkMutex {
 public:
  void lock() PERDURE_ACQUIRE() {
    MutexLock lock(mutex_);
    while (taken_) lock.wait_for(free_, kLookAgain);
    taken_ = true;
  }
  /// For who executes again and again: lets those go first who wait within a time.
  void lock_again() PERDURE_ACQUIRE() {
    if (waiting_.load(std::memory_order_relaxed) != 0) fabric::wait_any({}, kTurn);
    lock();
  }
  /// No: somebody has it, or waits for it.
  bool try_lock() PERDURE_TRY_ACQUIRE(true) {
    if (waiting_.load(std::memory_order_relaxed) != 0) return false;
    const MutexLock lock(mutex_);
    if (taken_) return false;
    taken_ = true;
    return true;
  }
  bool lock_within(Nanoseconds time) PERDURE_TRY_ACQUIRE(true) {
    const Deadline deadline = Deadline::after(time);  // the machine's clock: it waits for a thread
    waiting_.fetch_add(1, std::memory_order_relaxed);
    MutexLock lock(mutex_);
    while (taken_ && !deadline.passed()) lock.wait_for(free_, deadline.left());
    waiting_.fetch_sub(1, std::memory_order_relaxed);
    if (taken_) return false;
    taken_ = true;
    return true;
  }
  void unlock() PERDURE_RELEASE() {
    {
      const MutexLock lock(mutex_);
      taken_ = false;
    }
    free_.notify_one();
  }

 private:
  static constexpr Nanoseconds kTurn = std::chrono::microseconds(200);
  static constexpr Nanoseconds kLookAgain = std::chrono::seconds(1);

  Mutex mutex_;  // never for long
  bool taken_ PERDURE_GUARDED_BY(mutex_) = false;
  std::condition_variable free_;
  std::atomic<int> waiting_{0};
};

/// Holds it for a scope.
class PERDURE_SCOPED_CAPABILITY WorkLock {
 public:
  explicit WorkLock(WorkMutex& mutex) PERDURE_ACQUIRE(mutex) : mutex_(mutex) { mutex.lock(); }
  /// Of one that is locked already.
  WorkLock(WorkMutex& mutex, std::adopt_lock_t) PERDURE_REQUIRES(mutex) : mutex_(mutex) {}
  ~WorkLock() PERDURE_RELEASE() { mutex_.unlock(); }
  WorkLock(const WorkLock&) = delete;
  WorkLock& operator=(const WorkLock&) = delete;

 private:
  WorkMutex& mutex_;
};

}  // namespace perdure::rpc
