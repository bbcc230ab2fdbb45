// What a region promises, judged by what its caller was told: after a power failure, or the
// writer's death, at any place, every replica has what was reported of it, with the epochs of an
// update in order; what was committed is on a quorum; and a replica that is called whole has
// everything. Negative control: a region that was opened for less than durable loses something.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "core/bytes.h"
#include "core/random.h"
#include "pmem/pool_format.h"
#include "region/replicated_region.h"
#include "server/served_pool.h"
#include "testing/soak.h"
#include "testing/world_server.h"
#include "tests/crash/region_history.h"

namespace perdure::region {
namespace {

const std::string kPool = "ranges";
constexpr std::uint64_t kPoolBytes = 256 * 1024;
constexpr std::uint64_t kArea = 8 * 1024;  // of the region, from its start
constexpr std::uint64_t kGranule = 8;      // has one tag
constexpr std::size_t kGranules = kArea / kGranule;

/// What a pool reserves for a writer's messages.
std::uint64_t persistent_bytes(const ServerProfile& profile) {
  return profile.receive_buffers == ReceiveBuffers::Pm ? server::persistent_buffer_bytes({32, 2048})
                                                       : 0;
}

using Write = test::RegionWrite;

std::vector<ServerProfile> profiles() {
  std::vector<ServerProfile> all;
  const auto add = [&](PersistenceDomain domain, Ddio ddio, ReceiveBuffers buffers,
                       Transport transport, WriteOrder order) {
    ServerProfile profile;
    profile.domain = domain;
    profile.ddio = ddio;
    profile.receive_buffers = buffers;
    profile.transport = transport;
    profile.write_order = order;
    all.push_back(profile);
  };
  using enum PersistenceDomain;
  using enum Transport;
  const auto dram = ReceiveBuffers::Dram;
  add(Dmp, Ddio::Off, dram, InfiniBand, WriteOrder::Ordered);
  add(Dmp, Ddio::On, dram, InfiniBand, WriteOrder::Unknown);
  add(Mhp, Ddio::On, dram, Roce, WriteOrder::Unknown);
  add(Wsp, Ddio::On, ReceiveBuffers::Pm, InfiniBand, WriteOrder::Ordered);
  add(Wsp, Ddio::On, dram, InfiniBand, WriteOrder::Unknown);
  add(Dmp, Ddio::On, dram, Tcp, WriteOrder::Unknown);
  add(Page, Ddio::On, dram, Tcp, WriteOrder::Unknown);
  add(Page, Ddio::On, dram, InfiniBand, WriteOrder::Unknown);
  return all;
}

/// What was met, so that what is to be shown was.
struct Seen {
  int updates = 0;
  int committed = 0;     // waits that said so
  int cuts = 0;          // of power, with an update in flight
  int deaths = 0;        // of the writer, with an update in flight
  int closed = 0;        // lives that ended well
  int whole = 0;         // replicas called so, of several
  int not_whole = 0;     // and not
  int quorums_lost = 0;  // while it was written
  int coalesced = 0;     // updates of a replica that went together with others
  int broken_promises = 0;
  int broken_wholes = 0;  // of them, those about replicas that are called whole

  /// What may befall the replicas of a life, and how the life goes on.
  enum Trouble { kUnequal, kSmaller, kDamaged, kDrifted, kFull, kTroubles };
  enum Course { kLives, kCommits, kCut, kDied, kClosed, kLost, kWhole, kNotWhole, kCourses };
  std::array<std::array<int, kCourses>, kTroubles> met{};

  void print() const;
};

void Seen::print() const {
  std::printf(
      "updates %d, committed %d, power cuts %d, deaths %d, closed %d, whole %d, not %d, quorums "
      "lost %d, coalesced %d, broken promises %d (about whole replicas %d)\n",
      updates, committed, cuts, deaths, closed, whole, not_whole, quorums_lost, coalesced,
      broken_promises, broken_wholes);
  constexpr std::array<const char*, kTroubles> kRows = {
      "pools of unequal sizes", "a smaller pool in one's place", "a damaged state word",
      "another profile", "a full disk"};
  std::printf("%-31s%7s%9s%7s%7s%8s%7s%7s%7s\n", "lives that met", "lives", "commits", "cut",
              "died", "closed", "lost", "whole", "not");
  for (std::size_t row = 0; row < kTroubles; ++row) {
    const auto& of = met[row];
    std::printf("%-31s%7d%9d%7d%7d%8d%7d%7d%7d\n", kRows[row], of[kLives], of[kCommits], of[kCut],
                of[kDied], of[kClosed], of[kLost], of[kWhole], of[kNotWhole]);
  }
}

/// Some peers, a writer that lives several times, and the judge.
class Lives {
 public:
  Lives(std::uint64_t seed, Level level, Seen& seen) : random_(seed), level_(level), seen_(seen) {
    const std::size_t replicas = 1 + random_.below(3);
    quorum_ = 1 + random_.below(replicas);
    const auto all = profiles();
    // A region for less than durable goes where that is not durable by itself.
    const ServerProfile& profile = all[level == Level::Durable ? random_.below(all.size()) : 1];
    std::uint64_t least = UINT64_MAX;
    std::uint64_t most = 0;
    for (std::size_t index = 0; index < replicas; ++index) {
      const std::uint64_t bytes = kPoolBytes + random_.below(3) * 64 * 1024;
      servers_.push_back(*test::WorldServer::start(world_, fmt::format("server{}", index), profile,
                                                   {kPool, bytes, {32, 2048}}));
      least = std::min(least, bytes - persistent_bytes(profile));
      most = std::max(most, bytes - persistent_bytes(profile));
    }
    bytes_ = least - kDataAt;
    unequal_ = least != most;
    smaller_ =
        *test::WorldServer::start(world_, "smaller", profile, {kPool, kPoolBytes / 2, {32, 2048}});
    client_ = &world_.add_machine("client", profile);
    reported_.resize(replicas);
    stale_.resize(replicas);
  }

