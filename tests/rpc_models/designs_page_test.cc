// docs/rpc-designs.md says what the code says.
#include "designs_page.h"
#include "rpc/models/design.h"
#include "tests/agreement/golden.h"

#include <gtest/gtest.h>

namespace perdure::rpc::models {
namespace {

TEST(RpcDesignsPage, IsUpToDate) { expect_golden("rpc-designs.md", designs_page()); }

TEST(RpcDesignsPage, ADiagramHasEachDeclaredStepInItsOrder) {
  for (const Design* design : designs()) {
    const std::string drawn = explain(*design);
    std::size_t from = 0;
    for (const Step& step : design->steps) {
      const std::string name = step.verb ? std::string(to_string(*step.verb)) + ": " : "";
      const std::size_t found = drawn.find(name + std::string(step.what), from);
      ASSERT_NE(found, std::string::npos) << design->name << ": " << step.what;
      from = found + 1;
    }
  }
}

TEST(RpcDesignsPage, ADesignIsFoundByItsName) {
  for (const Design* design : designs()) EXPECT_EQ(find_design(design->name), design);
  EXPECT_EQ(find_design("nosuch"), nullptr);
  EXPECT_EQ(find_design(""), nullptr);
}

}  // namespace
}  // namespace perdure::rpc::models
