// Commands out: what each does to its bank, group, rank and the bus, as earliest cycles of those
// that follow. See channel.h.
#include "core/assert.h"
#include "memsys/channel.h"

#include <algorithm>

namespace perdure::memsys {

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
  set_of(plan_.bank).open |= bit_of(plan_.bank);
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
  set_of(plan_.bank).open &= ~bit_of(plan_.bank);
  count_hits(plan_.bank);
}

/// Of a request that was served, and so was the oldest hit of its kind that might go.
inline void Channel::remove(std::uint32_t number) {
  Slot& slot = slots_[number];
  Bank& bank = banks_[slot.bank];
  const std::size_t queue = slot.queue;
  List& list = bank.lists[queue];
  (slot.previous == kNone ? list.head : slots_[slot.previous].next) = slot.next;
  (slot.next == kNone ? list.tail : slots_[slot.next].previous) = slot.previous;
  BankSet& set = set_of(slot.bank);
  if (list.head == kNone) set.busy[queue] &= ~bit_of(slot.bank);
  const bool write = slot.request.write;
  const std::size_t kind = write ? 1 : 0;
  --list.hits[kind];
  const std::uint32_t follows =
      list.hits[kind] == 0 ? kNone : next_candidate(slot.next, bank.row, write);
  list.candidate[kind] = follows;
  if (follows != kNone && (set.both_kinds & bit_of(slot.bank)) == 0) {
    // The usual case: the next hit takes its place.
    Next& next = next_[slot.bank];
    next.ready = bank.column_ready;
    next.slot = follows;
    next.order = slots_[follows].order;
  } else {
    set.stale |= bit_of(slot.bank);
  }
  --lines_waiting_[slot.filter];
  --waiting_[queue];
  --ready_[queue];
  free_.push_back(number);
}

/// What the burst on the bus, and the way it goes, mean for the next ones.
inline void Channel::delay_columns(const Bank& bank, bool write, Cycle now) {
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

  served_ = number;
  if (slot.awaited) release_waiting(number);
  if (slot.awaited_across) --forced_[slot.queue];
  remove(number);
  if (one_queue_) return;
  count_turn(write);
  choose_queue();
}

void Channel::send_refresh(Cycle now) {
  const auto in_rank = static_cast<std::uint32_t>(device_.geometry.banks_in_rank());
  const std::uint32_t first = plan_.bank;
  log(CommandKind::Refresh, now, first, 0, 0);
  ++counts_.refreshes;
  for (std::uint32_t i = first; i < first + in_rank; ++i) {
    banks_[i].act_ready = now + timing_.tRFC;
    set_of(i).stale |= bit_of(i);
  }
  ranks_[first / in_rank].refresh_due += timing_.tREFI;
  first_refresh_ = kNever;
  for (const Rank& rank : ranks_) first_refresh_ = std::min(first_refresh_, rank.refresh_due);
}

void Channel::pass_idle_until(Cycle until) {
  if (log_ != nullptr || timing_.tREFI == 0) return;
  for (const BankSet& set : sets_) {
    if (set.open != 0) return;
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
