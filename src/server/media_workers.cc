#include "server/media_workers.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "core/log_message.h"

namespace perdure::server {

MediaWorkers::~MediaWorkers() {
  std::vector<std::thread> threads;
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    threads.swap(threads_);
  }
  work_.notify_all();
  for (std::thread& each : threads) each.join();
}

void MediaWorkers::run(std::vector<Work> pieces, const Deadline& until) {
  if (pieces.empty()) return;
  join_ended();
  const auto left = std::make_shared<std::size_t>(pieces.size());
  MutexLock lock(mutex_);
  for (Work& each : pieces) waiting_.push_back({std::move(each), left});
  if (threads_.empty() && !add_thread()) do_next();
  work_.notify_one();
  while (*left != 0 && !(waiting_.empty() && until.passed())) {
    const std::uint64_t moves = moves_;
    lock.wait_for(done_, kStuckAfter);
    if (moves_ == moves && !waiting_.empty() && !add_thread()) do_next();
  }
}

bool MediaWorkers::add_thread() {
  try {
    threads_.emplace_back([this] { run_thread(); });
    return true;
  } catch (const std::system_error& error) {
    log_message(Severity::Error,
                fmt::format("no thread to look after one more pool: {}", error.what()));
    return false;
  }
}

void MediaWorkers::run_thread() {
  MutexLock lock(mutex_);
  while (!waiting_.empty() || (!stopping_ && !idle_)) {
    if (!waiting_.empty()) {
      do_next();
      continue;
    }
    idle_ = true;
    lock.wait_for(work_, std::chrono::seconds{10});
    idle_ = false;
  }
  ended_.push_back(std::this_thread::get_id());
}

/// Lets go of the mutex meanwhile.
void MediaWorkers::do_next() {
  Piece piece = std::move(waiting_.front());
  waiting_.pop_front();
  ++moves_;
  {
    const MutexUnlock unlock(mutex_);
    std::exchange(piece.work, nullptr)();
  }
  ++moves_;
  if (--*piece.left == 0) done_.notify_all();
}

void MediaWorkers::join_ended() {
  std::vector<std::thread> ended;
  {
    const MutexLock lock(mutex_);
    for (const std::thread::id id : std::exchange(ended_, {})) {
      const auto found = std::find_if(threads_.begin(), threads_.end(),
                                      [&](const std::thread& each) { return each.get_id() == id; });
      ended.push_back(std::move(*found));
      threads_.erase(found);
    }
  }
  for (std::thread& each : ended) each.join();
}

}  // namespace perdure::server
