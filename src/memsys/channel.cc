// Requests in, and the choice of the next command: see channel.h. What a command does to the banks
// is in channel_commands.cc.
#include "memsys/channel.h"

#include "core/assert.h"
#include "memsys/bank_bits.h"

#include <algorithm>

namespace perdure::memsys {
Channel::Channel(const Device& device, std::uint32_t number, CommandLog* log)
    : device_(device),
      timing_(device.timing),
      number_(number),
      one_queue_(device.controller.one_queue),
      log_(log),
      banks_(device.geometry.banks_in_channel()),
      next_(banks_.size()),
      groups_(device.geometry.ranks * device.geometry.bank_groups),
      ranks_(device.geometry.ranks) {
  const ControllerOptions& c = device.controller;
  places_ = one_queue_ ? std::array<std::size_t, 2>{c.window, 0}
                       : std::array<std::size_t, 2>{c.read_queue, c.write_queue};
  slots_.resize(places_[0] + places_[1]);
  for (std::size_t i = slots_.size(); i-- > 0;) free_.push_back(static_cast<std::uint32_t>(i));
  const std::size_t words = (banks_.size() + 63) / 64;
  busy_.fill(std::vector<std::uint64_t>(words));
  open_.resize(words);
  stale_.assign(words, ~std::uint64_t{0});
  for (std::size_t i = 0; i < banks_.size(); ++i) {
    banks_[i].rank = static_cast<std::uint16_t>(i / device.geometry.banks_in_rank());
    banks_[i].group = static_cast<std::uint16_t>(i / device.geometry.banks);
    next_[i].rank = banks_[i].rank;
    next_[i].group = banks_[i].group;
  }
  if (timing_.tREFI != 0) {
    // Ranks take turns, so that they do not all stand still at once.
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      ranks_[r].refresh_due = timing_.tREFI + timing_.tREFI * r / ranks_.size();
    }
    first_refresh_ = ranks_[0].refresh_due;
  }
  plan(0);
}

// --- requests in -------------------------------------------------------------------------------

void Channel::accept(const Request& request, const Place& place, Cycle now) {
  PERDURE_ASSERT(can_accept(request.write));
  const std::uint32_t number = free_.back();
  free_.pop_back();
  Slot& slot = slots_[number];
  slot = Slot{};
  slot.request = request;
  slot.order = order_++;
  slot.bank = place.bank;
  slot.row = place.row;
  slot.column = place.column;
  find_older_of_line(number);

  Bank& bank = banks_[place.bank];
  const std::size_t queue = queue_of(request.write);
  const List& list = bank.lists[queue];
  const bool other_row_open = bank.open && bank.row != place.row;
  const bool other_row_waits = list.head != kNone && slots_[list.tail].row != place.row;
  if (other_row_open || other_row_waits) {
    ++counts_.bank_stalled;
    // Until pre_ready the cells are opened, read or written for the request before.
    const bool at_work =
        now < bank.pre_ready || bank.lists[0].head != kNone || bank.lists[1].head != kNone;
    if (at_work) ++counts_.bank_busy;
  }

  append(number);
  ++waiting_[queue];
  if (slot.waits_for == kNone) ++ready_[queue];
  const std::size_t served_before = serving_;
  if (!one_queue_) choose_queue();
  if (serving_ != served_before) return plan(now);
  // A hit keeps the row open that was about to be closed.
  const bool closing = plan_.bank == place.bank && plan_.kind == CommandKind::Precharge;
  const bool spoils_plan = closing && (queue == serving_ || plan_.urgency == Urgency::Close);
  if (queue != serving_ && !spoils_plan) return;
  if (spoils_plan || plan_.urgency == Urgency::Refresh || first_refresh_ <= plan_.at) {
    return plan(now);
  }
  plan_bank(place.bank, now);
}

