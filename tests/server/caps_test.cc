// How many connections the control plane keeps: of one address, and of all. No deadline ends one
// here: what is closed had to make room.
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <string>

#include "data_plane.h"
#include "raw_connection.h"
#include "server/http_listener.h"

namespace perdure::server {
namespace {

class Caps : public testing::Test {
 protected:
  static constexpr std::size_t kAll = 8;
  static constexpr std::size_t kPerAddress = 4;

  Caps() {
    HttpListener::Options options;
    options.listen = "127.0.0.1:0";
    options.limits.connections_max = kAll;
    options.limits.connections_per_address_max = kPerAddress;
    options.limits.request_within = std::chrono::hours(1);
    options.lane = [](const ReceivedRequest&) { return Lane::Now; };
    options.answer = [](const ReceivedRequest&) { return HttpReply{200, "text/plain", "ok"}; };
    auto listener = HttpListener::open(std::move(options));
    EXPECT_TRUE(listener.ok());
    listener_ = std::move(*listener);
  }

  /// So many that begin a request and do not end it; each is in before the next one comes.
  void connect(const std::string& from, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t before = listener_->counters().accepted;
      auto& all = connections_;
      all.push_back(std::make_unique<RawConnection>(listener_->address(), from));
      all.back()->say("GET / HTTP/1.1\r\nHost: ");
      const Deadline patience = soon();
      while (listener_->counters().accepted == before && !patience.passed()) {
        (void)::poll(nullptr, 0, 1);
      }
    }
  }
  /// Waits until so many have had to go; which ones are still there, as a line of letters.
  std::string after_displacing(std::uint64_t count) {
    const Deadline patience = soon();
    while (listener_->counters().displaced < count && !patience.passed()) {
      (void)::poll(nullptr, 0, 1);
    }
    EXPECT_EQ(listener_->counters().displaced, count);
    std::string line;
    for (const auto& each : connections_) line += each->open() ? 'o' : '-';
    return line;
  }

  std::unique_ptr<HttpListener> listener_;
  std::deque<std::unique_ptr<RawConnection>> connections_;
};

TEST_F(Caps, OneAddressMakesRoomForItselfOnly) {
  connect("127.0.0.2", 2);
  connect("127.0.0.3", kPerAddress + 2);
  EXPECT_EQ(after_displacing(2), "oo--oooo") << "the oldest of its own address go";
}

TEST_F(Caps, WhoSendsTheLongestMakesRoomForAnotherAddress) {
  connect("127.0.0.2", kPerAddress);
  connect("127.0.0.3", kPerAddress);
  EXPECT_EQ(after_displacing(0), "oooooooo");
  connect("127.0.0.4", 3);
  EXPECT_EQ(after_displacing(3), "---oooooooo");
}

}  // namespace
}  // namespace perdure::server
