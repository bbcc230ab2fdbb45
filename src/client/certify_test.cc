// The list finds what an emulated RNIC does, and is content with one that does nothing special.
#include "client/certify.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>

#include "client/certify_receive.h"
#include "core/random.h"
#include "testing/relayed_peer.h"
#include "testing/world_peer.h"
#include "testing/world_server.h"

namespace perdure::client {
namespace {

const std::string kCertifiedPool = "scratch";

/// One machine that is certified, from another one.
struct CertifiedWorld {
  explicit CertifiedWorld(const ServerProfile& profile, std::uint64_t pool_bytes = 256 * 1024,
                          const fabric::emu::RnicSwitches& there = {},
                          const fabric::emu::RnicSwitches& here = {})
      : world(random),
        server(*test::WorldServer::start(world, "server", profile,
                                         {kCertifiedPool, pool_bytes, {32, 2048}, there})),
        client(world.add_machine("client", profile, here)),
        peer(server->peer(client)) {
    options.pool = kCertifiedPool;
    options.clock = &world.clock();
    options.beside = test::step_around;
  }

  Random random{3};
  fabric::emu::World world;
  std::unique_ptr<test::WorldServer> server;
  fabric::emu::Machine& client;
  std::unique_ptr<Peer> peer;
  CertifyOptions options;
};

std::map<std::string, CertifyCheck> certified(const ServerProfile& profile,
                                              const fabric::emu::RnicSwitches& switches = {},
                                              std::uint64_t rounds = 100,
                                              const fabric::emu::RnicSwitches& here = {}) {
  CertifiedWorld all(profile, 256 * 1024, switches, here);
  all.options.rounds = rounds;
  const auto found = certify(*all.peer, all.options);
  EXPECT_TRUE(found.ok()) << found.error().message;
  std::map<std::string, CertifyCheck> checks;
  if (!found.ok()) return checks;
  for (const CertifyCheck& check : found->checks) checks[check.name] = check;
  EXPECT_EQ(checks.size(), found->checks.size());
  return checks;
}

double number(const CertifyCheck& check, const std::string& name) {
  for (const auto& [each, value] : check.numbers) {
    if (each == name) return value;
  }
  ADD_FAILURE() << check.name << " has no " << name;
  return -1;
}

ServerProfile certified_profile(Transport transport, WriteOrder order) {
  ServerProfile profile;
  profile.domain = PersistenceDomain::Mhp;
  profile.transport = transport;
  profile.write_order = order;
  return profile;
}

TEST(Certify, SeesThatWritesArePlacedInAnotherOrder) {
  auto checks = certified(certified_profile(Transport::Roce, WriteOrder::Unknown));
  EXPECT_EQ(checks["write-order"].proof, Proof::Held) << checks["write-order"].finding;
  EXPECT_GT(number(checks["write-order"], "later_write_seen_first"), 0);
}

TEST(Certify, ProvesNoOrderBySeeingNoOtherOne) {
  auto checks = certified(certified_profile(Transport::Roce, WriteOrder::Ordered));
  EXPECT_EQ(checks["write-order"].proof, Proof::NotProved) << checks["write-order"].finding;
  EXPECT_EQ(number(checks["write-order"], "later_write_seen_first"), 0);
  EXPECT_GT(number(checks["write-order"], "rounds_looked_at"), 0);
}

TEST(Certify, GoesThroughItsWholeListOverEveryTransportAndSaysWhatIsNotSeenFromHere) {
  for (const Transport transport : {Transport::InfiniBand, Transport::Iwarp, Transport::Tcp}) {
    auto checks = certified(certified_profile(transport, WriteOrder::Unknown));
    EXPECT_EQ(checks.size(), 8u);
    EXPECT_EQ(checks["first-touch"].proof, placed_by_cpu(transport) ? Proof::NotHere : Proof::Held)
        << checks["first-touch"].finding;
    EXPECT_GT(number(checks["fencing-time"], "fencing_samples"), 10);
    const bool tried = number(checks["bytes-after-a-grant"], "writes_cut_off") > 0;
    EXPECT_EQ(checks["bytes-after-a-grant"].proof, tried ? Proof::Held : Proof::NotProved);
    EXPECT_EQ(number(checks["bytes-after-a-grant"], "looks_changed"), 0);
    EXPECT_GT(number(checks["bytes-after-a-grant"], "rounds"), 10);
    for (const char* name : {"fencing-time", "immediate-length"}) {
      EXPECT_EQ(checks[name].proof, Proof::NotProved) << name << ": " << checks[name].finding;
    }
    EXPECT_EQ(checks["cqe-payload"].proof, placed_by_cpu(transport) ? Proof::NotHere : Proof::Held)
        << checks["cqe-payload"].finding;
    for (const char* name : {"dead-peer-time", "power-cut"}) {
      EXPECT_EQ(checks[name].proof, Proof::NotHere) << name;
      EXPECT_NE(checks[name].finding, "") << name;
    }
  }
}

TEST(Certify, SaysThatACompletionWithoutALengthIsOfNoUse) {
  auto checks = certified(certified_profile(Transport::Roce, WriteOrder::Unknown), {0, true});
  EXPECT_EQ(checks["immediate-length"].proof, Proof::Broken) << checks["immediate-length"].finding;
}

TEST(Certify, SaysThatACompletionWithTooShortALengthIsOfNoUse) {
  for (const std::uint64_t missing : {1u, 100u}) {
    auto checks = certified(certified_profile(Transport::Roce, WriteOrder::Ordered),
                            {.immediate_bytes_missing = missing});
    EXPECT_EQ(checks["immediate-length"].proof, Proof::Broken) << missing;
  }
}

TEST(Certify, SeesBytesThatArriveAfterAGrant) {
  const auto profile = certified_profile(Transport::Roce, WriteOrder::Ordered);
  auto sound = certified(profile);
  EXPECT_EQ(sound["bytes-after-a-grant"].proof, Proof::Held)
      << sound["bytes-after-a-grant"].finding;
  auto late = certified(profile, {.places_late = true});
  EXPECT_EQ(late["bytes-after-a-grant"].proof, Proof::Broken)
      << late["bytes-after-a-grant"].finding;
  EXPECT_GT(number(late["bytes-after-a-grant"], "looks_changed"), 0);
}

TEST(Certify, SeesWhatStaysInACompletionUntilItIsPolled) {
  const auto profile = certified_profile(Transport::Roce, WriteOrder::Ordered);
  //  bytes in a completion, short ones there, and those that are replayed
  struct Case {
    std::uint64_t bytes;
    bool brief;
    Proof proof;
  };
  for (const Case& each : {Case{0, false, Proof::Held}, Case{32, true, Proof::Held},
                           Case{64, true, Proof::Held}, Case{128, true, Proof::Broken}}) {
    auto checks = certified(profile, {}, 20, {.cqe_payload_bytes = each.bytes});
    const CertifyCheck& check = checks["cqe-payload"];
    EXPECT_EQ(check.proof, each.proof) << each.bytes << ": " << check.finding;
    EXPECT_EQ(number(check, "short_in_completion") > 0, each.brief) << each.bytes;
    EXPECT_EQ(number(check, "replayable_in_completion") > 0, each.proof == Proof::Broken);
  }
}

/// Of a machine that is so busy that each look at the clock takes 5 ms.
class BusyClock final : public Clock {
 public:
  Nanoseconds now() const override { return now_ += std::chrono::milliseconds(5); }

