// No memory is deregistered while requests that name it are posted: an RNIC that has to send again,
// or to receive, finds it gone then, and ends the connection. However a connection comes to its
// end, it goes first.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/certify.h"
#include "client/connection_costs.h"
#include "client/durable_session.h"
#include "client/remote_bytes.h"
#include "core/random.h"
#include "persist/requester.h"
#include "plan/catalog.h"
#include "testing/watched_device.h"
#include "testing/world_peer.h"
#include "testing/world_server.h"

namespace perdure::client {
namespace {

const std::string kTornDownPool = "a";
constexpr std::uint64_t kTornDownBytes = 128 * 1024;

/// A responder of the emulated world, and a requester's RNIC that is watched.
class Teardown : public testing::Test {
 protected:
  void SetUp() override { start(PersistenceDomain::Mhp, ReceiveBuffers::Dram); }

  void start(PersistenceDomain domain, ReceiveBuffers buffers) {
    ServerProfile profile;
    profile.domain = domain;
    profile.ddio = Ddio::Off;
    profile.transport = Transport::InfiniBand;
    profile.receive_buffers = buffers;
    memory_.reset();
    peer_.reset();
    device_.reset();
    server_.reset();
    world_ = std::make_unique<fabric::emu::World>(random_);
    server_ = *test::WorldServer::start(*world_, "server", profile,
                                        {kTornDownPool, kTornDownBytes, {32, 2048}});
    client_ = &world_->add_machine("client", profile);
    device_ = std::make_unique<test::WatchedDevice>(*client_);
    peer_ = server_->peer(*device_);
  }

  /// A session that is ready, with memory to write from.
  std::unique_ptr<DurableSession> session(std::optional<Primary> primary = {}) {
    DurableSessionOptions options;
    options.clock = &world_->clock();
    options.ranges_again = true;
    options.primary = primary;
    auto made = std::make_unique<DurableSession>(server_->peer(*device_), options);
    EXPECT_TRUE(made->open({kTornDownPool, true, Epoch{++epoch_}, 1, "test", true}).ok());
    const auto ready = made->prepare(true);
    EXPECT_TRUE(ready.ok()) << ready.error().message;
    memory_ = *made->register_memory(bytes_);
    return made;
  }
  Result<std::uint64_t> begin(DurableSession& session, std::uint64_t at, std::size_t length) {
    const persist::UpdateItem item{at, {bytes_.data(), length, memory_.get()}};
    const Ranges epoch(&item, 1);
    return session.update({&epoch, 1});
  }
  const std::vector<std::string>& too_early() { return device_->watch().too_early; }

