// Executor: executes the calls that stand in the rings of clients, in order, each exactly once, and
// keeps their replies. Who tells it that there may be some is the host's business (rpc_host.h).
//
// Calls that are found together share a transaction, and so a flush. What a transaction has of each
// call: what its handler wrote, its reply, and the mark that it is applied.
#pragma once

#include <perdure/result.h>
#include <perdure/rpc.h>

#include "core/clock.h"
#include "core/mutex.h"
#include "core/try.h"
#include "rpc/executing_now.h"
#include "rpc/handler_threads.h"
#include "rpc/place_hints.h"
#include "rpc/rpc_pool.h"
#include "rpc/work_mutex.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace perdure::rpc {

/// Calls that share a transaction.
inline constexpr std::size_t kCallsPerTransaction = 64;
/// Once its handlers have taken that long no further one is in a transaction: who waits for it to
/// end (a new client, an operator) does so for one call of a slow handler, not for 64.
inline constexpr Nanoseconds kHandlersWithin = std::chrono::milliseconds(10);
/// A place is made or freed, and an operator's decision made, within that, or not: a thread that
/// waits for a handler serves nobody.
inline constexpr Nanoseconds kPlaceWithin = std::chrono::seconds(1);
/// What is said of an exception that is none of the standard library's.
inline constexpr std::string_view kUnknownException = "an unknown exception";

struct ExecutorOptions {
  std::map<std::uint32_t, RpcHandler> handlers;
  std::map<std::uint32_t, RpcQueryHandler> queries;
  std::uint32_t attempts_max = 3;
  bool refuse_failed = false;
  std::size_t threads = 1;                // that execute calls, at most kExecutingMax
  std::uint64_t answer_bytes_max = 8000;  // of one query
  bool executes = true;                   // else it only decides about calls, as an operator wants
  const Clock* clock = &Clock::monotonic();
};

/// What a client is told when it has connected.
struct Welcome {
  std::uint64_t client = 0;
  std::uint64_t applied = 0;   // sequence of the last call that is
  std::uint64_t position = 0;  // behind its entry
  std::uint64_t durable = 0;   // of the last whole entry behind that, or `applied`
  std::uint64_t end = 0;       // behind that
};

/// How far the calls of a client are.
struct AppliedUpTo {
  std::uint64_t sequence = 0;
  std::uint64_t position = 0;
  bool held = false;  // the next one is set aside
};

/// Where the answer of a query goes.
struct AnswerRoom {
  std::span<std::byte> first;     // as much of it as there is room for
  std::vector<std::byte>& whole;  // all of it, if that is not all
};

/// Calls that are executed at the same time are of different clients and have different order keys,
/// so their handlers touch different data. They are parts of one transaction, in the order in which
/// they were found; so nothing else knows of it.
///
/// Threads: any.
class Executor {
 public:
  /// Counts an attempt at the call that the last process was executing when it died.
  /// Errors: SystemError.
  static Result<std::unique_ptr<Executor>> open(std::unique_ptr<RpcPool> pool,
                                                ExecutorOptions options);

  /// Executes what it finds, up to kCallsPerTransaction calls (of several threads, the last of them
  /// together with those beside it), and makes it durable; returns how many were applied, or tried.
  /// Errors: SystemError: nothing is executed from then on.
  Result<std::size_t> process();
  /// The same, of places of which it was hinted that there may be something, and no other ring is
  /// looked at. What it leaves there is hinted again.
  Result<std::size_t> process_hinted();
  /// The same, of one place alone, whatever is hinted; nothing: another thread is at it, or calls
  /// are to be executed one by one, for one of them may have ended the last server.
  std::optional<Result<std::size_t>> try_process_at(std::size_t place);
  /// There may be something new in the ring of a place. A hint that nobody gives costs time, and no
  /// call: process() looks at all rings.
  void hint(std::size_t place) { hints_.set(place); }
  /// Whether there may be: false only if there was nothing to execute when it was asked.
  bool may_hold_call(std::size_t place);
  /// How often a ring was looked at.
  std::uint64_t looks() const { return looks_.load(std::memory_order_relaxed); }

