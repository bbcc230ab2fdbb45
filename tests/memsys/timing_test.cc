// When commands are sent: each timing from both sides, closed forms, the points of persistence, and
// what keeps a row open.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "testing/temporary_directory.h"
#include "tests/memsys/bench_device.h"
#include "tests/memsys/reference.h"

namespace perdure::memsys {
namespace {

using enum CommandKind;

std::uint64_t number(const DeviceKeys& keys, const std::string& key) {
  return std::stoull(keys.at(key));
}

/// The address of a line of the small device: row:bankgroup:bank:column of 16, 2, 2 and 8.
std::string at(std::uint64_t bank, std::uint64_t row, std::uint64_t column) {
  return std::to_string(((row * 4 + bank) * 8 + column) * 64);
}

/// Cycles between the n-th command of one kind and the first of another after it.
Cycle gap(const std::vector<Command>& log, CommandKind first, CommandKind second,
          std::size_t n = 0) {
  auto from = log.begin();
  for (std::size_t i = 0;; ++i, ++from) {
    from = std::find_if(from, log.end(), [&](const Command& c) { return c.kind == first; });
    if (from == log.end()) return 0;
    if (i == n) break;
  }
  const auto to =
      std::find_if(from + 1, log.end(), [&](const Command& c) { return c.kind == second; });
  return to == log.end() ? 0 : to->cycle - from->cycle;
}

struct TimingCase {
  const char* key;
  std::string trace;
  CommandKind first;
  CommandKind second;
  std::uint64_t value_from = 0;  // what is added to the key's value: the gap
};

TEST(ChannelTiming, EachCommandIsSentInItsFirstLegalCycleAndNotBefore) {
  const TimingCase cases[] = {
      {"tRCD", "R " + at(0, 0, 0), Activate, Read},
      {"tRP", "R " + at(0, 0, 0) + "\nR " + at(0, 1, 0), Precharge, Activate},
      {"tRAS", "R " + at(0, 0, 0) + "\nR " + at(0, 1, 0), Activate, Precharge},
      {"tRRD", "R " + at(0, 0, 0) + "\nR " + at(2, 0, 0), Activate, Activate},
      {"tRRD_L", "R " + at(0, 0, 0) + "\nR " + at(1, 0, 0), Activate, Activate},
      {"tCCD_L", "R " + at(0, 0, 0) + "\nR " + at(0, 0, 1), Read, Read},
      {"tWR", "W " + at(0, 0, 0) + "\nR " + at(0, 1, 0), Write, Precharge, 9 + 4},
      {"tWTR_L", "W " + at(0, 0, 0) + "\nR " + at(0, 0, 1), Write, Read, 9 + 4},
  };
  for (const TimingCase& each : cases) {
    for (const std::uint64_t more : {0, 1, 2}) {
      DeviceKeys keys = small_device();
      const std::uint64_t value = number(keys, each.key) + more;
      keys[each.key] = std::to_string(value);
      const RunOutcome run = run_trace(device_of(keys), each.trace + "\n");
      ASSERT_TRUE(run.result.ok()) << run.result.error().message;
      EXPECT_EQ(gap(run.commands, each.first, each.second), value + each.value_from) << each.key;
      // One cycle earlier, the judge refuses it.
      std::vector<Command> early = run.commands;
      const auto second = std::find_if(early.begin(), early.end(), [&](const Command& c) {
        return c.kind == each.second && c.cycle > early.front().cycle;
      });
      ASSERT_NE(second, early.end());
      EXPECT_EQ(first_breach(device_of(keys), run.commands), "");
    }
  }
}

TEST(ChannelTiming, TheFifthActivateWaitsForTheWindow) {
  DeviceKeys keys = small_device();
  keys["banks"] = "4";
  for (const std::uint64_t window : {40, 41, 47}) {
    keys["tFAW"] = std::to_string(window);
    std::string trace;
    // Alternating groups: only tRRD = 5 delays the first four.
    for (const std::uint64_t bank : {0, 4, 1, 5, 2}) {
      trace += "R " + std::to_string(bank * 512) + "\n";
    }
    const RunOutcome run = run_trace(device_of(keys), trace);
    ASSERT_TRUE(run.result.ok());
    std::vector<Cycle> activates;
    for (const Command& c : run.commands) {
      if (c.kind == Activate) activates.push_back(c.cycle);
    }
    ASSERT_EQ(activates.size(), 5U);
    EXPECT_EQ(activates[4] - activates[0], window);
  }
}

TEST(ChannelTiming, ReadsThenWritesShareTheBusWithoutMeeting) {
  const RunOutcome run =
      run_trace(device_of(small_device()), "R " + at(0, 0, 0) + "\nW " + at(0, 0, 1) + "\n");
  ASSERT_TRUE(run.result.ok());
  EXPECT_EQ(gap(run.commands, Read, Write), 11U + 4 + 2 - 9);  // CL + BL + tRTRS - CWL
}

TEST(ChannelTiming, ARankIsRefreshedWhenDueAndUsedAgainAfterTrfc) {
  DeviceKeys keys = small_device();
  keys["tREFI"] = "500";
  keys["tRFC"] = "77";
  std::string trace = "R " + at(0, 0, 0) + "\nR " + at(0, 0, 1) + " 505\n";
  const RunOutcome run = run_trace(device_of(keys), trace);
  ASSERT_TRUE(run.result.ok());
  // The open row is closed when the refresh is due, not before; then tRP and tRFC.
  const auto find = [&](CommandKind kind) {
    return std::find_if(run.commands.begin(), run.commands.end(),
                        [&](const Command& c) { return c.kind == kind; })
        ->cycle;
  };
  EXPECT_EQ(find(Precharge), 500U);
  EXPECT_EQ(find(Refresh), 513U);
  EXPECT_EQ(gap(run.commands, Refresh, Activate), 77U);
  EXPECT_EQ(run.result->commands.refreshes, 1U);
}

TEST(ChannelTiming, IdleTimeIsPassedInOneStepWithAllItsRefreshes) {
  DeviceKeys keys = small_device();
  keys["tREFI"] = "500";
  keys["tRFC"] = "77";
  const std::string trace = "R 0\nR 64 1000000\n";
  const Device device = device_of(keys);
  const RunOutcome logged = run_trace(device, trace);
  const AddressMap map(device);
  const auto bytes = trace_of(trace);
  TraceReader reader(*bytes, "trace", {map.lines(), map.line_bytes()});
  auto summary = reader.survey(TraceFormat::Perdure);
  ASSERT_TRUE(summary.ok());
  const auto quick = run_memory(device, reader, std::move(summary).value(), {});
  ASSERT_TRUE(quick.ok() && logged.result.ok());
  EXPECT_EQ(quick->finish_cycle, logged.result->finish_cycle);
  EXPECT_EQ(quick->commands.refreshes, logged.result->commands.refreshes);
  EXPECT_EQ(quick->commands.refreshes, 2000U);
}

// --- closed forms ------------------------------------------------------------------------------

Device shipped(const std::string& name) {
  auto device = read_device(CONFIGS "/" + name);
  EXPECT_TRUE(device.ok()) << device.error().message;
  return std::move(device).value();
}

void expect_near(Cycle actual, Cycle expected, const char* what) {
  EXPECT_LE(actual, expected + 4) << what;
  EXPECT_GE(actual + 4, expected) << what;
}

TEST(ClosedForms, OneBankStreamsAndConflictsTakeWhatTheFormulaSays) {
  const Device device = shipped("nvm-a.toml");
  const Timing& t = device.timing;
  constexpr std::uint64_t kRow = 2048 * 8;  // the next row of the same bank
  constexpr std::uint64_t n = 200;
  std::string hits;
  std::string read_conflicts;
  std::string write_conflicts;
  std::string stream;
  for (std::uint64_t i = 0; i < n; ++i) {
    hits += fmt::format("R {}\n", i % 32 * 64);
    read_conflicts += fmt::format("R {}\n", i * kRow);
    write_conflicts += fmt::format("W {}\n", i * kRow);
    stream += fmt::format("R {}\n", i * 64);
  }
  const auto finish = [&](const std::string& trace) {
    return run_trace(device, trace).result->finish_cycle;
  };
  expect_near(finish("R 0\n"), t.tRCD + t.CL + t.BL, "one read");
  expect_near(finish(hits), t.tRCD + (n - 1) * t.tCCD + t.CL + t.BL, "hits");
  expect_near(finish(stream), t.tRCD + (n - 1) * t.tCCD + t.CL + t.BL, "stream");
  const Cycle read_period = std::max(t.tRAS, t.tRCD + t.tRTP) + t.tRP;
  expect_near(finish(read_conflicts), (n - 1) * read_period + t.tRCD + t.CL + t.BL, "reads");
  const Cycle write_period = t.tRCD + t.write_to_precharge() + t.tRP;
  expect_near(finish(write_conflicts), (n - 1) * write_period + t.tRCD + t.CWL + t.BL, "writes");
  EXPECT_EQ(read_period, 100U);  // table III of the BROI paper
  EXPECT_EQ(write_period, 300U);
}

TEST(ClosedForms, HitsThatDoNotPipelineTakeTheirWholeLatency) {
  Device device = shipped("nvm-a.toml");
  device.controller.hits_pipeline = false;
  std::string trace;
  for (int i = 0; i < 20; ++i) trace += fmt::format("R {}\n", i * 64);
  const auto run = run_trace(device, trace);
  EXPECT_EQ(run.result->finish_cycle, 32U + 20 * 36);  // tRCD, then 36 ns each
}

TEST(PersistPoint, DecidesWhenAWriteCounts) {
  const Device device = shipped("nvm-a.toml");
  //                 accepted at 7, ACT 7, WR 39, burst ends 75, cells written 275
  const std::pair<PersistPoint, Cycle> cases[] = {
      {PersistPoint::Accept, 7}, {PersistPoint::Bus, 75}, {PersistPoint::Array, 275}};
  for (const auto& [point, persisted] : cases) {
    MemoryOptions options;
    options.persist_point = point;
    const RunOutcome run = run_trace(device, "W 0 7\n", options);
    EXPECT_EQ(run.result->persisted_cycle, persisted) << to_string(point);
    EXPECT_EQ(run.result->finish_cycle, 75U);
  }
}

// --- epochs ------------------------------------------------------------------------------------

MemoryOptions with(Order order, PersistPoint point = PersistPoint::Array) {
  MemoryOptions options;
  options.order = order;
  options.persist_point = point;
  return options;
}

Cycle persisted(const Device& device, const std::string& trace, MemoryOptions options) {
  const RunOutcome run = run_trace(device, trace, options);
  EXPECT_TRUE(run.result.ok()) << run.result.error().message;
  return run.result.ok() ? run.result->persisted_cycle : 0;
}

TEST(Epochs, AnEpochStartsWhenTheLastOfItsThreadIsPersisted) {
  const Device device = shipped("nvm-a.toml");
  // Two banks: side by side without a barrier, one after the other with it.
  EXPECT_LE(persisted(device, "W 0\nW 2048\n", with(Order::Thread)), 268U + 5);
  EXPECT_EQ(persisted(device, "W 0\nB\nW 2048\n", with(Order::Thread)), 268U + 268U);
  EXPECT_EQ(persisted(device, "W 0\nB\nW 2048\n", with(Order::Thread, PersistPoint::Bus)),
            68U + 68U);
}

TEST(Epochs, BarriersOrderWritesOnlyAndFencesHoldTheThread) {
  const Device device = shipped("nvm-a.toml");
  const auto finish = [&](const std::string& trace) {
    return run_trace(device, trace).result->finish_cycle;
  };
  EXPECT_EQ(finish("W 0\nB\nR 2048\n"), 68U + 36);   // the read goes on: WR to RD on the bus
  EXPECT_EQ(finish("W 0\nF\nR 2048\n"), 268U + 68);  // the read waits for the write
  EXPECT_EQ(finish("W 0\nB\n"), 68U);                // at the end a barrier does nothing
  EXPECT_EQ(finish("B\nB\nW 0\n"), 68U);
}

TEST(Epochs, GlobalMakesOneEpochOfThoseWithTheSameNumber) {
  const Device device = shipped("nvm-a.toml");
  // T1's second epoch need not wait for T0's first, but does when they are one.
  const std::string trace =
      "T0 W 0\nT0 W 16384\nT0 W 32768\n"  // three rows of bank 0: 268, 568, 868
      "T1 W 2048\nT1 B\nT1 W 4096\n";
  EXPECT_EQ(persisted(device, trace, with(Order::Thread)), 868U);
  EXPECT_EQ(persisted(device, trace, with(Order::Global)), 868U + 268);
}

TEST(Epochs, WithoutBarriersThreadAndGlobalAreEqual) {
  const Device device = shipped("nvm-a.toml");
  Random random(15);
  std::string trace;
  for (int i = 0; i < 300; ++i) {
    trace += fmt::format("T{} {} {}\n", random.below(4), random.chance(1, 2) ? "R" : "W",
                         random.below(1 << 20) * 64);
  }
  const RunOutcome thread = run_trace(device, trace, with(Order::Thread));
  const RunOutcome global = run_trace(device, trace, with(Order::Global));
  ASSERT_EQ(thread.commands.size(), global.commands.size());
  for (std::size_t i = 0; i < thread.commands.size(); ++i) {
    EXPECT_EQ(thread.commands[i].cycle, global.commands[i].cycle);
  }
}

TEST(Epochs, OneLineWrittenByTwoThreadsPersistsInTheOrderOfTheTrace) {
  const Device device = shipped("nvm-a.toml");
  // T0's write to line 0 waits for its first epoch; T1's, later in the trace, waits for that.
  const std::string trace = "T0 W 2048\nT0 B\nT0 W 0\nT1 W 0\n";
  EXPECT_EQ(persisted(device, trace, with(Order::Thread)), 268U + 268 + 4 + 32 + 200);
}

TEST(Epochs, ADeadlockIsToldWithWhoWaitsForWhat) {
  // T1's write is of epoch 0 and depends on one of T0's epoch 1: no order of both exists.
  const std::string trace = "T0 W 0\nT0 B\nT0 W 64\nT1 W 64\n";
  const RunOutcome run = run_trace(device_of(small_device()), trace, with(Order::Global));
  ASSERT_FALSE(run.result.ok());
  EXPECT_EQ(run.result.code(), ErrorCode::InvalidArgument);
  EXPECT_NE(run.result.error().message.find("deadlock"), std::string::npos);
  EXPECT_NE(run.result.error().message.find("thread 1"), std::string::npos);
}

/// Text that is cut when it is read again.
class CutMeanwhile final : public TraceBytes {
 public:
  Result<std::size_t> read(char* into, std::size_t count) override {
    const std::string_view left = std::string_view(kText).substr(at_, end_ - at_).substr(0, count);
    left.copy(into, left.size());
    at_ += left.size();
    return left.size();
  }
  Result<void> rewind() override {
    // The survey begins and ends with it.
    if (++rewinds_ == 2) end_ = 8;
    at_ = 0;
    return {};
  }

