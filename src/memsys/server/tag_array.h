// TagArray: which lines a set-associative cache holds; the least recently used one of a set goes.
#pragma once

#include "memsys/server/processor.h"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace perdure::memsys {

inline constexpr std::uint64_t kNoLine = ~std::uint64_t{0};

template <typename Payload>
class TagArray {
 public:
  struct Way {
    std::uint64_t line = kNoLine;
    std::uint64_t used = 0;
    Payload payload;
  };

  /// Requires  a power of two of sets.
  explicit TagArray(CacheGeometry geometry)
      : ways_(geometry.ways),
        mask_(geometry.bytes / kCacheLineBytes / geometry.ways - 1),
        array_((mask_ + 1) * ways_) {}

  /// Null: not there.
  Way* find(std::uint64_t line) {
    Way* const set = set_of(line);
    Way* const found = std::find_if(set, set + ways_, [&](const Way& w) { return w.line == line; });
    return found == set + ways_ ? nullptr : found;
  }
  void touch(Way& way) { way.used = ++clock_; }
  /// The way that `line` would take: one that is free, or the least recently used.
  Way& victim(std::uint64_t line) {
    Way* const set = set_of(line);
    return *std::min_element(set, set + ways_,
                             [](const Way& a, const Way& b) { return a.used < b.used; });
  }
  void remove(Way& way) { way = Way{}; }

  /// All of them, those that hold nothing too; for tests.
  const std::vector<Way>& ways() const { return array_; }

 private:
  Way* set_of(std::uint64_t line) { return &array_[(line & mask_) * ways_]; }

  std::uint64_t ways_;
  std::uint64_t mask_;
  std::vector<Way> array_;
  std::uint64_t clock_ = 0;
};

}  // namespace perdure::memsys
