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
#include <filesystem>
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
#include "replicated_rpc/effects.h"
#include "replicated_rpc/group.h"
#include "testing/process.h"
#include "testing/soak.h"

namespace perdure::server {
namespace {

constexpr std::uint32_t kTransfer = 1;
constexpr std::uint32_t kRefuse = 2;
constexpr std::uint32_t kThrow = 3;
constexpr std::uint32_t kStuff = 4;  // a large change
constexpr std::uint32_t kEnd = 5;    // of the process that executes it
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
    for (const Deadline deadline = Deadline::after(kBankPatience);;) {
      auto client = ReplicatedRpcClient::open(client_options(name));
      if (client.ok()) return std::move(*client);
      if (deadline.passed()) throw std::runtime_error(client.error().message);
      test::pause_for(std::chrono::milliseconds(20));
    }
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

  /// A process that makes one call when it is told to, and dies as soon as that is durable, without
  /// the pause in which readers would be told. Made while this process has no threads: a child may
  /// wait for ever for what one of them holds, and the thread sanitizer has no such child at all.
  class DyingTeller {
   public:
    /// With another group than the bank's, if one is given.
    DyingTeller(ReplicatedRpc& bank, const std::string& name,
                const std::optional<ReplicatedRpcGroup>& group = std::nullopt)
        : go_(bank.directory_.file(name + ".go")), said_(bank.directory_.file(name + ".said")) {
      std::filesystem::remove(go_);
      auto child = test::ChildProcess::fork([&] {
        if (group) bank.group_ = *group;
        for (const Deadline deadline = Deadline::after(3 * kBankPatience);
             !std::filesystem::exists(go_);) {
          if (deadline.passed()) return 1;
          test::pause_for(std::chrono::milliseconds(5));
        }
        ReplicatedRpcClient teller = bank.client(name);
        std::ofstream(said_) << teller.status().client_id;
        const RpcHandle handle = bank.begin(teller);
        if (!teller.wait(handle, RpcLevel::Durable, kBankPatience).ok()) return 1;
        ::raise(SIGKILL);
        return 1;
      });
      if (!child.ok()) throw std::runtime_error(child.error().message);
      process_ = std::move(*child);
    }
    /// Once. Returns the client's id.
    std::uint64_t call() {
      std::ofstream(go_) << "go";
      EXPECT_TRUE(process_.wait(Deadline::after(5 * kBankPatience)));
      if (!process_.end() || process_.end()->signal != SIGKILL) {
        throw std::runtime_error("the process has not died of its call");
      }
      return std::stoull(read_text(said_));
    }

   private:
    std::string go_;
    std::string said_;
    test::ChildProcess process_;
  };

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

