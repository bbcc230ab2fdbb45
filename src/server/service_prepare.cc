// PeerService: what takes long before a session can be granted, and is done without the pool's
// control, so that whoever fences, closes a session or reads is not held up: making durable what an
// earlier writer left, and registering the pool with an RNIC.
#include <fmt/format.h>

#include "core/log_message.h"
#include "core/try.h"
#include "server/service.h"

namespace perdure::server {

/// Requires entry.control and an open pool.
bool PeerService::is_prepared(const PoolEntry& entry, const control::SessionRequest& request,
                              const Plane& plane) const {
  if (request.write && !entry.served->settled()) return false;
  return !needs_registration(entry, plane);
}

/// Gives up the pool's control at once. One request does the work; another one waits for it, for
/// kControlWithin. Whoever comes out of it looks at everything anew.
Result<void> PeerService::prepare(PoolEntry& entry, const control::SessionRequest& request,
                                  const Plane& plane, PoolHold control) {
  if (!entry.preparing.take(Nanoseconds{0})) {
    control.give();
    PERDURE_TRY(waited_for, hold_prepared(entry));
    return {};
  }
  const PoolHold preparing(entry.preparing);
  ServedPool& pool = *entry.served;  // stays: whoever takes it away needs `preparing`
  // As long as it is not settled no writer is granted it; one of another plane may be while this
  // only registers, and then it is that one's.
  const bool settles = request.write && !pool.settled();
  control.give();
  if (needs_registration(entry, plane)) register_pool(entry, plane, pool);
  if (!settles) return {};
  const auto settled = pool.settle([this] { return closing_.load(); }, entry.settled_bytes);
  if (settled.ok()) return {};
  PERDURE_TRY(again, hold(entry));
  return note_medium(entry, settled);
}

/// entry.preparing, for a scope. Errors: TimedOut, with how far it is.
Result<PoolHold> PeerService::hold_prepared(PoolEntry& entry, Nanoseconds within) const {
  if (entry.preparing.take(within)) return PoolHold(entry.preparing);
  const MutexLock lock(mutex_);
  return Error{ErrorCode::TimedOut,
               fmt::format("pool '{}': what an earlier writer left is being made durable, {} of {} "
                           "bytes so far: ask again",
                           entry.name, entry.settled_bytes.load(), entry.shown.bytes)};
}

/// Whether sessions of this pool over this plane are to have windows over one registration.
bool PeerService::takes_windows(const Plane& plane, const ServedPool& pool) {
  return plane.given.device->window_kind(pool.exported().length) == fabric::WindowKind::Bound;
}

/// Whether register_pool() has something to do: there is no registration for windows; or it was
/// lost with a reset of the RNIC; or there is one, and the RNIC has refused a window over it since.
bool PeerService::needs_registration(const PoolEntry& entry, const Plane& plane) const {
  const bool takes = takes_windows(plane, *entry.served);
  const MutexLock lock(mutex_);
  const auto found = entry.registered.find(&plane);
  if (!takes) return found != entry.registered.end() && found->second.memory != nullptr;
  if (found == entry.registered.end()) return true;
  if (found->second.refused) return false;
  return found->second.memory == nullptr || found->second.memory->is_lost();
}

/// Requires entry.preparing. The registration opens nothing to anybody. Where it is refused, each
/// session registers the pool, as on an RNIC without windows, and says why if that fails, too. One
/// that no window is taken over any more is given back: the pool would stay pinned once more.
void PeerService::register_pool(PoolEntry& entry, const Plane& plane, ServedPool& pool) {
  Registration made;
  const auto attempt = [&]() -> Result<void> {
    if (plane.given.open_session_device) {
      PERDURE_TRY(device, plane.given.open_session_device());
      made.device = std::move(device);
    }
    fabric::Device& device = made.device ? *made.device : *plane.given.device;
    const pmem::Range exported = pool.exported();
    PERDURE_TRY(memory,
                device.register_memory(pool.region().bytes().subspan(exported.at, exported.length),
                                       fabric::Access::Windows));
    made.memory = std::move(memory);
    return {};
  };
  const auto attempted = takes_windows(plane, pool) ? attempt() : Result<void>{};
  if (!attempted.ok()) {
    made = {};
    made.refused = true;
    log_message(Severity::Warning,
                fmt::format("pool '{}' is not registered with {} once for all sessions: {}; each "
                            "of them registers it",
                            entry.name, plane.given.device->describe(), attempted.error().message));
  }
  const MutexLock lock(mutex_);
  std::swap(entry.registered[&plane], made);
  // What there was before ends with `made`, after the lock.
}

/// Requires entry.control, entry.preparing, and that no session is left.
void PeerService::deregister_pool(PoolEntry& entry) {
  std::map<const Plane*, Registration> ending;
  const MutexLock lock(mutex_);
  ending.swap(entry.registered);
}

/// Requires entry.control, and that the pool is prepared for this plane.
Result<PeerService::Keys> PeerService::make_keys(const PoolEntry& entry,
                                                 const control::SessionRequest& request,
                                                 const Plane& plane) const {
  const auto access = request.write ? fabric::Access::RemoteReadWrite : fabric::Access::RemoteRead;
  Keys keys;
  std::shared_ptr<fabric::Memory> registered;
  if (takes_windows(plane, *entry.served)) {
    const MutexLock lock(mutex_);
    const auto found = entry.registered.find(&plane);
    if (found != entry.registered.end() && !found->second.refused) {
      registered = found->second.memory;
      keys.kept_device = found->second.device;
    }
  }
  if (registered == nullptr && plane.given.open_session_device) {
    PERDURE_TRY(opened, plane.given.open_session_device());
    keys.kept_device = std::move(opened);
  }
  keys.device = keys.kept_device ? keys.kept_device.get() : plane.given.device;
  if (registered != nullptr) {
    PERDURE_TRY(window, keys.device->open_window(std::move(registered), access));
    keys.memory = std::move(window);
    return keys;
  }
  const pmem::Range exported = entry.served->exported();
  PERDURE_TRY(memory,
              keys.device->register_memory(
                  entry.served->region().bytes().subspan(exported.at, exported.length), access));
  keys.memory = std::move(memory);
  return keys;
}

}  // namespace perdure::server
