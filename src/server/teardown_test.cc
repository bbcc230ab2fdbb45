// A session's connection ends before its key and its buffers go, whoever ends it.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "core/random.h"
#include "fabric/emu/world.h"
#include "server/session.h"
#include "testing/watched_device.h"

namespace perdure::server {
namespace {

/// A session on an emulated machine whose RNIC is watched, with a requester's bare connection.
class SessionTeardown : public testing::Test {
 protected:
  static constexpr std::uint64_t kBytes = 64 * 1024;

  void open(std::size_t depth) {
    ServerProfile profile;
    profile.domain = PersistenceDomain::Mhp;
    profile.transport = Transport::InfiniBand;
    auto& server = world_.add_machine("server", profile);
    client_ = &world_.add_machine("client", profile);
    region_ = &server.add_region(kBytes);
    device_ = std::make_unique<test::WatchedDevice>(server);
    auto memory = device_->register_memory(region_->bytes(), fabric::Access::RemoteReadWrite);
    ASSERT_TRUE(memory.ok());
    remote_ = {(*memory)->key(), (*memory)->base(), kBytes};
    SessionTerms terms;
    terms.id = 7;
    terms.write = true;
    terms.exported = {0, kBytes};
    terms.queue = {depth, 1024};
    session_ =
        std::make_unique<ServedSession>(terms, *device_, nullptr, *region_, std::move(*memory));
    auto ends = world_.connect(*client_, server);
    near_ = std::move(ends.first);
    ASSERT_TRUE(session_->attach(device_->watched(std::move(ends.second))).ok());
    source_ = *client_->register_memory(bytes_, fabric::Access::Local);
  }
  /// A request that needs the session's key, and is on its way when this returns.
  void write() {
    fabric::WorkRequest request;
    request.opcode = fabric::Opcode::Write;
    request.remote = remote_;
    request.segments[0] = {bytes_.data(), bytes_.size(), source_.get()};
    request.segment_count = 1;
    ASSERT_TRUE(near_->post({&request, 1}).ok());
  }
  test::Watch& watch() { return device_->watch(); }

  Random random_{11};
  fabric::emu::World world_{random_};
  fabric::emu::Machine* client_ = nullptr;
  pmem::CrashableRegion* region_ = nullptr;
  std::unique_ptr<test::WatchedDevice> device_;
  fabric::RemoteMemory remote_;
  std::unique_ptr<ServedSession> session_;
  std::unique_ptr<fabric::Endpoint> near_;
  std::vector<std::byte> bytes_ = std::vector<std::byte>(4096, std::byte{1});
  std::unique_ptr<fabric::Memory> source_;
};

TEST_F(SessionTeardown, FirstTheConnectionThenTheKeyThenTheBuffers) {
  open(64);
  write();
  ASSERT_TRUE(session_->revoke().ok());
  ASSERT_GE(watch().ended.size(), 3u);
  EXPECT_EQ(watch().ended[0], "connection");
  EXPECT_EQ(watch().ended[1], "65536 B");
  EXPECT_TRUE(watch().too_early.empty()) << watch().too_early.front();
  session_.reset();
}

TEST_F(SessionTeardown, TheSameWhenNobodyAskedForIt) {
  open(64);
  write();
  session_.reset();
  EXPECT_EQ(watch().ended.at(0), "connection");
  EXPECT_EQ(watch().ended.at(1), "65536 B");
  EXPECT_TRUE(watch().too_early.empty()) << watch().too_early.front();
}

TEST_F(SessionTeardown, NothingIsGivenUpWhileTheRnicRefusesToEndTheConnection) {
  open(64);
  write();
  watch().refuses_to_sever = true;
  EXPECT_EQ(session_->revoke().code(), ErrorCode::SystemError);
  EXPECT_TRUE(watch().ended.empty());
  // The daemon ends all the same. Expect: what the RNIC may still fill goes last.
  session_.reset();
  EXPECT_EQ(watch().ended.at(0), "connection");
  EXPECT_TRUE(watch().too_early.empty()) << watch().too_early.front();
}

}  // namespace
}  // namespace perdure::server
