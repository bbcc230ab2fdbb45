// Mirrors whose peers and writers are killed: real daemons, over tcp and shared memory.
#include <gtest/gtest.h>
#include <perdure/mirror.h>
#include <perdure/perdure.h>
#include <perdure/pool.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <functional>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "client/dial.h"
#include "client/remote_bytes.h"
#include "core/clock.h"
#include "killed_peer.h"
#include "mirror/mirror_survey.h"
#include "testing/child_of_fork.h"

namespace perdure::server {
namespace {

constexpr std::uint64_t kBytes = 2 * 1024 * 1024;
constexpr std::uint64_t kPage = 4096;
constexpr std::chrono::minutes kMirrorPatience{1};

void await(const std::function<bool()>& reached, const std::string& what) {
  const Deadline patience = Deadline::after(kMirrorPatience);
  while (!reached()) {
    ASSERT_FALSE(patience.passed()) << what;
    std::this_thread::yield();
  }
}

/// Two peers, and memory that is mirrored on them.
class MirrorPeers : public testing::Test {
 protected:
  MirrorPeers() : local_(place_.file("tree")), memory_(kBytes) {
    for (auto& peer : peers_) {
      const auto made = create_pool(peer.address(), {.name = "tree", .bytes = kBytes + 16 * kPage});
      EXPECT_TRUE(made.ok()) << made.error().message;
    }
  }
  MirrorOptions options(Transport transport, std::size_t quorum) const {
    MirrorOptions options;
    for (const auto& peer : peers_) options.peers.push_back(peer.address());
    options.pool = "tree";
    options.quorum = quorum;
    options.transport = transport;
    options.measure_costs = false;
    options.reconnect = std::chrono::milliseconds(20);
    return options;
  }
  /// Memory of this process, in sync on both.
  Result<Mirror> open(const MirrorOptions& options) {
    auto mirror = Mirror::open(MirrorMemory::bytes(memory_), options);
    if (mirror.ok()) {
      const auto in_sync = mirror->wait_in_sync(kMirrorPatience);
      EXPECT_TRUE(in_sync.ok()) << in_sync.error().message;
    }
    return mirror;
  }
  static bool is_equal(Mirror& mirror, std::size_t replica) {
    std::vector<std::byte> there(kBytes);
    const auto read = mirror.read(0, there, replica);
    EXPECT_TRUE(read.ok()) << read.error().message;
    return std::ranges::equal(there, mirror.memory());
  }
  static void store(Mirror& mirror, std::uint64_t at, std::uint64_t value) {
    std::memcpy(mirror.memory().data() + at, &value, sizeof value);
  }

