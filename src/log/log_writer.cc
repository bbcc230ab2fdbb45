// Commit groups. Callers put records into a queue; whoever holds `leading_` takes what is there,
// appends it, and says of each open record what became of it. That is the writer's own thread, or
// one of the callers that wait: when its own record is finished it hands over to another one.
#include <perdure/log_writer.h>

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <optional>
#include <thread>
#include <utility>

#include "core/clock.h"
#include "core/forks.h"
#include "core/mutex.h"

namespace perdure {
namespace log {

/// How long the one who brings records on sleeps at most: records that come meanwhile wait for
/// that.
constexpr std::chrono::milliseconds kLeaderSleep{1};
/// With nothing to bring on, connections are looked at that often.
constexpr std::chrono::milliseconds kIdleLook{20};
/// Reading the clock costs as much as looking for answers.
constexpr std::uint32_t kRoundsPerClock = 64;
/// What destruction waits for records that are not finished.
constexpr std::chrono::milliseconds kEndWithin = std::chrono::seconds(1);

/// One record, from the call that brought it until it is finished. Shared, since who finishes it
/// still wakes its caller when that has long returned.
struct Submitted {
  std::span<const std::byte> record;
  std::vector<std::byte> copy;  // of a record whose caller does not wait
  Level level = Level::Committed;
  Nanoseconds deadline{0};
  LogWriter::Done done;
  Ticket ticket;
  std::optional<Result<Ticket>> outcome;
  enum State : std::uint32_t { kWaits, kLeads, kFinished };
  std::atomic<std::uint32_t> state{kWaits};

