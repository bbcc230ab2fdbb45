// Pool: made whole or not at all, opened by one, and its state old or new after every crash.
#include "pmem/pool.h"

#include <gtest/gtest.h>

#include <cstring>

#include "pmem/test_support.h"

namespace perdure::pmem {
namespace {

PoolOptions small_pool() {
  PoolOptions options;
  options.data_bytes = 100'000;
  options.kind = "log";
  options.name = "orders";
  return options;
}

PoolState state_of(std::uint32_t epoch, const std::string& holder) {
  PoolState state;
  state.epoch = Epoch{epoch};
  state.holder = holder;
  state.opaque = {std::byte{1}, std::byte{2}, std::byte{3}};
  return state;
}

TEST(Pool, KeepsDataAndStateOverReopen) {
  TestDirectory directory;
  const std::string path = directory.file("a.pool");
  Uuid uuid;
  {
    auto pool = Pool::create(path, small_pool());
    ASSERT_TRUE(pool.ok()) << pool.error().message;
    uuid = (*pool)->uuid();
    EXPECT_EQ((*pool)->data_bytes(), 100'000U);
    EXPECT_EQ((*pool)->epoch(), Epoch{0});
    std::memcpy((*pool)->data().data(), "hello", 5);
    ASSERT_TRUE((*pool)->region().flush((*pool)->data_offset(), 5).ok());
    ASSERT_TRUE((*pool)->set_state(state_of(7, "host:1")).ok());
    ASSERT_TRUE((*pool)->close().ok());
  }
  auto pool = Pool::open(path, {});
  ASSERT_TRUE(pool.ok()) << pool.error().message;
  EXPECT_EQ((*pool)->uuid(), uuid);
  EXPECT_EQ((*pool)->header().name, "orders");
  EXPECT_EQ((*pool)->header().kind, "log");
  EXPECT_TRUE((*pool)->was_shut_down());
  EXPECT_EQ((*pool)->state(), state_of(7, "host:1"));
  EXPECT_EQ(std::memcmp((*pool)->data().data(), "hello", 5), 0);
}

}  // namespace
}  // namespace perdure::pmem
