// The loop that moves time, remote channels, caches and memory: see server_machine.h.
#include "memsys/server/server_run.h"

#include "core/assert.h"
#include "core/counted.h"
#include "memsys/server/server_machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace perdure::memsys {
namespace {

constexpr std::size_t kVictimsMax = 1024;
/// An epoch that is replayed takes so many transactions at most; if none persists anything, the
/// channel has ended.
constexpr std::uint32_t kEpochTransactionsMax = 10'000;

/// What a thread of the processor can have in front of it: full queues of the controller, full
/// persist buffers of everybody else, and what the ordering controller does in its own time.
Time longest_wait(const Device& device, const Processor& processor, const MemorySide& memory) {
  const ControllerOptions& c = device.controller;
  const std::uint64_t places = c.one_queue ? c.window : c.read_queue + c.write_queue;
  const std::uint64_t entries =
      processor.cores * processor.buffer_entries + processor.remote_entries;
  return memory.time_at(device.timing.longest_wait(places + entries)) + processor.crossbar_ps +
         processor.schedule_ps + processor.remote_wait_ps + kHopsPollNs * 1000;
}

}  // namespace

ServerRun::ServerRun(const Device& device, const Processor& processor, workload::Program& program,
                     const ServerOptions& options)
    : processor_(processor),
      options_(options),
      program_(program),
      caches_(processor),
      buffers_(processor, options.remote.channels, options.buffer_mutant,
               rules_of(options.ordering)),
      ordering_(processor, options.ordering, options.controller_mutant),
      memory_(device, options.persist_point, ordering_, buffers_),
      law_(processor.threads() + options.remote.channels,
           {.strands = options.ordering == Ordering::Strand}),
      threads_(processor.threads() + options.remote.channels),
      longest_wait_(longest_wait(device, processor, memory_)) {
  PERDURE_ASSERT(device.geometry.line_bytes == kCacheLineBytes);
  buffers_.set_log(options.log);
  ordering_.set_log(options.broi_log);
  for (std::uint32_t i = 0; i < options.remote.channels; ++i) {
    channels_.push_back({Random(options.remote.seed + i), {}, 0, false, 0, {}, 0});
  }
}

Result<ServerResult> ServerRun::run() {
  warm_up();
  for (std::uint32_t i = 0; i < threads_.size(); ++i) {
    schedule(0, i, buffers_.is_remote(i) ? Part::Remote : Part::Front);
  }
  Time now = 0;
  for (;;) {
    const Time memory = memory_.next();
    const Time event = events_.empty() ? kTimeNever : events_.top().at;
    if (std::min(memory, event) == kTimeNever) break;
    if (ended() && buffers_.empty() && events_.empty()) break;
    if (stuck(std::min(memory, event))) return deadlock(now);
    now = std::min(memory, event);
    if (memory < event) {
      memory_step(now);
      continue;
    }
    const Event next = events_.top();
    events_.pop();
    if (next.part != Part::Remote) --own_events_, progress_ = now;
    if (next.part == Part::Front) front(next.thread, now);
    if (next.part == Part::Loads) end_load(next.thread, next.load, now);
    if (next.part == Part::Back) back(next.thread, now);
    if (next.part == Part::Remote) remote(next.thread, now);
  }
  if (!ended() || !buffers_.empty()) return deadlock(now);
  return result(now);
}

/// Remote channels and refreshes could go on for ever: they are no progress.
bool ServerRun::stuck(Time next) const {
  return own_events_ == 0 && next > progress_ && next - progress_ > longest_wait_;
}

bool ServerRun::ended() const {
  return std::all_of(threads_.begin(), threads_.begin() + processor_.threads(),
                     [](const HardwareThread& t) {
                       return t.stage == Stage::Ended && t.stores.empty() && t.loads.empty();
                     });
}

// --- the network -------------------------------------------------------------------------------

