// The journal of a recorded program (src/interpose/journal.h): made before it runs, and turned into
// a trace afterwards.
#pragma once

#include <perdure/result.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace perdure::app {

struct RecordedFile {
  std::string path;
  std::uint64_t bytes = 0;  // that were mapped
  std::uint64_t base = 0;   // its first byte's address in the trace
  // Lines that changed, and not by what was seen; none: it can not be compared any more.
  std::optional<std::uint64_t> unflushed_lines;
};

struct RecordedThread {
  std::uint32_t number = 0;  // T<number> of the trace
  std::uint64_t process = 0;
  std::uint64_t flushes = 0;  // ranges
  std::uint64_t flushed_lines = 0;
  std::uint64_t changed_lines = 0;
  std::uint64_t drains = 0;
  std::uint64_t epochs = 0;  // drains behind a changed line
};

struct Recording {
  std::vector<RecordedFile> files;
  std::vector<RecordedThread> threads;
  std::uint64_t processes = 0;
  std::uint64_t ordered = 0;       // drains in the trace as B
  std::uint64_t durable = 0;       // drains in the trace as F
  std::uint64_t lost_places = 0;   // events for which there was no room
  std::uint64_t lost_threads = 0;  // events of threads that a trace has no number for
  std::uint64_t refused_files = 0;
  RecordedThread all;        // sums
  std::uint64_t lines = 0;   // changed lines in the trace: those of `all` but for what was lost
  std::uint64_t epochs = 0;  // in the trace: drains behind such a line

  std::uint64_t unflushed_lines = 0;  // of the files that can be compared

  std::uint64_t lost() const { return lost_places + lost_threads; }
};

/// An empty journal in a directory. Errors  SystemError, NoSpace.
Result<void> create_journal(const std::string& directory);

/// What the journal holds, and how it differs from the files. Requires  nobody writes to it any
/// more. Errors  SystemError; Corrupt: something else wrote there.
Result<Recording> read_recording(const std::string& directory);

/// Writes the events as a trace of `perdure sim memory`, with comments that say of what.
/// Errors  SystemError, NoSpace: what was written is no whole trace.
Result<void> write_trace(const std::string& directory, const Recording& recording,
                         const std::string& program, const std::string& path);

}  // namespace perdure::app
