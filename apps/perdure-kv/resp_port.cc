// The port for clients of Redis: see resp_port.h. One thread: it takes what has come on all
// connections, has it executed, sends the replies, and sleeps until there is more.
#include "resp_port.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "control/host_port.h"
#include "core/errno_error.h"
#include "core/log_message.h"
#include "core/try.h"
#include "resp/reply.h"
#include "resp/request_parser.h"

namespace perdure::kv_app {
namespace {

constexpr int kBacklog = 511;
constexpr int kEventsMax = 256;
constexpr int kTickMs = 500;  // between two looks at who is silent
constexpr std::size_t kReceiveBytes = 64 * 1024;
// Of one connection in one round: who sends without an end must not keep the others waiting.
constexpr int kReceivesMax = 16;
// Of one connection: whole requests that wait. More is not read before some are executed.
constexpr std::size_t kRequestsMax = 256;
constexpr std::size_t kRequestBytesMax = 2 * 1024 * 1024;
// How long a connection that has been told of its end may take to read that; and how long all may
// when the port closes.
constexpr Nanoseconds kLinger = std::chrono::seconds(1);
// And how long one that reads nothing may hold up all others.
constexpr Nanoseconds kPatience = std::chrono::seconds(1);

struct AddressList {
  explicit AddressList(addrinfo* found) : list(found) {}
  ~AddressList() { ::freeaddrinfo(list); }
  AddressList(const AddressList&) = delete;
  AddressList& operator=(const AddressList&) = delete;
  addrinfo* const list;
};

Result<std::uint16_t> port_of(int socket) {
  sockaddr_storage at{};
  socklen_t bytes = sizeof at;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&at), &bytes) != 0) {
    return errno_error("the address of the port for Redis's clients", errno);
  }
  if (at.ss_family == AF_INET6) return ntohs(reinterpret_cast<sockaddr_in6*>(&at)->sin6_port);
  return ntohs(reinterpret_cast<sockaddr_in*>(&at)->sin_port);
}

}  // namespace

struct RespPort::Connection {
  explicit Connection(int accepted) : socket(accepted) {}
  ~Connection() { ::close(socket); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  bool full() const {
    return session.requests.size() >= kRequestsMax || session.request_bytes >= kRequestBytesMax;
  }

  const int socket;
  resp::RequestParser parser;
  RespSession session;
  std::string unread;         // came with requests for which there was no room
  std::string final_error;    // of an error in the protocol, behind the replies before it
  std::uint32_t watched = 0;  // events
  Nanoseconds heard{0};       // when bytes came last
  Nanoseconds told{0};        // when it was sent some
  Nanoseconds progressed{0};  // when output was sent last, or there was none
  Nanoseconds caught_up{0};   // when there was nothing to be sent last
  Nanoseconds shut{0};        // when it was told that this is the end
  bool behind = false;        // something was unsent before the last requests were executed
  bool ended = false;         // the other side sends no more
  bool dead = false;
};

RespPort::RespPort(const RespPortOptions& options, KvClient client)
    : options_(options),
      store_(std::move(client), options.acknowledged, options.timeout, options.unread_bytes_max),
      buffer_(kReceiveBytes, '\0') {}

RespPort::~RespPort() {
  if (listener_ >= 0) ::close(listener_);  // first: who is cut off finds nobody
  connections_.clear();
  if (events_ >= 0) ::close(events_);
}

Result<std::unique_ptr<RespPort>> RespPort::open(const RespPortOptions& options, KvClient client) {
  std::unique_ptr<RespPort> port(new RespPort(options, std::move(client)));
  PERDURE_TRY_VOID(port->listen());
  return port;
}

Result<void> RespPort::listen() {
  PERDURE_TRY(at, control::parse_host_port(options_.listen));
  if (!options_.allow_remote && !control::is_loopback(at.host)) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("'{}' can be reached from elsewhere, and Redis's clients are not "
                             "authenticated; listen on 127.0.0.1, or say --allow-remote if "
                             "nobody who can reach it would do harm",
                             options_.listen)};
  }
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int failed =
      ::getaddrinfo(at.host.c_str(), std::to_string(at.port).c_str(), &hints, &found);
  if (failed != 0) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("'{}': {}", options_.listen, ::gai_strerror(failed))};
  }
  const AddressList addresses(found);
  listener_ = ::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (listener_ < 0) return errno_error("a socket", errno);
  const int on = 1;
  ::setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(listener_, found->ai_addr, found->ai_addrlen) != 0 ||
      ::listen(listener_, kBacklog) != 0) {
    const int error = errno;
    if (error == EADDRINUSE) {
      return Error{ErrorCode::Busy, fmt::format("'{}' is in use by another process: stop it, or "
                                                "choose another port",
                                                options_.listen)};
    }
    return errno_error(fmt::format("'{}'", options_.listen), error);
  }
  PERDURE_TRY(port, port_of(listener_));
  at.port = port;
  address_ = control::to_string(at);
  events_ = ::epoll_create1(EPOLL_CLOEXEC);
  if (events_ < 0) return errno_error("epoll", errno);
  return watch(listener_, EPOLLIN, false);
}

