// A peer that is silent, slow, gone or talks nonsense holds nobody beyond the deadline.
#include "control/http_client.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "testing/raw_server.h"

namespace perdure::control {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::hear;
using test::RawServer;
using test::say;

Result<HttpAnswer> ask(const HostPort& at, Nanoseconds within) {
  return http_call(at, {"GET", "/healthz", ""}, 1024, Deadline::after(within));
}

TEST(HttpClient, TakesAnAnswerInPieces) {
  RawServer server([](int connection) {
    hear(connection);
    for (const char* piece : {"HTTP/1.", "1 200 OK\r\nContent-Le", "ngth: 3\r\n\r", "\nab", "c"}) {
      say(connection, piece);
      std::this_thread::sleep_for(milliseconds{2});
    }
  });
  const auto answer = ask(server.at(), seconds{20});
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(answer->body, "abc");
}

TEST(HttpClient, ASilentPeerTimesOut) {
  std::atomic<bool> over{false};
  RawServer server([&](int) {
    while (!over) std::this_thread::sleep_for(milliseconds{1});
  });
  EXPECT_EQ(ask(server.at(), milliseconds{50}).code(), ErrorCode::TimedOut);
  over = true;
}

TEST(HttpClient, APeerThatNeverEndsTimesOut) {
  std::atomic<bool> over{false};
  RawServer server([&](int connection) {
    say(connection, "HTTP/1.1 200 OK\r\n");
    while (!over) {
      say(connection, "a");  // a header that goes on, a byte at a time
      std::this_thread::sleep_for(milliseconds{1});
    }
  });
  EXPECT_EQ(ask(server.at(), milliseconds{100}).code(), ErrorCode::TimedOut);
  over = true;
}

TEST(HttpClient, APeerThatGoesAwayIsDisconnected) {
  RawServer server([](int connection) { hear(connection); });
  EXPECT_EQ(ask(server.at(), seconds{20}).code(), ErrorCode::Disconnected);
}

TEST(HttpClient, NobodyThereIsDisconnected) {
  HostPort at;
  {
    RawServer server([](int) {});
    at = server.at();
    (void)ask(at, seconds{20});
  }
  EXPECT_EQ(ask(at, seconds{20}).code(), ErrorCode::Disconnected);
}

TEST(HttpClient, NonsenseIsAProtocolError) {
  for (const std::string& nonsense :
       {std::string("SSH-2.0-OpenSSH\r\n"), std::string(70000, 'x'),
        "HTTP/1.1 200 OK\r\nh: " + std::string(70000, 'x'),
        "HTTP/1.1 200 OK\r\n\r\n" + std::string(70000, 'x'),
        std::string("HTTP/1.1 200 OK\r\nContent-Length: 4000\r\n\r\n"),
        std::string("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nab")}) {
    RawServer server([&](int connection) {
      hear(connection);
      say(connection, nonsense);
    });
    EXPECT_EQ(ask(server.at(), seconds{20}).code(), ErrorCode::ProtocolError)
        << nonsense.substr(0, 40);
  }
}

}  // namespace
}  // namespace perdure::control
