// Commit groups. Callers put records into a queue. One at a time leads: takes what is there,
// appends it, and says of each open record what became of it. That is the writer's own thread, or
// one of the callers that wait; when its own record is finished, another one goes on, or the thread
// that the first submit has started, for records that nobody waits for. A caller that is alone
// appends its record itself, past the queue, until it has company or has to sleep. What brings
// records on is noexcept: it holds what belongs to callers of other threads.
#include <perdure/log_writer.h>

#include <fmt/format.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <iterator>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "core/bounded_time.h"
#include "core/clock.h"
#include "core/forks.h"
#include "core/log_message.h"
#include "core/mutex.h"
#include "core/try.h"

namespace perdure {
namespace log {

/// How long who leads sleeps at most: records that come meanwhile wait for that.
constexpr std::chrono::milliseconds kLeaderSleep{1};
/// With nothing to bring on, connections are looked at that often.
constexpr std::chrono::milliseconds kIdleLook{20};
/// What takes longer is looked at that often: replicas that are down (LogOptions::reconnect), and
/// connections that have drifted.
constexpr Nanoseconds kLongLookEvery = std::chrono::milliseconds(10);
/// By the writer's own thread, or while records have nobody who waits for them, so much of it at a
/// time: who closes the writer waits for it, and so does the end of those records' time.
constexpr Nanoseconds kLongLookOfThread = std::chrono::milliseconds(500);
/// Of a leader that is the writer's own thread.
constexpr Nanoseconds kNoDeadline = Nanoseconds::max();
/// What is spent on asking who has taken the log over.
constexpr std::chrono::milliseconds kWhyWithin{1000};
/// Reading the clock costs as much as looking for answers.
constexpr std::uint32_t kRoundsPerClock = 64;
/// What destruction waits for records that are not finished.
constexpr std::chrono::milliseconds kEndWriterWithin{1000};

/// What is to be appended: a record in one piece, in several, or one that is still to be written.
struct Content {
  std::span<const std::byte> record = {};
  std::span<const std::span<const std::byte>> pieces = {};
  const LogWriter::Write* write = nullptr;
  std::uint64_t room = 0;  // for `write`

  std::uint64_t bytes() const {
    std::uint64_t count = record.size() + room;
    for (const auto& piece : pieces) count += piece.size();
    return count;
  }
  Result<Ticket> append_to(Log& log) const {
    if (write == nullptr) return pieces.empty() ? log.append(record) : log.append_pieces(pieces);
    PERDURE_TRY(claimed, log.claim(room));
    std::size_t written = 0;
    try {
      written = (*write)(claimed);
    } catch (...) {
      return Error{ErrorCode::InvalidArgument, "what was to write the record has thrown"};
    }
    return log.append_claimed(written);
  }
};

/// One record, from the call that brought it until it is finished. Shared: its caller may have gone
/// when its time was over.
struct Submitted {
  enum class State { Queued, Appending, Open, Finished };

