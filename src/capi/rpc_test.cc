// Durable RPC through the C interface: a server and a client, what handlers see, what is refused,
// and structs of older and newer headers.
#include <gtest/gtest.h>
#include <perdure/perdure.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>

#include "core/text_file.h"
#include "testing/temporary_directory.h"

namespace {

constexpr std::uint32_t kDeposit = 1;
constexpr std::uint32_t kBroken = 2;
constexpr std::uint32_t kLook = 3;

/// What a handler was told; it is told that on the server's thread.
struct Seen {
  std::mutex mutex;
  std::uint64_t sequence = 0;
  std::uint64_t order_key = 0;
  std::string client;
};

perdure_code deposit(const perdure_rpc_request* request, perdure_rpc_data* data, void* reply,
                     std::size_t room, std::size_t* bytes, void* context) {
  auto* const seen = static_cast<Seen*>(context);
  {
    const std::lock_guard<std::mutex> lock(seen->mutex);
    seen->sequence = request->sequence;
    seen->order_key = request->order_key;
    seen->client = request->client;
  }
  std::int64_t amount = 0;
  std::int64_t total = 0;
  if (request->payload_bytes != sizeof amount || room < sizeof total) {
    return PERDURE_INVALID_ARGUMENT;
  }
  std::memcpy(&amount, request->payload, sizeof amount);
  perdure_code code = perdure_rpc_data_read(data, 0, &total, sizeof total);
  total += amount;
  if (code == PERDURE_OK) code = perdure_rpc_data_write(data, 0, &total, sizeof total);
  std::memcpy(reply, &total, sizeof total);
  *bytes = sizeof total;
  return code;
}

perdure_code refuse(const perdure_rpc_request*, perdure_rpc_data* data, void*, std::size_t,
                    std::size_t*, void*) {
  const std::int64_t gone = -1;
  EXPECT_EQ(perdure_rpc_data_write(data, 0, &gone, sizeof gone), PERDURE_OK);
  return PERDURE_LOG_FULL;
}

perdure_code total_of(const void*, std::size_t, const perdure_rpc_data* data, void* reply,
                      std::size_t room, std::size_t* bytes, void*) {
  EXPECT_EQ(perdure_rpc_data_bytes(data), 4096u);
  EXPECT_EQ(perdure_rpc_data_read(data, 4095, reply, 2), PERDURE_OUT_OF_RANGE);
  *bytes = 8;
  return room < 8 ? PERDURE_NO_SPACE : perdure_rpc_data_read(data, 0, reply, 8);
}

/// What its server was at when the handler asked; that is on the server's thread.
struct Looked {
  perdure_rpc_server* server = nullptr;
  std::mutex mutex;
  perdure_rpc_executing call{};
  std::size_t there = 0;
};

perdure_code look(const perdure_rpc_request*, perdure_rpc_data*, void*, std::size_t, std::size_t*,
                  void* context) {
  auto* const looked = static_cast<Looked*>(context);
  const std::lock_guard<std::mutex> lock(looked->mutex);
  looked->call.size = sizeof looked->call;
  return perdure_rpc_server_get_executing(looked->server, &looked->call, 1, &looked->there);
}

class CRpc : public testing::Test {
 protected:
  CRpc() {
    options_.size = sizeof options_;
    options_.pool = pool_.c_str();
    options_.operations = operations_.data();
    options_.operation_count = operations_.size();
    options_.listen = "127.0.0.1:0";
    options_.data_listen = "127.0.0.1:0";
    options_.data_bytes = 4096;
    options_.clients_max = 2;
    options_.ring_bytes = 65536;
  }
  ~CRpc() override {
    perdure_rpc_client_close(client_);
    perdure_rpc_server_close(server_);
  }

  void start() {
    ASSERT_EQ(perdure_rpc_server_open(&options_, &server_), PERDURE_OK) << perdure_last_error();
    perdure_rpc_client_options options{};
    options.size = sizeof options;
    options.server = perdure_rpc_server_address(server_);
    options.name = "teller";
    options.transport = "tcp";
    options.usual_costs = true;
    options.server_timeout_ms = 60'000;  // a busy disk may take its time
    ASSERT_EQ(perdure_rpc_client_open(&options, &client_), PERDURE_OK) << perdure_last_error();
  }

