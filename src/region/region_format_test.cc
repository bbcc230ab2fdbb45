// A pool says whose it is, and is taken for blank only if nothing in it says anything.
#include "region/region_format.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "core/bytes.h"
#include "core/crc32c.h"
#include "core/epoch.h"

namespace perdure::region {
namespace {

std::vector<std::byte> start_of(const RegionHeader& header, const ReplicaState& state) {
  std::vector<std::byte> bytes(kDataAt);
  const HeaderBytes encoded = encode_header(header);
  for (const std::uint64_t at : kHeadersAt) {
    std::copy(encoded.begin(), encoded.end(), bytes.begin() + static_cast<long>(at));
  }
  if (state.epoch == Epoch{}) return bytes;
  for (const std::uint64_t at : kStateWordsAt) store(bytes.data() + at, encode_state(state));
  return bytes;
}

TEST(RegionFormat, ReadsBack) {
  const RegionHeader header{3, 2, 0x1234567890abcdef, 0xfedcba987654};
  for (const ReplicaState state :
       {ReplicaState{Epoch{1}, true, false}, ReplicaState{Epoch{7}, false, true},
        ReplicaState{kEpochMax, true, true}}) {
    const auto read = decode_start(start_of(header, state));
    ASSERT_TRUE(read.ok());
    EXPECT_EQ(read->header, header);
    EXPECT_EQ(read->state, state);
  }
}

// Of one or two bits.
TEST(RegionFormat, ADamagedStateWordCountsForNothing) {
  const std::uint64_t word = encode_state({Epoch{9}, true, true});
  for (unsigned bit = 0; bit < 64; ++bit) {
    EXPECT_FALSE(decode_state(word ^ std::uint64_t{1} << bit)) << bit;
    for (unsigned other = 0; other < bit; ++other) {
      EXPECT_FALSE(decode_state(word ^ std::uint64_t{1} << bit ^ std::uint64_t{1} << other))
          << bit << " and " << other;
    }
  }
  // Not even where its other copy is well: that may be the older one.
  for (const std::uint64_t at : kStateWordsAt) {
    auto bytes = start_of({1, 1, 5, 64}, {Epoch{9}, true, true});
    bytes[at + 3] ^= std::byte{1};
    EXPECT_EQ(decode_start(bytes)->state, std::nullopt);
  }
}

// What a crash leaves between two of them, and a word that was lost with its line.
TEST(RegionFormat, WhereStateWordsDifferTheLastSessionDidNotEndWell) {
  const auto between = [](const ReplicaState& before, const ReplicaState& after) {
    const auto word = [](const ReplicaState& state) {
      return state.epoch == Epoch{} ? 0 : encode_state(state);
    };
    EXPECT_EQ(decode_states(word(before), word(after)), decode_states(word(after), word(before)));
    return decode_states(word(before), word(after));
  };
  const ReplicaState begun{Epoch{9}, false, true};
  const ReplicaState ended{Epoch{9}, true, true};
  const ReplicaState unknown{Epoch{9}, false, false};
  EXPECT_EQ(between({Epoch{4}, true, true}, begun), unknown);
  EXPECT_EQ(between(begun, ended), unknown);
  EXPECT_EQ(between(ended, {}), unknown);
  EXPECT_EQ(between(ended, ended), ended);
  EXPECT_EQ(between({}, {}), ReplicaState{});
}

TEST(RegionFormat, EitherHeaderWillDoAndNeitherIsCorrupt) {
  const auto whole = start_of({2, 2, 77, 64}, {Epoch{1}, true, true});
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
  auto begun = start_of({2, 2, 77, 64}, {});
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
  for (const std::uint32_t version : {kRegionVersion - 1, kRegionVersion + 1}) {
    auto other = start_of({2, 2, 77, 64}, {Epoch{1}, true, true});
    store(other.data() + 8, version);
    store(other.data() + 60, crc32c(std::span(other).first(60)));
    EXPECT_EQ(decode_start(other).code(), ErrorCode::VersionMismatch);
  }
}

}  // namespace
}  // namespace perdure::region
