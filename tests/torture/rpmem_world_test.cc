// A program on librpmem and its target under seeds, and that the judge beside them sees what it
// must.
#include <gtest/gtest.h>

#include <array>

#include "testing/soak.h"
#include "testing/torture/rpmem_world.h"
#include "tests/torture/short_campaign.h"

namespace perdure::test {
namespace {

CampaignState campaign(const RpmemMachines& machines, std::uint64_t worlds, bool whole) {
  CampaignOptions options;
  options.worlds = worlds;
  options.operations = 300;
  options.world_words = "--world rpmem";
  return short_campaign(rpmem_scenario(machines), options, whole);
}

TEST(RpmemTorture, NoLawIsBroken) {
  CampaignState state = campaign({}, rounds(24, 20'000), true);
  for (const char* what :
       {"acknowledged", "attributes_set", "beside_refused", "kills", "lost", "made",
        "medium_refused", "opened", "power_cuts_counted", "reads", "restored", "rpmemd_started"}) {
    EXPECT_GT(state.counters[what], 0u) << what;
  }
  // A lost connection comes back: by the rpmemd that there is, and by another one.
  EXPECT_GT(state.counters["ridden_out_by_the_same"], 0u);
  EXPECT_GT(state.counters["ridden_out"], 0u);
  if (state.counters["clients_known"] > 0) {
    EXPECT_GT(state.counters["elsewhere"], 0u);
    EXPECT_GT(state.counters["older_refused"], 0u);
  }
  expect_all_came(rpmem_scenario(), state);
}

TEST(RpmemTorture, NoLawIsBrokenWhereConnectionsDropAgainAndAgain) {
  CampaignOptions options;
  options.worlds = rounds(6, 2000);
  options.operations = 100;
  options.world_words = "--world rpmem";
  options.often = {"connections-drop"};
  CampaignState state = short_campaign(rpmem_scenario(), options, true);
  EXPECT_GT(state.counters["ridden_out_by_the_same"], 0u);
}

TEST(RpmemTorture, ABitThatFlippedIsNoticed) {
  const CampaignState state = campaign({.a_bit_flips = true}, 1, false);
  ASSERT_EQ(state.failures.size(), 1u);
  EXPECT_EQ(state.failures[0].breach.law, "nothing-from-nowhere");
}

TEST(RpmemTorture, ATargetThatFlushesNothingIsNoticed) {
  const CampaignState state = campaign({.flushes_nothing = true}, 24, false);
  ASSERT_FALSE(state.failures.empty());
  EXPECT_EQ(state.failures[0].breach.law, "persisted-is-never-lost");
}

TEST(RpmemTorture, ATargetThatForgetsItsClientsIsNoticed) {
  CampaignState state = campaign({.forgets_clients = true}, 24, false);
  if (state.counters["clients_known"] == 0) {
    GTEST_SKIP() << "the file system has no extended attributes: nobody knows whose a pool was";
  }
  ASSERT_FALSE(state.failures.empty());
  EXPECT_EQ(state.failures[0].breach.law, "persisted-is-never-lost");
}

TEST(RpmemJudge, KnowsWhatMayBeThere) {
  const auto judge_of = [](std::uint64_t first, std::uint64_t second) {
    RpmemJudge judge(2);
    judge.stored(0, 10);
    const auto durable = judge.newest(0);
    judge.durable({&durable, 1});
    judge.stored(0, 11);
    judge.stored(1, 20);
    judge.holds(0, std::array{first, second}, "it");
    return judge.breach() ? judge.breach()->law : "";
  };
  EXPECT_EQ(judge_of(10, 0), "");
  EXPECT_EQ(judge_of(11, 20), "") << "what was stored may be there";
  EXPECT_EQ(judge_of(0, 20), "persisted-is-never-lost");
  EXPECT_EQ(judge_of(11, 21), "nothing-from-nowhere");
}

}  // namespace
}  // namespace perdure::test
