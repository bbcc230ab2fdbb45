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

ServerLaw::ServerLaw(std::uint32_t threads, PersistLaw::Options options)
    : memory_(summary_of(threads), options), threads_(threads) {}

void ServerLaw::on_access(std::uint32_t thread, std::uint64_t line, bool writes) {
  Thread& me = threads_[thread];
  const auto found = written_.find(line);
  const bool open = found != written_.end() && open_before(found->second);
  const bool mine = found != written_.end() && found->second.thread == thread;
  if (open && !(mine && found->second.begin == me.begin)) {
    const Written& w = found->second;
    const auto same =
        std::find_if(me.requirements.begin(), me.requirements.end(), [&](const Requirement& r) {
          return r.until > next_index_ && r.after.thread == w.thread && r.after.begin == w.begin;
        });
    if (same == me.requirements.end() || same->after.epoch < w.epoch) {
      me.requirements.push_back({.from = next_index_, .after = w});
      ++seen_;
    }
  }
  if (!writes) return;
  const Written now{thread, me.epoch, me.begin};
  if (open_before(now)) {
    written_[line] = now;
    if (written_.size() > kWrittenMax) forget();
  } else if (found != written_.end() && !(mine && open)) {
    written_.erase(found);
  }
}

/// What was written after barriers that are all passed by now.
void ServerLaw::forget() {
  for (auto each = written_.begin(); each != written_.end();) {
    each = open_before(each->second) ? std::next(each) : written_.erase(each);
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

void ServerLaw::on_coalesced(std::uint32_t thread, std::uint64_t line, std::uint64_t into) {
  coalesced_[into].push_back(on_write(thread, line));
}

void ServerLaw::on_barrier(std::uint32_t thread) {
  memory_.on_read({0, 0, next_index_++, thread, EventKind::Barrier});
  ++threads_[thread].epoch;
}

void ServerLaw::on_strand(std::uint32_t thread) {
  memory_.on_read({0, 0, next_index_, thread, EventKind::Strand});
  Thread& me = threads_[thread];
  me.begin = ++me.epoch;
  for (Requirement& r : me.requirements) r.until = std::min(r.until, next_index_);
}

void ServerLaw::on_persist(std::uint32_t thread, std::uint64_t line, std::uint64_t index,
                           Cycle at) {
  persist(thread, line, index, at);
  const auto taken = coalesced_.find(index);
  if (taken == coalesced_.end()) return;
  for (const std::uint64_t later : taken->second) persist(thread, line, later, at);
  coalesced_.erase(taken);
}

void ServerLaw::persist(std::uint32_t thread, std::uint64_t line, std::uint64_t index, Cycle at) {
  memory_.on_persist({line, 0, index, thread, EventKind::Write}, at);
  Thread& me = threads_[thread];
  const auto epoch = me.epoch_of.find(index);
  PERDURE_ASSERT(epoch != me.epoch_of.end());
  if (--me.open[epoch->second] == 0) me.open.erase(epoch->second);
  me.epoch_of.erase(epoch);
  for (const Requirement& r : me.requirements) {
    if (!broken_.empty() || index < r.from || index >= r.until || !open_before(r.after)) continue;
    broken_ = fmt::format(
        "write {} of thread {} persisted at {} ps, before all that thread {} had before a barrier "
        "whose later writes it saw",
        index, thread, at, r.after.thread);
  }
  std::erase_if(me.requirements, [&](const Requirement& r) { return !open_before(r.after); });
}

}  // namespace perdure::memsys