 private:
  mutable Nanoseconds now_{0};
};

// Nothing arrives while it is watched, since nothing else happens in this world. What the first
// polls find came with them, and was in no completion before.
TEST(Certify, WhatArrivesOnlyWhileItIsPolledProvesNothing) {
  CertifiedWorld all(certified_profile(Transport::Roce, WriteOrder::Ordered));
  control::SessionRequest request;
  request.pool = kCertifiedPool;
  request.write = true;
  request.epoch = Epoch{1};
  request.writer = 1;
  auto session =
      all.peer->open_session(request, Deadline(all.world.clock(), std::chrono::seconds(5)));
  ASSERT_TRUE(session.ok()) << session.error().message;
  const BusyClock busy;
  const auto nothing = []() -> Result<void> { return {}; };
  const CertifyCheck check = cqe_payload(*session, all.client, busy, nothing);
  EXPECT_EQ(check.proof, Proof::NotProved) << check.finding;
  EXPECT_GT(number(check, "late"), 0);
  EXPECT_EQ(number(check, "replayable_in_completion"), 0);
}

TEST(Certify, AMessageThatWaitedInACompletionIsNeverHeld) {
  //                        in the buffer, in the completion, late
  const auto proof = [](AnswerPlaces replayable) {
    return judge_places({10, 0, 0}, replayable, {}).proof;
  };
  EXPECT_EQ(proof({10, 0, 0}), Proof::Held);
  EXPECT_EQ(proof({8, 0, 2}), Proof::Held);
  EXPECT_EQ(proof({7, 3, 0}), Proof::NotProved);
  EXPECT_EQ(proof({3, 3, 0}), Proof::NotProved);
  EXPECT_EQ(proof({0, 3, 0}), Proof::Broken);
  EXPECT_EQ(proof({0, 0, 3}), Proof::NotProved);
}

// All that was posted has been placed when its writer is fenced.
TEST(Certify, NothingIsProvedWhereNoWriteIsInFlight) {
  CertifiedWorld all(certified_profile(Transport::Roce, WriteOrder::Ordered));
  all.options.rounds = 100;
  all.options.beside = [&all](const auto&, const auto& call) {
    for (int ticks = 0; ticks < 100; ++ticks) all.world.tick(std::chrono::milliseconds(1));
    call();
  };
  const auto found = certify(*all.peer, all.options);
  ASSERT_TRUE(found.ok()) << found.error().message;
  for (const CertifyCheck& check : found->checks) {
    if (check.name != "bytes-after-a-grant") continue;
    EXPECT_EQ(check.proof, Proof::NotProved) << check.finding;
    EXPECT_EQ(number(check, "writes_cut_off"), 0);
  }
}

// A post that a dead connection took is no WRITE that was kept out.
TEST(Certify, WithoutAWriteOnTheWireNothingHeld) {
  auto checks = certified(certified_profile(Transport::Roce, WriteOrder::Ordered), {}, 0);
  EXPECT_EQ(checks["bytes-after-a-grant"].proof, Proof::NotProved);
  EXPECT_EQ(number(checks["bytes-after-a-grant"], "writes_cut_off"), 0);
}

TEST(Certify, SeesThatPagesAreFaultedIn) {
  const auto profile = certified_profile(Transport::Roce, WriteOrder::Ordered);
  auto paged = certified(profile, {.first_touch = std::chrono::milliseconds(1)});
  EXPECT_EQ(paged["first-touch"].proof, Proof::Broken) << paged["first-touch"].finding;
  EXPECT_GE(number(paged["first-touch"], "median_first_ns"), 1e6);
  EXPECT_LT(number(paged["first-touch"], "median_again_ns"), 1e6);
}

// The peer's power fails sooner or later in the list. What was found until then is reported, and
// the rest is said not to be found out.
TEST(Certify, APeerThatGoesAwayTakesNoFindingAlong) {
  std::uint64_t cut_short = 0;
  for (std::uint64_t events = 1000; events < 3'000'000; events *= 3) {
    CertifiedWorld all(certified_profile(Transport::Roce, WriteOrder::Unknown));
    all.options.rounds = 100;
    all.world.cut_after(all.server->machine(), events);
    const auto found = certify(*all.peer, all.options);
    all.world.cancel_cut();
    ASSERT_TRUE(found.ok()) << events << ": " << found.error().message;
    ASSERT_EQ(found->checks.size(), 8u) << events;
    for (const CertifyCheck& check : found->checks) {
      EXPECT_NE(check.proof, Proof::Broken) << events << " " << check.name << ": " << check.finding;
      EXPECT_FALSE(check.finding.empty()) << check.name;
    }
    const CertifyCheck& last = found->checks[5];
    EXPECT_EQ(last.name, "cqe-payload");
    const bool gone = last.finding.find("not found out") == 0;
    EXPECT_EQ(last.proof, gone ? Proof::NotProved : Proof::Held) << events << ": " << last.finding;
    cut_short += gone ? 1 : 0;
  }
  EXPECT_GT(cut_short, 2u);
}

TEST(Certify, AnRnicThatKeepsRightsIsBrokenAndTheReportSaysSo) {
  CertifiedWorld all(certified_profile(Transport::Roce, WriteOrder::Unknown));
  all.server->machine().refuse_revocations(true);
  all.options.rounds = 20;
  const auto found = certify(*all.peer, all.options);
  ASSERT_TRUE(found.ok()) << found.error().message;
  ASSERT_EQ(found->checks.size(), 8u);
  EXPECT_EQ(found->checks[0].proof, Proof::Held) << found->checks[0].finding;
  EXPECT_EQ(found->checks[1].proof, Proof::Broken) << found->checks[1].finding;
  EXPECT_NE(found->checks[1].finding.find("taken away"), std::string::npos);
  for (const std::size_t rest : {2, 5})
    EXPECT_EQ(found->checks[rest].proof, Proof::NotProved) << found->checks[rest].finding;
}

/// A peer that is at something else before it fences or grants, for longer than an answer may take:
/// the first `late_each` requests of either kind time out.
class SlowPeer final : public test::RelayedPeer {
 public:
  SlowPeer(std::unique_ptr<Peer> real, fabric::emu::World& world, int late_each)
      : RelayedPeer(std::move(real)), world_(world), late_each_(late_each) {}

