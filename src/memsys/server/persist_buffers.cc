// Dependencies found, kept and resolved: see persist_buffers.h.
#include "memsys/server/persist_buffers.h"

#include "core/assert.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace perdure::memsys {

std::string to_string(PersistId id) { return fmt::format("{}:{}", id.thread, id.number); }

PersistBuffers::PersistBuffers(const Processor& processor, std::uint32_t remote_channels,
                               BufferMutant mutant, BufferRules rules)
    : processor_(processor),
      mutant_(mutant),
      rules_(rules),
      of_thread_(processor.threads() + remote_channels),
      next_number_(of_thread_.size()),
      epoch_(of_thread_.size()),
      strand_(of_thread_.size()),
      waits_(of_thread_.size()),
      sees_at_(of_thread_.size()),
      wrote_(of_thread_.size()),
      seen_fences_(of_thread_.size()),
      held_back_(of_thread_.size()),
      commit_at_(of_thread_.size()),
      fences_(of_thread_.size()),
      used_(processor.cores + 1) {}

std::string PersistBuffers::name(std::uint32_t thread) const {
  return is_remote(thread) ? fmt::format("channel {}", thread - processor_.threads())
                           : fmt::format("thread {}", thread);
}

std::string PersistBuffers::describe_oldest(std::uint32_t thread) const {
  const PersistEntry& oldest = of_thread_[thread].front();
  std::string text =
      fmt::format("{} {}, which ", oldest.fence ? "barrier" : "write", oldest.id.number);
  if (!oldest.depends.empty()) {
    text += "waits for ";
    for (const PersistId id : oldest.depends) {
      text += fmt::format("{}{} of {}", id == oldest.depends.front() ? "" : " and ", id.number,
                          name(id.thread));
    }
    return text;
  }
  switch (oldest.stage) {
    case PersistStage::Waiting: text += "the persist buffer holds"; break;
    case PersistStage::Queued: text += "the ordering controller holds"; break;
    case PersistStage::Sent: text += "the memory controller holds"; break;
    case PersistStage::Held: text += "memory has"; break;
  }
  return text;
}

bool PersistBuffers::has_room(std::uint32_t thread) const {
  const std::uint64_t size =
      is_remote(thread) ? processor_.remote_entries : processor_.buffer_entries;
  return used_[buffer_of(thread)] < size;
}

bool PersistBuffers::has_room_for_fence(std::uint32_t thread) const {
  if (!rules_.by_epoch) return has_room(thread);
  return !rules_.sends_ahead || fences_[thread] < processor_.epoch_entries;
}

PersistEntry& PersistBuffers::find(PersistId id) {
  std::deque<PersistEntry>& entries = of_thread_[id.thread];
  const auto found = std::find_if(entries.begin(), entries.end(),
                                  [&](const PersistEntry& e) { return e.id == id; });
  PERDURE_ASSERT(found != entries.end());
  return *found;
}

const PersistEntry& PersistBuffers::entry(PersistId id) const {
  const std::deque<PersistEntry>& entries = of_thread_[id.thread];
  const auto found = std::find_if(entries.begin(), entries.end(),
                                  [&](const PersistEntry& e) { return e.id == id; });
  PERDURE_ASSERT(found != entries.end());
  return *found;
}

bool PersistBuffers::may_be_restored(PersistId id, Time now) const {
  const std::deque<PersistEntry>& entries = of_thread_[id.thread];
  const auto found = std::find_if(entries.begin(), entries.end(),
                                  [&](const PersistEntry& e) { return e.id == id; });
  return found == entries.end() || (!found->ahead && is_safe(id, now));
}

void PersistBuffers::note_writer(std::uint32_t thread, std::uint32_t writer,
                                 std::optional<std::uint64_t> line, Time now) {
  if (writer == thread || of_thread_[writer].empty()) return;
  if (rules_.by_epoch) {
    const auto newest = line ? newest_.find(*line) : newest_.end();
    const bool buffered = newest != newest_.end() && newest->second.thread == writer;
    if (buffered && !mutant_.ignores_fences) end_epoch(writer, now);
    const std::size_t seen = seen_fences_[thread].size();
    note_last_fence(thread, writer, 0);
    if (seen_fences_[thread].size() > seen) end_epoch(thread, now);
    return;
  }
  // Strands follow each other in the buffer. Most of the time there is one.
  const std::uint64_t first = of_thread_[writer].front().strand;
  for (std::uint64_t strand = of_thread_[writer].back().strand + 1; strand-- > first;) {
    note_last_fence(thread, writer, strand);
  }
}

