// Each verb does what the fabric's contract says, alone and for every size.
#include "pair.h"

#include <cstring>

namespace perdure::conformance {
namespace {

using fabric::Access;
using fabric::Opcode;

class Verbs : public Conformance {
 protected:
  void SetUp() override {
    auto pair = connect_pair(GetParam());
    ASSERT_TRUE(pair.ok()) << pair.error().message;
    pair_ = std::move(pair).value();
    local_.emplace(*pair_->devices.client, kBytes, Access::Local);
    remote_.emplace(*pair_->devices.server, kBytes, Access::RemoteReadWrite);
  }
  void TearDown() override {  // connections end before the memory that they reach
    if (pair_) pair_->client.endpoint.reset();
    if (pair_) pair_->server.endpoint.reset();
  }

  static constexpr std::size_t kBytes = std::size_t{64} << 20;
  static constexpr std::size_t kLoopBytes = std::size_t{4} << 20;  // of tests of many sizes
  std::unique_ptr<Pair> pair_;
  std::optional<Buffer> local_;
  std::optional<Buffer> remote_;
};

TEST_P(Verbs, WriteThenReadBackGivesTheBytesAtEverySize) {
  std::uint64_t context = 1;
  for (std::size_t length = 64; length <= kLoopBytes; length *= 4) {
    for (const std::size_t size : {length, length + 1, length - 3}) {
      local_->fill(context, 0, size);
      auto* written = pair_->run(write(local_->segment(0, size), remote_->remote(), 64, context));
      ASSERT_NE(written, nullptr) << size;
      ASSERT_FALSE(written->error.has_value()) << size;
      auto* back =
          pair_->run(read(local_->segment(kBytes / 2, size), remote_->remote(), 64, context + 1));
      ASSERT_NE(back, nullptr) << size;
      ASSERT_FALSE(back->error.has_value()) << size;
      // Expect: the READ came after the WRITE, so the bytes are in both places.
      EXPECT_TRUE(remote_->holds(context, 64, size)) << size;
      EXPECT_TRUE(local_->holds(context, kBytes / 2, size)) << size;
      context += 2;
    }
  }
}

TEST_P(Verbs, SixtyFourMebibytesArriveWhole) {
  local_->fill(7, 0, kBytes);
  auto* written = pair_->run(write(local_->segment(0, kBytes), remote_->remote(), 0, 1));
  ASSERT_NE(written, nullptr);
  ASSERT_FALSE(written->error.has_value());
  auto* proof = pair_->run(read(local_->segment(0, 8), remote_->remote(), 0, 2));
  ASSERT_NE(proof, nullptr);
  ASSERT_FALSE(proof->error.has_value());
  EXPECT_TRUE(remote_->holds(7, 0, kBytes));
}

TEST_P(Verbs, SendArrivesInThePostedBufferWithItsLength) {
  std::uint64_t context = 1;
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{64}, std::size_t{129},
                                 std::size_t{4096}, std::size_t{1} << 20}) {
    local_->fill(context, 0, size);
    ASSERT_TRUE(pair_->server.endpoint->post_receive(remote_->segment(0, size + 16), context).ok());
    auto* sent = pair_->run(send(local_->segment(0, size), context));
    ASSERT_NE(sent, nullptr) << size;
    ASSERT_FALSE(sent->error.has_value()) << size;
    ASSERT_TRUE(pair_->pump([&] { return pair_->server.find(Opcode::Receive, context); })) << size;
    const auto* received = pair_->server.find(Opcode::Receive, context);
    EXPECT_EQ(received->length, size);
    EXPECT_FALSE(received->error.has_value());
    EXPECT_FALSE(received->has_immediate);
    EXPECT_TRUE(remote_->holds(context, 0, size)) << size;
    ++context;
  }
}

TEST_P(Verbs, WriteImmediateConsumesAReceiveAndTellsImmediateAndLength) {
  std::uint64_t context = 1;
  for (const std::size_t size : {std::size_t{0}, std::size_t{8}, std::size_t{128},
                                 std::size_t{5000}, std::size_t{1} << 20}) {
    local_->fill(context, 0, size);
    const auto immediate = static_cast<std::uint32_t>(0xfeed0000u + context);
    ASSERT_TRUE(
        pair_->server.endpoint->post_receive(remote_->segment(kBytes - 64, 64), context).ok());
    auto* written = pair_->run(
        write_immediate(local_->segment(0, size), remote_->remote(), 4096, immediate, context));
    ASSERT_NE(written, nullptr) << size;
    ASSERT_FALSE(written->error.has_value()) << size;
    ASSERT_TRUE(pair_->pump([&] { return pair_->server.find(Opcode::Receive, context); })) << size;
    const auto* received = pair_->server.find(Opcode::Receive, context);
    EXPECT_TRUE(received->has_immediate);
    EXPECT_EQ(received->immediate, immediate);
    EXPECT_EQ(received->length, GetParam().immediate_length(size));
    EXPECT_TRUE(remote_->holds(context, 4096, size)) << size;
    ++context;
  }
}

