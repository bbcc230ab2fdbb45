// Reads, compares and on request rewrites golden files.
#include "tests/agreement/golden.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

namespace perdure {

void expect_golden(const std::string& name, const std::string& actual) {
  const std::string path = std::string(PERDURE_GOLDEN_DIR) + "/" + name;
  if (std::getenv("PERDURE_UPDATE_GOLDEN") != nullptr) std::ofstream(path) << actual;
  std::ifstream file(path);
  ASSERT_TRUE(file.is_open()) << path << " is missing; set PERDURE_UPDATE_GOLDEN=1 to write it";
  std::stringstream expected;
  expected << file.rdbuf();
  EXPECT_EQ(expected.str(), actual)
      << path << " differs; set PERDURE_UPDATE_GOLDEN=1 to accept, and say why in the commit";
}

}  // namespace perdure