void Channel::append(std::uint32_t number) {
  Slot& slot = slots_[number];
  Bank& bank = banks_[slot.bank];
  const std::size_t queue = queue_of(slot.request.write);
  List& list = bank.lists[queue];
  slot.previous = list.tail;
  if (list.tail != kNone) {
    slots_[list.tail].next = number;
  } else {
    list.head = number;
    set_bit(busy_[queue], slot.bank);
  }
  list.tail = number;
  set_bit(stale_, slot.bank);
  ++lines_waiting_[filter_of(slot)];
  if (!bank.open || bank.row != slot.row) return;
  std::uint32_t& hits = slot.request.write ? list.write_hits : list.read_hits;
  std::uint32_t& candidate = slot.request.write ? list.write_candidate : list.read_candidate;
  ++hits;
  if (candidate == kNone && slot.waits_for == kNone) candidate = number;
}

void Channel::remove(std::uint32_t number) {
  Slot& slot = slots_[number];
  Bank& bank = banks_[slot.bank];
  const std::size_t queue = queue_of(slot.request.write);
  List& list = bank.lists[queue];
  (slot.previous == kNone ? list.head : slots_[slot.previous].next) = slot.next;
  (slot.next == kNone ? list.tail : slots_[slot.next].previous) = slot.previous;
  if (list.head == kNone) clear_bit(busy_[queue], slot.bank);
  --(slot.request.write ? list.write_hits : list.read_hits);
  list.stale = true;
  set_bit(stale_, slot.bank);
  --lines_waiting_[filter_of(slot)];
  --waiting_[queue];
  --ready_[queue];
  free_.push_back(number);
}

/// Requests for one line keep their order when one of them writes.
void Channel::find_older_of_line(std::uint32_t number) {
  Slot& slot = slots_[number];
  if (lines_waiting_[filter_of(slot)] == 0) return;
  for (const List& list : banks_[slot.bank].lists) {
    for (std::uint32_t i = list.tail; i != kNone; i = slots_[i].previous) {
      Slot& older = slots_[i];
      if (older.row != slot.row || older.column != slot.column) continue;
      if (!older.request.write && !slot.request.write) continue;
      if (slot.waits_for == kNone || older.order > slots_[slot.waits_for].order) {
        slot.waits_for = i;
      }
      break;
    }
  }
  if (slot.waits_for == kNone) return;
  Slot& older = slots_[slot.waits_for];
  older.awaited = true;
  if (one_queue_ || older.request.write == slot.request.write || older.awaited_across) return;
  older.awaited_across = true;
  if (!held_by_other_queue(older)) ++forced_[queue_of(older.request.write)];
}

bool Channel::held_by_other_queue(const Slot& slot) const {
  return slot.waits_for != kNone && slots_[slot.waits_for].request.write != slot.request.write;
}

void Channel::release_waiting(std::uint32_t number) {
  for (List& list : banks_[slots_[number].bank].lists) {
    for (std::uint32_t i = list.head; i != kNone; i = slots_[i].next) {
      Slot& slot = slots_[i];
      if (slot.waits_for != number) continue;
      const bool was_held = !one_queue_ && held_by_other_queue(slot);
      slot.waits_for = kNone;
      ++ready_[queue_of(slot.request.write)];
      list.stale = true;
      set_bit(stale_, slot.bank);
      if (slot.awaited_across && was_held) ++forced_[queue_of(slot.request.write)];
    }
  }
}

/// Two queues: reads are served until many writes wait, then writes until few do.
void Channel::choose_queue() {
  const std::size_t other = 1 - serving_;
  const bool stuck = ready_[serving_] == 0 && ready_[other] > 0;
  if (stuck || (forced_[other] > 0 && forced_[serving_] == 0)) {
    serve(other);
  } else if (forced_[serving_] > 0) {
    return;
  } else if (serving_ == 0) {
    const bool many = waiting_[1] >= device_.controller.high_watermark;
    if (many || (waiting_[0] == 0 && waiting_[1] > 0)) serve(1);
  } else {
    const bool few = waiting_[1] <= device_.controller.low_watermark;
    if ((few && waiting_[0] > 0) || waiting_[1] == 0) serve(0);
  }
}

