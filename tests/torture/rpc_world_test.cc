// Durable RPC under seeds, and that the judge beside it sees what it must.
#include <gtest/gtest.h>

#include "testing/soak.h"
#include "testing/torture/rpc_world.h"
#include "tests/torture/short_campaign.h"

namespace perdure::test {
namespace {

CampaignState campaign(const RpcMachines& machines, std::uint64_t worlds) {
  CampaignOptions options;
  options.worlds = worlds;
  options.operations = 200;
  options.world_words = "--world rpc";
  return short_campaign(rpc_scenario(machines), options, machines == RpcMachines{});
}

TEST(RpcTorture, NoLawIsBroken) {
  const CampaignState state = campaign({}, rounds(32, 10'000));
  for (const auto& [name, value] : state.counters) EXPECT_GT(value, 0u) << name;
  expect_all_came(rpc_scenario(), state);
}

TEST(RpcTorture, ALineThatIsLostIsNoticed) {
  const CampaignState state = campaign({.a_line_is_lost = true}, 1);
  ASSERT_EQ(state.failures.size(), 1u);
  EXPECT_EQ(state.failures[0].breach.law, "money-is-kept");
}

TEST(RpcTorture, AnEntryThatNobodyCalledIsNoticed) {
  const CampaignState state = campaign({.an_entry_is_forged = true}, 4);
  ASSERT_EQ(state.failures.size(), 1u);
  EXPECT_EQ(state.failures[0].breach.law, "nothing-from-nowhere");
}

TEST(RpcTorture, ACallThatIsLateIsNoticed) {
  const CampaignState state = campaign({.calls_are_late = true}, 1);
  ASSERT_EQ(state.failures.size(), 1u);
  EXPECT_EQ(state.failures[0].breach.law, "calls-keep-their-deadline");
}

}  // namespace
}  // namespace perdure::test
