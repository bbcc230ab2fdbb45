// What a mirror promises, judged by what its caller was told: wherever the power fails, connections
// break or the writer dies, what was acknowledged is on every replica that is in sync, in order
// within an update; a replica that is being brought up to date is never taken for one that has
// everything; and what comes back from the replicas when the local memory is lost has everything.
// Negative control: a bit of a replica flips, and the judge must say so.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "core/bytes.h"
#include "core/random.h"
#include "mirror/replicated_mirror.h"
#include "pmem/crashable_region.h"
#include "pmem/pool_format.h"
#include "testing/soak.h"
#include "testing/world_server.h"

namespace perdure::mirror {
namespace {

const std::string kPool = "mirrored";
constexpr std::uint64_t kPoolBytes = 256 * 1024;
constexpr std::uint64_t kBytes = 64 * 1024;  // of the local memory
constexpr std::uint64_t kGranule = 8;        // has one tag
constexpr std::size_t kGranules = kBytes / kGranule;
constexpr std::uint64_t kNever = UINT64_MAX;  // stored, and never said to be persisted

struct Write {
  std::uint64_t update = 0;  // 0: it was there
  std::uint32_t epoch = 0;
  bool ordered = false;
  std::uint64_t tag = 0;
};

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
  add(Dmp, Ddio::On, dram, Tcp, WriteOrder::Unknown);
  add(Page, Ddio::On, dram, Tcp, WriteOrder::Unknown);
  add(Page, Ddio::On, dram, InfiniBand, WriteOrder::Unknown);
  return all;
}

enum Operation {
  kPersist,
  kLarge,
  kGathered,
  kOrdered,
  kInPlace,
  kWord,
  kStore,
  kRead,
  kOperations
};
constexpr std::array<const char*, kOperations> kOperationNames = {
    "persist", "large", "gathered", "ordered", "in place", "word", "store", "read"};
enum Fault {
  kNone,
  kCut,        // of power, of a replica
  kDropped,    // its connection
  kKilled,     // its daemon
  kReplaced,   // its medium, by a blank one
  kStarved,    // its processor, for a while
  kFullDisk,   // a flush of its medium fails
  kDied,       // the writer
  kLostLocal,  // with its memory
  kAway,       // a replica, when it is opened
  kFaults
};
constexpr std::array<const char*, kFaults> kFaultNames = {
    "none",    "power cut", "connection lost", "daemon killed",     "medium replaced",
    "starved", "full disk", "writer died",     "local memory lost", "away at open"};

/// What was met, so that what is to be shown was.
struct Seen {
  std::array<std::array<int, kOperations>, kFaults> met{};
  int acknowledged = 0;
  int quorums_lost = 0;
  int returned = 0;  // replicas that came back while the writer lived
  int copied_pages = 0;
  int opened_late = 0;  // openings that had to wait for a replica that was away
  int broken = 0;       // promises
  void print() const {
    std::printf("acknowledged %d, quorums lost %d, returned %d, pages copied %d, opened late %d\n",
                acknowledged, quorums_lost, returned, copied_pages, opened_late);
    std::printf("%-18s", "");
    for (const char* name : kOperationNames) std::printf("%10s", name);
    std::printf("\n");
    for (std::size_t fault = 0; fault < kFaults; ++fault) {
      std::printf("%-18s", kFaultNames[fault]);
      for (const int count : met[fault]) std::printf("%10d", count);
      std::printf("\n");
    }
  }
};

/// Some replicas, a writer that lives several times, and the judge.
class Lives {
 public:
  Lives(std::uint64_t seed, Seen& seen) : random_(seed), seen_(seen) {
    const std::size_t replicas = 1 + random_.below(3);
    quorum_ = 1 + random_.below(replicas);
    const auto all = profiles();
    const ServerProfile& profile = all[random_.below(all.size())];
    for (std::size_t index = 0; index < replicas; ++index) {
      servers_.push_back(*test::WorldServer::start(world_, fmt::format("server{}", index), profile,
                                                   {kPool, kPoolBytes, {32, 2048}}));
    }
    client_ = &world_.add_machine("client", profile);
    new_local();
    for (auto& writes : place_) writes.push_back({});
  }

