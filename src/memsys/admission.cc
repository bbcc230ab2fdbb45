// The orders of persistence: see admission.h.
#include "memsys/admission.h"

#include "core/assert.h"
#include "core/named.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace perdure::memsys {
namespace {

constexpr std::array<std::string_view, 9> kOrderNames{"thread", "global", "sync", "epoch", "broi",
                                                      "hops",   "strand", "asap", "eadr"};
constexpr std::uint32_t kNoEpoch = ~std::uint32_t{0};

}  // namespace

std::string_view to_string(Order order) { return kOrderNames.at(static_cast<std::size_t>(order)); }

std::string order_names() { return fmt::format("{}", fmt::join(kOrderNames, "|")); }

Result<Order> parse_order(std::string_view word) {
  return find_named<Order>("order", word, kOrderNames);
}

Admission::Admission(TraceStreams& streams, Order order, Mutant mutant)
    : streams_(streams),
      order_(order),
      mutant_(mutant),
      several_(streams.threads() > 1),
      threads_(streams.threads()) {}

void Admission::on_read(const TraceEvent& event) {
  if (!several_ || event.kind != EventKind::Write) return;
  pending_.add(event);
}

void Admission::start() {
  for (std::uint32_t i = 0; i < threads_.size(); ++i) update(i);
  update_blocked();
}

/// Where the thread stands: control events before its next request are taken here.
void Admission::update(std::uint32_t number) {
  Thread& thread = threads_[number];
  if (thread.ready == kNever && thread.blocked != Blocked::Finished) --blocked_;
  thread.ready = kNever;
  const TraceEvent* event = streams_.peek(number);
  for (; event != nullptr && event->kind > EventKind::Write; event = streams_.peek(number)) {
    if (event->kind != EventKind::Strand) {
      ++thread.epoch;
      const bool fence = event->kind == EventKind::Fence || order_ == Order::Sync;
      (fence ? thread.fence : thread.barrier) = true;
    }
    streams_.pop(number);
  }
  if (event == nullptr) {
    thread.blocked = streams_.left(number) > 0 ? Blocked::Lookahead : Blocked::Finished;
    if (thread.blocked != Blocked::Finished) ++blocked_;
    return;
  }
  Cycle at = std::max(thread.entered, event->cycle);
  bool allowed = true;
  if (thread.fence && !mutant_.ignores_barriers) {
    allowed = thread.unknown == 0;
    at = std::max(at, thread.last_persist);
    if (!allowed) thread.blocked = Blocked::Fence;
  }
  if (allowed && event->kind == EventKind::Write) allowed = allow_write(thread, *event, at);
  if (allowed) {
    thread.ready = at;
  } else {
    ++blocked_;
  }
}

bool Admission::allow_write(Thread& thread, const TraceEvent& event, Cycle& at) {
  if (!mutant_.ignores_barriers) {
    if (order_ == Order::Global) {
      if (thread.epoch != global_epoch_) {
        thread.blocked = Blocked::Epoch;
        return false;
      }
      at = std::max(at, global_open_at_);
    } else if (thread.barrier) {
      if (thread.unknown > 0) {
        thread.blocked = Blocked::Epoch;
        return false;
      }
      at = std::max(at, thread.last_persist);
    }
  }
  return !several_ || mutant_.ignores_lines || allow_line(event, at, thread);
}

/// Writes of other threads to the same line that come first in the trace.
bool Admission::allow_line(const TraceEvent& event, Cycle& at, Thread& thread) {
  // Those that have persisted come first in the trace: later ones wait for this one.
  if (const auto past = past_.find(event.line); past != past_.end()) {
    const Past& line = past->second;
    at = std::max(at, line.thread == event.thread ? line.persisted_by_others : line.persisted);
  }
  const PendingWrites::Write* each = pending_.first(event.line);
  for (; each != nullptr && each->index < event.index; each = pending_.next(*each)) {
    if (each->thread == event.thread) continue;
    if (each->persists == kNever) {
      thread.blocked = Blocked::Line;
      return false;
    }
    at = std::max(at, each->persists);
  }
  return true;
}

void Admission::choose_front() {
  if (threads_.size() == 1) {
    ready_at_ = threads_.front().ready;
    return;
  }
  ready_at_ = kNever;
  std::uint64_t best_index = 0;
  for (std::uint32_t i = 0; i < threads_.size(); ++i) {
    const Cycle ready = threads_[i].ready;
    if (ready == kNever || ready > ready_at_) continue;
    const std::uint64_t index = streams_.peek(i)->index;
    if (ready == ready_at_ && index > best_index) continue;
    ready_at_ = ready;
    best_index = index;
    front_thread_ = i;
  }
}

