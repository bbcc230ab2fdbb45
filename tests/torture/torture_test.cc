// Short campaigns of whole clusters, and the machinery around them: a seed repeats itself, a
// failure is made short, a program that aborts or hangs is a failure like any other.
//
// PERDURE_SOAK=1 runs for ten minutes instead of a quarter of one.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "testing/soak.h"
#include "testing/torture/campaign.h"
#include "testing/torture/emulated_log_world.h"
#include "testing/world_server.h"

namespace perdure::test {
namespace {

struct ToyKind {
  bool breaks = true;
  bool aborts = false;
  bool rest_meets_nothing = false;
};

/// A world without a log: three operations, of which two together break its law, if a fault was
/// there before.
class ToyWorld final : public World {
 public:
  class ToyJudge final : public Judge {
   public:
    void look(bool broken_now) {
      if (broken_now) broken("toys-stay-whole", "it broke");
    }
  };

  explicit ToyWorld(const ToyKind& kind) {
    operations_.push_back({"wind", 1, [this](Random&) {
                             ++winds_;
                             rests_ = false;
                           }});
    operations_.push_back({"rest", 8, [this](Random&) { rests_ = true; }});
    operations_.push_back({"drop", 1, [this, kind](Random&) {
                             rests_ = false;
                             const bool breaks = kind.breaks && cracked_ && winds_ >= 2;
                             if (breaks && kind.aborts) std::abort();
                             judge_.look(breaks);
                           }});
    faults_.push_back({"crack", 1, 1, [this](Random&) { return cracked_ = true; },
                       [this, kind] { return !(rests_ && kind.rest_meets_nothing); }, [] {}});
  }
  const std::vector<Operation>& operations() const override { return operations_; }
  const std::vector<Fault>& faults() const override { return faults_; }
  const Judge& judge() const override { return judge_; }
  void reseed(std::uint64_t) override {}
  void finish() override {}
  std::vector<Counter> counters() const override { return {{"winds", winds_}}; }