  void live(int lives) {
    for (int life = 0; life < lives && !testing::Test::HasFatalFailure(); ++life) one_life();
  }

  /// For the negative control.
  bool judges_a_flipped_bit() {
    open(false);
    store_and_persist(0, 8, kPersist);
    EXPECT_TRUE(mirror_->wait({mirror_->begun()}, std::chrono::seconds(10)).ok());
    note_acknowledged();
    for (auto& server : servers_) {
      server->region().flip_bit(pmem::kPoolDataOffset + kDataAt + 8, 3);
    }
    const int before = seen_.broken;
    control_ = true;
    mirror_.reset();
    in_sync_.assign(servers_.size(), true);
    judge();
    return seen_.broken > before;
  }

 private:
  void new_local() { local_ = *pmem::CrashableRegion::open({kBytes, PersistenceDomain::Dmp}); }

  std::span<std::byte> local() { return local_->bytes(); }

  MirrorOptions options(bool lost) {
    MirrorOptions options;
    options.pool = kPool;
    options.quorum = quorum_;
    options.start = lost ? perdure::MirrorStart::Replicas : perdure::MirrorStart::Local;
    options.staging_bytes = 32 * 1024;
    options.measure_costs = random_.below(4) == 0;
    options.take_over = true;
    // A medium that was replaced remembers nothing: its operator knows that the others have all.
    options.without_missing = was_replaced_;
    options.spin = std::chrono::microseconds(0);
    options.peer_timeout = std::chrono::milliseconds(500);
    options.reconnect = std::chrono::milliseconds(1);
    return options;
  }

  Result<std::unique_ptr<ReplicatedMirror>> try_open(bool lost) {
    std::vector<std::shared_ptr<client::Peer>> peers;
    for (const auto& server : servers_) peers.push_back(server->peer(*client_));
    return ReplicatedMirror::open(*local_, std::move(peers), options(lost), world_.clock());
  }

  /// With all replicas there it must be possible, wherever it was interrupted before.
  void open(bool lost) {
    fabric::emu::Machine& victim = servers_[random_.below(servers_.size())]->machine();
    if (random_.below(3) == 0 && victim.powered()) {
      world_.cut_after(victim, 1 + random_.below(4000));
    }
    auto opened = try_open(lost);
    world_.cancel_cut();
    for (int again = 0; !opened.ok() && again < 3; ++again) {
      ++seen_.opened_late;
      if (lost && random_.below(2) == 0) new_local();
      all_back();
      world_.pass(std::chrono::seconds(1));
      opened = try_open(lost);
    }
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    mirror_ = std::move(*opened);
  }

  void one_life() {
    life_ = {};
    faults_ = {};
    const bool away = lived_ && servers_.size() > 1 && random_.below(3) == 0;
    if (away) {
      servers_[random_.below(servers_.size())]->lose_power();
      faults_[kAway] = true;
    }
    faults_[kLostLocal] = lost_;
    open(lost_);
    if (testing::Test::HasFatalFailure()) return;
    lived_ = true;
    if (lost_) judge_restored();
    start_over();
    for (int step = 0; step < 60 && !testing::Test::HasFatalFailure(); ++step) one_step();
    end();
    world_.cancel_cut();
    world_.settle();
    for (std::size_t fault = 0; fault < kFaults; ++fault) {
      const bool none = std::none_of(faults_.begin(), faults_.end(), [](bool is) { return is; });
      if (fault == kNone ? !none : !faults_[fault]) continue;
      for (std::size_t each = 0; each < kOperations; ++each) seen_.met[fault][each] += life_[each];
    }
    for (const auto& server : servers_) {
      server->machine().starve(false);
      if (random_.below(2) == 0) server->lose_power();
    }
    all_back();
    if (testing::Test::HasFatalFailure()) return;
    judge();
  }

  void all_back() {
    world_.cancel_cut();
    for (const auto& server : servers_) {
      server->machine().starve(false);
      server->region().refuse_flushes(ErrorCode::NoSpace, 0, random_);
      if (server->machine().powered() && server->usable() && random_.below(2) == 0) continue;
      const auto again = server->start_again();
      ASSERT_TRUE(again.ok()) << again.error().message;
    }
  }

