// Random: the only PRNG. Seeded and passed in; the same seed gives the same numbers everywhere.
#pragma once

#include <cstdint>

namespace perdure {

/// xoshiro256** seeded through splitmix64 (Blackman and Vigna, "Scrambled linear pseudorandom
/// number generators", 2021). Not for secrets: see random_secret().
class Random {
 public:
  explicit Random(std::uint64_t seed);

  std::uint64_t next();
  /// Uniform in [0, bound). Requires bound > 0.
  std::uint64_t below(std::uint64_t bound);
  /// True with probability numerator / denominator.
  bool chance(std::uint64_t numerator, std::uint64_t denominator);

 private:
  std::uint64_t state_[4];
};

/// 64 bits from the operating system, for keys, tokens and unique ids. Never zero.
std::uint64_t random_secret();

/// While it lives, random_secret() of this thread draws from `random`: whole programs in an
/// emulated world repeat themselves. Never in anything that serves strangers.
class SeededSecrets {
 public:
  explicit SeededSecrets(Random& random);
  ~SeededSecrets();
  SeededSecrets(const SeededSecrets&) = delete;
  SeededSecrets& operator=(const SeededSecrets&) = delete;

 private:
  Random* const before_;
};

}  // namespace perdure
