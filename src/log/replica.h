// Replica: one copy of a log as its writer drives it: LSNs on top of a durable session. Sends what
// is staged, and knows how far it is durable there. One replica failing never throws the others
// off: it is marked down, with the reason.
#pragma once

#include <perdure/result.h>
#include <perdure/types.h>

#include "client/durable_session.h"
#include "log/brought_so_far.h"
#include "log/log_format.h"
#include "log/log_state.h"
#include "log/reconnection.h"
#include "log/staging.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>

namespace perdure::log {

/// Batches in flight to one replica. What is appended meanwhile is coalesced into the next batch.
inline constexpr std::size_t kBatchesMax = 8;
static_assert(kBatchesMax < client::kUpdatesMax, "beside batches the committed word is in flight");
/// So much of it need not wait for the batch before: a message of its own costs little beside it.
inline constexpr std::uint64_t kGatherBytes = 4096;

struct ReplicaOptions {
  std::size_t batches_in_flight = 4;  // 1..kBatchesMax
  client::DurableSessionOptions session;
};

/// Threads: one caller at a time.
class Replica {
 public:
  Replica(std::unique_ptr<client::Peer> peer, ReplicaOptions options);
  /// Ends the connection before the memory goes that its requests name, and that before the device.
  ~Replica();
  Replica(Replica&&) = default;
  Replica& operator=(Replica&&) = delete;

  /// Opens a write session. Errors: those of DurableSession::open; InvalidArgument: the peer has
  /// another pool of that name now.
  Result<void> open_session(const control::SessionRequest& request);
  /// Makes the session ready for a log of `shape`; `staging` is registered with the peer's device.
  /// Errors: those of DurableSession::prepare.
  Result<void> prepare(LogShape shape, Staging& staging);

  // In place of these two, of one that is down:

  /// Begins to connect to it anew, by a thread. Requires that this has not begun already.
  void begin_connecting(ConnectOptions options, Staging& staging);
  /// What was begun and not taken; nothing is.
  Reconnection* connecting() { return connecting_.get(); }
  void forget_connecting() { connecting_.reset(); }
  /// Connects within the deadline, in the caller. Errors: those of connect().
  Result<Connected> connect_now(ConnectOptions options, Staging& staging, const Deadline& deadline);
  /// Goes on over the connection, until the deadline. Returns what to read it by, until then, too.
  /// Requires that it is down.
  std::unique_ptr<client::RemoteBytes> go_on_over(Connected connected, LogShape shape,
                                                  const Deadline& deadline);

  /// From now on records at `lsn` and later are sent; everything before is durable there.
  void resume_at(Lsn lsn);

  /// Takes answers, and sends what is staged below `end` as far as the window allows. Waits only
  /// where `until` lets it follow a drift of the connection (DurableSession::follow_drift).
  void pump(const Staging& staging, Lsn end, std::uint64_t ring_bytes,
            const std::optional<Deadline>& until = std::nullopt);
  /// The same after an append, when more may follow: while a batch is in flight, records gather
  /// for the next one, up to kGatherBytes. Takes answers only if `look`.
  void offer(const Staging& staging, Lsn end, std::uint64_t ring_bytes, bool look);

  /// Whether nothing is in flight, and what is at `lsn` is the next to send, alone in its batch.
  bool takes_alone(Lsn lsn) const { return alone_at_ == lsn && session_.up() && session_.idle(); }
  /// Sends it, in the caller. Requires takes_alone, and nothing staged behind. False: it is no
  /// update that begin_common takes, and nothing was done.
  bool send_alone(const Staging::Run& record, std::uint64_t ring_bytes);

  /// DurableSession::write_now: anchors, words, repair.
  Result<void> write_now(std::uint64_t at, std::span<const std::byte> bytes,
                         std::uint64_t* written = nullptr) {
    return session_.write_now(at, bytes, written);
  }

  /// Makes the replica say `state`: the older copy first, then the other, each durable. Requires
  /// note_state before, and what write_now does. Errors: those of write_now; Corrupt: nobody could
  /// read that state, and nothing was written.
  Result<void> write_state(const LogState& state);
  /// What is there before the next write_state; nothing: no state was ever written.
  void note_state(const std::optional<StoredState>& stored);
  /// The state as it was written or noted last.
  const std::optional<LogState>& state() const { return state_; }
  std::uint64_t state_generation() const { return state_generation_; }

  /// Raises the committed word without waiting for it: to `committed`, or what is durable here if
  /// that is less. Does nothing while anything is in flight.
  void note_committed(Lsn committed);
  /// Whether that has begun, or it is down.
  bool was_told(Lsn committed) const {
    return !sending() || committed_word_ >= std::min(committed, durable_);
  }

  /// The pool that holds it, as far as its peer was asked.
  const std::optional<pmem::Uuid>& pool() const { return pool_; }
  void set_pool(const pmem::Uuid& pool) { pool_ = pool; }
  /// Why it can not be written as was asked for, as far as that shows before a session to write is
  /// opened. It can be read all the same.
  const std::optional<Error>& unfit() const { return unfit_; }
  void note_unfit(Error why) { unfit_ = std::move(why); }
  /// How far bringing it back has come; forgotten when it is.
  BroughtSoFar& brought_so_far() { return brought_so_far_; }
  const BroughtSoFar& brought_so_far() const { return brought_so_far_; }

