// Who asks for what too few of the replicas can give fences nobody, and who forces the verb that
// carries data gets it: of logs, regions and mirrors alike.
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "mirror/replicated_mirror.h"
#include "pmem/crashable_region.h"
#include "region/replicated_region.h"
#include "testing/volatile_peer.h"
#include "tests/crash/log_cluster.h"

namespace perdure {
namespace {

constexpr std::size_t kReplicas = 3;
constexpr std::chrono::seconds kPatience{10};
const std::vector<std::byte> kBytes(64, std::byte{7});

struct Asked {
  std::optional<Primary> primary{};
  Level level = Level::Durable;
};

/// Whatever was opened, with a quorum of two.
struct Opened {
  std::shared_ptr<void> it;
  std::function<Result<void>()> write;  // a little; waits until the quorum has it
  std::vector<std::string> methods;     // by replica; empty where it is down
};

using Peers = std::vector<std::unique_ptr<client::Peer>>;
using Open = Result<Opened> (*)(Cluster&, Peers, const Asked&);

Level waited_for(const Asked& asked) {
  return asked.level == Level::Durable ? Level::Committed : asked.level;
}

Result<Opened> open_log(Cluster& cluster, Peers peers, const Asked& asked) {
  WriterOptions options = cluster.options();
  options.quorum = 2;
  options.primary = asked.primary;
  options.level = asked.level;
  auto log = cluster.open(std::move(peers), options);
  if (!log.ok()) return log.error();
  const std::shared_ptr<ReplicatedLog> it = std::move(log).value();
  Opened opened{it, {}, {}};
  for (const auto& each : it->status().replicas) opened.methods.push_back(each.small_method);
  opened.write = [log = it.get(), level = waited_for(asked)]() -> Result<void> {
    const auto ticket = log->append(kBytes);
    return ticket.ok() ? log->wait(*ticket, level, kPatience) : Result<void>(ticket.error());
  };
  return opened;
}

Result<Opened> open_region(Cluster& cluster, Peers peers, const Asked& asked) {
  RegionOptions options;
  options.pool = kPool;
  options.quorum = 2;
  options.primary = asked.primary;
  options.level = asked.level;
  options.measure_costs = false;
  options.take_over = true;
  options.spin = std::chrono::microseconds(0);
  auto region = region::ReplicatedRegion::open(std::move(peers), options, cluster.world().clock());
  if (!region.ok()) return region.error();
  const std::shared_ptr<region::ReplicatedRegion> it = std::move(region).value();
  Opened opened{it, {}, {}};
  for (const auto& each : it->status().replicas) opened.methods.push_back(each.small_method);
  opened.write = [region = it.get(), level = waited_for(asked)]() -> Result<void> {
    const RangeWrite range{0, kBytes};
    const RangeEpoch epoch(&range, 1);
    const auto ticket = region->write({&epoch, 1});
    return ticket.ok() ? region->wait(*ticket, level, kPatience) : Result<void>(ticket.error());
  };
  return opened;
}

struct Mirrored {
  std::unique_ptr<pmem::CrashableRegion> memory;
  std::unique_ptr<mirror::ReplicatedMirror> mirror;
};

Result<Opened> open_mirror(Cluster& cluster, Peers peers, MirrorOptions options,
                           std::size_t bytes = 16 * 1024) {
  options.pool = kPool;
  options.measure_costs = false;
  options.take_over = true;
  options.spin = std::chrono::microseconds(0);
  const auto it = std::make_shared<Mirrored>();
  it->memory = *pmem::CrashableRegion::open({bytes, PersistenceDomain::Dmp});
  it->memory->bytes().back() = std::byte{1};  // it would seem to be lost
  auto mirror = mirror::ReplicatedMirror::open(
      *it->memory, {std::make_move_iterator(peers.begin()), std::make_move_iterator(peers.end())},
      options, cluster.world().clock());
  if (!mirror.ok()) return mirror.error();
  it->mirror = std::move(mirror).value();
  Opened opened{it, {}, {}};
  for (const auto& each : it->mirror->status().replicas) {
    opened.methods.push_back(each.small_method);
  }
  opened.write = [mirrored = it.get()]() -> Result<void> {
    std::copy(kBytes.begin(), kBytes.end(), mirrored->memory->bytes().data());
    const auto ticket = mirrored->mirror->flush({0, kBytes.size()});
    return ticket.ok() ? mirrored->mirror->wait(*ticket, kPatience) : Result<void>(ticket.error());
  };
  return opened;
}

Result<Opened> open_mirror_of_two(Cluster& cluster, Peers peers, const Asked& asked) {
  MirrorOptions options;
  options.quorum = 2;
  options.primary = asked.primary;
  return open_mirror(cluster, std::move(peers), options);
}

struct Kind {
  const char* name;
  Open open;
};

class Fencing : public testing::TestWithParam<Kind> {
 protected:
  static Peers peers_of(Cluster& cluster, const Order& are_volatile = {}) {
    Peers peers;
    for (std::size_t index = 0; index < kReplicas; ++index) {
      peers.push_back(cluster.peer(index));
      if (std::count(are_volatile.begin(), are_volatile.end(), index) == 0) continue;
      peers.back() = std::make_unique<test::VolatilePeer>(std::move(peers.back()));
    }
    return peers;
  }
  static Opened opened(Cluster& cluster, const Asked& asked = {}, const Order& are_volatile = {}) {
    auto it = GetParam().open(cluster, peers_of(cluster, are_volatile), asked);
    EXPECT_TRUE(it.ok()) << it.error().message;
    return it.ok() ? std::move(it).value() : Opened{};
  }
  static void write(const Opened& opened) {
    ASSERT_TRUE(opened.write);
    const auto written = opened.write();
    EXPECT_TRUE(written.ok()) << written.error().message;
  }
  /// The highest epoch that each pool has granted.
  static std::vector<std::uint32_t> fences(Cluster& cluster) {
    std::vector<std::uint32_t> epochs;
    for (std::size_t index = 0; index < kReplicas; ++index) {
      const Deadline soon(cluster.world().clock(), std::chrono::milliseconds(100));
      const auto pool = cluster.peer(index)->describe(kPool, soon);
      EXPECT_TRUE(pool.ok()) << pool.error().message;
      epochs.push_back(pool.ok() ? pool->epoch.value : 0);
    }
    return epochs;
  }
};

TEST_P(Fencing, WhoAsksForDurableOfTooFewFencesNobody) {
  for (const Order& are_volatile : {Order{0, 1}, Order{0, 2}, Order{1, 2}, Order{0, 1, 2}}) {
    Cluster cluster;
    const Opened live = opened(cluster);
    write(live);
    const auto before = fences(cluster);
    const auto refused = GetParam().open(cluster, peers_of(cluster, are_volatile), {});
    EXPECT_EQ(refused.code(), ErrorCode::Unsupported);
    EXPECT_EQ(fences(cluster), before);
    write(live);
  }
}

TEST_P(Fencing, OneThatCanNotGiveItIsDown) {
  for (std::size_t unfit = 0; unfit < kReplicas; ++unfit) {
    Cluster cluster;
    const Opened live = opened(cluster);
    write(live);
    const Opened next = opened(cluster, {}, {unfit});
    write(next);
    ASSERT_EQ(next.methods.size(), kReplicas);
    for (std::size_t index = 0; index < kReplicas; ++index) {
      EXPECT_EQ(next.methods[index].empty(), index == unfit) << index;
    }
    EXPECT_FALSE(live.write().ok());
  }
}

// What an RNIC writes behind a page cache is never written back: only messages will do there.
TEST_P(Fencing, WhoForcesAVerbThatTooFewCanUseFencesNobody) {
  Cluster cluster(kReplicas, kPoolBytes, PersistenceDomain::Page, Transport::InfiniBand);
  const Opened live = opened(cluster, {Primary::Send});
  write(live);
  const auto before = fences(cluster);
  for (const Primary primary : {Primary::Write, Primary::WriteImm}) {
    const auto refused = GetParam().open(cluster, peers_of(cluster), {primary});
    EXPECT_EQ(refused.code(), ErrorCode::Unsupported);
  }
  EXPECT_EQ(fences(cluster), before);
  write(live);
}

TEST_P(Fencing, WhoForcesAVerbGetsIt) {
  for (const Primary primary : {Primary::Write, Primary::WriteImm, Primary::Send}) {
    Cluster cluster(kReplicas, kPoolBytes, PersistenceDomain::Dmp, Transport::InfiniBand);
    const Opened it = opened(cluster, {primary});
    for (const std::string& method : it.methods) {
      EXPECT_TRUE(method.starts_with(std::string(to_string(primary)) + "-")) << method;
    }
    write(it);
    const Opened again = opened(cluster, {primary});
    write(again);
  }
}

INSTANTIATE_TEST_SUITE_P(Any, Fencing,
                         testing::Values(Kind{"log", open_log}, Kind{"region", open_region},
                                         Kind{"mirror", open_mirror_of_two}),
                         [](const auto& each) { return std::string(each.param.name); });

// A writer for less is there, and somebody wants more.
class FencingByLevel : public Fencing {};

TEST_P(FencingByLevel, WhoAsksForMoreThanTooFewCanGiveFencesNobody) {
  for (const Order& are_volatile : {Order{0, 1}, Order{0, 1, 2}}) {
    Cluster cluster;
    const Opened live = opened(cluster, {{}, Level::Visible}, are_volatile);
    write(live);
    const auto before = fences(cluster);
    const auto refused = GetParam().open(cluster, peers_of(cluster, are_volatile), {});
    EXPECT_EQ(refused.code(), ErrorCode::Unsupported);
    EXPECT_EQ(fences(cluster), before);
    write(live);
  }
}

TEST_P(FencingByLevel, ANewOneThatOneOfItsReplicasCanNotHoldFencesNobody) {
  Cluster cluster;
  const auto before = fences(cluster);
  EXPECT_EQ(GetParam().open(cluster, peers_of(cluster, {1}), {}).code(), ErrorCode::Unsupported);
  EXPECT_EQ(fences(cluster), before);
}

INSTANTIATE_TEST_SUITE_P(Any, FencingByLevel,
                         testing::Values(Kind{"log", open_log}, Kind{"region", open_region}),
                         [](const auto& each) { return std::string(each.param.name); });

/// Nobody answers there.
class SilentPeer final : public test::RelayedPeer {
 public:
  using RelayedPeer::RelayedPeer;
  Result<control::PoolDescription> describe(const std::string& /*pool*/, Deadline) override {
    return Error{ErrorCode::Disconnected, "nobody answers"};
  }
};

class FencingOfMirrors : public Fencing {
 protected:
  void SetUp() override {
    options_.quorum = 1;
    auto live = open_mirror(cluster_, peers_of(cluster_), options_);
    ASSERT_TRUE(live.ok()) << live.error().message;
    live_ = std::move(*live);
    write(live_);
    before_ = fences(cluster_);
  }
  void expect_undisturbed() {
    EXPECT_EQ(fences(cluster_), before_);
    write(live_);
  }

