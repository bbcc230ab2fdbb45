// The parts of a running server and who acts on them: hardware threads (server_threads.cc), the
// loop that moves time, remote channels, caches and memory (server_run.cc). For these two only;
// others use server_run.h.
#pragma once

#include "core/random.h"
#include "memsys/server/server_run.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <queue>
#include <string>
#include <unordered_map>
#include <vector>

namespace perdure::memsys {

using workload::Operation;
using workload::OperationKind;

enum class Part : std::uint8_t { Front, Loads, Back, Remote };

struct Event {
  Time at = 0;
  std::uint64_t order = 0;  // of what happens at the same time, what was asked for first
  std::uint32_t thread = 0;
  Part part = Part::Front;
  std::uint64_t load = 0;  // Part::Loads: which one, counted for the thread
  bool operator>(const Event& other) const {
    return at != other.at ? at > other.at : order > other.order;
  }
};

enum class Wait : std::uint8_t { None, Memory, Loads, Stores, Persist, Lock };
enum class Stage : std::uint8_t { Start, TakeLock, Run, Ended };

/// After how many transactions whoever looks hears of them: a run in 64 steps, and a long one at
/// least so often that a step takes less than a second.
inline std::uint64_t progress_step(std::uint64_t transactions) {
  return std::min<std::uint64_t>(transactions / 64 + 1, std::uint64_t{1} << 16);
}

/// So many lines of strands are kept before those of persisted strands are looked for.
inline constexpr std::size_t kOwnLinesMax = 1024;

/// In flight, or behind one that is.
struct PendingLoad {
  std::uint64_t line = 0;
  bool filled = false;  // memory has delivered the line
  bool has = false;
};

struct PendingStore {
  Operation operation;
  std::uint64_t loads = 0;  // of the thread that come before it
};

/// The first and the last strand of a thread that wrote a line.
struct StrandsOfLine {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
};

struct HardwareThread {
  std::vector<Operation> operations;
  std::size_t next = 0;
  std::optional<workload::Lock> lock;
  Stage stage = Stage::Start;
  Wait wait = Wait::None;
  Time wait_since = 0;
  bool front_filled = false;       // memory has delivered what it waits for
  std::deque<PendingLoad> loads;   // from the oldest one that it does not have
  std::uint64_t loads_before = 0;  // `loads`
  std::uint64_t loads_in_flight = 0;
  // The back.
  Ring<PendingStore> stores;
  bool storing = false;
  bool back_filled = false;
  bool reserved = false;  // of the persist buffer, for the store at the head
  bool wants_room = false;
  bool wants_loads = false;  // those before the store at the head
  std::uint64_t epoch_persists = 0;
  std::unordered_map<std::uint64_t, std::uint64_t> law_index;  // of its entries, by number
  /// With strands: which of its own wrote a line, of those that may not be persisted.
  std::unordered_map<std::uint64_t, StrandsOfLine> written_by_strand;
};

struct RemoteChannel {
  Random random;
  std::vector<std::uint64_t> lines;  // of the epoch
  std::size_t sent = 0;              // of these
  bool open = false;                 // an epoch
  Time began = 0;
  std::vector<Operation> operations;  // of the transaction that is replayed
  std::size_t next = 0;
};

struct LockState {
  bool held = false;
  std::uint32_t holder = 0;
  std::deque<std::uint32_t> waiting;
};

struct Waiter {
  std::uint32_t thread = 0;
  Part part = Part::Front;
  std::uint64_t load = 0;  // Part::Loads: which one
};

/// One run; see run_server.
class ServerRun {
 public:
  ServerRun(const Device& device, const Processor& processor, workload::Program& program,
            const ServerOptions& options);
  Result<ServerResult> run();

 private:
  // The front.
  void front(std::uint32_t number, Time now);
  void start(std::uint32_t number, Time now);
  bool take_lock(std::uint32_t number, Time now);
  bool instruction(std::uint32_t number, Time now);
  void begin_load(std::uint32_t number, std::uint64_t line, Time now);
  void load(std::uint32_t number, std::uint64_t which, Time now);
  void end_load(std::uint32_t number, std::uint64_t which, Time now);
  bool ordered_here(OperationKind kind) const;
  bool begin_strand(std::uint32_t number, Time now);
  void note_own_strand(std::uint32_t number, std::uint64_t line, bool writes);
  bool wait_persisted(std::uint32_t number, Time now);
  void forget_strands(std::uint32_t number);
  void wait(std::uint32_t number, Wait why, Time now);
  void drain(std::uint32_t number, Time now);
  void wake(std::uint32_t number, Time at);
  // The back.
  void back(std::uint32_t number, Time now);
  std::optional<Time> store(std::uint32_t number, const Operation& operation, Time now);
  std::optional<Time> persist(std::uint32_t number, std::uint64_t line, Time now);
  std::optional<Time> barrier(std::uint32_t number, Time now);
  void unlock(std::uint64_t address, Time at);
  void commit(Time now);
  bool wants_room(std::uint32_t number);
  bool wants_room_for_fence(std::uint32_t number);
  // Remote channels.
  void remote(std::uint32_t number, Time now);
  bool next_epoch(RemoteChannel& channel, std::uint32_t which);
  bool replayed_epoch(RemoteChannel& channel, std::uint32_t which);
  // Caches and memory.
  bool& filled(const Waiter& waiter);
  std::optional<Time> perform(Waiter waiter, std::uint64_t line, CacheAccess access, Time now);
  void memory_step(Time now);
  void on_fetched(std::uint64_t line, Time now);
  void on_persisted(PersistId id, Time now);
  void check_recovery(Time now);
  void warm_up();
  void warm_access(std::uint32_t thread, std::uint64_t line, CacheAccess access);

  void schedule(Time at, std::uint32_t thread, Part part, std::uint64_t load = 0) {
    events_.push({at, order_++, thread, part, load});
    own_events_ += part == Part::Remote ? 0 : 1;
  }
  bool stuck(Time next) const;
  void snapshot(Time now);
  bool ended() const;
  std::string what_blocks(std::uint32_t number) const;
  Error deadlock(Time now) const;
  Result<ServerResult> result(Time now);
  static std::uint64_t line_of(std::uint64_t address) { return address / kCacheLineBytes; }

  const Processor processor_;
  const ServerOptions options_;
  workload::Program& program_;
  Caches caches_;
  PersistBuffers buffers_;
  OrderingController ordering_;
  MemorySide memory_;
  ServerLaw law_;
  RecoveryLaw recovery_law_;
  std::vector<HardwareThread> threads_;
  std::vector<RemoteChannel> channels_;
  std::unordered_map<std::uint64_t, LockState> locks_;              // by address
  std::unordered_map<std::uint64_t, std::vector<Waiter>> fetches_;  // by line
  /// Lines that left the caches while their last writer had persists before a barrier: who reads
  /// them must still learn of him.
  std::unordered_map<std::uint64_t, std::uint32_t> victims_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t order_ = 0;
  std::uint64_t own_events_ = 0;  // of events_, those of the processor's threads
  Time progress_ = 0;             // when one of these threads, or memory for it, last went on
  const Time longest_wait_;       // from there to the next time, unless they are in a deadlock
  bool stopping_ = false;
  MemorySide::Outcome outcome_;
  ServerResult result_;
};

}  // namespace perdure::memsys
