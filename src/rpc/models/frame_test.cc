#include "rpc/models/frame.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>

namespace perdure::rpc::models {
namespace {

constexpr std::size_t kRoom = 256;

struct alignas(64) Slot {
  std::array<std::byte, kRoom> bytes{};
};

/// A slot with the frame of call 7, and how long it is.
std::size_t write_frame(Slot& slot, std::string_view payload) {
  std::memcpy(slot.bytes.data() + kFrameHeaderBytes, payload.data(), payload.size());
  return encode_frame(slot.bytes.data(), 7, 3, payload.size());
}

TEST(Frame, IsFoundAsItWasWritten) {
  Slot slot;
  EXPECT_EQ(write_frame(slot, "some request"), kFrameHeaderBytes + 12);
  const auto frame = find_frame(slot.bytes, 7);
  ASSERT_TRUE(frame.has_value());
  EXPECT_EQ(frame->sequence, 7u);
  EXPECT_EQ(frame->tag, 3u);
  EXPECT_EQ(frame->payload.size(), 12u);
  EXPECT_EQ(std::memcmp(frame->payload.data(), "some request", 12), 0);
}

TEST(Frame, MayBeEmptyOrFillItsSlot) {
  Slot slot;
  write_frame(slot, "");
  ASSERT_TRUE(find_frame(slot.bytes, 7).has_value());
  EXPECT_TRUE(find_frame(slot.bytes, 7)->payload.empty());
  write_frame(slot, std::string(kRoom - kFrameHeaderBytes, 'x'));
  ASSERT_TRUE(find_frame(slot.bytes, 7).has_value());
  EXPECT_EQ(find_frame(slot.bytes, 7)->payload.size(), kRoom - kFrameHeaderBytes);
}

TEST(Frame, OfAnotherCallIsNone) {
  Slot slot;
  EXPECT_FALSE(find_frame(slot.bytes, 7).has_value());
  write_frame(slot, "some request");
  EXPECT_FALSE(find_frame(slot.bytes, 6).has_value());
  EXPECT_FALSE(find_frame(slot.bytes, 8).has_value());
  clear_frame(slot.bytes);
  EXPECT_FALSE(find_frame(slot.bytes, 7).has_value());
}

TEST(Frame, WithAnyByteNotYetThereIsNone) {
  Slot whole;
  const std::size_t length = write_frame(whole, "some request");
  for (std::size_t i = 0; i < length; ++i) {
    if (i >= 20 && i < kFrameHeaderBytes) continue;  // these four are zero in any case
    Slot slot = whole;
    slot.bytes[i] ^= std::byte{0x40};
    EXPECT_FALSE(find_frame(slot.bytes, 7).has_value()) << "byte " << i;
  }
}

TEST(Frame, LongerThanItsSlotIsNone) {
  Slot slot;
  write_frame(slot, std::string(100, 'x'));
  EXPECT_TRUE(find_frame(std::span(slot.bytes).first(kFrameHeaderBytes + 100), 7).has_value());
  EXPECT_FALSE(find_frame(std::span(slot.bytes).first(kFrameHeaderBytes + 99), 7).has_value());
}

}  // namespace
}  // namespace perdure::rpc::models
