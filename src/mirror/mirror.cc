// The public face of mirrors: peers by address, callers on many threads, and one thread that brings
// replicas back. Whoever waits does the work for all that wait; the next one goes on from there.
#include <perdure/mirror.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <limits>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>

#include "client/dial.h"
#include "core/bounded_time.h"
#include "core/forks.h"
#include "core/leader_mutex.h"
#include "core/sampled_times.h"
#include "core/stoppable_clock.h"
#include "core/try.h"
#include "mirror/mirror_memory.h"
#include "mirror/replicated_mirror.h"

namespace perdure {
namespace {

/// How long the end of a mirror waits for replicas that lag.
constexpr Nanoseconds kEndWithin = std::chrono::seconds(1);
/// With nothing in flight connections are looked at that often, and with something that nobody
/// waits for.
constexpr std::chrono::milliseconds kIdleLook{10};
constexpr std::chrono::microseconds kBusyLook{200};
/// Who leads sleeps that long at most: who comes meanwhile waits for it.
constexpr Nanoseconds kLeaderSleep = std::chrono::milliseconds(1);
/// Reading the clock costs as much as looking for answers.
constexpr std::uint32_t kRoundsPerLook = 64;
constexpr Nanoseconds kNever = std::chrono::hours(24 * 365);
constexpr std::uint64_t kNoUpdate = std::numeric_limits<std::uint64_t>::max();

/// Of what was begun, and is not known to be durable, whatever the reason.
Error unknown(const Error& why) {
  if (why.code == ErrorCode::OutcomeUnknown) return why;
  return {ErrorCode::OutcomeUnknown, "it was begun, and may be durable or not: " + why.message};
}

}  // namespace

std::string_view to_string(MirrorStart start) {
  switch (start) {
    case MirrorStart::New: return "new";
    case MirrorStart::Local: return "local";
    case MirrorStart::Replicas: return "replicas";
  }
  return "?";
}

std::string_view to_string(MirrorReplicaState state) {
  switch (state) {
    case MirrorReplicaState::Lost: return "lost";
    case MirrorReplicaState::Comparing: return "comparing";
    case MirrorReplicaState::Waiting: return "waiting";
    case MirrorReplicaState::Copying: return "copying";
    case MirrorReplicaState::InSync: return "in-sync";
  }
  return "?";
}

class Mirror::State {
 public:
  /// What is sampled of updates: see SampledTimes. A mirror has one level.
  struct UpdateCounts {
    TimeCounts durable;
    TimeCounts committed;
  };
  struct UpdateReach {
    const mirror::ReplicatedMirror& core;
    bool reached(const MirrorTicket& ticket, Level /*level*/) const { return core.reached(ticket); }
  };

