// What RNICs do beside the verbs, and what holds all the same.
#include "pair.h"

#include <unistd.h>

#include "core/bytes.h"
#include "persist/wire.h"
#include "testing/process.h"

namespace perdure::conformance {
namespace {

using fabric::Access;
using fabric::Opcode;

class RnicHabits : public Conformance {
 protected:
  void SetUp() override {
    auto pair = connect_pair(GetParam());
    ASSERT_TRUE(pair.ok()) << pair.error().message;
    pair_ = std::move(pair).value();
    local_.emplace(*pair_->devices.client, kBytes, Access::Local);
    remote_.emplace(*pair_->devices.server, kBytes, Access::RemoteReadWrite);
    inbox_.emplace(*pair_->devices.server, kBytes, Access::Local);
  }
  void TearDown() override {
    if (pair_) pair_->client.endpoint.reset();
    if (pair_) pair_->server.endpoint.reset();
  }

  /// Sends a message to the start of the inbox, and a READ behind it whose answer is awaited; the
  /// responder does not poll meanwhile.
  void send_unpolled(std::uint64_t round, std::size_t bytes) {
    inbox_->clear();
    // Both buffers are posted at once, and a provider may tell the sender of them while it polls:
    // that a first message has come through says that the second one is not held back.
    ASSERT_TRUE(pair_->server.endpoint->post_receive(inbox_->segment(4096, 256), kFirst).ok());
    ASSERT_TRUE(pair_->server.endpoint->post_receive(inbox_->segment(0, 256), round).ok());
    pair_->server.completions.clear();
    pair_->client.completions.clear();
    ASSERT_TRUE(pair_->post(send(local_->segment(0, 8), kFirst)));
    ASSERT_TRUE(
        pair_->pump([&] { return pair_->server.find(Opcode::Receive, kFirst) != nullptr; }));
    local_->fill(round, 0, bytes);
    const std::array requests{send(local_->segment(0, bytes), round),
                              read(local_->segment(kBytes / 2, 8), remote_->remote(), 0, round)};
    const auto taken = pair_->client.endpoint->post(requests);
    ASSERT_TRUE(taken.ok());
    ASSERT_EQ(*taken, requests.size());
    const Deadline deadline = Deadline::after(kPatience);
    while (pair_->client.find(Opcode::Read, round) == nullptr && !deadline.passed()) {
      pair_->client.poll();
    }
    ASSERT_NE(pair_->client.find(Opcode::Read, round), nullptr);
    ASSERT_EQ(pair_->server.find(Opcode::Receive, round), nullptr);
  }

  static constexpr std::uint64_t kFirst = 1000;
  static constexpr std::size_t kBytes = std::size_t{1} << 20;
  std::unique_ptr<Pair> pair_;
  std::optional<Buffer> local_;
  std::optional<Buffer> remote_;
  std::optional<Buffer> inbox_;
};

/// What replay rests on: recovery looks into the buffer, and nobody will ever poll.
TEST_P(RnicHabits, AMessageThatCanBeReplayedIsInItsBufferBeforeItIsPolled) {
  if (GetParam().responder_polls) GTEST_SKIP() << "nothing moves here unless the responder polls";
  for (std::uint64_t round = 1; round <= 50; ++round) {
    ASSERT_NO_FATAL_FAILURE(send_unpolled(round, persist::kReplayableBytesMin));
    EXPECT_TRUE(inbox_->holds(round, 0, persist::kReplayableBytesMin)) << round;
    ASSERT_TRUE(pair_->pump([&] { return pair_->server.find(Opcode::Receive, round) != nullptr; }));
  }
}

TEST_P(RnicHabits, AShorterMessageMayBeInItsCompletionAndIsInTheBufferOncePolled) {
  if (GetParam().responder_polls) GTEST_SKIP() << "nothing moves here unless the responder polls";
  constexpr std::size_t kShort = 32;
  for (std::uint64_t round = 1; round <= 50; ++round) {
    ASSERT_NO_FATAL_FAILURE(send_unpolled(round, kShort));
    if (GetParam().cqe_payload_bytes >= kShort) {
      EXPECT_FALSE(inbox_->holds(round, 0, kShort));
    }
    ASSERT_TRUE(pair_->pump([&] { return pair_->server.find(Opcode::Receive, round) != nullptr; }));
    EXPECT_TRUE(inbox_->holds(round, 0, kShort)) << round;
  }
}

TEST_P(RnicHabits, AnImmediateSaysHowManyBytesWereWritten) {
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{8}, std::size_t{5000}}) {
    ASSERT_TRUE(pair_->server.endpoint->post_receive(inbox_->segment(0, 64), bytes).ok());
    ASSERT_TRUE(
        pair_->post(write_immediate(local_->segment(0, bytes), remote_->remote(), 0, 7, bytes)));
    ASSERT_TRUE(pair_->pump([&] { return pair_->server.find(Opcode::Receive, bytes) != nullptr; }));
    EXPECT_EQ(pair_->server.find(Opcode::Receive, bytes)->length,
              GetParam().immediate_length(bytes));
  }
}