  void live(int lives) {
    for (int life = 0; life < lives && !testing::Test::HasFatalFailure(); ++life) one_life();
  }

 private:
  void open() {
    std::vector<std::unique_ptr<client::Peer>> peers;
    for (std::size_t index = 0; index < servers_.size(); ++index) {
      peers.push_back((index == away_ ? smaller_ : servers_[index])->peer(*client_));
    }
    RegionOptions options;
    options.pool = kPool;
    options.quorum = quorum_;
    options.level = level_;
    options.staging_bytes = 32 * 1024;
    options.measure_costs = random_.below(4) == 0;
    options.take_over = true;
    options.spin = std::chrono::microseconds(0);
    auto opened = ReplicatedRegion::open(std::move(peers), options, world_.clock());
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    region_ = std::move(*opened);
  }

  void one_life() {
    course_ = {};
    away_ = SIZE_MAX;
    // The region is there, and goes on without one.
    if (lived_ && quorum_ < servers_.size() && random_.below(4) == 0) {
      away_ = random_.below(servers_.size());
    }
    open();
    if (testing::Test::HasFatalFailure()) return;
    lived_ = true;
    ASSERT_EQ(region_->bytes(), bytes_);
    judge_whole();
    bring_to_equal();
    if (testing::Test::HasFatalFailure()) return;
    full_ = false;
    const bool cuts = random_.below(3) != 0;
    const std::size_t victim = random_.below(servers_.size());
    if (cuts) world_.cut_after(servers_[victim]->machine(), 1 + random_.below(3000));
    for (int step = 0; step < 60 && testing_goes_on(); ++step) one_step();
    end(victim);
    world_.cancel_cut();
    world_.settle();
    count_life();
    restart();
    judge();
    damage();
  }

  void restart() {
    drifted_ = false;
    for (const auto& server : servers_) {
      if (random_.below(2) == 0 || !server->machine().powered()) server->lose_power();
      server->region().refuse_flushes(ErrorCode::NoSpace, 0, random_);
      // What its operator says of it gets better and worse, and is never better than it is.
      if (random_.below(4) == 0) {
        const ServerProfile& is = server->machine().profile();
        const bool worse = random_.below(2) == 0;
        server->declare(worse ? Ddio::On : is.ddio, worse ? WriteOrder::Unknown : is.write_order);
        drifted_ = true;
      }
      const auto again = server->start_again();
      ASSERT_TRUE(again.ok()) << again.error().message;
    }
  }

  /// A bit of one of the two state words of one replica.
  void damage() {
    damaged_ = SIZE_MAX;
    if (servers_.size() == 1 || random_.below(3) != 0) return;
    damaged_ = random_.below(servers_.size());
    const std::uint64_t at = kStateWordsAt[random_.below(kStateWordsAt.size())];
    servers_[damaged_]->region().flip_bit(pmem::kPoolDataOffset + at + random_.below(8),
                                          static_cast<unsigned>(random_.below(8)));
  }

  /// Of this life, what it met: by what befell its replicas.
  void count_life() {
    course_[Seen::kLives] = 1;
    const std::array<bool, Seen::kTroubles> troubles = {unequal_, away_ != SIZE_MAX,
                                                        damaged_ != SIZE_MAX, drifted_, full_};
    for (std::size_t trouble = 0; trouble < troubles.size(); ++trouble) {
      if (!troubles[trouble]) continue;
      for (std::size_t each = 0; each < course_.size(); ++each) {
        seen_.met[trouble][each] += course_[each];
      }
    }
  }

  bool testing_goes_on() const { return !testing::Test::HasFatalFailure() && !over_; }

