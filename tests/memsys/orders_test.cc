// The orders of persistence side by side: on each of these traces, some differ, and by how much is
// known. Banks of NVM-A are 2048 bytes apart, rows of a bank 16384; a write persists 268 cycles
// after its row began to open, the next of its bank 300 after that.
#include <gtest/gtest.h>

#include <algorithm>

#include "memsys/broi_priority.h"
#include "tests/memsys/bench_device.h"
#include "tests/memsys/reference.h"

namespace perdure::memsys {
namespace {

RunOutcome run_with(Order order, const std::string& trace) {
  MemoryOptions options;
  options.order = order;
  RunOutcome run = run_trace(nvm(), trace, options);
  EXPECT_TRUE(run.result.ok()) << to_string(order) << ": " << run.result.error().message;
  return run;
}

Cycle persisted(Order order, const std::string& trace) {
  return run_with(order, trace).result->persisted_cycle;
}

/// One write of a bank and a row.
std::string write(int thread, int bank, int row) {
  return fmt::format("T{} W {}\n", thread, bank * 2048 + row * 16384);
}

TEST(Orders, BroiSchedulesFigure6cAsThePaperSays) {
  // 1.1, 1.2, 2.1, 3.1 and 3.2 in bank 0, 2.2 in bank 1, 1.3 in bank 2; a row of its own for each.
  const std::string trace = write(1, 0, 11) + write(1, 0, 12) + "T1 B\n" + write(1, 2, 13) +
                            write(2, 0, 21) + "T2 B\n" + write(2, 1, 22) +  //
                            write(3, 0, 31) + "T3 B\n" + write(3, 0, 32);
  const RunOutcome run = run_with(Order::Broi, trace);
  std::vector<std::pair<Cycle, std::uint32_t>> opened;
  for (const Command& c : run.commands) {
    if (c.kind == CommandKind::Activate) opened.emplace_back(c.cycle, c.row);
  }
  ASSERT_EQ(opened.size(), 7U);
  EXPECT_EQ(opened[0], std::make_pair(Cycle{0}, 21U));  // Sch-SET is {2.1}
  // It is persisted: the Ready-SET is 1.1, 1.2, 2.2, 3.1, and 2.2 goes side by side with bank 0.
  EXPECT_EQ(opened[1].second, 22U);
  EXPECT_LE(opened[1].first, 269U);
  EXPECT_EQ(opened[2].second, 11U);  // its entry brings bank 2 next
  EXPECT_EQ(opened[3].second, 12U);

  // By thread and without a care for banks, 1.1 goes first: it is older.
  for (const Command& c : run_with(Order::Thread, trace).commands) {
    if (c.kind != CommandKind::Activate) continue;
    EXPECT_EQ(c.row, 11U);
    break;
  }

  // Flattened, 2.2 has to wait for all four of bank 0.
  for (const Command& c : run_with(Order::Epoch, trace).commands) {
    if (c.kind != CommandKind::Activate || c.row != 22) continue;
    EXPECT_GE(c.cycle, 268U + 3 * 300);
  }
}

TEST(Orders, Equation2CountsBanksAndTheSizeOfTheSet) {
  using Words = std::vector<std::uint64_t>;
  const Words ready{0b001, 0b001, 0b001};
  EXPECT_DOUBLE_EQ(broi_priority(ready, 0, Words{0b100}, 2, 0.25), 2 - 0.5);
  EXPECT_DOUBLE_EQ(broi_priority(ready, 1, Words{0b010}, 1, 0.25), 2 - 0.25);
  EXPECT_DOUBLE_EQ(broi_priority(ready, 2, Words{0b001}, 1, 0.25), 1 - 0.25);
  // Of two words: banks 0 and 64 are two.
  const Words wide{0b1, 0, 0b1, 0b1, 0b10, 0};
  EXPECT_DOUBLE_EQ(broi_priority(wide, 0, Words{0b1, 0}, 1, 0.25), 3 - 0.25);
  EXPECT_DOUBLE_EQ(broi_priority(wide, 1, Words{0, 0b1}, 1, 0.25), 3 - 0.25);
  EXPECT_DOUBLE_EQ(broi_priority(wide, 2, Words{0b1, 0b1}, 1, 0.25), 2 - 0.25);
}

TEST(Orders, BroiKnowsBanksBeyond64Apart) {
  // Two threads have a write for bank 0. Then T1 has one for bank 0, and T2 one for bank 64: it
  // goes first, though it came later.
  Device device = nvm();
  device.geometry.banks *= 16;
  device.geometry.rows /= 16;
  const auto write = [](int thread, int bank, int row) {
    return fmt::format("T{} W {}\n", thread, (row * 128 + bank) * 2048);
  };
  const std::string trace = write(1, 0, 11) + "T1 B\n" + write(1, 0, 12) +  //
                            write(2, 0, 21) + "T2 B\n" + write(2, 64, 22);
  MemoryOptions options;
  options.order = Order::Broi;
  const RunOutcome run = run_trace(device, trace, options);
  ASSERT_TRUE(run.result.ok()) << run.result.error().message;
  ASSERT_FALSE(run.commands.empty());
  EXPECT_EQ(run.commands.front().row, 21U);
}

TEST(Orders, SyncHoldsTheThreadWhereDelegatedOrdersDoNot) {
  const std::string trace = "W 0\nB\nR 2048\n";
  EXPECT_EQ(run_with(Order::Sync, trace).result->finish_cycle, 268U + 68);
  EXPECT_EQ(run_with(Order::Thread, trace).result->finish_cycle, 68U + 36);
}

TEST(Orders, EpochFlattensWhatIsThereAndGlobalWhatHasTheSameNumber) {
  // T1 comes late with its first epoch: under global all others wait for it.
  const std::string late = write(0, 0, 0) + "T0 B\n" + write(0, 1, 0) + "T1 W 4096 100000\n";
  const RunOutcome global = run_with(Order::Global, late);
  const RunOutcome epoch = run_with(Order::Epoch, late);
  EXPECT_GE(global.result->persisted_cycle, 100268U + 268);
  EXPECT_EQ(epoch.result->persisted_cycle, 100268U);

  // Flattened, T1's second epoch waits for T0's first: three rows of bank 0.
  const std::string busy =
      write(0, 0, 0) + write(0, 0, 1) + write(0, 0, 2) + write(1, 1, 0) + "T1 B\n" + write(1, 2, 0);
  EXPECT_EQ(persisted(Order::Thread, busy), 868U);
  EXPECT_EQ(persisted(Order::Epoch, busy), 868U + 268);
  EXPECT_LE(persisted(Order::Broi, busy), 868U + 4);
}

TEST(Orders, HopsSeesADependencyAtItsNextPoll) {
  const std::string trace = "T0 W 0\nT1 W 0\n";
  EXPECT_LT(persisted(Order::Broi, trace), 500U + 36);
  EXPECT_GE(persisted(Order::Hops, trace), 500U + 36);
}

/// T1 waits for T0's first write, and T0's next event is behind more of T1's than may be held.
RunOutcome far_apart(Order order, std::uint64_t held_max) {
  std::string trace = "T0 W 0\nT1 W 0\nT1 B\n";
  for (int i = 0; i < 100; ++i) trace += write(1, i % 8, 1 + i / 8);
  trace += "T0 W 64\n";
  MemoryOptions options;
  options.order = order;
  options.held_max = held_max;
  return run_trace(nvm(), trace, options);
}

TEST(Orders, AThreadWhoseNextEventIsTooFarAwayKeepsNoWriteBack) {
  for (const Order order : {Order::Thread, Order::Sync, Order::Epoch, Order::Broi, Order::Hops,
                            Order::Strand, Order::Asap, Order::Eadr}) {
    const RunOutcome run = far_apart(order, 16);
    ASSERT_TRUE(run.result.ok()) << to_string(order) << ": " << run.result.error().message;
    EXPECT_TRUE(run.result->lookahead_reached) << to_string(order);
    EXPECT_EQ(run.result->law_checked, 103U) << to_string(order);
  }
}

TEST(Orders, GlobalEndsWithWhoHoldsItBackWhereAnEpochIsTooFarApart) {
  EXPECT_TRUE(far_apart(Order::Global, 1000).result.ok());
  const RunOutcome run = far_apart(Order::Global, 16);
  ASSERT_FALSE(run.result.ok());
  EXPECT_EQ(run.result.error().code, ErrorCode::InvalidArgument);
  EXPECT_NE(run.result.error().message.find(
                "waits for the trace to be read further, which other threads hold back"),
            std::string::npos)
      << run.result.error().message;
}

TEST(Orders, StrandsHaveNoOrderAmongThemselves) {
  const std::string trace = write(0, 0, 0) + "T0 B\n" + write(0, 1, 0) + "T0 S\n" + write(0, 2, 0) +
                            "T0 B\n" + write(0, 3, 0);
  EXPECT_LE(persisted(Order::Strand, trace), 2 * 268U + 8);
  EXPECT_GE(persisted(Order::Thread, trace), 3 * 268U);
}

TEST(Orders, TwoStrandsThatWriteOneLinePersistItInTheirOrder) {
  // The header of a log: the second strand could have it at once, before the first one's.
  const std::string trace = write(0, 0, 0) + "T0 B\n" + write(0, 1, 0) + "T0 S\n" + write(0, 1, 0);
  EXPECT_GE(persisted(Order::Strand, trace), 2 * 268U + 236);
}

TEST(Orders, AsapSendsAheadAndCountsInOrder) {
  const std::string trace = write(0, 0, 0) + "T0 B\n" + write(0, 1, 0) + "T0 B\n" + write(0, 2, 0);
  // Two old values are read, and the bus turns twice from writing to reading.
  EXPECT_LE(persisted(Order::Asap, trace), 268U + 12 + 2 * 36);
  EXPECT_EQ(run_with(Order::Asap, trace).result->old_values, 2U);
  EXPECT_GE(persisted(Order::Thread, trace), 3 * 268U);
  MemoryOptions none;
  none.order = Order::Asap;
  none.buffers.undo_entries = 0;
  const RunOutcome waits = run_trace(nvm(), trace, none);
  EXPECT_EQ(waits.result->persisted_cycle, 3 * 268U) << "without a table its epochs wait";
  EXPECT_EQ(waits.result->old_values, 0U);
  // What any order must take has no old values in it.
  EXPECT_EQ(run_with(Order::Asap, trace).result->lower_bound, waits.result->lower_bound);
}

TEST(Orders, AsapFreesAnEntryWhenMemoryHasItAndNotWhenItCounts) {
  // Three rows of a bank take 868. Behind their barrier come ten lines of a row of another bank, of
  // which five are in the buffer at once.
  std::string trace = write(0, 0, 0) + write(0, 0, 1) + write(0, 0, 2) + "T0 B\n";
  const auto lines = [](int from) {
    std::string text;
    for (int i = 0; i < 10; ++i) text += fmt::format("T0 W {}\n", from + 64 * i);
    return text;
  };
  EXPECT_LE(persisted(Order::Asap, trace + lines(2048)), 868U + 36);
  MemoryOptions options;
  options.order = Order::Asap;
  options.buffers.epoch_entries = 1;
  trace += lines(2048) + "T0 B\n";
  EXPECT_GE(run_trace(nvm(), trace + lines(4096), options).result->persisted_cycle, 868U + 236)
      << "without a place in the epoch table the thread waits at its barrier";
}

TEST(Orders, HopsDependsOnAllThatTheOtherThreadHas) {
  // T0 has three rows of bank 0 in the epoch in which it writes the line.
  const std::string trace =
      write(0, 0, 0) + write(0, 0, 1) + write(0, 0, 2) + write(0, 1, 0) + write(1, 1, 0);
  EXPECT_EQ(persisted(Order::Thread, trace), 868U);
  EXPECT_GE(persisted(Order::Hops, trace), 1000U + 236) << "868, seen at the poll of 1000";
}

TEST(Orders, EadrIsTheCeiling) {
  const std::string trace = write(0, 0, 0) + "T0 B\n" + write(0, 1, 0) + "T0 F\n" + write(0, 2, 0);
  const RunOutcome run = run_with(Order::Eadr, trace);
  EXPECT_EQ(run.result->persisted_cycle, 0U);  // the cache had all of it in cycle 0
  EXPECT_LE(run.result->finish_cycle, 68U + 12);
  EXPECT_GE(persisted(Order::Thread, trace), 3 * 268U);
}

TEST(Orders, SyncCanHaveTheBuffersOfTheOrdersThatItIsComparedWith) {
  // Nine lines of a row and then another epoch: the ninth needs an entry that is persisted.
  std::string trace;
  for (int i = 0; i < 9; ++i) trace += fmt::format("W {}\n", 64 * i);
  trace += "B\nR 2048\n";
  MemoryOptions options;
  options.order = Order::Sync;
  EXPECT_LE(run_trace(nvm(), trace, options).result->persisted_cycle, 268U + 9 * 4);
  options.sync_has_buffers = true;
  const RunOutcome run = run_trace(nvm(), trace, options);
  EXPECT_EQ(run.result->persisted_cycle, 268U + 236);  // a hit in its open row
  // The thread waits at its barrier all the same.
  EXPECT_GE(run.result->finish_cycle, run.result->persisted_cycle + 36);
}

TEST(Orders, RemoteWritesWaitForAnIdleQueueButNotForEver) {
  // The local thread keeps bank 0 busy; the remote one wants bank 1.
  std::string trace = "X0 W 2048\n";
  for (int i = 0; i < 200; ++i) trace += write(0, 0, i);
  const auto remote_sent = [&](double share) {
    MemoryOptions options;
    options.order = Order::Broi;
    options.buffers.remote_share = share;
    const RunOutcome run = run_trace(nvm(), trace, options);
    for (const Command& c : run.commands) {
      if (c.kind == CommandKind::Write && c.bank == 1) return c.cycle;
    }
    return kNever;
  };
  EXPECT_LT(remote_sent(0.25), 100U);
  EXPECT_GE(remote_sent(0), 10'000U);  // the bound on starvation
  EXPECT_LE(remote_sent(0), 10'100U);
}

// The local thread has one write in a controller, of which a quarter of the places is two.
TEST(Orders, RemoteWritesWaitForTheQueuesOfAllChannelsTogether) {
  const auto sent = [](const Device& device, const std::string& trace, auto is_remote) {
    MemoryOptions options;
    options.order = Order::Broi;
    for (const Command& c : run_trace(device, trace, options).commands) {
      if (c.kind == CommandKind::Write && is_remote(c)) return c.cycle;
    }
    return kNever;
  };
  // Four places for reads and four for writes.
  Device device = nvm();
  device.controller.one_queue = false;
  device.controller.read_queue = device.controller.write_queue = 4;
  device.controller.high_watermark = 3;
  device.controller.low_watermark = 1;
  std::string trace = "X0 W 2048\n";
  for (int i = 0; i < 50; ++i) trace += write(0, 0, i);
  EXPECT_LT(sent(device, trace, [](const Command& c) { return c.bank == 1; }), 100U);

  // Four places in each of two channels, which are 512 bytes apart; rows are 4096.
  DeviceKeys keys = small_device();
  keys["channels"] = "2";
  keys["mapping"] = "\"row:bankgroup:bank:channel:column\"";
  trace = "X0 W 512\n";
  for (int i = 0; i < 50; ++i) trace += fmt::format("T0 W {}\n", i % 16 * 4096);
  EXPECT_LT(
      sent(device_of(keys, "window = 4"), trace, [](const Command& c) { return c.channel == 1; }),
      100U);
}

TEST(Orders, ARemoteWriteThatHasWaitedTooLongGoesBeforeLocalOnesOfItsBank) {
  // Two threads always have a write for bank 0, and so has the remote one.
  std::string trace = "X0 W 0\n";
  for (int i = 1; i < 100; ++i) trace += write(0, 0, i) + write(1, 0, 1000 + i);
  MemoryOptions options;
  options.order = Order::Broi;
  options.buffers.remote_wait_max = 3000;
  const RunOutcome run = run_trace(nvm(), trace, options);
  Cycle opened = 0;
  for (const Command& c : run.commands) {
    if (c.kind == CommandKind::Activate && c.row == 0) opened = c.cycle;
  }
  EXPECT_GE(opened, 3000U - 300);
  EXPECT_LE(opened, 3000U + 2 * 300);
}

}  // namespace
}  // namespace perdure::memsys
