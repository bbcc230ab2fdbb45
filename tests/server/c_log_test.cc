// A log through the C interface: what perdure.h has beside append, wait and read.
#include <gtest/gtest.h>
#include <perdure/perdure.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "core/clock.h"
#include "core/text_file.h"
#include "opened_peer.h"
#include "testing/child_of_fork.h"
#include "testing/temporary_directory.h"

namespace perdure::server {
namespace {

constexpr std::uint32_t kMinuteMs = 60'000;

class CLog : public testing::Test {
 protected:
  CLog() {
    for (std::size_t index = 0; index < 3; ++index) addresses_.push_back(peers_[index].address());
    for (const std::string& address : addresses_) at_.push_back(address.c_str());
    options_.size = sizeof options_;
    options_.peers = at_.data();
    options_.peer_count = at_.size();
    options_.pool = "log";
    options_.transport = "tcp";
    options_.usual_costs = true;
    options_.record_bytes_max = 4096;
  }
  ~CLog() override { perdure_log_close(log_); }
  void open() { ASSERT_EQ(perdure_log_open(&options_, &log_), PERDURE_OK) << perdure_last_error(); }
  std::string connection() const {
    return "perdure://" + addresses_[0] + "," + addresses_[1] + "," + addresses_[2] +
           "/log?transport=tcp&measure_costs=0&record_bytes_max=4096";
  }

