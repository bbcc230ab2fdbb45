// When a right on an RNIC counts as taken away.
#include "fabric/verbs/revocable.h"

#include <gtest/gtest.h>

namespace perdure::fabric::verbs {
namespace {

struct FakeRnic {
  bool is_dead() const { return dead; }
  bool has_let_go(int returned) const { return dead ? reset : returned == 0; }
  bool dead = false;
  bool reset = false;
};

class RevocableTest : public testing::Test {
 protected:
  int revoke(int answer) {
    return key_.revoke(rnic_, [&](int* key) {
      EXPECT_NE(key, nullptr);
      ++asked_;
      if (answer == 0) delete key;
      return answer;
    });
  }
  FakeRnic rnic_;
  Revocable<std::unique_ptr<int>> key_{std::make_unique<int>(7)};
  int asked_ = 0;
};

TEST_F(RevocableTest, IsGoneWhenTheRnicSaysSoAndNotAskedForAgain) {
  EXPECT_EQ(revoke(0), 0);
  EXPECT_EQ(revoke(EBUSY), 0);
  EXPECT_EQ(asked_, 1);
}

TEST_F(RevocableTest, IsAskedForUntilItIsGone) {
  EXPECT_EQ(revoke(EBUSY), EBUSY);
  EXPECT_NE(key_.get(), nullptr);
  EXPECT_EQ(revoke(0), 0);
  EXPECT_EQ(asked_, 2);
}

TEST_F(RevocableTest, OnADeadRnicItLivesUntilTheReset) {
  const std::unique_ptr<int> object(key_.get());  // the kernel takes it with the context
  rnic_.dead = true;
  EXPECT_NE(revoke(0), 0);
  EXPECT_NE(revoke(0), 0);
  rnic_.reset = true;
  EXPECT_EQ(revoke(0), 0);
  EXPECT_EQ(asked_, 0);
}

TEST_F(RevocableTest, AnAnswerThatCameWithTheFailureIsNotBelievedLater) {
  const int returned = key_.revoke(rnic_, [&](int* key) {
    rnic_.dead = true;
    delete key;
    return 0;
  });
  EXPECT_NE(returned, 0);
  EXPECT_NE(revoke(0), 0);
  rnic_.reset = true;
  EXPECT_EQ(revoke(0), 0);
}

}  // namespace
}  // namespace perdure::fabric::verbs
