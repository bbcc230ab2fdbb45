// The search itself, on models whose states can be counted by hand.
#include "model/search.h"

#include <gtest/gtest.h>

namespace perdure::model {
namespace {

/// Two counters below `limit` that grow one at a time; broken where both are `forbidden`.
struct Counters {
  struct State {
    int one = 0;
    int two = 0;
  };
  using Law = int;
  struct Step {
    State state;
    int action = 0;
    Law broken = 0;
  };
  int limit = 4;
  int forbidden = -1;
  bool same = false;  // which is which does not matter

  std::uint64_t key(const State& state) const {
    const int low = same ? std::min(state.one, state.two) : state.one;
    const int high = same ? std::max(state.one, state.two) : state.two;
    return static_cast<std::uint64_t>(low * 100 + high + 1);
  }
  void steps(const State& state, std::vector<Step>& out) const {
    if (state.one + 1 < limit) out.push_back({{state.one + 1, state.two}, 1, 0});
    if (state.two + 1 < limit) out.push_back({{state.one, state.two + 1}, 2, 0});
  }
  Law check(const State& state) const {
    return state.one == forbidden && state.two == forbidden ? 7 : 0;
  }
};

TEST(Search, VisitsEveryStateOnce) {
  Counters counters;
  const auto all = Search<Counters>(counters, 1000).run({});
  EXPECT_EQ(all.states, 16u);
  EXPECT_EQ(all.steps, 24u);
  EXPECT_EQ(all.broken, 0);
  EXPECT_FALSE(all.limit_reached);
  counters.same = true;
  EXPECT_EQ(Search<Counters>(counters, 1000).run({}).states, 10u);
}

TEST(Search, TellsTheShortestWayToABrokenLaw) {
  for (const bool same : {false, true}) {
    Counters counters;
    counters.forbidden = 2;
    counters.same = same;
    const auto found = Search<Counters>(counters, 1000).run({});
    EXPECT_EQ(found.broken, 7);
    ASSERT_EQ(found.story.size(), 4u);
    EXPECT_EQ(found.story.back().state.one, 2);
    EXPECT_EQ(found.story.back().state.two, 2);
  }
}

TEST(Search, SaysThatItStoppedAtTheLimit) {
  Counters counters;
  counters.limit = 90;
  EXPECT_TRUE(Search<Counters>(counters, 100).run({}).limit_reached);
}

}  // namespace
}  // namespace perdure::model
