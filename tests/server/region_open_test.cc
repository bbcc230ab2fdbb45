// Regions through the public interfaces, C++ and C, over transports of this machine: what they
// promise while all is well, who may have a pool, and what is said of replicas that may differ.
#include <gtest/gtest.h>
#include <perdure/log.h>
#include <perdure/perdure.h>
#include <perdure/region.h>
#include <poll.h>

#include <array>
#include <cstring>
#include <optional>

#include "core/bytes.h"
#include "opened_peer.h"
#include "testing/child_of_fork.h"

namespace perdure::server {
namespace {

constexpr std::chrono::minutes kPatience{1};

class RegionOpen : public testing::TestWithParam<Transport> {
 protected:
  void start(std::size_t peers, std::uint64_t pool_bytes = std::uint64_t{2} << 20) {
    for (std::size_t index = 0; index < peers; ++index) {
      peers_.push_back(std::make_unique<OpenedPeer>(GetParam(), index, "bytes", pool_bytes));
    }
  }

  RegionOptions options() const {
    RegionOptions options;
    for (const auto& each : peers_) options.peers.push_back(each->address());
    options.pool = "bytes";
    options.transport = GetParam();
    options.measure_costs = false;
    options.take_over = true;  // that the one before has gone may take a moment to be noticed
    return options;
  }

  Result<Log> open_log() {
    LogOptions options;
    for (const auto& each : peers_) options.peers.push_back(each->address());
    options.pool = "bytes";
    options.transport = GetParam();
    options.record_bytes_max = 4096;
    options.measure_costs = false;
    options.take_over = true;
    return Log::open(std::move(options));
  }

  static void write(Region& region, std::uint64_t at, const std::string& text) {
    const auto ticket = region.write(at, std::as_bytes(std::span(text)));
    ASSERT_TRUE(ticket.ok()) << ticket.error().message;
    const auto done = region.wait(*ticket, Level::Committed, kPatience);
    ASSERT_TRUE(done.ok()) << done.error().message;
  }
  static std::string read(Region& region, std::uint64_t at, std::size_t length,
                          std::size_t replica = Region::kAny) {
    std::string text(length, '?');
    const auto done = region.read(at, std::as_writable_bytes(std::span(text)), replica);
    return done.ok() ? text : done.error().message;
  }

