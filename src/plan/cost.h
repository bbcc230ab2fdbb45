// CostModel: what the parts of a method cost on one connection, and what a method costs by them.
// The usual costs are made of a description of hardware; a connection that has been measured brings
// its own numbers.
#pragma once

#include "core/hardware.h"
#include "core/method.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace perdure::plan {

/// What a request with a payload that does not travel inside of it takes besides: the RNIC fetches
/// it. All zero where the time of a byte holds that already.
struct PayloadFetch {
  double inline_bytes = 0;
  double fixed_ns = 0;
  double byte_ns = 0;  // of the first `bytes`
  double bytes = 0;
  bool operator==(const PayloadFetch&) const = default;
};

/// All costs in nanoseconds. A round trip is from posting to the completion or reply, of a small
/// request, both sides polling.
struct CostModel {
  double message_round_trip_ns = 0;  // SEND, reply by the responder's CPU
  double write_round_trip_ns = 0;  // WRITE, its completion (transports that do not complete early)
  double read_round_trip_ns = 0;   // READ or FLUSH, its completion
  double persist_round_trip_ns = 0;  // PWRITE, its persist ACK
  double extra_post_ns = 0;          // each further request that is posted before the wait
  double responder_wake_ns = 0;      // added per awaited reply if the responder sleeps until then
  double one_sided_wake_ns = 0;      // the same per completion, where its CPU serves those too
  double copy_byte_ns = 0;           // responder copies out of the receive buffer
  double flush_ns = 0;               // responder flushes an item, besides its lines
  double flush_line_ns = 0;          // responder flushes one cache line of 64 bytes
  double sync_ns = 0;                // responder's msync or fdatasync (domain page), per flush
  double send_flush_ns = 0;          // an SFLUSH, besides a FLUSH: it looks for its message
  double wire_byte_ns = 0;           // each byte that is sent
  PayloadFetch fetch;
  bool measured = false;  // on the connection at hand; else what is usual
  std::string hardware;   // whose costs they are; empty where they are measured
  bool operator==(const CostModel&) const = default;
};

/// "measured on this connection" or "usual ones (edr-one-switch), not measured on this connection".
std::string source_of(const CostModel& costs);

/// What the simulator's prices (sim/method_price.h) come to on `hardware`, as sums and straight
/// lines by which choices are made; how near they come is in tests/agreement/costs_test.cc. DDIO is
/// taken to be off, which makes the dearer READ.
CostModel usual_costs(const Hardware& hardware, Transport transport);

/// Those of default_hardware(transport).
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
