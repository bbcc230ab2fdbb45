// Breadth-first search over states packed into a few words, with an open-addressing table of their
// numbers. The queue is the list of states itself. Memory is what large searches wait for, so a
// next state is looked up some steps after it was found, when its place in the table has arrived.
#include "check/explorer.h"

#include "core/assert.h"

#include <algorithm>
#include <array>

namespace perdure::check {
namespace {

inline constexpr std::uint32_t kNone = 0xffffffff;  // no state has this number
inline constexpr std::uint64_t kEmpty = ~std::uint64_t{0};

template <std::size_t words>
class Search {
 public:
  Search(const Program& program, std::uint64_t states_max)
      : program_(program), states_max_(std::min<std::uint64_t>(states_max, kNone - 1)) {
    table_.assign(256, kEmpty);
  }

  Exploration run() {
    find(initial_state<words>(program_), kNone);
    for (std::uint32_t index = 0;; ++index) {
      if (index == states_.size()) insert_all();
      if (index == states_.size()) break;
      const State<words> state = states_[index];
      if (const auto broken = find_broken(program_, state)) return found(broken->property, index);
      if (completed(program_, state)) acknowledged_ = true;
      if (!expand(state, index)) return found(Property::AlwaysCompletes, index);
      if (states_.size() > states_max_) return limit();
    }
    result_.states = states_.size();
    if (!acknowledged_) result_.broken = Property::SometimesAcknowledged;
    return std::move(result_);
  }

 private:
  /// One found state that has not been looked up.
  struct Pending {
    State<words> state;
    std::uint64_t hash = 0;
    std::uint32_t parent = kNone;
  };
  static constexpr std::size_t kPending = 16;

  /// Whether the state has a next one, or may end here.
  bool expand(const State<words>& state, std::uint32_t index) {
    std::uint64_t nexts = 0;
    std::uint64_t crashes = 0;
    for_each_next(program_, state, [&](const State<words>& next, const Action& action) {
      ++nexts;
      crashes += action.crashes() ? 1 : 0;
      find(next, index);
    });
    result_.transitions += nexts;
    if (nexts != crashes || recovering(state[0]) || completed(program_, state)) return true;
    return program_.loses && misses_something(program_, state);
  }

  static std::uint64_t hash(const State<words>& state) {
    std::uint64_t mixed = 0;
    for (const std::uint64_t word : state) {
      mixed = (mixed ^ word) * 0x9e3779b97f4a7c15;
      mixed ^= mixed >> 32;
    }
    return mixed * 0x9e3779b97f4a7c15;
  }

  /// A table entry: the upper half of the hash, and the number of the state.
  static std::uint64_t entry(std::uint64_t hash, std::uint32_t index) {
    return (hash & 0xffffffff00000000) | index;
  }
  static std::uint32_t index_of(std::uint64_t entry) { return static_cast<std::uint32_t>(entry); }
  std::size_t slot_of(std::uint64_t hash) const { return (hash >> 20) & (table_.size() - 1); }

  static bool equal(const State<words>& one, const State<words>& other) {
    std::uint64_t difference = 0;
    for (std::size_t word = 0; word < words; ++word) difference |= one[word] ^ other[word];
    return difference == 0;
  }

  /// Looks up the state that was found kPending states ago, and remembers this one.
  void find(const State<words>& state, std::uint32_t parent) {
    Pending& next = pending_[found_ % kPending];
    if (found_ - inserted_ == kPending) insert_one();
    next = {state, hash(state), parent};
    __builtin_prefetch(&table_[slot_of(next.hash)]);
    if (found_ - inserted_ >= kPending / 2) {
      const std::uint64_t there =
          table_[slot_of(pending_[(found_ - kPending / 2) % kPending].hash)];
      if (there != kEmpty) __builtin_prefetch(&states_[index_of(there)]);
    }
    ++found_;
  }

  void insert_all() {
    while (inserted_ != found_) insert_one();
  }

  void insert_one() {
    const Pending& next = pending_[inserted_++ % kPending];
    std::size_t slot = slot_of(next.hash);
    const std::uint64_t added = entry(next.hash, static_cast<std::uint32_t>(states_.size()));
    for (; table_[slot] != kEmpty; slot = (slot + 1) & (table_.size() - 1)) {
      const bool alike = (table_[slot] ^ added) >> 32 == 0;
      if (alike && equal(states_[index_of(table_[slot])], next.state)) return;
    }
    table_[slot] = added;
    states_.push_back(next.state);
    parents_.push_back(next.parent);
    if (states_.size() * 2 > table_.size()) grow();
  }

  void grow() {
    table_.assign(table_.size() * 4, kEmpty);
    for (std::uint32_t index = 0; index < states_.size(); ++index) {
      const std::uint64_t hashed = hash(states_[index]);
      std::size_t slot = slot_of(hashed);
      while (table_[slot] != kEmpty) slot = (slot + 1) & (table_.size() - 1);
      table_[slot] = entry(hashed, index);
    }
  }

  Exploration limit() {
    insert_all();
    result_.states = states_.size();
    result_.limit_reached = true;
    return std::move(result_);
  }

  Exploration found(Property property, std::uint32_t index) {
    insert_all();
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
  bool acknowledged_ = false;
  std::vector<State<words>> states_;
  std::vector<std::uint32_t> parents_;
  std::vector<std::uint64_t> table_;  // power of two; at most half full
  std::array<Pending, kPending> pending_{};
  std::uint64_t found_ = 0;
  std::uint64_t inserted_ = 0;
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
