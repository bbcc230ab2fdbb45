// Random devices and traces: what is sent is legal, is what the reference sends, serves every
// request, and keeps the law of persistence; a broken controller does not.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "tests/memsys/bench_device.h"
#include "tests/memsys/reference.h"

namespace perdure::memsys {
namespace {

/// Half of a minute's worth of seeds under the address sanitizer; PERDURE_SOAK=1: ten times that.
std::uint64_t seeds() { return std::getenv("PERDURE_SOAK") != nullptr ? 1500 : 150; }

struct TraceShape {
  std::uint64_t threads = 1;
  std::uint64_t events = 120;
  bool barriers = false;
  bool cycles = false;
  bool few_lines = false;  // threads write the same ones
};

std::string random_trace(Random& random, const Device& device, const TraceShape& shape) {
  std::string trace;
  const std::uint64_t lines = AddressMap(device).lines();
  const std::uint64_t span =
      std::min<std::uint64_t>(lines, 4 + random.below(shape.few_lines ? 8 : 400));
  std::uint64_t cycle = 0;
  for (std::uint64_t i = 0; i < shape.events; ++i) {
    const std::uint64_t thread = random.below(shape.threads);
    if (shape.barriers && random.chance(1, 4)) {
      constexpr std::string_view kControls = "BBBFS";
      trace += fmt::format("T{} {}\n", thread, kControls[random.below(kControls.size())]);
      continue;
    }
    cycle += random.chance(1, 8) ? random.below(900) : random.below(6);
    trace += fmt::format("T{} {} {}{}\n", thread, random.chance(1, 2) ? "W" : "R",
                         random.below(span) * 64,
                         shape.cycles ? fmt::format(" {}", cycle) : std::string());
  }
  return trace;
}

std::vector<ReferenceEvent> events_of(const Device& device, const std::string& trace) {
  const AddressMap map(device);
  const auto bytes = trace_of(trace);
  TraceReader reader(*bytes, "trace", {map.lines(), map.line_bytes()});
  EXPECT_TRUE(reader.survey(TraceFormat::Perdure).ok());
  std::vector<ReferenceEvent> events;
  TraceEvent event;
  while (reader.next(event)) {
    const bool request = event.kind <= EventKind::Write;
    events.push_back({request ? map.place(event.line) : Place{}, event.kind, event.thread});
  }
  return events;
}

void expect_what_the_reference_sends(const Device& device, const std::string& trace,
                                     PersistPoint persist_point, std::uint64_t seed) {
  MemoryOptions options;
  options.persist_point = persist_point;
  const auto wanted = reference_commands(device, events_of(device, trace), persist_point);
  const RunOutcome run = run_trace(device, trace, options);
  ASSERT_TRUE(run.result.ok()) << run.result.error().message;
  ASSERT_EQ(first_breach(device, run.commands), "") << "seed " << seed;
  ASSERT_EQ(run.commands.size(), wanted.size()) << "seed " << seed;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    ASSERT_EQ(run.commands[i].cycle, wanted[i].cycle) << "seed " << seed << " command " << i;
    ASSERT_EQ(run.commands[i].kind, wanted[i].kind) << "seed " << seed << " command " << i;
    ASSERT_EQ(run.commands[i].bank, wanted[i].bank) << "seed " << seed << " command " << i;
  }
}

Device device_of_the_reference(Random& random) {
  DeviceKeys keys = random_device(random);
  keys["channels"] = "1";
  keys.erase("tREFI");
  keys.erase("tRFC");
  const bool serial = random.chance(1, 4);
  return device_of(keys, fmt::format("window = {}\nhits_pipeline = {}", 1 + random.below(12),
                                     serial ? "false" : "true"));
}

TEST(MemoryProperties, OneQueueSendsWhatTheReferenceSendsCycleByCycle) {
  for (std::uint64_t seed = 0; seed < seeds(); ++seed) {
    Random random(seed);
    const Device device = device_of_the_reference(random);
    const std::string trace = random_trace(random, device, {.events = 80});
    expect_what_the_reference_sends(device, trace, PersistPoint::Array, seed);
    if (HasFatalFailure()) return;
  }
}

TEST(MemoryProperties, ThreadsEnterTheLineWhenTheReferenceLetsThem) {
  for (std::uint64_t seed = 0; seed < seeds(); ++seed) {
    Random random(seed);
    const Device device = device_of_the_reference(random);
    TraceShape shape{.threads = 2 + random.below(3), .events = 60, .few_lines = true};
    shape.barriers = random.chance(1, 2);
    const std::string trace = random_trace(random, device, shape);
    expect_what_the_reference_sends(device, trace, static_cast<PersistPoint>(random.below(3)),
                                    seed);
    if (HasFatalFailure()) return;
  }
}

std::string random_controller(Random& random) {
  const std::string page = random.chance(1, 2) ? "open" : "closed";
  const std::string more = fmt::format("page = \"{}\"\nhits_pipeline = {}\n", page,
                                       random.chance(1, 4) ? "false" : "true");
  if (random.chance(1, 2)) return more + fmt::format("window = {}", 1 + random.below(20));
  return more + fmt::format("read_queue = {}\nwrite_queue = {}", 2 + random.below(10),
                            2 + random.below(10));
}

void expect_each_served(const Device& device, const std::string& trace,
                        const std::vector<Command>& log, std::uint64_t old_values,
                        std::uint64_t seed) {
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t, bool>, int> left;
  const AddressMap map(device);
  const auto bytes = trace_of(trace);
  TraceReader reader(*bytes, "trace", {map.lines(), map.line_bytes()});
  ASSERT_TRUE(reader.survey(TraceFormat::Perdure).ok());
  TraceEvent event;
  while (reader.next(event)) {
    if (event.kind > EventKind::Write) continue;
    const Place p = map.place(event.line);
    ++left[{p.channel, p.bank, p.row, p.column, event.kind == EventKind::Write}];
  }
  for (const Command& c : log) {
    if (c.kind != CommandKind::Read && c.kind != CommandKind::Write) continue;
    --left[{c.channel, c.bank, c.row, c.column, c.kind == CommandKind::Write}];
  }
  std::uint64_t more = 0;
  for (const auto& [what, count] : left) {
    const bool write = std::get<4>(what);
    if (write || count > 0) {
      ASSERT_EQ(count, 0) << "seed " << seed;
    }
    more += static_cast<std::uint64_t>(-count);
  }
  ASSERT_EQ(more, old_values) << "seed " << seed;
}

TEST(MemoryProperties, WhateverTheDeviceEveryCommandIsLegalAndEveryRequestServedOnce) {
  for (std::uint64_t seed = 1000; seed < 1000 + seeds(); ++seed) {
    Random random(seed);
    const Device device = device_of(random_device(random), random_controller(random));
    const std::string trace = random_trace(
        random, device,
        {.threads = 1 + random.below(4), .barriers = true, .cycles = random.chance(1, 2)});
    MemoryOptions options;
    options.persist_point = static_cast<PersistPoint>(random.below(3));
    constexpr Order kOrders[] = {Order::Thread, Order::Sync,   Order::Epoch, Order::Broi,
                                 Order::Hops,   Order::Strand, Order::Asap,  Order::Eadr};
    options.order = kOrders[seed % std::size(kOrders)];
    const RunOutcome run = run_trace(device, trace, options);
    ASSERT_TRUE(run.result.ok()) << "seed " << seed << ": " << run.result.error().message;
    ASSERT_EQ(first_breach(device, run.commands), "") << "seed " << seed;
    expect_each_served(device, trace, run.commands, run.result->old_values, seed);
    ASSERT_TRUE(run.result->old_values == 0 || options.order == Order::Asap);
    ASSERT_EQ(run.result->law_checked, run.result->trace.writes);
    ASSERT_GE(run.result->finish_cycle, run.result->lower_bound) << "seed " << seed;
    ASSERT_EQ(
        run.result->commands.activates + run.result->commands.column_hits >= run.result->requests,
        true);
  }
}

/// In how many of ten random traces a controller that is broken so was caught.
std::uint64_t caught(MemoryOptions options, Mutant mutant) {
  std::uint64_t count = 0;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    Random random(seed);
    const Device device = device_of(small_device(), "window = 16");
    const std::string trace = random_trace(
        random, device, {.threads = 3, .events = 300, .barriers = true, .few_lines = true});
    options.mutant = {};
    EXPECT_TRUE(run_trace(device, trace, options).result.ok()) << "seed " << seed;
    options.mutant = mutant;
    const RunOutcome broken = run_trace(device, trace, options);
    if (broken.result.ok()) continue;
    EXPECT_EQ(broken.result.code(), ErrorCode::ProtocolError) << broken.result.error().message;
    ++count;
  }
  return count;
}