  Random random_{7};
  std::unique_ptr<fabric::emu::World> world_;
  std::uint32_t epoch_ = 0;
  std::unique_ptr<test::WorldServer> server_;
  fabric::emu::Machine* client_ = nullptr;
  std::unique_ptr<test::WatchedDevice> device_;
  std::unique_ptr<Peer> peer_;
  std::vector<std::byte> bytes_ = std::vector<std::byte>(64 * 1024);
  std::unique_ptr<fabric::Memory> memory_;
};

// The watch itself: it sees what an emulated RNIC forgives.
TEST_F(Teardown, MemoryThatGoesBeforeItsRequestIsSeen) {
  auto session = peer_->open_session({kTornDownPool, true, Epoch{1}, 1, "test", false},
                                     Deadline(world_->clock(), std::chrono::seconds(60)));
  ASSERT_TRUE(session.ok());
  const auto post = [&](bool signalled) {
    auto memory = *device_->register_memory(bytes_, fabric::Access::Local);
    fabric::WorkRequest request;
    request.opcode = fabric::Opcode::Write;
    request.signalled = signalled;
    request.remote = session->remote;
    request.segments[0] = {bytes_.data(), 64, memory.get()};
    request.segment_count = 1;
    EXPECT_TRUE(session->endpoint->post({&request, 1}).ok());
    return memory;
  };
  auto silent = post(false);
  auto asked = post(true);
  fabric::Completion completion;
  for (int i = 0; i < 10000 && session->endpoint->poll({&completion, 1}) == 0; ++i) {
  }
  silent.reset();  // the later one's completion stands for it
  asked.reset();
  EXPECT_TRUE(too_early().empty());
  post(false).reset();
  EXPECT_EQ(too_early(), (std::vector<std::string>{"65536 B while 1 requests name it"}));
}

TEST_F(Teardown, ASessionEndsBeforeItsBuffersGo) {
  for (const auto buffers : {ReceiveBuffers::Dram, ReceiveBuffers::Pm}) {
    for (const auto domain :
         {PersistenceDomain::Mhp, PersistenceDomain::Dmp, PersistenceDomain::Wsp}) {
      for (const auto primary : {Primary::Send, Primary::Write}) {
        start(domain, buffers);
        const auto closed = session(primary);
        ASSERT_TRUE(begin(*closed, 0, 8000).ok());
        ASSERT_TRUE(closed->write_now(0, std::span(bytes_).first(100)).ok());
        for (std::uint64_t at = 0; at < 4; ++at) {
          ASSERT_TRUE(begin(*closed, at * 8192, 5000).ok());
        }
        closed->close();  // with requests in flight
        EXPECT_EQ(device_->watch().ended.front(), "connection");
        // Open again, and gone without a close.
        auto destroyed = session(primary);
        ASSERT_TRUE(begin(*destroyed, 0, 8000).ok());
        destroyed.reset();
        memory_.reset();
        EXPECT_TRUE(too_early().empty()) << too_early().front();
      }
    }
  }
}

/// The method of this shape that sends most messages for an update.
Method most_messages(const ServerProfile& profile, const UpdateShape& shape) {
  std::optional<Method> found;
  for (const plan::Known& known : plan::known_methods(profile, {shape, Level::Durable, false})) {
    if (!found || known.method.responder.size() > found->responder.size()) found = known.method;
  }
  return *found;
}

// Whatever a message's answer proves, the RNIC may not have heard that the message arrived. Other
// methods need other buffers: the old ones stay until the connection ends.
TEST_F(Teardown, BuffersOfMessagesOutliveTheMethodsThatUsedThem) {
  auto session = peer_->open_session({kTornDownPool, true, Epoch{1}, 1, "test", false},
                                     Deadline(world_->clock(), std::chrono::seconds(60)));
  ASSERT_TRUE(session.ok());
  memory_ = *device_->register_memory(bytes_, fabric::Access::Local);
  const ServerProfile& profile = session->pool.profile;
  persist::Requester::Options options;
  options.remote = session->remote;
  options.queue = {session->receive_depth, session->message_bytes_max};
  options.session = static_cast<std::uint32_t>(session->id);
  auto requester = persist::Requester::open(*session->endpoint, *device_, profile,
                                            {most_messages(profile, singleton())}, options);
  ASSERT_TRUE(requester.ok()) << requester.error().message;
  const auto update = [&](std::size_t items) {
    const std::array<persist::UpdateItem, 2> both{
        persist::UpdateItem{0, {bytes_.data(), 100, memory_.get()}},
        persist::UpdateItem{4096, {bytes_.data(), 8, memory_.get()}}};
    ASSERT_TRUE((*requester)->begin(0, std::span(both).first(items)).ok());
    for (int i = 0; i < 10000 && (*requester)->resolved() != (*requester)->begun(); ++i) {
      ASSERT_TRUE((*requester)->poll().ok());
    }
    ASSERT_EQ((*requester)->resolved(), (*requester)->begun());
  };
  const std::size_t before = device_->watch().registered;
  update(1);
  ASSERT_TRUE((*requester)->use_methods({most_messages(profile, compound())}).ok());
  EXPECT_EQ(device_->watch().registered, before + 1);  // these need more room
  update(2);
  ASSERT_TRUE((*requester)->use_methods({most_messages(profile, singleton())}).ok());
  EXPECT_EQ(device_->watch().registered, before + 1);  // and these find it
  update(1);
  EXPECT_TRUE(device_->watch().ended.empty());
  session->endpoint.reset();
  requester->reset();
  memory_.reset();
  EXPECT_TRUE(too_early().empty()) << too_early().front();
}

TEST_F(Teardown, AConnectionThatIsOnlyMeasuredOrReadEndsBeforeItsBuffersGo) {
  ASSERT_TRUE(measure_pool(*peer_, kTornDownPool, std::chrono::seconds(1), world_->clock()).ok());
  {
    auto bytes = RemoteBytes::open(*peer_, kTornDownPool, std::chrono::seconds(1), world_->clock());
    ASSERT_TRUE(bytes.ok()) << bytes.error().message;
    EXPECT_TRUE((*bytes)->read(0, std::span(bytes_)).ok());
    server_->lose_power();  // and the next one is not answered
    EXPECT_FALSE((*bytes)->read(0, std::span(bytes_)).ok());
  }
  EXPECT_TRUE(too_early().empty()) << too_early().front();
}

TEST_F(Teardown, TheListOfCertifyEndsItsConnectionsBeforeTheirBuffers) {
  CertifyOptions options;
  options.pool = kTornDownPool;
  options.clock = &world_->clock();
  options.rounds = 10;
  options.beside = test::step_around;
  const auto found = certify(*peer_, options);
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_TRUE(too_early().empty()) << too_early().front();
}

}  // namespace
}  // namespace perdure::client
