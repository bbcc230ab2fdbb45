// perdure-kv, killed at random instants under load: what it acknowledged is there, and what it
// erased does not come back.
#include <gtest/gtest.h>

#include <csignal>
#include <deque>
#include <filesystem>
#include <map>

#include "core/random.h"
#include "history.h"
#include "kv_process.h"
#include "testing/soak.h"

namespace perdure::kv_test {
namespace {

constexpr std::size_t kConnections = 4;
constexpr std::size_t kKeys = 12;  // of each connection
constexpr std::size_t kInFlight = 24;

/// One connection, its keys, and what it was told of them.
class Writer {
 public:
  Writer(std::size_t number, std::uint64_t seed) : number_(number), random_(seed) {
    for (std::size_t key = 0; key < kKeys; ++key) histories_.emplace(name(key), History{});
  }

  void connect(const std::string& address) { client_ = std::make_unique<RespClient>(address); }
  /// Sends a batch of changes.
  void send() {
    std::string requests;
    while (waiting_.size() < kInFlight) {
      const std::string key = name(random_.below(kKeys));
      std::vector<std::string> words = {"DEL", key};
      Found value;
      if (!random_.chance(1, 3)) {
        const std::size_t bytes = random_.chance(1, 20) ? 30'000 : random_.below(900);
        value = std::to_string(++sent_) + ":" + std::string(bytes, 'v');
        words = {"SET", key, *value};
      }
      histories_.at(key).sent(value);
      waiting_.push_back(key);
      requests += RespClient::encoded(words);
    }
    (void)client_->say(requests);
  }
  bool idle() const { return waiting_.empty(); }
  /// Reads one reply; false: there is no more.
  bool hear() {
    if (waiting_.empty()) return false;
    const Reply reply = client_->hear();
    if (reply.kind == 0) return false;
    // An error acknowledges nothing, and so nothing of this connection behind it is looked at.
    if (reply.kind != '+' && reply.kind != ':') return false;
    histories_.at(waiting_.front()).acknowledged();
    waiting_.pop_front();
    ++acknowledged_;
    return true;
  }
  /// After a restart: reads every key, by a connection of its own.
  void judge(RespClient& reader, std::vector<std::string>& broken) {
    for (auto& [key, history] : histories_) {
      const Found found = read(reader, key);
      if (!history.explains(found)) broken.push_back(key);
    }
  }
  void settle(RespClient& reader) {
    waiting_.clear();
    for (auto& [key, history] : histories_) history.settle(read(reader, key));
  }
  std::size_t acknowledged() const { return acknowledged_; }
  void disconnect() { client_.reset(); }

 private:
  std::string name(std::size_t key) const {
    return "w" + std::to_string(number_) + ":" + std::to_string(key);
  }
  static Found read(RespClient& reader, const std::string& key) {
    const Reply reply = reader.ask({"GET", key});
    EXPECT_EQ(reply.kind, '$') << reply.text;
    return reply.null ? Found{} : Found{reply.text};
  }

  const std::size_t number_;
  Random random_;
  std::map<std::string, History> histories_;
  std::deque<std::string> waiting_;  // keys, in the order in which their changes were sent
  std::unique_ptr<RespClient> client_;
  std::uint64_t sent_ = 0;
  std::size_t acknowledged_ = 0;
};

class KvKill : public testing::Test {
 protected:
  KvKill() {
    for (std::size_t each = 0; each < kConnections; ++each) writers_.emplace_back(each, 100 + each);
  }

  std::string pool() const { return directory_.path() + "/kv.pool"; }

  /// Changes by all writers until `replies` have come, then SIGKILL with the rest in flight; what
  /// was acknowledged before the process died counts.
  void run_and_kill(KvProcess& server, KvProcess& port, std::size_t replies) {
    for (Writer& writer : writers_) writer.connect(port.address("resp"));
    for (Writer& writer : writers_) writer.send();
    for (std::size_t each = 0; each < replies; ++each) {
      Writer& writer = writers_[random_.below(kConnections)];
      if (writer.idle()) writer.send();
      if (!writer.hear()) ADD_FAILURE() << "no reply before the server was killed";
      if (random_.chance(1, 6)) writer.send();
    }
    server.kill();
    if (&port != &server) port.kill();
    for (Writer& writer : writers_) {
      for (std::size_t each = 0; each < kInFlight && writer.hear(); ++each) {
      }
      writer.disconnect();
    }
  }

  std::vector<std::string> judge(KvProcess& server) {
    RespClient reader(server.address("resp"));
    std::vector<std::string> broken;
    for (Writer& writer : writers_) writer.judge(reader, broken);
    return broken;
  }
  void settle(KvProcess& server) {
    RespClient reader(server.address("resp"));
    for (Writer& writer : writers_) writer.settle(reader);
  }

