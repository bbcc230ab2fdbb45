// Every design passes the suite, on every fabric that it can stand on; designs with a bug do not.
#include "broken.h"
#include "suite.h"
#include "testing/soak.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace perdure::rpc::models {

namespace {

class RpcDesign : public ::testing::TestWithParam<const Design*> {
 protected:
  static const Design& design() { return *GetParam(); }
  static std::uint64_t calls() { return test::rounds(2000, 100'000); }

  static void expect_passes_on_devices(Transport transport) {
    if (design().needs_send_flush) {
      auto link = device_link(transport);
      if (!link.ok()) GTEST_SKIP() << link.error().message;
      EXPECT_NE(run_suite(design(), **link, {.calls = 1}), "");
      return;
    }
    for (const std::size_t window : {std::size_t{1}, kWindowMax}) {
      auto link = device_link(transport);
      if (!link.ok() && link.error().code == ErrorCode::Unsupported) {
        GTEST_SKIP() << link.error().message;
      }
      ASSERT_TRUE(link.ok()) << link.error().message;
      const SuiteOptions options{.calls = calls(), .window = window, .payload_bytes_max = 4000};
      EXPECT_EQ(run_suite(design(), **link, options), "") << "window " << window;
    }
  }
};

TEST_P(RpcDesign, AnswersEachCallOnceInTheEmulatedWorld) {
  for (const std::size_t window : {std::size_t{1}, std::size_t{3}, kWindowMax}) {
    const std::uint64_t seed = 100 + window;
    const auto link = world_link(seed);
    const SuiteOptions options{.calls = calls(), .window = window, .seed = seed};
    EXPECT_EQ(run_suite(design(), *link, options), "") << "window " << window;
  }
}

TEST_P(RpcDesign, NeedsTheOrderOfWritesOnlyIfItSaysSo) {
  std::uint64_t failures = 0;
  std::string last;
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    const auto link = world_link(seed, WriteOrder::Unknown);
    const SuiteOptions options{.calls = 500, .window = 4, .seed = seed};
    const std::string failure = run_suite(design(), *link, options);
    failures += failure.empty() ? 0 : 1;
    if (!failure.empty()) last = failure;
  }
  EXPECT_EQ(failures > 0, design().needs_write_order) << last;
}

TEST_P(RpcDesign, TakesPayloadsUpToItsLargest) {
  const auto link = world_link(7);
  const SuiteOptions options{.calls = test::rounds(20, 1000),
                             .window = 2,
                             .payload_bytes_max = design().payload_bytes_max,
                             .seed = 7};
  EXPECT_EQ(run_suite(design(), *link, options), "");
}

TEST_P(RpcDesign, AnswersEachCallOnceOverShm) { expect_passes_on_devices(Transport::Shm); }

TEST_P(RpcDesign, AnswersEachCallOnceOverTcp) { expect_passes_on_devices(Transport::Tcp); }

TEST_P(RpcDesign, AnswersEachCallOnceWithWhatTheArtifactDoesOtherwise) {
  SuiteOptions options{.calls = calls() / 4, .window = 4, .seed = 5};
  options.confounders.answers_before_flush = true;
  options.confounders.waits_before_mailbox = true;
  options.confounders.reads_whole_replies = true;
  options.confounders.registers_at_warm_up = true;
  const auto link = world_link(5);
  EXPECT_EQ(run_suite(design(), *link, options), "");
}

TEST_P(RpcDesign, RefusesWhatIsBeyondItsLimits) {
  const auto link = world_link(1);
  Registers registers;
  EndOptions options{link->client().device, link->client().endpoint};
  const auto open = [&] {
    const auto client = open_client(design(), options);
    const auto server = open_server(design(), options, registers);
    EXPECT_EQ(client.ok(), server.ok());
    return client.ok() ? "" : std::string(to_string(client.error().code));
  };
  const std::size_t most = design().payload_bytes_max;
  //       window                    payload
  options.window = 0;
  EXPECT_EQ(open(), "invalid-argument");
  options.window = kWindowMax + 1;
  EXPECT_EQ(open(), "invalid-argument");
  options.window = kWindowMax;
  options.payload_bytes_max = most + 1;
  EXPECT_EQ(open(), "invalid-argument");
  options.payload_bytes_max = 0;
  EXPECT_EQ(open(), "invalid-argument");
  options.payload_bytes_max = most;
  EXPECT_EQ(open(), "");
}

TEST_P(RpcDesign, TakesNoMoreCallsThanItsWindowAndNoneTooLarge) {
  const auto link = world_link(1);
  Registers registers;
  EndOptions options{link->client().device, link->client().endpoint, 2, 100};
  auto client = open_client(design(), options);
  options.device = link->server().device;
  options.endpoint = link->server().endpoint;
  auto server = open_server(design(), options, registers);
  ASSERT_TRUE(client.ok() && server.ok());
  ASSERT_TRUE((*server)->start((*client)->memory()).ok());
  ASSERT_TRUE((*client)->start((*server)->memory()).ok());
  const std::vector<std::byte> request(100, std::byte{Registers::Echo});
  std::vector<std::byte> larger = request;
  larger.push_back(std::byte{0});
  EXPECT_EQ((*client)->begin(larger).error().code, ErrorCode::InvalidArgument);
  EXPECT_TRUE((*client)->begin(request).ok());
  EXPECT_TRUE((*client)->begin(request).ok());
  // Both requests arrive, and their completions come; the server does not look.
  for (int i = 0; i < 100; ++i) ASSERT_TRUE((*client)->pump().ok());
  EXPECT_EQ((*client)->begin(request).error().code, ErrorCode::QueueFull);
  EXPECT_EQ((*client)->in_flight(), 2u);
}

INSTANTIATE_TEST_SUITE_P(Designs, RpcDesign,
                         ::testing::ValuesIn(designs().begin(), designs().end()), name_of);

/// What the suite says of a design with that bug.
std::string verdict(Bug bug) {
  const auto link = world_link(11);
  return run_suite(broken_design(bug), *link, {.calls = 2000, .window = 4, .seed = 11});
}

TEST(RpcDesignSuite, CatchesWhatIsBroken) {
  const auto says = [](Bug bug, std::string_view words) {
    const std::string said = verdict(bug);
    return said.find(words) != std::string::npos ? "" : "it said: " + said;
  };
  EXPECT_EQ(verdict(Bug::None), "");
  EXPECT_EQ(says(Bug::ReplyOfTheCallBefore, "is not its own"), "");
  EXPECT_EQ(says(Bug::RequestSlotReused, "got no reply"), "");
  EXPECT_EQ(says(Bug::ReplySlotReused, "got no reply"), "");
  EXPECT_EQ(says(Bug::ChecksumIgnored, "is not its own"), "");
  EXPECT_EQ(says(Bug::ExecutedTwice, "is not its own"), "");
  EXPECT_EQ(says(Bug::WriteNotDeclared, "4000 WRITEs of the server in 2000 calls, declared 2000"),
            "");
}

}  // namespace
}  // namespace perdure::rpc::models