void ServerRun::remote(std::uint32_t number, Time now) {
  RemoteChannel& channel = channels_[number - processor_.threads()];
  const RemoteOptions& options = options_.remote;
  threads_[number].wants_room = false;
  if (!channel.open) {
    if (stopping_ || ended()) return;
    if (!next_epoch(channel, number - processor_.threads())) return;
    channel.open = true;
    channel.began = now;
  }
  for (; channel.sent < channel.lines.size(); ++channel.sent) {
    if (wants_room(number)) return;
    const std::uint64_t line = channel.lines[channel.sent];
    buffers_.reserve(number);
    law_.on_access(number, line, true);
    const Time ready = now + processor_.crossbar_ps + processor_.schedule_ps;
    const auto added = buffers_.add_write(number, {line, memory_.bank_of(line), ready, now});
    memory_.look(ready);
    auto& law_index = threads_[number].law_index;
    if (added.coalesced) {
      law_.on_coalesced(number, line, law_index.at(added.id.number));
      continue;
    }
    law_index[added.id.number] = law_.on_write(number, line);
    ++result_.remote_lines;
  }
  if (wants_room_for_fence(number)) return;
  buffers_.add_fence(number, now);
  law_.on_barrier(number);
  channel.open = false;
  schedule(std::max(now + 1, channel.began + options.interval_ps), number, Part::Remote);
}

/// False: there are no more.
bool ServerRun::next_epoch(RemoteChannel& channel, std::uint32_t which) {
  const RemoteOptions& options = options_.remote;
  channel.lines.clear();
  channel.sent = 0;
  if (options.trace != nullptr) return replayed_epoch(channel, which);
  const std::uint64_t lines = options.epoch_bytes / kCacheLineBytes;
  const std::uint64_t first =
      options.first_line + channel.random.below(options.lines / lines) * lines;
  for (std::uint64_t i = 0; i < lines; ++i) channel.lines.push_back(first + i);
  return true;
}

/// The lines up to the next barrier that has some before it.
bool ServerRun::replayed_epoch(RemoteChannel& channel, std::uint32_t which) {
  for (std::uint32_t i = 0; i < kEpochTransactionsMax; ++i) {
    for (; channel.next < channel.operations.size(); ++channel.next) {
      const Operation& each = channel.operations[channel.next];
      const bool orders = each.kind == OperationKind::Barrier || each.kind == OperationKind::Fence;
      if (orders && !channel.lines.empty()) return true;
      if (each.kind != OperationKind::Persist) continue;
      const std::uint64_t line = options_.remote.first_line + line_of(each.value);
      const auto found = std::find(channel.lines.begin(), channel.lines.end(), line);
      if (found == channel.lines.end()) channel.lines.push_back(line);
    }
    if (!options_.remote.trace->start(which)) break;
    channel.operations.clear();
    channel.next = 0;
    options_.remote.trace->run(which, channel.operations);
  }
  return !channel.lines.empty();
}

// --- caches and memory -------------------------------------------------------------------------

/// Whether memory has delivered what the waiter waits for.
bool& ServerRun::filled(const Waiter& waiter) {
  HardwareThread& thread = threads_[waiter.thread];
  switch (waiter.part) {
    case Part::Loads: return thread.loads[waiter.load - thread.loads_before].filled;
    case Part::Back: return thread.back_filled;
    default: return thread.front_filled;
  }
}

/// When the line is there; nothing: it comes from memory, and the waiter is called.
std::optional<Time> ServerRun::perform(Waiter waiter, std::uint64_t line, CacheAccess access,
                                       Time now) {
  const auto coming = fetches_.find(line);
  if (coming != fetches_.end()) {
    coming->second.push_back(waiter);
    return std::nullopt;
  }
  const Reply reply = caches_.access(waiter.thread, line, access);
  if (reply.source == Source::Memory) {
    ++result_.from_memory;
    fetches_[line].push_back(waiter);
    memory_.fetch(line, now + reply.latency);
    return std::nullopt;
  }
  law_.on_access(waiter.thread, line, access != CacheAccess::Load);
  if (reply.writer) buffers_.note_writer(waiter.thread, *reply.writer, line, now);
  note_own_strand(waiter.thread, line, access != CacheAccess::Load);
  // It was brought for this waiter: only the way from the L2 is left.
  const bool brought = std::exchange(filled(waiter), false) && reply.source == Source::L2;
  if (brought) return now + processor_.crossbar_ps;
  if (reply.source == Source::L1) ++result_.from_l1;
  if (reply.source == Source::L2) ++result_.from_l2;
  if (reply.source == Source::Peer) ++result_.from_peer;
  return now + reply.latency;
}

