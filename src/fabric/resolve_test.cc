// A name is resolved within the caller's deadline, whatever the name service does.
#include "fabric/resolve.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

namespace perdure::fabric {
namespace {

/// A name service that answers only once it is let.
struct Silent {
  std::promise<void> let;
  std::shared_future<void> released = let.get_future().share();
  std::atomic<int> asked{0};

  Lookup lookup() {
    return [this, released = released](const std::string&, std::uint16_t port) {
      ++asked;
      released.wait();
      return system_lookup("127.0.0.1", port);
    };
  }
};

TEST(Resolve, NumbersNeedNoNameService) {
  const auto never = [](const std::string&, std::uint16_t) -> Result<std::vector<SocketAddress>> {
    ADD_FAILURE() << "the name service was asked";
    return Error{};
  };
  const Deadline passed = Deadline::after(Nanoseconds{0});
  EXPECT_EQ(to_string(resolve("127.0.0.1", 7, passed, never)->front()), "127.0.0.1:7");
  EXPECT_EQ(to_string(resolve("::1", 7, passed, never)->front()), "[::1]:7");
}

TEST(Resolve, ANameThatIsKnownHasItsAddresses) {
  const auto found = resolve("localhost", 7, Deadline::after(std::chrono::seconds{60}));
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(port_of(found->front()), 7);
}

TEST(Resolve, ASilentNameServiceEndsWithTheDeadline) {
  static Silent silent;  // its threads outlive the test
  const auto within = Deadline::after(std::chrono::milliseconds{20});
  EXPECT_EQ(resolve("peer.example", 7, within, silent.lookup()).code(), ErrorCode::TimedOut);
  EXPECT_TRUE(within.passed());
  // One lookup of a name is left behind, however often it is asked for.
  const Deadline now = Deadline::after(Nanoseconds{0});
  for (std::size_t i = 0; i < 2 * kLookupsMax; ++i) {
    EXPECT_EQ(resolve("peer.example", 7, now, silent.lookup()).code(), ErrorCode::TimedOut);
  }
  // Its thread may begin late.
  const Deadline begins = Deadline::after(std::chrono::seconds{60});
  while (silent.asked.load() == 0 && !begins.passed()) std::this_thread::yield();
  EXPECT_EQ(silent.asked.load(), 1);
  const auto known = resolve("localhost", 7, Deadline::after(std::chrono::seconds{60}));
  EXPECT_TRUE(known.ok()) << known.error().message;
  // Those of many names are bounded: at the bound nobody is asked.
  for (std::size_t i = 0; i < 2 * kLookupsMax; ++i) {
    const std::string name = "peer" + std::to_string(i) + ".example";
    EXPECT_EQ(resolve(name, 7, now, silent.lookup()).code(), ErrorCode::TimedOut);
  }
  EXPECT_LE(silent.asked.load(), static_cast<int>(kLookupsMax));
  // It answers again. Expect: the next one is resolved.
  silent.let.set_value();
  const Deadline patience = Deadline::after(std::chrono::seconds{60});
  auto found = resolve("peer.example", 7, patience, silent.lookup());
  while (!found.ok() && !patience.passed()) {
    found = resolve("peer.example", 7, patience, silent.lookup());
  }
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(to_string(found->front()), "127.0.0.1:7");
}

}  // namespace
}  // namespace perdure::fabric