Result<void> RespPort::watch(int descriptor, std::uint32_t events, bool again) {
  epoll_event event{};
  event.events = events;
  event.data.fd = descriptor;
  if (::epoll_ctl(events_, again ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, descriptor, &event) == 0) {
    return {};
  }
  return errno_error("epoll", errno);
}

Result<void> RespPort::run(int stop) {
  PERDURE_TRY_VOID(watch(stop, EPOLLIN, false));
  Nanoseconds looked = Clock::monotonic().now();
  bool stopping = false;
  while (!stopping) {
    std::array<epoll_event, kEventsMax> events;
    const int count = ::epoll_wait(events_, events.data(), kEventsMax, kTickMs);
    if (count < 0 && errno != EINTR) return errno_error("epoll", errno);
    for (int at = 0; at < count; ++at) {
      const int descriptor = events[static_cast<std::size_t>(at)].data.fd;
      if (descriptor == stop) stopping = true;
      if (descriptor == listener_) accept_all();
      const auto found = connections_.find(descriptor);
      if (found == connections_.end()) continue;
      hear(*found->second);
      // Said again and again of one that is gone both ways, whether more of it is wanted or not.
      const bool gone = (events[static_cast<std::size_t>(at)].events & (EPOLLHUP | EPOLLERR)) != 0;
      if (gone && (found->second->ended || found->second->full())) found->second->dead = true;
    }
    // Before it waits for the store: who has said something while it did has been heard above.
    const Nanoseconds now = Clock::monotonic().now();
    if (now - looked >= std::chrono::milliseconds(kTickMs)) {
      look_at_time();
      looked = now;
    }
    store_.forget_outage();
    PERDURE_TRY_VOID(execute());
    close_ended();
  }
  ::epoll_ctl(events_, EPOLL_CTL_DEL, stop, nullptr);
  finish();
  return {};
}

void RespPort::accept_all() {
  for (int each = 0; each < kBacklog; ++each) {
    const int socket = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (socket >= 0) {
      accept(socket);
      continue;
    }
    // Without a descriptor left it stays in the queue, and is looked at again in a while.
    if (errno == EMFILE || errno == ENFILE) {
      (void)watch(listener_, 0, true);
      log_message(Severity::Warning,
                  "no descriptor is left for another client: raise the limit "
                  "(ulimit -n), or lower --connections-max");
    }
    return;
  }
}