  // The table of clients.

  /// The place of a client; nothing: it has none.
  std::optional<std::size_t> place_of(const std::string& name) const;
  std::vector<std::string> names() const;
  /// A place that is free. `prepare` makes the client's pool there, before it is durable that the
  /// place is taken. Errors: AlreadyExists, NoSpace, SystemError, Busy (no transaction ended within
  /// kPlaceWithin), those of `prepare`.
  template <typename Prepare>
  auto add_client(const std::string& name, Prepare prepare) -> decltype(prepare(std::size_t{})) {
    if (!work_.lock_within(kPlaceWithin)) return busy();
    const WorkLock work(work_, std::adopt_lock);
    PERDURE_TRY(place, find_room(name));
    auto prepared = prepare(place);
    if (!prepared.ok()) return prepared;
    PERDURE_TRY_VOID(take_place(place, name));
    return prepared;
  }
  /// Frees the client's place. Errors: NotFound; Busy (it has calls that are not applied, or no
  /// transaction ended within kPlaceWithin).
  Result<void> remove_client(const std::string& name);
  /// Clients of which nothing is unapplied, and that were silent for this long.
  std::vector<std::string> silent_for(Nanoseconds lease) const;
  /// Whether that client is one of them.
  bool is_silent(const std::string& name, Nanoseconds lease) const;
  /// An operator's decision about a call that is set aside: it is executed again, as if for the
  /// first time; or refused, with SystemError. On success the decision is durable.
  /// Errors: NotFound (no such client), InvalidArgument (this call is not set aside, or a handler
  /// of this thread asks, which would wait for itself), Busy (no transaction ended within
  /// kPlaceWithin), SystemError; of drop also Corrupt (it is not whole in the ring any more).
  Result<void> retry(const std::string& name, std::uint64_t sequence);
  Result<void> drop(const std::string& name, std::uint64_t sequence);
  /// The client at a place has, or had until now, a session.
  void note_heard(std::size_t place);
  /// Until now none of them could have one.
  void note_all_heard();

  // What clients ask, by the threads of their sessions.

  /// `known`: the client's id, if it has been told it before.
  /// Errors: NotFound (another client is there now: it has expired).
  Result<Welcome> welcome(std::size_t place, std::uint64_t known);
  /// How far it is, and the replies from `from` on that are kept: `visit` takes them in order until
  /// it says no. Errors: NotFound.
  template <typename Visit>
  Result<AppliedUpTo> collect(std::size_t place, std::uint64_t client, std::uint64_t from,
                              Visit visit) {
    MutexLock view(view_);
    PERDURE_TRY_VOID(check_client(place, client));
    const ClientPlace& at = places_[place];
    const std::uint64_t kept = pool_->shape().replies;
    const std::uint64_t oldest = at.applied < kept ? 1 : at.applied - kept + 1;
    for (std::uint64_t sequence = std::max(from, oldest); sequence <= at.applied; ++sequence) {
      const auto reply = pool_->reply(place, sequence);
      const ReplyHead head = decode_reply_head(reply.data());
      if (head.sequence != sequence || head.bytes > pool_->shape().reply_bytes_max) break;
      if (!visit(head, reply.subspan(kReplyHeadBytes, head.bytes))) break;
    }
    return AppliedUpTo{at.applied, at.position, at.held};
  }
  /// Errors: NotFound: another client is there now.
  Result<void> require_client(std::size_t place, std::uint64_t client) {
    const MutexLock view(view_);
    return check_client(place, client);
  }
  /// Waits until call `sequence` is applied, or waits for an operator, but no longer than `within`.
  void await_applied(std::size_t place, std::uint64_t sequence, Nanoseconds within);
  /// What the handler says. Nothing: not every call up to `after` is applied, or others are being
  /// answered for `within`. Busy: one of those calls is set aside.
  /// Errors: NotFound: the client has expired.
  Result<std::optional<Result<std::size_t>>> query(std::size_t place, std::uint64_t client,
                                                   std::uint64_t after, std::uint32_t operation,
                                                   std::span<const std::byte> payload,
                                                   const AnswerRoom& room, Nanoseconds within);
  /// Bytes of a reply that is kept, from `offset` on. Errors: NotFound (the client, or the reply).
  Result<std::size_t> reply_piece(std::size_t place, std::uint64_t client, std::uint64_t sequence,
                                  std::uint64_t offset, std::span<std::byte> to);

