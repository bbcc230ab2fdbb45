// docs/taxonomy.md says what the code says.
#include "tests/agreement/taxonomy_page.h"

#include <gtest/gtest.h>

#include "tests/agreement/golden.h"

namespace perdure {
namespace {

TEST(TaxonomyPage, IsUpToDate) {
  const std::string page = taxonomy_page();
  EXPECT_EQ(page.find("NOT PROVED"), std::string::npos);
  expect_golden("../../../docs/taxonomy.md", page);
}

}  // namespace
}  // namespace perdure