  Content content;              // not looked at any more once it is open
  std::vector<std::byte> copy;  // of a record whose caller does not wait
  Level level = Level::Committed;
  Nanoseconds deadline{0};
  LogWriter::Done done;  // empty: its caller waits
  Ticket ticket;         // once it is open
  // Under State::mutex_:
  State state = State::Queued;
  bool left = false;  // its caller waits no more: nobody is there to be woken
  std::optional<Result<Ticket>> outcome;
  std::condition_variable changed;
  std::atomic<bool> finished{false};  // there is an outcome
};

using Submission = std::shared_ptr<Submitted>;

namespace {

Error unknown(const Submitted& submitted, std::string_view why) {
  return Error{ErrorCode::OutcomeUnknown,
               fmt::format("it is not known whether record {} will be found again: {}",
                           submitted.ticket.index, why)};
}

Nanoseconds deadline_after(std::chrono::milliseconds timeout) {
  return Clock::monotonic().now() + bounded(timeout);
}

Submission submission_at(Level level, Nanoseconds deadline) {
  auto submission = std::make_shared<Submitted>();
  submission->level = level;
  submission->deadline = deadline;
  return submission;
}

}  // namespace
}  // namespace log

using log::Submission;
using log::Submitted;
using RecordPieces = std::span<const std::span<const std::byte>>;

class LogWriter::State {
 public:
  State(Log log, const LogOptions& how, const LogWriterOptions& options, int event)
      : options_(options),
        level_(std::min(how.level, Level::Durable)),
        spin_(bounded(how.spin)),
        reconnects_(how.reconnect > std::chrono::milliseconds(0)),
        long_look_within_(bounded(how.replica_timeout)),
        event_(event),
        log_(std::move(log)) {}
  ~State() {
    (void)close(log::kEndWriterWithin);
    ::close(event_);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  /// Of which nothing is touched in a child of fork(): its locks and its thread are the parent's.
  bool is_here() const { return process_ == forks_so_far(); }

  /// Errors: SystemError.
  Result<void> start() {
    if (!options_.own_thread) return {};
    const MutexLock lock(mutex_);
    return start_thread();
  }

  /// Errors: Unsupported.
  Result<void> check_level(Level level) const {
    if (level == level_ || (level == Level::Committed && level_ == Level::Durable)) return {};
    return Error{
        ErrorCode::Unsupported,
        fmt::format("a writer that was opened for '{}' does not know when a record is '{}'",
                    to_string(level_), to_string(level))};
  }

  /// Of a caller who finds nobody else here: appends the record past the queue and brings it on by
  /// itself. What commit returns; or a submission that is open, to be waited for; or neither: it is
  /// to be submitted.
  struct Alone {
    std::optional<Result<Ticket>> outcome;
    Submission open;
  };
  Alone commit_alone(const log::Content& content, Level level, Nanoseconds now,
                     Nanoseconds deadline) noexcept {
    const MutexLock lock(mutex_);
    const bool alone = !options_.own_thread && may_lead() && !closing_ && unfinished_ == 0;
    if (!alone || deadline <= now || !check_level(level).ok()) return {};
    // Now and then there is more to be done: step() has that turn.
    if ((rounds_ + 1) % log::kRoundsPerClock == 0) return {};
    ++rounds_;
    const Leading leading(*this);
    ++unfinished_;
    Alone result = append_alone(content, level);
    last_progress_ = now;
    sleeps_ = false;
    if (result.open == nullptr) {
      --unfinished_;
      return result;
    }
    result.open->deadline = deadline;
    open_at(level).push_back(result.open);
    return result;
  }

  Result<void> submit(const Submission& submission) {
    PERDURE_TRY_VOID(check_level(submission->level));
    const MutexLock lock(mutex_);
    if (closing_) return Error{ErrorCode::InvalidArgument, "this writer is closed: open it again"};
    if (unfinished_ == options_.records_max) {
      return Error{ErrorCode::QueueFull,
                   fmt::format("{} records are not finished yet", options_.records_max)};
    }
    const bool unattended = static_cast<bool>(submission->done);
    if (unattended) PERDURE_TRY_VOID(start_thread());
    queue_.push_back(submission);
    ++unfinished_;
    if (unattended) ++unattended_;
    if (options_.own_thread || unattended) queued_.notify_one();
    return {};
  }

  /// The caller waits, so what the record is made of stays.
  Result<Ticket> commit(const log::Content& content, Level level,
                        std::chrono::milliseconds timeout) {
    const Nanoseconds now = Clock::monotonic().now();
    const Nanoseconds deadline = now + bounded(timeout);
    auto alone = commit_alone(content, level, now, deadline);
    if (alone.outcome) return *std::move(alone.outcome);
    if (alone.open) return await(alone.open);
    if (is_user()) return using_it();
    const Submission submission = log::submission_at(level, deadline);
    submission->content = content;
    auto submitted = submit(submission);
    if (!submitted && submitted.code() == ErrorCode::QueueFull) {
      lead_once(deadline, false);  // there may be nobody else who gets the others on
      submitted = submit(submission);
    }
    if (!submitted) return submitted.error();
    return await(submission);
  }

  /// Returns when the record is finished, or its time is over; leads meanwhile if nobody else does.
  Result<Ticket> await(const Submission& own) {
    MutexLock lock(mutex_);
    // Of a record that is open whoever leads sees to that itself.
    const auto too_late_to_begin = [&] {
      return own->state == Submitted::State::Queued && own->deadline <= Clock::monotonic().now();
    };
    bool awake = spin_ > Nanoseconds{0};  // at first
    while (!own->outcome) {
      if (!options_.own_thread && may_lead() && !too_late_to_begin()) {
        lead([&] { return own->outcome || too_late_to_begin(); }, /*may_sleep=*/true,
             own->deadline);
        continue;
      }
      const Nanoseconds left = own->deadline - Clock::monotonic().now();
      if (left > Nanoseconds{0}) {
        if (std::exchange(awake, false)) {
          await_awake(*own);
        } else {
          lock.wait_for(own->changed, left);
        }
        continue;
      }
      // Whoever leads is at something long. What is being appended is waited for all the same.
      if (own->state == Submitted::State::Queued) {
        queue_.erase(std::find(queue_.begin(), queue_.end(), own));
        --unfinished_;
        pass_on();
        return Error{ErrorCode::TimedOut, "it never came to be appended"};
      }
      if (own->state == Submitted::State::Open) {
        own->left = true;
        pass_on();
        return log::unknown(*own, "the time is over, and it may still get there");
      }
      lock.wait_for(own->changed, log::kLeaderSleep);
    }
    return *own->outcome;
  }

  /// With a timeout, what takes longer has its turn, too.
  void poll(std::chrono::milliseconds timeout) {
    lead_once(log::deadline_after(timeout), timeout > std::chrono::milliseconds(0));
  }

  void lead_once(Nanoseconds deadline, bool looks_long) {
    const MutexLock lock(mutex_);
    if (!may_lead()) return;
    if (looks_long) {  // see step()
      rounds_ = log::kRoundsPerClock - 1;
      last_long_look_ = Nanoseconds{0};
    }
    bool once = false;
    lead([&] { return std::exchange(once, true); }, /*may_sleep=*/false, deadline);
  }

  /// Errors: InvalidArgument (inside one).
  Result<void> with_log(const std::function<void(Log&)>& use) {
    if (is_user()) return using_it();
    MutexLock lock(mutex_);
    ++wanted_;
    while (led_) lock.wait_for(free_, log::kIdleLook);
    --wanted_;
    const Leading leading(*this);
    const User user(*this);
    const MutexUnlock unlocked(mutex_);
    use(log_);
    return {};
  }

  void note_completed(std::uint64_t tag, const Result<Ticket>& outcome) {
    const MutexLock lock(completed_mutex_);
    completed_.push_back({tag, outcome});
    const std::uint64_t one = 1;
    (void)!::write(event_, &one, sizeof one);
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
    const Nanoseconds deadline = log::deadline_after(timeout);
    if (is_user()) return using_it();
    {
      const MutexLock lock(mutex_);
      if (closing_) return Error{ErrorCode::InvalidArgument, "this writer is closed"};
      closing_ = true;
      queued_.notify_one();
    }
    if (thread_.joinable()) thread_.join();
    MutexLock lock(mutex_);
    while (led_) lock.wait_for(free_, log::kIdleLook);
    const Leading leading(*this);
    const MutexUnlock unlocked(mutex_);
    while (unfinished_ != 0 && Clock::monotonic().now() < deadline) step(true, deadline);
    const bool all = unfinished_ == 0;
    give_up_the_rest();
    const Nanoseconds left = std::max(Nanoseconds{0}, deadline - Clock::monotonic().now());
    auto closed = log_.close(std::chrono::duration_cast<std::chrono::milliseconds>(left));
    if (!closed.ok() || all) return closed;
    return Error{ErrorCode::TimedOut, "records were left: what becomes of them is not known"};
  }

 private:
  /// Leads from its construction to its destruction, both under mutex_. What the user of the log
  /// throws (with_log) leaves nobody without a leader.
  class Leading {
   public:
    explicit Leading(State& state) : state_(state) { state_.led_ = true; }
    ~Leading() {
      state_.led_ = false;
      state_.wake_next();
    }
    Leading(const Leading&) = delete;
    Leading& operator=(const Leading&) = delete;

   private:
    State& state_;
  };

  /// Whose thread uses the log (with_log), both under mutex_: it would wait for itself.
  class User {
   public:
    explicit User(State& state) : state_(state) { state_.user_ = std::this_thread::get_id(); }
    ~User() { state_.user_ = {}; }
    User(const User&) = delete;
    User& operator=(const User&) = delete;

   private:
    State& state_;
  };
  bool is_user() {
    const MutexLock lock(mutex_);
    return user_ == std::this_thread::get_id();
  }
  static Error using_it() {
    return {ErrorCode::InvalidArgument,
            "this thread uses the writer's log, and the writer waits until it has done so"};
  }

  bool may_lead() const { return !led_ && wanted_ == 0; }

  /// Once. Errors: SystemError.
  Result<void> start_thread() PERDURE_REQUIRES(mutex_) {
    if (thread_.joinable()) return {};
    try {
      thread_ = std::thread([this] { run(); });
    } catch (const std::system_error& failed) {
      return Error{ErrorCode::SystemError,
                   fmt::format("a thread for the writer: {}", failed.what())};
    }
    return {};
  }

  /// Until `ends`, which is asked under mutex_, or somebody wants the log for something else.
  /// `deadline` is the leader's own; the writer's thread has none.
  template <typename Ends>
  void lead(const Ends& ends, bool may_sleep = true, Nanoseconds deadline = log::kNoDeadline)
      PERDURE_REQUIRES(mutex_) {
    const Leading leading(*this);
    while (!ends() && wanted_ == 0) {
      const MutexUnlock unlocked(mutex_);
      step(may_sleep, deadline);
      // Callers may outnumber cores.
      if (!progress_ && may_sleep && unfinished_ > 1) std::this_thread::yield();
    }
  }
  /// When nobody leads: somebody who waits goes on.
  void wake_next() {
    if (wanted_ != 0 || closing_) {
      free_.notify_all();
      if (wanted_ != 0) return;
    }
    if (options_.own_thread) return;
    for (const auto& open : open_) {
      for (const Submission& each : open) {
        if (each->done || each->outcome || each->left) continue;
        return each->changed.notify_one();
      }
    }
    for (const Submission& each : queue_) {
      if (!each->done) return each->changed.notify_one();
    }
    if (unattended_ != 0) queued_.notify_one();
  }

  /// Who was woken to lead may have had no time left to.
  void pass_on() {
    if (may_lead()) wake_next();
  }

  /// See commit_alone. Gives up being alone when somebody else is here, or something is not as it
  /// mostly is.
  Alone append_alone(const log::Content& content, Level level) PERDURE_REQUIRES(mutex_) {
    const MutexUnlock unlocked(mutex_);
    if (log_.append_would_block(content.bytes())) return {};
    const auto ticket = content.append_to(log_);
    if (!ticket.ok()) return {ticket.error(), nullptr};
    bool goes_well = true;
    for (std::uint32_t round = 0; goes_well && round < log::kRoundsPerClock; ++round) {
      if (log_.reached(*ticket, level)) return {ticket, nullptr};
      goes_well = log_.poll().ok() && unfinished_ == 1;
    }
    auto open = std::make_shared<Submitted>();
    open->level = level;
    open->ticket = *ticket;
    open->state = Submitted::State::Open;
    return {std::nullopt, std::move(open)};
  }

  /// While somebody leads, others get the processor: that costs less than to sleep and be woken,
  /// where it is not for long.
  void await_awake(const Submitted& own) PERDURE_REQUIRES(mutex_) {
    const MutexUnlock unlocked(mutex_);
    const Nanoseconds until = std::min(own.deadline, Clock::monotonic().now() + spin_);
    while (led_ && !own.finished && Clock::monotonic().now() < until) std::this_thread::yield();
  }

  // What follows is for who leads, and not under mutex_.

  bool nothing_open() const { return open_[0].empty() && open_[1].empty(); }
  std::deque<Submission>& open_at(Level level) { return open_[level == Level::Committed ? 1 : 0]; }

  void finish(const Submission& submission, Result<Ticket> outcome) {
    Submitted& submitted = *submission;
    if (submitted.done) {
      try {
        submitted.done(outcome);
      } catch (...) {
        log_message(Severity::Error, "what was to be called of a submitted record has thrown");
      }
    }
    const MutexLock lock(mutex_);
    --unfinished_;
    if (submitted.done) --unattended_;
    submitted.state = Submitted::State::Finished;
    submitted.outcome = std::move(outcome);
    submitted.finished = true;
    submitted.changed.notify_one();
  }

  /// Appends what is queued, as long as that goes without waiting: those that are open have
  /// somebody to look after them, and those that are queued have a time of their own.
  void take_queue() {
    held_up_ = false;
    std::optional<Nanoseconds> now;
    while (true) {
      Submission submission;
      {
        const MutexLock lock(mutex_);
        if (queue_.empty()) return;
        submission = queue_.front();
        held_up_ = log_.append_would_block(submission->content.bytes());
        if (held_up_) return;
        queue_.pop_front();
        submission->state = Submitted::State::Appending;
      }
      if (!now) now = Clock::monotonic().now();
      if (submission->deadline <= *now) {
        finish(submission, Error{ErrorCode::TimedOut, "it never came to be appended"});
        continue;
      }
      auto ticket = submission->content.append_to(log_);
      if (!ticket.ok()) {
        finish(submission, ticket.error());
        // It has waited: others may have no more time, or want the log.
        if (ticket.code() == ErrorCode::TimedOut) return;
        continue;
      }
      progress_ = true;
      submission->ticket = *ticket;
      submission->copy = {};
      open_at(submission->level).push_back(submission);
      const MutexLock lock(mutex_);
      submission->state = Submitted::State::Open;
    }
  }

  void finish_reached() {
    for (auto& open : open_) {
      while (!open.empty() && log_.reached(open.front()->ticket, open.front()->level)) {
        const Submission reached = std::move(open.front());
        open.pop_front();
        progress_ = true;
        finish(reached, reached->ticket);
      }
    }
  }

  void finish_late(Nanoseconds now) {
    if (held_up_) finish_late_in_queue(now);
    for (auto& open : open_) {
      std::deque<Submission> left;
      for (Submission& each : open) {
        if (each->deadline > now) {
          left.push_back(std::move(each));
        } else {
          finish(each, log::unknown(*each, "the time is over, and it may still get there"));
        }
      }
      open.swap(left);
    }
  }

  /// Those that nobody waits for: who waits sees to that himself.
  void finish_late_in_queue(Nanoseconds now) {
    std::vector<Submission> late;
    {
      const MutexLock lock(mutex_);
      std::deque<Submission> left;
      for (Submission& each : queue_) {
        const bool over = each->done && each->deadline <= now;
        if (over) each->state = Submitted::State::Appending;
        over ? late.push_back(std::move(each)) : left.push_back(std::move(each));
      }
      queue_.swap(left);
    }
    for (const Submission& each : late) {
      finish(each, Error{ErrorCode::TimedOut, "it never came to be appended"});
    }
  }

  /// For asking who has taken the log over: those that nobody waits for are told in time, too.
  std::chrono::milliseconds time_to_ask(Nanoseconds deadline) {
    const Nanoseconds now = Clock::monotonic().now();
    Nanoseconds until = std::min(deadline, now + Nanoseconds(log::kWhyWithin));
    const auto heed = [&](const std::deque<Submission>& those) {
      for (const Submission& each : those) {
        if (each->done) until = std::min(until, each->deadline);
      }
    };
    for (const auto& open : open_) heed(open);
    const MutexLock lock(mutex_);
    heed(queue_);
    return std::chrono::duration_cast<std::chrono::milliseconds>(
        std::max(Nanoseconds{0}, until - now));
  }

  void finish_all_open(std::string_view why) {
    for (auto& open : open_) {
      for (const Submission& each : std::exchange(open, {})) finish(each, log::unknown(*each, why));
    }
  }

  /// Waits for the oldest record of each level: sleeping, if it is for long. If they will not get
  /// there, says so of all.
  void await_oldest(std::chrono::milliseconds within, Nanoseconds deadline) {
    for (auto& open : open_) {
      if (open.empty()) continue;
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          deadline - Clock::monotonic().now());
      const auto waited = log_.wait(open.front()->ticket, open.front()->level,
                                    std::clamp(left, std::chrono::milliseconds(0), within));
      finish_reached();
      if (!waited.ok() && waited.code() != ErrorCode::TimedOut) {
        return finish_all_open(waited.error().message);
      }
    }
  }

