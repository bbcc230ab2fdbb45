// PersistLaw: what every run must keep, checked while it runs by one who only watches.
//
// No write of a later epoch of a thread persists before the last of an earlier epoch of it, and of
// two writes to one line by two threads, or two strands, the one that comes first in the trace
// persists first.
#pragma once

#include "memsys/block_queue.h"
#include "memsys/pending_writes.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace perdure::memsys {

class PersistLaw {
 public:
  struct Options {
    bool strands = false;  // S begins a strand, and epochs order writes of their strand only
  };

  PersistLaw(const TraceSummary& summary, Options options);

  /// In the order of the trace. Requires  every event but reads once, before it persists.
  void on_read(const TraceEvent& event);
  /// In the order of time; of one cycle, in any order that is legal.
  void on_persist(const TraceEvent& write, Cycle cycle);

  bool holds() const { return broken_.empty(); }
  /// The first breach in words; empty if there is none.
  const std::string& broken() const { return broken_; }
  /// How many writes were checked.
  std::uint64_t checked() const { return checked_; }
  /// For how many writes and epochs it has memory.
  std::size_t room() const;

 private:
  struct Epoch {
    std::uint64_t number = 0;
    std::uint64_t strand = 0;
    std::uint64_t first = 0;  // index of its first write in the trace
    std::uint64_t left = 0;   // writes not yet persisted
  };
  struct Thread {
    BlockQueue<Epoch> epochs;  // with writes left, oldest first
    std::uint64_t number = 0;
    std::uint64_t strand = 0;
  };
  /// Whether writes to one line may come in another order than that of epochs.
  bool has_lines() const { return threads_.size() > 1 || options_.strands; }
  void check_epoch(const TraceEvent& write, Cycle cycle);
  void check_line(const TraceEvent& write, Cycle cycle);
  void broke(const TraceEvent& write, Cycle cycle, std::uint64_t earlier, const char* why);

  const Options options_;
  std::vector<ThreadName> names_;
  std::vector<Thread> threads_;
  PendingWrites pending_;  // if has_lines
  std::uint64_t checked_ = 0;
  std::string broken_;
};

}  // namespace perdure::memsys
