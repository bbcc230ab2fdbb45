// How much a test that repeats itself at random does: a short form by default, a long one on
// request.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace perdure::test {

/// The long forms were asked for (PERDURE_SOAK is set; `./test --soak`).
inline bool soak() { return std::getenv("PERDURE_SOAK") != nullptr; }

/// `usual` rounds, or `long_form` of them in a soak. Under the thread sanitizer a quarter of the
/// usual ones, at least one: it makes code ten times slower, and finds a race in the first rounds;
/// the laws are what the other build looks at.
inline std::uint64_t rounds(std::uint64_t usual, std::uint64_t long_form) {
  if (soak()) return long_form;
#ifdef __SANITIZE_THREAD__
  return (usual + 3) / 4;
#else
  return usual;
#endif
}

/// Of many things alike that are tried in turn, whether number `number` is: one in `one_in`, and in
/// a soak each.
inline bool in_turn(std::uint64_t number, std::uint64_t one_in) {
  return soak() || number % one_in == 0;
}

}  // namespace perdure::test
