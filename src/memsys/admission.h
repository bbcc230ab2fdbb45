// Admission: which request enters the controller next, and when its thread allows it. Here the
// orders of persistence differ; the controller behind it is the same for all.
#pragma once

#include "memsys/pending_writes.h"
#include "memsys/trace_streams.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace perdure::memsys {

/// How writes of different epochs are kept apart.
enum class Order {
  Thread,  // an epoch starts when the last one of its thread is persisted; buffers are ideal
  Global,  // epochs of all threads with the same number are one
  Sync,    // as Thread, and the thread itself waits at a barrier (CLWB and SFENCE)
  // From here on through persist buffers (buffered_admission.h), so that threads run ahead.
  Epoch,   // delegated ordering: a barrier of one thread is one for all that is then buffered
  Broi,    // the BROI controller
  Hops,    // by thread; dependencies between threads are seen by polling, and sends are delayed
  Strand,  // epochs order writes of their strand only
  Asap,    // sent at once, counting when the earlier epochs are persisted; limited undo entries
  Eadr,    // the caches are persistent: no order at all
};

std::string_view to_string(Order order);
/// All of them, with `|` between: for help texts.
std::string order_names();
/// The inverse of to_string. Errors: InvalidArgument, naming the accepted words.
Result<Order> parse_order(std::string_view word);

/// What a deliberately broken controller forgets; for the tests of the law.
struct Mutant {
  bool ignores_barriers = false;
  bool ignores_lines = false;
};

class Admission {
 public:
  static constexpr bool kBuffered = false;
  /// Of so many lines without writes in flight it is known when the last one persisted: a later
  /// write of another thread enters then at the earliest.
  static constexpr std::size_t kLinesRemembered = std::size_t{1} << 16;

  Admission(TraceStreams& streams, Order order, Mutant mutant = {});

  // To be called by the listener of the streams.
  void on_read(const TraceEvent& event);

  /// When the request that is next in line entered the line, or will; kNever: none can, unless
  /// something is served.
  Cycle ready_at() const { return ready_at_; }
  /// Requires  ready_at() != kNever.
  const TraceEvent& front() { return *streams_.peek(front_thread_); }
  Cycle front_since() const { return ready_at_; }
  void take();

  template <typename Sink>
  void advance(Cycle /*now*/, Sink /*sink*/) {}
  void on_served(const TraceEvent& /*event*/) {}
  /// The cycle in which a write that was taken persists is known from now on.
  template <typename Sink>
  void on_device_persist(const TraceEvent& write, Cycle persists, Sink sink) {
    on_persist_known(write, persists);
    sink(write, persists);
  }
  /// That cycle has come.
  void on_persisted(const TraceEvent& write);

  /// What each thread that can not go on waits for; for the message about a deadlock.
  std::string describe_blocked();
  void start();
  /// For how many writes and lines it has memory.
  std::size_t room() const { return pending_.room() + past_.size(); }

 private:
  enum class Blocked : std::uint8_t { No, Fence, Epoch, Line, Lookahead, Finished };
  struct Thread {
    Cycle entered = 0;          // its last request
    Cycle ready = 0;            // its next one; kNever: blocked
    Cycle last_persist = 0;     // of what is known
    std::uint64_t unknown = 0;  // writes taken whose persist cycle is not known
    std::uint32_t epoch = 0;
    std::uint32_t next_write_epoch = 0;
    bool next_write_known = false;
    bool barrier = false;  // since the last write taken
    bool fence = false;
    Blocked blocked = Blocked::No;
  };
  /// Of a line of which a write has persisted.
  struct Past {
    std::uint32_t thread = 0;  // of its last persist
    Cycle persisted = 0;
    Cycle persisted_by_others = 0;    // the last one of another thread than that
    std::uint64_t remembered_at = 0;  // in the count of lines that were, when nothing was pending
  };

  void on_persist_known(const TraceEvent& write, Cycle persists);
  void remember(std::uint64_t line, Past& past);
  void update(std::uint32_t number);
  void update_blocked();
  bool allow_write(Thread& thread, const TraceEvent& event, Cycle& at);
  bool allow_line(const TraceEvent& event, Cycle& at, Thread& thread);
  void choose_front();
  void advance_global_epoch();
  std::uint32_t next_write_epoch(std::uint32_t number);

  TraceStreams& streams_;
  const Order order_;
  const Mutant mutant_;
  const bool several_;
  std::vector<Thread> threads_;
  PendingWrites pending_;                         // read, and not yet persisted; of several threads
  std::unordered_map<std::uint64_t, Past> past_;  // by line
  Ring<std::uint64_t> remembered_;  // lines, in the order in which nothing was pending any more
  std::uint64_t remembered_count_ = 0;
  std::uint32_t front_thread_ = 0;
  Cycle ready_at_ = 0;
  std::uint32_t blocked_ = 0;  // threads that wait for something to be served, or read
  // Order::Global
  std::uint32_t global_epoch_ = 0;
  Cycle global_open_at_ = 0;
  std::uint64_t global_unknown_ = 0;
  Cycle global_last_persist_ = 0;
};

}  // namespace perdure::memsys