TEST(MemoryProperties, ABrokenControllerBreaksTheLawAndIsCaughtWhateverItsOrder) {
  struct Case {
    Order order;
    bool buffers;
    bool barriers;  // it has some to ignore
  };
  for (const Case& each : {Case{Order::Thread, false, true}, Case{Order::Sync, false, true},
                           Case{Order::Sync, true, true}, Case{Order::Epoch, true, true},
                           Case{Order::Broi, true, true}, Case{Order::Hops, true, true},
                           Case{Order::Strand, true, true}, Case{Order::Asap, true, true},
                           // What the cache has is persistent: there, lines alone have an order.
                           Case{Order::Eadr, true, false}}) {
    MemoryOptions options;
    options.order = each.order;
    options.sync_has_buffers = each.buffers;
    const std::uint64_t barriers = caught(options, {.ignores_barriers = true});
    const std::uint64_t lines = caught(options, {.ignores_lines = true});
    EXPECT_EQ(barriers, each.barriers ? 10U : 0U) << to_string(each.order);
    EXPECT_EQ(lines, 10U) << to_string(each.order);
  }
}

TEST(MemoryProperties, TheSameTraceGivesTheSameCommands) {
  Random random(7);
  const Device device = device_of(random_device(random));
  const std::string trace = random_trace(random, device, {.threads = 4, .barriers = true});
  const RunOutcome one = run_trace(device, trace);
  const RunOutcome other = run_trace(device, trace);
  ASSERT_EQ(one.commands.size(), other.commands.size());
  for (std::size_t i = 0; i < one.commands.size(); ++i) {
    ASSERT_EQ(one.commands[i].cycle, other.commands[i].cycle);
  }
}

}  // namespace
}  // namespace perdure::memsys
