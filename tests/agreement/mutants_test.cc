// Whatever is taken away from a published method breaks it, apart from table 3's stray FLUSH.
#include <gtest/gtest.h>

#include "check/check.h"
#include "check/mutate.h"
#include "plan/catalog.h"
#include "plan/paper.h"
#include "tests/agreement/golden.h"

namespace perdure {
namespace {

/// The mutants that are not caught, one line each.
std::vector<std::string> superfluous(const Method& method, const ServerProfile& profile) {
  std::vector<std::string> lines;
  for (const check::Mutant& mutant : check::mutants(method)) {
    const check::Report report = check::check(mutant.method, profile);
    EXPECT_NE(report.verdict, check::Verdict::NotModelled) << mutant.what << report.reason;
    EXPECT_NE(report.verdict, check::Verdict::LimitReached) << mutant.what;
    if (report.holds()) lines.push_back(mutant.what);
  }
  return lines;
}

TEST(Mutants, OnlyTheStrayFlushOfTable3IsSuperfluous) {
  const std::vector<std::string> around_the_stray_flush = {
      "drop FLUSH a,b",
      "swap SEND a,b and FLUSH a,b",
      "swap FLUSH a,b and wait for the ack",
  };
  std::size_t strays = 0;
  for (const Transport transport : {Transport::InfiniBand, Transport::Iwarp}) {
    for (const plan::Scenario& scenario : plan::paper_methods(transport)) {
      const auto lines = superfluous(scenario.method, scenario.profile);
      const bool stray = scenario.method.name == "send-stray-flush-copy-ack";
      if (stray) ++strays;
      EXPECT_EQ(lines, stray ? around_the_stray_flush : std::vector<std::string>{})
          << describe(scenario);
    }
  }
  EXPECT_EQ(strays, 2u);  // one cell, on two transports
}

TEST(Mutants, AreManyAndDistinct) {
  std::size_t count = 0;
  for (const plan::Scenario& scenario : plan::paper_methods()) {
    const auto all = check::mutants(scenario.method);
    EXPECT_GE(all.size(), 2u) << describe(scenario);
    for (std::size_t i = 0; i < all.size(); ++i) {
      EXPECT_FALSE(all[i].method == scenario.method);
      for (std::size_t j = 0; j < i; ++j) EXPECT_FALSE(all[i].method == all[j].method);
    }
    count += all.size();
  }
  EXPECT_EQ(count, 529u);
}

/// What Perdure offers on the papers' responders and on files. What remains is one kind: on wsp a
/// method that proves visibility does more than the domain asks for.
TEST(Mutants, OfTheKnownMethodsThatAreNotCaughtAreListed) {
  std::string text;
  auto profiles = plan::paper_profiles(Transport::InfiniBand);
  for (const ReceiveBuffers buffers : {ReceiveBuffers::Dram, ReceiveBuffers::Pm}) {
    profiles.push_back({PersistenceDomain::Page, Ddio::On, buffers, Transport::Tcp, {}});
    profiles.push_back({PersistenceDomain::Page, Ddio::On, buffers, Transport::Roce, {}});
  }
  for (ServerProfile profile : plan::paper_profiles(Transport::InfiniBand)) {
    profile.write_order = WriteOrder::Unknown;
    profiles.push_back(profile);
  }
  for (const ServerProfile& profile : profiles) {
    for (const UpdateShape& shape : {singleton(), compound()}) {
      for (const plan::Known& known : plan::known_methods(profile, {shape, Level::Durable, true})) {
        for (const std::string& line : superfluous(known.method, profile)) {
          text += describe(profile) + ": " + to_string(shape) + " " + known.method.name + ": " +
                  line + "\n";
        }
      }
    }
  }
  expect_golden("superfluous_in_known_methods.txt", text);
}

}  // namespace
}  // namespace perdure
