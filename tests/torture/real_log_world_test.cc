// Short worlds of real perdured processes, which are killed and stopped under the log's operations;
// and that the judge beside them sees when their media go back.
//
// PERDURE_SOAK=1 runs fifty worlds of each kind instead of one.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "testing/soak.h"
#include "testing/temporary_directory.h"
#include "testing/torture/campaign.h"
#include "testing/torture/real_log_world.h"

namespace perdure::test {
namespace {

class RealLogTorture : public ::testing::Test {
 protected:
  void SetUp() override {
    auto directory = TemporaryDirectory::make("/dev/shm");
    ASSERT_TRUE(directory.ok()) << directory.error().message;
    directory_.emplace(std::move(directory).value());
    machines_.directory = directory_->path();
  }

  CampaignState run(std::uint64_t seed, std::uint64_t worlds, std::size_t operations) {
    CampaignOptions options;
    options.seed = seed;
    options.worlds = worlds;
    options.operations = operations;
    options.often = {"server-kill", "server-stop"};
    options.shorten_tries = 0;  // a history of processes does not repeat itself exactly
    CampaignState state;
    const auto ran = run_campaign(real_log_scenario(machines_), options, state);
    EXPECT_TRUE(ran.ok()) << ran.error().message;
    return state;
  }

  /// Nothing is lost, and processes were killed while something was not acknowledged.
  void expect_no_breach(Transport transport) {
    machines_.transport = transport;
    const std::uint64_t worlds = rounds(1, 50);
    const CampaignState state = run(7, worlds, 40);
    EXPECT_EQ(state.worlds_run, worlds);
    for (const Failure& failure : state.failures) {
      std::string told;
      for (const std::string& line : failure.told) told += line + '\n';
      ADD_FAILURE() << "seed " << failure.seed << ", " << failure.breach.law << ": "
                    << failure.breach.story << '\n'
                    << told;
    }
    EXPECT_GT(state.counters.at("acknowledged"), 0u);
    EXPECT_GT(state.counters.at("kills_counted"), 0u) << "no kill met an operation";
    EXPECT_GT(state.counters.at("stops"), 0u);
    EXPECT_GT(state.counters.at("verified_reads"), 0u);
  }

  std::optional<TemporaryDirectory> directory_;
  RealMachines machines_;
};

TEST_F(RealLogTorture, NoLawIsBrokenOverTcp) { expect_no_breach(Transport::Tcp); }

TEST_F(RealLogTorture, NoLawIsBrokenOverSharedMemory) { expect_no_breach(Transport::Shm); }

// The judge is not blind here: in the end every machine has an older copy of its pool.
TEST_F(RealLogTorture, MediaThatGoBackAreNoticed) {
  for (const bool go_back : {false, true}) {
    machines_.media_go_back = go_back;
    const Scenario scenario = real_log_scenario(machines_);
    const auto wait = std::ranges::find(scenario.operations, "wait-committed", &Row::name);
    ASSERT_NE(wait, scenario.operations.end());
    std::vector<Step> steps(12);
    for (std::uint32_t number = 0; number < steps.size(); ++number) {
      steps[number].number = number;
      steps[number].operation = static_cast<std::uint32_t>(wait - scenario.operations.begin());
      steps[number].seed = number;
    }
    WorldOptions world;
    world.seed = 7;
    const auto result = run_apart(scenario, world, steps, std::chrono::seconds(60));
    ASSERT_TRUE(result.ok()) << result.error().message;
    ASSERT_EQ(result->breach.has_value(), go_back) << (go_back ? "" : result->breach->story);
    if (!go_back) continue;
    EXPECT_EQ(result->breach->law, "committed-is-never-lost") << result->breach->story;
  }
}

}  // namespace
}  // namespace perdure::test
