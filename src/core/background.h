// Background: work that a silent peer may hold up, by a thread of its own.
#pragma once

#include <perdure/result.h>

#include "core/clock.h"
#include "core/stoppable_clock.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <system_error>

namespace perdure {

/// Threads: one caller at a time.
template <typename T>
class Background {
 public:
  /// Begins `work(clock)`, which returns a Result<T> and waits for nothing but by deadlines of that
  /// clock, with a thread of its own if there is one to be had. `work` is copied. What it refers to
  /// must outlive this object.
  template <typename Work>
  Background(const Clock& clock, const Work& work) : clock_(clock) {
    const auto run = [this, work]() -> Result<T> { return work(clock_); };
    try {
      outcome_ = std::async(std::launch::async, run);
    } catch (const std::system_error&) {  // there is no thread to be had
      outcome_ = std::async(std::launch::deferred, run);
      has_thread_ = false;
    }
  }
  /// Stops it, and waits until its thread has noticed. What has come of it goes.
  ~Background() {
    stop();
    if (outcome_.valid() && !ended()) outcome_.wait();
  }
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  /// It ends soon. Does not wait.
  void stop() { clock_.stop(); }
  /// Else take() does the work, in its caller's time, whatever that has of it.
  bool has_thread() const { return has_thread_; }
  /// Whether it has ended; also where there was no thread: then take() does the work.
  bool ended() const {
    return outcome_.wait_for(std::chrono::seconds(0)) != std::future_status::timeout;
  }
  /// Until it has, or the deadline has passed. Says whether it has.
  bool wait(const Deadline& deadline) const {
    while (!ended() && !deadline.passed()) {
      outcome_.wait_for(std::min(deadline.left(), kDeadlineLookEvery));
    }
    return ended();
  }
  /// What came of it, once. Requires ended().
  Result<T> take() { return outcome_.get(); }

 private:
  StoppableClock clock_;
  bool has_thread_ = true;
  std::future<Result<T>> outcome_;
};

}  // namespace perdure
