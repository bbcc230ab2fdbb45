// Watching the order in which writes persist: see persist_law.h.
#include "memsys/persist_law.h"

#include "core/assert.h"

#include <fmt/format.h>

namespace perdure::memsys {

PersistLaw::PersistLaw(const TraceSummary& summary, Options options)
    : options_(options), threads_(summary.threads.size()) {
  for (const auto& thread : summary.threads) names_.push_back(thread.name);
}

void PersistLaw::on_read(const TraceEvent& event) {
  Thread& thread = threads_[event.thread];
  switch (event.kind) {
    case EventKind::Read: return;
    case EventKind::Barrier:
    case EventKind::Fence: ++thread.number; return;
    case EventKind::Strand:
      if (options_.strands) ++thread.strand, ++thread.number;
      return;
    case EventKind::Write: break;
  }
  BlockQueue<Epoch>& epochs = thread.epochs;
  if (epochs.empty() || epochs.back().number != thread.number) {
    epochs.push({thread.number, thread.strand, event.index, 0});
  }
  ++epochs.back().left;
  if (has_lines()) pending_.add(event);
}

void PersistLaw::on_persist(const TraceEvent& write, Cycle cycle) {
  ++checked_;
  check_epoch(write, cycle);
  if (has_lines()) check_line(write, cycle);
}

void PersistLaw::check_epoch(const TraceEvent& write, Cycle cycle) {
  BlockQueue<Epoch>& epochs = threads_[write.thread].epochs;
  PERDURE_ASSERT(!epochs.empty());
  std::size_t own = 0;
  while (own + 1 < epochs.size() && epochs[own + 1].first <= write.index) ++own;
  Epoch& epoch = epochs[own];
  PERDURE_ASSERT(epoch.left > 0);
  for (std::size_t i = 0; i < own; ++i) {
    if (epochs[i].left == 0 || epochs[i].strand != epoch.strand) continue;
    broke(write, cycle, epochs[i].first, "an earlier epoch of its thread, with the write of");
    break;
  }
  --epoch.left;
  while (!epochs.empty() && epochs.front().left == 0) epochs.pop();
}

void PersistLaw::check_line(const TraceEvent& write, Cycle cycle) {
  const PendingWrites::Write* each = pending_.first(write.line);
  for (; each != nullptr && each->index != write.index; each = pending_.next(*each)) {
    if (each->thread == write.thread && !options_.strands) continue;
    broke(write, cycle, each->index, "the write to the same line of");
  }
  PERDURE_ASSERT(each != nullptr);
  pending_.remove(write);
}

std::size_t PersistLaw::room() const {
  std::size_t room = pending_.room();
  for (const Thread& thread : threads_) room += thread.epochs.room();
  return room;
}

void PersistLaw::broke(const TraceEvent& write, Cycle cycle, std::uint64_t earlier,
                       const char* why) {
  if (!broken_.empty()) return;
  broken_ = fmt::format("the write of event {} ({}) persisted in cycle {}, before {} event {} did",
                        write.index, to_string(names_[write.thread]), cycle, why, earlier);
}

}  // namespace perdure::memsys
