// The memory of a run does not depend on how long the trace is, nor on how many threads are far
// from each other in it. Entries are counted, and not bytes or time.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/memsys/bench_device.h"

namespace perdure::memsys {
namespace {

constexpr std::uint64_t kHeldHere = 1024;
constexpr std::size_t kBlockEntries = 64;  // of a queue that is empty or nearly so, in entries
constexpr std::uint64_t kPlaces = 512;     // of the traces that do not stream

enum class RoomShape { Random, Stream, OneAfterTheOther, SameLines };

/// `requests` of `threads`, with barriers; two reads a write where places are random.
std::string shaped_trace(RoomShape shape, std::uint64_t requests, std::uint64_t threads) {
  Random random(5);
  std::string text;
  for (std::uint64_t i = 0; i < requests; ++i) {
    std::uint64_t thread = i % threads;
    std::uint64_t line = random.below(kPlaces);
    bool write = true;
    switch (shape) {
      case RoomShape::Random:
        thread = random.below(threads);
        write = i % 3 == 0;
        break;
      case RoomShape::Stream: line = i; break;
      case RoomShape::OneAfterTheOther: thread = i * threads / requests; break;
      case RoomShape::SameLines: line = i % 8; break;
    }
    text += fmt::format("T{} {} {}\n", thread, write ? 'W' : 'R', line * 64);
    if (random.below(4) == 0) text += fmt::format("T{} B\n", thread);
  }
  return text;
}

MemoryResult run_shape(RoomShape shape, std::uint64_t requests, std::uint64_t threads,
                       Order order) {
  MemoryOptions options;
  options.order = order;
  options.held_max = kHeldHere;
  const RunOutcome outcome = run_trace(nvm(), shaped_trace(shape, requests, threads), options);
  EXPECT_TRUE(outcome.result.ok()) << outcome.result.error().message;
  EXPECT_EQ(outcome.result->requests, requests);
  EXPECT_LE(outcome.result->held_most, kHeldHere);
  return *outcome.result;
}

// An event is held once; a write of it is also in the law and in the admission, with an epoch at
// most, and of kPlaces it is known when they persisted.
constexpr std::size_t kRoomMax = 4 * kHeldHere + kPlaces + 4096;

TEST(Room, FourTimesTheTraceTakesNoMore) {
  constexpr Order kOrders[] = {Order::Thread, Order::Epoch, Order::Broi, Order::Asap};
  for (const Order order : kOrders) {
    for (const RoomShape shape : {RoomShape::Random, RoomShape::Stream, RoomShape::OneAfterTheOther,
                                  RoomShape::SameLines}) {
      const MemoryResult once = run_shape(shape, 1 << 13, 4, order);
      const MemoryResult fourfold = run_shape(shape, 1 << 15, 4, order);
      const std::string what =
          fmt::format("{}, shape {}", to_string(order), static_cast<int>(shape));
      // What threads differ by chance, and lines that are remembered, grow to a limit.
      EXPECT_LE(fourfold.room_most, kRoomMax + (shape == RoomShape::Stream ? 32'768U : 0U)) << what;
      if (once.held_most == fourfold.held_most && shape != RoomShape::Stream) {
        EXPECT_LE(fourfold.room_most, once.room_most + 1024) << what;
      }
    }
  }
}

// Each of them is held for the others once, and gives its room back.
TEST(Room, ThreadsOneAfterTheOtherTakeNoMoreTheMoreTheyAre) {
  for (const Order order : {Order::Thread, Order::Epoch}) {
    const MemoryResult two = run_shape(RoomShape::OneAfterTheOther, 1 << 16, 2, order);
    const MemoryResult eight = run_shape(RoomShape::OneAfterTheOther, 1 << 16, 8, order);
    EXPECT_EQ(two.held_most, kHeldHere);
    EXPECT_EQ(eight.held_most, kHeldHere);
    EXPECT_LE(eight.room_most, two.room_most + 8 * kBlockEntries) << to_string(order);
  }
}

TEST(Room, OneThreadTakesNextToNothing) {
  for (const std::uint64_t requests : {1 << 14, 1 << 16}) {
    const MemoryResult result = run_shape(RoomShape::Random, requests, 1, Order::Thread);
    EXPECT_LE(result.held_most, 2U);
    EXPECT_LE(result.room_most, 2 * kBlockEntries + 256);
  }
}

}  // namespace
}  // namespace perdure::memsys
