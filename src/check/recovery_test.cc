// Power failures, restarts and replay: recovery that is interrupted and starts over.
#include <gtest/gtest.h>

#include "check/check.h"
#include "check/render.h"
#include "check/test_methods.h"

namespace perdure::check {
namespace {

using namespace test;

ServerProfile keeping(PersistenceDomain domain, Ddio ddio = Ddio::Off) {
  ServerProfile profile = server(domain, ddio);
  profile.receive_buffers = ReceiveBuffers::Pm;
  profile.capabilities.native_flush = true;
  profile.capabilities.persistent_flush = dma_bypasses_caches(profile);
  return profile;
}

CheckOptions by(Recovery recovery) {
  CheckOptions options;
  options.recovery = recovery;
  return options;
}

const Method kKept =
    make(singleton(), {send_replayable({a}), post(Verb::Flush, {a}), completion(1)});
const Method kKeptPair =
    make(compound(), {send_replayable({a, b}), post(Verb::Flush, {a, b}), completion(1)});

TEST(Recovery, MayBeInterruptedAnyNumberOfTimes) {
  using enum PersistenceDomain;
  for (const Method& method : {kKept, kKeptPair}) {
    for (const PersistenceDomain domain : {Dmp, Mhp, Wsp}) {
      EXPECT_EQ(verdict(method, keeping(domain)), "holds");
    }
  }
}

TEST(Recovery, IsCountedExactly) {
  CheckOptions options;
  options.units_per_item = 1;
  // The message has two units and the item one. Running: 0 delivered: 1; 1: 0 or 1 visible; 2, and
  // 3 with the FLUSH: 0 to 2 visible; acknowledged: 1. Power failures with a whole message lead to
  // one state before the acknowledgement and one after. From each: judge, store, flush, release,
  // end are five states, and what is interrupted after the store judges and stores again: two more.
  EXPECT_EQ(check(kKept, keeping(PersistenceDomain::Mhp), options).states,
            (1u + 2u + 3u + 3u + 1u) + 2u * (5u + 2u));
}

TEST(Recovery, MustNotGiveTheBufferBackBeforeTheItemIsDurable) {
  const CheckOptions options = by(Recovery::ReleasesBeforeFlush);
  const ServerProfile dmp = keeping(PersistenceDomain::Dmp);
  EXPECT_EQ(verdict(kKept, dmp, options), "replay-is-idempotent");
  EXPECT_EQ(verdict(kKept, keeping(PersistenceDomain::Mhp), options), "holds");
  const std::string text = story(kKept, dmp, check(kKept, dmp, options));
  EXPECT_NE(text.find("power fails\n"), std::string::npos) << text;
  EXPECT_NE(text.find("recovery stores a[1]"), std::string::npos) << text;
  EXPECT_NE(text.find("recovery gives the buffer of message 0 back"), std::string::npos) << text;
  EXPECT_NE(text.find("power fails; recovery finds a: lost"), std::string::npos) << text;
}

TEST(Recovery, FlushesOneItemBeforeItStoresTheNext) {
  // The process restarts and finds a message that is visible and not durable. It stores a and b, b
  // is evicted, power fails: b without a. Only a restart shows it: after a power failure the
  // message is durable, and replayed again.
  const CheckOptions options = by(Recovery::FlushesLast);
  const ServerProfile dmp = keeping(PersistenceDomain::Dmp);
  EXPECT_EQ(verdict(kKeptPair, dmp, options), "replay-is-idempotent");
  EXPECT_EQ(verdict(kKeptPair, keeping(PersistenceDomain::Mhp), options), "holds");
  const std::string text = story(kKeptPair, dmp, check(kKeptPair, dmp, options));
  EXPECT_NE(text.find("the responder's process restarts"), std::string::npos) << text;
}

TEST(Recovery, MessagesThatAreKeptAndOthersMayBeMixed) {
  const auto dmp = keeping(PersistenceDomain::Dmp);
  const RequesterStep flush_a = post(Verb::Flush, {a});
  const RequesterStep send_b = post(Verb::Send, {b});
  const std::vector<std::vector<ResponderAction>> only_b = {{}, {copy(b), flush(b), ack()}};
  // The kept message is visible when the other one is handled, and not yet durable.
  const Method unflushed =
      make(compound(), {send_replayable({a}), send_b, acknowledgement()}, only_b);
  EXPECT_EQ(verdict(unflushed, dmp), "later-implies-earlier");
  EXPECT_EQ(verdict(unflushed, keeping(PersistenceDomain::Mhp)), "holds");
  const Method flushed =
      make(compound(), {send_replayable({a}), flush_a, completion(1), send_b, acknowledgement()},
           only_b);
  EXPECT_EQ(verdict(flushed, dmp), "holds");
  // What is not to be replayed is not, though its buffer survives.
  const Method forgotten =
      make(compound(), {send_replayable({a}), send_b, post(Verb::Flush, {a, b}), completion(2)});
  EXPECT_EQ(verdict(forgotten, keeping(PersistenceDomain::Mhp)), "acknowledged-implies-durable");
}

TEST(Recovery, ReplaysFromTwoConnections) {
  CheckOptions options;
  options.connections = 2;
  options.updates_in_flight = 2;
  options.spread = Spread::Updates;
  options.between = Between::AcknowledgedInOrder;
  EXPECT_EQ(verdict(kKept, keeping(PersistenceDomain::Dmp), options), "holds");
  options.recovery = Recovery::ReleasesBeforeFlush;
  EXPECT_EQ(verdict(kKept, keeping(PersistenceDomain::Dmp), options), "replay-is-idempotent");
}

}  // namespace
}  // namespace perdure::check