  std::array<KilledPeer, 2> peers_;
  TestDirectory place_;
  const std::string local_;
  std::vector<std::byte> memory_;
};

// Updates: one in 64, and the first; waiting for one counts for nothing.
TEST_F(MirrorPeers, TimesItsCalls) {
  auto mirror = open(options(Transport::Tcp, 2));
  ASSERT_TRUE(mirror.ok()) << mirror.error().message;
  for (std::uint64_t updates = 1; updates <= 130; ++updates) {
    store(*mirror, 0, updates);
    ASSERT_TRUE(mirror->persist(0, 8).ok());
    ASSERT_TRUE(mirror->drain().ok());
    ASSERT_EQ(mirror->times().durable.count(), 1 + (updates - 1) / 64) << updates;
  }
  EXPECT_EQ(mirror->times().reads.count(), 0u);
  EXPECT_TRUE(is_equal(*mirror, 1));
  EXPECT_EQ(mirror->times().reads.count(), 1u);
  EXPECT_GT(mirror->times().reads.sum_ns, 0u);
}

// The mirror has a thread of its own. Expect: a child is refused everything, and ends nothing of
// its parent's.
TEST_F(MirrorPeers, AChildIsRefusedAndEndsNothing) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer ends a child that was forked while there are threads";
#endif
  auto mirror = open(options(Transport::Tcp, 1));
  ASSERT_TRUE(mirror.ok()) << mirror.error().message;
  store(*mirror, 0, 1);
  ASSERT_TRUE(mirror->persist(0, 8).ok());
  EXPECT_TRUE(test::yes_in_a_child([&] {
    constexpr ErrorCode kRefused = ErrorCode::InvalidArgument;
    std::array<std::byte, 8> word{};
    MirrorLane lane = mirror->lane();
    const bool refused =
        mirror->persist(0, 8).code() == kRefused && mirror->flush(0, 8).code() == kRefused &&
        mirror->drain().code() == kRefused && lane.drain().code() == kRefused &&
        mirror->deep_persist(0, 8).code() == kRefused &&
        mirror->write_atomic(0, 7).code() == kRefused && mirror->read(0, word).code() == kRefused &&
        mirror->wait_in_sync(kMirrorPatience).code() == kRefused;
    mirror->~Mirror();
    return refused;
  }));
  store(*mirror, 8, 2);
  EXPECT_TRUE(mirror->persist(8, 8).ok());
  EXPECT_TRUE(is_equal(*mirror, 0));
  EXPECT_TRUE(is_equal(*mirror, 1));
}

class KilledReplica : public MirrorPeers, public testing::WithParamInterface<Transport> {};

// A replica is killed with updates in flight. Expect: the program goes on; the replica comes back
// with the pages that changed since it was lost and no others, and has everything then.
TEST_P(KilledReplica, ComesBackWithOnlyWhatChanged) {
  std::fill(memory_.begin(), memory_.end(), std::byte{7});
  auto mirror = open(options(GetParam(), 1));
  ASSERT_TRUE(mirror.ok()) << mirror.error().message;
  constexpr std::uint64_t kBefore = 200;  // pages: many more than change while it is away
  for (std::uint64_t page = 0; page < kBefore; ++page) {
    store(*mirror, page * kPage, page);
    ASSERT_TRUE(mirror->flush(page * kPage, sizeof page).ok());
  }
  ASSERT_TRUE(mirror->drain().ok());
  const std::uint64_t copied_before = mirror->status().replicas[1].copied_bytes;

  constexpr std::uint64_t kChanging = 40;
  std::atomic<bool> enough{false};
  std::atomic<std::uint64_t> done{0};
  std::thread program([&] {
    for (std::uint64_t number = 1; !enough; ++number) {
      const std::uint64_t at = (kBefore + number % kChanging) * kPage + number % 64 * 8;
      store(*mirror, at, number);
      const auto persisted = mirror->persist(at, sizeof number);
      EXPECT_TRUE(persisted.ok()) << persisted.error().message;
      if (!persisted.ok()) return;
      ++done;
    }
  });
  await([&] { return done > 20; }, "the program got on");
  peers_[1].kill();
  const std::uint64_t at_kill = done;
  await([&] { return done > at_kill + 2 * kChanging; }, "it goes on with one replica");
  EXPECT_NE(mirror->status().replicas[1].state, MirrorReplicaState::InSync);
  peers_[1].start();
  const auto in_sync = mirror->wait_in_sync(kMirrorPatience);
  EXPECT_TRUE(in_sync.ok()) << in_sync.error().message;
  enough = true;
  program.join();
  ASSERT_TRUE(mirror->drain().ok());
  const MirrorStatus status = mirror->status();
  const std::uint64_t copied = status.replicas[1].copied_bytes - copied_before;
  EXPECT_GE(copied, kPage) << "nothing had to be copied: nothing was tried";
  EXPECT_LE(copied * 100, kChanging * kPage * 101) << copied / kPage << " pages";
  EXPECT_EQ(status.replicas[1].returned, 1u);
  for (const std::size_t replica : {0, 1}) EXPECT_TRUE(is_equal(*mirror, replica)) << replica;
  // The judge is one: what is stored and not persisted is not there.
  store(*mirror, kBytes - 8, 1);
  EXPECT_FALSE(is_equal(*mirror, 1));
  EXPECT_TRUE(mirror->close().ok());
}

INSTANTIATE_TEST_SUITE_P(Each, KilledReplica, testing::Values(Transport::Tcp, Transport::Shm),
                         [](const auto& each) { return std::string(to_string(each.param)); });

TEST_F(MirrorPeers, TheSecondWriterFencesTheFirst) {
  std::fill(memory_.begin(), memory_.end(), std::byte{1});
  auto first = open(options(Transport::Tcp, 2));
  ASSERT_TRUE(first.ok()) << first.error().message;
  std::vector<std::byte> other(memory_);
  MirrorOptions second = options(Transport::Tcp, 2);
  const auto busy = Mirror::open(MirrorMemory::bytes(other), second);
  EXPECT_EQ(busy.code(), ErrorCode::Busy);
  store(*first, 0, 11);
  ASSERT_TRUE(first->persist(0, 8).ok()) << "a refused one disturbs nobody";
  // Nor does one that may take over, and whose memory was lost.
  second.take_over = true;
  std::vector<std::byte> lost(kBytes);
  const auto refused = Mirror::open(MirrorMemory::bytes(lost), second);
  EXPECT_EQ(refused.code(), ErrorCode::InvalidArgument);
  EXPECT_NE(refused.error().message.find("only zeros"), std::string::npos);
  ASSERT_TRUE(first->persist(0, 8, kMirrorPatience).ok()) << "it was fenced";
  second.start = MirrorStart::Replicas;
  auto taken = Mirror::open(MirrorMemory::bytes(other), second);
  ASSERT_TRUE(taken.ok()) << taken.error().message;
  EXPECT_EQ(static_cast<int>(other[0]), 11) << "what was acknowledged is there";
  store(*first, 0, 12);
  // It was begun, if nobody had seen by then that it is fenced; the next one is not.
  const auto late = first->persist(0, 8, kMirrorPatience);
  EXPECT_TRUE(late.code() == ErrorCode::OutcomeUnknown || late.code() == ErrorCode::Fenced)
      << late.error().message;
  const std::uint64_t begun = first->status().begun;
  for (const std::uint64_t length : {std::uint64_t{8}, 4 * kPage}) {
    EXPECT_EQ(first->persist(0, length, kMirrorPatience).code(), ErrorCode::Fenced) << length;
    EXPECT_EQ(first->flush(0, length).code(), ErrorCode::Fenced) << length;
  }
  EXPECT_EQ(first->status().begun, begun);
  store(*taken, 8, 13);
  ASSERT_TRUE(taken->persist(8, 8).ok());
  for (const std::size_t replica : {0, 1}) EXPECT_TRUE(is_equal(*taken, replica)) << replica;
}

// Pools that hold no mirror yet, and have a writer. Expect: who can not be served does not end it.
TEST_F(MirrorPeers, WhoAsksForWhatIsNotThereFencesNobody) {
  client::Dialer dialer;
  const auto peer = dialer.dial(peers_[0].address(), Transport::Tcp);
  ASSERT_TRUE(peer.ok()) << peer.error().message;
  control::SessionRequest request;
  request.pool = "tree";
  request.write = true;
  request.epoch = Epoch{1};
  request.writer = 1;
  const auto writer = (*peer)->open_session(request, Deadline::after(kMirrorPatience));
  ASSERT_TRUE(writer.ok()) << writer.error().message;
  MirrorOptions wrong = options(Transport::Tcp, 2);
  wrong.take_over = true;
  std::vector<std::byte> too_large(kBytes + 32 * kPage);
  EXPECT_EQ(Mirror::open(MirrorMemory::bytes(too_large), wrong).code(), ErrorCode::InvalidArgument);
  wrong.start = MirrorStart::Replicas;
  EXPECT_EQ(Mirror::open(MirrorMemory::bytes(memory_), wrong).code(), ErrorCode::NotFound);
  const auto pool = (*peer)->describe("tree", Deadline::after(kMirrorPatience));
  ASSERT_TRUE(pool.ok()) << pool.error().message;
  EXPECT_TRUE(pool->writer_present);
  EXPECT_EQ(pool->epoch, Epoch{1});
}

TEST_F(MirrorPeers, ManyThreadsEachPersistTheirOwn) {
  std::fill(memory_.begin(), memory_.end(), std::byte{1});
  auto mirror = open(options(Transport::Shm, 2));
  ASSERT_TRUE(mirror.ok()) << mirror.error().message;
  constexpr std::uint64_t kThreads = 8;
  constexpr std::uint64_t kEach = 100;
  std::vector<std::thread> threads;
  for (std::uint64_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      MirrorLane lane = mirror->lane();
      for (std::uint64_t number = 0; number < kEach; ++number) {
        const std::uint64_t at = (number * kThreads + thread) * 64;
        store(*mirror, at, number + 1);
        const auto begun = number % 3 == 0 ? lane.persist(at, 8) : lane.flush(at, 8);
        EXPECT_TRUE(begun.ok()) << begun.error().message;
        if (number % 10 == 9) {
          EXPECT_TRUE(lane.drain().ok());
        }
      }
    });
  }
  for (std::thread& each : threads) each.join();
  // Each has drained its lane: nothing was left behind, whoever began it.
  const MirrorStatus status = mirror->status();
  EXPECT_EQ(status.committed, status.begun);
  EXPECT_GE(status.begun, kThreads * kEach / 3);
  for (const std::size_t replica : {0, 1}) EXPECT_TRUE(is_equal(*mirror, replica)) << replica;
}

