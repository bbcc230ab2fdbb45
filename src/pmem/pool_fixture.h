// A small pool in a file, for tests.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "pmem/pool.h"
#include "pmem/test_support.h"

namespace perdure::pmem {

inline PoolOptions small_pool() {
  PoolOptions options;
  options.data_bytes = 100'000;
  options.kind = "log";
  options.name = "orders";
  return options;
}

inline PoolState state_of(std::uint32_t epoch, const std::string& holder) {
  PoolState state;
  state.epoch = Epoch{epoch};
  state.holder = holder;
  state.opaque = {std::byte{1}, std::byte{2}, std::byte{3}};
  return state;
}

/// What set_state() was given of it.
inline PoolState as_given(PoolState state) {
  state.opened_by.reset();
  state.opened_place = 0;
  state.relied_on.reset();
  return state;
}

/// Every test here runs on memory: the rules are the same, and the disk is not worn.
class PoolFile : public testing::Test {
 protected:
  void create() {
    auto pool = Pool::create(path_, small_pool());
    ASSERT_TRUE(pool.ok()) << pool.error().message;
    uuid_ = (*pool)->uuid();
    ASSERT_TRUE((*pool)->set_state(state_of(7, "host:1")).ok());
  }
  ErrorCode code_of_opening() {
    auto pool = Pool::open(path_, {});
    EXPECT_FALSE(pool.ok());
    if (pool.ok()) return ErrorCode::AlreadyExists;
    EXPECT_EQ(pool.error().message.rfind(path_, 0), 0U) << pool.error().message;
    EXPECT_EQ(Pool::inspect(path_).code(), pool.code());
    message_ = pool.error().message;
    return pool.code();
  }

  TestDirectory directory_{kMemoryFileSystem};
  const std::string path_ = directory_.file("a.pool");
  Uuid uuid_;
  std::string message_;
};

}  // namespace perdure::pmem
