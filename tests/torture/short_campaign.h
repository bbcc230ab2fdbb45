// What the tests of every world do with a campaign of one seed.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "testing/torture/campaign.h"

namespace perdure::test {

/// From seed 1 to the first failure. Of worlds that are `sound` it fails the test, with what
/// happened and how to repeat it; of others it is what the caller waits for.
inline CampaignState short_campaign(const Scenario& scenario, CampaignOptions options, bool sound) {
  const std::uint64_t campaigns = sound ? 1 : std::exchange(options.worlds, 1);
  options.failures_max = 1;
  if (!sound) options.shorten_tries = 0;
  CampaignState state;
  for (options.seed = 1; options.seed <= campaigns && state.failures.empty(); ++options.seed) {
    state = {};
    const auto run = run_campaign(scenario, options, state);
    EXPECT_TRUE(run.ok()) << run.error().message;
  }
  if (!sound) return state;
  EXPECT_EQ(state.worlds_failed, 0u);
  for (const Failure& failure : state.failures) {
    std::string told;
    for (const std::string& line : failure.told) told += line + "\n";
    ADD_FAILURE() << failure.breach.law << ": " << failure.breach.story << "\n"
                  << repeat_line(failure, options) << "\n"
                  << told;
  }
  return state;
}

/// Every operation came, and every fault met one of them.
inline void expect_all_came(const Scenario& scenario, const CampaignState& state) {
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

}  // namespace perdure::test
