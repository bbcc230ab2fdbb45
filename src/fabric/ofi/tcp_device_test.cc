// What is particular to tcp: peers that begin a handshake and stop.
#include "fabric/ofi/ofi.h"
#include "fabric/socket_address.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

namespace perdure::fabric::ofi {
namespace {

#ifdef PERDURE_WITH_LIBFABRIC
Deadline soon() { return Deadline::after(std::chrono::seconds(10)); }

TEST(TcpListener, HalfAHandshakeDoesNotHoldUpTheNextPeer) {
  auto device = open_device();
  ASSERT_TRUE(device.ok()) << device.error().message;
  auto listener = (*device)->listen("", {});
  ASSERT_TRUE(listener.ok()) << listener.error().message;
  const auto address =
      parse_socket_address((*listener)->address(), Deadline::after(std::chrono::seconds{10}));
  ASSERT_TRUE(address.ok());
  const int half = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(::connect(half, reinterpret_cast<const sockaddr*>(&address->storage), address->length),
            0);
  // A whole header that announces data, and no data: version, type, length, a mark of byte order.
  const unsigned char header[16] = {3, 1, 0, 64, 0, 0, 0, 0, 1};
  ASSERT_EQ(::send(half, header, sizeof header, 0), static_cast<ssize_t>(sizeof header));

  Result<std::unique_ptr<Endpoint>> connected = Error{};
  std::thread client(
      [&] { connected = (*device)->connect((*listener)->address(), {}, {}, soon()); });
  auto incoming = (*listener)->next(soon());
  ASSERT_TRUE(incoming.ok()) << incoming.error().message;
  EXPECT_TRUE((*incoming)->accept(soon()).ok());
  client.join();
  EXPECT_TRUE(connected.ok());
  ::close(half);
}

TEST(TcpDevice, SecondDeviceHasKeysOfItsOwn) {
  auto first = open_device();
  auto second = open_device();
  ASSERT_TRUE(first.ok() && second.ok());
  std::vector<std::byte> bytes(4096);
  const auto one = (*first)->register_memory(bytes, Access::RemoteReadWrite);
  const auto two = (*second)->register_memory(bytes, Access::RemoteReadWrite);
  const auto local = (*first)->register_memory(bytes, Access::Local);
  ASSERT_TRUE(one.ok() && two.ok() && local.ok());
  EXPECT_NE((*one)->key(), (*two)->key());
  EXPECT_EQ((*local)->key(), 0u);  // not reachable at all
  EXPECT_FALSE((*first)->register_memory({}, Access::Local).ok());
}
#endif

}  // namespace
}  // namespace perdure::fabric::ofi