  TestDirectory directory_;
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

/// The value of a metric with these labels, NAME{LABELS}; -1: there is none.
double metric(const std::string& text, const std::string& name) {
  const std::size_t at = ("\n" + text).find("\n" + name + " ");
  return at == std::string::npos ? -1 : std::stod(text.substr(at + name.size() + 1));
}

TEST_F(ReplicatedRpc, MetricsSayHowFarEachClientIsAndWhatIsUp) {
  ReplicatedRpcServer server = serve();
  std::optional<ReplicatedRpcClient> older(client("teller-1"));
  for (int call = 0; call < 3; ++call) expect(*older, begin(*older), RpcLevel::Applied);
  const std::string bank = "{service=\"bank\"}";
  const std::string teller = "{service=\"bank\",client=\"teller-1\"}";
  const std::string name = "perdure_replicated_rpc_";
  std::string text = server.metrics();
  EXPECT_EQ(metric(text, name + "executing" + bank), 1) << text;
  EXPECT_EQ(metric(text, name + "fenced" + bank), 0);
  EXPECT_EQ(metric(text, name + "executed_total" + bank), 3);
  EXPECT_EQ(metric(text, name + "quorum" + bank), 2);
  EXPECT_EQ(metric(text, name + "replicas" + bank), 3);
  EXPECT_GT(metric(text, name + "effects_bytes" + bank), 0);
  EXPECT_LT(metric(text, name + "effects_bytes" + bank),
            metric(text, name + "effects_bytes_max" + bank));
  EXPECT_EQ(metric(text, name + "client_executed" + teller), 3);
  EXPECT_EQ(metric(text, name + "client_waiting_bytes" + teller), 0);
  text = older->metrics();
  EXPECT_EQ(metric(text, name + "caller_begun" + teller), 3) << text;
  EXPECT_EQ(metric(text, name + "caller_applied" + teller), 3);
  EXPECT_EQ(metric(text, name + "caller_fenced" + teller), 0);

  // A peer goes; and a newer process has the name.
  peers_[2]->kill();
  ReplicatedRpcClient newer = client("teller-1");
  expect(newer, begin(newer), RpcLevel::Applied);
  const auto seen = [&] {
    return metric(server.metrics(), name + "replicas_up" + bank) == 2 &&
           metric(older->metrics(), name + "caller_fenced" + teller) == 1;
  };
  for (const Deadline deadline = Deadline::after(kBankPatience); !seen() && !deadline.passed();) {
    test::pause_for(std::chrono::milliseconds(20));
  }
  EXPECT_TRUE(seen()) << server.metrics() << older->metrics();
  EXPECT_EQ(metric(older->metrics(), name + "caller_usable" + teller), 0);
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

TEST_F(ReplicatedRpc, AnOlderServerExecutesNothingThatCounts) {
  std::atomic<int> state{0};
  ReplicatedRpcServerOptions slow = server_options();
  slow.handlers[kTransfer] = [&](const RpcCall& call, RpcTransaction& data,
                                 std::span<std::byte> reply) {
    if (state == 0) state = 1;
    for (const Deadline deadline = Deadline::after(kBankPatience);
         state != 2 && !deadline.passed();) {
      test::pause_for(std::chrono::milliseconds(1));
    }
    return transfer(call, data, reply);
  };
  ReplicatedRpcServer older = serve(slow);
  ReplicatedRpcClient teller = client("teller-1");
  for (int call = 0; call < 3; ++call) expect(teller, begin(teller), RpcLevel::Durable);
  while (state == 0) test::pause_for(std::chrono::milliseconds(1));

  // While one executes, nobody gets in its way who has not been told to.
  EXPECT_EQ(ReplicatedRpcServer::open(server_options()).code(), ErrorCode::Busy);
  ReplicatedRpcServerOptions taking = server_options();
  taking.take_over = true;
  ReplicatedRpcServer newer = serve(taking);
  expect(teller, teller.handle_of(3), RpcLevel::Applied);
  state = 2;  // the older one goes on with what it was at

  for (int call = 0; call < 3; ++call) expect(teller, begin(teller), RpcLevel::Applied);
  judge(newer, {{teller.status().client_id, 6}});
  EXPECT_EQ(journal(newer).size(), 6U);
  std::optional<Error> failure;
  for (const Deadline deadline = Deadline::after(kBankPatience); !failure && !deadline.passed();) {
    failure = older.status().failure;
    test::pause_for(std::chrono::milliseconds(5));
  }
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->code, ErrorCode::Fenced);
  std::vector<std::byte> byte(1);
  EXPECT_EQ(older.read(0, byte).code(), ErrorCode::Fenced);
}

TEST_F(ReplicatedRpc, ANewerProcessOfAClientFencesTheOlderOne) {
  ReplicatedRpcServer server = serve();
  ReplicatedRpcClient older = client("teller-1");
  expect(older, begin(older), RpcLevel::Durable);
  ReplicatedRpcClient newer = client("teller-1");
  EXPECT_EQ(newer.status().client_id, older.status().client_id);
  expect(newer, begin(newer), RpcLevel::Applied);
  const Transfer asked;
  const auto begun = older.call(kTransfer, bytes_of(asked));
  EXPECT_FALSE(begun.ok() && older.wait(*begun, RpcLevel::Durable, kBankPatience).ok());
  judge(server, {{newer.status().client_id, 2}});
  EXPECT_EQ(journal(server).size(), 2U);
}

TEST_F(ReplicatedRpc, TheEffectsAreCopiedSoThatTheLogDoesNotGrow) {
  std::uint64_t rounds = 0;
  ReplicatedRpcClient away = client("teller-2");
  std::uint64_t calls = 0;
  for (int life = 0; life < 3; ++life) {
    ReplicatedRpcServer server = serve();
    ReplicatedRpcClient teller = client("teller-1");
    if (life == 0) expect(away, begin(away), RpcLevel::Durable);
    for (int step = 0; step < 40; ++step, ++calls) {
      RpcHandle last = begin(teller);
      for (int large = 0; large < 2; ++large, ++calls) {
        const auto handle = teller.call(kStuff, {});
        ASSERT_TRUE(handle.ok()) << handle.error().message;
        last = *handle;
      }
      expect(teller, last, RpcLevel::Applied);
    }
    rounds += server.status().rounds;
  }
  EXPECT_GT(rounds, 2U);
  ReplicatedRpcServer server = serve();
  ReplicatedRpcClient teller = client("teller-1");
  EXPECT_EQ(journal(server).size(), 3U * 40 + 1);
  EXPECT_EQ(teller.status().begun, calls);
  // Who was away finds how far it is, and its reply, though the record with it has long been gone.
  const auto reply = away.reply(away.handle_of(1), kBankPatience);
  ASSERT_TRUE(reply.ok()) << reply.error().message;
  EXPECT_FALSE(reply->refused);
}

/// Expect: who reads sees its own calls, and no less than before when it reads another peer; and so
/// does who comes when the log has been trimmed, and nobody executes.
TEST_F(ReplicatedRpc, AClientReadsWhatTheHandlersHaveLeft) {
  ReplicatedRpcClientOptions options = client_options("teller-1");
  options.reads = true;
  auto opened = ReplicatedRpcClient::open(options);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  ReplicatedRpcClient& teller = *opened;
  std::array<std::byte, 8> line{};
  const auto lines = [&]() -> std::uint64_t {
    const auto got = teller.read(0, line, kBankPatience);
    EXPECT_TRUE(got.ok()) << got.error().message;
    return load<std::uint64_t>(line.data());
  };
  EXPECT_EQ(teller.read(0, line, std::chrono::milliseconds(100)).code(), ErrorCode::TimedOut);
  std::optional<ReplicatedRpcServer> server(serve());
  EXPECT_EQ(lines(), 0U);
  for (std::uint64_t call = 1; call <= 5; ++call) {
    expect(teller, begin(teller), RpcLevel::Applied);
    EXPECT_EQ(lines(), call);
  }
  EXPECT_EQ(teller.read(kDataBytes - 7, line).code(), ErrorCode::OutOfRange);
  peers_[0]->kill();
  EXPECT_EQ(lines(), 5U);
  peers_[0]->start();
  for (int step = 0; step < 100; ++step) {
    const auto handle = teller.call(kStuff, {});
    ASSERT_TRUE(handle.ok()) << handle.error().message;
    expect(teller, *handle, RpcLevel::Applied);
  }
  EXPECT_GT(server->status().rounds, 0U);
  std::vector<std::byte> all(kDataBytes);
  ASSERT_TRUE(server->read(0, all, kBankPatience).ok());
  server.reset();
  options.name = "reader";
  auto reader = ReplicatedRpcClient::open(options);
  ASSERT_TRUE(reader.ok()) << reader.error().message;
  for (ReplicatedRpcClient* const each : {&teller, &*reader}) {
    std::vector<std::byte> got(kDataBytes);
    // One that has just come may read a peer that has not heard of the last one yet.
    for (const Deadline deadline = Deadline::after(kBankPatience); got != all;) {
      const auto read = each->read(0, got, kBankPatience);
      ASSERT_TRUE(read.ok()) << read.error().message;
      ASSERT_FALSE(deadline.passed());
    }
  }
  ReplicatedRpcClient blind = client("teller-2");
  EXPECT_EQ(blind.read(0, line).code(), ErrorCode::Unsupported);
}

/// Two peers come back with older effects, and the loss is accepted, while the third one is away.
/// Expect: who has read what was executed since does not take the third one's for newer, though it
/// has more bytes.
TEST_F(ReplicatedRpc, AClientReadsNothingThatWasGivenUp) {
  const auto effects_of = [&](std::size_t index, auto visit) {
    for (const std::string& name : peers_[index]->pools().names()) {
      const std::string copy = directory_.file(fmt::format("{}-{}", index, name));
      if (name.find("bank.effects") != std::string::npos) {
        visit(peers_[index]->pools().file(name), copy);
      }
    }
  };
  const auto over = std::filesystem::copy_options::overwrite_existing;
  (void)client("reader");  // its pools are made on all peers
  const auto serve_calls = [&](const ReplicatedRpcServerOptions& options, std::uint32_t operation,
                               int calls) {
    ReplicatedRpcServer server = serve(options);
    ReplicatedRpcClient teller = client("teller-1");
    for (int call = 0; call < calls; ++call) {
      const auto handle = teller.call(operation, bytes_of(Transfer{}));
      ASSERT_TRUE(handle.ok()) << handle.error().message;
      expect(teller, *handle, RpcLevel::Applied);
    }
  };
  serve_calls(server_options(), kTransfer, 1);
  std::size_t copied = 0;
  for (const std::size_t index : {1, 2}) {
    peers_[index]->kill();
    effects_of(index, [&](const std::string& file, const std::string& copy) {
      copied += std::filesystem::copy_file(file, copy) ? 1 : 0;
    });
    peers_[index]->start();
  }
  ASSERT_GE(copied, 2U);
  serve_calls(server_options(), kStuff, 3);
  peers_[0]->kill();
  for (const std::size_t index : {1, 2}) {
    peers_[index]->kill();
    effects_of(index, [&](const std::string& file, const std::string& copy) {
      std::filesystem::copy_file(copy, file, over);
    });
    peers_[index]->start();
  }
  LogOptions loss = replicated_rpc::log_options(group_, "bank.effects");
  loss.accept_loss = true;
  {
    auto log = Log::open(loss);
    ASSERT_TRUE(log.ok()) << log.error().message;
  }
  ReplicatedRpcServerOptions refusing = server_options();
  refusing.handlers[kStuff] = refusing.handlers[kRefuse];
  serve_calls(refusing, kTransfer, 1);
  ReplicatedRpcClientOptions options = client_options("reader");
  options.reads = true;
  auto reader = ReplicatedRpcClient::open(options);
  ASSERT_TRUE(reader.ok()) << reader.error().message;
  std::array<std::byte, 8> line{};
  const auto expect_both = [&] {
    const auto read = reader->read(0, line, kBankPatience);
    EXPECT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ(load<std::uint64_t>(line.data()), 2U);
  };
  expect_both();
  for (const std::size_t index : {1, 2}) peers_[index]->kill();
  peers_[0]->start();
  EXPECT_EQ(reader->read(0, line, std::chrono::seconds(5)).code(), ErrorCode::TimedOut);
  for (const std::size_t index : {1, 2}) peers_[index]->start();
  expect_both();
}

/// Nothing is committed for a while, and a copy that went round can not free its place meanwhile.
TEST_F(ReplicatedRpc, AFullLogOfEffectsGoesOnWhenItsPeersDo) {
  group_.peer_timeout = std::chrono::minutes(2);
  std::atomic<int> state{0};
  ReplicatedRpcServerOptions gated = server_options();
  gated.handlers[kStuff] = [&, stuff = gated.handlers[kStuff]](const RpcCall& call,
                                                               RpcTransaction& data,
                                                               std::span<std::byte> reply) {
    if (state == 0) state = 1;
    while (state == 1) test::pause_for(std::chrono::milliseconds(1));
    return stuff(call, data, reply);
  };
  ReplicatedRpcServer server = serve(gated);
  ReplicatedRpcClient teller = client("teller-1");
  RpcHandle last;
  for (int count = 0; count < 300; ++count) {
    const auto handle = teller.call(kStuff, {});
    ASSERT_TRUE(handle.ok()) << handle.error().message;
    last = *handle;
  }
  expect(teller, last, RpcLevel::Durable);
  while (state == 0) test::pause_for(std::chrono::milliseconds(1));
  peers_[1]->stop();
  peers_[2]->stop();
  state = 2;
  std::optional<Error> waiting;
  for (const Deadline deadline = Deadline::after(kBankPatience); !waiting && !deadline.passed();) {
    test::pause_for(std::chrono::milliseconds(20));
    waiting = server.status().waiting;
  }
  peers_[1]->go_on();
  peers_[2]->go_on();
  ASSERT_TRUE(waiting);
  EXPECT_EQ(waiting->code, ErrorCode::LogFull);
  const auto applied = teller.wait(last, RpcLevel::Applied, kBankPatience);
  EXPECT_TRUE(applied.ok()) << applied.error().message;
}

/// With two peers that stand still, something is on one server only.
TEST_F(ReplicatedRpc, AppliedIsSaidOfWhatIsOnAQuorum) {
  std::atomic<int> state{0};
  ReplicatedRpcServerOptions slow = server_options();
  slow.handlers[kTransfer] = [&](const RpcCall& call, RpcTransaction& data,
                                 std::span<std::byte> reply) {
    if (state == 0) state = 1;
    while (state != 2) test::pause_for(std::chrono::milliseconds(1));
    return transfer(call, data, reply);
  };
  ReplicatedRpcServer server = serve(slow);
  ReplicatedRpcClient teller = client("teller-1");
  const RpcHandle handle = begin(teller);
  expect(teller, handle, RpcLevel::Durable);
  while (state == 0) test::pause_for(std::chrono::milliseconds(1));
  peers_[1]->stop();
  peers_[2]->stop();
  state = 2;
  EXPECT_EQ(teller.wait(handle, RpcLevel::Applied, std::chrono::seconds(3)).code(),
            ErrorCode::TimedOut);
  for (const std::size_t index : {1, 2}) {
    peers_[index]->kill();
    peers_[index]->start();
  }
  expect(teller, handle, RpcLevel::Applied);
}

TEST_F(ReplicatedRpc, ACallThatIsOnOneServerOnlyIsNotExecuted) {
  ReplicatedRpcServer server = serve();
  std::optional<ReplicatedRpcClient> teller(client("teller-1"));
  expect(*teller, begin(*teller), RpcLevel::Applied);
  peers_[1]->stop();
  peers_[2]->stop();
  const auto lost = teller->call(kRefuse, {});
  ASSERT_TRUE(lost.ok());
  EXPECT_FALSE(teller->wait(*lost, RpcLevel::Durable, std::chrono::seconds(3)).ok());
  teller.reset();
  // The server that has it is lost for good. The others have another second call.
  peers_[0]->kill();
  for (const std::size_t index : {1, 2}) {
    peers_[index]->kill();
    peers_[index]->start();
  }
  teller.emplace(client("teller-1"));
  EXPECT_EQ(teller->status().earlier_durable, 1U);
  const RpcHandle second = begin(*teller);
  EXPECT_EQ(second.sequence, 2U);
  expect(*teller, second, RpcLevel::Durable);
  const auto reply = teller->reply(second, kBankPatience);
  ASSERT_TRUE(reply.ok()) << reply.error().message;
  EXPECT_FALSE(reply->refused);
  judge(server, {{teller->status().client_id, 2}});
}

// A peer was away and is back when another one goes for good, and the client only calls: it waits
// for nothing that could take the time to bring the first one up.
TEST_F(ReplicatedRpc, AClientThatOnlyCallsBringsBackItsPeers) {
  ReplicatedRpcClient bank = client("one");
  expect(bank, begin(bank), RpcLevel::Durable);
  peers_[1]->kill();
  expect(bank, begin(bank), RpcLevel::Durable);
  peers_[1]->start();
  peers_[0]->kill();
  const Transfer asked = some_transfer(random_);
  Result<RpcHandle> handle = Error{ErrorCode::QuorumLost, "not called yet"};
  for (const Deadline patience = Deadline::after(kBankPatience); !patience.passed();) {
    handle = bank.call(kTransfer, bytes_of(asked));
    const bool durable =
        handle.ok() && bank.wait(*handle, RpcLevel::Durable, std::chrono::milliseconds(1)).ok();
    if (durable) break;
    test::pause_for(std::chrono::milliseconds(20));
  }
  ASSERT_TRUE(handle.ok()) << handle.error().message;
  expect(bank, *handle, RpcLevel::Durable);
}

/// Another application's server, though it may take over. And of two names there is one place, also
/// when the pools of the first one are gone.
TEST_F(ReplicatedRpc, WhoseServiceItIsAndHowManyHavePlacesStays) {
  ReplicatedRpcServerOptions options = server_options();
  options.clients_max = 1;
  {
    ReplicatedRpcServer server = serve(options);
    options.application = 8;
    options.take_over = true;
    EXPECT_EQ(ReplicatedRpcServer::open(options).code(), ErrorCode::InvalidArgument);
    EXPECT_FALSE(server.status().failure);
    ReplicatedRpcClient teller = client("teller-1");
    expect(teller, begin(teller), RpcLevel::Applied);
  }
  for (const auto& peer : peers_) {
    const auto there = describe_pool(peer->address(), "bank.calls.teller-1");
    ASSERT_TRUE(there.ok()) << there.error().message;
    const auto gone = delete_pool(peer->address(), there->name, there->uuid);
    EXPECT_TRUE(gone.ok()) << gone.error().message;
  }
  options.application = 7;
  ReplicatedRpcServer server = serve(options);
  ReplicatedRpcClient other = client("teller-2");
  const RpcHandle call = begin(other);
  expect(other, call, RpcLevel::Durable);
  EXPECT_EQ(other.wait(call, RpcLevel::Applied, std::chrono::seconds(2)).code(),
            ErrorCode::TimedOut);
  ReplicatedRpcClient again = client("teller-1");
  expect(again, begin(again), RpcLevel::Applied);
}

/// The newer one's calls have the numbers of those that the older one has begun in vain.
TEST_F(ReplicatedRpc, ACallOfANewerProcessIsNotTakenForOnesOwn) {
  ReplicatedRpcServer server = serve();
  ReplicatedRpcClientOptions options = client_options("teller-1");
  options.group.reconnect = kBankPatience;  // it would bring its call to the peers that are back
  auto opened = ReplicatedRpcClient::open(options);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  ReplicatedRpcClient& older = *opened;
  expect(older, begin(older), RpcLevel::Applied);
  peers_[1]->stop();
  peers_[2]->stop();
  const auto lost = older.call(kRefuse, {});
  ASSERT_TRUE(lost.ok());
  EXPECT_FALSE(older.wait(*lost, RpcLevel::Durable, std::chrono::seconds(3)).ok());
  peers_[0]->kill();
  for (const std::size_t index : {1, 2}) {
    peers_[index]->kill();
    peers_[index]->start();
  }
  ReplicatedRpcClient newer = client("teller-1");
  const RpcHandle second = begin(newer);
  ASSERT_EQ(second.sequence, lost->sequence);
  expect(newer, second, RpcLevel::Applied);
  const auto applied = older.wait(*lost, RpcLevel::Applied, kBankPatience);
  ASSERT_FALSE(applied.ok());
  EXPECT_EQ(applied.code(), ErrorCode::Fenced);
  EXPECT_FALSE(older.wait(*lost, RpcLevel::Durable, std::chrono::seconds(1)).ok());
  expect(older, older.handle_of(1), RpcLevel::Applied);  // what was its own is
}

/// Nobody says to readers that its last call is committed, but who opens its log.
TEST_F(ReplicatedRpc, WhatAClientThatWasKilledHasCalledIsExecuted) {
  std::map<std::uint64_t, std::uint64_t> durable;
  for (std::uint64_t life = 1; life <= 3; ++life) {
    durable[DyingTeller(*this, "teller-1").call()] = life;
  }
  ASSERT_EQ(durable.size(), 1U);
  ReplicatedRpcServer server = serve();
  judge(server, durable);
}

/// The first of the peers was away for a moment, and the client goes on without it and trims.
/// Expect: a new server, which can read that peer as well as the others, comes to the calls that it
/// lacks.
TEST_F(ReplicatedRpc, APeerThatWasLeftBehindStopsNobody) {
  ReplicatedRpcClientOptions options = client_options("teller-1");
  options.group.reconnect = std::chrono::milliseconds(0);  // never
  auto opened = ReplicatedRpcClient::open(options);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  std::optional<ReplicatedRpcServer> server(serve());
  const std::vector<std::byte> payload(16 * 1024);
  const auto call_often = [&](int count) {
    RpcHandle last;
    for (int each = 0; each < count; ++each) {
      const auto handle = opened->call(kRefuse, payload);
      ASSERT_TRUE(handle.ok()) << handle.error().message;
      last = *handle;
      expect(*opened, last, RpcLevel::Applied);
    }
  };
  call_often(3);
  peers_[0]->kill();
  peers_[0]->start();
  call_often(30);  // several times what its log keeps
  server.reset();
  server.emplace(serve());
  expect(*opened, begin(*opened), RpcLevel::Applied);
}

/// The pools of a name are deleted while the server knows it. Who has the name next dies at once
/// when its call is durable. Expect: it is executed all the same.
TEST_F(ReplicatedRpc, ANameIsUsedAgainUnderTheSameServer) {
  DyingTeller next(*this, "teller-1");
  ReplicatedRpcServer server = serve();
  std::map<std::uint64_t, std::uint64_t> durable;
  const std::string pool = "bank.calls.teller-1";
  {
    ReplicatedRpcClient teller = client("teller-1");
    expect(teller, begin(teller), RpcLevel::Applied);
    durable[teller.status().client_id] = 1;
  }
  // The server opens the log of who is away, and so is its next writer.
  const auto was_resolved = [&] {
    const auto there = describe_pool(peers_[0]->address(), pool);
    return there.ok() && there->epoch.value >= 2 && !there->writer_present;
  };
  for (const Deadline patience = Deadline::after(kBankPatience);
       !was_resolved() && !patience.passed();) {
    test::pause_for(std::chrono::milliseconds(20));
  }
  ASSERT_TRUE(was_resolved());
  std::size_t removed = 0;
  for (const auto& peer : peers_) {
    peer->kill();  // the server has a session there
    for (const std::string& name : peer->pools().names()) {
      if (name.find(pool) == std::string::npos) continue;
      removed += std::filesystem::remove(peer->pools().file(name)) ? 1 : 0;
    }
    peer->start();
  }
  ASSERT_EQ(removed, peers_.size());
  durable[next.call()] = 1;
  ASSERT_EQ(durable.size(), 2U);
  judge(server, durable);
}

/// The disk of a peer is gone, and an empty one is in its place; then another machine goes.
TEST_F(ReplicatedRpc, APeerThatHasLostItsPoolsGetsThemAgain) {
  std::map<std::uint64_t, std::uint64_t> durable;
  {
    ReplicatedRpcClient away = client("teller-2");
    expect(away, begin(away), RpcLevel::Durable);
    durable[away.status().client_id] = 1;
  }
  std::optional<ReplicatedRpcServer> server(serve());
  ReplicatedRpcClient teller = client("teller-1");
  expect(teller, begin(teller), RpcLevel::Applied);
  peers_[0]->kill();
  for (const std::string& name : peers_[0]->pools().names()) {
    std::filesystem::remove(peers_[0]->pools().file(name));
  }
  peers_[0]->start();
  expect(teller, begin(teller), RpcLevel::Applied);
  const std::string& lost = peers_[0]->address();
  const auto effects = server->replace_peer(lost, lost);
  ASSERT_TRUE(effects.ok()) << effects.error().message;
  const auto calls = teller.replace_peer(lost, lost);
  ASSERT_TRUE(calls.ok()) << calls.error().message;
  for (int call = 0; call < 3; ++call) expect(teller, begin(teller), RpcLevel::Durable);
  durable[teller.status().client_id] = 5;
  // One of the others: what there is is on the one that was empty, and the last.
  server.reset();
  peers_[1]->kill();
  server.emplace(serve());
  judge(*server, durable);
  expect(teller, begin(teller), RpcLevel::Applied);
  ReplicatedRpcClient back = client("teller-2");
  expect(back, begin(back), RpcLevel::Applied);
}

class ReplicatedRpcReserve : public ReplicatedRpc {
 protected:
  ReplicatedRpcReserve() : ReplicatedRpc(5) { group_.peers.resize(3); }
};

/// One that has a replica already stands for nobody else.
TEST_F(ReplicatedRpcReserve, APeerIsNotReplacedByAnotherOne) {
  ReplicatedRpcServer server = serve();
  ReplicatedRpcClient teller = client("teller-1");
  expect(teller, begin(teller), RpcLevel::Applied);
  const std::string& one = peers_[0]->address();
  const std::string& other = peers_[1]->address();
  for (const auto& replaced : {server.replace_peer(one, other), teller.replace_peer(one, other)}) {
    ASSERT_FALSE(replaced.ok());
    EXPECT_EQ(replaced.code(), ErrorCode::AlreadyExists);
  }
}

/// A peer is replaced, and then the one that came in its place; a client's log may have either.
TEST_F(ReplicatedRpcReserve, WhatAClientHasLeftIsExecutedAfterAPeerWasReplacedTwice) {
  auto of_then = group_;
  of_then.peers[0] = peers_[4]->address();
  DyingTeller later(*this, "teller-1", of_then);
  ReplicatedRpcServer server = serve();
  std::optional<ReplicatedRpcClient> teller(client("teller-1"));
  expect(*teller, begin(*teller), RpcLevel::Applied);
  for (const auto& [lost, next] : {std::pair{0, 3}, std::pair{3, 4}}) {
    peers_[lost]->kill();
    const std::string& which = peers_[lost]->address();
    const auto effects = server.replace_peer(which, peers_[next]->address());
    ASSERT_TRUE(effects.ok()) << effects.error().message;
    const auto calls = teller->replace_peer(which, peers_[next]->address());
    ASSERT_TRUE(calls.ok()) << calls.error().message;
    group_.peers[0] = peers_[next]->address();
  }
  const std::uint64_t id = teller->status().client_id;
  teller.reset();
  ASSERT_EQ(later.call(), id);
  judge(server, {{id, 2}});
  // And that is all: the log is not opened again and again.
  const auto epoch = [&] {
    return describe_pool(peers_[1]->address(), "bank.calls.teller-1")->epoch;
  };
  bool stays = false;
  for (const Deadline deadline = Deadline::after(kBankPatience); !stays && !deadline.passed();) {
    const Epoch decided = epoch();
    test::pause_for(std::chrono::milliseconds(3000));
    stays = epoch() == decided;
  }
  EXPECT_TRUE(stays);
}

/// A server has made the pool in which it was to be copied, and has died.
TEST_F(ReplicatedRpcReserve, APoolThatWasMadeInVainIsNoObstacle) {
  ReplicatedRpcServer server = serve();
  {
    ReplicatedRpcClient away = client("teller-1");
    expect(away, begin(away), RpcLevel::Applied);
  }
  const std::string pool = "bank.calls.teller-1";
  PoolOptions made;
  made.name = pool;
  made.bytes = describe_pool(peers_[1]->address(), pool)->bytes;
  ASSERT_TRUE(create_pool(peers_[3]->address(), made).ok());
  peers_[0]->kill();
  const auto replaced = server.replace_peer(peers_[0]->address(), peers_[3]->address());
  ASSERT_TRUE(replaced.ok()) << replaced.error().message;
  group_.peers[0] = peers_[3]->address();
  ReplicatedRpcClient back = client("teller-1");
  expect(back, begin(back), RpcLevel::Applied);
}

/// A bank that has calls which end the process of whoever executes them.
class ReplicatedRpcEnds : public ReplicatedRpc {
 protected:
  /// A letter for each call: 't' transfers, 'e' ends. All are durable, and the client goes.
  std::uint64_t call_each(const std::string& name, const std::string& calls) {
    ReplicatedRpcClient teller = client(name);
    RpcHandle last;
    for (const char each : calls) {
      const Transfer asked = some_transfer(random_);
      const auto handle = teller.call(each == 'e' ? kEnd : kTransfer, bytes_of(asked));
      EXPECT_TRUE(handle.ok()) << handle.error().message;
      if (handle.ok()) last = *handle;
    }
    expect(teller, last, RpcLevel::Durable);
    return teller.status().client_id;
  }
  /// A server's process, which is to end in one of those calls.
  void serve_and_end(std::uint32_t attempts_max) {
    auto child = test::ChildProcess::fork([&] {
      ReplicatedRpcServerOptions options = server_options();
      options.attempts_max = attempts_max;
      options.handlers[kEnd] = [this](const RpcCall& call, RpcTransaction& data,
                                      std::span<std::byte>) -> Result<std::size_t> {
        PERDURE_TRY_VOID(data.store(8, std::int64_t{-1}));
        std::ofstream(ended_, std::ios::app) << call.client << ' ' << std::flush;
        ::raise(SIGKILL);
        return std::size_t{0};
      };
      const ReplicatedRpcServer server = serve(options);
      for (const Deadline end = Deadline::after(kBankPatience); !end.passed();) {
        test::pause_for(std::chrono::milliseconds(20));
      }
      return 1;
    });
    ASSERT_TRUE(child.ok()) << child.error().message;
    child->wait();
    ASSERT_EQ(child->end()->signal, SIGKILL);
  }
  /// The calls of one client that were executed, in their order.
  static std::vector<std::uint64_t> executed(ReplicatedRpcServer& server, std::uint64_t client) {
    std::vector<std::uint64_t> sequences;
    for (const Booked& line : journal(server)) {
      if (line.client == client) sequences.push_back(line.sequence);
    }
    return sequences;
  }
  /// Until it has come to this call of each.
  static void await(ReplicatedRpcServer& server,
                    const std::map<std::uint64_t, std::uint64_t>& applied) {
    const auto all = [&] {
      std::size_t there = 0;
      for (const auto& place : server.status().clients) {
        const auto wanted = applied.find(place.client_id);
        there += wanted != applied.end() && place.applied >= wanted->second ? 1 : 0;
      }
      return there == applied.size();
    };
    for (const Deadline deadline = Deadline::after(kBankPatience); !all();) {
      ASSERT_FALSE(deadline.passed());
      test::pause_for(std::chrono::milliseconds(20));
    }
  }

