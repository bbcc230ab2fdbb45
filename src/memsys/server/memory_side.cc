// What enters the memory controllers, and what comes back: see memory_side.h.
#include "memsys/server/memory_side.h"

#include "core/assert.h"

#include <algorithm>
#include <cmath>

namespace perdure::memsys {

MemorySide::MemorySide(const Device& device, PersistPoint point, OrderingController& ordering,
                       PersistBuffers& buffers)
    : device_(device),
      map_(device),
      point_(point),
      clock_ps_(static_cast<Time>(std::llround(device.clock_ns * 1e3))),
      ordering_(ordering),
      buffers_(buffers),
      bank_waiting_(device.geometry.channels * device.geometry.banks_in_channel()),
      recovery_(static_cast<std::uint32_t>(device.geometry.channels),
                buffers.processor().recovery_entries, ordering.recovery_mutant()) {
  PERDURE_ASSERT(clock_ps_ > 0);
  for (std::uint32_t i = 0; i < device.geometry.channels; ++i) {
    channels_.emplace_back(device, i, nullptr);
  }
}

std::uint32_t MemorySide::bank_of(std::uint64_t line) const {
  const Place place = map_.place(line);
  return place.channel * static_cast<std::uint32_t>(device_.geometry.banks_in_channel()) +
         place.bank;
}

void MemorySide::fetch(std::uint64_t line, Time now) {
  fetches_.push(line);
  look(now);
}

void MemorySide::write_back(std::uint64_t line, Time now) {
  write_backs_.push(line);
  look(now);
}

Time MemorySide::next() const {
  Cycle next = look_at_;
  if (!due_.empty()) next = std::min(next, due_[0].cycle);
  for (const Channel& channel : channels_) next = std::min(next, channel.next());
  return next == kNever ? kTimeNever : time_at(next);
}

void MemorySide::step(Time time, Outcome& outcome) {
  const Cycle now = cycle_at(time);
  if (!due_.empty() && due_.front().cycle <= now) {
    // Who waits for these acts before anything else is chosen.
    for (; !due_.empty() && due_.front().cycle <= now; due_.pop()) {
      const Due& due = due_.front();
      if (due.as == kFetch) {
        outcome.fetched.push_back(due.line);
      } else {
        end_persist(due, outcome);
      }
    }
    look_at_ = std::min(look_at_, now);
    return;
  }
  if (look_at_ <= now) enter_one(now);
  open_ = now + 1;
  for (Channel& channel : channels_) {
    if (channel.next() != now || !channel.step(now)) continue;
    on_served(channel.served(), now);
    look_at_ = std::min(look_at_, open_);
  }
}

void MemorySide::end_persist(const Due& due, Outcome& outcome) {
  if (is_asap()) {
    const std::uint64_t order = due.as == kDrain ? due.id.number : buffers_.entry(due.id).order;
    recovery_.landed(due.line, order);
    if (due.as == kDrain) recovery_.drained(map_.place(due.line).channel, due.line, order);
    outcome.changed.push_back(due.line);
  }
  if (due.as == kDrain) return;
  ordering_.on_persisted();
  outcome.persisted.push_back(due.id);
}

/// Fetches first: a thread waits for each. Then persists, and when nothing else wants to, or too
/// many wait, dirty lines.
void MemorySide::enter_one(Cycle now) {
  look_at_ = kNever;
  const bool entered =
      enter_first(fetches_, false, kFetch, now) ||
      (write_backs_.size() >= kWriteBacksMax && enter_first(write_backs_, true, kWriteBack, now)) ||
      enter_persist(now) || enter_first(write_backs_, true, kWriteBack, now);
  if (entered) look_at_ = now + 1;
}

bool MemorySide::enter_first(Ring<std::uint64_t>& waiting, bool write, std::uint32_t as,
                             Cycle now) {
  if (waiting.empty() || !enter(waiting.front(), write, as, 0, now)) return false;
  waiting.pop();
  return true;
}

bool MemorySide::enter_persist(Cycle now) {
  const Time time = time_at(now);
  const Time ready = buffers_.advance(time);
  if (ready != kTimeNever) look_at_ = std::min(look_at_, std::max(now + 1, cycle_at(ready)));
  if (is_asap()) {
    for (const PersistBuffers::Epoch& epoch : buffers_.take_committed()) {
      for (std::uint32_t i = 0; i < channels_.size(); ++i) {
        recovery_.commit(i, epoch.thread, epoch.number);
      }
    }
    if (behind_old_value_ || recovery_.next_drain() != nullptr) return enter_kept(now);
  }
  const auto choice = ordering_.choose(buffers_, {time, bank_waiting_, queue_used()});
  if (choice.ask_again != kTimeNever) {
    look_at_ = std::min(look_at_, std::max(now + 1, cycle_at(choice.ask_again)));
  }
  if (!choice.id) return false;
  const PersistEntry& entry = buffers_.entry(*choice.id);
  if (is_asap()) return enter_ahead(entry, now);
  if (!enter(entry.line, true, choice.id->thread, choice.id->number, now)) return false;
  ordering_.on_sent(entry);
  buffers_.send(*choice.id, time);
  ++bank_waiting_[entry.bank];
  return true;
}

/// ASAP: what a recovery table has asked for: the write behind an old value, or a delay record's.
bool MemorySide::enter_kept(Cycle now) {
  if (behind_old_value_) {
    if (!enter_write(*behind_old_value_, now)) return false;
    behind_old_value_.reset();
    return true;
  }
  const Recovery::Drain drain = *recovery_.next_drain();
  if (!enter(drain.line, true, kDrain, drain.version.order, now)) return false;
  recovery_.entered(drain.line, drain.version);
  recovery_.pop_drain();
  return true;
}

bool MemorySide::enter_write(const Persist& persist, Cycle now) {
  const PersistId id = persist.version.id;
  if (!enter(persist.line, true, id.thread, id.number, now)) return false;
  recovery_.entered(persist.line, persist.version);
  ++bank_waiting_[persist.bank];
  return true;
}

/// ASAP: a write comes to its controller, ahead of its order or safe.
bool MemorySide::enter_ahead(const PersistEntry& entry, Cycle now) {
  const std::uint32_t channel = map_.place(entry.line).channel;
  if (!channels_[channel].can_accept(false) || !channels_[channel].can_accept(true)) return false;
  const Time time = time_at(now);
  const bool safe = buffers_.is_safe(entry.id, time);
  const auto banks = static_cast<std::uint32_t>(device_.geometry.banks_in_channel());
  if (safe) {
    buffers_.release({entry.id.thread, entry.epoch}, channel * banks, (channel + 1) * banks);
  }
  const Persist persist{{entry.order, entry.id}, entry.line, entry.bank};
  const Recovery::Way way = recovery_.admit(channel, entry, safe);
  switch (way) {
    case Recovery::Way::Refused: buffers_.hold_back(entry.id.thread); [[fallthrough]];
    case Recovery::Way::Later: look_at_ = std::min(look_at_, now + 1); return false;
    case Recovery::Way::Recorded: add_due({now + 1, entry.line, entry.id, entry.id.thread}); break;
    case Recovery::Way::Undo:
      behind_old_value_ = persist;
      if (buffers_.processor().old_value_reads > 0) {
        enter(entry.line, false, kOldValue, 0, now);
      } else {
        enter_kept(now);
      }
      break;
    case Recovery::Way::Write: enter_write(persist, now); break;
  }
  ordering_.on_sent(entry);
  if (safe) {
    buffers_.send(entry.id, time);
  } else {
    buffers_.send_ahead(entry.id, time);
  }
  return true;
}

bool MemorySide::enter(std::uint64_t line, bool write, std::uint32_t thread, std::uint64_t index,
                       Cycle now) {
  const Place place = map_.place(line);
  Channel& channel = channels_[place.channel];
  if (!channel.can_accept(write)) return false;
  channel.accept({line, index, now, thread, write}, place, now);
  const bool persist = write && thread != kWriteBack;
  if (persist && point_ == PersistPoint::Accept) add_due({now + 1, line, {thread, index}, thread});
  return true;
}

void MemorySide::on_served(const Request& request, Cycle now) {
  const Timing& t = device_.timing;
  if (request.thread == kWriteBack || request.thread == kOldValue) return;
  if (!request.write) {
    add_due({now + t.read_to_burst_end(), request.line, {}, kFetch});
    return;
  }
  if (request.thread != kDrain) --bank_waiting_[bank_of(request.line)];
  if (point_ == PersistPoint::Accept) return;
  const Cycle end = now + t.write_to_burst_end();
  const Cycle persists = point_ == PersistPoint::Bus ? end : end + t.tWR;
  add_due({persists, request.line, {request.thread, request.index}, request.thread});
}

void MemorySide::add_due(const Due& due) {
  due_.push(due);
  for (std::size_t i = due_.size() - 1; i > 0 && due_[i - 1].cycle > due_[i].cycle; --i) {
    std::swap(due_[i - 1], due_[i]);
  }
}

double MemorySide::queue_used() const {
  std::size_t waiting = 0;
  for (const Channel& channel : channels_) waiting += channel.waiting();
  const ControllerOptions& c = device_.controller;
  const std::uint64_t places = c.one_queue ? c.window : c.read_queue + c.write_queue;
  return static_cast<double>(waiting) / static_cast<double>(places * channels_.size());
}

ChannelCounts MemorySide::counts() const {
  ChannelCounts sum;
  for (const Channel& channel : channels_) sum += channel.counts();
  return sum;
}

std::uint64_t MemorySide::bursts() const { return counts().reads + counts().writes; }

}  // namespace perdure::memsys