/// What the test and a writer in another process tell each other.
struct Shared {
  std::atomic<std::uint64_t> acknowledged{0};
  std::atomic<bool> go_on{false};
};
constexpr std::uint64_t kFirst = 300;  // so far it counts before it waits for go_on

/// What a program does that is killed: it counts, and says how far it has come durably.
int count_durably(const std::string& file, const MirrorOptions& options, Shared& shared) {
  auto memory = MirrorMemory::file(file);
  if (!memory.ok()) return 1;
  auto mirror = Mirror::open(std::move(*memory), options);
  if (!mirror.ok()) return 2;
  for (std::uint64_t number = 1;; ++number) {
    while (number > kFirst && !shared.go_on) std::this_thread::yield();
    const std::uint64_t at = number % 256 * kPage;
    std::memcpy(mirror->memory().data() + at, &number, sizeof number);
    if (!mirror->persist(at, sizeof number, std::chrono::minutes(2)).ok()) return 3;
    shared.acknowledged = number;
  }
}

/// The word of peer `index`, read while nobody writes to it; nothing: it does not answer.
std::optional<std::uint64_t> word_of(const MirrorOptions& options, std::size_t index,
                                     std::uint64_t at) {
  client::Dialer dialer;
  const auto peer = dialer.dial(options.peers[index], options.transport);
  if (!peer.ok()) return std::nullopt;
  auto bytes =
      client::RemoteBytes::open(**peer, options.pool, std::chrono::seconds(30), Clock::monotonic());
  std::uint64_t word = 0;
  const auto into = std::as_writable_bytes(std::span(&word, 1));
  if (!bytes.ok() || !(*bytes)->read(mirror::kDataAt + at, into).ok()) return std::nullopt;
  return word;
}