  bool sending() const { return sending_ && session_.up(); }
  bool answer_due() const { return sending() && !session_.idle(); }
  /// How many updates have been answered, whatever became of the others.
  std::uint64_t answered() const { return session_.begun() - session_.in_flight(); }
  /// What is staged below waits for the answer that is due; if none is, or it is down, nothing
  /// does.
  Lsn gathers_until() const {
    if (!sending()) return Lsn{kLsnMax};
    return answer_due() ? Lsn{next_.value + kGatherBytes} : Lsn{};
  }
  /// Everything below is durable on this replica, as far as its writer was told.
  Lsn durable_below() const { return durable_; }
  // Of the session.
  client::Peer& peer() { return session_.peer(); }
  const client::Peer& peer() const { return session_.peer(); }
  bool has_session() const { return session_.is_open(); }
  bool up() const { return session_.up(); }
  const std::optional<Error>& down_reason() const { return session_.down_reason(); }
  void mark_down(Error why) { session_.mark_down(std::move(why)); }
  void check_timeout() { session_.check_timeout(); }
  /// What it stands on: the connection, its methods, its deadlines.
  client::DurableSession& session() { return session_; }
  const client::DurableSession& session() const { return session_; }

 private:
  /// Once update `number` has resolved, everything below `end` is durable.
  struct Batch {
    std::uint64_t number = 0;
    Lsn end;
  };

  static constexpr Lsn kNowhere{UINT64_MAX};

  ConnectOptions filled(ConnectOptions options, Staging& staging);
  void note_next() {
    const bool alone = sending_ && shape_ == LogShape::Singleton && piece_sent_ == 0;
    alone_at_ = alone ? next_ : kNowhere;
  }
  Result<std::uint64_t> begin_batch(const Staging::Run& run, std::uint64_t ring_bytes);
  void take_answers();
  void send(const Staging& staging, Lsn end, std::uint64_t ring_bytes);
  bool send_last(const Staging& staging, std::uint64_t ring_bytes);
  Result<std::uint64_t> begin_piece(const Staging::Run& run, std::uint64_t ring_bytes);

  std::size_t batches_in_flight_;
  LogShape shape_ = LogShape::Singleton;
  // Tail words in flight, and behind them the committed word.
  alignas(64) std::array<std::uint64_t, client::kUpdatesMax + 1> words_{};
  std::unique_ptr<fabric::Memory> staging_memory_;
  std::unique_ptr<fabric::Memory> words_memory_;
  client::DurableSession session_;
  std::uint64_t piece_sent_ = 0;   // of the record at next_, in pieces before its last one
  Lsn committed_word_;             // written last
  std::uint64_t word_number_ = 0;  // of the update that wrote it
  std::optional<pmem::Uuid> pool_;
  std::optional<Error> unfit_;
  std::optional<LogState> state_;
  std::uint64_t state_generation_ = 0;
  std::size_t state_copy_ = 0;                // the newest
  std::array<Batch, kBatchesMax> batches_{};  // in flight, by the count of batches before
  std::uint64_t batches_begun_ = 0;
  std::uint64_t batches_answered_ = 0;
  bool sending_ = false;
  Lsn next_;  // where sending goes on
  /// The same, where what is there may go alone: it is sending, no part of a record went before,
  /// and the log is a singleton. Else kNowhere.
  Lsn alone_at_ = kNowhere;
  Lsn durable_;
  BroughtSoFar brought_so_far_;
  std::unique_ptr<Reconnection> connecting_;  // goes before what it registers
};

inline void Replica::offer(const Staging& staging, Lsn end, std::uint64_t ring_bytes, bool look) {
  if (!sending()) return;
  if (look) {
    take_answers();
    if (!up()) return;
  }
  if (!session_.idle() && end.value - next_.value < kGatherBytes) return;
  if (!send_last(staging, ring_bytes)) send(staging, end, ring_bytes);
}

/// The commonest case of send, in the caller: the last record that was staged is all that there is
/// to send. False: it is not that, and nothing was done.
inline bool Replica::send_last(const Staging& staging, std::uint64_t ring_bytes) {
  const std::optional<Staging::Run> last = staging.last_from(next_);
  return last && shape_ == LogShape::Singleton && piece_sent_ == 0 && send_alone(*last, ring_bytes);
}

[[gnu::always_inline]] inline bool Replica::send_alone(const Staging::Run& record,
                                                       std::uint64_t ring_bytes) {
  if (batches_begun_ - batches_answered_ >= batches_in_flight_) return false;
  const persist::UpdateItem item{kRingAt + record.lsn.value % ring_bytes,
                                 {record.data, record.length, staging_memory_.get()}};
  const std::uint64_t number = session_.begin_common(item);
  if (number == 0) return false;
  next_ = alone_at_ = record.end;
  batches_[batches_begun_++ % kBatchesMax] = {number, next_};
  return true;
}

}  // namespace perdure::log
