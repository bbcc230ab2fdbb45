// Work at the same time: see handler_threads.h.
#include "rpc/handler_threads.h"

#include "core/clock.h"

namespace perdure::rpc {
namespace {

// Whoever waits is told; this bounds how long a word that was missed would take.
constexpr Nanoseconds kLookAgain = std::chrono::seconds(1);

}  // namespace

HandlerThreads::HandlerThreads(std::size_t threads) {
  for (std::size_t thread = 0; thread < threads; ++thread) {
    threads_.emplace_back([this] { work(); });
  }
}

HandlerThreads::~HandlerThreads() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  more_.notify_all();
  for (std::thread& each : threads_) each.join();
}

/// The next piece that nobody has begun.
bool HandlerThreads::take(std::size_t& index) {
  if (piece_ == nullptr || begun_ == count_) return false;
  index = begun_++;
  return true;
}

void HandlerThreads::run(std::size_t count, const std::function<void(std::size_t)>& piece) {
  MutexLock lock(mutex_);
  piece_ = &piece;
  count_ = count;
  begun_ = ended_ = 0;
  more_.notify_all();
  for (std::size_t index = 0; take(index);) {
    {
      const MutexUnlock unlocked(mutex_);
      piece(index);
    }
    ++ended_;
  }
  while (ended_ != count_) lock.wait_for(all_, kLookAgain);
  piece_ = nullptr;
}

void HandlerThreads::work() {
  MutexLock lock(mutex_);
  while (!stopping_) {
    std::size_t index = 0;
    if (!take(index)) {
      lock.wait_for(more_, kLookAgain);
      continue;
    }
    const std::function<void(std::size_t)>& piece = *piece_;
    {
      const MutexUnlock unlocked(mutex_);
      piece(index);
    }
    if (++ended_ == count_) all_.notify_all();
  }
}

}  // namespace perdure::rpc