  /// Well, or as a writer ends that dies.
  void end(std::size_t victim) {
    over_ = false;
    const bool in_flight = region_->status().begun != everywhere();
    if (random_.below(3) == 0) {
      const auto closed = region_->close(std::chrono::seconds(10));
      note_reported();
      seen_.closed += closed.ok() ? 1 : 0;
      course_[Seen::kClosed] = closed.ok() ? 1 : 0;
    } else {
      note_reported();
      seen_.deaths += in_flight ? 1 : 0;
      course_[Seen::kDied] = in_flight ? 1 : 0;
    }
    course_[Seen::kCut] = in_flight && !servers_[victim]->machine().powered() ? 1 : 0;
    seen_.cuts += course_[Seen::kCut];
    region_.reset();
  }

  std::uint64_t everywhere() const {
    std::uint64_t least = UINT64_MAX;
    for (const auto& each : region_->status().replicas) least = std::min(least, each.resolved);
    return least;
  }

  /// What the caller is told of each replica.
  void note_reported() {
    const RegionStatus status = region_->status();
    for (std::size_t index = 0; index < reported_.size(); ++index) {
      reported_[index] = status.replicas[index].resolved;
      seen_.coalesced += static_cast<int>(status.replicas[index].coalesced);
    }
  }

  void one_step() {
    if (!full_ && random_.below(400) == 0) {
      full_ = true;
      servers_[random_.below(servers_.size())]->region().refuse_flushes(ErrorCode::NoSpace, 1,
                                                                        random_);
    }
    switch (random_.below(4)) {
      case 0: return wait_for_some();
      case 1: (void)region_->poll(); return;
      default: write_some();
    }
  }

  void write_some() {
    const std::uint64_t number = region_->status().begun + 1;
    std::vector<std::vector<RangeWrite>> epochs(1 + random_.below(3));
    std::vector<std::unique_ptr<std::uint64_t[]>> bytes;
    std::vector<std::pair<std::size_t, Write>> written;
    for (std::uint32_t index = 0; index < epochs.size(); ++index) {
      std::size_t at = random_.below(kGranules / 2);
      for (std::uint64_t range = 0; range <= random_.below(3) && at < kGranules; ++range) {
        const std::size_t most = random_.below(8) == 0 ? 500 : 12;
        const std::size_t count = std::min(1 + random_.below(most), kGranules - at);
        bytes.push_back(std::make_unique<std::uint64_t[]>(count));
        for (std::size_t granule = 0; granule < count; ++granule) {
          bytes.back()[granule] = ++last_tag_;
          written.push_back({at + granule, {number, index, last_tag_}});
        }
        epochs[index].push_back(
            {at * kGranule, std::as_bytes(std::span(bytes.back().get(), count))});
        at += count + random_.below(100);
      }
    }
    std::vector<RangeEpoch> spans(epochs.begin(), epochs.end());
    // Before it is begun: the power may fail in the middle.
    for (const auto& [granule, write] : written) history_.add(granule, write);
    const auto ticket = region_->write(spans);
    if (ticket.ok()) {
      last_ticket_ = *ticket;
      ASSERT_EQ(ticket->number, number);
      ++seen_.updates;
      return;
    }
    ASSERT_EQ(ticket.code(), ErrorCode::QuorumLost) << ticket.error().message;
    ASSERT_EQ(region_->status().begun + 1, number);
    for (const auto& each : written) history_.take_back(each.first, each.second.tag);
    ++seen_.quorums_lost;
    course_[Seen::kLost] = 1;
    over_ = true;
  }

  void wait_for_some() {
    const std::uint64_t begun = region_->status().begun;
    if (begun == 0) return;
    RegionTicket ticket = last_ticket_;
    ticket.number = 1 + random_.below(begun);
    const Level level = level_ != Level::Durable ? Level::Visible
                        : random_.below(2) == 0  ? Level::Durable
                                                 : Level::Committed;
    const auto waited = region_->wait(ticket, level, std::chrono::seconds(10));
    if (!waited.ok()) {
      ASSERT_EQ(waited.code(), ErrorCode::OutcomeUnknown) << waited.error().message;
      over_ = true;
      return;
    }
    if (level != Level::Committed) return;
    committed_ = std::max(committed_, ticket.number);
    ++seen_.committed;
    ++course_[Seen::kCommits];
  }

  std::uint64_t tag_of(std::size_t replica, std::size_t granule) const {
    return load<std::uint64_t>(servers_[replica]->region().bytes().data() + pmem::kPoolDataOffset +
                               kDataAt + granule * kGranule);
  }

  test::RegionHistory::TagOf tags_of(std::size_t replica) const {
    return [this, replica](std::size_t granule) { return tag_of(replica, granule); };
  }

  /// Whether a replica has everything up to an update.
  bool has_all(std::size_t replica, std::uint64_t update) const {
    return history_.has_all(tags_of(replica), update);
  }

  void broken(const std::string& promise) {
    ++seen_.broken_promises;
    if (level_ == Level::Durable) {
      ADD_FAILURE() << promise << " (" << servers_.size() << " replicas, quorum " << quorum_ << ")";
    }
  }

