// Wrong methods that look right. Each is caught, and its shortest story is kept as a golden file.
#include <gtest/gtest.h>

#include "check/check.h"
#include "check/render.h"
#include "plan/known_unsafe.h"
#include "plan/steps.h"
#include "tests/agreement/golden.h"

namespace perdure {
namespace {

using check::Property;
using check::Verdict;

TEST(KnownUnsafe, EveryWrongMethodIsCaughtWithItsShortestStory) {
  const auto all = plan::known_unsafe_methods();
  ASSERT_GE(all.size(), 6u);
  for (const plan::KnownUnsafe& wrong : all) {
    const check::Report report = check::check(wrong.method, wrong.profile);
    ASSERT_EQ(report.verdict, Verdict::Violated) << wrong.method.name;
    EXPECT_EQ(to_string(*report.property), wrong.breaks) << wrong.method.name;
    expect_golden(wrong.method.name + ".txt", check::story(wrong.method, wrong.profile, report));
    expect_golden(wrong.method.name + ".svg",
                  to_svg(check::diagram(wrong.method, wrong.profile, report)));
  }
}

TEST(KnownUnsafe, EachIsRightOnTheResponderThatMakesItKnownUnsafe) {
  for (const plan::KnownUnsafe& wrong : plan::known_unsafe_methods()) {
    if (!wrong.right_on) continue;
    const check::Report report = check::check(wrong.method, *wrong.right_on);
    EXPECT_TRUE(report.holds()) << check::story(wrong.method, *wrong.right_on, report);
  }
}

}  // namespace
}  // namespace perdure
