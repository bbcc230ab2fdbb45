// Queues have ends: what is refused, what waits, and that nothing is lost.
#include "pair.h"

#include <atomic>
#include <thread>

namespace perdure::conformance {
namespace {

using fabric::Access;
using fabric::EndpointOptions;
using fabric::Opcode;

class LimitsTest : public Conformance {
 protected:
  void open(const PairOptions& options) {
    auto pair = connect_pair(GetParam(), options);
    ASSERT_TRUE(pair.ok()) << pair.error().message;
    pair_ = std::move(pair).value();
    local_.emplace(*pair_->devices.client, kBytes, Access::Local);
    remote_.emplace(*pair_->devices.server, kBytes, Access::RemoteReadWrite);
  }
  void TearDown() override {
    if (pair_) pair_->client.endpoint.reset();
    if (pair_) pair_->server.endpoint.reset();
  }

  static constexpr std::size_t kBytes = std::size_t{1} << 20;
  std::unique_ptr<Pair> pair_;
  std::optional<Buffer> local_;
  std::optional<Buffer> remote_;
};

TEST_P(LimitsTest, PostTakesNoMoreThanTheDepthAndTheRestAfterPolling) {
  open({.server = {}, .client = {.send_depth = 16, .receive_depth = 16}});
  const std::size_t depth = pair_->client.endpoint->limits().send_depth;
  ASSERT_GE(depth, 1u);
  std::vector<fabric::WorkRequest> batch;
  for (std::uint64_t i = 0; i < depth + 50; ++i) {
    batch.push_back(write(local_->segment(0, 4000), remote_->remote(), 0, i));
  }
  // Send: more than fit. Expect: a part is taken, and again a part after polling.
  auto taken = pair_->client.endpoint->post(batch);
  ASSERT_TRUE(taken.ok());
  EXPECT_LE(*taken, depth);
  EXPECT_GE(*taken, 1u);
  std::size_t posted = *taken;
  ASSERT_TRUE(pair_->pump([&] {
    if (posted < batch.size()) {
      auto more = pair_->client.endpoint->post(std::span(batch).subspan(posted));
      EXPECT_TRUE(more.ok());
      if (more.ok()) posted += *more;
    }
    return pair_->client.completions.size() == batch.size();
  }));
  for (std::uint64_t i = 0; i < batch.size(); ++i) {
    EXPECT_EQ(pair_->client.completions[i].context, i);
  }
}

TEST_P(LimitsTest, DepthOfOneCarriesAnyNumberOfUnsignalledRequests) {
  open({.server = {}, .client = {.send_depth = 1, .receive_depth = 1}});
  for (std::uint64_t i = 0; i < 300; ++i) {
    auto silent = write(local_->segment(0, i % 2 == 0 ? 16 : 3000), remote_->remote(), 0, i);
    silent.signalled = false;
    ASSERT_TRUE(pair_->post(silent)) << i;
  }
  EXPECT_EQ(pair_->client.errors(), 0u);
}

TEST_P(LimitsTest, ReceivesBeyondTheDepthAreQueueFull) {
  open({.server = {.send_depth = 16, .receive_depth = 8}, .client = {}});
  const std::size_t depth = pair_->server.endpoint->limits().receive_depth;
  for (std::size_t i = 0; i < depth; ++i) {
    ASSERT_TRUE(pair_->server.endpoint->post_receive(remote_->segment(0, 64), i).ok()) << i;
  }
  const auto beyond = pair_->server.endpoint->post_receive(remote_->segment(0, 64), depth);
  ASSERT_FALSE(beyond.ok());
  EXPECT_EQ(beyond.code(), ErrorCode::QueueFull);
  // Receive: one message. Expect: one buffer may be posted again.
  ASSERT_NE(pair_->run(send(local_->segment(0, 8), 1)), nullptr);
  ASSERT_TRUE(pair_->pump([&] { return pair_->server.count(Opcode::Receive) == 1; }));
  EXPECT_TRUE(pair_->server.endpoint->post_receive(remote_->segment(0, 64), depth).ok());
}

TEST_P(LimitsTest, MessagesWaitForReceiveBuffersAndNoneIsLost) {
  open({});
  constexpr std::uint64_t kMessages = 100;
  constexpr std::size_t kSize = 3000;
  for (std::uint64_t i = 0; i < kMessages; ++i) {
    local_->fill(i, i * kSize, kSize);
    auto message = send(local_->segment(i * kSize, kSize), i);
    auto taken = pair_->client.endpoint->post({&message, 1});
    ASSERT_TRUE(taken.ok());
    ASSERT_EQ(*taken, 1u) << i;
  }
  // Nothing is received while no buffer is posted, however often both sides poll.
  for (int i = 0; i < 2000; ++i) {
    pair_->client.poll();
    pair_->server.poll();
  }
  EXPECT_EQ(pair_->server.count(Opcode::Receive), 0u);
  EXPECT_TRUE(pair_->client.endpoint->connected());

  for (std::uint64_t i = 0; i < kMessages; ++i) {
    ASSERT_TRUE(pair_->server.endpoint->post_receive(remote_->segment(i * kSize, kSize), i).ok());
    ASSERT_TRUE(pair_->pump([&] { return pair_->server.find(Opcode::Receive, i) != nullptr; }))
        << i;
    EXPECT_TRUE(remote_->holds(i, i * kSize, kSize)) << i;
  }
}

TEST_P(LimitsTest, WriteBehindAWaitingMessageDoesNotOvertakeIt) {
  open({});
  remote_->clear();
  local_->fill(5, 0, 64);
  Buffer inbox(*pair_->devices.server, 4096, Access::Local);
  ASSERT_TRUE(pair_->post(send(local_->segment(0, 64), 1)));
  ASSERT_TRUE(pair_->post(write(local_->segment(0, 64), remote_->remote(), 0, 2)));
  for (int i = 0; i < 2000; ++i) {
    pair_->client.poll();
    pair_->server.poll();
  }
  EXPECT_FALSE(remote_->holds(5, 0, 64));
  ASSERT_TRUE(pair_->server.endpoint->post_receive(inbox.segment(0, 64), 7).ok());
  EXPECT_TRUE(pair_->pump([&] { return remote_->holds(5, 0, 64); }));
  EXPECT_TRUE(pair_->pump([&] { return pair_->server.find(Opcode::Receive, 7) != nullptr; }));
  pair_->server.endpoint->disconnect();
}

TEST_P(LimitsTest, ImmediateWaitsForAReceiveBuffer) {
  open({});
  ASSERT_TRUE(pair_->post(write_immediate(local_->segment(0, 64), remote_->remote(), 0, 77, 1)));
  for (int i = 0; i < 2000; ++i) {
    pair_->client.poll();
    pair_->server.poll();
  }
  EXPECT_EQ(pair_->server.count(Opcode::Receive), 0u);
  ASSERT_TRUE(pair_->server.endpoint->post_receive(remote_->segment(4096, 64), 3).ok());
  ASSERT_TRUE(pair_->pump([&] { return pair_->server.find(Opcode::Receive, 3) != nullptr; }));
  EXPECT_EQ(pair_->server.find(Opcode::Receive, 3)->immediate, 77u);
  // The responder flushes what the completion says: it has to be what was written.
  EXPECT_EQ(pair_->server.find(Opcode::Receive, 3)->length, GetParam().immediate_length(64));
}

TEST_P(LimitsTest, TransferBeyondTheLimitIsRefusedBeforeItIsSent) {
  open({});
  const auto limit = pair_->client.endpoint->limits().transfer_bytes_max;
  ASSERT_GE(limit, std::uint64_t{64} << 20);
  auto huge = send({local_->at(0), limit + 1, nullptr}, 1);
  const auto taken = pair_->client.endpoint->post({&huge, 1});
  ASSERT_FALSE(taken.ok());
  EXPECT_EQ(taken.code(), ErrorCode::InvalidArgument);
  EXPECT_TRUE(pair_->client.endpoint->connected());
}

TEST_P(LimitsTest, InvalidRequestInABatchStopsTheBatchBeforeIt) {
  open({});
  std::vector<fabric::WorkRequest> batch(3, write(local_->segment(0, 64), remote_->remote(), 0, 1));
  batch[1].segments[0].length = pair_->client.endpoint->limits().transfer_bytes_max + 1;
  auto taken = pair_->client.endpoint->post(batch);
  // Either the batch stops before the wrong request, or all of it is refused: never behind it.
  if (taken.ok()) {
    EXPECT_EQ(*taken, 1u);
  }
  EXPECT_FALSE(pair_->client.endpoint->post(std::span(batch).subspan(1)).ok());
}

TEST_P(LimitsTest, ManyConnectionsAtOnce) {
  constexpr std::size_t kConnections = 40;
  auto devices = GetParam().open();
  ASSERT_TRUE(devices.ok()) << devices.error().message;
  auto listener = devices->server->listen("", {});
  ASSERT_TRUE(listener.ok()) << listener.error().message;
  // Connect: several threads at once, each several times.
  std::vector<std::unique_ptr<fabric::Endpoint>> clients(kConnections);
  std::atomic<std::size_t> failures{0};
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::size_t i = t; i < kConnections; i += 4) {
        auto tag = static_cast<std::byte>(i);
        auto made = devices->client->connect((*listener)->address(), {&tag, 1}, {},
                                             Deadline::after(kPatience));
        if (made.ok()) clients[i] = std::move(made).value();
        failures += !made.ok();
      }
    });
  }
  std::vector<std::unique_ptr<fabric::Endpoint>> servers(kConnections);
  for (std::size_t i = 0; i < kConnections; ++i) {
    auto incoming = (*listener)->next(Deadline::after(kPatience));
    ASSERT_TRUE(incoming.ok()) << incoming.error().message;
    const auto tag = static_cast<std::size_t>((*incoming)->private_data()[0]);
    auto accepted = (*incoming)->accept(Deadline::after(kPatience));
    ASSERT_TRUE(accepted.ok()) << accepted.error().message;
    servers[tag] = std::move(accepted).value();
  }
  for (auto& thread : threads) thread.join();
  ASSERT_EQ(failures, 0u);

  // Each sends its own number; each server end gets exactly that.
  Buffer out(*devices->client, 4096, Access::Local);
  Buffer in(*devices->server, kConnections * 64, Access::Local);
  std::size_t arrived = 0;
  for (std::size_t i = 0; i < kConnections; ++i) {
    ASSERT_TRUE(servers[i]->post_receive(in.segment(i * 64, 64), i).ok());
    auto message = send(out.segment(0, i + 1), i);
    ASSERT_TRUE(clients[i]->post({&message, 1}).ok());
  }
  const Deadline deadline = Deadline::after(kPatience);
  while (arrived < kConnections && !deadline.passed()) {
    for (std::size_t i = 0; i < kConnections; ++i) {
      std::array<fabric::Completion, 4> batch;
      (void)clients[i]->poll(batch);
      const std::size_t count = servers[i]->poll(batch);
      for (std::size_t k = 0; k < count; ++k) {
        EXPECT_EQ(batch[k].context, i);
        EXPECT_EQ(batch[k].length, i + 1);
        ++arrived;
      }
    }
  }
  EXPECT_EQ(arrived, kConnections);
}

PERDURE_CONFORMANCE_SUITE(LimitsTest);

}  // namespace
}  // namespace perdure::conformance
