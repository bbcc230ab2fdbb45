// Over UC and UD: what plan offers, check proves, pipelined and mixed, too; what the checker's
// judge finds by search and plan does not offer is known; what the transport can not do is refused.
#include <gtest/gtest.h>

#include <algorithm>

#include "check/check.h"
#include "check/mutate.h"
#include "check/render.h"
#include "check/set_check.h"
#include "plan/catalog.h"
#include "plan/method_set.h"
#include "plan/paper.h"
#include "plan/plan.h"
#include "plan/search.h"

namespace perdure {
namespace {

std::vector<ServerProfile> unreliable_profiles() {
  std::vector<ServerProfile> profiles;
  for (const QpType type : {QpType::Uc, QpType::Ud}) {
    for (const WriteOrder order : {WriteOrder::Ordered, WriteOrder::Unknown}) {
      for (ServerProfile profile : plan::paper_profiles(Transport::Roce)) {
        profile.qp_type = type;
        profile.write_order = order;
        profiles.push_back(profile);
      }
      ServerProfile file{PersistenceDomain::Page, Ddio::On, ReceiveBuffers::Dram,
                         Transport::InfiniBand,   {},       order};
      file.qp_type = type;
      profiles.push_back(file);
    }
  }
  return profiles;
}

/// With everything that may be asked of the responder.
std::vector<plan::Known> known_on(const ServerProfile& profile, const UpdateShape& shape,
                                  Level level = Level::Durable) {
  return plan::known_methods(profile, {shape, level, true, true, true});
}

TEST(Unreliable, EveryKnownMethodHoldsPipelinedToo) {
  std::size_t asked = 0;
  for (const ServerProfile& profile : unreliable_profiles()) {
    for (const Level level : {Level::Received, Level::Visible, Level::Durable}) {
      for (const UpdateShape& shape : {singleton(), compound(), UpdateShape{{2, 1}}}) {
        const auto known = known_on(profile, shape, level);
        EXPECT_FALSE(known.empty()) << describe(profile);
        for (const plan::Known& each : known) {
          check::CheckOptions options;
          options.level = level;
          options.between = check::Between::AcknowledgedInOrder;
          for (const std::size_t updates : {1u, 2u}) {
            options.updates_in_flight = updates;
            const check::Report report = check::check(each.method, profile, options);
            EXPECT_TRUE(report.holds()) << check::story(each.method, profile, report);
            ++asked;
          }
        }
      }
    }
  }
  EXPECT_GT(asked, 500u);
}

/// What is left out is left out for a reason: whatever is right over RC and not offered over UC is
/// refused or refuted there, alone or with another one in flight.
TEST(Unreliable, WhatIsLeftOutIsWrongOrNotThere) {
  std::size_t refuted = 0;
  std::size_t refused = 0;
  for (const ServerProfile& profile : unreliable_profiles()) {
    ServerProfile reliable = profile;
    reliable.qp_type = QpType::Rc;
    for (const UpdateShape& shape : {singleton(), compound()}) {
      const auto offered = known_on(profile, shape);
      for (const plan::Known& each : known_on(reliable, shape)) {
        const bool same = std::any_of(offered.begin(), offered.end(), [&](const auto& other) {
          return other.method == each.method;
        });
        if (same) continue;
        check::CheckOptions options;
        options.updates_in_flight = 2;
        const check::Report report = check::check(each.method, profile, options);
        EXPECT_FALSE(report.holds()) << describe(profile) << ": " << each.method.name;
        ++(report.verdict == check::Verdict::Violated ? refuted : refused);
      }
    }
  }
  EXPECT_GT(refuted, 20u);
  EXPECT_GT(refused, 20u);
}

TEST(Unreliable, NothingOfThePlannedOnesIsSuperfluous) {
  std::size_t asked = 0;
  for (const ServerProfile& profile : unreliable_profiles()) {
    for (const UpdateShape& shape : {singleton(), compound()}) {
      for (const plan::Known& known : known_on(profile, shape)) {
        for (const check::Mutant& weaker : check::mutants(known.method)) {
          ++asked;
          EXPECT_FALSE(check::check(weaker.method, profile).holds())
              << describe(profile) << ", " << known.method.name << ": " << weaker.what;
        }
      }
    }
  }
  EXPECT_GT(asked, 300u);
}

/// The search looks at one update alone. There it finds a WRITE_WITH_IMM, which is wrong where two
/// are in flight; of what is sent, all that it finds is right there, too; by WRITE there is
/// nothing.
TEST(Unreliable, SearchFindsNothingThatIsPlannedByWrites) {
  for (const QpType type : {QpType::Uc, QpType::Ud}) {
    ServerProfile profile{PersistenceDomain::Dmp, Ddio::On, ReceiveBuffers::Dram,
                          Transport::Roce,        {},       WriteOrder::Ordered};
    profile.qp_type = type;
    const auto found = [&](Primary primary) {
      plan::SearchOptions options;
      options.primary = primary;
      return plan::search_methods(profile, options,
                                  [](const Method& method, const ServerProfile& on) {
                                    return check::check(method, on).holds();
                                  })
          .methods;
    };
    check::CheckOptions two;
    two.updates_in_flight = 2;
    two.between = check::Between::AcknowledgedInOrder;
    EXPECT_TRUE(found(Primary::Write).empty());
    const auto announced = found(Primary::WriteImm);
    EXPECT_EQ(announced.empty(), type == QpType::Ud);
    for (const Method& method : announced) {
      EXPECT_FALSE(check::check(method, profile, two).holds()) << plan::one_line(method);
    }
    const auto sent = found(Primary::Send);
    EXPECT_FALSE(sent.empty());
    for (const Method& method : sent) {
      EXPECT_TRUE(check::check(method, profile, two).holds()) << plan::one_line(method);
    }
  }
}

TEST(Unreliable, SetsArePlannedOfMessagesAndProved) {
  for (const ServerProfile& profile : unreliable_profiles()) {
    if (profile.receive_buffers == ReceiveBuffers::Pm) continue;
    plan::SetOptions options;
    options.tail_word = true;
    options.message_bytes_max = 16 * 1024;
    const auto set = plan::choose_methods(profile, options, plan::default_costs(profile.transport));
    ASSERT_TRUE(set.ok()) << set.error().message;
    for (const SetMember& member : members(*set)) {
      EXPECT_EQ(member.method.primary, Primary::Send) << describe(profile);
    }
    const std::uint64_t most =
        profile.qp_type == QpType::Ud ? kDatagramBytesMax : options.message_bytes_max;
    EXPECT_LT(set->batches.bytes_max, most);
    EXPECT_GT(set->batches.bytes_max, most / 2);
    EXPECT_EQ(check::check_set(members(*set), profile).verdict, check::Verdict::Holds)
        << describe(profile);
  }
}

TEST(Unreliable, TheLawOfSetsIsThatOfTheChecker) {
  // A word that is sent vouches for pieces that were written: wrong over RC already. Pieces and
  // words that are sent: right over all.
  for (const QpType type : {QpType::Uc, QpType::Ud}) {
    ServerProfile profile{PersistenceDomain::Mhp, Ddio::On, ReceiveBuffers::Dram,
                          Transport::Roce,        {},       WriteOrder::Ordered};
    profile.qp_type = type;
    const auto pieces = known_on(profile, singleton());
    const auto words = known_on(profile, compound());
    std::size_t asked = 0;
    for (const plan::Known& piece : pieces) {
      for (const plan::Known& word : words) {
        if (writes_acks(piece.method) != writes_acks(word.method)) continue;
        const std::vector<SetMember> mixed{{piece.method, Reuse::AfterItsEnd, true},
                                           {word.method, Reuse::AfterAnother, true}};
        ++asked;
        EXPECT_TRUE(may_share(mixed, profile).ok());
        EXPECT_EQ(check::check_set(mixed, profile).verdict, check::Verdict::Holds)
            << piece.method.name << " + " << word.method.name;
      }
    }
    EXPECT_GE(asked, 1u);
  }
}

TEST(Unreliable, WhatCanNotBeIsRefusedByName) {
  const auto refusal = [](const ServerProfile& profile, const plan::Update& update) {
    const auto found = plan::candidates(profile, update);
    EXPECT_EQ(found.code(), ErrorCode::Unsupported);
    return found.ok() ? std::string() : found.error().message;
  };
  ServerProfile profile{
      PersistenceDomain::Dmp, Ddio::On, ReceiveBuffers::Dram, Transport::Roce, {}};
  profile.qp_type = QpType::Ud;
  plan::Update update;
  update.bytes = kDatagramBytesMax - 64;  // less by what a message has of its own
  EXPECT_TRUE(plan::candidates(profile, update).ok());
  ++update.bytes;
  EXPECT_NE(refusal(profile, update).find("SENDs, of at most 4096 bytes"), std::string::npos);
  const auto changes =
      plan::crossovers(profile, {}, plan::default_costs(profile.transport), 1 << 20);
  ASSERT_TRUE(changes.ok());
  EXPECT_EQ(changes->front().method.name, "send-copy-flush-ack");

  profile.qp_type = QpType::Uc;
  EXPECT_TRUE(plan::candidates(profile, update).ok());
  update.primary = Primary::Write;
  EXPECT_NE(refusal(profile, update).find("a WRITE may be missing"), std::string::npos);
  update.primary = Primary::WriteImm;
  EXPECT_NE(refusal(profile, update).find("a WRITE_WITH_IMM has no number"), std::string::npos);
  update.primary.reset();
  profile.transport = Transport::Tcp;
  EXPECT_NE(refusal(profile, update).find("tcp has no uc queue pairs"), std::string::npos);
}

}  // namespace
}  // namespace perdure
