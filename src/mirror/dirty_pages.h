// DirtyPages: which pages of the local memory a replica may not have. One bit for each, so it takes
// a 32768th of the memory, whatever happens.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/assert.h"

namespace perdure::mirror {

inline constexpr std::uint64_t kPageBytes = 4096;

/// Threads: one caller at a time.
class DirtyPages {
 public:
  /// All clean.
  explicit DirtyPages(std::uint64_t bytes)
      : pages_((bytes + kPageBytes - 1) / kPageBytes), words_((pages_ + 63) / 64) {}

  /// The pages that a range touches. Requires that it lies within.
  void mark(std::uint64_t at, std::uint64_t length) {
    if (length == 0) return;
    for (std::uint64_t page = at / kPageBytes; page <= (at + length - 1) / kPageBytes; ++page) {
      mark_page(page);
    }
  }
  void mark_page(std::uint64_t page) {
    PERDURE_ASSERT(page < pages_);
    std::uint64_t& word = words_[page / 64];
    const std::uint64_t bit = std::uint64_t{1} << page % 64;
    count_ += (word & bit) == 0 ? 1 : 0;
    word |= bit;
  }
  void mark_all() {
    for (std::uint64_t page = 0; page < pages_; ++page) mark_page(page);
  }

  std::uint64_t count() const { return count_; }
  bool empty() const { return count_ == 0; }
  std::uint64_t pages() const { return pages_; }

  struct Run {
    std::uint64_t page = 0;
    std::uint64_t pages = 0;
  };
  /// Takes out a run of neighbours, of at most `most` pages: the next one behind the last, or from
  /// the start again. Nothing: all are clean.
  std::optional<Run> take(std::uint64_t most) {
    if (empty()) return std::nullopt;
    std::uint64_t page = next_from(cursor_);
    if (page == pages_) page = next_from(0);
    Run run{page, 0};
    while (run.pages < most && page < pages_ && is_marked(page)) {
      words_[page / 64] &= ~(std::uint64_t{1} << page % 64);
      --count_;
      ++run.pages;
      ++page;
    }
    cursor_ = page;
    return run;
  }

 private:
  bool is_marked(std::uint64_t page) const { return (words_[page / 64] >> page % 64 & 1) != 0; }
  std::uint64_t next_from(std::uint64_t page) const {
    for (std::uint64_t word = page / 64; word < words_.size(); ++word) {
      std::uint64_t bits = words_[word];
      if (word == page / 64) bits &= ~std::uint64_t{0} << page % 64;
      if (bits != 0) return word * 64 + static_cast<std::uint64_t>(std::countr_zero(bits));
    }
    return pages_;
  }

  std::uint64_t pages_ = 0;
  std::vector<std::uint64_t> words_;
  std::uint64_t count_ = 0;
  std::uint64_t cursor_ = 0;
};

}  // namespace perdure::mirror
