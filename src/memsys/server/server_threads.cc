// The hardware threads of a server: see server_machine.h.
//
// A thread has two halves. The front takes instructions in program order and waits while as many
// loads are in flight as may be. The back empties the store buffer in order (TSO), each entry after
// the loads that were before it: stores, persists, barriers, the release of the lock.
#include "core/assert.h"
#include "memsys/server/server_machine.h"

#include <algorithm>

namespace perdure::memsys {

// --- the front ---------------------------------------------------------------------------------

void ServerRun::front(std::uint32_t number, Time now) {
  HardwareThread& thread = threads_[number];
  Waits& waits = result_.waits;
  const Time waited = now - thread.wait_since;
  switch (thread.wait) {
    case Wait::None: break;
    case Wait::Memory:
    case Wait::Loads: waits.memory += waited; break;
    case Wait::Stores: waits.stores += waited; break;
    case Wait::Persist: waits.persist += waited; break;
    case Wait::Lock: waits.lock += waited; break;
  }
  thread.wait = Wait::None;
  buffers_.set_waits(number, false);
  for (bool goes_on = true; goes_on;) {
    if (thread.stage == Stage::Start) start(number, now);
    switch (thread.stage) {
      case Stage::Start:
      case Stage::Ended: return;
      case Stage::TakeLock: goes_on = take_lock(number, now); break;
      case Stage::Run: goes_on = instruction(number, now); break;
    }
  }
}

void ServerRun::start(std::uint32_t number, Time now) {
  HardwareThread& thread = threads_[number];
  const auto start = stopping_ ? std::nullopt : program_.start(number);
  if (!start) {
    thread.stage = Stage::Ended;
    drain(number, now);
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
      perform({number, Part::Front}, line_of(thread.lock->address), CacheAccess::Store, now);
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
    ++thread.next;
    ++result_.instructions;
    ++result_.loads;
    begin_load(number, line_of(operation.value), now);
    return false;
  }
  if (operation.kind == OperationKind::Strand) return begin_strand(number, now);
  if (ordered_here(operation.kind)) {
    if (!wait_persisted(number, now)) return false;
    ++thread.next;
    return true;
  }
  if (thread.stores.size() >= processor_.store_buffer) {
    wait(number, Wait::Stores, now);
    return false;
  }
  if (operation.kind == OperationKind::Unlock) operation.value = thread.lock->address;
  thread.stores.push({operation, thread.loads_before + thread.loads.size()});
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

void ServerRun::begin_load(std::uint32_t number, std::uint64_t line, Time now) {
  HardwareThread& thread = threads_[number];
  const std::uint64_t which = thread.loads_before + thread.loads.size();
  thread.loads.push_back({line, false, false});
  if (++thread.loads_in_flight < processor_.loads) {
    schedule(now + processor_.instruction_ps, number, Part::Front);
  } else {
    wait(number, Wait::Loads, now);
  }
  load(number, which, now);
}

void ServerRun::load(std::uint32_t number, std::uint64_t which, Time now) {
  HardwareThread& thread = threads_[number];
  const std::uint64_t line = thread.loads[which - thread.loads_before].line;
  const auto has = perform({number, Part::Loads, which}, line, CacheAccess::Load, now);
  if (has) schedule(*has, number, Part::Loads, which);
}

void ServerRun::end_load(std::uint32_t number, std::uint64_t which, Time now) {
  HardwareThread& thread = threads_[number];
  thread.loads[which - thread.loads_before].has = true;
  --thread.loads_in_flight;
  while (!thread.loads.empty() && thread.loads.front().has) {
    thread.loads.pop_front();
    ++thread.loads_before;
  }
  if (thread.wants_loads) back(number, now);
  if (thread.wait == Wait::Loads) front(number, now);
}

/// Whether the thread itself waits, instead of what is behind it.
bool ServerRun::ordered_here(OperationKind kind) const {
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

/// Stores before it belong to the strand before, so that they leave first.
bool ServerRun::begin_strand(std::uint32_t number, Time now) {
  HardwareThread& thread = threads_[number];
  if (options_.ordering == Ordering::Strand) {
    if (!thread.stores.empty()) {
      wait(number, Wait::Stores, now);
      return false;
    }
    buffers_.begin_strand(number);
    law_.on_strand(number);
    thread.epoch_persists = 0;
    forget_strands(number);
  }
  ++thread.next;
  return true;
}

/// Of strands that are persisted.
void ServerRun::forget_strands(std::uint32_t number) {
  auto& written = threads_[number].written_by_strand;
  const auto& entries = buffers_.of(number);
  if (entries.empty()) return written.clear();
  if (written.size() < kOwnLinesMax) return;
  const std::uint64_t oldest = entries.front().strand;
  std::erase_if(written, [&](const auto& each) { return each.second.last < oldest; });
}

/// With strands: what one of the thread's strands wrote comes before what another that sees it
/// persists.
void ServerRun::note_own_strand(std::uint32_t number, std::uint64_t line, bool writes) {
  if (options_.ordering != Ordering::Strand || buffers_.is_remote(number)) return;
  auto& written = threads_[number].written_by_strand;
  const std::uint64_t strand = buffers_.strand(number);
  const auto& entries = buffers_.of(number);
  if (const auto found = written.find(line); found != written.end() && !entries.empty()) {
    const std::uint64_t from = std::max(found->second.first, entries.front().strand);
    for (std::uint64_t i = from; i < strand; ++i) buffers_.note_strand(number, i);
  }
  if (writes) written.try_emplace(line, StrandsOfLine{strand, strand}).first->second.last = strand;
}

void ServerRun::wait(std::uint32_t number, Wait why, Time now) {
  threads_[number].wait = why;
  threads_[number].wait_since = now;
  if (why == Wait::Persist || why == Wait::Lock) drain(number, now);
}

/// The thread brings no more writes until its front goes on: HOPS does not wait for them, and ASAP
/// commits the epoch.
void ServerRun::drain(std::uint32_t number, Time now) {
  buffers_.set_waits(number, true);
  const Ordering order = options_.ordering;
  if (order == Ordering::Hops || order == Ordering::Asap) memory_.look(now);
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
    const PendingStore& oldest = thread.stores.front();
    thread.wants_loads = thread.loads_before < oldest.loads;
    if (thread.wants_loads) return;
    const auto at = store(number, oldest.operation, now);
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
  const auto has = perform({number, Part::Back}, line, CacheAccess::Store, now);
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
  const auto has =
      perform({number, Part::Back}, line, eadr ? CacheAccess::Store : CacheAccess::Persist, now);
  if (!has) return has;
  thread.reserved = false;
  const Time follows = *has == now + processor_.l1_ps ? now + processor_.instruction_ps : *has;
  if (eadr) {
    // In the order of the stores, by definition: the law has nothing that could break it.
    law_.on_persist(number, line, law_.on_write(number, line), now);
    result_.persisted_ps = std::max(result_.persisted_ps, *has);
    ++result_.persists;
    ++thread.epoch_persists;
    return follows;
  }
  const Time ready = *has + processor_.crossbar_ps + processor_.schedule_ps;
  const auto added = buffers_.add_write(number, {line, memory_.bank_of(line), ready, now});
  memory_.look(ready);
  if (added.coalesced) {
    law_.on_coalesced(number, line, thread.law_index.at(added.id.number));
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
    if (wants_room_for_fence(number)) return std::nullopt;
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

bool ServerRun::wants_room_for_fence(std::uint32_t number) {
  return threads_[number].wants_room = !buffers_.has_room_for_fence(number);
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
  if (stopping_) return;
  ++result_.transactions;
  const std::uint64_t step = progress_step(options_.transactions);
  if (options_.progress && result_.transactions % step == 0) {
    options_.progress(result_.transactions);
  }
  if (result_.transactions != options_.transactions) return;
  stopping_ = true;
  snapshot(now);
}

}  // namespace perdure::memsys
