// The responder believes nothing of what the peer wrote, and stops the moment memory is revoked.
#include "fabric/shm/target.h"

#include "core/random.h"
#include "fabric/shm/initiator.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace perdure::fabric::shm {
namespace {

/// A responder, and the peer's side of its streams in the test's hand.
class TargetTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto rings = create_rings();
    ASSERT_TRUE(rings.ok());
    memory_ = std::move(rings->mapping);
    keys_ = std::make_shared<KeyTable>();
    key_ = keys_->add(region_, true);
    own_ = &memory_->published[1];
    peer_ = &memory_->published[0];
    writer_.emplace(memory_->requests[0], peer_->requests_written, own_->requests_read);
    target_.emplace(4, keys_, memory_->requests[0], memory_->answers[1], *own_, *peer_);
  }

  RequestFrame frame(Opcode opcode, std::uint64_t length, std::uint64_t offset = 0) const {
    RequestFrame made;
    made.opcode = opcode;
    made.length = length;
    made.key = key_;
    made.offset = offset;
    return made;
  }
  void put(const RequestFrame& made) {
    writer_->put(bytes_of(made));
    writer_->publish();
  }
  void put_payload(std::size_t length, std::byte value) {
    writer_->put(std::vector<std::byte>(length, value));
    writer_->publish();
  }
  bool region_is(std::size_t at, std::size_t length, std::byte value) const {
    return std::all_of(region_.begin() + std::ptrdiff_t(at),
                       region_.begin() + std::ptrdiff_t(at + length),
                       [value](std::byte byte) { return byte == value; });
  }

  std::vector<std::byte> region_ = std::vector<std::byte>(64 * 1024);
  Mapping memory_;
  std::shared_ptr<KeyTable> keys_;
  std::uint64_t key_ = 0;
  Published* own_ = nullptr;
  Published* peer_ = nullptr;
  std::optional<StreamWriter> writer_;
  std::optional<Target> target_;
};

