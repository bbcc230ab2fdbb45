// An rpmemd that listens: see listening_rpmemd.h.
#include "tests/compat/listening_rpmemd.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>

namespace perdure::test {

void ListeningDaemon::start(const Target& target, const std::string& address) {
  said_ = target.here("said");
  auto started = ChildProcess::start(
      {RPMEMD, "--config", target.at_home("conf"), "--listen", address + ":0"}, said_);
  ASSERT_TRUE(started.ok()) << started.error().message;
  process_ = std::move(*started);
  const Deadline within = Deadline::after(std::chrono::seconds(60));
  std::string said;
  while (said.find('\n') == std::string::npos && process_.running() && !within.passed()) {
    pause_for(std::chrono::milliseconds(5));
    said = read_whole(said_);
  }
  const std::string before = fmt::format("listening at {}:", address);
  ASSERT_TRUE(said.starts_with(before) && said.ends_with('\n')) << said;
  host_ = said.substr(said.find(address), said.size() - 1 - said.find(address));
  ::setenv("RPMEM_SSH", RPMEM_CONNECT, 1);
}

bool has_ipv6() {
  const int one = ::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (one < 0) return false;
  sockaddr_in6 at{};
  at.sin6_family = AF_INET6;
  at.sin6_addr = in6addr_loopback;
  const bool has = ::bind(one, reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0;
  ::close(one);
  return has;
}

}  // namespace perdure::test
