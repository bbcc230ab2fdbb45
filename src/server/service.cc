// PeerService: what requests do to its pools. The sessions are in service_sessions.cc, how it
// begins and ends in service_life.cc.
#include "server/service.h"

#include <fmt/format.h>

#include <algorithm>

#include "control/version.h"
#include "core/assert.h"
#include "core/counted.h"
#include "core/log_message.h"
#include "core/try.h"

namespace perdure::server {
namespace {

constexpr Nanoseconds kSettledOnRequest = std::chrono::seconds{2};  // less than a requester waits
constexpr Nanoseconds kBusyEvery = std::chrono::milliseconds{50};

Error no_directory() {
  return {ErrorCode::Unsupported, "this peer has no directory to delete pools from"};
}

}  // namespace

const PoolSettings& PeerService::settings_of(const std::string& pool) const {
  const auto own = options_.settings_by_pool.find(pool);
  return own == options_.settings_by_pool.end() ? options_.settings : own->second;
}

/// Of a pool that is to be made. What a writer's messages need to be replayed only its operator
/// knows (the RNIC, the medium), so a requester may decline it, and not order it.
Result<PoolSettings> PeerService::settings_for(const control::PoolRequest& request) const {
  PoolSettings settings = settings_of(request.name);
  const ReceiveBuffers offered = settings.receive_buffers;
  settings.receive_buffers = request.receive_buffers.value_or(offered);
  if (settings.receive_buffers == ReceiveBuffers::Dram || offered == ReceiveBuffers::Pm) {
    return settings;
  }
  return Error{ErrorCode::Unsupported,
               fmt::format("pool '{}' was asked for with receive buffers pm, and this peer makes "
                           "pools with dram only; ask for dram, or have its operator configure "
                           "receive_buffers = \"pm\"",
                           request.name)};
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
/// for or is shown, or takes of its medium. No medium is asked: one may not answer.
Result<PeerService::PoolPointer> PeerService::insert_new_pool(const control::PoolRequest& request) {
  const MutexLock making(making_);  // of two that come at once, the second sees the first
  std::uint64_t bytes = 0;
  std::size_t count = 0;
  {
    const MutexLock lock(mutex_);
    count = pools_.size();
    for (const auto& [name, entry] : pools_) {
      bytes += std::max(entry->shown.bytes, entry->stored_bytes);
    }
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

/// Requires entry.control. A device is taken from another owner once: later that may be one to whom
/// it was left.
Result<std::unique_ptr<pmem::Pool>> PeerService::open_stored(PoolEntry& entry) {
  PoolSettings settings = settings_of(entry.name);
  look_at_stored(entry);
  if (entry.was_opened) settings.take_over_lease = false;
  auto opened = store_->open(entry.name, settings);
  if (opened.ok() || opened.code() != ErrorCode::Busy) entry.was_opened = true;
  return opened;
}

/// Requires entry.control, and that the pool is not open. May wait for the pool's medium.
void PeerService::look_at_stored(PoolEntry& entry) {
  const PoolStore::Stored stored = store_->look(entry.name);
  const MutexLock lock(mutex_);
  entry.stored_bytes = stored.bytes;
  // Whoever is to delete it has to be told which it is.
  if (!stored.uuid.empty()) entry.shown.uuid = stored.uuid;
}

/// Requires entry.control. Opens the pool's file and shows the outcome. Who has it in use gets
/// until `patience` to let go of it.
Result<void> PeerService::open_entry(PoolEntry& entry, const Deadline& patience) {
  auto opened = open_stored(entry);
  while (!opened.ok() && opened.code() == ErrorCode::Busy && !patience.passed()) {
    {
      MutexLock lock(mutex_);
      lock.wait_for(session_ended_, kBusyEvery);
    }
    opened = open_stored(entry);
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
    entry.stored_bytes = entry.served->region().bytes().size();
    entry.ended.replayed_messages += replayed;
    entry.log = log;
  }
  show(entry, std::nullopt);
  log_message(Severity::Info, fmt::format("pool '{}' is open: {} bytes, {}; {} messages replayed",
                                          entry.name, entry.served->exported().length,
                                          perdure::describe(shown(entry).profile), replayed));
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
  if (entry.served != nullptr) description.profile.transport = transport_;
  entry.shown = std::move(description);
}

/// entry.control, for a scope. Errors: TimedOut (another request has had it for long).
Result<PoolHold> PeerService::hold(PoolEntry& entry, Nanoseconds within) const {
  if (entry.control.take(within)) {
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
  PERDURE_TRY(settings, settings_for(request));
  PERDURE_TRY(entry, insert_new_pool(request));
  PERDURE_TRY(control, hold(*entry));
  auto created = store_->create(request, settings, options_.queue);
  if (!created) {
    const MutexLock lock(mutex_);
    pools_.erase(request.name);
    return created.error();
  }
  PERDURE_ASSERT((*created)->region().domain() >= request.required_domain);
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
  if (entry->served == nullptr) {
    show(*entry, std::nullopt);  // also one that was to be opened as soon as nobody else has it
    return {};
  }
  PERDURE_TRY_VOID(end_all(sessions_of(*entry, false), false));
  PERDURE_TRY(preparing, hold_prepared(*entry));
  deregister_pool(*entry);
  auto closed = close_served(*entry->served, kSettledOnRequest);
  entry->served.reset();
  show(*entry, closed.ok() ? std::nullopt : std::optional<Error>(closed.error()));
  log_message(Severity::Info, fmt::format("pool '{}' is closed", entry->name));
  return closed;
}

/// Requires entry->control. Errors: NotFound, Busy, as of delete_pool.
Result<void> PeerService::require_unused(const PoolPointer& entry, const std::string& uuid) {
  if (entry->served == nullptr) look_at_stored(*entry);
  {
    const MutexLock lock(mutex_);
    const auto now = pools_.find(entry->name);
    // It may have been deleted, and another one made, before this had its turn.
    if (now == pools_.end() || now->second != entry || entry->shown.uuid != uuid) {
      return Error{ErrorCode::NotFound,
                   fmt::format("there is no pool '{}' with the UUID '{}' here; look at it again, "
                               "and see whether it is the one that is to go",
                               entry->name, uuid)};
    }
  }
  if (const auto sessions = sessions_of(*entry, false); !sessions.empty()) {
    return Error{
        ErrorCode::Busy,
        fmt::format("pool '{}' has {}, {} of them writers': end them first", entry->name,
                    counted(sessions.size(), "session"), sessions_of(*entry, true).size())};
  }
  return {};
}

Result<void> PeerService::check_deletion(const std::string& pool, const std::string& uuid,
                                         const Caller& caller) {
  PERDURE_TRY_VOID(authorize(Action::DeletePool, pool, caller));
  if (store_ == nullptr) return no_directory();
  PERDURE_TRY(entry, find_pool(pool));
  PERDURE_TRY(control, hold(*entry));
  PERDURE_TRY_VOID(require_unused(entry, uuid));
  if (entry->served == nullptr && store_->is_locked(pool)) {
    return Error{ErrorCode::Busy,
                 fmt::format("pool '{}' is in use by another process: end that first", pool)};
  }
  return store_->check_removable(pool);
}

Result<void> PeerService::delete_pool(const std::string& pool, const std::string& uuid,
                                      const Caller& caller, Nanoseconds within) {
  PERDURE_TRY_VOID(authorize(Action::DeletePool, pool, caller));
  if (store_ == nullptr) return no_directory();
  PERDURE_TRY(entry, find_pool(pool));
  PERDURE_TRY(control, hold(*entry, within));
  PERDURE_TRY_VOID(require_unused(entry, uuid));
  PERDURE_TRY(preparing, hold_prepared(*entry, within));
  deregister_pool(*entry);
  const bool was_served = entry->served != nullptr;
  entry->served.reset();
  auto removed = store_->remove(pool, uuid);
  // What somebody else has deleted is gone from here as well, so that another can be made.
  const bool gone =
      !removed.ok() && removed.code() == ErrorCode::NotFound && !store_->has_pool(pool);
  if (!removed.ok() && !gone) {
    if (was_served) (void)open_entry(*entry, Deadline::after(Nanoseconds{0}));
    return removed;
  }
  {
    const MutexLock lock(mutex_);
    entry->failure.reset();
    pools_.erase(pool);
  }
  log_message(Severity::Info, fmt::format("pool '{}' ({}) is deleted{}", pool, uuid,
                                          gone ? "; its file was gone already" : ""));
  return {};
}

control::ServiceDescription PeerService::description() const {
  control::ServiceDescription service;
  service.version = control::version();
  service.host = control::host_identity();
  service.kernel_up_s = control::kernel_up_s();
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