void RespPort::accept(int socket) {
  ++store_.counts().accepted;
  if (connections_.size() >= options_.connections_max) {
    ++store_.counts().rejected;
    constexpr std::string_view kFull = "-ERR max number of clients reached\r\n";
    (void)::send(socket, kFull.data(), kFull.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    ::close(socket);
    return;
  }
  const int on = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  auto connection = std::make_unique<Connection>(socket);
  connection->heard = connection->progressed = connection->caught_up = Clock::monotonic().now();
  connection->watched = EPOLLIN;
  if (!watch(socket, EPOLLIN, false).ok()) return;
  connections_.emplace(socket, std::move(connection));
  store_.counts().connections = connections_.size();
}

/// Takes what has come, up to what there is room for; what is left, the next round brings.
void RespPort::hear(Connection& connection) {
  for (int each = 0; each < kReceivesMax; ++each) {
    if (connection.full() || connection.ended || connection.dead) return;
    const ssize_t got = ::recv(connection.socket, buffer_.data(), buffer_.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (got <= 0) {
      connection.ended = true;
      connection.dead = got < 0;
      return;
    }
    connection.heard = Clock::monotonic().now();
    if (connection.shut != Nanoseconds{0}) continue;
    const std::string_view input(buffer_.data(), static_cast<std::size_t>(got));
    parse(connection, input);
    if (input.size() < buffer_.size()) return;
  }
}

void RespPort::parse(Connection& connection, std::string_view input) {
  RespSession& session = connection.session;
  while (!input.empty() && !connection.full() && connection.final_error.empty()) {
    switch (connection.parser.take(input)) {
      case resp::RequestParser::Step::More: break;
      case resp::RequestParser::Step::Request:
        session.request_bytes += RespSession::bytes_of(connection.parser.arguments());
        session.requests.push_back(std::move(connection.parser.arguments()));
        break;
      case resp::RequestParser::Step::Broken:
        ++store_.counts().broken;
        resp::append_error(connection.final_error, "ERR " + connection.parser.error());
        break;
    }
  }
  connection.unread.assign(connection.final_error.empty() ? input : std::string_view());
}

Result<void> RespPort::execute() {
  while (true) {
    std::vector<RespSession*> sessions;
    for (auto& [socket, connection] : connections_) {
      if (connection->session.unsent() > 0) send(*connection);  // it may have room by now
      connection->behind = connection->session.unsent() > 0;
      sessions.push_back(&connection->session);
    }
    auto executed = store_.run(sessions);
    const Nanoseconds now = Clock::monotonic().now();
    bool more = false;
    for (auto& [socket, connection] : connections_) {
      if (!connection->behind) connection->caught_up = now;  // what it has, it has from now on
      if (connection->session.requests.empty() && !connection->final_error.empty()) {
        connection->session.output += std::exchange(connection->final_error, {});
        connection->session.quitting = true;
      }
      send(*connection);
      // What came behind the requests that are executed now.
      const std::string unread = std::exchange(connection->unread, {});
      parse(*connection, unread);
      more = more || (!connection->session.requests.empty() && !connection->session.quitting &&
                      connection->session.unsent() <= StoreRequests::kUnsentMax);
      watch(*connection);
    }
    if (!executed.ok()) return executed.error();
    // What is left then waits for clients to read.
    if (!more || !*executed) return {};
  }
}

void RespPort::send(Connection& connection) {
  RespSession& session = connection.session;
  while (session.unsent() > 0 && !connection.dead) {
    const ssize_t sent = ::send(connection.socket, session.output.data() + session.sent,
                                session.unsent(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      session.forget_sent();
      return;
    }
    if (sent <= 0) {
      connection.dead = true;
      return;
    }
    session.sent += static_cast<std::size_t>(sent);
    connection.progressed = connection.told = Clock::monotonic().now();
  }
  connection.progressed = connection.caught_up = Clock::monotonic().now();
  session.output.clear();
  if (session.output.capacity() > StoreRequests::kUnsentMax) session.output.shrink_to_fit();
  session.sent = 0;
  if (session.quitting && connection.shut == Nanoseconds{0}) {
    // It may still send: closing now would make it lose what it was told.
    ::shutdown(connection.socket, SHUT_WR);
    connection.shut = connection.progressed;
    session.requests.clear();
    session.request_bytes = 0;
    connection.unread.clear();
  }
}

/// What it waits for: more requests if there is room for them, room for replies if there are any.
void RespPort::watch(Connection& connection) {
  std::uint32_t wanted = 0;
  if (!connection.ended && !connection.full()) wanted |= EPOLLIN;
  if (connection.session.unsent() > 0) wanted |= EPOLLOUT;
  if (wanted == connection.watched) return;
  connection.watched = wanted;
  if (!watch(connection.socket, wanted, true).ok()) connection.dead = true;
}

bool RespPort::too_much_unread() const {
  std::uint64_t unread = 0;
  for (const auto& [socket, connection] : connections_) unread += connection->session.unsent();
  return unread > options_.unread_bytes_max;
}

/// Above the limit all wait. Who reads a little now and then is not deaf, and would hold them up
/// for as long as it likes: so it is who has most unread, and had some for a while, that goes.
void RespPort::cut_off_largest(Nanoseconds now) {
  Connection* largest = nullptr;
  for (auto& [socket, connection] : connections_) {
    if (connection->dead || now - connection->caught_up <= kPatience) continue;
    const bool larger =
        largest == nullptr || connection->session.unsent() > largest->session.unsent();
    if (larger) largest = connection.get();
  }
  if (largest == nullptr) return;
  ++store_.counts().stalled;
  largest->dead = true;
}

void RespPort::look_at_time() {
  const Nanoseconds now = Clock::monotonic().now();
  if (too_much_unread()) cut_off_largest(now);
  (void)watch(listener_, EPOLLIN, true);
  for (auto& [socket, connection] : connections_) {
    const RespSession& session = connection->session;
    const bool shut = connection->shut != Nanoseconds{0};
    const bool deaf = session.unsent() > 0 && now - connection->progressed > options_.stall;
    const bool half = connection->parser.within_request() && session.requests.empty() &&
                      now - connection->heard > options_.stall;
    const bool idle = options_.idle.count() != 0 && session.unsent() == 0 &&
                      session.requests.empty() &&
                      now - std::max(connection->heard, connection->told) > options_.idle;
    if (!shut && !connection->dead && (deaf || half)) ++store_.counts().stalled;
    if (deaf || half || idle || (shut && now - connection->shut > kLinger)) connection->dead = true;
  }
}

void RespPort::close_ended() {
  std::erase_if(connections_, [](const auto& entry) {
    const Connection& connection = *entry.second;
    const bool nothing_left =
        connection.session.requests.empty() && connection.session.unsent() == 0;
    return connection.dead || (connection.ended && nothing_left);
  });
  store_.counts().connections = connections_.size();
}

/// Nobody new; what has come whole is executed and answered, as far as its client reads on.
void RespPort::finish() {
  ::close(std::exchange(listener_, -1));
  for (auto& [socket, connection] : connections_) hear(*connection);
  const Deadline deadline = Deadline::after(kLinger);
  while (!deadline.passed()) {
    if (!execute().ok()) break;
    bool left = false;
    for (auto& [socket, connection] : connections_) {
      left = left || (!connection->dead &&
                      (connection->session.unsent() > 0 || !connection->session.requests.empty()));
    }
    if (!left) break;
    std::array<epoll_event, kEventsMax> events;
    (void)::epoll_wait(events_, events.data(), kEventsMax, 10);
  }
  connections_.clear();
}

}  // namespace perdure::kv_app
