// A client of librpmem that has not said yet what it wants: see asking_client.h.
#include "asking_client.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <string_view>
#include <utility>

#include "rpmem/asked_command.h"

namespace perdure::daemon {
namespace {

// Half a minute without a sign of the client's kernel.
constexpr int kAliveIdleS = 10;
constexpr int kAliveEveryS = 5;
constexpr int kAliveTries = 4;

}  // namespace

AskingClient::AskingClient(Descriptor connection, std::string address, Deadline until)
    : connection_(std::move(connection)), address_(std::move(address)), until_(until) {
  const auto set = [this](int level, int option, int value) {
    (void)::setsockopt(connection_.number(), level, option, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, kAliveIdleS);
  set(IPPROTO_TCP, TCP_KEEPINTVL, kAliveEveryS);
  set(IPPROTO_TCP, TCP_KEEPCNT, kAliveTries);
  // Where something is not acknowledged nobody asks whether the other end is alive.
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, 1000 * (kAliveIdleS + kAliveTries * kAliveEveryS));
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
}

AskingClient::Heard AskingClient::hear() {
  const int connection = connection_.number();
  std::array<char, rpmem::kCommandBytesMax> bytes{};
  for (;;) {
    ssize_t got = ::recv(connection, bytes.data(), bytes.size(), MSG_PEEK | MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return Heard::More;
    if (got <= 0) return Heard::End;
    const std::string_view seen(bytes.data(), static_cast<std::size_t>(got));
    const std::size_t end = seen.find('\n');
    const bool whole = end != std::string_view::npos;
    line_ += seen.substr(0, end);
    got = ::recv(connection, bytes.data(), whole ? end + 1 : seen.size(), MSG_DONTWAIT);
    if (got <= 0 || line_.size() > rpmem::kCommandBytesMax) return Heard::End;
    if (!whole) continue;
    const auto credential = rpmem::credential_in(line_);
    if (!credential) return Heard::Command;
    if (credential_) return Heard::End;
    credential_ = std::string(*credential);
    line_.clear();
  }
}

}  // namespace perdure::daemon
