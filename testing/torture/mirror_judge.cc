// What a mirror promises: see mirror_judge.h.
#include "testing/torture/mirror_judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/assert.h"

namespace perdure::test {

void MirrorJudge::begin_life(std::span<const std::uint64_t> memory) {
  PERDURE_ASSERT(memory.size() == now_.places.size());
  for (std::size_t word = 0; word < memory.size(); ++word) {
    now_.places[word] = {{0, 0, false, memory[word]}};
  }
  now_.acknowledged = 0;
}

/// Which of the values that were stored into a word this is; the newest.
std::size_t MirrorJudge::index_of(std::size_t word, std::uint64_t value, const std::string& who) {
  const auto& writes = now_.places[word];
  for (std::size_t index = writes.size(); index-- > 0;) {
    if (writes[index].value == value) return index;
  }
  broken("nothing-from-nowhere",
         fmt::format("{}: word {} holds {}, which nobody stored there", who, word, value));
  return writes.size() - 1;
}

/// The oldest that may be there when everything up to `update` must be.
std::size_t MirrorJudge::least(std::size_t word, std::uint64_t update) const {
  const auto& writes = now_.places[word];
  std::size_t at = writes.size() - 1;
  while (at > 0 && writes[at].update > update) --at;
  return at;
}

void MirrorJudge::holds(std::span<const std::uint64_t> words, const std::string& who) {
  PERDURE_ASSERT(words.size() == now_.places.size());
  std::map<std::uint64_t, std::uint32_t> shown;    // by update: the last epoch that is there
  std::map<std::uint64_t, std::uint32_t> lacking;  // and the first of which something is not
  for (std::size_t word = 0; word < words.size(); ++word) {
    const auto& writes = now_.places[word];
    const std::size_t at = index_of(word, words[word], who);
    const std::size_t wanted = least(word, now_.acknowledged);
    if (at < wanted) {
      return broken("persisted-is-never-lost",
                    fmt::format("{}: word {} lacks update {}, and {} was acknowledged", who, word,
                                writes[wanted].update, now_.acknowledged));
    }
    const Write& held = writes[at];
    if (held.ordered) shown[held.update] = std::max(shown[held.update], held.epoch);
    for (std::size_t later = at + 1; later < writes.size(); ++later) {
      if (!writes[later].ordered) continue;
      const auto [place, is_new] = lacking.emplace(writes[later].update, writes[later].epoch);
      if (!is_new) place->second = std::min(place->second, writes[later].epoch);
    }
  }
  for (const auto& [update, epoch] : shown) {
    const auto lacks = lacking.find(update);
    if (lacks == lacking.end() || lacks->second >= epoch) continue;
    return broken("epochs-are-in-order",
                  fmt::format("{}: epoch {} of update {} is there without epoch {}", who, epoch,
                              update, lacks->second));
  }
}

void MirrorJudge::read(std::size_t first, std::span<const std::uint64_t> words,
                       std::uint64_t known) {
  for (std::size_t index = 0; index < words.size(); ++index) {
    const std::size_t word = first + index;
    if (index_of(word, words[index], "a read") >= least(word, known)) continue;
    return broken("persisted-is-never-lost",
                  fmt::format("a read of word {} lacks what was acknowledged", word));
  }
}

}  // namespace perdure::test