void ServerRun::memory_step(Time now) {
  outcome_.clear();
  memory_.step(now, outcome_);
  for (const std::uint64_t line : outcome_.fetched) on_fetched(line, now);
  for (const PersistId id : outcome_.persisted) buffers_.arrived(id);
  while (const auto id = buffers_.next_counted(now)) on_persisted(*id, now);
  if (options_.ordering == Ordering::Asap) check_recovery(now);
  // Fences may have gone too, which nobody tells.
  for (std::uint32_t i = 0; i < threads_.size(); ++i) {
    if (threads_[i].wait == Wait::Persist) wake(i, now);
    const bool room = buffers_.has_room(i) || buffers_.has_room_for_fence(i);
    if (!threads_[i].wants_room || !room) continue;
    if (buffers_.is_remote(i)) {
      remote(i, now);
    } else {
      back(i, now);
    }
  }
}

void ServerRun::on_fetched(std::uint64_t line, Time now) {
  progress_ = now;
  std::optional<std::uint32_t> writer;
  if (const auto victim = victims_.find(line); victim != victims_.end()) {
    writer = victim->second;
    victims_.erase(victim);
  }
  const Caches::Evicted evicted = caches_.fill(line, writer);
  if (evicted.dirty) memory_.write_back(evicted.line, now);
  const auto has_persists = [&](std::uint32_t thread) { return !buffers_.of(thread).empty(); };
  if (evicted.writer && has_persists(*evicted.writer)) victims_[evicted.line] = *evicted.writer;
  if (victims_.size() > kVictimsMax) {
    std::erase_if(victims_, [&](const auto& each) { return !has_persists(each.second); });
  }
  const std::vector<Waiter> waiters = std::move(fetches_[line]);
  fetches_.erase(line);
  for (const Waiter& waiter : waiters) {
    filled(waiter) = true;
    switch (waiter.part) {
      case Part::Loads: load(waiter.thread, waiter.load, now); break;
      case Part::Back: back(waiter.thread, now); break;
      default: front(waiter.thread, now);
    }
  }
}

void ServerRun::on_persisted(PersistId id, Time now) {
  HardwareThread& thread = threads_[id.thread];
  const auto& entries = buffers_.of(id.thread);
  const auto entry = std::find_if(entries.begin(), entries.end(),
                                  [&](const PersistEntry& e) { return e.id == id; });
  const auto index = thread.law_index.find(id.number);
  PERDURE_ASSERT(entry != entries.end() && index != thread.law_index.end());
  law_.on_persist(id.thread, entry->line, index->second, now);
  if (options_.ordering == Ordering::Asap) {
    recovery_law_.on_counted(entry->line, entry->order);
    outcome_.changed.push_back(entry->line);
  }
  thread.law_index.erase(index);
  buffers_.persisted(id, now);
  result_.persisted_ps = std::max(result_.persisted_ps, now);
  // Channels begin nothing more when the threads have ended, and so can not go on for ever.
  if (!buffers_.is_remote(id.thread) || ended()) progress_ = now;
  memory_.look(now);
}

/// What a power failure now and recovery would leave of the lines whose records or data changed.
void ServerRun::check_recovery(Time now) {
  for (const std::uint64_t line : outcome_.changed) {
    const LineVersion restored = memory_.recovery().recovered(line);
    const bool allowed = restored.order == 0 || buffers_.may_be_restored(restored.id, now);
    recovery_law_.check(line, restored.order, allowed, now);
    const bool rests = restored.order == recovery_law_.counted(line);
    if (rests && memory_.recovery().forget(line)) recovery_law_.forget(line);
  }
}