  RpcServerStatus status() const;
  /// Sequence of the last call of a client that is applied; 0: there is no such client.
  std::uint64_t applied(std::size_t place) const;
  std::optional<Error> failure() const;
  RpcPool& pool() { return *pool_; }
  const PoolShape& shape() const { return pool_->shape(); }

 private:
  class Transaction;
  class View;
  /// A call that is executed beside others.
  struct Lane {
    Lane(const RedoLog& redo, std::size_t reply_bytes) : part(redo, nullptr), reply(reply_bytes) {}
    std::size_t place = 0;
    std::optional<FoundEntry> found;
    RedoLog part;
    std::vector<std::byte> entry;
    std::vector<std::byte> reply;
    std::string client;
    std::optional<Error> failure;                // of its transaction
    std::optional<Result<std::size_t>> outcome;  // nothing: its handler threw
  };
  enum class Step { Nothing, Applied, Again, Full };

  Executor(std::unique_ptr<RpcPool> pool, ExecutorOptions options);
  enum class Look { Everywhere, WhereHinted };
  Result<std::size_t> execute(Look look) PERDURE_REQUIRES(work_);
  Result<std::size_t> execute_due() PERDURE_REQUIRES(work_);
  void choose_places(Look look) PERDURE_REQUIRES(work_);
  std::size_t execute_in_turn(Nanoseconds until) PERDURE_REQUIRES(work_);
  std::size_t execute_waves(Nanoseconds until) PERDURE_REQUIRES(work_);
  Result<void> count_attempt() PERDURE_REQUIRES(work_);
  Result<void> keep_entry(std::size_t place, const FoundEntry& found) PERDURE_REQUIRES(work_);
  Step execute_next(std::size_t place) PERDURE_REQUIRES(work_);
  std::optional<Result<std::size_t>> run(const RpcCall& call, Transaction& transaction,
                                         std::span<std::byte> reply, std::size_t thread);
  std::vector<RpcExecuting> executing(const std::vector<ClientPlace>& places) const;
  Error busy() const;
  struct Wave {
    std::size_t calls = 0;  // applied, or tried
    bool full = false;      // it ends its transaction
    std::size_t first = 0;  // place of the first that has no part in it, if there is one
    bool left_out = false;
  };
  Wave execute_wave() PERDURE_REQUIRES(work_);
  std::size_t gather(Wave& wave) PERDURE_REQUIRES(work_);
  bool may_go_beside(std::size_t place, const Lane& lane, std::size_t lanes) const
      PERDURE_REQUIRES(work_);
  void execute_lane(Lane& lane, std::size_t thread);
  bool take_lane(Lane& lane, Wave& wave) PERDURE_REQUIRES(work_);
  void note_failed_attempt(std::size_t place, const FoundEntry& found) PERDURE_REQUIRES(work_);
  Step give_up(std::size_t place, const FoundEntry& found) PERDURE_REQUIRES(work_);
  void count(std::size_t place, const Entry& call, bool ok) PERDURE_REQUIRES(work_);
  Result<std::size_t> held_place(const std::string& name, std::uint64_t sequence) const
      PERDURE_REQUIRES(work_);
  void finish(std::size_t place, const FoundEntry& found, const Result<std::size_t>& outcome,
              std::span<const std::byte> reply) PERDURE_REQUIRES(work_);
  void finish_dropped(std::size_t place, const FoundEntry& found) PERDURE_REQUIRES(work_);
  void finish_cancelled(std::size_t place, const FoundEntry& found) PERDURE_REQUIRES(work_);
  void finish_with(std::size_t place, const FoundEntry& found, const ReplyHead& head,
                   std::span<const std::byte> reply = {}) PERDURE_REQUIRES(work_);
  void write_place(std::size_t place) PERDURE_REQUIRES(work_);
  std::uint64_t finish_bytes() const;
  std::uint64_t reserved_bytes() const;
  Result<void> commit() PERDURE_REQUIRES(work_);
  Result<void> commit_places() PERDURE_REQUIRES(work_);
  Result<void> record() PERDURE_REQUIRES(work_);
  Result<void> end_with(Result<void> done) PERDURE_REQUIRES(work_);
  void store() PERDURE_REQUIRES(work_);
  void tell() PERDURE_REQUIRES(work_);
  Result<std::size_t> find_room(const std::string& name) const PERDURE_REQUIRES(work_);
  Result<void> take_place(std::size_t place, const std::string& name) PERDURE_REQUIRES(work_);
  Result<std::size_t> answer(const RpcQueryHandler& handler, const RunningCall& query,
                             std::span<const std::byte> payload, std::span<std::byte> room)
      PERDURE_REQUIRES(data_);
  bool is_silent(std::size_t place, Nanoseconds lease) const PERDURE_REQUIRES(view_);
  Result<void> check_client(std::size_t place, std::uint64_t client) PERDURE_REQUIRES(view_);

