// See handshake.h.
#include "fabric/shm/handshake.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/random.h"
#include "core/stoppable_clock.h"
#include "core/try.h"

#include <cerrno>
#include <cstddef>
#include <system_error>
#include <vector>

namespace perdure::fabric::shm {
namespace {

constexpr std::uint64_t kHelloMagic = 0x6f6c6c65682d6d73;  // "sm-hello"

struct Name {
  sockaddr_un address{};
  socklen_t length = 0;
};

Result<Name> name_of(const std::string& address) {
  Name name;
  name.address.sun_family = AF_UNIX;
  if (address.size() < 2 || address.size() >= sizeof name.address.sun_path) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("address '{}': write @name or a path of at most {} bytes", address,
                             sizeof name.address.sun_path - 1)};
  }
  std::memcpy(name.address.sun_path, address.data(), address.size());
  if (address[0] == '@') name.address.sun_path[0] = '\0';  // abstract: not a file
  // An abstract name ends with the length; a path takes its zero along.
  const std::size_t path_bytes = address.size() + (address[0] == '@' ? 0 : 1);
  name.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path_bytes);
  return name;
}

const sockaddr* generic(const Name& name) {
  return reinterpret_cast<const sockaddr*>(&name.address);
}

Error failed(ErrorCode code, const std::string& what) {
  return Error{code, fmt::format("{}: {}", what, std::generic_category().message(errno))};
}

Result<Descriptor> open_socket() {
  Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (socket.number() < 0) return failed(ErrorCode::SystemError, "socket");
  return socket;
}

/// Waits until the socket is readable, has ended, or the deadline passes.
bool wait_readable(const Descriptor& socket, Deadline deadline) {
  do {
    const Nanoseconds slice = std::min(deadline.left(), kDeadlineLookEvery);
    const auto slice_ms = std::chrono::ceil<std::chrono::milliseconds>(slice).count();
    pollfd watched{socket.number(), POLLIN, 0};
    const int ready = ::poll(&watched, 1, static_cast<int>(slice_ms));
    if (ready > 0) return true;
  } while (!deadline.passed());
  return false;
}

/// Whether the file at a path is a socket that nobody listens at.
bool is_stale(const Name& name) {
  auto probe = open_socket();
  if (!probe.ok()) return false;
  return ::connect(probe->number(), generic(name), name.length) != 0 && errno == ECONNREFUSED;
}

}  // namespace

Result<Descriptor> listen_at(std::string& address) {
  if (address.empty()) {
    address = fmt::format("@perdure-{:016x}{:016x}", random_secret(), random_secret());
  }
  PERDURE_TRY(name, name_of(address));
  PERDURE_TRY(socket, open_socket());
  int returned = ::bind(socket.number(), generic(name), name.length);
  if (returned != 0 && errno == EADDRINUSE && address[0] != '@' && is_stale(name)) {
    ::unlink(address.c_str());
    returned = ::bind(socket.number(), generic(name), name.length);
  }
  if (returned != 0) {
    return failed(errno == EADDRINUSE ? ErrorCode::AlreadyExists : ErrorCode::SystemError,
                  "listen at " + address);
  }
  if (::listen(socket.number(), SOMAXCONN) != 0) {
    return failed(ErrorCode::SystemError, "listen at " + address);
  }
  return socket;
}

/// The descriptor that came with a packet. None if more than one came: whatever came is closed.
static Descriptor only_attached(msghdr& message) {
  std::vector<Descriptor> attached;
  for (cmsghdr* each = CMSG_FIRSTHDR(&message); each != nullptr;
       each = CMSG_NXTHDR(&message, each)) {
    if (each->cmsg_level != SOL_SOCKET || each->cmsg_type != SCM_RIGHTS) continue;
    for (std::size_t at = CMSG_LEN(0); at + sizeof(int) <= each->cmsg_len; at += sizeof(int)) {
      int number = -1;
      std::memcpy(&number, reinterpret_cast<const char*>(each) + at, sizeof number);
      attached.emplace_back(number);
    }
  }
  return attached.size() == 1 ? std::move(attached[0]) : Descriptor();
}

