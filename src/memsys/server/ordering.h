// Ordering: which queued write the memory controller gets next. What the designs differ in is here,
// and nothing else is.
#pragma once

#include "memsys/server/persist_buffers.h"
#include "memsys/server/recovery.h"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace perdure::memsys {

enum class Ordering {
  Sync,   // a core waits at each barrier until its writes are persisted (CLWB and SFENCE)
  Epoch,  // delegated ordering, flattened: the oldest epochs of all threads are one epoch of memory
  Thread,  // delegated ordering by thread, the oldest write first: no care for banks
  Broi,    // the BROI controller
  Hops,    // delegated by thread, dependencies by epoch; buffers send when half full, others'
           // progress is polled
  Strand,  // delegated by strand: a thread's strands have no order among themselves
  Asap,    // all is sent at once, and counts in order: recovery undoes what is ahead of it
  Eadr,    // the caches are persistent: nothing is ordered, nothing is flushed
};

std::string_view to_string(Ordering ordering);
/// All of them, with `|` between: for help texts.
std::string ordering_names();
/// The inverse of to_string. Errors: InvalidArgument, naming the accepted words.
Result<Ordering> parse_ordering(std::string_view word);
/// Of what the RNIC brings: the others are about cores.
inline constexpr std::array kRemoteOrderings{Ordering::Epoch, Ordering::Thread, Ordering::Broi};
bool is_remote_ordering(Ordering ordering);
/// How its persist buffers behave.
BufferRules rules_of(Ordering ordering);

/// What the memory controller says of itself.
struct ControllerView {
  Time now = 0;
  const std::vector<std::uint32_t>& bank_waiting;  // persists in its queue, by bank
  double queue_used = 0;                           // share
};

/// What broken controllers do; for the tests of the law and of deadlocks.
struct ControllerMutant {
  bool ignores_barriers = false;
  /// Sends none of its writes, nor anything while one of them is next.
  std::optional<std::uint32_t> holds_thread;
  RecoveryMutant recovery = {};
};

/// What the BROI controller chose from, for who wants to follow it.
struct BroiChoice {
  Time at = 0;
  std::optional<PersistId> chosen;
  std::vector<PersistId> ready_set;  // of each thread, what is before its first barrier, to persist
  std::vector<PersistId> sch_set;    // of each bank that has no write waiting, what would go next
};
using BroiLog = std::vector<BroiChoice>;

class OrderingController {
 public:
  OrderingController(const Processor& processor, Ordering ordering, ControllerMutant mutant);

  struct Choice {
    std::optional<PersistId> id;
    Time ask_again = kTimeNever;  // without an id: time alone may bring one
  };
  /// Requires  buffers.advance(view.now) was called.
  Choice choose(const PersistBuffers& buffers, const ControllerView& view);
  void on_sent(const PersistEntry& entry);
  void on_persisted();
  Ordering ordering() const { return ordering_; }
  const RecoveryMutant& recovery_mutant() const { return mutant_.recovery; }

  /// Broi: every choice from now on is added.
  void set_log(BroiLog* log) { log_ = log; }

 private:
  Choice choose_unbroken(const PersistBuffers& buffers, const ControllerView& view);
  Choice choose_oldest(const PersistBuffers& buffers, Time now) const;
  const PersistEntry* oldest_of(const PersistBuffers& buffers, std::uint32_t thread) const;
  Choice choose_broi(const PersistBuffers& buffers, const ControllerView& view) const;
  void note(const PersistBuffers& buffers, const ControllerView& view, const Choice& choice) const;
  void find_sets(const PersistBuffers& buffers, std::size_t words);
  enum class Turn { Starved, Local, Remote };
  Choice best_of_ready(const PersistBuffers& buffers, const ControllerView& view, Turn turn) const;
  bool has_turn(const PersistBuffers& buffers, std::uint32_t thread, Time now, Turn turn) const;
  Time starves_at(const PersistBuffers& buffers, std::uint32_t thread) const {
    return buffers.of(thread).front().since + processor_.remote_wait_ps;
  }

  const Processor processor_;
  const Ordering ordering_;
  const ControllerMutant mutant_;
  BroiLog* log_ = nullptr;
  // Broi: of each thread, the banks of its SubReady-SET and of its Next-SET, in as many words for
  // each, and the size of the former. Found for each choice; kept so that none allocates memory.
  std::vector<std::uint64_t> ready_sets_;
  std::vector<std::uint64_t> next_sets_;
  std::vector<std::uint64_t> ready_sizes_;
  // Epoch: a round is one epoch of the memory. Who has sent in it may not go on to its next epoch.
  struct Sent {
    std::uint64_t round = 0;
    std::uint64_t epoch = 0;
  };
  std::vector<Sent> newest_sent_;  // of each thread
  std::uint64_t round_ = 1;
  std::uint64_t in_round_ = 0;  // sent in this round and not persisted
};

}  // namespace perdure::memsys
