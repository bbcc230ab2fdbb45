#include "pmem/crashable_region.h"

#include "core/bytes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>

namespace perdure::pmem {
namespace {

std::unique_ptr<CrashableRegion> region_of(PersistenceDomain domain, std::uint64_t bytes = 8192) {
  auto region = CrashableRegion::open({.bytes = bytes, .domain = domain});
  EXPECT_TRUE(region.ok());
  return std::move(*region);
}

void fill(CrashableRegion& region, Range range, int value) {
  std::memset(region.bytes().data() + range.at, value, range.length);
}

bool all(std::span<const std::byte> bytes, int value) {
  return std::ranges::all_of(bytes,
                             [&](std::byte b) { return b == static_cast<std::byte>(value); });
}

TEST(CrashableRegion, WhatWasFlushedSurvives) {
  for (auto domain : {PersistenceDomain::Page, PersistenceDomain::Dmp, PersistenceDomain::Mhp,
                      PersistenceDomain::Wsp}) {
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
      auto region = region_of(domain);
      Random random(seed);
      fill(*region, {100, 300}, 7);
      ASSERT_TRUE(region->flush(100, 300).ok());
      EXPECT_TRUE(region->is_durable({100, 300}));
      region->power_cut(random);
      EXPECT_TRUE(all(region->bytes().subspan(100, 300), 7));
      region->power_on();
      EXPECT_TRUE(all(region->bytes().subspan(100, 300), 7));
    }
  }
}

TEST(CrashableRegion, WhatWasNotFlushedMayBeLostOrKeptOrTorn) {
  for (auto domain : {PersistenceDomain::Page, PersistenceDomain::Dmp}) {
    bool lost = false;
    bool kept = false;
    bool torn = false;
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
      auto region = region_of(domain);
      Random random(seed);
      fill(*region, {0, 4096}, 7);
      EXPECT_FALSE(region->is_durable({0, 4096}));
      region->power_cut(random);
      const auto first = region->bytes().subspan(0, 4096);
      lost = lost || all(first, 0);
      kept = kept || all(first, 7);
      torn = torn || (!all(first, 0) && !all(first, 7));
    }
    EXPECT_TRUE(lost && kept && torn) << to_string(domain);
  }
}

TEST(CrashableRegion, AnAlignedWordNeverTearsButALineDoes) {
  bool line_torn = false;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    auto region = region_of(PersistenceDomain::Dmp);
    Random random(seed);
    fill(*region, {0, 4096}, 7);
    region->power_cut(random);
    for (std::uint64_t line = 0; line < 4096; line += 64) {
      std::set<std::byte> in_line;
      for (std::uint64_t at = line; at < line + 64; at += 8) {
        const auto word = region->bytes().subspan(at, 8);
        ASSERT_TRUE(all(word, 0) || all(word, 7));
        in_line.insert(word[0]);
      }
      line_torn = line_torn || in_line.size() == 2;
    }
  }
  EXPECT_TRUE(line_torn);
}

TEST(CrashableRegion, WithoutADomainNothingSurvives) {
  auto region = region_of(PersistenceDomain::None);
  Random random(1);
  fill(*region, {0, 8192}, 7);
  ASSERT_TRUE(region->flush(0, 8192).ok());
  EXPECT_FALSE(region->is_durable({0, 1}));
  region->power_cut(random);
  EXPECT_TRUE(all(region->bytes(), std::to_integer<int>(kGarbage)));
}

TEST(CrashableRegion, StoresAndFlushesWithoutPowerAreLost) {
  for (auto domain : {PersistenceDomain::Dmp, PersistenceDomain::Wsp}) {
    auto region = region_of(domain);
    Random random(1);
    region->power_cut(random);
    fill(*region, {0, 64}, 7);
    EXPECT_EQ(region->flush(0, 64).code(), ErrorCode::SystemError);
    region->drain({0, 64});
    region->power_on();
    EXPECT_TRUE(all(region->bytes(), 0));
    EXPECT_TRUE(region->flush(0, 64).ok());
  }
}

