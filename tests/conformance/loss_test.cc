// Connections end: in the middle of a transfer, politely, and before they begin.
#include "pair.h"

#include <thread>

namespace perdure::conformance {
namespace {

using fabric::Access;
using fabric::Opcode;

class Loss : public Conformance {
 protected:
  void SetUp() override {
    auto pair = connect_pair(GetParam());
    ASSERT_TRUE(pair.ok()) << pair.error().message;
    pair_ = std::move(pair).value();
    local_.emplace(*pair_->devices.client, kBytes, Access::Local);
    remote_.emplace(*pair_->devices.server, kBytes, Access::RemoteReadWrite);
  }
  void TearDown() override {
    if (pair_) pair_->client.endpoint.reset();
    if (pair_) pair_->server.endpoint.reset();
  }

  /// Everything posted has completed, and what did not succeed is OutcomeUnknown.
  void expect_all_complete(std::uint64_t requests) {
    ASSERT_TRUE(pair_->pump([&] { return pair_->client.completions.size() >= requests; }));
    EXPECT_EQ(pair_->client.completions.size(), requests);
    for (const auto& completion : pair_->client.completions) {
      if (completion.error.has_value()) {
        EXPECT_EQ(*completion.error, ErrorCode::OutcomeUnknown);
      }
    }
  }

