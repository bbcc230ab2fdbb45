// Epochs in, persisted epochs out: see banked_memory.h.
#include "memsys/server/banked_memory.h"

#include "core/assert.h"

#include <fmt/format.h>

#include <algorithm>

namespace perdure::memsys {

BankedMemory::BankedMemory(const Device& device, const Processor& processor,
                           const BankedMemoryOptions& options)
    : processor_(processor),
      first_thread_(processor.threads()),
      log_lines_(options.log_bytes / kCacheLineBytes),
      buffers_(processor, options.connections, {}),
      ordering_(processor, options.ordering, options.mutant),
      memory_(device, options.persist_point, ordering_, buffers_),
      law_(processor.threads() + options.connections, {}),
      connections_(options.connections),
      longest_wait_(memory_.time_at(device.timing.longest_wait()) + processor.crossbar_ps +
                    processor.schedule_ps + processor.remote_wait_ps) {
  PERDURE_ASSERT(device.geometry.line_bytes == kCacheLineBytes);
  PERDURE_ASSERT(is_remote_ordering(options.ordering));
  PERDURE_ASSERT(log_lines_ > 0 && log_lines_ * options.connections <= memory_.lines());
  // Logs of equal size would all begin in the same bank: each begins a row further.
  const std::uint64_t row_lines = device.geometry.row_bytes / kCacheLineBytes;
  for (std::uint32_t i = 0; i < options.connections; ++i) {
    connections_[i].first_line = i * log_lines_;
    connections_[i].cursor = i * row_lines % log_lines_;
  }
}

void BankedMemory::arrive(const sim::RemoteEpoch& epoch, Time now) {
  const std::uint64_t lines = (epoch.bytes + kCacheLineBytes - 1) / kCacheLineBytes;
  connections_[epoch.connection].epochs.push_back({epoch, lines, lines});
  if (open_lines_ == 0) progress_ = now;
  open_lines_ += lines;
  enter(epoch.connection, now);
}

Time BankedMemory::next() const {
  const Time next = memory_.next();
  const bool stuck = open_lines_ > 0 && next > progress_ && next - progress_ > longest_wait_;
  return stuck ? sim::kTimeNever : next;
}

std::string BankedMemory::blocked(std::uint32_t connection) const {
  const std::uint32_t thread = thread_of(connection);
  return buffers_.of(thread).empty() ? "" : buffers_.describe_oldest(thread);
}

/// What there is room for.
void BankedMemory::enter(std::uint32_t connection, Time now) {
  Connection& me = connections_[connection];
  const std::uint32_t thread = thread_of(connection);
  for (; me.fenced < me.epochs.size(); ++me.fenced) {
    if (!enter_lines(connection, me.epochs[me.fenced], now)) return;
    if (!buffers_.has_room(thread)) return;
    buffers_.add_fence(thread, now);
    law_.on_barrier(thread);
  }
}

bool BankedMemory::enter_lines(std::uint32_t connection, Arrived& arrived, Time now) {
  Connection& me = connections_[connection];
  const std::uint32_t thread = thread_of(connection);
  for (; arrived.to_enter > 0; --arrived.to_enter) {
    if (!buffers_.has_room(thread)) return false;
    buffers_.reserve(thread);
    const std::uint64_t line = me.first_line + me.cursor;
    me.cursor = (me.cursor + 1) % log_lines_;
    law_.on_access(thread, line, true);
    const Time ready = now + processor_.crossbar_ps + processor_.schedule_ps;
    const auto added = buffers_.add_write(thread, {line, memory_.bank_of(line), ready, now});
    memory_.look(ready);
    if (added.coalesced) {
      law_.on_coalesced(thread, line, me.writes.at(added.id.number).law_index);
      --open_lines_;
      --arrived.open;  // a log shorter than the epoch: the entry's data are replaced
      continue;
    }
    me.writes[added.id.number] = {arrived.epoch.number, law_.on_write(thread, line)};
  }
  return true;
}

void BankedMemory::step(Time now, std::vector<sim::RemoteEpoch>& persisted) {
  outcome_.clear();
  memory_.step(now, outcome_);
  for (const PersistId id : outcome_.persisted) on_persisted(id, now, persisted);
  // Fences may have gone too, which nobody tells.
  for (std::uint32_t i = 0; i < connections_.size(); ++i) enter(i, now);
}

void BankedMemory::on_persisted(PersistId id, Time now, std::vector<sim::RemoteEpoch>& persisted) {
  const std::uint32_t connection = id.thread - first_thread_;
  Connection& me = connections_[connection];
  const auto write = me.writes.find(id.number);
  PERDURE_ASSERT(write != me.writes.end());
  const auto& entries = buffers_.of(id.thread);
  const auto entry = std::find_if(entries.begin(), entries.end(),
                                  [&](const PersistEntry& e) { return e.id == id; });
  PERDURE_ASSERT(entry != entries.end());
  law_.on_persist(id.thread, entry->line, write->second.law_index, now);
  const auto arrived = std::find_if(me.epochs.begin(), me.epochs.end(), [&](const Arrived& each) {
    return each.epoch.number == write->second.epoch;
  });
  PERDURE_ASSERT(arrived != me.epochs.end());
  me.writes.erase(write);
  --open_lines_;
  progress_ = now;
  buffers_.persisted(id, now);
  memory_.look(now);
  if (--arrived->open > 0) return;
  persisted.push_back(arrived->epoch);
  if (static_cast<std::size_t>(arrived - me.epochs.begin()) < me.fenced) {
    --me.fenced;
  } else {
    // All its lines entered the buffer, and there was no room for its fence until now.
    buffers_.add_fence(id.thread, now);
    law_.on_barrier(id.thread);
  }
  me.epochs.erase(arrived);
}

Result<void> BankedMemory::verdict() const {
  if (law_.holds()) return {};
  return Error{ErrorCode::ProtocolError,
               fmt::format("the order of persistence is broken: {}", law_.broken())};
}

}  // namespace perdure::memsys
