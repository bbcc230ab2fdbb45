// The planner keeps its header's promises. That its methods are right is tests/agreement's
// question.
#include "plan/plan.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "plan/paper.h"

namespace perdure::plan {
namespace {

ServerProfile server(PersistenceDomain domain, Ddio ddio, Transport transport) {
  ServerProfile profile;
  profile.domain = domain;
  profile.ddio = ddio;
  profile.transport = transport;
  return profile;
}

std::string planned(const ServerProfile& profile, std::uint64_t bytes, Level level = Level::Durable,
                    UpdateShape shape = singleton()) {
  Update update;
  update.shape = std::move(shape);
  update.bytes = bytes;
  update.level = level;
  const auto method = plan(profile, update);
  return method ? method->name : std::string(to_string(method.code()));
}

TEST(Paper, HasSeventyTwoScenariosOverTwelveResponders) {
  const auto scenarios = paper_methods();
  ASSERT_EQ(scenarios.size(), 72u);
  std::set<std::string> distinct;
  for (const Scenario& scenario : scenarios) {
    distinct.insert(describe(scenario));
    EXPECT_TRUE(validate(scenario.method).ok()) << describe(scenario);
  }
  EXPECT_EQ(distinct.size(), 72u);
}

TEST(Paper, SixCompoundRowsNeedTwoRoundTrips) {
  std::size_t two = 0;
  for (const Scenario& scenario : paper_methods()) {
    ASSERT_LE(round_trips(scenario.method), 2u);
    if (round_trips(scenario.method) == 2) ++two;
  }
  EXPECT_EQ(two, 6u);
}

TEST(Paper, IwarpChangesExactlyTheOneSidedWspRows) {
  const auto infiniband = paper_methods(Transport::InfiniBand);
  const auto iwarp = paper_methods(Transport::Iwarp);
  for (std::size_t i = 0; i < infiniband.size(); ++i) {
    const bool one_sided_wsp =
        infiniband[i].profile.domain == PersistenceDomain::Wsp && !two_sided(infiniband[i].method);
    EXPECT_EQ(infiniband[i].method == iwarp[i].method, !one_sided_wsp) << describe(iwarp[i]);
  }
}

TEST(Plan, SmallRecordsOnTcpGoInOneMessageLargeOnesAreWritten) {
  const auto dmp = server(PersistenceDomain::Dmp, Ddio::On, Transport::Tcp);
  EXPECT_EQ(planned(dmp, 64), "send-copy-flush-ack");
  EXPECT_EQ(planned(dmp, 4096), "send-copy-flush-ack");
  EXPECT_EQ(planned(dmp, 1 << 20), "write-send-flush-ack");
}

TEST(Plan, TheCrossoverIsWhereTheCopyCostsAsMuchAsTheExtraPost) {
  const auto dmp = server(PersistenceDomain::Dmp, Ddio::On, Transport::Tcp);
  const CostModel costs = default_costs(Transport::Tcp);
  const auto found = crossovers(dmp, {}, costs, 1 << 20);
  ASSERT_TRUE(found.ok());
  ASSERT_EQ(found->size(), 2u);
  EXPECT_EQ((*found)[0].method.name, "send-copy-flush-ack");
  EXPECT_EQ((*found)[1].method.name, "write-send-flush-ack");
  // 6900 ns for one more post, 0.09 ns for each byte copied: 76,667 bytes.
  EXPECT_NEAR(static_cast<double>((*found)[1].bytes), 6900 / 0.09, 1.0);
}

TEST(Plan, AnImmediateIsUsedOnlyWhereItSaysWhatWasWritten) {
  const auto dmp = server(PersistenceDomain::Dmp, Ddio::On, Transport::Tcp);
  Update update;
  EXPECT_EQ(plan(dmp, update)->name, "send-copy-flush-ack");
  update.immediate_names_place = true;
  EXPECT_EQ(plan(dmp, update)->name, "write_imm-flush-ack");
}

TEST(Plan, NothingIsDurableInVolatileMemoryAndTheErrorGivesAdvice) {
  const ServerProfile weakest;  // the default: nothing known
  const auto method = plan(weakest, {});
  ASSERT_FALSE(method.ok());
  EXPECT_EQ(method.code(), ErrorCode::Unsupported);
  for (const std::string_view advice : {"battery", "file", "visible"}) {
    EXPECT_NE(method.error().message.find(advice), std::string::npos) << advice;
  }
  EXPECT_EQ(planned(weakest, 64, Level::Visible), "send-copy-ack");
}

TEST(Plan, FilesGoThroughTheRespondersProcessor) {
  for (const Transport transport : {Transport::Tcp, Transport::InfiniBand}) {
    const auto found = candidates(server(PersistenceDomain::Page, Ddio::Off, transport), {});
    ASSERT_TRUE(found.ok());
    for (const Candidate& candidate : *found) {
      EXPECT_TRUE(two_sided(candidate.method)) << candidate.method.name;
    }
  }
}

TEST(Plan, MessagesThatDoNotFitAreLeftOut) {
  Update update;
  update.bytes = 1000;
  update.message_bytes_max = 1000;
  const auto found = candidates(server(PersistenceDomain::Dmp, Ddio::On, Transport::Tcp), update);
  ASSERT_TRUE(found.ok());
  for (const Candidate& candidate : *found) {
    EXPECT_NE(candidate.method.primary, Primary::Send) << candidate.method.name;
  }
  update.primary = Primary::Send;
  EXPECT_EQ(plan(server(PersistenceDomain::Dmp, Ddio::On, Transport::Tcp), update).code(),
            ErrorCode::Unsupported);
}

TEST(Plan, EveryScenarioOfThePapersHasAMethodOfOneRoundTrip) {
  for (const Scenario& scenario : paper_methods()) {
    Update update;
    update.shape = scenario.shape;
    update.primary = scenario.primary;
    const auto found = candidates(scenario.profile, update);
    ASSERT_TRUE(found.ok());
    EXPECT_TRUE(std::any_of(found->begin(), found->end(), [](const Candidate& candidate) {
      return candidate.usage.round_trips == 1;
    })) << describe(scenario);
  }
}

TEST(Plan, TheOrderOfCandidatesIsByCost) {
  const auto found =
      candidates(server(PersistenceDomain::Wsp, Ddio::On, Transport::InfiniBand), {});
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->front().method.name, "write-completion");
  for (std::size_t i = 1; i < found->size(); ++i) {
    EXPECT_LE((*found)[i - 1].cost_ns, (*found)[i].cost_ns);
  }
}

TEST(Plan, OfMethodsThatNoiseCannotTellApartTheOneThatPostsLeastIsChosen) {
  const auto file = server(PersistenceDomain::Page, Ddio::On, Transport::Shm);
  CostModel costs = default_costs(Transport::Shm);
  costs.extra_post_ns = 1;  // the other method is cheaper, by nothing that one could measure
  EXPECT_EQ(plan(file, {}, costs)->name, "write-send-flush-ack");
  costs.measured = true;
  EXPECT_EQ(plan(file, {}, costs)->name, "send-copy-flush-ack");
  costs.copy_byte_ns = 200;  // 12.8 us of 100
  EXPECT_EQ(plan(file, {}, costs)->name, "write-send-flush-ack");
}

TEST(Plan, AnUpdateWithoutItemsOrBytesIsRefused) {
  Update update;
  update.shape = UpdateShape{{}};
  EXPECT_EQ(plan({}, update).code(), ErrorCode::InvalidArgument);
  update.shape = UpdateShape{{1, 0}};
  EXPECT_EQ(plan({}, update).code(), ErrorCode::InvalidArgument);
  update.shape = singleton();
  update.bytes = 0;
  EXPECT_EQ(plan({}, update).code(), ErrorCode::InvalidArgument);
}

// The responder is woken once for each answer that is waited for, whatever was posted before.
TEST(Cost, AWakeIsPaidPerWait) {
  ServerProfile server;
  server.domain = PersistenceDomain::Wsp;
  server.transport = Transport::Shm;
  const auto candidates_at = [&](double reply_ns, double completion_ns) {
    CostModel costs = default_costs(Transport::Shm);
    costs.responder_wake_ns = reply_ns;
    costs.one_sided_wake_ns = completion_ns;
    const auto found = candidates(server, {}, costs);
    std::map<std::string, double> by_name;
    for (const Candidate& each : *found) by_name[each.method.name] = each.cost_ns;
    return by_name;
  };
  const auto awake = candidates_at(0, 0);
  const auto asleep = candidates_at(1000, 10);
  for (const char* name : {"send-copy-ack", "write-send-ack"}) {
    EXPECT_NEAR(asleep.at(name) - awake.at(name), 1000, 0.01) << name;
  }
  for (const char* name : {"write-completion", "write-flush"}) {
    EXPECT_NEAR(asleep.at(name) - awake.at(name), 10, 0.01) << name;
  }
}

/// What is said of a method is why it is as it is here: where nobody knows the order of WRITEs,
/// what has several epochs and does not count on it says so, and where they keep it nothing does.
TEST(Reason, SaysWhereItIsTheOrderOfWritesThatIsNotKnown) {
  const std::string unknown = "WRITEs may be placed in any order here";
  std::size_t asked = 0;
  for (const auto domain :
       {PersistenceDomain::Dmp, PersistenceDomain::Mhp, PersistenceDomain::Wsp}) {
    for (const WriteOrder order : {WriteOrder::Unknown, WriteOrder::Ordered}) {
      ServerProfile profile = server(domain, Ddio::Off, Transport::Roce);
      profile.write_order = order;
      Update update;
      for (const UpdateShape& shape : {singleton(), compound(), UpdateShape{{1, 2, 1}}}) {
        update.shape = shape;
        update.later_bytes = 4096;
        const auto found = candidates(profile, update);
        ASSERT_TRUE(found.ok());
        for (const Candidate& candidate : *found) {
          ++asked;
          EXPECT_EQ(candidate.reason.find(unknown) != std::string::npos,
                    order == WriteOrder::Unknown && shape != singleton())
              << describe(profile) << ", " << candidate.method.name << ": " << candidate.reason;
        }
      }
    }
  }
  EXPECT_GT(asked, 60u);
}

/// With an order of WRITEs there is still none of what lasts.
TEST(Reason, SaysWhereVisibleFirstIsNotDurableFirst) {
  ServerProfile profile = server(PersistenceDomain::Dmp, Ddio::Off, Transport::Roce);
  profile.write_order = WriteOrder::Ordered;
  Update update;
  update.shape = compound();
  update.primary = Primary::Write;
  const auto found = candidates(profile, update);
  ASSERT_TRUE(found.ok());
  std::size_t waiting = 0;
  for (const Candidate& candidate : *found) {
    if (candidate.usage.round_trips < 2) continue;
    ++waiting;
    EXPECT_NE(candidate.reason.find("need not be durable first"), std::string::npos)
        << candidate.reason;
  }
  EXPECT_GE(waiting, 1u);
}

}  // namespace
}  // namespace perdure::plan
