// Replicas of a region that come back while it is written: after a lost connection, a power
// failure, a daemon that died, a pool that was replaced by a blank one; with all that they missed
// still staged, or not. Judged by what the caller was told, wherever the writer dies meanwhile.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "core/bytes.h"
#include "core/random.h"
#include "pmem/pool_format.h"
#include "region/replicated_region.h"
#include "testing/faulty_device.h"
#include "testing/relayed_peer.h"
#include "testing/soak.h"
#include "testing/world_server.h"
#include "tests/crash/region_history.h"

namespace perdure::region {
namespace {

const std::string kPool = "ranges";
constexpr std::uint64_t kPoolBytes = 96 * 1024;
constexpr std::uint64_t kWord = 8;
constexpr std::size_t kWords = 2048;
constexpr auto kReconnect = std::chrono::milliseconds(10);
constexpr Nanoseconds kTry = std::chrono::milliseconds(50);

ServerProfile profile_of(std::uint64_t seed) {
  ServerProfile profile;
  profile.receive_buffers = ReceiveBuffers::Dram;
  profile.ddio = seed % 2 == 0 ? Ddio::On : Ddio::Off;
  profile.domain = seed % 3 == 0 ? PersistenceDomain::Page : PersistenceDomain::Dmp;
  profile.transport = seed % 5 == 0 ? Transport::Tcp : Transport::InfiniBand;
  profile.write_order = seed % 5 == 0 ? WriteOrder::Unknown : WriteOrder::Ordered;
  return profile;
}

/// What was met.
struct Seen {
  int updates = 0;
  int committed = 0;
  int lost = 0;        // connections
  int refused = 0;     // requests, as soon as they are posted
  int cuts = 0;        // of a server's power, with an update in flight
  int replaced = 0;    // pools
  int again = 0;       // returns by what was staged
  int copied = 0;      // and by copying
  int mixed = 0;       // replicas that a writer left so
  int deaths = 0;      // of the writer while one was coming back
  int whole_ends = 0;  // lives at whose end all replicas were equal
  int no_quorum = 0;   // writes that were refused for it
};

class Returns {
 public:
  Returns(std::uint64_t seed, Seen& seen) : random_(seed), seen_(seen) {
    const std::size_t replicas = 1 + random_.below(3);
    quorum_ = replicas / 2 + 1;
    if (random_.below(3) == 0) quorum_ = replicas;
    for (std::size_t index = 0; index < replicas; ++index) {
      servers_.push_back(*test::WorldServer::start(world_, fmt::format("server{}", index),
                                                   profile_of(seed),
                                                   {kPool, kPoolBytes, {32, 2048}}));
    }
    client_ = &world_.add_machine("client", profile_of(seed));
    for (std::size_t index = 0; index < replicas; ++index) {
      devices_.push_back(std::make_unique<test::FaultyDevice>(*client_));
    }
    reported_.resize(replicas);
    replaced_.resize(replicas);
    returning_.resize(replicas);
  }

  void live() {
    open(true);
    if (testing::Test::HasFatalFailure()) return;
    const std::uint64_t steps = 50 + random_.below(250);
    for (std::uint64_t step = 0; step < steps && !testing::Test::HasFatalFailure(); ++step) {
      one_step();
      look();
    }
    if (testing::Test::HasFatalFailure()) return;
    random_.below(2) == 0 ? die() : end_well();
  }

 private:
  void open(bool reconnects) {
    std::vector<std::unique_ptr<client::Peer>> peers;
    for (std::size_t index = 0; index < servers_.size(); ++index) {
      devices_[index]->fault() = {};
      peers.push_back(servers_[index]->peer(*devices_[index]));
    }
    RegionOptions options;
    options.pool = kPool;
    options.quorum = quorum_;
    options.staging_bytes = random_.below(3) != 0 ? 12 * 1024 : 256 * 1024;
    if (random_.below(3) == 0) options.primary = Primary::Send;  // copies take many messages
    options.measure_costs = false;
    options.take_over = true;
    options.spin = std::chrono::microseconds(0);
    if (reconnects) options.reconnect = kReconnect;
    auto opened = ReplicatedRegion::open(std::move(peers), options, world_.clock());
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    region_ = std::move(*opened);
  }

  /// What the caller is told of each replica.
  void look() {
    const RegionStatus status = region_->status();
    for (std::size_t index = 0; index < servers_.size(); ++index) {
      const auto& each = status.replicas[index];
      if (each.catching_up && !returning_[index]) {
        (each.missed_bytes > 0 ? seen_.copied : seen_.again) += 1;
      }
      returning_[index] = each.catching_up;
      // The pool that is there now has nothing, until it is said again that it has.
      const bool noticed = each.pool_uuid == pmem::to_string(servers_[index]->pool_uuid());
      if (replaced_[index] && noticed && each.up && !each.catching_up) replaced_[index] = false;
      reported_[index] = replaced_[index] ? 0 : each.resolved;
    }
  }

  void one_step() {
    switch (random_.below(28)) {
      case 0: return lose();
      case 1: return cut();
      case 2: return replace();
      case 3: return come_up();
      case 4: return refuse();
      case 5:
      case 6:
      case 7: return wait_for_some();
      case 8:
      case 9:
      case 10:
        for (const auto& device : devices_) device->fault().away = false;
        world_.tick(kTry);
        (void)region_->poll(kTry);
        return;
      case 11: return read_some();
      default: write_some();
    }
  }

  std::size_t any() { return random_.below(servers_.size()); }

  void lose() {
    world_.drop_connections(*client_, servers_[any()]->machine());
    ++seen_.lost;
  }

  /// One of the next requests goes out, and is said not to have.
  void refuse() {
    const std::size_t victim = any();
    seen_.refused += std::exchange(devices_[victim]->fault().times, 0);
    devices_[victim]->fault().from_bytes = 500 + random_.below(1500);
  }

  void cut() {
    const std::size_t victim = any();
    const RegionStatus status = region_->status();
    world_.cancel_cut();
    if (!servers_[victim]->machine().powered()) return;
    if (random_.below(3) == 0) {
      servers_[victim]->kill();
    } else {
      world_.cut_after(servers_[victim]->machine(), 1 + random_.below(300));
      seen_.cuts += status.replicas[victim].resolved < status.begun ? 1 : 0;
    }
  }

  void come_up() {
    world_.cancel_cut();
    for (const auto& device : devices_) {
      seen_.refused += device->fault().times;
      device->fault() = {};
    }
    for (const auto& server : servers_) {
      if (server->machine().powered() && server->serving()) continue;
      const auto again = server->start_again();
      ASSERT_TRUE(again.ok()) << again.error().message;
    }
  }

  /// Where all others have everything, so that nothing of what was committed goes with it: also by
  /// what the region has not noticed yet.
  void replace() {
    if (servers_.size() == 1) return;
    if (std::find(replaced_.begin(), replaced_.end(), true) != replaced_.end()) return;
    const RegionStatus status = region_->status();
    for (const auto& each : status.replicas) {
      if (!each.up || each.catching_up || each.resolved != status.begun) return;
    }
    come_up();
    const std::size_t victim = any();
    servers_[victim]->kill();
    const auto again = servers_[victim]->start_with({});
    ASSERT_TRUE(again.ok()) << again.error().message;
    replaced_[victim] = true;
    reported_[victim] = 0;
    ++seen_.replaced;
  }

