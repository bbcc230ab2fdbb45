// What is known of the largest window that an RNIC binds.
#include "fabric/window_limit.h"

#include <gtest/gtest.h>

namespace perdure::fabric {
namespace {

constexpr std::uint64_t kGib = std::uint64_t{1} << 30;

TEST(WindowLimit, ARefusalSaysNothingAboutSmallerWindows) {
  WindowLimit limit;
  EXPECT_TRUE(limit.allows(WindowLimit::kNone));
  limit.note_refused(4 * kGib);
  EXPECT_FALSE(limit.allows(5 * kGib));
  EXPECT_FALSE(limit.allows(4 * kGib));
  EXPECT_TRUE(limit.allows(4 * kGib - 1));
  limit.note_refused(8 * kGib);  // as was known
  EXPECT_TRUE(limit.allows(4 * kGib - 1));
  limit.note_refused(1);
  EXPECT_FALSE(limit.allows(1));
}

TEST(WindowLimit, Mlx5BindsTwoGibibytesAndNoByteMore) {
  for (const char* driver : {"mlx5_core", "mlx5_core.sf"}) {
    WindowLimit limit;
    limit.lower(window_bytes_max_of(driver));
    EXPECT_TRUE(limit.allows(2 * kGib)) << driver;
    EXPECT_FALSE(limit.allows(2 * kGib + 1)) << driver;
  }
  for (const char* driver : {"", "irdma", "mlx4_core", "bnxt_en"}) {
    EXPECT_EQ(window_bytes_max_of(driver), WindowLimit::kNone) << driver;
  }
}

}  // namespace
}  // namespace perdure::fabric
