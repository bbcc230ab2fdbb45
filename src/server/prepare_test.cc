// What is done for a pool before a session is granted: it is registered with the RNIC once, and
// what an earlier writer left visible is made durable.
#include <functional>

#include "testing/service_fixture.h"

namespace perdure::server {
namespace {

using test::profile_of;
using test::Service;

/// Over an RNIC whose windows are bound to connections.
class ServiceWithWindows : public Service {
 protected:
  ServiceWithWindows()
      : Service(profile_of(PersistenceDomain::Mhp, ReceiveBuffers::Dram), with_windows()) {}
  static fabric::emu::RnicSwitches with_windows() {
    fabric::emu::RnicSwitches switches;
    switches.binds_windows = true;
    return switches;
  }
};

TEST_F(ServiceWithWindows, APoolIsPinnedOnceHoweverManySessionsItHas) {
  const std::uint64_t bytes = described().bytes;
  const std::uint64_t before = server_->pinned_bytes();
  control::SessionRequest reader;
  reader.pool = "a";
  auto first = open(reader);
  auto second = open(reader);
  auto third = open(writer(1, 10));
  ASSERT_TRUE(first.ok() && second.ok() && third.ok());
  EXPECT_GE(server_->pinned_bytes() - before, bytes);
  EXPECT_LT(server_->pinned_bytes() - before, 2 * bytes);  // receive buffers are some of it
  EXPECT_EQ(write(*third, 7), std::nullopt);
  EXPECT_EQ(first_byte(), 7);
  // Expect: it is not pinned any more when nobody is served.
  ASSERT_TRUE(service_->close_pool("a").ok());
  EXPECT_EQ(server_->pinned_bytes(), before);
}

/// Over an RNIC that binds windows, but none as large as the pool.
class ServiceWithSmallWindows : public Service {
 protected:
  explicit ServiceWithSmallWindows(bool says_so = true)
      : Service(profile_of(PersistenceDomain::Mhp, ReceiveBuffers::Dram), small_windows(says_so)) {}
  static fabric::emu::RnicSwitches small_windows(bool says_so) {
    fabric::emu::RnicSwitches switches;
    switches.binds_windows = true;
    switches.window_bytes_max = 64 * 1024;
    switches.says_window_limit = says_so;
    return switches;
  }
};

TEST_F(ServiceWithSmallWindows, APoolThatIsTooLargeForAWindowIsPinnedForEachSession) {
  const std::uint64_t before = server_->pinned_bytes();
  control::SessionRequest reader;
  reader.pool = "a";
  auto first = open(reader);
  auto second = open(writer(1, 10));
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_GE(server_->pinned_bytes() - before, 2 * described().bytes);
  EXPECT_LT(server_->pinned_bytes() - before, 3 * described().bytes);
  EXPECT_EQ(write(*second, 7), std::nullopt);
  EXPECT_EQ(first_byte(), 7);
}

/// It says so only when one is to be bound.
class ServiceWithRefusedWindows : public ServiceWithSmallWindows {
 protected:
  ServiceWithRefusedWindows() : ServiceWithSmallWindows(false) {}
};

TEST_F(ServiceWithRefusedWindows, ARefusedWindowCostsOneConnectionAndOnlyPoolsOfItsSize) {
  const std::uint64_t before = server_->pinned_bytes();
  EXPECT_FALSE(open(writer(1, 10)).ok());
  // Expect: what was registered for windows over it is given back, and the session has its own.
  auto next = open(writer(2, 10));
  ASSERT_TRUE(next.ok()) << next.error().message;
  EXPECT_GE(server_->pinned_bytes() - before, described().bytes);
  EXPECT_LT(server_->pinned_bytes() - before, 2 * described().bytes);
  EXPECT_EQ(write(*next, 7), std::nullopt);
  EXPECT_EQ(first_byte(), 7);
  // Expect: a smaller pool would have windows still.
  EXPECT_EQ(server_->window_kind(64 * 1024), fabric::WindowKind::Bound);
  EXPECT_EQ(server_->window_kind(described().bytes), fabric::WindowKind::Registration);
}

class ServiceWithoutWindows : public Service {};

TEST_F(ServiceWithoutWindows, WithoutWindowsEachSessionPinsItsPool) {
  const std::uint64_t before = server_->pinned_bytes();
  control::SessionRequest reader;
  reader.pool = "a";
  auto first = open(reader);
  auto second = open(reader);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_GE(server_->pinned_bytes() - before, 2 * described().bytes);
}

TEST_F(ServiceWithWindows, ANewWriterCutsTheOldOneOffAndWrites) {
  for (std::uint32_t epoch = 1; epoch <= 3; ++epoch) {
    auto old = open(taking_over(2 * epoch, 10));
    ASSERT_TRUE(old.ok()) << old.error().message;
    ASSERT_EQ(write(*old, 2), std::nullopt);
    auto next = open(taking_over(2 * epoch + 1, 11));
    ASSERT_TRUE(next.ok()) << next.error().message;
    EXPECT_NE(write(*old, 3), std::nullopt);
    EXPECT_EQ(first_byte(), 2);
    EXPECT_EQ(write(*next, 4), std::nullopt);
    EXPECT_EQ(first_byte(), 4);
    // Receive: the key of the writer's session over a reader's connection.
    control::SessionRequest reader;
    reader.pool = "a";
    auto spy = open(reader);
    ASSERT_TRUE(spy.ok()) << spy.error().message;
    spy->remote = next->remote;
    EXPECT_NE(write(*spy, 5), std::nullopt);
    EXPECT_EQ(first_byte(), 4);
  }
}

TEST_F(ServiceWithWindows, AWindowThatIsNotTakenAwayKeepsOthersOut) {
  auto session = open(writer(1, 10));
  ASSERT_TRUE(session.ok());
  server_->refuse_revocations(true);
  const auto refused = open(taking_over(2, 11));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.code(), ErrorCode::SystemError) << refused.error().message;
  server_->refuse_revocations(false);
  EXPECT_TRUE(open(taking_over(2, 11)).ok());
}

TEST_F(ServiceWithWindows, AfterAPowerFailureThePoolIsRegisteredAnew) {
  auto session = open(writer(1, 10));
  ASSERT_TRUE(session.ok());
  power_cycle();
  auto again = open(writer(2, 10));
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(write(*again, 9), std::nullopt);
  EXPECT_EQ(first_byte(), 9);
}

// The daemon goes on: it listens again, registers the pool anew, and grants it.
TEST_F(ServiceWithWindows, AResetRnicIsFoundAgainWithoutARestart) {
  auto before = open(writer(1, 10));
  ASSERT_TRUE(before.ok()) << before.error().message;
  ASSERT_EQ(write(*before, 7), std::nullopt);
  for (std::uint32_t epoch = 2; epoch <= 4; ++epoch) {
    server_->reset_rnic();
    EXPECT_LT(server_->pinned_bytes(), described().bytes);
    EXPECT_NE(write(*before, 8), std::nullopt);
    auto next = open(taking_over(epoch, 11));
    ASSERT_TRUE(next.ok()) << next.error().message;
    EXPECT_GE(server_->pinned_bytes(), described().bytes);
    EXPECT_EQ(write(*next, static_cast<int>(10 + epoch)), std::nullopt);
    EXPECT_EQ(first_byte(), static_cast<int>(10 + epoch));
    // Receive: the key from before the reset over a connection of after it.
    control::SessionRequest reader;
    reader.pool = "a";
    auto spy = open(reader);
    ASSERT_TRUE(spy.ok()) << spy.error().message;
    spy->remote = before->remote;
    EXPECT_NE(write(*spy, 9), std::nullopt);
    EXPECT_EQ(first_byte(), static_cast<int>(10 + epoch));
    before = std::move(next);
  }
}

/// Over an RNIC that pages a pool in a file on demand, as it says.
class ServiceThatPagesOnDemand : public Service {
 protected:
  ServiceThatPagesOnDemand() : Service(on_demand()) {}
  static ServerProfile on_demand() {
    ServerProfile profile = profile_of(PersistenceDomain::Page, ReceiveBuffers::Dram);
    profile.dma_dirties = DmaDirties::Yes;
    return profile;
  }
};

TEST_F(ServiceThatPagesOnDemand, IsBelievedOnlyWhereItIsDeclared) {
  auto session = open(writer(1, 10));
  ASSERT_TRUE(session.ok()) << session.error().message;
  EXPECT_EQ(session->pool.profile.dma_dirties, DmaDirties::No);
  dma_dirties_ = DmaDirties::Yes;
  restart();
  auto declared = open(writer(2, 10));
  ASSERT_TRUE(declared.ok()) << declared.error().message;
  EXPECT_EQ(declared->pool.profile.dma_dirties, DmaDirties::Yes);
}

/// DDIO was declared off.
class ServiceThatBypassesCaches : public Service {
 protected:
  ServiceThatBypassesCaches() : Service(profile_of(PersistenceDomain::Dmp, ReceiveBuffers::Dram)) {}
};

// A software RNIC stores by the processor, and so into its caches: a READ would prove nothing.
TEST_F(ServiceThatBypassesCaches, IsBelievedOnlyWhereAnRnicStores) {
  auto session = open(writer(1, 10));
  ASSERT_TRUE(session.ok()) << session.error().message;
  EXPECT_EQ(session->pool.profile.ddio, Ddio::Off);
  is_software_ = true;
  auto by_cpu = open(writer(1, 10));
  ASSERT_TRUE(by_cpu.ok()) << by_cpu.error().message;
  EXPECT_EQ(by_cpu->pool.profile.ddio, Ddio::On);
}

/// What a one-sided WRITE brings is in the caches, and lost with the power.
class ServiceOverCaches : public Service {
 protected:
  ServiceOverCaches() : Service(volatile_caches()) {}
  static ServerProfile volatile_caches() {
    ServerProfile profile = profile_of(PersistenceDomain::Dmp, ReceiveBuffers::Dram);
    profile.ddio = Ddio::On;
    return profile;
  }