  State(MirrorMemory memory, const MirrorOptions& options)
      : memory_(std::move(memory)), spin_(options.spin) {}
  ~State() {
    if (core_ != nullptr && !closed_) (void)close(kEndWithin);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  Result<void> open(const MirrorOptions& options) {
    PERDURE_TRY_VOID(dialer_.use_rnic(options.rnic));
    dialer_.keep_apart();  // replicas are connected to by a thread of their own
    PERDURE_TRY(dialled, dialer_.dial_replicas(options.peers, options.transport));
    std::vector<std::shared_ptr<client::Peer>> peers;
    for (auto& peer : dialled) peers.push_back(std::move(peer));
    PERDURE_TRY(core, mirror::ReplicatedMirror::open(region(), std::move(peers), options,
                                                     Clock::monotonic(), memory_.state_->state));
    core_ = std::move(core);
    core_->never_wait_for_room();
    core_->set_deadline(ends_.after(kNever));
    try {
      thread_ = std::thread([this] { run(); });
    } catch (const std::system_error& failed) {
      return Error{ErrorCode::SystemError, failed.what()};
    }
    return {};
  }

  pmem::Region& region() { return *memory_.state_->region; }
  bool is_here() const { return process_ == forks_so_far(); }
  bool closed() const { return closed_; }

  /// What `use` does with the mirror, with nobody else in it.
  template <typename Use>
  auto with(const Use& use) {
    const LeaderLock turn(mutex_);
    auto result = use(*core_);
    notice();
    return result;
  }
  /// The same with what begins an update, once replicas take it.
  template <typename Begin>
  Result<MirrorTicket> begin(const Begin& begin) {
    const LeaderLock turn(mutex_);
    std::optional<Deadline> none;
    auto begun = when_there_is_room(std::nullopt, none, [&] { return timed(begin); });
    notice();
    return begun;
  }

  /// Until that is durable which `begin` begins. Errors: OutcomeUnknown once it was begun.
  template <typename Begin>
  Result<void> make_durable(std::chrono::milliseconds timeout, const Begin& begin) {
    bool was_begun = false;
    auto outcome = await(timeout, [&](mirror::ReplicatedMirror&) {
      auto ticket = timed(begin);
      was_begun = ticket.ok();
      return ticket;
    });
    return outcome.ok() || !was_begun ? outcome : unknown(outcome.error());
  }
  /// The same of what earlier calls began, which `find` returns the number of. Errors:
  /// OutcomeUnknown where it never will be known; TimedOut and QuorumLost say nothing.
  template <typename Find>
  Result<void> wait_for(std::chrono::milliseconds timeout, const Find& find) {
    auto outcome = await(timeout, find);
    if (outcome.ok()) return outcome;
    const ErrorCode code = outcome.code();
    const bool over = code == ErrorCode::Fenced || code == ErrorCode::SystemError;
    return over ? unknown(outcome.error()) : outcome;
  }
  /// The same of what `begin` begins, or finds begun, and returns the number of.
  template <typename Begin>
  Result<void> await(std::chrono::milliseconds timeout, const Begin& begin) {
    std::uint64_t number = 0;
    const auto begun = [&](mirror::ReplicatedMirror& core) -> Result<std::uint64_t> {
      PERDURE_TRY(ticket, begin(core));
      number = ticket.number;
      if (core.reached({number})) return number;
      const auto sent = core.begin_gathered();
      if (sent.ok() || sent.code() == ErrorCode::QueueFull) return number;  // whoever leads does it
      return sent.error();
    };
    return until(timeout, begun,
                 [&](mirror::ReplicatedMirror& core) { return core.reached({number}); });
  }
  Result<void> wait_in_sync(std::chrono::milliseconds timeout) {
    return until(
        timeout, [](mirror::ReplicatedMirror&) { return Result<std::uint64_t>(kNoUpdate); },
        [](mirror::ReplicatedMirror& core) { return core.all_in_sync(); });
  }

  MirrorTimes times() {
    const LeaderLock turn(mutex_);
    return {times_.times().committed, reads_};
  }
  Result<void> read(std::uint64_t at, std::span<std::byte> into, std::size_t replica) {
    const Nanoseconds since = Clock::monotonic().now();
    return with([&](mirror::ReplicatedMirror& core) {
      auto outcome = core.read(at, into, replica);
      if (outcome.ok()) reads_.add(Clock::monotonic().now() - since);
      return outcome;
    });
  }

  Result<void> close(Nanoseconds timeout) {
    const Deadline deadline(Clock::monotonic(), timeout);
    stopping_ = true;  // who leads, or waits for room, lets go of the mutex
    steps_.stop();
    lock_by(deadline);
    const bool others = closed_.exchange(true);
    look_.notify_all();
    mutex_.wake_followers();
    mutex_.unlock();
    if (others) return closed_meanwhile();
    if (thread_.joinable()) thread_.join();
    lock_by(deadline);
    auto closed = core_->close(deadline.left());
    mutex_.unlock();
    return closed;
  }

 private:
  /// What `begin` begins; from then on until it is durable, if it is its turn to be timed.
  template <typename Begin>
  Result<MirrorTicket> timed(const Begin& begin) {
    const auto since = times_.due() ? times_.begin({*core_}) : std::nullopt;
    const bool failed_before = core_->local_failure().has_value();
    auto begun = begin(*core_);
    times_.end(begun, since);
    // Replicas may have it, or the local memory a part.
    const bool failed_in_it = !failed_before && core_->local_failure();
    if (!begun.ok() && failed_in_it) return unknown(begun.error());
    return begun;
  }

  /// From the deadline on nobody who has the mutex waits for a replica any more.
  void lock_by(const Deadline& deadline) PERDURE_ACQUIRE(mutex_) {
    mutex_.lock_looking([&] {
      if (deadline.passed()) ends_.stop();
    });
  }

  /// `begin`, and then until `reached`, which is asked with nobody else in the mirror. `begin` says
  /// which update that may be the end of; kNoUpdate: of none in particular.
  template <typename Begin, typename Reached>
  Result<void> until(std::chrono::milliseconds timeout, const Begin& begin,
                     const Reached& reached) {
    const LeaderLock turn(mutex_);
    // Most is durable before anybody has looked at the clock: the time-out begins with that look.
    std::optional<Deadline> deadline;
    std::optional<Nanoseconds> yields_until;
    PERDURE_TRY(update,
                when_there_is_room(bounded(timeout), deadline, [&] { return begin(*core_); }));
    while (!reached(*core_)) {
      if (auto why = core_->local_failure()) return *why;
      if (auto why = core_->trouble(); why && why->code == ErrorCode::Fenced) return *why;
      if (stopping_) return closed_meanwhile();
      if (deadline && deadline->passed()) {
        if (auto why = core_->trouble()) return *why;
        return Error{ErrorCode::TimedOut, "it is not durable on the quorum yet; wait again"};
      }
      if (!mutex_.is_led()) {
        lead(bounded(timeout), deadline, reached);
        continue;
      }
      if (!deadline) deadline.emplace(Clock::monotonic(), bounded(timeout));
      const Nanoseconds left = deadline->left();
      if (!yields_until) yields_until = Clock::monotonic().now() + std::min(spin_, left);
      mutex_.follow(update, *yields_until, std::min<Nanoseconds>(left, kIdleLook));
    }
    return {};
  }

  /// What `begin` returns, once it is not QueueFull. Others have their turn meanwhile, whoever
  /// leads. Without a time it waits as long as it takes. Errors: TimedOut; InvalidArgument: closed.
  template <typename Begin>
  std::invoke_result_t<const Begin&> when_there_is_room(std::optional<Nanoseconds> timeout,
                                                        std::optional<Deadline>& deadline,
                                                        const Begin& begin)
      PERDURE_REQUIRES(mutex_) {
    std::optional<Nanoseconds> since;
    for (;;) {
      if (stopping_) return closed_meanwhile();
      auto begun = begin();
      if (begun.ok() || begun.code() != ErrorCode::QueueFull) return begun;
      if (!since) since = Clock::monotonic().now();
      if (timeout && !deadline) deadline.emplace(Clock::monotonic(), *timeout);
      if (deadline && deadline->passed()) {
        return Error{ErrorCode::TimedOut, begun.error().message + ": it was not begun"};
      }
      if (!core_->progress()) core_->rest(*since, kLeaderSleep);
      notice();
      if (!connecting_ && core_->due()) leave_to_thread();
      mutex_.give_way();
    }
  }
  static Error closed_meanwhile() {
    return {ErrorCode::InvalidArgument, "this mirror was closed meanwhile: open it again"};
  }

  /// Does the work of all, until `reached` or, now and then, so that others may have a say.
  template <typename Reached>
  void lead(Nanoseconds timeout, std::optional<Deadline>& deadline, const Reached& reached)
      PERDURE_REQUIRES(mutex_) {
    mutex_.begin_leading();
    std::optional<Nanoseconds> since;  // when nothing came
    for (std::uint32_t round = 1; !reached(*core_); ++round) {
      const bool came = core_->progress();
      notice();
      if (came) since.reset();
      if (round % kRoundsPerLook == 0 && !connecting_ && core_->due()) leave_to_thread();
      mutex_.give_way();
      if (round % kRoundsPerLook != 0) continue;
      (void)core_->begin_gathered();  // what had no room
      if (!deadline) deadline.emplace(Clock::monotonic(), timeout);
      if (deadline->passed() || stopping_ || core_->local_failure()) break;
      if (came) continue;
      if (!since) since = Clock::monotonic().now();
      if (core_->trouble()) break;
      if (!mutex_.wanted()) core_->rest(*since, kLeaderSleep);
    }
    mutex_.end_leading();
    // Without the quorum there is nothing to do but to wait for the thread.
    if (!reached(*core_) && core_->trouble()) leave_to_thread();
  }

  /// Replicas that are lost are brought back by the thread, which needs the mutex for that.
  void leave_to_thread() PERDURE_REQUIRES(mutex_) {
    look_.notify_all();
    mutex_.unlock();
    // tidy-allow(sleep): the thread brings replicas back, and has nothing to wait on for that.
    std::this_thread::sleep_for(kBusyLook);
    mutex_.lock();
  }

  /// Who waits is told when something is durable that was not.
  void notice() PERDURE_REQUIRES(mutex_) {
    const std::uint64_t committed = core_->committed();
    if (committed == noticed_) return;
    noticed_ = committed;
    times_.note({*core_});
    mutex_.note_reached(committed);
  }

  /// Brings replicas back, and everything on that nobody waits for.
  void run() {
    MutexLock lock(mutex_);
    while (!stopping_) {
      if (!mutex_.is_led()) {
        (void)core_->begin_gathered();  // a failure stays, for those who wait
        (void)core_->progress();
        const Nanoseconds since = Clock::monotonic().now() - spin_;
        if (core_->busy() && !mutex_.wanted()) core_->rest(since, kBusyLook);
        notice();
      }
      if (const auto due = core_->due()) {
        connecting_ = true;
        auto connection = connect(*due);
        connecting_ = false;
        if (stopping_) break;
        core_->adopt(*due, std::move(connection));
        continue;
      }
      if (core_->busy() && !mutex_.is_led()) {
        const MutexUnlock unlocked(mutex_);
        std::this_thread::yield();
        continue;
      }
      lock.wait_for(look_, kIdleLook);
    }
  }

  /// Takes long, and keeps nobody out. Whoever leads then gives way to it.
  Result<std::unique_ptr<mirror::Connection>> connect(std::size_t replica)
      PERDURE_REQUIRES(mutex_) {
    const mirror::ReplicatedMirror& core = *core_;
    mutex_.unlock();
    auto connection = core.connect(replica, steps_);
    mutex_.lock();
    return connection;
  }

  MirrorMemory memory_;
  client::Dialer dialer_;  // owns the devices: outlives the connections
  const Nanoseconds spin_;
  StoppableClock steps_{Clock::monotonic()};        // of connecting
  StoppableClock ends_{Clock::monotonic()};         // of waiting for replicas with mutex_
  LeaderMutex mutex_{Clock::monotonic()};           // what is reached is committed
  std::unique_ptr<mirror::ReplicatedMirror> core_;  // whoever uses it holds mutex_
  std::condition_variable look_;
  bool connecting_ PERDURE_GUARDED_BY(mutex_) = false;
  std::uint64_t noticed_ PERDURE_GUARDED_BY(mutex_) = 0;
  SampledTimes<UpdateReach, MirrorTicket, UpdateCounts> times_;  // and these: with mutex_
  TimeCounts reads_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> closed_{false};
  std::thread thread_;
  const std::uint32_t process_ = forks_so_far();
};

void Mirror::Delete::operator()(State* state) const {
  // In a child its connections and its thread are the parent's: whatever would end them stays.
  if (state->is_here()) delete state;
}

Result<Mirror> Mirror::open(MirrorMemory memory, MirrorOptions options) {
  if (memory.state_ == nullptr) {
    return Error{ErrorCode::InvalidArgument, "this memory was moved from"};
  }
  options.peer_timeout = bounded(options.peer_timeout);
  options.reconnect = bounded(options.reconnect);
  options.spin = bounded(options.spin);
  std::unique_ptr<State, Delete> state(new State(std::move(memory), options));
  PERDURE_TRY_VOID(state->open(options));
  return Mirror(std::move(state));
}

Mirror::Mirror(std::unique_ptr<State, Delete> state) : state_(std::move(state)) {}
Mirror::Mirror(Mirror&&) noexcept = default;
Mirror& Mirror::operator=(Mirror&&) noexcept = default;
Mirror::~Mirror() = default;

bool Mirror::usable() const { return state_ != nullptr && state_->is_here() && !state_->closed(); }

Error Mirror::why_not() const {
  if (state_ == nullptr) return {ErrorCode::InvalidArgument, "this mirror was moved from"};
  if (!state_->is_here()) {
    return {ErrorCode::InvalidArgument,
            "this mirror belongs to the parent process: after fork() the child opens one of its "
            "own"};
  }
  return {ErrorCode::InvalidArgument, "this mirror is closed: open it again"};
}

std::span<std::byte> Mirror::memory() const {
  return state_ == nullptr ? std::span<std::byte>{} : state_->region().bytes();
}

Result<void> Mirror::persist(std::uint64_t at, std::uint64_t length,
                             std::chrono::milliseconds timeout) {
  if (!usable()) return why_not();
  return state_->make_durable(timeout, [&](mirror::ReplicatedMirror& core) {
    return core.flush({at, length});
  });
}

Result<void> Mirror::deep_persist(std::uint64_t at, std::uint64_t length,
                                  std::chrono::milliseconds timeout) {
  if (!usable()) return why_not();
  const Deadline deadline(Clock::monotonic(), bounded(timeout));
  MirrorTicket begun;  // of any round: what a later one says is no longer that nothing was begun
  for (;;) {
    const auto begin = [&](mirror::ReplicatedMirror& core) -> Result<MirrorTicket> {
      PERDURE_TRY(ticket, core.begin_deep({at, length}));
      begun = ticket;
      return ticket;
    };
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline.left());
    const bool again = begun.number != 0;
    if (auto durable = state_->make_durable(left, begin); !durable.ok()) {
      return again ? unknown(durable.error()) : durable;
    }
    PERDURE_TRY(deep, state_->with([&](auto& core) { return core.is_deep(begun); }));
    if (deep) return {};
    // A replica has come in sync meanwhile, with a copy of the page that is durable and no more; or
    // one has gone, and those left are too few.
    if (deadline.passed()) {
      return Error{ErrorCode::OutcomeUnknown,
                   "a replica has just come back or gone: it is durable, and "
                   "not known to be deep on the quorum"};
    }
  }
}

Result<MirrorTicket> Mirror::flush(std::uint64_t at, std::uint64_t length) {
  if (!usable()) return why_not();
  return state_->begin([&](mirror::ReplicatedMirror& core) { return core.flush({at, length}); });
}

Result<void> Mirror::wait(const MirrorTicket& ticket, std::chrono::milliseconds timeout) {
  if (!usable()) return why_not();
  return state_->wait_for(timeout, [&](mirror::ReplicatedMirror& core) -> Result<MirrorTicket> {
    if (ticket.number <= core.begun()) return ticket;
    return Error{ErrorCode::InvalidArgument, "the ticket is of another mirror"};
  });
}

Result<void> Mirror::drain(std::chrono::milliseconds timeout) {
  if (!usable()) return why_not();
  return state_->wait_for(
      timeout, [](mirror::ReplicatedMirror& core) { return Result<MirrorTicket>({core.begun()}); });
}

bool Mirror::reached(const MirrorTicket& ticket) const {
  if (!usable()) return false;
  return state_->with([&](mirror::ReplicatedMirror& core) {
    (void)core.begin_gathered();  // a failure stays, for those who wait
    return core.reached(ticket);
  });
}

Result<MirrorTicket> Mirror::flush_ordered(std::span<const MirrorEpoch> epochs) {
  if (!usable()) return why_not();
  return state_->begin([&](mirror::ReplicatedMirror& core) { return core.begin(epochs); });
}

Result<void> Mirror::persist_ordered(std::span<const MirrorEpoch> epochs,
                                     std::chrono::milliseconds timeout) {
  if (!usable()) return why_not();
  return state_->make_durable(timeout,
                              [&](mirror::ReplicatedMirror& core) { return core.begin(epochs); });
}

Result<MirrorTicket> Mirror::write(std::span<const MirrorWriteEpoch> epochs) {
  if (!usable()) return why_not();
  return state_->begin([&](mirror::ReplicatedMirror& core) { return core.write(epochs); });
}

Result<void> Mirror::write_atomic(std::uint64_t at, std::uint64_t value,
                                  std::chrono::milliseconds timeout) {
  if (!usable()) return why_not();
  return state_->make_durable(
      timeout, [&](mirror::ReplicatedMirror& core) { return core.store_word(at, value); });
}

MirrorLane Mirror::lane() { return MirrorLane(*this); }

Result<void> Mirror::read(std::uint64_t at, std::span<std::byte> into, std::size_t replica) {
  if (!usable()) return why_not();
  return state_->read(at, into, replica);
}

Result<void> Mirror::wait_in_sync(std::chrono::milliseconds timeout) {
  if (!usable()) return why_not();
  return state_->wait_in_sync(timeout);
}

MirrorStatus Mirror::status() const {
  if (state_ == nullptr || !state_->is_here()) return {};
  return state_->with([](mirror::ReplicatedMirror& core) { return core.status(); });
}

MirrorTimes Mirror::times() const {
  if (state_ == nullptr || !state_->is_here()) return {};
  return state_->times();
}

Result<void> Mirror::close(std::chrono::milliseconds timeout) {
  if (!usable()) return why_not();
  return state_->close(bounded(timeout));
}

Result<void> MirrorLane::persist(std::uint64_t at, std::uint64_t length,
                                 std::chrono::milliseconds timeout) {
  return mirror_->persist(at, length, timeout);
}

Result<void> MirrorLane::flush(std::uint64_t at, std::uint64_t length) {
  PERDURE_TRY(ticket, mirror_->flush(at, length));
  last_ = ticket;
  return {};
}

Result<void> MirrorLane::drain(std::chrono::milliseconds timeout) {
  return mirror_->wait(last_, timeout);
}

}  // namespace perdure
