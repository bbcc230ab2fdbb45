// Recovery: the recovery tables of ASAP's memory controllers (HPCA 2022) and what memory holds with
// them. A write of an epoch that is not safe is written over the old value of its line, which an
// undo record keeps; or, if its line has a record, waits in a delay record. After a power failure
// undo records are written back and delay records of committed epochs are written. The tables
// survive a power failure at every persist point: without that there is no ASAP.
#pragma once

#include "memsys/server/persist_buffers.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_map>
#include <vector>

namespace perdure::memsys {

/// A value of a line: the entry of a persist buffer that wrote it.
struct LineVersion {
  std::uint64_t order = 0;  // of all entries, in the order of coherence; 0: what was there before
  PersistId id;
};

/// What a broken table does; for the tests of the law.
struct RecoveryMutant {
  bool keeps_no_old_value = false;  // a speculative write makes no record
  bool writes_over_newer = false;   // a safe write does not go into the undo record of its line
};

class Recovery {
 public:
  Recovery(std::uint32_t controllers, std::uint64_t entries, RecoveryMutant mutant)
      : entries_(entries), mutant_(mutant), tables_(controllers) {}

  enum class Way {
    Write,     // to memory
    Undo,      // to memory, after the old value was read
    Recorded,  // a record has it: in a delay record, or, safe, in the line's undo record
    Refused,   // the table is full: it comes again when it is safe
    Later,     // what is before it is not on its way to memory yet
  };
  /// What becomes of a write that comes to `controller`.
  Way admit(std::uint32_t controller, const PersistEntry& entry, bool safe);
  /// The epoch is safe or whole: its undo records go, its delay records are written.
  void commit(std::uint32_t controller, std::uint32_t thread, std::uint64_t epoch);

  /// The oldest committed delay record that memory is to have.
  struct Drain {
    std::uint32_t controller = 0;
    std::uint64_t line = 0;
    LineVersion version;
  };
  const Drain* next_drain() const { return drains_.empty() ? nullptr : &drains_.front(); }
  void pop_drain();

  /// A write is in the queue of its controller, behind all earlier ones of its line.
  void entered(std::uint64_t line, LineVersion version);
  /// It is persistent there.
  void landed(std::uint64_t line, std::uint64_t order);
  /// A delay record that is written. Call landed before.
  void drained(std::uint32_t controller, std::uint64_t line, std::uint64_t order);

  /// What the line would hold after a power failure now, and recovery.
  LineVersion recovered(std::uint64_t line) const;
  /// Lets go of what is known of a line, if that is no more than what memory has. False: it is.
  bool forget(std::uint64_t line);

  std::uint32_t controllers() const { return static_cast<std::uint32_t>(tables_.size()); }
  /// Most records at once in a table, and how many of each kind were made.
  struct Counts {
    std::uint64_t undo = 0;
    std::uint64_t delay = 0;
    std::uint64_t absorbed = 0;  // safe writes that an undo record took
    std::uint64_t refused = 0;
    std::size_t most = 0;
  };
  const Counts& counts() const { return counts_; }

 private:
  enum class Stage : std::uint8_t { Open, Committed, Entered };
  struct Record {
    std::uint64_t line = 0;
    bool undo = false;
    std::uint32_t thread = 0;
    std::uint64_t epoch = 0;
    Stage stage = Stage::Open;
    LineVersion version;  // undo: what was there before; delay: what comes
  };
  using Table = std::vector<Record>;
  struct Image {
    LineVersion entered;
    LineVersion landed;
    std::deque<LineVersion> on_the_way;
  };

  Way admit_ahead(std::uint32_t controller, const PersistEntry& entry);
  Record* undo_of(Table& table, std::uint64_t line);

  const std::uint64_t entries_;  // of a table
  const RecoveryMutant mutant_;
  std::vector<Table> tables_;  // oldest record first
  std::deque<Drain> drains_;
  std::unordered_map<std::uint64_t, Image> images_;
  Counts counts_;
};

/// RecoveryLaw: what recovery would restore, checked by one who only watches. It is nothing older
/// than what counts as persisted of the line, and nothing that is ahead of what must be before it.
class RecoveryLaw {
 public:
  void on_counted(std::uint64_t line, std::uint64_t order);
  /// `allowed`: all that must be before the write counts.
  void check(std::uint64_t line, std::uint64_t restored, bool allowed, Time at);
  std::uint64_t counted(std::uint64_t line) const;
  /// No more is known of the line than that memory has what counts.
  void forget(std::uint64_t line) { counted_.erase(line); }

  bool holds() const { return broken_.empty(); }
  const std::string& broken() const { return broken_; }
  std::uint64_t checked() const { return checked_; }

 private:
  std::unordered_map<std::uint64_t, std::uint64_t> counted_;  // the newest, by line
  std::uint64_t checked_ = 0;
  std::string broken_;
};

}  // namespace perdure::memsys
