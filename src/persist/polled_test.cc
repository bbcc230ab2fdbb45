// Messages that are written into the responder's mailbox: what it takes for one, and when.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "core/bytes.h"
#include "fabric/emu/world.h"
#include "persist/requester.h"
#include "persist/responder.h"
#include "plan/steps.h"

namespace perdure::persist {
namespace {

constexpr ReceiveQueue kPolledQueue{32, 1024};
constexpr std::uint64_t kPoolBytes = 16 * 1024;

Method polled_update() {
  Method method;
  method.name = "polled";
  method.primary = Primary::Send;
  method.requester = {plan::write_polled({0}), plan::wait_ack()};
  method.responder = {{plan::copy_item(0), plan::flush_item(0), plan::ack()}};
  return method;
}

Method sent_update() {
  Method method = polled_update();
  method.name = "sent";
  method.requester[0] = plan::send({0});
  return method;
}

class Mailbox : public testing::Test {
 protected:
  void SetUp() override {
    profile_.domain = PersistenceDomain::Dmp;
    profile_.transport = Transport::InfiniBand;
    server_ = &world_.add_machine("server", profile_);
    client_ = &world_.add_machine("client", profile_);
    region_ = &server_->add_region(kPoolBytes);
    std::tie(near_, far_) = world_.connect(*client_, *server_);
    pool_ = *server_->register_memory(region_->bytes(), fabric::Access::RemoteReadWrite);
    source_memory_ = *client_->register_memory(source_, fabric::Access::Local);
    Responder::Options options;
    options.exported = {0, kPoolBytes};
    options.queue = kPolledQueue;
    options.session = 7;
    options.polls = true;
    responder_ = *Responder::open(*far_, *server_, *region_, options);
    options_.remote = {pool_->key(), pool_->base(), kPoolBytes};
    options_.queue = kPolledQueue;
    options_.session = 7;
    options_.mailbox = responder_->mailbox();
  }

  Result<std::unique_ptr<Requester>> open(std::vector<Method> methods) {
    return Requester::open(*near_, *client_, profile_, std::move(methods), options_);
  }

  /// Writes these bytes into the slot of a message.
  void write(std::uint64_t sequence, std::span<const std::byte> bytes) {
    std::copy(bytes.begin(), bytes.end(), source_.begin());
    fabric::WorkRequest work;
    work.opcode = fabric::Opcode::Write;
    work.segments[0] = {source_.data(), bytes.size(), source_memory_.get()};
    work.segment_count = 1;
    work.remote = responder_->mailbox();
    work.remote_offset = mailbox_slot(kPolledQueue, sequence);
    ASSERT_TRUE(near_->post({&work, 1}).ok());
    world_.settle();
  }

  /// A message that copies 64 bytes to the start of the pool.
  static std::vector<std::byte> message(std::uint64_t sequence, std::uint8_t flags) {
    std::vector<std::byte> bytes(kMessageHeaderBytes + kMessageEntryBytes + 64, std::byte{5});
    put_entry(bytes.data(), 0, {0, 64, kCopy | kFlush});
    MessageHeader header{1, flags, sequence, 64, 7};
    const auto payload = std::span<const std::byte>(bytes).last(64);
    encode_message(header, {&payload, 1}, bytes.data());
    return bytes;
  }