/// Pages in which the replicas differ.
std::uint64_t differences(const MirrorOptions& options) {
  client::Dialer dialer;
  auto peers = dialer.dial_replicas(options.peers, options.transport);
  EXPECT_TRUE(peers.ok());
  mirror::MirrorSurvey survey =
      mirror::survey(*peers, options.pool, std::chrono::seconds(30), Clock::monotonic());
  const auto found = mirror::compare_newest(survey, [](std::uint64_t) {});
  EXPECT_TRUE(found.ok()) << found.error().message;
  return found.ok() && found->size() == 2 ? (*found)[1].pages : 0;
}

// The writer dies while one replica has its last update and the other has not.
// Expect: they differ; the next writer brings both to the local memory, and whoever has lost that
// finds all that was acknowledged at either.
TEST_F(MirrorPeers, AKilledWriterIsReconciledByTheNext) {
  {
    auto made = MirrorMemory::create_file(local_, kBytes);
    ASSERT_TRUE(made.ok()) << made.error().message;
  }
  const MirrorOptions writing = options(Transport::Tcp, 2);
  void* const both =
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(both, MAP_FAILED);
  auto& shared = *new (both) Shared;
  auto writer = test::ChildProcess::fork([&] { return count_durably(local_, writing, shared); });
  ASSERT_TRUE(writer.ok()) << writer.error().message;
  await([&] { return shared.acknowledged == kFirst || !writer->running(); }, "the writer got on");
  peers_[1].stop();
  shared.go_on = true;
  await([&] { return word_of(writing, 0, (kFirst + 1) % 256 * kPage) == kFirst + 1; },
        "the other replica has what comes next");
  ASSERT_TRUE(writer->running());
  EXPECT_EQ(shared.acknowledged, kFirst);
  writer->kill();
  peers_[1].kill();
  peers_[1].start();
  EXPECT_EQ(differences(writing), 1u);

  MirrorOptions next = writing;
  next.take_over = true;
  {
    auto memory = MirrorMemory::file(local_);
    ASSERT_TRUE(memory.ok()) << memory.error().message;
    auto mirror = Mirror::open(std::move(*memory), next);
    ASSERT_TRUE(mirror.ok()) << mirror.error().message;
    ASSERT_TRUE(mirror->wait_in_sync(kMirrorPatience).ok());
    for (const std::size_t replica : {0, 1}) EXPECT_TRUE(is_equal(*mirror, replica)) << replica;
    std::uint64_t copied = 0;
    for (const auto& replica : mirror->status().replicas) copied += replica.copied_bytes;
    EXPECT_LE(copied, kPage) << "one page differed";
    EXPECT_TRUE(mirror->close().ok());
  }
  EXPECT_EQ(differences(writing), 0u);
  next.start = MirrorStart::Replicas;
  auto restored = Mirror::open(MirrorMemory::bytes(memory_), next);
  ASSERT_TRUE(restored.ok()) << restored.error().message;
  for (std::uint64_t number = kFirst - 255; number <= kFirst; ++number) {
    std::uint64_t there = 0;
    std::memcpy(&there, memory_.data() + number % 256 * kPage, sizeof there);
    EXPECT_TRUE(there == number || there == kFirst + 1) << there << " in place of " << number;
  }
  ::munmap(both, sizeof(Shared));
}

