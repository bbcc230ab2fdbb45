// PeerService: the responder. It keeps pools, grants sessions to requesters, runs a Responder for
// each, and sees to it that a pool has at most one writer. How requests reach it (HTTP, or a call
// in this process) is others' business: http_server.h, local_peer.h.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "control/service_types.h"
#include "core/byte_source.h"
#include "core/clock.h"
#include "core/mutex.h"
#include "core/random.h"
#include "server/authorizer.h"
#include "server/media_workers.h"
#include "server/pool_control.h"
#include "server/pool_store.h"
#include "server/served_pool.h"
#include "server/session.h"
#include "server/spin.h"

namespace perdure::server {

/// One fabric over which sessions may run.
struct DataPlane {
  fabric::Device* device = nullptr;  // outlives the service
  std::string listen;                // the provider's form; empty: any free address on loopback
  /// Opens another device of the provider of `device`: for each session one, so that no session
  /// can use another's keys, or where windows are bound to connections for each pool, which is
  /// registered on it once. Empty: all sessions share `device`.
  std::function<Result<std::unique_ptr<fabric::Device>>()> open_session_device;
};

struct ServiceOptions {
  std::string directory;  // of the pools' files; empty: see store
  /// Where pools are if not in a directory; outlives the service. Neither: only what add_pool
  /// brings.
  PoolStore* store = nullptr;
  PoolSettings settings;  // of every pool without settings of its own
  std::map<std::string, PoolSettings> settings_by_pool;
  persist::ReceiveQueue queue;  // of every session; a smaller one saves memory
  /// Requesters may make pools up to so many, and so many bytes in all; 0: no limit. Pools that are
  /// there are served whatever their number.
  std::size_t pools_max = 0;
  std::uint64_t pool_bytes_max = 0;
  /// What answers a session's requests, by kind, beside persist::built_in_handlers(). Called once
  /// for each session, when it is granted; the handlers outlive the service. Empty: those alone.
  std::function<persist::RequestHandlers(const SessionTerms&)> handlers;
  std::size_t reply_bytes_max = 64;  // the largest payload of a reply
  /// Called when a session has handled messages, by its thread: for a program that looks into its
  /// pool then. It returns at once.
  std::function<void(const SessionTerms&)> handled;
  /// Called when a session has ended, and its pool's description still shows it.
  std::function<void(const SessionTerms&)> ended;
  fabric::EndpointOptions endpoints;  // of every session; receive_depth at least what queue needs
  std::size_t sessions_max = 64;
  /// Of them, for writers only: readers, and grants that nobody uses, leave these free. 0: a
  /// quarter of sessions_max.
  std::size_t sessions_for_writers = 0;
  /// How long starting waits for pools that are in use, all together: a daemon that was killed a
  /// moment ago has its pools until its process has ended. Then they are asked for in the
  /// background, for ten minutes: the kernel keeps a killed process until it has destroyed its
  /// queue pairs, and rxe has been seen to take 50 s for one (Linux 6.12).
  Nanoseconds busy_within = std::chrono::seconds{3};
  /// And so long for pools whose media are slow, as what an earlier run left is replayed and the
  /// log in it is read. Then they go on being opened in the background, unavailable meanwhile.
  Nanoseconds opened_within = std::chrono::seconds{20};
  bool emulated = false;                                    // said of itself: see EmulatedMachine
  Nanoseconds connect_within = std::chrono::seconds{10};    // a grant is void afterwards
  Nanoseconds spin_budget = std::chrono::microseconds{50};  // see AdaptiveSpin; 0: never poll
  bool threads = true;  // false: nothing happens but in pump(), for the emulated world
  /// What report() says of a pool's contents, from its exported bytes, to which a writer may write
  /// at that moment; the service knows none. An error: it can not be told now.
  std::function<Result<std::optional<control::LogReport>>(ByteSource&)> examine;
  Authorizer* authorizer = nullptr;  // none: everything is allowed. Outlives the service
  const Clock* clock = &Clock::monotonic();
  std::function<std::uint64_t()> secrets = random_secret;
};

/// Who asks; for the authorizer.
struct Caller {
  std::string origin;      // address; empty: this process
  std::string credential;  // what was presented; empty: nothing
};

/// Threads: any, except that without threads (ServiceOptions) all calls come from one.
class PeerService {
 public:
  /// Opens every pool of the directory, listens on every plane. A pool that can not be opened is
  /// listed as unavailable with the reason; the others are served. So is one whose medium does not
  /// answer within some seconds: it goes on being opened in the background.
  /// Errors: those of listening; NotFound or PermissionDenied when the directory is not usable.
  static Result<std::unique_ptr<PeerService>> open(ServiceOptions options,
                                                   std::vector<DataPlane> planes);
  /// Ends all sessions and closes all pools cleanly, side by side, unless they were abandoned.
  ~PeerService();
  PeerService(const PeerService&) = delete;
  PeerService& operator=(const PeerService&) = delete;

