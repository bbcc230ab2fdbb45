// LogUnderTest: a log through the public API, as a program would use it, for measuring its limits.
#pragma once

#include <perdure/log.h>
#include <perdure/result.h>

#include "core/clock.h"
#include "report/histogram.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace perdure::bench {

struct LogUnderTestOptions {
  std::string peer;       // control plane of a perdured
  std::string transport;  // "tcp" or "shm"
  std::string pool;       // created unless it exists
  std::uint64_t pool_bytes = std::uint64_t{64} << 20;
  std::uint64_t record_bytes = 64;
  bool in_place = false;    // records are written where they are sent from: see produce()
  std::size_t sources = 1;  // different records that append() is given in turns
  LogOptions log = {};      // peers, pool, transport and quorum are filled in
};

class LogUnderTest {
 public:
  /// Errors: those of the control plane and of Log::open.
  static Result<LogUnderTest> open(const LogUnderTestOptions& options);

  /// Appends `count` records one after the other, each waited for until it is durable. A full log
  /// is trimmed between two of them.
  Result<report::Histogram> one_by_one(std::uint64_t count);
  /// Appends with `window` in flight; returns records per second.
  Result<double> windowed(std::uint64_t count, std::size_t window);
  /// The same with as many in flight as there are places, and without an allocation of its own.
  Result<double> windowed(std::uint64_t count, std::span<Ticket> places);

  Log& log() { return log_; }
  std::span<const std::byte> record() const { return records_.front(); }

 private:
  LogUnderTest(Log log, const LogUnderTestOptions& options);
  Result<Ticket> append();
  Result<Ticket> append_record();

  Log log_;
  std::vector<std::vector<std::byte>> records_;  // the sources
  bool in_place_ = false;
  std::uint64_t trim_every_ = 0;  // records
  std::uint64_t since_trim_ = 0;
  std::uint64_t appended_ = 0;
  Ticket last_;
};

/// How often in a second so many threads hand a turn on to one another, each asleep until it is its
/// own: what a commit takes at least that wakes who waits for it. Errors: none.
Result<double> turns_of_threads(std::uint64_t count, std::size_t threads);

/// Records per second that so many threads commit, each one after the other, by one LogWriter
/// without a thread of its own. The pool must have room for all.
Result<double> committed_by_threads(const LogUnderTestOptions& options, std::uint64_t count,
                                    std::size_t threads);

}  // namespace perdure::bench
