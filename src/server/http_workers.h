// HttpWorkers: the threads that answer requests, in two lanes. One that hangs at a medium is made
// up for, so that a hung medium does not silence the control plane.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "core/clock.h"
#include "core/mutex.h"
#include "server/http_listener.h"

namespace perdure::server {

/// A request that is in whole, and its answer once there is one.
struct HttpJob {
  ReceivedRequest request;
  HttpReply reply;
};

/// The work of both lanes, and who does it.
/// Threads: one caller at a time; `wake` is called by the workers, each time one has answered.
class HttpWorkers {
 public:
  using Answer = std::function<HttpReply(const ReceivedRequest&)>;

  HttpWorkers(Answer answer, std::size_t queued_max, std::function<void()> wake)
      : answer_(std::move(answer)), queued_max_(queued_max), wake_(std::move(wake)) {}
  ~HttpWorkers() { stop(); }
  HttpWorkers(const HttpWorkers&) = delete;
  HttpWorkers& operator=(const HttpWorkers&) = delete;

  void start(std::size_t common, std::size_t reserved);
  /// While requests wait that nobody can take, since all who could are stuck, there is one worker
  /// more. To be called again and again.
  void replace_stuck();
  /// What is queued is still answered.
  void stop();

  /// False: too many wait already. The job must outlive its answer.
  bool take(HttpJob& job, Lane lane);
  /// Those that have been answered since it was asked last.
  std::vector<HttpJob*> answered();

 private:
  struct Task {
    const bool only_reserved;
    std::optional<Deadline> until;  // by when its request should be answered; none: it has none
  };

  void add(bool only_reserved);
  HttpJob* next(Task& task);
  void run(Task& task);

  const Answer answer_;
  const std::size_t queued_max_;
  const std::function<void()> wake_;
  Mutex mutex_;
  std::condition_variable something_;
  std::deque<HttpJob*> reserved_ PERDURE_GUARDED_BY(mutex_);
  std::deque<HttpJob*> common_ PERDURE_GUARDED_BY(mutex_);
  std::vector<HttpJob*> answered_ PERDURE_GUARDED_BY(mutex_);
  bool stopping_ PERDURE_GUARDED_BY(mutex_) = false;
  std::vector<std::unique_ptr<Task>> tasks_ PERDURE_GUARDED_BY(mutex_);  // one for each thread
  std::vector<std::thread> threads_ PERDURE_GUARDED_BY(mutex_);
  std::size_t replacements_ = 0;
};

}  // namespace perdure::server
