// One HTTP/1.1 request under one deadline: see http_client.h.
#include "control/http_client.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>
#include <system_error>

#include "core/stoppable_clock.h"
#include "core/try.h"
#include "fabric/resolve.h"

namespace perdure::control {
namespace {

Error nonsense(std::string_view what) {
  return {
      ErrorCode::ProtocolError,
      fmt::format("the answer is not HTTP as perdured speaks it: {}; is that a perdured?", what)};
}

/// A connected socket, with every wait bounded by the deadline.
class Connection {
 public:
  Connection(const HostPort& to, Deadline deadline) : to_(to), deadline_(deadline) {}
  ~Connection() { close(); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  Result<void> open();
  Result<void> send(std::string_view text);
  /// Appends what has arrived; false at the end of the stream.
  Result<bool> receive(std::string& text);

 private:
  Result<void> try_address(const fabric::SocketAddress& address);
  Result<void> wait(short events);
  Error lost(int reason) const {
    return {ErrorCode::Disconnected, fmt::format("peer {} can not be reached: {}", to_string(to_),
                                                 std::generic_category().message(reason))};
  }
  void close() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }

  const HostPort to_;
  const Deadline deadline_;
  int socket_ = -1;
};

Result<void> Connection::open() {
  const auto found = fabric::resolve(to_.host, to_.port, deadline_);
  if (!found) {
    const bool late = found.code() == ErrorCode::TimedOut;
    return Error{late ? ErrorCode::TimedOut : ErrorCode::Disconnected,
                 fmt::format("peer {}: {}", to_string(to_), found.error().message)};
  }
  Result<void> outcome = lost(ENOENT);
  for (const fabric::SocketAddress& each : *found) {
    outcome = try_address(each);
    if (outcome.ok() || outcome.code() == ErrorCode::TimedOut) break;
  }
  return outcome;
}

Result<void> Connection::try_address(const fabric::SocketAddress& address) {
  close();
  socket_ = ::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (socket_ < 0) return lost(errno);
  const int yes = 1;
  (void)::setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  const auto* generic = reinterpret_cast<const sockaddr*>(&address.storage);
  if (::connect(socket_, generic, address.length) == 0) return {};
  if (errno != EINPROGRESS) return lost(errno);
  PERDURE_TRY_VOID(wait(POLLOUT));
  int reason = 0;
  socklen_t size = sizeof reason;
  (void)::getsockopt(socket_, SOL_SOCKET, SO_ERROR, &reason, &size);
  if (reason != 0) return lost(reason);
  return {};
}

/// Until the socket is ready or in error; the next call on it tells which.
Result<void> Connection::wait(short events) {
  while (!deadline_.passed()) {
    static_assert(kDeadlineLookEvery < std::chrono::seconds(1));
    const timespec timeout{0, std::min(deadline_.left(), kDeadlineLookEvery).count()};
    pollfd waited{socket_, events, 0};
    if (::ppoll(&waited, 1, &timeout, nullptr) > 0) return {};
  }
  return Error{ErrorCode::TimedOut,
               fmt::format("peer {} did not answer in time; try again, or see whether its machine "
                           "is overloaded",
                           to_string(to_))};
}

Result<void> Connection::send(std::string_view text) {
  while (!text.empty()) {
    const ssize_t sent = ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      text.remove_prefix(static_cast<std::size_t>(sent));
    } else if (errno != EAGAIN && errno != EINTR) {
      return lost(errno);
    } else {
      PERDURE_TRY_VOID(wait(POLLOUT));
    }
  }
  return {};
}

Result<bool> Connection::receive(std::string& text) {
  std::array<char, 16 * 1024> chunk;
  for (;;) {
    PERDURE_TRY_VOID(wait(POLLIN));
    const ssize_t got = ::recv(socket_, chunk.data(), chunk.size(), 0);
    if (got > 0) text.append(chunk.data(), static_cast<std::size_t>(got));
    if (got >= 0) return got > 0;
    if (errno != EAGAIN && errno != EINTR) return lost(errno);
  }
}

/// The start of an answer, as far as it has arrived.
struct Head {
  int status = 0;
  std::size_t body_at = 0;
  std::optional<std::uint64_t> body_bytes;  // not given: to the end of the stream
};

bool same_word(std::string_view one, std::string_view two) {
  return one.size() == two.size() && ::strncasecmp(one.data(), two.data(), one.size()) == 0;
}

Result<void> read_header(std::string_view line, Head& head) {
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos || colon == 0) return nonsense("a header without a colon");
  const std::string_view name = line.substr(0, colon);
  std::string_view value = line.substr(colon + 1);
  while (!value.empty() && value.front() == ' ') value.remove_prefix(1);
  if (same_word(name, "Transfer-Encoding")) return nonsense("an encoded body");
  if (!same_word(name, "Content-Length")) return {};
  std::uint64_t bytes = 0;
  const char* const end = value.data() + value.size();
  const auto [stopped, error] = std::from_chars(value.data(), end, bytes);
  if (error != std::errc{} || stopped != end || head.body_bytes) return nonsense("Content-Length");
  head.body_bytes = bytes;
  return {};
}

