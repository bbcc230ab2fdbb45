// What a writer remembers of a replica that it brings back: when that has got on.
#include "log/brought_so_far.h"

#include <gtest/gtest.h>

namespace perdure::log {
namespace {

Boundary at(std::uint64_t lsn) { return {Lsn{lsn}, 0, Epoch{}, 0}; }

// A medium that never reads back is copied to again and again: that is no reason to come at once.
TEST(BroughtSoFar, CopyingAgainFromAPlaceThatDoesNotReadBackIsNotGettingOn) {
  BroughtSoFar so_far;
  EXPECT_FALSE(so_far.note_further());
  so_far.copied.emplace();
  so_far.copied->to = at(100);
  EXPECT_TRUE(so_far.note_further());
  EXPECT_FALSE(so_far.note_further()) << "nothing came of it";
  so_far.verified = at(60);
  EXPECT_TRUE(so_far.note_further());
  // What is at 60 does not read back: it is copied again from there, and all is read again.
  for (int round = 0; round < 3; ++round) {
    so_far.copied->to = at(60);
    so_far.verified.reset();
    EXPECT_FALSE(so_far.note_further());
    so_far.copied->to = at(100);
    EXPECT_FALSE(so_far.note_further());
    so_far.verified = at(60);
    EXPECT_FALSE(so_far.note_further());
  }
  // Expect: beyond it, it has got on.
  so_far.verified = at(61);
  EXPECT_TRUE(so_far.note_further());
  so_far.copied->to = at(101);
  EXPECT_TRUE(so_far.note_further());
}

}  // namespace
}  // namespace perdure::log