  bool finished() const { return state.load(std::memory_order_acquire) == kFinished; }
};

using Submission = std::shared_ptr<Submitted>;

namespace {

void finish(Submitted& submitted, Result<Ticket> outcome) {
  if (submitted.done) submitted.done(outcome);
  submitted.outcome = std::move(outcome);
  submitted.state.store(Submitted::kFinished, std::memory_order_release);
  submitted.state.notify_one();
}

Error unknown(const Submitted& submitted, std::string_view why) {
  return Error{ErrorCode::OutcomeUnknown,
               fmt::format("it is not known whether record {} will be found again: {}",
                           submitted.ticket.index, why)};
}

Nanoseconds deadline_after(std::chrono::milliseconds timeout) {
  constexpr std::chrono::milliseconds kLongest = std::chrono::hours(24 * 365 * 100);
  return Clock::monotonic().now() + std::clamp(timeout, std::chrono::milliseconds(0), kLongest);
}

}  // namespace
}  // namespace log

using log::Submission;
using log::Submitted;

class LogWriter::State {
 public:
  State(Log log, const LogOptions& how, const LogWriterOptions& options)
      : options_(options),
        level_(std::min(how.level, Level::Durable)),
        spin_(how.spin),
        log_(std::move(log)) {
    event_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (options_.own_thread) thread_ = std::thread([this] { run(); });
  }
  ~State() {
    if (process_ != forks_so_far()) {
      if (thread_.joinable()) thread_.detach();  // there is none in a child
    } else {
      (void)close(log::kEndWithin);
    }
    if (event_ >= 0) ::close(event_);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  Result<void> submit(const Submission& submission) {
    if (process_ != forks_so_far()) {
      return Error{ErrorCode::InvalidArgument,
                   "this writer belongs to the parent process: the child opens one of its own"};
    }
    const bool told = submission->level == level_ ||
                      (submission->level == Level::Committed && level_ == Level::Durable);
    if (!told) {
      return Error{ErrorCode::Unsupported,
                   fmt::format("a writer that was opened for '{}' does not know when a record is "
                               "'{}'",
                               to_string(level_), to_string(submission->level))};
    }
    const MutexLock lock(queue_mutex_);
    if (closing_) return Error{ErrorCode::InvalidArgument, "this writer is closed: open it again"};
    if (unfinished_ == options_.records_max) {
      return Error{ErrorCode::QueueFull,
                   fmt::format("{} records are not finished yet", options_.records_max)};
    }
    ++unfinished_;
    queue_.push_back(submission);
    if (options_.own_thread) queued_.notify_one();
    return {};
  }

  /// Returns once the record is finished, and brings everybody's on meanwhile if nobody else does.
  void await(const Submission& own) {
    while (!own->finished()) {
      if (!options_.own_thread && leading_.try_lock()) {
        lead(*own);
        hand_over();
        leading_.unlock();
        continue;
      }
      own->state.wait(Submitted::kWaits, std::memory_order_acquire);
      std::uint32_t leads = Submitted::kLeads;
      if (!own->state.compare_exchange_strong(leads, Submitted::kWaits)) continue;
      // Whoever said so still holds it, and lets go of it now.
      leading_.lock();
      if (!own->finished()) lead(*own);
      hand_over();
      leading_.unlock();
    }
  }

  void poll() {
    if (!leading_.try_lock()) return;
    step();
    hand_over();
    leading_.unlock();
  }

  void with_log(const std::function<void(Log&)>& use) {
    ++wanted_;
    leading_.lock();
    --wanted_;
    use(log_);
    hand_over();
    leading_.unlock();
  }

  void note_completed(std::uint64_t tag, const Result<Ticket>& outcome) {
    const MutexLock lock(completed_mutex_);
    if (completed_.empty()) {
      const std::uint64_t one = 1;
      (void)!::write(event_, &one, sizeof one);
    }
    completed_.push_back({tag, outcome});
  }
  std::vector<FinishedRecord> take_completed(std::size_t max) {
    const MutexLock lock(completed_mutex_);
    const auto end =
        completed_.begin() + static_cast<std::ptrdiff_t>(std::min(max, completed_.size()));
    std::vector<FinishedRecord> taken(std::make_move_iterator(completed_.begin()),
                                      std::make_move_iterator(end));
    completed_.erase(completed_.begin(), end);
    std::uint64_t count = 0;
    if (completed_.empty()) (void)!::read(event_, &count, sizeof count);
    return taken;
  }
  int event() const { return event_; }

  Result<void> close(std::chrono::milliseconds timeout) {
    {
      const MutexLock lock(queue_mutex_);
      if (closing_) return Error{ErrorCode::InvalidArgument, "this writer is closed"};
      closing_ = true;
      queued_.notify_one();
    }
    if (thread_.joinable()) thread_.join();
    const Nanoseconds deadline = log::deadline_after(timeout);
    leading_.lock();
    while (!idle() && Clock::monotonic().now() < deadline) step();
    const bool all = idle();
    give_up_the_rest();
    const Nanoseconds left = std::max(Nanoseconds{0}, deadline - Clock::monotonic().now());
    auto closed = log_.close(std::chrono::duration_cast<std::chrono::milliseconds>(left));
    leading_.unlock();
    if (!closed.ok() || all) return closed;
    return Error{ErrorCode::TimedOut, "records were left: what becomes of them is not known"};
  }

 private:
  std::deque<Submission>& open_at(Level level) PERDURE_REQUIRES(leading_) {
    return open_[level == Level::Committed ? 1 : 0];
  }
  bool idle() {
    const MutexLock lock(queue_mutex_);
    return unfinished_ == 0;
  }

  void finish(Submitted& submitted, Result<Ticket> outcome) PERDURE_REQUIRES(leading_) {
    {
      const MutexLock lock(queue_mutex_);
      --unfinished_;
    }
    progress_ = true;
    log::finish(submitted, std::move(outcome));
  }

  void take_queue() PERDURE_REQUIRES(leading_) {
    {
      const MutexLock lock(queue_mutex_);
      taken_.swap(queue_);
    }
    for (const Submission& submission : taken_) {
      Submitted& submitted = *submission;
      if (submitted.deadline <= last_look_) {
        finish(submitted, Error{ErrorCode::TimedOut, "it never came to be appended"});
        continue;
      }
      auto ticket = log_.append(submitted.record);
      if (!ticket.ok()) {
        finish(submitted, ticket.error());
        continue;
      }
      submitted.ticket = *ticket;
      submitted.copy = {};
      open_at(submitted.level).push_back(submission);
      progress_ = true;
    }
    taken_.clear();
  }

  void finish_reached() PERDURE_REQUIRES(leading_) {
    for (auto& open : open_) {
      while (!open.empty() && log_.reached(open.front()->ticket, open.front()->level)) {
        const Submission reached = std::move(open.front());
        open.pop_front();
        finish(*reached, reached->ticket);
      }
    }
  }

  void finish_late(Nanoseconds now) PERDURE_REQUIRES(leading_) {
    for (auto& open : open_) {
      std::deque<Submission> left;
      for (Submission& each : open) {
        if (each->deadline > now) {
          left.push_back(std::move(each));
        } else {
          finish(*each, log::unknown(*each, "the time is over, and it may still get there"));
        }
      }
      open.swap(left);
    }
  }

  /// Sleeps until the oldest of them gets on. If they will not, says so of all.
  void await_oldest(std::deque<Submission>& open) PERDURE_REQUIRES(leading_) {
    const Submitted& oldest = *open.front();
    const auto waited = log_.wait(oldest.ticket, oldest.level, log::kLeaderSleep);
    if (waited.ok() || waited.code() == ErrorCode::TimedOut) return;
    while (!open.empty()) {
      const Submission lost = std::move(open.front());
      open.pop_front();
      const bool appended = waited.code() == ErrorCode::OutcomeUnknown;
      finish(*lost, appended ? log::unknown(*lost, waited.error().message) : waited.error());
    }
  }

  /// Everything that can be done without waiting; after a while without progress it sleeps a
  /// little.
  void step() PERDURE_REQUIRES(leading_) {
    progress_ = false;
    take_queue();
    (void)log_.poll();  // what is wrong shows where it is waited for
    finish_reached();
    if (!progress_ && ++rounds_ % log::kRoundsPerClock != 0 && !sleeps_) return;
    const Nanoseconds now = Clock::monotonic().now();
    last_look_ = now;
    if (progress_) {
      last_progress_ = now;
      sleeps_ = false;
      return;
    }
    finish_late(now);
    sleeps_ = now - last_progress_ >= spin_;
    if (!sleeps_) return;
    // Both, since either may be the one that comes next.
    for (auto& open : open_) {
      if (open.empty()) continue;
      await_oldest(open);
      finish_reached();
      if (progress_) return;
    }
  }

  void lead(const Submitted& own) PERDURE_REQUIRES(leading_) {
    while (!own.finished()) {
      step();
      let_others_in();
      // Callers outnumber cores, and what they wait for may be a process of this machine.
      if (!progress_) std::this_thread::yield();
    }
  }

  /// Lets in who wants the log for something else.
  void let_others_in() PERDURE_REQUIRES(leading_) {
    if (wanted_ == 0) return;
    leading_.unlock();
    while (wanted_ != 0) std::this_thread::yield();
    leading_.lock();
  }

  /// One of those that wait goes on with what is left. They are told before `leading_` is let go
  /// of, which they then wait for: nobody who could finish their record comes between.
  void hand_over() PERDURE_REQUIRES(leading_) {
    if (options_.own_thread) return;
    for (auto& open : open_) {
      for (const Submission& each : open) {
        if (tell_to_lead(*each)) return;
      }
    }
    const MutexLock lock(queue_mutex_);
    for (const Submission& each : queue_) {
      if (tell_to_lead(*each)) return;
    }
  }
  static bool tell_to_lead(Submitted& submitted) {
    if (submitted.done) return false;  // nobody waits there
    std::uint32_t waits = Submitted::kWaits;
    if (!submitted.state.compare_exchange_strong(waits, Submitted::kLeads)) return true;
    submitted.state.notify_one();
    return true;
  }

  void give_up_the_rest() PERDURE_REQUIRES(leading_) {
    for (auto& open : open_) {
      for (const Submission& each : open)
        finish(*each, log::unknown(*each, "the writer was closed"));
      open.clear();
    }
    {
      const MutexLock lock(queue_mutex_);
      taken_.swap(queue_);
    }
    for (const Submission& each : taken_) {
      finish(*each, Error{ErrorCode::TimedOut, "the writer was closed; it was not appended"});
    }
    taken_.clear();
  }

  /// The thread of the writer.
  void run() {
    while (true) {
      {
        MutexLock lock(queue_mutex_);
        if (unfinished_ == 0) {
          if (closing_) return;
          lock.wait_for(queued_, log::kIdleLook);
        } else if (closing_) {
          return;  // close goes on with it
        }
      }
      leading_.lock();
      step();
      let_others_in();
      const bool idle = !progress_;
      leading_.unlock();
      if (idle) std::this_thread::yield();
    }
  }

  const LogWriterOptions options_;
  const Level level_;  // the least that the log was opened for
  const Nanoseconds spin_;
  const std::uint32_t process_ = forks_so_far();
  int event_ = -1;

  Mutex leading_;
  Log log_ PERDURE_GUARDED_BY(leading_);
  /// Records that were appended and are not at their level, in the order of the log.
  std::array<std::deque<Submission>, 2> open_ PERDURE_GUARDED_BY(leading_);
  std::vector<Submission> taken_ PERDURE_GUARDED_BY(leading_);
  Nanoseconds last_progress_ PERDURE_GUARDED_BY(leading_){0};
  Nanoseconds last_look_ PERDURE_GUARDED_BY(leading_){0};
  std::uint32_t rounds_ PERDURE_GUARDED_BY(leading_) = 0;
  bool progress_ PERDURE_GUARDED_BY(leading_) = false;
  bool sleeps_ PERDURE_GUARDED_BY(leading_) = false;
  std::atomic<std::uint32_t> wanted_{0};

  Mutex queue_mutex_;
  std::condition_variable queued_;
  std::vector<Submission> queue_ PERDURE_GUARDED_BY(queue_mutex_);
  std::size_t unfinished_ PERDURE_GUARDED_BY(queue_mutex_) = 0;
  bool closing_ PERDURE_GUARDED_BY(queue_mutex_) = false;

  Mutex completed_mutex_;
  std::deque<FinishedRecord> completed_ PERDURE_GUARDED_BY(completed_mutex_);

  std::thread thread_;
};

Result<LogWriter> LogWriter::open(LogOptions log, LogWriterOptions options) {
  if (options.records_max == 0) {
    return Error{ErrorCode::InvalidArgument, "a writer of no records"};
  }
  auto opened = Log::open(log);
  if (!opened.ok()) return opened.error();
  return LogWriter(std::make_unique<State>(std::move(*opened), log, options));
}

LogWriter::LogWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}
LogWriter::LogWriter(LogWriter&&) noexcept = default;
LogWriter& LogWriter::operator=(LogWriter&&) noexcept = default;
LogWriter::~LogWriter() = default;

namespace {

Error writer_moved() { return {ErrorCode::InvalidArgument, "this writer was moved from"}; }

Submission submission_of(std::span<const std::byte> record, Level level,
                         std::chrono::milliseconds timeout) {
  auto submission = std::make_shared<Submitted>();
  submission->record = record;
  submission->level = level;
  submission->deadline = log::deadline_after(timeout);
  return submission;
}

}  // namespace

Result<Ticket> LogWriter::commit(std::span<const std::byte> record, Level level,
                                 std::chrono::milliseconds timeout) {
  if (state_ == nullptr) return writer_moved();
  const Submission submission = submission_of(record, level, timeout);
  if (auto submitted = state_->submit(submission); !submitted) return submitted.error();
  state_->await(submission);
  return *submission->outcome;
}

Result<void> LogWriter::submit(std::span<const std::byte> record, Done done, Level level,
                               std::chrono::milliseconds timeout) {
  if (state_ == nullptr) return writer_moved();
  const Submission submission = submission_of(record, level, timeout);
  submission->copy.assign(record.begin(), record.end());
  submission->record = submission->copy;
  submission->done = done ? std::move(done) : [](const Result<Ticket>&) {};
  return state_->submit(submission);
}

std::future<Result<Ticket>> LogWriter::submit(std::span<const std::byte> record, Level level,
                                              std::chrono::milliseconds timeout) {
  const auto promise = std::make_shared<std::promise<Result<Ticket>>>();
  const auto keep = [promise](const Result<Ticket>& outcome) { promise->set_value(outcome); };
  if (auto submitted = submit(record, keep, level, timeout); !submitted) keep(submitted.error());
  return promise->get_future();
}

Result<void> LogWriter::submit_tagged(std::span<const std::byte> record, std::uint64_t tag,
                                      Level level, std::chrono::milliseconds timeout) {
  if (state_ == nullptr) return writer_moved();
  State* const state = state_.get();
  const auto note = [state, tag](const Result<Ticket>& outcome) {
    state->note_completed(tag, outcome);
  };
  return submit(record, note, level, timeout);
}

int LogWriter::completion_fd() const { return state_ == nullptr ? -1 : state_->event(); }

std::vector<FinishedRecord> LogWriter::take_completed(std::size_t max) {
  if (state_ == nullptr) return {};
  return state_->take_completed(max);
}

void LogWriter::poll() {
  if (state_ != nullptr) state_->poll();
}

void LogWriter::with_log(const std::function<void(Log&)>& use) {
  if (state_ != nullptr) state_->with_log(use);
}

Result<void> LogWriter::close(std::chrono::milliseconds timeout) {
  if (state_ == nullptr) return writer_moved();
  return state_->close(timeout);
}

}  // namespace perdure
