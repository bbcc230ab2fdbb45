// MemoryRun: a trace on a device, from the first request to the last burst.
#pragma once

#include "memsys/admission.h"
#include "memsys/buffered_admission.h"
#include "memsys/channel.h"
#include "memsys/command_log.h"
#include "memsys/device.h"
#include "memsys/latency.h"
#include "memsys/persist_law.h"
#include "memsys/trace.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace perdure::memsys {

/// From when on a write counts as persisted.
enum class PersistPoint {
  Accept,  // the controller has it: its queue survives a power failure (ADR)
  Bus,     // the end of its burst
  Array,   // the cells are written: the end of the burst and tWR
};

std::string_view to_string(PersistPoint point);
/// The inverse of to_string. Errors: InvalidArgument, naming the accepted words.
Result<PersistPoint> parse_persist_point(std::string_view word);

struct MemoryOptions {
  Order order = Order::Thread;
  PersistPoint persist_point = PersistPoint::Array;
  CommandLog* commands = nullptr;  // or gets every command; when it is full, the run ends
  BufferOptions buffers;           // of the orders that have them
  bool sync_has_buffers = false;   // Order::Sync too, to be compared with those
  Mutant mutant;                   // for the tests of the law
  std::uint64_t held_max = TraceStreams::kHeldMax;
  std::function<void(std::uint64_t left)> progress;  // hears now and then how many are not served
};

struct MemoryResult {
  TraceSummary trace;
  std::uint64_t requests = 0;
  Cycle finish_cycle = 0;     // the end of the last burst
  Cycle persisted_cycle = 0;  // of the last write; 0 without writes
  ChannelCounts commands;     // of all channels
  Latencies read;             // accepted to the end of the burst
  Latencies write;
  Latencies persist;      // accepted to persisted
  Latencies wait;         // allowed by its thread to accepted
  Cycle lower_bound = 0;  // of finish_cycle, whatever the order: banks and buses can not do more
  std::uint64_t law_checked = 0;
  std::uint64_t old_values = 0;  // ASAP: read beside the trace's requests, for undo records
  bool lookahead_reached = false;
  std::uint64_t held_most = 0;  // events that were held at once because other threads were behind
  /// For how many events, writes, epochs and lines there was memory, beside what the device alone
  /// decides: the most that was seen, each 2^12 requests and in the end.
  std::size_t room_most = 0;
};

/// Simulates the whole trace, of which `summary` is the survey.
///
/// Requires    the device is one that parse_device accepted.
/// Errors      InvalidArgument: a deadlock, with who waits for what. SystemError: the trace can not
///             be read.
///             ProtocolError: the law of persistence was broken, which only a wrong order can do.
/// Cost        memory does not grow with the trace.
Result<MemoryResult> run_memory(const Device& device, TraceReader& reader, TraceSummary summary,
                                const MemoryOptions& options);

}  // namespace perdure::memsys
