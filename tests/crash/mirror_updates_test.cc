// Ranges of a mirror that are flushed go together. And deep persists: they survive a power failure
// that flushes nothing, on every replica that is in sync, also on one that comes in sync meanwhile;
// a replica that can do no such thing says so and stays what it is.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "core/bytes.h"
#include "core/random.h"
#include "core/text_file.h"
#include "mirror/replicated_mirror.h"
#include "pmem/crashable_region.h"
#include "pmem/lent_region.h"
#include "pmem/pool_format.h"
#include "testing/temporary_directory.h"
#include "testing/world_server.h"

namespace perdure::mirror {
namespace {

constexpr std::uint64_t kBytes = 160 * 1024;
constexpr std::chrono::seconds kPatience{10};
constexpr std::array<MirrorRange, 1> kWordRange{{{64, 8}}};

class MirrorUpdates : public testing::Test {
 protected:
  explicit MirrorUpdates(Transport transport = Transport::Tcp,
                         const std::vector<std::string>& names = {"one", "two"}) {
    ServerProfile profile;
    profile.domain = PersistenceDomain::Dmp;
    profile.transport = transport;
    profile.ddio = Ddio::Off;
    profile.write_order = WriteOrder::Ordered;
    for (const std::string& name : names) {
      servers_.push_back(*test::WorldServer::start(world_, name, profile, {"deep", 256 * 1024}));
    }
    client_ = &world_.add_machine("client", profile);
    MirrorOptions options;
    options.pool = "deep";
    options.quorum = names.size() - 1;
    options.measure_costs = false;
    options.spin = std::chrono::microseconds(0);
    options.reconnect = std::chrono::milliseconds(1);
    std::vector<std::shared_ptr<client::Peer>> peers;
    for (const auto& server : servers_) peers.push_back(server->peer(*client_));
    auto opened = ReplicatedMirror::open(*local_, std::move(peers), options, world_.clock());
    EXPECT_TRUE(opened.ok()) << opened.error().message;
    mirror_ = std::move(*opened);
    come_in_sync();
  }

  void come_in_sync() {
    for (int rounds = 0; rounds < 100'000 && !mirror_->all_in_sync(); ++rounds) {
      mirror_->bring_back();
      if (!mirror_->progress()) world_.pass(std::chrono::milliseconds(1));
    }
    ASSERT_TRUE(mirror_->all_in_sync());
  }
  /// That each replica has executed.
  std::vector<std::uint64_t> messages() const {
    std::vector<std::uint64_t> each;
    for (const auto& server : servers_) {
      const auto report = server->service().report();
      EXPECT_TRUE(report.ok());
      each.push_back(report->pools.at(0).counters.messages);
    }
    return each;
  }
  MirrorTicket begin() {
    local_->bytes()[100] = std::byte{7};
    const auto ticket = mirror_->begin_deep({100, 8});
    EXPECT_TRUE(ticket.ok()) << ticket.error().message;
    return *ticket;
  }
  /// What its medium has of the mirror after a power failure.
  static std::span<const std::byte> kept_by(test::WorldServer& server) {
    server.lose_power();
    return server.region().bytes().subspan(pmem::kPoolDataOffset + kDataAt, kBytes);
  }

