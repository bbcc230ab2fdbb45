// Persist buffers and the policies behind them: see buffered_admission.h.
#include "memsys/buffered_admission.h"

#include "core/assert.h"

#include <fmt/format.h>

#include <algorithm>

#include "memsys/bank_bits.h"
#include "memsys/broi_priority.h"

namespace perdure::memsys {
namespace {

/// Of all channels, for reads and writes: what waits is counted so, too.
std::uint64_t places_of(const Device& device) {
  const ControllerOptions& c = device.controller;
  const std::uint64_t places = c.one_queue ? c.window : c.read_queue + c.write_queue;
  return places * device.geometry.channels;
}

}  // namespace

BufferedAdmission::BufferedAdmission(TraceStreams& streams, const TraceSummary& summary,
                                     const Device& device, Order order, BufferOptions options,
                                     Mutant mutant)
    : streams_(streams),
      map_(device),
      order_(order),
      options_(options),
      mutant_(mutant),
      places_(places_of(device)),
      banks_in_channel_(static_cast<std::uint32_t>(device.geometry.banks_in_channel())),
      threads_(summary.threads.size()),
      bank_waiting_(device.geometry.channels * banks_in_channel_),
      records_(device.geometry.channels) {
  for (std::size_t i = 0; i < threads_.size(); ++i) {
    threads_[i].remote = summary.threads[i].name.remote;
    if (summary.threads[i].events > 0) threads_[i].wake = 0;
  }
}

void BufferedAdmission::on_read(const TraceEvent& event) {
  if (threads_.size() < 2 || event.kind != EventKind::Write) return;
  pending_.add(event);
}

std::uint32_t BufferedAdmission::bank_of(std::uint64_t line) const {
  const Place place = map_.place(line);
  return place.channel * banks_in_channel_ + place.bank;
}

// --- cores: events into buffers ----------------------------------------------------------------

/// Takes the thread's events until one has to wait.
void BufferedAdmission::issue(std::uint32_t number) {
  Thread& thread = threads_[number];
  thread.waits = false;
  thread.wake = kNever;
  while (!thread.read_ready) {
    const TraceEvent* event = streams_.peek(number);
    if (event == nullptr) {
      // Too far away: the others go on first, and may wait for what is buffered here.
      thread.waits = streams_.left(number) > 0;
      return;
    }
    if (event->cycle > now_) {
      thread.wake = event->cycle;
      return;
    }
    if (!issue_one(number, *event)) {
      thread.waits = true;
      return;
    }
  }
}

bool BufferedAdmission::issue_one(std::uint32_t number, const TraceEvent& event) {
  Thread& thread = threads_[number];
  const bool fence =
      event.kind == EventKind::Fence || (order_ == Order::Sync && event.kind == EventKind::Barrier);
  switch (event.kind) {
    case EventKind::Read:
      thread.read_ready = true;
      thread.read_since = now_;
      return true;
    case EventKind::Write: return buffer_write(number, event);
    case EventKind::Strand:
      if (order_ == Order::Strand) ++thread.epoch, ++thread.strand;
      break;
    case EventKind::Barrier:
    case EventKind::Fence:
      if (fence && !mutant_.ignores_barriers && order_ != Order::Eadr && !thread.buffer.empty()) {
        return false;
      }
      // The epoch table is full.
      if (order_ == Order::Asap && open_epochs(thread) >= options_.epoch_entries) return false;
      ++thread.epoch;
      break;
  }
  streams_.pop(number);
  return true;
}

/// ASAP: those that ended and do not count yet.
std::uint64_t BufferedAdmission::open_epochs(Thread& thread) {
  const bool begun = !thread.epochs.empty() && thread.epochs.back().number == thread.epoch;
  return thread.epochs.size() - (begun ? 1 : 0);
}

bool BufferedAdmission::buffer_write(std::uint32_t number, const TraceEvent& event) {
  Thread& thread = threads_[number];
  if (thread.occupied >= options_.entries) return false;
  // With eADR the cache is persistent: stores to one line come in the order of the trace.
  if (order_ == Order::Eadr && depends(event)) return false;
  Entry entry;
  entry.event = event;
  entry.since = now_;
  entry.epoch = thread.epoch;
  entry.strand = thread.strand;
  thread.buffer.push_back(entry);
  ++thread.occupied;
  if (order_ == Order::Eadr) {
    given_.push_back({event, now_});
    given_.back().write.cycle = now_;
  }
  if (order_ == Order::Asap) {
    Ring<EpochState>& epochs = thread.epochs;
    if (epochs.empty() || epochs.back().number != thread.epoch) {
      epochs.push({thread.epoch, 0, 0, {}});
    }
    ++epochs.back().unknown;
  }
  streams_.pop(number);
  return true;
}

/// The newest write of another thread to the line of those before it that are not persisted.
const PendingWrites::Write* BufferedAdmission::conflicting(const TraceEvent& event) const {
  if (threads_.size() < 2 || mutant_.ignores_lines) return nullptr;
  const PendingWrites::Write* newest = nullptr;
  const PendingWrites::Write* each = pending_.first(event.line);
  for (; each != nullptr && each->index < event.index; each = pending_.next(*each)) {
    if (each->thread != event.thread) newest = each;
  }
  return newest;
}

bool BufferedAdmission::depends(const TraceEvent& event) const {
  return conflicting(event) != nullptr;
}

/// HOPS: on all that the other thread has up to that write.
bool BufferedAdmission::depends_by_epoch(Entry& entry) const {
  if (const PendingWrites::Write* const other = conflicting(entry.event); other != nullptr) {
    entry.dependent = true;
    entry.after.thread = other->thread;
    entry.after.index = other->index;
    return true;
  }
  if (!entry.dependent) return false;
  const std::vector<Entry>& theirs = threads_[entry.after.thread].buffer;
  return !theirs.empty() && theirs.front().event.index < entry.after.index;
}

// --- persisted ---------------------------------------------------------------------------------

void BufferedAdmission::on_served(const TraceEvent& event) {
  --waiting_;
  if (event.kind != EventKind::Write) return;
  --bank_waiting_[bank_of(event.line)];
}

void BufferedAdmission::resolve(const TraceEvent& write, Cycle cycle) {
  if (order_ == Order::Eadr) return;
  if (order_ != Order::Asap || mutant_.ignores_barriers) {
    given_.push_back({write, cycle});
    return;
  }
  Thread& thread = threads_[write.thread];
  const auto entry = std::find_if(thread.buffer.begin(), thread.buffer.end(),
                                  [&](const Entry& e) { return e.event.index == write.index; });
  PERDURE_ASSERT(entry != thread.buffer.end());
  acknowledgements_.push_back({write.thread, write.index, cycle});
  for (std::size_t i = 0; i < thread.epochs.size(); ++i) {
    EpochState& epoch = thread.epochs[i];
    if (epoch.number != entry->epoch) continue;
    --epoch.unknown;
    epoch.held.emplace_back(write, cycle);
  }
  commit_epochs(thread);
}

/// ASAP: what is known of the oldest epoch counts; when it is whole, so does the next one's.
void BufferedAdmission::commit_epochs(Thread& thread) {
  for (Cycle last = thread.committed; !thread.epochs.empty();) {
    EpochState& epoch = thread.epochs.front();
    for (const auto& [write, cycle] : epoch.held) {
      given_.push_back({write, std::max(cycle, thread.committed)});
      epoch.last = std::max(epoch.last, given_.back().cycle);
    }
    epoch.held.clear();
    last = std::max(last, epoch.last);
    if (epoch.unknown > 0 || epoch.number == thread.epoch) return;
    thread.committed = last;
    thread.epochs.pop();
  }
}

/// ASAP: memory has these writes; whether they count or not, they take no room any more.
void BufferedAdmission::free_acknowledged() {
  std::erase_if(acknowledgements_, [&](const Acknowledgement& each) {
    if (each.cycle > now_) return false;
    Thread& thread = threads_[each.thread];
    const auto entry = std::find_if(thread.buffer.begin(), thread.buffer.end(),
                                    [&](const Entry& e) { return e.event.index == each.index; });
    if (entry == thread.buffer.end()) return true;
    entry->acknowledged = true;
    --thread.occupied;
    return true;
  });
}

void BufferedAdmission::drop(Thread& thread, std::uint64_t index) {
  const auto entry = std::find_if(thread.buffer.begin(), thread.buffer.end(),
                                  [&](const Entry& e) { return e.event.index == index; });
  PERDURE_ASSERT(entry != thread.buffer.end());
  if (entry->recorded) --records_[map_.place(entry->event.line).channel];
  if (!entry->acknowledged) --thread.occupied;
  thread.buffer.erase(entry);
}

void BufferedAdmission::on_persisted(const TraceEvent& write) {
  if (order_ != Order::Eadr) {
    Thread& thread = threads_[write.thread];
    drop(thread, write.index);
    --unpersisted_;
  }
  if (threads_.size() < 2) return;
  pending_.remove(write);
}

// --- the choice --------------------------------------------------------------------------------

bool BufferedAdmission::epoch_allows(const Thread& thread, const Entry& entry) const {
  if (mutant_.ignores_barriers && order_ != Order::Strand) return true;
  switch (order_) {
    case Order::Eadr:
    case Order::Asap: return true;  // may_go_ahead
    case Order::Strand:
      // Two strands that write one line have an order all the same.
      return std::none_of(thread.buffer.begin(), thread.buffer.end(), [&](const Entry& other) {
        if (other.strand == entry.strand) {
          return other.epoch < entry.epoch && !mutant_.ignores_barriers;
        }
        return other.strand < entry.strand && other.event.line == entry.event.line &&
               !mutant_.ignores_lines;
      });
    case Order::Epoch:
      if (thread.round == round_ && thread.round_epoch != entry.epoch) return false;
      return entry.epoch == thread.buffer.front().epoch;
    default: return entry.epoch == thread.buffer.front().epoch;
  }
}

bool BufferedAdmission::may_go(Thread& thread, Entry& entry) {
  if (entry.sent || !epoch_allows(thread, entry)) return false;
  if (order_ == Order::Hops ? depends_by_epoch(entry)
                            : order_ != Order::Eadr && depends(entry.event)) {
    return false;
  }
  if (order_ == Order::Asap) return mutant_.ignores_barriers || may_go_ahead(thread, entry);
  if (order_ != Order::Hops) return true;
  if (entry.dependent) {
    // Others' progress is seen at the next look only.
    entry.not_before = (now_ + options_.poll - 1) / options_.poll * options_.poll;
    entry.dependent = false;
  }
  if (entry.not_before > now_) {
    ready_at_ = std::min(ready_at_, entry.not_before);
    return false;
  }
  const bool last = streams_.left(entry.event.thread) == 0;
  return last || thread.waits || thread.buffer.size() >= options_.flush_entries ||
         thread.buffer.front().sent;
}

/// ASAP: a write that is safe, or for which its controller's table has a place. Of one line and one
/// thread the later one waits until the earlier one's epoch counts.
bool BufferedAdmission::may_go_ahead(Thread& thread, const Entry& entry) {
  if (is_safe(thread, entry)) return true;
  if (thread.held_back) return false;
  for (const Entry& other : thread.buffer) {
    if (other.event.index == entry.event.index) break;
    if (other.event.line == entry.event.line && other.epoch != entry.epoch) return false;
  }
  thread.held_back = records_[map_.place(entry.event.line).channel] >= options_.undo_entries;
  return !thread.held_back;
}

void BufferedAdmission::offer(std::uint32_t number, std::size_t index, double priority) {
  const Entry& entry = threads_[number].buffer[index];
  if (ready_at_ <= now_) {
    if (priority < front_priority_) return;
    if (priority == front_priority_ && entry.since > front_since_) return;
    const bool tie = priority == front_priority_ && entry.since == front_since_;
    if (tie && entry.event.index > front_.index) return;
  }
  ready_at_ = now_;
  front_ = entry.event;
  front_since_ = entry.since;
  front_thread_ = number;
  front_entry_ = index;
  front_is_read_ = false;
  front_priority_ = priority;
  const bool ahead = order_ == Order::Asap && !mutant_.ignores_barriers &&
                     !is_safe(threads_[number], entry) && !entry.old_value;
  if (!ahead) return;
  front_.kind = EventKind::Read;
  front_.index |= kOldValue;
}

void BufferedAdmission::choose() {
  ready_at_ = kNever;
  for (const Thread& thread : threads_) ready_at_ = std::min(ready_at_, thread.wake);
  for (const Acknowledgement& each : acknowledgements_) {
    ready_at_ = std::min(ready_at_, each.cycle);
  }
  ready_at_ = std::max(ready_at_, now_ + 1);
  choose_read();
  if (ready_at_ <= now_) return;
  if (order_ == Order::Broi) return choose_broi();
  choose_first();
  if (order_ != Order::Epoch || ready_at_ <= now_ || unpersisted_ > 0) return;
  // The round is persisted and nobody can add to it: the next barrier is passed, for all.
  ++round_;
  choose_first();
}

/// Reads go first: somebody waits for them.
void BufferedAdmission::choose_read() {
  for (std::uint32_t i = 0; i < threads_.size(); ++i) {
    const Thread& thread = threads_[i];
    if (!thread.read_ready) continue;
    const TraceEvent& event = *streams_.peek(i);
    if (ready_at_ <= now_) {
      if (thread.read_since > front_since_) continue;
      if (thread.read_since == front_since_ && event.index > front_.index) continue;
    }
    ready_at_ = now_;
    front_ = event;
    front_since_ = thread.read_since;
    front_thread_ = i;
    front_is_read_ = true;
  }
}

void BufferedAdmission::choose_first() {
  for (std::uint32_t i = 0; i < threads_.size(); ++i) {
    Thread& thread = threads_[i];
    for (std::size_t k = 0; k < thread.buffer.size(); ++k) {
      if (may_go(thread, thread.buffer[k])) offer(i, k, 0);
    }
  }
}

bool BufferedAdmission::remote_may_go() const {
  return static_cast<double>(waiting_) < options_.remote_share * static_cast<double>(places_);
}

void BufferedAdmission::choose_broi() {
  choose_broi_of(Turn::Starved);
  if (ready_at_ > now_) choose_broi_of(Turn::Local);
  if (ready_at_ > now_ && remote_may_go()) choose_broi_of(Turn::Remote);
}

/// Remote writes go first when they have waited too long, and else last.
bool BufferedAdmission::has_turn(const Thread& thread, Turn turn) {
  if (!thread.remote) return turn == Turn::Local;
  if (turn != Turn::Starved) return turn == Turn::Remote;
  const Cycle starves_at = thread.buffer.front().since + options_.remote_wait_max;
  if (starves_at <= now_) return true;
  ready_at_ = std::min(ready_at_, starves_at);
  return false;
}

/// The first sets of all entries are the Ready-SET; each bank's candidate of the highest priority
/// is sent when none of the bank waits in the controller.
void BufferedAdmission::choose_broi_of(Turn turn) {
  const std::size_t count = threads_.size();
  const std::size_t words = bank_words(bank_waiting_.size());
  std::vector<std::uint64_t> ready(count * words);
  std::vector<std::uint64_t> next(count * words);
  std::vector<std::uint64_t> size(count);
  const auto set_of = [words](std::vector<std::uint64_t>& sets, std::size_t thread) {
    return std::span(sets).subspan(thread * words, words);
  };
  for (std::size_t i = 0; i < count; ++i) {
    const Thread& thread = threads_[i];
    for (const Entry& entry : thread.buffer) {
      const std::uint32_t bank = bank_of(entry.event.line);
      if (entry.epoch == thread.buffer.front().epoch) {
        set_bit(set_of(ready, i), bank);
        ++size[i];
        continue;
      }
      const auto second =
          std::find_if(thread.buffer.begin(), thread.buffer.end(),
                       [&](const Entry& e) { return e.epoch != thread.buffer.front().epoch; });
      if (entry.epoch == second->epoch) set_bit(set_of(next, i), bank);
    }
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    Thread& thread = threads_[i];
    if (thread.buffer.empty() || !has_turn(thread, turn)) continue;
    const double priority = broi_priority(ready, i, set_of(next, i), size[i], options_.sigma);
    for (std::size_t k = 0; k < thread.buffer.size(); ++k) {
      Entry& entry = thread.buffer[k];
      if (!may_go(thread, entry)) continue;
      if (bank_waiting_[bank_of(entry.event.line)] >= options_.bank_depth) continue;
      offer(i, k, priority);
    }
  }
}

void BufferedAdmission::take() {
  Thread& thread = threads_[front_thread_];
  ++waiting_;
  if (front_is_read_) {
    thread.read_ready = false;
    streams_.pop(front_thread_);
  } else if (front_.kind == EventKind::Read) {
    thread.buffer[front_entry_].old_value = true;
  } else {
    Entry& entry = thread.buffer[front_entry_];
    entry.sent = true;
    ++bank_waiting_[bank_of(entry.event.line)];
    if (order_ == Order::Eadr) {
      thread.buffer.erase(thread.buffer.begin() + static_cast<std::ptrdiff_t>(front_entry_));
      --thread.occupied;
    } else {
      ++unpersisted_;
      const bool safe = is_safe(thread, entry);
      entry.recorded = order_ == Order::Asap && !safe;
      records_[map_.place(entry.event.line).channel] += entry.recorded ? 1 : 0;
      if (safe) thread.held_back = false;
      thread.round = round_;
      thread.round_epoch = entry.epoch;
    }
  }
  issue(front_thread_);
  choose();
}

std::string BufferedAdmission::describe_blocked() {
  std::string text;
  for (std::uint32_t i = 0; i < threads_.size(); ++i) {
    const Thread& thread = threads_[i];
    if (thread.buffer.empty() && streams_.left(i) == 0) continue;
    text += fmt::format("{}thread {} has {} writes in its buffer and {} events to come",
                        text.empty() ? "" : "; ", i, thread.buffer.size(), streams_.left(i));
  }
  return text;
}

}  // namespace perdure::memsys