  std::vector<std::unique_ptr<OpenedPeer>> peers_;
};

TEST_P(RegionOpen, WhatIsWrittenIsThereOnEveryReplicaAndAfterItIsOpenedAgain) {
  start(3);
  {
    auto region = Region::open(options());
    ASSERT_TRUE(region.ok()) << region.error().message;
    EXPECT_FALSE(region->status().may_differ);
    EXPECT_EQ(region->status().quorum, 3u);
    const std::string large(300'000, 'x');
    const std::string word = "12345678";
    const std::array<RangeWrite, 2> data = {
        {{0, std::as_bytes(std::span(large))}, {400'000, std::as_bytes(std::span("hello", 5))}}};
    const RangeWrite tail{500'000, std::as_bytes(std::span(word))};
    const std::array<RangeEpoch, 2> epochs = {RangeEpoch(data), RangeEpoch(&tail, 1)};
    const auto ticket = region->write(epochs);
    ASSERT_TRUE(ticket.ok()) << ticket.error().message;
    EXPECT_EQ(ticket->number, 1u);
    for (const Level level : {Level::Visible, Level::Durable, Level::Committed}) {
      const auto done = region->wait(*ticket, level, kPatience);
      EXPECT_TRUE(done.ok()) << done.error().message;
      EXPECT_TRUE(region->reached(*ticket, level));
    }
    for (std::size_t replica = 0; replica < 3; ++replica) {
      EXPECT_EQ(read(*region, 0, large.size(), replica), large);
      EXPECT_EQ(read(*region, 400'000, 5, replica), "hello");
    }
    for (int more = 0; more < 100; ++more) {
      ASSERT_TRUE(
          region->write(8 * static_cast<std::uint64_t>(more), std::as_bytes(std::span(word))).ok());
    }
    ASSERT_TRUE(region->flush(Level::Committed, std::chrono::milliseconds::max()).ok());
    EXPECT_EQ(region->status().committed, 101u);
    ASSERT_TRUE(region->close().ok());
  }
  auto again = Region::open(options());
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_FALSE(again->status().may_differ);
  EXPECT_EQ(read(*again, 500'000, 8, 2), "12345678");
  EXPECT_EQ(read(*again, 792, 8, 1), "12345678");
}

TEST_P(RegionOpen, WhatIsWrongIsRefusedAndNothingOfItIsBegun) {
  start(1);
  auto region = Region::open(options());
  ASSERT_TRUE(region.ok()) << region.error().message;
  const std::string text = "text";
  const auto bytes = std::as_bytes(std::span(text));
  EXPECT_EQ(region->write({}).code(), ErrorCode::InvalidArgument);
  EXPECT_EQ(region->write(0, {}).code(), ErrorCode::InvalidArgument);
  EXPECT_EQ(region->write(region->bytes() - 3, bytes).code(), ErrorCode::OutOfRange);
  EXPECT_EQ(region->write(UINT64_MAX - 1, bytes).code(), ErrorCode::OutOfRange);
  EXPECT_EQ(region->wait({1, 0}, Level::Durable).code(), ErrorCode::InvalidArgument);
  EXPECT_EQ(region->flush(Level::Received).code(), ErrorCode::Unsupported);
  EXPECT_EQ(region->wait({}, Level::Received).code(), ErrorCode::Unsupported);
  EXPECT_EQ(region->fetch_add(4, 1).code(), ErrorCode::InvalidArgument);
  EXPECT_EQ(region->fetch_add(region->bytes() & ~std::uint64_t{7}, 1).code(),
            ErrorCode::OutOfRange);
  std::array<std::byte, 8> into{};
  EXPECT_EQ(region->read(region->bytes() - 7, into).code(), ErrorCode::OutOfRange);
  EXPECT_EQ(region->read(0, into, 1).code(), ErrorCode::InvalidArgument);
  EXPECT_EQ(region->status().begun, 0u);
  write(*region, region->bytes() - 4, text);
  RegionOptions wrong = options();
  wrong.level = Level::Received;
  EXPECT_EQ(Region::open(wrong).code(), ErrorCode::InvalidArgument);
  wrong = options();
  wrong.peers.push_back(wrong.peers.front());
  EXPECT_EQ(Region::open(wrong).code(), ErrorCode::InvalidArgument);
}

// One byte, three over the end of a cache line, the largest, and one byte more than that.
TEST_P(RegionOpen, ARangeOfAnySizeIsCommittedAndALargerOneIsRefusedByName) {
  constexpr std::size_t kLargest = std::size_t{16} << 20;
  constexpr std::uint64_t kOddPlace = 1021;
  start(2, kLargest + (std::uint64_t{2} << 20));
  RegionOptions patient = options();
  patient.peer_timeout = kPatience;
  std::string text(kLargest + 1, '?');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>('a' + i % 26);
  const std::string largest = text.substr(0, kLargest);
  const std::string zero(1, '\0');
  {
    auto region = Region::open(patient);
    ASSERT_TRUE(region.ok()) << region.error().message;
    const auto refused = region->write(0, std::as_bytes(std::span(text)));
    EXPECT_EQ(refused.code(), ErrorCode::InvalidArgument);
    EXPECT_EQ(refused.error().message, "a range of 16777217 bytes; an update takes 1 to 16777216");
    EXPECT_EQ(region->status().begun, 0u);
    write(*region, 7, "1");
    write(*region, 63, "333");
    write(*region, kOddPlace, largest);
    ASSERT_TRUE(region->close().ok());
  }
  auto again = Region::open(patient);
  ASSERT_TRUE(again.ok()) << again.error().message;
  for (std::size_t replica = 0; replica < 2; ++replica) {
    EXPECT_EQ(read(*again, 6, 3, replica), zero + "1" + zero);
    EXPECT_EQ(read(*again, 62, 5, replica), zero + "333" + zero);
    EXPECT_EQ(read(*again, kOddPlace - 1, 2, replica), zero + "a");
    EXPECT_TRUE(read(*again, kOddPlace, kLargest, replica) == largest) << replica;
    EXPECT_EQ(read(*again, kOddPlace + kLargest, 2, replica), zero + zero);
  }
}

// A WRITE may tear the word. Of one peer its processor does it, whatever updates travel by.
TEST_P(RegionOpen, AtomicsOfSeveralPeersAreRefusedWhereWriteIsForced) {
  for (const std::size_t peers : {1u, 3u}) {
    peers_.clear();
    start(peers);
    for (const auto primary : {std::optional<Primary>(), std::optional(Primary::Write)}) {
      RegionOptions how = options();
      how.primary = primary;
      auto region = Region::open(how);
      ASSERT_TRUE(region.ok()) << region.error().message;
      ASSERT_TRUE(region->flush(Level::Committed, kPatience).ok());
      const bool refused = peers > 1 && primary;
      const auto stored = region->store(64, 40);
      EXPECT_EQ(stored.ok(), !refused) << peers;
      if (!stored.ok()) {
        EXPECT_EQ(stored.code(), ErrorCode::Unsupported) << stored.error().message;
        EXPECT_NE(stored.error().message.find("may tear it"), std::string::npos)
            << stored.error().message;
      }
      ASSERT_TRUE(region->close().ok());
    }
  }
}

TEST_P(RegionOpen, AtomicsBringTheOldValue) {
  for (const std::size_t peers : {1u, 3u}) {
    peers_.clear();
    start(peers);
    auto region = Region::open(options());
    ASSERT_TRUE(region.ok()) << region.error().message;
    EXPECT_EQ(region->store(64, 40).value(), 0u);
    EXPECT_EQ(region->fetch_add(64, 2).value(), 40u);
    EXPECT_EQ(region->compare_swap(64, 41, 7).value(), 42u);
    EXPECT_EQ(region->compare_swap(64, 42, 43).value(), 42u);
    // An update of the word in flight, and an atomic behind it.
    const std::uint64_t word = 1000;
    ASSERT_TRUE(region->write(64, bytes_of(word)).ok());
    EXPECT_EQ(region->fetch_add(64, 5).value(), 1000u);
    std::uint64_t now = 0;
    ASSERT_TRUE(region->read(64, std::as_writable_bytes(std::span(&now, 1))).ok());
    EXPECT_EQ(now, 1005u);
    EXPECT_EQ(region->fetch_add(65, 1).code(), ErrorCode::InvalidArgument);
    EXPECT_EQ(region->fetch_add(region->bytes(), 1).code(), ErrorCode::OutOfRange);
  }
}

TEST_P(RegionOpen, APoolThatHoldsALogIsNeverARegionNorTheOtherWayRound) {
  start(1);
  {
    auto log = open_log();
    ASSERT_TRUE(log.ok()) << log.error().message;
    const auto ticket = log->append(std::as_bytes(std::span("record", 6)));
    ASSERT_TRUE(ticket.ok() && log->wait(*ticket, Level::Committed).ok());
    ASSERT_TRUE(log->close().ok());
    const auto region = Region::open(options());
    ASSERT_FALSE(region.ok());
    EXPECT_EQ(region.code(), ErrorCode::InvalidArgument);
    EXPECT_NE(region.error().message.find("holds a log"), std::string::npos)
        << region.error().message;
  }
  auto log = open_log();
  ASSERT_TRUE(log.ok()) << log.error().message;
  EXPECT_EQ(log->status().next_index, 1u);
  ASSERT_TRUE(log->close().ok());
  peers_.clear();
  start(1);
  {
    auto region = Region::open(options());
    ASSERT_TRUE(region.ok()) << region.error().message;
    write(*region, 0, "mine");
    const auto refused = open_log();
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.code(), ErrorCode::InvalidArgument) << refused.error().message;
    EXPECT_NE(refused.error().message.find("holds a region"), std::string::npos)
        << refused.error().message;
  }
  auto region = Region::open(options());
  ASSERT_TRUE(region.ok()) << region.error().message;
  EXPECT_EQ(read(*region, 0, 4), "mine");
}

TEST_P(RegionOpen, ItsMembersAreTheSameEveryTime) {
  start(3);
  RegionOptions two = options();
  two.peers.pop_back();
  two.quorum = 1;
  EXPECT_TRUE(Region::open(two).ok());
  // Two replicas and a quorum of one; the third pool holds nothing.
  EXPECT_EQ(Region::open(options()).code(), ErrorCode::InvalidArgument);
  two.quorum = 2;
  EXPECT_EQ(Region::open(two).code(), ErrorCode::InvalidArgument);
  two.quorum = 0;
  auto region = Region::open(two);
  ASSERT_TRUE(region.ok()) << region.error().message;
  EXPECT_EQ(region->status().quorum, 1u);
  RegionOptions other = options();
  other.peers = {peers_[2]->address()};
  other.create = false;
  EXPECT_EQ(Region::open(other).code(), ErrorCode::NotFound);
}

// Connections of a peer go, again and again, while its region is written. Expect: another one is
// made by a thread meanwhile, nothing is refused, and in the end it has everything.
TEST_P(RegionOpen, APeerIsConnectedToAgainWhileOthersAreWritten) {
  start(3);
  RegionOptions comes_back = options();
  comes_back.quorum = 2;
  comes_back.reconnect = std::chrono::milliseconds(2);
  auto region = Region::open(comes_back);
  ASSERT_TRUE(region.ok()) << region.error().message;
  const Deadline patience = Deadline::after(kPatience);
  std::uint64_t at = 0;
  const auto write_until = [&](bool up) {
    const auto there = [&] {
      const RegionReplicaStatus each = region->status().replicas[1];
      return up ? each.up && !each.catching_up : !each.up;
    };
    while (!there() && !patience.passed()) {
      write(*region, at++ % 1000 * 8, "anything");
      ASSERT_TRUE(region->poll(std::chrono::milliseconds(1)).ok());
    }
  };
  for (int times = 0; times < 5; ++times) {
    peers_[1]->end_sessions();
    write_until(false);
    write_until(true);
  }
  ASSERT_FALSE(patience.passed());
  write(*region, 0, "the last");
  ASSERT_TRUE(region->close().ok());
  region = Region::open(comes_back);
  ASSERT_TRUE(region.ok()) << region.error().message;
  EXPECT_FALSE(region->status().may_differ);
  EXPECT_EQ(read(*region, 0, 8, 1), "the last");
}

// A peer goes down. Expect: the others go on, it misses the rest, and is not called whole again
// until its user has brought it to equal.
TEST_P(RegionOpen, AReplicaThatWasDownIsNotWhole) {
  start(3);
  RegionOptions two_of_three = options();
  two_of_three.quorum = 2;
  {
    auto region = Region::open(two_of_three);
    ASSERT_TRUE(region.ok()) << region.error().message;
    write(*region, 0, "first");
    const Deadline patience = Deadline::after(kPatience);
    while (region->status().replicas[1].resolved == 0 && !patience.passed()) {
      ASSERT_TRUE(region->poll().ok());
    }
    peers_[1]->end_sessions();
    while (region->status().replicas[1].up && !patience.passed()) {
      ASSERT_TRUE(region->poll().ok());
    }
    EXPECT_FALSE(region->status().replicas[1].up);
    EXPECT_TRUE(region->status().may_differ);
    EXPECT_FALSE(region->status().replicas[1].down_reason.empty());
    write(*region, 0, "other");
    std::array<std::byte, 5> into{};
    EXPECT_EQ(region->read(0, into, 1).code(), ErrorCode::Disconnected);
    EXPECT_EQ(region->status().replicas[1].resolved, 1u);
    ASSERT_TRUE(region->close().ok());
  }
  {
    auto region = Region::open(two_of_three);
    ASSERT_TRUE(region.ok()) << region.error().message;
    const RegionStatus status = region->status();
    EXPECT_TRUE(status.may_differ);
    EXPECT_TRUE(status.replicas[0].whole && !status.replicas[1].whole && status.replicas[2].whole);
    EXPECT_EQ(read(*region, 0, 5), "other");
    EXPECT_EQ(read(*region, 0, 5, 1), "first");
    ASSERT_TRUE(region->close().ok());
  }
  {  // What was not whole stays so, however well a session ends.
    auto region = Region::open(two_of_three);
    ASSERT_TRUE(region.ok()) << region.error().message;
    EXPECT_FALSE(region->status().replicas[1].whole);
    write(*region, 0, read(*region, 0, 5));
    ASSERT_TRUE(region->note_equal().ok());
    EXPECT_FALSE(region->status().may_differ);
    ASSERT_TRUE(region->close().ok());
  }
  auto region = Region::open(two_of_three);
  ASSERT_TRUE(region.ok()) << region.error().message;
  EXPECT_FALSE(region->status().may_differ);
  EXPECT_EQ(read(*region, 0, 5, 1), "other");
}

TEST_P(RegionOpen, WhoWasTakenOverIsFenced) {
  start(2);
  auto first = Region::open(options());
  ASSERT_TRUE(first.ok()) << first.error().message;
  write(*first, 0, "mine");
  RegionOptions polite = options();
  polite.take_over = false;
  EXPECT_EQ(Region::open(polite).code(), ErrorCode::Busy);
  auto second = Region::open(options());
  ASSERT_TRUE(second.ok()) << second.error().message;
  EXPECT_TRUE(second->status().may_differ);  // the first had not closed
  Result<void> polled;
  const Deadline patience = Deadline::after(kPatience);
  while (polled.ok() && !patience.passed()) polled = first->poll();
  ASSERT_FALSE(polled.ok());
  // Who lets it ask the peers is told why.
  polled = first->poll(std::chrono::seconds(10));
  EXPECT_EQ(polled.code(), ErrorCode::Fenced) << polled.error().message;
  EXPECT_EQ(first->write(0, std::as_bytes(std::span("no"))).code(), ErrorCode::Fenced);
  write(*second, 0, "ours");
}

TEST_P(RegionOpen, WhoIsNotItsOwnerAnyMoreIsRefused) {
  start(1);
  auto region = Region::open(options());
  ASSERT_TRUE(region.ok()) << region.error().message;
  write(*region, 0, "text");
  EXPECT_TRUE(test::yes_in_a_child([&] {
    const bool refused =
        region->poll().code() == ErrorCode::InvalidArgument &&
        region->write(0, std::as_bytes(std::span("no", 2))).code() == ErrorCode::InvalidArgument &&
        !region->arm() && region->bytes() == 0;
    region->~Region();  // ends nothing of the parent's
    return refused;
  }));
  write(*region, 0, "more");
  Region other = std::move(*region);
  EXPECT_EQ(region->poll().code(), ErrorCode::InvalidArgument);
  EXPECT_EQ(read(other, 0, 4), "more");
  ASSERT_TRUE(other.close().ok());
  EXPECT_EQ(other.poll().code(), ErrorCode::InvalidArgument);
  EXPECT_EQ(other.close().code(), ErrorCode::InvalidArgument);
}

// Its medium takes no flush. Expect: it is down, and what it was sent is not known to be durable.
TEST_P(RegionOpen, APeerThatIsSilentIsDown) {
  start(1);
  RegionOptions short_of_patience = options();
  short_of_patience.peer_timeout = std::chrono::milliseconds(200);
  auto region = Region::open(short_of_patience);
  ASSERT_TRUE(region.ok()) << region.error().message;
  peers_[0]->medium().hang(true);
  const auto ticket = region->write(0, std::as_bytes(std::span("text", 4)));
  ASSERT_TRUE(ticket.ok()) << ticket.error().message;
  const auto waited = region->wait(*ticket, Level::Durable, kPatience);
  EXPECT_EQ(waited.code(), ErrorCode::OutcomeUnknown) << waited.error().message;
  EXPECT_EQ(region->fetch_add(0, 1).code(), ErrorCode::Disconnected);
  EXPECT_EQ(region->poll().code(), ErrorCode::QuorumLost);
  EXPECT_EQ(region->close().code(), ErrorCode::QuorumLost);
  peers_[0]->medium().hang(false);
}

// An event loop: it sleeps on the descriptor alone.
TEST_P(RegionOpen, ADescriptorWakesWhoWaits) {
  start(2);
  auto region = Region::open(options());
  ASSERT_TRUE(region.ok()) << region.error().message;
  const auto fd = region->completion_fd();
  ASSERT_TRUE(fd.ok()) << fd.error().message;
  EXPECT_EQ(region->completion_fd().value(), *fd);
  int slept = 0;
  const std::string large(100'000, 'x');
  for (int round = 0; round < 200; ++round) {
    const auto ticket = region->write(0, std::as_bytes(std::span(large)));
    ASSERT_TRUE(ticket.ok()) << ticket.error().message;
    while (!region->reached(*ticket, Level::Committed)) {
      ASSERT_TRUE(region->poll().ok());
      if (region->reached(*ticket, Level::Committed) || !region->arm()) continue;
      pollfd waited{*fd, POLLIN, 0};
      // A wake-up that is lost shows as a test that runs out of patience.
      ASSERT_EQ(::poll(&waited, 1, 60'000), 1);
      ++slept;
    }
  }
  EXPECT_GT(slept, 0) << "nothing was shown";
}

// max() of microseconds is more than nanoseconds can say.
TEST_P(RegionOpen, WhoWantsToSpinForEverMay) {
  start(1);
  for (const auto spin : {std::chrono::microseconds::max(), std::chrono::microseconds::min()}) {
    RegionOptions how = options();
    how.spin = spin;
    auto region = Region::open(how);
    ASSERT_TRUE(region.ok()) << region.error().message;
    write(*region, 0, "word");
    EXPECT_EQ(read(*region, 0, 4), "word");
  }
  RegionOptions wrong = options();
  wrong.rnic.ack_timeout = 5;
  EXPECT_EQ(Region::open(wrong).code(), ErrorCode::InvalidArgument);
}

// Updates: one in 64, and the first.
TEST_P(RegionOpen, TimesItsCalls) {
  start(1);
  auto region = Region::open(options());
  ASSERT_TRUE(region.ok()) << region.error().message;
  for (std::uint64_t updates = 1; updates <= 130; ++updates) {
    write(*region, 0, "word");
    const RegionTimes times = region->times();
    ASSERT_EQ(times.durable.count(), 1 + (updates - 1) / 64) << updates;
    ASSERT_EQ(times.committed.count(), 1 + (updates - 1) / 64) << updates;
  }
  EXPECT_EQ(region->times().reads.count() + region->times().atomics.count(), 0u);
  for (std::uint64_t calls = 1; calls <= 3; ++calls) {
    EXPECT_EQ(read(*region, 0, 4), "word");
    ASSERT_TRUE(region->fetch_add(64, 1).ok());
    EXPECT_EQ(region->times().reads.count(), calls);
    EXPECT_EQ(region->times().atomics.count(), calls);
  }
  std::array<std::byte, 1> into{};
  EXPECT_EQ(region->read(region->bytes(), into).code(), ErrorCode::OutOfRange);
  EXPECT_EQ(region->times().reads.count(), 3u);
  EXPECT_GT(region->times().reads.sum_ns, 0u);
}

TEST_P(RegionOpen, FromCTicketsAreOfOneRegionAndReplicasAreDescribed) {
  start(1);
  const std::string address = peers_[0]->address();
  const char* const peers[] = {address.c_str()};
  const std::string transport(to_string(GetParam()));
  perdure_region_options options{};
  options.size = sizeof options;
  options.peers = peers;
  options.peer_count = 1;
  options.pool = "bytes";
  options.transport = transport.c_str();
  options.usual_costs = true;
  perdure_region* region = nullptr;
  ASSERT_EQ(perdure_region_open(&options, &region), PERDURE_OK) << perdure_last_error();
  const perdure_range range{0, "data", 4, 0};
  perdure_region_ticket ticket{};
  ASSERT_EQ(perdure_region_write(region, &range, 1, &ticket), PERDURE_OK) << perdure_last_error();
  ASSERT_EQ(perdure_region_wait(region, &ticket, PERDURE_COMMITTED, 60'000), PERDURE_OK);
  bool yes = true;
  // One of another region, or of an earlier opening, is none of this.
  const perdure_region_ticket other{ticket.number, ticket.writer + 1};
  EXPECT_EQ(perdure_region_wait(region, &other, PERDURE_COMMITTED, 60'000),
            PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_region_reached(region, &other, PERDURE_DURABLE, &yes), PERDURE_OK);
  EXPECT_FALSE(yes);
  EXPECT_EQ(perdure_region_wait(region, nullptr, PERDURE_COMMITTED, 1), PERDURE_INVALID_ARGUMENT);
  perdure_region_replica_status replica{};
  replica.size = sizeof replica;
  std::size_t there = 0;
  EXPECT_EQ(perdure_region_get_replicas(region, &replica, 1, &there), PERDURE_OK);
  EXPECT_EQ(there, 1u);
  EXPECT_EQ(replica.peer, address);
  EXPECT_TRUE(replica.up && replica.whole);
  EXPECT_EQ(replica.resolved, 1u);
  EXPECT_GT(std::strlen(replica.small_method), 0u);
  perdure_region_times times{};
  times.size = sizeof times;
  EXPECT_EQ(perdure_region_get_times(region, &times), PERDURE_OK);
  EXPECT_GT(perdure_time_quantile_ns(&times.committed, 0.5), 0u);
  EXPECT_EQ(perdure_region_close(region, 60'000), PERDURE_OK) << perdure_last_error();
}

TEST_P(RegionOpen, FromCByWords) {
  start(1);
  const std::string transport(to_string(GetParam()));
  const std::string connection =
      "perdure://" + peers_[0]->address() + "/bytes?measure_costs=false&transport=" + transport;
  perdure_region* region = nullptr;
  ASSERT_EQ(perdure_region_open_string(connection.c_str(), &region), PERDURE_OK)
      << perdure_last_error();
  const perdure_range range{0, "data", 4, 0};
  perdure_region_ticket ticket{};
  ASSERT_EQ(perdure_region_write(region, &range, 1, &ticket), PERDURE_OK) << perdure_last_error();
  ASSERT_EQ(perdure_region_wait(region, &ticket, PERDURE_COMMITTED, 60'000), PERDURE_OK);
  perdure_region_status status{};
  status.size = sizeof status;
  ASSERT_EQ(perdure_region_get_status(region, &status), PERDURE_OK);
  EXPECT_GT(status.epoch, 0u);
  perdure_region_replica_status replica{};
  replica.size = sizeof replica;
  std::size_t there = 0;
  ASSERT_EQ(perdure_region_get_replicas(region, &replica, 1, &there), PERDURE_OK);
  EXPECT_EQ(replica.coalesced, 0u);
  EXPECT_EQ(perdure_region_close(region, 60'000), PERDURE_OK) << perdure_last_error();
  EXPECT_EQ(perdure_region_open_string("perdure://a:1/bytes?start=new", &region),
            PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_region_open_string(nullptr, &region), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_region_open_file("/nowhere/region.toml", &region), PERDURE_NOT_FOUND);
}

TEST_P(RegionOpen, FromC) {
  start(1);
  const std::string address = peers_[0]->address();
  const char* const peers[] = {address.c_str()};
  const std::string transport(to_string(GetParam()));
  perdure_region_options options{};
  options.size = sizeof options;
  options.peers = peers;
  options.peer_count = 1;
  options.pool = "bytes";
  options.transport = transport.c_str();
  options.usual_costs = true;
  perdure_region* region = nullptr;
  ASSERT_EQ(perdure_region_open(&options, &region), PERDURE_OK) << perdure_last_error();
  const std::uint64_t tail = 4;
  const perdure_range ranges[] = {{0, "data", 4, 0}, {4096, "more", 4, 0}, {64, &tail, 8, 1}};
  perdure_region_ticket ticket{};
  ASSERT_EQ(perdure_region_write(region, ranges, 3, &ticket), PERDURE_OK) << perdure_last_error();
  ASSERT_EQ(perdure_region_wait(region, &ticket, PERDURE_COMMITTED, 60'000), PERDURE_OK);
  bool yes = false;
  EXPECT_EQ(perdure_region_reached(region, &ticket, PERDURE_DURABLE, &yes), PERDURE_OK);
  EXPECT_TRUE(yes);
  std::uint64_t before = 0;
  EXPECT_EQ(perdure_region_fetch_add(region, 64, 3, &before), PERDURE_OK);
  EXPECT_EQ(before, 4u);
  EXPECT_EQ(perdure_region_compare_swap(region, 64, 7, 9, &before), PERDURE_OK);
  EXPECT_EQ(before, 7u);
  EXPECT_EQ(perdure_region_store(region, 64, 1, &before), PERDURE_OK);
  EXPECT_EQ(before, 9u);
  char text[4];
  EXPECT_EQ(perdure_region_read(region, 4096, text, 4, PERDURE_ANY_REPLICA), PERDURE_OK);
  EXPECT_EQ(std::memcmp(text, "more", 4), 0);
  const perdure_range wrong[] = {{0, "a", 1, 1}, {8, "b", 1, 0}};
  EXPECT_EQ(perdure_region_write(region, wrong, 2, &ticket), PERDURE_INVALID_ARGUMENT);
  // A caller with an older and shorter struct: nothing is written behind it.
  struct {
    perdure_region_status status;
    std::uint64_t behind = 77;
  } older{};
  older.status.size = offsetof(perdure_region_status, quorum);
  older.status.quorum = 55;
  EXPECT_EQ(perdure_region_get_status(region, &older.status), PERDURE_OK);
  EXPECT_EQ(older.status.committed, 1u);
  EXPECT_EQ(older.status.quorum, 55u);
  EXPECT_EQ(perdure_region_close(region, 60'000), PERDURE_OK) << perdure_last_error();
  options.size = offsetof(perdure_region_options, visible_only);
  options.existing_only = true;  // behind what an older caller has: not looked at
  options.take_over = false;
  region = nullptr;
  perdure_code code = PERDURE_BUSY;  // until it is noticed that the one before has gone
  for (int tried = 0; tried < 1000 && code == PERDURE_BUSY; ++tried) {
    code = perdure_region_open(&options, &region);
    if (code == PERDURE_BUSY) (void)::poll(nullptr, 0, 5);
  }
  EXPECT_EQ(code, PERDURE_OK) << perdure_last_error();
  EXPECT_EQ(perdure_region_close(region, 60'000), PERDURE_OK);
}

INSTANTIATE_TEST_SUITE_P(Over, RegionOpen, testing::Values(Transport::Tcp, Transport::Shm),
                         [](const auto& each) { return std::string(to_string(each.param)); });

}  // namespace
}  // namespace perdure::server
