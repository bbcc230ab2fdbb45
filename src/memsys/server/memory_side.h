// MemorySide: the memory controllers and the banks behind them, as the processor sees them: lines
// to be fetched, dirty lines that left the caches, and persists in the order that the ordering
// controller chooses. One request a bus cycle enters. With ASAP the controllers have recovery
// tables (recovery.h): a write that is ahead reads the old value of its line first.
#pragma once

#include "memsys/channel.h"
#include "memsys/memory_run.h"
#include "memsys/server/ordering.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace perdure::memsys {

class MemorySide {
 public:
  MemorySide(const Device& device, PersistPoint point, OrderingController& ordering,
             PersistBuffers& buffers);

  void fetch(std::uint64_t line, Time now);
  void write_back(std::uint64_t line, Time now);
  /// Something in the buffers may be ready at `at`.
  void look(Time at) { look_at_ = std::min(look_at_, std::max(cycle_at(at), open_)); }

  /// When the next thing happens; kTimeNever: nothing, unless something comes.
  Time next() const;
  struct Outcome {
    std::vector<std::uint64_t> fetched;  // lines
    std::vector<PersistId> persisted;
    std::vector<std::uint64_t> changed;  // ASAP: lines of which recovery may restore another value
    void clear() { fetched.clear(), persisted.clear(), changed.clear(); }
  };
  /// Requires  now == next(). Persists are still in the buffers: the caller takes them out.
  void step(Time now, Outcome& outcome);

  Time time_at(Cycle cycle) const { return cycle * clock_ps_; }
  std::uint32_t bank_of(std::uint64_t line) const;
  std::uint64_t lines() const { return map_.lines(); }
  ChannelCounts counts() const;
  /// Lines that went over the buses.
  std::uint64_t bursts() const;
  /// ASAP: what the controllers keep.
  Recovery& recovery() { return recovery_; }
  const Recovery& recovery() const { return recovery_; }

 private:
  static constexpr std::uint32_t kFetch = ~std::uint32_t{0};
  static constexpr std::uint32_t kWriteBack = kFetch - 1;
  static constexpr std::uint32_t kOldValue = kFetch - 2;  // for an undo record
  static constexpr std::uint32_t kDrain = kFetch - 3;     // of a delay record
  /// So many dirty lines wait: one goes before the next persist.
  static constexpr std::size_t kWriteBacksMax = 16;

  struct Due {
    Cycle cycle = 0;
    std::uint64_t line = 0;
    PersistId id;          // kDrain: the number is the order of the value
    std::uint32_t as = 0;  // kFetch, kDrain, or the thread whose persist it is
  };
  struct Persist {
    LineVersion version;
    std::uint64_t line = 0;
    std::uint32_t bank = 0;
  };

  Cycle cycle_at(Time at) const { return (at + clock_ps_ - 1) / clock_ps_; }
  void enter_one(Cycle now);
  bool enter_first(Ring<std::uint64_t>& waiting, bool write, std::uint32_t as, Cycle now);
  bool enter_persist(Cycle now);
  bool is_asap() const { return ordering_.ordering() == Ordering::Asap; }
  bool enter_ahead(const PersistEntry& entry, Cycle now);
  bool enter_kept(Cycle now);
  bool enter_write(const Persist& persist, Cycle now);
  void end_persist(const Due& due, Outcome& outcome);
  bool enter(std::uint64_t line, bool write, std::uint32_t thread, std::uint64_t index, Cycle now);
  void on_served(const Request& request, Cycle now);
  void add_due(const Due& due);
  double queue_used() const;

  const Device& device_;
  const AddressMap map_;
  const PersistPoint point_;
  const Time clock_ps_;
  OrderingController& ordering_;
  PersistBuffers& buffers_;
  std::vector<Channel> channels_;
  std::vector<std::uint32_t> bank_waiting_;
  Recovery recovery_;
  std::optional<Persist> behind_old_value_;  // ASAP: that is being read, and then it is written
  Ring<std::uint64_t> fetches_;
  Ring<std::uint64_t> write_backs_;
  Ring<Due> due_;  // in the order of time
  Cycle look_at_ = kNever;
  Cycle open_ = 0;  // the first cycle that is not over
};

}  // namespace perdure::memsys
