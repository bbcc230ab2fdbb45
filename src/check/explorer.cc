// Breadth-first search over states packed into a few words, with an open-addressing table of their
// numbers. The queue is the list of states itself.
#include "check/explorer.h"

#include "core/assert.h"

#include <algorithm>

namespace perdure::check {
namespace {

inline constexpr std::uint32_t kNone = 0xffffffff;

template <std::size_t words>
class Search {
 public:
  Search(const Program& program, std::uint64_t states_max)
      : program_(program), states_max_(std::min<std::uint64_t>(states_max, kNone - 1)) {
    table_.assign(256, kNone);
  }

  Exploration run() {
    insert(initial_state<words>(program_), kNone);
    for (std::uint32_t index = 0; index < states_.size(); ++index) {
      const State<words> state = states_[index];
      if (const auto broken = find_broken(program_, state)) return found(broken->property, index);
      if (pc_of(state[0]) == program_.script.steps.size()) told_ = true;
      std::uint64_t nexts = 0;
      std::uint64_t crashes = 0;
      for_each_next(program_, state, [&](const State<words>& next, const Action& action) {
        ++nexts;
        crashes += action.crashes() ? 1 : 0;
        insert(next, index);
      });
      result_.transitions += nexts;
      const bool ended = recovering(state[0]) || pc_of(state[0]) == program_.script.steps.size();
      const bool stuck = nexts == crashes && !ended;
      if (stuck) return found(Property::AlwaysCompletes, index);
      if (states_.size() > states_max_) return limit();
    }
    result_.states = states_.size();
    if (!told_) result_.broken = Property::SometimesTold;
    return std::move(result_);
  }

 private:
  static std::size_t hash(const State<words>& state) {
    std::uint64_t mixed = 0;
    for (const std::uint64_t word : state) {
      mixed = (mixed ^ word) * 0x9e3779b97f4a7c15;
      mixed ^= mixed >> 32;
    }
    return mixed;
  }

  void insert(const State<words>& state, std::uint32_t parent) {
    std::size_t slot = hash(state) & (table_.size() - 1);
    while (table_[slot] != kNone) {
      if (states_[table_[slot]] == state) return;
      slot = (slot + 1) & (table_.size() - 1);
    }
    table_[slot] = static_cast<std::uint32_t>(states_.size());
    states_.push_back(state);
    parents_.push_back(parent);
    if (states_.size() * 2 > table_.size()) grow();
  }

  void grow() {
    table_.assign(table_.size() * 4, kNone);
    for (std::uint32_t index = 0; index < states_.size(); ++index) {
      std::size_t slot = hash(states_[index]) & (table_.size() - 1);
      while (table_[slot] != kNone) slot = (slot + 1) & (table_.size() - 1);
      table_[slot] = index;
    }
  }

  Exploration limit() {
    result_.states = states_.size();
    result_.limit_reached = true;
    return std::move(result_);
  }

  Exploration found(Property property, std::uint32_t index) {
    result_.states = states_.size();
    result_.broken = property;
    for (; parents_[index] != kNone; index = parents_[index]) {
      result_.actions.push_back(action_between(states_[parents_[index]], states_[index]));
    }
    std::reverse(result_.actions.begin(), result_.actions.end());
    return std::move(result_);
  }

  Action action_between(const State<words>& from, const State<words>& to) const {
    std::optional<Action> action;
    for_each_next(program_, from, [&](const State<words>& next, const Action& by) {
      if (!action && next == to) action = by;
    });
    PERDURE_ASSERT(action.has_value());
    return *action;
  }

  const Program& program_;
  std::uint64_t states_max_;
  bool told_ = false;
  std::vector<State<words>> states_;
  std::vector<std::uint32_t> parents_;
  std::vector<std::uint32_t> table_;  // power of two; at most half full
  Exploration result_;
};

}  // namespace

Exploration explore(const Program& program, std::uint64_t states_max) {
  switch (program.words) {
    case 1: return Search<1>(program, states_max).run();
    case 2: return Search<2>(program, states_max).run();
    case 4: return Search<4>(program, states_max).run();
    default: break;
  }
  PERDURE_ASSERT(program.words == kWordsMax);
  return Search<kWordsMax>(program, states_max).run();
}

}  // namespace perdure::check
