// YCSB's core workloads A to F (Cooper et al., "Benchmarking Cloud Serving Systems with YCSB",
// SoCC 2010, table 2): which operation comes next, and on which record.
//
// Record i of n is chosen with probability i^-0.99 / sum of all of them (from 1: the hottest is
// record 0; in D the hottest is the newest). This is the distribution itself, by a table of sums,
// and not YCSB's approximation of it. Keys are a permutation of the record's number, so the hot
// records are spread over the order of keys.
#pragma once

#include <perdure/result.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/random.h"

namespace perdure::workload {

enum class YcsbKind { Read, Update, Insert, Scan, ReadModifyWrite };
inline constexpr std::size_t kYcsbKinds = 5;
std::string_view to_string(YcsbKind kind);

/// In percent of all operations.
struct YcsbMix {
  char name = 'A';
  std::array<unsigned, kYcsbKinds> percent{};  // by kind
  bool latest = false;                         // records that are new are the hot ones
};

/// 'A' to 'F', in either case. Errors: InvalidArgument.
Result<YcsbMix> ycsb_mix(char name);

inline constexpr double kYcsbZipfian = 0.99;
inline constexpr std::uint64_t kYcsbScanMax = 100;  // records, uniform from 1

/// Ranks from 0, that of rank i as likely as (i + 1)^-exponent. Cost: a table of 8 bytes a rank.
class ZipfianRanks {
 public:
  explicit ZipfianRanks(double exponent) : exponent_(exponent) {}
  /// One more rank, the least likely one.
  void grow();
  std::size_t size() const { return sums_.size(); }
  /// Requires at least one rank.
  std::uint64_t draw(Random& random) const;

 private:
  const double exponent_;
  std::vector<double> sums_;
};

struct YcsbOperation {
  YcsbKind kind = YcsbKind::Read;
  std::uint64_t record = 0;  // of an insert: one that was not there
  std::uint64_t scan = 0;    // records
};

class Ycsb {
 public:
  /// With records 0 to `records` - 1 there. Requires records > 0.
  Ycsb(const YcsbMix& mix, std::uint64_t records, std::uint64_t seed);
  YcsbOperation next();

 private:
  const YcsbMix mix_;
  Random random_;
  ZipfianRanks ranks_{kYcsbZipfian};
};

/// Eight bytes; different for each record.
std::string ycsb_key(std::uint64_t record);

}  // namespace perdure::workload
