// What plan offers, check proves: every known method, every profile, every level, several shapes.
#include <gtest/gtest.h>

#include <algorithm>

#include "check/check.h"
#include "check/render.h"
#include "plan/catalog.h"
#include "plan/paper.h"
#include "plan/plan.h"

namespace perdure {
namespace {

std::vector<ServerProfile> all_profiles() {
  std::vector<ServerProfile> profiles;
  using enum PersistenceDomain;
  using enum Transport;
  for (const auto domain : {None, Page, Dmp, Mhp, Wsp}) {
    for (const auto ddio : {Ddio::Off, Ddio::On}) {
      for (const auto buffers : {ReceiveBuffers::Dram, ReceiveBuffers::Pm}) {
        for (const auto transport : {InfiniBand, Roce, Iwarp, Tcp, Shm}) {
          for (const bool atomic : {false, true}) {
            ServerProfile profile{domain, ddio, buffers, transport, {}};
            profile.capabilities.atomic_write = atomic;
            profiles.push_back(profile);
            if (domain != Dmp) continue;
            profile.capabilities.native_flush = profile.capabilities.persistent_flush = true;
            profiles.push_back(profile);
          }
        }
      }
    }
  }
  return profiles;
}

void expect_all_hold(const UpdateShape& shape, Level level, bool later_small) {
  for (const ServerProfile& profile : all_profiles()) {
    for (const plan::Known& known : plan::known_methods(profile, {shape, level, later_small})) {
      EXPECT_TRUE(validate(known.method).ok()) << known.method.name;
      check::CheckOptions options;
      options.level = level;
      const check::Report report = check::check(known.method, profile, options);
      EXPECT_TRUE(report.holds()) << check::story(known.method, profile, report);
    }
  }
}

TEST(Planned, EveryDurableMethodHolds) {
  for (const bool small : {false, true}) {
    expect_all_hold(singleton(), Level::Durable, small);
    expect_all_hold(compound(), Level::Durable, small);
  }
}

TEST(Planned, EveryVisibleAndReceivedMethodHolds) {
  for (const Level level : {Level::Visible, Level::Received}) {
    expect_all_hold(singleton(), level, true);
    expect_all_hold(compound(), level, true);
  }
}

TEST(Planned, SeveralEpochsAndItemsHold) {
  expect_all_hold(UpdateShape{{2}}, Level::Durable, true);
  expect_all_hold(UpdateShape{{2, 1}}, Level::Durable, true);
  expect_all_hold(UpdateShape{{1, 1, 1}}, Level::Durable, true);
}

TEST(Planned, NamesAreUniqueOnEachResponder) {
  for (const ServerProfile& profile : all_profiles()) {
    std::vector<std::string> names;
    for (const plan::Known& known :
         plan::known_methods(profile, {compound(), Level::Durable, true})) {
      names.push_back(known.method.name);
    }
    std::sort(names.begin(), names.end());
    EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end()) << describe(profile);
  }
}

TEST(Planned, NothingHoldsInVolatileMemory) {
  // Every method that is right anywhere is wrong where nothing survives.
  const ServerProfile volatile_memory;
  for (const plan::Scenario& scenario : plan::paper_methods()) {
    const auto report = check::check(scenario.method, volatile_memory);
    EXPECT_EQ(report.verdict, check::Verdict::Violated) << describe(scenario);
  }
}

TEST(Planned, EveryPublishedMethodIsKnownUnderTheSameName) {
  for (const plan::Scenario& scenario : plan::paper_methods()) {
    if (scenario.method.name == "send-stray-flush-copy-ack") continue;  // known without the FLUSH
    const auto known =
        plan::known_methods(scenario.profile, {scenario.shape, Level::Durable, true});
    EXPECT_TRUE(std::any_of(known.begin(), known.end(), [&](const plan::Known& each) {
      return each.method == scenario.method;
    })) << describe(scenario);
  }
}

TEST(Planned, EpochsGoInOneRoundTripWhereverTheyCan) {
  for (const std::size_t epochs : {3u, 8u, 64u}) {
    const UpdateShape shape{std::vector<std::uint8_t>(epochs, 1)};
    for (const ServerProfile& profile : plan::paper_profiles(Transport::InfiniBand)) {
      plan::Update update;
      update.shape = shape;
      const auto found = plan::candidates(profile, update);
      ASSERT_TRUE(found.ok()) << found.error().message;
      for (const plan::Candidate& candidate : *found) {
        if (candidate.usage.round_trips > 1) continue;
        check::CheckOptions options;
        options.states_max = 2'000'000;
        const check::Report report = check::check(candidate.method, profile, options);
        const bool too_many = report.verdict == check::Verdict::LimitReached && epochs > 8;
        EXPECT_TRUE(report.holds() || too_many) << check::story(candidate.method, profile, report);
      }
      EXPECT_EQ(found->front().usage.round_trips, 1u) << describe(profile);
    }
  }
}

}  // namespace
}  // namespace perdure
