// PeerService: what its threads do, or pump() in their place: accept connections, run sessions.
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <system_error>

#include "control/token.h"
#include "core/assert.h"
#include "core/log_message.h"
#include "pmem/mapping_guard.h"
#include "server/service.h"

namespace perdure::server {
namespace {

constexpr Nanoseconds kSleepSlice = std::chrono::milliseconds{500};
// A writer's pool is looked at so often; between two looks at the clock for that lie some polls.
constexpr Nanoseconds kExamineEvery = std::chrono::milliseconds{500};
constexpr std::uint32_t kTurnsPerLook = 1024;
constexpr Nanoseconds kAcceptSlice = std::chrono::milliseconds{200};
constexpr int kWatchSliceMs = 200;
constexpr Nanoseconds kLookSlice = std::chrono::milliseconds{200};
constexpr Nanoseconds kUnlockedEvery = std::chrono::minutes{1};  // see open_busy
constexpr Nanoseconds kAcceptWithin = std::chrono::seconds{2};

}  // namespace

void PeerService::run_acceptor(Plane& plane) {
  while (!closing_.load()) {
    const Deadline slice = Deadline::after(kAcceptSlice);
    if (!accept_next(plane, slice) && !slice.passed()) {
      // The listener failed, for example for want of descriptors: it gets a pause, not a core.
      MutexLock lock(mutex_);
      lock.wait_for(session_ended_, slice.left());
    }
    expire_grants();
    join_finished();
  }
}

/// Takes one connection if there is one until the deadline; returns whether there was.
bool PeerService::accept_next(Plane& plane, Deadline deadline) {
  auto incoming = plane.listener->next(deadline);
  if (!incoming) return false;
  const SessionPointer entry = claim((*incoming)->private_data());
  if (entry == nullptr) return true;  // rejected by the destruction of `incoming`
  auto endpoint = entry->session.accept(**incoming, Deadline(*options_.clock, kAcceptWithin));
  if (!endpoint) {
    log_message(Severity::Warning,
                fmt::format("{} was granted and could not be connected: {}",
                            session_words(entry->session.terms()), endpoint.error().message));
    finish(entry);
    return true;
  }
  start(entry, std::move(endpoint).value());
  return true;
}

/// The granted session that the token opens; from now on the caller runs it.
PeerService::SessionPointer PeerService::claim(std::span<const std::byte> private_data) {
  const auto token = control::decode_token(private_data);
  const MutexLock lock(mutex_);
  if (token) {
    const auto found = sessions_.find(token->session);
    if (found != sessions_.end() && found->second->phase == control::SessionPhase::Granted &&
        found->second->session.terms().token == token->secret) {
      SessionEntry& entry = *found->second;
      entry.phase = control::SessionPhase::Connected;
      // Its keys are of no use to it before; and one that never comes leaves the pool settled.
      const SessionTerms& terms = entry.session.terms();
      if (terms.write) entry.pool->served->unsettle(!terms.flushes_writes);
      return found->second;
    }
  }
  ++refused_.tokens;
  return nullptr;
}

void PeerService::start(const SessionPointer& entry, std::unique_ptr<fabric::Endpoint> endpoint) {
  if (!options_.threads) {
    if (!attach(entry, std::move(endpoint))) finish(entry);
    return;
  }
  bool started = false;
  {
    const MutexLock lock(mutex_);
    try {
      entry->thread = std::thread([this, entry, own = std::move(endpoint)]() mutable {
        run_session(entry, std::move(own));
      });
      started = true;
    } catch (const std::system_error& error) {
      log_message(
          Severity::Error,
          fmt::format("{} has no thread: {}", session_words(entry->session.terms()), error.what()));
    }
  }
  if (!started) finish(entry);
}

/// May wait for the medium (persistent receive buffers), so never the acceptor's work.
bool PeerService::attach(const SessionPointer& entry, std::unique_ptr<fabric::Endpoint> endpoint) {
  auto attached = entry->session.attach(std::move(endpoint));
  if (attached.ok()) return true;
  session_failed(entry, attached.error());
  return false;
}

void PeerService::run_session(const SessionPointer& entry,
                              std::unique_ptr<fabric::Endpoint> endpoint) {
  entry->count_steps(1);
  if (attach(entry, std::move(endpoint))) run_attached(entry);
  finish(entry);
  entry->count_steps(1);  // it stays where its keys can not be taken away
}

void PeerService::run_attached(const SessionPointer& entry) {
  // Asking whether to go on polling reads the clock, which takes as long as a poll.
  constexpr std::uint32_t kPollsPerQuestion = 8;
  AdaptiveSpin spin(*options_.clock, spin_slots_, options_.spin_budget);
  std::uint32_t empty_polls = 0;
  std::uint32_t turns = 0;
  Nanoseconds examined = options_.clock->now() - kExamineEvery;
  while (!entry->session.stopping()) {
    entry->count_steps(2);
    if (turns++ % kTurnsPerLook == 0 && options_.clock->now() - examined >= kExamineEvery) {
      examined = options_.clock->now();
      examine(entry->session);
    }
    const auto handled = entry->session.pump();
    if (!handled) {
      session_failed(entry, handled.error());
      break;
    }
    if (*handled != 0) {
      if (options_.handled) options_.handled(entry->session.terms());
      spin.found_work();
      empty_polls = 0;
    } else if (++empty_polls % kPollsPerQuestion == 0 && !spin.keep_polling()) {
      turns = 0;  // after a sleep, time has passed
      entry->count_steps(1);
      if (entry->session.sleep(kSleepSlice)) spin.woken();
      entry->count_steps(1);
    }
  }
  examine(entry->session);
}

/// What the pool of a writer's session holds by now: asked by the session's own thread, which has
/// to do with these bytes anyway, so that nobody else waits for their medium.
void PeerService::examine(ServedSession& session) const {
  if (!options_.examine || !session.terms().write || abandoned_.load()) return;
  LocalBytes bytes(session.exported_bytes());
  const auto found = options_.examine(bytes);
  if (found.ok() && *found) session.tell_contents(**found);
}

/// A pool's medium can fail while nobody flushes it: a file is cut short, a page can not be read,
/// memory is lost.
void PeerService::run_watch() {
  pmem::ask_for_lost_pages();
  while (!closing_.load()) {
    pmem::guard_faults();  // whatever has been loaded since does not stand before us
    pollfd notice{pmem::fault_notice(), POLLIN, 0};
    if (::poll(&notice, 1, kWatchSliceMs) > 0) {
      std::uint64_t count = 0;
      [[maybe_unused]] const auto got = ::read(notice.fd, &count, sizeof count);
    }
    look_at_work();
    look_at_media();
  }
}

/// What does not get on from one look to the next is told by oldest_work(): nobody who works reads
/// a clock for it.
void PeerService::look_at_work() {
  const Nanoseconds now = Clock::monotonic().now();
  const MutexLock lock(mutex_);
  for (const auto& [name, entry] : pools_) entry->settling.look(entry->settled_bytes.load(), now);
  for (const auto& [id, entry] : sessions_) {
    entry->working.look(entry->steps.load(std::memory_order_relaxed), now);
  }
}

Nanoseconds PeerService::oldest_work(const PoolEntry& entry, Nanoseconds now) const {
  Nanoseconds oldest = entry.control.held();
  oldest = std::max(
      oldest, std::min(entry.preparing.held(), entry.settling.at(entry.settled_bytes.load(), now)));
  for (const auto& [id, session] : sessions_) {
    if (session->pool.get() != &entry) continue;
    const std::uint64_t steps = session->steps.load(std::memory_order_relaxed);
    if (steps % 2 == 1) oldest = std::max(oldest, session->working.at(steps, now));
  }
  return oldest;
}

/// One look at every pool that may have something to tell. One that does not answer is at its look
/// until it does, and has been left out of later ones: it keeps its pool's control.
void PeerService::look_at_media() {
  const bool may_open = busy_until_ && !busy_until_->passed();
  std::vector<PoolPointer> entries;
  {
    const MutexLock lock(mutex_);
    std::set<const PoolEntry*> served;  // those with a session that nobody is ending
    for (const auto& [id, session] : sessions_) {
      if (session->phase != control::SessionPhase::Ending) served.insert(session->pool.get());
    }
    for (const auto& [name, entry] : pools_) {
      const bool busy = entry->failure && entry->failure->code == ErrorCode::Busy;
      const bool worth = !entry->failure || served.count(entry.get()) != 0 || (busy && may_open);
      if (worth && entry->control.held() == Nanoseconds{0}) entries.push_back(entry);
    }
  }
  for_each_side_by_side(
      entries, [this](PoolEntry& entry) { look_at_medium(entry); }, Deadline::after(kLookSlice));
}

/// Also ends every session of a pool whose medium failed, whoever noticed: one of its own sessions,
/// a grant, or this look. (Only some failures cut connections by themselves:
/// Region::cut_on_failure.)
void PeerService::look_at_medium(PoolEntry& entry) {
  // Whoever has the pool now looks at its medium itself, or will have gone at the next look.
  if (closing_.load() || !entry.control.take(Nanoseconds{0})) return;
  const PoolHold control(entry.control);
  if (entry.served == nullptr) return open_busy(entry);
  if (const auto checked = entry.served->region().check(); !checked.ok()) {
    medium_failed(entry, checked.error());
    const auto sessions = sessions_of(entry, false);
    // Their threads end them. One that is stuck in the medium holds up no look at another one.
    for (const SessionPointer& each : sessions) each->session.request_stop();
    if (!options_.threads) (void)end_all(sessions, false);
  }
}

/// Requires entry.control. Whoever had the pool when the daemon started may have ended by now.
void PeerService::open_busy(PoolEntry& entry) {
  {
    const MutexLock lock(mutex_);
    if (!entry.failure || entry.failure->code != ErrorCode::Busy) return;
  }
  if (store_->is_locked(entry.name)) return;
  if (entry.ask_again && !entry.ask_again->passed()) return;
  auto opened = open_stored(entry);
  if (!opened.ok() && opened.code() == ErrorCode::Busy) {
    // Without a lock: another machine or container may have the device. It was watched for
    // seconds, and nobody gets at the pool meanwhile.
    entry.ask_again = Deadline::after(kUnlockedEvery);
    return;
  }
  (void)open_as(entry, std::move(opened));
}

void PeerService::join_finished() {
  std::vector<std::thread> finished;
  {
    const MutexLock lock(mutex_);
    finished.swap(finished_);
  }
  for (std::thread& thread : finished) thread.join();
}

bool PeerService::pump() {
  PERDURE_ASSERT(!options_.threads);
  bool something = false;
  for (Plane& plane : planes_) {
    if (accept_next(plane, Deadline(*options_.clock, Nanoseconds{0}))) something = true;
  }
  expire_grants();
  std::vector<SessionPointer> connected;
  bool failed = false;
  {
    const MutexLock lock(mutex_);
    for (const auto& [id, entry] : sessions_) {
      if (entry->phase != control::SessionPhase::Connected) continue;
      connected.push_back(entry);
      failed = failed || entry->pool->failure;
    }
  }
  for (const SessionPointer& entry : connected) {
    const auto handled = entry->session.pump();
    if (handled.ok() && *handled == 0) continue;
    something = true;
    if (handled.ok() && options_.handled) options_.handled(entry->session.terms());
    if (handled.ok()) continue;
    session_failed(entry, handled.error());
    finish(entry);
    failed = true;
  }
  if (failed) look_at_media();
  return something;
}

}  // namespace perdure::server
