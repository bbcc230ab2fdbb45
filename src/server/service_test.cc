// The laws of a responder, in an emulated world: one writer at a time, keys that end with their
// session, and nothing promised that a power failure takes back.
#include "server/service.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "client/connect_session.h"
#include "core/bytes.h"
#include "core/log_message.h"
#include "fabric/emu/live_device.h"
#include "fabric/emu/world.h"
#include "persist/wire.h"
#include "pmem/lent_region.h"
#include "testing/limited_device.h"
#include "testing/local_peer.h"
#include "testing/service_fixture.h"
#include "testing/temporary_directory.h"

namespace perdure::server {
namespace {

using std::chrono::seconds;
using test::BreakableRegion;
using test::profile_of;
using test::Service;

class RefuseAll final : public Authorizer {
 public:
  Result<void> authorize(const AccessRequest&) override {
    return Error{ErrorCode::PermissionDenied, "not today"};
  }
};

TEST_F(Service, AWriterWritesAndItsKeysDieWithTheSession) {
  auto session = open(writer(1, 10));
  ASSERT_TRUE(session.ok()) << session.error().message;
  EXPECT_EQ(session->pool.epoch, Epoch{1});
  EXPECT_EQ(session->pool.profile.transport, Transport::InfiniBand);
  EXPECT_EQ(session->remote.length, session->pool.bytes);
  EXPECT_EQ(write(*session, 7), std::nullopt);
  EXPECT_EQ(first_byte(), 7);

  // Close, from the control plane. Expect: the next write fails and changes nothing.
  ASSERT_TRUE(service_->close_session(session->id).ok());
  EXPECT_NE(write(*session, 8), std::nullopt);
  EXPECT_EQ(first_byte(), 7);
  EXPECT_EQ(service_->close_session(session->id).code(), ErrorCode::NotFound);
}

TEST_F(Service, AReaderCanNotWrite) {
  control::SessionRequest request;
  request.pool = "a";
  auto session = open(request);
  ASSERT_TRUE(session.ok());
  EXPECT_NE(write(*session, 8), std::nullopt);
  EXPECT_EQ(first_byte(), 0);
}

TEST_F(Service, ASessionEndsWhenItsRequesterGoes) {
  auto session = open(writer(1, 10));
  ASSERT_TRUE(session.ok());
  EXPECT_TRUE(described().writer_present);
  std::string said;
  set_message_callback([&said](Severity, const std::string& message) { said += message + '\n'; });
  session->endpoint.reset();
  world_.settle();
  set_message_callback({});
  EXPECT_FALSE(described().writer_present);
  EXPECT_TRUE(service_->report()->sessions.empty());
  const std::string who = fmt::format("pool 'a': session {:016x} of writer '", session->id);
  EXPECT_NE(said.find(who), std::string::npos) << said;
}

TEST_F(Service, OneWriterAtATime) {
  auto first = open(writer(1, 10));
  ASSERT_TRUE(first.ok());
  // Another writer, with a higher epoch but not asking to take over.
  EXPECT_EQ(open(writer(2, 20)).code(), ErrorCode::Busy);
  EXPECT_EQ(write(*first, 1), std::nullopt);
  // The same writer again: its old session ends.
  auto again = open(writer(1, 10));
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_NE(write(*first, 2), std::nullopt);
  EXPECT_EQ(write(*again, 3), std::nullopt);
  // Taking over: the old one's keys are dead before the new one is told.
  auto second = open(taking_over(2, 20));
  ASSERT_TRUE(second.ok());
  EXPECT_NE(write(*again, 4), std::nullopt);
  EXPECT_EQ(first_byte(), 3);
  EXPECT_EQ(write(*second, 5), std::nullopt);
  EXPECT_EQ(service_->report()->pools[0].counters.writers_fenced, 1u);
}

TEST_F(Service, AnOldEpochIsFenced) {
  { ASSERT_TRUE(open(writer(5, 10)).ok()); }
  world_.settle();
  //                                    request                expected
  EXPECT_EQ(open(writer(4, 10)).code(), ErrorCode::Fenced);       // an older epoch
  EXPECT_EQ(open(writer(5, 11)).code(), ErrorCode::Fenced);       // the same, of another writer
  EXPECT_EQ(open(taking_over(5, 11)).code(), ErrorCode::Fenced);  // taking over is no excuse
  EXPECT_EQ(open(writer(0, 10)).code(), ErrorCode::InvalidArgument);
  EXPECT_TRUE(open(writer(5, 10)).ok());  // the writer itself
  world_.settle();
  EXPECT_TRUE(open(writer(6, 11)).ok());  // a newer one
}

TEST_F(Service, FencingCutsOffOlderWritersAndIsForTheFirstToCome) {
  auto old = open(writer(5, 10));
  ASSERT_TRUE(old.ok());
  EXPECT_EQ(service_->fence("a", Epoch{4}).code(), ErrorCode::Fenced);
  EXPECT_TRUE(service_->fence("a", Epoch{5}).ok());  // nobody below 5 writes: true already
  EXPECT_EQ(write(*old, 1), std::nullopt);

  ASSERT_TRUE(service_->fence("a", Epoch{7}).ok());
  EXPECT_NE(write(*old, 2), std::nullopt);
  EXPECT_EQ(first_byte(), 1);
  EXPECT_EQ(open(writer(5, 10)).code(), ErrorCode::Fenced);
  EXPECT_TRUE(open(writer(7, 20)).ok());
  world_.settle();
  EXPECT_EQ(open(writer(7, 30)).code(), ErrorCode::Fenced);
}

TEST_F(Service, AWriterIsRememberedThroughAPowerFailure) {
  { ASSERT_TRUE(open(writer(5, 0xabcdef0123456789u)).ok()); }
  power_cycle();
  EXPECT_EQ(described().epoch, Epoch{5});
  EXPECT_EQ(described().writer, 0xabcdef0123456789u);
  EXPECT_EQ(described().writer_name, "writer");
  EXPECT_FALSE(described().writer_present);
  EXPECT_EQ(open(writer(5, 11)).code(), ErrorCode::Fenced);
}

TEST_F(Service, AFenceIsRememberedThroughAPowerFailure) {
  ASSERT_TRUE(service_->fence("a", Epoch{9}).ok());
  power_cycle();
  EXPECT_EQ(open(writer(8, 10)).code(), ErrorCode::Fenced);
  EXPECT_TRUE(open(writer(9, 10)).ok());
}

TEST_F(Service, AGrantThatCanNotBeMadeDurableIsNotGiven) {
  lent_->broken = true;
  EXPECT_EQ(open(writer(1, 10)).code(), ErrorCode::SystemError);
  EXPECT_TRUE(service_->report()->sessions.empty());
  EXPECT_EQ(service_->report()->pools[0].counters.medium_failures, 1u);
  // Such a medium is not trusted again.
  lent_->broken = false;
  EXPECT_EQ(described().state, control::PoolStatus::Unavailable);
  EXPECT_EQ(open(writer(1, 10)).code(), ErrorCode::SystemError);
  EXPECT_EQ(service_->report()->pools[0].counters.medium_failures, 1u) << "of one failure";
}

TEST_F(Service, TroubleOfTheRnicEndsSessionsAndCondemnsNoPool) {
  // The exported part is registered, the session's buffers are not. Expect: no session.
  for (registrations_ = 0; registrations_ < 3; ++registrations_) {
    auto session = open(writer(1, 10));
    if (session.ok()) {
      EXPECT_NE(write(*session, 1), std::nullopt) << registrations_;
    }
    world_.settle();
    EXPECT_EQ(described().state, control::PoolStatus::Open) << described().reason;
    EXPECT_TRUE(service_->report()->sessions.empty());
  }
  EXPECT_EQ(service_->report()->pools[0].counters.medium_failures, 0u);
  // The RNIC is there again. Expect: so is the pool, without anybody's doing.
  registrations_ = 1000;
  auto session = open(writer(1, 10));
  ASSERT_TRUE(session.ok()) << session.error().message;
  EXPECT_EQ(write(*session, 5), std::nullopt);
}

TEST_F(Service, AMediumThatRefusedOneFlushIsNotTrustedForAnythingElse) {
  auto session = open(writer(1, 10));
  ASSERT_TRUE(session.ok());
  // The flush of another session's opening fails once; no word of it comes to this one.
  lent_->broken = true;
  EXPECT_FALSE(open(writer(1, 10)).ok());
  lent_->broken = false;
  EXPECT_EQ(service_->fence("a", Epoch{7}).code(), ErrorCode::SystemError);
  EXPECT_FALSE(service_->close_pool("a").ok());  // it is not marked as cleanly shut down
  EXPECT_EQ(described().state, control::PoolStatus::Unavailable);
}

TEST_F(Service, AMediumThatFailsEndsEverySessionOfItsPool) {
  control::SessionRequest reading;
  reading.pool = "a";
  auto reader = open(reading);
  ASSERT_TRUE(reader.ok()) << reader.error().message;
  EXPECT_EQ(service_->report()->sessions.size(), 1u);
  // A grant notices. Expect: the reader, who had nothing to do with it, reads no more, either.
  lent_->broken = true;
  EXPECT_FALSE(open(writer(1, 10)).ok());
  world_.settle();
  EXPECT_TRUE(service_->report()->sessions.empty());
  EXPECT_NE(run(*reader, fabric::Opcode::Read), std::nullopt);
  EXPECT_EQ(service_->report()->pools[0].counters.medium_failures, 1u);
}

TEST_F(Service, NobodyIsGrantedAPoolWhoseKeysCouldNotBeTakenAway) {
  auto old = open(writer(1, 10));
  ASSERT_TRUE(old.ok());
  server_->refuse_revocations(true);
  const auto refused = open(taking_over(2, 20));
  ASSERT_EQ(refused.code(), ErrorCode::SystemError);
  EXPECT_NE(refused.error().message.find("can not be taken away"), std::string::npos)
      << refused.error().message;
  // Rightly so: the old writer still reaches the pool.
  EXPECT_EQ(write(*old, 7), std::nullopt);
  EXPECT_EQ(first_byte(), 7);
  // Nor is anything else granted that counts on it, and it is no failure of the medium.
  EXPECT_EQ(open(writer(1, 10)).code(), ErrorCode::SystemError);
  EXPECT_EQ(service_->fence("a", Epoch{9}).code(), ErrorCode::SystemError);
  EXPECT_EQ(service_->close_session(old->id).code(), ErrorCode::SystemError);
  EXPECT_EQ(service_->close_pool("a").code(), ErrorCode::SystemError);
  EXPECT_EQ(described().state, control::PoolStatus::Open);
  EXPECT_EQ(described().epoch, Epoch{1});
  EXPECT_TRUE(described().writer_present);
  // It is seen from outside: who asks is told, and each try is counted.
  EXPECT_NE(described().reason.find("can not be taken away"), std::string::npos);
  auto report = *service_->report();
  EXPECT_EQ(report.pools[0].counters.revocation_failures, 5u);
  EXPECT_EQ(report.pools[0].counters.medium_failures, 0u);
  ASSERT_EQ(report.sessions.size(), 1u);
  EXPECT_FALSE(report.sessions[0].unrevoked.empty());

  // The RNIC answers again. Expect: the next request takes the keys, and the pool.
  server_->refuse_revocations(false);
  auto next = open(taking_over(2, 20));
  ASSERT_TRUE(next.ok()) << next.error().message;
  EXPECT_NE(write(*old, 8), std::nullopt);
  EXPECT_EQ(first_byte(), 7);
  EXPECT_EQ(write(*next, 9), std::nullopt);
  report = *service_->report();
  EXPECT_EQ(report.pools[0].counters.writers_fenced, 1u);
  EXPECT_EQ(report.pools[0].counters.revocation_failures, 5u);
  ASSERT_EQ(report.sessions.size(), 1u);
  EXPECT_TRUE(report.sessions[0].unrevoked.empty());
  EXPECT_EQ(described().reason, "");
}

TEST_F(Service, AGrantThatNobodyCameForHasKeysToo) {
  const auto grant = service_->open_session(writer(1, 10), std::nullopt);
  ASSERT_TRUE(grant.ok());
  server_->refuse_revocations(true);
  EXPECT_EQ(open(taking_over(2, 20)).code(), ErrorCode::SystemError);
  EXPECT_EQ(open(taking_over(2, 20)).code(), ErrorCode::SystemError);
  // The token is not good any more, either.
  EXPECT_FALSE(client::connect_session(*grant, grant->address, *client_, {}, deadline()).ok());
  server_->refuse_revocations(false);
  EXPECT_TRUE(open(taking_over(2, 20)).ok());
}

TEST_F(Service, KeysThatCouldNotBeTakenAwayEndWithThePower) {
  auto old = open(writer(1, 10));
  ASSERT_TRUE(old.ok());
  server_->refuse_revocations(true);
  EXPECT_FALSE(open(taking_over(2, 20)).ok());
  power_cycle();
  auto next = open(taking_over(2, 20));
  ASSERT_TRUE(next.ok()) << next.error().message;
  EXPECT_NE(write(*old, 8), std::nullopt);
  EXPECT_EQ(write(*next, 9), std::nullopt);
}

TEST_F(Service, APoolThatOthersMayStillWriteIsNotClosedCleanly) {
  auto old = open(writer(1, 10));
  ASSERT_TRUE(old.ok());
  server_->refuse_revocations(true);
  peer_.reset();
  pumping_ = false;
  service_.reset();  // gives up after a few tries, and does not hang
  const auto pool = pmem::Pool::attach(std::make_unique<pmem::LentRegion>(*region_));
  ASSERT_TRUE(pool.ok()) << pool.error().message;
  EXPECT_FALSE((*pool)->was_shut_down());
}

TEST_F(Service, ATokenIsGoodOnceAndForItsSessionOnly) {
  const auto grant = service_->open_session(writer(1, 10), std::nullopt);
  ASSERT_TRUE(grant.ok());
  const auto connects = [&](control::SessionGrant wrong) {
    return client::connect_session(wrong, grant->address, *client_, {}, deadline()).ok();
  };
  control::SessionGrant wrong = *grant;
  wrong.token ^= 1;
  EXPECT_FALSE(connects(wrong));
  wrong = *grant;
  wrong.session ^= 1;
  EXPECT_FALSE(connects(wrong));
  EXPECT_EQ(service_->report()->refused.tokens, 2u);

  auto session = client::connect_session(*grant, grant->address, *client_, {}, deadline());
  ASSERT_TRUE(session.ok());
  EXPECT_FALSE(connects(*grant));  // a second connection with the same token
  EXPECT_EQ(write(*session, 1), std::nullopt);
}

TEST_F(Service, AGrantThatNobodyComesForExpires) {
  const auto grant = service_->open_session(writer(1, 10), std::nullopt);
  ASSERT_TRUE(grant.ok());
  EXPECT_EQ(open(writer(2, 20)).code(), ErrorCode::Busy);
  const Deadline later(world_.clock(), seconds{3601});
  while (!later.passed()) {  // connecting to nobody passes the time of the world
    (void)client_->connect("server:1", {}, {}, later);
    (void)world_.run_until([] { return false; }, 100);
    const auto listener = client_->listen("", {});
    (void)(*listener)->next(later);
  }
  EXPECT_TRUE(open(writer(2, 20)).ok());
  EXPECT_EQ(service_->report()->refused.expired, 1u);
  EXPECT_FALSE(client::connect_session(*grant, grant->address, *client_, {}, deadline()).ok());
}

TEST_F(Service, SessionsAreLimitedAndReadersLeaveRoomForAWriter) {
  control::SessionRequest reader;
  reader.pool = "a";
  std::vector<client::Session> sessions;
  for (int i = 0; i < 3; ++i) {
    auto session = open(reader);
    ASSERT_TRUE(session.ok());
    sessions.push_back(std::move(*session));
  }
  EXPECT_EQ(open(reader).code(), ErrorCode::QueueFull);
  EXPECT_TRUE(open(writer(1, 10)).ok());
  sessions.pop_back();
  world_.settle();
  EXPECT_TRUE(open(reader).ok());
}

TEST_F(Service, WhoeverSaysThatHeReadsForAWriterKeepsNoWriterOut) {
  control::SessionRequest reading;
  reading.pool = "a";
  reading.for_writer = true;
  // Grants that nobody uses: each makes room for the next.
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(service_->open_session(reading, std::nullopt).ok()) << i;
  }
  { ASSERT_TRUE(open(writer(1, 10)).ok()); }
  world_.settle();
  // And those that are used leave it room.
  std::vector<client::Session> sessions;
  for (int i = 0; i < 10; ++i) {
    auto session = open(reading);
    if (session.ok()) sessions.push_back(std::move(*session));
  }
  EXPECT_EQ(sessions.size(), 3u);
  EXPECT_EQ(open(reading).code(), ErrorCode::QueueFull);
  EXPECT_TRUE(open(writer(2, 10)).ok());
}

TEST_F(Service, AGrantThatNobodyUsesMakesRoomForTheNextOne) {
  control::SessionRequest reader;
  reader.pool = "a";
  const auto first = service_->open_session(reader, std::nullopt);
  ASSERT_TRUE(first.ok());
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(service_->open_session(reader, std::nullopt).ok());
  // Readers that connect and a writer find room; the oldest grant is not good any more.
  EXPECT_TRUE(open(writer(1, 10)).ok());
  EXPECT_TRUE(open(reader).ok());
  EXPECT_EQ(service_->describe_session(first->session).code(), ErrorCode::NotFound);
  EXPECT_GE(service_->report()->refused.displaced, 18u);
  EXPECT_LE(service_->report()->sessions.size(), 4u);
}

TEST_F(Service, AClosedPoolEndsItsSessionsAndRefusesNewOnes) {
  auto session = open(writer(1, 10));
  ASSERT_TRUE(session.ok());
  ASSERT_TRUE(service_->close_pool("a").ok());
  EXPECT_NE(write(*session, 1), std::nullopt);
  EXPECT_EQ(described().state, control::PoolStatus::Closed);
  EXPECT_EQ(open(writer(1, 10)).code(), ErrorCode::NotFound);
  EXPECT_TRUE(service_->close_pool("a").ok());  // harmless when repeated
}

TEST_F(Service, NamesThatAreNotThereAreNotFound) {
  EXPECT_EQ(service_->describe("b").code(), ErrorCode::NotFound);
  EXPECT_EQ(service_->fence("b", Epoch{1}).code(), ErrorCode::NotFound);
  control::SessionRequest request = writer(1, 10);
  request.pool = "b";
  EXPECT_EQ(open(request).code(), ErrorCode::NotFound);
  EXPECT_EQ(service_->open_session(writer(1, 10), Transport::Shm).code(), ErrorCode::Unsupported);
  EXPECT_EQ(service_->create({"b", 4096}).code(), ErrorCode::Unsupported);  // no directory
  EXPECT_EQ(service_->add_pool("a", nullptr).code(), ErrorCode::AlreadyExists);
}

TEST_F(Service, TheAuthorizerIsAskedForEverything) {
  RefuseAll nobody;
  ServiceOptions options;
  options.threads = false;
  options.authorizer = &nobody;
  auto service = PeerService::open(std::move(options), {});
  ASSERT_TRUE(service.ok());
  PeerService& guarded = **service;
  constexpr auto denied = ErrorCode::PermissionDenied;
  EXPECT_EQ(guarded.list().code(), denied);
  EXPECT_EQ(guarded.describe("a").code(), denied);
  EXPECT_EQ(guarded.create({"a", 4096}).code(), denied);
  EXPECT_EQ(guarded.open_pool("a").code(), denied);
  EXPECT_EQ(guarded.close_pool("a").code(), denied);
  EXPECT_EQ(guarded.fence("a", Epoch{1}).code(), denied);
  EXPECT_EQ(guarded.open_session(writer(1, 1), std::nullopt).code(), denied);
  EXPECT_EQ(guarded.report().code(), denied);
}

TEST(ServiceWithThreads, KeysThatWereNotTakenAwayAreAskedForAgain) {
  ServerProfile profile = profile_of(PersistenceDomain::Mhp, ReceiveBuffers::Dram);
  auto device = fabric::emu::LiveDevice::open({profile});
  auto requester = fabric::emu::LiveDevice::open({profile});
  ASSERT_TRUE(device.ok() && requester.ok());
  auto region = pmem::CrashableRegion::open({1 << 20, PersistenceDomain::Mhp});
  ASSERT_TRUE(region.ok());
  ServiceOptions options;
  options.settings.ddio = Ddio::Off;
  auto service = PeerService::open(std::move(options), {{device->get(), "", {}}});
  ASSERT_TRUE(service.ok()) << service.error().message;
  auto pool = pmem::Pool::format(std::make_unique<pmem::LentRegion>(**region), {});
  ASSERT_TRUE(pool.ok());
  ASSERT_TRUE((*service)->add_pool("a", std::move(*pool)).ok());
  const auto ask = [&](std::uint32_t epoch, std::uint64_t id) {
    control::SessionRequest request{"a", true, Epoch{epoch}, id, "writer", true};
    return (*service)->open_session(request, std::nullopt);
  };
  test::LocalPeer peer("server", **service, **requester);
  const control::SessionRequest request{"a", true, Epoch{1}, 10, "writer", false};
  auto session = peer.open_session(request, Deadline::after(seconds{20}));
  ASSERT_TRUE(session.ok()) << session.error().message;

  (*device)->refuse_revocations(true);
  EXPECT_EQ(ask(2, 20).code(), ErrorCode::SystemError);  // its thread was told to end
  EXPECT_EQ(ask(2, 20).code(), ErrorCode::SystemError);  // its thread is gone
  session->endpoint->disconnect();
  EXPECT_EQ(ask(2, 20).code(), ErrorCode::SystemError);
  (*device)->refuse_revocations(false);
  const auto granted = ask(2, 20);
  EXPECT_TRUE(granted.ok()) << granted.error().message;
  EXPECT_EQ((*service)->describe_session(session->id).code(), ErrorCode::NotFound);
}

}  // namespace
}  // namespace perdure::server
