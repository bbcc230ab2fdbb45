// BufferedAdmission: writes go through persist buffers, so that a thread runs ahead of what is
// persisted (delegated ordering; BROI paper, section II.B), and a policy decides which buffered
// write the controller gets. Reads pass the buffers.
#pragma once

#include "memsys/address_map.h"
#include "memsys/admission.h"
#include "memsys/order_sizes.h"
#include "memsys/pending_writes.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace perdure::memsys {

/// Sizes of the hardware. Defaults: the BROI paper, section IV.E, where it names them.
struct BufferOptions {
  std::uint64_t entries = 8;       // of the persist buffer of a thread; the paper's of a core
  std::uint64_t bank_depth = 1;    // BROI: writes of a bank that wait in the controller; assumption
  double sigma = 0.25;             // BROI, equation 2: the weight of a set's size
  double remote_share = 0.25;      // BROI: remote writes go when less of the queue is used
  Cycle remote_wait_max = 10'000;  // BROI: or when one has waited this long; assumption
  // HOPS: cycles between looks at the others' progress; those of nvm-a take 1 ns
  Cycle poll = kHopsPollNs;
  std::uint64_t flush_entries = hops_flush_entries(8);  // HOPS: so many writes in a buffer are sent
  std::uint64_t undo_entries = kAsapRecoveryEntries;    // ASAP: records of a controller's table
  // ASAP: epochs of a thread that ended and do not count yet
  std::uint64_t epoch_entries = kAsapEpochEntries;
};

class BufferedAdmission {
 public:
  static constexpr bool kBuffered = true;
  /// In the index of what front() is: ASAP's read of the old value of a line, beside the trace's
  /// requests.
  static constexpr std::uint64_t kOldValue = std::uint64_t{1} << 63;

  BufferedAdmission(TraceStreams& streams, const TraceSummary& summary, const Device& device,
                    Order order, BufferOptions options, Mutant mutant = {});

  void on_read(const TraceEvent& event);
  void start() {}

  /// Cores go on until `now`. Writes that are persistent by that alone are given to `sink`.
  template <typename Sink>
  void advance(Cycle now, Sink sink) {
    now_ = now;
    free_acknowledged();
    for (std::uint32_t i = 0; i < threads_.size(); ++i) issue(i);
    give(sink);
    choose();
  }
  /// now: front() may enter; later: nothing changes before, unless a write persists.
  Cycle ready_at() const { return ready_at_; }
  /// Requires  ready_at() <= now.
  const TraceEvent& front() const { return front_; }
  Cycle front_since() const { return front_since_; }
  void take();

  /// The controller sent the column command of a request.
  void on_served(const TraceEvent& event);
  /// The cycle in which the device has a write is known. What persists thereby goes to `sink`.
  template <typename Sink>
  void on_device_persist(const TraceEvent& write, Cycle cycle, Sink sink) {
    resolve(write, cycle);
    give(sink);
  }
  void on_persisted(const TraceEvent& write);

  std::string describe_blocked();
  /// For how many writes it has memory, beside the buffers.
  std::size_t room() const { return pending_.room(); }

 private:
  struct Entry {
    TraceEvent event;
    Cycle since = 0;       // when it entered the buffer
    Cycle not_before = 0;  // HOPS: the poll that saw its dependency persisted
    std::uint64_t epoch = 0;
    std::uint64_t strand = 0;
    bool sent = false;
    bool dependent = false;
    TraceEvent after;           // HOPS: the write of another thread that it depends on, if any
    bool old_value = false;     // ASAP: was read
    bool recorded = false;      // ASAP: sent before earlier epochs counted
    bool acknowledged = false;  // ASAP: memory has it, and it takes no room any more
  };
  /// ASAP: the writes of an epoch count as persisted when all earlier epochs are.
  struct EpochState {
    std::uint64_t number = 0;
    std::uint64_t unknown = 0;  // writes of which the device has not said when
    Cycle last = 0;             // of those that count
    std::vector<std::pair<TraceEvent, Cycle>> held;
  };
  struct Thread {
    std::vector<Entry> buffer;   // in program order; a write leaves when it is persisted
    std::uint64_t occupied = 0;  // entries that take room
    Ring<EpochState> epochs;
    bool held_back = false;  // ASAP: a table was full; nothing goes ahead until something safe went
    bool remote = false;
    bool waits = false;   // for room, at a fence, or for events that are too far away
    Cycle committed = 0;  // ASAP: what its last whole epoch counted from
    std::uint64_t epoch = 0;
    std::uint64_t strand = 0;
    std::uint64_t round = 0;
    std::uint64_t round_epoch = 0;
    Cycle wake = kNever;  // its next event comes then
    bool read_ready = false;
    Cycle read_since = 0;
  };
  struct Acknowledgement {
    std::uint32_t thread = 0;
    std::uint64_t index = 0;
    Cycle cycle = 0;
  };
  struct Given {
    TraceEvent write;
    Cycle cycle = 0;
  };

  template <typename Sink>
  void give(Sink sink) {
    for (const Given& each : given_) sink(each.write, each.cycle);
    given_.clear();
  }
  void issue(std::uint32_t number);
  bool issue_one(std::uint32_t number, const TraceEvent& event);
  bool buffer_write(std::uint32_t number, const TraceEvent& event);
  void resolve(const TraceEvent& write, Cycle cycle);
  void commit_epochs(Thread& thread);
  static std::uint64_t open_epochs(Thread& thread);
  void free_acknowledged();
  bool depends(const TraceEvent& event) const;
  bool depends_by_epoch(Entry& entry) const;
  const PendingWrites::Write* conflicting(const TraceEvent& event) const;
  bool is_safe(const Thread& thread, const Entry& entry) const {
    return entry.epoch == thread.buffer.front().epoch;
  }
  bool may_go_ahead(Thread& thread, const Entry& entry);
  bool may_go(Thread& thread, Entry& entry);
  bool epoch_allows(const Thread& thread, const Entry& entry) const;
  void choose();
  void choose_read();
  void choose_first();
  void choose_broi();
  enum class Turn { Starved, Local, Remote };
  void choose_broi_of(Turn turn);
  bool has_turn(const Thread& thread, Turn turn);
  bool remote_may_go() const;
  void offer(std::uint32_t thread, std::size_t entry, double priority);
  std::uint32_t bank_of(std::uint64_t line) const;
  void drop(Thread& thread, std::uint64_t index);

  TraceStreams& streams_;
  const AddressMap map_;
  const Order order_;
  const BufferOptions options_;
  const Mutant mutant_;
  const std::uint64_t places_;  // in the controllers
  const std::uint32_t banks_in_channel_;
  std::vector<Thread> threads_;
  PendingWrites pending_;                    // of several threads
  std::vector<std::uint32_t> bank_waiting_;  // BROI: writes in the controller
  std::vector<Given> given_;
  std::uint64_t waiting_ = 0;           // requests in the controller
  std::uint64_t unpersisted_ = 0;       // Epoch: writes sent in this round and not persisted
  std::vector<std::uint64_t> records_;  // ASAP: of each controller
  std::vector<Acknowledgement> acknowledgements_;  // ASAP: to come
  std::uint64_t round_ = 1;
  Cycle now_ = 0;
  Cycle ready_at_ = 0;
  TraceEvent front_;
  Cycle front_since_ = 0;
  std::uint32_t front_thread_ = 0;
  std::size_t front_entry_ = 0;
  bool front_is_read_ = false;
  double front_priority_ = 0;
};

}  // namespace perdure::memsys
