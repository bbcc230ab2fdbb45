// PeerService: its pools. The sessions are in service_sessions.cc.
#include "server/service.h"

#include <fmt/format.h>

#include <algorithm>

#include "control/version.h"
#include "core/counted.h"
#include "core/log_message.h"
#include "core/try.h"

namespace perdure::server {
namespace {

constexpr int kRevokeTries = 3;
constexpr Nanoseconds kSettledWithin = std::chrono::seconds{20};    // when the daemon ends
constexpr Nanoseconds kSettledOnRequest = std::chrono::seconds{2};  // less than a requester waits
constexpr Nanoseconds kBusyFor = std::chrono::minutes{10};          // after the start
constexpr Nanoseconds kBusyEvery = std::chrono::milliseconds{50};

/// A pool that somebody may still write to, by a key that could not be taken away: it stays mapped
/// and locked, and is not marked as cleanly closed, until the kernel ends the RNIC's keys with the
/// process.
void keep_until_exit(std::unique_ptr<ServedPool> pool) {
  static Mutex mutex;
  static auto& kept = *new std::vector<std::unique_ptr<ServedPool>>;
  const MutexLock lock(mutex);
  kept.push_back(std::move(pool));
}

/// Leaves one core to those that have work.
int spinners_max() {
  const unsigned cores = std::thread::hardware_concurrency();
  return cores <= 2 ? 1 : static_cast<int>(cores) - 1;
}

}  // namespace

PeerService::PeerService(ServiceOptions options)
    : options_(std::move(options)), store_(options_.store), spin_slots_(spinners_max()) {
  if (options_.directory.empty()) return;
  own_store_ = std::make_unique<PoolDirectory>(options_.directory);
  store_ = own_store_.get();
}

Result<std::unique_ptr<PeerService>> PeerService::open(ServiceOptions options,
                                                       std::vector<DataPlane> planes) {
  if (options.reply_bytes_max > persist::kReplyPayloadMax) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("replies of {} bytes; they have at most {}", options.reply_bytes_max,
                             persist::kReplyPayloadMax)};
  }
  std::unique_ptr<PeerService> service(new PeerService(std::move(options)));
  if (service->store_ != nullptr) PERDURE_TRY_VOID(service->open_pools());
  PERDURE_TRY_VOID(service->listen(std::move(planes)));
  return service;
}

PeerService::~PeerService() {
  stop_acceptors();
  std::vector<PoolPointer> pools;
  {
    const MutexLock lock(mutex_);
    for (const auto& [name, entry] : pools_) pools.push_back(entry);
  }
  // What is at work on a pool is waited for: it would use what is about to go.
  for_each_side_by_side(
      pools, [this](PoolEntry& entry) { close_entry(entry); },
      Deadline::after(std::chrono::hours{24 * 365}));
  join_finished();
}

void PeerService::close_entry(PoolEntry& entry) {
  while (!entry.control.take(entry.control.held() + std::chrono::hours{1})) {
    log_message(Severity::Warning, fmt::format("pool '{}': waiting for its medium", entry.name));
  }
  const PoolHold control(entry.control);
  const bool ended = end_before_closing(entry);
  deregister_pool(entry);
  if (!ended) {
    keep_until_exit(std::move(entry.served));
  } else if (entry.served != nullptr && !abandoned_.load()) {
    (void)close_served(*entry.served, kSettledWithin);
  }
}

/// What it can not make durable in time the next opening does: whoever stops a daemon waits.
Result<void> PeerService::close_served(ServedPool& served, Nanoseconds within) {
  const Deadline patience = Deadline::after(within);
  return served.close([patience] { return patience.passed(); });
}

/// What may wait for a pool's medium, for each of the pools: one that does not answer holds up no
/// other. Returns when all is done, or at the deadline, unless without threads.
void PeerService::for_each_side_by_side(const std::vector<PoolPointer>& entries,
                                        const std::function<void(PoolEntry&)>& work,
                                        const Deadline& until) {
  std::vector<MediaWorkers::Work> pieces;
  for (const PoolPointer& entry : entries) {
    if (options_.threads) {
      pieces.emplace_back([entry, work] { work(*entry); });
    } else {
      work(*entry);
    }
  }
  media_.run(std::move(pieces), until);
}

/// Whether all its sessions are over. A session whose thread is stuck in the medium would use the
/// region after it is gone: that is waited for. An RNIC that keeps a key is asked a few times; it
/// loses the key with the process.
bool PeerService::end_before_closing(const PoolEntry& entry) {
  for (int refusals = 0; refusals < kRevokeTries;) {
    const auto ended = end_all(sessions_of(entry, false), false);
    if (ended.ok()) return true;
    log_message(Severity::Warning,
                fmt::format("pool '{}' can not be closed: {}", entry.name, ended.error().message));
    if (ended.code() != ErrorCode::TimedOut) ++refusals;
  }
  return false;
}

