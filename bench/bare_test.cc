// The bare programs run to their end with every provider, and their bytes arrive.
#include "bench/bare.h"
#include "bench/bare_flush.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>

namespace perdure::bench {
namespace {

class Bare : public ::testing::TestWithParam<BareProvider> {
 protected:
  void SetUp() override {
    BareOptions options;
    options.provider = GetParam();
    options.rounds = 1;
    options.warm_up = 0;
    const auto tried = bare_latencies(options);
    // An RNIC is not everywhere, nor libfabric; where this build has that, its providers are there.
    const bool may_lack = GetParam() == BareProvider::Verbs ||
                          (!tried.ok() && tried.error().message == "this build has no libfabric");
    if (!tried.ok() && tried.code() == ErrorCode::Unsupported && may_lack) {
      GTEST_SKIP() << to_string(GetParam()) << ": " << tried.error().message;
    }
  }
};

TEST_P(Bare, EveryOperationGivesOneSampleForEachRound) {
  for (const auto operation :
       {BareOperation::Message, BareOperation::WriteMessage, BareOperation::WriteImmediate,
        BareOperation::WriteRead, BareOperation::WriteDelivery, BareOperation::WriteCommit}) {
    for (const std::size_t bytes : {std::size_t{64}, std::size_t{65'536}}) {
      BareOptions options;
      options.provider = GetParam();
      options.operation = operation;
      options.bytes = bytes;
      options.rounds = 30;
      options.warm_up = 3;
      const auto samples = bare_latencies(options);
      if (operation == BareOperation::WriteCommit && GetParam() != BareProvider::Tcp) {
        ASSERT_FALSE(samples.ok());
        EXPECT_EQ(samples.code(), ErrorCode::Unsupported);
        continue;
      }
      ASSERT_TRUE(samples.ok()) << to_string(operation) << " " << bytes << ": "
                                << samples.error().message;
      ASSERT_EQ(samples->size(), options.rounds);
      EXPECT_GT(std::accumulate(samples->begin(), samples->end(), std::uint64_t{0}), 0u);
    }
  }
}

TEST_P(Bare, PersistingTakesPartInOperationsWithAReply) {
  BareOptions options;
  options.provider = GetParam();
  options.persist = true;
  options.rounds = 30;
  options.warm_up = 1;
  for (const auto operation : {BareOperation::Message, BareOperation::WriteMessage}) {
    options.operation = operation;
    options.bytes = 1000;
    const auto samples = bare_latencies(options);
    EXPECT_EQ(samples.ok(), can_flush_lines());
  }
  options.operation = BareOperation::WriteRead;
  EXPECT_FALSE(bare_latencies(options).ok());
}

TEST_P(Bare, BandwidthIsMeasured) {
  BareBandwidthOptions options;
  options.provider = GetParam();
  options.total_bytes = std::uint64_t{8} << 20;
  for (const std::size_t bytes : {std::size_t{256}, std::size_t{16'384}, std::size_t{1} << 20}) {
    options.bytes = bytes;
    if (bytes == 256) options.total_bytes = 256 * 2000;
    const auto rate = bare_bandwidth(options);
    ASSERT_TRUE(rate.ok()) << rate.error().message;
    EXPECT_GT(*rate, 0.0);
    options.total_bytes = std::uint64_t{8} << 20;
  }
  // One write counts, behind others that do not.
  options.total_bytes = options.bytes;
  options.window = 1;
  options.warm_up = 20;
  const auto one = bare_bandwidth(options);
  ASSERT_TRUE(one.ok()) << one.error().message;
  EXPECT_GT(*one, 0.0);
  options.persist = true;
  options.places = 4;
  options.produce = true;
  EXPECT_EQ(bare_bandwidth(options).ok(), can_flush_lines());
}

TEST(BareLeftovers, AreRemovedAndThoseOfAnotherProgramAreNot) {
  const std::string own = "/dev/shm/" + bare_shm_prefix() + "left";
  const std::string others = fmt::format("/dev/shm/perdure-bare-{}0-left", ::getpid());
  for (const std::string& path : {own, others}) std::ofstream(path) << "x";
  remove_bare_leftovers();
  EXPECT_FALSE(std::filesystem::exists(own));
  EXPECT_TRUE(std::filesystem::remove(others));
}

INSTANTIATE_TEST_SUITE_P(Providers, Bare,
                         ::testing::Values(BareProvider::Tcp, BareProvider::Shm,
                                           BareProvider::Verbs),
                         [](const auto& of) { return std::string(to_string(of.param)); });

}  // namespace
}  // namespace perdure::bench