  /// Everything that can be done at once, and now and then, before the deadline, what takes longer:
  /// bringing replicas back, measuring connections that have drifted, asking who has taken the log
  /// over. After a while without progress it sleeps a little, if it may.
  void step(bool may_sleep, Nanoseconds deadline) noexcept {
    progress_ = false;
    take_queue();
    const auto polled = log_.poll();
    finish_reached();
    const bool lost = !polled.ok() && (!reconnects_ || polled.code() == ErrorCode::Fenced);
    const bool asks = !polled.ok() && held_up_;
    const bool stuck = !progress_ && sleeps_;
    if (!lost && !asks && !stuck && ++rounds_ % log::kRoundsPerClock != 0) return;
    const Nanoseconds now = Clock::monotonic().now();
    finish_late(now);
    if (asks) (void)log_.poll(time_to_ask(deadline));  // then append says it at once
    if (lost && !nothing_open()) return await_oldest(time_to_ask(deadline), deadline);
    if (deadline > now && now - last_long_look_ >= log::kLongLookEvery) look_long(now, deadline);
    if (progress_) {
      last_progress_ = now;
      sleeps_ = false;
      return;
    }
    sleeps_ = now - last_progress_ >= spin_;
    if (sleeps_ && may_sleep) await_oldest(log::kLeaderSleep, deadline);
    if (sleeps_ && may_sleep && held_up_ && nothing_open()) {
      MutexLock lock(mutex_);
      lock.wait_for(free_, log::kLeaderSleep);
    }
    if (progress_) sleeps_ = false;
  }

