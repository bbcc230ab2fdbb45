// The wall clock jumps under a server of durable calls and its clients: somebody sets it, or a
// virtual machine is moved. This program has a clock_gettime of its own, so that nobody else's
// clock is touched.
#include <gtest/gtest.h>
#include <perdure/rpc.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <optional>

#include "testing/process.h"
#include "testing/temporary_directory.h"

namespace {
std::atomic<std::int64_t> wall_clock_jump_s{0};
}

extern "C" int clock_gettime(clockid_t which, timespec* now) noexcept {
  const long got = ::syscall(SYS_clock_gettime, which, now);
  const bool is_wall = which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE;
  if (got == 0 && is_wall) now->tv_sec += wall_clock_jump_s.load();
  return static_cast<int>(got);
}

namespace perdure {
namespace {

constexpr std::uint32_t kNothing = 1;
constexpr std::int64_t kTenYears = 10LL * 365 * 86400;

std::optional<RpcClient> open(const std::string& server) {
  RpcClientOptions options;
  options.server = server;
  options.name = "one";
  options.transport = Transport::Tcp;
  options.measure_costs = false;
  auto client = RpcClient::open(options);
  EXPECT_TRUE(client.ok()) << client.error().message;
  if (!client.ok()) return std::nullopt;
  return std::move(*client);
}

// Receive: calls before and after each jump. Expect: no wait ends early, none hangs, and a client
// that was away during all of them has its place.
TEST(RpcWallClock, AJumpEndsNoLeaseAndNoWait) {
  const test::TestDirectory directory;
  RpcServerOptions options;
  options.pool = directory.file("calls.pool");
  options.data_bytes = 4096;
  options.lease = std::chrono::minutes(10);
  options.listen = "127.0.0.1:0";
  options.data_listen = "127.0.0.1:0";
  options.handlers[kNothing] = [](const RpcCall&, RpcTransaction&, std::span<std::byte>) {
    return Result<std::size_t>(std::size_t{0});
  };
  const auto server = RpcServer::open(options);
  ASSERT_TRUE(server.ok()) << server.error().message;
  auto client = open(server->address());
  ASSERT_TRUE(client);
  const std::uint64_t id = client->status().client_id;
  std::uint64_t calls = 0;
  for (const std::int64_t jump : {kTenYears, -kTenYears, std::int64_t{3600}, std::int64_t{0}}) {
    wall_clock_jump_s.store(jump);
    const auto call = client->call(kNothing, {});
    ASSERT_TRUE(call.ok()) << call.error().message;
    const auto applied = client->wait(*call, RpcLevel::Applied);
    ASSERT_TRUE(applied.ok()) << applied.error().message;
    ++calls;
  }
  client.reset();
  for (const std::int64_t jump : {kTenYears, -kTenYears}) {
    wall_clock_jump_s.store(jump);
    test::pause_for(std::chrono::milliseconds(50));  // the server looks for silent clients
  }
  client = open(server->address());
  ASSERT_TRUE(client);
  EXPECT_EQ(client->status().client_id, id);
  EXPECT_EQ(client->status().earlier_durable, calls);
  EXPECT_EQ(server->status().expired, 0u);
  wall_clock_jump_s.store(0);
}

}  // namespace
}  // namespace perdure
