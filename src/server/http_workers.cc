#include "server/http_workers.h"

#include <fmt/format.h>

#include <system_error>
#include <utility>

#include "core/log_message.h"

namespace perdure::server {
namespace {

/// A worker that has been at one request this long may be waiting for a medium that never
/// answers.
constexpr Nanoseconds kStuckAfter = std::chrono::seconds{1};
/// Workers that take the place of such ones, at most: as many media may hang at a time.
constexpr std::size_t kReplacementsMax = 32;

}  // namespace

void HttpWorkers::start(std::size_t common, std::size_t reserved) {
  for (std::size_t i = 0; i < common + reserved; ++i) add(i >= common);
}

void HttpWorkers::replace_stuck() {
  bool common = false;
  bool reserved = false;
  {
    const MutexLock lock(mutex_);
    if (stopping_ || (reserved_.empty() && common_.empty())) return;
    bool common_stuck = true;
    bool all_stuck = true;
    for (const auto& each : tasks_) {
      const bool stuck = each->until && each->until->passed();
      all_stuck = all_stuck && stuck;
      if (!each->only_reserved) common_stuck = common_stuck && stuck;
    }
    reserved = !reserved_.empty() && all_stuck;
    common = !common_.empty() && common_stuck && !reserved;
  }
  if ((!common && !reserved) || replacements_ == kReplacementsMax) return;
  ++replacements_;
  log_message(Severity::Warning,
              fmt::format("every thread that could answer a request has been at one for over a "
                          "second; here is one more ({} of {} at most)",
                          replacements_, kReplacementsMax));
  try {
    add(reserved);
  } catch (const std::system_error& error) {
    log_message(Severity::Error, fmt::format("no thread for it: {}", error.what()));
  }
}

void HttpWorkers::stop() {
  std::vector<std::thread> threads;
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    threads.swap(threads_);
  }
  something_.notify_all();
  for (std::thread& each : threads) each.join();
}

bool HttpWorkers::take(HttpJob& job, Lane lane) {
  {
    const MutexLock lock(mutex_);
    auto& queue = lane == Lane::Reserved ? reserved_ : common_;
    if (queue.size() >= queued_max_ || stopping_) return false;
    queue.push_back(&job);
  }
  something_.notify_all();
  return true;
}

std::vector<HttpJob*> HttpWorkers::answered() {
  const MutexLock lock(mutex_);
  return std::exchange(answered_, {});
}

void HttpWorkers::add(bool only_reserved) {
  const MutexLock lock(mutex_);
  if (stopping_) return;
  auto task = std::make_unique<Task>(Task{only_reserved, {}});
  threads_.emplace_back([this, of = task.get()] { run(*of); });
  tasks_.push_back(std::move(task));
}

/// The next one to answer; nothing when it is time to end.
HttpJob* HttpWorkers::next(Task& task) {
  MutexLock lock(mutex_);
  task.until.reset();
  for (;;) {
    auto& queue = reserved_.empty() && !task.only_reserved ? common_ : reserved_;
    if (!queue.empty()) {
      HttpJob* const first = queue.front();
      queue.pop_front();
      task.until = Deadline::after(kStuckAfter);
      return first;
    }
    if (stopping_) return nullptr;
    lock.wait_for(something_, std::chrono::seconds{1});
  }
}

void HttpWorkers::run(Task& task) {
  while (HttpJob* const job = next(task)) {
    job->reply = answer_(job->request);
    {
      const MutexLock lock(mutex_);
      answered_.push_back(job);
    }
    wake_();
  }
}

}  // namespace perdure::server