  OpenedPeers peers_{Transport::Tcp};
  std::vector<std::string> addresses_;
  std::vector<const char*> at_;
  perdure_log_options options_{};
  perdure_log* log_ = nullptr;
};

TEST_F(CLog, RecordsOfPiecesAndInClaimedRoomAreReadBack) {
  open();
  const std::array<perdure_bytes, 3> pieces = {{{"one", 3}, {nullptr, 0}, {" two", 4}}};
  perdure_ticket ticket{};
  ASSERT_EQ(perdure_log_append_pieces(log_, pieces.data(), pieces.size(), &ticket), PERDURE_OK);
  EXPECT_EQ(ticket.index, 0u);
  void* room = nullptr;
  ASSERT_EQ(perdure_log_claim(log_, 100, &room), PERDURE_OK) << perdure_last_error();
  std::memcpy(room, "three", 5);
  ASSERT_EQ(perdure_log_append_claimed(log_, 5, &ticket), PERDURE_OK) << perdure_last_error();
  ASSERT_EQ(perdure_log_wait(log_, &ticket, PERDURE_COMMITTED, kMinuteMs), PERDURE_OK);
  bool yes = false;
  EXPECT_EQ(perdure_log_reached(log_, &ticket, PERDURE_COMMITTED, &yes), PERDURE_OK);
  EXPECT_TRUE(yes);
  ++ticket.writer;
  EXPECT_EQ(perdure_log_reached(log_, &ticket, PERDURE_COMMITTED, &yes), PERDURE_OK);
  EXPECT_FALSE(yes);
  EXPECT_EQ(perdure_log_append_claimed(log_, 5, &ticket), PERDURE_INVALID_ARGUMENT);
  const perdure_bytes null{nullptr, 1};
  EXPECT_EQ(perdure_log_append_pieces(log_, &null, 1, &ticket), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_log_poll_within(log_, 10), PERDURE_OK);

  perdure_reader* reader = nullptr;
  ASSERT_EQ(perdure_log_reader(log_, nullptr, &reader), PERDURE_OK) << perdure_last_error();
  EXPECT_EQ(perdure_log_close_within(std::exchange(log_, nullptr), kMinuteMs), PERDURE_OK)
      << perdure_last_error();
  for (const std::string expected : {"one two", "three"}) {
    perdure_record record{};
    bool found = false;
    ASSERT_EQ(perdure_reader_next(reader, &record, &found), PERDURE_OK);
    ASSERT_TRUE(found);
    EXPECT_EQ(std::string(static_cast<const char*>(record.bytes), record.length), expected);
  }
  EXPECT_EQ(perdure_reader_peer(reader), addresses_[0]);
  perdure_record record{};
  bool found = true;
  ASSERT_EQ(perdure_reader_next(reader, &record, &found), PERDURE_OK);
  EXPECT_FALSE(found);
  perdure_log_end end = PERDURE_END_RING_FULL;
  EXPECT_EQ(perdure_reader_get_end(reader, &end), PERDURE_OK);
  EXPECT_EQ(end, PERDURE_END_CLEAN);
  perdure_reader_close(reader);
}

// Three records. Expect: a reader that is opened by a string, or by a file, begins at the second.
TEST_F(CLog, AReaderIsOpenedByWords) {
  open();
  perdure_ticket ticket{};
  for (const char* const text : {"one", "two", "three"}) {
    ASSERT_EQ(perdure_log_append(log_, text, std::strlen(text), &ticket), PERDURE_OK);
  }
  ASSERT_EQ(perdure_log_close_within(std::exchange(log_, nullptr), kMinuteMs), PERDURE_OK);
  const test::TestDirectory directory;
  const std::string path = directory.file("reader.toml");
  ASSERT_TRUE(write_file(path, "peers = [\"" + addresses_[1] +
                                   "\"]\npool = \"log\"\ntransport = \"tcp\"\nfrom_index = 1\n")
                  .ok());
  const std::string words =
      "perdure://" + addresses_[0] + "," + addresses_[2] + "/log?transport=tcp&from_index=1";
  for (const bool by_file : {false, true}) {
    perdure_reader* reader = nullptr;
    ASSERT_EQ(by_file ? perdure_reader_open_file(path.c_str(), &reader)
                      : perdure_reader_open_string(words.c_str(), &reader),
              PERDURE_OK)
        << perdure_last_error();
    for (const std::string expected : {"two", "three"}) {
      perdure_record record{};
      bool found = false;
      ASSERT_EQ(perdure_reader_next(reader, &record, &found), PERDURE_OK) << perdure_last_error();
      ASSERT_TRUE(found);
      EXPECT_EQ(std::string(static_cast<const char*>(record.bytes), record.length), expected);
    }
    EXPECT_EQ(perdure_reader_peer(reader), addresses_[by_file ? 1 : 0]);
    perdure_reader_close(reader);
  }
}

TEST_F(CLog, WhatIsOnlyVisibleIsNeverReachedAsMore) {
  options_.visible_only = true;
  open();
  perdure_ticket ticket{};
  ASSERT_EQ(perdure_log_append(log_, "one", 3, &ticket), PERDURE_OK) << perdure_last_error();
  perdure_log_status status{};
  status.size = sizeof status;
  const Deadline patience = Deadline::after(std::chrono::minutes(1));
  do {
    ASSERT_EQ(perdure_log_poll(log_), PERDURE_OK) << perdure_last_error();
    ASSERT_EQ(perdure_log_get_status(log_, &status), PERDURE_OK);
  } while (status.committed < ticket.end && !patience.passed());
  EXPECT_EQ(status.committed, ticket.end);
  bool yes = false;
  EXPECT_EQ(perdure_log_reached(log_, &ticket, PERDURE_VISIBLE, &yes), PERDURE_OK);
  EXPECT_TRUE(yes);
  for (const perdure_level level : {PERDURE_DURABLE, PERDURE_COMMITTED}) {
    EXPECT_EQ(perdure_log_reached(log_, &ticket, level, &yes), PERDURE_OK);
    EXPECT_FALSE(yes);
    EXPECT_EQ(perdure_log_wait(log_, &ticket, level, kMinuteMs), PERDURE_UNSUPPORTED);
  }
}

// The session of one of three peers is ended. Expect: its status says why, and repair what has
// become of it.
TEST_F(CLog, SaysHowEachReplicaIsAndWhatRepairDid) {
  options_.replica_timeout_ms = 10000;
  open();
  perdure_ticket ticket{};
  ASSERT_EQ(perdure_log_append(log_, "one", 3, &ticket), PERDURE_OK);
  ASSERT_EQ(perdure_log_wait(log_, &ticket, PERDURE_COMMITTED, kMinuteMs), PERDURE_OK);
  std::array<perdure_replica_status, 3> replicas{};
  std::size_t there = 0;
  EXPECT_EQ(perdure_log_get_replicas(log_, replicas.data(), 3, &there), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_log_get_replicas(log_, nullptr, 0, &there), PERDURE_OK);
  EXPECT_EQ(there, 3u);
  for (auto& each : replicas) each.size = sizeof each;
  ASSERT_EQ(perdure_log_get_replicas(log_, replicas.data(), 3, &there), PERDURE_OK);
  for (std::size_t index = 0; index < 3; ++index) {
    EXPECT_EQ(replicas[index].peer, addresses_[index]);
    EXPECT_TRUE(replicas[index].up);
    EXPECT_STREQ(replicas[index].down_reason, "");
    EXPECT_GT(std::strlen(replicas[index].small_method), 0u);
    EXPECT_EQ(std::strlen(replicas[index].pool_uuid), 36u);
    EXPECT_NE(std::strstr(replicas[index].profile, "page"), nullptr) << replicas[index].profile;
  }
  // With room for one only, nothing is written behind it.
  std::memset(&replicas[1], 0x5a, sizeof replicas[1]);
  ASSERT_EQ(perdure_log_get_replicas(log_, replicas.data(), 1, &there), PERDURE_OK);
  EXPECT_EQ(replicas[1].peer[0], 0x5a);

  peers_[2].end_sessions();
  const Deadline patience = Deadline::after(std::chrono::minutes(1));
  for (auto& each : replicas) each.size = sizeof each;
  do {
    ASSERT_EQ(perdure_log_poll(log_), PERDURE_OK) << perdure_last_error();
    ASSERT_EQ(perdure_log_get_replicas(log_, replicas.data(), 3, &there), PERDURE_OK);
  } while (replicas[2].up && !patience.passed());
  EXPECT_GT(std::strlen(replicas[2].down_reason), 0u);
  std::array<perdure_repair_report, 2> reports{};
  for (auto& each : reports) each.size = sizeof each;
  ASSERT_EQ(perdure_log_repair_within(log_, kMinuteMs, reports.data(), 2, &there), PERDURE_OK);
  EXPECT_EQ(there, 1u);
  EXPECT_EQ(reports[0].peer, addresses_[2]);
  EXPECT_TRUE(reports[0].repaired) << reports[0].error;
  ASSERT_EQ(perdure_log_repair_within(log_, kMinuteMs, reports.data(), 2, &there), PERDURE_OK);
  EXPECT_EQ(there, 0u);
  ASSERT_EQ(perdure_log_take_repairs(log_, reports.data(), 2, &there), PERDURE_OK);
}

// A child of the program asks what has no error of its own.
TEST_F(CLog, AChildOfForkIsToldThatNothingIsItsOwn) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer ends a child that was forked while there are threads";
#endif
  open();
  perdure_ticket ticket{};
  ASSERT_EQ(perdure_log_append(log_, "one", 3, &ticket), PERDURE_OK);
  perdure_reader* reader = nullptr;
  ASSERT_EQ(perdure_log_reader(log_, nullptr, &reader), PERDURE_OK) << perdure_last_error();
  EXPECT_TRUE(test::yes_in_a_child([&] {
    perdure_log_status status{};
    status.size = sizeof status;
    bool yes = false;
    std::size_t there = 0;
    std::uint64_t position = 0;
    const bool refused =
        perdure_log_get_status(log_, &status) == PERDURE_INVALID_ARGUMENT &&
        perdure_log_reached(log_, &ticket, PERDURE_DURABLE, &yes) == PERDURE_INVALID_ARGUMENT &&
        perdure_log_get_replicas(log_, nullptr, 0, &there) == PERDURE_INVALID_ARGUMENT &&
        perdure_log_take_repairs(log_, nullptr, 0, &there) == PERDURE_INVALID_ARGUMENT &&
        perdure_reader_get_position(reader, &position, nullptr) == PERDURE_INVALID_ARGUMENT;
    return refused;
  }));
  perdure_reader_close(reader);
}

// What is to be told has no size. Expect: that is said before anything is done.
TEST_F(CLog, WhatIsToldHasASizeBeforeAnythingIsDone) {
  perdure_pool_description pool{};
  EXPECT_EQ(perdure_pool_create(at_[0], "unsized", 1 << 20, false, 0, &pool),
            PERDURE_INVALID_ARGUMENT);
  pool.size = sizeof pool;
  EXPECT_EQ(perdure_pool_describe(at_[0], "unsized", 0, &pool), PERDURE_NOT_FOUND);
  open();
  std::array<perdure_repair_report, 2> reports{};
  reports[0].size = sizeof reports[0];
  std::size_t there = 0;
  EXPECT_EQ(perdure_log_repair_within(log_, kMinuteMs, reports.data(), 2, &there),
            PERDURE_INVALID_ARGUMENT);
}

TEST_F(CLog, ItsReplicasAndQuorumAreChanged) {
  const char* const two[] = {at_[0], at_[1]};
  options_.peers = two;
  options_.peer_count = 2;
  open();
  perdure_log_status status{};
  status.size = sizeof status;
  ASSERT_EQ(perdure_log_add_replica(log_, at_[2], 2), PERDURE_OK) << perdure_last_error();
  ASSERT_EQ(perdure_log_get_status(log_, &status), PERDURE_OK);
  EXPECT_EQ(status.replicas, 3u);
  EXPECT_EQ(perdure_log_add_replica(log_, at_[2], 2), PERDURE_ALREADY_EXISTS);
  ASSERT_EQ(perdure_log_change_quorum(log_, 3), PERDURE_OK) << perdure_last_error();
  ASSERT_EQ(perdure_log_remove_replica(log_, at_[1], 2), PERDURE_OK) << perdure_last_error();
  ASSERT_EQ(perdure_log_get_status(log_, &status), PERDURE_OK);
  EXPECT_EQ(status.replicas, 2u);
  EXPECT_EQ(status.quorum, 2u);
  EXPECT_EQ(perdure_log_replace_replica(log_, at_[1], at_[0]), PERDURE_NOT_FOUND);
  EXPECT_EQ(perdure_log_change_quorum(log_, 5), PERDURE_INVALID_ARGUMENT);
  const size_t beyond = (size_t{1} << 32) + 1;
  EXPECT_EQ(perdure_log_change_quorum(log_, beyond), PERDURE_INVALID_ARGUMENT);
}

/// Filled by the writer's thread.
struct Told {
  std::string message = "not called";
  perdure_finished finished{};
  std::atomic<bool> called{false};
};

/// While its log is used, so that nothing of it is finished meanwhile.
struct Submitting {
  perdure_log_writer* writer = nullptr;
  std::array<perdure_bytes, 2> pieces = {{{"one ", 4}, {"two", 3}}};
  Told told;
};

void note_told(const perdure_finished* finished, const char* message, void* context) {
  Told& told = *static_cast<Told*>(context);
  told.finished = *finished;
  told.message = message;
  told.called = true;
}

void submit_three(perdure_log* /*log*/, void* context) {
  Submitting& all = *static_cast<Submitting*>(context);
  // Too large: it is refused when its turn comes.
  const std::vector<char> large(5000);
  EXPECT_EQ(perdure_log_writer_submit(all.writer, large.data(), large.size(), 7, PERDURE_COMMITTED,
                                      kMinuteMs),
            PERDURE_OK);
  EXPECT_EQ(perdure_log_writer_submit_calling(all.writer, all.pieces.data(), 2, 8,
                                              PERDURE_COMMITTED, kMinuteMs, note_told, &all.told),
            PERDURE_OK);
  EXPECT_EQ(perdure_log_writer_submit_pieces(all.writer, all.pieces.data(), 2, 9, PERDURE_COMMITTED,
                                             kMinuteMs),
            PERDURE_QUEUE_FULL);
}

TEST_F(CLog, AWriterIsOpenedFromAStringAndSaysWhatBecameOfRecords) {
  perdure_log_writer_options how{};
  how.size = sizeof how;
  how.records_max = 2;
  Submitting all;
  perdure_log_writer*& writer = all.writer;
  ASSERT_EQ(perdure_log_writer_open_string(connection().c_str(), &how, &writer), PERDURE_OK)
      << perdure_last_error();
  perdure_ticket ticket{};
  ASSERT_EQ(perdure_log_writer_commit_pieces(writer, all.pieces.data(), 2, PERDURE_COMMITTED,
                                             kMinuteMs, &ticket),
            PERDURE_OK)
      << perdure_last_error();
  ASSERT_EQ(perdure_log_writer_with_log(writer, submit_three, &all), PERDURE_OK);
  const Told& told = all.told;
  const Deadline patience = Deadline::after(std::chrono::minutes(1));
  std::size_t taken = 0;
  std::array<perdure_finished, 4> finished{};
  while ((taken == 0 || !told.called) && !patience.passed()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (taken != 0) continue;
    ASSERT_EQ(perdure_log_writer_take(writer, finished.data(), 4, &taken), PERDURE_OK);
  }
  ASSERT_TRUE(told.called);
  ASSERT_EQ(taken, 1u);
  EXPECT_EQ(finished[0].tag, 7u);
  EXPECT_EQ(finished[0].code, PERDURE_INVALID_ARGUMENT);
  EXPECT_NE(std::strstr(perdure_finished_message(0), "5000 bytes"), nullptr)
      << perdure_finished_message(0);
  EXPECT_STREQ(perdure_finished_message(1), "");
  EXPECT_EQ(told.message, "");
  EXPECT_EQ(told.finished.tag, 8u);
  EXPECT_EQ(told.finished.code, PERDURE_OK);
  EXPECT_EQ(told.finished.ticket.index, 1u);
  EXPECT_EQ(perdure_log_writer_close(writer, kMinuteMs), PERDURE_OK) << perdure_last_error();
  EXPECT_EQ(perdure_log_writer_open_string("perdure://a:1", &how, &writer),
            PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_log_writer_open_file("/nowhere/log.toml", nullptr, &writer), PERDURE_NOT_FOUND);
}

struct Lent {
  std::vector<const char*> peers;
  perdure_code repaired = PERDURE_SYSTEM_ERROR;
  perdure_code removed = PERDURE_SYSTEM_ERROR;
  perdure_code closed = PERDURE_OK;
  perdure_log_writer* writer = nullptr;
  perdure_code writer_closed = PERDURE_OK;
  perdure_code used = PERDURE_OK;
  perdure_reader* reader = nullptr;
  perdure_log_status status{};
};

void use_lent(perdure_log* log, void* context) {
  auto& lent = *static_cast<Lent*>(context);
  std::size_t there = 9;
  lent.repaired = perdure_log_repair_within(log, kMinuteMs, nullptr, 0, &there);
  lent.removed = perdure_log_remove_replica(log, lent.peers[2], 2);
  perdure_log_reader(log, nullptr, &lent.reader);
  lent.status.size = sizeof lent.status;
  perdure_log_get_status(log, &lent.status);
  lent.closed = perdure_log_close_within(log, 1);
  perdure_log_close(log);
  lent.writer_closed = perdure_log_writer_close(lent.writer, 1);
  lent.used = perdure_log_writer_trim(lent.writer, 0);
}

TEST_F(CLog, AWriterLendsItsLogAndWritesRecordsInPlace) {
  perdure_log_writer* writer = nullptr;
  ASSERT_EQ(perdure_log_writer_open(&options_, false, &writer), PERDURE_OK) << perdure_last_error();
  const auto write = [](void* room, std::size_t bytes, void* context) -> std::size_t {
    std::memcpy(room, context, 4);
    return bytes == 10 ? 4 : 0;
  };
  char text[] = "four";
  perdure_ticket ticket{};
  ASSERT_EQ(perdure_log_writer_commit_in_place(writer, 10, write, text, PERDURE_COMMITTED,
                                               kMinuteMs, &ticket),
            PERDURE_OK)
      << perdure_last_error();
  EXPECT_EQ(perdure_log_writer_commit_in_place(writer, 10, nullptr, text, PERDURE_COMMITTED,
                                               kMinuteMs, &ticket),
            PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_log_writer_with_log(writer, nullptr, nullptr), PERDURE_INVALID_ARGUMENT);
  Lent lent;
  lent.peers = at_;
  lent.writer = writer;
  ASSERT_EQ(perdure_log_writer_with_log(writer, use_lent, &lent), PERDURE_OK);
  EXPECT_EQ(lent.repaired, PERDURE_OK);
  EXPECT_EQ(lent.removed, PERDURE_OK);
  EXPECT_EQ(lent.closed, PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(lent.writer_closed, PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(lent.used, PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(lent.status.replicas, 2u);
  EXPECT_NE(std::strstr(lent.status.configuration, at_[1]), nullptr) << lent.status.configuration;
  EXPECT_STREQ(lent.status.accepted_loss, "");
  EXPECT_STRNE(lent.status.shape, "");
  EXPECT_GT(lent.status.ring_bytes, 4096u);
  ASSERT_EQ(perdure_log_writer_commit(writer, "more", 4, PERDURE_COMMITTED, kMinuteMs, &ticket),
            PERDURE_OK)
      << perdure_last_error();
  ASSERT_EQ(perdure_log_writer_close(writer, kMinuteMs), PERDURE_OK) << perdure_last_error();
  ASSERT_NE(lent.reader, nullptr);
  std::string found;
  for (int count = 0; count < 2; ++count) {
    perdure_record record{};
    bool there = false;
    ASSERT_EQ(perdure_reader_next(lent.reader, &record, &there), PERDURE_OK);
    ASSERT_TRUE(there);
    found.append(static_cast<const char*>(record.bytes), record.length);
  }
  EXPECT_EQ(found, "fourmore");
  perdure_reader_close(lent.reader);
}

TEST_F(CLog, WhoMustNotBlockAsksBefore) {
  open();
  bool yes = true;
  ASSERT_EQ(perdure_log_append_would_block(log_, 100, &yes), PERDURE_OK) << perdure_last_error();
  EXPECT_FALSE(yes);
  EXPECT_EQ(perdure_log_append_would_block(log_, 100, nullptr), PERDURE_INVALID_ARGUMENT);
  perdure_ticket ticket{};
  ASSERT_EQ(perdure_log_append(log_, "data", 4, &ticket), PERDURE_OK);
  ASSERT_EQ(perdure_log_wait(log_, &ticket, PERDURE_COMMITTED, kMinuteMs), PERDURE_OK);
  perdure_replica_status replica{};
  replica.size = sizeof replica;
  std::size_t there = 0;
  ASSERT_EQ(perdure_log_get_replicas(log_, &replica, 1, &there), PERDURE_OK);
  EXPECT_GT(replica.posts, 0u);
  EXPECT_LE(replica.posts, replica.requests);
}

TEST_F(CLog, WhatIsAskedOfAnRnicIsLookedAt) {
  options_.rnic_ack_timeout = 5;
  EXPECT_EQ(perdure_log_open(&options_, &log_), PERDURE_INVALID_ARGUMENT);
  EXPECT_NE(std::strstr(perdure_last_error(), "6 to 22"), nullptr) << perdure_last_error();
  options_.rnic_ack_timeout = 14;
  options_.rnic_traffic_class = 256;
  EXPECT_EQ(perdure_log_open(&options_, &log_), PERDURE_INVALID_ARGUMENT);
  options_.rnic_traffic_class = 106;
  open();
}

}  // namespace
}  // namespace perdure::server
