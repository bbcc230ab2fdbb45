// How many connections that say nothing a listener of the tcp provider keeps: of one address, and
// of all. No deadline ends one here.
#include "fabric/ofi/silent_peers.h"

#include <gtest/gtest.h>

#ifdef PERDURE_WITH_LIBFABRIC
#include <arpa/inet.h>
#include <netinet/in.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_endpoint.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "fabric/ofi/domain.h"

namespace perdure::fabric::ofi {
namespace {

/// A socket of one of loopback's addresses, connected to a port of 127.0.0.1.
class SilentSocket {
 public:
  SilentSocket(const char* from, std::uint16_t port)
      : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const sockaddr_in own = address(from, 0);
    EXPECT_EQ(::bind(socket_, reinterpret_cast<const sockaddr*>(&own), sizeof own), 0) << errno;
    const sockaddr_in to = address("127.0.0.1", port);
    EXPECT_EQ(::connect(socket_, reinterpret_cast<const sockaddr*>(&to), sizeof to), 0) << errno;
  }
  ~SilentSocket() {
    if (socket_ >= 0) ::close(socket_);
  }
  SilentSocket(SilentSocket&& other) noexcept : socket_(std::exchange(other.socket_, -1)) {}
  SilentSocket& operator=(SilentSocket&&) = delete;

  bool open() const {
    char byte = 0;
    return ::recv(socket_, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
  }
  static sockaddr_in address(const char* host, std::uint16_t port) {
    sockaddr_in made{};
    made.sin_family = AF_INET;
    made.sin_port = htons(port);
    ::inet_pton(AF_INET, host, &made.sin_addr);
    return made;
  }

 private:
  int socket_;
};

class SilentPeersTest : public testing::Test {
 protected:
  void SetUp() override {
    auto domain = open_domain();
    ASSERT_TRUE(domain.ok()) << domain.error().message;
    domain_ = std::move(domain).value();
    Info info(libfabric().dupinfo(domain_->info));
    std::free(std::exchange(info->src_addr, nullptr));  // allocated by libfabric with malloc
    std::free(std::exchange(info->dest_addr, nullptr));
    info->dest_addrlen = 0;
    info->addr_format = FI_SOCKADDR_IN;
    const sockaddr_in own = SilentSocket::address("127.0.0.1", 0);
    info->src_addr = std::malloc(sizeof own);
    std::memcpy(info->src_addr, &own, sizeof own);
    info->src_addrlen = sizeof own;
    fi_eq_attr attr{};
    attr.wait_obj = FI_WAIT_POLLFD;
    fid_eq* events = nullptr;
    ASSERT_EQ(::fi_eq_open(domain_->fabric, &attr, &events, nullptr), 0);
    events_.reset(events);
    fid_pep* passive = nullptr;
    ASSERT_EQ(::fi_passive_ep(domain_->fabric, info.get(), &passive, nullptr), 0);
    passive_.reset(passive);
    ASSERT_EQ(::fi_pep_bind(passive, &events->fid, 0), 0);
    ASSERT_EQ(::fi_listen(passive), 0);
    limit_handshake(events);
    sockaddr_in bound{};
    std::size_t length = sizeof bound;
    ASSERT_EQ(::fi_getname(&passive->fid, &bound, &length), 0);
    port_ = ntohs(bound.sin_port);
  }

  /// The provider forgets, when it is closed, to free what it has not seen the end of.
  void TearDown() override {
    for (int round = 0; round < 50; ++round) go_on();
  }

  using Sockets = std::vector<SilentSocket>;

  Sockets connect(const char* from, std::size_t count) const {
    Sockets all;
    for (std::size_t i = 0; i < count; ++i) all.emplace_back(from, port_);
    return all;
  }
  static std::size_t open_ones(const Sockets& all) {
    return static_cast<std::size_t>(std::count_if(
        all.begin(), all.end(), [](const SilentSocket& each) { return each.open(); }));
  }
  /// A round of the listener's.
  void go_on() {
    std::uint32_t event = 0;
    fi_eq_cm_entry entry{};
    (void)::fi_eq_sread(events_.get(), &event, &entry, sizeof entry, 1, 0);
    peers_.tend(events_.get());
  }
  /// Goes on until so many are left, and for a while behind that.
  void expect_left(const Sockets& all, std::size_t count) {
    const Deadline patience = Deadline::after(std::chrono::seconds(60));
    while (open_ones(all) != count && !patience.passed()) go_on();
    for (int round = 0; round < 20; ++round) go_on();
    EXPECT_EQ(open_ones(all), count);
  }

  std::shared_ptr<Domain> domain_;
  Fid<fid_eq> events_;
  Fid<fid_pep> passive_;
  std::uint16_t port_ = 0;
  SilentPeers peers_{{std::chrono::hours(1), 8, 4}};
};

TEST_F(SilentPeersTest, HaveACapForEachAddressAndOneForAll) {
  const Sockets first = connect("127.0.0.2", 6);
  expect_left(first, 4);
  const Sockets second = connect("127.0.0.3", 4);
  expect_left(second, 4);
  EXPECT_EQ(open_ones(first), 4u) << "another address takes nothing while there is room";
  const Sockets third = connect("127.0.0.4", 4);
  expect_left(first, 0);
  EXPECT_EQ(open_ones(second), 4u) << "the oldest make room";
  EXPECT_EQ(open_ones(third), 4u);
}

}  // namespace
}  // namespace perdure::fabric::ofi
#endif