void PeerService::stop_acceptors() {
  closing_.store(true);
  for (std::thread& acceptor : acceptors_) acceptor.join();
  acceptors_.clear();
  if (watch_.joinable()) watch_.join();
}

void PeerService::abandon() {
  abandoned_.store(true);
  stop_acceptors();
  std::vector<SessionPointer> sessions;
  {
    const MutexLock lock(mutex_);
    for (const auto& [id, entry] : sessions_) sessions.push_back(entry);
  }
  (void)end_all(sessions, false);
}

Result<void> PeerService::listen(std::vector<DataPlane> planes) {
  for (DataPlane& plane : planes) {
    fabric::EndpointOptions endpoints = options_.endpoints;
    endpoints.receive_depth = std::max(endpoints.receive_depth, options_.queue.depth);
    PERDURE_TRY(listener, plane.device->listen(plane.listen, endpoints));
    const MutexLock lock(mutex_);  // a pool that is still being opened asks for the first of them
    planes_.push_back({std::move(plane), std::move(listener)});
  }
  if (!options_.threads) return {};
  for (Plane& plane : planes_) {
    acceptors_.emplace_back([this, &plane] { run_acceptor(plane); });
  }
  watch_ = std::thread([this] { run_watch(); });
  return {};
}

Result<void> PeerService::open_pools() {
  PERDURE_TRY(names, store_->names());
  const Deadline patience =
      Deadline::after(options_.threads ? options_.busy_within : Nanoseconds{0});
  busy_until_ = Deadline::after(kBusyFor);
  std::vector<PoolPointer> entries;
  for (const std::string& name : names) {
    PERDURE_TRY(entry, insert_pool(name));
    const MutexLock lock(mutex_);
    entry->shown.state = control::PoolStatus::Unavailable;
    entry->shown.reason =
        "it is still being opened: if that goes on, its medium does not answer; see to the medium";
    entries.push_back(std::move(entry));
  }
  // Shown as unavailable, with the reason, if it fails.
  const auto open = [this, patience](PoolEntry& entry) {
    if (const auto control = hold(entry); control.ok()) (void)open_entry(entry, patience);
  };
  for_each_side_by_side(entries, open,
                        Deadline::after(options_.busy_within + options_.opened_within));
  for (const PoolPointer& entry : entries) {
    if (entry->control.held() == Nanoseconds{0}) continue;
    log_message(Severity::Warning,
                fmt::format("pool '{}' is not open yet: its medium may not answer; the other pools "
                            "are served meanwhile",
                            entry->name));
  }
  return {};
}

const PoolSettings& PeerService::settings_of(const std::string& pool) const {
  const auto own = options_.settings_by_pool.find(pool);
  return own == options_.settings_by_pool.end() ? options_.settings : own->second;
}

Result<void> PeerService::authorize(Action action, const std::string& pool, const Caller& caller) {
  if (options_.authorizer == nullptr) return {};
  auto allowed = options_.authorizer->authorize({action, pool, caller.origin, caller.credential});
  if (!allowed) {
    const MutexLock lock(mutex_);
    ++refused_.unauthorized;
  }
  return allowed;
}

Result<PeerService::PoolPointer> PeerService::find_pool(const std::string& pool) const {
  const MutexLock lock(mutex_);
  const auto found = pools_.find(pool);
  if (found != pools_.end()) return found->second;
  return Error{ErrorCode::NotFound,
               fmt::format("there is no pool '{}' here; create it, or check the name", pool)};
}

Result<PeerService::PoolPointer> PeerService::insert_pool(const std::string& pool) {
  PERDURE_TRY_VOID(control::validate_pool_name(pool));
  auto entry = std::make_shared<PoolEntry>(pool);
  entry->shown.name = pool;
  entry->shown.state = control::PoolStatus::Closed;
  const MutexLock lock(mutex_);
  if (pools_.emplace(pool, entry).second) return entry;
  return Error{
      ErrorCode::AlreadyExists,
      fmt::format("there is a pool '{}' here already; open it, or choose another name", pool)};
}

