// perdure-kv check and bench: what they say, and in what form.
#include <gtest/gtest.h>
#include <perdure/rpc.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "kv_process.h"

namespace perdure::kv_test {
namespace {

const std::string kTree = PERDURE_TREE;

/// Runs perdure-kv; its document must be what the schema in docs/ says.
Ended run_json(std::vector<std::string> words, const std::string& schema, int status) {
  const test::TestDirectory directory;
  words.insert(words.begin(), PERDURE_KV);
  words.insert(words.end(), {"--format", "json"});
  Ended ended = run(words);
  EXPECT_EQ(ended.status, status) << ended.said;
  const std::string file = directory.path() + "/document";
  std::ofstream(file) << ended.said;
  const Ended valid =
      run({"/usr/bin/python3", kTree + "/tests/cli/validate.py", kTree + "/docs/" + schema}, file);
  EXPECT_EQ(valid.status, 0) << valid.said << ended.said;
  return ended;
}

/// Of a store that is served as KvProcess does.
std::vector<std::string> check_of(const std::string& pool) {
  return {"check", pool, "--declare-domain", "wsp"};
}

Ended run_check(const std::string& pool) {
  std::vector<std::string> words = check_of(pool);
  words.insert(words.begin(), PERDURE_KV);
  return run(words);
}

TEST(KvCheck, SaysWhetherAStoreIsRight) {
  const test::TestDirectory directory{"/dev/shm"};
  const std::string pool = directory.path() + "/kv.pool";
  const std::string value = "find me: " + std::string(2000, 'z');
  EXPECT_EQ(run_check(pool).status, 1);
  {
    auto server = KvProcess::serving(pool, {"--size", "8MiB"});
    RespClient client(server->address("resp"));
    for (int key = 0; key < 50; ++key) {
      ASSERT_EQ(client.ask({"SET", "k" + std::to_string(key), value}), status("OK"));
    }
    ASSERT_EQ(client.ask({"DEL", "k7"}), number(1));
    const Ended busy = run_check(pool);
    EXPECT_EQ(busy.status, 1) << busy.said;
    server->kill();
  }
  const Ended undeclared = run({PERDURE_KV, "check", pool});
  EXPECT_EQ(undeclared.status, 1);
  EXPECT_NE(undeclared.said.find("Declare wsp"), std::string::npos) << undeclared.said;
  const Ended right = run_json(check_of(pool), "kv-check.schema.json", 0);
  EXPECT_NE(right.said.find("\"keys\": 49"), std::string::npos) << right.said;
  EXPECT_EQ(run_check(pool).status, 0);
  const std::string latin1 = directory.path() + "/caf\xe9.pool";
  std::filesystem::copy_file(pool, latin1);
  run_json(check_of(latin1), "kv-check.schema.json", 0);

  // A bit that flips in a value is found: in each copy of it, of which one is the record.
  std::ifstream in(pool, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  std::size_t flipped = 0;
  for (std::size_t at = bytes.find("zzzzz"); at != std::string::npos;
       at = bytes.find("zzzzz", at)) {
    bytes[at] = 'y';
    at += 512;
    ++flipped;
  }
  ASSERT_GT(flipped, 40u);
  std::ofstream(pool, std::ios::binary) << bytes;
  const Ended damaged = run_json(check_of(pool), "kv-check.schema.json", 3);
  EXPECT_NE(damaged.said.find("\"right\": false"), std::string::npos) << damaged.said;
  EXPECT_NE(run_check(pool).said.find("damaged"), std::string::npos);
}

// What is nobody's store can not be looked at; it is not a damaged one.
TEST(KvCheck, SaysOfAnotherServicesPoolThatItIsNoStore) {
  const test::TestDirectory directory{"/dev/shm"};
  const std::string pool = directory.path() + "/calls.pool";
  RpcServerOptions options;
  options.pool = pool;
  options.declared = PersistenceDomain::Wsp;
  options.data_listen = "127.0.0.1:0";
  options.handlers[1] = [](const RpcCall&, RpcTransaction&,
                           std::span<std::byte>) -> Result<std::size_t> { return 0; };
  {
    const auto server = RpcServer::open(options);
    ASSERT_TRUE(server.ok()) << server.error().message;
  }
  const Ended ended = run_check(pool);
  EXPECT_EQ(ended.status, 1) << ended.said;
  EXPECT_NE(ended.said.find("no store"), std::string::npos) << ended.said;
}

TEST(KvBench, RunsEveryWorkload) {
  const Ended ended =
      run_json({"bench", "--records", "100", "--operations", "60", "--declare-domain", "wsp"},
               "kv-bench.schema.json", 0);
  for (const char* name : {"A", "B", "C", "D", "E", "F"}) {
    EXPECT_NE(ended.said.find("\"workload\": \"" + std::string(name) + "\""), std::string::npos);
  }
  const Ended text = run({PERDURE_KV, "bench", "--workload", "f", "--records", "20", "--operations",
                          "40", "--declare-domain", "wsp"});
  EXPECT_EQ(text.status, 0) << text.said;
  EXPECT_NE(text.said.find("[measured]"), std::string::npos) << text.said;
  EXPECT_EQ(run({PERDURE_KV, "bench", "--workload", "g"}).status, 2);
}

// As its help has it: /dev/shm, and nothing declared.
TEST(KvBench, DeclaresTheDomainOfItsOwnStoreInMemory) {
  const Ended json = run_json({"bench", "--workload", "a", "--records", "20", "--operations", "20"},
                              "kv-bench.schema.json", 0);
  EXPECT_NE(json.said.find("\"declared_domain\": \"dmp\""), std::string::npos) << json.said;
  const Ended text =
      run({PERDURE_KV, "bench", "--workload", "a", "--records", "20", "--operations", "20"});
  EXPECT_EQ(text.status, 0) << text.said;
  EXPECT_NE(text.said.find("declared as dmp"), std::string::npos) << text.said;
}

TEST(KvBench, RemovesItsOwnStoreWhenItIsInterrupted) {
  const test::TestDirectory place{"/dev/shm"};
  const test::TestDirectory output;
  auto bench = test::ChildProcess::start(
      {PERDURE_KV, "bench", "--directory", place.path(), "--operations", "100000000"},
      output.path() + "/output");
  ASSERT_TRUE(bench.ok()) << bench.error().message;
  const Deadline soon = Deadline::after(std::chrono::seconds(60));
  while (bench->running() && place.names().empty() && !soon.passed()) {
    test::pause_for(std::chrono::milliseconds(5));
  }
  bench->signal(SIGINT);
  ASSERT_TRUE(bench->wait(Deadline::after(std::chrono::seconds(60))));
  EXPECT_EQ(bench->end()->status, 1);
  EXPECT_TRUE(place.names().empty()) << place.names().front();
}

}  // namespace
}  // namespace perdure::kv_test