  static constexpr std::size_t kBytes = std::size_t{32} << 20;
  std::unique_ptr<Pair> pair_;
  std::optional<Buffer> local_;
  std::optional<Buffer> remote_;
};

TEST_P(Loss, PeerDestroyedInTheMiddleOfALongWrite) {
  ASSERT_TRUE(pair_->post(write(local_->segment(0, kBytes), remote_->remote(), 0, 1)));
  ASSERT_TRUE(pair_->post(read(local_->segment(0, 8), remote_->remote(), 0, 2)));
  for (int i = 0; i < 3; ++i) {
    pair_->client.poll();
    pair_->server.poll();
  }
  pair_->server.endpoint.reset();
  ASSERT_TRUE(pair_->pump([&] { return !pair_->client.endpoint->connected(); }));
  expect_all_complete(2);
  if (GetParam().responder_polls) {
    EXPECT_TRUE(pair_->client.find(Opcode::Read, 2)->error.has_value());
  }
}

// As one thread does with a thousand of them.
TEST_P(Loss, WhoPollsSeldomIsToldToo) {
  constexpr int kPolls = 1000;
  pair_->server.endpoint.reset();
  int polls = 0;
  while (polls < kPolls && pair_->client.endpoint->connected()) {
    pair_->client.poll();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ++polls;
  }
  EXPECT_FALSE(pair_->client.endpoint->connected());
}

TEST_P(Loss, OwnDisconnectCompletesWhatIsInFlight) {
  for (std::uint64_t i = 0; i < 10; ++i) {
    ASSERT_TRUE(pair_->post(read(local_->segment(0, 4096), remote_->remote(), 0, i)));
  }
  pair_->client.endpoint->disconnect();
  pair_->client.endpoint->disconnect();  // harmless when repeated
  EXPECT_FALSE(pair_->client.endpoint->connected());
  expect_all_complete(10);
  if (GetParam().responder_polls) {
    EXPECT_EQ(pair_->client.errors(), 10u);
  }
  auto more = read(local_->segment(0, 8), remote_->remote(), 0, 11);
  const auto taken = pair_->client.endpoint->post({&more, 1});
  ASSERT_FALSE(taken.ok());
  EXPECT_EQ(taken.code(), ErrorCode::Disconnected);
  EXPECT_FALSE(pair_->client.endpoint->post_receive(local_->segment(0, 64), 1).ok());
  // The other side notices too.
  EXPECT_TRUE(pair_->pump([&] { return !pair_->server.endpoint->connected(); }));
}

TEST_P(Loss, OwnDisconnectInTheMiddleOfALongRead) {
  ASSERT_TRUE(pair_->post(read(local_->segment(0, kBytes), remote_->remote(), 0, 1)));
  for (int i = 0; i < 5; ++i) {
    pair_->client.poll();
    pair_->server.poll();
  }
  pair_->client.endpoint->disconnect();
  expect_all_complete(1);
  // The memory is free again: nothing writes to it any more.
  local_->fill(4, 0, kBytes);
  for (int i = 0; i < 100; ++i) {
    pair_->client.poll();
    pair_->server.poll();
  }
  EXPECT_TRUE(local_->holds(4, 0, kBytes));
}

TEST_P(Loss, UnsignalledRequestsCompleteWithErrorsWhenTheConnectionGoes) {
  for (std::uint64_t i = 0; i < 10; ++i) {
    auto silent = read(local_->segment(0, 4096), remote_->remote(), 0, i);
    silent.signalled = false;
    ASSERT_TRUE(pair_->post(silent));
  }
  pair_->client.endpoint->disconnect();
  for (int i = 0; i < 100; ++i) pair_->client.poll();
  // Those that succeeded say nothing; those that did not all say so.
  EXPECT_EQ(pair_->client.errors(), pair_->client.completions.size());
  if (GetParam().responder_polls) {
    EXPECT_EQ(pair_->client.errors(), 10u);
  }
}

TEST_P(Loss, MessagesSentBeforeTheEndStillArrive) {
  Buffer inbox(*pair_->devices.server, 64 * 64, Access::Local);
  constexpr std::uint64_t kMessages = 20;
  for (std::uint64_t i = 0; i < kMessages; ++i) {
    ASSERT_TRUE(pair_->server.endpoint->post_receive(inbox.segment(i * 64, 64), i).ok());
  }
  for (std::uint64_t i = 0; i < kMessages; ++i) {
    local_->fill(i, 0, 64);
    auto* sent = pair_->run(send(local_->segment(0, 64), i));
    ASSERT_NE(sent, nullptr);
    ASSERT_FALSE(sent->error.has_value());
  }
  pair_->client.endpoint.reset();
  ASSERT_TRUE(pair_->pump([&] { return pair_->server.count(Opcode::Receive) >= kMessages; }));
  for (std::uint64_t i = 0; i < kMessages; ++i) {
    EXPECT_FALSE(pair_->server.find(Opcode::Receive, i)->error.has_value()) << i;
    EXPECT_TRUE(inbox.holds(i, i * 64, 64)) << i;
  }
}

TEST_P(Loss, MessageLongerThanItsBufferEndsTheConnection) {
  Buffer inbox(*pair_->devices.server, 8192, Access::Local);
  inbox.fill(6, 0, 8192);
  ASSERT_TRUE(pair_->server.endpoint->post_receive(inbox.segment(0, 64), 1).ok());
  ASSERT_TRUE(pair_->post(send(local_->segment(0, 4096), 1)));
  EXPECT_TRUE(pair_->pump([&] { return !pair_->server.endpoint->connected(); }));
  EXPECT_TRUE(pair_->pump([&] { return !pair_->client.endpoint->connected(); }));
  const auto* received = pair_->server.find(Opcode::Receive, 1);
  EXPECT_TRUE(received == nullptr || received->error.has_value());
  // Nothing was placed behind the buffer.
  Buffer same(*pair_->devices.server, 8192, Access::Local);
  same.fill(6, 0, 8192);
  EXPECT_TRUE(std::equal(inbox.at(64), inbox.at(0) + 8192, same.at(64)));
}

TEST_P(Loss, ConnectingToNobodyFails) {
  auto listener = pair_->devices.server->listen("", {});
  ASSERT_TRUE(listener.ok());
  const std::string address = (*listener)->address();
  listener->reset();
  const auto connected =
      pair_->devices.client->connect(address, {}, {}, Deadline::after(std::chrono::seconds(5)));
  ASSERT_FALSE(connected.ok());
  EXPECT_TRUE(connected.code() == ErrorCode::Disconnected ||
              connected.code() == ErrorCode::TimedOut);
}

TEST_P(Loss, RejectedPeerIsDisconnected) {
  Result<std::unique_ptr<fabric::Endpoint>> connected = Error{};
  std::thread other([&] {
    connected = pair_->devices.client->connect(pair_->listener->address(), {}, {},
                                               Deadline::after(kPatience));
  });
  {
    auto incoming = pair_->listener->next(Deadline::after(kPatience));
    EXPECT_TRUE(incoming.ok());
  }  // destroyed unaccepted
  other.join();
  ASSERT_FALSE(connected.ok());
  EXPECT_EQ(connected.code(), ErrorCode::Disconnected);
}

TEST_P(Loss, ListenerWithoutPeersTimesOut) {
  const auto incoming = pair_->listener->next(Deadline::after(std::chrono::milliseconds(20)));
  ASSERT_FALSE(incoming.ok());
  EXPECT_EQ(incoming.code(), ErrorCode::TimedOut);
}

TEST_P(Loss, PrivateDataReachesTheListenerAndIsLimited) {
  for (const std::size_t length : {std::size_t{0}, std::size_t{1}, fabric::kPrivateBytesMax}) {
    std::vector<std::byte> given(length);
    for (std::size_t i = 0; i < length; ++i) given[i] = static_cast<std::byte>(i * 7 + 1);
    Result<std::unique_ptr<fabric::Endpoint>> connected = Error{};
    std::thread other([&] {
      connected = pair_->devices.client->connect(pair_->listener->address(), given, {},
                                                 Deadline::after(kPatience));
    });
    auto incoming = pair_->listener->next(Deadline::after(kPatience));
    ASSERT_TRUE(incoming.ok());
    const auto seen = (*incoming)->private_data();
    EXPECT_TRUE(std::equal(seen.begin(), seen.end(), given.begin(), given.end())) << length;
    auto accepted = (*incoming)->accept(Deadline::after(kPatience));
    EXPECT_TRUE(accepted.ok());
    other.join();
    EXPECT_TRUE(connected.ok());
  }
  const std::vector<std::byte> much(fabric::kPrivateBytesMax + 1);
  const auto refused = pair_->devices.client->connect(pair_->listener->address(), much, {},
                                                      Deadline::after(kPatience));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.code(), ErrorCode::InvalidArgument);
}

PERDURE_CONFORMANCE_SUITE(Loss);

}  // namespace
}  // namespace perdure::conformance
