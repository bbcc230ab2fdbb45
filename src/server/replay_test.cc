// Receive buffers in persistent memory: what arrived in them is applied when its session ends, and
// after a power failure.
#include "server/service.h"

#include <gtest/gtest.h>

#include <cstring>

#include "persist/wire.h"
#include "testing/service_fixture.h"

namespace perdure::server {
namespace {

class ReplayingService : public test::Service {
 protected:
  ReplayingService() : test::Service(ReceiveBuffers::Pm) {}

  /// Sends what a replaying method sends: 64 bytes of `value` for the start of the pool.
  void send_replayable(client::Session& session, int value) {
    const std::vector<std::byte> payload(64, static_cast<std::byte>(value));
    std::vector<std::byte> message(512);
    const persist::Entry entry{0, 64, persist::kCopy};
    const persist::MessageHeader header{1, persist::kPayloadCrc | persist::kReplayable, 1, 64,
                                        static_cast<std::uint32_t>(session.id)};
    const std::span<const std::byte> part(payload);
    persist::put_entry(message.data(), 0, entry);
    const std::size_t at = persist::encode_message(header, {&part, 1}, message.data());
    std::memcpy(message.data() + at, payload.data(), payload.size());
    auto memory = client_->register_memory(message, fabric::Access::Local);
    fabric::WorkRequest request;
    request.segments[0] = {message.data(), at + payload.size(), memory->get()};
    request.segment_count = 1;
    ASSERT_TRUE(session.endpoint->post({&request, 1}).ok());
    fabric::Completion completion;
    ASSERT_TRUE(world_.run_until([&] { return session.endpoint->poll({&completion, 1}) == 1; }));
    ASSERT_EQ(completion.error, std::nullopt);
    world_.settle();
  }
};

TEST_F(ReplayingService, ReceiveBuffersLieOutsideOfTheExportedPart) {
  auto session = open(writer(1, 10));
  ASSERT_TRUE(session.ok());
  EXPECT_EQ(session->pool.profile.receive_buffers, ReceiveBuffers::Pm);
  EXPECT_EQ(session->receive_depth, 32u);
  EXPECT_EQ(session->message_bytes_max, 1024u);
  EXPECT_LE(session->remote.length + 32 * 1024, (1 << 20) - pmem::kPoolDataOffset);
  // A reader's messages are never replayed.
  control::SessionRequest reader;
  reader.pool = "a";
  EXPECT_EQ(open(reader)->pool.profile.receive_buffers, ReceiveBuffers::Dram);
}

TEST_F(ReplayingService, AMessageThatArrivedIsAppliedWhenItsSessionEnds) {
  auto session = open(writer(1, 10));
  ASSERT_TRUE(session.ok());
  pumping_ = false;
  send_replayable(*session, 9);
  EXPECT_EQ(first_byte(), 0);
  ASSERT_TRUE(service_->close_session(session->id).ok());
  EXPECT_EQ(first_byte(), 9);
  EXPECT_EQ(service_->report()->pools[0].counters.replayed_messages, 1u);
}

TEST_F(ReplayingService, AMessageThatArrivedIsAppliedAfterAPowerFailure) {
  auto session = open(writer(1, 10));
  ASSERT_TRUE(session.ok());
  pumping_ = false;
  send_replayable(*session, 9);
  session->endpoint->disconnect();
  power_cycle();
  EXPECT_EQ(first_byte(), 9);
  EXPECT_EQ(service_->report()->pools[0].counters.replayed_messages, 1u);
}

TEST_F(ReplayingService, TheLayoutIsRememberedThroughAPowerFailure) {
  const std::uint64_t bytes = described().bytes;
  power_cycle();
  EXPECT_EQ(described().bytes, bytes);
  EXPECT_EQ(described().profile.receive_buffers, ReceiveBuffers::Pm);
}

}  // namespace
}  // namespace perdure::server
