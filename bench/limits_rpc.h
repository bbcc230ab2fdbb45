// Calls of durable RPC through the public API, as a program would make them, for measuring its
// limits: a server in a process of its own, and one client.
#pragma once

#include <perdure/result.h>
#include <perdure/rpc.h>

#include "report/histogram.h"
#include "testing/process.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace perdure::bench {

/// Replies with nothing.
inline constexpr std::uint32_t kEmptyCall = 1;
/// Replies with 8 bytes: how much the thread that executes it has allocated so far.
inline constexpr std::uint32_t kCountingCall = 2;

/// Of client number n, which is its payload: counts it in the pool.
inline constexpr std::uint32_t kCrowdCall = 3;
/// A query: how many calls of each number were executed, 8 bytes each.
inline constexpr std::uint32_t kCrowdCounts = 4;

struct RpcServerPlan {
  std::string directory;  // of its files; made
  std::size_t clients = 64;
  std::string listen = "127.0.0.1:0";
};

/// A server of calls of no effect, but for kCrowdCall. Its pool is declared as dmp, and calls are
/// executed where they arrive.
class RpcServerUnderTest {
 public:
  /// In a process of its own. Goes on with the pool if there is one.
  /// Errors: those of RpcServer::open, TimedOut, SystemError. Requires no threads in this process.
  static Result<RpcServerUnderTest> start(const RpcServerPlan& plan);

  const std::string& address() const { return address_; }
  pid_t pid() const { return process_.pid(); }

 private:
  RpcServerUnderTest(test::ChildProcess process, std::string address)
      : process_(std::move(process)), address_(std::move(address)) {}
  test::ChildProcess process_;
  std::string address_;
};

struct RpcUnderTestOptions {
  std::string server;
  std::string transport;  // "tcp" or "shm"
  std::string name;       // of the client
  std::uint64_t payload_bytes = 64;
  RpcClientOptions client = {};  // the rest is filled in
};

class RpcUnderTest {
 public:
  /// Errors: those of RpcClient::open.
  static Result<RpcUnderTest> open(const RpcUnderTestOptions& options);

  /// Calls one after the other, each waited for until it is there.
  Result<report::Histogram> one_by_one(std::uint64_t count, RpcLevel level);
  /// Calls with `window` in flight; returns calls per second.
  Result<double> windowed(std::uint64_t count, std::size_t window, RpcLevel level);
  /// As one_by_one, but nothing of the measurement's own in the loop.
  Result<void> only_call(std::uint64_t count, RpcLevel level);
  /// What the server's thread has allocated.
  Result<std::uint64_t> allocated_by_server();

  RpcClient& client() { return client_; }

 private:
  RpcUnderTest(RpcClient client, std::uint64_t payload_bytes)
      : client_(std::move(client)), payload_(payload_bytes, std::byte{0x5a}) {}

  RpcClient client_;
  std::vector<std::byte> payload_;
};

/// Makes a pool in `directory` where so many calls of one client are durable and none is applied.
Result<void> make_unapplied(const std::string& directory, std::uint64_t calls,
                            std::uint64_t payload_bytes);
/// Bytes of entries that are found whole in such a pool in a second; executes none of them.
Result<double> scanned_per_second(const std::string& directory);
/// From opening a server on such a pool until it serves. Empty handler.
Result<double> seconds_to_serve(const std::string& directory);

}  // namespace perdure::bench
