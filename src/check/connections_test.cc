// Two connections to one responder: each has its own order, and between them there is none.
#include <gtest/gtest.h>

#include "check/check.h"
#include "check/render.h"
#include "check/test_methods.h"

namespace perdure::check {
namespace {

using namespace test;

CheckOptions over(std::size_t connections) {
  CheckOptions options;
  options.connections = connections;
  return options;
}

struct Case {
  std::vector<RequesterStep> steps;
  std::vector<std::vector<ResponderAction>> reactions;
  PersistenceDomain domain;
  const char* over_one;
  const char* over_two;
};

TEST(Connections, TheSecondEpochHasToWaitUntilTheFirstIsDurable) {
  const RequesterStep write_a = post(Verb::Write, {a});
  const RequesterStep write_b = post(Verb::Write, {b});
  const RequesterStep flush_a = post(Verb::Flush, {a});
  const RequesterStep flush_b = post(Verb::Flush, {b});
  const RequesterStep send_a = post(Verb::Send, {a});
  const RequesterStep send_b = post(Verb::Send, {b});
  const std::vector<std::vector<ResponderAction>> copies = {{copy(a), ack()}, {copy(b), ack()}};
  using enum PersistenceDomain;
  const std::string acknowledged = "acknowledged-implies-durable";
  const std::vector<Case> cases = {
      // Nothing waits: what one connection keeps in order, two do not.
      {{write_a, flush_a, write_b, flush_b, completion(1), completion(3)},
       {},
       Mhp,
       "holds",
       "later-implies-earlier"},
      // The completion says that the RNIC has it: on mhp that is too early, on wsp it is not.
      {{write_a, flush_a, completion(0), write_b, flush_b, completion(1), completion(4)},
       {},
       Mhp,
       "holds",
       "later-implies-earlier"},
      {{write_a, completion(0), write_b, completion(2)}, {}, Wsp, "holds", "holds"},
      // The flush has been answered: it is durable.
      {{write_a, flush_a, completion(1), write_b, flush_b, completion(4)},
       {},
       Mhp,
       "holds",
       "holds"},
      {{write_a, flush_a, completion(1), write_b, flush_b, completion(4)},
       {},
       Dmp,
       "holds",
       "holds"},
      // A flush is for its own connection.
      {{write_a, write_b, flush_b, completion(2)}, {}, Mhp, "holds", "later-implies-earlier"},
      // The responder's processor serves two connections in any order, unless the requester waits.
      {{send_a, send_b, acknowledgement(), acknowledgement()},
       copies,
       Mhp,
       "holds",
       "later-implies-earlier"},
      {{send_a, acknowledgement(), send_b, acknowledgement()}, copies, Mhp, "holds", "holds"},
  };
  for (const Case& each : cases) {
    const Method method = make(compound(), each.steps, each.reactions);
    const ServerProfile profile = server(each.domain);
    EXPECT_EQ(verdict(method, profile, over(1)), each.over_one) << &each - cases.data();
    EXPECT_EQ(verdict(method, profile, over(2)), each.over_two) << &each - cases.data();
  }
}

TEST(Connections, SuccessiveUpdatesOverTwoAreAcknowledgedInOrderAndSurviveInAny) {
  const Method method =
      make(singleton(), {post(Verb::Write, {a}), post(Verb::Flush, {a}), completion(1)});
  for (const std::size_t connections : {1u, 2u}) {
    CheckOptions options = over(connections);
    options.updates_in_flight = 3;
    options.spread = Spread::Updates;
    options.between = Between::AcknowledgedInOrder;
    EXPECT_EQ(verdict(method, server(PersistenceDomain::Mhp), options), "holds");
    options.between = Between::Ordered;
    EXPECT_EQ(verdict(method, server(PersistenceDomain::Mhp), options),
              connections == 1 ? "holds" : "later-implies-earlier");
  }
}

TEST(Connections, AreCountedExactly) {
  // WRITE of one unit and FLUSH: on the wire; WRITE delivered, then also FLUSH, each with the unit
  // visible or not; answered. Two connections that do not wait for each other: the square of it.
  const Method method =
      make(singleton(), {post(Verb::Write, {a}), post(Verb::Flush, {a}), completion(1)});
  CheckOptions options = over(1);
  options.units_per_item = 1;
  EXPECT_EQ(check(method, server(PersistenceDomain::Mhp), options).states, 6u);
  options = over(2);
  options.units_per_item = 1;
  options.updates_in_flight = 2;
  options.between = Between::Independent;
  EXPECT_EQ(check(method, server(PersistenceDomain::Mhp), options).states, 36u);
}

TEST(Connections, TheReportSaysHowManyAndTheStoryWhich) {
  const Method method = make(compound(), {post(Verb::Write, {a}), post(Verb::Write, {b}),
                                          post(Verb::Flush, {b}), completion(2)});
  const ServerProfile profile = server(PersistenceDomain::Mhp);
  const Report report = check(method, profile, over(2));
  const std::string text = story(method, profile, report);
  EXPECT_NE(text.find("two connections (successive epochs alternate)"), std::string::npos) << text;
  EXPECT_NE(text.find("b[0] reaches the responder's RNIC over connection 1"), std::string::npos)
      << text;
  EXPECT_EQ(check(method, profile, over(3)).verdict, Verdict::NotModelled);
}

}  // namespace
}  // namespace perdure::check
