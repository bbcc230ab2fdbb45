// Requests that name memory which the peer may not reach: an error at the requester, no change at
// the responder, and the responder goes on serving others.
#include "pair.h"

#include <cstring>

namespace perdure::conformance {
namespace {

using fabric::Access;
using fabric::Opcode;
using fabric::RemoteMemory;
using fabric::WorkRequest;

class Refusal : public Conformance {
 protected:
  void SetUp() override {
    auto pair = connect_pair(GetParam());
    ASSERT_TRUE(pair.ok()) << pair.error().message;
    pair_ = std::move(pair).value();
    local_.emplace(*pair_->devices.client, kBytes, Access::Local);
    remote_.emplace(*pair_->devices.server, kBytes, Access::RemoteReadWrite);
    local_->fill(1, 0, kBytes);
    remote_->fill(2, 0, kBytes);
  }
  void TearDown() override {
    if (pair_) pair_->client.endpoint.reset();
    if (pair_) pair_->server.endpoint.reset();
  }

  /// Posts the request and, where the transport completes early, a READ behind it. Expects an
  /// error, the end of the connection, and the memory unchanged.
  void expect_refused(WorkRequest request) {
    request.context = 1;
    ASSERT_TRUE(pair_->post(request));
    auto behind = read(local_->segment(0, 8), remote_->remote(), 0, 2);
    (void)pair_->client.endpoint->post({&behind, 1});
    ASSERT_TRUE(pair_->pump([&] { return !pair_->client.endpoint->connected(); }));
    ASSERT_TRUE(pair_->pump([&] { return pair_->client.errors() > 0; }));

    const bool early = completes_early(pair_->client.endpoint->transport());
    const auto* first = pair_->client.find(request.opcode, 1);
    if (!early || request.opcode == Opcode::Read) {
      ASSERT_NE(first, nullptr);
      ASSERT_TRUE(first->error.has_value());
      EXPECT_TRUE(*first->error == ErrorCode::OutOfRange ||
                  *first->error == ErrorCode::OutcomeUnknown);
    }
    // Expect: nothing behind it succeeded, and nothing can be posted any more.
    for (const auto& completion : pair_->client.completions) {
      if (completion.context == 2) {
        EXPECT_TRUE(completion.error.has_value());
      }
    }
    const auto taken = pair_->client.endpoint->post({&behind, 1});
    ASSERT_FALSE(taken.ok());
    EXPECT_EQ(taken.code(), ErrorCode::Disconnected);
    EXPECT_TRUE(remote_->holds(2, 0, kBytes));
    expect_server_serves_others();
  }

  void expect_server_serves_others() {
    Side other;
    auto endpoint = connect_to(*pair_->devices.client, *pair_->listener, other);
    ASSERT_TRUE(endpoint.ok()) << endpoint.error().message;
    pair_->client.endpoint = std::move(endpoint).value();
    pair_->client.completions.clear();
    pair_->server = std::move(other);
    auto* got = pair_->run(read(local_->segment(0, 64), remote_->remote(), 0, 3));
    ASSERT_NE(got, nullptr);
    EXPECT_FALSE(got->error.has_value());
    EXPECT_TRUE(local_->holds(2, 0, 64));
  }