// What can not be read here any more is zeros for whoever looks. A replica comes back and is to get
// it. Expect: it gets nothing, and does not count; nor is it told of anything that is persisted.
TEST_F(MirrorPeers, APageThatIsLostHereGoesToNoReplica) {
  constexpr std::uint64_t kAt = 300 * kPage;
  MirrorOptions given = options(Transport::Tcp, 1);
  auto mirror = Mirror::open(*MirrorMemory::create_file(local_, kBytes), given);
  ASSERT_TRUE(mirror.ok()) << mirror.error().message;
  ASSERT_TRUE(mirror->wait_in_sync(kMirrorPatience).ok());
  store(*mirror, kAt, 1);
  ASSERT_TRUE(mirror->persist(kAt, 8).ok());
  ASSERT_TRUE(mirror->wait_in_sync(kMirrorPatience).ok());
  peers_[1].kill();
  await([&] { return mirror->status().in_sync == 1; }, "its loss is noticed");
  store(*mirror, kAt, 2);
  ASSERT_TRUE(mirror->persist(kAt, 8).ok());
  ASSERT_EQ(::truncate(local_.c_str(), 100 * kPage), 0);
  peers_[1].start();
  EXPECT_FALSE(mirror->wait_in_sync(std::chrono::seconds{3}).ok());
  EXPECT_EQ(mirror->persist(kAt, 8).code(), ErrorCode::SystemError);
  EXPECT_FALSE(mirror->close().ok());
  given.start = MirrorStart::Replicas;
  given.take_over = true;
  auto again = Mirror::open(MirrorMemory::bytes(memory_), given);
  ASSERT_TRUE(again.ok()) << again.error().message;
  std::uint64_t found = 0;
  std::memcpy(&found, memory_.data() + kAt, sizeof found);
  EXPECT_EQ(found, 2u);
  ASSERT_TRUE(again->close().ok());
}

