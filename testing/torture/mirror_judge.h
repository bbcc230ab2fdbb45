// MirrorJudge: what a mirror (include/perdure/mirror.h) promises, against what its program did and
// what replicas, local memory and readers show. It knows nothing of generations, bitmaps or how a
// replica comes back.
//
//   persisted-is-never-lost   what was acknowledged is on every replica that was in sync when the
//                             program ended, in the local memory, in what is read from a replica,
//                             and in what is brought back from the replicas; no memory that is
//                             older counts again, and nothing is acknowledged to an older program
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
#include <utility>
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

  /// What was done to a memory and said of it since it was opened last.
  struct Known {
    std::vector<std::vector<Write>> places;  // by word: who wrote it, in order
    std::uint64_t acknowledged = 0;
  };

  explicit MirrorJudge(std::size_t words) { now_.places.assign(words, std::vector<Write>(1)); }

  void wrote(std::size_t word, const Write& write) { now_.places[word].push_back(write); }
  /// It and all before it: of the life that is.
  void acknowledged(std::uint64_t update) {
    now_.acknowledged = std::max(now_.acknowledged, update);
  }
  std::uint64_t acknowledged() const { return now_.acknowledged; }

  /// To go on later from what was known then: of another memory of the program.
  const Known& known() const { return now_; }
  void recall(Known known) { now_ = std::move(known); }

  /// A program opened the mirror, and this is what its memory holds: it counts from here on.
  void begin_life(std::span<const std::uint64_t> memory);
  /// All words that somebody holds, after the program's end.
  void holds(std::span<const std::uint64_t> words, const std::string& who);
  /// Words from `first` on, read from a replica in sync when `known` was acknowledged.
  void read(std::size_t first, std::span<const std::uint64_t> words, std::uint64_t known);

  /// A memory came to count that is older than what was acknowledged with another one; or a program
  /// was told that an update is durable which another one had taken the mirror from.
  void superseded(std::string story) { broken("persisted-is-never-lost", std::move(story)); }
  void unequal(std::string story) { broken("replicas-are-equal", std::move(story)); }
  void nothing_can_be_done(std::string story) { broken("something-can-be-done", std::move(story)); }

 private:
  std::size_t index_of(std::size_t word, std::uint64_t value, const std::string& who);
  std::size_t least(std::size_t word, std::uint64_t update) const;

  Known now_;
};

}  // namespace perdure::test