TEST_P(Verbs, SegmentsAreGatheredAndScatteredInOrder) {
  for (const std::size_t size : {std::size_t{24}, std::size_t{3000}, std::size_t{300'000}}) {
    local_->fill(size, 0, 3 * size);
    auto request = write(local_->segment(2 * size, size), remote_->remote(), 100, size);
    request.segment_count = 3;
    request.segments[1] = local_->segment(0, size);
    request.segments[2] = local_->segment(size, size);
    auto* written = pair_->run(request);
    ASSERT_NE(written, nullptr);
    ASSERT_FALSE(written->error.has_value());

    // Receive: the three thirds, turned by one. Expect: a scattered READ turns them back.
    const std::size_t to = kBytes / 2;
    auto back = read(local_->segment(to + 2 * size, size), remote_->remote(), 100, size);
    back.segment_count = 3;
    back.segments[1] = local_->segment(to, size);
    back.segments[2] = local_->segment(to + size, size);
    auto* got = pair_->run(back);
    ASSERT_NE(got, nullptr);
    ASSERT_FALSE(got->error.has_value());
    EXPECT_EQ(std::memcmp(remote_->at(100), local_->at(2 * size), size), 0);
    EXPECT_EQ(std::memcmp(remote_->at(100 + size), local_->at(0), 2 * size), 0);
    EXPECT_TRUE(local_->holds(size, to, 3 * size));
  }
}

TEST_P(Verbs, ReadDoesNotChangeTheRemoteBytes) {
  remote_->fill(3, 0, 8192);
  auto* got = pair_->run(read(local_->segment(0, 8192), remote_->remote(), 0, 1));
  ASSERT_NE(got, nullptr);
  ASSERT_FALSE(got->error.has_value());
  EXPECT_TRUE(local_->holds(3, 0, 8192));
  EXPECT_TRUE(remote_->holds(3, 0, 8192));
}

TEST_P(Verbs, VerbsThatTheDeviceLacksAreRefusedAndTheConnectionLives) {
  const auto able = pair_->client.endpoint->capabilities();
  auto flush = read(local_->segment(0, 8), remote_->remote(), 0, 1);
  flush.opcode = Opcode::Flush;
  flush.segment_count = 0;
  flush.flush_length = 8;
  if (!able.native_flush) {
    EXPECT_FALSE(pair_->client.endpoint->post({&flush, 1}).ok());
  }
  auto atomic = flush;
  atomic.opcode = Opcode::AtomicWrite;
  if (!able.atomic_write) {
    EXPECT_FALSE(pair_->client.endpoint->post({&atomic, 1}).ok());
  }
  auto sflush = flush;
  sflush.opcode = Opcode::SendFlush;
  if (!able.send_flush) {
    const auto refused = pair_->client.endpoint->post({&sflush, 1});
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find("SFLUSH"), std::string::npos);
  }
  auto pwrite = write(local_->segment(0, 64), remote_->remote(), 0, 1);
  pwrite.opcode = Opcode::WritePersist;
  if (!able.ordered_persist) {
    const auto refused = pair_->client.endpoint->post({&pwrite, 1});
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find("PWRITE"), std::string::npos);
  }
  EXPECT_TRUE(pair_->client.endpoint->connected());
  auto* written = pair_->run(write(local_->segment(0, 64), remote_->remote(), 0, 9));
  ASSERT_NE(written, nullptr);
  EXPECT_FALSE(written->error.has_value());
}

