// A server on loopback that takes one connection and does with it what a test says.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <string_view>
#include <thread>
#include <utility>

#include "control/host_port.h"

namespace perdure::test {

class RawServer {
 public:
  /// `behave` is given the descriptor of the connection.
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
  RawServer(const RawServer&) = delete;
  RawServer& operator=(const RawServer&) = delete;

  const control::HostPort& at() const { return at_; }

 private:
  int socket_;
  control::HostPort at_;
  std::thread thread_;
};

inline void say(int connection, std::string_view text) {
  (void)!::send(connection, text.data(), text.size(), MSG_NOSIGNAL);
}

inline void hear(int connection) {
  std::array<char, 4096> bytes;
  (void)!::recv(connection, bytes.data(), bytes.size(), 0);
}

}  // namespace perdure::test