  const std::unique_ptr<RpcPool> pool_;
  const ExecutorOptions options_;
  RedoLog& redo_;  // under work_; what it stores, under all three

  WorkMutex work_;                                              // one transaction at a time
  std::vector<ClientPlace> running_ PERDURE_GUARDED_BY(work_);  // with what is not committed
  std::vector<std::size_t> touched_ PERDURE_GUARDED_BY(work_);  // places that it changes
  std::vector<std::byte> entry_ PERDURE_GUARDED_BY(work_);
  std::vector<std::byte> reply_ PERDURE_GUARDED_BY(work_);
  std::size_t next_ PERDURE_GUARDED_BY(work_) = 0;          // whose turn it is
  std::vector<std::size_t> due_ PERDURE_GUARDED_BY(work_);  // places to look at, from that one on
  std::vector<std::unique_ptr<Lane>> lanes_ PERDURE_GUARDED_BY(work_);
  std::vector<Executing> suspects_
      PERDURE_GUARDED_BY(work_);  // one of them may have killed the last server
  RpcServerStatus counted_ PERDURE_GUARDED_BY(work_);
  bool data_is_held_ PERDURE_GUARDED_BY(work_) = false;  // by who commits

  WorkMutex data_;  // behind work_: what a query sees, for as long as it takes
  std::unique_ptr<std::byte[]> answer_ PERDURE_GUARDED_BY(data_);  // of one that may be large

  mutable Mutex
      view_;  // behind both, and never for long: what the pool's bytes show, but for rings
  std::vector<ClientPlace> places_ PERDURE_GUARDED_BY(view_);
  std::vector<Nanoseconds> heard_ PERDURE_GUARDED_BY(view_);  // by place
  RpcServerStatus shown_ PERDURE_GUARDED_BY(view_);
  std::vector<std::byte> scratch_ PERDURE_GUARDED_BY(view_);
  std::vector<std::condition_variable> applied_;  // by place: who waits there
  ExecutingNow executing_;
  PlaceHints hints_;
  std::atomic<std::uint64_t> looks_{0};
  std::unique_ptr<HandlerThreads> threads_;  // or none
};

}  // namespace perdure::rpc