  const std::string ended_ = directory_.file("ended");
};

/// The first server knows of nothing; three more try the call alone.
TEST_F(ReplicatedRpcEnds, ACallThatEndsEachServerIsSetAside) {
  const std::uint64_t one = call_each("teller-1", "tet");
  const std::uint64_t two = call_each("teller-2", "tt");
  for (int life = 0; life < 4; ++life) {
    serve_and_end(3);
    ASSERT_FALSE(HasFatalFailure());
  }
  ReplicatedRpcServerOptions options = server_options();
  std::atomic<int> called{0};
  options.handlers[kEnd] = [&](const RpcCall&, RpcTransaction&, std::span<std::byte>) {
    ++called;
    return std::size_t{0};
  };
  std::optional<ReplicatedRpcServer> server(serve(options));
  await(*server, {{one, 3}, {two, 2}});
  EXPECT_EQ(executed(*server, one), (std::vector<std::uint64_t>{1, 3}));
  EXPECT_EQ(executed(*server, two), (std::vector<std::uint64_t>{1, 2}));
  EXPECT_EQ(server->status().set_aside, 1U);
  EXPECT_EQ(read_text(ended_), "teller-1 teller-1 teller-1 teller-1 ");
  // That is what its client hears, and what stays.
  server.reset();
  server.emplace(serve(options));
  ReplicatedRpcClient teller = client("teller-1");
  const auto reply = teller.reply(teller.handle_of(2), kBankPatience);
  ASSERT_TRUE(reply.ok()) << reply.error().message;
  EXPECT_EQ(reply->refused, ErrorCode::SystemError);
  EXPECT_TRUE(reply->dropped);
  const auto other = teller.reply(teller.handle_of(3), kBankPatience);
  ASSERT_TRUE(other.ok()) << other.error().message;
  EXPECT_FALSE(other->refused);
  EXPECT_FALSE(other->dropped);
  expect(teller, begin(teller), RpcLevel::Applied);
  EXPECT_EQ(executed(*server, one), (std::vector<std::uint64_t>{1, 3, 4}));
  EXPECT_EQ(server->status().set_aside, 0U);
  EXPECT_EQ(called, 0);
}

/// One end is enough here, and there are two such calls among others of three clients.
TEST_F(ReplicatedRpcEnds, NoOtherCallIsSetAsideForOneThatEndsServers) {
  const std::string many(30, 't');
  const std::uint64_t one = call_each("teller-1", many + "e" + many);
  const std::uint64_t two = call_each("teller-2", many + many);
  const std::uint64_t three = call_each("teller-3", "ttte" + many);
  for (int life = 0; life < 3; ++life) {
    serve_and_end(1);
    ASSERT_FALSE(HasFatalFailure());
  }
  ReplicatedRpcServerOptions options = server_options();
  options.attempts_max = 1;
  ReplicatedRpcServer server = serve(options);
  await(server, {{one, 61}, {two, 60}, {three, 34}});
  const auto all_but = [](std::uint64_t last, std::uint64_t without) {
    std::vector<std::uint64_t> sequences;
    for (std::uint64_t each = 1; each <= last; ++each) {
      if (each != without) sequences.push_back(each);
    }
    return sequences;
  };
  EXPECT_EQ(executed(server, one), all_but(61, 31));
  EXPECT_EQ(executed(server, two), all_but(60, 0));
  EXPECT_EQ(executed(server, three), all_but(34, 4));
  // Everybody is trusted again a little later.
  for (const Deadline deadline = Deadline::after(kBankPatience); server.status().careful != 0;) {
    ASSERT_FALSE(deadline.passed());
    test::pause_for(std::chrono::milliseconds(20));
  }
}

/// A server has died in a call that the next one executes. Expect: when all of that time is
/// executed it says so, and is not careful of who comes then.
TEST_F(ReplicatedRpcEnds, AServerThatHasTriedEverythingIsCalm) {
  const std::uint64_t one = call_each("teller-1", "tet");
  serve_and_end(3);
  ASSERT_FALSE(HasFatalFailure());
  ReplicatedRpcServerOptions options = server_options();
  options.handlers[kEnd] = transfer;
  ReplicatedRpcServer server = serve(options);
  await(server, {{one, 3}});
  const auto is_careful = [&] {
    auto reader = LogReader::open(replicated_rpc::reader_options(group_, "bank.effects"));
    if (!reader.ok()) throw std::runtime_error(reader.error().message);
    replicated_rpc::Effects effects;
    for (const Deadline end = Deadline::after(std::chrono::milliseconds(300)); !end.passed();) {
      const auto record = reader->next();
      if (!record.ok()) throw std::runtime_error(record.error().message);
      if (!*record) continue;
      EXPECT_TRUE(effects.apply((*record)->bytes, (*record)->lsn).ok());
    }
    EXPECT_TRUE(effects.is_open());
    return effects.is_careful();
  };
  for (const Deadline deadline = Deadline::after(kBankPatience); is_careful();) {
    ASSERT_FALSE(deadline.passed());
    test::pause_for(std::chrono::milliseconds(100));
  }
  EXPECT_EQ(server.status().careful, 0U);
  ReplicatedRpcClient later = client("teller-2");
  expect(later, begin(later), RpcLevel::Applied);
  EXPECT_EQ(server.status().careful, 0U);
  EXPECT_EQ(executed(server, one), (std::vector<std::uint64_t>{1, 2, 3}));
}

/// A server in whose second call of "teller-1" one has ended, as the one before: it is set aside.
class ReplicatedRpcHeld : public ReplicatedRpcEnds {
 protected:
  ReplicatedRpcHeld() {
    options_.attempts_max = 1;
    options_.hold_failed = true;
    options_.handlers[kEnd] = [this](const RpcCall& call, RpcTransaction& data,
                                     std::span<std::byte> reply) {
      ++called_;
      return transfer(call, data, reply);
    };
  }
  void serve_what_is_held() {
    one_ = call_each("teller-1", "tet");
    const std::uint64_t two = call_each("teller-2", "tt");
    for (int life = 0; life < 2; ++life) {
      serve_and_end(1);
      ASSERT_FALSE(HasFatalFailure());
    }
    server_.emplace(serve(options_));
    await(*server_, {{one_, 1}, {two, 2}});
    for (const Deadline deadline = Deadline::after(kBankPatience); !is_held();) {
      ASSERT_FALSE(deadline.passed());
      test::pause_for(std::chrono::milliseconds(20));
    }
  }
  bool is_held() {
    const auto clients = server_->status().clients;
    return std::any_of(clients.begin(), clients.end(), [&](const auto& each) {
      return each.client_id == one_ && each.name == "teller-1" && each.held;
    });
  }

