// A mutex that Clang's thread safety analysis understands, and the words to annotate with.
#pragma once

#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define PERDURE_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define PERDURE_THREAD_ANNOTATION(x)
#endif

#define PERDURE_CAPABILITY(x) PERDURE_THREAD_ANNOTATION(capability(x))
#define PERDURE_SCOPED_CAPABILITY PERDURE_THREAD_ANNOTATION(scoped_lockable)
#define PERDURE_GUARDED_BY(x) PERDURE_THREAD_ANNOTATION(guarded_by(x))
#define PERDURE_REQUIRES(...) PERDURE_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define PERDURE_ACQUIRE(...) PERDURE_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define PERDURE_TRY_ACQUIRE(...) PERDURE_THREAD_ANNOTATION(try_acquire_capability(__VA_ARGS__))
#define PERDURE_RELEASE(...) PERDURE_THREAD_ANNOTATION(release_capability(__VA_ARGS__))
#define PERDURE_EXCLUDES(...) PERDURE_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))

namespace perdure {

class PERDURE_CAPABILITY("mutex") Mutex {
 public:
  void lock() PERDURE_ACQUIRE() { mutex_.lock(); }
  bool try_lock() PERDURE_TRY_ACQUIRE(true) { return mutex_.try_lock(); }
  void unlock() PERDURE_RELEASE() { mutex_.unlock(); }

 private:
  friend class MutexLock;
  std::mutex mutex_;
};

/// Holds a Mutex for a scope, and waits on a condition variable with it.
class PERDURE_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) PERDURE_ACQUIRE(mutex) : lock_(mutex.mutex_) {}
  ~MutexLock() PERDURE_RELEASE() {}
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  template <typename Duration>
  void wait_for(std::condition_variable& condition, Duration duration) {
    condition.wait_for(lock_, duration);
  }

 private:
  std::unique_lock<std::mutex> lock_;
};

/// Lets go of a Mutex for a scope within one that holds it.
class PERDURE_SCOPED_CAPABILITY MutexUnlock {
 public:
  explicit MutexUnlock(Mutex& mutex) PERDURE_RELEASE(mutex) : mutex_(mutex) { mutex.unlock(); }
  ~MutexUnlock() PERDURE_RELEASE() { mutex_.lock(); }
  MutexUnlock(const MutexUnlock&) = delete;
  MutexUnlock& operator=(const MutexUnlock&) = delete;

 private:
  Mutex& mutex_;
};

}  // namespace perdure
