// Calls on k of n servers: a bank of which servers, clients and peers are stopped, killed, lost for
// good and replaced. The judge is a server that is opened afterwards, and reads what the handlers
// have left: each call that was reported durable is there once, none twice, each client's in order,
// and the accounts add up.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <perdure/perdure.h>
#include <perdure/pool.h>
#include <perdure/replicated_rpc.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/bytes.h"
#include "core/clock.h"
#include "core/random.h"
#include "core/text_file.h"
#include "core/try.h"
#include "killed_peer.h"
#include "testing/soak.h"

namespace perdure::server {
namespace {

constexpr std::uint32_t kTransfer = 1;
constexpr std::uint32_t kRefuse = 2;
constexpr std::uint32_t kThrow = 3;
constexpr std::uint32_t kStuff = 4;  // a large change
constexpr std::uint64_t kAccounts = 32;
constexpr std::uint64_t kJournal = 512;  // behind the accounts
constexpr std::uint64_t kDataBytes = 256 * 1024;
constexpr auto kBankPatience = std::chrono::minutes(1);
constexpr auto kPeerTimeout = std::chrono::milliseconds(1000);

struct Transfer {
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  std::int64_t amount = 0;
};

/// A line of the journal.
struct Booked {
  std::uint64_t client = 0;
  std::uint64_t sequence = 0;
};

Result<std::size_t> transfer(const RpcCall& call, RpcTransaction& data,
                             std::span<std::byte> reply) {
  Transfer asked;
  if (call.payload.size() != sizeof asked) return Error{ErrorCode::InvalidArgument, "size"};
  std::memcpy(&asked, call.payload.data(), sizeof asked);
  PERDURE_TRY(line, data.load<std::uint64_t>(0));
  PERDURE_TRY(from, data.load<std::int64_t>(8 + 8 * asked.from));
  PERDURE_TRY_VOID(data.store(8 + 8 * asked.from, from - asked.amount));
  PERDURE_TRY(to, data.load<std::int64_t>(8 + 8 * asked.to));
  PERDURE_TRY_VOID(data.store(8 + 8 * asked.to, to + asked.amount));
  PERDURE_TRY_VOID(
      data.store(kJournal + line * sizeof(Booked), Booked{call.client_id, call.sequence}));
  PERDURE_TRY_VOID(data.store(0, line + 1));
  store(reply.data(), line);
  return sizeof line;
}

Transfer some_transfer(Random& random) {
  return {static_cast<std::uint32_t>(random.below(kAccounts)),
          static_cast<std::uint32_t>(random.below(kAccounts)),
          static_cast<std::int64_t>(random.below(1000))};
}

/// The peers of a service, and its server and clients in this process or in others.
class ReplicatedRpc : public testing::Test {
 protected:
  explicit ReplicatedRpc(std::size_t peers = 3) {
    for (std::size_t index = 0; index < peers; ++index) {
      peers_.push_back(std::make_unique<KilledPeer>());
      group_.peers.push_back(peers_.back()->address());
    }
    group_.service = "bank";
    group_.quorum = 2;
    group_.transport = Transport::Tcp;
    group_.peer_timeout = kPeerTimeout;
    group_.reconnect = std::chrono::milliseconds(10);
  }

  ReplicatedRpcServerOptions server_options() const {
    ReplicatedRpcServerOptions options;
    options.group = group_;
    options.data_bytes = kDataBytes;
    options.clients_max = 8;
    options.replies = 16;
    options.reply_bytes_max = 64;
    options.transaction_bytes = 64 * 1024;
    options.application = 7;
    options.handlers[kTransfer] = transfer;
    options.handlers[kRefuse] = [](const RpcCall&, RpcTransaction& data,
                                   std::span<std::byte>) -> Result<std::size_t> {
      PERDURE_TRY_VOID(data.store(8, std::int64_t{-1}));
      return Error{ErrorCode::PermissionDenied, "no"};
    };
    options.handlers[kThrow] = [](const RpcCall&, RpcTransaction& data,
                                  std::span<std::byte>) -> Result<std::size_t> {
      PERDURE_TRY_VOID(data.store(8, std::int64_t{-1}));
      throw std::runtime_error("a handler's mistake");
    };
    options.handlers[kStuff] = [](const RpcCall& call, RpcTransaction& data,
                                  std::span<std::byte>) -> Result<std::size_t> {
      const std::vector<std::byte> bytes(48 * 1024, static_cast<std::byte>(call.sequence));
      PERDURE_TRY_VOID(data.write(kDataBytes - bytes.size() * (1 + call.sequence % 2), bytes));
      return std::size_t{0};
    };
    return options;
  }

  /// Tries again while another one is going.
  static ReplicatedRpcServer serve(const ReplicatedRpcServerOptions& options) {
    for (const Deadline deadline = Deadline::after(kBankPatience);;) {
      auto server = ReplicatedRpcServer::open(options);
      if (server.ok()) return std::move(*server);
      if (deadline.passed()) throw std::runtime_error(server.error().message);
      test::pause_for(std::chrono::milliseconds(20));
    }
  }
  ReplicatedRpcServer serve() const { return serve(server_options()); }

  ReplicatedRpcClientOptions client_options(const std::string& name) const {
    ReplicatedRpcClientOptions options;
    options.group = group_;
    options.name = name;
    options.calls_bytes = 256 * 1024;
    return options;
  }
  ReplicatedRpcClient client(const std::string& name) const {
    auto client = ReplicatedRpcClient::open(client_options(name));
    if (!client.ok()) throw std::runtime_error(client.error().message);
    return std::move(*client);
  }

