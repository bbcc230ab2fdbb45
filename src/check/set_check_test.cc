// Updates by different methods on one connection: how they are posted, handled and recovered, and
// what they do to each other's places.
#include "check/set_check.h"

#include <gtest/gtest.h>

#include "check/render.h"
#include "check/test_methods.h"

namespace perdure::check {
namespace {

using namespace test;

const Method kWriteFlush =
    make(singleton(), {post(Verb::Write, {a}), post(Verb::Flush, {a}), completion(1)});
const Method kSendCopy =
    make(singleton(), {post(Verb::Send, {a}), acknowledgement()}, {{copy(a), ack()}});

MixedUpdate at(const Method& method, std::size_t place, std::size_t after = 0) {
  MixedUpdate update;
  update.method = method;
  update.places = {place};
  update.after = after;
  return update;
}

std::string verdict_of(const std::vector<MixedUpdate>& updates, const ServerProfile& profile) {
  const Report report = check_sequence(updates, profile, {});
  return std::string(report.property ? to_string(*report.property) : to_string(report.verdict));
}

ServerProfile unordered(ServerProfile profile) {
  profile.write_order = WriteOrder::Unknown;
  return profile;
}

TEST(SetCheck, ANewerUpdateOfAPlaceTakesTheOlderOnesPlace) {
  const auto mhp = server(PersistenceDomain::Mhp);
  EXPECT_EQ(verdict_of({at(kWriteFlush, 0), at(kWriteFlush, 0)}, mhp), "holds");
  EXPECT_EQ(verdict_of({at(kWriteFlush, 0), at(kWriteFlush, 0)}, unordered(mhp)),
            "acknowledged-implies-durable");
  // In turn: the FLUSH of the first one proves that it is placed.
  EXPECT_EQ(verdict_of({at(kWriteFlush, 0), at(kWriteFlush, 0, 1)}, unordered(mhp)), "holds");
  // The processor stores late, unless its answer has been waited for.
  EXPECT_EQ(verdict_of({at(kSendCopy, 0), at(kWriteFlush, 0)}, mhp),
            "acknowledged-implies-durable");
  EXPECT_EQ(verdict_of({at(kSendCopy, 0), at(kWriteFlush, 0, 1)}, mhp), "holds");
  EXPECT_EQ(verdict_of({at(kSendCopy, 0), at(kWriteFlush, 1)}, mhp), "holds");
  EXPECT_EQ(verdict_of({at(kWriteFlush, 0), at(kSendCopy, 0)}, mhp), "holds");
}

// What drains is what is there, an older version or a newer one.
TEST(SetCheck, TheOldVersionMayBeTheOneInTheDomain) {
  const auto dmp = server(PersistenceDomain::Dmp);
  const auto unflushed = make(singleton(), {post(Verb::Write, {a}), completion(0)});
  EXPECT_EQ(verdict_of({at(kWriteFlush, 0), at(kWriteFlush, 0)}, dmp), "holds");
  EXPECT_EQ(verdict_of({at(kWriteFlush, 0), at(unflushed, 0)}, dmp),
            "acknowledged-implies-durable");
  // The FLUSH of a later update drains it, and its own update has resolved before.
  EXPECT_EQ(verdict_of({at(unflushed, 0), at(kWriteFlush, 0)}, dmp),
            "acknowledged-implies-durable");
}

TEST(SetCheck, RecoveryStopsAtAMessageThatItCanNotReplay) {
  ServerProfile mhp = server(PersistenceDomain::Mhp);
  mhp.receive_buffers = ReceiveBuffers::Pm;
  mhp.capabilities.native_flush = true;
  const Method replayed =
      make(singleton(), {send_replayable({a}), post(Verb::Flush, {a}), completion(1)});
  EXPECT_EQ(verdict_of({at(replayed, 0), at(replayed, 1)}, mhp), "holds");
  EXPECT_EQ(verdict_of({at(replayed, 0), at(replayed, 0)}, mhp), "holds");
  EXPECT_EQ(verdict_of({at(kSendCopy, 0), at(replayed, 1)}, mhp), "acknowledged-implies-durable");
  EXPECT_EQ(verdict_of({at(replayed, 0), at(kWriteFlush, 1)}, mhp), "holds");
  EXPECT_EQ(verdict_of({at(replayed, 0), at(kWriteFlush, 0, 1)}, mhp),
            "acknowledged-implies-durable");
}

ServerProfile battery(bool ordered = false) {
  ServerProfile wsp = server(PersistenceDomain::Wsp);
  wsp.capabilities.atomic_write = wsp.capabilities.ordered_persist = true;
  return ordered ? wsp : unordered(wsp);
}

/// Law and checker of places that are written one after the other, by `older` and by `newer`.
void expect_law(const Method& older, const Method& newer, const ServerProfile& profile,
                bool allowed) {
  ASSERT_EQ(verdict(older, profile, {.units_per_item = 1}), "holds");
  ASSERT_EQ(verdict(newer, profile, {.units_per_item = 1}), "holds");
  const std::vector<SetMember> members = {{older, Reuse::AfterItsEnd, false},
                                          {newer, Reuse::AfterItsEnd, false}};
  SetOptions two;
  two.updates_max = 2;
  const SetReport report = check_set(members, profile, two);
  EXPECT_EQ(may_share(members, profile).ok(), allowed);
  EXPECT_EQ(report.holds(), allowed) << story(profile, report);
}

// Power may fail as soon as the RNIC has it, so an update may end there, with nothing awaited that
// says that it is placed.
TEST(SetCheck, WhatEndsOnArrivalIsComeOverWhatIsWrittenNext) {
  const auto ends_with = [](Verb data, Verb message, std::vector<ResponderAction> reaction) {
    std::vector<RequesterStep> steps = {post(data, {a}), post(message, {})};
    steps.back().checked = message == Verb::WritePolled;
    if (!reaction.empty()) steps.push_back(acknowledgement());
    steps.push_back(completion(1));
    return make(singleton(), steps, {reaction});
  };
  // A receive completion comes when the data is visible, a message that is polled for may not.
  const Method received = ends_with(Verb::Write, Verb::Send, {ack()});
  expect_law(received, received, battery(), true);
  const Method polled = ends_with(Verb::Write, Verb::WritePolled, {ack()});
  expect_law(polled, polled, battery(), false);
  expect_law(polled, polled, battery(true), true);
  // PWRITEs wait for each other, and nothing else does.
  const Method persisted = ends_with(Verb::WritePersist, Verb::WritePolled, {});
  expect_law(persisted, persisted, battery(), true);
  expect_law(persisted, kWriteFlush, battery(), false);
  expect_law(persisted, kWriteFlush, battery(true), true);
  const Method acked = make(singleton(), {post(Verb::WritePersist, {a}), completion(0)});
  expect_law(acked, kWriteFlush, battery(), true);
  // A message says nothing of an ATOMIC WRITE, in any order.
  const Method atomic = ends_with(Verb::WriteAtomic, Verb::Send, {ack()});
  expect_law(atomic, kWriteFlush, battery(true), false);
  const Method answered = make(singleton(), {post(Verb::WriteAtomic, {a}), completion(0)});
  expect_law(answered, kWriteFlush, battery(), true);
}

// Behind the message of a WRITE, in the order in which the responder handles them.
TEST(SetCheck, APolledMessageIsBehindTheMessagesBeforeIt) {
  const ServerProfile mhp = unordered(server(PersistenceDomain::Mhp));
  RequesterStep mark = post(Verb::WritePolled, {a, b});
  mark.checked = true;
  const SetMember polled = {
      make(compound(), {mark, acknowledgement()}, {{copy(a), copy(b), ack()}}), Reuse::AfterAnother,
      true};
  Method announced =
      make(compound(),
           {post(Verb::Send, {a}), acknowledgement(), post(Verb::WriteImm, {b}), acknowledgement()},
           {{copy(a), ack()}, {ack()}});
  EXPECT_TRUE(may_share({{announced, Reuse::AfterAnother, true}, polled}, mhp).ok());
  EXPECT_TRUE(check_set({{announced, Reuse::AfterAnother, true}, polled}, mhp).holds());
  // Nobody acts on the immediate.
  announced.requester.back() = post(Verb::Flush, {b});
  announced.requester.push_back(completion(3));
  announced.responder.pop_back();
  EXPECT_FALSE(may_share({{announced, Reuse::AfterAnother, true}, polled}, mhp).ok());
  EXPECT_FALSE(check_set({{announced, Reuse::AfterAnother, true}, polled}, mhp).holds());
}

// Where no RNIC has a FLUSH, a READ says nothing unless it lies in what was written before it.
TEST(SetCheck, AReadElsewhereProvesNothingOfARing) {
  RequesterStep mark = post(Verb::WritePolled, {a});
  mark.checked = true;
  const auto ends_with = [&](RequesterStep data) {
    return make(singleton(),
                {std::move(data), acknowledgement(), post(Verb::Read, {a}), completion(2)},
                {{copy(a), ack()}});
  };
  const SetMember ring = {make(singleton(), {post(Verb::Write, {a}), completion(0)}),
                          Reuse::AfterAnother, true};
  for (const bool received : {false, true}) {
    const SetMember place = {ends_with(received ? post(Verb::Send, {a}) : mark), Reuse::AfterItsEnd,
                             false};
    EXPECT_EQ(may_share({ring, place}, battery()).ok(), received);
    EXPECT_EQ(check_set({ring, place}, battery()).holds(), received);
  }
}

// Nothing is in flight when other methods take the place of those before, but what the RNIC holds.
TEST(SetCheck, OtherMethodsWriteOverWhatIsPlaced) {
  RequesterStep mark = post(Verb::WritePolled, {a});
  mark.checked = true;
  const Method polled = make(singleton(), {mark, acknowledgement()}, {{copy(a), ack()}});
  const Method arrived = make(singleton(), {post(Verb::Write, {a}), completion(0)});
  const std::string lost = "acknowledged-implies-durable";
  // A ring's space is written again when a place was, by the newer methods.
  EXPECT_EQ(verdict_of({at(arrived, 0), at(polled, 1, 1), at(arrived, 0, 2)}, battery()), lost);
  EXPECT_FALSE(may_replace({arrived}, {arrived, polled}, battery()).ok());
  EXPECT_TRUE(may_replace({arrived}, {arrived, polled}, battery(true)).ok());
  EXPECT_EQ(verdict_of({at(arrived, 0), at(kSendCopy, 1, 1), at(arrived, 0, 2)}, battery()),
            "holds");
  EXPECT_TRUE(may_replace({arrived}, {arrived, kSendCopy}, battery()).ok());
  // A place, at once. This one could follow itself, behind its own message.
  const Method behind = make(
      singleton(), {post(Verb::Send, {}), acknowledgement(), post(Verb::Write, {a}), completion(2)},
      {{ack()}});
  EXPECT_EQ(verdict_of({at(behind, 0), at(behind, 0, 1)}, battery()), "holds");
  EXPECT_TRUE(may_replace({behind}, {behind}, battery()).ok());
  EXPECT_EQ(verdict_of({at(behind, 0), at(polled, 0, 1)}, battery()), lost);
  EXPECT_FALSE(may_replace({behind}, {polled}, battery()).ok());
}

TEST(SetCheck, CountsStatesExactly) {
  // Two WRITEs of one unit to one place, each with its FLUSH. As for two places: whether each was
  // visible once says which of them is. WRITE and FLUSH of both on the wire one by one (0 to 4
  // delivered), each in turn visible, and answered: the counts of test Connections, by hand.
  SetOptions options;
  const Report apart = check_sequence({at(kWriteFlush, 0), at(kWriteFlush, 1)},
                                      server(PersistenceDomain::Mhp), options);
  const Report together = check_sequence({at(kWriteFlush, 0), at(kWriteFlush, 0)},
                                         server(PersistenceDomain::Mhp), options);
  EXPECT_EQ(together.states, apart.states);
  // Delivered 0: 1; 1: a visible or not, 2; 2 (FLUSH): not, visible, answered, 3; 3: the same times
  // b not visible, and b visible behind a, 3 + 2; 4: the same, and the second FLUSH answered, 6.
  EXPECT_EQ(apart.states, 1u + 2u + 3u + 5u + 6u);
}

TEST(SetCheck, SequencesAreAllThatASetAllows) {
  const Method word = make(compound(), {post(Verb::Write, {a}), post(Verb::Write, {b}),
                                        post(Verb::Flush, {b}), completion(2)});
  const auto own = sequences({{kWriteFlush, Reuse::Never, false}}, 3);
  EXPECT_EQ(own.size(), 2u);  // of two and of three
  const auto again = sequences({{kWriteFlush, Reuse::AfterItsEnd, false}}, 3);
  EXPECT_EQ(again.size(), 4u);  // each also over the first one
  const auto ring = sequences({{word, Reuse::AfterAnother, true}}, 3);
  EXPECT_EQ(ring.size(), 2u);  // nothing else resolves between
  const auto both =
      sequences({{word, Reuse::AfterAnother, true}, {kWriteFlush, Reuse::AfterItsEnd, false}}, 3);
  // Two: 4, and 2 behind a place; three: 8, 4 behind a place, 2 behind a record, a place between.
  EXPECT_EQ(both.size(), 4u + 2u + 8u + 4u + 2u);
  EXPECT_EQ(both[0].updates[0].places[1], both[0].updates[1].places[1]) << "one word";
}

TEST(SetCheck, AStorySaysWhatIsOverWhat) {
  const auto mhp = server(PersistenceDomain::Mhp);
  const std::string text =
      path_text(check_sequence({at(kSendCopy, 0), at(kWriteFlush, 0)}, mhp, {}));
  EXPECT_NE(text.find("the responder stores a, over b"), std::string::npos) << text;
  EXPECT_NE(text.find("finds a: whole, b: lost"), std::string::npos) << text;
  EXPECT_NE(text.find("update 2 resolves"), std::string::npos) << text;
}

TEST(SetCheck, ReportsSaySequenceAndBounds) {
  const auto mhp = server(PersistenceDomain::Mhp);
  const std::vector<SetMember> right = {{kSendCopy, Reuse::AfterItsEnd, false},
                                        {kWriteFlush, Reuse::AfterItsEnd, false}};
  const SetReport held = check_set(right, mhp);
  EXPECT_TRUE(held.holds()) << story(mhp, held);
  EXPECT_EQ(held.sequences, 2u * (4u + 8u));
  EXPECT_NE(summary(held).find("holds: all properties in all of 24 sequences"), std::string::npos)
      << summary(held);
  EXPECT_TRUE(diagram(mhp, held).events.empty());
  EXPECT_TRUE(diagram(mhp, held).title.ends_with(": holds")) << diagram(mhp, held).title;
  Method nonsense = kSendCopy;
  nonsense.requester[0].items = {7};
  const SetReport refused = check_set({{nonsense, Reuse::Never, false}}, mhp);
  EXPECT_EQ(refused.verdict, Verdict::NotModelled);
  EXPECT_NE(to_json(right, mhp, refused).find("names an item"), std::string::npos);
}

}  // namespace
}  // namespace perdure::check
