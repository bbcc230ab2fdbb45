// Traces: what programs asked of memory, as text, one event a line. Read in blocks, so that memory
// does not grow with the trace; docs/simulator.md has the formats.
#pragma once

#include <perdure/result.h>

#include "memsys/device.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace perdure::memsys {

enum class TraceFormat { Auto, Perdure, Dramsim3, Ramulator, Whisper };

std::string_view to_string(TraceFormat format);
/// The inverse of to_string. Errors: InvalidArgument, naming the accepted words.
Result<TraceFormat> parse_trace_format(std::string_view word);

enum class EventKind : std::uint8_t {
  Read,
  Write,
  Barrier,  // B: writes after it persist after all writes before it of the thread
  Fence,    // F: the thread goes on when its writes are persisted
  Strand,   // S: what follows has no order after what was before
};

struct TraceEvent {
  std::uint64_t line = 0;   // of the memory: address / line_bytes
  Cycle cycle = 0;          // not before this cycle
  std::uint64_t index = 0;  // of the event in the trace, from 0
  std::uint32_t thread = 0;
  EventKind kind = EventKind::Read;
};

/// Threads as the trace names them: `T3` and `X3` (a remote channel) are two.
struct ThreadName {
  std::uint32_t number = 0;
  bool remote = false;
  bool operator==(const ThreadName&) const = default;
};
std::string to_string(ThreadName thread);

inline constexpr std::uint32_t kThreadNumberMax = 4095;

/// What a trace looks like from a distance: known before anything is simulated.
struct TraceSummary {
  struct Thread {
    ThreadName name;
    std::uint64_t events = 0;
    std::uint64_t writes = 0;
  };
  TraceFormat format = TraceFormat::Perdure;
  std::vector<Thread> threads;  // in the order of their first events
  std::uint64_t reads = 0;
  std::uint64_t writes = 0;
  std::uint64_t barriers = 0;
  std::uint64_t fences = 0;
  std::uint64_t strands = 0;
  std::uint64_t text_lines = 0;  // with empty ones and comments
  // The last line has no newline: a trace that was cut there would look the same.
  bool last_line_open = false;
};

/// Bytes of a trace, read front to back more than once.
class TraceBytes {
 public:
  virtual ~TraceBytes() = default;
  /// The next bytes, at most `count`; 0 at the end. Errors: SystemError.
  virtual Result<std::size_t> read(char* into, std::size_t count) = 0;
  virtual Result<void> rewind() = 0;
};

inline constexpr std::size_t kTraceLineBytesMax = std::size_t{1} << 16;
inline constexpr std::uint64_t kCopiedBytesMax = std::uint64_t{16} << 30;

/// A file; "-" is standard input. What can not be read twice (a pipe) is copied to a temporary file
/// first, as long as it looks like a trace, has no more than `copied_max` bytes, and leaves some
/// room to others.
/// Errors: InvalidArgument: it does not; NotFound, NoSpace, SystemError.
Result<std::unique_ptr<TraceBytes>> open_trace(const std::string& path,
                                               std::uint64_t copied_max = kCopiedBytesMax);
/// Text that outlives the object.
std::unique_ptr<TraceBytes> trace_of(std::string_view text);

struct TraceLimits {
  std::uint64_t lines = 0;  // of the memory
  std::uint64_t line_bytes = 0;
};

/// Reads events in the order of the trace. The first pass, `survey`, checks every line; only then
/// is there something to read.
class TraceReader {
 public:
  TraceReader(TraceBytes& bytes, std::string name, TraceLimits limits);
  ~TraceReader();
  TraceReader(const TraceReader&) = delete;
  TraceReader& operator=(const TraceReader&) = delete;

  /// Reads the whole trace and goes back to its start.
  /// Errors: InvalidArgument with the line of the trace; SystemError.
  Result<TraceSummary> survey(TraceFormat format);

  /// The next event, or nothing at the end or after an error; `outcome` tells which.
  /// Requires  a survey that succeeded.
  bool next(TraceEvent& event);
  Result<void> outcome() const;
  /// The line of the file that the last event came from.
  std::uint64_t text_line() const;

 private:
  struct Parser;
  std::unique_ptr<Parser> parser_;
};

}  // namespace perdure::memsys
