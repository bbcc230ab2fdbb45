// A requester in another container of the daemon's host: the same boot, so that shared memory looks
// right, and another network, where it can not be reached. `auto` ends at tcp, and says why.
//
// The test makes the container by itself: a child in a network namespace of its own. Its way to the
// daemon is a relay: sockets that listen in the child's namespace, whose connections the parent
// carries on to the daemon's ports in its own.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <perdure/log.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstring>
#include <functional>
#include <map>
#include <memory>

#include "client/dial.h"
#include "daemon_process.h"
#include "data_plane.h"
#include "own_network.h"
#include "raw_connection.h"

namespace perdure::server {
namespace {

/// What the child found, sent through the pipe that it shares with the parent.
struct Found {
  enum Kind : int { NotPermitted, Failed, Right };
  int kind = Failed;
  std::array<char, 500> words{};
};

/// Listens at 127.0.0.1:port; -1 on failure.
int listen_at(std::uint16_t port) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(port);
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool listens =
      ::bind(socket, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0 && ::listen(socket, 16) == 0;
  return listens ? socket : -1;
}

bool hand_over(int channel, int descriptor) {
  char byte = 0;
  iovec data{&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* const attached = CMSG_FIRSTHDR(&message);
  attached->cmsg_level = SOL_SOCKET;
  attached->cmsg_type = SCM_RIGHTS;
  attached->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(attached), &descriptor, sizeof descriptor);
  return ::sendmsg(channel, &message, 0) == 1;
}

int receive_descriptor(int channel) {
  char byte = 0;
  iovec data{&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  int descriptor = -1;
  if (::recvmsg(channel, &message, MSG_CMSG_CLOEXEC) != 1) return -1;
  const cmsghdr* const attached = CMSG_FIRSTHDR(&message);
  if (attached != nullptr) std::memcpy(&descriptor, CMSG_DATA(attached), sizeof descriptor);
  return descriptor;
}

/// In the container: opens a session with `auto`, and writes through it.
Found requester(const std::string& control) {
  Found found;
  const auto say = [&](const std::string& words) {
    std::strncpy(found.words.data(), words.c_str(), found.words.size() - 1);
  };
  client::Dialer dialer;
  auto peer = dialer.dial(control, std::nullopt);
  if (!peer.ok()) return say(peer.error().message), found;
  auto session = (*peer)->open_session({"a", true, Epoch{1}, 10, "in a container", false}, soon());
  if (!session.ok()) return say(session.error().message), found;
  const bool durable = update(*session, (*peer)->device(), 1, 0) == 0;
  const bool tcp = session->endpoint->transport() == Transport::Tcp &&
                   (*peer)->device().transport() == Transport::Tcp;
  say((*peer)->fallback());
  if (durable && tcp) found.kind = Found::Right;
  return found;
}

using Program = std::function<Found()>;

[[noreturn]] void be_the_container(int channel, const std::vector<std::uint16_t>& ports,
                                   const Program& program) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  Found found;
  if (!enter_network_of_its_own()) {
    found.kind = Found::NotPermitted;
  } else {
    bool ready = true;
    for (const std::uint16_t port : ports) ready = ready && hand_over(channel, listen_at(port));
    if (ready) found = program();
  }
  (void)::send(channel, &found, sizeof found, 0);
  ::_exit(0);
}

/// Carries bytes between connections of the container and the daemon's ports, until the container
/// has said what it found.
class Relay {
 public:
  Relay(int channel, std::vector<std::string> addresses)
      : channel_(channel), addresses_(std::move(addresses)) {}

  Found run() {
    Found found;
    const Deadline patience = soon();
    while (!patience.passed()) {
      std::vector<pollfd> watched{{channel_, POLLIN, 0}};
      for (const int each : listening_) watched.push_back({each, POLLIN, 0});
      for (const auto& [from, to] : ways_) watched.push_back({from, POLLIN, 0});
      if (::poll(watched.data(), watched.size(), 100) <= 0) continue;
      if (watched[0].revents != 0 && !hear(found)) return found;
      for (std::size_t i = 1; i < watched.size(); ++i) {
        if (watched[i].revents == 0) continue;
        if (i <= listening_.size() && watched[i].fd == listening_[i - 1])
          accept(i - 1);
        else
          carry(watched[i].fd);
      }
    }
    return found;
  }

 private:
  /// Listening sockets first, one for each address; then what was found. False: that was it.
  bool hear(Found& found) {
    if (listening_.size() < addresses_.size()) {
      std::array<char, 8> peeked{};
      // What was found is longer than the byte that comes with a socket.
      const auto size = ::recv(channel_, peeked.data(), peeked.size(), MSG_PEEK | MSG_TRUNC);
      if (size == 1) {
        listening_.push_back(receive_descriptor(channel_));
        return true;
      }
    }
    (void)::recv(channel_, &found, sizeof found, 0);
    return false;
  }
  void accept(std::size_t which) {
    const int inner = ::accept4(listening_[which], nullptr, nullptr, SOCK_CLOEXEC);
    outer_.push_back(std::make_unique<RawConnection>(addresses_[which]));
    ways_[inner] = outer_.back()->descriptor();
    ways_[outer_.back()->descriptor()] = inner;
  }
  void carry(int from) {
    std::array<char, 65536> bytes;
    const auto way = ways_.find(from);
    if (way == ways_.end()) return;
    const int to = way->second;
    const ssize_t got = ::recv(from, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got > 0) {
      std::size_t sent = 0;
      while (sent < static_cast<std::size_t>(got)) {
        const ssize_t some =
            ::send(to, bytes.data() + sent, static_cast<std::size_t>(got) - sent, MSG_NOSIGNAL);
        if (some <= 0) break;
        sent += static_cast<std::size_t>(some);
      }
      return;
    }
    if (got < 0 && errno == EAGAIN) return;
    ::shutdown(to, SHUT_WR);
    ways_.erase(from);
  }

