// Beside an independent simulator: the same traces on the same devices, its cycles as it printed
// them. DRAMsim3 (commit 2981759, 2021-04) with one queue of 64 (unified_queue, PER_RANK,
// cmd_queue_size 64, trans_queue_size 1), the timings of the two files, address_mapping
// rochrababgco; asked for a request whenever it takes one; cycle of the last RD or WR. What stops
// it from agreeing to the cycle is known: it closes a row after four hits while others wait, and it
// may close all rows of a rank with one command for a refresh.
#include <gtest/gtest.h>

#include "tests/memsys/bench_device.h"

#include <fmt/format.h>

#include <cmath>

namespace perdure::memsys {
namespace {

constexpr std::uint64_t kRequests = 20'000;
constexpr std::uint64_t kLines = std::uint64_t{1} << 27;

/// xorshift64*: small enough to be written again beside any other simulator.
class Numbers {
 public:
  std::uint64_t next() {
    x_ ^= x_ >> 12;
    x_ ^= x_ << 25;
    x_ ^= x_ >> 27;
    return (x_ * 2685821657736338717U) >> 16;
  }
  std::uint64_t line() { return next() % kLines; }
  bool write() { return next() % 3 == 0; }

 private:
  std::uint64_t x_ = 88172645463325252U;
};

void add(std::string& trace, bool write, std::uint64_t line) {
  trace += fmt::format("{} 0x{:x}\n", write ? 'W' : 'R', line * 64);
}

std::string random_requests(bool write) {
  std::string trace;
  Numbers numbers;
  for (std::uint64_t i = 0; i < kRequests; ++i) add(trace, write, numbers.line());
  return trace;
}

std::string stream() {
  std::string trace;
  for (std::uint64_t i = 0; i < kRequests; ++i) add(trace, false, i);
  return trace;
}

/// Two reads a write; `length` lines that follow each other.
std::string mixed(std::uint64_t length) {
  std::string trace;
  Numbers numbers;
  for (std::uint64_t i = 0; i < kRequests / length; ++i) {
    const std::uint64_t line = numbers.line() / length * length;
    const bool write = numbers.write();
    for (std::uint64_t k = 0; k < length; ++k) add(trace, write, line + k);
  }
  return trace;
}

/// Three lines of a log and a random one.
std::string log_and_data() {
  std::string trace;
  Numbers numbers;
  for (std::uint64_t i = 0; i < kRequests / 4; ++i) {
    for (std::uint64_t k = 0; k < 3; ++k) add(trace, true, 3 * i + k);
    add(trace, true, numbers.line());
  }
  return trace;
}

/// The cycle of the last column command.
Cycle last_column(const char* file, const std::string& trace) {
  const auto device = read_device(fmt::format("{}/{}.toml", CONFIGS, file));
  EXPECT_TRUE(device.ok()) << device.error().message;
  const RunOutcome run = run_trace(*device, trace);
  EXPECT_TRUE(run.result.ok()) << run.result.error().message;
  Cycle last = 0;
  for (const Command& command : run.commands) {
    const bool column = command.kind == CommandKind::Read || command.kind == CommandKind::Write;
    if (column) last = command.cycle;
  }
  return last;
}

struct Case {
  const char* name;
  std::string trace;
  Cycle nvm;  // DRAMsim3's
  Cycle ddr4;
};

TEST(Peers, TrafficOfEveryKindTakesWhatDramsim3Says) {
  constexpr double kTolerance = 0.015;
  const Case cases[]{
      //                                       nvm-a   ddr4-2400
      {"random reads", random_requests(false), 265642, 136706},
      {"random writes", random_requests(true), 795293, 136803},
      {"stream of reads", stream(), 80029, 86346},
      {"two reads a write", mixed(1), 463366, 138633},
      {"the same, four lines each", mixed(4), 152482, 91391},
      {"log and data", log_and_data(), 249938, 89944},
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(each.name);
    const auto apart = [](Cycle ours, Cycle theirs) {
      return std::abs(static_cast<double>(ours) / static_cast<double>(theirs) - 1);
    };
    const Cycle nvm = last_column("nvm-a", each.trace);
    const Cycle ddr4 = last_column("ddr4-2400", each.trace);
    EXPECT_LT(apart(nvm, each.nvm), kTolerance) << nvm;
    EXPECT_LT(apart(ddr4, each.ddr4), kTolerance) << ddr4;
  }
}

}  // namespace
}  // namespace perdure::memsys
