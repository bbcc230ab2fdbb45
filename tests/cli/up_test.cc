// `perdure up`: what it prints can be done, and what was kept is there the next time.
#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "core/clock.h"
#include "testing/temporary_directory.h"
#include "tests/cli/command_process.h"

namespace perdure::cli {
namespace {

/// What stands between `begin` and `end` behind it.
std::string between(const std::string& text, const std::string& begin, const std::string& end) {
  const auto at = text.find(begin);
  if (at == std::string::npos) return {};
  const auto from = at + begin.size();
  return text.substr(from, text.find(end, from) - from);
}

class Up : public testing::Test {
 protected:
  void start() {
    up_ = std::make_unique<CommandProcess>(std::vector<std::string>{
        "up", "--peers", "3", "--directory", place_.path(), "--bytes", "1MiB"});
    await("perdure status\n");
    peers_ = between(up_->out(), "PERDURE_PEERS=", " ");
  }
  void await(const std::string& words) {
    const Deadline soon = Deadline::after(std::chrono::seconds(60));
    while (!contains(up_->out(), words) && up_->running() && !soon.passed()) {
    }
    ASSERT_TRUE(contains(up_->out(), words)) << up_->out();
  }
  void end() {
    up_->send(SIGINT);
    const Outcome ended = up_->wait();
    EXPECT_EQ(ended.status, 0) << ended.out << ended.err;
  }
  Outcome log(const std::string& what, const std::string& input = "") const {
    return run({"log", what, "--peers", peers_, "--pool", "play"}, input);
  }

  const test::TestDirectory place_{"/var/tmp"};
  std::unique_ptr<CommandProcess> up_;
  std::string peers_;
};

TEST_F(Up, ServesUntilItIsInterruptedAndAgain) {
  ASSERT_NO_FATAL_FAILURE(start());
  EXPECT_EQ(log("append", "hello\n").status, 0);
  const int last = std::stoi(between(up_->out(), "kill -9 ", " "));
  ASSERT_EQ(::kill(last, SIGKILL), 0);
  ASSERT_NO_FATAL_FAILURE(await("has ended"));
  EXPECT_EQ(log("append", "again\n").status, 0);
  EXPECT_EQ(log("read").out, "hello\nagain\n");
  end();
  EXPECT_NE(log("read").status, 0) << "nobody serves any more";

  const std::string before = peers_;
  ASSERT_NO_FATAL_FAILURE(start());
  EXPECT_EQ(peers_, before) << "the log knows its replicas by these names";
  EXPECT_EQ(log("read").out, "hello\nagain\n");
  end();
}

/// Listens at a port of loopback while it lives.
class TakenPort {
 public:
  explicit TakenPort(std::uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    const int on = 1;
    ::setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(port);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    taken_ = ::bind(socket_, reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0 &&
             ::listen(socket_, 1) == 0;
  }
  ~TakenPort() { ::close(socket_); }
  TakenPort(const TakenPort&) = delete;
  TakenPort& operator=(const TakenPort&) = delete;
  bool taken() const { return taken_; }

 private:
  const int socket_;
  bool taken_ = false;
};

TEST_F(Up, GoesElsewhereWhereAPortIsTaken) {
  ASSERT_NO_FATAL_FAILURE(start());
  EXPECT_EQ(log("append", "hello\n").status, 0);
  end();
  const std::string before = peers_;
  const TakenPort taken(static_cast<std::uint16_t>(std::stoi(between(before, ":", ","))));
  ASSERT_TRUE(taken.taken());

  ASSERT_NO_FATAL_FAILURE(start());
  EXPECT_NE(peers_, before);
  EXPECT_EQ(peers_.substr(peers_.find(',')), before.substr(before.find(','))) << "only one moved";
  EXPECT_EQ(log("append", "again\n").status, 0);
  EXPECT_EQ(log("read").out, "hello\nagain\n");
  up_->send(SIGINT);
  const Outcome ended = up_->wait();
  EXPECT_TRUE(contains(ended.err, "the peer that was at " + before.substr(0, before.find(','))))
      << ended.err;
}

TEST_F(Up, RefusesAPlaceWhereNothingIsDurable) {
  const Outcome memory = run({"up", "--directory", "/dev/shm"});
  EXPECT_EQ(memory.status, 1) << memory.out;
  EXPECT_TRUE(contains(memory.err, "--directory")) << memory.err;
  EXPECT_NE(run({"up", "--directory", place_.path() + "/none"}).status, 0);
  EXPECT_EQ(run({"up", "--pool", "a/b"}).status, 2);
}

}  // namespace
}  // namespace perdure::cli
