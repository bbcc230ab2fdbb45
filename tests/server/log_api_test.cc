// What the public log refuses, and what its options say in words.
#include <gtest/gtest.h>
#include <perdure/log.h>
#include <perdure/mirror.h>
#include <perdure/pool.h>
#include <perdure/region.h>

#include <array>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/text_file.h"
#include "opened_peer.h"
#include "testing/child_of_fork.h"
#include "testing/temporary_directory.h"

namespace perdure::server {
namespace {

constexpr auto kApiPatience = std::chrono::minutes(1);

std::span<const std::byte> bytes_of_text(const std::string& text) {
  return std::as_bytes(std::span(text));
}

class LogApi : public testing::Test {
 protected:
  Log open() {
    auto log = Log::open(peers_.options());
    EXPECT_TRUE(log.ok()) << log.error().message;
    return std::move(*log);
  }
  OpenedPeers peers_{Transport::Tcp};
};

TEST_F(LogApi, ATicketIsGoodForItsOpeningOnly) {
  const std::string text = "one";
  Ticket earlier;
  {
    Log log = open();
    const auto ticket = log.append(bytes_of_text(text));
    ASSERT_TRUE(ticket.ok());
    ASSERT_TRUE(log.wait(*ticket, Level::Committed, kApiPatience).ok());
    EXPECT_TRUE(log.reached(*ticket, Level::Committed));
    earlier = *ticket;
    ASSERT_TRUE(log.close(kApiPatience).ok());
  }
  Log log = open();
  EXPECT_EQ(log.wait(earlier, Level::Committed, kApiPatience).code(), ErrorCode::InvalidArgument);
  EXPECT_FALSE(log.reached(earlier, Level::Committed));
}

TEST_F(LogApi, WhatWasMovedFromOrClosedRefusesEveryCall) {
  const std::string text = "one";
  Log log = open();
  Log moved = std::move(log);
  // NOLINTBEGIN(bugprone-use-after-move): what it does then is what is asked.
  EXPECT_EQ(log.append(bytes_of_text(text)).code(), ErrorCode::InvalidArgument);
  EXPECT_EQ(log.wait({}, Level::Durable).code(), ErrorCode::InvalidArgument);
  EXPECT_EQ(log.poll().code(), ErrorCode::InvalidArgument);
  EXPECT_EQ(log.trim(Lsn{64}).code(), ErrorCode::InvalidArgument);
  EXPECT_EQ(log.close().code(), ErrorCode::InvalidArgument);
  EXPECT_EQ(log.add_replica("127.0.0.1:1").code(), ErrorCode::InvalidArgument);
  EXPECT_EQ(log.repair().code(), ErrorCode::InvalidArgument);
  EXPECT_TRUE(log.take_repairs().empty());
  EXPECT_TRUE(log.status().replicas.empty());
  EXPECT_EQ(log.committed(), Lsn{});
  // NOLINTEND(bugprone-use-after-move)
  EXPECT_TRUE(moved.append(bytes_of_text(text)).ok());
  const auto nothing = moved.repair();
  ASSERT_TRUE(nothing.ok()) << nothing.error().message;
  EXPECT_TRUE(nothing->empty());
  ASSERT_TRUE(moved.close(kApiPatience).ok());
  EXPECT_EQ(moved.repair().code(), ErrorCode::InvalidArgument);
  EXPECT_EQ(moved.append(bytes_of_text(text)).code(), ErrorCode::InvalidArgument);
  EXPECT_EQ(moved.close().code(), ErrorCode::InvalidArgument);
  EXPECT_EQ(moved.status().next_index, 1u);
}

TEST_F(LogApi, APoolThatIsNotOpenBecomesNoReplicaAndSaysWhy) {
  Log log = open();
  OpenedPeer fourth(Transport::Tcp, 3);
  ASSERT_TRUE(close_pool(fourth.address(), "log").ok());
  const auto added = log.add_replica(fourth.address());
  EXPECT_EQ(added.code(), ErrorCode::NotFound);
  for (const std::string& part : {fourth.address(), std::string("its pool is closed")}) {
    EXPECT_NE(added.error().message.find(part), std::string::npos) << added.error().message;
  }
  EXPECT_EQ(log.status().replicas.size(), 3u);
}

TEST_F(LogApi, OnlyTheLevelsThatItTellsApartAreWaitedFor) {
  const std::string text = "one";
  Log log = open();
  const auto ticket = log.append(bytes_of_text(text));
  ASSERT_TRUE(ticket.ok());
  EXPECT_EQ(log.wait(*ticket, Level::Received, kApiPatience).code(), ErrorCode::Unsupported);
  EXPECT_EQ(log.wait(*ticket, Level::Visible, kApiPatience).code(), ErrorCode::Unsupported);
  EXPECT_TRUE(log.wait(*ticket, Level::Durable, kApiPatience).ok());
  EXPECT_TRUE(log.wait(*ticket, Level::Committed, std::chrono::milliseconds::max()).ok());
  EXPECT_TRUE(log.poll(std::chrono::milliseconds::max()).ok());
  EXPECT_TRUE(log.close(std::chrono::milliseconds::max()).ok());
}

// Opened for visible. Expect: no record ever counts as durable or committed, and committed() says
// what is visible on the quorum.
TEST_F(LogApi, ALogThatWasOpenedForLessReachesNothingAbove) {
  const std::string text = "one";
  LogOptions options = peers_.options();
  options.level = Level::Visible;
  auto log = Log::open(options);
  ASSERT_TRUE(log.ok()) << log.error().message;
  const auto ticket = log->append(bytes_of_text(text));
  ASSERT_TRUE(ticket.ok()) << ticket.error().message;
  const Deadline patience = Deadline::after(kApiPatience);
  while (log->committed() < ticket->end && !patience.passed()) ASSERT_TRUE(log->poll().ok());
  EXPECT_EQ(log->committed(), ticket->end);
  EXPECT_EQ(log->status().committed, ticket->end);
  for (const Level level : {Level::Received, Level::Visible}) {
    EXPECT_TRUE(log->reached(*ticket, level)) << to_string(level);
  }
  for (const Level level : {Level::Durable, Level::Committed}) {
    EXPECT_FALSE(log->reached(*ticket, level)) << to_string(level);
    EXPECT_EQ(log->wait(*ticket, level, kApiPatience).code(), ErrorCode::Unsupported);
  }
}

// A reader would be told of records that it may not find yet.
TEST_F(LogApi, NoLogIsOpenedForReceived) {
  LogOptions options = peers_.options();
  options.level = Level::Received;
  const auto log = Log::open(options);
  EXPECT_EQ(log.code(), ErrorCode::InvalidArgument);
  EXPECT_NE(log.error().message.find("visible or durable"), std::string::npos)
      << log.error().message;
  EXPECT_TRUE(Log::open(peers_.options()).ok());
}

// max() of microseconds is more than nanoseconds can say.
TEST_F(LogApi, WhoWantsToSpinForEverMay) {
  const std::string text = "one";
  for (const auto spin : {std::chrono::microseconds::max(), std::chrono::microseconds::min()}) {
    LogOptions options = peers_.options();
    options.spin = spin;
    options.take_over = true;
    auto log = Log::open(options);
    ASSERT_TRUE(log.ok()) << log.error().message;
    const auto ticket = log->append(bytes_of_text(text));
    ASSERT_TRUE(ticket.ok()) << ticket.error().message;
    const auto waited = log->wait(*ticket, Level::Committed, kApiPatience);
    EXPECT_TRUE(waited.ok()) << waited.error().message;
  }
}

TEST_F(LogApi, WhatIsAskedOfAnRnicIsLookedAt) {
  LogOptions options = peers_.options();
  LogReaderOptions reading;
  reading.peers = options.peers;
  reading.pool = options.pool;
  for (const std::uint32_t wrong : {5u, 23u, 256u + 17u}) {
    options.rnic.ack_timeout = reading.rnic.ack_timeout = wrong;
    EXPECT_EQ(Log::open(options).code(), ErrorCode::InvalidArgument) << wrong;
    EXPECT_EQ(LogReader::open(reading).code(), ErrorCode::InvalidArgument) << wrong;
  }
  options.rnic.ack_timeout = 6;
  options.rnic.traffic_class = 256;
  EXPECT_EQ(Log::open(options).code(), ErrorCode::InvalidArgument);
  options.rnic.traffic_class = 0;
  EXPECT_TRUE(Log::open(options).ok());
}

TEST_F(LogApi, RecordsOfPiecesAndInClaimedRoomAreReadBack) {
  Log log = open();
  std::vector<std::string> written;
  const auto claimed = [&](std::size_t claim, const std::string& text) {
    const auto room = log.claim(claim);
    ASSERT_TRUE(room.ok()) << room.error().message;
    ASSERT_EQ(room->size(), claim);
    std::memcpy(room->data(), text.data(), text.size());
    const auto ticket = log.append_claimed(text.size());
    ASSERT_TRUE(ticket.ok()) << ticket.error().message;
    EXPECT_EQ(ticket->index, written.size());
    written.push_back(text);
  };
  // More than the staging memory and a lap of the ring, of lengths that do not go together.
  for (std::size_t number = 0; number < 400; ++number) {
    const std::string first(number * 7 % 300, static_cast<char>('a' + number % 26));
    const std::string second(1 + number * 131 % 20'000, static_cast<char>('A' + number % 26));
    const std::array pieces = {bytes_of_text(first), bytes_of_text(second), bytes_of_text(first)};
    const auto ticket = log.append_pieces(pieces);
    ASSERT_TRUE(ticket.ok()) << ticket.error().message;
    written.push_back(first + second + first);
    claimed(60'000, second);
    claimed(first.size() + 1, first + "!");
    if (number % 50 != 49) continue;
    ASSERT_TRUE(log.wait(*ticket, Level::Committed, kApiPatience).ok());
    if (number == 399) break;
    ASSERT_TRUE(log.trim(ticket->lsn).ok());
  }
  ASSERT_TRUE(log.close(kApiPatience).ok());
  LogReaderOptions options;
  options.peers = {peers_[1].address()};
  options.pool = "log";
  auto reader = LogReader::open(options);
  ASSERT_TRUE(reader.ok()) << reader.error().message;
  std::size_t read = 0;
  for (auto record = reader->next(); record.ok() && *record; record = reader->next(), ++read) {
    const std::string& expected = written[(*record)->index];
    ASSERT_EQ((*record)->bytes.size(), expected.size());
    EXPECT_EQ(std::memcmp((*record)->bytes.data(), expected.data(), expected.size()), 0);
  }
  EXPECT_GE(read, 150u);
}

TEST_F(LogApi, AClaimIsGoodForTheNextCallOnly) {
  const std::string text = "one";
  Log log = open();
  EXPECT_EQ(log.append_claimed(1).code(), ErrorCode::InvalidArgument);
  ASSERT_TRUE(log.claim(10).ok());
  EXPECT_EQ(log.append_claimed(11).code(), ErrorCode::InvalidArgument);
  ASSERT_TRUE(log.claim(10).ok());
  EXPECT_EQ(log.append_claimed(0).code(), ErrorCode::InvalidArgument);
  ASSERT_TRUE(log.claim(10).ok());
  const auto ticket = log.append(bytes_of_text(text));
  ASSERT_TRUE(ticket.ok());
  ASSERT_TRUE(log.wait(*ticket, Level::Committed, kApiPatience).ok());
  (void)log.poll();  // its place in this process is free again: where the claim was
  EXPECT_EQ(log.append_claimed(3).code(), ErrorCode::InvalidArgument);
  EXPECT_EQ(log.claim(0).code(), ErrorCode::InvalidArgument);
  EXPECT_EQ(log.claim(64 * 1024 + 1).code(), ErrorCode::InvalidArgument);
  EXPECT_EQ(log.append_pieces({}).code(), ErrorCode::InvalidArgument);
}

TEST_F(LogApi, WhereTheQuorumIsLostTheOutcomeIsUnknown) {
  const std::string text = "one";
  LogOptions options = peers_.options();
  options.replica_timeout = std::chrono::seconds(2);
  auto log = Log::open(options);
  ASSERT_TRUE(log.ok()) << log.error().message;
  peers_[0].medium().hang(true);
  peers_[1].medium().hang(true);
  const auto ticket = log->append(bytes_of_text(text));
  ASSERT_TRUE(ticket.ok());
  const auto waited = log->wait(*ticket, Level::Committed, kApiPatience);
  EXPECT_EQ(waited.code(), ErrorCode::OutcomeUnknown);
  EXPECT_NE(waited.error().message.find("record 0"), std::string::npos) << waited.error().message;
  EXPECT_EQ(log->append(bytes_of_text(text)).code(), ErrorCode::QuorumLost);
}

// A child of the program: its calls are refused, and its end leaves the parent's connections alone.
TEST_F(LogApi, AChildOfForkIsRefusedAndEndsNothing) {
  const std::string text = "one";
  Log log = open();
  EXPECT_TRUE(test::yes_in_a_child([&] {
    const bool refused = log.append(bytes_of_text(text)).code() == ErrorCode::InvalidArgument &&
                         log.poll().code() == ErrorCode::InvalidArgument;
    { const Log gone = std::move(log); }
    return refused;
  }));
  const auto ticket = log.append(bytes_of_text(text));
  ASSERT_TRUE(ticket.ok()) << ticket.error().message;
  const auto waited = log.wait(*ticket, Level::Committed, kApiPatience);
  EXPECT_TRUE(waited.ok()) << waited.error().message;
  for (const ReplicaStatus& each : log.status().replicas) EXPECT_TRUE(each.up) << each.down_reason;
}

// One record in 64, and the first.
TEST_F(LogApi, TimesASampleOfItsRecords) {
  const std::string text = "one";
  Log log = open();
  EXPECT_EQ(log.times().durable.count(), 0u);
  for (int records = 1; records <= 200; ++records) {
    const auto ticket = log.append(bytes_of_text(text));
    ASSERT_TRUE(ticket.ok());
    ASSERT_TRUE(log.wait(*ticket, Level::Committed, kApiPatience).ok());
    const LogTimes times = log.times();
    const std::uint64_t timed = 1 + static_cast<std::uint64_t>(records - 1) / 64;
    ASSERT_EQ(times.committed.count(), timed) << records;
    ASSERT_EQ(times.durable.count(), timed) << records;
    EXPECT_LE(times.durable.sum_ns, times.committed.sum_ns);
  }
  EXPECT_GT(log.times().durable.sum_ns, 0u);
  const Log moved = std::move(log);
  EXPECT_EQ(log.times().durable.count(), 0u);  // NOLINT(bugprone-use-after-move): asked for
}

// While a record that is timed has not got there, no other one is; it is noted by an append, too.
TEST_F(LogApi, ATimedRecordIsNotedByWhateverLearnsOfIt) {
  const std::string text = "one";
  LogOptions options = peers_.options();
  options.replica_timeout = std::chrono::minutes(1);
  auto log = Log::open(options);
  ASSERT_TRUE(log.ok()) << log.error().message;
  peers_[0].medium().hang(true);
  peers_[1].medium().hang(true);
  const auto first = log->append(bytes_of_text(text));
  ASSERT_TRUE(first.ok());
  ASSERT_TRUE(log->wait(*first, Level::Durable, kApiPatience).ok());
  for (int more = 0; more < 200; ++more) ASSERT_TRUE(log->append(bytes_of_text(text)).ok());
  EXPECT_EQ(log->times().durable.count(), 1u);
  EXPECT_EQ(log->times().committed.count(), 0u);
  peers_[0].medium().hang(false);
  peers_[1].medium().hang(false);
  const Deadline patience = Deadline::after(kApiPatience);
  while (log->times().committed.count() == 0 && !patience.passed()) {
    ASSERT_TRUE(log->append(bytes_of_text(text)).ok());
  }
  EXPECT_EQ(log->times().committed.count(), 1u);
}

// The bytes of a record are damaged on the replica that is read first, and then on all.
TEST_F(LogApi, ADamagedRecordIsReadFromAnotherReplica) {
  const std::vector<std::byte> bytes(1'000, std::byte{7});
  Log log = open();
  std::vector<Lsn> places;
  for (int count = 0; count < 100; ++count) {
    const auto ticket = log.append(bytes);
    ASSERT_TRUE(ticket.ok());
    places.push_back(ticket->lsn);
  }
  auto opened = log.reader();
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  ASSERT_TRUE(log.close(kApiPatience).ok());
  const std::string first = opened->peer();
  EXPECT_EQ(first, peers_[0].address());
  peers_[0].flip_behind(places[50]);
  LogReader reader = std::move(*opened);
  for (std::uint64_t index = 0; index < 100; ++index) {
    const auto record = reader.next();
    ASSERT_TRUE(record.ok()) << record.error().message;
    ASSERT_TRUE(*record) << index;
    ASSERT_EQ((*record)->index, index);
  }
  EXPECT_NE(reader.peer(), first);
  // NOLINTBEGIN(bugprone-use-after-move): what it does then is what is asked.
  EXPECT_EQ(opened->next().code(), ErrorCode::InvalidArgument);
  EXPECT_EQ(opened->position(), Lsn{});
  // NOLINTEND(bugprone-use-after-move)

  peers_[1].flip_behind(places[50]);
  peers_[2].flip_behind(places[50]);
  LogReaderOptions options;
  for (std::size_t index = 0; index < 3; ++index) {
    options.peers.push_back(peers_[index].address());
  }
  options.pool = "log";
  auto none = LogReader::open(options);
  ASSERT_TRUE(none.ok()) << none.error().message;
  std::uint64_t read = 0;
  auto record = none->next();
  for (; record.ok() && *record; record = none->next()) EXPECT_EQ((*record)->index, read++);
  EXPECT_EQ(read, 50u);
  ASSERT_FALSE(record.ok());
  EXPECT_EQ(record.code(), ErrorCode::Corrupt) << record.error().message;
}

TEST_F(LogApi, WhatIsNotCommittedIsReadOfOnePeerOnly) {
  Log log = open();
  LogReaderOptions options;
  options.uncommitted = true;
  EXPECT_EQ(log.reader(options).code(), ErrorCode::InvalidArgument);
  options.peers = {peers_[2].address()};
  EXPECT_TRUE(log.reader(options).ok());
  EXPECT_EQ(LogReader::open({}).code(), ErrorCode::InvalidArgument);
}

TEST(LogOptionsInWords, AFileSaysAll) {
  const test::TestDirectory directory;
  const std::string path = directory.file("log.toml");
  const auto read = [&](std::string_view text) {
    EXPECT_TRUE(write_file(path, text).ok());
    return read_log_options(path);
  };
  const auto options = read(
      "peers = [\"a:1\", \"b:2\"]\npool = \"orders\"\nquorum = 2\ntransport = \"tcp\"\n"
      "record_bytes_max = \"1MiB\"\ntake_over = true\nreconnect_ms = 250\n");
  ASSERT_TRUE(options.ok()) << options.error().message;
  EXPECT_EQ(options->peers, (std::vector<std::string>{"a:1", "b:2"}));
  EXPECT_EQ(options->pool, "orders");
  EXPECT_EQ(options->quorum, 2u);
  EXPECT_EQ(options->transport, Transport::Tcp);
  EXPECT_EQ(options->record_bytes_max, 1024u * 1024);
  EXPECT_TRUE(options->take_over && options->create);
  EXPECT_EQ(options->reconnect, std::chrono::milliseconds(250));
  EXPECT_FALSE(options->rnic.ack_timeout || options->rnic.traffic_class);

  const auto why = [&](std::string_view text) {
    const auto wrong = read(text);
    EXPECT_EQ(wrong.ok() ? ErrorCode::SystemError : wrong.code(), ErrorCode::InvalidArgument);
    return wrong.ok() ? std::string("taken") : wrong.error().message;
  };
  const std::string right = "peers = [\"a:1\"]\npool = \"p\"\n";
  EXPECT_NE(why("pool = \"p\"\n").find("peers"), std::string::npos);
  EXPECT_NE(why("peers = \"a:1\"\npool = \"p\"\n").find("log.toml:1"), std::string::npos);
  EXPECT_NE(why("peers = [1]\npool = \"p\"\n").find("log.toml:1"), std::string::npos);
  EXPECT_NE(why("peers = [\"a:1\"]\n").find("pool"), std::string::npos);
  EXPECT_NE(why(right + "qorum = 2\n").find("log.toml:3"), std::string::npos);
  EXPECT_NE(why(right + "rnic_ack_timeout = 5\n").find("6 to 22"), std::string::npos);
  EXPECT_NE(why(right + "rnic_traffic_class = 256\n").find("0 to 255"), std::string::npos);
  const auto asked =
      read(right + "rnic = \"mlx5_1\"\nrnic_ack_timeout = 14\n" + "rnic_traffic_class = 106\n");
  ASSERT_TRUE(asked.ok()) << asked.error().message;
  EXPECT_EQ(asked->rnic, (RnicOptions{"mlx5_1", 14, 106}));
  EXPECT_NE(why(right + "quorum = -1\n").find("'-1'"), std::string::npos);
  EXPECT_NE(why(right + "take_over = 2\n").find("neither true nor false"), std::string::npos);
  EXPECT_NE(why(right + "shape = [1]\n").find("shape"), std::string::npos);
  EXPECT_EQ(read_log_options(directory.file("none")).code(), ErrorCode::NotFound);
}

TEST(LogOptionsInWords, AConnectionStringSaysAll) {
  const auto options = parse_log_options(
      "perdure://a:1,b:2,[::1]:3/orders?quorum=2&transport=tcp&shape=compound&primary=send&"
      "level=visible&record_bytes_max=1MiB&take_over=true&measure_costs=0&reconnect_ms=250&"
      "writer_name=me");
  ASSERT_TRUE(options.ok()) << options.error().message;
  EXPECT_EQ(options->peers, (std::vector<std::string>{"a:1", "b:2", "[::1]:3"}));
  EXPECT_EQ(options->pool, "orders");
  EXPECT_EQ(options->quorum, 2u);
  EXPECT_EQ(options->transport, Transport::Tcp);
  EXPECT_EQ(options->shape, LogShape::Compound);
  EXPECT_EQ(options->primary, Primary::Send);
  EXPECT_EQ(options->level, Level::Visible);
  EXPECT_EQ(options->record_bytes_max, 1024u * 1024);
  EXPECT_TRUE(options->take_over);
  EXPECT_FALSE(options->measure_costs);
  EXPECT_EQ(options->reconnect, std::chrono::milliseconds(250));
  EXPECT_EQ(options->writer_name, "me");
  const auto plain = parse_log_options("perdure://a:1/orders");
  ASSERT_TRUE(plain.ok());
  EXPECT_FALSE(plain->transport || plain->shape || plain->primary);
}

TEST(LogOptionsInWords, ARegionAndAMirrorHaveTheirOwn) {
  const auto region = parse_region_options(
      "perdure://a:1,b:2/index?quorum=2&create=false&transport=tcp&primary=write&level=visible&"
      "staging_bytes=1MiB&measure_costs=0&take_over=1&writer_name=me&peer_timeout_ms=70&"
      "reconnect_ms=30&spin_us=5&rnic=mlx5_0");
  ASSERT_TRUE(region.ok()) << region.error().message;
  EXPECT_EQ(region->peers.size(), 2u);
  EXPECT_EQ(region->pool, "index");
  EXPECT_EQ(region->quorum, 2u);
  EXPECT_EQ(region->primary, Primary::Write);
  EXPECT_EQ(region->level, Level::Visible);
  EXPECT_EQ(region->staging_bytes, 1024u * 1024);
  EXPECT_TRUE(region->take_over && !region->create && !region->measure_costs);
  EXPECT_EQ(region->peer_timeout, std::chrono::milliseconds(70));
  EXPECT_EQ(region->reconnect, std::chrono::milliseconds(30));
  EXPECT_EQ(region->spin, std::chrono::microseconds(5));
  EXPECT_EQ(region->rnic.name, "mlx5_0");
  EXPECT_NE(parse_region_options("perdure://a:1/p?shape=singleton")
                .error()
                .message.find("a region has no option 'shape'"),
            std::string::npos);
  EXPECT_NE(parse_region_options("perdure://a:1/p?level=received")
                .error()
                .message.find("visible, durable"),
            std::string::npos);

  const test::TestDirectory directory;
  const std::string path = directory.file("mirror.toml");
  ASSERT_TRUE(write_file(path,
                         "peers = [\"a:1\"]\npool = \"tree\"\nstart = \"replicas\"\n"
                         "without_missing = true\nonly_copies = true\nstaging_bytes = \"64KiB\"\n")
                  .ok());
  const auto mirror = read_mirror_options(path);
  ASSERT_TRUE(mirror.ok()) << mirror.error().message;
  EXPECT_EQ(mirror->start, MirrorStart::Replicas);
  EXPECT_TRUE(mirror->without_missing && mirror->only_copies);
  EXPECT_EQ(mirror->staging_bytes, 64u * 1024);
  EXPECT_EQ(mirror->reconnect, MirrorOptions{}.reconnect);
  EXPECT_EQ(read_region_options(path).code(), ErrorCode::InvalidArgument) << "start is not its";
  MirrorOptions options;
  EXPECT_NE(set_option(options, "start", "old").error().message.find("new, local, replicas"),
            std::string::npos);
}

TEST(LogOptionsInWords, AReaderHasItsOwn) {
  const auto reader = parse_reader_options(
      "perdure://a:1,b:2/orders?transport=tcp&rnic=mlx5_0&rnic_ack_timeout=14&"
      "rnic_traffic_class=106&from=4096&from_index=7&uncommitted=true&timeout_ms=70");
  ASSERT_TRUE(reader.ok()) << reader.error().message;
  EXPECT_EQ(reader->peers, (std::vector<std::string>{"a:1", "b:2"}));
  EXPECT_EQ(reader->pool, "orders");
  EXPECT_EQ(reader->transport, Transport::Tcp);
  EXPECT_EQ(reader->rnic, (RnicOptions{"mlx5_0", 14, 106}));
  EXPECT_EQ(reader->from, Lsn{4096});
  EXPECT_EQ(reader->from_index, 7u);
  EXPECT_TRUE(reader->uncommitted);
  EXPECT_EQ(reader->timeout, std::chrono::milliseconds(70));
  // What only a writer has is refused, and the names are those that there are.
  const auto refused = parse_reader_options("perdure://a:1/orders?quorum=2");
  EXPECT_EQ(refused.code(), ErrorCode::InvalidArgument);
  EXPECT_NE(refused.error().message.find("a reader has no option 'quorum'; there are: transport, "
                                         "rnic, rnic_ack_timeout, rnic_traffic_class, from, "
                                         "from_index, uncommitted, timeout_ms"),
            std::string::npos)
      << refused.error().message;
  LogReaderOptions options;
  EXPECT_NE(set_option(options, "from", "-1").error().message.find("from: '-1'"),
            std::string::npos);

  const test::TestDirectory directory;
  const std::string path = directory.file("reader.toml");
  ASSERT_TRUE(write_file(path,
                         "peers = [\"a:1\"]\npool = \"orders\"\ntransport = \"auto\"\n"
                         "from_index = 3\nuncommitted = true\n")
                  .ok());
  const auto read = read_reader_options(path);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->from_index, 3u);
  EXPECT_TRUE(read->uncommitted && !read->transport);
  EXPECT_EQ(read->timeout, LogReaderOptions{}.timeout);
  EXPECT_EQ(read_log_options(path).code(), ErrorCode::InvalidArgument) << "from_index is not its";
  EXPECT_EQ(read_reader_options(directory.file("none")).code(), ErrorCode::NotFound);
}

TEST(LogOptionsInWords, WhatIsWrongIsNamed) {
  const auto why = [](std::string_view text) {
    const auto options = parse_log_options(text);
    return options.ok() ? std::string("taken") : options.error().message;
  };
  EXPECT_NE(why("http://a:1/orders").find("perdure://"), std::string::npos);
  EXPECT_NE(why("perdure:///orders").find("no peer"), std::string::npos);
  EXPECT_NE(why("perdure://a:1").find("no pool"), std::string::npos);
  EXPECT_NE(why("perdure://a:1,,b:2/p").find("a peer is empty"), std::string::npos);
  EXPECT_NE(why("perdure://a:1,/p").find("a peer is empty"), std::string::npos);
  EXPECT_NE(why("perdure://a:1/p?qorum=2").find("there are: quorum"), std::string::npos);
  EXPECT_NE(why("perdure://a:1/p?quorum=two").find("quorum: 'two'"), std::string::npos);
  EXPECT_NE(why("perdure://a:1/p?quorum=-1").find("quorum: '-1'"), std::string::npos);
  EXPECT_NE(why("perdure://a:1/p?shape=round").find("singleton, compound, or planned"),
            std::string::npos);
  for (const char* level : {"committed", "received"}) {
    EXPECT_NE(why(std::string("perdure://a:1/p?level=") + level).find("visible, durable"),
              std::string::npos);
  }
  EXPECT_NE(why("perdure://a:1/p?take_over=yes").find("neither true nor false"), std::string::npos);
  LogOptions options;
  ASSERT_TRUE(set_option(options, "replica_timeout_ms", "18446744073709551615").ok());
  EXPECT_GT(options.replica_timeout, std::chrono::hours(24));
}

}  // namespace
}  // namespace perdure::server
