// Watching: see server_law.h.
#include "memsys/server/server_law.h"

#include "core/assert.h"

#include <fmt/format.h>

#include <algorithm>

namespace perdure::memsys {
namespace {

TraceSummary summary_of(std::uint32_t threads) {
  TraceSummary summary;
  for (std::uint32_t i = 0; i < threads; ++i) summary.threads.push_back({{i, false}, 0, 0});
  return summary;
}

}  // namespace

ServerLaw::ServerLaw(std::uint32_t threads)
    : memory_(summary_of(threads), {.strands = false}), threads_(threads) {}

void ServerLaw::on_access(std::uint32_t thread, std::uint64_t line, bool writes) {
  Thread& me = threads_[thread];
  const auto found = written_.find(line);
  if (found != written_.end() && found->second.thread != thread &&
      open_before(found->second.thread, found->second.epoch)) {
    const Written& w = found->second;
    const auto same = std::find_if(me.requirements.begin(), me.requirements.end(),
                                   [&](const Requirement& r) { return r.thread == w.thread; });
    if (same == me.requirements.end() || same->epoch < w.epoch) {
      me.requirements.push_back({next_index_, w.thread, w.epoch});
      ++seen_;
    }
  }
  if (!writes) return;
  if (open_before(thread, me.epoch)) {
    written_[line] = {thread, me.epoch};
    if (written_.size() > kWrittenMax) forget();
  } else if (found != written_.end()) {
    written_.erase(found);
  }
}

/// What was written after barriers that are all passed by now.
void ServerLaw::forget() {
  for (auto each = written_.begin(); each != written_.end();) {
    const Written& w = each->second;
    each = open_before(w.thread, w.epoch) ? std::next(each) : written_.erase(each);
  }
}

std::uint64_t ServerLaw::on_write(std::uint32_t thread, std::uint64_t line) {
  const std::uint64_t index = next_index_++;
  memory_.on_read({line, 0, index, thread, EventKind::Write});
  Thread& me = threads_[thread];
  ++me.open[me.epoch];
  me.epoch_of[index] = me.epoch;
  return index;
}

void ServerLaw::on_barrier(std::uint32_t thread) {
  memory_.on_read({0, 0, next_index_++, thread, EventKind::Barrier});
  ++threads_[thread].epoch;
}

void ServerLaw::on_persist(std::uint32_t thread, std::uint64_t line, std::uint64_t index,
                           Cycle at) {
  memory_.on_persist({line, 0, index, thread, EventKind::Write}, at);
  Thread& me = threads_[thread];
  const auto epoch = me.epoch_of.find(index);
  PERDURE_ASSERT(epoch != me.epoch_of.end());
  if (--me.open[epoch->second] == 0) me.open.erase(epoch->second);
  me.epoch_of.erase(epoch);
  for (const Requirement& r : me.requirements) {
    if (!broken_.empty() || index < r.from || !open_before(r.thread, r.epoch)) continue;
    broken_ = fmt::format(
        "write {} of thread {} persisted at {} ps, before all that thread {} had before a barrier "
        "whose later writes it saw",
        index, thread, at, r.thread);
  }
  std::erase_if(me.requirements,
                [&](const Requirement& r) { return !open_before(r.thread, r.epoch); });
}

}  // namespace perdure::memsys
