// Which memory an RNIC may page on demand.
#include "fabric/verbs/on_demand.h"

#include <gtest/gtest.h>

namespace perdure::fabric::verbs {
namespace {

TEST(OnDemand, IsForMemoryThatCanNotBePinnedAndForNothingElse) {
  for (const Access access : {Access::RemoteRead, Access::RemoteReadWrite}) {
    EXPECT_TRUE(falls_back_on_demand(EFAULT, true, access));  // a file on DAX, or of the page cache
    EXPECT_TRUE(falls_back_on_demand(EOPNOTSUPP, true, access));
    EXPECT_FALSE(falls_back_on_demand(EFAULT, false, access));
    // A low limit, or no memory: one clear error is better than a pause at each page.
    for (const int reason : {ENOMEM, EAGAIN, EPERM, EINVAL, EIO, 0}) {
      EXPECT_FALSE(falls_back_on_demand(reason, true, access)) << reason;
    }
  }
  EXPECT_FALSE(falls_back_on_demand(EFAULT, true, Access::Windows));
}

TEST(OnDemand, HasToHoldForEachOperation) {
  EXPECT_TRUE(pages_each_operation(true, 0b11111, 0b1111));
  EXPECT_FALSE(pages_each_operation(true, 0b0111, 0b1111)) << "one of them is missing";
  EXPECT_FALSE(pages_each_operation(false, 0b1111, 0b1111));
}

}  // namespace
}  // namespace perdure::fabric::verbs
