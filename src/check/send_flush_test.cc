// SFLUSH: the RNIC flushes what the SEND before it brought, and what it names.
#include <gtest/gtest.h>

#include "check/check.h"
#include "check/mutate.h"
#include "check/render.h"
#include "check/test_methods.h"

namespace perdure::check {
namespace {

using namespace test;

ServerProfile able(PersistenceDomain domain, ReceiveBuffers buffers,
                   Transport transport = Transport::InfiniBand) {
  ServerProfile profile = server(domain, Ddio::On, transport);
  profile.receive_buffers = buffers;
  profile.capabilities.send_flush = true;
  return profile;
}

Method replayed() {
  return make(singleton(), {send_replayable({a}), post(Verb::SendFlush, {a}), completion(1)});
}

Method written(const UpdateShape& shape, std::vector<Item> items) {
  std::vector<RequesterStep> steps;
  for (const Item item : items) steps.push_back(post(Verb::Write, {item}));
  steps.push_back(post(Verb::Send, {}));
  steps.push_back(post(Verb::SendFlush, std::move(items)));
  steps.push_back(completion(steps.size() - 1));
  return make(shape, steps);
}

TEST(SendFlush, MakesAMessageDurableInItsBufferWithDdioOn) {
  for (const Transport transport : {Transport::InfiniBand, Transport::Iwarp}) {
    for (const auto domain : {PersistenceDomain::Dmp, PersistenceDomain::Mhp}) {
      EXPECT_EQ(verdict(replayed(), able(domain, ReceiveBuffers::Pm, transport)), "holds");
    }
  }
}

TEST(SendFlush, MakesDurableWhatItNamesOfWhatWasWritten) {
  const ServerProfile dmp = able(PersistenceDomain::Dmp, ReceiveBuffers::Dram);
  EXPECT_EQ(verdict(written(singleton(), {a}), dmp), "holds");
  EXPECT_EQ(verdict(written(UpdateShape{{2}}, {a, b}), dmp), "holds");
  Method less = written(UpdateShape{{2}}, {a, b});
  less.requester[3].items = {a};
  EXPECT_EQ(verdict(less, dmp), "acknowledged-implies-durable");
}

TEST(SendFlush, FlushesTheLastMessageBeforeItAndNoOther) {
  ServerProfile dmp = able(PersistenceDomain::Dmp, ReceiveBuffers::Pm);
  const Method both = make(UpdateShape{{2}}, {send_replayable({a}), send_replayable({b}),
                                              post(Verb::SendFlush, {b}), completion(2)});
  const Report report = check(both, dmp);
  EXPECT_EQ(report.property, Property::AcknowledgedImpliesDurable);
  EXPECT_NE(story(both, dmp, report).find("SFLUSH b is answered"), std::string::npos);
}

TEST(SendFlush, NothingCanBeTakenAway) {
  const ServerProfile dmp = able(PersistenceDomain::Dmp, ReceiveBuffers::Pm);
  std::size_t caught = 0;
  for (const Mutant& weaker : mutants(replayed())) {
    EXPECT_EQ(check(weaker.method, dmp).verdict, Verdict::Violated) << weaker.what;
    ++caught;
  }
  EXPECT_GE(caught, 5u);
  EXPECT_EQ(verdict(replayed(), able(PersistenceDomain::Dmp, ReceiveBuffers::Dram)),
            "acknowledged-implies-durable");
  EXPECT_EQ(verdict(replayed(), able(PersistenceDomain::Page, ReceiveBuffers::Pm)),
            "acknowledged-implies-durable");
}

TEST(SendFlush, OrdersNoEpochsByItself) {
  const ServerProfile dmp = able(PersistenceDomain::Dmp, ReceiveBuffers::Dram);
  EXPECT_EQ(verdict(written(compound(), {a, b}), dmp), "later-implies-earlier");
  const Method waits =
      make(compound(), {post(Verb::Write, {a}), post(Verb::Send, {}), post(Verb::SendFlush, {a}),
                        completion(2), post(Verb::Write, {b}), post(Verb::Send, {}),
                        post(Verb::SendFlush, {b}), completion(6)});
  EXPECT_EQ(verdict(waits, dmp), "holds");
}

TEST(SendFlush, IsRefusedByNameWhereTheRnicHasNone) {
  ServerProfile dmp = able(PersistenceDomain::Dmp, ReceiveBuffers::Pm);
  dmp.capabilities.send_flush = false;
  const Report report = check(replayed(), dmp);
  EXPECT_EQ(report.verdict, Verdict::NotModelled);
  EXPECT_NE(report.reason.find("no SFLUSH"), std::string::npos) << report.reason;
}

TEST(SendFlush, NeedsASendBeforeItThatCarriesWhatItNames) {
  EXPECT_TRUE(validate(replayed()).ok());
  Method alone =
      make(singleton(), {post(Verb::Write, {a}), post(Verb::SendFlush, {a}), completion(1)});
  EXPECT_EQ(validate(alone).code(), ErrorCode::InvalidArgument);
  Method another = make(UpdateShape{{2}}, {send_replayable({a}), send_replayable({b}),
                                           post(Verb::SendFlush, {a}), completion(2)});
  const auto refused = validate(another);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("in the SEND before it"), std::string::npos);
}

}  // namespace
}  // namespace perdure::check