TEST_P(Verbs, NativeFlushOfARangeAndOfTheWholeRegionCompletes) {
  if (!pair_->client.endpoint->capabilities().native_flush) GTEST_SKIP() << "no native FLUSH";
  local_->fill(5, 0, 4096);
  auto flush = read(local_->segment(0, 8), remote_->remote(), 0, 1);
  flush.opcode = Opcode::Flush;
  flush.segment_count = 0;
  for (const bool whole : {false, true}) {
    for (const std::size_t size : {std::size_t{1}, std::size_t{64}, std::size_t{4096}}) {
      remote_->clear();
      auto ahead = write(local_->segment(0, size), remote_->remote(), 128, 1);
      ahead.signalled = false;
      ASSERT_TRUE(pair_->post(ahead));
      flush.whole_region = whole;
      flush.remote_offset = 128;
      flush.flush_length = size;
      flush.context = size + (whole ? 1 : 0);
      auto* flushed = pair_->run(flush);
      ASSERT_NE(flushed, nullptr) << size;
      ASSERT_FALSE(flushed->error.has_value()) << size;
      // Expect: what was written before the flush is visible.
      EXPECT_TRUE(std::equal(local_->at(0), local_->at(0) + size, remote_->at(128)));
      pair_->client.completions.clear();
    }
  }
}

TEST_P(Verbs, APwriteIsThereWhenItHasCompletedAtEverySize) {
  if (!pair_->client.endpoint->capabilities().ordered_persist) GTEST_SKIP() << "no PWRITE";
  std::uint64_t context = 1;
  for (std::size_t size = 1; size <= kLoopBytes; size = size * 8 + 5) {
    local_->fill(context, 0, size);
    auto pwrite = write(local_->segment(0, size), remote_->remote(), 64, context);
    pwrite.opcode = Opcode::WritePersist;
    auto* written = pair_->run(pwrite);
    ASSERT_NE(written, nullptr) << size;
    ASSERT_FALSE(written->error.has_value()) << size;
    EXPECT_TRUE(remote_->holds(context, 64, size)) << size;
    ++context;
  }
}

TEST_P(Verbs, AnSflushCompletesBehindTheSendBeforeItAndWhatWasWritten) {
  if (!pair_->client.endpoint->capabilities().send_flush) GTEST_SKIP() << "no SFLUSH";
  auto sflush = read(local_->segment(0, 8), remote_->remote(), 8192, 1);
  sflush.opcode = Opcode::SendFlush;
  sflush.segment_count = 0;
  for (const std::size_t size : {std::size_t{100}, std::size_t{200}, std::size_t{4096}}) {
    local_->fill(size, 0, size);
    ASSERT_TRUE(pair_->server.endpoint->post_receive(remote_->segment(0, 4096), size).ok());
    auto ahead = write(local_->segment(0, size), remote_->remote(), 8192, size);
    auto message = send(local_->segment(0, size), size);
    ahead.signalled = message.signalled = false;
    sflush.flush_length = size == 200 ? 0 : size;
    sflush.context = size;
    auto* flushed = pair_->run(std::vector{ahead, message, sflush});
    ASSERT_NE(flushed, nullptr) << size;
    ASSERT_FALSE(flushed->error.has_value()) << size;
    EXPECT_TRUE(remote_->holds(size, 0, size)) << size;
    EXPECT_TRUE(remote_->holds(size, 8192, size)) << size;
  }
}

TEST_P(Verbs, OneBatchOfWriteFlushAtomicWriteAndReadDoesAllFour) {
  const auto able = pair_->client.endpoint->capabilities();
  for (const std::size_t size : {std::size_t{8}, std::size_t{64}, std::size_t{4096}}) {
    local_->fill(size, 0, size);
    remote_->clear();
    std::vector<fabric::WorkRequest> batch{
        write(local_->segment(0, size), remote_->remote(), 128, 1)};
    auto other = read(local_->segment(8192, size), remote_->remote(), 128, 1);
    other.segment_count = 0;
    other.signalled = batch[0].signalled = false;
    other.flush_length = size;
    other.opcode = Opcode::Flush;
    if (able.native_flush) batch.push_back(other);
    other.opcode = Opcode::AtomicWrite;
    other.remote_offset = 64;
    other.operand = size + 1;
    if (able.atomic_write) batch.push_back(other);
    batch.push_back(read(local_->segment(8192, size), remote_->remote(), 128, size));
    auto* got = pair_->run(batch);
    ASSERT_NE(got, nullptr) << size;
    ASSERT_FALSE(got->error.has_value()) << size;
    EXPECT_EQ(std::memcmp(remote_->at(128), local_->at(0), size), 0) << size;
    EXPECT_TRUE(local_->holds(size, 8192, size)) << size;
    const std::uint64_t expected = able.atomic_write ? other.operand : 0;
    EXPECT_EQ(std::memcmp(remote_->at(64), &expected, 8), 0) << size;
    pair_->client.completions.clear();
  }
}