  ReplicatedRpcServerOptions options_ = server_options();
  std::atomic<int> called_{0};
  std::uint64_t one_ = 0;
  std::optional<ReplicatedRpcServer> server_;
};

/// Expect: neither it nor what is behind it is executed, by the next server neither, before it is
/// retried; whoever waits is told, and others go on.
TEST_F(ReplicatedRpcHeld, ACallThatIsHeldIsExecutedWhenItIsRetried) {
  serve_what_is_held();
  ASSERT_FALSE(HasFatalFailure());
  EXPECT_EQ(server_->status().set_aside, 1U);
  EXPECT_EQ(metric(server_->metrics(),
                   "perdure_replicated_rpc_client_held{service=\"bank\",client=\"teller-1\"}"),
            1);
  ReplicatedRpcClient teller = client("teller-1");
  expect(teller, teller.handle_of(1), RpcLevel::Applied);
  for (const std::uint64_t sequence : {2, 3}) {
    const auto waited = teller.wait(teller.handle_of(sequence), RpcLevel::Applied, kBankPatience);
    EXPECT_EQ(waited.code(), ErrorCode::Busy) << sequence;
  }
  expect(teller, begin(teller), RpcLevel::Durable);
  EXPECT_EQ(server_->retry("nobody", 2).code(), ErrorCode::NotFound);
  EXPECT_EQ(server_->retry("teller-1", 3).code(), ErrorCode::InvalidArgument);
  EXPECT_EQ(server_->drop("teller-2", 2).code(), ErrorCode::InvalidArgument);

  server_.reset();
  server_.emplace(serve(options_));
  EXPECT_TRUE(is_held());
  ReplicatedRpcClient other = client("teller-2");
  expect(other, begin(other), RpcLevel::Applied);
  test::pause_for(std::chrono::milliseconds(1500));  // it looks for clients each 100 ms
  EXPECT_EQ(executed(*server_, one_), (std::vector<std::uint64_t>{1}));
  EXPECT_EQ(called_, 0);
  EXPECT_FALSE(server_->status().failure);

  const auto retried = server_->retry("teller-1", 2);
  ASSERT_TRUE(retried.ok()) << retried.error().message;
  await(*server_, {{one_, 4}});
  EXPECT_EQ(executed(*server_, one_), (std::vector<std::uint64_t>{1, 2, 3, 4}));
  EXPECT_EQ(called_, 1);
  EXPECT_FALSE(is_held());
  const auto reply = teller.reply(teller.handle_of(2), kBankPatience);
  ASSERT_TRUE(reply.ok()) << reply.error().message;
  EXPECT_FALSE(reply->refused);
}

/// Also that of a server which is opened without being told to hold calls.
TEST_F(ReplicatedRpcHeld, ACallThatIsHeldIsRefusedWhenItIsDropped) {
  serve_what_is_held();
  ASSERT_FALSE(HasFatalFailure());
  const auto dropped = server_->drop("teller-1", 2);
  ASSERT_TRUE(dropped.ok()) << dropped.error().message;
  EXPECT_EQ(server_->retry("teller-1", 2).code(), ErrorCode::InvalidArgument);
  await(*server_, {{one_, 3}});
  EXPECT_EQ(executed(*server_, one_), (std::vector<std::uint64_t>{1, 3}));
  EXPECT_EQ(called_, 0);
  ReplicatedRpcClient teller = client("teller-1");
  const auto reply = teller.reply(teller.handle_of(2), kBankPatience);
  ASSERT_TRUE(reply.ok()) << reply.error().message;
  EXPECT_EQ(reply->refused, ErrorCode::SystemError);
  EXPECT_TRUE(reply->dropped);
}

TEST_F(ReplicatedRpcHeld, ACallThatIsHeldIsRefusedByAServerThatHoldsNone) {
  serve_what_is_held();
  ASSERT_FALSE(HasFatalFailure());
  server_.reset();
  options_.hold_failed = false;
  options_.attempts_max = 3;
  server_.emplace(serve(options_));
  await(*server_, {{one_, 3}});
  EXPECT_EQ(executed(*server_, one_), (std::vector<std::uint64_t>{1, 3}));
  EXPECT_EQ(called_, 0);
  EXPECT_FALSE(is_held());
}

/// A server was killed, so the next one tries calls alone. Expect: that it is fenced while a call
/// is in its handler is no end of it, for the process lives.
TEST_F(ReplicatedRpcEnds, AServerThatIsFencedInACallHasNotEnded) {
  const std::uint64_t one = call_each("teller-1", "e");
  serve_and_end(1);
  ASSERT_FALSE(HasFatalFailure());
  std::atomic<int> state{0};
  ReplicatedRpcServerOptions slow = server_options();
  slow.handlers[kEnd] = [&](const RpcCall& call, RpcTransaction& data, std::span<std::byte> reply) {
    if (state == 0) state = 1;
    while (state == 1) test::pause_for(std::chrono::milliseconds(1));
    return transfer(call, data, reply);
  };
  std::optional<ReplicatedRpcServer> older(serve(slow));
  while (state == 0) test::pause_for(std::chrono::milliseconds(1));
  ReplicatedRpcServerOptions taking = server_options();
  taking.take_over = true;
  taking.attempts_max = 1;
  taking.handlers[kEnd] = transfer;
  ReplicatedRpcServer newer = serve(taking);
  await(newer, {{one, 1}});
  state = 2;
  older.reset();
  EXPECT_EQ(executed(newer, one), (std::vector<std::uint64_t>{1}));
  EXPECT_EQ(newer.status().set_aside, 0U);
}

/// Of one that has ended in order nobody need ask, nor be careful.
TEST_F(ReplicatedRpcEnds, AServerThatEndsInOrderMakesNobodyCareful) {
  for (std::uint64_t life = 1; life <= 2; ++life) {
    const std::uint64_t one = call_each("teller-1", "t");
    ReplicatedRpcServer server = serve();
    await(server, {{one, life}});
    EXPECT_EQ(server.status().careful, 0U);
  }
}

/// The same bank with processes that are killed, and a peer in reserve.
class ReplicatedRpcKills : public ReplicatedRpc {
 protected:
  static constexpr std::size_t kTellers = 3;

