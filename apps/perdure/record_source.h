// RecordSource: records out of files and standard input, one per line or length-prefixed, without
// ever blocking: whoever appends must be able to attend to what is in flight.
#pragma once

#include <perdure/result.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace perdure::app {

/// A place in the input, as a person finds it.
struct InputPlace {
  std::size_t file = 0;      // index of the file that was given
  std::uint64_t number = 0;  // line, or record of a framed file, from 1
};

struct InputRecord {
  std::span<const std::byte> bytes;  // valid until the next call of the source
  InputPlace place;
};

struct RecordSourceOptions {
  std::vector<std::string> files;  // "-": standard input; empty: only that
  bool framed = false;             // u32 little-endian length, then so many bytes
  bool keep_newline = false;       // lines: the newline belongs to the record
  std::uint64_t record_bytes_max = 0;
};

/// Threads: one caller at a time.
class RecordSource {
 public:
  enum class State {
    Record,  // record() is the next one
    Wait,    // nothing can be read at this moment
    End,     // nothing will come any more
  };

  explicit RecordSource(RecordSourceOptions options);
  ~RecordSource();
  RecordSource(const RecordSource&) = delete;
  RecordSource& operator=(const RecordSource&) = delete;

  /// Errors  NotFound, SystemError (a file can not be opened or read); InvalidArgument (a record
  ///         that is too long or empty, a frame that is cut off), naming the place.
  Result<State> next();
  const InputRecord& record() const { return record_; }

  /// Sleeps until something can be read, a signal came, or `milliseconds` have passed.
  void wait(int milliseconds);

  /// "input line 7", "line 7 of FILE", "record 7 of FILE".
  std::string describe(const InputPlace& place) const;
  /// Where reading stands.
  InputPlace place() const { return place_; }
  /// Lines that were left out because a record has at least one byte.
  std::uint64_t empty_lines() const { return empty_lines_; }

 private:
  Result<bool> open_next_file();
  Result<State> fill();
  Result<std::optional<State>> take_line();
  Result<std::optional<State>> take_frame();
  State give(std::size_t skip, std::size_t length, std::size_t consume);
  Error wrong(std::string what) const;

  const RecordSourceOptions options_;
  std::size_t files_opened_ = 0;
  int descriptor_ = -1;
  bool at_end_of_file_ = false;
  std::vector<std::byte> buffer_;
  std::size_t begin_ = 0;  // what is not yet consumed: [begin_, end_)
  std::size_t end_ = 0;
  std::size_t searched_ = 0;  // lines: no newline before this
  InputPlace place_;
  InputRecord record_;
  std::uint64_t empty_lines_ = 0;
};

}  // namespace perdure::app
