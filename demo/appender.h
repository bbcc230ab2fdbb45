// Appender: appends the records of a text to a log with many in flight, and measures how long each
// takes to be durable on one replica and to be committed.
#pragma once

#include <perdure/result.h>

#include "demo/text.h"
#include "log/replicated_log.h"
#include "report/histogram.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace perdure::demo {

/// Latencies from the call of append.
struct Latencies {
  report::Histogram durable;    // on one replica
  report::Histogram committed;  // on the quorum
};

class Appender {
 public:
  /// Goes on with record `first` of the text. Log, text and clock must outlive it.
  Appender(log::ReplicatedLog& log, const RecordText& text, const Clock& clock,
           std::uint64_t first = 0);

  /// Called now and then while something is in flight, also while waiting.
  void watch(std::function<void()> look) { look_ = std::move(look); }
  /// Where latencies of records appended from now on are counted. Requires nothing in flight.
  void measure_into(Latencies& latencies);

  /// Appends one record; waits before until fewer than `window` are in flight.
  /// Errors: those of the log; SystemError when interrupted.
  Result<void> append(std::size_t window);
  /// Waits until all are committed. Errors: as append.
  Result<void> drain();

  // Numbers of records since record 0 of the text.
  std::uint64_t appended() const { return appended_; }
  std::uint64_t durable() const { return durable_; }
  std::uint64_t committed() const { return committed_; }

  static constexpr std::size_t kWindowMax = 4096;

 private:
  struct Flight {
    Ticket ticket;
    Nanoseconds begun{0};
  };
  const Flight& flight(std::uint64_t number) const { return flights_[number % kWindowMax]; }
  Result<void> make_progress();
  void take_answers();

  log::ReplicatedLog& log_;
  const RecordText& text_;
  const Clock& clock_;
  std::function<void()> look_;
  Latencies* latencies_ = nullptr;
  std::vector<Flight> flights_;
  std::uint64_t appended_ = 0;
  std::uint64_t durable_ = 0;
  std::uint64_t committed_ = 0;
  std::uint32_t idle_rounds_ = 0;
};

}  // namespace perdure::demo