  void expect_seen(const perdure_rpc_handle& handle) {
    const std::lock_guard<std::mutex> lock(seen_.mutex);
    EXPECT_EQ(seen_.client, "teller");
    EXPECT_EQ(seen_.order_key, 77u);
    EXPECT_EQ(seen_.sequence, handle.sequence);
  }

  const perdure::test::TestDirectory directory_;
  const std::string pool_ = directory_.file("calls.pool");
  Seen seen_;
  Looked looked_;
  const std::array<perdure_rpc_operation, 3> operations_ = {
      {{kDeposit, 0, deposit, total_of, &seen_},
       {kBroken, 0, refuse, nullptr, nullptr},
       {kLook, 0, look, nullptr, &looked_}}};
  perdure_rpc_server_options options_{};
  perdure_rpc_server* server_ = nullptr;
  perdure_rpc_client* client_ = nullptr;
};

TEST_F(CRpc, ACallIsDurableThenAppliedAndAnswered) {
  start();
  ASSERT_FALSE(HasFatalFailure());
  const std::int64_t amount = 5;
  perdure_rpc_handle handle{};
  perdure_rpc_outcome outcome{};
  outcome.size = sizeof outcome;
  outcome.refused = PERDURE_BUSY;
  std::int64_t total = 0;
  std::size_t bytes = 0;
  for (std::int64_t call = 1; call <= 3; ++call) {
    ASSERT_EQ(perdure_rpc_client_call(client_, kDeposit, &amount, sizeof amount, 77, &handle),
              PERDURE_OK);
    ASSERT_EQ(perdure_rpc_client_wait(client_, &handle, PERDURE_RPC_DURABLE, 30000), PERDURE_OK);
    ASSERT_EQ(
        perdure_rpc_client_reply(client_, &handle, 30000, &outcome, &total, sizeof total, &bytes),
        PERDURE_OK);
    EXPECT_EQ(outcome.refused, PERDURE_OK);
    EXPECT_EQ(bytes, sizeof total);
    EXPECT_EQ(total, 5 * call);
  }
  expect_seen(handle);
  // A handler's code is the caller's; nothing that it wrote is kept.
  ASSERT_EQ(perdure_rpc_client_call(client_, kBroken, nullptr, 0, 0, &handle), PERDURE_OK);
  outcome.dropped = outcome.cancelled = true;
  ASSERT_EQ(perdure_rpc_client_reply(client_, &handle, 30000, &outcome, nullptr, 0, &bytes),
            PERDURE_OK);
  EXPECT_EQ(outcome.refused, PERDURE_LOG_FULL);
  EXPECT_FALSE(outcome.dropped);
  EXPECT_FALSE(outcome.cancelled);
  EXPECT_EQ(bytes, 0u);
  std::array<std::byte, 3> little{};
  ASSERT_EQ(perdure_rpc_client_query(client_, kDeposit, nullptr, 0, true, 30000, little.data(),
                                     little.size(), &bytes),
            PERDURE_OK);
  EXPECT_EQ(bytes, 8u);  // as much as there is, whatever the room
  EXPECT_EQ(little[0], std::byte{15});
  EXPECT_EQ(perdure_rpc_client_query(client_, kBroken, nullptr, 0, true, 30000, little.data(),
                                     little.size(), &bytes),
            PERDURE_UNSUPPORTED);
  perdure_rpc_client_times times{};
  times.size = sizeof times;
  ASSERT_EQ(perdure_rpc_client_get_times(client_, &times), PERDURE_OK);
  EXPECT_GT(perdure_time_quantile_ns(&times.durable, 0.5), 0u);
  EXPECT_GT(perdure_time_quantile_ns(&times.applied, 0.5), 0u);
  EXPECT_GT(times.queries.sum_ns, 0u);
  perdure_rpc_client_status status{};
  status.size = sizeof status;
  ASSERT_EQ(perdure_rpc_client_get_status(client_, &status), PERDURE_OK);
  EXPECT_TRUE(status.up);
  EXPECT_EQ(status.applied, 4u);
  EXPECT_STRNE(status.small_method, "");
  EXPECT_STRNE(status.large_method, "");
  perdure_rpc_server_status served{};
  served.size = sizeof served;
  ASSERT_EQ(perdure_rpc_server_get_status(server_, &served), PERDURE_OK);
  EXPECT_EQ(served.applied, 4u);
  EXPECT_EQ(served.refused, 1u);
  perdure_rpc_client_place place{};
  place.size = sizeof place;
  std::size_t there = 0;
  ASSERT_EQ(perdure_rpc_server_get_clients(server_, &place, 1, &there), PERDURE_OK);
  EXPECT_EQ(there, 1u);
  EXPECT_STREQ(place.name, "teller");
  EXPECT_EQ(place.applied, 4u);
  EXPECT_EQ(perdure_rpc_server_retry(server_, "teller", 4), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_rpc_server_drop(server_, "nobody", 4), PERDURE_NOT_FOUND);
}

// The call is in its handler while that looks.
TEST_F(CRpc, ACallThatIsExecutedIsShown) {
  start();
  ASSERT_FALSE(HasFatalFailure());
  {
    const std::lock_guard<std::mutex> lock(looked_.mutex);
    looked_.server = server_;
  }
  perdure_rpc_handle handle{};
  ASSERT_EQ(perdure_rpc_client_call(client_, kLook, nullptr, 0, 0, &handle), PERDURE_OK);
  ASSERT_EQ(perdure_rpc_client_wait(client_, &handle, PERDURE_RPC_APPLIED, 30000), PERDURE_OK);
  const std::lock_guard<std::mutex> lock(looked_.mutex);
  EXPECT_EQ(looked_.there, 1u);
  EXPECT_STREQ(looked_.call.name, "teller");
  EXPECT_EQ(looked_.call.client_id, handle.client_id);
  EXPECT_EQ(looked_.call.sequence, handle.sequence);
  EXPECT_EQ(looked_.call.operation, kLook);
  std::size_t there = 1;
  EXPECT_EQ(perdure_rpc_server_get_executing(server_, nullptr, 0, &there), PERDURE_OK);
  EXPECT_EQ(there, 0u);  // and not afterwards
}

// What no server has any time for is cancelled, and its sender can tell that from a handler's word.
TEST_F(CRpc, ACallThatWasNotSentIsCancelled) {
  start();
  ASSERT_FALSE(HasFatalFailure());
  perdure_rpc_server_close(server_);
  server_ = nullptr;
  perdure_rpc_handle handle{};
  const std::int64_t amount = 5;
  perdure_code code = PERDURE_OK;
  // Whatever was sent while the loss was not noticed can not be cancelled.
  for (int tries = 0; tries < 60; ++tries) {
    ASSERT_EQ(perdure_rpc_client_call(client_, kDeposit, &amount, sizeof amount, 0, &handle),
              PERDURE_OK)
        << perdure_last_error();
    code = perdure_rpc_client_cancel(client_, &handle);
    if (code == PERDURE_OK) break;
    (void)perdure_rpc_client_wait(client_, &handle, PERDURE_RPC_DURABLE, 100);
  }
  ASSERT_EQ(code, PERDURE_OK) << perdure_last_error();
  perdure_rpc_client_status status{};
  status.size = sizeof status;
  ASSERT_EQ(perdure_rpc_client_get_status(client_, &status), PERDURE_OK);
  EXPECT_EQ(status.cancelled, 1u);
}

// What a machine is declared to be, and where it serves, is said in the words of the command.
TEST_F(CRpc, AServerIsDeclaredInWords) {
  const std::array<const char*, 1> transports = {"tcp"};
  options_.transports = transports.data();
  options_.transport_count = transports.size();
  options_.declared = "page";
  options_.receive_buffers = "dram";
  start();
  ASSERT_FALSE(HasFatalFailure());
  perdure_rpc_client_options options{};
  options.size = sizeof options;
  options.server = perdure_rpc_server_address(server_);
  options.name = "neighbour";
  options.transport = "shm";
  perdure_rpc_client* client = nullptr;
  EXPECT_NE(perdure_rpc_client_open(&options, &client), PERDURE_OK);
  perdure_rpc_server* other = nullptr;
  options_.declared = "for ever";
  EXPECT_EQ(perdure_rpc_server_open(&options_, &other), PERDURE_INVALID_ARGUMENT);
  EXPECT_NE(std::string(perdure_last_error()).find("for ever"), std::string::npos);
  options_.declared = nullptr;
  options_.receive_buffers = "disk";
  EXPECT_EQ(perdure_rpc_server_open(&options_, &other), PERDURE_INVALID_ARGUMENT);
  options_.receive_buffers = nullptr;
  const std::array<const char*, 2> wrong = {"tcp", "pigeon"};
  options_.transports = wrong.data();
  options_.transport_count = wrong.size();
  EXPECT_EQ(perdure_rpc_server_open(&options_, &other), PERDURE_INVALID_ARGUMENT);
  options_.transports = nullptr;
  EXPECT_EQ(perdure_rpc_server_open(&options_, &other), PERDURE_INVALID_ARGUMENT);
}

TEST_F(CRpc, AClientIsOpenedByAConnectionStringOrByAFile) {
  start();
  ASSERT_FALSE(HasFatalFailure());
  perdure_rpc_client_close(client_);
  client_ = nullptr;
  const std::string server = perdure_rpc_server_address(server_);
  const std::string words = "perdure://" + server + "/teller?transport=tcp&measure_costs=false";
  const std::string path = directory_.file("client.toml");
  ASSERT_TRUE(perdure::write_file(path, "server = \"" + server +
                                            "\"\nname = \"teller\"\n"
                                            "transport = \"tcp\"\nmeasure_costs = false\n")
                  .ok());
  std::int64_t total = 0;
  for (const bool by_file : {false, true}) {
    ASSERT_EQ(by_file ? perdure_rpc_client_open_file(path.c_str(), &client_)
                      : perdure_rpc_client_open_string(words.c_str(), &client_),
              PERDURE_OK)
        << perdure_last_error();
    const std::int64_t amount = 5;
    perdure_rpc_handle handle{};
    perdure_rpc_outcome outcome{};
    outcome.size = sizeof outcome;
    std::size_t bytes = 0;
    ASSERT_EQ(perdure_rpc_client_call(client_, kDeposit, &amount, sizeof amount, 0, &handle),
              PERDURE_OK);
    ASSERT_EQ(
        perdure_rpc_client_reply(client_, &handle, 30000, &outcome, &total, sizeof total, &bytes),
        PERDURE_OK);
    perdure_rpc_client_close(client_);
    client_ = nullptr;
  }
  EXPECT_EQ(total, 10);
  EXPECT_EQ(perdure_rpc_client_open_string((words + "&spin=1").c_str(), &client_),
            PERDURE_INVALID_ARGUMENT);
  EXPECT_NE(std::string(perdure_last_error()).find("'spin'"), std::string::npos);
  EXPECT_EQ(perdure_rpc_client_open_file("/nowhere/client.toml", &client_), PERDURE_NOT_FOUND);
  EXPECT_EQ(perdure_rpc_client_open_string(nullptr, &client_), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_rpc_client_open_file(path.c_str(), nullptr), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(client_, nullptr);
}

TEST_F(CRpc, APoolIsReplayedWithoutServing) {
  EXPECT_EQ(perdure_rpc_server_replay(&options_, nullptr), PERDURE_NOT_FOUND);
  start();
  ASSERT_FALSE(HasFatalFailure());
  perdure_rpc_client_close(client_);
  client_ = nullptr;
  perdure_rpc_server_close(server_);
  server_ = nullptr;
  perdure_rpc_server_status status{};
  status.size = sizeof status;
  EXPECT_EQ(perdure_rpc_server_replay(&options_, &status), PERDURE_OK) << perdure_last_error();
}

// Expect: what lies behind the end of an older struct is not read, and not written.
TEST_F(CRpc, StructsOfOlderAndNewerHeadersAreTaken) {
  options_.size = offsetof(perdure_rpc_server_options, never_spin);
  std::memset(&options_.never_spin, 0xff,
              sizeof options_ - offsetof(perdure_rpc_server_options, never_spin));
  start();
  ASSERT_FALSE(HasFatalFailure());
  perdure_rpc_server_status status;
  std::memset(&status, 0xaa, sizeof status);
  status.size = offsetof(perdure_rpc_server_status, failed);
  ASSERT_EQ(perdure_rpc_server_get_status(server_, &status), PERDURE_OK);
  EXPECT_EQ(status.applied, 0u);
  EXPECT_EQ(static_cast<unsigned char>(status.failure[0]), 0xaau);
  struct {
    perdure_rpc_client_options known;
    std::uint64_t newer;
  } newer{};
  newer.known.size = sizeof newer;
  newer.known.server = perdure_rpc_server_address(server_);
  newer.known.name = "new";
  newer.newer = 1;
  perdure_rpc_client* client = nullptr;
  EXPECT_EQ(perdure_rpc_client_open(&newer.known, &client), PERDURE_INVALID_ARGUMENT);
  newer.newer = 0;
  EXPECT_EQ(perdure_rpc_client_open(&newer.known, &client), PERDURE_OK) << perdure_last_error();
  perdure_rpc_client_close(client);
}

TEST_F(CRpc, WhatIsNotThereIsRefused) {
  perdure_rpc_handle handle{};
  std::size_t bytes = 0;
  perdure_rpc_outcome outcome{};
  EXPECT_EQ(perdure_rpc_server_open(nullptr, &server_), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_rpc_server_open(&options_, nullptr), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_rpc_server_replay(nullptr, nullptr), PERDURE_INVALID_ARGUMENT);
  options_.pool = nullptr;
  EXPECT_EQ(perdure_rpc_server_open(&options_, &server_), PERDURE_INVALID_ARGUMENT);
  EXPECT_STREQ(perdure_rpc_server_address(nullptr), "");
  EXPECT_EQ(perdure_rpc_server_get_status(nullptr, nullptr), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_rpc_server_get_clients(nullptr, nullptr, 0, &bytes), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_rpc_server_get_executing(nullptr, nullptr, 0, &bytes),
            PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_rpc_server_retry(nullptr, "x", 1), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_rpc_server_drop(nullptr, "x", 1), PERDURE_INVALID_ARGUMENT);
  perdure_rpc_client_options options{};
  EXPECT_EQ(perdure_rpc_client_open(&options, &client_), PERDURE_INVALID_ARGUMENT);  // no size
  options.size = sizeof options;
  EXPECT_EQ(perdure_rpc_client_open(&options, &client_), PERDURE_INVALID_ARGUMENT);  // no server
  EXPECT_EQ(perdure_rpc_client_open(nullptr, &client_), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_rpc_client_call(nullptr, 1, "x", 1, 0, &handle), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_rpc_client_wait(nullptr, &handle, PERDURE_RPC_DURABLE, 1),
            PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_rpc_client_reply(nullptr, &handle, 1, &outcome, nullptr, 0, &bytes),
            PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_rpc_client_query(nullptr, 1, nullptr, 0, true, 1, nullptr, 0, &bytes),
            PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_rpc_client_poll(nullptr), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_rpc_client_payload_bytes_max(nullptr), 0u);
  EXPECT_EQ(perdure_rpc_client_handle_of(nullptr, 1, &handle), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_rpc_client_get_status(nullptr, nullptr), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_rpc_client_get_times(nullptr, nullptr), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_rpc_data_read(nullptr, 0, &bytes, 1), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_rpc_data_write(nullptr, 0, &bytes, 1), PERDURE_INVALID_ARGUMENT);
  EXPECT_EQ(perdure_rpc_data_bytes(nullptr), 0u);
}

}  // namespace