void Channel::serve(std::size_t queue) {
  serving_ = queue;
  std::fill(stale_.begin(), stale_.end(), ~std::uint64_t{0});
}

void Channel::count_hits(std::uint32_t number) {
  Bank& bank = banks_[number];
  set_bit(stale_, number);
  for (List& list : bank.lists) {
    list.read_hits = list.write_hits = 0;
    list.stale = true;
    for (std::uint32_t i = list.head; bank.open && i != kNone; i = slots_[i].next) {
      if (slots_[i].row != bank.row) continue;
      ++(slots_[i].request.write ? list.write_hits : list.read_hits);
    }
  }
}

void Channel::find_candidates(const Bank& bank, List& list) {
  list.stale = false;
  list.read_candidate = list.write_candidate = kNone;
  std::uint32_t kinds_left = (list.read_hits > 0 ? 1U : 0U) + (list.write_hits > 0 ? 1U : 0U);
  for (std::uint32_t i = list.head; kinds_left > 0 && i != kNone; i = slots_[i].next) {
    const Slot& slot = slots_[i];
    if (slot.row != bank.row || slot.waits_for != kNone) continue;
    std::uint32_t& candidate = slot.request.write ? list.write_candidate : list.read_candidate;
    if (candidate != kNone) continue;
    candidate = i;
    --kinds_left;
  }
}

// --- what comes next ---------------------------------------------------------------------------

void Channel::consider(const Plan& plan) {
  if (plan.at > plan_.at || plan.at == kNever) return;
  if (plan.at == plan_.at) {
    if (plan.urgency > plan_.urgency) return;
    if (plan.urgency == plan_.urgency && plan.order >= plan_.order) return;
  }
  plan_ = plan;
}

void Channel::plan(Cycle from) {
  // Hits of one queue may wait for the other, and keep a row open that others need closed.
  if (!plan_banks(from) && waiting_[1 - serving_] > 0) {
    serve(1 - serving_);
    plan_banks(from);
  }
  if (device_.controller.page == Page::Closed) plan_closing(from);
  if (first_refresh_ <= plan_.at) plan_refreshes(from);
}

/// Every command looks at all banks that have requests, so this loop has no branches to guess: of
/// the earliest the most urgent, of those the oldest.
/// False: nothing that waits in the queue can go on by itself.
bool Channel::plan_banks(Cycle from) {
  const std::vector<std::uint64_t>& busy = busy_[serving_];
  std::uint64_t best = kNever;  // the cycle and the urgency
  std::uint64_t best_order = kNever;
  std::uint32_t best_bank = kNone;
  bool seconds = false;
  bool possible = false;
  for (std::size_t word = 0; word < busy.size(); ++word) {
    for_each_bit(busy[word] & stale_[word], word, [&](std::uint32_t bank) { find_next(bank); });
    for_each_bit(busy[word], word, [&](std::uint32_t bank) {
      const Next& next = next_[bank];
      const Cycle at = time_of(next, next.kind, from);
      const std::uint64_t key = at == kNever ? kNever : at << 2 | next.urgency;
      const bool better = (key < best) | ((key == best) & (next.order < best_order));
      best = better ? key : best;
      best_order = better ? next.order : best_order;
      best_bank = better ? bank : best_bank;
      seconds |= next.write_slot != kNone;
      possible |= next.ready != kNever;
    });
  }
  plan_ = Plan{};
  if (best != kNever) {
    const Next& next = next_[best_bank];
    plan_ = {best >> 2, static_cast<Urgency>(best & 3), next.kind, next.order, best_bank,
             next.slot};
  }
  for (std::size_t word = 0; seconds && word < busy.size(); ++word) {
    for_each_bit(busy[word], word, [&](std::uint32_t bank) { plan_second(bank, from); });
  }
  return possible;
}

/// When the bank, its group, its rank and the bus allow it; a rank whose refresh is due, never.
Cycle Channel::time_of(const Next& next, CommandKind kind, Cycle from) const {
  const Rank& rank = ranks_[next.rank];
  const auto index = static_cast<std::size_t>(kind);
  const Cycle at =
      std::max(std::max(next.ready, from), std::max(groups_[next.group][index], rank.ready[index]));
  return at < rank.refresh_due ? at : kNever;
}

