// A connection is timed against a real responder, without a trace in the pool; in the emulated
// world the same seed gives the same numbers.
#include "client/connection_costs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "core/bytes.h"
#include "core/random.h"
#include "core/try.h"
#include "fabric/emu/live_device.h"
#include "fabric/ofi/ofi.h"
#include "fabric/shm/shm.h"
#include "pmem/crashable_region.h"
#include "pmem/lent_region.h"
#include "pmem/pool_format.h"
#include "testing/local_peer.h"
#include "testing/world_server.h"

namespace perdure::client {
namespace {

constexpr std::uint64_t kPoolBytes = 64 * 1024;
const std::string kPool = "a";

void fill(pmem::Region& region) {
  std::fill_n(region.bytes().begin() + pmem::kPoolDataOffset, kPoolBytes, std::byte{0xa5});
}

bool untouched(pmem::Region& region) {
  const auto exported = region.bytes().subspan(pmem::kPoolDataOffset, kPoolBytes);
  const auto scratch = region.bytes().subspan(pmem::kPoolScratchOffset, pmem::kPoolScratchBytes);
  const auto all = [](std::span<std::byte> bytes, std::byte value) {
    return std::all_of(bytes.begin(), bytes.end(), [&](std::byte each) { return each == value; });
  };
  return all(exported, std::byte{0xa5}) && all(scratch, std::byte{0});
}

void expect_costs(const plan::CostModel& costs) {
  EXPECT_TRUE(costs.measured);
  for (const double cost :
       {costs.message_round_trip_ns, costs.write_round_trip_ns, costs.read_round_trip_ns,
        costs.extra_post_ns, costs.copy_byte_ns, costs.wire_byte_ns}) {
    EXPECT_GT(cost, 0);
    EXPECT_LT(cost, 5e9);
  }
}

/// A responder with a thread per session and a requester's device in one process.
void measure_over(std::unique_ptr<fabric::Device> server, std::unique_ptr<fabric::Device> client,
                  const std::string& listen) {
  auto region =
      pmem::CrashableRegion::open({pmem::kPoolDataOffset + kPoolBytes, PersistenceDomain::Wsp, {}});
  ASSERT_TRUE(region.ok());
  auto service = server::PeerService::open({}, {{server.get(), listen, {}}});
  ASSERT_TRUE(service.ok()) << service.error().message;
  auto pool = pmem::Pool::format(std::make_unique<pmem::LentRegion>(**region), {});
  ASSERT_TRUE(pool.ok()) << pool.error().message;
  ASSERT_TRUE((*service)->add_pool(kPool, std::move(*pool)).ok());
  fill(**region);
  test::LocalPeer peer("server", **service, *client);
  const auto measured = measure_pool(peer, kPool, std::chrono::seconds(60), Clock::monotonic());
  ASSERT_TRUE(measured.ok()) << measured.error().message;
  expect_costs(measured->costs);
  EXPECT_EQ(measured->profile.transport, client->transport());
  EXPECT_EQ(measured->profile.domain, PersistenceDomain::Wsp);
  EXPECT_TRUE(untouched(**region));
  const auto described = (*service)->describe(kPool);
  ASSERT_TRUE(described.ok());
  EXPECT_EQ(described->writer, 0u) << "measuring is not writing";
  EXPECT_EQ(described->epoch.value, 0u);
}

TEST(ConnectionCosts, AreMeasuredOverSharedMemory) {
  measure_over(*fabric::shm::open_device(), *fabric::shm::open_device(), "");
}

TEST(ConnectionCosts, AreMeasuredOverTcp) {
  auto server = fabric::ofi::open_device();
  auto client = fabric::ofi::open_device();
  if (!server.ok() || !client.ok()) GTEST_SKIP() << server.error().message;
  measure_over(std::move(*server), std::move(*client), "");
}

TEST(ConnectionCosts, AreMeasuredOverAnEmulatedRnic) {
  const auto device = [] {
    fabric::emu::LiveOptions options;
    options.profile.transport = Transport::InfiniBand;
    options.seed = 5;
    return *fabric::emu::LiveDevice::open(options);
  };
  measure_over(device(), device(), "");
}

/// One responder in the emulated world, in which time is emulated too.
class MeasuredWorld {
 public:
  explicit MeasuredWorld(
      const ServerProfile& profile,
      fabric::emu::World::Options::Order order = fabric::emu::World::Options::Order::Random)
      : world_(random_, {order, 8}) {
    server_ = *test::WorldServer::start(world_, "server", profile, {kPool, kPoolBytes, {32, 2048}});
    client_ = &world_.add_machine("client", profile);
    peer_ = server_->peer(*client_);
    fill(region());
  }

  Result<MeasuredPool> measure() {
    return measure_pool(*peer_, kPool, std::chrono::milliseconds(500), world_.clock());
  }

