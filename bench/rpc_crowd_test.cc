// Many clients of one process lose their server at once, in traffic.
#include "bench/rpc_crowd.h"

#include "testing/temporary_directory.h"

#include <gtest/gtest.h>

namespace perdure::bench {
namespace {

/// That each call was executed once is compared in there.
void come_back(const std::string& transport) {
  const auto directory = test::TemporaryDirectory::make("/dev/shm");
  ASSERT_TRUE(directory.ok()) << directory.error().message;
  CrowdOptions options;
  options.directory = directory->path() + "/server";
  options.transport = transport;
  options.clients = 64;
  options.calls = 640;
  options.lose_server = true;
  const auto found = run_crowd(options);
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_GT(found->calls_fewest, 0u);
}

TEST(RpcCrowd, AllAreServedByTheNextServerAndEachCallIsExecutedOnceOverTcp) { come_back("tcp"); }

TEST(RpcCrowd, AllAreServedByTheNextServerAndEachCallIsExecutedOnceOverShm) { come_back("shm"); }

TEST(RpcCrowd, ConnectionsOfALongWhileAreNoMoreASecond) {
  using std::chrono::milliseconds;
  EXPECT_EQ(by_the_second(1000, milliseconds(4000)), 250u);
  EXPECT_EQ(by_the_second(1000, milliseconds(1000)), 1000u);
  EXPECT_EQ(by_the_second(1000, milliseconds(10)), 1000u);  // no rate that nobody saw
}

}  // namespace
}  // namespace perdure::bench
