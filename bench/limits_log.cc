// Appending to the log whose limits are measured.
#include "bench/limits_log.h"

#include <perdure/log_writer.h>

#include "bench/bare.h"
#include "client/dial.h"
#include "core/assert.h"
#include "core/bytes.h"
#include "core/try.h"
#include "log/log_format.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace perdure::bench {
namespace {

constexpr Nanoseconds kAnswerWithin = std::chrono::seconds(10);
constexpr std::chrono::milliseconds kDurableWithin{30'000};

Result<void> create_pool(const LogUnderTestOptions& options) {
  client::Dialer dialer;
  PERDURE_TRY(choice, control::parse_transport_choice(options.transport));
  PERDURE_TRY(peer, dialer.dial(options.peer, choice));
  const auto created =
      peer->create({options.pool, options.pool_bytes}, Deadline::after(kAnswerWithin));
  if (created.ok() || created.code() == ErrorCode::AlreadyExists) return {};
  return created.error();
}

/// How it is opened, once its pool is there.
Result<LogOptions> to_open(const LogUnderTestOptions& options) {
  PERDURE_TRY_VOID(create_pool(options));
  PERDURE_TRY(transport, control::parse_transport_choice(options.transport));
  LogOptions log = options.log;
  log.peers = {options.peer};
  log.pool = options.pool;
  log.transport = transport;
  log.quorum = 1;
  log.take_over = true;
  return log;
}

}  // namespace

Result<LogUnderTest> LogUnderTest::open(const LogUnderTestOptions& options) {
  PERDURE_TRY(log, to_open(options));
  PERDURE_TRY(opened, Log::open(std::move(log)));
  PERDURE_TRY_VOID(opened.trim(opened.status().tail));  // of an earlier round
  return LogUnderTest(std::move(opened), options);
}

LogUnderTest::LogUnderTest(Log log, const LogUnderTestOptions& options)
    : log_(std::move(log)),
      records_(options.sources, std::vector<std::byte>(options.record_bytes)),
      in_place_(options.in_place) {
  PERDURE_ASSERT(!records_.empty());
  for (std::size_t source = 0; source < records_.size(); ++source) {
    produce(records_[source], source);
  }
  trim_every_ = options.pool_bytes / 2 / log::record_bytes(options.record_bytes);
  PERDURE_ASSERT(trim_every_ > 0);
}

Result<Ticket> LogUnderTest::append() {
  // Half of the ring is always free, so appending never meets a full log.
  if (since_trim_ >= trim_every_) {
    PERDURE_TRY_VOID(log_.wait(last_, Level::Committed, kDurableWithin));
    PERDURE_TRY_VOID(log_.trim(last_.lsn));
    since_trim_ = 0;
  }
  PERDURE_TRY(ticket, append_record());
  last_ = ticket;
  ++since_trim_;
  return ticket;
}

Result<Ticket> LogUnderTest::append_record() {
  const std::uint64_t number = appended_++;
  const std::vector<std::byte>& source = records_[number % records_.size()];
  if (!in_place_) return log_.append(source);
  PERDURE_TRY(room, log_.claim(source.size()));
  produce(room, number);
  return log_.append_claimed(source.size());
}

Result<report::Histogram> LogUnderTest::one_by_one(std::uint64_t count) {
  report::Histogram latencies;
  const Clock& clock = Clock::monotonic();
  for (std::uint64_t i = 0; i < count; ++i) {
    if (since_trim_ >= trim_every_) {
      PERDURE_TRY_VOID(log_.trim(last_.lsn));
      since_trim_ = 0;
    }
    const Nanoseconds begun = clock.now();
    PERDURE_TRY(ticket, append());
    PERDURE_TRY_VOID(log_.wait(ticket, Level::Durable, kDurableWithin));
    latencies.add(clock.now() - begun);
  }
  return latencies;
}

Result<double> LogUnderTest::windowed(std::uint64_t count, std::size_t window) {
  std::vector<Ticket> places(window);
  return windowed(count, std::span(places));
}

Result<double> LogUnderTest::windowed(std::uint64_t count, std::span<Ticket> places) {
  PERDURE_ASSERT(!places.empty());
  const std::size_t window = places.size();
  const Nanoseconds begun = Clock::monotonic().now();
  for (std::uint64_t i = 0; i < count; ++i) {
    if (i >= window) {
      PERDURE_TRY_VOID(log_.wait(places[i % window], Level::Durable, kDurableWithin));
    }
    PERDURE_TRY(ticket, append());
    places[i % window] = ticket;
  }
  PERDURE_TRY_VOID(log_.wait(last_, Level::Durable, kDurableWithin));
  const Nanoseconds took = Clock::monotonic().now() - begun;
  return static_cast<double>(count) * 1e9 /
         static_cast<double>(std::max<std::int64_t>(took.count(), 1));
}

Result<double> turns_of_threads(std::uint64_t count, std::size_t threads) {
  PERDURE_ASSERT(threads > 0);
  std::mutex mutex;
  std::vector<std::condition_variable> woken(threads);
  std::uint64_t turn = 0;
  std::vector<std::thread> takers;
  const Nanoseconds begun = Clock::monotonic().now();
  for (std::size_t thread = 0; thread < threads; ++thread) {
    takers.emplace_back([&, thread] {
      std::unique_lock lock(mutex);
      for (std::uint64_t own = thread; own < count; own += threads) {
        woken[thread].wait(lock, [&] { return turn == own; });
        ++turn;
        woken[turn % threads].notify_one();
      }
    });
  }
  for (std::thread& taker : takers) taker.join();
  const Nanoseconds took = Clock::monotonic().now() - begun;
  return static_cast<double>(count) * 1e9 /
         static_cast<double>(std::max<std::int64_t>(took.count(), 1));
}

Result<double> committed_by_threads(const LogUnderTestOptions& options, std::uint64_t count,
                                    std::size_t threads) {
  PERDURE_ASSERT(threads > 0);
  PERDURE_TRY(log, to_open(options));
  PERDURE_TRY(writer, LogWriter::open(std::move(log)));
  Result<void> trimmed;
  PERDURE_TRY_VOID(writer.with_log([&](Log& whole) { trimmed = whole.trim(whole.status().tail); }));
  PERDURE_TRY_VOID(std::move(trimmed));
  const std::vector<std::byte> record(options.record_bytes, std::byte{0x5a});
  std::vector<std::thread> callers;
  std::vector<Result<void>> outcomes(threads);
  const Nanoseconds begun = Clock::monotonic().now();
  for (std::size_t thread = 0; thread < threads; ++thread) {
    callers.emplace_back([&, thread] {
      for (std::uint64_t i = thread; i < count && outcomes[thread].ok(); i += threads) {
        const auto ticket = writer.commit(record, Level::Durable, kDurableWithin);
        if (!ticket.ok()) outcomes[thread] = ticket.error();
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  const Nanoseconds took = Clock::monotonic().now() - begun;
  for (const auto& outcome : outcomes) PERDURE_TRY_VOID(outcome);
  PERDURE_TRY_VOID(writer.close());
  return static_cast<double>(count) * 1e9 /
         static_cast<double>(std::max<std::int64_t>(took.count(), 1));
}

}  // namespace perdure::bench