/// The same for one that is to be made, within the quota: what is here counts with what was asked
/// for or is shown, or takes of its medium.
Result<PeerService::PoolPointer> PeerService::insert_new_pool(const control::PoolRequest& request) {
  const MutexLock making(making_);  // of two that come at once, the second sees the first
  std::uint64_t bytes = 0;
  std::size_t count = 0;
  std::vector<std::pair<std::string, std::uint64_t>> there;
  {
    const MutexLock lock(mutex_);
    count = pools_.size();
    for (const auto& [name, entry] : pools_) there.emplace_back(name, entry->shown.bytes);
  }
  if (options_.pool_bytes_max != 0) {
    for (const auto& [name, shown] : there) bytes += std::max(shown, store_->bytes_of(name));
  }
  const bool too_many = options_.pools_max != 0 && count >= options_.pools_max;
  const bool too_large =
      options_.pool_bytes_max != 0 &&
      (bytes > options_.pool_bytes_max || request.bytes > options_.pool_bytes_max - bytes);
  if (too_many || too_large) {
    return Error{
        ErrorCode::NoSpace,
        fmt::format("pool '{}' of {} bytes is beyond this peer's quota: it has {} pools of "
                    "{} bytes, and may have {}; remove one, or raise {} in [pools] of its "
                    "configuration",
                    request.name, request.bytes, count, bytes,
                    too_many ? fmt::format("{} pools", options_.pools_max)
                             : fmt::format("{} bytes", options_.pool_bytes_max),
                    too_many ? "pools_max" : "pool_bytes_max")};
  }
  PERDURE_TRY(entry, insert_pool(request.name));
  const MutexLock lock(mutex_);
  entry->shown.bytes = request.bytes;
  return entry;
}

/// Requires entry.control. Opens the pool's file and shows the outcome. Who has it in use gets
/// until `patience` to let go of it.
Result<void> PeerService::open_entry(PoolEntry& entry, const Deadline& patience) {
  auto opened = store_->open(entry.name, settings_of(entry.name));
  while (!opened.ok() && opened.code() == ErrorCode::Busy && !patience.passed()) {
    {
      MutexLock lock(mutex_);
      lock.wait_for(session_ended_, kBusyEvery);
    }
    opened = store_->open(entry.name, settings_of(entry.name));
  }
  return open_as(entry, std::move(opened));
}

/// Requires entry.control. What came of opening its file: serves the pool, or shows why not.
Result<void> PeerService::open_as(PoolEntry& entry, Result<std::unique_ptr<pmem::Pool>> opened) {
  if (!opened) {
    log_message(Severity::Error,
                fmt::format("pool '{}' is unavailable: {}", entry.name, opened.error().message));
    show(entry, opened.error());
    return opened.error();
  }
  return adopt(entry, std::move(opened).value());
}

/// Requires entry.control.
Result<void> PeerService::adopt(PoolEntry& entry, std::unique_ptr<pmem::Pool> pool) {
  auto served = ServedPool::adopt(std::move(pool), settings_of(entry.name), options_.queue);
  if (!served) {
    log_message(Severity::Error,
                fmt::format("pool '{}' is unavailable: {}", entry.name, served.error().message));
    show(entry, served.error());
    return served.error();
  }
  entry.served = std::move(served).value();
  const std::uint64_t replayed = entry.served->replayed();
  std::optional<control::LogReport> log;
  if (options_.examine) {
    const pmem::Range exported = entry.served->exported();
    LocalBytes bytes(entry.served->region().bytes().subspan(exported.at, exported.length));
    const auto found = options_.examine(bytes);
    if (found.ok()) log = *found;
  }
  {
    const MutexLock lock(mutex_);
    entry.ended.replayed_messages += replayed;
    entry.log = log;
  }
  show(entry, std::nullopt);
  log_message(Severity::Info,
              fmt::format("pool '{}' is open: {} bytes, {}; {} messages replayed", entry.name,
                          entry.served->exported().length,
                          perdure::describe(entry.served->describe().profile), replayed));
  return {};
}

/// Requires entry.control. Renews what others see of the pool.
void PeerService::show(PoolEntry& entry, const std::optional<Error>& failure) {
  control::PoolDescription description;
  if (entry.served != nullptr) description = entry.served->describe();
  description.name = entry.name;
  const MutexLock lock(mutex_);
  if (entry.served == nullptr) {
    description = entry.shown;
    description.state = failure ? control::PoolStatus::Unavailable : control::PoolStatus::Closed;
  }
  if (failure) {
    description.state = control::PoolStatus::Unavailable;
    description.reason = failure->message;
  } else {
    description.reason.clear();
  }
  entry.failure = failure;
  if (entry.served != nullptr && !planes_.empty()) {
    description.profile.transport = planes_.front().transport();
  }
  entry.shown = std::move(description);
}

