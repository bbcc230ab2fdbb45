// Meeting: names, stale socket files, and peers that say nothing or nonsense.
#include "fabric/shm/handshake.h"

#include "fabric/shm/shm.h"
#include "testing/temporary_directory.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <thread>

namespace perdure::fabric::shm {
namespace {

Deadline soon() { return Deadline::after(std::chrono::seconds(10)); }

class SocketFile : public ::testing::Test {
 protected:
  std::string path() const { return directory_.file("socket"); }
  const test::TestDirectory directory_;
};

TEST_F(SocketFile, FileOfAKilledListenerIsReplacedAndOneInUseIsNot) {
  std::string address = path();
  {
    auto killed = listen_at(address);  // a process that is killed leaves its file behind
    ASSERT_TRUE(killed.ok()) << killed.error().message;
  }
  ASSERT_TRUE(std::filesystem::exists(path()));
  auto device = open_device();
  auto listener = (*device)->listen(path(), {});
  ASSERT_TRUE(listener.ok()) << listener.error().message;
  const auto second = (*device)->listen(path(), {});
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.code(), ErrorCode::AlreadyExists);

  Result<std::unique_ptr<Endpoint>> connected = Error{};
  std::thread client([&] { connected = (*device)->connect(path(), {}, {}, soon()); });
  auto incoming = (*listener)->next(soon());
  ASSERT_TRUE(incoming.ok());
  EXPECT_TRUE((*incoming)->accept(soon()).ok());
  client.join();
  EXPECT_TRUE(connected.ok());
  listener->reset();
  EXPECT_FALSE(std::filesystem::exists(path()));
}

/// Connected to an abstract name, and silent.
Descriptor socket_to(const std::string& address) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::memcpy(name.sun_path, address.data(), address.size());
  name.sun_path[0] = '\0';
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address.size());
  Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::connect(socket.number(), reinterpret_cast<const sockaddr*>(&name), length), 0);
  return socket;
}

/// A byte, and `count` descriptors of standard input with it.
void send_descriptors(const Descriptor& socket, std::size_t count) {
  char byte = 'x';
  iovec packet{&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(16 * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &packet;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = CMSG_SPACE(count * sizeof(int));
  cmsghdr* const attached = CMSG_FIRSTHDR(&message);
  attached->cmsg_level = SOL_SOCKET;
  attached->cmsg_type = SCM_RIGHTS;
  attached->cmsg_len = CMSG_LEN(count * sizeof(int));  // zeros: descriptor 0
  EXPECT_EQ(::sendmsg(socket.number(), &message, MSG_NOSIGNAL), 1);
}

std::size_t open_descriptors() {
  using std::filesystem::directory_iterator;
  return static_cast<std::size_t>(
      std::distance(directory_iterator("/proc/self/fd"), directory_iterator()));
}

TEST(Listener, DescriptorsThatNobodyAskedForAreClosed) {
  auto device = open_device();
  auto listener = (*device)->listen("", {});
  ASSERT_TRUE(listener.ok());
  for (const std::size_t count : {1, 2, 3, 16}) {
    const std::size_t before = open_descriptors();
    {
      const Descriptor confused = socket_to((*listener)->address());
      send_descriptors(confused, count);
      const auto nobody = (*listener)->next(Deadline::after(std::chrono::milliseconds(20)));
      EXPECT_FALSE(nobody.ok());
    }
    // The listener may not have had the time to see that the asker is gone.
    const Deadline patience = Deadline::after(std::chrono::seconds(30));
    while (open_descriptors() != before && !patience.passed()) {
      (void)(*listener)->next(Deadline::after(std::chrono::milliseconds(20)));
    }
    EXPECT_EQ(open_descriptors(), before) << count;
  }
}

TEST(Listener, SilentAndConfusedPeersDoNotHoldUpTheNextOne) {
  auto device = open_device();
  auto listener = (*device)->listen("", {});
  ASSERT_TRUE(listener.ok());
  const std::string address = (*listener)->address();
  std::vector<Descriptor> silent;  // more than are kept
  for (std::size_t i = 0; i < 2 * Askers::kSilentMax; ++i) silent.push_back(socket_to(address));
  const Descriptor confused = socket_to(address);
  EXPECT_EQ(::send(confused.number(), "hello", 5, 0), 5);

  Result<std::unique_ptr<Endpoint>> connected = Error{};
  std::thread client([&] { connected = (*device)->connect(address, {}, {}, soon()); });
  auto incoming = (*listener)->next(soon());
  ASSERT_TRUE(incoming.ok()) << incoming.error().message;
  EXPECT_TRUE((*incoming)->accept(soon()).ok());
  client.join();
  EXPECT_TRUE(connected.ok());
}

TEST(Listener, NamesThatCanNotBeAreRefused) {
  auto device = open_device();
  EXPECT_EQ((*device)->listen("@", {}).code(), ErrorCode::InvalidArgument);
  EXPECT_EQ((*device)->listen(std::string(200, 'x'), {}).code(), ErrorCode::InvalidArgument);
  EXPECT_EQ((*device)->connect("@perdure-nobody-is-here", {}, {}, soon()).code(),
            ErrorCode::Disconnected);
}

}  // namespace
}  // namespace perdure::fabric::shm