  bool has_unattended() {
    const MutexLock lock(mutex_);
    return unattended_ != 0;
  }

  /// See step(). Briefly where somebody's time, or close, does not wait.
  void look_long(Nanoseconds now, Nanoseconds deadline) {
    last_long_look_ = now;
    const bool briefly = deadline == log::kNoDeadline || has_unattended();
    const Nanoseconds most =
        briefly ? std::min(long_look_within_, log::kLongLookOfThread) : long_look_within_;
    const Nanoseconds left = deadline - Clock::monotonic().now();
    (void)log_.poll(std::chrono::duration_cast<std::chrono::milliseconds>(
        std::clamp(left, Nanoseconds{0}, most)));
  }

  void give_up_the_rest() {
    finish_all_open("the writer was closed");
    while (true) {
      Submission submission;
      {
        const MutexLock lock(mutex_);
        if (queue_.empty()) return;
        submission = queue_.front();
        queue_.pop_front();
        submission->state = Submitted::State::Appending;
      }
      finish(submission, Error{ErrorCode::TimedOut, "the writer was closed; it was not appended"});
    }
  }

  /// Whether there are records for the writer's own thread: any, or any that nobody waits for.
  bool has_records() const { return (options_.own_thread ? unfinished_.load() : unattended_) != 0; }

