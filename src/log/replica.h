// Replica: one copy of a log as its writer drives it. Sends what is staged by the method planned
// for that machine, and knows how far it is durable there. One replica failing never throws the
// others off: it is marked down, with the reason.
#pragma once

#include <perdure/result.h>
#include <perdure/types.h>

#include "client/drift.h"
#include "client/method_choice.h"
#include "client/peer.h"
#include "core/backoff.h"
#include "core/method.h"
#include "log/brought_so_far.h"
#include "log/log_format.h"
#include "log/log_state.h"
#include "log/staging.h"
#include "persist/requester.h"
#include "plan/cost.h"

#include <array>
#include <memory>
#include <optional>
#include <string>

namespace perdure::log {

/// Batches in flight to one replica. What is appended meanwhile is coalesced into the next batch.
inline constexpr std::size_t kBatchesMax = 8;
/// Batches, and the committed word.
inline constexpr std::size_t kUpdatesMax = 2 * kBatchesMax;
/// So much of it need not wait for the batch before: a message of its own costs little beside it.
inline constexpr std::uint64_t kGatherBytes = 4096;

struct ReplicaOptions {
  std::string pool;
  LogShape shape = LogShape::Singleton;  // set when prepared
  std::optional<Primary> primary;        // forced by the user; nothing: the planner chooses
  Level level = Level::Durable;          // the least that appends are to reach on a replica
  std::size_t batches_in_flight = 4;     // 1..kBatchesMax
  bool measure_costs = true;  // false: methods are chosen by what connections usually cost
  Nanoseconds replica_timeout = std::chrono::seconds(5);  // without an answer for this long: down
  Nanoseconds reconnect{0};                               // see Backoff
  const Clock* clock = nullptr;
};

/// Threads: one caller at a time.
class Replica {
 public:
  Replica(std::unique_ptr<client::Peer> peer, ReplicaOptions options);

  /// Opens a write session. Errors: those of Peer::open_session.
  Result<void> open_session(const control::SessionRequest& request);
  /// Measures the connection, then plans and compiles for a log of `shape`; `staging` is registered
  /// with the peer's device.
  /// Errors: those of plan::plan, of compiling, of registration and of client::measure_costs.
  Result<void> prepare(LogShape shape, Staging& staging);
  /// From now on uses the methods that are cheapest by these costs. Methods that replay messages
  /// are kept, and never come after others: the responder may still have to copy what they sent.
  /// Requires nothing in flight. Errors: those of plan::plan and of compiling; all stays as it was.
  Result<void> plan_for(const plan::CostModel& costs);

  /// From now on records at `lsn` and later are sent; everything before is durable there.
  void resume_at(Lsn lsn);

  /// Takes answers, and sends what is staged below `end` as far as the window allows. When batches
  /// have long taken other times than was measured, and nothing is in flight, the connection is
  /// measured again: some milliseconds, at most once in kMeasureEveryMin.
  void pump(const Staging& staging, Lsn end, std::uint64_t ring_bytes);
  /// The same after an append, when more may follow: while a batch is in flight, records gather
  /// for the next one, up to kGatherBytes. Takes answers only if `look`.
  void offer(const Staging& staging, Lsn end, std::uint64_t ring_bytes, bool look);

  /// Writes bytes at `at` of the pool and waits until they are durable: anchors, words, repair.
  /// Requires nothing of the log in flight.
  /// Errors: those of the connection. TimedOut: some of it may be written, and may still be when
  /// this returns; the replica can go on, and what is written next waits for it.
  Result<void> write_now(std::uint64_t at, std::span<const std::byte> bytes);

  /// Makes the replica say `state`: the older copy first, then the other, each durable. Requires
  /// note_state before, and what write_now does.
  Result<void> write_state(const LogState& state);
  /// What is there before the next write_state; nothing: no state was ever written.
  void note_state(const std::optional<StoredState>& stored);
  /// The state as it was written or noted last.
  const std::optional<LogState>& state() const { return state_; }
  std::uint64_t state_generation() const { return state_generation_; }

  /// Raises the committed word without waiting for it: to `committed`, or what is durable here if
  /// that is less. Does nothing while anything is in flight.
  void note_committed(Lsn committed);

  /// The pool that holds it, as far as its peer was asked.
  const std::optional<pmem::Uuid>& pool() const { return pool_; }
  void set_pool(const pmem::Uuid& pool) { pool_ = pool; }
  /// Every call that waits ends by then as well. Nothing: only by `replica_timeout`.
  void set_deadline(const std::optional<Deadline>& deadline) { deadline_ = deadline; }
  Deadline deadline() const;
  /// Until what was written is returned by a READ of another connection.
  Deadline visible_within() const;

  /// Marks it down when it owes an answer for longer than `replica_timeout`. Reads the clock.
  void look_for_stall();

  void mark_down(Error why);

  /// Bringing it back has not come to its end, but further than before: it is tried again soon.
  void got_on() { backoff_.reset(); }

