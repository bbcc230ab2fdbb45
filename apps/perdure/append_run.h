// AppendRun: feeds records into a log with many tickets open, notices how far each has come, keeps
// the replicas repaired if asked, and knows in the end which records were committed.
#pragma once

#include <perdure/log.h>
#include <perdure/result.h>

#include "core/clock.h"
#include "output.h"
#include "record_source.h"
#include "report/histogram.h"

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace perdure::app {

struct AppendRunOptions {
  std::size_t window = 1024;      // tickets open at a time
  Level level = Level::Durable;   // for which the log was opened
  Nanoseconds commit_timeout{0};  // without any progress for this long: given up
  bool reconnects = false;        // the log brings replicas back: see LogOptions::reconnect
};

/// What a record is called that a quorum has: committed; visible, for example, of a log that was
/// opened for no more than that, of which nothing is ever durable.
inline std::string_view word_on_quorum(Level level) {
  return to_string(level < Level::Durable ? level : Level::Committed);
}

/// Consecutive records, by index, LSN and place in the input.
struct RecordRange {
  std::uint64_t count = 0;
  Ticket first;
  Ticket last;
  InputPlace first_place;
  InputPlace last_place;
};

/// Input that did not become records.
struct Unread {
  InputPlace place;
  bool after = false;  // true: what comes after the place, if anything; false: the place as well
};

/// What became of the input. In a log that was opened for less than durable, durable and committed
/// are that less.
struct AppendOutcome {
  std::uint64_t appended = 0;
  std::uint64_t committed = 0;
  std::uint64_t payload_bytes = 0;
  std::uint64_t empty_lines = 0;
  Nanoseconds elapsed{0};
  report::Histogram durable;  // from append to the program knowing that one replica has it
  report::Histogram committed_latency;
  RecordRange open;  // appended, and not known to be committed: they may be durable or not
  std::optional<Unread> unread;  // the input ended early for us
  std::optional<Error> error;    // why it ended early
  bool interrupted = false;
  std::vector<RepairReport> repairs;
  LogStatus status;

  bool all_committed() const { return open.count == 0 && !unread && !error; }
};

class AppendRun {
 public:
  /// `log` and `source` must outlive it.
  AppendRun(Log& log, RecordSource& source, const AppendRunOptions& options);

  /// Appends until the input ends, a signal asks to stop, or nothing goes on.
  AppendOutcome run();

 private:
  struct OpenRecord {
    Ticket ticket;
    InputPlace place;
    Nanoseconds appended{0};
  };

  /// Done: there will be no more input, or it may not be appended.
  enum class Step { Continue, Done };

  Step take_input();
  Step append(const InputRecord& record);
  void note_reached();
  void await_progress();
  bool stuck() const;
  /// For how long it may be busy with bringing a replica back.
  std::chrono::milliseconds repair_time() const {
    return std::chrono::milliseconds(options_.reconnects ? 2000 : 0);
  }
  bool may_come_back(const Error& error) const;
  void look_around();
  void note_repairs();
  void finish();
  void stop_before_current(const Error& error);

  Log& log_;
  RecordSource& source_;
  const AppendRunOptions options_;
  AppendOutcome outcome_;
  std::deque<OpenRecord> open_;
  std::size_t durable_ = 0;  // of the open ones, how many at the front have the level somewhere
  bool given_up_ = false;    // the log can not go on
  Nanoseconds started_{0};
  Nanoseconds last_progress_{0};
  Nanoseconds last_look_{0};
  StatusLine line_;
};

}  // namespace perdure::app