  /// What the local memory holds counts from here on.
  void start_over() {
    for (std::size_t granule = 0; granule < kGranules; ++granule) {
      place_[granule] = {{0, 0, false, load<std::uint64_t>(local().data() + granule * kGranule)}};
    }
    acknowledged_ = 0;
  }

  void note_acknowledged() {
    acknowledged_ = std::max(acknowledged_, mirror_->committed());
    const MirrorStatus status = mirror_->status();
    in_sync_.assign(servers_.size(), false);
    for (std::size_t index = 0; index < servers_.size(); ++index) {
      // Of a medium that was replaced a moment ago the mirror does not know yet.
      const bool blank =
          replaced_ && blank_.first == index && blank_.second == status.replicas[index].returned;
      in_sync_[index] = status.replicas[index].state == MirrorReplicaState::InSync && !blank;
    }
  }

  void end() {
    const bool closes = random_.below(4) == 0;
    if (closes) (void)mirror_->wait({mirror_->begun()}, std::chrono::seconds(2));
    note_acknowledged();
    const MirrorStatus status = mirror_->status();
    for (const auto& each : status.replicas) {
      seen_.returned += static_cast<int>(each.returned);
      seen_.copied_pages += static_cast<int>(each.copied_bytes / kPageBytes);
    }
    // Without its replicas and without its memory nothing is left to come back from.
    const bool others = servers_.size() > 1 || in_sync_[0];
    const bool enough = status.in_sync >= quorum_ && !replaced_;
    lost_ = others && enough && random_.below(2) == 0;
    if (closes) {
      (void)mirror_->close(std::chrono::seconds(2));
    } else {
      faults_[kDied] = true;
    }
    was_replaced_ = std::exchange(replaced_, false);
    mirror_.reset();
    if (lost_) {
      new_local();
      return;
    }
    local_->power_cut(random_);
    local_->power_on();
  }

  void one_step() {
    if (random_.below(30) == 0) fault();
    if (random_.below(10) == 0) restart_some();
    switch (random_.below(10)) {
      case 0: return wait_for_some();
      case 1: return read_some();
      case 2: return write_word();
      case 3: return store_some();
      case 4: return write_ordered(true);
      case 5: return write_ordered(false);
      case 6:
        if (random_.below(4) == 0) {
          const std::uint64_t at = random_.below(kGranules - 2048);
          return store_and_persist(at, 1024 + random_.below(1024), kLarge);
        }
        return flush_some();
      case 7: {
        const std::uint64_t count = 1 + random_.below(12);
        return store_and_persist(random_.below(kGranules - count), count, kPersist);
      }
      default:
        (void)mirror_->progress();
        mirror_->bring_back();
        return;
    }
  }

  void restart_some() {
    for (const auto& server : servers_) {
      server->machine().starve(false);
      if (server->machine().powered() && server->serving()) continue;
      world_.cancel_cut();  // of this one, or never: it would be in the middle of its start
      server->region().refuse_flushes(ErrorCode::NoSpace, 0, random_);
      const auto again = server->start_again();
      ASSERT_TRUE(again.ok()) << again.error().message;
    }
  }

  void fault() {
    test::WorldServer& server = *servers_[random_.below(servers_.size())];
    switch (random_.below(6)) {
      case 0:
        if (!server.machine().powered()) return;
        faults_[kCut] = true;
        return world_.cut_after(server.machine(), 1 + random_.below(600));
      case 1: faults_[kDropped] = true; return world_.drop_connections(server.machine(), *client_);
      case 2:
        if (!server.serving() || !server.machine().powered()) return;
        faults_[kKilled] = true;
        world_.cancel_cut();
        return server.kill();
      case 3: {
        // Only where that is one failure: the others have everything.
        const MirrorStatus status = mirror_->status();
        if (servers_.size() == 1 || status.in_sync < servers_.size() || replaced_) return;
        faults_[kReplaced] = replaced_ = true;
        for (std::size_t index = 0; index < servers_.size(); ++index) {
          if (servers_[index].get() != &server) continue;
          blank_ = {index, status.replicas[index].returned};
        }
        world_.cancel_cut();
        server.lose_power();
        server.region().refuse_flushes(ErrorCode::NoSpace, 0, random_);
        const auto again = server.start_with({});
        ASSERT_TRUE(again.ok()) << again.error().message;
        return;
      }
      case 4: faults_[kStarved] = true; return server.machine().starve(true);
      default:
        faults_[kFullDisk] = true;
        return server.region().refuse_flushes(ErrorCode::NoSpace, 1, random_);
    }
  }