void PersistBuffers::note_strand(std::uint32_t thread, std::uint64_t strand) {
  note_last_fence(thread, thread, strand);
}

void PersistBuffers::note_last_fence(std::uint32_t thread, std::uint32_t writer,
                                     std::uint64_t strand) {
  if (mutant_.ignores_fences) return;
  const std::deque<PersistEntry>& entries = of_thread_[writer];
  const auto fence = std::find_if(entries.rbegin(), entries.rend(), [&](const PersistEntry& e) {
    return e.fence && e.strand == strand;
  });
  if (fence == entries.rend()) return;
  std::vector<PersistId>& seen = seen_fences_[thread];
  if (std::find(seen.begin(), seen.end(), fence->id) == seen.end()) seen.push_back(fence->id);
}

/// A fence that the program does not have. What the thread saw is for what comes behind it.
void PersistBuffers::end_epoch(std::uint32_t thread, Time now) {
  std::vector<PersistId> seen = std::move(seen_fences_[thread]);
  seen_fences_[thread].clear();
  const Time sees_at = std::exchange(sees_at_[thread], 0);
  add_fence(thread, now);
  seen_fences_[thread] = std::move(seen);
  sees_at_[thread] = sees_at;
}

void PersistBuffers::begin_strand(std::uint32_t thread) {
  PERDURE_ASSERT(rules_.strands);
  wrote_[thread] = false;
  ++epoch_[thread];
  ++strand_[thread];
}

bool PersistBuffers::drains(std::uint32_t thread) const {
  const std::deque<PersistEntry>& own = of_thread_[thread];
  const bool begun = !own.empty() && own.front().stage == PersistStage::Sent;
  return is_remote(thread) || waits_[thread] || begun || !has_room(thread) ||
         used_[buffer_of(thread)] >= hops_flush_entries(processor_.buffer_entries);
}

PersistEntry& PersistBuffers::append(std::uint32_t thread, Time now) {
  PersistEntry entry;
  entry.id = {thread, next_number_[thread]++};
  entry.order = ++order_;
  entry.since = now;
  entry.epoch = epoch_[thread];
  entry.strand = strand_[thread];
  entry.ready = std::exchange(sees_at_[thread], 0);
  entry.depends = std::move(seen_fences_[thread]);
  seen_fences_[thread].clear();
  of_thread_[thread].push_back(std::move(entry));
  ++entries_;
  return of_thread_[thread].back();
}

/// Whether the entry takes new data of its line: it is of the same epoch and still here, and the
/// new data need not wait for a fence that only entries behind it wait for.
bool PersistBuffers::may_coalesce(std::uint32_t thread, PersistId newest) {
  if (!seen_fences_[thread].empty()) return false;
  const std::deque<PersistEntry>& own = of_thread_[thread];
  for (auto e = own.rbegin(); e != own.rend() && !e->fence; ++e) {
    if (e->id == newest) return e->stage < PersistStage::Sent && e->strand == strand_[thread];
    const bool chained = std::any_of(e->depends.begin(), e->depends.end(),
                                     [&](PersistId id) { return find(id).fence; });
    if (chained) return false;
  }
  return false;
}

PersistBuffers::Added PersistBuffers::add_write(std::uint32_t thread, const Write& write) {
  const auto newest = newest_.find(write.line);
  const bool mine = newest != newest_.end() && newest->second.thread == thread;
  if (mine && may_coalesce(thread, newest->second)) {
    --used_[buffer_of(thread)];
    note(PersistEvent::Kind::Coalesced, write.now, newest->second);
    return {newest->second, true, false, false};
  }
  PersistEntry& entry = append(thread, write.now);
  wrote_[thread] = true;
  entry.line = write.line;
  entry.bank = write.bank;
  entry.ready = std::max(entry.ready, write.ready);
  const bool chained = !entry.depends.empty();
  const bool theirs =
      newest != newest_.end() && (!mine || find(newest->second).strand != entry.strand);
  // By epoch it may depend on all that the other one has already.
  const bool whole =
      rules_.by_epoch && theirs &&
      std::any_of(entry.depends.begin(), entry.depends.end(), [&](PersistId id) {
        return id.thread == newest->second.thread && id.number > newest->second.number;
      });
  if (theirs && !whole && !mutant_.ignores_lines) entry.depends.push_back(newest->second);
  const bool direct = theirs && !mine && !mutant_.ignores_lines;
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
  if (!rules_.by_epoch) ++used_[buffer_of(thread)];
  append(thread, now).fence = true;
  ++fences_[thread];
  return true;
}