/// What the bank can do for its queue, as far as the bank itself is concerned.
void Channel::find_next(std::uint32_t number) {
  Bank& bank = banks_[number];
  List& list = bank.lists[serving_];
  Next& next = next_[number];
  clear_bit(stale_, number);
  next.slot = list.head;
  next.write_slot = kNone;
  if (!bank.open) {
    next.ready = bank.act_ready;
    next.kind = CommandKind::Activate;
  } else if (list.read_hits + list.write_hits == 0) {
    next.ready = bank.pre_ready;
    next.kind = CommandKind::Precharge;
  } else {
    if (list.stale) find_candidates(bank, list);
    const bool read = list.read_candidate != kNone;
    next.ready = bank.column_ready;
    next.kind = read ? CommandKind::Read : CommandKind::Write;
    next.slot = read ? list.read_candidate : list.write_candidate;
    if (read) next.write_slot = list.write_candidate;
    if (next.slot == kNone) next.ready = kNever;  // all hits wait for the other queue
  }
  const bool column = next.kind == CommandKind::Read || next.kind == CommandKind::Write;
  next.urgency = static_cast<std::uint8_t>(column ? Urgency::Column : Urgency::Row);
  if (next.slot != kNone) next.order = slots_[next.slot].order;
}

void Channel::plan_bank(std::uint32_t number, Cycle from) {
  find_next(number);
  const Next& next = next_[number];
  consider({time_of(next, next.kind, from), static_cast<Urgency>(next.urgency), next.kind,
            next.order, number, next.slot});
  plan_second(number, from);
}

/// The hit of the other kind, which another moment of the bus may allow sooner.
void Channel::plan_second(std::uint32_t number, Cycle from) {
  const Next& next = next_[number];
  if (next.write_slot == kNone) return;
  consider({time_of(next, CommandKind::Write, from), Urgency::Column, CommandKind::Write,
            slots_[next.write_slot].order, number, next.write_slot});
}

/// Closed page: rows that nobody waits for are closed when nothing else is to be sent.
void Channel::plan_closing(Cycle from) {
  for (std::size_t word = 0; word < open_.size(); ++word) {
    for_each_bit(open_[word] & ~busy_[serving_][word], word, [&](std::uint32_t number) {
      const Bank& bank = banks_[number];
      std::uint32_t hits = 0;
      for (const List& list : bank.lists) hits += list.read_hits + list.write_hits;
      const Cycle at = std::max(bank.pre_ready, from);
      if (hits > 0 || at >= ranks_[bank.rank].refresh_due) return;
      consider({at, Urgency::Close, CommandKind::Precharge, number, number, kNone});
    });
  }
}

/// A rank whose refresh is due closes its rows, one PRE each, and is refreshed.
void Channel::plan_refreshes(Cycle from) {
  const auto in_rank = static_cast<std::uint32_t>(device_.geometry.banks_in_rank());
  for (std::uint32_t r = 0; r < ranks_.size(); ++r) {
    if (ranks_[r].refresh_due > plan_.at) continue;
    const Cycle due = std::max(ranks_[r].refresh_due, from);
    Plan close;
    Cycle all_closed = due;
    for (std::uint32_t number = r * in_rank; number < (r + 1) * in_rank; ++number) {
      const Bank& bank = banks_[number];
      all_closed = std::max(all_closed, bank.act_ready);
      if (!bank.open || std::max(due, bank.pre_ready) >= close.at) continue;
      close = {std::max(due, bank.pre_ready),
               Urgency::Refresh,
               CommandKind::Precharge,
               r,
               number,
               kNone};
    }
    if (close.at != kNever) {
      consider(close);
    } else {
      consider({all_closed, Urgency::Refresh, CommandKind::Refresh, r, r * in_rank, kNone});
    }
  }
}

}  // namespace perdure::memsys