  std::uint64_t next() const { return mirror_->begun() + 1; }

  void put(std::size_t granule, const Write& write, bool stores) {
    place_[granule].push_back(write);
    if (stores) store(local().data() + granule * kGranule, write.tag);
  }

  void begun(const Result<MirrorTicket>& ticket, std::uint64_t number, Operation operation) {
    ASSERT_TRUE(ticket.ok()) << ticket.error().message;
    ASSERT_EQ(ticket->number, number);
    ++life_[operation];
  }

  void store_and_persist(std::size_t at, std::size_t count, Operation operation) {
    const std::uint64_t number = next();
    for (std::size_t granule = at; granule < at + count; ++granule) {
      put(granule, {number, 0, false, ++last_tag_}, true);
    }
    const MirrorRange range{at * kGranule, count * kGranule};
    const MirrorEpoch epoch(&range, 1);
    begun(mirror_->begin({&epoch, 1}), number, operation);
  }

  /// Ranges one by one, which go together: with what is begun, waited for or flushed next.
  void flush_some() {
    for (std::uint64_t left = 1 + random_.below(random_.below(8) == 0 ? 300 : 12); left > 0;
         --left) {
      const std::size_t count = 1 + random_.below(12);
      const std::size_t at = random_.below(kGranules - count);
      const std::uint64_t first = last_tag_ + 1;
      for (std::size_t granule = at; granule < at + count; ++granule) {
        store(local().data() + granule * kGranule, ++last_tag_);
      }
      const auto ticket = mirror_->flush({at * kGranule, count * kGranule});
      ASSERT_TRUE(ticket.ok()) << ticket.error().message;
      ASSERT_EQ(ticket->number, mirror_->begun());
      for (std::size_t index = 0; index < count; ++index) {
        put(at + index, {ticket->number, 0, false, first + index}, false);
      }
    }
    ++life_[kGathered];
  }

  /// Stored, and never said to be persisted.
  void store_some() {
    const std::size_t granule = random_.below(kGranules);
    put(granule, {kNever, 0, false, ++last_tag_}, true);
    ++life_[kStore];
  }

  void write_word() {
    const std::uint64_t number = next();
    const std::size_t granule = random_.below(kGranules);
    put(granule, {number, 0, true, ++last_tag_}, false);
    begun(mirror_->store_word(granule * kGranule, last_tag_), number, kWord);
  }

  /// Epochs of ranges that do not overlap: brought along, or stored beforehand.
  void write_ordered(bool brings) {
    const std::uint64_t number = next();
    std::vector<std::vector<MirrorWrite>> epochs(1 + random_.below(4));
    std::vector<std::vector<MirrorRange>> ranges(epochs.size());
    std::vector<std::unique_ptr<std::uint64_t[]>> bytes;
    std::size_t at = random_.below(kGranules / 2);
    for (std::uint32_t index = 0; index < epochs.size(); ++index) {
      for (std::uint64_t range = 0; range <= random_.below(3); ++range) {
        const std::size_t count = 1 + random_.below(random_.below(8) == 0 ? 200 : 8);
        if (at + count >= kGranules) at = 0;
        bytes.push_back(std::make_unique<std::uint64_t[]>(count));
        for (std::size_t granule = 0; granule < count; ++granule) {
          bytes.back()[granule] = ++last_tag_;
          put(at + granule, {number, index, brings, last_tag_}, !brings);
        }
        epochs[index].push_back(
            {at * kGranule, std::as_bytes(std::span(bytes.back().get(), count))});
        ranges[index].push_back({at * kGranule, count * kGranule});
        at += count + random_.below(600);
        if (at >= kGranules - 256) at = random_.below(16);
      }
    }
    if (brings) {
      const std::vector<MirrorWriteEpoch> spans(epochs.begin(), epochs.end());
      begun(mirror_->write(spans), number, kOrdered);
    } else {
      const std::vector<MirrorEpoch> spans(ranges.begin(), ranges.end());
      begun(mirror_->begin(spans), number, kInPlace);
    }
  }

