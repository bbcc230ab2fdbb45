// Channel: the controller of one channel and the banks behind it. It does not tick: it always knows
// the one command it will send next and the cycle of that, and time jumps there.
//
// FR-FCFS: of the commands that are legal in the earliest cycle, a column command goes first, then
// the one for the oldest request. One command a cycle.
#pragma once

#include "memsys/address_map.h"
#include "memsys/command_log.h"
#include "memsys/device.h"

#include <array>
#include <cstdint>
#include <vector>

namespace perdure::memsys {

struct Request {
  std::uint64_t line = 0;
  std::uint64_t index = 0;  // of the event in the trace
  Cycle accepted = 0;
  std::uint32_t thread = 0;
  bool write = false;
};

/// Sums over a run.
struct ChannelCounts {
  std::uint64_t activates = 0;
  std::uint64_t precharges = 0;
  std::uint64_t refreshes = 0;
  std::uint64_t reads = 0;
  std::uint64_t writes = 0;
  std::uint64_t column_hits = 0;   // column commands that do not follow their own ACT
  std::uint64_t bank_stalled = 0;  // requests that found another row open in their bank, or awaited
  std::uint64_t bank_busy = 0;     // of those, the ones whose bank was at work, and had to finish

  ChannelCounts& operator+=(const ChannelCounts& other) {
    activates += other.activates;
    precharges += other.precharges;
    refreshes += other.refreshes;
    reads += other.reads;
    writes += other.writes;
    column_hits += other.column_hits;
    bank_stalled += other.bank_stalled;
    bank_busy += other.bank_busy;
    return *this;
  }
};

class Channel {
 public:
  /// Requires  a device that parse_device accepted; it and `log` outlive the channel.
  Channel(const Device& device, std::uint32_t number, CommandLog* log);

  /// Whether a place in the queue is free.
  bool can_accept(bool write) const {
    const std::size_t queue = one_queue_ || !write ? 0 : 1;
    return waiting_[queue] < places_[queue];
  }
  /// Requires  can_accept; `now` not before that of any earlier call.
  void accept(const Request& request, const Place& place, Cycle now);

  /// The cycle of the next command if nothing more is accepted; kNever: there is none.
  Cycle next() const { return plan_.at; }
  /// Sends it. True: it was a column command, and `served()` says for what, until the next accept.
  /// Requires  now == next().
  bool step(Cycle now);
  const Request& served() const { return slots_[served_].request; }

  std::size_t waiting() const { return waiting_[0] + waiting_[1]; }
  const ChannelCounts& counts() const { return counts_; }
  /// Lets the refreshes pass that fall into a time without requests. Requires  waiting() == 0.
  void pass_idle_until(Cycle until);

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  static constexpr std::size_t kLineFilter = 1024;
  /// So many queues full of writes are served while reads wait, and then the reads.
  static constexpr std::size_t kDrainsInARow = 16;

  struct Slot {
    Request request;
    std::uint64_t order = 0;
    std::uint32_t bank = 0;
    std::uint32_t row = 0;
    std::uint32_t column = 0;
    std::uint32_t next = kNone;
    std::uint32_t previous = kNone;
    std::uint32_t waits_for = kNone;  // an older request for the same line, one of them a write
    std::uint16_t filter = 0;         // of its line, in lines_waiting_
    std::uint8_t queue = 0;
    bool awaited_across = false;  // by one in the other queue
    bool awaited = false;
    bool opened = false;  // its own ACT was sent
  };

  struct List {
    std::uint32_t head = kNone;
    std::uint32_t tail = kNone;
    // Reads, and writes.
    std::array<std::uint32_t, 2> hits{};                   // for the open row
    std::array<std::uint32_t, 2> candidate{kNone, kNone};  // the oldest hit that may go
    bool stale = true;                                     // the candidates must be found again

    bool any_hits() const { return (hits[0] | hits[1]) != 0; }
  };

  /// What a bank would do next for the queue that is served, and when the bank itself allows it.
  /// Kept beside the banks, close together: every command looks at all of them.
  struct Next {
    Cycle ready = kNever;
    std::uint64_t order = 0;
    std::uint32_t slot = kNone;
    std::uint32_t write_slot = kNone;  // with both kinds of hits
    std::uint16_t rank = 0;
    std::uint16_t group = 0;
    CommandKind kind = CommandKind::Precharge;
    std::uint8_t urgency = 0;
  };

  struct Bank {
    Cycle act_ready = 0;
    Cycle column_ready = 0;
    Cycle pre_ready = 0;
    std::uint32_t row = 0;
    std::uint16_t rank = 0;
    std::uint16_t group = 0;
    bool open = false;
    std::array<List, 2> lists;
  };