  ReplicatedRpcKills() : ReplicatedRpc(4) { group_.peers.pop_back(); }

  /// A server's process, until it is killed or fenced.
  test::ChildProcess start_server(bool take_over) {
    auto child = test::ChildProcess::fork([this, take_over] {
      ReplicatedRpcServerOptions options = server_options();
      options.take_over = take_over;
      const ReplicatedRpcServer server = serve(options);
      while (!server.status().failure) test::pause_for(std::chrono::milliseconds(20));
      return 0;
    });
    if (!child.ok()) throw std::runtime_error(child.error().message);
    return std::move(*child);
  }

  /// A client's process: "D id sequence" in its file is durable, "A id sequence line" applied.
  test::ChildProcess start_teller(std::size_t teller) {
    auto child = test::ChildProcess::fork([this, teller] {
      Random random(random_secret());
      std::ofstream said(said_by(teller), std::ios::app);
      for (const Deadline end = Deadline::after(std::chrono::minutes(20)); !end.passed();) {
        auto opened = ReplicatedRpcClient::open(client_options(fmt::format("teller-{}", teller)));
        if (!opened.ok()) test::pause_for(std::chrono::milliseconds(20));
        while (opened.ok() && call_some(*opened, random, said)) {
        }
      }
      return 0;
    });
    if (!child.ok()) throw std::runtime_error(child.error().message);
    return std::move(*child);
  }
  std::string said_by(std::size_t teller) const {
    return directory_.file(fmt::format("teller-{}", teller));
  }