  void wait_for_some() {
    if (mirror_->begun() == 0) return;
    const MirrorTicket ticket{1 + random_.below(mirror_->begun())};
    const auto waited = mirror_->wait(ticket, std::chrono::milliseconds(random_.below(200)));
    if (waited.ok()) {
      ++seen_.acknowledged;
    } else {
      const bool late =
          waited.code() == ErrorCode::TimedOut || waited.code() == ErrorCode::QuorumLost;
      ASSERT_TRUE(late || waited.code() == ErrorCode::NoSpace) << waited.error().message;
      seen_.quorums_lost += waited.code() == ErrorCode::QuorumLost ? 1 : 0;
    }
    note_acknowledged();
  }

  /// What a replica in sync returns has everything that was acknowledged.
  void read_some() {
    const std::size_t count = 1 + random_.below(64);
    const std::size_t at = random_.below(kGranules - count);
    std::vector<std::uint64_t> tags(count);
    note_acknowledged();
    const std::uint64_t known = acknowledged_;
    const auto read =
        mirror_->read(at * kGranule, std::as_writable_bytes(std::span(tags)), Mirror::kAny);
    if (!read.ok()) {
      ASSERT_EQ(read.code(), ErrorCode::Disconnected) << read.error().message;
      return;
    }
    ++life_[kRead];
    for (std::size_t granule = 0; granule < count; ++granule) {
      const std::size_t found = index_of(at + granule, tags[granule], "what was read");
      if (found < least(at + granule, known)) broken("a READ missed what was acknowledged");
    }
  }

  // The judge.

  void broken(const std::string& promise) {
    ++seen_.broken;
    if (!control_) {
      ADD_FAILURE() << promise << " (" << servers_.size() << " replicas, quorum " << quorum_ << ")";
    }
  }

  using Holds = std::vector<std::uint64_t>;

  Holds held_by(std::size_t replica) {
    Holds tags(kGranules);
    for (std::size_t granule = 0; granule < kGranules; ++granule) {
      tags[granule] = load<std::uint64_t>(servers_[replica]->region().bytes().data() +
                                          pmem::kPoolDataOffset + kDataAt + granule * kGranule);
    }
    return tags;
  }

  /// The place of a tag in the history of a granule.
  std::size_t index_of(std::size_t granule, std::uint64_t tag, const std::string& who) {
    const auto& writes = place_[granule];
    for (std::size_t index = writes.size(); index-- > 0;) {
      if (writes[index].tag == tag) return index;
    }
    broken(fmt::format("{}: granule {} holds {}, which nobody wrote", who, granule, tag));
    return 0;
  }

  /// The oldest that may be there when everything up to `update` must be.
  std::size_t least(std::size_t granule, std::uint64_t update) const {
    const auto& writes = place_[granule];
    std::size_t at = writes.size() - 1;
    while (at > 0 && writes[at].update > update) --at;
    return at;
  }

  void judge_one(const Holds& holds, const std::string& who) {
    std::map<std::uint64_t, std::uint32_t> shown;    // by update: the last epoch that is there
    std::map<std::uint64_t, std::uint32_t> lacking;  // and the first of which something is not
    for (std::size_t granule = 0; granule < kGranules; ++granule) {
      const auto& writes = place_[granule];
      const std::size_t at = index_of(granule, holds[granule], who);
      if (at < least(granule, acknowledged_)) {
        return broken(fmt::format("{}: granule {} lost what was acknowledged ({} of {})", who,
                                  granule, writes[least(granule, acknowledged_)].update,
                                  acknowledged_));
      }
      const Write& held = writes[at];
      if (held.ordered) shown[held.update] = std::max(shown[held.update], held.epoch);
      for (std::size_t later = at + 1; later < writes.size(); ++later) {
        if (!writes[later].ordered) continue;
        const auto [place, is_new] = lacking.emplace(writes[later].update, writes[later].epoch);
        if (!is_new) place->second = std::min(place->second, writes[later].epoch);
      }
    }
    for (const auto& [update, epoch] : shown) {
      const auto lacks = lacking.find(update);
      if (lacks == lacking.end() || lacks->second >= epoch) continue;
      return broken(fmt::format("{}: epoch {} of update {} is there without epoch {}", who, epoch,
                                update, lacks->second));
    }
  }

