// Dependencies found, kept and resolved: see persist_buffers.h.
#include "memsys/server/persist_buffers.h"

#include "core/assert.h"

#include <fmt/format.h>

#include <algorithm>

namespace perdure::memsys {

std::string to_string(PersistId id) { return fmt::format("{}:{}", id.thread, id.number); }

PersistBuffers::PersistBuffers(const Processor& processor, std::uint32_t remote_channels,
                               BufferMutant mutant)
    : processor_(processor),
      mutant_(mutant),
      of_thread_(processor.threads() + remote_channels),
      next_number_(of_thread_.size()),
      epoch_(of_thread_.size()),
      wrote_(of_thread_.size()),
      seen_fences_(of_thread_.size()),
      used_(processor.cores + 1) {}

bool PersistBuffers::has_room(std::uint32_t thread) const {
  const std::uint64_t size =
      is_remote(thread) ? processor_.remote_entries : processor_.buffer_entries;
  return used_[buffer_of(thread)] < size;
}

PersistEntry& PersistBuffers::find(PersistId id) {
  std::deque<PersistEntry>& entries = of_thread_[id.thread];
  const auto found = std::find_if(entries.begin(), entries.end(),
                                  [&](const PersistEntry& e) { return e.id == id; });
  PERDURE_ASSERT(found != entries.end());
  return *found;
}

void PersistBuffers::note_writer(std::uint32_t thread, std::uint32_t writer) {
  if (mutant_.ignores_fences || writer == thread) return;
  const std::deque<PersistEntry>& entries = of_thread_[writer];
  const auto fence =
      std::find_if(entries.rbegin(), entries.rend(), [](const PersistEntry& e) { return e.fence; });
  if (fence == entries.rend()) return;
  std::vector<PersistId>& seen = seen_fences_[thread];
  if (std::find(seen.begin(), seen.end(), fence->id) == seen.end()) seen.push_back(fence->id);
}

PersistEntry& PersistBuffers::append(std::uint32_t thread, Time now) {
  PersistEntry entry;
  entry.id = {thread, next_number_[thread]++};
  entry.since = now;
  entry.epoch = epoch_[thread];
  entry.depends = std::move(seen_fences_[thread]);
  seen_fences_[thread].clear();
  of_thread_[thread].push_back(std::move(entry));
  ++entries_;
  return of_thread_[thread].back();
}

PersistBuffers::Added PersistBuffers::add_write(std::uint32_t thread, const Write& write) {
  std::deque<PersistEntry>& own = of_thread_[thread];
  const auto newest = newest_.find(write.line);
  const bool mine = newest != newest_.end() && newest->second.thread == thread;
  if (mine && seen_fences_[thread].empty()) {
    // Of the same epoch and still here: the entry takes the new data.
    for (auto e = own.rbegin(); e != own.rend() && !e->fence; ++e) {
      if (e->id != newest->second || e->stage == PersistStage::Sent) continue;
      --used_[buffer_of(thread)];
      note(PersistEvent::Kind::Coalesced, write.now, e->id);
      return {e->id, true, false, false};
    }
  }
  PersistEntry& entry = append(thread, write.now);
  wrote_[thread] = true;
  entry.line = write.line;
  entry.bank = write.bank;
  entry.ready = write.ready;
  const bool chained = !entry.depends.empty();
  const bool direct = newest != newest_.end() && !mine && !mutant_.ignores_lines;
  if (direct) entry.depends.push_back(newest->second);
  newest_[write.line] = entry.id;
  note(PersistEvent::Kind::Allocated, write.now, entry.id, entry.depends);
  return {entry.id, false, direct, chained};
}

bool PersistBuffers::add_fence(std::uint32_t thread, Time now) {
  if (!wrote_[thread]) return false;
  wrote_[thread] = false;
  ++epoch_[thread];
  // All that it would hold back is persisted.
  if (of_thread_[thread].empty()) return false;
  ++used_[buffer_of(thread)];
  append(thread, now).fence = true;
  return true;
}

bool PersistBuffers::may_queue(std::uint32_t thread, const PersistEntry& entry, std::size_t writes,
                               std::size_t fences) const {
  if (!entry.depends.empty()) return false;
  if (is_remote(thread)) return true;  // its controller's entry is as long as its buffer
  return entry.fence ? fences < processor_.barrier_registers : writes < processor_.queue_entries;
}

Time PersistBuffers::advance(Time now) {
  Time next = kTimeNever;
  bool fence_passed = false;
  for (std::uint32_t thread = 0; thread < of_thread_.size(); ++thread) {
    std::size_t writes = 0;
    std::size_t fences = 0;
    for (PersistEntry& entry : of_thread_[thread]) {
      if (entry.stage == PersistStage::Waiting) {
        if (!may_queue(thread, entry, writes, fences)) break;
        if (entry.ready > now) {
          next = std::min(next, entry.ready);
          break;
        }
        entry.stage = PersistStage::Queued;
        if (!entry.fence) note(PersistEvent::Kind::Queued, now, entry.id);
      }
      ++(entry.fence ? fences : writes);
    }
    fence_passed |= pop_fences(thread, now);
  }
  // Others may have waited for it.
  return fence_passed ? advance(now) : next;
}

void PersistBuffers::send(PersistId id, Time now) {
  find(id).stage = PersistStage::Sent;
  note(PersistEvent::Kind::Sent, now, id);
}

void PersistBuffers::persisted(PersistId id, Time now) {
  std::deque<PersistEntry>& own = of_thread_[id.thread];
  const auto entry =
      std::find_if(own.begin(), own.end(), [&](const PersistEntry& e) { return e.id == id; });
  PERDURE_ASSERT(entry != own.end());
  const auto newest = newest_.find(entry->line);
  if (newest != newest_.end() && newest->second == id) newest_.erase(newest);
  own.erase(entry);
  --used_[buffer_of(id.thread)];
  --entries_;
  note(PersistEvent::Kind::Persisted, now, id);
  resolve(id, now);
  pop_fences(id.thread, now);
}

/// A fence that is the oldest entry of its thread has nothing to hold back any more.
bool PersistBuffers::pop_fences(std::uint32_t thread, Time now) {
  std::deque<PersistEntry>& own = of_thread_[thread];
  const std::uint64_t before = entries_;
  while (!own.empty() && own.front().fence && own.front().depends.empty()) {
    const PersistId id = own.front().id;
    own.pop_front();
    --used_[buffer_of(thread)];
    --entries_;
    resolve(id, now);
  }
  return entries_ != before;
}

void PersistBuffers::resolve(PersistId id, Time now) {
  for (std::vector<PersistId>& seen : seen_fences_) std::erase(seen, id);
  for (std::uint32_t thread = 0; thread < of_thread_.size(); ++thread) {
    for (PersistEntry& entry : of_thread_[thread]) {
      if (std::erase(entry.depends, id) == 0) continue;
      note(PersistEvent::Kind::Resolved, now, entry.id, {id});
    }
  }
}

void PersistBuffers::note(PersistEvent::Kind kind, Time at, PersistId id,
                          std::vector<PersistId> depends) {
  if (log_ != nullptr) log_->push_back({kind, at, id, std::move(depends)});
}

}  // namespace perdure::memsys
