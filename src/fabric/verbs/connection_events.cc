// See connection_events.h.
#ifdef PERDURE_WITH_VERBS
#include "fabric/verbs/connection_events.h"

#include <fcntl.h>
#include <poll.h>

#include "core/bytes.h"
#include "core/try.h"

#include <algorithm>

namespace perdure::fabric::verbs {
namespace {
constexpr std::uint8_t kMagic = 0x56;
constexpr std::uint8_t kVersion = 1;
constexpr std::uint8_t kCanFlush = 1;
constexpr std::uint8_t kCanWriteAtomically = 2;
constexpr std::uint8_t kCanFlushPersistently = 4;
constexpr unsigned kImmediatesShift = 3;
constexpr unsigned kImmediatesMask = 15;
constexpr unsigned kSolicits = 128;
constexpr unsigned kBindsWindow = 128;  // of the length
static_assert(kPrivateBytesMax < kBindsWindow);
constexpr Nanoseconds kSlice = std::chrono::milliseconds(50);
}  // namespace

Result<Owned<rdma_event_channel>> open_channel() {
  Owned<rdma_event_channel> channel(::rdma_create_event_channel());
  if (!channel) return errno_error(ErrorCode::SystemError, "rdma_create_event_channel");
  const int flags = ::fcntl(channel->fd, F_GETFL);
  if (::fcntl(channel->fd, F_SETFL, flags | O_NONBLOCK) != 0) {
    return errno_error(ErrorCode::SystemError, "rdma event channel");
  }
  return channel;
}

Result<Owned<rdma_cm_event>> next_event(rdma_event_channel& channel, Deadline deadline) {
  for (;;) {
    rdma_cm_event* event = nullptr;
    if (::rdma_get_cm_event(&channel, &event) == 0) return Owned<rdma_cm_event>(event);
    if (errno != EAGAIN && errno != EINTR) {
      return errno_error(ErrorCode::SystemError, "rdma_get_cm_event");
    }
    if (deadline.passed()) return Error{ErrorCode::TimedOut, "nothing happened in time"};
    const auto left = std::min<Nanoseconds>(deadline.left(), kSlice);
    pollfd watched{channel.fd, POLLIN, 0};
    (void)::poll(&watched, 1,
                 static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(left).count()));
  }
}

Result<Owned<rdma_cm_event>> expect_event(rdma_event_channel& channel, rdma_cm_event_type expected,
                                          const std::string& peer, Deadline deadline) {
  auto event = next_event(channel, deadline);
  if (!event.ok()) {
    if (event.code() != ErrorCode::TimedOut) return event.error();
    return Error{ErrorCode::TimedOut, fmt::format("{} did not answer in time (waiting for {})",
                                                  peer, ::rdma_event_str(expected))};
  }
  if ((*event)->event != expected) {
    return Error{ErrorCode::Disconnected,
                 fmt::format("{}: {} (status {})", peer, ::rdma_event_str((*event)->event),
                             (*event)->status)};
  }
  return event;
}

PrivateData encode(const Hello& hello, std::span<const std::byte> own) {
  PrivateData data;
  std::byte* at = data.bytes.data();
  const unsigned can = (hello.capabilities.native_flush ? kCanFlush : 0U) |
                       (hello.capabilities.atomic_write ? kCanWriteAtomically : 0U) |
                       (hello.capabilities.persistent_flush ? kCanFlushPersistently : 0U) |
                       (hello.solicits ? kSolicits : 0U) |
                       hello.immediates_log2 << kImmediatesShift;
  store<std::uint8_t>(at, kMagic);
  store<std::uint8_t>(at + 1, kVersion);
  store<std::uint8_t>(at + 2, static_cast<std::uint8_t>(can));
  store<std::uint8_t>(
      at + 3, static_cast<std::uint8_t>(own.size() | (hello.binds_window ? kBindsWindow : 0U)));
  store<std::uint32_t>(at + 4, hello.credit_key);
  store<std::uint64_t>(at + 8, hello.credit_address);
  std::copy(own.begin(), own.end(), data.bytes.begin() + kConnectHeaderBytes);
  data.length = static_cast<std::uint8_t>(kConnectHeaderBytes + own.size());
  return data;
}

std::optional<ReceivedHello> decode_hello(std::span<const std::byte> data) {
  if (data.size() < kConnectHeaderBytes) return std::nullopt;
  const std::byte* at = data.data();
  if (load<std::uint8_t>(at) != kMagic || load<std::uint8_t>(at + 1) != kVersion) {
    return std::nullopt;
  }
  const auto can = load<std::uint8_t>(at + 2);
  const std::size_t own = load<std::uint8_t>(at + 3) & (kBindsWindow - 1);
  if (own > data.size() - kConnectHeaderBytes) return std::nullopt;
  ReceivedHello received;
  received.hello.capabilities.native_flush = (can & kCanFlush) != 0;
  received.hello.capabilities.atomic_write = (can & kCanWriteAtomically) != 0;
  received.hello.capabilities.persistent_flush = (can & kCanFlushPersistently) != 0;
  received.hello.solicits = (can & kSolicits) != 0;
  received.hello.binds_window = (load<std::uint8_t>(at + 3) & kBindsWindow) != 0;
  received.hello.immediates_log2 =
      (static_cast<unsigned>(can) >> kImmediatesShift) & kImmediatesMask;
  received.hello.credit_key = load<std::uint32_t>(at + 4);
  received.hello.credit_address = load<std::uint64_t>(at + 8);
  received.own = data.subspan(kConnectHeaderBytes, own);
  return received;
}

}  // namespace perdure::fabric::verbs
#endif