/// Transactions that take no time: the caches and the structure are afterwards as they would be.
void ServerRun::warm_up() {
  const CacheAccess persist =
      options_.ordering == Ordering::Eadr ? CacheAccess::Store : CacheAccess::Persist;
  std::vector<Operation> operations;
  const std::uint64_t step = progress_step(options_.warm_transactions);
  for (std::uint64_t i = 0; i < options_.warm_transactions; ++i) {
    if (i > 0 && i % step == 0 && options_.warm_progress) options_.warm_progress(i);
    const auto thread = static_cast<std::uint32_t>(i % processor_.threads());
    const auto start = program_.start(thread);
    if (!start) continue;
    if (start->lock) warm_access(thread, line_of(start->lock->address), CacheAccess::Store);
    operations.clear();
    program_.run(thread, operations);
    for (const Operation& each : operations) {
      const std::uint64_t line = line_of(each.value);
      if (each.kind == OperationKind::Load) warm_access(thread, line, CacheAccess::Load);
      if (each.kind == OperationKind::Store) warm_access(thread, line, CacheAccess::Store);
      if (each.kind == OperationKind::Persist) warm_access(thread, line, persist);
    }
  }
}

void ServerRun::warm_access(std::uint32_t thread, std::uint64_t line, CacheAccess access) {
  if (caches_.access(thread, line, access).source != Source::Memory) return;
  caches_.fill(line);
  caches_.access(thread, line, access);
}

// --- what came of it ---------------------------------------------------------------------------

void ServerRun::snapshot(Time now) {
  const ChannelCounts counts = memory_.counts();
  result_.elapsed_ps = now;
  result_.bursts = counts.reads + counts.writes;
  result_.requests = result_.bursts;
  result_.bank_stalled = counts.bank_stalled;
  result_.bank_busy = counts.bank_busy;
}

Result<ServerResult> ServerRun::result(Time now) {
  if (!law_.holds()) {
    return Error{ErrorCode::ProtocolError,
                 fmt::format("the order of persistence is broken: {}", law_.broken())};
  }
  if (!recovery_law_.holds()) {
    return Error{ErrorCode::ProtocolError,
                 fmt::format("recovery is broken: {}", recovery_law_.broken())};
  }
  if (!stopping_) {
    if (options_.transactions > 0) {
      return Error{ErrorCode::InvalidArgument,
                   fmt::format("the program ended after {} transactions of {}",
                               result_.transactions, options_.transactions)};
    }
    snapshot(now);
  }
  result_.law_checked = law_.checked();
  result_.recovery = memory_.recovery().counts();
  result_.recovery_checked = recovery_law_.checked();
  return result_;
}

/// What a thread or a channel waits for, and for whom; empty: for nothing.
std::string ServerRun::what_blocks(std::uint32_t number) const {
  const HardwareThread& thread = threads_[number];
  std::vector<std::string> why;
  switch (thread.wait) {
    case Wait::None: break;
    case Wait::Memory:
    case Wait::Loads: why.emplace_back("what it loads"); break;
    case Wait::Stores: why.push_back(counted(thread.stores.size(), "store") + " of its own"); break;
    case Wait::Persist: why.emplace_back("its writes to persist"); break;
    case Wait::Lock:
      why.push_back(
          fmt::format("the lock that thread {} holds", locks_.at(thread.lock->address).holder));
      break;
  }
  if (thread.wants_room) why.emplace_back("room in the persist buffer");
  if (!buffers_.of(number).empty()) {
    why.push_back(fmt::format("its oldest persist, {}", buffers_.describe_oldest(number)));
  }
  return fmt::format("{}", fmt::join(why, " and "));
}

Error ServerRun::deadlock(Time now) const {
  std::string who;
  for (std::uint32_t i = 0; i < threads_.size(); ++i) {
    const std::string blocked = what_blocks(i);
    if (blocked.empty()) continue;
    who += fmt::format("{}{} waits for {}", who.empty() ? "" : "; ", buffers_.name(i), blocked);
  }
  return {ErrorCode::InvalidArgument, fmt::format("deadlock after {} ps and {} transactions: {}",
                                                  now, result_.transactions, who)};
}

double ServerResult::transactions_per_us() const {
  if (elapsed_ps == 0) return 0;
  return static_cast<double>(transactions) / (static_cast<double>(elapsed_ps) / 1e6);
}

double ServerResult::bus_gb_per_s() const {
  if (elapsed_ps == 0) return 0;
  return static_cast<double>(bursts * kCacheLineBytes) * 1e3 / static_cast<double>(elapsed_ps);
}

Result<ServerResult> run_server(const Device& device, const Processor& processor,
                                workload::Program& program, const ServerOptions& options) {
  ServerRun run(device, processor, program, options);
  return run.run();
}

}  // namespace perdure::memsys
