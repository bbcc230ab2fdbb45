// YCSB's core workloads: see ycsb.h.
#include "workload/ycsb/ycsb.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/assert.h"

namespace perdure::workload {
namespace {

constexpr std::array<YcsbMix, 6> kMixes = {{
    //     read update insert scan read-modify-write
    {'A', {50, 50, 0, 0, 0}, false},
    {'B', {95, 5, 0, 0, 0}, false},
    {'C', {100, 0, 0, 0, 0}, false},
    {'D', {95, 0, 5, 0, 0}, true},
    {'E', {0, 0, 5, 95, 0}, false},
    {'F', {50, 0, 0, 0, 50}, false},
}};

}  // namespace

std::string_view to_string(YcsbKind kind) {
  switch (kind) {
    case YcsbKind::Read: return "read";
    case YcsbKind::Update: return "update";
    case YcsbKind::Insert: return "insert";
    case YcsbKind::Scan: return "scan";
    case YcsbKind::ReadModifyWrite: return "read-modify-write";
  }
  return "read";
}

Result<YcsbMix> ycsb_mix(char name) {
  for (const YcsbMix& mix : kMixes) {
    if (mix.name == name || mix.name + ('a' - 'A') == name) return mix;
  }
  return Error{ErrorCode::InvalidArgument,
               fmt::format("there is no workload '{}' of YCSB: A to F", name)};
}

void ZipfianRanks::grow() {
  const double before = sums_.empty() ? 0.0 : sums_.back();
  sums_.push_back(before + std::pow(static_cast<double>(sums_.size() + 1), -exponent_));
}

std::uint64_t ZipfianRanks::draw(Random& random) const {
  PERDURE_ASSERT(!sums_.empty());
  constexpr double kUnit = 1.0 / 9007199254740992.0;  // 2^-53
  const double at = static_cast<double>(random.next() >> 11) * kUnit * sums_.back();
  const auto found = std::upper_bound(sums_.begin(), sums_.end(), at);
  return static_cast<std::uint64_t>(std::min(found, sums_.end() - 1) - sums_.begin());
}

Ycsb::Ycsb(const YcsbMix& mix, std::uint64_t records, std::uint64_t seed)
    : mix_(mix), random_(seed) {
  PERDURE_ASSERT(records > 0);
  for (std::uint64_t each = 0; each < records; ++each) ranks_.grow();
}

YcsbOperation Ycsb::next() {
  YcsbOperation operation;
  std::uint64_t percent = random_.below(100);
  std::size_t kind = 0;
  while (percent >= mix_.percent[kind]) percent -= mix_.percent[kind++];
  operation.kind = static_cast<YcsbKind>(kind);
  if (operation.kind == YcsbKind::Insert) {
    operation.record = ranks_.size();
    ranks_.grow();
    return operation;
  }
  const std::uint64_t rank = ranks_.draw(random_);
  operation.record = mix_.latest ? ranks_.size() - 1 - rank : rank;
  if (operation.kind == YcsbKind::Scan) operation.scan = 1 + random_.below(kYcsbScanMax);
  return operation;
}

// The finalizer of splitmix64 (Steele, Lea and Flood, OOPSLA 2014) is a permutation of 64 bits.
std::string ycsb_key(std::uint64_t record) {
  std::uint64_t mixed = record + 0x9e3779b97f4a7c15;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
  mixed ^= mixed >> 31;
  std::string key(sizeof mixed, '\0');
  for (char& byte : key) {
    byte = static_cast<char>(mixed >> 56);  // most significant first
    mixed <<= 8;
  }
  return key;
}

}  // namespace perdure::workload