  /// False: it has to be opened again.
  static bool call_some(ReplicatedRpcClient& teller, Random& random, std::ostream& said) {
    RpcHandle last;
    for (std::uint64_t count = 0; count < 1 + random.below(8); ++count) {
      const Transfer asked = some_transfer(random);
      const auto handle = teller.call(kTransfer, bytes_of(asked));
      if (!handle.ok()) return handle.code() == ErrorCode::QueueFull;
      last = *handle;
    }
    if (!teller.wait(last, RpcLevel::Durable, std::chrono::seconds(20)).ok()) return false;
    said << fmt::format("D {} {} 0\n", last.client_id, last.sequence) << std::flush;
    if (random.chance(1, 2)) return true;
    const auto reply = teller.reply(last, std::chrono::seconds(5));
    if (!reply.ok()) return reply.code() == ErrorCode::TimedOut;
    if (reply->refused) return true;
    said << fmt::format("A {} {} {}\n", last.client_id, last.sequence,
                        load<std::uint64_t>(reply->bytes.data()))
         << std::flush;
    return true;
  }

  /// One of the processes, or one of the peers for a while, and no more than one peer at a time.
  void strike() {
    const std::uint64_t what = random_.below(4);
    if (what == 0) {
      const std::size_t teller = random_.below(kTellers);
      tellers_[teller].kill();
      tellers_[teller] = start_teller(teller);
    } else if (what == 1) {
      executor_.kill();
      executor_ = start_server(false);
    } else if (what == 2) {
      test::ChildProcess newer = start_server(true);  // two of them, for a while
      test::pause_for(std::chrono::milliseconds(300));
      executor_ = std::move(newer);
    } else {
      KilledPeer& peer = *peers_[up_[random_.below(up_.size())]];
      peer.kill();
      test::pause_for(std::chrono::milliseconds(random_.below(300)));
      peer.start();
    }
  }

