// Methods that share a connection: the law of core/method_set.h against the checker, pair by pair,
// and every set that the planner chooses.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "check/set_check.h"
#include "plan/catalog.h"
#include "plan/method_set.h"
#include "plan/paper.h"
#include "tests/agreement/golden.h"
#include "tests/agreement/wrong_sets.h"

namespace perdure {
namespace {

/// The papers' responders with order among WRITEs and without, over a transport that completes
/// early, and files.
std::vector<ServerProfile> profiles() {
  std::vector<ServerProfile> all;
  for (const WriteOrder order : {WriteOrder::Ordered, WriteOrder::Unknown}) {
    for (ServerProfile profile : plan::paper_profiles(Transport::InfiniBand)) {
      // Only what has to reach the memory controller asks about DDIO.
      const bool asks = profile.domain == PersistenceDomain::Dmp;
      if (!asks && profile.ddio == Ddio::On) continue;
      profile.write_order = order;
      profile.capabilities.atomic_write = true;
      all.push_back(profile);
    }
  }
  using enum PersistenceDomain;
  for (const PersistenceDomain domain : {Dmp, Wsp}) {
    all.push_back({domain, Ddio::Off, ReceiveBuffers::Pm, Transport::Iwarp, {}});
  }
  for (const DmaDirties dirties : {DmaDirties::No, DmaDirties::Yes}) {
    all.push_back({Page, Ddio::On, ReceiveBuffers::Dram, Transport::Roce, {}});
    all.back().dma_dirties = dirties;
  }
  all.push_back({Page, Ddio::On, ReceiveBuffers::Dram, Transport::Tcp, {}});
  for (const WriteOrder order : {WriteOrder::Ordered, WriteOrder::Unknown}) {
    all.push_back({Dmp, Ddio::On, ReceiveBuffers::Dram, Transport::InfiniBand, {}});
    all.back().write_order = order;
    all.back().capabilities.ordered_persist = all.back().capabilities.atomic_write = true;
    all.push_back(all.back());
    all.back().ddio = Ddio::Off;
  }
  return all;
}

/// Which methods there are besides those that ask nothing of the responder's habits.
struct Also {
  bool polled = false;
  bool responder_posts = false;
};

std::vector<Method> methods(const ServerProfile& profile, const UpdateShape& shape,
                            const Also& also) {
  std::vector<Method> all;
  for (const plan::Known& known : plan::known_methods(
           profile, {shape, Level::Durable, true, also.polled, also.responder_posts})) {
    all.push_back(known.method);
  }
  return all;
}

/// Every two that could meet on one connection: two with a word, two that write single places, and
/// either kind in a ring beside one that writes single places.
std::vector<std::vector<SetMember>> pairs(const ServerProfile& profile, const Also& also = {}) {
  const auto words = methods(profile, compound(), also);
  const auto singles = methods(profile, singleton(), also);
  const bool pieces = profile.domain == PersistenceDomain::Page;
  std::vector<std::vector<SetMember>> all;
  const auto add = [&](const std::vector<Method>& methods, Reuse reuse) {
    for (std::size_t one = 0; one < methods.size(); ++one) {
      for (std::size_t other = one; other < methods.size(); ++other) {
        all.push_back({{methods[one], reuse, true}});
        if (other != one) all.back().push_back({methods[other], reuse, true});
      }
    }
  };
  add(words, Reuse::AfterAnother);
  add(singles, Reuse::AfterItsEnd);
  for (const Method& place : singles) {
    for (const Method& word : words) {
      all.push_back({{word, Reuse::AfterAnother, true}, {place, Reuse::AfterItsEnd, pieces}});
    }
    for (const Method& record : singles) {
      all.push_back({{record, Reuse::AfterAnother, true}, {place, Reuse::AfterItsEnd, false}});
    }
  }
  return all;
}

std::string names(const std::vector<SetMember>& set) {
  std::string text;
  for (const SetMember& member : set) {
    text += fmt::format("{}{} {} ({})", text.empty() ? "" : " + ", to_string(member.method.shape),
                        member.method.name, to_string(member.reuse));
  }
  return text;
}

TEST(Sets, TheLawAllowsWhatHoldsAndRefusesWhatDoesNot) {
  std::string table;
  std::string strict;
  std::uint64_t states = 0;
  for (const ServerProfile& profile : profiles()) {
    std::size_t allowed = 0;
    std::size_t broken = 0;
    std::size_t harmless = 0;
    for (const auto& set : pairs(profile)) {
      const auto law = may_share(set, profile);
      check::SetOptions bounds;
      bounds.updates_max = set.front().reuse == set.back().reuse ? 2 : 3;  // a ring needs a third
      const check::SetReport report = check::check_set(set, profile, bounds);
      ASSERT_NE(report.verdict, check::Verdict::NotModelled) << check::summary(report);
      ASSERT_NE(report.verdict, check::Verdict::LimitReached) << check::summary(report);
      states += report.states;
      EXPECT_TRUE(report.holds() || !law.ok()) << names(set) << check::story(profile, report);
      allowed += law.ok() ? 1 : 0;
      broken += report.holds() ? 0 : 1;
      if (law.ok() || !report.holds()) continue;
      ++harmless;
      strict += fmt::format("{}: {}: {}\n", describe(profile), names(set), law.error().message);
    }
    table += fmt::format("{}: {} allowed, {} broken, {} refused and not found broken\n",
                         describe(profile), allowed, broken, harmless);
  }
  expect_golden("sets.txt", fmt::format("{}{} states\n\nRefused and not found broken:\n{}", table,
                                        states, strict));
}

bool posts(const Method& method, Verb verb) {
  return std::any_of(method.requester.begin(), method.requester.end(), [&](const auto& step) {
    return step.kind == RequesterStep::Kind::Post && step.verb == verb;
  });
}

/// Of pairs with a method of a certain kind, one in `every`: what the law allows is what the
/// checker finds right.
class HeldToTheLaw {
 public:
  explicit HeldToTheLaw(std::size_t every = 1) : every_(every) {}

