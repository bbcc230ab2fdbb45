#include "fabric/emu/live_socket.h"

#include "core/random.h"
#include "core/try.h"
#include "fabric/emu/live_connection.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

namespace perdure::fabric::emu {

namespace {

constexpr int kBacklog = 64;
constexpr Nanoseconds kWaitSlice = std::chrono::milliseconds{100};
constexpr Nanoseconds kRetryPause = std::chrono::milliseconds{1};

struct SocketName {
  sockaddr_un name{};
  socklen_t length = 0;
};

Result<SocketName> parse(const std::string& address) {
  SocketName result;
  const bool abstract_name = address.size() > 1 && address[0] == '@';
  const bool path = address.size() > 1 && address[0] == '/';
  if ((!abstract_name && !path) || address.size() >= sizeof result.name.sun_path) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("{}: an emulated device's address is @name or /path, at most {} "
                             "characters long",
                             address, sizeof result.name.sun_path - 1)};
  }
  result.name.sun_family = AF_UNIX;
  std::memcpy(result.name.sun_path, address.data(), address.size());
  if (abstract_name) result.name.sun_path[0] = '\0';
  const std::size_t length = offsetof(sockaddr_un, sun_path) + address.size() + (path ? 1 : 0);
  result.length = static_cast<socklen_t>(length);
  return result;
}

Error system_error(const std::string& address, const char* doing) {
  const ErrorCode code = errno == EADDRINUSE ? ErrorCode::Busy : ErrorCode::SystemError;
  return {code, fmt::format("{}: {}: {}", address, doing, std::generic_category().message(errno))};
}

int stream_socket() { return ::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); }

/// Waits until the descriptor is readable, or for a slice of the time that is left.
void wait_readable(int fd, Nanoseconds left) {
  const Nanoseconds slice = std::min(left, kWaitSlice);
  const timespec timeout{0, static_cast<long>(slice.count())};
  pollfd waited{fd, POLLIN, 0};
  (void)::ppoll(&waited, fd < 0 ? 0 : 1, &timeout, nullptr);
}

}  // namespace

Result<BoundSocket> listen_at(const std::string& wanted) {
  const std::string address =
      wanted.empty() ? fmt::format("@perdure-emu-{:016x}", random_secret()) : wanted;
  PERDURE_TRY(name, parse(address));
  OwnedFd fd(stream_socket());
  if (fd.value() < 0) return system_error(address, "no socket");
  if (::bind(fd.value(), reinterpret_cast<const sockaddr*>(&name.name), name.length) != 0) {
    return system_error(address, "can not be listened on");
  }
  if (::listen(fd.value(), kBacklog) != 0) return system_error(address, "can not be listened on");
  return BoundSocket{fd.release(), address};
}

void remove_socket_file(const std::string& address) {
  if (!address.empty() && address[0] == '/') ::unlink(address.c_str());
}

Error refused(const std::string& address) {
  return {ErrorCode::Disconnected, fmt::format("{} refused the connection", address)};
}

Result<int> connect_to(const std::string& address, Deadline deadline) {
  PERDURE_TRY(name, parse(address));
  while (true) {
    OwnedFd fd(stream_socket());
    if (fd.value() < 0) return system_error(address, "no socket");
    if (::connect(fd.value(), reinterpret_cast<const sockaddr*>(&name.name), name.length) == 0) {
      return fd.release();
    }
    // EAGAIN: the listener's backlog is full.
    if (errno != EAGAIN && errno != EINTR) {
      return Error{ErrorCode::Disconnected, fmt::format("{} can not be reached: {}", address,
                                                        std::generic_category().message(errno))};
    }
    if (deadline.passed()) break;
    wait_readable(-1, std::min(deadline.left(), kRetryPause));
  }
  return Error{ErrorCode::TimedOut, fmt::format("{} did not answer in time", address)};
}

Result<FrameHeader> await_frame(int fd, const std::string& address, Deadline deadline) {
  FrameReader reader(fd);
  while (true) {
    const auto ready = reader.ready();
    if (!ready.ok()) return refused(address);
    if (*ready) return reader.take().header;
    if (deadline.passed()) break;
    wait_readable(fd, deadline.left());
  }
  return Error{ErrorCode::TimedOut, fmt::format("{} did not answer in time", address)};
}

}  // namespace perdure::fabric::emu
