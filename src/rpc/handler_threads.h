// HandlerThreads: pieces of work that are done at the same time, by the caller and threads that
// wait for the next ones.
#pragma once

#include "core/mutex.h"

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <thread>
#include <vector>

namespace perdure::rpc {

/// Threads: one caller at a time.
class HandlerThreads {
 public:
  /// So many, beside the caller. They sleep while there is nothing to do.
  explicit HandlerThreads(std::size_t threads);
  ~HandlerThreads();
  HandlerThreads(const HandlerThreads&) = delete;
  HandlerThreads& operator=(const HandlerThreads&) = delete;

  /// Does piece(0) .. piece(count - 1), each once, and returns when all have ended. What one stores
  /// the caller sees, and what the caller has stored each sees. A piece must not throw.
  void run(std::size_t count, const std::function<void(std::size_t)>& piece);

 private:
  void work();
  bool take(std::size_t& index) PERDURE_REQUIRES(mutex_);

  Mutex mutex_;
  const std::function<void(std::size_t)>* piece_ PERDURE_GUARDED_BY(mutex_) = nullptr;
  std::size_t count_ PERDURE_GUARDED_BY(mutex_) = 0;
  std::size_t begun_ PERDURE_GUARDED_BY(mutex_) = 0;
  std::size_t ended_ PERDURE_GUARDED_BY(mutex_) = 0;
  bool stopping_ PERDURE_GUARDED_BY(mutex_) = false;
  std::condition_variable more_;
  std::condition_variable all_;
  std::vector<std::thread> threads_;
};

}  // namespace perdure::rpc
