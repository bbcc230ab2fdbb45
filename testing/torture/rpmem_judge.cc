// What librpmem promises: see rpmem_judge.h.
#include "testing/torture/rpmem_judge.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/assert.h"

namespace perdure::test {

void RpmemJudge::durable(std::span<const Stored> what) {
  for (const Stored& each : what) {
    std::size_t& known = places_[each.word].durable;
    known = std::max(known, each.at);
  }
}

void RpmemJudge::begin_life(std::span<const std::uint64_t> words) {
  PERDURE_ASSERT(words.size() == places_.size());
  for (std::size_t word = 0; word < words.size(); ++word) {
    Place& place = places_[word];
    place.values.push_back(words[word]);
    place.durable = place.values.size() - 1;
  }
}

void RpmemJudge::holds(std::size_t first, std::span<const std::uint64_t> words,
                       const std::string& who) {
  for (std::size_t index = 0; index < words.size(); ++index) {
    const Place& place = places_[first + index];
    const auto found = std::find(place.values.rbegin(), place.values.rend(), words[index]);
    if (found == place.values.rend()) {
      return broken("nothing-from-nowhere", fmt::format("{}: word {} holds {}, which nobody stored",
                                                        who, first + index, words[index]));
    }
    const auto at = static_cast<std::size_t>(place.values.rend() - found) - 1;
    if (at >= place.durable) continue;
    return broken("persisted-is-never-lost",
                  fmt::format("{}: word {} holds {}, and {} was said to be durable", who,
                              first + index, words[index], place.values[place.durable]));
  }
}

}  // namespace perdure::test