/// entry.control, for a scope. Errors: TimedOut (another request has had it for long).
Result<PoolHold> PeerService::hold(PoolEntry& entry) const {
  if (entry.control.take(kControlWithin)) {
    PoolHold control(entry.control);
    const MutexLock lock(mutex_);
    const auto found = pools_.find(entry.name);
    if (found != pools_.end() && found->second.get() == &entry) return control;
    return Error{ErrorCode::NotFound,
                 fmt::format("pool '{}' was deleted while this waited for it", entry.name)};
  }
  const auto held = std::chrono::duration_cast<std::chrono::seconds>(entry.control.held());
  return Error{ErrorCode::TimedOut,
               fmt::format("pool '{}': another request has been at work on it for {} s; its medium "
                           "may not answer: see to the medium, or ask again",
                           entry.name, std::max<std::int64_t>(held.count(), 1))};
}

/// Requires entry.control.
Result<void> PeerService::require_open(const PoolEntry& entry) const {
  const MutexLock lock(mutex_);
  if (entry.failure) {
    return Error{entry.failure->code,
                 fmt::format("pool '{}' is unavailable: {}", entry.name, entry.failure->message)};
  }
  if (entry.served != nullptr) return {};
  return Error{ErrorCode::NotFound,
               fmt::format("pool '{}' is closed; open it before use", entry.name)};
}

control::PoolDescription PeerService::shown(const PoolEntry& entry) const {
  const MutexLock lock(mutex_);
  control::PoolDescription description = entry.shown;
  for (const auto& [id, session] : sessions_) {
    if (session->pool.get() == &entry && session->session.terms().write) {
      description.writer_present = true;
    }
    if (session->pool.get() == &entry && session->unrevoked && description.reason.empty()) {
      description.reason = not_revoked(*session).message;
    }
  }
  return description;
}

Result<void> PeerService::add_pool(const std::string& name, std::unique_ptr<pmem::Pool> pool) {
  PERDURE_TRY(entry, insert_pool(name));
  PERDURE_TRY(control, hold(*entry));
  return adopt(*entry, std::move(pool));
}

Result<std::vector<control::PoolDescription>> PeerService::list(const Caller& caller) {
  PERDURE_TRY_VOID(authorize(Action::Describe, "", caller));
  std::vector<PoolPointer> entries;
  {
    const MutexLock lock(mutex_);
    for (const auto& [name, entry] : pools_) entries.push_back(entry);
  }
  std::vector<control::PoolDescription> pools;
  for (const PoolPointer& entry : entries) pools.push_back(shown(*entry));
  return pools;
}

Result<control::PoolDescription> PeerService::describe(const std::string& pool,
                                                       const Caller& caller) {
  PERDURE_TRY_VOID(authorize(Action::Describe, pool, caller));
  PERDURE_TRY(entry, find_pool(pool));
  return shown(*entry);
}

Result<control::PoolDescription> PeerService::create(const control::PoolRequest& request,
                                                     const Caller& caller) {
  PERDURE_TRY_VOID(validate(request));
  PERDURE_TRY_VOID(authorize(Action::CreatePool, request.name, caller));
  if (store_ == nullptr) {
    return Error{ErrorCode::Unsupported, "this peer has no directory to create pools in"};
  }
  PERDURE_TRY(entry, insert_new_pool(request));
  PERDURE_TRY(control, hold(*entry));
  auto created = store_->create(request, settings_of(request.name), options_.queue);
  if (!created) {
    const MutexLock lock(mutex_);
    pools_.erase(request.name);
    return created.error();
  }
  PERDURE_TRY_VOID(adopt(*entry, std::move(created).value()));
  return shown(*entry);
}

Result<control::PoolDescription> PeerService::open_pool(const std::string& pool,
                                                        const Caller& caller) {
  PERDURE_TRY_VOID(authorize(Action::OpenPool, pool, caller));
  PERDURE_TRY(entry, find_pool(pool));
  PERDURE_TRY(control, hold(*entry));
  if (!require_open(*entry).ok()) {
    if (store_ == nullptr) {
      return Error{ErrorCode::Unsupported, "this peer has no directory to open pools from"};
    }
    // A failed pool may still be mapped: its sessions and its lock go first.
    PERDURE_TRY_VOID(end_all(sessions_of(*entry, false), false));
    PERDURE_TRY(preparing, hold_prepared(*entry));
    deregister_pool(*entry);
    entry->served.reset();
    PERDURE_TRY_VOID(open_entry(*entry, Deadline::after(Nanoseconds{0})));
  }
  return shown(*entry);
}

