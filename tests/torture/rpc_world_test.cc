// Durable RPC under seeds, and that the judge beside it sees what it must.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "testing/soak.h"
#include "testing/torture/campaign.h"
#include "testing/torture/rpc_world.h"

namespace perdure::test {
namespace {

CampaignState campaign(const RpcMachines& machines, std::uint64_t worlds) {
  CampaignOptions options;
  options.seed = 1;
  options.worlds = worlds;
  options.operations = 200;
  options.world_words = "--world rpc";
  options.failures_max = 1;
  if (machines.a_line_is_lost) options.shorten_tries = 0;
  CampaignState state;
  const auto run = run_campaign(rpc_scenario(machines), options, state);
  EXPECT_TRUE(run.ok()) << run.error().message;
  for (const Failure& failure : state.failures) {
    if (machines.a_line_is_lost) break;
    std::string told;
    for (const std::string& line : failure.told) told += line + "\n";
    ADD_FAILURE() << failure.breach.law << ": " << failure.breach.story << "\n"
                  << repeat_line(failure, options) << "\n"
                  << told;
  }
  return state;
}

TEST(RpcTorture, NoLawIsBroken) {
  CampaignState state = campaign({}, rounds(32, 10'000));
  EXPECT_EQ(state.worlds_failed, 0u);
  for (const auto& [name, value] : state.counters) EXPECT_GT(value, 0u) << name;
  const Scenario scenario = rpc_scenario();
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

TEST(RpcTorture, ALineThatIsLostIsNoticed) {
  const CampaignState state = campaign({.a_line_is_lost = true}, 1);
  ASSERT_EQ(state.failures.size(), 1u);
  EXPECT_EQ(state.failures[0].breach.law, "money-is-kept");
}

}  // namespace
}  // namespace perdure::test