  /// After the writer's end, and power failures.
  void judge() {
    std::size_t with_all = 0;
    for (std::size_t replica = 0; replica < servers_.size(); ++replica) {
      if (!in_sync_[replica]) continue;
      judge_one(held_by(replica), fmt::format("replica {}", replica));
      ++with_all;
    }
    if (acknowledged_ != 0 && with_all == servers_.size() && with_all < quorum_) {
      broken("what was acknowledged is on fewer than the quorum");
    }
    if (lost_) return;
    Holds local_tags(kGranules);
    for (std::size_t granule = 0; granule < kGranules; ++granule) {
      local_tags[granule] = load<std::uint64_t>(local().data() + granule * kGranule);
    }
    if (!control_) judge_one(local_tags, "the local memory");
  }

  /// What came back from the replicas.
  void judge_restored() {
    Holds tags(kGranules);
    for (std::size_t granule = 0; granule < kGranules; ++granule) {
      tags[granule] = load<std::uint64_t>(local().data() + granule * kGranule);
    }
    judge_one(tags, "what was restored");
    const MirrorStatus status = mirror_->status();
    for (std::size_t replica = 0; replica < servers_.size(); ++replica) {
      if (status.replicas[replica].state != MirrorReplicaState::InSync) continue;
      if (held_by(replica) != tags) broken("a replica in sync differs from the local memory");
    }
  }

  Random random_;
  Seen& seen_;
  fabric::emu::World world_{random_};
  std::vector<std::unique_ptr<test::WorldServer>> servers_;
  fabric::emu::Machine* client_ = nullptr;
  std::size_t quorum_ = 0;
  std::unique_ptr<pmem::CrashableRegion> local_;
  std::unique_ptr<ReplicatedMirror> mirror_;
  std::array<std::vector<Write>, kGranules> place_;  // by granule: who wrote it, in order
  std::uint64_t acknowledged_ = 0;
  std::vector<bool> in_sync_;  // when the writer ended
  std::uint64_t last_tag_ = 0;
  bool lived_ = false;
  bool lost_ = false;                            // the local memory, since the last life
  bool replaced_ = false;                        // a medium, in this life
  bool was_replaced_ = false;                    // and in the one before
  std::pair<std::size_t, std::uint64_t> blank_;  // whose, and how often it had come back then
  bool control_ = false;
  std::array<int, kOperations> life_{};
  std::array<bool, kFaults> faults_{};
};

TEST(MirrorCrash, KeepsItsPromisesWhateverFailsAndWhenever) {
  Seen seen;
  for (std::uint64_t seed = 1; seed <= test::rounds(60, 5000) && !testing::Test::HasFailure();
       ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    std::make_unique<Lives>(seed, seen)->live(4);
  }
  seen.print();
  EXPECT_EQ(seen.broken, 0);
  EXPECT_GT(seen.acknowledged, 0);
  EXPECT_GT(seen.quorums_lost, 0);
  EXPECT_GT(seen.returned, 0);
  EXPECT_GT(seen.copied_pages, 0);
  for (std::size_t fault = 0; fault < kFaults; ++fault) {
    for (std::size_t operation = 0; operation < kOperations; ++operation) {
      EXPECT_GT(seen.met[fault][operation], 0)
          << kFaultNames[fault] << " never met " << kOperationNames[operation];
    }
  }
}

TEST(MirrorCrash, TheJudgeSeesABitThatFlipped) {
  Seen seen;
  EXPECT_TRUE(std::make_unique<Lives>(1, seen)->judges_a_flipped_bit());
}

}  // namespace
}  // namespace perdure::mirror
