// Names of structures and what they share: see structure.h.
#include "workload/structure.h"

#include "core/assert.h"
#include "core/named.h"
#include "workload/shuffle.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace perdure::workload {
namespace {

constexpr std::array<std::string_view, 5> kStructureNames{"hash", "rbtree", "sps", "btree",
                                                          "ssca2"};
constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

}  // namespace

std::string_view to_string(StructureKind kind) {
  return kStructureNames.at(static_cast<std::size_t>(kind));
}

std::string structure_names() { return fmt::format("{}", fmt::join(kStructureNames, "|")); }

Result<StructureKind> parse_structure(std::string_view word) {
  return find_named<StructureKind>("workload", word, kStructureNames);
}

std::uint64_t published_footprint(StructureKind kind) {
  switch (kind) {
    case StructureKind::Sps: return 1024 * kMiB;
    case StructureKind::Ssca2: return 16 * kMiB;
    default: return 256 * kMiB;
  }
}

std::unique_ptr<Structure> make_structure(StructureKind kind, StructureOptions options,
                                          Random& random) {
  PERDURE_ASSERT(options.partitions > 0);
  PERDURE_ASSERT(options.footprint / options.partitions >= kPartitionBytesMin);
  switch (kind) {
    case StructureKind::Hash: return make_hash(options, random);
    case StructureKind::Rbtree: return make_rbtree(options, random);
    case StructureKind::Sps: return make_sps(options, random);
    case StructureKind::Btree: return make_btree(options, random);
    case StructureKind::Ssca2: break;
  }
  return make_ssca2(options, random);
}

Slots::Slots(std::uint32_t partitions, std::uint32_t slots_each, Random& random)
    : slots_each_(slots_each), free_(partitions) {
  for (std::uint32_t p = 0; p < partitions; ++p) {
    std::vector<std::uint32_t>& free = free_[p];
    for (std::uint32_t i = 0; i < slots_each; ++i) free.push_back(p * slots_each + i);
    shuffle(free, random);
  }
}

bool Slots::taken(std::uint32_t slot) const {
  const std::vector<std::uint32_t>& free = free_.at(slot / slots_each_);
  return std::find(free.begin(), free.end(), slot) == free.end();
}

std::uint32_t Slots::take(std::uint32_t partition) {
  PERDURE_ASSERT(!free_[partition].empty());
  const std::uint32_t slot = free_[partition].back();
  free_[partition].pop_back();
  return slot;
}

}  // namespace perdure::workload