  Random random_{1};
  fabric::emu::World world_{random_};
  std::vector<std::unique_ptr<test::WorldServer>> servers_;
  fabric::emu::Machine* client_ = nullptr;
  std::unique_ptr<pmem::CrashableRegion> local_ =
      *pmem::CrashableRegion::open({kBytes, PersistenceDomain::Dmp});
  std::unique_ptr<ReplicatedMirror> mirror_;
};

class MirrorOfWrites : public MirrorUpdates {
 protected:
  MirrorOfWrites() : MirrorUpdates(Transport::Roce) {}
  static std::uint64_t durable_word(test::WorldServer& server) {
    const auto bytes = server.region().durable();
    return load<std::uint64_t>(bytes.data() + pmem::kPoolDataOffset + kDataAt + 128);
  }
};

// Where ranges are sent by RDMA WRITE, which promises no atomicity. Expect: a word is not, also on
// a replica that is lost with it in flight, and it is where it was stored.
TEST_F(MirrorOfWrites, AWordIsStoredByTheRespondersProcessor) {
  const auto before = messages();
  for (const auto& replica : mirror_->status().replicas) {
    EXPECT_EQ(replica.small_family, "ARRM") << replica.small_method;
  }
  local_->bytes()[64] = std::byte{5};
  ASSERT_TRUE(mirror_->wait(*mirror_->flush({64, 16}), kPatience).ok());
  EXPECT_EQ(messages(), before);
  const auto ticket = mirror_->store_word(128, 0x1122334455667788);
  ASSERT_TRUE(ticket.ok()) << ticket.error().message;
  ASSERT_TRUE(mirror_->wait(*ticket, kPatience).ok());
  for (std::size_t each = 0; each < servers_.size(); ++each) {
    EXPECT_EQ(messages()[each], before[each] + 1);
    EXPECT_EQ(durable_word(*servers_[each]), 0x1122334455667788U);
  }
  world_.cut_after(servers_[1]->machine(), 2);
  const auto waited = mirror_->wait(*mirror_->store_word(128, 42), kPatience);
  ASSERT_TRUE(waited.ok()) << waited.error().message;
  world_.cancel_cut();
  servers_[1]->lose_power();
  for (int rounds = 0; rounds < 100'000 && mirror_->all_in_sync(); ++rounds) {
    if (!mirror_->progress()) world_.pass(std::chrono::milliseconds(1));
  }
  ASSERT_FALSE(mirror_->all_in_sync());
  ASSERT_TRUE(servers_[1]->start_again().ok());
  come_in_sync();
  for (const auto& server : servers_) EXPECT_EQ(durable_word(*server), 42U);
}

/// Opened again and again, by memories that each have their file.
class MirrorMemories : public MirrorUpdates {
 protected:
  explicit MirrorMemories(const std::vector<std::string>& names = {"one", "two"})
      : MirrorUpdates(Transport::Tcp, names) {
    std::ranges::fill(local_->bytes(), std::byte{7});
    EXPECT_TRUE(mirror_->wait(*mirror_->flush({0, kBytes}), kPatience).ok());
    EXPECT_TRUE(mirror_->close(kPatience).ok());
    mirror_.reset();
  }
  Result<std::unique_ptr<ReplicatedMirror>> open(MirrorStart start, pmem::Region& memory,
                                                 const LocalStateFile& state) {
    MirrorOptions options;
    options.pool = "deep";
    options.start = start;
    options.measure_costs = false;
    options.take_over = true;
    options.only_copies = only_copies_;
    options.spin = std::chrono::microseconds(0);
    options.peer_timeout = std::chrono::milliseconds(200);
    std::vector<std::shared_ptr<client::Peer>> peers;
    for (const auto& server : servers_) peers.push_back(server->peer(*client_));
    return ReplicatedMirror::open(memory, std::move(peers), options, world_.clock(), state);
  }

  /// Opens and closes it.
  Result<void> reopen(MirrorStart start, pmem::Region& memory, const LocalStateFile& state) {
    auto opened = open(start, memory, state);
    return opened.ok() ? (*opened)->close(kPatience) : opened.error();
  }

