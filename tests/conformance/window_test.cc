// Windows over registered memory: each opens it to one connection, is taken away alone, and leaves
// the registration and other windows as they are.
#include "pair.h"

namespace perdure::conformance {
namespace {

using fabric::Access;
using fabric::RemoteMemory;
using fabric::WindowKind;
using fabric::WorkRequest;

class Window : public Conformance {
 protected:
  /// A connection with the window it was accepted through.
  struct Through {
    std::unique_ptr<fabric::Memory> window;
    Side server;
    Side client;

    RemoteMemory remote() const { return {window->key(), window->base(), kBytes}; }
    /// Taken away as a server does it: the connection, then the key.
    Result<void> revoke() {
      auto severed = server.endpoint->sever();
      return severed.ok() ? window->deregister() : severed;
    }
  };

  void SetUp() override {
    auto devices = GetParam().open();
    ASSERT_TRUE(devices.ok()) << devices.error().message;
    devices_ = std::move(devices).value();
    auto listener = devices_.server->listen("", {});
    ASSERT_TRUE(listener.ok()) << listener.error().message;
    listener_ = std::move(listener).value();
    local_.emplace(*devices_.client, kBytes, Access::Local);
    local_->fill(1, 0, kBytes);
    bytes_.resize(kBytes + kPage);
    const auto at = reinterpret_cast<std::uintptr_t>(bytes_.data());
    range_ = std::span(bytes_).subspan((kPage - at % kPage) % kPage, kBytes);
    auto region = devices_.server->register_memory(range_, Access::Windows);
    ASSERT_TRUE(region.ok()) << region.error().message;
    region_ = std::move(region).value();
  }

  std::unique_ptr<Through> open(Access access) {
    auto opened = std::make_unique<Through>();
    auto window = devices_.server->open_window(region_, access);
    EXPECT_TRUE(window.ok()) << window.error().message;
    if (!window.ok()) return nullptr;
    opened->window = std::move(window).value();
    auto endpoint = connect_to(*devices_.client, *listener_, opened->server, {},
                               devices_.server.get(), opened->window.get());
    EXPECT_TRUE(endpoint.ok()) << endpoint.error().message;
    if (!endpoint.ok()) return nullptr;
    opened->client.endpoint = std::move(endpoint).value();
    return opened;
  }

  /// Posts the request and a READ of the connection's own window behind it; whether both succeeded.
  bool runs(Through& through, WorkRequest request) {
    request.context = ++context_;
    WorkRequest behind = read(local_->segment(kBytes - 64, 64), through.remote(), 0, ++context_);
    for (const WorkRequest& each : {request, behind}) {
      const auto taken = through.client.endpoint->post({&each, 1});
      if (!taken.ok() || *taken != 1) return false;
    }
    const Deadline deadline = Deadline::after(kPatience);
    const std::uint64_t last = context_;
    while (through.client.find(fabric::Opcode::Read, last) == nullptr) {
      if (deadline.passed() || !through.client.endpoint->connected()) break;
      through.client.poll();
      through.server.poll();
    }
    const auto* proof = through.client.find(fabric::Opcode::Read, last);
    return proof != nullptr && !proof->error && through.client.errors() == 0;
  }
  bool writes(Through& through, std::size_t at, const RemoteMemory& remote) {
    return runs(through, write(local_->segment(at, 64), remote, at, 0));
  }
  bool writes(Through& through, std::size_t at) { return writes(through, at, through.remote()); }
  bool arrived(std::size_t at) const {
    return std::equal(range_.begin() + std::ptrdiff_t(at), range_.begin() + std::ptrdiff_t(at + 64),
                      local_->at(at));
  }

