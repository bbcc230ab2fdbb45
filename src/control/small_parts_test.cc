// The small parts: addresses, tokens, HTTP answers, and when to poll.
#include <gtest/gtest.h>

#include "control/host_port.h"
#include "control/http_client.h"
#include "control/token.h"
#include "server/metrics.h"
#include "server/spin.h"

namespace perdure::control {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

TEST(HostPort, IsReadAsPeopleWriteIt) {
  EXPECT_EQ(parse_host_port("127.0.0.1:7470")->host, "127.0.0.1");
  EXPECT_EQ(parse_host_port("127.0.0.1:7470")->port, 7470);
  EXPECT_EQ(parse_host_port("[::1]:0")->host, "::1");
  EXPECT_EQ(to_string(*parse_host_port("[::1]:80")), "[::1]:80");
  EXPECT_EQ(to_string(*parse_host_port("db.example:80")), "db.example:80");
  for (const char* wrong : {"", ":", "host", "host:", ":1", "host:x", "host:65536", "host:-1",
                            "::1:80", "[::1]", "[]:1", "[::1:80", "host:1 "}) {
    EXPECT_EQ(parse_host_port(wrong).code(), ErrorCode::InvalidArgument) << wrong;
  }
}

TEST(HostPort, OnlyLoopbackIsLoopback) {
  for (const char* near : {"127.0.0.1", "127.9.9.9", "::1", "localhost", "::ffff:127.0.0.1"}) {
    EXPECT_TRUE(is_loopback(near)) << near;
  }
  for (const char* far : {"0.0.0.0", "::", "10.0.0.1", "128.0.0.1", "localhost.evil", "127.0.0",
                          "::ffff:10.0.0.1", ""}) {
    EXPECT_FALSE(is_loopback(far)) << far;
  }
}

TEST(Token, SurvivesPaddingAndNothingElse) {
  const auto bytes = encode(SessionToken{0x1122334455667788u, 42});
  std::vector<std::byte> padded(bytes.begin(), bytes.end());
  padded.resize(64);
  ASSERT_TRUE(decode_token(padded).has_value());
  EXPECT_EQ(decode_token(padded)->session, 0x1122334455667788u);
  EXPECT_EQ(decode_token(padded)->secret, 42u);

  EXPECT_FALSE(decode_token({}).has_value());
  EXPECT_FALSE(decode_token(std::span(bytes).first(kTokenBytes - 1)).has_value());
  for (std::size_t at = 0; at < 8; ++at) {  // magic and version
    auto changed = bytes;
    changed[at] ^= std::byte{1};
    EXPECT_FALSE(decode_token(changed).has_value()) << at;
  }
}

TEST(HttpAnswer, IsReadStrictly) {
  const auto whole = parse_http_answer("HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}");
  ASSERT_TRUE(whole.ok()) << whole.error().message;
  EXPECT_EQ(whole->status, 201);
  EXPECT_EQ(whole->body, "{}");
  EXPECT_EQ(parse_http_answer("HTTP/1.1 200 OK\r\n\r\nto the end")->body, "to the end");

  for (const char* wrong : {
           "",
           "HTTP/1.1",
           "SSH-2.0-OpenSSH_9.2\r\n\r\n",
           "HTTP/1.0 200 OK\r\n\r\n",
           "HTTP/1.1 2x0 OK\r\n\r\n",
           "HTTP/1.1 20\r\n\r\n",
           "HTTP/1.1 -01 OK\r\n\r\n",
           "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{}",
           "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n{}",
           "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
           "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
           "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
           "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n",
       }) {
    EXPECT_EQ(parse_http_answer(wrong).code(), ErrorCode::ProtocolError) << wrong;
  }
}

class Spinning : public testing::Test {
 protected:
  /// One message, then silence for `gap`; how long the thread polled in it.
  microseconds polled_in(server::AdaptiveSpin& spin, microseconds gap) {
    microseconds polled{0};
    bool polling = true;
    spin.found_work();
    for (microseconds passed{0}; passed < gap; passed += microseconds{1}) {
      polling = polling && spin.keep_polling();
      if (polling) polled += microseconds{1};
      clock_.advance(microseconds{1});
    }
    return polled;
  }