  /// A session with rights to write, measured with a line for WRITEs.
  Result<plan::CostModel> measure_as_writer(bool without_medium = false,
                                            std::optional<Nanoseconds> all_within = {}) {
    PERDURE_TRY(session, peer_->open_session({kPool, true, Epoch{1}, 1, "", false}, soon()));
    if (without_medium) session.medium.reset();
    persist::Requester::Options options;
    options.remote = session.remote;
    options.queue = {session.receive_depth, session.message_bytes_max};
    options.session = static_cast<std::uint32_t>(session.id);
    options.probes = true;
    options.probe_line = 0;
    std::fill_n(region().bytes().begin() + pmem::kPoolDataOffset, kCacheLineBytes, std::byte{0});
    PERDURE_TRY(requester, persist::Requester::open(*session.endpoint, *client_,
                                                    session.pool.profile, {}, options));
    MeasureOptions measure;
    measure.clock = &world_.clock();
    measure.writes = true;
    measure.answer_within = std::chrono::milliseconds(20);
    if (all_within) measure.until = Deadline(world_.clock(), *all_within);
    const Nanoseconds before = world_.clock().now();
    auto costs = measure_costs(*requester, session, measure);
    took = world_.clock().now() - before;
    asked = requester->begun();
    return costs;
  }

  pmem::Region& region() { return server_->region(); }
  std::uint64_t asked = 0;  // probes of measure_as_writer
  Nanoseconds took{0};      // by measure_as_writer

 private:
  Deadline soon() const { return {world_.clock(), std::chrono::seconds(1)}; }

  Random random_{7};
  fabric::emu::World world_;
  std::unique_ptr<test::WorldServer> server_;
  fabric::emu::Machine* client_ = nullptr;
  std::unique_ptr<Peer> peer_;
};

ServerProfile profile_of(PersistenceDomain domain, Transport transport) {
  ServerProfile profile;
  profile.domain = domain;
  profile.ddio = Ddio::Off;
  profile.transport = transport;
  return profile;
}

TEST(ConnectionCosts, OfTheEmulatedWorldAreThoseOfTheSeed) {
  for (const Transport transport : {Transport::InfiniBand, Transport::Iwarp, Transport::Tcp}) {
    const ServerProfile profile = profile_of(PersistenceDomain::Dmp, transport);
    MeasuredWorld one(profile);
    MeasuredWorld two(profile);
    const auto first = one.measure();
    const auto second = two.measure();
    ASSERT_TRUE(first.ok()) << first.error().message;
    ASSERT_TRUE(second.ok());
    expect_costs(first->costs);
    EXPECT_EQ(first->costs, second->costs);
    EXPECT_TRUE(untouched(one.region()));
  }
}

// Each probe is answered in time, and all of them together take longer than there is.
TEST(ConnectionCosts, AreGivenUpWhenTheTimeForAllOfThemIsOver) {
  MeasuredWorld world(profile_of(PersistenceDomain::Dmp, Transport::InfiniBand));
  ASSERT_TRUE(world.measure_as_writer().ok());
  const Nanoseconds whole = world.took;
  const std::uint64_t probes = world.asked;
  MeasuredWorld hurried(profile_of(PersistenceDomain::Dmp, Transport::InfiniBand));
  const auto costs = hurried.measure_as_writer(false, whole / 4);
  ASSERT_FALSE(costs.ok());
  EXPECT_EQ(costs.code(), ErrorCode::TimedOut);
  EXPECT_LT(hurried.took, whole / 2);
  EXPECT_LT(hurried.asked, probes);
}

// Expect: the world's own times (fabric/emu/timing.h), which are made of the same description of
// hardware as the usual costs.
TEST(ConnectionCosts, AreTheTimesOfAWorldThatKeepsTime) {
  MeasuredWorld world(profile_of(PersistenceDomain::Dmp, Transport::InfiniBand),
                      fabric::emu::World::Options::Order::InTime);
  const auto costs = world.measure_as_writer();
  ASSERT_TRUE(costs.ok()) << costs.error().message;
  const plan::CostModel usual = plan::default_costs(Transport::InfiniBand);
  EXPECT_NEAR(costs->write_round_trip_ns / usual.write_round_trip_ns, 1, 0.1);
  EXPECT_NEAR(costs->read_round_trip_ns / usual.read_round_trip_ns, 1, 0.1);
  EXPECT_NEAR(costs->message_round_trip_ns / usual.message_round_trip_ns, 1, 0.1);
  EXPECT_NEAR(costs->flush_line_ns, usual.flush_line_ns, 1) << "of the medium once, of 256 lines";
  EXPECT_EQ(costs->one_sided_wake_ns, 0) << "an RNIC needs no processor";
  EXPECT_LE(world.asked, 16u * 5 + 3);
  EXPECT_GE(world.asked, 4u * 5 + 3);
}

TEST(ConnectionCosts, OfWorkThatThePeerDoesNotTellAreTheUsual) {
  MeasuredWorld world(profile_of(PersistenceDomain::Dmp, Transport::InfiniBand));
  const auto costs = world.measure_as_writer(true);
  ASSERT_TRUE(costs.ok()) << costs.error().message;
  const plan::CostModel usual = plan::default_costs(Transport::InfiniBand);
  EXPECT_EQ(costs->copy_byte_ns, usual.copy_byte_ns);
  EXPECT_EQ(costs->flush_line_ns, usual.flush_line_ns);
  EXPECT_EQ(costs->sync_ns, usual.sync_ns);
  EXPECT_TRUE(costs->measured);
}

}  // namespace
}  // namespace perdure::client
