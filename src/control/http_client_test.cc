// A peer that is silent, slow, gone or talks nonsense holds nobody beyond the deadline.
#include "control/http_client.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <functional>
#include <thread>

namespace perdure::control {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// Accepts one connection on loopback and does with it what the test says.
class RawServer {
 public:
  explicit RawServer(std::function<void(int)> behave) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(::bind(socket_, generic, length), 0);
    EXPECT_EQ(::listen(socket_, 4), 0);
    EXPECT_EQ(::getsockname(socket_, generic, &length), 0);
    at_ = {"127.0.0.1", ntohs(address.sin_port)};
    thread_ = std::thread([this, behave = std::move(behave)] {
      const int connection = ::accept(socket_, nullptr, nullptr);
      if (connection >= 0) behave(connection);
      ::close(connection);
    });
  }
  ~RawServer() {
    ::shutdown(socket_, SHUT_RDWR);
    thread_.join();
    ::close(socket_);
  }

  const HostPort& at() const { return at_; }

 private:
  int socket_;
  HostPort at_;
  std::thread thread_;
};

void say(int connection, std::string_view text) {
  (void)!::send(connection, text.data(), text.size(), MSG_NOSIGNAL);
}

void hear(int connection) {
  std::array<char, 4096> bytes;
  (void)!::recv(connection, bytes.data(), bytes.size(), 0);
}

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
