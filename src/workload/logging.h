// Logging: how a transaction is made atomic, as epochs of persists. The same changes of data under
// four protocols.
//
//   protocol      epochs, for k ranges changed in place
//   undo          {new data} {old value 1} {range 1} ... {old value k} {range k} {commit}
//   undo-batched  {new data, old values} {log valid} {ranges} {log invalid}
//   redo          {new data, new values, commit} {ranges} {log empty}
//   shadow        {new data, copies of lines} {one pointer}: no log; see shadow_tree.h
//
// All loads of a transaction come before its first persist.
#pragma once

#include <perdure/result.h>

#include "workload/recorder.h"

#include <string>
#include <string_view>

namespace perdure::workload {

enum class Logging { Undo, UndoBatched, Redo, Shadow };

std::string_view to_string(Logging logging);
/// All of them, with `|` between: for help texts.
std::string logging_names();
/// The inverse of to_string. Errors: InvalidArgument, naming the accepted words.
Result<Logging> parse_logging(std::string_view word);

/// Where a thread keeps its log: records one after the other, from the start again at the end.
class LogArea {
 public:
  /// Requires  `bytes` and `next` are multiples of a line, next < bytes.
  LogArea(std::uint64_t base, std::uint64_t bytes, std::uint64_t next)
      : base_(base), bytes_(bytes), next_(next) {}
  /// The first line is the header: log valid, commit, or the pointer to the copy.
  std::uint64_t header() const { return base_; }
  /// Space for a record of `bytes`, in whole lines.
  Range record(std::uint64_t bytes);

 private:
  std::uint64_t base_;
  std::uint64_t bytes_;
  std::uint64_t next_;
};

/// Appends what the transaction asks of a processor: its reads, then its epochs, each but the last
/// with a barrier behind it; the last one too. A transaction that changes nothing has no epochs.
/// Requires  a protocol with a log.
void append_transaction(Logging logging, const Recorder& changes, LogArea& log,
                        std::vector<Operation>& operations);

}  // namespace perdure::workload
