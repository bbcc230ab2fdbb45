#include "rpc/rpc_format.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "core/bytes.h"
#include "core/random.h"
#include "pmem/pool_format.h"

namespace perdure::rpc {
namespace {

constexpr std::uint64_t kRing = 4096;
constexpr std::uint64_t kMe = 0x1234;

PoolShape small_shape() {
  PoolShape shape;
  shape.clients = 3;
  shape.ring_bytes = kRing;
  shape.window_bytes = pmem::kPoolDataOffset + kRingAt + kRing;
  shape.replies = 4;
  shape.reply_bytes_max = 100;
  shape.transaction_bytes = 16384;
  shape.data_bytes = 8192;
  return shape;
}

/// A ring into which a client writes as a client does.
class Ring {
 public:
  Ring() : bytes_(kRing) {}

  std::uint64_t write(std::uint64_t sequence, std::size_t payload_bytes, std::uint64_t client = kMe,
                      std::uint32_t generation = 0) {
    const std::vector<std::byte> payload(payload_bytes, static_cast<std::byte>(sequence));
    Entry entry;
    entry.client = client;
    entry.sequence = sequence;
    entry.position = place_entry(end_, entry_bytes(payload_bytes), kRing);
    entry.operation = 7;
    entry.generation = generation;
    entry.payload_bytes = static_cast<std::uint32_t>(payload_bytes);
    encode_entry(entry, payload, bytes_.data() + entry.position % kRing);
    end_ = entry.position + entry_bytes(payload_bytes);
    return entry.position;
  }
  std::optional<FoundEntry> find(std::uint64_t sequence, std::uint64_t position,
                                 std::uint64_t client = kMe) {
    return find_entry(bytes_, {client, sequence, position, 0}, copy_);
  }

