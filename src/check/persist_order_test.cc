// PWRITE and its persist ACK: ordered epochs over the network without waiting between them.
#include <gtest/gtest.h>

#include "check/check.h"
#include "check/mutate.h"
#include "check/render.h"
#include "check/test_methods.h"

namespace perdure::check {
namespace {

using namespace test;

ServerProfile ordered(PersistenceDomain domain, Transport transport = Transport::InfiniBand) {
  ServerProfile profile = server(domain, Ddio::On, transport);
  profile.capabilities.ordered_persist = true;
  return profile;
}

/// One PWRITE for each epoch, and the persist ACK of the last.
Method pwrites(std::size_t epochs) {
  UpdateShape shape;
  shape.items_per_epoch.assign(epochs, 1);
  std::vector<RequesterStep> steps;
  for (std::size_t epoch = 0; epoch < epochs; ++epoch) {
    steps.push_back(post(Verb::WritePersist, {static_cast<Item>(epoch)}));
  }
  steps.push_back(completion(epochs - 1));
  return make(shape, steps);
}

TEST(PersistOrder, SixEpochsTakeOneRoundTripWithDdioOn) {
  for (const Transport transport : {Transport::InfiniBand, Transport::Iwarp}) {
    const ServerProfile profile = ordered(PersistenceDomain::Dmp, transport);
    for (const std::size_t epochs : {1u, 2u, 6u}) {
      EXPECT_EQ(round_trips(pwrites(epochs)), 1u);
      EXPECT_EQ(verdict(pwrites(epochs), profile), "holds");
    }
  }
}

TEST(PersistOrder, NothingCanBeTakenAway) {
  const ServerProfile profile = ordered(PersistenceDomain::Dmp);
  for (const std::size_t epochs : {1u, 2u, 3u}) {
    const auto all = mutants(pwrites(epochs));
    EXPECT_GE(all.size(), 3u * epochs);
    for (const Mutant& weaker : all) {
      const Report report = check(weaker.method, profile);
      EXPECT_EQ(report.verdict, Verdict::Violated) << weaker.what;
    }
  }
}

TEST(PersistOrder, SuccessiveUpdatesKeepTheirOrderToo) {
  CheckOptions options;
  options.updates_in_flight = 4;
  options.between = Between::Ordered;
  EXPECT_EQ(verdict(pwrites(2), ordered(PersistenceDomain::Dmp), options), "holds");
  // But not over two connections: the order is that of one.
  options.connections = 2;
  EXPECT_EQ(verdict(pwrites(2), ordered(PersistenceDomain::Dmp), options), "later-implies-earlier");
}

TEST(PersistOrder, IsThatOfTheMemoryControllerAndOfPwritesAlone) {
  EXPECT_EQ(verdict(pwrites(1), ordered(PersistenceDomain::Page)), "acknowledged-implies-durable");
  EXPECT_EQ(verdict(pwrites(2), ordered(PersistenceDomain::Page)), "later-implies-earlier");
  EXPECT_EQ(verdict(pwrites(2), ordered(PersistenceDomain::Mhp)), "holds");
  EXPECT_EQ(verdict(pwrites(2), ordered(PersistenceDomain::Wsp)), "holds");
  EXPECT_EQ(verdict(pwrites(2), server(PersistenceDomain::Dmp)), "not-modelled");
  Method mixed = pwrites(2);
  mixed.requester[0].verb = Verb::Write;
  const ServerProfile dmp = ordered(PersistenceDomain::Dmp);
  const Report report = check(mixed, dmp);
  EXPECT_EQ(report.property, Property::LaterImpliesEarlier);
  EXPECT_NE(story(mixed, dmp, report).find("the requester posts PWRITE b"), std::string::npos);
}

TEST(PersistOrder, IsCountedExactly) {
  // One unit: on the wire, in the RNIC, visible, acknowledged.
  CheckOptions options;
  options.units_per_item = 1;
  EXPECT_EQ(check(pwrites(1), ordered(PersistenceDomain::Dmp), options).states, 4u);
  // Two, in order: as many states as ways to put both on the four stages with b never ahead of a,
  // but for the one with both visible: a has drained before b is.
  EXPECT_EQ(check(pwrites(2), ordered(PersistenceDomain::Dmp), options).states, 9u);
}

}  // namespace
}  // namespace perdure::check
