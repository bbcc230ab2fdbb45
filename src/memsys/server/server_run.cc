// The loop that moves time, and the hardware threads: see server_run.h.
//
// A thread has two halves. The front takes instructions in program order and waits for each load.
// The back empties the store buffer in order (TSO): stores, persists, barriers, the release of the
// lock.
#include "memsys/server/server_run.h"

#include "core/assert.h"
#include "core/random.h"
#include "core/try.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <queue>
#include <unordered_map>
#include <utility>

namespace perdure::memsys {
namespace {

using workload::Operation;
using workload::OperationKind;

/// So many steps in a row without a commit are a deadlock: refreshes alone would go on for ever.
constexpr std::uint64_t kStepsWithoutProgressMax = 1'000'000;
constexpr std::size_t kVictimsMax = 1024;

enum class Part : std::uint8_t { Front, Back, Remote };

struct Event {
  Time at = 0;
  std::uint64_t order = 0;  // of what happens at the same time, what was asked for first
  std::uint32_t thread = 0;
  Part part = Part::Front;
  bool operator>(const Event& other) const {
    return at != other.at ? at > other.at : order > other.order;
  }
};

enum class Wait : std::uint8_t { None, Memory, Stores, Persist, Lock };
enum class Stage : std::uint8_t { Start, TakeLock, Run, Ended };

struct HardwareThread {
  std::vector<Operation> operations;
  std::size_t next = 0;
  std::optional<workload::Lock> lock;
  Stage stage = Stage::Start;
  Wait wait = Wait::None;
  Time wait_since = 0;
  bool front_filled = false;  // memory has delivered what it waits for
  // The back.
  Ring<Operation> stores;
  bool storing = false;
  bool back_filled = false;
  bool reserved = false;  // of the persist buffer, for the store at the head
  bool wants_room = false;
  std::uint64_t epoch_persists = 0;
  std::unordered_map<std::uint64_t, std::uint64_t> law_index;  // of its entries, by number
};

struct RemoteChannel {
  Random random;
  std::uint64_t line = 0;
  std::uint64_t left = 0;  // lines of the epoch
  bool open = false;       // an epoch
  Time began = 0;
};

struct LockState {
  bool held = false;
  std::uint32_t holder = 0;
  std::deque<std::uint32_t> waiting;
};

struct Waiter {
  std::uint32_t thread = 0;
  Part part = Part::Front;
};

class ServerRun {
 public:
  ServerRun(const Device& device, const Processor& processor, workload::Program& program,
            const ServerOptions& options);
  Result<ServerResult> run();

 private:
  // The front.
  void front(std::uint32_t number, Time now);
  void start(std::uint32_t number);
  bool take_lock(std::uint32_t number, Time now);
  bool instruction(std::uint32_t number, Time now);
  bool ordered_here(const HardwareThread& thread, OperationKind kind) const;
  bool wait_persisted(std::uint32_t number, Time now);
  void wait(std::uint32_t number, Wait why, Time now);
  void wake(std::uint32_t number, Time at);
  // The back.
  void back(std::uint32_t number, Time now);
  std::optional<Time> store(std::uint32_t number, const Operation& operation, Time now);
  std::optional<Time> persist(std::uint32_t number, std::uint64_t line, Time now);
  std::optional<Time> barrier(std::uint32_t number, Time now);
  void unlock(std::uint64_t address, Time at);
  void commit(Time now);
  bool wants_room(std::uint32_t number);
  // Remote channels.
  void remote(std::uint32_t number, Time now);
  // Caches and memory.
  std::optional<Time> perform(Waiter waiter, std::uint64_t line, Access access, Time now);
  void memory_step(Time now);
  void on_fetched(std::uint64_t line, Time now);
  void on_persisted(PersistId id, Time now);
  void warm_up();
  void warm_access(std::uint32_t thread, std::uint64_t line, Access access);

  void schedule(Time at, std::uint32_t thread, Part part) {
    events_.push({at, order_++, thread, part});
  }
  void snapshot(Time now);
  bool ended() const;
  Error deadlock(Time now) const;
  Result<ServerResult> result(Time now);
  static std::uint64_t line_of(std::uint64_t address) { return address / kCacheLineBytes; }

