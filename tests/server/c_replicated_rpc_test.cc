// Calls on k servers through the C interface: a server and a client over three peers, one of which
// is replaced; what is refused, and structs of older and newer headers.
#include <gtest/gtest.h>
#include <perdure/perdure.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "core/text_file.h"
#include "killed_peer.h"
#include "testing/process.h"
#include "testing/temporary_directory.h"

namespace perdure::server::in_c {
namespace {

constexpr std::uint32_t kDeposit = 1;
constexpr std::uint32_t kBroken = 2;
constexpr std::uint32_t kMinuteMs = 60'000;
constexpr std::uint64_t kDataBytes = 4096;

perdure_code deposit(const perdure_rpc_request* request, perdure_rpc_data* data, void* reply,
                     std::size_t room, std::size_t* bytes, void* context) {
  std::int64_t amount = 0;
  std::int64_t total = 0;
  if (request->payload_bytes != sizeof amount || room < sizeof total ||
      request->client != std::string("teller") || perdure_rpc_data_bytes(data) != kDataBytes) {
    return PERDURE_INVALID_ARGUMENT;
  }
  std::memcpy(&amount, request->payload, sizeof amount);
  perdure_code code = perdure_rpc_data_read(data, 0, &total, sizeof total);
  total += amount;
  if (code == PERDURE_OK) code = perdure_rpc_data_write(data, 0, &total, sizeof total);
  std::memcpy(reply, &total, sizeof total);
  *bytes = *static_cast<const std::size_t*>(context);
  return code;
}

perdure_code refuse(const perdure_rpc_request*, perdure_rpc_data* data, void*, std::size_t,
                    std::size_t*, void*) {
  const std::int64_t gone = -1;
  EXPECT_EQ(perdure_rpc_data_write(data, 0, &gone, sizeof gone), PERDURE_OK);
  return PERDURE_LOG_FULL;
}

perdure_code no_query(const void*, std::size_t, const perdure_rpc_data*, void*, std::size_t,
                      std::size_t*, void*) {
  return PERDURE_OK;
}

/// Three peers of a service, and one in reserve.
class CReplicatedRpc : public testing::Test {
 protected:
  static constexpr std::size_t kPeers = 3;

  CReplicatedRpc() {
    for (const KilledPeer& peer : peers_) at_.push_back(peer.address().c_str());
    const auto set_group = [&](auto& options) {
      options.size = sizeof options;
      options.peers = at_.data();
      options.peer_count = kPeers;
      options.service = "bank";
      options.transport = "tcp";
      options.peer_timeout_ms = 10000;
      options.reconnect_ms = 10;
    };
    set_group(serving_);
    serving_.operations = operations_.data();
    serving_.operation_count = operations_.size();
    serving_.data_bytes = kDataBytes;
    serving_.clients_max = 4;
    serving_.reply_bytes_max = 64;
    serving_.hold_failed = true;
    set_group(calling_);
    calling_.name = "teller";
    calling_.calls_bytes = 256 * 1024;
    calling_.reads = true;
  }
  ~CReplicatedRpc() override {
    perdure_replicated_rpc_client_close(client_);
    perdure_replicated_rpc_server_close(server_);
  }

  void start() {
    ASSERT_EQ(perdure_replicated_rpc_server_open(&serving_, &server_), PERDURE_OK)
        << perdure_last_error();
    ASSERT_EQ(perdure_replicated_rpc_client_open(&calling_, &client_), PERDURE_OK)
        << perdure_last_error();
  }
  /// A deposit of 5, and the total that its reply says.
  std::int64_t deposit_five() {
    const std::int64_t amount = 5;
    perdure_rpc_handle handle{};
    EXPECT_EQ(
        perdure_replicated_rpc_client_call(client_, kDeposit, &amount, sizeof amount, 0, &handle),
        PERDURE_OK)
        << perdure_last_error();
    EXPECT_EQ(perdure_replicated_rpc_client_wait(client_, &handle, PERDURE_RPC_DURABLE, kMinuteMs),
              PERDURE_OK)
        << perdure_last_error();
    perdure_rpc_outcome outcome{};
    outcome.size = sizeof outcome;
    std::int64_t total = 0;
    std::size_t bytes = 0;
    EXPECT_EQ(perdure_replicated_rpc_client_reply(client_, &handle, kMinuteMs, &outcome, &total,
                                                  sizeof total, &bytes),
              PERDURE_OK)
        << perdure_last_error();
    EXPECT_EQ(outcome.refused, PERDURE_OK);
    EXPECT_EQ(bytes, sizeof total);
    return total;
  }

