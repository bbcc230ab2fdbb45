// Messages that the responder finds by polling: what it sees of them is what the fabric's order
// says.
#include <gtest/gtest.h>

#include "check/check.h"
#include "check/mutate.h"
#include "check/render.h"
#include "check/test_methods.h"

namespace perdure::check {
namespace {

using namespace test;

RequesterStep polled(std::vector<Item> items, bool checked, std::vector<Item> addresses = {}) {
  RequesterStep step = post(Verb::WritePolled, std::move(items));
  step.flush = std::move(addresses);
  step.checked = checked;
  return step;
}

ServerProfile without_order(ServerProfile profile) {
  profile.write_order = WriteOrder::Unknown;
  return profile;
}

const ServerProfile kDmp = server(PersistenceDomain::Dmp, Ddio::On);
const ServerProfile kMhp = server(PersistenceDomain::Mhp, Ddio::On);

/// The data is written to its place, and a mark behind it.
Method marked(bool checked = true) {
  return make(singleton(), {post(Verb::Write, {a}), polled({}, checked, {a}), acknowledgement()},
              {{flush(a), ack()}});
}

/// The data is in the message.
Method carried(bool checked) {
  return make(singleton(), {polled({a}, checked), acknowledgement()}, {{copy(a), flush(a), ack()}});
}

TEST(Polled, AMarkBehindTheDataIsEnoughWhereWritesKeepTheirOrder) {
  for (const Transport transport : {Transport::InfiniBand, Transport::Iwarp}) {
    EXPECT_EQ(verdict(marked(), server(PersistenceDomain::Dmp, Ddio::On, transport)), "holds");
  }
  EXPECT_EQ(verdict(marked(), kMhp), "holds");
  // Placed by a CPU they always do.
  const auto file = server(PersistenceDomain::Page, Ddio::On, Transport::Tcp);
  EXPECT_EQ(verdict(marked(), without_order(file)), "holds");
}

TEST(Polled, WithoutThatOrderTheMarkIsSeenBeforeTheData) {
  for (const ServerProfile& profile : {without_order(kDmp), without_order(kMhp)}) {
    for (const bool checked : {true, false}) {
      const Report report = check(marked(checked), profile);
      EXPECT_EQ(report.property, Property::AcknowledgedImpliesDurable);
      const std::string told = story(marked(checked), profile, report);
      EXPECT_NE(told.find("message 0 becomes visible"), std::string::npos) << told;
    }
  }
  // A SEND's completion does come after the data, in any order.
  Method by_send = marked();
  by_send.requester[1].verb = Verb::Send;
  by_send.requester[1].checked = false;
  EXPECT_EQ(verdict(by_send, without_order(kDmp)), "holds");
}

TEST(Polled, AMarkInTheSameWriteSaysNothingOfTheRestAndAChecksumDoes) {
  for (const ServerProfile& profile : {kDmp, kMhp, without_order(kDmp)}) {
    EXPECT_EQ(verdict(carried(true), profile), "holds");
    const Report report = check(carried(false), profile);
    EXPECT_EQ(report.property, Property::AcknowledgedImpliesDurable);
    const std::string told = story(carried(false), profile, report);
    EXPECT_NE(told.find("the mark of message 0 becomes visible"), std::string::npos) << told;
    EXPECT_NE(told.find("only the mark is there"), std::string::npos) << told;
  }
}

TEST(Polled, NothingCanBeTakenAway) {
  for (const Method& method : {marked(), carried(true)}) {
    std::size_t caught = 0;
    for (const Mutant& weaker : mutants(method)) {
      // A mark alone has nothing that could be torn.
      if (method == marked() && weaker.what.find("checksum") != std::string::npos) continue;
      EXPECT_EQ(check(weaker.method, kDmp).verdict, Verdict::Violated) << weaker.what;
      ++caught;
    }
    EXPECT_GE(caught, 5u);
  }
}

TEST(Polled, EpochsInOneMessageAreFlushedInTheirOrder) {
  const Method both = make(compound(), {polled({a, b}, true), acknowledgement()},
                           {{copy(a), flush(a), copy(b), flush(b), ack()}});
  EXPECT_EQ(verdict(both, without_order(kDmp)), "holds");
  const Method late = make(compound(), {polled({a, b}, true), acknowledgement()},
                           {{copy(a), copy(b), flush(a), flush(b), ack()}});
  EXPECT_EQ(verdict(late, without_order(kDmp)), "later-implies-earlier");
}

TEST(Polled, AreCountedExactly) {
  // Body and mark arrive in order and become visible in any: with neither, one or both of them in
  // the RNIC that is 1, 2 and 4 states. Then a is stored, flushed and acknowledged.
  CheckOptions options;
  options.units_per_item = 1;
  const auto states = check(carried(true), kMhp, options).states;
  EXPECT_EQ(states, 10u);
}

TEST(Polled, CarryAddressesAndAreNeverReplayed) {
  EXPECT_TRUE(validate(marked()).ok());
  EXPECT_TRUE(validate(carried(true)).ok());
  Method replayed = carried(true);
  replayed.requester[0].replay = true;
  EXPECT_EQ(validate(replayed).code(), ErrorCode::InvalidArgument);
  Method sent = carried(true);
  sent.requester[0].verb = Verb::Send;  // and checked
  EXPECT_EQ(validate(sent).code(), ErrorCode::InvalidArgument);
}

}  // namespace
}  // namespace perdure::check
