// MediaWorkers: threads for what may wait for a medium that never answers (a dead disk, a file
// server that is away), such that one pool's medium holds up no other pool.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "core/clock.h"
#include "core/mutex.h"

namespace perdure::server {

/// Threads: one caller at a time.
class MediaWorkers {
 public:
  using Work = std::function<void()>;

  MediaWorkers() = default;
  /// Waits for what was begun.
  ~MediaWorkers();
  MediaWorkers(const MediaWorkers&) = delete;
  MediaWorkers& operator=(const MediaWorkers&) = delete;

  /// Begins every piece of work, in this order, and waits for them until the deadline; what is not
  /// done then goes on. As long as they are quick one thread does them one after another; while
  /// pieces wait and none has been done or begun for kStuckAfter, there is one thread more.
  void run(std::vector<Work> pieces, const Deadline& until);

 private:
  static constexpr Nanoseconds kStuckAfter = std::chrono::milliseconds{100};

  struct Piece {
    Work work;
    std::shared_ptr<std::size_t> left;  // under mutex_: how many are not done, of those of one run
  };

  bool add_thread() PERDURE_REQUIRES(mutex_);
  void run_thread();
  void do_next() PERDURE_REQUIRES(mutex_);
  void join_ended();

  Mutex mutex_;
  std::condition_variable work_;  // there is some; for one thread
  std::condition_variable done_;  // all of a run is
  std::deque<Piece> waiting_ PERDURE_GUARDED_BY(mutex_);
  std::uint64_t moves_ PERDURE_GUARDED_BY(mutex_) = 0;  // pieces begun, and pieces done
  bool idle_ PERDURE_GUARDED_BY(mutex_) = false;        // a thread waits for work; one is enough
  bool stopping_ PERDURE_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_ PERDURE_GUARDED_BY(mutex_);
  std::vector<std::thread::id> ended_ PERDURE_GUARDED_BY(mutex_);  // of threads_: to be joined
};

}  // namespace perdure::server
