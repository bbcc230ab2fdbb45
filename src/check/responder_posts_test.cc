// What the responder posts itself: READs of the requester's memory, acknowledgements that it writes
// there.
#include <gtest/gtest.h>

#include "check/check.h"
#include "check/mutate.h"
#include "check/render.h"
#include "check/test_methods.h"

namespace perdure::check {
namespace {

using namespace test;

ResponderAction read(Item item) { return {ResponderAction::Kind::Read, item}; }
ResponderAction await(Item item) { return {ResponderAction::Kind::Await, item}; }
ResponderAction written_ack() { return {ResponderAction::Kind::Ack, 0, true}; }

RequesterStep readable(std::vector<Item> items) {
  RequesterStep step = post(Verb::Send, {});
  step.readable = std::move(items);
  return step;
}

Method fetched(const UpdateShape& shape, std::vector<ResponderAction> reaction) {
  std::vector<Item> all;
  for (Item item = 0; item < shape.items(); ++item) all.push_back(item);
  return make(shape, {readable(all), acknowledgement()}, {std::move(reaction)});
}

// A READ's completion says visible, whatever DDIO does; a flush brings it into the domain, but not
// in a page that the RNIC leaves clean.
TEST(ResponderPosts, WhatItReadsIsVisibleAndNoMore) {
  const Method bare = fetched(singleton(), {read(0), await(0), ack()});
  const Method flushed = fetched(singleton(), {read(0), await(0), flush(0), ack()});
  using enum PersistenceDomain;
  struct Kept {
    PersistenceDomain domain;
    Ddio ddio;
    const char* bare;
    const char* flushed;
  };
  const char* const lost = "acknowledged-implies-durable";
  for (const Kept& each :
       {Kept{Wsp, Ddio::On, "holds", "holds"}, Kept{Mhp, Ddio::On, "holds", "holds"},
        Kept{Dmp, Ddio::On, lost, "holds"}, Kept{Dmp, Ddio::Off, lost, "holds"},
        Kept{Page, Ddio::On, lost, lost}}) {
    const ServerProfile profile = server(each.domain, each.ddio, Transport::InfiniBand);
    EXPECT_EQ(verdict(bare, profile), each.bare) << describe(profile);
    EXPECT_EQ(verdict(flushed, profile), each.flushed) << describe(profile);
  }
  // Over tcp a processor stores it.
  EXPECT_EQ(verdict(flushed, server(Page, Ddio::On, Transport::Tcp)), "holds");
}

TEST(ResponderPosts, EpochsAreReadOneAfterTheOther) {
  const ServerProfile profile = server(PersistenceDomain::Dmp, Ddio::On, Transport::InfiniBand);
  EXPECT_EQ(verdict(fetched(compound(),
                            {read(0), await(0), flush(0), read(1), await(1), flush(1), ack()}),
                    profile),
            "holds");
  EXPECT_EQ(verdict(fetched(compound(),
                            {read(0), read(1), await(0), flush(0), await(1), flush(1), ack()}),
                    profile),
            "later-implies-earlier");
}

TEST(ResponderPosts, NothingCanBeTakenAway) {
  const ServerProfile profile = server(PersistenceDomain::Dmp, Ddio::On, Transport::InfiniBand);
  for (const auto& method : {fetched(singleton(), {read(0), await(0), flush(0), ack()}),
                             make(singleton(), {post(Verb::Send, {0}), acknowledgement()},
                                  {{copy(0), flush(0), written_ack()}})}) {
    EXPECT_EQ(verdict(method, profile), "holds");
    const auto all = mutants(method);
    EXPECT_GE(all.size(), 6u);
    for (const Mutant& weaker : all) {
      EXPECT_NE(check(weaker.method, profile).verdict, Verdict::Holds) << weaker.what;
    }
  }
}

TEST(ResponderPosts, AMessageTakenByItsMarkAsksForNoRead) {
  Method method = fetched(singleton(), {read(0), await(0), ack()});
  method.requester[0].verb = Verb::WritePolled;
  const ServerProfile profile = server(PersistenceDomain::Mhp, Ddio::On, Transport::InfiniBand);
  EXPECT_EQ(check(method, profile).verdict, Verdict::NotModelled);
  method.requester[0].checked = true;
  EXPECT_EQ(verdict(method, profile), "holds");
}

TEST(ResponderPosts, IsCountedExactly) {
  // One unit: on the wire, in the RNIC, its message visible, READ posted, arrived, awaited,
  // acknowledged.
  CheckOptions options;
  options.units_per_item = 1;
  const Method method = fetched(singleton(), {read(0), await(0), ack()});
  const ServerProfile profile = server(PersistenceDomain::Mhp, Ddio::On, Transport::InfiniBand);
  EXPECT_EQ(check(method, profile, options).states, 7u);
}

}  // namespace
}  // namespace perdure::check
