// Queues, banks and their timing: see channel.h.
#include "memsys/channel.h"

#include "core/assert.h"

#include <algorithm>
#include <bit>

namespace perdure::memsys {
namespace {

void set_bit(std::vector<std::uint64_t>& bits, std::uint32_t at) {
  bits[at / 64] |= std::uint64_t{1} << at % 64;
}

void clear_bit(std::vector<std::uint64_t>& bits, std::uint32_t at) {
  bits[at / 64] &= ~(std::uint64_t{1} << at % 64);
}

}  // namespace

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
  if (other_row_open || other_row_waits) ++counts_.bank_stalled;

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

namespace {

template <typename Visit>
void for_each_bit(std::uint64_t bits, std::size_t word, Visit visit) {
  for (; bits != 0; bits &= bits - 1) {
    visit(static_cast<std::uint32_t>(word * 64) +
          static_cast<std::uint32_t>(std::countr_zero(bits)));
  }
}

}  // namespace

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

// --- commands out ------------------------------------------------------------------------------

bool Channel::step(Cycle now) {
  PERDURE_ASSERT(now == plan_.at);
  const CommandKind kind = plan_.kind;
  switch (kind) {
    case CommandKind::Activate: send_activate(now); break;
    case CommandKind::Precharge: send_precharge(now); break;
    case CommandKind::Read:
    case CommandKind::Write: send_column(now); break;
    case CommandKind::Refresh: send_refresh(now); break;
  }
  plan(now + 1);
  return kind == CommandKind::Read || kind == CommandKind::Write;
}

void Channel::send_activate(Cycle now) {
  Bank& bank = banks_[plan_.bank];
  Slot& slot = slots_[plan_.slot];
  log(CommandKind::Activate, now, plan_.bank, slot.row, 0);
  ++counts_.activates;
  slot.opened = true;
  bank.open = true;
  bank.row = slot.row;
  // Where hits do not pipeline, the burst of the row before may still be on its way.
  bank.column_ready = std::max(bank.column_ready, now + timing_.tRCD);
  bank.pre_ready = now + timing_.tRAS;
  set_bit(open_, plan_.bank);
  count_hits(plan_.bank);

  Rank& rank = ranks_[bank.rank];
  constexpr auto kActivate = static_cast<std::size_t>(CommandKind::Activate);
  groups_[bank.group][kActivate] = now + timing_.tRRD_L;
  rank.activates[rank.oldest_activate] = now + timing_.tFAW;
  rank.oldest_activate = (rank.oldest_activate + 1) % 4;
  rank.ready[kActivate] = std::max(now + timing_.tRRD, rank.activates[rank.oldest_activate]);
}

void Channel::send_precharge(Cycle now) {
  Bank& bank = banks_[plan_.bank];
  log(CommandKind::Precharge, now, plan_.bank, bank.row, 0);
  ++counts_.precharges;
  bank.open = false;
  bank.act_ready = now + timing_.tRP;
  clear_bit(open_, plan_.bank);
  count_hits(plan_.bank);
}

void Channel::send_column(Cycle now) {
  const std::uint32_t number = plan_.slot;
  Slot& slot = slots_[number];
  Bank& bank = banks_[slot.bank];
  const bool write = slot.request.write;
  log(write ? CommandKind::Write : CommandKind::Read, now, slot.bank, slot.row, slot.column);
  ++(write ? counts_.writes : counts_.reads);
  if (!slot.opened) ++counts_.column_hits;
  const Cycle busy = write ? timing_.write_to_precharge() : timing_.tRTP;
  bank.pre_ready = std::max(bank.pre_ready, now + busy);
  if (!device_.controller.hits_pipeline) {
    bank.column_ready = now + (write ? timing_.write_to_burst_end() : timing_.read_to_burst_end());
  }
  delay_columns(bank, write, now);

  served_ = slot.request;
  if (slot.awaited) release_waiting(number);
  if (slot.awaited_across) --forced_[queue_of(write)];
  remove(number);
  if (!one_queue_) choose_queue();
}

/// What the burst on the bus, and the way it goes, mean for the next ones.
void Channel::delay_columns(const Bank& bank, bool write, Cycle now) {
  const Timing& t = timing_;
  const auto later = [](Cycle& ready, Cycle at) { ready = std::max(ready, at); };
  const Cycle same_way = now + std::max(t.tCCD, t.BL);
  const Cycle end = now + t.write_to_burst_end();
  constexpr auto kRead = static_cast<std::size_t>(CommandKind::Read);
  constexpr auto kWrite = static_cast<std::size_t>(CommandKind::Write);
  const std::size_t way = write ? kWrite : kRead;
  Ready& group = groups_[bank.group];
  later(group[way], now + t.tCCD_L);
  if (write) later(group[kRead], end + t.tWTR_L);
  for (std::uint32_t r = 0; r < ranks_.size(); ++r) {
    Ready& rank = ranks_[r].ready;
    if (!write) later(rank[kWrite], now + t.read_to_write());
    if (r == bank.rank) {
      later(rank[way], same_way);
      if (write) later(rank[kRead], end + t.tWTR);
    } else {
      later(rank[way], now + t.BL + t.tRTRS);
      // The burst of the other rank's read begins CL after its command.
      if (write) later(rank[kRead], std::max(now + 1, end + t.tRTRS - std::min(end, t.CL)));
    }
  }
}

void Channel::send_refresh(Cycle now) {
  const auto in_rank = static_cast<std::uint32_t>(device_.geometry.banks_in_rank());
  const std::uint32_t first = plan_.bank;
  log(CommandKind::Refresh, now, first, 0, 0);
  ++counts_.refreshes;
  for (std::uint32_t i = first; i < first + in_rank; ++i) {
    banks_[i].act_ready = now + timing_.tRFC;
    set_bit(stale_, i);
  }
  ranks_[first / in_rank].refresh_due += timing_.tREFI;
  first_refresh_ = kNever;
  for (const Rank& rank : ranks_) first_refresh_ = std::min(first_refresh_, rank.refresh_due);
}

void Channel::pass_idle_until(Cycle until) {
  if (log_ != nullptr || timing_.tREFI == 0) return;
  for (const std::uint64_t word : open_) {
    if (word != 0) return;
  }
  // The last refresh before `until` is sent as usual, so that its time is felt.
  first_refresh_ = kNever;
  for (Rank& rank : ranks_) {
    if (rank.refresh_due < until) {
      const std::uint64_t passed = (until - rank.refresh_due) / timing_.tREFI;
      rank.refresh_due += passed * timing_.tREFI;
      counts_.refreshes += passed;
    }
    first_refresh_ = std::min(first_refresh_, rank.refresh_due);
  }
  plan(plan_.at == kNever ? 0 : std::min(plan_.at, until));
}

void Channel::log(CommandKind kind, Cycle now, std::uint32_t bank, std::uint32_t row,
                  std::uint32_t column) {
  if (log_ == nullptr) return;
  log_->add({now, kind, number_, bank, row, column});
}

}  // namespace perdure::memsys