  static constexpr std::size_t kBytes = 64 * 1024;
  std::unique_ptr<Pair> pair_;
  std::optional<Buffer> local_;
  std::optional<Buffer> remote_;
};

TEST_P(Refusal, LocalCheckRefusesWhatLiesOutsideTheRangeGiven) {
  const auto outside = write(local_->segment(0, 64), remote_->remote(), kBytes - 32, 1);
  const auto taken = pair_->client.endpoint->post({&outside, 1});
  if (taken.ok()) return;  // the provider leaves it to the peer: the tests below
  EXPECT_TRUE(pair_->client.endpoint->connected());
}

TEST_P(Refusal, WriteOverTheEnd) {
  RemoteMemory lie = remote_->remote();
  lie.length += 4096;
  expect_refused(write(local_->segment(0, 64), lie, kBytes - 32, 1));
}

TEST_P(Refusal, LongWriteOverTheEnd) {
  RemoteMemory lie = remote_->remote();
  lie.length += kBytes;
  expect_refused(write(local_->segment(0, kBytes), lie, kBytes - 4096, 1));
}

TEST_P(Refusal, WriteFarOutside) {
  RemoteMemory lie = remote_->remote();
  lie.length = std::uint64_t{1} << 50;
  expect_refused(write(local_->segment(0, 64), lie, std::uint64_t{1} << 40, 1));
}

TEST_P(Refusal, AddressThatWrapsAround) {
  RemoteMemory lie = remote_->remote();
  lie.length = ~std::uint64_t{0};
  expect_refused(write(local_->segment(0, 64), lie, ~std::uint64_t{0} - 4096, 1));
}

TEST_P(Refusal, WriteWithAnUnknownKey) {
  RemoteMemory lie = remote_->remote();
  lie.key ^= 0x5a5a5a5a5au;
  expect_refused(write(local_->segment(0, 64), lie, 0, 1));
}

TEST_P(Refusal, ImmediateWithAnUnknownKey) {
  Buffer inbox(*pair_->devices.server, 4096, Access::Local);
  ASSERT_TRUE(pair_->server.endpoint->post_receive(inbox.segment(0, 64), 9).ok());
  RemoteMemory lie = remote_->remote();
  lie.key ^= 0x5a5a5a5a5au;
  expect_refused(write_immediate(local_->segment(0, 64), lie, 0, 7, 1));
  const auto* received = pair_->server.find(Opcode::Receive, 9);
  EXPECT_TRUE(received == nullptr || received->error.has_value());
  pair_->server.endpoint.reset();
}

TEST_P(Refusal, ReadOverTheEnd) {
  RemoteMemory lie = remote_->remote();
  lie.length += 4096;
  expect_refused(read(local_->segment(4096, 64), lie, kBytes - 32, 1));
}

TEST_P(Refusal, ReadWithAnUnknownKey) {
  RemoteMemory lie = remote_->remote();
  lie.key ^= 0x5a5a5a5a5au;
  expect_refused(read(local_->segment(4096, 64), lie, 0, 1));
}

TEST_P(Refusal, WriteToMemoryThatPeersMayOnlyRead) {
  Buffer readable(*pair_->devices.server, 4096, Access::RemoteRead);
  readable.fill(3, 0, 4096);
  auto* got = pair_->run(read(local_->segment(4096, 64), readable.remote(), 0, 5));
  ASSERT_NE(got, nullptr);
  ASSERT_FALSE(got->error.has_value());
  expect_refused(write(local_->segment(0, 64), readable.remote(), 0, 1));
  EXPECT_TRUE(readable.holds(3, 0, 4096));
  pair_->client.endpoint.reset();
  pair_->server.endpoint.reset();
}

TEST_P(Refusal, AccessToMemoryThatIsLocal) {
  Buffer local(*pair_->devices.server, 4096, Access::Local);
  local.fill(3, 0, 4096);
  expect_refused(write(local_->segment(0, 64), local.remote(), 0, 1));
  EXPECT_TRUE(local.holds(3, 0, 4096));
  pair_->client.endpoint.reset();
  pair_->server.endpoint.reset();
}

TEST_P(Refusal, AccessToMemoryThatWasRevoked) {
  Buffer revoked(*pair_->devices.server, 4096, Access::RemoteReadWrite);
  const RemoteMemory known = revoked.remote();
  auto* written = pair_->run(write(local_->segment(0, 64), known, 0, 5));
  ASSERT_NE(written, nullptr);
  auto* proof = pair_->run(read(local_->segment(4096, 8), known, 0, 5));
  ASSERT_NE(proof, nullptr);
  ASSERT_FALSE(proof->error.has_value());
  revoked.deregister();
  revoked.fill(3, 0, 4096);
  expect_refused(write(local_->segment(0, 64), known, 0, 1));
  EXPECT_TRUE(revoked.holds(3, 0, 4096));
}

TEST_P(Refusal, AccessToMemoryWhoseKeyWasTakenAway) {
  Buffer revoked(*pair_->devices.server, 4096, Access::RemoteReadWrite);
  const RemoteMemory known = revoked.remote();
  auto* proof = pair_->run(read(local_->segment(4096, 8), known, 0, 5));
  ASSERT_NE(proof, nullptr);
  ASSERT_FALSE(proof->error.has_value());
  ASSERT_TRUE(revoked.revoke().ok());
  EXPECT_TRUE(revoked.revoke().ok());  // harmless when repeated
  revoked.fill(3, 0, 4096);
  expect_refused(write(local_->segment(0, 64), known, 0, 1));
  EXPECT_TRUE(revoked.holds(3, 0, 4096));
}

TEST_P(Refusal, ASeveredConnectionReachesNothing) {
  ASSERT_TRUE(pair_->server.endpoint->sever().ok());
  EXPECT_TRUE(pair_->server.endpoint->sever().ok());  // harmless when repeated
  EXPECT_FALSE(pair_->server.endpoint->connected());
  const auto late = write(local_->segment(0, 64), remote_->remote(), 0, 1);
  (void)pair_->client.endpoint->post({&late, 1});
  ASSERT_TRUE(pair_->pump([&] { return !pair_->client.endpoint->connected(); }));
  EXPECT_TRUE(remote_->holds(2, 0, kBytes));
  expect_server_serves_others();
}

TEST_P(Refusal, RightsThatAreNotTakenAwayAreSaidToBeThere) {
  if (!GetParam().refuse_revocations) {
    GTEST_SKIP() << "this provider has no device that can be made to refuse; over rxe and siw "
                    "`rights_stay` of tests/lab does it";
  }
  GetParam().refuse_revocations(pair_->devices, true);
  EXPECT_EQ(remote_->revoke().code(), ErrorCode::SystemError);
  EXPECT_EQ(pair_->server.endpoint->sever().code(), ErrorCode::SystemError);
  // Expect: the peer still reaches the memory, which is what the errors say.
  ASSERT_NE(pair_->run(write(local_->segment(0, 64), remote_->remote(), 0, 5)), nullptr);
  auto* proof = pair_->run(read(local_->segment(4096, 8), remote_->remote(), 0, 6));
  ASSERT_NE(proof, nullptr);
  EXPECT_FALSE(proof->error.has_value());
  EXPECT_TRUE(remote_->holds(1, 0, 64));

  GetParam().refuse_revocations(pair_->devices, false);
  remote_->fill(2, 0, kBytes);
  const RemoteMemory known = remote_->remote();
  ASSERT_TRUE(remote_->revoke().ok());
  const auto late = write(local_->segment(0, 64), known, 0, 1);
  ASSERT_TRUE(pair_->post(late));
  ASSERT_TRUE(pair_->pump([&] { return !pair_->client.endpoint->connected(); }));
  EXPECT_TRUE(remote_->holds(2, 0, kBytes));
  EXPECT_TRUE(pair_->server.endpoint->sever().ok());
}

TEST_P(Refusal, KeyOfAnotherDeviceReachesNothing) {
  if (!GetParam().isolates_devices) return;
  // Connect: a peer that is accepted into a device of its own.
  auto others = GetParam().open();
  ASSERT_TRUE(others.ok());
  auto session = GetParam().open_in_process ? GetParam().open_in_process()
                                            : Result<std::unique_ptr<fabric::Device>>(Error{});
  if (!session.ok()) return;  // devices of this provider come in pairs: nothing to accept into
  Buffer inside(**session, 4096, Access::RemoteReadWrite);
  Side server;
  auto endpoint = connect_to(*pair_->devices.client, *pair_->listener, server, {}, session->get());
  ASSERT_TRUE(endpoint.ok()) << endpoint.error().message;
  pair_->client.endpoint = std::move(endpoint).value();
  pair_->server = std::move(server);

  // Expect: it reaches that device's memory, and not the listener's.
  auto* written = pair_->run(write(local_->segment(0, 64), inside.remote(), 0, 1));
  ASSERT_NE(written, nullptr);
  auto* proof = pair_->run(read(local_->segment(4096, 8), inside.remote(), 0, 2));
  ASSERT_NE(proof, nullptr);
  ASSERT_FALSE(proof->error.has_value());
  EXPECT_TRUE(inside.holds(1, 0, 64));
  pair_->client.completions.clear();
  expect_refused(write(local_->segment(0, 64), remote_->remote(), 0, 1));
  pair_->client.endpoint.reset();
  pair_->server.endpoint.reset();
}

PERDURE_CONFORMANCE_SUITE(Refusal);

}  // namespace
}  // namespace perdure::conformance