// An update waits for a replica that is away. It comes back, and a page that it is to get can not
// be read here any more. Expect: what was begun may be durable or not, and nothing more is begun.
TEST_F(MirrorPeers, WhatWasBegunIsUnknownOnceTheLocalMediumHasRefused) {
  constexpr std::uint64_t kAt = 300 * kPage;
  auto mirror =
      Mirror::open(*MirrorMemory::create_file(local_, kBytes), options(Transport::Tcp, 2));
  ASSERT_TRUE(mirror.ok()) << mirror.error().message;
  ASSERT_TRUE(mirror->wait_in_sync(kMirrorPatience).ok());
  peers_[1].kill();
  await([&] { return mirror->status().in_sync == 1; }, "its loss is noticed");
  store(*mirror, kAt, 1);
  const auto ticket = mirror->flush(kAt, 8);
  ASSERT_TRUE(ticket.ok()) << ticket.error().message;
  EXPECT_EQ(mirror->wait(*ticket, std::chrono::milliseconds{1}).code(), ErrorCode::QuorumLost);
  const auto persisted = mirror->persist(kAt, 8, std::chrono::milliseconds{1});
  EXPECT_EQ(persisted.code(), ErrorCode::OutcomeUnknown) << persisted.error().message;
  const std::uint64_t begun = mirror->status().begun;
  ASSERT_EQ(::truncate(local_.c_str(), 100 * kPage), 0);
  peers_[1].start();
  EXPECT_EQ(mirror->wait(*ticket, kMirrorPatience).code(), ErrorCode::OutcomeUnknown);
  EXPECT_EQ(mirror->drain(kMirrorPatience).code(), ErrorCode::OutcomeUnknown);
  for (const std::uint64_t length : {std::uint64_t{8}, 4 * kPage}) {
    EXPECT_EQ(mirror->persist(0, length).code(), ErrorCode::SystemError) << length;
    EXPECT_EQ(mirror->flush(0, length).code(), ErrorCode::SystemError) << length;
  }
  EXPECT_EQ(mirror->status().begun, begun);
  EXPECT_FALSE(mirror->close().ok());
}

