// Sleeping: whoever armed an endpoint is woken by everything that poll would show.
#include "pair.h"

#include <atomic>
#include <thread>

namespace perdure::conformance {
namespace {

using fabric::Access;
using fabric::Endpoint;
using fabric::Opcode;

class Sleep : public Conformance {
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

  /// Sleeps and polls until `reached`. The slice is long: a wake-up that is lost shows as a test
  /// that runs out of patience, not as one that is late.
  static bool sleep_until(Side& side, const std::function<bool()>& reached) {
    const Deadline deadline = Deadline::after(kPatience);
    side.poll();
    while (!reached() && !deadline.passed()) {
      Endpoint* const one = side.endpoint.get();
      fabric::wait_any({&one, 1}, std::chrono::seconds(60));
      side.poll();
    }
    return reached();
  }

  static constexpr std::size_t kBytes = std::size_t{4} << 20;
  std::unique_ptr<Pair> pair_;
  std::optional<Buffer> local_;
  std::optional<Buffer> remote_;
};

TEST_P(Sleep, PingPongOfSleepersNeverStops) {
  constexpr std::uint64_t kRounds = 1000;
  Buffer back(*pair_->devices.client, 4096, Access::Local);
  Buffer out(*pair_->devices.server, 4096, Access::Local);
  for (std::uint64_t i = 0; i < 16; ++i) {
    ASSERT_TRUE(pair_->server.endpoint->post_receive(remote_->segment(0, 64), i).ok());
    ASSERT_TRUE(pair_->client.endpoint->post_receive(back.segment(0, 64), i).ok());
  }
  const auto play = [](Side& side, const Buffer& from, const Buffer& to, bool begins) {
    bool fine = true;
    for (std::uint64_t i = 0; i < kRounds && fine; ++i) {
      auto message = send(from.segment(0, 32), i);
      message.signalled = false;
      if (begins) fine = side.endpoint->post({&message, 1}).ok();
      fine = fine && sleep_until(side, [&] { return side.count(Opcode::Receive) > 0; });
      side.completions.clear();
      fine = fine && side.endpoint->post_receive(to.segment(0, 64), i).ok();
      if (!begins) fine = fine && side.endpoint->post({&message, 1}).ok();
    }
    return fine;
  };
  std::atomic<bool> server_fine{false};
  std::thread server([&] { server_fine = play(pair_->server, out, *remote_, false); });
  EXPECT_TRUE(play(pair_->client, *local_, back, true));
  server.join();
  EXPECT_TRUE(server_fine);
}

// Where messages alone raise events, whoever sends must mark each kind of them: one that is not
// marked would find the receiver asleep.
TEST_P(Sleep, EveryKindOfMessageWakesASleeperThatHasNothingInFlight) {
  const std::array<fabric::WorkRequest, 4> kinds{
      send(local_->segment(0, 8), 1), send(local_->segment(0, 0), 2),
      write_immediate(local_->segment(0, 8), remote_->remote(), 4096, 7, 3),
      write_immediate(local_->segment(0, kBytes / 2), remote_->remote(), 4096, 8, 4)};
  std::uint64_t round = 0;
  for (const bool signalled : {true, false}) {
    for (fabric::WorkRequest message : kinds) {
      message.signalled = signalled;
      ASSERT_TRUE(pair_->server.endpoint->post_receive(remote_->segment(0, 64), ++round).ok());
      std::atomic<bool> heard{false};
      std::thread server([&] {
        sleep_until(pair_->server, [&] {
          heard = pair_->server.find(Opcode::Receive, round) != nullptr;
          return heard.load();
        });
      });
      EXPECT_TRUE(pair_->client.endpoint->post({&message, 1}).ok());
      // What waits in this process for a credit goes out by polls.
      const Deadline deadline = Deadline::after(kPatience);
      while (!heard && !deadline.passed()) pair_->client.poll();
      server.join();
      EXPECT_TRUE(heard) << to_string(message.opcode) << ", round " << round;
    }
  }
}

TEST_P(Sleep, RequesterSleepsUntilItsReadIsAnswered) {
  std::atomic<bool> stop{false};
  std::thread server([&] {
    Endpoint* const one = pair_->server.endpoint.get();
    while (!stop) {
      pair_->server.poll();
      fabric::wait_any({&one, 1}, std::chrono::milliseconds(50));
    }
  });
  for (std::uint64_t i = 0; i < 200; ++i) {
    const std::size_t size = i % 10 == 0 ? kBytes / 2 : 64;
    auto request = read(local_->segment(0, size), remote_->remote(), 0, i);
    ASSERT_TRUE(pair_->client.endpoint->post({&request, 1}).ok());
    ASSERT_TRUE(sleep_until(pair_->client, [&] {
      return pair_->client.find(Opcode::Read, i) != nullptr;
    })) << i;
    ASSERT_FALSE(pair_->client.find(Opcode::Read, i)->error.has_value());
  }
  stop = true;
  server.join();
}

TEST_P(Sleep, LongWriteGoesOnWhileBothSleepInBetween) {
  local_->fill(9, 0, kBytes);
  std::atomic<bool> stop{false};
  std::thread server([&] {
    Endpoint* const one = pair_->server.endpoint.get();
    while (!stop) {
      pair_->server.poll();
      fabric::wait_any({&one, 1}, std::chrono::milliseconds(50));
    }
  });
  auto request = write(local_->segment(0, kBytes), remote_->remote(), 0, 1);
  auto proof = read(local_->segment(0, 8), remote_->remote(), 0, 2);
  ASSERT_TRUE(pair_->client.endpoint->post({&request, 1}).ok());
  ASSERT_TRUE(pair_->client.endpoint->post({&proof, 1}).ok());
  ASSERT_TRUE(
      sleep_until(pair_->client, [&] { return pair_->client.find(Opcode::Read, 2) != nullptr; }));
  stop = true;
  server.join();
  EXPECT_TRUE(remote_->holds(9, 0, kBytes));
}

TEST_P(Sleep, ArmSaysFalseWhenSomethingIsThereAlready) {
  ASSERT_TRUE(pair_->server.endpoint->post_receive(remote_->segment(0, 64), 1).ok());
  ASSERT_NE(pair_->run(send(local_->segment(0, 8), 1)), nullptr);
  // Expect: either arm refuses, or the descriptor is readable at once; wait_any returns.
  ASSERT_TRUE(
      sleep_until(pair_->server, [&] { return pair_->server.count(Opcode::Receive) == 1; }));
}

TEST_P(Sleep, EndOfTheConnectionWakesASleeper) {
  // With and without a receive buffer posted: the end must show either way.
  for (const bool with_buffer : {false, true}) {
    if (with_buffer) {
      auto pair = connect_pair(GetParam());
      ASSERT_TRUE(pair.ok());
      pair_->client.endpoint.reset();
      pair_->server.endpoint.reset();
      local_.reset();
      remote_.reset();
      pair_ = std::move(pair).value();
      remote_.emplace(*pair_->devices.server, kBytes, Access::RemoteReadWrite);
      ASSERT_TRUE(pair_->server.endpoint->post_receive(remote_->segment(0, 64), 1).ok());
    }
    std::atomic<bool> woken{false};
    std::thread server([&] {
      woken = sleep_until(pair_->server, [&] { return !pair_->server.endpoint->connected(); });
    });
    pair_->client.endpoint->disconnect();
    pair_->client.endpoint.reset();
    server.join();
    EXPECT_TRUE(woken) << with_buffer;
  }
}

TEST_P(Sleep, WaitAnyWakesForAnyOfSeveral) {
  Side second;
  auto endpoint = connect_to(*pair_->devices.client, *pair_->listener, second);
  ASSERT_TRUE(endpoint.ok());
  ASSERT_TRUE(pair_->server.endpoint->post_receive(remote_->segment(0, 64), 1).ok());
  ASSERT_TRUE(second.endpoint->post_receive(remote_->segment(64, 64), 2).ok());
  std::atomic<bool> woken{false};
  std::thread server([&] {
    const std::array<Endpoint*, 2> both{pair_->server.endpoint.get(), second.endpoint.get()};
    const Deadline deadline = Deadline::after(kPatience);
    while (second.count(Opcode::Receive) == 0 && !deadline.passed()) {
      fabric::wait_any(both, std::chrono::seconds(60));
      pair_->server.poll();
      second.poll();
    }
    woken = second.count(Opcode::Receive) == 1;
  });
  auto message = send(local_->segment(0, 8), 1);
  ASSERT_TRUE((*endpoint)->post({&message, 1}).ok());
  Side first;
  first.endpoint = std::move(*endpoint);
  const Deadline deadline = Deadline::after(kPatience);
  while (!woken && !deadline.passed()) first.poll();
  server.join();
  EXPECT_TRUE(woken);
}

PERDURE_CONFORMANCE_SUITE(Sleep);

}  // namespace
}  // namespace perdure::conformance
