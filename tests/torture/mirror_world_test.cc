// Mirrored memory under seeds, and that the judge beside it sees what it must.
#include <gtest/gtest.h>

#include "testing/soak.h"
#include "testing/torture/mirror_world.h"
#include "tests/torture/short_campaign.h"

namespace perdure::test {
namespace {

using Words = std::vector<std::uint64_t>;

CampaignState campaign(const MirrorMachines& machines, std::uint64_t worlds) {
  CampaignOptions options;
  options.worlds = worlds;
  options.operations = 300;
  options.world_words = "--world mirror";
  const bool whole = !machines.a_bit_flips && !machines.memories_keep_nothing;
  return short_campaign(mirror_scenario(machines), options, whole);
}

TEST(MirrorTorture, NoLawIsBroken) {
  CampaignState state = campaign({}, rounds(24, 20'000));
  for (const char* what :
       {"acknowledged", "copied_pages", "elsewhere", "fenced", "half_refused", "older_refused",
        "opened", "power_cuts_counted", "quorums_lost", "restored", "returned"}) {
    EXPECT_GT(state.counters[what], 0u) << what;
  }
  expect_all_came(mirror_scenario(), state);
}

TEST(MirrorTorture, ABitThatFlippedIsNoticed) {
  const CampaignState state = campaign({.a_bit_flips = true}, 1);
  ASSERT_EQ(state.failures.size(), 1u);
  EXPECT_EQ(state.failures[0].breach.law, "nothing-from-nowhere");
}

TEST(MirrorTorture, AnOlderMemoryThatCountsIsNoticed) {
  const CampaignState state = campaign({.memories_keep_nothing = true}, 1);
  ASSERT_EQ(state.failures.size(), 1u);
  EXPECT_EQ(state.failures[0].breach.law, "persisted-is-never-lost");
}

TEST(MirrorJudge, KnowsWhatMayBeThere) {
  //                                update  epoch  ordered  value
  const auto judge_of = [](Words memory) {
    MirrorJudge judge(3);
    judge.wrote(0, {1, 0, true, 10});
    judge.wrote(1, {1, 1, true, 11});
    judge.wrote(2, {2, 0, false, 12});
    judge.wrote(2, {MirrorJudge::kNever, 0, false, 13});
    judge.acknowledged(1);
    judge.holds(memory, "it");
    return judge.breach() ? judge.breach()->law : "";
  };
  EXPECT_EQ(judge_of({10, 11, 0}), "");
  EXPECT_EQ(judge_of({10, 11, 12}), "");
  EXPECT_EQ(judge_of({10, 11, 13}), "") << "what was stored may be there";
  EXPECT_EQ(judge_of({10, 0, 12}), "persisted-is-never-lost");
  EXPECT_EQ(judge_of({10, 11, 99}), "nothing-from-nowhere");
}

TEST(MirrorJudge, NoticesAnEpochBeforeItsTurn) {
  const auto judge_of = [](Words memory) {
    MirrorJudge judge(2);
    judge.wrote(0, {1, 0, true, 10});
    judge.wrote(1, {1, 1, true, 11});
    judge.holds(memory, "it");
    return judge.breach() ? judge.breach()->law : "";
  };
  EXPECT_EQ(judge_of({0, 0}), "");
  EXPECT_EQ(judge_of({10, 0}), "");
  EXPECT_EQ(judge_of({10, 11}), "");
  EXPECT_EQ(judge_of({0, 11}), "epochs-are-in-order");
}

}  // namespace
}  // namespace perdure::test