// Every call of the C interface, with a replica killed between them.
TEST_F(MirrorPeers, FromCItIsTheSame) {
  const std::string addresses[] = {peers_[0].address(), peers_[1].address()};
  const char* const peers[] = {addresses[0].c_str(), addresses[1].c_str()};
  perdure_mirror_options options{};
  options.size = sizeof options;
  options.peers = peers;
  options.peer_count = 2;
  options.pool = "tree";
  options.quorum = 1;
  options.transport = "tcp";
  options.file = local_.c_str();
  options.create_bytes = kBytes;
  options.start = "new";
  options.usual_costs = true;
  options.reconnect_ms = 20;
  perdure_mirror* mirror = nullptr;
  ASSERT_EQ(perdure_mirror_open(&options, &mirror), PERDURE_OK) << perdure_last_error();
  ASSERT_EQ(perdure_mirror_wait_in_sync(mirror, 60'000), PERDURE_OK) << perdure_last_error();
  std::size_t bytes = 0;
  auto* const memory = static_cast<char*>(perdure_mirror_memory(mirror, &bytes));
  ASSERT_EQ(bytes, kBytes);
  std::memcpy(memory, "abcdefgh", 8);
  EXPECT_EQ(perdure_mirror_persist(mirror, 0, 8, 60'000), PERDURE_OK) << perdure_last_error();
  EXPECT_EQ(perdure_mirror_deep_persist(mirror, 0, 8, 60'000), PERDURE_OK) << perdure_last_error();
  EXPECT_EQ(perdure_mirror_deep_persist(mirror, kBytes, 8, 60'000), PERDURE_OUT_OF_RANGE);
  EXPECT_EQ(perdure_mirror_persist(mirror, kBytes, 8, 60'000), PERDURE_OUT_OF_RANGE);
  peers_[1].kill();
  std::uint64_t ticket = 0;
  std::memcpy(memory + 64, "record", 6);
  const perdure_mirror_range ordered[] = {{64, 6, 0}, {0, 8, 1}};
  ASSERT_EQ(perdure_mirror_flush_ordered(mirror, ordered, 2, &ticket), PERDURE_OK);
  EXPECT_EQ(perdure_mirror_wait(mirror, ticket, 60'000), PERDURE_OK) << perdure_last_error();
  bool yes = false;
  EXPECT_EQ(perdure_mirror_reached(mirror, ticket, &yes), PERDURE_OK);
  EXPECT_TRUE(yes);
  const perdure_mirror_range backwards[] = {{64, 6, 1}, {0, 8, 0}};
  EXPECT_EQ(perdure_mirror_flush_ordered(mirror, backwards, 2, &ticket), PERDURE_INVALID_ARGUMENT);
  const perdure_range written[] = {{128, "one", 3, 0}, {256, "two", 3, 1}};
  ASSERT_EQ(perdure_mirror_write(mirror, written, 2, &ticket), PERDURE_OK) << perdure_last_error();
  EXPECT_EQ(std::string(memory + 256, 3), "two");
  EXPECT_EQ(perdure_mirror_write_atomic(mirror, 512, 77, 60'000), PERDURE_OK);
  EXPECT_EQ(perdure_mirror_write_atomic(mirror, 513, 77, 60'000), PERDURE_INVALID_ARGUMENT);
  ASSERT_EQ(perdure_mirror_flush(mirror, 0, 8, &ticket), PERDURE_OK);
  EXPECT_EQ(perdure_mirror_drain(mirror, 60'000), PERDURE_OK) << perdure_last_error();
  perdure_mirror_replica_status replicas[2] = {};
  for (auto& each : replicas) each.size = sizeof each;
  std::size_t there = 0;
  ASSERT_EQ(perdure_mirror_get_replicas(mirror, replicas, 2, &there), PERDURE_OK);
  EXPECT_EQ(there, 2u);
  EXPECT_EQ(replicas[0].state, PERDURE_MIRROR_IN_SYNC);
  EXPECT_NE(replicas[1].state, PERDURE_MIRROR_IN_SYNC);
  EXPECT_STRNE(replicas[1].down_reason, "");
  EXPECT_STREQ(replicas[0].small_family, "GPRRM") << "tcp has no one-sided durable write";
  peers_[1].start();
  ASSERT_EQ(perdure_mirror_wait_in_sync(mirror, 60'000), PERDURE_OK) << perdure_last_error();
  perdure_mirror_status status{};
  status.size = sizeof status;
  ASSERT_EQ(perdure_mirror_get_status(mirror, &status), PERDURE_OK);
  EXPECT_EQ(status.in_sync, 2u);
  EXPECT_EQ(status.begun, status.committed);
  perdure_mirror_times times{sizeof times, {}, {}};
  ASSERT_EQ(perdure_mirror_get_times(mirror, &times), PERDURE_OK);
  EXPECT_TRUE(perdure_time_quantile_ns(&times.durable, 0.5) > 0 && times.reads.sum_ns == 0);
  for (const std::size_t replica : {std::size_t{0}, std::size_t{1}, PERDURE_ANY_REPLICA}) {
    std::vector<char> back(kBytes);
    ASSERT_EQ(perdure_mirror_read(mirror, 0, back.data(), kBytes, replica), PERDURE_OK);
    EXPECT_EQ(std::memcmp(back.data(), memory, kBytes), 0) << replica;
  }
  EXPECT_EQ(perdure_mirror_close(mirror, 60'000), PERDURE_OK) << perdure_last_error();
}

// Copied over memory that the program has mapped from a file of another name.
TEST_F(MirrorPeers, FromCMemoryOfAFileIsCopiedTo) {
  auto created =
      Mirror::open(*MirrorMemory::create_file(local_, kBytes), options(Transport::Tcp, 2));
  ASSERT_TRUE(created.ok()) << created.error().message;
  std::memcpy(created->memory().data() + 256, "two", 3);
  ASSERT_TRUE(created->persist(256, 3).ok());
  ASSERT_TRUE(created->close().ok());
  const std::string addresses[] = {peers_[0].address(), peers_[1].address()};
  const char* const peers[] = {addresses[0].c_str(), addresses[1].c_str()};
  const std::string elsewhere = local_ + ".elsewhere";
  perdure_mirror_options given{};
  given.size = sizeof given;
  given.peers = peers;
  given.peer_count = 2;
  given.pool = "tree";
  given.transport = "tcp";
  given.memory = memory_.data();
  given.memory_bytes = kBytes;
  given.memory_file = elsewhere.c_str();
  given.start = "replicas";
  given.only_copies = true;
  perdure_mirror* mirror = nullptr;
  // Unless something else is said the file is to have what is persisted.
  EXPECT_EQ(perdure_mirror_open(&given, &mirror), PERDURE_NOT_FOUND);
  given.memory_domain = "none";
  // The peers may not have noticed yet that the one that was refused is gone.
  perdure_code opened = PERDURE_BUSY;
  const Deadline deadline = Deadline::after(std::chrono::seconds(20));
  while (opened == PERDURE_BUSY && !deadline.passed()) {
    opened = perdure_mirror_open(&given, &mirror);
  }
  ASSERT_EQ(opened, PERDURE_OK) << perdure_last_error();
  EXPECT_EQ(std::memcmp(memory_.data() + 256, "two", 3), 0);
  std::uint64_t ticket = 0;
  EXPECT_EQ(perdure_mirror_flush(mirror, 0, 8, &ticket), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_mirror_close(mirror, 60'000), PERDURE_OK) << perdure_last_error();
  EXPECT_TRUE(std::filesystem::exists(elsewhere + ".mirror"));
}

TEST_F(MirrorPeers, OptionsAreWordsInCToo) {
  const std::string connection = "perdure://" + peers_[0].address() + "," + peers_[1].address() +
                                 "/tree?transport=tcp&measure_costs=0&start=new";
  perdure_mirror_options memory{};
  memory.size = sizeof memory;
  memory.file = local_.c_str();
  memory.create_bytes = kBytes;
  perdure_mirror* mirror = nullptr;
  ASSERT_EQ(perdure_mirror_open_string(connection.c_str(), &memory, &mirror), PERDURE_OK)
      << perdure_last_error();
  EXPECT_EQ(perdure_mirror_persist(mirror, 0, 8, 60'000), PERDURE_OK) << perdure_last_error();
  EXPECT_EQ(perdure_mirror_close(mirror, 60'000), PERDURE_OK) << perdure_last_error();
  memory.create_bytes = 0;
  memory.take_over = true;  // that is for the connection to say
  EXPECT_EQ(perdure_mirror_open_string(connection.c_str(), &memory, &mirror),
            PERDURE_INVALID_ARGUMENT);
  EXPECT_NE(std::strstr(perdure_last_error(), "about the memory"), nullptr) << perdure_last_error();
  memory.take_over = false;
  memory.size = 0;
  EXPECT_EQ(perdure_mirror_open_string(connection.c_str(), &memory, &mirror),
            PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_mirror_open_file("/nowhere/mirror.toml", &memory, &mirror), PERDURE_NOT_FOUND);
  EXPECT_EQ(perdure_mirror_open_file(nullptr, &memory, &mirror), PERDURE_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace perdure::server