  bool only_copies_ = false;
  const test::TestDirectory place_;
  const LocalStateFile state_{place_.file("tree")};
};

/// Memory whose medium refuses everything from some time on.
class RefusingMemory final : public pmem::LentRegion {
 public:
  using LentRegion::LentRegion;
  using Region::flush;
  Result<void> flush(std::span<const pmem::Range> ranges) override {
    if (refuses) return Error{ErrorCode::SystemError, "the medium failed"};
    return LentRegion::flush(ranges);
  }
  bool refuses = false;
};

// What was gathered is begun by somebody else, who is told that the medium here refused it, and the
// replicas make it durable. Expect: whoever asks for it is not told that it is durable, and what
// was so before still is.
TEST_F(MirrorMemories, WhatTheMediumHereRefusedIsNotReached) {
  RefusingMemory memory(*local_);
  auto opened = open(MirrorStart::Local, memory, state_);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  mirror_ = std::move(*opened);
  come_in_sync();
  const auto before = mirror_->begin(std::array{MirrorEpoch(kWordRange)});
  ASSERT_TRUE(before.ok()) << before.error().message;
  ASSERT_TRUE(mirror_->wait(*before, kPatience).ok());
  const auto refused = mirror_->flush(kWordRange[0]);
  ASSERT_TRUE(refused.ok()) << refused.error().message;
  memory.refuses = true;
  EXPECT_EQ(mirror_->begin_gathered().code(), ErrorCode::SystemError);
  for (int rounds = 0; rounds < 100'000 && mirror_->committed() < refused->number; ++rounds) {
    if (!mirror_->progress()) world_.pass(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(mirror_->committed(), refused->number);
  EXPECT_FALSE(mirror_->reached(*refused));
  EXPECT_TRUE(mirror_->reached(*before));
  EXPECT_EQ(mirror_->wait(*refused, kPatience).code(), ErrorCode::SystemError);
  EXPECT_TRUE(mirror_->local_failure().has_value());
  mirror_.reset();
}

// The power of the replica that is copied over the local memory fails on the way, wherever that is.
// Expect: memory of which a part was copied is not taken for what counts, until all of it was.
TEST_F(MirrorMemories, MemoryThatIsHalfCopiedDoesNotCount) {
  const std::vector<std::byte> there(local_->bytes().begin(), local_->bytes().end());
  std::uint64_t half = 0;
  bool restored = false;
  for (std::uint64_t events = 1; !restored && events < 4000; events += 7) {
    std::ranges::fill(local_->bytes(), std::byte{0xee});
    world_.cut_after(servers_[0]->machine(), events);
    restored = open(MirrorStart::Replicas, *local_, state_).ok();
    world_.cancel_cut();
    const bool changed = std::ranges::any_of(
        local_->bytes(), [](std::byte each) { return each != std::byte{0xee}; });
    servers_[0]->lose_power();
    ASSERT_TRUE(servers_[0]->start_again().ok());
    if (restored || !changed) continue;
    ++half;
    EXPECT_EQ(open(MirrorStart::Local, *local_, state_).code(), ErrorCode::InvalidArgument)
        << events;
  }
  EXPECT_TRUE(restored);
  EXPECT_GT(half, 0U);
  EXPECT_TRUE(std::ranges::equal(local_->bytes(), there));
  const auto opened = open(MirrorStart::Local, *local_, state_);
  EXPECT_TRUE(opened.ok()) << opened.error().message;
}

// The program goes on elsewhere with what the replicas have, then somebody starts it here again.
// Expect: that is refused once the two differ, and while the other one writes, who is not fenced.
TEST_F(MirrorMemories, MemoryOfBeforeAFailoverDoesNotCount) {
  ASSERT_TRUE(reopen(MirrorStart::Local, *local_, state_).ok());
  const LocalStateFile state_elsewhere(place_.file("elsewhere"));
  const auto elsewhere = *pmem::CrashableRegion::open({kBytes, PersistenceDomain::Dmp});
  ASSERT_TRUE(reopen(MirrorStart::Replicas, *elsewhere, state_elsewhere).ok());
  const auto same = reopen(MirrorStart::Local, *local_, state_);
  ASSERT_TRUE(same.ok()) << "they hold the same: " << same.error().message;
  {
    auto other = open(MirrorStart::Local, *elsewhere, state_elsewhere);
    ASSERT_TRUE(other.ok()) << other.error().message;
    const auto refused = reopen(MirrorStart::Local, *local_, state_);
    EXPECT_EQ(refused.code(), ErrorCode::InvalidArgument);
    elsewhere->bytes()[100] = std::byte{8};
    const auto ticket = (*other)->flush({100, 1});
    ASSERT_TRUE(ticket.ok() && (*other)->wait(*ticket, kPatience).ok()) << "it was fenced";
    ASSERT_TRUE((*other)->close(kPatience).ok());
  }
  const auto refused = reopen(MirrorStart::Local, *local_, state_);
  ASSERT_EQ(refused.code(), ErrorCode::InvalidArgument);
  EXPECT_NE(refused.error().message.find("another memory"), std::string::npos)
      << refused.error().message;
  EXPECT_TRUE(reopen(MirrorStart::Local, *elsewhere, state_elsewhere).ok());
  ASSERT_TRUE(state_.remove().ok());
  EXPECT_TRUE(reopen(MirrorStart::Local, *local_, state_).ok()) << "its operator has decided";
  EXPECT_EQ(reopen(MirrorStart::Local, *elsewhere, state_elsewhere).code(),
            ErrorCode::InvalidArgument);
}

// What copies only, as the commands do. Expect: the file that was there counts as before, also
// where it holds something that nobody persisted; and no update is begun.
TEST_F(MirrorMemories, WhoOnlyCopiesMakesNoMemoryOlder) {
  ASSERT_TRUE(reopen(MirrorStart::Local, *local_, state_).ok());
  local_->bytes()[200] = std::byte{1};  // and not persisted
  const LocalStateFile state_elsewhere(place_.file("elsewhere"));
  const auto elsewhere = *pmem::CrashableRegion::open({kBytes, PersistenceDomain::Dmp});
  only_copies_ = true;
  {
    const auto copies = open(MirrorStart::Replicas, *elsewhere, state_elsewhere);
    ASSERT_TRUE(copies.ok()) << copies.error().message;
    EXPECT_EQ((*copies)->flush({100, 8}).code(), ErrorCode::InvalidArgument);
    ASSERT_TRUE((*copies)->close(kPatience).ok());
  }
  only_copies_ = false;
  const auto same = reopen(MirrorStart::Local, *local_, state_);
  EXPECT_TRUE(same.ok()) << same.error().message;
  EXPECT_EQ(reopen(MirrorStart::Local, *elsewhere, state_elsewhere).code(),
            ErrorCode::InvalidArgument);
}

// What has the name of what is kept, and what can not be kept.
// Expect: nothing of others is written over, and the writer that is there is not fenced.
TEST_F(MirrorMemories, WhoCanKeepNothingFencesNobody) {
  auto writer = open(MirrorStart::Local, *local_, state_);
  ASSERT_TRUE(writer.ok()) << writer.error().message;
  const auto still_writes = [&] {
    const auto ticket = (*writer)->flush({100, 1});
    return ticket.ok() && (*writer)->wait(*ticket, kPatience).ok();
  };
  const auto other = *pmem::CrashableRegion::open({kBytes, PersistenceDomain::Dmp});
  const LocalStateFile precious(place_.file("precious"));
  ASSERT_TRUE(write_file(precious.path(), "my own").ok());
  EXPECT_EQ(open(MirrorStart::Replicas, *other, precious).code(), ErrorCode::AlreadyExists);
  EXPECT_EQ(read_text(precious.path()), "my own");
  EXPECT_FALSE(precious.remove().ok());
  EXPECT_TRUE(still_writes());
  const LocalStateFile nowhere(place_.file("no-such-directory/tree"));
  EXPECT_FALSE(open(MirrorStart::Replicas, *other, nowhere).ok());
  EXPECT_TRUE(still_writes());
}

class MirrorOfThree : public MirrorMemories {
 protected:
  MirrorOfThree() : MirrorMemories({"one", "two", "three"}) {}
};

// The third replica misses an update, and the first one's medium is replaced by a blank pool in
// which an opening that was refused made a beginning. Expect: the first one does not stand in for
// the second, who has the update: without that nobody takes the third one for the newest.
TEST_F(MirrorOfThree, AReplicaThatWasBlankTellsOfWhatIsMissing) {
  const LocalStateFile older(place_.file("older"));
  const auto memory = *pmem::CrashableRegion::open({kBytes, PersistenceDomain::Dmp});
  ASSERT_TRUE(reopen(MirrorStart::Replicas, *memory, older).ok());
  servers_[2]->lose_power();
  {
    auto writer = open(MirrorStart::Local, *local_, state_);
    ASSERT_TRUE(writer.ok()) << writer.error().message;
    local_->bytes()[100] = std::byte{8};
    const auto ticket = (*writer)->flush({100, 1});
    ASSERT_TRUE(ticket.ok() && (*writer)->wait(*ticket, kPatience).ok());
    ASSERT_TRUE((*writer)->close(kPatience).ok());
  }
  ASSERT_TRUE(servers_[2]->start_again().ok());
  servers_[0]->lose_power();
  ASSERT_TRUE(servers_[0]->start_with({}).ok());
  EXPECT_EQ(open(MirrorStart::Local, *memory, older).code(), ErrorCode::InvalidArgument);
  servers_[1]->lose_power();
  const auto elsewhere = *pmem::CrashableRegion::open({kBytes, PersistenceDomain::Dmp});
  EXPECT_EQ(reopen(MirrorStart::Replicas, *elsewhere, LocalStateFile()).code(),
            ErrorCode::QuorumLost);
  EXPECT_EQ(reopen(MirrorStart::Local, *memory, older).code(), ErrorCode::InvalidArgument);
  ASSERT_TRUE(servers_[1]->start_again().ok());
  const auto whole = reopen(MirrorStart::Replicas, *elsewhere, LocalStateFile());
  ASSERT_TRUE(whole.ok()) << whole.error().message;
  EXPECT_EQ(elsewhere->bytes()[100], std::byte{8});
}

TEST_F(MirrorMemories, WhatIsKeptOfAFileIsUnderstoodWholeOrNotAtAll) {
  EXPECT_EQ(state_.read().value(), std::nullopt);
  const LocalState earlier{0x0123456789abcdefU, 7, true};  // of a version that kept no length
  ASSERT_TRUE(
      write_file(state_.path(), "perdure mirror 1\nid 0123456789abcdef\nepoch 00000007\nwhole 1\n")
          .ok());
  EXPECT_EQ(state_.read().value(), earlier);
  const LocalState written{0x0123456789abcdefU, 7, true, 65536};
  ASSERT_TRUE(state_.write(written).ok());
  EXPECT_EQ(state_.read().value(), written);
  const std::string text = read_text(state_.path());
  for (std::size_t bytes = 0; bytes < text.size(); ++bytes) {
    ASSERT_TRUE(write_file(state_.path(), text.substr(0, bytes)).ok());
    EXPECT_EQ(state_.read().code(), ErrorCode::Corrupt) << bytes;
  }
  for (const std::string& wrong : {"x" + text, text + "\n"}) {
    ASSERT_TRUE(write_file(state_.path(), wrong).ok());
    EXPECT_EQ(open(MirrorStart::Local, *local_, state_).code(), ErrorCode::Corrupt);
  }
  EXPECT_TRUE(open(MirrorStart::Replicas, *local_, state_).ok());
  EXPECT_TRUE(state_.check_whole().ok());
}

TEST_F(MirrorMemories, AFileThatHasLostItsEndDoesNotCount) {
  const auto of = [&](std::uint64_t bytes) { return LocalStateFile(place_.file("tree"), bytes); };
  ASSERT_TRUE(reopen(MirrorStart::Local, *local_, of(3 * kBytes / 4)).ok());
  EXPECT_EQ(state_.read().value()->bytes, 3 * kBytes / 4);
  // Receive: the file is shorter. Expect: refused, with advice that helps.
  const auto shorter = reopen(MirrorStart::Local, *local_, of(kBytes / 4));
  ASSERT_EQ(shorter.code(), ErrorCode::InvalidArgument);
  EXPECT_NE(shorter.error().message.find("remove"), std::string::npos) << shorter.error().message;
  EXPECT_EQ(state_.read().value()->bytes, 3 * kBytes / 4);
  EXPECT_TRUE(reopen(MirrorStart::Local, *local_, of(kBytes)).ok()) << "it has grown";
  ASSERT_TRUE(state_.remove().ok());
  EXPECT_TRUE(reopen(MirrorStart::Local, *local_, of(kBytes / 4)).ok());
  EXPECT_EQ(state_.read().value()->bytes, kBytes / 4);
  // Whoever does not say how long the file is has it compared with nothing.
  EXPECT_TRUE(reopen(MirrorStart::Local, *local_, state_).ok());
}

// Expect: how long the file is comes from the replicas where nothing is kept beside it any more,
// also after a writer that only copied; not after one that says nothing of it.
TEST_F(MirrorMemories, ReplicasTellHowLongTheFileIs) {
  const LocalStateFile of_file(place_.file("tree"), 3 * kBytes / 4);
  const auto elsewhere = *pmem::CrashableRegion::open({kBytes, PersistenceDomain::Dmp});
  const auto told = [&](const std::string& name) -> std::uint64_t {
    only_copies_ = true;
    const LocalStateFile state(place_.file(name));
    EXPECT_TRUE(reopen(MirrorStart::Replicas, *elsewhere, state).ok());
    only_copies_ = false;
    return state.read().value().value_or(LocalState{}).bytes;
  };
  ASSERT_TRUE(reopen(MirrorStart::Local, *local_, of_file).ok());
  EXPECT_EQ(told("one"), 3 * kBytes / 4);
  EXPECT_EQ(told("two"), 3 * kBytes / 4);
  ASSERT_TRUE(reopen(MirrorStart::Local, *local_, state_).ok());
  EXPECT_EQ(told("three"), 0U);
}

// Receive: three epochs, each to be durable before the next. Expect: one round trip, that of one
// message.
TEST_F(MirrorUpdates, AnOrderedUpdateIsOneMessageWhateverItsEpochs) {
  constexpr std::array<MirrorRange, 2> kEntries{{{4096, 64}, {12288, 200}}};
  constexpr std::array<MirrorRange, 1> kMark{{{32768, 8}}};
  const auto before = messages();
  for (const std::uint64_t at : {64U, 4096U, 12288U, 32768U}) local_->bytes()[at] = std::byte{9};
  const std::array<MirrorEpoch, 3> epochs{MirrorEpoch(kEntries), MirrorEpoch(kWordRange),
                                          MirrorEpoch(kMark)};
  const auto ticket = mirror_->begin(epochs);
  ASSERT_TRUE(ticket.ok()) << ticket.error().message;
  ASSERT_TRUE(mirror_->wait(*ticket, kPatience).ok());
  ASSERT_TRUE(mirror_->all_in_sync());
  for (std::size_t each = 0; each < servers_.size(); ++each) {
    EXPECT_EQ(messages()[each], before[each] + 1);
  }
  for (const auto& server : servers_) {
    EXPECT_TRUE(std::ranges::equal(kept_by(*server), local_->bytes()));
  }
}

TEST_F(MirrorUpdates, ShortRangesThatAreFlushedGoTogether) {
  std::vector<MirrorTicket> tickets;
  const auto flush = [&](std::uint64_t at, std::uint64_t length) {
    local_->bytes()[at] = std::byte{9};
    const auto ticket = mirror_->flush({at, length});
    EXPECT_TRUE(ticket.ok()) << ticket.error().message;
    tickets.push_back(*ticket);
    return ticket->number;
  };
  for (std::uint64_t range = 0; range < 8; ++range) EXPECT_EQ(flush(range * 256, 64), 1U);
  local_->bytes()[0] = std::byte{10};  // what they hold is taken when they go
  EXPECT_EQ(flush(16 * 1024, 9 * 1024), 2U) << "a large one goes alone, behind them";
  EXPECT_EQ(flush(32 * 1024, 7 * 1024), 3U);
  EXPECT_EQ(flush(40 * 1024, 7 * 1024), 3U);
  EXPECT_EQ(flush(48 * 1024, 7 * 1024), 4U) << "more than a message takes";
  EXPECT_EQ(mirror_->begun(), 4U);
  ASSERT_TRUE(mirror_->wait(tickets[0], kPatience).ok());
  ASSERT_TRUE(mirror_->wait(tickets.back(), kPatience).ok());
  EXPECT_EQ(mirror_->committed(), 4U);
  for (const auto& server : servers_) {
    const auto there = server->region().bytes().subspan(pmem::kPoolDataOffset + kDataAt, kBytes);
    EXPECT_EQ(there[256], std::byte{9});
    EXPECT_EQ(there[48 * 1024], std::byte{9});
    EXPECT_TRUE(std::ranges::equal(there, local_->bytes()));
  }
}

// The power fails where ADR does not do what it is to do. Expect: what was persisted is lost, what
// was persisted deep is there, here and on every replica.
TEST_F(MirrorUpdates, DeepSurvivesAPowerFailureThatFlushesNothing) {
  local_->break_flush_on_failure();
  for (const auto& server : servers_) server->region().break_flush_on_failure();
  const MirrorTicket ticket = begin();
  ASSERT_TRUE(mirror_->wait(ticket, kPatience).ok());
  EXPECT_TRUE(*mirror_->is_deep(ticket));
  local_->bytes()[200] = std::byte{8};
  const auto plain = mirror_->flush({200, 8});
  ASSERT_TRUE(mirror_->wait(*plain, kPatience).ok());
  EXPECT_FALSE(*mirror_->is_deep(*plain));
  local_->power_cut(random_);
  for (const auto kept : {std::span<const std::byte>(local_->bytes()), kept_by(*servers_[0]),
                          kept_by(*servers_[1])}) {
    EXPECT_EQ(kept[100], std::byte{7});
    EXPECT_EQ(kept[200], std::byte{0});
  }
}

// A replica was away when it was begun. Expect: it is not deep there once the replica is back,
// which has got the page in a copy; begun again it is.
TEST_F(MirrorUpdates, DeepIsNotClaimedOfAReplicaThatCameBackMeanwhile) {
  servers_[1]->lose_power();
  const MirrorTicket ticket = begin();
  ASSERT_TRUE(mirror_->wait(ticket, kPatience).ok());
  EXPECT_TRUE(*mirror_->is_deep(ticket));
  ASSERT_TRUE(servers_[1]->start_again().ok());
  come_in_sync();
  EXPECT_FALSE(*mirror_->is_deep(ticket));
  const MirrorTicket again = begin();
  ASSERT_TRUE(mirror_->wait(again, kPatience).ok());
  EXPECT_TRUE(*mirror_->is_deep(again));
  EXPECT_FALSE(*mirror_->is_deep(ticket)) << "nor because a later one is deep";
}

// Receive: power failures, until nobody is in sync. Expect: nothing is deep, also what was.
TEST_F(MirrorUpdates, DeepIsNotClaimedOfFewerThanTheQuorum) {
  const MirrorTicket ticket = begin();
  ASSERT_TRUE(mirror_->wait(ticket, kPatience).ok());
  EXPECT_TRUE(*mirror_->is_deep(ticket));
  for (const auto& server : servers_) server->lose_power();
  for (int rounds = 0; rounds < 100'000 && mirror_->status().in_sync > 0; ++rounds) {
    if (!mirror_->progress()) world_.pass(std::chrono::milliseconds(1));
  }
  ASSERT_EQ(mirror_->status().in_sync, 0U);
  EXPECT_FALSE(*mirror_->is_deep(ticket));
}

TEST_F(MirrorUpdates, DeepSaysWhichMediumHasNoSuchThingAndGoesOn) {
  servers_[0]->region().refuse_deep_flushes(true);
  const MirrorTicket ticket = begin();
  ASSERT_TRUE(mirror_->wait(ticket, kPatience).ok());
  EXPECT_EQ(mirror_->is_deep(ticket).code(), ErrorCode::Unsupported);
  EXPECT_TRUE(mirror_->all_in_sync());
}

// It is the local medium. Expect: what is said of it is said once the range is on the quorum.
TEST_F(MirrorUpdates, DeepThatTheLocalMediumRefusesIsPersistedAllTheSame) {
  const MirrorTicket deep = begin();
  ASSERT_TRUE(mirror_->wait(deep, kPatience).ok());
  for (const auto& server : servers_) server->lose_power();
  local_->refuse_deep_flushes(true);
  const MirrorTicket ticket = begin();
  EXPECT_EQ(mirror_->wait(ticket, std::chrono::milliseconds(10)).code(), ErrorCode::QuorumLost);
  for (const auto& server : servers_) ASSERT_TRUE(server->start_again().ok());
  come_in_sync();
  ASSERT_TRUE(mirror_->wait(ticket, kPatience).ok());
  EXPECT_EQ(mirror_->is_deep(ticket).code(), ErrorCode::Unsupported);
  // Receive: the next one, which the medium can do.
  local_->refuse_deep_flushes(false);
  const MirrorTicket again = begin();
  ASSERT_TRUE(mirror_->wait(again, kPatience).ok());
  EXPECT_TRUE(*mirror_->is_deep(again));
  for (const auto& server : servers_) EXPECT_EQ(kept_by(*server)[100], std::byte{7});
}

}  // namespace
}  // namespace perdure::mirror