  void broken_whole(const std::string& promise) {
    ++seen_.broken_wholes;
    broken(promise);
  }

  void judge() {
    std::size_t with_committed = 0;
    for (std::size_t replica = 0; replica < servers_.size(); ++replica) {
      if (stale_[replica]) continue;
      if (!has_all(replica, reported_[replica])) {
        broken(fmt::format("replica {} lost something of {} updates that were reported of it",
                           replica, reported_[replica]));
      }
      if (const auto word = history_.stranger(tags_of(replica))) {
        broken(fmt::format("replica {}, granule {} holds what nobody wrote", replica, *word));
      }
      if (!history_.keeps_order(tags_of(replica)))
        broken("an epoch is there without the one before it");
      with_committed += has_all(replica, committed_) ? 1 : 0;
    }
    if (with_committed < quorum_) broken("what was committed is on fewer than the quorum");
  }

  /// What the region says of its replicas when it is opened again.
  void judge_whole() {
    const RegionStatus status = region_->status();
    const std::uint64_t most = *std::max_element(reported_.begin(), reported_.end());
    std::optional<std::size_t> first;
    for (std::size_t replica = 0; replica < servers_.size(); ++replica) {
      if (servers_.size() == 1) break;
      const bool whole = status.replicas[replica].whole;
      (whole ? seen_.whole : seen_.not_whole) += 1;
      course_[whole ? Seen::kWhole : Seen::kNotWhole] += 1;
      if (!whole) continue;
      ASSERT_GT(2 * quorum_, servers_.size());
      if (replica == away_) broken_whole("a pool that is not its own is called whole");
      if (replica == damaged_) broken_whole("a replica with a damaged word is called whole");
      if (stale_[replica]) return broken_whole("a replica that missed a session is called whole");
      if (!has_all(replica, most)) broken_whole("a replica that is called whole lacks something");
      if (!first) first = replica;
      for (std::size_t granule = 0; granule < kGranules; ++granule) {
        if (tag_of(*first, granule) != tag_of(replica, granule)) {
          return broken_whole("two replicas are called whole, and differ");
        }
      }
    }
    if (servers_.size() > 1) {
      const bool all = std::all_of(status.replicas.begin(), status.replicas.end(),
                                   [](const auto& each) { return each.whole; });
      EXPECT_EQ(status.may_differ, !all);
    }
  }

  /// As region.h says: one replica is chosen, and what it holds is written again.
  void bring_to_equal() {
    std::vector<std::byte> all(kArea);
    ASSERT_TRUE(region_->read(0, all, Region::kAny).ok());
    const RangeWrite range{0, all};
    const RangeEpoch epoch(&range, 1);
    const auto ticket = region_->write({&epoch, 1});
    ASSERT_TRUE(ticket.ok()) << ticket.error().message;
    last_ticket_ = *ticket;
    const Level level = level_ == Level::Durable ? Level::Committed : Level::Visible;
    ASSERT_TRUE(region_->wait(*ticket, level, std::chrono::seconds(60)).ok());
    const auto noted = region_->note_equal();
    ASSERT_TRUE(noted.ok()) << noted.error().message;
    for (std::size_t granule = 0; granule < kGranules; ++granule) {
      history_.begin_again(granule, load<std::uint64_t>(all.data() + granule * kGranule));
    }
    std::fill(reported_.begin(), reported_.end(), 0);
    committed_ = 0;
    for (std::size_t replica = 0; replica < servers_.size(); ++replica) {
      stale_[replica] = !region_->status().replicas[replica].up;
    }
  }