Result<void> PeerService::close_pool(const std::string& pool, const Caller& caller) {
  PERDURE_TRY_VOID(authorize(Action::ClosePool, pool, caller));
  PERDURE_TRY(entry, find_pool(pool));
  PERDURE_TRY(control, hold(*entry));
  if (entry->served == nullptr) return {};
  PERDURE_TRY_VOID(end_all(sessions_of(*entry, false), false));
  PERDURE_TRY(preparing, hold_prepared(*entry));
  deregister_pool(*entry);
  auto closed = close_served(*entry->served, kSettledOnRequest);
  entry->served.reset();
  show(*entry, closed.ok() ? std::nullopt : std::optional<Error>(closed.error()));
  log_message(Severity::Info, fmt::format("pool '{}' is closed", entry->name));
  return closed;
}

Result<void> PeerService::delete_pool(const std::string& pool, const std::string& uuid,
                                      const Caller& caller) {
  PERDURE_TRY_VOID(authorize(Action::DeletePool, pool, caller));
  if (store_ == nullptr) {
    return Error{ErrorCode::Unsupported, "this peer has no directory to delete pools from"};
  }
  PERDURE_TRY(entry, find_pool(pool));
  PERDURE_TRY(control, hold(*entry));
  {
    const MutexLock lock(mutex_);
    const auto now = pools_.find(pool);
    // It may have been deleted, and another one made, before this had its turn.
    if (now == pools_.end() || now->second != entry || entry->shown.uuid != uuid) {
      return Error{ErrorCode::NotFound,
                   fmt::format("there is no pool '{}' with the UUID '{}' here; look at it again, "
                               "and see whether it is the one that is to go",
                               pool, uuid)};
    }
  }
  if (const auto sessions = sessions_of(*entry, false); !sessions.empty()) {
    return Error{
        ErrorCode::Busy,
        fmt::format("pool '{}' has {}, {} of them writers': end them first", pool,
                    counted(sessions.size(), "session"), sessions_of(*entry, true).size())};
  }
  PERDURE_TRY(preparing, hold_prepared(*entry));
  deregister_pool(*entry);
  entry->served.reset();
  if (auto removed = store_->remove(pool); !removed.ok()) {
    (void)open_entry(*entry, Deadline::after(Nanoseconds{0}));  // shown as it is then
    return removed;
  }
  {
    const MutexLock lock(mutex_);
    entry->failure.reset();
    pools_.erase(pool);
  }
  log_message(Severity::Info, fmt::format("pool '{}' ({}) is deleted", pool, uuid));
  return {};
}

control::ServiceDescription PeerService::description() const {
  control::ServiceDescription service;
  service.version = control::version();
  service.host = control::host_identity();
  service.emulated = options_.emulated;
  for (const Plane& plane : planes_) {
    service.transports.push_back(plane.transport());
    service.devices.push_back(plane.given.device->describe());
  }
  const MutexLock lock(mutex_);
  service.pools = pools_.size();
  service.sessions = sessions_.size();
  return service;
}

Result<control::ServiceReport> PeerService::report(const Caller& caller) {
  PERDURE_TRY_VOID(authorize(Action::Describe, "", caller));
  control::ServiceReport report;
  report.service = description();
  std::vector<PoolPointer> entries;
  {
    const MutexLock lock(mutex_);
    for (const auto& [name, entry] : pools_) entries.push_back(entry);
  }
  for (const PoolPointer& entry : entries) report.pools.push_back({shown(*entry), {}, {}, {}, {}});
  const Nanoseconds now = Clock::monotonic().now();
  const MutexLock lock(mutex_);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    report.pools[i].counters = entries[i]->ended;
    report.pools[i].times = entries[i]->ended_times;
    report.pools[i].log = entries[i]->log;
    report.pools[i].oldest_work = oldest_work(*entries[i], now);
  }
  for (const auto& [id, entry] : sessions_) {
    report.sessions.push_back(describe_entry(*entry));
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (entries[i] != entry->pool) continue;
      report.pools[i].counters += report.sessions.back().counters;
      report.pools[i].times += entry->session.times();
      if (const auto contents = entry->session.contents()) report.pools[i].log = contents;
    }
  }
  for (control::PoolReport& each : report.pools) {
    if (each.pool.state != control::PoolStatus::Open) each.log.reset();
  }
  report.refused = refused_;
  report.refused.requests = refused_requests_.load(std::memory_order_relaxed);
  return report;
}

std::string PeerService::data_address(Transport transport) const {
  for (const Plane& plane : planes_) {
    if (plane.transport() == transport) return plane.listener->address();
  }
  return {};
}

}  // namespace perdure::server
