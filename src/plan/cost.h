// CostModel: what the parts of a method cost on one connection, and what a method costs by them.
// The defaults are for a start; a connection that has been measured brings its own numbers.
#pragma once

#include "core/method.h"

#include <cstdint>
#include <string_view>

namespace perdure::plan {

/// All costs in nanoseconds. A round trip is from posting to the completion or reply, 64 bytes,
/// both sides polling.
struct CostModel {
  double message_round_trip_ns = 0;  // SEND, reply by the responder's CPU
  double write_round_trip_ns = 0;  // WRITE, its completion (transports that do not complete early)
  double read_round_trip_ns = 0;   // READ or FLUSH, its completion
  double extra_post_ns = 0;        // each further request that is posted before the wait
  double responder_wake_ns = 0;    // added per awaited reply if the responder sleeps until then
  double one_sided_wake_ns = 0;    // the same per completion, where its CPU serves those too
  double copy_byte_ns = 0;         // responder copies out of the receive buffer
  double flush_line_ns = 0;        // responder flushes one cache line of 64 bytes
  double sync_ns = 0;              // responder's msync or fdatasync (domain page), per flush
  double wire_byte_ns = 0;         // each byte that is sent
  bool measured = false;           // on the connection at hand; else what is usual
  bool operator==(const CostModel&) const = default;
};

/// "measured on this connection" or "usual ones, not measured on this connection".
std::string_view source_of(const CostModel& costs);

/// Measured medians where there are any, best quiet rounds, two processes on one host:
///   tcp   libfabric tcp provider: ping-pong 10.2 us, write 8.9 us, read 9.2 us, write + message +
///         reply 17.1 us (64 B); slope of 64 KiB writes 0.25 ns/B
///   shm   libfabric shm provider: 0.64, 0.50, 1.68, 0.68 us; slope 0.09 ns/B
///   InfiniBand, RoCE, iWARP  seed paper 000, section 4.3: WRITE and completion 1.6 us, with FLUSH
///         a third more, message exchange 1.5 times that; 100 Gb/s
/// Copy 0.09 ns/B and flush 5.3 ns per line: shared memory, 64 KiB copied with and without CLWB.
/// sync_ns: 100 us, the order of a flush of an NVMe disk; measure it.
CostModel default_costs(Transport transport);

/// The time from the first post to the last wait of `method` when each item of the first epoch has
/// `bytes` bytes and each later one `later_bytes`.
double cost_ns(const Method& method, PersistenceDomain domain, std::uint64_t bytes,
               std::uint64_t later_bytes, const CostModel& costs);

/// What else a method uses: the axes on which methods are compared when time is not known.
struct Usage {
  std::size_t round_trips = 0;
  std::size_t copied_items = 0;     // copied by the responder's CPU (also by recovery's replay: 0)
  std::size_t responder_wakes = 0;  // receives that the responder's CPU must react to in time
  std::size_t receive_buffers = 0;  // messages, each taking a buffer of the receive queue
  bool operator==(const Usage&) const = default;
};

Usage usage(const Method& method);

/// Whether `one` is at least as good as `other` everywhere and better somewhere.
bool beats(const Usage& one, const Usage& other);

}  // namespace perdure::plan
