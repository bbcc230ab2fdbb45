// Breadth-first search over the states of any model: each state once, nearest first, so that the
// way to a broken law is as short as it can be. Knows nothing of what a state means.
//
// A Model has: `State`, `Step` (one way on: `state`, `action`, `broken`), `Law` (0: none),
// `key(state)` (equal for states that need not be told apart), `steps(state, out)` and
// `check(state)`. States are told apart by 64 bits of hash: with N states the chance that any was
// taken for another is below N^2 / 2^65 (10 million: 3 in a million).
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace perdure::model {

/// A set of hashes; open addressing, at most half full.
class KeySet {
 public:
  KeySet() : table_(1024, 0) {}
  /// False when it is there already.
  bool insert(std::uint64_t key) {
    key |= key == 0 ? 1 : 0;
    if (!put(table_, key)) return false;
    if (++size_ * 2 > table_.size()) grow();
    return true;
  }

 private:
  static bool put(std::vector<std::uint64_t>& table, std::uint64_t key) {
    std::size_t at = key & (table.size() - 1);
    for (; table[at] != 0; at = (at + 1) & (table.size() - 1)) {
      if (table[at] == key) return false;
    }
    table[at] = key;
    return true;
  }
  void grow() {
    std::vector<std::uint64_t> larger(table_.size() * 4, 0);
    for (const std::uint64_t key : table_) {
      if (key != 0) put(larger, key);
    }
    table_ = std::move(larger);
  }

  std::vector<std::uint64_t> table_;
  std::size_t size_ = 0;
};

template <typename Model>
struct Searched {
  std::uint64_t states = 0;
  std::uint64_t steps = 0;
  std::size_t depth = 0;
  bool limit_reached = false;
  typename Model::Law broken{};
  std::vector<typename Model::Step> story;  // from the first state to the broken law
};

template <typename Model>
class Search {
 public:
  using State = typename Model::State;
  using Step = typename Model::Step;
  using Law = typename Model::Law;

  Search(Model& model, std::uint64_t states_max) : model_(model), states_max_(states_max) {}

  Searched<Model> run(const State& first) {
    std::vector<Step> out;
    level_.push_back(first);
    add(first, 0);
    for (std::uint32_t number = 0; !level_.empty(); ++result_.depth) {
      std::vector<State> next;
      for (const State& state : level_) {
        out.clear();
        model_.steps(state, out);
        result_.steps += out.size();
        for (Step& step : out) {
          const bool fresh = add(step.state, number);
          const Law law = step.broken != Law{} ? step.broken
                          : fresh              ? model_.check(step.state)
                                               : Law{};
          if (law != Law{}) return found(first, law, number, step);
          if (fresh) next.push_back(step.state);
        }
        ++number;
        if (keys_.size() > states_max_) {
          result_.limit_reached = true;
          return ended();
        }
      }
      level_ = std::move(next);
    }
    return ended();
  }

 private:
  bool add(const State& state, std::uint32_t parent) {
    const std::uint64_t key = model_.key(state);
    if (!seen_.insert(key)) return false;
    keys_.push_back(key);
    parents_.push_back(parent);
    return true;
  }

  Searched<Model> ended() {
    result_.states = keys_.size();
    return std::move(result_);
  }

  /// Goes the way again: states are kept as hashes only.
  Searched<Model> found(const State& first, Law law, std::uint32_t last, const Step& broken) {
    std::vector<std::uint64_t> way = {model_.key(broken.state)};
    for (std::uint32_t at = last; at != 0; at = parents_[at]) way.push_back(keys_[at]);
    State state = first;
    std::vector<Step> out;
    for (; !way.empty(); way.pop_back()) {
      out.clear();
      model_.steps(state, out);
      const Step* taken = nullptr;
      for (const Step& step : out) {
        const bool right = model_.key(step.state) == way.back();
        const bool ends = way.size() > 1 || step.broken == broken.broken;
        if (right && ends && taken == nullptr) taken = &step;
      }
      if (taken == nullptr) break;
      state = taken->state;
      result_.story.push_back(*taken);
    }
    result_.broken = law;
    return ended();
  }

  Model& model_;
  const std::uint64_t states_max_;
  KeySet seen_;
  std::vector<State> level_;
  std::vector<std::uint64_t> keys_;     // of the states, in the order in which they were found
  std::vector<std::uint32_t> parents_;  // their numbers
  Searched<Model> result_;
};

}  // namespace perdure::model
