// Small updates that are begun while several are in flight go together in one message, in their
// order; judged by how many requests went, and by what stands in the pool.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "client/durable_session.h"
#include "core/bytes.h"
#include "core/random.h"
#include "pmem/pool_format.h"
#include "testing/world_server.h"

namespace perdure::client {
namespace {

const std::string kCoalescedPool = "ranges";
constexpr std::size_t kRangeBytes = 64;  // of each range

persist::RequestHandlers without_ordered_updates(const server::SessionTerms&) {
  persist::RequestHandlers handlers = persist::built_in_handlers();
  handlers[static_cast<std::size_t>(persist::MessageKind::Ordered)] = nullptr;
  return handlers;
}

class CoalescingTest : public testing::Test {
 protected:
  void start(std::optional<Primary> primary, bool takes_messages = true) {
    ServerProfile profile;
    profile.domain = PersistenceDomain::Dmp;
    profile.ddio = Ddio::On;
    test::WorldServer::Options serving{kCoalescedPool, 256 * 1024, {32, 2048}};
    if (!takes_messages) serving.handlers = without_ordered_updates;
    server_ = *test::WorldServer::start(world_, "server", profile, serving);
    DurableSessionOptions options;
    options.clock = &world_.clock();
    options.measure_costs = false;
    options.primary = primary;
    options.ranges_again = true;
    options.requests_in_flight = kUpdatesMax;
    options.request_bytes_max = 1024;
    session_.emplace(server_->peer(world_.add_machine("client", profile)), options);
    ASSERT_TRUE(session_->open({kCoalescedPool, true, Epoch{1}, 1, "test", true}).ok());
    memory_ = *session_->register_memory(bytes_);
    ASSERT_TRUE(session_->prepare(false).ok());
  }
  void TearDown() override {
    session_->close();
    memory_.reset();
  }

  /// Bytes of value `value`.
  persist::UpdateItem item(std::uint64_t at, std::uint8_t value) {
    std::byte* const from = bytes_.data() + kRangeBytes * value;
    std::fill_n(from, kRangeBytes, std::byte{value});
    return {at, {from, kRangeBytes, memory_.get()}};
  }
  std::uint64_t begin(std::uint64_t at, std::uint8_t value) {
    const persist::UpdateItem range = item(at, value);
    const Ranges epoch(&range, 1);
    const auto begun = session_->update({&epoch, 1});
    EXPECT_TRUE(begun.ok()) << begun.error().message;
    return begun.ok() ? *begun : 0;
  }
  void settle() {
    for (int round = 0; round < 20'000 && session_->up() && !session_->idle(); ++round) {
      session_->poll();
    }
  }
  /// Whether it stands there, also after a power failure.
  bool is_there(std::uint64_t at, std::uint8_t value) {
    const std::byte* const pool = server_->region().bytes().data() + pmem::kPoolDataOffset;
    const pmem::Range range{pmem::kPoolDataOffset + at, kRangeBytes};
    return server_->region().is_durable(range) &&
           std::all_of(pool + at, pool + at + kRangeBytes,
                       [value](std::byte each) { return each == std::byte{value}; });
  }

