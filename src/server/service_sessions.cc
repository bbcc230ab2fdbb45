// PeerService: its sessions, from the grant to the revoked key. What happens while they are
// connected is in service_run.cc.
//
// Life of a session: granted (its key is registered, nobody has connected) -> connected (a thread,
// or pump(), handles its messages) -> ended (endpoint down, key revoked, thread to be joined).
// `phase` and `ended` change under the service's mutex; resources belong to whoever runs the
// session: nobody before it connects, then the acceptor, then its thread.
#include <fmt/format.h>

#include <algorithm>

#include "control/host_port.h"
#include "core/counted.h"
#include "core/epoch.h"
#include "core/log_message.h"
#include "core/method.h"
#include "core/try.h"
#include "server/service.h"

namespace perdure::server {
namespace {

constexpr Nanoseconds kEndWithin = std::chrono::seconds{10};
// Each round but the first means that somebody else was granted a session in between.
constexpr int kPrepareRoundsMax = 4;
// Opening, trimming and repairing read a pool by one session each; two writers may be at it.
constexpr std::size_t kForWritersOfOnePool = 4;

std::string writer_words(const SessionTerms& terms) {
  return fmt::format("'{}' of epoch {}", terms.writer_name, terms.epoch.value);
}

Result<void> require_step(const std::string& pool, Epoch now, Epoch wanted) {
  if (wanted <= kEpochMax && wanted.value - now.value <= kEpochStepMax) return {};
  return Error{ErrorCode::InvalidArgument,
               fmt::format("pool '{}' is at epoch {}; the next one is at most {} above that, and "
                           "epochs end at {}",
                           pool, now.value, kEpochStepMax, kEpochMax.value)};
}

std::string owner_words(const WriterRecord& last) {
  if (last.writer == 0) return "fenced for a writer that has not come yet";
  return fmt::format("that of writer '{}' ({:016x})", last.name, last.writer);
}

}  // namespace

Result<control::SessionGrant> PeerService::open_session(const control::SessionRequest& request,
                                                        control::TransportChoice transport,
                                                        const Caller& caller) {
  PERDURE_TRY_VOID(validate(request));
  PERDURE_TRY_VOID(authorize(request.write ? Action::Write : Action::Read, request.pool, caller));
  PERDURE_TRY(plane, choose_plane(transport, caller));
  PERDURE_TRY(entry, find_pool(request.pool));
  expire_grants();
  for (int round = 0; round < kPrepareRoundsMax; ++round) {
    PERDURE_TRY(control, hold(*entry));
    PERDURE_TRY_VOID(require_open(*entry));
    // Each time anew: while the pool was being prepared a newer writer may have come, or a fence.
    if (request.write) PERDURE_TRY_VOID(admit_writer(entry, request));
    if (is_prepared(*entry, request, *plane)) return grant(entry, request, *plane);
    PERDURE_TRY_VOID(prepare(*entry, request, *plane, std::move(control)));
  }
  return Error{ErrorCode::Busy,
               fmt::format("pool '{}': others with this writer's name and epoch come and go; ask "
                           "again",
                           entry->name)};
}

Result<PeerService::Plane*> PeerService::choose_plane(control::TransportChoice choice,
                                                      const Caller& caller) {
  const auto offered = [&](Transport transport) -> Plane* {
    for (Plane& plane : planes_) {
      if (plane.transport() == transport) return &plane;
    }
    return nullptr;
  };
  const bool same_host = caller.origin.empty() || control::is_loopback(caller.origin);
  Plane* plane = nullptr;
  if (choice) plane = offered(*choice);
  if (!choice && same_host) plane = offered(Transport::Shm);
  if (!choice && plane == nullptr && !planes_.empty()) plane = &planes_.front();
  if (plane != nullptr) return plane;
  std::string words;
  for (const Plane& each : planes_) {
    words += fmt::format(" {}", to_string(each.transport()));
  }
  return Error{ErrorCode::Unsupported,
               fmt::format("transport '{}' is not offered by this peer; it offers:{}",
                           control::transport_word(choice), words.empty() ? " none" : words)};
}

/// Requires entry->control and an open pool. On success no writer has a live session, and the pool
/// durably knows the new one.
Result<void> PeerService::admit_writer(const PoolPointer& entry,
                                       const control::SessionRequest& request) {
  const WriterRecord& last = entry->served->writer();
  const bool claimed_by_other =
      request.epoch == last.epoch && last.writer != 0 && last.writer != request.writer;
  if (request.epoch < last.epoch || claimed_by_other) {
    return Error{ErrorCode::Fenced,
                 fmt::format("pool '{}' is at epoch {}, {}; writer '{}' ({:016x}) came with epoch "
                             "{}: stop writing, and open again with a higher epoch",
                             entry->name, last.epoch.value, owner_words(last), request.writer_name,
                             request.writer, request.epoch.value)};
  }
  const auto writers = sessions_of(*entry, true);
  for (const SessionPointer& each : writers) {
    const SessionTerms& terms = each->session.terms();
    if (terms.writer == request.writer || request.take_over) continue;
    return Error{ErrorCode::Busy,
                 fmt::format("pool '{}' is being written by {}; wait for it to end, or ask to take "
                             "over",
                             entry->name, writer_words(terms))};
  }
  if (last.epoch.value != 0) {
    PERDURE_TRY_VOID(require_step(entry->name, last.epoch, request.epoch));
  }
  WriterRecord record;
  record.epoch = request.epoch;
  record.writer = request.writer;
  record.name = request.writer_name;
  const bool is_new = record != last;  // else it takes the place of a session of its own
  PERDURE_TRY_VOID(end_all(writers, is_new));
  PERDURE_TRY_VOID(require_open(*entry));  // ending may have found the medium broken
  if (!is_new) return {};
  return record_writer(*entry, record);
}

/// Requires entry.control and an open pool.
Result<void> PeerService::record_writer(PoolEntry& entry, const WriterRecord& record) {
  PERDURE_TRY_VOID(note_medium(entry, entry.served->record_writer(record)));
  show(entry, std::nullopt);
  return {};
}

/// Passes `outcome` on. A medium that refused is not trusted again. Requires entry.control and an
/// open pool.
Result<void> PeerService::note_medium(PoolEntry& entry, Result<void> outcome) {
  if (outcome.ok()) return outcome;
  const auto medium = entry.served->region().check();
  if (!medium.ok()) medium_failed(entry, medium.error());
  return outcome;
}

std::size_t PeerService::reserved_for_writers() const {
  const std::size_t some = options_.sessions_for_writers;
  return std::min(some != 0 ? some : options_.sessions_max / 4, options_.sessions_max - 1);
}

/// Whether one more session may be granted. Readers leave room for writers, and half of their own
/// room to those readers that connect. Who reads for a writer has more room, but leaves half of the
/// writers' own, and a pool has few such sessions at a time: anybody may call himself that. Where
/// there is no room the oldest grant to read that nobody has used has to go, a reader's first: so a
/// writer, of whom a pool has one, finds room as long as there is such a grant.
Result<void> PeerService::make_room(const PoolEntry& pool, const control::SessionRequest& request) {
  const std::size_t reserved = reserved_for_writers();
  const std::size_t for_readers = options_.sessions_max - reserved;
  const std::size_t for_reading = options_.sessions_max - (reserved + 1) / 2;
  SessionPointer going;
  {
    const MutexLock lock(mutex_);
    std::size_t readers = 0;
    std::size_t unused = 0;  // of them
    std::size_t for_writers = 0;
    std::size_t for_writers_here = 0;
    for (const auto& [id, entry] : sessions_) {
      const SessionTerms& terms = entry->session.terms();
      if (terms.write) continue;
      ++(terms.for_writer ? for_writers : readers);
      if (terms.for_writer && entry->pool.get() == &pool) ++for_writers_here;
      if (!terms.for_writer && entry->phase == control::SessionPhase::Granted) ++unused;
    }
    const bool many_here = request.for_writer && for_writers_here >= kForWritersOfOnePool;
    bool room = sessions_.size() < options_.sessions_max && !many_here;
    if (request.for_writer) {
      room = room && readers + for_writers < for_reading;
    } else if (!request.write) {
      room = room && readers < for_readers && (unused == 0 || unused < (for_readers + 1) / 2);
    }
    if (room) return {};
    for (const auto& [id, entry] : sessions_) {
      const SessionTerms& terms = entry->session.terms();
      if (terms.write || entry->phase != control::SessionPhase::Granted) continue;
      const bool here = entry->pool.get() == &pool;
      // Other pools' openings are not cut short for this one's.
      if (terms.for_writer && !request.write && !(request.for_writer && here)) continue;
      if (many_here && !(terms.for_writer && here)) continue;
      const auto rank = [](const SessionEntry& of) {
        return std::pair(of.session.terms().for_writer, of.order);
      };
      if (going == nullptr || rank(*entry) < rank(*going)) going = entry;
    }
    if (going == nullptr) {
      return Error{
          ErrorCode::QueueFull,
          fmt::format("this peer has {} sessions, of its limit of {}, and keeps {} for "
                      "writers{}; close one, or raise the limit",
                      sessions_.size(), options_.sessions_max, reserved,
                      many_here ? fmt::format(", of which this pool has {} that read for one",
                                              for_writers_here)
                                : "")};
    }
    going->phase = control::SessionPhase::Ending;
    ++refused_.displaced;
  }
  finish(going);
  return {};
}

/// Requires entry->control, an open pool that is prepared, and for a writer that it was admitted.
Result<control::SessionGrant> PeerService::grant(const PoolPointer& entry,
                                                 const control::SessionRequest& request,
                                                 Plane& plane) {
  ServedPool& pool = *entry->served;
  PERDURE_TRY_VOID(note_medium(*entry, pool.region().check()));
  const auto medium = pool.medium_costs(*options_.clock);
  if (!medium) PERDURE_TRY_VOID(note_medium(*entry, medium.error()));
  SessionTerms terms;
  terms.token = options_.secrets();
  terms.pool = request.pool;
  terms.write = request.write;
  terms.for_writer = request.for_writer;
  terms.epoch = request.epoch;
  terms.writer = request.writer;
  terms.writer_name = request.writer_name;
  terms.transport = plane.transport();
  terms.exported = pool.exported();
  terms.queue = request.write ? pool.queue(options_.queue) : options_.queue;
  if (request.write) terms.persistent_buffers = pool.persistent_buffers();
  PERDURE_TRY(keys, make_keys(*entry, request, plane));
  control::SessionGrant grant;
  grant.token = terms.token;
  grant.transport = terms.transport;
  grant.address = plane.listener->address();
  grant.remote = {keys.memory->key(), keys.memory->base(), terms.exported.length};
  grant.receive_depth = terms.queue.depth;
  grant.message_bytes_max = terms.queue.message_bytes_max;
  grant.pool = shown(*entry);
  grant.pool.profile = pool.session_profile(request.write, *keys.device, *keys.memory);
  grant.medium = *medium;
  terms.flushes_writes = flushes_writes(grant.pool.profile);
  PERDURE_TRY_VOID(make_room(*entry, request));
  terms.id = options_.secrets();
  if (options_.handlers) terms.handlers = options_.handlers(terms);
  terms.reply_bytes_max = options_.reply_bytes_max;
  const MutexLock lock(mutex_);
  if (sessions_.count(terms.id) != 0) {  // of 64 random bits
    return Error{ErrorCode::Busy, "another session has drawn the same number: ask again"};
  }
  if (sessions_.size() >= options_.sessions_max) {  // others came in between
    return Error{ErrorCode::QueueFull,
                 fmt::format("this peer has {}, its limit", counted(sessions_.size(), "session"))};
  }
  grant.session = terms.id;
  if (request.write) grant.pool.writer_present = true;
  auto session = std::make_shared<SessionEntry>(
      entry, Deadline(*options_.clock, options_.connect_within), terms, *keys.device,
      std::move(keys.kept_device), pool.region(), std::move(keys.memory), *options_.clock);
  session->order = ++granted_;
  sessions_.emplace(terms.id, session);
  ++entry->ended.sessions;
  return grant;
}

std::vector<PeerService::SessionPointer> PeerService::sessions_of(const PoolEntry& entry,
                                                                  bool writers_only) const {
  std::vector<SessionPointer> found;
  const MutexLock lock(mutex_);
  for (const auto& [id, session] : sessions_) {
    if (session->pool.get() != &entry) continue;
    if (!writers_only || session->session.terms().write) found.push_back(session);
  }
  return found;
}

Result<void> PeerService::end_all(const std::vector<SessionPointer>& sessions, bool fenced) {
  // All of them first: one that is stuck must not keep another one going.
  for (const SessionPointer& each : sessions) each->session.request_stop();
  Result<void> outcome;
  for (const SessionPointer& each : sessions) {
    const SessionTerms& terms = each->session.terms();
    auto ended = end(each);
    if (!ended.ok()) {
      if (outcome.ok()) outcome = std::move(ended);
      continue;
    }
    if (!fenced) continue;
    log_message(Severity::Info, fmt::format("pool '{}': writer {} is cut off for a newer one",
                                            terms.pool, writer_words(terms)));
    const MutexLock lock(mutex_);
    ++each->pool->ended.writers_fenced;
  }
  return outcome;
}

/// Requires the control of the session's pool. When this succeeds the session's keys are dead.
Result<void> PeerService::end(const SessionPointer& entry) {
  bool unattended = false;
  {
    const MutexLock lock(mutex_);
    if (entry->ended) return {};
    // One whose keys could not be taken away is asked for them again.
    unattended = entry->phase == control::SessionPhase::Granted || !options_.threads ||
                 entry->unrevoked.has_value();
    entry->phase = control::SessionPhase::Ending;
    entry->unrevoked.reset();
  }
  if (unattended) {
    finish(entry);
  } else {
    entry->session.request_stop();
  }
  // The machine's clock: this waits for a thread, not for anything that a test could simulate.
  const Deadline deadline = Deadline::after(kEndWithin);
  MutexLock lock(mutex_);
  while (!entry->ended && !entry->unrevoked && !deadline.passed()) {
    lock.wait_for(session_ended_, deadline.left());
  }
  if (entry->ended) return {};
  if (entry->unrevoked) return not_revoked(*entry);
  return Error{ErrorCode::TimedOut,
               fmt::format("session {:016x} of pool '{}' is stuck in its medium; its keys are not "
                           "revoked yet: ask again",
                           entry->session.terms().id, entry->pool->name)};
}

Error PeerService::not_revoked(const SessionEntry& entry) const {
  const SessionTerms& terms = entry.session.terms();
  return Error{
      ErrorCode::SystemError,
      fmt::format("pool '{}': the keys of session {:016x} ({}) can not be taken away: {}; whoever "
                  "has them may still reach the pool, so nobody else is granted it: ask again, or "
                  "end this daemon, and its keys with it",
                  terms.pool, terms.id, terms.write ? writer_words(terms) : "a reader",
                  entry.unrevoked->message)};
}

/// Called by whoever runs the session: gives up its resources and its place. Where the device does
/// not take the keys away the session keeps both, and end() may ask again.
void PeerService::finish(const SessionPointer& entry) {
  const auto revoked = entry->session.revoke();
  if (!revoked.ok() && !abandoned_.load()) {
    const MutexLock lock(mutex_);
    entry->phase = control::SessionPhase::Ending;
    entry->unrevoked = revoked.error();
    ++entry->pool->ended.revocation_failures;
    log_message(Severity::Error, not_revoked(*entry).message);
    if (entry->thread.joinable()) finished_.push_back(std::move(entry->thread));
    session_ended_.notify_all();
    return;
  }
  Result<std::uint64_t> replayed = std::uint64_t{0};
  // After a power failure nothing is applied: the region belongs to recovery.
  if (!abandoned_.load()) replayed = entry->session.replay();
  if (!replayed) session_failed(entry, replayed.error());
  const SessionTerms& terms = entry->session.terms();
  if (options_.ended) options_.ended(terms);
  const MutexLock lock(mutex_);
  entry->pool->ended += entry->session.counters();
  entry->pool->ended_times += entry->session.times();
  if (const auto contents = entry->session.contents()) entry->pool->log = contents;
  if (replayed.ok()) entry->pool->ended.replayed_messages += *replayed;
  entry->applied = replayed.ok() && !abandoned_.load();
  sessions_.erase(terms.id);
  entry->ended = true;
  if (entry->thread.joinable()) finished_.push_back(std::move(entry->thread));
  session_ended_.notify_all();
}

/// A session ended by an error. Whether that concerns the pool only its region knows: a medium that
/// refused a flush is not trusted again; an RNIC that was reset or may lock no more memory, and a
/// peer that sends nonsense, end their sessions and nothing else.
void PeerService::session_failed(const SessionPointer& entry, const Error& why) {
  const SessionTerms& terms = entry->session.terms();
  // Who is gone may have wanted to.
  const bool gone = why.code == ErrorCode::Disconnected;
  log_message(gone ? Severity::Info : Severity::Warning,
              fmt::format("{} ended: {}", session_words(terms), why.message));
  const auto medium = entry->session.check_medium();
  if (!medium.ok()) medium_failed(*entry->pool, medium.error());
}

/// The first who notices says so. The pool's sessions are ended by look_at_medium.
void PeerService::medium_failed(PoolEntry& entry, const Error& why) {
  const MutexLock lock(mutex_);
  if (entry.failure) return;
  log_message(Severity::Error,
              fmt::format("pool '{}': {}; its sessions are ended and none is granted until it is "
                          "opened again; the other pools are served",
                          entry.name, why.message));
  ++entry.ended.medium_failures;
  entry.failure = why;
  entry.shown.state = control::PoolStatus::Unavailable;
  entry.shown.reason = why.message;
}

void PeerService::expire_grants() {
  std::vector<SessionPointer> expired;
  {
    const MutexLock lock(mutex_);
    for (const auto& [id, entry] : sessions_) {
      if (entry->phase != control::SessionPhase::Granted || !entry->connect_by.passed()) continue;
      entry->phase = control::SessionPhase::Ending;
      expired.push_back(entry);
    }
    refused_.expired += expired.size();
  }
  for (const SessionPointer& entry : expired) finish(entry);
}

Result<void> PeerService::fence(const std::string& pool, Epoch epoch, const Caller& caller) {
  PERDURE_TRY_VOID(authorize(Action::Fence, pool, caller));
  PERDURE_TRY(entry, find_pool(pool));
  PERDURE_TRY(control, hold(*entry));
  PERDURE_TRY_VOID(require_open(*entry));
  const WriterRecord& last = entry->served->writer();
  if (epoch < last.epoch) {
    return Error{ErrorCode::Fenced,
                 fmt::format("pool '{}' is at epoch {}, {}; it can not be fenced at epoch {}", pool,
                             last.epoch.value, owner_words(last), epoch.value)};
  }
  if (epoch == last.epoch) return {};
  PERDURE_TRY_VOID(require_step(pool, last.epoch, epoch));
  PERDURE_TRY_VOID(end_all(sessions_of(*entry, true), true));
  PERDURE_TRY_VOID(require_open(*entry));
  WriterRecord record;
  record.epoch = epoch;
  return record_writer(*entry, record);
}

Result<control::SessionDescription> PeerService::describe_session(std::uint64_t id,
                                                                  const Caller& caller) {
  control::SessionDescription description;
  {
    const MutexLock lock(mutex_);
    const auto found = sessions_.find(id);
    if (found == sessions_.end()) {
      return Error{ErrorCode::NotFound, fmt::format("there is no session {:016x} here", id)};
    }
    description = describe_entry(*found->second);
  }
  PERDURE_TRY_VOID(authorize(Action::Describe, description.pool, caller));
  return description;
}

control::SessionDescription PeerService::describe_entry(const SessionEntry& entry) const {
  const SessionTerms& terms = entry.session.terms();
  control::SessionDescription description;
  description.id = terms.id;
  description.pool = terms.pool;
  description.phase = entry.phase;
  description.write = terms.write;
  description.epoch = terms.epoch;
  description.writer = terms.writer;
  description.writer_name = terms.writer_name;
  description.transport = terms.transport;
  if (entry.unrevoked) description.unrevoked = entry.unrevoked->message;
  description.counters = entry.session.counters();
  return description;
}

bool PeerService::has(const SessionEntry& entry, bool SessionEntry::*what) const {
  const MutexLock lock(mutex_);
  return entry.*what;
}

Result<void> PeerService::close_session(std::uint64_t id, control::Left left,
                                        const Caller& caller) {
  SessionPointer entry;
  {
    const MutexLock lock(mutex_);
    const auto found = sessions_.find(id);
    if (found != sessions_.end()) entry = found->second;
  }
  if (entry == nullptr) {
    return Error{ErrorCode::NotFound, fmt::format("there is no session {:016x} here", id)};
  }
  PERDURE_TRY_VOID(authorize(Action::CloseSession, entry->pool->name, caller));
  // Whose word is taken for what the pool has could have written it.
  if (left == control::Left::AllDurable) {
    PERDURE_TRY_VOID(authorize(Action::Write, entry->pool->name, caller));
  }
  PERDURE_TRY(control, hold(*entry->pool));
  // Until a writer's session has ended nobody else is granted the pool to write.
  const bool is_writer = entry->session.terms().write && !has(*entry, &SessionEntry::ended);
  PERDURE_TRY_VOID(end(entry));
  if (is_writer && left == control::Left::AllDurable && has(*entry, &SessionEntry::applied)) {
    entry->pool->served->note_settled();
  }
  log_message(Severity::Info,
              fmt::format("{} ended: by request", session_words(entry->session.terms())));
  return {};
}

}  // namespace perdure::server