  void write_some() {
    const std::uint64_t number = region_->status().begun + 1;
    std::vector<std::vector<RangeWrite>> epochs(1 + random_.below(3));
    std::vector<std::unique_ptr<std::uint64_t[]>> bytes;
    std::vector<std::pair<std::size_t, test::RegionWrite>> written;
    for (std::uint32_t index = 0; index < epochs.size(); ++index) {
      const bool tail = index + 1 == epochs.size() && random_.below(2) == 0;
      std::size_t at = tail ? 0 : random_.below(kWords / 2);
      for (std::uint64_t range = 0; range <= random_.below(3) && at < kWords; ++range) {
        const std::size_t most = random_.below(6) == 0 ? 120 : 12;
        const std::size_t count = tail ? 1 : std::min(1 + random_.below(most), kWords - at);
        bytes.push_back(std::make_unique<std::uint64_t[]>(count));
        for (std::size_t word = 0; word < count; ++word) {
          bytes.back()[word] = ++last_tag_;
          written.push_back({at + word, {number, index, last_tag_}});
        }
        epochs[index].push_back({at * kWord, std::as_bytes(std::span(bytes.back().get(), count))});
        at += count + random_.below(100);
        if (tail) break;
      }
    }
    std::vector<RangeEpoch> spans(epochs.begin(), epochs.end());
    for (const auto& [word, write] : written) history_.add(word, write);
    const auto ticket = region_->write(spans);
    if (ticket.ok()) {
      ASSERT_EQ(ticket->number, number);
      last_ticket_ = *ticket;
      ++seen_.updates;
      return;
    }
    ASSERT_EQ(ticket.code(), ErrorCode::QuorumLost) << ticket.error().message;
    for (const auto& each : written) history_.take_back(each.first, each.second.tag);
    ++seen_.no_quorum;
  }

  void wait_for_some() {
    const std::uint64_t begun = region_->status().begun;
    if (begun == 0) return;
    RegionTicket ticket = last_ticket_;
    ticket.number = 1 + random_.below(begun);
    // With nothing up no time would pass in this world while it waits.
    const auto waited = region_->wait(ticket, Level::Committed, Nanoseconds{0});
    if (!waited.ok()) {
      ASSERT_EQ(waited.code(), ErrorCode::TimedOut) << waited.error().message;
      return;
    }
    committed_ = std::max(committed_, ticket.number);
    ++seen_.committed;
  }

  /// Expect: of a replica, or of any that has everything, what it was said to have.
  void read_some() {
    const std::size_t which = random_.below(2) == 0 ? Region::kAny : any();
    const auto known = reported_;
    std::vector<std::uint64_t> words(kWords);
    const auto read = region_->read(0, std::as_writable_bytes(std::span(words)), which);
    if (!read.ok() || which == Region::kAny) return;
    if (replaced_[which]) return;
    const auto tag_of = [&](std::size_t word) { return words[word]; };
    EXPECT_TRUE(history_.has_all(tag_of, known[which])) << "replica " << which;
  }

  test::RegionHistory::TagOf tags_of(std::size_t replica) const {
    return [this, replica](std::size_t word) {
      return load<std::uint64_t>(servers_[replica]->region().bytes().data() +
                                 pmem::kPoolDataOffset + kDataAt + word * kWord);
    };
  }

  /// In the middle of whatever goes on; and every server's power fails.
  void die() {
    look();
    const bool coming = std::find(returning_.begin(), returning_.end(), true) != returning_.end();
    seen_.deaths += coming ? 1 : 0;
    const std::uint64_t begun = region_->status().begun;
    region_.reset();
    world_.cancel_cut();
    if (random_.below(2) == 0) world_.settle();
    for (const auto& server : servers_) {
      server->lose_power();
      ASSERT_TRUE(server->start_again().ok());
    }
    judge();
    const auto lost = std::count(replaced_.begin(), replaced_.end(), true);
    if (servers_.size() - static_cast<std::size_t>(lost) < quorum_) return;  // it is refused
    open(false);
    if (testing::Test::HasFatalFailure()) return;
    const RegionStatus status = region_->status();
    for (std::size_t replica = 0; replica < servers_.size(); ++replica) {
      const auto& each = status.replicas[replica];
      if (!each.up) continue;
      seen_.mixed += each.mixed ? 1 : 0;
      EXPECT_TRUE(each.mixed || history_.keeps_order(tags_of(replica)))
          << "replica " << replica << ": an epoch is there without the one before it";
      EXPECT_TRUE(begun == 0 || !each.whole || servers_.size() == 1);
    }
  }

  void judge() {
    std::size_t with_committed = 0;
    for (std::size_t replica = 0; replica < servers_.size(); ++replica) {
      if (replaced_[replica]) {
        ++with_committed;  // it went with its pool
        continue;
      }
      const auto tags = tags_of(replica);
      EXPECT_FALSE(history_.stranger(tags)) << "replica " << replica;
      EXPECT_TRUE(history_.has_all(tags, reported_[replica]))
          << "replica " << replica << " lost something of " << reported_[replica] << " updates";
      with_committed += history_.has_all(tags, committed_) ? 1 : 0;
    }
    EXPECT_GE(with_committed, quorum_) << "of " << servers_.size() << " replicas";
  }

  /// Everything is there again. Expect: so are all replicas, equal, and said to be.
  void end_well() {
    come_up();
    if (testing::Test::HasFatalFailure()) return;
    // At least once: it may not have noticed yet that a connection is lost.
    for (int round = 0; round < 20'000 && (round == 0 || !has_everything()); ++round) {
      world_.tick(std::chrono::milliseconds(1));
      (void)region_->poll(kTry);
      look();
      world_.step();
    }
    for (const auto& each : region_->status().replicas) {
      ASSERT_TRUE(each.up && !each.catching_up)
          << each.peer << " of " << servers_.size() << " did not come back: " << each.down_reason;
      EXPECT_FALSE(each.mixed);
      EXPECT_EQ(each.resolved, region_->status().begun);
    }
    const bool known = 2 * quorum_ > servers_.size();
    const auto closed = region_->close(std::chrono::seconds(10));
    ASSERT_TRUE(closed.ok()) << closed.error().message;
    region_.reset();
    for (const auto& server : servers_) {
      server->lose_power();
      ASSERT_TRUE(server->start_again().ok());
    }
    for (std::size_t replica = 0; replica < servers_.size(); ++replica) {
      for (std::size_t word = 0; word < kWords; ++word) {
        ASSERT_EQ(tags_of(replica)(word), history_.last_tag(word))
            << "replica " << replica << " of " << servers_.size() << ", word " << word;
      }
    }
    open(false);
    if (testing::Test::HasFatalFailure()) return;
    for (const auto& each : region_->status().replicas) {
      EXPECT_TRUE(each.whole || !known) << each.peer;
      EXPECT_FALSE(each.mixed);
    }
    ++seen_.whole_ends;
  }

  bool has_everything() const {
    const RegionStatus status = region_->status();
    return std::all_of(status.replicas.begin(), status.replicas.end(), [&](const auto& each) {
      return each.up && !each.catching_up && each.resolved == status.begun;
    });
  }

