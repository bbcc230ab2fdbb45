// The laws of devices that come and go: a reset is not for ever.
#include "fabric/verbs/known_devices.h"

#include <gtest/gtest.h>

namespace perdure::fabric::verbs {
namespace {

struct FakeDevice {
  explicit FakeDevice(int* on) : on_(on) {}
  int* context() const { return on_; }
  bool is_dead() const { return dead; }
  void note_successor(const FakeDevice& device) { successor = &device; }
  int* on_;
  bool dead = false;
  const FakeDevice* successor = nullptr;
};

class Known : public testing::Test {
 protected:
  FakeDevice* at(const char* name, int& context) {
    return known_.at(
        name, &context, [this] { return answers_; },
        [&] {
          ++made_;
          return std::make_unique<FakeDevice>(&context);
        });
  }
  KnownDevices<FakeDevice> known_;
  bool answers_ = true;
  int made_ = 0;
  int old_ = 0;
  int new_ = 0;
};

TEST_F(Known, ADeviceIsMadeOnce) {
  FakeDevice* const first = at("a", old_);
  EXPECT_EQ(at("a", old_), first);
  EXPECT_NE(at("b", old_), first);
  EXPECT_EQ(made_, 2);
}

TEST_F(Known, AnotherContextIsAnotherDeviceAndTheOldOneStaysValid) {
  FakeDevice* const first = at("a", old_);
  FakeDevice* const second = at("a", new_);
  EXPECT_NE(second, first);
  EXPECT_EQ(second->context(), &new_);
  EXPECT_EQ(first->context(), &old_);
  EXPECT_EQ(first->successor, second);
  EXPECT_EQ(at("a", new_), second);
}

TEST_F(Known, ADeadDeviceComesBackOnceItsContextAnswers) {
  FakeDevice* const first = at("a", old_);
  first->dead = true;
  answers_ = false;
  EXPECT_EQ(at("a", old_), nullptr);
  EXPECT_EQ(at("a", old_), nullptr);
  EXPECT_EQ(first->successor, nullptr);
  EXPECT_EQ(made_, 1);
  answers_ = true;
  FakeDevice* const second = at("a", old_);
  ASSERT_NE(second, nullptr);
  EXPECT_FALSE(second->is_dead());
  EXPECT_EQ(first->successor, second);
  EXPECT_EQ(at("a", old_), second);
}

TEST_F(Known, ADeadDeviceWithAnotherContextIsReplacedWithoutAsking) {
  at("a", old_)->dead = true;
  answers_ = false;
  FakeDevice* const second = at("a", new_);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(second->context(), &new_);
}

}  // namespace
}  // namespace perdure::fabric::verbs
