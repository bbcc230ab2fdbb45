// A pool says whose it is, and is taken for blank only if nothing in it says anything.
#include "region/region_format.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "core/bytes.h"
#include "core/crc32c.h"

namespace perdure::region {
namespace {

std::vector<std::byte> start_of(const RegionHeader& header, const ReplicaState& state) {
  std::vector<std::byte> bytes(kDataAt);
  const HeaderBytes encoded = encode_header(header);
  for (const std::uint64_t at : kHeadersAt) {
    std::copy(encoded.begin(), encoded.end(), bytes.begin() + static_cast<long>(at));
  }
  if (state.generation != 0) store(bytes.data() + kStateWordAt, encode_state(state));
  return bytes;
}

TEST(RegionFormat, ReadsBack) {
  const RegionHeader header{3, 2, 0x1234567890abcdef};
  for (const ReplicaState state : {ReplicaState{1, true, false}, ReplicaState{7, false, true},
                                   ReplicaState{kGenerationMax, true, true}}) {
    const auto read = decode_start(start_of(header, state));
    ASSERT_TRUE(read.ok());
    EXPECT_EQ(read->header, header);
    EXPECT_EQ(read->state, state);
  }
}

TEST(RegionFormat, AnyFlippedBitOfAStateWordMakesItCountForNothing) {
  const std::uint64_t word = encode_state({9, true, true});
  for (unsigned bit = 0; bit < 64; ++bit) {
    EXPECT_FALSE(decode_state(word ^ std::uint64_t{1} << bit)) << bit;
  }
  auto bytes = start_of({1, 1, 5}, {9, true, true});
  bytes[kStateWordAt + 3] ^= std::byte{1};
  EXPECT_EQ(decode_start(bytes)->state, (ReplicaState{1, false, false}));
}

TEST(RegionFormat, EitherHeaderWillDoAndNeitherIsCorrupt) {
  const auto whole = start_of({2, 2, 77}, {1, true, true});
  auto bytes = whole;
  bytes[20] ^= std::byte{1};
  EXPECT_EQ(decode_start(bytes)->header->id, 77u);
  bytes[4096 + 20] ^= std::byte{1};
  EXPECT_EQ(decode_start(bytes).code(), ErrorCode::Corrupt);
  bytes = whole;
  std::memset(bytes.data(), 0, 64);
  EXPECT_EQ(decode_start(bytes)->header->id, 77u);
}

// A crash while the pool is claimed: everything but the magic may be there.
TEST(RegionFormat, WithoutAMagicAPoolIsBlankAndAnythingElseIsNot) {
  std::vector<std::byte> blank(kDataAt);
  EXPECT_FALSE(decode_start(blank)->header);
  auto begun = start_of({2, 2, 77}, {});
  for (const std::uint64_t at : kHeadersAt) std::memset(begun.data() + at, 0, kMagicBytes);
  EXPECT_FALSE(decode_start(begun)->header);

  struct Place {
    std::uint64_t at;
    const char* text;
    const char* said;
  };
  for (const Place& place : {Place{0, "PERDLOG\x01", "a log"}, Place{4096, "PERDLGST", "a log"},
                             Place{8192, "PERDLGST", "a log"}, Place{0, "whatever", "not known"}}) {
    auto bytes = blank;
    std::memcpy(bytes.data() + place.at, place.text, 8);
    const auto read = decode_start(bytes);
    ASSERT_FALSE(read.ok());
    EXPECT_EQ(read.code(), ErrorCode::InvalidArgument);
    EXPECT_NE(read.error().message.find(place.said), std::string::npos) << read.error().message;
  }
  auto newer = start_of({2, 2, 77}, {1, true, true});
  store<std::uint32_t>(newer.data() + 8, 2);
  store(newer.data() + 60, crc32c(std::span(newer).first(60)));
  EXPECT_EQ(decode_start(newer).code(), ErrorCode::VersionMismatch);
}

}  // namespace
}  // namespace perdure::region