  /// Serves a pool that the caller opened, over whatever region. Errors: AlreadyExists;
  /// InvalidArgument (the name); Corrupt (its writer record).
  Result<void> add_pool(const std::string& name, std::unique_ptr<pmem::Pool> pool);

  // The requests of peer.h. Errors besides those named there: PermissionDenied; NoSpace (a quota);
  // Unavailable pools answer with the error that made them so; TimedOut, at once or within
  // kControlWithin, where another request has been at work on the pool for longer: its medium may
  // not answer.
  Result<std::vector<control::PoolDescription>> list(const Caller& caller = {});
  Result<control::PoolDescription> describe(const std::string& pool, const Caller& caller = {});
  /// Errors: also Unsupported: the domain or the receive buffers that are asked for are not to be
  /// had; nothing is made.
  Result<control::PoolDescription> create(const control::PoolRequest& request,
                                          const Caller& caller = {});
  /// Opens a closed or unavailable pool again. Harmless on an open one.
  Result<control::PoolDescription> open_pool(const std::string& pool, const Caller& caller = {});
  /// Ends the pool's sessions, marks it cleanly closed and gives up its lock.
  Result<void> close_pool(const std::string& pool, const Caller& caller = {});
  /// Deletes the pool of this UUID, and all that is in it. Errors: NotFound (no pool of this name
  /// and UUID), Busy (it has a session, or another process has it), Unsupported (a device). For
  /// another request that is at work on the pool it waits no longer than until that has been for
  /// `within`.
  Result<void> delete_pool(const std::string& pool, const std::string& uuid,
                           const Caller& caller = {}, Nanoseconds within = kControlWithin);
  /// Whether delete_pool would do it now, as far as can be told. Changes nothing. Errors: its.
  Result<void> check_deletion(const std::string& pool, const std::string& uuid,
                              const Caller& caller = {});
  Result<void> fence(const std::string& pool, Epoch epoch, const Caller& caller = {});

  /// Grants a session. When this returns, writers of older epochs are cut off, the pool remembers
  /// the new one through a power failure, and all that is visible is durable (ServedPool::settle;
  /// that may take long, and holds up nothing but writers). Errors: see peer.h; QueueFull
  /// (sessions_max), Unsupported (a transport that is not offered), TimedOut (another one is at
  /// settling it).
  Result<control::SessionGrant> open_session(const control::SessionRequest& request,
                                             control::TransportChoice transport,
                                             const Caller& caller = {});
  Result<control::SessionDescription> describe_session(std::uint64_t id, const Caller& caller = {});
  /// When this returns, the session's keys are dead. Errors: NotFound; TimedOut (its thread is
  /// stuck in the medium: the keys are not revoked yet, ask again); SystemError (the RNIC refuses
  /// to revoke them: the same).
  Result<void> close_session(std::uint64_t id, control::Left left = control::Left::NotKnown,
                             const Caller& caller = {});

  /// The machine lost its power: ends all sessions without another look at their pools, and lets
  /// go of the pools as a crash leaves them. Afterwards only destruction.
  void abandon();
  /// Ends what may take long and can be asked for again, such as making durable what an earlier
  /// writer left; grants nothing more that needs it. To be called before requests are waited for.
  void begin_closing() { closing_.store(true); }

  /// Accepts who has connected and handles what has arrived, once and without waiting; returns
  /// whether there was anything. Requires a service without threads.
  bool pump();

  control::ServiceDescription description() const;
  /// Errors: PermissionDenied.
  Result<control::ServiceReport> report(const Caller& caller = {});
  /// The address of the data plane over `transport`; empty if it is not offered.
  std::string data_address(Transport transport) const;
  /// A request was refused before it reached the service (malformed, unknown route).
  void count_refused_request() { refused_requests_.fetch_add(1, std::memory_order_relaxed); }

 private:
  struct Plane {
    DataPlane given;
    std::unique_ptr<fabric::Listener> listener;
    Transport transport() const { return given.device->transport(); }
  };
  /// A pool registered on a plane's RNIC once, for all its sessions.
  struct Registration {
    std::shared_ptr<fabric::Device> device;  // keeps its domain of keys; the plane's own if empty
    std::shared_ptr<fabric::Memory> memory;  // empty: it could not be; each session has its own
    bool refused = false;
  };
  /// How long something that counts has stood still, as far as looks now and then tell.
  class Standstill {
   public:
    void look(std::uint64_t count, Nanoseconds now) {
      if (count == count_) return;
      count_ = count;
      since_ = now;
    }
    Nanoseconds at(std::uint64_t count, Nanoseconds now) const {
      return count == count_ ? now - since_ : Nanoseconds{0};
    }

