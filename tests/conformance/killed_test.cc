// A process on one side of a connection is killed: the other side notices in bounded time, knows
// what it does not know, and goes on with the next peer.
#include "pair.h"
#include "peer_process.h"

#include <fmt/format.h>

#include <sstream>
#include <thread>

namespace perdure::conformance {
namespace {

using fabric::Access;
using fabric::Opcode;
using fabric::RemoteMemory;

class Killed : public Conformance {
 protected:
  void SetUp() override {
    ASSERT_TRUE(GetParam().open_in_process) << "every provider so far runs between processes";
    auto device = GetParam().open_in_process();
    ASSERT_TRUE(device.ok()) << device.error().message;
    device_ = std::move(device).value();
  }

  static std::string text(const RemoteMemory& remote) {
    return fmt::format("{} {} {}", remote.key, remote.base, remote.length);
  }

  std::unique_ptr<fabric::Device> device_;
};

TEST_P(Killed, ResponderDiesUnderTraffic) {
  for (int round = 0; round < 5; ++round) {
    PeerProgram peer(GetParam(), {"respond"});
    std::istringstream told(peer.read_line());
    std::string address;
    RemoteMemory remote;
    ASSERT_TRUE(told >> address >> remote.key >> remote.base >> remote.length);
    Buffer local(*device_, std::size_t{1} << 20, Access::Local);
    auto connected = device_->connect(address, {}, {}, Deadline::after(kPatience));
    ASSERT_TRUE(connected.ok()) << connected.error().message;
    Side side;
    side.endpoint = std::move(connected).value();

    // Some hundred requests go through; then the responder dies with more on their way.
    std::uint64_t posted = 0;
    std::size_t reads_done = 0;
    bool killed = false;
    const Deadline deadline = Deadline::after(kPatience);
    while (side.endpoint->connected() && !deadline.passed()) {
      const std::size_t size = posted % 5 == 0 ? 200'000 : 500;
      const std::array requests{write(local.segment(0, size), remote, 0, posted),
                                send(local.segment(0, 64), posted),
                                read(local.segment(0, size), remote, 0, posted)};
      auto taken = side.endpoint->post(requests);
      if (taken.ok() && *taken > 0) ++posted;
      side.poll();
      reads_done = side.count(Opcode::Read);
      if (reads_done > 100 + static_cast<std::size_t>(round) * 7 && !killed) {
        peer.kill();
        killed = true;
      }
    }
    EXPECT_TRUE(killed);
    EXPECT_FALSE(side.endpoint->connected()) << "round " << round;
    for (int i = 0; i < 100; ++i) side.poll();
    for (const auto& completion : side.completions) {
      if (completion.error.has_value()) {
        EXPECT_EQ(*completion.error, ErrorCode::OutcomeUnknown);
      }
    }
    EXPECT_FALSE(side.endpoint->post({}).ok());
  }
}

TEST_P(Killed, RequesterDiesUnderTrafficAndTheNextOneIsServed) {
  Buffer memory(*device_, std::size_t{1} << 20, Access::RemoteReadWrite);
  Buffer inbox(*device_, 64 * 1024, Access::Local);
  auto listener = device_->listen("", {});
  ASSERT_TRUE(listener.ok()) << listener.error().message;
  const RemoteMemory remote = memory.remote();
  for (std::size_t round = 0; round < 8; ++round) {
    PeerProgram peer(GetParam(), {"request", (*listener)->address(), std::to_string(remote.key),
                                  std::to_string(remote.base), std::to_string(remote.length)});
    auto incoming = (*listener)->next(Deadline::after(kPatience));
    ASSERT_TRUE(incoming.ok()) << incoming.error().message;
    auto accepted = (*incoming)->accept(Deadline::after(kPatience));
    ASSERT_TRUE(accepted.ok()) << accepted.error().message;
    Side side;
    side.endpoint = std::move(accepted).value();
    for (std::uint64_t i = 0; i < 32; ++i) {
      ASSERT_TRUE(side.endpoint->post_receive(inbox.segment(i * 1024, 1024), i).ok());
    }
    std::size_t messages = 0;
    bool killed = false;
    const Deadline deadline = Deadline::after(kPatience);
    while (side.endpoint->connected() && !deadline.passed()) {
      side.poll();
      for (const auto& completion : side.completions) {
        if (completion.error.has_value()) continue;
        ++messages;
        (void)side.endpoint->post_receive(inbox.segment(completion.context * 1024, 1024),
                                          completion.context);
      }
      side.completions.clear();
      if (messages > 50 + round * 13 && !killed) {
        peer.kill();
        killed = true;
      }
    }
    EXPECT_TRUE(killed) << "round " << round;
    EXPECT_FALSE(side.endpoint->connected()) << "round " << round;
  }
}

TEST_P(Killed, PeerOfASleeperDies) {
  auto listener = device_->listen("", {});
  ASSERT_TRUE(listener.ok()) << listener.error().message;
  PeerProgram peer(GetParam(), {"collect", (*listener)->address()});
  auto incoming = (*listener)->next(Deadline::after(kPatience));
  ASSERT_TRUE(incoming.ok()) << incoming.error().message;
  auto accepted = (*incoming)->accept(Deadline::after(kPatience));
  ASSERT_TRUE(accepted.ok());
  Side side;
  side.endpoint = std::move(accepted).value();
  ASSERT_EQ(peer.read_line(), "sleeping");
  std::thread killer([&] { peer.kill(); });
  fabric::Endpoint* const one = side.endpoint.get();
  const Deadline deadline = Deadline::after(kPatience);
  while (side.endpoint->connected() && !deadline.passed()) {
    fabric::wait_any({&one, 1}, std::chrono::seconds(60));
    side.poll();
  }
  killer.join();
  EXPECT_FALSE(side.endpoint->connected());
}

TEST_P(Killed, SleeperInAnotherProcessIsWokenByTheEnd) {
  auto listener = device_->listen("", {});
  ASSERT_TRUE(listener.ok()) << listener.error().message;
  PeerProgram peer(GetParam(), {"collect", (*listener)->address()});
  auto incoming = (*listener)->next(Deadline::after(kPatience));
  ASSERT_TRUE(incoming.ok()) << incoming.error().message;
  auto accepted = (*incoming)->accept(Deadline::after(kPatience));
  ASSERT_TRUE(accepted.ok());
  ASSERT_EQ(peer.read_line(), "sleeping");
  accepted->reset();
  EXPECT_EQ(peer.read_line(), "awake");
}

PERDURE_CONFORMANCE_SUITE(Killed);

}  // namespace
}  // namespace perdure::conformance