  Random random_;
  const Level level_;
  Seen& seen_;
  fabric::emu::World world_{random_};
  std::vector<std::unique_ptr<test::WorldServer>> servers_;
  fabric::emu::Machine* client_ = nullptr;
  std::size_t quorum_ = 0;
  std::unique_ptr<ReplicatedRegion> region_;
  test::RegionHistory history_{kGranules};
  std::vector<std::uint64_t> reported_;  // by replica: the last update
  RegionTicket last_ticket_;
  std::uint64_t committed_ = 0;
  std::uint64_t last_tag_ = 0;
  bool over_ = false;
  std::uint64_t bytes_ = 0;                     // of the region
  std::unique_ptr<test::WorldServer> smaller_;  // in the place of the one that is away
  std::size_t away_ = SIZE_MAX;                 // in this life; or none
  std::size_t damaged_ = SIZE_MAX;              // since the last one; or none
  std::vector<bool> stale_;                     // by replica: it missed that all were made equal
  bool lived_ = false;                          // the region was opened
  bool unequal_ = false;
  bool drifted_ = false;
  bool full_ = false;
  std::array<int, Seen::kCourses> course_{};
};

Seen live_in_worlds(std::uint64_t worlds, Level level) {
  Seen seen;
  for (std::uint64_t seed = 1; seed <= worlds && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Lives(seed, level, seen).live(4);
  }
  seen.print();
  return seen;
}

TEST(RegionCrash, KeepsItsPromisesWhereverThePowerFailsOrTheWriterDies) {
  const Seen seen = live_in_worlds(test::rounds(60, 5000), Level::Durable);
  EXPECT_GT(seen.updates, 0);
  EXPECT_GT(seen.committed, 0);
  EXPECT_GT(seen.cuts, 0);
  EXPECT_GT(seen.deaths, 0);
  EXPECT_GT(seen.closed, 0);
  EXPECT_GT(seen.whole, 0);
  EXPECT_GT(seen.not_whole, 0);
  EXPECT_GT(seen.quorums_lost, 0);
  EXPECT_EQ(seen.broken_promises, 0);
  for (const auto& trouble : seen.met) {
    for (const Seen::Course course : {Seen::kLives, Seen::kCommits, Seen::kCut, Seen::kDied,
                                      Seen::kClosed, Seen::kLost, Seen::kNotWhole}) {
      EXPECT_GT(trouble[course], 0) << "a trouble never met this";
    }
  }
}

/// Servers, one client, and sessions that a test leads step by step.
struct Replicas {
  Replicas(std::uint64_t seed, const ServerProfile& profile, std::vector<std::uint64_t> pools)
      : random(seed) {
    for (const std::uint64_t bytes : pools) {
      servers.push_back(*test::WorldServer::start(world, fmt::format("server{}", servers.size()),
                                                  profile, {kPool, bytes, {32, 2048}}));
    }
    client = &world.add_machine("client", profile);
  }

  /// Over the servers of these numbers.
  Result<std::unique_ptr<ReplicatedRegion>> open(const std::vector<std::size_t>& members,
                                                 std::size_t quorum, Level level = Level::Durable) {
    std::vector<std::unique_ptr<client::Peer>> peers;
    for (const std::size_t each : members) peers.push_back(servers[each]->peer(*client));
    RegionOptions options;
    options.pool = kPool;
    options.quorum = quorum;
    options.level = level;
    options.measure_costs = false;
    options.take_over = true;
    options.spin = std::chrono::microseconds(0);
    return ReplicatedRegion::open(std::move(peers), options, world.clock());
  }

  static RegionTicket write(ReplicatedRegion& region, std::span<const std::byte> bytes) {
    const RangeWrite range{0, bytes};
    const RangeEpoch epoch(&range, 1);
    const auto ticket = region.write({&epoch, 1});
    EXPECT_TRUE(ticket.ok()) << ticket.error().message;
    return ticket.ok() ? *ticket : RegionTicket{};
  }

  static std::size_t whole(const ReplicatedRegion& region) {
    const RegionStatus status = region.status();
    return static_cast<std::size_t>(std::count_if(status.replicas.begin(), status.replicas.end(),
                                                  [](const auto& each) { return each.whole; }));
  }