   private:
    std::uint64_t count_ = 0;
    Nanoseconds since_{0};
  };
  /// A pool by name. `control` is held through every change; what is shown of it, and what its
  /// session threads touch, is under the service's mutex. What takes long is done under
  /// `preparing`, not under `control`, so that nobody who fences waits for it: see prepare().
  struct PoolEntry {
    explicit PoolEntry(std::string pool_name) : name(std::move(pool_name)) {}
    const std::string name;
    PoolControl control;
    PoolControl preparing;                        // taken under control, and kept without it
    std::atomic<std::uint64_t> settled_bytes{0};  // by whoever has `preparing`
    Standstill settling;                          // under mutex_: of settled_bytes
    std::unique_ptr<ServedPool> served;     // under control; goes under both; empty unless open
    std::uint64_t stored_bytes = 0;         // under mutex_: of its medium; 0: not known
    bool was_opened = false;                // under control: an order to take it over was for once
    std::optional<Deadline> ask_again;      // under control: it is in use, and nobody has its lock
    control::PoolDescription shown;         // under mutex_
    control::ServiceCounters ended;         // under mutex_: sums of sessions that are over
    control::ServiceTimes ended_times;      // under mutex_: the same
    std::optional<control::LogReport> log;  // under mutex_: when no writer's session knows better
    std::optional<Error> failure;           // under mutex_: why it is unavailable
    std::map<const Plane*, Registration> registered;  // under mutex_; changes under `preparing`
  };
  struct SessionEntry {
    template <typename... Resources>
    SessionEntry(std::shared_ptr<PoolEntry> of, Deadline connect, Resources&&... resources)
        : session(std::forward<Resources>(resources)...),
          pool(std::move(of)),
          connect_by(connect) {}
    ServedSession session;
    const std::shared_ptr<PoolEntry> pool;
    const Deadline connect_by;
    /// Whoever runs the session counts its steps: odd while it is at work, even while it sleeps.
    void count_steps(std::uint64_t by) {
      steps.store(steps.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
    }
    std::atomic<std::uint64_t> steps{0};
    Standstill working;       // under mutex_: of steps
    std::uint64_t order = 0;  // the how manieth grant; set once
    control::SessionPhase phase = control::SessionPhase::Granted;  // under mutex_
    bool ended = false;                                            // under mutex_
    bool applied = false;            // under mutex_: with its end, all that had come in was applied
    std::optional<Error> unrevoked;  // under mutex_: why its keys may be alive, and nobody runs it
    std::thread thread;              // under mutex_
  };
  using PoolPointer = std::shared_ptr<PoolEntry>;
  using SessionPointer = std::shared_ptr<SessionEntry>;

  PeerService(ServiceOptions options);

  Result<void> listen(std::vector<DataPlane> planes);
  Result<void> open_pools();
  const PoolSettings& settings_of(const std::string& pool) const;
  Result<PoolSettings> settings_for(const control::PoolRequest& request) const;
  Result<void> authorize(Action action, const std::string& pool, const Caller& caller);
  Result<PoolPointer> find_pool(const std::string& pool) const;
  Result<PoolPointer> insert_pool(const std::string& pool);
  Result<PoolPointer> insert_new_pool(const control::PoolRequest& request);
  Result<std::unique_ptr<pmem::Pool>> open_stored(PoolEntry& entry);
  void look_at_stored(PoolEntry& entry);
  Result<void> require_unused(const PoolPointer& entry, const std::string& uuid);
  Result<void> open_entry(PoolEntry& entry, const Deadline& patience);
  Result<void> open_as(PoolEntry& entry, Result<std::unique_ptr<pmem::Pool>> opened);
  Result<void> adopt(PoolEntry& entry, std::unique_ptr<pmem::Pool> pool);
  void show(PoolEntry& entry, const std::optional<Error>& failure);
  Result<PoolHold> hold(PoolEntry& entry, Nanoseconds within = kControlWithin) const;
  Result<void> require_open(const PoolEntry& entry) const;
  control::PoolDescription shown(const PoolEntry& entry) const;
  bool has(const SessionEntry& entry, bool SessionEntry::*what) const;
  control::SessionDescription describe_entry(const SessionEntry& entry) const
      PERDURE_REQUIRES(mutex_);

