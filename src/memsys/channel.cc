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
  sets_.resize(bank_words(banks_.size()));
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
  slot.request = request;
  slot.order = order_++;
  slot.bank = place.bank;
  slot.row = place.row;
  slot.column = place.column;
  slot.next = slot.waits_for = kNone;
  slot.filter = filter_of(place);
  slot.queue = static_cast<std::uint8_t>(queue_of(request.write));
  slot.awaited_across = slot.awaited = slot.opened = false;
  if (lines_waiting_[slot.filter] > 0) find_older_of_line(number);

  Bank& bank = banks_[place.bank];
  const std::size_t queue = slot.queue;
  List& list = bank.lists[queue];
  const bool other_row_open = bank.open && bank.row != place.row;
  const bool other_row_waits = list.head != kNone && slots_[list.tail].row != place.row;
  if (other_row_open || other_row_waits) {
    ++counts_.bank_stalled;
    // Until pre_ready the cells are opened, read or written for the request before.
    const bool at_work =
        now < bank.pre_ready || bank.lists[0].head != kNone || bank.lists[1].head != kNone;
    if (at_work) ++counts_.bank_busy;
  }

  const bool news = append(number, bank, list);
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
  if (news) plan_bank(place.bank, now);
}

/// False: what the bank does next stays what it was, since the request is behind others.
inline bool Channel::append(std::uint32_t number, const Bank& bank, List& list) {
  Slot& slot = slots_[number];
  slot.previous = list.tail;
  bool news = list.tail == kNone;
  if (news) {
    list.head = number;
    set_of(slot.bank).busy[slot.queue] |= bit_of(slot.bank);
  } else {
    slots_[list.tail].next = number;
  }
  list.tail = number;
  ++lines_waiting_[slot.filter];
  if (bank.open && bank.row == slot.row) {
    const std::size_t kind = slot.request.write ? 1 : 0;
    std::uint32_t& candidate = list.candidate[kind];
    ++list.hits[kind];
    news |= candidate == kNone;
    if (candidate == kNone && slot.waits_for == kNone) candidate = number;
  }
  if (news) set_of(slot.bank).stale |= bit_of(slot.bank);
  return news;
}

/// Requests for one line keep their order when one of them writes.
void Channel::find_older_of_line(std::uint32_t number) {
  Slot& slot = slots_[number];
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
  if (!held_by_other_queue(older)) ++forced_[older.queue];
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
      ++ready_[slot.queue];
      list.stale = true;
      set_of(slot.bank).stale |= bit_of(slot.bank);
      if (slot.awaited_across && was_held) ++forced_[slot.queue];
    }
  }
}

/// Two queues: reads are served until many writes wait, then writes until few do. Writes that come
/// as fast as they go would hold reads back for ever: after so many in a row the reads that wait
/// then have their turn.
void Channel::choose_queue() {
  const std::size_t other = 1 - serving_;
  const bool stuck = ready_[serving_] == 0 && ready_[other] > 0;
  if (stuck || (forced_[other] > 0 && forced_[serving_] == 0)) {
    serve(other);
  } else if (forced_[serving_] > 0) {
    return;
  } else if (serving_ == 0) {
    const bool many = waiting_[1] >= device_.controller.high_watermark && reads_turn_ == 0;
    if (many || (waiting_[0] == 0 && waiting_[1] > 0)) serve(1);
  } else {
    const bool few = waiting_[1] <= device_.controller.low_watermark;
    const bool enough = writes_in_a_row_ >= kDrainsInARow * places_[1] && ready_[0] > 0;
    if (enough) reads_turn_ = waiting_[0];
    if ((few && waiting_[0] > 0) || waiting_[1] == 0 || enough) serve(0);
  }
}

void Channel::count_turn(bool write) {
  if (write) {
    writes_in_a_row_ = waiting_[0] > 0 ? writes_in_a_row_ + 1 : 0;
  } else {
    writes_in_a_row_ = 0;
    reads_turn_ -= reads_turn_ > 0 ? 1 : 0;
  }
}

void Channel::serve(std::size_t queue) {
  serving_ = queue;
  for (BankSet& set : sets_) set.stale = ~std::uint64_t{0};
}

