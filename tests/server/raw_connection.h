// A TCP connection that says whatever a test wants, word by word.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>
#include <string_view>

#include "control/host_port.h"

namespace perdure::server {

/// A connection that says whatever the test wants.
class RawConnection {
 public:
  /// `from`: an address of loopback; empty: the usual one.
  explicit RawConnection(const std::string& address, const std::string& from = "")
      : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    if (!from.empty()) {
      sockaddr_in own{};
      own.sin_family = AF_INET;
      ::inet_pton(AF_INET, from.c_str(), &own.sin_addr);
      EXPECT_EQ(::bind(socket_, reinterpret_cast<sockaddr*>(&own), sizeof own), 0) << errno;
    }
    const auto at = control::parse_host_port(address);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(at->port);
    ::inet_pton(AF_INET, at->host.c_str(), &to.sin_addr);
    EXPECT_EQ(::connect(socket_, reinterpret_cast<sockaddr*>(&to), sizeof to), 0) << errno;
    const timeval limit{30, 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    ::setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  }
  ~RawConnection() { ::close(socket_); }
  RawConnection(const RawConnection&) = delete;
  RawConnection& operator=(const RawConnection&) = delete;

  void say(std::string_view text) {
    while (!text.empty()) {
      const ssize_t sent = ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL);
      if (sent <= 0) return;  // the other side has heard enough
      text.remove_prefix(static_cast<std::size_t>(sent));
    }
  }
  /// Everything until the other side closes.
  std::string hear() {
    std::string text;
    std::array<char, 4096> bytes;
    for (ssize_t got = 1; got > 0;) {
      got = ::recv(socket_, bytes.data(), bytes.size(), 0);
      ended_ = got == 0 || (got < 0 && errno == ECONNRESET);
      if (got > 0) text.append(bytes.data(), static_cast<std::size_t>(got));
    }
    return text;
  }
  /// Whether the other side has not closed it. What it said is gone then.
  bool open() const {
    std::array<char, 4096> bytes;
    ssize_t got = 1;
    while (got > 0) got = ::recv(socket_, bytes.data(), bytes.size(), MSG_DONTWAIT);
    return got < 0 && errno == EAGAIN;
  }
  /// Whether hear() came to the end that the other side made, and not to that of its patience.
  bool ended() const { return ended_; }
  int descriptor() const { return socket_; }

 private:
  int socket_;
  bool ended_ = false;
};

}  // namespace perdure::server
