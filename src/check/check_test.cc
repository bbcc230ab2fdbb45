// The machine's rules, one by one, each shown by a method that is right or wrong because of it.
#include "check/check.h"

#include <gtest/gtest.h>

#include "check/render.h"
#include "check/test_methods.h"

namespace perdure::check {
namespace {

using namespace test;

TEST(Check, AReadFlushesOnlyWhatItCovers) {
  const auto dmp = server(PersistenceDomain::Dmp);
  EXPECT_EQ(
      verdict(make(singleton(), {post(Verb::Write, {a}), post(Verb::Read, {a}), completion(1)}),
              dmp),
      "holds");
  EXPECT_EQ(
      verdict(make(singleton(), {post(Verb::Write, {a}), post(Verb::Read, {}), completion(1)}),
              dmp),
      "acknowledged-implies-durable");
}

// What the responder's CPU stores is in its caches, whatever its DMA would do.
TEST(Check, WhatTheProcessorStoresBypassesNoCache) {
  const auto written =
      make(singleton(), {post(Verb::Write, {a}), post(Verb::Read, {a}), completion(1)});
  for (const auto transport : {Transport::Tcp, Transport::Shm}) {
    ServerProfile profile = server(PersistenceDomain::Dmp, Ddio::Off, transport);
    EXPECT_EQ(verdict(written, profile), "acknowledged-implies-durable");
    profile.domain = PersistenceDomain::Mhp;
    EXPECT_EQ(verdict(written, profile), "holds");
  }
}

// Nor does a READ that stands in for a FLUSH: no requester reaches a receive buffer.
TEST(Check, BehindAMessageAReadIsNoFlush) {
  const auto message =
      make(singleton(), {send_replayable({a}), post(Verb::Flush, {a}), completion(1)});
  UpdateShape both;
  both.items_per_epoch = {2};
  const auto mixed = [&](std::vector<Item> named) {
    return make(both, {post(Verb::Write, {a}), send_replayable({b}), post(Verb::Flush, named),
                       completion(2)});
  };
  for (const auto domain : {PersistenceDomain::Dmp, PersistenceDomain::Mhp}) {
    ServerProfile profile = server(domain);
    profile.receive_buffers = ReceiveBuffers::Pm;
    EXPECT_EQ(verdict(message, profile), "acknowledged-implies-durable");
    EXPECT_EQ(verdict(mixed({a, b}), profile), "acknowledged-implies-durable");
    EXPECT_EQ(verdict(mixed({b, a}), profile), "holds");
    profile.capabilities.native_flush = true;
    profile.capabilities.persistent_flush = domain == PersistenceDomain::Dmp;
    EXPECT_EQ(verdict(message, profile), "holds");
    EXPECT_EQ(verdict(mixed({a, b}), profile), "holds");
  }
}

TEST(Check, AFlushToPersistenceNeedsNoProcessorWhereDdioIsOn) {
  const auto method =
      make(singleton(), {post(Verb::Write, {a}), post(Verb::Flush, {a}), completion(1)});
  ServerProfile cached = server(PersistenceDomain::Dmp, Ddio::On);
  EXPECT_EQ(verdict(method, cached), "acknowledged-implies-durable");
  cached.capabilities.native_flush = true;  // to visibility
  EXPECT_EQ(verdict(method, cached), "acknowledged-implies-durable");
  cached.capabilities.persistent_flush = true;
  EXPECT_EQ(verdict(method, cached), "holds");
  // It is no help behind a page cache, and a READ is no such FLUSH.
  ServerProfile page = cached;
  page.domain = PersistenceDomain::Page;
  EXPECT_EQ(verdict(method, page), "acknowledged-implies-durable");
  EXPECT_EQ(
      verdict(make(singleton(), {post(Verb::Write, {a}), post(Verb::Read, {a}), completion(1)}),
              cached),
      "acknowledged-implies-durable");
}

TEST(Check, AFlushToPersistenceReachesTheRangeThatItNames) {
  ServerProfile cached = server(PersistenceDomain::Dmp, Ddio::On);
  cached.capabilities.persistent_flush = true;
  EXPECT_EQ(
      verdict(make(singleton(), {post(Verb::Write, {a}), post(Verb::Flush, {a}), completion(1)}),
              cached),
      "acknowledged-implies-durable")
      << "there is no FLUSH at all, and a READ stands in for it";
  cached.capabilities.native_flush = true;
  const auto flushing = [](std::vector<Item> named) {
    UpdateShape two;
    two.items_per_epoch = {2};
    return make(two, {post(Verb::Write, {a}), post(Verb::Write, {b}), post(Verb::Flush, named),
                      completion(2)});
  };
  EXPECT_EQ(verdict(flushing({a, b}), cached), "holds");
  EXPECT_EQ(verdict(flushing({b}), cached), "acknowledged-implies-durable");
  // With DDIO off any FLUSH pushes all that came before it.
  EXPECT_EQ(verdict(flushing({b}), server(PersistenceDomain::Dmp)), "holds");
}

// The responder receives two messages at a time. What the second brings is stored before what the
// first ends with is flushed, and may drain before it.
TEST(Check, OfMessagesThatAreHandledTogetherALaterOneMaySurviveAlone) {
  CheckOptions two;
  two.updates_in_flight = 2;
  for (const UpdateShape& shape : {singleton(), compound()}) {
    for (const auto domain : {PersistenceDomain::Dmp, PersistenceDomain::Page}) {
      const Method method = one_message(shape);
      EXPECT_EQ(verdict(method, server(domain)), "holds");
      EXPECT_EQ(verdict(method, server(domain), two), "later-implies-earlier");
      CheckOptions prefix = two;
      prefix.between = Between::AcknowledgedInOrder;
      EXPECT_EQ(verdict(method, server(domain), prefix), "holds");
      prefix.gathered = true;
      EXPECT_EQ(verdict(method, server(domain), prefix), "holds");
    }
    EXPECT_EQ(verdict(one_message(shape), server(PersistenceDomain::Mhp), two), "holds");
  }
}

// One epoch is flushed before the next is stored, together or not: the answer says so.
TEST(Check, WhatIsFlushedTogetherIsFlushedBeforeItIsAnswered) {
  CheckOptions options;
  options.gathered = true;
  options.between = Between::AcknowledgedInOrder;
  options.updates_in_flight = 3;
  EXPECT_EQ(verdict(one_message(compound()), server(PersistenceDomain::Dmp), options), "holds");
  Method hasty = one_message(singleton());
  hasty.responder[0] = {copy(a), ack()};
  EXPECT_EQ(verdict(hasty, server(PersistenceDomain::Dmp), options),
            "acknowledged-implies-durable");
}

// Nothing comes together with what the requester waits for.
TEST(Check, MessagesThatAreWaitedForAreNotHandledTogether) {
  const Method method =
      make(compound(),
           {post(Verb::Send, {a}), acknowledgement(), post(Verb::Send, {b}), acknowledgement()},
           {{copy(a), flush(a), ack()}, {copy(b), flush(b), ack()}});
  CheckOptions alone;
  alone.gathered = true;
  EXPECT_EQ(verdict(method, server(PersistenceDomain::Dmp), alone), "holds");
  Method at_once = method;
  at_once.requester.erase(at_once.requester.begin() + 1);
  at_once.responder[0].pop_back();
  EXPECT_EQ(verdict(at_once, server(PersistenceDomain::Dmp), alone), "later-implies-earlier");
}

// What is in a receive buffer survives on dmp once it is in the memory controller.
TEST(Check, BehindAMessageAFlushToVisibilityIsNoneOnDmp) {
  const Method method =
      make(singleton(), {send_replayable({a}), post(Verb::Flush, {a}), completion(1)});
  for (const auto domain : {PersistenceDomain::Dmp, PersistenceDomain::Mhp}) {
    ServerProfile profile = server(domain);
    profile.receive_buffers = ReceiveBuffers::Pm;
    profile.capabilities.native_flush = true;
    const Report visible = check(method, profile);
    EXPECT_EQ(visible.holds(), domain == PersistenceDomain::Mhp) << visible.reason;
    EXPECT_EQ(visible.reason.find("reaches visibility only") != std::string::npos,
              domain == PersistenceDomain::Dmp);
    profile.capabilities.persistent_flush = true;
    EXPECT_TRUE(check(method, profile).holds());
  }
}

TEST(Check, AFenceKeepsAPostedWriteBehindTheFlush) {
  const auto dmp = server(PersistenceDomain::Dmp);
  const auto method = [](bool fenced) {
    return make(compound(),
                {post(Verb::Write, {a}), post(Verb::Flush, {a}), post(Verb::Write, {b}, fenced),
                 post(Verb::Flush, {b}), completion(3)});
  };
  EXPECT_EQ(verdict(method(true), dmp), "holds");
  EXPECT_EQ(verdict(method(false), dmp), "later-implies-earlier");
}

TEST(Check, AnAtomicWriteStaysBehindTheFlushAndCarriesEightBytes) {
  ServerProfile dmp = server(PersistenceDomain::Dmp);
  dmp.capabilities.atomic_write = true;
  Method method =
      make(compound(), {post(Verb::Write, {a}), post(Verb::Flush, {a}),
                        post(Verb::WriteAtomic, {b}), post(Verb::Flush, {b}), completion(3)});
  EXPECT_EQ(verdict(method, dmp), "not-modelled");
  method.later_any_size = false;
  EXPECT_EQ(verdict(method, dmp), "holds");
  // Where the RNIC has none, nothing is said of it.
  dmp.capabilities.atomic_write = false;
  EXPECT_EQ(verdict(method, dmp), "not-modelled");
}

TEST(Check, TwoItemsInOneWriteAreNotOrdered) {
  const auto method =
      make(compound(), {post(Verb::Write, {a, b}), post(Verb::Flush, {a, b}), completion(1)});
  EXPECT_EQ(verdict(method, server(PersistenceDomain::Mhp)), "later-implies-earlier");
}

TEST(Check, WhatALaterEpochVouchesForIsNotTorn) {
  // a and b belong together, c says that they are there. a is durable when b and c are posted.
  UpdateShape shape;
  shape.items_per_epoch = {2, 1};
  const Item c = 2;
  const auto method = [&](std::vector<Item> first, std::vector<Item> second) {
    return make(shape, {post(Verb::Write, first), post(Verb::Flush, first), completion(1),
                        post(Verb::Write, second), post(Verb::Flush, second), completion(4),
                        post(Verb::Write, {c}), post(Verb::Flush, {c}), completion(7)});
  };
  const auto dmp = server(PersistenceDomain::Dmp);
  EXPECT_EQ(verdict(method({a}, {b}), dmp), "holds");
  Method early = method({a}, {b});
  early.requester[5].of = 3;  // waits until the RNIC has b
  EXPECT_EQ(verdict(early, dmp), "nothing-torn");
}

TEST(Check, AWaitThatNothingAnswersNeverCompletes) {
  const auto method = make(singleton(), {post(Verb::Write, {a}), acknowledgement()});
  EXPECT_EQ(verdict(method, server(PersistenceDomain::Wsp)), "always-completes");
}

TEST(Check, TheResponderCanNotFlushWhatNoMessageNamed) {
  const std::vector<std::vector<ResponderAction>> reaction = {
      {{ResponderAction::Kind::Flush, a}, {ResponderAction::Kind::Ack, 0}}};
  Method method = make(singleton(),
                       {post(Verb::Write, {a}), post(Verb::Send, {}), acknowledgement()}, reaction);
  const auto dmp = server(PersistenceDomain::Dmp, Ddio::On);
  EXPECT_EQ(verdict(method, dmp), "acknowledged-implies-durable");
  method.requester[1].flush = {a};
  EXPECT_EQ(verdict(method, dmp), "holds");
}

TEST(Check, CompletionsMeanLessOnIwarpAndTcp) {
  const auto method = make(singleton(), {post(Verb::Write, {a}), completion(0)});
  for (const auto transport : {Transport::InfiniBand, Transport::Roce, Transport::Shm}) {
    EXPECT_EQ(verdict(method, server(PersistenceDomain::Wsp, Ddio::Off, transport)), "holds");
  }
  for (const auto transport : {Transport::Iwarp, Transport::Tcp}) {
    EXPECT_EQ(verdict(method, server(PersistenceDomain::Wsp, Ddio::Off, transport)),
              "acknowledged-implies-durable");
  }
}

TEST(Check, LevelsAskForLess) {
  const auto nothing_survives = server(PersistenceDomain::None);
  const auto method =
      make(singleton(), {post(Verb::Write, {a}), post(Verb::Read, {a}), completion(1)});
  EXPECT_EQ(verdict(method, nothing_survives), "acknowledged-implies-durable");
  CheckOptions options;
  options.level = Level::Visible;
  EXPECT_EQ(verdict(method, nothing_survives, options), "holds");
  const auto received = make(singleton(), {post(Verb::Write, {a}), completion(0)});
  EXPECT_EQ(verdict(received, nothing_survives, options), "acknowledged-implies-durable");
  options.level = Level::Received;
  EXPECT_EQ(verdict(received, nothing_survives, options), "holds");
}

TEST(Check, ALimitThatIsReachedIsNoProof) {
  CheckOptions options;
  options.states_max = 5;
  const auto method =
      make(singleton(), {post(Verb::Write, {a}), post(Verb::Flush, {a}), completion(1)});
  const Report report = check(method, server(PersistenceDomain::Dmp), options);
  EXPECT_EQ(report.verdict, Verdict::LimitReached);
  EXPECT_FALSE(report.holds());
  EXPECT_NE(summary(report).find("no proof"), std::string::npos);
}

TEST(Check, CountsStatesExactly) {
  // WRITE of two units and FLUSH. Which of two units that are both there is the first is only a
  // name, and a visible unit may have drained or not, so there is one state for each number of
  // units delivered and visible.
  const auto method =
      make(singleton(), {post(Verb::Write, {a}), post(Verb::Flush, {a}), completion(1)});
  Report report = check(method, server(PersistenceDomain::Dmp));
  // delivered 0: 1; 1: 0 or 1 visible; 2, and 3 with the FLUSH: 0 to 2 visible; then
  // acknowledged: 1.
  EXPECT_EQ(report.states, 1u + 2u + 3u + 3u + 1u);
  CheckOptions options;
  options.units_per_item = 4;
  report = check(method, server(PersistenceDomain::Dmp), options);
  EXPECT_EQ(report.states, 1u + 2u + 3u + 4u + 5u + 5u + 1u);
}

TEST(Check, AStoryEndsInWhatRecoveryFinds) {
  const auto method = make(singleton(), {post(Verb::Write, {a}), completion(0)});
  const auto profile = server(PersistenceDomain::Mhp);
  const Report report = check(method, profile);
  ASSERT_EQ(report.verdict, Verdict::Violated);
  EXPECT_EQ(report.path.back().text, "power fails; recovery finds a: lost");
  EXPECT_NE(to_svg(diagram(method, profile, report)).find("power fails"), std::string::npos);
  EXPECT_NE(to_json(method, profile, report).find("\"verdict\": \"violated\""), std::string::npos);
}

TEST(Check, MalformedMethodsAreReportedNotRun) {
  EXPECT_EQ(verdict(make(singleton(), {post(Verb::Write, {7})}), server(PersistenceDomain::Wsp)),
            "not-modelled");
  EXPECT_EQ(verdict(make(singleton(), {completion(0)}), server(PersistenceDomain::Wsp)),
            "not-modelled");
  EXPECT_EQ(verdict(make(singleton(), {post(Verb::Write, {a}), post(Verb::Write, {a})}),
                    server(PersistenceDomain::Wsp)),
            "not-modelled");
}

}  // namespace
}  // namespace perdure::check