  std::vector<std::byte> bytes_;
  std::vector<std::byte> copy_;
  std::uint64_t end_ = 0;
};

TEST(RpcFormat, TheShapeIsReadAsItWasWritten) {
  const PoolShape shape = small_shape();
  ASSERT_TRUE(validate(shape).ok());
  std::vector<std::byte> data(shape.bytes());
  EXPECT_FALSE(*decode_header(data));  // a blank pool was never served
  const HeaderBytes header = encode_header(shape);
  for (const std::uint64_t at : kHeadersAt) {
    std::copy(header.begin(), header.end(), data.begin() + static_cast<std::ptrdiff_t>(at));
  }
  EXPECT_EQ(*decode_header(data), shape);
  data[20] ^= std::byte{1};  // torn: the copy counts
  EXPECT_EQ(*decode_header(data), shape);
  data[4096 + 20] ^= std::byte{1};
  EXPECT_EQ(decode_header(data).code(), ErrorCode::Corrupt);
  std::memcpy(data.data(), "PERDLOG", 7);
  EXPECT_EQ(decode_header(data).code(), ErrorCode::InvalidArgument);
}

TEST(RpcFormat, PartsOfThePoolDoNotOverlap) {
  const PoolShape shape = small_shape();
  EXPECT_EQ(shape.place_at(0), kTableAt);
  EXPECT_GE(shape.reply_at(0, 0), shape.place_at(3));
  EXPECT_GE(shape.reply_at(1, 0), shape.reply_at(0, 3) + shape.reply_stride());
  EXPECT_EQ(shape.reply_at(1, 5), shape.reply_at(1, 1));
  EXPECT_GE(shape.redo_at(0), shape.reply_at(2, 3) + shape.reply_stride());
  EXPECT_EQ(shape.redo_at(1), shape.redo_at(0) + shape.transaction_bytes);
  EXPECT_EQ(shape.window_at(0), shape.redo_at(1) + shape.transaction_bytes);
  EXPECT_EQ(shape.data_at(), shape.window_at(2) + shape.window_bytes);
  EXPECT_EQ(shape.window_at(1) % kRpcPageBytes, 0u);
}

TEST(RpcFormat, APlaceIsReadAsItWasWritten) {
  ClientPlace place;
  place.client = 9;
  place.applied = 77;
  place.position = 640;
  place.attempts = 2;
  place.set_aside = 1;
  place.generation = 4;
  place.name = "teller-1";
  EXPECT_EQ(*decode_place(encode_place(place)), place);
  PlaceBytes bytes = encode_place(place);
  store(bytes.data() + 16, std::uint64_t{641});  // no entry ends there
  EXPECT_EQ(decode_place(bytes).code(), ErrorCode::Corrupt);
}

TEST(RpcRing, EntriesAreFoundInOrderOverManyLaps) {
  Ring ring;
  Random random(3);
  std::uint64_t position = 0;
  std::uint64_t laps = 0;
  for (std::uint64_t sequence = 1; sequence <= 1000; ++sequence) {
    const std::size_t bytes = random.below(payload_bytes_max(kRing) + 1);
    const std::uint64_t at = ring.write(sequence, bytes);
    ASSERT_TRUE(may_hold_entry(ring.bytes_, {kMe, sequence, position, 0}));
    const auto found = ring.find(sequence, position);
    ASSERT_TRUE(found) << sequence;
    EXPECT_EQ(found->entry.position, at);
    EXPECT_EQ(found->entry.payload_bytes, bytes);
    EXPECT_EQ(ring.copy_.size(), kEntryHeadBytes + bytes);
    laps += found->next.position / kRing - position / kRing;
    position = found->next.position;
    EXPECT_EQ(position, ring.end_);
    EXPECT_FALSE(ring.find(sequence + 1, position));  // what earlier laps left is none
  }
  EXPECT_GT(laps, 100u);
}

// Expect: whatever one flipped bit, or one missing word, does to an entry, it is none.
TEST(RpcRing, ATornEntryIsNone) {
  Ring ring;
  ring.write(1, 40);
  ASSERT_TRUE(ring.find(1, 0));
  for (std::size_t at = 0; at < kEntryHeadBytes + 40; ++at) {
    for (unsigned bit = 0; bit < 8; ++bit) {
      ring.bytes_[at] ^= static_cast<std::byte>(1u << bit);
      EXPECT_FALSE(ring.find(1, 0)) << at << '.' << bit;
      ring.bytes_[at] ^= static_cast<std::byte>(1u << bit);
    }
  }
  const auto whole = ring.bytes_;
  for (std::size_t at = 0; at < kEntryHeadBytes + 40; at += 8) {  // the words that stay zero
    std::fill_n(ring.bytes_.begin() + static_cast<std::ptrdiff_t>(at), 8, std::byte{});
    const bool was_zero = std::equal(ring.bytes_.begin(), ring.bytes_.end(), whole.begin());
    EXPECT_EQ(ring.find(1, 0).has_value(), was_zero) << at;
    ring.bytes_ = whole;
  }
}

TEST(RpcRing, ACancelledEntryIsOneOfTheSameSize) {
  std::vector<std::byte> ring(4096);
  Entry entry;
  entry.client = 5;
  entry.sequence = 1;
  entry.operation = 9;
  entry.order_key = 3;
  entry.payload_bytes = 100;
  encode_entry(entry, std::vector<std::byte>(100, std::byte{7}), ring.data());
  cancel_entry(ring.data());
  std::vector<std::byte> copy;
  const auto found = find_entry(ring, {5, 1, 0, 0}, copy);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->entry.operation, kRpcCancelled);
  EXPECT_EQ(found->entry.payload_bytes, 100u);
  EXPECT_EQ(found->next.position, entry_bytes(100));
  EXPECT_EQ(std::count(copy.begin(), copy.end(), std::byte{7}), 0);
}

TEST(RpcRing, AnEntryOfAnotherClientSequenceOrPlaceIsNone) {
  Ring ring;
  ring.write(1, 8);
  ring.write(2, 8);
  EXPECT_FALSE(ring.find(1, 0, kMe + 1));        // of another client
  EXPECT_FALSE(ring.find(2, 0));                 // the first is not the second
  EXPECT_FALSE(ring.find(1, kRing));             // nor of this lap
  EXPECT_FALSE(ring.find(1 + (1ull << 32), 0));  // the commit word has half of the sequence
  // An entry copied to where another one is expected, by whoever may write to the ring.
  std::copy_n(ring.bytes_.begin(), 64, ring.bytes_.begin() + 128);
  EXPECT_FALSE(ring.find(1, 128));
}

// Two processes of one client. The first died with calls 2 and 3 on their way: 3 arrived, 2 did
// not. Expect: when the second one's call 2 is there, as long as the first one's, that 3 is still
// none.
TEST(RpcRing, AnEntryOfAnEarlierProcessBehindALaterOneIsNone) {
  Ring ring;
  ring.write(1, 8, kMe, 1);
  const std::uint64_t second = ring.write(2, 8, kMe, 1);
  ring.write(3, 8, kMe, 1);
  std::fill_n(ring.bytes_.begin() + static_cast<std::ptrdiff_t>(second), 64, std::byte{});
  const auto first = find_entry(ring.bytes_, {kMe, 1, 0, 0}, ring.copy_);
  ASSERT_TRUE(first);
  EXPECT_FALSE(find_entry(ring.bytes_, first->next, ring.copy_));
  ring.end_ = second;
  ring.write(2, 8, kMe, 2);
  const auto later = find_entry(ring.bytes_, first->next, ring.copy_);
  ASSERT_TRUE(later);
  EXPECT_FALSE(find_entry(ring.bytes_, later->next, ring.copy_));
  ring.write(3, 8, kMe, 2);
  EXPECT_TRUE(find_entry(ring.bytes_, later->next, ring.copy_));
}

TEST(RpcRing, APayloadThatReachesBeyondTheRingIsNone) {
  Ring ring;
  ring.end_ = kRing - 64;
  ring.write(1, 8);
  store(ring.bytes_.data() + kRing - 64 + 44, std::uint32_t{4000});
  EXPECT_FALSE(ring.find(1, kRing - 64));
  store(ring.bytes_.data() + kRing - 64 + 44, UINT32_MAX);
  EXPECT_FALSE(ring.find(1, kRing - 64));
}

}  // namespace
}  // namespace perdure::rpc