  Cluster cluster_;
  MirrorOptions options_;
  Opened live_;
  std::vector<std::uint32_t> before_;
};

// Each alone is a quorum, so that all three are needed to know which is the newest.
TEST_F(FencingOfMirrors, WhoHearsOfTooFewToKnowTheNewestFencesNobody) {
  Peers peers = peers_of(cluster_);
  peers[1] = std::make_unique<SilentPeer>(std::move(peers[1]));
  const auto refused = open_mirror(cluster_, std::move(peers), options_);
  EXPECT_EQ(refused.code(), ErrorCode::QuorumLost);
  expect_undisturbed();
}

TEST_F(FencingOfMirrors, WhoWantsAnotherOneThanIsThereFencesNobody) {
  MirrorOptions asked = options_;
  asked.start = MirrorStart::New;
  EXPECT_EQ(open_mirror(cluster_, peers_of(cluster_), asked).code(), ErrorCode::AlreadyExists);
  asked = options_;
  asked.quorum = 2;
  EXPECT_EQ(open_mirror(cluster_, peers_of(cluster_), asked).code(), ErrorCode::InvalidArgument);
  EXPECT_EQ(open_mirror(cluster_, peers_of(cluster_), options_, 8 * 1024).code(),
            ErrorCode::InvalidArgument);
  Peers fewer = peers_of(cluster_);
  fewer.pop_back();
  EXPECT_EQ(open_mirror(cluster_, std::move(fewer), options_).code(), ErrorCode::InvalidArgument);
  expect_undisturbed();
}

}  // namespace
}  // namespace perdure