TEST_P(RnicHabits, WithoutOrderAmongWritesALaterOneIsSeenFirstNowAndThen) {
  if (GetParam().keeps_write_order) GTEST_SKIP() << "this RNIC keeps the order of WRITEs";
  std::uint64_t passed = 0;
  for (std::uint64_t round = 1; round <= 2000 && passed == 0; ++round) {
    remote_->clear();
    local_->fill(round, 0, 4096);
    const std::array requests{write(local_->segment(0, 4096), remote_->remote(), 0, round),
                              write(local_->segment(0, 8), remote_->remote(), 8192, round)};
    ASSERT_TRUE(pair_->post(requests));
    const Deadline deadline = Deadline::after(kPatience);
    while (!remote_->holds(round, 8192, 8) && !deadline.passed()) pair_->client.poll();
    passed += remote_->holds(round, 0, 4096) ? 0 : 1;
    const auto* proof =
        pair_->run(read(local_->segment(kBytes / 2, 8), remote_->remote(), 0, round));
    ASSERT_NE(proof, nullptr);
    EXPECT_TRUE(remote_->holds(round, 0, 4096) && remote_->holds(round, 8192, 8));
    pair_->client.completions.clear();
  }
  EXPECT_GT(passed, 0u);
}

TEST_P(RnicHabits, AfterAResetNothingOldIsReachedAndTheDeviceServesAgain) {
  if (!GetParam().reset) GTEST_SKIP() << "this device can not be reset from here";
  GetParam().reset(*pair_->devices.server);
  EXPECT_TRUE(pair_->pump([&] {
    return !pair_->server.endpoint->connected() && !pair_->client.endpoint->connected();
  }));
  auto listener = pair_->devices.server->listen("", {});
  ASSERT_TRUE(listener.ok()) << listener.error().message;
  auto connected = connect_to(*pair_->devices.client, **listener, pair_->server);
  ASSERT_TRUE(connected.ok()) << connected.error().message;
  pair_->client.endpoint = std::move(connected).value();
  pair_->client.completions.clear();
  // The key from before is dead, a new one lives.
  Buffer anew(*pair_->devices.server, kBytes, Access::RemoteReadWrite);
  local_->fill(3, 0, 100);
  const auto* good = pair_->run(write(local_->segment(0, 100), anew.remote(), 0, 1));
  ASSERT_NE(good, nullptr);
  EXPECT_FALSE(good->error.has_value());
  ASSERT_TRUE(pair_->post(read(local_->segment(0, 8), remote_->remote(), 0, 2)));
  ASSERT_TRUE(pair_->pump([&] { return pair_->client.find(Opcode::Read, 2) != nullptr; }));
  EXPECT_TRUE(pair_->client.find(Opcode::Read, 2)->error.has_value());
}

/// Before Linux 5.12 a fork makes registered pages copy-on-write: what the parent stores from then
/// on goes into a copy, and an RNIC sends what was there before.
TEST_P(RnicHabits, WhatIsStoredAfterAForkIsWhatIsSent) {
  local_->fill(1, 0, 8192);
  ASSERT_NE(pair_->run(write(local_->segment(0, 8192), remote_->remote(), 0, 1)), nullptr);
  auto child = test::ChildProcess::fork([]() -> int {
    for (;;) ::pause();  // it keeps the pages as they are until it is ended
  });
  ASSERT_TRUE(child.ok()) << child.error().message;
  pair_->client.completions.clear();
  local_->fill(2, 0, 8192);
  // Elsewhere: of two WRITEs to one place the earlier one may be placed last.
  const auto* sent = pair_->run(write(local_->segment(0, 8192), remote_->remote(), 65536, 2));
  ASSERT_NE(sent, nullptr);
  EXPECT_FALSE(sent->error.has_value());
  const auto* proof = pair_->run(read(local_->segment(kBytes / 2, 8), remote_->remote(), 0, 3));
  ASSERT_NE(proof, nullptr);
  EXPECT_TRUE(remote_->holds(2, 65536, 8192));
}

PERDURE_CONFORMANCE_SUITE(RnicHabits);

}  // namespace
}  // namespace perdure::conformance
