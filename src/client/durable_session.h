// DurableSession: an open, registered, measured and planned connection to a pool, over which
// updates are made durable. It owns what everything that stands on it needs alike: the profile and
// the costs of the connection and the methods chosen by them, time-outs, back-off, coming back, and
// how far what was begun is durable. The log's Replica is LSNs on top of it.
//
// An update is one or more ordered epochs, each some ranges of bytes: nothing of a later epoch is
// at the level that was asked for before all of the earlier ones are. Updates are numbered from 1
// over all connections of a session, many may be in flight, and they resolve in the order in which
// they were begun: once one has resolved, it and all before it on its connection are at the level
// that was asked for. Between two updates there is no other order: after a crash a later one that
// did not resolve may be there without an earlier one. What has to wait because much is in flight
// is coalesced: small updates go together in one message, and resolve together.
#pragma once

#include <perdure/result.h>
#include <perdure/types.h>

#include "client/drift.h"
#include "client/peer.h"
#include "core/backoff.h"
#include "core/cut_switch.h"
#include "core/method.h"
#include "persist/atomics.h"
#include "persist/ordered.h"
#include "persist/requester.h"
#include "plan/cost.h"
#include "plan/method_set.h"

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace perdure::client {

/// Work of a connection that can be in flight at a time, and updates that can be unresolved.
inline constexpr std::size_t kUpdatesMax = 16;
/// Small updates that would go behind so many requests wait, and are coalesced.
inline constexpr std::size_t kCoalesceBehind = 4;
/// The largest range of one update.
inline constexpr std::uint64_t kRangeBytesMax = 16 * 1024 * 1024;

struct DurableSessionOptions {
  std::optional<Primary> primary;      // forced by the user; nothing: the planner chooses
  Level level = Level::Durable;        // the least that an update is to reach
  bool measure_costs = true;           // false: methods are chosen by what connections usually cost
  std::size_t requests_in_flight = 4;  // of update(), atomic(), read(): 1..kUpdatesMax
  /// 64 bytes of the pool that hold nothing, if it has them: WRITEs are timed too.
  std::optional<std::uint64_t> probe_line;
  /// update(), atomic() or request() will be called: what is in flight is noted, so that it is
  /// waited for before its place is written again. begin() alone leaves that to its caller.
  bool ranges_again = false;
  /// The largest payloads of request() and of its reply: of a request no more than a message of the
  /// peer's receive queue has room for, whatever is said here, and of a reply
  /// persist::kReplyPayloadMax. Each receive buffer has room for one reply.
  std::size_t request_bytes_max = persist::kAtomicPayloadBytes;
  std::size_t reply_bytes_max = persist::kAtomicBytes;
  Nanoseconds timeout = std::chrono::seconds(5);  // without an answer for this long: down
  Nanoseconds open_within{0};                     // each step of open and prepare; 0: timeout
  Nanoseconds reconnect{0};                       // see Backoff
  const Clock* clock = nullptr;
  /// What ends a connection before anything else than the bytes that it is to carry is read from
  /// where they were (pmem::Region::cut_on_failure). Called with each connection; what it returns
  /// goes before that does. Empty: nothing of the kind.
  std::function<std::shared_ptr<void>(const CutSwitch&)> tie = {};
};

/// One epoch of an update: ranges of the pool that have no order among themselves, and do not
/// overlap. Their bytes lie in memory that register_memory gave, and stay as they are until the
/// update resolves.
using Ranges = std::span<const persist::UpdateItem>;

/// Threads: one caller at a time.
class DurableSession {
 public:
  DurableSession(std::shared_ptr<Peer> peer, DurableSessionOptions options);
  DurableSession(DurableSession&&) = default;            // of one in which nothing is in flight
  DurableSession& operator=(DurableSession&&) = delete;  // its connection must end first

  /// Another session to the same peer, without a connection, which any thread may make one for
  /// while this one stays down: it will go on counting updates where this one is.
  /// Requires that this one is down.
  DurableSession successor() const;
  /// Takes what was made of a successor, and goes on with its connection; when to try again stays.
  void go_on_as(DurableSession&& successor);

  // Connecting, in this order; again after it went down. What had not resolved on the connection
  // before is lost sight of: it may be durable or not.

  /// Errors: those of Peer::open_session; ProtocolError (messages too short to be of use).
  Result<void> open(const control::SessionRequest& request);
  /// Closes its connection; the peer notices that when it comes to it. Harmless when there is none.
  void close();
  /// The same, but asks the peer to end it: if it answers in time, no other writer is refused for
  /// its sake any more.
  void give_back(Deadline deadline);
  /// For the bytes of updates. It must go before the memory does, and is good until the next open;
  /// until close() it must stay, whatever has resolved: see persist::UpdateItem.
  /// Requires open.
  Result<std::unique_ptr<fabric::Memory>> register_memory(std::span<std::byte> memory);
  /// Whether `reading`, a session that reads the same pool, leaves room for methods to write there:
  /// before one is opened that may fence somebody. What only a session to write shows is taken to
  /// be the best. Errors: those of plan::plan.
  Result<void> check_methods(const Session& reading, bool tail_word) const;
  /// Measures the connection, then plans and compiles. With `tail_word` updates mostly are a range
  /// and then a word, and both go in one request.
  /// Errors: those of plan::plan, of compiling, of registration and of measure_costs; it is closed.
  Result<void> prepare(bool tail_word);
  /// From now on uses the methods that are cheapest by these costs, and expects them. Methods that
  /// replay messages are kept, and never come after others (core/method_set.h).
  /// Requires nothing in flight. Errors: those of plan::plan and of compiling; all stays as it was.
  Result<void> plan_for(const plan::CostModel& costs);

  /// Begins an update of any shape; returns its number. Ranges that are still in flight are waited
  /// for before they are written again, and so is each epoch before the next, unless one request
  /// keeps them in order: a method's, for a range and a word with `tail_word`, or a message, whose
  /// epochs the responder's processor makes durable one after the other (persist/ordered.h). That
  /// takes what fits into DurableSessionOptions::request_bytes_max and copies it: any number of
  /// epochs and ranges, and with them the updates that wait behind, in their order. No message is
  /// used where the user forced WRITE, or asked for less than durable.
  /// With `whole_words` no aligned word of 8 bytes is ever torn: of a WRITE the verbs promise
  /// nothing of the kind (before ATOMIC WRITE, InfiniBand volume 1 of 2021), a responder's
  /// processor does. A range of just such a word is not torn without asking. Both hold where
  /// messages are used. Requires DurableSessionOptions::ranges_again; with `whole_words` no more
  /// than
  ///            whole_words_bytes_max() in a range alone, or what one message takes.
  /// Errors     QueueFull (poll, then again); InvalidArgument (no epoch, an empty one, a range of
  ///            no bytes or too many), OutOfRange (outside the pool), Disconnected: nothing of it
  ///            was begun. OutcomeUnknown: the connection was lost meanwhile.
  /// Cost       a list of its ranges, on the heap, but for a range alone that its method takes at
  ///            once; one round trip where one request takes it, else one for each epoch.
  Result<std::uint64_t> update(std::span<const Ranges> epochs, bool whole_words = false);
  /// The longest range of whose words none is torn. 0: nothing is promised of any.
  std::uint64_t whole_words_bytes_max() const;
  /// Whether begin_place has the responder's processor store so many bytes, none of their words
  /// torn.
  bool keeps_words(std::uint64_t bytes) const { return keeps_words_[place_method(bytes)]; }
  /// Updates that went in a message with others so far.
  std::uint64_t coalesced() const { return coalesced_; }

  /// Brings `into.length` bytes at `at` of the pool; counts as an update. What it returns has every
  /// update in it that had resolved at `visible` or a higher level before this call, by whatever
  /// method: where a message is copied to its place later, it waits for that first.
  /// Errors: as for update.
  Result<std::uint64_t> read(std::uint64_t at, const fabric::Segment& into);

  /// Changes 8 bytes of the pool in one step, by the responder's processor, and brings what they
  /// were before; counts as an update. It is done behind all updates that were begun before it, and
  /// ahead of those begun later that overlap it. It has resolved when the word is durable as it is
  /// then, whatever level was asked for. It is done once or not at all: after a lost connection
  /// nobody can tell which.
  /// Requires DurableSessionOptions::ranges_again.
  /// Errors: as for update; InvalidArgument also for a place that is no multiple of 8.
  Result<std::uint64_t> atomic(const persist::Atomic& what);
  /// What the word was before. Requires that atomic `number` has resolved, and that fewer than
  /// kUpdatesMax updates were begun since.
  /// Errors: those that the responder refused it with; nothing was changed.
  Result<std::uint64_t> value_before(std::uint64_t number) const;

  /// Has the responder's handler of `kind` do what `payload` asks for, and brings its reply, as
  /// much of it as `reply` has room for; counts as an update. It is handled once and in its turn:
  /// behind all updates that were begun before it, and ahead of those begun later, which wait for
  /// the reply; other requests do not. It has resolved when the reply is there and all that the
  /// handler made durable is. After a lost connection it was handled once or not at all. `reply`
  /// stays until it has resolved, or the connection has ended; the payload is copied. Where the
  /// handler `changes` nothing of the exported pool, updates that are begun later do not wait.
  /// Requires DurableSessionOptions::ranges_again. Errors: as for update; InvalidArgument also for
  /// a payload or a reply that is too large. Cost: the heap only while others wait before it.
  Result<std::uint64_t> request(persist::MessageKind kind, std::span<const std::byte> payload,
                                std::span<std::byte> reply, bool changes = true);
  /// How many bytes it replied. Requires as for value_before.
  /// Errors: those that the responder refused it with (Unsupported: it has no such handler);
  /// nothing was executed.
  Result<std::size_t> reply_bytes(std::uint64_t number) const;

  /// Begins what one request takes: a range of at most range_bytes_max(), and behind it, with
  /// `tail_word`, a word. The caller sees to it that nothing in flight overlaps, and that a place
  /// is written again only after a later begin_place has resolved. Requires up(). Errors: those of
  /// Requester::begin; QueueFull also while an update of several requests waits.
  Result<std::uint64_t> begin(std::span<const persist::UpdateItem> items) {
    return begin_by(method_for(items.front().data.length), items);
  }
  /// The same in the caller, for a range alone that is one message, or one WRITE and its flush, and
  /// can be posted at once. 0: it is not that, or something is wrong, and nothing was done.
  /// Requires that DurableSessionOptions::ranges_again is not set.
  [[gnu::always_inline]] std::uint64_t begin_common(const persist::UpdateItem& item) {
    return begin_common_by(method_for(item.data.length), item, /*again=*/false);
  }
  /// The same for a single range that is written again and again, such as a word: each time after
  /// the one before has resolved.
  Result<std::uint64_t> begin_place(const persist::UpdateItem& item) {
    return begin_by(place_method(item.data.length), {&item, 1});
  }
  /// The same as begin_common() does it.
  std::uint64_t begin_common_place(const persist::UpdateItem& item) {
    return begin_common_by(place_method(item.data.length), item, options_.ranges_again);
  }
  /// The largest range that begin and begin_place take.
  std::uint64_t range_bytes_max() const { return range_bytes_max_; }

  /// Writes bytes and waits until they are at the level that was asked for; they need not be
  /// registered. All that was begun before has resolved then, too. Errors: those of the connection.
  /// TimedOut: some of it may be written, and may still be when this returns; the session can go
  /// on, and what is written next waits for it. Adds to `written` how many of them, from the first
  /// one on, are at the level, whatever it returns.
  Result<void> write_now(std::uint64_t at, std::span<const std::byte> bytes,
                         std::uint64_t* written = nullptr);

  /// Stores a word at a multiple of 8, and waits until it is durable, whatever level was asked for.
  /// Requires DurableSessionOptions::ranges_again. Errors: those of write_now.
  Result<void> store_now(std::uint64_t at, std::uint64_t word);

  /// Takes answers and posts what waits. Goes down when the connection is lost or the responder
  /// refused. Never blocks. Does nothing while it is down.
  void poll();
  /// Whether update `number` of this connection is at the level that was asked for.
  bool has_resolved(std::uint64_t number) const { return number > before_ && number <= resolved_; }
  /// Whether nothing more will be heard of it: it was in flight when its connection ended, or has
  /// resolved on an earlier one.
  bool is_forgotten(std::uint64_t number) const {
    return number <= before_ || (!up() && number > resolved_);
  }
  /// The number of the update that was begun last.
  std::uint64_t begun() const { return begun_; }
  std::uint64_t in_flight() const { return begun_ - resolved_; }
  bool idle() const { return in_flight() == 0; }

  /// Updates have long taken other times than was measured.
  bool drifted() const { return drift_.drifted(); }
  /// If so, and nothing is in flight: measures again and plans anew, in some milliseconds and at
  /// most once in kMeasureEveryMin. With less than kMeasureTakes to the deadline it is put off.
  /// A session without updates measures nothing, however long: costs only choose among right
  /// methods, of which it needs none until then, and asking would wake both ends for nothing. Its
  /// first second of updates uses the methods it has; then a drift of that time is followed.
  void follow_drift(const Deadline& deadline);
  /// Goes down when it is owed an answer for longer than the time-out: at once for who calls this
  /// at least every eighth of it, else at the second look behind that time which is half of it
  /// after the first. For however long nobody looked, the peer gets that half. Reads the clock.
  void check_timeout();

  void mark_down(Error why);
  /// It has come back, or further than before: the next failure counts as the first.
  void got_on() { backoff_.reset(); }
  /// Whether it is time to try again to come back. Requires that it is down.
  bool retry_due(Nanoseconds now, bool urgent) const { return backoff_.due(now, urgent); }
  /// See Backoff::put_off.
  void put_off(Nanoseconds begun, Nanoseconds now) { backoff_.put_off(begun, now); }

  /// Every call that waits ends by then as well. Nothing: only by the time-out.
  void set_deadline(const std::optional<Deadline>& deadline) { deadline_ = deadline; }
  Deadline deadline() const { return deadline_after(options_.timeout); }
  /// Until what was written by `since` is returned by a READ of another connection, or a call has
  /// no more time.
  Deadline visible_within(Nanoseconds since) const;
  Deadline visible_within() const { return visible_within(options_.clock->now()); }
  /// Whether what was written by `since` is returned by now.
  bool visible_by_now(Nanoseconds since) const;

  bool is_open() const { return connection_.has_value(); }
  bool up() const { return requester_ != nullptr; }
  const std::optional<Error>& down_reason() const { return down_reason_; }
  Peer& peer() { return *peer_; }
  const Peer& peer() const { return *peer_; }
  /// Requires is_open().
  const Session& connection() const { return *connection_; }
  fabric::Endpoint* endpoint() { return connection_ ? connection_->endpoint.get() : nullptr; }
  const DurableSessionOptions& options() const { return options_; }
  /// The methods in use: for small updates and for large ones, and where the one ends.
  const Method& small_method() const { return methods_[kSmall]; }
  const Method& large_method() const { return methods_[kLarge]; }
  std::uint64_t small_bytes_max() const { return small_bytes_max_; }
  /// The same of a single range that is written again: by update(), and by begin_place().
  const Method& small_place_method() const { return methods_[kPlaceSmall]; }
  const Method& large_place_method() const { return methods_[kPlaceLarge]; }
  std::uint64_t small_place_bytes_max() const { return place_small_bytes_max_; }
  /// What they were chosen by, and how often drift has led to other methods.
  const plan::CostModel& costs() const { return costs_; }
  std::uint64_t replans() const { return replans_; }
  persist::RequesterCounters counters() const;

 private:
  enum MethodIndex : std::size_t { kSmall, kLarge, kPlaceSmall, kPlaceLarge, kMethods };

  /// What an update by one method should take, as straight lines over its size.
  struct Expectation {
    ExpectedTime fixed;
    ExpectedTime per_byte;
  };
  /// The update that is, or was, alone on the connection, and is timed.
  struct Single {
    std::uint64_t number = 0;
    std::size_t method = 0;
    std::uint64_t bytes = 0;
    Nanoseconds since{0};
    std::uint32_t polls = 0;  // idle_polls_ then
  };
  /// An answer is owed.
  struct Silence {
    Nanoseconds since{0};
    Nanoseconds last_look{0};
    Nanoseconds watched{0};              // of it, without the time in which nobody looked
    std::optional<Nanoseconds> overdue;  // the first look behind the time-out
  };
  /// Bytes of the pool.
  struct Extent {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
  };
  /// What request() sends.
  struct Question {
    persist::MessageKind kind = persist::MessageKind::Atomic;
    std::span<const std::byte> payload;
    std::span<std::byte> reply;
    Extent changes;  // what its handler may change
  };
  struct Asking {
    Question question;
    std::vector<std::byte> payload;  // of it
  };
  /// An update, or a READ, of which not everything is posted.
  struct Waiting {
    std::uint64_t number = 0;
    bool reads = false;
    bool pair = false;        // a range and a word, in one request
    bool by_message = false;  // though a method would take it: for its words
    std::optional<Asking> asks;
    std::vector<persist::UpdateItem> items;
    std::vector<std::size_t> epoch_ends;  // in items
    std::size_t item = 0;                 // the next piece is of this one
    std::uint64_t sent = 0;               // bytes of it that went before
    std::uint64_t request = 0;            // of the requester, that went last
    persist::OrderedSize size;            // of its ranges, as one message
  };
  /// Updates that wait, from the first one on, as one message.
  struct Gathered {
    std::size_t updates = 0;
    persist::OrderedSize size;
    std::vector<persist::UpdateItem> items;
    std::vector<std::size_t> epoch_ends;  // in items
  };
  /// A request that was posted.
  struct Asked {
    std::uint64_t number = 0;
    std::uint64_t request = 0;                              // of the requester
    bool updates = false;                                   // it carries update() of one or more
    std::array<std::byte, persist::kAtomicBytes> before{};  // atomic(): the reply
    persist::Requester::Reply reply;
  };

  Deadline deadline_after(Nanoseconds silence) const;
  Deadline opening_deadline() const;
  plan::SetOptions set_options(const Session& session, bool tail_word) const;
  Result<void> open_requester();
  Result<plan::CostModel> measure(Nanoseconds answer_within, const std::optional<Deadline>& until);
  void expect(const plan::CostModel& costs);
  Expectation expectation(const Method& method) const;
  void note_time_of_single();
  void note_progress() { silence_.reset(); }
  std::size_t method_for(std::uint64_t bytes) const {
    return bytes <= small_bytes_max_ ? kSmall : kLarge;
  }
  std::uint64_t note_begun(std::size_t method, std::uint64_t request, std::uint64_t bytes) {
    const std::uint64_t number = ++begun_;
    last_request_[number % kUpdatesMax] = request;
    if (number != resolved_ + 1) return number;
    note_progress();
    // Timing one costs two looks at the clock.
    constexpr std::uint32_t kSinglesPerTimed = 16;
    if (++singles_ % kSinglesPerTimed == 0) time_single(method, bytes);
    return number;
  }
  void time_single(std::size_t method, std::uint64_t bytes);
  std::size_t place_method(std::uint64_t bytes) const {
    return bytes <= place_small_bytes_max_ ? kPlaceSmall : kPlaceLarge;
  }
  Result<std::uint64_t> begin_by(std::size_t method, std::span<const persist::UpdateItem> items);
  [[gnu::always_inline]] std::uint64_t begin_common_by(std::size_t method,
                                                       const persist::UpdateItem& item,
                                                       bool again) noexcept {
    if (!idle() && !waiting_.empty()) return 0;  // what waits has begun
    const std::uint64_t request = requester_->begin_common(method, item, nullptr);
    if (request == 0) return 0;
    if (again) note_extent(request, item);
    return note_begun(method, request, item.data.length);
  }
  void take_resolved();
  Result<void> check_turn() const;
  Result<void> check(std::span<const Ranges> epochs) const;
  bool is_pair(std::span<const Ranges> epochs) const;
  bool tears_words(std::span<const Ranges> epochs, bool any_words) const;
  std::uint64_t begin_single(std::span<const Ranges> epochs);
  Result<std::uint64_t> begin_message(std::span<const Ranges> epochs);
  Result<std::uint64_t> queue(Waiting update);
  Result<std::uint64_t> queue_request(const Question& question);
  std::size_t request_bytes_max() const;
  void post_waiting();
  Result<bool> post_next();
  Result<bool> post_piece(Waiting& update);
  bool may_gather(const Waiting& update) const;
  bool adds(const Waiting& update, Gathered& to) const;
  Gathered gather() const;
  Result<bool> post_gathered(const Gathered& gathered);
  Result<void> post_ordered(std::uint64_t number, std::span<const Ranges> epochs);
  bool window_full(bool small) const {
    const std::size_t most = small ? std::min(options_.requests_in_flight, kCoalesceBehind)
                                   : options_.requests_in_flight;
    return requester_->begun() - requester_->resolved() >= most;
  }
  Result<void> post_request(std::uint64_t number, const Question& question);
  Result<void> note_answers(std::uint64_t before);
  void note_extents(std::uint64_t request, std::span<const persist::UpdateItem> items);
  /// By value: so that an update that needs none stays in registers.
  void note_extent(std::uint64_t request, persist::UpdateItem item) {
    note_extents(request, {&item, 1});
  }
  bool overlaps_in_flight(std::uint64_t at, std::uint64_t length) const;
  Result<void> come_within_a_step(const control::SessionRequest& request);
  Result<void> connect(bool tail_word);
  Result<void> await(std::uint64_t number);

  std::shared_ptr<Peer> peer_;
  DurableSessionOptions options_;
  bool tail_word_ = false;
  std::unique_ptr<std::byte[]> bounce_;  // write_now
  std::unique_ptr<fabric::Memory> bounce_memory_;
  std::unique_ptr<persist::Requester> requester_;
  std::optional<Session> connection_;  // goes before the memory that its requests name
  std::shared_ptr<void> tie_;          // goes before the connection
  std::vector<Method> methods_;
  std::array<bool, kMethods> keeps_words_{};        // for records, of the word behind one
  std::array<bool, kMethods> keeps_first_words_{};  // for records, of one that is a word itself
  plan::CostModel costs_;
  std::array<Expectation, kMethods> expected_;
  DriftWatch drift_;
  Single single_;
  std::uint32_t singles_ = 0;
  std::uint64_t replans_ = 0;
  std::uint64_t small_bytes_max_ = 0;
  std::uint64_t place_small_bytes_max_ = 0;
  std::uint64_t range_bytes_max_ = 0;

  std::uint64_t before_ = 0;  // the last update of earlier connections
  std::uint64_t begun_ = 0;
  std::uint64_t resolved_ = 0;           // of this connection, or before_
  std::uint64_t requests_resolved_ = 0;  // of the requester, when it was looked at last
  std::array<std::uint64_t, kUpdatesMax> last_request_{};     // by update, of the requester
  std::array<std::array<Extent, 2>, kUpdatesMax> extents_{};  // by request: what it writes
  std::deque<Waiting> waiting_;
  std::array<Asked, kUpdatesMax> asked_{};  // by update
  std::size_t asked_in_flight_ = 0;
  std::size_t gather_bytes_max_ = 0;        // of a message of updates; 0: there are none
  std::vector<std::byte> ordered_payload_;  // of the message that is posted
  std::uint64_t coalesced_ = 0;
  std::uint64_t bounce_number_ = 0;  // of the update that sent it last
  std::optional<Deadline> deadline_;
  std::optional<Silence> silence_;  // since the first look that found no progress
  std::uint32_t idle_polls_ = 0;
  std::optional<Error> down_reason_;
  Backoff backoff_;
};

}  // namespace perdure::client
