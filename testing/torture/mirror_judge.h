// MirrorJudge: what a mirror (include/perdure/mirror.h) promises, against what its program did and
// what replicas, local memory and readers show. It knows nothing of generations, bitmaps or how a
// replica comes back.
//
//   persisted-is-never-lost   what was acknowledged is on every replica that was in sync when the
//                             program ended, in the local memory, in what is read from a replica,
//                             and in what is brought back from the replicas
//   epochs-are-in-order       of an ordered update nothing of an epoch is there without all of the
//                             earlier ones
//   nothing-from-nowhere      every word that is found was stored there by the program
//   replicas-are-equal        a replica that is in sync when a mirror was restored has the same
//   something-can-be-done     with all replicas there the mirror opens and comes in sync
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "testing/torture/torture.h"

namespace perdure::test {

/// The memory is words of 8 bytes; each value that is stored into one is another.
class MirrorJudge final : public Judge {
 public:
  static constexpr std::uint64_t kNever = UINT64_MAX;  // stored, and never said to be persisted

  struct Write {
    std::uint64_t update = 0;  // 0: it was there
    std::uint32_t epoch = 0;
    bool ordered = false;
    std::uint64_t value = 0;
  };

  explicit MirrorJudge(std::size_t words) : places_(words) {
    for (auto& writes : places_) writes.push_back({});
  }

  void wrote(std::size_t word, const Write& write) { places_[word].push_back(write); }
  /// It and all before it: of the life that is.
  void acknowledged(std::uint64_t update) { acknowledged_ = std::max(acknowledged_, update); }
  std::uint64_t acknowledged() const { return acknowledged_; }

  /// A program opened the mirror, and this is what its memory holds: it counts from here on.
  void begin_life(std::span<const std::uint64_t> memory);
  /// All words that somebody holds, after the program's end.
  void holds(std::span<const std::uint64_t> words, const std::string& who);
  /// Words from `first` on, read from a replica in sync when `known` was acknowledged.
  void read(std::size_t first, std::span<const std::uint64_t> words, std::uint64_t known);

  void unequal(std::string story) { broken("replicas-are-equal", std::move(story)); }
  void nothing_can_be_done(std::string story) { broken("something-can-be-done", std::move(story)); }

 private:
  std::size_t index_of(std::size_t word, std::uint64_t value, const std::string& who);
  std::size_t least(std::size_t word, std::uint64_t update) const;

  std::vector<std::vector<Write>> places_;  // by word: who wrote it, in order
  std::uint64_t acknowledged_ = 0;
};

}  // namespace perdure::test