/// What is sent ahead waits for nothing that it depends on.
bool PersistBuffers::may_queue(std::uint32_t thread, const PersistEntry& entry, std::size_t writes,
                               std::size_t fences) {
  if (!rules_.sends_ahead && !entry.depends.empty()) return false;
  // A channel's entry in the controller is as long as its buffer; by epoch there is no controller.
  if (is_remote(thread) || rules_.by_epoch) return true;
  return entry.fence ? fences < processor_.barrier_registers : writes < processor_.queue_entries;
}

Time PersistBuffers::advance(Time now) {
  Time next = kTimeNever;
  bool fence_passed = false;
  for (std::uint32_t thread = 0; thread < of_thread_.size(); ++thread) {
    if (of_thread_[thread].empty()) continue;
    std::size_t writes = 0;
    std::size_t fences = 0;
    std::uint64_t strand = 0;
    bool held = false;  // the strand, by an entry that must wait
    for (PersistEntry& entry : of_thread_[thread]) {
      if (entry.strand != strand) {
        strand = entry.strand;
        fences = 0;
        held = false;
      }
      if (entry.stage == PersistStage::Waiting) {
        if (held || !may_queue(thread, entry, writes, fences)) {
          held = true;
          if (rules_.strands) continue;
          break;
        }
        if (entry.ready > now) {
          next = std::min(next, entry.ready);
          held = true;
          if (rules_.strands) continue;
          break;
        }
        entry.stage = PersistStage::Queued;
        if (!entry.fence) note(PersistEvent::Kind::Queued, now, entry.id);
      }
      ++(entry.fence ? fences : writes);
    }
    if (rules_.sends_ahead) next = std::min(next, commit_oldest(thread, now));
    fence_passed |= pop_fences(thread, now);
  }
  // Others may have waited for it.
  return fence_passed ? advance(now) : next;
}

/// ASAP: the thread's oldest epoch is committed when memory has all of it, all that must be before
/// it counts, and the thread adds nothing more. A message goes to the memory controllers if they
/// keep something of it, and their answer comes back. Returns when more happens by time alone.
Time PersistBuffers::commit_oldest(std::uint32_t thread, Time now) {
  PersistEntry* fence = nullptr;
  bool whole = true;
  bool ahead = false;
  Time settled = 0;
  for (PersistEntry& entry : of_thread_[thread]) {
    settled = std::max(settled, entry.settled);
    whole &= entry.depends.empty() && (entry.fence || entry.stage == PersistStage::Held);
    if (entry.fence) fence = &entry;
    if (entry.fence || !whole) break;
    ahead |= entry.ahead;
  }
  Time& at = commit_at_[thread];
  if (settled > now) return settled;
  if (whole && !ahead && fence != nullptr && fence->ready > now) return fence->ready;
  if (!whole || !ahead || (fence == nullptr && !waits_[thread])) {
    at = 0;
    return kTimeNever;
  }
  if (at == 0) at = now + processor_.crossbar_ps;
  if (at > now) return at;
  at = 0;
  const Epoch epoch{thread, of_thread_[thread].front().epoch};
  release(epoch, 0, ~std::uint32_t{0});
  committed_.push_back(epoch);
  if (fence != nullptr) fence->ready = now + processor_.crossbar_ps;
  return kTimeNever;
}

void PersistBuffers::release(Epoch epoch, std::uint32_t bank_first, std::uint32_t bank_end) {
  for (PersistEntry& entry : of_thread_[epoch.thread]) {
    if (entry.epoch > epoch.number) return;
    const bool there = entry.bank >= bank_first && entry.bank < bank_end;
    if (entry.epoch == epoch.number && there) entry.ahead = false;
  }
}