TEST_F(TargetTest, RevokedMemoryGetsNoByteMoreOfAWriteInFlight) {
  put(frame(Opcode::Write, 40'000));
  put_payload(10'000, std::byte{1});
  EXPECT_TRUE(target_->advance());
  EXPECT_TRUE(region_is(0, 10'000, std::byte{1}));
  keys_->remove(key_);
  put_payload(30'000, std::byte{2});
  target_->advance();
  EXPECT_EQ(target_->state(), Target::State::Refused);
  EXPECT_TRUE(region_is(10'000, 30'000, std::byte{0}));
  EXPECT_EQ(own_->refused, 1u);
  EXPECT_EQ(own_->executed, 0u);
}

// Requests that are executed one by one. Expect: the stream is used up to where it begins again.
TEST_F(TargetTest, ShortRequestsStayNearTheStartOfTheStream) {
  Initiator initiator(4, memory_->requests[0], memory_->answers[1], *peer_, *own_);
  std::vector<std::byte> from(1000, std::byte{1});
  WorkRequest write;
  write.opcode = Opcode::Write;
  write.segments[0] = {from.data(), from.size(), nullptr};
  write.segment_count = 1;
  write.remote.key = key_;
  constexpr std::uint64_t kWrites = 5000;
  for (std::uint64_t each = 0; each < kWrites; ++each) {
    write.context = each;
    write.remote_offset = each % 64 * 1000;
    initiator.post(write);
    target_->advance();
    target_->publish();
    bool broken = false;
    initiator.advance(broken);
    Completion completion;
    ASSERT_TRUE(!broken && initiator.report(completion, false));
    ASSERT_EQ(completion.context, each);
    ASSERT_FALSE(completion.error.has_value());
  }
  EXPECT_EQ(own_->executed, kWrites);
  const auto& stream = memory_->requests[0];
  const auto beyond = stream.begin() + kRewindFrom + 2 * 1024;
  EXPECT_TRUE(std::all_of(beyond, stream.end(), [](std::byte b) { return b == std::byte{0}; }));
}

// A peer whose stream ends within what is left out.
TEST_F(TargetTest, ARewindBeyondWhatWasWrittenBreaksTheConnection) {
  RequestFrame marker;
  marker.rewind = 1;
  put(marker);
  target_->advance();
  EXPECT_EQ(target_->state(), Target::State::Broken);
  EXPECT_EQ(own_->executed, 0u);
}

TEST_F(TargetTest, RefusesRangesThatWrapAround) {
  RequestFrame wraps = frame(Opcode::Write, 64, ~std::uint64_t{0} - 16);
  put(wraps);
  put_payload(64, std::byte{1});
  target_->advance();
  EXPECT_EQ(target_->state(), Target::State::Refused);
  EXPECT_TRUE(region_is(0, region_.size(), std::byte{0}));
}

TEST_F(TargetTest, LengthThatIsChangedAfterTheCheckIsNotBelieved) {
  // The frame is copied before it is checked: what the peer writes later is payload or nothing.
  put(frame(Opcode::Write, 100));
  target_->advance();
  RequestFrame* const in_place = reinterpret_cast<RequestFrame*>(memory_->requests[0].data());
  in_place->length = region_.size() * 2;
  put_payload(region_.size(), std::byte{1});
  target_->advance();
  EXPECT_TRUE(region_is(0, 100, std::byte{1}));
  EXPECT_TRUE(region_is(100, region_.size() - 100, std::byte{0}));
}

TEST_F(TargetTest, MisalignedAtomicIsRefused) {
  put(frame(Opcode::FetchAdd, 8, 4));
  target_->advance();
  EXPECT_EQ(target_->state(), Target::State::Refused);
}

TEST_F(TargetTest, EveryAtomicAnswersAndActs) {
  StreamReader answers(memory_->answers[1], own_->answers_written, peer_->answers_read);
  const auto answer = [&] {
    std::uint64_t old_value = 0;
    EXPECT_GE(answers.refresh(), 8u);
    answers.take(std::as_writable_bytes(std::span(&old_value, 1)));
    answers.align(kFrameAlignment);
    answers.release();
    return old_value;
  };
  RequestFrame set = frame(Opcode::AtomicWrite, 8, 16);
  set.operand = 40;
  put(set);
  RequestFrame add = frame(Opcode::FetchAdd, 8, 16);
  add.operand = 2;
  put(add);
  RequestFrame swap = frame(Opcode::CompareSwap, 8, 16);
  swap.operand = 42;
  swap.swap = 7;
  put(swap);
  swap.swap = 9;  // expects 42 again, and finds 7
  put(swap);
  target_->advance();
  EXPECT_EQ(own_->executed, 4u);
  EXPECT_EQ(answer(), 40u);
  EXPECT_EQ(answer(), 42u);
  EXPECT_EQ(answer(), 7u);
  EXPECT_EQ(load<std::uint64_t>(region_.data() + 16), 7u);
}

TEST_F(TargetTest, RandomBytesNeverTouchMemoryThatHasNoKeyInThem) {
  Random random(11);
  for (int round = 0; round < 300; ++round) {
    SetUp();
    keys_->remove(key_);
    std::vector<std::byte> noise(16 * 1024);
    for (auto& byte : noise) byte = static_cast<std::byte>(random.next());
    // Half of the rounds begin with a valid opcode, to get beyond the first check.
    if (round % 2 == 0) {
      noise[0] = static_cast<std::byte>(random.below(9));
      for (std::size_t i = 8; i < 16; ++i) noise[i] = std::byte{0};
      noise[8] = static_cast<std::byte>(random.next());
    }
    std::vector<std::byte> inbox(512);
    ASSERT_TRUE(target_->post_receive({inbox.data(), 256, nullptr}, 1));
    writer_->put(noise);
    writer_->publish();
    for (int i = 0; i < 50; ++i) target_->advance();
    EXPECT_TRUE(region_is(0, region_.size(), std::byte{0}));
    EXPECT_TRUE(std::all_of(inbox.begin() + 256, inbox.end(),
                            [](std::byte byte) { return byte == std::byte{0}; }));
  }
}

}  // namespace
}  // namespace perdure::fabric::shm
