// Structure: a data structure in persistent memory that transactions change. The data are real;
// where they would stand in memory is what a Recorder gets.
//
// A structure is cut into partitions with a lock each. Thread and partition are the caller's
// choice.
#pragma once

#include <perdure/result.h>

#include "core/random.h"
#include "workload/recorder.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace perdure::workload {

class Structure {
 public:
  virtual ~Structure() = default;
  virtual std::unique_ptr<Structure> clone() const = 0;
  /// Bytes of memory that it occupies, from address 0.
  virtual std::uint64_t footprint() const = 0;
  /// One operation inside the partition, chosen by `random`.
  virtual void transact(std::uint32_t partition, Random& random, Recorder& recorder) = 0;
  /// Whether readers can reach what stands in `range`, which lies in one item; for tests.
  virtual bool live(Range range) const = 0;
  /// Whether the structure's own laws hold, everywhere; for tests. Empty, or what is wrong.
  virtual std::string check() const = 0;
};

/// The BROI paper, table IV.
enum class StructureKind { Hash, Rbtree, Sps, Btree, Ssca2 };

std::string_view to_string(StructureKind kind);
/// All of them, with `|` between: for help texts.
std::string structure_names();
/// The inverse of to_string. Errors: InvalidArgument, naming the accepted words.
Result<StructureKind> parse_structure(std::string_view word);
/// Bytes; the BROI paper, table IV.
std::uint64_t published_footprint(StructureKind kind);

struct StructureOptions {
  std::uint64_t footprint = 0;  // bytes, at most; a structure uses what its items fill
  std::uint32_t partitions = 256;
};

inline constexpr std::uint64_t kPartitionBytesMin = 16384;

/// Half full of what it can hold, if it is one that holds a set.
/// Requires  partitions > 0, footprint / partitions >= kPartitionBytesMin.
std::unique_ptr<Structure> make_structure(StructureKind kind, StructureOptions options,
                                          Random& random);

// One each; see the files of these names.
std::unique_ptr<Structure> make_hash(StructureOptions options, Random& random);
std::unique_ptr<Structure> make_rbtree(StructureOptions options, Random& random);
std::unique_ptr<Structure> make_sps(StructureOptions options, Random& random);
std::unique_ptr<Structure> make_btree(StructureOptions options, Random& random);
std::unique_ptr<Structure> make_ssca2(StructureOptions options, Random& random);

/// Slots of equal size that are taken in a random order, so that neighbours in time are none in
/// memory; of each partition its own.
class Slots {
 public:
  Slots(std::uint32_t partitions, std::uint32_t slots_each, Random& random);
  bool empty(std::uint32_t partition) const { return free_[partition].empty(); }
  std::uint32_t take(std::uint32_t partition);
  void give_back(std::uint32_t partition, std::uint32_t slot) { free_[partition].push_back(slot); }
  std::size_t left(std::uint32_t partition) const { return free_[partition].size(); }
  /// Whether somebody has taken it, of any partition.
  bool taken(std::uint32_t slot) const;

 private:
  std::uint32_t slots_each_;
  std::vector<std::vector<std::uint32_t>> free_;
};

/// Instructions per node that a search visits and per transaction; assumptions of this model.
inline constexpr std::uint64_t kVisitInstructions = 10;
inline constexpr std::uint64_t kTransactionInstructions = 200;

}  // namespace perdure::workload