void Admission::update_blocked() {
  for (std::uint32_t i = 0; blocked_ > 0 && i < threads_.size(); ++i) {
    if (threads_[i].ready == kNever && threads_[i].blocked != Blocked::Finished) update(i);
  }
  if (order_ == Order::Global && global_unknown_ == 0) advance_global_epoch();
  choose_front();
}

void Admission::take() {
  Thread& thread = threads_[front_thread_];
  const bool write = front().kind == EventKind::Write;
  thread.entered = thread.ready;
  thread.fence = false;
  if (write) {
    thread.barrier = false;
    thread.next_write_known = false;
    ++thread.unknown;
    ++global_unknown_;
  }
  streams_.pop(front_thread_);
  update(front_thread_);
  if (blocked_ > 0) {
    update_blocked();
  } else {
    choose_front();
  }
}

void Admission::on_persist_known(const TraceEvent& write, Cycle persists) {
  Thread& thread = threads_[write.thread];
  --thread.unknown;
  --global_unknown_;
  thread.last_persist = std::max(thread.last_persist, persists);
  global_last_persist_ = std::max(global_last_persist_, persists);
  if (several_) {
    PendingWrites::Write* mine = pending_.first(write.line);
    while (mine != nullptr && mine->index != write.index) mine = pending_.next(*mine);
    PERDURE_ASSERT(mine != nullptr);
    mine->persists = persists;
  }
  if (blocked_ > 0) update_blocked();
}

void Admission::on_persisted(const TraceEvent& write) {
  if (!several_) return;
  Past& past = past_[write.line];
  if (past.thread != write.thread) past.persisted_by_others = past.persisted;
  past.thread = write.thread;
  const PendingWrites::Write* mine = pending_.first(write.line);
  while (mine->index != write.index) mine = pending_.next(*mine);
  past.persisted = mine->persists;
  pending_.remove(write);
  if (pending_.first(write.line) == nullptr) remember(write.line, past);
}

void Admission::remember(std::uint64_t line, Past& past) {
  past.remembered_at = remembered_count_++;
  remembered_.push(line);
  if (remembered_.size() <= kLinesRemembered) return;
  const auto oldest = past_.find(remembered_.front());
  remembered_.pop();
  if (oldest == past_.end() || pending_.first(oldest->first) != nullptr) return;
  const bool again = oldest->second.remembered_at + kLinesRemembered >= remembered_count_;
  if (!again) past_.erase(oldest);
}

/// Opens the next epoch when no thread has a write left in this one, and all are known to persist.
void Admission::advance_global_epoch() {
  std::uint32_t next = kNoEpoch;
  for (std::uint32_t i = 0; i < threads_.size(); ++i) {
    next = std::min(next, next_write_epoch(i));
  }
  if (next == kNoEpoch || next <= global_epoch_) return;
  global_epoch_ = next;
  global_open_at_ = global_last_persist_;
  for (std::uint32_t i = 0; blocked_ > 0 && i < threads_.size(); ++i) {
    if (threads_[i].blocked == Blocked::Epoch && threads_[i].ready == kNever) update(i);
  }
}

std::uint32_t Admission::next_write_epoch(std::uint32_t number) {
  Thread& thread = threads_[number];
  if (streams_.writes_left(number) == 0) return kNoEpoch;
  if (thread.next_write_known) return thread.next_write_epoch;
  std::uint32_t epoch = thread.epoch;
  for (std::size_t k = 0;; ++k) {
    const TraceEvent* event = streams_.peek(number, k);
    if (event == nullptr) return thread.epoch;  // too far away: nothing later can be allowed
    if (event->kind == EventKind::Write) break;
    if (event->kind == EventKind::Barrier || event->kind == EventKind::Fence) ++epoch;
  }
  thread.next_write_known = true;
  return thread.next_write_epoch = epoch;
}

std::string Admission::describe_blocked() {
  std::string text;
  for (std::uint32_t i = 0; i < threads_.size(); ++i) {
    const Thread& thread = threads_[i];
    if (thread.ready != kNever || thread.blocked == Blocked::Finished) continue;
    const TraceEvent* event = streams_.peek(i);
    const char* what = "the trace to be read further, which other threads hold back";
    if (thread.blocked == Blocked::Fence) what = "its earlier writes to persist";
    if (thread.blocked == Blocked::Epoch) what = "earlier epochs to persist";
    if (thread.blocked == Blocked::Line) what = "the write to its line by another thread";
    text += fmt::format("{}thread {} (event {}, epoch {}) waits for {}", text.empty() ? "" : "; ",
                        i, event == nullptr ? 0 : event->index, thread.epoch, what);
  }
  return text;
}

}  // namespace perdure::memsys
