// When an RNIC may not be opened for fear of a fork().
#ifdef PERDURE_WITH_VERBS
#include "fabric/verbs/fork_protection.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace perdure::fabric::verbs {
namespace {

TEST(ForkProtection, IsMissingOnlyWhereItIsNeededAndCameTooLate) {
  using enum ForkProtection;
  //                        returned, status             expected
  EXPECT_EQ(fork_protection(0, IBV_FORK_UNNEEDED), /*  */ Unneeded);
  EXPECT_EQ(fork_protection(EINVAL, IBV_FORK_UNNEEDED), Unneeded);
  EXPECT_EQ(fork_protection(0, IBV_FORK_ENABLED), /*   */ Given);
  EXPECT_EQ(fork_protection(EINVAL, IBV_FORK_ENABLED), /**/ Given);
  EXPECT_EQ(fork_protection(0, IBV_FORK_DISABLED), /*  */ Given);
  EXPECT_EQ(fork_protection(EINVAL, IBV_FORK_DISABLED), Missing);  // memory was registered before
  EXPECT_EQ(fork_protection(ENOSYS, IBV_FORK_DISABLED), Missing);
}

}  // namespace
}  // namespace perdure::fabric::verbs
#endif