  Result<Plane*> choose_plane(control::TransportChoice choice, const Caller& caller);
  Result<void> admit_writer(const PoolPointer& entry, const control::SessionRequest& request);
  bool is_prepared(const PoolEntry& entry, const control::SessionRequest& request,
                   const Plane& plane) const;
  Result<void> prepare(PoolEntry& entry, const control::SessionRequest& request, const Plane& plane,
                       PoolHold control);
  static bool takes_windows(const Plane& plane, const ServedPool& pool);
  bool needs_registration(const PoolEntry& entry, const Plane& plane) const;
  void register_pool(PoolEntry& entry, const Plane& plane, ServedPool& pool);
  void deregister_pool(PoolEntry& entry);
  /// What a session reaches its pool by.
  struct Keys {
    std::shared_ptr<fabric::Device> kept_device;
    fabric::Device* device = nullptr;
    std::unique_ptr<fabric::Memory> memory;
  };
  Result<Keys> make_keys(const PoolEntry& entry, const control::SessionRequest& request,
                         const Plane& plane) const;
  Result<PoolHold> hold_prepared(PoolEntry& entry, Nanoseconds within = kControlWithin) const;
  Result<void> record_writer(PoolEntry& entry, const WriterRecord& record);
  Result<void> note_medium(PoolEntry& entry, Result<void> outcome);
  Result<control::SessionGrant> grant(const PoolPointer& entry,
                                      const control::SessionRequest& request, Plane& plane);
  std::vector<SessionPointer> sessions_of(const PoolEntry& entry, bool writers_only) const;
  Result<void> end_all(const std::vector<SessionPointer>& sessions, bool fenced);
  Result<void> end(const SessionPointer& entry);
  Error not_revoked(const SessionEntry& entry) const PERDURE_REQUIRES(mutex_);
  void finish(const SessionPointer& entry);
  void close_entry(PoolEntry& entry);
  static Result<void> close_served(ServedPool& served, Nanoseconds within);
  bool end_before_closing(const PoolEntry& entry);
  void for_each_side_by_side(const std::vector<PoolPointer>& entries,
                             const std::function<void(PoolEntry&)>& work, const Deadline& until);
  void expire_grants();
  Result<void> make_room(const PoolEntry& pool, const control::SessionRequest& request);
  std::size_t reserved_for_writers() const;
  void look_at_media();
  void look_at_medium(PoolEntry& entry);
  void look_at_work();
  Nanoseconds oldest_work(const PoolEntry& entry, Nanoseconds now) const PERDURE_REQUIRES(mutex_);
  void open_busy(PoolEntry& entry);
  void run_watch();

  bool accept_next(Plane& plane, Deadline deadline);
  SessionPointer claim(std::span<const std::byte> private_data);
  void start(const SessionPointer& entry, std::unique_ptr<fabric::Endpoint> endpoint);
  bool attach(const SessionPointer& entry, std::unique_ptr<fabric::Endpoint> endpoint);
  void stop_acceptors();
  void run_acceptor(Plane& plane);
  void run_session(const SessionPointer& entry, std::unique_ptr<fabric::Endpoint> endpoint);
  void run_attached(const SessionPointer& entry);
  void examine(ServedSession& session) const;
  void session_failed(const SessionPointer& entry, const Error& why);
  void medium_failed(PoolEntry& entry, const Error& why);
  void join_finished();

  const ServiceOptions options_;
  std::unique_ptr<PoolDirectory> own_store_;  // of options_.directory
  PoolStore* store_ = nullptr;                // or none
  Transport transport_ = Transport::Tcp;      // that is shown of a pool: the first plane's
  std::optional<Deadline> busy_until_;        // see ServiceOptions::busy_within; set by open()
  SpinSlots spin_slots_;
  std::vector<Plane> planes_;

  Mutex making_;  // before mutex_
  mutable Mutex mutex_;
  std::map<std::string, PoolPointer> pools_ PERDURE_GUARDED_BY(mutex_);
  std::map<std::uint64_t, SessionPointer> sessions_ PERDURE_GUARDED_BY(mutex_);
  std::vector<std::thread> finished_ PERDURE_GUARDED_BY(mutex_);  // to be joined
  control::RefusedCounters refused_ PERDURE_GUARDED_BY(mutex_);
  std::uint64_t granted_ PERDURE_GUARDED_BY(mutex_) = 0;
  std::condition_variable session_ended_;

  std::atomic<std::uint64_t> refused_requests_{0};
  std::atomic<bool> closing_{false};
  std::atomic<bool> abandoned_{false};
  std::vector<std::thread> acceptors_;
  std::thread watch_;   // looks after the pools' media,
  MediaWorkers media_;  // by these
};

}  // namespace perdure::server