TEST_P(Verbs, AtomicWriteReplacesEightBytes) {
  if (!pair_->client.endpoint->capabilities().atomic_write) GTEST_SKIP() << "no ATOMIC WRITE";
  remote_->clear();
  auto atomic = read(local_->segment(0, 8), remote_->remote(), 64, 1);
  atomic.opcode = Opcode::AtomicWrite;
  atomic.segment_count = 0;
  for (std::uint64_t value : {std::uint64_t{1}, 0x1122334455667788u, ~std::uint64_t{0}}) {
    atomic.operand = value;
    atomic.context = value;
    auto* written = pair_->run(atomic);
    ASSERT_NE(written, nullptr);
    ASSERT_FALSE(written->error.has_value());
    EXPECT_EQ(std::memcmp(remote_->at(64), &value, 8), 0);
  }
  EXPECT_EQ(std::to_integer<int>(*remote_->at(63)), 0);
  EXPECT_EQ(std::to_integer<int>(*remote_->at(72)), 0);
  // Unaligned: refused here, and the connection lives.
  atomic.remote_offset = 68;
  EXPECT_FALSE(pair_->client.endpoint->post({&atomic, 1}).ok());
  EXPECT_TRUE(pair_->client.endpoint->connected());
}

TEST_P(Verbs, CompareSwapAndFetchAddAnswerWithTheOldValue) {
  auto word = read(local_->segment(64, 8), remote_->remote(), 4096, 1);
  word.opcode = Opcode::FetchAdd;
  remote_->clear();
  std::uint64_t expected = 0;
  for (std::uint64_t i = 1; i <= 20; ++i) {
    const bool swaps = i % 3 == 0;
    const bool fits = i % 2 == 0;  // a swap that compares with the wrong value changes nothing
    word.opcode = swaps ? Opcode::CompareSwap : Opcode::FetchAdd;
    word.operand = swaps ? (fits ? expected : expected + 1) : i * 7;
    word.swap = i * 1000;
    word.context = i;
    const auto taken = pair_->client.endpoint->post({&word, 1});
    if (!taken.ok()) GTEST_SKIP() << taken.error().message;
    ASSERT_TRUE(pair_->pump([&] { return pair_->client.find(word.opcode, i) != nullptr; }));
    ASSERT_FALSE(pair_->client.find(word.opcode, i)->error.has_value());
    std::uint64_t old = 0;
    std::memcpy(&old, local_->at(64), 8);
    ASSERT_EQ(old, expected) << i;
    if (!swaps) expected += word.operand;
    if (swaps && fits) expected = word.swap;
  }
  EXPECT_EQ(std::memcmp(remote_->at(4096), &expected, 8), 0);
}

TEST_P(Verbs, BothSidesMaySendAtOnce) {
  constexpr std::uint64_t kMessages = 500;
  Buffer back(*pair_->devices.client, 4096, Access::Local);
  Buffer out(*pair_->devices.server, 4096, Access::Local);
  for (std::uint64_t i = 0; i < 64; ++i) {
    ASSERT_TRUE(pair_->server.endpoint->post_receive(remote_->segment(0, 64), i).ok());
    ASSERT_TRUE(pair_->client.endpoint->post_receive(back.segment(0, 64), i).ok());
  }
  std::uint64_t from_client = 0;
  std::uint64_t from_server = 0;
  std::size_t server_reposted = 0;
  std::size_t client_reposted = 0;
  const bool reached = pair_->pump([&] {
    const auto ahead = send(local_->segment(0, 48), from_client);
    const auto behind = send(out.segment(0, 48), from_server);
    if (from_client < kMessages) {
      if (auto taken = pair_->client.endpoint->post({&ahead, 1})) from_client += *taken;
    }
    if (from_server < kMessages) {
      if (auto taken = pair_->server.endpoint->post({&behind, 1})) from_server += *taken;
    }
    for (; server_reposted < pair_->server.count(Opcode::Receive); ++server_reposted) {
      EXPECT_TRUE(pair_->server.endpoint->post_receive(remote_->segment(0, 64), 0).ok());
    }
    for (; client_reposted < pair_->client.count(Opcode::Receive); ++client_reposted) {
      EXPECT_TRUE(pair_->client.endpoint->post_receive(back.segment(0, 64), 0).ok());
    }
    return server_reposted == kMessages && client_reposted == kMessages;
  });
  EXPECT_TRUE(reached);
  EXPECT_EQ(pair_->server.errors() + pair_->client.errors(), 0u);
}

PERDURE_CONFORMANCE_SUITE(Verbs);

}  // namespace
}  // namespace perdure::conformance