  /// The thread of the writer.
  void run() {
    ::pthread_setname_np(::pthread_self(), "perdure-writer");
    MutexLock lock(mutex_);
    while (!closing_) {
      if (!may_lead()) {
        lock.wait_for(queued_, has_records() ? log::kLeaderSleep : log::kIdleLook);
        continue;
      }
      if (!has_records()) lock.wait_for(queued_, log::kIdleLook);
      if (closing_ || !may_lead()) continue;
      bool looked = false;
      lead([&] { return closing_ || (std::exchange(looked, true) && !has_records()); });
    }
  }

  const LogWriterOptions options_;
  const Level level_;  // the least that the log was opened for
  const Nanoseconds spin_;
  const bool reconnects_;
  const Nanoseconds long_look_within_;
  const std::uint32_t process_ = forks_so_far();
  const int event_;

  Mutex mutex_;
  std::condition_variable queued_;  // for the writer's own thread
  std::condition_variable free_;    // for who wants the log, and for closing
  std::atomic<bool> led_{false};    // changes under mutex_
  std::size_t wanted_ = 0;          // by so many who do not append
  std::thread::id user_;            // of those the one who has it
  bool closing_ = false;
  std::deque<Submission> queue_;
  std::atomic<std::size_t> unfinished_{0};  // changes under mutex_
  std::size_t unattended_ = 0;              // of those the ones whose caller does not wait

