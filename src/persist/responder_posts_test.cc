// What a responder posts itself: READs of what the requester has, acknowledgements that it writes.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "core/bytes.h"
#include "fabric/emu/world.h"
#include "persist/requester.h"
#include "persist/responder.h"
#include "plan/steps.h"

namespace perdure::persist {
namespace {

constexpr ReceiveQueue kPostsQueue{32, 1024};
constexpr std::uint64_t kPostsPoolBytes = 16 * 1024;
constexpr std::size_t kFetch = 0;
constexpr std::size_t kCopyIt = 1;

Method fetching() {
  Method method;
  method.name = "fetching";
  method.primary = Primary::Send;
  method.requester = {plan::send_readable({0}), plan::wait_ack()};
  method.responder = {{plan::read_item(0), plan::await_item(0), plan::flush_item(0), plan::ack()}};
  return method;
}

Method copying(ResponderAction answer = plan::ack()) {
  Method method;
  method.name = "copying";
  method.primary = Primary::Send;
  method.requester = {plan::send({0}), plan::wait_ack()};
  method.responder = {{plan::copy_item(0), plan::flush_item(0), answer}};
  return method;
}

class ResponderPosts : public testing::Test {
 protected:
  ResponderPosts() {
    profile_.domain = PersistenceDomain::Dmp;
    profile_.transport = Transport::InfiniBand;
    profile_.write_order = WriteOrder::Ordered;
    server_ = &world_.add_machine("server", profile_);
    client_ = &world_.add_machine("client", profile_);
    region_ = &server_->add_region(kPostsPoolBytes);
    std::tie(near_, far_) = world_.connect(*client_, *server_);
    pool_ = *server_->register_memory(region_->bytes(), fabric::Access::RemoteReadWrite);
    readable_ = *client_->register_memory(source_, fabric::Access::RemoteRead);
    acks_memory_ = *client_->register_memory(acks_, fabric::Access::RemoteReadWrite);
    options_.remote = {pool_->key(), pool_->base(), kPostsPoolBytes};
    options_.queue = kPostsQueue;
    options_.session = 7;
    options_.reads = true;
    at_responder_.exported = {0, kPostsPoolBytes};
    at_responder_.queue = kPostsQueue;
    at_responder_.session = 7;
    at_responder_.reads = true;
  }

  void answer_by_writes() {
    options_.acks = {acks_.data(), acks_.size(), acks_memory_.get()};
    at_responder_.acks = {acks_memory_->key(), acks_memory_->base(), acks_.size()};
  }

  Result<void> open(std::vector<Method> methods) {
    responder_ = *Responder::open(*far_, *server_, *region_, at_responder_);
    auto requester = Requester::open(*near_, *client_, profile_, std::move(methods), options_);
    if (!requester.ok()) return requester.error();
    requester_ = std::move(*requester);
    return {};
  }

  /// `length` bytes of the requester, all with this value, to the start of the pool.
  void begin(std::size_t method, std::byte value, std::size_t length,
             const fabric::Memory& memory) {
    std::byte* const data = source_.data() + staged_;
    std::fill_n(data, length, value);
    staged_ += length;
    const UpdateItem item{0, {data, length, &memory}};
    ASSERT_TRUE(requester_->begin(method, {&item, 1}).ok());
  }

  /// Both sides at work, so many times.
  void work(int times = 200) {
    for (int turn = 0; turn < times; ++turn) {
      (void)world_.step();
      const auto pumped = responder_->pump();
      if (!pumped.ok() && !ended_) ended_ = pumped.error();
      (void)requester_->poll();
    }
  }

  bool pool_holds(std::byte value, std::size_t length) const {
    const auto bytes = region_->bytes().first(length);
    return std::ranges::all_of(bytes, [&](std::byte each) { return each == value; });
  }