  const Processor processor_;
  const ServerOptions options_;
  workload::Program& program_;
  Caches caches_;
  PersistBuffers buffers_;
  OrderingController ordering_;
  MemorySide memory_;
  ServerLaw law_;
  std::vector<HardwareThread> threads_;
  std::vector<RemoteChannel> channels_;
  std::unordered_map<std::uint64_t, LockState> locks_;              // by address
  std::unordered_map<std::uint64_t, std::vector<Waiter>> fetches_;  // by line
  /// Lines that left the caches while their last writer had persists before a barrier: who reads
  /// them must still learn of him.
  std::unordered_map<std::uint64_t, std::uint32_t> victims_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t order_ = 0;
  std::uint64_t steps_without_progress_ = 0;
  bool stopping_ = false;
  MemorySide::Outcome outcome_;
  ServerResult result_;
};

ServerRun::ServerRun(const Device& device, const Processor& processor, workload::Program& program,
                     const ServerOptions& options)
    : processor_(processor),
      options_(options),
      program_(program),
      caches_(processor),
      buffers_(processor, options.remote.channels, options.buffer_mutant),
      ordering_(processor, options.ordering, options.controller_ignores_barriers),
      memory_(device, options.persist_point, ordering_, buffers_),
      law_(processor.threads() + options.remote.channels),
      threads_(processor.threads() + options.remote.channels) {
  PERDURE_ASSERT(device.geometry.line_bytes == kCacheLineBytes);
  buffers_.set_log(options.log);
  for (std::uint32_t i = 0; i < options.remote.channels; ++i) {
    channels_.push_back({Random(options.remote.seed + i), 0, 0, false, 0});
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
    if (++steps_without_progress_ > kStepsWithoutProgressMax) return deadlock(now);
    now = std::min(memory, event);
    if (memory < event) {
      memory_step(now);
      continue;
    }
    const Event next = events_.top();
    events_.pop();
    if (next.part == Part::Front) front(next.thread, now);
    if (next.part == Part::Back) back(next.thread, now);
    if (next.part == Part::Remote) remote(next.thread, now);
  }
  if (!ended() || !buffers_.empty()) return deadlock(now);
  return result(now);
}

bool ServerRun::ended() const {
  return std::all_of(
      threads_.begin(), threads_.begin() + processor_.threads(),
      [](const HardwareThread& t) { return t.stage == Stage::Ended && t.stores.empty(); });
}

// --- the front ---------------------------------------------------------------------------------

void ServerRun::front(std::uint32_t number, Time now) {
  HardwareThread& thread = threads_[number];
  Waits& waits = result_.waits;
  const Time waited = now - thread.wait_since;
  switch (thread.wait) {
    case Wait::None: break;
    case Wait::Memory: waits.memory += waited; break;
    case Wait::Stores: waits.stores += waited; break;
    case Wait::Persist: waits.persist += waited; break;
    case Wait::Lock: waits.lock += waited; break;
  }
  thread.wait = Wait::None;
  for (bool goes_on = true; goes_on;) {
    if (thread.stage == Stage::Start) start(number);
    switch (thread.stage) {
      case Stage::Start:
      case Stage::Ended: return;
      case Stage::TakeLock: goes_on = take_lock(number, now); break;
      case Stage::Run: goes_on = instruction(number, now); break;
    }
  }
}

void ServerRun::start(std::uint32_t number) {
  HardwareThread& thread = threads_[number];
  const auto start = stopping_ ? std::nullopt : program_.start(number);
  if (!start) {
    thread.stage = Stage::Ended;
    return;
  }
  thread.operations.clear();
  thread.next = 0;
  thread.lock = start->lock;
  thread.stage = thread.lock ? Stage::TakeLock : Stage::Run;
  if (!thread.lock) program_.run(number, thread.operations);
}

/// An atomic instruction: the store buffer drains first.
bool ServerRun::take_lock(std::uint32_t number, Time now) {
  HardwareThread& thread = threads_[number];
  if (!thread.stores.empty()) {
    wait(number, Wait::Stores, now);
    return false;
  }
  LockState& lock = locks_[thread.lock->address];
  if (lock.held && lock.holder != number) {
    lock.waiting.push_back(number);
    wait(number, Wait::Lock, now);
    return false;
  }
  lock.held = true;
  lock.holder = number;
  const auto has =
      perform({number, Part::Front}, line_of(thread.lock->address), Access::Store, now);
  if (!has) {
    wait(number, Wait::Memory, now);
    return false;
  }
  ++result_.instructions;
  thread.stage = Stage::Run;
  program_.run(number, thread.operations);
  schedule(*has, number, Part::Front);
  return false;
}

/// True: the next one begins at the same time.
bool ServerRun::instruction(std::uint32_t number, Time now) {
  HardwareThread& thread = threads_[number];
  if (thread.next == thread.operations.size()) {
    thread.stage = Stage::Start;
    return true;
  }
  Operation operation = thread.operations[thread.next];
  if (operation.kind == OperationKind::Compute) {
    ++thread.next;
    result_.instructions += operation.value;
    schedule(now + operation.value * processor_.instruction_ps, number, Part::Front);
    return false;
  }
  if (operation.kind == OperationKind::Load) {
    const auto has = perform({number, Part::Front}, line_of(operation.value), Access::Load, now);
    if (!has) {
      wait(number, Wait::Memory, now);
      return false;
    }
    ++thread.next;
    ++result_.instructions;
    ++result_.loads;
    result_.waits.memory += *has - now;
    schedule(*has, number, Part::Front);
    return false;
  }
  if (ordered_here(thread, operation.kind)) {
    if (!wait_persisted(number, now)) return false;
    ++thread.next;
    return true;
  }
  if (thread.stores.size() >= processor_.store_buffer) {
    wait(number, Wait::Stores, now);
    return false;
  }
  if (operation.kind == OperationKind::Unlock) operation.value = thread.lock->address;
  thread.stores.push(operation);
  ++thread.next;
  if (!thread.storing) {
    thread.storing = true;
    schedule(now, number, Part::Back);
  }
  if (operation.kind == OperationKind::Commit) return true;
  ++result_.instructions;
  schedule(now + processor_.instruction_ps, number, Part::Front);
  return false;
}

/// Whether the thread itself waits, instead of what is behind it.
bool ServerRun::ordered_here(const HardwareThread& /*thread*/, OperationKind kind) const {
  if (kind == OperationKind::Fence) return true;
  return kind == OperationKind::Barrier && options_.ordering == Ordering::Sync;
}

bool ServerRun::wait_persisted(std::uint32_t number, Time now) {
  HardwareThread& thread = threads_[number];
  if (!thread.stores.empty() || !buffers_.of(number).empty()) {
    wait(number, Wait::Persist, now);
    return false;
  }
  law_.on_barrier(number);
  result_.epochs += thread.epoch_persists > 0 ? 1 : 0;
  result_.singletons += thread.epoch_persists == 1 ? 1 : 0;
  thread.epoch_persists = 0;
  return true;
}

void ServerRun::wait(std::uint32_t number, Wait why, Time now) {
  threads_[number].wait = why;
  threads_[number].wait_since = now;
}

/// If what the front waits for may have come.
void ServerRun::wake(std::uint32_t number, Time at) {
  HardwareThread& thread = threads_[number];
  const bool drained = thread.stores.empty();
  const bool room = thread.stores.size() < processor_.store_buffer;
  const bool stores = thread.wait == Wait::Stores && (thread.stage == Stage::Run ? room : drained);
  const bool persists = thread.wait == Wait::Persist && drained && buffers_.of(number).empty();
  if (!stores && !persists) return;
  front(number, at);
}

// --- the back ----------------------------------------------------------------------------------

void ServerRun::back(std::uint32_t number, Time now) {
  HardwareThread& thread = threads_[number];
  thread.wants_room = false;
  while (!thread.stores.empty()) {
    const Operation operation = thread.stores.front();
    const auto at = store(number, operation, now);
    if (!at) return;  // it waits
    thread.stores.pop();
    if (*at > now) {
      schedule(*at, number, Part::Back);
      wake(number, now);
      return;
    }
  }
  thread.storing = false;
  wake(number, now);
}

/// When the next one may follow; nothing: it waits.
std::optional<Time> ServerRun::store(std::uint32_t number, const Operation& operation, Time now) {
  const std::uint64_t line = line_of(operation.value);
  switch (operation.kind) {
    case OperationKind::Persist: return persist(number, line, now);
    case OperationKind::Barrier: return barrier(number, now);
    case OperationKind::Commit: commit(now); return now;
    default: break;
  }
  const auto has = perform({number, Part::Back}, line, Access::Store, now);
  if (!has) return has;
  ++result_.stores;
  if (operation.kind == OperationKind::Unlock) unlock(operation.value, *has);
  // Hits follow each other: the L1 takes one an instruction.
  return *has == now + processor_.l1_ps ? now + processor_.instruction_ps : *has;
}

std::optional<Time> ServerRun::persist(std::uint32_t number, std::uint64_t line, Time now) {
  HardwareThread& thread = threads_[number];
  const bool eadr = options_.ordering == Ordering::Eadr;
  if (!eadr && !thread.reserved) {
    if (wants_room(number)) return std::nullopt;
    buffers_.reserve(number);
    thread.reserved = true;
  }
  const auto has = perform({number, Part::Back}, line, eadr ? Access::Store : Access::Persist, now);
  if (!has) return has;
  thread.reserved = false;
  const Time follows = *has == now + processor_.l1_ps ? now + processor_.instruction_ps : *has;
  if (eadr) {
    law_.on_persist(number, line, law_.on_write(number, line), now);
    ++result_.persists;
    ++thread.epoch_persists;
    return follows;
  }
  const Time ready = *has + processor_.crossbar_ps + processor_.schedule_ps;
  const auto added = buffers_.add_write(number, {line, memory_.bank_of(line), ready, now});
  memory_.look(ready);
  if (added.coalesced) {
    ++result_.coalesced;
    return follows;
  }
  thread.law_index[added.id.number] = law_.on_write(number, line);
  ++result_.persists;
  ++thread.epoch_persists;
  result_.direct += added.direct ? 1 : 0;
  result_.chained += added.chained ? 1 : 0;
  return follows;
}

std::optional<Time> ServerRun::barrier(std::uint32_t number, Time now) {
  HardwareThread& thread = threads_[number];
  if (options_.ordering != Ordering::Eadr) {
    if (wants_room(number)) return std::nullopt;
    buffers_.add_fence(number, now);
    memory_.look(now);
  }
  law_.on_barrier(number);
  result_.epochs += thread.epoch_persists > 0 ? 1 : 0;
  result_.singletons += thread.epoch_persists == 1 ? 1 : 0;
  thread.epoch_persists = 0;
  return now;
}

/// The persist buffer is full: whoever empties it calls.
bool ServerRun::wants_room(std::uint32_t number) {
  return threads_[number].wants_room = !buffers_.has_room(number);
}

void ServerRun::unlock(std::uint64_t address, Time at) {
  LockState& lock = locks_[address];
  lock.held = false;
  if (lock.waiting.empty()) return;
  lock.held = true;
  lock.holder = lock.waiting.front();
  lock.waiting.pop_front();
  schedule(at, lock.holder, Part::Front);
}

void ServerRun::commit(Time now) {
  steps_without_progress_ = 0;
  if (stopping_) return;
  if (++result_.transactions != options_.transactions) return;
  stopping_ = true;
  snapshot(now);
}

// --- the network -------------------------------------------------------------------------------

void ServerRun::remote(std::uint32_t number, Time now) {
  RemoteChannel& channel = channels_[number - processor_.threads()];
  const RemoteOptions& options = options_.remote;
  threads_[number].wants_room = false;
  if (!channel.open) {
    if (stopping_ || (options_.transactions == 0 && ended())) return;
    channel.open = true;
    channel.began = now;
    channel.left = options.epoch_bytes / kCacheLineBytes;
    const std::uint64_t places = options.lines / channel.left;
    channel.line = options.first_line + channel.random.below(places) * channel.left;
  }
  for (; channel.left > 0; --channel.left, ++channel.line) {
    if (wants_room(number)) return;
    buffers_.reserve(number);
    law_.on_access(number, channel.line, true);
    const Time ready = now + processor_.crossbar_ps + processor_.schedule_ps;
    const auto added =
        buffers_.add_write(number, {channel.line, memory_.bank_of(channel.line), ready, now});
    memory_.look(ready);
    if (added.coalesced) continue;
    threads_[number].law_index[added.id.number] = law_.on_write(number, channel.line);
    ++result_.remote_lines;
  }
  if (wants_room(number)) return;
  buffers_.add_fence(number, now);
  law_.on_barrier(number);
  channel.open = false;
  schedule(std::max(now + 1, channel.began + options.interval_ps), number, Part::Remote);
}

// --- caches and memory -------------------------------------------------------------------------

/// When the line is there; nothing: it comes from memory, and the waiter is called.
std::optional<Time> ServerRun::perform(Waiter waiter, std::uint64_t line, Access access, Time now) {
  const auto coming = fetches_.find(line);
  if (coming != fetches_.end()) {
    coming->second.push_back(waiter);
    return std::nullopt;
  }
  HardwareThread& thread = threads_[waiter.thread];
  bool& filled = waiter.part == Part::Front ? thread.front_filled : thread.back_filled;
  const Reply reply = caches_.access(waiter.thread, line, access);
  if (reply.source == Source::Memory) {
    ++result_.from_memory;
    fetches_[line].push_back(waiter);
    memory_.fetch(line, now + reply.latency);
    return std::nullopt;
  }
  law_.on_access(waiter.thread, line, access != Access::Load);
  if (reply.writer) buffers_.note_writer(waiter.thread, *reply.writer);
  // It was brought for this waiter: only the way from the L2 is left.
  const bool brought = std::exchange(filled, false) && reply.source == Source::L2;
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
  for (const PersistId id : outcome_.persisted) on_persisted(id, now);
  // Fences may have gone too, which nobody tells.
  for (std::uint32_t i = 0; i < threads_.size(); ++i) {
    if (threads_[i].wait == Wait::Persist) wake(i, now);
    if (!threads_[i].wants_room || !buffers_.has_room(i)) continue;
    if (buffers_.is_remote(i)) {
      remote(i, now);
    } else {
      back(i, now);
    }
  }
}

void ServerRun::on_fetched(std::uint64_t line, Time now) {
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
    HardwareThread& thread = threads_[waiter.thread];
    (waiter.part == Part::Front ? thread.front_filled : thread.back_filled) = true;
    if (waiter.part == Part::Front) {
      front(waiter.thread, now);
    } else {
      back(waiter.thread, now);
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
  thread.law_index.erase(index);
  buffers_.persisted(id, now);
  result_.persisted_ps = now;
  memory_.look(now);
}

/// Transactions that take no time: the caches and the structure are afterwards as they would be.
void ServerRun::warm_up() {
  const Access persist = options_.ordering == Ordering::Eadr ? Access::Store : Access::Persist;
  std::vector<Operation> operations;
  for (std::uint64_t i = 0; i < options_.warm_transactions; ++i) {
    const auto thread = static_cast<std::uint32_t>(i % processor_.threads());
    const auto start = program_.start(thread);
    if (!start) continue;
    if (start->lock) warm_access(thread, line_of(start->lock->address), Access::Store);
    operations.clear();
    program_.run(thread, operations);
    for (const Operation& each : operations) {
      const std::uint64_t line = line_of(each.value);
      if (each.kind == OperationKind::Load) warm_access(thread, line, Access::Load);
      if (each.kind == OperationKind::Store) warm_access(thread, line, Access::Store);
      if (each.kind == OperationKind::Persist) warm_access(thread, line, persist);
    }
  }
}

void ServerRun::warm_access(std::uint32_t thread, std::uint64_t line, Access access) {
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
}

Result<ServerResult> ServerRun::result(Time now) {
  if (!law_.holds()) {
    return Error{ErrorCode::ProtocolError,
                 fmt::format("the order of persistence is broken: {}", law_.broken())};
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
  return result_;
}

Error ServerRun::deadlock(Time now) const {
  std::string who;
  for (std::uint32_t i = 0; i < threads_.size(); ++i) {
    const HardwareThread& thread = threads_[i];
    const std::size_t entries = buffers_.of(i).size();
    if ((thread.stage == Stage::Ended && thread.stores.empty() && entries == 0)) continue;
    who += fmt::format("{}thread {} has {} stores and {} entries in its persist buffer",
                       who.empty() ? "" : "; ", i, thread.stores.size(), entries);
  }
  return {ErrorCode::InvalidArgument, fmt::format("deadlock after {} ps and {} transactions: {}",
                                                  now, result_.transactions, who)};
}

}  // namespace

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