  template <typename Which>
  void look(const ServerProfile& profile, const Also& also, Which which) {
    for (const auto& set : pairs(profile, also)) {
      const bool asked = std::any_of(set.begin(), set.end(),
                                     [&](const auto& member) { return which(member.method); });
      if (!asked || next_++ % every_ != 0) continue;
      check::SetOptions bounds;
      bounds.updates_max = set.front().reuse == set.back().reuse ? 2 : 3;
      const check::SetReport report = check::check_set(set, profile, bounds);
      ASSERT_TRUE(report.holds() || report.verdict == check::Verdict::Violated);
      EXPECT_EQ(may_share(set, profile).ok(), report.holds())
          << names(set) << check::story(profile, report);
      (report.holds() ? right : broken) += 1;
    }
  }

  std::size_t right = 0;
  std::size_t broken = 0;

 private:
  std::size_t every_;
  std::size_t next_ = 0;
};

/// What the responder READs is, to the law, what it copies.
TEST(Sets, ReadsOfTheResponderAreHeldToTheLaw) {
  using enum PersistenceDomain;
  HeldToTheLaw held;
  for (const PersistenceDomain domain : {Dmp, Mhp}) {
    ServerProfile profile{domain, Ddio::Off, ReceiveBuffers::Dram, Transport::InfiniBand, {}};
    profile.write_order = WriteOrder::Ordered;
    held.look(profile, {.responder_posts = true}, fetches);
  }
  EXPECT_GT(held.right, 30u);
  EXPECT_GT(held.broken, 3u);
}

/// All where WRITEs keep no order, some where they do and a polled message comes as a SEND does.
TEST(Sets, MessagesThatArePolledForAreHeldToTheLaw) {
  using enum PersistenceDomain;
  HeldToTheLaw held;
  HeldToTheLaw in_order(5);
  const auto polled = [](const Method& method) { return posts(method, Verb::WritePolled); };
  for (const PersistenceDomain domain : {Dmp, Mhp, Wsp}) {
    for (const WriteOrder order : {WriteOrder::Ordered, WriteOrder::Unknown}) {
      ServerProfile profile{domain, Ddio::Off, ReceiveBuffers::Dram, Transport::InfiniBand, {}};
      profile.write_order = order;
      profile.capabilities.native_flush = profile.capabilities.atomic_write = true;
      profile.capabilities.ordered_persist = order == WriteOrder::Unknown;
      (order == WriteOrder::Unknown ? held : in_order).look(profile, {.polled = true}, polled);
    }
  }
  EXPECT_GT(held.right, 100u);
  EXPECT_GT(held.broken, 30u);
  EXPECT_GT(in_order.right, 15u);
  EXPECT_GT(in_order.broken, 3u);
}

/// Of messages that stay in their receive buffers, and of WRITEs where DDIO is on.
TEST(Sets, FlushesByLookupAreHeldToTheLaw) {
  using enum PersistenceDomain;
  HeldToTheLaw held(3);
  const auto looks_up = [](const Method& method) { return posts(method, Verb::SendFlush); };
  for (const WriteOrder order : {WriteOrder::Ordered, WriteOrder::Unknown}) {
    for (const auto& [domain, ddio] : {std::pair{Dmp, Ddio::On}, std::pair{Mhp, Ddio::Off}}) {
      ServerProfile profile{domain, ddio, ReceiveBuffers::Pm, Transport::InfiniBand, {}};
      profile.write_order = order;
      profile.capabilities.send_flush = profile.capabilities.native_flush = true;
      held.look(profile, {.polled = domain == Dmp}, looks_up);
    }
  }
  EXPECT_GT(held.right, 20u);
  EXPECT_GT(held.broken, 3u);
}

TEST(Sets, EveryWrongOneIsCaughtWithItsShortestStory) {
  for (const WrongSet& wrong : wrong_sets()) {
    const check::SetReport report = check::check_set(wrong.members, wrong.profile);
    ASSERT_EQ(report.verdict, check::Verdict::Violated) << wrong.name;
    EXPECT_EQ(to_string(*report.report.property), wrong.breaks) << wrong.name;
    expect_golden(wrong.name + ".txt", check::story(wrong.profile, report));
    // Each clause of the law by itself: what refuses it says what the story shows.
    const auto law = may_share(wrong.members, wrong.profile);
    ASSERT_FALSE(law.ok()) << wrong.name;
    EXPECT_NE(law.error().message.find(wrong.law), std::string::npos) << law.error().message;
    ServerProfile right = wrong.profile;
    if (wrong.right_in_order) {
      right.write_order = WriteOrder::Ordered;
      EXPECT_TRUE(may_share(wrong.members, right).ok());
      EXPECT_TRUE(check::check_set(wrong.members, right).holds()) << wrong.name;
    }
  }
}

/// What the planner is asked: costs under which each kind of operation is the cheapest.
std::vector<plan::CostModel> costs(Transport transport) {
  std::vector<plan::CostModel> all(4, plan::default_costs(transport));
  all[1].message_round_trip_ns = 1e6;
  all[2].read_round_trip_ns = all[2].write_round_trip_ns = 1e6;
  all[3].copy_byte_ns = 100;
  return all;
}

TEST(Sets, WhatThePlannerChoosesHolds) {
  std::set<std::string> seen;
  std::uint64_t states = 0;
  auto all = profiles();
  for (const Transport transport : {Transport::Tcp, Transport::Shm}) {
    all.push_back({PersistenceDomain::Dmp, Ddio::On, ReceiveBuffers::Dram, transport, {}});
    all.push_back({PersistenceDomain::Wsp, Ddio::On, ReceiveBuffers::Pm, transport, {}});
    all.push_back({PersistenceDomain::None, Ddio::On, ReceiveBuffers::Dram, transport, {}});
  }
  for (const ServerProfile& profile : all) {
    for (const Level level : {Level::Received, Level::Visible, Level::Durable}) {
      for (const bool tail_word : {false, true}) {
        for (const plan::CostModel& cost : costs(profile.transport)) {
          plan::SetOptions options;
          options.tail_word = tail_word;
          options.level = level;
          options.message_bytes_max = 16 * 1024;
          const auto set = plan::choose_methods(profile, options, cost);
          const bool nothing = profile.domain == PersistenceDomain::None && level == Level::Durable;
          ASSERT_EQ(set.ok(), !nothing) << describe(profile);
          if (nothing) continue;
          const auto chosen = members(*set);
          if (!seen.insert(describe(profile) + names(chosen) + std::string(to_string(level)))
                   .second) {
            continue;
          }
          ASSERT_TRUE(may_share(*set, profile).ok());
          check::SetOptions bounds;
          bounds.level = level;
          bounds.updates_max = level == Level::Durable ? 3 : 2;
          const check::SetReport report = check::check_set(chosen, profile, bounds);
          EXPECT_TRUE(report.holds()) << check::story(profile, report);
          states += report.states;
        }
      }
    }
  }
  EXPECT_GT(seen.size(), 100u);
  RecordProperty("sets", std::to_string(seen.size()));
  RecordProperty("states", std::to_string(states));
}

}  // namespace
}  // namespace perdure