/// Nothing while the head is not complete. Errors: ProtocolError.
Result<std::optional<Head>> read_head(std::string_view text) {
  constexpr std::string_view version = "HTTP/1.1 ";
  const std::size_t known = std::min(text.size(), version.size());
  if (text.substr(0, known) != version.substr(0, known)) return nonsense("no HTTP/1.1");
  const std::size_t end = text.find("\r\n\r\n");
  if (std::min(end, text.size()) > kAnswerHeaderBytesMax) return nonsense("too many headers");
  if (end == std::string_view::npos) return std::optional<Head>{};
  Head head;
  head.body_at = end + 4;
  const std::string_view digits = text.substr(version.size(), 3);
  const auto [stopped, error] = std::from_chars(digits.data(), digits.data() + 3, head.status);
  if (error != std::errc{} || stopped != digits.data() + 3 || head.status < 100) {
    return nonsense("no status");
  }
  std::size_t at = text.find("\r\n") + 2;
  while (at < end) {
    const std::size_t line_end = text.find("\r\n", at);
    PERDURE_TRY_VOID(read_header(text.substr(at, line_end - at), head));
    at = line_end + 2;
  }
  return std::optional<Head>{head};
}

}  // namespace

Result<HttpAnswer> parse_http_answer(std::string_view text) {
  PERDURE_TRY(head, read_head(text));
  if (!head) return nonsense("it ends within the headers");
  const std::string_view body = text.substr(head->body_at);
  const std::uint64_t bytes = head->body_bytes.value_or(body.size());
  if (body.size() < bytes) return nonsense("it ends within the body");
  return HttpAnswer{head->status, std::string(body.substr(0, bytes))};
}

Result<HttpAnswer> http_call(const HostPort& to, const HttpRequest& request,
                             std::size_t body_bytes_max, Deadline deadline, bool* sent) {
  Connection connection(to, deadline);
  if (sent != nullptr) *sent = false;
  PERDURE_TRY_VOID(connection.open());
  if (sent != nullptr) *sent = true;
  PERDURE_TRY_VOID(connection.send(
      fmt::format("{} {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n"
                  "Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{}",
                  request.method, request.path, to_string(to), request.body.size(), request.body)));
  std::string text;
  std::optional<Head> head;
  for (;;) {
    PERDURE_TRY(more, connection.receive(text));
    if (!head) {
      PERDURE_TRY(found, read_head(text));
      head = found;
    }
    const std::size_t body = head ? text.size() - head->body_at : 0;
    if (body > body_bytes_max || (head && head->body_bytes.value_or(0) > body_bytes_max)) {
      return nonsense("it is too large");
    }
    if (head && head->body_bytes && body >= *head->body_bytes) break;
    if (!more) break;
  }
  if (text.empty()) {
    return Error{ErrorCode::Disconnected,
                 fmt::format("peer {} went away without an answer", to_string(to))};
  }
  return parse_http_answer(text);
}

}  // namespace perdure::control