  std::array<KilledPeer, kPeers + 1> peers_;
  std::vector<const char*> at_;
  std::size_t reply_bytes_ = sizeof(std::int64_t);
  const std::array<perdure_rpc_operation, 2> operations_ = {
      {{kDeposit, 0, deposit, nullptr, &reply_bytes_}, {kBroken, 0, refuse, nullptr, nullptr}}};
  perdure_replicated_rpc_server_options serving_{};
  perdure_replicated_rpc_client_options calling_{};
  perdure_replicated_rpc_server* server_ = nullptr;
  perdure_replicated_rpc_client* client_ = nullptr;
};

TEST_F(CReplicatedRpc, ACallIsDurableThenAppliedAndAnswered) {
  start();
  ASSERT_FALSE(HasFatalFailure());
  for (std::int64_t call = 1; call <= 3; ++call) EXPECT_EQ(deposit_five(), 5 * call);
  perdure_rpc_handle handle{};
  perdure_rpc_outcome outcome{};
  outcome.size = sizeof outcome;
  std::size_t bytes = 1;
  // A handler's code is the caller's; nothing that it wrote is kept.
  ASSERT_EQ(perdure_replicated_rpc_client_call(client_, kBroken, nullptr, 0, 0, &handle),
            PERDURE_OK);
  ASSERT_EQ(perdure_replicated_rpc_client_reply(client_, &handle, kMinuteMs, &outcome, nullptr, 0,
                                                &bytes),
            PERDURE_OK);
  EXPECT_EQ(outcome.refused, PERDURE_LOG_FULL);
  EXPECT_EQ(bytes, 0u);
  std::int64_t total = 0;
  ASSERT_EQ(perdure_replicated_rpc_server_read(server_, 0, &total, sizeof total, kMinuteMs),
            PERDURE_OK);
  EXPECT_EQ(total, 15);
  EXPECT_EQ(perdure_replicated_rpc_server_read(server_, kDataBytes, &total, 1, kMinuteMs),
            PERDURE_OUT_OF_RANGE);
  total = 0;
  ASSERT_EQ(perdure_replicated_rpc_client_read(client_, 0, &total, sizeof total, kMinuteMs),
            PERDURE_OK)
      << perdure_last_error();
  EXPECT_EQ(total, 15);
  perdure_replicated_rpc_client_status status{};
  status.size = sizeof status;
  ASSERT_EQ(perdure_replicated_rpc_client_get_status(client_, &status), PERDURE_OK);
  EXPECT_EQ(status.client_id, handle.client_id);
  EXPECT_EQ(status.begun, 4u);
  EXPECT_EQ(status.applied, 4u);
  EXPECT_EQ(status.quorum, 2u);
  EXPECT_EQ(status.replicas, kPeers);
  EXPECT_LT(status.calls_bytes, status.calls_bytes_max);
  EXPECT_EQ(status.failure, PERDURE_OK);
  EXPECT_GE(status.epoch, 1u);
  perdure_rpc_handle same{};
  ASSERT_EQ(perdure_replicated_rpc_client_handle_of(client_, 4, &same), PERDURE_OK);
  EXPECT_EQ(same.client_id, handle.client_id);
  EXPECT_EQ(perdure_replicated_rpc_client_wait(client_, &same, PERDURE_RPC_APPLIED, 1), PERDURE_OK);
  same.sequence = 5;
  EXPECT_EQ(perdure_replicated_rpc_client_wait(client_, &same, PERDURE_RPC_APPLIED, 1),
            PERDURE_INVALID_ARGUMENT);
  perdure_replicated_rpc_server_status served{};
  served.size = sizeof served;
  ASSERT_EQ(perdure_replicated_rpc_server_get_status(server_, &served), PERDURE_OK);
  EXPECT_EQ(served.executed, 4u);
  EXPECT_EQ(served.refused, 1u);
  EXPECT_GE(served.epoch, 1u);
  EXPECT_EQ(served.failure, PERDURE_OK);
  EXPECT_STREQ(served.failure_message, "");
  EXPECT_EQ(served.quorum, 2u);
  EXPECT_EQ(served.replicas, kPeers);
  EXPECT_GT(served.effects_bytes, 0u);
  EXPECT_LT(served.effects_bytes, served.effects_bytes_max);
  perdure_replicated_rpc_client_place place{};
  place.size = sizeof place;
  std::size_t there = 0;
  ASSERT_EQ(perdure_replicated_rpc_server_get_clients(server_, &place, 1, &there), PERDURE_OK);
  EXPECT_EQ(there, 1u);
  EXPECT_STREQ(place.name, "teller");
  EXPECT_EQ(place.applied, 4u);
  EXPECT_EQ(place.failure, PERDURE_OK);
  EXPECT_FALSE(place.held);
}

TEST_F(CReplicatedRpc, OfACallThatIsNotSetAsideNothingIsDecided) {
  start();
  ASSERT_FALSE(HasFatalFailure());
  EXPECT_EQ(deposit_five(), 5);
  for (const auto decide :
       {perdure_replicated_rpc_server_retry, perdure_replicated_rpc_server_drop}) {
    EXPECT_EQ(decide(server_, "teller", 1), PERDURE_INVALID_ARGUMENT);
    EXPECT_EQ(decide(server_, "nobody", 1), PERDURE_NOT_FOUND);
    EXPECT_EQ(decide(server_, nullptr, 1), PERDURE_INVALID_ARGUMENT);
    EXPECT_EQ(decide(nullptr, "teller", 1), PERDURE_INVALID_ARGUMENT);
  }
}

TEST_F(CReplicatedRpc, MetricsAreTextOfWhateverRoomThereIs) {
  start();
  ASSERT_FALSE(HasFatalFailure());
  EXPECT_EQ(deposit_five(), 5);
  const std::string executed = "perdure_replicated_rpc_executed_total{service=\"bank\"} 1\n";
  const std::string applied =
      "perdure_replicated_rpc_caller_applied{service=\"bank\",client=\"teller\"} 1\n";
  std::size_t bytes = 0;
  ASSERT_EQ(perdure_replicated_rpc_server_get_metrics(server_, nullptr, 0, &bytes), PERDURE_OK);
  std::vector<char> text(bytes + 100, 'x');
  ASSERT_EQ(perdure_replicated_rpc_server_get_metrics(server_, text.data(), text.size(), &bytes),
            PERDURE_OK);
  EXPECT_EQ(std::strlen(text.data()), bytes);
  EXPECT_NE(std::string(text.data()).find(executed), std::string::npos) << text.data();
  text.assign(10, 'x');
  ASSERT_EQ(perdure_replicated_rpc_client_get_metrics(client_, text.data(), 9, &bytes), PERDURE_OK);
  EXPECT_GT(bytes, 9u);
  EXPECT_EQ(std::strlen(text.data()), 8u);
  EXPECT_EQ(text[9], 'x');
  text.assign(bytes + 100, 'x');
  ASSERT_EQ(perdure_replicated_rpc_client_get_metrics(client_, text.data(), text.size(), &bytes),
            PERDURE_OK);
  EXPECT_NE(std::string(text.data()).find(applied), std::string::npos) << text.data();
}

/// A second server is busy, or fences the first one, which says so.
TEST_F(CReplicatedRpc, TheNextServerGoesOnAndTheOlderOneIsFenced) {
  start();
  ASSERT_FALSE(HasFatalFailure());
  EXPECT_EQ(deposit_five(), 5);
  perdure_replicated_rpc_server* newer = nullptr;
  EXPECT_EQ(perdure_replicated_rpc_server_open(&serving_, &newer), PERDURE_BUSY);
  EXPECT_EQ(newer, nullptr);
  serving_.take_over = true;
  ASSERT_EQ(perdure_replicated_rpc_server_open(&serving_, &newer), PERDURE_OK)
      << perdure_last_error();
  EXPECT_EQ(deposit_five(), 10);
  std::byte byte{};
  perdure_code code = PERDURE_OK;
  for (int tries = 0; tries < 600 && (code == PERDURE_OK || code == PERDURE_TIMED_OUT); ++tries) {
    code = perdure_replicated_rpc_server_read(server_, 0, &byte, 1, 100);
    test::pause_for(std::chrono::milliseconds(100));
  }
  EXPECT_EQ(code, PERDURE_FENCED);
  perdure_replicated_rpc_server_status served{};
  served.size = sizeof served;
  ASSERT_EQ(perdure_replicated_rpc_server_get_status(server_, &served), PERDURE_OK);
  EXPECT_EQ(served.failure, PERDURE_FENCED);
  EXPECT_STRNE(served.failure_message, "");
  perdure_replicated_rpc_server_close(newer);
}

TEST_F(CReplicatedRpc, APeerIsReplaced) {
  start();
  ASSERT_FALSE(HasFatalFailure());
  EXPECT_EQ(deposit_five(), 5);
  EXPECT_EQ(perdure_replicated_rpc_server_replace_peer(server_, at_[0], at_[1]),
            PERDURE_ALREADY_EXISTS);
  EXPECT_EQ(perdure_replicated_rpc_client_replace_peer(client_, at_[0], at_[1]),
            PERDURE_ALREADY_EXISTS);
  peers_[0].kill();
  ASSERT_EQ(perdure_replicated_rpc_server_replace_peer(server_, at_[0], at_[kPeers]), PERDURE_OK)
      << perdure_last_error();
  ASSERT_EQ(perdure_replicated_rpc_client_replace_peer(client_, at_[0], at_[kPeers]), PERDURE_OK)
      << perdure_last_error();
  EXPECT_EQ(deposit_five(), 10);
}

// Expect: what lies behind the end of an older struct is not read, and not written.
TEST_F(CReplicatedRpc, StructsOfOlderAndNewerHeadersAreTaken) {
  serving_.size = offsetof(perdure_replicated_rpc_server_options, application);
  std::memset(&serving_.application, 0xff,
              sizeof serving_ - offsetof(perdure_replicated_rpc_server_options, application));
  start();
  ASSERT_FALSE(HasFatalFailure());
  perdure_replicated_rpc_server_status status;
  std::memset(&status, 0xaa, sizeof status);
  status.size = offsetof(perdure_replicated_rpc_server_status, epoch);
  ASSERT_EQ(perdure_replicated_rpc_server_get_status(server_, &status), PERDURE_OK);
  EXPECT_EQ(status.executed, 0u);
  EXPECT_EQ(status.epoch, 0xaaaaaaaau);
  struct {
    perdure_replicated_rpc_client_options known;
    std::uint64_t newer;
  } newer{};
  newer.known = calling_;
  newer.known.size = sizeof newer;
  newer.known.name = "new";
  newer.newer = 1;
  perdure_replicated_rpc_client* client = nullptr;
  EXPECT_EQ(perdure_replicated_rpc_client_open(&newer.known, &client), PERDURE_INVALID_ARGUMENT);
  newer.newer = 0;
  EXPECT_EQ(perdure_replicated_rpc_client_open(&newer.known, &client), PERDURE_OK)
      << perdure_last_error();
  perdure_replicated_rpc_client_close(client);
}

TEST_F(CReplicatedRpc, OptionsThatAreNotThereAreRefused) {
  const auto serve = [&](auto change) {
    perdure_replicated_rpc_server_options options = serving_;
    change(options);
    return perdure_replicated_rpc_server_open(&options, &server_);
  };
  EXPECT_EQ(serve([](auto& options) { options.size = 0; }), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(serve([](auto& options) { options.peers = nullptr; }), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(serve([](auto& options) { options.peer_count = 0; }), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(serve([](auto& options) { options.service = nullptr; }), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(serve([](auto& options) { options.operations = nullptr; }), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(serve([](auto& options) { options.transport = "pigeon"; }), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(serve([](auto& options) { options.reserved = 1; }), PERDURE_INVALID_ARGUMENT);
  perdure_rpc_operation operation = operations_[0];
  serving_.operations = &operation;
  serving_.operation_count = 1;
  operation.query = no_query;
  EXPECT_EQ(serve([](auto&) {}), PERDURE_INVALID_ARGUMENT);
  operation = {kDeposit, 0, nullptr, nullptr, nullptr};
  EXPECT_EQ(serve([](auto&) {}), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(server_, nullptr);
  EXPECT_EQ(perdure_replicated_rpc_server_open(nullptr, &server_), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_replicated_rpc_server_open(&serving_, nullptr), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_replicated_rpc_client_open(nullptr, &client_), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_replicated_rpc_client_open(&calling_, nullptr), PERDURE_INVALID_ARGUMENT);
  calling_.name = nullptr;
  EXPECT_EQ(perdure_replicated_rpc_client_open(&calling_, &client_), PERDURE_INVALID_ARGUMENT);
}

TEST_F(CReplicatedRpc, AServerAndAClientAreOpenedByConnectionStringsOrByFiles) {
  std::string peers;
  std::string list;
  for (std::size_t index = 0; index < kPeers; ++index) {
    peers.append(index == 0 ? "" : ",").append(at_[index]);
    list.append(index == 0 ? "\"" : ", \"").append(at_[index]).append("\"");
  }
  const std::string group = "perdure://" + peers + "/bank?transport=tcp&peer_timeout_ms=1000";
  const std::string serves = group + "&data_bytes=4096&clients_max=4&reply_bytes_max=64";
  const std::string calls = group + "&name=teller&calls_bytes=256KiB";
  const std::string in_file =
      "peers = [" + list + "]\nservice = \"bank\"\ntransport = \"tcp\"\npeer_timeout_ms = 10000\n";
  const test::TestDirectory directory;
  const std::string server = directory.file("server.toml");
  const std::string client = directory.file("client.toml");
  ASSERT_TRUE(write_file(server, in_file + "take_over = true\n").ok());
  ASSERT_TRUE(write_file(client, in_file + "name = \"teller\"\n").ok());
  for (const bool by_file : {false, true}) {
    const auto opened = by_file
                            ? perdure_replicated_rpc_server_open_file(
                                  server.c_str(), operations_.data(), operations_.size(), &server_)
                            : perdure_replicated_rpc_server_open_string(
                                  serves.c_str(), operations_.data(), operations_.size(), &server_);
    ASSERT_EQ(opened, PERDURE_OK) << perdure_last_error();
    ASSERT_EQ(by_file ? perdure_replicated_rpc_client_open_file(client.c_str(), &client_)
                      : perdure_replicated_rpc_client_open_string(calls.c_str(), &client_),
              PERDURE_OK)
        << perdure_last_error();
    EXPECT_EQ(deposit_five(), by_file ? 10 : 5);
    perdure_replicated_rpc_client_close(client_);
    client_ = nullptr;
    perdure_replicated_rpc_server_close(server_);
    server_ = nullptr;
  }
  EXPECT_EQ(perdure_replicated_rpc_client_open_string((calls + "&read=1").c_str(), &client_),
            PERDURE_INVALID_ARGUMENT);
  EXPECT_NE(std::string(perdure_last_error()).find("'read'"), std::string::npos);
  EXPECT_EQ(perdure_replicated_rpc_server_open_string(serves.c_str(), nullptr, 1, &server_),
            PERDURE_INVALID_ARGUMENT);
  EXPECT_NE(std::string(perdure_last_error()).find("operations"), std::string::npos);
  EXPECT_EQ(perdure_replicated_rpc_server_open_file("/nowhere/server.toml", nullptr, 0, &server_),
            PERDURE_NOT_FOUND);
  EXPECT_EQ(perdure_replicated_rpc_server_open_string(nullptr, nullptr, 0, &server_),
            PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_replicated_rpc_client_open_file(nullptr, &client_), PERDURE_INVALID_ARGUMENT);
  EXPECT_TRUE(server_ == nullptr && client_ == nullptr);
}

TEST_F(CReplicatedRpc, HandlesThatAreNotThereAreRefused) {
  perdure_rpc_handle handle{};
  perdure_rpc_outcome outcome{};
  std::size_t bytes = 0;
  EXPECT_EQ(perdure_replicated_rpc_server_read(nullptr, 0, &bytes, 1, 1), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_replicated_rpc_server_replace_peer(nullptr, "x", "y"),
            PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_replicated_rpc_server_get_status(nullptr, nullptr), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_replicated_rpc_server_get_clients(nullptr, nullptr, 0, &bytes),
            PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_replicated_rpc_server_get_metrics(nullptr, nullptr, 0, &bytes),
            PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_replicated_rpc_client_get_metrics(nullptr, nullptr, 0, &bytes),
            PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_replicated_rpc_client_call(nullptr, 1, "x", 1, 0, &handle),
            PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_replicated_rpc_client_wait(nullptr, &handle, PERDURE_RPC_DURABLE, 1),
            PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_replicated_rpc_client_reply(nullptr, &handle, 1, &outcome, nullptr, 0, &bytes),
            PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_replicated_rpc_client_read(nullptr, 0, &bytes, 1, 1), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_replicated_rpc_client_replace_peer(nullptr, "x", "y"),
            PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_replicated_rpc_client_handle_of(nullptr, 1, &handle), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_replicated_rpc_client_get_status(nullptr, nullptr), PERDURE_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace perdure::server::in_c
