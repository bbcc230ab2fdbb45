// A store over real devices: what its clients see, over restarts of the server.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <perdure/kv.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>

#include "core/bytes.h"
#include "core/random.h"
#include "kv/kv_calls.h"
#include "testing/process.h"
#include "testing/temporary_directory.h"

namespace perdure {
namespace {

std::span<const std::byte> bytes_in(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class KvClientTest : public testing::Test {
 protected:
  KvClientTest() {
    options_.bytes = 8 << 20;
    options_.clients_max = 4;
  }

  void start() {
    options_.pool = directory_.path() + "/kv.pool";
    options_.listen = address_;
    options_.data_listen = "127.0.0.1:0";
    options_.declared = PersistenceDomain::Wsp;
    auto server = KvServer::open(options_);
    ASSERT_TRUE(server.ok()) << server.error().message;
    server_.emplace(std::move(*server));
    address_ = server_->address();
  }

  KvClient open(const std::string& name, Transport transport = Transport::Tcp) {
    KvClientOptions options;
    options.rpc.server = address_;
    options.rpc.name = name;
    options.rpc.transport = transport;
    options.rpc.measure_costs = false;
    options.rpc.reconnect = std::chrono::milliseconds(5);
    options.timeout = std::chrono::seconds(30);
    auto client = KvClient::open(options);
    EXPECT_TRUE(client.ok()) << client.error().message;
    return std::move(*client);
  }

  static void set(KvClient& client, std::string_view key, std::string_view value,
                  RpcLevel level = RpcLevel::Durable) {
    const auto stored = client.set(key, bytes_in(value), level);
    ASSERT_TRUE(stored.ok()) << stored.error().message;
  }
  static std::optional<std::string> get(KvClient& client, std::string_view key) {
    const auto value = client.get(key);
    EXPECT_TRUE(value.ok()) << value.error().message;
    if (!value.ok() || !*value) return std::nullopt;
    return text_of(**value);
  }

  /// In the store's pool, one that fails in every change.
  void serve_broken() {
    RpcServerOptions broken;
    broken.pool = options_.pool;
    broken.application = kv::kApplication;
    broken.declared = options_.declared;
    broken.listen = address_;
    broken.data_listen = "127.0.0.1:0";
    broken.handlers[static_cast<std::uint32_t>(kv::KvCall::Set)] =
        [](const RpcCall&, RpcTransaction&, std::span<std::byte>) -> Result<std::size_t> {
      throw std::runtime_error("broken");
    };
    auto server = RpcServer::open(broken);
    ASSERT_TRUE(server.ok()) << server.error().message;
    broken_.emplace(std::move(*server));
  }

  std::optional<RpcServer> broken_;
  test::TemporaryDirectory directory_ = *test::TemporaryDirectory::make("/dev/shm");
  std::string address_ = "127.0.0.1:0";
  KvServerOptions options_;
  std::optional<KvServer> server_;
};

// A server fails in a change each time. Expect: it waits for an operator in the next servers, and
// with it all that its client asks; one that refuses such changes goes on behind it.
TEST_F(KvClientTest, AChangeThatFailsEachTimeWaitsOrIsRefused) {
  start();
  ASSERT_FALSE(HasFatalFailure());
  KvClient client = open("port");
  set(client, "a", "1", RpcLevel::Applied);
  server_.reset();
  serve_broken();
  ASSERT_FALSE(HasFatalFailure());
  const auto begun = client.begin_set("b", bytes_in("2"));
  ASSERT_TRUE(begun.ok()) << begun.error().message;
  const KvTicket failed = *begun;
  EXPECT_EQ(client.outcome(failed).code(), ErrorCode::Busy);
  broken_.reset();
  start();
  ASSERT_FALSE(HasFatalFailure());
  EXPECT_EQ(client.outcome(failed).code(), ErrorCode::Busy);
  EXPECT_EQ(client.get("a").code(), ErrorCode::Busy);
  server_.reset();
  options_.refuse_failed = true;
  start();
  ASSERT_FALSE(HasFatalFailure());
  EXPECT_EQ(client.outcome(failed).code(), ErrorCode::SystemError);
  EXPECT_EQ(get(client, "a"), "1");
  EXPECT_EQ(get(client, "b"), std::nullopt);
  set(client, "c", "3", RpcLevel::Applied);
  EXPECT_EQ(get(client, "c"), "3");
  EXPECT_EQ(server_->status().refused_failed, 1u);
}

// The next process of a client whose change is set aside. Expect: it is opened, and told what is
// waited for; others store.
TEST_F(KvClientTest, OneWhoseChangeIsSetAsideIsOpenedAnew) {
  start();
  ASSERT_FALSE(HasFatalFailure());
  {
    KvClient client = open("port");
    set(client, "a", "1", RpcLevel::Applied);
    server_.reset();
    serve_broken();
    ASSERT_FALSE(HasFatalFailure());
    const auto begun = client.begin_set("b", bytes_in("2"));
    ASSERT_TRUE(begun.ok()) << begun.error().message;
    EXPECT_EQ(client.outcome(*begun).code(), ErrorCode::Busy);
    broken_.reset();
  }
  start();
  ASSERT_FALSE(HasFatalFailure());
  KvClient next = open("port");
  ASSERT_FALSE(HasFailure());
  EXPECT_EQ(next.set("c", bytes_in("3"), RpcLevel::Durable).code(), ErrorCode::Busy);
  EXPECT_EQ(next.info().code(), ErrorCode::Busy);
  KvClient other = open("other");
  set(other, "d", "4");
  server_.reset();
  options_.refuse_failed = true;
  start();
  ASSERT_FALSE(HasFatalFailure());
  set(next, "c", "3");
  EXPECT_EQ(get(next, "c"), "3");
  EXPECT_EQ(get(other, "d"), "4");
}

TEST_F(KvClientTest, WhatIsStoredIsThereAlsoInTheNextServer) {
  start();
  ASSERT_FALSE(HasFatalFailure());
  KvClient tcp = open("tcp");
  KvClient shm = open("shm", Transport::Shm);
  const std::string large(kKvValueBytesMax, 'x');
  const std::string long_key(kKvKeyBytesMax, 'k');
  set(tcp, "a", "1");
  set(shm, "large", large);
  set(tcp, long_key, "");
  for (int life = 0; life < 2; ++life) {
    EXPECT_EQ(get(tcp, "a"), "1");
    EXPECT_EQ(get(tcp, "large"), large);
    EXPECT_EQ(get(shm, "large"), large);
    EXPECT_EQ(get(tcp, long_key), "");
    EXPECT_EQ(get(tcp, "nothing"), std::nullopt);
    EXPECT_EQ(get(tcp, long_key + "k"), std::nullopt);
    server_.reset();
    start();
    ASSERT_FALSE(HasFatalFailure());
  }
  const std::string_view keys[] = {"a", "nothing", "large"};
  EXPECT_EQ(*shm.erase(keys), 2u);
  EXPECT_EQ(get(tcp, "large"), std::nullopt);
  EXPECT_EQ(tcp.set("a", std::vector<std::byte>(kKvValueBytesMax + 1), RpcLevel::Durable).code(),
            ErrorCode::InvalidArgument);
  EXPECT_EQ(tcp.set(long_key + "k", {}, RpcLevel::Durable).code(), ErrorCode::InvalidArgument);
  EXPECT_EQ(tcp.info()->keys, 1u);
}

TEST_F(KvClientTest, APoolKeepsTheLargestValueThatItWasMadeFor) {
  options_.value_bytes_max = 256 * 1024;
  start();
  ASSERT_FALSE(HasFatalFailure());
  const std::string value(256 * 1024, 'v');
  KvClient first = open("first");
  set(first, "one", value);
  server_.reset();
  for (const std::size_t other : {std::size_t{64 * 1024}, kKvValueBytesMax}) {
    options_.value_bytes_max = other;
    start();
    ASSERT_FALSE(HasFatalFailure());
    KvClient second = open("second");
    EXPECT_EQ(second.info()->value_bytes_max, value.size());
    set(first, "two", value, RpcLevel::Applied);
    set(second, "three", value, RpcLevel::Applied);
    EXPECT_TRUE(get(second, "two") == value);
    server_.reset();
  }
}

TEST_F(KvClientTest, AClientSeesItsOwnChangesWhateverItWaitedFor) {
  start();
  ASSERT_FALSE(HasFatalFailure());
  KvClient client = open("one");
  for (int each = 0; each < 300; ++each) {
    const std::string value = fmt::format("{}", each);
    const auto ticket = client.begin_set("k", bytes_in(value));
    ASSERT_TRUE(ticket.ok()) << ticket.error().message;
    EXPECT_TRUE(ticket->assured);
    if (each % 20 == 0) {
      EXPECT_EQ(get(client, "k"), value);
    }
    if (each % 50 == 0) {
      EXPECT_TRUE(client.outcome(*ticket)->stored);
    }
  }
  EXPECT_EQ(get(client, "k"), "299");
}

// It asks for room now and then, and looks at the answer when it stores: replies are not kept for
// ever.
TEST_F(KvClientTest, StoresOnAfterItHasErasedForLong) {
  start();
  ASSERT_FALSE(HasFatalFailure());
  KvClient client = open("one");
  for (int sets = 0; sets < 130; ++sets) {
    ASSERT_TRUE(client.begin_set("k", {}).ok());
    if (sets < 60) continue;
    const std::string_view none[] = {"none"};
    // So that each answer is one that nobody has looked at.
    const int erases = sets == 63 || sets == 64 || sets == 127 || sets == 128 ? 4200 : 1;
    for (int each = 0; each < erases; ++each) ASSERT_TRUE(client.begin_erase(none).ok());
    ASSERT_EQ(get(client, "k"), "");
  }
  set(client, "again", std::string(2000, 'g'));
}

TEST_F(KvClientTest, ManyKeysAreReadInFewQuestionsAndWalkedOnce) {
  start();
  ASSERT_FALSE(HasFatalFailure());
  KvClient client = open("one");
  std::map<std::string, std::string> model;
  Random random(5);
  for (int each = 0; each < 400; ++each) {
    const std::string key = fmt::format("key:{}", random.below(100'000));
    model[key] = std::string(random.below(2000), 'v');
    ASSERT_TRUE(client.begin_set(key, bytes_in(model[key])).ok());
  }
  std::vector<std::string_view> keys;
  for (const auto& [key, value] : model) keys.push_back(key);
  keys.push_back("none");
  const auto values = client.get(keys);
  ASSERT_TRUE(values.ok()) << values.error().message;
  for (std::size_t at = 0; at + 1 < keys.size(); ++at) {
    ASSERT_TRUE((*values)[at]);
    ASSERT_EQ(text_of(*(*values)[at]), model[std::string(keys[at])]);
  }
  EXPECT_FALSE(values->back());
  // While others come and go, those that stay are returned once each.
  std::multiset<std::string> walked;
  std::uint64_t cursor = 0;
  do {
    const auto some = client.walk(cursor, 64);
    ASSERT_TRUE(some.ok()) << some.error().message;
    walked.insert(some->keys.begin(), some->keys.end());
    cursor = some->cursor;
    set(client, fmt::format("passing {}", cursor), "p");
    set(client, keys[cursor % keys.size()], std::string(900, 'w'));
    const std::string_view gone[] = {keys[0]};
    if (cursor > 200) {
      ASSERT_TRUE(client.erase(gone).ok());
    }
  } while (cursor != 0);
  for (std::size_t at = 1; at + 1 < keys.size(); ++at) {
    EXPECT_EQ(walked.count(std::string(keys[at])), 1u) << keys[at];
  }
}

TEST_F(KvClientTest, ARangeIsInTheOrderOfKeys) {
  start();
  ASSERT_FALSE(HasFatalFailure());
  KvClient client = open("one");
  for (int each = 0; each < 200; ++each) {
    const std::string value(each == 77 ? 100'000 : 300, static_cast<char>('a' + each % 26));
    set(client, fmt::format("{:04}", each), value);
  }
  const auto some = client.range("0070", 20);
  ASSERT_TRUE(some.ok()) << some.error().message;
  ASSERT_EQ(some->size(), 20u);
  for (std::size_t at = 0; at < 20; ++at) {
    EXPECT_EQ((*some)[at].key, fmt::format("{:04}", 70 + at));
    EXPECT_EQ((*some)[at].value.size(), at == 7 ? 100'000u : 300u);
  }
  EXPECT_EQ(client.range("0199", 5, false)->size(), 1u);
  EXPECT_EQ(client.range("0199", 5, false, true)->size(), 0u);
  EXPECT_EQ(client.range("", 1000, false)->size(), 200u);
  EXPECT_EQ(client.range("", 1000)->size(), 200u);
}

// What is acknowledged as durable is not refused: near the end it waits to be applied.
TEST_F(KvClientTest, AFullStoreSaysSoAndLosesNothing) {
  options_.bytes = 1 << 20;
  options_.value_bytes_max = 64 * 1024;
  start();
  ASSERT_FALSE(HasFatalFailure());
  KvClient first = open("first");
  KvClient second = open("second");
  std::set<std::string> stored;
  bool full = false;
  std::size_t unassured = 0;
  for (int each = 0; each < 2000 && !full; ++each) {
    for (KvClient* client : {&first, &second}) {
      const std::string key = fmt::format("{}", stored.size());
      const auto ticket = client->begin_set(key, bytes_in(std::string(2000, 'f')));
      ASSERT_TRUE(ticket.ok()) << ticket.error().message;
      unassured += ticket->assured ? 0 : 1;
      const auto waited = client->wait(*ticket, RpcLevel::Durable);
      if (waited.ok()) {
        stored.insert(key);
      } else {
        EXPECT_EQ(waited.code(), ErrorCode::NoSpace) << waited.error().message;
        EXPECT_FALSE(ticket->assured);
        full = true;
      }
    }
  }
  EXPECT_TRUE(full);
  EXPECT_GT(unassured, 0u);
  EXPECT_GT(stored.size(), 300u);
  for (const std::string& key : stored) ASSERT_EQ(get(first, key), std::string(2000, 'f'));
  EXPECT_EQ(server_->status().refused, 1u);
  std::vector<std::string_view> some(stored.begin(), std::next(stored.begin(), 10));
  EXPECT_EQ(*first.erase(some), 10u);
  set(second, "again", std::string(2000, 'g'));
}

/// A server of which one range has no end, and each answer takes a while.
RpcServerOptions endless(const std::string& pool, std::chrono::milliseconds each) {
  RpcServerOptions options;
  options.pool = pool;
  options.listen = options.data_listen = "127.0.0.1:0";
  options.declared = PersistenceDomain::Wsp;
  const auto put = [](std::span<std::byte> reply, std::span<const std::byte> bytes) {
    std::copy(bytes.begin(), bytes.end(), reply.begin());
    return bytes.size();
  };
  options.queries[static_cast<std::uint32_t>(kv::KvQuery::Info)] =
      [put](std::span<const std::byte>, const RpcData&,
            std::span<std::byte> reply) -> Result<std::size_t> {
    kv::KvNumbers numbers;
    numbers.block_bytes = 4096;
    numbers.value_bytes_max = 1000;
    return put(reply, bytes_of(numbers));
  };
  options.queries[static_cast<std::uint32_t>(kv::KvQuery::Range)] =
      [put, each](std::span<const std::byte>, const RpcData&,
                  std::span<std::byte> reply) -> Result<std::size_t> {
    test::pause_for(each);
    std::vector<std::byte> answer;
    kv::append(answer, std::uint32_t{1});  // more
    kv::append(answer, std::uint16_t{1});
    kv::append(answer, static_cast<std::uint16_t>(kv::KvPresence::Part));
    kv::append(answer, std::uint32_t{0});
    kv::append(answer, std::uint32_t{0});
    kv::append_text(answer, "k");
    return put(reply, answer);
  };
  return options;
}

// Each answer comes in time, all of them do not.
TEST_F(KvClientTest, AnOperationHasItsTimeHoweverManyQuestionsItTakes) {
  const auto server =
      RpcServer::open(endless(directory_.path() + "/endless.pool", std::chrono::milliseconds(200)));
  ASSERT_TRUE(server.ok()) << server.error().message;
  KvClientOptions options;
  options.rpc.server = server->address();
  options.rpc.name = "patient";
  options.rpc.transport = Transport::Tcp;
  options.rpc.measure_costs = false;
  options.timeout = std::chrono::seconds(5);
  auto client = KvClient::open(options);
  ASSERT_TRUE(client.ok()) << client.error().message;
  const auto read = client->range("", 30, false);
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.code(), ErrorCode::TimedOut) << read.error().message;
}

TEST_F(KvClientTest, RefusesWhatMakesNoStore) {
  options_.keys_max = 1 << 20;
  options_.pool = directory_.path() + "/none.pool";
  EXPECT_EQ(KvServer::open(options_).code(), ErrorCode::InvalidArgument);
  options_.keys_max = 0;
  options_.value_bytes_max = kKvValueBytesMax + 1;
  EXPECT_EQ(KvServer::open(options_).code(), ErrorCode::InvalidArgument);
}

}  // namespace
}  // namespace perdure
