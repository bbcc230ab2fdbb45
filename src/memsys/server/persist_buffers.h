// PersistBuffers: writes that must persist, from the moment their store took effect in the caches
// until they are persisted; a buffer for each core and one for the RNIC (BROI paper, sections
// IV.B and IV.C).
//
//   Waiting  in the buffer: its store is not ready, an earlier entry of its thread waits, or a
//   write
//            of another thread that it depends on is not persisted
//   Queued   in the ordering controller, which knows barriers and nothing of other threads
//   Sent     in the memory controller
//   Held     memory has it; with ASAP it may not count as persisted yet, and takes no room any more
//
// The threads of a core share its entries, and a fence takes one as a write does, but with HOPS and
// ASAP; first in, first out is each thread's own, or, where the order knows strands, each strand's.
#pragma once

#include "memsys/order_sizes.h"
#include "memsys/server/processor.h"

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace perdure::memsys {

struct PersistId {
  std::uint32_t thread = 0;
  std::uint64_t number = 0;  // of the thread's entries, from 0
  bool operator==(const PersistId&) const = default;
};
std::string to_string(PersistId id);

enum class PersistStage : std::uint8_t { Waiting, Queued, Sent, Held };

struct PersistEntry {
  PersistId id;
  bool fence = false;
  std::uint64_t epoch = 0;   // of its thread
  std::uint64_t strand = 0;  // the same
  std::uint64_t line = 0;
  std::uint32_t bank = 0;
  Time ready = 0;                  // from when on it may leave the buffer
  Time since = 0;                  // when it was allocated
  std::vector<PersistId> depends;  // the DP field: entries of other threads, and strands
  PersistStage stage = PersistStage::Waiting;
  std::uint64_t order = 0;  // of all entries, from 1: of one line that of coherence
  bool ahead = false;       // ASAP: sent before it was safe, and not committed
  Time settled = 0;         // ASAP: the last message that something it depended on is persisted
};

/// What happens in the buffers, for who wants to follow it.
struct PersistEvent {
  enum class Kind { Allocated, Coalesced, Queued, Sent, Persisted, Resolved };
  Kind kind = Kind::Allocated;
  Time at = 0;
  PersistId id;
  std::vector<PersistId> depends;  // Allocated: on whom. Resolved: on whom no more
};
using PersistLog = std::vector<PersistEvent>;

/// What broken buffers forget; for the tests of the law.
struct BufferMutant {
  bool ignores_lines = false;   // direct dependencies
  bool ignores_fences = false;  // chained ones
  bool counts_early = false;    // with sends_ahead: that earlier epochs must count first
};

/// What the designs ask of their buffers, where it is not what DPO and BROI ask.
struct BufferRules {
  /// HOPS: what others have persisted is seen at multiples of this; 0: at once.
  Time poll_ps = 0;
  /// Strands of a thread pass each other, and each has barrier registers of its own.
  bool strands = false;
  /// HOPS and ASAP: writes have the number of their epoch, so that a fence takes neither an entry
  /// nor a register. Who sees what another thread has in its buffer ends that one's epoch and its
  /// own, and depends on all that the other one has.
  bool by_epoch = false;
  /// ASAP: a write goes at once, and its entry is free when memory has it. It is *safe* when all
  /// that must be before it counts as persisted; one that was sent before that counts when its
  /// epoch is committed. A thread has so many epochs that are not as its table has places.
  bool sends_ahead = false;
};

class PersistBuffers {
 public:
  /// Threads behind those of the processor are channels of the RNIC and share its buffer.
  PersistBuffers(const Processor& processor, std::uint32_t remote_channels, BufferMutant mutant,
                 BufferRules rules = {});

  /// Whether one more entry finds room.
  bool has_room(std::uint32_t thread) const;
  /// Whether a fence does.
  bool has_room_for_fence(std::uint32_t thread) const;
  /// Keeps a place for a store that waits for its line. Requires  has_room.
  void reserve(std::uint32_t thread) { ++used_[buffer_of(thread)]; }

  /// The thread sees what `writer` wrote: what it persists from now on comes after all that is
  /// before the writer's last fence (epoch-persist dependency); with strands, before the last fence
  /// of each of its strands, since the caches do not know which of them wrote. By epoch: if that
  /// is the newest write of `line`, after all that the writer has.
  void note_writer(std::uint32_t thread, std::uint32_t writer,
                   std::optional<std::uint64_t> line = std::nullopt, Time now = 0);

  /// Requires  rules.strands.
  void begin_strand(std::uint32_t thread);
  std::uint64_t strand(std::uint32_t thread) const { return strand_[thread]; }
  /// The thread sees what an earlier strand of it wrote.
  void note_strand(std::uint32_t thread, std::uint64_t strand);

  /// Whether the thread can not go on until its writes are persisted, or has ended.
  void set_waits(std::uint32_t thread, bool waits) { waits_[thread] = waits; }
  /// HOPS: whether the thread's writes are sent, or more of them are waited for.
  bool drains(std::uint32_t thread) const;

  struct Write {
    std::uint64_t line = 0;
    std::uint32_t bank = 0;
    Time ready = 0;
    Time now = 0;
  };
  struct Added {
    PersistId id;
    bool coalesced = false;  // the entry `id`, of the same epoch, took it
    bool direct = false;     // it depends on a write to its line
    bool chained = false;    // or on what was before a fence
  };
  /// Requires  a reserved place.
  Added add_write(std::uint32_t thread, const Write& write);
  /// True: an entry was taken. Nothing to order: none is.
  /// Requires  has_room_for_fence.
  bool add_fence(std::uint32_t thread, Time now);

  /// Queues what may be queued at `now`. Returns when that changes by time alone, or kTimeNever.
  Time advance(Time now);
  void send(PersistId id, Time now);
  /// Memory has it.
  void arrived(PersistId id);
  /// Of the writes that memory has, one that counts as persisted: call `persisted` for it.
  std::optional<PersistId> next_counted(Time now);

  /// ASAP: whether all that must be before the write counts as persisted. Not there: it does, too.
  bool is_safe(PersistId id, Time now) const;
  /// ASAP: `send` before it is safe.
  void send_ahead(PersistId id, Time now);
  /// ASAP: the table of its controller has no place: nothing of the thread is sent ahead until it
  /// has sent something safe.
  void hold_back(std::uint32_t thread) { held_back_[thread] = true; }
  bool is_held_back(std::uint32_t thread) const { return held_back_[thread]; }
  struct Epoch {
    std::uint32_t thread = 0;
    std::uint64_t number = 0;
  };
  /// ASAP: what was sent ahead of this epoch, to these banks, is not ahead any more.
  void release(Epoch epoch, std::uint32_t bank_first, std::uint32_t bank_end);
  /// ASAP: epochs that are committed since the last call.
  std::vector<Epoch> take_committed() { return std::exchange(committed_, {}); }
  /// The entry goes, and whoever depends on it does so no more.
  void persisted(PersistId id, Time now);

  /// Requires  it is there.
  const PersistEntry& entry(PersistId id) const;
  /// ASAP: whether recovery may restore the write: it is safe, and not ahead any more.
  bool may_be_restored(PersistId id, Time now) const;
  const Processor& processor() const { return processor_; }
  std::uint32_t threads() const { return static_cast<std::uint32_t>(of_thread_.size()); }
  bool is_remote(std::uint32_t thread) const { return thread >= processor_.threads(); }
  /// Entries of a thread, oldest first; those before the first fence are its SubReady-SET.
  const std::deque<PersistEntry>& of(std::uint32_t thread) const { return of_thread_[thread]; }
  std::uint32_t buffer_of(std::uint32_t thread) const {
    return is_remote(thread) ? processor_.cores : thread / processor_.threads_per_core;
  }
  bool empty() const { return entries_ == 0; }
  /// "thread 1", "channel 0"
  std::string name(std::uint32_t thread) const;
  /// "write 3, which waits for 0 of thread 1": the numbers are those of entries.
  /// Requires  the thread has entries.
  std::string describe_oldest(std::uint32_t thread) const;

  void set_log(PersistLog* log) { log_ = log; }

 private:
  PersistEntry& find(PersistId id);
  bool counts(PersistId id, Time now);
  Time commit_oldest(std::uint32_t thread, Time now);
  void end_epoch(std::uint32_t thread, Time now);
  void note_last_fence(std::uint32_t thread, std::uint32_t writer, std::uint64_t strand);
  PersistEntry& append(std::uint32_t thread, Time now);
  bool may_coalesce(std::uint32_t thread, PersistId newest);
  bool may_queue(std::uint32_t thread, const PersistEntry& entry, std::size_t writes,
                 std::size_t fences);
  bool pop_fences(std::uint32_t thread, Time now);
  void resolve(PersistId id, Time now);
  void note(PersistEvent::Kind kind, Time at, PersistId id,
            std::span<const PersistId> depends = {});

  const Processor processor_;
  const BufferMutant mutant_;
  const BufferRules rules_;
  std::vector<std::deque<PersistEntry>> of_thread_;
  std::vector<std::uint64_t> next_number_;
  std::vector<std::uint64_t> epoch_;                 // of each thread
  std::vector<std::uint64_t> strand_;                // the same
  std::vector<bool> waits_;                          // the same
  std::vector<Time> sees_at_;                        // HOPS: for its next entry
  std::vector<bool> wrote_;                          // in this epoch
  std::vector<std::vector<PersistId>> seen_fences_;  // of each thread: for its next entry
  std::vector<bool> held_back_;                      // ASAP, of each thread
  std::vector<Time> commit_at_;                      // the same: of its oldest epoch, or 0
  std::vector<std::uint64_t> fences_;                // of each thread, in its entries
  std::vector<Epoch> committed_;
  std::vector<PersistId> held_;                          // memory has them, oldest first
  std::vector<std::uint64_t> used_;                      // of each buffer, reserved ones too
  std::unordered_map<std::uint64_t, PersistId> newest_;  // of a line
  std::uint64_t entries_ = 0;
  std::uint64_t order_ = 0;
  PersistLog* log_ = nullptr;
};

}  // namespace perdure::memsys