  Result<control::PoolDescription> describe(const std::string& pool, Deadline d) override {
    if (gone_when_late && timed_out_) return Error{ErrorCode::Disconnected, "it is gone"};
    return RelayedPeer::describe(pool, d);
  }
  Result<Session> open_session(const control::SessionRequest& r, Deadline d) override {
    if (late(opens)) return Error{ErrorCode::TimedOut, "it prepares the pool"};
    return RelayedPeer::open_session(r, d);
  }
  Result<void> fence(const std::string& p, Epoch e, Deadline d) override {
    if (late(fences)) return Error{ErrorCode::TimedOut, "it prepares the pool"};
    return RelayedPeer::fence(p, e, d);
  }

  bool gone_when_late = false;
  int opens = 0;
  int fences = 0;

 private:
  bool late(int& asked) {
    if (++asked > late_each_) return false;
    timed_out_ = true;
    world_.tick(std::chrono::seconds(5));
    return true;
  }

  fabric::emu::World& world_;
  const int late_each_;
  bool timed_out_ = false;
};

struct SlowList {
  Result<Certificate> found;
  int opens;
  int fences;
};

SlowList certified_slowly(int late_each, bool gone_when_late, Nanoseconds patience) {
  CertifiedWorld all(certified_profile(Transport::Roce, WriteOrder::Unknown));
  SlowPeer peer(std::move(all.peer), all.world, late_each);
  peer.gone_when_late = gone_when_late;
  all.options.rounds = 2;
  all.options.patience = patience;
  return {certify(peer, all.options), peer.opens, peer.fences};
}

// What an earlier writer left is made durable before a grant, which can take minutes.
TEST(Certify, APeerThatIsThereAndTakesLongerIsAskedAgain) {
  const SlowList slow = certified_slowly(3, false, std::chrono::minutes(10));
  ASSERT_TRUE(slow.found.ok()) << slow.found.error().message;
  EXPECT_GT(slow.opens, 4);
  EXPECT_GT(slow.fences, 3);
  ASSERT_EQ(slow.found->checks.size(), 8u);
  for (const CertifyCheck& check : slow.found->checks)
    EXPECT_EQ(check.finding.find("not found out"), std::string::npos) << check.finding;
  EXPECT_GE(number(slow.found->checks[2], "fencing_samples"), 1);
}

TEST(Certify, APeerThatIsGoneOrTakesForEverIsNotAskedForEver) {
  const SlowList gone = certified_slowly(1000, true, std::chrono::hours(10));
  EXPECT_EQ(gone.found.code(), ErrorCode::TimedOut);
  EXPECT_EQ(gone.opens, 1);
  const SlowList endless = certified_slowly(1000, false, std::chrono::seconds(60));
  EXPECT_EQ(endless.found.code(), ErrorCode::TimedOut);
  EXPECT_GT(endless.opens, 2);
  EXPECT_LE(endless.opens, 13);  // 5 s each
}

/// Notes the longest that it was given for an answer, by the clock of its world.
class TimedPeer final : public test::RelayedPeer {
 public:
  using RelayedPeer::RelayedPeer;
  Result<control::PoolDescription> describe(const std::string& pool, Deadline d) override {
    note(d);
    return RelayedPeer::describe(pool, d);
  }
  Result<Session> open_session(const control::SessionRequest& r, Deadline d) override {
    note(d);
    return RelayedPeer::open_session(r, d);
  }
  Result<void> fence(const std::string& p, Epoch e, Deadline d) override {
    note(d);
    return RelayedPeer::fence(p, e, d);
  }

  Nanoseconds longest{0};
  Nanoseconds shortest = Nanoseconds::max();

 private:
  void note(const Deadline& deadline) {
    longest = std::max(longest, deadline.left());
    shortest = std::min(shortest, deadline.left());
  }
};

TEST(Certify, GivesItsPeerTheTimeForAnAnswerThatItIsTold) {
  for (const int seconds : {1, 5, 70}) {
    const Nanoseconds timeout = std::chrono::seconds(seconds);
    CertifiedWorld all(certified_profile(Transport::Roce, WriteOrder::Unknown));
    TimedPeer peer(std::move(all.peer));
    all.options.rounds = 2;
    all.options.timeout = timeout;
    ASSERT_TRUE(certify(peer, all.options).ok());
    EXPECT_EQ(peer.longest, timeout);
    EXPECT_EQ(peer.shortest, timeout);
  }
}

TEST(Certify, NeedsAPoolThatIsLargeEnough) {
  CertifiedWorld all(certified_profile(Transport::Roce, WriteOrder::Unknown), 16 * 1024);
  EXPECT_EQ(certify(*all.peer, all.options).code(), ErrorCode::InvalidArgument);
}

}  // namespace
}  // namespace perdure::client
