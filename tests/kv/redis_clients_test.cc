// Debian's clients of Redis, unmodified, on perdure-kv.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <map>

#include "core/random.h"
#include "kv_process.h"

namespace perdure::kv_test {
namespace {

class RedisClients : public testing::Test {
 protected:
  void serve(std::vector<std::string> more = {}) {
    server_.reset();
    server_ = KvProcess::serving(directory_.path() + "/kv.pool", std::move(more));
  }

  std::string cli(std::vector<std::string> words, const std::string& input = "") {
    words.insert(words.begin(), {"/usr/bin/redis-cli", "--no-raw", "-p", server_->resp_port()});
    const Ended ended = run(words, input);
    EXPECT_EQ(ended.status, 0) << ended.said;
    return ended.said;
  }

  const test::TestDirectory directory_{"/dev/shm"};
  std::unique_ptr<KvProcess> server_;
};

TEST_F(RedisClients, RedisCliIsAnsweredAsByRedis) {
  serve();
  EXPECT_EQ(cli({"ping"}), "PONG\n");
  EXPECT_EQ(cli({"set", "a", "1"}), "OK\n");
  EXPECT_EQ(cli({"set", "a", "2", "NX"}), "(nil)\n");
  EXPECT_EQ(cli({"set", "a", "2", "xx"}), "OK\n");
  EXPECT_EQ(cli({"get", "a"}), "\"2\"\n");
  EXPECT_EQ(cli({"get", "b"}), "(nil)\n");
  EXPECT_EQ(cli({"mget", "a", "b"}), "1) \"2\"\n2) (nil)\n");
  EXPECT_EQ(cli({"del", "a", "b"}), "(integer) 1\n");
  EXPECT_EQ(cli({"dbsize"}), "(integer) 0\n");
  EXPECT_EQ(cli({"get"}), "(error) ERR wrong number of arguments for 'get' command\n");
  EXPECT_EQ(cli({"incr", "a"}),
            "(error) ERR unknown command 'incr', with args beginning with: 'a' \n");
  EXPECT_EQ(cli({"set", "a", "1", "EX", "10"}), "(error) ERR syntax error\n");
  EXPECT_EQ(cli({"-n", "3", "ping"}).find("DB index is out of range") != std::string::npos, true);
  EXPECT_NE(cli({"info"}).find("connected_clients:1"), std::string::npos);
  // A value of the largest size, through standard input; it is there in the next server, too.
  const std::string file = directory_.path() + "/value";
  std::ofstream(file) << std::string(1024 * 1024, 'v');
  EXPECT_EQ(cli({"-x", "set", "large"}, file), "OK\n");
  server_->send(SIGTERM);
  EXPECT_EQ(server_->wait().status, 0);
  serve();
  EXPECT_EQ(cli({"get", "large"}), "\"" + std::string(1024 * 1024, 'v') + "\"\n");
}

TEST_F(RedisClients, RedisCliScansEachKeyOnce) {
  serve();
  RespClient client(server_->address("resp"));
  std::string requests;
  for (int key = 0; key < 500; ++key) {
    requests += RespClient::encoded({"SET", "key:" + std::to_string(key), "v"});
    requests += RespClient::encoded({"SET", "other:" + std::to_string(key), "v"});
  }
  ASSERT_TRUE(client.say(requests));
  for (int reply = 0; reply < 1000; ++reply) ASSERT_EQ(client.hear(), status("OK"));
  const Ended scanned =
      run({"/usr/bin/redis-cli", "-p", server_->resp_port(), "--scan", "--pattern", "key:*"});
  EXPECT_EQ(scanned.status, 0);
  EXPECT_EQ(std::count(scanned.said.begin(), scanned.said.end(), '\n'), 500);
  for (int key = 0; key < 500; ++key) {
    const std::string line = "key:" + std::to_string(key) + "\n";
    EXPECT_NE(scanned.said.find(line), std::string::npos) << line;
  }
}

TEST_F(RedisClients, RedisBenchmarkRunsToItsEnd) {
  for (const char* level : {"durable", "applied"}) {
    serve({"--acknowledge", level});
    const Ended ended =
        run({"/usr/bin/redis-benchmark", "-p", server_->resp_port(), "-t", "ping,set,get", "-n",
             "3000", "-c", "20", "-P", "8", "-r", "200", "-d", "100", "--csv"});
    EXPECT_EQ(ended.status, 0) << ended.said;
    EXPECT_NE(ended.said.find("\"SET\",\""), std::string::npos) << ended.said;
    EXPECT_NE(ended.said.find("\"GET\",\""), std::string::npos) << ended.said;
    EXPECT_EQ(ended.said.find("Error"), std::string::npos) << ended.said;
    RespClient client(server_->address("resp"));
    const Reply keys = client.ask({"DBSIZE"});
    EXPECT_GT(std::stol(keys.text), 150);
    EXPECT_LE(std::stol(keys.text), 200);
    EXPECT_EQ(client.ask({"GET", "key:000000000007"}).text.size(), 100u);
  }
}

// Requests in order, in whatever pieces, against a map.
TEST_F(RedisClients, PipelinedRequestsAreExecutedInOrder) {
  serve();
  Random random(7);
  RespClient client(server_->address("resp"));
  std::map<std::string, std::string> model;
  for (int round = 0; round < 20; ++round) {
    std::string requests;
    std::vector<Reply> expected;
    for (int each = 0; each < 300; ++each) {
      const std::string key = "k" + std::to_string(random.below(20));
      const std::uint64_t what = random.below(10);
      const auto found = model.find(key);
      if (what < 4) {
        model[key] = std::string(random.below(300), 'a') + std::to_string(each);
        requests += RespClient::encoded({"SET", key, model[key]});
        expected.push_back(status("OK"));
      } else if (what < 6) {
        requests += RespClient::encoded({"del", key, key + "none"});
        expected.push_back(number(static_cast<long long>(model.erase(key))));
      } else if (what < 9) {
        requests += RespClient::encoded({"GET", key});
        expected.push_back(found == model.end() ? null() : bulk(found->second));
      } else {
        requests += RespClient::encoded({"PING", key});
        expected.push_back(bulk(key));
      }
    }
    for (std::size_t at = 0; at < requests.size();) {
      const std::size_t piece = 1 + random.below(20'000);
      ASSERT_TRUE(client.say(std::string_view(requests).substr(at, piece)));
      at += piece;
    }
    for (std::size_t at = 0; at < expected.size(); ++at) {
      ASSERT_EQ(client.hear(), expected[at]) << "round " << round << ", request " << at;
    }
  }
}

TEST_F(RedisClients, APortMayRunElsewhereThanTheServer) {
  serve();
  KvProcess port({"resp", "--server", server_->address("control"), "--listen", "127.0.0.1:0",
                  "--name", "front-2"});
  RespClient here(server_->address("resp"));
  RespClient there(port.address("resp"));
  EXPECT_EQ(there.ask({"SET", "a", "1"}), status("OK"));
  EXPECT_EQ(there.ask({"GET", "a"}), bulk("1"));
  // A port of the same name takes its place, and the first one says why it ends.
  KvProcess next({"resp", "--server", server_->address("control"), "--listen", "127.0.0.1:0",
                  "--name", "front-2"});
  RespClient newer(next.address("resp"));
  EXPECT_EQ(newer.ask({"GET", "a"}), bulk("1"));
  const Reply fenced = there.ask({"SET", "a", "2"});
  EXPECT_EQ(fenced.kind, '-') << fenced.text;
  const Ended ended = port.wait();
  EXPECT_EQ(ended.status, 1) << ended.said;
  EXPECT_NE(ended.said.find("perdure-kv: "), std::string::npos) << ended.said;
  EXPECT_EQ(newer.ask({"GET", "a"}), bulk("1"));
  EXPECT_EQ(here.ask({"DBSIZE"}), number(1));
}

TEST(KvCommand, SaysWhatIsWrongWithItsArguments) {
  const test::TestDirectory directory{"/dev/shm"};
  const std::string pool = directory.path() + "/kv.pool";
  const auto said = [](std::vector<std::string> words, int expected) {
    words.insert(words.begin(), PERDURE_KV);
    const Ended ended = run(words);
    EXPECT_EQ(ended.status, expected) << ended.said;
    return ended.said;
  };
  EXPECT_NE(said({"serve"}, 2).find("--pool"), std::string::npos);
  EXPECT_NE(said({"serve", "--pool", pool, "--declare-domain", "wsp", "--listen", "127.0.0.1:0",
                  "--data-listen", "127.0.0.1:0", "--resp", "0.0.0.0:0"},
                 2)
                .find("--allow-remote"),
            std::string::npos);
  EXPECT_NE(said({"serve", "--pool", pool, "--acknowledge", "soon"}, 2).find("soon"),
            std::string::npos);
  EXPECT_NE(said({"resp", "--server", "127.0.0.1:1"}, 1).find("127.0.0.1:1"), std::string::npos);
  EXPECT_NE(said({"--help"}, 0).find("serve"), std::string::npos);
  EXPECT_NE(said({"serve", "--help"}, 0).find("examples:"), std::string::npos);
}

}  // namespace
}  // namespace perdure::kv_test