  const int channel_;
  const std::vector<std::string> addresses_;
  std::vector<int> listening_;
  std::vector<std::unique_ptr<RawConnection>> outer_;
  std::map<int, int> ways_;
};

/// What a program finds in a container that reaches these addresses.
Found in_a_container(const std::vector<std::string>& addresses, const Program& program) {
  std::vector<std::uint16_t> ports;
  for (const std::string& each : addresses) ports.push_back(control::parse_host_port(each)->port);
  std::array<int, 2> channel{};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, channel.data()), 0);
  const pid_t child = ::fork();
  EXPECT_GE(child, 0);
  if (child == 0) be_the_container(channel[1], ports, program);
  ::close(channel[1]);
  const Found found = Relay(channel[0], addresses).run();
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::close(channel[0]);
  return found;
}

TEST(Container, SharedMemoryThatDoesNotReachThePeerFallsBackToTcp) {
  TestDirectory pools;
  std::unique_ptr<DaemonProcess> daemon(DaemonProcess::serving(pools.path()));
  ASSERT_EQ(daemon->ask("POST", "/v1/pools", R"({"name":"a","bytes":65536})").status, 201);
  const std::vector<std::string> addresses{daemon->address("control"), daemon->address("tcp")};
  const Found found = in_a_container(addresses, [&] { return requester(addresses[0]); });
  if (found.kind == Found::NotPermitted)
    GTEST_SKIP() << "network namespaces are not permitted here";
  EXPECT_EQ(found.kind, Found::Right) << found.words.data();
  EXPECT_NE(std::string(found.words.data()).find("container"), std::string::npos)
      << found.words.data();
}

/// Opens the log of these peers, which has `before` records, and appends ten. In words what is
/// wrong; empty: nothing, and every replica is written over `transport`.
std::string write_ten(const std::vector<std::string>& peers, std::uint64_t before,
                      Transport transport) {
  LogOptions options;
  options.peers = peers;
  options.pool = "log";
  options.record_bytes_max = 4096;
  auto log = Log::open(std::move(options));
  if (!log.ok()) return log.error().message;
  if (log->status().next_index != before) return "not the records that were committed";
  Ticket last;
  for (int count = 0; count < 10; ++count) {
    const auto ticket = log->append(std::vector<std::byte>(100));
    if (!ticket.ok()) return ticket.error().message;
    last = *ticket;
  }
  if (const auto waited = log->wait(last, Level::Committed, std::chrono::minutes(1)); !waited.ok())
    return waited.error().message;
  for (const ReplicaStatus& each : log->status().replicas) {
    if (!each.up) return each.peer + ": " + each.down_reason;
    if (each.profile.transport != transport) return each.peer + ": over another transport";
  }
  const auto closed = log->close(std::chrono::minutes(1));
  return closed.ok() ? "" : closed.error().message;
}

// Whoever opens the log finds out anew over which transport it reaches the replicas: twice from a
// container, then from the daemons' own, and from a container again.
TEST(Container, ALogIsOpenedAgainOverWhateverReachesItsReplicas) {
  std::array<TestDirectory, 3> pools;
  std::array<std::unique_ptr<DaemonProcess>, 3> daemons;
  std::vector<std::string> peers;
  std::vector<std::string> addresses;
  for (std::size_t index = 0; index < pools.size(); ++index) {
    daemons[index].reset(DaemonProcess::serving(pools[index].path()));
    const std::string body = R"({"name":"log","bytes":1048576})";
    ASSERT_EQ(daemons[index]->ask("POST", "/v1/pools", body).status, 201);
    peers.push_back(daemons[index]->address("control"));
    addresses.push_back(peers.back());
    addresses.push_back(daemons[index]->address("tcp"));
  }
  const auto in_container = [&](std::vector<std::uint64_t> before) {
    return in_a_container(addresses, [&] {
      Found found;
      std::string wrong;
      for (const std::uint64_t each : before) {
        if (wrong.empty()) wrong = write_ten(peers, each, Transport::Tcp);
      }
      std::strncpy(found.words.data(), wrong.c_str(), found.words.size() - 1);
      if (wrong.empty()) found.kind = Found::Right;
      return found;
    });
  };
  Found found = in_container({0, 10});
  if (found.kind == Found::NotPermitted)
    GTEST_SKIP() << "network namespaces are not permitted here";
  ASSERT_EQ(found.kind, Found::Right) << found.words.data();
  ASSERT_EQ(write_ten(peers, 20, Transport::Shm), "");
  found = in_container({30});
  EXPECT_EQ(found.kind, Found::Right) << found.words.data();
}

}  // namespace
}  // namespace perdure::server