  Random random_{3};
  fabric::emu::World world_{random_};
  ServerProfile profile_;
  fabric::emu::Machine* server_ = nullptr;
  fabric::emu::Machine* client_ = nullptr;
  pmem::CrashableRegion* region_ = nullptr;
  std::unique_ptr<fabric::Endpoint> near_;
  std::unique_ptr<fabric::Endpoint> far_;
  std::unique_ptr<fabric::Memory> pool_;
  std::vector<std::byte> source_ = std::vector<std::byte>(4096);
  std::unique_ptr<fabric::Memory> source_memory_;
  std::unique_ptr<Responder> responder_;
  Requester::Options options_;
};

TEST_F(Mailbox, AMessageIsHandledOnceWhenItIsWholeAndItsTurn) {
  const auto whole = message(1, kPayloadCrc);
  auto torn = whole;
  torn.back() = std::byte{6};
  // Receive: all of it but the last byte. Expect: it is no message yet, and no error.
  write(1, torn);
  EXPECT_EQ(responder_->pump().value(), 0u);
  // Receive: a later one. Expect: it is not its turn.
  write(2, message(2, kPayloadCrc));
  EXPECT_EQ(responder_->pump().value(), 0u);
  write(1, whole);
  EXPECT_EQ(responder_->pump().value(), 2u);
  EXPECT_EQ(responder_->pump().value(), 0u);
  EXPECT_EQ(responder_->counters().messages, 2u);
  EXPECT_EQ(region_->bytes()[63], std::byte{5});
}

TEST_F(Mailbox, AMessageWhoseChecksumDoesNotCoverItsPayloadIsNone) {
  write(1, message(1, 0));
  EXPECT_EQ(responder_->pump().value(), 0u);
  EXPECT_EQ(responder_->counters().messages, 0u);
}

TEST_F(Mailbox, AMessageThatNamesMemoryOutsideThePoolEndsTheSession) {
  auto bytes = message(1, kPayloadCrc);
  put_entry(bytes.data(), 0, {kPoolBytes - 63, 64, kCopy});
  const MessageHeader header{1, kPayloadCrc, 1, 64, 7};
  const auto payload = std::span<const std::byte>(bytes).last(64);
  encode_message(header, {&payload, 1}, bytes.data());
  write(1, bytes);
  EXPECT_EQ(responder_->pump().code(), ErrorCode::OutOfRange);
  EXPECT_EQ(responder_->counters().refused, 1u);
}

TEST_F(Mailbox, SentAndPolledMessagesAreHandledInTheOrderOfPosting) {
  auto requester = open({polled_update(), sent_update()});
  ASSERT_TRUE(requester.ok()) << requester.error().message;
  constexpr std::uint64_t kUpdates = 300;
  std::uint64_t begun = 0;
  Random choice(5);
  for (int rounds = 0; rounds < 100'000 && (*requester)->resolved() < kUpdates; ++rounds) {
    if (begun < kUpdates) {
      // All write the same 8 bytes: the last one must be the one that stays.
      const std::uint64_t slot = begun % 128 * 8;
      store(source_.data() + slot, begun + 1);
      const UpdateItem item{64, {source_.data() + slot, 8, source_memory_.get()}};
      if ((*requester)->begin(choice.below(2), {&item, 1}).ok()) ++begun;
    }
    ASSERT_TRUE((*requester)->poll().ok());
    ASSERT_TRUE(responder_->pump().ok());
  }
  EXPECT_EQ((*requester)->resolved(), kUpdates);
  EXPECT_EQ(load<std::uint64_t>(region_->bytes().data() + 64), kUpdates);
  EXPECT_TRUE(region_->is_durable({64, 8}));
  requester->reset();
}

TEST_F(Mailbox, IsRefusedByNameWhereNobodyPolls) {
  options_.mailbox = {};
  const auto refused = open({polled_update()});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::Unsupported);
  EXPECT_NE(refused.error().message.find("polls no mailbox"), std::string::npos);
}

TEST_F(Mailbox, AMarkWithoutAChecksumIsRefusedByName) {
  Method by_mark = polled_update();
  by_mark.requester[0].checked = false;
  const auto refused = open({by_mark});
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("by its mark alone"), std::string::npos);
}

TEST_F(Mailbox, OneThatIsSmallerThanTheQueueIsRefused) {
  options_.mailbox.length -= 1;
  EXPECT_EQ(open({polled_update()}).code(), ErrorCode::InvalidArgument);
}

}  // namespace
}  // namespace perdure::persist
