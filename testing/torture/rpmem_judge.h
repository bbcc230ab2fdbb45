// RpmemJudge: what librpmem (docs/rpmem.md) promises, against what its program did and what the
// target, the program's memory and its reads show. It knows nothing of connections, lanes or how a
// pool comes back.
//
//   persisted-is-never-lost   what a call said to be durable is at the target from then on: in what
//                             is read, after power failures, and in what is brought back from there
//                             (pmempool sync); and no program is told so of which another one has
//                             had the pool since
//   nothing-from-nowhere      every word that is found was stored there by the program
//   headers-are-kept          a pool that is opened has the attributes that were set last
//   something-can-be-done     with everything repaired the pool opens and takes a persist; errors
//                             are those that remote_pool.h names, where they may come
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "testing/torture/torture.h"

namespace perdure::test {

/// The memory is words of 8 bytes; each value that is stored into one is another.
class RpmemJudge final : public Judge {
 public:
  /// The how manieth value that was stored into a word.
  struct Stored {
    std::size_t word = 0;
    std::size_t at = 0;
  };

  explicit RpmemJudge(std::size_t words) : places_(words) {}

  void stored(std::size_t word, std::uint64_t value) { places_[word].values.push_back(value); }
  /// What is in the word now.
  Stored newest(std::size_t word) const { return {word, places_[word].values.size() - 1}; }
  /// A call said so.
  void durable(std::span<const Stored> what);

  /// Both sides hold this: it counts from here on.
  void begin_life(std::span<const std::uint64_t> words);
  /// Words from `first` on that somebody holds, or was given.
  void holds(std::size_t first, std::span<const std::uint64_t> words, const std::string& who);

  void superseded(std::string story) { broken("persisted-is-never-lost", std::move(story)); }
  void other_headers(std::string story) { broken("headers-are-kept", std::move(story)); }
  void nothing_can_be_done(std::string story) { broken("something-can-be-done", std::move(story)); }

 private:
  struct Place {
    std::vector<std::uint64_t> values{0};
    std::size_t durable = 0;  // this one, or a later one
  };
  std::vector<Place> places_;
};

}  // namespace perdure::test