  /// A writer dies after a WRITE that nobody flushes, then `meanwhile` happens: what the next
  /// writer finds visible survives a power failure.
  void expect_kept(const std::function<void(std::uint32_t)>& meanwhile) {
    constexpr int kRounds = 16;
    int lost = 0;
    for (int round = 1; round <= kRounds; ++round) {
      const auto epoch = static_cast<std::uint32_t>(4 * round);
      auto dying = open(writer(epoch, 10));
      ASSERT_TRUE(dying.ok()) << dying.error().message;
      ASSERT_EQ(write(*dying, round), std::nullopt);
      ASSERT_NO_FATAL_FAILURE(meanwhile(epoch));
      auto next = open(writer(epoch + 2, 11));
      ASSERT_TRUE(next.ok()) << next.error().message;
      ASSERT_EQ(first_byte(), round);
      power_cycle();
      if (first_byte() != round) ++lost;
    }
    EXPECT_EQ(lost, 0) << "of " << kRounds;
  }
};

TEST_F(ServiceOverCaches, WhatTheLastWriterLeftVisibleIsDurableBeforeTheNextOneReadsIt) {
  // The next writer comes, and is fenced before it is granted anything. Expect: what it left undone
  // is done for the one after that.
  expect_kept(
      [this](std::uint32_t epoch) { ASSERT_TRUE(service_->fence("a", Epoch{epoch + 1}).ok()); });
}

TEST_F(ServiceOverCaches, WhatIsVisibleWhenAPoolIsOpenedIsDurableForItsFirstWriter) {
  // The daemon ends and starts again, and the machine stays up. The pool is flushed when it is
  // closed, and no more.
  expect_kept([this](std::uint32_t) {
    ASSERT_TRUE(service_->close_pool("a").ok());
    restart();
  });
}

TEST_F(ServiceOverCaches, WhatAKilledDaemonLeftVisibleIsDurableForTheNextOnesFirstWriter) {
  expect_kept([this](std::uint32_t) {
    service_->abandon();
    restart();
  });
}

}  // namespace
}  // namespace perdure::server