  Random random_{5};
  fabric::emu::World world_{random_};
  ServerProfile profile_;
  fabric::emu::Machine* server_ = nullptr;
  fabric::emu::Machine* client_ = nullptr;
  pmem::CrashableRegion* region_ = nullptr;
  std::unique_ptr<fabric::Endpoint> near_;
  std::unique_ptr<fabric::Endpoint> far_;
  std::unique_ptr<fabric::Memory> pool_;
  std::vector<std::byte> source_ = std::vector<std::byte>(32 * 1024);
  std::size_t staged_ = 0;
  std::unique_ptr<fabric::Memory> readable_;
  std::array<std::byte, kAckBytes> acks_{};
  std::unique_ptr<fabric::Memory> acks_memory_;
  Requester::Options options_;
  Responder::Options at_responder_;
  std::unique_ptr<Responder> responder_;
  std::unique_ptr<Requester> requester_;
  std::optional<Error> ended_;
};

// Longer than any message: only its place goes into one.
TEST_F(ResponderPosts, WhatItReadsIsDurableWhenItAnswers) {
  constexpr std::size_t kLength = 8000;
  static_assert(kLength > kPostsQueue.message_bytes_max);
  ASSERT_TRUE(open({fetching()}).ok());
  begin(kFetch, std::byte{5}, kLength, *readable_);
  work();
  EXPECT_EQ(requester_->resolved(), 1u);
  EXPECT_TRUE(pool_holds(std::byte{5}, kLength));
  EXPECT_TRUE(region_->is_durable({0, kLength}));
  EXPECT_EQ(responder_->counters().copied_bytes, 0u);
}

// Receive: a message that asks for a READ, and behind it one that brings other bytes for the same
// place. Expect: the second waits for the first, whenever what that asked for comes.
TEST_F(ResponderPosts, WhatComesBehindAReadWaitsForIt) {
  ASSERT_TRUE(open({fetching(), copying()}).ok());
  for (int round = 1; round <= 20; ++round) {
    begin(kFetch, std::byte{1}, 100, *readable_);
    begin(kCopyIt, std::byte{2}, 100, *readable_);
    work();
    ASSERT_EQ(requester_->resolved(), 2u * static_cast<unsigned>(round));
    ASSERT_TRUE(pool_holds(std::byte{2}, 100));
  }
  EXPECT_EQ(responder_->counters().messages, 40u);
}

TEST_F(ResponderPosts, MoreMessagesThanBuffersAreAllReadAndAnswered) {
  ASSERT_TRUE(open({fetching()}).ok());
  constexpr int kUpdates = 100;
  int begun = 0;
  for (int turn = 0; turn < 200 && requester_->resolved() < kUpdates; ++turn) {
    for (; begun < kUpdates && requester_->begun() - requester_->resolved() < 60; ++begun) {
      begin(kFetch, static_cast<std::byte>(begun), 64, *readable_);
    }
    work(50);
  }
  EXPECT_EQ(requester_->resolved(), static_cast<unsigned>(kUpdates));
  EXPECT_TRUE(pool_holds(static_cast<std::byte>(kUpdates - 1), 64));
}

// Expect: the requester's RNIC refuses the READ, the connection ends, nothing was acknowledged.
TEST_F(ResponderPosts, MemoryThatPeersMayNotReadEndsTheSession) {
  ASSERT_TRUE(open({fetching()}).ok());
  const auto local = *client_->register_memory(source_, fabric::Access::Local);
  begin(kFetch, std::byte{5}, 100, *local);
  work();
  EXPECT_EQ(requester_->resolved(), 0u);
  EXPECT_FALSE(requester_->poll().ok());
  ASSERT_TRUE(ended_.has_value());
  EXPECT_TRUE(pool_holds(std::byte{0}, 100));
}

TEST_F(ResponderPosts, AResponderThatReadsNothingIsRefusedByName) {
  options_.reads = false;
  const auto opened = open({fetching()});
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.code(), ErrorCode::Unsupported);
  EXPECT_NE(opened.error().message.find("READs nothing"), std::string::npos);
}

// Expect: a requester that believes otherwise is refused, and nothing is read.
TEST_F(ResponderPosts, AResponderThatReadsNothingRefusesTheMessage) {
  at_responder_.reads = false;
  ASSERT_TRUE(open({fetching()}).ok());
  begin(kFetch, std::byte{5}, 100, *readable_);
  work();
  EXPECT_EQ(requester_->resolved(), 0u);
  ASSERT_TRUE(ended_.has_value());
  EXPECT_EQ(ended_->code, ErrorCode::Unsupported);
  EXPECT_EQ(responder_->counters().refused, 1u);
}

TEST_F(ResponderPosts, NonsenseAboutReadsIsRefused) {
  std::vector<std::byte> message(kMessageHeaderBytes + kMessageEntryBytes + kReadSourceBytes);
  const auto encoded = [&](std::uint32_t actions, std::uint8_t flags, std::uint32_t length) {
    put_entry(message.data(), 0, {0, length, actions});
    const MessageHeader header{1, flags, 1, kReadSourceBytes, 7};
    const auto payload = std::span<const std::byte>(message).last(kReadSourceBytes);
    encode_message(header, {&payload, 1}, message.data());
    return decode_message(message).ok();
  };
  EXPECT_TRUE(encoded(kRead | kFlush, kReads | kPayloadCrc, 100));
  EXPECT_FALSE(encoded(kRead, kPayloadCrc, 100));
  EXPECT_FALSE(encoded(kRead, kReads, 100));
  EXPECT_FALSE(encoded(kRead, kReads | kPayloadCrc | kReplayable, 100));
  EXPECT_FALSE(encoded(kRead | kCopy, kReads | kPayloadCrc, kReadSourceBytes));
  EXPECT_TRUE(encoded(kRead | kAfterReads, kReads | kPayloadCrc, 100));
  EXPECT_FALSE(encoded(kAfterReads, kReads | kPayloadCrc, 100));
  EXPECT_FALSE(encoded(kCopy, kReads | kPayloadCrc, kReadSourceBytes));
}

TEST_F(ResponderPosts, AWrittenAcknowledgementIsFoundWithoutACompletion) {
  answer_by_writes();
  ASSERT_TRUE(open({copying(plan::written_ack())}).ok());
  for (unsigned round = 1; round <= 100; ++round) {
    begin(0, static_cast<std::byte>(round), 64, *readable_);
    work(50);
    ASSERT_EQ(requester_->resolved(), round);
  }
  EXPECT_TRUE(region_->is_durable({0, 64}));
}

// Receive: half of an acknowledgement. Expect: nothing yet, and no error.
TEST_F(ResponderPosts, AnAcknowledgementThatIsNotAllThereIsNone) {
  answer_by_writes();
  ASSERT_TRUE(open({copying(plan::written_ack())}).ok());
  begin(0, std::byte{1}, 64, *readable_);
  std::array<std::byte, kAckBytes> ack{};
  encode_ack({0, 1, 7, 0}, ack.data());
  std::copy(ack.begin() + 4, ack.end(), acks_.begin() + 4);
  EXPECT_TRUE(requester_->poll().ok());
  EXPECT_EQ(requester_->resolved(), 0u);
  std::copy(ack.begin(), ack.end(), acks_.begin());
  EXPECT_TRUE(requester_->poll().ok());
  EXPECT_EQ(requester_->resolved(), 1u);
}

TEST_F(ResponderPosts, ARefusalIsWrittenToo) {
  answer_by_writes();
  at_responder_.may_write = false;
  ASSERT_TRUE(open({copying(plan::written_ack())}).ok());
  begin(0, std::byte{1}, 64, *readable_);
  work();
  const auto polled = requester_->poll();
  ASSERT_FALSE(polled.ok());
  EXPECT_EQ(polled.code(), ErrorCode::PermissionDenied);
}

TEST_F(ResponderPosts, AcknowledgementsAreAllWrittenOrAllSent) {
  const auto refused = [&](const Method& method) {
    const auto opened = open({method});
    EXPECT_FALSE(opened.ok());
    return opened.ok() ? std::string() : opened.error().message;
  };
  EXPECT_NE(refused(copying(plan::written_ack())).find("writes no acknowledgements"),
            std::string::npos);
  answer_by_writes();
  EXPECT_NE(refused(copying()).find("sends none"), std::string::npos);
  profile_.write_order = WriteOrder::Unknown;
  EXPECT_NE(refused(copying(plan::written_ack())).find("keep no order"), std::string::npos);
}

}  // namespace
}  // namespace perdure::persist
