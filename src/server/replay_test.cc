// Receive buffers in persistent memory: what arrived in them is applied when its session ends, and
// after a power failure.
#include "server/service.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "persist/wire.h"
#include "testing/service_fixture.h"

namespace perdure::server {
namespace {

class ReplayingService : public test::Service {
 protected:
  ReplayingService() : test::Service(ReceiveBuffers::Pm) {}

  /// The daemon starts again, and the pool is on a device, which has a lease.
  void start_on_device() {
    peer_.reset();
    service_.reset();
    start(nullptr);
    add(pmem::Pool::attach_device(std::make_unique<pmem::LentRegion>(*region_), "device", 1));
  }
  /// By force, as another machine that shares it.
  std::unique_ptr<pmem::OwnerLease> take_device() {
    pmem::OwnerLease::Options by_force;
    by_force.take_over = true;
    others_ = std::make_unique<pmem::LentRegion>(*region_);
    auto taken = pmem::OwnerLease::take(*others_, pmem::kOwnerLeaseOffset, by_force);
    EXPECT_TRUE(taken.ok()) << taken.error().message;
    return taken.ok() ? std::move(*taken) : nullptr;
  }
  /// What is on the device, without what its owner renews twice a second.
  std::vector<std::byte> but_for_the_lease() const {
    const auto now = region_->bytes();
    const auto front = now.first(pmem::kOwnerLeaseOffset);
    const auto rest = now.subspan(pmem::kOwnerLeaseOffset + pmem::kOwnerLeaseBytes);
    std::vector<std::byte> bytes(front.begin(), front.end());
    bytes.insert(bytes.end(), rest.begin(), rest.end());
    return bytes;
  }

  std::unique_ptr<pmem::LentRegion> others_;

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

// Receive: somebody else takes the device while a message waits in the pool's own buffers.
// Expect: it is not applied to what is that one's by now, and nobody is granted it.
TEST_F(ReplayingService, NothingIsAppliedToADeviceThatIsAnothersByNow) {
  start_on_device();
  auto session = open(writer(2, 10));
  ASSERT_TRUE(session.ok()) << session.error().message;
  pumping_ = false;
  send_replayable(*session, 9);
  const auto other = take_device();
  const auto before = but_for_the_lease();
  (void)service_->close_session(session->id);
  EXPECT_EQ(first_byte(), 0);
  EXPECT_EQ(service_->report()->pools[0].counters.replayed_messages, 0u);
  EXPECT_EQ(open(writer(3, 10)).code(), ErrorCode::SystemError);
  EXPECT_EQ(described().state, control::PoolStatus::Unavailable);
  EXPECT_NE(described().reason.find("another owner"), std::string::npos) << described().reason;
  EXPECT_TRUE(but_for_the_lease() == before);
  EXPECT_TRUE(other->check().ok());
}

// Receive: the connection of one who was granted it before. Expect: no buffers are laid out there.
TEST_F(ReplayingService, NoBuffersAreLaidOutOnADeviceThatIsAnothersByNow) {
  start_on_device();
  const auto grant = service_->open_session(writer(2, 10), client_->transport());
  ASSERT_TRUE(grant.ok()) << grant.error().message;
  const auto other = take_device();
  const auto area = region_->bytes().subspan(pmem::kPoolDataOffset);
  std::fill(area.begin(), area.end(), std::byte{7});  // as the other one has it
  const auto before = but_for_the_lease();
  const auto session = client::connect_session(*grant, grant->address, *client_, {}, deadline());
  if (session.ok()) {
    world_.settle();
    EXPECT_FALSE(session->endpoint->connected());
  }
  EXPECT_TRUE(but_for_the_lease() == before);
  EXPECT_TRUE(other->check().ok());
}

TEST_F(ReplayingService, TheLayoutIsRememberedThroughAPowerFailure) {
  const std::uint64_t bytes = described().bytes;
  power_cycle();
  EXPECT_EQ(described().bytes, bytes);
  EXPECT_EQ(described().profile.receive_buffers, ReceiveBuffers::Pm);
}

}  // namespace
}  // namespace perdure::server
