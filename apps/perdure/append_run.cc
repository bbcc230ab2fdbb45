// The loop of `perdure log append`. All progress is made in calls of the log, so it never blocks on
// the input while records are in flight.
#include "append_run.h"

#include "core/byte_text.h"
#include "core/counted.h"
#include "peer_options.h"
#include "signals.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <chrono>

namespace perdure::app {
namespace {

using std::chrono::milliseconds;

constexpr Nanoseconds kLookEvery = milliseconds(100);
constexpr milliseconds kWaitSlice(50);
constexpr int kInputWaitMs = 100;
constexpr int kLostWaitMs = 1;  // before the next try while the quorum is lost
// What a replica beyond the quorum gets at the end, so that the next writer need not repair it.
constexpr milliseconds kSettleTime(500);

Nanoseconds now() { return Clock::monotonic().now(); }

}  // namespace

AppendRun::AppendRun(Log& log, RecordSource& source, const AppendRunOptions& options)
    : log_(log), source_(source), options_(options) {}

AppendOutcome AppendRun::run() {
  started_ = last_progress_ = last_look_ = now();
  while (take_input() == Step::Continue) look_around();
  while (!open_.empty() && !stuck() && signals_received() < 2) {
    await_progress();
    look_around();
  }
  finish();
  return std::move(outcome_);
}

AppendRun::Step AppendRun::take_input() {
  if (signals_received() > 0) {
    outcome_.interrupted = true;
    return Step::Done;
  }
  if (open_.size() >= options_.window) {
    await_progress();
    if (!stuck()) return Step::Continue;
    outcome_.unread = Unread{source_.place(), true};
    return Step::Done;
  }
  const auto state = source_.next();
  if (!state.ok()) {
    stop_before_current(state.error());
    return Step::Done;
  }
  switch (*state) {
    case RecordSource::State::Record: return append(source_.record());
    case RecordSource::State::End: return Step::Done;
    case RecordSource::State::Wait: break;
  }
  if (!open_.empty()) {
    await_progress();
    if (!stuck()) return Step::Continue;
    outcome_.unread = Unread{source_.place(), true};
    return Step::Done;
  }
  last_progress_ = now();  // nothing is owed while the input is silent
  source_.wait(kInputWaitMs);
  (void)log_.poll(repair_time());  // what is wrong the next record will say
  return Step::Continue;
}

AppendRun::Step AppendRun::append(const InputRecord& record) {
  while (true) {
    const Nanoseconds at = now();
    const auto ticket = log_.append(record.bytes);
    if (ticket.ok()) {
      open_.push_back({*ticket, record.place, at});
      ++outcome_.appended;
      outcome_.payload_bytes += record.bytes.size();
      if (open_.size() == 1) last_progress_ = at;
      // An error comes again from the next append or wait, where it is dealt with.
      (void)log_.poll();
      note_reached();
      return Step::Continue;
    }
    const bool slow = ticket.code() == ErrorCode::TimedOut;
    if (signals_received() > 0 || (!slow && !may_come_back(ticket.error())) || stuck()) {
      stop_before_current(ticket.error());
      return Step::Done;
    }
    if (!slow) (void)::poll(nullptr, 0, kLostWaitMs);
    (void)log_.poll(repair_time());
    note_reached();
  }
}

/// The records at the front that came further since the last look.
void AppendRun::note_reached() {
  note_repairs();
  const auto on_one = [this] {
    return durable_ < open_.size() && log_.reached(open_[durable_].ticket, options_.level);
  };
  const auto on_quorum = [this] {
    return !open_.empty() && open_.front().ticket.end <= log_.committed();
  };
  if (!on_one() && !on_quorum()) return;
  last_progress_ = now();
  while (on_one()) {
    outcome_.durable.add(last_progress_ - open_[durable_].appended);
    ++durable_;
  }
  while (on_quorum()) {
    outcome_.committed_latency.add(last_progress_ - open_.front().appended);
    ++outcome_.committed;
    open_.pop_front();
    --durable_;
  }
}

/// Waits for whatever comes next: a record durable on one replica, or committed.
void AppendRun::await_progress() {
  // Bringing a replica back happens in there, and must have its time.
  const auto wait_ms = std::max(kWaitSlice, repair_time());
  Result<void> waited;
  if (options_.level < Level::Durable) {
    // Its quorum can be asked about, not waited for: see Log::committed.
    waited = log_.poll(repair_time());
  } else if (durable_ < open_.size()) {
    waited = log_.wait(open_[durable_].ticket, Level::Durable, wait_ms);
  } else {
    waited = log_.wait(open_.front().ticket, Level::Committed, wait_ms);
  }
  note_reached();
  if (waited.ok() || waited.code() == ErrorCode::TimedOut) return;
  if (may_come_back(waited.error())) {
    (void)::poll(nullptr, 0, kLostWaitMs);
    return;
  }
  given_up_ = true;
  if (!outcome_.error) outcome_.error = waited.error();
}

/// Whether there is no hope that the open records get on.
bool AppendRun::stuck() const {
  return given_up_ || now() - last_progress_ > options_.commit_timeout;
}

/// Whether it makes sense to go on after `error`: a quorum may come back, a newer writer stays.
bool AppendRun::may_come_back(const Error& error) const {
  return error.code == ErrorCode::QuorumLost && options_.reconnects;
}

/// What is not needed for every record: the line on the terminal, and replicas that are down.
void AppendRun::look_around() {
  const Nanoseconds at = now();
  if (at - last_look_ < kLookEvery) return;
  last_look_ = at;
  if (!line_.visible()) return;
  const LogStatus status = log_.status();
  const auto up = static_cast<std::size_t>(
      std::count_if(status.replicas.begin(), status.replicas.end(),
                    [](const ReplicaStatus& replica) { return replica.up; }));
  line_.show(fmt::format("{}, {}, {:.0f} records/s, {} {}, {} of {} replicas up",
                         counted(outcome_.appended, "record"), format_bytes(outcome_.payload_bytes),
                         static_cast<double>(outcome_.appended) / to_seconds(at - started_),
                         outcome_.committed, word_on_quorum(options_.level), up,
                         status.replicas.size()));
}

void AppendRun::note_repairs() {
  for (RepairReport& report : log_.take_repairs()) {
    print_warning(fmt::format("{} is back: {}, {} copied", report.peer,
                              report.found.empty() ? "it lacked nothing" : report.found,
                              format_bytes(report.copied_bytes)));
    outcome_.repairs.push_back(std::move(report));
    last_progress_ = now();
  }
}

/// The input from its present record on was not appended.
void AppendRun::stop_before_current(const Error& error) {
  outcome_.unread = Unread{source_.place(), false};
  outcome_.error = error;
}

void AppendRun::finish() {
  line_.clear();
  outcome_.elapsed = now() - started_;
  outcome_.empty_lines = source_.empty_lines();
  // All is committed: the replicas that are slower than the quorum finish too, and readers know of
  // it. What is not reached is in the status.
  if (open_.empty()) (void)log_.close(kSettleTime);
  outcome_.status = log_.status();
  if (open_.empty()) return;
  RecordRange& range = outcome_.open;
  range.count = open_.size();
  range.first = open_.front().ticket;
  range.last = open_.back().ticket;
  range.first_place = open_.front().place;
  range.last_place = open_.back().place;
  if (!outcome_.error && signals_received() < 2) {
    outcome_.error =
        Error{ErrorCode::TimedOut,
              fmt::format("nothing got {} for {:.1f} s; the replicas may be "
                          "slow or too few: see `perdure log repair`",
                          word_on_quorum(options_.level), to_seconds(options_.commit_timeout))};
  }
}

}  // namespace perdure::app
