// The planner's own search, with the checker as judge: what it finds is kept, and nothing that it
// finds beats what the catalog knows.
#include "plan/search.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>

#include "check/check.h"
#include "plan/catalog.h"
#include "plan/paper.h"
#include "tests/agreement/golden.h"

namespace perdure {
namespace {

bool judge(const Method& method, const ServerProfile& profile) {
  return check::check(method, profile).holds();
}

std::string usage_words(const plan::Usage& usage) {
  return fmt::format("{} rt, {} copied, {} wake-ups, {} buffers", usage.round_trips,
                     usage.copied_items, usage.responder_wakes, usage.receive_buffers);
}

/// The known method that uses no more than `found` on any axis; empty if there is none.
std::string known_name(const Method& found, const std::vector<plan::Known>& known) {
  for (const plan::Known& each : known) {
    const plan::Usage usage = plan::usage(each.method);
    const bool as_good = usage == plan::usage(found) || plan::beats(usage, plan::usage(found));
    if (as_good && each.method.primary == found.primary) return each.method.name;
  }
  return {};
}

/// The papers' responders; behind them those on which nothing is known of the order of WRITEs,
/// where that matters.
std::vector<ServerProfile> searched_profiles() {
  auto profiles = plan::paper_profiles(Transport::InfiniBand);
  for (ServerProfile profile : plan::paper_profiles(Transport::InfiniBand)) {
    profile.write_order = WriteOrder::Unknown;
    const bool asked = profile.domain != PersistenceDomain::Dmp && profile.ddio == Ddio::On;
    if (asked) profiles.push_back(profile);
  }
  return profiles;
}

TEST(Search, FindsNothingThatBeatsTheCatalog) {
  std::string text;
  for (const bool small : {false, true}) {
    for (const UpdateShape& shape : {singleton(), compound()}) {
      if (small && shape == singleton()) continue;
      for (const ServerProfile& profile : searched_profiles()) {
        const auto known = plan::known_methods(profile, {shape, Level::Durable, small});
        for (const Primary primary : {Primary::Write, Primary::WriteImm, Primary::Send}) {
          plan::SearchOptions options;
          options.shape = shape;
          options.primary = primary;
          options.later_small = small;
          const auto found = plan::search_methods(profile, options, judge);
          EXPECT_FALSE(found.limit_reached);
          EXPECT_FALSE(found.methods.empty()) << describe(profile);
          for (const Method& method : found.methods) {
            const std::string name = known_name(method, known);
            EXPECT_FALSE(name.empty())
                << "not in the catalog: " << describe(profile) << ": " << plan::one_line(method);
            text += fmt::format("{}: {} {}, b {}: {}: {} [{}]\n", describe(profile),
                                to_string(shape), to_string(primary), small ? "small" : "any",
                                usage_words(plan::usage(method)), plan::one_line(method), name);
          }
        }
      }
    }
  }
  expect_golden("found_methods.txt", text);
}

TEST(Search, EveryCompoundScenarioHasAMethodOfOneRoundTrip) {
  std::size_t rows = 0;
  for (const plan::Scenario& scenario : plan::paper_methods()) {
    if (scenario.shape != compound()) continue;
    plan::SearchOptions options;
    options.shape = compound();
    options.primary = scenario.primary;
    const auto found = plan::search_methods(scenario.profile, options, judge);
    EXPECT_TRUE(std::any_of(found.methods.begin(), found.methods.end(), [](const Method& method) {
      return round_trips(method) == 1;
    })) << describe(scenario);
    ++rows;
  }
  EXPECT_EQ(rows, 36u);
}

/// The least of one thing that any right method of at most four posts uses.
template <typename Axis>
std::size_t least(const ServerProfile& profile, const plan::SearchOptions& options, Axis axis) {
  const auto found = plan::search_methods(profile, options, judge);
  EXPECT_FALSE(found.methods.empty()) << describe(profile);
  std::size_t least = SIZE_MAX;
  for (const Method& method : found.methods) least = std::min(least, axis(plan::usage(method)));
  return least;
}

TEST(Search, WithDdioOnOrOnAFileNothingIsDurableWithoutTheRespondersProcessor) {
  const auto wakes = [](const plan::Usage& usage) { return usage.responder_wakes; };
  for (const ReceiveBuffers buffers : {ReceiveBuffers::Dram, ReceiveBuffers::Pm}) {
    for (const PersistenceDomain domain : {PersistenceDomain::Dmp, PersistenceDomain::Page}) {
      ServerProfile profile{domain, Ddio::On, buffers, Transport::InfiniBand, {}};
      profile.capabilities.atomic_write = true;
      plan::SearchOptions options;
      EXPECT_EQ(least(profile, options, wakes), 1u) << describe(profile);
      options.shape = compound();
      options.later_small = true;
      EXPECT_EQ(least(profile, options, wakes), 1u) << describe(profile);
    }
  }
}

TEST(Search, AFlushToPersistenceMakesDdioHarmlessToOneSidedMethods) {
  const auto wakes = [](const plan::Usage& usage) { return usage.responder_wakes; };
  ServerProfile profile{
      PersistenceDomain::Dmp, Ddio::On, ReceiveBuffers::Dram, Transport::InfiniBand, {}};
  profile.capabilities = {.native_flush = true, .atomic_write = true, .persistent_flush = true};
  plan::SearchOptions options;
  EXPECT_EQ(least(profile, options, wakes), 0u);
  options.shape = compound();
  options.later_small = true;
  EXPECT_EQ(least(profile, options, wakes), 0u);
}

TEST(Search, WithoutOrderAmongWritesALargeSecondItemTakesTwoRoundTripsOneSidedByWrites) {
  const auto one_sided_trips = [](const plan::Usage& usage) {
    return usage.responder_wakes == 0 ? usage.round_trips : SIZE_MAX;
  };
  for (const auto domain : {PersistenceDomain::Mhp, PersistenceDomain::Wsp}) {
    ServerProfile profile{domain, Ddio::On, ReceiveBuffers::Dram, Transport::InfiniBand, {}};
    profile.capabilities.atomic_write = true;
    plan::SearchOptions options;
    options.shape = compound();
    options.primary = Primary::Write;
    EXPECT_EQ(least(profile, options, one_sided_trips), 2u);
    options.later_small = true;
    EXPECT_EQ(least(profile, options, one_sided_trips), 1u);
    profile.write_order = WriteOrder::Ordered;
    options.later_small = false;
    EXPECT_EQ(least(profile, options, one_sided_trips), 1u);
  }
}

TEST(Search, WithDdioOffALargeSecondItemTakesTwoRoundTripsOneSidedByWrites) {
  ServerProfile profile{
      PersistenceDomain::Dmp, Ddio::Off, ReceiveBuffers::Dram, Transport::InfiniBand, {}};
  profile.capabilities.atomic_write = true;
  plan::SearchOptions options;
  options.shape = compound();
  options.primary = Primary::Write;
  const auto one_sided_trips = [](const plan::Usage& usage) {
    return usage.responder_wakes == 0 ? usage.round_trips : SIZE_MAX;
  };
  EXPECT_EQ(least(profile, options, one_sided_trips), 2u);
  options.later_small = true;
  EXPECT_EQ(least(profile, options, one_sided_trips), 1u);
}

}  // namespace
}  // namespace perdure
