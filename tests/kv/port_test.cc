// The port for Redis's clients under clients that do it no good.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>

#include "core/clock.h"
#include "kv_process.h"

namespace perdure::kv_test {
namespace {

class RespPort : public testing::Test {
 protected:
  void serve(std::vector<std::string> more) {
    server_ = KvProcess::serving(directory_.path() + "/kv.pool", std::move(more));
  }
  std::string address() const { return server_->address("resp"); }
  /// A number that INFO shows.
  static long shown(RespClient& client, const std::string& name) {
    const std::string text = client.ask({"INFO"}).text;
    const std::size_t at = text.find(name + ":");
    return at == std::string::npos ? -1 : std::stol(text.substr(at + name.size() + 1));
  }

  const test::TestDirectory directory_{"/dev/shm"};
  std::unique_ptr<KvProcess> server_;
};

TEST_F(RespPort, WhatIsNoRequestEndsItsConnectionAndNoOther) {
  serve({"--size", "8MiB"});
  RespClient other(address());
  const std::string before = RespClient::encoded({"SET", "a", "1"});
  const std::string broken[] = {"*1\r\n$-1\r\n",        "*1\r\n:1\r\n",       "*x\r\n",
                                "*1\r\n$2\r\nabc\r\n",  "*1\r\n$1048577\r\n", "*4097\r\n",
                                std::string(5000, 'x'), "get \"a\r\n"};
  for (const std::string& bytes : broken) {
    RespClient client(address());
    ASSERT_TRUE(client.say(before + bytes + before));
    EXPECT_EQ(client.hear(), status("OK"));  // what came before is executed
    const Reply error = client.hear();
    EXPECT_EQ(error.kind, '-') << bytes.substr(0, 20);
    EXPECT_EQ(error.text.substr(0, 19), "ERR Protocol error:") << error.text;
    EXPECT_TRUE(client.closed()) << bytes.substr(0, 20);
    EXPECT_EQ(other.ask({"GET", "a"}), bulk("1"));
  }
  EXPECT_EQ(shown(other, "protocol_errors"), static_cast<long>(std::size(broken)));
  // What is a request, and is refused, ends nothing.
  EXPECT_EQ(other.ask({"SET", std::string(513, 'k'), "v"}).kind, '-');
  EXPECT_EQ(other.ask({"SELECT", "1"}).kind, '-');
  EXPECT_EQ(other.ask({"SCAN", "x"}), (Reply{'-', false, "ERR invalid cursor", {}}));
  EXPECT_EQ(other.ask({"GET", std::string(513, 'k')}), null());
  EXPECT_EQ(other.ask({"PING"}), status("PONG"));
  EXPECT_EQ(other.ask({"QUIT"}), status("OK"));
  EXPECT_TRUE(other.closed());
}

TEST_F(RespPort, HalfARequestAndThenSilenceIsCutOff) {
  serve({"--size", "8MiB", "--stall-timeout", "1"});
  RespClient half(address());
  RespClient quiet(address());
  ASSERT_TRUE(half.say("*2\r\n$3\r\nGET\r\n$1"));
  RespClient other(address());
  EXPECT_EQ(other.ask({"SET", "a", "1"}), status("OK"));  // nobody waits for it
  EXPECT_TRUE(half.closed());
  EXPECT_EQ(shown(other, "stalled_connections"), 1);
  EXPECT_EQ(quiet.ask({"GET", "a"}), bulk("1"));  // silence between requests is none of that
}

TEST_F(RespPort, OneThatDoesNotReadHoldsUpNobodyAndIsCutOff) {
  // A store that a busy machine answers too late would give it errors, which nobody need read.
  serve({"--size", "16MiB", "--stall-timeout", "1", "--request-timeout", "60000"});
  RespClient deaf(address());
  RespClient other(address());
  const std::string large(1024 * 1024, 'v');
  ASSERT_EQ(other.ask({"SET", "large", large}), status("OK"));
  std::string requests;
  for (int each = 0; each < 200; ++each) requests += RespClient::encoded({"GET", "large"});
  ASSERT_TRUE(deaf.say(requests));
  const Deadline deadline = Deadline::after(std::chrono::seconds(120));
  while (shown(other, "stalled_connections") < 1 && !deadline.passed()) {
    ASSERT_EQ(other.ask({"GET", "large"}), bulk(large));
  }
  EXPECT_EQ(shown(other, "stalled_connections"), 1);
}

// Replies that nobody reads are kept up to a limit; above it nobody is served until the one who
// does not read is cut off, and all are served then.
TEST_F(RespPort, ClientsThatDoNotReadDoNotFillItsMemoryNorStopIt) {
  serve({"--size", "16MiB", "--stall-timeout", "3600", "--unread-max", "8MiB"});
  RespClient other(address());
  const std::string large(1024 * 1024, 'v');
  ASSERT_EQ(other.ask({"SET", "large", large}), status("OK"));
  std::vector<std::string> words(25, "large");
  words.front() = "MGET";
  // With nothing behind what is unread, and with another request.
  for (const long cut_off : {1L, 2L}) {
    RespClient deaf(address());
    std::string requests = RespClient::encoded(words);
    if (cut_off == 2) requests += RespClient::encoded({"PING"});
    ASSERT_TRUE(deaf.say(requests));
    ASSERT_TRUE(deaf.fill());  // it is executed
    ASSERT_EQ(other.ask({"PING"}), status("PONG"));
    EXPECT_EQ(shown(other, "stalled_connections"), cut_off);
  }
  server_->send(SIGTERM);
  EXPECT_EQ(server_->wait().status, 0);
}

// Above the limit nobody is served, and these read something now and then. Expect: they go, too.
TEST_F(RespPort, ClientsThatReadALittleDoNotStopIt) {
  serve({"--size", "16MiB", "--stall-timeout", "3600", "--unread-max", "8MiB"});
  RespClient other(address());
  ASSERT_EQ(other.ask({"SET", "large", std::string(1024 * 1024, 'v')}), status("OK"));
  std::vector<std::string> words(62, "large");  // more than sockets keep
  words.front() = "MGET";
  std::atomic<bool> stop = false;
  std::vector<std::thread> readers;
  for (int each = 0; each < 2; ++each) {
    readers.emplace_back([&] {
      try {
        RespClient slow(address());
        if (!slow.say(RespClient::encoded(words))) return;
        while (!stop && slow.fill()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      } catch (const std::runtime_error&) {  // cut off, or told nothing more
      }
    });
  }
  const Deadline deadline = Deadline::after(std::chrono::seconds(30));
  while (shown(other, "stalled_connections") < 1 && !deadline.passed()) continue;
  EXPECT_GE(shown(other, "stalled_connections"), 1);
  stop = true;
  for (std::thread& each : readers) each.join();
}

// It reads all the time, and there is always something left of what it is told.
TEST_F(RespPort, OneThatIsNeverDoneReadingDoesNotFillItsMemory) {
  const char* const before_it = std::getenv("ASAN_OPTIONS");
  const std::string options = before_it == nullptr ? "" : before_it;
  ::setenv("ASAN_OPTIONS", (options + ":quarantine_size_mb=1").c_str(),
           1);  // it keeps what is freed
  serve({"--size", "16MiB"});
  ::setenv("ASAN_OPTIONS", options.c_str(), 1);
  RespClient client(address());
  const std::string large(1024 * 1024, 'v');
  ASSERT_EQ(client.ask({"SET", "large", large}), status("OK"));
  const std::size_t before = server_->resident_bytes();
  constexpr int kRequests = 300;
  std::thread sender([&] {
    for (int each = 0; each < kRequests; ++each) {
      if (!client.say(RespClient::encoded({"GET", "large"}))) return;
    }
  });
  std::size_t most = 0;
  for (int each = 0; each < kRequests; ++each) {
    ASSERT_EQ(client.hear(), bulk(large));
    most = std::max(most, server_->resident_bytes());
  }
  sender.join();
  EXPECT_LT(most, before + (std::size_t{160} << 20));
}

// A port is a client of the store by its name.
TEST_F(RespPort, OfAServerIsItsOwnAndNoReasonToEnd) {
  serve({"--size", "8MiB"});
  const std::vector<std::string> elsewhere = {"resp", "--server", server_->address("control"),
                                              "--listen", "127.0.0.1:0"};
  RespClient here(address());
  ASSERT_EQ(here.ask({"SET", "a", "1"}), status("OK"));
  KvProcess port(elsewhere);
  RespClient there(port.address("resp"));
  EXPECT_EQ(there.ask({"SET", "a", "2"}), status("OK"));
  EXPECT_EQ(here.ask({"SET", "a", "3"}), status("OK"));
  // Receive: another process takes the server's own port's name. Expect: that port alone ends.
  std::vector<std::string> same = elsewhere;
  same.insert(same.end(), {"--name", "serve-resp"});
  KvProcess fencing(same);
  Reply fenced;
  for (int each = 0; each < 10; ++each) {
    fenced = here.ask({"SET", "a", "4"});
    if (fenced.kind != '-') break;
  }
  EXPECT_EQ(fenced.kind, 0) << fenced.text;  // the connection has ended
  EXPECT_EQ(there.ask({"SET", "a", "5"}), status("OK"));
  EXPECT_EQ(there.ask({"GET", "a"}), bulk("5"));
  EXPECT_THROW(RespClient{address()}, std::runtime_error);
  server_->send(SIGTERM);
  const Ended ended = server_->wait();
  EXPECT_EQ(ended.status, 0) << ended.said;
  EXPECT_NE(ended.said.find("is closed until the next start"), std::string::npos) << ended.said;
}

// While the store is away one wait is for all who ask: here for as many as would take minutes one
// by one, once no more changes may be in flight.
TEST_F(RespPort, InAnOutageOneWaitIsForAll) {
  serve({"--size", "8MiB"});
  KvProcess port({"resp", "--server", server_->address("control"), "--listen", "127.0.0.1:0",
                  "--request-timeout", "100"});
  RespClient client(port.address("resp"));
  RespClient other(port.address("resp"));
  ASSERT_EQ(other.ask({"SET", "k", "0"}), status("OK"));
  server_->send(SIGSTOP);
  std::string requests;
  for (int each = 0; each < 256; ++each) requests += RespClient::encoded({"SET", "k", "v"});
  for (int round = 0; round < 4; ++round) {
    ASSERT_TRUE(client.say(requests));
    for (int each = 0; each < 256; ++each) ASSERT_EQ(client.hear().kind, '-');
  }
  EXPECT_EQ(other.ask({"PING"}), status("PONG"));
  server_->send(SIGCONT);
  const Deadline deadline = Deadline::after(std::chrono::seconds(60));
  Reply stored;
  while (stored != status("OK") && !deadline.passed()) stored = other.ask({"SET", "k", "1"});
  EXPECT_EQ(stored, status("OK"));
  EXPECT_EQ(other.ask({"GET", "k"}), bulk("1"));
}

// Receive: empty requests without an end. Expect: others are served meanwhile, and the port ends
// when it is told to.
TEST_F(RespPort, OneThatSendsWithoutAnEndHoldsUpNobody) {
  serve({"--size", "8MiB"});
  for (const std::string_view empty : {"\n", "*0\r\n"}) {
    std::atomic<bool> stop = false;
    RespClient client(address());
    std::thread flood([&] {
      std::string lines;
      while (lines.size() < 1024 * 1024) lines += empty;
      while (!stop && client.say(lines)) continue;
    });
    RespClient other(address());
    for (int each = 0; each < 20; ++each) EXPECT_EQ(other.ask({"PING"}), status("PONG"));
    if (empty != "\n") {
      server_->send(SIGTERM);
      EXPECT_EQ(server_->wait().status, 0);
    }
    stop = true;
    flood.join();
  }
}

// A client that does not read sends requests of nearly no bytes and many words. Expect: they are
// counted as what they take.
TEST_F(RespPort, EmptyWordsDoNotFillItsMemory) {
  serve({"--size", "16MiB", "--unread-max", "64MiB", "--stall-timeout", "3600"});
  RespClient other(address());
  ASSERT_EQ(other.ask({"SET", "large", std::string(1024 * 1024, 'v')}), status("OK"));
  std::vector<std::string> much(25, "large");
  much.front() = "MGET";
  RespClient deaf(address());
  ASSERT_TRUE(deaf.say(RespClient::encoded(much)));
  ASSERT_TRUE(deaf.fill());  // it is executed, and nothing behind it is until it is read
  ASSERT_EQ(other.ask({"PING"}), status("PONG"));
  const std::size_t before = server_->resident_bytes();
  const std::string request = RespClient::encoded(std::vector<std::string>(4096));
  std::string requests;
  for (int each = 0; each < 250; ++each) requests += request;
  std::thread sender([&] { (void)deaf.say(requests); });
  std::size_t most = 0;
  for (int each = 0; each < 20; ++each) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_EQ(other.ask({"PING"}), status("PONG"));
    most = std::max(most, server_->resident_bytes());
  }
  server_->kill();
  sender.join();
  EXPECT_LT(most, before + (std::size_t{12} << 20));
}

// The port waits for its store for longer than the time in which a client must have said something.
// Expect: who has said it meanwhile is heard.
TEST_F(RespPort, WhatComesWhileItWaitsForTheStoreIsHeard) {
  serve({"--size", "8MiB"});
  KvProcess port({"resp", "--server", server_->address("control"), "--listen", "127.0.0.1:0",
                  "--request-timeout", "4000", "--stall-timeout", "1", "--idle-timeout", "2"});
  RespClient client(port.address("resp"));
  RespClient half(port.address("resp"));
  ASSERT_EQ(client.ask({"SET", "k", "0"}), status("OK"));
  const std::string request = RespClient::encoded({"SET", "k", "v"});
  server_->send(SIGSTOP);
  ASSERT_TRUE(half.say(request.substr(0, 10)));
  ASSERT_TRUE(client.say(request));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // the port waits by now
  ASSERT_TRUE(half.say(request.substr(10)));
  EXPECT_EQ(client.hear().kind, '-');
  server_->send(SIGCONT);
  EXPECT_NE(half.hear().kind, 0);  // an answer, whichever
  EXPECT_NE(client.ask({"SET", "k", "1"}).kind, 0);
}

TEST_F(RespPort, TooManyClientsAreToldSo) {
  serve({"--size", "8MiB", "--connections-max", "2"});
  RespClient first(address());
  RespClient second(address());
  ASSERT_EQ(first.ask({"PING"}), status("PONG"));
  ASSERT_EQ(second.ask({"PING"}), status("PONG"));
  {
    RespClient third(address());
    EXPECT_EQ(third.hear(), (Reply{'-', false, "ERR max number of clients reached", {}}));
    EXPECT_TRUE(third.closed());
  }
  EXPECT_EQ(second.ask({"QUIT"}), status("OK"));
  EXPECT_TRUE(second.closed());
  EXPECT_EQ(shown(first, "rejected_connections"), 1);
}

TEST_F(RespPort, AFullStoreSaysSoAndLosesNothing) {
  serve({"--size", "1MiB", "--value-max", "64KiB"});
  RespClient client(address());
  const std::string value(2000, 'f');
  int stored = 0;
  Reply reply = status("OK");
  for (; stored < 2000 && reply == status("OK"); ++stored) {
    reply = client.ask({"SET", std::to_string(stored), value});
  }
  --stored;
  EXPECT_EQ(reply.kind, '-');
  EXPECT_EQ(reply.text.substr(0, 4), "OOM ") << reply.text;
  EXPECT_GT(stored, 200);
  for (int each = 0; each < stored; ++each) {
    ASSERT_EQ(client.ask({"GET", std::to_string(each)}), bulk(value)) << each;
  }
  EXPECT_EQ(client.ask({"DBSIZE"}), number(stored));
  EXPECT_EQ(client.ask({"DEL", "0", "1"}), number(2));
  EXPECT_EQ(client.ask({"SET", "again", value}), status("OK"));
}

// The port's client of the store asks for room when it has stored for a while, and finds the answer
// gone.
TEST_F(RespPort, StoresOnAfterItHasErasedForLong) {
  serve({"--size", "8MiB"});
  RespClient client(address());
  std::string requests;
  for (int each = 0; each < 64; ++each) requests += RespClient::encoded({"SET", "k", "v"});
  for (int each = 0; each < 4200; ++each) requests += RespClient::encoded({"DEL", "none"});
  ASSERT_TRUE(client.say(requests));
  for (int each = 0; each < 64; ++each) ASSERT_EQ(client.hear(), status("OK"));
  for (int each = 0; each < 4200; ++each) ASSERT_EQ(client.hear(), number(0));
  for (int each = 0; each < 100; ++each) ASSERT_EQ(client.ask({"SET", "k", "w"}), status("OK"));
  EXPECT_EQ(client.ask({"GET", "k"}), bulk("w"));
}

TEST_F(RespPort, AnAnswerIsNoLargerThanItsLimit) {
  serve({"--size", "16MiB"});
  RespClient client(address());
  ASSERT_EQ(client.ask({"SET", "large", std::string(1024 * 1024, 'v')}), status("OK"));
  std::vector<std::string> words(100, "large");
  words.front() = "MGET";
  EXPECT_EQ(client.ask(words).kind, '-');
  words.resize(20);
  EXPECT_EQ(client.ask(words).elements.size(), 19u);
  EXPECT_EQ(client.ask({"PING"}), status("PONG"));
}

}  // namespace
}  // namespace perdure::kv_test