  const test::TestDirectory directory_{"/dev/shm"};
  Random random_{42};
  std::vector<Writer> writers_;
};

TEST_F(KvKill, WhatWasAcknowledgedIsThereAndNothingComesBack) {
  const int rounds = test::soak() ? 100 : 10;
  for (int round = 0; round < rounds; ++round) {
    const std::string level = round % 2 == 0 ? "durable" : "applied";
    auto server = KvProcess::serving(pool(), {"--acknowledge", level, "--size", "8MiB"});
    ASSERT_EQ(judge(*server), std::vector<std::string>{}) << "reproduce: round " << round;
    settle(*server);
    // Nothing changes by itself: also not in one more restart.
    if (round % 4 == 3) {
      server->kill();
      server = KvProcess::serving(pool());
      ASSERT_EQ(judge(*server), std::vector<std::string>{}) << "reproduce: round " << round;
    }
    run_and_kill(*server, *server, random_.below(400));
  }
  auto server = KvProcess::serving(pool());
  EXPECT_EQ(judge(*server), std::vector<std::string>{});
  std::size_t acknowledged = 0;
  for (const Writer& writer : writers_) acknowledged += writer.acknowledged();
  EXPECT_GT(acknowledged, static_cast<std::size_t>(rounds) * 50);
}

// The judge is one: a store that was put back to an earlier state is found.
TEST_F(KvKill, AStoreThatForgetsIsFound) {
  auto server = KvProcess::serving(pool(), {"--size", "8MiB"});
  run_and_kill(*server, *server, 100);
  std::filesystem::copy_file(pool(), pool() + ".old");
  server = KvProcess::serving(pool());
  ASSERT_EQ(judge(*server), std::vector<std::string>{});
  settle(*server);
  run_and_kill(*server, *server, 300);
  std::filesystem::rename(pool() + ".old", pool());
  server = KvProcess::serving(pool());
  EXPECT_GT(judge(*server).size(), kKeys);
}

TEST(KvHistory, ExplainsWhatTheContractAllowsAndNothingElse) {
  History history;
  history.sent("1");
  history.sent(Found{});
  history.sent("2");
  EXPECT_TRUE(history.explains(Found{}));
  EXPECT_TRUE(history.explains("1"));
  EXPECT_TRUE(history.explains("2"));
  history.acknowledged();
  history.acknowledged();
  EXPECT_FALSE(history.explains("1"));  // it was erased, and that was acknowledged
  EXPECT_TRUE(history.explains(Found{}));
  history.acknowledged();
  EXPECT_FALSE(history.explains(Found{}));
  EXPECT_FALSE(history.explains("3"));
  EXPECT_EQ(history.unacknowledged(), 0u);
}

// The port of Redis's clients lives on when its server dies: it comes back to the next one, and
// what it acknowledged then is there, too.
TEST_F(KvKill, APortOutlivesItsServer) {
  auto server = KvProcess::serving(pool(), {"--size", "8MiB"});
  const std::string control = server->address("control");
  KvProcess port({"resp", "--server", control, "--listen", "127.0.0.1:0", "--name", "front",
                  "--request-timeout", "20000"});
  for (int life = 0; life < 3; ++life) {
    RespClient client(port.address("resp"));
    const std::string key = "life" + std::to_string(life);
    ASSERT_EQ(client.ask({"SET", key, key}), status("OK"));
    server->kill();
    // Asked while there is no server: answered by the next one.
    ASSERT_TRUE(client.say(RespClient::encoded({"SET", key + "b", key})));
    server = std::make_unique<KvProcess>(
        std::vector<std::string>{"serve", "--pool", pool(), "--declare-domain", "wsp", "--listen",
                                 control, "--data-listen", "127.0.0.1:0", "--resp", "127.0.0.1:0"});
    EXPECT_EQ(client.hear(), status("OK"));
    RespClient reader(server->address("resp"));
    for (int earlier = 0; earlier <= life; ++earlier) {
      const std::string name = "life" + std::to_string(earlier);
      EXPECT_EQ(reader.ask({"GET", name}), bulk(name));
      EXPECT_EQ(reader.ask({"GET", name + "b"}), bulk(name));
    }
  }
}

// What had come whole is executed and answered; then it ends, in order.
TEST_F(KvKill, SigtermAnswersWhatIsInFlight) {
  for (int round = 0; round < 3; ++round) {
    auto server = KvProcess::serving(pool(), {"--size", "8MiB"});
    RespClient client(server->address("resp"));
    RespClient half(server->address("resp"));
    ASSERT_TRUE(half.say("*3\r\n$3\r\nSET\r\n$4\r\nhalf\r\n$1"));
    std::string requests;
    for (int each = 0; each < 100; ++each) {
      requests += RespClient::encoded({"SET", "k" + std::to_string(each), std::to_string(round)});
    }
    ASSERT_TRUE(client.say(requests));
    server->send(SIGTERM);
    for (int each = 0; each < 100; ++each) EXPECT_EQ(client.hear(), status("OK")) << each;
    EXPECT_TRUE(client.closed());
    const Ended ended = server->wait();
    EXPECT_EQ(ended.status, 0) << ended.said;
    server = KvProcess::serving(pool());
    RespClient reader(server->address("resp"));
    for (int each = 0; each < 100; ++each) {
      EXPECT_EQ(reader.ask({"GET", "k" + std::to_string(each)}), bulk(std::to_string(round)));
    }
    EXPECT_EQ(reader.ask({"GET", "half"}), null());
  }
}

}  // namespace
}  // namespace perdure::kv_test
