// Queue pairs that lose what is posted: UC and UD.
#include <gtest/gtest.h>

#include "check/check.h"
#include "check/render.h"
#include "check/test_methods.h"

namespace perdure::check {
namespace {

using namespace test;
using enum PersistenceDomain;

constexpr const char* kLost = "acknowledged-implies-durable";
constexpr const char* kOrder = "later-implies-earlier";

ServerProfile over(QpType type, PersistenceDomain domain = Dmp, Ddio ddio = Ddio::On) {
  ServerProfile profile = server(domain, ddio);
  profile.qp_type = type;
  return profile;
}

RequesterStep announcing(std::vector<Item> addresses) {
  RequesterStep step = post(Verb::Send, {});
  step.flush = std::move(addresses);
  return step;
}

std::string reason(const Method& method, const ServerProfile& profile) {
  const Report report = check(method, profile);
  EXPECT_EQ(report.verdict, Verdict::NotModelled);
  return report.reason;
}

TEST(Unreliable, AMessageThatBringsAllAndIsAnsweredIsRightHoweverManyAreInFlight) {
  for (const QpType type : {QpType::Rc, QpType::Uc, QpType::Ud}) {
    for (const WriteOrder order : {WriteOrder::Ordered, WriteOrder::Unknown}) {
      ServerProfile profile = over(type);
      profile.write_order = order;
      for (const std::size_t updates : {1u, 2u, 3u}) {
        CheckOptions options;
        options.updates_in_flight = updates;
        options.between = Between::AcknowledgedInOrder;
        EXPECT_EQ(verdict(one_message(compound()), profile, options), "holds") << describe(profile);
        // Of those that are handled together a later one may survive alone.
        options.between = Between::Ordered;
        EXPECT_EQ(verdict(one_message(compound()), profile, options),
                  updates == 1 ? "holds" : kOrder)
            << describe(profile);
      }
    }
  }
}

TEST(Unreliable, ACompletionSaysThatItHasLeft) {
  const Method method = make(singleton(), {post(Verb::Write, {a}), completion(0)});
  EXPECT_EQ(verdict(method, over(QpType::Rc, Wsp)), "holds");
  EXPECT_EQ(verdict(method, over(QpType::Uc, Wsp)), kLost);
}

TEST(Unreliable, AWriteMayBeMissingInFrontOfTheMessageThatHasItFlushed) {
  const Method method =
      make(singleton(), {post(Verb::Write, {a}), announcing({a}), acknowledgement()},
           {{flush(a), ack()}});
  EXPECT_EQ(verdict(method, over(QpType::Rc)), "holds");
  const ServerProfile profile = over(QpType::Uc);
  const Report report = check(method, profile);
  ASSERT_EQ(report.verdict, Verdict::Violated);
  EXPECT_EQ(to_string(*report.property), kLost);
  // The shortest way: nothing of it arrives.
  EXPECT_NE(story(method, profile, report).find("WRITE a is lost on the way"), std::string::npos);
}

/// The part that came is durable, the part that did not is not: the story says so where the second
/// half of a is what an update is lost by.
TEST(Unreliable, AWriteMayComeInPart) {
  // b says that a is there, and is believed only with half of a.
  const Method method =
      make(compound(),
           {post(Verb::Write, {a}), post(Verb::Write, {b}), announcing({a, b}), acknowledgement()},
           {{flush(a), flush(b), ack()}});
  EXPECT_EQ(verdict(method, over(QpType::Rc, Mhp)), "holds");
  EXPECT_EQ(verdict(method, over(QpType::Uc, Mhp)), kOrder);
  // With one unit an update is there or not; with two it may be torn, and there are more states.
  CheckOptions one;
  one.units_per_item = 1;
  const Method alone =
      make(singleton(), {post(Verb::Write, {a}), announcing({a}), acknowledgement()});
  const ServerProfile uc = over(QpType::Uc, Mhp);
  // Of WRITE and SEND: neither, the one, the other, both.
  EXPECT_EQ(check(alone, uc, one).states, 4u);
  // None or one of its halves, or both, with the SEND or without.
  EXPECT_EQ(check(alone, uc).states, 6u);
}

TEST(Unreliable, WhatComesOverUcIsInOrderAndOverUdIsNot) {
  const Method two =
      make(compound(), {post(Verb::Send, {a}), post(Verb::Send, {b}), acknowledgement()});
  // Neither, the first, the second alone, both: over UC both only if the first came first.
  const Report uc = check(two, over(QpType::Uc, Mhp));
  const Report ud = check(two, over(QpType::Ud, Mhp));
  EXPECT_EQ(uc.states, 4u);
  EXPECT_EQ(ud.states, 4u);
  EXPECT_EQ(uc.transitions, 3u);
  EXPECT_EQ(ud.transitions, 4u);
}

TEST(Unreliable, MessagesAreTakenInTheirTurn) {
  // The answer to the second says that the first was handled, too.
  const Method method =
      make(compound(), {post(Verb::Send, {a}), post(Verb::Send, {b}), acknowledgement()},
           {{copy(a), flush(a)}, {copy(b), flush(b), ack()}});
  EXPECT_EQ(verdict(method, over(QpType::Uc)), "holds");
  EXPECT_EQ(verdict(method, over(QpType::Ud)), "holds");
  CheckOptions two;
  two.updates_in_flight = 2;
  two.between = Between::AcknowledgedInOrder;
  EXPECT_EQ(verdict(method, over(QpType::Uc), two), "holds");
}

TEST(Unreliable, AnImmediateHasNoNumber) {
  const Method method =
      make(singleton(), {post(Verb::WriteImm, {a}), acknowledgement()}, {{flush(a), ack()}});
  CheckOptions two;
  two.updates_in_flight = 2;
  two.between = Between::Independent;
  EXPECT_EQ(verdict(method, over(QpType::Rc), two), "holds");
  // Alone it is whole when it is taken, or nothing is answered.
  EXPECT_EQ(verdict(method, over(QpType::Uc)), "holds");
  // Of two, the answer to the second is taken for that to the first.
  EXPECT_EQ(verdict(method, over(QpType::Uc), two), kLost);
}

TEST(Unreliable, AMessageThatIsPolledIsLikeOneThatIsSentButOverUd) {
  RequesterStep polled = post(Verb::WritePolled, {a});
  polled.checked = true;
  const Method method =
      make(singleton(), {polled, acknowledgement()}, {{copy(a), flush(a), ack()}});
  CheckOptions two;
  two.updates_in_flight = 2;
  two.between = Between::AcknowledgedInOrder;
  EXPECT_EQ(verdict(method, over(QpType::Uc), two), "holds");
  EXPECT_NE(reason(method, over(QpType::Ud)).find("ud has no polled WRITE"), std::string::npos);
}

TEST(Unreliable, WhatAQueuePairDoesNotHaveIsRefusedByName) {
  ServerProfile uc = over(QpType::Uc, Mhp);
  uc.capabilities = {true, true, true, true, true};
  for (const Verb verb :
       {Verb::Read, Verb::Flush, Verb::WriteAtomic, Verb::WritePersist, Verb::SendFlush}) {
    Method method = make(compound(), {post(Verb::Send, {a, b}), post(verb, {a}), completion(1)},
                         {{copy(a), copy(b)}});
    if (brings_items(verb)) method.requester[0].items = {b};
    EXPECT_NE(reason(method, uc).find("uc has no " + describe(method.requester[1])),
              std::string::npos);
  }
  const Method written = make(singleton(), {post(Verb::Write, {a}), completion(0)});
  EXPECT_NE(reason(written, over(QpType::Ud)).find("ud has no WRITE"), std::string::npos);
  const Method replayed = make(singleton(), {send_replayable({a}), acknowledgement()}, {{ack()}});
  EXPECT_NE(reason(replayed, uc).find("replays, over uc"), std::string::npos);
  RequesterStep readable = post(Verb::Send, {});
  readable.readable = {a};
  const Method fetched =
      make(singleton(), {readable, acknowledgement()},
           {{{ResponderAction::Kind::Read, a}, {ResponderAction::Kind::Await, a}, ack()}});
  EXPECT_NE(reason(fetched, uc).find("uc has no READ for the responder"), std::string::npos);
  Method answered = one_message(singleton());
  answered.responder[0].back().written = true;
  EXPECT_EQ(verdict(answered, over(QpType::Uc)), "holds");
  EXPECT_NE(reason(answered, over(QpType::Ud)).find("ud has no WRITE for the responder"),
            std::string::npos);
  for (const Transport transport : {Transport::Iwarp, Transport::Tcp, Transport::Shm}) {
    ServerProfile other = uc;
    other.transport = transport;
    EXPECT_NE(reason(one_message(singleton()), other).find(" has no uc"), std::string::npos);
  }
}

TEST(Unreliable, WhatHasAllArrivedIsAnswered) {
  // A responder that forgets to answer is found out, loss or not.
  const Method method = make(singleton(), {post(Verb::Send, {a}), acknowledgement()}, {{copy(a)}});
  EXPECT_EQ(verdict(method, over(QpType::Uc)), "always-completes");
}

TEST(Unreliable, TwoConnectionsLoseEachForItself) {
  CheckOptions two;
  two.connections = 2;
  const Method each =
      make(compound(),
           {post(Verb::Send, {a}), acknowledgement(), post(Verb::Send, {b}), acknowledgement()},
           {{copy(a), flush(a), ack()}, {copy(b), flush(b), ack()}});
  const Method behind =
      make(compound(),
           {post(Verb::Send, {a}), post(Verb::Send, {b}), acknowledgement(), acknowledgement()},
           {{copy(a), flush(a), ack()}, {copy(b), flush(b), ack()}});
  for (const QpType type : {QpType::Uc, QpType::Ud}) {
    EXPECT_EQ(verdict(each, over(type), two), "holds");
    EXPECT_EQ(verdict(behind, over(type)), "holds");
    EXPECT_EQ(verdict(behind, over(type), two), kOrder);
  }
}

}  // namespace
}  // namespace perdure::check