void Channel::count_hits(std::uint32_t number) {
  Bank& bank = banks_[number];
  set_of(number).stale |= bit_of(number);
  for (List& list : bank.lists) {
    list.hits = {};
    list.candidate = {kNone, kNone};
    list.stale = true;
    for (std::uint32_t i = list.head; bank.open && i != kNone; i = slots_[i].next) {
      if (slots_[i].row != bank.row) continue;
      ++list.hits[slots_[i].request.write ? 1 : 0];
    }
  }
}

void Channel::find_candidates(const Bank& bank, List& list) {
  list.stale = false;
  for (const bool write : {false, true}) {
    const std::size_t kind = write ? 1 : 0;
    list.candidate[kind] =
        list.hits[kind] == 0 ? kNone : next_candidate(list.head, bank.row, write);
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
  constexpr std::uint64_t kNoKey = kNever << 2;
  for (std::size_t word = 0; const BankSet& set : sets_) {
    for_each_bit(set.busy[serving_] & set.stale, word++, [&](std::uint32_t b) { find_next(b); });
  }
  std::uint64_t best = kNever;  // the cycle and the urgency; from kNoKey on: never
  std::uint64_t best_order = kNever;
  std::uint32_t best_bank = 0;
  std::uint64_t both = 0;
  for (std::size_t word = 0; const BankSet& set : sets_) {
    const std::uint64_t busy = set.busy[serving_];
    both |= busy & set.both_kinds;
    for_each_bit(busy, word++, [&](std::uint32_t bank) {
      const Next& next = next_[bank];
      const std::uint64_t key = time_of(next, next.kind, from) << 2 | next.urgency;
      const bool better = (key < best) | ((key == best) & (next.order < best_order));
      best = better ? key : best;
      best_order = better ? next.order : best_order;
      best_bank = better ? bank : best_bank;
    });
  }
  const Next& next = next_[best_bank];
  plan_ = best < kNoKey
              ? Plan{best >> 2, static_cast<Urgency>(best & 3), next.kind, next.order, best_bank,
                     next.slot}
              : Plan{};
  for (std::size_t word = 0; both != 0 && word < sets_.size(); ++word) {
    for_each_bit(sets_[word].busy[serving_] & sets_[word].both_kinds, word,
                 [&](std::uint32_t bank) { plan_second(bank, from); });
  }
  return best < kNoKey || any_ready();
}

/// Whether a bank has something to do, though it may not be allowed before a refresh.
bool Channel::any_ready() const {
  bool any = false;
  for (std::size_t word = 0; word < sets_.size(); ++word) {
    for_each_bit(sets_[word].busy[serving_], word,
                 [&](std::uint32_t bank) { any |= next_[bank].ready != kNever; });
  }
  return any;
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
  BankSet& set = set_of(number);
  set.stale &= ~bit_of(number);
  set.both_kinds &= ~bit_of(number);
  next.slot = list.head;
  next.write_slot = kNone;
  if (!bank.open) {
    next.ready = bank.act_ready;
    next.kind = CommandKind::Activate;
  } else if (!list.any_hits()) {
    next.ready = bank.pre_ready;
    next.kind = CommandKind::Precharge;
  } else {
    if (list.stale) find_candidates(bank, list);
    const auto [read_slot, write_slot] = list.candidate;
    const bool read = read_slot != kNone;
    next.ready = bank.column_ready;
    next.kind = read ? CommandKind::Read : CommandKind::Write;
    next.slot = read ? read_slot : write_slot;
    if (read && write_slot != kNone) {
      next.write_slot = write_slot;
      set.both_kinds |= bit_of(number);
    }
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
  for (std::size_t word = 0; word < sets_.size(); ++word) {
    for_each_bit(sets_[word].open & ~sets_[word].busy[serving_], word, [&](std::uint32_t number) {
      const Bank& bank = banks_[number];
      const bool hits = bank.lists[0].any_hits() || bank.lists[1].any_hits();
      const Cycle at = std::max(bank.pre_ready, from);
      if (hits || at >= ranks_[bank.rank].refresh_due) return;
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