  // Of who leads.
  Log log_;
  /// Records that were appended and are not at their level, in the order of the log. Looked at
  /// under mutex_ as well, when nobody leads.
  std::array<std::deque<Submission>, 2> open_;
  Nanoseconds last_progress_{0};
  Nanoseconds last_long_look_{0};
  std::uint32_t rounds_ = 0;
  bool progress_ = false;
  bool sleeps_ = false;
  bool held_up_ = false;  // the next record, by replicas that have not taken what is there

  Mutex completed_mutex_;
  std::deque<FinishedRecord> completed_ PERDURE_GUARDED_BY(completed_mutex_);

  std::thread thread_;  // begins under mutex_
};

void LogWriter::Delete::operator()(State* state) const {
  // In a child its locks, its thread and its connections are the parent's: all of it stays.
  if (state->is_here()) delete state;
}

Result<LogWriter> LogWriter::open(LogOptions log, LogWriterOptions options) {
  if (options.records_max == 0) {
    return Error{ErrorCode::InvalidArgument, "a writer of no records"};
  }
  auto opened = Log::open(log);
  if (!opened.ok()) return opened.error();
  const int event = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (event < 0) {
    return Error{ErrorCode::SystemError,
                 fmt::format("eventfd: {}", std::generic_category().message(errno))};
  }
  std::unique_ptr<State, Delete> state(new State(std::move(*opened), log, options, event));
  PERDURE_TRY_VOID(state->start());
  return LogWriter(std::move(state));
}

LogWriter::LogWriter(std::unique_ptr<State, Delete> state) : state_(std::move(state)) {}
LogWriter::LogWriter(LogWriter&&) noexcept = default;
LogWriter& LogWriter::operator=(LogWriter&&) noexcept = default;
LogWriter::~LogWriter() = default;

Result<void> LogWriter::usable() const {
  if (state_ == nullptr) return Error{ErrorCode::InvalidArgument, "this writer was moved from"};
  if (state_->is_here()) return {};
  return Error{
      ErrorCode::InvalidArgument,
      "this writer belongs to the parent process: after fork() the child opens one of its own"};
}

Result<Ticket> LogWriter::commit(std::span<const std::byte> record, Level level,
                                 std::chrono::milliseconds timeout) {
  PERDURE_TRY_VOID(usable());
  return state_->commit({.record = record}, level, timeout);
}

Result<Ticket> LogWriter::commit(RecordPieces pieces, Level level,
                                 std::chrono::milliseconds timeout) {
  PERDURE_TRY_VOID(usable());
  return state_->commit({.pieces = pieces}, level, timeout);
}

Result<Ticket> LogWriter::commit_in_place(std::uint64_t bytes, const Write& write, Level level,
                                          std::chrono::milliseconds timeout) {
  if (!write) return Error{ErrorCode::InvalidArgument, "nothing is there to write the record"};
  PERDURE_TRY_VOID(usable());
  return state_->commit({.write = &write, .room = bytes}, level, timeout);
}

Result<void> LogWriter::submit(std::span<const std::byte> record, Done done, Level level,
                               std::chrono::milliseconds timeout) {
  return submit(RecordPieces(&record, 1), std::move(done), level, timeout);
}

Result<void> LogWriter::submit(RecordPieces pieces, Done done, Level level,
                               std::chrono::milliseconds timeout) {
  if (auto here = usable(); !here) return here;
  const Submission submission = log::submission_at(level, log::deadline_after(timeout));
  std::size_t bytes = 0;
  for (const std::span<const std::byte> piece : pieces) bytes += piece.size();
  submission->copy.reserve(bytes);
  for (const std::span<const std::byte> piece : pieces) {
    submission->copy.insert(submission->copy.end(), piece.begin(), piece.end());
  }
  submission->content.record = submission->copy;
  submission->done = done ? std::move(done) : [](const Result<Ticket>&) {};
  return state_->submit(submission);
}

std::future<Result<Ticket>> LogWriter::submit(std::span<const std::byte> record, Level level,
                                              std::chrono::milliseconds timeout) {
  return submit(RecordPieces(&record, 1), level, timeout);
}

std::future<Result<Ticket>> LogWriter::submit(RecordPieces pieces, Level level,
                                              std::chrono::milliseconds timeout) {
  const auto promise = std::make_shared<std::promise<Result<Ticket>>>();
  const auto keep = [promise](const Result<Ticket>& outcome) { promise->set_value(outcome); };
  if (auto submitted = submit(pieces, keep, level, timeout); !submitted) keep(submitted.error());
  return promise->get_future();
}

Result<void> LogWriter::submit_tagged(std::span<const std::byte> record, std::uint64_t tag,
                                      Level level, std::chrono::milliseconds timeout) {
  return submit_tagged(RecordPieces(&record, 1), tag, level, timeout);
}

Result<void> LogWriter::submit_tagged(RecordPieces pieces, std::uint64_t tag, Level level,
                                      std::chrono::milliseconds timeout) {
  State* const state = state_.get();
  const auto note = [state, tag](const Result<Ticket>& outcome) {
    state->note_completed(tag, outcome);
  };
  return submit(pieces, note, level, timeout);
}

int LogWriter::completion_fd() const { return usable().ok() ? state_->event() : -1; }

std::vector<FinishedRecord> LogWriter::take_completed(std::size_t max) {
  if (!usable().ok()) return {};
  return state_->take_completed(max);
}

void LogWriter::poll(std::chrono::milliseconds timeout) {
  if (usable().ok()) state_->poll(timeout);
}

Result<void> LogWriter::with_log(const std::function<void(Log&)>& use) {
  if (auto here = usable(); !here) return here;
  return state_->with_log(use);
}

Result<void> LogWriter::close(std::chrono::milliseconds timeout) {
  if (auto here = usable(); !here) return here;
  return state_->close(timeout);
}

}  // namespace perdure
