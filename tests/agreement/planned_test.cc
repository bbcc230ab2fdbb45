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

/// The profile with everything that can be asked of the fabric and the medium beside it.
void add_with_order_and_pages(ServerProfile profile, std::vector<ServerProfile>& profiles) {
  for (const auto order : {WriteOrder::Unknown, WriteOrder::Ordered}) {
    for (const auto dirties : {DmaDirties::No, DmaDirties::Yes}) {
      const bool asked = profile.domain == PersistenceDomain::Page;
      if (dirties == DmaDirties::Yes && !asked) continue;
      profile.write_order = order;
      profile.dma_dirties = dirties;
      profiles.push_back(profile);
    }
  }
}

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
            add_with_order_and_pages(profile, profiles);
            if (domain != Dmp && domain != Mhp) continue;
            profile.capabilities.native_flush = profile.capabilities.persistent_flush = true;
            add_with_order_and_pages(profile, profiles);
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

/// Without order among WRITEs there is still a method of one round trip for every scenario, and for
/// files one whose data the responder's processor stores.
TEST(Planned, OneRoundTripIsEnoughWhateverTheOrderOfWrites) {
  for (const ServerProfile& profile : all_profiles()) {
    if (profile.domain == PersistenceDomain::None) continue;
    for (const UpdateShape& shape : {singleton(), compound(), UpdateShape{{1, 2, 1}}}) {
      plan::Update update;
      update.shape = shape;
      update.later_bytes = 4096;  // no word
      const auto found = plan::candidates(profile, update);
      ASSERT_TRUE(found.ok()) << describe(profile);
      EXPECT_TRUE(std::any_of(found->begin(), found->end(), [](const plan::Candidate& candidate) {
        return candidate.usage.round_trips == 1;
      })) << describe(profile);
    }
  }
}

TEST(Planned, NothingIsWrittenIntoFilesWhosePagesStayCleanUnderAnRnic) {
  std::size_t asked = 0;
  for (const ServerProfile& profile : all_profiles()) {
    if (profile.domain != PersistenceDomain::Page || syncs_peer_writes(profile)) continue;
    for (const plan::Known& known :
         plan::known_methods(profile, {compound(), Level::Durable, true})) {
      ++asked;
      EXPECT_EQ(known.method.primary, Primary::Send) << known.method.name;
      for (const RequesterStep& step : known.method.requester) {
        const bool sends = step.kind != RequesterStep::Kind::Post || step.verb == Verb::Send;
        EXPECT_TRUE(sends) << known.method.name;
      }
    }
  }
  EXPECT_GT(asked, 0u);
}

/// Whatever is right where less is known is right where more is known: no method profits from a
/// machine that is worse.
TEST(Planned, WhatIsRightWithoutOrderOrNoticedPagesIsRightWithThem) {
  for (ServerProfile profile : all_profiles()) {
    if (profile.write_order == WriteOrder::Ordered || profile.dma_dirties == DmaDirties::Yes) {
      continue;
    }
    for (const plan::Known& known :
         plan::known_methods(profile, {compound(), Level::Durable, true})) {
      ServerProfile better = profile;
      better.write_order = WriteOrder::Ordered;
      better.dma_dirties = DmaDirties::Yes;
      EXPECT_TRUE(check::check(known.method, better).holds())
          << known.method.name << " on " << describe(better);
    }
  }
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
  ServerProfile volatile_memory;
  volatile_memory.capabilities.atomic_write = true;  // else nothing is said of those that use it
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
