// Opening a large log, and reading as many bytes: see limits_open.h.
#include "bench/limits_open.h"

#include <fmt/format.h>
#include <perdure/log.h>

#include <algorithm>

#include "client/dial.h"
#include "client/remote_bytes.h"
#include "core/assert.h"
#include "core/clock.h"
#include "core/try.h"
#include "fabric/open_device.h"
#include "log/log_format.h"

namespace perdure::bench {
namespace {

constexpr Nanoseconds kPoolAnswersWithin = std::chrono::seconds(30);
constexpr std::chrono::milliseconds kFilledWithin{60'000};
constexpr std::uint64_t kRecordBytes = 64 * 1024;
constexpr std::uint64_t kInFlight = 64;

std::uint64_t records_of(const LogToOpen& log) {
  return log.bytes / log::record_bytes(kRecordBytes);
}

/// Over tcp the first device of a process starts libfabric, which takes a quarter of a second. Both
/// sides open one before their clocks start.
Result<std::unique_ptr<fabric::Device>> open_provider(const LogToOpen& log) {
  PERDURE_TRY(transport, control::parse_transport_choice(log.transport));
  PERDURE_ASSERT(transport.has_value());
  return fabric::open_device(*transport);
}

Result<Log> open(const LogToOpen& log) {
  PERDURE_TRY(transport, control::parse_transport_choice(log.transport));
  LogOptions options;
  options.peers = log.peers;
  options.pool = log.pool;
  options.transport = transport;
  options.take_over = true;
  return Log::open(std::move(options));
}

}  // namespace

Result<void> fill(const LogToOpen& log) {
  PERDURE_TRY(choice, control::parse_transport_choice(log.transport));
  client::Dialer dialer;
  for (const std::string& address : log.peers) {
    PERDURE_TRY(peer, dialer.dial(address, choice));
    // What is not payload: the beginning of the pool, a pad, and what is kept free.
    const std::uint64_t pool_bytes = log.bytes + log.bytes / 64 + (std::uint64_t{4} << 20);
    PERDURE_TRY_VOID(peer->create({log.pool, pool_bytes}, Deadline::after(kPoolAnswersWithin)));
  }
  PERDURE_TRY(opened, open(log));
  const std::vector<std::byte> record(kRecordBytes, std::byte{0x5a});
  std::vector<Ticket> tickets(kInFlight);
  for (std::uint64_t i = 0; i < records_of(log); ++i) {
    Ticket& place = tickets[i % kInFlight];
    if (i >= kInFlight) PERDURE_TRY_VOID(opened.wait(place, Level::Committed, kFilledWithin));
    PERDURE_TRY(ticket, opened.append(record));
    place = ticket;
  }
  return opened.close(kFilledWithin);
}

Result<double> seconds_to_open(const LogToOpen& log) {
  PERDURE_TRY(provider, open_provider(log));
  const Nanoseconds begun = Clock::monotonic().now();
  PERDURE_TRY(opened, open(log));
  const double seconds = to_seconds(Clock::monotonic().now() - begun);
  const LogStatus status = opened.status();
  const bool all = std::all_of(status.replicas.begin(), status.replicas.end(),
                               [](const ReplicaStatus& each) { return each.up; });
  if (all && status.next_index == records_of(log)) return seconds;
  return Error{ErrorCode::Corrupt,
               fmt::format("the log opened with {} records of {}, and {} of its replicas up",
                           status.next_index, records_of(log), all ? "all" : "not all")};
}

Result<double> seconds_to_read(const LogToOpen& log) {
  constexpr std::uint64_t kWindowBytes = 1024 * 1024;
  PERDURE_TRY(choice, control::parse_transport_choice(log.transport));
  PERDURE_TRY(provider, open_provider(log));
  const Nanoseconds begun = Clock::monotonic().now();
  client::Dialer dialer;
  PERDURE_TRY(peer, dialer.dial(log.peers.front(), choice));
  PERDURE_TRY(bytes,
              client::RemoteBytes::open(*peer, log.pool, kPoolAnswersWithin, Clock::monotonic()));
  std::vector<std::byte> window(kWindowBytes);
  PERDURE_ASSERT(bytes->size() >= log.bytes);
  for (std::uint64_t at = 0; at < log.bytes; at += kWindowBytes) {
    const std::uint64_t left = log.bytes - at;
    PERDURE_TRY_VOID(bytes->read(at, std::span(window).first(std::min(left, kWindowBytes))));
  }
  return to_seconds(Clock::monotonic().now() - begun);
}

}  // namespace perdure::bench