  RpcHandle begin(ReplicatedRpcClient& client) {
    const Transfer asked = some_transfer(random_);
    const auto handle = client.call(kTransfer, bytes_of(asked));
    EXPECT_TRUE(handle.ok()) << handle.error().message;
    return handle.ok() ? *handle : RpcHandle{};
  }
  static void expect(ReplicatedRpcClient& client, const RpcHandle& handle, RpcLevel level) {
    const auto waited = client.wait(handle, level, kBankPatience);
    EXPECT_TRUE(waited.ok()) << to_string(level) << ": " << waited.error().message;
  }

  /// What the handlers have left: lines of the journal, in order, if the accounts add up.
  static std::vector<Booked> journal(ReplicatedRpcServer& server) {
    std::vector<std::byte> bytes(kDataBytes);
    const auto got = server.read(0, bytes, kBankPatience);
    EXPECT_TRUE(got.ok()) << got.error().message;
    std::int64_t sum = 0;
    for (std::uint64_t account = 0; account < kAccounts; ++account) {
      sum += load<std::int64_t>(bytes.data() + 8 + 8 * account);
    }
    EXPECT_EQ(sum, 0);
    std::vector<Booked> lines(load<std::uint64_t>(bytes.data()));
    for (std::size_t line = 0; line < lines.size(); ++line) {
      lines[line] = load<Booked>(bytes.data() + kJournal + line * sizeof(Booked));
    }
    return lines;
  }
  /// Each client's calls up to this one, each once and in order.
  static void judge(ReplicatedRpcServer& server,
                    const std::map<std::uint64_t, std::uint64_t>& durable) {
    for (const Deadline deadline = Deadline::after(kBankPatience); !deadline.passed();) {
      std::map<std::uint64_t, std::uint64_t> last;
      for (const Booked& line : journal(server)) {
        ASSERT_EQ(line.sequence, last[line.client] + 1) << "of client " << line.client;
        last[line.client] = line.sequence;
      }
      const bool all = std::all_of(durable.begin(), durable.end(), [&](const auto& each) {
        return last[each.first] >= each.second;
      });
      if (all) return;
      test::pause_for(std::chrono::milliseconds(20));
    }
    for (const auto& place : server.status().clients) {
      ADD_FAILURE() << place.name << ": applied " << place.applied << ", durable "
                    << durable.at(place.client_id)
                    << (place.failure ? ", " + place.failure->message : "");
    }
  }

  std::vector<std::unique_ptr<KilledPeer>> peers_;
  ReplicatedRpcGroup group_;
  Random random_{0x5eed};
};

TEST_F(ReplicatedRpc, EachCallIsExecutedOnceAndHasItsReply) {
  ReplicatedRpcServer server = serve();
  ReplicatedRpcClient teller = client("teller-1");
  for (std::uint64_t line = 0; line < 20; ++line) {
    const RpcHandle handle = begin(teller);
    const auto reply = teller.reply(handle, kBankPatience);
    ASSERT_TRUE(reply.ok()) << reply.error().message;
    ASSERT_FALSE(reply->refused);
    EXPECT_EQ(load<std::uint64_t>(reply->bytes.data()), line);
  }
  // What is refused leaves nothing, and is no end of anything.
  for (const auto& [operation, code] :
       {std::pair{kRefuse, ErrorCode::PermissionDenied}, std::pair{kThrow, ErrorCode::SystemError},
        std::pair{std::uint32_t{99}, ErrorCode::Unsupported}}) {
    const auto handle = teller.call(operation, {});
    ASSERT_TRUE(handle.ok());
    const auto reply = teller.reply(*handle, kBankPatience);
    ASSERT_TRUE(reply.ok()) << reply.error().message;
    EXPECT_EQ(reply->refused, code);
  }
  const RpcHandle last = begin(teller);
  expect(teller, last, RpcLevel::Applied);
  EXPECT_EQ(journal(server).size(), 21U);
  EXPECT_EQ(server.status().executed, 24U);
  EXPECT_EQ(server.status().refused, 3U);
}

TEST_F(ReplicatedRpc, TheNextServerExecutesWhatWasDurableWithoutItsClient) {
  std::map<std::uint64_t, std::uint64_t> durable;
  {
    ReplicatedRpcServer server = serve();
    ReplicatedRpcClient teller = client("teller-1");
    for (int call = 0; call < 10; ++call) expect(teller, begin(teller), RpcLevel::Applied);
  }
  {
    ReplicatedRpcClient teller = client("teller-1");
    EXPECT_EQ(teller.status().earlier_durable, 10U);
    for (int call = 0; call < 10; ++call) expect(teller, begin(teller), RpcLevel::Durable);
    durable[teller.status().client_id] = teller.status().begun;
  }
  ReplicatedRpcServer server = serve();
  judge(server, durable);
  EXPECT_EQ(journal(server).size(), 20U);
  // A later process of the client gets the replies of its predecessor's last calls.
  ReplicatedRpcClient teller = client("teller-1");
  const auto reply = teller.reply(teller.handle_of(20), kBankPatience);
  ASSERT_TRUE(reply.ok()) << reply.error().message;
  EXPECT_EQ(load<std::uint64_t>(reply->bytes.data()), 19U);
}

}  // namespace
}  // namespace perdure::server
