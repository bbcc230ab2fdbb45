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

PersistEntry& PersistBuffers::find(PersistId id) {
  std::deque<PersistEntry>& entries = of_thread_[id.thread];
  const auto found = std::find_if(entries.begin(), entries.end(),
                                  [&](const PersistEntry& e) { return e.id == id; });
  PERDURE_ASSERT(found != entries.end());
  return *found;
}

void PersistBuffers::note_writer(std::uint32_t thread, std::uint32_t writer) {
  if (writer == thread || of_thread_[writer].empty()) return;
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
         used_[buffer_of(thread)] >= kHopsFlushEntries;
}

PersistEntry& PersistBuffers::append(std::uint32_t thread, Time now) {
  PersistEntry entry;
  entry.id = {thread, next_number_[thread]++};
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
  if (theirs && !mutant_.ignores_lines) entry.depends.push_back(newest->second);
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
  ++used_[buffer_of(thread)];
  append(thread, now).fence = true;
  return true;
}

/// For what it depends on. What is sent ahead waits for no barrier; of one line memory has to get
/// the writes in their order.
bool PersistBuffers::must_wait(const PersistEntry& entry) {
  if (!rules_.sends_ahead) return !entry.depends.empty();
  return std::any_of(entry.depends.begin(), entry.depends.end(),
                     [&](PersistId id) { return !find(id).fence; });
}

bool PersistBuffers::may_queue(std::uint32_t thread, const PersistEntry& entry, std::size_t writes,
                               std::size_t fences) {
  if (must_wait(entry)) return false;
  if (is_remote(thread)) return true;  // its controller's entry is as long as its buffer
  if (!entry.fence) return writes < processor_.queue_entries;
  return rules_.sends_ahead || fences < processor_.barrier_registers;
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
    fence_passed |= pop_fences(thread, now);
  }
  // Others may have waited for it.
  return fence_passed ? advance(now) : next;
}

void PersistBuffers::send(PersistId id, Time now) {
  find(id).stage = PersistStage::Sent;
  note(PersistEvent::Kind::Sent, now, id);
}

void PersistBuffers::arrived(PersistId id) {
  find(id).stage = PersistStage::Held;
  held_.push_back(id);
}

bool PersistBuffers::counts(PersistId id) {
  if (!rules_.sends_ahead) return true;
  for (const PersistEntry& entry : of_thread_[id.thread]) {
    // What an entry depends on is before all that follow it, too.
    if (!entry.depends.empty()) return false;
    if (entry.id == id) return true;
    if (entry.fence && !mutant_.counts_early) return false;
  }
  return false;
}

std::optional<PersistId> PersistBuffers::next_counted() {
  const auto found =
      std::find_if(held_.begin(), held_.end(), [&](PersistId id) { return counts(id); });
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
  --used_[buffer_of(id.thread)];
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
      --used_[buffer_of(thread)];
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
      note(PersistEvent::Kind::Resolved, now, entry.id, {&id, 1});
    }
  }
}

void PersistBuffers::note(PersistEvent::Kind kind, Time at, PersistId id,
                          std::span<const PersistId> depends) {
  if (log_ != nullptr) log_->push_back({kind, at, id, {depends.begin(), depends.end()}});
}

}  // namespace perdure::memsys
