// What is kept of writes that are not yet persisted, and that its memory does not grow with them.
#include "memsys/pending_writes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <vector>

#include "core/random.h"
#include "memsys/block_queue.h"

namespace perdure::memsys {
namespace {

TraceEvent write_of(std::uint64_t line, std::uint64_t index, std::uint32_t thread = 0) {
  return {line, 0, index, thread, EventKind::Write};
}

std::vector<std::uint64_t> indexes_of(PendingWrites& pending, std::uint64_t line) {
  std::vector<std::uint64_t> indexes;
  for (const auto* each = pending.first(line); each != nullptr; each = pending.next(*each)) {
    EXPECT_EQ(each->line, line);
    indexes.push_back(each->index);
  }
  return indexes;
}

TEST(PendingWrites, ALineHasItsWritesInTheOrderOfTheTrace) {
  Random random(1);
  PendingWrites pending;
  std::map<std::uint64_t, std::vector<std::uint64_t>> expected;
  std::size_t count = 0;
  for (std::uint64_t index = 0; index < 20'000; ++index) {
    // Grows, stays, and shrinks; few lines have many writes and many lines one.
    const std::uint64_t line = random.below(3) == 0 ? random.below(4) : random.below(3000) << 20;
    std::vector<std::uint64_t>& there = expected[line];
    const bool remove = index > 5000 && random.below(index > 12'000 ? 5 : 2) != 0;
    if (remove && !there.empty()) {
      const auto gone = there.begin() + static_cast<std::ptrdiff_t>(random.below(there.size()));
      pending.remove(write_of(line, *gone));
      there.erase(gone);
      --count;
    } else {
      pending.add(write_of(line, index));
      there.push_back(index);
      ++count;
    }
    ASSERT_EQ(pending.size(), count);
    ASSERT_EQ(indexes_of(pending, line), there);
  }
  for (const auto& [line, there] : expected) EXPECT_EQ(indexes_of(pending, line), there);
}

TEST(PendingWrites, WhatIsRemovedLeavesItsPlaceToOthers) {
  PendingWrites pending;
  for (std::uint64_t index = 0; index < 100'000; ++index) {
    pending.add(write_of(index * 64, index, 7));
    PendingWrites::Write* const first = pending.first(index * 64);
    ASSERT_NE(first, nullptr);
    EXPECT_EQ(first->persists, kNever);
    EXPECT_EQ(first->thread, 7U);
    first->persists = index;
    if (index >= 100) pending.remove(write_of((index - 100) * 64, index - 100));
  }
  EXPECT_EQ(pending.size(), 100U);
  EXPECT_EQ(pending.room(), 1024U);
  EXPECT_EQ(pending.first(0), nullptr);
}

TEST(BlockQueue, IsAQueueThatKeepsNoMoreRoomThanItNeeds) {
  Random random(2);
  BlockQueue<std::uint64_t> queue;
  std::deque<std::uint64_t> expected;
  for (std::uint64_t i = 0; i < 50'000; ++i) {
    const bool push = random.below(10) < (i / 5000 % 2 == 0 ? 6U : 4U);
    if (push || expected.empty()) {
      queue.push(i);
      expected.push_back(i);
      ASSERT_EQ(queue.back(), i);
    } else {
      queue.pop();
      expected.pop_front();
    }
    ASSERT_EQ(queue.size(), expected.size());
    ASSERT_LE(queue.room(), queue.size() + 2 * BlockQueue<std::uint64_t>::kBlock);
    if (expected.empty()) continue;
    ASSERT_EQ(queue.front(), expected.front());
    const std::size_t k = random.below(expected.size());
    ASSERT_EQ(queue[k], expected[k]);
  }
}

}  // namespace
}  // namespace perdure::memsys