  Random random_;
  Seen& seen_;
  fabric::emu::World world_{random_};
  std::vector<std::unique_ptr<test::WorldServer>> servers_;
  fabric::emu::Machine* client_ = nullptr;
  std::vector<std::unique_ptr<test::FaultyDevice>> devices_;  // its, by replica
  std::size_t quorum_ = 0;
  std::unique_ptr<ReplicatedRegion> region_;
  test::RegionHistory history_{kWords};
  std::vector<std::uint64_t> reported_;  // by replica: the last update
  std::vector<bool> replaced_;           // by replica: its pool is a new one without everything
  std::vector<bool> returning_;
  RegionTicket last_ticket_;
  std::uint64_t committed_ = 0;
  std::uint64_t last_tag_ = 0;
};

TEST(RegionReturn, WhatWasReportedStaysWhereverItComesBackOrTheWriterDies) {
  Seen seen;
  const std::uint64_t worlds = test::rounds(120, 20'000);
  for (std::uint64_t seed = 1; seed <= worlds && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Returns(seed, seen).live();
  }
  std::printf(
      "updates %d, committed %d, connections lost %d, requests refused %d, power cuts %d, pools "
      "replaced %d, returns "
      "from staging %d, by copy %d, deaths in one %d, left mixed %d, whole ends %d, without a "
      "quorum %d\n",
      seen.updates, seen.committed, seen.lost, seen.refused, seen.cuts, seen.replaced, seen.again,
      seen.copied, seen.deaths, seen.mixed, seen.whole_ends, seen.no_quorum);
  for (const int met :
       {seen.committed, seen.lost, seen.refused, seen.cuts, seen.replaced, seen.again, seen.copied,
        seen.deaths, seen.mixed, seen.whole_ends, seen.no_quorum}) {
    EXPECT_GT(met, 0);
  }
}

Result<std::unique_ptr<ReplicatedRegion>> open_one(test::WorldServer& server,
                                                   fabric::emu::Machine& client, const Clock& clock,
                                                   Level level = Level::Durable) {
  std::vector<std::unique_ptr<client::Peer>> peers;
  peers.push_back(server.peer(client));
  RegionOptions options;
  options.pool = kPool;
  options.level = level;
  options.measure_costs = false;
  options.take_over = true;
  options.spin = std::chrono::microseconds(0);
  options.reconnect = kReconnect;
  return ReplicatedRegion::open(std::move(peers), options, clock);
}

// It lost its connection, and another writer came and went. Expect: it is told so, comes back to
// nothing, and writes over nothing that the other wrote.
TEST(RegionReturn, WhoWasFencedMeanwhileDoesNotComeBack) {
  Random random(3);
  fabric::emu::World world(random);
  const ServerProfile profile = profile_of(1);
  auto server =
      *test::WorldServer::start(world, "server", profile, {kPool, kPoolBytes, {32, 2048}});
  fabric::emu::Machine& client = world.add_machine("client", profile);
  auto first = open_one(*server, client, world.clock());
  ASSERT_TRUE(first.ok()) << first.error().message;
  const std::uint64_t mine = 1;
  const std::uint64_t theirs = 2;
  RangeWrite range{0, bytes_of(mine)};
  const RangeEpoch epoch(&range, 1);
  ASSERT_TRUE((*first)->write({&epoch, 1}).ok());
  world.drop_connections(client, server->machine());
  {
    auto second = open_one(*server, client, world.clock());
    ASSERT_TRUE(second.ok()) << second.error().message;
    range.bytes = bytes_of(theirs);
    ASSERT_TRUE((*second)->write({&epoch, 1}).ok());
    ASSERT_TRUE((*second)->close(std::chrono::seconds(10)).ok());
  }
  Result<void> polled;
  for (int round = 0; round < 1000 && (polled.ok() || polled.code() != ErrorCode::Fenced);
       ++round) {
    world.tick(std::chrono::milliseconds(20));
    polled = (*first)->poll(kTry);
  }
  EXPECT_EQ(polled.code(), ErrorCode::Fenced);
  EXPECT_FALSE((*first)->status().replicas[0].up);
  EXPECT_EQ((*first)->wait({1, 0}, Level::Durable, kTry).code(), ErrorCode::InvalidArgument);
  EXPECT_EQ(load<std::uint64_t>(server->region().bytes().data() + pmem::kPoolDataOffset + kDataAt),
            theirs);
}

// A word is written and added to, and the connection is lost in between. Expect: the addition was
// done once or not at all, and stays so: nothing that is sent again is stored over it.
TEST(RegionReturn, AnAtomicThatWasSeenIsNotTakenBack) {
  constexpr std::uint64_t kWritten = 100;
  int unknown = 0;
  int added_unknown = 0;
  for (std::uint64_t seed = 1; seed <= 100 && !HasFailure(); ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Random random(seed);
    fabric::emu::World world(random);
    const ServerProfile profile = profile_of(seed);
    auto server =
        *test::WorldServer::start(world, "server", profile, {kPool, kPoolBytes, {32, 2048}});
    fabric::emu::Machine& client = world.add_machine("client", profile);
    auto region = open_one(*server, client, world.clock());
    ASSERT_TRUE(region.ok()) << region.error().message;
    const RangeWrite range{0, bytes_of(kWritten)};
    const RangeEpoch epoch(&range, 1);
    ASSERT_TRUE((*region)->write({&epoch, 1}).ok());
    world.after(1 + random.below(60), [&] { world.drop_connections(client, server->machine()); });
    const auto added = (*region)->atomic({persist::AtomicOperation::FetchAdd, 0, 1, 0});
    world.cancel_after();
    std::uint64_t word = 0;
    const auto read = [&] {
      return (*region)->read(0, std::as_writable_bytes(std::span(&word, 1)), 0).ok();
    };
    std::uint64_t seen = 0;
    for (int round = 0; round < 1000 && (seen == 0 || (*region)->status().may_differ); ++round) {
      world.tick(std::chrono::milliseconds(20));
      (void)(*region)->poll(kTry);
      if (!read()) continue;
      EXPECT_GE(word, seen);
      seen = word;
    }
    ASSERT_TRUE((*region)->flush(Level::Durable, std::chrono::seconds(10)).ok());
    ASSERT_TRUE(read());
    EXPECT_EQ(word, seen);
    EXPECT_TRUE(!added.ok() || word == kWritten + 1);
    if (added.ok() || added.code() != ErrorCode::OutcomeUnknown) continue;
    ++unknown;
    added_unknown += word == kWritten + 1 ? 1 : 0;
  }
  EXPECT_GT(unknown, added_unknown);
  EXPECT_GT(added_unknown, 0);
}

struct Group {
  explicit Group(std::size_t quorum, const std::vector<std::string>& names = {"one", "other"},
                 std::optional<Primary> asked = std::nullopt, std::uint64_t pool_bytes = kPoolBytes)
      : primary(asked) {
    for (const std::string& name : names) {
      servers.push_back(
          *test::WorldServer::start(world, name, profile_of(1), {kPool, pool_bytes, {32, 2048}}));
    }
    open_again(quorum);
  }
  void open_again(std::size_t quorum) {
    region.reset();
    auto opened = try_to_open(quorum);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    region = std::move(*opened);
  }
  Result<std::unique_ptr<ReplicatedRegion>> try_to_open(std::size_t quorum) {
    std::vector<std::unique_ptr<client::Peer>> peers;
    for (const auto& server : servers) peers.push_back(server->peer(client));
    return open_with(std::move(peers), quorum);
  }
  void open(std::vector<std::unique_ptr<client::Peer>> peers, std::size_t quorum) {
    auto opened = open_with(std::move(peers), quorum);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    region = std::move(*opened);
  }
  Result<std::unique_ptr<ReplicatedRegion>> open_with(
      std::vector<std::unique_ptr<client::Peer>> peers, std::size_t quorum) {
    RegionOptions options;
    options.pool = kPool;
    options.quorum = quorum;
    options.staging_bytes = 12 * 1024;
    options.measure_costs = false;
    options.primary = primary;
    options.take_over = true;
    options.spin = std::chrono::microseconds(0);
    options.reconnect = kReconnect;
    return ReplicatedRegion::open(std::move(peers), options, world.clock());
  }
  /// Fills bytes with `value`, a KiB at a time.
  void fill(std::uint64_t at, std::uint64_t bytes, std::byte value) {
    const std::vector<std::byte> piece(1024, value);
    for (const std::uint64_t end = at + bytes; at < end; at += piece.size()) {
      const RangeWrite range{at, piece};
      const RangeEpoch epoch(&range, 1);
      const auto written = region->write({&epoch, 1});
      ASSERT_TRUE(written.ok()) << written.error().message;
    }
  }
  RegionReplicaStatus status(std::size_t index) const { return region->status().replicas[index]; }
  /// One goes, and the other one while the first is being copied to: what is behind `first` only
  /// the second has, up to `all`, and what is before it only the first.
  void lack_each_others(std::uint64_t first, std::uint64_t all) {
    servers[0]->kill();
    fill(first, all - first, std::byte{1});
    ASSERT_TRUE(servers[0]->start_again().ok());
    ASSERT_TRUE(poll_until([&] { return status(0).catching_up; }));
    servers[1]->kill();
    fill(0, first, std::byte{2});
    ASSERT_FALSE(status(1).up);
    ASSERT_GT(status(0).missed_bytes, 0u);
    ASSERT_GT(status(1).missed_bytes, 0u);
  }
  bool have_caught_up() const {
    return status(0).up && status(1).up && !status(0).catching_up && !status(1).catching_up;
  }
  /// Until the condition holds, for long enough to come back.
  bool poll_until(const std::function<bool()>& holds) {
    for (int round = 0; round < 1000 && !holds(); ++round) {
      world.tick(std::chrono::milliseconds(20));
      (void)region->poll(kTry);
    }
    return holds();
  }

  std::optional<Primary> primary;
  Random random{3};
  fabric::emu::World world{random};
  fabric::emu::Machine& client = world.add_machine("client", profile_of(1));
  std::vector<std::unique_ptr<test::WorldServer>> servers;
  std::unique_ptr<ReplicatedRegion> region;
};

// A counter on three replicas; connections break, and machines lose their power, one at a time.
// Expect: each addition that was reported is counted once, an unknown one once or not at all.
TEST(RegionReturn, AtomicsOfSeveralReplicasAreDoneOnce) {
  int unknown_ones = 0;
  int refused = 0;
  for (std::uint64_t seed = 1; seed <= 30 && !HasFailure(); ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Group group(2, {"one", "other", "third"});
    ASSERT_NE(group.region, nullptr);
    Random random(seed);
    std::uint64_t low = 0;  // what the word may be
    std::uint64_t high = 0;
    for (int round = 0; round < 20; ++round) {
      test::WorldServer& struck = *group.servers[random.below(3)];
      const bool loses_power = random.below(2) == 0;
      const std::uint64_t events = 1 + random.below(300);
      if (loses_power) {
        group.world.cut_after(struck.machine(), events);
      } else {
        group.world.after(events,
                          [&] { group.world.drop_connections(group.client, struck.machine()); });
      }
      const auto added = group.region->atomic({persist::AtomicOperation::FetchAdd, 0, 1, 0});
      group.world.cancel_after();
      group.world.cancel_cut();
      if (added.ok()) {
        EXPECT_GE(*added, low);
        EXPECT_LE(*added, high);
        low = high = *added + 1;
      } else if (added.code() == ErrorCode::OutcomeUnknown) {
        ++high;
        ++unknown_ones;
      } else {
        ++refused;
      }
      EXPECT_TRUE(!loses_power || struck.start_again().ok());
      EXPECT_TRUE(group.poll_until([&] { return !group.region->status().may_differ; }));
    }
    int polls = 0;  // a connection that has ended is noticed some time later
    EXPECT_TRUE(group.poll_until([&] {
      const auto is_back = [](const RegionReplicaStatus& each) {
        return each.up && !each.catching_up;
      };
      const RegionStatus now = group.region->status();
      return ++polls > 100 && std::all_of(now.replicas.begin(), now.replicas.end(), is_back);
    }));
    ASSERT_TRUE(group.region->flush(Level::Committed, std::chrono::seconds(10)).ok());
    for (std::size_t index = 0; index < 3; ++index) {
      std::uint64_t word = 0;
      ASSERT_TRUE(group.region->read(0, std::as_writable_bytes(std::span(&word, 1)), index).ok());
      EXPECT_GE(word, low) << index;
      EXPECT_LE(word, high) << index;
    }
  }
  RecordProperty("unknown", unknown_ones);
  RecordProperty("refused", refused);
}

// Another writer has taken the region over, and one replica has not heard of that yet: it was away.
TEST(RegionReturn, AnAtomicOfAWriterThatWasReplacedTellsAndChangesNothing) {
  Group group(2, {"one", "other", "third"});
  ASSERT_NE(group.region, nullptr);
  const persist::Atomic add{persist::AtomicOperation::FetchAdd, 8, 1, 0};
  EXPECT_EQ(group.region->atomic(add).value(), 0u);
  group.servers[2]->kill();
  auto second = group.try_to_open(2);
  ASSERT_TRUE(second.ok()) << second.error().message;
  ASSERT_TRUE(group.servers[2]->start_again().ok());
  for (const auto operation :
       {persist::AtomicOperation::FetchAdd, persist::AtomicOperation::CompareSwap}) {
    const auto refused = group.region->atomic({operation, 8, 5, 77});
    ASSERT_FALSE(refused.ok()) << *refused;
    EXPECT_NE(refused.code(), ErrorCode::OutcomeUnknown) << refused.error().message;
  }
  std::uint64_t word = 0;
  ASSERT_TRUE((*second)->read(8, std::as_writable_bytes(std::span(&word, 1)), 0).ok());
  EXPECT_EQ(word, 1u);
}

// Replicas that a writer has left behind may differ in the word.
TEST(RegionReturn, AnAtomicIsRefusedWhereReplicasMayDiffer) {
  Group group(2, {"one", "other", "third"});
  ASSERT_NE(group.region, nullptr);
  const persist::Atomic add{persist::AtomicOperation::FetchAdd, 8, 1, 0};
  EXPECT_EQ(group.region->atomic(add).value(), 0u);
  const std::uint64_t word = 7;
  const RangeWrite range{8, bytes_of(word)};
  const RangeEpoch epoch(&range, 1);
  ASSERT_TRUE(group.region->write({&epoch, 1}).ok());
  group.open_again(2);  // nobody has closed it
  ASSERT_NE(group.region, nullptr);
  EXPECT_EQ(group.region->atomic(add).code(), ErrorCode::Unsupported);
  ASSERT_TRUE(group.region->write({&epoch, 1}).ok());
  ASSERT_TRUE(group.region->note_equal().ok());
  EXPECT_EQ(group.region->atomic(add).value(), 7u);
}

// Each lacks what the other has: one went while the other one was being copied to. Expect: each
// gets that from the other one.
TEST(RegionReturn, TwoThatLackDifferentBytesBringEachOtherBack) {
  constexpr std::uint64_t kFirst = 14 * 1024;
  constexpr std::uint64_t kAll = kFirst + kLandingBytes + 2 * 1024;
  Group group(1);
  ASSERT_NE(group.region, nullptr);
  group.lack_each_others(kFirst, kAll);
  ASSERT_FALSE(HasFatalFailure());
  ASSERT_TRUE(group.servers[1]->start_again().ok());
  EXPECT_TRUE(group.poll_until([&] {
    return !group.region->status().may_differ || group.have_caught_up();
  })) << group.status(0).missed_bytes
      << " and " << group.status(1).missed_bytes << " bytes are missed";
  EXPECT_TRUE(group.region->flush(Level::Committed, std::chrono::seconds(10)).ok());
  for (std::size_t index = 0; index < 2; ++index) {
    std::vector<std::byte> bytes(kAll);
    ASSERT_TRUE(group.region->read(0, bytes, index).ok());
    for (std::uint64_t at = 0; at < kAll; ++at) {
      ASSERT_EQ(bytes[at], at < kFirst ? std::byte{2} : std::byte{1}) << index << " at " << at;
    }
  }
}

// What the other replica missed is on its way to this one, in a message that its processor has yet
// to copy: a READ finds what was there before. Expect: it is copied from here once it is there.
TEST(RegionReturn, WhatItsSourceHasInFlightIsCopiedOnceItIsThere) {
  constexpr std::uint64_t kAll = 14 * 1024;
  Group group(1, {"one", "other"}, Primary::Send);
  ASSERT_NE(group.region, nullptr);
  group.servers[1]->kill();
  group.fill(0, kAll, std::byte{1});
  ASSERT_TRUE(group.poll_until([&] {
    return !group.status(1).up && group.status(0).resolved == group.region->status().begun;
  }));
  group.servers[0]->machine().starve(true);
  group.fill(1024, 1024, std::byte{2});
  ASSERT_TRUE(group.servers[1]->start_again().ok());
  for (int round = 0; round < 20; ++round) {
    group.world.tick(kReconnect);
    (void)group.region->poll(kReconnect);
  }
  ASSERT_TRUE(group.status(0).up);
  ASSERT_TRUE(group.status(1).catching_up);
  ASSERT_LT(group.status(0).resolved, group.region->status().begun);
  group.servers[0]->machine().starve(false);
  EXPECT_TRUE(group.poll_until([&] { return group.have_caught_up(); }));
  EXPECT_TRUE(group.region->flush(Level::Committed, std::chrono::seconds(10)).ok());
  for (std::size_t index = 0; index < 2; ++index) {
    std::vector<std::byte> bytes(kAll);
    ASSERT_TRUE(group.region->read(0, bytes, index).ok());
    for (std::uint64_t at = 0; at < kAll; ++at) {
      const std::byte expected = at >= 1024 && at < 2048 ? std::byte{2} : std::byte{1};
      ASSERT_EQ(bytes[at], expected) << index << " at " << at;
    }
  }
}

/// Of a replica that is copied to: an update is in flight to it, the copy's next message is refused
/// while another update is begun, and its power fails. Whether it was; in the end it has both.
bool refuse_while_it_is_copied_to(std::uint64_t polls, std::uint64_t later_polls) {
  constexpr std::uint64_t kAll = 4 * kLandingBytes;
  Group group(1, {"one", "other"}, Primary::Send, 2 * kAll);
  test::FaultyDevice device(group.client);
  std::vector<std::unique_ptr<client::Peer>> peers;
  peers.push_back(group.servers[0]->peer(group.client));
  peers.push_back(group.servers[1]->peer(device));
  group.region.reset();
  group.open(std::move(peers), 1);
  group.servers[1]->kill();
  group.fill(0, kAll, std::byte{1});
  EXPECT_TRUE(group.servers[1]->start_again().ok());
  EXPECT_TRUE(group.poll_until([&] { return group.status(1).catching_up; }));
  const auto write = [&](std::uint64_t at) {
    const std::vector<std::byte> piece(64, std::byte{2});
    const RangeWrite range{at, piece};
    const RangeEpoch epoch(&range, 1);
    EXPECT_TRUE(group.region->write({&epoch, 1}).ok());
  };
  for (std::uint64_t poll = 0; poll < polls; ++poll) (void)group.region->poll();
  write(kAll);
  group.servers[1]->machine().starve(true);
  for (std::uint64_t poll = 0; poll < later_polls; ++poll) (void)group.region->poll();
  for (int step = 0; step < 100; ++step) group.world.step();
  device.fault().from_bytes = 1500;
  write(kAll + 64);
  device.fault().from_bytes = 0;
  device.fault().away = false;
  group.servers[1]->lose_power();
  group.servers[1]->machine().starve(false);
  EXPECT_TRUE(group.servers[1]->start_again().ok());
  EXPECT_TRUE(group.poll_until([&] { return group.have_caught_up(); }));
  EXPECT_TRUE(group.region->flush(Level::Committed, std::chrono::seconds(10)).ok());
  std::vector<std::byte> bytes(128);
  EXPECT_TRUE(group.region->read(kAll, bytes, 1).ok());
  EXPECT_EQ(bytes, std::vector<std::byte>(128, std::byte{2}))
      << "after " << polls << " and " << later_polls;
  group.region.reset();
  return device.fault().times > 0;
}

TEST(RegionReturn, WhatIsInFlightToOneThatGoesWhileItIsCopiedToIsMissed) {
  int met = 0;
  for (std::uint64_t polls = 0; polls < 12; ++polls) {
    for (std::uint64_t later = 0; later < 4; ++later) {
      met += refuse_while_it_is_copied_to(polls, later) ? 1 : 0;
    }
  }
  EXPECT_GT(met, 0);
}

// Each lacks what the other has, and the last that was there went with an update in flight, which
// so is on none. Expect: it is still staged, and both get it from there.
TEST(RegionReturn, WhatIsOnNoneIsStillStaged) {
  constexpr std::uint64_t kFirst = 14 * 1024;
  constexpr std::uint64_t kAll = kFirst + kLandingBytes + 2 * 1024;
  Group group(1);
  ASSERT_NE(group.region, nullptr);
  group.lack_each_others(kFirst, kAll);
  ASSERT_FALSE(HasFatalFailure());
  ASSERT_TRUE(group.region->poll().ok());
  group.fill(1024, 1024, std::byte{3});
  group.servers[0]->kill();
  EXPECT_EQ(group.region->poll().code(), ErrorCode::QuorumLost);
  for (const auto& server : group.servers) ASSERT_TRUE(server->start_again().ok());
  EXPECT_TRUE(group.poll_until([&] { return group.have_caught_up(); }))
      << group.status(0).missed_bytes << " and " << group.status(1).missed_bytes
      << " bytes are missed";
  EXPECT_TRUE(group.region->flush(Level::Committed, std::chrono::seconds(10)).ok());
  for (std::size_t index = 0; index < 2; ++index) {
    std::vector<std::byte> bytes(kAll);
    ASSERT_TRUE(group.region->read(0, bytes, index).ok());
    for (std::uint64_t at = 0; at < kAll; ++at) {
      const bool last = at >= 1024 && at < 2048;
      const std::byte expected = last ? std::byte{3} : at < kFirst ? std::byte{2} : std::byte{1};
      ASSERT_EQ(bytes[at], expected) << index << " at " << at;
    }
  }
}

// The pool was replaced by a blank one, and there is nobody to copy from. Expect: nothing is said
// of the new pool that the old one had.
TEST(RegionReturn, WhatAReplicaHadIsNotSaidOfThePoolInItsPlace) {
  Group group(1);
  ASSERT_NE(group.region, nullptr);
  group.fill(0, 1024, std::byte{1});
  ASSERT_TRUE(group.poll_until([&] { return group.status(0).resolved == 1; }));
  for (const auto& server : group.servers) server->kill();
  ASSERT_TRUE(group.servers[0]->start_with({}).ok());
  const std::string other = pmem::to_string(group.servers[0]->pool_uuid());
  ASSERT_TRUE(group.poll_until([&] { return group.status(0).pool_uuid == other; }));
  EXPECT_FALSE(group.status(0).up) << "nobody has what it lacks";
  EXPECT_EQ(group.status(0).resolved, 0u);
  EXPECT_FALSE(group.status(0).whole);
}

// An older copy of the pool is put in its place, and its return is interrupted: once after each
// number of events. Expect: it is no replica before it has got everything.
TEST(RegionReturn, AnOlderCopyWhoseReturnIsInterruptedIsStillOld) {
  constexpr std::uint64_t kAll = 2 * 1024;
  bool interrupted = true;
  for (std::uint64_t events = 1; interrupted && !HasFailure(); ++events) {
    SCOPED_TRACE(fmt::format("after {} events", events));
    Group group(2);
    ASSERT_NE(group.region, nullptr);
    group.fill(0, kAll, std::byte{1});
    ASSERT_TRUE(group.region->close(std::chrono::seconds(10)).ok());
    group.region.reset();
    const auto bytes = group.servers[1]->region().bytes();
    const std::vector<std::byte> older(bytes.begin(), bytes.end());
    group.open_again(2);
    ASSERT_NE(group.region, nullptr);
    group.fill(0, kAll, std::byte{2});
    ASSERT_TRUE(group.region->flush(Level::Committed, std::chrono::seconds(10)).ok());
    ASSERT_FALSE(group.region->status().may_differ);
    ASSERT_TRUE(group.servers[1]->start_with(older).ok());
    ASSERT_TRUE(group.poll_until([&] { return !group.status(1).up; }));
    interrupted = false;
    group.world.after(events, [&] {
      interrupted = true;
      group.world.drop_connections(group.client, group.servers[1]->machine());
    });
    EXPECT_TRUE(group.poll_until([&] { return group.have_caught_up(); }));
    group.world.cancel_after();
    std::vector<std::byte> found(kAll);
    ASSERT_TRUE(group.region->read(0, found, 1).ok());
    EXPECT_EQ(std::count(found.begin(), found.end(), std::byte{2}), kAll);
  }
}

// One missed the session before, and another one so many bytes, here and there, that what lies
// between them counts as missed. Expect: that is not copied from the one that has it as it once
// was.
TEST(RegionReturn, WhatLiesBetweenIsNotCopiedFromWhoMissedItBefore) {
  constexpr std::uint64_t kApart = 2 * kWord;
  constexpr std::size_t kTogether = 128;
  const std::uint64_t pieces = 2 * MissedRanges::kPiecesMax;
  Group group(2, {"old", "one", "other"}, std::nullopt, kDataAt + pieces * kApart);
  ASSERT_NE(group.region, nullptr);
  group.fill(0, pieces * kApart, std::byte{1});
  ASSERT_TRUE(group.region->close(std::chrono::seconds(10)).ok());
  group.servers[0]->kill();
  group.open_again(2);
  ASSERT_NE(group.region, nullptr);
  group.fill(0, pieces * kApart, std::byte{2});
  ASSERT_TRUE(group.region->close(std::chrono::seconds(10)).ok());
  ASSERT_TRUE(group.servers[0]->start_again().ok());
  group.open_again(2);
  ASSERT_NE(group.region, nullptr);
  ASSERT_FALSE(group.status(0).whole);
  ASSERT_TRUE(group.status(2).whole);
  group.servers[2]->kill();
  const std::vector<std::byte> word(kWord, std::byte{3});
  for (std::uint64_t piece = 0; piece < pieces; piece += kTogether) {
    std::vector<RangeWrite> ranges;
    for (std::uint64_t each = piece; each < piece + kTogether; ++each) {
      ranges.push_back({each * kApart, word});
    }
    const RangeEpoch epoch(ranges);
    ASSERT_TRUE(group.region->write({&epoch, 1}).ok());
  }
  ASSERT_GT(group.status(2).missed_bytes, pieces * kWord) << "nothing lies between";
  ASSERT_TRUE(group.servers[2]->start_again().ok());
  ASSERT_TRUE(group.poll_until([&] { return group.status(2).catching_up; }));
  for (int round = 0; round < 1'000'000 && group.status(2).missed_bytes != 0; ++round) {
    ASSERT_TRUE(group.region->poll().ok());
  }
  ASSERT_TRUE(group.poll_until([&] { return !group.status(2).catching_up; }));
  ASSERT_TRUE(group.region->flush(Level::Committed, std::chrono::seconds(10)).ok());
  ASSERT_TRUE(group.status(2).whole);
  std::vector<std::byte> found(pieces * kApart);
  ASSERT_TRUE(group.region->read(0, found, 2).ok());
  EXPECT_EQ(std::count(found.begin(), found.end(), std::byte{1}), 0);
  EXPECT_EQ(std::count(found.begin(), found.end(), std::byte{2}), pieces * kWord);
}

// A blank pool is being made a replica when writer and source are lost, once after each number of
// events; of the two that are left one has missed the session, and is coming back. Expect: the
// region is not opened with the other one beside it, or none is said to have everything.
TEST(RegionReturn, APoolThatWasJustTakenSpeaksForNoOlderReplica) {
  constexpr std::uint64_t kAll = 2 * 1024;
  int opened = 0;
  bool there = false;
  for (std::uint64_t events = 1; !there && !HasFailure(); ++events) {
    SCOPED_TRACE(fmt::format("after {} events", events));
    Group group(2, {"source", "old", "new"});
    ASSERT_NE(group.region, nullptr);
    group.fill(0, kAll, std::byte{1});
    ASSERT_TRUE(group.region->close(std::chrono::seconds(10)).ok());
    group.servers[1]->kill();
    group.open_again(2);
    ASSERT_NE(group.region, nullptr);
    group.fill(0, kAll, std::byte{2});
    ASSERT_TRUE(group.region->flush(Level::Committed, std::chrono::seconds(10)).ok());
    ASSERT_TRUE(group.servers[2]->start_with({}).ok());
    ASSERT_TRUE(group.servers[1]->start_again().ok());  // else the blank one would not be taken in
    group.world.cut_after(group.servers[2]->machine(), events);
    for (int round = 0; round < 200 && !there && group.servers[2]->machine().powered(); ++round) {
      group.world.tick(std::chrono::milliseconds(20));
      (void)group.region->poll(kTry);
      there = group.status(2).up && !group.status(2).catching_up;
    }
    group.world.cancel_cut();
    group.region.reset();
    group.servers[0]->lose_power();
    group.servers[2]->lose_power();
    for (const std::size_t each : {1, 2}) ASSERT_TRUE(group.servers[each]->start_again().ok());
    const auto again = group.try_to_open(2);
    if (!again.ok()) continue;
    ++opened;
    for (const auto& each : (*again)->status().replicas) {
      EXPECT_TRUE(!each.whole || there) << each.peer << " has what the session before wrote";
    }
  }
  EXPECT_GT(opened, 1);
}

// One is down, and another one's pool was replaced by a blank one, which knows of no writer.
// Expect: it makes no quorum with the one that is left, since a newer writer may have the one that
// is down.
TEST(RegionReturn, ABlankPoolIsNoEvidenceThatNobodyHasTheRest) {
  Group group(2, {"one", "two", "three"});
  ASSERT_NE(group.region, nullptr);
  group.fill(0, 1024, std::byte{1});
  ASSERT_TRUE(group.region->flush(Level::Committed, std::chrono::seconds(10)).ok());
  group.servers[1]->kill();
  group.servers[2]->kill();
  ASSERT_TRUE(group.servers[2]->start_with({}).ok());
  const std::string blank = pmem::to_string(group.servers[2]->pool_uuid());
  ASSERT_TRUE(group.poll_until([&] { return group.status(2).pool_uuid == blank; }));
  EXPECT_FALSE(group.poll_until([&] { return group.status(2).up; }));
  EXPECT_NE(group.status(2).down_reason.find("blank"), std::string::npos)
      << group.status(2).down_reason;
  ASSERT_TRUE(group.servers[1]->start_again().ok());
  EXPECT_TRUE(group.poll_until([&] { return !group.region->status().may_differ; }));
}

// Another region's pool is in the place of one. Expect: its writer is not fenced, and nothing is
// written there.
TEST(RegionReturn, AStrangersPoolIsLookedAtBeforeItsWriterIsDisturbed) {
  Group stranger(1, {"stranger"});
  Group group(2, {"one", "two", "three"});
  ASSERT_TRUE(stranger.region != nullptr && group.region != nullptr);
  stranger.fill(0, 1024, std::byte{7});
  ASSERT_TRUE(stranger.region->close(std::chrono::seconds(10)).ok());
  for (int session = 0; session < 3; ++session) {
    group.open_again(2);
    ASSERT_NE(group.region, nullptr);
  }
  const auto theirs = stranger.servers[0]->region().bytes();
  const std::vector<std::byte> before(theirs.begin(), theirs.end());
  group.servers[2]->kill();
  ASSERT_TRUE(group.servers[2]->start_with(before).ok());
  const auto epoch = group.servers[2]->service().describe(kPool)->epoch;
  ASSERT_TRUE(group.poll_until([&] {
    return group.status(2).down_reason.find("another region") != std::string::npos;
  })) << group.status(2).down_reason;
  EXPECT_EQ(group.servers[2]->service().describe(kPool)->epoch, epoch);
  EXPECT_TRUE(std::ranges::equal(group.servers[2]->region().bytes(), before));
}

// A writer never waits for its last updates. Expect: a return ends all the same.
TEST(RegionReturn, ItEndsWhileUpdatesAreAlwaysInFlight) {
  constexpr std::uint64_t kBehind = 8;
  Group group(2, {"one", "two", "three"});
  ASSERT_NE(group.region, nullptr);
  group.servers[0]->kill();
  group.fill(0, 20 * 1024, std::byte{1});
  ASSERT_TRUE(group.servers[0]->start_again().ok());
  ASSERT_TRUE(group.poll_until([&] { return group.status(0).missed_bytes != 0; }));
  const std::vector<std::byte> word(kWord, std::byte{2});
  const RangeWrite range{24 * 1024, word};
  const RangeEpoch epoch(&range, 1);
  std::deque<RegionTicket> open;
  bool over = false;
  for (int round = 0; round < 20'000 && !over; ++round) {
    const auto written = group.region->write({&epoch, 1});
    ASSERT_TRUE(written.ok()) << written.error().message;
    open.push_back(*written);
    if (open.size() <= kBehind) continue;
    ASSERT_TRUE(group.region->wait(open.front(), Level::Committed, std::chrono::seconds(1)).ok());
    open.pop_front();
    (void)group.region->poll(std::chrono::microseconds(1));
    over = group.status(0).up && !group.status(0).catching_up;
  }
  EXPECT_TRUE(over) << group.status(0).missed_bytes << " bytes are missed";
}

// There is no time for a copy when the region is closed. Expect: those that have everything are
// known to the next opening.
TEST(RegionReturn, WhoIsClosedInTheMidstOfACopyLeavesTheOthersWhole) {
  constexpr std::uint64_t kBytes = std::uint64_t{8} << 20;
  Group group(2, {"one", "two", "three"}, std::nullopt, kDataAt + kBytes);
  ASSERT_NE(group.region, nullptr);
  group.fill(0, 64 * 1024, std::byte{1});
  ASSERT_TRUE(group.region->flush(Level::Committed, std::chrono::seconds(10)).ok());
  group.servers[2]->kill();
  ASSERT_TRUE(group.servers[2]->start_with({}).ok());
  ASSERT_TRUE(group.poll_until([&] { return group.status(2).catching_up; }));
  ASSERT_GT(group.status(2).missed_bytes, kBytes / 2);
  EXPECT_EQ(group.region->close(std::chrono::milliseconds(1)).code(), ErrorCode::TimedOut);
  group.open_again(2);
  ASSERT_NE(group.region, nullptr);
  for (const std::size_t each : {0, 1}) EXPECT_TRUE(group.status(each).whole) << each;
  EXPECT_FALSE(group.status(2).whole);
}

// What is up lacks what only the other one has. Expect: it is not read for want of another, and a
// region that is closed so is not said to have reached its quorum.
TEST(RegionReturn, WhoIsJustComingBackIsReadOnlyByName) {
  constexpr std::uint64_t kFirst = 14 * 1024;
  Group group(1);
  ASSERT_NE(group.region, nullptr);
  group.lack_each_others(kFirst, kFirst + kLandingBytes + 2 * 1024);
  ASSERT_FALSE(HasFatalFailure());
  std::vector<std::byte> bytes(1024);
  EXPECT_EQ(group.region->read(kFirst, bytes, Region::kAny).code(), ErrorCode::Disconnected);
  EXPECT_TRUE(group.region->read(kFirst, bytes, 0).ok());
  EXPECT_EQ(group.region->close(std::chrono::seconds(5)).code(), ErrorCode::QuorumLost);
}

// Those that are up are said to hold the same while one is down. Expect: that one is no longer
// whole, and gets everything.
TEST(RegionReturn, WhoWasDownWhenTheOthersWereNotedAsEqualGetsEverything) {
  Group group(2, {"one", "two", "three"});
  ASSERT_NE(group.region, nullptr);
  group.fill(0, 4 * 1024, std::byte{1});
  ASSERT_TRUE(group.region->flush(Level::Committed, std::chrono::seconds(10)).ok());
  group.servers[2]->kill();
  group.fill(0, 1024, std::byte{2});
  ASSERT_TRUE(group.poll_until([&] { return !group.status(2).up; }));
  ASSERT_TRUE(group.region->note_equal().ok());
  EXPECT_FALSE(group.status(2).whole);
  ASSERT_TRUE(group.servers[2]->start_again().ok());
  ASSERT_TRUE(group.poll_until([&] { return group.status(2).catching_up; }));
  EXPECT_GE(group.status(2).missed_bytes, 8u * 1024) << "more than was written since";
  EXPECT_TRUE(group.poll_until([&] { return !group.region->status().may_differ; }));
}

/// Goes silent once a session is open.
class FallsSilent final : public test::RelayedPeer {
 public:
  FallsSilent(std::unique_ptr<client::Peer> real, std::function<void()> goes_silent)
      : RelayedPeer(std::move(real)), goes_silent_(std::move(goes_silent)) {}
  Result<client::Session> open_session(const control::SessionRequest& request,
                                       Deadline deadline) override {
    auto session = RelayedPeer::open_session(request, deadline);
    goes_silent_();
    return session;
  }

 private:
  std::function<void()> goes_silent_;
};

// Its control plane answers, and nothing else does. A peer may be silent for five seconds.
TEST(RegionReturn, WhoWaitsKeepsHisTimeWhileOneComesBackThatFallsSilent) {
  Group group(2);
  group.region.reset();
  using fabric::emu::LinkState;
  bool falls_silent = false;
  std::vector<std::unique_ptr<client::Peer>> peers;
  for (const auto& server : group.servers) peers.push_back(server->peer(group.client));
  peers[0] = std::make_unique<FallsSilent>(std::move(peers[0]), [&] {
    if (!falls_silent) return;
    group.world.set_link(group.client, group.servers[0]->machine(), LinkState::Cut);
  });
  group.open(std::move(peers), 2);
  ASSERT_NE(group.region, nullptr);
  group.fill(0, 1024, std::byte{1});
  ASSERT_TRUE(group.region->flush(Level::Committed, std::chrono::seconds(10)).ok());
  falls_silent = true;
  const std::vector<std::byte> bytes(8, std::byte{2});
  const RangeWrite range{0, bytes};
  const RangeEpoch epoch(&range, 1);
  ASSERT_TRUE(group.region->write({&epoch, 1}).ok());
  group.world.drop_connections(group.client, group.servers[0]->machine());
  const Clock& clock = group.world.clock();
  for (int round = 0; round < 5; ++round) {
    group.world.set_link(group.client, group.servers[0]->machine(), LinkState::Up);
    group.world.tick(std::chrono::seconds(1));
    const Nanoseconds since = clock.now();
    EXPECT_EQ(group.region->flush(Level::Committed, kTry).code(), ErrorCode::TimedOut);
    EXPECT_LT(clock.now() - since, 2 * kTry);
  }
  falls_silent = false;
  group.world.set_link(group.client, group.servers[0]->machine(), LinkState::Up);
  EXPECT_TRUE(group.region->flush(Level::Committed, std::chrono::seconds(60)).ok());
}

// One has everything again that it had missed, and its return is not over when another writer takes
// the others, which it can not reach. Expect: that is told at once, and the session is given back.
TEST(RegionReturn, WhoIsFencedWhileOneReturnsIsToldSoAtOnce) {
  Group group(2, {"one", "two", "three"});
  ASSERT_NE(group.region, nullptr);
  group.servers[0]->kill();
  group.fill(0, 14 * 1024, std::byte{1});
  ASSERT_TRUE(group.servers[0]->start_again().ok());
  ASSERT_TRUE(group.poll_until([&] { return group.status(0).catching_up; }));
  for (int round = 0; round < 10'000 && group.status(0).missed_bytes != 0; ++round) {
    ASSERT_TRUE(group.region->poll().ok());
  }
  ASSERT_TRUE(group.world.settle());
  ASSERT_TRUE(group.region->poll().ok());
  ASSERT_TRUE(group.status(0).catching_up);
  fabric::emu::Machine& elsewhere = group.world.add_machine("elsewhere", profile_of(1));
  group.world.set_link(elsewhere, group.servers[0]->machine(), fabric::emu::LinkState::Cut);
  std::vector<std::unique_ptr<client::Peer>> peers;
  for (const auto& server : group.servers) peers.push_back(server->peer(elsewhere));
  const auto ours = std::move(group.region);
  group.open(std::move(peers), 2);
  ASSERT_NE(group.region, nullptr);
  const Clock& clock = group.world.clock();
  const Nanoseconds since = clock.now();
  EXPECT_EQ(ours->poll().code(), ErrorCode::QuorumLost) << "without a timeout nobody is asked";
  EXPECT_EQ(ours->poll(kTry).code(), ErrorCode::Fenced);
  ASSERT_FALSE(ours->status().replicas[0].catching_up) << "then nothing would end what follows";
  EXPECT_EQ(ours->note_equal().code(), ErrorCode::Fenced);
  EXPECT_EQ(ours->close(std::chrono::seconds(5)).code(), ErrorCode::Fenced);
  EXPECT_LT(clock.now() - since, std::chrono::seconds(2));
  const auto pool = group.servers[0]->service().describe(kPool);
  ASSERT_TRUE(pool.ok());
  EXPECT_FALSE(pool->writer_present);
}

// Two of three are silent, and use up whatever time they are given, by coming back as by being
// asked who writes. Another writer has the region. Expect: the third one is asked all the same.
TEST(RegionReturn, WhoHasLittleTimeForEachTurnIsToldOfANewerWriter) {
  using fabric::emu::LinkState;
  Group group(2, {"one", "two", "three"});
  ASSERT_NE(group.region, nullptr);
  fabric::emu::Machine& elsewhere = group.world.add_machine("elsewhere", profile_of(1));
  for (const std::size_t silent : {0, 1}) {
    group.world.drop_connections(group.client, group.servers[silent]->machine());
    for (int round = 0; round < 10'000 && group.status(silent).up; ++round) {
      (void)group.region->poll();
    }
    ASSERT_FALSE(group.status(silent).up);
    group.world.set_link(group.client, group.servers[silent]->machine(), LinkState::Cut);
  }
  std::vector<std::unique_ptr<client::Peer>> peers;
  for (const auto& server : group.servers) peers.push_back(server->peer(elsewhere));
  const auto ours = std::move(group.region);
  group.open(std::move(peers), 2);
  ASSERT_NE(group.region, nullptr);
  Result<void> polled = Error{ErrorCode::QuorumLost, "nothing was polled"};
  for (int round = 0; round < 20 && polled.code() != ErrorCode::Fenced; ++round) {
    group.world.tick(std::chrono::seconds(2));
    polled = ours->poll(std::chrono::milliseconds(50));
    if (polled.ok()) polled = Error{ErrorCode::QuorumLost, "not noticed yet"};
  }
  EXPECT_EQ(polled.code(), ErrorCode::Fenced) << polled.error().message;
}

// What is only visible may be gone with a power failure, resolved or not.
TEST(RegionReturn, OfVisibleThereIsNone) {
  Random random(3);
  fabric::emu::World world(random);
  auto server =
      *test::WorldServer::start(world, "server", profile_of(1), {kPool, kPoolBytes, {32, 2048}});
  fabric::emu::Machine& client = world.add_machine("client", profile_of(1));
  EXPECT_EQ(open_one(*server, client, world.clock(), Level::Visible).code(),
            ErrorCode::InvalidArgument);
}

}  // namespace
}  // namespace perdure::region