  ManualClock clock_;
  server::SpinSlots slots_{1};
};

TEST_F(Spinning, PollsWhileMessagesAreClose) {
  server::AdaptiveSpin spin(clock_, slots_, microseconds{50});
  for (int message = 0; message < 100; ++message) {
    EXPECT_EQ(polled_in(spin, microseconds{10}), microseconds{10});
  }
}

TEST_F(Spinning, SleepsAtOnceWhenPollingDidNotPay) {
  server::AdaptiveSpin spin(clock_, slots_, microseconds{50});
  microseconds polled{0};
  for (int message = 0; message < 100; ++message) polled += polled_in(spin, milliseconds{10});
  EXPECT_LE(polled, microseconds{50} * 8);  // what the credit at the start allows
  EXPECT_EQ(polled_in(spin, milliseconds{10}), microseconds{0});
  // Messages come closely again: it polls again.
  for (int message = 0; message < 10; ++message) (void)polled_in(spin, microseconds{60});
  EXPECT_GT(polled_in(spin, microseconds{10}), microseconds{0});
}

TEST_F(Spinning, PollsOnForOneSidedRequestsThatKeepComing) {
  server::AdaptiveSpin spin(clock_, slots_, microseconds{50});
  microseconds polled{0};
  microseconds slept{0};
  for (int step = 0; step < 100'000; ++step) {
    if (spin.keep_polling()) {
      clock_.advance(microseconds{1});
      polled += microseconds{1};
    } else {  // a request comes soon, and wakes the thread
      clock_.advance(microseconds{60});
      slept += microseconds{60};
      spin.woken();
    }
  }
  EXPECT_GT(polled, 10 * slept);
  // They end: one long spin, then it sleeps until the next.
  int polls = 0;
  while (spin.keep_polling()) {
    clock_.advance(microseconds{1});
    ++polls;
  }
  EXPECT_LE(polls, 50 * 16);
  EXPECT_FALSE(spin.keep_polling());
}

TEST_F(Spinning, RareOneSidedRequestsAreSleptFor) {
  server::AdaptiveSpin spin(clock_, slots_, microseconds{50});
  microseconds polled{0};
  for (int request = 0; request < 100; ++request) {
    while (spin.keep_polling()) {
      clock_.advance(microseconds{1});
      polled += microseconds{1};
    }
    clock_.advance(milliseconds{10});
    spin.woken();
  }
  EXPECT_LE(polled, microseconds{50} * 8);
}

TEST_F(Spinning, NeverMoreThreadsThanSlots) {
  server::AdaptiveSpin one(clock_, slots_, microseconds{50});
  server::AdaptiveSpin two(clock_, slots_, microseconds{50});
  EXPECT_TRUE(one.keep_polling());
  EXPECT_FALSE(two.keep_polling());
  clock_.advance(microseconds{60});
  EXPECT_FALSE(one.keep_polling());  // its budget is used up, the slot is free
  two.found_work();
  EXPECT_TRUE(two.keep_polling());
}

TEST_F(Spinning, StopsForAWhileWhenOthersWantTheCore) {
  static long preemptions;
  preemptions = 0;
  server::AdaptiveSpin spin(clock_, slots_, microseconds{50}, [] { return preemptions; });
  EXPECT_TRUE(spin.keep_polling());
  clock_.advance(microseconds{30});  // a long pause, but nobody else ran: a large transfer
  EXPECT_TRUE(spin.keep_polling());
  ++preemptions;
  clock_.advance(microseconds{1});  // too short to be worth a look
  EXPECT_TRUE(spin.keep_polling());
  clock_.advance(microseconds{26});
  spin.found_work();
  EXPECT_TRUE(spin.keep_polling());
  clock_.advance(microseconds{26});
  EXPECT_FALSE(spin.keep_polling());
  EXPECT_EQ(polled_in(spin, microseconds{10}), microseconds{0});
  clock_.advance(milliseconds{5});
  EXPECT_EQ(polled_in(spin, microseconds{10}), microseconds{10});
}

TEST_F(Spinning, ABudgetOfZeroNeverPolls) {
  server::AdaptiveSpin spin(clock_, slots_, microseconds{0});
  EXPECT_EQ(polled_in(spin, microseconds{10}), microseconds{0});
}

TEST(Metrics, HaveALineForEveryPoolAndCounter) {
  ServiceReport report;
  report.service.version = "9";
  PoolReport pool;
  pool.pool.name = "orders";
  pool.pool.epoch = Epoch{3};
  pool.counters.messages = 17;
  pool.counters.revocation_failures = 4;
  report.pools.push_back(pool);
  SessionDescription session;
  session.pool = "orders";
  session.write = true;
  report.sessions.push_back(session);
  session.unrevoked = "it does not";
  report.sessions.push_back(session);
  report.refused.tokens = 5;
  const std::string text = server::metrics_text(report);
  for (const char* line :
       {"perdure_build_info{version=\"9\"} 1\n", "perdure_pool_available{pool=\"orders\"} 1\n",
        "perdure_pool_epoch{pool=\"orders\"} 3\n", "perdure_messages_total{pool=\"orders\"} 17\n",
        "perdure_sessions{pool=\"orders\",mode=\"read\"} 0\n",
        "perdure_sessions{pool=\"orders\",mode=\"write\"} 2\n",
        "perdure_sessions_unrevoked{pool=\"orders\"} 1\n",
        "perdure_revocation_failures_total{pool=\"orders\"} 4\n",
        "perdure_refused_requests_total{reason=\"token\"} 5\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line;
  }
}

}  // namespace
}  // namespace perdure::control
