// SipHash-2-4 (Aumasson and Bernstein, 2012): a 64-bit hash under a secret key. Two different
// inputs have the same hash with a probability of 2^-64, whatever they are, if the key was drawn
// afterwards: what a checksum does not promise.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/bytes.h"

namespace perdure {

struct SipKey {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
};

namespace siphash_detail {

struct State {
  std::uint64_t a, b, c, d;

  void round() {
    a += b;
    c += d;
    b = std::rotl(b, 13) ^ a;
    d = std::rotl(d, 16) ^ c;
    a = std::rotl(a, 32);
    c += b;
    a += d;
    b = std::rotl(b, 17) ^ c;
    d = std::rotl(d, 21) ^ a;
    c = std::rotl(c, 32);
  }
  void add(std::uint64_t word) {
    d ^= word;
    round();
    round();
    a ^= word;
  }
};

}  // namespace siphash_detail

/// Cost: some 1.5 cycles a byte.
inline std::uint64_t siphash(const SipKey& key, std::span<const std::byte> bytes) {
  siphash_detail::State state{key.low ^ 0x736f6d6570736575, key.high ^ 0x646f72616e646f6d,
                              key.low ^ 0x6c7967656e657261, key.high ^ 0x7465646279746573};
  const std::size_t whole = bytes.size() / 8 * 8;
  for (std::size_t at = 0; at < whole; at += 8) {
    state.add(load<std::uint64_t>(bytes.data() + at));
  }
  std::uint64_t last = std::uint64_t{bytes.size()} << 56;
  for (std::size_t at = whole; at < bytes.size(); ++at) {
    last |= std::to_integer<std::uint64_t>(bytes[at]) << (8 * (at - whole));
  }
  state.add(last);
  state.c ^= 0xff;
  for (int round = 0; round < 4; ++round) state.round();
  return state.a ^ state.b ^ state.c ^ state.d;
}

}  // namespace perdure
