// What was written to a region, word by word, and what may be concluded from the words that a
// replica holds: the judge's half of the region crash tests.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace perdure::test {

/// Who wrote a word: each write has a tag of its own.
struct RegionWrite {
  std::uint64_t update = 0;  // 0: it was there
  std::uint32_t epoch = 0;
  std::uint64_t tag = 0;
};

class RegionHistory {
 public:
  /// What a replica holds at a word.
  using TagOf = std::function<std::uint64_t(std::size_t word)>;

  explicit RegionHistory(std::size_t words) : words_(words, {RegionWrite{}}) {}

  void add(std::size_t word, const RegionWrite& write) { words_[word].push_back(write); }
  void take_back(std::size_t word, std::uint64_t tag) {
    std::erase_if(words_[word], [&](const RegionWrite& had) { return had.tag == tag; });
  }
  void begin_again(std::size_t word, std::uint64_t tag) { words_[word] = {{0, 0, tag}}; }
  std::uint64_t last_tag(std::size_t word) const { return words_[word].back().tag; }

  /// A word that holds what nobody wrote.
  std::optional<std::size_t> stranger(const TagOf& tag_of) const {
    for (std::size_t word = 0; word < words_.size(); ++word) {
      if (!place(word, tag_of(word))) return word;
    }
    return std::nullopt;
  }

  /// Whether everything up to an update is there, or what came later.
  bool has_all(const TagOf& tag_of, std::uint64_t update) const {
    for (std::size_t word = 0; word < words_.size(); ++word) {
      const auto& writes = words_[word];
      std::size_t least = writes.size() - 1;
      while (least > 0 && writes[least].update > update) --least;
      if (place(word, tag_of(word)).value_or(0) < least) return false;
    }
    return true;
  }

  /// Nothing of a later epoch is there without all of the earlier ones.
  bool keeps_order(const TagOf& tag_of) const {
    std::map<std::uint64_t, std::uint32_t> shown;    // by update: the last epoch that is there
    std::map<std::uint64_t, std::uint32_t> lacking;  // and the first of which something is not
    for (std::size_t word = 0; word < words_.size(); ++word) {
      const auto& writes = words_[word];
      const std::size_t at = place(word, tag_of(word)).value_or(0);
      const RegionWrite& held = writes[at];
      if (held.update != 0) shown[held.update] = std::max(shown[held.update], held.epoch);
      for (std::size_t later = at + 1; later < writes.size(); ++later) {
        const auto [first, is_new] = lacking.emplace(writes[later].update, writes[later].epoch);
        if (!is_new) first->second = std::min(first->second, writes[later].epoch);
      }
    }
    return std::all_of(shown.begin(), shown.end(), [&](const auto& each) {
      const auto lacks = lacking.find(each.first);
      return lacks == lacking.end() || lacks->second >= each.second;
    });
  }

 private:
  /// Of what a word holds, in its history.
  std::optional<std::size_t> place(std::size_t word, std::uint64_t tag) const {
    const auto& writes = words_[word];
    for (std::size_t index = writes.size(); index-- > 0;) {
      if (writes[index].tag == tag) return index;
    }
    return std::nullopt;
  }

  std::vector<std::vector<RegionWrite>> words_;  // who wrote it, in order
};

}  // namespace perdure::test