  Random random_{5};
  fabric::emu::World world_{random_};
  std::unique_ptr<test::WorldServer> server_;
  std::vector<std::byte> bytes_{std::vector<std::byte>(256 * kRangeBytes)};
  std::unique_ptr<fabric::Memory> memory_;
  std::optional<DurableSession> session_;
};

// 1,024 bytes of a message take a head of 8 and 12 updates of 16 + 64.
TEST_F(CoalescingTest, WhatWaitsGoesTogether) {
  start({});
  for (std::uint8_t each = 1; each <= kUpdatesMax; ++each) begin(1024u * each, each);
  settle();
  ASSERT_TRUE(session_->up() && session_->idle());
  for (std::uint8_t each = 1; each <= kUpdatesMax; ++each) {
    EXPECT_TRUE(is_there(1024u * each, each)) << int{each};
  }
  EXPECT_EQ(session_->counters().updates, kCoalesceBehind + 1) << "requests that resolved";
  EXPECT_EQ(session_->coalesced(), 12u);
}

// Expect: the last one stands there, and nobody has waited for a round trip of his own.
TEST_F(CoalescingTest, UpdatesOfOnePlaceKeepTheirOrder) {
  start({});
  for (std::uint8_t each = 1; each <= kUpdatesMax; ++each) begin(4096, each);
  settle();
  ASSERT_TRUE(session_->up() && session_->idle());
  EXPECT_TRUE(is_there(4096, kUpdatesMax));
  EXPECT_LT(session_->counters().updates, kUpdatesMax / 2);
}

TEST_F(CoalescingTest, AnyNumberOfEpochsIsOneRequest) {
  start({});
  std::vector<persist::UpdateItem> items;
  std::vector<Ranges> epochs;
  for (std::uint8_t each = 1; each <= 8; ++each) items.push_back(item(1024u * each, each));
  for (const persist::UpdateItem& each : items) epochs.emplace_back(&each, 1);
  ASSERT_TRUE(session_->update(epochs).ok());
  settle();
  ASSERT_TRUE(session_->up() && session_->idle());
  for (std::uint8_t each = 1; each <= 8; ++each) EXPECT_TRUE(is_there(1024u * each, each));
  EXPECT_EQ(session_->counters().updates, 1u);
  EXPECT_EQ(session_->coalesced(), 0u) << "it went alone";
}

TEST_F(CoalescingTest, WhoForcesWriteGetsNoMessages) {
  start(Primary::Write);
  for (std::uint8_t each = 1; each <= kUpdatesMax; ++each) begin(1024u * each, each);
  settle();
  ASSERT_TRUE(session_->up() && session_->idle());
  for (std::uint8_t each = 1; each <= kUpdatesMax; ++each) {
    EXPECT_TRUE(is_there(1024u * each, each)) << int{each};
  }
  EXPECT_EQ(session_->counters().updates, kUpdatesMax);
  EXPECT_EQ(session_->coalesced(), 0u);
}

// Receive: four that went alone, and a message that nobody at the peer handles.
// Expect: nothing of the message is ever said to have resolved.
TEST_F(CoalescingTest, UpdatesThatAreRefusedTakeTheSessionDown) {
  start({}, /*takes_messages=*/false);
  std::uint64_t last_alone = 0;
  for (std::uint8_t each = 1; each <= kUpdatesMax; ++each) {
    const std::uint64_t number = begin(1024u * each, each);
    if (each == kCoalesceBehind) last_alone = number;
  }
  settle();
  ASSERT_FALSE(session_->up());
  EXPECT_EQ(session_->down_reason()->code, ErrorCode::Unsupported);
  EXPECT_TRUE(session_->has_resolved(last_alone));
  EXPECT_FALSE(session_->has_resolved(last_alone + 1));
  EXPECT_TRUE(session_->is_forgotten(last_alone + 1));
}

// What a writer left is told by his end, and the next one's opening flushes what may not be
// durable.
TEST_F(CoalescingTest, WhoKnowsThatAllIsDurableSaysSoAtHisEnd) {
  start(Primary::Write);
  std::uint64_t lines = 0;  // flushed by the responder's processor
  server_->region().watch_flushes([&](std::uint64_t units) { lines += units; });
  std::uint32_t epoch = 1;
  const auto flushed_for_the_next = [&] {
    session_->give_back(Deadline(world_.clock(), std::chrono::seconds{60}));
    memory_.reset();
    lines = 0;
    EXPECT_TRUE(session_->open({kCoalescedPool, true, Epoch{++epoch}, epoch, "next", true}).ok());
    const std::uint64_t flushed = lines;
    memory_ = *session_->register_memory(bytes_);
    EXPECT_TRUE(session_->prepare(false).ok());
    return flushed;
  };
  const std::uint64_t whole = 256 * 1024 / 64;
  begin(1024, 1);
  settle();
  EXPECT_LT(flushed_for_the_next(), whole) << "all was durable";
  EXPECT_LT(flushed_for_the_next(), whole) << "nothing was written";
  begin(1024, 2);
  EXPECT_GE(flushed_for_the_next(), whole) << "an update was in flight";
  begin(1024, 3);
  settle();
  session_->close();
  EXPECT_GE(flushed_for_the_next(), whole) << "he went without a word";
  server_->region().watch_flushes(nullptr);
}

}  // namespace
}  // namespace perdure::client