  static constexpr std::size_t kPage = 4096;
  static constexpr std::size_t kBytes = 64 * 1024;
  Devices devices_;
  std::unique_ptr<fabric::Listener> listener_;
  std::optional<Buffer> local_;
  std::vector<std::byte> bytes_;
  std::span<std::byte> range_;
  std::shared_ptr<fabric::Memory> region_;
  std::uint64_t context_ = 0;
};

TEST_P(Window, AccessThroughOneEndsWithItAndTheOthersGoOn) {
  auto first = open(Access::RemoteReadWrite);
  auto second = open(Access::RemoteReadWrite);
  ASSERT_TRUE(first && second);
  EXPECT_TRUE(writes(*first, 0));
  EXPECT_TRUE(arrived(0));
  EXPECT_TRUE(writes(*second, 64));
  EXPECT_TRUE(arrived(64));
  const RemoteMemory old = first->remote();
  const auto revoked = first->revoke();
  ASSERT_TRUE(revoked.ok()) << revoked.error().message;
  EXPECT_TRUE(first->revoke().ok());
  EXPECT_FALSE(writes(*first, 128));
  EXPECT_FALSE(arrived(128));
  // Expect: the other window, and one that is opened now, work; the old key does on neither.
  EXPECT_TRUE(writes(*second, 192));
  EXPECT_TRUE(arrived(192));
  auto third = open(Access::RemoteReadWrite);
  ASSERT_TRUE(third);
  EXPECT_TRUE(writes(*third, 256));
  EXPECT_TRUE(arrived(256));
  EXPECT_FALSE(writes(*third, 320, old));
  EXPECT_FALSE(arrived(320));
  EXPECT_TRUE(writes(*second, 384));
}

// As on an RNIC that says how large its windows may be: who asks for more registers memory anew.
TEST_P(Window, OnlyThoseOfASizeThatItBindsAreBound) {
  const fabric::Device& device = *devices_.server;
  if (device.window_kind(kPage) != WindowKind::Bound) GTEST_SKIP() << "windows are not bound here";
  const bool small_only = device.window_kind(kBytes) != WindowKind::Bound;
  EXPECT_EQ(device.window_kind(kBytes), small_only ? WindowKind::Registration : WindowKind::Bound);
  auto through = open(Access::RemoteReadWrite);
  ASSERT_TRUE(through);
  // The window of another connection opens nothing where it is bound; a registration does.
  auto other = open(Access::RemoteReadWrite);
  ASSERT_TRUE(other);
  EXPECT_EQ(writes(*other, 0, through->remote()), small_only);
  EXPECT_TRUE(writes(*through, 64));
  EXPECT_TRUE(through->revoke().ok());
  EXPECT_FALSE(writes(*through, 128));
}

TEST_P(Window, TheKeyOfTheRegistrationItselfOpensNothing) {
  auto through = open(Access::RemoteReadWrite);
  ASSERT_TRUE(through);
  EXPECT_FALSE(writes(*through, 0, {region_->key(), region_->base(), kBytes}));
  EXPECT_FALSE(arrived(0));
}

TEST_P(Window, OneThatIsForReadingTakesNoWrite) {
  auto through = open(Access::RemoteRead);
  ASSERT_TRUE(through);
  EXPECT_TRUE(runs(*through, read(local_->segment(0, 64), through->remote(), 0, 0)));
  local_->fill(1, 0, kBytes);
  EXPECT_FALSE(writes(*through, 64));
  EXPECT_FALSE(arrived(64));
}

TEST_P(Window, ABoundOneIsOfNoUseToAnotherConnection) {
  auto first = open(Access::RemoteReadWrite);
  auto second = open(Access::RemoteReadWrite);
  ASSERT_TRUE(first && second);
  const bool bound = devices_.server->window_kind(kBytes) == WindowKind::Bound;
  EXPECT_EQ(writes(*second, 0, first->remote()), !bound);
  EXPECT_EQ(arrived(0), !bound);
  EXPECT_TRUE(writes(*first, 64));
  EXPECT_TRUE(arrived(64));
}

TEST_P(Window, ABoundOneIsClosedUntilItsConnectionIsThere) {
  auto through = open(Access::RemoteReadWrite);
  ASSERT_TRUE(through);
  const bool bound = devices_.server->window_kind(kBytes) == WindowKind::Bound;
  auto unused = devices_.server->open_window(region_, Access::RemoteReadWrite);
  ASSERT_TRUE(unused.ok());
  EXPECT_EQ(writes(*through, 0, {(*unused)->key(), (*unused)->base(), kBytes}), !bound);
  EXPECT_EQ(arrived(0), !bound);
  EXPECT_TRUE((*unused)->deregister().ok());
}

PERDURE_CONFORMANCE_SUITE(Window);

}  // namespace
}  // namespace perdure::conformance
