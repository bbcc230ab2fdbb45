// What requests a method becomes, by what the connection's RNICs can do.
#include "persist/compiled_method.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "core/crc32c.h"
#include "core/method_set.h"
#include "plan/plan.h"

namespace perdure::persist {
namespace {

RequesterStep post(Verb verb, std::vector<Item> items) {
  RequesterStep step;
  step.verb = verb;
  step.items = std::move(items);
  return step;
}

/// One WRITE of 64 bytes' method, planned for a processor that has to flush what came.
CommonUpdate common_of(Primary primary, PersistenceDomain domain) {
  ServerProfile profile;
  profile.domain = domain;
  profile.ddio = Ddio::On;
  profile.transport = Transport::Tcp;
  plan::Update update;
  update.shape = singleton();
  update.primary = primary;
  const auto planned = plan::plan(profile, update);
  EXPECT_TRUE(planned.ok()) << planned.error().message;
  if (!planned.ok()) return CommonUpdate::None;
  const auto compiled = compile({*planned}, profile, {}, {64, 4096});
  EXPECT_TRUE(compiled.ok()) << compiled.error().message;
  return compiled.ok() ? compiled->front().common : CommonUpdate::None;
}

// What measured costs choose over tcp is posted by the straight path.
TEST(CompiledCommon, WhatIsMostlyPlannedIsPostedWithoutAskingFurther) {
  if (!has_short_crc()) GTEST_SKIP() << "no crc32 instruction here";
  using enum PersistenceDomain;
  EXPECT_EQ(common_of(Primary::Send, Dmp), CommonUpdate::Message);
  EXPECT_EQ(common_of(Primary::Write, Mhp), CommonUpdate::WriteFlush);
  EXPECT_EQ(common_of(Primary::Write, Dmp), CommonUpdate::WriteMessage);
}

// The responder has nothing to do but to answer: its CPU sees what was written, and so it is
// durable.
TEST(CompiledCommon, AMessageThatNamesNothingIsPostedSoToo) {
  if (!has_short_crc()) GTEST_SKIP() << "no crc32 instruction here";
  ServerProfile profile;
  profile.domain = PersistenceDomain::Mhp;
  profile.transport = Transport::Roce;
  plan::Update update;
  update.shape = singleton();
  const auto all = plan::candidates(profile, update);
  ASSERT_TRUE(all.ok());
  const auto found = std::find_if(all->begin(), all->end(), [](const plan::Candidate& each) {
    return each.method.name == "write-send-ack";
  });
  ASSERT_NE(found, all->end());
  const auto compiled = compile({found->method}, profile, {}, {64, 4096});
  ASSERT_TRUE(compiled.ok()) << compiled.error().message;
  EXPECT_EQ(compiled->front().common, CommonUpdate::WriteMessage);
  EXPECT_EQ(compiled->front().one_message.entries, 0);
}

/// Two ranges are written and flushed together.
Method flushed_pair() {
  Method method;
  method.name = "write-both-flush";
  method.shape.items_per_epoch = {2};
  method.requester = {post(Verb::Write, {0}), post(Verb::Write, {1}), post(Verb::Flush, {0, 1})};
  RequesterStep completion;
  completion.kind = RequesterStep::Kind::WaitCompletion;
  completion.of = 2;
  method.requester.push_back(completion);
  return method;
}

/// The requests behind the two WRITEs.
std::vector<CompiledRequest> flushes(PersistenceDomain domain, const Capabilities& can) {
  ServerProfile profile;
  profile.domain = domain;
  profile.ddio = Ddio::Off;
  profile.transport = Transport::Roce;
  profile.write_order = WriteOrder::Ordered;
  profile.capabilities = can;
  const auto compiled = compile({flushed_pair()}, profile, can, {16, 4096});
  EXPECT_TRUE(compiled.ok()) << compiled.error().message;
  if (!compiled.ok()) return {};
  const auto& requests = compiled->front().requests;
  EXPECT_GE(requests.size(), 3u);
  return {requests.begin() + 2, requests.end()};
}

TEST(CompiledFlush, WithoutANativeOneOneReadPushesWhatIsBeforeIt) {
  for (const auto domain : {PersistenceDomain::Dmp, PersistenceDomain::Mhp}) {
    const auto found = flushes(domain, {});
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].opcode, fabric::Opcode::Read);
    EXPECT_EQ(found[0].item, 1);
  }
}