/// Requires that something can be read. Errors: ProtocolError.
static Result<Asking> read_hello(Descriptor socket) {
  Asking asking;
  asking.socket = std::move(socket);
  iovec packet{&asking.hello, sizeof asking.hello};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &packet;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t received =
      ::recvmsg(asking.socket.number(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  asking.memory = only_attached(message);
  if (received != static_cast<ssize_t>(sizeof asking.hello) || asking.memory.number() < 0 ||
      asking.hello.magic != kHelloMagic || asking.hello.private_length > kPrivateBytesMax) {
    return Error{ErrorCode::ProtocolError, "a peer asked to connect in an unknown way"};
  }
  return asking;
}

Result<void> Askers::take_those_that_wait(const Descriptor& listener) {
  constexpr std::size_t kBurst = 16;
  for (std::size_t i = 0; i < kBurst; ++i) {
    Descriptor socket(::accept4(listener.number(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.number() < 0) {
      if (errno == EAGAIN || errno == ECONNABORTED || errno == EINTR) return {};
      return failed(ErrorCode::SystemError, "accept");
    }
    if (silent_.size() >= kSilentMax) silent_.erase(silent_.begin());
    silent_.push_back({std::move(socket), Deadline::after(kHelloWithin)});
  }
  return {};
}

Result<Asking> Askers::next(const Descriptor& listener, Deadline deadline) {
  constexpr std::int64_t kSliceMs = 50;
  std::array<pollfd, kSilentMax + 1> watched{};
  do {
    std::erase_if(silent_, [](const Silent& each) { return each.until.passed(); });
    for (std::size_t i = 0; i < silent_.size(); ++i) {
      watched[i] = {silent_[i].socket.number(), POLLIN, 0};
    }
    const std::size_t of_listener = silent_.size();
    watched[of_listener] = {listener.number(), POLLIN, 0};
    const auto left_ms = std::chrono::ceil<std::chrono::milliseconds>(deadline.left()).count();
    if (::poll(watched.data(), of_listener + 1,
               static_cast<int>(std::min<std::int64_t>(left_ms, kSliceMs))) <= 0) {
      continue;
    }
    for (std::size_t i = 0; i < of_listener; ++i) {
      if (watched[i].revents == 0) continue;
      Descriptor socket = std::move(silent_[i].socket);
      silent_.erase(silent_.begin() + static_cast<std::ptrdiff_t>(i));
      auto asking = read_hello(std::move(socket));
      if (asking.ok()) return asking;
      break;  // the places have moved: look again
    }
    if (watched[of_listener].revents == 0) continue;
    PERDURE_TRY_VOID(take_those_that_wait(listener));
  } while (!deadline.passed());
  return Error{ErrorCode::TimedOut, "no peer asked to connect in time"};
}

Result<Descriptor> ask(const std::string& address, std::span<const std::byte> private_data,
                       const Descriptor& memory, Deadline deadline) {
  PERDURE_TRY(name, name_of(address));
  PERDURE_TRY(socket, open_socket());
  if (::connect(socket.number(), generic(name), name.length) != 0) {
    return failed(ErrorCode::Disconnected, "connect to " + address);
  }

  Hello hello;
  hello.magic = kHelloMagic;
  hello.private_length = static_cast<std::uint32_t>(private_data.size());
  std::copy(private_data.begin(), private_data.end(), hello.private_data.begin());
  iovec packet{&hello, sizeof hello};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &packet;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* attached = CMSG_FIRSTHDR(&message);
  attached->cmsg_level = SOL_SOCKET;
  attached->cmsg_type = SCM_RIGHTS;
  attached->cmsg_len = CMSG_LEN(sizeof(int));
  const int number = memory.number();
  std::memcpy(CMSG_DATA(attached), &number, sizeof number);
  if (::sendmsg(socket.number(), &message, MSG_NOSIGNAL) < 0) {
    return failed(ErrorCode::Disconnected, "connect to " + address);
  }

  if (!wait_readable(socket, deadline)) {
    return Error{ErrorCode::TimedOut, address + " did not accept in time"};
  }
  char answer = 0;
  if (::recv(socket.number(), &answer, 1, MSG_DONTWAIT) != 1) {
    return Error{ErrorCode::Disconnected, address + " did not accept"};
  }
  return socket;
}

bool accept_asking(const Descriptor& socket) {
  const char answer = 1;
  return ::send(socket.number(), &answer, 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1;
}

void ring(const Descriptor& socket) {
  // A full socket is readable already; an ended one is noticed by whoever reads it.
  const char byte = 1;
  (void)::send(socket.number(), &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

bool drain_rings(const Descriptor& socket) {
  constexpr int kRingsMax = 1024;  // more than a socket holds are of no interest
  for (int i = 0; i < kRingsMax; ++i) {
    std::array<char, 8> bytes;
    const ssize_t received = ::recv(socket.number(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (received == 0) return false;
    if (received < 0) return errno == EAGAIN || errno == EINTR;
  }
  return true;
}

}  // namespace perdure::fabric::shm
