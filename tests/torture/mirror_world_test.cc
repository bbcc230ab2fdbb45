// Mirrored memory under seeds, and that the judge beside it sees what it must.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "testing/soak.h"
#include "testing/torture/campaign.h"
#include "testing/torture/mirror_world.h"

namespace perdure::test {
namespace {

using Words = std::vector<std::uint64_t>;

CampaignState campaign(const MirrorMachines& machines, std::uint64_t worlds) {
  CampaignOptions options;
  options.seed = 1;
  options.worlds = worlds;
  options.operations = 300;
  options.world_words = "--world mirror";
  options.failures_max = 1;
  if (machines.a_bit_flips) options.shorten_tries = 0;
  CampaignState state;
  const auto run = run_campaign(mirror_scenario(machines), options, state);
  EXPECT_TRUE(run.ok()) << run.error().message;
  for (const Failure& failure : state.failures) {
    if (machines.a_bit_flips) break;
    std::string told;
    for (const std::string& line : failure.told) told += line + "\n";
    ADD_FAILURE() << failure.breach.law << ": " << failure.breach.story << "\n"
                  << repeat_line(failure, options) << "\n"
                  << told;
  }
  return state;
}

TEST(MirrorTorture, NoLawIsBroken) {
  CampaignState state = campaign({}, rounds(24, 20'000));
  EXPECT_EQ(state.worlds_failed, 0u);
  for (const char* what : {"acknowledged", "copied_pages", "opened", "power_cuts_counted",
                           "quorums_lost", "restored", "returned"}) {
    EXPECT_GT(state.counters[what], 0u) << what;
  }
  const Scenario scenario = mirror_scenario();
  std::vector<std::uint64_t> met(scenario.faults.size());
  for (std::size_t row = 0; row < scenario.operations.size(); ++row) {
    EXPECT_GT(state.coverage.times(row), 0u) << scenario.operations[row].name;
    for (std::size_t fault = 0; fault < met.size(); ++fault) {
      met[fault] += state.coverage.times(row, fault);
    }
  }
  for (std::size_t fault = 0; fault < met.size(); ++fault) {
    EXPECT_GT(met[fault], 0u) << scenario.faults[fault].name << " never met anything";
  }
}

TEST(MirrorTorture, ABitThatFlippedIsNoticed) {
  const CampaignState state = campaign({.a_bit_flips = true}, 1);
  ASSERT_EQ(state.failures.size(), 1u);
  EXPECT_EQ(state.failures[0].breach.law, "nothing-from-nowhere");
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
