// What is particular to tcp: peers that begin a handshake and stop; memory that can not be sent.
#include "fabric/ofi/ofi.h"
#include "fabric/socket_address.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
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

constexpr std::size_t kPage = 4096;
constexpr std::size_t kHalf = 128 * kPage;  // more than a socket takes at once
constexpr std::byte kWritten{0x5a};

/// Memory whose second half the kernel can not read either once it is lost, as pages of a file that
/// its medium has lost.
class LosablePages {
 public:
  LosablePages()
      : at_(static_cast<std::byte*>(::mmap(nullptr, 2 * kHalf, PROT_READ | PROT_WRITE,
                                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {}
  ~LosablePages() { ::munmap(at_, 2 * kHalf); }
  LosablePages(const LosablePages&) = delete;
  LosablePages& operator=(const LosablePages&) = delete;

  std::span<std::byte> bytes() { return {at_, 2 * kHalf}; }
  void lose() { EXPECT_EQ(::mprotect(at_ + kHalf, kHalf, PROT_NONE), 0); }

 private:
  std::byte* at_;
};

/// Bytes before the lost ones that a request names, and whether the responder sleeps meanwhile: it
/// looks at its socket on the way there.
struct Lost {
  std::size_t good_before = 0;
  bool sleeps = false;
};

/// Two ends of a connection, and memory of each.
class FailedSends : public ::testing::TestWithParam<Lost> {
 protected:
  void SetUp() override {
    auto device = open_device();
    ASSERT_TRUE(device.ok()) << device.error().message;
    device_ = std::move(*device);
    auto listener = device_->listen("", {});
    ASSERT_TRUE(listener.ok()) << listener.error().message;
    std::thread client([&] {
      auto made = device_->connect((*listener)->address(), {}, {}, soon());
      if (made.ok()) initiator_ = std::move(*made);
    });
    auto incoming = (*listener)->next(soon());
    if (incoming.ok()) {
      auto accepted = (*incoming)->accept(soon());
      if (accepted.ok()) responder_ = std::move(*accepted);
    }
    client.join();
    ASSERT_TRUE(initiator_ && responder_);
    if (responder_->cut_switch().socket < 0) GTEST_SKIP() << "libfabric does not show its sockets";
    auto here = device_->register_memory(here_.bytes(), Access::Local);
    auto there = device_->register_memory(there_.bytes(), Access::RemoteReadWrite);
    ASSERT_TRUE(here.ok() && there.ok());
    here_memory_ = std::move(*here);
    there_memory_ = std::move(*there);
  }

  WorkRequest request(Opcode opcode, std::uint64_t context, std::size_t from, std::size_t to,
                      std::size_t length) {
    WorkRequest made;
    made.opcode = opcode;
    made.context = context;
    made.segments[0] = {here_.bytes().data() + from, length, here_memory_.get()};
    made.segment_count = 1;
    made.remote = {there_memory_->key(), there_memory_->base(), there_.bytes().size()};
    made.remote_offset = to;
    return made;
  }

  /// Posts both, one by one, and lets both ends work until both are over, and the responder has
  /// taken what came; returns how.
  std::array<std::optional<ErrorCode>, 2> outcomes(const std::array<WorkRequest, 2>& both) {
    std::array<std::optional<ErrorCode>, 2> how{};
    for (const WorkRequest& each : both) {
      EXPECT_TRUE(initiator_->post(std::span(&each, 1)).ok());
    }
    std::size_t over = 0;
    const Deadline within = soon();
    bool failed = false;
    while ((over < both.size() || (failed && responder_->connected())) && !within.passed()) {
      std::array<Completion, 4> found;
      if (!GetParam().sleeps || !responder_->arm()) (void)responder_->poll(found);
      const std::size_t count = initiator_->poll(found);
      for (std::size_t i = 0; i < count; ++i) {
        how.at(found[i].context) = found[i].error;
        failed = failed || found[i].error.has_value();
      }
      over += count;
    }
    EXPECT_EQ(over, both.size()) << "an answer never came";
    return how;
  }

  LosablePages here_, there_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Memory> here_memory_, there_memory_;
  std::unique_ptr<Endpoint> initiator_, responder_;
};

INSTANTIATE_TEST_SUITE_P(Tcp, FailedSends,
                         ::testing::Values(Lost{0, false}, Lost{100, false},
                                           Lost{kHalf - kPage, false}, Lost{0, true},
                                           Lost{kHalf - kPage, true}));

// The provider says nothing of it to either end, and the next answer would be taken for this one.
TEST_P(FailedSends, AReadOfALostPageBringsNothing) {
  const std::size_t from = kHalf - GetParam().good_before;
  const std::size_t length = GetParam().good_before + kPage;
  const std::array both{request(Opcode::Read, 0, 0, from, length),
                        request(Opcode::Read, 1, kHalf, 0, length)};
  const auto before = outcomes(both);
  EXPECT_FALSE(before[0] || before[1]) << "while all pages are there";
  there_.lose();
  const auto how = outcomes(both);
  EXPECT_TRUE(how[0]) << "what came is not what was READ";
  EXPECT_TRUE(how[1]) << "it may have brought anything";
  EXPECT_FALSE(initiator_->connected() && responder_->connected());
}

// Nor may what follows a WRITE that can not be sent to its end arrive as the rest of it.
TEST_P(FailedSends, NothingTakesThePlaceOfWhatAWriteCouldNotSend) {
  const std::size_t good = GetParam().good_before;
  std::ranges::fill(here_.bytes().first(kHalf), kWritten);
  here_.lose();
  const auto how = outcomes({request(Opcode::Write, 0, kHalf - good, 0, good + kPage),
                             request(Opcode::Write, 1, 0, kHalf, kPage)});
  EXPECT_TRUE(how[0]);
  const auto rest = there_.bytes().subspan(good);
  EXPECT_TRUE(std::ranges::all_of(rest, [](std::byte each) { return each == std::byte{0}; }));
}
#endif

}  // namespace
}  // namespace perdure::fabric::ofi