  Random random;
  fabric::emu::World world{random};
  std::vector<std::unique_ptr<test::WorldServer>> servers;
  fabric::emu::Machine* client = nullptr;
};

/// One that closes well: word `value` at 0.
RegionStatus session(Replicas& replicas, std::uint64_t value) {
  auto region = replicas.open({0, 1, 2}, 2);
  EXPECT_TRUE(region.ok()) << region.error().message;
  if (!region.ok()) return {};
  RegionStatus status = (*region)->status();
  std::uint64_t held = 0;
  EXPECT_TRUE((*region)->read(0, std::as_writable_bytes(std::span(&held, 1)), Region::kAny).ok());
  EXPECT_EQ(held, value - 1);
  Replicas::write(**region, bytes_of(value));
  EXPECT_TRUE((*region)->close(std::chrono::seconds(10)).ok());
  return status;
}

// Of three replicas one has no power for a whole session, and says of the one before that it ended
// well. Expect: it is not whole, and what it holds is not read.
TEST(RegionCrash, AReplicaThatMissedASessionIsNotWhole) {
  Replicas replicas(5, profiles().front(), {kPoolBytes, kPoolBytes, kPoolBytes});
  EXPECT_FALSE(session(replicas, 1).may_differ);
  replicas.servers[0]->lose_power();
  EXPECT_TRUE(session(replicas, 2).may_differ);
  ASSERT_TRUE(replicas.servers[0]->start_again().ok());
  const RegionStatus status = session(replicas, 3);
  EXPECT_TRUE(status.may_differ);
  EXPECT_TRUE(status.replicas[0].up);
  EXPECT_FALSE(status.replicas[0].whole);
  EXPECT_TRUE(status.replicas[1].whole && status.replicas[2].whole);
}

// Replica 2 misses a session. Of those that were there one is away, and a bit of a state word of
// the other flips. Expect: nobody can tell any more that replica 2 missed something, so it is not
// whole; and when the last one comes back it has missed what was written meanwhile.
TEST(RegionCrash, ADamagedStateWordMakesNoStaleReplicaWhole) {
  for (const std::uint64_t at : kStateWordsAt) {
    for (std::uint64_t bit = 0; bit < 64; ++bit) {
      SCOPED_TRACE(fmt::format("bit {} at {}", bit, at));
      Replicas replicas(7, profiles().front(), {kPoolBytes, kPoolBytes, kPoolBytes});
      auto& servers = replicas.servers;
      EXPECT_FALSE(session(replicas, 1).may_differ);
      servers[2]->lose_power();
      (void)session(replicas, 2);
      ASSERT_TRUE(servers[2]->start_again().ok());
      servers[1]->lose_power();
      servers[0]->region().flip_bit(pmem::kPoolDataOffset + at + bit / 8,
                                    static_cast<unsigned>(bit % 8));
      {
        auto region = replicas.open({0, 1, 2}, 2);
        ASSERT_TRUE(region.ok()) << region.error().message;
        EXPECT_EQ(Replicas::whole(**region), 0u);
        const std::uint64_t value = 3;
        Replicas::write(**region, bytes_of(value));
        ASSERT_TRUE((*region)->flush(Level::Committed, std::chrono::seconds(10)).ok());
        ASSERT_TRUE((*region)->note_equal().ok());
        ASSERT_TRUE((*region)->close(std::chrono::seconds(10)).ok());
      }
      ASSERT_TRUE(servers[1]->start_again().ok());
      const RegionStatus status = session(replicas, 4);
      EXPECT_FALSE(status.replicas[1].whole);
      EXPECT_TRUE(status.replicas[0].whole && status.replicas[2].whole);
    }
  }
}

// A session for Visible writes over what is durable everywhere; then the power of one replica
// fails. Expect: neither is called whole, whether the session ended well or not, since they may
// differ; and they do differ now and then. One that wrote nothing leaves them as they were.
TEST(RegionCrash, ASessionForVisibleLeavesNoReplicaWhole) {
  int differed = 0;
  for (std::uint64_t seed = 1; seed <= 40 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Replicas replicas(seed, profiles()[1], {kPoolBytes, kPoolBytes});
    std::vector<std::byte> bytes(kArea, std::byte{1});
    const bool writes = seed % 4 != 0;
    const bool closes = seed % 2 == 0;
    {
      auto region = replicas.open({0, 1}, 2);
      ASSERT_TRUE(region.ok()) << region.error().message;
      Replicas::write(**region, bytes);
      ASSERT_TRUE((*region)->close(std::chrono::seconds(10)).ok());
    }
    {
      auto region = replicas.open({0, 1}, 2, Level::Visible);
      ASSERT_TRUE(region.ok()) << region.error().message;
      EXPECT_EQ(Replicas::whole(**region), 2u) << "nothing is lost yet";
      std::fill(bytes.begin(), bytes.end(), std::byte{2});
      if (writes) Replicas::write(**region, bytes);
      ASSERT_TRUE((*region)->flush(Level::Visible, std::chrono::seconds(10)).ok());
      if (closes) {
        ASSERT_TRUE((*region)->close(std::chrono::seconds(10)).ok());
      }
    }
    replicas.servers[0]->lose_power();
    ASSERT_TRUE(replicas.servers[0]->start_again().ok());
    std::vector<std::vector<std::byte>> held;
    for (const auto& server : replicas.servers) {
      const auto area = server->region().bytes().subspan(pmem::kPoolDataOffset + kDataAt, kArea);
      held.emplace_back(area.begin(), area.end());
    }
    differed += held[0] != held[1] ? 1 : 0;
    auto region = replicas.open({0, 1}, 2);
    ASSERT_TRUE(region.ok()) << region.error().message;
    EXPECT_EQ(Replicas::whole(**region), writes || !closes ? 0u : 2u);
    EXPECT_EQ((*region)->status().may_differ, writes || !closes);
  }
  EXPECT_GT(differed, 0) << "nothing was shown";
}

// Of one replica nobody else says what it lost. Expect: the same; and who says that what is there
// is what counts is believed.
TEST(RegionCrash, ASessionForVisibleLeavesTheOnlyReplicaNotWhole) {
  for (const bool writes : {false, true}) {
    Replicas replicas(1, profiles()[1], {kPoolBytes});
    const std::vector<std::byte> bytes(kArea, std::byte{1});
    for (const Level level : {Level::Durable, Level::Visible}) {
      auto region = replicas.open({0}, 1, level);
      ASSERT_TRUE(region.ok()) << region.error().message;
      EXPECT_EQ(Replicas::whole(**region), 1u) << "nothing is lost yet";
      if (level == Level::Visible && !writes) {
        ASSERT_TRUE((*region)->close(std::chrono::seconds(10)).ok());
        continue;
      }
      Replicas::write(**region, bytes);
      ASSERT_TRUE((*region)->flush(level, std::chrono::seconds(10)).ok());
    }
    replicas.servers[0]->lose_power();
    ASSERT_TRUE(replicas.servers[0]->start_again().ok());
    for (const bool said : {false, true}) {
      auto region = replicas.open({0}, 1);
      ASSERT_TRUE(region.ok()) << region.error().message;
      EXPECT_EQ(Replicas::whole(**region), writes && !said ? 0u : 1u);
      ASSERT_TRUE((*region)->note_equal().ok());
    }
  }
}

// How many bytes a region has is part of it. A blank pool that is smaller takes the place of a
// replica's, and then a smaller one with what the replica had. Expect: neither is used, and nothing
// of the region is out of reach; where it is needed, the region is not opened and that is said.
TEST(RegionCrash, APoolThatComesBackSmallerShrinksNothing) {
  Replicas replicas(3, profiles().front(),
                    {kPoolBytes, 2 * kPoolBytes, kPoolBytes, kPoolBytes / 2});
  const std::uint64_t all = kPoolBytes - kDataAt;
  const std::vector<std::byte> bytes(64, std::byte{7});
  {
    auto region = replicas.open({0, 1, 2}, 2);
    ASSERT_TRUE(region.ok()) << region.error().message;
    EXPECT_EQ((*region)->bytes(), all);
    const RangeWrite range{all - bytes.size(), bytes};
    const RangeEpoch epoch(&range, 1);
    ASSERT_TRUE((*region)->write({&epoch, 1}).ok());
    ASSERT_TRUE((*region)->close(std::chrono::seconds(10)).ok());
  }
  for (const bool blank : {true, false}) {
    SCOPED_TRACE(blank ? "blank" : "with what the replica had");
    const auto own = replicas.servers[2]->region().bytes().subspan(pmem::kPoolDataOffset);
    const auto smaller = replicas.servers[3]->region().bytes().subspan(pmem::kPoolDataOffset);
    if (!blank) std::copy_n(own.begin(), kPoolBytes / 2, smaller.begin());
    {
      auto region = replicas.open({0, 1, 3}, 2);
      ASSERT_TRUE(region.ok()) << region.error().message;
      EXPECT_EQ((*region)->bytes(), all);
      const RegionStatus status = (*region)->status();
      EXPECT_FALSE(status.replicas[2].up);
      EXPECT_NE(status.replicas[2].down_reason.find(blank ? "holds nothing" : "smaller"),
                std::string::npos)
          << status.replicas[2].down_reason;
      std::vector<std::byte> read(bytes.size());
      ASSERT_TRUE((*region)->read(all - bytes.size(), read, Region::kAny).ok());
      EXPECT_EQ(read, bytes);
      ASSERT_TRUE((*region)->close(std::chrono::seconds(10)).ok());
    }
    replicas.servers[1]->lose_power();
    EXPECT_EQ(replicas.open({0, 1, 3}, 2).code(), ErrorCode::InvalidArgument);
    ASSERT_TRUE(replicas.servers[1]->start_again().ok());
  }
  // The replica itself is what it was: it misses those two sessions, and has its size.
  auto region = replicas.open({0, 1, 2}, 2);
  ASSERT_TRUE(region.ok()) << region.error().message;
  EXPECT_EQ((*region)->bytes(), all);
  EXPECT_EQ(Replicas::whole(**region), 2u);
}

// Of three peers the first is out of reach: it lets every question wait. Another writer takes over
// at the two that are left. Expect: who was fenced is told so, by those.
TEST(RegionCrash, WhoIsFencedIsToldSoWhoeverIsSilent) {
  Replicas replicas(9, profiles().front(), {kPoolBytes, kPoolBytes, kPoolBytes});
  auto& servers = replicas.servers;
  auto first = replicas.open({0, 1, 2}, 2);
  ASSERT_TRUE(first.ok()) << first.error().message;
  replicas.world.drop_connections(*replicas.client, servers[0]->machine());
  for (int round = 0; round < 100'000 && (*first)->status().replicas[0].up; ++round) {
    ASSERT_TRUE((*first)->poll().ok());
  }
  ASSERT_FALSE((*first)->status().replicas[0].up);
  replicas.world.set_link(*replicas.client, servers[0]->machine(), fabric::emu::LinkState::Cut);
  auto second = replicas.open({0, 1, 2}, 2);
  ASSERT_TRUE(second.ok()) << second.error().message;
  Result<void> polled;
  for (int round = 0; round < 100'000 && polled.ok(); ++round) polled = (*first)->poll();
  EXPECT_EQ(polled.code(), ErrorCode::QuorumLost) << "without a timeout nobody is asked";
  // Each time the silent one takes all the time that there is, and may be asked again by the next.
  for (int round = 0; round < 3 && polled.code() == ErrorCode::QuorumLost; ++round) {
    replicas.world.tick(std::chrono::seconds(2));
    polled = (*first)->poll(std::chrono::milliseconds(50));
  }
  EXPECT_EQ(polled.code(), ErrorCode::Fenced) << polled.error().message;
  const std::uint64_t value = 1;
  const RangeWrite range{0, bytes_of(value)};
  const RangeEpoch epoch(&range, 1);
  EXPECT_EQ((*first)->write({&epoch, 1}).code(), ErrorCode::Fenced);
}

// An update is on its way when another writer takes over. Expect: what has become of it is unknown;
// that nothing is begun any more, the next one says.
TEST(RegionCrash, WhatAWriterThatIsFencedHadOnItsWayIsUnknown) {
  Replicas replicas(9, profiles().front(), {kPoolBytes});
  auto first = replicas.open({0}, 1);
  ASSERT_TRUE(first.ok()) << first.error().message;
  const std::uint64_t value = 1;
  const RangeWrite range{0, bytes_of(value)};
  const RangeEpoch epoch(&range, 1);
  const auto ticket = (*first)->write({&epoch, 1});
  ASSERT_TRUE(ticket.ok()) << ticket.error().message;
  ASSERT_FALSE((*first)->reached(*ticket, Level::Committed));
  auto second = replicas.open({0}, 1);
  ASSERT_TRUE(second.ok()) << second.error().message;
  const auto waited = (*first)->wait(*ticket, Level::Committed, std::chrono::seconds(10));
  if (!waited.ok()) {
    EXPECT_EQ(waited.code(), ErrorCode::OutcomeUnknown) << waited.error().message;
  }
  const auto later = (*first)->write({&epoch, 1});
  EXPECT_EQ(later.code(), ErrorCode::Fenced);
}

// The connection is lost first, and the writer told that; the next writer comes later. Expect: the
// first one hears of it all the same.
TEST(RegionCrash, WhoIsFencedAfterItLostItsConnectionsIsToldSo) {
  Replicas replicas(9, profiles().front(), {kPoolBytes});
  auto first = replicas.open({0}, 1);
  ASSERT_TRUE(first.ok()) << first.error().message;
  replicas.world.drop_connections(*replicas.client, replicas.servers[0]->machine());
  Result<void> polled;
  for (int round = 0; round < 100'000 && polled.ok(); ++round) polled = (*first)->poll();
  EXPECT_EQ(polled.code(), ErrorCode::QuorumLost);
  EXPECT_EQ((*first)->atomic({persist::AtomicOperation::FetchAdd, 0, 1, 0}).code(),
            ErrorCode::Disconnected);
  auto second = replicas.open({0}, 1);
  ASSERT_TRUE(second.ok()) << second.error().message;
  replicas.world.tick(std::chrono::seconds(2));
  EXPECT_EQ((*first)->poll(std::chrono::seconds(1)).code(), ErrorCode::Fenced);
  EXPECT_EQ((*first)->poll().code(), ErrorCode::Fenced) << "it is known by now";
  EXPECT_EQ((*first)->atomic({persist::AtomicOperation::FetchAdd, 0, 1, 0}).code(),
            ErrorCode::Fenced);
}

// Peers come to notice the end of a connection when they come to it; who closes a region waits
// until they have said so.
TEST(RegionCrash, WhoOpensARegionThatWasClosedIsNotRefused) {
  Random random(1);
  fabric::emu::World world(random);
  const ServerProfile profile = profiles().front();
  auto server =
      *test::WorldServer::start(world, "server", profile, {kPool, kPoolBytes, {32, 2048}});
  fabric::emu::Machine& requester = world.add_machine("client", profile);
  const auto open = [&](bool take_over) {
    std::vector<std::unique_ptr<client::Peer>> peers;
    peers.push_back(server->peer(requester));
    RegionOptions options;
    options.pool = kPool;
    options.measure_costs = false;
    options.take_over = take_over;
    return ReplicatedRegion::open(std::move(peers), options, world.clock());
  };
  auto region = open(false);
  ASSERT_TRUE(region.ok()) << region.error().message;
  region->reset();  // as after a crash
  EXPECT_EQ(open(false).code(), ErrorCode::Busy);
  region = open(true);
  ASSERT_TRUE(region.ok()) << region.error().message;
  EXPECT_TRUE((*region)->close(std::chrono::seconds(10)).ok());
  region->reset();
  region = open(false);
  EXPECT_TRUE(region.ok()) << region.error().message;
}

// The negative control: the judge notices when updates are only visible.
TEST(RegionCrash, WhatIsOnlyVisibleIsLost) {
  const Seen seen = live_in_worlds(20, Level::Visible);
  EXPECT_GT(seen.broken_promises, 0);
  EXPECT_EQ(seen.broken_wholes, 0) << "no replica is called whole for it";
}

}  // namespace
}  // namespace perdure::region
