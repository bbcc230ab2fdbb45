// The laws of spreading connections over an RNIC's interrupts.
#include "fabric/verbs/completion_vectors.h"

#include <gtest/gtest.h>

#include <map>

namespace perdure::fabric::verbs {
namespace {

TEST(CompletionVectors, ProcessorsAreCounted) {
  EXPECT_EQ(count_processors("0"), 1u);
  EXPECT_EQ(count_processors("0-3"), 4u);
  EXPECT_EQ(count_processors("0-3,8-11,16"), 9u);
  for (const char* nonsense : {"", "-", "a", "3-1", "1-", "1-2x", ",", "1;2"}) {
    EXPECT_EQ(count_processors(nonsense), 0u) << nonsense;
  }
}

std::map<int, int> given(int vectors, unsigned near_cores, int connections) {
  CompletionVectors all;
  all.prepare(vectors, near_cores);
  std::map<int, int> counts;
  for (int i = 0; i < connections; ++i) ++counts[all.next()];
  return counts;
}

TEST(CompletionVectors, EachNearOneInTurn) {
  const std::map<int, int> evenly{{0, 3}, {1, 3}, {2, 3}, {3, 3}};
  EXPECT_EQ(given(8, 4, 12), evenly);   // half of the cores are near
  EXPECT_EQ(given(4, 16, 12), evenly);  // fewer vectors than cores
  EXPECT_EQ(given(4, 0, 12), evenly);   // the RNIC has no place that the kernel shows
}

TEST(CompletionVectors, OneIsAlwaysThere) {
  const std::map<int, int> one{{0, 5}};
  EXPECT_EQ(given(1, 8, 5), one);
  EXPECT_EQ(given(0, 8, 5), one);
}

}  // namespace
}  // namespace perdure::fabric::verbs
