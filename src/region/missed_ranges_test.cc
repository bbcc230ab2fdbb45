// What is missed is never forgotten, and little more is copied.
#include "region/missed_ranges.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "core/random.h"

namespace perdure::region {
namespace {

constexpr std::uint64_t kBytes = 400;

/// What is taken out of it, piece after piece, of what is not in `others`.
std::vector<bool> taken(MissedRanges missed, std::uint64_t bytes_max,
                        const MissedRanges& others = {}) {
  std::vector<bool> bytes(kBytes);
  std::uint64_t left = missed.bytes();
  while (const auto piece = missed.first_outside(others, bytes_max)) {
    EXPECT_LT(piece->begin, piece->end);
    EXPECT_LE(piece->end - piece->begin, bytes_max);
    EXPECT_FALSE(others.touches(*piece));
    missed.take(*piece);
    left -= piece->end - piece->begin;
    EXPECT_EQ(missed.bytes(), left);
    for (std::uint64_t at = piece->begin; at < piece->end; ++at) {
      EXPECT_FALSE(bytes[at]);
      bytes[at] = true;
    }
  }
  return bytes;
}

TEST(MissedRanges, AreWhatWasAddedLessWhatWasTakenOut) {
  Random random(1);
  for (int round = 0; round < 200; ++round) {
    MissedRanges missed;
    std::vector<bool> expected(kBytes);
    for (int step = 0; step < 40; ++step) {
      const std::uint64_t begin = random.below(kBytes);
      const Extent extent{begin, begin + 1 + random.below(kBytes - begin)};
      const bool adds = random.below(2) == 0;
      if (adds) {
        missed.add(extent);
      } else {
        EXPECT_TRUE(missed.remove(extent));
      }
      for (std::uint64_t at = extent.begin; at < extent.end; ++at) expected[at] = adds;
      std::uint64_t bytes = 0;
      for (const bool each : expected) bytes += each ? 1 : 0;
      ASSERT_EQ(missed.bytes(), bytes);
      const std::uint64_t at = random.below(kBytes - 5);
      const auto from = expected.begin() + static_cast<std::ptrdiff_t>(at);
      ASSERT_EQ(missed.touches({at, at + 5}), std::find(from, from + 5, true) != from + 5);
    }
    ASSERT_EQ(taken(missed, 1 + random.below(100)), expected);
    MissedRanges others;
    for (int count = 0; count < 5; ++count) {
      const std::uint64_t begin = random.below(kBytes);
      others.add({begin, begin + random.below(kBytes / 10)});
      const auto end = std::min(kBytes, begin + kBytes / 10);
      for (std::uint64_t at = begin; at < end; ++at) {
        if (others.touches({at, at + 1})) expected[at] = false;
      }
    }
    ASSERT_EQ(taken(missed, 1 + random.below(100), others), expected);
  }
}

TEST(MissedRanges, WhatIsInsideOfARangeIsFoundPieceByPiece) {
  Random random(2);
  for (int round = 0; round < 200; ++round) {
    MissedRanges missed;
    for (int count = 0; count < 10; ++count) {
      const std::uint64_t begin = random.below(kBytes);
      missed.add({begin, std::min(kBytes, begin + 1 + random.below(30))});
    }
    const std::uint64_t begin = random.below(kBytes);
    const Extent range{begin, begin + 1 + random.below(kBytes - begin)};
    std::uint64_t expected = 0;
    for (std::uint64_t at = range.begin; at < range.end; ++at) {
      expected += missed.touches({at, at + 1}) ? 1 : 0;
    }
    std::uint64_t found = 0;
    while (const auto piece = missed.first_inside(range, 7)) {
      ASSERT_LT(piece->begin, piece->end);
      ASSERT_TRUE(piece->begin >= range.begin && piece->end <= range.end);
      ASSERT_LE(piece->end - piece->begin, 7u);
      for (std::uint64_t at = piece->begin; at < piece->end; ++at) {
        ASSERT_TRUE(missed.touches({at, at + 1}));
      }
      found += piece->end - piece->begin;
      missed.take(*piece);
    }
    ASSERT_EQ(found, expected);
  }
}

// Expect: pieces are joined, and what is between them counts as missed.
TEST(MissedRanges, OfTooManyPiecesNoneIsForgotten) {
  MissedRanges missed;
  for (std::uint64_t piece = 0; piece < 3 * MissedRanges::kPiecesMax; ++piece) {
    missed.add({10 * piece, 10 * piece + 1});
    ASSERT_LE(missed.pieces(), MissedRanges::kPiecesMax);
    ASSERT_EQ(missed.has_more(), piece >= MissedRanges::kPiecesMax);
  }
  const std::uint64_t bytes = missed.bytes();
  EXPECT_GE(bytes, 3 * MissedRanges::kPiecesMax);
  std::vector<bool> held(30 * MissedRanges::kPiecesMax);
  std::uint64_t counted = 0;
  while (!missed.empty()) {
    const Extent piece = *missed.first_outside({}, 64);
    missed.take(piece);
    counted += piece.end - piece.begin;
    for (std::uint64_t at = piece.begin; at < piece.end; ++at) held[at] = true;
  }
  EXPECT_EQ(counted, bytes);
  for (std::uint64_t piece = 0; piece < 3 * MissedRanges::kPiecesMax; ++piece) {
    ASSERT_TRUE(held[10 * piece]);
  }
}

// A hole in each of as many pieces as there may be would make more. Expect: it says that it kept
// what it was to take out.
TEST(MissedRanges, WhatWouldSplitTooOftenIsKept) {
  MissedRanges missed;
  for (std::uint64_t piece = 0; piece < MissedRanges::kPiecesMax; ++piece) {
    missed.add({10 * piece, 10 * piece + 5});
  }
  const std::uint64_t bytes = missed.bytes();
  EXPECT_FALSE(missed.remove({2, 3}));
  EXPECT_EQ(missed.bytes(), bytes);
  EXPECT_TRUE(missed.remove({0, 3}));
  EXPECT_EQ(missed.bytes(), bytes - 3);
}

}  // namespace
}  // namespace perdure::region