  /// How far bringing it back has come; forgotten when it is.
  BroughtSoFar& brought_so_far() { return brought_so_far_; }
  const BroughtSoFar& brought_so_far() const { return brought_so_far_; }

  /// Whether it is time to try again to bring it back. Requires that it is down.
  bool retry_due(Nanoseconds now) const { return backoff_.due(now); }

  bool has_session() const { return session_.has_value(); }
  bool up() const { return requester_ != nullptr; }
  bool sending() const { return sending_; }
  bool answer_due() const { return sending_ && requester_->begun() != requester_->resolved(); }
  /// Everything below is durable on this replica, as far as its writer was told.
  Lsn durable_below() const { return durable_; }
  const std::optional<Error>& down_reason() const { return down_reason_; }
  client::Peer& peer() { return *peer_; }
  const client::Peer& peer() const { return *peer_; }
  const client::Session& session() const { return *session_; }
  fabric::Endpoint* endpoint() { return session_ ? session_->endpoint.get() : nullptr; }
  const ReplicaOptions& options() const { return options_; }
  /// The methods in use: for small batches and for large ones, and where the one ends.
  const Method& small_method() const { return methods_[kLogSmall]; }
  const Method& large_method() const { return methods_[kLogLarge]; }
  std::uint64_t small_bytes_max() const { return small_bytes_max_; }
  /// What they were chosen by, and how often drift has led to other methods.
  const plan::CostModel& costs() const { return costs_; }
  std::uint64_t replans() const { return replans_; }
  persist::RequesterCounters counters() const;

 private:
  enum MethodIndex : std::size_t { kLogSmall, kLogLarge, kRawSmall, kRawLarge, kMethods };

  /// What a batch of a method should take, as straight lines over its size.
  struct Expectation {
    client::ExpectedTime fixed;
    client::ExpectedTime per_byte;
  };
  /// The batch that is, or was, alone on the connection.
  struct Single {
    std::uint64_t number = 0;
    std::uint64_t bytes = 0;
    Nanoseconds since{0};
    std::uint32_t polls = 0;  // idle_polls_ then
  };

  Result<void> open_requester();
  Result<plan::CostModel> measure(Nanoseconds answer_within);
  void measure_again();
  Expectation expectation(const Method& method) const;
  void note_time_of_single();
  Result<std::uint64_t> begin_batch(const Staging::Run& run, std::uint64_t ring_bytes);
  void take_answers();
  void send(const Staging& staging, Lsn end, std::uint64_t ring_bytes);
  void note_progress();
  Result<std::uint64_t> begin_piece(const Staging::Run& run, std::uint64_t ring_bytes);
  Result<std::uint64_t> begin_raw(std::uint64_t at, std::size_t bytes);
  Result<void> await_raw(std::uint64_t number);

  std::unique_ptr<client::Peer> peer_;
  ReplicaOptions options_;
  std::optional<client::Session> session_;
  std::unique_ptr<fabric::Memory> staging_memory_;
  std::unique_ptr<fabric::Memory> bounce_memory_;
  std::unique_ptr<fabric::Memory> words_memory_;
  std::unique_ptr<persist::Requester> requester_;
  std::vector<Method> methods_;
  plan::CostModel costs_;
  std::array<Expectation, 2> expected_;  // by MethodIndex, of the log's
  client::DriftWatch drift_;
  Single single_;  // that is timed
  std::uint32_t singles_ = 0;
  std::uint64_t replans_ = 0;
  std::uint64_t small_bytes_max_ = 0;
  std::uint64_t raw_small_bytes_max_ = 0;
  std::uint64_t piece_bytes_max_ = 0;  // of one update; a longer record goes in pieces
  std::uint64_t piece_sent_ = 0;       // of the record at next_, in pieces before its last one

  std::unique_ptr<std::byte[]> bounce_;  // write_now
  std::uint64_t raw_number_ = 0;         // of the request that sent it last
  // Tail words in flight, and behind them the committed word.
  alignas(64) std::array<std::uint64_t, kUpdatesMax + 1> words_{};
  Lsn committed_word_;             // written last
  std::uint64_t word_number_ = 0;  // of the request that wrote it
  std::optional<pmem::Uuid> pool_;
  std::optional<LogState> state_;
  std::uint64_t state_generation_ = 0;
  std::size_t state_copy_ = 0;  // the newest
  std::optional<Deadline> deadline_;
  std::array<Lsn, kUpdatesMax> batch_ends_{};  // of what is in flight, by number
  std::uint64_t first_batch_ = 0;  // update number before the first batch since resume_at
  std::uint64_t answered_ = 0;     // update number up to which durable_ reflects
  bool sending_ = false;
  Lsn next_;  // where sending goes on
  Lsn durable_;
  std::optional<Nanoseconds> last_look_;  // since there was progress
  Nanoseconds silent_{0};                 // how long it has had something to answer and did not
  std::uint32_t idle_polls_ = 0;
  std::optional<Error> down_reason_;
  BroughtSoFar brought_so_far_;
  Backoff backoff_;
};

}  // namespace perdure::log