 private:
  ToyJudge judge_;
  std::vector<Operation> operations_;
  std::vector<Fault> faults_;
  std::uint64_t winds_ = 0;
  bool cracked_ = false;
  bool rests_ = false;
};

Scenario toys(const ToyKind& kind = {}) {
  return scenario_of("toys", [kind](const WorldOptions&) {
    return std::unique_ptr<World>(std::make_unique<ToyWorld>(kind));
  });
}

TEST(Torture, AFailureIsMadeAsShortAsItCanBe) {
  for (const bool aborts : {false, true}) {
    CampaignOptions options;
    options.worlds = 30;
    options.operations = 200;
    CampaignState state;
    ASSERT_TRUE(run_campaign(toys({.aborts = aborts}), options, state).ok());
    EXPECT_FALSE(passed(state));
    ASSERT_GE(state.failures.size(), 1u);
    const Failure& failure = state.failures.front();
    EXPECT_EQ(failure.breach.law, aborts ? "never-aborts" : "toys-stay-whole");
    EXPECT_EQ(failure.steps, 3u) << failure.keep;  // wind, wind, drop; a crack at one of them
    EXPECT_EQ(std::count(failure.keep.begin(), failure.keep.end(), '!'), 2) << failure.keep;
  }
}

// Some of these worlds end their process, in the midst of a piece; pieces end in any order.
TEST(Torture, ACampaignIsTheSameInAnyNumberOfProcesses) {
  for (const bool aborts : {false, true}) {
    std::vector<CampaignState> states;
    for (const std::size_t processes : {1u, 3u}) {
      CampaignOptions options;
      options.worlds = 230;
      options.operations = 40;
      options.processes = processes;
      std::vector<std::uint64_t> kept;
      options.keep = [&kept](const CampaignState& state) { kept.push_back(state.worlds_run); };
      ASSERT_TRUE(run_campaign(toys({.aborts = aborts}), options, states.emplace_back()).ok());
      EXPECT_EQ(kept, (std::vector<std::uint64_t>{50, 100, 150, 200, 230}));
    }
    const CampaignState& one = states.front();
    const CampaignState& three = states.back();
    EXPECT_EQ(three.worlds_run, one.worlds_run);
    EXPECT_EQ(three.worlds_failed, one.worlds_failed);
    EXPECT_EQ(three.steps_run, one.steps_run);
    EXPECT_EQ(three.counters, one.counters);
    EXPECT_TRUE(three.coverage == one.coverage);
    EXPECT_GT(one.worlds_failed, 1u);
    ASSERT_EQ(three.failures.size(), one.failures.size());
    for (std::size_t index = 0; index < one.failures.size(); ++index) {
      EXPECT_EQ(three.failures[index].seed, one.failures[index].seed);
      EXPECT_EQ(three.failures[index].keep, one.failures[index].keep);
      EXPECT_EQ(three.failures[index].times, one.failures[index].times);
    }
  }
}

// Two of them run while the second says nothing; the first piece is whole, and so is the last.
TEST(Torture, AWorldThatHangsDoesNotHoldTheOthersUp) {
  CampaignOptions options;
  options.seed = 1;
  options.worlds = 150;
  options.operations = 10;
  options.processes = 2;
  options.silence = std::chrono::seconds(1);
  options.shorten_tries = 0;
  constexpr std::uint64_t hangs = 60;
  const Scenario scenario = scenario_of("toys", [](const WorldOptions& world) {
    if (world.seed == hangs) {
      while (true) ::pause();
    }
    return std::unique_ptr<World>(std::make_unique<ToyWorld>(ToyKind{.breaks = false}));
  });
  CampaignState state;
  ASSERT_TRUE(run_campaign(scenario, options, state).ok());
  EXPECT_EQ(state.worlds_run, 150u);
  EXPECT_EQ(state.steps_run, 149u * 10);
  EXPECT_EQ(state.worlds_failed, 1u);
  ASSERT_EQ(state.failures.size(), 1u);
  EXPECT_EQ(state.failures.front().seed, hangs);
  EXPECT_EQ(state.failures.front().breach.law, "always-returns");
}

TEST(Torture, AnEmptyCellFailsALongCampaignAndNoShortOne) {
  for (const bool empty : {false, true}) {
    CampaignOptions options;
    options.operations = 1000;
    options.worlds = 100;
    CampaignState state;
    const Scenario scenario = toys({.breaks = false, .rest_meets_nothing = empty});
    ASSERT_TRUE(run_campaign(scenario, options, state).ok());
    ASSERT_EQ(state.steps_run, options.worlds * options.operations);
    ASSERT_EQ(state.worlds_failed, 0u);
    state.steps_run = kStepsForCoverage;
    EXPECT_EQ(state.coverage.empty_cells(), empty ? 1u : 0u);
    EXPECT_EQ(passed(state), !empty);
    --state.steps_run;
    EXPECT_TRUE(passed(state));
  }
}

// What is not judged changes which law a world breaks, and whether it goes on.
TEST(Torture, TheLineThatRepeatsAFailureSaysWhatItsCampaignWas) {
  CampaignOptions options;
  options.operations = 200;
  options.world_words = "--real tcp";
  options.often = {"crack"};
  options.laws_left_out = {"toys-stay-whole", "always-returns"};
  Failure failure;
  failure.seed = 7;
  failure.keep = "3,17!";
  EXPECT_EQ(repeat_line(failure, options),
            "perdure torture --seed 7 --ops 200 --real tcp --often crack "
            "--without toys-stay-whole --without always-returns --keep '3,17!'");
}

TEST(Torture, ASequenceIsWhatItsWordsSay) {
  const Scenario scenario = toys();
  const auto all = draw_steps(scenario, 3, 50);
  const auto kept = keep_steps(all, "3,17!,44");
  ASSERT_TRUE(kept);
  ASSERT_EQ(kept->size(), 3u);
  EXPECT_EQ((*kept)[1].number, 17u);
  EXPECT_FALSE((*kept)[1].fault);
  EXPECT_EQ(keep_steps(all, keep_words(*kept))->size(), 3u);
  EXPECT_TRUE(keep_steps(all, "none")->empty());
  for (const char* wrong : {"50", "x", "1,", ",1", "1;2"}) EXPECT_FALSE(keep_steps(all, wrong));
}

TEST(Torture, WhatIsToComeOftenComesInEveryWorld) {
  const Scenario scenario = log_scenario();
  const auto cut = std::ranges::find(scenario.faults, "power-cut", &Row::name);
  ASSERT_NE(cut, scenario.faults.end());
  const auto index = static_cast<std::uint32_t>(cut - scenario.faults.begin());
  const auto cuts = [&](const std::vector<Step>& steps) {
    return std::ranges::count_if(steps, [&](const Step& step) { return step.fault == index; });
  };
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const auto often = cuts(draw_steps(scenario, seed, 200, {"power-cut"}));
    EXPECT_GT(often, 40) << "seed " << seed;
    EXPECT_GT(often, cuts(draw_steps(scenario, seed, 200))) << "seed " << seed;
  }
}

TEST(Torture, ACampaignGoesOnUntilItsGoal) {
  CampaignOptions options;
  options.worlds = 0;
  options.operations = 30;
  options.goal_counter = "winds";
  options.goal = 500;
  CampaignState state;
  ASSERT_TRUE(run_campaign(toys(), options, state).ok());
  EXPECT_GE(state.counters["winds"], 500u);
  // Nothing is left to be done, so nothing is.
  const std::uint64_t worlds = state.worlds_run;
  ASSERT_TRUE(run_campaign(toys(), options, state).ok());
  EXPECT_EQ(state.worlds_run, worlds);
}

TEST(Torture, TheSameSeedGivesTheSameWorld) {
  const Scenario scenario = log_scenario();
  for (std::uint64_t seed = 1; seed <= 2; ++seed) {
    const auto steps = draw_steps(scenario, seed, 40);
    std::vector<std::string> told[2];
    for (auto& each : told) {
      WorldOptions options;
      options.seed = seed;
      auto run = tell_world(scenario, options, steps, std::chrono::seconds(60));
      ASSERT_TRUE(run.ok());
      each = *run;
    }
    EXPECT_EQ(told[0], told[1]) << "seed " << seed;
  }
}

// The power fails anywhere while a machine gets a blank pool. That one may be there all the same.
TEST(LogTorture, APoolIsKnownByItsNameFromTheMomentThatItCanComeBack) {
  std::size_t came_back = 0;
  std::size_t gone = 0;
  constexpr std::uint64_t kEventsToMakeOne = 60;  // at most
  for (std::uint64_t events = 1; events <= kEventsToMakeOne; ++events) {
    Random random(events);
    fabric::emu::World world(random);
    ServerProfile profile;
    profile.domain = PersistenceDomain::Mhp;  // what is visible stays, before anybody flushes it
    auto server = WorldServer::start(world, "server", profile, {"log", 128 * 1024});
    ASSERT_TRUE(server.ok());
    const pmem::Uuid first = (*server)->pool_uuid();
    world.after(events, [&server] { (*server)->machine().power_cut(); });
    const bool made = (*server)->start_with({}).ok() && (*server)->machine().powered();
    const pmem::Uuid named = (*server)->pool_uuid();
    EXPECT_NE(named, first);
    if (made) continue;  // the cut came before or behind it
    const bool there = (*server)->start_again().ok();
    came_back += there ? 1 : 0;
    gone += there ? 0 : 1;
    EXPECT_EQ((*server)->pool_uuid(), named) << "cut after " << events;
  }
  EXPECT_GT(came_back, 0u);
  EXPECT_GT(gone, 0u);
}

TEST(LogTorture, NoLawIsBroken) {
  CampaignOptions options;
  options.seed = 1000;
  options.worlds = 0;
  options.operations = 100;
  options.time = soak() ? std::chrono::minutes(10) : std::chrono::seconds(15);
  options.failures_max = 3;
  CampaignState state;
  ASSERT_TRUE(run_campaign(log_scenario(), options, state).ok());
  // It was about something: what was in flight was cut off, and what was acknowledged was read.
  EXPECT_GT(state.counters["power_cuts_counted"], 0u);
  EXPECT_GT(state.counters["acknowledged"], 0u);
  EXPECT_GT(state.counters["verified_reads"], 0u);
  EXPECT_EQ(state.worlds_failed, 0u);
  for (const Failure& failure : state.failures) {
    ADD_FAILURE() << failure.breach.law << ": " << failure.breach.story
                  << "\nreproduce: " << repeat_line(failure, options);
  }
  RecordProperty("worlds", std::to_string(state.worlds_run));
}

// The judge is not blind here: in the end every medium is set back to what it once held.
TEST(LogTorture, MediaThatGoBackAreNoticed) {
  constexpr std::uint64_t kWorlds = 5;
  for (const bool go_back : {false, true}) {
    CampaignOptions options;
    options.seed = 1000;
    options.worlds = kWorlds;
    options.operations = 60;
    options.failures_max = kWorlds;
    options.shorten_tries = 0;
    CampaignState state;
    ASSERT_TRUE(run_campaign(log_scenario({go_back}), options, state).ok());
    EXPECT_EQ(state.worlds_run, kWorlds);
    const bool lost = std::ranges::any_of(state.failures, [](const Failure& failure) {
      return failure.breach.law == "committed-is-never-lost" && failure.operation == "finish";
    });
    EXPECT_EQ(lost, go_back);
    EXPECT_EQ(state.worlds_failed != 0, go_back);
  }
}

}  // namespace
}  // namespace perdure::test