  /// 64 banks, a bit each.
  struct BankSet {
    std::array<std::uint64_t, 2> busy{};      // with requests, by queue
    std::uint64_t open = 0;                   // with an open row
    std::uint64_t stale = ~std::uint64_t{0};  // whose Next must be found again
    std::uint64_t both_kinds = 0;             // of the others, with a write_slot in their Next
  };

  /// When the group allows a command, by CommandKind; it never delays PRE and REF.
  using Ready = std::array<Cycle, 5>;

  struct Rank {
    Ready ready{};
    Cycle refresh_due = kNever;
    std::array<Cycle, 4> activates{};  // when the last four may be forgotten
    std::uint32_t oldest_activate = 0;
  };

  enum class Urgency : std::uint8_t { Refresh, Column, Row, Close };
  struct Plan {
    Cycle at = kNever;
    Urgency urgency = Urgency::Close;
    CommandKind kind = CommandKind::Precharge;
    std::uint64_t order = 0;
    std::uint32_t bank = 0;
    std::uint32_t slot = kNone;  // the request it is for
  };

  BankSet& set_of(std::uint32_t bank) { return sets_[bank / 64]; }
  static std::uint64_t bit_of(std::uint32_t bank) { return std::uint64_t{1} << bank % 64; }
  std::size_t queue_of(bool write) const { return one_queue_ || !write ? 0 : 1; }
  static std::uint16_t filter_of(const Place& place) {
    return (place.column ^ place.row * 37 ^ place.bank * 131) % kLineFilter;
  }
  bool append(std::uint32_t slot, const Bank& bank, List& list);
  void remove(std::uint32_t slot);
  void find_older_of_line(std::uint32_t slot);
  bool held_by_other_queue(const Slot& slot) const;
  void release_waiting(std::uint32_t slot);
  void choose_queue();
  void count_turn(bool write);
  void count_hits(std::uint32_t bank);
  void find_candidates(const Bank& bank, List& list);
  /// From `slot` on, the first hit of the kind that waits for no other.
  std::uint32_t next_candidate(std::uint32_t slot, std::uint32_t row, bool write) const {
    for (; slot != kNone; slot = slots_[slot].next) {
      const Slot& each = slots_[slot];
      if (each.row == row && each.request.write == write && each.waits_for == kNone) break;
    }
    return slot;
  }

  void plan(Cycle from);
  bool plan_banks(Cycle from);
  bool any_ready() const;
  void plan_bank(std::uint32_t number, Cycle from);
  void plan_second(std::uint32_t number, Cycle from);
  Cycle time_of(const Next& next, CommandKind kind, Cycle from) const;
  void find_next(std::uint32_t number);
  void serve(std::size_t queue);
  void plan_closing(Cycle from);
  void plan_refreshes(Cycle from);
  void consider(const Plan& plan);

  void send_activate(Cycle now);
  void send_precharge(Cycle now);
  void send_column(Cycle now);
  void send_refresh(Cycle now);
  void delay_columns(const Bank& bank, bool write, Cycle now);
  void log(CommandKind kind, Cycle now, std::uint32_t bank, std::uint32_t row,
           std::uint32_t column);

  const Device& device_;
  const Timing timing_;
  const std::uint32_t number_;
  const bool one_queue_;
  CommandLog* const log_;

  std::array<std::size_t, 2> places_{};
  std::array<std::size_t, 2> waiting_{};
  std::array<std::size_t, 2> ready_{};     // of those, the ones that wait for no other
  std::array<std::uint32_t, 2> forced_{};  // awaited from the other queue, and free to go
  std::size_t serving_ = 0;                // the queue that is served
  std::size_t writes_in_a_row_ = 0;        // since a read was served or none waited
  std::size_t reads_turn_ = 0;             // so many reads are served, however many writes wait

  std::vector<Slot> slots_;
  std::vector<std::uint32_t> free_;
  std::vector<Bank> banks_;
  std::vector<Next> next_;  // of each bank
  std::vector<Ready> groups_;
  std::vector<Rank> ranks_;
  std::vector<BankSet> sets_;
  std::array<std::uint16_t, kLineFilter> lines_waiting_{};
  std::uint64_t order_ = 0;
  Cycle first_refresh_ = kNever;  // the earliest that is due

  Plan plan_;
  std::uint32_t served_ = 0;  // the slot
  ChannelCounts counts_;
};

}  // namespace perdure::memsys
