// Frames over a descriptor: see channel.h.
#include "rpmem/channel.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "core/errno_error.h"
#include "core/try.h"

namespace perdure::rpmem {
namespace {

Error gone() { return {ErrorCode::Disconnected, "the other side has ended"}; }

int milliseconds_left(const std::optional<Deadline>& deadline) {
  if (!deadline) return -1;
  constexpr std::int64_t kLongest = 60'000;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline->left()).count();
  return static_cast<int>(std::min<std::int64_t>(left, kLongest));
}

/// Until the descriptor can be used. Errors: TimedOut.
Result<void> await(int descriptor, short events, const std::optional<Deadline>& deadline) {
  pollfd wanted{descriptor, events, 0};
  for (;;) {
    const int ready = ::poll(&wanted, 1, milliseconds_left(deadline));
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) return errno_error("poll", errno);
    if (deadline && deadline->passed()) {
      return Error{ErrorCode::TimedOut, "the other side does not answer"};
    }
  }
}

/// Never raises SIGPIPE where the descriptor is a socket, as the library's is.
ssize_t write_some(int descriptor, const char* from, std::size_t bytes) {
  const ssize_t sent = ::send(descriptor, from, bytes, MSG_NOSIGNAL);
  if (sent >= 0 || errno != ENOTSOCK) return sent;
  return ::write(descriptor, from, bytes);
}

}  // namespace

Result<void> Channel::send(const Frame& frame, const Deadline& deadline) {
  const std::string bytes = encode_frame(frame);
  for (std::size_t sent = 0; sent < bytes.size();) {
    PERDURE_TRY_VOID(await(out_, POLLOUT, deadline));
    const ssize_t wrote = write_some(out_, bytes.data() + sent, bytes.size() - sent);
    if (wrote < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (wrote < 0 && (errno == EPIPE || errno == ECONNRESET)) return gone();
    if (wrote < 0) return errno_error("write", errno);
    sent += static_cast<std::size_t>(wrote);
  }
  return {};
}

Result<Frame> Channel::receive(const std::optional<Deadline>& deadline) {
  std::string header(kFrameHeaderBytes, '\0');
  PERDURE_TRY_VOID(fill(header.data(), header.size(), deadline));
  PERDURE_TRY(decoded, decode_frame_header(header));
  Frame frame{decoded.kind, std::string(decoded.body_bytes, '\0')};
  PERDURE_TRY_VOID(fill(frame.body.data(), frame.body.size(), deadline));
  return frame;
}

Result<void> Channel::fill(char* to, std::size_t bytes, const std::optional<Deadline>& deadline) {
  while (bytes != 0) {
    PERDURE_TRY_VOID(await(in_, POLLIN, deadline));
    const ssize_t got = ::read(in_, to, bytes);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got == 0 || (got < 0 && errno == ECONNRESET)) return gone();
    if (got < 0) return errno_error("read", errno);
    to += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return {};
}

}  // namespace perdure::rpmem