void PersistBuffers::send(PersistId id, Time now) {
  find(id).stage = PersistStage::Sent;
  held_back_[id.thread] = false;
  note(PersistEvent::Kind::Sent, now, id);
}

void PersistBuffers::send_ahead(PersistId id, Time now) {
  PersistEntry& entry = find(id);
  entry.stage = PersistStage::Sent;
  entry.ahead = true;
  note(PersistEvent::Kind::Sent, now, id);
}

void PersistBuffers::arrived(PersistId id) {
  find(id).stage = PersistStage::Held;
  if (rules_.sends_ahead) --used_[buffer_of(id.thread)];
  held_.push_back(id);
}

bool PersistBuffers::is_safe(PersistId id, Time now) const {
  for (const PersistEntry& entry : of_thread_[id.thread]) {
    if (entry.id.number > id.number) break;
    // What an entry depends on is before all that follow it, too.
    if (!entry.depends.empty() || entry.settled > now) return false;
    if (entry.id == id) return true;
    if (entry.fence && !mutant_.counts_early) return false;
  }
  return true;
}

bool PersistBuffers::counts(PersistId id, Time now) {
  return !rules_.sends_ahead || (!find(id).ahead && is_safe(id, now));
}

std::optional<PersistId> PersistBuffers::next_counted(Time now) {
  const auto found =
      std::find_if(held_.begin(), held_.end(), [&](PersistId id) { return counts(id, now); });
  if (found == held_.end()) return std::nullopt;
  const PersistId id = *found;
  held_.erase(found);
  return id;
}

void PersistBuffers::persisted(PersistId id, Time now) {
  std::deque<PersistEntry>& own = of_thread_[id.thread];
  const auto entry =
      std::find_if(own.begin(), own.end(), [&](const PersistEntry& e) { return e.id == id; });
  PERDURE_ASSERT(entry != own.end());
  const auto newest = newest_.find(entry->line);
  if (newest != newest_.end() && newest->second == id) newest_.erase(newest);
  own.erase(entry);
  if (!rules_.sends_ahead) --used_[buffer_of(id.thread)];
  --entries_;
  note(PersistEvent::Kind::Persisted, now, id);
  resolve(id, now);
  pop_fences(id.thread, now);
}

/// A fence that is the oldest entry of its strand has nothing to hold back any more.
bool PersistBuffers::pop_fences(std::uint32_t thread, Time now) {
  std::deque<PersistEntry>& own = of_thread_[thread];
  const std::uint64_t before = entries_;
  for (std::size_t i = 0; i < own.size();) {
    const PersistEntry& entry = own[i];
    const bool oldest = i == 0 || own[i - 1].strand != entry.strand;
    if (oldest && entry.fence && entry.depends.empty() && entry.ready <= now) {
      const PersistId id = entry.id;
      own.erase(own.begin() + static_cast<std::ptrdiff_t>(i));
      if (!rules_.by_epoch) --used_[buffer_of(thread)];
      --fences_[thread];
      --entries_;
      resolve(id, now);
      continue;
    }
    if (!rules_.strands) break;
    ++i;
  }
  return entries_ != before;
}

void PersistBuffers::resolve(PersistId id, Time now) {
  const Time seen_at =
      rules_.poll_ps == 0 ? 0 : (now + rules_.poll_ps - 1) / rules_.poll_ps * rules_.poll_ps;
  for (std::uint32_t thread = 0; thread < of_thread_.size(); ++thread) {
    if (std::erase(seen_fences_[thread], id) > 0) sees_at_[thread] = seen_at;
    for (PersistEntry& entry : of_thread_[thread]) {
      if (std::erase(entry.depends, id) == 0) continue;
      entry.ready = std::max(entry.ready, seen_at);
      if (rules_.sends_ahead) entry.settled = now + processor_.crossbar_ps;
      note(PersistEvent::Kind::Resolved, now, entry.id, {&id, 1});
    }
  }
}

void PersistBuffers::note(PersistEvent::Kind kind, Time at, PersistId id,
                          std::span<const PersistId> depends) {
  if (log_ != nullptr) log_->push_back({kind, at, id, {depends.begin(), depends.end()}});
}

}  // namespace perdure::memsys
