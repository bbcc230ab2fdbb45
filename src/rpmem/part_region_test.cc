// The parts of a set as a region: what is below them is watched while they are served.
#include "rpmem/part_region.h"

#include <gtest/gtest.h>

#include <fstream>

#include "testing/temporary_directory.h"
#include "testing/told_medium.h"

namespace perdure::rpmem {
namespace {

TEST(PartRegion, AMediumThatPromisesLessThanAtTheOpeningHasFailed) {
  test::TestDirectory directory;
  const std::string set_file = directory.file("pool.set");
  std::ofstream(set_file) << "PMEMPOOLSET\nOPTION NOHDRS\n8M " << directory.file("p0") << "\n8M "
                          << directory.file("p1") << "\n";
  const auto set = read_set({directory.path(), {}}, "pool.set");
  ASSERT_TRUE(set.ok()) << set.error().message;
  auto parts = PartSet::create(*set, {}, 0, [] { return Uuid16{}; });
  ASSERT_TRUE(parts.ok()) << parts.error().message;
  test::ToldMedium told;
  PartRegionOptions options;
  options.watch = told.watched();
  auto region = PartRegion::map(*parts, options);
  ASSERT_TRUE(region.ok()) << region.error().message;
  EXPECT_EQ((*region)->domain(), PersistenceDomain::Page);
  EXPECT_TRUE((*region)->check().ok());
  told.options = "rw,nobarrier";
  const auto failed = (*region)->check();
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.code(), ErrorCode::SystemError);
  EXPECT_NE(failed.error().message.find("p0: it was opened as page"), std::string::npos)
      << failed.error().message;
}

}  // namespace
}  // namespace perdure::rpmem