  /// What all have said, against what is there.
  void judge_all() {
    ReplicatedRpcServer server = serve();
    std::map<std::uint64_t, std::uint64_t> durable;
    std::vector<std::array<std::uint64_t, 3>> applied;
    for (std::size_t teller = 0; teller < kTellers; ++teller) {
      std::ifstream said(said_by(teller));
      std::string word;
      std::array<std::uint64_t, 3> what{};
      while (said >> word >> what[0] >> what[1] >> what[2]) {
        durable[what[0]] = std::max(durable[what[0]], what[1]);
        if (word == "A") applied.push_back(what);
      }
    }
    EXPECT_LE(durable.size(), kTellers);
    judge(server, durable);
    const std::vector<Booked> lines = journal(server);
    for (const auto& [client, sequence, line] : applied) {
      ASSERT_LT(line, lines.size());
      EXPECT_EQ(lines[line].client, client);
      EXPECT_EQ(lines[line].sequence, sequence);
    }
    fmt::print("[ bank ] {} calls, {} of them reported applied\n", lines.size(), applied.size());
  }

  std::vector<std::size_t> up_ = {0, 1, 2};
  test::ChildProcess executor_;
  std::array<test::ChildProcess, kTellers> tellers_;
};

TEST_F(ReplicatedRpcKills, NoDurableCallIsLostAndNoneIsExecutedTwice) {
  for (int life = 0; life < 3; ++life) {
    executor_ = start_server(false);
    for (std::size_t teller = 0; teller < kTellers; ++teller) {
      tellers_[teller] = start_teller(teller);
    }
    test::pause_for(std::chrono::milliseconds(1500));
    for (int count = 0; count < (test::soak() ? 60 : 6); ++count) {
      test::pause_for(std::chrono::milliseconds(random_.below(700)));
      strike();
    }
    executor_.kill();
    for (auto& teller : tellers_) teller.kill();
    judge_all();
    if (life != 0) continue;
    // A machine is lost for good, and replaced by the one in reserve.
    ReplicatedRpcServer server = serve();
    peers_[0]->kill();
    test::pause_for(std::chrono::milliseconds(200));
    const auto replaced = server.replace_peer(peers_[0]->address(), peers_[3]->address());
    ASSERT_TRUE(replaced.ok()) << replaced.error().message;
    for (std::size_t teller = 0; teller < kTellers; ++teller) {
      if (read_text(said_by(teller)).empty()) continue;  // it may not have made its log
      const std::string pool = fmt::format("bank.calls.teller-{}", teller);
      // That of a client of which a peer has a session still, a little later.
      for (const Deadline deadline = Deadline::after(kBankPatience);;) {
        if (describe_pool(peers_[3]->address(), pool).ok()) break;
        ASSERT_FALSE(deadline.passed()) << pool;
        test::pause_for(std::chrono::milliseconds(20));
      }
    }
    group_.peers[0] = peers_[3]->address();
    up_[0] = 3;
  }
}

}  // namespace
}  // namespace perdure::server
