// YCSB's workloads against the closed form of what they are to be.
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

#include "workload/ycsb/ycsb.h"

namespace perdure::workload {
namespace {

constexpr std::uint64_t kRecords = 1000;
constexpr std::uint64_t kDraws = 400'000;

/// Pearson's statistic of counts against the closed form, per degree of freedom: near 1 if they are
/// of that distribution. Ranks of which fewer than ten are expected are taken together.
double misfit(const std::vector<std::uint64_t>& counts, double exponent) {
  double all = 0;
  for (std::size_t rank = 1; rank <= counts.size(); ++rank) {
    all += std::pow(static_cast<double>(rank), -exponent);
  }
  double draws = 0;
  for (const std::uint64_t count : counts) draws += static_cast<double>(count);
  double sum = 0;
  double expected = 0;
  double counted = 0;
  double freedom = -1;
  for (std::size_t rank = 1; rank <= counts.size(); ++rank) {
    expected += draws * std::pow(static_cast<double>(rank), -exponent) / all;
    counted += static_cast<double>(counts[rank - 1]);
    if (expected < 10) continue;
    sum += (counted - expected) * (counted - expected) / expected;
    expected = counted = 0;
    ++freedom;
  }
  return sum / freedom;
}

TEST(Ycsb, RecordsAreChosenByTheZipfianLaw) {
  for (const char name : {'A', 'C', 'E', 'F'}) {
    Ycsb ycsb(*ycsb_mix(name), kRecords, 3);
    std::vector<std::uint64_t> counts(kRecords);
    for (std::uint64_t draw = 0; draw < kDraws; ++draw) {
      const YcsbOperation operation = ycsb.next();
      if (operation.record < kRecords) ++counts[operation.record];
    }
    if (name != 'E') {  // where the number of records grows
      EXPECT_LT(misfit(counts, kYcsbZipfian), 1.25) << name;
      // The measure tells a neighbouring law, and a uniform choice, from this one.
      EXPECT_GT(misfit(counts, 0.95), 2) << name;
      EXPECT_GT(misfit(counts, 0), 100) << name;
    }
    EXPECT_GT(counts[0], counts[1]);
  }
}

TEST(Ycsb, InDTheNewestRecordsAreTheHotOnes) {
  Ycsb ycsb(*ycsb_mix('D'), kRecords, 4);
  std::uint64_t records = kRecords;
  std::vector<std::uint64_t> ages(kRecords);
  for (std::uint64_t draw = 0; draw < kDraws / 4; ++draw) {
    const YcsbOperation operation = ycsb.next();
    if (operation.kind == YcsbKind::Insert) {
      EXPECT_EQ(operation.record, records++);
      continue;
    }
    ASSERT_LT(operation.record, records);
    const std::uint64_t age = records - 1 - operation.record;
    if (age < kRecords) ++ages[age];
  }
  EXPECT_LT(misfit(ages, kYcsbZipfian), 1.25);  // within the newest ones the law is the same
}

TEST(Ycsb, OperationsComeInTheProportionsOfTheTable) {
  const std::array<unsigned, kYcsbKinds> table[] = {{50, 50, 0, 0, 0}, {95, 5, 0, 0, 0},
                                                    {100, 0, 0, 0, 0}, {95, 0, 5, 0, 0},
                                                    {0, 0, 5, 95, 0},  {50, 0, 0, 0, 50}};
  for (std::size_t mix = 0; mix < 6; ++mix) {
    Ycsb ycsb(*ycsb_mix(static_cast<char>('a' + mix)), kRecords, 5);
    std::array<double, kYcsbKinds> counts{};
    for (int draw = 0; draw < 20'000; ++draw) {
      const YcsbOperation operation = ycsb.next();
      counts[static_cast<std::size_t>(operation.kind)] += 1;
      const bool scans = operation.kind == YcsbKind::Scan;
      EXPECT_EQ(operation.scan >= 1 && operation.scan <= kYcsbScanMax, scans);
    }
    for (std::size_t kind = 0; kind < kYcsbKinds; ++kind) {
      EXPECT_NEAR(counts[kind] / 200, table[mix][kind], 1.5) << mix << ' ' << kind;
    }
  }
  EXPECT_EQ(ycsb_mix('G').code(), ErrorCode::InvalidArgument);
}

TEST(Ycsb, TheSameSeedIsTheSameRunAndKeysAreDifferent) {
  Ycsb one(*ycsb_mix('E'), kRecords, 6);
  Ycsb same(*ycsb_mix('E'), kRecords, 6);
  for (int draw = 0; draw < 1000; ++draw) {
    const YcsbOperation operation = one.next();
    const YcsbOperation other = same.next();
    EXPECT_EQ(operation.record, other.record);
    EXPECT_EQ(operation.scan, other.scan);
  }
  std::set<std::string> keys;
  for (std::uint64_t record = 0; record < 10'000; ++record) keys.insert(ycsb_key(record));
  EXPECT_EQ(keys.size(), 10'000u);
  EXPECT_EQ(keys.begin()->size(), 8u);
}

}  // namespace
}  // namespace perdure::workload
