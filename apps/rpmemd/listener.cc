// rpmemd in ssh's place: see listener.h.
#include "listener.h"

#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>

#include "control/host_port.h"
#include "core/backoff.h"
#include "core/clock.h"
#include "core/errno_error.h"
#include "core/random.h"
#include "core/try.h"
#include "fabric/socket_address.h"
#include "rpmem/asked_command.h"

namespace perdure::rpmem {
namespace {

constexpr int kBacklog = 64;
constexpr Nanoseconds kLineWithin = std::chrono::seconds(5);
constexpr int kExitNotServed = 2;
constexpr Nanoseconds kFirstPause = std::chrono::milliseconds(20);  // and up to 16 times that

/// A line, byte by byte: what follows is rpmemd's.
std::optional<std::string> read_line(int connection, const Deadline& deadline) {
  std::string line;
  while (!deadline.passed() && line.size() < kCommandBytesMax) {
    pollfd ready{connection, POLLIN, 0};
    constexpr int kSliceMs = 100;
    if (::poll(&ready, 1, kSliceMs) <= 0) continue;
    char c = 0;
    if (::read(connection, &c, 1) != 1) return std::nullopt;
    if (c == '\n') return line;
    line.push_back(c);
  }
  return std::nullopt;
}

/// Nobody is asked for a credential here; who shows one all the same is served as the others.
std::optional<std::string> read_command(int connection) {
  const Deadline deadline = Deadline::after(kLineWithin);
  auto line = read_line(connection, deadline);
  return line && credential_in(*line) ? read_line(connection, deadline) : line;
}

void say(int connection, const std::string& text) {
  (void)::send(connection, text.data(), text.size(), MSG_NOSIGNAL);
}

/// In a process of its own, until the client has gone.
void serve_one(const ListenerOptions& options, int connection) {
  const auto command = read_command(connection);
  if (!command) ::_exit(kExitNotServed);
  const auto arguments = arguments_in(*command);
  if (!arguments.ok()) {
    say(connection, refusal(*command, arguments.error()));
    ::_exit(kExitNotServed);
  }
  // NOLINTNEXTLINE(concurrency-mt-unsafe): a child that has one thread
  ::setenv("SSH_CONNECTION", ends_of(connection).c_str(), 1);
  (void)::dup2(connection, STDIN_FILENO);
  (void)::dup2(connection, STDOUT_FILENO);
  if (arguments->empty()) {
    ::close(connection);
    ::_exit(options.run(*arguments));
  }
  const pid_t child = ::fork();
  if (child == 0) {
    (void)::dup2(connection, STDERR_FILENO);
    ::_exit(options.run(*arguments));
  }
  int status = 0;
  (void)::waitpid(child, &status, 0);
  say(connection, fmt::format("exit {}\n", WIFEXITED(status) ? WEXITSTATUS(status) : EIO));
  ::_exit(0);
}

Result<int> listen_at(const control::HostPort& at) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int failed =
      ::getaddrinfo(at.host.c_str(), std::to_string(at.port).c_str(), &wanted, &found);
  if (failed != 0) return Error{ErrorCode::InvalidArgument, ::gai_strerror(failed)};
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> all(found, &::freeaddrinfo);
  const int listener = ::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (listener < 0) return errno_error("socket", errno);
  const int on = 1;
  (void)::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(listener, found->ai_addr, found->ai_addrlen) == 0 &&
      ::listen(listener, kBacklog) == 0) {
    return listener;
  }
  const int why = errno;
  ::close(listener);
  return errno_error(control::to_string(at), why);
}

/// What keeps a listener from taking a client that is there: accept(2) and fork(2). It may pass.
bool may_pass(int why) {
  switch (why) {
    case EMFILE:
    case ENFILE:
    case ENOBUFS:
    case ENOMEM:
    case EAGAIN: return true;  // of fork: too many processes
    default: return false;
  }
}

/// Says once what is missing, and waits before the next try: longer each time, up to a limit.
void wait_for_room(std::optional<Backoff>& lacking, const char* call, int why) {
  const Clock& clock = Clock::monotonic();
  if (!lacking) {
    lacking.emplace(kFirstPause, random_secret());
    fmt::print(stderr,
               "rpmemd: clients wait ({}): end other programs, or raise the limits of open files "
               "and processes (ulimit -n, ulimit -u); it is tried again\n",
               errno_error(call, why).message);
    std::fflush(stderr);
  }
  lacking->failed(clock.now());
  constexpr int kSliceMs = 5;
  while (!lacking->due(clock.now())) (void)::poll(nullptr, 0, kSliceMs);
}

/// The next client. Errors: SystemError: there will be none.
Result<int> take_client(int listener, std::optional<Backoff>& lacking) {
  for (;;) {
    const int connection = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    const int why = errno;
    if (connection >= 0) return connection;
    if (why == EINTR || why == ECONNABORTED) continue;  // the latter: that client has gone
    if (!may_pass(why)) return errno_error("accept", why);
    wait_for_room(lacking, "accept", why);
  }
}

}  // namespace

Result<void> listen_for_clients(const ListenerOptions& options) {
  PERDURE_TRY(at, control::parse_host_port(options.listen));
  if (!control::is_loopback(at.host)) {
    return Error{ErrorCode::PermissionDenied,
                 fmt::format("{}: nobody is authenticated there, so that it is for this machine "
                             "alone; let others come by ssh, through a tunnel, or to a perdured "
                             "(--rpmem-poolset-dir)",
                             options.listen)};
  }
  PERDURE_TRY(listener, listen_at(at));
  ::signal(SIGCHLD, SIG_IGN);  // nobody waits for those who serve
  fabric::SocketAddress own;
  own.length = sizeof own.storage;
  (void)::getsockname(listener, reinterpret_cast<sockaddr*>(&own.storage), &own.length);
  fmt::print("listening at {}\n", control::to_string({at.host, fabric::port_of(own)}));
  std::fflush(stdout);
  std::optional<Backoff> lacking;
  for (;;) {
    PERDURE_TRY(connection, take_client(listener, lacking));
    pid_t child = ::fork();
    while (child < 0 && may_pass(errno)) {
      wait_for_room(lacking, "fork", errno);
      child = ::fork();
    }
    if (child == 0) {
      ::signal(SIGCHLD, SIG_DFL);
      ::close(listener);
      serve_one(options, connection);
    }
    ::close(connection);
    lacking.reset();
  }
}

}  // namespace perdure::rpmem