TEST(CrashableRegion, DrainIsDurableOnlyWhereTheMemoryControllerIs) {
  auto dmp = region_of(PersistenceDomain::Dmp);
  fill(*dmp, {10, 10}, 7);
  dmp->drain({10, 10});
  EXPECT_TRUE(dmp->is_durable({10, 10}));

  auto page = region_of(PersistenceDomain::Page);
  fill(*page, {10, 10}, 7);
  page->drain({10, 10});
  EXPECT_FALSE(page->is_durable({10, 10}));
}

TEST(CrashableRegion, EveryDirtyUnitDrainsByItselfInTheEnd) {
  for (auto domain : {PersistenceDomain::Page, PersistenceDomain::Dmp}) {
    auto region = region_of(domain, 1 << 20);
    Random random(3);
    fill(*region, {5000, 9000}, 7);
    region->note_written({5000, 9000});
    for (int i = 0; i < 100'000 && !region->is_durable({0, 1 << 20}); ++i) {
      (void)region->drain_some(random);
    }
    EXPECT_TRUE(region->is_durable({0, 1 << 20}));
  }
}

TEST(CrashableRegion, AnEvictedLineSurvivesAlthoughItWasOverwritten) {
  bool older_value_seen = false;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    auto region = region_of(PersistenceDomain::Dmp, 4096);
    Random random(seed);
    fill(*region, {0, 64}, 1);
    for (int i = 0; i < 100; ++i) (void)region->drain_some(random);
    fill(*region, {0, 64}, 2);
    region->power_cut(random);
    older_value_seen = older_value_seen || region->bytes()[0] == std::byte{1};
  }
  EXPECT_TRUE(older_value_seen);
}

TEST(CrashableRegion, HoldsWhatAnEarlierOneKept) {
  auto first = region_of(PersistenceDomain::Dmp);
  fill(*first, {64, 64}, 7);
  ASSERT_TRUE(first->flush(64, 64).ok());
  fill(*first, {128, 64}, 8);
  const auto kept = first->durable();
  auto second = CrashableRegion::open(
      {.bytes = kept.size(), .domain = PersistenceDomain::Dmp, .initial = kept});
  ASSERT_TRUE(second.ok());
  EXPECT_TRUE(all((*second)->bytes().subspan(64, 64), 7));
  EXPECT_TRUE(all((*second)->bytes().subspan(128, 64), 0));
}

TEST(CrashableRegion, IsZeroWhateverAnEarlierOneLeftInItsPlace) {
  for (int round = 0; round < 3; ++round) {
    auto region = region_of(PersistenceDomain::Dmp);
    EXPECT_TRUE(all(region->bytes(), 0));
    EXPECT_TRUE(all(region->durable(), 0));
    fill(*region, {0, 8192}, 7);
    ASSERT_TRUE(region->flush(0, 4096).ok());
  }
}

#ifdef __SANITIZE_ADDRESS__
TEST(CrashableRegionDeathTest, WhoUsesItWhenItIsGoneIsCaught) {
  std::byte* const gone = region_of(PersistenceDomain::Dmp)->bytes().data();
  EXPECT_DEATH(*gone = std::byte{1}, "AddressSanitizer");
}
#endif

TEST(CrashableRegion, RefusesNonsense) {
  EXPECT_EQ(CrashableRegion::open({}).code(), ErrorCode::InvalidArgument);
  const std::vector<std::byte> much(100);
  EXPECT_EQ(CrashableRegion::open({.bytes = 10, .initial = much}).code(),
            ErrorCode::InvalidArgument);
}

TEST(CrashableRegion, TheFlushWatchSeesWhatWillMove) {
  auto region = region_of(PersistenceDomain::Dmp);
  std::uint64_t lines = 0;
  region->watch_flushes([&](std::uint64_t units) { lines += units; });
  const Range ranges[] = {{0, 64}, {100, 64}, {500, 0}};
  ASSERT_TRUE(region->flush(ranges).ok());
  EXPECT_EQ(lines, 3u);
}

}  // namespace
}  // namespace perdure::pmem
