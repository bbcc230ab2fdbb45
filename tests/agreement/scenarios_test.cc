// Tables 2 and 3, every cell, on InfiniBand and on iWARP: right in every state, and the exact
// number of states is kept.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "check/check.h"
#include "check/render.h"
#include "plan/paper.h"
#include "tests/agreement/golden.h"

namespace perdure {
namespace {

TEST(Scenarios, EveryPublishedMethodHoldsInEveryState) {
  std::string counts;
  for (const Transport transport : {Transport::InfiniBand, Transport::Iwarp}) {
    for (const plan::Scenario& scenario : plan::paper_methods(transport)) {
      const check::Report report = check::check(scenario.method, scenario.profile);
      EXPECT_TRUE(report.holds()) << check::story(scenario.method, scenario.profile, report);
      counts += fmt::format("{:72} {:28} {:6} states {:6} transitions\n", describe(scenario),
                            scenario.method.name, report.states, report.transitions);
    }
  }
  expect_golden("scenario_states.txt", counts);
}

TEST(Scenarios, OnIwarpTheOneSidedWspMethodsOfInfiniBandBreakAndNothingElse) {
  std::size_t broken = 0;
  for (const plan::Scenario& scenario : plan::paper_methods(Transport::InfiniBand)) {
    ServerProfile iwarp = scenario.profile;
    iwarp.transport = Transport::Iwarp;
    const check::Report report = check::check(scenario.method, iwarp);
    const bool one_sided_wsp =
        scenario.profile.domain == PersistenceDomain::Wsp && !two_sided(scenario.method);
    EXPECT_EQ(report.holds(), !one_sided_wsp) << describe(scenario);
    if (report.holds()) continue;
    ++broken;
    EXPECT_EQ(report.property, check::Property::AcknowledgedImpliesDurable) << describe(scenario);
  }
  // Write and WriteImm on 4 responders, Send on the 2 with receive buffers in PM; 2 shapes.
  EXPECT_EQ(broken, 2u * (2u * 4u + 2u));
}

/// Published methods that count on WRITEs being placed in order, by name; the same on iWARP.
TEST(Scenarios, WithoutOrderAmongWritesTheOneSidedCompoundOnesOfMhpAndWspBreakAndNothingElse) {
  for (const Transport transport : {Transport::InfiniBand, Transport::Iwarp}) {
    std::size_t broken = 0;
    for (const plan::Scenario& scenario : plan::paper_methods(transport)) {
      ServerProfile unordered = scenario.profile;
      unordered.write_order = WriteOrder::Unknown;
      const check::Report report = check::check(scenario.method, unordered);
      const bool two_writes = scenario.shape == compound() && scenario.primary != Primary::Send &&
                              scenario.profile.domain >= PersistenceDomain::Mhp;
      EXPECT_EQ(report.holds(), !two_writes) << check::story(scenario.method, unordered, report);
      if (report.holds()) continue;
      ++broken;
      EXPECT_EQ(report.property, check::Property::LaterImpliesEarlier) << describe(scenario);
    }
    EXPECT_EQ(broken, 2u * 8u);  // Write and WriteImm on 8 responders
  }
}

/// One method for all responders, also for one who does not know which it is: `perdure sim
/// remotelog` prices it beside the others.
TEST(Scenarios, AMessageThatIsCopiedFlushedAndAcknowledgedIsRightEverywhere) {
  std::size_t checked = 0;
  for (const plan::Scenario& published : plan::paper_methods()) {
    if (published.method.name != "send-copy-flush-ack") continue;
    if (published.profile.ddio != Ddio::On) continue;
    for (ServerProfile profile : plan::paper_profiles(Transport::InfiniBand)) {
      profile.write_order = WriteOrder::Unknown;
      const check::Report report = check::check(published.method, profile);
      EXPECT_TRUE(report.holds()) << check::story(published.method, profile, report);
      ++checked;
    }
  }
  EXPECT_EQ(checked, 2u * 2u * 12u);  // two shapes, receive buffers in DRAM and PM
}

TEST(Scenarios, MoreUnitsPerItemChangeNoVerdict) {
  check::CheckOptions options;
  options.units_per_item = 3;
  for (const Transport transport : {Transport::InfiniBand, Transport::Iwarp}) {
    for (const plan::Scenario& scenario : plan::paper_methods(transport)) {
      const check::Report report = check::check(scenario.method, scenario.profile, options);
      EXPECT_TRUE(report.holds()) << check::story(scenario.method, scenario.profile, report);
    }
  }
}

}  // namespace
}  // namespace perdure