// It promises that what it names is visible, and nothing of the memory controllers.
TEST(CompiledFlush, OneToVisibilityNamesEachRangeAndIsNoneWhereThatIsNotEnough) {
  const Capabilities can{.native_flush = true};
  const auto in_caches = flushes(PersistenceDomain::Mhp, can);
  ASSERT_EQ(in_caches.size(), 2u);
  for (std::size_t item = 0; item < 2; ++item) {
    EXPECT_EQ(in_caches[item].opcode, fabric::Opcode::Flush);
    EXPECT_NE(in_caches[item].placement, fabric::FlushPlacement::Persistence);
    EXPECT_EQ(in_caches[item].item, item);
  }
  const auto in_memory = flushes(PersistenceDomain::Dmp, can);
  ASSERT_EQ(in_memory.size(), 1u);
  EXPECT_EQ(in_memory[0].opcode, fabric::Opcode::Read);
}

TEST(CompiledFlush, OneToPersistenceNamesEachRange) {
  const auto found =
      flushes(PersistenceDomain::Dmp, {.native_flush = true, .persistent_flush = true});
  ASSERT_EQ(found.size(), 2u);
  for (const CompiledRequest& each : found) {
    EXPECT_EQ(each.opcode, fabric::Opcode::Flush);
    EXPECT_EQ(each.placement, fabric::FlushPlacement::Persistence);
  }
}

/// A message that stays in its receive buffer, and a FLUSH that says so.
Method replayed_message() {
  Method method;
  method.name = "send-replay-flush";
  method.primary = Primary::Send;
  method.shape = singleton();
  method.requester = {post(Verb::Send, {0}), post(Verb::Flush, {0})};
  method.requester.front().replay = true;
  RequesterStep completion;
  completion.kind = RequesterStep::Kind::WaitCompletion;
  completion.of = 1;
  method.requester.push_back(completion);
  return method;
}

/// Of that, or of one that also WRITEs an item behind the message.
Result<std::vector<CompiledMethod>> compile_replayed(PersistenceDomain domain,
                                                     const Capabilities& can,
                                                     bool writes_behind = false) {
  ServerProfile profile;
  profile.domain = domain;
  profile.ddio = Ddio::Off;
  profile.receive_buffers = ReceiveBuffers::Pm;
  profile.transport = Transport::InfiniBand;
  profile.write_order = WriteOrder::Ordered;
  profile.capabilities = can;
  Method method = replayed_message();
  if (writes_behind) {
    method.shape.items_per_epoch = {2};
    method.requester.insert(method.requester.begin() + 1, post(Verb::Write, {1}));
    method.requester[2].items = {0, 1};
    method.requester[3].of = 2;
  }
  return compile({method}, profile, can, {16, 4096});
}

// What is in a receive buffer is in no range that a READ lies in, and what is only visible is not
// in the memory controller.
TEST(CompiledFlush, BehindAMessageItReachesPersistenceOnDmpOrIsRefused) {
  const Capabilities visible{.native_flush = true};
  const Capabilities persistent{.native_flush = true, .persistent_flush = true};
  for (const Capabilities& can : {Capabilities{}, visible}) {
    const auto refused = compile_replayed(PersistenceDomain::Dmp, can);
    ASSERT_EQ(refused.code(), ErrorCode::Unsupported);
    EXPECT_NE(refused.error().message.find("FLUSH to persistence"), std::string::npos)
        << refused.error().message;
  }
  const auto reaches = compile_replayed(PersistenceDomain::Dmp, persistent);
  ASSERT_TRUE(reaches.ok()) << reaches.error().message;
  EXPECT_EQ(reaches->front().requests[1].opcode, fabric::Opcode::Flush);
  EXPECT_EQ(reaches->front().requests[1].placement, fabric::FlushPlacement::Persistence);

  EXPECT_EQ(compile_replayed(PersistenceDomain::Mhp, {}).code(), ErrorCode::Unsupported);
  const auto in_caches = compile_replayed(PersistenceDomain::Mhp, visible);
  ASSERT_TRUE(in_caches.ok()) << in_caches.error().message;
  EXPECT_EQ(in_caches->front().requests[1].opcode, fabric::Opcode::Flush);
  EXPECT_NE(in_caches->front().requests[1].placement, fabric::FlushPlacement::Persistence);
  EXPECT_TRUE(compile_replayed(PersistenceDomain::Wsp, {}).ok());
}

TEST(CompiledFlush, AReadInsideWhatWasWrittenPushesTheMessageBeforeIt) {
  for (const Capabilities& can : {Capabilities{}, Capabilities{.native_flush = true}}) {
    const auto compiled = compile_replayed(PersistenceDomain::Dmp, can, /*writes_behind=*/true);
    ASSERT_TRUE(compiled.ok()) << compiled.error().message;
    const CompiledRequest& last = compiled->front().requests.back();
    EXPECT_EQ(last.opcode, fabric::Opcode::Read);
    EXPECT_EQ(last.item, 1);
  }
}

}  // namespace
}  // namespace perdure::persist