 private:
  static constexpr const char* kText = "R 0\nR 1\nR 2\n";
  std::size_t at_ = 0;
  std::size_t end_ = 12;
  int rewinds_ = 0;
};

TEST(Epochs, ATraceThatChangedMeanwhileIsNoDeadlock) {
  const Device device = device_of(small_device());
  const AddressMap map(device);
  CutMeanwhile bytes;
  TraceReader reader(bytes, "trace", {map.lines(), map.line_bytes()});
  auto summary = reader.survey(TraceFormat::Perdure);
  ASSERT_TRUE(summary.ok());
  ASSERT_EQ(summary->reads, 3U);
  const auto result = run_memory(device, reader, *std::move(summary), {});
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().message,
            "the trace changed while it was read: 1 of its requests are not there now");
}

TEST(Epochs, WaitingForTheLongestTimingIsNoDeadlock) {
  // The fifth ACT waits for a million cycles, and 125,000 refreshes.
  DeviceKeys keys = small_device();
  for (auto& [key, value] : keys) {
    if (key[0] == 't' || key == "CL" || key == "CWL" || key == "BL") value = "1";
  }
  keys["tFAW"] = "1000000";
  keys["tREFI"] = "8";
  keys["tRFC"] = "1";
  const RunOutcome run =
      run_trace(device_of(keys), "R " + at(0, 0, 0) + "\nR " + at(0, 1, 0) + "\nR " + at(0, 2, 0) +
                                     "\nR " + at(0, 3, 0) + "\nR " + at(0, 4, 0) + "\n");
  ASSERT_TRUE(run.result.ok()) << run.result.error().message;
  EXPECT_GT(run.result->finish_cycle, 1'000'000U);
}

TEST(ClosedForms, TheBoundKnowsThatAReadMayFollowAWriteSoonerThanAnotherWrite) {
  DeviceKeys keys = small_device();
  for (auto& [key, value] : keys) {
    if (key[0] == 't' || key == "CL" || key == "CWL" || key == "BL") value = "1";
  }
  keys["tCCD"] = keys["tCCD_L"] = "100";
  keys["tRTRS"] = "50";
  keys["tWTR"] = keys["tWTR_L"] = "0";
  const RunOutcome run =
      run_trace(device_of(keys), "W " + at(0, 0, 0) + "\nR " + at(0, 0, 1) + "\n");
  ASSERT_TRUE(run.result.ok()) << run.result.error().message;
  EXPECT_LE(run.result->lower_bound, run.result->finish_cycle);
}

// --- rows and queues ---------------------------------------------------------------------------

TEST(Rows, ARowStaysOpenWhileAHitOnItWaits) {
  // The conflict is older, the hits come after it: they go first.
  const std::string trace = "R " + at(0, 0, 0) + "\nR " + at(0, 1, 0) + "\nR " + at(0, 0, 1) +
                            "\nR " + at(0, 0, 2) + "\n";
  const RunOutcome run = run_trace(device_of(small_device()), trace);
  EXPECT_EQ(run.result->commands.activates, 2U);
  EXPECT_EQ(run.result->commands.column_hits, 2U);
  EXPECT_EQ(run.result->commands.precharges, 1U);  // and none after the last request
}

TEST(Rows, ARequestForAnotherRowIsStalledByItsBankOnlyWhileThatIsAtWork) {
  const Device device = device_of(small_device());
  const auto run_with_second_at = [&](int cycle) {
    const std::string trace =
        "W " + at(0, 0, 0) + " 0\nW " + at(0, 1, 0) + " " + std::to_string(cycle) + "\n";
    return *run_trace(device, trace).result;
  };
  // The row is open in all three. A write is at work until it is in the cells, tRCD + CWL + BL +
  // tWR.
  const Cycle done = device.timing.tRCD + device.timing.write_to_precharge();
  EXPECT_EQ(run_with_second_at(static_cast<int>(done) - 1).commands.bank_busy, 1U);
  EXPECT_EQ(run_with_second_at(static_cast<int>(done)).commands.bank_busy, 0U);
  EXPECT_EQ(run_with_second_at(static_cast<int>(done)).commands.bank_stalled, 1U);
  // Awaited, and nothing of it has begun.
  EXPECT_EQ(run_with_second_at(0).commands.bank_busy, 1U);
}

TEST(Rows, ClosedPagesAreClosedWhenNobodyWaits) {
  const Device device = device_of(small_device(), "page = \"closed\"\nwindow = 8");
  const RunOutcome run = run_trace(device, "R 0\nR 64 200\n");
  EXPECT_EQ(run.result->commands.activates, 2U);
  EXPECT_EQ(run.result->commands.precharges, 1U);
  EXPECT_EQ(first_breach(device, run.commands), "");
}

// Refreshes of idle years are no lines of a file, and no time of a run.
TEST(CommandFiles, EndARunThatWouldFillTheDisk) {
  Device device = nvm();
  device.timing.tREFI = 1000;
  device.timing.tRFC = 100;
  const test::TestDirectory place;
  const auto file = CommandFile::create(place.file("commands"), device.geometry, 4096);
  ASSERT_TRUE(file.ok());
  const auto bytes = trace_of("R 0\nR 0 4000000000000\n");
  const AddressMap map(device);
  TraceReader reader(*bytes, "t", {map.lines(), map.line_bytes()});
  auto summary = reader.survey(TraceFormat::Auto);
  ASSERT_TRUE(summary.ok());
  MemoryOptions options;
  options.commands = file->get();
  static_cast<void>(run_memory(device, reader, *summary, options));
  for (const auto& entry : std::filesystem::directory_iterator(place.path())) {
    EXPECT_LE(entry.file_size(), 4096U + 160) << entry.path();
  }
  const auto closed = (*file)->close();
  ASSERT_FALSE(closed.ok());
  EXPECT_NE(closed.error().message.find("4096 bytes"), std::string::npos) << closed.error().message;
  EXPECT_TRUE(std::filesystem::is_empty(place.path())) << "a part of the commands is left";
}

TEST(Progress, IsToldOfALongTraceUntilNoRequestIsLeft) {
  std::string trace;
  for (int i = 0; i < 40'000; ++i) trace += "R " + std::to_string(i % 64 * 64) + "\n";
  MemoryOptions options;
  std::vector<std::uint64_t> left;
  options.progress = [&](std::uint64_t requests) { left.push_back(requests); };
  ASSERT_TRUE(run_trace(nvm(), trace, options).result.ok());
  EXPECT_EQ(left, (std::vector<std::uint64_t>{32768, 16384, 0}));
}

TEST(Queues, WritesAreDrainedBetweenTheWatermarksAndAtTheEnd) {
  const Device device = device_of(
      small_device(), "read_queue = 8\nwrite_queue = 8\nhigh_watermark = 6\nlow_watermark = 2");
  std::string trace;
  for (int i = 0; i < 40; ++i) trace += fmt::format("{} {}\n", i % 2 ? "R" : "W", i * 64);
  const RunOutcome run = run_trace(device, trace);
  EXPECT_EQ(run.result->commands.reads, 20U);
  EXPECT_EQ(run.result->commands.writes, 20U);
  EXPECT_EQ(first_breach(device, run.commands), "");
}

// A low watermark of 0 is never reached while writes come as fast as they go.
TEST(Queues, WritesThatComeAsFastAsTheyGoDoNotHoldAReadBackForEver) {
  const Device device = device_of(
      small_device(), "read_queue = 8\nwrite_queue = 2\nhigh_watermark = 1\nlow_watermark = 0");
  std::string trace = "T0 W 0\nT1 R 4096\n";
  for (int i = 0; i < 400; ++i) trace += "T0 W 64\n";
  const RunOutcome run = run_trace(device, trace);
  ASSERT_TRUE(run.result.ok()) << run.result.error().message;
  std::size_t before = 0;
  for (const Command& c : run.commands) {
    if (c.kind == Read) break;
    before += c.kind == Write ? 1 : 0;
  }
  EXPECT_GE(before, 32U);
  EXPECT_LE(before, 34U);
  EXPECT_EQ(first_breach(device, run.commands), "");
}

TEST(Queues, AReadOfALineWaitsForTheOlderWriteInTheOtherQueue) {
  const Device device = device_of(small_device(), "read_queue = 4\nwrite_queue = 4");
  const RunOutcome run = run_trace(device, "R 4096\nW 0\nR 0\nW 0\nR 0\n");
  std::string kinds;
  for (const Command& c : run.commands) {
    if (c.row == 0 && c.bank == 0 && (c.kind == Read || c.kind == Write))
      kinds += to_string(c.kind)[0];
  }
  EXPECT_EQ(kinds, "WRWR");
}

// Rows of bank 0 of NVM-A, 16384 bytes apart. The first read opens row 0, for which a write waits
// in the other queue; the second one closes it and opens row 1, which is to be closed in cycle 168
// for the write. Meanwhile a write to row 1 comes.
TEST(Queues, AHitThatComesWhenItsQueueHasTurnedKeepsTheRowOpen) {
  Device device = nvm();
  device.controller.one_queue = false;
  const RunOutcome run = run_trace(device, "R 0 0\nW 64 1\nR 16384 2\nW 16448 150\n");
  ASSERT_TRUE(run.result.ok()) << run.result.error().message;
  std::string sent;
  for (const Command& c : run.commands) {
    sent += fmt::format("{}{}@{} ", to_string(c.kind)[0], c.row, c.cycle);
  }
  EXPECT_EQ(sent, "A0@0 R0@32 P0@68 A1@100 R1@132 W1@150 P1@386 A0@418 W0@450 ");
}

}  // namespace
}  // namespace perdure::memsys
