// SipHash against the vectors of its authors.
#include "core/siphash.h"

#include <gtest/gtest.h>

#include <array>

namespace perdure {
namespace {

// The key is 00 01 .. 0f, the input 00 01 .. of the given length (the reference's vectors.h, and
// appendix A of the paper for 15 bytes).
TEST(SipHash, GivesWhatItsAuthorsPublished) {
  const SipKey key{0x0706050403020100, 0x0f0e0d0c0b0a0908};
  std::array<std::byte, 64> input{};
  for (std::size_t at = 0; at < input.size(); ++at) input[at] = static_cast<std::byte>(at);
  EXPECT_EQ(siphash(key, std::span(input).first(0)), 0x726fdb47dd0e0e31u);
  EXPECT_EQ(siphash(key, std::span(input).first(1)), 0x74f839c593dc67fdu);
  EXPECT_EQ(siphash(key, std::span(input).first(15)), 0xa129ca6149be45e5u);
}

TEST(SipHash, AnyFlippedBitIsSeen) {
  const SipKey key{1, 2};
  std::array<std::byte, 72> input{};
  const std::uint64_t before = siphash(key, input);
  for (std::size_t bit = 0; bit < 8 * input.size(); ++bit) {
    input[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_NE(siphash(key, input), before);
    input[bit / 8] ^= std::byte{1} << (bit % 8);
  }
}

}  // namespace
}  // namespace perdure
